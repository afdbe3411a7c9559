/* gguf_parse.c - reads the header, keys and tensor list of one GGUF file.
 *
 * The file is hostile: every length and count is compared with the number of bytes left before
 * anything is allocated or dereferenced. The comparisons subtract from sizes that are known to be
 * valid, so no sum can wrap. See gguf_parse.h for what is owned.
 * Source: the GGUF specification (ggml docs/gguf.md).
 */
#include "formats/gguf_parse.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/heap.h"
#include "formats/kind.h"

#define KV_BYTES_MIN (8 + 4 + 1)             /* the smallest size of a key with its value */
#define TENSOR_BYTES_MIN (8 + 4 + 8 + 4 + 8) /* the smallest size of a tensor's description */

_Static_assert(sizeof(ae_gguf_kv) <= 4 * KV_BYTES_MIN, "gguf.h promises at most 4 bytes of index per byte of file");
_Static_assert(sizeof(ae_gguf_tensor) <= 4 * TENSOR_BYTES_MIN, "gguf.h promises at most 4 bytes of index per byte of file");

#define HEADER_BYTES 64 /* more than enough to tell GGUF from other formats */

/* The reader's position; kind, number, total and name identify the entry being read, for messages. */
typedef struct cursor {
    ae_gguf_file *file;
    size_t at;
    aerie_error *error;
    const char *kind; /* "key", "tensor", or NULL in the header */
    uint64_t number, total;
    ae_gguf_string name; /* data is NULL until the name has been read */
} cursor;

const char *ae_gguf_quote(char out[AE_GGUF_QUOTE_BYTES], ae_gguf_string name)
{
    static const char hex[] = "0123456789abcdef";
    size_t w = 0;
    out[w++] = '"';
    for (size_t i = 0; i < name.n; i++) {
        unsigned char b = (unsigned char)name.data[i];
        if (w > AE_GGUF_QUOTE_BYTES - 10) { /* room for \xNN, the dots, the quote and the NUL */
            memcpy(out + w, "...", 3);
            w += 3;
            break;
        }
        if (b >= 0x20 && b < 0x7f && b != '"' && b != '\\') {
            out[w++] = (char)b;
        } else {
            out[w++] = '\\';
            out[w++] = 'x';
            out[w++] = hex[b >> 4];
            out[w++] = hex[b & 15];
        }
    }
    out[w++] = '"';
    out[w] = 0;
    return out;
}

const char *ae_gguf_path_end(const char *path, const char **dots)
{
    size_t n = strlen(path), keep = 160;
    *dots = n > keep ? "..." : "";
    return n > keep ? path + n - keep : path;
}

#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
static aerie_status fail_at(const cursor *c, aerie_status status, size_t at, const char *format, ...)
{
    if (!c->error) return status;
    char message[240], quoted[AE_GGUF_QUOTE_BYTES], where[160] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (c->kind && c->name.data)
        snprintf(where, sizeof where, "%s %s: ", c->kind, ae_gguf_quote(quoted, c->name));
    else if (c->kind)
        snprintf(where, sizeof where, "%s %" PRIu64 " of %" PRIu64 ": ", c->kind, c->number, c->total);
    const char *dots, *path = ae_gguf_path_end(c->file->path, &dots);
    return ae_fail(c->error, status, "%s%s: %s%s (at byte %zu)", dots, path, where, message, at);
}

static size_t bytes_left(const cursor *c)
{
    return c->file->bytes - c->at;
}

/* Makes sure that the first `end` bytes can be read, if only the head of the file is in memory or it is still being downloaded.
 * Sets is_short and fails if they are not available yet. */
static aerie_status need(const cursor *c, size_t end)
{
    ae_file_map *map = &c->file->map;
    if (c->file->there && end > c->file->there) {
        c->file->is_short = true;
        return AERIE_ERROR_FORMAT;
    }
    return map->head ? ae_file_map_need(map, c->file->path, end, c->error) : AERIE_OK;
}

