/* load.c - implements load.h: memory check, models, sessions, prompts. */
#define _POSIX_C_SOURCE 200809L
#include "setup/load.h"
#include "setup/lookup.h"
#include "aerie_extra.h"
#include "aerie_measure.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The model of the options -------------------------------------------------------------------------- */

int app_error_no_model(const app_options *options)
{
    const app_command *c = options->command;
    const bool first = strncmp(c->arguments, "[MODEL", 6) == 0;
    return app_error(APP_USAGE, "'%s' needs a model: -m FILE%s%s%s (or AERIE_MODEL). FILE is a GGUF file or a name that "
                     "'aerie pull' takes; 'make model' in aerie's source tree downloads a small one", c->name,
                     first ? ", or aerie " : "", first ? c->name : "", first ? " FILE ..." : "");
}

static int check_model(const app_options *options)
{
    if (!options->model) return app_error_no_model(options);
    return *options->model ? APP_DONE : app_error(APP_USAGE, "-m names no file; found ''");
}

/* ---- Memory ------------------------------------------------------------------------------------ */

static aerie_status add_draft(const app_options *options, const char *path, const aerie_session_params *params,
                              aerie_memory_plan *plan, aerie_error *error)
{
    aerie_memory_plan draft;
    const aerie_status status =
        aerie_memory_plan_draft(options->model, path, &options->model_params, params, &draft, sizeof draft, error);
    if (status != AERIE_OK) return status;
    plan->weight_bytes += draft.weight_bytes;
    plan->session_bytes += draft.session_bytes;
    return AERIE_OK;
}

/* Adds the memory that the weights and sessions of the draft models need, as far as it is known. */
static aerie_status add_drafts(const app_options *options, const aerie_session_params *params, bool with_draft,
                               aerie_memory_plan *plan, aerie_error *error)
{
    const app_texts *more = &options->bench.more_drafts;
    aerie_status status = with_draft ? add_draft(options, options->draft_model, params, plan, error) : AERIE_OK;
    for (size_t i = 0; status == AERIE_OK && i < more->n; i++)
        if (!aerie_file_is_drafter_head(more->items[i])) status = add_draft(options, more->items[i], params, plan, error);
    return status;
}

/* Returns the largest context of those halved from the wanted one that fits; 0 if none does. */
static uint32_t fitting_context(const app_options *options, aerie_session_params params, bool with_draft)
{
    aerie_memory_plan plan;
    const uint32_t most = params.n_ctx < APP_MAX_CTX ? params.n_ctx : APP_MAX_CTX;
    for (uint32_t n = most ? most / 2 : 4096; n >= 256; n /= 2) {
        params.n_ctx = n;
        if (aerie_memory_plan_get(options->model, &options->model_params, &params, &plan, sizeof plan, NULL) != AERIE_OK ||
            add_drafts(options, &params, with_draft, &plan, NULL) != AERIE_OK)
            return 0;
        if (plan.weight_bytes + plan.session_bytes <= plan.available_bytes) return n;
    }
    return 0;
}

/* Returns the parameters of the session whose memory is planned: what a drafter needs is counted as a second model's need. */
static aerie_session_params plan_params(const app_options *options)
{
    aerie_session_params params = options->session;
    params.spec.type = AERIE_SPEC_NONE;
    params.spec.draft_model = NULL;
    return params;
}

/* Fails unless the model is of a kind that the command can use. */
static int check_kind(const aerie_memory_plan *plan, const app_options *options, app_need need)
{
    const char *path = options->model, *command = options->command->name;
    if (need >= APP_NEED_TEXT && plan->decision)
        return app_error(APP_BAD_FILE, "'%s' is a model with a decision head: it scores options (aerie serve, /v1/systemone), "
                         "but cannot generate text", path);
    if (need >= APP_NEED_TEXT && plan->is_encoder)
        return app_error(APP_BAD_FILE, "'%s' is an encoder: it embeds texts (aerie embed; aerie serve, /v1/embeddings), but "
                         "cannot generate any", path);
    if (need >= APP_NEED_TOKENS && plan->is_encoder_decoder)
        return app_error(APP_BAD_FILE, "'%s' is an encoder-decoder model: it generates a text from another one (aerie run, "
                         "aerie serve), but cannot continue a given text, which '%s' needs", path, command);
    if (need >= APP_NEED_DRAFTS && plan->is_diffusion)
        return app_error(APP_BAD_FILE, "'%s' is a diffusion model: it fills its answer in any order (aerie run, aerie serve), "
                         "so nothing can draft for it, which '%s' needs", path, command);
    return APP_DONE;
}

