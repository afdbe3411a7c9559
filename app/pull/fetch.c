/* fetch.c - implements fetch.h with libcurl. */
#define _POSIX_C_SOURCE 200809L
#include "pull/fetch.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "setup/load.h"
#include "base/sha256.h"

/* For files of unknown hash: reads their tables to find out whether they are complete. aerie.h only loads whole models. */
#include "base/os.h"
#include "formats/gguf.h"

#ifndef APP_CURL

bool fetch_possible(void)
{
    return false;
}

int fetch_text(app_text *out, char **next, const char *url, const char *accept, const fetch_settings *settings)
{
    (void)out, (void)next, (void)url, (void)accept, (void)settings;
    return APP_FAILED; /* in a build without libcurl, fetch_possible returns false, so this is never called */
}

uint64_t fetch_bytes_kept(const fetch_file *file)
{
    (void)file;
    return 0;
}

int fetch_file_get(fetch_file *file, const fetch_settings *settings)
{
    (void)file, (void)settings;
    return APP_FAILED;
}

#else

#include <curl/curl.h>

enum { MAX_REDIRECTS = 10, CONNECT_SECONDS = 30, MAX_WAIT_SECONDS = 60 };
/* If the length is unknown, the tables are searched in the first bytes, then in twice as many, up to a limit. */
enum { FIRST_LOOK = 64 << 10, MAX_TABLES = 256 << 20 };

bool fetch_possible(void)
{
    return true;
}

/* A transfer of a text to memory, or of a file to its part. */
typedef struct transfer {
    const fetch_settings *settings;
    const char *url;
    app_text *text;   /* NULL: a file */
    fetch_file *file; /* NULL: a text */
    char *part;       /* path of the part, and of its folder; owned */
    int fd;           /* of the part */
    uint64_t at;      /* its number of bytes, all of which `hash` includes */
    uint64_t begun;   /* bytes that it had when this attempt began */
    uint64_t farthest;
    ae_sha256 hash;
    bool kept;             /* a later call may continue the part, whose name contains the hash of the file */
    ae_gguf_extent extent; /* end of the file according to the part's tables; end 0: not known yet */
    uint64_t next_look;    /* number of bytes at which the tables are read again */
    unsigned n_restarts;   /* restarts that threw bytes away */
    bool conditional; /* "not modified" is a possible answer to this attempt */
    bool checked;     /* the header of the answer was handled */
    /* of the answer */
    uint64_t range_from, range_total, length;
    bool has_range;
    char etag[FETCH_MAX_ETAG], linked_etag[FETCH_MAX_ETAG];
    char part_etag[FETCH_MAX_ETAG]; /* ETag of the part's bytes; "": unknown */
    char *next;                     /* address of the next page of a list; owned */
    /* what ended the transfer, apart from curl's own errors */
    int failed; /* exit status, after a message */
    bool again; /* from the start */
    int shown;  /* percent */
    char title[64];
} transfer;

/* Returns a URL for messages: without what follows the path, which may be a signature, and without a password. */
static const char *shown_url(const char *url, char out[256])
{
    const char *host = strstr(url, "://");
    const size_t scheme = host ? (size_t)(host + 3 - url) : 0;
    size_t n = strcspn(url, "?#");
    const char *at = memchr(url + scheme, '@', strcspn(url + scheme, "/?#"));
    const size_t skip = at ? (size_t)(at + 1 - url) - scheme : 0;
    n -= scheme + skip;
    snprintf(out, 256, "%.*s%.*s", (int)scheme, url, (int)(n < 200 ? n : 200), url + scheme + skip);
    return out;
}

/* ---- The part -------------------------------------------------------------------------------------- */

static bool empty_part(transfer *t)
{
    t->at = t->next_look = 0;
    t->extent = (ae_gguf_extent){0};
    ae_sha256_start(&t->hash);
    if (ftruncate(t->fd, 0) == 0 && lseek(t->fd, 0, SEEK_SET) == 0) return true;
    t->failed = app_error(APP_FAILED, "cannot write '%s': %s", t->part, strerror(errno));
    return false;
}

/* Starts the transfer again, at most as often as there may be tries without progress: a host may have two versions of a file
 * and alternate between them for ever. */
