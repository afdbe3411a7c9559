/* fill.c - the values of a network: from the file, chunk by chunk, onto the device.
 *
 * Owns: the order of reading, and a buffer of one chunk per thread, so that memory never holds more than the finished weights
 * and these buffers. A chunk is some rows of one weight, small enough to stay in the second-level cache between reading and
 * packing. Chunks are taken in file order, so a disk sees one ascending run. The thread that packs a chunk is the first to
 * touch its memory. The system is told which chunks come next; if memory is too short to keep the file in the page cache
 * anyway, it is also told which parts are finished.
 * What is read is checked: an infinite or NaN scale or value would go unnoticed and the model would invent text. Rows that are
 * used in place are read for this check alone, unless in_place asks for a start without reading. */
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/os.h"
#include "base/pool.h"
#include "engine/weights/parts.h"
#include "quant/finite.h"
#include "quant/encode/encoder.h"
#include "quant/types.h"

#define CHUNK_BYTES ((size_t)512 << 10) /* bytes of the file in a chunk; more if 16 rows need more */
#define CHUNKS_AHEAD 16                 /* chunks that the system is told to read ahead */

typedef struct chunk {
    const ae_part *part;
    uint32_t first, n; /* rows */
} chunk;

typedef struct loader {
    ae_gguf_reader reader;
    uint8_t *buffer; /* [buffer_bytes] */
} loader;

typedef struct load_job {
    ae_parts *parts;
    const ae_load_options *options;
    chunk *chunks; /* [n_chunks] in file order */
    uint32_t n_chunks;
    loader *loaders; /* [n_threads] */
    uint32_t n_threads;
    size_t buffer_bytes;
    bool forget; /* the page cache has no room for the file in addition to the weights */
    uint64_t total;
    atomic_ullong done;
    atomic_int status; /* status of the first failure */
    aerie_error error; /* written by the thread that set status */
} load_job;

static size_t row_bytes(const ae_part *part)
{
    return ae_type_row_bytes(part->tensor->type, (uint64_t)part->tensor->ne[0]);
}

/* Returns the buffer bytes of a transposed part, which is a single chunk: its rows, the same as floats, one column, and one row
 * of the weight. */
static size_t transposing_bytes(const ae_part *part)
{
    const size_t n_in = part->n_rows, n_out = (size_t)part->tensor->ne[0];
    return (n_in * row_bytes(part) + 63) / 64 * 64 + (n_in * n_out + n_in) * sizeof(float) +
           n_out * ae_type_row_bytes(ae_part_type(part), n_in);
}

static uint32_t chunk_rows(const ae_part *part)
{
    if (part->transposed) return part->n_rows;
    const size_t n = CHUNK_BYTES / row_bytes(part) / AE_WEIGHT_ROWS * AE_WEIGHT_ROWS;
    const uint32_t rows = part->n_rows;
    return (uint32_t)(n < AE_WEIGHT_ROWS ? AE_WEIGHT_ROWS < rows ? AE_WEIGHT_ROWS : rows : n < rows ? n : rows);
}

static bool is_read(const load_job *job, const ae_part *part)
{
    return part->use && (part->bytes || !job->options->in_place);
}

/* Checks that the n values from row `first` on are finite. */
static aerie_status check_finite(const load_job *job, const ae_part *part, const void *rows, uint64_t first, uint64_t n,
                                 aerie_error *error)
{
    const ae_gguf_tensor *t = part->tensor;
    const uint64_t n_in = (uint64_t)t->ne[0];
    const ae_dot dot = ae_type_get(t->type)->dot;
    size_t at;
    if (ae_type_finite(t->type, rows, n, &at)) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_FORMAT, "%s: tensor %.*s: row %llu has %s that is infinite or not a number; the file is "
                   "damaged, or its conversion overflowed: download or convert it again",
                   ae_gguf_path(job->parts->gguf), (int)t->name.n, t->name.data,
                   (unsigned long long)(first + at / n_in), dot == AE_DOT_32 || dot == AE_DOT_256 ? "a scale" : "a value");
}

