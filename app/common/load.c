/* load.c - implements load.h: memory check, models, sessions, prompts. */
#define _POSIX_C_SOURCE 200809L
#include "common/load.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Memory ------------------------------------------------------------------------------------ */

/* Needs of both models' weights and sessions, as far as known. */
static aerie_status plan_all(const app_options *options, const aerie_session_params *params, bool with_draft,
                             aerie_memory_plan *plan, aerie_error *error)
{
    const aerie_status status = aerie_memory_plan_get(options->model, &options->model_params, params, plan, error);
    if (status != AERIE_OK || !with_draft) return status;
    aerie_memory_plan draft;
    const aerie_status second =
        aerie_memory_plan_draft(options->model, options->draft_model, &options->model_params, params, &draft, error);
    if (second != AERIE_OK) return second;
    plan->weight_bytes += draft.weight_bytes;
    plan->session_bytes += draft.session_bytes;
    return AERIE_OK;
}

/* The largest context, by halving, that fits; 0 if none does. */
static uint32_t fitting_context(const app_options *options, aerie_session_params params, bool with_draft)
{
    aerie_memory_plan plan;
    for (uint32_t n = params.n_ctx ? params.n_ctx / 2 : 4096; n >= 256; n /= 2) {
        params.n_ctx = n;
        if (plan_all(options, &params, with_draft, &plan, NULL) != AERIE_OK) return 0;
        if (plan.weight_bytes + plan.session_bytes <= plan.available_bytes) return n;
    }
    return 0;
}

static int check_memory(const app_options *options, bool with_draft)
{
    aerie_session_params params = options->session;
    aerie_memory_plan plan;
    aerie_error error = {0};
    char needed[32], weights[32], session[32], available[32], advice[160];
    params.spec.type = AERIE_SPEC_NONE; /* drafters' own needs are counted as a second model's */
    const aerie_status status = plan_all(options, &params, with_draft, &plan, &error);
    if (status != AERIE_OK) return app_report(APP_LOADING, status, &error);
    const uint64_t bytes = plan.weight_bytes + plan.session_bytes;
    if (options->verbose) {
        app_note("memory: weights %s, session %s, available %s", app_bytes(weights, plan.weight_bytes),
                 app_bytes(session, plan.session_bytes),
                 plan.available_bytes ? app_bytes(available, plan.available_bytes) : "unknown");
    }
    if (plan.available_bytes == 0 || bytes <= plan.available_bytes) return APP_DONE;
    const uint32_t n = fitting_context(options, params, with_draft);
    if (n) snprintf(advice, sizeof advice, "-c %u would fit", (unsigned)n);
    else
        snprintf(advice, sizeof advice, "a smaller model or a smaller quantization would fit%s",
                 params.n_seqs > 1 ? ", or a smaller -np" : "");
    return app_error(APP_FAILED, "'%s' needs %s of memory (weights %s, session %s), but only %s are available; %s",
                     options->model, app_bytes(needed, bytes), app_bytes(weights, plan.weight_bytes),
                     app_bytes(session, plan.session_bytes), app_bytes(available, plan.available_bytes), advice);
}

/* ---- Models ---------------------------------------------------------------------------------------- */

static bool show_progress(void *user, uint64_t done, uint64_t total)
{
    enum { WIDTH = 40 };
    int *shown = user; /* percent */
    const int percent = total ? (int)(100.0 * (double)done / (double)total) : 100;
    if (percent == *shown) return true;
    *shown = percent;
    char bar[WIDTH + 1];
    for (int i = 0; i < WIDTH; i++) bar[i] = i * 100 < percent * WIDTH ? '#' : ' ';
    bar[WIDTH] = '\0';
    fprintf(stderr, "\rloading [%s] %3d%%", bar, percent);
    fflush(stderr);
    return true;
}

static int load_one(aerie_model **model, const char *path, const app_options *options)
{
    aerie_model_params params = options->model_params;
    aerie_error error = {0};
    int shown = -1;
    if (!options->quiet && isatty(STDERR_FILENO)) {
        params.progress = show_progress;
        params.user = &shown;
    }
    const aerie_status status = aerie_model_load(model, path, &params, &error);
    if (shown >= 0) fputs("\r\033[K", stderr);
    return app_report(APP_LOADING, status, &error);
}

static void say_loaded(const aerie_model_info *info, double seconds)
{
    char bytes[32], weights[32];
    app_note("loaded '%s' (%s, %.1f M parameters) in %.2f s: read %s in %.2f s (%.2f GB/s), weights take %s, kernels: %s",
             info->name, info->arch, (double)info->n_params / 1e6, seconds, app_bytes(bytes, info->load_bytes),
             info->fill_seconds, app_rate((double)info->load_bytes / 1e9, info->fill_seconds),
             app_bytes(weights, info->weight_bytes), info->cpu_level);
    if (*info->cpu_tiles) app_note("kernels: by matrix tiles go, as measured, %s", info->cpu_tiles);
}

