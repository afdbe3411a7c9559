/* imatrix_old.c - implements imatrix_old.h. */
#include "convert/quantize/imatrix_old.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "formats/kind.h"

enum { MAX_NAME = 1024 };

/* The rest of the file. */
typedef struct rest {
    const uint8_t *at;
    size_t n;
} rest;

static bool take(rest *r, size_t n, const uint8_t **bytes)
{
    if (n > r->n) return false;
    *bytes = r->at;
    r->at += n;
    r->n -= n;
    return true;
}

static bool take_i32(rest *r, int32_t *value)
{
    const uint8_t *p;
    if (!take(r, 4, &p)) return false;
    *value = (int32_t)(p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
    return true;
}

static bool take_name(rest *r, int32_t most, ae_gguf_string *name)
{
    int32_t n;
    const uint8_t *p;
    if (!take_i32(r, &n) || n < 0 || n > most || !take(r, (size_t)n, &p)) return false;
    *name = (ae_gguf_string){(const char *)p, (size_t)n};
    return true;
}

static float value_at(const ae_imatrix_old_entry *e, uint32_t i)
{
    float value;
    memcpy(&value, e->values + i * sizeof value, sizeof value);
    return value;
}

/* Returns what is wrong with the entry; NULL: nothing. */
static const char *take_entry(rest *r, ae_imatrix_old_entry *e)
{
    int32_t n;
    if (!take_name(r, MAX_NAME, &e->name) || !take_i32(r, &e->calls) || !take_i32(r, &n)) return "is cut off";
    if (n < 1) return "has no values";
    if (!take(r, (size_t)n * sizeof(float), &e->values)) return "is cut off";
    e->n = (uint32_t)n;
    for (uint32_t i = 0; i < e->n; i++)
        if (!(value_at(e, i) >= 0.0f) || isinf(value_at(e, i))) return "holds a value that is no sum of squares";
    return NULL;
}

static int compare(const void *left, const void *right)
{
    const ae_imatrix_old_entry *a = left, *b = right;
    const size_t n = a->name.n < b->name.n ? a->name.n : b->name.n;
    const int order = n ? memcmp(a->name.data, b->name.data, n) : 0;
    return order ? order : (a->name.n > b->name.n) - (a->name.n < b->name.n);
}

static aerie_status fail(const char *path, size_t i, size_t n, const char *what, aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_FORMAT,
                   "%s: an importance matrix in llama.cpp's old format, but entry %zu of %zu %s: the file is damaged", path,
                   i + 1, n, what);
}

static aerie_status parse(ae_imatrix_old *old, const char *path, aerie_error *error)
{
    rest r = {old->map.data, old->map.bytes};
    int32_t n_entries, n_chunks;
    if (!take_i32(&r, &n_entries) || n_entries < 1 || (size_t)n_entries > r.n / 16)
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s: an importance matrix in llama.cpp's old format, but not a whole one",
                       path);
    const size_t n = (size_t)n_entries;
    old->entries = ae_alloc(n, sizeof *old->entries);
    if (!old->entries) return ae_fail_memory(error, "an importance matrix", n * sizeof *old->entries);
    for (; old->n < n; old->n++) {
        const char *what = take_entry(&r, &old->entries[old->n]);
        if (what) return fail(path, old->n, n, what, error);
    }
    if (take_i32(&r, &n_chunks) && n_chunks > 0) old->n_chunks = (uint32_t)n_chunks;
    if (!take_name(&r, INT32_MAX, &old->dataset)) old->dataset = (ae_gguf_string){"", 0};
    qsort(old->entries, n, sizeof *old->entries, compare);
    for (size_t i = 1; i < n; i++)
        if (!compare(&old->entries[i - 1], &old->entries[i])) return fail(path, i, n, "occurs twice", error);
    return AERIE_OK;
}

bool ae_imatrix_is_old(const char *path)
{
    uint8_t head[512];
    int fd;
    ae_file_id id;
    if (ae_file_open(&fd, &id, path, NULL) != AERIE_OK) return false;
    const long long n = ae_os_pread(fd, head, sizeof head, 0);
    ae_file_close(fd);
    return n > 0 && ae_kind_is_old_imatrix(head, (size_t)n);
}

aerie_status ae_imatrix_old_open(ae_imatrix_old *out, const char *path, aerie_error *error)
{
    *out = (ae_imatrix_old){.n = 0};
    AE_TRY(ae_file_map_open(&out->map, path, false, error));
    const aerie_status status = parse(out, path, error);
    if (status != AERIE_OK) ae_imatrix_old_close(out);
    return status;
}

void ae_imatrix_old_close(ae_imatrix_old *old)
{
    ae_free(old->entries);
    ae_file_map_close(&old->map);
    *old = (ae_imatrix_old){.n = 0};
}

const ae_imatrix_old_entry *ae_imatrix_old_find(const ae_imatrix_old *old, ae_gguf_string name)
{
    const ae_imatrix_old_entry wanted = {.name = name};
    return old->n ? bsearch(&wanted, old->entries, old->n, sizeof *old->entries, compare) : NULL;
}

void ae_imatrix_old_means(const ae_imatrix_old_entry *e, float *out)
{
    for (uint32_t i = 0; i < e->n; i++) out[i] = e->calls > 0 ? value_at(e, i) / (float)e->calls : value_at(e, i);
}
