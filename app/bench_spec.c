/* bench_spec.c - aerie bench spec: prompts x kinds of speculation against plain decoding, in alternating runs.
 *
 * The plain answer is made again beside each run, so that a change of the machine's clock touches both;
 * rates are tokens over decode seconds, medians over the repetitions.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "generate.h"
#include "run.h"

/* From text that n-gram drafting foresees to text that it cannot. */
static const char *const builtin[] = {
    ("Repeat this text word for word: The quick brown fox jumps over the lazy dog. The lazy dog sleeps in the warm "
     "sun. "
     "The quick brown fox sees the lazy dog and jumps over the lazy dog once more."),
    "Write a Python class for a bank account with methods deposit, withdraw and balance, then show how it is used.",
    "List the planets of the solar system, and for each its diameter and number of moons.",
    "Explain why the sky is blue.",
    "Tell a short story about a lighthouse keeper who finds a message in a bottle.",
};

/* One prompt under one kind of speculation. */
typedef struct cell {
    double plain, drafted; /* tokens/s, medians */
    aerie_stats stats;     /* of the runs with speculation, summed */
    bool same;             /* ids equal to the plain ones, each time */
} cell;

typedef struct comparison {
    const app_options *options;
    app_models models;
    app_prompts prompts;
    aerie_session *plain;
    cell *cells; /* [types][prompts] */
} comparison;

static double rate_of(const app_generation *g)
{
    return app_rate(g->stats[0].n_generated, g->stats[0].decode_seconds);
}

static bool equal(const app_answer *a, const app_answer *b)
{
    return a->n_ids == b->n_ids && (a->n_ids == 0 || memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids) == 0) &&
           a->text.n == b->text.n && (a->text.n == 0 || memcmp(a->text.data, b->text.data, a->text.n) == 0);
}

static int compare(comparison *c, aerie_session *session, aerie_spec_type type, size_t i_prompt, cell *out)
{
    const app_prompts one = {.items = &c->prompts.items[i_prompt], .n = 1};
    app_samples plain_rates = {0}, rates = {0};
    int bad = APP_DONE;
    out->same = true;
    for (uint32_t i = 0; !bad && i < c->options->n_repetitions; i++) {
        app_generation plain = {.models = &c->models, .options = c->options, .prompts = &one};
        app_generation g = plain;
        if (type == AERIE_SPEC_ORACLE) g.known = &plain;
        bad = app_generate(&plain, c->plain);
        if (!bad) bad = app_generate(&g, session);
        if (!bad) {
            out->same &= equal(&plain.answers[0], &g.answers[0]);
            app_stats_add(&out->stats, &g.stats[0]);
            if (!app_samples_add(&plain_rates, rate_of(&plain)) || !app_samples_add(&rates, rate_of(&g))) {
                bad = app_error_memory("the figures");
            }
        }
        app_generation_free(&g);
        app_generation_free(&plain);
    }
    out->plain = app_samples_summary(&plain_rates).median;
    out->drafted = app_samples_summary(&rates).median;
    app_samples_free(&plain_rates);
    app_samples_free(&rates);
    return bad;
}

static int compare_type(comparison *c, size_t i_type)
{
    const aerie_spec_type type = (aerie_spec_type)c->options->spec_types.items[i_type];
    aerie_session *session = NULL;
    int bad = app_session_open(&session, &c->models, c->options, type);
    for (size_t i = 0; !bad && i < c->prompts.n; i++) {
        bad = compare(c, session, type, i, &c->cells[i_type * c->prompts.n + i]);
    }
    aerie_session_free(session);
    return bad;
}

/* ---- Output ----------------------------------------------------------------------------------------- */

/* All prompts together: harmonic means of the rates, since each prompt counts by the time its tokens take. */
static cell total_of(const comparison *c, size_t i_type)
{
    cell sum = {.same = true};
    double plain = 0, drafted = 0;
    for (size_t i = 0; i < c->prompts.n; i++) {
        const cell *one = &c->cells[i_type * c->prompts.n + i];
        plain += app_rate(1, one->plain);
        drafted += app_rate(1, one->drafted);
        app_stats_add(&sum.stats, &one->stats);
        sum.same &= one->same;
    }
    sum.plain = app_rate((double)c->prompts.n, plain);
    sum.drafted = app_rate((double)c->prompts.n, drafted);
    return sum;
}

static json_t *cell_json(const comparison *c, size_t i_type, const cell *one)
{
    const aerie_stats *s = &one->stats;
    return json_pack("{s:s, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:f, s:o, s:b}", "type",
                     aerie_spec_type_name((aerie_spec_type)c->options->spec_types.items[i_type]), "plain_per_second",
                     one->plain, "per_second", one->drafted, "ratio", app_rate(one->drafted, one->plain), "n_generated",
                     (json_int_t)s->n_generated, "n_passes", (json_int_t)s->n_passes, "n_drafted",
                     (json_int_t)s->n_drafted, "n_accepted", (json_int_t)s->n_accepted, "accepted_per_pass",
                     app_rate(s->n_accepted, s->n_passes), "by_depth", app_json_depths(s), "same_bytes",
                     (int)one->same);
}

