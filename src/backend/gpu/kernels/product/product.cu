/* product.cu - products by generic weights: every quantized type as int8 codes, and floats (args_product.h has the layouts).
 *
 * Integer weights: a warp has four outputs and walks k in steps of 1024; lane u has unit u (32 k) of the step. For eight rows
 * at a time the lanes compute integer sums and store the operands of the chains in shared memory, a pair (a, b) for each step
 * acc = fma(a, b, acc); then lane 8 * o + r walks the pairs of output o and row r in ascending k. So only the chain is not
 * split over lanes.
 * Float weights: four lanes have an output (or four outputs, where there are many rows), lane q the chains 4q to 4q + 3 of
 * k % 16. Weights come by asynchronous copies, a few stages ahead. */
#include "backend/gpu/kernels/args_product.h"
#include "backend/gpu/kernels/kernel.h"

#define OUTS 4   /* of a warp, integer weights */
#define STEP 1024
#ifdef __CUDACC__
#define UNROLL_STEPS _Pragma("unroll 4")
#else
#define UNROLL_STEPS
#endif

/* Operands of a block. */
typedef struct place {
    const uint8_t *weight;
    const float *bias;         /* or NULL */
    float *y;                  /* of the job's first row */
    size_t y_stride;
    float scale;               /* 1 without one */
    uint32_t add, n_out;
    uint32_t first_row, n_rows; /* the job's, among the prepared rows */
    uint32_t out, row;         /* the block's first output, and its first row, counted from first_row */
} place;

AE_DEV place place_of(const ae_gpu_product_args &a, uint32_t n_outs, uint32_t n_rows)
{
    uint32_t i = 0;
    while (i + 1 < a.n_jobs && ae_block_x() >= a.job[i + 1].first_block) i++;
    const ae_gpu_job &job = a.job[i];
    const uint32_t head = ae_block_z();
    place p;
    p.weight = a.n_heads ? a.heads[head] : job.weight;
    p.bias = job.bias;
    p.y = job.y + head * a.y_step;
    p.y_stride = job.y_stride;
    p.scale = a.n_heads ? a.head_scale[head] : job.has_scale ? job.scale : 1.0f;
    p.add = job.add;
    p.n_out = job.n_out;
    p.first_row = job.first_row + head * a.head_rows;
    p.n_rows = job.n_rows;
    p.out = (ae_block_x() - job.first_block) * n_outs;
    p.row = ae_block_y() * n_rows;
    return p;
}

/* Returns the block's place in a product by experts; its n_rows is 0 where the block has no rows. */
AE_DEV place place_of(const ae_gpu_expert_args &a, uint32_t n_outs, uint32_t n_rows)
{
    const uint32_t i = a.n_jobs > 1 && ae_block_x() >= a.job[1].first_block;
    const ae_gpu_expert_job &job = a.job[i];
    place p = {};
    if (ae_block_z() >= *a.n_active) return p;
    const ae_gpu_active active = a.active[ae_block_z()];
    const uint32_t e = active.expert - a.first_expert;
    p.row = ae_block_y() * n_rows;
    if (e >= AE_GPU_EXPERTS || p.row >= active.n_rows) return p;
    p.weight = job.base + static_cast<size_t>(job.offset[e]) * 64;
    p.bias = job.bias ? job.bias + static_cast<size_t>(active.expert) * job.n_out : NULL;
    p.y_stride = job.n_out;
    p.y = job.y + static_cast<size_t>(active.first_row) * job.n_out;
    p.scale = job.scale[e];
    p.n_out = job.n_out;
    p.first_row = a.one_row ? 0 : active.first_row;
    p.n_rows = active.n_rows;
    p.out = (ae_block_x() - job.first_block) * n_outs;
    return p;
}

AE_DEV void store(const place &p, uint32_t row, uint32_t out, float acc)
{
    if (row >= p.n_rows || out >= p.n_out) return;
    float *y = p.y + row * p.y_stride + out;
    acc *= p.scale;
    if (p.bias) acc += p.bias[out];
    *y = p.add ? *y + acc : acc;
}

