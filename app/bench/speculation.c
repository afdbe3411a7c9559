/* speculation.c - aerie bench spec: compares drafters with plain decoding for groups of prompts, temperatures and numbers of
 * sequences.
 * A unit consists of the prompts of a group that are answered at once. Its prompts are first put into the caches of all
 * sessions. Then each repetition answers them plainly and with every drafter, one after another, or (--in-turns) with every
 * drafter in alternation with plain decoding, pass by pass, so that changes of the machine's clock affect all alike. Figures
 * are of generation alone: tokens per second of wall-clock time, as medians over the repetitions. The first plain answer to a
 * prompt at a temperature is the reference with which all others are compared, including those with other numbers of
 * sequences. */
#include <stdlib.h>
#include <string.h>

#include "bench/speculation.h"
#include "aerie_extra.h"
#include "aerie_measure.h"
#include "run/generate.h"
#include "cli/commands.h"

#define WARM_TOKENS 4    /* tokens to generate so that prompts are in all caches, including those of drafters */
#define MAX_DRAFTERS 256 /* each drafter has a session */

static bool equal(const app_answer *a, const app_answer *b)
{
    return a->n_ids == b->n_ids && (a->n_ids == 0 || memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids) == 0) &&
           a->text.n == b->text.n && (a->text.n == 0 || memcmp(a->text.data, b->text.data, a->text.n) == 0);
}

/* Compares answers with the reference. Where there is none yet, they become the reference. */
static bool same_as_truth(app_answer *truth, app_generation *g)
{
    bool same = true;
    for (size_t i = 0; i < g->prompts->n; i++) {
        if (truth[i].ended) {
            same &= equal(&truth[i], &g->answers[i]);
        } else {
            truth[i] = g->answers[i];
            g->answers[i] = (app_answer){0};
        }
    }
    return same;
}

/* ---- One unit --------------------------------------------------------------------------------------------- */

typedef struct unit {
    app_options run; /* with the temperature */
    app_prompts prompts; /* lent */
    app_answer *truth;   /* [prompts.n] */
    app_samples *seconds; /* [1 + n_drafters] seconds per generated token; index 0 is plain decoding */
    app_samples *beside;  /* [1 + n_drafters] in turns: the same of the plain decoding that alternates with it */
    aerie_stats *stats;   /* [1 + n_drafters] sums over all repetitions */
    uint32_t *n_passes;   /* [1 + n_drafters] passes of all repetitions, including the first of each answer */
    double *all_seconds;  /* [1 + n_drafters] */
    bool *same;           /* [1 + n_drafters] */
    double n_tokens;      /* of one repetition */
} unit;

static int unit_open(unit *u, size_t n)
{
    u->seconds = calloc(n, sizeof *u->seconds);
    u->beside = calloc(n, sizeof *u->beside);
    u->stats = calloc(n, sizeof *u->stats);
    u->n_passes = calloc(n, sizeof *u->n_passes);
    u->all_seconds = calloc(n, sizeof *u->all_seconds);
    u->same = calloc(n, sizeof *u->same);
    if (!u->seconds || !u->beside || !u->stats || !u->n_passes || !u->all_seconds || !u->same) {
        return app_error_memory("the figures");
    }
    for (size_t i = 0; i < n; i++) u->same[i] = true;
    return APP_DONE;
}

static void unit_close(unit *u, size_t n)
{
    for (size_t i = 0; u->seconds && i < n; i++) app_samples_free(&u->seconds[i]);
    for (size_t i = 0; u->beside && i < n; i++) app_samples_free(&u->beside[i]);
    free(u->seconds);
    free(u->beside);
    free(u->stats);
    free(u->n_passes);
    free(u->all_seconds);
    free(u->same);
}

static aerie_session *session_at(const bench_spec *b, size_t i)
{
    return i ? b->drafted[i - 1] : b->plain;
}

/* Puts the prompts into the caches of session i. In turns, session 0 generates whole answers, so that the reference exists
 * before anything is compared with it. */
static int warm(const bench_spec *b, unit *u, size_t i)
{
    const bool whole = b->options.bench.in_turns && !i;
    app_options few = u->run;
    if (!whole && few.n_predict > WARM_TOKENS) few.n_predict = WARM_TOKENS;
    app_generation g = {.models = &b->models, .options = &few, .prompts = &u->prompts};
    const int bad = app_generate(&g, session_at(b, i));
    if (!bad && whole) u->same[0] &= same_as_truth(u->truth, &g);
    app_generation_free(&g);
    return bad;
}

