/* safetensors.c - implements safetensors.h.
 *
 * A file is: u64 n, n bytes of JSON {name: {dtype, shape, data_offsets}, "__metadata__": {...}}, then the data section
 * to which the offsets refer. jansson reads the JSON, bounds its depth and refuses duplicate names.
 */
#define _POSIX_C_SOURCE 200809L
#include "formats/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "formats/kind.h"
#include "formats/gguf_parse.h"

typedef struct st_file {
    ae_file_map map; /* empty when the caller lends the bytes */
    const uint8_t *data; /* [bytes] */
    size_t bytes;
    const char *path;
    ae_st_tensor *tensors; /* [n_tensors], by name */
    size_t n_tensors;
    int rank; /* in a set of ranks; ALL_RANKS: the file is for all of them */
} st_file;

#define ALL_RANKS (-1)

struct ae_safetensors {
    ae_arena arena; /* paths, names, tensors */
    st_file *files; /* [n_files] */
    uint32_t n_files;
    ae_st_tensor *tensors; /* [n_tensors], by name */
    size_t n_tensors;
};

static const struct {
    const char *name;
    size_t bytes;
} dtypes[AE_ST_DTYPE_COUNT] = {
#define ENTRY(name, bytes) {#name, bytes},
    AE_ST_DTYPE_LIST(ENTRY)
#undef ENTRY
};

const char *ae_st_dtype_name(ae_st_dtype dtype)
{
    return dtype < AE_ST_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

size_t ae_st_dtype_bytes(ae_st_dtype dtype)
{
    return dtype < AE_ST_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

/* ---- One tensor's description ------------------------------------------------------------------- */

#define FAIL(kind, ...) ae_fail(error, AERIE_ERROR_##kind, __VA_ARGS__)

/* The printf arguments of "%s%s: tensor %s" */
#define WHO dots, path, ae_gguf_quote(quoted, (ae_gguf_string){name, strlen(name)})

static aerie_status read_shape(const char *file, const char *name, const json_t *shape, ae_st_tensor *t, aerie_error *error)
{
    char quoted[AE_GGUF_QUOTE_BYTES];
    const char *dots, *path = ae_gguf_path_end(file, &dots);
    if (!json_is_array(shape)) return FAIL(FORMAT, "%s%s: tensor %s has no list 'shape'", WHO);
    const size_t n_dims = json_array_size(shape);
    if (n_dims > AE_ST_MAX_DIMS)
        return FAIL(UNSUPPORTED, "%s%s: tensor %s has %zu dimensions; at most %d are supported", WHO, n_dims, AE_ST_MAX_DIMS);
    t->n_dims = (uint32_t)n_dims;
    t->n = 1;
    for (size_t i = 0; i < AE_ST_MAX_DIMS; i++) {
        t->shape[i] = 1;
        if (i >= n_dims) continue;
        const json_t *item = json_array_get(shape, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0)
            return FAIL(FORMAT, "%s%s: tensor %s: dimension %zu is not a non-negative integer", WHO, i);
        t->shape[i] = (uint64_t)json_integer_value(item);
        if (__builtin_mul_overflow(t->n, t->shape[i], &t->n))
            return FAIL(FORMAT, "%s%s: tensor %s: its number of elements does not fit in 64 bits", WHO);
    }
    return AERIE_OK;
}

static aerie_status read_place(const st_file *f, const char *name, const json_t *offsets, size_t start, ae_st_tensor *t,
                               aerie_error *error)
{
    char quoted[AE_GGUF_QUOTE_BYTES];
    const char *dots, *path = ae_gguf_path_end(f->path, &dots);
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return FAIL(FORMAT, "%s%s: tensor %s has no 'data_offsets' [begin, end]", WHO);
    const long long begin = json_integer_value(first), end = json_integer_value(last);
    const size_t room = f->bytes - start;
    if (begin < 0 || end < begin || (unsigned long long)end > room)
        return FAIL(FORMAT, "%s%s: tensor %s lies at bytes %lld to %lld of a data section of %zu; is the file cut short?",
                    WHO, begin, end, room);
    size_t bytes;
    if (t->n > SIZE_MAX || !ae_mul_size((size_t)t->n, ae_st_dtype_bytes(t->dtype), &bytes) || bytes != (size_t)(end - begin))
        return FAIL(FORMAT, "%s%s: tensor %s has %llu elements of %zu bytes, but %lld bytes of data", WHO,
                    (unsigned long long)t->n, ae_st_dtype_bytes(t->dtype), end - begin);
    t->bytes = bytes;
    t->data = f->data + start + (size_t)begin;
    return AERIE_OK;
}

static aerie_status read_tensor(ae_safetensors *st, const st_file *f, const char *name, json_t *entry, size_t start,
                                ae_st_tensor *t, aerie_error *error)
{
    char quoted[AE_GGUF_QUOTE_BYTES];
    const char *dots, *path = ae_gguf_path_end(f->path, &dots);
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    *t = (ae_st_tensor){.dtype = AE_ST_DTYPE_COUNT};
    if (!*name) return FAIL(FORMAT, "%s%s: a tensor has an empty name", dots, path);
    if (!dtype) return FAIL(FORMAT, "%s%s: tensor %s has no 'dtype'", WHO);
    for (int i = 0; i < AE_ST_DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, dtype) == 0) t->dtype = (ae_st_dtype)i;
    }
    if (t->dtype == AE_ST_DTYPE_COUNT)
        return FAIL(UNSUPPORTED, "%s%s: tensor %s is of the unknown type '%.20s'", WHO, dtype);
    AE_TRY(read_shape(f->path, name, json_object_get(entry, "shape"), t, error));
    AE_TRY(read_place(f, name, json_object_get(entry, "data_offsets"), start, t, error));
    char *copy = ae_arena_strndup(&st->arena, name, strlen(name));
    if (!copy) return ae_fail_memory(error, "a tensor's name", strlen(name));
    t->name = copy;
    return AERIE_OK;
}

