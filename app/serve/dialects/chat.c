/* chat.c - OpenAI's chat completions. */
#include <string.h>

#include "serve/dialects/handlers.h"
#include "serve/request/reply.h"

/* ---- Streams -------------------------------------------------------------------------------------------------------- */

/* Returns the fields that begin every chunk or answer; `object` is its type. */
static json_t *head(const serve_reply_state *r, const char *object)
{
    return json_pack("{s:s, s:s, s:I, s:o, s:s}", "id", r->id, "object", object, "created", (json_int_t)r->created, "model",
                     app_json_text(r->ask.model_name, strlen(r->ask.model_name)), "system_fingerprint", serve_fingerprint());
}

/* Adds a choice's "logprobs" and "finish_reason". */
static void add_rest(serve_parts *out, serve_output *s, const char *finish)
{
    serve_parts_text(out, ",\"logprobs\":");
    serve_parts_logprobs(out, s);
    serve_parts_finish(out, finish);
}

/* Sends one choice's delta with the token data kept so far; takes ownership of delta. */
static bool put_delta(serve_reply_state *r, serve_output *s, json_t *delta, const char *finish)
{
    serve_parts out = {0};
    serve_parts_open(&out, head(r, "chat.completion.chunk"));
    serve_parts_text(&out, ",\"choices\":[");
    serve_parts_open(&out, json_pack("{s:i, s:o}", "index", (int)s->index, "delta", delta));
    add_rest(&out, s, finish);
    serve_parts_text(&out, "}]");
    serve_parts_origins(&out, s, "origins");
    serve_parts_usage(&out, r);
    if (!finish && !serve_output_tells_timings(s)) serve_parts_text(&out, "}");
    else serve_parts_close(&out, json_pack("{s:o}", "timings", serve_json_timings(r, s)));
    return serve_put_parts(r, s, &out);
}

static bool progress(serve_reply_state *r, serve_output *s, json_t *told)
{
    json_t *chunk = head(r, "chat.completion.chunk");
    json_t *choices = json_pack("[{s:i, s:{}, s:n, s:n}]", "index", (int)s->index, "delta", "logprobs", "finish_reason");
    const bool ok = json_object_set_new(chunk, "choices", choices) == 0;
    return json_object_set_new(chunk, "prompt_progress", told) == 0 && serve_put_event(r, NULL, chunk) && ok;
}

static bool begin(serve_reply_state *r)
{
    for (uint32_t i = 0; i < r->n_outputs; i++)
        if (!put_delta(r, &r->outputs[i], json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL)) return false;
    return true;
}

/* Sends a piece of a tool call. The input of a custom tool is a string inside JSON, so it is sent whole once the JSON is
 * complete. */
static bool call_delta(serve_reply_state *r, serve_output *s, const answer_event *e)
{
    const serve_tool_call *c = &s->calls[e->index];
    const bool custom = serve_tools_is_custom(&r->ask, c->name);
    const char *type = custom ? "custom" : "function", *field = custom ? "input" : "arguments";
    json_t *call = NULL;
    if (e->kind == ANSWER_CALL)
        call = json_pack("{s:i, s:s, s:s, s:{s:s, s:s}}", "index", (int)e->index, "id", e->id, "type", type, type, "name",
                         serve_tools_own_name(&r->ask, e->name), field, "");
    else if (custom != (e->kind == ANSWER_CALL_END)) return true;
    else
        call = json_pack("{s:i, s:{s:o}}", "index", (int)e->index, type, field,
                         custom ? serve_tools_input(&c->arguments) : app_json_text(e->text, e->n));
    return put_delta(r, s, json_pack("{s:[o]}", "tool_calls", call), NULL);
}

static bool delta(serve_reply_state *r, serve_output *s, const answer_event *e)
{
    switch (e->kind) {
    case ANSWER_CONTENT: return put_delta(r, s, json_pack("{s:o}", "content", app_json_text(e->text, e->n)), NULL);
    case ANSWER_REASONING: return put_delta(r, s, json_pack("{s:o}", "reasoning_content", app_json_text(e->text, e->n)), NULL);
    default: return call_delta(r, s, e);
    }
}