/* Stores the answers of session i to the unit, with their times. */
static int take_answers(unit *u, size_t i, app_generation *g)
{
    aerie_stats sum = {0};
    for (size_t k = 0; k < u->prompts.n; k++) {
        app_stats_add(&sum, &g->stats[k]);
        if (g->stats[k].n_cached + 1 == g->stats[k].n_prompt) u->n_passes[i]++;
    }
    if (sum.n_generated && !app_samples_add(&u->seconds[i], g->seconds / sum.n_generated))
        return app_error_memory("the figures");
    app_stats_add(&u->stats[i], &sum);
    u->n_passes[i] += sum.n_passes;
    u->all_seconds[i] += g->seconds;
    u->n_tokens = sum.n_generated;
    u->same[i] &= same_as_truth(u->truth, g);
    return APP_DONE;
}

/* Answers the unit once with session i. Session 0 is the plain one; the others get the reference as known answers, if
 * requested. */
static int answer(const bench_spec *b, unit *u, size_t i)
{
    const app_generation known = {.answers = u->truth};
    app_generation g = {.models = &b->models, .options = &u->run, .prompts = &u->prompts, .known = i ? &known : NULL};
    int bad = app_generate(&g, session_at(b, i));
    if (!bad) bad = take_answers(u, i, &g);
    app_generation_free(&g);
    return bad;
}

/* Answers the unit once with session i and with the plain one, pass by pass in turns. */
static int answer_in_turns(const bench_spec *b, unit *u, size_t i)
{
    const app_generation known = {.answers = u->truth};
    app_generation g[2] = {{.models = &b->models, .options = &u->run, .prompts = &u->prompts}};
    g[1] = g[0];
    g[1].known = &known;
    int bad = app_generate_in_turns(g, (aerie_session *[]){b->plain, session_at(b, i)}, 2);
    if (!bad) bad = take_answers(u, 0, &g[0]);
    if (!bad) bad = take_answers(u, i, &g[1]);
    if (!bad && u->n_tokens > 0 && !app_samples_add(&u->beside[i], g[0].seconds / u->n_tokens))
        bad = app_error_memory("the figures");
    for (size_t k = 0; k < 2; k++) app_generation_free(&g[k]);
    return bad;
}

/* Adds the unit's figures to the cell of its group or to that of all groups. */
static void add_to_cell(bench_cell *cell, const unit *u, size_t i)
{
    cell->n_prompts += u->prompts.n;
    cell->n_tokens += u->n_tokens;
    cell->seconds += u->n_tokens * app_samples_summary(&u->seconds[i]).median;
    cell->plain_seconds += u->n_tokens * app_samples_summary(u->beside[i].n ? &u->beside[i] : &u->seconds[0]).median;
    app_stats_add(&cell->stats, &u->stats[i]);
    app_stats_add(&cell->plain_stats, &u->stats[0]);
    cell->n_passes += u->n_passes[i];
    cell->all_seconds += u->all_seconds[i];
    cell->same &= u->same[0] && u->same[i];
}

/* cells: [drafters][groups + 1] for the current temperature and number of sequences */
static int measure_unit(bench_spec *b, unit *u, bench_cell *cells, size_t i_group)
{
    const size_t n = 1 + b->n_drafters, n_groups = b->prompts.n_groups;
    int bad = unit_open(u, n);
    for (size_t i = 0; !bad && i < n; i++) bad = warm(b, u, i);
    for (uint32_t r = 0; !bad && r < b->options.bench.n_repetitions; r++) {
        for (size_t i = b->options.bench.in_turns; !bad && i < n; i++)
            bad = b->options.bench.in_turns ? answer_in_turns(b, u, i) : answer(b, u, i);
    }
    for (size_t i = 1; !bad && i < n; i++) {
        bench_cell *row = &cells[(i - 1) * (n_groups + 1)];
        add_to_cell(&row[i_group], u, i);
        add_to_cell(&row[n_groups], u, i);
    }
    unit_close(u, n);
    return bad;
}

/* ---- All of it ---------------------------------------------------------------------------------------------- */

static void close_sessions(bench_spec *b)
{
    aerie_session_free(b->plain);
    b->plain = NULL;
    for (size_t i = 0; b->drafted && i < b->n_drafters; i++) {
        aerie_session_free(b->drafted[i]);
        b->drafted[i] = NULL;
    }
}

static const app_models *models_of(const bench_spec *b, size_t set)
{
    return b->sets ? &b->sets[set] : &b->models;
}

