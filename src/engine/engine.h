/* engine.h - rows in, logits out: one network, one KV cache, any number of sequences at once.
 *
 * Owns: a stream for each device of the network, the KV cache, activations. Borrows the network. One user thread at a time.
 *
 * A pass takes rows: tokens of any sequences, each with a logical position and a parent. Prompt chunks, plain decoding, drafted
 * chains, drafted trees and many sequences at once are all just rows; there is no second path. Use:
 *     ae_engine_rows_clear; ae_engine_add_chain / ae_engine_add_tree per sequence; ae_engine_pass;
 *     read ae_engine_logits; ae_engine_commit what was accepted (per sequence, after every pass).
 * Law: the logits of a row depend on the weights, on the adapters of its sequence and on the row's own prefix, and on nothing
 * else.
 */
#ifndef AE_ENGINE_ENGINE_H
#define AE_ENGINE_ENGINE_H

#include "engine/weights/adapter.h"
#include "cache/kv.h"
#include "draw/best.h"
#include "engine/layers/pass_mode.h"
#include "engine/media.h"
#include "engine/tree.h"
#include "sample/sampler.h"

typedef struct ae_engine ae_engine;

/* The tap of stream k after the last layer, in models with hyper-connections, is AE_TAP_STREAM + k. */
#define AE_TAP_STREAM 0x80000000u

typedef struct ae_engine_options {
    const struct ae_vocab *vocab; /* knows which tokens end a walk (ae_engine_draw); NULL: none do. Only ae_engine_create reads
                                   * it */
    uint32_t n_ctx;     /* positions per sequence */
    uint32_t n_seqs;
    uint32_t n_batch;   /* most rows of a pass; raised to n_outputs if smaller */
    uint32_t n_outputs; /* most rows of a pass that may export logits; 0: as many as n_seqs trees may need */
    uint32_t n_records;   /* recurrent layers: most drafted rows of a sequence in a pass; 0: AERIE_MAX_DRAFT */
    uint32_t n_snapshots; /* recurrent layers: states that are kept to return to, of all sequences */
    uint32_t n_windows;   /* layers with windows: windows that are kept to return to, of all sequences */
    uint32_t n_kv_pages; /* pages of the KV cache, for all sequences; 0: enough for n_seqs whole contexts */
    uint32_t n_threads; /* threads; not read if there is a pool */
    ae_kv_type kv_type;
    uint32_t n_taps;       /* number of hidden rows that every row of a pass exports, for drafter heads */
    /* the layers whose input in the residual stream is exported (n_layers: the output of the last one), AERIE_TAP_NORMED, or
     * AE_TAP_STREAM and following */
    uint32_t taps[AERIE_MAX_TAPS];
    uint32_t max_rank;     /* largest rank of adapters; 0: sequences have no adapters */
    ae_pool *pool;         /* threads to run on, which must outlive the engine; NULL: threads of its own */
    const ae_ranks *ranks; /* plans only: plan for one rank of a group; an engine uses its network's ranks */
    struct ae_commands *commands; /* lent, on rank 0 of a group: all ranks repeat what this engine does (commands.h); NULL: no
                                   * group, or not rank 0 */
} ae_engine_options;

/* Returns the bytes that an engine with these options takes, without weights. */
size_t ae_engine_plan_bytes(const ae_model *model, const ae_backend *backend, const ae_engine_options *options);
/* The same with layers on several devices. on [n_devices], if it is not NULL, gets the bytes on each device. */
size_t ae_engine_plan_split(const ae_model *model, const ae_split *split, const ae_engine_options *options, size_t *on);
aerie_status ae_engine_create(ae_engine **out, const ae_net *net, const ae_engine_options *options, aerie_error *error);
void ae_engine_free(ae_engine *engine);

const ae_net *ae_engine_net(const ae_engine *engine);
const ae_engine_options *ae_engine_options_get(const ae_engine *engine);
ae_kv *ae_engine_kv(const ae_engine *engine);
/* Returns the stream of the output's device. */
ae_stream *ae_engine_stream(const ae_engine *engine);
/* Sets whether passes compute the last layer for all rows. By default they leave out what nothing reads: most of that layer,
 * for rows that export no logits. A caller that watches the stream's products needs all of them. */
void ae_engine_set_whole(ae_engine *engine, bool whole);
/* Returns the threads that the engine runs on. */
ae_pool *ae_engine_pool(const ae_engine *engine);

/* Empties the sequence; from now on it is computed with these adapters, in their order, and in their scope. NULL: without
 * adapters, in the common scope, which is the default. options.max_rank must be at least the adapters' ranks. */
