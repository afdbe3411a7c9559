/* lookup.cu - rows of a table by token, as f32: the arithmetic of quant/decode.c over the generic forms (args_product.h), and
 * over the blocks of some types as they are in a file (quant/unit_32.c and unit_k.c say what the bytes mean). */
#include "backend/gpu/kernels/args_product.h"
#include "backend/gpu/kernels/kernel.h"
#include "formats/tensor_type.h"

/* A row of a table of n16 rows. */
typedef struct table_row {
    const uint8_t *table;
    size_t n16, row;
    uint32_t n_in;
} table_row;

/* Returns the code of column k; the words of each 32 have the order 0 4 1 5 2 6 3 7. */
AE_DEV float code_at(const table_row &t, uint32_t k)
{
    const uint32_t word = k / 4 % 8, at = (k & ~31u) + (word % 4 * 2 + word / 4) * 4 + k % 4;
    return static_cast<float>(reinterpret_cast<const int8_t *>(t.table)[t.row * t.n_in + at]);
}

AE_DEV float decode_32(const table_row &t, uint32_t form, uint32_t k)
{
    const uint32_t width = form == AE_GPU_FORM_32_TWO ? 16 : 32;
    const size_t per_row = t.n_in / width;
    const float *d = reinterpret_cast<const float *>(t.table + t.n16 * t.n_in);
    const float v = d[t.row * per_row + k / width] * code_at(t, k);
    return form == AE_GPU_FORM_32_MIN ? v + d[(t.n16 + t.row) * per_row + k / width] : v;
}

AE_DEV float decode_256(const table_row &t, uint32_t form, uint32_t k)
{
    const size_t units = t.n_in / 256, parts = t.n_in / 16, unit = t.row * units + k / 256, part = t.row * parts + k / 16;
    const float *d = reinterpret_cast<const float *>(t.table + t.n16 * t.n_in);
    const int8_t *sub = reinterpret_cast<const int8_t *>(d + t.n16 * units);
    const float v = d[unit] * static_cast<float>(sub[part]) * code_at(t, k);
    if (form != AE_GPU_FORM_256_MIN) return v;
    const float *dmin = reinterpret_cast<const float *>(sub + t.n16 * parts);
    const int8_t *submin = reinterpret_cast<const int8_t *>(dmin + t.n16 * units);
    return v - dmin[unit] * static_cast<float>(submin[part]);
}

AE_DEV float decode(const table_row &t, uint32_t form, uint32_t k)
{
    const size_t at = t.row * ((t.n_in + 15) / 16 * 16) + k;
    switch (form) {
    case AE_GPU_FORM_F32: return reinterpret_cast<const float *>(t.table)[at];
    case AE_GPU_FORM_F16: return ae_half(reinterpret_cast<const uint16_t *>(t.table)[at]);
    case AE_GPU_FORM_BF16: return ae_as_float(static_cast<uint32_t>(reinterpret_cast<const uint16_t *>(t.table)[at]) << 16);
    case AE_GPU_FORM_256:
    case AE_GPU_FORM_256_MIN: return decode_256(t, form, k);
    default: return decode_32(t, form, k);
    }
}

/* ---- Blocks of a file --------------------------------------------------------------------------- */

AE_DEV float half_at(const uint8_t *p) { return ae_half(static_cast<uint16_t>(p[0] | p[1] << 8)); }
AE_DEV int32_t bit_at(const uint8_t *bits, uint32_t i) { return bits[i / 8] >> (i % 8) & 1; }

/* Returns the nibble of element e of 32, of 16 bytes. */
AE_DEV int32_t nibble_at(const uint8_t *qs, uint32_t e) { return e < 16 ? qs[e] & 15 : qs[e - 16] >> 4; }