/* ---- One file ------------------------------------------------------------------------------------- */

static bool before_by_place(const void *context, uint32_t a, uint32_t b)
{
    const ae_st_tensor *t = context;
    if (t[a].data != t[b].data) return t[a].data < t[b].data;
    return t[a].bytes < t[b].bytes; /* empty ones first */
}

static bool before_by_name(const void *context, uint32_t a, uint32_t b)
{
    const ae_st_tensor *t = context;
    const int order = strcmp(t[a].name, t[b].name);
    return order ? order < 0 : t[a].i_file < t[b].i_file;
}

/* Checks that the tensors fill the data section: no overlap, no hole, no bytes after the last one. */
static aerie_status check_places(const st_file *f, const uint32_t *order, size_t start, aerie_error *error)
{
    char quoted[AE_GGUF_QUOTE_BYTES];
    const char *dots, *path = ae_gguf_path_end(f->path, &dots);
    const uint8_t *at = f->data + start;
    for (size_t i = 0; i < f->n_tensors; i++) {
        const ae_st_tensor *t = &f->tensors[order[i]];
        const char *name = t->name;
        if (t->data < at) return FAIL(FORMAT, "%s%s: tensor %s overlaps another one", WHO);
        if (t->data > at)
            return FAIL(FORMAT, "%s%s: %zu bytes before tensor %s belong to no tensor", dots, path, (size_t)(t->data - at),
                        ae_gguf_quote(quoted, (ae_gguf_string){name, strlen(name)}));
        at += t->bytes;
    }
    const size_t rest = (size_t)(f->data + f->bytes - at);
    if (rest) return FAIL(FORMAT, "%s%s: its last %zu bytes belong to no tensor", dots, path, rest);
    return AERIE_OK;
}

/* Replaces *tensors by a new list sorted by name; order [n] is scratch. */
static aerie_status sort_tensors(ae_arena *arena, ae_st_tensor **tensors, size_t n, uint32_t *order, aerie_error *error)
{
    ae_st_tensor *sorted = ae_arena_alloc(arena, n, sizeof *sorted);
    if (!sorted) return ae_fail_memory(error, "the list of tensors", n * sizeof *sorted);
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    ae_gguf_sort(order, n, before_by_name, *tensors);
    for (size_t i = 0; i < n; i++) sorted[i] = (*tensors)[order[i]];
    *tensors = sorted;
    return AERIE_OK;
}

