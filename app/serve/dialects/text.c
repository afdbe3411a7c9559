/* text.c - /tokenize, /detokenize and /apply-template: requests that need a model's tokenizer or template, but no session. */
#include <stdlib.h>
#include <string.h>

#include "serve/dialects/handlers.h"

bool serve_text_begin(serve_ask *ask, serve_call *call, serve_error *error)
{
    sem_wait(call->work);
    return serve_ask_read(ask, call, error) && serve_ask_model(ask, error);
}

void serve_text_end(serve_ask *ask, serve_call *call, json_t *json, const serve_error *error)
{
    sem_post(call->work);
    if (!error->status) serve_reply_json(call, 200, json);
    else if (error->status != 499) serve_reply_error(call, error);
    serve_ask_free(ask);
}

void serve_text_reply(serve_call *call, serve_parts *parts, const serve_error *error, void (*release)(void *user), void *user)
{
    if (!error->status) {
        serve_parts_reply(call, parts, release, user); /* sent while call->work is held, since writing may take a while */
    } else {
        if (error->status != 499) serve_reply_error(call, error);
        serve_parts_free(parts);
        release(user);
    }
    sem_post(call->work);
}

/* A request for texts or tokens, and the data of its answer. */
typedef struct texts {
    serve_ask ask;
    app_text text; /* freed with aerie_free */
} texts;

static void texts_free(void *user)
{
    texts *t = user;
    aerie_free(t->text.data);
    serve_ask_free(&t->ask);
    free(t);
}

/* Begins the request by serve_text_begin. Returns NULL after replying with an error. */
static texts *texts_begin(serve_call *call)
{
    serve_error error = {0};
    serve_parts nothing = {0};
    texts *t = calloc(1, sizeof *t);
    if (!t) {
        serve_fail_memory(&error);
        serve_reply_error(call, &error);
        return NULL;
    }
    if (serve_text_begin(&t->ask, call, &error)) return t;
    serve_text_reply(call, &nothing, &error, texts_free, t);
    return NULL;
}

static void texts_end(texts *t, serve_call *call, serve_parts *parts, const serve_error *error)
{
    json_decref(t->ask.body);
    t->ask.body = NULL;
    serve_text_reply(call, parts, error, texts_free, t);
}

/* Returns a token's text as a string, or as a list of its bytes if it is not valid UTF-8. */
static json_t *piece_of(const char *piece, size_t n)
{
    json_t *text = json_stringn(piece, n);
    if (text || app_json_lacked()) return text;
    text = json_array();
    for (size_t i = 0; text && i < n; i++)
        if (json_array_append_new(text, json_integer((unsigned char)piece[i]))) {
            json_decref(text);
            return NULL;
        }
    return text;
}

/* Returns whether the text needs no escapes in JSON. */
static bool is_plain(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~' || text[i] == '"' || text[i] == '\\') return false;
    return true;
}

static bool add_token(void *user, size_t i, app_text *out)
{
    const texts *t = user;
    char digits[16];
    return app_text_add(out, digits, (size_t)snprintf(digits, sizeof digits, "%d", (int)t->ask.tokens[i]));
}

static bool add_piece(void *user, size_t i, app_text *out)
{
    const texts *t = user;
    const int32_t token = t->ask.tokens[i];
    aerie_token_info info = {.text = ""};
    aerie_model_token_info_get(t->ask.model->models.model, token, &info, sizeof info);
    char head[48];
    if (is_plain(info.text, info.n_text)) /* the fast path: most tokens need no escapes, and a request may have millions */
        return app_text_add(out, head, (size_t)snprintf(head, sizeof head, "{\"id\":%d,\"piece\":\"", (int)token)) &&
               app_text_add(out, info.text, info.n_text) && app_text_add(out, "\"}", 2);
    return serve_json_add(out, json_pack("{s:i, s:o}", "id", (int)token, "piece", piece_of(info.text, info.n_text)));
}