void ae_engine_adapt(ae_engine *engine, uint32_t seq, const ae_adapter_set *set);
/* Returns the sequence's adapters, with their key. */
const ae_adapter_set *ae_engine_adapters(const ae_engine *engine, uint32_t seq);
/* Returns the key of such a set; NULL: the key of no adapters in the common scope. */
ae_kv_key ae_engine_key(ae_engine *engine, const ae_adapter_set *set);
ae_kv_key ae_engine_seq_key(const ae_engine *engine, uint32_t seq);

void ae_engine_rows_clear(ae_engine *engine);
uint32_t ae_engine_n_rows(const ae_engine *engine);
uint32_t ae_engine_rows_left(const ae_engine *engine);
/* Returns how many more rows of the pass may export logits. */
uint32_t ae_engine_outputs_left(const ae_engine *engine);

/* Declares that the pass being built will only be drawn from (ae_engine_draw), by draws that need up to this many best
 * candidates (ae_draw_wants), at most AE_BEST_MOST. Ranks that split the vocabulary send these instead of logits; any other
 * result of the pass costs one more round. 0, which ae_engine_rows_clear also sets: whole rows. */
void ae_engine_expect(ae_engine *engine, uint32_t n_best);
/* Declares, before that, that a sequence's rows are drawn by noise alone, for which one best candidate is enough. */
void ae_engine_expect_noise(ae_engine *engine, uint32_t seq, const ae_noise *noise);

/* Returns into how many waves the rows added so far can be cut; 1: none, as in all but pipelines. */
uint32_t ae_engine_most_waves(const ae_engine *engine);
/* Runs the pass being built in n waves of rows, or in as many as it can be cut into, which follow each other through the stages
 * of a pipeline. The results are the same. Holds until ae_engine_rows_clear. */
void ae_engine_cut(ae_engine *engine, uint32_t n);

typedef enum ae_export {
    AE_EXPORT_NONE,
    AE_EXPORT_LAST, /* logits of the last row */
    AE_EXPORT_ALL,
} ae_export;

/* Adds committed rows for tokens[0..n) at the positions after the live ones of `seq`. Negative ids stand for given rows
 * (ae_engine_add_given). A sequence's rows in a pass are added together: one chain, then at most one tree on top of it. *first
 * is the index of the first row. LIMIT: too many rows, or the context is full (the message has both numbers). INTERNAL: rows
 * were not added in this order. */
aerie_status ae_engine_add_chain(ae_engine *engine, uint32_t seq, const int32_t *tokens, uint32_t n, ae_export export_rows,
                                 uint32_t *first, aerie_error *error);
/* Lets rows [first, first + n) of the chain added just before start from rows (host) [n][n_embd] instead of token embeddings,
 * neither scaled nor normed; rows are lent until the pass has run. Their ids in that chain are negative, and distinguish
 * sequences as tokens do. The numbers to add after layer i (ae_hparams.n_deepstack) are at rows + (i + 1) * plane. group: these
 * rows see each other; the chain must have the whole group, or its rest if the sequence already holds the beginning. INTERNAL:
 * no such rows. UNSUPPORTED: a group, although ae_engine_may_join returns false. */
aerie_status ae_engine_add_given(ae_engine *engine, uint32_t first, uint32_t n, const float *rows, size_t plane, bool group,
                                 aerie_error *error);
/* Rotates rows [first, first + n) of the pass, of one sequence, by positions that are `debt` below their own. If n_across is
 * not 0, they are cells from, from + 1, ... of a grid with n_across columns; their row and column in the grid count as height
 * and width from the position of cell 0 on. Only for models with ae_rope.sections; all other rows rotate by their own
 * positions. */
void ae_engine_turn(ae_engine *engine, uint32_t first, uint32_t n, uint32_t debt, uint32_t n_across, uint32_t from);
/* Does both for what `media`, ascending and without overlap, say of the chain added just before: its rows are
 * [first, first + n), and row `first` is at position `at`. */
aerie_status ae_engine_add_media(ae_engine *engine, uint32_t first, uint32_t n, uint32_t at, const ae_media *media,
                                 uint32_t n_media, aerie_error *error);
/* Only rotates rows [first, first + n) of one sequence, which are at positions [at, at + n), as `media` say. */
void ae_engine_turn_media(ae_engine *engine, uint32_t first, uint32_t n, uint32_t at, const ae_media *media,
                          uint32_t n_media);
