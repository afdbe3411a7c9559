/* completion.c - OpenAI's completions. */
#include <string.h>

#include "serve/handlers.h"
#include "serve/reply.h"

/* {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of entries as in chat completions; takes them over. */
static json_t *old_logprobs(json_t *entries, size_t offset)
{
    json_t *tokens = json_array(), *logprobs = json_array(), *tops = json_array(), *offsets = json_array();
    bool ok = entries && tokens && logprobs && tops && offsets;
    for (size_t i = 0; ok && i < json_array_size(entries); i++) {
        const json_t *e = json_array_get(entries, i), *top = json_object_get(e, "top_logprobs");
        json_t *token = json_object_get(e, "token"), *map = json_object();
        for (size_t k = 0; map && k < json_array_size(top); k++) {
            const json_t *t = json_array_get(top, k);
            const char *name = json_string_value(json_object_get(t, "token"));
            if (!json_object_get(map, name)) ok = ok && !json_object_set(map, name, json_object_get(t, "logprob"));
        }
        ok = ok && map && !json_array_append(tokens, token) && !json_array_append(logprobs, json_object_get(e, "logprob")) &&
             !json_array_append(tops, map) && !json_array_append_new(offsets, json_integer((json_int_t)offset));
        json_decref(map);
        offset += json_string_length(token);
    }
    json_decref(entries);
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", ok ? tokens : NULL, "token_logprobs", logprobs, "top_logprobs", tops,
                     "text_offset", offsets);
}

static json_t *body(const serve_reply_state *r, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:o, s:s, s:o}", "id", r->id, "object", "text_completion", "created",
                     (json_int_t)r->created, "model", app_json_text(r->ask.model_name, strlen(r->ask.model_name)),
                     "system_fingerprint", serve_fingerprint(), "choices", choices);
}

static json_t *choice_of(serve_said *s, json_t *text, const char *finish, size_t offset)
{
    json_t *logprobs = serve_take_list(&s->logprobs);
    return json_pack("{s:i, s:o, s:o, s:o}", "index", (int)s->index, "text", text, "logprobs",
                     logprobs ? old_logprobs(logprobs, offset) : json_null(), "finish_reason",
                     finish ? json_string(finish) : json_null());
}

static bool put_piece(serve_reply_state *r, serve_said *s, json_t *text, const char *finish)
{
    json_t *origins = serve_take_list(&s->origins);
    json_t *choice = choice_of(s, text, finish, s->n_streamed);
    json_t *all = body(r, choice ? json_pack("[o]", choice) : NULL);
    bool ok = all && (!origins || json_object_set(all, "origins", origins) == 0);
    if (ok && finish) ok = json_object_set_new(all, "timings", serve_json_timings(r, s)) == 0;
    json_decref(origins);
    return serve_put_event(r, NULL, all) && ok;
}

/* The prompt's own text; NULL when out of memory. */
static json_t *echo_of(const serve_reply_state *r, const serve_said *s)
{
    char *text = NULL;
    size_t n = 0, n_tokens;
    const int32_t *tokens = serve_ask_tokens_of(&r->ask, s->index, &n_tokens);
    if (aerie_detokenize(r->ask.model->models.model, tokens, n_tokens, false, &text, &n, NULL) != AERIE_OK) return NULL;
    json_t *json = app_json_text(text, n);
    aerie_free(text);
    return json;
}

static bool begin(serve_reply_state *r)
{
    for (uint32_t i = 0; r->ask.echo && i < r->n_said; i++)
        if (!put_piece(r, &r->said[i], echo_of(r, &r->said[i]), NULL)) return false;
    return true;
}

static bool delta(serve_reply_state *r, serve_said *s, const answer_event *e)
{
    return e->kind != ANSWER_CONTENT || put_piece(r, s, app_json_text(e->text, e->n), NULL);
}

static bool end_choice(serve_reply_state *r, serve_said *s)
{
    return put_piece(r, s, json_string(""), serve_finish_name(serve_said_finish(s)));
}

static bool end(serve_reply_state *r)
{
    if (r->ask.include_usage) {
        json_t *last = body(r, json_array());
        const bool ok = last && !json_object_set_new(last, "usage", serve_json_usage(r));
        if (!serve_put_event(r, NULL, last) || !ok) return false;
    }
    return serve_put_text(r, "data: [DONE]\n\n");
}

static json_t *whole_text(const serve_reply_state *r, const serve_said *s)
{
    if (!r->ask.echo) return serve_json_string(&s->content);
    json_t *before = echo_of(r, s), *after = serve_json_string(&s->content);
    json_t *both = before && after ? json_sprintf("%s%s", json_string_value(before), json_string_value(after)) : NULL;
    json_decref(before);
    json_decref(after);
    return both;
}

static json_t *whole(serve_reply_state *r)
{
    json_t *choices = json_array();
    bool ok = choices != NULL;
    for (uint32_t i = 0; ok && i < r->n_said; i++) {
        serve_said *s = &r->said[i];
        json_t *origins = serve_take_list(&s->origins);
        json_t *choice = choice_of(s, whole_text(r, s), serve_finish_name(serve_said_finish(s)), 0);
        ok = choice && (!origins || !json_object_set(choice, "origins", origins)) && !json_array_append(choices, choice);
        json_decref(choice);
        json_decref(origins);
    }
    json_t *all = ok ? body(r, choices) : NULL;
    if (!ok) json_decref(choices);
    if (all && !json_object_set_new(all, "usage", serve_json_usage(r)) &&
        !json_object_set_new(all, "timings", serve_json_timings(r, &r->said[0])))
        return all;
    json_decref(all);
    return NULL;
}

static const serve_dialect dialect = {"cmpl-", "text/event-stream", begin, delta, end_choice, end, serve_openai_fail, whole};

void serve_post_completion(serve_call *call)
{
    serve_reply_run(call, SERVE_KIND_TEXT, NULL, serve_ask_prompts, &dialect);
}
