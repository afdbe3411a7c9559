/* study.c - aerie bench study: measures one model in several quantizations, with contexts of several lengths and several types
 * of cache, and what each kind of speculation gains. Makes HierSpec's figures (arXiv 2505.22179) for any model: T(n)/T(1) by
 * type; speed-ups of a chain, of EAGLE-2's tree, of trees cut to what pays, and of a hierarchy; and for models with experts the
 * acceptance of their own drafts, by experts, length and layers. Writes rows of a CSV file, which bench/plot.py draws, and
 * tables of a Markdown file. The output folder holds the file of one type at a time while it is measured. Owns the lists of
 * types, drafters and sizes. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "aerie_extra.h"
#include "aerie_measure.h"
#include "bench/speculation.h"
#include "cli/commands.h"

enum { MAX_TYPES = 64, MAX_SIZES = 12, MAX_WAYS = 40, RUNS = 3 };

enum { MAX_KV_TYPES = 8 };

static const uint32_t all_sizes[] = {1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64}, few_sizes[] = {1, 8, 16, 32, 64};

/* The figures of one way to draft. */
typedef struct way_row {
    char name[96];
    double ratio, tokens_per_s, plain, emitted, acceptance; /* plain: tokens/s of the plain decoding that alternates with it;
                                                             * emitted: tokens per pass of the target */
    bool same;
    float accepted_at[AERIE_MAX_DRAFT]; /* by depth; negative: never tried */
} way_row;

/* One combination of a type of the model, a type of cache and a context. */
typedef struct type_row {
    char name[56];  /* the type's name, followed by those of the cache and the context if there are several */
    char weights[24];
    aerie_kv_type kv;
    uint32_t context;
    uint64_t bytes;
    bool done;
    double ms[MAX_SIZES], plain; /* tokens per second: mean of the plain runs beside the ways */
    way_row ways[MAX_WAYS];
    size_t n_ways;
} type_row;

typedef struct study {
    const app_options *given;
    const uint32_t *sizes;
    size_t n_sizes;
    type_row types[MAX_TYPES];
    size_t n_types;
    char labels[MAX_WAYS][96];
    FILE *csv;
    double start;      /* when measuring began */
    size_t n_measured; /* types since then */
} study;

static const char *folder_of(const study *s)
{
    return s->given->study.output ? s->given->study.output : "study";
}

static int open_file(const study *s, const char *name, FILE **file)
{
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/%s", folder_of(s), name);
    *file = n > 0 && (size_t)n < sizeof path ? fopen(path, "w") : NULL;
    return *file ? APP_DONE : app_error(APP_FAILED, "%s/%s could not be written: %s", folder_of(s), name, strerror(errno));
}

/* ---- Types -------------------------------------------------------------------------------------------------- */

/* Lists the types of cache: those of the option's list, or the one that is set. */
static int list_kv_types(const study *s, aerie_kv_type *types, size_t *n)
{
    const char *p = s->given->study.kv_types;
    types[0] = s->given->session.kv_type;
    *n = 1;
    for (size_t i = 0; p; i++) {
        char name[24];
        const size_t length = strcspn(p, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), p);
        if (i == MAX_KV_TYPES) return app_error(APP_USAGE, "--kv-types names more than %d types", MAX_KV_TYPES);
        if (!aerie_kv_type_parse(name, &types[i]))
            return app_error(APP_USAGE, "--kv-types: there is no type '%s' of cache; 'aerie help run' lists them under "
                             "--kv-type", name);
        *n = i + 1;
        p = p[length] ? p + length + 1 : NULL;
    }
    return APP_DONE;
}

