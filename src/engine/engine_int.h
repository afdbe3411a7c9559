/* engine_int.h - the engine's state, shared by engine.c (rows, life) and forward.c (the pass). */
#ifndef AE_ENGINE_ENGINE_INT_H
#define AE_ENGINE_ENGINE_INT_H

#include "engine/block.h"
#include "engine/engine.h"
#include "engine/state.h"

/* Rows as a pass reads them: one block in this order, of which a pass uploads the beginning, up to its last row's path. */
typedef struct ae_engine_rows {
    uint32_t *count; /* rows, exported rows */
    int32_t *token, *pos, *seq, *slot, *n_inplace; /* [n_batch] */
    int32_t *out_rows; /* [n_outputs] */
    int32_t *path;     /* [n_batch][AE_TREE_MAX] */
} ae_engine_rows;

struct ae_engine {
    const ae_net *net;
    ae_backend *backend;
    ae_engine_options options; /* with defaults resolved */
    ae_stream *stream;
    ae_kv *kv;
    ae_state *state;     /* of recurrent layers; NULL: there are none */
    const ae_state_pass *state_pass;
    void *host;          /* one block: the host arrays below */
    void *device;        /* one block: the device arrays below */
    size_t device_bytes;

    /* the rows of the pass being built (host), [n_batch] each */
    uint32_t n_rows, n_out;
    ae_engine_rows rows;
    int32_t *token, *pos, *seq, *slot, *n_inplace, *out_rows, *path; /* those of `rows` */
    int32_t *parent;     /* [n_batch] row of the pass that comes before it; -1: the last live position */
    uint8_t *tentative;  /* [n_batch] 1: may be dropped after the pass */
    int32_t *out_index;  /* [n_batch] place among the exported rows, or -1 */
    uint32_t *n_added;   /* [n_seqs] rows of the chain added so far in this pass */
    uint32_t *first_row; /* [n_seqs] of the chain, or of the tree where there is none */
    double *rope_host;   /* [n_rot / 2 of the widest rotation] scratch */
    double rope_magnitude[AE_MAX_ROPES];
    float *q_scale_host; /* [n_batch] */

    /* device */
    ae_engine_rows on_device; /* of the pass that runs */
    int32_t *tables;     /* [n_seqs][table_stride] page tables */
    int32_t *part_tables; /* as tables, of parts */
    uint32_t table_stride;

    /* device, f32 */
    ae_block block;      /* of it x to up, for n_batch rows */
    float *ple, *ple_part; /* [n_batch][n_layers][n_embd_layer] x 2 embeddings for layers, and room to make them; or NULL */
    float *ple_gate, *ple_own; /* [n_batch][n_embd_layer] x 2 */
    double *rope_freq[AE_MAX_ROPES]; /* [n_rot / 2] radians per position */
    float *cos[AE_MAX_ROPES], *sin[AE_MAX_ROPES]; /* [n_batch][n_rot / 2] */
    float *q_scale;      /* [n_batch] temperature of queries; or NULL */
    ae_recur_rows recur; /* of recurrent layers; else NULLs */
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
