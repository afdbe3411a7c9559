/* joined.c - a drafter with weights and the n-gram one, in one tree.
 *
 * Heads and draft models predict new text, but cannot repeat a passage word for word; the n-gram drafter can do only that, and
 * costs almost nothing. Both draft. A token that both propose at the same place becomes one node with a higher probability than
 * either has; tokens that only one proposes become siblings. The controller cuts the joined tree by path probability as usual.
 * A chain comes from the drafter with the higher expected number of accepted tokens.
 *
 * The n-gram drafter drafts first. Given its trees, the controller decides for which sequences the other drafter runs, so that
 * its time is saved where earlier text clearly repeats.
 *
 * Owns both drafters and room for the other's trees. Invariant: the proposal for a slot depends only on its sequence, on
 * whether the other drafter was asked and on the n-gram drafter's learned rates.
 */
#include <string.h>

#include "base/mem.h"
#include "draft/drafter.h"

#define MOST_P 0.999f

typedef struct joined {
    ae_drafter base;
    ae_drafter *ngram, *other;
    ae_tree *trees;             /* [n_slots] the other drafter's trees, by request */
    ae_draft_request *requests; /* [n_slots] */
    uint32_t n_slots;
} joined;

/* Returns the expected number of accepted tokens of the most probable chain of a tree. */
static float promise(const ae_tree *tree)
{
    float reach = 1.0f, sum = 0.0f;
    for (int32_t node = -1; (node = ae_tree_best_child(tree, node)) >= 0;) {
        reach *= tree->p[node];
        sum += reach;
    }
    return sum;
}

/* ---- Two trees in one ------------------------------------------------------------------------------ */

typedef struct union_tree {
    uint32_t n;
    int32_t token[2 * AERIE_MAX_DRAFT], parent[2 * AERIE_MAX_DRAFT]; /* parent: < own index, -1 = the root */
    float p[2 * AERIE_MAX_DRAFT], reach[2 * AERIE_MAX_DRAFT];
    uint8_t from[2 * AERIE_MAX_DRAFT];
} union_tree;

static int32_t child_of(const union_tree *u, int32_t parent, int32_t token)
{
    for (uint32_t i = (uint32_t)(parent + 1); i < u->n; i++)
        if (u->parent[i] == parent && u->token[i] == token) return (int32_t)i;
    return -1;
}

static void add(union_tree *u, const ae_tree *tree, uint8_t from)
{
    int32_t place[AERIE_MAX_DRAFT];
    for (uint32_t i = 0; i < tree->n; i++) {
        const int32_t parent = tree->parent[i] < 0 ? -1 : place[tree->parent[i]];
        const int32_t there = child_of(u, parent, tree->token[i]);
        if (there >= 0) {
            const float both = 1.0f - (1.0f - u->p[there]) * (1.0f - tree->p[i]);
            u->p[there] = both < MOST_P ? both : MOST_P;
            u->from[there] |= from;
            place[i] = there;
            continue;
        }
        u->token[u->n] = tree->token[i];
        u->parent[u->n] = parent;
        u->p[u->n] = tree->p[i];
        u->from[u->n] = from;
        place[i] = (int32_t)u->n++;
    }
}

/* Keeps the most probable paths of both trees, max_nodes nodes at most. A child is never more probable than its parent, and the
 * earlier of equals is taken, so the parents of kept nodes are kept. */
static void join(ae_tree *ngrams, const ae_tree *draft, uint32_t max_nodes)
{
    union_tree u;
    bool keep[2 * AERIE_MAX_DRAFT] = {false};
    int32_t place[2 * AERIE_MAX_DRAFT];
    u.n = 0;
    add(&u, draft, AE_FROM_NETWORK);
    add(&u, ngrams, AE_FROM_NGRAM);
    for (uint32_t i = 0; i < u.n; i++) u.reach[i] = (u.parent[i] < 0 ? 1.0f : u.reach[u.parent[i]]) * u.p[i];
    if (max_nodes > AERIE_MAX_DRAFT) max_nodes = AERIE_MAX_DRAFT;
    for (uint32_t n = 0; n < u.n && n < max_nodes; n++) {
        uint32_t best = u.n;
        for (uint32_t i = 0; i < u.n; i++)
            if (!keep[i] && (best == u.n || u.reach[i] > u.reach[best])) best = i;
        keep[best] = true;
    }
    ngrams->n = 0;
    for (uint32_t i = 0; i < u.n; i++) {
        if (!keep[i]) continue;
        place[i] = ae_tree_add(ngrams, u.parent[i] < 0 ? -1 : place[u.parent[i]], u.token[i], u.p[i]);
        ngrams->from[place[i]] = u.from[i];
    }
}