int app_report_load(const app_options *options, app_stage stage, aerie_status status, const aerie_error *error)
{
    if (status != AERIE_OK && options->failure) *options->failure = *error;
    return app_report(stage, status, error);
}

int app_model_plan(aerie_memory_plan *plan, const app_options *options, app_need need)
{
    const aerie_session_params params = plan_params(options);
    aerie_error error = {0};
    const aerie_status status =
        aerie_memory_plan_get(options->model, &options->model_params, &params, plan, sizeof *plan, &error);
    const int bad = app_report_load(options, APP_LOADING, status, &error);
    return bad ? bad : check_kind(plan, options, need);
}

int app_models_check(const app_options *options, app_need need)
{
    const bool draft = options->draft_model && !aerie_file_is_drafter_head(options->draft_model);
    const aerie_session_params params = plan_params(options);
    aerie_memory_plan plan;
    aerie_error error = {0};
    int bad = check_model(options);
    if (!bad) bad = app_model_plan(&plan, options, need);
    return bad ? bad : app_report_load(options, APP_LOADING, add_drafts(options, &params, draft, &plan, &error), &error);
}

static bool is_on_device(const app_options *options)
{
    const char *names = options->model_params.backend;
    return names && *names && strcmp(names, "cpu") != 0 && strcmp(names, "cpu-strict") != 0;
}

static int check_memory(const app_options *options, aerie_memory_plan plan, bool with_draft)
{
    const aerie_session_params params = plan_params(options);
    aerie_error error = {0};
    char needed[32], weights[32], session[32], available[32], advice[200];
    const aerie_status status = add_drafts(options, &params, with_draft, &plan, &error);
    if (status != AERIE_OK) return app_report_load(options, APP_LOADING, status, &error);
    const uint64_t bytes = plan.weight_bytes + plan.session_bytes;
    if (options->verbose) {
        app_note("memory: weights %s, session %s, available %s", app_bytes(weights, plan.weight_bytes),
                 app_bytes(session, plan.session_bytes),
                 plan.available_bytes ? app_bytes(available, plan.available_bytes) : "unknown");
    }
    if (plan.available_bytes == 0 || bytes <= plan.available_bytes) return APP_DONE;
    const uint32_t n = fitting_context(options, params, with_draft);
    if (n)
        snprintf(advice, sizeof advice, "-c %u would fit%s", (unsigned)n,
                 is_on_device(options) ? ", and so may fewer layers on the device (-ngl) or a smaller type of the KV cache "
                                         "(-ctk q8_0 -ctv q8_0)" : "");
    else
        snprintf(advice, sizeof advice, "a smaller model or a smaller quantization would fit%s%s%s",
                 params.n_seqs > 1 ? ", or a smaller -np" : "", with_draft ? ", or no draft model" : "",
                 is_on_device(options) ? ", or fewer layers on the device (-ngl)" : "");
    error.status = AERIE_ERROR_MEMORY;
    snprintf(error.text, sizeof error.text,
             "'%.150s' needs %s of memory (weights %s, session %s), but only %s are available; %s", options->model,
             app_bytes(needed, bytes), app_bytes(weights, plan.weight_bytes),
             app_bytes(session, plan.session_bytes), app_bytes(available, plan.available_bytes), advice);
    return app_report_load(options, APP_LOADING, AERIE_ERROR_MEMORY, &error);
}

/* ---- Models ---------------------------------------------------------------------------------------- */

