/* keys.c - API keys, and lists of hosts and origins. */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/http.h"

/* ---- Keys ------------------------------------------------------------------------------------------------- */

enum { KEY_BYTES = 512 };

static int add_key(serve_keys *keys, const char *text, size_t n, const char *source)
{
    if (n == 0 || n >= KEY_BYTES)
        return app_error(APP_USAGE, "%s: an API key has 1 to %d bytes; found one of %zu", source, KEY_BYTES - 1, n);
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
    if (!bad && !keys->n) return app_error(APP_BAD_FILE, "'%s' holds no API key", path);
    return bad;
}

/* A variable that is set to nothing means elsewhere that nothing is wanted; here it is a secret that was not filled in. */
static int refuse_empty(const char *variable)
{
    const char *value = getenv(variable);
    if (!value || *value) return APP_DONE;
    return app_error(APP_USAGE, "%s (environment) is empty; unset it to serve without a key", variable);
}

int serve_keys_read(serve_keys *keys, const app_serve_options *o)
{
    int bad = APP_DONE;
    for (size_t i = 0; !bad && i < o->api_keys.n; i++) bad = add_list(keys, o->api_keys.items[i]);
    if (!bad && o->api_key_file) bad = add_file(keys, o->api_key_file);
    if (!bad && !keys->n) bad = refuse_empty("AERIE_API_KEY");
    if (!bad && !keys->n) bad = refuse_empty("AERIE_API_KEY_FILE");
    if (bad || !keys->n) return bad;
    keys->n_running = calloc(keys->n, sizeof *keys->n_running);
    return keys->n_running ? APP_DONE : app_error_memory("the API keys");
}

void serve_keys_free(serve_keys *keys)
{
    free(keys->items);
    free(keys->n_running);
    *keys = (serve_keys){0};
}

size_t serve_keys_find(const serve_keys *keys, const char *presented)
{
    char given[KEY_BYTES] = {0};
    size_t found = SIZE_MAX;
    const size_t n = presented ? strlen(presented) : 0;
    if (n == 0 || n >= KEY_BYTES) return SIZE_MAX;
    memcpy(given, presented, n);
    for (size_t i = 0; i < keys->n; i++) { /* every byte of every key, whatever has been found */
        volatile unsigned differ = 0;
        for (size_t k = 0; k < KEY_BYTES; k++) differ |= (unsigned)(given[k] ^ keys->items[i][k]);
        const size_t mask = (size_t)0 - (size_t)(differ == 0);
        found = (found & ~mask) | (i & mask);
    }
    return found;
}

/* ---- Lists ------------------------------------------------------------------------------------------------ */

bool serve_list_has(const char *list, const char *name, size_t n)
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

/* Bytes of the host's name in "name:port" or "[address]:port", from *name on. */
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

/* A page of another site can have its own name lead to 127.0.0.1 (DNS rebinding): such a name is no address. */
bool serve_host_allowed(const serve_server *server, const char *host)
{
    const char *name;
    const size_t n = host_name(host, &name);
    const char *list = server->o->allowed_hosts;
    if (!list && !server->loopback) return true;
    if (is_address(name, n) || is_localhost(name, n) || (list && serve_list_has(list, name, n))) return true;
    return server->o->host && strlen(server->o->host) == n && strncasecmp(server->o->host, name, n) == 0;
}

bool serve_origin_allowed(const serve_server *server, const char *origin, const char *host, bool *cors)
{
    const char *list = server->o->cors_origins, *site = strstr(origin, "://");
    *cors = !host || !site || strcasecmp(site + 3, host) != 0;
    if (!*cors) return true;
    return list && serve_list_has(list, origin, strlen(origin));
}