/* Takes the next n bytes; fails if the file ends before, with a message that says that it ends inside `what`. */
static aerie_status take(cursor *c, size_t n, const char *what, const uint8_t **bytes)
{
    if (bytes_left(c) < n)
        return fail_at(c, AERIE_ERROR_FORMAT, c->at, "the file ends inside %s; it is %zu bytes long: is the download complete?",
                       what, c->file->bytes);
    AE_TRY(need(c, c->at + n));
    *bytes = c->file->data + c->at;
    c->at += n;
    return AERIE_OK;
}

static aerie_status take_u32(cursor *c, const char *what, uint32_t *value)
{
    const uint8_t *p = NULL;
    AE_TRY(take(c, sizeof *value, what, &p));
    memcpy(value, p, sizeof *value);
    return AERIE_OK;
}

static aerie_status take_u64(cursor *c, const char *what, uint64_t *value)
{
    const uint8_t *p = NULL;
    AE_TRY(take(c, sizeof *value, what, &p));
    memcpy(value, p, sizeof *value);
    return AERIE_OK;
}

static aerie_status take_string(cursor *c, const char *what, uint64_t most, ae_gguf_string *out)
{
    size_t at = c->at;
    uint64_t n = 0;
    const uint8_t *p = NULL;
    AE_TRY(take_u64(c, what, &n));
    if (n > bytes_left(c))
        return fail_at(c, AERIE_ERROR_FORMAT, at, "the length of %s is %" PRIu64 ", but only %zu bytes follow", what, n,
                       bytes_left(c));
    if (n > most)
        return fail_at(c, AERIE_ERROR_FORMAT, at, "the length of %s is %" PRIu64 "; at most %" PRIu64 " is allowed",
                       what, n, most);
    AE_TRY(take(c, (size_t)n, what, &p));
    *out = (ae_gguf_string){(const char *)p, (size_t)n};
    return AERIE_OK;
}

/* ---- Header -------------------------------------------------------------------------------- */

static aerie_status fail_magic(const cursor *c)
{
    ae_gguf_file *f = c->file;
    if (!f->bytes) return fail_at(c, AERIE_ERROR_FORMAT, 0, "the file is empty");
    const size_t n = f->bytes < AE_KIND_BYTES ? f->bytes : AE_KIND_BYTES;
    AE_TRY(need(c, n));
    const char *what = ae_kind_bytes(f->data, n);
    if (what) return fail_at(c, AERIE_ERROR_FORMAT, 0, "not a GGUF file but %s", what);
    char quoted[AE_GGUF_QUOTE_BYTES];
    ae_gguf_string start = {(const char *)f->data, f->bytes < 4 ? f->bytes : 4};
    return fail_at(c, AERIE_ERROR_FORMAT, 0, "not a GGUF file: it starts with %s, not with \"GGUF\"",
                   ae_gguf_quote(quoted, start));
}

static aerie_status read_header(cursor *c, uint64_t *n_tensors, uint64_t *n_kv)
{
    ae_gguf_file *f = c->file;
    if (f->bytes < 4 || memcmp(f->data, "GGUF", 4)) return fail_magic(c);
    c->at = 4;
    AE_TRY(take_u32(c, "the version number", &f->version));
    if (f->version != 2 && f->version != 3) {
        if (f->version == 1)
            return fail_at(c, AERIE_ERROR_UNSUPPORTED, 4,
                           "GGUF version 1 is not supported; convert the model again (aerie reads versions 2 and 3)");
        if (f->version && !(f->version & 0xffff))
            return fail_at(c, AERIE_ERROR_UNSUPPORTED, 4, "the file is big-endian; aerie reads little-endian files only");
        return fail_at(c, AERIE_ERROR_UNSUPPORTED, 4, "GGUF version %" PRIu32 " is not supported; aerie reads versions 2 and 3",
                       f->version);
    }
    AE_TRY(take_u64(c, "the number of tensors", n_tensors));
    return take_u64(c, "the number of keys", n_kv);
}

