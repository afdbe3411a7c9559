#version 460
/* exam.comp - every operation that results depend on, over arrays of bit patterns: the driver compares them with the
 * CPU's (exam.c, which lists the operations in the same order). */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args { /* ae_vk_exam_args */
    uint64_t a, b, c, results; /* uint32 [n] each; results [operations][n] */
    uint n;
};

void main()
{
    Args args = Args(push.args);
    const uint i = BLOCK_X * 64 + THREAD, n = args.n;
    if (i >= n) return;
    U32 y = U32(args.results);
    const uint ua = U32(args.a).v[i], ub = U32(args.b).v[i], uc = U32(args.c).v[i];
    const float a = uintBitsToFloat(ua), b = uintBitsToFloat(ub), c = uintBitsToFloat(uc);
    y.v[i] = floatBitsToUint(a + b);
    y.v[n + i] = floatBitsToUint(a - b);
    y.v[2 * n + i] = floatBitsToUint(a * b);
    y.v[3 * n + i] = floatBitsToUint(a * b + c);
    y.v[4 * n + i] = floatBitsToUint(ae_fma(a, b, c));
    y.v[5 * n + i] = floatBitsToUint(ae_div(a, b));
    y.v[6 * n + i] = floatBitsToUint(ae_sqrt(a));
    y.v[7 * n + i] = floatBitsToUint(ae_half(ua));
    y.v[8 * n + i] = ae_to_half(a);
    y.v[9 * n + i] = floatBitsToUint(float(int(ua)));
    y.v[10 * n + i] = floatBitsToUint(a > b ? a : b);
    y.v[11 * n + i] = floatBitsToUint(ae_expf(a));
    y.v[12 * n + i] = floatBitsToUint(ae_siluf(a));
    const float small = uintBitsToFloat(ua & 0x807fffffu | 0x40000000u), inv = uintBitsToFloat(ub & 0x7fffffu | 0x41800000u);
    y.v[13 * n + i] = uint(ae_round_magic(small, inv));
    y.v[14 * n + i] = floatBitsToUint(ae_rounding_error(small, inv));
    const double d = double(a) * 1.1LF, e = double(b) * 1.3LF;
    const uvec2 sum = unpackDouble2x32(d * e + double(c));
    y.v[15 * n + i] = sum.x;
    y.v[16 * n + i] = sum.y;
    y.v[17 * n + i] = floatBitsToUint(float(d + e));
    y.v[18 * n + i] = uint(DOT4(ua, ub) + int(uc));
}
