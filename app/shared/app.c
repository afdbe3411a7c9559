/* app.c - implements app.h: messages, standard output, bytes, interruption. */
#define _GNU_SOURCE /* flock */
#include "base/number.h" /* numbers as text, which aerie.h does not offer */
#include "shared/app.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h" /* encodings and line ends of files, which aerie.h does not offer */

/* ---- Messages -------------------------------------------------------------------------------- */

size_t app_utf8_char(const char *text, size_t n, uint32_t *code)
{
    const unsigned char *p = (const unsigned char *)text;
    if (n == 0) return 0;
    if (p[0] < 0x80) {
        *code = p[0];
        return 1;
    }
    const size_t length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || n < length) return 0;
    uint32_t c = p[0] & (0x7f >> length);
    for (size_t i = 1; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (length == 3 && (c < 0x800 || (c >= 0xd800 && c <= 0xdfff))) return 0;
    if (length == 4 && (c < 0x10000 || c > 0x10ffff)) return 0;
    *code = c;
    return length;
}

size_t app_utf8_incomplete(const char *text, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char c = (unsigned char)text[n - back];
        if (c < 0x80) return 0;
        if (c >= 0xc0) return (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u) > back ? back : 0;
    }
    return 0;
}

/* Returns whether a character moves the cursor, changes colours or reorders text. */
static bool is_unsafe(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

void app_escape(FILE *stream, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        const size_t length = app_utf8_char(text + i, n - i, &c);
        if (length == 0) {
            fprintf(stream, "\\x%02x", (unsigned char)text[i]);
            i++;
            continue;
        }
        if (c == '\n') {
            fputs("\\n", stream);
        } else if (c == '\t') {
            fputs("\\t", stream);
        } else if (is_unsafe(c)) {
            fprintf(stream, c < 0x80 ? "\\x%02x" : "\\u{%04x}", (unsigned)c);
        } else {
            fwrite(text + i, 1, length, stream);
        }
        i += length;
    }
}

/* Returns the line in the form that is printed; NULL: out of memory. */
static char *line_of(const char *text, size_t n, size_t *n_line)
{
    char *line = NULL;
    FILE *stream = open_memstream(&line, n_line);
    if (!stream) return NULL;
    fputs("aerie: ", stream);
    app_escape(stream, text, n);
    fputc('\n', stream);
    if (fclose(stream) == 0) return line;
    free(line);
    return NULL;
}

