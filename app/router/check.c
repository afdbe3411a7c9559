/* check.c - asks each server for its health and its models. */
#define _GNU_SOURCE
#include "router/client.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_BYTES = 4 << 20, MODELS_EVERY = 30 }; /* most bytes of a response; checks between two requests for the list of
                                                   * models */

static bool keep(void *user, const char *bytes, size_t n)
{
    app_text *text = user;
    return text->n + n <= MOST_BYTES && app_text_add(text, bytes, n);
}

/* Sends a GET to the server. Returns the status, or 0 with a sentence in why. */
static int ask(router *r, router_target *t, const char *path, app_text *text, char why[256])
{
    const char *const headers[] = {r->key};
    const client_request request = {.method = "GET",
                                    .path = path,
                                    .headers = headers,
                                    .n_headers = *r->key != 0,
                                    .seconds = r->o->limit,
                                    .sink = keep,
                                    .user = text};
    client *c = client_start(t, &request);
    client_state is = CLIENT_RUNS;
    while (c && is == CLIENT_RUNS && !router_ends(r)) is = client_step(c, 0.25);
    const int status = is == CLIENT_ENDED ? client_status(c) : 0;
    if (!status) snprintf(why, 256, "%s", c ? client_why(c) : "not enough memory");
    client_end(c);
    return status;
}

static router_model *find_model(router *r, const char *name)
{
    for (size_t i = 0; i < r->n_models; i++)
        if (strcmp(r->models[i].name, name) == 0) return &r->models[i];
    router_model *grown = app_grow(r->models, r->n_models, &r->capacity, sizeof *grown);
    if (!grown) return NULL;
    r->models = grown;
    grown[r->n_models] = (router_model){.name = strdup(name)};
    return grown[r->n_models].name ? &grown[r->n_models++] : NULL;
}

/* Checks that the server's model is the same as the one with that name on the others; the first server defines it. Called under
 * the lock. */
static bool check_model(router *r, const router_target *t, const json_t *entry, char why[256])
{
    bool alone = true; /* if so, others are compared with this server: all may have been replaced */
    for (size_t i = 0; i < r->n; i++) alone = alone && (!r->targets[i].up || &r->targets[i] == t);
    const char *name = json_string_value(json_object_get(entry, "id"));
    const json_t *meta = json_object_get(entry, "meta");
    const char *fingerprint = json_string_value(json_object_get(meta, "fingerprint"));
    const char *build = json_string_value(json_object_get(meta, "build"));
    if (!name || !fingerprint || !build) return true; /* not loaded yet */
    router_model *m = find_model(r, name);
    if (!m) return true;
    if (!*m->fingerprint || alone) {
        snprintf(m->fingerprint, sizeof m->fingerprint, "%s", fingerprint);
        snprintf(m->build, sizeof m->build, "%s", build);
    }
    if (strcmp(m->fingerprint, fingerprint)) {
        snprintf(why, 256,
                 "its model '%.80s' is another file than that of the other servers (fingerprint %.20s, not %.20s); --mixed "
                 "admits it",
                 name, fingerprint, m->fingerprint);
        return false;
    }
    if (strcmp(m->build, build)) {
        snprintf(why, 256, "it is %.30s, the others are %.30s; --mixed lets it take part", build, m->build);
        return false;
    }
    return true;
}

static bool check_models(router *r, router_target *t, char why[256])
{
    app_text text = {0};
    json_t *json = NULL;
    const int status = ask(r, t, "/v1/models", &text, why);
    bool ok = status == 200 && app_json_read(&json, text.data ? text.data : "", text.n, 0, NULL) == APP_JSON_OK;
    if (status && !ok)
        snprintf(why, 256,
                 status == 401 || status == 403 ? "it refuses the router's API key (status %d); --server-key "
                                                  "names one"
                                                : "/v1/models answers with status %d",
                 status);
    const json_t *list = json_object_get(json, "data");
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; ok && !r->o->mixed && i < json_array_size(list); i++)
        ok = check_model(r, t, json_array_get(list, i), why);
    pthread_mutex_unlock(&r->lock);
    json_decref(json);
    app_text_free(&text);
    return ok;
}

/* lost: the server does not answer or hangs, so its requests are sent to others. Otherwise it shuts down and finishes them. */
static void note(router *r, router_target *t, bool up, bool lost, const char *why)
{
    pthread_mutex_lock(&r->lock);
    const bool was = t->up, is_new = !up && strcmp(t->why, why) != 0;
    t->up = up;
    t->n_losses += was && !up && lost;
    snprintf(t->why, sizeof t->why, "%s", up ? "" : why);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (up && !was)
        app_note("%s is up", t->name);
    else if (!up && (was || is_new))
        app_note("%s is down: %s", t->name, why);
}

static void pause_until(router *r, double end)
{
    while (!router_ends(r) && app_now() < end) {
        const struct timespec moment = {0, 50 * 1000 * 1000};
        nanosleep(&moment, NULL);
    }
}

static void *run(void *user)
{
    router_target *t = user;
    router *r = t->router;
    unsigned n = 0;
    while (!router_ends(r)) {
        const double next = app_now() + r->o->check;
        char why[256] = "";
        app_text text = {0};
        const int status = ask(r, t, "/health", &text, why);
        const bool is_stuck = text.data && strstr(text.data, "\"stuck\"");
        const bool is_self = text.data && strstr(text.data, r->id);
        app_text_free(&text);
        if (is_self) snprintf(why, sizeof why, "it is this router itself");
        else if (status && status != 200) snprintf(why, sizeof why, "/health answers with status %d", status);
        pthread_mutex_lock(&r->lock);
        const bool looks = !t->up || ++n % MODELS_EVERY == 0;
        pthread_mutex_unlock(&r->lock);
        const bool up = status == 200 && !is_self && (!looks || check_models(r, t, why));
        if (!router_ends(r)) note(r, t, up, !status || is_stuck, why);
        pause_until(r, next);
    }
    return NULL;
}

bool router_checks_start(router *r)
{
    bool ok = true;
    for (size_t i = 0; i < r->n; i++) {
        r->targets[i].has_thread = pthread_create(&r->targets[i].thread, NULL, run, &r->targets[i]) == 0;
        ok = ok && r->targets[i].has_thread;
    }
    return ok;
}

void router_checks_stop(router *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->targets[i].has_thread) pthread_join(r->targets[i].thread, NULL);
}
