/* rope.h - where the kernels of rope.cu and rope_heads.cu write keys and values. For kernels only. */
#ifndef AE_BACKEND_GPU_KERNELS_ROPE_H
#define AE_BACKEND_GPU_KERNELS_ROPE_H

#include "backend/gpu/kernels/args_rows.h"
#include "backend/gpu/kernels/kernel.h"

/* Returns x as the f16 cache stores it. */
AE_DEV uint16_t ae_rope_half(float x)
{
    return x == x ? ae_to_half(x) : static_cast<uint16_t>(0x7E00);
}

/* Page and place of a row. If the place is outside the store, page is n_pages or more, and nothing must be written. */
typedef struct ae_rope_target {
    uint32_t page, at;
} ae_rope_target;

AE_DEV ae_rope_target ae_rope_target_of(const ae_gpu_rope_kv_args *a, int32_t slot, int32_t seq)
{
    const uint32_t i = (uint32_t)slot / AE_KV_PAGE;
    ae_rope_target t;
    t.page = UINT32_MAX;
    t.at = (uint32_t)slot % AE_KV_PAGE;
    if (a->store && slot >= 0 && i < a->table_stride) t.page = (uint32_t)a->tables[(size_t)seq * a->table_stride + i];
    return t;
}

#endif
