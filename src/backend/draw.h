/* draw.h - the seam, arguments: the target's draws down drafted trees, and what drafters propose.
 *
 * Owns nothing. Included by backend.h. Arrays lie on the device, except those marked (host).
 */
#ifndef AE_BACKEND_DRAW_H
#define AE_BACKEND_DRAW_H

#include "sample/walk.h"

/* A sequence's tree in a pass. Row 0 is its root, the row whose draw comes first; rows 1 to n are the nodes. Their logits lie
 * one after the other. */
typedef struct ae_walk_tree {
    ae_sampler *sampler; /* (host) one that draws from a row alone (ae_sampler_draws_from_row); no two trees share it */
    uint32_t row;        /* of the pass: the root */
    uint32_t output;     /* the root's place among the rows of logits */
    uint32_t n;          /* nodes */
    uint32_t n_most;     /* tokens to draw, at most; at least 1 */
    uint64_t position;   /* of the token that the root draws */
    bool ends;           /* a token of `eog` is the last one */
} ae_walk_tree;

/* Draws the target's tokens down each tree (sample/walk.h). A device may draw from all rows at once; the CPU draws from
 * those that the walk visits. The tokens are the same, since a draw does not depend on other draws. */
typedef struct ae_walk {
    uint32_t n_trees, n_vocab;
    const ae_walk_tree *trees; /* (host) [n_trees], read before the call returns */
    const float *logits;       /* [outputs][n_vocab] */
    const int32_t *token, *parent; /* of the rows of the pass, on the device; parent: a row of the pass */
    const int32_t *eog;        /* [n_eog] on the device */
    uint32_t n_eog;
    ae_walked *out;            /* [n_trees] on the device */
} ae_walk;

#define AE_PROPOSE_MAX 16 /* tokens that are proposed after a row */

/* A row of a drafter's logits. */
typedef struct ae_propose_row {
    const ae_sampler *sampler; /* (host) the target's, of the sequence */
    uint32_t output;           /* its place among the rows of logits */
    uint32_t k;                /* tokens wanted, at most AE_PROPOSE_MAX */
    uint64_t position;         /* of the token proposed */
} ae_propose_row;

typedef struct ae_proposal {
    uint32_t n;                 /* at most k */
    int32_t id[AE_PROPOSE_MAX]; /* best first */
    float p[AE_PROPOSE_MAX];    /* belief that the target draws it */
} ae_proposal;

/* The tokens that the target would most likely draw after each row, by the drafter's logits and the target's own noise
 * (ae_sampler_propose). */
typedef struct ae_propose {
    uint32_t n_rows, n_logits;
    const ae_propose_row *rows; /* (host) [n_rows], read before the call returns */
    const float *logits;        /* [outputs][n_logits] */
    const int32_t *map;         /* [n_logits] on the device: the target's ids; NULL: they are the target's */
    ae_proposal *out;           /* [n_rows] on the device */
} ae_propose;

#endif
