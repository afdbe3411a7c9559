/* mma.h - the body of the matrix products by mma.sync m16n8k32, for all types (args_mma.h) and up to 64 rows.
 *
 * A team of S warps computes a granule of 16 outputs for 8 C rows. Columns are in runs; warp s of the team takes runs s, s + S,
 * s + 2 S .. . It copies weights and activations ahead into stages in shared memory, and computes the integer sums of a run and
 * the scales that go with them, which may happen in any order. The sums of f32 must be in ascending k: so the accumulators go
 * from warp to warp. A warp waits for those of the run before its own, does the run's additions, and hands them on. While it
 * waits, the other warps compute integer sums.
 *
 * The T = 8 / S teams of a block work on T granules and the same rows. Those warps of each team that have the same number share
 * the stages of activations: one named barrier (column_barrier) in a run says that all copies have arrived and that the stage
 * of the run before is free again.
 *
 * Integer sums become f32 without a conversion: the accumulator of mma starts at the bits of 1.5 * 2^23, so its bits are the
 * float 1.5 * 2^23 + sum as long as |sum| < 2^22 (here at most 32 * 128 * 127). If codes are in the upper bits of their bytes,
 * the sum is a multiple of a power of two, and one fma scales and subtracts, exactly.
 */
#ifndef AE_BACKEND_GPU_KERNELS_PRODUCT_MMA_H
#define AE_BACKEND_GPU_KERNELS_PRODUCT_MMA_H

#include "backend/gpu/kernels/args_mma.h"
#include "backend/gpu/kernels/kernel.h"
#include "backend/gpu/kernels/mma_rows.h"

#ifndef AE_MMA_TRACE
#define AE_MMA_TRACE(i, point) /* for measurements: the warp reaches this point in its i-th run */
#endif

#define AE_MMA_MAGIC 0x4B400000
#define AE_MMA_MAGIC_F 12582912.0f

template <int type> struct ae_mma_form {
    static constexpr int wides[] = {
#define AE_MMA_WIDE(name, NAME, wide, bits, codes, high, scales) wide,
        AE_MMA_TYPES(AE_MMA_WIDE)
    };
    static constexpr int bytes[][3] = {
#define AE_MMA_BYTES(name, NAME, wide, bits, codes, high, scales) {codes, high, scales},
        AE_MMA_TYPES(AE_MMA_BYTES)
    };
    static constexpr bool wide = wides[type];
    static constexpr int high_at = bytes[type][0];
    static constexpr int scales_at = high_at + bytes[type][1];
    static constexpr int record = scales_at + bytes[type][2];
    static constexpr bool has_min = type == AE_MMA_Q4_1 || type == AE_MMA_Q5_1 || type == AE_MMA_Q4_K || type == AE_MMA_Q5_K;
    static constexpr bool has_table = type == AE_MMA_IQ4_NL || type == AE_MMA_IQ4_XS || type == AE_MMA_MXFP4;
    static constexpr int times = type == AE_MMA_Q4_0 ? 16 : type == AE_MMA_Q5_0 ? 8 : type == AE_MMA_Q6_K ? 4 : 1;
    static constexpr int blocks = wide ? 8 : 2; /* of a record */
    static constexpr int row_record = wide ? AE_MMA_RECORD_256 : AE_MMA_RECORD;
};

/* Eight indices, the nibbles of w, to their values: nibbles 0 .. 3 to *low, the others to *high. */
template <int type> AE_DEV void ae_mma_values(uint32_t w, uint32_t *low, uint32_t *high)
{
    constexpr bool fp4 = type == AE_MMA_MXFP4;
    constexpr uint32_t t0 = fp4 ? 0x03020100u : 0xBFAD9881u, t1 = fp4 ? 0x0C080604u : 0xF6EADDCFu;
    constexpr uint32_t t2 = fp4 ? 0xFDFEFF00u : 0x26190D01u, t3 = fp4 ? 0xF4F8FAFCu : 0x71594535u;
    const uint32_t at = w & 0x77777777u, which = 0x32103210u | (w >> 1 & 0x44444444u);
    *low = ae_perm(ae_perm(t0, t1, at), ae_perm(t2, t3, at), which);
    *high = ae_perm(ae_perm(t0, t1, at >> 16), ae_perm(t2, t3, at >> 16), which >> 16);
}

/* The fragment A of a block: a[0], a[2] row g, a[1], a[3] row g + 8. w0, w1: the words of codes of both rows; high: the word of
 * the upper bits. */
