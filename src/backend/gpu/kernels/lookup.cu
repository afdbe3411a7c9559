/* lookup.cu - rows of a table by token, as f32: the arithmetic of quant/decode.c over the generic forms (args_product.h). */
#include "backend/gpu/kernels/args_product.h"
#include "backend/gpu/kernels/kernel.h"

/* A row of a table of n16 rows. */
typedef struct table_row {
    const uint8_t *table;
    size_t n16, row;
    uint32_t n_in;
} table_row;

/* The code of column k; the words of each 32 have the order 0 4 1 5 2 6 3 7. */
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

AE_KERNEL(lookup, ae_gpu_lookup_args, AE_GPU_LOOKUP_THREADS)
{
    const uint32_t row = ae_block_y(), token = static_cast<uint32_t>(a.tokens[row]), first = ae_block_x() * AE_GPU_LOOKUP_COLUMNS;
    const table_row t = {a.table, (static_cast<size_t>(a.n_out) + 15) / 16 * 16, token, a.n_in};
    float *y = a.y + row * a.y_stride;
    for (uint32_t k = first + ae_thread(); k < first + AE_GPU_LOOKUP_COLUMNS && k < a.n_in; k += AE_GPU_LOOKUP_THREADS) {
        const float v = token < a.n_out ? decode(t, a.form, k) : 0.0f;
        y[k] = a.has_row_scale ? v * a.row_scale : v;
    }
}
