/* bind.h - reading hyper-parameters and tensors by name, checked: what models and heads share. Private to src/model.
 *
 * Owns nothing. Every failure names the file, the key or tensor as the file spells it, what was found and what is needed.
 */
#ifndef AE_MODEL_BIND_H
#define AE_MODEL_BIND_H

#include "model/arch.h"

typedef struct ae_binder {
    const ae_gguf *gguf;
    const ae_arch *arch;
    aerie_error *error;
    ae_bound *bound;  /* [tensors of the file]; NULL: nothing is noted */
    uint32_t n_specs; /* of models: layers that get a specification, those of the trunk and, if they are bound, of MTP */
    char key[96]; /* the last that was looked up */
} ae_binder;

/* "llama.block_count" for "block_count"; of drafters' files, where that is absent, also "eagle3.eagle3.block_count" as some
 * converters write it. Valid until the next call. */
const char *ae_bind_key(ae_binder *b, const char *suffix);
/* FORMAT unless lo <= value <= hi. */
aerie_status ae_bind_range(ae_binder *b, const char *suffix, uint32_t value, uint32_t lo, uint32_t hi);
/* A count that 0 says nothing about, as where the key is absent: llama.cpp's model saver writes all keys, those that it was not
 * given with what stands for that. */
aerie_status ae_bind_count(ae_binder *b, const char *suffix, uint32_t *value);
/* Whether that saver wrote the file: then keys that its reader does not read of the architecture hold defaults. */
bool ae_bind_is_saved(ae_binder *b);
/* Whether the key holds an array. */
bool ae_bind_is_array(ae_binder *b, const char *suffix);
/* Widths, head counts (the largest of all layers), the norm's epsilon and the first rotation with its divisors (in the arena),
 * into h; leaves what concerns layers, experts and vocabulary. */
aerie_status ae_bind_hparams(ae_binder *b, ae_hparams *h, ae_arena *arena);
/* FORMAT unless the rotation suits heads of head_dim. */
aerie_status ae_bind_check_rope(ae_binder *b, const ae_rope *rope, uint32_t head_dim);

/* The rotation as the caller wants it, into h as ae_bind_hparams left it. ARGUMENT for numbers that cannot be. */
aerie_status ae_bind_rope(ae_binder *b, ae_hparams *h, const aerie_rope *rope);

/* bound.c: a list of the file's tensors, to be filled by those that follow. */
aerie_status ae_bind_begin(ae_binder *b, ae_arena *arena);
/* UNSUPPORTED with its name where a tensor was not read that belongs to layers[n], which are the blocks from `first` on, or,
 * with `outside`, to no block. */
aerie_status ae_bind_end(const ae_binder *b, const ae_layer *layers, uint32_t first, uint32_t n, bool outside);
/* Notes that a tensor (or NULL) is part of the model; ae_bind and its like do it themselves. */
void ae_bind_mark(ae_binder *b, ae_tensor_ref tensor);
/* Finds the scale beside a weight of n_stack matrices. */
aerie_status ae_bind_scale(ae_binder *b, ae_tensor_ref weight, uint32_t n_stack);
/* The number of a tensor's block, and what its name goes on with; -1: it belongs to none. */
int ae_bind_block_of(const ae_gguf_tensor *t, ae_gguf_string *part);

/* The tensor `name` of shape [n_stack][n_out, n_in] (n_out 0: a vector [n_in]); NULL in *out if optional and absent. */
aerie_status ae_bind_stack(ae_binder *b, const char *name, bool required, uint32_t n_stack, uint32_t n_out, uint32_t n_in,
                           ae_tensor_ref *out);
aerie_status ae_bind(ae_binder *b, const char *name, bool required, uint32_t n_out, uint32_t n_in, ae_tensor_ref *out);
/* "blk.<i>.<part>" */
aerie_status ae_bind_layer(ae_binder *b, uint32_t i, const char *part, bool required, uint32_t n_out, uint32_t n_in,
                           ae_tensor_ref *out);
/* bind_recur.c: what layers have that keep a state instead of a KV cache. Keys, and which layers those are, in specs that say
 * attention so far; and tensors. */
aerie_status ae_bind_recur_hparams(ae_binder *b, ae_hparams *h, ae_layer *layers);
aerie_status ae_bind_recur(ae_binder *b, uint32_t i, const ae_hparams *h, ae_recur_layer *r);
/* bind_mla.c: the size of a head's queries; what else the keys say, into specs that say attention so far; and tensors. */
aerie_status ae_bind_mla_head(ae_binder *b, ae_hparams *h);
aerie_status ae_bind_mla_hparams(ae_binder *b, ae_hparams *h, ae_layer *layers);
aerie_status ae_bind_mla(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l);
/* Projections of attention with their biases, fused or not; q, k and v take n_in elements. */
aerie_status ae_bind_attention(ae_binder *b, uint32_t i, const ae_hparams *h, const ae_layer_spec *spec, uint32_t n_in,
                               ae_layer *l);
/* Gate (if the architecture has one), up and down with their biases, fused or not. */
aerie_status ae_bind_dense(ae_binder *b, uint32_t i, const ae_hparams *h, uint32_t n_ff, ae_layer *l);
/* The n values of a vector as floats. */
aerie_status ae_bind_read_f32(ae_binder *b, ae_tensor_ref tensor, float *x, uint32_t n);

/* Elements of all tensors. */
uint64_t ae_bind_n_params(const ae_gguf *gguf);

#endif
