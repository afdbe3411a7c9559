/* convert_taps.c - which layers of the target a head taps, numbered by the layer whose input is tapped.
 *
 * Two numberings are in use: the input of layer i is the output of layer i - 1. All are turned into inputs, 0 to L; L is
 * after the last layer, before the final norm. EAGLE's own choice is 2, L/2, L-3 as inputs, which others write as 1, L/2-1,
 * L-4.
 */
#include <stdlib.h>
#include <string.h>

#include "convert/convert.h"

typedef struct tap_list {
    uint32_t items[AE_DHEAD_MAX_TAPS];
    uint32_t n;
    bool inside; /* eagle_config */
} tap_list;

static int read_list(const convert *c, tap_list *list)
{
    static const char key[] = "eagle_aux_hidden_state_layer_ids";
    const json_t *json = json_object_get(c->eagle, key), *item;
    size_t i;
    list->inside = json_array_size(json) > 0;
    if (!list->inside) json = convert_value(c, key);
    if (!json || json_array_size(json) == 0) return APP_DONE;
    json_array_foreach(json, i, item) {
        if (i >= AE_DHEAD_MAX_TAPS || !json_is_integer(item) || json_integer_value(item) < 0 ||
            json_integer_value(item) > AE_MAX_LAYERS) {
            return app_error(APP_BAD_FILE, "%s: '%s': element %zu is not a layer from 0 to %d, of which there may be %d",
                             c->config_path, key, i, AE_MAX_LAYERS, AE_DHEAD_MAX_TAPS);
        }
        list->items[list->n++] = (uint32_t)json_integer_value(item);
    }
    return APP_DONE;
}

/* --taps 2,15,27 */
static int parse_list(const char *text, tap_list *list)
{
    for (const char *p = text;; p++) {
        char *end;
        const unsigned long value = strtoul(p, &end, 10);
        if (*p < '0' || *p > '9' || value > AE_MAX_LAYERS || (*end && *end != ',') || list->n == AE_DHEAD_MAX_TAPS) {
            return app_error(APP_USAGE, "--taps takes input, output, or up to %d layers (2,15,27, "
                             "layers whose inputs are tapped); found '%s'",
                             AE_DHEAD_MAX_TAPS, text);
        }
        list->items[list->n++] = (uint32_t)value;
        if (!*end) return APP_DONE;
        p = end;
    }
}

/* Whether three ids are EAGLE's choice, in the numbering of inputs (0) or outputs (1), for a target of L layers; L = 0: of
 * any number that fits. */
static bool is_usual(const tap_list *list, uint32_t minus, uint32_t n_layers)
{
    const uint32_t *id = list->items;
    if (list->n != 3) return false;
    if (!n_layers) n_layers = id[2] + 3 + minus;
    return id[0] == 2 - minus && id[1] + minus == n_layers / 2 && id[2] + 3 + minus == n_layers;
}

static void settle_numbering(convert *c, const tap_list *list, const char *wanted)
{
    convert_head *h = &c->head;
    bool outputs;
    if (wanted) outputs = strcmp(wanted, "output") == 0;
    else if (is_usual(list, 1, h->n_target_layers)) outputs = true;
    else if (is_usual(list, 0, h->n_target_layers)) outputs = false;
    else outputs = list->inside;
    h->n_taps = list->n;
    for (uint32_t i = 0; i < list->n; i++) h->taps[i] = list->items[i] + outputs;
    h->taps_from = outputs ? "outputs in the config" : "inputs in the config";
}

static int use_default(convert *c)
{
    convert_head *h = &c->head;
    const uint32_t n = h->n_target_layers;
    if (!n) {
        return app_error(APP_BAD_FILE,
                         "%s: it names no layers ('eagle_aux_hidden_state_layer_ids'), and the usual ones, 2, L/2 and "
                         "L-3, depend on "
                         "the number of the target's layers: give --target FILE or --taps LIST",
                         *c->config_path ? c->config_path : c->path);
    }
    if (n < 6) {
        return app_error(APP_BAD_FILE, "%s: it names no layers, and the usual ones, 2, L/2 and L-3, do not fit a target of %u; "
                         "give --taps LIST",
                         *c->config_path ? c->config_path : c->path, (unsigned)n);
    }
    h->n_taps = 3;
    h->taps[0] = 2, h->taps[1] = n / 2, h->taps[2] = n - 3;
    h->taps_from = "the usual ones";
    return APP_DONE;
}

