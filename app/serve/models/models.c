/* models.c - implements models.h: the list of models, loading and unloading. */
#define _POSIX_C_SOURCE 200809L
#include "serve/models/models_int.h"
#include "aerie_extra.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "serve/http/systemd.h"
#include "setup/lookup.h"
#include "formats/kind.h" /* kinds of files, which aerie.h does not tell apart */

const char *serve_state_name(serve_state state)
{
    static const char *const names[] = {"unloaded", "loading", "loaded", "unloading", "failed"};
    return names[state];
}

/* ---- The list ----------------------------------------------------------------------------------------------- */

/* Finds the name of a model: NAME in "DIR/NAME-00001-of-00003.gguf". Returns its length; it begins at *start. */
static size_t name_of(const char *path, const char **start)
{
    const char *slash = strrchr(path, '/');
    *start = slash ? slash + 1 : path;
    unsigned part, of;
    return app_split_name(*start, &part, &of);
}

static int add_model(serve_models *models, const char *name, size_t n_name, const char *path)
{
    serve_model *grown = app_grow(models->items, models->n, &models->capacity, sizeof *grown);
    if (!grown) return app_error_memory("the list of models");
    models->items = grown;
    for (size_t i = 0; i < models->n; i++)
        if (strlen(grown[i].name) == n_name && memcmp(grown[i].name, name, n_name) == 0)
            return app_error(APP_USAGE, "'%s' and '%s' have the same name, %s: -m NAME=FILE gives another", grown[i].path, path,
                             grown[i].name);
    serve_model *m = &grown[models->n];
    *m = (serve_model){.server = models->server, .name = strndup(name, n_name), .path = strdup(path)};
    if (!m->name || !m->path) {
        free(m->name);
        free(m->path);
        return app_error_memory("the list of models");
    }
    models->n++;
    return APP_DONE;
}

/* Parses [NAME=]FILE. If a file with '=' in its name exists, the whole text is the file, as in app_pull_models. */
static int add_given(serve_models *models, const char *given, const char *alias)
{
    const char *equals = strchr(given, '='), *name;
    if (!*given) return app_error(APP_USAGE, "-m names no file; found ''");
    if (equals && equals > given && !memchr(given, '/', (size_t)(equals - given)) && access(given, F_OK))
        return add_model(models, given, (size_t)(equals - given), equals + 1);
    const size_t n = name_of(given, &name);
    /* of several names, as llama.cpp takes them, the first; a server of one model answers to any */
    return alias ? add_model(models, alias, strcspn(alias, ","), given) : add_model(models, name, n, given);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns whether the file is a model, or the first part of one. */
static bool is_model_file(const char *name)
{
    const size_t n = strlen(name);
    unsigned part, of;
    if (name[0] == '.' || n <= 5 || strcmp(name + n - 5, ".gguf")) return false;
    if (strncmp(name, "mmproj", 6) == 0) return false;
    app_split_name(name, &part, &of);
    return part <= 1;
}

static int add_folder(serve_models *models, const char *folder)
{
    char **names = NULL;
    size_t n = 0, capacity = 0;
    const size_t n_before = models->n;
    int bad = APP_DONE;
    DIR *dir = opendir(folder);
    if (!dir) return app_error(APP_BAD_FILE, "--models-dir '%s': %s", folder, strerror(errno));
    for (struct dirent *d; !bad && (d = readdir(dir));) {
        if (!is_model_file(d->d_name)) continue;
        char **grown = app_grow(names, n, &capacity, sizeof *names);
        if (grown) names = grown;
        if (!grown || !(names[n] = strdup(d->d_name))) bad = app_error_memory("the list of models");
        else n++;
    }
    closedir(dir);
    if (n) qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++) {
        char path[4096];
        struct stat st;
        const int length = snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (!bad && length > 0 && (size_t)length < sizeof path && stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
            !aerie_file_is_drafter_head(path) && !ae_role_is_other(path))
            bad = add_given(models, path, NULL);
        free(names[i]);
    }
    free(names);
    if (!bad && !models->n) return app_error(APP_BAD_FILE, "--models-dir '%s' contains no model (.gguf)", folder);
    const size_t n_models = models->n - n_before;
    if (!bad) app_note("--models-dir '%s' has %zu model%s, loaded when a request names one%s", folder, n_models,
                       app_plural(n_models), n > n_models ? "; heads, adapters and other files there are left out" : "");
    return bad;
}

