/* speculation_print.c - prints the figures of aerie bench spec as a table, as CSV and as JSON. */
#include <string.h>

#include "bench/speculation.h"
#include "cli/commands.h"

/* ---- Figures that follow from a cell's counts --------------------------------------------------------- */

static double tokens_per_s(const bench_cell *c)
{
    return app_rate(c->n_tokens, c->seconds);
}

static double plain_tokens_per_s(const bench_cell *c)
{
    return app_rate(c->n_tokens, c->plain_seconds);
}

static uint32_t n_rounds(const bench_cell *c)
{
    return c->stats.tried_at[0];
}

/* Returns the rows per pass of one sequence, which is the n of T(n): the decoded token and the verified ones. */
static double rows_per_pass(const bench_cell *c)
{
    return c->n_passes ? 1 + app_rate(c->stats.n_drafted, c->n_passes) : 0;
}

/* Returns the time of a pass relative to a plain one. */
static double pass_cost(const bench_cell *c)
{
    return app_rate(app_rate(c->stats.target_seconds, c->stats.n_passes),
                    app_rate(c->plain_stats.target_seconds, c->plain_stats.n_passes));
}

static double draft_share(const bench_cell *c)
{
    return app_rate(c->stats.draft_seconds, c->all_seconds);
}

/* Returns the number of depths at which any token was tried. */
static size_t n_depths(const bench_cell *c)
{
    size_t n = 0;
    for (size_t i = 0; i < AERIE_MAX_DRAFT; i++) {
        if (c->stats.tried_at[i]) n = i + 1;
    }
    return n;
}

/* Returns the share of all rounds that accepted a token at this depth. */
static double absolute_at(const bench_cell *c, size_t i)
{
    return app_rate(c->stats.accepted_at[i], n_rounds(c));
}

/* Returns the share of the rounds that tried a token at this depth and accepted it. */
static double conditional_at(const bench_cell *c, size_t i)
{
    return app_rate(c->stats.accepted_at[i], c->stats.tried_at[i]);
}

/* Returns the names of the drafter's files. */
static const char *file_of(const bench_cell *c)
{
    return c->drafter->file;
}

/* ---- JSON ------------------------------------------------------------------------------------------------ */

static json_t *depths_json(const bench_cell *c, double at(const bench_cell *c, size_t i))
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n_depths(c); i++) app_json_append(list, json_real(at(c, i)));
    return list;
}

static json_t *cell_json(const bench_cell *c)
{
    const aerie_stats *s = &c->stats;
    json_t *run = json_pack(
        "{s:s, s:o, s:f, s:f, s:f, s:f, s:o, s:b}", "drafter", c->drafter->name, "group",
        app_json_text(c->group, strlen(c->group)), "temperature", (double)c->temperature, "tokens_per_s",
        tokens_per_s(c), "plain_tokens_per_s", plain_tokens_per_s(c), "accepted_per_pass",
        app_rate(s->n_accepted, c->n_passes), "acceptance_by_depth", depths_json(c, absolute_at), "same_bytes",
        (int)c->same);
    json_t *more = json_pack(
        "{s:o, s:f, s:I, s:I, s:s, s:I, s:f, s:o, s:f, s:f, s:f}", "file",
        app_json_text(file_of(c), strlen(file_of(c))), "ratio", app_rate(tokens_per_s(c), plain_tokens_per_s(c)),
        "n_seqs", (json_int_t)c->n_seqs, "n_max", (json_int_t)c->drafter->n_max, "tree", aerie_tree_name(c->drafter->tree),
        "prompts", (json_int_t)c->n_prompts, "accepted_per_round", app_rate(s->n_accepted, n_rounds(c)), "conditional_by_depth",
        depths_json(c, conditional_at), "rows_per_pass", rows_per_pass(c), "pass_cost", pass_cost(c), "draft_share",
        draft_share(c));
    json_t *counts = json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "generated", (json_int_t)s->n_generated, "passes",
                               (json_int_t)c->n_passes, "rounds", (json_int_t)n_rounds(c), "drafted",
                               (json_int_t)s->n_drafted, "accepted", (json_int_t)s->n_accepted, "by_depth",
                               app_json_depths(s));
    const bool bad = json_object_update(run, more) || json_object_update(run, counts);
    json_decref(more);
    json_decref(counts);
    if (!bad) return run;
    json_decref(run);
    return NULL;
}

