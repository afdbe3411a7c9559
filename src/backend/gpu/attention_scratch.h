/* attention_scratch.h - what a stream keeps on the device for attention (attention.c). */
#ifndef AE_BACKEND_GPU_ATTENTION_SCRATCH_H
#define AE_BACKEND_GPU_ATTENTION_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#define AE_GPU_ARRIVALS 16384u /* tiles, for each KV head, that can be split */

typedef struct ae_gpu_attention_scratch {
    float *parts;   /* [n_parts] f32: chunks that are not yet joined (kernels/args_attention.h) */
    size_t n_parts;
    uint32_t *arrivals; /* [AE_GPU_ARRIVALS], 0 between launches */
} ae_gpu_attention_scratch;

#endif
