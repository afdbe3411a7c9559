/* gguf.c - a GGUF model as a whole: one file or a split set, found by tensor name.
 *
 * Owns: the files (gguf_parse.h) and the tensor list over all of them.
 * Invariant: `tensors` is in order of parts, then of files; `tensor_order` sorts it by name, and
 * no name occurs twice.
 * Each part of a split set holds its number and their count (split.no, split.count). Its name must match,
 * "prefix-0000i-of-0000n.gguf" with i from 1, because the other parts are found by name.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/kind.h"
#include "formats/gguf_override.h"
#include "formats/gguf_parse.h"

#define MAX_FILES 65535 /* split.count is written as a u16 */

struct ae_gguf {
    char *path;
    ae_gguf_file *files; /* [n_files], in order of parts */
    uint32_t n_files, file_capacity;
    ae_gguf_tensor *tensors; /* [n_tensors] */
    size_t n_tensors;
    uint32_t *tensor_order; /* [n_tensors], sorted by name */
    uint64_t file_bytes;
    ae_gguf_overrides overrides;
};

/* ---- Tensors over all files ------------------------------------------------------------------ */

static bool name_before(const void *context, uint32_t a, uint32_t b)
{
    const ae_gguf_tensor *t = context;
    return ae_gguf_string_compare(t[a].name, t[b].name) < 0;
}

static aerie_status gather_tensors(ae_gguf *g, aerie_error *error)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < g->n_files; i++) n += g->files[i].n_tensors; /* <= 2^16 * 2^20 */
    if (n > AE_GGUF_MAX_ENTRIES)
        return ae_fail(error, AERIE_ERROR_LIMIT, "%s: its parts have %" PRIu64 " tensors; aerie reads at most %" PRIu64,
                       g->path, n, AE_GGUF_MAX_ENTRIES);
    if (g->n_files == 1) {
        g->tensors = g->files[0].tensors;
        g->files[0].tensors = NULL;
        g->n_tensors = (size_t)n;
        return AERIE_OK;
    }
    g->tensors = ae_alloc((size_t)n, sizeof *g->tensors);
    if (!g->tensors) return ae_fail_memory(error, "the tensor list of a split model", (size_t)n * sizeof *g->tensors);
    for (uint32_t i = 0; i < g->n_files; i++) {
        for (size_t k = 0; k < g->files[i].n_tensors; k++) {
            g->tensors[g->n_tensors] = g->files[i].tensors[k];
            g->tensors[g->n_tensors++].i_file = i;
        }
        ae_free(g->files[i].tensors);
        g->files[i].tensors = NULL;
    }
    return AERIE_OK;
}

static aerie_status index_tensors(ae_gguf *g, aerie_error *error)
{
    AE_TRY(gather_tensors(g, error));
    g->tensor_order = ae_alloc(g->n_tensors, sizeof *g->tensor_order);
    if (!g->tensor_order) return ae_fail_memory(error, "the tensor index", g->n_tensors * sizeof *g->tensor_order);
    for (size_t i = 0; i < g->n_tensors; i++) g->tensor_order[i] = (uint32_t)i;
    ae_gguf_sort(g->tensor_order, g->n_tensors, name_before, g->tensors);
    for (size_t i = 1; i < g->n_tensors; i++) {
        const ae_gguf_tensor *a = &g->tensors[g->tensor_order[i - 1]], *b = &g->tensors[g->tensor_order[i]];
        if (ae_gguf_string_compare(a->name, b->name)) continue;
        if (a > b) b = a; /* name the later one */
        const ae_gguf_file *f = &g->files[b->i_file];
        char quoted[AE_GGUF_QUOTE_BYTES];
        const char *dots, *path = ae_gguf_path_end(f->path, &dots);
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s%s: tensor %s: the name occurs twice in the model (at byte %zu)",
                       dots, path,
                       ae_gguf_quote(quoted, b->name), (size_t)((const uint8_t *)b->name.data - f->data));
    }
    for (uint32_t i = 0; i < g->n_files; i++) g->file_bytes += g->files[i].bytes;
    return AERIE_OK;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static aerie_status parse_path(ae_gguf_file *file, const char *path, const ae_gguf_options *how, aerie_error *error)
{
    *file = (ae_gguf_file){0};
    file->path = ae_strndup(path, strlen(path));
    if (!file->path) return ae_fail_memory(error, "a path", strlen(path) + 1);
    const char *folder = ae_kind_folder(path);
    aerie_status status = folder          ? ae_fail(error, AERIE_ERROR_FORMAT, "%s: not a GGUF file but %s", path, folder)
                          : how->index_only ? ae_file_map_open_head(&file->map, path, error)
                                            : ae_file_map_open(&file->map, path, !how->no_mmap, error);
    if (status == AERIE_OK) {
        file->data = file->map.data;
        file->bytes = file->map.bytes;
        status = ae_gguf_file_parse(file, error);
        ae_file_map_seal(&file->map);
    }
    if (status != AERIE_OK) ae_gguf_file_free(file);
    return status;
}

