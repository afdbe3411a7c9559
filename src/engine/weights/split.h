/* split.h - the map from the layers of a model to devices.
 *
 * A layer has two halves, the mixer (with its cache or state) and the feed-forward block (with its experts). Each half is on
 * one device. The token embeddings are on the device of the first mixer; the output head has a device of its own choice. Where
 * the halves on both sides of a border are on different devices, the engine moves the residual stream (engine/forward.c). Bits
 * do not depend on the map.
 *
 * Invariants: mixers ascend over the devices, so that cached sequences have one order of bytes. A layer that reads the keys and
 * values of another is on that layer's device. The two halves of a parallel block, and those of a layer with a channel mix,
 * are on one device.
 * Owns nothing: the devices belong to the caller.
 */
#ifndef AE_ENGINE_WEIGHTS_SPLIT_H
#define AE_ENGINE_WEIGHTS_SPLIT_H

#include "backend/backend.h"
#include "model/model.h"

typedef struct ae_split {
    uint32_t n_devices;
    ae_backend *devices[AE_MAX_DEVICES];
    uint8_t output;                /* number of the device that has the output head, the logits and the hidden rows */
    uint8_t mixer[AE_MAX_LAYERS];  /* [n_layers] */
    uint8_t ffn[AE_MAX_LAYERS];    /* [n_layers] */
} ae_split;

/* Puts everything on one device. */
void ae_split_one(ae_split *split, const ae_model *model, ae_backend *device);
/* Gives each of n devices the layers from begin[i] up to those of the next device; begin[0] is 0, and the output counts as the
 * layer after the last one. A border that would break an invariant moves up to the next possible one, so a later device never
 * gets more layers than intended. */
void ae_split_layers(ae_split *split, const ae_model *model, ae_backend *const *devices, const uint32_t *begin, uint32_t n);
/* Moves the layer's feed-forward block to this device, which may be new to the split. UNSUPPORTED: a parallel block or a
 * channel mix (the layer is named). LIMIT: too many devices. */
aerie_status ae_split_set_ffn(ae_split *split, const ae_model *model, uint32_t layer, ae_backend *device, aerie_error *error);

/* Halves are numbered: 2 i the mixer of layer i, 2 i + 1 its feed-forward block, 2 n_layers the output. */
static inline uint32_t ae_split_device(const ae_split *split, uint32_t n_layers, uint32_t half)
{
    if (half >= 2 * n_layers) return split->output;
    return half % 2 ? split->ffn[half / 2] : split->mixer[half / 2];
}
/* Returns the end of the run of halves, starting with `half`, that are on one device. */
uint32_t ae_split_run_end(const ae_split *split, uint32_t n_layers, uint32_t half);

#endif
