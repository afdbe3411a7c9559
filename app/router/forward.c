/* forward.c - implements forward.h. */
#define _GNU_SOURCE
#include "router/forward.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "router/affinity.h"
#include "router/client.h"
#include "router/replay.h"

enum {
    MOST_HELD = 1 << 20, /* bytes that are kept for a slow client before the server's answer is paused */
    SIGN_SECONDS = 4,    /* seconds without a byte before a stream gets a keep-alive comment */
    MOST_HOPS = 4, /* most routers through which a request may pass, to end loops */
    SHORT_HEADER = 600,
    N_HEADERS = 8,
    MAX_CANARIES = 4
};
#define TICK 0.25 /* seconds between checks of the client and of the server's state */

typedef enum state {
    WAITING, /* for a server */
    RUNNING,
    ENDED,
    FAILED /* error says why */
} state;

/* A number of bytes and their hash; how the bytes are divided into pieces does not matter. */
typedef struct sum {
    uint64_t n, hash;
} sum;

/* A request on its way to a server, and its answer on the way back to the client. */
typedef struct passing {
    serve_call *call; /* lent */
    router *router;   /* lent */
    char headers[N_HEADERS][SHORT_HEADER]; /* [n_headers] "Name: value", sent to the server */
    size_t n_headers;
    char path[512];
    bool makes;                         /* the request is sent with Aerie-Repeat, so that its answer has the same bytes on every
                                         * server */
    uint64_t hashes[ROUTER_MAX_BLOCKS]; /* [n_hashes] hashes of the beginnings of its text (affinity.h) */
    size_t n_hashes;
    state state;
    serve_error error; /* set if state is FAILED */
    bool error_given;  /* the error has been written into the stream */
    double waits_until; /* monotonic time until which it waits for a server */
    unsigned n_losses;  /* how many servers were lost while they ran this request */
    uint64_t busy;      /* bit set of the servers that have answered 502, 503 or 504 */
    uint64_t avoid;     /* bit of the server that was lost last */
    bool told;          /* the client has received the header of a stream */
    bool lacks_memory;  /* for more of the answer */
    router_target *target;  /* the server that is running the request; NULL: none */
    router_target *by;      /* the server that completed it; NULL: none yet */
    uint64_t target_losses; /* the server's n_losses when it took the request */
    client *client;         /* the transfer, owned; NULL: none */
    app_text in; /* bytes received from the server, without dropped ones; the first `at` have been sent to the client */
    size_t at;
    sum given;        /* all bytes that the client has received, without signs of life */
    uint64_t n_again; /* after a loss: the first n_again bytes of the new answer are compared with `given` and dropped */
    sum again;        /* those of these bytes that have arrived */
    bool differs;     /* they differ */
    int status;       /* status of the answer; 0: its header has not arrived */
    char type[96];    /* its Content-Type */
    char end[2];      /* the last two bytes that the client has received */
    double given_at;  /* monotonic time when the client last received bytes */
    router_replay replay; /* the text that the client has received */
    app_text resent;  /* the body for another server, with that text; empty: the client's body */
} passing;

static void sum_add(sum *s, const char *bytes, size_t n)
{
    if (!s->n) s->hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) s->hash = (s->hash ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    s->n += n;
}

/* ---- Headers ------------------------------------------------------------------------------------------------ */

static bool add_header(passing *p, const char *name, const char *value)
{
    if (!value) return true;
    if (p->n_headers == N_HEADERS || strlen(name) + strlen(value) + 3 > SHORT_HEADER) return false;
    snprintf(p->headers[p->n_headers++], SHORT_HEADER, "%s: %s", name, value);
    return true;
}

static uint64_t random_seed(const serve_call *call)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t z = (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
    z += atomic_fetch_add(&call->server->n_ids, 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) >> 1;
}

/* Returns how many routers the request has passed through. */
static unsigned hops_of(const serve_call *call)
{
    const char *hops = serve_call_header(call, "Aerie-Hops");
    return hops ? (unsigned)strtoul(hops, NULL, 10) : 0;
}

/* Sets the headers of the request to the server: those of the client that it needs (but not Origin, which the router has
 * checked itself), the number of routers passed, and what makes a replay give the same answer. */
