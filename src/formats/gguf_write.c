/* gguf_write.c - writes a GGUF v3 file: header and descriptions from memory, tensor data as the caller passes it.
 *
 * Owns: the key section and tensor list until they are written, and the temporary file until it
 * is renamed. Invariants: n_written bytes of data (padding included) are in the file; padding
 * before a tensor is written with its first byte, so offsets follow from the list alone.
 * After a failed write every later call fails, too. The temporary file is locked as long as its
 * writer lives. A temporary file without a lock was left by a process that was killed; the next
 * writer of the same file removes it.
 */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE 1 /* flock */
#include "formats/gguf_write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/gguf_parse.h"

typedef struct planned_tensor {
    char *name; /* owned */
    uint32_t type, n_dims;
    int64_t ne[4];
    size_t bytes;
    uint64_t offset; /* in the data section */
} planned_tensor;

struct ae_gguf_writer {
    char *path, *place, *temporary; /* target as given; target with links resolved; temporary file, NULL while there is none */
    FILE *file;
    int lock; /* a second descriptor, which keeps the temporary file locked after `file` is closed; -1: none */
    ae_buf keys; /* the key section as it will be in the file */
    uint64_t n_keys;
    size_t *key_at; /* [n_keys] the offset of each key's length in `keys` */
    size_t key_capacity;
    planned_tensor *tensors; /* [n_tensors] */
    size_t n_tensors, tensor_capacity;
    uint32_t alignment;
    uint64_t n_written;
    size_t i_tensor; /* the tensor whose data comes next */
    size_t i_byte;   /* bytes of that tensor that have been written */
    bool begun, failed, closed, finished;
};

aerie_status ae_gguf_writer_create(ae_gguf_writer **out, const char *path, aerie_error *error)
{
    *out = NULL;
    if (!*path) return ae_fail(error, AERIE_ERROR_ARGUMENT, "the new file needs a name");
    ae_gguf_writer *w = ae_alloc(1, sizeof *w);
    if (w) w->path = ae_strndup(path, strlen(path));
    if (!w || !w->path) {
        ae_free(w);
        return ae_fail_memory(error, "a GGUF writer", sizeof *w + strlen(path));
    }
    w->alignment = AE_GGUF_ALIGNMENT;
    w->lock = -1;
    *out = w;
    return AERIE_OK;
}

void ae_gguf_writer_free(ae_gguf_writer *w)
{
    if (!w) return;
    if (w->file) fclose(w->file);
    if (w->temporary) unlink(w->temporary);
    if (w->lock >= 0) close(w->lock);
    for (size_t i = 0; i < w->n_tensors; i++) ae_free(w->tensors[i].name);
    ae_free(w->tensors);
    ae_buf_free(&w->keys);
    ae_free(w->key_at);
    ae_free(w->temporary);
    ae_free(w->place);
    ae_free(w->path);
    ae_free(w);
}

/* Fails with the system's reason (errno), which it reads before any clean-up can change it. */
static aerie_status fail_io(ae_gguf_writer *w, const char *what, aerie_error *error)
{
    int reason = errno;
    w->failed = true;
    const char *dots, *path = ae_gguf_path_end(w->path, &dots);
    return ae_fail(error, AERIE_ERROR_IO, "%s%s: %s: %s", dots, path, what, strerror(reason));
}

static aerie_status fail_use(const ae_gguf_writer *w, const char *what, aerie_error *error)
{
    const char *dots, *path = ae_gguf_path_end(w->path, &dots);
    return ae_fail(error, AERIE_ERROR_ARGUMENT, "%s%s: %s", dots, path, what);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static aerie_status check_key(const ae_gguf_writer *w, ae_gguf_string key, aerie_error *error)
{
    char quoted[AE_GGUF_QUOTE_BYTES];
    if (w->begun) return fail_use(w, "keys must be added before the header is written", error);
    if (key.n > AE_GGUF_MAX_NAME) return fail_use(w, "a key is longer than 65535 bytes", error);
    if (w->n_keys >= AE_GGUF_MAX_ENTRIES) return fail_use(w, "too many keys", error);
    for (size_t i = 0; i < w->n_keys; i++) { /* models have tens of keys, so a linear search is enough */
        const char *at = w->keys.data + w->key_at[i];
        uint64_t n;
        memcpy(&n, at, sizeof n);
        if (n == key.n && !memcmp(at + sizeof n, key.data, key.n)) {
            const char *dots, *path = ae_gguf_path_end(w->path, &dots);
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "%s%s: key %s already has a value", dots, path,
                           ae_gguf_quote(quoted, key));
        }
    }
    return AERIE_OK;
}

