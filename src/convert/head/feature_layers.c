/* feature_layers.c - which layers of the target a head taps, numbered by the layer whose input is tapped.
 * There are two numberings, since the input of layer i is the output of layer i - 1. All are converted to inputs, 0 to L; L is
 * after the last layer, before the final norm. EAGLE's own choice is inputs 2, L/2, L-3, which other programs write as outputs
 * 1, L/2-1, L-4. */
#include <string.h>

#include "convert/checkpoint/checkpoint.h"

typedef struct tap_list {
    uint32_t items[AERIE_MAX_TAPS];
    uint32_t n;
    bool inside; /* in eagle_config */
} tap_list;

static aerie_status read_list(const ae_convert *c, tap_list *list)
{
    static const char key[] = "eagle_aux_hidden_state_layer_ids";
    const json_t *json = json_object_get(c->eagle, key), *item;
    size_t i;
    list->inside = json_array_size(json) > 0;
    if (!list->inside) json = ae_convert_value(c, key);
    if (!json || json_array_size(json) == 0) return AERIE_OK;
    json_array_foreach(json, i, item) {
        if (i >= AERIE_MAX_TAPS || !json_is_integer(item) || json_integer_value(item) < 0 ||
            json_integer_value(item) > AE_MAX_LAYERS) {
            return ae_fail(c->error, AERIE_ERROR_FORMAT,
                           "%s: '%s': element %zu is not a layer from 0 to %d, of which there may be %d", c->config_path, key,
                           i, AE_MAX_LAYERS, AERIE_MAX_TAPS);
        }
        list->items[list->n++] = (uint32_t)json_integer_value(item);
    }
    return AERIE_OK;
}

/* Returns whether three ids are EAGLE's choice for a target of L layers, as inputs (minus 0) or outputs (1). L = 0: for any
 * L. */
static bool is_usual(const tap_list *list, uint32_t minus, uint32_t n_layers)
{
    const uint32_t *id = list->items;
    if (list->n != 3) return false;
    if (!n_layers) n_layers = id[2] + 3 + minus;
    return id[0] == 2 - minus && id[1] + minus == n_layers / 2 && id[2] + 3 + minus == n_layers;
}

static void settle_numbering(ae_convert *c, const tap_list *list)
{
    ae_convert_head *h = &c->head;
    bool outputs;
    if (c->options.taps_are != AE_CONVERT_TAPS_AUTO) outputs = c->options.taps_are == AE_CONVERT_TAPS_OUTPUTS;
    else if (is_usual(list, 1, h->n_target_layers)) outputs = true;
    else if (is_usual(list, 0, h->n_target_layers)) outputs = false;
    else outputs = list->inside;
    h->n_taps = list->n;
    for (uint32_t i = 0; i < list->n; i++) h->taps[i] = list->items[i] + outputs;
    h->taps_from = outputs ? "outputs in the config" : "inputs in the config";
}

static aerie_status use_default(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    const uint32_t n = h->n_target_layers;
    if (!n) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: the config names no layers ('eagle_aux_hidden_state_layer_ids'), and the default, 2, L/2 and L-3, "
                       "depends on the target's number of layers: give --target FILE or --taps LIST",
                       *c->config_path ? c->config_path : c->path);
    }
    if (n < 6) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: the config names no layers, and the usual ones, 2, L/2 and L-3, do not fit a target of %u; "
                       "give --taps LIST",
                       *c->config_path ? c->config_path : c->path, (unsigned)n);
    }
    h->n_taps = 3;
    h->taps[0] = 2, h->taps[1] = n / 2, h->taps[2] = n - 3;
    h->taps_from = "the usual ones";
    return AERIE_OK;
}

/* Handles a head whose feature is the input of the target's output head. The format has no such tap, so the tap after the last
 * layer is used, with the target's final norm, and a unit matrix if there is no fc. */
static aerie_status use_last(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    if (!c->target) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: 'use_aux_hidden_state' is false: this head takes the target's rows after its final "
                       "norm, which has to be copied from the target; give --target FILE",
                       c->config_path);
    }
    if (h->fc_norm != AE_FC_NORM_NONE) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'use_aux_hidden_state' is false, but there are norms for taps",
                       c->config_path);
    }
    h->no_aux = true;
    h->n_taps = 1;
    h->taps[0] = h->n_target_layers;
    h->taps_from = "its output";
    h->fc_norm = AE_FC_NORM_JOINT;
    return AERIE_OK;
}

/* Checks that fc.weight is [n_embd, n_taps * n_target_embd]. */
static aerie_status check_width(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    const ae_st_tensor *fc = ae_convert_look(c, "fc.weight");
    char shape[128];
    if (!fc) {
        if (h->no_aux && h->n_embd == h->n_target_embd) return AERIE_OK;
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: fc.weight is missing; it turns %u taps of width %u into one row of width "
                       "%u",
                       c->path, (unsigned)h->n_taps, (unsigned)h->n_target_embd, (unsigned)h->n_embd);
    }
    const uint64_t columns = fc->n_dims == 2 ? fc->shape[1] : 0;
    if (!h->n_target_embd && columns && columns % h->n_taps == 0 && columns / h->n_taps <= AE_MAX_EMBD) {
        h->n_target_embd = (uint32_t)(columns / h->n_taps);
    }
    if (columns && columns == (uint64_t)h->n_taps * h->n_target_embd && fc->shape[0] == h->n_embd) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; for %u taps of width %u [%u, %llu] is needed", c->path,
                   fc->name, ae_convert_shape(fc, shape), (unsigned)h->n_taps, (unsigned)h->n_target_embd, (unsigned)h->n_embd,
                   (unsigned long long)h->n_taps * h->n_target_embd);
}

static aerie_status check_layers(const ae_convert *c)
{
    const ae_convert_head *h = &c->head;
    for (uint32_t i = 0; i < h->n_taps; i++) {
        if (h->n_target_layers && h->taps[i] > h->n_target_layers) {
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: it taps the input of layer %u (%s), but %s has %u layers",
                           c->path, (unsigned)h->taps[i], h->taps_from, c->options.target, (unsigned)h->n_target_layers);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (h->taps[k] == h->taps[i])
                return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: layer %u is listed twice", c->path, (unsigned)h->taps[i]);
        }
    }
    return AERIE_OK;
}

aerie_status ae_convert_head_taps(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    const json_t *use = c->eagle ? json_object_get(c->eagle, "use_aux_hidden_state") : NULL;
    tap_list list = {.n = 0};
    if (!use) use = ae_convert_value(c, "use_aux_hidden_state");
    if (c->options.taps_are == AE_CONVERT_TAPS_LIST) {
        h->n_taps = c->options.n_taps;
        memcpy(h->taps, c->options.taps, sizeof h->taps);
        h->taps_from = "given";
    } else if (json_is_false(use)) {
        AE_TRY(use_last(c));
    } else {
        AE_TRY(read_list(c, &list));
        if (list.n) settle_numbering(c, &list);
        else AE_TRY(use_default(c));
    }
    AE_TRY(check_layers(c));
    return check_width(c);
}