/* Adds a text without logits, for its hidden rows (options.taps). For encoders, which take no other rows, this is the whole
 * text, in an empty sequence that must be truncated after the pass; tokens [n_first, n) have the second token type if there are
 * two. */
aerie_status ae_engine_add_text(ae_engine *engine, uint32_t seq, const int32_t *tokens, uint32_t n, uint32_t n_first,
                                uint32_t *first, aerie_error *error);
/* Adds a text whose rows see each other, to an empty sequence that must be truncated after the pass. wanted [n]: the rows that
 * export logits; NULL: all. LIMIT: too many rows. UNSUPPORTED: recurrent layers, or a group of ranks. */
aerie_status ae_engine_add_whole(ae_engine *engine, uint32_t seq, const int32_t *tokens, uint32_t n, const uint8_t *wanted,
                                 uint32_t *first, aerie_error *error);
/* Returns the tap that gives a text's rows as they leave the model. */
static inline uint32_t ae_engine_text_tap(const ae_model *m)
{
    return !m->hparams.encoder || m->out_norm ? AERIE_TAP_NORMED : m->hparams.n_layers;
}
/* Adds the rows of a tree, tentative, on top of the chain added just before for the same sequence; all export logits. LIMIT: as
 * above, or the tree has more rows than a recurrent model has records. */
aerie_status ae_engine_add_tree(ae_engine *engine, uint32_t seq, const ae_tree *tree, uint32_t *first, aerie_error *error);
/* The same, but the first n_silent rows do not export logits. */
aerie_status ae_engine_add_tree_from(ae_engine *engine, uint32_t seq, const ae_tree *tree, uint32_t n_silent, uint32_t *first,
                                     aerie_error *error);

/* Returns whether rows may see later ones. They may not in models with recurrent layers, or with an index, which chooses among
 * earlier rows. */
bool ae_engine_may_join(const ae_net *net);
/* Lets rows [first, first + n) of the pass see each other: a tree that is a chain and was added just before. */
void ae_engine_join_rows(ae_engine *engine, uint32_t first, uint32_t n);

/* Sets how the next pass departs from the model, until ae_engine_rows_clear. The pass fails (INTERNAL) if a row is not
 * tentative, and only committing nothing succeeds after it. mode is lent until then. */
void ae_engine_set_mode(ae_engine *engine, const ae_pass_mode *mode);

/* Runs the rows without allocating. If an operation of the backend has failed, the error names it; then there are no logits,
 * and none of the rows stay in the KV cache. The operation may have run before this pass, in a commit, so the live rows cannot
 * be trusted. */
aerie_status ae_engine_pass(ae_engine *engine, aerie_error *error);
/* Waits for commits and copies of pages since the last pass. After an error the live rows cannot be trusted. */
aerie_status ae_engine_sync(ae_engine *engine, aerie_error *error);
/* Returns the seconds that the last pass took on the device. */
double ae_engine_pass_seconds(const ae_engine *engine);

/* Returns (host) [n_vocab] f32 logits of a row of the last pass that exported them; valid until the next pass. If the host
 * cannot read device memory, the first call for a row downloads it; later calls may come from several threads. */
const float *ae_engine_logits(ae_engine *engine, uint32_t row);
/* Downloads the logits of all rows that exported them, if a download is needed, for later calls of ae_engine_logits. */
void ae_engine_fetch_logits(ae_engine *engine);

/* A sequence of the last pass to draw for, with the tree that was added for it (or none). */
typedef struct ae_engine_walk {
    ae_sampler *sampler; /* a sampler that draws from each row alone; no two walks share it */
    uint32_t row;        /* the newest row of its chain */
    uint32_t n;          /* nodes of its tree */
    uint32_t n_most;
    uint64_t position;
    bool ends;
} ae_engine_walk;
/* Draws tokens down the trees of n sequences (draw/walk.h) on the device; out (host) [n]. */
aerie_status ae_engine_draw(ae_engine *engine, const ae_engine_walk *walks, uint32_t n, ae_walked *out, aerie_error *error);

/* A row of the last pass after which a drafter wants proposals. */
typedef struct ae_engine_rank {
    const ae_sampler *sampler; /* the target's sampler */
    uint32_t row, k;           /* row: it exported logits; k: number of proposals, at most AE_PROPOSE_MAX */
    uint64_t position;
} ae_engine_rank;
/* Proposes tokens after n rows, on the device; out (host) [n]. */
aerie_status ae_engine_propose(ae_engine *engine, const ae_engine_rank *ranks, uint32_t n, ae_proposal *out,
                               aerie_error *error);