static int choose_default(serve_models *models)
{
    const app_serve_options *o = models->server->o;
    models->has_default = o->models.n || o->default_model;
    while (o->default_model && models->i_default < models->n &&
           strcmp(models->items[models->i_default].name, o->default_model))
        models->i_default++;
    if (models->i_default < models->n) return APP_DONE;
    return app_error(APP_USAGE, "--default-model '%s' is not one of the %zu models, the first of which is '%s'",
                     o->default_model, models->n, models->items[0].name);
}

static int check_file(const char *path)
{
    if (!path || strcmp(path, "-") == 0 || access(path, R_OK) == 0) return APP_DONE;
    return app_error(APP_BAD_FILE, "%s: cannot open: %s", path, strerror(errno));
}

static void set_options(serve_model *m)
{
    app_options *o = &m->options;
    *o = *m->server->options;
    o->model = m->path;
    /* clients with less than an equal share may exceed a full queue (engine.c); 0: the library's default */
    o->session.n_waiting = m->server->o->max_queue ? 2 * m->server->o->max_queue + o->session.n_seqs : 1;
    o->conversation = true; /* a model without a template gets the default one */
}

/* Finds what keeps the first model from being loaded before the server says that it listens, as far as that takes no time. */
static int check_files(serve_model *m)
{
    const app_options *o = m->server->options;
    int bad = check_file(m->path);
    set_options(m);
    if (!bad && !o->machines) { /* each process of a group holds a part */
        bad = app_model_plan(&m->plan, &m->options, APP_NEED_MODEL);
        m->planned = !bad;
    }
    if (!bad) bad = check_file(o->draft_model);
    if (!bad) bad = check_file(o->mmproj);
    if (!bad) bad = check_file(o->chat.template_file);
    for (size_t i = 0; !bad && i < o->loras.n; i++) bad = check_file(o->loras.items[i].path);
    return bad;
}

int serve_models_create(serve_models *models, serve_server *server)
{
    const app_serve_options *o = server->o;
    struct timespec now;
    int bad = APP_DONE;
    *models = (serve_models){.server = server};
    pthread_mutex_init(&models->lock, NULL);
    pthread_cond_init(&models->changed, NULL);
    clock_gettime(CLOCK_REALTIME, &now);
    models->created = (double)now.tv_sec;
    if (!o->models.n && !o->models_dir)
        return app_error(APP_USAGE, "'serve' needs a model: -m FILE, or aerie serve FILE (or AERIE_MODEL), or --models-dir "
                         "DIR. FILE is a GGUF file or a name that 'aerie pull' takes");
    if (o->alias && (o->models.n != 1 || o->models_dir)) return app_error(APP_USAGE, "--alias names the model of a single -m");
    if (o->alias && (!*o->alias || *o->alias == ',')) return app_error(APP_USAGE, "--alias gives an empty name");
    for (size_t i = 0; !bad && i < o->models.n; i++) bad = add_given(models, o->models.items[i], o->alias);
    if (!bad && o->models_dir) bad = add_folder(models, o->models_dir);
    if (!bad && models->n > 1 && server->options->draft_model)
        bad = app_error(APP_USAGE,
                        "-md drafts for one model, but there are %zu; a drafter head beside a model (MODEL-eagle3.gguf) is "
                        "used without -md",
                        models->n);
    if (!bad && models->n > 1 && (server->options->lookup_static || server->options->lookup_dynamic))
        bad = app_error(APP_USAGE, "--lookup-cache-static and --lookup-cache-dynamic name a file for one model, but there are "
                        "%zu", models->n);
    if (!bad) bad = app_lookup_check(server->options);
    if (!bad && models->n > 1 && server->options->loras.n)
        bad = app_error(APP_USAGE, "--lora adapts one model, but there are %zu", models->n);
    if (!bad) bad = choose_default(models);
    for (size_t i = 0; i < models->n; i++) { /* the list does not move any more, so pointers into it are valid */
        pthread_mutex_init(&models->items[i].lock, NULL);
        pthread_mutex_init(&models->items[i].embed_lock, NULL);
        pthread_cond_init(&models->items[i].changed, NULL);
    }
    if (!bad && o->models.n) bad = check_files(&models->items[0]);
    if (!bad && o->models.n) { /* set at the start, so that /health does not report success too early */
        models->items[0].state = SERVE_LOADING;
        models->items[0].startup = true;
    }
    return bad;
}

