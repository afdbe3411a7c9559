/* llama.c - completions and infill in the dialect of llama.cpp's server. */
#include <string.h>

#include "serve/dialects/handlers.h"
#include "serve/request/reply.h"

/* ---- Answers -------------------------------------------------------------------------------------------------------- */

/* Adds "tokens", "origins" and "completion_probabilities", if requested. */
static void add_tokens(serve_parts *out, serve_output *s)
{
    if (s->of->ask.return_tokens) {
        serve_parts_text(out, ",\"tokens\":");
        serve_parts_list(out, serve_token_id, &s->tokens, s->tokens.n);
    }
    serve_parts_origins(out, s, "origins");
    if (!serve_output_has_logprobs(s)) return;
    serve_parts_text(out, ",\"completion_probabilities\":");
    serve_parts_list(out, serve_token_logprob, &s->tokens, s->tokens.n_said);
}

static bool begin(serve_reply_state *r)
{
    (void)r;
    return true;
}

static bool delta(serve_reply_state *r, serve_output *s, const answer_event *e)
{
    if (e->kind != ANSWER_CONTENT || r->ask.only_prompt) return true;
    serve_parts out = {0};
    serve_parts_open(&out, json_pack("{s:i, s:o, s:b, s:i, s:I}", "index", (int)s->index, "content",
                                     app_json_text(e->text, e->n), "stop", 0, "id_slot", -1, "tokens_evaluated",
                                     (json_int_t)r->ask.n_tokens));
    add_tokens(&out, s);
    if (serve_output_tells_timings(s)) serve_parts_close(&out, json_pack("{s:o}", "timings", serve_json_timings(r, s)));
    else serve_parts_text(&out, "}");
    return serve_put_parts(r, s, &out);
}

static bool progress(serve_reply_state *r, serve_output *s, json_t *told)
{
    return serve_put_event(r, NULL,
                           json_pack("{s:i, s:s, s:b, s:i, s:I, s:o}", "index", (int)s->index, "content", "", "stop", 0,
                                     "id_slot", -1, "tokens_evaluated", (json_int_t)r->ask.n_tokens, "prompt_progress", told));
}

static const char *stop_type(const serve_reply_state *r, const serve_output *s)
{
    if (serve_output_finish(s) == SERVE_FINISH_LENGTH) return "limit";
    return serve_output_stop(r, s) ? "word" : "eos";
}

/* Returns the writer for the list that a path of "response_fields" names; NULL: the path names no list. */
static serve_entry *list_named(const serve_output *s, const char *path)
{
    if (strcmp(path, "origins") == 0 && serve_output_has_origins(s)) return serve_token_origin;
    if (strcmp(path, "tokens") == 0 && s->of->ask.return_tokens) return serve_token_id;
    return strcmp(path, "completion_probabilities") == 0 && serve_output_has_logprobs(s) ? serve_token_logprob : NULL;
}

/* Adds the fields of an answer that "response_fields" names, each under its path ("timings/prompt_n"). */
static void add_fields(serve_parts *out, serve_output *s, const json_t *json, const json_t *paths)
{
    const char *comma = "";
    json_t *told = json_object();
    if (!json || !told) out->failed = true;
    serve_parts_text(out, "{");
    for (size_t i = 0; json && i < json_array_size(paths); i++) {
        const char *path = json_string_value(json_array_get(paths, i)), *at = path;
        serve_entry *entry = list_named(s, path);
        json_t *value = entry ? NULL : (json_t *)json;
        while (value) {
            const size_t n = strcspn(at, "/");
            value = json_object_getn(value, at, n);
            if (!at[n]) break;
            at += n + 1;
        }
        if ((!value && !entry) || json_object_get(told, path)) continue;
        if (json_object_set_new(told, path, json_true())) out->failed = true;
        serve_parts_text(out, comma);
        serve_parts_json(out, json_string(path));
        serve_parts_text(out, ":");
        if (entry) serve_parts_list(out, entry, &s->tokens, entry == serve_token_logprob ? s->tokens.n_said : s->tokens.n);
        else serve_parts_json(out, json_incref(value));
        comma = ",";
    }
    json_decref(told);
    serve_parts_text(out, "}");
}

/* Returns a seed as a number, or as a string of digits if it exceeds INT64_MAX, which JSON readers would round. */
static json_t *seed_of(uint64_t seed)
{
    char digits[24];
    if (seed <= INT64_MAX) return json_integer((json_int_t)seed);
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)seed);
    return json_string(digits);
}

