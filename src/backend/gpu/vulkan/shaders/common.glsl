/* common.glsl - what all shaders share: the launch's arguments, views of memory by address, the reference's arithmetic.
 *
 * A shader does what the kernel of the same name in gpu/kernels does, over the same grid and the same struct of arguments,
 * which is in device memory; its members keep C's layout (`scalar`). Work-groups have their own size, since no shader uses
 * operations of subgroups: what threads exchange goes through shared memory.
 * Vulkan does not promise that fma, division and square root are those of IEEE 754. FMA and DIV say how each is computed; the
 * driver's examination (exam.c) chooses them. The driver decorates every operation as not to be contracted (spirv.c).
 */
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_EXT_control_flow_attributes : require

layout(constant_id = 0) const uint FMA = 1;  /* 0: fma() of the device; 1: by doubles */
layout(constant_id = 1) const uint DIV = 1;  /* 0: division and square root of the device; 1: by integers */
layout(constant_id = 2) const uint KIND = 0; /* which of the kernels that a shader implements */
layout(constant_id = 3) const uint SIZE = 1; /* for the shader to use */

layout(push_constant, scalar) uniform Push {
    uint64_t args;  /* address of the struct of arguments */
    uint first_x;   /* of this dispatch: grids may be larger than a device's */
    uint grid_x;    /* of the launch */
} push;

