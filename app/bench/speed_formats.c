/* speed_formats.c - prints the figures of aerie bench speed in llama-bench's formats: csv, json, jsonl, md, sql.
 * Owns the columns, with llama-bench's names and in its order. Each test becomes one JSON object, from which all formats except
 * the Markdown table are printed, so that their columns cannot differ. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/speed.h"
#include "cli/commands.h"

int speed_format_parse(const char *text, speed_format *format)
{
    static const char *const names[] = {"csv", "json", "jsonl", "md", "sql"};
    *format = SPEED_TABLE;
    if (!text) return APP_DONE;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(text, names[i])) *format = (speed_format)(SPEED_CSV + i);
    if (*format != SPEED_TABLE) return APP_DONE;
    return app_error(APP_USAGE, "-o takes csv, json, jsonl, md or sql; found '%s'", text);
}

const char *speed_test_name(const speed_test *t, char out[64])
{
    int n = 0;
    if (t->n_prompt) n = snprintf(out, 64, "pp%u", (unsigned)t->n_prompt);
    if (t->n_gen) n += snprintf(out + n, 64 - (size_t)n, "%stg%u", n ? "+" : "", (unsigned)t->n_gen);
    if (t->n_depth) snprintf(out + n, 64 - (size_t)n, " @ d%u", (unsigned)t->n_depth);
    return out;
}

/* ---- A test as an object ------------------------------------------------------------------------------------ */

/* Returns the nanoseconds of run i of the test. */
static double nanoseconds(const speed_test *t, size_t i)
{
    return 1e9 * app_rate(t->n_prompt + t->n_gen, t->rates.items[i]);
}

static double rate(const speed_test *t, size_t i)
{
    return t->rates.items[i];
}

/* Computes mean and standard deviation of the sample. */
static void moments(const speed_test *t, double at(const speed_test *t, size_t i), double *mean, double *deviation)
{
    const size_t n = t->rates.n;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += at(t, i);
    *mean = app_rate(sum, (double)n);
    for (size_t i = 0; i < n; i++) squares += (at(t, i) - *mean) * (at(t, i) - *mean);
    *deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
}

static void add_text(json_t *object, const char *key, const char *text)
{
    app_json_put(object, key, app_json_text(text, strlen(text)));
}

static void add_number(json_t *object, const char *key, double value)
{
    app_json_put(object, key, json_integer((json_int_t)value));
}

/* Returns the type of keys or of values. The name of a pair has a slash between the two. */
static const char *kv_name(aerie_kv_type type, bool values, char out[16])
{
    const char *name = aerie_kv_type_name(type), *slash = strchr(name, '/');
    if (!slash) snprintf(out, 16, "%s", name);
    else snprintf(out, 16, "%.*s", values ? 15 : (int)(slash - name), values ? slash + 1 : name);
    return out;
}

/* Returns a description such as "llama 135M Q4_1". */
static void model_type(const speed_printer *p, char out[64])
{
    const aerie_model_info *info = &p->models->info;
    const double n = (double)info->n_params;
    if (n < 1e9) snprintf(out, 64, "%.24s %.0fM %s", info->arch, n / 1e6, p->type);
    else snprintf(out, 64, "%.24s %.1fB %s", info->arch, n / 1e9, p->type);
}

/* Returns llama.cpp's name for the backend. */
static const char *backend_name(const speed_printer *p)
{
    const char *device = p->options->model_params.backend;
    return device && strncmp(device, "cuda", 4) == 0 ? "CUDA" : "CPU";
}

/* Adds the program, the machine and the model. */
static void add_model(json_t *object, const speed_printer *p)
{
    char cpu[128], type[64], commit[64];
    const char *whole = app_commit();
    app_cpu_name(cpu, sizeof cpu);
    model_type(p, type);
    snprintf(commit, sizeof commit, "%.*s", (int)strcspn(whole, ":, "), whole);
    add_text(object, "build_commit", commit);
    add_number(object, "build_number", 0);
    add_text(object, "cpu_info", cpu);
    add_text(object, "gpu_info", "");
    add_text(object, "backends", backend_name(p));
    add_text(object, "model_filename", p->options->model);
    add_text(object, "model_type", type);
    add_number(object, "model_size", (double)p->tensor_bytes);
    add_number(object, "model_n_params", (double)p->models->info.n_params);
}