static aerie_status read_entries(ae_safetensors *st, st_file *f, json_t *header, size_t start, aerie_error *error)
{
    const char *dots, *path = ae_gguf_path_end(f->path, &dots), *name;
    const size_t n = json_object_size(header);
    json_t *entry;
    f->tensors = ae_arena_alloc(&st->arena, n, sizeof *f->tensors);
    if (!f->tensors) return ae_fail_memory(error, "the list of tensors", n * sizeof *f->tensors);
    json_object_foreach(header, name, entry) {
        if (!json_is_object(entry)) {
            char quoted[AE_GGUF_QUOTE_BYTES];
            return FAIL(FORMAT, "%s%s: the header's entry of tensor %s is not an object", WHO);
        }
        if (strcmp(name, "__metadata__") == 0) continue;
        AE_TRY(read_tensor(st, f, name, entry, start, &f->tensors[f->n_tensors], error));
        f->n_tensors++;
    }
    uint32_t *order = ae_alloc(f->n_tensors ? f->n_tensors : 1, sizeof *order);
    if (!order) return ae_fail_memory(error, "the order of tensors", f->n_tensors * sizeof *order);
    for (size_t i = 0; i < f->n_tensors; i++) order[i] = (uint32_t)i;
    ae_gguf_sort(order, f->n_tensors, before_by_place, f->tensors);
    aerie_status status = check_places(f, order, start, error);
    if (status == AERIE_OK) status = sort_tensors(&st->arena, &f->tensors, f->n_tensors, order, error);
    ae_free(order);
    return status;
}

static aerie_status parse_object(json_t **out, const char *file, const char *what, const uint8_t *bytes, size_t n,
                                 aerie_error *error)
{
    const char *dots, *path = ae_gguf_path_end(file, &dots);
    json_error_t where;
    *out = json_loadb((const char *)bytes, n, JSON_REJECT_DUPLICATES, &where);
    if (json_is_object(*out)) return AERIE_OK;
    if (!*out && json_error_code(&where) == json_error_out_of_memory) return ae_fail_memory(error, what, n);
    if (!*out) return FAIL(FORMAT, "%s%s: %s is not JSON: byte %d: %.100s", dots, path, what, where.position, where.text);
    json_decref(*out);
    *out = NULL;
    return FAIL(FORMAT, "%s%s: %s is not a JSON object", dots, path, what);
}

static aerie_status parse_file(ae_safetensors *st, st_file *f, aerie_error *error)
{
    const char *dots, *path = ae_gguf_path_end(f->path, &dots);
    uint64_t n = 0;
    if (f->bytes < 8)
        return FAIL(FORMAT, "%s%s: not a safetensors file: it has only %zu bytes, and its header length alone takes 8", dots,
                    path, f->bytes);
    memcpy(&n, f->data, 8);
    const bool sized = memcmp(f->data, "GGUF", 4) && n < (uint64_t)1 << 56;
    const char *other = sized ? NULL : ae_kind_data(f->data, f->bytes);
    if (other) return FAIL(FORMAT, "%s%s: this is %s", dots, path, other);
    if (n > f->bytes - 8)
        return FAIL(FORMAT, "%s%s: a header of %llu bytes in a file of %zu: not a safetensors file, or cut short", dots, path,
                    (unsigned long long)n, f->bytes);
    if (n > AE_ST_MAX_HEADER)
        return FAIL(LIMIT, "%s%s: a header of %llu bytes; at most %zu are read", dots, path, (unsigned long long)n,
                    AE_ST_MAX_HEADER);
    json_t *header;
    AE_TRY(parse_object(&header, f->path, "its header", f->data + 8, (size_t)n, error));
    const aerie_status status = read_entries(st, f, header, 8 + (size_t)n, error);
    json_decref(header);
    return status;
}

/* ---- Files together --------------------------------------------------------------------------------- */

