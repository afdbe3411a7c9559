/* saved.h - canonical bytes of the KV cache: how many a head of a position has, whatever the device's layout (kv_read).
 *
 * A head's bytes follow each other, heads of a layer too, layers in their order. Owns nothing. */
#ifndef AE_BACKEND_SAVED_H
#define AE_BACKEND_SAVED_H

#include "backend/attention.h"

/* Returns the bytes of n codes in a row: those of 4 bits share bytes. */
static inline size_t ae_kv_code_bytes(uint32_t n_bits, uint32_t n)
{
    return ((size_t)n * n_bits + 7) / 8;
}

static inline size_t ae_kv_row_bytes(ae_kv_type type, const ae_kv_layer *l)
{
    const uint32_t n = l->one_row || l->n_rope ? l->head_dim + l->n_rope : 2 * l->head_dim;
    const uint32_t kb = ae_kv_key_bits(type), vb = ae_kv_value_bits(type);
    if (l->plain) return l->head_dim * sizeof(float);
    if (l->one_row && kb) return ae_kv_code_bytes(kb, l->head_dim) + sizeof(float);
    if (type == AE_KV_F32) return n * sizeof(float);
    if (l->n_rope) return n * (size_t)(kb == 8 || kb == 4 ? 1 : 2) + 2 * sizeof(float);
    if (!kb) return n * sizeof(uint16_t);
    return ae_kv_code_bytes(kb, l->head_dim) + ae_kv_code_bytes(vb, l->head_dim) + 2 * sizeof(float);
}

#endif
