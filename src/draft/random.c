/* random.c - a drafter of random tokens, for tests: whatever is drafted, the output must not change.
 *
 * Proposes chains of random length and trees of random shape over random tokens, also empty ones. Owns nothing.
 * Invariant: a proposal is a function of seed, slot, position and the request's limits, and a valid tree.
 */
#include "draft/drafter.h"

#include "base/mem.h"
#include "base/math/rng.h"

typedef struct random_drafter {
    ae_drafter base;
    uint32_t n_vocab;
    uint64_t seed;
} random_drafter;

static void draft(const random_drafter *d, const ae_draft_request *request, ae_tree *tree)
{
    const uint32_t max_nodes = request->max_nodes < AERIE_MAX_DRAFT ? request->max_nodes : AERIE_MAX_DRAFT;
    const uint32_t longest = request->shape || request->max_depth > max_nodes ? max_nodes : request->max_depth;
    uint32_t r[4];
    if (!request->max_depth) return;
    ae_philox(d->seed, request->n_tokens, request->slot, r);
    const uint32_t n = r[0] % (longest + 1);
    for (uint32_t i = 0; i < n; i++) {
        ae_philox(d->seed, request->n_tokens, (uint64_t)(i + 1) << 32 | request->slot, r);
        const int32_t newest = (int32_t)tree->n - 1;
        int32_t parent = newest;
        if (request->shape) {
            /* half of the nodes are children of the newest one, which makes the tree deep; the others have any parent */
            if (r[1] & 1) parent = (int32_t)(r[2] % (tree->n + 1)) - 1;
            if (parent >= 0 && (uint32_t)tree->depth[parent] >= request->max_depth) parent = tree->parent[parent];
        }
        ae_tree_add(tree, parent, (int32_t)(r[0] % d->n_vocab), 0.5f); /* adds no child that exists already */
    }
}

static aerie_status random_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    (void)error;
    for (uint32_t i = 0; i < n; i++) draft((const random_drafter *)drafter, &requests[i], requests[i].tree);
    return AERIE_OK;
}

static uint32_t random_begin(ae_drafter *drafter, const ae_draft_begin *begin)
{
    (void)drafter;
    return begin->n_shared;
}

static void random_destroy(ae_drafter *drafter)
{
    ae_free(drafter);
}

aerie_status ae_draft_random_create(ae_drafter **out, uint32_t n_vocab, uint64_t seed, aerie_error *error)
{
    static const ae_drafter_ops ops = {
        .name = "random", .free = true, .begin = random_begin, .propose = random_propose, .destroy = random_destroy};
    *out = NULL;
    if (!n_vocab || n_vocab > INT32_MAX)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a vocabulary of %u tokens is not possible", n_vocab);
    random_drafter *d = ae_alloc(1, sizeof *d);
    if (!d) return ae_fail_memory(error, "the random drafter", sizeof *d);
    *d = (random_drafter){.base.ops = &ops, .n_vocab = n_vocab, .seed = seed};
    *out = &d->base;
    return AERIE_OK;
}
