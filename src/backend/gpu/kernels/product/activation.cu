/* activation.cu - prepares the rows of a product: norm or activation function, then codes.
 *
 * A block has a piece of a row; a thread computes one column of each 256. A norm's sums are computed by every block of the row
 * again: that takes less time than a second launch. The arithmetic is that of cpu/ref/rows.c. */
#include "backend/arithmetic.h"
#include "backend/gpu/kernels/args_product.h"
#include "backend/gpu/kernels/kernel.h"

#define PARTS_AT 256  /* shared: f32 [64] chains, then 8 maxima of warps, then what all threads get */
#define RESULT_AT (PARTS_AT + 32)
#define ROW_AT 320

/* Returns the sum of 64 chains, of which threads 0 to 63 have one each: the tree of ae_sum64. All threads get it. */
AE_DEV float sum_chains(uint8_t *shared, float a)
{
    const uint32_t t = ae_thread();
    if (t >= 32 && t < 64) AE_STORE_SHARED(float, shared + 4 * t, a);
    ae_sync();
    if (t < 32) {
        a += AE_LOAD_SHARED(float, shared + 4 * (t + 32));
        a = ae_fold<ae_add>(a, 16, 1);
        if (t == 0) AE_STORE_SHARED(float, shared + RESULT_AT, a);
    }
    ae_sync();
    return AE_LOAD_SHARED(float, shared + RESULT_AT);
}

enum { SUM, SUM_SQUARES, SUM_DEVIATIONS }; /* of x, x^2, (x - mean)^2 */

template <int kind> AE_DEV float chain_step(float a, float v, float mean)
{
    if (kind == SUM) return a + v;
    return kind == SUM_SQUARES ? ae_fma(v, v, a) : ae_fma(v - mean, v - mean, a);
}

#define AHEAD 32 /* elements of a chain that are loaded before they are added */

/* Returns the chain of a thread, of every 64th element. staged: the row is in shared memory. */
template <int kind, bool staged> AE_DEV float sum_chain(const float *x, const uint8_t *shared, uint32_t n, float mean)
{
    float a = 0;
    uint32_t i = ae_thread();
    const uint8_t *row = shared + ROW_AT;
    for (; i + (AHEAD - 1) * 64 < n; i += AHEAD * 64) {
        float v[AHEAD];
        AE_UNROLL
        for (uint32_t j = 0; j < AHEAD; j++) v[j] = staged ? AE_LOAD_SHARED(float, row + 4 * (i + j * 64)) : x[i + j * 64];
        AE_UNROLL
        for (uint32_t j = 0; j < AHEAD; j++) a = chain_step<kind>(a, v[j], mean);
    }
    for (; i < n; i += 64) a = chain_step<kind>(a, staged ? AE_LOAD_SHARED(float, row + 4 * i) : x[i], mean);
    return a;
}

template <int kind> AE_DEV float sum_row(const float *x, uint8_t *shared, uint32_t staged, uint32_t n, float mean)
{
    float a = 0;
    if (ae_thread() < 64)
        a = staged ? sum_chain<kind, true>(x, shared, n, mean) : sum_chain<kind, false>(x, shared, n, mean);
    return sum_chains(shared, a);
}

/* |v| as bits, which order as the numbers do; 0 for NaN. */
AE_DEV uint32_t magnitude(float v)
{
    const float a = fabsf(v);
    return a > 0.0f ? ae_as_bits(a) : 0;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
AE_DEV uint32_t warp_max(uint32_t v) { return __reduce_max_sync(0xffffffffu, v); }
AE_DEV int32_t warp_sum(int32_t v) { return __reduce_add_sync(0xffffffffu, v); }
#else
AE_DEV uint32_t warp_max(uint32_t v) { return ae_fold<ae_larger>(v, 16, 1); }
AE_DEV int32_t warp_sum(int32_t v) { return ae_fold<ae_add>(v, 16, 1); }
#endif

/* ae_round_magic, which fits int8. A NaN's bits depend on the machine; it becomes 0, as on x86. */
AE_DEV int32_t code_of(float v, float inv)
{
    const float t = ae_fma(v, inv, AE_EXP_MAGIC);
    return t == t ? static_cast<int8_t>(ae_as_bits(t) - 0x4B400000u) : 0;
}

/* Returns the squared error of 32 elements with one scale, in each of the four lanes that have it: x[j] is element lane % 4 + 4
 * j. The sums are ae_sum16's, with all but the last two additions inside a lane. */
AE_DEV float group_error(const float *x, float inv, float d)
{
    float a[4];
    AE_UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        const float e = ae_fma(x[j], inv, AE_EXP_MAGIC - ae_fma(x[j], inv, AE_EXP_MAGIC));
        const float f = ae_fma(x[j + 4], inv, AE_EXP_MAGIC - ae_fma(x[j + 4], inv, AE_EXP_MAGIC));
        a[j] = ae_fma(f, f, e * e);
    }
    return ae_fold<ae_add>((a[0] + a[2]) + (a[1] + a[3]), 2, 1) * (d * d);
}