template <int type> AE_DEV void ae_mma_unpack(uint32_t w0, uint32_t w1, uint32_t high, int half, uint32_t a[4])
{
    if constexpr (ae_mma_form<type>::has_table) {
        ae_mma_values<type>(w0, &a[0], &a[2]);
        ae_mma_values<type>(w1, &a[1], &a[3]);
    } else if constexpr (type == AE_MMA_Q4_0) {
        a[0] = w0 << 4 & 0xF0F0F0F0u, a[1] = w1 << 4 & 0xF0F0F0F0u, a[2] = w0 & 0xF0F0F0F0u, a[3] = w1 & 0xF0F0F0F0u;
    } else if constexpr (type == AE_MMA_Q5_0) {
        const uint32_t h = half ? high : high << 4; /* bit 4 + i of a byte */
        a[0] = (w0 << 3 & 0x78787878u) | (h << 3 & 0x80808080u);
        a[1] = (w1 << 3 & 0x78787878u) | (h << 2 & 0x80808080u);
        a[2] = (w0 >> 1 & 0x78787878u) | (h << 1 & 0x80808080u);
        a[3] = (w1 >> 1 & 0x78787878u) | (h & 0x80808080u);
    } else if constexpr (type == AE_MMA_Q6_K) {
        a[0] = (w0 << 2 & 0x3C3C3C3Cu) | (high << 6 & 0xC0C0C0C0u);
        a[1] = (w1 << 2 & 0x3C3C3C3Cu) | (high << 4 & 0xC0C0C0C0u);
        a[2] = (w0 >> 2 & 0x3C3C3C3Cu) | (high << 2 & 0xC0C0C0C0u);
        a[3] = (w1 >> 2 & 0x3C3C3C3Cu) | (high & 0xC0C0C0C0u);
    } else {
        a[0] = w0 & 0x0F0F0F0Fu, a[1] = w1 & 0x0F0F0F0Fu, a[2] = w0 >> 4 & 0x0F0F0F0Fu, a[3] = w1 >> 4 & 0x0F0F0F0Fu;
        if constexpr (type == AE_MMA_Q5_1 || type == AE_MMA_Q5_K) {
            const uint32_t h = half ? high : high << 4;
            a[0] |= h & 0x10101010u, a[1] |= h >> 1 & 0x10101010u;
            a[2] |= h >> 2 & 0x10101010u, a[3] |= h >> 3 & 0x10101010u;
        }
    }
}

/* The fragments A of both blocks of a pair. */
template <int type> AE_DEV void ae_mma_load(const uint8_t *record, int pair, uint32_t lane, uint32_t a[2][4])
{
    typedef ae_mma_form<type> form;
    if constexpr (type == AE_MMA_Q8_0) {
        AE_UNROLL
        for (int h = 0; h < 2; h++) {
            const uint4 w = AE_LOAD_SHARED(uint4, record + h * 512 + lane * 16);
            a[h][0] = w.x, a[h][1] = w.y, a[h][2] = w.z, a[h][3] = w.w;
        }
    } else {
        const uint4 w = AE_LOAD_SHARED(uint4, record + pair * 512 + lane * 16);
        uint32_t h0 = 0, h1 = 0;
        if constexpr (type == AE_MMA_Q5_0 || type == AE_MMA_Q5_1) {
            h0 = h1 = AE_LOAD_SHARED(uint32_t, record + form::high_at + lane * 4);
        } else if constexpr (type == AE_MMA_Q5_K) {
            h0 = h1 = AE_LOAD_SHARED(uint32_t, record + form::high_at + lane * 16 + pair * 4);
        } else if constexpr (type == AE_MMA_Q6_K) {
            const uint2 high = AE_LOAD_SHARED(uint2, record + form::high_at + pair / 2 * 512 + lane * 16 + pair % 2 * 8);
            h0 = high.x, h1 = high.y;
        }
        ae_mma_unpack<type>(w.x, w.y, h0, 0, a[0]);
        ae_mma_unpack<type>(w.z, w.w, h1, 1, a[1]);
    }
}

/* What the chain of a run needs: per step (a block, or a unit of 256), rows and element of the fragment. */
template <int type, int C, int run> struct ae_mma_sums {
    static constexpr int steps = ae_mma_form<type>::wide ? run / 8 : run;
    static constexpr int mins = ae_mma_form<type>::has_min ? steps : 1;
    float sum[steps][C][4], scale[steps][C][4];
    float min[mins][C][4], min_scale[mins][C][4]; /* AE_DOT_32: m of the output, s of the row; AE_DOT_256: the sum, its scale */
};

