/* pull.c - aerie pull, and pulling models for other commands. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/commands.h"
#include "pull/names.h"
#include "base/sha256.h"
#include "pull/store.h"

/* Returns whether the existing file has this size and hash: another reference may have the same file, or a pull may have been
 * killed just before its end. */
static bool is_there(const char *path, const source_file *wanted)
{
    static const size_t size = 1 << 20;
    struct stat st;
    if (!*wanted->sha256 || stat(path, &st) || !S_ISREG(st.st_mode) || (wanted->bytes && (uint64_t)st.st_size != wanted->bytes))
        return false;
    FILE *file = fopen(path, "rbe");
    char *buffer = malloc(size), found[65] = "";
    ae_sha256 hash;
    ae_sha256_start(&hash);
    for (size_t n; file && buffer && !app_interrupted() && (n = fread(buffer, 1, size, file)) > 0;)
        ae_sha256_add(&hash, buffer, n);
    if (file && buffer && !ferror(file) && !app_interrupted()) ae_sha256_end(&hash, found);
    if (file) fclose(file);
    free(buffer);
    return strcmp(found, wanted->sha256) == 0;
}

static const source_file *in_record(const source_plan *record, const char *path)
{
    for (size_t i = 0; i < record->n; i++)
        if (strcmp(record->files[i].path, path) == 0) return &record->files[i];
    return NULL;
}

/* Creates the folder of a file inside the model's folder. */
static int make_folder_of(char *path, const store_place *place)
{
    for (char *slash = path + strlen(place->folder) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        const bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
        const int bad = made ? APP_DONE : app_error(APP_FAILED, "cannot make the folder '%s': %s", path, strerror(errno));
        *slash = '/';
        if (bad) return bad;
    }
    return APP_DONE;
}

static bool is_known(const source_file *f, const source_plan *record)
{
    const source_file *known = in_record(record, f->path);
    return known && *f->sha256 && strcmp(known->sha256, f->sha256) == 0;
}

/* Checks that there is room for all files before the first byte is fetched, not after some parts of a split model. */
static int check_room(const source_plan *plan, const store_place *place, const char *reference, const source_plan *record)
{
    uint64_t needed = 0;
    struct statvfs fs;
    char more[32], left[32];
    for (size_t i = 0; i < plan->n; i++) {
        const source_file *f = &plan->files[i];
        struct stat st;
        char *path = store_path(place, f->path);
        if (!path) return app_error_memory("a path");
        fetch_file file = {.path = path};
        memcpy(file.sha256, f->sha256, sizeof f->sha256);
        const uint64_t kept = fetch_bytes_kept(&file);
        const bool there = is_known(f, record) || (*f->sha256 && stat(path, &st) == 0 && (uint64_t)st.st_size == f->bytes);
        if (!f->optional && !there && f->bytes > kept && __builtin_add_overflow(needed, f->bytes - kept, &needed))
            needed = UINT64_MAX / 2; /* more than any disk can hold */
        free(path);
    }
    if (statvfs(place->folder, &fs) || needed <= (uint64_t)fs.f_bavail * fs.f_frsize) return APP_DONE;
    return app_error(APP_FAILED, "cannot pull '%s' into '%s': %s; %s more are needed and %s are free", reference, place->folder,
                     strerror(ENOSPC), app_bytes(more, needed), app_bytes(left, (uint64_t)fs.f_bavail * fs.f_frsize));
}

