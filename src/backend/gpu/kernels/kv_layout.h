/* kv_layout.h - where the device keeps the values of a KV cache. Read by the host and by the kernels.
 *
 * A store has pages of 64 places. In a page, each head of each layer has one block; the blocks of a layer's heads follow each
 * other. In a block, a row (the key or the value of one place) is a number of groups of 16 bytes, in order; the last one is
 * padded with zeros. A group has 4 f32, 8 f16 or 16 codes.
 *   keys    [groups][64]       group g of place p is 16-byte unit g * 64 + p: lanes over places read side by side
 *   values  [64][groups]       group g of place p is 16-byte unit p * groups + g: lanes over elements do
 *   scales  f32 [2][64]        codes only: of the keys, then of the values
 * Codes of 15 bits (i16) have two planes, of high and of low digits, the high one first: keys [n_planes][groups][64], values
 * [value_planes][64][groups]. A group has 32 codes of 4 bits (q4_0), two in a byte, the first one in its low bits.
 * Latent rows (n_rope is not 0; the layer has one head) have no values of their own. A row has two parts, the rotated one and
 * the latent one, each padded by itself; its groups are those of the rotated part, then those of the latent part.
 *   planes  [n_planes][groups][64]  f32: the values, one plane; keys of q8_0: codes, one plane; others: codes of 15 bits as two
 *                                   planes of digits, the high one first (backend/cpu/ref/kernels.h)
 *   scales  f32 [2][64]             codes only: of the latent parts, then of the rotated parts
 * Of rows that are key and value (one_row) there are only the keys, and one scale.
 */
#ifndef AE_BACKEND_GPU_KERNELS_KV_LAYOUT_H
#define AE_BACKEND_GPU_KERNELS_KV_LAYOUT_H

#include <stdint.h>

#include "backend/attention.h"
#include "base/math/hd.h"

#define AE_GPU_KV_GROUP 16u /* bytes */

/* How the blocks of a layer are laid out. */
typedef struct ae_gpu_kv_form {
    uint32_t type;                /* ae_kv_type */
    uint32_t head_dim, n_rope;
    uint32_t width;               /* bytes of an element in a row, or in a plane of a row: 1, 2 or 4; 1 for codes of 4 bits */
    uint32_t key_half, value_half; /* keys and values are codes of 4 bits */
    uint32_t n_planes;            /* planes of keys or of latent rows: 1, or 2 for codes of 15 bits */
    uint32_t value_planes;        /* planes of values: 1 or 2; 0: values are read from the keys */
    uint32_t rope_groups;         /* groups of the rotated part of a latent row; else 0 */
    uint32_t groups;              /* groups of a row of keys, or of a plane of a latent row */
    uint32_t value_groups;        /* of a row of values */
    uint32_t plane_bytes, value_bytes; /* distance from one plane of keys, or of values, to the next */
    uint32_t value_at, scale_at;  /* offsets of values and of scales in the block; equal without value_planes */
    uint32_t n_scales;            /* scales of a place */
    uint32_t bytes;               /* size of a block, a multiple of 16 */
} ae_gpu_kv_form;

/* One layer of a store, as kernels see it. */
typedef struct ae_gpu_kv_view {
    uint8_t *base;        /* the block of head 0 in page 0; head h is at h * form.bytes, page i at i * page_bytes */
    uint64_t page_bytes;
    uint32_t n_pages;
    ae_gpu_kv_form form;
} ae_gpu_kv_view;

/* Groups of n elements. */
AE_HD static inline uint32_t ae_gpu_kv_groups(uint32_t n, uint32_t width)
{
    return (n * width + AE_GPU_KV_GROUP - 1) / AE_GPU_KV_GROUP;
}

/* one_row: the type is one of ae_kv_row_type. */
AE_HD static inline ae_gpu_kv_form ae_gpu_kv_form_of(uint32_t type, uint32_t head_dim, uint32_t n_rope, bool one_row)
{
    ae_gpu_kv_form f;
    f.type = type;
    f.head_dim = head_dim;
    f.n_rope = n_rope;
    f.width = type == AE_KV_F32 ? 4 : type == AE_KV_F16 && !n_rope ? 2 : 1;
    f.key_half = !n_rope && type == AE_KV_Q4_0;
    f.value_half = !n_rope && (type == AE_KV_Q4_0 || type == AE_KV_Q8_0_Q4_0 || type == AE_KV_I16_Q4_0);
    f.n_planes = type == AE_KV_I16 || type == AE_KV_I16_Q8_0 || type == AE_KV_I16_Q4_0 || (n_rope && type == AE_KV_F16) ? 2 : 1;
    f.value_planes = n_rope || one_row ? 0 : type == AE_KV_I16 || type == AE_KV_Q8_0_I16 ? 2 : 1;
    f.rope_groups = ae_gpu_kv_groups(n_rope, f.width);
    f.groups = f.rope_groups + (f.key_half ? ae_gpu_kv_groups((head_dim + 1) / 2, 1) : ae_gpu_kv_groups(head_dim, f.width));
    f.value_groups = f.value_half ? ae_gpu_kv_groups((head_dim + 1) / 2, 1) : ae_gpu_kv_groups(head_dim, f.width);
    f.plane_bytes = f.groups * AE_KV_PAGE * AE_GPU_KV_GROUP;
    f.value_bytes = f.value_groups * AE_KV_PAGE * AE_GPU_KV_GROUP;
    f.value_at = f.n_planes * f.plane_bytes;
    f.scale_at = f.value_at + f.value_planes * f.value_bytes;
    f.n_scales = f.width > 1 ? 0 : one_row ? 1 : 2;
    f.bytes = f.scale_at + f.n_scales * AE_KV_PAGE * (uint32_t)sizeof(float);
    return f;
}