typedef struct attempt {
    float error;
    uint32_t i;
} attempt;

struct better {
    AE_DEV attempt of(attempt x, attempt y)
    {
        return y.error < x.error || (y.error == x.error && y.i < x.i) ? y : x;
    }
};

/* Returns the code of each lane's element and the scale of the warp's 32 elements: the best of AE_QUANT_TOPS, 127 to 120. Lanes
 * 4 i to 4 i + 3 try number i. */
AE_DEV int32_t quant_group(float v, float *scale)
{
    const uint32_t lane = ae_thread() % 32, try_i = lane / 4;
    float x[8];
    ae_shfl_each<8>(x, v, lane % 4, 4);
    const float top = ae_as_float(warp_max(magnitude(v)));
    *scale = 0;
    if (!(top > 1e-30f)) return 0;
    const float t = static_cast<float>(127 - static_cast<int32_t>(try_i)), inv = t / top, d = top / t;
    /* the first try wins unless another has a smaller error: a comparison with NaN is false */
    attempt own = {group_error(x, inv, d), try_i};
    if (own.error != own.error) own.error = try_i ? INFINITY : -INFINITY;
    const float2 best = ae_shfl(make_float2(d, inv), 4 * ae_fold<better>(own, 4, 16).i);
    *scale = best.x;
    return code_of(v, best.y);
}

AE_DEV void write_32(const ae_gpu_rows &out, uint32_t row, uint32_t k, float v)
{
    float d;
    const int32_t code = quant_group(v, &d);
    const int32_t sum = warp_sum(code);
    const uint32_t i = row % AE_GPU_TILE, half = k / 32 % 2;
    if (k / 64 >= AE_MMA_PAIRS(out.n_in)) return; /* the whole warp */
    uint8_t *record = out.r32 + static_cast<size_t>(row / AE_GPU_TILE) * AE_MMA_GROUP_BYTES(out.n_in) + k / 64 * AE_MMA_RECORD;
    record[AE_MMA_Q_AT(i, half, k / 4 % 8) + k % 4] = static_cast<uint8_t>(code);
    if (k % 32) return;
    *reinterpret_cast<float *>(record + AE_MMA_DX_AT(i, half)) = d;
    *reinterpret_cast<float *>(record + AE_MMA_S_AT(i, half)) = d * static_cast<float>(sum);
}

/* All threads of the block, which have the 256 columns of a group. */
AE_DEV void write_256(const ae_gpu_activation_args &a, uint8_t *shared, uint32_t row, uint32_t k, float v)
{
    const uint32_t t = ae_thread(), i = row % AE_GPU_TILE;
    uint32_t most = warp_max(magnitude(v));
    ae_sync(); /* the maxima of the group before have been read */
    if (t % 32 == 0) AE_STORE_SHARED(uint32_t, shared + PARTS_AT + t / 32 * 4, most);
    ae_sync();
    AE_UNROLL
    for (uint32_t w = 0; w < 8; w++) most = ae_max(most, AE_LOAD_SHARED(uint32_t, shared + PARTS_AT + 4 * w));
    const float top = ae_as_float(most);
    const bool none = !(top > 1e-30f);
    const int32_t code = none ? 0 : code_of(v, 127.0f / top);
    const int32_t sum = ae_fold<ae_add>(code, 8, 1);
    const int32_t both = sum + ae_shfl_xor(sum, 16), high = (both + 64) >> 7;
    const size_t group = row / AE_GPU_TILE;
    const uint32_t n_units = a.out.n_in / 256;
    uint8_t *record = a.out.r256 + (group * n_units + k / 256) * AE_MMA_RECORD_256;
    record[t / 64 * 512 + AE_MMA_Q_AT(i, t / 32 % 2, t / 4 % 8) + t % 4] = static_cast<uint8_t>(code);
    if (t % 16 == 0 && a.want & AE_GPU_WANT_16)
        a.out.b16[((group * n_units + k / 256) * AE_GPU_TILE + i) * 16 + t / 16] = static_cast<int16_t>(sum);
    if (t % 32 == 0) {
        uint8_t *sums = record + AE_MMA_SUMS_256 + i * 16 + t / 32;
        sums[0] = static_cast<uint8_t>(both - 128 * high);
        sums[8] = static_cast<uint8_t>(high);
    }
    if (t == 0) *reinterpret_cast<float *>(record + AE_MMA_DX_256 + i * 4) = none ? 0.0f : top / 127.0f;
}

/* The sums over the whole row that the norms need. */
typedef struct row_facts {
    float mean, inv;
} row_facts;

#define AT_ONCE 4 /* loads of 16 bytes that are in flight together */

