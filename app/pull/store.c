/* store.c - implements store.h. */
#define _DEFAULT_SOURCE 1 /* flock */
#include "pull/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pull/sha256.h"

/* --cache-dir, $XDG_CACHE_HOME/aerie/models, ~/.cache/aerie/models */
static int root_of(char out[PATH_MAX], const app_options *options)
{
    const char *given = options->pull.cache_dir, *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (given && *given) n = snprintf(out, PATH_MAX, "%s", given);
    else if (xdg && *xdg == '/') n = snprintf(out, PATH_MAX, "%s/aerie/models", xdg); /* a relative one is to be ignored */
    else if (home && *home == '/') n = snprintf(out, PATH_MAX, "%s/.cache/aerie/models", home);
    else return app_error(APP_FAILED, "there is no folder for pulled models: neither --cache-dir nor HOME is set");
    return n > 0 && n < PATH_MAX ? APP_DONE : app_error(APP_FAILED, "the path of the folder for pulled models is too long");
}

int store_place_find(store_place *place, const source_plan *plan, const char *reference, const app_options *options)
{
    char root[PATH_MAX], id[65];
    pull_sha256 hash;
    *place = (store_place){.lock = -1};
    const int bad = root_of(root, options);
    if (bad) return bad;
    const size_t n = strlen(root) + strlen(plan->folder) + 2;
    pull_sha256_start(&hash);
    pull_sha256_add(&hash, reference, strlen(reference) + 1);
    pull_sha256_add(&hash, options->pull.no_drafter ? "1" : "0", 1);
    pull_sha256_end(&hash, id);
    place->folder = malloc(n);
    place->record = malloc(n + 40);
    if (!place->folder || !place->record) {
        store_place_free(place);
        return app_error_memory("a path");
    }
    snprintf(place->folder, n, "%s/%s", root, plan->folder);
    snprintf(place->record, n + 40, "%s/.pulled-%.16s.json", place->folder, id);
    return APP_DONE;
}

void store_place_free(store_place *place)
{
    if (place->lock >= 0) close(place->lock);
    free(place->folder);
    free(place->record);
    *place = (store_place){.lock = -1};
}

/* The folder and those above it. */
static int make_folders(const char *folder)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/", folder) >= (int)sizeof path)
        return app_error(APP_FAILED, "the path of the folder for pulled models is too long");
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(path, 0777) && errno != EEXIST)
            return app_error(APP_FAILED, "cannot make the folder '%s': %s", path, strerror(errno));
        *slash = '/';
    }
    return APP_DONE;
}

int store_place_lock(store_place *place, bool quiet)
{
    const int bad = make_folders(place->folder);
    if (bad) return bad;
    char *path = store_path(place, ".lock");
    if (!path) return app_error_memory("a path");
    place->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (place->lock < 0) {
        const int failed = app_error(APP_FAILED, "cannot open '%s': %s", path, strerror(errno));
        free(path);
        return failed;
    }
    free(path);
    for (bool said = quiet; flock(place->lock, LOCK_EX | LOCK_NB); said = true) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return app_error(APP_FAILED, "cannot lock '%s': %s", place->folder, strerror(errno));
        if (app_interrupted()) return APP_INTERRUPTED;
        if (!said) app_note("another aerie pulls into '%s'; waiting for it", place->folder);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return APP_DONE;
}

char *store_path(const store_place *place, const char *path)
{
    const size_t n = strlen(place->folder) + strlen(path) + 2;
    char *out = malloc(n);
    if (out) snprintf(out, n, "%s/%s", place->folder, path);
    return out;
}

/* ---- Records ------------------------------------------------------------------------------------------ */

/* One file of a record, if what lies there has its size. */
static bool read_file(const store_place *place, source_plan *plan, const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "path")),
               *sha256 = json_string_value(json_object_get(json, "sha256"));
    const char *etag = json_string_value(json_object_get(json, "etag"));
    const json_int_t bytes = json_integer_value(json_object_get(json, "bytes"));
    struct stat st;
    if (!name || !sha256 || strlen(sha256) != 64 || bytes <= 0 || !source_path_is_plain(name)) return false;
    char *path = store_path(place, name);
    const bool there = path && stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == bytes;
    free(path);
    source_file *grown = there ? app_grow(plan->files, plan->n, &plan->capacity, sizeof *grown) : NULL;
    if (!grown) return false;
    plan->files = grown;
    source_file *f = &grown[plan->n];
    *f = (source_file){.path = strdup(name), .bytes = (uint64_t)bytes};
    snprintf(f->sha256, sizeof f->sha256, "%s", sha256);
    snprintf(f->etag, sizeof f->etag, "%s", etag ? etag : "");
    plan->n += f->path != NULL;
    return f->path != NULL;
}

bool store_record_read(const store_place *place, source_plan *plan)
{
    size_t i;
    json_t *item, *record = json_load_file(place->record, 0, NULL);
    const json_t *files = json_object_get(record, "files");
    bool ok = json_array_size(files) > 0;
    *plan = (source_plan){0};
    json_array_foreach(files, i, item) ok = ok && read_file(place, plan, item);
    json_decref(record);
    if (!ok) source_free(plan);
    return ok;
}

int store_record_write(const store_place *place, const char *reference, const source_plan *plan)
{
    json_t *files = json_array();
    for (size_t i = 0; i < plan->n; i++) {
        const source_file *f = &plan->files[i];
        json_array_append_new(files, json_pack("{s:s, s:I, s:s, s:s}", "path", f->path, "bytes", (json_int_t)f->bytes, "sha256",
                                               f->sha256, "etag", f->etag));
    }
    const bool whole = json_array_size(files) == plan->n;
    json_t *record = json_pack("{s:s, s:o}", "source", reference, "files", files);
    char *text = whole && record ? json_dumps(record, JSON_INDENT(2)) : NULL;
    json_decref(record);
    const size_t n = strlen(place->record) + 8;
    char *fresh = malloc(n);
    FILE *file = NULL;
    if (!text || !fresh) {
        free(text);
        free(fresh);
        return app_error_memory("the record of a pull");
    }
    snprintf(fresh, n, "%s.part", place->record);
    file = fopen(fresh, "we");
    bool ok = file && fputs(text, file) >= 0 && fputc('\n', file) >= 0 && fflush(file) == 0 && fsync(fileno(file)) == 0;
    ok = (!file || fclose(file) == 0) && ok && rename(fresh, place->record) == 0;
    const int reason = errno;
    if (!ok) unlink(fresh);
    free(text);
    free(fresh);
    return ok ? APP_DONE : app_error(APP_FAILED, "cannot write '%s': %s", place->record, strerror(reason));
}

void store_record_remove(const store_place *place)
{
    unlink(place->record);
}
