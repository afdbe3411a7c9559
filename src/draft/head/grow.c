/* grow.c - implements grow.h. */
#include <stdlib.h>

#include "draft/head/grow.h"

#define TREE_CHILDREN 4      /* most children of a node of a TREE */
#define TREE_P_FLOOR 0.01f   /* paths less likely than this are not worth a row */
#define DYNAMIC_TOP_K 10
#define RANK_MAX AE_PROPOSE_MAX

/* EAGLE-1's tree (SafeAILab/EAGLE v1): each node's parent, and its rank among the parent's children. */
static const int8_t static_tree[25][2] = {
    {-1, 0}, {-1, 1}, {-1, 2}, {-1, 3},                                     /* 0 1 2 3 */
    {0, 0},  {0, 1},  {0, 2},  {1, 0},  {1, 1}, {2, 0}, {2, 1}, {3, 0},     /* 00 01 02 10 11 20 21 30 */
    {4, 0},  {4, 1},  {4, 2},  {5, 0},  {5, 1}, {6, 0}, {6, 1}, {7, 0},     /* 000 001 002 010 011 020 021 100 */
    {12, 0}, {12, 1}, {12, 2},                                              /* 0000 0001 0002 */
    {20, 0}, {20, 1},                                                       /* 00000 00001 */
};

/* Returns how many children of a node the shape may use. */
static uint32_t n_children(const ae_draft_request *r)
{
    uint32_t k = r->top_k ? r->top_k : r->shape == AE_DRAFT_DYNAMIC ? DYNAMIC_TOP_K : TREE_CHILDREN;
    if (r->shape == AE_DRAFT_CHAIN) k = 1;
    return k < RANK_MAX ? k : RANK_MAX;
}

static float least_reach(const ae_draft_request *r)
{
    if (r->shape == AE_DRAFT_CHAIN || r->shape == AE_DRAFT_TREE) {
        const float floor = r->shape == AE_DRAFT_TREE ? TREE_P_FLOOR : 0;
        return r->min_p > floor ? r->min_p : floor;
    }
    return 0;
}

static void add_node(ae_growth *s, int32_t parent, int32_t token, float p)
{
    if (s->n_pool == AE_GROW_POOL) return;
    if (!(p > 1e-6f)) p = 1e-6f;
    const ae_grown *up = parent < 0 ? NULL : &s->pool[parent];
    s->pool[s->n_pool++] = (ae_grown){token, parent, up ? up->depth + 1 : 1, -1, p, (up ? up->reach : 1.0f) * p};
}

void ae_growth_begin(ae_growth *s, const ae_draft_request *request)
{
    s->request = request;
    s->n_pool = s->level_begin = s->n_frontier = 0;
}

ae_propose_row ae_growth_ask(const ae_growth *s, int32_t node, uint32_t out)
{
    const ae_draft_request *r = s->request;
    const uint32_t depth = node < 0 ? 0 : (uint32_t)s->pool[node].depth;
    const uint32_t k = r->shape == AE_DRAFT_STATIC ? 4 : n_children(r);
    return (ae_propose_row){ae_sampler_plain(r->sampler), out, k, r->n_tokens + depth};
}

void ae_growth_add(ae_growth *s, int32_t node, const ae_proposal *proposal)
{
    const ae_draft_request *r = s->request;
    const uint32_t n = proposal->n;
    const int32_t *ids = proposal->id;
    const float *p = proposal->p;
    const float up = node < 0 ? 1.0f : s->pool[node].reach, floor = least_reach(r);
    for (uint32_t i = 0; i < n; i++) {
        if (r->shape == AE_DRAFT_STATIC) { /* the pool's index is the index in the table, since children come in its order */
            bool wanted = false;
            for (uint32_t j = 0; j < sizeof static_tree / sizeof static_tree[0]; j++)
                wanted = wanted || (static_tree[j][0] == node && static_tree[j][1] == (int8_t)i);
            if (wanted) add_node(s, node, ids[i], p[i]);
        } else if (up * p[i] >= floor) {
            add_node(s, node, ids[i], p[i]);
        }
    }
}

static bool has_static_children(int32_t node)
{
    for (uint32_t j = 0; j < sizeof static_tree / sizeof static_tree[0]; j++)
        if (static_tree[j][0] == node) return true;
    return false;
}

void ae_growth_choose(ae_growth *s, uint32_t n_most)
{
    const ae_draft_request *r = s->request;
    const uint32_t begin = s->level_begin, end = s->n_pool;
    const bool is_static = r->shape == AE_DRAFT_STATIC;
    uint32_t limit = r->shape == AE_DRAFT_DYNAMIC && n_children(r) < AE_DHEAD_LEVEL_MAX ? n_children(r) : AE_DHEAD_LEVEL_MAX;
    if (limit > n_most) limit = n_most;
    s->n_frontier = 0;
    s->level_begin = end;
    if (begin == end || (uint32_t)s->pool[begin].depth >= r->max_depth ||
        s->n_pool >= AE_GROW_POOL - RANK_MAX * AE_DHEAD_LEVEL_MAX)
        return;
    for (uint32_t i = begin; i < end; i++) {
        if (is_static && !has_static_children((int32_t)i)) continue;
        uint32_t better = 0;
        for (uint32_t j = begin; j < end && !is_static; j++)
            better += s->pool[j].reach > s->pool[i].reach || (s->pool[j].reach == s->pool[i].reach && j < i);
        if (better < limit && s->n_frontier < limit) s->frontier[s->n_frontier++] = i;
    }
}

static int by_reach(const void *a, const void *b)
{
    const ae_grown *const *x = a, *const *y = b;
    if ((*x)->reach != (*y)->reach) return (*x)->reach > (*y)->reach ? -1 : 1;
    return *x < *y ? -1 : 1;
}

/* Selects the best max_nodes of the pool. No child has a higher path probability than its parent, and among equals the older
 * node wins, so the parents of selected nodes are also selected. */
void ae_growth_give(const ae_growth *s)
{
    const ae_draft_request *r = s->request;
    const uint32_t limit = r->max_nodes < AERIE_MAX_DRAFT ? r->max_nodes : AERIE_MAX_DRAFT;
    const ae_grown *order[AE_GROW_POOL];
    int32_t place[AE_GROW_POOL]; /* index in the tree; -1: not selected, -2: to be added */
    for (uint32_t i = 0; i < s->n_pool; i++) {
        order[i] = &s->pool[i];
        place[i] = -1;
    }
    if (s->n_pool > limit) qsort(order, s->n_pool, sizeof *order, by_reach);
    for (uint32_t i = 0; i < s->n_pool && i < limit; i++) place[order[i] - s->pool] = -2;
    for (uint32_t i = 0; i < s->n_pool; i++) {
        const ae_grown *g = &s->pool[i];
        if (place[i] == -2) place[i] = ae_tree_add(r->tree, g->parent < 0 ? -1 : place[g->parent], g->token, g->p);
    }
}
