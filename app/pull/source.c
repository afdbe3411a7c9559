/* source.c - implements source.h. Sources: the APIs of the Hugging Face hub (api/models/.../tree, resolve) and of OCI
 * registries as ollama uses them (v2/.../manifests, blobs).
 */
#define _GNU_SOURCE 1 /* strcasestr */
#include "pull/source.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/sha256.h"

enum { MAX_PAGES = 100, MAX_FILES = 100000 };

static const char hf[] = "hf:", ollama[] = "ollama:";

static bool starts(const char *text, const char *with)
{
    return strncasecmp(text, with, strlen(with)) == 0;
}

bool source_is_remote(const char *text)
{
    return starts(text, hf) || starts(text, ollama) || starts(text, "http://") || starts(text, "https://");
}

void source_free(source_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        free(plan->files[i].url);
        free(plan->files[i].path);
    }
    free(plan->files);
    free(plan->folder);
    *plan = (source_plan){0};
}

bool source_path_is_plain(const char *path)
{
    for (const char *part = path;; part++) {
        const size_t n = strcspn(part, "/");
        if (n == 0 || n > 200 || part[0] == '.') return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)part[i] < 0x20 || part[i] == 0x7f || part[i] == '\\') return false;
        part += n;
        if (!*part) return true;
    }
}

static char *format_text(const char *format, ...) APP_PRINTF(1, 2);

static char *format_text(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : malloc((size_t)n + 1);
    if (!text) return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    return text;
}

/* Returns a path for an address, with all bytes except letters, digits and -._~/ as %XX. */
static char *escape_path(const char *path)
{
    char *out = malloc(3 * strlen(path) + 1), *to = out;
    for (; out && *path; path++) {
        if (isalnum((unsigned char)*path) || strchr("-._~/", *path)) *to++ = *path;
        else to += sprintf(to, "%%%02X", (unsigned char)*path);
    }
    if (out) *to = '\0';
    return out;
}

/* Adds a file, which takes ownership of url and path; they may be NULL (out of memory). */
static int add_file(source_plan *plan, char *url, char *path, uint64_t bytes, const char *sha256)
{
    source_file *grown = url && path ? app_grow(plan->files, plan->n, &plan->capacity, sizeof *grown) : NULL;
    if (!grown) {
        free(url);
        free(path);
        return app_error_memory("the list of files");
    }
    plan->files = grown;
    grown[plan->n] = (source_file){.url = url, .path = path, .bytes = bytes};
    snprintf(grown[plan->n].sha256, sizeof grown->sha256, "%s", sha256 ? sha256 : "");
    plan->n++;
    return APP_DONE;
}

/* Reads hash and size of a file in a service's list. Absent means unknown; any other value must be valid. */
static const char *read_claims(const json_t *hash, const json_t *size, char sha256[65], uint64_t *bytes)
{
    *bytes = json_is_integer(size) && json_integer_value(size) > 0 ? (uint64_t)json_integer_value(size) : 0;
    *sha256 = '\0';
    if (hash && !json_is_null(hash) && !(json_is_string(hash) && ae_sha256_read(sha256, json_string_value(hash))))
        return "with a SHA-256 that is not 64 hexadecimal digits";
    if (size && !json_is_null(size) && !(json_is_integer(size) && json_integer_value(size) >= 0))
        return "with a size that is not a number of bytes";
    return NULL;
}

static int parse_json(json_t **out, const app_text *text, const char *url)
{
    json_error_t error;
    *out = json_loadb(text->data, text->n, JSON_REJECT_DUPLICATES, &error);
    return *out ? APP_DONE : app_error(APP_FAILED, "'%s' does not answer with JSON (%s)", url, error.text);
}

static int get_json(json_t **out, char **next, const char *url, const char *accept, const fetch_settings *settings)
{
    app_text text = {0};
    int bad = fetch_text(&text, next, url, accept, settings);
    if (!bad && (bad = parse_json(out, &text, url)) && next) {
        free(*next);
        *next = NULL;
    }
    app_text_free(&text);
    return bad;
}

