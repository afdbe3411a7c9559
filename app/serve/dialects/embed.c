/* embed.c - embeddings of texts and reranking of documents, as OpenAI, ollama and Jina define these requests.
 *
 * A model's embedder is created when it is first needed. It is used under the model's embed_lock for TURN texts at a time, so
 * that requests take turns. A text's vector does not depend on the other texts.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aerie_extra.h"
#include "serve/dialects/handlers.h"

enum { MAX_TEXTS = 2048, TURN = 32 };

typedef struct ranked {
    float score;
    size_t i;
} ranked;

typedef struct embedding {
    serve_ask ask;
    serve_call *call;
    serve_error *error;   /* valid until end() */
    bool base64;          /* vectors are sent as base64 instead of numbers */
    int32_t scale;        /* "embd_normalize": 2: vectors of length 1; -1: as they are; 0, 1: see rescale */
    bool truncate;        /* texts that are too long are cut instead of refused */
    aerie_pooling pooling;
    aerie_embed_text *texts; /* [n] their tokens are owned (aerie_free) */
    size_t n, n_tokens;   /* number of texts; total number of tokens */
    float *vectors;       /* [n][n_out] */
    size_t n_out;
    uint32_t n_wanted;    /* "dimensions": how many numbers of a vector to send; 0: all */
    const json_t *documents; /* sent with their ranks; NULL: not sent */
    bool is_tei;             /* the documents are called "texts": the answer is TEI's */
    ranked *ranks;        /* [n] best first; NULL: the request is for vectors */
} embedding;

static void embedding_free(void *user)
{
    embedding *e = user;
    for (size_t i = 0; i < e->n; i++) aerie_free((void *)e->texts[i].tokens);
    free(e->texts);
    free(e->vectors);
    free(e->ranks);
    serve_ask_free(&e->ask);
    free(e);
}

/* Reads the body and loads the model. Returns NULL after replying with an error. */
static embedding *begin(serve_call *call, serve_error *error)
{
    serve_parts nothing = {0};
    embedding *e = calloc(1, sizeof *e);
    if (!e) {
        serve_fail_memory(error);
        serve_reply_error(call, error);
        return NULL;
    }
    *e = (embedding){.call = call, .error = error, .scale = 2,
                     .pooling = call->server->options->embed.pooling};
    if (serve_text_begin(&e->ask, call, error)) return e;
    serve_text_reply(call, &nothing, error, embedding_free, e);
    return NULL;
}

static void end(embedding *e, serve_parts *parts)
{
    for (size_t i = 0; i < e->n; i++) { /* the tokens are not needed for the answer */
        serve_use_drop(e->ask.use, e->texts[i].n_tokens * sizeof *e->texts[i].tokens);
        aerie_free((void *)e->texts[i].tokens);
        e->texts[i].tokens = NULL;
    }
    serve_text_reply(e->call, parts, e->error, embedding_free, e);
}

/* ---- Texts ------------------------------------------------------------------------------------------- */

static bool make_room(embedding *e, size_t n, const char *field)
{
    if (!n) return serve_fail(e->error, 400, field, "'%s' is empty", field);
    if (n > MAX_TEXTS)
        return serve_fail(e->error, 400, field, "'%s' has %zu entries; at most %d are possible", field, n, MAX_TEXTS);
    if (!serve_use_add(e->ask.use, n * sizeof *e->texts)) return serve_fail_memory(e->error);
    e->texts = calloc(n, sizeof *e->texts);
    return e->texts || serve_fail_memory(e->error);
}

/* Takes ownership of the tokens. */
static void add_tokens(embedding *e, int32_t *tokens, size_t n, size_t n_first)
{
    e->texts[e->n++] = (aerie_embed_text){.tokens = tokens, .n_tokens = n, .n_first = n_first};
    e->n_tokens += n;
}

static bool add_text(embedding *e, const json_t *text, const char *field)
{
    int32_t *tokens;
    size_t n;
    if (!serve_ask_tokenize(&e->ask, json_string_value(text), json_string_length(text), true, false, field, &tokens, &n,
                            e->error))
        return false;
    add_tokens(e, tokens, n, 0);
    return true;
}

