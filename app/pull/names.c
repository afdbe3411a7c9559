/* names.c - implements names.h. */
#define _DEFAULT_SOURCE 1
#include "pull/names.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pull/caches.h"

/* ---- Names ------------------------------------------------------------------------------------------ */

typedef struct bare_name {
    char owner[128], name[128], tag[128]; /* owner and tag: "" if not given */
    bool of_hf;
} bare_name;

/* Reads a word of letters, digits and -._ at *p, and advances *p. */
static bool take_word(const char **p, char out[128])
{
    size_t n = 0;
    while (isalnum((unsigned char)(*p)[n]) || ((*p)[n] && strchr("-._", (*p)[n]))) n++;
    if (!n || n > 120 || !isalnum((unsigned char)**p)) return false;
    snprintf(out, 128, "%.*s", (int)n, *p);
    *p += n;
    return true;
}

static bool parse(bare_name *out, const char *text)
{
    static const char *const hubs[] = {"hf.co/", "huggingface.co/"};
    const char *p = text;
    *out = (bare_name){.of_hf = false};
    for (size_t i = 0; i < sizeof hubs / sizeof *hubs; i++) {
        if (strncasecmp(text, hubs[i], strlen(hubs[i]))) continue;
        p += strlen(hubs[i]);
        out->of_hf = true;
        break;
    }
    if (!take_word(&p, out->name)) return false;
    if (*p == '/') {
        memcpy(out->owner, out->name, sizeof out->name);
        p++;
        if (!take_word(&p, out->name)) return false;
    }
    if (*p == ':' && (p++, !take_word(&p, out->tag))) return false;
    const size_t n = strlen(out->name);
    const bool is_file = n > 5 && strcasecmp(out->name + n - 5, ".gguf") == 0;
    return !*p && !is_file && (*out->owner || !out->of_hf);
}

bool name_is_bare(const char *text)
{
    bare_name name;
    return !source_is_remote(text) && parse(&name, text);
}

static char *join(const char *a, const char *b, const char *c, const char *d)
{
    const size_t n = strlen(a) + strlen(b) + strlen(c) + strlen(d) + 1;
    char *text = malloc(n);
    if (text) snprintf(text, n, "%s%s%s%s", a, b, c, d);
    return text;
}

char *name_reference(const char *text)
{
    bare_name name;
    const char *hub = strchr(text, '/');
    if (parse(&name, text) && name.of_hf && hub) return join("hf:", hub + 1, "", "");
    return join("ollama:", text, *name.tag ? "" : ":latest", "");
}

/* Returns whether two tags are the same; a missing one means "latest". */
static bool same_tag(const char *a, const char *b)
{
    return strcasecmp(*a ? a : "latest", *b ? b : "latest") == 0;
}

/* ---- What was pulled ---------------------------------------------------------------------------------- */

/* Returns how well an entry matches: 3 by its ollama name, 2 by its repository, 1 by its file; 0 not at all. */
static int fit(const bare_name *name, const store_entry *e)
{
    bare_name it;
    const char *source = e->source;
    if (strncmp(source, "ollama:", 7) == 0 && parse(&it, source + 7))
        return !name->of_hf && strcmp(*name->owner ? name->owner : "library", *it.owner ? it.owner : "library") == 0 &&
                       strcmp(name->name, it.name) == 0 && same_tag(name->tag, it.tag)
                   ? 3
                   : 0;
    if (strncmp(source, "hf:", 3) == 0 && parse(&it, source + 3)) {
        const bool owner = !*name->owner || strcasecmp(name->owner, it.owner) == 0;
        if (owner && strcasecmp(name->name, it.name) == 0 && (!*name->tag || same_tag(name->tag, it.tag))) return 2;
    }
    const char *path = e->plan.files[0].path, *slash = strrchr(path, '/');
    const char *file = slash ? slash + 1 : path;
    const size_t n = strlen(name->name);
    return !*name->owner && !*name->tag && strncasecmp(file, name->name, n) == 0 && strcasecmp(file + n, ".gguf") == 0 ? 1 : 0;
}

static int find_pulled(name_found *out, const bare_name *name, const app_options *options)
{
    store_entries entries;
    const store_entry *found = NULL;
    int best = 0;
    int bad = store_list(&entries, NULL, options);
    for (size_t i = 0; !bad && i < entries.n; i++) {
        const int how = fit(name, &entries.items[i]);
        if (how > best || (how && how == best && entries.items[i].pulled > found->pulled)) {
            best = how;
            found = &entries.items[i];
        }
    }
    if (found && !(out->text = strdup(found->source))) bad = app_error_memory("a model's name");
    out->is_reference = true;
    out->where = "pulled before";
    store_list_free(&entries);
    return bad;
}

/* ---- ollama's store ------------------------------------------------------------------------------------- */

