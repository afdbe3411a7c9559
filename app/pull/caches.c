/* caches.c - implements caches.h. Sources: the layout of ollama's models folder (manifests/HOST/OWNER/NAME/TAG, blobs) and of
 * Hugging Face's cache (models--OWNER--REPO/refs, snapshots).
 */
#define _DEFAULT_SOURCE 1
#include "pull/caches.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"

static char *join(const char *a, const char *b, const char *c)
{
    const size_t n = strlen(a) + strlen(b) + strlen(c) + 1;
    char *text = malloc(n);
    if (text) snprintf(text, n, "%s%s%s", a, b, c);
    return text;
}

/* ---- ollama's store ------------------------------------------------------------------------------------- */

bool cache_ollama_folder(size_t i, char out[PATH_MAX])
{
    const char *given = getenv("OLLAMA_MODELS"), *home = getenv("HOME");
    if (i == 0 && given && *given) return snprintf(out, PATH_MAX, "%s", given) < PATH_MAX;
    if (given && *given) return false;
    if (i == 0) return snprintf(out, PATH_MAX, "%s/.ollama/models", home ? home : "") < PATH_MAX;
    if (i == 1) return snprintf(out, PATH_MAX, "/usr/share/ollama/.ollama/models") < PATH_MAX; /* of its service */
    return false;
}

bool cache_ollama_blob(const char *folder, const char *path, char out[PATH_MAX])
{
    json_t *manifest = json_load_file(path, 0, NULL), *layer;
    size_t i, n = 0;
    bool ok = false;
    struct stat st;
    json_array_foreach(json_object_get(manifest, "layers"), i, layer)
    {
        const char *type = json_string_value(json_object_get(layer, "mediaType"));
        const char *digest = json_string_value(json_object_get(layer, "digest"));
        char hash[65];
        if (!type || strcmp(type, "application/vnd.ollama.image.model")) continue;
        ok = n++ == 0 && digest && ae_sha256_read(hash, digest) &&
             snprintf(out, PATH_MAX, "%s/blobs/sha256-%s", folder, hash) < PATH_MAX && stat(out, &st) == 0 &&
             S_ISREG(st.st_mode);
    }
    json_decref(manifest);
    return ok;
}

/* ---- Hugging Face's cache --------------------------------------------------------------------------------- */

bool cache_hf_folder(char out[PATH_MAX])
{
    const char *hub = getenv("HF_HUB_CACHE"), *old = getenv("HUGGINGFACE_HUB_CACHE"), *home = getenv("HF_HOME");
    const char *xdg = getenv("XDG_CACHE_HOME"), *user = getenv("HOME");
    if (!hub || !*hub) hub = old;
    if (hub && *hub) return snprintf(out, PATH_MAX, "%s", hub) < PATH_MAX;
    if (home && *home) return snprintf(out, PATH_MAX, "%s/hub", home) < PATH_MAX;
    if (xdg && *xdg == '/') return snprintf(out, PATH_MAX, "%s/huggingface/hub", xdg) < PATH_MAX;
    return user && *user && snprintf(out, PATH_MAX, "%s/.cache/huggingface/hub", user) < PATH_MAX;
}

bool cache_hf_repo(const char *folder, char owner[128], char repo[128])
{
    static const char start[] = "models--";
    const char *begin = folder + sizeof start - 1, *end = strncmp(folder, start, sizeof start - 1) ? NULL : strstr(begin, "--");
    if (!end) return false;
    snprintf(owner, 128, "%.*s", (int)(end - begin < 127 ? end - begin : 127), begin);
    snprintf(repo, 128, "%.127s", end + 2);
    return true;
}

/* Lists the GGUF files in a folder and below it. Returns false if memory is short. */
static bool list_gguf(source_plan *files, const char *folder, const char *below, int depth)
{
    char path[PATH_MAX];
    bool ok = snprintf(path, sizeof path, "%s/%s", folder, below) < PATH_MAX;
    DIR *dir = ok ? opendir(path) : NULL;
    for (struct dirent *d; ok && dir && (d = readdir(dir));) {
        char *name = d->d_name[0] == '.' ? NULL : join(below, *below ? "/" : "", d->d_name);
        const size_t n = name ? strlen(name) : 0;
        char whole[PATH_MAX];
        if (n > 5 && strcasecmp(name + n - 5, ".gguf") == 0) {
            if (snprintf(whole, sizeof whole, "%s/%s", folder, name) >= PATH_MAX || access(whole, R_OK)) {
                free(name); /* the blob to which the link points was removed */
                continue;
            }
            source_file *grown = app_grow(files->files, files->n, &files->capacity, sizeof *grown);
            if ((ok = grown != NULL)) {
                files->files = grown;
                grown[files->n++] = (source_file){.path = name};
                name = NULL;
            }
        } else if (name && depth) ok = list_gguf(files, folder, name, depth - 1);
        free(name);
    }
    if (dir) closedir(dir);
    return ok;
}

