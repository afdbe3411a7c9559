/* aerie_measure.h - for programs that measure, quantize or train: logits of texts, hidden rows, timings, importance matrices.
 *
 * The conventions of aerie.h hold, but no ABI is promised: a program that uses these functions is compiled again for each
 * version of the library.
 */
#ifndef AERIE_MEASURE_H
#define AERIE_MEASURE_H

#include "aerie.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Measuring -------------------------------------------------------------------------------------------
 *
 * These functions belong to the stepping thread, outside of callbacks and while no task runs: they empty the session's
 * cache. */

/* Sets the adapters, as in aerie_request, for the texts that the following functions evaluate; n 0: none, which is the default.
 * Requests have their own. Errors: ARGUMENT (not the session's adapters, too many, one twice, a scale that is not finite),
 * INTERNAL. */
AERIE_API aerie_status aerie_session_eval_adapters(aerie_session *session, const aerie_adapter_use *adapters, size_t n_adapters,
                                                   aerie_error *error);

/* Called for each position that is evaluated: logits [n_vocab], valid during the call. Returning false ends the evaluation. */
typedef bool aerie_logits_callback(void *user, size_t position, const float *logits);
/* Evaluates a text: the callback gets the logits of every position, in order. Errors: LIMIT (longer than the context), ARGUMENT
 * (a token out of range), MEMORY, UNSUPPORTED, INTERNAL. */
AERIE_API aerie_status aerie_session_eval(aerie_session *session, const int32_t *tokens, size_t n_tokens,
                                          aerie_logits_callback *callback, void *user, aerie_error *error);

/* Like aerie_session_eval, but only for positions from `first` on: earlier ones cost no logits. Several threads call the
 * callback at once; after it returned false, it is not called for positions of a later pass. It may call no function of a
 * session. Errors: those of aerie_session_eval. */
AERIE_API aerie_status aerie_session_eval_parallel(aerie_session *session, const int32_t *tokens, size_t n_tokens, size_t first,
                                                   aerie_logits_callback *callback, void *user, aerie_error *error);

/* Returns the log-probability of a token given a row of logits [n_vocab], defined as in aerie_token_event: by the softmax at
 * temperature 1. The n <= AERIE_MAX_LOGPROBS likeliest tokens go to top [*n_top], best first. Any thread. */
AERIE_API float aerie_logprobs(const float *logits, uint32_t n_vocab, int32_t token, uint32_t n, aerie_logprob *top,
                               uint32_t *n_top);

/* Like aerie_logits_callback, but also gets the tapped hidden rows of the position: features [n_taps][n_embd] f32, in the order
 * of params.taps. */
typedef bool aerie_features_callback(void *user, size_t position, const float *logits, const float *features);
/* Like aerie_session_eval, for training and checking drafter heads. Errors: those of aerie_session_eval, and ARGUMENT for a
 * session without taps. */
AERIE_API aerie_status aerie_session_eval_features(aerie_session *session, const int32_t *tokens, size_t n_tokens,
                                                   aerie_features_callback *callback, void *user, aerie_error *error);

/* Measures the seconds of one target pass over n_rows rows after n_context cached positions, n_runs times: seconds [n_runs].
 * all_logits: every row exports logits, as in verification; otherwise only the last one, as in a prompt. Errors: ARGUMENT (so
 * many rows do not fit a pass or the context), LIMIT, MEMORY, UNSUPPORTED, INTERNAL. */
AERIE_API aerie_status aerie_session_time_pass(aerie_session *session, uint32_t n_rows, uint32_t n_context, bool all_logits,
                                               uint32_t n_runs, double *seconds, aerie_error *error);

/* Returns the bytes of (packed) weights that one pass reads, for roofline figures. */
AERIE_API uint64_t aerie_model_pass_bytes(const aerie_model *model);

/* ---- Looking into passes -------------------------------------------------------------------------------------- */

/* Who proposed a drafted token; both bits may be set. */
#define AERIE_PROPOSED_BY_NGRAM 1u   /* an n-gram, or a grammar that allows one token only */
#define AERIE_PROPOSED_BY_NETWORK 2u /* a head, a draft model, the model itself */

/* The tree of drafted tokens that a pass verified for one sequence. */
typedef struct aerie_pass_tree {
    uint32_t slot;
    uint32_t n_nodes;
    const int32_t *tokens, *parents; /* [n_nodes] a parent comes before its children; -1: the newest token of the sequence */
    const float *probabilities;      /* [n_nodes] estimates by the drafter that a node is accepted if its parent is */
    const uint8_t *proposed_by;      /* [n_nodes] AERIE_PROPOSED_BY_* */
    uint32_t n_accepted;
    const int32_t *accepted;         /* [n_accepted] nodes, from the first level on */
} aerie_pass_tree;

