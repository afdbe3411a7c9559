/* grow.h - a draft that grows level by level: its nodes so far, which of them are expanded, and which become the tree.
 *
 * Shared by the drafters of heads. A node is a token; its children are asked for when it is expanded. Shapes (drafter.h): TREE
 * keeps all nodes that are likely enough and lets the controller cut them. DYNAMIC is EAGLE-2 (arXiv 2406.16858): the top_k
 * best nodes of a level are expanded, then the best of all levels are kept. STATIC is EAGLE-1's table.
 *
 * Owns nothing: the pool belongs to the drafter.
 */
#ifndef AE_DRAFT_HEAD_GROW_H
#define AE_DRAFT_HEAD_GROW_H

#include "draft/drafter.h"
#include "draft/head/engine.h"

#define AE_GROW_POOL 1024 /* most nodes of a growing draft */

typedef struct ae_grown {
    int32_t token, parent, depth; /* parent: index into the pool, -1: the root */
    int32_t row;                  /* the head's drafted row of the node, -1: none */
    float p, reach;
} ae_grown;

typedef struct ae_growth {
    const ae_draft_request *request; /* NULL: no draft */
    ae_grown *pool;       /* [AE_GROW_POOL] */
    uint32_t n_pool, level_begin; /* the newest level has nodes [level_begin, n_pool) */
    uint32_t frontier[AE_DHEAD_LEVEL_MAX], n_frontier; /* nodes to expand, ascending */
} ae_growth;

void ae_growth_begin(ae_growth *grow, const ae_draft_request *request);
/* Returns the request that gets the children of `node` (-1 = the root), whose row has output `out`. */
ae_propose_row ae_growth_ask(const ae_growth *grow, int32_t node, uint32_t out);
/* Adds the proposed children that are likely enough. */
void ae_growth_add(ae_growth *grow, int32_t node, const ae_proposal *proposal);
/* Chooses which nodes of the newest level to expand: those with the highest path probability, at most n_most, and none at the
 * request's maximal depth. */
void ae_growth_choose(ae_growth *grow, uint32_t n_most);
/* Writes the best max_nodes of the pool to the request's tree. */
void ae_growth_give(const ae_growth *grow);

#endif