/* Adds a type of the model with each context and each type of cache. */
static int add_type(study *s, const char *weights, const aerie_kv_type *kv_types, size_t n_kv_types)
{
    const app_numbers *contexts = &s->given->bench.contexts;
    for (size_t i = 0; i < n_kv_types; i++)
        for (size_t k = 0; k < contexts->n; k++) {
            if (s->n_types == MAX_TYPES)
                return app_error(APP_USAGE, "--types, --kv-types and --contexts make more than %d combinations", MAX_TYPES);
            type_row *t = &s->types[s->n_types++];
            snprintf(t->weights, sizeof t->weights, "%s", weights);
            t->kv = kv_types[i];
            t->context = contexts->items[k];
            int n = snprintf(t->name, sizeof t->name, "%s", weights);
            if (s->given->study.kv_types)
                n += snprintf(t->name + n, sizeof t->name - (size_t)n, " %s", aerie_kv_type_name(t->kv));
            if (contexts->n > 1 || t->context)
                snprintf(t->name + n, sizeof t->name - (size_t)n, " %u", (unsigned)t->context);
        }
    return APP_DONE;
}

static int list_types(study *s)
{
    const char *list = s->given->study.types;
    aerie_kv_type kv_types[MAX_KV_TYPES];
    size_t n_kv_types;
    int bad = list_kv_types(s, kv_types, &n_kv_types);
    if (!list) list = s->given->quick ? "Q8_0,Q4_0" : "F16,Q8_0,Q6_K,Q4_K_M,Q4_0,Q3_K_M,Q2_K";
    for (const char *p = list; !bad; p++) {
        char name[24];
        const size_t n = strcspn(p, ",");
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), p);
        if (strcmp(name, "as-is") && !app_quantize_knows(name))
            return app_error(APP_USAGE,
                             "--types: there is no type '%s'; 'aerie quantize --help' lists them, and 'as-is' is the "
                             "file as it is",
                             name);
        bad = add_type(s, name, kv_types, n_kv_types);
        p += n;
        if (!*p) break;
    }
    return bad;
}

/* ---- Ways to draft ------------------------------------------------------------------------------------------ */

static void add_way(study *s, bench_spec *b, bench_drafter way, const char *format, ...) __attribute__((format(printf, 4, 5)));

static void add_way(study *s, bench_spec *b, bench_drafter way, const char *format, ...)
{
    if (b->n_drafters == MAX_WAYS) return;
    char *label = s->labels[b->n_drafters];
    va_list args;
    va_start(args, format);
    vsnprintf(label, sizeof s->labels[0], format, args);
    va_end(args);
    way.label = label;
    b->drafters[b->n_drafters++] = way;
}

/* Lists drafts by the model itself: how many experts, how far ahead, in which layers. */
static void list_moe(study *s, bench_spec *b)
{
    static const int32_t experts[] = {0, 1, 2, 4};
    static const uint32_t few_lengths[] = {2, 5}, all_lengths[] = {1, 2, 3, 5};
    const uint32_t *lengths = s->given->quick ? few_lengths : all_lengths;
    char parts[3][24];
    const unsigned n_layers = b->models.info.n_layers, half = n_layers / 2, quarter = n_layers / 4;
    const int32_t half_used = (int32_t)b->models.info.n_experts_used / 2;
    snprintf(parts[0], sizeof parts[0], "0-%u", half ? half - 1 : 0);
    snprintf(parts[1], sizeof parts[1], "%u-", half);
    snprintf(parts[2], sizeof parts[2], "%u-%u", quarter, n_layers > quarter ? n_layers - quarter - 1 : 0);
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++) {
        if (experts[i] && (uint32_t)experts[i] >= b->models.info.n_experts_used) break;
        for (size_t k = 0; k < (s->given->quick ? 2 : 4); k++)
            add_way(s, b,
                    (bench_drafter){.type = AERIE_SPEC_MOE, .n_max = lengths[k], .fixed = true, .moe_experts = experts[i]},
                    "moe, %d experts, %u ahead, all layers", (int)experts[i], (unsigned)lengths[k]);
    }
    for (size_t k = 0; k < (s->given->quick ? 3 : 6); k++) {
        const int32_t n = k < 3 ? 0 : half_used;
        add_way(s, b, (bench_drafter){.type = AERIE_SPEC_MOE, .n_max = 2, .fixed = true, .moe_experts = n},
                "moe, %d experts, 2 ahead, layers %s", (int)n, parts[k % 3]);
        bench_drafter *d = &b->drafters[b->n_drafters - 1];
        /* borrowed by the options until the sessions are open */
        d->moe_layers = strstr(d->label, "layers ") + strlen("layers ");
    }
    add_way(s, b, (bench_drafter){.type = AERIE_SPEC_MOE, .n_max = 8, .tree = AERIE_TREE_AUTO, .moe_experts = AERIE_MOE_TRIAL},
            "moe, experts by trial, as far as it pays");
}