void app_progress_show(const char *what, uint64_t done, uint64_t total, int *shown)
{
    enum { WIDTH = 40, LEAST = 5, AROUND = 9 }; /* " [] 100%" after `what`, and the last column, where terminals may wrap */
    const int percent = total ? (int)(100.0 * (double)done / (double)total) : 100;
    if (percent == *shown) return;
    const int n_columns = app_terminal_columns(STDERR_FILENO);
    const int room = n_columns ? n_columns - (int)strlen(what) - AROUND : WIDTH;
    const int width = room < WIDTH ? room : WIDTH;
    if (app_terminal_is_dumb() || width + 3 < 0) return; /* a line that wraps could not be drawn again */
    *shown = percent;
    char bar[WIDTH + 1] = "";
    for (int i = 0; i < width; i++) bar[i] = i * 100 < percent * width ? '#' : ' ';
    if (width >= LEAST) fprintf(stderr, "\r%s [%.*s] %3d%%", what, width, bar, percent);
    else fprintf(stderr, "\r%s %3d%%", what, percent);
    fflush(stderr);
}

void app_progress_clear(int *shown)
{
    if (*shown >= 0) fputs("\r\033[K", stderr);
    *shown = -1;
}

static void on_log(void *user, aerie_log_level level, const char *sentence)
{
    if ((int)level >= *(const int *)user) app_note("%s", sentence);
}

/* Returns a log that prints warnings, even with --quiet. */
static aerie_log log_of(bool silent, bool verbose)
{
    static int least[] = {AERIE_LOG_DEBUG, AERIE_LOG_WARNING, AERIE_LOG_WARNING + 1}; /* models keep it */
    return (aerie_log){on_log, &least[silent ? 2 : !verbose]};
}

/* Returns a log for the library: prints warnings, and with --verbose everything. */
static aerie_log program_log(const app_options *options)
{
    return log_of(false, options->verbose);
}

static bool on_loaded(void *user, uint64_t done, uint64_t total)
{
    if (done < total) app_progress_show("loading", done, total, user);
    else app_progress_clear(user); /* before a message is printed */
    return true;
}

/* is_draft: the draft model, to which metadata, RoPE options and placements of the model do not apply. */
static int load_one(aerie_model **model, const char *path, const app_options *options, bool is_draft)
{
    aerie_model_params params = options->model_params;
    aerie_error error = {0};
    int shown = -1;
    params.log = program_log(options);
    if (!options->quiet && isatty(STDERR_FILENO)) {
        params.progress = on_loaded;
        params.user = &shown;
    }
    if (is_draft) {
        params.machines = NULL; /* only the first process of a group uses it, so that it has it for itself */
        params.rope = NULL;
        params.n_overrides = params.n_placements = 0;
    }
    const aerie_status status = aerie_model_load(model, path, &params, &error);
    app_progress_clear(&shown);
    return app_report_load(options, APP_LOADING, status, &error);
}

static aerie_status load_head(aerie_drafter_head **head, const aerie_model *model, const char *path, const app_options *options,
                              aerie_error *error)
{
    aerie_drafter_head_params params = aerie_drafter_head_params_default();
    params.n_threads = options->model_params.n_threads;
    params.mmap = options->model_params.mmap;
    params.no_mmap = options->model_params.no_mmap;
    params.n_vocab = options->draft_vocab;
    params.log = program_log(options);
    return aerie_drafter_head_load(head, model, path, &params, error);
}

/* Loads a drafter head beside the model. Nobody asked for it, so a problem with it costs one line, and the program
 * continues. */
static void load_head_beside(app_models *models, const char *path, const app_options *options)
{
    aerie_error error = {0};
    models->head_found = load_head(&models->head, models->model, path, options, &error) == AERIE_OK;
    if (!models->head_found)
        app_note("warning: the %s not used: %s",
                 strcmp(path,
                        options->bench.beside ? options->bench.beside : options->model) ? "drafter head beside the model is"
                                                                                  : "model's MTP blocks are",
                 error.text);
}

