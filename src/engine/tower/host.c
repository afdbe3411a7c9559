/* host.c - what the host computes for a vision encoder: the order of patches, learned positions for the size of a picture, and
 * angles (int.h). Owns nothing. Everything is plain arithmetic in one fixed order.
 *
 * Source: the published models' code (transformers): fast_pos_embed_interpolate of Qwen3-VL, resize_positional_embeddings of
 * SigLIP 2, get_window_index of Qwen2.5-VL. */
#include <math.h>
#include <string.h>

#include "base/math/fmath.h"
#include "engine/tower/int.h"

/* ---- Order ----------------------------------------------------------------------------------------------------- */

/* Returns the number of windows along a side of n patches. */
static uint32_t n_along(const ae_tower_model *m, uint32_t n)
{
    const uint32_t side = m->window * m->merge;
    return (n + side - 1) / side;
}

uint32_t tower_n_windows(const ae_tower_model *m, uint32_t across, uint32_t down)
{
    return m->type->windows ? n_along(m, across) * n_along(m, down) : 0;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t tower_window_rows(const ae_tower_model *m, const tower_view *v, uint32_t i)
{
    const uint32_t side = m->window * m->merge, n = n_along(m, v->across), x = i % n * side, y = i / n * side;
    return least(side, v->across - x) * least(side, v->down - y);
}

void tower_order(ae_tower *t, const tower_view *v)
{
    const ae_tower_model *m = t->model;
    const uint32_t side = m->type->windows ? m->window * m->merge : 0;
    int32_t row = 0;
    if (!side)
        for (; row < (int32_t)(v->across * v->down); row++) t->order[row] = t->place[row] = row;
    for (uint32_t i = 0; i < v->n_windows; i++) {
        const uint32_t n = n_along(m, v->across), x = i % n * side, y = i / n * side;
        for (uint32_t py = y; py < least(y + side, v->down); py++)
            for (uint32_t px = x; px < least(x + side, v->across); px++, row++) {
                t->order[row] = (int32_t)(py * v->across + px);
                t->place[t->order[row]] = row;
            }
    }
}

/* ---- Pixels ---------------------------------------------------------------------------------------------------- */

void tower_cut(ae_tower *t, const ae_image *image, const tower_view *v)
{
    const uint32_t p = t->model->patch;
    float *out = t->pixels_host;
    for (uint32_t r = 0; r < v->across * v->down; r++) {
        const uint32_t py = (uint32_t)t->order[r] / v->across, px = (uint32_t)t->order[r] % v->across;
        for (uint32_t c = 0; c < 3; c++)
            for (uint32_t y = 0; y < p; y++) {
                const uint8_t *u = image->rgb + (((size_t)(py * p + y)) * image->width + (size_t)px * p) * 3 + c;
                for (uint32_t x = 0; x < p; x++, u += 3) *out++ = t->colour[c][*u];
            }
    }
}

/* ---- Learned positions ----------------------------------------------------------------------------------------- */

/* Maps place i of n to a table of n_table places whose ends coincide with it: returns the place below, and in *part the
 * fraction beyond that place. */
static uint32_t aligned(uint32_t i, uint32_t n, uint32_t n_table, float *part)
{
    const float at = n > 1 ? (float)i * ((float)(n_table - 1) / (float)(n - 1)) : 0.0f;
    const uint32_t from = least((uint32_t)at, n_table - 1);
    *part = at - (float)from;
    return from;
}

static void put_aligned(const ae_tower *t, uint32_t side, const tower_view *v, uint32_t x, uint32_t y, float *out)
{
    const uint32_t e = t->model->hparams.n_embd;
    float dx, dy;
    const uint32_t x0 = aligned(x, v->across, side, &dx), y0 = aligned(y, v->down, side, &dy);
    const uint32_t x1 = least(x0 + 1, side - 1), y1 = least(y0 + 1, side - 1);
    const float *a = t->table + (size_t)(y0 * side + x0) * e, *b = t->table + (size_t)(y0 * side + x1) * e;
    const float *c = t->table + (size_t)(y1 * side + x0) * e, *d = t->table + (size_t)(y1 * side + x1) * e;
    const float w11 = dx * dy, w10 = dy - w11, w01 = dx - w11, w00 = 1.0f - dx - w10;
    for (uint32_t i = 0; i < e; i++) out[i] = fmaf(w11, d[i], fmaf(w10, c[i], fmaf(w01, b[i], w00 * a[i])));
}

/* Maps the middle of place i of n to a table of n_table places; may be before the first place or after the last one. */
static float middle(uint32_t i, uint32_t n, uint32_t n_table)
{
    return ((float)i + 0.5f) * ((float)n_table / (float)n) - 0.5f;
}

static uint32_t within(int32_t i, uint32_t n)
{
    return i < 0 ? 0 : i >= (int32_t)n ? n - 1 : (uint32_t)i;
}

static void put_bilinear(const ae_tower *t, uint32_t side, const tower_view *v, uint32_t x, uint32_t y, float *out)
{
    const uint32_t e = t->model->hparams.n_embd;
    const float sx = fmaxf(middle(x, v->across, side), 0), sy = fmaxf(middle(y, v->down, side), 0);
    const uint32_t x0 = within((int32_t)sx, side), y0 = within((int32_t)sy, side);
    const uint32_t x1 = within((int32_t)x0 + 1, side), y1 = within((int32_t)y0 + 1, side);
    const float dx = sx - (float)x0, dy = sy - (float)y0;
    const float *a = t->table + (size_t)(y0 * side + x0) * e, *b = t->table + (size_t)(y0 * side + x1) * e;
    const float *c = t->table + (size_t)(y1 * side + x0) * e, *d = t->table + (size_t)(y1 * side + x1) * e;
    const float w11 = dx * dy, w10 = dy - w11, w01 = dx - w11, w00 = 1.0f - dx - w10;
    for (uint32_t i = 0; i < e; i++) out[i] = fmaf(w11, d[i], fmaf(w10, c[i], fmaf(w01, b[i], w00 * a[i])));
}

/* Weights of the four places around a point at `part` after the second of them. */
static void cubic(float part, float weights[4])
{
    const float a = -0.75f, off[4] = {1 + part, part, 1 - part, 2 - part};
    for (int i = 0; i < 4; i++) {
        const float d = off[i];
        weights[i] = i == 1 || i == 2 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
}

static void put_bicubic(const ae_tower *t, uint32_t side, const tower_view *v, uint32_t x, uint32_t y, float *out)
{
    const uint32_t e = t->model->hparams.n_embd;
    const float sx = middle(x, v->across, side), sy = middle(y, v->down, side), fx = floorf(sx), fy = floorf(sy);
    float across[4], down[4];
    cubic(sx - fx, across);
    cubic(sy - fy, down);
    memset(out, 0, e * sizeof *out);
    for (int j = 0; j < 4; j++)
        for (int k = 0; k < 4; k++) {
            const uint32_t row = within((int32_t)fy - 1 + j, side), column = within((int32_t)fx - 1 + k, side);
            const float *a = t->table + (size_t)(row * side + column) * e, w = down[j] * across[k];
            for (uint32_t i = 0; i < e; i++) out[i] = fmaf(w, a[i], out[i]);
        }
}

/* Computes the weights of place i of n over a table of n_table places; the filter is wider if the table is finer. Returns the
 * first place, and the number of weights in *n_used. */
static uint32_t antialias(uint32_t i, uint32_t n, uint32_t n_table, float *weights, uint32_t *n_used)
{
    const double scale = (double)n_table / n, wide = scale > 1 ? scale : 1, centre = (i + 0.5) * scale;
    const double low = centre - wide + 0.5, high = centre + wide + 0.5;
    const uint32_t from = low > 0 ? (uint32_t)low : 0, end = high < n_table ? (uint32_t)high : n_table;
    double sum = 0;
    for (uint32_t k = from; k < end; k++) {
        const double off = fabs((k - centre + 0.5) / wide), w = off < 1 ? 1 - off : 0;
        weights[k - from] = (float)w;
        sum += w;
    }
    for (uint32_t k = from; k < end; k++) weights[k - from] = (float)((double)weights[k - from] / sum);
    *n_used = end - from;
    return from;
}

enum { MOST_SIDE = 256 }; /* side of a square table of 65,536 positions */

static void put_antialiased(const ae_tower *t, uint32_t side, const tower_view *v, uint32_t x, uint32_t y, float *out)
{
    const uint32_t e = t->model->hparams.n_embd;
    float across[MOST_SIDE], down[MOST_SIDE];
    uint32_t n_x, n_y;
    const uint32_t x0 = antialias(x, v->across, side, across, &n_x), y0 = antialias(y, v->down, side, down, &n_y);
    memset(out, 0, e * sizeof *out);
    for (uint32_t j = 0; j < n_y; j++)
        for (uint32_t k = 0; k < n_x; k++) {
            const float *a = t->table + (size_t)((y0 + j) * side + x0 + k) * e, w = down[j] * across[k];
            for (uint32_t i = 0; i < e; i++) out[i] = fmaf(w, a[i], out[i]);
        }
}

void tower_positions(ae_tower *t, const tower_view *v)
{
    const ae_tower_model *m = t->model;
    const uint32_t e = m->hparams.n_embd, side = (uint32_t)sqrt((double)m->n_positions);
    for (uint32_t r = 0; r < v->across * v->down; r++) {
        const uint32_t y = (uint32_t)t->order[r] / v->across, x = (uint32_t)t->order[r] % v->across;
        float *out = t->x_host + (size_t)r * e;
        if (m->type->positions == AE_TOWER_POS_ALIGNED) put_aligned(t, side, v, x, y, out);
        if (m->type->positions == AE_TOWER_POS_BILINEAR) put_bilinear(t, side, v, x, y, out);
        if (m->type->positions == AE_TOWER_POS_BICUBIC) put_bicubic(t, side, v, x, y, out);
        if (m->type->positions == AE_TOWER_POS_ANTIALIAS) put_antialiased(t, side, v, x, y, out);
        if (m->type->positions == AE_TOWER_POS_BUCKETS)
            memcpy(out, t->table + (size_t)((uint64_t)side * y / v->down * side + (uint64_t)side * x / v->across) * e,
                   e * sizeof *out);
        if (m->type->positions == AE_TOWER_POS_AXES)
            for (uint32_t i = 0; i < e; i++)
                out[i] = t->table[(size_t)x * e + i] + t->table[((size_t)m->n_positions + y) * e + i];
    }
}

/* ---- Angles ---------------------------------------------------------------------------------------------------- */

void tower_angles(ae_tower *t, const tower_view *v)
{
    const ae_tower_model *m = t->model;
    const uint32_t half = m->hparams.head_dim / 2;
    const ae_tower_turn turn = m->type->turn;
    double freq[AE_MAX_HEAD_DIM / 2];
    bool by_x[AE_MAX_HEAD_DIM / 2];
    float *cos = t->angles_host, *sin = cos + (size_t)v->n * half;
    for (uint32_t i = 0; i < half; i++) {
        const bool second = i >= half / 2;
        const uint32_t j = turn == AE_TOWER_TURN_MIXED ? i / 2 : i % (half / 2);
        const double power = turn == AE_TOWER_TURN_SHARED ? (4.0 * j + (second ? 2.0 : 0.0)) / m->hparams.head_dim
                                                          : 2.0 * j / half;
        freq[i] = ae_pow((double)m->type->turn_base, -power);
        by_x[i] = turn == AE_TOWER_TURN_MIXED ? i % 2 == 0
                  : second != (turn == AE_TOWER_TURN_XY || turn == AE_TOWER_TURN_HALVES);
    }
    for (uint32_t r = 0; r < v->n; r++)
        for (uint32_t i = 0; i < half; i++) {
            const uint32_t patch = (uint32_t)t->order[r];
            double s, c;
            ae_sincos((by_x[i] ? patch % v->across : patch / v->across) * freq[i], &s, &c);
            cos[(size_t)r * half + i] = (float)c;
            sin[(size_t)r * half + i] = (float)s;
        }
}

void tower_places(ae_tower *t, const tower_view *v)
{
    const uint32_t o = t->model->n_out, part = o / 4;
    for (uint32_t i = 0; i < part; i++) {
        const double freq = ae_pow(10000.0, -(double)i / part);
        for (uint32_t r = 0; r < v->n; r++) {
            float *out = t->places_host + (size_t)r * o + i;
            const uint32_t patch = (uint32_t)t->order[r];
            double s, c;
            ae_sincos(patch % v->across * freq, &s, &c);
            out[0] = (float)s, out[part] = (float)c;
            ae_sincos(patch / v->across * freq, &s, &c);
            out[2 * part] = (float)s, out[3 * part] = (float)c;
        }
    }
}
