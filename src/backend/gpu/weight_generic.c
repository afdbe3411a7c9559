/* weight_generic.c - packs rows of any type into the generic forms of args_product.h.
 * Owns nothing. quant/unit.h gives the integer types as codes and scales, so a new type needs no code here. One plane of the
 * rows at a time is packed in host memory and written by one copy. */
#include <string.h>

#include "backend/gpu/weight.h"
#include "base/mem.h"
#include "quant/types.h"

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

ae_gpu_form ae_gpu_generic_form(uint32_t type)
{
    const ae_type_info *info = ae_type_get(type);
    const bool has_min = ae_type_has_min(type);
    if (!info || !info->decode) return AE_GPU_FORM_NONE;
    switch (info->dot) {
    case AE_DOT_32: return has_min ? AE_GPU_FORM_32_MIN : ae_type_sub_block(type) < 32 ? AE_GPU_FORM_32_TWO : AE_GPU_FORM_32;
    case AE_DOT_256: return has_min ? AE_GPU_FORM_256_MIN : AE_GPU_FORM_256;
    default: return type == AE_TYPE_F16 ? AE_GPU_FORM_F16 : type == AE_TYPE_BF16 ? AE_GPU_FORM_BF16 : AE_GPU_FORM_F32;
    }
}

/* Returns whether drivers with narrow_codes keep this type's codes in 4 bits. */
static bool is_narrow_type(uint32_t type)
{
    return type == AE_TYPE_Q4_0 || type == AE_TYPE_Q4_1 || type == AE_TYPE_Q2_K || type == AE_TYPE_Q3_K || type == AE_TYPE_Q4_K;
}

bool ae_gpu_file_form(uint32_t type)
{
    switch (type) {
    case AE_TYPE_Q4_0:
    case AE_TYPE_Q4_1:
    case AE_TYPE_Q5_0:
    case AE_TYPE_Q5_1:
    case AE_TYPE_Q8_0:
    case AE_TYPE_Q4_K:
    case AE_TYPE_Q5_K:
    case AE_TYPE_Q6_K: return true;
    default: return false;
    }
}

#define PLANES 5

/* How a row of a weight is packed into its generic form. */
typedef struct packing {
    uint32_t type;
    ae_gpu_form form;
    bool narrow; /* codes of 4 bits */
} packing;

static packing packing_of(const ae_gpu_backend *backend, uint32_t type)
{
    return (packing){type, ae_gpu_generic_form(type), backend->facts.narrow_codes && is_narrow_type(type)};
}

/* Returns the bytes of a row in each plane, in the order of the planes. */
static uint32_t planes_of(const packing *p, size_t n_in, size_t bytes[PLANES])
{
    const size_t padded = round_up(n_in, 16), codes = p->narrow ? n_in / 2 : n_in;
    switch (p->form) {
    case AE_GPU_FORM_32: bytes[0] = codes, bytes[1] = n_in / 32 * 4; return 2;
    case AE_GPU_FORM_32_MIN: bytes[0] = codes, bytes[1] = bytes[2] = n_in / 32 * 4; return 3;
    case AE_GPU_FORM_32_TWO: bytes[0] = codes, bytes[1] = n_in / 16 * 4; return 2;
    case AE_GPU_FORM_256: bytes[0] = codes, bytes[1] = n_in / 256 * 4, bytes[2] = n_in / 16; return 3;
    case AE_GPU_FORM_256_MIN:
        bytes[0] = codes, bytes[1] = bytes[3] = n_in / 256 * 4, bytes[2] = bytes[4] = n_in / 16;
        return 5;
    case AE_GPU_FORM_F32: bytes[0] = padded * 4; return 1;
    case AE_GPU_FORM_F16:
    case AE_GPU_FORM_BF16: bytes[0] = padded * 2; return 1;
    default: return 0;
    }
}

size_t ae_gpu_generic_bytes(const ae_gpu_backend *backend, uint32_t type, uint32_t n_out, uint32_t n_in)
{
    size_t bytes[PLANES], sum = 0;
    const packing p = packing_of(backend, type);
    const uint32_t n = planes_of(&p, n_in, bytes);
    for (uint32_t i = 0; i < n; i++) sum += bytes[i];
    return round_up(sum * round_up(n_out, 16), 64);
}