template <int type> AE_DEV float ae_mma_scale(uint32_t bits)
{
    return type == AE_MMA_MXFP4 ? ae_as_float(bits << 16) : ae_half((uint16_t)bits);
}

template <int type> AE_DEV float ae_mma_float(int32_t sum)
{
    constexpr float part = 1.0f / ae_mma_form<type>::times;
    if constexpr (ae_mma_form<type>::times == 1) return ae_as_float((uint32_t)sum) - AE_MMA_MAGIC_F;
    return ae_fma(ae_as_float((uint32_t)sum), part, -(AE_MMA_MAGIC_F * part));
}

/* The integers of a pair of blocks of AE_DOT_32. x: the stage of activations, x_step: from group to group of rows. */
template <int type, int C, int run>
AE_DEV void ae_mma_pair(const uint8_t *record, const uint8_t *x, int x_step, int i, uint32_t lane,
                        ae_mma_sums<type, C, run> *to)
{
    typedef ae_mma_form<type> form;
    uint32_t a[2][4], d2[2], m2[2] = {0, 0};
    ae_mma_load<type>(record, 0, lane, a);
    if constexpr (form::has_min) {
        const uint4 s = AE_LOAD_SHARED(uint4, record + form::scales_at + lane / 4 * 16);
        d2[0] = s.x, d2[1] = s.y, m2[0] = s.z, m2[1] = s.w;
    } else {
        const uint2 s = AE_LOAD_SHARED(uint2, record + form::scales_at + lane / 4 * 8);
        d2[0] = s.x, d2[1] = s.y;
    }
    AE_UNROLL
    for (int c = 0; c < C; c++) {
        const uint8_t *xc = x + c * x_step;
        const uint4 q = AE_LOAD_SHARED(uint4, xc + lane * 16);
        const float4 dx = AE_LOAD_SHARED(float4, xc + AE_MMA_DX + lane % 4 * 16);
        float4 s = {0, 0, 0, 0};
        if constexpr (form::has_min) s = AE_LOAD_SHARED(float4, xc + AE_MMA_S + lane % 4 * 16);
        AE_UNROLL
        for (int h = 0; h < 2; h++) {
            const float d0 = ae_mma_scale<type>(d2[h] & 0xFFFF), d1 = ae_mma_scale<type>(d2[h] >> 16);
            const float x0 = h ? dx.z : dx.x, x1 = h ? dx.w : dx.y;
            const uint32_t b[2] = {h ? q.z : q.x, h ? q.w : q.y};
            int32_t sum[4] = {AE_MMA_MAGIC, AE_MMA_MAGIC, AE_MMA_MAGIC, AE_MMA_MAGIC};
            ae_mma_s8(sum, a[h], b);
            float *scale = to->scale[2 * i + h][c];
            scale[0] = d0 * x0, scale[1] = d0 * x1, scale[2] = d1 * x0, scale[3] = d1 * x1;
            AE_UNROLL
            for (int k = 0; k < 4; k++) to->sum[2 * i + h][c][k] = ae_mma_float<type>(sum[k]);
            if constexpr (form::has_min) {
                const float m0 = ae_mma_scale<type>(m2[h] & 0xFFFF), m1 = ae_mma_scale<type>(m2[h] >> 16);
                float *min = to->min[2 * i + h][c], *by = to->min_scale[2 * i + h][c];
                min[0] = min[1] = m0, min[2] = min[3] = m1;
                by[0] = by[2] = h ? s.z : s.x, by[1] = by[3] = h ? s.w : s.y;
            }
        }
    }
}

AE_DEV int32_t ae_mma_byte(const uint32_t *words, int i)
{
    return (int8_t)(words[i / 4] >> i % 4 * 8);
}

