/* conversation_files.c - the files of conversations, and the thread that writes them (conversations.h).
 *     FOLDER/MODEL/SCOPE/NAME.kv       a saved sequence, which is checked when it is loaded
 *     FOLDER/MODEL/SCOPE/NAME.tokens   the mark, u64 bytes of NAME.kv, u64 n, SHA-256 of the rest in hex, i32 tokens [n]
 * MODEL is a hash of the model file's path, size and time, NAME a hash of the tokens. NAME.tokens is written last, so a .kv
 * without one is a leftover and is removed. Only the owner can read the files, since they contain what clients have written. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/models/conversations_int.h"
#include "shared/app.h"
#include "base/sha256.h"

static const char mark[16] = "aerie talk 1\n\0\0";

typedef struct head {
    char mark[16];
    uint64_t kv_bytes, n;
    char hash[64];
} head;
_Static_assert(sizeof(head) == 96, "as it lies in files");

#define MOST_TOKENS (1u << 24)

void serve_conversation_path(const serve_conversations *c, uint64_t scope, const char *name, const char *end,
                             char out[SERVE_CONVERSATION_PATH])
{
    snprintf(out, SERVE_CONVERSATION_PATH, "%s/%016" PRIx64 "%s%s%s", c->folder, scope, *name ? "/" : "", name, end);
}

static void hash_of(const head *h, const int32_t *tokens, char out[65])
{
    ae_sha256 hash;
    ae_sha256_start(&hash);
    ae_sha256_add(&hash, &h->kv_bytes, sizeof h->kv_bytes);
    ae_sha256_add(&hash, &h->n, sizeof h->n);
    ae_sha256_add(&hash, tokens, (size_t)h->n * sizeof *tokens);
    ae_sha256_end(&hash, out);
}

/* ---- Reading ------------------------------------------------------------------------------------------------ */

void *serve_conversation_read(const char *path, size_t *n)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return NULL;
    char *data = NULL;
    size_t done = 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && (uint64_t)st.st_size < SIZE_MAX)
        data = malloc((size_t)st.st_size);
    while (data && done < (size_t)st.st_size) {
        const ssize_t k = read(fd, data + done, (size_t)st.st_size - done);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) break;
        done += (size_t)k;
    }
    if (data && done < (size_t)st.st_size) {
        free(data);
        data = NULL;
    }
    close(fd);
    *n = done;
    return data;
}

/* Returns an entry for the file, or NULL if it is malformed. */
static entry *read_entry(serve_conversations *c, uint64_t scope, const char *path, const char *name)
{
    size_t n;
    char hash[65];
    char *data = serve_conversation_read(path, &n);
    head h;
    entry *e = NULL;
    if (data && n >= sizeof h) {
        memcpy(&h, data, sizeof h);
        const int32_t *tokens = (const int32_t *)(const void *)(data + sizeof h);
        const bool fits = !memcmp(h.mark, mark, sizeof mark) && h.n && h.n <= MOST_TOKENS &&
                          n == sizeof h + (size_t)h.n * sizeof *tokens;
        if (fits) hash_of(&h, tokens, hash);
        const serve_conversation_key key = {scope, NULL, 0, tokens, (size_t)h.n};
        if (fits && !memcmp(h.hash, hash, sizeof h.hash)) e = serve_conversation_add(c, &key);
    }
    free(data);
    if (!e) return NULL;
    e->kept = e->on_disk = true;
    e->file_bytes = h.kv_bytes + n;
    c->figures.disk_bytes += e->file_bytes;
    snprintf(e->name, sizeof e->name, "%s", name);
    return e;
}

static bool is_hex(const char *text, size_t n)
{
    return strspn(text, "0123456789abcdef") == n;
}

/* Reads the files in the folder of a scope. Removes leftovers: unfinished files, and .kv without .tokens or vice versa. */
static void scan_scope(serve_conversations *c, uint64_t scope)
{
    char path[SERVE_CONVERSATION_PATH], name[40];
    struct stat st;
    serve_conversation_path(c, scope, "", "", path);
    DIR *list = opendir(path);
    for (const struct dirent *d; list && (d = readdir(list));) {
        const size_t n = strlen(d->d_name);
        const bool is_kv = n == 35 && is_hex(d->d_name, 32) && strcmp(d->d_name + 32, ".kv") == 0;
        const bool is_tokens = n == 39 && is_hex(d->d_name, 32) && strcmp(d->d_name + 32, ".tokens") == 0;
        if (!is_kv && !is_tokens) {
            if (app_is_leftover(d->d_name)) unlinkat(dirfd(list), d->d_name, 0);
            continue;
        }
        snprintf(name, sizeof name, "%.32s", d->d_name);
        serve_conversation_path(c, scope, name, is_kv ? ".tokens" : ".kv", path);
        if (stat(path, &st) != 0) {
            unlinkat(dirfd(list), d->d_name, 0);
        } else if (is_tokens) {
            const uint64_t kv_bytes = (uint64_t)st.st_size;
            serve_conversation_path(c, scope, name, ".tokens", path);
            const entry *e = read_entry(c, scope, path, name);
            if (e && e->file_bytes == kv_bytes + sizeof(head) + e->n * sizeof *e->tokens) continue;
            entry broken = {.scope = scope};
            snprintf(broken.name, sizeof broken.name, "%s", name);
            if (!e) serve_conversation_remove_file(c, &broken);
            /* a file of another size is found to be damaged when it is loaded */
        }
    }
    if (list) closedir(list);
}

static void scan(serve_conversations *c)
{
    DIR *list = opendir(c->folder);
    for (const struct dirent *d; list && (d = readdir(list));)
        if (strlen(d->d_name) == 16 && is_hex(d->d_name, 16)) scan_scope(c, strtoull(d->d_name, NULL, 16));
    if (list) closedir(list);
}

