/* engine_int.h - the engine's state, shared by engine.c, add.c, sequence.c and forward.c. */
#ifndef AE_ENGINE_ENGINE_INT_H
#define AE_ENGINE_ENGINE_INT_H

#include "engine/layers/block.h"
#include "engine/engine.h"
#include "engine/group_bytes.h"
#include "engine/rows.h"
#include "cache/recurrent.h"
#include "draw/best.h"

/* The engine's memory on one device, for the layers there (weights/split.h). Arrays are on the device, f32. */
typedef struct ae_engine_device {
    ae_backend *backend;
    ae_stream *stream;
    void *memory;        /* one block that holds the arrays */
    size_t bytes;
    ae_rows rows;        /* rows of the running pass */
    ae_block block;      /* the activations x to up of a block, for n_batch rows */
    /* [n_batch][n_layers][n_embd_layer] x 2 embeddings for layers, and scratch to compute them; or NULL */
    float *ple, *ple_part;
    float *ple_gate, *ple_own; /* [n_batch][n_embd_layer] x 2 */
    double *rope_freq[AE_MAX_ROPES]; /* [n_rot / 2] radians per position */
    float *cos[AE_MAX_ROPES], *sin[AE_MAX_ROPES]; /* [n_batch][n_rot / 2] */
    float *deep;         /* [n_batch][n_embd] rows that are added after a layer; or NULL */
    float *q_scale;      /* [n_batch] factors of queries (temperature); or NULL */
    /* adapters that tokens choose: [3][n_batch][AE_SWITCH_DIM] queries, keys and values, [n_batch] tokens to embed; or NULL */
    float *switch_rows;
    int32_t *switch_token;
    ae_selection selection; /* with an index; else NULLs */
    ae_compress_rows compress; /* set for models with an index; else NULLs */
    ae_recur_rows recur; /* set for models with compressed rows; else NULLs */
    ae_adapter_rows adapted, adapted_out; /* the rows of the pass that have adapters, and of its outputs */
    const ae_state_pass *state_pass;
    float *tapped;       /* [n_taps][n_batch][n_embd] taps of layers that are not on the output's device, both where they are
                          * computed and where they arrive; or NULL */
} ae_engine_device;

/* saved.c: of a rank in a group, for saving and loading; otherwise NULLs. */
typedef struct ae_engine_saving {
    ae_group_bytes *bytes;
    uint8_t *own, *all;  /* [n_own] and [n_all] bytes of one round */
    size_t n_own, n_all;
} ae_engine_saving;

/* best.c: candidates of a rank in a split, instead of logits; otherwise NULLs. */
typedef struct ae_engine_best {
    uint32_t wanted;    /* for the pass being built: draws need this many best candidates of each row; 0: whole rows */
    uint32_t ran;       /* `wanted` of the newest pass, whose logits are on the ranks that computed them; 0: rank 0 has them */
    ae_noise *noise;    /* (host) [n_seqs] draws of noise alone, for the pass being built */
    bool noisy;         /* some sequence has one */
    bool ran_noisy;     /* `noisy` of the newest pass */
    ae_candidate *list; /* (host) [n_outputs][ranks][ran (+ AE_NOISY_MOST)] of the newest pass; id -1: no candidate */
    int32_t *eog;       /* (host) [n_eog] */
} ae_engine_best;

struct ae_engine {
    const ae_net *net;
    ae_engine_options options; /* with defaults resolved */
    ae_pool *own_pool;   /* NULL: the engine runs on the caller's pool, in `options` */
    ae_engine_device *devices; /* [net->split.n_devices] owned */
    uint32_t n_devices;
    ae_engine_device *out; /* the output's device */
    ae_kv *kv;
    ae_state *state;     /* state of recurrent layers; NULL: there are none */
    void *host;          /* one block that holds the host arrays below */

    /* the rows of the pass being built (host), [n_batch] each */
    uint32_t n_rows, n_out;
    ae_rows rows;
    const ae_pass_mode *mode; /* lent; NULL: the pass runs the model unchanged */
    int32_t *ids;        /* [n_batch] tokens, and the ids of given rows, which have 0 in rows.token */
    ae_given *given;     /* [n_given], room for n_batch */
    uint32_t n_given;
    bool grouped;        /* some rows see later rows */
    bool turned;         /* some rows rotate by positions other than their own */
    bool whole;          /* every row runs through all layers, even where nothing reads the result */
    int32_t *turn;       /* [n_batch][4] positions that rows rotate by, in models with sections; or NULL */
    float *turn_cos, *turn_sin; /* [n_batch][n_rot / 2] x 2 angles of the first rotation; or NULL */
    int32_t *out_index;  /* [n_batch] index among the exported rows, or -1 */
    uint32_t *n_added;   /* [n_seqs] rows of the chain added so far in this pass */
    uint32_t *n_source;  /* [n_seqs] in models with a source: how many positions, from the first on, belong to it */
    uint32_t *first_row; /* [n_seqs] first row of the chain, or of the tree if there is no chain */
    double *rope_host;   /* [n_rot / 2] scratch, for the widest rotation */
    double rope_magnitude[AE_MAX_ROPES];
    float *q_scale_host; /* [n_batch] */
    float *switch_host;  /* as switch_rows; or NULL */
    int32_t *embedded;   /* as switch_token; or NULL */
    float *moved;        /* [n_batch][n_embd or n_layers * n_embd_layer] scratch for rows that move between devices; or NULL */
    ae_block_group group; /* set on a rank in a group; otherwise NULLs */
    aerie_status group_status; /* on ranks that follow: status of the pass before its logits were sent */
    uint32_t number;     /* index among the engines of options.commands */
    uint32_t n_waves;    /* of the pass being built; at most 1: all its rows run together */
    uint32_t n_ahead;    /* in a pipeline: passes since rank 0 last waited for the other stages */
    ae_engine_saving saving;
    ae_engine_best best;

