/* imatrix.c - implements imatrix.h. */
#include "convert/quantize/imatrix.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "convert/quantize/imatrix_old.h"
#include "convert/quantize/mix.h"
#include "formats/kind.h"
#include "formats/gguf_parse.h"

struct ae_imatrix {
    ae_gguf *gguf;      /* opened with data; NULL: `old` has the data */
    ae_imatrix_old old;
    char *path;         /* of `old` */
    uint32_t n_chunks;
    const char *const *texts; /* [n_texts] as in ae_imatrix_restrict */
    size_t n_texts;
    bool but;
};

static bool ends_with(ae_gguf_string name, const char *suffix)
{
    const size_t n = strlen(suffix);
    return name.n > n && !memcmp(name.data + name.n - n, suffix, n);
}

/* Finds "<name><suffix>" in the file, or NULL. */
static const ae_gguf_tensor *tensor_of(const ae_gguf *gguf, ae_gguf_string name, const char *suffix)
{
    char text[512];
    if (name.n + strlen(suffix) >= sizeof text || (name.n && memchr(name.data, '\0', name.n))) return NULL;
    snprintf(text, sizeof text, "%.*s%s", (int)name.n, name.data, suffix);
    return ae_gguf_tensor_find(gguf, text);
}

static float at(const ae_gguf_tensor *t, uint64_t i)
{
    float value;
    memcpy(&value, t->data + i * sizeof value, sizeof value);
    return value;
}

static aerie_status check_numbers(const ae_gguf *gguf, const ae_gguf_tensor *t, aerie_error *error)
{
    char quoted[AE_GGUF_QUOTE_BYTES];
    const uint64_t n = t->bytes / sizeof(float);
    for (uint64_t i = 0; i < n; i++) {
        const float value = at(t, i);
        if (!(value >= 0.0f) || isinf(value))
            return ae_fail(error, AERIE_ERROR_FORMAT,
                           "%s: tensor %s holds %g, but sums of squares and counts are finite and at "
                           "least 0: the file is damaged",
                           ae_gguf_path(gguf), ae_gguf_quote(quoted, t->name), (double)value);
    }
    return AERIE_OK;
}

static aerie_status check_entry(const ae_gguf *gguf, const ae_gguf_tensor *sums, aerie_error *error)
{
    char quoted[AE_GGUF_QUOTE_BYTES];
    const ae_gguf_string name = {sums->name.data, sums->name.n - strlen(AE_IMATRIX_SUMS)};
    const ae_gguf_tensor *counts = tensor_of(gguf, name, AE_IMATRIX_COUNTS);
    const int64_t n_matrices = sums->ne[1] * sums->ne[2] * sums->ne[3];
    if (!counts)
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s has %s, but not the counts that belong to it: the importance "
                       "matrix is incomplete; aerie imatrix makes a new one", ae_gguf_path(gguf),
                       ae_gguf_quote(quoted, sums->name));
    if (sums->type != AE_TYPE_F32 || counts->type != AE_TYPE_F32 ||
        counts->ne[0] * counts->ne[1] * counts->ne[2] * counts->ne[3] != n_matrices)
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s: tensor %s needs f32 numbers and a count for each of its %lld matrices",
                       ae_gguf_path(gguf), ae_gguf_quote(quoted, sums->name), (long long)n_matrices);
    AE_TRY(check_numbers(gguf, sums, error));
    return check_numbers(gguf, counts, error);
}

/* Calls `visit` for each weight. */
static void each(const ae_imatrix *im, void (*visit)(const ae_imatrix *im, ae_gguf_string name, void *user), void *user)
{
    for (size_t i = 0; i < im->old.n; i++) visit(im, im->old.entries[i].name, user);
    for (size_t i = 0; im->gguf && i < ae_gguf_n_tensors(im->gguf); i++) {
        const ae_gguf_string name = ae_gguf_tensor_at(im->gguf, i)->name;
        if (ends_with(name, AE_IMATRIX_SUMS)) visit(im, (ae_gguf_string){name.data, name.n - strlen(AE_IMATRIX_SUMS)}, user);
    }
}

static bool counts(const ae_imatrix *im, ae_gguf_string name)
{
    bool found = false;
    for (size_t i = 0; i < im->n_texts; i++) found = found || ae_mix_name_holds(name, im->texts[i]);
    return !im->n_texts || found != im->but;
}

static void count_entry(const ae_imatrix *im, ae_gguf_string name, void *n)
{
    *(size_t *)n += counts(im, name);
}