/* Returns whether the sums over values are rotated, so that attention must undo the rotation at the end. */
AE_HD static inline bool ae_gpu_kv_is_turned(const ae_gpu_kv_form *f)
{
    return f->value_half || (!f->value_planes && f->n_scales);
}

/* Returns the form of a plain layer: each head of a position is head_dim f32, laid out like values. */
AE_HD static inline ae_gpu_kv_form ae_gpu_kv_form_plain(uint32_t head_dim)
{
    ae_gpu_kv_form f = ae_gpu_kv_form_of(AE_KV_F32, head_dim, 0, false);
    f.n_planes = f.groups = f.plane_bytes = f.value_at = 0;
    f.bytes = f.scale_at = f.value_bytes;
    return f;
}

/* Returns the block of a head in a page. */
AE_HD static inline uint8_t *ae_gpu_kv_block(const ae_gpu_kv_view *view, uint32_t page, uint32_t head)
{
    return view->base + (uint64_t)page * view->page_bytes + (uint64_t)head * view->form.bytes;
}

/* Byte offsets in a block. Group g of the key of a place, in a plane: */
AE_HD static inline uint32_t ae_gpu_kv_key_at(const ae_gpu_kv_form *f, uint32_t plane, uint32_t g, uint32_t place)
{
    return ((plane * f->groups + g) * AE_KV_PAGE + place) * AE_GPU_KV_GROUP;
}

/* Returns the offset of group g of a value in plane 0; plane 1 is value_bytes further. Without value_planes, values are groups
 * rope_groups to groups of the key instead. */
AE_HD static inline uint32_t ae_gpu_kv_value_at(const ae_gpu_kv_form *f, uint32_t g, uint32_t place)
{
    return f->value_at + (place * f->value_groups + g) * AE_GPU_KV_GROUP;
}

/* Returns the offset of a place's scale: i = 0 for the key or the latent part, 1 for the value or the rotated part. A row that
 * is key and value has the first alone. */
AE_HD static inline uint32_t ae_gpu_kv_scale_at(const ae_gpu_kv_form *f, uint32_t i, uint32_t place)
{
    return f->scale_at + (i * AE_KV_PAGE + place) * (uint32_t)sizeof(float);
}

/* ---- Rows as they are saved: the same bytes on every device ---------------------------------------- */

/* Returns the bytes of a plane of a key, or of a latent row, and of a value. */
AE_HD static inline uint32_t ae_gpu_kv_key_row(const ae_gpu_kv_form *f)
{
    return f->key_half ? (f->head_dim + 1) / 2 : (f->n_rope + f->head_dim) * f->width;
}

AE_HD static inline uint32_t ae_gpu_kv_value_row(const ae_gpu_kv_form *f)
{
    return f->value_half ? (f->head_dim + 1) / 2 : f->head_dim * f->width;
}

/* Returns the size of one place of a head as kv_read saves it: the key's elements plane by plane, the value's, then the scales.
 * Of a latent row, each plane has the rotated part, then the latent one. */
AE_HD static inline uint32_t ae_gpu_kv_row_bytes(const ae_gpu_kv_form *f)
{
    const uint32_t n = f->n_planes * ae_gpu_kv_key_row(f) + f->value_planes * ae_gpu_kv_value_row(f);
    return n + f->n_scales * (uint32_t)sizeof(float);
}

/* Returns the offset in a block of byte i of such a saved row. */
AE_HD static inline uint32_t ae_gpu_kv_saved_at(const ae_gpu_kv_form *f, uint32_t i, uint32_t place)
{
    const uint32_t key = ae_gpu_kv_key_row(f), value = ae_gpu_kv_value_row(f), keys = f->n_planes * key;
    const uint32_t n = keys + f->value_planes * value, rope = f->n_rope * f->width;
    if (i >= n) return ae_gpu_kv_scale_at(f, (i - n) / 4, place) + (i - n) % 4;
    if (i >= keys) {
        const uint32_t at = (i - keys) % value;
        return (i - keys) / value * f->value_bytes + ae_gpu_kv_value_at(f, at / AE_GPU_KV_GROUP, place) + at % AE_GPU_KV_GROUP;
    }
    uint32_t at = i % key;
    if (at >= rope) at += f->rope_groups * AE_GPU_KV_GROUP - rope; /* skips the padding of the rotated part */
    return ae_gpu_kv_key_at(f, i / key, at / AE_GPU_KV_GROUP, place) + at % AE_GPU_KV_GROUP;
}

/* Returns which bits of byte i of a saved row belong to codes: the last byte of an odd number of 4-bit codes uses 4 bits. */
AE_HD static inline uint8_t ae_gpu_kv_saved_bits(const ae_gpu_kv_form *f, uint32_t i)
{
    const uint32_t keys = f->n_planes * ae_gpu_kv_key_row(f), n = keys + f->value_planes * ae_gpu_kv_value_row(f);
    const bool is_last = (f->key_half && i + 1 == keys) || (f->value_half && i + 1 == n);
    return is_last && f->head_dim % 2 ? 15 : 255;
}

#endif
