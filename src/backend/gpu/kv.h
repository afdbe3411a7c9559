/* kv.h - the KV store of the GPU backends: kv.c owns it, rope.c writes to it, attention.c reads it. */
#ifndef AE_BACKEND_GPU_KV_H
#define AE_BACKEND_GPU_KV_H

#include "base/mem.h"

#include "backend/gpu/gpu.h"
#include "backend/gpu/kernels/kv_layout.h"

typedef struct ae_gpu_kv_layer {
    ae_gpu_kv_form form;
    uint32_t n_heads;
    size_t at; /* offset of the block of the layer's first head in a page */
} ae_gpu_kv_layer;

struct ae_kv_store {
    ae_gpu_backend *backend;
    uint32_t n_layers, n_pages, n_blocks; /* n_blocks: heads of all layers */
    ae_gpu_kv_layer *layers;              /* (host) [n_layers] */
    size_t page_bytes, slot_bytes;
    void *memory;                         /* on the device: the three arrays below */
    uint8_t *pages;                       /* [n_pages][page_bytes] */
    ae_gpu_kv_head *heads;                /* [n_blocks] */
    uint8_t *slot;                        /* [slot_bytes] buffer of kv_read and kv_write */
};

static inline ae_gpu_kv_view ae_gpu_kv_view_of(const ae_kv_store *kv, uint32_t layer)
{
    const ae_gpu_kv_layer *l = &kv->layers[layer];
    return (ae_gpu_kv_view){kv->pages + l->at, kv->page_bytes, kv->n_pages, l->form};
}

#endif
