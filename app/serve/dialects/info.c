/* info.c - health, models and properties of the server, the web page and the measured pass times. */
#include <string.h>

#include "aerie_measure.h"
#include "serve/dialects/decide.h"
#include "serve/page/page.h"

/* ---- Health ------------------------------------------------------------------------------------------------------- */

void serve_get_health(serve_call *call)
{
    serve_models *models = call->server->models;
    const double age = serve_models_step_age(models);
    const bool draining = atomic_load(&call->server->draining), stuck = age > call->server->o->stuck;
    const bool lost = serve_models_lost(models);
    bool loading = false;
    pthread_mutex_lock(&models->lock);
    for (size_t i = 0; i < models->n; i++) loading = loading || models->items[i].startup;
    pthread_mutex_unlock(&models->lock);
    const char *status = draining ? "shutting down" : loading ? "loading model" : stuck ? "stuck"
                         : lost ? "device lost" : "ok";
    const bool ok = !draining && !loading && !stuck && !lost;
    json_t *json = json_pack("{s:s, s:o}", "status", status, "seconds_since_step", age >= 0 ? json_real(age) : json_null());
    if (!ok && json &&
        json_object_set_new(json, "error",
                            json_pack("{s:i, s:s, s:s}", "code", 503, "message",
                                      loading ? "Loading model"
                                      : lost ? "the device of all loaded models was lost or hangs; they are being loaded again"
                                             : status, "type",
                                      "unavailable_error"))) {
        json_decref(json);
        json = NULL;
    }
    call->retry_after = ok ? 0 : 2;
    serve_reply_json(call, ok ? 200 : 503, json);
}

/* ---- Models --------------------------------------------------------------------------------------------------------- */

/* Returns the context length of the session, or the trained one for encoders, which have no session. */
uint32_t serve_model_n_ctx(const serve_model *m)
{
    return m->session ? aerie_session_n_ctx(m->session) : m->models.info.n_ctx_train;
}

static const char *speculation_of(const serve_model *m)
{
    return m->session ? aerie_session_spec_name(m->session) : "none";
}

/* Returns "meta" of a loaded model; NULL when out of memory. The caller must hold a use of the model, so that it stays
 * loaded.
 */
static json_t *meta_of(const serve_model *m)
{
    const aerie_model_info *i = &m->models.info;
    char fingerprint[24];
    snprintf(fingerprint, sizeof fingerprint, "%016llx", (unsigned long long)i->fingerprint);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:s, s:s, s:s}", "n_vocab", (json_int_t)i->n_vocab, "n_ctx_train",
                     (json_int_t)i->n_ctx_train, "n_ctx", (json_int_t)serve_model_n_ctx(m), "n_embd",
                     (json_int_t)i->n_embd, "n_params", (json_int_t)i->n_params, "size", (json_int_t)i->file_bytes, "name",
                     app_json_text(i->name, strlen(i->name)), "speculation", speculation_of(m),
                     "fingerprint", fingerprint, "build", serve_fingerprint());
}

/* Returns "modalities", what a model reads and writes, in the format of other servers. */
static json_t *modalities_of(const serve_model *m)
{
    return json_pack("{s:[s, s*], s:[s*, s*]}", "input_modalities", "text", m->tower ? "image" : NULL, "output_modalities",
                     m->models.info.decision ? NULL : "text", decide_kind_of(m) ? "decisions" : NULL);
}

static json_t *model_entry(serve_models *models, serve_model *m)
{
    const bool ready = serve_model_use(models, m);
    json_t *json = json_pack("{s:o, s:s, s:I, s:s, s:{s:s}}", "id", app_json_text(m->name, strlen(m->name)), "object", "model",
                             "created", (json_int_t)models->created, "owned_by", "aerie", "status", "value",
                             serve_state_name(serve_model_state(models, m)));
    if (ready && json &&
        (json_object_set_new(json, "meta", meta_of(m)) || json_object_set_new(json, "architecture", modalities_of(m)))) {
        json_decref(json);
        json = NULL;
    }
    if (ready) serve_models_give(models, m);
    return json;
}

void serve_get_models(serve_call *call)
{
    serve_models *models = call->server->models;
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < models->n; i++) ok = !json_array_append_new(list, model_entry(models, &models->items[i]));
    if (!ok) json_decref(list);
    serve_reply_json(call, 200, ok ? json_pack("{s:s, s:o}", "object", "list", "data", list) : NULL);
}