/* Types with f32 scales: element e of a block of 32. */
AE_DEV float decode_block_32(uint32_t type, const uint8_t *b, uint32_t e)
{
    const float d = half_at(b);
    switch (type) {
    case AE_TYPE_Q4_0: return d * static_cast<float>(nibble_at(b + 2, e) - 8);
    case AE_TYPE_Q4_1: return d * static_cast<float>(nibble_at(b + 4, e)) + half_at(b + 2);
    case AE_TYPE_Q5_0: return d * static_cast<float>(nibble_at(b + 6, e) - 16 + bit_at(b + 2, e) * 16);
    case AE_TYPE_Q5_1: return d * static_cast<float>(nibble_at(b + 8, e) + bit_at(b + 4, e) * 16) + half_at(b + 2);
    default: return d * static_cast<float>(static_cast<int8_t>(b[2 + e])); /* Q8_0 */
    }
}

/* Q4_K and Q5_K: element e of a block of 256. */
AE_DEV float decode_k4(const uint8_t *b, bool fifth, uint32_t e)
{
    const uint8_t *scales = b + 4, *qh = b + 16, *qs = fifth ? b + 48 : b + 16;
    const uint32_t s = e / 32;
    const int32_t scale = s < 4 ? scales[s] & 63 : (scales[s + 4] & 15) | (scales[s - 4] >> 6) << 4;
    const int32_t min = s < 4 ? scales[s + 4] & 63 : scales[s + 4] >> 4 | (scales[s] >> 6) << 4;
    int32_t code = qs[32 * (e / 64) + e % 32] >> (e / 32 % 2 * 4) & 15;
    if (fifth) code |= (qh[e % 32] >> (e / 32) & 1) << 4;
    const float v = half_at(b) * static_cast<float>(scale) * static_cast<float>(code);
    return v - half_at(b + 2) * static_cast<float>(min);
}

AE_DEV float decode_q6_k(const uint8_t *b, uint32_t e)
{
    const uint8_t *ql = b, *qh = b + 128;
    const uint32_t half = e / 128, j = e / 32 % 4;
    const int32_t low = ql[64 * half + 32 * (j % 2) + e % 32] >> (j / 2 * 4) & 15;
    const int32_t high = qh[32 * half + e % 32] >> (2 * j) & 3;
    const float scale = half_at(b + 208) * static_cast<float>(static_cast<int8_t>(b[192 + e / 16]));
    return scale * static_cast<float>((low | high << 4) - 32);
}

AE_DEV float decode_file(const ae_gpu_lookup_args &a, uint32_t row, uint32_t k)
{
    const uint8_t *p = a.table + static_cast<size_t>(row) * a.row_bytes;
    const bool wide = a.type == AE_TYPE_Q4_K || a.type == AE_TYPE_Q5_K || a.type == AE_TYPE_Q6_K;
    const uint32_t bytes = a.row_bytes / (a.n_in / (wide ? 256 : 32)); /* of a block */
    switch (a.type) {
    case AE_TYPE_Q4_K:
    case AE_TYPE_Q5_K: return decode_k4(p + k / 256 * bytes, a.type == AE_TYPE_Q5_K, k % 256);
    case AE_TYPE_Q6_K: return decode_q6_k(p + k / 256 * bytes, k % 256);
    default: return decode_block_32(a.type, p + k / 32 * bytes, k % 32);
    }
}

AE_KERNEL(lookup, ae_gpu_lookup_args, AE_GPU_LOOKUP_THREADS)
{
    const uint32_t row = ae_block_x(), first = ae_block_y() * AE_GPU_LOOKUP_COLUMNS;
    const uint32_t token = static_cast<uint32_t>(a.tokens[row]);
    const table_row t = {a.table, (static_cast<size_t>(a.n_out) + 15) / 16 * 16, token, a.n_in};
    float *y = a.y + row * a.y_stride;
    for (uint32_t k = first + ae_thread(); k < first + AE_GPU_LOOKUP_COLUMNS && k < a.n_in; k += AE_GPU_LOOKUP_THREADS) {
        float v = 0.0f;
        if (token < a.n_out) v = a.form == AE_GPU_FORM_FILE ? decode_file(a, token, k) : decode(t, a.form, k);
        y[k] = a.has_row_scale ? v * a.row_scale : v;
    }
}
