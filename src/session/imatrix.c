/* imatrix.c - aerie_measure.h: collects how strongly the columns of a model's, or a drafter head's, matrices are used while a
 * session works.
 *
 * Owns: the sums. It watches the products of one stream (backend.h) and identifies each by its weight. If a matrix is split
 * into several weights (queries, keys and values as rows of one tensor), only the first one counts: all have the same input.
 */
#include <stdio.h>
#include <stdlib.h>

#include "session/session_int.h"
#include "aerie_measure.h"
#include "base/mem.h"
#include "formats/gguf_write.h"
#include "convert/quantize/imatrix.h"
#include "convert/quantize/mix.h"
#include "draft/head/engine.h"

/* A tensor in the file. */
typedef struct entry {
    ae_tensor_ref tensor;
    uint32_t n_columns, n_matrices;
    double *sums;     /* [n_matrices][n_columns] */
    uint64_t *counts; /* [n_matrices] */
} entry;

/* A weight on the device: one matrix of an entry. */
typedef struct watched {
    const ae_weight *weight;
    size_t i_entry;
    uint32_t matrix;
} watched;

struct aerie_imatrix {
    aerie_session *session;
    ae_stream *stream; /* the stream that is watched */
    ae_arena arena;    /* holds all arrays */
    entry *entries;
    size_t n_entries, n_watched;
    watched *items; /* [n_watched] sorted by the weight's address */
};

/* ---- What is watched ---------------------------------------------------------------------------------------------- */

/* Finds which matrix of its tensor a part is. Returns false if the part is not collected. A model's output has a type of its
 * own and needs no importance matrix. A head's output does need one: it is the head's largest matrix, has the same type as the
 * others, and decides what is drafted. */
static bool counts(const ae_part *p, const aerie_imatrix_params *params, uint32_t *matrix)
{
    static const char layer[] = "blk.";
    if (!p->tensor || !(p->use & AE_WEIGHT_MATMUL) || p->transposed) return false;
    const ae_gguf_string name = p->tensor->name;
    const uint64_t n_rows = (uint64_t)p->tensor->ne[1];
    uint64_t lowest = p->n_runs ? UINT64_MAX : 0; /* the fused projection's first part has the first row, its second has not */
    for (uint32_t i = 0; i < p->n_runs; i++) lowest = p->runs[i].first < lowest ? p->runs[i].first : lowest;
    const uint64_t first = p->first + lowest;
    const bool inside = name.n >= 4 && !memcmp(name.data, layer, 4);
    const bool output = ae_mix_name_is(name, "output.weight") || ae_mix_name_is(name, "token_embd.weight");
    if (first % n_rows || (output && !params->output && !params->head) ||
        (!inside && !output && !params->head))
        return false;
    *matrix = (uint32_t)(first / n_rows);
    return true;
}

static int by_weight(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const watched *)a)->weight, y = (uintptr_t)((const watched *)b)->weight;
    return x < y ? -1 : x > y;
}

static aerie_status add_entry(aerie_imatrix *im, ae_tensor_ref tensor, aerie_error *error)
{
    const uint64_t n_matrices = (uint64_t)(tensor->ne[2] * tensor->ne[3]);
    entry e = {.tensor = tensor, .n_columns = (uint32_t)tensor->ne[0], .n_matrices = (uint32_t)n_matrices};
    size_t n = 0;
    if (ae_mul_size(e.n_columns, e.n_matrices, &n)) {
        e.sums = ae_arena_alloc(&im->arena, n, sizeof *e.sums);
        e.counts = ae_arena_alloc(&im->arena, e.n_matrices, sizeof *e.counts);
    }
    if (!e.sums || !e.counts) return ae_fail_memory(error, "an importance matrix", n * sizeof *e.sums);
    im->entries[im->n_entries++] = e;
    return AERIE_OK;
}

