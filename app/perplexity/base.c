/* base.c - saves a model's predictions of a text in a file, and compares another model, usually the same one quantized, with
 * them.
 * The file has llama.cpp's format: "_logits_", then int32 the window's length, the vocabulary's size and the number of windows,
 * the tokens, and for each scored position two f32, scale and smallest log-probability, and a u16 for each token: log p =
 * smallest + scale * code. The file may be malicious: its sizes are checked against its length before memory is allocated. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "perplexity/perplexity.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the file's numbers are as they are in memory, which must be little-endian"
#endif

static const char magic[8] = {'_', 'l', 'o', 'g', 'i', 't', 's', '_'};

/* Returns the number of u16 of a position: four for the two floats, and an even number of codes. */
static size_t row_codes(size_t n_vocab)
{
    return 4 + (n_vocab + 1) / 2 * 2;
}

/* ---- Writing ---------------------------------------------------------------------------------------------------- */

typedef struct writer {
    const app_windows *windows;
    size_t n_vocab;
    const int32_t *ids;
    float *nll;      /* of the window */
    uint16_t *codes; /* [scored][row_codes] */
} writer;

static bool encode_row(void *user, size_t position, const float *logits)
{
    const writer *w = user;
    const size_t at = position + 1 - w->windows->n_first, n = w->n_vocab;
    uint16_t *row = w->codes + at * row_codes(n);
    const double log_sum = app_log_sum(logits, n);
    float most = logits[0], least = logits[0];
    for (size_t i = 1; i < n; i++) {
        if (logits[i] > most) most = logits[i];
        if (logits[i] < least) least = logits[i];
    }
    if (least < most - 16.0f) least = most - 16.0f;
    const float head[2] = {(most - least) / 65535.0f, (float)((double)least - log_sum)};
    const float inverse = head[0] > 0.0f ? 1.0f / head[0] : 0.0f;
    memcpy(row, head, sizeof head);
    for (size_t i = 0; i < n; i++) {
        const float code = logits[i] > least ? inverse * (logits[i] - least) + 0.5f : 0.0f;
        row[4 + i] = code < 65535.0f ? (uint16_t)code : 65535;
    }
    if (n % 2) row[4 + n] = 0;
    w->nll[at] = (float)(log_sum - (double)logits[w->ids[position + 1]]);
    return !app_interrupted();
}

/* A file beside `path` that is renamed to it when it is complete. */
typedef struct aside {
    char *path; /* owned; NULL: none */
    FILE *file;
} aside;

static int aside_open(aside *a, const char *path)
{
    const size_t n = strlen(path) + sizeof ".part-XXXXXX";
    a->path = malloc(n);
    if (!a->path) return app_error_memory("a path");
    snprintf(a->path, n, "%s.part-XXXXXX", path);
    const int fd = mkstemp(a->path);
    const mode_t mask = umask(0);
    umask(mask);
    if (fd >= 0) (void)fchmod(fd, 0666 & ~mask);
    a->file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (a->file) return APP_DONE;
    const int reason = errno;
    if (fd >= 0) close(fd), unlink(a->path);
    free(a->path);
    a->path = NULL;
    return app_error(APP_FAILED, "'%s' cannot be written: %s", path, strerror(reason));
}

static int aside_close(aside *a, const char *path, int bad)
{
    if (!a->path) return bad;
    const bool whole = !bad && fflush(a->file) == 0 && fsync(fileno(a->file)) == 0;
    const bool closed = fclose(a->file) == 0;
    if (!bad && !(whole && closed && rename(a->path, path) == 0))
        bad = app_error(APP_FAILED, "'%s' could not be written: %s", path, strerror(errno));
    if (bad) unlink(a->path);
    free(a->path);
    return bad;
}

static int put(aside *a, const char *path, const void *bytes, size_t n)
{
    return fwrite(bytes, 1, n, a->file) == n ? APP_DONE
                                             : app_error(APP_FAILED, "'%s' could not be written: %s", path, strerror(errno));
}

