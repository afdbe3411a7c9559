/* slots.c - lists the slots, saves their sequences to files, restores them and forgets them (/slots). */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "aerie_extra.h"
#include "serve/dialects/handlers.h"

/* ---- The list ------------------------------------------------------------------------------------------------------ */

/* Returns an entry of the list, without texts. c: the choice that runs there; NULL: none. For requests of other keys it says
 * only that the slot is busy. Called under the model's lock. */
static json_t *slot_entry(const serve_model *m, uint32_t i, const serve_choice *c, const serve_call *call)
{
    const uint64_t scope = serve_keys_scope(call->server, call->i_key, NULL);
    json_t *json =
        json_pack("{s:i, s:I, s:b, s:b}", "id", (int)i, "n_ctx", (json_int_t)aerie_session_n_ctx(m->session), "speculative",
                  (int)(strcmp(aerie_session_spec_name(m->session), "none") != 0), "is_processing", (int)(c != NULL));
    if (!c || !json || (scope && c->scope != scope)) return json;
    const unsigned n = atomic_load(&c->n_told);
    json_t *running = json_pack("{s:I, s:I, s:b, s:[{s:b, s:i, s:i}]}", "id_task", (json_int_t)c->job->id, "n_prompt_tokens",
                                (json_int_t)c->n_prompt, "stream", (int)c->job->streams, "next_token", "has_next_token", 1,
                                "n_remain", c->job->n_predict ? (int)(c->job->n_predict - n) : -1, "n_decoded", (int)n);
    if (!running || json_object_update(json, running)) {
        json_decref(json);
        json = NULL;
    }
    json_decref(running);
    return json;
}

void serve_get_slots(serve_call *call)
{
    serve_error error = {0};
    serve_models *models = call->server->models;
    const char *on_none = serve_call_query(call, "fail_on_no_slot");
    if (call->server->o->no_slots) {
        serve_fail(&error, 501, "", "/slots is disabled (--no-slots)");
        serve_reply_error(call, &error);
        return;
    }
    serve_model *m = serve_models_look(models, serve_call_query(call, "model"), &error);
    if (!m) { /* listing the slots does not load the model */
        if (error.status == 503 && !error.retry_after) serve_reply_json(call, 200, json_array());
        else serve_reply_error(call, &error);
        return;
    }
    json_t *list = json_array();
    bool ok = list != NULL, idle = false;
    pthread_mutex_lock(&m->lock);
    serve_engine_note_slots(m);
    const serve_choice *next = m->active; /* choices that have not begun yet will get the idle slots */
    for (uint32_t i = 0; ok && i < m->n_seqs; i++) {
        const serve_choice *c = m->slots[i].running;
        while (!c && next && next->slot >= 0) next = next->next;
        if (!c && next) c = next, next = next->next;
        idle = idle || !c;
        ok = !json_array_append_new(list, slot_entry(m, i, c, call));
    }
    pthread_mutex_unlock(&m->lock);
    serve_models_give(models, m);
    if (ok && (idle || !on_none)) {
        serve_reply_json(call, 200, list);
        return;
    }
    json_decref(list);
    if (ok) serve_fail(&error, 503, "", "no slot is free");
    else serve_fail_memory(&error);
    serve_reply_error(call, &error);
}

/* ---- Files ------------------------------------------------------------------------------------------------------------- */

/* A save, restore or erasure on the stepping thread, and its result. */
typedef struct errand {
    serve_model *model;
    uint32_t slot;
    uint64_t scope; /* prefixes are shared only within a scope */
    void *data; /* save: the result, freed with aerie_free; restore: the file's bytes, borrowed */
    size_t n_data, n_tokens;
    aerie_status status;
    aerie_error why;
    bool empty; /* the slot has nothing to save */
    bool busy;  /* a request runs in the slot, so nothing was erased */
} errand;

/* Saves a running request in its current state, or from an idle slot that part of its last sequence that is still in the KV
 * cache. */
