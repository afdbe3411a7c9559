/* text.c - tokens, templates: requests that need a model's texts, but no engine. */
#include <string.h>

#include "serve/handlers.h"

bool serve_text_begin(serve_ask *ask, serve_call *call, serve_error *error)
{
    sem_wait(&call->server->work);
    return serve_ask_read(ask, call, error) && serve_ask_model(ask, error);
}

void serve_text_end(serve_ask *ask, serve_call *call, json_t *json, const serve_error *error)
{
    sem_post(&call->server->work);
    if (!error->status) serve_reply_json(call, 200, json);
    else if (error->status != 499) serve_reply_error(call, error);
    serve_ask_free(ask);
}

/* A token's text: a string, or its bytes where it is not whole UTF-8. */
static json_t *piece_of(const serve_model *model, int32_t token)
{
    aerie_token_info info = {.text = ""};
    aerie_token_info_get(model->models.model, token, &info, sizeof info);
    json_t *text = json_stringn(info.text, info.n_text);
    if (text) return text;
    text = json_array();
    for (size_t i = 0; text && i < info.n_text; i++)
        if (json_array_append_new(text, json_integer((unsigned char)info.text[i]))) {
            json_decref(text);
            return NULL;
        }
    return text;
}

static json_t *tokens_of(const serve_ask *ask, const int32_t *tokens, size_t n, bool pieces)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < n; i++)
        ok = !json_array_append_new(
            list, pieces ? json_pack("{s:i, s:o}", "id", (int)tokens[i], "piece", piece_of(ask->model, tokens[i]))
                         : json_integer(tokens[i]));
    if (!ok) json_decref(list);
    return ok ? json_pack("{s:o, s:I}", "tokens", list, "count", (json_int_t)n) : NULL;
}

void serve_post_tokenize(serve_call *call)
{
    serve_ask ask = {0};
    serve_error error = {0};
    aerie_error why = {0};
    json_t *json = NULL;
    bool add_special = false, parse_special = true, pieces = false;
    if (serve_text_begin(&ask, call, &error) && serve_get_bool(ask.body, "add_special", &add_special, &error) &&
        serve_get_bool(ask.body, "parse_special", &parse_special, &error) &&
        serve_get_bool(ask.body, "with_pieces", &pieces, &error)) {
        const json_t *content = json_object_get(ask.body, "content");
        if (!content) content = json_object_get(ask.body, "prompt"); /* as vLLM calls it */
        if (!json_is_string(content)) {
            serve_fail(&error, 400, "content", "'content' must be a string");
        } else {
            const aerie_status status =
                aerie_tokenize(ask.model->models.model, json_string_value(content), json_string_length(content), add_special,
                               parse_special, &ask.tokens, &ask.n_tokens, &why);
            if (status != AERIE_OK) serve_fail_library(&error, status, &why, "content");
            else json = tokens_of(&ask, ask.tokens, ask.n_tokens, pieces);
        }
    }
    serve_text_end(&ask, call, json, &error);
}

void serve_post_detokenize(serve_call *call)
{
    serve_ask ask = {0};
    serve_error error = {0};
    aerie_error why = {0};
    json_t *json = NULL;
    const json_t *list = NULL;
    if (serve_text_begin(&ask, call, &error) && serve_get_list(ask.body, "tokens", &list, &error)) {
        for (size_t i = 0; i < json_array_size(list) && !error.status; i++)
            if (!json_is_integer(json_array_get(list, i)))
                serve_fail(&error, 400, "tokens", "'tokens' must be a list of tokens");
        if (!list) serve_fail(&error, 400, "tokens", "'tokens' is missing");
        char *text = NULL;
        size_t n = 0;
        if (!error.status && (!json_array_size(list) || serve_ask_prompt(&ask, list, "tokens", &error))) {
            const aerie_status status =
                aerie_detokenize(ask.model->models.model, ask.tokens, ask.n_tokens, true, &text, &n, &why);
            if (status != AERIE_OK) serve_fail_library(&error, status, &why, "tokens");
            else json = json_pack("{s:o}", "content", app_json_text(text, n));
            aerie_free(text);
        }
    }
    serve_text_end(&ask, call, json, &error);
}

/* The prompt, and the beginning of the answer that the conversation ends with. */
static json_t *prompt_json(const char *text, size_t n, const app_text *begun)
{
    app_text whole = {0};
    const bool ok = app_text_add(&whole, text, n) && app_text_add(&whole, begun->data, begun->n);
    json_t *json = ok ? json_pack("{s:o}", "prompt", app_json_text(whole.data, whole.n)) : NULL;
    app_text_free(&whole);
    return json;
}

void serve_post_template(serve_call *call)
{
    serve_ask ask = {0};
    serve_error error = {0};
    json_t *json = NULL;
    char *text = NULL;
    size_t n = 0;
    if (serve_text_begin(&ask, call, &error) &&
        serve_ask_render(&ask, json_object_get(ask.body, "messages"), ask.body, &text, &n, &error))
        json = prompt_json(text, n, &ask.begun);
    aerie_free(text);
    serve_text_end(&ask, call, json, &error);
}
