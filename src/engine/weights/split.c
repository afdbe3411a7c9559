/* split.c - see split.h. */
#include "engine/weights/split.h"

#include <string.h>

void ae_split_one(ae_split *split, const ae_model *model, ae_backend *device)
{
    ae_split_layers(split, model, &device, (const uint32_t[]){0}, 1);
}

/* Returns whether a border before layer `at` would separate a layer from the layer whose keys and values it reads. */
static bool parts_readers(const ae_model *m, uint32_t at)
{
    for (uint32_t i = at; i < m->hparams.n_layers; i++) {
        const ae_layer_spec *s = &m->layers[i].spec;
        if (s->mixer == AE_MIXER_ATTENTION && s->kv_from >= 0 && (uint32_t)s->kv_from < at) return true;
    }
    return false;
}

void ae_split_layers(ae_split *split, const ae_model *model, ae_backend *const *devices, const uint32_t *begin, uint32_t n)
{
    const uint32_t n_layers = model->hparams.n_layers;
    uint32_t from[AE_MAX_DEVICES + 1] = {0};
    *split = (ae_split){0};
    for (uint32_t i = 1; i < n; i++) {
        from[i] = begin[i] < n_layers + 1 ? begin[i] : n_layers + 1;
        if (from[i] < from[i - 1]) from[i] = from[i - 1];
        while (from[i] < n_layers && parts_readers(model, from[i])) from[i]++;
    }
    from[n] = n_layers + 1;
    for (uint32_t i = 0; i < n; i++) { /* devices without layers left do not count */
        if (from[i] >= from[i + 1]) continue;
        const uint8_t at = (uint8_t)split->n_devices++;
        split->devices[at] = devices[i];
        split->output = at;
        for (uint32_t k = from[i]; k < from[i + 1] && k < n_layers; k++) split->mixer[k] = split->ffn[k] = at;
    }
}

aerie_status ae_split_set_ffn(ae_split *split, const ae_model *model, uint32_t layer, ae_backend *device, aerie_error *error)
{
    uint32_t at = 0;
    if (model->hparams.parallel || model->hparams.keeps_input)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: layer %u computes attention and experts of the same rows, so they "
                       "cannot lie on two devices", ae_gguf_path(model->gguf), layer);
    if (model->layers[layer].spec.ffn == AE_FFN_CHANNEL_MIX)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: the channel mix of layer %u keeps a row in the state of its mixer, "
                       "so both must be on the same device", ae_gguf_path(model->gguf), layer);
    while (at < split->n_devices && split->devices[at] != device) at++;
    if (at == AE_MAX_DEVICES)
        return ae_fail(error, AERIE_ERROR_LIMIT, "a model can use at most %d devices", AE_MAX_DEVICES);
    if (at == split->n_devices) split->devices[split->n_devices++] = device;
    split->ffn[layer] = (uint8_t)at;
    return AERIE_OK;
}

uint32_t ae_split_run_end(const ae_split *split, uint32_t n_layers, uint32_t half)
{
    const uint32_t device = ae_split_device(split, n_layers, half);
    while (half <= 2 * n_layers && ae_split_device(split, n_layers, half) == device) half++;
    return half;
}