void serve_get_model(serve_call *call)
{
    const char *name = call->path + strlen("/v1/models/");
    serve_models *models = call->server->models;
    serve_error error = {0};
    for (size_t i = 0; i < models->n; i++) {
        if (strcmp(models->items[i].name, name)) continue;
        serve_reply_json(call, 200, model_entry(models, &models->items[i]));
        return;
    }
    serve_models_unknown(models, name, &error);
    serve_reply_error(call, &error);
}

/* ---- Properties ----------------------------------------------------------------------------------------------------- */

static json_t *defaults_of(const app_options *o)
{
    const aerie_sampling *s = &o->sampling;
    return json_pack("{s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:i, s:i}", "temperature", (double)s->temperature, "top_k",
                     (int)s->top_k, "top_p", (double)s->top_p, "min_p", (double)s->min_p, "repeat_penalty",
                     (double)s->repeat_penalty, "presence_penalty", (double)s->presence_penalty, "frequency_penalty",
                     (double)s->frequency_penalty, "repeat_last_n", (int)s->penalty_last_n, "n_predict", (int)o->n_predict);
}

/* Returns the properties of a model that is not loaded, as far as they are known without reading its file. */
static json_t *sleeping_props(const serve_call *call, const serve_model *m)
{
    return json_pack("{s:{s:i, s:o}, s:i, s:o, s:s, s:s, s:o, s:b}", "default_generation_settings", "n_ctx", 0, "params",
                     defaults_of(call->server->options), "total_slots", 0, "model_path",
                     app_json_text(m->path, strlen(m->path)), "chat_template", "", "build_info", serve_fingerprint(),
                     "model_alias", app_json_text(m->name, strlen(m->name)), "is_sleeping", 1);
}

/* Returns the text of a special token, as the chat template gets it. */
static json_t *token_text(const serve_model *m, int32_t token)
{
    char *text = NULL;
    size_t n = 0;
    if (token >= 0 && aerie_model_detokenize(m->models.model, &token, 1, true, &text, &n, NULL) != AERIE_OK) return NULL;
    json_t *json = app_json_text(text ? text : "", n);
    aerie_free(text);
    return json;
}

static json_t *props_of(const serve_model *m)
{
    const char *text = m->plain.text ? m->plain.text : "";
    const char *tools = m->with_tools.text != m->plain.text ? m->with_tools.text : NULL;
    return json_pack("{s:{s:i, s:o}, s:i, s:o, s:o, s:s, s:s, s:o, s:{s:s, s:s}, s:b, s:{s:b, s:b}, s:o*, s:o*, s:o*}",
                     "default_generation_settings", "n_ctx", (int)serve_model_n_ctx(m), "params", defaults_of(&m->options),
                     "total_slots", (int)m->n_seqs, "model_path", app_json_text(m->path, strlen(m->path)), "chat_template",
                     app_json_text(text, strlen(text)), "build_info", serve_fingerprint(), "speculation", speculation_of(m),
                     "model_alias", app_json_text(m->name, strlen(m->name)), "answers", "format",
                     answer_format_name(m->with_tools.style.format), "reasoning", answer_tags_name(m->plain.style.tags),
                     "is_sleeping", 0,
                     "modalities", "vision", m->tower != NULL, "audio", 0, "chat_template_tool_use",
                     tools ? app_json_text(tools, strlen(tools)) : NULL, "bos_token", token_text(m, m->models.info.bos),
                     "eos_token", token_text(m, m->models.info.eos));
}

void serve_get_props(serve_call *call)
{
    serve_error error = {0};
    serve_models *models = call->server->models;
    const char *name = serve_call_query(call, "model");
    serve_model *m = serve_models_look(models, name, &error);
    if (m) {
        json_t *json = props_of(m);
        serve_models_give(models, m);
        serve_reply_json(call, 200, json);
    } else if (error.status == 503 && !error.retry_after && (m = serve_models_find(models, name))) {
        serve_reply_json(call, 200, sleeping_props(call, m));
    } else {
        serve_reply_error(call, &error);
    }
}

void serve_get_page(serve_call *call)
{
    const serve_page_file *file = serve_page_files;
    while (file->path && strcmp(file->path, call->path) != 0) file++;
    app_text text = {0};
    serve_error error = {0};
    if (file->path && app_text_add(&text, file->data, file->n)) {
        serve_reply(call, 200, file->type, &text);
        return;
    }
    app_text_free(&text);
    serve_fail(&error, 503, "", "not enough memory for the page");
    serve_reply_error(call, &error);
}

