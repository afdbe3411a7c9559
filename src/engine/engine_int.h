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

    /* device, f32 */
    float *x;            /* [n_batch][n_embd] residual stream */
    float *q, *attn;     /* [n_batch][n_heads * head_dim] */
    float *k, *v;        /* [n_batch][n_kv_heads * head_dim] */
    float *gate, *up;    /* [n_batch][n_ff] */
    double *rope_freq;   /* [n_rot / 2] */
    float *cos, *sin;    /* [n_batch][n_rot / 2] */
    float *x_out;        /* [n_outputs][n_embd] */
    float *logits;       /* [n_outputs][n_vocab] */
    float *features;     /* [n_batch][n_taps][n_embd] */

    float *logits_room;  /* (host) [n_outputs][n_vocab] where the host cannot read the device's; else NULL */
    const float *logits_host; /* of the last pass */
    double pass_seconds;
};

/* forward.c: the operations of a pass. */
void ae_forward(ae_engine *engine);

#endif
