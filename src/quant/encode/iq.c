/* iq.c - f32 to the formats that take groups of weights from a grid: IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S.
 *
 * Owns these encoders. All fit a block of 256 in the same way: for each eight weights, the grid points that can be best
 * (grid.h); for each sub-block, its best scale; then the f16 scale above these, each trial with the best integer scales and the
 * best points. The result is packed into the format's bits, the inverse of unit_iq.c.
 */
#include <math.h>

#include "quant/encode/encode.h"
#include "quant/encode/grid.h"
#include "quant/grids_table.h"
#include "quant/unit.h"

enum { N_GROUPS = 32 }; /* groups of eight weights in a block */

typedef enum signs {
    SIGNS_IN_GRID,
    SIGNS_FREE,
    SIGNS_EVEN, /* seven bits for eight weights, since the number of negative ones is even */
} signs;

/* The codes of IQ1 are those of the grid plus or minus an eighth. */
typedef enum delta {
    DELTA_NONE,
    DELTA_OF_SUB_BLOCK,
    DELTA_OF_GROUP,
} delta;

typedef struct iq_form {
    ae_grid grid;
    int n_sub, n_levels; /* weights that share a scale; scales are the odd numbers below 2 n_levels */
    float unit;          /* w = d * unit * scale * code */
    signs signs;
    delta delta;
} iq_form;

/* Indices of points: for eight 2-bit elements the entry; for two times four 4-bit elements */
enum { SECOND_SHIFT = 9, ENTRY_MASK = 511, SECOND_FLIPPED = 1 << 18 };
/* and, with DELTA_OF_GROUP, a bit for the minus eighth */
enum { DELTA_MINUS = 1 << 11 };

/* The block being encoded. x is scaled by a power of two, so that it is at most 1. */
typedef struct iq_work {
    float x[256], w[256], a[256]; /* a = w x, or w |x| if signs are stored separately */
    uint8_t negative[N_GROUPS];   /* bit j: element j is negative, before a sign is flipped */
    int exponent;                 /* of x */
    ae_grid_hull hulls[2][N_GROUPS]; /* [1]: those with the minus eighth, for DELTA_OF_SUB_BLOCK */
    float scale[16];                 /* the best scale of each sub-block by itself */
    /* the result */
    uint16_t d;
    uint8_t level[16], way[16]; /* for each sub-block; way: index into hulls */
    uint32_t index[N_GROUPS];
    ae_grid_search search;
} iq_work;

/* ---- Weights and groups ------------------------------------------------------------------------------------ */

static int exponent_of(const float *v, int n)
{
    float most = 0.0f;
    int exponent = 0;
    for (int e = 0; e < n; e++)
        if (fabsf(v[e]) > most) most = fabsf(v[e]);
    (void)frexpf(most, &exponent);
    return exponent;
}

static void take(iq_work *work, const iq_form *form, const float *input, const float *importance)
{
    ae_encode_clean(input, 256, AE_ENCODE_LIMIT, work->x);
    work->exponent = exponent_of(work->x, 256);
    for (int e = 0; e < 256; e++) work->x[e] = ldexpf(work->x[e], -work->exponent);
    ae_encode_weigh(importance, 256, work->w);
    memset(work->negative, 0, sizeof work->negative);
    for (int e = 0; e < 256; e++) {
        work->a[e] = work->w[e] * (form->signs == SIGNS_IN_GRID ? work->x[e] : fabsf(work->x[e]));
        if (work->x[e] < 0.0f) work->negative[e / 8] = (uint8_t)(work->negative[e / 8] | 1 << e % 8);
    }
}

static bool is_odd(unsigned bits)
{
    bits ^= bits >> 4;
    bits ^= bits >> 2;
    return (bits ^ bits >> 1) & 1;
}

