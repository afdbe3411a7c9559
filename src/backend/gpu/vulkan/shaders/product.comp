#version 460
/* product.comp - products by generic integer weights: product_32 .. product_256_min, and with SIZE 1 the same of experts.
 * KIND: the form (kernels/args_product.h).
 *
 * A work-group has 16 outputs and up to 32 rows, and walks k in steps of 256. For eight rows at a time, thread (output o,
 * part u of 32 k) computes exact integer sums and stores the operands of the chain of (o, row) in shared memory; then thread
 * (o, r) continues the chain of output o and row r. So only the chain is not split over threads. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "product_place.glsl"

layout(local_size_x = 128) in;

#define OUTS 16u
#define ROWS 32u
#define CHAINS 129u /* words of shared memory from a pair to the next one of its chain; one more than chains, against bank
                     * conflicts */
#define N_PAIRS ((KIND == FORM_32_MIN || KIND == FORM_32_TWO) ? 2u : 1u) /* of 32 k */

layout(constant_id = 4) const uint SLOTS = 16; /* pairs of a chain in a step: 8, 16 */
shared uvec2 pairs[SLOTS * 129];

uint codes[8]; /* of the thread's output and 32 k */

int dot_16(uint q[8], uint h)
{
    return DOT4(codes[h], q[h]) + DOT4(codes[h + 2], q[h + 2]) + DOT4(codes[h + 4], q[h + 4]) + DOT4(codes[h + 6], q[h + 6]);
}

void load_row(uint64_t record, uint i, uint half_, out uint q[8])
{
    [[unroll]] for (uint j = 0; j < 4; j++) {
        const uvec2 two = U32x2(record + Q_AT(i, half_, j)).v[0];
        q[2 * j] = two.x;
        q[2 * j + 1] = two.y;
    }
}

float load_float(uint64_t p)
{
    return F32(p).v[0];
}

/* The planes of the weight. */
uint64_t plane_d, plane_m, plane_sub, plane_submin;

void find_planes(Place p, uint n_in)
{
    const uint64_t n = uint64_t((p.n_out + 15) / 16 * 16) * n_in;
    plane_d = p.weight + (is_narrow(p.type) ? n / 2 : n);
    plane_m = plane_d + n / 32 * 4;
    if (KIND < FORM_256) return;
    plane_sub = plane_d + n / 256 * 4;
    plane_m = plane_sub + n / 16;
    plane_submin = plane_m + n / 256 * 4;
}

/* Nibbles as signed bytes. */
uint as_signed(uint four)
{
    return (((four ^ 0x08080808u) | 0x80808080u) - 0x08080808u) ^ 0x80808080u;
}

/* The codes from element k of an output on. */
void load_codes(Place at, uint out_, uint n_in, uint k)
{
    const uint64_t p = uint64_t(out_) * n_in + k;
    if (!is_narrow(at.type)) {
        const uvec4 low = U32x4(at.weight + p).v[0], high = U32x4(at.weight + p).v[1];
        codes = uint[8](low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w);
        return;
    }
    const uvec4 both = U32x4(at.weight + p / 2).v[0];
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const uint low = both[i] & 0x0f0f0f0fu, high = both[i] >> 4 & 0x0f0f0f0fu;
        codes[2 * i] = has_signed_codes(at.type) ? as_signed(low) : low;
        codes[2 * i + 1] = has_signed_codes(at.type) ? as_signed(high) : high;
    }
}

/* Parts of AE_DOT_32: rows [row, row + n) of the prepared ones, unit u of 32 k, of output out_. */
void put_32(Rows rows, uint out_, uint u, uint row, uint n)
{
    const uint64_t unit = uint64_t(out_) * (rows.n_in / 32) + u;
    const uint64_t record = rows.r32 + uint64_t(row / TILE) * GROUP_BYTES(rows.n_in) + u / 2 * RECORD;
    const float d0 = load_float(plane_d + (KIND == FORM_32_TWO ? 2ul * unit : unit) * 4ul);
    const float d1 = KIND == FORM_32_TWO ? load_float(plane_d + (2ul * unit + 1ul) * 4ul) : 0.0;
    const float m = KIND == FORM_32_MIN ? load_float(plane_m + unit * 4ul) : 0.0;
    const uint chain = THREAD / 8 * TILE, at = u % 8 * N_PAIRS * CHAINS;
    for (uint r = 0; r < n; r++) {
        uint q[8];
        load_row(record, r, u % 2, q);
        const int low = dot_16(q, 0), high = dot_16(q, 1);
        const float dx = load_float(record + DX_AT(r, u % 2));
        if (KIND == FORM_32_TWO) {
            pairs[at + chain + r] = uvec2(floatBitsToUint(float(low)), floatBitsToUint(d0 * dx));
            pairs[at + CHAINS + chain + r] = uvec2(floatBitsToUint(float(high)), floatBitsToUint(d1 * dx));
        } else {
            pairs[at + chain + r] = uvec2(floatBitsToUint(float(low + high)), floatBitsToUint(d0 * dx));
        }
        if (KIND == FORM_32_MIN) {
            const float s = load_float(record + S_AT(r, u % 2));
            pairs[at + CHAINS + chain + r] = uvec2(floatBitsToUint(m), floatBitsToUint(s));
        }
    }
}

