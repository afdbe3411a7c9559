/* tokens.c - implements tokens.h. */
#include "serve/models/tokens.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Keeping -------------------------------------------------------------------------------------------- */

static json_t *text_of(const serve_tokens *t, int32_t token)
{
    aerie_token_info info = {.text = ""};
    aerie_model_token_info_get(t->model, token, &info, sizeof info);
    return app_json_text(info.text, info.n_text);
}

static bool add_tops(serve_tokens *t, const aerie_logprob *top, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        aerie_logprob *grown = serve_use_grow(t->use, t->tops, t->n_tops, &t->tops_capacity, sizeof *grown);
        if (!grown) return false;
        t->tops = grown;
        grown[t->n_tops++] = top[i];
    }
    return true;
}

bool serve_tokens_add(serve_tokens *t, const serve_event *e, uint32_t n_top, size_t from)
{
    const uint32_t n = e->n_top < n_top ? e->n_top : n_top;
    serve_token *grown = serve_use_grow(t->use, t->items, t->n_kept, &t->capacity, sizeof *grown);
    if (!grown) return false;
    t->items = grown;
    json_t *text = text_of(t, e->token);
    grown[t->n_kept] = (serve_token){.token = e->token,
                                     .depth = e->depth,
                                     .logprob = e->logprob,
                                     .n_top = n,
                                     .top = t->n_tops,
                                     .offset = t->offset,
                                     .block = SERVE_NO_BLOCK,
                                     .from = from};
    aerie_token_info info = {.type = AERIE_TOKEN_NORMAL};
    aerie_model_token_info_get(t->model, e->token, &info, sizeof info);
    if (info.type != AERIE_TOKEN_CONTROL) t->offset += json_string_length(text); /* answers and "echo" leave those out */
    const bool ok = text && add_tops(t, e->top, n);
    t->n_kept += ok;
    json_decref(text);
    return ok;
}

void serve_tokens_settle(serve_tokens *t, size_t n_text, bool ended)
{
    while (t->n_said < t->n_kept && t->items[t->n_said].from < n_text) t->n_said++;
    t->n = ended ? t->n_kept : t->n_said;
}

bool serve_tokens_place(serve_tokens *t, size_t block)
{
    enum { JSON_BYTES = 1000 }; /* of one entry: nodes for the token, its bytes and its number */
    for (; t->n_placed < t->n_said; t->n_placed++) {
        serve_token *item = &t->items[t->n_placed];
        if (block == SERVE_NO_BLOCK || item->apart || aerie_model_token_is_eog(t->model, item->token)) continue;
        if (!serve_use_add(t->use, JSON_BYTES * (1 + (size_t)item->n_top))) return false;
        item->block = block;
    }
    return true;
}

void serve_tokens_clear(serve_tokens *t)
{
    const size_t n_left = t->n_kept - t->n, first = n_left ? t->items[t->n].top : t->n_tops;
    if (n_left) memmove(t->items, t->items + t->n, n_left * sizeof *t->items);
    if (t->n_tops > first) memmove(t->tops, t->tops + first, (t->n_tops - first) * sizeof *t->tops);
    for (size_t i = 0; i < n_left; i++) t->items[i].top -= first;
    t->n_tops -= first;
    t->n_kept = n_left;
    t->n = t->n_said = t->n_placed = 0;
}

void serve_tokens_free(serve_tokens *t)
{
    if (t->use) serve_use_drop(t->use, t->capacity * sizeof *t->items + t->tops_capacity * sizeof *t->tops);
    free(t->items);
    free(t->tops);
    *t = (serve_tokens){0};
}

/* ---- Telling -------------------------------------------------------------------------------------------- */

/* JSON has no number for -INFINITY; OpenAI's lowest value is -9999. */
static json_t *number_of(float logprob)
{
    if (isnan(logprob)) return json_null();
    return json_real(logprob > -9999 ? (double)logprob : -9999.0);
}

static json_t *bytes_of(const char *text, size_t n)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < n; i++) ok = json_array_append_new(list, json_integer((unsigned char)text[i])) == 0;
    if (ok) return list;
    json_decref(list);
    return NULL;
}

static json_t *entry_of(const serve_tokens *t, int32_t token, float logprob)
{
    aerie_token_info info = {.text = ""};
    aerie_model_token_info_get(t->model, token, &info, sizeof info);
    return json_pack("{s:i, s:o, s:o, s:o}", "id", (int)token, "token", app_json_text(info.text, info.n_text), "bytes",
                     bytes_of(info.text, info.n_text), "logprob", number_of(logprob));
}

static json_t *logprob_of(const serve_tokens *t, size_t i)
{
    const serve_token *item = &t->items[i];
    json_t *entry = entry_of(t, item->token, item->logprob), *top = json_array();
    bool ok = entry && top;
    for (uint32_t k = 0; ok && k < item->n_top; k++) {
        const aerie_logprob *one = &t->tops[item->top + k];
        ok = json_array_append_new(top, entry_of(t, one->token, one->logprob)) == 0;
    }
    ok = ok && json_object_set(entry, "top_logprobs", top) == 0;
    json_decref(top);
    if (ok) return entry;
    json_decref(entry);
    return NULL;
}

bool serve_token_logprob(void *user, size_t i, app_text *out)
{
    return serve_json_add(out, logprob_of(user, i));
}

json_t *serve_tokens_of_block(const serve_tokens *t, size_t block, size_t from)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = from; ok && i < t->n_placed; i++)
        if (t->items[i].block == block) ok = json_array_append_new(list, logprob_of(t, i)) == 0;
    if (ok) return list;
    json_decref(list);
    return NULL;
}

bool serve_token_origin(void *user, size_t i, app_text *out)
{
    const serve_tokens *t = user;
    return serve_json_add(out, json_pack("{s:i, s:o, s:i}", "id", (int)t->items[i].token, "text", text_of(t, t->items[i].token),
                                         "depth", (int)t->items[i].depth));
}

bool serve_token_text(void *user, size_t i, app_text *out)
{
    const serve_tokens *t = user;
    return serve_json_add(out, text_of(t, t->items[i].token));
}

bool serve_token_id(void *user, size_t i, app_text *out)
{
    const serve_tokens *t = user;
    return serve_json_add(out, json_integer(t->items[i].token));
}

bool serve_token_number(void *user, size_t i, app_text *out)
{
    const serve_tokens *t = user;
    return serve_json_add(out, number_of(t->items[i].logprob));
}

/* Of tokens with the same text, the likeliest one counts. */
bool serve_token_map(void *user, size_t i, app_text *out)
{
    const serve_tokens *t = user;
    if (isnan(t->items[i].logprob)) return app_text_add(out, "null", 4);
    json_t *map = json_object();
    bool ok = map != NULL;
    for (uint32_t k = 0; ok && k < t->items[i].n_top; k++) {
        const aerie_logprob *one = &t->tops[t->items[i].top + k];
        json_t *text = text_of(t, one->token);
        const char *name = json_string_value(text);
        ok = name && (json_object_get(map, name) || json_object_set_new(map, name, number_of(one->logprob)) == 0);
        json_decref(text);
    }
    return serve_json_add(out, map) && ok;
}

bool serve_token_offset(void *user, size_t i, app_text *out)
{
    const serve_tokens *t = user;
    return serve_json_add(out, json_integer((json_int_t)(t->first_offset + t->items[i].offset - t->items[0].offset)));
}
