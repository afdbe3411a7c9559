/* bind.h - reads hyper-parameters and tensors by name and checks them: the functions that models and heads share. Private to
 * src/model.
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
    ae_bound *bound;  /* [tensors of the file] where the tensors that were read are recorded; NULL: nowhere */
    /* models: number of layers that get a specification: those of the trunk and, if they are bound, of the MTP blocks */
    uint32_t n_specs;
    const char *blocks; /* how the names of a layer's tensors begin; NULL: "blk" */
    char key[96]; /* the key that was looked up last */
    char *unread; /* as in ae_model_options */
    ae_tensor_ref unused; /* as in ae_model */
    uint32_t n_unused;
} ae_binder;

static inline const char *ae_bind_prefix(const ae_binder *b)
{
    return b->blocks ? b->blocks : "blk";
}

/* Returns "llama.block_count" for "block_count". In files of drafters, if that key is absent, also tries
 * "eagle3.eagle3.block_count", as some converters write it. Valid until the next call. */
const char *ae_bind_key(ae_binder *b, const char *suffix);
/* FORMAT unless lo <= value <= hi. */
aerie_status ae_bind_range(ae_binder *b, const char *suffix, uint32_t value, uint32_t lo, uint32_t hi);
/* Reads a number that must be from lo to hi. If it is not required, it may also be 0 or absent: then the value stays. */
aerie_status ae_bind_get(ae_binder *b, const char *suffix, bool required, uint32_t lo, uint32_t hi, uint32_t *value);
/* Reads a count. 0 counts as absent: llama.cpp's model saver writes all keys, with 0 for those that it does not know. */
aerie_status ae_bind_count(ae_binder *b, const char *suffix, uint32_t *value);
/* Returns whether that saver wrote the file. If so, keys that its reader ignores for this architecture hold defaults. */
bool ae_bind_is_saved(ae_binder *b);
/* Reads widths, head counts (the largest of all layers), the norm's epsilon and the first rotation with its divisors (in the
 * arena) into h. Layers, experts and vocabulary are read elsewhere. */
aerie_status ae_bind_hparams(ae_binder *b, ae_hparams *h, ae_arena *arena);
/* FORMAT unless the rotation fits heads of size head_dim. */
aerie_status ae_bind_check_rope(ae_binder *b, const ae_rope *rope, uint32_t head_dim);

/* Replaces the rotation that ae_bind_hparams has read by the caller's. ARGUMENT: a number is out of range. */
aerie_status ae_bind_rope(ae_binder *b, ae_hparams *h, const aerie_rope *rope);

/* bound.c: creates the list of the file's tensors, in which the following functions mark those that were read. */
aerie_status ae_bind_begin(ae_binder *b, ae_arena *arena);
/* UNSUPPORTED, naming the tensor, if a tensor was not read that belongs to layers[n], the blocks from `first` on, or, with
 * `outside`, to no block. Counts those among them that no program uses (b->n_unused). */
aerie_status ae_bind_end(ae_binder *b, const ae_layer *layers, uint32_t first, uint32_t n, bool outside);
/* Returns whether no program uses a tensor, so that it must not be read, even though other architectures use such a tensor. */
bool ae_bind_is_unused(const ae_binder *b, ae_tensor_ref tensor);
/* Marks a tensor (or NULL) as part of the model. ae_bind_stack and the functions that use it do so themselves. */
void ae_bind_mark(ae_binder *b, ae_tensor_ref tensor);
/* Finds the scale that belongs to a weight of n_stack matrices. */
aerie_status ae_bind_scale(ae_binder *b, ae_tensor_ref weight, uint32_t n_stack);
/* Returns the number of the block that a tensor belongs to, if block names begin with `blocks` ("blk"), and in *part the rest
 * of its name; -1: it belongs to no such block. */
int ae_bind_block_of(const char *blocks, const ae_gguf_tensor *t, ae_gguf_string *part);

/* Finds the tensor `name` of shape [n_stack][n_out, n_in] (n_out 0: a vector [n_in]). *out is NULL if it is optional and
 * absent. */
aerie_status ae_bind_stack(ae_binder *b, const char *name, bool required, uint32_t n_stack, uint32_t n_out, uint32_t n_in,
                           ae_tensor_ref *out);
aerie_status ae_bind(ae_binder *b, const char *name, bool required, uint32_t n_out, uint32_t n_in, ae_tensor_ref *out);
/* The same for the tensor "<blocks>.<i>.<part>". */
aerie_status ae_bind_layer(ae_binder *b, uint32_t i, const char *part, bool required, uint32_t n_out, uint32_t n_in,
                           ae_tensor_ref *out);
/* bind_recur.c: the keys and tensors of layers that keep a state instead of a KV cache. The first function also decides which
 * layers these are; until then all specs say attention. */
