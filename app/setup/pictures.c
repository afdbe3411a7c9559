/* pictures.c - the vision encoder of the options, and a prompt with images (load.h). */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "aerie_extra.h"
#include "setup/load.h"

/* ---- Which file ------------------------------------------------------------------------------------------------ */

static bool is_mmproj(const char *name)
{
    const size_t n = strlen(name);
    return strncasecmp(name, "mmproj", 6) == 0 && n > 11 && strcasecmp(name + n - 5, ".gguf") == 0;
}

static char *join(const char *folder, const char *name)
{
    const size_t bytes = strlen(folder) + strlen(name) + 1;
    char *path = malloc(bytes);
    if (path) snprintf(path, bytes, "%s%s", folder, name);
    return path;
}

/* Finds mmproj-NAME beside the model NAME, or else the only mmproj*.gguf in its folder; the caller owns the path. NULL: there
 * is none, or more than one (*n). */
static char *find_beside(const char *model, size_t *n)
{
    const char *slash = strrchr(model, '/');
    char *folder = slash ? strndup(model, (size_t)(slash - model) + 1) : strdup("./"), *found = NULL;
    DIR *dir = folder ? opendir(folder) : NULL;
    *n = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!is_mmproj(e->d_name)) continue;
        if (strncmp(e->d_name, "mmproj-", 7) == 0 && strcmp(e->d_name + 7, slash ? slash + 1 : model) == 0) {
            free(found);
            *n = 1;
            found = join(folder, e->d_name);
            break;
        }
        free(found);
        found = NULL;
        if (++*n > 1) continue;
        found = join(folder, e->d_name);
    }
    if (dir) closedir(dir);
    free(folder);
    return found;
}

char *app_mmproj_path(const app_options *options, size_t *n)
{
    *n = 1;
    if (options->mmproj) return strdup(options->mmproj);
    *n = 0;
    return options->no_mmproj || !options->model ? NULL : find_beside(options->model, n);
}

aerie_tower_params app_tower_params(const app_options *options)
{
    aerie_tower_params params = aerie_tower_params_default();
    params.n_threads = options->n_threads;
    params.min_tokens = options->image_min_tokens, params.max_tokens = options->image_max_tokens;
    return params;
}

/* Returns MEMORY if the machine has not enough memory left for the encoder. */
static aerie_status check_memory(const char *path, const app_options *options, const aerie_tower_params *params,
                                 aerie_error *error)
{
    aerie_memory_plan plan;
    char weights[32], room[32], available[32];
    const aerie_status status =
        aerie_memory_plan_tower(path, &options->model_params, params, 0, 0, &plan, sizeof plan, error);
    if (status != AERIE_OK || !plan.available_bytes || plan.weight_bytes + plan.session_bytes <= plan.available_bytes)
        return status;
    error->status = AERIE_ERROR_MEMORY;
    snprintf(error->text, sizeof error->text,
             "%.200s needs %s of memory, and %s more to read a picture of 1024 x 1024, but only %s are available; --no-mmproj "
             "runs without it", path, app_bytes(weights, plan.weight_bytes), app_bytes(room, plan.session_bytes),
             app_bytes(available, plan.available_bytes));
    return error->status;
}

int app_tower_check(const app_options *options)
{
    const aerie_tower_params params = app_tower_params(options);
    aerie_memory_plan plan;
    aerie_error error = {0};
    return app_report(APP_LOADING, aerie_memory_plan_tower(options->mmproj, &options->model_params, &params, 0, 0, &plan,
                                                           sizeof plan, &error), &error);
}

int app_tower_load(aerie_tower **tower, const app_models *models, const app_options *options)
{
    const aerie_tower_params params = app_tower_params(options);
    aerie_error error = {0};
    size_t n;
    *tower = NULL;
    char *path = app_mmproj_path(options, &n);
    const bool found = path && !options->mmproj;
    if (n > 1 && !options->quiet) app_note("%zu mmproj files lie beside the model; --mmproj FILE chooses one", n);
    if (!path) return APP_DONE;
    aerie_status status = check_memory(path, options, &params, &error);
    if (status == AERIE_OK) status = aerie_tower_load(tower, models->model, path, &params, &error);
    if (status == AERIE_OK && found && !options->quiet) app_note("images are read by '%s' (%s)", path,
                                                                 aerie_tower_type(*tower));
    if (status != AERIE_OK && found) { /* the file was found beside the model, nobody asked for it: no error */
        app_note("the mmproj file beside the model is not used: %s", error.text);
        status = AERIE_OK;
    }
    free(path);
    return app_report(APP_LOADING, status, &error);
}

/* ---- A prompt -------------------------------------------------------------------------------------------------- */

static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    int *percent = user;
    if (isatty(STDERR_FILENO)) {
        if (done < total) app_progress_show("reading the image", done, total, percent);
        else app_progress_clear(percent);
    }
    return !app_interrupted();
}

static int read_image(aerie_image **image, const char *path)
{
    app_text file = {0};
    aerie_error error = {0}, said = {0};
    int bad = app_read_file(&file, path);
    if (bad) return bad;
    const aerie_status status = aerie_image_read(image, file.data, file.n, NULL, &error);
    app_text_free(&file);
    if (status == AERIE_OK) return APP_DONE;
    said.status = status;
    snprintf(said.text, sizeof said.text, "%.200s: %.280s", path, error.text);
    return app_report(APP_LOADING, status, &said);
}

