/* engine.h - a drafter head at work: true rows in, drafted rows on top of them, logits out.
 *
 * Owns: the head's own KV cache, activations, and the features that drafted rows feed back. Runs on the threads of its target's
 * engine.
 *
 * Row P of a sequence reads the token at position P + 1 and the feature of position P, rotates by P, and predicts the token at
 * P + 2. There are two kinds of rows. A pass runs rows of one kind, of any sequences:
 *   true rows have a feature from the target. They stay, in order: row P comes after row P - 1.
 *   drafted rows have as feature the head's own output for the row before: the newest true row (parent -1) or another drafted
 *   row. They form a tree on the newest true row, and are dropped all together.
 * With several MTP blocks (n_layers > 1), block d runs the drafted rows of depth d, the last block runs all deeper ones, and
 * all blocks run true rows. Block k reads as feature the output of block k - 1 for the row before, so each block has a cache of
 * its own for the same rows. If a sequence begins in the middle of another, block k has no feature for its first k rows.
 * Accepted tokens come back as true rows, so the head's cache never holds a guess (called catch-up in the reference).
 *
 * An assistant keeps nothing: its rows read the target's cache, true rows are only counted, and the last one of a pass is run
 * if it has an output. A caller that asks for an output must ensure that the target's sequence with the same number holds as
 * many positions.
 *
 * A block drafter's true rows need no token: a position's keys and values are computed from its feature alone. Its drafted rows
 * are blocks (ae_dhead_add_block): the newest token and masks, which see all true rows and, unless the drafter is causal, each
 * other. One pass over them predicts all tokens of a draft.
 *
 * The engine's operations run on a stream of its own, which waits for the target's where it reads what that wrote. Before
 * features that passes read are changed, the target's stream must wait for this one.
 *
 * With a window the oldest rows are forgotten by whole pages, but for the first `sinks`; rotations keep their positions.
 */
#ifndef AE_DRAFT_HEAD_ENGINE_H
#define AE_DRAFT_HEAD_ENGINE_H

#include "engine/engine.h"
#include "engine/media.h"
#include "draft/head/net.h"

#define AE_DHEAD_LEVEL_MAX 16 /* most drafted rows of a sequence in one pass */

#define AE_DHEAD_BATCH 256    /* most true rows in a pass; larger if there are so many sequences that they need it */
#define AE_DHEAD_NO_ROW UINT32_MAX

typedef struct ae_dhead_engine ae_dhead_engine;

typedef struct ae_dhead_engine_options {
    uint32_t n_ctx;   /* true rows of a sequence */
    uint32_t n_seqs;
    uint32_t n_batch; /* rows of a pass; raised to AE_DHEAD_LEVEL_MAX for each sequence */
    uint32_t window, n_sinks; /* rows that attention sees, in whole pages of 64; 0: as the file says. A window longer than n_ctx
                               * has no effect */
} ae_dhead_engine_options;

size_t ae_dhead_engine_plan_bytes(const ae_dhead *head, const ae_net *target, const ae_dhead_engine_options *options,
                                 uint32_t n_threads);
aerie_status ae_dhead_engine_create(ae_dhead_engine **out, const ae_dhead_net *net, ae_engine *target,
                                   const ae_dhead_engine_options *options, aerie_error *error);
void ae_dhead_engine_free(ae_dhead_engine *engine);
const ae_dhead_net *ae_dhead_engine_net(const ae_dhead_engine *engine);
ae_stream *ae_dhead_engine_stream(const ae_dhead_engine *engine);

/* Returns the number of true rows of a sequence so far, dropped ones included. It is the position of the next row. */
uint32_t ae_dhead_n_true(const ae_dhead_engine *engine, uint32_t seq);
/* Gives `to` the first n true rows of `from`; *n is reduced to what `from` has, possibly to 0 if it has dropped rows. */
void ae_dhead_share(ae_dhead_engine *engine, uint32_t to, uint32_t from, uint32_t *n);
/* Makes the next true row that of `position`, which is later than the row after the newest one. The rows in between stay
 * unknown. */
void ae_dhead_skip(ae_dhead_engine *engine, uint32_t seq, uint32_t position);
/* Empties the sequence; its first row will be that of `position`. */
void ae_dhead_restart(ae_dhead_engine *engine, uint32_t seq, uint32_t position);

/* A pass of true rows: clear, add rows of each sequence (at most once), run. `add` takes n features (device) [n][n_taps *
 * n_target_embd] and the tokens after them (NULL for a block drafter); n <= rows_left. With `output` the last row exports
 * logits, at index *out, and drafts may continue it. INTERNAL: the rows do not fit the pass or the cache, and nothing is
 * added. */
uint32_t ae_dhead_rows_left(const ae_dhead_engine *engine);
void ae_dhead_clear(ae_dhead_engine *engine);
/* Tells which positions of the sequence are not tokens, for the rows that are added until `clear` (media [n_media], lent, as
 * its rows are, until the pass has run). If the token after a row is below 0, media must have its position, and the head must
 * be as wide as the target (not an assistant). Where the head's layers rotate by several components, its rows rotate by the
 * first component of the target. */
void ae_dhead_set_media(ae_dhead_engine *engine, uint32_t seq, const ae_media *media, uint32_t n_media);
aerie_status ae_dhead_add_true(ae_dhead_engine *engine, uint32_t seq, const float *features, const int32_t *next_tokens,
                               uint32_t n, bool output, uint32_t *out);