/* The sums of the minimums of a unit: two digits of the activations' sums times submin. */
template <int C>
AE_DEV void ae_mma_minimums(const uint8_t *submin, const uint8_t *x, int x_step, uint32_t lane, int32_t m[C][4])
{
    const uint2 s = AE_LOAD_SHARED(uint2, submin + lane / 4 * 16 + lane % 2 * 8);
    const bool is_low = lane % 4 < 2;
    const uint32_t low[2] = {is_low ? s.x : 0, is_low ? s.y : 0}, high[2] = {is_low ? 0 : s.x, is_low ? 0 : s.y};
    AE_UNROLL
    for (int c = 0; c < C; c++) {
        const uint32_t b[1] = {AE_LOAD_SHARED(uint32_t, x + c * x_step + AE_MMA_SUMS_256 + lane * 4)};
        int32_t h[4] = {0, 0, 0, 0};
        ae_mma_s8_k16(h, high, b);
        AE_UNROLL
        for (int k = 0; k < 4; k++) m[c][k] = h[k] * 128;
        ae_mma_s8_k16(m[c], low, b);
    }
}

/* Computes the integer sums of a unit of AE_DOT_256. */
template <int type, int C, int run>
AE_DEV void ae_mma_unit(const uint8_t *record, const uint8_t *x, int x_step, int i, uint32_t lane,
                        ae_mma_sums<type, C, run> *to)
{
    typedef ae_mma_form<type> form;
    constexpr bool narrow = type == AE_MMA_Q6_K; /* a sub for each 16 columns */
    const uint8_t *scales = record + form::scales_at, *sub = scales + (form::has_min ? 64 : 32);
    const uint32_t g = lane / 4;
    uint32_t sub0[4], sub1[4]; /* rows g, g + 8 */
    if constexpr (narrow) {
        const uint4 s0 = AE_LOAD_SHARED(uint4, sub + g * 16), s1 = AE_LOAD_SHARED(uint4, sub + 128 + g * 16);
        sub0[0] = s0.x, sub0[1] = s0.y, sub0[2] = s0.z, sub0[3] = s0.w;
        sub1[0] = s1.x, sub1[1] = s1.y, sub1[2] = s1.z, sub1[3] = s1.w;
    } else {
        const uint4 s = AE_LOAD_SHARED(uint4, sub + g * 16);
        sub0[0] = s.x, sub0[1] = s.y, sub1[0] = s.z, sub1[1] = s.w;
    }
    int32_t p[C][4] = {};
    AE_UNROLL
    for (int pair = 0; pair < 4; pair++) {
        uint32_t a[2][4];
        ae_mma_load<type>(record, pair, lane, a);
        AE_UNROLL
        for (int c = 0; c < C; c++) {
            const uint4 q = AE_LOAD_SHARED(uint4, x + c * x_step + pair * 512 + lane * 16);
            AE_UNROLL
            for (int h = 0; h < 2; h++) {
                const uint32_t b[2] = {h ? q.z : q.x, h ? q.w : q.y};
                const int j = 2 * pair + h;
                int32_t sum[4] = {0, 0, 0, 0};
                if constexpr (narrow) {
                    int32_t more[4] = {0, 0, 0, 0};
                    ae_mma_s8_k16(sum, a[h], b);
                    ae_mma_s8_k16(more, a[h] + 2, b + 1);
                    AE_UNROLL
                    for (int k = 0; k < 4; k++)
                        p[c][k] += sum[k] * ae_mma_byte(k < 2 ? sub0 : sub1, 2 * j) +
                                   more[k] * ae_mma_byte(k < 2 ? sub0 : sub1, 2 * j + 1);
                } else {
                    ae_mma_s8(sum, a[h], b);
                    AE_UNROLL
                    for (int k = 0; k < 4; k++) p[c][k] += sum[k] * ae_mma_byte(k < 2 ? sub0 : sub1, j);
                }
            }
        }
    }
    const uint32_t d2 = AE_LOAD_SHARED(uint32_t, scales + g * (form::has_min ? 8 : 4));
    const float d0 = ae_half((uint16_t)d2), d1 = ae_half((uint16_t)(d2 >> 16));
    float e0 = 0, e1 = 0;
    int32_t m[C][4] = {};
    if constexpr (form::has_min) {
        const uint32_t e2 = AE_LOAD_SHARED(uint32_t, scales + g * 8 + 4);
        e0 = ae_half((uint16_t)e2), e1 = ae_half((uint16_t)(e2 >> 16));
        ae_mma_minimums<C>(sub + 128, x, x_step, lane, m);
    }
    AE_UNROLL
    for (int c = 0; c < C; c++) {
        const float2 dx = AE_LOAD_SHARED(float2, x + c * x_step + AE_MMA_DX_256 + lane % 4 * 8);
        AE_UNROLL
        for (int k = 0; k < 4; k++) {
            to->sum[i][c][k] = (float)(form::times == 1 ? p[c][k] : p[c][k] >> 2);
            to->scale[i][c][k] = (k < 2 ? d0 : d1) * (k % 2 ? dx.y : dx.x);
            if constexpr (form::has_min) {
                to->min[i][c][k] = (float)m[c][k];
                to->min_scale[i][c][k] = -((k < 2 ? e0 : e1) * (k % 2 ? dx.y : dx.x));
            }
        }
    }
}