void serve_post_tokenize(serve_call *call)
{
    serve_error error = {0};
    serve_parts parts = {0};
    bool add_special = false, parse_special = true, pieces = false;
    texts *t = texts_begin(call);
    if (!t) return;
    serve_ask *ask = &t->ask;
    if (serve_get_bool(ask->body, "add_special", &add_special, &error) &&
        serve_get_bool(ask->body, "parse_special", &parse_special, &error) &&
        serve_get_bool(ask->body, "with_pieces", &pieces, &error)) {
        const json_t *content = json_object_get(ask->body, "content");
        if (!content) content = json_object_get(ask->body, "prompt"); /* vLLM's name for the field */
        if (!json_is_string(content)) serve_fail(&error, 400, "content", "'content' must be a string");
        else
            serve_ask_tokenize(ask, json_string_value(content), json_string_length(content), add_special, parse_special,
                               "content", &ask->tokens, &ask->n_tokens, &error);
    }
    serve_parts_text(&parts, "{\"tokens\":");
    serve_parts_list(&parts, pieces ? add_piece : add_token, t, ask->n_tokens);
    serve_parts_close(&parts, json_pack("{s:I}", "count", (json_int_t)ask->n_tokens));
    texts_end(t, call, &parts, &error);
}

/* Adds the field `name` with the text, to which the prefix of the answer is appended. Takes ownership of text (aerie_free). */
static void tell_text(texts *t, serve_parts *parts, const char *name, char *text, size_t n)
{
    t->text = (app_text){.data = text, .n = n};
    serve_use_force(t->ask.use, n);
    serve_parts_text(parts, name);
    serve_parts_string(parts, &t->text, &t->ask.begun);
    serve_parts_text(parts, "}");
}

/* Returns the total number of bytes of the tokens' texts. */
static size_t text_bytes(const serve_ask *ask)
{
    size_t n = 0;
    for (size_t i = 0; i < ask->n_tokens; i++) {
        aerie_token_info info = {.text = ""};
        aerie_model_token_info_get(ask->model->models.model, ask->tokens[i], &info, sizeof info);
        n += info.n_text;
    }
    return n;
}

void serve_post_detokenize(serve_call *call)
{
    serve_error error = {0};
    serve_parts parts = {0};
    aerie_error why = {0};
    const json_t *list = NULL;
    texts *t = texts_begin(call);
    if (!t) return;
    serve_ask *ask = &t->ask;
    if (serve_get_list(ask->body, "tokens", &list, &error)) {
        for (size_t i = 0; i < json_array_size(list) && !error.status; i++)
            if (!json_is_integer(json_array_get(list, i)))
                serve_fail(&error, 400, "tokens", "'tokens' must be a list of tokens");
        if (!list) serve_fail(&error, 400, "tokens", "'tokens' is missing");
        char *text = NULL;
        size_t n = 0;
        if (!error.status && (!json_array_size(list) || serve_ask_prompt(ask, list, "tokens", &error))) {
            const size_t room = 2 * text_bytes(ask); /* the buffer may grow to twice the size of its text */
            if (!serve_use_add(ask->use, room)) serve_fail_memory(&error);
            const aerie_status status =
                error.status ? AERIE_OK
                             : aerie_model_detokenize(ask->model->models.model, ask->tokens, ask->n_tokens, true, &text, &n,
                                                      &why);
            if (status != AERIE_OK) serve_fail_library(&error, status, &why, "tokens");
            else tell_text(t, &parts, "{\"content\":", text, n);
        }
    }
    texts_end(t, call, &parts, &error);
}

void serve_post_template(serve_call *call)
{
    serve_error error = {0};
    serve_parts parts = {0};
    char *text = NULL;
    size_t n = 0;
    texts *t = texts_begin(call);
    if (!t) return;
    if (serve_messages_blocks(&t->ask, &error) &&
        serve_ask_render(&t->ask, json_object_get(t->ask.body, "messages"), t->ask.body, &text, &n, &error) &&
        serve_ask_kept(&t->ask, &error))
        tell_text(t, &parts, "{\"prompt\":", text, n);
    else aerie_free(text);
    texts_end(t, call, &parts, &error);
}
