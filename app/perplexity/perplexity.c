/* perplexity.c - aerie perplexity: measures how well a model predicts a text. Windows and figures are those of llama.cpp's
 * program. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aerie_measure.h"
#include "cli/commands.h"
#include "perplexity/perplexity.h"

#define DEFAULT_WINDOW 512

/* ---- Figures ------------------------------------------------------------------------------------------------- */

app_mean app_mean_of(const float *x, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i], squares += (double)x[i] * (double)x[i];
    if (n == 0) return (app_mean){0, 0};
    const double mean = sum / (double)n, variance = squares / (double)n - mean * mean;
    return (app_mean){mean, variance > 0 && n > 1 ? sqrt(variance / (double)(n - 1)) : 0};
}

double app_log_sum(const float *logits, size_t n_vocab)
{
    float most = logits[0];
    double sum = 0;
    for (size_t i = 1; i < n_vocab; i++) most = logits[i] > most ? logits[i] : most;
    for (size_t i = 0; i < n_vocab; i++) sum += expf(logits[i] - most);
    return (double)most + log(sum);
}

double app_logprob(const float *logits, size_t n_vocab, int32_t id, int32_t *most)
{
    if (most) {
        *most = 0;
        for (size_t i = 1; i < n_vocab; i++)
            if (logits[i] > logits[*most]) *most = (int32_t)i;
    }
    return (double)logits[id] - app_log_sum(logits, n_vocab);
}

void app_run_line_show(app_run_line *line, size_t done, size_t total, const char *value)
{
    const double now = app_now();
    const bool verbose = line->options->verbose, terminal = isatty(STDERR_FILENO) && !app_terminal_is_dumb();
    if (line->options->quiet || (!verbose && !terminal) || (!verbose && done < total && now - line->shown < 0.1)) return;
    line->shown = now;
    const double left = done ? (now - line->start) / (double)done * (double)(total - done) : 0;
    fprintf(stderr, "%s%zu of %zu %s  %s  %.0f s left%s", verbose ? "" : "\r", done, total, line->unit, value, left,
            verbose ? "\n" : "\033[K");
    fflush(stderr);
}

void app_run_line_end(app_run_line *line)
{
    const bool shown = !line->options->quiet && !line->options->verbose && isatty(STDERR_FILENO);
    if (shown && !app_terminal_is_dumb()) fputs("\r\033[K", stderr);
}

/* ---- Windows ------------------------------------------------------------------------------------------------- */

int app_windows_session(aerie_session **session, const app_models *models, const app_options *options, uint32_t n_ctx,
                        uint32_t n_scored)
{
    app_options own = *options;
    const uint32_t n_seqs = n_scored / 64 + 1; /* the number of logits of each sequence for which a pass has room */
    own.session.n_ctx = n_ctx;
    own.session.n_kv = n_ctx + 128; /* and room for a pass */
    own.session.n_seqs = n_seqs < 16 ? n_seqs : 16;
    return app_session_open(session, models, &own, AERIE_SPEC_NONE);
}

int app_window_run(aerie_session *session, const app_windows *w, uint32_t i, int32_t *ids, aerie_logits_callback *callback,
                   void *user)
{
    aerie_error error = {0};
    memcpy(ids, w->tokens + (size_t)i * w->stride, w->n_ctx * sizeof *ids);
    if (w->bos >= 0) ids[0] = w->bos;
    const aerie_status status = aerie_session_eval_parallel(session, ids, w->n_ctx - 1, w->n_first - 1, callback, user, &error);
    if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
    return app_interrupted() ? APP_INTERRUPTED : APP_DONE;
}

/* Chooses the windows as llama.cpp does. Without a stride they follow each other, and their second half counts, except its
 * first token; with a stride they overlap, are half a stride longer, and their last stride of tokens counts. */