/* The additions of a run, in the order of the reference. */
template <int type, int C, int run> AE_DEV void ae_mma_chain(const ae_mma_sums<type, C, run> *s, float acc[C][4])
{
    AE_UNROLL
    for (int i = 0; i < ae_mma_sums<type, C, run>::steps; i++)
        AE_UNROLL
        for (int c = 0; c < C; c++)
            AE_UNROLL
            for (int k = 0; k < 4; k++) {
                acc[c][k] = ae_fma(s->sum[i][c][k], s->scale[i][c][k], acc[c][k]);
                if constexpr (ae_mma_form<type>::has_min) acc[c][k] = ae_fma(s->min[i][c][k], s->min_scale[i][c][k], acc[c][k]);
            }
}

/* The place of a warp, and what it copies and computes. */
template <int type, int C, int run, int S, int D> struct ae_mma_work {
    typedef ae_mma_form<type> form;
    static constexpr int T = AE_MMA_WARPS / S;
    static constexpr int records = run / form::blocks;       /* of a run */
    static constexpr int w_bytes = records * form::record;
    static constexpr int x_bytes = records * form::row_record; /* of a group of rows */
    /* The T warps that share activations divide them: each takes whole groups, or a part of one. */
    static constexpr int sharers = T > C ? T / C : 1, groups = C > T ? C / T : 1;
    static constexpr int x_copies = (x_bytes / 16 + 32 * sharers - 1) / (32 * sharers);
    static_assert(run % form::blocks == 0 && (T > C ? T % C : C % T) == 0, "uneven parts");

    uint8_t *w_to, *x_to;       /* where this lane copies to, in stage 0 */
    const uint8_t *w_at, *x_at; /* the stages [D][w_bytes], [D][C][x_bytes] */
    uint32_t n_runs;            /* of a granule */
    uint32_t short_run, short_n; /* the run with fewer than `records` records, if any, and their number */
    uint32_t group_bytes, x_from; /* x_from: offset in a job's activations of what this lane copies */
    uint32_t lane, x_lane;      /* x_lane: among the sharers */
    uint32_t need[groups];      /* bit i: some row of copy i exists */
};

/* A run of one of the granules that a block works on, one after the other. */
struct ae_mma_place {
    uint32_t r, block;     /* the run of the granule; which T granules of the launch */
    uint32_t job, granule; /* granule: of the job */
    const uint8_t *w, *x;  /* of run r, at this lane's bytes */
};

/* Whether 16 bytes at `at` of a group's activations are wanted where it has n_rows rows. */
template <int type> AE_DEV bool ae_mma_needed(uint32_t at, int32_t n_rows)
{
    typedef ae_mma_form<type> form;
    const uint32_t i = at % form::row_record / 16;
    uint32_t row;
    if constexpr (form::wide) {
        if (i >= AE_MMA_SUMS_256 / 16 && !form::has_min) return false;
        row = i < AE_MMA_DX_256 / 16 ? i % 32 / 4 : i < AE_MMA_SUMS_256 / 16 ? (i - AE_MMA_DX_256 / 16) * 4
                                                                             : i - AE_MMA_SUMS_256 / 16;
    } else {
        if (i >= AE_MMA_S / 16 && !form::has_min) return false;
        row = i < AE_MMA_DX / 16 ? i / 4 : i % 4 * 2;
    }
    return (int32_t)row < n_rows;
}

/* Begins to copy the weights of a run into stage i: n records, all of a run if `full`; zeros take the place of the others,
 * which add nothing. */
template <int type, int C, int run, int S, int D, bool full>
AE_DEV void ae_mma_copy_weights(const ae_mma_work<type, C, run, S, D> *k, const ae_mma_place *p, uint32_t i, uint32_t n)
{
    typedef ae_mma_work<type, C, run, S, D> work;
    const uint8_t *w = p->w;
    uint8_t *to = k->w_to + i * work::w_bytes;
    AE_UNROLL
    for (uint32_t j = 0; j < work::w_bytes; j += 512) {
        const uint32_t at = j + k->lane * 16;
        if (j + 512 > work::w_bytes && at >= work::w_bytes) continue;
        if (full || at < n * work::form::record) ae_copy16(to + j, w + j);
        else AE_STORE_SHARED(uint4, to + j, make_uint4(0, 0, 0, 0));
    }
}