static bool end_choice(serve_reply_state *r, serve_output *s)
{
    return put_delta(r, s, json_object(), serve_finish_name(serve_output_finish(s)));
}

static bool end(serve_reply_state *r)
{
    if (r->ask.include_usage) {
        json_t *last = head(r, "chat.completion.chunk");
        const bool ok = last && !json_object_set_new(last, "choices", json_array()) &&
                        !json_object_set_new(last, "usage", serve_json_usage(r)) &&
                        !json_object_set_new(last, "timings", serve_json_timings(r, &r->outputs[0]));
        if (!serve_put_event(r, NULL, last) || !ok) return false;
    }
    return serve_put_text(r, "data: [DONE]\n\n");
}

bool serve_openai_fail(serve_reply_state *r)
{
    return serve_put_event(r, NULL,
                           json_pack("{s:{s:o, s:s, s:i}}", "error", "message",
                                     app_json_text(r->error.text, strlen(r->error.text)), "type",
                                     serve_error_type(r->error.status), "code", r->error.status));
}

/* ---- Whole answers ----------------------------------------------------------------------------------------------------- */

static json_t *message_of(serve_output *s)
{
    const bool silent = s->n_calls && !s->content.n;
    json_t *message =
        json_pack("{s:s, s:o}", "role", "assistant", "content", silent ? json_null() : serve_json_string(&s->content));
    bool ok = message != NULL;
    if (ok && s->reasoning.n) ok = !json_object_set_new(message, "reasoning_content", serve_json_string(&s->reasoning));
    if (ok && s->n_calls) ok = !json_object_set_new(message, "tool_calls", serve_json_calls(s));
    if (ok) return message;
    json_decref(message);
    return NULL;
}

static void whole(serve_reply_state *r, serve_parts *out)
{
    serve_parts_open(out, head(r, "chat.completion"));
    serve_parts_text(out, ",\"choices\":[");
    for (uint32_t i = 0; i < r->n_outputs; i++) {
        serve_output *s = &r->outputs[i];
        if (i) serve_parts_text(out, ",");
        serve_parts_open(out, json_pack("{s:i, s:o}", "index", (int)s->index, "message", message_of(s)));
        add_rest(out, s, serve_finish_name(serve_output_finish(s)));
        serve_parts_origins(out, s, "origins");
        serve_parts_text(out, "}");
    }
    serve_parts_text(out, "]");
    serve_parts_close(
        out, json_pack("{s:o, s:o}", "usage", serve_json_usage(r), "timings", serve_json_timings(r, &r->outputs[0])));
}

static const serve_dialect dialect = {
    .prefix = "chatcmpl-",
    .type = "text/event-stream",
    .begin = begin,
    .delta = delta,
    .end_choice = end_choice,
    .end = end,
    .fail = serve_openai_fail,
    .whole = whole,
    .progress = progress,
};

/* Reads a converted request: a completion if it has a "prompt", else a chat. */
static bool read_converted(serve_ask *ask, serve_error *error)
{
    return json_object_get(ask->body, "prompt") ? serve_ask_own_prompt(ask, error) : serve_ask_messages(ask, error);
}

void serve_chat_run(serve_call *call, serve_ask_step *convert, const serve_dialect *as)
{
    serve_reply_run(call, SERVE_KIND_CHAT, convert, read_converted, as);
}

void serve_chat_count(serve_call *call, serve_ask_step *convert, const char *object)
{
    serve_ask ask = {0};
    serve_error error = {0};
    json_t *json = NULL;
    sem_wait(call->work);
    if (serve_ask_read(&ask, call, &error) && convert(&ask, &error) && serve_ask_model(&ask, &error) &&
        serve_ask_messages(&ask, &error))
        json = json_pack("{s:s*, s:I}", "object", object, "input_tokens", (json_int_t)ask.n_tokens);
    serve_text_end(&ask, call, json, &error);
}

void serve_post_chat_count(serve_call *call)
{
    serve_chat_count(call, serve_messages_blocks, "response.input_tokens"); /* llama.cpp's name for it */
}

void serve_post_chat(serve_call *call)
{
    serve_reply_run(call, SERVE_KIND_CHAT, serve_messages_blocks, serve_ask_messages, &dialect);
}