static int get_file(source_file *f, const store_place *place, const source_plan *record, const fetch_settings *settings)
{
    const source_file *known = in_record(record, f->path);
    if (f->wrong)
        return app_error(APP_FAILED, "the server lists '%s' %s; without it nobody can tell whether the file is right", f->path,
                         f->wrong);
    if (is_known(f, record)) {
        f->bytes = known->bytes;
        return APP_DONE;
    }
    char *path = store_path(place, f->path);
    fetch_file file = {.url = f->url, .path = path, .bytes = f->bytes, .present = known != NULL};
    int bad = path ? make_folder_of(path, place) : app_error_memory("a path");
    if (!bad && !known && is_there(path, f)) {
        struct stat st;
        if (stat(path, &st) == 0) f->bytes = (uint64_t)st.st_size;
        free(path);
        return APP_DONE;
    }
    memcpy(file.sha256, f->sha256, sizeof f->sha256);
    if (known && !*f->sha256) memcpy(file.etag, known->etag, sizeof file.etag);
    if (!bad && app_interrupted()) bad = APP_INTERRUPTED;
    if (!bad && (!known || !*file.etag)) store_record_remove(place); /* the record is removed before a file that it names is
                                                                      * replaced */
    if (!bad) bad = fetch_file_get(&file, settings);
    if (!bad && !*file.sha256) { /* not modified */
        file.bytes = known->bytes;
        memcpy(file.sha256, known->sha256, sizeof file.sha256);
    }
    f->bytes = file.bytes;
    memcpy(f->sha256, file.sha256, sizeof f->sha256);
    memcpy(f->etag, file.etag, sizeof f->etag);
    free(path);
    return bad;
}

/* Pulls all files of the reference, under the lock. */
static int get_all(source_plan *plan, const store_place *place, const char *reference, const source_plan *record,
                   const app_options *options, const fetch_settings *settings)
{
    int bad = source_resolve(plan, reference, options, settings);
    if (!bad) bad = check_room(plan, place, reference, record);
    for (size_t i = 0; !bad && i < plan->n; i++) {
        source_file *f = &plan->files[i];
        bad = get_file(f, place, record, settings);
        if (!bad || bad == APP_INTERRUPTED || !f->optional) continue;
        const char *slash = strrchr(f->path, '/');
        const bool tower = strncasecmp(slash ? slash + 1 : f->path, "mmproj", 6) == 0;
        if (!options->quiet) app_note("the %s is left out", tower ? "part that reads images" : "drafter beside the model");
        free(f->url);
        free(f->path);
        *f = plan->files[--plan->n];
        i--;
        bad = APP_DONE;
    }
    return bad ? bad : store_record_write(place, reference, plan);
}

/* Gets the files of a reference; fresh: asks the network even if they are here. The caller owns *place. */
static int pull(source_plan *plan, store_place *place, const char *reference, const app_options *options, bool fresh)
{
    const fetch_settings settings = {
        .token = source_token(reference, options),
        .stall_seconds = options->pull.stall_seconds,
        .n_retries = options->pull.n_retries,
        .quiet = options->quiet,
        .verbose = options->verbose,
    };
    source_plan record = {0};
    int bad = source_folder(plan, reference, options);
    if (!bad) bad = store_place_find(place, plan, reference, options);
    bool there = !bad && store_record_read(place, &record);
    if (!bad && !(there && !fresh)) {
        if (options->pull.offline)
            bad = there ? APP_DONE
                        : app_error(APP_FAILED, "'%s' is not on this machine, and --offline forbids downloading it", reference);
        else if (!fetch_possible())
            bad = app_error(APP_FAILED,
                            "this aerie was built without libcurl and cannot pull '%s'; download the file and give it to -m",
                            reference);
        else bad = store_place_lock(place, options->quiet);
        if (!bad && place->lock >= 0) {
            source_free(&record); /* another pull may have finished while this one waited */
            there = store_record_read(place, &record);
            if (!there || fresh) {
                bad = get_all(plan, place, reference, &record, options, &settings);
                source_free(&record);
                there = false;
            }
        }
    }
    if (!bad && there) {
        free(plan->folder);
        *plan = record;
        return APP_DONE;
    }
    source_free(&record);
    return bad;
}

/* ---- For other commands --------------------------------------------------------------------------------- */

static int keep(app_options *options, char *text, const char **out)
{
    const char **grown =
        text ? app_grow(options->pulled.items, options->pulled.n, &options->pulled.capacity, sizeof *grown) : NULL;
    if (!grown) {
        free(text);
        return app_error_memory("the options");
    }
    options->pulled.items = grown;
    *out = grown[options->pulled.n++] = text;
    return APP_DONE;
}

/* Replaces the reference in *text by the path of its file. The reference may follow "NAME=", which has n_name bytes including
 * the '='. */