/* The feature is what the target's output head sees. The format has no such tap: it becomes the tap after the last layer
 * under the target's own final norm, and a unit matrix where there is no fc. */
static int use_last(convert *c)
{
    convert_head *h = &c->head;
    if (!c->target) {
        return app_error(APP_BAD_FILE, "%s: 'use_aux_hidden_state' is false: this head takes the target's rows after its final "
                         "norm, which has to be copied from the target; give --target FILE", c->config_path);
    }
    if (h->fc_norm != AE_FC_NORM_NONE) {
        return app_error(APP_BAD_FILE, "%s: 'use_aux_hidden_state' is false, but there are norms for taps", c->config_path);
    }
    h->no_aux = true;
    h->n_taps = 1;
    h->taps[0] = h->n_target_layers;
    h->taps_from = "its output";
    h->fc_norm = AE_FC_NORM_JOINT;
    return APP_DONE;
}

/* fc.weight [n_embd, n_taps * n_target_embd] */
static int check_width(convert *c)
{
    convert_head *h = &c->head;
    const ae_st_tensor *fc = convert_look(c, "fc.weight");
    char shape[128];
    if (!fc) {
        if (h->no_aux && h->n_embd == h->n_target_embd) return APP_DONE;
        return app_error(APP_BAD_FILE, "%s: fc.weight is missing; it turns %u taps of width %u into one row of width "
                                       "%u", c->path,
                         (unsigned)h->n_taps, (unsigned)h->n_target_embd, (unsigned)h->n_embd);
    }
    const uint64_t columns = fc->n_dims == 2 ? fc->shape[1] : 0;
    if (!h->n_target_embd && columns && columns % h->n_taps == 0 && columns / h->n_taps <= AE_MAX_EMBD) {
        h->n_target_embd = (uint32_t)(columns / h->n_taps);
    }
    if (columns && columns == (uint64_t)h->n_taps * h->n_target_embd && fc->shape[0] == h->n_embd) return APP_DONE;
    return app_error(APP_BAD_FILE, "%s: tensor %s is %s; for %u taps of width %u [%u, %llu] is needed", c->path, fc->name,
                     convert_shape(fc, shape), (unsigned)h->n_taps, (unsigned)h->n_target_embd, (unsigned)h->n_embd,
                     (unsigned long long)h->n_taps * h->n_target_embd);
}

static int check_layers(const convert *c)
{
    const convert_head *h = &c->head;
    for (uint32_t i = 0; i < h->n_taps; i++) {
        if (h->n_target_layers && h->taps[i] > h->n_target_layers) {
            return app_error(APP_BAD_FILE, "%s: it taps the input of layer %u (%s), but %s has %u layers", c->path,
                             (unsigned)h->taps[i], h->taps_from, c->options->convert_target, (unsigned)h->n_target_layers);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (h->taps[k] == h->taps[i])
                return app_error(APP_BAD_FILE, "%s: layer %u is listed twice", c->path, (unsigned)h->taps[i]);
        }
    }
    return APP_DONE;
}

int convert_read_taps(convert *c)
{
    convert_head *h = &c->head;
    const char *wanted = c->options->convert_taps;
    const bool numbering = wanted && (strcmp(wanted, "input") == 0 || strcmp(wanted, "output") == 0);
    const json_t *use = c->eagle ? json_object_get(c->eagle, "use_aux_hidden_state") : NULL;
    tap_list list = {.n = 0};
    if (!use) use = convert_value(c, "use_aux_hidden_state");
    if (wanted && !numbering) {
        CONVERT_TRY(parse_list(wanted, &list));
        h->n_taps = list.n;
        memcpy(h->taps, list.items, sizeof list.items);
        h->taps_from = "given";
    } else if (json_is_false(use)) {
        CONVERT_TRY(use_last(c));
    } else {
        CONVERT_TRY(read_list(c, &list));
        if (list.n) settle_numbering(c, &list, numbering ? wanted : NULL);
        else CONVERT_TRY(use_default(c));
    }
    CONVERT_TRY(check_layers(c));
    return check_width(c);
}