    /* adapters (host) */
    ae_adapter_keys keys;
    ae_adapter_set *sets;      /* [n_seqs] */
    ae_adapter_set *mode_sets; /* [n_seqs] the sequences' sets with the adapter of the pass's mode */
    ae_adapter_run *runs, *runs_out; /* [n_seqs] x 2 */

    /* on the output's device */
    ae_walked *walked;   /* [n_seqs] */
    ae_proposal *proposals; /* [n_outputs] */
    int32_t *eog;        /* [n_eog] tokens that end an answer */
    uint32_t n_eog;
    float *x_out;        /* [n_outputs][n_embd] */
    float *logits;       /* [n_outputs][n_vocab] */
    float *features;     /* [n_batch][n_taps][n_embd] */

    float *logits_room;  /* (host) [n_outputs][n_vocab] if the host cannot read device memory; otherwise NULL */
    const float **logits_host; /* (host) [n_outputs] rows of the last pass that the host has read; otherwise NULL */
    ae_walk_tree *trees; /* (host) [n_seqs] scratch of ae_engine_draw */
    ae_propose_row *ranked; /* (host) [n_outputs] scratch of ae_engine_propose */
    double pass_seconds;
};

#define AE_ENGINE_COLLECTED ((size_t)4 << 20) /* bytes of logits that fit one round, unless a single row is larger */

/* Returns the number of rows of logits in one round. */
static inline uint32_t ae_engine_collected(const ae_model *model)
{
    const size_t row = model->hparams.n_vocab * sizeof(float);
    return row < AE_ENGINE_COLLECTED ? (uint32_t)(AE_ENGINE_COLLECTED / row) : 1;
}

static inline uint32_t ae_engine_number_of(const ae_engine *e, const ae_engine_device *d)
{
    return (uint32_t)(d - e->devices);
}

/* saved.c, on ranks that follow: handles their part of a piece that rank 0 saves (tokens NULL: from a sequence; otherwise [n],
 * from the prefix tree) or loads (tokens [end]). Whatever does not fit has been refused before. */
void ae_engine_follow_save(ae_engine *engine, uint32_t seq, ae_kv_key key, const int32_t *tokens, const ae_engine_saved *saved);
void ae_engine_follow_load(ae_engine *engine, ae_kv_key key, const int32_t *tokens, const ae_engine_saved *saved);

/* best.c: returns the largest number of candidates for one row that ranks exchange, of all ranks together; 0: there is no
 * split. */
uint32_t ae_engine_best_room(const ae_ranks *ranks);
/* Gathers the candidates of the pass at rank 0. */
void ae_engine_collect_best(ae_engine *engine);
/* Rank 0: draws as ae_engine_draw does, but from candidates. Returns false if some walk needs a whole row. */
bool ae_engine_draw_best(ae_engine *engine, uint32_t n, ae_walked *out);
/* Rank 0: fetches the newest pass's logits if they are on other ranks. Must be called before they are read. */
void ae_engine_need_logits(ae_engine *engine);
/* forward.c: gathers the logits of the pass at rank 0. */
void ae_forward_collect(ae_engine *engine);
/* Called before this rank sends results of the pass: if the pass has failed here, makes the group fail now. */
void ae_forward_vouch(ae_engine *engine, const ae_engine_device *device);

/* forward.c: runs the halves [begin, end) of layers, which are on one device (weights/split.h). A device may replay their
 * operations instead (pass_begin), so they depend only on what the pass's key covers (engine.c) and on device memory. */
void ae_forward_run(ae_engine *engine, uint32_t begin, uint32_t end);
/* Called after that run: sends what layers on other devices read. */
void ae_forward_move(ae_engine *engine, uint32_t begin, uint32_t end);
/* Uploads query scales, and angles of rows that rotate by several positions. Must be called before the pass. */
void ae_forward_upload(ae_engine *engine);

#endif
