/* router.c - implements router.h: the command, the list of servers, and the router's own paths. */
#define _GNU_SOURCE
#include "router/router.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/commands.h"
#include "router/affinity.h"
#include "router/client.h"
#include "router/forward.h"
#include "serve/http/systemd.h"

/* A server with more than SPARE_LOAD + MOST_LOAD * mean requests gets no more on account of its cache. */
#define MOST_LOAD 1.5
enum { SPARE_LOAD = 2 };

/* ---- Choosing a server -------------------------------------------------------------------------------------- */

/* Called under the lock. */
static router_target *least_busy(router *r, uint64_t avoid)
{
    router_target *best = NULL;
    for (size_t i = 0; i < r->n; i++) {
        router_target *t = &r->targets[i];
        if (!t->up || avoid >> i & 1) continue;
        if (best && t->n_active > best->n_active) continue;
        if (best && t->n_active == best->n_active && t->n_requests >= best->n_requests) continue;
        best = t;
    }
    return best;
}

/* Returns whether the server has too many requests to get another one only because its cache has the beginning. Called under
 * router.lock. */
static bool is_crowded(const router *r, const router_target *target)
{
    uint32_t n_active = 0, n_up = 0;
    for (const router_target *t = r->targets; t < r->targets + r->n; t++) {
        n_up += t->up;
        n_active += t->up ? t->n_active : 0;
    }
    return target->n_active > SPARE_LOAD + MOST_LOAD * n_active / (n_up ? n_up : 1);
}

router_target *router_take(router *r, const uint64_t *hashes, size_t n, uint64_t avoid, uint64_t *n_losses)
{
    pthread_mutex_lock(&r->lock);
    const int known = router_affinity_find(r->affinity, hashes, n);
    router_target *t = known >= 0 ? &r->targets[known] : NULL;
    if (!t || !t->up || avoid >> known & 1 || is_crowded(r, t)) t = least_busy(r, avoid);
    if (t) {
        router_affinity_note(r->affinity, hashes, n, (int)(t - r->targets));
        t->n_active++;
        t->n_requests++;
        *n_losses = t->n_losses;
    }
    pthread_mutex_unlock(&r->lock);
    return t;
}

void router_give(router *r, router_target *t, uint64_t n_losses, bool unreachable, const char *why)
{
    pthread_mutex_lock(&r->lock);
    t->n_active--;
    t->n_failed += unreachable;
    const bool goes = unreachable && t->up && t->n_losses == n_losses; /* otherwise it went down meanwhile, and may be up
                                                                        * again */
    if (goes) {
        t->n_losses++;
        t->up = false;
        snprintf(t->why, sizeof t->why, "%s", why);
    }
    pthread_mutex_unlock(&r->lock);
    if (goes) app_note("%s is down: %s", t->name, why);
}

bool router_is_lost(router *r, const router_target *t, uint64_t n_losses)
{
    pthread_mutex_lock(&r->lock);
    const bool lost = t->n_losses != n_losses;
    pthread_mutex_unlock(&r->lock);
    return lost;
}

void router_wait(router *r, double seconds)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += (long)(seconds * 1e9);
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&r->lock);
    if (!r->ends) pthread_cond_timedwait(&r->changed, &r->lock, &end);
    pthread_mutex_unlock(&r->lock);
}

/* Servers that are up now. */
static size_t n_servers_up(router *r)
{
    size_t n = 0;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->n; i++) n += r->targets[i].up;
    pthread_mutex_unlock(&r->lock);
    return n;
}

bool router_ends(router *r)
{
    pthread_mutex_lock(&r->lock);
    const bool ends = r->ends;
    pthread_mutex_unlock(&r->lock);
    return ends;
}

/* ---- Paths of its own --------------------------------------------------------------------------------------- */

static void get_health(serve_call *call)
{
    router *r = call->server->router;
    const size_t n_up = n_servers_up(r);
    const bool ok = n_up && !atomic_load(&call->server->draining);
    call->retry_after = ok ? 0 : 2;
    serve_reply_json(call, ok ? 200 : 503,
                     json_pack("{s:s, s:s, s:i, s:i}", "router", r->id, "status",
                               ok     ? "ok"
                               : n_up ? "shutting down"
                                      : "no server is up",
                               "servers_up", (int)n_up, "servers", (int)r->n));
}