static bool add_headers(passing *p)
{
    static const char *const kept[] = {"Content-Type", "Authorization", "x-api-key", "anthropic-version", "anthropic-beta"};
    const serve_call *call = p->call;
    char repeat[96], hops[16];
    snprintf(hops, sizeof hops, "%u", hops_of(call) + 1);
    bool ok = add_header(p, "Expect", "") && add_header(p, "Aerie-Hops", hops);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) ok = ok && add_header(p, kept[i], serve_call_header(call, kept[i]));
    const serve_repeat *given = &call->repeat; /* the client may have asked for a repeatable answer */
    snprintf(repeat, sizeof repeat, "%s %llu %llu", call->id + strlen("req_"),
             (unsigned long long)(given->on ? given->created : (uint64_t)time(NULL)),
             (unsigned long long)(given->on ? given->seed : random_seed(call)));
    return ok && (!p->makes || add_header(p, "Aerie-Repeat", repeat));
}

/* ---- Servers ------------------------------------------------------------------------------------------------ */

static void leave(passing *p, bool unreachable, const char *why)
{
    client_end(p->client);
    p->client = NULL;
    if (p->target) router_give(p->router, p->target, p->target_losses, unreachable, why);
    p->target = NULL;
}

static void fail(passing *p, int status, const char *what)
{
    p->state = FAILED;
    serve_fail(&p->error, status, "", "%s", what);
    p->error.retry_after = status == 503 ? 2 : 0;
    atomic_fetch_add(&p->router->n_failed, 1);
}

/* Clears what is known of the answer, before another server begins its own. */
static void restart(passing *p)
{
    serve_use_drop(&p->call->use, p->in.n - p->at);
    p->in.n = p->at = 0;
    p->again = (sum){0};
    p->n_again = p->given.n;
    p->status = 0;
    p->state = WAITING;
    p->resent.n = 0;
    if (!p->makes || !router_replay_body(&p->replay, p->call->body.data ? p->call->body.data : "", p->call->body.n, &p->resent))
        p->resent.n = 0;
}

/* Gives up the current server: the connection has ended, or the server is down. Another one continues. If the answer had begun,
 * the server may have ended only this answer, so it counts as down only if it did not answer at all; the next check decides. */
static void lose(passing *p, const char *reason)
{
    char why[256];
    const char *name = p->target->name;
    const bool unreachable = !client_status(p->client);
    snprintf(why, sizeof why, "%s", reason); /* the sentence may be inside `client`, which is freed now */
    p->avoid = (uint64_t)1 << (p->target - p->router->targets);
    leave(p, unreachable, why);
    p->n_losses++;
    restart(p);
    p->waits_until = app_now() + p->router->o->wait;
    if (p->n_losses > p->router->o->n_replays) {
        fail(p, 502,
             "the servers that this request was given to were lost; --replays says "
             "how often one is begun again");
        return;
    }
    atomic_fetch_add(&p->router->n_replays, 1);
    app_note("%s was lost (%s): id=%s begins again elsewhere after %llu bytes", name, why, p->call->id,
             (unsigned long long)p->given.n);
}

/* Receives more bytes of the answer. Compares and drops those that the client has already received. */
static bool on_bytes(void *user, const char *bytes, size_t n)
{
    passing *p = user;
    if (p->told && client_status(p->client) != 200) return true; /* an error response is not part of the answer */
    if (p->again.n < p->n_again) {
        const uint64_t left = p->n_again - p->again.n;
        const size_t skip = left < n ? (size_t)left : n;
        sum_add(&p->again, bytes, skip);
        p->differs = p->again.n == p->n_again && p->again.hash != p->given.hash;
        if (p->differs) return false;
        bytes += skip, n -= skip;
    }
    if (!n) return true;
    if (p->at == p->in.n) p->at = p->in.n = 0;
    p->lacks_memory = !serve_use_add(&p->call->use, n) || !app_text_add(&p->in, bytes, n);
    if (p->lacks_memory) return false;
    if (p->in.n - p->at > MOST_HELD && p->call->read) client_pause(p->client);
    return true;
}

static bool begin(passing *p)
{
    const char *headers[N_HEADERS];
    for (size_t i = 0; i < p->n_headers; i++) headers[i] = p->headers[i];
    const client_request request = {.method = p->call->method,
                                    .path = p->path,
                                    .body = p->resent.n ? p->resent.data : p->call->body.data,
                                    .n_body = p->resent.n ? p->resent.n : p->call->body.n,
                                    .headers = headers,
                                    .n_headers = p->n_headers,
                                    .sink = on_bytes,
                                    .user = p};
    p->client = client_start(p->target, &request);
    return p->client != NULL;
}

