/* activation.c - prepared activations (kernels.h): their memory, parts of them, and their tiled form, for kernels that
 * multiply by matrix tiles.
 *
 * The tiled form is derived from the row form, which stays. Work is split over k, not rows: rows of a group share cache
 * lines. */
#include <string.h>

#include "backend/cpu/cpu_int.h"

void ae_act_layout(ae_layout *layout, size_t n_rows, size_t n_in, size_t tiled, ae_act *act)
{
    const size_t in = (n_in + 255) / 256 * 256, n = n_rows * in, t = tiled * in;
    const size_t codes = n + n / 16; /* ae_act_stride pads a row of at least 1024 bytes by 64, a sixteenth */
    act->x = ae_layout_add(layout, n, sizeof(float));
    act->q32 = ae_layout_add(layout, codes, 1);
    act->d32 = ae_layout_add(layout, n / 32, sizeof(float));
    act->sum32 = ae_layout_add(layout, n / 32, sizeof(int32_t));
    act->s32 = ae_layout_add(layout, n / 32, sizeof(float));
    act->q256 = ae_layout_add(layout, codes, 1);
    act->d256 = ae_layout_add(layout, n / 256, sizeof(float));
    act->bsum = ae_layout_add(layout, n / 16, sizeof(int16_t));
    act->t32 = ae_layout_add(layout, t, 1);
    act->td32 = ae_layout_add(layout, t / 32, sizeof(float));
    act->ts32 = ae_layout_add(layout, t / 32, sizeof(float));
    act->t256 = ae_layout_add(layout, t, 1);
    act->td256 = ae_layout_add(layout, t / 256, sizeof(float));
    act->tb16 = ae_layout_add(layout, t / 16, sizeof(int16_t));
    act->tb32 = ae_layout_add(layout, t / 32, sizeof(int16_t));
}

ae_act ae_act_slice(const ae_act *all, uint32_t first, uint32_t i_tile, uint32_t n)
{
    const size_t k = (size_t)first * all->n_in, q = first * ae_act_stride(all->n_in);
    const size_t t = (size_t)i_tile * AE_TILE_ROWS * all->n_in;
    const size_t b32 = first * (size_t)(all->n_in / 32), b256 = first * (size_t)(all->n_in / 256);
    const size_t g32 = (size_t)i_tile * AE_TILE_ROWS * (all->n_in / 32),
                 g256 = (size_t)i_tile * AE_TILE_ROWS * (all->n_in / 256);
    return (ae_act){
        .n_rows = n, .n_in = all->n_in, .x = all->x + k,
        .q32 = all->q32 + q, .d32 = all->d32 + b32, .sum32 = all->sum32 + b32, .s32 = all->s32 + b32,
        .q256 = all->q256 + q, .d256 = all->d256 + b256, .bsum = all->bsum + first * (size_t)(all->n_in / 16),
        .t32 = all->t32 + t, .td32 = all->td32 + g32, .ts32 = all->ts32 + g32,
        .t256 = all->t256 + t, .td256 = all->td256 + g256,
        .tb16 = all->tb16 + 16 * g256, .tb32 = all->tb32 + 8 * g256,
    };
}

void ae_act_copy_row(const ae_act *x, uint32_t from, const ae_act *y, uint32_t to, const ae_act_need *need)
{
    const size_t n = x->n_in, stride = ae_act_stride(n), n32 = n / 32, n256 = n / 256, n16 = n / 16;
    if (need->rows[AE_DOT_FLOAT]) memcpy(y->x + to * n, x->x + from * n, n * sizeof *x->x);
    if (need->rows[AE_DOT_32]) {
        memcpy(y->q32 + to * stride, x->q32 + from * stride, n);
        memcpy(y->d32 + to * n32, x->d32 + from * n32, n32 * sizeof *x->d32);
        memcpy(y->sum32 + to * n32, x->sum32 + from * n32, n32 * sizeof *x->sum32);
        memcpy(y->s32 + to * n32, x->s32 + from * n32, n32 * sizeof *x->s32);
    }
    if (need->rows[AE_DOT_256]) {
        memcpy(y->q256 + to * stride, x->q256 + from * stride, n);
        memcpy(y->d256 + to * n256, x->d256 + from * n256, n256 * sizeof *x->d256);
        memcpy(y->bsum + to * n16, x->bsum + from * n16, n16 * sizeof *x->bsum);
    }
}

