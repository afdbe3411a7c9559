/* pass.h - recorded passes of a stream: inside the GPU backends, for stream.c. */
#ifndef AE_BACKEND_GPU_PASS_H
#define AE_BACKEND_GPU_PASS_H

#include "backend/gpu/gpu.h"

/* Sets up a stream's recordings; AERIE_GPU_GRAPHS=0, or a driver that cannot record: there are none. Errors: MEMORY. */
aerie_status ae_gpu_passes_create(ae_stream *stream, aerie_error *error);
/* After a wait. */
void ae_gpu_passes_free(ae_stream *stream);
/* For tests: the numbers of passes recorded and replayed so far. */
void ae_gpu_passes_count(const ae_stream *stream, uint32_t *n_recorded, uint32_t *n_replayed);

#endif
