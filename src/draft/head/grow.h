/* grow.h - a draft that grows level by level: the nodes seen so far, which of them go on, and the tree that is kept.
 *
 * The drafters of heads share it. A node is a token; it is asked for its children when it goes on. Shapes (drafter.h): TREE
 * keeps what is likely enough and lets the controller cut it; DYNAMIC is EAGLE-2 (arXiv 2406.16858): the top_k best of a level
 * go on, then the best of all levels are kept; STATIC is EAGLE-1's table.
 *
 * Owns nothing: the pool is the drafter's.
 */
#ifndef AE_DRAFT_HEAD_GROW_H
#define AE_DRAFT_HEAD_GROW_H

#include "draft/drafter.h"
#include "draft/head/engine.h"

#define AE_GROW_POOL 1024 /* nodes seen while a draft grows */

typedef struct ae_grown {
    int32_t token, parent, depth; /* parent: index into the pool, -1 = the root */
    int32_t row;                  /* drafted row of the head, -1 = none */
    float p, reach;
} ae_grown;

typedef struct ae_growth {
    const ae_draft_request *request; /* NULL: no draft */
    ae_grown *pool;       /* [AE_GROW_POOL] */
    uint32_t n_pool, level_begin; /* nodes of the newest level: [level_begin, n_pool) */
    uint32_t frontier[AE_DHEAD_LEVEL_MAX], n_frontier; /* nodes that go on, ascending */
} ae_growth;

void ae_growth_begin(ae_growth *grow, const ae_draft_request *request);
/* What to ask for the children of `node` (-1 = the root), whose row put out `out`. */
ae_propose_row ae_growth_ask(const ae_growth *grow, int32_t node, uint32_t out);
/* Adds those that are likely enough. */
void ae_growth_add(ae_growth *grow, int32_t node, const ae_proposal *proposal);
/* Which nodes of the newest level go on: the best by reach, at most n_most, none at the request's depth. */
void ae_growth_choose(ae_growth *grow, uint32_t n_most);
/* The best max_nodes of the pool, to the request's tree. */
void ae_growth_give(const ae_growth *grow);

#endif