static int write_windows(aerie_session *session, const app_options *o, const app_windows *w, writer *s, aside *a)
{
    const size_t n_scored = app_windows_scored(w);
    float *nll = s->nll;
    int32_t *ids = (int32_t *)s->ids;
    int bad = APP_DONE;
    app_run_line line = {.options = o, .unit = "windows", .start = app_now()};
    for (uint32_t i = 0; !bad && i < w->n; i++, s->nll += n_scored) {
        char value[64];
        bad = app_window_run(session, w, i, ids, encode_row, s);
        if (!bad) bad = put(a, o->judge.kl_base, s->codes, n_scored * row_codes(s->n_vocab) * sizeof *s->codes);
        if (bad) break;
        snprintf(value, sizeof value, "perplexity %.4f", exp(app_mean_of(nll, (i + 1) * n_scored).value));
        app_run_line_show(&line, i + 1, w->n, value);
    }
    app_run_line_end(&line);
    return bad;
}

int app_base_write(const app_models *models, const app_options *o, const app_windows *w, float *nll)
{
    const size_t n_vocab = models->info.n_vocab, n_scored = app_windows_scored(w);
    const int32_t head[3] = {(int32_t)w->n_ctx, (int32_t)n_vocab, (int32_t)w->n};
    aerie_session *session = NULL;
    aside a = {0};
    int32_t *ids = malloc(w->n_ctx * sizeof *ids);
    uint16_t *codes = calloc(n_scored * row_codes(n_vocab), sizeof *codes);
    writer s = {.windows = w, .n_vocab = n_vocab, .ids = ids, .nll = nll, .codes = codes};
    int bad = ids && codes ? aside_open(&a, o->judge.kl_base) : app_error_memory("a window");
    if (!bad) bad = put(&a, o->judge.kl_base, magic, sizeof magic);
    if (!bad) bad = put(&a, o->judge.kl_base, head, sizeof head);
    if (!bad) bad = put(&a, o->judge.kl_base, w->tokens, (size_t)w->n * w->n_ctx * sizeof *w->tokens);
    if (!bad) bad = app_windows_session(&session, models, o, w->n_ctx, (uint32_t)n_scored);
    if (!bad) bad = write_windows(session, o, w, &s, &a);
    aerie_session_free(session);
    free(ids);
    free(codes);
    return aside_close(&a, o->judge.kl_base, bad);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

typedef struct base {
    FILE *file;
    const char *path;
    app_windows windows;
    int32_t *tokens;
} base;

static int base_open(base *b, const app_models *models, const char *path)
{
    char start[8];
    int32_t head[3];
    struct stat info;
    b->path = path;
    b->file = fopen(path, "rb");
    if (!b->file) return app_error(APP_BAD_FILE, "'%s' cannot be read: %s", path, strerror(errno));
    if (fstat(fileno(b->file), &info) || !S_ISREG(info.st_mode))
        return app_error(APP_BAD_FILE, "'%s' is not a regular file; a base is one", path);
    if (fread(start, 1, 8, b->file) != 8 || memcmp(start, magic, 8) || fread(head, sizeof *head, 3, b->file) != 3)
        return app_error(APP_BAD_FILE,
                         "'%s' is not a KL divergence base: it does not begin with '_logits_' and three numbers; make one with "
                         "--kl-divergence-base, without --kl-divergence",
                         path);
    if (head[1] != (int32_t)models->info.n_vocab)
        return app_error(APP_BAD_FILE, "'%s' was saved with a vocabulary of %d tokens, but the model has %u", path,
                         (int)head[1], (unsigned)models->info.n_vocab);
    if (head[0] < 4 || head[0] > (int32_t)APP_MAX_CTX || head[2] < 1)
        return app_error(APP_BAD_FILE, "'%s' says %d windows of %d tokens: the file is damaged", path, (int)head[2],
                         (int)head[0]);
    const size_t n_ctx = (size_t)head[0], n = (size_t)head[2], n_scored = n_ctx - 1 - n_ctx / 2;
    const double bytes =
        20.0 + (double)n * ((double)n_ctx * 4 + (double)n_scored * (double)row_codes(models->info.n_vocab) * 2);
    if ((double)info.st_size < bytes)
        return app_error(APP_BAD_FILE, "'%s' has %lld bytes, but %zu windows of %zu tokens need %.0f: it was cut short", path,
                         (long long)info.st_size, n, n_ctx, bytes);
    b->tokens = malloc(n * n_ctx * sizeof *b->tokens);
    if (!b->tokens) return app_error_memory("the tokens of the base");
    if (fread(b->tokens, n_ctx * sizeof *b->tokens, n, b->file) != n)
        return app_error(APP_BAD_FILE, "'%s' cannot be read: %s", path, strerror(errno));
    for (size_t i = 0; i < n * n_ctx; i++)
        if (b->tokens[i] < 0 || b->tokens[i] >= head[1])
            return app_error(APP_BAD_FILE, "'%s' contains token %d, but the model has only %d: the file is damaged", path,
                             (int)b->tokens[i], (int)head[1]);
    b->windows = (app_windows){.tokens = b->tokens,
                               .n_tokens = n * n_ctx,
                               .n_ctx = (uint32_t)n_ctx,
                               .stride = (uint32_t)n_ctx,
                               .n_first = (uint32_t)n_ctx / 2 + 1,
                               .n = (uint32_t)n,
                               .bos = -1};
    return APP_DONE;
}

/* ---- Comparing ---------------------------------------------------------------------------------------------------- */

/* A number for each scored position. */
typedef struct figures {
    float *nll, *nll_base, *kl, *change,
        *same; /* change: of the token's probability; same: 1 if both models have the same likeliest token */
    size_t n;
} figures;

typedef struct comparer {
    const app_windows *windows;
    size_t n_vocab, at; /* at: index in the figures of the window's first position */
    const int32_t *ids;
    const uint16_t *codes;
    figures f;
} comparer;

static bool compare_row(void *user, size_t position, const float *logits)
{
    const comparer *c = user;
    const size_t row = position + 1 - c->windows->n_first, at = c->at + row, n = c->n_vocab;
    const uint16_t *codes = c->codes + row * row_codes(n);
    const double log_sum = app_log_sum(logits, n);
    const int32_t id = c->ids[position + 1];
    float head[2];
    size_t most = 0, most_base = 0;
    double kl = 0;
    memcpy(head, codes, sizeof head);
    codes += 4;
    for (size_t i = 0; i < n; i++) {
        const float log_base = head[0] * (float)codes[i] + head[1];
        if (logits[i] > logits[most]) most = i;
        if (codes[i] > codes[most_base]) most_base = i;
        if (log_base > -16.0f) kl += (double)expf(log_base) * ((double)log_base - ((double)logits[i] - log_sum));
    }
    c->f.nll[at] = (float)(log_sum - (double)logits[id]);
    c->f.nll_base[at] = -(head[0] * (float)codes[id] + head[1]);
    c->f.kl[at] = (float)kl;
    c->f.change[at] = expf(-c->f.nll[at]) - expf(-c->f.nll_base[at]);
    c->f.same[at] = most == most_base;
    return !app_interrupted();
}

/* Returns whether the scales and smallest log-probabilities of a window are plausible: a row spans at most 16 nats. */
static bool is_sound(const base *b, size_t n_vocab, const uint16_t *codes)
{
    const size_t n_scored = app_windows_scored(&b->windows);
    for (size_t i = 0; i < n_scored; i++) {
        float head[2];
        memcpy(head, codes + i * row_codes(n_vocab), sizeof head);
        if (!(head[0] >= 0.0f && head[0] < 0.001f && head[1] > -1e6f && head[1] < 1.0f)) return false;
    }
    return true;
}

static int compare_windows(aerie_session *session, const app_options *o, base *b, comparer *c, uint16_t *codes)
{
    const app_windows *w = &b->windows;
    const size_t n_scored = app_windows_scored(w), bytes = n_scored * row_codes(c->n_vocab) * sizeof *codes;
    int bad = APP_DONE;
    app_run_line line = {.options = o, .unit = "windows", .start = app_now()};
    for (uint32_t i = 0; !bad && i < w->n; i++, c->at += n_scored) {
        char value[96];
        if (fread(codes, 1, bytes, b->file) != bytes) bad = app_error(APP_BAD_FILE, "'%s' cannot be read", b->path);
        else if (!is_sound(b, c->n_vocab, codes))
            bad = app_error(APP_BAD_FILE, "'%s': window %u contains no log-probabilities: the file is damaged", b->path,
                            (unsigned)i + 1);
        else bad = app_window_run(session, w, i, (int32_t *)c->ids, compare_row, c);
        if (bad) break;
        const size_t n = (i + 1) * n_scored;
        const app_mean kl = app_mean_of(c->f.kl, n);
        snprintf(value, sizeof value, "perplexity %.4f, KL divergence %.6f +/- %.6f", exp(app_mean_of(c->f.nll, n).value),
                 kl.value, kl.error);
        app_run_line_show(&line, i + 1, w->n, value);
    }
    app_run_line_end(&line);
    return bad;
}

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Returns a percentile of sorted numbers, interpolated between neighbours. */
static double percentile(const float *x, size_t n, double part)
{
    const double at = part * (double)(n - 1);
    const size_t i = (size_t)at, next = i + 1 < n ? i + 1 : i;
    return (double)x[i] + (at - (double)i) * ((double)x[next] - (double)x[i]);
}

static const struct {
    const char *name;
    double part;
} percentiles[] = {{"minimum", 0}, {"1%", 0.01}, {"5%", 0.05},  {"10%", 0.1},  {"25%", 0.25},    {"median", 0.5},
                   {"75%", 0.75},  {"90%", 0.9}, {"95%", 0.95}, {"99%", 0.99}, {"99.9%", 0.999}, {"maximum", 1}};

static json_t *percentiles_json(const float *x, size_t n)
{
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof percentiles / sizeof *percentiles; i++)
        app_json_put(object, percentiles[i].name, app_json_real(percentile(x, n, percentiles[i].part)));
    return object;
}