/* ---- References ------------------------------------------------------------------------------------- */

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

/* Copies the plain name at *text to out; *text moves past it. */
static bool take_name(const char **text, char out[128])
{
    size_t n = 0;
    while (is_name_char((*text)[n])) n++;
    if (n == 0 || n > 120 || **text == '.') return false;
    snprintf(out, 128, "%.*s", (int)n, *text);
    *text += n;
    return true;
}

typedef struct hf_reference {
    char owner[128], repo[128], quant[128];
    const char *file; /* NULL: chosen by quant, which may be "" */
} hf_reference;

static int parse_hf(hf_reference *r, const char *reference)
{
    const char *p = reference + strlen(hf);
    *r = (hf_reference){.file = NULL};
    bool ok = take_name(&p, r->owner) && *p++ == '/' && take_name(&p, r->repo);
    if (ok && *p == ':') ok = (p++, take_name(&p, r->quant)) && !*p;
    else if (ok && *p == '/') ok = source_path_is_plain(r->file = p + 1);
    else ok = ok && !*p;
    if (ok) return APP_DONE;
    return app_error(APP_USAGE,
                     "'%s' is not a Hugging Face model; it is written hf:OWNER/REPO, hf:OWNER/REPO:QUANT or "
                     "hf:OWNER/REPO/FILE.gguf",
                     reference);
}

typedef struct ollama_reference {
    char owner[128], name[128], tag[128];
} ollama_reference;

static int parse_ollama(ollama_reference *r, const char *reference)
{
    const char *p = reference + strlen(ollama);
    *r = (ollama_reference){.owner = "library", .tag = "latest"};
    bool ok = take_name(&p, r->name);
    if (ok && *p == '/') {
        memcpy(r->owner, r->name, sizeof r->name);
        ok = (p++, take_name(&p, r->name));
    }
    if (ok && *p == ':') ok = (p++, take_name(&p, r->tag));
    if (ok && !*p) return APP_DONE;
    return app_error(APP_USAGE,
                     "'%s' is not a model of ollama; it is written ollama:NAME, ollama:NAME:TAG or ollama:OWNER/NAME:TAG",
                     reference);
}

/* Copies the name of the file at the end of an address. */
static int name_in_url(char out[256], const char *url)
{
    const size_t n = strcspn(url, "?#");
    const char *host = strstr(url, "://") + 3;
    size_t start = n, k = 0;
    while (start > (size_t)(host - url) && url[start - 1] != '/') start--;
    const bool has_path = memchr(host, '/', (size_t)(url + n - host)) != NULL;
    for (size_t i = start; has_path && i < n && k < 240; i++) {
        unsigned byte;
        if (url[i] == '%' && i + 2 < n && isxdigit((unsigned char)url[i + 1]) && isxdigit((unsigned char)url[i + 2]) &&
            sscanf(url + i + 1, "%2x", &byte) == 1) {
            out[k++] = (char)byte;
            i += 2;
        } else out[k++] = url[i];
    }
    out[k] = '\0';
    const bool ok =
        k > 5 && strcasecmp(out + k - 5, ".gguf") == 0 && !strchr(out, '/') && strlen(out) == k && source_path_is_plain(out);
    return ok ? APP_DONE : app_error(APP_USAGE, "'%.*s' does not end in the name of a file (.gguf)", (int)n, url);
}