/* Returns (device) [n_taps][n_embd] f32 hidden rows of a row of the last pass, whether it exported logits or not; those of all
 * rows are contiguous. Valid until the next pass. */
const float *ae_engine_features(const ae_engine *engine, uint32_t row);

/* Called after a pass: keeps the sequence's n_chain rows and, of its tree, the path nodes[0..n_nodes) from the root (indices
 * into the tree); drops its other rows. With recurrent layers n_chain must be the whole chain. INTERNAL: no such rows; then
 * nothing has changed. */
aerie_status ae_engine_commit(ae_engine *engine, uint32_t seq, uint32_t n_chain, const int32_t *nodes, uint32_t n_nodes);

/* ---- sequence.c: positions of a sequence, in the KV cache and in recurrent state together ------------------- */

/* Returns the most rows of a tree. */
uint32_t ae_engine_max_tree(const ae_engine *engine);
uint32_t ae_engine_n_live(const ae_engine *engine, uint32_t seq);
/* Returns where `seq` would land if it were cut to n positions: on n, or on the nearest position before it at which recurrent
 * state and windows are known. The positions in between would have to be computed again. */
uint32_t ae_engine_landing(const ae_engine *engine, uint32_t seq, uint32_t n);
/* Cuts the sequence to n positions; returns where it landed. Also makes a sequence usable whose last pass was not committed. */
uint32_t ae_engine_truncate(ae_engine *engine, uint32_t seq, uint32_t n);
/* Gives `to` (emptied first) as many of positions [0, n) of `from` as can be shared; returns their number. */
uint32_t ae_engine_share(ae_engine *engine, uint32_t to, uint32_t from, uint32_t n);
/* Returns how many of tokens[0..n), from the first on, are kept from ended sequences with this key. */
uint32_t ae_engine_match(const ae_engine *engine, ae_kv_key key, const int32_t *tokens, uint32_t n);
/* Gives the sequence (emptied first) these positions, under its own key; returns their number. */
uint32_t ae_engine_adopt(ae_engine *engine, uint32_t seq, const int32_t *tokens, uint32_t n);
/* ---- Saved sequences: canonical bytes of the cache's values for tokens[0..n), those of layers with windows from position
 * `first` on; then, with has_state, the recurrent state after these tokens ---- */

/* Returns the last position up to n at which a sequence, or what is kept from ended sequences with this key, can be saved; the
 * tokens must be theirs. Without recurrent layers it is any landing; 0: there is none. */
uint32_t ae_engine_seq_saved(const ae_engine *engine, uint32_t seq, uint32_t n);
uint32_t ae_engine_prefix_saved(const ae_engine *engine, ae_kv_key key, const int32_t *tokens, uint32_t n);
size_t ae_engine_saved_bytes(const ae_engine *engine, uint32_t n, uint32_t first, bool has_state);
/* The part of a sequence that is saved. n is a result of the functions above or, if has_state is false, any landing. */
typedef struct ae_engine_saved {
    uint32_t n, first;
    bool has_state;
    uint32_t begin, end; /* the positions whose bytes a call reads or writes at their places; the state goes with the last
                          * one */
} ae_engine_saved;
void ae_engine_save_seq(ae_engine *engine, uint32_t seq, const ae_engine_saved *saved, void *out);
void ae_engine_save_prefix(ae_engine *engine, ae_kv_key key, const int32_t *tokens, const ae_engine_saved *saved, void *out);
/* Puts positions [begin, end) of such bytes into the cache as if a sequence had ended, and the state with the last one. begin
 * must be a whole number of pages, and so must end unless it is n. Returns false if positions before begin are missing, or if
 * there was no room for all. */
bool ae_engine_load_prefix(ae_engine *engine, ae_kv_key key, const int32_t *tokens, const ae_engine_saved *saved,
                           const void *bytes);
/* Ends the sequence: it is emptied, and its positions are kept as long as there is room; tokens [n_live]. */
void ae_engine_keep(ae_engine *engine, uint32_t seq, const int32_t *tokens);
/* Keeps recurrent state and windows at the live position, so that sequences can return to it; other layers need no snapshot. */
void ae_engine_snapshot(ae_engine *engine, uint32_t seq);
/* Returns whether the model needs ae_engine_snapshot. */
bool ae_engine_has_state(const ae_engine *engine);
/* Drops everything that is kept of ended sequences. */
void ae_engine_forget_prefixes(ae_engine *engine);

#endif
