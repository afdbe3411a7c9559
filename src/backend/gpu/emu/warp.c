/* warp.c - what the lanes of a warp do together: shuffles and products of small matrices. See launch.h. */
#include <string.h>

#include "backend/gpu/emu/engine.h"

/* Fragments are laid out as in the PTX manual (mma.m16n8k32 and m16n8k16 of s8). A lane holds of A rows lane / 4 and lane / 4 +
 * 8, of B column lane / 4, each with four k from lane % 4 * 4 on, and four more 16 further; of C it holds the same rows, and
 * columns lane % 4 * 2 and the next. */
static inline __attribute__((always_inline)) void multiply(ae_emu_thread lanes[32], int n_k)
{
    int8_t a8[16 * 32], b8[8 * 32]; /* [row][k], [column][k] */
    int16_t a[16 * 32], b[8 * 32];
    for (int l = 0; l < 32; l++)
        for (int h = 0; h < n_k / 16; h++) {
            const int at = l / 4 * n_k + l % 4 * 4 + 16 * h;
            memcpy(&a8[at], &lanes[l].a[2 * h], 4);
            memcpy(&a8[at + 8 * n_k], &lanes[l].a[2 * h + 1], 4);
            memcpy(&b8[at], &lanes[l].b[h], 4);
        }
    for (int i = 0; i < 16 * n_k; i++) a[i] = a8[i];
    for (int i = 0; i < 8 * n_k; i++) b[i] = b8[i];
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++) {
            int32_t sum = 0;
            for (int k = 0; k < n_k; k++) sum += a[row * n_k + k] * b[column * n_k + k];
            int32_t *c = &lanes[row % 8 * 4 + column / 2].c[row / 8 * 2 + column % 2];
            *c = (int32_t)((uint32_t)*c + (uint32_t)sum); /* it wraps */
        }
}

void ae_emu_multiply(ae_emu_thread lanes[32], ae_emu_op op)
{
    if (op == AE_EMU_MMA_32) multiply(lanes, 32);
    else multiply(lanes, 16);
}

void ae_emu_sync_warp(const char *file, int line)
{
    if (ae_emu_is_there && !ae_emu_is_there(file, line)) return;
    ae_emu_meet_warp(ae_emu_current(), AE_EMU_SYNC_WARP, file, line);
}

ae_emu_slate *ae_emu_slate_now(void)
{
    ae_emu_engine *e = ae_emu_current();
    ae_emu_warp *w = &e->warps[e->view.thread / 32];
    return &w->slates[w->turn % 2];
}

void ae_emu_slate_copy(void *to, const void *from, size_t n)
{
    volatile uint32_t *words = to; /* so that no call of memcpy, which ThreadSanitizer would see, comes of it */
    for (size_t i = 0; i < n; i++) words[i] = ((const uint32_t *)from)[i];
}

void ae_emu_exchange(const char *file, int line)
{
    ae_emu_meet_warp(ae_emu_current(), AE_EMU_SHFL, file, line);
}

void ae_emu_mma(int32_t *c, const uint32_t *a, const uint32_t *b, int k, const char *file, int line)
{
    ae_emu_engine *e = ae_emu_current();
    ae_emu_thread *self = ae_emu_self(e);
    for (int i = 0; i < k / 8; i++) self->a[i] = a[i];
    for (int i = 0; i < k / 16; i++) self->b[i] = b[i];
    for (int i = 0; i < 4; i++) self->c[i] = c[i];
    ae_emu_meet_warp(e, k == 32 ? AE_EMU_MMA_32 : AE_EMU_MMA_16, file, line);
    for (int i = 0; i < 4; i++) c[i] = self->c[i];
}