/* Takes ownership of the file; frees it on failure. */
static aerie_status append_file(ae_gguf *g, ae_gguf_file *file, aerie_error *error)
{
    if (g->n_files == g->file_capacity) {
        uint32_t capacity = g->file_capacity ? g->file_capacity * 2 : 1;
        ae_gguf_file *files = ae_realloc(g->files, capacity, sizeof *files);
        if (!files) {
            ae_gguf_file_free(file);
            return ae_fail_memory(error, "the list of files", capacity * sizeof *files);
        }
        g->files = files;
        g->file_capacity = capacity;
    }
    g->files[g->n_files++] = *file;
    *file = (ae_gguf_file){0};
    return AERIE_OK;
}

/* ---- Split sets ------------------------------------------------------------------------------ */

typedef struct split {
    uint32_t no, count; /* part `no` (from 0) of `count`; count is 1 for a single file */
    bool has_tensors;   /* the file has split.tensors.count */
    uint64_t n_tensors; /* tensors of all parts together, if has_tensors */
} split;

/* Reads a split.* key of any integer type as a number from 0 to `most`. */
static aerie_status split_number(const ae_gguf_file *file, const char *key, int64_t most, bool *found, int64_t *value,
                                 aerie_error *error)
{
    const ae_gguf_kv *kv = ae_gguf_file_find(file, key);
    *found = kv != NULL;
    if (!kv) return AERIE_OK;
    const char *dots, *path = ae_gguf_path_end(file->path, &dots);
    if (kv->type == AE_GGUF_ARRAY || !ae_gguf_kv_int(kv, 0, value))
        return ae_fail(error, AERIE_ERROR_FORMAT,
                       "%s%s: key \"%s\": the value is of type %s; it must be an integer (at byte %zu)", dots, path, key,
                       ae_gguf_type_name(kv->type), (size_t)(kv->data - file->data));
    if (*value < 0 || *value > most)
        return ae_fail(error, AERIE_ERROR_FORMAT,
                       "%s%s: key \"%s\": the value is %" PRId64 "; it must be from 0 to %" PRId64 " (at byte %zu)", dots, path,
                       key, *value, most, (size_t)(kv->data - file->data));
    return AERIE_OK;
}

static aerie_status read_split(const ae_gguf_file *file, split *out, aerie_error *error)
{
    bool has_no, has_count;
    int64_t no = 0, count = 0, n_tensors = 0;
    *out = (split){.count = 1};
    AE_TRY(split_number(file, "split.count", MAX_FILES, &has_count, &count, error));
    if (count < 2) return AERIE_OK; /* absent, or a set of one */
    AE_TRY(split_number(file, "split.no", count - 1, &has_no, &no, error));
    if (!has_no) {
        const char *dots, *path = ae_gguf_path_end(file->path, &dots);
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s%s: key \"split.no\" is missing from a file with \"split.count\" %" PRId64,
                       dots, path, count);
    }
    AE_TRY(split_number(file, "split.tensors.count", INT64_MAX, &out->has_tensors, &n_tensors, error));
    out->no = (uint32_t)no;
    out->count = (uint32_t)count;
    out->n_tensors = (uint64_t)n_tensors;
    return AERIE_OK;
}

#define SUFFIX_BYTES 20 /* "-00001-of-00002.gguf" */

