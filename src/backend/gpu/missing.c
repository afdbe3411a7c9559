/* missing.c - stands in for files that are not there yet: declines. To be removed. */
#include "backend/gpu/gpu.h"

#ifdef AE_GPU_NO_WEIGHT
size_t ae_gpu_weight_bytes(const ae_backend *backend, const ae_weight_source *source)
{
    (void)backend, (void)source;
    return 0;
}
aerie_status ae_gpu_weight_create(ae_backend *backend, const ae_weight_source *source, void *memory, ae_weight **out,
                                  aerie_error *error)
{
    (void)backend, (void)source, (void)memory;
    *out = NULL;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "weights are missing");
}
aerie_status ae_gpu_weight_fill(ae_backend *backend, ae_weight *weight, const void *rows, uint32_t first, uint32_t n,
                                aerie_error *error)
{
    (void)backend, (void)weight, (void)rows, (void)first, (void)n, (void)error;
    return AERIE_OK;
}
void ae_gpu_weight_free(ae_backend *backend, ae_weight *weight)
{
    (void)backend, (void)weight;
}
#endif
#ifdef AE_GPU_NO_PRODUCT
void ae_gpu_product_layout(ae_layout *layout, const ae_gpu_backend *backend, const ae_stream_options *options,
                           ae_gpu_product_scratch *scratch)
{
    (void)layout, (void)backend, (void)options, (void)scratch;
}
void ae_gpu_matmul(ae_stream *stream, const ae_matmul *args)
{
    (void)args;
    ae_gpu_decline(stream, "products");
}
void ae_gpu_head_matmul(ae_stream *stream, const ae_head_matmul *args)
{
    (void)args;
    ae_gpu_decline(stream, "products");
}
void ae_gpu_lookup(ae_stream *stream, const ae_weight *table, const int32_t *tokens, uint32_t n_rows, float *y,
                   size_t y_stride)
{
    (void)table, (void)tokens, (void)n_rows, (void)y, (void)y_stride;
    ae_gpu_decline(stream, "lookups");
}
#endif
#ifdef AE_GPU_NO_ATTENTION
void ae_gpu_attention_layout(ae_layout *layout, const ae_gpu_backend *backend, const ae_stream_options *options,
                             ae_gpu_attention_scratch *scratch)
{
    (void)layout, (void)backend, (void)options, (void)scratch;
}
void ae_gpu_attention(ae_stream *stream, const ae_attention *args)
{
    (void)args;
    ae_gpu_decline(stream, "attention");
}
#endif