/* Finds two entries of four elements each. With even signs, one of the eight signs may have to be wrong, in either half. */
static void find_halves(iq_work *work, const iq_form *form, int g, bool flip)
{
    const float *a = work->a + 8 * g, *w = work->w + 8 * g;
    ae_grid_hull straight[2], flipped[2], ways[2];
    for (int h = 0; h < 2; h++) {
        ae_grid_find(&work->search, &form->grid, a + 4 * h, w + 4 * h, 1, 0, false, &straight[h]);
        if (flip) ae_grid_find(&work->search, &form->grid, a + 4 * h, w + 4 * h, 1, 0, true, &flipped[h]);
    }
    if (!flip) {
        ae_grid_add(&straight[0], &straight[1], SECOND_SHIFT, &work->hulls[0][g]);
        return;
    }
    ae_grid_add(&flipped[0], &straight[1], SECOND_SHIFT, &ways[0]);
    ae_grid_add(&straight[0], &flipped[1], SECOND_SHIFT, &ways[1]);
    ae_grid_join(&ways[0], &ways[1], SECOND_FLIPPED, &work->hulls[0][g]);
}

static void find_points(iq_work *work, const iq_form *form)
{
    for (int g = 0; g < N_GROUPS; g++) {
        const float *a = work->a + 8 * g, *w = work->w + 8 * g;
        const bool flip = form->signs == SIGNS_EVEN && is_odd(work->negative[g]);
        if (form->grid.n == 4) {
            find_halves(work, form, g, flip);
        } else if (form->delta == DELTA_NONE) {
            ae_grid_find(&work->search, &form->grid, a, w, 1, 0, flip, &work->hulls[0][g]);
        } else {
            for (int way = 0; way < 2; way++)
                ae_grid_find(&work->search, &form->grid, a, w, 8, way ? -1 : 1, false, &work->hulls[way][g]);
            if (form->delta == DELTA_OF_GROUP) {
                const ae_grid_hull plus = work->hulls[0][g];
                ae_grid_join(&plus, &work->hulls[1][g], DELTA_MINUS, &work->hulls[0][g]);
            }
        }
    }
}

/* ---- Scales ------------------------------------------------------------------------------------------------- */

typedef struct sums {
    float p, q;
} sums;

/* Returns how much smaller the error is than with all zeros. */
static float gain(sums s, float scale)
{
    return scale * (2.0f * s.p - scale * s.q);
}

/* Returns the sums of the best points of sub-block i for a scale. */
static sums sums_at(const iq_work *work, const iq_form *form, int way, int i, float scale)
{
    const int n = form->n_sub / 8;
    sums sum = {0};
    for (int g = n * i; g < n * (i + 1); g++) {
        const ae_grid_hull *hull = &work->hulls[way][g];
        const ae_grid_point *point = &hull->points[ae_grid_best(hull, scale)];
        sum.p += point->p;
        sum.q += point->q;
    }
    return sum;
}

static int n_ways(const iq_form *form)
{
    return form->delta == DELTA_OF_SUB_BLOCK ? 2 : 1;
}

/* Returns the best scale for sub-block i. It goes from small scales to large ones; wherever a group's best point changes, it
 * tries the least-squares scale for the points that are best there. */
static float best_scale(const iq_work *work, const iq_form *form, int i)
{
    const int n = form->n_sub / 8;
    float most = 0.0f, best = 0.0f;
    for (int way = 0; way < n_ways(form); way++) {
        const ae_grid_hull *hulls = &work->hulls[way][n * i];
        int at[4] = {0};
        float until = 0.0f;
        while (until < INFINITY) {
            sums s = {0};
            until = INFINITY;
            for (int g = 0; g < n; g++) {
                const ae_grid_point *point = &hulls[g].points[at[g]];
                s.p += point->p;
                s.q += point->q;
                if (point->until < until) until = point->until;
            }
            if (s.p > 0.0f && s.q > 0.0f && s.p / s.q * s.p > most) {
                most = s.p / s.q * s.p;
                best = s.p / s.q;
            }
            for (int g = 0; g < n; g++)
                if (hulls[g].points[at[g]].until <= until && at[g] + 1 < hulls[g].n) at[g]++;
        }
    }
    return best;
}

