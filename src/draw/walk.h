/* walk.h - down a drafted tree: which of its nodes the target's own draws accept.
 *
 * The walk starts at the root, the newest row of a sequence. At each node it visits it draws the target's token from that
 * node's logits. If a child carries that token the walk goes on there, otherwise the token is the last one. Every token is
 * drawn from the logits of exactly its own prefix, so the tokens do not depend on the tree (law 1).
 *
 * The step exists once, here. A backend's `walk` runs the loop where the logits lie, or takes the steps of many trees together
 * and fetches their rows of logits in between; the speculation loop runs it on the host for sequences whose draw needs more
 * than a row (penalties, DRY, mirostat, grammars).
 */
#ifndef AE_DRAW_WALK_H
#define AE_DRAW_WALK_H

#include "base/err.h"

/* The nodes of a tree. Children come after their parents, and siblings have different tokens. */
typedef struct ae_walk_nodes {
    uint32_t n;
    const int32_t *token;  /* [n] */
    const int32_t *parent; /* [n] base + index of the parent; base - 1: the root */
    int32_t base;
} ae_walk_nodes;

/* Result of a walk. */
typedef struct ae_walked {
    uint32_t n_drawn;                /* at least 1, unless it overflowed */
    uint32_t n_path;                 /* nodes accepted: n_drawn, or one less */
    uint32_t overflowed;             /* 1: no logit of the last row was finite, so nothing was drawn from it */
    int32_t drawn[AERIE_MAX_DRAFT + 1];  /* [n_drawn] the first from the root's logits, number i from those of node path[i -
                                          * 1] */
    int32_t path[AERIE_MAX_DRAFT];       /* [n_path] accepted nodes, from the root's child on */
} ae_walked;

typedef enum ae_walk_verdict {
    AE_WALK_ON,       /* the token was drawn */
    AE_WALK_LAST,     /* a token was drawn, and it ends the sequence */
    AE_WALK_OVERFLOW, /* the row had no finite logit */
} ae_walk_verdict;

/* Draws from row i of the tree (0: the root, 1 + k: node k) after `depth` tokens of this walk. */
typedef ae_walk_verdict ae_walk_draw(void *context, uint32_t row, uint32_t depth, int32_t *token);

/* Takes what was drawn from `node` (-1: the root), moves to the child that has the token, and adds both to `out`. Returns false
 * if the walk is over, after at most n_most tokens. */
bool ae_walk_step(const ae_walk_nodes *nodes, uint32_t n_most, ae_walk_verdict verdict, int32_t token, int32_t *node,
                  ae_walked *out);
/* Draws at most n_most tokens, at least 1. */
void ae_walk_down(const ae_walk_nodes *nodes, uint32_t n_most, ae_walk_draw *draw, void *context, ae_walked *out);
/* Returns whether a row has a finite logit. If not, no token may be drawn from it. */
bool ae_walk_has_finite(const float *logits, uint32_t n);

#endif
