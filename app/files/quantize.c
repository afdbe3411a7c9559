/* quantize.c - aerie quantize: copies a model file with another tensor type.
 * Uses the library's own reader and rewriter (src/formats, src/quant), which aerie.h does not expose. Standard output gets the
 * report; warnings and progress go to standard error. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/quantize/rewrite.h"
#include "cli/commands.h"
#include "setup/load.h"

/* ---- Types ----------------------------------------------------------------------------------------------- */

void app_quantize_types(void)
{
    app_print("\nTYPE is one of\n");
    for (size_t i = 0; i < ae_mix_count(); i++) app_print("  %-10s %s\n", ae_mix_at(i)->name, ae_mix_at(i)->about);
    app_print("\nTypes of single tensors\n ");
    size_t column = 1;
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (!info || !ae_type_encoder(info->type)) continue;
        const size_t n = strlen(info->name) + 1;
        if (column + n > 100) app_print("\n ");
        column = column + n > 100 ? 1 + n : column + n;
        app_print(" %s", info->name);
    }
    app_print("\n");
}

static int unknown_mix(const char *name)
{
    char known[1024] = "";
    const char *best = NULL;
    for (size_t i = 0, n = 0; i < ae_mix_count(); i++) {
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", ae_mix_at(i)->name);
        best = app_nearest(name, best, ae_mix_at(i)->name);
    }
    const ae_type_info *info = ae_type_by_name(name);
    if (info && !ae_type_encoder(info->type))
        return app_error(APP_USAGE, "%s can be read but not written here; TYPE is one of %s", name, known);
    if (best)
        return app_error(APP_USAGE, "there is no type '%s'; did you mean '%s'? TYPE is one of %s", name, best, known);
    return app_error(APP_USAGE, "there is no type '%s'; TYPE is one of %s", name, known);
}

/* Parses the name of a type that can be written; `option` is used in messages. */
static int parse_type(const char *option, const char *name, uint32_t *type)
{
    char known[1024] = "";
    size_t n = 0;
    const ae_type_info *info = ae_type_by_name(name);
    if (info && ae_type_encoder(info->type)) {
        *type = info->type;
        return APP_DONE;
    }
    for (uint32_t i = 0; i < AE_TYPE_COUNT; i++) {
        const ae_type_info *other = ae_type_get(i);
        if (other && ae_type_encoder(other->type))
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", other->name);
    }
    return app_error(APP_USAGE, "%s: %s '%s'; known: %s", option,
                     info ? "no tensors are written as" : "there is no tensor type", name, known);
}

/* ---- What was asked for ------------------------------------------------------------------------------------ */

typedef struct request {
    const char *in, *out; /* `out` may be NULL with --dry-run */
    ae_rewrite_settings settings;
    ae_imatrix *imatrix;    /* owned, or NULL */
    ae_rewrite_rule *rules; /* [n_rules] rules whose patterns are owned */
    size_t n_rules, rules_capacity;
    uint32_t n_threads;
    app_numbers pruned; /* ascending, each once */
} request;

static void request_free(request *r)
{
    for (size_t i = 0; i < r->n_rules; i++) free((char *)r->rules[i].pattern);
    free(r->rules);
    ae_imatrix_close(r->imatrix);
}

/* Parses PATTERN=TYPE; the pattern may contain '='. */
static int parse_rule(request *r, const char *option, const char *text)
{
    const char *equals = strrchr(text, '=');
    if (!equals || equals == text || !equals[1])
        return app_error(APP_USAGE, "%s takes PATTERN=TYPE, like ffn_down=q6_K; found '%s'", option, text);
    ae_rewrite_rule *grown = app_grow(r->rules, r->n_rules, &r->rules_capacity, sizeof *grown);
    if (!grown) return app_error_memory("the options");
    r->rules = grown;
    ae_rewrite_rule *rule = &grown[r->n_rules];
    const int bad = parse_type(option, equals + 1, &rule->type);
    if (bad) return bad;
    char *pattern = strndup(text, (size_t)(equals - text));
    if (!pattern) return app_error_memory("the options");
    rule->pattern = pattern;
    r->n_rules++;
    return APP_DONE;
}

/* Reads rules from a file, separated by white space. */
static int read_rules(request *r, const char *path)
{
    app_text text = {0};
    int bad = app_read_file(&text, path);
    char *rest = NULL;
    char *word = bad || !text.n ? NULL : strtok_r(text.data, " \t\r\n", &rest);
    for (; word && !bad; word = strtok_r(NULL, " \t\r\n", &rest)) bad = parse_rule(r, path, word);
    app_text_free(&text);
    return bad;
}