bool app_wants_draft(aerie_spec_type type)
{
    switch (type) {
    case AERIE_SPEC_AUTO:
    case AERIE_SPEC_DRAFT:
    case AERIE_SPEC_HIER:
    case AERIE_SPEC_EAGLE:
    case AERIE_SPEC_EAGLE3:
    case AERIE_SPEC_MEDUSA:
    case AERIE_SPEC_DFLASH:
    case AERIE_SPEC_DSPARK:
    case AERIE_SPEC_MTP: return true;
    default: return false;
    }
}

/* Returns the type of speculation: the only one, or the first in a list that needs a file. */
static aerie_spec_type wanted_type(const app_options *options)
{
    for (size_t i = 0; i < options->bench.spec_types.n; i++)
        if (app_wants_draft((aerie_spec_type)options->bench.spec_types.items[i]))
            return (aerie_spec_type)options->bench.spec_types.items[i];
    return options->session.spec.type;
}

static bool wants(const app_options *options, aerie_spec_type type)
{
    const app_numbers *types = &options->bench.spec_types;
    bool wanted = types->n ? false : options->session.spec.type == type;
    for (size_t i = 0; i < types->n; i++) wanted |= (aerie_spec_type)types->items[i] == type;
    return wanted;
}

/* Loads the drafters of the draft model: each one drafts for the one before, and the last may be a head, which may be beside
 * the model before it. With --spec-type auto nobody asked for that head. */
static int load_hierarchy(app_models *models, const app_options *options)
{
    const app_hier_options *h = &options->hier;
    const char *last = options->draft_model;
    const aerie_model *model = models->draft;
    aerie_error error = {0};
    for (size_t i = 0; i < h->files.n; i++) {
        const char *path = h->files.items[i];
        if (models->inner_head)
            return app_error(APP_USAGE, "--hier-draft '%s': the file before it is a drafter head, for which nothing drafts",
                             path);
        int bad;
        if (aerie_file_is_drafter_head(path)) {
            bad = app_report_load(options, APP_LOADING, load_head(&models->inner_head, model, path, options, &error), &error);
        } else if (models->n_inner == APP_MAX_HIER) {
            bad = app_error(APP_USAGE, "--hier-draft names more than %d models", APP_MAX_HIER);
        } else if (!(bad = load_one(&models->inner[models->n_inner], path, options, true))) {
            model = models->inner[models->n_inner++];
            last = path;
        }
        if (bad) return bad;
    }
    if (models->inner_head || !app_wants_draft(h->type)) return APP_DONE;
    char *found;
    int bad = app_report_load(options, APP_LOADING, aerie_drafter_head_find(&found, last, h->type, &error), &error);
    const aerie_status status = !bad && found ? load_head(&models->inner_head, model, found, options, &error) : AERIE_OK;
    if (status != AERIE_OK && !wants(options, AERIE_SPEC_HIER))
        app_note("the head beside the draft model is not used: %s", error.text);
    else if (!bad) bad = app_report_load(options, APP_LOADING, status, &error);
    if (models->inner_head) models->inner_path = found;
    else aerie_free(found);
    return bad;
}

static int fail_no_drafter(const app_options *options, aerie_spec_type type)
{
    if (type == AERIE_SPEC_DRAFT || type == AERIE_SPEC_HIER)
        return app_error(APP_USAGE, "--spec-type %s needs a draft model: -md FILE", aerie_spec_type_name(type));
    const char *beside = type == AERIE_SPEC_EAGLE3   ? "eagle3"
                         : type == AERIE_SPEC_DFLASH ? "dflash"
                         : type == AERIE_SPEC_DSPARK ? "dspark"
                                                     : NULL;
    if (beside)
        return app_error(APP_USAGE,
                         "--spec-type %s needs a drafter head: -md FILE, or MODEL-%s.gguf beside the model; there is "
                         "none beside %s", aerie_spec_type_name(type), beside, options->model);
    if (type == AERIE_SPEC_MTP)
        return app_error(APP_USAGE,
                         "--spec-type %s needs MTP blocks, but %s has none, and there is no MODEL-mtp.gguf beside it; name a "
                         "file that has them with -md FILE, or "
                         "use --spec-type auto, which drafts with what it finds", aerie_spec_type_name(type),
                         options->model);
    return app_error(APP_USAGE, "--spec-type %s needs a drafter head: -md FILE", aerie_spec_type_name(type));
}

