/* run.c - aerie run: answers to prompts. The chat is in chat.c. */
#define _POSIX_C_SOURCE 200809L
#include "cli/commands.h"

#include <string.h>
#include <unistd.h>

#include "run/cache.h"
#include "setup/lookup.h"

/* Returns whether some prompts were answered although others were refused. */
static bool served_some(const app_generation *g)
{
    size_t n = 0;
    for (size_t i = 0; g->stats && i < g->prompts->n; i++) n += g->stats[i].error.status != AERIE_OK;
    return n && n < g->prompts->n;
}

static int print_json(const app_generation *g, const aerie_stats *sum, const aerie_session *session)
{
    json_t *answers = json_array();
    for (size_t i = 0; answers && i < g->prompts->n; i++) {
        app_json_append(answers, app_json_answer(g, i));
    }
    json_t *settings = app_json_settings(g->models, g->options, session);
    if (g->prompts->n != 1) {
        return app_print_json(json_pack("{s:o, s:o, s:f, s:o}", "answers", answers, "stats", app_json_stats(sum),
                                        "seconds", g->seconds, "settings", settings));
    }
    json_t *only = json_incref(json_array_get(answers, 0));
    json_decref(answers);
    if (!only || json_object_set_new(only, "settings", settings)) {
        json_decref(only);
        only = NULL;
    }
    return app_print_json(only);
}

/* Generates the plain answers for the oracle, without output. */
static int consult(app_generation *plain)
{
    aerie_session *session = NULL;
    app_options options = *plain->options;
    options.quiet = true;
    int bad = app_session_open(&session, plain->models, &options, AERIE_SPEC_NONE);
    if (!bad) bad = app_generate(plain, session);
    aerie_session_free(session);
    return bad;
}

/* Saves the prompt for --prompt-cache if its answer has begun, which means that the whole prompt was computed. */
static int keep_prompt(const app_generation *g, app_cache *cache, aerie_session *session)
{
    if (!g->answers[0].n_ids) return APP_DONE;
    const int bad = app_cache_note(cache, g->models->model, &g->prompts->items[0], &g->answers[0]);
    return bad ? bad : app_cache_save(cache, session);
}

static int answer(const app_models *models, const app_options *options, const app_prompts *prompts)
{
    const bool oracle = options->session.spec.type == AE_SPEC_ORACLE;
    app_generation plain = {.models = models, .options = options, .prompts = prompts};
    app_generation g = plain;
    aerie_session *session = NULL;
    app_cache cache = {0};
    int bad = APP_DONE;
    g.show = options->json    ? APP_SHOW_NOTHING
             : options->jsonl ? APP_SHOW_LINES
             : options->ids   ? APP_SHOW_IDS
                              : APP_SHOW_TEXT;
    g.headers = g.show == APP_SHOW_TEXT && prompts->n > 1 && !options->quiet;
    if (oracle) {
        g.known = &plain;
        bad = consult(&plain);
    }
    if (!bad) bad = app_session_open(&session, models, options, options->session.spec.type);
    if (!bad) bad = app_cache_open(&cache, options, session);
    if (!bad) {
        app_say_speculation(session, options, options->stats || options->verbose);
        g.color = app_wants_color(options);
        bad = app_generate(&g, session);
        if (!bad || bad == APP_INTERRUPTED || served_some(&g)) {
            aerie_stats sum = {0};
            for (size_t i = 0; i < prompts->n; i++) app_stats_add(&sum, &g.stats[i]);
            if (options->json && print_json(&g, &sum, session) && !bad) bad = APP_FAILED;
            if (options->stats) app_say_stats(&sum, prompts->n, g.seconds, session);
            const int unsaved = keep_prompt(&g, &cache, session), unsaved_text = app_lookup_save(session, options);
            if (!bad) bad = app_generation_check(&g);
            if (!bad) bad = unsaved ? unsaved : unsaved_text;
        }
    }
    app_cache_free(&cache);
    aerie_session_free(session);
    app_generation_free(&g);
    app_generation_free(&plain);
    return bad;
}

int app_run(const app_options *options)
{
    const aerie_spec_type type = options->session.spec.type;
    const bool prompted = options->prompts.n || options->file || options->prompts_file || options->chat.messages;
    app_prompts prompts = {0};
    app_models models = {0};
    if (!options->model) return app_error_no_model(options);
    int no_cache = app_cache_check(options);
    if (!no_cache) no_cache = app_lookup_check(options);
    if (no_cache) return no_cache;
    if ((!prompted || options->conversation) && isatty(STDIN_FILENO)) {
        app_options chatting = *options;
        chatting.conversation = true; /* if the model has no template, it continues plain text */
        return app_chat(&chatting);
    }
    int bad = app_prompts_read(&prompts, options, true);
    if (!bad && options->run.prompt_cache && prompts.n != 1)
        bad = app_error(APP_USAGE, "--prompt-cache keeps one prompt; found %zu", prompts.n);
    if (!bad && options->images.n && prompts.n != 1)
        bad = app_error(APP_USAGE, "--image is for one prompt; found %zu", prompts.n);
    if (!bad) bad = app_models_load(&models, options, app_wants_draft(type), APP_NEED_TEXT);
    if (!bad) bad = app_need_text(&models, options);
    if (!bad) bad = app_prompts_encode(&prompts, &models, options);
    app_interrupt_arm();
    if (!bad) bad = answer(&models, options, &prompts);
    app_prompts_free(&prompts);
    app_models_free(&models);
    return bad;
}