static void add_last(serve_reply_state *r, serve_output *s, json_t *content, serve_parts *out)
{
    const char *stop = serve_output_stop(r, s);
    if (r->ask.only_prompt) {
        json_decref(content);
        content = json_string("");
    }
    json_t *json =
        json_pack("{s:i, s:o, s:b, s:i, s:o, s:I, s:I, s:I, s:b, s:b, s:s, s:s, s:o}", "index", (int)s->index, "content",
                  content, "stop", 1, "id_slot", -1, "model", app_json_text(r->ask.model_name, strlen(r->ask.model_name)),
                  "tokens_predicted", (json_int_t)(r->ask.only_prompt ? 0 : s->stats->n_generated), "tokens_evaluated",
                  (json_int_t)r->ask.n_tokens,
                  "tokens_cached", (json_int_t)(s->stats->n_prompt + s->stats->n_generated), "has_new_line",
                  (int)(s->content.n && memchr(s->content.data, '\n', s->content.n)), "truncated", 0, "stop_type",
                  stop_type(r, s), "stopping_word", stop ? stop : "", "timings", serve_json_timings(r, s));
    const json_t *fields = json_object_get(r->ask.body, "response_fields");
    json_t *settings =
        json_pack("{s:o, s:f, s:I}", "seed", seed_of(r->ask.seed + s->index), "temperature",
                  (double)r->ask.sampling.temperature, "n_predict", r->ask.n_predict ? (json_int_t)r->ask.n_predict : -1);
    if (json_object_set_new(json, "generation_settings", settings)) out->failed = true;
    if (json_array_size(fields)) {
        add_fields(out, s, json, fields);
    } else {
        serve_parts_open(out, json_incref(json));
        add_tokens(out, s);
        serve_parts_text(out, "}");
    }
    json_decref(json);
}

static bool end_choice(serve_reply_state *r, serve_output *s)
{
    serve_parts out = {0};
    add_last(r, s, json_string(""), &out);
    return serve_put_parts(r, s, &out);
}

static bool end(serve_reply_state *r)
{
    (void)r;
    return true;
}

static void whole(serve_reply_state *r, serve_parts *out)
{
    const bool many = r->n_outputs > 1;
    for (uint32_t i = 0; i < r->n_outputs; i++) {
        serve_parts_text(out, !many ? "" : i ? "," : "[");
        add_last(r, &r->outputs[i], serve_json_string(&r->outputs[i].content), out);
    }
    if (many) serve_parts_text(out, "]");
}

static const serve_dialect dialect = {
    .prefix = "cmpl-",
    .type = "text/event-stream",
    .begin = begin,
    .delta = delta,
    .end_choice = end_choice,
    .end = end,
    .fail = serve_openai_fail,
    .whole = whole,
    .progress = progress,
};

/* ---- Infill ----------------------------------------------------------------------------------------------------------- */

/* Adds a special token to an infill prompt, if the model has it. */
static bool put_special(serve_ask *ask, aerie_special which, serve_error *error)
{
    const int32_t token = aerie_model_token_special(ask->model->models.model, which);
    return token < 0 || serve_ask_add_tokens(ask, &token, 1, error);
}

/* Adds text to an infill prompt; special tokens in it are not parsed. */
static bool put_string(serve_ask *ask, const char *text, serve_error *error)
{
    return serve_ask_add_text(ask, text, strlen(text), false, false, error);
}

/* Adds other files in the format that code models are trained on: each file follows its name. */
static bool put_extra(serve_ask *ask, const json_t *extra, serve_error *error)
{
    const bool named = aerie_model_token_special(ask->model->models.model, AERIE_SPECIAL_FIM_SEP) >= 0;
    if (!put_special(ask, AERIE_SPECIAL_FIM_REP, error)) return false;
    if (aerie_model_token_special(ask->model->models.model, AERIE_SPECIAL_FIM_REP) >= 0 &&
        !put_string(ask, "project\n", error))
        return false;
    for (size_t i = 0; i < json_array_size(extra); i++) {
        const json_t *chunk = json_array_get(extra, i), *text = json_object_get(chunk, "text");
        const json_t *given = json_object_get(chunk, "filename");
        const char *name = json_string_value(given);
        if (given && !json_is_null(given) && !name)
            return serve_fail(error, 400, "input_extra", "input_extra[%zu]: 'filename' must be a string", i);
        if (!json_is_string(text)) return serve_fail(error, 400, "input_extra", "input_extra[%zu] has no 'text'", i);
        if (named &&
            (!put_special(ask, AERIE_SPECIAL_FIM_SEP, error) || !put_string(ask, name ? name : "file", error)))
            return false;
        if (!put_string(ask, "\n", error) ||
            !serve_ask_add_text(ask, json_string_value(text), json_string_length(text), false, false, error))
            return false;
    }
    if (!named) return true;
    return put_special(ask, AERIE_SPECIAL_FIM_SEP, error) && put_string(ask, "filename\n", error);
}