/* Creates an empty checkpoint with room for n_files files. The caller closes *out also after a failure. */
static aerie_status start_checkpoint(ae_safetensors **out, uint32_t n_files, aerie_error *error)
{
    ae_safetensors *st = ae_alloc(1, sizeof *st);
    if (st) st->files = ae_alloc(n_files, sizeof *st->files);
    *out = st;
    if (!st || !st->files) return ae_fail_memory(error, "a reader of checkpoints", sizeof *st);
    ae_arena_init(&st->arena, 16384);
    return AERIE_OK;
}

void ae_safetensors_close(ae_safetensors *st)
{
    if (!st) return;
    for (uint32_t i = 0; i < st->n_files; i++) ae_file_map_close(&st->files[i].map);
    if (st->files) ae_arena_free(&st->arena);
    ae_free(st->files);
    ae_free(st);
}

/* Adds a file, mapped, or lent by the caller if bytes is not NULL, without parsing it. *out points to it. */
static aerie_status map_file(ae_safetensors *st, const char *path, const void *bytes, size_t n, st_file **out,
                             aerie_error *error)
{
    st_file *f = *out = &st->files[st->n_files]; /* there is room */
    *f = (st_file){.path = ae_arena_strndup(&st->arena, path, strlen(path)), .rank = ALL_RANKS};
    if (!f->path) return ae_fail_memory(error, "a path", strlen(path));
    if (!bytes) AE_TRY(ae_file_map_open(&f->map, path, true, error));
    st->n_files++;
    f->data = bytes ? bytes : f->map.data;
    f->bytes = bytes ? n : f->map.bytes;
    return AERIE_OK;
}

static aerie_status add_file(ae_safetensors *st, const char *path, const void *bytes, size_t n, aerie_error *error)
{
    st_file *f;
    AE_TRY(map_file(st, path, bytes, n, &f, error));
    return parse_file(st, f, error);
}

static const ae_st_tensor *find(const ae_st_tensor *tensors, size_t n, const char *name)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const int order = strcmp(tensors[mid].name, name);
        if (order == 0) return &tensors[mid];
        if (order < 0) lo = mid + 1;
        else hi = mid;
    }
    return NULL;
}

static aerie_status open_one(ae_safetensors **out, const char *path, aerie_error *error)
{
    AE_TRY(start_checkpoint(out, 1, error));
    return add_file(*out, path, NULL, 0, error);
}

/* Finds the index of the shard that an index file names. Opens the shard, which is beside the index, when it first occurs. */
static aerie_status shard(ae_safetensors *st, const char *index, const char *name, uint32_t *i_file, aerie_error *error)
{
    char quoted[AE_GGUF_QUOTE_BYTES], file[4096];
    const char *dots, *path = ae_gguf_path_end(index, &dots), *slash = strrchr(index, '/');
    const size_t n_folder = slash ? (size_t)(slash - index) + 1 : 0;
    if (!*name || *name == '.' || strchr(name, '/') || strchr(name, '\\'))
        return FAIL(FORMAT, "%s%s: %s is not a file name; the shards must lie beside the index", WHO);
    const int n = snprintf(file, sizeof file, "%.*s%s", (int)n_folder, index, name);
    if (n < 0 || (size_t)n >= sizeof file) return FAIL(FORMAT, "%s%s: the path of shard %s is too long", WHO);
    for (*i_file = 0; *i_file < st->n_files; ++*i_file) {
        if (strcmp(st->files[*i_file].path, file) == 0) return AERIE_OK;
    }
    if (st->n_files == AE_ST_MAX_FILES) return FAIL(LIMIT, "%s%s: more than %d shards", dots, path, AE_ST_MAX_FILES);
    return add_file(st, file, NULL, 0, error);
}