static void format_suffix(char out[SUFFIX_BYTES + 1], uint32_t no, uint32_t count)
{
    snprintf(out, SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf", (no + 1) % 100000, count % 100000);
}

/* Opens part i of the set to which the file at `path` (part set->no) belongs, and checks its split.* keys. */
static aerie_status open_part(ae_gguf_file *part, const char *path, const split *set, uint32_t i,
                              const ae_gguf_options *how, aerie_error *error)
{
    const bool given = how->n_parts == set->count;
    size_t n = strlen(given ? how->parts[i] : path);
    char *name = ae_strndup(given ? how->parts[i] : path, n);
    if (!name) return ae_fail_memory(error, "a path", n + 1);
    if (!given) format_suffix(name + n - SUFFIX_BYTES, i, set->count);
    aerie_error inner = {0};
    split other;
    aerie_status status = parse_path(part, name, how, &inner);
    if (status == AERIE_OK) {
        status = read_split(part, &other, &inner);
        if (status == AERIE_OK && (other.no != i || other.count != set->count))
            status = ae_fail(&inner, AERIE_ERROR_FORMAT, "it says that it is part %u of %u", other.no + 1, other.count);
        if (status != AERIE_OK) ae_gguf_file_free(part);
    }
    if (status != AERIE_OK) {
        const char *dots, *end = ae_gguf_path_end(name, &dots);
        ae_fail(error, status, "%s%s: this file is needed as part %u of %u of a split model: %.280s", dots, end, i + 1,
                set->count, inner.text);
    }
    ae_free(name);
    return status;
}

/* Takes ownership of `given`, which is part set->no and is at g->path, and opens the other parts. */
static aerie_status open_set(ae_gguf *g, ae_gguf_file *given, const split *set, const ae_gguf_options *how,
                             aerie_error *error)
{
    char suffix[SUFFIX_BYTES + 1];
    size_t n = strlen(g->path);
    format_suffix(suffix, set->no, set->count);
    if (how->n_parts != set->count && (n < SUFFIX_BYTES || memcmp(g->path + n - SUFFIX_BYTES, suffix, SUFFIX_BYTES))) {
        const char *dots, *path = ae_gguf_path_end(g->path, &dots);
        ae_gguf_file_free(given);
        return ae_fail(error, AERIE_ERROR_FORMAT,
                       "%s%s: it is part %u of %u of a split model, so its name must end in \"%s\" for the other parts to be "
                       "found", dots, path, set->no + 1, set->count, suffix);
    }
    aerie_status status = AERIE_OK;
    for (uint32_t i = 0; i < set->count && status == AERIE_OK; i++) {
        ae_gguf_file part;
        if (i == set->no) {
            status = append_file(g, given, error);
            continue;
        }
        status = open_part(&part, g->path, set, i, how, error);
        if (status == AERIE_OK) status = append_file(g, &part, error);
    }
    ae_gguf_file_free(given);
    if (status != AERIE_OK) return status;
    AE_TRY(index_tensors(g, error));
    if (set->has_tensors && set->n_tensors != g->n_tensors)
        return ae_fail(error, AERIE_ERROR_FORMAT,
                       "%s: key \"split.tensors.count\" is %" PRIu64 ", but its %u parts have %zu tensors", g->path,
                       set->n_tensors, set->count, g->n_tensors);
    return AERIE_OK;
}

/* ---- Open and close -------------------------------------------------------------------------- */

/* Allocates the object and copies its path; NULL when out of memory. */
static ae_gguf *create(const char *path)
{
    ae_gguf *g = ae_alloc(1, sizeof *g);
    if (!g) return NULL;
    g->path = ae_strndup(path, strlen(path));
    if (g->path) return g;
    ae_free(g);
    return NULL;
}

/* Large files are also cut by bytes, to be joined by hand: "m.gguf.part1of2", "m.gguf-split-a". The error says so. */
static aerie_status name_piece(aerie_status status, const char *path, aerie_error *error)
{
    if (status != AERIE_ERROR_FORMAT || !error || !(strstr(path, ".gguf.part") || strstr(path, ".gguf-split-"))) return status;
    const size_t n = strlen(error->text);
    snprintf(error->text + n, sizeof error->text - n, "; by its name it is a piece of a file: join all pieces in order (cat)");
    return status;
}

aerie_status ae_gguf_open(ae_gguf **out, const char *path, const ae_gguf_options *options, aerie_error *error)
{
    const ae_gguf_options how = options ? *options : (ae_gguf_options){0};
    ae_gguf_file file;
    split set;
    *out = NULL;
    ae_gguf *g = create(path);
    if (!g) return ae_fail_memory(error, "a GGUF file's object", sizeof *g + strlen(path));
    aerie_status status = ae_gguf_overrides_parse(&g->overrides, how.overrides, how.n_overrides, error);
    if (status == AERIE_OK) status = parse_path(&file, path, &how, error);
    if (status == AERIE_OK) {
        status = read_split(&file, &set, error);
        if (status != AERIE_OK) {
            ae_gguf_file_free(&file);
        } else if (set.count > 1) {
            status = open_set(g, &file, &set, &how, error);
        } else {
            status = append_file(g, &file, error);
            if (status == AERIE_OK) status = index_tensors(g, error);
        }
    }
    if (status == AERIE_OK) *out = g;
    else ae_gguf_close(g);
    return name_piece(status, path, error);
}

aerie_status ae_gguf_open_memory(ae_gguf **out, const void *bytes, size_t n, const char *name, aerie_error *error)
{
    split set;
    *out = NULL;
    ae_gguf *g = create(name);
    if (!g) return ae_fail_memory(error, "a GGUF file's object", sizeof *g + strlen(name));
    ae_gguf_file file = {.data = bytes, .bytes = n, .path = ae_strndup(name, strlen(name))};
    aerie_status status = file.path ? ae_gguf_file_parse(&file, error) : ae_fail_memory(error, "a name", strlen(name) + 1);
    if (status == AERIE_OK) status = read_split(&file, &set, error);
    if (status == AERIE_OK && set.count > 1)
        status = ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: it is part %u of %u of a split model, which opens by path only",
                         name, set.no + 1, set.count);
    if (status == AERIE_OK) status = append_file(g, &file, error);
    else ae_gguf_file_free(&file);
    if (status == AERIE_OK) status = index_tensors(g, error);
    if (status == AERIE_OK) *out = g;
    else ae_gguf_close(g);
    return status;
}