bool serve_model_fills_gaps(const serve_model *m)
{
    const aerie_model *model = m->models.model;
    return aerie_model_token_special(model, AERIE_SPECIAL_FIM_PRE) >= 0 &&
           aerie_model_token_special(model, AERIE_SPECIAL_FIM_SUF) >= 0 &&
           aerie_model_token_special(model, AERIE_SPECIAL_FIM_MID) >= 0;
}

/* Adds the prompt: other files, prefix, suffix, and the beginning of the text that fills the gap. */
static bool add_gap(serve_ask *ask, const json_t *extra, const char *prefix, const char *suffix, const char *begun,
                    serve_error *error)
{
    const aerie_model *model = ask->model->models.model;
    return (!aerie_model_adds_bos(model) || put_special(ask, AERIE_SPECIAL_BOS, error)) &&
           (!json_array_size(extra) || put_extra(ask, extra, error)) && put_special(ask, AERIE_SPECIAL_FIM_PRE, error) &&
           put_string(ask, prefix, error) && put_special(ask, AERIE_SPECIAL_FIM_SUF, error) && put_string(ask, suffix, error) &&
           put_special(ask, AERIE_SPECIAL_FIM_MID, error) && put_string(ask, begun, error);
}

bool serve_ask_gap(serve_ask *ask, const json_t *prefix, const char *suffix, serve_error *error)
{
    const char *text = json_string_value(prefix);
    if (!serve_model_fills_gaps(ask->model))
        return serve_fail(error, 400, "suffix",
                          "'suffix' is not supported: the model '%.100s' has no fill-in-the-middle (FIM) tokens",
                          ask->model->name);
    if (!text || strlen(text) != json_string_length(prefix))
        return serve_fail(error, 400, "prompt", "with 'suffix', the prompt must be a string without NUL characters");
    return add_gap(ask, NULL, text, suffix, "", error);
}

static bool read_infill(serve_ask *ask, serve_error *error)
{
    const char *prefix = "", *suffix = "", *begun = "";
    const json_t *extra = NULL;
    if (!serve_model_fills_gaps(ask->model))
        return serve_fail(error, 501, "", "infill is not supported: the model '%.100s' has no fill-in-the-middle (FIM) tokens",
                          ask->model->name);
    if (!serve_get_text(ask->body, "input_prefix", &prefix, error) ||
        !serve_get_text(ask->body, "input_suffix", &suffix, error) || !serve_get_text(ask->body, "prompt", &begun, error) ||
        !serve_get_list(ask->body, "input_extra", &extra, error))
        return false;
    return add_gap(ask, extra, prefix, suffix, begun, error);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------------ */

/* Reads the fields that only these paths have. With "n_predict" 0 the prompt is computed for the prefix cache, and the answer
 * has no text.
 */
static bool read_own(serve_ask *ask, serve_error *error)
{
    const json_t *fields = NULL;
    if (!serve_get_list(ask->body, "response_fields", &fields, error)) return false;
    for (size_t i = 0; i < json_array_size(fields); i++) {
        const json_t *path = json_array_get(fields, i);
        if (!json_is_string(path) || strlen(json_string_value(path)) != json_string_length(path))
            return serve_fail(error, 400, "response_fields", "'response_fields' must be a list of field names");
    }
    ask->may_be_zero = true;
    return true;
}

void serve_post_native(serve_call *call)
{
    serve_reply_run(call, SERVE_KIND_TEXT, read_own, serve_ask_own_prompt, &dialect);
}

void serve_post_infill(serve_call *call)
{
    serve_reply_run(call, SERVE_KIND_TEXT, read_own, read_infill, &dialect);
}