static const char *name_of(const ae_safetensors *st, const ae_st_tensor *t)
{
    const char *path = st->files[t->i_file].path, *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Makes one tensor of the n tensors with the same name, which must be one for each rank, in order. */
static aerie_status chain_ranks(const ae_safetensors *st, const char *where, ae_st_tensor *t, size_t n, size_t n_ranks,
                                aerie_error *error)
{
    char quoted[AE_GGUF_QUOTE_BYTES];
    const char *dots, *path = ae_gguf_path_end(where, &dots), *name = t->name;
    for (size_t i = 0; i < n; i++) {
        const int rank = st->files[t[i].i_file].rank, next = i + 1 < n ? st->files[t[i + 1].i_file].rank : (int)n_ranks;
        if (rank == next || (n > 1 && (rank == ALL_RANKS || next == ALL_RANKS)))
            return FAIL(FORMAT, "%s%s: tensor %s is both in %s and in %s", WHO, name_of(st, &t[i]), name_of(st, &t[i + 1]));
        if (rank == ALL_RANKS) return AERIE_OK;
        if (rank != (int)i || (i + 1 == n && n < n_ranks))
            return FAIL(FORMAT, "%s%s: tensor %s is in %s, but in no file of rank %zu; there are %zu ranks", WHO,
                        name_of(st, t), rank == (int)i ? n : i, n_ranks);
        t[i].next_rank = i + 1 < n ? &t[i + 1] : NULL;
    }
    return AERIE_OK;
}

/* Replaces the tensors of ranks, sorted, by one for each name. */
static aerie_status join_ranks(ae_safetensors *st, const char *where, size_t n_ranks, aerie_error *error)
{
    ae_st_tensor *all = st->tensors, *kept = ae_arena_alloc(&st->arena, st->n_tensors, sizeof *kept);
    size_t n_kept = 0, n = 1;
    if (!kept) return ae_fail_memory(error, "the list of tensors", st->n_tensors * sizeof *kept);
    for (size_t i = 0; i < st->n_tensors; i += n) {
        for (n = 1; i + n < st->n_tensors && strcmp(all[i].name, all[i + n].name) == 0;) n++;
        AE_TRY(chain_ranks(st, where, &all[i], n, n_ranks, error));
        kept[n_kept++] = all[i];
    }
    st->tensors = kept;
    st->n_tensors = n_kept;
    return AERIE_OK;
}

/* Makes the tensors of all files those of the checkpoint. If two files hold one, the index's map decides; what the index does
 * not list counts, too, as in transformers. map: NULL without an index. n_ranks: in a set of ranks; else 0. */
static aerie_status gather(ae_safetensors *st, const char *where, const json_t *map, size_t n_ranks, aerie_error *error)
{
    char quoted[AE_GGUF_QUOTE_BYTES];
    const char *dots, *path = ae_gguf_path_end(where, &dots), *name;
    size_t n = 0;
    for (uint32_t i = 0; i < st->n_files; i++) n += st->files[i].n_tensors;
    st->tensors = ae_arena_alloc(&st->arena, n, sizeof *st->tensors);
    uint32_t *order = ae_arena_alloc(&st->arena, n, sizeof *order);
    if (!st->tensors || !order) return ae_fail_memory(error, "the list of tensors", n * sizeof *st->tensors);
    for (uint32_t i = 0; i < st->n_files; i++) {
        const st_file *f = &st->files[i];
        for (size_t k = 0; k < f->n_tensors; k++) {
            const char *listed = json_string_value(json_object_get(map, f->tensors[k].name));
            f->tensors[k].i_file = i;
            if (!listed || strcmp(listed, name_of(st, &f->tensors[k])) == 0) st->tensors[st->n_tensors++] = f->tensors[k];
        }
    }
    AE_TRY(sort_tensors(&st->arena, &st->tensors, st->n_tensors, order, error));
    if (n_ranks) return join_ranks(st, where, n_ranks, error);
    for (size_t i = 1; i < st->n_tensors; i++) {
        name = st->tensors[i].name;
        if (strcmp(name, st->tensors[i - 1].name) == 0)
            return FAIL(FORMAT, "%s%s: tensor %s is in two shards, and no index says which one counts", WHO);
    }
    return AERIE_OK;
}

static aerie_status read_map(ae_safetensors *st, const char *index, json_t *map, aerie_error *error)
{
    char quoted[AE_GGUF_QUOTE_BYTES];
    const char *dots, *path = ae_gguf_path_end(index, &dots), *name;
    json_t *value;
    json_object_foreach(map, name, value) {
        uint32_t i_file;
        if (!json_is_string(value)) return FAIL(FORMAT, "%s%s: the shard of tensor %s is not a string", WHO);
        AE_TRY(shard(st, index, json_string_value(value), &i_file, error));
        if (!find(st->files[i_file].tensors, st->files[i_file].n_tensors, name))
            return FAIL(FORMAT, "%s%s: tensor %s is not in %.100s, where it should be", WHO, json_string_value(value));
    }
    return gather(st, index, map, 0, error);
}

static aerie_status open_index(ae_safetensors **out, const char *index, aerie_error *error)
{
    const char *dots, *path = ae_gguf_path_end(index, &dots);
    ae_file_map map;
    AE_TRY(start_checkpoint(out, AE_ST_MAX_FILES, error));
    AE_TRY(ae_file_map_open(&map, index, true, error));
    aerie_status status = AERIE_OK;
    json_t *json = NULL;
    if (map.bytes > AE_ST_MAX_HEADER) {
        status = FAIL(LIMIT, "%s%s: an index of %zu bytes; at most %zu are read", dots, path, map.bytes, AE_ST_MAX_HEADER);
    } else if (ae_kind_is_pointer(map.data, map.bytes)) {
        status = FAIL(FORMAT, "%s%s: this is %s", dots, path, ae_kind_bytes(map.data, map.bytes));
    } else {
        status = parse_object(&json, index, "the index", map.data, map.bytes, error);
    }
    if (json) {
        json_t *weights = json_object_get(json, "weight_map");
        status = json_is_object(weights) ? read_map(*out, index, weights, error)
                                         : FAIL(FORMAT, "%s%s: the index has no object 'weight_map'", dots, path);
    }
    json_decref(json);
    ae_file_map_close(&map);
    return status;
}

/* ---- Folders ------------------------------------------------------------------------------------------ */

static bool ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n > k && strcmp(text + n - k, end) == 0;
}