static bool restart_part(transfer *t)
{
    char url[256];
    if (!t->at || t->n_restarts++ <= t->settings->n_retries) return empty_part(t);
    t->failed = app_error(APP_FAILED,
                          "'%s' was restarted %u times, because the server did not resume the download; it may have two "
                          "versions of the file",
                          shown_url(t->url, url), t->n_restarts - 1);
    return false;
}

static int no_room(const transfer *t, int reason)
{
    char needed[32], left[32] = "";
    struct statvfs fs;
    const uint64_t bytes = t->file->bytes ? t->file->bytes : t->extent.end;
    const bool full = reason == ENOSPC || reason == EDQUOT;
    if (full && fstatvfs(t->fd, &fs) == 0) app_bytes(left, (uint64_t)fs.f_bavail * fs.f_frsize);
    if (full && bytes > t->at && *left)
        return app_error(APP_FAILED, "cannot write '%s': %s; %s more are needed and %s are free", t->part, strerror(reason),
                         app_bytes(needed, bytes - t->at), left);
    return app_error(APP_FAILED, "cannot write '%s': %s", t->part, strerror(reason));
}

static bool has_room(const transfer *t, uint64_t bytes)
{
    struct statvfs fs;
    return bytes <= t->at || fstatvfs(t->fd, &fs) || bytes - t->at <= (uint64_t)fs.f_bavail * fs.f_frsize;
}

static bool write_part(transfer *t, const char *bytes, size_t n)
{
    ae_sha256_add(&t->hash, bytes, n);
    while (n) {
        const ssize_t written = write(t->fd, bytes, n);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            t->failed = no_room(t, written < 0 ? errno : EIO);
            return false;
        }
        bytes += written;
        n -= (size_t)written;
        t->at += (uint64_t)written;
    }
    return true;
}

/* Returns the part's path: the folder, a dot, the name, and the file's hash, or if that is unknown the hash of its address. */
static char *part_path(const fetch_file *file)
{
    char id[65];
    snprintf(id, sizeof id, "%s", file->sha256);
    if (!*id) {
        ae_sha256 hash;
        ae_sha256_start(&hash);
        ae_sha256_add(&hash, file->url, strlen(file->url));
        ae_sha256_end(&hash, id);
    }
    const char *slash = strrchr(file->path, '/');
    const char *name = slash ? slash + 1 : file->path;
    const size_t n = strlen(file->path) + 32;
    char *path = malloc(n);
    if (path) snprintf(path, n, "%.*s.%s.%.16s.part", (int)(name - file->path), file->path, name, id);
    return path;
}

uint64_t fetch_bytes_kept(const fetch_file *file)
{
    struct stat st;
    char *path = *file->sha256 ? part_path(file) : NULL;
    const bool there = path && stat(path, &st) == 0 && S_ISREG(st.st_mode);
    free(path);
    return there ? (uint64_t)st.st_size : 0;
}

/* Opens the part, and adds bytes that an earlier call left to the hash. If the file's hash is unknown, such bytes are dropped,
 * because the server may have another file by now. */
