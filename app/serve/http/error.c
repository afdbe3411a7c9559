/* error.c - errors of requests, ids and JSON for answers (server.h).
 *
 * Owns nothing: an error belongs to its request, and each dialect writes it in its own format.
 */
#define _POSIX_C_SOURCE 200809L
#include "serve/http/server.h"

#include <jansson.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

bool serve_fail(serve_error *error, int status, const char *param, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error->status = status;
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    snprintf(error->param, sizeof error->param, "%s", param);
    return false;
}

bool serve_fail_not_ready(serve_error *error, int retry_after, const char *why)
{
    error->retry_after = retry_after;
    error->not_ready = true;
    return serve_fail(error, 503, "", "%s", why);
}

bool serve_fail_memory(serve_error *error)
{
    error->retry_after = 1;
    error->memory = true;
    return serve_fail(error, 503, "", "there is not enough memory for this request now");
}

bool serve_fail_library(serve_error *error, aerie_status status, const aerie_error *why, const char *param)
{
    const char *text = why && why->status == status && *why->text ? why->text : aerie_status_text(status);
    switch (status) {
    case AERIE_ERROR_LIMIT:
        if (strstr(text, "context")) error->code = "context_length_exceeded";
        return serve_fail(error, 400, param, "%s", text);
    case AERIE_ERROR_ARGUMENT:
    case AERIE_ERROR_FORMAT:
    case AERIE_ERROR_UNSUPPORTED: return serve_fail(error, 400, param, "%s", text);
    case AERIE_ERROR_BUSY:
    case AERIE_ERROR_MEMORY: error->retry_after = 1; return serve_fail(error, 503, param, "%s", text);
    default: return serve_fail(error, 500, param, "%s", text);
    }
}

const char *serve_error_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 500: return "server_error";
    case 501: return "not_supported_error";
    case 503: return "unavailable_error";
    default: return "invalid_request_error";
    }
}

const char *serve_id(serve_server *server, const char *prefix, char out[48])
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t state = (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec << 20 ^
                     atomic_fetch_add(&server->n_ids, 1) << 44 ^ (uint64_t)getpid();
    const size_t n = (size_t)snprintf(out, 20, "%s", prefix);
    for (size_t i = 0; i < 24; i++) {
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        out[n + i] = letters[(z ^ z >> 31) % (sizeof letters - 1)];
    }
    out[n + 24] = '\0';
    return out;
}

typedef struct growing {
    app_text *text;
    bool failed; /* stays set, because jansson continues after a key could not be added */
} growing;

static int append(const char *bytes, size_t n, void *user)
{
    growing *g = user;
    g->failed = g->failed || !app_text_add(g->text, bytes, n);
    return g->failed ? -1 : 0;
}

bool serve_json_add(app_text *out, json_t *json)
{
    const size_t n = out->n, flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9);
    growing g = {.text = out};
    const bool ok = json && json_dump_callback(json, append, &g, flags) == 0 && !g.failed;
    json_decref(json);
    if (!ok && out->data) out->data[out->n = n] = '\0';
    return ok;
}

const char *serve_fingerprint(void)
{
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
    return "aerie-" TEXT(AERIE_VERSION_MAJOR) "." TEXT(AERIE_VERSION_MINOR) "." TEXT(AERIE_VERSION_PATCH);
}
