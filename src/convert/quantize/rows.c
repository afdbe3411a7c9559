/* rows.c - writes tensor data, chunk by chunk, with rows distributed over threads (rewrite.h).
 * Owns the buffers of a run. For each chunk, one thread reads it whole, the pool decodes, copies and encodes its rows, and one
 * thread writes it whole, so reading and writing stay in order. */
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "quant/finite.h"
#include "convert/quantize/rewrite_int.h"

#define CHUNK ((size_t)8 << 20) /* bytes of f32 in a chunk, or one row if that is larger */

typedef struct running {
    ae_rewrite *rewrite;
    ae_pool *pool;
    ae_gguf_reader reader;
    aerie_progress *progress;
    void *user;
    uint64_t done; /* bytes written */
    uint8_t *in, *out;
    size_t in_bytes, out_bytes; /* sizes of these buffers */
    float *importance;          /* [n matrices][columns] of the tensor, if its errors are weighted */
    size_t importance_bytes;
    float *rows;                /* [n_workers][row_floats] */
    size_t row_floats, rows_bytes;
} running;

/* The tensor being written, and a chunk of it. */
typedef struct chunk {
    const running *run;
    const ae_rewrite_tensor *t;
    const ae_type_info *from, *to;
    size_t ne0, in_row, out_row; /* elements of a row that is read; bytes of the rows */
    size_t first;                /* its first row in the tensor */
    size_t row_group;            /* rows that stay together in each copy; a chunk is whole groups */
    _Atomic uint64_t bad_row;    /* the chunk's first row with a weight that is not finite, or UINT64_MAX */
    _Atomic uint64_t cut_row;    /* the chunk's first row with a weight that the type cannot hold */
} chunk;

/* Returns the number of rows or columns that are copied together: the requested group, or all n. */
static size_t group_of(const running *run, size_t n)
{
    const size_t group = run->rewrite->settings.copy_group;
    return group && n % group == 0 ? group : n;
}

/* ---- Rows ----------------------------------------------------------------------------------------------- */

