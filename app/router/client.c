/* client.c - implements client.h. */
#define _POSIX_C_SOURCE 200809L
#include "router/client.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifndef APP_CURL

bool client_possible(void)
{
    return false;
}

/* client_possible returns false in a build without libcurl, so these are never called. */
client *client_start(const router_target *target, const client_request *request)
{
    (void)target, (void)request;
    return NULL;
}

client_state client_step(client *c, double seconds)
{
    (void)c, (void)seconds;
    return CLIENT_LOST;
}

void client_pause(client *c)
{
    (void)c;
}

void client_resume(client *c)
{
    (void)c;
}

int client_status(const client *c)
{
    (void)c;
    return 0;
}

const char *client_type(const client *c)
{
    (void)c;
    return "";
}

int client_retry_after(const client *c)
{
    (void)c;
    return 0;
}

bool client_not_ready(const client *c)
{
    (void)c;
    return false;
}

const char *client_why(const client *c)
{
    (void)c;
    return "";
}

void client_end(client *c)
{
    (void)c;
}

#else

#include <curl/curl.h>

enum { CONNECT_SECONDS = 5, OK = 200 };

struct client {
    CURL *easy;
    CURLM *multi;
    struct curl_slist *headers;
    client_request request;
    char url[1024];
    int status; /* status of the final header */
    int retry_after;
    bool not_ready;
    char type[96];
    bool is_paused, got;
    client_state state;
    char why[CURL_ERROR_SIZE];
};

bool client_possible(void)
{
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

/* Receives a line of the header, the last of which is empty. Interim answers (1xx) come before the final header. */
static size_t on_header(char *line, size_t size, size_t n, void *user)
{
    client *c = user;
    long status = 0;
    static const char type[] = "content-type:", retry[] = "retry-after:", ready[] = "aerie-ready: no";
    n *= size;
    if (n > sizeof type && strncasecmp(line, type, sizeof type - 1) == 0) {
        const char *at = line + sizeof type - 1, *end = line + n;
        while (at < end && *at == ' ') at++;
        while (end > at && strchr("\r\n ", end[-1])) end--;
        snprintf(c->type, sizeof c->type, "%.*s", (int)(end - at), at);
    } else if (n > sizeof retry && strncasecmp(line, retry, sizeof retry - 1) == 0) {
        c->retry_after = (int)strtol(line + sizeof retry - 1, NULL, 10);
    } else if (n > sizeof ready && strncasecmp(line, ready, sizeof ready - 1) == 0) {
        c->not_ready = true;
    } else if (n <= 2 && curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK && status >= OK) {
        c->status = (int)status;
        c->got = true;
    }
    return n;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user)
{
    client *c = user;
    n *= size;
    if (c->is_paused) return CURL_WRITEFUNC_PAUSE;
    c->got = true;
    return c->request.sink(c->request.user, bytes, n) ? n : 0;
}

#define SET(option, value) (ok = ok && curl_easy_setopt(c->easy, option, value) == CURLE_OK)

static bool set_up(client *c, const router_target *target)
{
    const client_request *q = &c->request;
    bool ok = true;
    snprintf(c->url, sizeof c->url, "%s%s", target->base, q->path);
    SET(CURLOPT_URL, c->url);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_PROXY, ""); /* servers are on the local network, so http_proxy of the environment does not apply */
    SET(CURLOPT_ERRORBUFFER, c->why);
    SET(CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_BUFFERSIZE, 16384L);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, c);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, c);
    SET(CURLOPT_HTTPHEADER, c->headers);
    if (target->path) SET(CURLOPT_UNIX_SOCKET_PATH, target->path);
    if (q->seconds > 0) SET(CURLOPT_TIMEOUT_MS, (long)(q->seconds * 1e3));
    if (strcmp(q->method, "POST") == 0) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->n_body);
        SET(CURLOPT_POSTFIELDS, q->body ? q->body : "");
    }
    return ok && curl_multi_add_handle(c->multi, c->easy) == CURLM_OK;
}

client *client_start(const router_target *target, const client_request *request)
{
    client *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->request = *request;
    c->easy = curl_easy_init();
    c->multi = curl_multi_init();
    bool ok = c->easy && c->multi;
    for (size_t i = 0; ok && i < request->n_headers; i++) {
        struct curl_slist *more = curl_slist_append(c->headers, request->headers[i]);
        ok = more != NULL;
        if (ok) c->headers = more;
    }
    if (ok && set_up(c, target)) return c;
    client_end(c);
    return NULL;
}

static void read_end(client *c)
{
    int n;
    CURLMsg *m;
    while ((m = curl_multi_info_read(c->multi, &n))) {
        if (m->msg != CURLMSG_DONE) continue;
        c->state = m->data.result == CURLE_OK ? CLIENT_ENDED : CLIENT_LOST;
        if (c->state == CLIENT_LOST && !c->why[0]) snprintf(c->why, sizeof c->why, "%s", curl_easy_strerror(m->data.result));
    }
}

client_state client_step(client *c, double seconds)
{
    int n_running;
    c->got = false;
    if (c->state != CLIENT_RUNS) return c->state;
    if (curl_multi_perform(c->multi, &n_running) != CURLM_OK) c->state = CLIENT_LOST;
    read_end(c);
    if (c->state != CLIENT_RUNS || c->got || c->is_paused) return c->state;
    if (curl_multi_poll(c->multi, NULL, 0, (int)(seconds * 1e3), NULL) != CURLM_OK ||
        curl_multi_perform(c->multi, &n_running) != CURLM_OK)
        c->state = CLIENT_LOST;
    read_end(c);
    return c->state;
}

void client_pause(client *c)
{
    c->is_paused = true;
}

void client_resume(client *c)
{
    if (!c->is_paused) return;
    c->is_paused = false;
    curl_easy_pause(c->easy, CURLPAUSE_CONT);
}

int client_status(const client *c)
{
    return c->status;
}

const char *client_type(const client *c)
{
    return c->type;
}

int client_retry_after(const client *c)
{
    return c->retry_after;
}

bool client_not_ready(const client *c)
{
    return c->not_ready;
}

const char *client_why(const client *c)
{
    return c->why[0] ? c->why : "the connection was lost";
}

void client_end(client *c)
{
    if (!c) return;
    if (c->multi && c->easy) curl_multi_remove_handle(c->multi, c->easy);
    curl_easy_cleanup(c->easy);
    curl_multi_cleanup(c->multi);
    curl_slist_free_all(c->headers);
    free(c);
}

#endif