/* Refuses a count of items, each at least bytes_min long, that cannot fit into the remaining bytes. */
static aerie_status check_count(const cursor *c, uint64_t n, size_t bytes_min, size_t at, const char *what)
{
    if (n > bytes_left(c) / bytes_min)
        return fail_at(c, AERIE_ERROR_FORMAT, at,
                       "it claims %" PRIu64 " %s, but only %zu bytes follow; the file is damaged or cut short", n, what,
                       bytes_left(c));
    if (n > AE_GGUF_MAX_ENTRIES)
        return fail_at(c, AERIE_ERROR_LIMIT, at, "it has %" PRIu64 " %s; aerie reads at most %" PRIu64, n, what,
                       AE_GGUF_MAX_ENTRIES);
    return c->file->there ? need(c, c->at + (size_t)n * bytes_min) : AERIE_OK; /* before memory for the items is allocated */
}

/* ---- Keys ---------------------------------------------------------------------------------- */

size_t ae_gguf_scalar_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {
        [AE_GGUF_U8] = 1,  [AE_GGUF_I8] = 1,  [AE_GGUF_U16] = 2,  [AE_GGUF_I16] = 2, [AE_GGUF_U32] = 4, [AE_GGUF_I32] = 4,
        [AE_GGUF_F32] = 4, [AE_GGUF_BOOL] = 1, [AE_GGUF_U64] = 8, [AE_GGUF_I64] = 8, [AE_GGUF_F64] = 8,
    };
    return type < sizeof bytes ? bytes[type] : 0;
}

static aerie_status read_elements(cursor *c, ae_gguf_kv *kv, size_t at)
{
    size_t size = ae_gguf_scalar_bytes(kv->element_type), begin = c->at;
    if (size) {
        const uint8_t *p = NULL;
        if (kv->n > bytes_left(c) / size)
            return fail_at(c, AERIE_ERROR_FORMAT, at,
                           "its array claims %" PRIu64 " elements of %zu bytes, but only %zu bytes follow: is the download "
                           "complete?", kv->n, size, bytes_left(c));
        AE_TRY(take(c, (size_t)kv->n * size, "an array", &p));
    } else {
        if (kv->n > bytes_left(c) / 8)
            return fail_at(c, AERIE_ERROR_FORMAT, at,
                           "its array claims %" PRIu64 " strings, but only %zu bytes follow: is the download complete?", kv->n,
                           bytes_left(c));
        for (uint64_t i = 0; i < kv->n; i++) {
            ae_gguf_string unused;
            AE_TRY(take_string(c, "a string of its array", UINT64_MAX, &unused));
        }
    }
    kv->data = c->file->data + begin;
    kv->bytes = c->at - begin;
    return AERIE_OK;
}

static aerie_status read_kv(cursor *c, ae_gguf_kv *kv)
{
    uint32_t type = 0;
    size_t at;
    AE_TRY(take_string(c, "a key", AE_GGUF_MAX_NAME, &kv->key));
    c->name = kv->key;
    at = c->at;
    AE_TRY(take_u32(c, "its value type", &type));
    if (type > AE_GGUF_F64) return fail_at(c, AERIE_ERROR_FORMAT, at, "value type %" PRIu32 " does not exist", type);
    kv->type = kv->element_type = (ae_gguf_type)type;
    kv->n = 1;
    size_t size = ae_gguf_scalar_bytes(type);
    if (size) {
        kv->bytes = size;
        return take(c, size, "its value", &kv->data);
    }
    if (type == AE_GGUF_STRING) {
        ae_gguf_string text;
        at = c->at;
        AE_TRY(take_string(c, "its string", UINT64_MAX, &text));
        kv->data = c->file->data + at;
        kv->bytes = c->at - at;
        return AERIE_OK;
    }
    at = c->at;
    AE_TRY(take_u32(c, "its element type", &type));
    if (type == AE_GGUF_ARRAY)
        return fail_at(c, AERIE_ERROR_UNSUPPORTED, at, "an array of arrays is not supported");
    if (type > AE_GGUF_F64) return fail_at(c, AERIE_ERROR_FORMAT, at, "element type %" PRIu32 " does not exist", type);
    kv->element_type = (ae_gguf_type)type;
    at = c->at;
    AE_TRY(take_u64(c, "its array length", &kv->n));
    return read_elements(c, kv, at);
}