/* ---- Writing ------------------------------------------------------------------------------------------------ */

void serve_conversation_remove_file(serve_conversations *c, entry *e)
{
    char path[SERVE_CONVERSATION_PATH];
    serve_conversation_path(c, e->scope, e->name, ".tokens", path);
    unlink(path);
    serve_conversation_path(c, e->scope, e->name, ".kv", path);
    unlink(path);
    if (e->on_disk) c->figures.disk_bytes -= e->file_bytes;
    e->on_disk = false;
}

/* Removes the least recently used files until `room` more bytes fit. Entries that are also in memory stay. */
static bool make_disk_room(serve_conversations *c, uint64_t room)
{
    if (!c->limits.disk) return true;
    if (room > c->limits.disk) return false;
    while (c->figures.disk_bytes + room > c->limits.disk) {
        entry *oldest = NULL;
        for (entry *e = c->first; e; e = e->next)
            if (e->on_disk && (!oldest || e->used < oldest->used)) oldest = e;
        if (!oldest) return false;
        serve_conversation_remove_file(c, oldest);
        oldest->unwritable = true; /* its file was removed, and its bytes are not in memory */
    }
    return true;
}

static entry *next_to_write(serve_conversations *c)
{
    entry *found = NULL;
    for (entry *e = c->first; e && !c->disk_failed; e = e->next)
        if (e->data && !e->on_disk && !e->unwritable && !e->n_adapters && (!found || e->used < found->used)) found = e;
    return found;
}

/* Writes the files of an entry. Returns 0, or errno. Called without the lock: the entry is marked as being written, so nobody
 * changes it. */
static int write_entry(const serve_conversations *c, const entry *e, const char *name, uint64_t *file_bytes)
{
    char path[SERVE_CONVERSATION_PATH];
    const size_t n = sizeof(head) + e->n * sizeof *e->tokens;
    head h = {.kv_bytes = e->n_data, .n = e->n};
    char hash[65];
    char *data = malloc(n);
    if (!data) return ENOMEM;
    memcpy(h.mark, mark, sizeof mark);
    hash_of(&h, e->tokens, hash);
    memcpy(h.hash, hash, sizeof h.hash);
    memcpy(data, &h, sizeof h);
    memcpy(data + sizeof h, e->tokens, e->n * sizeof *e->tokens);
    serve_conversation_path(c, e->scope, "", "", path);
    int failed = mkdir(path, 0700) && errno != EEXIST ? errno : 0;
    serve_conversation_path(c, e->scope, name, ".kv", path);
    if (!failed) failed = app_replace_file(path, e->data, e->n_data);
    if (!failed) {
        serve_conversation_path(c, e->scope, name, ".tokens", path);
        failed = app_replace_file(path, data, n);
    }
    free(data);
    *file_bytes = e->n_data + n;
    return failed;
}

static void write_one(serve_conversations *c, entry *e)
{
    char hash[65];
    uint64_t bytes = 0;
    ae_sha256 sum;
    ae_sha256_start(&sum);
    ae_sha256_add(&sum, e->tokens, e->n * sizeof *e->tokens);
    ae_sha256_end(&sum, hash);
    hash[32] = '\0';
    if (!make_disk_room(c, e->n_data + sizeof(head) + e->n * sizeof *e->tokens)) {
        e->unwritable = true;
        return;
    }
    e->writing = true;
    pthread_mutex_unlock(&c->lock);
    const int failed = write_entry(c, e, hash, &bytes);
    pthread_mutex_lock(&c->lock);
    e->writing = false;
    memcpy(e->name, hash, 33);
    if (!failed) {
        e->on_disk = true;
        e->file_bytes = bytes;
        c->figures.disk_bytes += bytes;
        serve_conversation_forget_contained(c, e);
        return;
    }
    serve_conversation_remove_file(c, e);
    c->disk_failed = true;
    app_note("--cache-disk: no more conversations are written to %s: %s", c->folder, strerror(failed));
}

static void *write_all(void *user)
{
    serve_conversations *c = user;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        entry *e = next_to_write(c);
        if (e) {
            write_one(c, e);
        } else if (c->ending) {
            break;
        } else {
            pthread_cond_wait(&c->changed, &c->lock);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- Life --------------------------------------------------------------------------------------------------- */

bool serve_conversation_files_open(serve_conversations *c)
{
    struct stat st = {0};
    char hash[65], *real = realpath(c->limits.model, NULL);
    const char *path = real ? real : c->limits.model;
    (void)stat(path, &st);
    const uint64_t facts[] = {(uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec};
    ae_sha256 sum;
    ae_sha256_start(&sum);
    ae_sha256_add(&sum, path, strlen(path));
    ae_sha256_add(&sum, facts, sizeof facts);
    ae_sha256_end(&sum, hash);
    free(real);
    const int n = snprintf(c->folder, sizeof c->folder, "%s/%.16s", c->limits.folder, hash);
    if (n < 0 || n >= (int)sizeof c->folder || (mkdir(c->limits.folder, 0700) && errno != EEXIST) ||
        (mkdir(c->folder, 0700) && errno != EEXIST)) {
        app_note("--cache-disk: the folder %s cannot be used: %s", c->limits.folder, strerror(errno));
        return true; /* conversations are kept only in memory */
    }
    scan(c);
    c->has_writer = pthread_create(&c->writer, NULL, write_all, c) == 0;
    return c->has_writer;
}

void serve_conversation_files_close(serve_conversations *c)
{
    if (!c->has_writer) return;
    pthread_mutex_lock(&c->lock);
    c->ending = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->writer, NULL);
}