static const char *draft_of(const bench_spec *b, size_t set)
{
    return set ? b->options.bench.more_drafts.items[set - 1] : b->options.draft_model;
}

static int open_sessions(bench_spec *b, uint32_t n_seqs)
{
    app_options own = b->options;
    own.session.n_seqs = n_seqs;
    int bad = app_session_open(&b->plain, &b->models, &own, AERIE_SPEC_NONE);
    for (size_t i = 0; !bad && i < b->n_drafters; i++) {
        bench_drafter *d = &b->drafters[i];
        own.session.spec.ngram_memory = 0; /* prompts repeat, so text remembered between sequences would contain their
                                            * answers */
        own.session.spec.n_max = d->n_max;
        own.session.spec.tree = d->tree;
        if (d->label) {
            own.test.fixed = d->fixed;
            own.session.spec.ngram = d->ngram;
            own.session.spec.n_nodes = d->n_nodes, own.session.spec.top_k = d->top_k;
            own.session.spec.moe_experts = d->moe_experts, own.session.spec.moe_layers = d->moe_layers;
        }
        own.draft_model = draft_of(b, d->set);
        bad = app_session_open(&b->drafted[i], models_of(b, d->set), &own, d->type);
        if (!bad) { /* copied, because the session frees its own name */
            const char *name = d->label ? d->label : aerie_session_spec_name(b->drafted[i]);
            snprintf(d->name, sizeof d->name, "%s", name);
            bad = bench_trace_session(b, i);
        }
    }
    return bad;
}

static void label_cells(const bench_spec *b, bench_cell *cells, uint32_t n_seqs, float temperature)
{
    const size_t n_groups = b->prompts.n_groups;
    for (size_t d = 0; d < b->n_drafters; d++) {
        for (size_t g = 0; g <= n_groups; g++) {
            cells[d * (n_groups + 1) + g] = (bench_cell){.drafter = &b->drafters[d],
                                                         .group = g < n_groups ? b->prompts.groups[g].name : "all",
                                                         .temperature = temperature,
                                                         .n_seqs = n_seqs,
                                                         .same = true};
        }
    }
}

/* Prints, from time to time, how long the rest will take. */
static void say_progress(bench_spec *b)
{
    enum { EVERY = 10 }; /* seconds */
    const double now = app_now();
    if (b->options.quiet || now - b->noted < EVERY || b->n_parts_done == b->n_parts) return;
    b->noted = now;
    app_note("%zu of %zu prompts measured, about %.0f s left", b->n_parts_done, b->n_parts,
             (now - b->start) / (double)b->n_parts_done * (double)(b->n_parts - b->n_parts_done));
}

/* Opens fresh sessions, so that controllers do not keep what they learned at another temperature. */
static int measure_block(bench_spec *b, size_t i_seqs, size_t i_temperature)
{
    const app_options *o = &b->options;
    const uint32_t n_seqs = o->bench.n_seqs.items[i_seqs];
    const float temperature = o->bench.temperatures.items[i_temperature];
    const size_t n_prompts = b->prompts.prompts.n, n_groups = b->prompts.n_groups;
    bench_cell *cells = &b->cells[(i_seqs * o->bench.temperatures.n + i_temperature) * b->n_drafters * (n_groups + 1)];
    label_cells(b, cells, n_seqs, temperature);
    b->n_seqs = n_seqs, b->temperature = temperature;
    int bad = open_sessions(b, n_seqs);
    if (!bad && o->json && !b->settings) b->settings = app_json_settings(&b->models, o, b->plain);
    for (size_t g = 0; !bad && g < n_groups; g++) {
        const bench_group *group = &b->prompts.groups[g];
        const double start = app_now();
        b->group = group->name;
        for (size_t i = 0; !bad && i < group->n; i += n_seqs) {
            const size_t first = group->first + i, n = group->n - i < n_seqs ? group->n - i : n_seqs;
            unit u = {.run = *o,
                      .prompts = {.items = &b->prompts.prompts.items[first], .n = n},
                      .truth = &b->truth[i_temperature * n_prompts + first]};
            u.run.sampling.temperature = temperature;
            bad = measure_unit(b, &u, cells, g);
            b->n_parts_done += n;
            if (!bad) say_progress(b);
        }
        if (!bad && o->verbose) {
            app_note("%u at once, temperature %g, %s: %zu prompts in %.1f s", (unsigned)n_seqs, (double)temperature,
                     group->name, group->n, app_now() - start);
        }
    }
    close_sessions(b);
    return bad;
}