static bool is_file(const char *folder, const char *name, char out[4096])
{
    struct stat st;
    const int n = snprintf(out, 4096, "%s/%s", folder, name);
    return n > 0 && n < 4096 && stat(out, &st) == 0 && S_ISREG(st.st_mode);
}

/* Returns whether a text is this pattern, in which a digit stands for any digit. */
static bool is_like(const char *text, const char *pattern)
{
    for (; *pattern; text++, pattern++)
        if (*pattern >= '0' && *pattern <= '9' ? *text < '0' || *text > '9' : *text != *pattern) return false;
    return !*text;
}

/* The place of a file in a set, as its name says it. */
typedef struct place {
    size_t n_stem;     /* length of what precedes the numbers in the name */
    uint32_t n_shards; /* of transformers' sets; 0: it belongs to none */
    bool ranked;       /* it belongs to a set of ranks */
    uint32_t group;    /* its number there */
    int rank;
} place;

static place place_of(const char *name)
{
    static const char shard[] = "-00001-of-00002.safetensors", of_rank[] = "-00000-TP-000.safetensors",
                      of_all[] = "-00000-TP-common.safetensors";
    const size_t n = strlen(name), n_shard = sizeof shard - 1, n_rank = sizeof of_rank - 1, n_all = sizeof of_all - 1;
    if (n > n_shard && is_like(name + n - n_shard, shard)) {
        const unsigned long count = strtoul(name + n - n_shard + 10, NULL, 10);
        return (place){.n_stem = n - n_shard, .n_shards = count <= AE_ST_MAX_FILES ? (uint32_t)count : 0};
    }
    const bool all = n > n_all && is_like(name + n - n_all, of_all);
    if (!all && !(n > n_rank && is_like(name + n - n_rank, of_rank))) return (place){.n_stem = 0};
    const char *end = name + n - (all ? n_all : n_rank);
    return (place){.n_stem = (size_t)(end - name), .ranked = true, .group = (uint32_t)strtoul(end + 1, NULL, 10),
                   .rank = all ? ALL_RANKS : (int)strtoul(end + 10, NULL, 10)};
}

/* What lies in a folder that has none of the usual names. */
typedef struct listing {
    char file[4096];  /* the first *.safetensors */
    size_t n, n_gguf; /* *.safetensors, *.gguf */
    place set;        /* the first file's, if all *.safetensors belong to its set; else of no set */
    uint32_t n_groups, n_ranks; /* of a set of ranks: the largest numbers there, plus 1 */
} listing;