/* Opens the importance matrix, if one is given, for the weights that the options name. */
static int open_imatrix(request *r, const app_options *o)
{
    const app_texts *in = &o->quantize.included, *out = &o->quantize.excluded, *texts = in->n ? in : out;
    const char *option = in->n ? "--include-weights" : "--exclude-weights";
    aerie_error error = {0};
    if (in->n && out->n) return app_error(APP_USAGE, "--include-weights and --exclude-weights cannot be used together");
    if (texts->n && !o->quantize.imatrix)
        return app_error(APP_USAGE, "%s chooses among the weights of an importance matrix: give one with --imatrix", option);
    if (!o->quantize.imatrix) return APP_DONE;
    const int bad = app_report(APP_LOADING, ae_imatrix_open(&r->imatrix, o->quantize.imatrix, &error), &error);
    if (bad) return bad;
    r->settings.imatrix = r->imatrix;
    for (size_t i = 0; i < texts->n; i++)
        if (!ae_imatrix_n_holding(r->imatrix, texts->items[i]))
            app_note("warning: %s: no weight of %s has a name that contains '%s'", option, ae_imatrix_path(r->imatrix),
                     texts->items[i]);
    ae_imatrix_restrict(r->imatrix, texts->items, texts->n, texts == out);
    return APP_DONE;
}

static int compare_numbers(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Sorts the layers to leave out, and drops those that are named twice. */
static void sort_layers(app_numbers *list)
{
    size_t n = 0;
    if (list->n) qsort(list->items, list->n, sizeof *list->items, compare_numbers);
    for (size_t i = 0; i < list->n; i++)
        if (!n || list->items[n - 1] != list->items[i]) list->items[n++] = list->items[i];
    list->n = n;
}

static int parse_threads(const char *text, uint32_t *n_threads)
{
    char *end;
    const unsigned long n = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || n > 1024)
        return app_error(APP_USAGE, "the argument after TYPE is a number of threads from 0 to 1024; found '%s'", text);
    if (n) *n_threads = (uint32_t)n;
    return APP_DONE;
}

/* Reads IN OUT TYPE [THREADS] in llama.cpp's order; a dry run needs no OUT. */
static int parse_arguments(request *r, const app_options *o)
{
    const app_texts *words = &o->arguments;
    const bool no_out = o->quantize.dry_run && words->n == 2 && ae_mix_by_name(words->items[1]);
    const size_t at = no_out ? 1 : 2;
    if (words->n <= at)
        return app_error(
            APP_USAGE,
            "'quantize' needs a file to read, one to write and a type: aerie quantize IN.gguf OUT.gguf Q4_K_M; "
            "found %zu of them",
            words->n);
    if (words->n > at + 2)
        return app_error(APP_USAGE, "'quantize' takes IN OUT TYPE [THREADS]; found '%s' too", words->items[at + 2]);
    const ae_mix *mix = ae_mix_by_name(words->items[at]);
    if (!mix) return unknown_mix(words->items[at]);
    r->in = words->items[0];
    r->out = no_out ? NULL : words->items[1];
    r->n_threads = o->n_threads;
    r->settings = ae_rewrite_settings_default(mix);
    return words->n > at + 1 ? parse_threads(words->items[at + 1], &r->n_threads) : APP_DONE;
}

/* ---- The request -------------------------------------------------------------------------------------------- */

static int parse_request(request *r, const app_options *o)
{
    int bad = parse_arguments(r, o);
    if (!bad && o->quantize.output_type) bad = parse_type("--output-tensor-type", o->quantize.output_type,
                                                          &r->settings.output_type);
    if (!bad && o->quantize.embedding_type)
        bad = parse_type("--token-embedding-type", o->quantize.embedding_type, &r->settings.embedding_type);
    const app_texts *rules = &o->quantize.tensor_types, *files = &o->quantize.tensor_type_files;
    if (!bad) bad = open_imatrix(r, o);
    for (size_t i = 0; i < rules->n && !bad; i++) bad = parse_rule(r, "--tensor-type", rules->items[i]);
    for (size_t i = 0; i < files->n && !bad; i++) bad = read_rules(r, files->items[i]);
    r->settings.rules = r->rules;
    r->settings.n_rules = r->n_rules;
    r->pruned = o->quantize.pruned;
    sort_layers(&r->pruned);
    r->settings.pruned = r->pruned.items;
    r->settings.n_pruned = r->pruned.n;
    r->settings.keep_split = o->quantize.keep_split;
    r->settings.pure = o->quantize.pure;
    r->settings.leave_output = o->quantize.leave_output;
    r->settings.allow_requantize = o->quantize.allow_requantize;
    return bad;
}