static bool add_number(app_text *text, const char *name, const char *target, uint64_t value)
{
    char line[512];
    const int n = target ? snprintf(line, sizeof line, "aerie_router_%s{server=\"%.300s\"} %llu\n", name, target,
                                    (unsigned long long)value)
                         : snprintf(line, sizeof line, "aerie_router_%s %llu\n", name, (unsigned long long)value);
    return n > 0 && (size_t)n < sizeof line && app_text_add(text, line, (size_t)n);
}

static bool add_kind(app_text *text, const char *name, const char *kind)
{
    char line[128];
    const int n = snprintf(line, sizeof line, "# TYPE aerie_router_%s %s\n", name, kind);
    return n > 0 && app_text_add(text, line, (size_t)n);
}

static void get_metrics(serve_call *call)
{
    static const char *const names[][2] = {
        {"server_up", "gauge"}, {"active_requests", "gauge"}, {"requests_total", "counter"}, {"losses_total", "counter"}};
    serve_error error = {0};
    app_text text = {0};
    router *r = call->server->router;
    bool ok = true;
    if (call->server->o->no_metrics) {
        serve_fail(&error, 404, "", "/metrics is switched off (--no-metrics)");
        serve_reply_error(call, &error);
        return;
    }
    pthread_mutex_lock(&r->lock);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        ok = ok && add_kind(&text, names[k][0], names[k][1]);
        for (size_t i = 0; ok && i < r->n; i++) {
            const router_target *t = &r->targets[i];
            const uint64_t values[] = {t->up, t->n_active, t->n_requests, t->n_failed};
            ok = add_number(&text, names[k][0], t->name, values[k]);
        }
    }
    pthread_mutex_unlock(&r->lock);
    const struct {
        const char *name;
        uint64_t value;
    } all[] = {{"replays_total", atomic_load(&r->n_replays)},
               {"failed_total", atomic_load(&r->n_failed)},
               {"canaries_total", atomic_load(&r->n_canaries)},
               {"differences_total", atomic_load(&r->n_differences)}};
    for (size_t i = 0; ok && i < sizeof all / sizeof *all; i++)
        ok = add_kind(&text, all[i].name, "counter") && add_number(&text, all[i].name, NULL, all[i].value);
    if (ok) {
        serve_reply(call, 200, "text/plain; version=0.0.4; charset=utf-8", &text);
        return;
    }
    app_text_free(&text);
    serve_fail_memory(&error);
    serve_reply_error(call, &error);
}