static int replace(app_options *options, const char **text, size_t n_name)
{
    source_plan plan = {0};
    store_place place = {.lock = -1};
    int bad = pull(&plan, &place, *text + n_name, options, false);
    char *path = bad ? NULL : store_path(&place, plan.files[0].path), *whole = path;
    if (path && n_name && (whole = malloc(n_name + strlen(path) + 1))) {
        memcpy(whole, *text, n_name);
        strcpy(whole + n_name, path);
        free(path);
    }
    if (!bad) bad = keep(options, whole, text);
    source_free(&plan);
    store_place_free(&place);
    return bad;
}

/* Suggests a similar name after a model could not be pulled. */
static void advise(const char *name, const app_options *options)
{
    char *near = name_nearest(name, options);
    if (near) app_note("did you mean '%s', which is on this machine? 'aerie list' shows what was pulled", near);
    else app_note("names are those of ollama's library; hf:OWNER/REPO[:QUANT] is a model of Hugging Face, a path is a file");
    free(near);
}

/* Returns whether a name has a part of the file's ending ".gguf", so that it means the file rather than a library's model. */
static bool has_ending(const char *name, const char *file)
{
    const size_t n = strlen(file);
    return n > 5 && strcasecmp(file + n - 5, ".gguf") == 0 && strlen(name) > n - 5;
}

/* Finds the file that the path of a missing one may misspell, or begin, in the same folder; bare: the path is a name that may
 * also be a model's. Writes its name, or "" if there is none. Returns whether the folder can be read. */
static bool find_near(const char *path, bool bare, char near[256])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *folder = slash ? strndup(path, slash > path ? (size_t)(slash - path) : 1) : strdup(".");
    DIR *all = folder ? opendir(folder) : NULL;
    *near = '\0';
    for (const struct dirent *e; all && *name && (e = readdir(all));) {
        if (strcmp(e->d_name, name) == 0 || (bare && !has_ending(name, e->d_name))) continue;
        const bool begins = !*near && strncmp(e->d_name, name, strlen(name)) == 0;
        if (begins || app_nearest(name, *near ? near : NULL, e->d_name) == e->d_name)
            snprintf(near, 256, "%s", e->d_name);
    }
    if (all) closedir(all);
    free(folder);
    return all != NULL;
}

/* Says that there is no such file, and which one of the same folder was meant. */
static int suggest(const char *path, const char *near, int status)
{
    const char *slash = strrchr(path, '/');
    return app_error(status, "there is no file '%s'; did you mean '%.*s%s'?", path, slash ? (int)(slash + 1 - path) : 0, path,
                     near);
}

/* Refuses a name that nearly is that of a GGUF file in the current folder. */
static int refuse_near(const char *name)
{
    char near[256];
    if (strpbrk(name, "/:") || !find_near(name, true, near) || !*near) return APP_DONE;
    return suggest(name, near, APP_BAD_FILE);
}

/* Replaces a bare name by the path or reference that it means; pulls: an unknown name is taken as one of ollama's library. */
static int settle_name(app_options *options, const char **text, size_t n_name, bool pulls)
{
    name_found found;
    const char *name = *text + n_name, *slash = strrchr(name, '/');
    int bad = name_find(&found, name, false, options);
    if (!bad && !found.text) bad = refuse_near(name);
    if (bad || (!found.text && !pulls)) return bad;
    const bool known = found.text != NULL, fetched = !known || found.is_reference;
    if (!known) found.text = name_reference(name);
    const bool named = !n_name && options->command->bit & APP_SERVE; /* so that requests can use the name that the user typed */
    const int n_own = named ? (int)strlen(slash ? slash + 1 : name) : (int)n_name;
    const size_t size = (size_t)n_own + (found.text ? strlen(found.text) : 0) + 2;
    char *whole = found.text ? malloc(size) : NULL;
    if (whole)
        snprintf(whole, size, "%.*s%s%s", n_own, named && slash ? slash + 1 : *text, named ? "=" : "", found.text);
    char *typed = strdup(name);
    free(found.text);
    if (!typed) {
        free(whole);
        return app_error_memory("the options");
    }
    bad = keep(options, whole, text);
    const size_t n = (size_t)n_own + named;
    if (!bad && !options->quiet && known) app_note("'%s' is '%s', %s", typed, *text + n, found.where);
    else if (!bad && !options->quiet) app_note("'%s' is not a model on this machine; it is taken as '%s'", typed, *text + n);
    if (!bad && fetched) bad = replace(options, text, n);
    if (bad && bad != APP_INTERRUPTED && !known) advise(typed, options);
    free(typed);
    return bad;
}

