/* keys.c - API keys, and lists of hosts and origins. */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/sha256.h"
#include "serve/http/connections.h"
#include "serve/http/http.h"

/* ---- Keys ------------------------------------------------------------------------------------------------- */

enum { KEY_BYTES = 512 };

static int check_length(size_t n, const char *source)
{
    if (n && n < KEY_BYTES) return APP_DONE;
    return app_error(APP_USAGE, "%s: a key must have 1 to %d bytes; found %zu", source, KEY_BYTES - 1, n);
}

static int add_key(serve_keys *keys, const char *text, size_t n, const char *source)
{
    const int bad = check_length(n, source);
    if (bad) return bad;
    char(*grown)[KEY_BYTES] = app_grow(keys->items, keys->n, &keys->capacity, KEY_BYTES);
    if (!grown) return app_error_memory("the API keys");
    keys->items = grown;
    memset(grown[keys->n], 0, KEY_BYTES);
    memcpy(grown[keys->n++], text, n);
    return APP_DONE;
}

static int add_list(serve_keys *keys, const char *list)
{
    int bad = APP_DONE;
    for (const char *at = list; !bad; at++) {
        const size_t n = strcspn(at, ",");
        bad = add_key(keys, at, n, "--api-key");
        at += n;
        if (!*at) break;
    }
    return bad;
}

static int add_file(serve_keys *keys, const char *path)
{
    app_text text = {0};
    const char *line;
    size_t n;
    int bad = app_read_file(&text, path);
    for (size_t at = 0; !bad && app_next_line(&text, &at, &line, &n);) {
        while (n && (line[n - 1] == ' ' || line[n - 1] == '\t')) n--;
        if (n && line[0] != '#') bad = add_key(keys, line, n, path);
    }
    if (text.data) memset(text.data, 0, text.n);
    app_text_free(&text);
    if (!bad && !keys->n) return app_error(APP_BAD_FILE, "'%s' contains no API key", path);
    return bad;
}

/* Refuses an empty environment variable. An empty option means "none", but here it is probably a secret that was not set. */
static int refuse_empty(const char *variable)
{
    const char *value = getenv(variable);
    if (!value || *value) return APP_DONE;
    return app_error(APP_USAGE, "%s (environment) is empty; unset it to serve without that key", variable);
}

static int read_metrics_key(serve_keys *keys, const char *key)
{
    const int bad = key ? check_length(strlen(key), "--metrics-key") : refuse_empty("AERIE_METRICS_KEY");
    if (bad || !key) return bad;
    keys->metrics = calloc(1, sizeof *keys->metrics);
    if (!keys->metrics) return app_error_memory("the metrics key");
    memcpy(keys->metrics[0], key, strlen(key));
    return APP_DONE;
}

int serve_keys_read(serve_keys *keys, const app_serve_options *o)
{
    int bad = APP_DONE;
    for (size_t i = 0; !bad && i < o->api_keys.n; i++) bad = add_list(keys, o->api_keys.items[i]);
    if (!bad && o->api_key_file) bad = add_file(keys, o->api_key_file);
    if (!bad && !keys->n) bad = refuse_empty("AERIE_API_KEY");
    if (!bad && !keys->n) bad = refuse_empty("AERIE_API_KEY_FILE");
    if (!bad) bad = read_metrics_key(keys, o->metrics_key);
    if (bad || !keys->n) return bad;
    keys->n_running = calloc(keys->n, sizeof *keys->n_running);
    return keys->n_running ? APP_DONE : app_error_memory("the API keys");
}

void serve_keys_free(serve_keys *keys)
{
    free(keys->items);
    free(keys->n_running);
    free(keys->metrics);
    *keys = (serve_keys){0};
}

/* Returns the index of the presented key; SIZE_MAX: unknown. Compares all keys even after a match, so that the time is
 * constant. */
static size_t find(const char (*keys)[KEY_BYTES], size_t n_keys, const char *presented)
{
    char given[KEY_BYTES] = {0};
    size_t found = SIZE_MAX;
    const size_t n = presented ? strlen(presented) : 0;
    if (n == 0 || n >= KEY_BYTES) return SIZE_MAX;
    memcpy(given, presented, n);
    for (size_t i = 0; i < n_keys; i++) { /* compares every byte of every key */
        volatile unsigned differ = 0;
        for (size_t k = 0; k < KEY_BYTES; k++) differ |= (unsigned)(given[k] ^ keys[i][k]);
        const size_t mask = (size_t)0 - (size_t)(differ == 0);
        found = (found & ~mask) | (i & mask);
    }
    return found;
}

/* Returns whether a key's requests must be hidden from the other keys. */
static bool are_apart(const serve_server *server)
{
    return server->keys.n > 1 && !(server->o->prefix_scope && strcmp(server->o->prefix_scope, "all") == 0);
}

