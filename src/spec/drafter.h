/* drafter.h - whoever proposes tokens: a struct of functions and one file each.
 *
 * A drafter sees tokens (and later hidden rows) and returns a tree. It cannot write target state, so
 * whatever it proposes, the output is the same; only the speed differs. Its beliefs (tree.p) steer
 * how much of the tree is verified, after calibration against what really was accepted.
 *
 * Verbs, per slot (a sequence being generated): begin, then any number of propose, then begin again for
 * the next sequence. propose gets the whole sequence so far; a drafter keeps what it needs from one
 * call to the next and catches up on the tokens that were added since.
 */
#ifndef AE_SPEC_DRAFTER_H
#define AE_SPEC_DRAFTER_H

#include "base/err.h"
#include "engine/tree.h"
#include "sample/sampler.h"

typedef struct ae_drafter ae_drafter;

typedef struct ae_draft_request {
    uint32_t slot;
    const int32_t *tokens; /* [n_tokens] prompt and everything emitted, newest last */
    size_t n_tokens;
    uint32_t max_depth;    /* longest path wanted, >= 1 */
    uint32_t max_nodes;    /* <= AE_TREE_MAX */
    bool tree;             /* branches allowed; else a chain */
    float min_p;           /* do not continue below this path probability; 0 = as you like */
    ae_sampler *sampler;   /* of this sequence: for proposals under the same noise */
} ae_draft_request;

typedef struct ae_drafter_ops {
    const char *name; /* as in --spec-type */
    bool free;        /* proposing costs next to nothing */
    /* A new sequence will be generated in slot. */
    void (*begin)(ae_drafter *drafter, uint32_t slot);
    /* Fills the (empty) tree. A drafter with nothing to say leaves it empty. */
    aerie_status (*propose)(ae_drafter *drafter, const ae_draft_request *request, ae_tree *tree, aerie_error *error);
    void (*destroy)(ae_drafter *drafter);
} ae_drafter_ops;

struct ae_drafter {
    const ae_drafter_ops *ops;
};

/* Suffix automaton over prompt and output: continues the longest context seen before. Needs no weights. */
aerie_status ae_draft_ngram_create(ae_drafter **out, uint32_t n_slots, aerie_error *error);

/* A second model with the same vocabulary. The drafter takes the engine over (n_seqs >= n_slots). */
struct ae_engine;
aerie_status ae_draft_model_create(ae_drafter **out, struct ae_engine *engine, uint32_t n_slots, aerie_error *error);

/* For tests and benchmarks. oracle: knows how each slot's sequence goes on (given by ae_draft_oracle_tell: tokens
 * [n_tokens] from position `first` on; lent until the next tell) and errs with probability `error_rate` at each node; random: any tokens. */
aerie_status ae_draft_oracle_create(ae_drafter **out, uint32_t n_slots, uint32_t n_vocab, float error_rate, uint64_t seed,
                                    aerie_error *error);
void ae_draft_oracle_tell(ae_drafter *drafter, uint32_t slot, size_t first, const int32_t *tokens, size_t n_tokens);
aerie_status ae_draft_random_create(ae_drafter **out, uint32_t n_vocab, uint64_t seed, aerie_error *error);

#endif
