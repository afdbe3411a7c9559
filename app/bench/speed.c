/* speed.c - aerie bench speed: prefill of random tokens and plain decoding, in tokens per second. */
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/commands.h"

typedef struct speed {
    const app_options *options;
    app_models models;
    aerie_session *session;
    uint64_t random; /* state */
} speed;

static bool go_on(void *user, const aerie_token_event *event)
{
    (void)user;
    (void)event;
    return !app_interrupted();
}

/* New random tokens, so that no prefix of an earlier prompt can be reused. */
static void fill(speed *s, int32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        s->random = s->random * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((s->random >> 33) % s->models.info.n_vocab);
    }
}

/* A prompt of n_prompt tokens and n_predict generated ones. */
static int once(speed *s, uint32_t n_prompt, uint32_t n_predict, aerie_stats *stats)
{
    aerie_request request = aerie_request_default();
    aerie_error error = {0};
    int32_t *tokens = calloc(n_prompt, sizeof *tokens);
    if (!tokens) return app_error_memory("the prompt");
    fill(s, tokens, n_prompt);
    request.tokens = tokens;
    request.n_tokens = n_prompt;
    request.n_predict = n_predict;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    request.adapters = s->options->loras.uses;
    request.n_adapters = s->options->loras.n;
    const aerie_status status = aerie_generate(s->session, &request, 1, go_on, NULL, stats, sizeof(aerie_stats), &error);
    free(tokens);
    if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
    return app_interrupted() ? APP_INTERRUPTED : APP_DONE;
}

/* Once to warm up, then the repetitions. */
static int measure(speed *s, bool prefill, uint32_t n, app_samples *samples)
{
    int bad = APP_DONE;
    for (uint32_t i = 0; !bad && i <= s->options->n_repetitions; i++) {
        aerie_stats stats = {0};
        /* one more is generated than measured: the first token belongs to the prompt's pass */
        bad = once(s, prefill ? n : 1, prefill ? 1 : n + 1, &stats);
        const double rate = prefill ? app_rate(stats.n_prompt - stats.n_cached, stats.prompt_seconds)
                                    : app_rate(stats.n_passes, stats.decode_seconds);
        if (!bad && i > 0 && !app_samples_add(samples, rate)) bad = app_error_memory("the figures");
    }
    return bad;
}

typedef struct row {
    const char *test;
    uint32_t n;
    app_samples samples;
} row;

static json_t *row_json(row *r)
{
    json_t *all = json_array();
    for (size_t i = 0; i < r->samples.n; i++) app_json_append(all, json_real(r->samples.items[i]));
    const app_summary m = app_samples_summary(&r->samples);
    return json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:o}", "test", r->test, "n", (json_int_t)r->n, "mean", m.mean,
                     "min", m.min, "max", m.max, "median", m.median, "tokens_per_second", all);
}

static int print(const speed *s, row *rows, size_t n_rows)
{
    char type[16], size[32];
    app_main_type(s->options->model, type);
    const aerie_model_info *info = &s->models.info;
    if (s->options->json) {
        json_t *tests = json_array();
        for (size_t i = 0; i < n_rows; i++) app_json_append(tests, row_json(&rows[i]));
        return app_print_json(json_pack("{s:o, s:s, s:s, s:I, s:I, s:o, s:o}", "model",
                                        app_json_text(info->name, strlen(info->name)), "type", type, "level",
                                        info->cpu_level, "n_params", (json_int_t)info->n_params, "weight_bytes",
                                        (json_int_t)info->weight_bytes, "tests", tests, "settings",
                                        app_json_settings(&s->models, s->options, s->session)));
    }
    if (s->options->csv) {
        app_print("type,level,test,n,mean,min,max,median\n");
    } else {
        app_write_escaped(info->name, strlen(info->name));
        app_print(" %s, %.1f M parameters, %s of weights, kernels %s; tokens/s of %u runs\n\n", type,
                  (double)info->n_params / 1e6, app_bytes(size, info->weight_bytes), info->cpu_level,
                  (unsigned)s->options->n_repetitions);
        app_print("%-8s %6s %10s %10s %10s %10s\n", "test", "n", "mean", "min", "max", "median");
    }
    for (size_t i = 0; i < n_rows; i++) {
        const app_summary m = app_samples_summary(&rows[i].samples);
        if (s->options->csv) {
            app_print("%s,%s,%s,%u,%.3f,%.3f,%.3f,%.3f\n", type, info->cpu_level, rows[i].test, (unsigned)rows[i].n,
                      m.mean, m.min, m.max, m.median);
        } else {
            app_print("%-8s %6u %10.2f %10.2f %10.2f %10.2f\n", rows[i].test, (unsigned)rows[i].n, m.mean, m.min, m.max,
                      m.median);
        }
    }
    return APP_DONE;
}

int app_bench_speed(const app_options *given)
{
    app_options options = *given;
    speed s = {.options = &options, .random = 1};
    row rows[2] = {{.test = "prefill", .n = given->bench_prompt}, {.test = "decode", .n = given->bench_predict}};
    const uint32_t longest = rows[0].n > rows[1].n ? rows[0].n : rows[1].n;
    if (longest == 0) return app_error(APP_USAGE, "-p 0 and -n 0 leave nothing to measure");
    if (options.session.n_ctx == 0) options.session.n_ctx = longest + 8; /* what the tests need is enough */
    int bad = app_models_load(&s.models, &options, false);
    if (!bad) bad = app_session_open(&s.session, &s.models, &options, AERIE_SPEC_NONE);
    app_interrupt_arm();
    for (size_t i = 0; !bad && i < 2; i++) {
        if (rows[i].n) bad = measure(&s, i == 0, rows[i].n, &rows[i].samples);
    }
    if (!bad) {
        if (rows[0].n && rows[1].n) bad = print(&s, rows, 2);
        else bad = print(&s, rows[0].n ? rows : rows + 1, 1);
    }
    for (size_t i = 0; i < 2; i++) app_samples_free(&rows[i].samples);
    aerie_session_free(s.session);
    app_models_free(&s.models);
    return bad;
}