/* ---- The report ---------------------------------------------------------------------------------------- */

typedef struct totals {
    uint64_t n[AE_TYPE_COUNT], elements[AE_TYPE_COUNT], bytes[AE_TYPE_COUNT]; /* by type as written */
    uint64_t n_params, bytes_before, bytes_after;
    size_t n_changed, n_fallback;
} totals;

static uint64_t elements_of(const ae_rewrite_tensor *t)
{
    uint64_t n = 1;
    for (int d = 0; d < 4; d++) n *= (uint64_t)t->ne[d];
    return n;
}

static totals count(const ae_rewrite *rewrite)
{
    totals sum = {.n_params = 0};
    for (size_t i = 0; i < ae_rewrite_n_tensors(rewrite); i++) {
        const ae_rewrite_tensor *t = ae_rewrite_tensor_at(rewrite, i);
        sum.n[t->type]++;
        sum.elements[t->type] += elements_of(t);
        sum.bytes[t->type] += t->bytes;
        sum.n_params += elements_of(t);
        sum.bytes_before += t->from->bytes;
        sum.bytes_after += t->bytes;
        sum.n_changed += !ae_rewrite_keeps(t);
        sum.n_fallback += t->type != t->wanted;
    }
    return sum;
}

static double bits(uint64_t bytes, uint64_t elements)
{
    return elements ? 8.0 * (double)bytes / (double)elements : 0;
}

static void say_fallbacks(const ae_rewrite *rewrite)
{
    for (uint32_t a = 0; a < AE_TYPE_COUNT; a++) {
        uint64_t counts[AE_TYPE_COUNT] = {0};
        for (size_t i = 0; i < ae_rewrite_n_tensors(rewrite); i++) {
            const ae_rewrite_tensor *t = ae_rewrite_tensor_at(rewrite, i);
            if (t->wanted == a && t->type != a) counts[t->type]++;
        }
        for (uint32_t b = 0; b < AE_TYPE_COUNT; b++) {
            if (!counts[b]) continue;
            app_note("%llu of %zu tensors became %s: %s rows are not whole blocks of %u elements, which %s needs",
                     (unsigned long long)counts[b], ae_rewrite_n_tensors(rewrite), ae_type_get(b)->name,
                     counts[b] == 1 ? "its" : "their",
                     (unsigned)ae_type_block_elements(a), ae_type_get(a)->name);
        }
    }
}

/* Reports weights that need an importance matrix, and those that the given one lacks. */
static void say_importance(const ae_rewrite *rewrite)
{
    bool made[AE_TYPE_COUNT] = {false};
    char names[128] = "";
    uint64_t n_made = 0;
    for (size_t i = 0; i < ae_rewrite_n_tensors(rewrite); i++) {
        const ae_rewrite_tensor *t = ae_rewrite_tensor_at(rewrite, i);
        if (ae_rewrite_keeps(t) || t->weighed || !ae_mix_needs_importance(t->type)) continue;
        made[t->type] = true;
        n_made++;
    }
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const size_t n = strlen(names);
        if (made[type]) snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", ae_type_get(type)->name);
    }
    if (n_made)
        app_note("%llu of %zu tensors become %s without an importance matrix: expect clearly worse answers; IQ3_S, Q3_K_S and "
                 "larger types lose far less, and so does --imatrix FILE",
                 (unsigned long long)n_made, ae_rewrite_n_tensors(rewrite), names);
}

static void say_unweighed(const request *r, const ae_rewrite *rewrite)
{
    size_t n_weighed = 0, n_new = 0;
    for (size_t i = 0; i < ae_rewrite_n_tensors(rewrite); i++) {
        const ae_rewrite_tensor *t = ae_rewrite_tensor_at(rewrite, i);
        n_weighed += t->weighed;
        n_new += t->weight && !ae_rewrite_keeps(t);
    }
    if (r->imatrix && n_weighed < n_new)
        app_note("%s knows %zu of the %zu weights that are written anew; the others are quantized without importance",
                 ae_imatrix_path(r->imatrix), n_weighed, n_new);
}