static aerie_status list(aerie_imatrix *im, const ae_parts *parts, const aerie_imatrix_params *params, aerie_error *error)
{
    im->entries = ae_arena_alloc(&im->arena, parts->n, sizeof *im->entries);
    im->items = ae_arena_alloc(&im->arena, parts->n, sizeof *im->items);
    if (!im->entries || !im->items) return ae_fail_memory(error, "an importance matrix", parts->n * sizeof *im->entries);
    for (uint32_t i = 0; i < parts->n; i++) {
        const ae_part *p = &parts->items[i];
        uint32_t matrix;
        if (!counts(p, params, &matrix)) continue;
        size_t at = im->n_entries; /* the experts of a tensor follow each other, so the newest entry is the most likely match */
        while (at > 0 && im->entries[at - 1].tensor != p->tensor) at--;
        if (at == 0) {
            AE_TRY(add_entry(im, p->tensor, error));
            at = im->n_entries;
        }
        if (matrix < im->entries[at - 1].n_matrices) im->items[im->n_watched++] = (watched){*p->weight, at - 1, matrix};
    }
    qsort(im->items, im->n_watched, sizeof *im->items, by_weight);
    return AERIE_OK;
}

static void on_product(void *user, const ae_weight *weight, const float *x, size_t x_stride, uint32_t n_rows, uint32_t n_in)
{
    aerie_imatrix *im = user;
    const watched key = {.weight = weight};
    const watched *found = bsearch(&key, im->items, im->n_watched, sizeof key, by_weight);
    if (!found) return;
    entry *e = &im->entries[found->i_entry];
    if (n_in != e->n_columns) return;
    double *sums = e->sums + (size_t)found->matrix * e->n_columns;
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t k = 0; k < n_in; k++) sums[k] += (double)x[r * x_stride + k] * (double)x[r * x_stride + k];
    e->counts[found->matrix] += n_rows;
}

/* ---- The object ----------------------------------------------------------------------------------------------------- */

aerie_status aerie_imatrix_create(aerie_imatrix **out, aerie_session *session, const aerie_imatrix_params *theirs,
                                  aerie_error *error)
{
    AE_NEED(out, error);
    *out = NULL;
    AE_NEED(session, error);
    AE_STRUCT_TAKE(imatrix_params, params, theirs, error);
    const ae_backend_ops *ops = session->model->backend->ops;
    AE_TRY(ae_session_check_alone(session->model, "an importance matrix", error));
    if (session->model->net->split.n_devices > 1)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "products are watched on one device, and this model lies on several; "
                       "load it on one");
    if (!ops->watch) return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the backend %s cannot be watched; use cpu", ops->name);
    if (session->imatrix) return ae_fail(error, AERIE_ERROR_ARGUMENT, "the session collects an importance matrix already");
    if (params.head && !session->head)
        return ae_fail(error, AERIE_ERROR_ARGUMENT,
                       "the session has no drafter head whose importance matrix could be collected");
    aerie_imatrix *im = ae_alloc(1, sizeof *im);
    if (!im) return ae_fail_memory(error, "an importance matrix", sizeof *im);
    ae_arena_init(&im->arena, 1 << 16);
    im->session = session;
    im->stream = params.head ? ae_dhead_engine_stream(session->head) : ae_engine_stream(session->engine);
    const ae_parts *parts = params.head ? &ae_dhead_engine_net(session->head)->parts : &session->model->net->parts;
    const aerie_status status = list(im, parts, &params, error);
    if (status != AERIE_OK) {
        ae_arena_free(&im->arena);
        ae_free(im);
        return status;
    }
    ops->watch(im->stream, on_product, im);
    ae_engine_set_whole(session->engine, true);
    session->imatrix = *out = im;
    return AERIE_OK;
}

void aerie_imatrix_free(aerie_imatrix *im)
{
    if (!im) return;
    im->session->model->backend->ops->watch(im->stream, NULL, NULL);
    ae_engine_set_whole(im->session->engine, false);
    im->session->imatrix = NULL;
    ae_arena_free(&im->arena);
    ae_free(im);
}