static int list_ways(study *s, bench_spec *b)
{
    b->drafters = calloc(MAX_WAYS, sizeof *b->drafters);
    if (!b->drafters) return app_error_memory("the drafters");
    if (b->models.head) {
        aerie_drafter_head_info info;
        aerie_drafter_head_info_get(b->models.head, &info, sizeof info);
        add_way(s, b, (bench_drafter){.type = info.type, .n_max = 5, .tree = AERIE_TREE_OFF, .fixed = true}, "chain of 5");
        if (info.type != AERIE_SPEC_MEDUSA)
            add_way(s, b, (bench_drafter){.type = info.type, .n_max = 6, .tree = AERIE_TREE_DYNAMIC, .n_nodes = 48, .top_k = 8,
                                          .fixed = true}, "EAGLE-2 tree of 48");
        add_way(s, b, (bench_drafter){.type = info.type, .n_max = 16, .tree = AERIE_TREE_AUTO}, "cost-aware tree");
    }
    if (b->models.draft) {
        add_way(s, b, (bench_drafter){.type = AERIE_SPEC_DRAFT, .n_max = 6, .tree = AERIE_TREE_OFF, .fixed = true},
                "draft model, 6");
        add_way(s, b, (bench_drafter){.type = AERIE_SPEC_DRAFT, .n_max = 16, .tree = AERIE_TREE_AUTO},
                "draft model, cost-aware");
        add_way(s, b, (bench_drafter){.type = AERIE_SPEC_HIER, .n_max = 6, .tree = AERIE_TREE_OFF, .fixed = true},
                "hierarchy, 6");
        add_way(s, b, (bench_drafter){.type = AERIE_SPEC_HIER, .n_max = 16, .tree = AERIE_TREE_OFF}, "hierarchy, cost-aware");
    }
    if (b->models.info.n_experts) list_moe(s, b);
    add_way(s, b, (bench_drafter){.type = AERIE_SPEC_NGRAM, .n_max = 16, .tree = AERIE_TREE_AUTO}, "n-grams");
    add_way(s, b,
            (bench_drafter){.type = AERIE_SPEC_AUTO, .n_max = 16, .tree = AERIE_TREE_AUTO, .ngram = true,
                            .moe_experts = AERIE_MOE_TRIAL},
            "auto");
    return APP_DONE;
}

/* ---- Figures in the file -------------------------------------------------------------------------------------- */

static uint32_t add_text(uint32_t hash, const char *text)
{
    for (; text && *text; text++) hash = (hash ^ (uint8_t)*text) * 16777619u;
    return (hash ^ '|') * 16777619u;
}

static uint32_t add_texts(uint32_t hash, const app_texts *texts)
{
    for (size_t i = 0; i < texts->n; i++) hash = add_text(hash, texts->items[i]);
    return add_text(hash, "");
}

/* Returns a hash of all settings on which figures depend, except the type. Figures that were measured with other settings are
 * not reused. */
static uint32_t settings_of(const app_options *o)
{
    char numbers[256];
    const char *const texts[] = {o->model, o->draft_model, o->bench.steep, o->prompts_file, app_cpu_level(), numbers,
                                 o->bench.context_text, "2" /* version of the set of figures that a way has */};
    const app_texts *const lists[] = {&o->prompts, &o->bench.prompt_paths, &o->hier.files};
    uint32_t hash = 2166136261u;
    snprintf(numbers, sizeof numbers, "%d %u %u %u %d %g %" PRIu64, (int)o->n_predict, (unsigned)o->bench.n_repetitions,
             (unsigned)o->n_threads, (unsigned)o->bench.n_per_group, (int)o->quick, (double)o->sampling.temperature,
             o->sampling.seed);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) hash = add_text(hash, texts[i]);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) hash = add_texts(hash, lists[i]);
    return hash;
}

