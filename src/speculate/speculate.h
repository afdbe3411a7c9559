/* speculate.h - the loop: propose, verify, accept, commit, for all active sequences in one pass.
 *
 * Owns: the slots (each one sequence being generated, with its tokens and sampler), the drafter, the controller, all
 * statistics. Borrows the engine. Does not know which drafter it has.
 *
 * A slot's tokens are the prompt and everything emitted. Tokens after the KV cache's live positions are pending. A pass takes a
 * chunk of pending tokens from each slot. A slot with one pending token decodes, and may add a draft tree. The walk down the
 * tree draws the target's token at each visited node: if a child carries it, the walk steps into the child; else it emits the
 * token and stops. Every emitted token was drawn from the target's logits of exactly its own prefix, so the output does not
 * depend on the tree (law 1). With a grammar, the draw is among the tokens that it allows after that prefix
 * (speculate/constrained.h); its state advances with emitted tokens only.
 *
 * States of a slot, and the function that makes each transition (waits, preempt and may_resume: plan.c, called by
 * ae_spec_plan):
 *
 *       +------------------------------ ae_spec_deliver --------------------------------+
 *       v                                                                               |
 *    [ended] --- ae_spec_start, ae_spec_follow ---> [prompt] <--- ae_spec_plan ---> [decoding]
 *       |                                            ^    ^ |                           |
 *       |                                            |    | +------ preempt ------+     | preempt
 *       |                                      waits |    |                       v     v
 *       +--- ae_spec_start ---> [waiting] -----------+    +---- may_resume ---- [preempted]
 *
 *    [any of them] --- ae_spec_stop, ae_spec_reset (between passes) ---> [ended]
 *    [any of them] --- ae_spec_park ---> (out of the slots) --- ae_spec_unpark ---> [prompt] or [decoding], in any free slot
 *
 * What holds in each (fields of spec_slot, speculate_int.h; "pending" is n_tokens minus the live positions of the KV cache):
 *   ended      !active: the slot is free. tokens, stats and scope are those of its newest sequence; the prefix tree got its
 *              pages (ae_spec_release). n_tokens is 0 at first, after ae_spec_reset and after ae_spec_forget.
 *   waiting    active, leader != NO_SLOT, n_chain 0: the leader computes the first n_awaited tokens, which both have. The slot
 *              takes them from the cache once they are there, or what there is when the leader has ended (another number than
 *              leader_number) or was preempted. ae_spec_start makes a slot wait only if that saves at least a page.
 *   prompt     active, leader == NO_SLOT, !preempted, !decoding: the pass takes n_chain < pending tokens; n_chain is 0 when
 *              the cache has no pages for more in this pass, or its party has had its share of it (share.h).
 *   decoding   as prompt, but decoding: n_chain == pending, and a token is drawn from the last row. Only a slot with n_chain 1
 *              can have a tree. ae_spec_plan decides in each pass between prompt and decoding.
 *   preempted  active, preempted, n_chain 0: an older sequence needed its pages, and the prefix tree got them. It resumes when
 *              there is room for all its tokens, or when it is the oldest sequence. A waiting slot can be preempted as well.
 *   following  a mark besides these states: follows. ae_spec_follow sets it, for drafters that run a loop of their own. The
 *              sampler is lent, leader is NO_SLOT, and the slot keeps its positions when it ends. It is never preempted, since
 *              the cache of such a loop has room for all sequences at their longest. `forgotten` (ae_spec_forget) tells the
 *              next ae_spec_follow that another sequence uses the slot now.
 */
#ifndef AE_SPECULATE_SPECULATE_H
#define AE_SPECULATE_SPECULATE_H

#include "aerie_extra.h"
#include "aerie_measure.h"
#include "engine/engine.h"
#include "engine/media.h"
#include "speculate/control/controller.h"
#include "draft/drafter.h"
#include "speculate/reasoning.h"
#include "speculate/share.h"
#include "text/grammar/grammar.h"
#include "text/token/vocab.h"

typedef struct ae_spec ae_spec;

typedef struct ae_spec_options {
    const ae_vocab *vocab; /* the model's vocabulary, which outlives the loop */
    uint32_t n_chunk; /* prompt tokens of a slot per pass */
    double max_pause; /* most seconds of a pass with prompts in it while others decode; 0: no limit */
    uint32_t n_max, n_min;
    float p_min;
    ae_draft_shape shape;
    uint32_t n_nodes; /* most nodes of a tree; 0 = AERIE_MAX_DRAFT */
    uint32_t top_k;   /* children per node of a tree; 0 = the drafter's default */
    bool fixed; /* without the controller: verify everything that is drafted */
    /* For measurements: a pass over n rows waits until least_seconds + (n - 1) * least_row_seconds have passed. 0: no wait. */
    double least_seconds, least_row_seconds;
    bool shared;         /* requests of several parties get shares of the passes (share.h) */
    ae_share_cost share; /* for tests: costs that replace the measured ones; all zeros: they are measured */
} ae_spec_options;

