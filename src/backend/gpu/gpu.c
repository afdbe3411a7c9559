/* gpu.c - the GPU backends: their table of operations, opening and closing, device memory, launches.
 *
 * Owns the backend and its device. "cuda", "vulkan" and "emu" are this table over three drivers. */
#include "backend/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static const char *const kernel_names[AE_GPU_N_KERNELS + 1] = {
#define KERNEL_NAME(name, args, threads) #name,
    AE_GPU_KERNELS(KERNEL_NAME)
#undef KERNEL_NAME
    NULL,
};

static const char *name_of(ae_gpu_kernel i)
{
    return (uint32_t)i < AE_GPU_N_KERNELS && kernel_names[i] ? kernel_names[i] : "?";
}

/* ---- Device memory ---------------------------------------------------------------------------------------- */

static void *gpu_alloc(ae_backend *backend, size_t bytes)
{
    ae_gpu_count(ae_gpu(backend));
    return ae_gpu(backend)->driver->alloc(ae_gpu(backend)->device, bytes);
}

static void gpu_free(ae_backend *backend, void *memory, size_t bytes)
{
    (void)bytes;
    ae_gpu_count(ae_gpu(backend));
    if (memory) ae_gpu(backend)->driver->free(ae_gpu(backend)->device, memory);
}

static size_t gpu_max_block(const ae_backend *backend)
{
    const size_t most = ae_gpu(backend)->facts.max_block;
    return most ? most : SIZE_MAX;
}

static aerie_status gpu_fill(ae_backend *backend, void *device, const void *host, size_t n, aerie_error *error)
{
    ae_gpu_backend *b = ae_gpu(backend);
    aerie_error said = {0};
    const aerie_status status = n ? b->driver->fill(b->device, device, host, n, &said) : AERIE_OK;
    ae_gpu_count(b);
    if (status == AERIE_OK) return AERIE_OK;
    return ae_fail(error, status, "%s: writing %zu bytes to the device: %.400s", b->name, n, said.text);
}

static void gpu_memory_info(const ae_backend *backend, uint64_t *n_free, uint64_t *n_total)
{
    ae_gpu_backend *b = ae_gpu(backend);
    pthread_mutex_lock(&b->mutex);
    b->driver->memory_info(b->device, n_free, n_total);
    pthread_mutex_unlock(&b->mutex);
}

/* ---- Launches --------------------------------------------------------------------------------------------- */

static aerie_status launch(ae_gpu_backend *b, ae_gpu_kernel i, const uint32_t grid[3], uint32_t n_shared, const void *args,
                           bool wait, aerie_error *error)
{
    if (grid[1] > 65535 || grid[2] > 65535)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "a grid of %u x %u x %u blocks", grid[0], grid[1], grid[2]);
    if (n_shared > b->facts.max_shared_bytes)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "a block needs %u bytes of shared memory, and this device has %u",
                       n_shared, b->facts.max_shared_bytes);
    AE_TRY(b->driver->launch(b->device, i, grid, n_shared, args, error));
    ae_gpu_count(b);
    b->newest = name_of(i);
    return wait ? b->driver->sync(b->device, error) : AERIE_OK;
}

void ae_gpu_launch(ae_stream *stream, ae_gpu_kernel i, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t n_shared,
                   const void *args)
{
    ae_gpu_backend *b = stream->backend;
    aerie_error error = {0};
    char what[80];
    if (!gx || !gy || !gz) return;
    if (stream->fault.status != AERIE_OK) return; /* tables that the launch reads may not have arrived; nobody uses the results
                                                   * of this pass */
    ae_gpu_lock(stream);
    const aerie_status status = launch(b, i, (const uint32_t[3]){gx, gy, gz}, n_shared, args,
                                       b->wait_each && !stream->recording, &error);
    ae_gpu_unlock(stream);
    if (status == AERIE_OK) return;
    snprintf(what, sizeof what, "kernel %s", name_of(i));
    ae_gpu_note(stream, status, what, &error);
}

void ae_gpu_zero(ae_stream *stream, void *device, size_t n)
{
    ae_gpu_backend *b = stream->backend;
    aerie_error error = {0};
    if (!n) return;
    ae_gpu_lock(stream);
    const aerie_status status = b->driver->zero(b->device, device, n, &error);
    ae_gpu_count(b);
    ae_gpu_unlock(stream);
    if (status != AERIE_OK) ae_gpu_note(stream, status, "zeroing", &error);
}

void ae_gpu_note(ae_stream *stream, aerie_status status, const char *what, const aerie_error *error)
{
    ae_backend_note(&stream->fault, status, "%s: %s: %.400s", stream->backend->name, what, error->text);
}