int source_folder(source_plan *plan, const char *reference, const app_options *options)
{
    hf_reference h;
    ollama_reference o;
    char name[256];
    int bad;
    (void)options;
    *plan = (source_plan){0};
    if (starts(reference, hf)) {
        bad = parse_hf(&h, reference);
        if (!bad) plan->folder = format_text("hf/%s/%s", h.owner, h.repo);
    } else if (starts(reference, ollama)) {
        bad = parse_ollama(&o, reference);
        if (!bad) plan->folder = format_text("ollama/%s/%s", o.owner, o.name);
    } else {
        const char *host = strstr(reference, "://") + 3, *at = memchr(host, '@', strcspn(host, "/?#"));
        if (at) host = at + 1;
        bad = name_in_url(name, reference);
        size_t n = 0;
        while (is_name_char(host[n])) n++;
        if (!bad && (n == 0 || n > 120 || host[0] == '.')) bad = app_error(APP_USAGE, "'%s' names no host", reference);
        ae_sha256 hash; /* hash of the address without the file's name, so that the parts of a split model are in one folder */
        char id[65];
        const size_t length = strcspn(reference, "?#");
        const char *end = reference + length;
        while (end > host && end[-1] != '/') end--;
        ae_sha256_start(&hash);
        ae_sha256_add(&hash, host, (size_t)(end - host));
        ae_sha256_end(&hash, id);
        if (!bad) plan->folder = format_text("url/%.*s/%.12s", (int)n, host, id);
    }
    if (!bad && !plan->folder) bad = app_error_memory("a folder's name");
    return bad;
}

/* ---- Hugging Face -------------------------------------------------------------------------------------- */

/* Returns the address of the hub, from llama.cpp's or huggingface_hub's variable. */
static const char *hf_endpoint(void)
{
    const char *given = getenv("HF_ENDPOINT");
    return given && *given ? given : "https://huggingface.co";
}

const char *source_token(const char *reference, const app_options *options)
{
    const char *given = options->pull.hf_token, *variable = getenv("HF_TOKEN"), *endpoint = hf_endpoint();
    const char *token = given && *given ? given : variable && *variable ? variable : NULL;
    const size_t n = strlen(endpoint) - (endpoint[strlen(endpoint) - 1] == '/');
    const bool of_hub = strncasecmp(reference, endpoint, n) == 0 && strchr("/?#", reference[n]);
    return starts(reference, hf) || of_hub ? token : NULL;
}

/* The GGUF files of a repository, sorted by name. */
typedef struct hf_list {
    source_plan files; /* without addresses */
} hf_list;

static int by_path(const void *a, const void *b)
{
    return strcmp(((const source_file *)a)->path, ((const source_file *)b)->path);
}

static bool ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && strcasecmp(text + n - k, end) == 0;
}

/* Reads one page of the list. */
static int read_page(hf_list *list, const json_t *page, const char *url)
{
    size_t i;
    json_t *item;
    int bad = APP_DONE;
    if (!json_is_array(page)) return app_error(APP_FAILED, "'%s' does not answer with a list of files", url);
    json_array_foreach(page, i, item)
    {
        const char *path = json_string_value(json_object_get(item, "path")),
                   *type = json_string_value(json_object_get(item, "type"));
        const json_t *lfs = json_object_get(item, "lfs");
        char sha256[65];
        uint64_t bytes;
        if (!path || !type || strcmp(type, "file") || !ends_in(path, ".gguf") || !source_path_is_plain(path)) continue;
        if (list->files.n >= MAX_FILES) return app_error(APP_FAILED, "'%s' lists more than %d files", url, MAX_FILES);
        const char *wrong =
            read_claims(json_object_get(lfs, "oid"), json_object_get(lfs ? lfs : item, "size"), sha256, &bytes);
        bad = add_file(&list->files, strdup(""), strdup(path), bytes, sha256);
        if (bad) return bad;
        list->files.files[list->files.n - 1].wrong = wrong;
    }
    return APP_DONE;
}