static bool is_reference(const char *text)
{
    return text && source_is_remote(text) && access(text, F_OK);
}

/* Refuses a path into an existing folder that names no file there, since it is a typing error rather than a model in a library.
 * Returns APP_DONE for other texts. */
static int refuse_path(const char *text)
{
    const char *slash = strrchr(text, '/');
    char near[256];
    if (!slash || slash == text || !find_near(text, false, near)) return APP_DONE;
    if (*near) return suggest(text, near, APP_FAILED);
    return app_error(APP_FAILED, "there is no file '%s'; write ollama:%s for the model of ollama's library", text, text);
}

/* An error if there is no such file, but the same folder has one with a similar name. */
static int suggest_path(const char *path)
{
    char near[256];
    if (access(path, F_OK) == 0 || !find_near(path, false, near) || !*near) return APP_DONE;
    return suggest(path, near, APP_BAD_FILE);
}

/* Resolves a model that is not a file: a reference, or a bare name. `typed`: it was given as an argument, which can mean
 * nothing else. */
static int settle_model(app_options *options, const char **text, bool typed)
{
    if (!*text || access(*text, F_OK) == 0) return APP_DONE;
    if (is_reference(*text)) return replace(options, text, 0);
    if (name_is_bare(*text)) {
        const int bad = refuse_path(*text);
        return bad ? bad : settle_name(options, text, 0, typed);
    }
    const char *equals = options->command->bit & APP_SERVE ? strchr(*text, '=') : NULL;
    const size_t n = equals && equals > *text ? (size_t)(equals + 1 - *text) : 0;
    if (n && is_reference(equals + 1)) return replace(options, text, n);
    if (n && access(equals + 1, F_OK) && name_is_bare(equals + 1)) return settle_name(options, text, n, typed);
    if (typed && strpbrk(*text, " \t\n"))
        return app_error(APP_USAGE, "'%s' is neither a file nor a model's name; the model comes first: aerie %s MODEL ...",
                         *text, options->command->name);
    return n ? suggest_path(equals + 1) : suggest_path(*text);
}

/* Makes "hf:REPO" or "hf:REPO/FILE" from llama.cpp's two options, for the model, or for the server's list `models`. */
static int take_repo(app_options *options, const char *repo, const char *file, const char **model)
{
    const size_t n = strcspn(repo, ":");
    const size_t size = strlen(repo) + (file ? strlen(file) : 0) + 8;
    char *text = malloc(size);
    if (text && file) snprintf(text, size, "hf:%.*s/%s", (int)n, repo, file); /* the file's option overrides the quantization */
    else if (text) snprintf(text, size, "%s%s", strncmp(repo, "hf:", 3) ? "hf:" : "", repo);
    return keep(options, text, model);
}

static int add_model(app_options *options, const char *model)
{
    app_texts *models = &options->serve.models;
    if (!(options->command->bit & APP_SERVE)) {
        if (options->model) return app_error(APP_USAGE, "-m, -hf and -mu exclude each other: each of them names the model");
        options->model = model;
        return APP_DONE;
    }
    const char **grown = app_grow(models->items, models->n, &models->capacity, sizeof *grown);
    if (!grown) return app_error_memory("the options");
    models->items = grown;
    grown[models->n++] = model;
    return APP_DONE;
}

