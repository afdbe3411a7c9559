/* store.c - implements store.h. */
#define _DEFAULT_SOURCE 1 /* flock */
#include "pull/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/sha256.h"

/* Tries --cache-dir, $XDG_CACHE_HOME/aerie/models, ~/.cache/aerie/models. */
bool store_root(char out[PATH_MAX], const app_options *options)
{
    const char *given = options->pull.cache_dir, *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (given && *given) n = snprintf(out, PATH_MAX, "%s", given);
    else if (xdg && *xdg == '/') n = snprintf(out, PATH_MAX, "%s/aerie/models", xdg); /* the XDG specification says to
                                                                                       * ignore relative paths */
    else if (home && *home == '/') n = snprintf(out, PATH_MAX, "%s/.cache/aerie/models", home);
    else n = snprintf(out, PATH_MAX, "%s", "");
    return n > 0 && n < PATH_MAX;
}

static int root_of(char out[PATH_MAX], const app_options *options)
{
    if (store_root(out, options)) return APP_DONE;
    if (*out) return app_error(APP_FAILED, "the path of the folder for pulled models is too long");
    return app_error(APP_FAILED, "there is no folder for pulled models: neither --cache-dir nor HOME is set");
}

int store_place_find(store_place *place, const source_plan *plan, const char *reference, const app_options *options)
{
    char root[PATH_MAX], id[65];
    ae_sha256 hash;
    *place = (store_place){.lock = -1};
    const int bad = root_of(root, options);
    if (bad) return bad;
    const size_t n = strlen(root) + strlen(plan->folder) + 2;
    ae_sha256_start(&hash);
    ae_sha256_add(&hash, reference, strlen(reference) + 1);
    ae_sha256_add(&hash, options->pull.no_drafter ? "1" : "0", 1);
    ae_sha256_end(&hash, id);
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

static bool is_link_to_nowhere(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && stat(path, &st) != 0 && errno == ENOENT;
}

/* Creates the folder and those above it. ENOENT: `aerie rm` of a neighbour has just removed one that was empty. */
static int make_folders(const char *folder, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/", folder) >= PATH_MAX) return ENAMETOOLONG;
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(path, 0777) && errno != EEXIST) return errno;
        if (is_link_to_nowhere(path)) return ENOTDIR;
        *slash = '/';
    }
    return 0;
}

/* Creates the folder and opens its lock. Until the lock is taken, others may remove folders at any time, so both steps are
 * repeated for about ten seconds while something disappears. */
static int open_lock(store_place *place)
{
    enum { TRIES = 20000, STEP = 137000, STEPS = 7 }; /* uneven pauses, because others may remove folders at a steady pace */
    char made[PATH_MAX] = "", *path = store_path(place, ".lock");
    int reason = ENOENT;
    bool folders = false;
    place->lock = -1;
    if (!path) return app_error_memory("a path");
    for (int i = 0; reason == ENOENT && i < TRIES && !app_interrupted(); i++) {
        if (i) nanosleep(&(struct timespec){.tv_nsec = i % STEPS * STEP}, NULL);
        reason = make_folders(place->folder, made);
        folders = reason == 0;
        if (!folders) continue;
        place->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        reason = place->lock < 0 ? errno : 0;
    }
    int bad = APP_DONE;
    if (place->lock < 0 && app_interrupted()) bad = APP_INTERRUPTED;
    else if (place->lock < 0 && folders) bad = app_error(APP_FAILED, "cannot open '%s': %s", path, strerror(reason));
    else if (place->lock < 0) bad = app_error(APP_FAILED, "cannot make the folder '%s': %s", made, strerror(reason));
    free(path);
    return bad;
}

/* Returns whether the lock's file still has its name: store_place_clear may have removed it meanwhile. */
static bool lock_is_there(const store_place *place)
{
    struct stat ours, named;
    char *path = store_path(place, ".lock");
    const bool same = path && fstat(place->lock, &ours) == 0 && stat(path, &named) == 0 && ours.st_dev == named.st_dev &&
                      ours.st_ino == named.st_ino;
    free(path);
    return same;
}

int store_place_lock(store_place *place, bool quiet)
{
    int bad = open_lock(place);
    for (bool said = quiet; !bad; said = true) {
        if (flock(place->lock, LOCK_EX | LOCK_NB) == 0) {
            if (lock_is_there(place)) return APP_DONE;
            close(place->lock);
            bad = open_lock(place);
            continue;
        }
        if (errno != EWOULDBLOCK && errno != EINTR)
            return app_error(APP_FAILED, "cannot lock '%s': %s", place->folder, strerror(errno));
        if (app_interrupted()) return APP_INTERRUPTED;
        if (!said) app_note("another aerie pulls into '%s'; waiting for it", place->folder);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return bad;
}

char *store_path(const store_place *place, const char *path)
{
    const size_t n = strlen(place->folder) + strlen(path) + 2;
    char *out = malloc(n);
    if (out) snprintf(out, n, "%s/%s", place->folder, path);
    return out;
}

/* ---- Records ------------------------------------------------------------------------------------------ */

static bool has_size(const store_place *place, const source_file *f)
{
    struct stat st;
    char *path = store_path(place, f->path);
    const bool there = path && stat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == f->bytes;
    free(path);
    return there;
}

/* Reads one file of a record. */
static bool read_file(source_plan *plan, const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "path")),
               *sha256 = json_string_value(json_object_get(json, "sha256"));
    const char *etag = json_string_value(json_object_get(json, "etag"));
    const json_int_t bytes = json_integer_value(json_object_get(json, "bytes"));
    char hash[65];
    if (!name || !sha256 || !ae_sha256_read(hash, sha256) || bytes <= 0 || !source_path_is_plain(name)) return false;
    source_file *grown = app_grow(plan->files, plan->n, &plan->capacity, sizeof *grown);
    if (!grown) return false;
    plan->files = grown;
    source_file *f = &grown[plan->n];
    *f = (source_file){.path = strdup(name), .bytes = (uint64_t)bytes};
    memcpy(f->sha256, hash, sizeof hash);
    snprintf(f->etag, sizeof f->etag, "%s", etag ? etag : "");
    plan->n += f->path != NULL;
    return f->path != NULL;
}

