/* logits.c - aerie bench logits: raw logits of windows of ids, for comparison with other engines. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aerie_measure.h"
#include "setup/load.h"
#include "cli/commands.h"

typedef struct windows {
    int32_t *ids; /* the ids of all windows, one after another */
    size_t n_ids;
    size_t *ends; /* [n] */
    size_t n, capacity;
    size_t longest;
} windows;

static int add_window(windows *w, const char *line, size_t n, const char *path)
{
    int32_t *ids;
    size_t n_ids;
    const int bad = app_parse_ids(line, n, path, APP_BAD_FILE, &ids, &n_ids);
    if (bad || n_ids == 0) return bad;
    int32_t *all = realloc(w->ids, (w->n_ids + n_ids) * sizeof *all);
    if (all) w->ids = all;
    size_t *ends = app_grow(w->ends, w->n, &w->capacity, sizeof *ends);
    if (ends) w->ends = ends;
    if (!all || !ends) {
        free(ids);
        return app_error_memory("the token ids");
    }
    memcpy(w->ids + w->n_ids, ids, n_ids * sizeof *ids);
    w->n_ids += n_ids;
    w->ends[w->n++] = w->n_ids;
    if (n_ids > w->longest) w->longest = n_ids;
    free(ids);
    return APP_DONE;
}

static int read_windows(windows *w, const char *path)
{
    app_text text = {0};
    int bad = app_read_data(&text, path);
    for (size_t i = 0; !bad && i < text.n;) {
        const char *end = memchr(text.data + i, '\n', text.n - i);
        const size_t next = end ? (size_t)(end - text.data) : text.n;
        bad = add_window(w, text.data + i, next - i, path);
        i = next + 1;
    }
    app_text_free(&text);
    if (!bad && w->n == 0) return app_error(APP_BAD_FILE, "'%s' contains no token ids", path);
    return bad;
}

static bool write_row(void *user, size_t position, const float *logits)
{
    const size_t *n_vocab = user;
    (void)position;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the rows are written as they are in memory, which must be little-endian"
#endif
    return app_write(logits, *n_vocab * sizeof *logits) && !app_interrupted();
}

static int write_all(const windows *w, const app_models *models, const app_options *options)
{
    aerie_session *session = NULL;
    aerie_error error = {0};
    size_t n_vocab = models->info.n_vocab;
    int bad = app_session_open(&session, models, options, AERIE_SPEC_NONE);
    for (size_t i = 0, start = 0; !bad && i < w->n; start = w->ends[i++]) {
        const aerie_status status =
            aerie_session_eval(session, w->ids + start, w->ends[i] - start, write_row, &n_vocab, &error);
        bad = app_report(APP_WORKING, status, &error);
        if (!bad && app_interrupted()) bad = APP_INTERRUPTED;
        if (!bad && !app_flush()) bad = APP_FAILED;
    }
    aerie_session_free(session);
    return bad;
}

int app_bench_logits(const app_options *given)
{
    app_options options = *given;
    app_models models = {0};
    windows w = {0};
    if (!options.bench.ids_file) return app_error(APP_USAGE, "'bench logits' needs token ids: --ids-file FILE");
    if (isatty(STDOUT_FILENO)) {
        return app_error(APP_USAGE, "'bench logits' writes binary data; redirect standard output to a file or a pipe");
    }
    int bad = read_windows(&w, options.bench.ids_file);
    if (!bad && options.session.n_ctx == 0) options.session.n_ctx = w.longest > 8 ? (uint32_t)w.longest : 8;
    if (!bad) bad = app_models_load(&models, &options, false, APP_NEED_TOKENS);
    app_interrupt_arm();
    if (!bad) bad = write_all(&w, &models, &options);
    app_models_free(&models);
    free(w.ids);
    free(w.ends);
    return bad;
}
