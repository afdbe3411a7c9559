/* verify.c - aerie bench verify: T(n), the time of a target pass over n rows with the logits of all rows; the time of a pass
 * over a prompt with the logits of its last row; after contexts of given lengths; and the read bandwidth of the machine. Every
 * figure is the median over rounds. A round visits all n once and reads the bandwidth before each visit: clocks and bandwidth
 * of shared machines change by a third within minutes, and in this way such changes affect all figures alike. The best values
 * are kept, too, because a median must not be compared with a best value. */
#include <string.h>

#include "aerie_measure.h"
#include "bench/bench.h"
#include "cli/commands.h"

#define RUNS 3 /* passes per visit; one over a prompt */
#define MAX_TESTS (APP_MAX_NUMBERS + 1)

typedef struct verify {
    const app_options *options;
    app_models models;
    aerie_session *session;
    app_reader *reader;
    app_samples readings; /* bytes per second */
    uint32_t n_rows[MAX_TESTS]; /* [n_tests] rows of each test: the entries of -n, then the prompt of -p, if any */
    size_t n_tests, i_prompt;   /* i_prompt: index of the prompt, or n_tests */
    app_samples samples[MAX_TESTS];             /* milliseconds for the current context */
    app_summary ms[APP_MAX_NUMBERS][MAX_TESTS]; /* [context][test] */
    app_summary bandwidth;                      /* bytes per second */
    char type[16];
} verify;

static int visit(verify *v, uint32_t context, size_t i_test)
{
    double seconds[RUNS];
    aerie_error error = {0};
    const bool prompt = i_test == v->i_prompt;
    const uint32_t n_runs = prompt ? 1 : RUNS;
    if (!app_samples_add(&v->readings, app_reader_read(v->reader))) return app_error_memory("the figures");
    const aerie_status status =
        aerie_session_time_pass(v->session, v->n_rows[i_test], context, !prompt, n_runs, seconds, &error);
    if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
    for (uint32_t k = 0; k < n_runs; k++) {
        if (!app_samples_add(&v->samples[i_test], 1e3 * seconds[k])) return app_error_memory("the figures");
    }
    return app_interrupted() ? APP_INTERRUPTED : APP_DONE;
}

static int measure_context(verify *v, size_t i_context)
{
    const uint32_t context = v->options->bench.contexts.items[i_context];
    int bad = APP_DONE;
    for (uint32_t round = 0; !bad && round <= v->options->bench.n_repetitions; round++) {
        for (size_t i = 0; !bad && i < v->n_tests; i++) bad = visit(v, context, i);
        if (round) continue;
        for (size_t i = 0; i < v->n_tests; i++) v->samples[i].n = 0; /* the first round warms up */
    }
    for (size_t i = 0; i < v->n_tests; i++) {
        v->ms[i_context][i] = app_samples_summary(&v->samples[i]);
        app_samples_free(&v->samples[i]);
    }
    return bad;
}

/* ---- Output ----------------------------------------------------------------------------------------- */

static json_t *test_json(const verify *v, size_t i_context, size_t i_test)
{
    const app_summary *ms = &v->ms[i_context][i_test];
    return json_pack("{s:s, s:s, s:I, s:I, s:f, s:f}", "type", v->type, "level", v->models.info.cpu_level, "context",
                     (json_int_t)v->options->bench.contexts.items[i_context], "n", (json_int_t)v->n_rows[i_test], "ms",
                     ms->median, "best_ms", ms->min);
}

static int print_json(const verify *v)
{
    json_t *passes = json_array(), *prefill = json_array();
    for (size_t c = 0; c < v->options->bench.contexts.n; c++) {
        for (size_t i = 0; i < v->n_tests; i++) {
            json_t *test = test_json(v, c, i);
            if (i == v->i_prompt) {
                app_json_put(test, "tokens_per_second",
                                    json_real(app_rate(1e3 * v->n_rows[i], v->ms[c][i].median)));
            }
            app_json_append(i == v->i_prompt ? prefill : passes, test);
        }
    }
    return app_print_json(json_pack(
        "{s:f, s:f, s:I, s:I, s:o, s:o, s:o}", "bandwidth_gbs", v->bandwidth.median / 1e9, "best_bandwidth_gbs",
        v->bandwidth.max / 1e9, "bandwidth_buffer_bytes", (json_int_t)app_reader_bytes(v->reader), "pass_bytes",
        (json_int_t)aerie_model_pass_bytes(v->models.model), "passes", passes, "prefill", prefill, "settings",
        app_json_settings(&v->models, v->options, v->session)));
}