static int read_list(hf_list *list, const char *endpoint, const hf_reference *r, const fetch_settings *settings)
{
    char *url = format_text("%s/api/models/%s/%s/tree/main?recursive=true", endpoint, r->owner, r->repo);
    int bad = url ? APP_DONE : app_error_memory("an address");
    for (int i = 0; !bad && url; i++) {
        json_t *page = NULL;
        char *next = NULL;
        bad = i < MAX_PAGES ? get_json(&page, &next, url, "application/json", settings)
                            : app_error(APP_FAILED, "'%s' lists files without end", endpoint);
        if (!bad) bad = read_page(list, page, url);
        json_decref(page);
        free(url);
        url = next;
        if (!bad && url && !starts(url, endpoint))
            bad = app_error(APP_FAILED, "'%s' continues its list of files elsewhere", endpoint);
    }
    free(url);
    if (list->files.n) qsort(list->files.files, list->files.n, sizeof *list->files.files, by_path);
    return bad;
}

/* Returns whether the path contains the word, with no letters or digits beside it, in any case. */
static bool has_word(const char *path, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = path; *p; p++) {
        const bool begins = p == path || !(isalnum((unsigned char)p[-1]) || p[-1] == '_');
        if (begins && strncasecmp(p, word, n) == 0 && !(isalnum((unsigned char)p[n]) || p[n] == '_')) return true;
    }
    return false;
}

static const char *drafter_suffix(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (has_word(name, "dspark")) return "-dspark.gguf";
    if (has_word(name, "dflash")) return "-dflash.gguf";
    if (has_word(name, "eagle3") || has_word(name, "eagle-3")) return "-eagle3.gguf";
    return has_word(name, "mtp") || has_word(name, "it-assistant") ? "-mtp.gguf" : NULL; /* gemma-4-...-it-assistant */
}

/* Returns whether a file is a model that can be chosen by its quantization, not a later part, a vision encoder or a drafter. */
bool source_is_model(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    unsigned part, of;
    app_split_name(path, &part, &of);
    return part <= 1 && !strcasestr(name, "mmproj") && !strcasestr(name, "imatrix") && !drafter_suffix(path);
}

/* Returns the file with this quantization: the shortest name contains nothing else. NULL: there is none. */
static const source_file *of_quant(const hf_list *list, const char *quant)
{
    const source_file *best = NULL;
    for (size_t i = 0; i < list->files.n; i++) {
        const source_file *f = &list->files.files[i];
        if (source_is_model(f->path) && has_word(f->path, quant) && (!best || strlen(f->path) < strlen(best->path))) best = f;
    }
    return best;
}

static const source_file *of_path(const hf_list *list, const char *path)
{
    for (size_t i = 0; i < list->files.n; i++)
        if (strcmp(list->files.files[i].path, path) == 0) return &list->files.files[i];
    return NULL;
}

/* Lists the quantizations of the repository, for a message. */
static int no_such_file(const hf_list *list, const hf_reference *r)
{
    app_text known = {0};
    char more[48] = "";
    size_t n = 0;
    for (size_t i = 0; i < list->files.n; i++) {
        const char *path = list->files.files[i].path;
        if (!source_is_model(path) || ++n > 12) continue;
        if (!app_text_add(&known, ", ", known.n ? 2 : 0) || !app_text_add(&known, path, strlen(path))) break;
    }
    if (n > 12) snprintf(more, sizeof more, " and %zu more", n - 12);
    const int bad = n ? app_error(APP_FAILED, "hf:%s/%s has no '%s'; it has %s%s", r->owner, r->repo,
                                  r->file ? r->file : r->quant, known.data ? known.data : "", more)
                      : app_error(APP_FAILED, "hf:%s/%s contains no model in GGUF format", r->owner, r->repo);
    app_text_free(&known);
    return bad;
}

static const source_file *choose(const hf_list *list, const hf_reference *r)
{
    static const char *const usual[] = {"Q4_K_M", "Q8_0"}; /* as llama.cpp */
    if (r->file) return of_path(list, r->file);
    if (*r->quant) return of_quant(list, r->quant);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        const source_file *f = of_quant(list, usual[i]);
        if (f) return f;
    }
    for (size_t i = 0; i < list->files.n; i++)
        if (source_is_model(list->files.files[i].path)) return &list->files.files[i];
    return NULL;
}

