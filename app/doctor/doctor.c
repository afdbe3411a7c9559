/* doctor.c - aerie doctor: a one-page report about this machine, for bug reports and for finding out why it is slow. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#ifdef APP_LIBEDIT
#include <histedit.h>
#endif
#ifdef APP_HTTP
#include <microhttpd.h>
#endif
#ifdef APP_CURL
#include <curl/curl.h>
#endif

#include "aerie_extra.h"
#include "backend/cpu/ref/kernels.h" /* the names of all levels */
#include "doctor/doctor.h"
#include "pull/store.h"

/* ---- Privacy ------------------------------------------------------------------------------------------- */

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("._-+@", c)) || (unsigned char)c >= 0x80;
}

/* Returns the length of `prefix` if the text begins with it and the name ends there; else 0. */
static size_t n_prefix(const char *text, const char *prefix)
{
    size_t n = prefix ? strlen(prefix) : 0;
    while (n > 1 && prefix[n - 1] == '/') n--;
    return n > 1 && strncmp(text, prefix, n) == 0 && !is_name_char(text[n]) ? n : 0;
}

char *doctor_hide(const char *text)
{
    static const char *const parents[] = {"/home/", "/Users/"};
    const char *home = getenv("HOME"), *users[] = {getenv("USER"), getenv("LOGNAME")};
    app_text out = {0};
    bool ok = app_text_add(&out, "", 0);
    for (const char *at = text; *at && ok;) {
        const bool begins = at == text || !is_name_char(at[-1]);
        size_t n = begins && home && *home == '/' ? n_prefix(at, home) : 0;
        if (n) ok = app_text_add(&out, "~", 1);
        for (size_t i = 0; !n && i < sizeof parents / sizeof *parents; i++) {
            const size_t m = strlen(parents[i]);
            if (strncmp(at, parents[i], m) || !is_name_char(at[m])) continue;
            for (n = m; is_name_char(at[n]); n++) {}
            ok = app_text_add(&out, parents[i], m) && app_text_add(&out, "USER", 4);
        }
        for (size_t i = 0; !n && at > text && at[-1] == '/' && i < 2; i++) {
            n = n_prefix(at, users[i]);
            if (n) ok = app_text_add(&out, "USER", 4);
        }
        if (!n) ok = app_text_add(&out, at, n = 1);
        at += n;
    }
    if (!ok) app_text_free(&out);
    return out.data;
}

void doctor_warn(doctor_warnings *w, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char **grown = app_grow(w->items, w->n, &w->capacity, sizeof *grown);
    if (!grown) return;
    w->items = grown;
    char *copy = strdup(text);
    if (copy) grown[w->n++] = copy;
}

static void warn_of_variable(void *user, const char *sentence)
{
    doctor_warn(user, "%s", sentence);
}

/* ---- What was pulled ------------------------------------------------------------------------------------ */

/* Returns the free bytes of the file system that contains the folder, or the nearest existing one above it. Cuts the path. */
static uint64_t free_near(char *path)
{
    struct statvfs disk;
    while (statvfs(path, &disk)) {
        char *slash = strrchr(path, '/');
        if (!slash || strcmp(path, "/") == 0) return 0;
        slash[slash == path] = '\0';
    }
    return (uint64_t)disk.f_bavail * disk.f_frsize;
}

static void read_cache(doctor_cache *cache, const app_options *options)
{
    char root[PATH_MAX];
    store_entries entries = {0};
    *cache = (doctor_cache){0};
    if (!store_root(root, options)) return;
    cache->folder = doctor_hide(root);
    cache->listed = store_list(&entries, NULL, options) == APP_DONE;
    for (size_t i = 0; i < entries.n; i++) { /* sorted by name; the same model may be there with and without its drafter */
        if (i && strcmp(entries.items[i].source, entries.items[i - 1].source) == 0) continue;
        cache->n_models++;
        for (size_t k = 0; k < entries.items[i].plan.n; k++) cache->bytes += entries.items[i].plan.files[k].bytes;
    }
    store_list_free(&entries);
    cache->free_bytes = free_near(root);
}