/* Returns the chunk's first row, counted in the tensor. */
static uint64_t first_row(const chunk *c)
{
    uint32_t n = c->n;
    return ae_part_at(c->part, c->first, &n);
}

static int by_place(const void *a, const void *b)
{
    const ae_tensor_ref x = ((const chunk *)a)->part->tensor, y = ((const chunk *)b)->part->tensor;
    if (x->i_file != y->i_file) return x->i_file < y->i_file ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return first_row(a) < first_row(b) ? -1 : 1;
}

static aerie_status list_chunks(load_job *job, aerie_error *error)
{
    const ae_parts *parts = job->parts;
    size_t n_chunks = 0;
    for (uint32_t i = 0; i < parts->n; i++) {
        const ae_part *part = &parts->items[i];
        const size_t vector_bytes = part->use || !part->tensor ? 0 : ae_type_row_bytes(part->tensor->type, part->n_elements);
        if (vector_bytes > job->buffer_bytes) job->buffer_bytes = vector_bytes;
        if (!is_read(job, part)) continue;
        const uint32_t rows = chunk_rows(part);
        const size_t bytes = part->transposed ? transposing_bytes(part) : rows * row_bytes(part);
        if (bytes > job->buffer_bytes) job->buffer_bytes = bytes;
        n_chunks += ((size_t)part->n_rows + rows - 1) / rows;
        job->total += part->n_rows * row_bytes(part);
    }
    if (n_chunks > UINT32_MAX / 2 || !(job->chunks = ae_alloc(n_chunks, sizeof *job->chunks)))
        return ae_fail_memory(error, "the list of what is to be read", n_chunks * sizeof *job->chunks);
    for (uint32_t i = 0; i < parts->n; i++) {
        const ae_part *part = &parts->items[i];
        const uint32_t rows = is_read(job, part) ? part->n_rows : 0, step = rows ? chunk_rows(part) : 1;
        for (uint32_t r = 0; r < rows; r += step)
            job->chunks[job->n_chunks++] = (chunk){part, r, rows - r < step ? rows - r : step};
    }
    qsort(job->chunks, job->n_chunks, sizeof *job->chunks, by_place);
    return AERIE_OK;
}

static aerie_status open_loaders(load_job *job, aerie_error *error)
{
    const uint32_t wanted = job->options->n_threads ? job->options->n_threads : 1;
    job->n_threads = wanted < job->n_chunks ? wanted : job->n_chunks ? job->n_chunks : 1;
    job->loaders = ae_alloc(job->n_threads, sizeof *job->loaders);
    if (!job->loaders) return ae_fail_memory(error, "the loading threads", job->n_threads * sizeof *job->loaders);
    for (uint32_t i = 0; i < job->n_threads; i++) job->loaders[i].reader = ae_gguf_reader_open(job->parts->gguf);
    for (uint32_t i = 0; i < job->n_threads; i++) {
        job->loaders[i].buffer = ae_alloc_aligned(1, job->buffer_bytes);
        if (!job->loaders[i].buffer) return ae_fail_memory(error, "a buffer to read into", job->buffer_bytes);
    }
    return AERIE_OK;
}

static void close_loaders(load_job *job)
{
    for (uint32_t i = 0; job->loaders && i < job->n_threads; i++) {
        ae_gguf_reader_close(&job->loaders[i].reader);
        ae_free(job->loaders[i].buffer);
    }
    ae_free(job->loaders);
    ae_free(job->chunks);
}