bool serve_keys_allow(serve_call *call, const char *presented, serve_error *e)
{
    const serve_keys *keys = &call->server->keys;
    const serve_route *route = call->route;
    const serve_access access = route ? route->access : SERVE_FOR_KEYS;
    const bool watches = access == SERVE_FOR_WATCHERS;
    if (access == SERVE_FOR_ALL || (!keys->n && !(watches && keys->metrics))) return true;
    call->i_key = find((const char(*)[KEY_BYTES])keys->items, keys->n, presented);
    const bool is_watcher = find((const char(*)[KEY_BYTES])keys->metrics, keys->metrics != NULL, presented) == 0;
    if (call->i_key == SIZE_MAX && !is_watcher) {
        e->code = "invalid_api_key";
        return serve_fail(e, 401, "",
                          presented ? "the API key is wrong"
                                    : "an API key is required: Authorization: Bearer KEY, or x-api-key: KEY");
    }
    if (watches && !is_watcher && keys->metrics)
        return serve_fail(e, 403, "", "%s shows all requests: it requires the key given with --metrics-key", call->path);
    if (watches && !is_watcher && are_apart(call->server))
        return serve_fail(e, 403, "", "%s shows all requests: with several API keys it requires a separate key "
                          "(--metrics-key)", call->path);
    if (access == SERVE_FOR_KEYS && call->i_key == SIZE_MAX)
        return serve_fail(e, 403, "", "the key given with --metrics-key is only for GET /metrics and /slots");
    return true;
}

uint64_t serve_keys_client(const serve_call *call)
{
    const struct serve_connection *c = call->of;
    if (call->i_key != SIZE_MAX) return 1 + call->i_key;
    if (!c || !c->who[0]) return 0;
    uint64_t x = c->who[1] * 4 + c->who[0]; /* mixed as in splitmix64, far from the numbers of keys */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (x ^ x >> 31) | (uint64_t)1 << 63;
}

uint64_t serve_keys_scope(const serve_server *server, size_t i_key, const char *salt)
{
    static const char purpose[] = "aerie scope";
    const bool by_key = are_apart(server) && i_key != SIZE_MAX;
    if (!by_key && !salt) return 0;
    ae_sha256 hash;
    char digits[65];
    ae_sha256_start(&hash);
    ae_sha256_add(&hash, purpose, sizeof purpose);
    if (by_key) ae_sha256_add(&hash, server->keys.items[i_key], KEY_BYTES);
    if (salt) ae_sha256_add(&hash, salt, strlen(salt));
    ae_sha256_end(&hash, digits);
    digits[16] = '\0';
    const uint64_t scope = strtoull(digits, NULL, 16);
    return scope ? scope : 1;
}

/* ---- Lists ------------------------------------------------------------------------------------------------ */

static bool list_has(const char *list, const char *name, size_t n)
{
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        at += strspn(at, " ");
        size_t length = strcspn(at, ",");
        while (length && at[length - 1] == ' ') length--;
        if (length == 1 && *at == '*') return true;
        if (length == n && n && strncasecmp(at, name, n) == 0) return true;
    }
    return false;
}

/* Returns the length of the host name in "name:port" or "[address]:port"; it begins at *name. */
static size_t host_name(const char *host, const char **name)
{
    *name = host + (*host == '[');
    return *host == '[' ? strcspn(*name, "]") : strcspn(host, ":");
}

static bool is_address(const char *name, size_t n)
{
    char text[64];
    struct in6_addr out;
    if (n >= sizeof text) return false;
    snprintf(text, sizeof text, "%.*s", (int)n, name);
    return inet_pton(AF_INET, text, &out) == 1 || inet_pton(AF_INET6, text, &out) == 1;
}

static bool is_localhost(const char *name, size_t n)
{
    static const char local[] = "localhost";
    const size_t length = sizeof local - 1;
    return n >= length && strncasecmp(name + n - length, local, length) == 0 && (n == length || name[n - length - 1] == '.');
}

/* Guards against DNS rebinding: a web page can make its own host name resolve to 127.0.0.1, but then the Host header holds that
 * name instead of an address.
 */
bool serve_host_allowed(const serve_server *server, const char *host)
{
    const char *name;
    const size_t n = host_name(host, &name);
    const char *list = server->o->allowed_hosts;
    if (!list && !server->loopback) return true;
    if (is_address(name, n) || is_localhost(name, n) || (list && list_has(list, name, n))) return true;
    return server->o->host && strlen(server->o->host) == n && strncasecmp(server->o->host, name, n) == 0;
}

/* Browsers send no Origin for <img src=...> and similar requests, but Sec-Fetch-Site says whether the page is from another
 * site.
 * Following a link is allowed. */
bool serve_site_allowed(const serve_server *server, const char *site, const char *mode, bool open)
{
    const char *list = server->o->cors_origins;
    if (strcmp(site, "cross-site") && strcmp(site, "same-site")) return true;
    if (open && mode && strcmp(mode, "navigate") == 0) return true;
    return list && list_has(list, "*", 1);
}

bool serve_origin_allowed(const serve_server *server, const char *origin, const char *host, bool *cors)
{
    const char *list = server->o->cors_origins, *site = strstr(origin, "://");
    *cors = !host || !site || strcasecmp(site + 3, host) != 0;
    if (!*cors) return true;
    return list && list_has(list, origin, strlen(origin));
}