/* Waits at most this many seconds for a server. */
static void wait_for_server(passing *p, double seconds)
{
    p->target = router_take(p->router, p->hashes, p->n_hashes, p->busy | p->avoid, &p->target_losses);
    if (p->target) {
        p->state = RUNNING;
        if (begin(p)) return;
        leave(p, false, "");
        fail(p, 503, "not enough memory");
        return;
    }
    p->busy = p->avoid = 0; /* there is no other one, so after a while the same one is tried again */
    if (app_now() >= p->waits_until)
        fail(p, 503, "no server is up; --wait says how long to wait for one");
    else if (router_ends(p->router))
        fail(p, 503, "the router is shutting down");
    else
        router_wait(p->router, seconds);
}

static bool is_busy(int status)
{
    return status == 502 || status == 503 || status == 504;
}

/* Handles a complete answer: passes it on, or, if the server only said that it cannot take more requests, asks another one. */
static void finish(passing *p)
{
    const int status = client_status(p->client);
    const uint64_t bit = (uint64_t)1 << (p->target - p->router->targets);
    p->status = status;
    if (p->told && status != 200 && !is_busy(status) && p->resent.n) { /* the text that was added to the body may be the
                                                                        * reason */
        router_replay_free(&p->replay);
        leave(p, false, "");
        restart(p);
        return;
    }
    if (p->told && status != 200) { /* the client has received the beginning of a stream */
        p->busy |= bit;
        leave(p, false, "");
        restart(p);
        if (is_busy(status)) return;
        fail(p, 502, "the server that took this request over refused it");
        return;
    }
    if (is_busy(status)) {
        p->busy |= bit;
        uint64_t losses;
        router_target *other = router_take(p->router, p->hashes, p->n_hashes, p->busy, &losses);
        if (other) {
            leave(p, false, "");
            restart(p);
            p->target = other;
            p->target_losses = losses;
            p->state = RUNNING;
            if (begin(p)) return;
            leave(p, false, "");
            fail(p, 503, "not enough memory");
            return;
        }
        /* The server may have just been restarted, or may have no room for the requests of a lost one. */
        if ((p->n_losses || client_not_ready(p->client)) && app_now() < p->waits_until) {
            leave(p, false, "");
            restart(p);
            return;
        }
    }
    if (p->again.n < p->n_again) {
        p->differs = true;
        return;
    }
    snprintf(p->type, sizeof p->type, "%s", client_type(p->client));
    p->by = p->target;
    if (client_retry_after(p->client) > 0) p->call->retry_after = client_retry_after(p->client);
    leave(p, false, "");
    p->state = ENDED;
}

static void differ(passing *p)
{
    app_note("the answers of two servers differ: %s gave other bytes than the "
             "one before it for id=%s; the answer ends with an "
             "error",
             p->target->name, p->call->id);
    atomic_fetch_add(&p->router->n_differences, 1);
    leave(p, false, "");
    fail(p, 502, "two servers gave different answers to this request");
}

/* Advances the request: waits at most this many seconds for a server, for bytes or for the end. */
static void step(passing *p, double seconds)
{
    if (p->state == WAITING) {
        wait_for_server(p, seconds);
        return;
    }
    if (p->state != RUNNING) return;
    const client_state is = client_step(p->client, seconds);
    if (p->differs)
        differ(p);
    else if (is == CLIENT_LOST && p->lacks_memory) {
        leave(p, false, "");
        fail(p, 503, "not enough memory");
        serve_fail_memory(&p->error);
    } else if (is == CLIENT_LOST)
        lose(p, client_why(p->client));
    else if (is == CLIENT_ENDED)
        finish(p);
    else if (router_is_lost(p->router, p->target, p->target_losses))
        lose(p, "it no longer answers checks");
    if (p->differs && p->state == RUNNING) differ(p);
    if (p->state == RUNNING && !p->status && client_status(p->client) && !is_busy(client_status(p->client))) {
        p->status = client_status(p->client);
        snprintf(p->type, sizeof p->type, "%s", client_type(p->client));
    }
}

/* ---- The canary --------------------------------------------------------------------------------------------- */

typedef struct canary {
    router *router;
    router_target *first, *target;
    uint64_t losses; /* n_losses of the target when it took the request */
    char headers[N_HEADERS][SHORT_HEADER];
    size_t n_headers;
    char path[512], id[48];
    app_text body;
    int status;
    sum expected, got;
} canary;

static bool on_canary(void *user, const char *bytes, size_t n)
{
    canary *c = user;
    sum_add(&c->got, bytes, n);
    return true;
}

