/* http.c - implements http.h: connections, limits, headers, replies. The listening socket and the main loop are in listen.c. */
#define _GNU_SOURCE /* POLLRDHUP */
#include "serve/http/http.h"
#include "serve/page/page.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "serve/http/connections.h"

enum { MAX_DISCARDED = 64 << 20, BLOCK_BYTES = 16384, LARGE_BODY = 256 * 1024, HEAVY_BODY = 1 << 20, HEAVY_NICE = 10,
       WAIT_FOR_BODY_MS = 500 };

/* ---- Replies -------------------------------------------------------------------------------------------- */

void serve_reply(serve_call *call, int status, const char *type, app_text *text)
{
    call->replied = true;
    call->status = status;
    call->type = type;
    app_text_free(&call->text);
    call->text = *text;
    *text = (app_text){0};
}

void serve_reply_json(serve_call *call, int status, json_t *json)
{
    app_text text = {0};
    static const char full[] = "{\"error\":{\"message\":\"not enough memory\",\"type\":\"server_error\",\"param\":null,"
                               "\"code\":null}}";
    if (!serve_json_add(&text, json) || (status == 200 && app_json_lacked())) {
        app_text_free(&text);
        status = 503;
        call->retry_after = 1;
        app_text_add(&text, full, sizeof full - 1);
    }
    serve_reply(call, status, "application/json", &text);
}

static json_t *openai_error(const serve_error *e)
{
    return json_pack("{s:{s:o, s:s, s:o, s:o}}", "error", "message", app_json_text(e->text, strlen(e->text)), "type",
                     serve_error_type(e->status), "param", *e->param ? json_string(e->param) : json_null(), "code",
                     e->code ? json_string(e->code) : json_null());
}

void serve_memory_say(const serve_call *call, serve_error *error)
{
    if (error->memory && atomic_load(&call->use.refused))
        serve_fail(error, 503, "", "the memory limit for requests is reached (--max-request-memory): this request needs more "
                   "than what is left of %llu MiB; try again later, or send a smaller request",
                   atomic_load(&call->use.of->most) >> 20);
}

void serve_reply_error(serve_call *call, const serve_error *why)
{
    serve_error said = *why, *error = &said;
    if (error->status < 500 && (app_json_lacked() || atomic_load(&call->use.refused)))
        serve_fail_memory(error); /* the request may be valid: it failed because memory was short */
    serve_memory_say(call, error);
    call->retry_after = error->retry_after;
    call->not_ready = error->not_ready;
    app_json_lacked();
    serve_error_shape *shape = call->path ? serve_route_shape(call->path) : NULL;
    serve_reply_json(call, error->status, shape ? shape(error) : openai_error(error));
}

void serve_reply_stream(serve_call *call, const char *type, serve_read *read, void (*release)(void *), void *user)
{
    serve_reply_sized(call, type, UINT64_MAX, read, release, user);
}

void serve_reply_sized(serve_call *call, const char *type, uint64_t size, serve_read *read, void (*release)(void *), void *user)
{
    call->replied = true;
    call->status = 200;
    call->type = type;
    call->size = size;
    call->read = read;
    call->release = release;
    call->user = user;
}

/* ---- Letting go ----------------------------------------------------------------------------------------- */

void serve_reply_may_let_go(serve_call *call, void (*let_go)(void *user))
{
    serve_server *server = call->server;
    pthread_mutex_init(&call->reading, NULL);
    call->let_go = let_go;
    pthread_mutex_lock(&server->sending_lock);
    call->next_sending = server->sending;
    call->sending = &server->sending;
    if (call->next_sending) call->next_sending->sending = &call->next_sending;
    server->sending = call;
    pthread_mutex_unlock(&server->sending_lock);
}

/* Waits for a let_go that is running. */
static void leave_sending(serve_call *call)
{
    if (!call->let_go) return;
    pthread_mutex_lock(&call->server->sending_lock);
    *call->sending = call->next_sending;
    if (call->next_sending) call->next_sending->sending = call->sending;
    pthread_mutex_unlock(&call->server->sending_lock);
    pthread_mutex_destroy(&call->reading);
    call->let_go = NULL;
}

