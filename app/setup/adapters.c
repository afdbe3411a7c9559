/* adapters.c - LoRA adapters of --lora and --lora-scaled: reads the lists and loads the files. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aerie_extra.h"
#include "setup/load.h"

static int add(app_loras *l, char *path, float scale)
{
    app_lora *items = app_grow(l->items, l->n, &l->capacity, sizeof *items);
    if (items) l->items = items;
    aerie_adapter_use *uses = items ? realloc(l->uses, l->capacity * sizeof *uses) : NULL;
    if (uses) l->uses = uses;
    if (!uses) {
        free(path);
        return app_error_memory("the options");
    }
    items[l->n] = (app_lora){path};
    uses[l->n] = (aerie_adapter_use){(uint32_t)l->n, scale};
    l->n++;
    return APP_DONE;
}

/* Reads FILE or FILE:SCALE. */
static int add_item(app_loras *l, const char *name, const char *item, size_t n, bool scaled)
{
    char *path = strndup(item, n), *colon = path ? strrchr(path, ':') : NULL, *end = NULL;
    float scale = 1;
    if (!path) return app_error_memory("the options");
    if (scaled && colon) {
        errno = 0;
        scale = (float)app_number(colon + 1, &end);
        if (end == colon + 1 || *end || errno || !isfinite(scale)) end = NULL;
        *colon = '\0';
    }
    if (!*path || (scaled && !end)) {
        const int bad = app_error(APP_USAGE, "%s takes %s; found '%.*s'", name,
                                  scaled ? "FILE:SCALE, or several with commas between"
                                         : "FILE, or several with commas between", (int)(n < 200 ? n : 200), item);
        free(path);
        return bad;
    }
    return add(l, path, scale);
}

int app_loras_add(app_loras *l, const char *name, const char *text, bool scaled)
{
    for (const char *at = text;;) {
        const size_t n = strcspn(at, ",");
        const int bad = add_item(l, name, at, n, scaled);
        if (bad || !at[n]) return bad;
        at += n + 1;
    }
}

void app_loras_free(app_loras *l)
{
    for (size_t i = 0; i < l->n; i++) free(l->items[i].path);
    free(l->items);
    free(l->uses);
    *l = (app_loras){0};
}

int app_adapters_load(app_models *models, const app_options *options)
{
    const app_loras *l = &options->loras;
    aerie_adapter_params params = aerie_adapter_params_default();
    aerie_error error = {0};
    params.n_threads = options->model_params.n_threads;
    params.no_mmap = options->model_params.no_mmap;
    if (options->draft_lora) {
        const aerie_status status =
            aerie_adapter_load(&models->draft_adapter, models->model, options->draft_lora, &params, &error);
        if (status != AERIE_OK) return app_report_load(options, APP_LOADING, status, &error);
    }
    if (!l->n) return APP_DONE;
    models->adapters = calloc(l->n, sizeof(aerie_adapter *));
    if (!models->adapters) return app_error_memory("the adapters");
    for (size_t i = 0; i < l->n; i++) {
        const aerie_status status =
            aerie_adapter_load(&models->adapters[i], models->model, l->items[i].path, &params, &error);
        if (status != AERIE_OK) return app_report_load(options, APP_LOADING, status, &error);
        models->n_adapters++;
    }
    return APP_DONE;
}

void app_adapters_free(app_models *models)
{
    for (size_t i = 0; i < models->n_adapters; i++) aerie_adapter_free(models->adapters[i]);
    free(models->adapters);
    aerie_adapter_free(models->draft_adapter);
    models->draft_adapter = NULL;
    models->adapters = NULL;
    models->n_adapters = 0;
}