#define MARK "<__media__>"
#define PRIVATE_MARK "\xEE\x80\x80image\xEE\x80\x81" /* private characters around it, for templates that accept only texts */

/* Returns whether the template accepts images as parts of messages. */
static bool knows_images(const app_models *models)
{
    const app_text *given = &models->format.template_text;
    const char *text = given->data ? given->data : models->info.chat_template;
    return text && strstr(text, "image");
}

/* Writes the text with private marks for images; the caller frees it. Returns false if memory is short. */
static bool mark_images(const app_options *options, const char *at, app_text *out)
{
    bool ok = app_text_add(out, "", 0);
    if (!strstr(at, MARK))
        for (size_t i = 0; ok && i < options->images.n; i++) ok = app_text_add(out, PRIVATE_MARK, strlen(PRIVATE_MARK));
    for (const char *next; ok && (next = strstr(at, MARK)); at = next + strlen(MARK))
        ok = app_text_add(out, at, (size_t)(next - at)) && app_text_add(out, PRIVATE_MARK, strlen(PRIVATE_MARK));
    return ok && app_text_add(out, at, strlen(at));
}

/* Returns the conversation: the images, then the text, unless the text says where the images belong. */
static json_t *make_messages(const app_options *options, const app_prompt *prompt, bool parted)
{
    static const char mark[] = MARK;
    json_t *list = json_array(), *parts = json_array();
    const char *at = prompt->text.data;
    if (!parted) {
        app_text text = {0};
        json_decref(parts);
        parts = mark_images(options, at, &text) ? app_json_text(text.data, text.n) : NULL;
        app_text_free(&text);
        if (options->system_prompt)
            app_json_append(list, json_pack("{s:s, s:s}", "role", "system", "content", options->system_prompt));
        app_json_append(list, json_pack("{s:s, s:o}", "role", "user", "content", parts));
        return list;
    }
    if (options->system_prompt)
        app_json_append(list, json_pack("{s:s, s:s}", "role", "system", "content", options->system_prompt));
    if (!strstr(at, mark))
        for (size_t i = 0; i < options->images.n; i++) app_json_append(parts, json_pack("{s:s}", "type", "image"));
    for (const char *next; *at; at = *next ? next + sizeof mark - 1 : next) {
        next = strstr(at, mark);
        if (!next) next = at + strlen(at);
        if (next > at)
            app_json_append(parts, json_pack("{s:s, s:o}", "type", "text", "text", app_json_text(at, (size_t)(next - at))));
        if (*next) app_json_append(parts, json_pack("{s:s}", "type", "image"));
    }
    app_json_append(list, json_pack("{s:s, s:o}", "role", "user", "content", parts));
    return list;
}

static int encode(app_prompt *prompt, aerie_tower *tower, const app_models *models, const app_options *options,
                  const aerie_image *const *images)
{
    aerie_error error = {0};
    aerie_status status;
    int percent = -1;
    if (app_uses_template(models, options)) {
        const bool parted = prompt->is_messages || knows_images(models);
        json_t *messages = prompt->is_messages ? NULL : make_messages(options, prompt, parted);
        char *text = prompt->is_messages ? NULL : json_dumps(messages, JSON_COMPACT | JSON_ENCODE_ANY);
        aerie_chat chat = app_format_chat(&models->format);
        json_decref(messages);
        if (!text && !prompt->is_messages) return app_error_memory("the prompt");
        chat.messages = text ? (aerie_text){text, strlen(text), "the prompt"}
                             : (aerie_text){prompt->text.data, prompt->text.n, prompt->source};
        status = aerie_tower_chat(tower, &chat, parted ? NULL : PRIVATE_MARK, images, options->images.n, on_progress, &percent,
                                  &prompt->pictured, &error);
        free(text);
    } else {
        status = aerie_tower_prompt(tower, prompt->text.data, prompt->text.n, NULL, images, options->images.n, on_progress,
                                    &percent, &prompt->pictured, &error);
    }
    app_progress_clear(&percent);
    if (status == AERIE_ERROR_CANCELLED) return APP_INTERRUPTED;
    return app_report(APP_LOADING, status, &error);
}

int app_pictures_encode(app_prompts *prompts, const app_models *models, const app_options *options)
{
    aerie_tower *tower = NULL;
    aerie_image **images = calloc(options->images.n, sizeof *images);
    if (!images) return app_error_memory("the images");
    int bad = app_tower_load(&tower, models, options);
    if (!bad && !tower)
        bad = app_error(APP_USAGE, "this model reads text only; --mmproj FILE names the part that reads images");
    for (size_t i = 0; !bad && i < options->images.n; i++) bad = read_image(&images[i], options->images.items[i]);
    if (!bad) bad = encode(&prompts->items[0], tower, models, options, (const aerie_image *const *)images);
    for (size_t i = 0; i < options->images.n; i++) aerie_image_free(images[i]);
    free(images);
    aerie_tower_free(tower);
    return bad;
}
