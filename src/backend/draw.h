/* draw.h - arguments of the seam's operations: drawing the target's tokens down draft trees, and drafters' proposals.
 *
 * Owns nothing. Included by backend.h. Arrays are in device memory unless they are marked (host).
 */
#ifndef AE_BACKEND_DRAW_H
#define AE_BACKEND_DRAW_H

#include "draw/draw.h"
#include "draw/walk.h"

/* A sequence's tree in a pass. Row 0 is its root, from which the first token is drawn; rows 1 to n are the nodes. Their logits
 * are adjacent. */
typedef struct ae_walk_tree {
    const ae_draw *draw; /* (host) a draw that needs only a row (ae_draw_is_from_row) */
    ae_draw_room *room;  /* (host) scratch for such draws, for backends that make them on the host; no two trees share it */
    uint32_t row;        /* the root's row in the pass */
    uint32_t output;     /* the root's row of logits */
    uint32_t n;          /* number of nodes */
    uint32_t n_most;     /* most tokens to draw; at least 1 */
    uint64_t position;   /* position of the token drawn from the root */
    bool ends;           /* drawing stops after a token of `eog` */
} ae_walk_tree;

/* Draws the target's tokens down each tree (draw/walk.h). A device may draw from all rows at once, while the CPU draws only
 * from those that the walk visits. The tokens are the same, since a draw does not depend on other draws. */
typedef struct ae_walk {
    uint32_t n_trees, n_vocab;
    const ae_walk_tree *trees; /* (host) [n_trees], read before the call returns */
    const float *logits;       /* [outputs][n_vocab] */
    const int32_t *token, *parent; /* on the device, for all rows of the pass; parent: a row of the pass */
    const int32_t *eog;        /* [n_eog] on the device */
    uint32_t n_eog;
    ae_walked *out;            /* [n_trees] on the device */
} ae_walk;

#define AE_PROPOSE_MAX 16 /* most tokens that are proposed after a row */

/* A row of a drafter's logits, after which tokens are proposed. */
typedef struct ae_propose_row {
    const ae_draw *draw;       /* (host) the target's draw for the sequence */
    uint32_t output;           /* the row of logits */
    uint32_t k;                /* tokens wanted, at most AE_PROPOSE_MAX */
    uint64_t position;         /* position of the proposed token */
} ae_propose_row;

typedef struct ae_proposal {
    uint32_t n;                 /* at most k */
    int32_t id[AE_PROPOSE_MAX]; /* most likely first */
    float p[AE_PROPOSE_MAX];    /* estimated probability that the target draws it */
} ae_proposal;

/* Proposes the tokens that the target would most likely draw after each row, from the drafter's logits and the target's own
 * noise (ae_draw_propose). */
typedef struct ae_propose {
    uint32_t n_rows, n_logits;
    const ae_propose_row *rows; /* (host) [n_rows], read before the call returns */
    const float *logits;        /* [outputs][n_logits] */
    const int32_t *map;         /* [n_logits] on the device: the target's token ids; NULL: the drafter uses the same ids */
    ae_proposal *out;           /* [n_rows] on the device */
} ae_propose;

#endif
