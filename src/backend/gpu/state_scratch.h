/* state_scratch.h - what a stream keeps on the device for recurrent layers (recurrent.c). */
#ifndef AE_BACKEND_GPU_STATE_SCRATCH_H
#define AE_BACKEND_GPU_STATE_SCRATCH_H

typedef struct ae_gpu_state_scratch {
    float *alpha; /* [max_rows][n_heads] */
    float *beta;  /* [max_rows][n_heads]; MAMBA2: delta */
} ae_gpu_state_scratch;

#endif