static void *run_canary(void *user)
{
    canary *c = user;
    const char *headers[N_HEADERS];
    for (size_t i = 0; i < c->n_headers; i++) headers[i] = c->headers[i];
    const client_request request = {.method = "POST",
                                    .path = c->path,
                                    .body = c->body.data,
                                    .n_body = c->body.n,
                                    .headers = headers,
                                    .n_headers = c->n_headers,
                                    .sink = on_canary,
                                    .user = c};
    client *it = client_start(c->target, &request);
    client_state is = CLIENT_RUNS;
    while (it && is == CLIENT_RUNS && !router_ends(c->router) && !router_is_lost(c->router, c->target, c->losses))
        is = client_step(it, TICK);
    if (it && is == CLIENT_ENDED && client_status(it) == c->status) {
        atomic_fetch_add(&c->router->n_canaries, 1);
        if (c->got.n != c->expected.n || c->got.hash != c->expected.hash) {
            atomic_fetch_add(&c->router->n_differences, 1);
            app_note("the answers of two servers differ: %s and %s gave different "
                     "bytes for id=%s",
                     c->first->name, c->target->name, c->id);
        }
    }
    client_end(it);
    router_give(c->router, c->target, c->losses, false, "");
    app_text_free(&c->body);
    atomic_fetch_sub(&c->router->n_canaries_running, 1);
    free(c);
    return NULL;
}

/* Sends some requests (--canary) to a second server, too, and compares its bytes with those that the client received. */
static void send_canary(const passing *p)
{
    router *r = p->router;
    router_target *first = p->by;
    uint64_t losses;
    pthread_t thread;
    if (p->status != 200 || !p->makes || !first || r->o->canary <= 0) return;
    if ((double)(random_seed(p->call) >> 10 & 0xfffff) / 0x100000 >= (double)r->o->canary) return;
    if (atomic_fetch_add(&r->n_canaries_running, 1) >= MAX_CANARIES) {
        atomic_fetch_sub(&r->n_canaries_running, 1);
        return;
    }
    canary *c = calloc(1, sizeof *c);
    router_target *other = c ? router_take(r, NULL, 0, (uint64_t)1 << (first - r->targets), &losses) : NULL;
    if (other) {
        c->router = r;
        c->first = first;
        c->target = other;
        c->losses = losses;
        memcpy(c->headers, p->headers, sizeof c->headers);
        c->n_headers = p->n_headers;
        memcpy(c->path, p->path, sizeof c->path);
        memcpy(c->id, p->call->id, sizeof c->id);
        c->status = p->status;
        c->expected = p->given;
        if (app_text_add(&c->body, p->call->body.data ? p->call->body.data : "", p->call->body.n) &&
            pthread_create(&thread, NULL, run_canary, c) == 0) {
            pthread_detach(thread);
            return;
        }
        router_give(r, other, losses, false, "");
        app_text_free(&c->body);
    }
    free(c);
    atomic_fetch_sub(&r->n_canaries_running, 1);
}

/* ---- Towards the client ------------------------------------------------------------------------------------- */

static void passing_free(void *user)
{
    passing *p = user;
    leave(p, false, "");
    app_text_free(&p->in);
    app_text_free(&p->resent);
    router_replay_free(&p->replay);
    free(p);
}

/* Returns the type as a constant, because the reply needs it after `p` is freed. */
static const char *type_of(const char *type)
{
    static const char *const known[] = {"application/json",
                                        "text/event-stream",
                                        "application/x-ndjson",
                                        "text/html; charset=utf-8",
                                        "text/css; charset=utf-8",
                                        "text/javascript; charset=utf-8",
                                        "text/plain"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(type, known[i], strcspn(known[i], ";")) == 0) return known[i];
    return "application/octet-stream";
}

static bool is_events(const passing *p)
{
    return strncmp(p->type, "text/event-stream", 17) == 0;
}

static bool is_stream(const passing *p)
{
    return is_events(p) || strncmp(p->type, "application/x-ndjson", 20) == 0;
}

/* Returns whether the bytes that the client has received end with a whole event or line. */
static bool at_boundary(const passing *p)
{
    if (!p->given.n) return true;
    return p->end[1] == '\n' && (p->end[0] == '\n' || !is_events(p));
}

static ptrdiff_t give(passing *p, char *out, size_t most)
{
    const size_t left = p->in.n - p->at, n = left < most ? left : most;
    memcpy(out, p->in.data + p->at, n);
    p->at += n;
    sum_add(&p->given, out, n);
    if (p->makes) router_replay_add(&p->replay, out, n);
    for (size_t i = n > 2 ? n - 2 : 0; i < n; i++) p->end[0] = p->end[1], p->end[1] = out[i];
    p->given_at = app_now();
    serve_use_drop(&p->call->use, n);
    if (p->at == p->in.n && p->client) client_resume(p->client);
    return (ptrdiff_t)n;
}