static int open_part(transfer *t)
{
    static const size_t size = 1 << 20;
    struct stat st;
    t->part = part_path(t->file);
    if (!t->part) return app_error_memory("a file's name");
    t->fd = open(t->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (t->fd < 0 || fstat(t->fd, &st)) return app_error(APP_FAILED, "cannot write '%s': %s", t->part, strerror(errno));
    if (!S_ISREG(st.st_mode)) return app_error(APP_FAILED, "cannot write '%s': it is not a regular file", t->part);
    ae_sha256_start(&t->hash);
    t->kept = *t->file->sha256 != '\0';
    if (!t->kept || (t->file->bytes && (uint64_t)st.st_size > t->file->bytes))
        return restart_part(t) ? APP_DONE : APP_FAILED;
    char *buffer = malloc(size);
    if (!buffer) return app_error_memory("a file");
    for (ssize_t n; (n = read(t->fd, buffer, size)) > 0 && !app_interrupted();) {
        ae_sha256_add(&t->hash, buffer, (size_t)n);
        t->at += (uint64_t)n;
    }
    free(buffer);
    t->farthest = t->at;
    return app_interrupted() ? APP_INTERRUPTED : APP_DONE;
}

/* ---- What the server says ----------------------------------------------------------------------------- */

/* Copies the value of a header line to out. Returns false if it has another name. */
static bool header_is(const char *line, size_t n, const char *name, char *out, size_t capacity)
{
    const size_t length = strlen(name);
    if (n <= length || strncasecmp(line, name, length) || line[length] != ':') return false;
    line += length + 1;
    n -= length + 1;
    while (n && isspace((unsigned char)*line)) line++, n--;
    while (n && isspace((unsigned char)line[n - 1])) n--;
    snprintf(out, capacity, "%.*s", (int)(n < capacity ? n : capacity - 1), line);
    return true;
}

/* Returns the address in <https://...>; rel="next". */
static char *next_page(const char *link)
{
    for (const char *at = link; (at = strchr(at, '<')); at++) {
        const char *end = strchr(at, '>');
        if (!end) return NULL;
        const char *stop = strchr(end, '<');
        const size_t n = stop ? (size_t)(stop - end) : strlen(end);
        char attributes[128];
        snprintf(attributes, sizeof attributes, "%.*s", (int)(n < 127 ? n : 127), end);
        if (strstr(attributes, "rel=\"next\"")) return strndup(at + 1, (size_t)(end - at - 1));
    }
    return NULL;
}

static size_t on_header(char *line, size_t one, size_t n, void *user)
{
    transfer *t = user;
    char value[2048];
    n *= one;
    if (n > 5 && strncasecmp(line, "HTTP/", 5) == 0) { /* another answer begins, after a redirect or a try */
        t->has_range = false;
        t->range_from = t->range_total = t->length = 0;
        t->etag[0] = '\0';
        free(t->next);
        t->next = NULL;
    }
    if (header_is(line, n, "Content-Range", value, sizeof value)) {
        t->has_range = sscanf(value, "bytes %" SCNu64 "-%*u/%" SCNu64, &t->range_from, &t->range_total) >= 1;
    } else if (header_is(line, n, "Content-Length", value, sizeof value)) {
        t->length = strtoull(value, NULL, 10);
    } else if (header_is(line, n, "ETag", t->etag, sizeof t->etag)) {
        if (strncmp(t->etag, "W/", 2) == 0) t->etag[0] = '\0'; /* a weak ETag is not valid for ranges of bytes */
    } else if (header_is(line, n, "X-Linked-ETag", t->linked_etag, sizeof t->linked_etag)) {
        return n;
    } else if (header_is(line, n, "Link", value, sizeof value)) {
        free(t->next);
        t->next = next_page(value);
    }
    return n;
}

/* Copies the SHA-256 in an ETag, with or without quotes, to out. Returns false if it contains something else. */
static bool hash_in(const char *etag, char out[65])
{
    char text[FETCH_MAX_ETAG];
    if (strncmp(etag, "W/", 2) == 0) etag += 2;
    etag += *etag == '"';
    const size_t n = strlen(etag);
    snprintf(text, sizeof text, "%.*s", (int)(n && etag[n - 1] == '"' ? n - 1 : n), etag);
    return ae_sha256_read(out, text);
}

/* ---- Where it ends ------------------------------------------------------------------------------------- */

/* Sets t->extent to what the part's tables say so far. UNSUPPORTED: they cannot tell. */
static aerie_status read_tables(transfer *t, aerie_error *error)
{
    ae_file_map map;
    t->extent = (ae_gguf_extent){0};
    aerie_status status = ae_file_map_open(&map, t->part, true, error);
    if (status != AERIE_OK) return status;
    status = ae_gguf_extent_read(&t->extent, map.data, map.bytes, "the file", error);
    ae_file_map_close(&map);
    return status;
}

/* Checks a body of unknown length, which must not continue beyond the end that its tables give. Returns false after a message;
 * then nothing is kept. */
static bool check_bound(transfer *t)
{
    aerie_error error = {0};
    char url[256];
    shown_url(t->url, url);
    if (!t->extent.end && t->at >= (t->next_look ? t->next_look : FIRST_LOOK)) {
        const aerie_status status = read_tables(t, &error);
        t->next_look = 2 * t->at;
        if (status == AERIE_ERROR_UNSUPPORTED)
            t->failed = app_error(APP_BAD_FILE, "'%s' is sent without its length, and aerie cannot tell where it ends: %s", url,
                                  error.text);
        else if (status == AERIE_ERROR_IO || status == AERIE_ERROR_MEMORY) t->failed = app_report(APP_LOADING, status, &error);
        else if (status != AERIE_OK)
            t->failed = app_error(APP_BAD_FILE, "'%s' is not a complete GGUF file: %s", url, error.text);
        else if (!t->extent.end && t->at >= MAX_TABLES)
            t->failed = app_error(APP_BAD_FILE, "'%s' is sent without its length, and its tables do not end in 256 MiB", url);
        else if (!has_room(t, t->extent.end)) t->failed = no_room(t, ENOSPC);
    }
    if (!t->failed && t->extent.end && t->at > t->extent.padded)
        t->failed = app_error(APP_BAD_FILE,
                              "'%s' is sent without its length and continues after byte %" PRIu64
                              ", where its tables say that it ends; it is not kept",
                              url, t->extent.padded);
    if (t->failed) empty_part(t);
    return !t->failed;
}

/* Handles the answer's header before its first byte: where the bytes belong, and whether they can be the right ones. */
static bool check_head(transfer *t, long code)
{
    char hash[65], url[256];
    fetch_file *file = t->file;
    const uint64_t total = code == 206 ? t->range_total : t->length;
    t->checked = true;
    if (hash_in(t->linked_etag, hash)) {
        if (!*file->sha256) memcpy(file->sha256, hash, sizeof hash);
        else if (strcmp(hash, file->sha256))
            return t->failed =
                       app_error(APP_FAILED,
                                 "'%s' has SHA-256 %s on the server, but %s was expected; pull it again if the file has "
                                 "just been replaced",
                                 shown_url(t->url, url), hash, file->sha256),
                   false;
    } else if (*t->linked_etag && !*file->sha256) {
        app_note("'%s' comes with the hash '%s', which is not a SHA-256: only its length and its tables are checked",
                 shown_url(t->url, url), t->linked_etag);
    }
    if (total && file->bytes && total != file->bytes)
        return t->failed = app_error(APP_FAILED, "'%s' has %" PRIu64 " bytes on the server, but %" PRIu64 " were announced",
                                     shown_url(t->url, url), total, file->bytes),
               false;
    const bool other = t->at && !*file->sha256 && strcmp(t->etag, t->part_etag);
    if (code == 206 && (!t->has_range || t->range_from != t->at || other)) { /* not what was asked for */
        t->again = true;
        return false;
    }
    if (code == 200 && t->at && !restart_part(t)) return false;
    if (total && !file->bytes) file->bytes = total;
    memcpy(t->part_etag, t->etag, sizeof t->etag);
    return has_room(t, file->bytes) || (t->failed = no_room(t, ENOSPC), false);
}

static size_t on_bytes(char *bytes, size_t one, size_t n, void *user, CURL *curl)
{
    transfer *t = user;
    long code = 0;
    char url[256];
    n *= one;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    if (code != 200 && code != 206) return n; /* the body of an error response is ignored */
    if (t->text) {
        if (t->text->n + n > APP_MAX_TEXT)
            return t->failed = app_error(APP_FAILED, "'%s' answers with more than 64 MiB", shown_url(t->url, url)), 0;
        return app_text_add(t->text, bytes, n) ? n : (t->failed = app_error_memory("an answer"), 0);
    }
    if (!t->checked && !check_head(t, code)) return 0;
    if (t->file->bytes && t->at + n > t->file->bytes)
        return t->failed = app_error(APP_FAILED, "'%s' sends more than the %" PRIu64 " bytes that it announced",
                                     shown_url(t->url, url), t->file->bytes),
               0;
    return write_part(t, bytes, n) && (t->file->bytes || check_bound(t)) ? n : 0;
}

typedef struct bytes_target {
    transfer *t;
    CURL *curl;
} bytes_target;

static size_t on_body(char *bytes, size_t one, size_t n, void *user)
{
    bytes_target *target = user;
    return on_bytes(bytes, one, n, target->t, target->curl);
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up)
{
    transfer *t = user;
    (void)total, (void)now, (void)up_total, (void)up;
    if (t->file && t->file->bytes && !t->settings->quiet && isatty(STDERR_FILENO))
        app_progress_show(t->title, t->at, t->file->bytes, &t->shown);
    return app_interrupted();
}

/* ---- Attempts ------------------------------------------------------------------------------------------- */

/* Returns whether another try makes sense: after an error of the network, or a temporary error of the server. */
static bool is_passing(CURLcode rc, long code)
{
    switch (rc) {
    case CURLE_OK: return code == 408 || code == 416 || code == 425 || code == 429 || code >= 500;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return true;
    default: return false;
    }
}

static int refused(const transfer *t, CURLcode rc, long code, const char *detail)
{
    char url[256];
    shown_url(t->url, url);
    if (rc == CURLE_TOO_MANY_REDIRECTS)
        return app_error(APP_FAILED, "'%s' is redirected more than %d times", url, MAX_REDIRECTS);
    if (rc == CURLE_UNSUPPORTED_PROTOCOL) /* the address is the user's; source.c accepts only http and https */
        return app_error(APP_FAILED, "'%s' is redirected to another kind of address than the requested one (%s)", url, detail);
    if (rc != CURLE_OK) return app_error(APP_FAILED, "cannot fetch '%s': %s", url, *detail ? detail : curl_easy_strerror(rc));
    if (code == 401 || code == 403)
        return app_error(APP_FAILED, "'%s' is refused (HTTP %ld): it is private, gated, or not there; %s", url, code,
                         t->settings->token ? "the token may not read it" : "HF_TOKEN in the environment gives a token");
    if (code == 404 || code == 410) return app_error(APP_FAILED, "'%s' is not there (HTTP %ld)", url, code);
    return app_error(APP_FAILED, "cannot fetch '%s': the server answers HTTP %ld", url, code);
}

/* Waits before try `n` in a row without progress: a quarter of a second, doubled each time, or as long as the server wishes. */
static bool wait_before(unsigned n, long wish)
{
    double seconds = wish > 0 ? (double)wish : 0.25 * (double)(1u << (n < 8 ? n : 8)) / 2;
    if (seconds > MAX_WAIT_SECONDS) seconds = MAX_WAIT_SECONDS;
    const double end = app_now() + seconds;
    while (app_now() < end && !app_interrupted()) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    return !app_interrupted();
}

static struct curl_slist *add_header(struct curl_slist *list, bool *ok, const char *name, const char *value)
{
    char line[4096];
    const int n = snprintf(line, sizeof line, "%s: %s", name, value);
    struct curl_slist *grown = n > 0 && (size_t)n < sizeof line ? curl_slist_append(list, line) : NULL;
    *ok &= grown != NULL;
    return grown ? grown : list;
}

static void set_up(CURL *curl, transfer *t, bytes_target *target, char detail[CURL_ERROR_SIZE])
{
    const bool safe = strncasecmp(t->url, "https://", 8) == 0;
    curl_easy_setopt(curl, CURLOPT_URL, t->url);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, safe ? "https" : "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)t->settings->stall_seconds);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, target);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 262144L);
}

/* Makes one request, for the rest of the file if the part has bytes. */
static CURLcode attempt(CURL *curl, transfer *t, const char *accept, long *code, long *wish, char detail[CURL_ERROR_SIZE])
{
    bytes_target target = {t, curl};
    struct curl_slist *headers = NULL;
    char range[40], agent[64], bearer[2048];
    bool ok = true;
    curl_easy_reset(curl);
    detail[0] = '\0';
    t->begun = t->at;
    t->checked = t->again = t->conditional = false;
    if (t->text) t->text->n = 0;
    snprintf(agent, sizeof agent, "aerie/%s", aerie_version());
    set_up(curl, t, &target, detail);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, agent);
    if (accept) headers = add_header(headers, &ok, "Accept", accept);
    if (t->settings->token) { /* curl does not send it to another host after a redirect */
        ok &= snprintf(bearer, sizeof bearer, "Bearer %s", t->settings->token) < (int)sizeof bearer;
        headers = add_header(headers, &ok, "Authorization", bearer);
    }
    if (t->file && t->at) {
        snprintf(range, sizeof range, "%" PRIu64 "-", t->at);
        curl_easy_setopt(curl, CURLOPT_RANGE, range);
        if (!*t->file->sha256) headers = add_header(headers, &ok, "If-Range", t->part_etag);
    } else if (t->file && t->file->present && *t->file->etag) {
        t->conditional = true;
        headers = add_header(headers, &ok, "If-None-Match", t->file->etag);
    }
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    const CURLcode rc = ok ? curl_easy_perform(curl) : CURLE_OUT_OF_MEMORY;
    curl_off_t seconds = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, code);
    curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &seconds);
    *wish = seconds < MAX_WAIT_SECONDS ? (long)seconds : MAX_WAIT_SECONDS;
    curl_slist_free_all(headers);
    return rc;
}

