/* imatrix.c - implements imatrix.h. */
#include "convert/quantize/imatrix.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "formats/kind.h"
#include "formats/gguf_parse.h"

struct ae_imatrix {
    ae_gguf *gguf; /* opened with data */
    size_t n_entries;
    uint32_t n_chunks;
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

static aerie_status check(ae_imatrix *im, aerie_error *error)
{
    AE_TRY(ae_role_need(im->gguf, AE_ROLE_IMATRIX, error));
    for (size_t i = 0; i < ae_gguf_n_tensors(im->gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(im->gguf, i);
        if (!ends_with(t->name, AE_IMATRIX_SUMS)) continue;
        AE_TRY(check_entry(im->gguf, t, error));
        im->n_entries++;
    }
    if (!im->n_entries)
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s: the importance matrix is empty; 'aerie imatrix' makes one",
                       ae_gguf_path(im->gguf));
    return ae_gguf_get_u32(im->gguf, AE_IMATRIX_CHUNKS, false, &im->n_chunks, error);
}

aerie_status ae_imatrix_open(ae_imatrix **out, const char *path, aerie_error *error)
{
    *out = NULL;
    ae_imatrix *im = ae_alloc(1, sizeof *im);
    if (!im) return ae_fail_memory(error, "an importance matrix", sizeof *im);
    aerie_status status = ae_gguf_open(&im->gguf, path, &(ae_gguf_options){.no_mmap = true}, error);
    if (status == AERIE_OK) status = check(im, error);
    if (status == AERIE_OK) *out = im;
    else ae_imatrix_close(im);
    return status;
}

void ae_imatrix_close(ae_imatrix *im)
{
    if (!im) return;
    ae_gguf_close(im->gguf);
    ae_free(im);
}

const char *ae_imatrix_path(const ae_imatrix *im)
{
    return ae_gguf_path(im->gguf);
}

size_t ae_imatrix_n_entries(const ae_imatrix *im)
{
    return im->n_entries;
}

uint32_t ae_imatrix_n_chunks(const ae_imatrix *im)
{
    return im->n_chunks;
}

ae_gguf_string ae_imatrix_dataset(const ae_imatrix *im)
{
    const ae_gguf_kv *kv = ae_gguf_kv_find(im->gguf, AE_IMATRIX_DATASETS);
    ae_gguf_string value = {"", 0};
    size_t cursor = 0;
    if (kv && !ae_gguf_kv_next_string(kv, &cursor, &value)) value = (ae_gguf_string){"", 0};
    return value;
}

bool ae_imatrix_find(const ae_imatrix *im, ae_gguf_string name, uint64_t *n_columns, uint64_t *n_matrices)
{
    const ae_gguf_tensor *sums = tensor_of(im->gguf, name, AE_IMATRIX_SUMS);
    if (!sums) return false;
    *n_columns = (uint64_t)sums->ne[0];
    *n_matrices = (uint64_t)(sums->ne[1] * sums->ne[2] * sums->ne[3]);
    return true;
}

void ae_imatrix_means(const ae_imatrix *im, ae_gguf_string name, float *out)
{
    const ae_gguf_tensor *sums = tensor_of(im->gguf, name, AE_IMATRIX_SUMS);
    const ae_gguf_tensor *counts = tensor_of(im->gguf, name, AE_IMATRIX_COUNTS);
    const uint64_t n = (uint64_t)sums->ne[0], n_all = sums->bytes / sizeof(float);
    for (uint64_t i = 0; i < n_all; i++) {
        const float count = at(counts, i / n);
        out[i] = count > 0.0f ? at(sums, i) / count : 1.0f;
    }
}