/* ---- Loading ------------------------------------------------------------------------------------------------- */

static void close_model(serve_model *m)
{
    for (size_t i = 0; i < sizeof m->embedders / sizeof *m->embedders; i++) {
        aerie_embedder_free(m->embedders[i]);
        m->embedders[i] = NULL;
    }
    aerie_session_free(m->session);
    aerie_tower_free(m->tower);
    m->tower = NULL;
    app_models_free(&m->models);
    m->session = NULL;
}

static serve_template template_of(const serve_model *m, bool tools)
{
    const app_format *format = &m->models.format;
    const char *text = app_format_template(format, &m->models.info, tools);
    return (serve_template){.text = text,
                            .style = answer_style_detect(text, text ? strlen(text) : 0),
                            .reads = serve_reads_of(text),
                            .takes_system = app_format_takes_system(format, &m->models.info, tools)};
}

/* Called without any lock. */
/* *why gets the last message of the library. */
static int open_model(serve_model *m, aerie_error *why)
{
    app_options *o = &m->options;
    const aerie_spec_type type = m->server->options->session.spec.type;
    const double start = app_now();
    set_options(m);
    o->failure = why;
    const bool draft = app_wants_draft(type);
    int bad = m->planned ? app_models_load_planned(&m->models, o, draft, &m->plan)
                         : app_models_load(&m->models, o, draft, APP_NEED_MODEL);
    m->planned = false; /* the next time, other memory is free */
    if (bad) return bad;
    bad = app_need_text(&m->models, o);
    if (bad) {
        close_model(m);
        return bad;
    }
    const char *open, *close;
    m->plain = template_of(m, false);
    m->with_tools = template_of(m, true);
    if (m->plain.text)
        app_format_note_budget(&m->models.format, o, answer_reasoning_tags(&m->plain.style, &open, &close));
    m->takes_tools = app_format_takes_tools(&m->models.format, &m->models.info);
    if (!serve_lora_open(m)) bad = app_error_memory("the adapters");
    const bool reads_images = !m->models.info.is_encoder || m->models.info.decision == AERIE_DECISION_JOINT;
    if (!bad && reads_images) bad = app_tower_load(&m->tower, &m->models, o);
    else if (!bad && o->mmproj) app_note("--mmproj has no effect: '%s' reads text only", m->name);
    if (m->tower) atomic_store(&m->server->sees, true);
    if (!bad && !m->models.info.is_encoder) {
        bad = app_session_open(&m->session, &m->models, o, type);
        if (!bad) app_say_speculation(m->session, o, !o->quiet);
        if (!bad) bad = serve_engine_start(m);
    }
    if (bad) close_model(m);
    m->load_seconds = app_now() - start;
    if (!bad && !o->quiet) app_note("'%s' is loaded and answers (%.2f s)", m->name, m->load_seconds);
    return bad;
}

/* Keeps whether loading failed for lack of memory, and why, for clients, who need not know where the file is. */
static void note_shortage(serve_model *m, int bad, const aerie_error *why)
{
    const size_t n = strnlen(m->path, 150); /* messages cut it there */
    const bool is_short = bad && why->status == AERIE_ERROR_MEMORY;
    const bool named = why->text[0] == '\'' && strncmp(why->text + 1, m->path, n) == 0 && why->text[1 + n] == '\'';
    snprintf(m->short_of, sizeof m->short_of, "%s%.380s", is_short && named ? "it" : "",
             !is_short ? "" : named ? why->text + n + 2 : why->text);
}