bool cache_hf_snapshot(const char *repo, char out[PATH_MAX])
{
    char path[PATH_MAX], revision[128] = "";
    struct stat st;
    if (snprintf(path, sizeof path, "%s/refs/main", repo) >= PATH_MAX) return false;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%100[0-9a-zA-Z]", revision) != 1) revision[0] = '\0';
    if (file) fclose(file);
    if (*revision && snprintf(out, PATH_MAX, "%s/snapshots/%s", repo, revision) < PATH_MAX && stat(out, &st) == 0) return true;
    if (snprintf(path, sizeof path, "%s/snapshots", repo) >= PATH_MAX) return false;
    DIR *dir = opendir(path);
    time_t newest = 0;
    bool found = false;
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char one[PATH_MAX];
        if (d->d_name[0] == '.' || snprintf(one, sizeof one, "%s/%s", path, d->d_name) >= PATH_MAX || stat(one, &st)) continue;
        if (found && st.st_mtime <= newest) continue;
        newest = st.st_mtime;
        found = snprintf(out, PATH_MAX, "%s", one) < PATH_MAX;
    }
    if (dir) closedir(dir);
    return found;
}

bool cache_hf_files(source_plan *files, const char *snapshot)
{
    return list_gguf(files, snapshot, "", 2);
}

/* ---- Lists of both ----------------------------------------------------------------------------------------- */

/* Adds an entry without files; NULL: out of memory. */
static store_entry *add_entry(store_entries *entries, const char *folder, char *name)
{
    store_entry *grown = name ? app_grow(entries->items, entries->n, &entries->capacity, sizeof *grown) : NULL;
    char *own = grown ? strdup(folder) : NULL;
    if (grown) entries->items = grown;
    if (!own) {
        free(name);
        return NULL;
    }
    grown[entries->n] = (store_entry){.place = {.folder = own, .lock = -1}, .source = name, .whole = true};
    return &grown[entries->n++];
}

/* Adds a file in the entry's folder, with its size, and with its hash if its name, or that of the file that it links to, has
 * it. */
static bool add_file(store_entry *e, const char *name)
{
    char path[PATH_MAX], target[PATH_MAX];
    struct stat st;
    source_file *grown = app_grow(e->plan.files, e->plan.n, &e->plan.capacity, sizeof *grown);
    if (!grown) return false;
    e->plan.files = grown;
    source_file file = {.path = strdup(name)};
    if (!file.path) return false;
    if (snprintf(path, sizeof path, "%s/%s", e->place.folder, name) < PATH_MAX && stat(path, &st) == 0) {
        const ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        const char *slash = strrchr(n > 0 ? target : path, '/');
        char hash[65];
        if (slash && ae_sha256_read(hash, strncmp(slash + 1, "sha256-", 7) ? slash + 1 : slash + 8))
            memcpy(file.sha256, hash, sizeof hash);
        file.bytes = (uint64_t)st.st_size;
        if (!e->plan.n) e->pulled = (double)st.st_mtime;
    }
    grown[e->plan.n++] = file;
    return true;
}

