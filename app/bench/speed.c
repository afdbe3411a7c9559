/* speed.c - aerie bench speed: measures prefill of random tokens and plain decoding, in tokens per second.
 * Owns the list of tests, the random prompts, and aerie's own table, CSV and JSON. speed_formats.c has llama-bench's
 * formats. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/speed.h"
#include "cli/commands.h"

typedef struct speed {
    const app_options *given;
    app_options options; /* with the settings of the current test */
    app_models models;
    aerie_session *session; /* for the current test, and for later ones with the same settings */
    speed_test *tests;      /* [n_tests] in the order in which they run */
    size_t n_tests, capacity;
    speed_printer printer;
    uint64_t random;  /* state */
    int32_t *context; /* [largest depth] what comes before the tokens of every test with a depth */
} speed;

static bool go_on(void *user, const aerie_token_event *event)
{
    (void)user;
    (void)event;
    return !app_interrupted();
}

/* Draws new random tokens, so that no earlier prompt has the same prefix. */
static void fill(speed *s, int32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        s->random = s->random * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((s->random >> 33) % s->models.info.n_vocab);
    }
}

/* Runs tokens [n] as a prompt and generates n_predict tokens. */
static int once(speed *s, const int32_t *tokens, size_t n, uint32_t n_predict, aerie_stats *stats)
{
    aerie_request request = aerie_request_default();
    aerie_error error = {0};
    request.tokens = tokens;
    request.n_tokens = n;
    request.n_predict = (int32_t)n_predict;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    request.adapters = s->options.loras.uses;
    request.n_adapters = s->options.loras.n;
    const aerie_status status = aerie_session_generate(s->session, &request, 1, go_on, NULL, stats, sizeof(aerie_stats),
                                                       &error);
    if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
    return app_interrupted() ? APP_INTERRUPTED : APP_DONE;
}

/* Draws the tokens of the context. All tests have the same, so that a long one is computed once for a session. */
static int draw_context(speed *s)
{
    uint32_t most = 0;
    for (size_t i = 0; i < s->n_tests; i++) most = s->tests[i].n_depth > most ? s->tests[i].n_depth : most;
    s->context = calloc((size_t)most + 1, sizeof *s->context);
    if (!s->context) return app_error_memory("the context");
    fill(s, s->context, most);
    return APP_DONE;
}

/* Measures tokens per second of one run. tokens [n_depth + those of the test]; the first n_depth are in the cache already, or
 * are put there without being timed. */
static int run_once(speed *s, const speed_test *t, int32_t *tokens, double *rate)
{
    const uint32_t n_new = t->n_prompt ? t->n_prompt : t->n_depth ? 0 : 1; /* generation needs a prompt of at least one
                                                                            * token */
    aerie_stats stats = {0};
    fill(s, tokens + t->n_depth, n_new);
    int bad = t->n_depth && t->n_prompt ? once(s, tokens, t->n_depth, 1, &stats) : APP_DONE;
    /* generates one more token than it measures, because the first one belongs to the prompt's pass */
    if (!bad) bad = once(s, tokens, t->n_depth + n_new, t->n_gen + 1, &stats);
    const double prompt = app_rate(stats.n_prompt - stats.n_cached, stats.prompt_seconds),
                 decode = app_rate(stats.n_passes, stats.decode_seconds);
    *rate = !t->n_gen ? prompt : !t->n_prompt ? decode : 0;
    if (t->n_gen && t->n_prompt)
        *rate = app_rate(t->n_prompt + t->n_gen, app_rate(t->n_prompt, prompt) + app_rate(t->n_gen, decode));
    return bad;
}

/* Runs the test once to warm up, then the repetitions. */
static int measure(speed *s, speed_test *t)
{
    int bad = APP_DONE;
    int32_t *tokens = calloc((size_t)t->n_depth + t->n_prompt + 1, sizeof *tokens);
    if (!tokens) return app_error_memory("the prompt");
    const time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts)) strftime(t->time, sizeof t->time, "%Y-%m-%dT%H:%M:%SZ", &parts);
    memcpy(tokens, s->context, t->n_depth * sizeof *tokens);
    for (uint32_t i = 0; !bad && i <= s->options.bench.n_repetitions; i++) {
        double rate = 0;
        bad = run_once(s, t, tokens, &rate);
        if (!bad && i > 0 && !app_samples_add(&t->rates, rate)) bad = app_error_memory("the figures");
    }
    free(tokens);
    return bad;
}

/* ---- The tests --------------------------------------------------------------------------------------------- */

static int add_test(speed *s, speed_test settings, uint32_t n_prompt, uint32_t n_gen)
{
    if (!n_prompt && !n_gen) return APP_DONE;
    speed_test *grown = app_grow(s->tests, s->n_tests, &s->capacity, sizeof *grown);
    if (!grown) return app_error_memory("the tests");
    s->tests = grown;
    settings.n_prompt = n_prompt, settings.n_gen = n_gen;
    grown[s->n_tests++] = settings;
    return APP_DONE;
}