/* Escapes the line without memory: characters that need escaping become question marks. */
static size_t plain_line(char *line, const char *text, size_t n)
{
    static const char head[] = "aerie: ";
    memcpy(line, head, sizeof head - 1);
    for (size_t i = 0; i < n; i++) line[sizeof head - 1 + i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    line[sizeof head - 1 + n] = '\n';
    return sizeof head + n;
}

static atomic_bool has_times;

void app_note_times(void)
{
    atomic_store(&has_times, true);
}

/* Writes "2026-11-26T13:37:00.123Z " if lines have a time, and returns its length. */
static size_t put_time(char *text, size_t n)
{
    struct timespec now;
    struct tm utc;
    if (!atomic_load(&has_times)) return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    const size_t n_date = strftime(text, n, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    return n_date + (size_t)snprintf(text + n_date, n - n_date, ".%03ldZ ", now.tv_nsec / 1000000);
}

static atomic_bool wraps;

void app_note_wrap(void)
{
    atomic_store(&wraps, true);
}

bool app_terminal_is_dumb(void)
{
    const char *name = getenv("TERM");
    return name && strcmp(name, "dumb") == 0;
}

int app_terminal_columns(int file)
{
    struct winsize size;
    return isatty(file) && !ioctl(file, TIOCGWINSZ, &size) ? size.ws_col : 0;
}

/* Breaks the line between words where the terminal of standard error ends. Elsewhere nothing changes. */
static void wrap_line(char *line, size_t n)
{
    const size_t n_columns = (size_t)app_terminal_columns(STDERR_FILENO);
    size_t column = 0, space = 0;
    if (n_columns < 20) return;
    for (size_t i = 0; i < n && line[i] != '\n'; i++) {
        if (((unsigned char)line[i] & 0xc0) == 0x80) continue; /* not the first byte of a character */
        if (line[i] == ' ') space = i;
        if (++column <= n_columns || !space || line[i] == ' ') continue;
        line[space] = '\n';
        column = i - space;
        space = 0;
    }
}

static void say(const char *format, va_list args)
{
    char text[2048], plain[sizeof text + 16];
    size_t n_line = 0;
    const size_t n_time = put_time(text, sizeof text);
    int n = vsnprintf(text + n_time, sizeof text - n_time, format, args);
    if (n < 0) return;
    n += (int)n_time;
    if ((size_t)n >= sizeof text) n = sizeof text - 1;
    char *line = line_of(text, (size_t)n, &n_line);
    if (!line) n_line = plain_line(plain, text, (size_t)n);
    if (atomic_load(&wraps)) wrap_line(line ? line : plain, n_line);
    if (!app_log_put(line ? line : plain, n_line))
        fwrite(line ? line : plain, 1, n_line, stderr); /* stdio locks it, so that lines of several threads do not mix */
    free(line);
}

int app_error(int exit_status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    return exit_status;
}

void app_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

int app_error_memory(const char *what)
{
    return app_error(APP_FAILED, "not enough memory for %s", what);
}

int app_report(app_stage stage, aerie_status status, const aerie_error *error)
{
    const char *text = error && error->status == status && error->text[0] ? error->text : aerie_status_text(status);
    int exit_status = APP_FAILED;
    switch (status) {
    case AERIE_OK: return APP_DONE;
    case AERIE_ERROR_IO:
    case AERIE_ERROR_FORMAT:
    case AERIE_ERROR_UNSUPPORTED: exit_status = APP_BAD_FILE; break;
    case AERIE_ERROR_LIMIT: exit_status = stage == APP_LOADING ? APP_BAD_FILE : APP_USAGE; break;
    case AERIE_ERROR_ARGUMENT: exit_status = APP_USAGE; break;
    case AERIE_ERROR_CANCELLED: exit_status = APP_INTERRUPTED; break;
    case AERIE_ERROR_MEMORY:
    case AERIE_ERROR_BUSY:
    case AERIE_ERROR_INTERNAL: break;
    }
    return app_error(exit_status, "%s", text);
}

/* ---- Standard output --------------------------------------------------------------------------- */

static bool out_used;
static int out_errno; /* errno of the first failed write; 0: none */

static bool out_check(bool ok)
{
    out_used = true;
    if (!ok && out_errno == 0) out_errno = errno ? errno : EIO;
    return out_errno == 0;
}

bool app_write(const void *bytes, size_t n)
{
    if (n == 0 || out_errno) return out_errno == 0;
    errno = 0;
    return out_check(fwrite(bytes, 1, n, stdout) == n);
}

bool app_print(const char *format, ...)
{
    va_list args;
    if (out_errno) return false;
    errno = 0;
    va_start(args, format);
    const int n = vfprintf(stdout, format, args);
    va_end(args);
    return out_check(n >= 0);
}

size_t app_terminal_char(const char *text, size_t n, size_t *n_read, char out[16])
{
    uint32_t c = 0;
    *n_read = app_utf8_char(text, n, &c);
    if (!*n_read) {
        *n_read = 1;
        memcpy(out, "\xef\xbf\xbd", 3);
        return 3;
    }
    if (c == '\r') return 0;
    if ((c >= 0x20 && c < 0x7f) || c >= 0xa0 || c == '\n' || c == '\t') {
        memcpy(out, text, *n_read);
        return *n_read;
    }
    return (size_t)snprintf(out, 16, c < 0x80 ? "\\x%02x" : "\\u{%04x}", (unsigned)c);
}

bool app_write_text(const char *text, size_t n)
{
    if (!isatty(STDOUT_FILENO)) return app_write(text, n);
    bool ok = true;
    for (size_t i = 0, length; ok && i < n; i += length) {
        char shown[16];
        const size_t n_shown = app_terminal_char(text + i, n - i, &length, shown);
        ok = app_write(shown, n_shown);
    }
    return ok;
}

bool app_write_escaped(const char *text, size_t n)
{
    if (out_errno) return false;
    errno = 0;
    app_escape(stdout, text, n);
    return out_check(!ferror(stdout));
}

bool app_flush(void)
{
    if (out_errno) return false;
    errno = 0;
    return out_check(fflush(stdout) == 0);
}

/* Writes a part of a JSON text. The library leaves DEL, C1 controls and characters that change the writing direction as they
 * are, so they are escaped here. */
static void write_json_part(const char *text, size_t n)
{
    size_t from = 0;
    for (size_t i = 0, length; i < n; i += length ? length : 1) {
        uint32_t c = 0;
        length = app_utf8_char(text + i, n - i, &c);
        if (!length || c < 0x7f || !is_unsafe(c) || (c >= 0x200b && c <= 0x200f) || c == 0xfeff) continue;
        app_write(text + from, i - from);
        app_print("\\u%04x", (unsigned)c);
        from = i + length;
    }
    app_write(text + from, n - from);
}

/* Writes JSON text. The library has no integers beyond 2^63: app_json_u64 stores them as strings of U+0001 and digits, which
 * are written without quotes here. */
static void write_json(const char *text)
{
    static const char mark[] = "\"\\u0001";
    const char *rest = text;
    for (const char *at; (at = strstr(rest, mark)); rest = at) {
        const char *digits = at + sizeof mark - 1;
        const size_t n = strspn(digits, "0123456789");
        const bool is_number = n && digits[n] == '"';
        write_json_part(rest, (size_t)((is_number ? at : digits) - rest));
        if (is_number) app_write(digits, n);
        at = is_number ? digits + n + 1 : digits;
    }
    write_json_part(rest, strlen(rest));
}

static int print_json(json_t *json, size_t layout)
{
    if (!json || app_json_failed()) {
        json_decref(json);
        return app_error_memory("the JSON output");
    }
    char *text = json_dumps(json, layout | JSON_REAL_PRECISION(7));
    json_decref(json);
    if (!text) return app_error_memory("the JSON output");
    write_json(text);
    app_write("\n", 1);
    free(text);
    return APP_DONE;
}

int app_print_json(json_t *json)
{
    return print_json(json, JSON_INDENT(2));
}

int app_print_json_line(json_t *json)
{
    return print_json(json, JSON_COMPACT);
}

static bool pipes_end; /* the parent process did not ignore SIGPIPE */

void app_watch_pipes(void)
{
    pipes_end = signal(SIGPIPE, SIG_IGN) != SIG_IGN;
}

int app_finish(int exit_status)
{
    errno = 0;
    /* Standard output may be closed from the start, which is an error only if something was written to it. */
    if (fclose(stdout) && (out_used || errno != EBADF)) out_check(false);
    if (out_errno == 0) return exit_status;
    if (out_errno == EPIPE && pipes_end) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    app_error(0, "cannot write to standard output: %s", strerror(out_errno));
    return exit_status ? exit_status : APP_FAILED;
}

/* ---- Bytes, text, ids ---------------------------------------------------------------------------- */

void *app_grow(void *items, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity) return items;
    const size_t wanted = *capacity ? *capacity * 2 : 64;
    if (wanted > SIZE_MAX / 2 / size) return NULL;
    void *grown = realloc(items, wanted * size);
    if (grown) *capacity = wanted;
    return grown;
}

bool app_text_add(app_text *text, const void *bytes, size_t n)
{
    if (n >= SIZE_MAX / 4 - text->n) return false;
    if (text->n + n >= text->capacity) {
        const size_t wanted = (text->n + n + 1) * 2;
        char *grown = realloc(text->data, wanted);
        if (!grown) return false;
        text->data = grown;
        text->capacity = wanted;
    }
    if (n) memcpy(text->data + text->n, bytes, n);
    text->n += n;
    text->data[text->n] = '\0';
    return true;
}

void app_text_free(app_text *text)
{
    free(text->data);
    *text = (app_text){0};
}

static int read_up_to(app_text *text, const char *path, size_t most)
{
    char limit[32];
    const bool standard = strcmp(path, "-") == 0;
    const char *name = standard ? "standard input" : path;
    FILE *file = standard ? stdin : fopen(path, "rb");
    if (!file) return app_error(APP_BAD_FILE, "cannot open '%s': %s", path, strerror(errno));
    char chunk[4096];
    bool fits = app_text_add(text, "", 0);
    errno = 0;
    for (size_t n; fits && text->n <= most && (n = fread(chunk, 1, sizeof chunk, file)) > 0;)
        fits = app_text_add(text, chunk, n);
    const int bad = ferror(file) ? (errno ? errno : EIO) : 0;
    if (!standard) fclose(file);
    if (text->n > most)
        return app_error(APP_BAD_FILE, "'%s' is longer than %s, the most that is read", name, app_bytes(limit, most));
    if (!fits) return app_error_memory(name);
    if (bad) return app_error(APP_BAD_FILE, "cannot read '%s': %s", name, strerror(bad));
    return app_text_settle(text, 0, name) ? APP_DONE : APP_BAD_FILE;
}

bool app_text_settle(app_text *text, size_t from, const char *name)
{
    const char *encoding = ae_text_foreign(text->data + from, text->n - from);
    if (encoding) {
        app_note("'%s' is encoded in %.6s, but text is read as UTF-8: 'iconv -f %s -t UTF-8' converts it", name, encoding,
                 encoding);
        return false;
    }
    text->n = from + ae_text_settle(text->data + from, text->n - from);
    text->data[text->n] = '\0';
    return true;
}

int app_read_file(app_text *text, const char *path)
{
    return read_up_to(text, path, APP_MAX_TEXT);
}

int app_read_data(app_text *text, const char *path)
{
    struct stat info;
    const bool sized = (strcmp(path, "-") ? stat(path, &info) : fstat(0, &info)) == 0 && S_ISREG(info.st_mode);
    return read_up_to(text, path, sized ? SIZE_MAX / 4 : APP_MAX_STREAM);
}

static bool write_all(int fd, const char *data, size_t n)
{
    for (size_t at = 0; at < n;) {
        const ssize_t written = write(fd, data + at, n - at);
        if (written > 0) at += (size_t)written;
        else if (written == 0 || errno != EINTR) return false;
    }
    return true;
}

#define OTHER_MARK ".aerie-"

/* Returns a template for mkstemp beside the path: hidden, and with a mark that app_is_leftover recognizes. NULL: out of
 * memory. */
static char *other_name(const char *path)
{
    enum { MOST = 200 }; /* limit in bytes, so that the longer name fits in the file system */
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const size_t size = strlen(path) + sizeof "." OTHER_MARK "XXXXXX";
    char *other = malloc(size);
    if (other) snprintf(other, size, "%.*s.%.*s" OTHER_MARK "XXXXXX", (int)(name - path), path, MOST, name);
    return other;
}

bool app_is_leftover(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const size_t n = strlen(name), n_mark = sizeof OTHER_MARK - 1;
    return name[0] == '.' && n > n_mark + 6 && strncmp(name + n - 6 - n_mark, OTHER_MARK, n_mark) == 0 &&
           strspn(name + n - 6, letters) == 6;
}

int app_replace_file(const char *path, const void *data, size_t n)
{
    struct stat there;
    char *other = other_name(path);
    if (!other) return ENOMEM;
    errno = 0;
    const int fd = mkstemp(other); /* two threads may write the same path at once */
    if (fd >= 0) (void)flock(fd, LOCK_EX | LOCK_NB); /* held until it is closed, to show that the file was not left behind */
    bool ok = fd >= 0 && write_all(fd, data, n);
    if (ok && stat(path, &there) == 0) (void)!fchmod(fd, there.st_mode & 0777);
    ok = ok && fsync(fd) == 0 && rename(other, path) == 0;
    const int failed = errno;
    if (!ok && fd >= 0) unlink(other);
    if (fd >= 0) close(fd);
    free(other);
    return ok ? 0 : failed ? failed : EIO;
}

/* Returns 0, or errno if no file can be created beside the one that `path` names. */
static int try_file(const char *path)
{
    char *other = other_name(path);
    if (!other) return ENOMEM;
    errno = 0;
    const int fd = mkstemp(other), failed = fd < 0 ? errno : 0;
    if (fd >= 0) close(fd), unlink(other);
    free(other);
    return fd >= 0 ? 0 : failed ? failed : EIO;
}

int app_check_writable(const char *option, const char *path)
{
    struct stat there;
    char *real = realpath(path, NULL);
    const char *at = real ? real : path;
    const size_t n = strlen(path);
    int failed = n && path[n - 1] == '/' ? EISDIR : 0;
    if (!failed && real && stat(real, &there) == 0) failed = S_ISDIR(there.st_mode) ? EISDIR : access(real, W_OK) ? errno : 0;
    if (!failed) failed = try_file(at);
    free(real);
    return failed ? app_error(APP_FAILED, "%s %s: no file can be written there: %s", option, path, strerror(failed)) : APP_DONE;
}

static bool is_separator(char c)
{
    return c == ' ' || c == ',' || c == '\n' || c == '\t' || c == '\r' || c == '[' || c == ']';
}

int app_parse_ids(const char *text, size_t n, const char *source, int exit_status, int32_t **ids, size_t *n_ids)
{
    size_t capacity = 0;
    *ids = NULL;
    *n_ids = 0;
    for (size_t i = 0; i < n;) {
        if (is_separator(text[i])) {
            i++;
            continue;
        }
        size_t end = i;
        int64_t value = 0;
        while (end < n && text[end] >= '0' && text[end] <= '9' && value <= INT32_MAX) {
            value = value * 10 + (text[end++] - '0');
        }
        if (end == i || value > INT32_MAX || (end < n && !is_separator(text[end]))) {
            while (end < n && end < i + 40 && !is_separator(text[end])) end++;
            free(*ids);
            *ids = NULL;
            *n_ids = 0;
            return app_error(exit_status, "%s: '%.*s' is not a token id (a whole number from 0)", source,
                             (int)(end - i), text + i);
        }
        int32_t *grown = app_grow(*ids, *n_ids, &capacity, sizeof **ids);
        if (!grown) {
            free(*ids);
            *ids = NULL;
            *n_ids = 0;
            return app_error_memory("the token ids");
        }
        *ids = grown;
        grown[(*n_ids)++] = (int32_t)value;
        i = end;
    }
    return APP_DONE;
}

json_t *app_json_text(const char *text, size_t n)
{
    app_text clean = {0};
    bool ok = app_text_add(&clean, "", 0);
    for (size_t i = 0; ok && i < n;) {
        uint32_t code;
        const size_t length = app_utf8_char(text + i, n - i, &code);
        ok = length ? app_text_add(&clean, text + i, length) : app_text_add(&clean, "\xef\xbf\xbd", 3);
        i += length ? length : 1;
    }
    json_t *json = ok ? json_stringn(clean.data, clean.n) : NULL;
    app_text_free(&clean);
    return json;
}

json_t *app_json_u64(uint64_t value)
{
    char digits[24];
    if (value <= INT64_MAX) return json_integer((json_int_t)value);
    snprintf(digits, sizeof digits, "\001%llu", (unsigned long long)value); /* write_json recognizes it */
    return json_string(digits);
}

static bool json_failed;

void app_json_put(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value)) json_failed = true;
}