/* A part of a key's value. */
typedef struct part {
    const void *bytes;
    size_t n;
} part;

/* Appends the key, its type and the parts of its value; when out of memory, nothing is appended. */
static aerie_status add_key(ae_gguf_writer *w, ae_gguf_string key, uint32_t type, const part *parts, size_t n_parts,
                            aerie_error *error)
{
    AE_TRY(check_key(w, key, error));
    void *key_at = ae_grow(w->key_at, (size_t)w->n_keys, &w->key_capacity, sizeof *w->key_at);
    if (!key_at) return ae_fail_memory(error, "the keys of a new GGUF file", w->key_capacity * 2 * sizeof *w->key_at);
    w->key_at = key_at;
    size_t before = w->keys.n;
    uint64_t n = key.n;
    ae_buf_add(&w->keys, &n, sizeof n);
    ae_buf_add(&w->keys, key.data, key.n);
    ae_buf_add(&w->keys, &type, sizeof type);
    for (size_t i = 0; i < n_parts; i++) ae_buf_add(&w->keys, parts[i].bytes, parts[i].n);
    if (w->keys.failed) {
        w->keys.failed = false; /* the keys added before are intact */
        w->keys.n = before;
        return ae_fail_memory(error, "the keys of a new GGUF file", before);
    }
    w->key_at[w->n_keys++] = before;
    return AERIE_OK;
}

static ae_gguf_string text_of(const char *text)
{
    return (ae_gguf_string){text, strlen(text)};
}

/* Adds general.alignment, which also decides the layout. */
static aerie_status add_alignment(ae_gguf_writer *w, uint32_t value, aerie_error *error)
{
    if (value < 8 || value > 1048576 || (value & (value - 1)))
        return fail_use(w, "general.alignment must be a power of two from 8 to 1048576", error);
    part parts[] = {{&value, sizeof value}};
    AE_TRY(add_key(w, text_of("general.alignment"), AE_GGUF_U32, parts, 1, error));
    w->alignment = value;
    return AERIE_OK;
}

static bool is_alignment(ae_gguf_string key)
{
    return !ae_gguf_string_compare(key, text_of("general.alignment"));
}

/* Adds any key but general.alignment, which must be a u32. */
static aerie_status add_plain(ae_gguf_writer *w, const char *key, uint32_t type, const part *parts, size_t n_parts,
                              aerie_error *error)
{
    if (is_alignment(text_of(key))) return fail_use(w, "general.alignment must be a u32", error);
    return add_key(w, text_of(key), type, parts, n_parts, error);
}

aerie_status ae_gguf_writer_u16(ae_gguf_writer *w, const char *key, uint16_t value, aerie_error *error)
{
    part parts[] = {{&value, sizeof value}};
    return add_plain(w, key, AE_GGUF_U16, parts, 1, error);
}

aerie_status ae_gguf_writer_u32(ae_gguf_writer *w, const char *key, uint32_t value, aerie_error *error)
{
    if (is_alignment(text_of(key))) return add_alignment(w, value, error);
    part parts[] = {{&value, sizeof value}};
    return add_plain(w, key, AE_GGUF_U32, parts, 1, error);
}

aerie_status ae_gguf_writer_i32(ae_gguf_writer *w, const char *key, int32_t value, aerie_error *error)
{
    part parts[] = {{&value, sizeof value}};
    return add_plain(w, key, AE_GGUF_I32, parts, 1, error);
}

aerie_status ae_gguf_writer_f32(ae_gguf_writer *w, const char *key, float value, aerie_error *error)
{
    part parts[] = {{&value, sizeof value}};
    return add_plain(w, key, AE_GGUF_F32, parts, 1, error);
}

