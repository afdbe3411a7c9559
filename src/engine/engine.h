/* engine.h - rows in, logits out: one network, one KV cache, any number of sequences at once.
 *
 * Owns: a stream for each device of the network, the KV cache, activations. Borrows the network. One user thread at a time.
 *
 * A pass takes rows: tokens of any sequences, each at a logical position, each knowing its parent.
 * Prompt chunks, plain decoding, drafted chains, drafted trees and many sequences at once are all
 * just rows; there is no second path. Use:
 *     ae_engine_rows_clear; ae_engine_add_chain / ae_engine_add_tree per sequence; ae_engine_pass;
 *     read ae_engine_logits; ae_engine_commit what was accepted (per sequence, after every pass).
 * Law: the logits of a row depend on the weights, on the adapters of its sequence and on the row's own prefix, and on nothing
 * else.
 */
#ifndef AE_ENGINE_ENGINE_H
#define AE_ENGINE_ENGINE_H

#include "engine/weights/adapter.h"
#include "cache/kv.h"
#include "engine/pass_mode.h"
#include "engine/tree.h"
#include "sample/sampler.h"

typedef struct ae_engine ae_engine;

typedef struct ae_engine_options {
    const struct ae_vocab *vocab; /* which tokens end a walk (ae_engine_draw); NULL: none do. Read by create alone */
    uint32_t n_ctx;     /* positions per sequence */
    uint32_t n_seqs;
    uint32_t n_batch;   /* rows of a pass, at most; raised to n_outputs if smaller */
    uint32_t n_outputs; /* rows of a pass that may export logits; 0 = what n_seqs trees may need */
    uint32_t n_records;   /* of recurrent layers: drafted rows of a sequence in a pass, at most; 0 = AERIE_MAX_DRAFT */
    uint32_t n_snapshots; /* of recurrent layers: states kept to return to, of all sequences */
    uint32_t n_windows;   /* of layers with windows: windows kept to return to, of all sequences */
    uint32_t n_kv_pages; /* of the KV cache, for all sequences; 0 = enough for n_seqs whole contexts */
    uint32_t n_threads; /* with a pool: as many as that has */
    ae_kv_type kv_type;
    uint32_t n_taps;       /* hidden rows that every row of a pass exports, for drafter heads */
    uint32_t taps[AERIE_MAX_TAPS]; /* the residual stream before this layer; n_layers: after the last; or AERIE_TAP_NORMED */
    uint32_t max_rank;     /* of adapters; 0: sequences have none */
    ae_pool *pool;         /* run on these threads, which outlive the engine; NULL: own ones */
    const ae_ranks *ranks; /* for plans: of one rank of a group; engines have what their network has */
    struct ae_commands *commands; /* lent, rank 0 of a group: what this engine does, all ranks do (commands.h); NULL: it is
                                   * alone, or follows */
} ae_engine_options;

/* Bytes that an engine of these options takes, weights not included. */
size_t ae_engine_plan_bytes(const ae_model *model, const ae_backend *backend, const ae_engine_options *options);
/* The same where layers lie on several devices; of it what each needs, to on [n_devices] if it is not NULL. */
size_t ae_engine_plan_split(const ae_model *model, const ae_split *split, const ae_engine_options *options, size_t *on);
aerie_status ae_engine_create(ae_engine **out, const ae_net *net, const ae_engine_options *options, aerie_error *error);
void ae_engine_free(ae_engine *engine);

const ae_net *ae_engine_net(const ae_engine *engine);
const ae_engine_options *ae_engine_options_get(const ae_engine *engine);
ae_kv *ae_engine_kv(const ae_engine *engine);
/* What the device with the output has. */
ae_stream *ae_engine_stream(const ae_engine *engine);
/* The threads that it runs on. */
ae_pool *ae_engine_pool(const ae_engine *engine);

/* The sequence is emptied, computed with these adapters from now on and of their scope; NULL: with none, of the common one, as
 * at first. Only where
 * options.max_rank is not below their ranks. Their order is that in which they are added. */
void ae_engine_adapt(ae_engine *engine, uint32_t seq, const ae_adapter_set *set);
/* With its key. */
const ae_adapter_set *ae_engine_adapters(const ae_engine *engine, uint32_t seq);
/* The key of such a set; NULL: no adapters, the common scope. */
ae_kv_key ae_engine_key(ae_engine *engine, const ae_adapter_set *set);
ae_kv_key ae_engine_seq_key(const ae_engine *engine, uint32_t seq);

void ae_engine_rows_clear(ae_engine *engine);
uint32_t ae_engine_n_rows(const ae_engine *engine);
uint32_t ae_engine_rows_left(const ae_engine *engine);
/* How many more rows of the pass may export logits. */
uint32_t ae_engine_outputs_left(const ae_engine *engine);