typedef struct choice {
    uint8_t level[16], way[16];
    float d, gain; /* d as decoded, times unit */
    sums sums;     /* for d: over all points, multiplied by their integer scales */
} choice;

/* Chooses the better of the two levels of sub-block i around its preferred scale, for d. */
static void choose_level(const iq_work *work, const iq_form *form, int i, choice *c)
{
    const int below = ae_encode_floor((work->scale[i] / c->d - 1.0f) * 0.5f, 0, form->n_levels - 1);
    sums kept = {0};
    float most = -INFINITY;
    for (int way = 0; way < n_ways(form); way++) {
        for (int level = below; level <= below + 1 && level < form->n_levels; level++) {
            const float factor = (float)(2 * level + 1);
            const sums s = sums_at(work, form, way, i, c->d * factor);
            const float value = gain(s, c->d * factor);
            if (!(value > most)) continue;
            most = value;
            kept = (sums){factor * s.p, factor * factor * s.q};
            c->level[i] = (uint8_t)level;
            c->way[i] = (uint8_t)way;
        }
    }
    c->gain += most;
    c->sums.p += kept.p;
    c->sums.q += kept.q;
}

/* Keeps d if it is better than the best so far, and returns whether it is. */
static bool try_d(iq_work *work, const iq_form *form, float d, choice *best)
{
    const uint16_t half = ae_encode_f16_scale(ldexpf(d / form->unit, work->exponent));
    choice c = {.d = ldexpf(ae_f16_to_f32(half), -work->exponent) * form->unit};
    if (!(c.d > 0.0f) || c.d == best->d) return false;
    for (int i = 0; i < 256 / form->n_sub; i++) choose_level(work, form, i, &c);
    if (!(c.gain > best->gain)) return false;
    *best = c;
    work->d = half;
    return true;
}

static void fit(iq_work *work, const iq_form *form)
{
    const int n_subs = 256 / form->n_sub, top_level = 2 * form->n_levels - 1;
    float top = 0.0f;
    choice best = {.gain = 0.0f};
    find_points(work, form);
    for (int i = 0; i < n_subs; i++) {
        work->scale[i] = best_scale(work, form, i);
        if (work->scale[i] > top) top = work->scale[i];
    }
    work->d = 0;
    /* from the largest scale a little above the highest level down to two thirds of it */
    for (float at = (float)top_level + 3.0f; at > 0.65f * (float)top_level; at -= 0.5f)
        (void)try_d(work, form, top / at, &best);
    for (int i = 0; i < 4 && best.sums.q > 0.0f; i++)
        if (!try_d(work, form, best.sums.p / best.sums.q, &best)) break;
    memcpy(work->level, best.level, sizeof work->level);
    memcpy(work->way, best.way, sizeof work->way);
    for (int g = 0; g < N_GROUPS; g++) {
        const int i = 8 * g / form->n_sub;
        const float scale = best.d * (float)(2 * work->level[i] + 1);
        const ae_grid_hull *hull = &work->hulls[work->way[i]][g];
        work->index[g] = hull->points[ae_grid_best(hull, scale)].index;
    }
}

/* ---- Packing ------------------------------------------------------------------------------------------------ */

/* Returns the signs of group g as stored: with even signs, one is made wrong if needed. */
static unsigned signs_of(const iq_work *work, const iq_form *form, int g)
{
    const float *a = work->a + 8 * g;
    const unsigned negative = work->negative[g];
    if (form->signs != SIGNS_EVEN || !is_odd(negative)) return negative;
    const uint32_t index = work->index[g];
    if (form->grid.n == 8) return negative ^ 1u << ae_grid_flipped(&form->grid, a, index);
    return index & SECOND_FLIPPED
               ? negative ^ 16u << ae_grid_flipped(&form->grid, a + 4, index >> SECOND_SHIFT & ENTRY_MASK)
               : negative ^ 1u << ae_grid_flipped(&form->grid, a, index & ENTRY_MASK);
}

