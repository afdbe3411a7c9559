/* zip.c - implements zip.h. */
#include "formats/zip.h"

#include <stdio.h>

#include "formats/gguf_parse.h"

#define FAIL(kind, ...) ae_fail(error, AERIE_ERROR_##kind, __VA_ARGS__)

static uint64_t number(const uint8_t *p, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | p[i];
    return value;
}

typedef struct reader {
    const uint8_t *data;
    size_t n;
    const char *path;
} reader;

/* Bytes [at, at + n) of the file; NULL if they are not inside it. */
static const uint8_t *part(const reader *r, uint64_t at, uint64_t n)
{
    return at <= r->n && n <= r->n - at ? r->data + at : NULL;
}

typedef struct directory {
    uint64_t at, bytes, n;
} directory;

/* Finds the central directory by the end record, which begins within the last 64 KiB, or by the zip64 end record before it, if
 * numbers are too large for the first. */
static aerie_status find_directory(const reader *r, directory *d, aerie_error *error)
{
    const uint8_t *p = NULL;
    for (size_t back = 22; back <= r->n && back <= 22 + 65535 && !p; back++) {
        const uint8_t *q = r->data + r->n - back;
        if (number(q, 4) == 0x06054b50 && number(q + 20, 2) == back - 22) p = q;
    }
    if (!p) return FAIL(FORMAT, "%s: not a zip archive, or cut short: its table of records is missing", r->path);
    *d = (directory){number(p + 16, 4), number(p + 12, 4), number(p + 10, 2)};
    if (d->at != UINT32_MAX && d->bytes != UINT32_MAX && d->n != UINT16_MAX) return AERIE_OK;
    const size_t at = (size_t)(p - r->data);
    const uint8_t *locator = at >= 20 ? p - 20 : NULL;
    if (!locator || number(locator, 4) != 0x07064b50) return AERIE_OK; /* no zip64: the numbers just have all bits set */
    const uint8_t *large = part(r, number(locator + 8, 8), 56);
    if (!large || number(large, 4) != 0x06064b50) return FAIL(FORMAT, "%s: the zip64 table of records is missing", r->path);
    *d = (directory){number(large + 48, 8), number(large + 40, 8), number(large + 32, 8)};
    return AERIE_OK;
}

typedef struct entry {
    uint64_t size, packed, at;
} entry;

/* Reads from the extra field the 64-bit values of those fields whose 32 bits are all ones, in the order of `fields`. */
static bool read_zip64(const uint8_t *extra, size_t n, entry *e)
{
    uint64_t *fields[] = {&e->size, &e->packed, &e->at};
    if (e->size != UINT32_MAX && e->packed != UINT32_MAX && e->at != UINT32_MAX) return true;
    while (n >= 4) {
        const size_t kind = (size_t)number(extra, 2), bytes = (size_t)number(extra + 2, 2);
        if (bytes > n - 4) return false;
        if (kind == 1) {
            size_t at = 4;
            for (int i = 0; i < 3; i++) {
                if (*fields[i] != UINT32_MAX) continue;
                if (at + 8 > 4 + bytes) return false;
                *fields[i] = number(extra + at, 8);
                at += 8;
            }
            return true;
        }
        extra += 4 + bytes;
        n -= 4 + bytes;
    }
    return true; /* no zip64 field: the value is exactly 2^32 - 1 */
}

static aerie_status read_record(const reader *r, const uint8_t *p, ae_zip_record *out, aerie_error *error)
{
    char quoted[AE_GGUF_QUOTE_BYTES];
    const size_t n_name = (size_t)number(p + 28, 2), n_extra = (size_t)number(p + 30, 2);
    entry e = {number(p + 24, 4), number(p + 20, 4), number(p + 42, 4)};
    out->name = (ae_gguf_string){(const char *)p + 46, n_name};
    ae_gguf_quote(quoted, out->name);
    if (number(p + 10, 2) != 0 || number(p + 8, 2) & 1)
        return FAIL(UNSUPPORTED, "%s: record %s is compressed or encrypted; torch.save does neither", r->path, quoted);
    if (!read_zip64(p + 46 + n_name, n_extra, &e))
        return FAIL(FORMAT, "%s: record %s: its extra field is cut short", r->path, quoted);
    const uint8_t *local = part(r, e.at, 30);
    if (!local || number(local, 4) != 0x04034b50 || e.size != e.packed)
        return FAIL(FORMAT, "%s: record %s is not where the table says", r->path, quoted);
    const uint64_t before = 30 + number(local + 26, 2) + number(local + 28, 2);
    out->data = part(r, e.at, before) ? part(r, e.at + before, e.size) : NULL;
    if (!out->data) return FAIL(FORMAT, "%s: record %s reaches beyond the end of the file; is it cut short?", r->path, quoted);
    out->bytes = (size_t)e.size;
    return AERIE_OK;
}

