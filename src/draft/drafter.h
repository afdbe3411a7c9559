/* drafter.h - the interface of drafters: a struct of functions, with one file per drafter.
 *
 * A drafter sees tokens and hidden rows of the target and returns a tree. It cannot write target state, so the output is the
 * same whatever it proposes; only the speed differs. The controller calibrates its probabilities (tree.p) against what was
 * accepted, and decides with them how much of the tree is verified.
 *
 * The functions are called per slot (a sequence being generated): begin; then observe after every pass and propose before some;
 * then begin again for the next sequence. propose_ngrams and propose get the whole sequence so far. They get all slots that
 * want a draft at once, so that a drafter may run them in one batch. A drafter keeps what it needs between calls, and first
 * reads the tokens that were added since. One that needs the target's hidden rows gets those of every position, in order,
 * through observe.
 */
#ifndef AE_DRAFT_DRAFTER_H
#define AE_DRAFT_DRAFTER_H

#include "backend/backend.h"
#include "base/err.h"
#include "engine/media.h"
#include "engine/tree.h"
#include "sample/sampler.h"

typedef struct ae_drafter ae_drafter;

typedef enum ae_draft_shape {
    AE_DRAFT_CHAIN,
    AE_DRAFT_TREE,    /* branches where they are likely enough; the controller cuts the tree to the nodes that pay */
    AE_DRAFT_STATIC,  /* EAGLE-1's fixed tree of 25 nodes (drafter heads; others draft a TREE) */
    AE_DRAFT_DYNAMIC, /* EAGLE-2: expands the top_k best nodes of each level, then keeps the max_nodes best (heads; others draft
                       * a TREE) */
} ae_draft_shape;

typedef struct ae_draft_request {
    uint32_t slot;
    const int32_t *tokens; /* [n_tokens] prompt and everything emitted, newest last; below 0: a row that is not a token */
    size_t n_tokens;
    const ae_media *media; /* [n_media] the contents of the rows whose token is below 0, lent */
    uint32_t n_media;
    uint32_t max_depth;    /* longest path wanted, >= 1 */
    uint32_t max_nodes;    /* <= AERIE_MAX_DRAFT */
    ae_draft_shape shape;
    uint32_t top_k;        /* children looked at per node, and paths that continue per level; 0 = the drafter's choice */
    float min_p;           /* paths less probable than this end; 0 = the drafter's choice */
    ae_sampler *sampler;   /* the sequence's sampler, for proposals under the same noise */
    ae_tree *tree;         /* (out) empty when called; stays empty if the drafter has no proposal */
} ae_draft_request;

typedef struct ae_draft_begin {
    uint32_t slot;
    uint32_t donor;        /* the slot, running or not, with most tokens in common with the new sequence; may be `slot` */
    const int32_t *tokens; /* [n_tokens] tokens of the donor */
    size_t n_tokens;
    const ae_media *media; /* [n_media] media of the donor; none once it has ended, even if it had rows that are not tokens */
    uint32_t n_media;
    uint32_t n_same;       /* length of the prefix that both have */
    uint32_t n_shared;     /* positions that the new sequence takes from the target's KV cache: n_same from the donor, or more
                            * from elsewhere */
    bool idle;             /* no position may be run again for the drafter: it starts with the next row that it observes, and
                            * returns n_shared */
    uint64_t scope;        /* of the sequence (kv.h) */
    bool new_scope;        /* the slot's last sequence had another scope (kv.h): nothing learned from it may show in the
                            * proposals, or in the time that they take */
} ae_draft_begin;

typedef struct ae_draft_end {
    uint32_t slot;
    uint64_t scope;        /* scope of the sequence (kv.h): only sequences of the same scope may profit from its text */
    const int32_t *tokens; /* [n_tokens] prompt and answer, lent */
    size_t n_tokens;
} ae_draft_end;

/* Positions that were verified: rows of the last pass, in order of position. */
typedef struct ae_draft_seen {
    uint32_t slot;
    const int32_t *rows;   /* [n] rows of the target's engine */
    uint32_t n;
    const int32_t *tokens; /* [n_tokens] the whole sequence so far */
    size_t n_tokens;
    const ae_media *media; /* [n_media] the contents of the rows whose token is below 0, lent during the call */
    uint32_t n_media;
    bool idle;             /* no draft is wanted in the next rounds: the drafter need not keep anything, and may start again at
                            * any later row */
} ae_draft_seen;