static bool key_before(const void *context, uint32_t a, uint32_t b)
{
    const ae_gguf_kv *kv = context;
    return ae_gguf_string_compare(kv[a].key, kv[b].key) < 0;
}

static size_t offset_of(const cursor *c, const void *p)
{
    return (size_t)((const uint8_t *)p - c->file->data);
}

static aerie_status read_keys(cursor *c, uint64_t n_kv)
{
    ae_gguf_file *f = c->file;
    AE_TRY(check_count(c, n_kv, KV_BYTES_MIN, 16, "keys"));
    f->kv = ae_alloc((size_t)n_kv, sizeof *f->kv);
    f->kv_order = ae_alloc((size_t)n_kv, sizeof *f->kv_order);
    if (!f->kv || !f->kv_order)
        return ae_fail_memory(c->error, "the keys of a GGUF file", (size_t)n_kv * (sizeof *f->kv + 4));
    c->kind = "key";
    c->total = n_kv;
    for (uint64_t i = 0; i < n_kv; i++) {
        c->number = i + 1;
        c->name = (ae_gguf_string){0};
        AE_TRY(read_kv(c, &f->kv[i]));
        f->kv_order[i] = (uint32_t)i;
    }
    f->n_kv = (size_t)n_kv;
    ae_gguf_sort(f->kv_order, f->n_kv, key_before, f->kv);
    for (size_t i = 1; i < f->n_kv; i++) {
        const ae_gguf_kv *a = &f->kv[f->kv_order[i - 1]], *b = &f->kv[f->kv_order[i]];
        if (ae_gguf_string_compare(a->key, b->key)) continue;
        c->name = a->key;
        size_t at = offset_of(c, a->key.data), again = offset_of(c, b->key.data);
        return fail_at(c, AERIE_ERROR_FORMAT, at > again ? at : again, "the key occurs twice in the file");
    }
    c->kind = NULL;
    return AERIE_OK;
}

static aerie_status read_alignment(cursor *c)
{
    ae_gguf_file *f = c->file;
    const ae_gguf_kv *kv = ae_gguf_file_find(f, "general.alignment");
    f->alignment = AE_GGUF_ALIGNMENT;
    if (!kv) return AERIE_OK;
    c->kind = "key";
    c->name = kv->key;
    size_t at = offset_of(c, kv->data);
    if (kv->type != AE_GGUF_U32)
        return fail_at(c, AERIE_ERROR_FORMAT, at, "the value is of type %s; it must be u32", ae_gguf_type_name(kv->type));
    memcpy(&f->alignment, kv->data, sizeof f->alignment);
    if (f->alignment < 8 || f->alignment > 1048576 || (f->alignment & (f->alignment - 1)))
        return fail_at(c, AERIE_ERROR_FORMAT, at, "the alignment is %" PRIu32 "; it must be a power of two from 8 to 1048576",
                       f->alignment);
    c->kind = NULL;
    return AERIE_OK;
}

/* ---- Tensors ------------------------------------------------------------------------------- */

static aerie_status read_shape(cursor *c, ae_gguf_tensor *t)
{
    size_t at = c->at;
    int64_t product = 1;
    AE_TRY(take_u32(c, "its number of dimensions", &t->n_dims));
    if (t->n_dims < 1 || t->n_dims > 4)
        return fail_at(c, AERIE_ERROR_FORMAT, at, "it has %" PRIu32 " dimensions; there can be 1 to 4", t->n_dims);
    for (uint32_t i = 0; i < 4; i++) t->ne[i] = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        uint64_t ne = 0;
        at = c->at;
        AE_TRY(take_u64(c, "its dimensions", &ne));
        if (!ne || ne > INT64_MAX)
            return fail_at(c, AERIE_ERROR_FORMAT, at, "its dimension %" PRIu32 " is %" PRIu64, i, ne);
        if (__builtin_mul_overflow(product, (int64_t)ne, &product))
            return fail_at(c, AERIE_ERROR_FORMAT, at, "the product of its dimensions does not fit in 63 bits");
        t->ne[i] = (int64_t)ne;
    }
    return AERIE_OK;
}