/* ---- Integer weights ---------------------------------------------------------------------------- */

/* 32 codes of one output. */
typedef struct codes {
    uint32_t w[8]; /* words in the order 0 4 1 5 2 6 3 7, as those of activations */
} codes;

/* Returns the codes of block `half` of 32 k of a row in a record. */
AE_DEV codes load_row(const uint8_t *record, uint32_t i, uint32_t half)
{
    const uint8_t *p = record + AE_MMA_Q_AT(i, half, 0);
    const uint2 v0 = ae_load8(p), v1 = ae_load8(p + 16), v2 = ae_load8(p + 32), v3 = ae_load8(p + 48);
    codes c = {{v0.x, v0.y, v1.x, v1.y, v2.x, v2.y, v3.x, v3.y}};
    return c;
}

AE_DEV float load_float(const uint8_t *p)
{
    return ae_as_float(ae_load4(p));
}

AE_DEV codes load_codes(const void *p)
{
    const uint4 lo = ae_load16(p), hi = ae_load16(static_cast<const uint8_t *>(p) + 16);
    codes c = {{lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w}};
    return c;
}

/* Returns the sum of the first (h = 0) or last 16 products. */
AE_DEV int32_t dot_16(const codes &w, const codes &q, uint32_t h)
{
    int32_t sum = ae_dp4a(w.w[h], q.w[h], 0);
    AE_UNROLL
    for (uint32_t i = 2; i < 8; i += 2) sum = ae_dp4a(w.w[i + h], q.w[i + h], sum);
    return sum;
}

/* Lanes store pairs of one chain at different steps, and load those of different chains at one step. To spread both over the
 * banks a step has room for one pair more; where that would be more shared memory than compute capability 7.5 has
 * (AE_GPU_PRODUCT_SHARED), the chains of a step are rotated instead, by one from unit to unit. */
template <int form> struct pair_form {
    static constexpr bool rotated = form == AE_GPU_FORM_32_MIN || form == AE_GPU_FORM_32_TWO;
    static constexpr uint32_t stride = rotated ? 32 : 33;
};

/* The place of a chain's pair among those of the step. */
template <int form> AE_DEV uint32_t pair_of(uint32_t step, uint32_t chain)
{
    return pair_form<form>::rotated ? (chain + step / 2) % 32 : chain;
}

template <int form> AE_DEV void put(uint8_t *pairs, uint32_t step, uint32_t chain, float x, float y)
{
    AE_STORE_SHARED(float2, pairs + (step * pair_form<form>::stride + pair_of<form>(step, chain)) * 8, make_float2(x, y));
}

#define AHEAD 8 /* pairs that are loaded before they are used */

/* acc after n chain steps. */
template <int form> AE_DEV float walk(const uint8_t *pairs, uint32_t n, float acc)
{
    constexpr uint32_t stride = pair_form<form>::stride;
    const uint32_t lane = ae_thread() % 32;
    uint32_t i = 0;
    for (; i + AHEAD <= n; i += AHEAD, pairs += AHEAD * stride * 8) {
        float2 p[AHEAD];
        AE_UNROLL
        for (uint32_t j = 0; j < AHEAD; j++)
            p[j] = AE_LOAD_SHARED(float2, pairs + (j * stride + pair_of<form>(i + j, lane)) * 8);
        AE_UNROLL
        for (uint32_t j = 0; j < AHEAD; j++) acc = ae_fma(p[j].x, p[j].y, acc);
    }
    for (; i < n; i++, pairs += stride * 8) {
        const float2 p = AE_LOAD_SHARED(float2, pairs + pair_of<form>(i, lane) * 8);
        acc = ae_fma(p.x, p.y, acc);
    }
    return acc;
}

/* Where the planes of a weight are. */
typedef struct planes {
    const int8_t *codes;
    const float *d, *m; /* m: also dmin */
    const int8_t *sub, *submin;
} planes;