static int cut(app_windows *w, const app_options *o, size_t n_tokens)
{
    const uint32_t n_ctx = o->session.n_ctx ? o->session.n_ctx : DEFAULT_WINDOW;
    if (n_ctx == AERIE_CTX_TRAINED || n_ctx < 4)
        return app_error(APP_USAGE, "--ctx-size is the length of a window here: at least 8 tokens");
    w->n_tokens = n_tokens;
    w->n_ctx = n_ctx + o->judge.stride / 2;
    w->stride = o->judge.stride ? o->judge.stride : n_ctx;
    w->n_first = n_ctx / 2 + 1;
    if (o->judge.stride) w->bos = -1, w->n_first = w->n_ctx - o->judge.stride;
    if (o->judge.stride >= n_ctx + o->judge.stride / 2)
        return app_error(APP_USAGE, "--ppl-stride %u is too long for windows of %u tokens", (unsigned)o->judge.stride,
                         (unsigned)w->n_ctx);
    if (n_tokens < 2 * (size_t)w->n_ctx)
        return app_error(APP_USAGE,
                         "the text has %zu tokens, but windows of %u tokens need %zu; give a longer text, or a smaller "
                         "window with -c",
                         n_tokens, (unsigned)w->n_ctx, 2 * (size_t)w->n_ctx);
    const size_t n = o->judge.stride ? (n_tokens - w->n_ctx + w->stride - 1) / w->stride : n_tokens / n_ctx;
    const size_t n_most = o->judge.n_chunks >= 0 ? (size_t)o->judge.n_chunks : UINT32_MAX;
    w->n = (uint32_t)(n < n_most ? n : n_most);
    return w->n ? APP_DONE : app_error(APP_USAGE, "--chunks 0 leaves nothing to measure");
}

/* Tokenizes the text of -f or -p; *bos is -1 if the model wants none. */
static int read_tokens(const app_models *models, const app_options *o, int32_t **tokens, size_t *n, int32_t *bos)
{
    app_text text = {0};
    aerie_error error = {0};
    int32_t *empty = NULL;
    size_t n_empty = 0;
    if ((o->file != NULL) + (o->prompts.n > 0) != 1 || o->prompts.n > 1)
        return app_error(APP_USAGE, "'%s' needs one text: -f FILE or -p TEXT", o->command->name);
    int bad = o->file ? app_read_data(&text, o->file) : APP_DONE;
    if (!bad && !o->file && !app_text_add(&text, o->prompts.items[0], strlen(o->prompts.items[0])))
        bad = app_error_memory("the text");
    if (!bad && o->file && text.n && text.data[text.n - 1] == '\n') text.n--;
    if (!bad)
        bad = app_report(APP_WORKING,
                         aerie_model_tokenize(models->model, text.data ? text.data : "", text.n, true, o->judge.parse_special,
                                              tokens,
                                              n,
                                              &error),
                         &error);
    if (!bad)
        bad = app_report(APP_WORKING, aerie_model_tokenize(models->model, "", 0, true, false, &empty, &n_empty, &error),
                         &error);
    *bos = n_empty && empty[0] == models->info.bos ? models->info.bos : -1;
    aerie_free(empty);
    app_text_free(&text);
    return bad;
}

int app_text_windows(app_windows *w, const app_models *models, const app_options *o)
{
    int32_t *tokens = NULL;
    size_t n = 0;
    int bad = read_tokens(models, o, &tokens, &n, &w->bos);
    w->tokens = tokens;
    return bad ? bad : cut(w, o, n);
}

/* ---- Perplexity ------------------------------------------------------------------------------------------------ */

typedef struct scorer {
    const app_windows *windows;
    size_t n_vocab;
    const int32_t *ids;
    float *nll; /* of the window */
} scorer;

static bool score(void *user, size_t position, const float *logits)
{
    const scorer *s = user;
    s->nll[position + 1 - s->windows->n_first] = (float)-app_logprob(logits, s->n_vocab, s->ids[position + 1], NULL);
    return !app_interrupted();
}

static int score_windows(const app_models *models, const app_options *options, const app_windows *w, float *nll)
{
    const uint32_t n_scored = app_windows_scored(w);
    aerie_session *session = NULL;
    int32_t *ids = malloc(w->n_ctx * sizeof *ids);
    scorer s = {.windows = w, .n_vocab = models->info.n_vocab, .ids = ids, .nll = nll};
    if (!ids) return app_error_memory("a window");
    int bad = app_windows_session(&session, models, options, w->n_ctx, n_scored);
    app_run_line line = {.options = options, .unit = "windows", .start = app_now()};
    for (uint32_t i = 0; !bad && i < w->n; i++, s.nll += n_scored) {
        char value[64];
        bad = app_window_run(session, w, i, ids, score, &s);
        if (bad) break;
        const app_mean mean = app_mean_of(nll, (size_t)(i + 1) * n_scored);
        snprintf(value, sizeof value, "perplexity %.4f +/- %.4f", exp(mean.value), exp(mean.value) * mean.error);
        app_run_line_show(&line, i + 1, w->n, value);
    }
    app_run_line_end(&line);
    aerie_session_free(session);
    free(ids);
    return bad;
}