void app_json_append(json_t *list, json_t *value)
{
    if (json_array_append_new(list, value)) json_failed = true;
}

bool app_json_failed(void)
{
    return json_failed;
}

json_t *app_json_ids(const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) app_json_append(list, json_integer(ids[i]));
    return list;
}

json_t *app_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

size_t app_split_name(const char *path, unsigned *part, unsigned *of)
{
    static const char pattern[] = "-00000-of-00000"; /* a 0 stands for any digit */
    size_t n = strlen(path), i = 0;
    *part = *of = 0;
    if (n > 5 && strcmp(path + n - 5, ".gguf") == 0) n -= 5;
    if (n < sizeof pattern) return n;
    const char *tail = path + n - (sizeof pattern - 1);
    while (pattern[i] && (pattern[i] == '0' ? tail[i] >= '0' && tail[i] <= '9' : tail[i] == pattern[i])) i++;
    if (pattern[i]) return n;
    *part = (unsigned)strtoul(tail + 1, NULL, 10);
    *of = (unsigned)strtoul(tail + 10, NULL, 10);
    return n - (sizeof pattern - 1);
}

const char *app_bytes(char out[32], uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    snprintf(out, 32, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return out;
}

const char *app_count(char out[32], uint64_t n)
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    size_t k = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) out[k++] = ',';
        out[k++] = digits[i];
    }
    out[k] = '\0';
    return out;
}