static aerie_status list(listing *l, const char *folder, aerie_error *error)
{
    const char *dots, *path = ae_gguf_path_end(folder, &dots);
    char found[4096];
    DIR *dir = opendir(folder);
    *l = (listing){.n = 0};
    if (!dir) return FAIL(IO, "%s%s: cannot list it: %s", dots, path, strerror(errno));
    for (const struct dirent *e; (e = readdir(dir));) {
        l->n_gguf += ends_in(e->d_name, ".gguf");
        if (!ends_in(e->d_name, ".safetensors") || !is_file(folder, e->d_name, found)) continue;
        const place at = place_of(e->d_name);
        if (l->n++ == 0) memcpy(l->file, found, sizeof found), l->set = at;
        const char *first = strrchr(l->file, '/') + 1;
        const bool same = at.n_shards == l->set.n_shards && at.ranked == l->set.ranked && at.n_stem == l->set.n_stem &&
                          strncmp(e->d_name, first, at.n_stem) == 0;
        if (!same) l->set = (place){.n_stem = 0};
        if (at.group >= l->n_groups) l->n_groups = at.group + 1;
        if (at.ranked && at.rank >= (int)l->n_ranks) l->n_ranks = (uint32_t)at.rank + 1;
    }
    closedir(dir);
    return AERIE_OK;
}

/* Adds the shards of a set that lies in the folder without its index. */
static aerie_status add_shards(ae_safetensors *st, const char *folder, const listing *l, aerie_error *error)
{
    const char *dots, *path = ae_gguf_path_end(folder, &dots), *name = strrchr(l->file, '/') + 1;
    char file[4096];
    for (uint32_t i = 0; i < l->set.n_shards; i++) {
        snprintf(file, sizeof file, "%.*s%.*s-%05u-of-%05u.safetensors", (int)(name - l->file), l->file, (int)l->set.n_stem,
                 name, i + 1, l->set.n_shards);
        struct stat info;
        if (stat(file, &info))
            return FAIL(FORMAT, "%s%s: shard %u of %u is missing: %s", dots, path, i + 1, l->set.n_shards,
                        strrchr(file, '/') + 1);
        AE_TRY(add_file(st, file, NULL, 0, error));
    }
    return gather(st, folder, NULL, 0, error);
}

/* Adds a file of a set of ranks if there is one. Returns its name in `file` [4096]. */
static aerie_status add_rank(ae_safetensors *st, const listing *l, uint32_t group, int rank, char *file, bool *there,
                             aerie_error *error)
{
    const char *name = strrchr(l->file, '/') + 1;
    char which[16] = "common";
    struct stat info;
    if (rank != ALL_RANKS) snprintf(which, sizeof which, "%03d", rank);
    snprintf(file, 4096, "%.*s%.*s-%05u-TP-%s.safetensors", (int)(name - l->file), l->file, (int)l->set.n_stem, name, group,
             which);
    *there = stat(file, &info) == 0;
    if (!*there) return AERIE_OK;
    if (st->n_files == AE_ST_MAX_FILES) return FAIL(LIMIT, "%s: more than %d shards", file, AE_ST_MAX_FILES);
    AE_TRY(add_file(st, file, NULL, 0, error));
    st->files[st->n_files - 1].rank = rank;
    return AERIE_OK;
}

static aerie_status add_ranks(ae_safetensors *st, const char *folder, const listing *l, aerie_error *error)
{
    const char *dots, *path = ae_gguf_path_end(folder, &dots);
    char file[4096], missing[4096];
    for (uint32_t g = 0; g < l->n_groups; g++) {
        uint32_t n_there = 0, lost = l->n_ranks;
        bool there, common;
        AE_TRY(add_rank(st, l, g, ALL_RANKS, file, &common, error));
        for (uint32_t r = 0; r < l->n_ranks; r++) {
            AE_TRY(add_rank(st, l, g, (int)r, file, &there, error));
            n_there += there;
            if (!there && lost == l->n_ranks) memcpy(missing, file, sizeof missing), lost = r;
        }
        if (n_there && n_there < l->n_ranks)
            return FAIL(FORMAT, "%s%s: the part of rank %u is missing: %s; there are %u ranks", dots, path, lost,
                        strrchr(missing, '/') + 1, l->n_ranks);
        if (!n_there && !common)
            return FAIL(FORMAT, "%s%s: shard %u of the set is missing: %.*s-%05u-TP-...", dots, path, g,
                        (int)l->set.n_stem, strrchr(l->file, '/') + 1, g);
    }
    return gather(st, folder, NULL, l->n_ranks, error);
}

