/* scratch.h - a stream's scratch memory on the device, used between the kernels of an operation. stream.c allocates and frees
 * it. */
#ifndef AE_BACKEND_GPU_SCRATCH_H
#define AE_BACKEND_GPU_SCRATCH_H

#include "backend/gpu/kernels/args_product.h"

#include <stddef.h>
#include <stdint.h>

/* Scratch of attention (attention.c). */
#define AE_GPU_ARRIVALS 16384u /* tiles, for each KV head, that can be split */

typedef struct ae_gpu_attention_scratch {
    float *parts;   /* [n_parts] f32: chunks that are not yet joined (kernels/args_attention.h) */
    size_t n_parts;
    uint32_t *arrivals; /* [AE_GPU_ARRIVALS], 0 between launches */
} ae_gpu_attention_scratch;

/* Scratch of the choice of positions (attention.c). */
typedef struct ae_gpu_select_scratch {
    float *scores;  /* f32 [n_rows][n_selected_from] */
    uint32_t n_rows; /* that take turns */
} ae_gpu_select_scratch;

/* Scratch of products and experts (product.c, moe.c). */
typedef struct ae_gpu_product_scratch {
    ae_gpu_rows rows;    /* the arrays; their sizes are those of the current product */
    uint32_t tiles;      /* capacity in tiles of 8 rows of max_in columns */
    uint32_t max_in;     /* a multiple of 256 */
    /* Experts (moe.c). A slot is a row among those that the experts multiply. */
    ae_gpu_rows slots;   /* the slots' prepared rows */
    float *logits;       /* f32 [max_rows][n_experts] */
    float *shared_gate;  /* f32 [max_rows]: output of the shared expert's router */
    uint32_t *ids;       /* [max_rows][n_used] */
    float *weights;      /* f32 [max_rows][n_used] */
    uint32_t *slot;      /* [max_rows][n_used] */
    ae_gpu_active *active; /* [n_active] */
    uint32_t *n_active;  /* [1] */
    float *gate, *up;    /* f32 [n_slots][n_ff] */
    float *down;         /* f32 [n_slots][n_embd] */
    float *s_gate, *s_up; /* f32 [max_rows][n_ff_shared]: gate and up of the shared expert */
    float *s_down;       /* f32 [max_rows][n_embd] */
} ae_gpu_product_scratch;

/* Scratch of recurrent layers (recurrent.c). */
typedef struct ae_gpu_state_scratch {
    float *alpha, *beta; /* two of [max_rows][n_alphas], for the layer with the most alphas (kernels/args_state.h) */
    float *erased;       /* the same of WKV7 */
} ae_gpu_state_scratch;

#endif