static void save(aerie_session *session, void *user)
{
    errand *e = user;
    serve_slot *slot = &e->model->slots[e->slot];
    pthread_mutex_lock(&e->model->lock);
    serve_engine_note_slots(e->model);
    serve_choice *running = slot->running; /* stays valid without the lock: choices end only on this thread */
    pthread_mutex_unlock(&e->model->lock);
    if ((running ? running->scope : slot->scope) != e->scope) {
        e->empty = true;
    } else if (running) {
        e->status = aerie_task_save(running->task, &e->data, &e->n_data, &e->why);
        e->n_tokens = running->n_prompt + atomic_load(&running->n_told);
    } else if (slot->tokens) {
        e->status = aerie_session_prefix_save(session, e->scope, slot->adapters, slot->n_adapters, slot->tokens, slot->n_tokens,
                                             &e->data, &e->n_data, &e->why);
        e->n_tokens = slot->n_tokens;
    } else {
        e->empty = true;
    }
}

static void restore(aerie_session *session, void *user)
{
    errand *e = user;
    int32_t *tokens = NULL;
    size_t n = 0;
    e->status = aerie_session_prefix_load(session, e->scope, e->data, e->n_data, &e->n_tokens, &e->why);
    if (e->status != AERIE_OK || aerie_saved_tokens(e->data, e->n_data, &tokens, &n, NULL, NULL) != AERIE_OK) return;
    int32_t *own = n ? malloc(n * sizeof *own) : NULL;
    if (own) memcpy(own, tokens, n * sizeof *own);
    aerie_free(tokens);
    pthread_mutex_lock(&e->model->lock);
    serve_engine_note_slots(e->model);
    serve_slot *slot = &e->model->slots[e->slot];
    if (own && !slot->running) {
        free(slot->tokens);
        slot->tokens = own;
        slot->n_tokens = n;
        slot->scope = e->scope;
        slot->n_adapters = 0; /* the file's adapters are not known until a request has run */
        own = NULL;
    }
    pthread_mutex_unlock(&e->model->lock);
    free(own);
}

/* Forgets the last sequence of an idle slot. What the KV cache holds of it stays, since it is shared by prefix. */
static void erase(aerie_session *session, void *user)
{
    errand *e = user;
    (void)session;
    pthread_mutex_lock(&e->model->lock);
    serve_engine_note_slots(e->model);
    serve_slot *slot = &e->model->slots[e->slot];
    e->busy = slot->running && slot->running->scope == e->scope;
    if (!slot->running && slot->tokens && slot->scope == e->scope) {
        e->n_tokens = slot->n_tokens;
        free(slot->tokens);
        slot->tokens = NULL;
        slot->n_tokens = 0;
    }
    pthread_mutex_unlock(&e->model->lock);
}

/* Writes the path of a file in --slot-save-path. The request's name must not contain a path. Each scope has its own folder
 * there, except the common one, 0. */
static bool path_of(const serve_call *call, uint64_t scope, bool saves, const char *name, char out[4096], serve_error *error)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *folder = call->server->o->slot_save_path;
    if (!name || !*name) return serve_fail(error, 400, "filename", "'filename' is missing");
    if (strlen(name) > 200 || name[0] == '.' || strspn(name, allowed) != strlen(name))
        return serve_fail(error, 400, "filename",
                          "'filename' must be a name, not a path: at most 200 letters, digits, '.', '_' and '-', the "
                          "first of them not '.'");
    int n = snprintf(out, 4096, scope ? "%s/%016llx" : "%s", folder, (unsigned long long)scope);
    if (n < 0 || n > 3500) return serve_fail(error, 500, "", "--slot-save-path is too long");
    if (scope && saves && mkdir(out, 0700) && errno != EEXIST)
        return serve_fail(error, 500, "", "the slot cannot be saved: %s", strerror(errno));
    snprintf(out + n, 4096 - (size_t)n, "/%s", name);
    return true;
}