/* Copies this warp's share of the activations in the same way. */
template <int type, int C, int run, int S, int D, bool full>
AE_DEV void ae_mma_copy_rows(const ae_mma_work<type, C, run, S, D> *k, const ae_mma_place *p, uint32_t i, uint32_t n)
{
    typedef ae_mma_work<type, C, run, S, D> work;
    const uint8_t *x = p->x;
    uint8_t *to = k->x_to + i * (C * work::x_bytes);
    AE_UNROLL
    for (int c = 0; c < work::groups; c++, x += k->group_bytes, to += work::x_bytes)
        AE_UNROLL
        for (int j = 0; j < work::x_copies; j++) {
            const uint32_t step = j * 512 * work::sharers;
            if (!(k->need[c] >> j & 1)) continue;
            if (full || step + k->x_lane * 16 < n * work::form::row_record) ae_copy16(to + step, x + step);
            else AE_STORE_SHARED(uint4, to + step, make_uint4(0, 0, 0, 0));
        }
}

template <int type, int C, int run, int S, int D>
AE_DEV void ae_mma_copy(const ae_mma_work<type, C, run, S, D> *k, const ae_mma_place *p, uint32_t i, bool weights, bool rows)
{
    typedef ae_mma_work<type, C, run, S, D> work;
    if (work::records == 1 || p->r != k->short_run) {
        if (weights) ae_mma_copy_weights<type, C, run, S, D, true>(k, p, i, work::records);
        if (rows) ae_mma_copy_rows<type, C, run, S, D, true>(k, p, i, work::records);
    } else {
        if (weights) ae_mma_copy_weights<type, C, run, S, D, false>(k, p, i, k->short_n);
        if (rows) ae_mma_copy_rows<type, C, run, S, D, false>(k, p, i, k->short_n);
    }
}

/* Enters the granules of place p->block. */
template <int type, int C, int run, int S, int D>
AE_DEV void ae_mma_enter(const ae_mma_args *a, const ae_mma_work<type, C, run, S, D> *k, ae_mma_place *p)
{
    typedef ae_mma_work<type, C, run, S, D> work;
    uint32_t granule = p->block * work::T, j = 0;
    if (granule >= a->job[a->n_jobs - 1].end) return; /* past the last run */
    while (granule >= a->job[j].end) j++;
    granule += ae_thread() / 32 / S - (j ? a->job[j - 1].end : 0);
    p->job = j, p->granule = granule;
    const uint32_t last = (a->job[j].n_out - 1) / AE_MMA_GRANULE;
    p->w = a->job[j].weight + (size_t)ae_min(granule, last) * a->n_records * work::form::record + p->r * work::w_bytes;
    p->w += k->lane * 16;
    p->x = a->job[j].rows + k->x_from + p->r * work::x_bytes;
}

/* Goes on to the warp's next run. */
template <int type, int C, int run, int S, int D>
AE_DEV void ae_mma_advance(const ae_mma_args *a, const ae_mma_work<type, C, run, S, D> *k, ae_mma_place *p)
{
    typedef ae_mma_work<type, C, run, S, D> work;
    p->r += S, p->w += S * work::w_bytes, p->x += S * work::x_bytes;
    if (p->r < k->n_runs) return;
    do p->r -= k->n_runs, p->block += ae_grid_y();
    while (p->r >= k->n_runs);
    ae_mma_enter<type, C, run, S, D>(a, k, p);
}

/* Begins to copy the first of n runs. A kernel that begins before the one that writes its activations has ended copies its
 * weights while it waits. */
template <int type, int C, int run, int S, int D>
AE_DEV void ae_mma_begin(const ae_mma_args *a, const ae_mma_work<type, C, run, S, D> *k, ae_mma_place *p, uint32_t at,
                         uint32_t n)
{
    if (a->early) {
        ae_mma_place q = *p;
        AE_UNROLL
        for (uint32_t i = 0; i < D - 1; i++) {
            if (at + i * S < n) ae_mma_copy<type, C, run, S, D>(k, &q, i, true, false);
            ae_mma_advance<type, C, run, S, D>(a, k, &q);
        }
    }
    ae_depend_wait();
    AE_UNROLL
    for (uint32_t i = 0; i < D - 1; i++) {
        if (at + i * S < n) ae_mma_copy<type, C, run, S, D>(k, p, i, !a->early, true);
        ae_copy_commit();
        ae_mma_advance<type, C, run, S, D>(a, k, p);
    }
}