static aerie_status load_head(app_models *models, const char *path, const app_options *options, aerie_error *error)
{
    aerie_drafter_head_params params = aerie_drafter_head_params_default();
    aerie_drafter_head_info info;
    params.n_threads = options->model_params.n_threads;
    params.mmap = options->model_params.mmap;
    params.no_mmap = options->model_params.no_mmap;
    params.n_vocab = options->draft_vocab;
    const aerie_status status = aerie_drafter_head_load(&models->head, models->model, path, &params, error);
    if (status == AERIE_OK && options->verbose) {
        aerie_drafter_head_info_get(models->head, &info);
        app_note("drafting head '%s': %s, %.1f M parameters, width %u, drafts %u tokens", path, info.kind,
                 (double)info.n_params / 1e6, (unsigned)info.n_embd, (unsigned)info.n_draft);
    }
    return status;
}

/* A head that nobody asked for never stops the program: what keeps it from drafting costs one line. */
static void say_head_unused(const aerie_error *error, const app_options *options)
{
    if (!options->quiet) app_note("the drafter head beside the model is not used: %s", error->text);
}

static void load_head_beside(app_models *models, const char *path, const app_options *options)
{
    aerie_error error = {0};
    if (load_head(models, path, options, &error) == AERIE_OK) models->head_found = true;
    else say_head_unused(&error, options);
}

bool app_wants_draft(aerie_spec_type type)
{
    switch (type) {
    case AERIE_SPEC_AUTO:
    case AERIE_SPEC_DRAFT:
    case AERIE_SPEC_EAGLE:
    case AERIE_SPEC_EAGLE3:
    case AERIE_SPEC_MEDUSA: return true;
    default: return false;
    }
}

int app_models_load(app_models *models, const app_options *options, bool with_draft)
{
    *models = (app_models){0};
    if (!options->model) {
        return app_error(APP_USAGE, "'%s' needs a model: -m FILE (or AERIE_MODEL)", options->command->name);
    }
    const double start = app_now();
    char *found = NULL;
    aerie_error error = {0};
    int bad = APP_DONE;
    const char *draft = with_draft ? options->draft_model : NULL;
    if (with_draft && !draft) bad = app_report(APP_LOADING, aerie_drafter_head_find(&found, options->model, &error), &error);
    const bool is_head = draft && aerie_file_is_drafter_head(draft);
    if (!bad) bad = check_memory(options, draft && !is_head);
    if (!bad) bad = load_one(&models->model, options->model, options);
    if (!bad && is_head) bad = app_report(APP_LOADING, load_head(models, draft, options, &error), &error);
    else if (!bad && draft) bad = load_one(&models->draft, draft, options);
    else if (!bad && found) load_head_beside(models, found, options);
    aerie_free(found);
    if (bad) {
        app_models_free(models);
        return bad;
    }
    aerie_model_info_get(models->model, &models->info);
    if (options->verbose) say_loaded(&models->info, app_now() - start);
    return APP_DONE;
}

int app_vocabulary_load(app_models *models, const app_options *options)
{
    aerie_model_params params = options->model_params;
    aerie_error error = {0};
    *models = (app_models){0};
    if (!options->model) {
        return app_error(APP_USAGE, "'%s' needs a model: -m FILE (or AERIE_MODEL)", options->command->name);
    }
    params.vocab_only = true;
    const aerie_status status = aerie_model_load(&models->model, options->model, &params, &error);
    if (status == AERIE_OK) aerie_model_info_get(models->model, &models->info);
    return app_report(APP_LOADING, status, &error);
}

void app_models_free(app_models *models)
{
    aerie_drafter_head_free(models->head);
    aerie_model_free(models->model);
    aerie_model_free(models->draft);
    *models = (app_models){0};
}

/* ---- Sessions ----------------------------------------------------------------------------------------- */

int app_session_open(aerie_session **session, const app_models *models, const app_options *options,
                     aerie_spec_type type)
{
    aerie_session_params params = options->session;
    aerie_error error = {0};
    params.spec.type = type;
    params.spec.draft_model = app_wants_draft(type) ? models->draft : NULL;
    params.spec.head = app_wants_draft(type) ? models->head : NULL;
    if (type == AERIE_SPEC_DRAFT && !models->draft)
        return app_error(APP_USAGE, "speculation by a draft model needs one: -md FILE%s",
                         models->head ? " (the one given is a drafting head)" : "");
    if (app_wants_draft(type) && type != AERIE_SPEC_AUTO && type != AERIE_SPEC_DRAFT && !models->head)
        return app_error(APP_USAGE, "speculation of type %s needs a drafting head: -md FILE%s", aerie_spec_type_name(type),
                         models->draft ? " (the one given is a model)" : "");
    aerie_status status = aerie_session_create(session, models->model, &params, &error);
    if (status != AERIE_OK && models->head_found && type == AERIE_SPEC_AUTO) {
        params.spec.head = NULL;
        aerie_error second = {0};
        status = aerie_session_create(session, models->model, &params, &second);
        if (status == AERIE_OK) say_head_unused(&error, options);
        error = second;
    }
    if (status == AERIE_ERROR_UNSUPPORTED && params.spec.draft_model) /* two files: the sentence must say which */
        return app_error(APP_BAD_FILE, "'%s' cannot draft for '%s': %s", options->draft_model, options->model, error.text);
    return app_report(APP_WORKING, status, &error);
}