static void print_tensors(const ae_rewrite *rewrite)
{
    for (size_t i = 0; i < ae_rewrite_n_tensors(rewrite); i++) {
        const ae_rewrite_tensor *t = ae_rewrite_tensor_at(rewrite, i);
        char before[32], after[32];
        app_print("  %-8s %12s -> %-8s %12s  ", ae_type_get(t->from->type)->name, app_bytes(before, t->from->bytes),
                  ae_type_get(t->type)->name, app_bytes(after, t->bytes));
        app_write_escaped(t->name.data, t->name.n);
        if (t->type != t->wanted) app_print("  (instead of %s)", ae_type_get(t->wanted)->name);
        app_print("\n");
    }
}

static void print_report(const request *r, const ae_rewrite *rewrite, const totals *sum, double seconds)
{
    char before[32], after[32];
    app_print("%-10s", "from");
    app_write_escaped(r->in, strlen(r->in));
    app_print("\n%-10s%s, %.3f bits per weight\n%-10s", "", app_bytes(before, sum->bytes_before),
              bits(sum->bytes_before, sum->n_params), seconds < 0 ? "would be" : "to");
    if (r->out) app_write_escaped(r->out, strlen(r->out));
    app_print("%s%s%s, %.3f bits per weight; %s, %zu of %zu tensors written anew", r->out ? "\n" : "",
              r->out ? "          " : "", app_bytes(after, sum->bytes_after), bits(sum->bytes_after, sum->n_params),
              r->settings.mix->name, sum->n_changed, ae_rewrite_n_tensors(rewrite));
    if (seconds >= 0) app_print(", in %.1f s", seconds);
    app_print("\n\n  %-8s %8s %16s %12s %8s\n", "type", "tensors", "weights", "size", "bits");
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        if (sum->n[type] == 0) continue;
        app_print("  %-8s %8llu %16llu %12s %8.3f\n", ae_type_get(type)->name, (unsigned long long)sum->n[type],
                  (unsigned long long)sum->elements[type], app_bytes(after, sum->bytes[type]),
                  bits(sum->bytes[type], sum->elements[type]));
    }
}