static void pack_nibbles(const uint8_t *level, int n, uint8_t *out)
{
    for (int i = 0; i < n; i += 2) out[i / 2] = (uint8_t)(level[i] | level[i + 1] << 4);
}

/* Returns the last word of 32 weights, starting with group g: four times seven signs, then the scale. */
static uint32_t signs_and_level(const iq_work *work, const iq_form *form, int g)
{
    uint32_t tail = (uint32_t)work->level[g / 4] << 28;
    for (int i = 0; i < 4; i++) tail |= (uint32_t)(signs_of(work, form, g + i) & 127) << (7 * i);
    return tail;
}

static void pack_iq2_xxs(const iq_work *work, const iq_form *form, void *out)
{
    ae_block_iq2_xxs b = {.d = work->d};
    for (int g = 0; g < N_GROUPS; g++) b.qs[g / 4][g % 4] = (uint8_t)work->index[g];
    for (int i = 0; i < 8; i++) {
        const uint32_t tail = signs_and_level(work, form, 4 * i);
        memcpy(b.qs[i] + 4, &tail, sizeof tail);
    }
    memcpy(out, &b, sizeof b);
}

static void pack_iq2_xs(const iq_work *work, const iq_form *form, void *out)
{
    ae_block_iq2_xs b = {.d = work->d};
    for (int g = 0; g < N_GROUPS; g++)
        b.qs[g] = (uint16_t)(work->index[g] | (signs_of(work, form, g) & 127) << 9);
    pack_nibbles(work->level, 16, b.scales);
    memcpy(out, &b, sizeof b);
}

static void pack_iq2_s(const iq_work *work, const iq_form *form, void *out)
{
    ae_block_iq2_s b = {.d = work->d};
    for (int g = 0; g < N_GROUPS; g++) {
        b.qs[g] = (uint8_t)work->index[g];
        b.qh[g / 4] = (uint8_t)(b.qh[g / 4] | work->index[g] >> 8 << (2 * (g % 4)));
        b.signs[g] = (uint8_t)signs_of(work, form, g);
    }
    pack_nibbles(work->level, 16, b.scales);
    memcpy(out, &b, sizeof b);
}

static void pack_iq3_xxs(const iq_work *work, const iq_form *form, void *out)
{
    ae_block_iq3_xxs b = {.d = work->d};
    uint32_t tails[8];
    for (int g = 0; g < N_GROUPS; g++) {
        b.qs[2 * g] = (uint8_t)work->index[g];
        b.qs[2 * g + 1] = (uint8_t)(work->index[g] >> SECOND_SHIFT);
    }
    for (int i = 0; i < 8; i++) tails[i] = signs_and_level(work, form, 4 * i);
    memcpy(b.tail, tails, sizeof tails);
    memcpy(out, &b, sizeof b);
}

static void pack_iq3_s(const iq_work *work, const iq_form *form, void *out)
{
    ae_block_iq3_s b = {.d = work->d};
    for (int g = 0; g < N_GROUPS; g++) {
        const uint32_t first = work->index[g] & ENTRY_MASK, second = work->index[g] >> SECOND_SHIFT & ENTRY_MASK;
        b.qs[2 * g] = (uint8_t)first;
        b.qs[2 * g + 1] = (uint8_t)second;
        b.qh[g / 4] = (uint8_t)(b.qh[g / 4] | (first >> 8 | second >> 8 << 1) << (2 * (g % 4)));
        b.signs[g] = (uint8_t)signs_of(work, form, g);
    }
    pack_nibbles(work->level, 8, b.scales);
    memcpy(out, &b, sizeof b);
}