/* Returns whether the attempt fetched everything. Handles the header of an empty body, for which the sink is never called. */
static bool is_complete(transfer *t, CURLcode rc, long code)
{
    if (rc != CURLE_OK) return false;
    if (code == 304 && t->conditional) return true;
    if (code == 416 && t->file && t->file->bytes && t->at == t->file->bytes) return true;
    if (code != 200 && code != 206) return false;
    return t->text || t->checked || check_head(t, code);
}

/* Tries until the transfer is complete. *code: that of the last answer. */
static int perform(transfer *t, const char *accept, long *code)
{
    char detail[CURL_ERROR_SIZE], url[256];
    CURL *curl = curl_easy_init();
    if (!curl) return app_error_memory("a transfer");
    unsigned n_useless = 0;
    for (;;) {
        long wish = 0;
        const CURLcode rc = attempt(curl, t, accept, code, &wish, detail);
        const bool complete = !t->failed && is_complete(t, rc, *code);
        if (t->file) app_progress_clear(&t->shown);
        if (app_interrupted()) t->failed = APP_INTERRUPTED;
        if (t->failed || complete) break;
        if (!t->again && !is_passing(rc, *code)) {
            t->failed = refused(t, rc, *code, detail);
            break;
        }
        const bool useful = t->at > t->farthest;
        if (useful) t->farthest = t->at;
        n_useless = useful ? 0 : n_useless + 1;
        if (n_useless > t->settings->n_retries) {
            t->failed = t->again ? app_error(APP_FAILED, "'%s': the server sends a part of the file that was not requested",
                                             shown_url(t->url, url))
                                 : refused(t, rc, *code, detail);
            break;
        }
        if (t->settings->verbose)
            app_note("'%s': %s; trying again", shown_url(t->url, url),
                     rc != CURLE_OK ? curl_easy_strerror(rc) : "the server is not ready");
        if (t->file && (t->again || *code == 416 || !(*t->file->sha256 || *t->part_etag)) && !restart_part(t)) break;
        if (!wait_before(n_useless, wish)) t->failed = APP_INTERRUPTED;
        if (t->failed) break;
    }
    curl_easy_cleanup(curl);
    return t->failed;
}