static void put(study *s, const type_row *t, const char *way, const char *figure, uint32_t n, double value)
{
    fprintf(s->csv, "%s,%" PRIu64 ",\"%s\",%s,%u,%.10g\n", t->name, t->bytes, way, figure, (unsigned)n, value);
}

/* Writes the figures of a type. The settings come last, because they show that the type is complete. */
static int put_type(study *s, const type_row *t)
{
    for (size_t i = 0; i < s->n_sizes; i++) put(s, t, "", "ms", s->sizes[i], t->ms[i]);
    put(s, t, "", "plain_tokens_per_s", 0, t->plain);
    for (size_t i = 0; i < t->n_ways; i++) {
        const way_row *w = &t->ways[i];
        put(s, t, w->name, "tokens_per_s", 0, w->tokens_per_s);
        put(s, t, w->name, "plain_tokens_per_s", 0, w->plain);
        put(s, t, w->name, "ratio", 0, w->ratio);
        put(s, t, w->name, "tokens_per_pass", 0, w->emitted);
        put(s, t, w->name, "acceptance", 0, w->acceptance);
        put(s, t, w->name, "same_bytes", 0, w->same);
        for (uint32_t d = 0; d < AERIE_MAX_DRAFT; d++)
            if (w->accepted_at[d] >= 0) put(s, t, w->name, "accepted_at", d + 1, (double)w->accepted_at[d]);
    }
    put(s, t, "", "settings", 0, settings_of(s->given));
    if (fflush(s->csv)) return app_error(APP_FAILED, "%s/study.csv could not be written: %s", folder_of(s), strerror(errno));
    return APP_DONE;
}

static way_row *way_of(type_row *t, const char *name)
{
    for (size_t i = 0; i < t->n_ways; i++)
        if (!strcmp(t->ways[i].name, name)) return &t->ways[i];
    if (t->n_ways == MAX_WAYS) return NULL;
    way_row *w = &t->ways[t->n_ways++];
    snprintf(w->name, sizeof w->name, "%s", name);
    for (size_t d = 0; d < AERIE_MAX_DRAFT; d++) w->accepted_at[d] = -1;
    return w;
}

static void take_figure(study *s, type_row *t, const char *way, const char *figure, uint32_t n, double value)
{
    way_row *w = *way ? way_of(t, way) : NULL;
    for (size_t i = 0; i < s->n_sizes; i++)
        if (!strcmp(figure, "ms") && s->sizes[i] == n) t->ms[i] = value;
    if (!strcmp(figure, "plain_tokens_per_s")) *(w ? &w->plain : &t->plain) = value;
    if (!strcmp(figure, "settings")) t->done = value == (double)settings_of(s->given);
    if (!w) return;
    if (!strcmp(figure, "tokens_per_s")) w->tokens_per_s = value;
    if (!strcmp(figure, "ratio")) w->ratio = value;
    if (!strcmp(figure, "tokens_per_pass")) w->emitted = value;
    if (!strcmp(figure, "acceptance")) w->acceptance = value;
    if (!strcmp(figure, "same_bytes")) w->same = value != 0;
    if (!strcmp(figure, "accepted_at") && n >= 1 && n <= AERIE_MAX_DRAFT) w->accepted_at[n - 1] = (float)value;
}

/* Reads a line of the file, or skips it if it is not one of these. */
static void take_line(study *s, char *line)
{
    char type[56], figure[32];
    uint64_t bytes;
    unsigned n;
    int at = 0;
    char *end, *open = strchr(line, '"'), *shut = open ? strchr(open + 1, '"') : NULL;
    if (!shut || sscanf(line, "%55[^,],%" SCNu64, type, &bytes) != 2 ||
        sscanf(shut + 1, ",%31[^,],%u,%n", figure, &n, &at) != 2 || !at)
        return;
    const double value = app_number(shut + 1 + at, &end);
    if (end == shut + 1 + at) return;
    *shut = 0;
    for (size_t i = 0; i < s->n_types; i++) {
        type_row *t = &s->types[i];
        if (strcmp(t->name, type) || t->done) continue;
        t->bytes = bytes;
        take_figure(s, t, open + 1, figure, n, value);
    }
}