const char *app_shared_tokens(char out[96], const aerie_session *session)
{
    aerie_overlap o;
    char shared[32], all[32];
    *out = '\0';
    if (session && aerie_session_overlap(session, &o))
        snprintf(out, 96, "%s of %s tokens shared (%.1f%% of a sample text)", app_count(shared, o.n_shared),
                 app_count(all, o.n_target), 100 * o.text_share);
    return out;
}

void app_say_speculation(const aerie_session *session, const app_options *options)
{
    const aerie_spec *spec = &options->session.spec;
    const char *name = aerie_session_spec_name(session);
    char shared[96];
    aerie_overlap o;
    if (options->quiet) return;
    if (strcmp(name, aerie_spec_type_name(AERIE_SPEC_NONE)) == 0) {
        app_note("speculation: none%s", options->draft_model ? " (the draft model is not used)" : "");
    } else {
        const char *tree = spec->tree == AERIE_TREE_OFF    ? "chain"
                           : spec->tree == AERIE_TREE_AUTO ? "tree"
                                                           : aerie_tree_name(spec->tree);
        app_shared_tokens(shared, session);
        app_note("speculation: %s, up to %u token%s ahead, %s%s%s%s", name, (unsigned)spec->n_max,
                 spec->n_max == 1 ? "" : "s", tree, spec->fixed ? ", all verified" : "",
                 *shared ? "; another vocabulary: " : "", shared);
    }
    if (options->verbose && aerie_session_overlap(session, &o)) {
        char n_target[32], n_draft[32];
        app_note("vocabularies: the model has %s tokens, the draft model %s; they share %.1f%% of the model's, and drafts are "
                 "made of those; words with others are spelled in the draft model's own tokens",
                 app_count(n_target, o.n_target), app_count(n_draft, o.n_draft), 100 * o.vocab_share);
    }
}

/* ---- Prompts --------------------------------------------------------------------------------------------- */

size_t app_unescape(char *text, size_t n)
{
    static const char from[] = "nrt'\"\\", to[] = "\n\r\t'\"\\";
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        const char *known = text[i] == '\\' && i + 1 < n ? memchr(from, text[i + 1], sizeof from - 1) : NULL;
        if (known) {
            text[out++] = to[known - from];
            i++;
        } else if (text[i] == '\\' && i + 3 < n && text[i + 1] == 'x' && isxdigit((unsigned char)text[i + 2]) &&
                   isxdigit((unsigned char)text[i + 3])) {
            const char digits[] = {text[i + 2], text[i + 3], '\0'};
            text[out++] = (char)strtol(digits, NULL, 16);
            i += 3;
        } else {
            text[out++] = text[i];
        }
    }
    text[out] = '\0';
    return out;
}

int app_prompts_add(app_prompts *prompts, const char *text, size_t n, bool escape)
{
    app_prompt *grown = app_grow(prompts->items, prompts->n, &prompts->capacity, sizeof *grown);
    if (!grown) return app_error_memory("the prompts");
    prompts->items = grown;
    app_prompt *prompt = &grown[prompts->n++];
    *prompt = (app_prompt){0};
    if (!app_text_add(&prompt->text, text, n)) return app_error_memory("the prompts");
    if (escape) prompt->text.n = app_unescape(prompt->text.data, prompt->text.n);
    return APP_DONE;
}

/* One prompt per line. */
static int add_lines(app_prompts *prompts, const char *path)
{
    app_text text = {0};
    int bad = app_read_file(&text, path);
    for (size_t i = 0; !bad && i < text.n;) {
        const char *end = memchr(text.data + i, '\n', text.n - i);
        const size_t next = end ? (size_t)(end - text.data) : text.n;
        size_t n = next - i;
        if (n && text.data[i + n - 1] == '\r') n--;
        if (n) bad = app_prompts_add(prompts, text.data + i, n, false);
        i = next + 1;
    }
    app_text_free(&text);
    if (!bad && prompts->n == 0) return app_error(APP_BAD_FILE, "'%s' holds no prompt", path);
    return bad;
}

