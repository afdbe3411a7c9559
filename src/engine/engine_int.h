/* engine_int.h - the engine's state, shared by engine.c (rows, life) and forward.c (the pass). */
#ifndef AE_ENGINE_ENGINE_INT_H
#define AE_ENGINE_ENGINE_INT_H

#include "engine/block.h"
#include "engine/engine.h"
#include "engine/rows.h"
#include "cache/recurrent.h"

struct ae_engine {
    const ae_net *net;
    ae_backend *backend;
    ae_engine_options options; /* with defaults resolved */
    ae_pool *own_pool;   /* NULL: the caller's, in `options` */
    ae_stream *stream;
    ae_kv *kv;
    ae_state *state;     /* of recurrent layers; NULL: there are none */
    const ae_state_pass *state_pass;
    void *host;          /* one block: the host arrays below */
    void *device;        /* one block: the device arrays below */
    size_t device_bytes;

    /* the rows of the pass being built (host), [n_batch] each */
    uint32_t n_rows, n_out;
    ae_rows rows;
    const ae_pass_mode *mode; /* lent; NULL: the model as it is */
    int32_t *out_index;  /* [n_batch] place among the exported rows, or -1 */
    uint32_t *n_added;   /* [n_seqs] rows of the chain added so far in this pass */
    uint32_t *first_row; /* [n_seqs] of the chain, or of the tree where there is none */
    double *rope_host;   /* [n_rot / 2 of the widest rotation] scratch */
    double rope_magnitude[AE_MAX_ROPES];
    float *q_scale_host; /* [n_batch] */

    /* adapters (host) */
    ae_adapter_keys keys;
    ae_adapter_set *sets;      /* [n_seqs] */
    ae_adapter_run *runs, *runs_out; /* [n_seqs] x 2 */
    ae_adapter_rows adapted, adapted_out; /* the rows of the pass that have some, and of its outputs */

    /* device */
    ae_rows on_device;   /* of the pass that runs */
    ae_walked *walked;   /* [n_seqs] */
    ae_proposal *proposals; /* [n_outputs] */
    int32_t *eog;        /* [n_eog] tokens that end an answer */
    uint32_t n_eog;

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
    const float **logits_host; /* (host) [n_outputs] rows of the last pass that the host has asked for; else NULL */
    ae_walk_tree *trees; /* (host) [n_seqs] scratch of ae_engine_walk */
    ae_propose_row *ranked; /* (host) [n_outputs] scratch of ae_engine_propose */
    double pass_seconds;
};

/* forward.c: the operations of a pass. A device may replay them instead (pass_begin), so they depend on nothing but what the
 * pass's key covers (engine.c), and on what is on the device. */
void ae_forward(ae_engine *engine);
/* Uploads what queries are multiplied by at their positions; before the pass. */
void ae_forward_upload(ae_engine *engine);

#endif