/* Adds the settings. Those that aerie lacks have the value that turns them off. */
static void add_settings(json_t *object, const speed_printer *p, const speed_test *t)
{
    const aerie_kv_type kv = p->options->session.kv_type;
    char name[16];
    const bool mapped = p->options->model_params.mmap;
    add_number(object, "n_batch", t->n_batch);
    add_number(object, "n_ubatch", t->n_ubatch);
    add_number(object, "n_threads", t->n_threads);
    add_text(object, "cpu_mask", p->options->cpu_mask ? p->options->cpu_mask : "0x0");
    app_json_put(object, "cpu_strict", json_false());
    add_number(object, "poll", 0);
    add_text(object, "type_k", kv_name(kv, false, name));
    add_text(object, "type_v", kv_name(kv, true, name));
    add_number(object, "n_gpu_layers", 0);
    add_number(object, "n_cpu_moe", 0);
    add_text(object, "split_mode", "none");
    add_number(object, "main_gpu", 0);
    app_json_put(object, "no_kv_offload", json_false());
    add_number(object, "flash_attn", -1);
    add_text(object, "devices", "none");
    add_text(object, "tensor_split", "0.00");
    add_text(object, "tensor_buft_overrides", "none");
    add_text(object, "load_mode", mapped ? "mmap" : p->options->model_params.no_mmap ? "none" : "auto");
    add_text(object, "lazy_mode", "off");
    app_json_put(object, "embeddings", json_false());
    add_number(object, "no_op_offload", 0);
    app_json_put(object, "no_host", json_false());
    app_json_put(object, "repack", json_boolean(!mapped));
    add_number(object, "fit_target", 0);
    add_number(object, "fit_min_ctx", 0);
}

static void add_figures(json_t *object, const speed_test *t)
{
    double mean, deviation;
    add_number(object, "n_prompt", t->n_prompt);
    add_number(object, "n_gen", t->n_gen);
    add_number(object, "n_depth", t->n_depth);
    add_text(object, "test_time", t->time);
    moments(t, nanoseconds, &mean, &deviation);
    add_number(object, "avg_ns", mean);
    add_number(object, "stddev_ns", deviation);
    moments(t, rate, &mean, &deviation);
    app_json_put(object, "avg_ts", app_json_real(mean));
    app_json_put(object, "stddev_ts", app_json_real(deviation));
}

static void add_samples(json_t *object, const speed_test *t)
{
    json_t *ns = json_array(), *ts = json_array();
    for (size_t i = 0; i < t->rates.n; i++) {
        app_json_append(ns, json_integer((json_int_t)nanoseconds(t, i)));
        app_json_append(ts, app_json_real(rate(t, i)));
    }
    app_json_put(object, "samples_ns", ns);
    app_json_put(object, "samples_ts", ts);
}

/* ---- CSV and SQL ---------------------------------------------------------------------------------------------- */

/* Writes a value in quotation marks, which are doubled inside. */
static void print_value(const json_t *value, char mark)
{
    if (json_is_integer(value)) app_print("%c%" JSON_INTEGER_FORMAT "%c", mark, json_integer_value(value), mark);
    else if (json_is_real(value)) app_print("%c%f%c", mark, json_real_value(value), mark);
    else if (!json_is_string(value)) app_print("%c%d%c", mark, json_is_true(value), mark);
    if (!json_is_string(value)) return;
    app_print("%c", mark);
    for (const char *p = json_string_value(value); *p; p++) app_print(*p == mark ? "%c%c" : "%c", *p, *p);
    app_print("%c", mark);
}

static void print_names(json_t *object, const char *between)
{
    const char *key;
    json_t *value;
    size_t i = 0;
    json_object_foreach(object, key, value) app_print("%s%s", i++ ? between : "", key);
}

static void print_values(json_t *object, const char *between, char mark)
{
    const char *key;
    json_t *value;
    size_t i = 0;
    json_object_foreach(object, key, value)
    {
        app_print("%s", i++ ? between : "");
        print_value(value, mark);
    }
}

static void print_csv(json_t *object, bool first)
{
    if (first) {
        print_names(object, ",");
        app_print("\n");
    }
    print_values(object, ",", '"');
    app_print("\n");
}

static void print_sql(json_t *object, bool first)
{
    const char *key;
    json_t *value;
    size_t i = 0;
    if (first) {
        app_print("CREATE TABLE IF NOT EXISTS llama_bench (\n");
        json_object_foreach(object, key, value)
        {
            const char *type = json_is_string(value) ? "TEXT" : json_is_real(value) ? "REAL" : "INTEGER";
            app_print("  %s %s%s\n", key, type, ++i < json_object_size(object) ? "," : "");
        }
        app_print(");\n\n");
    }
    app_print("INSERT INTO llama_bench (");
    print_names(object, ", ");
    app_print(") VALUES (");
    print_values(object, ", ", '\'');
    app_print(");\n");
}

