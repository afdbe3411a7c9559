/* emu_kernels.cu - kernels that test the emulation: what kernel.h promises, and rules broken on purpose. */
#include "emu_kernels.h"

#include "backend/gpu/kernels/kernel.h"

#define LANE (ae_thread() % 32)

/* One product; fragments as the PTX manual draws them. */
AE_KERNEL(t_mma, emu_mma_args, 32)
{
    const uint32_t group = LANE / 4, k = LANE % 4 * 4;
    uint32_t fa[4], fb[2];
    for (uint32_t i = 0; i < a.k / 8; i++) memcpy(&fa[i], a.a + (group + i % 2 * 8) * a.k + k + i / 2 * 16, 4);
    for (uint32_t i = 0; i < a.k / 16; i++) memcpy(&fb[i], a.b + group * a.k + k + i * 16, 4);
    int32_t c[4];
    for (uint32_t i = 0; i < 4; i++) c[i] = a.c[(group + i / 2 * 8) * 8 + LANE % 4 * 2 + i % 2];
    if (a.k == 32) ae_mma_s8(c, fa, fb);
    else ae_mma_s8_k16(c, fa, fb);
    for (uint32_t i = 0; i < 4; i++) a.c[(group + i / 2 * 8) * 8 + LANE % 4 * 2 + i % 2] = c[i];
}

struct fold_words {
    AE_DEV uint4 of(uint4 x, uint4 y) { return make_uint4(3 * x.x + y.x, 5 * x.y + y.y, 7 * x.z + y.z, 9 * x.w + y.w); }
};

/* out [8][64]: shuffles of each type, then folds of words (their order matters) and several values of one word; in [64]: the
 * lane to take from. */
AE_KERNEL(t_shfl, emu_words_args, 64)
{
    const uint32_t t = ae_thread();
    a.out[t] = ae_shfl(t * 3, a.in[t]);
    a.out[64 + t] = ae_as_bits(ae_shfl(static_cast<float>(t), a.in[t]));
    a.out[128 + t] = static_cast<uint32_t>(ae_shfl_xor(t * 0.5 + 4e9, 5) * 2 - 8e9);
    int32_t sum = static_cast<int32_t>(t);
    for (uint32_t mask = 16; mask; mask /= 2) sum += ae_shfl_xor(sum, mask);
    a.out[192 + t] = static_cast<uint32_t>(sum);
    uint4 v = make_uint4(t, t * t, t + 1000, t ^ 77);
    for (uint32_t i = 0; i < 3; i++) v = ae_fold<fold_words>(v, 16, 1);
    a.out[256 + t] = v.x ^ v.y ^ v.z ^ v.w;
    v = ae_fold<fold_words>(v, 2, 8);
    a.out[320 + t] = v.x ^ v.y ^ v.z ^ v.w;
    uint32_t each[4];
    ae_shfl_each<4>(each, t, t % 8, 8);
    a.out[384 + t] = each[0] + 64 * (each[1] + 64 * (each[2] + 64 * each[3]));
    a.out[448 + t] = ae_shfl_xor(make_uint4(t, t + 1, t + 2, t + 3), 9).w;
}

/* One word of `in` (three, for what takes three) to one of out [n], each. */
AE_KERNEL(t_words, emu_words_args, 32)
{
    for (uint32_t i = ae_thread() + ae_block_x() * 32; i < a.n; i += 32 * ae_grid_x()) {
        const uint32_t *x = a.in + 3 * i;
        switch (a.what) {
        case WORDS_HALF: a.out[i] = ae_as_bits(ae_half(static_cast<uint16_t>(a.in[i]))); break;
        case WORDS_TO_HALF: a.out[i] = ae_to_half(ae_as_float(a.in[i])); break;
        case WORDS_PERM: a.out[i] = ae_perm(x[0], x[1], x[2]); break;
        case WORDS_DP4A:
            a.out[i] = static_cast<uint32_t>(ae_dp4a_us(x[0], x[1], ae_dp4a(x[0], x[1], static_cast<int32_t>(x[2]))));
            break;
        default: a.out[i] = ae_as_bits(ae_fma(ae_as_float(x[0]), ae_as_float(x[1]), ae_as_float(x[2])));
        }
    }
}

/* Each block counts itself in out [z][y][x], and writes its shared memory, as it found it, after them. */
AE_KERNEL(t_blocks, emu_words_args, 1)
{
    AE_SHARED(shared);
    const uint32_t at = (ae_block_z() * ae_grid_y() + ae_block_y()) * ae_grid_x() + ae_block_x();
    a.out[at] += at + 1;
    a.out[a.n + at] = AE_LOAD_SHARED(uint32_t, shared);
    AE_STORE_SHARED(uint32_t, shared, 1);
}