void serve_models_load(serve_models *models, serve_model *m)
{
    aerie_error why = {0};
    m->state = SERVE_LOADING;
    pthread_mutex_unlock(&models->lock);
    const int bad = open_model(m, &why);
    m->options.failure = NULL;
    pthread_mutex_lock(&models->lock);
    note_shortage(m, bad, &why);
    m->lost = m->lost && bad;
    m->rests = false;
    atomic_store(&m->failed_points, 0);
    m->state = bad ? SERVE_FAILED : SERVE_READY;
    m->failed_at = m->last_used = app_now();
    if (!bad) m->n_loaded = ++models->n_loads;
    m->keep = models->server->o->sleep_idle;
    m->startup = m->startup && bad; /* the server will end, so /health must not report success */
    pthread_cond_broadcast(&models->changed);
}

void serve_models_unload(serve_models *models, serve_model *m)
{
    m->state = SERVE_UNLOADING;
    pthread_mutex_unlock(&models->lock);
    if (m->session) serve_engine_stop(m);
    (void)app_lookup_save(m->session, &m->options); /* it says what is wrong */
    close_model(m);
    if (!m->options.quiet) app_note("'%s' is unloaded", m->name);
    pthread_mutex_lock(&models->lock);
    m->state = SERVE_UNLOADED;
    pthread_cond_broadcast(&models->changed);
}

static void *load_first(void *user)
{
    serve_models *models = user;
    serve_model *m = &models->items[0];
    pthread_mutex_lock(&models->lock);
    serve_models_load(models, m);
    const bool bad = m->state == SERVE_FAILED;
    pthread_mutex_unlock(&models->lock);
    if (bad) atomic_store(&models->server->failed, true);
    else serve_notify("READY=1");
    return NULL;
}

void serve_models_start(serve_models *models)
{
    if (!models->server->o->models.n) {
        serve_notify("READY=1"); /* models are loaded when they are requested */
        return;
    }
    models->has_starter = pthread_create(&models->starter, NULL, load_first, models) == 0;
    if (!models->has_starter) atomic_store(&models->server->failed, true);
}

/* ---- Making room ------------------------------------------------------------------------------------------------ */

static serve_model *oldest_idle(serve_models *models)
{
    serve_model *oldest = NULL;
    for (size_t i = 0; i < models->n; i++) {
        serve_model *m = &models->items[i];
        if (m->state == SERVE_READY && !m->n_users && (!oldest || m->last_used < oldest->last_used)) oldest = m;
    }
    return oldest;
}

/* Returns whether the model may be loaded in addition to the loaded ones. */
static bool fits(const serve_models *models, const serve_model *wanted, uint64_t available)
{
    const app_serve_options *o = models->server->o;
    const uint64_t budget = (uint64_t)o->models_memory << 20;
    uint64_t bytes = wanted->bytes;
    size_t n = 1;
    for (size_t i = 0; i < models->n; i++) {
        const serve_model *m = &models->items[i];
        if (m == wanted || m->state == SERVE_UNLOADED || m->state == SERVE_FAILED) continue;
        bytes += m->bytes;
        n++;
    }
    if (n == 1) return true; /* no other model is loaded: loading shows whether it fits */
    return (!o->models_max || n <= o->models_max) && (!budget || bytes <= budget) && (!available || wanted->bytes <= available);
}

/* Returns the memory of the part of a model that reads images; 0 if it has none that can be used. */
static uint64_t tower_bytes(const app_options *o, const char *model)
{
    app_options of_model = *o;
    aerie_memory_plan p;
    size_t n;
    of_model.model = model;
    const aerie_tower_params params = app_tower_params(o);
    char *path = app_mmproj_path(&of_model, &n);
    const aerie_status status = path ? aerie_memory_plan_tower(path, &o->model_params, &params, 0, 0, &p, sizeof p, NULL)
                                     : AERIE_ERROR_ARGUMENT;
    free(path);
    return status == AERIE_OK ? p.weight_bytes + p.session_bytes : 0;
}

/* Estimates the model's memory, and measures how much the machine has left. */
static uint64_t plan(serve_models *models, serve_model *m)
{
    const app_options *o = models->server->options;
    aerie_memory_plan *p = &m->plan;
    set_options(m);
    aerie_session_params params = m->options.session;
    params.spec.type = AERIE_SPEC_NONE;
    params.spec.draft_model = NULL;
    const bool ok = aerie_memory_plan_get(m->path, &o->model_params, &params, p, sizeof *p, NULL) == AERIE_OK;
    m->planned = ok && !o->machines; /* each process of a group holds a part */
    if (!ok) return 0;
    m->bytes = p->weight_bytes + p->session_bytes + tower_bytes(o, m->path);
    return p->available_bytes;
}