/* ---- Markdown ------------------------------------------------------------------------------------------------- */

/* Prints a column if it is shown: a value, or without one the heading, or (value "-") the line below it. Width below 0: aligns
 * text to the left. */
static void print_column(bool shown, const char *name, int width, const char *value)
{
    static const char dashes[] = "------------------------------";
    const int n = width < 0 ? -width : width;
    if (!shown) return;
    if (value && !strcmp(value, "-")) app_print(" %.*s%s |", n - 1, dashes, width < 0 ? "-" : ":");
    else app_print(" %*s |", width, value ? value : name);
}

enum { MD_HEADING, MD_LINE, MD_ROW };

static void print_md_line(const speed_printer *p, const speed_test *t, int what)
{
    const app_options *o = p->options;
    const bool is_f16 = o->session.kv_type == AERIE_KV_F16;
    char k[16], v[16];
    const double mib = (double)p->tensor_bytes / (1 << 20), n = (double)p->models->info.n_params;
    char type[64], size[32], params[32], threads[16], batch[16], ubatch[16], test[64], speed[64];
    double mean, deviation;
    moments(t, rate, &mean, &deviation);
    model_type(p, type);
    snprintf(size, sizeof size, mib < 1024 ? "%.2f MiB" : "%.2f GiB", mib < 1024 ? mib : mib / 1024);
    snprintf(params, sizeof params, n < 1e9 ? "%.2f M" : "%.2f B", n < 1e9 ? n / 1e6 : n / 1e9);
    snprintf(threads, sizeof threads, "%u", (unsigned)t->n_threads);
    snprintf(batch, sizeof batch, "%u", (unsigned)t->n_batch);
    snprintf(ubatch, sizeof ubatch, "%u", (unsigned)t->n_ubatch);
    snprintf(speed, sizeof speed, "%.2f \u00b1 %.2f", mean, deviation);
    const struct {
        bool shown;
        const char *name;
        int width;
        const char *value;
    } columns[] = {
        {true, "model", -30, type}, {true, "size", 10, size}, {true, "params", 10, params},
        {true, "backend", -10, backend_name(p)}, {true, "threads", 7, threads},
        {o->speed.batches.n, "n_batch", 7, batch}, {o->speed.ubatches.n, "n_ubatch", 8, ubatch},
        {!is_f16, "type_k", -6, kv_name(o->session.kv_type, false, k)},
        {!is_f16, "type_v", -6, kv_name(o->session.kv_type, true, v)},
        {true, "test", 15, speed_test_name(t, test)},
        {true, "t/s", what == MD_ROW ? 21 : 20, speed}, /* the width counts bytes, and the plus-minus sign has two */
    };
    app_print("|");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        print_column(columns[i].shown, columns[i].name, columns[i].width,
                     what == MD_HEADING ? NULL : what == MD_LINE ? "-" : columns[i].value);
    app_print("\n");
}

/* ---- Tests ------------------------------------------------------------------------------------------------------ */

int speed_print_test(speed_printer *p, const speed_test *t)
{
    const bool first = !p->begun;
    p->begun = true;
    if (p->format == SPEED_MD) {
        if (first) print_md_line(p, t, MD_HEADING);
        if (first) print_md_line(p, t, MD_LINE);
        print_md_line(p, t, MD_ROW);
        return app_flush() ? APP_DONE : APP_FAILED;
    }
    json_t *object = json_object();
    add_model(object, p);
    add_settings(object, p, t);
    add_figures(object, t);
    if (p->format == SPEED_JSON || p->format == SPEED_JSONL) add_samples(object, t);
    if (p->format == SPEED_JSONL) return app_print_json_line(object);
    if (p->format == SPEED_JSON) {
        if (!p->tests) p->tests = json_array();
        app_json_append(p->tests, object);
        return APP_DONE;
    }
    const bool failed = !object || app_json_failed();
    if (!failed && p->format == SPEED_CSV) print_csv(object, first);
    else if (!failed) print_sql(object, first);
    json_decref(object);
    if (failed) return app_error_memory("the figures");
    return app_flush() ? APP_DONE : APP_FAILED;
}

int speed_print_end(speed_printer *p)
{
    json_t *tests = p->tests;
    p->tests = NULL;
    if (p->format == SPEED_JSON) return app_print_json(tests);
    if (p->format == SPEED_MD) app_print("\nbuild: %.*s (0)\n", (int)strcspn(app_commit(), ":, "), app_commit());
    return APP_DONE;
}

void speed_printer_free(speed_printer *p)
{
    json_decref(p->tests);
    p->tests = NULL;
}