/* Reads the types that an earlier call measured completely with the same options. */
static int resume(study *s)
{
    char path[4096], line[512];
    if (snprintf(path, sizeof path, "%s/study.csv", folder_of(s)) >= (int)sizeof path)
        return app_error(APP_USAGE, "-o: the folder's name is too long");
    FILE *file = fopen(path, "r");
    if (!file && errno == ENOENT) return APP_DONE;
    if (!file) return app_error(APP_FAILED, "%s could not be read: %s", path, strerror(errno));
    while (fgets(line, sizeof line, file)) take_line(s, line);
    const bool failed = ferror(file) != 0;
    fclose(file);
    if (failed) return app_error(APP_FAILED, "%s could not be read", path);
    for (size_t i = 0; i < s->n_types; i++) {
        type_row *t = &s->types[i];
        if (!t->done) t->n_ways = 0;
        else if (!s->given->quiet) app_note("%s: measured before", t->name);
    }
    return APP_DONE;
}

/* ---- Measuring ----------------------------------------------------------------------------------------------- */

static int measure_passes(study *s, type_row *t, const bench_spec *b)
{
    app_options own = b->options;
    aerie_session *session = NULL;
    aerie_error error = {0};
    const uint32_t n_most = s->sizes[s->n_sizes - 1], context = t->context ? t->context : n_most;
    own.session.n_ctx = context + n_most, own.session.n_seqs = 1;
    if (own.session.n_batch < n_most) own.session.n_batch = n_most;
    int bad = app_session_open(&session, &b->models, &own, AERIE_SPEC_NONE);
    app_samples samples[MAX_SIZES] = {{0}};
    for (uint32_t round = 0; !bad && round <= own.bench.n_repetitions; round++)
        for (size_t i = 0; !bad && i < s->n_sizes; i++) {
            double seconds[RUNS];
            bad = app_report(APP_WORKING, aerie_session_time_pass(session, s->sizes[i], context, true, RUNS, seconds, &error),
                             &error);
            for (size_t k = 0; !bad && round && k < RUNS; k++) /* the first round warms up */
                if (!app_samples_add(&samples[i], 1e3 * seconds[k])) bad = app_error_memory("the figures");
            if (!bad && app_interrupted()) bad = APP_INTERRUPTED;
        }
    for (size_t i = 0; i < s->n_sizes; i++) {
        t->ms[i] = app_samples_summary(&samples[i]).median;
        app_samples_free(&samples[i]);
    }
    aerie_session_free(session);
    return bad;
}

/* Copies the figures of the cells that stand for all groups. */
static void take_ways(type_row *t, const bench_spec *b)
{
    const size_t n_row = b->prompts.n_groups + 1;
    for (size_t i = n_row - 1; i < b->n_cells; i += n_row) {
        const bench_cell *c = &b->cells[i];
        const aerie_stats *a = &c->stats;
        way_row *w = &t->ways[t->n_ways++];
        snprintf(w->name, sizeof w->name, "%s", c->drafter->name);
        w->plain = app_rate(c->n_tokens, c->plain_seconds);
        w->tokens_per_s = app_rate(c->n_tokens, c->seconds);
        w->ratio = app_rate(w->tokens_per_s, w->plain);
        t->plain += w->plain;
        w->emitted = 1 + app_rate(a->n_accepted, c->n_passes);
        w->acceptance = app_rate(a->n_accepted, a->n_drafted);
        w->same = c->same;
        for (uint32_t d = 0; d < AERIE_MAX_DRAFT; d++)
            w->accepted_at[d] = a->tried_at[d] ? (float)app_rate(a->accepted_at[d], a->tried_at[d]) : -1;
    }
    t->plain = app_rate(t->plain, (double)t->n_ways);
}