int fetch_text(app_text *out, char **next, const char *url, const char *accept, const fetch_settings *settings)
{
    transfer t = {.settings = settings, .url = url, .text = out, .fd = -1, .shown = -1};
    long code = 0;
    if (!app_text_add(out, "", 0)) return app_error_memory("an answer");
    const int bad = perform(&t, accept, &code);
    if (next) *next = bad ? NULL : t.next;
    if (bad || !next) free(t.next);
    return bad;
}

/* ---- Files --------------------------------------------------------------------------------------------- */

/* Checks a file without a known hash: it must be a GGUF file that ends where its tables say, and if it belongs to a split
 * model, the requested part. */
static int check_tables(transfer *t)
{
    aerie_error error = {0};
    char url[256];
    unsigned part, of;
    const aerie_status status = read_tables(t, &error);
    const ae_gguf_extent *e = &t->extent;
    shown_url(t->url, url);
    app_split_name(t->file->path, &part, &of);
    if (status == AERIE_ERROR_IO || status == AERIE_ERROR_MEMORY) return app_report(APP_LOADING, status, &error);
    if (status == AERIE_ERROR_UNSUPPORTED && t->file->bytes) {
        app_note("'%s': only its length was checked, since aerie does not know its tables: %s", url, error.text);
        return APP_DONE;
    }
    if (status != AERIE_OK) return app_error(APP_BAD_FILE, "'%s' is not a complete GGUF file: %s", url, error.text);
    if (!e->end || t->at < e->end)
        return app_error(APP_BAD_FILE, "'%s' is not a complete GGUF file: it ends after %" PRIu64 " bytes, %s", url, t->at,
                         e->end ? "before its last tensor does" : "within its tables");
    if (e->part != (part ? part : 1) || e->n_parts != (of ? of : 1))
        return app_error(APP_BAD_FILE, "'%s' is not the file that its name says: it is part %u of %u of a model", url, e->part,
                         e->n_parts);
    if (t->at > e->padded && t->file->bytes)
        app_note("'%s' has %" PRIu64 " bytes after the end of its tensors", url, t->at - e->padded);
    return APP_DONE;
}