aerie_status ae_gguf_extent_read(ae_gguf_extent *out, const void *bytes, size_t n, const char *name, aerie_error *error)
{
    split set = {.count = 1};
    ae_gguf_file file = {.data = bytes, .bytes = SIZE_MAX / 4, .there = n, .path = ae_strndup(name, strlen(name))};
    *out = (ae_gguf_extent){0};
    if (!file.path) return ae_fail_memory(error, "a name", strlen(name) + 1);
    file.is_short = n == 0;
    aerie_status status = n ? ae_gguf_file_parse(&file, error) : AERIE_OK;
    if (status == AERIE_OK && n) status = read_split(&file, &set, error);
    if (file.is_short) status = AERIE_OK;
    else if (status == AERIE_OK)
        *out = (ae_gguf_extent){
            .end = file.data_end,
            .padded = file.data_end + (file.alignment - file.data_end % file.alignment) % file.alignment,
            .part = set.no + 1,
            .n_parts = set.count,
        };
    ae_gguf_file_free(&file);
    return status;
}

void ae_gguf_close(ae_gguf *g)
{
    if (!g) return;
    for (uint32_t i = 0; i < g->n_files; i++) ae_gguf_file_free(&g->files[i]);
    ae_free(g->files);
    ae_free(g->tensors);
    ae_free(g->tensor_order);
    ae_free(g->path);
    ae_gguf_overrides_free(&g->overrides);
    ae_free(g);
}

/* ---- Reading tensors ------------------------------------------------------------------------- */

static aerie_status reader_file(ae_gguf_reader *r, uint32_t i_file, aerie_error *error)
{
    const ae_gguf_file *f = &r->gguf->files[i_file];
    ae_file_id id;
    if (r->fd >= 0 && r->i_file == i_file) return AERIE_OK;
    ae_gguf_reader_close(r);
    r->i_file = i_file;
    AE_TRY(ae_file_open(&r->fd, &id, f->path, error));
    if (ae_file_id_same(&id, &f->map.id)) return AERIE_OK;
    ae_gguf_reader_close(r);
    return ae_fail(error, AERIE_ERROR_IO, "%s: the file was changed while it was being loaded", f->path);
}

