/* perplexity.h - what the files of `aerie perplexity` share: perplexity.c handles windows of a text, base.c a saved base and
 * the comparison with it, choices.c tasks with several answers. */
#ifndef AERIE_APP_PERPLEXITY_H
#define AERIE_APP_PERPLEXITY_H

#include "aerie_measure.h"
#include "setup/load.h"

/* The windows of a text: window i has tokens [i * stride, i * stride + n_ctx), of which those from n_first on are predicted. */
typedef struct app_windows {
    const int32_t *tokens; /* [n_tokens] */
    size_t n_tokens;
    uint32_t n_ctx, stride, n_first;
    uint32_t n;  /* windows */
    int32_t bos; /* replaces the first token of a window; -1: none */
} app_windows;

static inline uint32_t app_windows_scored(const app_windows *w)
{
    return w->n_ctx - w->n_first;
}

/* The mean of n numbers, and its standard error. */
typedef struct app_mean {
    double value, error;
} app_mean;

app_mean app_mean_of(const float *x, size_t n);
/* Returns the log-probability of token `id`; *most (may be NULL) is the likeliest id. */
double app_logprob(const float *logits, size_t n_vocab, int32_t id, int32_t *most);
/* Returns the logarithm of the sum of e^logits. */
double app_log_sum(const float *logits, size_t n_vocab);

/* Shows the progress of a run on a terminal, and its value so far. */
typedef struct app_run_line {
    const app_options *options;
    const char *unit;
    double start, shown; /* times */
} app_run_line;

void app_run_line_show(app_run_line *line, size_t done, size_t total, const char *value);
void app_run_line_end(app_run_line *line);

/* Divides the text of -f or -p into windows. The caller frees w->tokens with aerie_free, also after a failure. */
int app_text_windows(app_windows *w, const app_models *models, const app_options *options);
/* Opens a session whose passes have room for the logits of n_scored positions of a window. */
int app_windows_session(aerie_session **session, const app_models *models, const app_options *options, uint32_t n_ctx,
                        uint32_t n_scored);
/* Runs window i. The callback is called on several threads with the logits of the positions that predict tokens from n_first
 * on. ids
 * [n_ctx] receives the window's tokens. */
int app_window_run(aerie_session *session, const app_windows *windows, uint32_t i, int32_t *ids,
                   aerie_logits_callback *callback, void *user);

/* ---- output.c ---------------------------------------------------------------------------------------------- */

/* Refuses a path if the command reads that file, if it is another GGUF file, or if no file can be created there. path: the
 * value of
 * `option`. */
int app_check_output(const app_options *options, const char *option, const char *path);

/* ---- base.c ------------------------------------------------------------------------------------------------ */

/* Writes the base: log-probabilities of all scored positions, in llama.cpp's format. nll [windows->n * scored] receives the
 * cost of each
 * token. */
int app_base_write(const app_models *models, const app_options *options, const app_windows *windows, float *nll);
/* Compares the model with the base, which contains the tokens and the windows, and prints the figures. */
int app_base_compare(const app_models *models, const app_options *options);

/* ---- choices.c ----------------------------------------------------------------------------------------------- */

int app_choices(const app_models *models, const app_options *options);

#endif
