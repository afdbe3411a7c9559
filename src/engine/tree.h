/* tree.h - a tree of drafted tokens that continues the newest token of a sequence.
 *
 * The parent of node i is an earlier node, or the newest token itself. Siblings carry different tokens. A chain is the tree
 * whose parents are -1, 0, 1, ...; nothing treats it specially, except that its rows happen to be in their own slots.
 */
#ifndef AE_ENGINE_TREE_H
#define AE_ENGINE_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "aerie.h" /* AERIE_MAX_DRAFT: most nodes */

/* Which kinds of drafters proposed a node; both bits may be set. */
#define AE_FROM_NGRAM 1u /* a drafter whose proposals cost next to nothing */
#define AE_FROM_NETWORK 2u /* a network */

typedef struct ae_tree {
    uint32_t n;
    int32_t token[AERIE_MAX_DRAFT];
    int32_t parent[AERIE_MAX_DRAFT]; /* less than the node's own index; -1: the root */
    int32_t depth[AERIE_MAX_DRAFT];  /* 1 for children of the root */
    float p[AERIE_MAX_DRAFT];        /* in (0, 1]: the drafter's estimate that the node is accepted if its parent was */
    uint8_t from[AERIE_MAX_DRAFT];   /* AE_FROM_*; if a drafter leaves it 0, the speculation loop sets it */
} ae_tree;

/* Adds a node and returns its index. Returns -1 if the tree is full, if the parent already has that child, or if the token is
 * negative (the id of a row that is not a token, engine.h). */
int32_t ae_tree_add(ae_tree *tree, int32_t parent, int32_t token, float p);
/* Returns the child of `node` (-1 = root) that carries token, or -1. */
int32_t ae_tree_child(const ae_tree *tree, int32_t node, int32_t token);
/* Returns the child of `node` (-1 = root) with the highest estimate, the first among equals; -1 if the node is a leaf. */
int32_t ae_tree_best_child(const ae_tree *tree, int32_t node);
/* Returns whether `node` (-1 = root) has children. */
bool ae_tree_goes_on(const ae_tree *tree, int32_t node);
/* Finds the slots of node i's ancestors and of the node itself, if node k has slot base + k. Returns how many positions after
 * base, from the first, are in their own slots; writes the slots of the others to path, from the root down. */
uint32_t ae_tree_path(const int32_t *parent, uint32_t node, uint32_t depth, uint32_t base, int32_t *path);
/* Keeps the nodes with keep[i]; their parents must be kept as well. The order does not change. */
void ae_tree_prune(ae_tree *tree, const bool *keep);
/* Returns whether parents come before children, depths are right, siblings are distinct and tokens are in [0, n_vocab). */
bool ae_tree_is_sound(const ae_tree *tree, int32_t n_vocab);

#endif