typedef enum ae_export {
    AE_EXPORT_NONE,
    AE_EXPORT_LAST, /* logits of the last row */
    AE_EXPORT_ALL,
} ae_export;

/* Committed rows for tokens[0..n), ids below 0 being those of rows that are given (ae_engine_add_given), at the positions after
 * the live ones of `seq`. A sequence's rows of one pass are added together: one chain, then at most one tree on top of it.
 * *first gets the index of the first row. LIMIT: too many rows, or the context is full (both numbers said). INTERNAL: not added
 * in this order. */
aerie_status ae_engine_add_chain(ae_engine *engine, uint32_t seq, const int32_t *tokens, uint32_t n, ae_export export_rows,
                                 uint32_t *first, aerie_error *error);
/* Rows [first, first + n) of the chain added just before start from rows (host) [n][n_embd], lent until the pass has run,
 * instead of a token's: neither scaled nor normed. Their ids in that chain are below 0, and tell sequences apart as tokens do.
 * What joins them after layer i (ae_hparams.n_deepstack) is at rows + (i + 1) * plane.
 * group: they see each other, and the chain has the whole group, or the rest of it where the sequence holds its beginning.
 * INTERNAL: no such rows. UNSUPPORTED: groups in recurrent layers. */
aerie_status ae_engine_add_given(ae_engine *engine, uint32_t first, uint32_t n, const float *rows, size_t plane, bool group,
                                 aerie_error *error);
/* Rows [first, first + n) of the pass, of one sequence, rotate by positions that are `debt` below their own; with n_across they
 * are numbers from, from + 1, ... of a grid, whose lines and columns count in height and width from the position of its number
 * 0 on. Only of models that have ae_rope.sections; other rows rotate by their own positions. */
void ae_engine_turn(ae_engine *engine, uint32_t first, uint32_t n, uint32_t debt, uint32_t n_across, uint32_t from);
/* The same without logits, for a text whose hidden rows are wanted (options.taps). Of encoders, which take no other rows, it is
 * the whole text at once, in an empty sequence, to be truncated after the pass; tokens [n_first, n) have the second token type
 * where there are two. */
aerie_status ae_engine_add_text(ae_engine *engine, uint32_t seq, const int32_t *tokens, uint32_t n, uint32_t n_first,
                                uint32_t *first, aerie_error *error);
/* The tap that gives the rows of a text as they leave the model. */
static inline uint32_t ae_engine_text_tap(const ae_model *m)
{
    return !m->hparams.encoder || m->out_norm ? AERIE_TAP_NORMED : m->hparams.n_layers;
}
/* The tree's rows, tentative, hanging on the chain added just before for the same sequence; all export logits. LIMIT also for
 * more rows than a recurrent model has records. */
aerie_status ae_engine_add_tree(ae_engine *engine, uint32_t seq, const ae_tree *tree, uint32_t *first, aerie_error *error);
/* The same, but its first n_silent rows export none. */
aerie_status ae_engine_add_tree_from(ae_engine *engine, uint32_t seq, const ae_tree *tree, uint32_t n_silent, uint32_t *first,
                                     aerie_error *error);

/* The next pass departs from the model so; ae_engine_rows_clear ends it. The pass fails (INTERNAL) if a row is not tentative,
 * and of such a pass only the commit of nothing succeeds. mode is lent until then. */
void ae_engine_set_mode(ae_engine *engine, const ae_pass_mode *mode);

/* Runs the rows. No allocation. An operation of the backend that failed is named; then there are no logits, and nothing of
 * the rows stays in the KV cache. It may have failed before this pass, in a commit: the live rows are not to be trusted. */
aerie_status ae_engine_pass(ae_engine *engine, aerie_error *error);
/* Waits for what was done since: commits, copies of pages. After an error the live rows are not to be trusted. */
aerie_status ae_engine_sync(ae_engine *engine, aerie_error *error);
/* What the last pass took on the device. */
double ae_engine_pass_seconds(const ae_engine *engine);

/* (host) [n_vocab] f32 of a row of the last pass that exported them; valid until the next pass. Where the host cannot read the
 * device's memory the first call for a row downloads it; later ones may come from several threads. */
const float *ae_engine_logits(ae_engine *engine, uint32_t row);
/* Fetches the logits of all rows that exported them in one download, if it takes one, for ae_engine_logits to find. */
void ae_engine_fetch_logits(ae_engine *engine);

/* A sequence of the last pass to draw for; the tree is the one added for it, or empty. */
typedef struct ae_engine_walk {
    ae_sampler *sampler; /* draws from rows alone; no two walks share it */
    uint32_t row;        /* the newest row of its chain */
    uint32_t n;          /* nodes of its tree */
    uint32_t n_most;
    uint64_t position;
    bool ends;
} ae_engine_walk;
/* Draws down the trees of n sequences (draw/walk.h), on the device; out (host) [n]. */
aerie_status ae_engine_draw(ae_engine *engine, const ae_engine_walk *walks, uint32_t n, ae_walked *out, aerie_error *error);

