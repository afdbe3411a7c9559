/* oracle.c - a drafter that knows the answer, for tests and benchmarks.
 *
 * It is told how each slot's sequence continues and proposes just that, but errs at a chosen rate, so that a test sets the
 * acceptance. Chains show the effect of a given acceptance. Trees put wrong siblings before and after the right child, and
 * children under wrong ones, so that accepted paths lie scattered over the tree's rows, which tests their compaction.
 *
 * Owns nothing but its parameters. The told sequences are lent until the next tell.
 *
 * Invariants
 *   1. A proposal is a function of seed, slot, position and the request's limits. Whether the oracle errs at a position depends
 *      on seed, slot and position only, whatever path leads there.
 *   2. Error rate 0 makes every told token right; error rate 1 makes none right.
 *   3. It proposes nothing outside of what it was told.
 *   4. Probabilities are true: p = 1 - error_rate on the main path, and the siblings share the error rate.
 */
#include "draft/drafter.h"

#include "base/mem.h"
#include "base/math/rng.h"

#define LEAST_P 1e-3f
#define MAX_SIBLINGS 3 /* most wrong children next to the main one */

typedef struct told {
    const int32_t *tokens; /* [n] lent: tokens at positions first, first + 1, ... */
    size_t first, n;
} told;

typedef struct oracle {
    ae_drafter base;
    uint32_t n_slots, n_vocab;
    float error_rate;
    uint64_t seed;
    told *told; /* [n_slots] */
} oracle;

/* Independent random draws at a position, by purpose. */
enum { DICE_NODE, DICE_SIBLINGS };

static void dice(const oracle *d, uint32_t slot, size_t position, uint32_t purpose, uint32_t out[4])
{
    ae_philox(d->seed, position, (uint64_t)purpose << 32 | slot, out);
}

/* Returns the token `step` places after the right one, cyclically: never the right one for step in [1, n_vocab). */
static int32_t token_beside(const oracle *d, int32_t right, uint32_t step)
{
    return (int32_t)(((uint32_t)right + (uint64_t)step) % d->n_vocab);
}

/* Returns the main child for a position. *step: its distance from the right token (0: it is the right token). */
static int32_t main_token(const oracle *d, uint32_t slot, size_t position, uint32_t *step)
{
    uint32_t r[4];
    dice(d, slot, position, DICE_NODE, r);
    const bool wrong = ae_uniform_open(r[0]) < (double)d->error_rate;
    *step = wrong ? 1 + r[1] % (d->n_vocab - 1) : 0;
    return token_beside(d, d->told[slot].tokens[position - d->told[slot].first], *step);
}

static float clamped(float p)
{
    return p > LEAST_P ? p < 1.0f ? p : 1.0f : LEAST_P;
}

/* Adds the children for one position under `parent`: the main child, whose token main_token chooses, at a random place among
 * wrong ones. Returns the main child's index. The tree must have room for one node. */
static int32_t add_children(const oracle *d, uint32_t slot, size_t position, int32_t parent, uint32_t max_nodes,
                            bool deeper, ae_tree *tree)
{
    const int32_t right = d->told[slot].tokens[position - d->told[slot].first];
    const uint32_t room = max_nodes - tree->n;
    uint32_t main_step, r[4];
    const int32_t main_child = main_token(d, slot, position, &main_step);
    dice(d, slot, position, DICE_SIBLINGS, r);
    const uint32_t wrong_tokens = d->n_vocab - (main_step ? 2 : 1); /* tokens that are neither right nor the main child's */
    uint32_t n_wrong = 1 + r[0] % MAX_SIBLINGS;
    if (n_wrong > wrong_tokens) n_wrong = wrong_tokens;
    if (n_wrong + 1 > room) n_wrong = room - 1;
    const uint32_t place = r[1] % (n_wrong + 1), stride = r[2] % d->n_vocab;
    int32_t main_node = -1, first_wrong = -1;
    for (uint32_t i = 0, step = stride; i <= n_wrong; i++) {
        if (i == place) {
            main_node = ae_tree_add(tree, parent, main_child, clamped(1.0f - d->error_rate));
            continue;
        }
        do step = step + 1 < d->n_vocab ? step + 1 : 1; /* siblings differ: each takes the next free step */
        while (step == main_step);
        const int32_t node =
            ae_tree_add(tree, parent, token_beside(d, right, step), clamped(d->error_rate / (float)n_wrong));
        if (first_wrong < 0) first_wrong = node;
    }
    /* a wrong path continues in a quarter of the cases */
    if (deeper && first_wrong >= 0 && tree->n < max_nodes && r[3] % 4 == 0)
        ae_tree_add(tree, first_wrong, (int32_t)(r[3] / 4 % d->n_vocab), clamped(1.0f - d->error_rate));
    return main_node;
}