template <int form> AE_DEV planes planes_of(const uint8_t *weight, uint32_t n_out, uint32_t n_in)
{
    const size_t n16 = (n_out + 15) / 16 * 16, n = n16 * n_in;
    planes p = {};
    p.codes = reinterpret_cast<const int8_t *>(weight);
    p.d = reinterpret_cast<const float *>(weight + n);
    if (form == AE_GPU_FORM_32_MIN) p.m = p.d + n / 32;
    if (form >= AE_GPU_FORM_256) p.sub = reinterpret_cast<const int8_t *>(p.d + n / 256);
    if (form == AE_GPU_FORM_256_MIN) {
        p.m = reinterpret_cast<const float *>(p.sub + n / 16);
        p.submin = reinterpret_cast<const int8_t *>(p.m + n / 256);
    }
    return p;
}

/* Eight rows from `row` on, of which `n` are there; codes `w` of the lane's unit u, the first of the step being `begin`. Writes
 * the pairs of the step. */
template <int form> AE_DEV void pairs_32(const ae_gpu_rows &rows, const planes &p, const codes *w, uint32_t out, uint32_t u,
                                         uint32_t row, uint32_t n, uint8_t *pairs)
{
    const uint32_t lane = ae_thread() % 32, n_units = rows.n_in / 32;
    const uint32_t n_pairs = form == AE_GPU_FORM_32 ? 1 : 2;
    if (u >= n_units) return;
    const uint8_t *record = rows.r32 + static_cast<size_t>(row / AE_GPU_TILE) * AE_MMA_GROUP_BYTES(rows.n_in) +
                            u / 2 * AE_MMA_RECORD;
    float d[OUTS][2], m[OUTS];
    AE_UNROLL
    for (uint32_t o = 0; o < OUTS; o++) {
        const size_t unit = static_cast<size_t>(out + o) * n_units + u;
        d[o][0] = p.d[form == AE_GPU_FORM_32_TWO ? 2 * unit : unit];
        d[o][1] = form == AE_GPU_FORM_32_TWO ? p.d[2 * unit + 1] : 0.0f;
        m[o] = form == AE_GPU_FORM_32_MIN ? p.m[unit] : 0.0f;
    }
    AE_UNROLL
    for (uint32_t r = 0; r < AE_GPU_TILE; r++) {
        if (r >= n) break;
        const codes q = load_row(record, r, u % 2);
        const float dx = load_float(record + AE_MMA_DX_AT(r, u % 2));
        const float sx = form == AE_GPU_FORM_32_MIN ? load_float(record + AE_MMA_S_AT(r, u % 2)) : 0.0f;
        AE_UNROLL
        for (uint32_t o = 0; o < OUTS; o++) {
            const int32_t lo = dot_16(w[o], q, 0), hi = dot_16(w[o], q, 1);
            const uint32_t chain = o * AE_GPU_TILE + r, step = lane * n_pairs;
            if (form == AE_GPU_FORM_32_TWO) {
                put<form>(pairs, step, chain, static_cast<float>(lo), d[o][0] * dx);
                put<form>(pairs, step + 1, chain, static_cast<float>(hi), d[o][1] * dx);
            } else {
                put<form>(pairs, step, chain, static_cast<float>(lo + hi), d[o][0] * dx);
                if (form == AE_GPU_FORM_32_MIN) put<form>(pairs, step + 1, chain, m[o], sx);
            }
        }
    }
}

/* v[0..7] of eight neighbouring lanes: lane i of them gets the sum of their v[i]. */
AE_DEV int32_t sum_transposed(int32_t *v)
{
    const uint32_t lane = ae_thread();
    AE_UNROLL
    for (uint32_t s = 4; s; s /= 2)
        AE_UNROLL
        for (uint32_t i = 0; i < s; i++) {
            const bool upper = lane & s;
            const int32_t mine = upper ? v[i + s] : v[i], other = upper ? v[i] : v[i + s];
            v[i] = mine + ae_shfl_xor(other, s);
        }
    return v[0];
}

AE_DEV int32_t low16(uint32_t v) { return static_cast<int16_t>(v); }
AE_DEV int32_t high16(uint32_t v) { return static_cast<int32_t>(v) >> 16; }

