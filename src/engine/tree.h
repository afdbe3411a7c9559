/* tree.h - a tree of drafted tokens that hangs on the newest token of a sequence.
 *
 * Node i has a parent before it (or none: then it continues the newest token itself). Siblings carry
 * different tokens. A chain is the tree whose parents are -1, 0, 1, ...; nothing treats it specially
 * but that its rows happen to sit in their own slots.
 */
#ifndef AE_ENGINE_TREE_H
#define AE_ENGINE_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "aerie.h" /* AERIE_MAX_DRAFT: nodes */

/* Which drafters proposed a node; both may have. */
#define AE_FROM_NGRAM 1u /* somebody whose proposals cost next to nothing */
#define AE_FROM_NETWORK 2u /* a network */

typedef struct ae_tree {
    uint32_t n;
    int32_t token[AERIE_MAX_DRAFT];
    int32_t parent[AERIE_MAX_DRAFT]; /* < own index; -1 = the root */
    int32_t depth[AERIE_MAX_DRAFT];  /* 1 for children of the root */
    float p[AERIE_MAX_DRAFT];        /* the drafter's belief that the node is accepted once its parent was; in (0, 1] */
    uint8_t from[AERIE_MAX_DRAFT];   /* AE_FROM_*; the speculation loop marks what drafters leave 0 */
} ae_tree;

/* Adds a node and returns its index; -1 when the tree is full, the parent has that child already, or the token is below 0: the
 * id of a row that is no token (engine.h). */
int32_t ae_tree_add(ae_tree *tree, int32_t parent, int32_t token, float p);
/* The child of `node` (-1 = root) that carries token, or -1. */
int32_t ae_tree_child(const ae_tree *tree, int32_t node, int32_t token);
/* The child of `node` (-1 = root) that is believed in most, the first of equals; -1 where it is a leaf. */
int32_t ae_tree_best_child(const ae_tree *tree, int32_t node);
/* Whether `node` (-1 = root) has any child. */
bool ae_tree_goes_on(const ae_tree *tree, int32_t node);
/* Where node i's ancestors and itself sit when node k has slot base + k: those of the first positions after base that sit in
 * their own slots are counted (returned), the slots of the others go to path, root side first. */
uint32_t ae_tree_path(const int32_t *parent, uint32_t node, uint32_t depth, uint32_t base, int32_t *path);
/* Keeps the nodes with keep[i], whose parents must be kept too; order stays. */
void ae_tree_prune(ae_tree *tree, const bool *keep);
/* Parents before children, depths right, siblings distinct, tokens in [0, n_vocab). */
bool ae_tree_is_sound(const ae_tree *tree, int32_t n_vocab);

#endif