/* Called for every emitted token. depth: 0 for a decoded token, k for the k-th token of an accepted path. row: the row of the
 * pass from whose logits the token was drawn. AERIE_STOP_NONE continues; any other value ends the sequence for that reason. */
typedef aerie_stop ae_spec_emit(void *user, uint32_t slot, int32_t token, uint32_t depth, uint32_t row);

/* Called for every row that a sequence keeps, in order of position, after the tokens of its pass were emitted. row: the row's
 * number in the engine's pass, whose logits were exported. An error ends the step. */
typedef aerie_status ae_spec_row(void *user, uint32_t slot, uint32_t position, uint32_t row, aerie_error *error);

/* Limits on drafting for a request, within the loop's own limits. All zero: no further limits. */
typedef struct ae_spec_limits {
    bool none;
    uint32_t n_max, n_min;
    float p_min;
} ae_spec_limits;

/* The first n tokens of a sequence that the prefix tree or a running sequence holds. */
typedef struct ae_spec_cached {
    uint32_t n, first; /* first: the position from which layers with windows have values too (kv.h) */
    bool has_state;    /* the recurrent state after n is known, or the model has none */
} ae_spec_cached;

typedef struct ae_spec_request {
    const int32_t *tokens; /* [n_tokens] >= 1, copied */
    size_t n_tokens;
    const ae_media *media; /* [n_media] ascending, lent while the sequence is active; not at the prompt's last position */
    uint32_t n_media;
    size_t n_answered;     /* the last n_answered tokens are an answer to continue; at least one token comes before it */
    const void *kv;        /* the bytes that ae_spec_read_cached wrote for the first `cached.n` tokens; NULL: none */
    ae_spec_cached cached;
    const double *mu;      /* mirostat's value after the answer; NULL: its initial value */
    uint32_t n_predict;    /* tokens of the answer, n_answered included; 0 = until the context is full */
    bool ignore_eog;
    ae_sampling sampling;
    ae_spec_limits limits;
    const ae_grammar *grammar; /* the text must match it; NULL: any text */
    const aerie_reasoning *reasoning; /* copied; NULL: no limit */
    const ae_adapter_set *adapters; /* copied; NULL: none */
    uint64_t client, group;    /* the client and group that the request belongs to (share.h); group 0: a group of its own */
    const aerie_diffusion *diffusion; /* for models that denoise (denoise.h): the settings, with every field set; other models
                                       * do not read it */
    void *canvas_user;     /* for the callback of `diffusion` */
    size_t canvas_id;
    bool reads_logits;         /* the caller reads rows of logits that tokens were drawn from */
    ae_spec_row *row;          /* NULL: none. Otherwise the whole prompt runs, whatever the KV cache holds */
    void *row_user;
} ae_spec_request;

/* Takes ownership of drafter, also on failure. NULL: plain decoding. */
aerie_status ae_spec_create(ae_spec **out, ae_engine *engine, ae_drafter *drafter, const ae_spec_options *options,
                            aerie_error *error);
void ae_spec_free(ae_spec *spec);

/* Checks whether a free slot could serve the request. ARGUMENT: the prompt, a token or a sampling parameter is out of range, or
 * the answer to continue is complete or does not match the grammar. LIMIT: the prompt does not fit the context (the message has
 * both numbers), or the grammar has too many alternatives at its start. */
aerie_status ae_spec_check(const ae_spec *spec, const ae_spec_request *request, aerie_error *error);
/* Starts a sequence in a free slot, reusing what the KV cache holds of its prompt. After a failure nothing has changed. LIMIT
 * also when no slot is free. */
aerie_status ae_spec_start(ae_spec *spec, const ae_spec_request *request, uint32_t *slot, aerie_error *error);
/* For drafters that run a loop themselves: starts a sequence in this free slot after tokens [n_tokens], n_tokens >= 1, and
 * generates n_predict more, end-of-generation tokens included. Reuses the common prefix with the slot's newest sequence. The
 * sampler is lent until the sequence has ended, and draws from each row alone. Allocates nothing. LIMIT: there is no room for
 * any token. */