/* Removes a temporary file that a killed server did not rename. A server that is still writing one holds its lock. */
static void remove_leftover(int folder, const char *name)
{
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        unlinkat(folder, name, 0) == 0)
        app_note("--slot-save-path: removed '%s', which a server had not finished writing", name);
    if (fd >= 0) close(fd);
}

static void clean(int folder, bool is_top)
{
    DIR *list = folder >= 0 ? fdopendir(folder) : NULL;
    if (!list && folder >= 0) close(folder);
    for (const struct dirent *e; list && (e = readdir(list));) {
        if (app_is_leftover(e->d_name)) remove_leftover(dirfd(list), e->d_name);
        else if (is_top && strlen(e->d_name) == 16 && strspn(e->d_name, "0123456789abcdef") == 16) /* a scope's folder */
            clean(openat(dirfd(list), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW), false);
    }
    if (list) closedir(list);
}

void serve_slots_clean(const char *folder)
{
    clean(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), true);
}

static bool write_file(const char *path, const void *data, size_t n, serve_error *error)
{
    const int failed = app_replace_file(path, data, n);
    return !failed || serve_fail(error, 500, "", "the slot cannot be saved: %s", strerror(failed));
}

static bool read_file(const char *path, app_text *text, serve_error *error)
{
    struct stat st;
    char part[4096];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return serve_fail(error, errno == ENOENT ? 404 : 500, "filename", "the file cannot be opened: %s", strerror(errno));
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    ssize_t n = 0;
    if (!ok) serve_fail(error, 400, "filename", "the file is not a regular file");
    while (ok && (n = read(fd, part, sizeof part)) > 0)
        if (!app_text_add(text, part, (size_t)n)) ok = serve_fail_memory(error);
    if (ok && n < 0) ok = serve_fail(error, 500, "filename", "the file cannot be read: %s", strerror(errno));
    close(fd);
    return ok;
}

/* Saves or restores. Called with call->work. Returns false with *error. */
static bool run(serve_ask *ask, void (*function)(aerie_session *session, void *user), errand *e, const char *field,
                serve_error *error)
{
    do {
        e->status = AERIE_OK;
        serve_engine_do(ask->model, function, e);
    } while (serve_ask_again(ask, e->status, error));
    return !error->status && (e->status == AERIE_OK || serve_fail_library(error, e->status, &e->why, field));
}

static json_t *save_slot(serve_ask *ask, uint32_t slot, const char *name, const char *path, serve_error *error)
{
    errand e = {.model = ask->model, .slot = slot, .scope = ask->scope};
    const double start = app_now();
    const bool ok = run(ask, save, &e, "", error);
    if (ok && e.empty && atomic_load(&ask->model->n_lost))
        serve_fail(error, 500, "",
                   "slot %u has nothing to save: the device of the model was lost, and no request has run there since the "
                   "model was loaded again", (unsigned)slot);
    else if (ok && e.empty)
        serve_fail(error, 400, "", "slot %u has nothing to save: no request has run there since the model was loaded",
                   (unsigned)slot);
    else if (ok) write_file(path, e.data, e.n_data, error);
    aerie_free(e.data);
    if (error->status) return NULL;
    return json_pack("{s:i, s:s, s:I, s:I, s:{s:f}}", "id_slot", (int)slot, "filename", name, "n_saved", (json_int_t)e.n_tokens,
                     "n_written", (json_int_t)e.n_data, "timings", "save_ms", (app_now() - start) * 1e3);
}

static json_t *restore_slot(serve_ask *ask, uint32_t slot, const char *name, const char *path, serve_error *error)
{
    app_text text = {0};
    const double start = app_now();
    errand e = {.model = ask->model, .slot = slot, .scope = ask->scope};
    if (read_file(path, &text, error)) {
        e.data = text.data;
        e.n_data = text.n;
        run(ask, restore, &e, "filename", error);
    }
    app_text_free(&text);
    if (error->status) return NULL;
    return json_pack("{s:i, s:s, s:I, s:I, s:{s:f}}", "id_slot", (int)slot, "filename", name, "n_restored",
                     (json_int_t)e.n_tokens, "n_read", (json_int_t)e.n_data, "timings", "restore_ms",
                     (app_now() - start) * 1e3);
}

