/* bench_verify.c - aerie bench verify: T(n), the time of a target pass over n rows, all logits exported, behind
 * contexts of given lengths, beside the read bandwidth of the machine in the same run.
 *
 * Every figure is the median over rounds; each round visits all n, so a change of the machine's clock or
 * bandwidth touches all of them.
 */
#include <string.h>

#include "bench.h"
#include "run.h"

#define RUNS 3 /* passes per visit */

typedef struct verify {
    const app_options *options;
    app_models models;
    aerie_session *session;
    double bandwidth; /* bytes per second */
    uint64_t buffer_bytes;
    app_samples samples[APP_MAX_NUMBERS];        /* of the context at hand, per entry of rows */
    double ms[APP_MAX_NUMBERS][APP_MAX_NUMBERS]; /* [context][rows] medians */
} verify;

static int visit(verify *v, uint32_t context, size_t i_rows)
{
    double seconds[RUNS];
    aerie_error error = {0};
    const aerie_status status =
        aerie_time_pass(v->session, v->options->rows.items[i_rows], context, true, RUNS, seconds, &error);
    if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
    for (int k = 0; k < RUNS; k++) {
        if (!app_samples_add(&v->samples[i_rows], 1e3 * seconds[k])) return app_error_memory("the figures");
    }
    return app_interrupted() ? APP_INTERRUPTED : APP_DONE;
}

static int measure_context(verify *v, size_t i_context)
{
    const app_numbers *rows = &v->options->rows;
    const uint32_t context = v->options->contexts.items[i_context];
    int bad = APP_DONE;
    for (uint32_t round = 0; !bad && round <= v->options->n_repetitions; round++) {
        for (size_t i = 0; !bad && i < rows->n; i++) bad = visit(v, context, i);
        for (size_t i = 0; round == 0 && i < rows->n; i++) v->samples[i].n = 0; /* the first round warms up */
    }
    for (size_t i = 0; i < rows->n; i++) {
        v->ms[i_context][i] = app_samples_summary(&v->samples[i]).median;
        app_samples_free(&v->samples[i]);
    }
    return bad;
}

static int print_json(const verify *v, const char *type)
{
    const app_options *o = v->options;
    json_t *passes = json_array();
    for (size_t c = 0; c < o->contexts.n; c++) {
        for (size_t i = 0; passes && i < o->rows.n; i++) {
            json_array_append_new(passes,
                                  json_pack("{s:s, s:s, s:I, s:I, s:f}", "type", type, "level",
                                            v->models.info.cpu_level, "context", (json_int_t)o->contexts.items[c], "n",
                                            (json_int_t)o->rows.items[i], "ms", v->ms[c][i]));
        }
    }
    return app_print_json(json_pack("{s:f, s:I, s:I, s:o, s:o}", "bandwidth_gbs", v->bandwidth / 1e9,
                                    "bandwidth_buffer_bytes", (json_int_t)v->buffer_bytes, "pass_bytes",
                                    (json_int_t)aerie_model_pass_bytes(v->models.model), "passes", passes, "settings",
                                    app_json_settings(&v->models, o, v->session)));
}

static void print_csv(const verify *v, const char *type)
{
    const app_options *o = v->options;
    app_print("type,level,context,n,ms,bandwidth_gbs\n");
    for (size_t c = 0; c < o->contexts.n; c++) {
        for (size_t i = 0; i < o->rows.n; i++) {
            app_print("%s,%s,%u,%u,%.5f,%.3f\n", type, v->models.info.cpu_level, (unsigned)o->contexts.items[c],
                      (unsigned)o->rows.items[i], v->ms[c][i], v->bandwidth / 1e9);
        }
    }
}

static void print_table(const verify *v, const char *type)
{
    const app_options *o = v->options;
    char bytes[32], buffer[32];
    const double ideal = v->bandwidth > 0 ? 1e3 * (double)aerie_model_pass_bytes(v->models.model) / v->bandwidth : 0;
    app_write_escaped(v->models.info.name, strlen(v->models.info.name));
    app_print(" %s, kernels %s, kv %s; a pass reads %s of weights\n", type, v->models.info.cpu_level,
              aerie_kv_type_name(o->session.kv_type), app_bytes(bytes, aerie_model_pass_bytes(v->models.model)));
    app_print("reading: %.1f GB/s (best sum over %s), so a pass takes %.3f ms or more\n", v->bandwidth / 1e9,
              app_bytes(buffer, v->buffer_bytes), ideal);
    for (size_t c = 0; c < o->contexts.n; c++) {
        app_print("\ncontext %u\n%6s %12s %10s %10s %12s\n", (unsigned)o->contexts.items[c], "n", "T(n) ms", "T/first",
                  "T/reading", "tokens/s");
        for (size_t i = 0; i < o->rows.n; i++) {
            const double ms = v->ms[c][i];
            app_print("%6u %12.3f %10.2f %10.2f %12.1f\n", (unsigned)o->rows.items[i], ms, app_rate(ms, v->ms[c][0]),
                      app_rate(ms, ideal), app_rate(1e3 * o->rows.items[i], ms));
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

/* Reader speed before and after the passes, the better one counts. */
static void measure_bandwidth(verify *v)
{
    const double found = app_read_bandwidth(v->options->n_threads, &v->buffer_bytes);
    if (found > v->bandwidth) v->bandwidth = found;
}

int app_bench_verify(const app_options *given)
{
    static verify v; /* too large for a stack */
    app_options options = *given;
    const uint32_t n = largest(&options.rows), needed = largest(&options.contexts) + n;
    char type[16];
    v = (verify){.options = &options};
    if (options.session.n_ctx == 0) options.session.n_ctx = needed > 8 ? needed : 8;
    if (options.session.n_batch < n) options.session.n_batch = n;
    int bad = app_models_load(&v.models, &options, false);
    if (!bad) bad = app_session_open(&v.session, &v.models, &options, AERIE_SPEC_NONE);
    app_interrupt_arm();
    if (!bad) measure_bandwidth(&v);
    for (size_t c = 0; !bad && c < options.contexts.n; c++) bad = measure_context(&v, c);
    if (!bad) {
        measure_bandwidth(&v);
        app_main_type(options.model, type);
        if (options.json) bad = print_json(&v, type);
        else if (options.csv) print_csv(&v, type);
        else print_table(&v, type);
    }
    aerie_session_free(v.session);
    app_models_free(&v.models);
    return bad;
}
