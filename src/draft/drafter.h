/* drafter.h - whoever proposes tokens: a struct of functions and one file each.
 *
 * A drafter sees tokens and hidden rows of the target and returns a tree. It cannot write target state, so
 * whatever it proposes, the output is the same; only the speed differs. Its beliefs (tree.p) steer
 * how much of the tree is verified, after calibration against what really was accepted.
 *
 * Verbs, per slot (a sequence being generated): begin, then observe after every pass and propose before some, then begin
 * again for the next sequence. offer and propose get the whole sequence so far, and all slots that want a draft at once, so
 * that a drafter may run them in one batch. A drafter keeps what it needs from one call to the next and catches up on the
 * tokens that were added since; one that needs the target's hidden rows gets those of every position in order through observe.
 */
#ifndef AE_DRAFT_DRAFTER_H
#define AE_DRAFT_DRAFTER_H

#include "backend/backend.h"
#include "base/err.h"
#include "engine/tree.h"
#include "sample/sampler.h"

typedef struct ae_drafter ae_drafter;

typedef enum ae_draft_shape {
    AE_DRAFT_CHAIN,
    AE_DRAFT_TREE,    /* branches where they are likely enough; the controller cuts it to what pays */
    AE_DRAFT_STATIC,  /* EAGLE-1's tree of 25 nodes, whatever they are worth (drafter heads; others: TREE) */
    AE_DRAFT_DYNAMIC, /* EAGLE-2: the top_k best of each level go on, then the max_nodes best of all (heads; others: TREE) */
} ae_draft_shape;

typedef struct ae_draft_request {
    uint32_t slot;
    const int32_t *tokens; /* [n_tokens] prompt and everything emitted, newest last */
    size_t n_tokens;
    uint32_t max_depth;    /* longest path wanted, >= 1 */
    uint32_t max_nodes;    /* <= AERIE_MAX_DRAFT */
    ae_draft_shape shape;
    uint32_t top_k;        /* children looked at per node, and paths that go on per level; 0 = as you like */
    float min_p;           /* do not continue below this path probability; 0 = as you like */
    ae_sampler *sampler;   /* of this sequence: for proposals under the same noise */
    ae_tree *tree;         /* (out) given empty; a drafter with nothing to say leaves it so */
} ae_draft_request;

typedef struct ae_draft_begin {
    uint32_t slot;
    uint32_t donor;        /* the slot, running or not, whose tokens have most in common with the new ones; may be `slot` */
    const int32_t *tokens; /* [n_tokens] of the donor */
    size_t n_tokens;
    uint32_t n_same;       /* first tokens that both have */
    uint32_t n_shared;     /* positions that the target's KV cache can reuse: n_same of the donor's, or more from elsewhere */
    bool idle;             /* as below: nothing has to be run again */
    bool stranger;         /* the slot's last sequence was of another scope (kv.h): what was learned from it must not show in
                            * the proposals, nor in the time that they take */
} ae_draft_begin;

/* Positions that have become true: rows of the last pass, in order of position. */
typedef struct ae_draft_seen {
    uint32_t slot;
    const int32_t *rows;   /* [n] of the target's engine */
    uint32_t n;
    const int32_t *tokens; /* [n_tokens] the whole sequence, as far as known */
    size_t n_tokens;
    bool idle;             /* no draft will be asked for in the next rounds: nothing need be kept, and the next rows are as
                            * good a beginning as any */
} ae_draft_seen;

typedef struct ae_drafter_ops {
    const char *name; /* as in --spec-type */
    bool free;        /* it runs no network: all that it proposes is an offer */
    /* A new sequence will be generated in slot. Returns how many of the n_shared positions may be reused: a drafter that
     * needs their hidden rows makes the target run the rest again. */
    uint32_t (*begin)(ae_drafter *drafter, const ae_draft_begin *begin);
    /* NULL if hidden rows are of no interest. */
    void (*observe)(ae_drafter *drafter, const ae_draft_seen *seen);
    /* For one that is not free, but has something to say without its network: fills the trees of n requests, of different
     * slots. propose may come after it, for some of them, and adds to what is there. NULL: nothing. */
    aerie_status (*offer)(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error);
    /* Fills the trees of n requests, of different slots; one that is not free says in drafter->cost what it took. */
    aerie_status (*propose)(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error);
    void (*destroy)(ae_drafter *drafter);
} ae_drafter_ops;