void serve_calls_let_go(serve_server *server, const void *model)
{
    pthread_mutex_lock(&server->sending_lock);
    for (serve_call *call = server->sending; call; call = call->next_sending) {
        if (pthread_mutex_trylock(&call->reading)) continue; /* its client reads */
        app_json_account(serve_use_json, &call->use);
        if (call->uses == model) call->let_go(call->user);
        app_json_account(NULL, NULL);
        pthread_mutex_unlock(&call->reading);
    }
    pthread_mutex_unlock(&server->sending_lock);
}

/* ---- Requests while they are answered ------------------------------------------------------------------- */

const char *serve_call_query(const serve_call *call, const char *name)
{
    return MHD_lookup_connection_value(call->connection, MHD_GET_ARGUMENT_KIND, name);
}

/* Checks whether a half-closed client is still there. A client that has only stopped sending looks like one that is gone, until
 * something is sent to it: one that is gone responds with a reset. So this sends an interim response, which is allowed at any
 * time before the answer, but not to HTTP/1.0. */
static void probe(const serve_call *call, double now)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    serve_connection *c = call->of;
    if (!c->half_closed) c->next_probe = now + SERVE_PROBE_SECONDS;
    c->half_closed = true;
    if (now < c->next_probe) return;
    c->next_probe = now + SERVE_PROBES_SECONDS;
    if (call->replied || !call->interim) return; /* sending the answer serves as the probe */
    if (send(call->socket, interim, sizeof interim - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) { /* the next poll reports it */
    }
}

bool serve_call_gone(const serve_call *call)
{
    struct pollfd fd = {.fd = call->socket, .events = POLLRDHUP};
    if (poll(&fd, 1, 0) <= 0) return false;
    if (!call->of || fd.revents & (POLLHUP | POLLERR | POLLNVAL)) return true;
    probe(call, app_now());
    fd.events = 0;
    return poll(&fd, 1, 0) > 0;
}

bool serve_call_half_closed(const serve_call *call)
{
    return call->of && call->of->half_closed;
}

const char *serve_call_header(const serve_call *call, const char *name)
{
    return MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, name);
}

/* Returns whether the answer is generated while it is sent. */
static bool is_stream(const serve_call *call)
{
    return call->read && call->size == UINT64_MAX;
}

/* Stops counting the call among its key's requests. The answer is complete, though perhaps not sent yet. */
static void uncount(serve_call *call)
{
    if (call->counted) atomic_fetch_sub(&call->server->keys.n_running[call->i_key], 1);
    call->counted = false;
}