static int print_json(const comparison *c)
{
    json_t *runs = json_array(), *totals = json_array();
    for (size_t t = 0; t < c->options->spec_types.n; t++) {
        for (size_t i = 0; i < c->prompts.n; i++) {
            json_t *run = cell_json(c, t, &c->cells[t * c->prompts.n + i]);
            json_object_set_new(run, "prompt",
                                app_json_text(c->prompts.items[i].text.data, c->prompts.items[i].text.n));
            json_array_append_new(runs, run);
        }
        const cell total = total_of(c, t);
        json_array_append_new(totals, cell_json(c, t, &total));
    }
    return app_print_json(json_pack("{s:o, s:o, s:o}", "runs", runs, "totals", totals, "settings",
                                    app_json_settings(&c->models, c->options, c->plain)));
}

static void print_row(const comparison *c, const char *type, const char *prompt, const cell *one)
{
    const char *format = c->options->csv ? "%s,%s,%.3f,%.3f,%.4f,%u,%u,%u,%u,%.4f,%s\n"
                                         : "%-8s %7s %10.2f %10.2f %7.2f %9u %7u %8u %9u %9.2f %6s\n";
    const aerie_stats *s = &one->stats;
    app_print(format, type, prompt, one->plain, one->drafted, app_rate(one->drafted, one->plain),
              (unsigned)s->n_generated, (unsigned)s->n_passes, (unsigned)s->n_drafted, (unsigned)s->n_accepted,
              app_rate(s->n_accepted, s->n_passes), one->same ? "yes" : "NO");
}

static void print_depths(const char *type, const aerie_stats *s)
{
    app_print("%s by depth:", type);
    for (size_t i = 0; i < AERIE_MAX_DRAFT; i++) {
        if (s->drafted_at[i]) app_print(" %zu:%.0f%%", i + 1, 100 * app_rate(s->accepted_at[i], s->drafted_at[i]));
    }
    app_print("\n");
}

static void print_table(const comparison *c)
{
    const app_numbers *types = &c->options->spec_types;
    char number[24];
    app_print(
        c->options->csv
            ? "type,prompt,plain_per_second,per_second,ratio,generated,passes,drafted,accepted,"
              "accepted_per_pass,same_bytes\n"
            : "type      prompt      plain   tokens/s   ratio generated  passes  drafted  accepted  per pass   same\n");
    for (size_t t = 0; t < types->n; t++) {
        const char *type = aerie_spec_type_name((aerie_spec_type)types->items[t]);
        for (size_t i = 0; i < c->prompts.n; i++) {
            snprintf(number, sizeof number, "%zu", i + 1);
            print_row(c, type, number, &c->cells[t * c->prompts.n + i]);
        }
        const cell total = total_of(c, t);
        print_row(c, type, "all", &total);
    }
    for (size_t t = 0; !c->options->csv && t < types->n; t++) {
        const cell total = total_of(c, t);
        print_depths(aerie_spec_type_name((aerie_spec_type)types->items[t]), &total.stats);
    }
}

static int read_prompts(comparison *c)
{
    int bad = app_prompts_read(&c->prompts, c->options, false);
    if (bad || c->prompts.n) return bad;
    for (size_t i = 0; !bad && i < sizeof builtin / sizeof *builtin; i++) {
        bad = app_prompts_add(&c->prompts, builtin[i], strlen(builtin[i]), false);
    }
    return bad;
}

/* What was not given. */
static void complete(app_options *options)
{
    app_numbers *types = &options->spec_types;
    if (options->n_predict <= 0) options->n_predict = 128;
    if (types->n) return;
    types->items[types->n++] = AERIE_SPEC_NGRAM;
}

/* What -md turned out to be is compared too, unless the kinds were named. */
static void add_draft_type(app_options *options, const app_options *given, const app_models *models)
{
    app_numbers *types = &options->spec_types;
    aerie_head_info info;
    if (given->spec_types.n) return;
    if (models->head) {
        aerie_head_info_get(models->head, &info);
        types->items[types->n++] = info.type;
    } else if (models->draft) {
        types->items[types->n++] = AERIE_SPEC_DRAFT;
    }
}

int app_bench_spec(const app_options *given)
{
    app_options options = *given;
    comparison c = {.options = &options};
    bool differs = false;
    complete(&options);
    int bad = read_prompts(&c);
    if (!bad) bad = app_models_load(&c.models, &options, options.draft_model != NULL);
    if (!bad) add_draft_type(&options, given, &c.models);
    if (!bad) bad = app_prompts_encode(&c.prompts, &c.models, &options);
    if (!bad) bad = app_session_open(&c.plain, &c.models, &options, AERIE_SPEC_NONE);
    if (!bad && !(c.cells = calloc(options.spec_types.n * c.prompts.n, sizeof *c.cells)))
        bad = app_error_memory("the figures");
    app_interrupt_arm();
    for (size_t t = 0; !bad && t < options.spec_types.n; t++) bad = compare_type(&c, t);
    if (!bad && options.json) bad = print_json(&c);
    else if (!bad) print_table(&c);
    for (size_t t = 0; !bad && t < options.spec_types.n; t++) differs |= !total_of(&c, t).same;
    if (differs) bad = app_error(APP_FAILED, "the output with speculation differs from plain decoding; please report");
    free(c.cells);
    aerie_session_free(c.plain);
    app_prompts_free(&c.prompts);
    app_models_free(&c.models);
    return bad;
}
