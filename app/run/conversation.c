/* conversation.c - implements conversation.h. */
#define _XOPEN_SOURCE 700
#include "run/conversation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Messages -------------------------------------------------------------------------------------- */

bool app_conversation_insert(app_conversation *c, size_t at, const char *role, const char *content, size_t n)
{
    aerie_message *grown = app_grow(c->messages, c->n, &c->capacity, sizeof *grown);
    if (!grown) return false;
    c->messages = grown;
    char *copy = strndup(content, n);
    if (!copy) return false;
    memmove(grown + at + 1, grown + at, (c->n - at) * sizeof *grown);
    grown[at] = (aerie_message){role, copy};
    c->n++;
    return true;
}

void app_conversation_drop(app_conversation *c, size_t at, size_t n)
{
    if (!n) return;
    for (size_t i = 0; i < n; i++) free((char *)c->messages[at + i].content);
    memmove(c->messages + at, c->messages + at + n, (c->n - at - n) * sizeof *c->messages);
    c->n -= n;
}

void app_conversation_free(app_conversation *c)
{
    app_conversation_drop(c, 0, c->n);
    free(c->messages);
    *c = (app_conversation){0};
}

size_t app_conversation_first(const app_conversation *c)
{
    return c->n && strcmp(c->messages[0].role, "system") == 0;
}

static bool begins_turn(const app_conversation *c, size_t i)
{
    return i == app_conversation_first(c) || strcmp(c->messages[i].role, "assistant");
}

size_t app_conversation_turns(const app_conversation *c)
{
    size_t n = 0;
    for (size_t i = app_conversation_first(c); i < c->n; i++) n += begins_turn(c, i);
    return n;
}

size_t app_conversation_turn(const app_conversation *c, size_t i)
{
    size_t at = app_conversation_first(c);
    for (; at < c->n; at++) {
        if (begins_turn(c, at) && i-- == 0) break;
    }
    return at;
}

/* ---- Reading --------------------------------------------------------------------------------------- */

static const char *kind_of(const struct stat *there)
{
    if (S_ISDIR(there->st_mode)) return "a folder";
    if (S_ISFIFO(there->st_mode)) return "a pipe";
    return S_ISREG(there->st_mode) ? "a file" : "a device or a socket";
}

/* Opened for reading and known to be a regular file; -1 and a sentence if not. A pipe is not waited for. */
static int open_regular(const char *path)
{
    struct stat there;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        app_note("cannot read '%s': %s", path, strerror(errno));
        return -1;
    }
    if (fstat(fd, &there) == 0 && S_ISREG(there.st_mode)) return fd;
    app_note("cannot read '%s': it is %s, not a file of text", path, kind_of(&there));
    close(fd);
    return -1;
}

/* Where text[from..) stops being UTF-8 without NUL bytes; text->n if nowhere. */
static size_t end_of_text(const app_text *text, size_t from)
{
    for (size_t i = from; i < text->n;) {
        uint32_t code = 0;
        const size_t n = app_utf8_char(text->data + i, text->n - i, &code);
        if (!n || !code) return i;
        i += n;
    }
    return text->n;
}

bool app_text_read(app_text *text, const char *path, size_t limit)
{
    char chunk[4096], size[32];
    const size_t before = text->n;
    ssize_t n = 0;
    bool fits = true;
    const int fd = open_regular(path);
    if (fd < 0) return false;
    while (fits && text->n - before <= limit && (n = read(fd, chunk, sizeof chunk)) > 0)
        fits = app_text_add(text, chunk, (size_t)n);
    const int failed = n < 0 ? errno : 0;
    close(fd);
    size_t end;
    if (!fits) app_error_memory(path);
    else if (failed) app_note("cannot read '%s': %s", path, strerror(failed));
    else if (text->n - before > limit) app_note("'%s' is larger than %s", path, app_bytes(size, limit));
    else if (text->n == before) return true;
    else if (!app_text_settle(text, before, path)) text->n = before; /* and it was said */
    else if ((end = end_of_text(text, before)) < text->n)
        app_note("'%s' is not a file of UTF-8 text: byte %zu is 0x%02x", path, end - before, (unsigned char)text->data[end]);
    else return true;
    text->n = before;
    if (text->data) text->data[before] = '\0';
    return false;
}

static const char *known_role(const char *role)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (role && strcmp(role, roles[i]) == 0) return roles[i];
    }
    return NULL;
}

static bool add_messages(app_conversation *c, const json_t *list, const char *path)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *message = json_array_get(list, i), *content = json_object_get(message, "content");
        const char *given = json_string_value(json_object_get(message, "role")), *role = known_role(given);
        if (!role) {
            app_note("'%s': message %zu has the role '%s'; known are system, user and assistant", path, i + 1,
                     given ? given : "");
            return false;
        }
        if (i && strcmp(role, "system") == 0) {
            app_note("'%s': message %zu is a system message; only the first may be one", path, i + 1);
            return false;
        }
        if (!json_is_string(content)) {
            app_note("'%s': the content of message %zu is not a string", path, i + 1);
            return false;
        }
        if (!app_conversation_insert(c, c->n, role, json_string_value(content), json_string_length(content))) {
            app_error_memory("the conversation");
            return false;
        }
    }
    return true;
}