static int print_json(const bench_spec *b)
{
    json_t *runs = json_array();
    for (size_t i = 0; i < b->n_cells; i++) {
        if (json_array_append_new(runs, cell_json(&b->cells[i]))) {
            json_decref(runs);
            return app_error_memory("the JSON output");
        }
    }
    return app_print_json(json_pack("{s:o, s:I, s:o}", "runs", runs, "repetitions", (json_int_t)b->options.bench.n_repetitions,
                                    "settings", json_incref(b->settings)));
}

/* ---- CSV --------------------------------------------------------------------------------------------------- */

static void print_list(const bench_cell *c, double at(const bench_cell *c, size_t i))
{
    for (size_t i = 0; i < n_depths(c); i++) app_print("%s%.4f", i ? " " : "", at(c, i));
}

/* Prints a name, in quotation marks if it would break a line of CSV. */
static void print_name(const char *name)
{
    if (!strpbrk(name, ",\"\r\n")) {
        app_print("%s", name);
        return;
    }
    app_print("\"");
    for (const char *p = name; *p; p++) app_print(*p == '"' ? "\"\"" : "%c", *p);
    app_print("\"");
}

static void print_csv(const bench_spec *b)
{
    char type[16];
    app_main_type(b->options.model, type);
    app_print("type,level,drafter,tree,n_max,n_seqs,temperature,group,prompts,plain_tokens_per_s,tokens_per_s,ratio,generated,"
              "passes,rounds,drafted,accepted,accepted_per_pass,accepted_per_round,rows_per_pass,pass_cost,draft_share,"
              "same_bytes,acceptance_by_depth,conditional_by_depth,file\n");
    for (size_t i = 0; i < b->n_cells; i++) {
        const bench_cell *c = &b->cells[i];
        const aerie_stats *s = &c->stats;
        app_print("%s,%s,%s,%s,%u,%u,%g,", type, b->models.info.cpu_level, c->drafter->name, aerie_tree_name(c->drafter->tree),
                  (unsigned)c->drafter->n_max, (unsigned)c->n_seqs, (double)c->temperature);
        print_name(c->group);
        app_print(",%zu,%.3f,%.3f,%.4f,%u,%u,%u,%u,%u,%.4f,%.4f,%.3f,%.4f,%.4f,%s,", c->n_prompts, plain_tokens_per_s(c),
                  tokens_per_s(c), app_rate(tokens_per_s(c), plain_tokens_per_s(c)), (unsigned)s->n_generated,
                  (unsigned)c->n_passes, (unsigned)n_rounds(c), (unsigned)s->n_drafted, (unsigned)s->n_accepted,
                  app_rate(s->n_accepted, c->n_passes), app_rate(s->n_accepted, n_rounds(c)), rows_per_pass(c), pass_cost(c),
                  draft_share(c), c->same ? "yes" : "NO");
        print_list(c, absolute_at);
        app_print(",");
        print_list(c, conditional_at);
        app_print(",");
        print_name(file_of(c));
        app_print("\n");
    }
}

enum { SHORT = 64 }; /* tokens of an answer in which the controller learns little */

/* ---- Table --------------------------------------------------------------------------------------------------- */

/* Returns the columns of the longest name of a drafter. */
static int name_width(const bench_spec *b)
{
    size_t n = 12;
    for (size_t i = 0; i < b->n_cells; i++) {
        const size_t n_name = strlen(b->cells[i].drafter->name);
        if (n_name > n) n = n_name;
    }
    return (int)n;
}