static aerie_status read_tensor(cursor *c, ae_gguf_tensor *t)
{
    AE_TRY(take_string(c, "a name", AE_GGUF_MAX_NAME, &t->name));
    c->name = t->name;
    AE_TRY(read_shape(c, t));
    size_t at = c->at;
    AE_TRY(take_u32(c, "its type", &t->type));
    uint32_t block = ae_type_block_elements(t->type);
    if (!block) {
        bool retired = t->type == 4 || t->type == 5 || (t->type >= 31 && t->type <= 38);
        return fail_at(c, AERIE_ERROR_UNSUPPORTED, at, "tensor type %" PRIu32 " is %s", t->type,
                       retired ? "no longer in use; convert or quantize the model again" : "unknown to this version of aerie");
    }
    size_t row = ae_type_row_bytes(t->type, (uint64_t)t->ne[0]);
    if (t->ne[0] % block)
        return fail_at(c, AERIE_ERROR_FORMAT, at,
                       "its rows have %" PRId64 " elements, not a multiple of %" PRIu32 ", the block of %s", t->ne[0], block,
                       ae_type_name(t->type));
    t->bytes = row;
    for (int i = 1; row && i < 4; i++)
        if (!ae_mul_size(t->bytes, (size_t)t->ne[i], &t->bytes)) row = 0;
    if (!row) return fail_at(c, AERIE_ERROR_FORMAT, at, "its size in bytes does not fit in 64 bits");
    at = c->at;
    AE_TRY(take_u64(c, "its offset", &t->offset));
    if (t->offset % c->file->alignment)
        return fail_at(c, AERIE_ERROR_FORMAT, at, "its offset %" PRIu64 " is not a multiple of the alignment, %" PRIu32,
                       t->offset, c->file->alignment);
    return AERIE_OK;
}

static bool offset_before(const void *context, uint32_t a, uint32_t b)
{
    const ae_gguf_tensor *t = context;
    return t[a].offset < t[b].offset;
}

/* Turns the tensors' offsets in the data section into offsets in the file, and checks that all data are inside the file and no
 * two tensors overlap. order [n_tensors] is scratch. */
static aerie_status place_tensors(cursor *c, uint32_t *order)
{
    ae_gguf_file *f = c->file;
    size_t start = c->at + (f->alignment - c->at % f->alignment) % f->alignment; /* c->at <= file size: no wrap */
    size_t section = start < f->bytes ? f->bytes - start : 0;
    f->data_end = c->at;
    for (size_t i = 0; i < f->n_tensors; i++) {
        ae_gguf_tensor *t = &f->tensors[i];
        c->name = t->name;
        if (t->offset > section || t->bytes > section - t->offset)
            return fail_at(c, AERIE_ERROR_FORMAT, offset_of(c, t->name.data),
                           "its %zu bytes at offset %" PRIu64 " of the data (which starts at byte %zu) reach beyond the end of "
                           "the file at byte %zu: is the download complete?", t->bytes, t->offset, start, f->bytes);
        t->offset += start;
        t->data = f->map.head || f->there ? NULL : f->data + t->offset;
        if (t->offset + t->bytes > f->data_end) f->data_end = (size_t)t->offset + t->bytes;
        order[i] = (uint32_t)i;
    }
    ae_gguf_sort(order, f->n_tensors, offset_before, f->tensors);
    for (size_t i = 1; i < f->n_tensors; i++) {
        const ae_gguf_tensor *a = &f->tensors[order[i - 1]], *b = &f->tensors[order[i]];
        if (b->offset - a->offset >= a->bytes) continue;
        char other[AE_GGUF_QUOTE_BYTES];
        c->name = b->name;
        return fail_at(c, AERIE_ERROR_FORMAT, (size_t)b->offset, "its data overlaps that of tensor %s",
                       ae_gguf_quote(other, a->name));
    }
    c->kind = NULL;
    return AERIE_OK;
}

