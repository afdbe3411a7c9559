/* reply_json.c - the text and the JSON of answers (reply.h), which dialects share. */
#define _POSIX_C_SOURCE 200809L
#include "serve/request/reply.h"

#include <string.h>

/* ---- Text -------------------------------------------------------------------------------------------------------- */

bool serve_put_text(serve_reply_state *r, const char *text)
{
    return app_text_add(&r->out, text, strlen(text));
}

/* Sends a complete event or nothing, so that the next event can be the error that explains it. */
static bool whole_or_none(serve_reply_state *r, size_t n_before, bool ok)
{
    if (!ok && r->out.data) r->out.data[r->out.n = n_before] = '\0';
    return ok;
}

bool serve_put_event(serve_reply_state *r, const char *name, json_t *json)
{
    const size_t n = r->out.n;
    bool ok = json != NULL;
    if (ok && name) ok = serve_put_text(r, "event: ") && serve_put_text(r, name) && serve_put_text(r, "\n");
    ok = ok && serve_put_text(r, "data: ");
    ok = serve_json_add(&r->out, json) && ok && serve_put_text(r, "\n\n");
    return whole_or_none(r, n, ok);
}

bool serve_put_parts(serve_reply_state *r, serve_output *s, serve_parts *parts)
{
    const size_t n = r->out.n;
    const bool ok = serve_put_text(r, "data: ") && serve_parts_write(parts, &r->out) && serve_put_text(r, "\n\n");
    serve_parts_free(parts);
    serve_tokens_clear(&s->tokens);
    return whole_or_none(r, n, ok);
}

bool serve_put_line(serve_reply_state *r, json_t *json)
{
    const size_t n = r->out.n;
    return whole_or_none(r, n, serve_json_add(&r->out, json) && serve_put_text(r, "\n"));
}

bool serve_put_line_parts(serve_reply_state *r, serve_output *s, serve_parts *parts)
{
    const size_t n = r->out.n;
    const bool ok = serve_parts_write(parts, &r->out) && serve_put_text(r, "\n");
    serve_parts_free(parts);
    serve_tokens_clear(&s->tokens);
    return whole_or_none(r, n, ok);
}

json_t *serve_json_string(const app_text *text)
{
    return app_json_text(text->data ? text->data : "", text->n);
}

json_t *serve_json_part(const app_text *text, const serve_block *block)
{
    return app_json_text(text->data ? text->data + block->from : "", block->n);
}

/* ---- Figures -------------------------------------------------------------------------------------------------------- */

uint32_t serve_n_generated(const serve_reply_state *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_outputs && !r->ask.only_prompt; i++) {
        const serve_output *s = &r->outputs[i];
        n += s->enough ? s->n_tokens : s->stats ? s->stats->n_generated : 0;
    }
    return n;
}

uint32_t serve_n_reasoning(const serve_reply_state *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_outputs; i++) n += r->outputs[i].n_reasoning;
    return n;
}

static uint32_t count_cached(const serve_reply_state *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_outputs; i += r->ask.n) n += r->outputs[i].stats ? r->outputs[i].stats->n_cached : 0;
    return n;
}

uint32_t serve_n_cached(const serve_reply_state *r)
{
    return r->call->repeat.on ? 0 : count_cached(r); /* another server may have cached other tokens */
}

json_t *serve_json_usage(const serve_reply_state *r)
{
    const uint32_t n = serve_n_generated(r);
    uint32_t n_drafted = 0, n_accepted = 0;
    for (uint32_t i = 0; !r->call->repeat.on && i < r->n_outputs; i++) {
        n_drafted += r->outputs[i].stats ? r->outputs[i].stats->n_drafted : 0;
        n_accepted += r->outputs[i].stats ? r->outputs[i].stats->n_accepted : 0;
    }
    return json_pack("{s:I, s:I, s:I, s:{s:i}, s:{s:i, s:i, s:i}}", "prompt_tokens", (json_int_t)r->ask.n_tokens,
                     "completion_tokens", (json_int_t)n, "total_tokens", (json_int_t)(r->ask.n_tokens + n),
                     "prompt_tokens_details", "cached_tokens", (int)serve_n_cached(r), "completion_tokens_details",
                     "reasoning_tokens", (int)serve_n_reasoning(r), "accepted_prediction_tokens", (int)n_accepted,
                     "rejected_prediction_tokens", (int)(n_drafted - n_accepted));
}

void serve_parts_usage(serve_parts *out, const serve_reply_state *r)
{
    uint32_t n = 0;
    if (!r->ask.usage_each || r->call->repeat.on) return; /* how far other choices are depends on timing */
    for (uint32_t i = 0; i < r->n_outputs && !r->ask.only_prompt; i++) n += r->outputs[i].n_tokens;
    serve_parts_text(out, ",\"usage\":");
    serve_parts_json(out, json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)r->ask.n_tokens, "completion_tokens",
                                    (json_int_t)n, "total_tokens", (json_int_t)(r->ask.n_tokens + n)));
}

bool serve_output_tells_timings(const serve_output *s)
{
    return s->of->job->wants_now && s->of->ask.timings_per_token && (s->stats || s->now);
}