/* out [128]: the value written by the thread one warp before, around the ring, n times. */
AE_KERNEL(t_sync, emu_words_args, 128)
{
    AE_SHARED(shared);
    const uint32_t t = ae_thread();
    uint32_t sum = 0;
    for (uint32_t i = 0; i < a.n; i++) {
        AE_STORE_SHARED(uint32_t, shared + t * 4, t * 100 + i);
        ae_sync();
        sum += AE_LOAD_SHARED(uint32_t, shared + (t + 96) % 128 * 4);
        if (a.what == SYNC_RIGHT) ae_sync(); /* or the next store may come before a load of another thread */
    }
    a.out[t] = sum;
}

AE_KERNEL(t_bad, emu_words_args, 128)
{
    AE_SHARED(shared);
    const uint32_t t = ae_thread(), block = ae_block_x();
    const uint32_t fragments[4] = {};
    int32_t c[4] = {};
    if (block == 1 && a.what == BAD_LINES && t < 64) ae_sync();
    if (block == 1 && a.what == BAD_RETURN && t == 77) return;
    if (a.what == BAD_LANE && t != 5) c[0] = ae_shfl(c[1], 0);
    if (a.what == BAD_KINDS && t % 32 < 16) c[0] = ae_shfl(c[1], 0);
    else if (a.what == BAD_KINDS) ae_mma_s8(c, fragments, fragments);
    if (a.what == BAD_ALIGN && t == 3) a.out[1] = ae_load16(a.in + 1).x;
    if (a.what == BAD_COPY && t == 4) ae_copy16(shared + 512, a.in);
    if (a.what == BAD_BAR && t < 32) ae_bar_wait(1, 64);
    if (a.what == BAD_POST && t < 32) ae_bar_post(2, 64);
    if (a.what == BAD_COUNT && t < 64) ae_bar_post(3, t < 32 ? 64 : 96);
    ae_sync();
    a.out[block * 128 + t] = t;
}

/* A warp that is not whole. */
AE_KERNEL(t_few, emu_words_args, 48)
{
    a.out[ae_thread()] = 1;
    if (a.what) ae_sync_warp();
}

/* in [n][64 words] is copied through shared memory [2][64 words]; each thread adds words that others copied: out [64]. */
AE_KERNEL(t_copy, emu_words_args, 64)
{
    AE_SHARED(shared);
    const uint32_t t = ae_thread();
    uint32_t sum = 0;
    const uint32_t ahead = a.what == COPY_TWO_GROUPS;
    if (ahead) {
        if (t < 16) ae_copy16(shared + t * 16, a.in + t * 4);
        ae_copy_commit();
    }
    for (uint32_t i = 0; i < a.n; i++) {
        const uint32_t next = i + ahead;
        if (next < a.n && t < 16) ae_copy16(shared + next % 2 * 256 + t * 16, a.in + next * 64 + t * 4);
        ae_copy_commit();
        if (ahead) ae_copy_wait<1>();
        else if (a.what != COPY_NOT_WAITED) ae_copy_wait<0>();
        if (a.what != COPY_NOT_SYNCED) ae_sync();
        sum += AE_LOAD_SHARED(uint32_t, shared + i % 2 * 256 + t * 4);
        ae_sync();
    }
    a.out[t] = sum;
}

/* Two warps fill two stages in turn, two others add them up: n stages of 64 words; out [64]. */
AE_KERNEL(t_bars, emu_words_args, 128)
{
    AE_SHARED(shared);
    const uint32_t t = ae_thread();
    uint32_t sum = 0;
    for (uint32_t i = 0; i < a.n; i++) {
        const uint32_t stage = i % 2;
        uint8_t *room = shared + stage * 256;
        if (t < 64) {
            if (i >= 2) ae_bar_wait(3 + stage, 128); /* it is free */
            AE_STORE_SHARED(uint32_t, room + t * 4, a.in[i * 64 + t]);
            ae_bar_post(1 + stage, 128); /* it is full */
        } else {
            ae_bar_wait(1 + stage, 128);
            sum += AE_LOAD_SHARED(uint32_t, room + (t * 7 + 11) % 64 * 4);
            if (i + 2 < a.n) ae_bar_post(3 + stage, 128);
        }
    }
    if (t >= 64) a.out[t - 64] = sum;
}

/* out [n]: in [n] and the sum of a counter, by threads that never meet. */
AE_KERNEL(t_plain, emu_words_args, 256)
{
    const uint32_t i = ae_block_x() * 256 + ae_thread();
    if (i >= a.n) return;
    a.out[i] = a.in[i] * 3;
    ae_atomic_add(a.out + a.n, 1);
}