bool app_conversation_load(app_conversation *c, const char *path)
{
    enum { LIMIT = 64 << 20 };
    app_text text = {0};
    app_conversation loaded = {0};
    json_error_t error;
    if (!app_text_read(&text, path, LIMIT)) {
        app_text_free(&text);
        return false;
    }
    json_t *json = json_loadb(text.data ? text.data : "", text.n, 0, &error);
    const json_t *list = json_is_object(json) ? json_object_get(json, "messages") : json;
    bool ok = false;
    if (!json) app_note("'%s' is not JSON: line %d: %s", path, error.line, error.text);
    else if (!json_is_array(list)) app_note("'%s' holds no list of messages", path);
    else ok = add_messages(&loaded, list, path);
    json_decref(json);
    app_text_free(&text);
    if (ok) {
        app_conversation_free(c);
        *c = loaded;
    } else {
        app_conversation_free(&loaded);
    }
    return ok;
}

/* ---- Writing --------------------------------------------------------------------------------------- */

static bool is_ours(const app_saved *saved, const struct stat *there)
{
    return saved->path && saved->device == there->st_dev && saved->inode == there->st_ino && saved->bytes == there->st_size &&
           saved->modified.tv_sec == there->st_mtim.tv_sec && saved->modified.tv_nsec == there->st_mtim.tv_nsec;
}

static json_t *to_json(const app_conversation *c)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < c->n; i++) {
        const aerie_message *m = &c->messages[i];
        json_t *content = app_json_text(m->content, strlen(m->content));
        ok = !json_array_append_new(list, json_pack("{s:s, s:o}", "role", m->role, "content", content));
    }
    if (ok) return list;
    json_decref(list);
    return NULL;
}

static FILE *create(const char *path, const struct stat *there, char *temporary, size_t n)
{
    int fd = -1;
    for (int i = 0; i < 100 && fd < 0; i++) {
        snprintf(temporary, n, "%s.%ld-%d.part", path, (long)getpid(), i);
        fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) return NULL;
    }
    if (fd >= 0 && there) (void)!fchmod(fd, there->st_mode & 07777);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file && fd >= 0) close(fd), unlink(temporary);
    return file;
}

/* Brings the finished file into place; without `replace` never over one that appeared meanwhile. */
static bool put_in_place(const char *temporary, const char *path, bool replace)
{
    if (replace) return rename(temporary, path) == 0;
    if (link(temporary, path) == 0) {
        unlink(temporary);
        return true;
    }
    struct stat there;
    if (errno == EEXIST || lstat(path, &there) == 0) return errno = EEXIST, false;
    return rename(temporary, path) == 0; /* a file system without links */
}

/* Writes beside `path` and renames. `there`: the file that stands there now, or NULL. */
static bool write_aside(const json_t *json, const char *path, const struct stat *there)
{
    const size_t n = strlen(path) + 48;
    char *temporary = malloc(n);
    if (!temporary) return errno = ENOMEM, false;
    FILE *file = create(path, there, temporary, n);
    bool ok = file != NULL;
    if (file) {
        errno = 0;
        ok = !json_dumpf(json, file, JSON_INDENT(2)) && fputc('\n', file) != EOF && !fflush(file) && !fsync(fileno(file));
        int failed = errno;
        if (fclose(file) && ok) ok = false, failed = errno;
        errno = failed;
        ok = ok && put_in_place(temporary, path, there != NULL);
        failed = errno;
        if (!ok) unlink(temporary);
        errno = failed ? failed : EIO;
    }
    free(temporary);
    return ok;
}

static void remember(app_saved *saved, const char *path)
{
    struct stat there;
    char *copy = strdup(path);
    if (!copy || stat(path, &there)) {
        free(copy);
        return;
    }
    free(saved->path);
    *saved = (app_saved){copy, there.st_dev, there.st_ino, there.st_size, there.st_mtim};
}

bool app_conversation_save(const app_conversation *c, const char *path, bool force, app_saved *saved)
{
    struct stat there;
    const bool exists = stat(path, &there) == 0;
    if (exists && !S_ISREG(there.st_mode)) {
        app_note("cannot save to '%s': it is %s", path, kind_of(&there));
        return false;
    }
    if (exists && !force && !is_ours(saved, &there)) {
        app_note("cannot save to '%s': it exists; '/save! %s' replaces it", path, path);
        return false;
    }
    json_t *json = to_json(c);
    char *target = exists ? realpath(path, NULL) : strdup(path); /* a link stays, its file is replaced */
    const bool memory = json && target;
    const bool ok = memory && write_aside(json, target, exists ? &there : NULL);
    if (!memory) app_error_memory("the conversation");
    else if (!ok) app_note("cannot save to '%s': %s", path, strerror(errno));
    else {
        app_note("saved %zu message%s to '%s'%s", c->n, c->n == 1 ? "" : "s", path, exists ? ", replacing what it held" : "");
        remember(saved, path);
    }
    json_decref(json);
    free(target);
    return ok;
}