static int32_t n_predict(const study *s)
{
    return s->given->n_predict > 0 ? s->given->n_predict : s->given->quick ? 48 : 128;
}

static uint32_t n_repetitions(const study *s)
{
    return s->given->quick ? 1 : s->given->bench.n_repetitions;
}

static int measure_type(study *s, type_row *t)
{
    static bench_spec b; /* large for a stack */
    char path[4096];
    struct stat info;
    const bool as_is = !strcmp(t->weights, "as-is");
    const double start = app_now();
    memset(&b, 0, sizeof b);
    b.options = *s->given;
    app_options *o = &b.options;
    if (snprintf(path, sizeof path, "%s/study-%s-%ld.gguf", folder_of(s), t->weights, (long)getpid()) >= (int)sizeof path)
        return app_error(APP_USAGE, "-o: the folder's name is too long");
    int bad = as_is ? APP_DONE : app_quantize_file(s->given, path, t->weights);
    if (!as_is) o->model = path;
    o->bench.beside = s->given->model; /* looks for a head beside the given model, even if -md names a model */
    if (!bad) t->bytes = stat(o->model, &info) ? 0 : (uint64_t)info.st_size;
    o->bench.spec_types = (app_numbers){.items = {AERIE_SPEC_AUTO, AERIE_SPEC_HIER}, .n = 2};
    o->session.spec.type = AERIE_SPEC_AUTO;
    o->session.kv_type = t->kv;
    o->bench.context = t->context;
    o->bench.in_turns = true; /* the machine's speed changes from one way to the next, so they alternate */
    if (!o->bench.n_seqs.n) o->bench.n_seqs = (app_numbers){.items = {1}, .n = 1};
    o->n_predict = n_predict(s);
    o->bench.n_repetitions = n_repetitions(s);
    if (o->quick && !o->bench.n_per_group && o->bench.prompt_paths.n) o->bench.n_per_group = 1;
    bench_spec_complete(o);
    if (!bad) bad = bench_prompts_read(&b.prompts, o);
    if (!bad) bad = bench_spec_load(&b);
    if (!bad) bad = list_ways(s, &b);
    app_interrupt_arm();
    if (!bad) bad = bench_spec_steepen(&b);
    if (!bad) bad = measure_passes(s, t, &b);
    if (!bad) bad = bench_spec_measure(&b);
    if (!bad) take_ways(t, &b);
    if (!bad) bad = bench_spec_check_same(&b);
    bench_spec_free(&b);
    if (!as_is) unlink(path);
    if (!bad) bad = put_type(s, t);
    if (bad) return bad;
    t->done = true;
    s->n_measured++;
    size_t n_left = 0;
    for (size_t i = 0; i < s->n_types; i++) n_left += !s->types[i].done;
    if (!s->given->quiet)
        app_note(n_left ? "%s: measured in %.0f s; %zu type%s left, about %.0f s"
                        : "%s: measured in %.0f s; it was the last type", t->name, app_now() - start, n_left,
                 app_plural(n_left), (app_now() - s->start) / (double)s->n_measured * (double)n_left);
    return APP_DONE;
}

/* ---- Tables --------------------------------------------------------------------------------------------------- */

/* Returns the next complete type from i on, or NULL. */
static const type_row *complete(const study *s, size_t i)
{
    while (i < s->n_types && !s->types[i].done) i++;
    return i < s->n_types ? &s->types[i] : NULL;
}

static const type_row *next_of(const study *s, const type_row *t)
{
    return complete(s, (size_t)(t - s->types) + 1);
}

static void print_passes(const study *s, FILE *out)
{
    fprintf(out, "## What a pass over n rows takes\n\n| type | MiB | T(1) ms |");
    for (size_t i = 1; i < s->n_sizes; i++) fprintf(out, " T(%u)/T(1) |", (unsigned)s->sizes[i]);
    fprintf(out, "\n|---|---|---|");
    for (size_t i = 1; i < s->n_sizes; i++) fprintf(out, "---|");
    for (const type_row *t = complete(s, 0); t; t = next_of(s, t)) {
        fprintf(out, "\n| %s | %.1f | %.3f |", t->name, (double)t->bytes / (1 << 20), t->ms[0]);
        for (size_t i = 1; i < s->n_sizes; i++) fprintf(out, " %.2f |", app_rate(t->ms[i], t->ms[0]));
    }
    fprintf(out, "\n");
}

