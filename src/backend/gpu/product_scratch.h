/* product_scratch.h - what a stream keeps on the device for products (product.c). */
#ifndef AE_BACKEND_GPU_PRODUCT_SCRATCH_H
#define AE_BACKEND_GPU_PRODUCT_SCRATCH_H

#include "backend/gpu/kernels/args_product.h"

typedef struct ae_gpu_product_scratch {
    ae_gpu_rows rows;    /* the arrays; the sizes are those of the product at hand */
    uint32_t tiles;      /* room: tiles of 8 rows of max_in columns */
    uint32_t max_in;     /* a multiple of 256 */
    /* Experts (moe.c). A slot is a row among those that the experts multiply. */
    ae_gpu_rows slots;   /* prepared rows of the slots */
    float *logits;       /* f32 [max_rows][n_experts] */
    float *shared_gate;  /* f32 [max_rows]: output of the shared expert's router */
    uint32_t *ids;       /* [max_rows][n_used] */
    float *weights;      /* f32 [max_rows][n_used] */
    uint32_t *slot;      /* [max_rows][n_used] */
    ae_gpu_active *active; /* [n_active] */
    uint32_t *n_active;  /* [1] */
    float *gate, *up;    /* f32 [n_slots][n_ff] */
    float *down;         /* f32 [n_slots][n_embd] */
    float *s_gate, *s_up; /* f32 [max_rows][n_ff_shared], of the shared expert */
    float *s_down;       /* f32 [max_rows][n_embd] */
} ae_gpu_product_scratch;

#endif
