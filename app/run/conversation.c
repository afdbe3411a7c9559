/* conversation.c - implements conversation.h. */
#define _XOPEN_SOURCE 700
#include "run/conversation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"

static const char *kind_of(const struct stat *there)
{
    if (S_ISDIR(there->st_mode)) return "a folder";
    if (S_ISFIFO(there->st_mode)) return "a pipe";
    return S_ISREG(there->st_mode) ? "a file" : "a device or a socket";
}

/* ---- Messages -------------------------------------------------------------------------------------- */

bool app_conversation_insert(app_conversation *c, size_t at, const char *role, const char *content, size_t n)
{
    aerie_message *grown = app_grow(c->messages, c->n, &c->capacity, sizeof *grown);
    if (!grown) return false;
    c->messages = grown;
    app_pictures *pictures = app_grow(c->pictures, c->n, &c->pictures_capacity, sizeof *pictures);
    if (!pictures) return false;
    c->pictures = pictures;
    char *copy = strndup(content, n);
    if (!copy) return false;
    memmove(pictures + at + 1, pictures + at, (c->n - at) * sizeof *pictures);
    pictures[at] = (app_pictures){0};
    memmove(grown + at + 1, grown + at, (c->n - at) * sizeof *grown);
    grown[at] = (aerie_message){role, copy};
    c->n++;
    return true;
}

bool app_conversation_show(app_conversation *c, const char *content, size_t n, app_pictures *pictures)
{
    app_text text = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < pictures->n; i++) ok = app_text_add(&text, app_picture_mark(), strlen(app_picture_mark()));
    ok = ok && app_text_add(&text, content, n) && app_conversation_insert(c, c->n, "user", text.data, text.n);
    app_text_free(&text);
    if (ok) c->pictures[c->n - 1] = *pictures;
    else app_pictures_free(pictures);
    *pictures = (app_pictures){0};
    return ok;
}

void app_conversation_drop(app_conversation *c, size_t at, size_t n)
{
    if (!n) return;
    for (size_t i = 0; i < n; i++) {
        free((char *)c->messages[at + i].content);
        app_pictures_free(&c->pictures[at + i]);
    }
    memmove(c->pictures + at, c->pictures + at + n, (c->n - at - n) * sizeof *c->pictures);
    memmove(c->messages + at, c->messages + at + n, (c->n - at - n) * sizeof *c->messages);
    c->n -= n;
}