/* Opens the file to see whether it contains a model; returns 0 if it does. The file is mapped and nothing is copied, so this
 * takes hardly any memory. */
static int open_file(const serve_model *m, aerie_error *error)
{
    const app_options *o = m->server->options;
    aerie_model_params params = o->model_params;
    aerie_session_params session = o->session;
    aerie_model *model = NULL;
    aerie_memory_plan p;
    params.mmap = true;
    params.no_mmap = false;
    params.progress = NULL;
    session.spec.type = AERIE_SPEC_NONE;
    session.spec.draft_model = NULL;
    aerie_status status = aerie_model_load(&model, m->path, &params, error);
    aerie_model_free(model);
    if (status == AERIE_OK) status = aerie_memory_plan_get(m->path, &o->model_params, &session, &p, sizeof p, error);
    return app_report(APP_LOADING, status, error);
}

/* Returns whether the model's file can be loaded at all, so that other models may be unloaded for it. Called under the lock,
 * which is released while the file is opened. */
static bool may_replace(serve_models *models, serve_model *m, uint64_t available, serve_error *error)
{
    const uint64_t budget = (uint64_t)models->server->o->models_memory << 20;
    uint64_t most = available;
    m->state = SERVE_LOADING;
    pthread_mutex_unlock(&models->lock);
    aerie_error why = {0};
    const int bad = open_file(m, &why);
    pthread_mutex_lock(&models->lock);
    m->state = bad ? SERVE_FAILED : SERVE_UNLOADED;
    note_shortage(m, bad, &why);
    m->failed_at = app_now();
    pthread_cond_broadcast(&models->changed);
    if (bad) return true; /* the state says it */
    for (size_t i = 0; i < models->n; i++)
        if (models->items[i].state == SERVE_READY) most += models->items[i].bytes;
    if (budget && m->bytes > budget)
        return serve_fail(error, 503, "model", "the model '%.100s' needs %llu MiB; --models-memory allows %u", m->name,
                          (unsigned long long)(m->bytes >> 20), (unsigned)models->server->o->models_memory);
    if (available && m->bytes > most)
        return serve_fail(error, 503, "model", "the model '%.100s' needs %llu MiB; without the others there would be %llu",
                          m->name, (unsigned long long)((m->bytes + (1 << 20) - 1) >> 20), (unsigned long long)(most >> 20));
    return true;
}

/* Unloads models to make room. available: the result of plan, if it was made just now; else 0. Called under the lock. Returns
 * false if all other models are in use; the caller then waits and tries again. */
static bool make_room(serve_models *models, serve_model *m, uint64_t available)
{
    for (; !fits(models, m, available ? available : plan(models, m)); available = 0) {
        serve_model *oldest = oldest_idle(models);
        if (!oldest) {
            m->planned = false; /* until the next try, other memory is free */
            return false;
        }
        serve_models_unload(models, oldest);
        if (m->state != SERVE_UNLOADED && m->state != SERVE_FAILED) return false; /* another thread has begun */
    }
    return true;
}

/* ---- Use --------------------------------------------------------------------------------------------------------- */

serve_model *serve_models_named(serve_models *models, const char *name)
{
    const char *tag = strchr(name, ':');                   /* ollama's clients write "name:latest" */
    const size_t n = tag && strcmp(tag, ":latest") == 0 ? (size_t)(tag - name) : strlen(name);
    for (size_t i = 0; i < models->n; i++)
        if (strlen(models->items[i].name) == n && memcmp(models->items[i].name, name, n) == 0) return &models->items[i];
    return NULL;
}

/* Returns the model for a request that names none: --default-model, or the first -m; else the one that was loaded last, if
 * possible one that is still loaded; before any is loaded, the first one that is not known to be broken. */
static serve_model *default_model(serve_models *models)
{
    serve_model *best = &models->items[models->i_default];
    if (models->has_default) return best;
    pthread_mutex_lock(&models->lock);
    for (size_t i = 0; i < models->n; i++) {
        serve_model *m = &models->items[i];
        const int rank = m->state == SERVE_READY ? 2 : m->state != SERVE_FAILED;
        const int best_rank = best->state == SERVE_READY ? 2 : best->state != SERVE_FAILED;
        if (rank > best_rank || (rank == best_rank && m->n_loaded > best->n_loaded)) best = m;
    }
    pthread_mutex_unlock(&models->lock);
    return best;
}

