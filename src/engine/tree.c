/* tree.c - adding nodes to a draft tree, and the slots of a node's ancestors (tree.h). Owns nothing. */
#include "engine/tree.h"

int32_t ae_tree_child(const ae_tree *tree, int32_t node, int32_t token)
{
    for (uint32_t i = (uint32_t)(node + 1); i < tree->n; i++)
        if (tree->parent[i] == node && tree->token[i] == token) return (int32_t)i;
    return -1;
}

int32_t ae_tree_best_child(const ae_tree *tree, int32_t node)
{
    int32_t best = -1;
    for (uint32_t i = (uint32_t)(node + 1); i < tree->n; i++)
        if (tree->parent[i] == node && (best < 0 || tree->p[i] > tree->p[best])) best = (int32_t)i;
    return best;
}

bool ae_tree_goes_on(const ae_tree *tree, int32_t node)
{
    for (uint32_t i = (uint32_t)(node + 1); i < tree->n; i++)
        if (tree->parent[i] == node) return true;
    return false;
}

int32_t ae_tree_add(ae_tree *tree, int32_t parent, int32_t token, float p)
{
    if (token < 0 || tree->n == AERIE_MAX_DRAFT || ae_tree_child(tree, parent, token) >= 0) return -1;
    const uint32_t i = tree->n++;
    tree->token[i] = token;
    tree->parent[i] = parent;
    tree->depth[i] = parent < 0 ? 1 : tree->depth[parent] + 1;
    tree->p[i] = p;
    tree->from[i] = 0;
    return (int32_t)i;
}

void ae_tree_prune(ae_tree *tree, const bool *keep)
{
    int32_t moved[AERIE_MAX_DRAFT];
    uint32_t n = 0;
    for (uint32_t i = 0; i < tree->n; i++) {
        if (!keep[i]) continue;
        moved[i] = (int32_t)n;
        tree->token[n] = tree->token[i];
        tree->parent[n] = tree->parent[i] < 0 ? -1 : moved[tree->parent[i]];
        tree->depth[n] = tree->depth[i];
        tree->p[n] = tree->p[i];
        tree->from[n] = tree->from[i];
        n++;
    }
    tree->n = n;
}

bool ae_tree_is_sound(const ae_tree *tree, int32_t n_vocab)
{
    if (tree->n > AERIE_MAX_DRAFT) return false;
    for (uint32_t i = 0; i < tree->n; i++) {
        const int32_t parent = tree->parent[i];
        if (parent < -1 || parent >= (int32_t)i || tree->token[i] < 0 || tree->token[i] >= n_vocab) return false;
        if (tree->depth[i] != (parent < 0 ? 1 : tree->depth[parent] + 1)) return false;
        if (ae_tree_child(tree, parent, tree->token[i]) != (int32_t)i) return false;
    }
    return true;
}

uint32_t ae_tree_path(const int32_t *parent, uint32_t node, uint32_t depth, uint32_t base, int32_t *path)
{
    int32_t line[AERIE_MAX_DRAFT]; /* ancestors from the root down, and the node itself at the end */
    uint32_t at = depth, in_place = 0;
    for (int32_t a = (int32_t)node; a >= 0; a = parent[a]) line[--at] = a;
    while (in_place < depth && line[in_place] == (int32_t)in_place) in_place++;
    for (uint32_t d = in_place; d < depth; d++) path[d - in_place] = (int32_t)base + line[d];
    return in_place;
}