/* Multiplies a vector by its tensor's single scale, or by the scales of the matrices that its elements belong to. */
static aerie_status scale_vector(load_job *job, const ae_part *part, float *host, aerie_error *error)
{
    const ae_tensor_ref t = part->tensor;
    const uint64_t n_matrix = (uint64_t)t->ne[0] * (uint64_t)t->ne[1];
    uint64_t last = UINT64_MAX;
    float scale = 1.0f;
    for (uint32_t i = 0; i < part->n_elements; i++) {
        uint32_t n = 1;
        const uint64_t at = part->scale->ne[0] == 1 ? 0 : ae_part_at(part, i, &n) / n_matrix;
        if (at != last)
            AE_TRY(ae_parts_read_scale(job->parts, &job->loaders[0].reader, part->scale, (uint32_t)at, &scale, error));
        last = at;
        host[i] *= scale;
    }
    return AERIE_OK;
}

static aerie_status fill_vector(load_job *job, const ae_part *part, aerie_error *error)
{
    ae_backend *backend = job->parts->devices[part->device];
    loader *l = &job->loaders[0];
    const size_t n = part->n_elements;
    ae_tensor_ref t = part->tensor;
    if (t) {
        for (uint32_t i = 0, k; i < part->n_elements; i += k) {
            k = part->n_elements - i;
            const uint64_t first = ae_part_at(part, i, &k);
            uint8_t *to = l->buffer + ae_type_row_bytes(t->type, i);
            AE_TRY(ae_gguf_read(&l->reader, t, ae_type_row_bytes(t->type, first), to, ae_type_row_bytes(t->type, k), error));
            AE_TRY(check_finite(job, part, to, first / (uint64_t)t->ne[0], k, error));
        }
    }
    float *host = ae_alloc(n, sizeof *host);
    if (!host) return ae_fail_memory(error, "a weight vector", n * sizeof *host);
    for (size_t i = 0; i < n; i++) host[i] = part->numbers ? part->numbers[i] : 1.0f;
    aerie_status status = AERIE_OK;
    if (t) ae_type_get(t->type)->decode(l->buffer, host, n);
    if (t && part->scale) status = scale_vector(job, part, host, error);
    for (size_t i = 0; part->reciprocal && i < n && status == AERIE_OK; i++) {
        const float factor = 1.0f / host[i];
        if (!(fabsf(factor) <= FLT_MAX))
            status = ae_fail(error, AERIE_ERROR_FORMAT, "%s: tensor %.*s has the number %g, by which nothing can be divided",
                             ae_gguf_path(job->parts->gguf), (int)(t->name.n < 100 ? t->name.n : 100), t->name.data,
                             (double)host[i]);
        host[i] = factor;
    }
    if (status == AERIE_OK) status = backend->ops->fill(backend, *part->vector, host, n * sizeof *host, error);
    ae_free(host);
    return status;
}

static void fail_job(load_job *job, aerie_status status, const aerie_error *error)
{
    int expected = AERIE_OK;
    if (atomic_compare_exchange_strong(&job->status, &expected, (int)status)) job->error = *error;
}

static bool tell(load_job *job, uint64_t done)
{
    if (!job->options->progress || job->options->progress(job->options->progress_context, done, job->total)) return true;
    aerie_error error = {0};
    ae_fail(&error, AERIE_ERROR_CANCELLED, "%s: loading was cancelled", ae_gguf_path(job->parts->gguf));
    fail_job(job, AERIE_ERROR_CANCELLED, &error);
    return false;
}

/* Reads the rows of a transposed part into the buffer, and sets them as the columns of a weight. */
static aerie_status fill_transposed(const load_job *job, const ae_part *part, uint8_t *buffer, aerie_error *error)
{
    const size_t n_in = part->n_rows, n_out = (size_t)part->tensor->ne[0];
    const ae_type_info *to = ae_type_get(ae_part_type(part));
    float *rows = (float *)(void *)(buffer + (n_in * row_bytes(part) + 63) / 64 * 64), *column = rows + n_in * n_out;
    uint8_t *out = (uint8_t *)(column + n_in);
    ae_type_get(part->tensor->type)->decode(buffer, rows, n_in * n_out);
    for (size_t o = 0; o < n_out; o++) {
        for (size_t i = 0; i < n_in; i++) column[i] = rows[i * n_out + o];
        ae_type_encoder(to->type)(column, NULL, out + o * ae_type_row_bytes(ae_part_type(part), n_in), n_in);
    }
    ae_backend *backend = job->parts->devices[part->device];
    return backend->ops->weight_fill(backend, *part->weight, out, 0, (uint32_t)n_out, error);
}