static int find_ollama(name_found *out, const bare_name *name)
{
    char folder[PATH_MAX], path[PATH_MAX], blob[PATH_MAX];
    const char *host = name->of_hf ? "hf.co" : "registry.ollama.ai", *owner = *name->owner ? name->owner : "library";
    for (size_t i = 0; !out->text && cache_ollama_folder(i, folder); i++) {
        const int n = snprintf(path, sizeof path, "%s/manifests/%s/%s/%s/%s", folder, host, owner, name->name,
                               *name->tag ? name->tag : "latest");
        if (n < 0 || n >= (int)sizeof path || !cache_ollama_blob(folder, path, blob)) continue;
        out->text = strdup(blob);
        if (!out->text) return app_error_memory("a path");
    }
    out->is_reference = false;
    out->where = "in ollama's store";
    return APP_DONE;
}

/* ---- Hugging Face's cache --------------------------------------------------------------------------------- */

/* Parses "models--OWNER--REPO". Returns false if the folder has another name. */
static bool hf_repo(const char *folder, bare_name *out)
{
    *out = (bare_name){.of_hf = true};
    return cache_hf_repo(folder, out->owner, out->name);
}

static int find_hf(name_found *out, const bare_name *name)
{
    char folder[PATH_MAX], repo[PATH_MAX], snapshot[PATH_MAX];
    DIR *dir = cache_hf_folder(folder) ? opendir(folder) : NULL;
    bool ok = true;
    for (struct dirent *d; ok && !out->text && dir && (d = readdir(dir));) {
        bare_name it;
        if (!hf_repo(d->d_name, &it) || strcasecmp(it.name, name->name)) continue;
        if (*name->owner && strcasecmp(it.owner, name->owner)) continue;
        if (snprintf(repo, sizeof repo, "%s/%s", folder, d->d_name) >= PATH_MAX || !cache_hf_snapshot(repo, snapshot)) continue;
        source_plan files = {0};
        ok = cache_hf_files(&files, snapshot);
        const source_file *chosen = ok ? source_choose(&files, same_tag(name->tag, "") ? "" : name->tag) : NULL;
        if (chosen) ok = (out->text = join(snapshot, "/", chosen->path, "")) != NULL;
        source_free(&files);
    }
    if (dir) closedir(dir);
    out->is_reference = false;
    out->where = "in Hugging Face's cache";
    return ok ? APP_DONE : app_error_memory("the files of a cache");
}

int name_find(name_found *out, const char *text, bool only_pulled, const app_options *options)
{
    bare_name name;
    *out = (name_found){0};
    if (!parse(&name, text)) return APP_DONE;
    int bad = find_pulled(out, &name, options);
    if (!bad && !out->text && !only_pulled) bad = find_ollama(out, &name);
    if (!bad && !out->text && !only_pulled) bad = find_hf(out, &name);
    return bad;
}

/* ---- Misspellings ------------------------------------------------------------------------------------------- */

/* Keeps the candidate if it is the nearest so far. */
static void consider(char **best, const char *text, const char *candidate)
{
    const char *chosen = app_nearest(text, *best, candidate);
    if (chosen != candidate) return;
    char *copy = strdup(candidate);
    if (!copy) return;
    free(*best);
    *best = copy;
}

static void consider_folder(char **best, const char *text, const char *folder, int depth)
{
    char path[PATH_MAX], name[300];
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        bare_name repo;
        if (d->d_name[0] == '.') continue;
        if (depth && hf_repo(d->d_name, &repo)) {
            consider(best, text, repo.name);
            snprintf(name, sizeof name, "%s/%s", repo.owner, repo.name);
            consider(best, text, name);
        } else if (!depth) {
            const char *slash = strrchr(folder, '/');
            const bool latest = strcmp(d->d_name, "latest") == 0;
            snprintf(name, sizeof name, "%.140s%s%.140s", slash + 1, latest ? "" : ":", latest ? "" : d->d_name);
            consider(best, text, name);
        } else if (snprintf(path, sizeof path, "%s/%s", folder, d->d_name) < PATH_MAX) {
            consider_folder(best, text, path, depth - 1);
        }
    }
    if (dir) closedir(dir);
}

char *name_nearest(const char *text, const app_options *options)
{
    store_entries entries;
    char folder[PATH_MAX], path[PATH_MAX], *best = NULL;
    if (store_list(&entries, NULL, options) == APP_DONE)
        for (size_t i = 0; i < entries.n; i++) {
            bare_name it;
            const char *name = strchr(entries.items[i].source, ':') + 1;
            if (!parse(&it, name)) continue;
            consider(&best, text, name);
            consider(&best, text, it.name);
        }
    store_list_free(&entries);
    for (size_t i = 0; cache_ollama_folder(i, folder); i++)
        if (snprintf(path, sizeof path, "%s/manifests/registry.ollama.ai/library", folder) < PATH_MAX)
            consider_folder(&best, text, path, 1);
    if (cache_hf_folder(folder)) consider_folder(&best, text, folder, 1);
    return best;
}
