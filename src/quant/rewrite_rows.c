/* rewrite_rows.c - the second half of rewrite.h: tensor data, chunk by chunk, rows shared out among threads.
 *
 * Owns the buffers while it runs. A chunk is read whole, its rows are decoded, spread and encoded by the pool, and
 * it is written whole: reading and writing stay in order and in one thread.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "quant/rewrite_int.h"

#define CHUNK ((size_t)8 << 20) /* bytes of f32 in a chunk, but at least a row */

typedef struct running {
    ae_rewrite *rewrite;
    ae_pool *pool;
    ae_gguf_reader reader;
    aerie_progress *progress;
    void *user;
    uint64_t done; /* bytes written */
    uint8_t *in, *out;
    size_t in_bytes, out_bytes; /* of these */
    float *rows;                /* [n_workers][row_floats] */
    size_t row_floats, rows_bytes;
} running;

/* One tensor on its way, and a chunk of it. */
typedef struct chunk {
    const running *run;
    const ae_rewrite_tensor *t;
    const ae_type_info *from, *to;
    size_t ne0, in_row, out_row; /* elements of a row that is read; bytes of rows */
    uint32_t repeat;             /* times that each row stands in out, one behind the other */
    _Atomic uint64_t bad_row;    /* the first one of the chunk with a weight that is no finite number, or UINT64_MAX */
} chunk;

/* ---- Rows ----------------------------------------------------------------------------------------------- */

static bool all_finite(const float *x, size_t n)
{
    bool finite = true;
    for (size_t i = 0; i < n; i++) finite = finite && isfinite(x[i]);
    return finite;
}

/* The columns of x [n], c times each and divided by c. */
static void spread(const float *x, size_t n, uint32_t c, bool apart, float *out)
{
    for (size_t i = 0; i < n; i++) {
        const float part = x[i] / (float)c;
        for (uint32_t k = 0; k < c; k++) out[apart ? k * n + i : i * c + k] = part;
    }
}

static void do_row(void *context, uint32_t item, uint32_t i_worker)
{
    chunk *c = context;
    const running *run = c->run;
    const uint32_t copies = c->t->column_copies;
    float *x = run->rows + i_worker * run->row_floats, *wide = x + c->ne0;
    uint8_t *out = run->out + item * c->repeat * c->out_row;
    c->from->decode(run->in + item * c->in_row, x, c->ne0);
    if (!all_finite(x, c->ne0)) {
        uint64_t least = atomic_load(&c->bad_row);
        while (item < least && !atomic_compare_exchange_weak(&c->bad_row, &least, item)) {
        }
    }
    if (copies > 1) spread(x, c->ne0, copies, run->rewrite->settings.apart, wide);
    c->to->encode(copies > 1 ? wide : x, out, c->ne0 * copies);
    for (uint32_t k = 1; k < c->repeat; k++) memcpy(out + k * c->out_row, out, c->out_row);
}

/* ---- Tensors -------------------------------------------------------------------------------------------- */

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

/* A row of so many floats for each worker. */
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

/* A vector whose elements are repeated: small, and f32. */
static aerie_status copy_vector(running *run, const ae_rewrite_tensor *t, aerie_error *error)
{
    const size_t n = (size_t)t->from->ne[0], copies = t->row_copies;
    AE_TRY(grow(&run->in, &run->in_bytes, t->from->bytes, error));
    AE_TRY(grow(&run->out, &run->out_bytes, t->bytes, error));
    AE_TRY(ae_gguf_read(&run->reader, t->from, 0, run->in, t->from->bytes, error));
    for (size_t i = 0; i < n * copies; i++)
        memcpy(run->out + 4 * i, run->in + 4 * (run->rewrite->settings.apart ? i % n : i / copies), 4);
    return put(run, run->out, t->bytes, error);
}

static aerie_status do_chunk(running *run, chunk *c, size_t first, size_t n_rows, aerie_error *error)
{
    AE_TRY(ae_gguf_read(&run->reader, c->t->from, first * c->in_row, run->in, n_rows * c->in_row, error));
    atomic_store(&c->bad_row, UINT64_MAX);
    ae_pool_run(run->pool, do_row, c, (uint32_t)n_rows);
    const uint64_t bad = atomic_load(&c->bad_row);
    if (bad != UINT64_MAX)
        return ae_rewrite_fail(run->rewrite->gguf, c->t->from, error, AERIE_ERROR_FORMAT,
                               "has a weight in row %llu that is infinite or not a number: the file is damaged, or its training failed",
                               (unsigned long long)(first + bad));
    return put(run, run->out, n_rows * c->repeat * c->out_row, error);
}

static aerie_status do_tensor(running *run, const ae_rewrite_tensor *t, aerie_error *error)
{
    const ae_gguf_tensor *from = t->from;
    const size_t n_rows = (size_t)(from->ne[1] * from->ne[2] * from->ne[3]), ne0 = (size_t)from->ne[0];
    const bool apart = run->rewrite->settings.apart;
    if (ae_rewrite_keeps(t)) return copy_bytes(run, t, error);
    if (t->row_copies > 1 && n_rows == 1) return copy_vector(run, t, error);
    chunk c = {.run = run, .t = t, .from = ae_type_get(from->type), .to = ae_type_get(t->type), .ne0 = ne0,
               .in_row = ae_type_row_bytes(from->type, ne0), .out_row = ae_type_row_bytes(t->type, (uint64_t)t->ne[0]),
               .repeat = apart ? 1 : t->row_copies};
    /* the plan knows that the new tensor's size does not overflow; a row's f32 may */
    size_t floats, wide_row = 0;
    if (!ae_mul_size(ne0, 1 + (size_t)t->column_copies, &floats) || !ae_mul_size(floats, sizeof(float), &wide_row) ||
        !ae_mul_size(wide_row, c.repeat, &wide_row)) return ae_fail_memory(error, "a row of a tensor", wide_row);
    size_t at_once = CHUNK / wide_row;
    if (at_once < 1) at_once = 1;
    if (at_once > n_rows) at_once = n_rows;
    AE_TRY(grow_rows(run, floats, error));
    AE_TRY(grow(&run->in, &run->in_bytes, at_once * c.in_row, error));
    AE_TRY(grow(&run->out, &run->out_bytes, at_once * c.repeat * c.out_row, error));
    for (uint32_t again = 0; again < (apart ? t->row_copies : 1); again++)
        for (size_t first = 0; first < n_rows; first += at_once)
            AE_TRY(do_chunk(run, &c, first, n_rows - first < at_once ? n_rows - first : at_once, error));
    return AERIE_OK;
}

aerie_status ae_rewrite_run(ae_rewrite *r, uint32_t n_threads, aerie_progress *progress, void *user, aerie_error *error)
{
    running run = {.rewrite = r, .reader = ae_gguf_reader_open(r->gguf), .progress = progress, .user = user};
    aerie_status status = ae_pool_create(&run.pool, n_threads ? n_threads : 1, error);
    if (status == AERIE_OK && progress && !progress(user, 0, r->total))
        status = ae_fail(error, AERIE_ERROR_CANCELLED, "interrupted; no file was written");
    for (size_t i = 0; i < r->n_tensors && status == AERIE_OK; i++) status = do_tensor(&run, &r->tensors[i], error);
    if (status == AERIE_OK) status = ae_gguf_writer_finish(r->writer, error);
    ae_gguf_reader_close(&run.reader);
    ae_pool_free(run.pool);
    ae_free(run.in);
    ae_free(run.out);
    ae_free(run.rows);
    return status;
}