/* Reads the chunk's rows, run by run, and checks them. */
static aerie_status read_chunk(const load_job *job, loader *l, const chunk *c, aerie_error *error)
{
    const size_t row = row_bytes(c->part);
    for (uint32_t i = 0, n; i < c->n; i += n) {
        n = c->n - i;
        const uint64_t first = ae_part_at(c->part, c->first + i, &n);
        AE_TRY(ae_gguf_read(&l->reader, c->part->tensor, first * row, l->buffer + i * row, n * row, error));
        AE_TRY(check_finite(job, c->part, l->buffer + i * row, first, n * (uint64_t)c->part->tensor->ne[0], error));
    }
    return AERIE_OK;
}

static void fill_chunk(void *context, uint32_t i, uint32_t i_worker)
{
    load_job *job = context;
    loader *l = &job->loaders[i_worker];
    const chunk *c = &job->chunks[i], *ahead = i + CHUNKS_AHEAD < job->n_chunks ? c + CHUNKS_AHEAD : NULL;
    const size_t row = row_bytes(c->part), bytes = c->n * row;
    aerie_error error = {0};
    if (atomic_load(&job->status) != AERIE_OK) return;
    if (ahead && !ahead->part->runs)
        ae_gguf_advise(&l->reader, ahead->part->tensor, first_row(ahead) * row_bytes(ahead->part),
                       ahead->n * row_bytes(ahead->part), AE_FILE_SOON);
    aerie_status status = read_chunk(job, l, c, &error);
    ae_backend *backend = job->parts->devices[c->part->device];
    if (status == AERIE_OK && c->part->transposed) status = fill_transposed(job, c->part, l->buffer, &error);
    else if (status == AERIE_OK && c->part->bytes)
        status = backend->ops->weight_fill(backend, *c->part->weight, l->buffer, c->first, c->n, &error);
    if (status != AERIE_OK) {
        fail_job(job, status, &error);
        return;
    }
    if (job->forget && c->part->bytes && !c->part->runs)
        ae_gguf_advise(&l->reader, c->part->tensor, first_row(c) * row, bytes, AE_FILE_DONE);
    const uint64_t done = atomic_fetch_add(&job->done, bytes) + bytes;
    if (i_worker == 0) tell(job, done);
}

static aerie_status fill_all(load_job *job, aerie_error *error)
{
    const ae_parts *parts = job->parts;
    const uint64_t available = ae_os_memory_available();
    job->forget = available && available < parts->bytes + ae_gguf_file_bytes(parts->gguf);
    for (uint32_t i = 0; i < parts->n; i++)
        if (!parts->items[i].use) AE_TRY(fill_vector(job, &parts->items[i], error));
    if (!job->n_chunks) return AERIE_OK;
    ae_pool *pool;
    AE_TRY(ae_pool_create(&pool, job->n_threads, error));
    if (tell(job, 0)) ae_pool_run(pool, fill_chunk, job, job->n_chunks);
    ae_pool_free(pool);
    if (job->status == AERIE_OK) tell(job, job->total);
    if (job->status != AERIE_OK && error) *error = job->error;
    return (aerie_status)job->status;
}

aerie_status ae_parts_fill(ae_parts *parts, const ae_load_options *options, aerie_error *error)
{
    load_job job = {.parts = parts, .options = options};
    const double start = ae_time_now();
    aerie_status status = list_chunks(&job, error);
    if (status == AERIE_OK) status = open_loaders(&job, error);
    if (status == AERIE_OK) status = fill_all(&job, error);
    close_loaders(&job);
    parts->fill_bytes = job.total;
    parts->fill_seconds = ae_time_now() - start;
    return status;
}
