/* recurrent.c - recurrent layers on the GPU: not there yet. No store can be created, so the operations are not reached. */
#include "backend/gpu/gpu.h"

static void decline(ae_stream *stream)
{
    ae_gpu_decline(stream, "models with recurrent layers");
}

size_t ae_gpu_state_bytes(const ae_backend *backend, const ae_state_shape *shape)
{
    (void)backend, (void)shape;
    return 0;
}

aerie_status ae_gpu_state_create(ae_backend *backend, const ae_state_shape *shape, ae_state_store **out, aerie_error *error)
{
    (void)shape;
    *out = NULL;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s does not run models with recurrent layers yet; --device cpu runs them",
                   ae_gpu(backend)->name);
}

void ae_gpu_state_free(ae_backend *backend, ae_state_store *store)
{
    (void)backend, (void)store;
}

void ae_gpu_state_zero(ae_stream *stream, ae_state_store *store, uint32_t plane)
{
    (void)store, (void)plane;
    decline(stream);
}

void ae_gpu_state_copy(ae_stream *stream, ae_state_store *store, uint32_t from, uint32_t to)
{
    (void)store, (void)from, (void)to;
    decline(stream);
}

void ae_gpu_state_absorb(ae_stream *stream, const ae_state_pass *pass)
{
    (void)pass;
    decline(stream);
}

size_t ae_gpu_state_plane_bytes(const ae_state_store *store)
{
    (void)store;
    return 0;
}

void ae_gpu_state_read(ae_stream *stream, const ae_state_store *store, uint32_t plane, void *out)
{
    (void)store, (void)plane, (void)out;
    decline(stream);
}

void ae_gpu_state_write(ae_stream *stream, ae_state_store *store, uint32_t plane, const void *bytes)
{
    (void)store, (void)plane, (void)bytes;
    decline(stream);
}

void ae_gpu_conv(ae_stream *stream, const ae_conv *args)
{
    (void)args;
    decline(stream);
}

void ae_gpu_recur(ae_stream *stream, const ae_recur *args)
{
    (void)args;
    decline(stream);
}

void ae_gpu_gated_norm(ae_stream *stream, const ae_gated_norm *args)
{
    (void)args;
    decline(stream);
}