/* Reads a pair of numbers such as "64,32". */
static int parse_pair(const char *text, uint32_t pair[2])
{
    unsigned long value[2] = {0};
    char *end = NULL;
    for (int i = 0; i < 2; i++) {
        const char *at = i ? end + 1 : text;
        bool right = isdigit((unsigned char)*at);
        if (right) value[i] = strtoul(at, &end, 10);
        right = right && value[i] <= 1 << 20 && *end == (i ? '\0' : ',');
        if (!right || (i && !(value[0] + value[1])))
            return app_error(APP_USAGE, "-pg takes two whole numbers from 0 to %d, such as 512,128; found '%s'", 1 << 20, text);
    }
    pair[0] = (uint32_t)value[0], pair[1] = (uint32_t)value[1];
    return APP_DONE;
}

/* Returns how many tests, beginning with this one, have the same settings. */
static int list_kinds(speed *s, speed_test settings)
{
    const app_speed_options *o = &s->given->speed;
    int bad = APP_DONE;
    for (size_t i = 0; !bad && i < o->prompts.n; i++) bad = add_test(s, settings, o->prompts.items[i], 0);
    for (size_t i = 0; !bad && i < o->predicts.n; i++) bad = add_test(s, settings, 0, o->predicts.items[i]);
    for (size_t i = 0; !bad && i < o->pairs.n; i++) {
        uint32_t pair[2] = {0};
        bad = parse_pair(o->pairs.items[i], pair);
        if (!bad) bad = add_test(s, settings, pair[0], pair[1]);
    }
    return bad;
}

/* Lists the tests in llama-bench's order: the number of threads changes last. */
static int list_tests(speed *s)
{
    const app_options *g = s->given;
    const app_speed_options *o = &g->speed;
    const app_numbers threads = o->threads.n ? o->threads : (app_numbers){{g->n_threads}, 1},
                      batches = o->batches.n ? o->batches : (app_numbers){{g->n_batch_logical}, 1},
                      ubatches = o->ubatches.n ? o->ubatches : (app_numbers){{g->session.n_batch}, 1};
    const size_t n = threads.n * batches.n * ubatches.n * o->depths.n;
    int bad = APP_DONE;
    for (size_t i = 0; !bad && i < n; i++) {
        size_t at = i;
        speed_test t = {.n_depth = o->depths.items[at % o->depths.n]};
        at /= o->depths.n;
        t.n_ubatch = ubatches.items[at % ubatches.n], at /= ubatches.n;
        t.n_batch = batches.items[at % batches.n], at /= batches.n;
        t.n_threads = threads.items[at] && threads.items[at] <= 1024 ? threads.items[at] : g->n_threads; /* -1, 0 */
        bad = list_kinds(s, t);
    }
    if (!bad && !s->n_tests) bad = app_error(APP_USAGE, "-p 0 and -n 0 leave nothing to measure");
    return bad;
}

/* Opens the session of the test, or keeps that of the test before. */
static int open_session(speed *s, const speed_test *t, const speed_test *before)
{
    if (before && before->n_threads == t->n_threads && before->n_batch == t->n_batch && before->n_ubatch == t->n_ubatch)
        return APP_DONE;
    aerie_session_free(s->session);
    s->session = NULL;
    s->options.session.n_threads = t->n_threads;
    s->options.session.n_batch = t->n_ubatch < t->n_batch ? t->n_ubatch : t->n_batch;
    return app_session_open(&s->session, &s->models, &s->options, AERIE_SPEC_NONE);
}

/* ---- Output -------------------------------------------------------------------------------------------------- */

/* Returns "prefill", "decode" or "prefill+decode". */
static const char *kind_name(const speed_test *t)
{
    return !t->n_gen ? "prefill" : !t->n_prompt ? "decode" : "prefill+decode";
}

static json_t *test_json(speed_test *t)
{
    json_t *all = json_array();
    for (size_t i = 0; i < t->rates.n; i++) app_json_append(all, json_real(t->rates.items[i]));
    const app_summary m = app_samples_summary(&t->rates);
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o}", "test", kind_name(t), "n",
                     (json_int_t)t->n_prompt + t->n_gen, "n_prompt", (json_int_t)t->n_prompt, "n_gen", (json_int_t)t->n_gen,
                     "n_depth", (json_int_t)t->n_depth, "n_threads", (json_int_t)t->n_threads, "mean", m.mean, "min", m.min,
                     "max", m.max, "median", m.median, "tokens_per_second", all);
}

static int print_json(const speed *s, const char *type)
{
    const aerie_model_info *info = &s->models.info;
    json_t *tests = json_array();
    for (size_t i = 0; i < s->n_tests; i++) app_json_append(tests, test_json(&s->tests[i]));
    json_t *name = app_json_text(info->name, strlen(info->name));
    return app_print_json(json_pack("{s:o, s:s, s:s, s:I, s:I, s:o, s:o}", "model", name, "type", type, "level",
                                    info->cpu_level, "n_params", (json_int_t)info->n_params, "weight_bytes",
                                    (json_int_t)info->weight_bytes, "tests", tests, "settings",
                                    app_json_settings(&s->models, &s->options, s->session)));
}