aerie_status ae_gguf_writer_bool(ae_gguf_writer *w, const char *key, bool value, aerie_error *error)
{
    uint8_t byte = value;
    part parts[] = {{&byte, 1}};
    return add_plain(w, key, AE_GGUF_BOOL, parts, 1, error);
}

aerie_status ae_gguf_writer_string(ae_gguf_writer *w, const char *key, const char *value, aerie_error *error)
{
    uint64_t n = strlen(value);
    part parts[] = {{&n, sizeof n}, {value, (size_t)n}};
    return add_plain(w, key, AE_GGUF_STRING, parts, 2, error);
}

aerie_status ae_gguf_writer_array(ae_gguf_writer *w, const char *key, ae_gguf_type element, const void *values, size_t n,
                                  aerie_error *error)
{
    uint32_t element_type = (uint32_t)element;
    uint64_t count = n;
    size_t bytes, size = ae_gguf_scalar_bytes(element_type);
    if (!size) return fail_use(w, "an array's elements must be scalars", error);
    if (!ae_mul_size(n, size, &bytes)) return fail_use(w, "an array is too long", error);
    part parts[] = {{&element_type, sizeof element_type}, {&count, sizeof count}, {values, bytes}};
    return add_plain(w, key, AE_GGUF_ARRAY, parts, 3, error);
}

aerie_status ae_gguf_writer_strings(ae_gguf_writer *w, const char *key, const ae_gguf_string *values, size_t n,
                                    aerie_error *error)
{
    uint32_t element_type = AE_GGUF_STRING;
    uint64_t count = n;
    ae_buf all = {0};
    for (size_t i = 0; i < n; i++) {
        uint64_t length = values[i].n;
        ae_buf_add(&all, &length, sizeof length);
        ae_buf_add(&all, values[i].data, values[i].n);
    }
    aerie_status status;
    if (all.failed) {
        status = ae_fail_memory(error, "the strings of a new GGUF file", all.n);
    } else {
        part parts[] = {{&element_type, sizeof element_type}, {&count, sizeof count}, {all.data, all.n}};
        status = add_plain(w, key, AE_GGUF_ARRAY, parts, 3, error);
    }
    ae_buf_free(&all);
    return status;
}

aerie_status ae_gguf_writer_copy(ae_gguf_writer *w, const ae_gguf_kv *kv, aerie_error *error)
{
    uint32_t element_type = (uint32_t)kv->element_type;
    part parts[] = {{&element_type, sizeof element_type}, {&kv->n, sizeof kv->n}, {kv->data, kv->bytes}};
    if (is_alignment(kv->key)) {
        uint32_t value;
        if (kv->type != AE_GGUF_U32) return fail_use(w, "general.alignment must be a u32", error);
        memcpy(&value, kv->data, sizeof value);
        return add_alignment(w, value, error);
    }
    if (kv->type == AE_GGUF_ARRAY) return add_key(w, kv->key, AE_GGUF_ARRAY, parts, 3, error);
    return add_key(w, kv->key, (uint32_t)kv->type, parts + 2, 1, error);
}

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Returns the bytes of a tensor of that type and shape; 0 if the type or shape is invalid. */
static size_t tensor_bytes(uint32_t type, uint32_t n_dims, const int64_t *ne)
{
    int64_t product = 1;
    if (n_dims < 1 || n_dims > 4) return 0;
    for (uint32_t i = 0; i < n_dims; i++)
        if (ne[i] < 1 || __builtin_mul_overflow(product, ne[i], &product)) return 0;
    size_t bytes = ae_type_row_bytes(type, (uint64_t)ne[0]);
    for (uint32_t i = 1; i < n_dims; i++)
        if (!ae_mul_size(bytes, (size_t)ne[i], &bytes)) return 0;
    return bytes;
}