/* ---- What was not given --------------------------------------------------------------------------------------- */

void bench_spec_complete(app_options *o)
{
    if (o->n_predict <= 0) o->n_predict = 128;
    if (o->bench.temperatures.n == 0) o->bench.temperatures = (app_reals){{o->sampling.temperature}, 1};
}

/* Returns whether to load -md or a head found beside the model: by default they are compared too. */
static bool wants_draft(const app_options *o)
{
    bool wanted = o->bench.spec_types.n == 0;
    for (size_t i = 0; i < o->bench.spec_types.n; i++) wanted |= app_wants_draft((aerie_spec_type)o->bench.spec_types.items[i]);
    return wanted;
}

/* Returns whether the drafter's file suits its type. A drafter without a file is measured once. */
static bool suits(const bench_spec *b, const bench_drafter *d)
{
    const app_models *m = models_of(b, d->set);
    if (!app_wants_draft(d->type)) return d->set == 0;
    if (d->type == AERIE_SPEC_AUTO) return d->set == 0 || m->draft || m->head;
    if (d->type == AERIE_SPEC_DRAFT || d->type == AERIE_SPEC_HIER) return m->draft;
    if (!m->head) return false;
    aerie_drafter_head_info info;
    aerie_drafter_head_info_get(m->head, &info, sizeof info);
    return info.type == d->type || !b->options.bench.more_drafts.n; /* with a single file, the session's error says more */
}

/* Adds a file to those that draft for d. */
static void add_file(bench_drafter *d, const char *path)
{
    const size_t n = strlen(d->file);
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (path) snprintf(d->file + n, sizeof d->file - n, "%s%s", n ? " + " : "", slash ? slash + 1 : path);
}

/* Names the files that draft: the one of -md, what drafts for that model, and a head that was found beside -m. */
static void name_files(const bench_spec *b, bench_drafter *d)
{
    const app_models *m = models_of(b, d->set);
    const bool by_model = d->type == AERIE_SPEC_DRAFT || d->type == AERIE_SPEC_HIER;
    d->file[0] = 0;
    if (!app_wants_draft(d->type)) return;
    if (m->draft && (by_model || d->type == AERIE_SPEC_AUTO)) {
        add_file(d, draft_of(b, d->set));
        for (size_t i = 0; d->type != AERIE_SPEC_DRAFT && i < b->options.hier.files.n; i++)
            add_file(d, b->options.hier.files.items[i]);
        const bool again = m->inner_path && m->head_path && d->type == AERIE_SPEC_AUTO && !strcmp(m->inner_path, m->head_path);
        if (d->type != AERIE_SPEC_DRAFT && !again) add_file(d, m->inner_path);
    }
    if (m->head && !by_model) add_file(d, m->head_path ? m->head_path : m->draft ? NULL : draft_of(b, d->set));
}

static int list_drafters(bench_spec *b)
{
    app_options *o = &b->options;
    if (o->bench.spec_types.n == 0) {
        o->bench.spec_types.items[o->bench.spec_types.n++] = AERIE_SPEC_NGRAM;
        if (b->models.draft || b->models.head || b->sets) o->bench.spec_types.items[o->bench.spec_types.n++] = AERIE_SPEC_AUTO;
    }
    const size_t n = o->bench.spec_types.n * o->bench.n_maxes.n * o->bench.trees.n, n_sets = 1 + o->bench.more_drafts.n;
    if (n * n_sets > MAX_DRAFTERS) {
        return app_error(APP_USAGE, "--spec-types, --spec-draft-n-max, --spec-tree and -md make %zu combinations; at most %d "
                                    "can be compared at once", n * n_sets, MAX_DRAFTERS);
    }
    b->drafters = calloc(n * n_sets, sizeof *b->drafters);
    if (!b->drafters) return app_error_memory("the drafters");
    for (size_t k = 0; k < o->bench.n_maxes.n * o->bench.trees.n; k++) {
        for (size_t i = 0; i < o->bench.spec_types.n; i++) {
            bench_drafter d = {.type = (aerie_spec_type)o->bench.spec_types.items[i],
                               .n_max = o->bench.n_maxes.items[k / o->bench.trees.n],
                               .tree = (aerie_tree)o->bench.trees.items[k % o->bench.trees.n]};
            const size_t before = b->n_drafters;
            for (d.set = 0; d.set < n_sets; d.set++) {
                name_files(b, &d);
                if (suits(b, &d)) b->drafters[b->n_drafters++] = d;
            }
            d.set = 0, d.file[0] = 0; /* opening the session reports what is missing */
            if (b->n_drafters == before) b->drafters[b->n_drafters++] = d;
        }
    }
    return APP_DONE;
}