static int print(const speed *s)
{
    char size[32], n[32];
    const char *type = s->printer.type;
    const aerie_model_info *info = &s->models.info;
    if (s->options.json) return print_json(s, type);
    if (s->options.csv) {
        app_print("type,level,test,n,mean,min,max,median,n_prompt,n_gen,depth,threads,batch,ubatch\n");
    } else {
        app_write_escaped(info->name, strlen(info->name));
        app_print(" %s, %.1f M parameters, %s of weights, kernels %s; tokens/s of %u run%s\n\n", type,
                  (double)info->n_params / 1e6, app_bytes(size, info->weight_bytes), info->cpu_level,
                  (unsigned)s->options.bench.n_repetitions, app_plural(s->options.bench.n_repetitions));
        app_print("%-14s %9s %8s %7s %10s %10s %10s %10s\n", "test", "n", "depth", "threads", "mean", "min", "max", "median");
    }
    for (size_t i = 0; i < s->n_tests; i++) {
        speed_test *t = &s->tests[i];
        const app_summary m = app_samples_summary(&t->rates);
        if (s->options.csv) {
            app_print("%s,%s,%s,%u,%.3f,%.3f,%.3f,%.3f,%u,%u,%u,%u,%u,%u\n", type, info->cpu_level, kind_name(t),
                      (unsigned)(t->n_prompt + t->n_gen), m.mean, m.min, m.max, m.median, (unsigned)t->n_prompt,
                      (unsigned)t->n_gen, (unsigned)t->n_depth, (unsigned)t->n_threads, (unsigned)t->n_batch,
                      (unsigned)t->n_ubatch);
            continue;
        }
        if (t->n_prompt && t->n_gen) snprintf(n, sizeof n, "%u+%u", (unsigned)t->n_prompt, (unsigned)t->n_gen);
        else snprintf(n, sizeof n, "%u", (unsigned)(t->n_prompt + t->n_gen));
        app_print("%-14s %9s %8u %7u %10.2f %10.2f %10.2f %10.2f\n", kind_name(t), n, (unsigned)t->n_depth,
                  (unsigned)t->n_threads, m.mean, m.min, m.max, m.median);
    }
    return APP_DONE;
}

static int run_tests(speed *s)
{
    const double start = app_now();
    int bad = APP_DONE;
    for (size_t i = 0; !bad && i < s->n_tests; i++) {
        speed_test *t = &s->tests[i];
        char name[64], left[64] = "";
        if (i) snprintf(left, sizeof left, "; about %.0f s left", (app_now() - start) / (double)i * (double)(s->n_tests - i));
        if (s->options.speed.progress)
            app_note("test %zu of %zu: %s, -t %u%s", i + 1, s->n_tests, speed_test_name(t, name), (unsigned)t->n_threads,
                     left);
        bad = open_session(s, t, i ? t - 1 : NULL);
        if (!bad) bad = measure(s, t);
        if (!bad && s->printer.format != SPEED_TABLE) bad = speed_print_test(&s->printer, t);
    }
    if (!bad) bad = s->printer.format == SPEED_TABLE ? print(s) : speed_print_end(&s->printer);
    return bad;
}

int app_bench_speed(const app_options *given)
{
    speed s = {.given = given, .options = *given, .random = 1};
    uint32_t longest = 0;
    s.printer = (speed_printer){.options = given, .models = &s.models};
    int bad = speed_format_parse(given->speed.format, &s.printer.format);
    if (!bad && given->speed.format && (given->json || given->csv))
        bad = app_error(APP_USAGE, "-o and %s exclude each other", given->json ? "--json" : "--csv");
    if (!bad) bad = list_tests(&s);
    for (size_t i = 0; i < s.n_tests; i++) {
        const speed_test *t = &s.tests[i];
        const uint32_t n = t->n_depth + t->n_prompt + t->n_gen;
        if (n > longest) longest = n;
    }
    if (s.options.session.n_ctx == 0) s.options.session.n_ctx = longest + 8; /* a context for the longest test is enough */
    if (!bad) bad = app_models_load(&s.models, &s.options, false, APP_NEED_TEXT);
    if (!bad) s.printer.tensor_bytes = app_main_type(given->model, s.printer.type);
    if (!bad) bad = draw_context(&s);
    app_interrupt_arm();
    if (!bad) bad = run_tests(&s);
    speed_printer_free(&s.printer);
    for (size_t i = 0; i < s.n_tests; i++) app_samples_free(&s.tests[i].rates);
    free(s.tests);
    free(s.context);
    aerie_session_free(s.session);
    app_models_free(&s.models);
    return bad;
}