int app_models_borrow(app_models *models, const app_models *base, const app_options *options)
{
    const char *path = options->draft_model;
    aerie_error error = {0};
    *models = (app_models){
        .model = base->model, .adapters = base->adapters, .n_adapters = base->n_adapters, .info = base->info};
    int bad;
    if (wanted_type(options) == AERIE_SPEC_MTP || aerie_file_is_drafter_head(path))
        bad = app_report_load(options, APP_LOADING, load_head(&models->head, models->model, path, options, &error), &error);
    else if (!(bad = load_one(&models->draft, path, options, true)))
        bad = load_hierarchy(models, options);
    return bad;
}

static void free_drafters(app_models *models)
{
    aerie_drafter_head_free(models->inner_head);
    aerie_free(models->inner_path);
    for (size_t i = models->n_inner; i-- > 0;) aerie_model_free(models->inner[i]);
    aerie_drafter_head_free(models->head);
    aerie_model_free(models->draft);
}

void app_models_return(app_models *models)
{
    free_drafters(models);
    *models = (app_models){0};
}

/* Runs a process of a group that is not the first: it follows the first one until that ends. Does not return. */
static void follow(app_models *models, const app_options *options)
{
    aerie_error error = {0};
    int bad = app_adapters_load(models, options);
    signal(SIGINT, SIG_IGN); /* the launcher sends these signals to all processes: the first one ends, and the others with it */
    signal(SIGTERM, SIG_IGN);
    if (!bad) bad = app_report(APP_LOADING, aerie_model_follow(models->model, options->model_params.n_threads, &error), &error);
    app_models_free(models);
    exit(bad);
}

static int load_all(app_models *models, const app_options *options, bool with_draft, const aerie_memory_plan *plan)
{
    char *found = NULL;
    bool no_blocks = false;
    aerie_error error = {0};
    int bad = APP_DONE;
    const char *draft = with_draft ? options->draft_model : NULL;
    const aerie_spec_type type = wanted_type(options);
    if (with_draft && (!draft || (wants(options, AERIE_SPEC_AUTO) && !aerie_file_is_drafter_head(draft))))
        bad = app_report(APP_LOADING, /* with a draft model, the head belongs to 'auto', whatever else is listed */
                         aerie_drafter_head_find(&found, options->bench.beside ? options->bench.beside : options->model,
                                                      draft ? AERIE_SPEC_AUTO : type, &error),
                         &error);
    if (!bad && with_draft && !draft && type != AERIE_SPEC_AUTO) { /* asked for by name */
        draft = found;
        no_blocks = !draft && type == AERIE_SPEC_MTP; /* said once the model is known to be one */
        if (!draft && !no_blocks) bad = fail_no_drafter(options, type);
    }
    const bool is_head = draft && (draft == found || type == AERIE_SPEC_MTP || aerie_file_is_drafter_head(draft));
    if (!bad) bad = app_format_read(&models->format, options);
    if (!bad && plan) bad = check_memory(options, *plan, draft && !is_head);
    if (!bad) bad = load_one(&models->model, options->model, options, false);
    if (!bad && no_blocks) bad = fail_no_drafter(options, type);
    if (!bad && aerie_model_rank(models->model, NULL)) follow(models, options);
    if (!bad && is_head)
        bad = app_report_load(options, APP_LOADING, load_head(&models->head, models->model, draft, options, &error), &error);
    else if (!bad && draft) bad = load_one(&models->draft, draft, options, true);
    if (!bad && found && !is_head) load_head_beside(models, found, options);
    if (!bad && (wants(options, AERIE_SPEC_HIER) || wants(options, AERIE_SPEC_AUTO)) && models->draft)
        bad = load_hierarchy(models, options);
    if (!bad && models->head && found) models->head_path = found;
    else aerie_free(found);
    if (!bad) bad = app_adapters_load(models, options);
    if (!bad) {
        aerie_model_info_get(models->model, &models->info, sizeof models->info);
        bad = app_format_fit(&models->format, models->model, &models->info, options,
                             options->conversation || options->system_prompt || options->chat.messages);
    }
    if (bad) {
        app_models_free(models);
        return bad;
    }
    return APP_DONE;
}