/* Waits until the slot is idle, as llama.cpp's server does. */
static json_t *erase_slot(serve_call *call, const serve_ask *ask, uint32_t slot, serve_error *error)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    errand e = {.model = ask->model, .slot = slot, .scope = ask->scope};
    sem_post(call->work); /* let other requests be read meanwhile */
    do {
        if (e.busy) nanosleep(&pause, NULL);
        serve_engine_do(ask->model, erase, &e);
    } while (e.busy && !serve_call_gone(call));
    sem_wait(call->work);
    if (e.busy) {
        serve_fail(error, 499, "", "the client is gone");
        return NULL;
    }
    return json_pack("{s:i, s:I}", "id_slot", (int)slot, "n_erased", (json_int_t)e.n_tokens);
}

typedef enum action { SAVE, RESTORE, ERASE, N_ACTIONS } action;

static bool read_action(const serve_call *call, action *out, serve_error *error)
{
    static const char *const names[N_ACTIONS] = {"save", "restore", "erase"};
    const char *name = serve_call_query(call, "action");
    *out = SAVE;
    while (*out < N_ACTIONS && name && strcmp(name, names[*out])) ++*out;
    return (name && *out < N_ACTIONS) || serve_fail(error, 400, "", "?action= must be save, restore or erase; found '%.40s'",
                                                    name ? name : "");
}

static json_t *act(serve_call *call, serve_ask *ask, action what, serve_error *error)
{
    char path[4096], *end;
    const char *name = NULL, *number = call->path + strlen("/slots/");
    const unsigned long slot = strtoul(number, &end, 10);
    if (*end || *number < '0' || *number > '9' || slot >= ask->model->n_seqs)
        serve_fail(error, 404, "", "there are slots 0 to %u; found '%.40s'", (unsigned)ask->model->n_seqs - 1, number);
    else if (what == ERASE)
        return erase_slot(call, ask, (uint32_t)slot, error);
    else if (serve_get_text(ask->body, "filename", &name, error) && path_of(call, ask->scope, what == SAVE, name, path, error))
        return what == SAVE ? save_slot(ask, (uint32_t)slot, name, path, error)
                            : restore_slot(ask, (uint32_t)slot, name, path, error);
    return NULL;
}

/* Erasing needs no body. */
static bool give_body(serve_call *call, serve_error *error)
{
    if (call->body.n) return true;
    if (app_text_add(&call->body, "{}", 2) && serve_use_add(&call->use, call->body.capacity)) return true;
    app_text_free(&call->body);
    return serve_fail_memory(error);
}

void serve_post_slot(serve_call *call)
{
    serve_ask ask = {0};
    serve_error error = {0};
    json_t *json = NULL;
    action what;
    if (!call->server->o->slot_save_path)
        serve_fail(&error, 501, "",
                   "slots cannot be saved, restored or erased: the server was started without --slot-save-path");
    if (error.status || !read_action(call, &what, &error)) {
        serve_reply_error(call, &error);
        return;
    }
    const char *name = serve_call_query(call, "model"); /* as for the other actions on a model, if the body names none */
    sem_wait(call->work);
    bool ok = (what != ERASE || give_body(call, &error)) && serve_ask_read(&ask, call, &error);
    if (ok && name && !serve_get(ask.body, "model"))
        ok = !json_object_set_new(ask.body, "model", app_json_text(name, strlen(name))) || serve_fail_memory(&error);
    if (ok && serve_ask_model(&ask, &error) && serve_model_generates(ask.model, &error)) json = act(call, &ask, what, &error);
    serve_text_end(&ask, call, json, &error);
}
