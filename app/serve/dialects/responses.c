/* responses.c - OpenAI's Responses API: writes answers as items and events. responses_request.c reads the requests. */
#include <string.h>

#include "serve/dialects/handlers.h"
#include "serve/request/reply.h"

/* ---- Answers ---------------------------------------------------------------------------------------------------------- */

/* Writes the id of an item: the prefix, the random letters of the answer's id, and the item's number. */
static const char *item_id(const serve_reply_state *r, const char *prefix, int i, char out[64])
{
    snprintf(out, 64, "%s_%s%d", prefix, strchr(r->id, '_') + 1, i);
    return out;
}

static json_t *reasoning_item(const serve_reply_state *r, int i, json_t *text)
{
    char id[64];
    return json_pack("{s:s, s:s, s:[], s:[{s:s, s:o}]}", "type", "reasoning", "id", item_id(r, "rs", i, id), "summary",
                     "content", "type", "reasoning_text", "text", text);
}

static json_t *text_part(json_t *text, json_t *logprobs)
{
    return json_pack("{s:s, s:o, s:[], s:o}", "type", "output_text", "text", text, "annotations", "logprobs", logprobs);
}

static json_t *message_item(const serve_reply_state *r, int i, json_t *content, bool begun)
{
    char id[64];
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", item_id(r, "msg", i, id), "status",
                     begun ? "in_progress" : "completed", "role", "assistant", "content", content);
}

/* Returns a completed message with its only part. */
static json_t *whole_message(const serve_reply_state *r, int i, json_t *part)
{
    return message_item(r, i, json_pack("[o]", part), false);
}

static bool is_custom(const serve_reply_state *r, const serve_tool_call *c)
{
    return serve_tools_is_custom(&r->ask, c->name);
}

static const char *call_prefix(const serve_reply_state *r, const serve_tool_call *c)
{
    return is_custom(r, c) ? "ctc" : "fc";
}

/* Returns the arguments of a function, or the input of a custom tool. */
static json_t *call_text(const serve_reply_state *r, const serve_tool_call *c)
{
    return is_custom(r, c) ? serve_tools_input(&c->arguments) : serve_json_string(&c->arguments);
}

static json_t *call_item(const serve_reply_state *r, int i, const serve_tool_call *c, bool begun)
{
    char id[64];
    const bool custom = is_custom(r, c);
    return json_pack("{s:s, s:s, s:s, s:s, s:s*, s:s, s:o}", "type", custom ? "custom_tool_call" : "function_call", "id",
                     item_id(r, call_prefix(r, c), i, id), "call_id", c->id, "name", serve_tools_own_name(&r->ask, c->name),
                     "namespace", json_string_value(json_object_get(serve_tools_form(&r->ask, c->name), "namespace")), "status",
                     begun         ? "in_progress"
                     : c->complete ? "completed"
                                   : "incomplete",
                     custom ? "input" : "arguments", begun ? json_string("") : call_text(r, c));
}

static json_t *usage(const serve_reply_state *r)
{
    const uint32_t n = serve_n_generated(r);
    return json_pack("{s:I, s:{s:i}, s:I, s:{s:i}, s:I}", "input_tokens", (json_int_t)r->ask.n_tokens, "input_tokens_details",
                     "cached_tokens", (int)serve_n_cached(r), "output_tokens", (json_int_t)n, "output_tokens_details",
                     "reasoning_tokens", (int)serve_n_reasoning(r), "total_tokens", (json_int_t)(r->ask.n_tokens + n));
}

/* Returns a complete block as an item. */
static json_t *block_item(const serve_reply_state *r, const serve_output *s, int i)
{
    const serve_block *b = &s->blocks[i];
    if (b->kind == ANSWER_CALL) return call_item(r, i, &s->calls[b->from], false);
    if (b->kind == ANSWER_REASONING) return reasoning_item(r, i, serve_json_part(&s->reasoning, b));
    json_t *logprobs = serve_tokens_of_block(&s->tokens, (size_t)i, 0);
    return whole_message(r, i, text_part(serve_json_part(&s->content, b), logprobs));
}

/* Returns the response object. status NULL means that it has ended: its status follows from the finish reason, and the output
 * holds the items; an answer without any block gets an empty message. */