const source_file *source_choose(source_plan *files, const char *quant)
{
    hf_reference r = {.file = NULL};
    snprintf(r.quant, sizeof r.quant, "%s", quant);
    if (files->n) qsort(files->files, files->n, sizeof *files->files, by_path);
    const hf_list list = {.files = *files};
    return choose(&list, &r);
}

/* local: the file's name here; NULL: the same. */
static int take_file(source_plan *plan, const source_file *f, const char *endpoint, const hf_reference *r, char *local)
{
    char *escaped = escape_path(f->path);
    char *url = escaped ? format_text("%s/%s/%s/resolve/main/%s", endpoint, r->owner, r->repo, escaped) : NULL;
    free(escaped);
    const int bad = add_file(plan, url, local ? local : strdup(f->path), f->bytes, f->sha256);
    if (!bad) plan->files[plan->n - 1].wrong = f->wrong;
    return bad;
}

/* Adds the other parts of a split model. */
static int take_parts(source_plan *plan, const hf_list *list, const source_file *first, const char *endpoint,
                      const hf_reference *r)
{
    unsigned part, of;
    const size_t n = app_split_name(first->path, &part, &of);
    int bad = APP_DONE;
    for (unsigned i = 1; !bad && part && i <= of; i++) {
        char *path = format_text("%.*s-%05u-of-%05u.gguf", (int)n, first->path, i, of);
        const source_file *f = path ? of_path(list, path) : NULL;
        if (!path) bad = app_error_memory("a file's name");
        else if (!f) bad = app_error(APP_FAILED, "hf:%s/%s lacks '%s', a part of a split model", r->owner, r->repo, path);
        else if (i != part) bad = take_file(plan, f, endpoint, r, NULL);
        free(path);
    }
    return bad;
}

/* Plans to pull a drafter from the repository: in the model's folder if there is one, with the shortest name. It is stored
 * where aerie looks for it. */
