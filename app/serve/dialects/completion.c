/* completion.c - OpenAI's completions. */
#include <string.h>

#include "serve/dialects/handlers.h"
#include "serve/request/reply.h"

/* Adds {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, or null without logprobs. Offsets start at `offset`. */
static void add_logprobs(serve_parts *out, serve_output *s, size_t offset)
{
    static const struct {
        const char *name;
        serve_entry *entry;
    } lists[] = {{"{\"tokens\":", serve_token_text},
                 {",\"token_logprobs\":", serve_token_number},
                 {",\"top_logprobs\":", serve_token_map},
                 {",\"text_offset\":", serve_token_offset}};
    const bool some = serve_output_has_logprobs(s);
    s->tokens.first_offset = offset;
    for (size_t i = 0; some && i < sizeof lists / sizeof *lists; i++) {
        serve_parts_text(out, lists[i].name);
        serve_parts_list(out, lists[i].entry, &s->tokens, s->tokens.n_said);
    }
    serve_parts_text(out, some ? "}" : "null");
}

/* Returns the fields that begin every chunk and answer. */
static json_t *head(const serve_reply_state *r)
{
    return json_pack("{s:s, s:s, s:I, s:o, s:s}", "id", r->id, "object", "text_completion", "created", (json_int_t)r->created,
                     "model", app_json_text(r->ask.model_name, strlen(r->ask.model_name)), "system_fingerprint",
                     serve_fingerprint());
}

/* Adds a choice, without its '}'. */
static void add_choice(serve_parts *out, serve_output *s, json_t *text, const char *finish, size_t offset)
{
    serve_parts_open(out, json_pack("{s:i, s:o}", "index", (int)s->index, "text", text));
    serve_parts_text(out, ",\"logprobs\":");
    add_logprobs(out, s, offset);
    serve_parts_finish(out, finish);
}

static bool put_piece(serve_reply_state *r, serve_output *s, json_t *text, const char *finish)
{
    serve_parts out = {0};
    serve_parts_open(&out, head(r));
    serve_parts_text(&out, ",\"choices\":[");
    add_choice(&out, s, text, finish, s->n_streamed);
    serve_parts_text(&out, "}]");
    serve_parts_origins(&out, s, "origins");
    serve_parts_usage(&out, r);
    if (!finish && !serve_output_tells_timings(s)) serve_parts_text(&out, "}");
    else serve_parts_close(&out, json_pack("{s:o}", "timings", serve_json_timings(r, s)));
    return serve_put_parts(r, s, &out);
}

static bool progress(serve_reply_state *r, serve_output *s, json_t *told)
{
    json_t *chunk = head(r);
    json_t *choices = json_pack("[{s:i, s:s, s:n, s:n}]", "index", (int)s->index, "text", "", "logprobs", "finish_reason");
    const bool ok = json_object_set_new(chunk, "choices", choices) == 0;
    return json_object_set_new(chunk, "prompt_progress", told) == 0 && serve_put_event(r, NULL, chunk) && ok;
}

/* Returns the prompt's text, for "echo"; NULL when out of memory. */
static json_t *echo_of(const serve_reply_state *r, const serve_output *s)
{
    char *text = NULL;
    size_t n = 0, n_tokens;
    const int32_t *tokens = serve_ask_tokens_of(&r->ask, s->index, &n_tokens);
    if (aerie_model_detokenize(r->ask.model->models.model, tokens, n_tokens, false, &text, &n, NULL) != AERIE_OK) return NULL;
    json_t *json = app_json_text(text, n);
    aerie_free(text);
    return json;
}

static bool put_echo(serve_reply_state *r, serve_output *s)
{
    json_t *text = echo_of(r, s);
    const size_t n = json_string_length(text);
    const bool ok = put_piece(r, s, text, NULL);
    s->n_streamed += n;
    return ok;
}

/* Sends the prompts, which "echo" asks for. With "logprobs" they are sent later, once their log-probabilities are known. */
static bool begin(serve_reply_state *r)
{
    for (uint32_t i = 0; r->ask.echo && !r->ask.logprobs && i < r->n_outputs; i++)
        if (!put_echo(r, &r->outputs[i])) return false;
    return true;
}

static bool delta(serve_reply_state *r, serve_output *s, const answer_event *e)
{
    return e->kind != ANSWER_CONTENT || put_piece(r, s, app_json_text(e->text, e->n), NULL);
}

static bool end_choice(serve_reply_state *r, serve_output *s)
{
    return put_piece(r, s, json_string(""), serve_finish_name(serve_output_finish(s)));
}

static bool end(serve_reply_state *r)
{
    if (r->ask.include_usage) {
        json_t *last = head(r);
        const bool ok = last && !json_object_set_new(last, "choices", json_array()) &&
                        !json_object_set_new(last, "usage", serve_json_usage(r));
        if (!serve_put_event(r, NULL, last) || !ok) return false;
    }
    return serve_put_text(r, "data: [DONE]\n\n");
}

static json_t *whole_text(const serve_reply_state *r, const serve_output *s)
{
    if (!r->ask.echo) return serve_json_string(&s->content);
    json_t *before = echo_of(r, s), *after = serve_json_string(&s->content);
    json_t *both = before && after ? json_sprintf("%s%s", json_string_value(before), json_string_value(after)) : NULL;
    json_decref(before);
    json_decref(after);
    return both;
}

static void whole(serve_reply_state *r, serve_parts *out)
{
    serve_parts_open(out, head(r));
    serve_parts_text(out, ",\"choices\":[");
    for (uint32_t i = 0; i < r->n_outputs; i++) {
        serve_output *s = &r->outputs[i];
        if (i) serve_parts_text(out, ",");
        add_choice(out, s, whole_text(r, s), serve_finish_name(serve_output_finish(s)), 0);
        serve_parts_origins(out, s, "origins");
        serve_parts_text(out, "}");
    }
    serve_parts_text(out, "]");
    serve_parts_close(
        out, json_pack("{s:o, s:o}", "usage", serve_json_usage(r), "timings", serve_json_timings(r, &r->outputs[0])));
}

/* Reads the fields that only completions have. With "max_tokens" 0 and "echo" the answer is the prompt, which is how programs
 * score texts. */
static bool read_own(serve_ask *ask, serve_error *error)
{
    (void)error;
    ask->may_be_zero = json_is_true(json_object_get(ask->body, "echo"));
    return true;
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
    .scored = put_echo,
    .progress = progress,
};

void serve_post_completion(serve_call *call)
{
    serve_reply_run(call, SERVE_KIND_TEXT, read_own, serve_ask_prompts, &dialect);
}