/* A row of the last pass after which tokens are proposed, for drafters. */
typedef struct ae_engine_rank {
    const ae_sampler *sampler; /* the target's */
    uint32_t row, k;           /* exported row; at most AE_PROPOSE_MAX tokens */
    uint64_t position;
} ae_engine_rank;
/* Proposals for n rows, on the device; out (host) [n]. */
aerie_status ae_engine_propose(ae_engine *engine, const ae_engine_rank *ranks, uint32_t n, ae_proposal *out,
                               aerie_error *error);

/* (device) [n_taps][n_embd] f32 of a row of the last pass, whatever it exported; rows lie one after the other. Valid until
 * the next pass. */
const float *ae_engine_features(const ae_engine *engine, uint32_t row);

/* After a pass: of sequence seq keep the n_chain rows and, of its tree, the path nodes[0..n_nodes) from the root
 * (indices into the tree); everything else of its rows is dropped. With recurrent layers n_chain must be all of the chain.
 * INTERNAL: no such rows; nothing has changed. */
aerie_status ae_engine_commit(ae_engine *engine, uint32_t seq, uint32_t n_chain, const int32_t *nodes, uint32_t n_nodes);

/* ---- sequence.c: positions of a sequence, in the KV cache and in recurrent state together ------------------- */

/* Rows of a tree, at most. */
uint32_t ae_engine_max_tree(const ae_engine *engine);
uint32_t ae_engine_n_live(const ae_engine *engine, uint32_t seq);
/* Where `seq` would land if it were cut to n positions: on n, or on the nearest position before it whose recurrent state and
 * windows are known; what lies between is to be computed again. */
uint32_t ae_engine_landing(const ae_engine *engine, uint32_t seq, uint32_t n);
/* Cuts the sequence so; returns where it landed. A sequence whose pass was never committed is whole after this. */
uint32_t ae_engine_truncate(ae_engine *engine, uint32_t seq, uint32_t n);
/* `to` (emptied first) gets what can be had of positions [0, n) of `from`; returns how many. */
uint32_t ae_engine_share(ae_engine *engine, uint32_t to, uint32_t from, uint32_t n);
/* How many of tokens[0..n) sequences of this key that have ended left behind, from the first on. */
uint32_t ae_engine_match(const ae_engine *engine, ae_kv_key key, const int32_t *tokens, uint32_t n);
/* The sequence (emptied first) gets these, of its key; returns how many. */
uint32_t ae_engine_adopt(ae_engine *engine, uint32_t seq, const int32_t *tokens, uint32_t n);
/* ---- Saved sequences: canonical bytes of what the cache holds of tokens[0..n), with layers that have windows from `first` on,
 * then, with has_state, those of the recurrent state after them ---- */

/* Where a sequence, or what sequences of this key left behind, can be saved: the last such position up to n, of tokens that
 * belong to it. Without recurrent layers any that it can land on; 0: nowhere. */
uint32_t ae_engine_seq_saved(const ae_engine *engine, uint32_t seq, uint32_t n);
uint32_t ae_engine_prefix_saved(const ae_engine *engine, ae_kv_key key, const int32_t *tokens, uint32_t n);
size_t ae_engine_saved_bytes(const ae_engine *engine, uint32_t n, uint32_t first, bool has_state);
/* n as the functions above say, or with has_state false any landing. */
void ae_engine_save_seq(ae_engine *engine, uint32_t seq, uint32_t n, uint32_t first, bool has_state, void *out);
void ae_engine_save_prefix(ae_engine *engine, ae_kv_key key, const int32_t *tokens, uint32_t n, uint32_t first, bool has_state,
                           void *out);
/* Such bytes are left behind as by a sequence that has ended, as far as there is room. */
void ae_engine_load_prefix(ae_engine *engine, ae_kv_key key, const int32_t *tokens, uint32_t n, uint32_t first, bool has_state,
                           const void *bytes);
/* The sequence ends: it is emptied, what it held is kept as long as there is room; tokens [n_live]. */
void ae_engine_keep(ae_engine *engine, uint32_t seq, const int32_t *tokens);
/* Keeps what recurrent layers and those with windows know at the live position, to return to it; others need it not. */
void ae_engine_snapshot(ae_engine *engine, uint32_t seq);
/* Whether ae_engine_snapshot is of use. */
bool ae_engine_has_state(const ae_engine *engine);
/* Drops everything that is kept of ended sequences. */
void ae_engine_forget_prefixes(ae_engine *engine);

#endif
