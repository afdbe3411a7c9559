/* grid.h - internal to src/quant: the best entries of a grid for eight weights, for every scale at once.
 *
 * Eight weights x with importance w are stored as scale * code, code a point of a grid. With P = sum w x code and
 * Q = sum w code^2 the squared error is sum w x^2 - 2 scale P + scale^2 Q, so at each scale the best point has the
 * largest 2 P - scale Q. Those are straight lines in scale: the points that are best anywhere are the corners of a convex
 * hull, some ten of a thousand. They are found once; after that trying a scale costs next to nothing.
 */
#ifndef AE_QUANT_ENCODE_GRID_H
#define AE_QUANT_ENCODE_GRID_H

#include "quant/types.h"

enum { AE_GRID_MOST = 34 }; /* points that are kept of a hull; the rest are skipped */

/* A way to store eight weights. What `index` means is up to the format. */
typedef struct ae_grid_point {
    float p, q;
    float until; /* in a hull: the scale at which the next one gets better */
    uint32_t index;
} ae_grid_point;

/* The points that are best somewhere, from small scales to large ones. */
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

/* Room for one search; zeroed once, then used again and again. */
enum { AE_GRID_DRAWERS = 128 };
typedef struct ae_grid_search {
    float p[2][256], q[2][256], least[2][256]; /* by half an entry */
    int64_t drawers[AE_GRID_DRAWERS];
} ae_grid_search;

/* Elements are code = factor * value + shift. a[grid->n] = w x, with x made positive where a format stores signs apart;
 * then `flip` says that one sign must be wrong, and it is the one that costs least (ae_grid_flipped). The indices are
 * those of entries. */
void ae_grid_find(ae_grid_search *s, const ae_grid *grid, const float *a, const float *w, int factor, int shift, bool flip,
                  ae_grid_hull *hull);
/* The element whose sign is wrong in that entry. */
int ae_grid_flipped(const ae_grid *grid, const float *a, uint32_t entry);

/* The hull of both: what is best of either. `mark` is added to b's indices. */
void ae_grid_join(const ae_grid_hull *a, const ae_grid_hull *b, uint32_t mark, ae_grid_hull *out);
/* The hull of a and b side by side: index a + (index b << shift). */
void ae_grid_add(const ae_grid_hull *a, const ae_grid_hull *b, int shift, ae_grid_hull *out);

/* Index of the best point for a scale. */
static inline int ae_grid_best(const ae_grid_hull *hull, float scale)
{
    int i = 0;
    while (scale > hull->points[i].until) i++; /* of the last one it is infinite */
    return i;
}

#endif