static bool all_finite(const float *x, size_t n)
{
    int32_t most = 0; /* the bits without the sign, which ascend with the magnitude */
    for (size_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    return most < 0x7f800000;
}

/* Encodes x [n] / share repeatedly, the k-th time at out + k * stride, each time with the errors of the earlier copies added.
 * scratch
 * [3 n]. */
static void encode_carrying(const ae_type_info *to, const float *x, size_t n, uint32_t copies, float share,
                            float *scratch, uint8_t *out, size_t stride)
{
    float *lost = scratch, *wanted = scratch + n, *got = scratch + 2 * n;
    memset(lost, 0, n * sizeof *lost);
    for (uint32_t k = 0; k < copies; k++) {
        for (size_t i = 0; i < n; i++) wanted[i] = x[i] / share + lost[i];
        ae_type_encoder(to->type)(wanted, NULL, out + k * stride, n);
        to->decode(out + k * stride, got, n);
        for (size_t i = 0; i < n; i++) lost[i] = wanted[i] - got[i];
    }
}

/* Writes a row whose columns occur c->t->column_copies times each. scratch: the wide row, or [3 group]. */
static void do_wide_row(const chunk *c, const float *x, float *scratch, uint8_t *out)
{
    const size_t copies = c->t->column_copies, group = group_of(c->run, c->ne0), block = c->to->n_block;
    const float share = (float)copies;
    if (c->run->rewrite->settings.copies_carry && group % block == 0) {
        const size_t bytes = group / block * c->to->block_bytes;
        for (size_t at = 0; at < c->ne0; at += group, out += copies * bytes)
            encode_carrying(c->to, x + at, group, (uint32_t)copies, share, scratch, out, bytes);
        return;
    }
    for (size_t i = 0; i < c->ne0; i++)
        for (size_t k = 0; k < copies; k++) scratch[i / group * group * copies + k * group + i % group] = x[i] / share;
    ae_type_encoder(c->to->type)(scratch, NULL, out, c->ne0 * copies);
}

/* Returns the importance of the columns in a row of the chunk; NULL: all are equal. */
static const float *importance_of(const chunk *c, size_t item)
{
    return c->t->weighed ? c->run->importance + (c->first + item) / (size_t)c->t->from->ne[1] * c->ne0 : NULL;
}

static void note_row(_Atomic uint64_t *first, uint64_t row)
{
    uint64_t least = atomic_load(first);
    while (row < least && !atomic_compare_exchange_weak(first, &least, row)) {
    }
}

static void do_row(void *context, uint32_t item, uint32_t i_worker)
{
    chunk *c = context;
    const running *run = c->run;
    const size_t copies = c->t->row_copies, group = c->row_group;
    float *x = run->rows + i_worker * run->row_floats, *scratch = x + c->ne0;
    uint8_t *out = run->out + (item / group * group * copies + item % group) * c->out_row;
    c->from->decode(run->in + item * c->in_row, x, c->ne0);
    size_t at;
    if (!all_finite(x, c->ne0)) note_row(&c->bad_row, item);
    else if (c->t->column_copies == 1 && !ae_type_holds(c->t->type, x, c->ne0, &at)) note_row(&c->cut_row, item);
    if (copies > 1 && c->t->column_copies == 1 && run->rewrite->settings.copies_carry) {
        encode_carrying(c->to, x, c->ne0, (uint32_t)copies, 1.0f, scratch, out, group * c->out_row);
        return;
    }
    if (c->t->column_copies > 1) do_wide_row(c, x, scratch, out);
    else ae_type_encoder(c->to->type)(x, importance_of(c, item), out, c->ne0);
    for (size_t k = 1; k < copies; k++) memcpy(out + k * group * c->out_row, out, c->out_row);
}

/* Makes space for n bytes. */

static aerie_status grow(void *buffer, size_t *has, size_t n, aerie_error *error)
{
    void **at = buffer;
    if (n <= *has) return AERIE_OK;
    ae_free(*at);
    *has = 0;
    *at = ae_alloc_aligned(n, 1);
    if (!*at) return ae_fail_memory(error, "a part of a tensor", n);
    *has = n;
    return AERIE_OK;
}

/* Makes space for a row of this many floats for each worker. */
static aerie_status grow_rows(running *run, size_t floats, aerie_error *error)
{
    size_t bytes;
    if (floats <= run->row_floats) return AERIE_OK;
    run->row_floats = (floats + 15) & ~(size_t)15;
    if (!ae_mul_size(run->row_floats, sizeof(float) * ae_pool_n_workers(run->pool), &bytes))
        return ae_fail_memory(error, "a row of a tensor", SIZE_MAX);
    return grow(&run->rows, &run->rows_bytes, bytes, error);
}

static aerie_status put(running *run, const uint8_t *bytes, size_t n, aerie_error *error)
{
    AE_TRY(ae_gguf_writer_data(run->rewrite->writer, bytes, n, error));
    run->done += n;
    if (run->progress && !run->progress(run->user, run->done, run->rewrite->total))
        return ae_fail(error, AERIE_ERROR_CANCELLED, "interrupted; no file was written");
    return AERIE_OK;
}

static aerie_status copy_bytes(running *run, const ae_rewrite_tensor *t, aerie_error *error)
{
    AE_TRY(grow(&run->in, &run->in_bytes, t->bytes < CHUNK ? t->bytes : CHUNK, error));
    for (size_t at = 0, n; at < t->bytes; at += n) {
        n = t->bytes - at < CHUNK ? t->bytes - at : CHUNK;
        AE_TRY(ae_gguf_read(&run->reader, t->from, at, run->in, n, error));
        AE_TRY(put(run, run->in, n, error));
    }
    return AERIE_OK;
}

/* Copies a vector with repeated elements, which is small and f32. */
static aerie_status copy_vector(running *run, const ae_rewrite_tensor *t, aerie_error *error)
{
    const size_t n = (size_t)t->from->ne[0], copies = t->row_copies, group = group_of(run, n);
    AE_TRY(grow(&run->in, &run->in_bytes, t->from->bytes, error));
    AE_TRY(grow(&run->out, &run->out_bytes, t->bytes, error));
    AE_TRY(ae_gguf_read(&run->reader, t->from, 0, run->in, t->from->bytes, error));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < copies; k++)
            memcpy(run->out + 4 * (i / group * group * copies + k * group + i % group), run->in + 4 * i, 4);
    return put(run, run->out, t->bytes, error);
}

/* Reads the row again for the message. */
static aerie_status fail_cut(const running *run, const chunk *c, uint64_t row, aerie_error *error)
{
    size_t at = 0;
    float *x = run->rows;
    c->from->decode(run->in + row * c->in_row, x, c->ne0);
    (void)ae_type_holds(c->t->type, x, c->ne0, &at);
    return ae_rewrite_fail(run->rewrite->gguf, c->t->from, error, AERIE_ERROR_FORMAT,
                           "has the weight %g in row %llu, which is too large for %s; write it as %s: --tensor-type %.*s=%s",
                           (double)x[at], (unsigned long long)(c->first + row), c->to->name,
                           c->t->type == AE_TYPE_BF16 ? "F32" : "BF16 or F32", (int)c->t->from->name.n, c->t->from->name.data,
                           c->t->type == AE_TYPE_BF16 ? "f32" : "bf16");
}

static aerie_status do_chunk(running *run, chunk *c, size_t first, size_t n_rows, aerie_error *error)
{
    AE_TRY(ae_gguf_read(&run->reader, c->t->from, first * c->in_row, run->in, n_rows * c->in_row, error));
    c->first = first;
    atomic_store(&c->bad_row, UINT64_MAX);
    atomic_store(&c->cut_row, UINT64_MAX);
    ae_pool_run(run->pool, do_row, c, (uint32_t)n_rows);
    const uint64_t bad = atomic_load(&c->bad_row);
    if (bad != UINT64_MAX)
        return ae_rewrite_fail(
            run->rewrite->gguf, c->t->from, error, AERIE_ERROR_FORMAT,
            "has a weight in row %llu that is infinite or not a number: the file is damaged, or its training failed",
            (unsigned long long)(first + bad));
    const uint64_t cut = atomic_load(&c->cut_row);
    if (cut != UINT64_MAX) return fail_cut(run, c, cut, error);
    return put(run, run->out, n_rows * c->t->row_copies * c->out_row, error);
}

