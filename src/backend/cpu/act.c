/* act.c - the tiled form of prepared activations (kernels.h), for kernels that multiply by matrix tiles.
 *
 * Derived from the row form, which stays. Work is split over k, not rows: rows of a group share cache lines. */
#include <string.h>

#include "backend/cpu/kernels.h"

static void tile_32(ae_act *act, uint32_t block, uint32_t first, uint32_t n)
{
    const size_t n_blocks = act->n_in / 32, tile = first / AE_TILE_ROWS * n_blocks + block;
    const int8_t *q = act->q32 + (size_t)first * act->n_in + (size_t)block * 32;
    const size_t from = first * n_blocks + block, to = tile * AE_TILE_ROWS;
    for (uint32_t r = 0; r < n; r++) {
        memcpy(act->t32 + (to + r) * 32, q + (size_t)r * act->n_in, 32);
        act->td32[to + r] = act->d32[from + r * n_blocks];
        act->ts32[to + r] = act->s32[from + r * n_blocks];
    }
}

static void tile_256(ae_act *act, uint32_t block, uint32_t first, uint32_t n)
{
    const size_t n_blocks = act->n_in / 32, n_units = n_blocks / 8, i_group = first / AE_TILE_ROWS;
    const size_t unit = i_group * n_units + block / 8, at = block % 8;
    const int8_t *q = act->q256 + (size_t)first * act->n_in + (size_t)block * 32;
    int8_t *t = act->t256 + (i_group * n_blocks + block / 2 * 2) * AE_TILE_ROWS * 32 + block % 2 * 32;
    int16_t *b16 = act->tb16 + (unit * 8 + at) * AE_TILE_ROWS * 2;
    int16_t *b32 = act->tb32 + (unit * 4 + at / 2) * AE_TILE_ROWS * 2 + at % 2;
    for (uint32_t r = 0; r < n; r++) {
        const size_t row = first + r;
        const int16_t *bsum = act->bsum + (row * n_blocks + block) * 2;
        memcpy(t + (size_t)r * 64, q + (size_t)r * act->n_in, 32);
        b16[2 * r] = bsum[0];
        b16[2 * r + 1] = bsum[1];
        b32[2 * r] = (int16_t)(bsum[0] + bsum[1]);
        if (at == 0) act->td256[unit * AE_TILE_ROWS + r] = act->d256[row * n_units + block / 8];
    }
}

void ae_act_tile(ae_act *act, ae_dot dot, uint32_t begin, uint32_t end)
{
    for (uint32_t block = begin; block < end; block++)
        for (uint32_t first = 0; first < act->n_rows; first += AE_TILE_ROWS) {
            const uint32_t left = act->n_rows - first, n = left < AE_TILE_ROWS ? left : AE_TILE_ROWS;
            if (dot == AE_DOT_256) tile_256(act, block, first, n);
            else tile_32(act, block, first, n);
        }
}