/* Returns the sum of submin * bsum over 16 sub-blocks; bits: int8 [16] submin, b: int16 [16]. */
AE_DEV int32_t min_sum(const uint4 &bits, const uint32_t *b)
{
    const uint32_t m[4] = {bits.x, bits.y, bits.z, bits.w};
    int32_t sum = 0;
    AE_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t pair = m[i / 2] >> i % 2 * 16;
        sum += static_cast<int8_t>(pair) * low16(b[i]) + static_cast<int8_t>(pair >> 8) * high16(b[i]);
    }
    return sum;
}

/* As pairs_32; unit u of 32 is part u % 8 of a unit of 256. Each lane finishes one row of its unit of 256. */
template <int form> AE_DEV void pairs_256(const ae_gpu_rows &rows, const planes &p, const codes *w, const uint32_t *sub,
                                          uint32_t out, uint32_t u, uint32_t row, uint32_t n, uint8_t *pairs)
{
    const uint32_t lane = ae_thread() % 32, n_units = rows.n_in / 256, big = u / 8, mine = lane % 8;
    const uint32_t n_pairs = form == AE_GPU_FORM_256 ? 1 : 2;
    const bool there = big < n_units;
    const size_t at = static_cast<size_t>(row / AE_GPU_TILE) * n_units + (there ? big : 0);
    const uint8_t *record = rows.r256 + at * AE_MMA_RECORD_256;
    int32_t v[OUTS][AE_GPU_TILE] = {};
    AE_UNROLL
    for (uint32_t r = 0; r < AE_GPU_TILE; r++) {
        if (r >= n || !there) break;
        const codes q = load_row(record + u % 8 / 2 * 512, r, u % 2);
        AE_UNROLL
        for (uint32_t o = 0; o < OUTS; o++)
            v[o][r] = low16(sub[o]) * dot_16(w[o], q, 0) + high16(sub[o]) * dot_16(w[o], q, 1);
    }
    uint32_t b[8] = {};
    float dx = 0;
    if (there && mine < n) {
        dx = load_float(record + AE_MMA_DX_256 + mine * 4);
        if (form == AE_GPU_FORM_256_MIN) {
            const int16_t *sums = rows.b16 + (at * AE_GPU_TILE + mine) * 16;
            const uint4 lo = ae_load16(sums), hi = ae_load16(sums + 8);
            b[0] = lo.x, b[1] = lo.y, b[2] = lo.z, b[3] = lo.w, b[4] = hi.x, b[5] = hi.y, b[6] = hi.z, b[7] = hi.w;
        }
    }
    AE_UNROLL
    for (uint32_t o = 0; o < OUTS; o++) {
        const int32_t sum = sum_transposed(v[o]);
        if (!there || mine >= n) continue;
        const size_t unit = static_cast<size_t>(out + o) * n_units + big;
        const uint32_t chain = o * AE_GPU_TILE + mine, step = lane / 8 * n_pairs;
        put<form>(pairs, step, chain, static_cast<float>(sum), p.d[unit] * dx);
        if (form == AE_GPU_FORM_256_MIN)
            put<form>(pairs, step + 1, chain, static_cast<float>(min_sum(ae_load16(p.submin + unit * 16), b)),
                      -(p.m[unit] * dx));
    }
}

