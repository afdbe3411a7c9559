/* hparams.h - a model's keys as hyper-parameters and layer specifications. Private to src/model. */
#ifndef AE_MODEL_HPARAMS_H
#define AE_MODEL_HPARAMS_H

#include "model/bind.h"

/* Layers of the trunk, and the blocks after it that predict further ahead. */
aerie_status ae_bind_n_layers(ae_binder *b, ae_hparams *h);
/* Everything else, into h (whose n_layers and n_vocab stand) and the specs of layers[b->n_specs], which are zero. */
aerie_status ae_bind_model_hparams(ae_binder *b, ae_hparams *h, const aerie_rope *rope, ae_arena *arena, ae_layer *layers);
/* A count that a file gives once or for each layer: values[b->n_specs], kept where the key is absent. Of MTP blocks that an
 * array does not reach: the largest of the others, or no if it is a flag (most 1). FORMAT beyond `most`, or for fewer values
 * than the trunk has layers. */
aerie_status ae_bind_per_layer(ae_binder *b, const char *suffix, bool required, uint32_t n_trunk, uint32_t most,
                               uint32_t *values);

#endif