/* Packs 32 codes in the order of the words of the prepared rows. */
static void put_codes(const packing *p, const int8_t *code, uint8_t *to)
{
    if (p->narrow) {
        for (uint32_t i = 0; i < 16; i++) to[i] = (uint8_t)((code[i] & 15) | (code[i + 16] & 15) << 4);
        return;
    }
    for (uint32_t w = 0; w < 8; w++) memcpy(to + (w % 4 * 2 + w / 4) * 4, code + 4 * w, 4);
}

static void pack_32(const packing *p, const void *row, uint32_t n_in, uint8_t *const *to)
{
    ae_unit unit;
    const size_t n_sub = p->form == AE_GPU_FORM_32_TWO ? 2 : 1, block = p->narrow ? 16 : 32;
    for (size_t u = 0; u < n_in / 32; u++) {
        ae_unit_unpack(p->type, row, u, &unit);
        put_codes(p, unit.code, to[0] + u * block);
        memcpy(to[1] + u * n_sub * 4, unit.d, n_sub * 4);
        if (p->form == AE_GPU_FORM_32_MIN) memcpy(to[2] + u * 4, &unit.m, 4);
    }
}

static void pack_256(const packing *p, const void *row, uint32_t n_in, uint8_t *const *to)
{
    ae_unit unit;
    const size_t block = p->narrow ? 16 : 32;
    for (size_t u = 0; u < n_in / 256; u++) {
        ae_unit_unpack(p->type, row, u, &unit);
        for (uint32_t b = 0; b < 8; b++) put_codes(p, unit.code + 32 * b, to[0] + (u * 8 + b) * block);
        memcpy(to[1] + u * 4, unit.d, 4);
        for (uint32_t j = 0; j < 16; j++) to[2][u * 16 + j] = (uint8_t)unit.sub[j];
        if (p->form != AE_GPU_FORM_256_MIN) continue;
        memcpy(to[3] + u * 4, &unit.dmin, 4);
        for (uint32_t j = 0; j < 16; j++) to[4][u * 16 + j] = (uint8_t)unit.submin[j];
    }
}

static void pack_row(const packing *p, const uint8_t *row, uint32_t n_in, uint8_t *const *to)
{
    switch (p->form) {
    case AE_GPU_FORM_32:
    case AE_GPU_FORM_32_MIN:
    case AE_GPU_FORM_32_TWO: pack_32(p, row, n_in, to); break;
    case AE_GPU_FORM_256:
    case AE_GPU_FORM_256_MIN: pack_256(p, row, n_in, to); break;
    case AE_GPU_FORM_F32: ae_type_get(p->type)->decode(row, (float *)to[0], n_in); break;
    default: memcpy(to[0], row, (size_t)n_in * 2); break;
    }
}

aerie_status ae_gpu_generic_fill(ae_gpu_backend *backend, uint32_t type, uint32_t n_out, uint32_t n_in, uint8_t *device,
                                 const void *rows, uint32_t first, uint32_t n, aerie_error *error)
{
    const packing p = packing_of(backend, type);
    size_t bytes[PLANES] = {0}, sum = 0, at = 0;
    const size_t row_bytes = ae_type_row_bytes(type, n_in);
    const uint32_t n_planes = planes_of(&p, n_in, bytes);
    uint8_t *plane[PLANES], *to[PLANES];
    for (uint32_t i = 0; i < n_planes; i++) sum += bytes[i];
    uint8_t *room = ae_alloc_aligned(n, sum);
    if (!room) return ae_fail_memory(error, "rows of a weight, packed for the device", n * sum);
    for (uint32_t i = 0; i < n_planes; at += n * bytes[i++]) plane[i] = room + at;
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t i = 0; i < n_planes; i++) to[i] = plane[i] + r * bytes[i];
        pack_row(&p, (const uint8_t *)rows + r * row_bytes, n_in, to);
    }
    aerie_status status = AERIE_OK;
    for (uint32_t i = 0; i < n_planes && status == AERIE_OK; i++) {
        status = backend->driver->fill(backend->device, device + first * bytes[i], plane[i], n * bytes[i], error);
        device += round_up(n_out, 16) * bytes[i];
    }
    ae_free(room);
    return status;
}