void app_conversation_free(app_conversation *c)
{
    app_conversation_drop(c, 0, c->n);
    free(c->messages);
    free(c->pictures);
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

/* ---- Pictures -------------------------------------------------------------------------------------- */

const char *app_picture_mark(void)
{
    static char mark[40];
    unsigned char bits[8] = {0};
    if (*mark) return mark;
    (void)!getrandom(bits, sizeof bits, 0);
    char *at = mark + sprintf(mark, "\xEE\x80\x80"); /* characters for private use around it */
    for (size_t i = 0; i < sizeof bits; i++) at += sprintf(at, "%02x", bits[i]);
    sprintf(at, "\xEE\x80\x81");
    return mark;
}

void app_pictures_free(app_pictures *pictures)
{
    for (size_t i = 0; i < pictures->n; i++) {
        free(pictures->items[i].path);
        aerie_image_free(pictures->items[i].image);
    }
    free(pictures->items);
    *pictures = (app_pictures){0};
}

static bool read_picture(app_picture *p, const app_text *file)
{
    aerie_error error = {0};
    ae_sha256 hash;
    ae_sha256_start(&hash);
    ae_sha256_add(&hash, file->data, file->n);
    ae_sha256_end(&hash, p->sha256);
    if (aerie_image_read(&p->image, file->data, file->n, NULL, &error) == AERIE_OK) return true;
    app_note("'%s': %s", p->path, error.text);
    return false;
}

bool app_pictures_add(app_pictures *pictures, const char *path)
{
    app_text file = {0};
    app_picture p = {0};
    struct stat there;
    app_picture *grown = app_grow(pictures->items, pictures->n, &pictures->capacity, sizeof *grown);
    if (!grown) return app_error_memory("the pictures"), false;
    pictures->items = grown;
    if (stat(path, &there)) return app_note("cannot read '%s': %s", path, strerror(errno)), false;
    if (!S_ISREG(there.st_mode)) {
        app_note("cannot read '%s': it is %s, not a picture's file", path, kind_of(&there));
        return false;
    }
    p.path = realpath(path, NULL);
    bool ok = p.path || (app_error_memory("the pictures"), false);
    ok = ok && !app_read_data(&file, p.path) && read_picture(&p, &file);
    app_text_free(&file);
    if (ok) pictures->items[pictures->n++] = p;
    else free(p.path);
    return ok;
}

/* ---- Reading --------------------------------------------------------------------------------------- */

/* Opens a regular file for reading. Returns -1 after a message on failure. Does not wait for a pipe. */
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

/* Returns where text[from..) stops being valid UTF-8 without NUL bytes; text->n if it is valid throughout. */
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

/* Adds a message in the form of /save: pictures, and one text after them. */
static bool add_pictured(app_conversation *c, const json_t *parts, const char *path, size_t number)
{
    app_pictures pictures = {0};
    const char *text = "", *wrong = NULL;
    size_t n_text = 0;
    for (size_t i = 0; i < json_array_size(parts) && !wrong; i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        const char *file = json_string_value(json_object_get(part, "path"));
        const char *sha256 = json_string_value(json_object_get(part, "sha256"));
        const json_t *value = json_object_get(part, "text");
        if (type && file && sha256 && strcmp(type, "image") == 0 && !n_text) {
            if (!app_pictures_add(&pictures, file)) wrong = "its picture cannot be read";
            else if (strcmp(pictures.items[pictures.n - 1].sha256, sha256)) wrong = "the file of its picture has changed";
        } else if (type && json_is_string(value) && strcmp(type, "text") == 0 && !n_text) {
            text = json_string_value(value), n_text = json_string_length(value);
        } else {
            wrong = "it has a part that is neither a picture nor the text after it";
        }
    }
    if (wrong) {
        app_note("'%s': message %zu cannot be used: %s", path, number, wrong);
        app_pictures_free(&pictures);
        return false;
    }
    const bool ok = app_conversation_show(c, text, n_text, &pictures);
    if (!ok) app_error_memory("the conversation");
    return ok;
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
        if (json_is_array(content) && strcmp(role, "user") == 0) {
            if (!add_pictured(c, content, path, i + 1)) return false;
            continue;
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
    else if (!json_is_array(list)) app_note("'%s' contains no list of messages", path);
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
        const app_pictures *pictures = &c->pictures[i];
        const char *text = m->content + pictures->n * strlen(app_picture_mark());
        json_t *content = app_json_text(text, strlen(text));
        json_t *parts = pictures->n ? json_array() : NULL;
        for (size_t k = 0; k < pictures->n; k++)
            app_json_append(parts, json_pack("{s:s, s:o, s:s}", "type", "image", "path",
                                             app_json_text(pictures->items[k].path, strlen(pictures->items[k].path)), "sha256",
                                             pictures->items[k].sha256));
        if (parts) app_json_append(parts, json_pack("{s:s, s:o}", "type", "text", "text", content)), content = parts;
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

/* Moves the finished file to its name. Without `replace` it never overwrites a file that appeared meanwhile. */
static bool put_in_place(const char *temporary, const char *path, bool replace)
{
    if (replace) return rename(temporary, path) == 0;
    if (link(temporary, path) == 0) {
        unlink(temporary);
        return true;
    }
    struct stat there;
    if (errno == EEXIST || lstat(path, &there) == 0) return errno = EEXIST, false;
    return rename(temporary, path) == 0; /* the file system has no links */
}

/* Writes a temporary file beside `path` and renames it. `there`: the existing file, or NULL. */
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
    char *target = exists ? realpath(path, NULL) : strdup(path); /* a link stays; the file it points to is replaced */
    const bool memory = json && target;
    const bool ok = memory && write_aside(json, target, exists ? &there : NULL);
    if (!memory) app_error_memory("the conversation");
    else if (!ok) app_note("cannot save to '%s': %s", path, strerror(errno));
    else {
        app_note("saved %zu message%s to '%s'%s", c->n, app_plural(c->n), path, exists ? ", replacing what it held" : "");
        remember(saved, path);
    }
    json_decref(json);
    free(target);
    return ok;
}