/* Writes a granule's outputs. */
template <int C> AE_DEV void ae_mma_store(const ae_mma_args *a, const ae_mma_place *p, uint32_t lane, float acc[C][4])
{
    const ae_mma_job *job = &a->job[p->job];
    const float *bias = job->bias, scale = job->scale;
    float *y = job->y;
    const uint32_t n_out = job->n_out, y_stride = job->y_stride, n_rows = a->n_rows;
    const bool has_scale = job->has_scale, add = job->add;
    const uint32_t first = ae_block_x() * (8 * C) + lane % 4 * 2;
    AE_UNROLL
    for (int k = 0; k < 4; k += 2) {
        const uint32_t o = p->granule * AE_MMA_GRANULE + lane / 4 + k / 2 * 8;
        if (o >= n_out) continue;
        const float b = bias ? bias[o] : 0.0f;
        AE_UNROLL
        for (int c = 0; c < C; c++)
            AE_UNROLL
            for (int i = 0; i < 2; i++) {
                const uint32_t r = first + 8 * c + i;
                if (r >= n_rows) continue;
                float v = acc[c][k + i], *to = y + (size_t)r * y_stride + o;
                if (has_scale) v *= scale;
                if (bias) v += b;
                *to = add ? *to + v : v;
            }
    }
}

#define AE_MMA_EDGE(warp) (1 + (warp))             /* named barriers: for handing on to a warp of the block */
#define AE_MMA_COLUMN(s) (1 + AE_MMA_WARPS + (s))  /* of the warps that share activations */

template <int type, int C, int run, int S, int D>
AE_DEV void ae_mma_setup(const ae_mma_args *a, uint8_t *shared, ae_mma_work<type, C, run, S, D> *k)
{
    typedef ae_mma_work<type, C, run, S, D> work;
    const uint32_t warp = ae_thread() / 32, s = warp % S, member = warp / S;
    k->lane = ae_thread() % 32;
    k->short_n = a->n_records % work::records;
    k->short_run = k->short_n ? a->n_records / work::records : UINT32_MAX;
    k->n_runs = (a->n_records + work::records - 1) / work::records;
    k->group_bytes = a->group_bytes;
    k->x_lane = k->lane + 32 * (member % work::sharers);
    const uint32_t first = member / work::sharers * work::groups, group = ae_block_x() * C + first;
    uint8_t *w_stages = shared + warp * D * work::w_bytes;
    uint8_t *x_stages = shared + AE_MMA_WARPS * D * work::w_bytes + s * D * C * work::x_bytes;
    k->w_at = w_stages, k->x_at = x_stages;
    k->w_to = w_stages + k->lane * 16, k->x_to = x_stages + first * work::x_bytes + k->x_lane * 16;
    k->x_from = group * a->group_bytes + k->x_lane * 16;
    AE_UNROLL
    for (int c = 0; c < work::groups; c++) {
        const int32_t n_rows = (int32_t)a->n_rows - 8 * (int32_t)(group + c);
        k->need[c] = 0;
        AE_UNROLL
        for (int n = 0; n < work::x_copies; n++) {
            const uint32_t at = k->x_lane * 16 + n * 512 * work::sharers;
            if (at < work::x_bytes && ae_mma_needed<type>(at, n_rows)) k->need[c] |= 1u << n;
        }
    }
}

/* The integers of record n of the run in stage i, to the sums' record `to`. */
template <int type, int C, int run, int S, int D, int kept>
AE_DEV void ae_mma_integers(const ae_mma_work<type, C, run, S, D> *k, uint32_t i, int n, int to,
                            ae_mma_sums<type, C, kept> *sums)
{
    typedef ae_mma_work<type, C, run, S, D> work;
    const uint8_t *w = k->w_at + i * work::w_bytes + n * work::form::record;
    const uint8_t *x = k->x_at + i * (C * work::x_bytes) + n * work::form::row_record;
    if constexpr (work::form::wide) ae_mma_unit<type, C, kept>(w, x, work::x_bytes, to, k->lane, sums);
    else ae_mma_pair<type, C, kept>(w, x, work::x_bytes, to, k->lane, sums);
}