static void tile_32(ae_act *act, uint32_t block, uint32_t first, uint32_t n)
{
    const uint32_t m = ae_act_pair_rows(act), half = block % 2;
    const size_t stride = ae_act_stride(act->n_in), n_blocks = act->n_in / 32, tile = first / AE_TILE_ROWS * n_blocks + block;
    const int8_t *q = act->q32 + first * stride + (size_t)block * 32;
    const size_t from = first * n_blocks + block, to = tile * AE_TILE_ROWS;
    int8_t *t = act->t32 + (m ? (tile - half) * AE_TILE_ROWS * 32 + half * (m * 64 + 32) : to * 32);
    const size_t t_row = m ? 64 : 32;
    for (uint32_t r = 0; r < n; r++) {
        memcpy(t + r * t_row, q + r * stride, 32);
        if (m) memset(half ? t + r * t_row - 32 : t + r * t_row + 32, 0, 32);
        act->td32[to + r] = act->d32[from + r * n_blocks];
        act->ts32[to + r] = act->s32[from + r * n_blocks];
    }
}

static void tile_256(ae_act *act, uint32_t block, uint32_t first, uint32_t n)
{
    const size_t stride = ae_act_stride(act->n_in), n_blocks = act->n_in / 32, n_units = n_blocks / 8;
    const size_t i_group = first / AE_TILE_ROWS;
    const size_t unit = i_group * n_units + block / 8, at = block % 8;
    const int8_t *q = act->q256 + first * stride + (size_t)block * 32;
    int8_t *t = act->t256 + (i_group * n_blocks + block / 2 * 2) * AE_TILE_ROWS * 32 + block % 2 * 32;
    int16_t *b16 = act->tb16 + (unit * 8 + at) * AE_TILE_ROWS * 2;
    int16_t *b32 = act->tb32 + (unit * 4 + at / 2) * AE_TILE_ROWS * 2 + at % 2;
    for (uint32_t r = 0; r < n; r++) {
        const size_t row = first + r;
        const int16_t *bsum = act->bsum + (row * n_blocks + block) * 2;
        memcpy(t + (size_t)r * 64, q + r * stride, 32);
        b16[2 * r] = bsum[0];
        b16[2 * r + 1] = bsum[1];
        b32[2 * r] = (int16_t)(bsum[0] + bsum[1]);
        if (at == 0) act->td256[unit * AE_TILE_ROWS + r] = act->d256[row * n_units + block / 8];
    }
}

void ae_act_tile(ae_act *act, ae_dot dot, uint32_t begin, uint32_t end)
{
    for (uint32_t first = 0; first < act->n_rows; first += AE_TILE_ROWS) { /* the blocks are the outer loop, since two of
                                                                            * them share cache lines */
        const uint32_t left = act->n_rows - first, n = left < AE_TILE_ROWS ? left : AE_TILE_ROWS;
        for (uint32_t block = begin; block < end; block++) {
            if (dot == AE_DOT_256) tile_256(act, block, first, n);
            else tile_32(act, block, first, n);
        }
    }
}

void ae_act_tile_needed(ae_act *act, const ae_act_need *need, uint32_t begin, uint32_t end)
{
    if (ae_act_wants_tiles(need, AE_DOT_32, act->n_rows)) ae_act_tile(act, AE_DOT_32, begin, end);
    if (ae_act_wants_tiles(need, AE_DOT_256, act->n_rows)) ae_act_tile(act, AE_DOT_256, begin, end);
}

#define PIECE 16 /* blocks of 32 k */

uint32_t ae_act_tile_pieces(uint32_t n_in)
{
    return (n_in / 32 + PIECE - 1) / PIECE;
}

void ae_act_tile_piece(ae_act *act, const ae_act_need *need, uint32_t i)
{
    const uint32_t n = act->n_in / 32, begin = i * PIECE;
    ae_act_tile_needed(act, need, begin, begin + PIECE < n ? begin + PIECE : n);
}