serve_model *serve_models_find(serve_models *models, const char *name)
{
    if (models->n == 1) return &models->items[0]; /* with a single model, any name is accepted */
    return name ? serve_models_named(models, name) : default_model(models);
}

bool serve_model_generates(const serve_model *m, serve_error *error)
{
    if (m->session) return true;
    if (m->models.info.decision)
        return serve_fail(error, 400, "model", "the model '%.100s' scores options (/v1/systemone), but cannot generate text",
                          m->name);
    return serve_fail(error, 400, "model", "the model '%.100s' is an encoder: it embeds texts (/v1/embeddings), but cannot "
                      "generate any", m->name);
}

serve_state serve_model_state(serve_models *models, const serve_model *m)
{
    pthread_mutex_lock(&models->lock);
    const serve_state state = m->state;
    pthread_mutex_unlock(&models->lock);
    return state;
}

static void wait_a_while(serve_models *models)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 200 * 1000 * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&models->changed, &models->lock, &until);
}

/* Fills in the error that loading the model failed a moment ago; returns false. */
static bool fail_to_load(const serve_model *m, serve_error *error)
{
    if (m->rests) {
        error->retry_after = (int)ceil(SERVE_RETRY_SECONDS - (app_now() - m->failed_at));
        return serve_fail(error, 503, "model", "the device of the model '%.100s' was lost %u times without an answer in "
                          "between; the model is loaded again in %d s", m->name, atomic_load(&m->n_lost), error->retry_after);
    }
    if (!*m->short_of)
        return serve_fail(error, 500, "model", "the model '%.100s' could not be loaded; the server's log says why", m->name);
    error->retry_after = SERVE_RETRY_SECONDS;
    return serve_fail(error, 503, "model", "the model '%.100s' could not be loaded: %s", m->name, m->short_of);
}

/* Makes the model ready for use, at the latest at `end`. Called under the lock. Returns false with the reason. */
static bool get_ready(serve_models *models, serve_model *m, const serve_call *call, double end, serve_error *error)
{
    bool checked = false;
    while (m->state != SERVE_READY || serve_model_is_lost(m)) { /* a lost one is loaded again in the background */
        if (m->startup) return serve_fail_not_ready(error, 2, "the model is being loaded");
        if (m->state == SERVE_FAILED && app_now() - m->failed_at < SERVE_RETRY_SECONDS)
            return fail_to_load(m, error);
        if (atomic_load(&models->server->draining)) return serve_fail_not_ready(error, 0, "the server is shutting down");
        if (serve_call_gone(call)) return serve_fail(error, 499, "", "the client is gone");
        if (app_now() > end) {
            error->retry_after = 30;
            if (m->lost || serve_model_is_lost(m))
                return serve_fail(error, 503, "model", "the device of the model '%.100s' failed, and loading the model again "
                                  "takes long", m->name);
            return serve_fail(error, 503, "model", "the model '%.100s' found no room: the other models are in use", m->name);
        }
        const bool idle = m->state == SERVE_UNLOADED || m->state == SERVE_FAILED;
        const uint64_t available = idle && !checked ? plan(models, m) : 0;
        if (idle && !checked && !fits(models, m, available)) {
            checked = true;
            if (!may_replace(models, m, available, error)) return false;
        } else if (idle && make_room(models, m, available)) {
            serve_models_load(models, m);
        } else {
            wait_a_while(models);
        }
    }
    return true;
}

bool serve_models_unknown(const serve_models *models, const char *name, serve_error *error)
{
    const char *best = NULL;
    for (size_t i = 0; i < models->n; i++) best = app_nearest(name, best, models->items[i].name);
    error->code = "model_not_found";
    if (best)
        return serve_fail(error, 404, "model", "there is no model '%.100s'; did you mean '%.100s'? /v1/models lists them", name,
                          best);
    return serve_fail(error, 404, "model", "there is no model '%.200s'; /v1/models lists them", name);
}