static aerie_status read_tensors(cursor *c, uint64_t n_tensors)
{
    ae_gguf_file *f = c->file;
    AE_TRY(check_count(c, n_tensors, TENSOR_BYTES_MIN, 8, "tensors"));
    f->tensors = ae_alloc((size_t)n_tensors, sizeof *f->tensors);
    if (!f->tensors)
        return ae_fail_memory(c->error, "the tensor list of a GGUF file", (size_t)n_tensors * sizeof *f->tensors);
    c->kind = "tensor";
    c->total = n_tensors;
    for (uint64_t i = 0; i < n_tensors; i++) {
        c->number = i + 1;
        c->name = (ae_gguf_string){0};
        AE_TRY(read_tensor(c, &f->tensors[i]));
    }
    f->n_tensors = (size_t)n_tensors;
    uint32_t *order = ae_alloc(f->n_tensors, sizeof *order);
    if (!order) return ae_fail_memory(c->error, "the tensor order of a GGUF file", f->n_tensors * sizeof *order);
    aerie_status status = place_tensors(c, order);
    ae_free(order);
    return status;
}

/* ---- The whole file ------------------------------------------------------------------------ */

aerie_status ae_gguf_file_parse(ae_gguf_file *file, aerie_error *error)
{
    cursor c = {.file = file, .error = error};
    uint64_t n_tensors = 0, n_kv = 0;
    /* a file that is still being downloaded may have fewer bytes than HEADER_BYTES so far */
    const bool is_gguf = file->there >= 4 && !memcmp(file->data, "GGUF", 4);
    if (!is_gguf) AE_TRY(need(&c, file->bytes < HEADER_BYTES ? file->bytes : HEADER_BYTES));
    AE_TRY(read_header(&c, &n_tensors, &n_kv));
    AE_TRY(read_keys(&c, n_kv));
    AE_TRY(read_alignment(&c));
    return read_tensors(&c, n_tensors);
}

void ae_gguf_file_free(ae_gguf_file *file)
{
    ae_free(file->tensors);
    ae_free(file->kv_order);
    ae_free(file->kv);
    ae_free(file->path);
    ae_file_map_close(&file->map);
    *file = (ae_gguf_file){0};
}

const ae_gguf_kv *ae_gguf_file_find(const ae_gguf_file *file, const char *key)
{
    ae_gguf_string wanted = {key, strlen(key)};
    size_t lo = 0, hi = file->n_kv;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const ae_gguf_kv *kv = &file->kv[file->kv_order[mid]];
        int order = ae_gguf_string_compare(kv->key, wanted);
        if (!order) return kv;
        if (order < 0) lo = mid + 1;
        else hi = mid;
    }
    return NULL;
}

int ae_gguf_string_compare(ae_gguf_string a, ae_gguf_string b)
{
    if (a.n != b.n) return a.n < b.n ? -1 : 1;
    return a.n ? memcmp(a.data, b.data, a.n) : 0;
}

typedef struct sorting {
    ae_gguf_before *before;
    const void *context;
} sorting;

static bool is_after(const void *context, const uint32_t *a, const uint32_t *b)
{
    const sorting *s = context;
    return s->before(s->context, *b, *a);
}

AE_HEAP_SINK(sink, uint32_t, 2, is_after)

void ae_gguf_sort(uint32_t *order, size_t n, ae_gguf_before *before, const void *context)
{
    const sorting s = {before, context};
    for (size_t i = n / 2; i-- > 0;) sink(order, n, i, &s);
    for (size_t end = n; end > 1;) {
        end--;
        uint32_t last = order[0];
        order[0] = order[end];
        order[end] = last;
        sink(order, end, 0, &s);
    }
}