/* Children looked at for each node of a tree, and paths less likely than this are not worth a row. */
#define AE_DRAFT_BRANCHES 3
#define AE_DRAFT_P_FLOOR 0.02f
/* Tokens to ask for after each node of the request's draft. */
static inline uint32_t ae_draft_width(const ae_draft_request *r)
{
    return r->shape == AE_DRAFT_CHAIN ? 1 : AE_DRAFT_BRANCHES;
}
/* Adds the children of a node (-1: the root), best first, while they are likely enough.
 * reach [AERIE_MAX_DRAFT]: probability of the path to each node. Of an empty tree all of the root's; of others a level at a
 * time.
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

/* What the last propose took of a network, as measured: running text that it had missed, once; then catching up on what the
 * last pass added and the first level, then all others. */
typedef struct ae_draft_cost {
    uint32_t n_levels; /* that ran and are in the two times below; 0: none */
    double start_seconds, first_seconds, other_seconds;
} ae_draft_cost;

/* A network that is further behind than accepted drafts explain catches up first, so that the time of its drafts is known. */
#define AE_DRAFT_LATE 32

struct ae_drafter {
    const ae_drafter_ops *ops;
    ae_draft_cost cost;
    uint32_t n_choices; /* of several networks how many there are, 0: it has one at most; */
    uint32_t i_choice, awake; /* set by the loop: which one drafts next, and a bit for each that may do so before long */
};

/* Suffix automaton over prompt and output: continues the longest context seen before. Needs no weights. */
aerie_status ae_draft_ngram_create(ae_drafter **out, uint32_t n_slots, aerie_error *error);

/* Another drafter and the n-gram one, in one tree; takes the other over, also on failure. Shapes STATIC and DYNAMIC are the
 * other's alone. */
aerie_status ae_draft_joined_create(ae_drafter **out, ae_drafter *other, uint32_t n_slots, aerie_error *error);

/* Several drafters with networks of their own, one of which drafts at a time; takes them over, also on failure. */
aerie_status ae_draft_choice_create(ae_drafter **out, ae_drafter *const *of, uint32_t n, aerie_error *error);

/* A second model. The drafter takes the engine over (n_seqs >= n_slots), and the map from the target's vocabulary to the
 * model's, `vocab`; both NULL when they are the same. n_target_ctx: positions of a sequence of the target. */
struct ae_engine;
struct ae_vocab;
struct ae_vocab_map;
aerie_status ae_draft_model_create(ae_drafter **out, struct ae_engine *engine, const struct ae_vocab *vocab,
                                   struct ae_vocab_map *map, uint32_t n_slots, uint32_t n_target_ctx, aerie_error *error);

/* The target itself, with fewer experts or without some of its blocks (engine/pass_mode.h), on the target's own engine (lent)
 * and KV
 * cache: what it drafts from hangs on the true rows, tentative, and is dropped before the target verifies. lacks: copied. */
aerie_status ae_draft_self_create(ae_drafter **out, struct ae_engine *target, const uint8_t *lacks, uint32_t n_experts,
                                  uint32_t n_slots, aerie_error *error);
/* From the next draft on. */
void ae_draft_self_set_experts(ae_drafter *drafter, uint32_t n_experts);

/* A model that has a drafter of its own: `inner` runs it, with as many slots, and the same tokens as the target. It is lent,
 * and used by nobody else. n_enough: a draft of so many tokens is not prolonged by another pass. */
struct ae_spec;
aerie_status ae_draft_hier_create(ae_drafter **out, struct ae_spec *inner, uint32_t n_slots, uint32_t n_enough,
                                  aerie_error *error);

/* A head that drafts from the target's hidden rows: EAGLE-1/2, 3, 3.1, Medusa. The drafter takes the head's engine over;
 * target exports just the rows that the head taps. */
struct ae_dhead_engine;
aerie_status ae_draft_eagle_create(ae_drafter **out, struct ae_dhead_engine *head, struct ae_engine *target, uint32_t n_slots,
                                  aerie_error *error);

/* The same for Medusa's heads; ae_draft_eagle_create calls it. */
aerie_status ae_draft_medusa_create(ae_drafter **out, struct ae_dhead_engine *head, struct ae_engine *target, uint32_t n_slots,
                                    aerie_error *error);

/* For tests and benchmarks. oracle: knows how each slot's sequence goes on (given by ae_draft_oracle_tell: tokens
 * [n_tokens] from position `first` on; lent until the next tell) and errs with probability `error_rate` at each node; random:
 * any tokens. */
aerie_status ae_draft_oracle_create(ae_drafter **out, uint32_t n_slots, uint32_t n_vocab, float error_rate, uint64_t seed,
                                    aerie_error *error);
void ae_draft_oracle_tell(ae_drafter *drafter, uint32_t slot, size_t first, const int32_t *tokens, size_t n_tokens);
aerie_status ae_draft_random_create(ae_drafter **out, uint32_t n_vocab, uint64_t seed, aerie_error *error);

#endif