aerie_status ae_spec_follow(ae_spec *spec, uint32_t slot, const int32_t *tokens, size_t n_tokens, uint32_t n_predict,
                            ae_sampler *sampler, aerie_error *error);
/* Drops what this free slot knows of its newest sequence: the next ae_spec_follow is for another sequence (drafter.h). */
void ae_spec_forget(ae_spec *spec, uint32_t slot);
/* Runs one pass for all active slots. emit is called during it. */
aerie_status ae_spec_step(ae_spec *spec, ae_spec_emit *emit, void *user, aerie_error *error);
/* Takes an active sequence out of its slot between passes, unless ae_spec_follow started it. The slot is free afterwards, and
 * the prefix tree has the sequence's pages while there is room. The caller owns *parked. MEMORY: nothing has changed. */
typedef struct ae_spec_parked ae_spec_parked;
aerie_status ae_spec_park(ae_spec *spec, uint32_t slot, ae_spec_parked **parked, aerie_error *error);
/* Puts the sequence into a free slot, which must exist, and returns the slot. The sequence continues as if it had never left.
 * adapters: those with which it was started. They and its media remain lent. Takes ownership of `parked` and cannot fail. */
uint32_t ae_spec_unpark(ae_spec *spec, ae_spec_parked *parked, const ae_adapter_set *adapters);
void ae_spec_parked_free(ae_spec_parked *parked);
const aerie_stats *ae_spec_parked_stats(const ae_spec_parked *parked);
uint32_t ae_spec_n_active(const ae_spec *spec);
uint32_t ae_spec_n_free(const ae_spec *spec);
bool ae_spec_is_active(const ae_spec *spec, uint32_t slot);
/* Ends a sequence between passes. What the KV cache holds of it stays there. */
void ae_spec_stop(ae_spec *spec, uint32_t slot, aerie_stop stop);
/* Returns how many prompt tokens of a sequence have been computed. */
uint32_t ae_spec_n_done(const ae_spec *spec, uint32_t slot);
/* Ends every sequence and empties the KV cache: after a failure, or before measuring. */
void ae_spec_reset(ae_spec *spec);

/* Reports each pass to the callback from now on (aerie_measure.h). NULL: stops reporting. MEMORY: nothing has changed. */
aerie_status ae_spec_watch(ae_spec *spec, aerie_pass_callback *callback, void *user, aerie_error *error);

/* The state of a sequence between passes; lent until the next one. */
typedef struct ae_spec_sequence {
    const int32_t *tokens;   /* [n_tokens] prompt and answer */
    size_t n_tokens, n_answered;
    double mu;               /* mirostat's mu */
    const ae_adapter_set *adapters;
} ae_spec_sequence;
ae_spec_sequence ae_spec_sequence_get(const ae_spec *spec, uint32_t slot);
/* The same for a parked sequence, but without adapters. */
ae_spec_sequence ae_spec_parked_get(const ae_spec_parked *parked);
/* Finds how many of the first tokens the cache holds, computed with these adapters (NULL: none), such that a sequence could
 * continue after them. If there is no such position, as many as the KV cache has, without the state. */
ae_spec_cached ae_spec_find_cached(const ae_spec *spec, const ae_adapter_set *adapters, const int32_t *tokens, size_t n);
/* Writes the canonical bytes of positions [begin, end) that ae_spec_find_cached has found to their places in out
 * [ae_spec_saved_bytes]. Returns false if they have been lost since. */
bool ae_spec_read_cached(const ae_spec *spec, const ae_adapter_set *adapters, const int32_t *tokens, ae_spec_cached cached,
                         uint32_t begin, uint32_t end, void *out);
/* Puts positions [begin, end) of such bytes into the prefix tree (kv.h), as far as there is room. Returns false if not all
 * fit. */
bool ae_spec_write_cached(ae_spec *spec, const ae_adapter_set *adapters, const int32_t *tokens, ae_spec_cached cached,
                          uint32_t begin, uint32_t end, const void *bytes);
size_t ae_spec_saved_bytes(const ae_spec *spec, ae_spec_cached cached);

/* Statistics of the slot's newest sequence; stop is AERIE_STOP_NONE while it runs. */
const aerie_stats *ae_spec_stats(const ae_spec *spec, uint32_t slot);
/* Copies them with the times up to now. */
void ae_spec_stats_now(const ae_spec *spec, uint32_t slot, aerie_stats *stats);
ae_drafter *ae_spec_drafter(const ae_spec *spec);
ae_engine *ae_spec_engine(const ae_spec *spec);
const ae_vocab *ae_spec_vocab(const ae_spec *spec);

#endif