bool serve_models_take_again(serve_models *models, serve_model *m, const serve_call *call, double end, serve_error *error)
{
    pthread_mutex_lock(&models->lock);
    const bool ready = get_ready(models, m, call, end, error);
    m->n_users += ready;
    pthread_mutex_unlock(&models->lock);
    return ready;
}

serve_model *serve_models_take(serve_models *models, const char *name, const serve_call *call, serve_error *error)
{
    serve_model *m = serve_models_find(models, name), *last = NULL;
    bool ready = false;
    if (!m) {
        serve_models_unknown(models, name, error);
        return NULL;
    }
    while (!ready && m != last) { /* a request without a name tries the next model, as long as there is one */
        *error = (serve_error){0};
        ready = serve_models_take_again(models, m, call, app_now() + SERVE_WAIT_SECONDS, error);
        last = m;
        if (!ready && !name && serve_model_state(models, m) == SERVE_FAILED) m = serve_models_find(models, NULL);
    }
    return ready ? last : NULL;
}

serve_model *serve_models_look(serve_models *models, const char *name, serve_error *error)
{
    serve_model *m = serve_models_find(models, name);
    if (!m) {
        serve_models_unknown(models, name, error);
        return NULL;
    }
    if (serve_model_use(models, m)) return m;
    const bool loading = serve_model_state(models, m) == SERVE_LOADING;
    error->code = "model_not_loaded";
    error->retry_after = loading ? 2 : 0;
    if (loading) serve_fail(error, 503, "model", "the model is being loaded");
    else serve_fail(error, 503, "model", "the model '%.100s' is not loaded; a request that uses it loads it", m->name);
    return NULL;
}

bool serve_model_use(serve_models *models, serve_model *m)
{
    pthread_mutex_lock(&models->lock);
    const bool ready = m->state == SERVE_READY;
    m->n_users += ready;
    pthread_mutex_unlock(&models->lock);
    return ready;
}

void serve_models_used(serve_models *models, serve_model *m, double keep)
{
    pthread_mutex_lock(&models->lock);
    m->last_used = app_now();
    m->keep = isnan(keep) ? models->server->o->sleep_idle : keep;
    pthread_mutex_unlock(&models->lock);
}

void serve_models_give(serve_models *models, serve_model *m)
{
    if (!m) return;
    pthread_mutex_lock(&models->lock);
    m->n_users--;
    pthread_cond_broadcast(&models->changed);
    pthread_mutex_unlock(&models->lock);
}

void serve_models_sleep(serve_models *models)
{
    if (models->server->options->machines) return; /* the other processes end together with the first one's model and do not
                                                    * start again */
    pthread_mutex_lock(&models->lock);
    for (size_t i = 0; i < models->n; i++) {
        serve_model *m = &models->items[i];
        const bool idle = m->state == SERVE_READY && !m->n_users && !serve_model_is_lost(m); /* or else it is loaded again */
        if (idle && m->keep >= 0 && app_now() - m->last_used >= m->keep) serve_models_unload(models, m);
    }
    pthread_mutex_unlock(&models->lock);
}

/* ---- The end ------------------------------------------------------------------------------------------------------ */

void serve_models_stop(serve_models *models)
{
    for (size_t i = 0; i < models->n; i++) {
        serve_model *m = &models->items[i];
        pthread_mutex_lock(&m->lock);
        m->may_submit = false;
        pthread_mutex_unlock(&m->lock);
        serve_engine_cancel(m);
    }
}

void serve_models_free(serve_models *models)
{
    if (models->has_starter) pthread_join(models->starter, NULL);
    if (models->has_mender) pthread_join(models->mender, NULL);
    for (size_t i = 0; i < models->n; i++) {
        serve_model *m = &models->items[i];
        if (m->state == SERVE_READY) {
            if (m->session) serve_engine_stop(m);
            (void)app_lookup_save(m->session, &m->options);
            close_model(m);
        }
        pthread_mutex_destroy(&m->lock);
        pthread_mutex_destroy(&m->embed_lock);
        pthread_cond_destroy(&m->changed);
        free(m->name);
        free(m->path);
        free(m->lora_scales);
    }
    free(models->items);
    pthread_mutex_destroy(&models->lock);
    pthread_cond_destroy(&models->changed);
}