aerie_status ae_gguf_writer_tensor(ae_gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims, const int64_t *ne,
                                   aerie_error *error)
{
    if (w->begun) return fail_use(w, "tensors must be described before the header is written", error);
    if (strlen(name) > AE_GGUF_MAX_NAME) return fail_use(w, "a tensor's name is longer than 65535 bytes", error);
    if (w->n_tensors >= AE_GGUF_MAX_ENTRIES) return fail_use(w, "too many tensors", error);
    const char *dots, *path = ae_gguf_path_end(w->path, &dots);
    if (!ae_type_block_elements(type))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%s%s: tensor \"%.80s\": type %" PRIu32 " does not exist", dots,
                       path, name, type);
    size_t bytes = tensor_bytes(type, n_dims, ne);
    if (!bytes)
        return ae_fail(error, AERIE_ERROR_ARGUMENT,
                       "%s%s: tensor \"%.80s\": its shape does not suit %s, whose rows are multiples of %" PRIu32
                       " elements; 1 to 4 dimensions, each at least 1",
                       dots, path, name, ae_type_name(type), ae_type_block_elements(type));
    void *tensors = ae_grow(w->tensors, w->n_tensors, &w->tensor_capacity, sizeof *w->tensors);
    if (!tensors)
        return ae_fail_memory(error, "the tensor list of a new GGUF file", w->tensor_capacity * 2 * sizeof *w->tensors);
    w->tensors = tensors;
    planned_tensor *t = &w->tensors[w->n_tensors];
    *t = (planned_tensor){.name = ae_strndup(name, strlen(name)), .type = type, .n_dims = n_dims, .bytes = bytes};
    if (!t->name) return ae_fail_memory(error, "a tensor's name", strlen(name) + 1);
    for (uint32_t i = 0; i < n_dims; i++) t->ne[i] = ne[i];
    w->n_tensors++;
    return AERIE_OK;
}

static bool name_before(const void *context, uint32_t a, uint32_t b)
{
    const planned_tensor *t = context;
    return strcmp(t[a].name, t[b].name) < 0;
}

static aerie_status check_names(const ae_gguf_writer *w, aerie_error *error)
{
    uint32_t *order = ae_alloc(w->n_tensors, sizeof *order);
    if (!order) return ae_fail_memory(error, "the tensor order of a new GGUF file", w->n_tensors * sizeof *order);
    for (size_t i = 0; i < w->n_tensors; i++) order[i] = (uint32_t)i;
    ae_gguf_sort(order, w->n_tensors, name_before, w->tensors);
    aerie_status status = AERIE_OK;
    for (size_t i = 1; i < w->n_tensors && status == AERIE_OK; i++) {
        const char *name = w->tensors[order[i]].name;
        const char *dots, *path = ae_gguf_path_end(w->path, &dots);
        if (!strcmp(name, w->tensors[order[i - 1]].name))
            status = ae_fail(error, AERIE_ERROR_ARGUMENT, "%s%s: tensor \"%.80s\" was described twice", dots, path, name);
    }
    ae_free(order);
    return status;
}

/* Computes the offsets of the tensors, in the order in which they were described, each aligned. */
static aerie_status lay_out(ae_gguf_writer *w, aerie_error *error)
{
    uint64_t at = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        planned_tensor *t = &w->tensors[i];
        if (__builtin_add_overflow(at, (uint64_t)w->alignment - 1, &at))
            return fail_use(w, "the tensors are too large for a file", error);
        t->offset = at &= ~((uint64_t)w->alignment - 1);
        if (__builtin_add_overflow(at, (uint64_t)t->bytes, &at) || at > INT64_MAX / 2)
            return fail_use(w, "the tensors are too large for a file", error);
    }
    return AERIE_OK;
}

/* ---- The file -------------------------------------------------------------------------------- */

static aerie_status write_bytes(ae_gguf_writer *w, const void *bytes, size_t n, aerie_error *error)
{
    if (n && fwrite(bytes, 1, n, w->file) != n) return fail_io(w, "write failed", error);
    return AERIE_OK;
}

static aerie_status write_zeros(ae_gguf_writer *w, uint64_t n, aerie_error *error)
{
    static const char zeros[4096];
    while (n) {
        size_t piece = n < sizeof zeros ? (size_t)n : sizeof zeros;
        AE_TRY(write_bytes(w, zeros, piece, error));
        n -= piece;
    }
    return AERIE_OK;
}