/* Opens the only *.safetensors of a folder that has none of the usual names, or all shards of a set. */
static aerie_status open_others(ae_safetensors **out, const char *folder, aerie_error *error)
{
    const char *dots, *path = ae_gguf_path_end(folder, &dots);
    listing l;
    AE_TRY(list(&l, folder, error));
    const size_t n = l.n, n_gguf = l.n_gguf;
    if (l.set.n_shards > 1) {
        AE_TRY(start_checkpoint(out, l.set.n_shards, error));
        return add_shards(*out, folder, &l, error);
    }
    if (l.set.ranked) {
        AE_TRY(start_checkpoint(out, AE_ST_MAX_FILES, error));
        return add_ranks(*out, folder, &l, error);
    }
    if (n == 1) return open_one(out, l.file, error);
    if (n) return FAIL(FORMAT, "%s%s: contains %zu *.safetensors and no index; give the path of one of them", dots, path, n);
    if (n_gguf) return FAIL(IO, "%s%s: contains GGUF files, which need no conversion, and no *.safetensors", dots, path);
    return FAIL(IO, "%s%s: contains no model.safetensors, no model.safetensors.index.json and no other *.safetensors", dots,
                path);
}

static aerie_status open_path(ae_safetensors **out, const char *path, aerie_error *error)
{
    struct stat info;
    char file[4096];
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        if (is_file(path, "model.safetensors", file)) return open_one(out, file, error);
        if (is_file(path, "model.safetensors.index.json", file)) return open_index(out, file, error);
        return open_others(out, path, error);
    }
    return ends_in(path, ".json") ? open_index(out, path, error) : open_one(out, path, error);
}

/* Completes opening, given its status: without an index, the one file's tensors become those of the checkpoint. After a failure
 * closes *out and sets it to NULL. Returns the status. */
static aerie_status settle_checkpoint(ae_safetensors **out, aerie_status status)
{
    if (status == AERIE_OK) {
        ae_safetensors *st = *out;
        if (!st->tensors && st->n_files) { /* no index: the tensors of the one file */
            st->tensors = st->files[0].tensors;
            st->n_tensors = st->files[0].n_tensors;
        }
        return status;
    }
    ae_safetensors_close(*out);
    *out = NULL;
    return status;
}

aerie_status ae_safetensors_open(ae_safetensors **out, const char *path, aerie_error *error)
{
    *out = NULL;
    return settle_checkpoint(out, open_path(out, path, error));
}

aerie_status ae_safetensors_open_memory(ae_safetensors **out, const void *bytes, size_t n, const char *name,
                                        aerie_error *error)
{
    aerie_status status = start_checkpoint(out, 1, error);
    if (status == AERIE_OK) status = add_file(*out, name, bytes ? bytes : "", n, error);
    return settle_checkpoint(out, status);
}

uint32_t ae_safetensors_n_files(const ae_safetensors *st)
{
    return st->n_files;
}

const char *ae_safetensors_file(const ae_safetensors *st, uint32_t i_file)
{
    return i_file < st->n_files ? st->files[i_file].path : "?";
}

size_t ae_safetensors_n_tensors(const ae_safetensors *st)
{
    return st->n_tensors;
}

const ae_st_tensor *ae_safetensors_tensor_at(const ae_safetensors *st, size_t i)
{
    return &st->tensors[i];
}

const ae_st_tensor *ae_safetensors_tensor_find(const ae_safetensors *st, const char *name)
{
    return find(st->tensors, st->n_tensors, name);
}