template <int C> AE_DEV void ae_mma_zero(bool when, float acc[C][4])
{
    AE_UNROLL
    for (int c = 0; c < C; c++)
        AE_UNROLL
        for (int i = 0; i < 4; i++) acc[c][i] = when ? 0.0f : acc[c][i];
}

template <int C> AE_DEV void ae_mma_take(const uint8_t *box, float acc[C][4])
{
    AE_UNROLL
    for (int c = 0; c < C; c++) {
        const float4 v = AE_LOAD_SHARED(float4, box + c * 512);
        acc[c][0] = v.x, acc[c][1] = v.y, acc[c][2] = v.z, acc[c][3] = v.w;
    }
}

template <int C> AE_DEV void ae_mma_give(uint8_t *box, float acc[C][4])
{
    AE_UNROLL
    for (int c = 0; c < C; c++)
        AE_STORE_SHARED(float4, box + c * 512, make_float4(acc[c][0], acc[c][1], acc[c][2], acc[c][3]));
}

/* The runs of all granules of a team are one sequence, in which the warps take turns. */
template <int type, int C, int run, int S, int D> AE_DEV void ae_mma_product(const ae_mma_args *a, uint8_t *shared)
{
    typedef ae_mma_work<type, C, run, S, D> work;
    const uint32_t warp = ae_thread() / 32, s = warp % S;
    const uint32_t next = warp - s + (s + 1) % S; /* the warp to hand on to */
    work k;
    ae_mma_setup<type, C, run, S, D>(a, shared, &k);
    uint8_t *boxes = shared + AE_MMA_WARPS * D * work::w_bytes + S * D * C * work::x_bytes + k.lane * 16;
    const uint32_t n = (a->each + (ae_block_y() < a->more)) * k.n_runs;

    ae_mma_place now = {}, ahead;
    now.block = ae_block_y();
    for (now.r = s; now.r >= k.n_runs; now.r -= k.n_runs) now.block += ae_grid_y();
    ae_mma_enter<type, C, run, S, D>(a, &k, &now);
    ahead = now;
    ae_mma_begin<type, C, run, S, D>(a, &k, &ahead, s, n);
    float acc[C][4] = {};
    uint32_t stage = 0, free_stage = D - 1;
    AE_NO_UNROLL
    for (uint32_t i = s; i < n; i += S) {
        AE_MMA_TRACE(i / S, 0);
        ae_copy_wait<D - 2>();
        AE_MMA_TRACE(i / S, 1);
        if constexpr (work::T > 1) ae_bar_wait(AE_MMA_COLUMN(s), 32 * work::T);
        else ae_sync_warp();
        AE_MMA_TRACE(i / S, 2);
        if (i + (D - 1) * S < n) ae_mma_copy<type, C, run, S, D>(&k, &ahead, free_stage, true, true);
        ae_copy_commit();
        ae_mma_advance<type, C, run, S, D>(a, &k, &ahead);
        AE_MMA_TRACE(i / S, 3);
        const uint32_t full = stage;
        free_stage = stage, stage = stage + 1 == D ? 0 : stage + 1;
        if constexpr (S == 1) {
            AE_MMA_TRACE(i / S, 4);
            ae_mma_zero<C>(!now.r, acc);
            AE_UNROLL
            for (int j = 0; j < work::records; j++) {
                ae_mma_sums<type, C, work::form::blocks> sums;
                ae_mma_integers(&k, full, j, 0, &sums);
                ae_mma_chain(&sums, acc);
            }
        } else {
            ae_mma_sums<type, C, run> sums;
            AE_UNROLL
            for (int j = 0; j < work::records; j++) ae_mma_integers(&k, full, j, j, &sums);
            AE_MMA_TRACE(i / S, 4);
            if (i) {
                ae_bar_wait(AE_MMA_EDGE(warp), 64);
                AE_MMA_TRACE(i / S, 5);
                ae_mma_take<C>(boxes + warp * (C * 512), acc);
            }
            ae_mma_zero<C>(!now.r, acc);
            ae_mma_chain(&sums, acc);
            if (i + 1 < n) {
                ae_mma_give<C>(boxes + next * (C * 512), acc);
                ae_bar_post(AE_MMA_EDGE(next), 64);
            }
        }
        AE_MMA_TRACE(i / S, 6);
        if (now.r + 1 == k.n_runs) ae_mma_store<C>(a, &now, k.lane, acc);
        ae_mma_advance<type, C, run, S, D>(a, &k, &now);
    }
}

#endif