static int add_file(app_prompts *prompts, const char *path)
{
    app_text text = {0};
    int bad = app_read_file(&text, path);
    size_t n = text.n;
    if (n && text.data[n - 1] == '\n') n--; /* editors and echo put it there */
    if (!bad && n == 0) {
        bad = app_error(APP_USAGE, "the prompt from %s is empty", strcmp(path, "-") ? path : "standard input");
    }
    if (!bad) bad = app_prompts_add(prompts, text.data, n, false);
    app_text_free(&text);
    return bad;
}

int app_prompts_read(app_prompts *prompts, const app_options *options, bool standard_input)
{
    const int n_sources = (options->prompts.n > 0) + (options->file != NULL) + (options->prompts_file != NULL);
    int bad = APP_DONE;
    *prompts = (app_prompts){0};
    if (n_sources > 1) return app_error(APP_USAGE, "only one of -p, -f and --prompts-file can be given");
    for (size_t i = 0; !bad && i < options->prompts.n; i++) {
        const char *text = options->prompts.items[i];
        if (!*text) bad = app_error(APP_USAGE, "-p gives an empty prompt");
        else bad = app_prompts_add(prompts, text, strlen(text), options->escape);
    }
    if (!bad && options->prompts_file) bad = add_lines(prompts, options->prompts_file);
    if (!bad && options->file) bad = add_file(prompts, options->file);
    if (!bad && n_sources == 0 && standard_input) bad = add_file(prompts, "-");
    return bad;
}

void app_prompts_free(app_prompts *prompts)
{
    for (size_t i = 0; i < prompts->n; i++) {
        app_text_free(&prompts->items[i].text);
        aerie_free(prompts->items[i].tokens);
    }
    free(prompts->items);
    *prompts = (app_prompts){0};
}

bool app_uses_template(const app_models *models, const app_options *options)
{
    return models->info.has_chat_template && !options->no_conversation;
}

int app_conversation_encode(const app_models *models, const aerie_message *messages, size_t n, int32_t **tokens,
                            size_t *n_tokens)
{
    char *text = NULL;
    size_t n_text = 0;
    aerie_error error = {0};
    aerie_status status = aerie_chat_prompt(models->model, messages, n, true, &text, &n_text, &error);
    if (status != AERIE_OK) {
        const int bad = app_report(APP_LOADING, status, &error);
        app_note("the model's chat template failed; -no-cnv does without it");
        return bad;
    }
    status = aerie_chat_tokenize(models->model, text, n_text, tokens, n_tokens, &error);
    aerie_free(text);
    return app_report(APP_WORKING, status, &error);
}

static int encode(app_prompt *prompt, const app_models *models, const app_options *options)
{
    aerie_error error = {0};
    int bad;
    if (app_uses_template(models, options)) {
        aerie_message messages[2];
        size_t n = 0;
        if (memchr(prompt->text.data, '\0', prompt->text.n)) {
            return app_error(APP_USAGE, "the prompt holds a NUL byte, which no chat template can take; see -no-cnv");
        }
        if (options->system_prompt) messages[n++] = (aerie_message){"system", options->system_prompt};
        messages[n++] = (aerie_message){"user", prompt->text.data};
        bad = app_conversation_encode(models, messages, n, &prompt->tokens, &prompt->n_tokens);
    } else {
        const aerie_status status = aerie_tokenize(models->model, prompt->text.data, prompt->text.n, true, true,
                                                   &prompt->tokens, &prompt->n_tokens, &error);
        bad = app_report(APP_WORKING, status, &error);
    }
    if (!bad && prompt->n_tokens == 0) return app_error(APP_USAGE, "the prompt has no tokens");
    return bad;
}

int app_prompts_encode(app_prompts *prompts, const app_models *models, const app_options *options)
{
    int bad = APP_DONE;
    if (!app_uses_template(models, options)) {
        if (options->system_prompt) app_note("without a chat template --system-prompt has no effect");
        if (options->verbose && !options->no_conversation)
            app_note("the model has no chat template: the prompt is continued as it is");
    }
    for (size_t i = 0; !bad && i < prompts->n; i++) bad = encode(&prompts->items[i], models, options);
    return bad;
}

aerie_request app_request(const app_options *options, const app_prompt *prompt)
{
    aerie_request request = aerie_request_default();
    request.tokens = prompt->tokens;
    request.n_tokens = prompt->n_tokens;
    request.n_predict = options->n_predict > 0 ? (uint32_t)options->n_predict : 0;
    request.ignore_eos = options->ignore_eos;
    request.sampling = options->sampling;
    request.stop = options->stop.items;
    request.n_stop = options->stop.n;
    request.n_logprobs = options->n_logprobs;
    request.grammar = options->grammar;
    return request;
}
