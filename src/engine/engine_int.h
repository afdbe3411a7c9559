/* engine_int.h - the engine's state, shared by engine.c (rows, life) and forward.c (the pass). */
#ifndef AE_ENGINE_ENGINE_INT_H
#define AE_ENGINE_ENGINE_INT_H

#include "engine/engine.h"

struct ae_engine {
    const ae_net *net;
    ae_backend *backend;
    ae_engine_options options; /* with defaults resolved */
    ae_stream *stream;
    ae_kv *kv;
    void *host;          /* one block: the host arrays below */
    void *device;        /* one block: the device arrays below */
    size_t device_bytes;

    /* the rows of the pass being built (host), [n_batch] each */
    uint32_t n_rows, n_out;
    int32_t *token, *pos, *seq, *slot, *n_inplace;
    int32_t *path;       /* [n_batch][AE_TREE_MAX] */
    int32_t *out_index;  /* [n_batch] place among the exported rows, or -1 */
    int32_t *out_rows;   /* [n_outputs] */
    const int32_t **tables; /* [n_seqs] page tables */
    uint32_t *n_added;   /* [n_seqs] rows of the chain added so far in this pass */
    float *rope_host;    /* [n_batch][n_rot] cos, then sin */

    /* device, f32 */
    float *x;            /* [n_batch][n_embd] residual stream */
    float *q, *attn;     /* [n_batch][n_heads * head_dim] */
    float *k, *v;        /* [n_batch][n_kv_heads * head_dim] */
    float *gate, *up;    /* [n_batch][n_ff] */
    float *cos, *sin;    /* [n_batch][n_rot / 2] */
    float *x_out;        /* [n_outputs][n_embd] */
    float *logits;       /* [n_outputs][n_vocab] */
    float *features;     /* [n_batch][n_taps][n_embd] */
};

/* forward.c, for the passes of models and of heads: cos and sin of every row's position, the same for all layers, computed
 * in double and rounded once. */
typedef struct ae_rotation_args {
    uint32_t n_rows, n_rot;
    const int32_t *pos;  /* (host) [n_rows] */
    const double *freq;  /* [n_rot / 2] radians per position */
    double magnitude;
    float *host;         /* [n_rows][n_rot] scratch */
    float *cos, *sin;    /* (device, out) [n_rows][n_rot / 2] */
} ae_rotation_args;
void ae_rotation(const ae_backend *backend, ae_stream *stream, const ae_rotation_args *args);

/* forward.c */
void ae_forward(ae_engine *engine);

#endif