/* The same of AE_DOT_256; u is a part of 32 k of unit `big`. The operands are integers. */
void put_256(Rows rows, uint out_, uint big, uint u, uint row, uint n)
{
    const uint64_t group = uint64_t(row / TILE) * (rows.n_in / 256) + big;
    const uint64_t record = rows.r256 + group * RECORD_256;
    const uint64_t part = (uint64_t(out_) * rows.n_in + big * 256u + u * 32u) / 16ul;
    const int sub0 = int(I8(plane_sub + part).v[0]), sub1 = int(I8(plane_sub + part).v[1]);
    int min0 = 0, min1 = 0;
    if (KIND == FORM_256_MIN) {
        min0 = int(I8(plane_submin + part).v[0]);
        min1 = int(I8(plane_submin + part).v[1]);
    }
    const uint chain = THREAD / 8 * TILE, at = u * CHAINS;
    for (uint r = 0; r < n; r++) {
        uint q[8];
        load_row(record + u / 2 * 512u, r, u % 2, q);
        const int sum = sub0 * dot_16(q, 0) + sub1 * dot_16(q, 1);
        int least = 0;
        if (KIND == FORM_256_MIN) {
            const uint two = U32(rows.b16 + ((group * TILE + r) * 16ul + 2u * u) * 2ul).v[0];
            least = min0 * bitfieldExtract(int(two), 0, 16) + min1 * bitfieldExtract(int(two), 16, 16);
        }
        pairs[at + chain + r] = uvec2(uint(sum), uint(least));
    }
}

/* Continues the chain of this thread over n units of 32 k. */
float walk_32(float acc, uint n)
{
    for (uint i = 0; i < n * N_PAIRS; i++) {
        const uvec2 p = pairs[i * CHAINS + THREAD];
        acc = ae_fma(uintBitsToFloat(p.x), uintBitsToFloat(p.y), acc);
    }
    return acc;
}

float walk_256(Rows rows, float acc, uint out_, uint big, uint row)
{
    const uint64_t record = rows.r256 + (uint64_t(row / TILE) * (rows.n_in / 256) + big) * RECORD_256;
    const uint64_t unit = uint64_t(out_) * (rows.n_in / 256) + big;
    const float dx = load_float(record + DX_256 + row % TILE * 4u);
    int sum = 0, least = 0;
    [[unroll]] for (uint u = 0; u < 8; u++) {
        const uvec2 p = pairs[u * CHAINS + THREAD];
        sum += int(p.x);
        least += int(p.y);
    }
    acc = ae_fma(float(sum), load_float(plane_d + unit * 4ul) * dx, acc);
    if (KIND == FORM_256_MIN) acc = ae_fma(float(least), -(load_float(plane_m + unit * 4ul) * dx), acc);
    return acc;
}

void multiply(Rows rows, Place at)
{
    const uint t = THREAD, out_ = at.out_ + t / 8, n_in = rows.n_in, left_rows = at.n_rows - at.row;
    const uint n_groups = min((left_rows + TILE - 1) / TILE, ROWS / TILE);
    float acc[ROWS / TILE] = float[ROWS / TILE](0.0, 0.0, 0.0, 0.0);
    find_planes(at, n_in);
    for (uint k = 0; k < n_in; k += 256) {
        const uint u = t % 8, n_units = min((n_in - k) / 32, 8u);
        if (u < n_units) load_codes(at, out_, n_in, k + u * 32u);
        for (uint g = 0; g < n_groups; g++) {
            const uint row = at.first_row + at.row + g * TILE, n = min(left_rows - g * TILE, TILE);
            if (u < n_units) {
                if (KIND >= FORM_256) put_256(rows, out_, k / 256, u, row, n);
                else put_32(rows, out_, k / 32 + u, row, n);
            }
            barrier();
            if (t % 8 < n) {
                if (KIND >= FORM_256) acc[g] = walk_256(rows, acc[g], out_, k / 256, row + t % 8);
                else acc[g] = walk_32(acc[g], n_units);
            }
            barrier();
        }
    }
    for (uint g = 0; g < n_groups; g++) store_result(at, at.row + g * TILE + t % 8, out_, acc[g]);
}

void main()
{
    if (SIZE == 0) {
        ProductArgs a = ProductArgs(push.args);
        multiply(a.rows, place_of_job(a, OUTS, ROWS));
    } else {
        ExpertArgs a = ExpertArgs(push.args);
        const Place at = place_of_expert(a, OUTS, ROWS);
        if (at.n_rows != 0) multiply(a.rows, at);
    }
}