/* Finishes a complete part: compares its hash, flushes it to the disk and renames it. */
static int put_in_place(transfer *t)
{
    fetch_file *file = t->file;
    if (fsync(t->fd)) return no_room(t, errno);
    if (rename(t->part, file->path))
        return app_error(APP_FAILED, "cannot move '%s' to '%s': %s", t->part, file->path, strerror(errno));
    char *slash = strrchr(t->part, '/');
    if (slash) {
        *slash = '\0';
        const int folder = open(t->part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder >= 0) {
            fsync(folder);
            close(folder);
        }
        *slash = '/';
    }
    snprintf(file->etag, sizeof file->etag, "%s", t->etag);
    return APP_DONE;
}

/* Compares the part with what is known about the file. *again: it was continued, for the first time, from bytes that may be
 * wrong. */
static int check_part(transfer *t, bool *again, bool once_more)
{
    char found[65], url[256];
    fetch_file *file = t->file;
    ae_sha256 hash = t->hash;
    ae_sha256_end(&hash, found);
    *again = t->begun > 0 && !once_more;
    if (file->bytes && t->at != file->bytes)
        return app_error(APP_FAILED, "'%s' ends after %" PRIu64 " of %" PRIu64 " bytes", shown_url(t->url, url), t->at,
                         file->bytes);
    if (*file->sha256 && strcmp(found, file->sha256)) {
        if (*again) return APP_FAILED;
        return app_error(APP_FAILED, "'%s' has the SHA-256 %s, but %s was expected; it is not kept%s", shown_url(t->url, url),
                         found, file->sha256,
                         once_more ? ". It was fetched twice: does the server have two versions of it?" : "");
    }
    *again = false;
    const int bad = *file->sha256 ? APP_DONE : check_tables(t);
    if (!bad) {
        memcpy(file->sha256, found, sizeof found);
        file->bytes = t->at;
    }
    return bad;
}