static json_t *response(const serve_reply_state *r, const char *status)
{
    const serve_output *s = &r->outputs[0];
    json_t *output = json_array();
    bool ok = output != NULL;
    const bool whole = !status, cut = whole && serve_output_finish(s) == SERVE_FINISH_LENGTH;
    for (size_t i = 0; ok && whole && i < s->n_blocks; i++)
        ok = !json_array_append_new(output, block_item(r, s, (int)i));
    if (ok && whole && !s->n_blocks)
        ok = !json_array_append_new(output, whole_message(r, 0, text_part(json_string(""), json_array())));
    if (!ok) {
        json_decref(output);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:I, s:s, s:n, s:o, s:n, s:o, s:o, s:b, s:s, s:[], s:{}, s:f, s:f, s:n, s:o}", "id", r->id,
                     "object", "response", "created_at", (json_int_t)r->created, "status",
                     status ? status
                     : cut  ? "incomplete"
                            : "completed",
                     "error", "incomplete_details", cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null(),
                     "instructions", "model", app_json_text(r->ask.model_name, strlen(r->ask.model_name)), "output", output,
                     "parallel_tool_calls", !r->ask.one_call, "tool_choice", "auto", "tools", "metadata", "temperature",
                     (double)r->ask.sampling.temperature, "top_p", (double)r->ask.sampling.top_p, "previous_response_id",
                     "usage", whole ? usage(r) : json_null());
}

/* Adds the times so far, as llama.cpp's server does, to an event or a response. Returns whether there was memory. */
static bool add_timings(const serve_reply_state *r, json_t *json)
{
    return json && !json_object_set_new(json, "timings", serve_json_timings(r, &r->outputs[0]));
}

/* Sends an event with its sequence number. */
static bool put(serve_reply_state *r, const char *type, json_t *json)
{
    const bool ok = json && !json_object_set_new(json, "type", json_string(type)) &&
                    !json_object_set_new(json, "sequence_number", json_integer(r->n_numbered++));
    if (ok) return serve_put_event(r, type, json);
    json_decref(json);
    return false;
}

static bool put_item(serve_reply_state *r, const char *type, int i, json_t *item)
{
    return put(r, type, json_pack("{s:i, s:o}", "output_index", i, "item", item));
}

/* Sends a piece of an item's text (field "delta") or all of it (field "text", "arguments" or "input"). */
static bool put_piece(serve_reply_state *r, const char *type, const char *prefix, int i, const char *field, json_t *text)
{
    char id[64];
    json_t *json = json_pack("{s:s, s:i, s:o}", "item_id", item_id(r, prefix, i, id), "output_index", i, field, text);
    const bool has_parts = !strcmp(prefix, "rs") || !strcmp(prefix, "msg");
    bool ok = json && (!has_parts || !json_object_set_new(json, "content_index", json_integer(0)));
    if (ok && !strcmp(prefix, "msg")) { /* the end has those of the whole text */
        const serve_output *s = &r->outputs[0];
        json_t *list = serve_tokens_of_block(&s->tokens, (size_t)i, strcmp(field, "delta") ? 0 : s->first_placed);
        ok = !json_object_set_new(json, "logprobs", list);
    }
    if (ok && !strcmp(field, "delta") && serve_output_tells_timings(&r->outputs[0])) ok = add_timings(r, json);
    if (ok) return put(r, type, json);
    json_decref(json);
    return false;
}

static bool put_part(serve_reply_state *r, const char *type, int i, json_t *part)
{
    char id[64];
    return put(r, type,
               json_pack("{s:s, s:i, s:i, s:o}", "item_id", item_id(r, "msg", i, id), "output_index", i, "content_index", 0,
                         "part", part));
}

/* Ends a call. The input of a custom tool is a string inside JSON, so it is sent whole once the JSON is complete. */
static bool close_call(serve_reply_state *r, const serve_tool_call *c, int i)
{
    const bool custom = is_custom(r, c);
    if (custom && !put_piece(r, "response.custom_tool_call_input.delta", "ctc", i, "delta", call_text(r, c))) return false;
    return put_piece(r, custom ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done",
                     call_prefix(r, c), i, custom ? "input" : "arguments", call_text(r, c)) &&
           put_item(r, "response.output_item.done", i, call_item(r, i, c, false));
}

static bool close_message(serve_reply_state *r, int i, const app_text *text, const serve_block *b)
{
    const serve_tokens *tokens = &r->outputs[0].tokens;
    json_t *part = text_part(serve_json_part(text, b), serve_tokens_of_block(tokens, (size_t)i, 0));
    const bool ok = put_piece(r, "response.output_text.done", "msg", i, "text", serve_json_part(text, b)) &&
                    put_part(r, "response.content_part.done", i, json_incref(part)) &&
                    put_item(r, "response.output_item.done", i, whole_message(r, i, json_incref(part)));
    json_decref(part);
    return ok;
}