#define CURVE_RUNS 2
#define CURVE_PAUSE 60 /* seconds until points that could not be measured are tried again */

typedef struct curve {
    serve_model *model;
    size_t i; /* the point to measure */
    bool measures; /* false: missing points are not measured */
    double seconds[SERVE_N_CURVE];
} curve;

/* Reads point c->i. If it is missing and the session is idle, measures it first, which may empty the prefix cache. */
static void measure_curve(aerie_session *session, void *user)
{
    curve *c = user;
    double runs[CURVE_RUNS];
    double *point = &c->model->curve[c->i];
    if (*point <= 0 && c->measures && !aerie_session_n_tasks(session)) {
        c->model->curve_tried = app_now();
        if (aerie_session_time_pass(session, 1u << c->i, 0, true, CURVE_RUNS, runs, NULL) == AERIE_OK)
            *point = runs[0] < runs[1] ? runs[0] : runs[1];
    }
    c->seconds[c->i] = *point;
}

/* Allows measuring unless an attempt was made less than CURVE_PAUSE seconds ago. */
static void begin_curve(aerie_session *session, void *user)
{
    curve *c = user;
    const double tried = c->model->curve_tried;
    (void)session;
    c->measures = !tried || app_now() - tried >= CURVE_PAUSE;
}

/* Answers with T(n), the seconds of a pass over n rows of the model in ?model=. The first request measures them. */
void serve_get_curve(serve_call *call)
{
    serve_error error = {0};
    serve_model *m = serve_models_look(call->server->models, serve_call_query(call, "model"), &error);
    if (!m) {
        serve_reply_error(call, &error);
        return;
    }
    curve c = {.model = m};
    if (m->session) serve_engine_do(m, begin_curve, &c);
    for (; m->session && c.i < SERVE_N_CURVE; c.i++)
        serve_engine_do(m, measure_curve, &c); /* one point per call, so that waiting requests start between two points */
    serve_models_give(call->server->models, m);
    json_t *points = json_array();
    bool ok = points != NULL;
    for (size_t i = 0; ok && i < SERVE_N_CURVE; i++)
        if (c.seconds[i] > 0)
            ok = json_array_append_new(points, json_pack("{s:i, s:f}", "n", 1 << i, "seconds", c.seconds[i])) == 0;
    if (!ok) json_decref(points);
    serve_reply_json(call, 200, ok ? json_pack("{s:o}", "points", points) : NULL);
}

/* ---- Loading, as llama.cpp's server has it ------------------------------------------------------------------------- */

/* Reads a body that names a model. A single model answers prompts under any name, but is loaded and unloaded only by its own:
 * who names another one does not mean it. */
static bool read_name(serve_ask *ask, serve_call *call, const char **name, serve_error *error)
{
    if (!serve_ask_read(ask, call, error) || !serve_get_text(ask->body, "model", name, error)) return false;
    return (*name && **name) || serve_fail(error, 400, "model", "'model' is missing");
}

void serve_post_load(serve_call *call)
{
    serve_ask ask = {0};
    serve_error error = {0};
    const char *name = NULL;
    sem_wait(call->work);
    bool ok = read_name(&ask, call, &name, &error);
    if (ok && !serve_models_named(call->server->models, name)) ok = serve_models_unknown(call->server->models, name, &error);
    ok = ok && serve_ask_model(&ask, &error);
    json_t *json = ok ? json_pack("{s:b}", "success", 1) : NULL;
    serve_text_end(&ask, call, json, &error);
}

void serve_post_unload(serve_call *call)
{
    serve_models *models = call->server->models;
    serve_ask ask = {0};
    serve_error error = {0};
    const char *name = NULL;
    json_t *json = NULL;
    sem_wait(call->work);
        serve_model *model = read_name(&ask, call, &name, &error) ? serve_models_named(models, name) : NULL;
    if (!model && !error.status) serve_models_unknown(models, name, &error);
    if (model && serve_model_use(models, model)) {
        serve_models_used(models, model, 0); /* unloaded once all who use it have released it */
        serve_models_give(models, model);
    }
    if (model) json = json_pack("{s:b}", "success", 1);
    serve_text_end(&ask, call, json, &error);
}