static int get(transfer *t)
{
    long code = 0;
    fetch_file *file = t->file;
    int bad = open_part(t);
    bool once_more = false;
    for (bool again = true; !bad && again;) {
        again = false;
        if (!file->bytes || t->at < file->bytes) bad = perform(t, NULL, &code);
        else t->begun = t->at;
        struct stat there;
        if (bad && t->fd >= 0 && fstat(t->fd, &there) == 0 && (there.st_size == 0 || !t->kept))
            unlink(t->part); /* nothing to continue */
        if (bad) return bad;
        if (code == 304) return unlink(t->part) ? APP_FAILED : APP_DONE; /* it is there already */
        bad = check_part(t, &again, once_more);
        once_more = true;
        if (bad && !again) unlink(t->part);
        if (again) {
            if (!t->settings->quiet)
                app_note("'%s' does not continue what an earlier pull left; it is fetched from the start", file->path);
            bad = restart_part(t) ? APP_DONE : APP_FAILED;
        }
    }
    return bad ? bad : put_in_place(t);
}

int fetch_file_get(fetch_file *file, const fetch_settings *settings)
{
    const char *slash = strrchr(file->path, '/');
    transfer t = {.settings = settings, .url = file->url, .file = file, .fd = -1, .shown = -1};
    char size[32];
    snprintf(t.title, sizeof t.title, "%.50s", slash ? slash + 1 : file->path);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit on file sizes then fails */
    if (!settings->quiet && (settings->verbose || !isatty(STDERR_FILENO)))
        app_note("fetching '%s'%s%s", t.title, file->bytes ? ", " : "", file->bytes ? app_bytes(size, file->bytes) : "");
    const int bad = get(&t);
    app_progress_clear(&t.shown);
    if (t.fd >= 0) close(t.fd);
    free(t.part);
    free(t.next);
    return bad;
}

#endif