static void print_row(const bench_cell *c, int width)
{
    const aerie_stats *s = &c->stats;
    char group[13];
    snprintf(group, sizeof group, "%s", c->group);
    app_print("%-*s ", width, c->drafter->name);
    app_write_escaped(group, strlen(group));
    app_print("%*s %10.2f %10.2f %7.2f %9.2f %10.2f %7.2f %6.2f %8.1f%% %5s", (int)(12 - strlen(group)), "",
              plain_tokens_per_s(c), tokens_per_s(c), app_rate(tokens_per_s(c), plain_tokens_per_s(c)),
              app_rate(s->n_accepted, c->n_passes), app_rate(s->n_accepted, n_rounds(c)), rows_per_pass(c), pass_cost(c),
              100 * draft_share(c), c->same ? "yes" : "NO");
    app_print(*file_of(c) ? "  " : "\n");
    if (!*file_of(c)) return;
    app_write_escaped(file_of(c), strlen(file_of(c)));
    app_print("\n");
}

static void print_depths(const bench_cell *c, int width)
{
    app_print("%-*s by depth:", width, c->drafter->name);
    for (size_t i = 0; i < n_depths(c); i++) {
        app_print(" %zu: %.0f%% (%.0f%%)", i + 1, 100 * absolute_at(c, i), 100 * conditional_at(c, i));
    }
    if (*file_of(c)) {
        app_print("  ");
        app_write_escaped(file_of(c), strlen(file_of(c)));
    }
    app_print("\n");
}

static bool same_block(const bench_cell *a, const bench_cell *b)
{
    return a->n_seqs == b->n_seqs && a->temperature == b->temperature && a->drafter->tree == b->drafter->tree &&
           a->drafter->n_max == b->drafter->n_max;
}

static void print_heading(const bench_spec *b, const bench_cell *c, int width)
{
    const unsigned n_runs = b->options.bench.n_repetitions;
    app_print("%s%u at once, temperature %g, tree %s, up to %u ahead; %zu prompt%s, %u run%s each\n",
              c == b->cells ? "" : "\n", (unsigned)c->n_seqs, (double)c->temperature, aerie_tree_name(c->drafter->tree),
              (unsigned)c->drafter->n_max, b->prompts.prompts.n, app_plural(b->prompts.prompts.n), n_runs,
              app_plural(n_runs));
    app_print("%-*s %-12s %10s %10s %7s %9s %10s %7s %6s %9s %5s  %s\n", width, "drafter", "group", "plain", "tokens/s",
              "ratio", "per pass", "per round", "rows", "T/T1", "drafting", "same", "file");
}

/* Prints the table. Rows that differ only in the drafter share a heading, and the acceptance by depth follows them. */
static void print_table(const bench_spec *b)
{
    const size_t n_row = b->prompts.n_groups + 1;
    const int width = name_width(b);
    bool slower = false;
    for (size_t first = 0, end = 0; first < b->n_cells; first = end) {
        print_heading(b, &b->cells[first], width);
        for (end = first; end < b->n_cells && same_block(&b->cells[first], &b->cells[end]); end++) {
            print_row(&b->cells[end], width);
            slower |= tokens_per_s(&b->cells[end]) < plain_tokens_per_s(&b->cells[end]);
        }
        for (size_t i = first; i < end; i += n_row) print_depths(&b->cells[i + n_row - 1], width);
    }
    if (slower && b->options.n_predict < SHORT && !b->options.test.fixed)
        app_print("\nWhere the ratio is below 1, answers of %d token%s may be too short for the controller, which first "
                  "measures what drafts and passes cost; -n 128 shows more.\n", (int)b->options.n_predict,
                  app_plural(b->options.n_predict));
}

int bench_spec_print(const bench_spec *b)
{
    if (b->options.json) return print_json(b);
    if (b->options.csv) print_csv(b);
    else print_table(b);
    return APP_DONE;
}
