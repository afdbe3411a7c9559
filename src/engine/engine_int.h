/* engine_int.h - the engine's state, shared by engine.c (rows, life) and forward.c (the pass). */
#ifndef AE_ENGINE_ENGINE_INT_H
#define AE_ENGINE_ENGINE_INT_H

#include "engine/block.h"
#include "engine/engine.h"
#include "engine/rows.h"
#include "cache/recurrent.h"

/* What the engine has on one device, for the layers that lie there (weights/split.h). Arrays are on the device, f32. */
typedef struct ae_engine_device {
    ae_backend *backend;
    ae_stream *stream;
    void *memory;        /* one block: the arrays */
    size_t bytes;
    ae_rows rows;        /* of the pass that runs */
    ae_block block;      /* of it x to up, for n_batch rows */
    float *ple, *ple_part; /* [n_batch][n_layers][n_embd_layer] x 2 embeddings for layers, and room to make them; or NULL */
    float *ple_gate, *ple_own; /* [n_batch][n_embd_layer] x 2 */
    double *rope_freq[AE_MAX_ROPES]; /* [n_rot / 2] radians per position */
    float *cos[AE_MAX_ROPES], *sin[AE_MAX_ROPES]; /* [n_batch][n_rot / 2] */
    float *deep;         /* [n_batch][n_embd] what joins after a layer; or NULL */
    float *q_scale;      /* [n_batch] temperature of queries; or NULL */
    ae_selection selection; /* with an index; else NULLs */
    ae_recur_rows recur; /* of recurrent layers; else NULLs */
    ae_adapter_rows adapted, adapted_out; /* the rows of the pass that have adapters, and of its outputs */
    const ae_state_pass *state_pass;
    float *tapped;       /* [n_taps][n_batch][n_embd] hidden rows of layers on other devices than that of the output: where
                          * they are taken, and where they arrive; or NULL */
} ae_engine_device;

struct ae_engine {
    const ae_net *net;
    ae_engine_options options; /* with defaults resolved */
    ae_pool *own_pool;   /* NULL: the caller's, in `options` */
    ae_engine_device *devices; /* [net->split.n_devices] owned */
    uint32_t n_devices;
    ae_engine_device *out; /* that of the output */
    ae_kv *kv;
    ae_state *state;     /* of recurrent layers; NULL: there are none */
    void *host;          /* one block: the host arrays below */

    /* the rows of the pass being built (host), [n_batch] each */
    uint32_t n_rows, n_out;
    ae_rows rows;
    const ae_pass_mode *mode; /* lent; NULL: the model as it is */
    int32_t *ids;        /* [n_batch] tokens, and ids of rows that are given, for which rows.token has 0 */
    struct ae_given {
        uint32_t first, n;
        const float *rows; /* lent, [n][n_embd] */
        size_t plane;      /* from there to what joins after layer 0, and on to the next */
    } *given;            /* [n_batch] of it n_given: rows that start from embeddings of the caller */
    uint32_t n_given;
    bool grouped;        /* some rows see later ones */
    bool turned;         /* some rotate by other positions than their own */
    int32_t *turn;       /* [n_batch][4] the positions that rows rotate by, of models with sections; or NULL */
    float *turn_cos, *turn_sin; /* [n_batch][n_rot / 2] x 2 of the first rotation; or NULL */
    int32_t *out_index;  /* [n_batch] place among the exported rows, or -1 */
    uint32_t *n_added;   /* [n_seqs] rows of the chain added so far in this pass */
    uint32_t *first_row; /* [n_seqs] of the chain, or of the tree where there is none */
    double *rope_host;   /* [n_rot / 2 of the widest rotation] scratch */
    double rope_magnitude[AE_MAX_ROPES];
    float *q_scale_host; /* [n_batch] */
    float *moved;        /* [n_batch][n_embd or n_layers * n_embd_layer] room for rows between devices; or NULL */
    ae_block_group group; /* of a rank of a group; else NULLs */
    aerie_status group_status; /* of a rank that follows: of the pass, before it sent its logits */
    uint32_t number;     /* among the engines of options.commands */

    /* adapters (host) */
    ae_adapter_keys keys;
    ae_adapter_set *sets;      /* [n_seqs] */
    ae_adapter_run *runs, *runs_out; /* [n_seqs] x 2 */

    /* on the device of the output */
    ae_walked *walked;   /* [n_seqs] */
    ae_proposal *proposals; /* [n_outputs] */
    int32_t *eog;        /* [n_eog] tokens that end an answer */
    uint32_t n_eog;
    float *x_out;        /* [n_outputs][n_embd] */
    float *logits;       /* [n_outputs][n_vocab] */
    float *features;     /* [n_batch][n_taps][n_embd] */

    float *logits_room;  /* (host) [n_outputs][n_vocab] where the host cannot read the device's; else NULL */
    const float **logits_host; /* (host) [n_outputs] rows of the last pass that the host has asked for; else NULL */
    ae_walk_tree *trees; /* (host) [n_seqs] scratch of ae_engine_walk */
    ae_propose_row *ranked; /* (host) [n_outputs] scratch of ae_engine_propose */
    double pass_seconds;
};

/* Positions that a row of a model with an index attends to, at most. */
uint32_t ae_engine_n_chosen(const ae_model *model, const ae_engine_options *options);

#define AE_ENGINE_COLLECTED ((size_t)4 << 20) /* bytes of logits that a round has, if a row is not larger */

/* Rows of logits in one round. */
static inline uint32_t ae_engine_collected(const ae_model *model)
{
    const size_t row = model->hparams.n_vocab * sizeof(float);
    return row < AE_ENGINE_COLLECTED ? (uint32_t)(AE_ENGINE_COLLECTED / row) : 1;
}

static inline uint32_t ae_engine_number_of(const ae_engine *e, const ae_engine_device *d)
{
    return (uint32_t)(d - e->devices);
}

/* forward.c: the operations of a run of halves on one device (weights/split.h), [begin, end). A device
 * may replay them instead (pass_begin), so they depend on nothing but what the pass's key covers (engine.c), and on what is on
 * the device. */
void ae_forward_run(ae_engine *engine, uint32_t begin, uint32_t end);
/* After that run: what layers on other devices read goes there. */
void ae_forward_move(ae_engine *engine, uint32_t begin, uint32_t end);
/* Uploads what queries are multiplied by at their positions, and angles of rows that turn by others; before the pass. */
void ae_forward_upload(ae_engine *engine);

#endif
