/* speculate.h - the loop: propose, verify, accept, commit, for all active sequences in one pass.
 *
 * Owns: the slots (each one sequence being generated, with its tokens and sampler), the drafter, the
 * controller, all statistics. Borrows the engine. Knows no drafter by name.
 *
 * A slot's tokens are the prompt and everything emitted. Those after the KV cache's live positions are
 * pending. A pass takes from each slot a chunk of its pending tokens; a slot with one pending token decodes,
 * and may hang a drafted tree on it. The walk down the tree draws the target's token at each visited
 * node: if a child carries it, step into the child; else emit and stop. Every emitted token was drawn
 * from the target's logits of exactly its own prefix, so the output does not depend on the tree (law 1). With a grammar
 * the draw is among what it allows after that prefix (speculate/constrained.h); its state moves with emitted tokens only.
 */
#ifndef AE_SPECULATE_SPECULATE_H
#define AE_SPECULATE_SPECULATE_H

#include "engine/engine.h"
#include "speculate/control/controller.h"
#include "draft/drafter.h"
#include "text/grammar/grammar.h"
#include "text/token/vocab.h"

typedef struct ae_spec ae_spec;

typedef struct ae_spec_options {
    const ae_vocab *vocab; /* of the model; outlives the loop */
    uint32_t n_chunk; /* prompt tokens of a slot per pass */
    double max_pause; /* seconds of a pass with prompts in it while others decode; 0: any */
    uint32_t n_max, n_min;
    float p_min;
    ae_draft_shape shape;
    uint32_t n_nodes; /* of a tree, at most; 0 = AERIE_MAX_DRAFT */
    uint32_t top_k;   /* of a tree; 0 = as the drafter likes */
    bool fixed; /* no controller: verify all that is drafted */
    double least_seconds, least_row_seconds; /* for measurements: a pass over n rows takes at least the first and n - 1 of the
                                              * second: it waits; 0: as long as it takes */
} ae_spec_options;

/* For every emitted token; depth 0 = decoded, k = k-th token of an accepted path; row: of the engine's pass, from whose logits
 * it was drawn. AERIE_STOP_NONE goes on, anything else ends the sequence for that reason. */
typedef aerie_stop ae_spec_emit(void *user, uint32_t slot, int32_t token, uint32_t depth, uint32_t row);

/* For every row that a sequence keeps, in the order of positions and after the tokens of its pass were emitted; row: of the
 * engine's pass, its logits exported. */
typedef void ae_spec_row(void *user, uint32_t slot, uint32_t position, uint32_t row);

typedef struct ae_spec_request {
    const int32_t *tokens; /* [n_tokens] >= 1, copied */
    size_t n_tokens;
    size_t n_answered;     /* the last so many of them are an answer that goes on; at least one token comes before it */
    const void *kv;        /* what ae_spec_read_cached gave for tokens[0..n_kv); n_kv 0: none */
    uint32_t n_kv, first_kv;
    const double *mu;      /* mirostat's after the answer; NULL: as at its beginning */
    uint32_t n_predict;    /* of answer, n_answered included; 0 = until the context is full */
    bool ignore_eog;
    ae_sampling sampling;
    const ae_grammar *grammar; /* of the text; NULL: any */
    const ae_adapter_set *adapters; /* copied; NULL: none */
    ae_spec_row *row;          /* NULL: not told. Else all of the prompt is run, whatever the KV cache holds of it */
    void *row_user;
} ae_spec_request;

/* drafter (taken over, also on failure) may be NULL: plain decoding. */
aerie_status ae_spec_create(ae_spec **out, ae_engine *engine, ae_drafter *drafter, const ae_spec_options *options,
                            aerie_error *error);
void ae_spec_free(ae_spec *spec);

/* Whether the request could be served by a free slot. ARGUMENT: the prompt, a token or a sampling parameter is out of range,
 * or the answer that shall go on is complete or not one of the grammar's. LIMIT: the prompt does not fit the context (both
 * numbers), or the grammar begins in too many ways. */
