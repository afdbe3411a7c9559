/* moe.c - experts on the GPU: not there yet. Owns nothing. */
#include "backend/gpu/gpu.h"

void ae_gpu_moe(ae_stream *stream, const ae_moe *args)
{
    (void)args;
    ae_gpu_decline(stream, "models with experts");
}