/* P-EAGLE: adds n mask rows, at most n_parallel - 1, after the last row that ae_dhead_add_true added with an output, of the
 * same sequence. They are dropped when the pass has run. Their outputs follow *out. INTERNAL: there is no room, and nothing is
 * added. */
aerie_status ae_dhead_add_masks(ae_dhead_engine *engine, uint32_t seq, uint32_t n);
/* Like other passes, it does not wait for the device. INTERNAL: the cache is out of step. */
aerie_status ae_dhead_run_true(ae_dhead_engine *engine, aerie_error *error);
/* Waits for the passes started so far. If an operation of the backend failed, the error names it, and all sequences are
 * empty. */
aerie_status ae_dhead_sync(ae_dhead_engine *engine, aerie_error *error);

/* A pass of drafted rows: clear, add up to AE_DHEAD_LEVEL_MAX rows of each sequence, run. All rows export logits. Returns the
 * row's number among the drafted rows of its sequence; parents ran in an earlier pass. If the head has several layers, the rows
 * of a pass have one depth. AE_DHEAD_NO_ROW: the row does not fit; nothing is added. */
uint32_t ae_dhead_add_drafted(ae_dhead_engine *engine, uint32_t seq, int32_t parent, int32_t token, uint32_t *out);
void ae_dhead_run_drafted(ae_dhead_engine *engine);
void ae_dhead_drop_drafted(ae_dhead_engine *engine, uint32_t seq);

/* Block drafters (block_pass.c). A pass of blocks: clear, add a block for each sequence (at most once), run, drop. Outputs *out
 * and following predict the first n_out tokens after `token`. INTERNAL: there is no room, or n_out is more than a block
 * predicts. */
aerie_status ae_dhead_add_block(ae_dhead_engine *engine, uint32_t seq, int32_t token, uint32_t n_out, uint32_t *out);
void ae_dhead_run_blocks(ae_dhead_engine *engine);

/* DSpark: asks for the logits of output `out` of that pass, given the token before the predicted one. */
typedef struct ae_dhead_link {
    uint32_t out;
    int32_t token;
} ae_dhead_link;
/* Links [n], at most AE_DHEAD_LEVEL_MAX for each sequence. The next ae_dhead_propose or ae_dhead_sync writes each link's
 * confidence to conf (host) [n], if the head computes one. From now on ae_dhead_propose and ae_dhead_logits read the links'
 * logits, by number of the link; further links still read the outputs of the blocks. */
aerie_status ae_dhead_run_links(ae_dhead_engine *engine, const ae_dhead_link *links, uint32_t n, float *conf,
                                aerie_error *error);

/* The vectors from which pair scores are computed. DFlash2: for outputs of the last pass of blocks, and for tokens. */
typedef struct ae_dhead_pairs {
    uint32_t rank;
    const float *rows;           /* (host) [outputs][rank]; LiLiCorr: NULL */
    const float *before, *after; /* (host) [n][rank] vectors of the tokens: as the token before, and as the candidate */
} ae_dhead_pairs;
/* Computes the vectors of tokens [n], target ids, at most n_block * n_candidates + 1 for each sequence. Waits. The arrays are
 * valid until the next pass. */
aerie_status ae_dhead_run_pairs(ae_dhead_engine *engine, const int32_t *tokens, uint32_t n, ae_dhead_pairs *pairs,
                                aerie_error *error);
/* Returns what is added to the logit of token `after` at output `out` if token `before` precedes it (both are indices). */
float ae_dhead_pair_score(const ae_dhead_pairs *pairs, uint32_t out, uint32_t before, uint32_t after);

/* LiLiCorr: scores the candidates of n sequences, at most ae_dhead_lattice_most, of the last pass of blocks. Their outputs are
 * consecutive from `out` on, all that a block predicts. candidates [n][outputs of a block]: the likeliest tokens of each output
 * (in that order), and their probabilities among all tokens. Waits. Then pairs->before has a row for the newest token of each
 * sequence, followed by one for each candidate; pairs->after has the candidates' rows at the same indices: [n][outputs of a
 * block] [n_candidates]. Valid until the next pass. */
uint32_t ae_dhead_lattice_most(const ae_dhead_engine *engine);
aerie_status ae_dhead_run_lattice(ae_dhead_engine *engine, const uint32_t *seqs, uint32_t n, uint32_t out,
                                  const ae_proposal *candidates, ae_dhead_pairs *pairs, aerie_error *error);

/* Medusa: runs all heads on n features (device, [n_target_embd] each, contiguous), one for each sequence that wants a draft.
 * INTERNAL: n is more than the number of sequences. */
aerie_status ae_dhead_run_medusa(ae_dhead_engine *engine, const float *features, uint32_t n, aerie_error *error);

/* Waits. (host) [n_draft] f32, of output `out` of the last pass; for Medusa's row r and head j: out = r * n_medusa + j. */
const float *ae_dhead_logits(ae_dhead_engine *engine, uint32_t out);
/* Makes proposals, in target ids, for n outputs of the last pass, on the device; out (host) [n]. Waits, and fails as
 * ae_dhead_sync does. */
aerie_status ae_dhead_propose(ae_dhead_engine *engine, const ae_propose_row *rows, uint32_t n, ae_proposal *out,
                              aerie_error *error);
/* For tests: (device) [n_embd] f32, for an assistant [n_target_embd]: what output `out` feeds back; for a block drafter, the
 * row after the last norm. */
const float *ae_dhead_hidden(const ae_dhead_engine *engine, uint32_t out);

#endif