json_t *serve_json_timings(const serve_reply_state *r, const serve_output *s)
{
    const aerie_stats *t = s->stats ? s->stats : s->now;
    if (r->call->repeat.on || !t) return json_object();
    const double prompt_ms = t->prompt_seconds * 1e3, predicted_ms = t->decode_seconds * 1e3;
    const uint32_t n_prompt = t->n_prompt - t->n_cached;
    json_t *json = json_pack("{s:i, s:i, s:f, s:f, s:f, s:i, s:f, s:f, s:f}", "cache_n", (int)t->n_cached, "prompt_n",
                             (int)n_prompt, "prompt_ms", prompt_ms, "prompt_per_token_ms", app_rate(prompt_ms, n_prompt),
                             "prompt_per_second", app_rate(n_prompt, t->prompt_seconds), "predicted_n", (int)t->n_generated,
                             "predicted_ms", predicted_ms, "predicted_per_token_ms", app_rate(predicted_ms, t->n_generated),
                             "predicted_per_second", app_rate(t->n_generated, t->decode_seconds));
    json_t *depths = json_array();
    bool ok = json && depths;
    const double plain = ok && t->n_drafted ? serve_engine_plain(r->job) : 0;
    if (plain > 0) ok = json_object_set_new(json, "predicted_plain_ms", json_real(predicted_ms * plain)) == 0;
    if (ok && r->ask.n_dropped) ok = json_object_set_new(json, "n_dropped_turns", json_integer(r->ask.n_dropped)) == 0;
    for (size_t i = 0; ok && i < AERIE_MAX_DRAFT; i++)
        if (t->drafted_at[i])
            ok = json_array_append_new(depths,
                                       json_pack("{s:i, s:i, s:i, s:i}", "depth", (int)i + 1, "drafted", (int)t->drafted_at[i],
                                                 "tried", (int)t->tried_at[i], "accepted", (int)t->accepted_at[i])) == 0;
    json_t *draft =
        ok ? json_pack("{s:i, s:i, s:i, s:i, s:O}", "draft_n", (int)t->n_drafted, "draft_n_accepted", (int)t->n_accepted,
                       "draft_n_verif_steps", (int)t->tried_at[0], "n_passes", (int)t->n_passes, "draft_by_depth", depths)
           : NULL;
    json_decref(depths);
    if (!draft || json_object_update(json, draft)) {
        json_decref(json);
        json = NULL;
    }
    json_decref(draft);
    return json;
}

bool serve_output_has_logprobs(const serve_output *s)
{
    return s->of->ask.logprobs && s->tokens.n_said;
}

bool serve_output_has_origins(const serve_output *s)
{
    return s->of->ask.origins && s->tokens.n;
}

void serve_parts_finish(serve_parts *parts, const char *finish)
{
    serve_parts_text(parts, finish ? ",\"finish_reason\":\"" : ",\"finish_reason\":null");
    if (!finish) return;
    serve_parts_text(parts, finish);
    serve_parts_text(parts, "\"");
}

void serve_parts_logprobs(serve_parts *parts, serve_output *s)
{
    const bool some = serve_output_has_logprobs(s);
    serve_parts_text(parts, some ? "{\"content\":" : "null");
    if (some) serve_parts_list(parts, serve_token_logprob, &s->tokens, s->tokens.n_said);
    if (some) serve_parts_text(parts, "}");
}

void serve_parts_origins(serve_parts *parts, serve_output *s, const char *name)
{
    if (!serve_output_has_origins(s)) return;
    serve_parts_text(parts, ",\"");
    serve_parts_text(parts, name);
    serve_parts_text(parts, "\":");
    serve_parts_list(parts, serve_token_origin, &s->tokens, s->tokens.n);
}

json_t *serve_json_arguments(const serve_tool_call *c)
{
    json_t *json;
    const app_json_status status = app_json_read(&json, c->arguments.data, c->arguments.n, JSON_ALLOW_NUL, NULL);
    return status == APP_JSON_WRONG ? json_object() : json;
}

json_t *serve_json_calls(const serve_output *s)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < s->n_calls; i++) {
        const serve_tool_call *c = &s->calls[i];
        const bool custom = serve_tools_is_custom(&s->of->ask, c->name);
        const char *type = custom ? "custom" : "function";
        ok = json_array_append_new(
                 list, json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", c->id, "type", type, type, "name",
                                 serve_tools_own_name(&s->of->ask, c->name), custom ? "input" : "arguments",
                                 custom ? serve_tools_input(&c->arguments) : serve_json_string(&c->arguments))) == 0;
    }
    if (ok) return list;
    json_decref(list);
    return NULL;
}

void serve_count_tokens(serve_reply_state *r)
{
    r->call->n_prompt = r->ask.n_tokens;
    r->call->n_cached = count_cached(r);
    r->call->n_generated = 0;
    for (uint32_t i = 0; i < r->n_outputs; i++) {
        const aerie_stats *ended = r->outputs[i].stats;
        r->call->n_generated += ended ? ended->n_generated : atomic_load(&r->job->choices[i].n_told);
    }
}