/* ---- What was built in ------------------------------------------------------------------------------- */

enum { N_PARTS = 4 };
typedef struct part {
    const char *name, *use;
    char version[32]; /* "": not built in */
} part;

static void read_parts(part parts[N_PARTS])
{
    const part all[N_PARTS] = {{"libedit", "lines of the chat are edited plainly", ""},
                               {"libmicrohttpd", "no 'aerie serve'", ""},
                               {"libcurl", "no 'aerie pull'", ""},
                               {"jansson", "", ""}};
    memcpy(parts, all, sizeof all);
#ifdef APP_LIBEDIT
    snprintf(parts[0].version, sizeof parts[0].version, "%d.%d", LIBEDIT_MAJOR, LIBEDIT_MINOR);
#endif
#ifdef APP_HTTP
    snprintf(parts[1].version, sizeof parts[1].version, "%s", MHD_get_version());
#endif
#ifdef APP_CURL
    snprintf(parts[2].version, sizeof parts[2].version, "%s", curl_version_info(CURLVERSION_NOW)->version);
#endif
    snprintf(parts[3].version, sizeof parts[3].version, "%s", JANSSON_VERSION);
}

/* ---- Text --------------------------------------------------------------------------------------------- */

static void print_label(const char *label)
{
    app_print("  %-14s", label);
}

static void print_known(const char *label, const char *text)
{
    print_label(label);
    app_write_escaped(*text ? text : "unknown", strlen(*text ? text : "unknown"));
    app_print("\n");
}

static const char *bytes_or(char out[32], uint64_t bytes, const char *otherwise)
{
    return bytes ? app_bytes(out, bytes) : otherwise;
}

static void print_program(const part parts[N_PARTS])
{
    app_print("aerie %s\n", aerie_version());
    print_known("commit", app_commit());
    print_known("build", app_build());
    print_known("compiler", app_compiler());
    print_label("built in");
    for (size_t i = 0, n = 0; i < N_PARTS; i++)
        if (*parts[i].version) app_print("%s%s %s", n++ ? ", " : "", parts[i].name, parts[i].version);
    app_print("\n");
    for (size_t i = 0; i < N_PARTS; i++)
        if (!*parts[i].version) app_print("  %-14s%s: %s\n", "not built in", parts[i].name, parts[i].use);
    print_known("backends", aerie_backend_names());
}

static void print_cpus(const doctor_machine *m)
{
    const ae_os_cpus *c = &m->cpus;
    print_known("CPU", m->cpu);
    app_print("  %-14s%s in use, %s the best of this CPU; aerie knows %s\n", "CPU level", m->level ? m->level : "none",
              m->best, ae_kernels_known());
    print_label("CPUs");
    if (m->n_online) app_print("%u, ", (unsigned)m->n_online);
    app_print("%u allowed, %u core%s among them; ", (unsigned)c->n_allowed, (unsigned)c->n_cores, app_plural(c->n_cores));
    if (c->quota > 0) app_print("a control group grants %.2f; ", c->quota);
    app_print("%u thread%s would run\n", (unsigned)m->n_threads, app_plural(m->n_threads));
    if (m->load >= 0) app_print("  %-14s%.2f (average of a minute)\n", "load", m->load);
    else print_known("load", "");
    print_label("governor");
    app_print("%s%s%s%s\n", *m->governor ? m->governor : "unknown", *m->driver ? " (" : "", m->driver, *m->driver ? ")" : "");
}