/* Lists the manifests below a folder HOST/OWNER/NAME, whose files are the tags. name: how the model is called so far. */
static bool list_manifests(store_entries *entries, const char *store, const char *folder, const char *name, int depth)
{
    DIR *dir = opendir(folder);
    bool ok = true;
    for (struct dirent *d; ok && dir && (d = readdir(dir));) {
        char path[PATH_MAX], blob[PATH_MAX];
        const char *own = d->d_name;
        if (*own == '.' || snprintf(path, sizeof path, "%s/%s", folder, own) >= PATH_MAX) continue;
        const bool hidden = depth == 3 && strcmp(own, "registry.ollama.ai") == 0; /* both are the default, and left out */
        const bool library = depth == 2 && !*name && strcmp(own, "library") == 0;
        if (depth == 3 && !hidden && strcmp(own, "hf.co")) continue; /* names of other hosts are not found, either */
        if (depth) {
            char *longer = hidden || library ? strdup(name) : join(name, *name ? "/" : "", own);
            ok = longer && list_manifests(entries, store, path, longer, depth - 1);
            free(longer);
        } else if (cache_ollama_blob(store, path, blob)) {
            char *slash = strrchr(blob, '/');
            *slash = '\0';
            store_entry *e = add_entry(entries, blob, join(name, ":", own));
            ok = e && add_file(e, slash + 1);
        }
    }
    if (dir) closedir(dir);
    return ok;
}

/* Returns the name of a model in a repository of the cache: with the quantization that its file's name ends in, if that means
 * this file, else the file's path. */
static char *name_of(const source_file *f, source_plan *files, const char *repo, const char *snapshot)
{
    char stem[256];
    unsigned part, of;
    const char *slash = strrchr(f->path, '/'), *file = slash ? slash + 1 : f->path;
    const size_t n = app_split_name(file, &part, &of);
    snprintf(stem, sizeof stem, "%.*s", (int)(n < sizeof stem ? n : sizeof stem - 1), file);
    for (char *p = stem; *p; p++) {
        if ((*p != '-' && *p != '.') || strpbrk(p + 1, "-.")) continue;
        const source_file *chosen = source_choose(files, p + 1);
        if (chosen && strcmp(chosen->path, f->path) == 0) return join(repo, ":", p + 1);
    }
    return join(snapshot, "/", f->path);
}

static bool list_repo(store_entries *entries, const char *snapshot, const char *repo)
{
    source_plan files = {0};
    bool ok = cache_hf_files(&files, snapshot);
    (void)source_choose(&files, ""); /* sorts them, so that parts of a split model follow each other */
    for (size_t i = 0; ok && i < files.n; i++) {
        unsigned part, of, next;
        const size_t n = app_split_name(files.files[i].path, &part, &of);
        if (!source_is_model(files.files[i].path)) continue;
        store_entry *e = add_entry(entries, snapshot, name_of(&files.files[i], &files, repo, snapshot));
        ok = e && add_file(e, files.files[i].path);
        for (size_t k = i + 1; ok && part && k < files.n; k++)
            if (app_split_name(files.files[k].path, &next, &of) == n && next > 1 &&
                strncmp(files.files[k].path, files.files[i].path, n) == 0)
                ok = add_file(e, files.files[k].path);
    }
    source_free(&files);
    return ok;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const store_entry *)a)->source, ((const store_entry *)b)->source);
}

int cache_ollama_list(store_entries *entries)
{
    char folder[PATH_MAX], path[PATH_MAX];
    bool ok = true;
    *entries = (store_entries){0};
    for (size_t i = 0; ok && cache_ollama_folder(i, folder); i++)
        if (snprintf(path, sizeof path, "%s/manifests", folder) < PATH_MAX) ok = list_manifests(entries, folder, path, "", 3);
    if (entries->n) qsort(entries->items, entries->n, sizeof *entries->items, by_name);
    return ok ? APP_DONE : app_error_memory("the models of ollama's store");
}

int cache_hf_list(store_entries *entries)
{
    char folder[PATH_MAX], path[PATH_MAX], snapshot[PATH_MAX], owner[128], repo[128], name[300];
    *entries = (store_entries){0};
    DIR *dir = cache_hf_folder(folder) ? opendir(folder) : NULL;
    bool ok = true;
    for (struct dirent *d; ok && dir && (d = readdir(dir));) {
        if (!cache_hf_repo(d->d_name, owner, repo)) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, d->d_name) >= PATH_MAX) continue;
        snprintf(name, sizeof name, "hf.co/%s/%s", owner, repo);
        if (cache_hf_snapshot(path, snapshot)) ok = list_repo(entries, snapshot, name);
    }
    if (dir) closedir(dir);
    if (entries->n) qsort(entries->items, entries->n, sizeof *entries->items, by_name);
    return ok ? APP_DONE : app_error_memory("the models of Hugging Face's cache");
}