static void pack_iq1_s(const iq_work *work, const iq_form *form, void *out)
{
    ae_block_iq1_s b = {.d = work->d};
    (void)form;
    for (int i = 0; i < 8; i++) {
        unsigned high = (unsigned)work->level[i] << 12 | (unsigned)work->way[i] << 15;
        for (int g = 0; g < 4; g++) {
            b.qs[4 * i + g] = (uint8_t)work->index[4 * i + g];
            high |= (work->index[4 * i + g] >> 8) << (3 * g);
        }
        b.qh[i] = (uint16_t)high;
    }
    memcpy(out, &b, sizeof b);
}

static void pack_iq1_m(const iq_work *work, const iq_form *form, void *out)
{
    ae_block_iq1_m b = {0};
    (void)form;
    for (int s = 0; s < 16; s++) b.scales[s / 4] = (uint16_t)(b.scales[s / 4] | work->level[s] << (3 * (s % 4)));
    for (int i = 0; i < 4; i++) b.scales[i] = (uint16_t)(b.scales[i] | (work->d >> (4 * i) & 15) << 12);
    for (int g = 0; g < N_GROUPS; g++) { /* bit 11 of the index, DELTA_MINUS, moves to its place */
        b.qs[g] = (uint8_t)work->index[g];
        b.qh[g / 2] = (uint8_t)(b.qh[g / 2] | work->index[g] >> 8 << (g % 2 * 4));
    }
    memcpy(out, &b, sizeof b);
}

/* ---- The formats -------------------------------------------------------------------------------------------- */

typedef void pack_fn(const iq_work *work, const iq_form *form, void *out);

static void encode(const iq_form *form, pack_fn *pack, size_t block_bytes, const float *x, const float *importance,
                   void *blocks, size_t n)
{
    iq_work work = {.d = 0}; /* some 36 KiB */
    uint8_t *out = blocks;
    for (size_t i = 0; i < n / 256; i++, out += block_bytes) {
        take(&work, form, x + 256 * i, ae_encode_from(importance, 256 * i));
        fit(&work, form);
        pack(&work, form, out);
    }
}

#define GRID(name, n_entries, n, n_values)                                                                             \
    {                                                                                                                  \
        ae_quant_grid_##name, n_entries, n, ae_quant_grid_##name##_values, n_values                                    \
    }
#define ENCODE(suffix, ...)                                                                                            \
    void ae_encode_##suffix(const float *x, const float *importance, void *blocks, size_t n)                               \
    {                                                                                                                  \
        static const iq_form of = {__VA_ARGS__};                                                                          \
        encode(&of, pack_##suffix, sizeof(ae_block_##suffix), x, importance, blocks, n);                                   \
    }
ENCODE(iq2_xxs, GRID(iq2xxs, 256, 8, 3), 32, 16, 0.125f, SIGNS_EVEN, DELTA_NONE)
ENCODE(iq2_xs, GRID(iq2xs, 512, 8, 3), 16, 16, 0.125f, SIGNS_EVEN, DELTA_NONE)
ENCODE(iq2_s, GRID(iq2s, 1024, 8, 3), 16, 16, 0.125f, SIGNS_FREE, DELTA_NONE)
ENCODE(iq3_xxs, GRID(iq3xxs, 256, 4, 8), 32, 16, 0.25f, SIGNS_EVEN, DELTA_NONE)
ENCODE(iq3_s, GRID(iq3s, 512, 4, 8), 32, 16, 1.0f, SIGNS_FREE, DELTA_NONE)
ENCODE(iq1_s, GRID(iq1, 2048, 8, 3), 32, 8, 0.125f, SIGNS_IN_GRID, DELTA_OF_SUB_BLOCK)
ENCODE(iq1_m, GRID(iq1, 2048, 8, 3), 16, 8, 0.125f, SIGNS_IN_GRID, DELTA_OF_GROUP)
#undef ENCODE
#undef GRID