static void print_machine(const doctor_machine *m)
{
    char a[32], b[32], c[32];
    app_print("\nMachine\n");
    print_known("system", m->system);
    print_cpus(m);
    app_print("  %-14s%s, %s available, %s of control groups\n", "memory", bytes_or(a, m->memory, "unknown"),
              bytes_or(b, m->available, "unknown"), bytes_or(c, m->limit, "no known limit"));
    print_label("swap");
    if (!m->swap_known) app_print("unknown\n");
    else if (!m->swap) app_print("none\n");
    else app_print("%s, %s in use\n", app_bytes(a, m->swap), app_bytes(b, m->swap_used));
    print_known("huge pages", m->huge_pages);
    print_label("bandwidth");
    if (m->bandwidth > 0)
        app_print("%.1f GB/s read by %u thread%s (the best of %u readings of %s)\n", m->bandwidth / 1e9, (unsigned)m->n_threads,
                  app_plural(m->n_threads), (unsigned)m->n_readings, app_bytes(a, m->reading_bytes));
    else app_print("%s\n", m->measured ? "unknown" : "not measured");
}

static void print_cache(const doctor_cache *cache)
{
    char a[32];
    app_print("\nPulled models\n");
    print_known("folder", cache->folder ? cache->folder : "none: neither --cache-dir nor HOME names one");
    if (!cache->folder) return;
    print_label("models");
    if (!cache->listed) app_print("unknown\n");
    else if (!cache->n_models) app_print("none\n");
    else app_print("%llu, %s\n", (unsigned long long)cache->n_models, app_bytes(a, cache->bytes));
    print_known("free", bytes_or(a, cache->free_bytes, ""));
}

static void print_model(const doctor_model *model, const app_options *options)
{
    char a[32], b[32], c[32], d[32];
    const aerie_memory_plan *plan = &model->plan;
    const uint64_t needed = plan->weight_bytes + plan->session_bytes;
    if (!model->given) return;
    app_print("\nModel\n");
    print_known("file", model->path ? model->path : "");
    if (model->status != AERIE_OK) {
        print_known("unusable", model->error.text);
        return;
    }
    print_label("architecture");
    app_write_escaped(model->arch, strlen(model->arch));
    app_print("%s, weights mostly %s", plan->decision ? " (scores options)" : plan->is_encoder ? " (an encoder)" : "",
              model->type);
    if (model->n_ctx_train) app_print(", trained for %u positions", (unsigned)model->n_ctx_train);
    app_print("\n");
    app_print("  %-14s%s: weights %s, session of %u sequence%s %s\n", "needs", app_bytes(a, needed),
              app_bytes(b, plan->weight_bytes), (unsigned)options->session.n_seqs, app_plural(options->session.n_seqs),
              app_bytes(c, plan->session_bytes));
    app_print("  %-14s%s of the file, in place\n", "maps", app_bytes(d, model->mapped));
    if (model->mmproj && model->mmproj_error.status == AERIE_OK)
        app_print("  %-14s%s: weights %s, and %s while a picture of 1024 x 1024 is read\n", "images", model->mmproj,
                  app_bytes(a, model->mmproj_plan.weight_bytes), app_bytes(b, model->mmproj_plan.session_bytes));
    print_known("fits", !plan->available_bytes ? "" : needed <= plan->available_bytes ? "yes" : "no");
    if (model->is_encoder) return;
    print_known("a token reads", bytes_or(a, model->per_token, ""));
    if (model->most_rate > 0)
        app_print("  %-14s%.*f tokens/s of one sequence without speculation: bandwidth / bytes that a token reads.\n"
                  "  %-14sAn expected upper bound, not a measurement ('aerie bench speed' measures); only a model\n"
                  "  %-14sthat the CPU's cache holds can be faster.\n",
                  "at most", model->most_rate < 10 ? 1 : 0, model->most_rate, "", "");
    else print_known("at most", "");
}

