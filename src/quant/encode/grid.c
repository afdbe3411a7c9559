/* grid.c - implements grid.h.
 *
 * P and Q of an entry are sums over tables for its two halves. The entries are sorted into drawers by Q. Each drawer keeps the
 * entry that is highest above a line that falls like the hull, and the hull is computed from those. Drawers are so narrow that
 * the loss is far below the error of rounding the scales. Among equals the first entry wins, and sums have one order, so equal
 * input gives equal bytes everywhere.
 */
#include "quant/encode/grid.h"

#include <math.h>
#include <string.h>

/* ---- Hulls ------------------------------------------------------------------------------------------------ */

/* Appends a point whose Q is not above that of earlier ones, and removes points that are no longer best anywhere. */
static void push(ae_grid_hull *hull, ae_grid_point point)
{
    ae_grid_point *points = hull->points;
    int n = hull->n;
    while (n && point.p >= points[n - 1].p) n--;
    while (n && point.q >= points[n - 1].q) return; /* the same Q with a smaller P */
    while (n > 1) { /* crossings ascend */
        const ae_grid_point *x = &points[n - 2], *y = &points[n - 1];
        if ((x->p - y->p) * (y->q - point.q) < (y->p - point.p) * (x->q - y->q)) break;
        n--;
    }
    if (n < AE_GRID_MOST) points[n++] = point;
    hull->n = n;
}

static void set_crossings(ae_grid_hull *hull)
{
    ae_grid_point *points = hull->points;
    for (int i = 0; i + 1 < hull->n; i++)
        points[i].until = 2.0f * (points[i].p - points[i + 1].p) / (points[i].q - points[i + 1].q);
    points[hull->n - 1].until = INFINITY;
}

void ae_grid_join(const ae_grid_hull *a, const ae_grid_hull *b, uint32_t mark, ae_grid_hull *out)
{
    out->n = 0;
    for (int i = 0, k = 0; i < a->n || k < b->n;) {
        const bool first = k >= b->n || (i < a->n && a->points[i].q >= b->points[k].q);
        ae_grid_point point = first ? a->points[i++] : b->points[k++];
        if (!first) point.index += mark;
        push(out, point);
    }
    set_crossings(out);
}

void ae_grid_add(const ae_grid_hull *a, const ae_grid_hull *b, int shift, ae_grid_hull *out)
{
    out->n = 0;
    for (int i = 0, k = 0; i < a->n && k < b->n;) {
        const ae_grid_point x = a->points[i], y = b->points[k];
        push(out, (ae_grid_point){x.p + y.p, x.q + y.q, 0.0f, x.index + (y.index << shift)});
        if (i + 1 < a->n && x.until <= y.until) i++;
        else k++;
    }
    set_crossings(out);
}

/* ---- Entries ---------------------------------------------------------------------------------------------- */

/* Computes sums[e] for all halves e of an entry: n elements of `bits` bits, of which element j adds terms[j][value]. */
static void sum_halves(float *sums, float terms[][8], int n, int bits, int n_values)
{
    sums[0] = 0.0f;
    for (int j = 0; j < n; j++) {
        const int size = 1 << (bits * j);
        for (int v = n_values - 1; v >= 0; v--)
            for (int e = 0; e < size; e++) sums[v * size + e] = sums[e] + terms[j][v];
    }
}

/* The same with the smallest term instead of the sum. */
static void least_halves(float *least, float terms[][8], int n, int bits, int n_values)
{
    least[0] = INFINITY;
    for (int j = 0; j < n; j++) {
        const int size = 1 << (bits * j);
        for (int v = n_values - 1; v >= 0; v--)
            for (int e = 0; e < size; e++) least[v * size + e] = least[e] < terms[j][v] ? least[e] : terms[j][v];
    }
}

/* The range of P and Q, and how Q maps to drawers. */
typedef struct ruler {
    float q_low, per_root; /* drawer of q: sqrt(q - q_low) * per_root */
    float slope;           /* slope of the line, as a function of that root */
} ruler;