/* Reads a record of any size; the caller owns *source (may be NULL). */
static bool read_record(const store_place *place, source_plan *plan, char **source)
{
    size_t i;
    json_t *item, *record = json_load_file(place->record, 0, NULL);
    const json_t *files = json_object_get(record, "files");
    const char *name = json_string_value(json_object_get(record, "source"));
    bool ok = json_array_size(files) > 0 && name;
    *plan = (source_plan){0};
    json_array_foreach(files, i, item) ok = ok && read_file(plan, item);
    if (ok && source) ok = (*source = strdup(name)) != NULL;
    json_decref(record);
    if (!ok) source_free(plan);
    return ok;
}

static bool is_whole(const store_place *place, const source_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++)
        if (!has_size(place, &plan->files[i])) return false;
    return true;
}

bool store_record_read(const store_place *place, source_plan *plan)
{
    const bool ok = read_record(place, plan, NULL);
    if (!ok || is_whole(place, plan)) return ok;
    source_free(plan);
    return false;
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

/* ---- Listing, removing -------------------------------------------------------------------------------- */

static bool is_record(const char *name)
{
    const size_t n = strlen(name);
    return strncmp(name, ".pulled-", 8) == 0 && n > 13 && strcmp(name + n - 5, ".json") == 0;
}

/* Adds a record to the list, or skips another file. Returns false if memory is short. */
static bool add_record(store_entries *entries, const char *folder, const char *name)
{
    struct stat st;
    store_entry *grown = app_grow(entries->items, entries->n, &entries->capacity, sizeof *grown);
    if (!grown) return false;
    entries->items = grown;
    store_entry *e = &grown[entries->n];
    *e = (store_entry){.place = {.folder = strdup(folder), .lock = -1}};
    e->place.record = e->place.folder ? store_path(&e->place, name) : NULL;
    if (!e->place.record) {
        store_place_free(&e->place);
        return false;
    }
    if (!read_record(&e->place, &e->plan, &e->source)) {
        store_place_free(&e->place);
        return true;
    }
    e->whole = is_whole(&e->place, &e->plan);
    if (stat(e->place.record, &st) == 0) e->pulled = (double)st.st_mtim.tv_sec;
    entries->n++;
    return true;
}

/* Lists the records of a folder; depth: the number of levels below it at which they are. */
static int list_folder(store_entries *entries, const char *folder, int depth)
{
    DIR *dir = opendir(folder);
    int bad = APP_DONE;
    if (!dir)
        return errno == ENOENT || errno == ENOTDIR ? APP_DONE
                                                   : app_error(APP_FAILED, "cannot read '%s': %s", folder, strerror(errno));
    for (struct dirent *d; !bad && (d = readdir(dir));) {
        char below[PATH_MAX];
        if (!depth) {
            if (is_record(d->d_name) && !add_record(entries, folder, d->d_name)) bad = app_error_memory("the list of models");
        } else if (d->d_name[0] != '.' && snprintf(below, sizeof below, "%s/%s", folder, d->d_name) < (int)sizeof below) {
            bad = list_folder(entries, below, depth - 1);
        }
    }
    closedir(dir);
    return bad;
}

static int by_source(const void *a, const void *b)
{
    const store_entry *x = a, *y = b;
    const int order = strcmp(x->source, y->source);
    return order ? order : strcmp(x->place.record, y->place.record);
}

int store_list(store_entries *entries, const char *folder, const app_options *options)
{
    char root[PATH_MAX];
    *entries = (store_entries){0};
    int bad = folder ? APP_DONE : root_of(root, options);
    if (!bad) bad = folder ? list_folder(entries, folder, 0) : list_folder(entries, root, 3); /* KIND/OWNER/NAME */
    if (entries->n) qsort(entries->items, entries->n, sizeof *entries->items, by_source);
    return bad;
}

void store_list_free(store_entries *entries)
{
    for (size_t i = 0; i < entries->n; i++) {
        store_place_free(&entries->items[i].place);
        source_free(&entries->items[i].plan);
        free(entries->items[i].source);
    }
    free(entries->items);
    *entries = (store_entries){0};
}

/* Removes parts of files that nobody will continue, but only in the folder itself: the repository's subfolders are left
 * alone. */
static void remove_parts(const store_place *place)
{
    DIR *dir = opendir(place->folder);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        const size_t n = strlen(d->d_name);
        char *path =
            d->d_name[0] == '.' && n > 5 && strcmp(d->d_name + n - 5, ".part") == 0 ? store_path(place, d->d_name) : NULL;
        if (path) unlink(path);
        free(path);
    }
    if (dir) closedir(dir);
}

void store_place_clear(store_place *place)
{
    store_entries left;
    char *lock = store_path(place, ".lock");
    const bool empty = store_list(&left, place->folder, NULL) == APP_DONE && !left.n;
    store_list_free(&left);
    if (empty && lock) {
        remove_parts(place);
        unlink(lock); /* if the folder has other files it stays, and the next pull creates the lock again */
        for (int i = 0; i < 3 && rmdir(place->folder) == 0; i++) *strrchr(place->folder, '/') = '\0';
    }
    free(lock);
    close(place->lock);
    place->lock = -1;
}