template <int form> AE_DEV void product(const ae_gpu_rows &rows, const place &at, uint8_t *shared)
{
    const bool wide = form >= AE_GPU_FORM_256;
    const uint32_t steps = form == AE_GPU_FORM_32 ? 32 : form == AE_GPU_FORM_256 ? 4 : wide ? 8 : 64; /* of a chain, per STEP */
    const uint32_t lane = ae_thread() % 32, out = at.out + ae_thread() / 32 * OUTS, n_in = rows.n_in;
    const uint32_t n_groups = ae_min((at.n_rows - at.row + AE_GPU_TILE - 1) / AE_GPU_TILE,
                                     static_cast<uint32_t>(AE_GPU_PRODUCT_ROWS / AE_GPU_TILE));
    const planes p = planes_of<form>(at.weight, at.n_out, n_in);
    uint8_t *pairs = shared + ae_thread() / 32 * (AE_GPU_PRODUCT_SHARED(steps) / 4);
    float acc[AE_GPU_PRODUCT_ROWS / AE_GPU_TILE] = {};
    AE_NO_UNROLL
    for (uint32_t k = 0; k < n_in; k += STEP) {
        const uint32_t u = k / 32 + lane, left = n_in - k;
        const uint32_t n_steps = left >= STEP ? steps : left / (wide ? 256 : 32) * (wide ? steps / 4 : steps / 32);
        codes w[OUTS] = {};
        uint32_t sub[OUTS] = {};
        AE_UNROLL
        for (uint32_t o = 0; o < OUTS; o++) {
            if (u * 32 >= n_in) continue;
            w[o] = load_codes(p.codes + static_cast<size_t>(out + o) * n_in + u * 32);
            if (!wide) continue;
            const int8_t *two = p.sub + (static_cast<size_t>(out + o) * n_in + u * 32) / 16;
            sub[o] = static_cast<uint16_t>(two[0]) | static_cast<uint32_t>(static_cast<uint16_t>(two[1])) << 16;
        }
        AE_UNROLL
        for (uint32_t g = 0; g < AE_GPU_PRODUCT_ROWS / AE_GPU_TILE; g++) {
            if (g >= n_groups) break;
            const uint32_t row = at.row + g * AE_GPU_TILE, n = at.n_rows - row;
            ae_sync_warp(); /* the pairs of the group before have been read */
            if (wide) pairs_256<form>(rows, p, w, sub, out, u, at.first_row + row, n, pairs);
            else pairs_32<form>(rows, p, w, out, u, at.first_row + row, n, pairs);
            ae_sync_warp();
            acc[g] = walk<form>(pairs, n_steps, acc[g]);
        }
    }
    AE_UNROLL
    for (uint32_t g = 0; g < AE_GPU_PRODUCT_ROWS / AE_GPU_TILE; g++)
        store(at, at.row + g * AE_GPU_TILE + lane % AE_GPU_TILE, out + lane / AE_GPU_TILE, acc[g]);
}