/* Prints a table with a row for each way and a column for each type. */
static void print_ways(const study *s, FILE *out, const char *title, void print(FILE *out, const way_row *way))
{
    const type_row *first = complete(s, 0);
    fprintf(out, "\n## %s\n\n| |", title);
    for (const type_row *t = first; t; t = next_of(s, t)) fprintf(out, " %s |", t->name);
    fprintf(out, "\n|---|");
    for (const type_row *t = first; t; t = next_of(s, t)) fprintf(out, "---|");
    for (size_t i = 0; first && i < first->n_ways; i++) {
        fprintf(out, "\n| %s |", first->ways[i].name);
        for (const type_row *t = first; t; t = next_of(s, t)) print(out, &t->ways[i]);
    }
    fprintf(out, "\n");
}

static void print_speed(FILE *out, const way_row *way)
{
    fprintf(out, " %.1f / %.1f (%.2f) |", way->tokens_per_s, way->plain, way->ratio);
}

static void print_acceptance(FILE *out, const way_row *way)
{
    fprintf(out, " %.0f %% (%.2f) |", 100 * way->acceptance, way->emitted);
}

/* Prints when, where and with what the figures were measured. */
static void print_origin(const study *s, FILE *out)
{
    const app_options *g = s->given;
    char cpu[128], date[32] = "";
    struct tm parts;
    const time_t now = time(NULL);
    app_cpu_name(cpu, sizeof cpu);
    if (gmtime_r(&now, &parts)) strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &parts);
    fprintf(out, "| | |\n|---|---|\n| model | `%s` |\n", g->model);
    if (g->draft_model) fprintf(out, "| `-md` | `%s` |\n", g->draft_model);
    for (size_t i = 0; i < g->hier.files.n; i++) fprintf(out, "| `--hier-draft` | `%s` |\n", g->hier.files.items[i]);
    fprintf(out, "| date | %s |\n| CPU | %s, kernels %s, %u threads |\n| aerie | %s, commit %s |\n", date,
            *cpu ? cpu : "unknown", app_cpu_level(), (unsigned)g->n_threads, aerie_version(), app_commit());
    fprintf(out, "| prompts |");
    for (size_t i = 0; i < g->bench.prompt_paths.n; i++) fprintf(out, "%s `%s`", i ? "," : "", g->bench.prompt_paths.items[i]);
    if (g->bench.prompt_paths.n && g->bench.n_per_group) fprintf(out, ", %u of each group", (unsigned)g->bench.n_per_group);
    if (g->bench.prompt_paths.n && g->bench.held_out) fprintf(out, ", `--held-out %s`", g->bench.held_out);
    if (!g->bench.prompt_paths.n && g->prompts_file) fprintf(out, " `%s`", g->prompts_file);
    else if (!g->bench.prompt_paths.n && g->prompts.n) fprintf(out, " %zu of `-p`", g->prompts.n);
    else if (!g->bench.prompt_paths.n) fprintf(out, " the program's own");
    fprintf(out, " |\n| options | `-n %d -r %u --temp %g -s %" PRIu64 "%s%s%s` |\n\n", (int)n_predict(s),
            (unsigned)n_repetitions(s), (double)g->sampling.temperature, g->sampling.seed, g->quick ? " --quick" : "",
            g->bench.steep ? " --steep " : "", g->bench.steep ? g->bench.steep : "");
}

static const char quick_limits[] =
    "a single run of a few short answers: it cannot distinguish methods or types that differ by less than a tenth, acceptance "
    "beyond the first depths, or kinds of prompts; leave out --quick for those";