/* Returns the mean of each window, to estimate the error of the difference between two models that were compared with the same
 * base. */
static json_t *window_means(const base *b, const float *x)
{
    const size_t n_scored = app_windows_scored(&b->windows);
    json_t *list = json_array();
    for (uint32_t i = 0; i < b->windows.n; i++)
        if (list) json_array_append_new(list, app_json_real(app_mean_of(x + i * n_scored, n_scored).value));
    return list;
}

/* Sorts what it reads. */
static int print_comparison(const app_options *o, const base *b, figures *f, double seconds)
{
    double squares = 0;
    for (size_t i = 0; i < f->n; i++) squares += (double)f->change[i] * (double)f->change[i];
    float *ratio = malloc(f->n * sizeof *ratio);
    if (!ratio) return app_error_memory("the figures");
    for (size_t i = 0; i < f->n; i++) ratio[i] = f->nll[i] - f->nll_base[i];
    const app_mean nll = app_mean_of(f->nll, f->n), nll_base = app_mean_of(f->nll_base, f->n), kl = app_mean_of(f->kl, f->n),
                   same = app_mean_of(f->same, f->n), log_ratio = app_mean_of(ratio, f->n);
    free(ratio);
    const double ppl = exp(nll.value), ppl_base = exp(nll_base.value), rms = sqrt(squares / (double)f->n);
    json_t *kl_windows = o->json ? window_means(b, f->kl) : NULL;
    qsort(f->kl, f->n, sizeof *f->kl, by_value);
    qsort(f->change, f->n, sizeof *f->change, by_value);
    if (o->json)
        return app_print_json(json_pack(
            "{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:f}", "model",
            o->model, "base", b->path, "perplexity", app_json_real(ppl), "perplexity_error", app_json_real(ppl * nll.error),
            "perplexity_base", app_json_real(ppl_base), "perplexity_base_error", app_json_real(ppl_base * nll_base.error),
            "log_ratio", app_json_real(log_ratio.value), "log_ratio_error", app_json_real(log_ratio.error), "kl",
            app_json_real(kl.value), "kl_error", app_json_real(kl.error), "same_top", app_json_real(same.value),
            "same_top_error", app_json_real(same.error), "change_rms", app_json_real(rms), "kl_percentiles",
            percentiles_json(f->kl, f->n), "change_percentiles", percentiles_json(f->change, f->n), "kl_windows",
            kl_windows, "n_scored", (json_int_t)f->n, "window", (json_int_t)b->windows.n_ctx, "seconds", seconds));
    app_print("perplexity        %.4f +/- %.4f\n", ppl, ppl * nll.error);
    app_print("perplexity, base  %.4f +/- %.4f\n", ppl_base, ppl_base * nll_base.error);
    app_print("log of the ratio  %.6f +/- %.6f\n", log_ratio.value, log_ratio.error);
    app_print("KL divergence     %.6f +/- %.6f\n", kl.value, kl.error);
    app_print("same top token    %.3f%% +/- %.3f%%\n", 100 * same.value, 100 * same.error);
    app_print("change of p, RMS  %.3f%%\n", 100 * rms);
    app_print("\n  %-8s %14s %14s\n", "", "KL divergence", "change of p");
    for (size_t i = 0; i < sizeof percentiles / sizeof *percentiles; i++)
        app_print("  %-8s %14.6f %13.3f%%\n", percentiles[i].name, percentile(f->kl, f->n, percentiles[i].part),
                  100 * percentile(f->change, f->n, percentiles[i].part));
    app_print("\n%u window%s of %u tokens, %zu token%s predicted, in %.1f s\n", (unsigned)b->windows.n,
              app_plural(b->windows.n), (unsigned)b->windows.n_ctx, f->n, app_plural(f->n), seconds);
    return APP_DONE;
}