static json_t *tensors_json(const ae_rewrite *rewrite)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < ae_rewrite_n_tensors(rewrite); i++) {
        const ae_rewrite_tensor *t = ae_rewrite_tensor_at(rewrite, i);
        json_t *entry = json_pack(
            "{s:o, s:s, s:s, s:s, s:I, s:I}", "name", app_json_text(t->name.data, t->name.n), "from",
            ae_type_get(t->from->type)->name, "to", ae_type_get(t->type)->name, "wanted", ae_type_get(t->wanted)->name,
            "bytes_before", (json_int_t)t->from->bytes, "bytes_after", (json_int_t)t->bytes);
        if (json_array_append_new(list, entry)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static int print_json(const request *r, const ae_rewrite *rewrite, const totals *sum, double seconds)
{
    return app_print_json(json_pack(
        "{s:o, s:o, s:o, s:s, s:b, s:I, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:o, s:o}", "input",
        app_json_text(r->in, strlen(r->in)), "output", r->out ? app_json_text(r->out, strlen(r->out)) : json_null(),
        "imatrix", r->imatrix ? json_string(ae_imatrix_path(r->imatrix)) : json_null(), "type", r->settings.mix->name,
        "dry_run", seconds < 0, "n_params", (json_int_t)sum->n_params, "bytes_before", (json_int_t)sum->bytes_before,
        "bytes_after", (json_int_t)sum->bytes_after, "bits_per_weight_before",
        bits(sum->bytes_before, sum->n_params), "bits_per_weight", bits(sum->bytes_after, sum->n_params), "n_tensors",
        (json_int_t)ae_rewrite_n_tensors(rewrite), "n_changed", (json_int_t)sum->n_changed, "n_fallback",
        (json_int_t)sum->n_fallback, "n_threads", (json_int_t)r->n_threads, "seconds",
        seconds < 0 ? json_null() : json_real(seconds), "tensors", tensors_json(rewrite)));
}

/* ---- Doing it -------------------------------------------------------------------------------------------------- */

typedef struct progress {
    bool shown; /* on a terminal */
    int percent;
} progress;

static bool show(void *user, uint64_t done, uint64_t total)
{
    progress *p = user;
    if (p->shown) app_progress_show("quantizing", done, total, &p->percent);
    return !app_interrupted();
}

/* While writing, a full disk is not an error of the input file. */
static int report_run(aerie_status status, const aerie_error *error)
{
    if (status == AERIE_ERROR_IO) return app_error(APP_FAILED, "%s", error->text);
    return app_report(APP_LOADING, status, error);
}

static int write_file(const request *r, ae_rewrite *rewrite, const app_options *options)
{
    aerie_error error = {0};
    progress p = {.shown = !options->quiet && isatty(STDERR_FILENO), .percent = -1};
    app_interrupt_arm(); /* armed before there is a file that could be left behind */
    int bad = app_report(APP_LOADING, ae_rewrite_begin(rewrite, r->out, &error), &error);
    if (bad) return bad;
    const aerie_status status = ae_rewrite_run(rewrite, r->n_threads, show, &p, &error);
    app_interrupt_disarm();
    app_progress_clear(&p.percent);
    if (status == AERIE_OK && r->settings.n_pruned && !ae_rewrite_was_checked(rewrite))
        app_note("%s cannot be run here, so nothing checked that its other layers still are what they were", r->in);
    return report_run(status, &error);
}

/* Returns the length of the path without .gguf. */
static size_t stem(const char *path)
{
    const size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".gguf") == 0 ? n - 5 : n;
}

static int quantize(const request *r, ae_rewrite *rewrite, const app_options *options)
{
    const totals sum = count(rewrite);
    const double start = app_now();
    double seconds = -1;
    for (size_t i = 0; i < r->n_rules; i++)
        if (!ae_rewrite_rule_uses(rewrite, i))
            app_note("warning: --tensor-type: no weight has a name that matches '%s'", r->rules[i].pattern);
    if (!options->quiet && sum.n_fallback) say_fallbacks(rewrite);
    if (!options->quiet) say_importance(rewrite);
    if (!options->quiet) say_unweighed(r, rewrite);
    const uint32_t n_files = ae_rewrite_n_files(rewrite);
    if (n_files > 1 && r->out && !options->quiet)
        app_note("%u files: %.*s-00001-of-%05u.gguf ...", n_files, (int)stem(r->out), r->out, n_files);
    if (!options->quantize.dry_run) {
        const int bad = write_file(r, rewrite, options);
        if (bad) return bad;
        seconds = app_now() - start;
    }
    if (options->json) return print_json(r, rewrite, &sum, seconds);
    if (options->quantize.dry_run || options->verbose) print_tensors(rewrite);
    print_report(r, rewrite, &sum, seconds);
    return APP_DONE;
}

int app_quantize(const app_options *options)
{
    const ae_gguf_options how = {.index_only = true, .overrides = options->overrides.items,
                                 .n_overrides = options->overrides.n};
    request r = {0};
    aerie_error error = {0};
    ae_gguf *gguf = NULL;
    ae_rewrite *rewrite = NULL;
    int bad = parse_request(&r, options);
    if (!bad) bad = app_report(APP_LOADING, ae_gguf_open(&gguf, r.in, &how, &error), &error);
    if (!bad && ae_gguf_n_tensors(gguf) == 0)
        bad = app_error(APP_BAD_FILE, "%s contains no tensors, only a vocabulary", r.in);
    if (!bad) bad = app_report(APP_LOADING, ae_rewrite_plan(&rewrite, gguf, &r.settings, &error), &error);
    if (!bad) bad = quantize(&r, rewrite, options);
    ae_rewrite_free(rewrite);
    ae_gguf_close(gguf);
    request_free(&r);
    return bad;
}

bool app_quantize_knows(const char *type)
{
    return ae_mix_by_name(type) != NULL;
}

int app_quantize_file(const app_options *options, const char *out, const char *type)
{
    request r = {.in = options->model, .out = out, .settings = ae_rewrite_settings_default(ae_mix_by_name(type)),
                 .n_threads = options->n_threads};
    const ae_gguf_options how = {.index_only = true};
    aerie_error error = {0};
    ae_gguf *gguf = NULL;
    ae_rewrite *rewrite = NULL;
    r.settings.allow_requantize = true;
    int bad = app_report(APP_LOADING, ae_gguf_open(&gguf, r.in, &how, &error), &error);
    if (!bad) bad = app_report(APP_LOADING, ae_rewrite_plan(&rewrite, gguf, &r.settings, &error), &error);
    if (!bad) bad = write_file(&r, rewrite, options);
    ae_rewrite_free(rewrite);
    ae_gguf_close(gguf);
    return bad;
}
