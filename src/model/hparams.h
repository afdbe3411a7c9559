/* hparams.h - a model's keys as hyper-parameters and layer specifications. Private to src/model. */
#ifndef AE_MODEL_HPARAMS_H
#define AE_MODEL_HPARAMS_H

#include "model/bind.h"

/* Reads the number of layers of the trunk, and of MTP blocks after it. */
aerie_status ae_bind_n_layers(ae_binder *b, ae_hparams *h);
/* Reads everything else into h (whose n_layers and n_vocab must be set) and into the specs of layers[b->n_specs], which must be
 * zero. */
aerie_status ae_bind_model_hparams(ae_binder *b, ae_hparams *h, const aerie_rope *rope, ae_arena *arena, ae_layer *layers);
/* Reads a count that a file has once, or for each layer, into values[b->n_specs]; they keep their values if the key is absent.
 * MTP blocks beyond the end of an array get the largest of the other values, or 0 for flags (`most` 1). FORMAT: a value above
 * `most`, or fewer values than the trunk has layers. */
aerie_status ae_bind_per_layer(ae_binder *b, const char *suffix, bool required, uint32_t n_trunk, uint32_t most,
                               uint32_t *values);

#endif
