#version 460
/* product_float.comp - products by float weights: product_f32 .. product_bf16_narrow, and with SIZE 0 those of experts. KIND:
 * the form; SIZE: outputs of a work-group (kernels/args_product.h).
 *
 * A work-group multiplies up to 8 rows. Thread (o, c) has the sums over k % 16 = c of output o and all rows; eight outputs at a
 * time. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "product_place.glsl"

layout(local_size_x = 128) in;

#define EXPERT_OUTS 32u

shared float sums[8 * 128];

float load_weight(uint64_t row, uint k)
{
    if (KIND == FORM_F32) return F32(row).v[k];
    const uint bits = uint(U16(row).v[k]);
    return KIND == FORM_F16 ? ae_half(bits) : uintBitsToFloat(bits << 16);
}

float sum_16(uint at)
{
    float b[8], c[4];
    [[unroll]] for (uint i = 0; i < 8; i++) b[i] = sums[at + i] + sums[at + i + 8];
    [[unroll]] for (uint i = 0; i < 4; i++) c[i] = b[i] + b[i + 4];
    return (c[0] + c[2]) + (c[1] + c[3]);
}

void multiply(Rows rows, Place at, uint n_outs)
{
    const uint t = THREAD, o = t / 16, c = t % 16, n_in = rows.n_in, n = min(at.n_rows - at.row, 8u);
    const uint64_t x = rows.x + uint64_t(at.first_row + at.row) * rows.x_stride * 4ul;
    const uint64_t row_bytes = uint64_t((n_in + 15) / 16 * 16) * (KIND == FORM_F32 ? 4ul : 2ul);
    for (uint first = 0; first < n_outs; first += 8) {
        const uint out_ = at.out_ + first + o;
        float acc[8] = float[8](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        if (out_ < at.n_out) {
            const uint64_t row = at.weight + uint64_t(out_) * row_bytes;
            for (uint k = c; k < n_in; k += 16) {
                const float w = load_weight(row, k);
                [[unroll]] for (uint r = 0; r < 8; r++)
                    if (r < n) acc[r] = ae_fma(w, F32(x + uint64_t(r) * rows.x_stride * 4ul).v[k], acc[r]);
            }
        }
        [[unroll]] for (uint r = 0; r < 8; r++) sums[r * 128 + t] = acc[r];
        barrier();
        if (c < n) store_result(at, at.row + c, out_, sum_16(c * 128 + o * 16));
        barrier();
    }
}

void main()
{
    if (SIZE != 0) {
        ProductArgs a = ProductArgs(push.args);
        multiply(a.rows, place_of_job(a, SIZE, 8), SIZE);
    } else {
        ExpertArgs a = ExpertArgs(push.args);
        const Place at = place_of_expert(a, EXPERT_OUTS, 8);
        if (at.n_rows != 0) multiply(a.rows, at, EXPERT_OUTS);
    }
}