int app_models_load_planned(app_models *models, const app_options *options, bool with_draft, const aerie_memory_plan *plan)
{
    *models = (app_models){0};
    const int bad = check_model(options);
    return bad ? bad : load_all(models, options, with_draft, plan);
}

int app_models_load(app_models *models, const app_options *options, bool with_draft, app_need need)
{
    aerie_memory_plan plan;
    *models = (app_models){0};
    const bool alone = !options->machines; /* each process of a group has a part of the weights */
    int bad = check_model(options);
    const aerie_spec_type type = wanted_type(options);
    if (!bad && with_draft && !options->draft_model && (type == AERIE_SPEC_DRAFT || type == AERIE_SPEC_HIER))
        bad = fail_no_drafter(options, type); /* the command line is wrong, whatever the file is */
    if (!bad && alone) bad = app_model_plan(&plan, options, need);
    return bad ? bad : load_all(models, options, with_draft, alone ? &plan : NULL);
}

int app_model_load(app_models *models, const app_options *options)
{
    *models = (app_models){0};
    int bad = check_model(options);
    if (!bad) bad = load_one(&models->model, options->model, options, false);
    if (!bad) aerie_model_info_get(models->model, &models->info, sizeof models->info);
    return bad;
}

int app_need_text(const app_models *models, const app_options *options)
{
    int32_t *ids = NULL;
    size_t n = 0;
    aerie_error error = {0};
    const aerie_status status = aerie_model_tokenize(models->model, "a", 1, false, false, &ids, &n, &error);
    aerie_free(ids);
    if (status != AERIE_ERROR_UNSUPPORTED) return APP_DONE;
    return app_error(APP_BAD_FILE, "%s: %s", options->model, error.text);
}

int app_vocabulary_load(app_models *models, const app_options *options)
{
    aerie_model_params params = options->model_params;
    aerie_error error = {0};
    *models = (app_models){0};
    const int bad_model = check_model(options);
    if (bad_model) return bad_model;
    params.vocab_only = true;
    const aerie_status status = aerie_model_load(&models->model, options->model, &params, &error);
    if (status == AERIE_OK) aerie_model_info_get(models->model, &models->info, sizeof models->info);
    const int bad = app_report_load(options, APP_LOADING, status, &error);
    return bad ? bad : app_need_text(models, options);
}

void app_models_free(app_models *models)
{
    app_adapters_free(models);
    free_drafters(models);
    aerie_free(models->head_path);
    aerie_model_free(models->model);
    app_format_free(&models->format);
    *models = (app_models){0};
}

/* ---- Sessions ----------------------------------------------------------------------------------------- */

/* Fills specs [n_inner + 1]: the drafter of each model in a hierarchy, beginning with the draft model. */
static void fill_hierarchy(aerie_spec *specs, const app_models *models, const app_options *options)
{
    const app_hier_options *h = &options->hier;
    for (size_t i = models->n_inner + 1; i-- > 0;) {
        const bool last = i == models->n_inner;
        aerie_spec *s = &specs[i];
        *s = options->session.spec;
        s->type = last ? h->type : AERIE_SPEC_HIER;
        s->draft_model = last ? NULL : models->inner[i];
        s->head = last && app_wants_draft(h->type) ? models->inner_head : NULL;
        s->inner = last ? NULL : &specs[i + 1];
        s->n_max = h->n_iter, s->top_k = h->top_k, s->n_nodes = h->n_nodes;
    }
}