/* Returns a context size for the longest prompt and its answer; 0, the library's default, if that is smaller. */
static uint32_t context_for(const app_options *o, uint64_t n_longest, uint32_t n_ctx_train)
{
    const uint64_t n = n_longest + (uint64_t)o->n_predict + 1;
    return n <= 8192 && n <= n_ctx_train ? (uint32_t)n : 0;
}

/* Loads the drafters of all -md. */
static int load_sets(bench_spec *b)
{
    const app_texts *more = &b->options.bench.more_drafts;
    int bad = APP_DONE;
    b->sets = calloc(1 + more->n, sizeof *b->sets);
    if (!b->sets) return app_error_memory("the drafters");
    b->sets[0] = b->models; /* lent */
    for (size_t i = 0; !bad && i < more->n; i++) {
        app_options own = b->options;
        own.draft_model = more->items[i];
        bad = app_models_borrow(&b->sets[1 + i], &b->models, &own);
    }
    return bad;
}

/* Checks memory before tokenizing the prompts: apart from the template, a prompt has at most as many tokens as bytes. */
int bench_spec_load(bench_spec *b)
{
    enum { TEMPLATE_TOKENS = 256 };
    app_options *o = &b->options;
    app_prompts *prompts = &b->prompts.prompts;
    const bool open = o->session.n_ctx == 0;
    uint64_t bytes = 0, tokens = 0;
    for (size_t i = 0; i < prompts->n; i++) {
        if (prompts->items[i].text.n > bytes) bytes = prompts->items[i].text.n;
    }
    if (o->system_prompt) bytes += strlen(o->system_prompt);
    if (open) o->session.n_ctx = context_for(o, bytes + TEMPLATE_TOKENS, UINT32_MAX);
    o->session.n_seqs = o->bench.n_seqs.items[0];
    for (size_t i = 1; i < o->bench.n_seqs.n; i++) {
        if (o->bench.n_seqs.items[i] > o->session.n_seqs) o->session.n_seqs = o->bench.n_seqs.items[i];
    }
    int bad = app_models_load(&b->models, o, wants_draft(o), APP_NEED_TEXT);
    if (!bad) bad = app_need_text(&b->models, o);
    if (!bad && o->bench.more_drafts.n && wants_draft(o)) bad = load_sets(b);
    if (!bad) bad = app_prompts_encode(prompts, &b->models, o);
    if (!bad && o->bench.context)
        bad = bench_prompts_lengthen(&b->prompts, &b->models, o->bench.context, o->bench.context_text);
    for (size_t i = 0; !bad && i < prompts->n; i++) {
        if (prompts->items[i].n_tokens > tokens) tokens = prompts->items[i].n_tokens;
    }
    if (!bad && open) o->session.n_ctx = context_for(o, tokens, b->models.info.n_ctx_train);
    if (!bad && open && o->bench.context) o->session.n_ctx = (uint32_t)tokens + (uint32_t)o->n_predict + 1;
    return bad;
}

/* ---- Passes of other times ------------------------------------------------------------------------------------ */

/* Returns size i of a series that ends with `last`; 0 after that. */
static uint32_t steep_size(size_t i, uint32_t last)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48};
    size_t n = 0;
    while (n < sizeof sizes / sizeof *sizes && sizes[n] < last) n++;
    return i < n ? sizes[i] : i == n ? last : 0;
}

/* Finds the smallest time of a pass over one row with which the times of all sizes up to n_last are below the line. */
static int measure_steep(const bench_spec *b, uint32_t n_last, double slope, double *least)
{
    enum { STEEP_RUNS = 7 };
    app_options own = b->options;
    aerie_session *session = NULL;
    aerie_error error = {0};
    double seconds[STEEP_RUNS];
    own.session.n_ctx = 2 * n_last, own.session.n_seqs = 1;
    if (own.session.n_batch < n_last) own.session.n_batch = n_last;
    *least = 0;
    int bad = app_session_open(&session, &b->models, &own, AERIE_SPEC_NONE);
    for (size_t i = 0; !bad && steep_size(i, n_last); i++) {
        const uint32_t n = steep_size(i, n_last);
        app_samples samples = {0};
        bad = app_report(APP_WORKING, aerie_session_time_pass(session, n, n_last, true, STEEP_RUNS, seconds, &error), &error);
        for (size_t k = 0; !bad && k < STEEP_RUNS; k++)
            if (!app_samples_add(&samples, seconds[k])) bad = app_error_memory("the figures");
        const double needed = app_samples_summary(&samples).median / (1 + slope * (n - 1));
        if (!bad && needed > *least) *least = needed;
        app_samples_free(&samples);
    }
    aerie_session_free(session);
    return bad;
}

