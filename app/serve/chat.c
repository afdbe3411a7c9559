/* chat.c - OpenAI's chat completions. */
#include <string.h>

#include "serve/handlers.h"
#include "serve/reply.h"

/* ---- Streams -------------------------------------------------------------------------------------------------------- */

static json_t *chunk(const serve_reply_state *r, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:o, s:s, s:o}", "id", r->id, "object", "chat.completion.chunk", "created",
                     (json_int_t)r->created, "model", app_json_text(r->ask.model_name, strlen(r->ask.model_name)),
                     "system_fingerprint", serve_fingerprint(), "choices", choices);
}

/* One choice's delta; takes it over, and what has been kept of its tokens. */
static bool put_delta(serve_reply_state *r, serve_said *s, json_t *delta, const char *finish)
{
    json_t *logprobs = serve_take_list(&s->logprobs), *origins = serve_take_list(&s->origins);
    json_t *choice = json_pack("{s:i, s:o, s:o, s:o}", "index", (int)s->index, "delta", delta, "logprobs",
                               logprobs ? json_pack("{s:o}", "content", logprobs) : json_null(), "finish_reason",
                               finish ? json_string(finish) : json_null());
    json_t *all = chunk(r, choice ? json_pack("[o]", choice) : NULL);
    bool ok = all && (!origins || json_object_set(all, "origins", origins) == 0);
    if (ok && finish) ok = json_object_set_new(all, "timings", serve_json_timings(r, s)) == 0;
    json_decref(origins);
    s->told = true;
    return serve_put_event(r, NULL, all) && ok;
}

static bool begin(serve_reply_state *r)
{
    for (uint32_t i = 0; i < r->n_said; i++)
        if (!put_delta(r, &r->said[i], json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL)) return false;
    return true;
}

/* A custom tool's input lies within JSON and comes as one piece, once that is whole. */
static bool call_delta(serve_reply_state *r, serve_said *s, const answer_event *e)
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

static bool delta(serve_reply_state *r, serve_said *s, const answer_event *e)
{
    switch (e->kind) {
    case ANSWER_CONTENT: return put_delta(r, s, json_pack("{s:o}", "content", app_json_text(e->text, e->n)), NULL);
    case ANSWER_REASONING: return put_delta(r, s, json_pack("{s:o}", "reasoning_content", app_json_text(e->text, e->n)), NULL);
    default: return call_delta(r, s, e);
    }
}

static bool end_choice(serve_reply_state *r, serve_said *s)
{
    return put_delta(r, s, json_object(), serve_finish_name(serve_said_finish(s)));
}

static bool end(serve_reply_state *r)
{
    if (r->ask.include_usage) {
        json_t *last = chunk(r, json_array());
        const bool ok = last && !json_object_set_new(last, "usage", serve_json_usage(r)) &&
                        !json_object_set_new(last, "timings", serve_json_timings(r, &r->said[0]));
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

static json_t *whole_choice(serve_said *s)
{
    json_t *logprobs = serve_take_list(&s->logprobs), *origins = serve_take_list(&s->origins);
    const bool silent = s->n_calls && !s->content.n;
    json_t *message =
        json_pack("{s:s, s:o}", "role", "assistant", "content", silent ? json_null() : serve_json_string(&s->content));
    bool ok = message != NULL;
    if (ok && s->reasoning.n) ok = !json_object_set_new(message, "reasoning_content", serve_json_string(&s->reasoning));
    if (ok && s->n_calls) ok = !json_object_set_new(message, "tool_calls", serve_json_calls(s));
    json_t *choice = json_pack("{s:i, s:o, s:o, s:s}", "index", (int)s->index, "message", message, "logprobs",
                               logprobs ? json_pack("{s:o}", "content", logprobs) : json_null(), "finish_reason",
                               serve_finish_name(serve_said_finish(s)));
    if (choice && origins) ok = ok && !json_object_set(choice, "origins", origins);
    json_decref(origins);
    if (ok) return choice;
    json_decref(choice);
    return NULL;
}

static json_t *whole(serve_reply_state *r)
{
    json_t *choices = json_array();
    bool ok = choices != NULL;
    for (uint32_t i = 0; ok && i < r->n_said; i++) ok = !json_array_append_new(choices, whole_choice(&r->said[i]));
    if (!ok) {
        json_decref(choices);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:I, s:o, s:s, s:o, s:o, s:o}", "id", r->id, "object", "chat.completion", "created",
                     (json_int_t)r->created, "model", app_json_text(r->ask.model_name, strlen(r->ask.model_name)),
                     "system_fingerprint", serve_fingerprint(), "choices", choices, "usage", serve_json_usage(r), "timings",
                     serve_json_timings(r, &r->said[0]));
}

static const serve_dialect dialect = {"chatcmpl-", "text/event-stream", begin, delta, end_choice,
                                      end,         serve_openai_fail,   whole};

/* Of a converted request the prompt, if it has one: it asks for a completion. */
static bool read_converted(serve_ask *ask, serve_error *error)
{
    return json_object_get(ask->body, "prompt") ? serve_ask_own_prompt(ask, error) : serve_ask_messages(ask, error);
}

void serve_chat_run(serve_call *call, serve_ask_step *convert, const serve_dialect *as)
{
    serve_reply_run(call, SERVE_KIND_CHAT, convert, convert ? read_converted : serve_ask_messages, as);
}

void serve_post_chat(serve_call *call)
{
    serve_chat_run(call, NULL, &dialect);
}
