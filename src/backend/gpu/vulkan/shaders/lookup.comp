#version 460
/* lookup.comp - rows of a table by token, as f32 (the kernel lookup): from the generic forms (kernels/args_product.h), and from
 * blocks of some types as they are in a file (quant/unit_32.c and unit_k.c say what the bytes mean). */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "product_place.glsl"

layout(local_size_x = 128) in;

#define COLUMNS 256u
#define FORM_FILE 10u
#define TYPE_Q5_0 6u
#define TYPE_Q5_1 7u
#define TYPE_Q5_K 13u
#define TYPE_Q6_K 14u

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args { /* ae_gpu_lookup_args */
    uint64_t table, tokens, y, y_stride;
    uint form, n_out, n_in, type, row_bytes, has_row_scale;
    float row_scale;
};

Args a;
uint64_t n16;

float float_at(uint64_t p, uint64_t i) { return F32(p + i * 4ul).v[0]; }
int byte_at(uint64_t p, uint64_t i) { return int(U8(p + i).v[0]); }
int sbyte_at(uint64_t p, uint64_t i) { return int(I8(p + i).v[0]); }
float half_at(uint64_t p) { return ae_half(uint(byte_at(p, 0ul) | byte_at(p, 1ul) << 8)); }

/* Returns the code of column k; the words of each 32 have the order 0 4 1 5 2 6 3 7. */
float code_at(uint64_t row, uint k)
{
    const uint word = k / 4 % 8, at = (k & ~31u) + (word % 4 * 2 + word / 4) * 4 + k % 4;
    if (is_narrow(a.type)) {
        const int both = byte_at(a.table, row * a.n_in / 2ul + k / 32 * 16 + k % 16);
        const int code = (k % 32 < 16 ? both : both >> 4) & 15;
        return float(has_signed_codes(a.type) && code > 7 ? code - 16 : code);
    }
    return float(sbyte_at(a.table, row * a.n_in + at));
}

uint64_t plane_d()
{
    return a.table + (is_narrow(a.type) ? n16 * a.n_in / 2ul : n16 * a.n_in);
}

float decode_32(uint64_t row, uint k)
{
    const uint width = a.form == FORM_32_TWO ? 16 : 32;
    const uint64_t per_row = a.n_in / width, d = plane_d();
    const float v = float_at(d, row * per_row + k / width) * code_at(row, k);
    return a.form == FORM_32_MIN ? v + float_at(d, (n16 + row) * per_row + k / width) : v;
}

float decode_256(uint64_t row, uint k)
{
    const uint64_t units = a.n_in / 256, parts = a.n_in / 16, unit = row * units + k / 256, part = row * parts + k / 16;
    const uint64_t d = plane_d(), sub = d + n16 * units * 4ul;
    const float v = float_at(d, unit) * float(sbyte_at(sub, part)) * code_at(row, k);
    if (a.form != FORM_256_MIN) return v;
    const uint64_t dmin = sub + n16 * parts, submin = dmin + n16 * units * 4ul;
    return v - float_at(dmin, unit) * float(sbyte_at(submin, part));
}

float decode(uint64_t row, uint k)
{
    const uint64_t at = row * ((a.n_in + 15) / 16 * 16) + k;
    if (a.form == FORM_F32) return float_at(a.table, at);
    if (a.form == FORM_F16) return ae_half(uint(U16(a.table + at * 2ul).v[0]));
    if (a.form == FORM_BF16) return uintBitsToFloat(uint(U16(a.table + at * 2ul).v[0]) << 16);
    return a.form == FORM_256 || a.form == FORM_256_MIN ? decode_256(row, k) : decode_32(row, k);
}

/* ---- Blocks of a file ------------------------------------------------------------------------------- */

int bit_at(uint64_t bits, uint i) { return byte_at(bits, i / 8) >> (i % 8) & 1; }

/* Returns the nibble of element e of 32, of 16 bytes. */
int nibble_at(uint64_t qs, uint e) { return e < 16 ? byte_at(qs, e) & 15 : byte_at(qs, e - 16) >> 4; }

float decode_block_32(uint64_t b, uint e)
{
    const float d = half_at(b);
    if (a.type == TYPE_Q4_0) return d * float(nibble_at(b + 2ul, e) - 8);
    if (a.type == TYPE_Q4_1) return d * float(nibble_at(b + 4ul, e)) + half_at(b + 2ul);
    if (a.type == TYPE_Q5_0) return d * float(nibble_at(b + 6ul, e) - 16 + bit_at(b + 2ul, e) * 16);
    if (a.type == TYPE_Q5_1) return d * float(nibble_at(b + 8ul, e) + bit_at(b + 4ul, e) * 16) + half_at(b + 2ul);
    return d * float(sbyte_at(b, 2 + e)); /* Q8_0 */
}

/* Q4_K and Q5_K: element e of a block of 256. */
float decode_k4(uint64_t b, bool fifth, uint e)
{
    const uint64_t scales = b + 4ul, qh = b + 16ul, qs = fifth ? b + 48ul : b + 16ul;
    const uint s = e / 32;
    const int scale = s < 4 ? byte_at(scales, s) & 63 : byte_at(scales, s + 4) & 15 | byte_at(scales, s - 4) >> 6 << 4;
    const int least = s < 4 ? byte_at(scales, s + 4) & 63 : byte_at(scales, s + 4) >> 4 | byte_at(scales, s) >> 6 << 4;
    int code = byte_at(qs, 32 * (e / 64) + e % 32) >> (e / 32 % 2 * 4) & 15;
    if (fifth) code |= (byte_at(qh, e % 32) >> (e / 32) & 1) << 4;
    const float v = half_at(b) * float(scale) * float(code);
    return v - half_at(b + 2ul) * float(least);
}

float decode_q6_k(uint64_t b, uint e)
{
    const uint half_ = e / 128, j = e / 32 % 4;
    const int low = byte_at(b, 64 * half_ + 32 * (j % 2) + e % 32) >> (j / 2 * 4) & 15;
    const int high = byte_at(b + 128ul, 32 * half_ + e % 32) >> (2 * j) & 3;
    return half_at(b + 208ul) * float(sbyte_at(b, 192 + e / 16)) * float((low | high << 4) - 32);
}

float decode_file(uint row, uint k)
{
    const uint64_t p = a.table + uint64_t(row) * a.row_bytes;
    const bool wide = a.type == TYPE_Q4_K || a.type == TYPE_Q5_K || a.type == TYPE_Q6_K;
    const uint block_bytes = a.row_bytes / (a.n_in / (wide ? 256 : 32));
    if (a.type == TYPE_Q6_K) return decode_q6_k(p + k / 256 * block_bytes, k % 256);
    if (wide) return decode_k4(p + k / 256 * block_bytes, a.type == TYPE_Q5_K, k % 256);
    return decode_block_32(p + k / 32 * block_bytes, k % 32);
}

void main()
{
    a = Args(push.args);
    n16 = (uint64_t(a.n_out) + 15ul) / 16ul * 16ul;
    const uint row = BLOCK_X, first = BLOCK_Y * COLUMNS, token = uint(I32(a.tokens).v[row]);
    for (uint k = first + THREAD; k < first + COLUMNS && k < a.n_in; k += 128) {
        float v = 0.0;
        if (token < a.n_out) v = a.form == FORM_FILE ? decode_file(token, k) : decode(token, k);
        F32(a.y + uint64_t(row) * a.y_stride * 4ul).v[k] = a.has_row_scale != 0 ? v * a.row_scale : v;
    }
}