static bool add_ids(embedding *e, const json_t *list, const char *field)
{
    const size_t n = json_array_size(list);
    int32_t *tokens = serve_use_add(e->ask.use, n * sizeof *tokens) ? malloc((n ? n : 1) * sizeof *tokens) : NULL;
    if (!tokens) return serve_fail_memory(e->error);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        const bool fits = json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) <= INT32_MAX;
        if (!fits) {
            free(tokens);
            return serve_fail(e->error, 400, field,
                              "'%s' must be a string, a list of strings, a list of tokens, or a list of token lists", field);
        }
        tokens[i] = (int32_t)json_integer_value(id);
    }
    add_tokens(e, tokens, n, 0);
    return true;
}

/* Returns whether an entry contains an image, in the form of any dialect. */
static bool has_picture(const json_t *entry)
{
    static const char *const keys[] = {"image_url", "image", "images", "input_image", "multimodal_data", "source"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(entry, keys[i])) return true;
    const json_t *content = json_object_get(entry, "content");
    for (size_t i = 0; i < json_array_size(content); i++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (json_object_get(json_array_get(content, i), keys[k])) return true;
    return false;
}

static bool refuse_pictures(embedding *e, const json_t *input, const char *field)
{
    bool found = has_picture(input);
    for (size_t i = 0; !found && i < json_array_size(input); i++) found = has_picture(json_array_get(input, i));
    return !found || serve_fail(e->error, 400, field, "'%s' has a picture; only texts can be embedded", field);
}

/* Adds the field's input: a text, a list of tokens, or a list of texts and lists of tokens. */
static bool add_input(embedding *e, const char *field)
{
    const json_t *input = json_object_get(e->ask.body, field);
    if (e->pooling == AERIE_POOLING_AUTO) e->pooling = e->ask.model->models.info.pooling;
    if (e->pooling == AERIE_POOLING_RANK) e->pooling = AERIE_POOLING_CLS; /* a reranker scores the vector of the first token */
    if (!input || json_is_null(input)) return serve_fail(e->error, 400, field, "'%s' is missing", field);
    if (!refuse_pictures(e, input, field)) return false;
    if (json_is_string(input)) return make_room(e, 1, field) && add_text(e, input, field);
    if (json_is_array(input) && json_is_integer(json_array_get(input, 0)))
        return make_room(e, 1, field) && add_ids(e, input, field);
    if (!json_is_array(input))
        return serve_fail(e->error, 400, field,
                          "'%s' must be a string, a list of strings, a list of tokens, or a list of token lists", field);
    if (!make_room(e, json_array_size(input), field)) return false;
    for (size_t i = 0; i < json_array_size(input); i++) {
        const json_t *one = json_array_get(input, i);
        if (!(json_is_string(one) ? add_text(e, one, field) : add_ids(e, one, field))) return false;
        if (!json_is_string(one) && !json_is_array(one))
            return serve_fail(e->error, 400, field, "entry %zu of '%s' is neither a string nor a list of tokens", i, field);
    }
    return true;
}

/* ---- Computing --------------------------------------------------------------------------------------- */

aerie_embedder *serve_embedder_of(serve_ask *ask, aerie_pooling pooling, bool unscaled, serve_error *error)
{
    serve_model *m = ask->model;
    const app_options *o = ask->server->options;
    aerie_embedder **slot = &m->embedders[pooling == AERIE_POOLING_RANK ? 1 : unscaled ? 2 : 0];
    aerie_embedder_params p = aerie_embedder_params_default();
    aerie_error why = {0};
    if (*slot) return *slot;
    p.n_ctx = o->session.n_ctx == AERIE_CTX_TRAINED ? 0 : o->session.n_ctx;
    /* -c is meant for all models, so it may exceed an encoder's */
    const bool encodes = m->models.info.is_encoder && m->models.info.decision != AERIE_DECISION_JOINT;
    if (encodes && p.n_ctx > m->models.info.n_ctx_train) p.n_ctx = 0;
    p.n_batch = o->session.n_batch;
    p.n_threads = o->n_threads;
    p.pooling = pooling;
    if (unscaled) p.normalize = -1;
    const aerie_status status = aerie_embedder_create(slot, m->models.model, &p, &why);
    if (status != AERIE_OK) serve_fail_library(error, status, &why, "model");
    return *slot;
}

/* Cuts texts to `most` tokens. A text's last token, which ends it, is kept. */
static void cut_texts(embedding *e, size_t most)
{
    for (size_t i = 0; i < e->n; i++) {
        aerie_embed_text *t = &e->texts[i];
        if (t->n_tokens <= most) continue;
        ((int32_t *)t->tokens)[most - 1] = t->tokens[t->n_tokens - 1];
        e->n_tokens -= t->n_tokens - most;
        t->n_tokens = most;
        if (t->n_first > most) t->n_first = most;
    }
}

/* *again: the model failed, so the same texts are to be embedded again. */
static bool embed_some(embedding *e, size_t first, bool *again)
{
    aerie_error why = {0};
    serve_model *m = e->ask.model;
    const size_t n = e->n - first < TURN ? e->n - first : TURN;
    pthread_mutex_lock(&m->embed_lock);
    *again = serve_model_fails(m); /* for requests before this one */
    aerie_embedder *embedder = *again ? NULL : serve_embedder_of(&e->ask, e->pooling, e->scale < 0, e->error);
    bool ok = embedder != NULL;
    if (ok && !e->vectors) {
        e->n_out = aerie_embedder_n_out(embedder);
        if (e->truncate) cut_texts(e, aerie_embedder_n_ctx(embedder));
        const size_t n_bytes = e->n * e->n_out * sizeof *e->vectors;
        e->vectors = serve_use_add(e->ask.use, n_bytes) ? malloc(n_bytes) : NULL;
        ok = e->vectors || serve_fail_memory(e->error);
    }
    const aerie_status status = ok ? aerie_embedder_embed(embedder, e->texts + first, n, e->vectors + first * e->n_out,
                                                          &why) : AERIE_OK;
    pthread_mutex_unlock(&m->embed_lock);
    if (ok) serve_model_note_pass(m, status);
    *again = *again || (ok && status == AERIE_ERROR_INTERNAL && serve_ask_may_try(&e->ask));
    return *again || (ok && (status == AERIE_OK || serve_fail_library(e->error, status, &why, "input")));
}

static bool compute(embedding *e)
{
    bool ok = true;
    e->call->n_prompt = e->n_tokens;
    sem_post(e->call->work); /* let other requests be read and tokenized meanwhile */
    for (size_t i = 0; ok && i < e->n;) {
        bool again = false;
        if (serve_call_gone(e->call)) ok = serve_fail(e->error, 499, "", "the client is gone");
        else ok = embed_some(e, i, &again);
        if (again) ok = serve_ask_wait(&e->ask, e->error);
        else i += TURN;
    }
    if (ok) serve_model_note_answer(e->ask.model);
    sem_wait(e->call->work);
    return ok;
}

/* Reads "dimensions": vectors are cut to their first n_wanted numbers and normalized again. */
static bool read_dimensions(embedding *e)
{
    return serve_get_u32(e->ask.body, "dimensions", 1, e->ask.model->models.info.n_embd, " for this model", &e->n_wanted,
                         e->error);
}

static void shorten(embedding *e)
{
    const size_t n = e->n_wanted;
    if (!n || n >= e->n_out) return;
    for (size_t i = 0; i < e->n; i++) {
        float *to = e->vectors + i * n;
        double sum = 0;
        memmove(to, e->vectors + i * e->n_out, n * sizeof *to);
        for (size_t k = 0; k < n; k++) sum += (double)to[k] * (double)to[k];
        for (size_t k = 0; sum > 0 && e->scale >= 0 && k < n; k++) to[k] = (float)((double)to[k] / sqrt(sum));
    }
    e->n_out = n;
}

/* Reads llama.cpp's "embd_normalize". */
static bool read_scale(embedding *e)
{
    const json_t *given = serve_get(e->ask.body, "embd_normalize");
    const double p = json_is_number(given) ? json_number_value(given) : given ? NAN : e->scale;
    if (!(p >= -1 && p <= 2) || p != floor(p))
        return serve_fail(e->error, 400, "embd_normalize", "'embd_normalize' must be -1 (vectors as they are), 0 (largest "
                          "magnitude 32760), 1 (sum of magnitudes 1) or 2 (length 1)");
    e->scale = (int32_t)p;
    return true;
}

/* Scales vectors of length 1 for "embd_normalize" 0: to a largest magnitude of 32760; or 1: so that magnitudes add up to 1. */
static void rescale(embedding *e)
{
    for (size_t i = 0; (e->scale == 0 || e->scale == 1) && i < e->n; i++) {
        float *v = e->vectors + i * e->n_out;
        double most = 0, sum = 0;
        for (size_t k = 0; k < e->n_out; k++) most = fmax(most, fabs((double)v[k]));
        for (size_t k = 0; k < e->n_out; k++) sum += fabs((double)v[k]);
        const double by = e->scale == 0 ? most / 32760 : sum;
        for (size_t k = 0; most > 0 && k < e->n_out; k++) v[k] = (float)((double)v[k] / by);
    }
}

/* ---- Numbers as JSON ----------------------------------------------------------------------------------- */

static json_t *numbers_of(const embedding *e, size_t i)
{
    json_t *list = json_array();
    for (size_t k = 0; list && k < e->n_out; k++)
        if (json_array_append_new(list, app_json_real((double)e->vectors[i * e->n_out + k]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Returns vector i as base64 of its floats, little-endian. */
static json_t *base64_of(const embedding *e, size_t i)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t n = e->n_out * sizeof(float), n_text = (n + 2) / 3 * 4;
    unsigned char *bytes = malloc(n + 2);
    char *text = malloc(n_text);
    for (size_t k = 0; bytes && text && k < e->n_out; k++) {
        uint32_t bits;
        memcpy(&bits, &e->vectors[i * e->n_out + k], sizeof bits);
        for (size_t b = 0; b < 4; b++) bytes[4 * k + b] = (unsigned char)(bits >> 8 * b);
    }
    for (size_t at = 0, out = 0; bytes && text && at < n; at += 3, out += 4) {
        const size_t left = n - at;
        const uint32_t group =
            (uint32_t)bytes[at] << 16 | (left > 1 ? (uint32_t)bytes[at + 1] << 8 : 0) | (left > 2 ? bytes[at + 2] : 0);
        text[out] = digits[group >> 18];
        text[out + 1] = digits[group >> 12 & 63];
        text[out + 2] = left > 1 ? digits[group >> 6 & 63] : '=';
        text[out + 3] = left > 2 ? digits[group & 63] : '=';
    }
    json_t *json = bytes && text ? json_stringn(text, n_text) : NULL;
    free(bytes);
    free(text);
    return json;
}

static json_t *usage_of(const embedding *e)
{
    return json_pack("{s:I, s:I}", "prompt_tokens", (json_int_t)e->n_tokens, "total_tokens", (json_int_t)e->n_tokens);
}

static json_t *name_of(const embedding *e)
{
    return app_json_text(e->ask.model_name, strlen(e->ask.model_name));
}

/* ---- OpenAI ------------------------------------------------------------------------------------------ */

static bool read_openai(embedding *e, bool *base64)
{
    const char *format = "float";
    if (!serve_get_text(e->ask.body, "encoding_format", &format, e->error) || !read_dimensions(e)) return false;
    *base64 = strcmp(format, "base64") == 0;
    if (!*base64 && strcmp(format, "float"))
        return serve_fail(e->error, 400, "encoding_format", "'encoding_format' must be float or base64; found '%.40s'", format);
    return add_input(e, "input");
}

static bool add_openai(void *user, size_t i, app_text *out)
{
    const embedding *e = user;
    return serve_json_add(out, json_pack("{s:s, s:I, s:o}", "object", "embedding", "index", (json_int_t)i, "embedding",
                                         e->base64 ? base64_of(e, i) : numbers_of(e, i)));
}

static void native(embedding *e, serve_parts *parts, const char *field);

/* With llama.cpp's field "content" instead of "input" the answer has llama.cpp's shape, as there. */
void serve_post_embeddings(serve_call *call)
{
    serve_error error = {0};
    serve_parts parts = {0};
    embedding *e = begin(call, &error);
    if (!e) return;
    const bool is_native = !serve_get(e->ask.body, "input") && serve_get(e->ask.body, "content");
    if (is_native) native(e, &parts, "content");
    else if (read_openai(e, &e->base64) && read_scale(e) && compute(e)) {
        shorten(e);
        rescale(e);
        serve_parts_text(&parts, "{\"object\":\"list\",\"data\":");
        serve_parts_list(&parts, add_openai, e, e->n);
        serve_parts_close(&parts, json_pack("{s:o, s:o}", "model", name_of(e), "usage", usage_of(e)));
    }
    end(e, &parts);
}

/* ---- llama.cpp ---------------------------------------------------------------------------------------- */

/* A list of one vector: llama.cpp gives several without pooling. */
static bool add_native(void *user, size_t i, app_text *out)
{
    return serve_json_add(out, json_pack("{s:I, s:[o]}", "index", (json_int_t)i, "embedding", numbers_of(user, i)));
}

static void native(embedding *e, serve_parts *parts, const char *field)
{
    if (!read_dimensions(e) || !read_scale(e) || !add_input(e, field) || !compute(e)) return;
    shorten(e);
    rescale(e);
    serve_parts_list(parts, add_native, e, e->n);
}

void serve_post_embedding(serve_call *call)
{
    serve_error error = {0};
    serve_parts parts = {0};
    embedding *e = begin(call, &error);
    if (!e) return;
    native(e, &parts, json_object_get(e->ask.body, "input") ? "input" : "content");
    end(e, &parts);
}

/* ---- ollama ------------------------------------------------------------------------------------------ */

static bool add_numbers(void *user, size_t i, app_text *out)
{
    return serve_json_add(out, numbers_of(user, i));
}

/* Returns whether there is nothing to embed. ollama loads the model then, and answers with no vector. */
static bool is_idle(const json_t *input)
{
    return (json_is_string(input) && !json_string_length(input)) || (json_is_array(input) && !json_array_size(input));
}

void serve_post_ollama_embed(serve_call *call)
{
    serve_error error = {0};
    serve_parts parts = {0};
    const double start = app_now();
    embedding *e = begin(call, &error);
    if (!e) return;
    e->truncate = true;
    bool ok = serve_ollama_keep(e->ask.body, &e->ask.keep, &error) &&
              serve_get_bool(e->ask.body, "truncate", &e->truncate, &error) && read_dimensions(e);
    if (ok && !is_idle(json_object_get(e->ask.body, "input"))) ok = add_input(e, "input") && compute(e);
    if (ok) {
        shorten(e);
        serve_parts_open(&parts, json_pack("{s:o}", "model", name_of(e)));
        serve_parts_text(&parts, ",\"embeddings\":");
        serve_parts_list(&parts, add_numbers, e, e->n);
        const double seconds = call->repeat.on ? 0 : app_now() - start; /* no times in an answer that can be repeated */
        serve_parts_close(&parts, json_pack("{s:I, s:I, s:I}", "total_duration", (json_int_t)(seconds * 1e9),
                                            "load_duration", (json_int_t)0, "prompt_eval_count", (json_int_t)e->n_tokens));
    }
    end(e, &parts);
}

void serve_post_ollama_embeddings(serve_call *call)
{
    serve_error error = {0};
    serve_parts parts = {0};
    embedding *e = begin(call, &error);
    if (!e) return;
    e->truncate = true;
    if (!json_is_string(json_object_get(e->ask.body, "prompt")))
        serve_fail(&error, 400, "prompt", "'prompt' must be a string");
    else if (is_idle(json_object_get(e->ask.body, "prompt")) && serve_ollama_keep(e->ask.body, &e->ask.keep, &error))
        serve_parts_json(&parts, json_pack("{s:[]}", "embedding"));
    else if (!error.status && serve_ollama_keep(e->ask.body, &e->ask.keep, &error) && add_input(e, "prompt") && compute(e))
        serve_parts_json(&parts, json_pack("{s:o}", "embedding", numbers_of(e, 0)));
    end(e, &parts);
}

/* ---- Reranking --------------------------------------------------------------------------------------- */

/* Returns the text of a document, which is a string or an object with "text"; NULL: it is neither. */
static const json_t *text_of(const json_t *document)
{
    const json_t *text = json_is_object(document) ? json_object_get(document, "text") : document;
    return json_is_string(text) ? text : NULL;
}

static bool read_pairs(embedding *e, const json_t **documents)
{
    const json_t *query = json_object_get(e->ask.body, "query");
    aerie_error why = {0};
    e->pooling = AERIE_POOLING_RANK;
    if (!json_is_string(query)) return serve_fail(e->error, 400, "query", "'query' must be a string");
    if (!serve_get_list(e->ask.body, "documents", documents, e->error)) return false;
    e->is_tei = !*documents;
    if (e->is_tei && !serve_get_list(e->ask.body, "texts", documents, e->error)) return false;
    const char *field = e->is_tei && *documents ? "texts" : "documents";
    if (!*documents) return serve_fail(e->error, 400, "documents", "'documents' must be a list of texts");
    if (!make_room(e, json_array_size(*documents), field)) return false;
    for (size_t i = 0; i < json_array_size(*documents); i++) {
        const json_t *text = text_of(json_array_get(*documents, i));
        int32_t *tokens;
        size_t n, n_first;
        if (!text)
            return serve_fail(e->error, 400, field, "document %zu is neither a string nor an object with \"text\"", i);
        const size_t room = 40 * (json_string_length(query) + json_string_length(text)); /* as in serve_ask_tokenize */
        if (!serve_use_add(e->ask.use, room)) return serve_fail_memory(e->error);
        const aerie_status status =
            aerie_model_rerank_tokens(e->ask.model->models.model, json_string_value(query), json_string_length(query),
                                      json_string_value(text), json_string_length(text), &tokens, &n, &n_first, &why);
        serve_use_drop(e->ask.use, room);
        if (status != AERIE_OK) return serve_fail_library(e->error, status, &why, field);
        serve_use_force(e->ask.use, n * sizeof *tokens);
        add_tokens(e, tokens, n, n_first);
    }
    return true;
}

/* Orders by score, best first, then by index. */
static int by_score(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return a->i < b->i ? -1 : a->i > b->i;
}

static bool rank(embedding *e)
{
    e->ranks = malloc(e->n * sizeof *e->ranks);
    if (!e->ranks) return serve_fail_memory(e->error);
    for (size_t i = 0; i < e->n; i++) e->ranks[i] = (ranked){e->vectors[i], i};
    qsort(e->ranks, e->n, sizeof *e->ranks, by_score);
    return true;
}

static bool add_result(void *user, size_t i, app_text *out)
{
    const embedding *e = user;
    const ranked *r = &e->ranks[i];
    const json_t *text = e->documents ? text_of(json_array_get(e->documents, r->i)) : NULL;
    json_t *score = app_json_real((double)r->score), *document = text && !e->is_tei ? json_pack("{s:O}", "text", text) : NULL;
    if (e->is_tei) return serve_json_add(out, json_pack("{s:I, s:o, s:O*}", "index", (json_int_t)r->i, "score", score, "text",
                                                        text));
    return serve_json_add(out, json_pack("{s:I, s:o, s:o*}", "index", (json_int_t)r->i, "relevance_score", score, "document",
                                         document));
}

void serve_post_rerank(serve_call *call)
{
    serve_error error = {0};
    serve_parts parts = {0};
    const json_t *documents = NULL;
    uint32_t n_wanted = UINT32_MAX;
    bool with_documents = false;
    embedding *e = begin(call, &error);
    if (!e) return;
    if (read_pairs(e, &documents) && serve_get_u32(e->ask.body, "top_n", 1, UINT32_MAX, "", &n_wanted, &error) &&
        serve_get_bool(e->ask.body, e->is_tei ? "return_text" : "return_documents", &with_documents, &error) && compute(e) &&
        rank(e)) {
        e->documents = with_documents ? documents : NULL;
        if (!e->is_tei) {
            serve_parts_open(&parts,
                             json_pack("{s:o, s:s, s:o}", "model", name_of(e), "object", "list", "usage", usage_of(e)));
            serve_parts_text(&parts, ",\"results\":");
        }
        serve_parts_list(&parts, add_result, e, e->n < n_wanted ? e->n : n_wanted);
        if (!e->is_tei) serve_parts_text(&parts, "}");
    }
    end(e, &parts);
}