static bool close_item(serve_reply_state *r, serve_output *s)
{
    if (!s->block_open) return true;
    s->block_open = false;
    const int i = s->n_begun - 1;
    const serve_block *b = &s->blocks[i];
    if (b->kind == ANSWER_CALL) return close_call(r, &s->calls[b->from], i);
    if (b->kind == ANSWER_CONTENT) return close_message(r, i, &s->content, b);
    return put_piece(r, "response.reasoning_text.done", "rs", i, "text", serve_json_part(&s->reasoning, b)) &&
           put_item(r, "response.output_item.done", i, block_item(r, s, i));
}

static bool open_message(serve_reply_state *r, int i)
{
    return put_item(r, "response.output_item.added", i, message_item(r, i, json_array(), true)) &&
           put_part(r, "response.content_part.added", i, text_part(json_string(""), json_array()));
}

/* Begins the item of the newest block unless it has begun. */
static bool open_item(serve_reply_state *r, serve_output *s)
{
    if ((size_t)s->n_begun == s->n_blocks) return true;
    if (!close_item(r, s)) return false;
    const int i = s->n_begun++;
    const serve_block *b = &s->blocks[i];
    s->block_open = true;
    if (b->kind == ANSWER_CONTENT) return open_message(r, i);
    return put_item(r, "response.output_item.added", i,
                    b->kind == ANSWER_CALL ? call_item(r, i, &s->calls[b->from], true)
                                           : reasoning_item(r, i, json_string("")));
}

static bool begin(serve_reply_state *r)
{
    return put(r, "response.created", json_pack("{s:o}", "response", response(r, "in_progress"))) &&
           put(r, "response.in_progress", json_pack("{s:o}", "response", response(r, "in_progress")));
}

static bool progress(serve_reply_state *r, serve_output *s, json_t *told)
{
    (void)s;
    return put(r, "response.in_progress",
               json_pack("{s:o, s:o}", "response", response(r, "in_progress"), "prompt_progress", told));
}

static bool delta(serve_reply_state *r, serve_output *s, const answer_event *e)
{
    if (e->kind == ANSWER_CALL_END) return close_item(r, s);
    if (!open_item(r, s)) return false;
    const int i = s->n_begun - 1;
    switch (e->kind) {
    case ANSWER_CONTENT: return put_piece(r, "response.output_text.delta", "msg", i, "delta", app_json_text(e->text, e->n));
    case ANSWER_REASONING: return put_piece(r, "response.reasoning_text.delta", "rs", i, "delta", app_json_text(e->text, e->n));
    case ANSWER_ARGUMENTS:
        if (is_custom(r, &s->calls[s->n_calls - 1])) return true;
        return put_piece(r, "response.function_call_arguments.delta", "fc", i, "delta", app_json_text(e->text, e->n));
    default: return true;
    }
}

static bool end_choice(serve_reply_state *r, serve_output *s)
{
    if (s->n_blocks) return close_item(r, s);
    static const serve_block empty = {.kind = ANSWER_CONTENT};
    return open_message(r, 0) && close_message(r, 0, &s->content, &empty);
}

static bool end(serve_reply_state *r)
{
    const bool cut = serve_output_finish(&r->outputs[0]) == SERVE_FINISH_LENGTH;
    json_t *json = json_pack("{s:o}", "response", response(r, NULL));
    if (add_timings(r, json)) return put(r, cut ? "response.incomplete" : "response.completed", json);
    json_decref(json);
    return false;
}

static bool fail(serve_reply_state *r)
{
    return put(r, "error",
               json_pack("{s:s, s:o, s:n}", "code", serve_error_type(r->error.status), "message",
                         app_json_text(r->error.text, strlen(r->error.text)), "param"));
}

static json_t *whole_json(serve_reply_state *r)
{
    json_t *json = response(r, NULL);
    if (add_timings(r, json)) return json;
    json_decref(json);
    return NULL;
}

static void whole(serve_reply_state *r, serve_parts *out)
{
    serve_parts_json(out, whole_json(r));
}

static const serve_dialect dialect = {
    .prefix = "resp_",
    .type = "text/event-stream",
    .begin = begin,
    .delta = delta,
    .end_choice = end_choice,
    .end = end,
    .fail = fail,
    .whole = whole,
    .progress = progress,
    .places_tokens = true,
};

void serve_post_input_tokens(serve_call *call)
{
    serve_chat_count(call, serve_responses_convert, "response.input_tokens");
}

void serve_post_responses(serve_call *call)
{
    serve_chat_run(call, serve_responses_convert, &dialect);
}