/* Returns whether `entry` is the name of a temporary file for `name` (n bytes long): "NAME.PID-I.part". */
static bool is_temporary(const char *entry, const char *name, size_t n)
{
    static const char digits[] = "0123456789";
    if (strncmp(entry, name, n) || entry[n] != '.') return false;
    const size_t pid = strspn(entry + n + 1, digits);
    const char *rest = entry + n + 1 + pid;
    const size_t i = *rest == '-' ? strspn(rest + 1, digits) : 0;
    return pid && i && !strcmp(rest + 1 + i, ".part");
}

/* Removes temporary files for the same target that killed processes left. If a removal fails, a later writer tries again.
 * folder: scratch for the path of the folder. */
static void remove_stale(const char *place, char *folder)
{
    const char *slash = strrchr(place, '/'), *name = slash ? slash + 1 : place;
    memcpy(folder, slash ? place : "./", slash ? (size_t)(slash - place) + 1 : 2);
    folder[slash ? slash - place + 1 : 2] = '\0';
    DIR *dir = opendir(folder);
    if (!dir) return;
    const size_t n = strlen(name);
    for (const struct dirent *e; (e = readdir(dir));) {
        if (!is_temporary(e->d_name, name, n)) continue;
        const int fd = openat(dirfd(dir), e->d_name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        struct stat st;
        if (fd < 0) continue;
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(dirfd(dir), e->d_name, 0);
        close(fd);
    }
    closedir(dir);
}

/* Creates a file of that name and locks it where the file system has locks. Returns -1 on failure, with EEXIST if another
 * process has the file or is removing it. */
static int create_locked(const char *name)
{
    const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    struct stat st;
    if (fd < 0) return -1;
    const bool taken = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && fstat(fd, &st) == 0 && st.st_nlink > 0) return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

/* Creates the temporary file beside the target, on the same file system, so that the rename is atomic. Refuses devices and
 * directories, because the rename would replace them, or fail only at the end. */
static aerie_status open_temporary(ae_gguf_writer *w, aerie_error *error)
{
    struct stat there;
    AE_TRY(ae_file_resolve(&w->place, w->path, error));
    const bool replaces = stat(w->place, &there) == 0;
    if (replaces && !S_ISREG(there.st_mode)) {
        w->failed = true;
        const char *dots, *path = ae_gguf_path_end(w->path, &dots);
        return ae_fail(error, AERIE_ERROR_IO, "%s%s: cannot be replaced: it is %s, not a regular file", dots, path,
                       S_ISDIR(there.st_mode) ? "a directory" : "a device or a pipe");
    }
    size_t n = strlen(w->place) + 32;
    char *name = ae_alloc(n, 1);
    if (!name) return ae_fail_memory(error, "a path", n);
    int fd = -1;
    remove_stale(w->place, name);
    for (int i = 0; i < 100 && fd < 0; i++) {
        snprintf(name, n, "%s.%ld-%d.part", w->place, (long)getpid(), i);
        fd = create_locked(name);
        if (fd < 0 && errno != EEXIST) break;
    }
    if (fd < 0) {
        aerie_status status = fail_io(w, "cannot create a temporary file beside it", error);
        ae_free(name);
        return status;
    }
    w->temporary = name;
    w->lock = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    /* set the owner first, since that may clear bits of the mode; without permission the user stays the owner */
    const bool owned = !replaces || fchown(fd, there.st_uid, there.st_gid) == 0 || errno == EPERM;
    if (!owned || (replaces && fchmod(fd, there.st_mode & 07777) != 0)) {
        aerie_status status = fail_io(w, "cannot give the new file the mode of the old one", error);
        close(fd);
        return status;
    }
    w->file = fdopen(fd, "wb");
    if (w->file) return AERIE_OK;
    aerie_status status = fail_io(w, "cannot open a temporary file beside it", error);
    close(fd);
    return status;
}

static aerie_status write_header(ae_gguf_writer *w, aerie_error *error)
{
    uint32_t version = 3;
    uint64_t counts[2] = {w->n_tensors, w->n_keys}, at = 4 + sizeof version + sizeof counts + w->keys.n;
    AE_TRY(write_bytes(w, "GGUF", 4, error));
    AE_TRY(write_bytes(w, &version, sizeof version, error));
    AE_TRY(write_bytes(w, counts, sizeof counts, error));
    AE_TRY(write_bytes(w, w->keys.data, w->keys.n, error));
    for (size_t i = 0; i < w->n_tensors; i++) {
        const planned_tensor *t = &w->tensors[i];
        uint64_t n = strlen(t->name);
        AE_TRY(write_bytes(w, &n, sizeof n, error));
        AE_TRY(write_bytes(w, t->name, (size_t)n, error));
        AE_TRY(write_bytes(w, &t->n_dims, sizeof t->n_dims, error));
        AE_TRY(write_bytes(w, t->ne, t->n_dims * sizeof t->ne[0], error));
        AE_TRY(write_bytes(w, &t->type, sizeof t->type, error));
        AE_TRY(write_bytes(w, &t->offset, sizeof t->offset, error));
        at += sizeof n + n + 4 + t->n_dims * sizeof t->ne[0] + 4 + 8;
    }
    return write_zeros(w, (w->alignment - at % w->alignment) % w->alignment, error);
}

aerie_status ae_gguf_writer_begin(ae_gguf_writer *w, aerie_error *error)
{
    if (w->begun) return fail_use(w, "the header was already written", error);
    AE_TRY(check_names(w, error));
    AE_TRY(lay_out(w, error));
    AE_TRY(open_temporary(w, error));
    w->begun = true;
    return write_header(w, error);
}

static aerie_status check_open(const ae_gguf_writer *w, aerie_error *error)
{
    if (w->failed) {
        const char *dots, *path = ae_gguf_path_end(w->path, &dots);
        return ae_fail(error, AERIE_ERROR_IO, "%s%s: an earlier write failed", dots, path);
    }
    if (w->finished || w->closed) return fail_use(w, "the file is already finished", error);
    if (!w->begun) return fail_use(w, "the header must be written first", error);
    return AERIE_OK;
}

aerie_status ae_gguf_writer_data(ae_gguf_writer *w, const void *bytes, size_t n, aerie_error *error)
{
    const char *p = bytes;
    AE_TRY(check_open(w, error));
    while (n) {
        if (w->i_tensor == w->n_tensors) return fail_use(w, "more tensor data than was described", error);
        const planned_tensor *t = &w->tensors[w->i_tensor];
        if (!w->i_byte) {
            AE_TRY(write_zeros(w, t->offset - w->n_written, error));
            w->n_written = t->offset;
        }
        size_t piece = t->bytes - w->i_byte;
        if (piece > n) piece = n;
        AE_TRY(write_bytes(w, p, piece, error));
        w->n_written += piece;
        w->i_byte += piece;
        p += piece;
        n -= piece;
        if (w->i_byte == t->bytes) {
            w->i_tensor++;
            w->i_byte = 0;
        }
    }
    return AERIE_OK;
}

const char *ae_gguf_writer_part(const ae_gguf_writer *w)
{
    return w->temporary;
}

aerie_status ae_gguf_writer_close(ae_gguf_writer *w, aerie_error *error)
{
    AE_TRY(check_open(w, error));
    if (w->i_tensor < w->n_tensors) {
        const planned_tensor *t = &w->tensors[w->i_tensor];
        const char *dots, *path = ae_gguf_path_end(w->path, &dots);
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%s%s: tensor \"%.80s\" has %zu of its %zu bytes", dots, path,
                       t->name, w->i_byte, t->bytes);
    }
    /* other readers expect the last tensor to be padded as well */
    AE_TRY(write_zeros(w, (w->alignment - w->n_written % w->alignment) % w->alignment, error));
    if (fflush(w->file) != 0) return fail_io(w, "write failed", error);
    if (fsync(fileno(w->file)) != 0) return fail_io(w, "the file could not be flushed to disk", error);
    FILE *file = w->file;
    w->file = NULL;
    if (fclose(file) != 0) return fail_io(w, "write failed", error);
    w->closed = true;
    return AERIE_OK;
}

aerie_status ae_gguf_writer_finish(ae_gguf_writer *w, aerie_error *error)
{
    if (!w->closed || w->finished || w->failed) AE_TRY(ae_gguf_writer_close(w, error));
    if (rename(w->temporary, w->place) != 0) return fail_io(w, "the finished file could not be renamed into place", error);
    ae_free(w->temporary);
    w->temporary = NULL;
    w->finished = true;
    return AERIE_OK;
}