static void print_csv(const verify *v)
{
    app_print("type,level,test,context,n,ms,best_ms,bandwidth_gbs,best_bandwidth_gbs,pass_bytes\n");
    for (size_t c = 0; c < v->options->bench.contexts.n; c++) {
        for (size_t i = 0; i < v->n_tests; i++) {
            app_print("%s,%s,%s,%u,%u,%.5f,%.5f,%.3f,%.3f,%llu\n", v->type, v->models.info.cpu_level,
                      i == v->i_prompt ? "prefill" : "pass", (unsigned)v->options->bench.contexts.items[c],
                      (unsigned)v->n_rows[i], v->ms[c][i].median, v->ms[c][i].min, v->bandwidth.median / 1e9,
                      v->bandwidth.max / 1e9, (unsigned long long)aerie_model_pass_bytes(v->models.model));
        }
    }
}

/* Returns the shortest time that a pass can take at a given bandwidth. */
static double ideal_ms(const verify *v, double bandwidth)
{
    return bandwidth > 0 ? 1e3 * (double)aerie_model_pass_bytes(v->models.model) / bandwidth : 0;
}

static void print_table(const verify *v)
{
    const app_options *o = v->options;
    char bytes[32], buffer[32];
    const double ideal = ideal_ms(v, v->bandwidth.median);
    app_write_escaped(v->models.info.name, strlen(v->models.info.name));
    app_print(" %s, kernels %s, kv %s; a pass reads %s of weights\n", v->type, v->models.info.cpu_level,
              aerie_kv_type_name(o->session.kv_type), app_bytes(bytes, aerie_model_pass_bytes(v->models.model)));
    if (v->reader)
        app_print("reading: %.1f GB/s, so a pass takes %.3f ms or more; best %.1f GB/s, %.3f ms (%zu sums over %s)\n",
                  v->bandwidth.median / 1e9, ideal, v->bandwidth.max / 1e9, ideal_ms(v, v->bandwidth.max), v->readings.n,
                  app_bytes(buffer, app_reader_bytes(v->reader)));
    for (size_t c = 0; c < o->bench.contexts.n; c++) {
        app_print("\ncontext %u\n%6s %12s %10s %10s %12s %12s\n", (unsigned)o->bench.contexts.items[c], "n", "T(n) ms",
                  "T/first", "T/reading", "tokens/s", "best ms");
        for (size_t i = 0; i < v->n_tests; i++) {
            const double ms = v->ms[c][i].median;
            char over_reading[32] = "-"; /* "-" for a device whose reading was not measured */
            if (v->reader) snprintf(over_reading, sizeof over_reading, "%.2f", app_rate(ms, ideal));
            app_print("%6u %12.3f %10.2f %10s %12.1f %12.3f%s\n", (unsigned)v->n_rows[i], ms,
                      app_rate(ms, v->ms[c][0].median), over_reading, app_rate(1e3 * v->n_rows[i], ms),
                      v->ms[c][i].min, i == v->i_prompt ? "  prefill" : "");
        }
    }
}

static uint32_t largest(const app_numbers *numbers)
{
    uint32_t most = 0;
    for (size_t i = 0; i < numbers->n; i++) {
        if (numbers->items[i] > most) most = numbers->items[i];
    }
    return most;
}

/* Lists the tests, and sets the session's limits for them. */
static void plan(verify *v, app_options *options)
{
    const app_numbers *rows = &options->bench.rows;
    uint32_t n = largest(rows);
    for (size_t i = 0; i < rows->n; i++) v->n_rows[v->n_tests++] = rows->items[i];
    v->i_prompt = v->n_tests;
    if (options->bench.n_prompt) {
        v->n_rows[v->n_tests++] = options->bench.n_prompt;
        if (options->bench.n_prompt > n) n = options->bench.n_prompt;
    }
    const uint32_t needed = largest(&options->bench.contexts) + n;
    if (options->session.n_ctx == 0) options->session.n_ctx = needed > 8 ? needed : 8;
    if (options->session.n_batch < n) options->session.n_batch = n;
}

int app_bench_verify(const app_options *given)
{
    static verify v; /* too large for a stack */
    app_options options = *given;
    v = (verify){.options = &options};
    plan(&v, &options);
    int bad = app_models_load(&v.models, &options, false, APP_NEED_TOKENS);
    if (!bad) bad = app_session_open(&v.session, &v.models, &options, AERIE_SPEC_NONE);
    if (!bad && !app_is_on_gpu(&v.models.info)) /* the reading measures the CPU's memory only */
        bad = app_reader_open(&v.reader, options.n_threads, aerie_model_pass_bytes(v.models.model));
    app_interrupt_arm();
    for (size_t c = 0; !bad && c < options.bench.contexts.n; c++) bad = measure_context(&v, c);
    if (!bad) {
        v.bandwidth = app_samples_summary(&v.readings);
        app_main_type(options.model, v.type);
        if (options.json) bad = print_json(&v);
        else if (options.csv) print_csv(&v);
        else print_table(&v);
    }
    app_samples_free(&v.readings);
    app_reader_free(v.reader);
    aerie_session_free(v.session);
    app_models_free(&v.models);
    return bad;
}