/* The row, into shared memory. */
AE_DEV void stage(const float *x, uint32_t n, uint8_t *shared)
{
    const uint32_t step = AE_GPU_ACTIVATION_THREADS, n_quads = reinterpret_cast<uintptr_t>(x) % 16 ? 0 : n / 4;
    for (uint32_t i = ae_thread(); i < n_quads; i += AT_ONCE * step) {
        uint4 v[AT_ONCE] = {};
        AE_UNROLL
        for (uint32_t j = 0; j < AT_ONCE; j++)
            if (i + j * step < n_quads) v[j] = *reinterpret_cast<const uint4 *>(x + 4 * (i + j * step));
        AE_UNROLL
        for (uint32_t j = 0; j < AT_ONCE; j++)
            if (i + j * step < n_quads) AE_STORE_SHARED(uint4, shared + ROW_AT + 16 * (i + j * step), v[j]);
    }
    for (uint32_t i = n_quads * 4 + ae_thread(); i < n; i += step) AE_STORE_SHARED(float, shared + ROW_AT + 4 * i, x[i]);
    ae_sync();
}

AE_DEV row_facts row_facts_of(const ae_gpu_activation_args &a, const float *x, uint8_t *shared)
{
    row_facts f = {0.0f, 0.0f};
    const uint32_t n = a.out.n_in;
    if (a.input != AE_INPUT_RMSNORM && a.input != AE_INPUT_LAYERNORM) return f;
    if (a.staged) stage(x, n, shared);
    float sum;
    if (a.input == AE_INPUT_LAYERNORM) {
        f.mean = sum_row<SUM>(x, shared, a.staged, n, 0.0f) / static_cast<float>(n);
        sum = sum_row<SUM_DEVIATIONS>(x, shared, a.staged, n, f.mean);
    } else {
        sum = sum_row<SUM_SQUARES>(x, shared, a.staged, n, 0.0f);
    }
    f.inv = 1.0f / sqrtf(sum / static_cast<float>(n) + a.norm_eps);
    return f;
}

/* The operands of a column's value, which are loaded before the norm's sums are ready. */
typedef struct column {
    float x, y, z; /* y: x2 or the norm's weight; z: its bias */
} column;

/* Returns the operands that are weights. */
AE_DEV column load_norm(const ae_gpu_activation_args &a, uint32_t k)
{
    column c = {0.0f, 0.0f, 0.0f};
    if (k >= a.out.n_in || (a.input != AE_INPUT_RMSNORM && a.input != AE_INPUT_LAYERNORM)) return c;
    c.y = a.norm[k];
    if (a.norm_bias) c.z = a.norm_bias[k];
    return c;
}

AE_DEV void load_input(const ae_gpu_activation_args &a, const float *x, const float *x2, uint32_t k, column *c)
{
    if (k >= a.out.n_in) return;
    c->x = x[k];
    if (x2 && a.input == AE_INPUT_GLU) c->y = x2[k];
}

AE_DEV float value_of(const ae_gpu_activation_args &a, const row_facts &f, const column &c)
{
    const ae_glu glu = static_cast<ae_glu>(a.glu);
    switch (a.input) {
    case AE_INPUT_RMSNORM: return c.x * f.inv * c.y;
    case AE_INPUT_LAYERNORM: {
        const float z = (c.x - f.mean) * f.inv * c.y;
        return a.norm_bias ? z + c.z : z;
    }
    case AE_INPUT_GLU: {
        const float g = ae_glu_of(glu, c.x, a.glu_limit);
        return a.x2 ? g * ae_glu_times(glu, c.y, glu == AE_GLU_SITU ? a.up_limit : a.glu_limit) : g;
    }
    default: return c.x;
    }
}

AE_KERNEL_EARLY(activation, ae_gpu_activation_args, AE_GPU_ACTIVATION_THREADS)
{
    AE_SHARED(shared);
    const uint32_t i_row = ae_block_x(), head = ae_block_z(), n = a.out.n_in;
    const uint32_t begin = ae_block_y() * a.columns, left = n - begin, end = left < a.columns ? n : begin + a.columns;
    column now = load_norm(a, begin + ae_thread());
    ae_depend_wait();
    const uint32_t to = a.slots ? a.slots[i_row] : i_row + head * a.head_rows;
    const uint32_t row = !a.slots ? i_row : a.shares ? i_row / a.shares : to;
    const float *x = a.x + row * a.x_stride + head * a.x_step;
    const float *x2 = a.x2 ? a.x2 + row * a.x_stride + head * a.x_step : NULL;
    load_input(a, x, x2, begin + ae_thread(), &now);
    const row_facts facts = row_facts_of(a, x, shared);
    for (uint32_t i = begin; i < end; i += 256) {
        const uint32_t k = i + ae_thread();
        float v = k < n ? value_of(a, facts, now) : 0.0f;
        if (i + 256 < end) {
            now = load_norm(a, k + 256);
            load_input(a, x, x2, k + 256, &now);
        }
        if (a.factor) v = a.factor[i_row] * v;
        if (a.want & AE_GPU_WANT_X && k < n) a.out.x[static_cast<size_t>(to) * a.out.x_stride + k] = v;
        if (a.want & AE_GPU_WANT_32) write_32(a.out, to, k, v);
        if (a.want & AE_GPU_WANT_256) write_256(a, shared, to, k, v);
    }
}