static const serve_route routes[] = {
    {"GET", "/health", get_health, SERVE_FOR_ALL},
    {"GET", "/v1/health", get_health, SERVE_FOR_ALL},
    {"GET", "/metrics", get_metrics, SERVE_FOR_WATCHERS},
    {"GET", "/", router_ask, SERVE_FOR_ALL},
    {"GET", "/page.css", router_ask, SERVE_FOR_ALL},
    {"GET", "/page.js", router_ask, SERVE_FOR_ALL},
    {"GET", "/markdown.js", router_ask, SERVE_FOR_ALL},
    {"GET", "/charts.js", router_ask, SERVE_FOR_ALL},
    {"GET", "/origins.js", router_ask, SERVE_FOR_ALL},
    {"GET", "/errors.js", router_ask, SERVE_FOR_ALL},
    {"GET", "/context.js", router_ask, SERVE_FOR_ALL},
    {"GET", "/pictures.js", router_ask, SERVE_FOR_ALL},
    {"GET", "/panel.js", router_ask, SERVE_FOR_ALL},
    {"GET", "/models", router_ask, SERVE_FOR_KEYS},
    {"GET", "/v1/models", router_ask, SERVE_FOR_KEYS},
    {"GET", "/v1/models/*", router_ask, SERVE_FOR_KEYS},
    {"GET", "/props", router_ask, SERVE_FOR_KEYS},
    {"GET", "/api/tags", router_ask, SERVE_FOR_KEYS},
    {"GET", "/api/ps", router_ask, SERVE_FOR_KEYS},
    {"GET", "/api/version", router_ask, SERVE_FOR_KEYS},
    {"POST", "/api/show", router_ask, SERVE_FOR_KEYS},
    {"POST", "/tokenize", router_ask, SERVE_FOR_KEYS},
    {"POST", "/detokenize", router_ask, SERVE_FOR_KEYS},
    {"POST", "/apply-template", router_ask, SERVE_FOR_KEYS},
    {"POST", "/v1/messages/count_tokens", router_ask, SERVE_FOR_KEYS},
    {"POST", "/v1/responses/input_tokens", router_ask, SERVE_FOR_KEYS},
    {"POST", "/responses/input_tokens", router_ask, SERVE_FOR_KEYS},
    {"POST", "/v1/chat/completions/input_tokens", router_ask, SERVE_FOR_KEYS},
    {"POST", "/chat/completions/input_tokens", router_ask, SERVE_FOR_KEYS},
    {"POST", "/api/pull", router_ask, SERVE_FOR_KEYS},
    {"POST", "/api/push", router_ask, SERVE_FOR_KEYS},
    {"POST", "/api/create", router_ask, SERVE_FOR_KEYS},
    {"POST", "/api/copy", router_ask, SERVE_FOR_KEYS},
    {"DELETE", "/api/delete", router_ask, SERVE_FOR_KEYS},
    {"POST", "/v1/completions", router_forward, SERVE_FOR_KEYS},
    {"POST", "/v1/chat/completions", router_forward, SERVE_FOR_KEYS},
    {"POST", "/chat/completions", router_forward, SERVE_FOR_KEYS},
    {"POST", "/completions", router_forward, SERVE_FOR_KEYS},
    {"POST", "/completion", router_forward, SERVE_FOR_KEYS},
    {"POST", "/infill", router_forward, SERVE_FOR_KEYS},
    {"POST", "/v1/responses", router_forward, SERVE_FOR_KEYS},
    {"POST", "/responses", router_forward, SERVE_FOR_KEYS},
    {"POST", "/v1/messages", router_forward, SERVE_FOR_KEYS},
    {"POST", "/api/chat", router_forward, SERVE_FOR_KEYS},
    {"POST", "/api/generate", router_forward, SERVE_FOR_KEYS},
    {"POST", "/api/embed", router_forward, SERVE_FOR_KEYS},
    {"POST", "/api/embeddings", router_forward, SERVE_FOR_KEYS},
    {"POST", "/embedding", router_forward, SERVE_FOR_KEYS},
    {"POST", "/embeddings", router_forward, SERVE_FOR_KEYS},
    {"POST", "/v1/embeddings", router_forward, SERVE_FOR_KEYS},
    {"POST", "/rerank", router_forward, SERVE_FOR_KEYS},
    {"POST", "/reranking", router_forward, SERVE_FOR_KEYS},
    {"POST", "/v1/rerank", router_forward, SERVE_FOR_KEYS},
    {"POST", "/v1/reranking", router_forward, SERVE_FOR_KEYS},
    {"POST", "/v1/systemone", router_forward, SERVE_FOR_KEYS},
    {"POST", "/models/unload", router_refuse, SERVE_FOR_KEYS},
    {"POST", "/models/load", router_refuse, SERVE_FOR_KEYS},
    {"GET", "/aerie/curve", router_refuse, SERVE_FOR_KEYS},
    {"GET", "/slots", router_refuse, SERVE_FOR_BOTH},
    {"POST", "/slots/*", router_refuse, SERVE_FOR_KEYS},
    {"GET", "/lora-adapters", router_refuse, SERVE_FOR_KEYS},
    {"POST", "/lora-adapters", router_refuse, SERVE_FOR_KEYS},
};

/* ---- The service -------------------------------------------------------------------------------------------- */