static aerie_status do_tensor(running *run, const ae_rewrite_tensor *t, aerie_error *error)
{
    const ae_gguf_tensor *from = t->from;
    const size_t n_rows = (size_t)(from->ne[1] * from->ne[2] * from->ne[3]), ne0 = (size_t)from->ne[0];
    ae_rewrite *r = run->rewrite;
    r->writer = r->writers[r->part_of[from->i_file]];
    if (ae_rewrite_keeps(t)) return copy_bytes(run, t, error);
    if (t->row_copies > 1 && n_rows == 1) return copy_vector(run, t, error);
    chunk c = {.run = run,
               .t = t,
               .from = ae_type_get(from->type),
               .to = ae_type_get(t->type),
               .ne0 = ne0,
               .in_row = ae_type_row_bytes(from->type, ne0),
               .out_row = ae_type_row_bytes(t->type, (uint64_t)t->ne[0]),
               .row_group = t->row_copies > 1 ? group_of(run, n_rows) : 1};
    /* the plan has checked that the new tensor's size does not overflow, but its size as f32 may */
    size_t floats, f32_bytes = 0;
    const size_t scratch = t->column_copies > 3 ? t->column_copies : 3;
    if (!ae_mul_size(ne0, 1 + scratch, &floats) || !ae_mul_size(floats, sizeof(float), &f32_bytes) ||
        !ae_mul_size(f32_bytes, t->row_copies, &f32_bytes))
        return ae_fail_memory(error, "a row of a tensor", SIZE_MAX);
    if (t->weighed) {
        size_t bytes;
        const size_t n = (size_t)(from->ne[2] * from->ne[3]);
        if (!ae_mul_size(n, ne0 * sizeof(float), &bytes)) return ae_fail_memory(error, "an importance matrix", SIZE_MAX);
        AE_TRY(grow(&run->importance, &run->importance_bytes, bytes, error));
        ae_imatrix_means(run->rewrite->settings.imatrix, from->name, run->importance);
    }
    size_t at_once = CHUNK / f32_bytes / c.row_group * c.row_group, in_bytes, out_bytes;
    if (at_once < c.row_group) at_once = c.row_group;
    if (at_once > n_rows) at_once = n_rows;
    if (!ae_mul_size(at_once, c.in_row, &in_bytes) || !ae_mul_size(at_once * t->row_copies, c.out_row, &out_bytes))
        return ae_fail_memory(error, "a part of a tensor", SIZE_MAX);
    AE_TRY(grow_rows(run, floats, error));
    AE_TRY(grow(&run->in, &run->in_bytes, in_bytes, error));
    AE_TRY(grow(&run->out, &run->out_bytes, out_bytes, error));
    for (size_t first = 0; first < n_rows; first += at_once)
        AE_TRY(do_chunk(run, &c, first, n_rows - first < at_once ? n_rows - first : at_once, error));
    return AERIE_OK;
}

/* Gives the files their names, once all are complete. */
static aerie_status finish(ae_rewrite *r, aerie_error *error)
{
    for (uint32_t i = 0; i < r->n_writers; i++) AE_TRY(ae_gguf_writer_close(r->writers[i], error));
    if (r->layers.n) {
        const char **parts = ae_alloc(r->n_writers, sizeof *parts);
        if (!parts) return ae_fail_memory(error, "the names of files", r->n_writers * sizeof *parts);
        for (uint32_t i = 0; i < r->n_writers; i++) parts[i] = ae_gguf_writer_part(r->writers[i]);
        const aerie_status status =
            ae_prune_check(&r->layers, ae_gguf_path(r->gguf), parts, r->n_writers, &r->checked, error);
        ae_free(parts);
        AE_TRY(status);
    }
    for (uint32_t i = 0; i < r->n_writers; i++) AE_TRY(ae_gguf_writer_finish(r->writers[i], error));
    return AERIE_OK;
}

aerie_status ae_rewrite_run(ae_rewrite *r, uint32_t n_threads, aerie_progress *progress, void *user, aerie_error *error)
{
    running run = {.rewrite = r, .reader = ae_gguf_reader_open(r->gguf), .progress = progress, .user = user};
    aerie_status status = ae_pool_create(&run.pool, n_threads ? n_threads : 1, error);
    if (status == AERIE_OK && progress && !progress(user, 0, r->total))
        status = ae_fail(error, AERIE_ERROR_CANCELLED, "interrupted; no file was written");
    for (size_t i = 0; i < r->n_tensors && status == AERIE_OK; i++) status = do_tensor(&run, &r->tensors[i], error);
    if (status == AERIE_OK) status = finish(r, error);
    ae_gguf_reader_close(&run.reader);
    ae_pool_free(run.pool);
    ae_free(run.in);
    ae_free(run.out);
    ae_free(run.rows);
    ae_free(run.importance);
    return status;
}
