/* matmul.c - the definition of every matrix product, in plain C over the file's own layout.
 *
 * It is slow because it follows the order in kernels.h literally and shares nothing between rows. */
#include <math.h>
#include <string.h>

#include "backend/cpu/ref/ref.h"
#include "base/math/fmath.h"

static void store(const ae_weight *w, const ae_mm_out *out, uint32_t row, uint32_t o, float acc)
{
    float *y = out->y + row * out->stride + o;
    if (w->has_scale) acc *= w->scale;
    if (out->bias) acc += out->bias[o];
    *y = out->add ? *y + acc : acc;
}

static int32_t dot(const int8_t *code, const int8_t *q, uint32_t n)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += code[i] * q[i];
    return sum;
}

static float step_32(const ae_unit *unit, const int8_t *q, float dx, float sx, uint32_t width, bool has_min, float acc)
{
    for (uint32_t j = 0; j < 32 / width; j++)
        acc = fmaf((float)dot(unit->code + j * width, q + j * width, width), unit->d[j] * dx, acc);
    return has_min ? fmaf(unit->m, sx, acc) : acc;
}

static float step_256(const ae_unit *unit, const int8_t *q, float dx, const int16_t *bsum, uint32_t width, bool has_min,
                      float acc)
{
    int32_t p = 0;
    for (uint32_t k = 0; k < 256; k += width) p += unit->sub[k / 16] * dot(unit->code + k, q + k, width);
    acc = fmaf((float)p, unit->d[0] * dx, acc);
    if (!has_min) return acc;
    int32_t sum = 0;
    for (uint32_t j = 0; j < 16; j++) sum += unit->submin[j] * bsum[j];
    return fmaf((float)sum, -(unit->dmin * dx), acc);
}

void ae_ref_mm_plain(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    const bool wide = w->dot == AE_DOT_256, has_min = ae_type_has_min(w->type);
    const uint32_t size = wide ? 256 : 32, n_units = w->n_in / size;
    const uint32_t sub = ae_type_sub_block(w->type), width = sub < size ? sub : size;
    ae_unit unit;
    for (uint32_t o = begin; o < end; o++) {
        const uint8_t *row = w->plain + o * w->row_bytes;
        for (uint32_t r = 0; r < act->n_rows; r++) {
            float acc = 0;
            for (uint32_t u = 0; u < n_units; u++) {
                const size_t at = (size_t)r * n_units + u, k = (size_t)r * w->n_in + (size_t)u * size;
                const size_t q = r * ae_act_stride(w->n_in) + (size_t)u * size;
                ae_unit_unpack(w->type, row, u, &unit);
                acc = wide ? step_256(&unit, act->q256 + q, act->d256[at], act->bsum + k / 16, width, has_min, acc)
                           : step_32(&unit, act->q32 + q, act->d32[at], act->s32[at], width, has_min, acc);
            }
            store(w, out, r, o, acc);
        }
    }
}

static float weight_at(const ae_weight *w, uint32_t o, uint32_t k)
{
    const uint8_t *p = w->plain + o * w->row_bytes;
    uint16_t half;
    float full;
    switch (w->type) {
    case AE_TYPE_F32: memcpy(&full, p + (size_t)k * 4, 4); return full;
    case AE_TYPE_F16: memcpy(&half, p + (size_t)k * 2, 2); return ae_f16_to_f32(half);
    default: memcpy(&half, p + (size_t)k * 2, 2); return ae_bf16_to_f32(half);
    }
}

void ae_ref_mm_float(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    for (uint32_t o = begin; o < end; o++)
        for (uint32_t r = 0; r < act->n_rows; r++) {
            const float *x = act->x + (size_t)r * w->n_in;
            float a[16] = {0};
            for (uint32_t k = 0; k < w->n_in; k++) a[k % 16] = fmaf(weight_at(w, o, k), x[k], a[k % 16]);
            store(w, out, r, o, ae_sum16(a));
        }
}
