/* pass.h - a stream's recorded passes. Used inside the GPU backends, by stream.c. */
#ifndef AE_BACKEND_GPU_PASS_H
#define AE_BACKEND_GPU_PASS_H

#include "backend/gpu/gpu.h"

/* Sets up a stream's recordings. There are none if AERIE_GPU_GRAPHS is 0 or the driver cannot record. Errors: MEMORY. */
aerie_status ae_gpu_passes_create(ae_stream *stream, aerie_error *error);
/* After a wait. */
void ae_gpu_passes_free(ae_stream *stream);
/* Counts the passes that were recorded and replayed so far, for tests. */
void ae_gpu_passes_count(const ae_stream *stream, uint32_t *n_recorded, uint32_t *n_replayed);

#endif