void aerie_imatrix_info_get(const aerie_imatrix *im, aerie_imatrix_info *info, size_t size)
{
    if (info) memset(info, 0, size);
    if (!im || !info) return;
    aerie_imatrix_info own = {0};
    for (size_t i = 0; i < im->n_entries; i++) {
        const entry *e = &im->entries[i];
        own.n_matrices += e->n_matrices;
        for (uint32_t m = 0; m < e->n_matrices; m++) {
            own.n_unseen += e->counts[m] == 0;
            if (e->counts[m] > own.n_rows) own.n_rows = e->counts[m];
        }
    }
    ae_struct_give(info, size, &own, sizeof own);
}

/* ---- The file --------------------------------------------------------------------------------------------------------- */

static aerie_status describe(const entry *e, ae_gguf_writer *writer, aerie_error *error)
{
    const int64_t sums[2] = {e->n_columns, e->n_matrices}, n[2] = {1, e->n_matrices};
    const ae_gguf_string name = e->tensor->name;
    char text[512];
    if (name.n + sizeof AE_IMATRIX_SUMS > sizeof text)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a tensor's name of %zu bytes does not fit an importance matrix", name.n);
    snprintf(text, sizeof text, "%.*s%s", (int)name.n, name.data, AE_IMATRIX_SUMS);
    AE_TRY(ae_gguf_writer_tensor(writer, text, AE_TYPE_F32, 2, sums, error));
    snprintf(text, sizeof text, "%.*s%s", (int)name.n, name.data, AE_IMATRIX_COUNTS);
    return ae_gguf_writer_tensor(writer, text, AE_TYPE_F32, 2, n, error);
}

static aerie_status write_data(const entry *e, ae_gguf_writer *writer, aerie_error *error)
{
    enum { PIECE = 1024 };
    float piece[PIECE];
    const size_t n_sums = (size_t)e->n_columns * e->n_matrices, n_all = n_sums + e->n_matrices;
    for (size_t i = 0; i < n_all;) {
        const size_t end = i < n_sums ? n_sums : n_all, n = end - i < PIECE ? end - i : PIECE;
        for (size_t k = 0; k < n; k++) piece[k] = i < n_sums ? (float)e->sums[i + k] : (float)e->counts[i + k - n_sums];
        AE_TRY(ae_gguf_writer_data(writer, piece, n * sizeof *piece, error));
        i += n;
    }
    return AERIE_OK;
}

static aerie_status write_all(const aerie_imatrix *im, ae_gguf_writer *writer, const char *dataset, uint32_t n_chunks,
                              uint32_t chunk_size, aerie_error *error)
{
    const ae_gguf_string name = {dataset, strlen(dataset)};
    AE_TRY(ae_gguf_writer_string(writer, "general.type", AE_IMATRIX_TYPE, error));
    AE_TRY(ae_gguf_writer_strings(writer, AE_IMATRIX_DATASETS, &name, 1, error));
    AE_TRY(ae_gguf_writer_u32(writer, AE_IMATRIX_CHUNKS, n_chunks, error));
    AE_TRY(ae_gguf_writer_u32(writer, AE_IMATRIX_CHUNK_SIZE, chunk_size, error));
    for (size_t i = 0; i < im->n_entries; i++) AE_TRY(describe(&im->entries[i], writer, error));
    AE_TRY(ae_gguf_writer_begin(writer, error));
    for (size_t i = 0; i < im->n_entries; i++) AE_TRY(write_data(&im->entries[i], writer, error));
    return ae_gguf_writer_finish(writer, error);
}

aerie_status aerie_imatrix_save(const aerie_imatrix *im, const char *path, const char *dataset, uint32_t n_chunks,
                                uint32_t chunk_size, aerie_error *error)
{
    AE_NEED(im, error);
    AE_NEED(path, error);
    ae_gguf_writer *writer;
    AE_TRY(ae_gguf_writer_create(&writer, path, error));
    const aerie_status status = write_all(im, writer, dataset ? dataset : "", n_chunks, chunk_size, error);
    ae_gguf_writer_free(writer);
    return status;
}