int app_session_open(aerie_session **session, const app_models *models, const app_options *options,
                     aerie_spec_type type)
{
    aerie_session_params params = options->session;
    aerie_spec specs[APP_MAX_HIER + 1];
    aerie_error error = {0};
    if (type == AERIE_SPEC_HIER || (type == AERIE_SPEC_AUTO && models->draft && (models->n_inner || models->inner_head))) {
        fill_hierarchy(specs, models, options);
        params.spec.inner = specs;
    }
    params.spec.type = type;
    params.spec.draft_model = app_wants_draft(type) ? models->draft : NULL;
    params.spec.head = app_wants_draft(type) ? models->head : NULL;
    params.spec.optional = models->head_found && !models->draft; /* a model was asked for */
    params.spec.adapter = models->draft_adapter;
    params.adapters = (const aerie_adapter *const *)models->adapters;
    params.n_adapters = models->n_adapters;
    /* benchmarks open many sessions, whose warnings nobody reads */
    params.log = log_of(options->command->bit & APP_BENCH, options->verbose);
    const bool by_model = type == AERIE_SPEC_DRAFT || type == AERIE_SPEC_HIER;
    if (by_model && !models->draft)
        return app_error(APP_USAGE, "speculation with a draft model needs a model: -md FILE%s",
                         models->head ? " (the one given is a drafter head)" : "");
    if (app_wants_draft(type) && type != AERIE_SPEC_AUTO && !by_model && !models->head)
        return app_error(APP_USAGE, "speculation of type %s needs a drafter head: -md FILE%s", aerie_spec_type_name(type),
                         models->draft ? " (the one given is a model)" : "");
    const aerie_status status = ae_session_create_for_test(session, models->model, &params, &options->test, &error);
    if (status == AERIE_ERROR_UNSUPPORTED && params.spec.draft_model) /* there are two files, so the message must name the right
                                                                       * one */
        return app_error(APP_BAD_FILE, "'%s' cannot draft for '%s': %s", options->draft_model, options->model, error.text);
    if (status != AERIE_OK) return app_report_load(options, APP_WORKING, status, &error);
    int bad = app_debug_session(*session, models->model);
    if (!bad && !(options->command->bit & APP_BENCH) && type != AERIE_SPEC_NONE) bad = app_lookup_open(*session, options);
    if (bad) return bad;
    /* for measured texts; requests name their own adapters */
    return app_report(APP_WORKING, aerie_session_eval_adapters(*session, options->loras.uses, options->loras.n, &error),
                      &error);
}

const char *app_shared_tokens(char out[96], const aerie_session *session)
{
    aerie_overlap o;
    char shared[32], all[32];
    *out = '\0';
    if (session && aerie_session_overlap(session, &o, sizeof o))
        snprintf(out, 96, "%s of %s tokens shared (%.1f%% of a sample text)", app_count(shared, o.n_shared),
                 app_count(all, o.n_target), 100 * o.text_share);
    return out;
}

void app_say_speculation(const aerie_session *session, const app_options *options, bool wanted)
{
    const aerie_spec *spec = &options->session.spec;
    const char *name = aerie_session_spec_name(session);
    char shared[96];
    const bool unused = options->draft_model && strcmp(name, aerie_spec_type_name(AERIE_SPEC_NONE)) == 0;
    if (!wanted && !unused) return;
    if (strcmp(name, aerie_spec_type_name(AERIE_SPEC_NONE)) == 0) {
        app_note("speculation: none%s", options->draft_model ? " (the draft model is not used)" : "");
    } else {
        const char *tree = spec->tree == AERIE_TREE_OFF    ? "chain"
                           : spec->tree == AERIE_TREE_AUTO ? "tree"
                                                           : aerie_tree_name(spec->tree);
        app_shared_tokens(shared, session);
        app_note("speculation: %s, up to %u token%s ahead, %s%s%s%s", name, (unsigned)spec->n_max,
                 app_plural(spec->n_max), tree, options->test.fixed ? ", all verified" : "",
                 *shared ? "; another vocabulary: " : "", shared);
    }
}