static aerie_status check(ae_imatrix *im, aerie_error *error)
{
    AE_TRY(ae_role_need(im->gguf, AE_ROLE_IMATRIX, error));
    for (size_t i = 0; i < ae_gguf_n_tensors(im->gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(im->gguf, i);
        if (ends_with(t->name, AE_IMATRIX_SUMS)) AE_TRY(check_entry(im->gguf, t, error));
    }
    if (!ae_imatrix_n_entries(im))
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s: the importance matrix is empty; 'aerie imatrix' makes one",
                       ae_gguf_path(im->gguf));
    return ae_gguf_get_u32(im->gguf, AE_IMATRIX_CHUNKS, false, &im->n_chunks, error);
}

static aerie_status open_old(ae_imatrix *im, const char *path, aerie_error *error)
{
    im->path = ae_strndup(path, strlen(path));
    if (!im->path) return ae_fail_memory(error, "an importance matrix", strlen(path));
    AE_TRY(ae_imatrix_old_open(&im->old, path, error));
    im->n_chunks = im->old.n_chunks;
    return AERIE_OK;
}

aerie_status ae_imatrix_open(ae_imatrix **out, const char *path, aerie_error *error)
{
    *out = NULL;
    ae_imatrix *im = ae_alloc(1, sizeof *im);
    if (!im) return ae_fail_memory(error, "an importance matrix", sizeof *im);
    const bool old = ae_imatrix_is_old(path);
    aerie_status status =
        old ? open_old(im, path, error) : ae_gguf_open(&im->gguf, path, &(ae_gguf_options){.no_mmap = true}, error);
    if (status == AERIE_OK && !old) status = check(im, error);
    if (status == AERIE_OK) *out = im;
    else ae_imatrix_close(im);
    return status;
}

void ae_imatrix_close(ae_imatrix *im)
{
    if (!im) return;
    ae_gguf_close(im->gguf);
    if (im->old.n) ae_imatrix_old_close(&im->old);
    ae_free(im->path);
    ae_free(im);
}

const char *ae_imatrix_path(const ae_imatrix *im)
{
    return im->gguf ? ae_gguf_path(im->gguf) : im->path;
}

void ae_imatrix_restrict(ae_imatrix *im, const char *const *texts, size_t n, bool but)
{
    im->texts = texts;
    im->n_texts = n;
    im->but = but;
}

size_t ae_imatrix_n_entries(const ae_imatrix *im)
{
    size_t n = 0;
    each(im, count_entry, &n);
    return n;
}

size_t ae_imatrix_n_holding(const ae_imatrix *im, const char *text)
{
    ae_imatrix only = *im;
    ae_imatrix_restrict(&only, &text, 1, false);
    return ae_imatrix_n_entries(&only);
}

uint32_t ae_imatrix_n_chunks(const ae_imatrix *im)
{
    return im->n_chunks;
}

ae_gguf_string ae_imatrix_dataset(const ae_imatrix *im)
{
    const ae_gguf_kv *kv = im->gguf ? ae_gguf_kv_find(im->gguf, AE_IMATRIX_DATASETS) : NULL;
    ae_gguf_string value = {"", 0};
    size_t cursor = 0;
    if (!im->gguf) return im->old.dataset;
    if (kv && !ae_gguf_kv_next_string(kv, &cursor, &value)) value = (ae_gguf_string){"", 0};
    return value;
}

bool ae_imatrix_find(const ae_imatrix *im, ae_gguf_string name, uint64_t *n_columns, uint64_t *n_matrices)
{
    if (!counts(im, name)) return false;
    if (!im->gguf) {
        const ae_imatrix_old_entry *entry = ae_imatrix_old_find(&im->old, name);
        *n_columns = entry ? entry->n : 0;
        *n_matrices = 0;
        return entry != NULL;
    }
    const ae_gguf_tensor *sums = tensor_of(im->gguf, name, AE_IMATRIX_SUMS);
    if (!sums) return false;
    *n_columns = (uint64_t)sums->ne[0];
    *n_matrices = (uint64_t)(sums->ne[1] * sums->ne[2] * sums->ne[3]);
    return true;
}

void ae_imatrix_means(const ae_imatrix *im, ae_gguf_string name, float *out)
{
    if (!im->gguf) {
        ae_imatrix_old_means(ae_imatrix_old_find(&im->old, name), out);
        return;
    }
    const ae_gguf_tensor *sums = tensor_of(im->gguf, name, AE_IMATRIX_SUMS);
    const ae_gguf_tensor *rows = tensor_of(im->gguf, name, AE_IMATRIX_COUNTS);
    const uint64_t n = (uint64_t)sums->ne[0], n_all = sums->bytes / sizeof(float);
    for (uint64_t i = 0; i < n_all; i++) {
        const float count = at(rows, i / n);
        out[i] = count > 0.0f ? at(sums, i) / count : 1.0f;
    }
}