/* Writes the error as the stream's last event. */
static ptrdiff_t give_error(passing *p, char *out, size_t most)
{
    app_text text = {0};
    serve_error_shape *shape = serve_route_shape(p->call->path);
    json_t *json = shape ? shape(&p->error)
                         : json_pack("{s:{s:s, s:s, s:i}}", "error", "message", p->error.text, "type",
                                     serve_error_type(p->error.status), "code", p->error.status);
    bool ok = !is_events(p) || app_text_add(&text, "data: ", 6);
    ok = serve_json_add(&text, json) && ok && app_text_add(&text, "\n\n", is_events(p) ? 2 : 1) && text.n <= most;
    if (ok) memcpy(out, text.data, text.n);
    const ptrdiff_t n = ok ? (ptrdiff_t)text.n : -1;
    app_text_free(&text);
    return n;
}

static ptrdiff_t read_stream(void *user, char *out, size_t most)
{
    static const char sign[] = ": waiting\n\n";
    passing *p = user;
    for (;;) {
        if (p->at < p->in.n) return give(p, out, most);
        if (p->state == ENDED) {
            send_canary(p);
            return 0;
        }
        if (p->state == FAILED) {
            if (p->error_given) return 0;
            p->error_given = true;
            return at_boundary(p) ? give_error(p, out, most) : -1;
        }
        if (serve_call_gone(p->call)) return -1;
        if (is_events(p) && at_boundary(p) && app_now() - p->given_at > SIGN_SECONDS && most >= sizeof sign) {
            p->given_at = app_now();
            memcpy(out, sign, sizeof sign - 1);
            return sizeof sign - 1;
        }
        step(p, TICK);
    }
}

/* Replies with the whole answer, once it has arrived. */
static void reply_whole(passing *p)
{
    serve_call *call = p->call;
    if (p->state == FAILED) {
        serve_reply_error(call, &p->error);
    } else {
        sum_add(&p->given, p->in.data ? p->in.data : "", p->in.n);
        send_canary(p);
        serve_reply(call, p->status, type_of(p->type), &p->in);
    }
    passing_free(p);
}

static void pass(serve_call *call, bool makes, const char *path)
{
    serve_error error = {0};
    passing *p = calloc(1, sizeof *p);
    if (!p) {
        serve_fail_memory(&error);
        serve_reply_error(call, &error);
        return;
    }
    p->call = call;
    p->router = call->server->router;
    p->makes = makes;
    p->given_at = app_now();
    p->waits_until = p->given_at + p->router->o->wait;
    snprintf(p->path, sizeof p->path, "%s", path);
    const char *key = serve_call_header(call, "Authorization");
    if (!key) key = serve_call_header(call, "x-api-key");
    if (makes) p->n_hashes = router_affinity_hash(call->body.data, call->body.n, key, p->hashes);
    if (strlen(path) >= sizeof p->path)
        fail(p, 414, "the path is too long");
    else if (hops_of(call) >= MOST_HOPS)
        fail(p, 508, "this request has gone through too many routers; do they pass it round in a circle?");
    else if (!add_headers(p))
        fail(p, 431, "a header of the request is too long");
    while (p->state == WAITING || (p->state == RUNNING && !(is_stream(p) && p->status == 200))) {
        if (serve_call_gone(call)) {
            passing_free(p); /* the client is gone, so nobody receives an answer */
            return;
        }
        step(p, TICK);
    }
    p->told = is_stream(p) && p->status == 200 && p->state != FAILED;
    if (p->told)
        serve_reply_stream(call, type_of(p->type), read_stream, passing_free, p);
    else
        reply_whole(p);
}

void router_forward(serve_call *call)
{
    pass(call, true, call->path);
}

void router_ask(serve_call *call)
{
    char path[512], *escaped = path + snprintf(path, sizeof path, "%.400s", call->path);
    const char *model = serve_call_query(call, "model");
    if (model && strspn(model, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVW"
                               "XYZ0123456789._-:") == strlen(model))
        snprintf(escaped, (size_t)(path + sizeof path - escaped), "?model=%.80s", model);
    pass(call, false, path);
}

void router_refuse(serve_call *call)
{
    serve_error error = {0};
    serve_fail(&error, 501, "", "only a server answers %s: ask one, not the router", call->path);
    serve_reply_error(call, &error);
}