static void print_text(const doctor_machine *m, const part parts[N_PARTS], const doctor_cache *cache, const doctor_model *model,
                       const doctor_warnings *w, const app_options *options)
{
    print_program(parts);
    print_machine(m);
    print_cache(cache);
    print_model(model, options);
    app_print("\nWarnings\n");
    for (size_t i = 0; i < w->n; i++) {
        app_print("  * ");
        app_write_escaped(w->items[i], strlen(w->items[i]));
        app_print("\n");
    }
    if (!w->n) app_print("  none: nothing was found that would make it slow\n");
}

/* ---- JSON --------------------------------------------------------------------------------------------- */

static json_t *text_or_null(const char *text)
{
    return text && *text ? app_json_text(text, strlen(text)) : json_null();
}

static json_t *bytes_or_null(uint64_t bytes)
{
    return bytes ? app_json_u64(bytes) : json_null();
}

static json_t *real_or_null(double value, bool known)
{
    return known ? app_json_real(value) : json_null();
}

/* Words of "a, b" */
static json_t *list_of(const char *text)
{
    json_t *list = json_array();
    while (*text) {
        const size_t n = strcspn(text, ",");
        app_json_append(list, app_json_text(text, n));
        text += n + strspn(text + n, ", ");
    }
    return list;
}

static json_t *json_program(const part parts[N_PARTS])
{
    json_t *built = json_object(), *program = json_object();
    for (size_t i = 0; i < N_PARTS; i++) app_json_put(built, parts[i].name, text_or_null(parts[i].version));
    app_json_put(program, "version", text_or_null(aerie_version()));
    app_json_put(program, "commit", text_or_null(app_commit()));
    app_json_put(program, "build", text_or_null(app_build()));
    app_json_put(program, "compiler", text_or_null(app_compiler()));
    app_json_put(program, "built_in", built);
    app_json_put(program, "backends", list_of(aerie_backend_names()));
    return program;
}

static json_t *json_machine(const doctor_machine *m)
{
    const ae_os_cpus *c = &m->cpus;
    json_t *machine = json_object();
    app_json_put(machine, "system", text_or_null(m->system));
    app_json_put(machine, "cpu", text_or_null(m->cpu));
    app_json_put(machine, "cpu_level", text_or_null(m->level));
    app_json_put(machine, "best_cpu_level", text_or_null(m->best));
    app_json_put(machine, "cpu_levels", list_of(ae_kernels_known()));
    app_json_put(machine, "n_cpus", bytes_or_null(m->n_online));
    app_json_put(machine, "n_cpus_allowed", app_json_u64(c->n_allowed));
    app_json_put(machine, "n_cores", app_json_u64(c->n_cores));
    app_json_put(machine, "cpu_quota", real_or_null(c->quota, c->quota > 0));
    app_json_put(machine, "n_threads", app_json_u64(m->n_threads));
    app_json_put(machine, "load", real_or_null(m->load, m->load >= 0));
    app_json_put(machine, "governor", text_or_null(m->governor));
    app_json_put(machine, "governor_driver", text_or_null(m->driver));
    app_json_put(machine, "memory_bytes", bytes_or_null(m->memory));
    app_json_put(machine, "memory_available_bytes", bytes_or_null(m->available));
    app_json_put(machine, "memory_limit_bytes", bytes_or_null(m->limit));
    app_json_put(machine, "swap_bytes", m->swap_known ? app_json_u64(m->swap) : json_null());
    app_json_put(machine, "swap_used_bytes", m->swap_known ? app_json_u64(m->swap_used) : json_null());
    app_json_put(machine, "huge_pages", text_or_null(m->huge_pages));
    app_json_put(machine, "bandwidth_gbs", real_or_null(m->bandwidth / 1e9, m->bandwidth > 0));
    return machine;
}

static json_t *json_cache(const doctor_cache *cache)
{
    json_t *json = json_object();
    app_json_put(json, "folder", text_or_null(cache->folder));
    app_json_put(json, "n_models", cache->folder && cache->listed ? app_json_u64(cache->n_models) : json_null());
    app_json_put(json, "bytes", cache->folder && cache->listed ? app_json_u64(cache->bytes) : json_null());
    app_json_put(json, "free_bytes", bytes_or_null(cache->free_bytes));
    return json;
}