static int take_llamas_options(app_options *options)
{
    app_pull_options *p = &options->pull;
    const char *model = NULL;
    int bad = APP_DONE;
    if (p->hf_file && !p->hf_repo) return app_error(APP_USAGE, "--hf-file names a file of a repository: -hf OWNER/REPO");
    if (p->hf_repo) bad = take_repo(options, p->hf_repo, p->hf_file, &model);
    if (!bad && model) bad = add_model(options, model);
    if (!bad && p->model_url) bad = add_model(options, p->model_url);
    if (!bad && p->hf_repo_draft && options->draft_model)
        bad = app_error(APP_USAGE, "-md and -hfd exclude each other: each of them names the drafter");
    if (!bad && p->hf_repo_draft) bad = take_repo(options, p->hf_repo_draft, NULL, &options->draft_model);
    return bad;
}

int app_pull_models(app_options *options)
{
    app_texts *models = &options->serve.models;
    int bad = take_llamas_options(options);
    app_interrupt_arm();
    if (!bad) bad = settle_model(options, &options->model, options->model_typed);
    if (!bad) bad = settle_model(options, &options->draft_model, false);
    for (size_t i = 0; !bad && i < options->bench.more_drafts.n; i++)
        bad = settle_model(options, &options->bench.more_drafts.items[i], false);
    for (size_t i = 0; !bad && i < models->n; i++) bad = settle_model(options, &models->items[i], options->model_typed);
    if (!bad && options->command->bit & APP_INSPECT && options->arguments.n == 1)
        bad = settle_model(options, &options->arguments.items[0], true);
    app_interrupt_disarm();
    return bad;
}

/* ---- aerie pull --------------------------------------------------------------------------------------------- */

static json_t *json_of(const char *reference, const source_plan *plan, const store_place *place)
{
    json_t *files = json_array();
    for (size_t i = 0; i < plan->n; i++) {
        const source_file *f = &plan->files[i];
        char *path = store_path(place, f->path);
        app_json_append(files, json_pack("{s:o, s:I, s:s}", "path", app_json_text(path ? path : "", path ? strlen(path) : 0),
                                         "bytes", (json_int_t)f->bytes, "sha256", f->sha256));
        free(path);
    }
    return json_pack("{s:o, s:o}", "source", app_json_text(reference, strlen(reference)), "files", files);
}

/* Pulls a reference or a bare name: of an already pulled model, else of ollama's library. */
static int pull_one(const char *typed, const app_options *options)
{
    source_plan plan = {0};
    store_place place = {.lock = -1};
    name_found found = {0};
    const bool is_name = name_is_bare(typed);
    int bad = is_name ? name_find(&found, typed, true, options) : APP_DONE;
    const bool known = found.text != NULL;
    if (!bad && is_name && !known && !(found.text = name_reference(typed))) bad = app_error_memory("a model's name");
    if (found.text && !options->quiet) app_note("'%s' is taken as '%s'", typed, found.text);
    const char *reference = found.text ? found.text : typed;
    if (!bad && !source_is_remote(reference))
        bad = app_error(APP_USAGE,
                        "'%s' is not on the network; pull takes hf:OWNER/REPO[:QUANT], ollama:NAME[:TAG], an address or a "
                        "model's name",
                        typed);
    if (!bad) bad = pull(&plan, &place, reference, options, true);
    if (bad && bad != APP_INTERRUPTED && is_name && !known) advise(typed, options);
    char *path = bad ? NULL : store_path(&place, plan.files[0].path);
    if (!bad && !path) bad = app_error_memory("a path");
    if (!bad && options->json) bad = app_print_json(json_of(reference, &plan, &place));
    else if (!bad) app_print("%s\n", path);
    free(path);
    free(found.text);
    source_free(&plan);
    store_place_free(&place);
    return bad;
}

int app_pull(const app_options *options)
{
    int bad = APP_DONE;
    if (!options->arguments.n)
        return app_error(APP_USAGE,
                         "'pull' needs to know what: hf:OWNER/REPO[:QUANT], ollama:NAME[:TAG], the address of a file or a "
                         "model's name");
    if (options->arguments.n > 1 && options->pull.sha256)
        return app_error(APP_USAGE, "--sha256 is the hash of one file, but %zu are requested", options->arguments.n);
    app_interrupt_arm();
    for (size_t i = 0; !bad && i < options->arguments.n; i++) bad = pull_one(options->arguments.items[i], options);
    return bad;
}
