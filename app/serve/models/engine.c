/* engine.c - a model's stepping thread, and the requests in its session (models.h). */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "serve/http/memory.h"
#include "serve/models/models.h"
#include "aerie_measure.h"

enum { IDLE_MS = 50 };
#define COPY_SECONDS 0.003 /* longest time in seconds that requests wait because a conversation is being copied */

/* ---- Slots ---------------------------------------------------------------------------------------------------- */

void serve_engine_note_slots(serve_model *model)
{
    for (serve_choice *c = model->active; c; c = c->next) {
        const int slot = aerie_task_slot(c->task);
        if (slot == c->slot) continue;
        if (c->slot >= 0 && model->slots[c->slot].running == c) model->slots[c->slot].running = NULL; /* it made way */
        c->slot = slot;
        if (slot >= 0) model->slots[slot].running = c;
    }
}

void serve_engine_ended(serve_choice *choice)
{
    serve_model *model = choice->job->model;
    pthread_mutex_lock(&model->lock);
    serve_engine_note_slots(model);
    serve_choice **at = &model->active;
    while (*at && *at != choice) at = &(*at)->next;
    if (*at) {
        *at = choice->next;
        if (!*at) model->active_end = at;
        model->n_active--;
    }
    if (choice->slot >= 0) {
        serve_slot *slot = &model->slots[choice->slot];
        if (slot->running == choice) slot->running = NULL;
        if (choice->kept) {
            const serve_conversation_key key = {choice->scope, choice->adapters, choice->n_adapters, choice->kept,
                                                choice->n_kept};
            serve_conversations_note(model->conversations, &key);
            free(slot->tokens);
            slot->tokens = choice->kept;
            slot->n_tokens = choice->n_kept;
            slot->scope = choice->scope;
            slot->n_adapters = choice->n_adapters;
            memcpy(slot->adapters, choice->adapters, sizeof slot->adapters);
            choice->kept = NULL;
        }
    }
    choice->slot = -1;
    serve_figures_add(&model->figures, choice);
    pthread_cond_broadcast(&model->changed);
    pthread_mutex_unlock(&model->lock);
}

/* ---- Submitting ------------------------------------------------------------------------------------------------ */

/* Returns whether a client may add n answers although all places are taken: it has less than an equal share, because clients
 * that came earlier have taken more. So one client cannot shut others out. The total is at most twice the places. */
static bool is_owed(const serve_model *model, uint64_t client, uint32_t n, uint32_t most)
{
    uint32_t own = 0, n_clients = 0;
    if (most <= model->n_seqs || model->n_active + n > 2 * most) return false;
    for (const serve_choice *c = model->active; c; c = c->next) {
        const serve_choice *first = model->active;
        while (first->client != c->client) first = first->next;
        n_clients += first == c;
        own += c->client == client;
    }
    n_clients += !own;
    const uint32_t part = most / n_clients ? most / n_clients : 1;
    return n_clients > 1 && own + n <= part;
}

static bool has_room(const serve_model *model, uint64_t client, uint32_t n, serve_error *error)
{
    const uint32_t most = model->n_seqs + model->server->o->max_queue;
    if (!model->may_submit) return serve_fail_not_ready(error, 0, "the server is shutting down");
    if (n > most)
        return serve_fail(error, 400, "n",
                          "%u answers are requested, but at once %u can be generated (-np) and %u wait (--max-queue)",
                          (unsigned)n, (unsigned)model->n_seqs, (unsigned)model->server->o->max_queue);
    if (model->n_active + n <= most || is_owed(model, client, n, most)) return true;
    const uint32_t waiting = model->n_active > model->n_seqs ? model->n_active - model->n_seqs : 0;
    error->retry_after = 1 + (int)(waiting / (model->n_seqs ? model->n_seqs : 1));
    return serve_fail(error, 503, "", "%u answers are generated and %u wait already; --max-queue allows no more",
                      (unsigned)(model->n_active - waiting), (unsigned)waiting);
}

static bool submit_one(serve_model *model, serve_choice *choice, aerie_request *request, serve_error *error)
{
    aerie_error why = {0};
    request->token = serve_job_on_token;
    request->row = choice->scored ? serve_job_on_row : NULL;
    request->progress = choice->job->tells_progress ? serve_job_on_progress : NULL;
    request->user = choice;
    request->tokens = request->n_chunks ? NULL : choice->prompt;
    request->n_tokens = request->n_chunks ? 0 : choice->n_prompt;
    request->sampling.seed = choice->seed;
    choice->scope = request->scope;
    choice->client = request->client;
    choice->n_adapters = request->n_adapters;
    if (request->n_adapters) memcpy(choice->adapters, request->adapters, request->n_adapters * sizeof *request->adapters);
    if (model->server->o->slot_save_path || model->conversations) {
        choice->kept = malloc(choice->n_prompt * sizeof *choice->kept);
        if (choice->kept) memcpy(choice->kept, choice->prompt, choice->n_prompt * sizeof *choice->kept);
        choice->n_kept = choice->capacity = choice->kept ? choice->n_prompt : 0;
    }
    const aerie_status status = aerie_session_submit(model->session, request, &choice->task, &why);
    if (status != AERIE_OK) return serve_fail_library(error, status, &why, "");
    choice->next = NULL;
    *model->active_end = choice;
    model->active_end = &choice->next;
    model->n_active++;
    choice->job->n_left++; /* events take the model's lock before the job's, so none has arrived yet */
    return true;
}