static json_t *json_mmproj(const doctor_model *model)
{
    if (!model->mmproj) return json_null();
    json_t *json = json_object();
    const bool usable = model->mmproj_error.status == AERIE_OK;
    app_json_put(json, "file", text_or_null(model->mmproj));
    app_json_put(json, "error", usable ? json_null() : text_or_null(model->mmproj_error.text));
    if (!usable) return json;
    app_json_put(json, "weight_bytes", app_json_u64(model->mmproj_plan.weight_bytes));
    app_json_put(json, "picture_bytes", app_json_u64(model->mmproj_plan.session_bytes));
    return json;
}

static json_t *json_model(const doctor_model *model, const app_options *options)
{
    const aerie_memory_plan *plan = &model->plan;
    if (!model->given) return json_null();
    json_t *json = json_object();
    const bool usable = model->status == AERIE_OK;
    app_json_put(json, "file", text_or_null(model->path));
    app_json_put(json, "error", usable ? json_null() : text_or_null(model->error.text));
    if (!usable) return json;
    app_json_put(json, "architecture", text_or_null(model->arch));
    app_json_put(json, "n_ctx_train", bytes_or_null(model->n_ctx_train));
    app_json_put(json, "type", text_or_null(model->type));
    app_json_put(json, "n_seqs", app_json_u64(options->session.n_seqs));
    app_json_put(json, "weight_bytes", app_json_u64(plan->weight_bytes));
    app_json_put(json, "session_bytes", app_json_u64(plan->session_bytes));
    app_json_put(json, "mapped_bytes", app_json_u64(model->mapped));
    app_json_put(json, "fits", plan->available_bytes
                                   ? json_boolean(plan->weight_bytes + plan->session_bytes <= plan->available_bytes)
                                   : json_null());
    app_json_put(json, "mmproj", json_mmproj(model));
    app_json_put(json, "bytes_per_token", bytes_or_null(model->per_token));
    app_json_put(json, "tokens_per_second_at_most", real_or_null(model->most_rate, model->most_rate > 0));
    return json;
}

static int print_json(const doctor_machine *m, const part parts[N_PARTS], const doctor_cache *cache, const doctor_model *model,
                      const doctor_warnings *w, const app_options *options)
{
    json_t *json = json_object(), *warnings = json_array();
    for (size_t i = 0; i < w->n; i++) app_json_append(warnings, text_or_null(w->items[i]));
    app_json_put(json, "aerie", json_program(parts));
    app_json_put(json, "machine", json_machine(m));
    app_json_put(json, "pulled", json_cache(cache));
    app_json_put(json, "model", json_model(model, options));
    app_json_put(json, "warnings", warnings);
    return app_print_json(json);
}

int app_doctor(const app_options *options)
{
    doctor_machine machine;
    doctor_cache cache;
    doctor_model model;
    doctor_warnings warnings = {0};
    part parts[N_PARTS];
    doctor_machine_read(&machine, options);
    read_parts(parts);
    read_cache(&cache, options);
    doctor_model_read(&model, &machine, options);
    doctor_machine_judge(&machine, options, &warnings);
    doctor_model_judge(&model, options, &warnings);
    app_environment_check(warn_of_variable, &warnings);
    int bad = APP_DONE;
    if (options->json) bad = print_json(&machine, parts, &cache, &model, &warnings, options);
    else print_text(&machine, parts, &cache, &model, &warnings, options);
    if (!bad && model.given) bad = app_report(APP_LOADING, model.status, &model.error);
    for (size_t i = 0; i < warnings.n; i++) free(warnings.items[i]);
    free(warnings.items);
    free(cache.folder);
    free(model.path);
    free(model.mmproj);
    return bad;
}
