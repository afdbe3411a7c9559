/* grid.h - finds the grid entries that are best for eight weights, for every scale at once. Private to src/quant/encode.
 *
 * Eight weights x with importance w are stored as scale * code, where code is a point of a grid. With P = sum w x code and Q =
 * sum w code^2 the squared error is sum w x^2 - 2 scale P + scale^2 Q, so at each scale the best point is the one with the
 * largest 2 P - scale Q. As functions of scale these are straight lines: the points that are best at some scale are the corners
 * of a convex hull, about ten of a thousand. They are found once; after that, trying a scale costs next to nothing.
 */
#ifndef AE_QUANT_ENCODE_GRID_H
#define AE_QUANT_ENCODE_GRID_H

#include "quant/types.h"

enum { AE_GRID_MOST = 34 }; /* most points of a hull that are kept; others are skipped */

/* A way to store eight weights. The format decides what `index` means. */
typedef struct ae_grid_point {
    float p, q;
    float until; /* in a hull: the scale from which on the next point is better */
    uint32_t index;
} ae_grid_point;

/* The points that are best at some scale, from small scales to large ones. */
typedef struct ae_grid_hull {
    ae_grid_point points[AE_GRID_MOST];
    int n;
} ae_grid_hull;

typedef struct ae_grid {
    const uint16_t *entries; /* [n_entries] 16 bits: n elements as indices into values, element 0 lowest */
    int n_entries;
    int n;                   /* elements of an entry: 8 of 2 bits or 4 of 4 bits */
    const int8_t *values;    /* [n_values] ascending */
    int n_values;
} ae_grid;

/* Scratch of a search; zeroed once, then reused. */
enum { AE_GRID_DRAWERS = 128 };
typedef struct ae_grid_search {
    float p[2][256], q[2][256], least[2][256]; /* for each half of an entry */
    int64_t drawers[AE_GRID_DRAWERS];
} ae_grid_search;

/* Finds the hull. Elements are code = factor * value + shift. a[grid->n] = w x, with x made positive if the format stores signs
 * separately; then `flip` says that one sign must be wrong, and the one that costs least is chosen (ae_grid_flipped). Indices
 * are those of entries. */
void ae_grid_find(ae_grid_search *s, const ae_grid *grid, const float *a, const float *w, int factor, int shift, bool flip,
                  ae_grid_hull *hull);
/* Returns the element of an entry whose sign is wrong. */
int ae_grid_flipped(const ae_grid *grid, const float *a, uint32_t entry);

/* Computes the hull of the points of both. `mark` is added to b's indices. */
void ae_grid_join(const ae_grid_hull *a, const ae_grid_hull *b, uint32_t mark, ae_grid_hull *out);
/* Computes the hull of a and b side by side; a point's index is a's index + (b's index << shift). */
void ae_grid_add(const ae_grid_hull *a, const ae_grid_hull *b, int shift, ae_grid_hull *out);

/* Returns the index of the best point for a scale. */
static inline int ae_grid_best(const ae_grid_hull *hull, float scale)
{
    int i = 0;
    while (scale > hull->points[i].until) i++; /* for the last point it is infinite */
    return i;
}

#endif
