/* imatrix.c - aerie imatrix: measures how much each column of a weight is used while the model reads a text, or for a drafter
 * head while it drafts for its target. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "aerie_measure.h"
#include "cli/commands.h"
#include "perplexity/perplexity.h"

typedef struct run {
    const app_models *models;
    const app_options *options;
    app_windows windows;
    aerie_session *session;
    aerie_imatrix *imatrix;
    bool head;
    uint32_t n_done; /* windows */
    uint64_t n_drafted, n_accepted;
    double seconds;
} run;

/* Runs a window as a prompt, which the head reads, too, and continues it with the head's drafts. */
static int draft(run *r, const int32_t *ids)
{
    aerie_error error = {0};
    aerie_stats stats;
    aerie_request request = aerie_request_default();
    request.tokens = ids;
    request.n_tokens = r->windows.n_ctx;
    request.n_predict = (uint32_t)(r->options->n_predict > 0 ? r->options->n_predict : 128);
    request.sampling.seed = r->n_done;
    request.ignore_eos = true;
    request.adapters = r->options->loras.uses;
    request.n_adapters = r->options->loras.n;
    const aerie_status status = aerie_session_generate(r->session, &request, 1, NULL, NULL, &stats, sizeof stats, &error);
    if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
    r->n_drafted += stats.n_drafted;
    r->n_accepted += stats.n_accepted;
    return app_interrupted() ? APP_INTERRUPTED : APP_DONE;
}

static bool go_on(void *user, size_t position, const float *logits)
{
    (void)user, (void)position, (void)logits;
    return !app_interrupted();
}

static int run_window(run *r, uint32_t i, int32_t *ids)
{
    aerie_error error = {0};
    memcpy(ids, r->windows.tokens + (size_t)i * r->windows.stride, r->windows.n_ctx * sizeof *ids);
    if (r->windows.bos >= 0) ids[0] = r->windows.bos;
    if (r->head) return draft(r, ids);
    /* the output matrix is only used for rows whose logits are wanted */
    const size_t first = r->options->judge.process_output ? 0 : r->windows.n_ctx - 1;
    const aerie_status status = aerie_session_eval_parallel(r->session, ids, r->windows.n_ctx, first, go_on, NULL, &error);
    if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
    return app_interrupted() ? APP_INTERRUPTED : APP_DONE;
}

static int save(const run *r)
{
    aerie_error error = {0};
    const char *name = r->options->file ? r->options->file : "-p", *slash = strrchr(name, '/');
    const aerie_status status = aerie_imatrix_save(r->imatrix, r->options->judge.output, slash ? slash + 1 : name, r->n_done,
                                                   r->windows.n_ctx, &error);
    if (status == AERIE_ERROR_IO) return app_error(APP_FAILED, "%s", error.text);
    return app_report(APP_WORKING, status, &error);
}

static int run_windows(run *r)
{
    int32_t *ids = malloc(r->windows.n_ctx * sizeof *ids);
    if (!ids) return app_error_memory("a window");
    int bad = APP_DONE;
    app_run_line line = {.options = r->options, .unit = "windows", .start = app_now()};
    for (uint32_t i = 0; !bad && i < r->windows.n; i++) {
        bad = run_window(r, i, ids);
        if (bad) break;
        r->n_done++;
        app_run_line_show(&line, i + 1, r->windows.n, "");
    }
    app_run_line_end(&line);
    r->seconds = app_now() - line.start;
    free(ids);
    return bad;
}

static int report(const run *r)
{
    const app_options *o = r->options;
    aerie_imatrix_info info;
    aerie_imatrix_info_get(r->imatrix, &info, sizeof info);
    if (info.n_unseen && !o->quiet)
        app_note("%zu of %zu matrices were not used by any row, and will be quantized without importance; a longer text would "
                 "help",
                 info.n_unseen, info.n_matrices);
    if (o->json)
        return app_print_json(json_pack(
            "{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "model", o->model, "output", o->judge.output, "head",
            r->head, "n_matrices", (json_int_t)info.n_matrices, "n_unseen", (json_int_t)info.n_unseen, "n_rows",
            (json_int_t)info.n_rows, "n_windows", (json_int_t)r->n_done, "window", (json_int_t)r->windows.n_ctx, "n_drafted",
            (json_int_t)r->n_drafted, "n_accepted", (json_int_t)r->n_accepted, "seconds", r->seconds));
    app_print("%s of %s: %zu matrices, up to %llu row%s each; %u window%s of %u tokens, in %.1f s\n", o->judge.output,
              r->head ? "the drafter head" : "the model", info.n_matrices, (unsigned long long)info.n_rows,
              app_plural(info.n_rows), (unsigned)r->n_done, app_plural(r->n_done), (unsigned)r->windows.n_ctx, r->seconds);
    if (r->head)
        app_print("%llu token%s drafted, %llu accepted\n", (unsigned long long)r->n_drafted, app_plural(r->n_drafted),
                  (unsigned long long)r->n_accepted);
    return APP_DONE;
}

/* own: a copy of the options, which this function may change. */
static int open_session(run *r, app_options *own)
{
    const app_options *o = r->options;
    aerie_error error = {0};
    aerie_imatrix_params params = aerie_imatrix_params_default();
    int bad;
    if (r->head) {
        own->session.n_ctx = r->windows.n_ctx + (uint32_t)(o->n_predict > 0 ? o->n_predict : 128) + 64;
        own->session.n_seqs = 1;
        own->session.spec.ngram = false;
        own->test.fixed = true; /* drafts even if it does not pay */
        bad = app_session_open(&r->session, r->models, own, AERIE_SPEC_AUTO);
    } else {
        bad = app_windows_session(&r->session, r->models, o, r->windows.n_ctx, o->judge.process_output ? r->windows.n_ctx : 1);
    }
    params.head = r->head;
    params.output = o->judge.process_output;
    return bad ? bad : app_report(APP_WORKING, aerie_imatrix_create(&r->imatrix, r->session, &params, &error), &error);
}

int app_imatrix(const app_options *o)
{
    app_models models = {0};
    run r = {.models = &models, .options = o, .windows = {.bos = -1}};
    if (!o->judge.output) return app_error(APP_USAGE, "'imatrix' needs a file to write: -o imatrix.gguf");
    app_options own = *o;
    if (!o->session.n_ctx) own.session.n_ctx = 512;
    int bad = app_check_output(o, "-o", o->judge.output);
    if (!bad) bad = app_models_load(&models, &own, o->draft_model != NULL, APP_NEED_TOKENS);
    if (!bad) bad = app_need_text(&models, &own);
    r.head = models.head != NULL;
    if (!bad && models.draft)
        bad = app_error(APP_USAGE,
                        "-md is a complete model: its importance matrix is collected with -m; -md takes a drafter head");
    if (!bad) bad = app_text_windows(&r.windows, &models, o);
    if (!bad) bad = open_session(&r, &own);
    app_interrupt_arm();
    if (!bad) bad = run_windows(&r);
    if (!bad) bad = save(&r);
    if (!bad) bad = report(&r);
    aerie_imatrix_free(r.imatrix);
    aerie_session_free(r.session);
    aerie_free((int32_t *)r.windows.tokens);
    app_models_free(&models);
    return bad;
}