static int take_drafter(source_plan *plan, const hf_list *list, const source_file *model, const char *endpoint,
                        const hf_reference *r)
{
    const source_file *best = NULL;
    const char *slash = strrchr(model->path, '/');
    const size_t n_folder = slash ? (size_t)(slash + 1 - model->path) : 0;
    if (drafter_suffix(model->path)) return APP_DONE; /* it was asked for by name */
    for (size_t i = 0; i < list->files.n; i++) {
        const source_file *f = &list->files.files[i];
        unsigned part, of;
        app_split_name(f->path, &part, &of);
        if (part || !drafter_suffix(f->path)) continue;
        const bool near = strncmp(f->path, model->path, n_folder) == 0;
        const bool best_near = best && strncmp(best->path, model->path, n_folder) == 0;
        if (!best || near > best_near || (near == best_near && strlen(f->path) < strlen(best->path))) best = f;
    }
    if (!best) return APP_DONE;
    unsigned part, of;
    char *local = format_text("%.*s%s", (int)app_split_name(model->path, &part, &of), model->path, drafter_suffix(best->path));
    const int bad = local ? take_file(plan, best, endpoint, r, local) : app_error_memory("a file's name");
    if (!bad) plan->files[plan->n - 1].optional = true;
    return bad;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Returns the number of leading folders that both paths share. */
static size_t shared_folders(const char *a, const char *b)
{
    size_t n = 0;
    for (; *a && *a == *b; a++, b++) n += *a == '/';
    return n;
}

/* Ranks a vision encoder's file by the type in its name; the best rank is the highest. An encoder is small compared to its
 * model, so
 * 16 bits are preferred to 8; F32 takes twice the space of F16 for almost no gain. */
static int tower_rank(const char *name)
{
    static const char *const types[] = {"F32", "Q8_0", "BF16", "F16"}; /* the best last */
    int rank = 0;
    for (int i = 0; i < 4; i++)
        if (has_word(name, types[i])) rank = i + 1;
    return rank;
}

/* Plans to pull the vision encoder, too: the mmproj file nearest to the model's folder, and among several of these the best
 * type. It is stored beside the model, where aerie looks for it. */
static int take_tower(source_plan *plan, const hf_list *list, const source_file *model, const char *endpoint,
                      const hf_reference *r)
{
    const source_file *best = NULL;
    if (strcasestr(name_of(model->path), "mmproj")) return APP_DONE; /* it was asked for by name */
    for (size_t i = 0; i < list->files.n; i++) {
        const source_file *f = &list->files.files[i];
        unsigned part, of;
        app_split_name(f->path, &part, &of);
        if (part || !strcasestr(name_of(f->path), "mmproj") || strcasestr(name_of(f->path), "imatrix")) continue;
        const long near = best ? (long)shared_folders(f->path, model->path) - (long)shared_folders(best->path, model->path) : 1;
        const int better = best ? tower_rank(name_of(f->path)) - tower_rank(name_of(best->path)) : 1;
        if (near > 0 || (near == 0 && (better > 0 || (better == 0 && strlen(f->path) < strlen(best->path))))) best = f;
    }
    if (!best) return APP_DONE;
    const char *name = name_of(best->path);
    char *local = format_text("%.*s%s%s", (int)(name_of(model->path) - model->path), model->path,
                              strncasecmp(name, "mmproj", 6) ? "mmproj-" : "", name);
    const int bad = local ? take_file(plan, best, endpoint, r, local) : app_error_memory("a file's name");
    if (!bad) plan->files[plan->n - 1].optional = true;
    return bad;
}

static int resolve_hf(source_plan *plan, const char *reference, const app_options *options, const fetch_settings *settings)
{
    hf_reference r;
    hf_list list = {0};
    char *endpoint = strdup(hf_endpoint());
    if (!endpoint) return app_error_memory("an address");
    if (*endpoint && endpoint[strlen(endpoint) - 1] == '/') endpoint[strlen(endpoint) - 1] = '\0';
    int bad = parse_hf(&r, reference);
    if (!bad) bad = read_list(&list, endpoint, &r, settings);
    const source_file *model = bad ? NULL : choose(&list, &r);
    if (!bad && !model) bad = no_such_file(&list, &r);
    if (!bad) bad = take_file(plan, model, endpoint, &r, NULL);
    if (!bad) bad = take_parts(plan, &list, model, endpoint, &r);
    if (!bad && !options->pull.no_drafter) bad = take_drafter(plan, &list, model, endpoint, &r);
    if (!bad && !options->no_mmproj) bad = take_tower(plan, &list, model, endpoint, &r);
    source_free(&list.files);
    free(endpoint);
    return bad;
}

/* ---- ollama ------------------------------------------------------------------------------------------------ */

static int resolve_ollama(source_plan *plan, const char *reference, const app_options *options, const fetch_settings *settings)
{
    static const char accept[] = "application/vnd.docker.distribution.manifest.v2+json";
    ollama_reference r;
    json_t *manifest = NULL, *layer;
    size_t i, n_models = 0;
    int bad = parse_ollama(&r, reference);
    if (bad) return bad;
    const char *registry = options->pull.registry ? options->pull.registry : "https://registry.ollama.ai";
    const size_t n = strlen(registry) - (*registry && registry[strlen(registry) - 1] == '/');
    char *url = format_text("%.*s/v2/%s/%s/manifests/%s", (int)n, registry, r.owner, r.name, r.tag);
    bad = url ? get_json(&manifest, NULL, url, accept, settings) : app_error_memory("an address");
    free(url);
    const json_t *layers = json_object_get(manifest, "layers");
    json_array_foreach(layers, i, layer)
    {
        const char *type = json_string_value(json_object_get(layer, "mediaType"));
        const char *digest = json_string_value(json_object_get(layer, "digest"));
        char sha256[65];
        uint64_t bytes;
        const bool tower = type && strcmp(type, "application/vnd.ollama.image.projector") == 0 && !options->no_mmproj;
        if (bad || !type || !digest || (!tower && strcmp(type, "application/vnd.ollama.image.model"))) continue;
        const char *wrong =
            read_claims(json_object_get(layer, "digest"), json_object_get(layer, "size"), sha256, &bytes);
        n_models += !tower;
        if (n_models > 1 || wrong || !starts(digest, "sha256:")) {
            bad = app_error(APP_FAILED, "'%s' has a manifest that aerie does not know: %s", reference,
                            n_models > 1 ? "several files of weights"
                            : wrong      ? wrong
                                         : "a digest that is not SHA-256");
            continue;
        }
        bad = add_file(plan, format_text("%.*s/v2/%s/%s/blobs/%s", (int)n, registry, r.owner, r.name, digest),
                       format_text("%s%s-%s.gguf", tower ? "mmproj-" : "", r.name, r.tag), bytes, sha256);
        if (bad) continue;
        source_file *added = &plan->files[plan->n - 1], first = *added;
        added->optional = first.optional = tower;
        if (!tower) *added = plan->files[0], plan->files[0] = first; /* the model comes first */
    }
    json_decref(manifest);
    if (!bad && !n_models) bad = app_error(APP_FAILED, "'%s' has no file of weights in its manifest", reference);
    return bad;
}

/* ---- Addresses ----------------------------------------------------------------------------------------------- */

/* Returns the address of a file whose page on the hub is given: replaces /blob/ by /resolve/. */
static char *file_address(const char *url)
{
    const char *endpoint = hf_endpoint(), *blob = strstr(url, "/blob/");
    if (!blob || strncasecmp(url, endpoint, strlen(endpoint))) return strdup(url);
    return format_text("%.*s/resolve/%s", (int)(blob - url), url, blob + strlen("/blob/"));
}

static int resolve_url(source_plan *plan, const char *url)
{
    char name[256];
    unsigned part, of;
    int bad = name_in_url(name, url);
    const size_t n = bad ? 0 : app_split_name(name, &part, &of);
    if (bad) return bad;
    char *address = file_address(url);
    if (!address) return app_error_memory("an address");
    if (!part) {
        bad = add_file(plan, address, strdup(name), 0, NULL);
        return bad;
    }
    /* the address has the same digits as the name */
    char digits[24];
    snprintf(digits, sizeof digits, "-%05u-of-%05u", part, of);
    char *at = NULL;
    for (char *p = address; (p = strstr(p, digits)); p++) at = p;
    for (unsigned k = 0; !bad && at && k < of; k++) {
        const unsigned i = k == 0 ? part : k < part ? k : k + 1;
        bad = add_file(plan, format_text("%.*s-%05u%s", (int)(at - address), address, i, at + 6),
                       format_text("%.*s-%05u-of-%05u.gguf", (int)n, name, i, of), 0, NULL);
    }
    if (!at) bad = app_error(APP_USAGE, "'%s' does not spell the number of its part", url);
    free(address);
    return bad;
}

int source_resolve(source_plan *plan, const char *reference, const app_options *options, const fetch_settings *settings)
{
    const char *given = options->pull.sha256;
    int bad = starts(reference, hf)       ? resolve_hf(plan, reference, options, settings)
              : starts(reference, ollama) ? resolve_ollama(plan, reference, options, settings)
                                          : resolve_url(plan, reference);
    if (bad || !given) return bad;
    char hash[65];
    if (!ae_sha256_read(hash, given))
        return app_error(APP_USAGE, "--sha256 takes 64 hexadecimal digits; found '%s'", given);
    source_file *first = &plan->files[0];
    unsigned part, of;
    app_split_name(first->path, &part, &of);
    if (part) return app_error(APP_USAGE, "--sha256 is the hash of one file, but '%s' is split into %u", reference, of);
    if (*first->sha256 && strcmp(first->sha256, hash))
        return app_error(APP_FAILED, "'%s' has SHA-256 %s there, but --sha256 is %s", reference, first->sha256, hash);
    memcpy(first->sha256, hash, sizeof hash);
    return APP_DONE;
}