typedef struct ae_drafter_ops {
    const char *name; /* as in --spec-type */
    bool free;        /* it runs no network, so its proposals count as n-gram drafts */
    /* A new sequence begins in slot. Returns how many of the n_shared positions may be reused. A drafter that needs their
     * hidden rows returns fewer, and the target runs the remaining ones again. */
    uint32_t (*begin)(ae_drafter *drafter, const ae_draft_begin *begin);
    /* Called after every pass. NULL if the drafter does not need hidden rows. */
    void (*observe)(ae_drafter *drafter, const ae_draft_seen *seen);
    /* For a drafter that is not free, but can propose some tokens without its network: fills the trees of n requests, of
     * different slots. propose may follow for some of them and adds to their trees. NULL: the drafter has no such proposals. */
    aerie_status (*propose_ngrams)(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error);
    /* Fills the trees of n requests, of different slots. A drafter that is not free sets drafter->cost. */
    aerie_status (*propose)(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error);
    /* The sequence in a slot has ended. NULL: the drafter need not know. */
    void (*end)(ae_drafter *drafter, const ae_draft_end *end);
    /* Returns the memory of n-grams (corpus.h), lent. NULL, or it returns NULL: there is no such memory. */
    struct ae_corpus *(*corpus)(ae_drafter *drafter);
    void (*destroy)(ae_drafter *drafter);
} ae_drafter_ops;

/* Children looked at for each node of a tree. */
#define AE_DRAFT_BRANCHES 3
/* Paths of a tree that are less probable than this do not pay for a row. */
#define AE_DRAFT_P_FLOOR 0.02f
/* Returns the number of tokens to propose after each node of the request's draft. */
static inline uint32_t ae_draft_width(const ae_draft_request *r)
{
    return r->shape == AE_DRAFT_CHAIN ? 1 : AE_DRAFT_BRANCHES;
}
/* Adds the children of a node (-1: the root), best first, while they are likely enough. reach [AERIE_MAX_DRAFT]: probability of
 * the path to each node. An empty tree gets the root's children; another tree must be expanded level by level.
 */
static inline void ae_draft_expand(const ae_draft_request *r, ae_tree *tree, float *reach, int32_t node,
                                   const ae_proposal *best)
{
    const float least = r->shape == AE_DRAFT_CHAIN ? 0 : AE_DRAFT_P_FLOOR, floor = r->min_p > least ? r->min_p : least;
    const float up = node < 0 ? 1.0f : reach[node];
    for (uint32_t i = 0; i < best->n && tree->n < r->max_nodes; i++) {
        const float p = best->p[i];
        if (up * p < floor) continue;
        const int32_t child = ae_tree_add(tree, node, best->id[i], p > 0 ? p : 1e-6f);
        if (child >= 0) reach[child] = up * p;
    }
}

/* Returns the tokens of a sequence without the rows that are not tokens (ids below 0), for networks that cannot read those:
 * `tokens` itself if there are no such rows, else out [n]. *n: the number that is left. */
static inline const int32_t *ae_draft_plain(const int32_t *tokens, size_t *n, int32_t *out)
{
    size_t first = 0, k;
    while (first < *n && tokens[first] >= 0) first++;
    if (first == *n) return tokens;
    for (k = 0; k < first; k++) out[k] = tokens[k];
    for (size_t i = first; i < *n; i++)
        if (tokens[i] >= 0) out[k++] = tokens[i];
    *n = k;
    return out;
}

/* Measured cost of the last propose of a network. */
typedef struct ae_draft_cost {
    uint32_t n_levels; /* levels that ran and whose time is in first_seconds and other_seconds; 0: none. A drafter that makes
                        * all levels in one pass counts them all, and has their time in first_seconds */
    /* start: running text that the network had missed, once. first: reading the tokens of the last pass, and the first level.
     * other: all other levels. */
    double start_seconds, first_seconds, other_seconds;
} ae_draft_cost;

/* A network that is behind by more than this many tokens beyond the accepted drafts first catches up, and that time
 * is counted apart. */
#define AE_DRAFT_LATE 32

struct ae_drafter {
    const ae_drafter_ops *ops;
    ae_draft_cost cost;
    bool skips_media; /* the drafter cannot read rows that are not tokens: it is idle until the last of them */
    uint32_t n_choices; /* number of networks to choose from; 0: at most one */
    uint32_t i_choice, active; /* set by the loop: the network that drafts next; a bit for each network that may draft soon */
};

/* Suffix automaton over prompt and output: continues the longest context seen before. Needs no weights. n_remembered: tokens of
 * sequences that have ended which each scope keeps for later ones (corpus.h); 0: none. */