#define THREAD gl_LocalInvocationID.x
#define BLOCK_X (push.first_x + gl_WorkGroupID.x)
#define BLOCK_Y gl_WorkGroupID.y
#define BLOCK_Z gl_WorkGroupID.z
#define GRID_X push.grid_x

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer F32 { float v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer F64 { double v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer I32 { int v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer U32 { uint v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer U32x2 { uvec2 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer U32x4 { uvec4 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer U64 { uint64_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer U16 { uint16_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer U8 { uint8_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer I8 { int8_t v[]; };

/* ---- Operations that Vulkan does not promise -------------------------------------------------------- */

/* The product of two floats is exact as a double. The sum is rounded to odd, so that rounding it to a float rounds once. */
float fma_by_doubles(float a, float b, float c)
{
    const double p = double(a) * double(b), d = double(c), s = p + d, t = s - p, e = (p - (s - t)) + (d - t);
    uvec2 u = unpackDouble2x32(s);
    const bool rounded = e != 0.0LF && (u.x & 1u) == 0u && (u.y & 0x7ff00000u) != 0x7ff00000u;
    const bool away = (e > 0.0LF) == (s > 0.0LF);
    if (rounded) {
        if (!away && u.x == 0u) u.y--;
        u.x = away ? u.x + 1u : u.x - 1u;
    }
    return float(packDouble2x32(u));
}

float ae_fma(float a, float b, float c)
{
    if (FMA == 0) return fma(a, b, c);
    return fma_by_doubles(a, b, c);
}

/* a / b to nearest even: a quotient that the device has within a few units, then the exact remainder. */
float divide_by_integers(float a, float b)
{
    uint ua = floatBitsToUint(a), ub = floatBitsToUint(b);
    const uint sign = (ua ^ ub) & 0x80000000u;
    ua &= 0x7fffffffu;
    ub &= 0x7fffffffu;
    if (ua >= 0x7f800000u || ub >= 0x7f800000u || ua == 0u || ub == 0u) {
        if (ua > 0x7f800000u || ub > 0x7f800000u || ua == ub) return uintBitsToFloat(0x7fc00000u);
        return uintBitsToFloat(sign | (ua == 0x7f800000u || ub == 0u ? 0x7f800000u : 0u));
    }
    int ea = int(ua >> 23), eb = int(ub >> 23);
    uint ma = ua & 0x7fffffu, mb = ub & 0x7fffffu;
    if (ea == 0) {
        const int n = 23 - findMSB(ma);
        ma <<= n;
        ea = 1 - n;
    } else ma |= 0x800000u;
    if (eb == 0) {
        const int n = 23 - findMSB(mb);
        mb <<= n;
        eb = 1 - n;
    } else mb |= 0x800000u;
    int e = ea - eb;
    if (ma < mb) { /* now ma / mb is in [1, 2) */
        ma <<= 1;
        e--;
    }
    uint q = uint(float(ma) / float(mb) * 16777216.0); /* becomes floor(ma * 2^24 / mb): 25 bits */
    uint high, low, borrow;
    umulExtended(q, mb, high, low);
    low = usubBorrow(ma << 24, low, borrow);
    high = (ma >> 8) - high - borrow; /* the remainder, in two's complement */
    for (int i = 0; i < 64 && int(high) < 0; i++) {
        uint carry;
        q--;
        low = uaddCarry(low, mb, carry);
        high += carry;
    }
    for (int i = 0; i < 64 && (high != 0u || low >= mb); i++) {
        q++;
        low = usubBorrow(low, mb, borrow);
        high -= borrow;
    }
    uint m = q << 1 | uint(low != 0u); /* 26 bits: 24, and two to round by */
    int biased = e + 127;
    if (biased <= 0) {
        const int n = min(1 - biased, 30);
        m = m >> n | uint((m >> n << n) != m);
        biased = 1;
    }
    const uint rest = m & 3u;
    m = (m >> 2) + uint(rest > 2u || (rest == 2u && (m & 4u) != 0u));
    if (e + 127 <= 0) return uintBitsToFloat(sign | m);
    const uint bits = (uint(biased - 1) << 23) + m;
    return uintBitsToFloat(sign | (biased >= 255 || bits >= 0x7f800000u ? 0x7f800000u : bits));
}

float root_by_integers(float a)
{
    const uint u = floatBitsToUint(a);
    if ((u & 0x7fffffffu) == 0u || u == 0x7f800000u) return a;
    if (u > 0x7f800000u) return uintBitsToFloat(0x7fc00000u);
    int e = int(u >> 23);
    uint m = u & 0x7fffffu;
    if (e == 0) {
        const int n = 23 - findMSB(m);
        m <<= n;
        e = 1 - n;
    } else m |= 0x800000u;
    int x = e - 127;
    if ((x & 1) != 0) { /* m * 2^-23 in [1, 4), x even */
        m <<= 1;
        x--;
    }
    uint q = uint(sqrt(float(m)) * 5792.6187514801983); /* becomes floor(sqrt(m * 2^25)) */
    const uint want_high = m >> 7, want_low = m << 25;
    uint high, low;
    for (int i = 0; i < 64; i++) {
        umulExtended(q, q, high, low);
        if (high < want_high || (high == want_high && low <= want_low)) break;
        q--;
    }
    for (int i = 0; i < 64; i++) {
        umulExtended(q + 1u, q + 1u, high, low);
        if (high > want_high || (high == want_high && low > want_low)) break;
        q++;
    }
    umulExtended(q, q, high, low);
    const uint k = q << 1 | uint(high != want_high || low != want_low), rest = k & 3u;
    const uint rounded = (k >> 2) + uint(rest > 2u || (rest == 2u && (k & 4u) != 0u));
    return uintBitsToFloat((uint(x / 2 + 126) << 23) + rounded);
}

float ae_div(float a, float b)
{
    if (DIV == 0) return a / b;
    return divide_by_integers(a, b);
}

float ae_sqrt(float a)
{
    if (DIV == 0) return sqrt(a);
    return root_by_integers(a);
}

/* ---- The reference's arithmetic (base/math/fmath.h, backend/arithmetic.h) --------------------------- */

#define AE_MAGIC 12582912.0 /* 1.5 * 2^23: adding it rounds to an integer */
#define AE_INFINITY uintBitsToFloat(0x7f800000u)

float ae_half(uint bits)
{
    return unpackHalf2x16(bits & 0xffffu).x;
}

/* Rounds to nearest even by integers, since a device may truncate. NaN becomes 0x7E00. */
uint ae_to_half(float f)
{
    const uint u = floatBitsToUint(f), m = u & 0x7fffffffu, sign = u >> 16 & 0x8000u, e = m >> 23;
    if (m > 0x7f800000u) return 0x7E00u;
    if (m >= 0x477ff000u) return sign | 0x7c00u;
    if (m >= 0x38800000u) return sign | (m - 0x38000000u + 0xfffu + (m >> 13 & 1u)) >> 13;
    if (e < 102u) return sign; /* less than half of the least subnormal number */
    const uint digits = m & 0x7fffffu | 0x800000u, n = 126u - e, cut = digits >> n, rest = digits - (cut << n);
    const uint half_ = 1u << (n - 1u);
    return sign | cut + uint(rest > half_ || (rest == half_ && (cut & 1u) != 0u));
}

/* The integer nearest to p, ties to even, for |p| below 2^51. By two additions, which Vulkan rounds correctly: roundEven of
 * doubles is wrong on Mesa 22.3's lavapipe where the CPU has no AVX-512. */
double nearest(double p)
{
    const double magic = 6755399441055744.0LF; /* 1.5 * 2^52 */
    return (p + magic) - magic;
}

/* fma(x, inv, AE_MAGIC), for |x * inv| below 2^22 */
float ae_add_magic(float x, float inv)
{
    if (FMA == 0) return fma(x, inv, AE_MAGIC);
    return float(nearest(double(x) * double(inv))) + AE_MAGIC;
}

/* fma(x, inv, -q), where q is the nearest integer to x * inv: both products are exact */
float ae_rounding_error(float x, float inv)
{
    if (FMA == 0) return fma(x, inv, AE_MAGIC - fma(x, inv, AE_MAGIC));
    const double p = double(x) * double(inv);
    return float(p - nearest(p)) + 0.0; /* + 0.0: of a product of -0 the error is 0 */
}

int ae_round_magic(float x, float inv)
{
    return int(floatBitsToUint(ae_add_magic(x, inv)) - 0x4B400000u);
}

float ae_expf(float x)
{
    x = x < 88.0 ? x : 88.0;
    x = x > -87.0 ? x : -87.0;
    const float t = ae_fma(x, 1.44269504088896341, AE_MAGIC), n = t - AE_MAGIC;
    float r = ae_fma(n, -0.693359375, x);
    r = ae_fma(n, 2.12194440e-4, r);
    float p = ae_fma(1.9875691500e-4, r, 1.3981999507e-3);
    p = ae_fma(p, r, 8.3334519073e-3);
    p = ae_fma(p, r, 4.1665795894e-2);
    p = ae_fma(p, r, 1.6666665459e-1);
    p = ae_fma(p, r, 5.0000001201e-1);
    const float y = ae_fma(p, r * r, r) + 1.0;
    return y * uintBitsToFloat((floatBitsToUint(t) - 0x4B400000u + 127u) << 23);
}

float ae_attn_exp(float x)
{
    return ae_expf(x > -60.0 ? x : -60.0);
}

float ae_siluf(float x)
{
    return ae_div(x, 1.0 + ae_expf(-x));
}

float ae_minf(float a, float b) { return a < b ? a : b; }
float ae_maxf(float a, float b) { return a > b ? a : b; }

/* base/math/fmath.h */
float ae_softplusf(float x)
{
    const float u = ae_expf(-abs(x)), z = ae_div(u, 2.0 + u), zz = z * z;
    float p = ae_fma(0.0666666667, zz, 0.0769230769);
    p = ae_fma(p, zz, 0.0909090909);
    p = ae_fma(p, zz, 0.111111111);
    p = ae_fma(p, zz, 0.142857143);
    p = ae_fma(p, zz, 0.2);
    p = ae_fma(p, zz, 0.333333333);
    const float twice = z + z;
    return (x > 0.0 ? x : 0.0) + ae_fma(p * zz, twice, twice);
}

float ae_gelu_erf_of(float g)
{
    const float t = ae_minf(g * g, 27.5625);
    float p = 4.0993554037416224e-13;
    p = ae_fma(p, t, -3.861889974476895e-11);
    p = ae_fma(p, t, 1.413357764157297e-09);
    p = ae_fma(p, t, -2.238753360472856e-08);
    p = ae_fma(p, t, -7.745973640282955e-09);
    p = ae_fma(p, t, 6.537610261148075e-06);
    p = ae_fma(p, t, -0.00010664011642802507);
    p = ae_fma(p, t, -7.061020005494356e-05);
    p = ae_fma(p, t, 0.07266905158758163);
    p = ae_fma(p, t, 1.5957695245742798);
    return ae_div(g, 1.0 + ae_expf(-g * p));
}

/* f(g) of ae_glu: 0 SiLU, 1 GELU, 2 squared ReLU, 3 sigmoid, 4 gpt-oss, 5 clamped SiLU, 6 ReLU, 7 limited SiLU, 8 softplus, 9
 * GELU by erf, 10 g itself, 11 SiTU */
float ae_softcapf(float x, float cap);

float ae_glu_of(uint kind, float g, float limit)
{
    if (kind == 0u) return ae_siluf(g);
    if (kind == 1u) return ae_div(g, 1.0 + ae_expf(-1.5957691216057308 * ae_fma(0.044715 * (g * g), g, g)));
    if (kind == 2u) return ae_maxf(g, 0.0) * ae_maxf(g, 0.0);
    if (kind == 3u) return ae_div(1.0, 1.0 + ae_expf(-g));
    if (kind == 4u) return ae_div(ae_minf(g, limit), 1.0 + ae_expf(-1.702 * ae_minf(g, limit)));
    if (kind == 6u) return ae_maxf(g, 0.0);
    if (kind == 7u) return ae_siluf(ae_minf(g, limit));
    if (kind == 8u) return ae_softplusf(g);
    if (kind == 9u) return ae_gelu_erf_of(g);
    if (kind == 10u) return g;
    if (kind == 11u) return ae_div(ae_softcapf(g, limit), 1.0 + ae_expf(-g));
    return ae_minf(ae_siluf(g), limit);
}

/* in case 11, `limit` is its up_limit */
float ae_glu_times(uint kind, float u, float limit)
{
    if (kind == 4u) return ae_maxf(ae_minf(u, limit), -limit) + 1.0;
    if (kind == 5u || kind == 7u) return ae_maxf(ae_minf(u, limit), -limit);
    if (kind == 11u && limit > 0.0) return ae_softcapf(u, limit);
    return u;
}

/* The reference adds x * 0, which makes the result NaN where x is not finite; a compiler (llvmpipe's) may replace that by 0. */
float ae_softcapf(float x, float cap)
{
    const float t = ae_div(x, cap), y = cap * (1.0 - ae_div(2.0, ae_expf(t + t) + 1.0));
    const uint u = floatBitsToUint(x);
    if ((u & 0x7f800000u) == 0x7f800000u) return uintBitsToFloat(0x7fc00000u);
    return y + uintBitsToFloat(u & 0x80000000u);
}

/* ---- Codes ------------------------------------------------------------------------------------------ */

spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int ae_sdot(uint a, uint b, spirv_literal int format);

/* The dot of four int8 by four int8. */
#define DOT4(a, b) ae_sdot(a, b, 0)

/* Prepared rows, as kernels/product/mma_rows.h places them. */
#define TILE 8u
#define RECORD 640u
#define RECORD_256 2208u
#define DX_256 2048u
#define SUMS_256 2080u
#define PAIRS(n_in) (((n_in) / 32u + 1u) / 2u)
#define GROUP_BYTES(n_in) (PAIRS(n_in) * RECORD)
#define Q_AT(i, half_, w) ((i) * 64u + (w) % 4u * 16u + (half_) * 8u + (w) / 4u * 4u)
#define DX_AT(i, half_) (512u + (i) / 2u * 16u + (half_) * 8u + (i) % 2u * 4u)
#define S_AT(i, half_) (64u + DX_AT(i, half_))

struct Rows { /* ae_gpu_rows */
    uint n_rows, n_in, x_stride, unused;
    uint64_t x, r32, r256, b16;
};