int bench_spec_steepen(bench_spec *b)
{
    app_options *o = &b->options;
    char *end = NULL;
    if (!o->bench.steep) return APP_DONE;
    const unsigned long n = strtoul(o->bench.steep, &end, 10);
    const double ratio = *end == ':' ? app_number(end + 1, &end) : 0;
    if (*end || n < 2 || n > AERIE_MAX_DRAFT || !(ratio >= 1 && ratio <= (double)n))
        return app_error(APP_USAGE, "--steep: '%s' is not N:R with 2 to %d rows and a ratio of 1 to N, such as 48:1.8",
                         o->bench.steep, AERIE_MAX_DRAFT);
    const double slope = (ratio - 1) / (double)(n - 1);
    const int bad = measure_steep(b, (uint32_t)n, slope, &o->test.least_seconds);
    o->test.least_row_seconds = slope * o->test.least_seconds;
    if (!bad && !o->quiet)
        app_note("--steep: a pass over n rows takes %.2f + %.3f (n - 1) ms", 1e3 * o->test.least_seconds,
                 1e3 * o->test.least_row_seconds);
    return bad;
}

int bench_spec_check_same(const bench_spec *b)
{
    for (size_t i = 0; i < b->n_cells; i++) {
        const bench_cell *c = &b->cells[i];
        if (c->same) continue;
        return app_error(APP_FAILED, "the output with speculation (%s, %s, %u at once, temperature %g) differs from plain "
                                     "decoding, which is a bug; please report it", c->drafter->name, c->group,
                                     (unsigned)c->n_seqs,
                         (double)c->temperature);
    }
    return APP_DONE;
}

int bench_spec_measure(bench_spec *b)
{
    const app_options *o = &b->options;
    int bad = APP_DONE;
    b->n_cells = o->bench.n_seqs.n * o->bench.temperatures.n * b->n_drafters * (b->prompts.n_groups + 1);
    b->cells = calloc(b->n_cells, sizeof *b->cells);
    b->truth = calloc(o->bench.temperatures.n * b->prompts.prompts.n, sizeof *b->truth);
    b->drafted = calloc(b->n_drafters, sizeof(aerie_session *));
    if (!b->cells || !b->truth || !b->drafted) bad = app_error_memory("the figures");
    app_interrupt_arm();
    b->start = b->noted = app_now();
    b->n_parts = o->bench.n_seqs.n * o->bench.temperatures.n * b->prompts.prompts.n, b->n_parts_done = 0;
    for (size_t s = 0; !bad && s < o->bench.n_seqs.n; s++) {
        for (size_t t = 0; !bad && t < o->bench.temperatures.n; t++) bad = measure_block(b, s, t);
    }
    return bad;
}

void bench_spec_free(bench_spec *b)
{
    for (size_t i = 0; b->truth && i < b->options.bench.temperatures.n * b->prompts.prompts.n; i++) {
        app_text_free(&b->truth[i].text);
        free(b->truth[i].ids);
    }
    free(b->truth);
    json_decref(b->settings);
    free(b->cells);
    close_sessions(b);
    free(b->drafted);
    free(b->drafters);
    bench_prompts_free(&b->prompts);
    for (size_t i = 1; b->sets && i <= b->options.bench.more_drafts.n; i++) app_models_return(&b->sets[i]);
    free(b->sets);
    app_models_free(&b->models);
}

int app_bench_spec(const app_options *given)
{
    static bench_spec b; /* large for a stack */
    memset(&b, 0, sizeof b);
    b.options = *given;
    bench_spec_complete(&b.options);
    int bad = bench_prompts_read(&b.prompts, &b.options);
    if (!bad) bad = bench_spec_load(&b);
    if (!bad) bad = list_drafters(&b);
    if (!bad) bad = bench_trace_open(&b);
    if (!bad) bad = bench_spec_steepen(&b);
    if (!bad) bad = bench_spec_measure(&b);
    if (!bad) bad = bench_spec_print(&b);
    const int lost = bench_trace_close(&b);
    if (!bad) bad = lost;
    if (!bad) bad = bench_spec_check_same(&b);
    bench_spec_free(&b);
    return bad;
}