static aerie_status draft(const oracle *d, const ae_draft_request *request, ae_tree *tree, aerie_error *error)
{
    const uint32_t slot = request->slot;
    if (slot >= d->n_slots) return ae_fail(error, AERIE_ERROR_ARGUMENT, "slot %u: the oracle has %u", slot, d->n_slots);
    const uint32_t max_nodes = request->max_nodes < AERIE_MAX_DRAFT ? request->max_nodes : AERIE_MAX_DRAFT;
    int32_t node = -1;
    for (uint32_t depth = 1; depth <= request->max_depth && tree->n < max_nodes; depth++) {
        const size_t position = request->n_tokens + depth - 1;
        if (position < d->told[slot].first || position - d->told[slot].first >= d->told[slot].n) break;
        if (request->shape) {
            node = add_children(d, slot, position, node, max_nodes, depth < request->max_depth, tree);
        } else {
            uint32_t step;
            node = ae_tree_add(tree, node, main_token(d, slot, position, &step), clamped(1.0f - d->error_rate));
        }
    }
    return AERIE_OK;
}

static aerie_status oracle_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    for (uint32_t i = 0; i < n; i++) AE_TRY(draft((const oracle *)drafter, &requests[i], requests[i].tree, error));
    return AERIE_OK;
}

static uint32_t oracle_begin(ae_drafter *drafter, const ae_draft_begin *begin)
{
    (void)drafter; /* told sequences stay valid */
    return begin->n_shared;
}

static void oracle_destroy(ae_drafter *drafter)
{
    oracle *d = (oracle *)drafter;
    if (!d) return;
    ae_free(d->told);
    ae_free(d);
}

static const ae_drafter_ops oracle_ops = {
    .name = "oracle", .free = true, .begin = oracle_begin, .propose = oracle_propose, .destroy = oracle_destroy};

void ae_draft_oracle_tell(ae_drafter *drafter, uint32_t slot, size_t first, const int32_t *tokens, size_t n_tokens)
{
    oracle *d = (oracle *)drafter;
    if (drafter->ops != &oracle_ops || slot >= d->n_slots) return;
    d->told[slot] = (told){tokens, first, n_tokens};
}

aerie_status ae_draft_oracle_create(ae_drafter **out, uint32_t n_slots, uint32_t n_vocab, float error_rate,
                                    uint64_t seed, aerie_error *error)
{
    *out = NULL;
    if (!(error_rate >= 0.0f && error_rate <= 1.0f))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the oracle's error rate is %g; 0 to 1 are possible",
                       (double)error_rate);
    if (n_vocab < 2 || n_vocab > INT32_MAX)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a vocabulary of %u tokens: the oracle needs 2 to err", n_vocab);
    oracle *d = ae_alloc(1, sizeof *d);
    told *sequences = ae_alloc(n_slots, sizeof *sequences);
    if (!d || !sequences) {
        ae_free(d);
        ae_free(sequences);
        return ae_fail_memory(error, "the oracle drafter", sizeof *d + n_slots * sizeof *sequences);
    }
    *d = (oracle){.base.ops = &oracle_ops,
                  .n_slots = n_slots,
                  .n_vocab = n_vocab,
                  .error_rate = error_rate,
                  .seed = seed,
                  .told = sequences};
    *out = &d->base;
    return AERIE_OK;
}