/* ---- The drafter ----------------------------------------------------------------------------------- */

static uint32_t joined_begin(ae_drafter *drafter, const ae_draft_begin *begin)
{
    joined *d = (joined *)drafter;
    d->ngram->ops->begin(d->ngram, begin);
    d->other->active = drafter->active;
    return d->other->ops->begin(d->other, begin);
}

static void joined_observe(ae_drafter *drafter, const ae_draft_seen *seen)
{
    joined *d = (joined *)drafter;
    d->other->active = drafter->active;
    if (d->other->ops->observe) d->other->ops->observe(d->other, seen);
}

static void joined_end(ae_drafter *drafter, const ae_draft_end *end)
{
    joined *d = (joined *)drafter;
    d->ngram->ops->end(d->ngram, end);
    if (d->other->ops->end) d->other->ops->end(d->other, end);
}

static bool is_united(ae_draft_shape shape)
{
    return shape == AE_DRAFT_CHAIN || shape == AE_DRAFT_TREE;
}

static aerie_status joined_ngrams(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    joined *d = (joined *)drafter;
    if (!n || !is_united(requests[0].shape)) return AERIE_OK; /* all requests of a session have one shape */
    return d->ngram->ops->propose(d->ngram, requests, n, error);
}

static aerie_status joined_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    joined *d = (joined *)drafter;
    if (n > d->n_slots)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%u drafts are asked of a drafter for %u slots", n, d->n_slots);
    for (uint32_t i = 0; i < n; i++) {
        d->requests[i] = requests[i];
        d->requests[i].tree = &d->trees[i];
        d->trees[i].n = 0;
    }
    d->other->i_choice = drafter->i_choice;
    AE_TRY(d->other->ops->propose(d->other, d->requests, n, error));
    drafter->cost = d->other->cost;
    for (uint32_t i = 0; i < n; i++) {
        ae_tree *tree = requests[i].tree;
        if (requests[i].shape == AE_DRAFT_TREE) join(tree, &d->trees[i], requests[i].max_nodes);
        else if (!tree->n || promise(&d->trees[i]) > promise(tree)) *tree = d->trees[i];
    }
    return AERIE_OK;
}

static struct ae_corpus *joined_corpus(ae_drafter *drafter)
{
    joined *d = (joined *)drafter;
    return d->ngram->ops->corpus(d->ngram);
}

static void joined_destroy(ae_drafter *drafter)
{
    joined *d = (joined *)drafter;
    if (d->ngram) d->ngram->ops->destroy(d->ngram);
    d->other->ops->destroy(d->other);
    ae_free(d->trees);
    ae_free(d->requests);
    ae_free(d);
}

aerie_status ae_draft_joined_create(ae_drafter **out, ae_drafter *other, uint32_t n_slots, uint32_t n_remembered,
                                    aerie_error *error)
{
    static const ae_drafter_ops ops = {.name = "joined", .begin = joined_begin, .observe = joined_observe,
                                       .propose_ngrams = joined_ngrams, .propose = joined_propose, .end = joined_end,
                                       .corpus = joined_corpus,
                                       .destroy = joined_destroy};
    *out = NULL;
    joined *d = ae_alloc(1, sizeof *d);
    if (!d) {
        other->ops->destroy(other);
        return ae_fail_memory(error, "a drafter beside n-grams", sizeof *d);
    }
    *d = (joined){.base = {.ops = &ops, .n_choices = other->n_choices, .skips_media = other->skips_media,
                           .active = UINT32_MAX},
                  .other = other, .n_slots = n_slots,
                  .trees = ae_alloc(n_slots, sizeof *d->trees), .requests = ae_alloc(n_slots, sizeof *d->requests)};
    aerie_status status = AERIE_OK;
    if (!d->trees || !d->requests)
        status = ae_fail_memory(error, "a drafter beside n-grams", n_slots * (sizeof *d->trees + sizeof *d->requests));
    if (status == AERIE_OK) status = ae_draft_ngram_create(&d->ngram, n_slots, n_remembered, error);
    if (status == AERIE_OK) *out = &d->base;
    else joined_destroy(&d->base);
    return status;
}