static ruler fill_tables(ae_grid_search *s, const ae_grid *grid, const float *a, const float *w, int factor, int shift,
                         bool flip)
{
    const int n = grid->n / 2, bits = 16 / grid->n;
    float p_high = 0.0f, p_low = 0.0f, q_high = 0.0f, q_low = 0.0f;
    for (int h = 0; h < 2; h++) {
        float p[4][8], q[4][8];
        for (int j = 0; j < n; j++) {
            float most = 0.0f, least = INFINITY;
            for (int v = 0; v < grid->n_values; v++) {
                const float code = (float)(factor * grid->values[v] + shift), square = code * code;
                p[j][v] = a[h * n + j] * code;
                q[j][v] = w[h * n + j] * square;
                if (square > most) most = square;
                if (square < least) least = square;
            }
            q_high += w[h * n + j] * most;
            q_low += w[h * n + j] * least;
            p_high += fabsf(a[h * n + j]) * sqrtf(most);
            p_low += fabsf(a[h * n + j]) * sqrtf(least);
        }
        sum_halves(s->p[h], p, n, bits, grid->n_values);
        sum_halves(s->q[h], q, n, bits, grid->n_values);
        if (flip) least_halves(s->least[h], p, n, bits, grid->n_values);
    }
    const float width = sqrtf(q_high - q_low);
    return width > 0.0f ? (ruler){q_low, (float)(AE_GRID_DRAWERS - 1) / width, (p_high - p_low) / width}
                        : (ruler){q_low, 0.0f, 0.0f};
}

static inline float p_of(const ae_grid_search *s, unsigned entry, bool flip)
{
    const unsigned lo = entry & 255, hi = entry >> 8;
    const float p = s->p[0][lo] + s->p[1][hi];
    if (!flip) return p;
    return p - 2.0f * (s->least[0][lo] < s->least[1][hi] ? s->least[0][lo] : s->least[1][hi]);
}

static inline float q_of(const ae_grid_search *s, unsigned entry)
{
    return s->q[0][entry & 255] + s->q[1][entry >> 8];
}

/* Returns an integer that grows with v; for equal v, the smaller i gives the larger key. */
static inline int64_t key_of(float v, int i)
{
    int32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits ^= (bits >> 31) & INT32_MAX;
    return (int64_t)bits * ((int64_t)1 << 32) + (INT32_MAX - i);
}

static inline void sort(ae_grid_search *s, const ae_grid *grid, ruler by, bool flip)
{
    for (int d = 0; d < AE_GRID_DRAWERS; d++) s->drawers[d] = INT64_MIN;
    for (int k = 0; k < grid->n_entries; k++) {
        const float p = p_of(s, grid->entries[k], flip), q = q_of(s, grid->entries[k]);
        const float root = sqrtf(q > by.q_low ? q - by.q_low : 0.0f);
        const int d = (int)(root * by.per_root);
        int64_t *drawer = &s->drawers[d < AE_GRID_DRAWERS ? d : AE_GRID_DRAWERS - 1];
        const int64_t key = key_of(p - by.slope * root, k);
        *drawer = key > *drawer ? key : *drawer;
    }
}

void ae_grid_find(ae_grid_search *s, const ae_grid *grid, const float *a, const float *w, int factor, int shift, bool flip,
                  ae_grid_hull *hull)
{
    const ruler by = fill_tables(s, grid, a, w, factor, shift, flip);
    if (flip) sort(s, grid, by, true);
    else sort(s, grid, by, false);
    hull->n = 0;
    for (int d = AE_GRID_DRAWERS - 1; d >= 0; d--) {
        if (s->drawers[d] == INT64_MIN) continue;
        const int k = INT32_MAX - (int)(s->drawers[d] & INT32_MAX);
        push(hull, (ae_grid_point){p_of(s, grid->entries[k], flip), q_of(s, grid->entries[k]), 0.0f, (uint32_t)k});
    }
    set_crossings(hull);
}

int ae_grid_flipped(const ae_grid *grid, const float *a, uint32_t entry)
{
    const int bits = 16 / grid->n, mask = (1 << bits) - 1;
    float least = INFINITY;
    int at = 0;
    for (int j = 0; j < grid->n; j++) {
        const float cost = a[j] * (float)grid->values[grid->entries[entry] >> (bits * j) & mask];
        if (cost < least) {
            least = cost;
            at = j;
        }
    }
    return at;
}