typedef struct give_back {
    serve_conversation_return *r;
    bool more;
} give_back;

static void run_wanted(aerie_session *session, void *user)
{
    give_back *g = user;
    g->more = serve_conversation_wanted(g->r, session);
}

static void run_give_back(aerie_session *session, void *user)
{
    give_back *g = user;
    g->more = serve_conversation_restore(g->r, session, COPY_SECONDS);
}

/* Restores the parts of the prompts that were computed earlier and are no longer in the KV cache, in slices between passes. */
static void restore(serve_model *model, const serve_job *job, const aerie_request *request)
{
    for (uint32_t i = 0; i < job->n; i++) {
        const serve_choice *c = &job->choices[i];
        if (i && c->prompt == job->choices[i - 1].prompt) continue;
        const serve_conversation_key key = {request->scope, request->adapters, request->n_adapters, c->prompt, c->n_prompt};
        give_back g = {.r = serve_conversations_find(model->conversations, &key)};
        if (g.r) serve_engine_do(model, run_wanted, &g);
        if (g.more) g.more = serve_conversation_prepare(g.r, model->session);
        while (g.more) serve_engine_do(model, run_give_back, &g);
        serve_conversation_return_free(g.r);
    }
}

bool serve_engine_submit(serve_model *model, serve_job *job, aerie_request *request, serve_error *error)
{
    restore(model, job, request);
    job->submitted = app_now();
    job->took = atomic_load(&model->took);
    job->took_plain = atomic_load(&model->took_plain);
    pthread_mutex_lock(&job->lock); /* taken before the model's lock, so that events, which take both in turn, wait */
    pthread_mutex_lock(&model->lock);
    bool ok = has_room(model, request->client, job->n, error);
    request->group = job->id = ++model->n_jobs;
    for (uint32_t i = 0; ok && i < job->n; i++) ok = submit_one(model, &job->choices[i], request, error);
    pthread_mutex_unlock(&model->lock);
    pthread_mutex_unlock(&job->lock);
    return ok; /* serve_job_free cancels the ones that were submitted */
}

/* ---- Plain decoding ---------------------------------------------------------------------------------------------- */

/* Adds up what a pass took and what its tokens would have taken one by one. The controller's estimates of both passes give
 * their ratio, and the clock the rest, so that other work on the machine, which slows all passes, does not count. */
static void on_pass(void *user, const aerie_pass *pass)
{
    serve_model *m = user;
    if (pass->prompts || !pass->n_drawing || !pass->n_sequences) return;
    if (!(pass->plain_seconds > 0 && pass->expected_seconds > 0)) return; /* nothing was expected of it */
    const double tokens = (double)pass->n_tokens / pass->n_sequences;
    const double rest = pass->seconds - pass->target_seconds - pass->draft_seconds;
    const double plain = pass->target_seconds * pass->plain_seconds / pass->expected_seconds + (rest > 0 ? rest : 0);
    atomic_store(&m->took, atomic_load(&m->took) + pass->seconds);
    atomic_store(&m->took_plain, atomic_load(&m->took_plain) + tokens * plain);
}

/* Watches the passes, unless AERIE_DEBUG does. Without memory, answers lack that figure. */
static void watch(serve_model *model)
{
    if (!getenv("AERIE_DEBUG")) (void)aerie_session_watch_passes(model->session, on_pass, model, NULL);
}

double serve_engine_plain(const serve_job *job)
{
    const double took = atomic_load(&job->model->took) - job->took;
    const double plain = atomic_load(&job->model->took_plain) - job->took_plain;
    return took > 0 && plain > 0 ? plain / took : 0;
}

/* ---- Stepping ---------------------------------------------------------------------------------------------------- */

static void run_errands(serve_model *model)
{
    pthread_mutex_lock(&model->lock);
    serve_errand *left = model->errands; /* functions that are added meanwhile run after the next pass */
    model->errands = NULL;
    while (left) {
        serve_errand *errand = left;
        left = errand->next; /* it is on the stack of the thread that waits for it, so it must be read first */
        pthread_mutex_unlock(&model->lock);
        errand->run(model->session, errand->user);
        pthread_mutex_lock(&model->lock);
        errand->done = true;
        pthread_cond_broadcast(&model->changed);
    }
    pthread_mutex_unlock(&model->lock);
}

void serve_engine_do(serve_model *model, void (*run)(aerie_session *session, void *user), void *user)
{
    serve_errand errand = {.run = run, .user = user};
    pthread_mutex_lock(&model->lock);
    serve_errand **at = &model->errands;
    while (*at) at = &(*at)->next;
    *at = &errand;
    aerie_session_wake(model->session);
    while (!errand.done) pthread_cond_wait(&model->changed, &model->lock);
    pthread_mutex_unlock(&model->lock);
}

