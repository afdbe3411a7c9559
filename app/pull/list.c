/* list.c - aerie list and aerie rm: the models in the folder of pulled models (store.h), and, only to be listed, those of other
 * programs (caches.h). */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/commands.h"
#include "pull/caches.h"
#include "pull/names.h"
#include "pull/store.h"

static uint64_t bytes_of(const source_plan *plan)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < plan->n; i++) sum += plan->files[i].bytes;
    return sum;
}

/* ---- aerie list ----------------------------------------------------------------------------------------- */

/* Returns whether the entry before has the same reference, which was pulled both with its drafter and without it. */
static bool is_listed(const store_entries *entries, size_t i)
{
    return i > 0 && strcmp(entries->items[i].source, entries->items[i - 1].source) == 0;
}

static json_t *json_of(const store_entry *e, const char *owner)
{
    char when[40];
    const time_t pulled = (time_t)e->pulled;
    struct tm utc;
    json_t *files = json_array();
    gmtime_r(&pulled, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    for (size_t i = 0; i < e->plan.n; i++) {
        char *path = store_path(&e->place, e->plan.files[i].path);
        app_json_append(files, json_pack("{s:o, s:I, s:s}", "path", app_json_text(path ? path : "", path ? strlen(path) : 0),
                                         "bytes", (json_int_t)e->plan.files[i].bytes, "sha256", e->plan.files[i].sha256));
        free(path);
    }
    return json_pack("{s:o, s:I, s:s, s:b, s:s, s:o}", "name", app_json_text(e->source, strlen(e->source)), "bytes",
                     (json_int_t)bytes_of(&e->plan), "pulled", when, "whole", (int)e->whole, "source", owner, "files", files);
}

static void print_row(const store_entry *e, const char *owner, size_t width)
{
    const double bytes = (double)bytes_of(&e->plan);
    const time_t pulled = (time_t)e->pulled;
    struct tm local;
    char size[32], when[40];
    localtime_r(&pulled, &local);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M", &local);
    if (bytes >= 1e9) snprintf(size, sizeof size, "%.1f GB", bytes / 1e9);
    else snprintf(size, sizeof size, "%.1f MB", bytes / 1e6);
    const size_t n = strlen(e->source);
    app_write_escaped(e->source, n); /* the names of folders that other programs made */
    app_print("%*s  %9s  %s  %s%s\n", (int)(width - n), "", size, when, owner,
              e->whole ? "" : "  (files are missing: pull it again)");
}

/* The models on this machine, by who keeps them. */
enum { AERIE, OLLAMA, HF, N_OWNERS };
static const char *const owners[N_OWNERS] = {[AERIE] = "aerie", [OLLAMA] = "ollama", [HF] = "huggingface"};

static int print_all(const store_entries lists[N_OWNERS], bool as_json)
{
    json_t *json = as_json ? json_array() : NULL;
    size_t width = 4, n = 0;
    for (size_t k = 0; k < N_OWNERS; k++)
        for (size_t i = 0; i < lists[k].n; i++, n++)
            if (strlen(lists[k].items[i].source) > width) width = strlen(lists[k].items[i].source);
    if (n && !as_json) app_print("%-*s  %9s  %-16s  %s\n", (int)width, "NAME", "SIZE", "PULLED", "SOURCE");
    for (size_t k = 0; k < N_OWNERS; k++)
        for (size_t i = 0; i < lists[k].n; i++) {
            if (is_listed(&lists[k], i)) continue;
            if (as_json) app_json_append(json, json_of(&lists[k].items[i], owners[k]));
            else print_row(&lists[k].items[i], owners[k], width);
        }
    return as_json ? app_print_json(json_pack("{s:o}", "models", json)) : APP_DONE;
}

int app_list(const app_options *options)
{
    store_entries lists[N_OWNERS] = {{0}};
    int bad = store_list(&lists[AERIE], NULL, options);
    if (!bad) bad = cache_ollama_list(&lists[OLLAMA]);
    if (!bad) bad = cache_hf_list(&lists[HF]);
    if (!bad) bad = print_all(lists, options->json);
    if (!bad && !options->json && !options->quiet && !lists[AERIE].n + !lists[OLLAMA].n + !lists[HF].n == N_OWNERS)
        app_note("nothing was pulled yet; 'aerie pull' brings models");
    for (size_t k = 0; k < N_OWNERS; k++) store_list_free(&lists[k]);
    return bad;
}

/* ---- aerie rm -------------------------------------------------------------------------------------------- */

static bool is_named(const store_entries *entries, const char *path, const char *but)
{
    for (size_t i = 0; i < entries->n; i++)
        for (size_t k = 0; strcmp(entries->items[i].source, but) && k < entries->items[i].plan.n; k++)
            if (strcmp(entries->items[i].plan.files[k].path, path) == 0) return true;
    return false;
}

/* Removes a file, and folders of the repository that are empty afterwards. */
static int remove_file(const store_place *place, const char *name, uint64_t *n_removed)
{
    char *path = store_path(place, name);
    if (!path) return app_error_memory("a path");
    int bad = APP_DONE;
    if (unlink(path) == 0) ++*n_removed;
    else if (errno != ENOENT) bad = app_error(APP_FAILED, "cannot remove '%s': %s", path, strerror(errno));
    for (char *slash; !bad && (slash = strrchr(path + strlen(place->folder) + 1, '/'));) {
        *slash = '\0';
        if (rmdir(path)) break;
    }
    free(path);
    return bad;
}

/* Called under the lock. */
static int remove_all(const store_place *place, const char *reference, const app_options *options)
{
    store_entries entries;
    size_t n = 0;
    uint64_t n_removed = 0, bytes = 0;
    int bad = store_list(&entries, place->folder, options);
    for (size_t i = 0; !bad && i < entries.n; i++) { /* removes records first, because they may only name files that exist */
        if (strcmp(entries.items[i].source, reference)) continue;
        if (unlink(entries.items[i].place.record) && errno != ENOENT)
            bad = app_error(APP_FAILED, "cannot remove '%s': %s", entries.items[i].place.record, strerror(errno));
        n++;
    }
    if (!bad && !n) bad = app_error(APP_FAILED, "'%s' was not pulled; 'aerie list' shows what was", reference);
    for (size_t i = 0; i < entries.n; i++) {
        const store_entry *e = &entries.items[i];
        for (size_t k = 0; !bad && !strcmp(e->source, reference) && k < e->plan.n; k++) {
            const uint64_t before = n_removed;
            if (!is_named(&entries, e->plan.files[k].path, reference))
                bad = remove_file(place, e->plan.files[k].path, &n_removed);
            bytes += n_removed > before ? e->plan.files[k].bytes : 0;
        }
    }
    if (!bad && !options->quiet)
        app_note("'%s' is removed: %llu file%s, %.1f MB", reference, (unsigned long long)n_removed, app_plural(n_removed),
                 (double)bytes / 1e6);
    store_list_free(&entries);
    return bad;
}

/* Says who keeps the model that is meant, if it is not a pulled one. */
static int refuse_other(const char *typed, const app_options *options)
{
    name_found found = {0};
    const bool is_name = name_is_bare(typed);
    int bad = is_name ? name_find(&found, typed, false, options) : APP_DONE;
    const char *repo = found.text ? strstr(found.text, "/models--") : NULL;
    char owner[128], name[128], folder[256];
    if (repo) snprintf(folder, sizeof folder, "%.*s", (int)strcspn(repo + 1, "/"), repo + 1);
    if (!bad && repo && cache_hf_repo(folder, owner, name))
        bad = app_error(APP_FAILED, "'%s' is in Hugging Face's cache, which aerie only reads; 'hf cache rm model/%s/%s' "
                        "removes the repository", typed, owner, name);
    else if (!bad && found.text && !found.is_reference)
        bad = app_error(APP_FAILED, "'%s' is in ollama's store, which aerie only reads; 'ollama rm %s' removes it", typed,
                        typed);
    if (!bad)
        bad = app_error(is_name ? APP_FAILED : APP_USAGE,
                        "'%s' is not a pulled model; 'aerie list' prints their names (a file is removed by rm)", typed);
    free(found.text);
    return bad;
}

static int remove_one(const char *typed, const app_options *options)
{
    source_plan plan = {0};
    store_place place = {.lock = -1};
    name_found found = {0};
    int bad = name_is_bare(typed) ? name_find(&found, typed, true, options) : APP_DONE;
    const char *reference = found.text ? found.text : typed;
    if (!bad && !source_is_remote(reference)) bad = refuse_other(typed, options);
    if (!bad) bad = source_folder(&plan, reference, options);
    if (!bad) bad = store_place_find(&place, &plan, reference, options);
    if (!bad && access(place.folder, F_OK))
        bad = app_error(APP_FAILED, "'%s' was not pulled; 'aerie list' shows what was", reference);
    if (!bad) bad = store_place_lock(&place, options->quiet);
    if (!bad) bad = remove_all(&place, reference, options);
    if (place.lock >= 0) store_place_clear(&place);
    source_free(&plan);
    store_place_free(&place);
    free(found.text);
    return bad;
}

int app_remove(const app_options *options)
{
    int bad = APP_DONE;
    if (!options->arguments.n) return app_error(APP_USAGE, "'rm' needs to know what: a name that 'aerie list' prints");
    app_interrupt_arm();
    for (size_t i = 0; !bad && i < options->arguments.n; i++) bad = remove_one(options->arguments.items[i], options);
    return bad;
}