/* Returns whether the file's bytes are in memory other than its own pages: lent by the caller, or read as a whole. */
static bool in_memory(const ae_gguf_file *f)
{
    return !f->map.mapped && !f->map.head;
}

ae_gguf_reader ae_gguf_reader_open(const ae_gguf *gguf)
{
    return (ae_gguf_reader){.gguf = gguf, .fd = -1};
}

void ae_gguf_reader_close(ae_gguf_reader *reader)
{
    ae_file_close(reader->fd);
    reader->fd = -1;
}

aerie_status ae_gguf_read(ae_gguf_reader *reader, const ae_gguf_tensor *tensor, size_t offset, void *out, size_t n,
                          aerie_error *error)
{
    const ae_gguf_file *f = &reader->gguf->files[tensor->i_file];
    AE_ASSERT(offset <= tensor->bytes && n <= tensor->bytes - offset);
    if (in_memory(f)) {
        memcpy(out, tensor->data + offset, n);
        return AERIE_OK;
    }
    AE_TRY(reader_file(reader, tensor->i_file, error));
    return ae_file_read(reader->fd, f->path, tensor->offset + offset, out, n, error);
}

void ae_gguf_advise(ae_gguf_reader *reader, const ae_gguf_tensor *tensor, size_t offset, size_t n, ae_file_advice advice)
{
    if (reader->fd >= 0 && reader->i_file == tensor->i_file)
        ae_file_advise(reader->fd, tensor->offset + offset, n, advice);
}

/* ---- Getters --------------------------------------------------------------------------------- */

const char *ae_gguf_path(const ae_gguf *g)
{
    return g->path;
}

bool ae_gguf_reads(const ae_gguf *g, const char *path)
{
    ae_file_id id;
    int fd;
    bool reads = false;
    if (ae_file_open(&fd, &id, path, NULL) != AERIE_OK) return false;
    for (uint32_t i = 0; i < g->n_files; i++)
        reads = reads || (g->files[i].map.id.inode == id.inode && g->files[i].map.id.device == id.device);
    ae_file_close(fd);
    return reads;
}

uint32_t ae_gguf_version(const ae_gguf *g)
{
    return g->files[0].version;
}

uint32_t ae_gguf_alignment(const ae_gguf *g)
{
    return g->files[0].alignment;
}

uint32_t ae_gguf_n_files(const ae_gguf *g)
{
    return g->n_files;
}

uint64_t ae_gguf_file_bytes(const ae_gguf *g)
{
    return g->file_bytes;
}

size_t ae_gguf_n_kv(const ae_gguf *g)
{
    return g->files[0].n_kv;
}

const ae_gguf_kv *ae_gguf_kv_at(const ae_gguf *g, size_t i)
{
    return i < g->files[0].n_kv ? &g->files[0].kv[i] : NULL;
}

const ae_gguf_kv *ae_gguf_kv_find(const ae_gguf *g, const char *key)
{
    const ae_gguf_kv *given = ae_gguf_overrides_find(&g->overrides, key);
    return given ? given : ae_gguf_file_find(&g->files[0], key);
}

const ae_gguf_kv *ae_gguf_override_at(const ae_gguf *g, size_t i)
{
    return i < g->overrides.n ? &g->overrides.kv[i] : NULL;
}

bool ae_gguf_override_was_read(const ae_gguf *g, size_t i)
{
    return i < g->overrides.n && atomic_load_explicit(&g->overrides.read[i], memory_order_relaxed);
}

size_t ae_gguf_n_tensors(const ae_gguf *g)
{
    return g->n_tensors;
}

const ae_gguf_tensor *ae_gguf_tensor_at(const ae_gguf *g, size_t i)
{
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const ae_gguf_tensor *ae_gguf_tensor_find(const ae_gguf *g, const char *name)
{
    ae_gguf_string wanted = {name, strlen(name)};
    size_t lo = 0, hi = g->n_tensors;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const ae_gguf_tensor *t = &g->tensors[g->tensor_order[mid]];
        int order = ae_gguf_string_compare(t->name, wanted);
        if (!order) return t;
        if (order < 0) lo = mid + 1;
        else hi = mid;
    }
    return NULL;
}