aerie_status ae_bind_recur_hparams(ae_binder *b, ae_hparams *h, ae_layer *layers);
aerie_status ae_bind_recur(ae_binder *b, uint32_t i, const ae_hparams *h, ae_arena *arena, ae_layer *l);
/* bind_wkv.c: the same for RWKV, and its channel mix. */
aerie_status ae_bind_wkv_hparams(ae_binder *b, ae_hparams *h, ae_layer *layers);
aerie_status ae_bind_wkv(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l);
aerie_status ae_bind_channel_mix(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l);
/* bind_mla.c: latent attention. The first function reads the size of a head's queries, the second the other keys (until then
 * all specs say attention), the third the tensors. */
aerie_status ae_bind_mla_head(ae_binder *b, ae_hparams *h);
aerie_status ae_bind_mla_hparams(ae_binder *b, ae_hparams *h, ae_layer *layers);
aerie_status ae_bind_mla(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l);
/* bind_switch.c: adapters that tokens choose. The first function reads their keys (n_vocab must be set), the second a layer's
 * tensors. */
aerie_status ae_bind_switch_hparams(ae_binder *b, ae_hparams *h, ae_arena *arena);
aerie_status ae_bind_switch(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l);
/* bind_index.c: keys of an index by which each KV head chooses blocks (until then all specs say attention). */
aerie_status ae_bind_blocks_hparams(ae_binder *b, ae_hparams *h, ae_layer *layers);
/* Binds such an index's tensors in a layer that has one. */
aerie_status ae_bind_blocks(ae_binder *b, uint32_t i, const ae_hparams *h, ae_mla_layer *l);
/* The same for an index whose keys stand for pools of positions: n_most, head_dim and n_heads were already read, and a gate
 * weighs the keys. */
aerie_status ae_bind_pool_hparams(ae_binder *b, ae_index_hparams *index);
aerie_status ae_bind_pool(ae_binder *b, uint32_t i, const ae_hparams *h, ae_compressor *to);
/* Adds to n_most the positions that a row sees of its incomplete pool. FORMAT: n_most is not a multiple of the pool. */
aerie_status ae_bind_pool_room(ae_binder *b, ae_index_hparams *index);
/* bind_memory.c: low-rank hyper-connections, whose names begin with prefix. end: those at the end of the model. */
aerie_status ae_bind_hyper_low(ae_binder *b, const char *prefix, const ae_hparams *h, bool end, ae_hyper_layer *to);
/* Binds the weights of every stream's norm: [n_streams, n_embd], or as one vector. */
aerie_status ae_bind_stream_norms(ae_binder *b, const char *name, const ae_hparams *h, ae_tensor_ref *out);
/* Reads the keys of an index over means of keys (until then all specs say attention). */
aerie_status ae_bind_means_hparams(ae_binder *b, ae_hparams *h, ae_layer *layers);
/* Binds such an index's tensors in a layer with attention. */
aerie_status ae_bind_means(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l);
/* Reads the keys of a memory of n-grams; n_vocab and the layers' mixers must be set. */
aerie_status ae_bind_memory_hparams(ae_binder *b, ae_hparams *h, const ae_layer *layers);
/* Binds such a memory's tensors. */
aerie_status ae_bind_memory(ae_binder *b, uint32_t i, const ae_hparams *h, ae_memory_layer *to);
/* bind_compress.c: keys, then tensors, of attention over compressed rows. */
aerie_status ae_bind_compress_hparams(ae_binder *b, ae_hparams *h, ae_layer *layers);
aerie_status ae_bind_compress(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l);
/* Read the keys of hyper-connections, then bind their tensors in a layer and at the model's end. */
aerie_status ae_bind_hyper_hparams(ae_binder *b, ae_hparams *h);
aerie_status ae_bind_hyper(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l);
aerie_status ae_bind_hyper_end(ae_binder *b, const ae_hparams *h, ae_hyper_layer *end);
/* bind_decision.c: takes the blocks of a decision head, if there are any, from the layers of an encoder. */
aerie_status ae_bind_marks(ae_binder *b, ae_hparams *h);
/* Reads the sizes of a decision head; h's other sizes must be set. */
aerie_status ae_bind_decision_hparams(ae_binder *b, ae_hparams *h);
/* Binds its tensors, if the model has one. */
aerie_status ae_bind_decision(ae_binder *b, ae_model *m);
/* Binds the table that gives each token its experts; it is copied into the arena. */
aerie_status ae_bind_token_experts(ae_binder *b, uint32_t i, const ae_hparams *h, ae_arena *arena, ae_layer *l);
/* Binds the projections of attention with their biases, fused or separate. q, k and v have n_in inputs. */
aerie_status ae_bind_attention(ae_binder *b, uint32_t i, const ae_hparams *h, const ae_layer_spec *spec, uint32_t n_in,
                               ae_layer *l);
/* Binds gate (if the architecture has one), up and down with their biases, fused or separate. */
aerie_status ae_bind_dense(ae_binder *b, uint32_t i, const ae_hparams *h, uint32_t n_ff, ae_layer *l);
/* Reads the n values of a vector as floats. */
aerie_status ae_bind_read_f32(ae_binder *b, ae_tensor_ref tensor, float *x, uint32_t n);

/* Returns the number of elements in all tensors. */
uint64_t ae_bind_n_params(const ae_gguf *gguf);

#endif