double app_number(const char *text, char **end)
{
    return ae_number_parse(text, end);
}

double app_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double app_median(double *x, size_t n)
{
    if (n == 0) return 0;
    qsort(x, n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* ---- Interruption ---------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    interrupted = signal_number;
}

static void handle(int signal_number, int flags)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = flags}; /* without SA_RESTART, so that a read ends */
    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, NULL);
}

static void note_interrupts(int flags)
{
    if (!app_interrupt_ends()) interrupted = 0;
    handle(SIGINT, flags);
}

void app_interrupt_arm(void)
{
    static const int ends[] = {SIGTERM, SIGHUP};
    note_interrupts((int)SA_RESETHAND);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct sigaction old;
        if (sigaction(ends[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) handle(ends[i], (int)SA_RESETHAND); /* nohup */
    }
}

void app_interrupt_watch(void)
{
    note_interrupts(0);
}

void app_interrupt_disarm(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool app_interrupted(void)
{
    return interrupted != 0;
}

bool app_interrupt_ends(void)
{
    const int by = interrupted;
    return by == SIGTERM || by == SIGHUP;
}

int app_interrupt_end(int exit_status)
{
    const int by = interrupted;
    if (!app_interrupt_ends()) return exit_status;
    signal(by, SIG_DFL);
    raise(by);
    return exit_status;
}

/* ---- Escapes ---------------------------------------------------------------------------------------- */

size_t app_unescape(char *text, size_t n)
{
    static const char from[] = "nrt'\"\\", to[] = "\n\r\t'\"\\";
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        const char *known = text[i] == '\\' && i + 1 < n ? memchr(from, text[i + 1], sizeof from - 1) : NULL;
        if (known) {
            text[out++] = to[known - from];
            i++;
        } else if (text[i] == '\\' && i + 3 < n && text[i + 1] == 'x' && isxdigit((unsigned char)text[i + 2]) &&
                   isxdigit((unsigned char)text[i + 3])) {
            const char digits[] = {text[i + 2], text[i + 3], '\0'};
            text[out++] = (char)strtol(digits, NULL, 16);
            i += 3;
        } else {
            text[out++] = text[i];
        }
    }
    text[out] = '\0';
    return out;
}