static void start(serve_server *server)
{
    router *r = server->router;
    const char *key = r->o->key ? r->o->key : server->keys.n ? server->keys.items[0] : NULL;
    if (key) snprintf(r->key, sizeof r->key, "Authorization: Bearer %s", key);
    if (!router_checks_start(server->router))
        atomic_store(&server->failed, true);
    else
        serve_notify("READY=1");
}

static void tick(serve_server *server)
{
    (void)server;
}

static bool stuck(serve_server *server)
{
    (void)server;
    return false;
}

/* Ends waiting requests with an error, and cuts off running answers. */
static void stop(serve_server *server)
{
    router *r = server->router;
    pthread_mutex_lock(&r->lock);
    r->ends = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* Parses one URL. Returns false after a message. */
static bool read_target(router *r, const char *text)
{
    static const char http[] = "http://", https[] = "https://", local[] = "unix:";
    router_target *t = &r->targets[r->n];
    if (r->n == ROUTER_MAX_SERVERS) return app_error(0, "the router takes %d servers at most", ROUTER_MAX_SERVERS);
    t->router = r;
    t->name = text;
    if (strncmp(text, local, sizeof local - 1) == 0 && text[sizeof local - 1]) {
        t->path = strdup(text + sizeof local - 1);
        t->base = strdup("http://localhost");
    } else if (strncmp(text, http, sizeof http - 1) == 0 || strncmp(text, https, sizeof https - 1) == 0) {
        const char *host = strstr(text, "://") + 3;
        const size_t n = strcspn(host, "/?#");
        if (!n || memchr(host, '@', n) || strlen(host) > 256 || (host[n] && strcmp(host + n, "/")) ||
            strpbrk(host, "\" \t\r\n\\"))
            return app_error(0, "a server's URL is http://HOST:PORT without a path; found '%s'", text);
        t->base = strndup(text, (size_t)(host - text) + n);
    } else {
        return app_error(0,
                         "a server is http://HOST:PORT, https://HOST:PORT or "
                         "unix:PATH; found '%s'",
                         text);
    }
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->targets[i].name, text) == 0) return app_error(0, "the server '%s' is given twice", text);
    r->n++;
    const bool is_whole = t->base && (t->path || strncmp(text, local, sizeof local - 1));
    return is_whole || app_error(0, "not enough memory for the servers");
}

static void router_free(router *r)
{
    while (atomic_load(&r->n_canaries_running)) { /* canaries end at their next tick */
        const struct timespec moment = {0, 20 * 1000 * 1000};
        nanosleep(&moment, NULL);
    }
    for (size_t i = 0; i < ROUTER_MAX_SERVERS; i++) free(r->targets[i].base), free(r->targets[i].path);
    for (size_t i = 0; i < r->n_models; i++) free(r->models[i].name);
    free(r->models);
    router_affinity_free(r->affinity);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
}

int app_router(const app_options *options)
{
    static const serve_service service = {.routes = routes,
                                          .n_routes = sizeof routes / sizeof *routes,
                                          .start = start,
                                          .tick = tick,
                                          .stuck = stuck,
                                          .stop = stop};
    serve_server server = {.options = options, .o = &options->serve, .service = &service, .started = app_now()};
    router r = {.server = &server, .o = &options->router, .affinity = router_affinity_create()};
    pthread_condattr_t monotonic;
    int bad = r.affinity ? APP_DONE : app_error_memory("the router");
    if (!client_possible())
        bad = app_error(APP_FAILED, "this aerie was built without libcurl, which "
                                    "'router' needs: install it (Debian: "
                                    "libcurl4-openssl-dev) and build again");
    server.router = &r;
    serve_id(&server, "router_", r.id);
    pthread_mutex_init(&r.lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&r.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!bad && !options->arguments.n)
        bad = app_error(APP_USAGE, "'router' needs the servers' URLs, such as http://127.0.0.1:8080");
    for (size_t i = 0; !bad && i < options->arguments.n; i++)
        if (!read_target(&r, options->arguments.items[i])) bad = APP_USAGE;
    if (!bad) bad = serve_run(&server, NULL);
    stop(&server);
    router_checks_stop(&r);
    router_free(&r);
    app_log_flush(SERVE_LOG_SECONDS);
    return bad;
}