static int print_perplexity(const app_options *o, const app_windows *w, const float *nll, double seconds)
{
    const size_t n = (size_t)w->n * app_windows_scored(w);
    const app_mean mean = app_mean_of(nll, n);
    const double perplexity = exp(mean.value), error = perplexity * mean.error;
    if (o->json)
        return app_print_json(json_pack("{s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:o}", "model", o->model,
                                        "perplexity", app_json_real(perplexity), "perplexity_error", app_json_real(error),
                                        "nll", app_json_real(mean.value), "nll_error", app_json_real(mean.error), "n_tokens",
                                        (json_int_t)w->n_tokens, "n_windows", (json_int_t)w->n, "window", (json_int_t)w->n_ctx,
                                        "stride", (json_int_t)w->stride, "n_scored", (json_int_t)n, "seconds", seconds, "base",
                                        o->judge.kl_base ? json_string(o->judge.kl_base) : json_null()));
    app_print("perplexity  %.4f +/- %.4f\n", perplexity, error);
    app_print("windows     %u of %u tokens, every %u token%s; %zu token%s predicted, in %.1f s\n", (unsigned)w->n,
              (unsigned)w->n_ctx, (unsigned)w->stride, app_plural(w->stride), n, app_plural(n), seconds);
    return APP_DONE;
}

static int perplexity(const app_models *models, const app_options *options)
{
    app_windows w = {.bos = -1};
    float *nll = NULL;
    int bad = app_text_windows(&w, models, options);
    if (!bad) nll = calloc((size_t)w.n * app_windows_scored(&w), sizeof *nll);
    if (!bad && !nll) bad = app_error_memory("the figures");
    const double start = app_now();
    if (!bad) bad = (options->judge.kl_base ? app_base_write : score_windows)(models, options, &w, nll);
    if (!bad) bad = print_perplexity(options, &w, nll, app_now() - start);
    free(nll);
    aerie_free((int32_t *)w.tokens);
    return bad;
}

int app_perplexity(const app_options *o)
{
    app_models models = {0};
    if (o->judge.kl_divergence + o->judge.hellaswag + o->judge.multiple_choice > 1)
        return app_error(APP_USAGE, "--kl-divergence, --hellaswag and --multiple-choice measure different things: give one");
    if (o->judge.kl_divergence && !o->judge.kl_base)
        return app_error(APP_USAGE, "--kl-divergence compares with a saved base: give it with --kl-divergence-base");
    if (o->judge.kl_base && (o->judge.hellaswag || o->judge.multiple_choice || o->judge.stride))
        return app_error(APP_USAGE, "--kl-divergence-base works on windows that do not overlap: it cannot be used with %s",
                         o->judge.stride ? "--ppl-stride" : o->judge.hellaswag ? "--hellaswag" : "--multiple-choice");
    app_options options = *o;
    if (!o->session.n_ctx) options.session.n_ctx = DEFAULT_WINDOW; /* for the memory plan, too */
    int bad = o->judge.kl_base && !o->judge.kl_divergence ? app_check_output(o, "--kl-divergence-base",
                                                                             o->judge.kl_base) : APP_DONE;
    if (!bad) bad = app_models_load(&models, &options, false, APP_NEED_TOKENS);
    if (!bad) bad = app_need_text(&models, &options);
    if (!bad && models.info.is_diffusion)
        bad = app_error(APP_BAD_FILE, "%s: a model of architecture %s sees the tokens that it would have to predict, so its "
                        "perplexity is not defined", options.model, models.info.arch);
    app_interrupt_arm();
    if (!bad && o->judge.kl_divergence) bad = app_base_compare(&models, o);
    else if (!bad && (o->judge.hellaswag || o->judge.multiple_choice)) bad = app_choices(&models, o);
    else if (!bad) bad = perplexity(&models, o);
    app_models_free(&models);
    return bad;
}
