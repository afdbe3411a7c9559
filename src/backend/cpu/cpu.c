/* cpu.c - the CPU backend: its table of operations, opening and closing.
 *
 * Device memory is in memory.c, streams in stream.c, products in product.c. Work is split over output rows (products), rows
 * (norms, rotation) and tiles of queries (attention), never over k, so the split does not change the output. Small operations
 * run on the calling thread: waking the others takes longer (about a microsecond) than they would save. */
#include "backend/backend.h"

#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "base/mem.h"
#include "base/os.h"

/* ---- The table ------------------------------------------------------------------------------------------- */

static void cpu_close(ae_backend *backend)
{
    ae_cpu_backend *b = (ae_cpu_backend *)backend;
    ae_cpu_guard_destroy(b->guard);
    pthread_mutex_destroy(&b->mutex);
    ae_free(b);
}

static const ae_backend_ops cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .alloc = ae_cpu_alloc,
    .free = ae_cpu_free,
    .takes_blocks = true,
    .weight_bytes = ae_cpu_weight_bytes,
    .weight_create = ae_cpu_weight_create,
    .weight_fill = ae_cpu_weight_fill,
    .weight_free = ae_cpu_weight_free,
    .stream_bytes = ae_cpu_stream_bytes,
    .stream_create = ae_cpu_stream_create,
    .stream_free = ae_cpu_stream_free,
    .sync = ae_cpu_sync,
    .host_run = ae_cpu_host_run,
    .watch = ae_cpu_watch,
    .kv_bytes = ae_cpu_kv_bytes,
    .kv_create = ae_cpu_kv_create,
    .kv_free = ae_cpu_kv_free,
    .kv_copy_page = ae_cpu_kv_copy_page,
    .kv_commit = ae_cpu_kv_commit,
    .kv_slot_bytes = ae_cpu_kv_slot_bytes,
    .kv_read = ae_cpu_kv_read,
    .kv_write = ae_cpu_kv_write,
    .upload = ae_cpu_copy_in,
    .download = ae_cpu_copy_out,
    .fill = ae_cpu_fill,
    .view = ae_cpu_view,
    .memory_info = ae_cpu_memory_info,
    .mark = ae_cpu_mark,
    .elapsed = ae_cpu_elapsed,
    .wait = ae_cpu_wait,
    .pass_begin = ae_cpu_pass_begin,
    .pass_end = ae_cpu_pass_end,
    .lookup = ae_cpu_lookup,
    .matmul = ae_cpu_matmul,
    .head_matmul = ae_cpu_head_matmul,
    .norm = ae_cpu_norm,
    .axpy = ae_cpu_axpy,
    .map = ae_cpu_map,
    .mix = ae_cpu_mix,
    .hyper = ae_cpu_hyper,
    .moe = ae_cpu_moe_run,
    .rope_table = ae_cpu_rope_table,
    .rope_kv = ae_cpu_rope_kv,
    .attention = ae_cpu_attention,
    .select = ae_cpu_select,
    .rotate = ae_cpu_rotate,
    .compress = ae_cpu_compress,
    .ngrams = ae_cpu_ngrams,
    .trail = ae_cpu_trail,
    .accord = ae_cpu_accord,
    .copy = ae_cpu_copy,
    .walk = ae_cpu_walk,
    .propose = ae_cpu_propose,
    .state_bytes = ae_cpu_state_bytes,
    .state_create = ae_cpu_state_create,
    .state_free = ae_cpu_state_free,
    .state_zero = ae_cpu_state_zero,
    .state_copy = ae_cpu_state_copy,
    .state_absorb = ae_cpu_state_absorb,
    .state_plane_bytes = ae_cpu_state_plane_bytes,
    .state_read = ae_cpu_state_read,
    .state_write = ae_cpu_state_write,
    .conv = ae_cpu_conv,
    .recur = ae_cpu_recur,
    .gated_norm = ae_cpu_gated_norm,
};

aerie_status ae_cpu_open(ae_backend **out, const char *level, aerie_error *error)
{
    *out = NULL;
    ae_cpu_backend *b = ae_alloc(1, sizeof *b);
    if (!b) return ae_fail_memory(error, "the CPU backend", sizeof *b);
    bool supported;
    if (!ae_kernels_select(&b->kernels, level, &supported)) {
        ae_free(b);
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "CPU level \"%s\" is unknown; the known levels are %s", level,
                       ae_kernels_known());
    }
    if (!supported) {
        ae_free(b);
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "this CPU lacks the level \"%s\"", level);
    }
    b->base.ops = &cpu_ops;
    pthread_mutex_init(&b->mutex, NULL);
    *out = &b->base;
    return AERIE_OK;
}

static bool is_cpu(const ae_backend *backend)
{
    return backend->ops->close == cpu_close;
}

const char *ae_backend_cpu_level(const ae_backend *backend)
{
    return is_cpu(backend) ? ae_cpu(backend)->kernels.level : backend->ops->name;
}

const char *ae_backend_cpu_choices(const ae_backend *backend)
{
    return is_cpu(backend) ? ae_cpu(backend)->said : "";
}

void ae_backend_cpu_tiles_from(ae_backend *backend, uint32_t n_rows)
{
    if (is_cpu(backend)) ((ae_cpu_backend *)backend)->tiles_from = n_rows;
}