static ssize_t on_read(void *user, uint64_t position, char *out, size_t most)
{
    serve_call *call = user;
    (void)position;
    if (call->let_go) pthread_mutex_lock(&call->reading);
    const ptrdiff_t n = call->read(call->user, out, most);
    if (call->let_go) pthread_mutex_unlock(&call->reading);
    if (n > 0) return n;
    uncount(call);
    if (n == 0) serve_connection_deadline(call->of, call->server->o->timeout);
    return n == 0 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

static bool add(struct MHD_Response *response, const char *name, const char *value)
{
    return MHD_add_response_header(response, name, value) == MHD_YES;
}

/* Returns false if memory is short, because an answer must not be sent without its type or its policy. */
static bool add_headers(const serve_call *call, struct MHD_Response *response)
{
    char number[24];
    bool cors = false, ok = true;
    const char *origin = serve_call_header(call, "Origin");
    ok &= add(response, "Server", "aerie");
    ok &= add(response, "X-Content-Type-Options", "nosniff");
    ok &= add(response, "X-Request-Id", call->id);
    ok &= add(response, "Content-Type", call->type);
    if (call->read || strncmp(call->type, "text/html", 9)) ok &= add(response, "Cache-Control", "no-store");
    if (is_stream(call)) ok &= add(response, "X-Accel-Buffering", "no");
    if (call->allow) ok &= add(response, "Allow", call->allow);
    if (call->status == 401) ok &= add(response, "WWW-Authenticate", "Bearer");
    if (strncmp(call->type, "text/html", 9) == 0) {
        ok &= add(response, "Content-Security-Policy", SERVE_PAGE_POLICY);
        ok &= add(response, "Referrer-Policy", "no-referrer");
        ok &= add(response, "X-Frame-Options", "DENY");
    }
    if (call->retry_after) {
        snprintf(number, sizeof number, "%d", call->retry_after);
        ok &= add(response, "Retry-After", number);
    }
    if (call->not_ready) ok &= add(response, "Aerie-Ready", "no");
    if (origin && serve_origin_allowed(call->server, origin, call->host, &cors) && cors) {
        ok &= add(response, "Access-Control-Allow-Origin", origin);
        ok &= add(response, "Vary", "Origin");
        if (strcmp(call->method, "OPTIONS") == 0) {
            ok &= add(response, "Access-Control-Allow-Methods", "GET, POST");
            ok &= add(response, "Access-Control-Allow-Headers",
                      "Authorization, Content-Type, x-api-key, anthropic-version, anthropic-beta");
            ok &= add(response, "Access-Control-Max-Age", "600");
        }
    }
    if (call->closes || atomic_load(&call->server->draining)) ok &= add(response, "Connection", "close");
    return ok;
}

static enum MHD_Result send_reply(serve_call *call)
{
    struct MHD_Response *response;
    if (call->read) /* UINT64_MAX has the value of MHD_SIZE_UNKNOWN */
        response = MHD_create_response_from_callback(call->size, BLOCK_BYTES, on_read, call, NULL);
    else
        response = MHD_create_response_from_buffer(call->text.n, call->text.data ? call->text.data : "",
                                                   MHD_RESPMEM_PERSISTENT); /* the call owns the text until it is sent */
    if (!response) return MHD_NO;
    enum MHD_Result queued = MHD_NO;
    if (add_headers(call, response)) {
        if (!is_stream(call)) serve_connection_deadline(call->of, call->server->o->timeout);
        queued = MHD_queue_response(call->connection, (unsigned)call->status, response);
    }
    MHD_destroy_response(response);
    return queued;
}

/* ---- Requests ---------------------------------------------------------------------------------------------- */

/* Returns the key of "Authorization: Bearer KEY", or of Anthropic's header "x-api-key"; NULL: none. */
static const char *presented_key(const serve_call *call)
{
    const char *given = serve_call_header(call, "Authorization");
    if (given && strncasecmp(given, "Bearer ", 7) == 0) {
        given += 7;
        return given + strspn(given, " ");
    }
    return serve_call_header(call, "x-api-key");
}

/* Refuses a request that a proxy in front may have read with another end or host (RFC 9112, 3.2 and 6.3), and closes its
 * connection, so that nothing that follows is taken for a request.
 */
static bool check_framing(serve_call *call)
{
    static const char unseen[] = "these bytes are not the beginning of a request";
    const serve_framing *f = call->of ? &call->of->framing : NULL;
    const bool is_wrong = f && f->wrong && call->number >= f->wrong_at;
    if (f && call->number <= f->n_heads && !is_wrong) return true;
    call->closes = true;
    return serve_fail(&call->refused, 400, "", "%s", is_wrong ? f->wrong : unseen);
}

/* Reads the header Aerie-Repeat (http.h), if there is one. */
static bool read_repeat(serve_call *call)
{
    enum { ID = 24 };
    const char *text = serve_call_header(call, "Aerie-Repeat");
    char *end;
    if (!text) return true;
    const size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
    bool ok = n == ID && text[n] == ' ' && isdigit((unsigned char)text[n + 1]);
    errno = 0;
    if (ok) call->repeat.created = strtoull(text + n + 1, &end, 10);
    ok = ok && *end == ' ' && isdigit((unsigned char)end[1]);
    if (ok) call->repeat.seed = strtoull(end + 1, &end, 10);
    if (!ok || *end || errno || call->repeat.created > UINT32_MAX)
        return serve_fail(&call->refused, 400, "", "Aerie-Repeat takes an id of %d letters and digits, the time in seconds "
                          "since 1970 and a seed; found '%.100s'", ID, text);
    snprintf(call->id, sizeof call->id, "req_%.*s", ID, text);
    return call->repeat.on = true;
}

/* Checks everything that can be refused before the body has arrived. */
static bool check_head(serve_call *call)
{
    serve_error *e = &call->refused;
    const char *host = call->host, *origin = serve_call_header(call, "Origin");
    const char *length = serve_call_header(call, "Content-Length");
    const char *site = serve_call_header(call, "Sec-Fetch-Site");
    const size_t most = serve_most_body(call->server);
    bool cors;
    if (!check_framing(call) || !read_repeat(call)) return false;
    if (host && !serve_host_allowed(call->server, host))
        return serve_fail(e, 403, "", "requests for the host '%.100s' are not allowed; --allowed-hosts lists host names "
                          "that are", host);
    if (origin && !serve_origin_allowed(call->server, origin, host, &cors))
        return serve_fail(e, 403, "", "pages from '%.100s' may not use this server; --cors-origins lists origins that may",
                          origin);
    if (strcmp(call->method, "OPTIONS") == 0 && origin && cors) return true;
    call->route = serve_route_find(call->server->service, call->method, call->path, &call->allow);
    if (call->allow && !call->route)
        return serve_fail(e, 405, "", "%s accepts only %s; found %.15s", call->path, call->allow, call->method);
    const bool open = call->route && call->route->access == SERVE_FOR_ALL;
    if (!origin && site && !serve_site_allowed(call->server, site, serve_call_header(call, "Sec-Fetch-Mode"), open))
        return serve_fail(e, 403, "", "pages from other sites may not use this server (Sec-Fetch-Site: %.20s); --cors-origins "
                          "lists origins that may", site);
    if (!serve_keys_allow(call, presented_key(call), e)) return false;
    const char *nearest = call->route ? NULL : serve_route_nearest(call->server->service, call->path);
    if (nearest) return serve_fail(e, 404, "", "there is nothing at '%.200s'; did you mean '%s'?", call->path, nearest);
    const char *instead = call->route ? NULL : serve_route_instead(call->path);
    if (!call->route)
        return serve_fail(e, 404, "", "there is nothing at '%.200s'%s%s", call->path, instead ? ": " : "",
                          instead ? instead : "");
    if (length && strtoull(length, NULL, 10) > most)
        return serve_fail(e, 413, "", "the body has %.20s bytes; --max-body allows %zu", length, most);
    if (atomic_load(&call->server->draining) && !open) return serve_fail_not_ready(e, 5, "the server is shutting down");
    return true;
}

/* Sets path and host. If the target is http://authority/path, as sent to proxies, the authority replaces the Host header
 * (RFC 9112, 3.2.2). Returns false when out of memory.
 */
static bool find_path(serve_call *call, const char *url)
{
    static const char scheme[] = "http://";
    call->path = url;
    call->host = serve_call_header(call, "Host");
    if (strncasecmp(url, scheme, sizeof scheme - 1)) return true;
    const char *at = url + sizeof scheme - 1, *slash = strchr(at, '/');
    call->path = slash ? slash : "/";
    call->host = call->authority = slash ? strndup(at, (size_t)(slash - at)) : strdup(at);
    return call->authority != NULL;
}

static serve_call *call_create(serve_server *server, struct MHD_Connection *connection, const char *url, const char *method,
                               const char *version)
{
    serve_call *call = calloc(1, sizeof *call);
    if (!call) return NULL;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    const union MHD_ConnectionInfo *fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    call->server = server;
    call->connection = connection;
    call->use.of = &server->memory;
    if (!find_path(call, url)) {
        free(call);
        return NULL;
    }
    call->start = app_now();
    call->interim = strcmp(version, "HTTP/1.0") != 0;
    serve_id(server, "req_", call->id);
    call->i_key = SIZE_MAX;
    call->of = info ? info->socket_context : NULL;
    call->number = call->of ? ++call->of->framing.n_seen : 0;
    call->socket = fd ? fd->connect_fd : -1;
    snprintf(call->method, sizeof call->method, "%s", strcmp(method, "HEAD") ? method : "GET");
    serve_connection_busy(call->of, true, SERVE_BODY_SECONDS);
    atomic_fetch_add(&server->n_calls, 1);
    return call;
}

static void call_free(serve_call *call)
{
    app_json_account(serve_use_json, &call->use);
    if (call->release) call->release(call->user);
    app_json_account(NULL, NULL);
    app_text_free(&call->body);
    app_text_free(&call->text);
    serve_use_end(&call->use);
    free(call->authority);
    uncount(call);
    atomic_fetch_sub(&call->server->n_calls, 1);
    free(call);
}

/* Makes room for n more bytes of the body and counts the memory first. The buffer doubles, but does not exceed
 * Content-Length.
 */
static bool grow_body(serve_call *call, size_t n)
{
    app_text *body = &call->body;
    const char *length = serve_call_header(call, "Content-Length");
    const size_t needed = body->n + n + 1, all = length ? (size_t)strtoull(length, NULL, 10) + 1 : SIZE_MAX;
    if (needed <= body->capacity) return true;
    const size_t wanted = 2 * needed < all ? 2 * needed : all > needed ? all : needed;
    if (!serve_use_add(&call->use, wanted - body->capacity)) return false;
    char *grown = realloc(body->data, wanted);
    if (!grown) {
        serve_use_drop(&call->use, wanted - body->capacity);
        return false;
    }
    body->data = grown;
    body->capacity = wanted;
    return true;
}

void serve_body_free(serve_call *call)
{
    serve_use_drop(&call->use, call->body.capacity);
    app_text_free(&call->body);
}

/* Receives a part of the body. After an error it drops the rest, up to MAX_DISCARDED bytes, so that the client reads the
 * answer. */
static enum MHD_Result take(serve_call *call, const char *part, size_t n)
{
    const size_t most = serve_most_body(call->server);
    if (!call->refused.status && call->body.n + n > most)
        serve_fail(&call->refused, 413, "", "the body has more than the %zu bytes that --max-body allows", most);
    if (!call->refused.status && !(grow_body(call, n) && app_text_add(&call->body, part, n))) serve_fail_memory(&call->refused);
    if (!call->refused.status) return MHD_YES;
    serve_body_free(call);
    call->n_discarded += n;
    return call->n_discarded <= MAX_DISCARDED ? MHD_YES : MHD_NO;
}

/* Lowers the priority of a thread with a large body: parsing, tokenizing and answering it takes seconds of a core, and small
 * requests should go first. On Linux this affects only the calling thread. The thread cannot raise its priority again, so the
 * connection is closed after the answer. */
static void step_back(serve_call *call)
{
    if (call->body.n <= HEAVY_BODY) return;
    (void)setpriority(PRIO_PROCESS, 0, HEAVY_NICE);
    call->closes = true;
}

static void answer(serve_call *call)
{
    app_text nothing = {0};
    app_json_lacked();
    check_framing(call); /* checked again, since the body may be wrong, too; a framing error replaces other errors */
    app_json_account(serve_use_json, &call->use);
    step_back(call);
    call->work = call->body.n > LARGE_BODY ? &call->server->large_work : &call->server->work;
    const bool has_key = call->i_key != SIZE_MAX && call->route && call->route->access != SERVE_FOR_ALL;
    if (!call->refused.status && call->server->o->max_per_key && has_key) {
        call->counted = true;
        if (atomic_fetch_add(&call->server->keys.n_running[call->i_key], 1) >= call->server->o->max_per_key) {
            call->refused.retry_after = 1;
            serve_fail(&call->refused, 429, "", "this API key has %u requests in progress already",
                       (unsigned)call->server->o->max_per_key);
        }
    }
    if (call->refused.status) serve_reply_error(call, &call->refused);
    else if (!call->route) serve_reply(call, 204, "text/plain", &nothing); /* OPTIONS */
    else call->route->handler(call);
    if (!is_stream(call)) uncount(call);
}

/* Returns whether the answer should be sent without reading and dropping a body that is too large: the client has not begun to
 * send it, or there is too much of it. */
static bool leave_body(const serve_call *call)
{
    const char *length = serve_call_header(call, "Content-Length");
    struct pollfd fd = {.fd = call->socket, .events = POLLIN};
    if (call->refused.status != 413) return false;
    return (length && strtoull(length, NULL, 10) > MAX_DISCARDED) || poll(&fd, 1, WAIT_FOR_BODY_MS) <= 0;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *part, size_t *n_part, void **state)
{
    serve_server *server = user;
    serve_call *call = *state;
    if (!call) {
        call = *state = call_create(server, connection, url, method, version);
        if (!call) return MHD_NO;
        check_head(call);
        /* Do not wait for a body that the client has not begun to send, that is far too large, or whose end is uncertain. A
         * client that is still sending when the connection is closed may see a reset instead of the answer. */
        const bool at_once = leave_body(call) || call->closes || serve_call_header(call, "Expect");
        if (!call->refused.status || !at_once) return MHD_YES;
        call->closes = true;
        serve_reply_error(call, &call->refused);
        return send_reply(call);
    }
    if (*n_part) {
        const size_t n = *n_part;
        *n_part = 0;
        return take(call, part, n);
    }
    serve_connection_deadline(call->of, 0);
    answer(call);
    return call->replied ? send_reply(call) : MHD_NO; /* no reply: the client has disconnected */
}

/* Writes a line to the access log. Of the request's text it contains only the path. */
static void log_call(const serve_call *call, bool whole)
{
    char tokens[120] = "";
    if (call->n_prompt)
        snprintf(tokens, sizeof tokens, " prompt=%llu cached=%llu generated=%llu", (unsigned long long)call->n_prompt,
                 (unsigned long long)call->n_cached, (unsigned long long)call->n_generated);
    app_note("%s %s %.100s %d %.3f s id=%s%s%s", call->of ? call->of->address : "-", call->method, call->path, call->status,
             app_now() - call->start, call->id, tokens,
             whole           ? ""
             : call->replied ? " (cut off)"
                             : " (client gone)");
}

static void on_completed(void *user, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode how)
{
    serve_server *server = user;
    serve_call *call = *state;
    (void)connection;
    if (!call) return;
    *state = NULL;
    leave_sending(call);
    if (call->release) call->release(call->user); /* cancels running tasks, so that the log gets the final counts */
    call->release = NULL;
    if (!server->o->no_access_log && !server->options->quiet)
        log_call(call, how == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    serve_connection_busy(call->of, false, SERVE_IDLE_SECONDS);
    call_free(call);
}

static void on_connection(void *user, struct MHD_Connection *connection, void **state, enum MHD_ConnectionNotificationCode what)
{
    serve_server *server = user;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        const union MHD_ConnectionInfo *from = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        *state = serve_connection_open(server->connections, fd ? fd->connect_fd : -1, from ? from->client_addr : NULL);
        if (*state) serve_intake_watch(fd ? fd->connect_fd : -1, *state);
        else if (fd) shutdown(fd->connect_fd, SHUT_RDWR); /* no deadline could end a connection that is not in the list */
    } else if (*state) {
        serve_intake_watch(((serve_connection *)*state)->socket, NULL);
        serve_connection_close(*state);
        *state = NULL;
    }
}

static void on_log(void *user, const char *format, va_list args)
{
    char text[512];
    const serve_server *server = user;
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    if (server->options->verbose) app_note("libmicrohttpd: %s", text);
}

/* Decodes %XX in paths and queries. %00 stays as it is, since it would end the string. */
static size_t on_unescape(void *user, struct MHD_Connection *connection, char *text)
{
    char *to = text;
    (void)user, (void)connection;
    for (const char *from = text; *from; to++) {
        char digits[3] = {0};
        char *end = digits;
        if (*from == '%' && from[1]) memcpy(digits, from + 1, 2);
        const long byte = isxdigit((unsigned char)digits[0]) ? strtol(digits, &end, 16) : 0;
        const bool is_escape = byte > 0 && end == digits + 2;
        *to = is_escape ? (char)byte : *from;
        from += is_escape ? 3 : 1;
    }
    *to = '\0';
    return (size_t)(to - text);
}

void *serve_daemon_start(serve_server *server, int listening)
{
    const unsigned most = server->connections->most; /* excludes connections that are ending, which libmicrohttpd still
                                                      * counts */
    return MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG, 0,
        NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER, on_log, server, MHD_OPTION_LISTEN_SOCKET, listening,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, server, MHD_OPTION_NOTIFY_CONNECTION, on_connection, server,
        MHD_OPTION_CONNECTION_LIMIT, most + serve_connections_spare(most), MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)server->o->timeout,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)SERVE_HEAD_BYTES, MHD_OPTION_THREAD_STACK_SIZE, (size_t)SERVE_STACK_BYTES,
        MHD_OPTION_UNESCAPE_CALLBACK, on_unescape, NULL, MHD_OPTION_END);
}

int serve_daemon_quiesce(void *daemon)
{
    return MHD_quiesce_daemon(daemon);
}

void serve_daemon_stop(void *daemon)
{
    MHD_stop_daemon(daemon);
}