static void note_kv(serve_model *model)
{
    aerie_kv_use use;
    aerie_session_kv_use(model->session, &use, sizeof use);
    atomic_store(&model->kv_page, use.page);
    atomic_store(&model->kv_pages, use.n_pages);
    atomic_store(&model->kv_used, use.n_used);
}

/* Returns how many tokens may stay in the KV cache uncopied while requests run: a quarter of its positions. */
static size_t n_most_noted(const serve_model *model)
{
    return (size_t)atomic_load(&model->kv_page) * atomic_load(&model->kv_pages) / 4;
}

void serve_engine_cancel(serve_model *model)
{
    pthread_mutex_lock(&model->lock);
    for (serve_choice *c = model->active; c; c = c->next) aerie_task_cancel(c->task);
    pthread_mutex_unlock(&model->lock);
}

static void *step_all(void *user)
{
    serve_model *model = user;
    aerie_error error;
    bool copies = false; /* while idle, conversations are copied in slices, and a new request waits for at most one */
    note_kv(model);
    while (!atomic_load(&model->stop)) {
        run_errands(model);
        serve_conversations_keep(model->conversations, model->session, n_most_noted(model), COPY_SECONDS);
        if (!aerie_session_wait(model->session, copies ? 0 : IDLE_MS / 1e3)) {
            copies = serve_conversations_keep(model->conversations, model->session, 0, COPY_SECONDS);
            atomic_store(&model->last_step, app_now());
            continue;
        }
        atomic_store(&model->step_began, app_now());
        if (serve_model_fails(model)) serve_engine_cancel(model); /* those that wait need not fail, too: reply.c keeps them */
        const aerie_status status = aerie_session_step(model->session, &error);
        serve_model_note_pass(model, status);
        if (status != AERIE_OK) /* the running requests were told; the session continues */
            app_note("'%s': a pass failed: %s", model->name, error.text);
        note_kv(model);
        atomic_store(&model->last_step, app_now());
        atomic_store(&model->step_began, 0);
    }
    while (serve_conversations_keep(model->conversations, model->session, 0, 1)) {}
    return NULL;
}

/* Returns NULL if no conversations are kept, or if memory is short. */
static serve_conversations *open_conversations(const serve_model *model)
{
    const app_serve_options *o = model->server->o;
    const uint64_t share = serve_memory_available() / 4;
    serve_conversation_limits limits = {.ram = UINT64_MAX / 2, .disk = (uint64_t)o->cache_disk_limit << 20,
                                        .folder = o->cache_disk, .model = model->path};
    if (o->cache_ram >= 0) limits.ram = (uint64_t)o->cache_ram << 20;
    if (o->cache_ram > 0 && share && share < limits.ram) limits.ram = share;
    if (!limits.ram && limits.folder)
        app_note("--cache-disk: files are written from memory, but --cache-ram 0 keeps no conversations there, so none is "
                 "kept; set --cache-ram to the size of a few conversations");
    return limits.ram ? serve_conversations_open(&limits) : NULL;
}

static void close_conversations(serve_model *model)
{
    pthread_mutex_lock(&model->lock);
    serve_conversations *conversations = model->conversations;
    const serve_conversation_figures figures = serve_conversations_count(conversations);
    model->figures.n_restored += figures.n_restored;
    model->figures.n_restored_tokens += figures.n_restored_tokens;
    model->figures.n_damaged += figures.n_damaged;
    model->conversations = NULL;
    pthread_mutex_unlock(&model->lock);
    serve_conversations_close(conversations);
}

int serve_engine_start(serve_model *model)
{
    const uint32_t n_seqs = model->options.session.n_seqs;
    serve_slot *slots = calloc(n_seqs, sizeof *slots);
    if (!slots) return app_error_memory("the slots");
    serve_conversations *conversations = open_conversations(model);
    watch(model);
    atomic_store(&model->stop, false);
    atomic_store(&model->last_step, app_now());
    atomic_store(&model->step_began, 0);
    pthread_mutex_lock(&model->lock);
    model->n_seqs = n_seqs;
    model->slots = slots;
    model->conversations = conversations;
    model->active = NULL;
    model->active_end = &model->active;
    model->n_active = 0;
    model->may_submit = !atomic_load(&model->server->stopping); /* `stopping` is set before serve_models_stop takes the lock */
    pthread_mutex_unlock(&model->lock);
    if (pthread_create(&model->thread, NULL, step_all, model) == 0) return APP_DONE;
    model->slots = NULL;
    free(slots);
    close_conversations(model);
    return app_error(APP_FAILED, "a thread could not be started");
}

void serve_engine_stop(serve_model *model)
{
    atomic_store(&model->stop, true);
    pthread_join(model->thread, NULL);
    for (uint32_t i = 0; i < model->n_seqs; i++) free(model->slots[i].tokens);
    free(model->slots);
    model->slots = NULL;
    close_conversations(model);
}