/* One pass: its rows, what the controller expected of it, and the result. Arrays of two: n-gram drafts, network drafts.
 * Times are in seconds. Predictions are 0 where none were made: in passes with prompts and in sessions without a drafter. */
typedef struct aerie_pass {
    uint64_t number;             /* from 0, since the session was created */
    uint32_t n_sequences;        /* that had rows in it */
    uint32_t n_drawing;          /* rows that drew a token */
    uint32_t n_rows;             /* tree nodes included */
    uint32_t n_context;          /* mean length of the pass's sequences */
    bool prompts;                /* rows of prompts were among them */
    uint32_t network;            /* which of the session's drafters (aerie_session_drafter_name) was allowed to draft */
    uint32_t n_asked, n_levels;  /* sequences for which the network drafted, and its levels; 0: it did not draft */
    uint32_t n_proposed;         /* drafted nodes before they were cut to what pays */
    uint32_t n_verified[2], n_accepted[2];
    uint32_t n_tokens;           /* emitted */
    double plain_seconds;        /* expected seconds of the pass without any draft */
    double expected_seconds;     /* expected seconds of the pass with its verified nodes */
    double expected_tokens;      /* expected to be emitted */
    double target_seconds, draft_seconds; /* seconds of the pass; seconds of all drafts before it */
    double seconds;              /* the whole step: planning, drafts, pass, draws, callbacks */
    double budget;               /* what further trials may still lose against plain decoding, in plain passes */
    bool measures_plain, explores; /* the pass has no drafts, to measure plain decoding; its drafts are paid from the budget */
    uint32_t n_trees;
    const aerie_pass_tree *trees; /* [n_trees] not empty */
} aerie_pass;

/* Called by the stepping thread at the end of a pass. The pass and all that it points to are lent for the call, during which no
 * function of the session may be called. */
typedef void aerie_pass_callback(void *user, const aerie_pass *pass);

/* Reports each pass to the callback from now on; NULL: stops reporting. The output's bytes stay the same. Belongs to the
 * stepping thread, outside of callbacks. Errors: MEMORY. */
AERIE_API aerie_status aerie_session_watch_passes(aerie_session *session, aerie_pass_callback *callback, void *user,
                                                  aerie_error *error);

/* ---- Running tasks ------------------------------------------------------------------------------------------- */

/* Copies the statistics of a task that may not have ended, with its times up to now. Returns false if it waits for a slot.
 * Belongs to the stepping thread, callbacks of the task included. size: sizeof *stats. */
AERIE_API bool aerie_task_stats_now(const aerie_task *task, aerie_stats *stats, size_t size);

/* ---- Importance matrices ------------------------------------------------------------------------------------
 *
 * How large the inputs of each matrix are while a session works: sums of squares by column, for each expert by itself.
 * Quantizers weigh the errors of a matrix's columns by them. All these functions belong to the stepping thread, outside of
 * callbacks. */

typedef struct aerie_imatrix aerie_imatrix;

typedef struct aerie_imatrix_params {
    size_t size;
    bool head;   /* collect for the session's drafter head instead of its model */
    bool output; /* include the output matrix; for a head it is always included */
} aerie_imatrix_params;

AERIE_INITIALISER(imatrix_params)

typedef struct aerie_imatrix_info {
    size_t n_matrices; /* matrices, with each expert counted separately */
    size_t n_unseen;   /* matrices that no row has reached yet */
    uint64_t n_rows;   /* rows that the most used matrix has met */
} aerie_imatrix_info;

/* Collects from now on until it is freed, which is before the session is. The output's bytes stay the same. *imatrix is the
 * caller's. Errors: ARGUMENT (a head is asked for and there is none; the session has a collection already), UNSUPPORTED (by the
 * backend), MEMORY. */
AERIE_API aerie_status aerie_imatrix_create(aerie_imatrix **imatrix, aerie_session *session, const aerie_imatrix_params *params,
                                            aerie_error *error);
/* Ends the collection. NULL is allowed. */
AERIE_API void aerie_imatrix_free(aerie_imatrix *imatrix);
/* Reports the counts so far. size: sizeof *info. */
AERIE_API void aerie_imatrix_info_get(const aerie_imatrix *imatrix, aerie_imatrix_info *info, size_t size);
/* Writes a GGUF file as llama.cpp reads and writes it; an existing file is replaced only when the new one is complete. dataset:
 * name of the text, for readers; n_chunks of chunk_size tokens have been run. Errors: IO, MEMORY, ARGUMENT. */
AERIE_API aerie_status aerie_imatrix_save(const aerie_imatrix *imatrix, const char *path, const char *dataset,
                                          uint32_t n_chunks, uint32_t chunk_size, aerie_error *error);

#ifdef __cplusplus
}
#endif
#endif