/* Prints the tables of the complete types. */
static int print_tables(const study *s)
{
    FILE *out;
    const int bad = open_file(s, "study.md", &out);
    if (bad) return bad;
    size_t n_left = 0;
    for (size_t i = 0; i < s->n_types; i++) n_left += !s->types[i].done;
    fprintf(out, "# Speculation and quantization\n\n");
    print_origin(s, out);
    if (n_left) fprintf(out, "%zu of %zu types are still to be measured.\n\n", n_left, s->n_types);
    if (s->given->quick) fprintf(out, "`--quick` is %s.\n\n", quick_limits);
    if (s->given->bench.steep) fprintf(out, "Passes of the target waited for the times of `--steep %s`.\n\n",
                                       s->given->bench.steep);
    print_passes(s, out);
    fprintf(out, "\nPlain decoding, tokens/s:");
    for (const type_row *t = complete(s, 0), *first = t; t; t = next_of(s, t))
        fprintf(out, "%s %s %.1f", t == first ? "" : ",", t->name, t->plain);
    fprintf(out, ".\n");
    print_ways(s, out, "Tokens per second / those of plain decoding in turns with it (ratio)", print_speed);
    print_ways(s, out, "Drafted tokens that were accepted (tokens per pass)", print_acceptance);
    const bool failed = ferror(out) != 0;
    if (fclose(out) || failed)
        return app_error(APP_FAILED, "%s/study.md could not be written: %s", folder_of(s), strerror(errno));
    return APP_DONE;
}

/* Finds what would stop the study, before a type is made and measured: files of a wrong kind, prompts that cannot be read. */
static int check_given(const study *s)
{
    app_options own = *s->given;
    app_models vocabulary;
    bench_prompts prompts = {0};
    size_t n_left = 0;
    for (size_t i = 0; i < s->n_types; i++) n_left += !s->types[i].done;
    if (!n_left) return APP_DONE;
    int bad = app_models_check(&own, APP_NEED_DRAFTS);
    if (bad) return bad;
    bad = app_vocabulary_load(&vocabulary, &own); /* for the text of prompts */
    app_models_free(&vocabulary);
    bench_spec_complete(&own);
    if (!bad) bad = bench_prompts_read(&prompts, &own);
    bench_prompts_free(&prompts);
    return bad;
}

int app_bench_study(const app_options *given)
{
    static study s; /* large for a stack */
    s = (study){.given = given};
    if (!given->model) return app_error_no_model(given);
    s.sizes = given->quick ? few_sizes : all_sizes;
    s.n_sizes = given->quick ? sizeof few_sizes / sizeof *few_sizes : sizeof all_sizes / sizeof *all_sizes;
    int bad = list_types(&s);
    if (!bad && given->study.resume) bad = resume(&s);
    if (!bad) bad = check_given(&s);
    if (!bad && mkdir(folder_of(&s), 0777) && errno != EEXIST)
        bad = app_error(APP_FAILED, "the folder '%s' could not be made: %s", folder_of(&s), strerror(errno));
    if (!bad) bad = open_file(&s, "study.csv", &s.csv);
    if (!bad) fprintf(s.csv, "type,bytes,way,figure,n,value\n");
    for (size_t i = 0; !bad && i < s.n_types; i++)
        if (s.types[i].done) bad = put_type(&s, &s.types[i]);
    s.start = app_now();
    for (size_t i = 0; !bad && i < s.n_types; i++) {
        if (s.types[i].done) continue;
        bad = measure_type(&s, &s.types[i]);
        if (!bad) bad = print_tables(&s);
    }
    if (s.csv) {
        const bool failed = ferror(s.csv) != 0;
        if ((fclose(s.csv) || failed) && !bad)
            bad = app_error(APP_FAILED, "%s/study.csv could not be written: %s", folder_of(&s), strerror(errno));
    }
    if (!bad && !s.n_measured) bad = print_tables(&s);
    if (!bad && given->quick && !given->quiet) app_note("--quick is %s", quick_limits);
    if (!bad && !given->quiet) app_note("figures: %s/study.csv, tables: %s/study.md", folder_of(&s), folder_of(&s));
    return bad;
}