void ae_gpu_decline(ae_stream *stream, const char *what)
{
    ae_backend_note(&stream->fault, AERIE_ERROR_UNSUPPORTED, "%s does not run %s yet; --device cpu runs them",
                    stream->backend->name, what);
}

/* ---- The table -------------------------------------------------------------------------------------------- */

static void gpu_close(ae_backend *backend)
{
    ae_gpu_backend *b = ae_gpu(backend);
    b->driver->close(b->device);
    pthread_mutex_destroy(&b->mutex);
    ae_free(b);
}

static const ae_backend_ops gpu_ops = {
    .close = gpu_close,
    .alloc = gpu_alloc,
    .free = gpu_free,
    .max_block = gpu_max_block,
    .weight_bytes = ae_gpu_weight_bytes,
    .weight_create = ae_gpu_weight_create,
    .weight_fill = ae_gpu_weight_fill,
    .weight_free = ae_gpu_weight_free,
    .stream_bytes = ae_gpu_stream_bytes,
    .stream_create = ae_gpu_stream_create,
    .stream_free = ae_gpu_stream_free,
    .sync = ae_gpu_sync,
    .host_run = ae_gpu_host_run,
    .kv_bytes = ae_gpu_kv_bytes,
    .kv_create = ae_gpu_kv_create,
    .kv_free = ae_gpu_kv_free,
    .kv_copy_page = ae_gpu_kv_copy_page,
    .kv_commit = ae_gpu_kv_commit,
    .kv_slot_bytes = ae_gpu_kv_slot_bytes,
    .kv_read = ae_gpu_kv_read,
    .kv_write = ae_gpu_kv_write,
    .upload = ae_gpu_upload,
    .download = ae_gpu_download,
    .fill = gpu_fill,
    .view = ae_gpu_view,
    .view_needs_room = true,
    .memory_info = gpu_memory_info,
    .mark = ae_gpu_mark,
    .elapsed = ae_gpu_elapsed,
    .wait = ae_gpu_wait_for,
    .pass_begin = ae_gpu_pass_begin,
    .pass_end = ae_gpu_pass_end,
    .lookup = ae_gpu_lookup,
    .matmul = ae_gpu_matmul,
    .head_matmul = ae_gpu_head_matmul,
    .norm = ae_gpu_norm,
    .axpy = ae_gpu_axpy,
    .map = ae_gpu_map,
    .mix = ae_gpu_mix,
    .hyper = ae_gpu_hyper,
    .accord = ae_gpu_accord,
    .moe = ae_gpu_moe,
    .rope_table = ae_gpu_rope_table,
    .rope_kv = ae_gpu_rope_kv,
    .rotate = ae_gpu_rotate,
    .compress = ae_gpu_compress,
    .ngrams = ae_gpu_ngrams,
    .trail = ae_gpu_trail,
    .attention = ae_gpu_attention,
    .select = ae_gpu_select,
    .copy = ae_gpu_copy,
    .walk = ae_gpu_walk,
    .propose = ae_gpu_propose,
    .state_bytes = ae_gpu_state_bytes,
    .state_create = ae_gpu_state_create,
    .state_free = ae_gpu_state_free,
    .state_zero = ae_gpu_state_zero,
    .state_copy = ae_gpu_state_copy,
    .state_absorb = ae_gpu_state_absorb,
    .state_plane_bytes = ae_gpu_state_plane_bytes,
    .state_read = ae_gpu_state_read,
    .state_write = ae_gpu_state_write,
    .conv = ae_gpu_conv,
    .recur = ae_gpu_recur,
    .gated_norm = ae_gpu_gated_norm,
};

aerie_status ae_gpu_open(const ae_gpu_driver *driver, uint32_t i, const char *name, ae_backend **out, aerie_error *error)
{
    *out = NULL;
    ae_gpu_backend *b = ae_alloc(1, sizeof *b);
    if (!b) return ae_fail_memory(error, "the GPU backend", sizeof *b);
    b->driver = driver;
    const aerie_status status = driver->open(i, &b->device, &b->facts, error);
    if (status != AERIE_OK) {
        ae_free(b);
        return status;
    }
    const char *wait = getenv("AERIE_GPU_WAIT");
    snprintf(b->name, sizeof b->name, "%s", name);
    b->ops = gpu_ops;
    b->ops.name = b->name;
    b->base.ops = &b->ops;
    b->wait_each = wait && !strcmp(wait, "1");
    b->newest = "none";
    pthread_mutex_init(&b->mutex, NULL);
    *out = &b->base;
    return AERIE_OK;
}