static bool before_by_name(const void *context, uint32_t a, uint32_t b)
{
    const ae_zip_record *records = context;
    return ae_gguf_string_compare(records[a].name, records[b].name) < 0;
}

static aerie_status sort(ae_zip *zip, ae_arena *arena, const char *path, aerie_error *error)
{
    ae_zip_record *sorted = ae_arena_alloc(arena, zip->n, sizeof *sorted);
    uint32_t *order = ae_arena_alloc(arena, zip->n, sizeof *order);
    char quoted[AE_GGUF_QUOTE_BYTES];
    if (!sorted || !order) return ae_fail_memory(error, "the records of an archive", zip->n * sizeof *sorted);
    for (size_t i = 0; i < zip->n; i++) order[i] = (uint32_t)i;
    ae_gguf_sort(order, zip->n, before_by_name, zip->records);
    for (size_t i = 0; i < zip->n; i++) {
        sorted[i] = zip->records[order[i]];
        if (i && !ae_gguf_string_compare(sorted[i].name, sorted[i - 1].name))
            return FAIL(FORMAT, "%s: record %s occurs twice", path, ae_gguf_quote(quoted, sorted[i].name));
    }
    zip->records = sorted;
    return AERIE_OK;
}

aerie_status ae_zip_read(ae_zip *zip, ae_arena *arena, const uint8_t *data, size_t n, const char *path, aerie_error *error)
{
    const char *dots;
    const reader r = {data, n, ae_gguf_path_end(path, &dots)};
    directory d = {0};
    *zip = (ae_zip){0};
    AE_TRY(find_directory(&r, &d, error));
    if (d.n > AE_ZIP_MAX_RECORDS) return FAIL(LIMIT, "%s: %llu records; at most %llu are read", r.path, (unsigned long long)d.n,
                                              (unsigned long long)AE_ZIP_MAX_RECORDS);
    const uint8_t *p = part(&r, d.at, d.bytes);
    if (!p || d.n > d.bytes / 46) return FAIL(FORMAT, "%s: the table of records lies outside the file", r.path);
    zip->records = ae_arena_alloc(arena, (size_t)d.n, sizeof *zip->records);
    if (!zip->records) return ae_fail_memory(error, "the records of an archive", (size_t)d.n * sizeof *zip->records);
    for (const uint8_t *end = p + d.bytes; zip->n < d.n; zip->n++) {
        if ((size_t)(end - p) < 46 || number(p, 4) != 0x02014b50)
            return FAIL(FORMAT, "%s: record %zu of the table is broken", r.path, zip->n);
        const size_t bytes = 46 + (size_t)(number(p + 28, 2) + number(p + 30, 2) + number(p + 32, 2));
        if (bytes > (size_t)(end - p)) return FAIL(FORMAT, "%s: record %zu of the table is cut short", r.path, zip->n);
        AE_TRY(read_record(&r, p, &zip->records[zip->n], error));
        p += bytes;
    }
    return sort(zip, arena, r.path, error);
}

const ae_zip_record *ae_zip_find(const ae_zip *zip, const char *name, size_t n)
{
    const ae_gguf_string wanted = {name, n};
    size_t lo = 0, hi = zip->n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const int order = ae_gguf_string_compare(zip->records[mid].name, wanted);
        if (order == 0) return &zip->records[mid];
        if (order < 0) lo = mid + 1;
        else hi = mid;
    }
    return NULL;
}