int app_base_compare(const app_models *models, const app_options *o)
{
    base b = {0};
    aerie_session *session = NULL;
    comparer c = {.windows = &b.windows, .n_vocab = models->info.n_vocab};
    float *all = NULL;
    uint16_t *codes = NULL;
    int32_t *ids = NULL, *none = NULL;
    size_t n_none = 0;
    aerie_error error = {0};
    if (o->file || o->prompts.n || o->judge.n_chunks >= 0)
        return app_error(APP_USAGE, "with --kl-divergence the text and the windows are those of the base; leave out -f, -p and "
                                    "--chunks");
    int bad = base_open(&b, models, o->judge.kl_base);
    if (!bad) bad = app_report(APP_WORKING, aerie_model_tokenize(models->model, "", 0, true, false, &none, &n_none, &error),
                               &error);
    if (!bad && n_none && none[0] == models->info.bos) b.windows.bos = none[0];
    if (!bad) {
        const size_t n_scored = app_windows_scored(&b.windows), n = n_scored * b.windows.n;
        all = calloc(5 * n, sizeof *all);
        codes = malloc(n_scored * row_codes(c.n_vocab) * sizeof *codes);
        ids = malloc(b.windows.n_ctx * sizeof *ids);
        if (!all || !codes || !ids) bad = app_error_memory("the figures");
        else c.f = (figures){all, all + n, all + 2 * n, all + 3 * n, all + 4 * n, n};
        c.ids = ids, c.codes = codes;
        if (!bad) bad = app_windows_session(&session, models, o, b.windows.n_ctx, (uint32_t)n_scored);
    }
    const double start = app_now();
    if (!bad) bad = compare_windows(session, o, &b, &c, codes);
    if (!bad) bad = print_comparison(o, &b, &c.f, app_now() - start);
    aerie_session_free(session);
    aerie_free(none);
    free(all);
    free(codes);
    free(ids);
    free(b.tokens);
    if (b.file) fclose(b.file);
    return bad;
}