aerie_status ae_spec_check(const ae_spec *spec, const ae_spec_request *request, aerie_error *error);
/* Starts a sequence in a free slot, reusing what the KV cache holds of its prompt. After a failure nothing has changed. LIMIT
 * also when no slot is free. */
aerie_status ae_spec_start(ae_spec *spec, const ae_spec_request *request, uint32_t *slot, aerie_error *error);
/* For drafters that are a spec themselves: the slot, which is free, goes on behind these tokens [n_tokens] >= 1 for n_predict
 * more, end-of-generation tokens included, and keeps of its newest sequence what it has in common with them. The sampler is
 * lent until the sequence has ended, and draws from rows alone. Allocates nothing. LIMIT: there is no room for any token. */
aerie_status ae_spec_follow(ae_spec *spec, uint32_t slot, const int32_t *tokens, size_t n_tokens, uint32_t n_predict,
                            ae_sampler *sampler, aerie_error *error);
/* What the slot, which is free, knows of its newest sequence goes: the next one to follow is a stranger's (drafter.h). */
void ae_spec_forget(ae_spec *spec, uint32_t slot);
/* One pass for all active slots. emit is called during it. */
aerie_status ae_spec_step(ae_spec *spec, ae_spec_emit *emit, void *user, aerie_error *error);
uint32_t ae_spec_n_active(const ae_spec *spec);
uint32_t ae_spec_n_free(const ae_spec *spec);
bool ae_spec_is_active(const ae_spec *spec, uint32_t slot);
/* Ends a sequence between passes; what the KV cache holds of it stays. */
void ae_spec_stop(ae_spec *spec, uint32_t slot, aerie_stop stop);
/* Prompt tokens of a sequence that have been computed. */
uint32_t ae_spec_n_done(const ae_spec *spec, uint32_t slot);
/* Ends every sequence and forgets what the KV cache holds: after a failure, or before measuring. */
void ae_spec_reset(ae_spec *spec);

/* What a sequence has come to, between passes; lent until the next one. */
typedef struct ae_spec_sequence {
    const int32_t *tokens;   /* [n_tokens] prompt and answer */
    size_t n_tokens, n_answered;
    double mu;               /* mirostat's */
    const ae_adapter_set *adapters;
} ae_spec_sequence;
ae_spec_sequence ae_spec_sequence_get(const ae_spec *spec, uint32_t slot);
/* How many of tokens[0..n) the KV cache holds, from the first on, as computed with these adapters (NULL: none): in the prefix
 * tree or in a sequence that runs. *first: from where on what layers with windows keep is there too (kv.h). */
uint32_t ae_spec_n_cached(const ae_spec *spec, const ae_adapter_set *adapters, const int32_t *tokens, size_t n,
                          uint32_t *first);
/* Canonical bytes of tokens[0..n), n and first as ae_spec_n_cached says: out [ae_spec_saved_bytes]. */
void ae_spec_read_cached(const ae_spec *spec, const ae_adapter_set *adapters, const int32_t *tokens, uint32_t n, uint32_t first,
                         void *out);
/* Such bytes go to the prefix tree, as far as it has room. */
void ae_spec_write_cached(ae_spec *spec, const ae_adapter_set *adapters, const int32_t *tokens, uint32_t n, uint32_t first,
                          const void *bytes);
size_t ae_spec_saved_bytes(const ae_spec *spec, uint32_t n, uint32_t first);

/* The figures of the slot's newest sequence; stop is AERIE_STOP_NONE while it runs. */
const aerie_stats *ae_spec_stats(const ae_spec *spec, uint32_t slot);
ae_drafter *ae_spec_drafter(const ae_spec *spec);
ae_engine *ae_spec_engine(const ae_spec *spec);
const ae_vocab *ae_spec_vocab(const ae_spec *spec);

#endif
