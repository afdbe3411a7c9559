/* lora.c - adapters: the scales that a request asks for, and the defaults for other requests (/lora-adapters, as in llama.cpp's
 * server).
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aerie_extra.h"
#include "serve/dialects/handlers.h"

/* ---- Lists of {id, scale} ---------------------------------------------------------------------------------------------- */

/* Reads an entry into scales [n]. */
static bool read_entry(const json_t *entry, float *scales, bool *seen, size_t n, const char *field, serve_error *error)
{
    const json_t *id = json_object_get(entry, "id"), *scale = json_object_get(entry, "scale");
    const double number = json_number_value(id), x = json_number_value(scale);
    if (!json_is_object(entry) || !json_is_number(id) || !json_is_number(scale))
        return serve_fail(error, 400, field, "adapters are a list of objects, each with a number 'id' and a number 'scale'");
    if (!(number >= 0 && number < (double)n) || number != floor(number))
        return serve_fail(error, 400, field,
                          "there is no adapter %.17g; the server was started with %zu (--lora), numbered from "
                          "0",
                          number, n);
    if (!(fabs(x) <= 1e6)) return serve_fail(error, 400, field, "the scale of adapter %.0f must be from -1e6 to 1e6", number);
    if (seen[(size_t)number]) return serve_fail(error, 400, field, "adapter %.0f is listed twice", number);
    seen[(size_t)number] = true;
    scales[(size_t)number] = (float)x;
    return true;
}

/* Reads scales [n] from a list; adapters that it does not name get 0. */
static bool read_scales(const json_t *list, float *scales, size_t n, const char *field, serve_error *error)
{
    bool *seen = calloc(n + 1, sizeof *seen), ok = seen != NULL;
    if (!ok) return serve_fail_memory(error);
    size_t n_used = 0;
    memset(scales, 0, n * sizeof *scales);
    for (size_t i = 0; ok && i < json_array_size(list); i++)
        ok = read_entry(json_array_get(list, i), scales, seen, n, field, error);
    for (size_t i = 0; ok && i < n; i++) n_used += scales[i] != 0;
    free(seen);
    if (ok && n_used > AERIE_MAX_ADAPTERS)
        return serve_fail(error, 400, field, "%zu adapters are requested; at most %d can be used together", n_used,
                          AERIE_MAX_ADAPTERS);
    return ok;
}

/* ---- Scales of models and requests -------------------------------------------------------------------------------------- */

bool serve_lora_open(serve_model *m)
{
    const size_t n = m->models.n_adapters;
    if (m->lora_scales) return true; /* the model was loaded before with the same adapters; keep the scales set since */
    m->lora_scales = calloc(n + 1, sizeof *m->lora_scales);
    for (size_t i = 0; m->lora_scales && i < n && !m->server->o->lora_idle; i++)
        m->lora_scales[i] = m->options.loras.uses[i].scale;
    return m->lora_scales != NULL;
}

bool serve_ask_lora(serve_ask *ask, serve_error *error)
{
    serve_model *m = ask->model;
    if (!m) return true;
    const size_t n = m->models.n_adapters;
    const json_t *list = NULL;
    float *scales = calloc(n + 1, sizeof *scales);
    if (!scales) return serve_fail_memory(error);
    bool ok = serve_get_list(ask->body, "lora", &list, error);
    if (ok && list) { /* an empty list: none of them */
        ok = read_scales(list, scales, n, "lora", error);
    } else if (ok) {
        pthread_mutex_lock(&m->lock);
        memcpy(scales, m->lora_scales, n * sizeof *scales);
        pthread_mutex_unlock(&m->lock);
    }
    for (size_t i = 0; ok && i < n; i++)
        if (scales[i] != 0) ask->adapters[ask->n_adapters++] = (aerie_adapter_use){(uint32_t)i, scales[i]};
    free(scales);
    return ok;
}

/* ---- /lora-adapters ----------------------------------------------------------------------------------------------------- */

static json_t *entry_of(const serve_model *m, size_t i, float scale)
{
    aerie_adapter_info info;
    aerie_adapter_info_get(m->models.adapters[i], &info, sizeof info);
    return json_pack("{s:i, s:o, s:f, s:o, s:o}", "id", (int)i, "path", app_json_text(info.path, strlen(info.path)), "scale",
                     (double)scale, "task_name", app_json_text(info.task_name, strlen(info.task_name)), "prompt_prefix",
                     app_json_text(info.prompt_prefix, strlen(info.prompt_prefix)));
}

void serve_get_lora(serve_call *call)
{
    serve_error error = {0};
    serve_models *models = call->server->models;
    serve_model *m = serve_models_look(models, serve_call_query(call, "model"), &error);
    if (!m) {
        serve_reply_error(call, &error);
        return;
    }
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < m->models.n_adapters; i++) {
        pthread_mutex_lock(&m->lock);
        const float scale = m->lora_scales[i];
        pthread_mutex_unlock(&m->lock);
        ok = !json_array_append_new(list, entry_of(m, i, scale));
    }
    serve_models_give(models, m);
    if (!ok) json_decref(list);
    serve_reply_json(call, 200, ok ? list : NULL);
}

static bool set_scales(serve_model *m, const json_t *list, serve_error *error)
{
    const size_t n = m->models.n_adapters;
    float *scales = calloc(n + 1, sizeof *scales);
    if (!scales) return serve_fail_memory(error);
    const bool ok = read_scales(list, scales, n, "", error);
    if (ok) {
        pthread_mutex_lock(&m->lock);
        memcpy(m->lora_scales, scales, n * sizeof *scales);
        pthread_mutex_unlock(&m->lock);
    }
    free(scales);
    return ok;
}

void serve_post_lora(serve_call *call)
{
    json_error_t where;
    serve_error error = {0};
    serve_models *models = call->server->models;
    json_t *list;
    serve_model *m = NULL;
    if (app_json_read(&list, call->body.data, call->body.n, JSON_REJECT_DUPLICATES, &where) == APP_JSON_NO_MEMORY)
        serve_fail_memory(&error);
    else if (!json_is_array(list)) serve_fail(&error, 400, "", "the body must be a JSON list of {\"id\", \"scale\"}");
    else m = serve_models_take(models, serve_call_query(call, "model"), call, &error);
    const bool ok = m && set_scales(m, list, &error);
    serve_models_give(models, m);
    json_decref(list);
    if (ok) serve_reply_json(call, 200, json_pack("{s:b}", "success", 1));
    else if (error.status != 499) serve_reply_error(call, &error);
}