#define INTEGER_KERNELS(name, form) \
    AE_KERNEL(product_##name, ae_gpu_product_args, AE_GPU_PRODUCT_THREADS) \
    { \
        AE_SHARED(shared); \
        product<form>(a.rows, place_of(a, AE_GPU_PRODUCT_OUT, AE_GPU_PRODUCT_ROWS), shared); \
    } \
    AE_KERNEL(experts_##name, ae_gpu_expert_args, AE_GPU_PRODUCT_THREADS) \
    { \
        AE_SHARED(shared); \
        const place at = place_of(a, AE_GPU_PRODUCT_OUT, AE_GPU_PRODUCT_ROWS); \
        if (at.n_rows) product<form>(a.rows, at, shared); \
    }

INTEGER_KERNELS(32, AE_GPU_FORM_32)
INTEGER_KERNELS(32_min, AE_GPU_FORM_32_MIN)
INTEGER_KERNELS(32_two, AE_GPU_FORM_32_TWO)
INTEGER_KERNELS(256, AE_GPU_FORM_256)
INTEGER_KERNELS(256_min, AE_GPU_FORM_256_MIN)

/* ---- Float weights ------------------------------------------------------------------------------ */

/* The shape of a block: each warp has eight rows of outputs, `outs` times. A stage holds `bytes` of each row of weights, and
 * there are `deep` stages. The distance of rows in shared memory makes lanes read different banks. */
template <int form, int shape> struct float_shape {
    static constexpr uint32_t size = form == AE_GPU_FORM_F32 ? 4 : 2;
    static constexpr uint32_t outs = shape == AE_GPU_WIDE ? AE_GPU_WIDE_TIMES : 1;
    static constexpr uint32_t rows = AE_GPU_FLOAT_OUT(shape) / outs; /* of outputs, at a time */
    static constexpr uint32_t threads = AE_GPU_FLOAT_THREADS(shape);
    static constexpr uint32_t bytes = AE_GPU_FLOAT_STAGE(shape);
    static constexpr uint32_t pitch = AE_GPU_FLOAT_PITCH(shape, size);
    static constexpr uint32_t deep = AE_GPU_FLOAT_STAGES(shape);
};

/* Four weights. */
template <int form> AE_DEV float4 load_weights(const uint8_t *p)
{
    if (form == AE_GPU_FORM_F32) return AE_LOAD_SHARED(float4, p);
    const uint2 v = AE_LOAD_SHARED(uint2, p);
    if (form == AE_GPU_FORM_BF16)
        return make_float4(ae_as_float(v.x << 16), ae_as_float(v.x & 0xffff0000u), ae_as_float(v.y << 16),
                           ae_as_float(v.y & 0xffff0000u));
    return make_float4(ae_half(static_cast<uint16_t>(v.x)), ae_half(static_cast<uint16_t>(v.x >> 16)),
                       ae_half(static_cast<uint16_t>(v.y)), ae_half(static_cast<uint16_t>(v.y >> 16)));
}

/* One step of four chains; the last columns of a row may be fewer than four. */
AE_DEV void chain_step(float *acc, const float4 &w, const float4 &x, uint32_t n)
{
    if (n > 0) acc[0] = ae_fma(w.x, x.x, acc[0]);
    if (n > 1) acc[1] = ae_fma(w.y, x.y, acc[1]);
    if (n > 2) acc[2] = ae_fma(w.z, x.z, acc[2]);
    if (n > 3) acc[3] = ae_fma(w.w, x.w, acc[3]);
}

AE_DEV float4 load_x(const float *x)
{
    const uint4 v = ae_load16(x);
    return make_float4(ae_as_float(v.x), ae_as_float(v.y), ae_as_float(v.z), ae_as_float(v.w));
}

struct add_four {
    AE_DEV float4 of(float4 x, float4 y) { return make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w); }
};

/* The sixteen chains of an output stand in four neighbouring lanes: ae_sum16. */
AE_DEV float sum_16(const float *acc)
{
    const float4 sum = ae_fold<add_four>(make_float4(acc[0], acc[1], acc[2], acc[3]), 2, 1);
    return (sum.x + sum.z) + (sum.y + sum.w);
}

/* Starts the copy of stage i of the block's rows of weights. */
template <class shape> AE_DEV void start_stage(const place &at, size_t row_bytes, uint32_t i, uint8_t *shared)
{
    constexpr uint32_t parts = shape::bytes / 16, rows = shape::threads / parts ? shape::threads / parts : 1;
    uint8_t *stage = shared + i % shape::deep * (shape::rows * shape::outs * shape::pitch);
    AE_UNROLL
    for (uint32_t r = 0; r < shape::rows * shape::outs; r += rows)
        AE_UNROLL
        for (uint32_t p = 0; p < parts; p += shape::threads) {
            const uint32_t row = r + ae_thread() / parts, out = at.out + row, part = (p + ae_thread() % parts) * 16;
            const size_t from = static_cast<size_t>(i) * shape::bytes + part;
            if (from >= row_bytes || out >= at.n_out) continue;
            ae_copy16(stage + row * shape::pitch + part, at.weight + out * row_bytes + from);
        }
    ae_copy_commit();
}

/* The columns [k, k + 16) of a stage: `w` are the lane's four weights of the first of its outputs. */
template <int form, class shape> AE_DEV void step_16(float (*acc)[AE_GPU_FLOAT_ROWS][4], const uint8_t *w, const float *x,
                                                     size_t x_stride, uint32_t n_rows, uint32_t n)
{
    float4 v[shape::outs];
    AE_UNROLL
    for (uint32_t o = 0; o < shape::outs; o++) v[o] = load_weights<form>(w + o * (shape::rows * shape::pitch));
    AE_UNROLL
    for (uint32_t r = 0; r < AE_GPU_FLOAT_ROWS; r++) {
        if (r >= n_rows) break;
        const float4 xr = load_x(x + r * x_stride);
        AE_UNROLL
        for (uint32_t o = 0; o < shape::outs; o++) chain_step(acc[o][r], v[o], xr, n);
    }
}

template <int form, int kind> AE_DEV void product_float(const ae_gpu_rows &rows, const place &at, uint8_t *shared)
{
    typedef float_shape<form, kind> shape;
    const uint32_t quarter = ae_thread() % 4, out = ae_thread() / 4, n = at.n_rows - at.row, n_in = rows.n_in;
    constexpr uint32_t columns = shape::bytes / shape::size;
    const uint32_t n_stages = (n_in + columns - 1) / columns;
    const size_t row_bytes = static_cast<size_t>((n_in + 15) / 16 * 16) * shape::size;
    const float *x = rows.x + static_cast<size_t>(at.first_row + at.row) * rows.x_stride + quarter * 4;
    float acc[shape::outs][AE_GPU_FLOAT_ROWS][4] = {};
    for (uint32_t i = 0; i + 1 < shape::deep; i++) start_stage<shape>(at, row_bytes, i, shared);
    AE_NO_UNROLL
    for (uint32_t i = 0; i < n_stages; i++) {
        ae_copy_wait<shape::deep - 2>();
        ae_sync();
        start_stage<shape>(at, row_bytes, i + shape::deep - 1, shared);
        const uint8_t *w = shared + (i % shape::deep * (shape::rows * shape::outs) + out) * shape::pitch +
                           quarter * 4 * shape::size;
        const uint32_t k = i * columns, full = ae_min(columns, n_in - k) / 16 * 16;
        UNROLL_STEPS
        for (uint32_t c = 0; c < full; c += 16)
            step_16<form, shape>(acc, w + c * shape::size, x + k + c, rows.x_stride, n, 4);
        const uint32_t last = k + full + quarter * 4; /* of the row's end, where it is not a multiple of 16 */
        if (full < columns && last < n_in)
            step_16<form, shape>(acc, w + full * shape::size, x + k + full, rows.x_stride, n, ae_min(n_in - last, 4u));
    } /* nothing is under way: the waits above cover all stages of the row, and those after its end copy nothing */
    AE_UNROLL
    for (uint32_t o = 0; o < shape::outs; o++)
        AE_UNROLL
        for (uint32_t r = 0; r < AE_GPU_FLOAT_ROWS; r++) {
            const float sum = sum_16(acc[o][r]);
            if (quarter == r % 4) store(at, at.row + r, at.out + o * shape::rows + out, sum);
        }
}

#define FLOAT_KERNEL(name, form, shape) \
    AE_KERNEL(name, ae_gpu_product_args, AE_GPU_FLOAT_THREADS(shape)) \
    { \
        AE_SHARED(shared); \
        product_float<form, shape>(a.rows, place_of(a, AE_GPU_FLOAT_OUT(shape), AE_GPU_FLOAT_ROWS), shared); \
    }

#define FLOAT_KERNELS(name, form) \
    FLOAT_KERNEL(product_##name, form, AE_GPU_PLAIN) \
    FLOAT_KERNEL(product_##name##_wide, form, AE_GPU_WIDE) \
    FLOAT_KERNEL(product_##name##_narrow, form, AE_GPU_NARROW) \
    AE_KERNEL(experts_##name, ae_gpu_expert_args, AE_GPU_PRODUCT_THREADS) \
    { \
        AE_SHARED(shared); \
        const place at = place_of(a, AE_GPU_FLOAT_OUT(AE_GPU_PLAIN), AE_GPU_FLOAT_ROWS); \
        if (at.n_rows) product_float<form, AE_GPU_PLAIN>(a.rows, at, shared); \
    }

FLOAT_KERNELS(f32, AE_GPU_FORM_F32)
FLOAT_KERNELS(f16, AE_GPU_FORM_F16)
FLOAT_KERNELS(bf16, AE_GPU_FORM_BF16)