aerie_status ae_draft_ngram_create(ae_drafter **out, uint32_t n_slots, uint32_t n_remembered, aerie_error *error);

/* Joins another drafter and the n-gram drafter in one tree. Takes ownership of the other one, also on failure. With the shapes
 * STATIC and DYNAMIC, only the other one drafts. */
aerie_status ae_draft_joined_create(ae_drafter **out, ae_drafter *other, uint32_t n_slots, uint32_t n_remembered,
                                    aerie_error *error);

/* Several drafters, each with a network, one of which drafts at a time. Takes ownership of them, also on failure. */
aerie_status ae_draft_choice_create(ae_drafter **out, ae_drafter *const *of, uint32_t n, aerie_error *error);

/* A second model. The drafter takes ownership of the engine (n_seqs >= n_slots) and of the map from the target's vocabulary to
 * the model's (`vocab`). map and vocab are NULL when the vocabularies are the same. n_target_ctx: positions of a sequence of
 * the target. */
struct ae_engine;
struct ae_vocab;
struct ae_vocab_map;
aerie_status ae_draft_model_create(ae_drafter **out, struct ae_engine *engine, const struct ae_vocab *vocab,
                                   struct ae_vocab_map *map, uint32_t n_slots, uint32_t n_target_ctx, aerie_error *error);

/* The target itself, with fewer experts or without some of its blocks (engine/pass_mode.h). It runs on the target's own engine
 * (lent) and KV cache: its rows are tentative, come after the verified rows, and are dropped before the target verifies. lacks:
 * the skip mask, copied. */
aerie_status ae_draft_self_create(ae_drafter **out, struct ae_engine *target, const uint8_t *lacks, uint32_t n_experts,
                                  uint32_t n_slots, aerie_error *error);
/* Changes the number of experts, from the next draft on. */
void ae_draft_self_set_experts(ae_drafter *drafter, uint32_t n_experts);

/* The target itself, if it was trained to fill a block of masks (ae_hparams.masks_ahead): one pass over the newest token and
 * masks after it, which see each other. Runs on the target's engine and cache, as above. adapter: used in these passes only,
 * lent; NULL: none. */
struct ae_adapter;
aerie_status ae_draft_masked_create(ae_drafter **out, struct ae_engine *target, const struct ae_adapter *adapter,
                                    uint32_t n_slots, aerie_error *error);

/* A model that has a drafter of its own: `inner` is its loop, with as many slots and the same tokens as the target. It is lent,
 * and nobody else may use it. n_enough: drafts of this many tokens are not extended by another pass. */
struct ae_spec;
aerie_status ae_draft_hier_create(ae_drafter **out, struct ae_spec *inner, uint32_t n_slots, uint32_t n_enough,
                                  aerie_error *error);

/* A head that drafts from the target's hidden rows: EAGLE-1/2, 3, 3.1, Medusa, DFlash, DSpark and their relatives. The drafter
 * takes ownership of the head's engine. target exports exactly the feature layers that the head reads. */
struct ae_dhead_engine;
aerie_status ae_draft_eagle_create(ae_drafter **out, struct ae_dhead_engine *head, struct ae_engine *target, uint32_t n_slots,
                                  aerie_error *error);

/* The same for block drafters; ae_draft_eagle_create calls it. One pass makes all levels of a draft, so a draft's cost hardly
 * depends on its depth: all levels but the first are nearly free. */
aerie_status ae_draft_block_create(ae_drafter **out, struct ae_dhead_engine *head, struct ae_engine *target, uint32_t n_slots,
                                   aerie_error *error);

/* The same for Medusa's heads; ae_draft_eagle_create calls it. */
aerie_status ae_draft_medusa_create(ae_drafter **out, struct ae_dhead_engine *head, struct ae_engine *target, uint32_t n_slots,
                                    aerie_error *error);

/* For tests and benchmarks. The oracle knows how each slot's sequence continues, and errs with probability `error_rate` at each
 * node. ae_draft_oracle_tell gives it the tokens [n_tokens] from position `first` on, lent until the next call. The random
 * drafter proposes arbitrary tokens. */
aerie_status ae_draft_oracle_create(ae_drafter **out, uint32_t n_slots, uint32_t n_vocab, float error_rate, uint64_t seed,
                                    aerie_error *error);
void ae_draft_oracle_tell(ae_drafter *drafter, uint32_t slot, size_t first, const int32_t *tokens, size_t n_tokens);
aerie_status ae_draft_random_create(ae_drafter **out, uint32_t n_vocab, uint64_t seed, aerie_error *error);

#endif
