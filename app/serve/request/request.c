/* request.c - implements request.h: reads the fields of requests by a table. */
#include "serve/request/request.h"
#include "aerie_extra.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_BIAS = 4096, MAX_DEPTH_JSON = 128, MAX_EXPECTED = 1 << 20 };

/* ---- Getters --------------------------------------------------------------------------------------------------- */

const json_t *serve_get(const json_t *object, const char *field)
{
    const json_t *value = json_object_get(object, field);
    return json_is_null(value) ? NULL : value;
}

static const char *kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

static bool wrong_kind(serve_error *error, const char *field, const char *wanted, const json_t *found)
{
    return serve_fail(error, 400, field, "'%s' must be %s; found %s", field, wanted, kind_of(found));
}

bool serve_get_bool(const json_t *object, const char *field, bool *value, serve_error *error)
{
    const json_t *v = serve_get(object, field);
    if (v && !json_is_boolean(v)) return wrong_kind(error, field, "true or false", v);
    if (v) *value = json_is_true(v);
    return true;
}

bool serve_get_text(const json_t *object, const char *field, const char **value, serve_error *error)
{
    const json_t *v = serve_get(object, field);
    if (v && !json_is_string(v)) return wrong_kind(error, field, "a string", v);
    if (v && strlen(json_string_value(v)) != json_string_length(v))
        return serve_fail(error, 400, field, "'%s' contains a NUL character", field);
    if (v) *value = json_string_value(v);
    return true;
}

bool serve_get_list(const json_t *object, const char *field, const json_t **value, serve_error *error)
{
    const json_t *v = serve_get(object, field);
    if (v && !json_is_array(v)) return wrong_kind(error, field, "a list", v);
    if (v) *value = v;
    return true;
}

bool serve_get_object(const json_t *object, const char *field, const json_t **value, serve_error *error)
{
    const json_t *v = serve_get(object, field);
    if (v && !json_is_object(v)) return wrong_kind(error, field, "an object", v);
    if (v) *value = v;
    return true;
}

/* Reads an integer, which may be written with a fraction of zero. */
static bool whole(const json_t *v, double *value)
{
    *value = json_number_value(v);
    return json_is_number(v) && *value == floor(*value);
}

bool serve_get_u32(const json_t *object, const char *field, uint32_t min, uint32_t max, const char *note, uint32_t *value,
                   serve_error *error)
{
    const json_t *v = serve_get(object, field);
    double number;
    if (!v) return true;
    if (!json_is_number(v)) return wrong_kind(error, field, "a whole number", v);
    if (!whole(v, &number) || number < min || number > max)
        return serve_fail(error, 400, field, "'%s' must be a whole number from %u to %u%s; found %.17g", field,
                          (unsigned)min, (unsigned)max, note, number);
    *value = (uint32_t)number;
    return true;
}

/* ---- The table ------------------------------------------------------------------------------------------------ */

typedef enum field_type {
    FIELD_F32,
    FIELD_I32,
    FIELD_U32,
    FIELD_ANSWERS, /* uint32_t n; at most --max-n */
    FIELD_MIROSTAT, /* int32_t; not 1 */
    FIELD_TOKENS, /* uint32_t n_predict: -1 and -2 mean as many as possible */
    FIELD_DRAFTS, /* uint32_t; 0 means none */
    FIELD_SEED,
    FIELD_BOOL,
} field_type;

typedef struct field_row {
    const char *name;
    field_type type;
    size_t offset; /* in serve_ask */
    double min, max;
} field_row;

#define AT(field) offsetof(serve_ask, field)

static const field_row rows[] = {
    {"stream", FIELD_BOOL, AT(stream), 0, 0},
    {"n", FIELD_ANSWERS, AT(n), 1, 128},
    {"n_cmpl", FIELD_ANSWERS, AT(n), 1, 128},
    {"max_tokens", FIELD_TOKENS, AT(n_predict), 0, INT32_MAX},
    {"max_completion_tokens", FIELD_TOKENS, AT(n_predict), 0, INT32_MAX},
    {"n_predict", FIELD_TOKENS, AT(n_predict), 0, INT32_MAX},
    {"temperature", FIELD_F32, AT(sampling.temperature), 0, 100},
    {"top_p", FIELD_F32, AT(sampling.top_p), 0, 1},
    {"top_k", FIELD_I32, AT(sampling.top_k), -1, INT32_MAX},
    {"min_p", FIELD_F32, AT(sampling.min_p), 0, 1},
    {"typical_p", FIELD_F32, AT(sampling.typical_p), 0, 1},
    {"top_n_sigma", FIELD_F32, AT(sampling.top_n_sigma), -1, 1e6},
    {"presence_penalty", FIELD_F32, AT(sampling.presence_penalty), -100, 100},
    {"frequency_penalty", FIELD_F32, AT(sampling.frequency_penalty), -100, 100},
    {"repeat_penalty", FIELD_F32, AT(sampling.repeat_penalty), 0.01, 100},
    {"repetition_penalty", FIELD_F32, AT(sampling.repeat_penalty), 0.01, 100},
    {"repeat_last_n", FIELD_I32, AT(sampling.penalty_last_n), -1, INT32_MAX},
    {"dry_multiplier", FIELD_F32, AT(sampling.dry_multiplier), 0, 1000},
    {"dry_base", FIELD_F32, AT(sampling.dry_base), 1, 1000},
    {"dry_allowed_length", FIELD_I32, AT(sampling.dry_allowed_length), 0, INT32_MAX},
    {"dry_penalty_last_n", FIELD_I32, AT(sampling.dry_penalty_last_n), -1, INT32_MAX},
    {"xtc_probability", FIELD_F32, AT(sampling.xtc_probability), 0, 1},
    {"xtc_threshold", FIELD_F32, AT(sampling.xtc_threshold), 0, 1},
    {"dynatemp_range", FIELD_F32, AT(sampling.dynatemp_range), 0, 1000},
    {"dynatemp_exponent", FIELD_F32, AT(sampling.dynatemp_exponent), 0, 1000},
    {"mirostat", FIELD_MIROSTAT, AT(sampling.mirostat), 0, 2},
    {"mirostat_tau", FIELD_F32, AT(sampling.mirostat_tau), 0, 1000},
    {"mirostat_eta", FIELD_F32, AT(sampling.mirostat_eta), 0, 1000},
    {"min_keep", FIELD_U32, AT(sampling.min_keep), 0, INT32_MAX},
    {"speculative.n_max", FIELD_DRAFTS, AT(draft_max), 0, INT32_MAX},
    {"speculative.n_min", FIELD_U32, AT(draft_min), 0, INT32_MAX},
    {"speculative.p_min", FIELD_F32, AT(draft_p_min), 0, 1},
    {"seed", FIELD_SEED, AT(seed), 0, 0},
    {"ignore_eos", FIELD_BOOL, AT(ignore_eos), 0, 0},
    {"echo", FIELD_BOOL, AT(echo), 0, 0},
    {"return_origins", FIELD_BOOL, AT(origins), 0, 0},
    {"timings_per_token", FIELD_BOOL, AT(timings_per_token), 0, 0},
    {"return_progress", FIELD_BOOL, AT(return_progress), 0, 0},
    {"return_tokens", FIELD_BOOL, AT(return_tokens), 0, 0},
};

static bool set_seed(serve_ask *ask, const json_t *v, const char *field, serve_error *error)
{
    double number;
    if (json_is_real(v) && ask->wide_seed && fabs(json_real_value(v) / (double)ask->wide_seed - 1) < 1e-12) {
        ask->seed = ask->wide_seed;
        ask->seeded = true;
        return true;
    }
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        ask->seed = (uint64_t)json_integer_value(v);
        ask->seeded = true;
        return true;
    }
    if (whole(v, &number) && number < 0 && number >= INT64_MIN) return true; /* a random one */
    if (!whole(v, &number) || number < 0 || number >= 0x1p64)
        return serve_fail(error, 400, field, "'%s' must be a whole number from -2^63 to 2^64 - 1 (negative: a random one)",
                          field);
    ask->seed = (uint64_t)number;
    ask->seeded = true;
    return true;
}

static bool set_row(serve_ask *ask, const field_row *row, const json_t *v, serve_error *error)
{
    static const char *const notes[FIELD_BOOL] = {
        [FIELD_F32] = "", [FIELD_I32] = "", [FIELD_U32] = "", [FIELD_ANSWERS] = " (--max-n)", [FIELD_MIROSTAT] = ", but not 1",
        [FIELD_TOKENS] = ", or -1 or -2 for as many as fit", [FIELD_DRAFTS] = ""};
    const char *field = row->type == FIELD_TOKENS && ask->count_name ? ask->count_name : row->name;
    void *place = (char *)ask + row->offset;
    double x;
    if (row->type == FIELD_SEED) return set_seed(ask, v, field, error);
    if (row->type == FIELD_BOOL) {
        if (!json_is_boolean(v)) return wrong_kind(error, field, "true or false", v);
        *(bool *)place = json_is_true(v);
        return true;
    }
    if (!json_is_number(v)) return wrong_kind(error, field, row->type == FIELD_F32 ? "a number" : "a whole number", v);
    x = json_number_value(v);
    if (row->type == FIELD_TOKENS && (x == -1 || x == -2)) {
        *(uint32_t *)place = 0;
        return true;
    }
    double min = row->min, max = row->max;
    if (row->type == FIELD_ANSWERS) max = ask->server->o->max_n;
    if (row->type == FIELD_TOKENS && ask->kind != SERVE_KIND_CHAT && !ask->may_be_zero) min = 1;
    if (!(x >= min && x <= max) || (row->type != FIELD_F32 && x != floor(x)) || (row->type == FIELD_MIROSTAT && x == 1))
        return serve_fail(error, 400, field, "'%s' must be %s from %g to %.10g%s; found %.17g", field,
                          row->type == FIELD_F32 ? "a number" : "a whole number", min, max, notes[row->type], x);
    if (row->type == FIELD_TOKENS && x == 0) { /* the prompt alone, for the prefix cache */
        ask->only_prompt = true;
        x = 1;
    }
    if (row->type == FIELD_DRAFTS && x == 0) ask->no_drafts = true;
    if (row->type == FIELD_F32) *(float *)place = (float)x;
    else if (row->type == FIELD_I32 || row->type == FIELD_MIROSTAT) *(int32_t *)place = (int32_t)x;
    else *(uint32_t *)place = (uint32_t)x;
    return true;
}

bool serve_ask_share(json_t *to, const json_t *from)
{
    static const char *const own[] = {"stream", "n",    "n_cmpl",         "max_tokens", "max_completion_tokens", "n_predict",
                                      "echo",   "return_origins", "return_tokens"}; /* each dialect has its own, or none */
    static const char *const more[] = {"stop", "logit_bias", "samplers", "dry_sequence_breakers", "lora", "grammar",
                                       "json_schema", "structured_outputs", "guided_json", "guided_choice", "guided_grammar",
                                       "chat_template_kwargs", "enable_thinking", "reasoning_effort", "reasoning_format",
                                       "reasoning_budget_tokens", "thinking_budget_tokens", "thinking_budget",
                                       "thinking_token_budget", "reasoning_budget_message", "truncation",
                                       "add_generation_prompt", "continue_final_message"};
    const size_t n_rows = sizeof rows / sizeof *rows, n_more = sizeof more / sizeof *more;
    for (size_t i = 0; i < n_rows + n_more; i++) {
        const char *name = i < n_rows ? rows[i].name : more[i - n_rows];
        json_t *v = json_object_get(from, name);
        for (size_t k = 0; v && k < sizeof own / sizeof *own; k++)
            if (strcmp(own[k], name) == 0) v = NULL;
        if (v && json_object_set(to, name, v)) return false;
    }
    return true;
}

/* ---- Lists and objects ----------------------------------------------------------------------------------------- */

static bool add_stop(serve_ask *ask, const json_t *v, const char *field, serve_error *error)
{
    if (!json_is_string(v)) return wrong_kind(error, field, "a string or a list of strings", v);
    const size_t n = json_string_length(v);
    if (strlen(json_string_value(v)) != n) return serve_fail(error, 400, field, "'%s' contains a NUL character", field);
    if (n == 0) return true; /* some clients send an empty one and mean none */
    if (n > AERIE_MAX_STOP_BYTES || ask->n_stops == AERIE_MAX_STOPS)
        return serve_fail(error, 400, field, "'%s' may hold %d texts of at most %d bytes each", field, AERIE_MAX_STOPS,
                          AERIE_MAX_STOP_BYTES);
    if (!ask->stops && !(ask->stops = calloc(AERIE_MAX_STOPS, sizeof *ask->stops))) return serve_fail_memory(error);
    ask->stops[ask->n_stops++] = json_string_value(v);
    return true;
}

/* Adds a stop string, or a list of them. */
static bool ask_stops(serve_ask *ask, const json_t *value, const char *field, serve_error *error)
{
    if (!value || json_is_null(value)) return true;
    if (!json_is_array(value)) return add_stop(ask, value, field, error);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!add_stop(ask, json_array_get(value, i), field, error)) return false;
    return true;
}

/* Biases the n tokens. */
static bool add_bias(serve_ask *ask, size_t *capacity, const int32_t *tokens, size_t n, const json_t *v, serve_error *error)
{
    double bias = json_number_value(v);
    if (json_is_false(v)) bias = -INFINITY; /* llama.cpp: never */
    else if (!json_is_number(v)) return wrong_kind(error, "logit_bias", "numbers by token", v);
    if (bias <= -100) bias = -INFINITY; /* -100 bans a token, as in OpenAI's API */
    if (n > MAX_BIAS - ask->n_bias)
        return serve_fail(error, 400, "logit_bias", "'logit_bias' may hold %d tokens at most", MAX_BIAS);
    for (size_t i = 0; i < n; i++) {
        aerie_logit_bias *grown = app_grow(ask->bias, ask->n_bias, capacity, sizeof *grown);
        if (!grown) return serve_fail_memory(error);
        ask->bias = grown;
        ask->bias[ask->n_bias++] = (aerie_logit_bias){tokens[i], (float)bias};
    }
    return true;
}

static bool add_bias_id(serve_ask *ask, size_t *capacity, double token, const json_t *v, serve_error *error)
{
    if (!(token >= 0 && token < ask->model->models.info.n_vocab) || token != floor(token))
        return serve_fail(error, 400, "logit_bias", "'logit_bias' has a token %g; the model has tokens 0 to %u", token,
                          (unsigned)ask->model->models.info.n_vocab - 1);
    return add_bias(ask, capacity, &(int32_t){(int32_t)token}, 1, v, error);
}

static bool add_bias_text(serve_ask *ask, size_t *capacity, const char *text, size_t n, const json_t *v, serve_error *error)
{
    int32_t *tokens;
    size_t n_tokens;
    if (!n) return serve_fail(error, 400, "logit_bias", "'logit_bias' has an empty text");
    if (!serve_ask_tokenize(ask, text, n, false, false, "logit_bias", &tokens, &n_tokens, error)) return false;
    const bool ok = add_bias(ask, capacity, tokens, n_tokens, v, error);
    aerie_free(tokens);
    return ok;
}

/* Reads {"15043": 1} or [[15043, 1]]; a text instead of an id stands for all of its tokens, as in llama.cpp. */
static bool read_bias(serve_ask *ask, const json_t *value, serve_error *error)
{
    const char *key;
    json_t *v;
    size_t capacity = 0;
    if (!value) return true;
    const size_t n = json_is_object(value) ? json_object_size(value) : json_array_size(value);
    if (!json_is_object(value) && !json_is_array(value)) return wrong_kind(error, "logit_bias", "an object or a list", value);
    if (n > MAX_BIAS) return serve_fail(error, 400, "logit_bias", "'logit_bias' may hold %d tokens; found %zu", MAX_BIAS, n);
    json_object_foreach((json_t *)value, key, v)
    {
        char *end;
        const double token = app_number(key, &end);
        if (!(*key && !*end ? add_bias_id(ask, &capacity, token, v, error)
                            : add_bias_text(ask, &capacity, key, strlen(key), v, error)))
            return false;
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *pair = json_array_get(value, i), *token = json_array_get(pair, 0), *by = json_array_get(pair, 1);
        if (!json_is_array(pair) || json_array_size(pair) != 2 || !(json_is_number(token) || json_is_string(token)))
            return serve_fail(error, 400, "logit_bias", "'logit_bias' must hold pairs of a token's id or a text and a number");
        if (!(json_is_number(token)
                  ? add_bias_id(ask, &capacity, json_number_value(token), by, error)
                  : add_bias_text(ask, &capacity, json_string_value(token), json_string_length(token), by, error)))
            return false;
    }
    return true;
}

/* Reads a list of names, or a text of llama.cpp's letters ("edskypmxt"). */
static bool read_samplers(serve_ask *ask, const json_t *object, serve_error *error)
{
    const json_t *list = json_object_get(object, "samplers");
    if (!json_is_string(list) && !serve_get_list(object, "samplers", &list, error)) return false;
    if (!list || json_is_null(list)) return true;
    const size_t n_names = json_is_string(list) ? strlen(json_string_value(list)) : json_array_size(list);
    size_t n = 0;
    for (size_t i = 0; i < n_names; i++) {
        const char letter[2] = {json_is_string(list) ? json_string_value(list)[i] : '\0', '\0'};
        const char *name = json_is_string(list) ? letter : json_string_value(json_array_get(list, i));
        aerie_sampler sampler;
        if (name && strcmp(name, "infill") == 0) continue; /* llama.vim names it; llama.cpp's rule for the end of the filled
                                                            * text */
        if (!name || !aerie_sampler_parse(name, &sampler))
            return serve_fail(error, 400, "samplers", "'samplers' has an unknown step '%.40s'", name ? name : "");
        if (n + 1 >= AERIE_MAX_SAMPLERS) return serve_fail(error, 400, "samplers", "'samplers' has too many steps");
        ask->sampling.samplers[n++] = sampler;
    }
    ask->sampling.samplers[n] = AERIE_SAMPLER_END;
    return true;
}

static bool read_breakers(serve_ask *ask, const json_t *object, serve_error *error)
{
    enum { MOST = 64, MOST_BYTES = 256 };
    static const char field[] = "dry_sequence_breakers";
    const json_t *list = NULL;
    if (!serve_get_list(object, field, &list, error)) return false;
    const size_t n = json_array_size(list);
    if (!list) return true;
    if (!n || n > MOST) return serve_fail(error, 400, field, "'%s' must hold 1 to %d texts; found %zu", field, MOST, n);
    if (!(ask->breakers = calloc(n, sizeof *ask->breakers))) return serve_fail_memory(error);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        const size_t n_bytes = json_string_length(v);
        if (!json_is_string(v)) return wrong_kind(error, field, "a list of texts", v);
        if (!n_bytes || n_bytes > MOST_BYTES || strlen(json_string_value(v)) != n_bytes)
            return serve_fail(error, 400, field, "'%s'[%zu] must have 1 to %d bytes, without NUL", field, i, MOST_BYTES);
        ask->breakers[ask->n_breakers++] = json_string_value(v);
    }
    return true;
}

/* Refuses fields that are known but not supported, instead of ignoring them. */
static bool check_unsupported(const json_t *object, serve_kind kind, serve_error *error)
{
    static const char *const fields[] = {
        "audio",        "modalities",      "image_data",     "suffix",    "guided_regex",     "best_of",
        "prediction",   "multimodal_data", "stop_token_ids", "bad_words", "use_beam_search",  "web_search_options",
        "chat_template", "min_tokens",     "truncate_prompt_tokens", "allowed_token_ids", "prompt_logprobs",
        "post_sampling_probs"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *v = serve_get(object, fields[i]);
        if (!v || (json_is_array(v) && !json_array_size(v)) || json_is_false(v)) continue;
        if (strcmp(fields[i], "min_tokens") == 0 && json_is_number(v) && json_number_value(v) == 0) continue;
        if (json_is_string(v) && !json_string_length(v)) continue;
        if (strcmp(fields[i], "best_of") == 0 && json_number_value(v) == 1) continue;
        if (strcmp(fields[i], "prediction") == 0) continue; /* only a hint, so it may be ignored */
        if (strcmp(fields[i], "post_sampling_probs") == 0 && !(json_number_value(serve_get(object, "n_probs")) > 0)) continue;
        if (strcmp(fields[i], "suffix") == 0 && kind == SERVE_KIND_TEXT) continue;
        if (strcmp(fields[i], "modalities") == 0 && json_array_size(v) == 1 && json_is_string(json_array_get(v, 0)) &&
            strcmp(json_string_value(json_array_get(v, 0)), "text") == 0)
            continue;
        return serve_fail(error, 400, fields[i], "'%s' is not supported by this server", fields[i]);
    }
    return true;
}

static bool read_n_top(serve_ask *ask, const json_t *object, const char *field, serve_error *error)
{
    return serve_get_u32(object, field, 0, ask->server->o->max_logprobs, " (--max-logprobs)", &ask->n_top, error);
}

/* Reads "logprobs": true with "top_logprobs" in chats, a number in completions; and llama.cpp's "n_probs". */
static bool read_logprobs(serve_ask *ask, const json_t *object, serve_error *error)
{
    const json_t *v = serve_get(object, "logprobs");
    if (v && json_is_boolean(v)) {
        ask->logprobs = json_is_true(v);
    } else if (v) {
        if (!read_n_top(ask, object, "logprobs", error)) return false;
        ask->logprobs = true;
    }
    if (!read_n_top(ask, object, "top_logprobs", error)) return false;
    if (serve_get(object, "top_logprobs") && ask->n_top && !ask->logprobs)
        return serve_fail(error, 400, "top_logprobs", "'top_logprobs' needs 'logprobs': true");
    if (!read_n_top(ask, object, "n_probs", error)) return false;
    if (ask->n_top) ask->logprobs = true;
    return true;
}

/* Draws a seed for a request that has none. */
static uint64_t draw_seed(serve_server *server)
{
    uint64_t z = server->options->sampling.seed + 0x9e3779b97f4a7c15u * (1 + atomic_fetch_add(&server->n_ids, 1));
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) >> 1;
}

static bool read_stream_options(serve_ask *ask, serve_error *error)
{
    const json_t *options = NULL;
    if (!serve_get_object(ask->body, "stream_options", &options, error)) return false;
    return !options || (serve_get_bool(options, "include_usage", &ask->include_usage, error) &&
                        serve_get_bool(options, "continuous_usage_stats", &ask->usage_each, error)); /* as in vLLM */
}

static bool read_reasoning(serve_ask *ask, serve_error *error)
{
    const char *format = NULL;
    ask->keep_reasoning = ask->server->keep_reasoning;
    if (!serve_get_text(ask->body, "reasoning_format", &format, error)) return false;
    if (!format) return true;
    ask->keep_reasoning = strcmp(format, "none") == 0;
    if (ask->keep_reasoning || strcmp(format, "auto") == 0 || strcmp(format, "deepseek") == 0) return true;
    return serve_fail(error, 400, "reasoning_format", "'reasoning_format' is none, auto or deepseek; found '%.40s'", format);
}

bool serve_ask_fields(serve_ask *ask, serve_error *error)
{
    const json_t *body = ask->body;
    if (!check_unsupported(body, ask->kind, error) || !serve_ask_lora(ask, error)) return false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *v = serve_get(body, rows[i].name);
        if (v && !set_row(ask, &rows[i], v, error)) return false;
    }
    if (!read_stream_options(ask, error) || !read_reasoning(ask, error) || !read_logprobs(ask, body, error)) return false;
    if (!ask_stops(ask, serve_get(body, "stop"), "stop", error) || !read_bias(ask, serve_get(body, "logit_bias"), error))
        return false;
    return serve_ask_grammar(ask, body, error) && serve_ask_budget(ask, body, error) && read_samplers(ask, body, error) &&
           read_breakers(ask, body, error);
}

/* ---- Life --------------------------------------------------------------------------------------------------------- */

/* Returns whether the nesting of the text is shallow; strings do not count. Deep nesting is refused before any function
 * recurses into it. */
static bool is_shallow(const char *text, size_t n)
{
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        if (quoted) {
            if (c == '\\') i++;
            else if (c == '"') quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            if (++depth > MAX_DEPTH_JSON) return false;
        } else if ((c == '}' || c == ']') && depth) {
            depth--;
        }
    }
    return true;
}

/* Reads "speculative.type", as in llama.cpp's server. The server chooses the drafters; a request can only turn them off. */
static bool read_speculation(serve_ask *ask, serve_error *error)
{
    const char *type = NULL;
    aerie_spec_type known;
    if (!serve_get_text(ask->body, "speculative.type", &type, error)) return false;
    if (!type || !aerie_spec_type_parse(type, &known)) {
        if (!type) return true;
        return serve_fail(error, 400, "speculative.type", "'speculative.type' is \"none\" or \"auto\", what this server was "
                          "started with; found '%.40s'", type);
    }
    ask->no_drafts = ask->no_drafts || known == AERIE_SPEC_NONE;
    return true;
}

/* Reads "cache_salt", as in vLLM: requests of one key with different salts share no cache. */
static bool read_scope(serve_ask *ask, serve_error *error)
{
    const char *salt = NULL;
    if (!serve_get_text(ask->body, "cache_salt", &salt, error)) return false;
    if (salt && !*salt) return serve_fail(error, 400, "cache_salt", "'cache_salt' must not be empty");
    ask->scope = serve_keys_scope(ask->server, ask->call->i_key, salt);
    return true;
}

/* Reads "aerie_expected", the probable beginning of the answer, which is drafted; or what OpenAI's "prediction" says about
 * it. */
static bool read_expected(serve_ask *ask, serve_error *error)
{
    const char *text = NULL;
    const json_t *content = serve_get(json_object_get(ask->body, "prediction"), "content");
    if (!serve_get_text(ask->body, "aerie_expected", &text, error)) return false;
    if (!text && json_is_string(content)) text = json_string_value(content);
    if (!text || !*text) return true;
    if (strlen(text) > MAX_EXPECTED)
        return serve_fail(error, 400, "aerie_expected", "'aerie_expected' may have %d bytes at most; found %zu", MAX_EXPECTED,
                          strlen(text));
    const size_t n = strlen(text) + 1;
    if (!(ask->expected = malloc(n))) return serve_fail_memory(error);
    memcpy(ask->expected, text, n);
    return true;
}

/* Refuses a compressed body by name; as JSON its first byte would be blamed. */
static bool check_encoding(const serve_call *call, serve_error *error)
{
    const char *encoding = serve_call_header(call, "Content-Encoding");
    if (!encoding || !*encoding || strcasecmp(encoding, "identity") == 0) return true;
    return serve_fail(error, 415, "", "this server reads bodies only as they are; found Content-Encoding '%.40s'", encoding);
}

bool serve_ask_read(serve_ask *ask, serve_call *call, serve_error *error)
{
    json_error_t where;
    serve_server *server = call->server;
    *ask = (serve_ask){.server = server,
                       .call = call,
                       .use = &call->use,
                       .n = 1,
                       .sampling = server->options->sampling,
                       .ignore_eos = server->options->ignore_eos,
                       .keep_reasoning = server->keep_reasoning,
                       .keep = NAN};
    ask->n_predict = server->o->default_max_tokens;
    if (server->options->n_predict > 0) ask->n_predict = (uint32_t)server->options->n_predict;
    if (!call->body.n) return serve_fail(error, 400, "", "the request has no body; JSON is expected");
    if (!check_encoding(call, error)) return false;
    serve_mend_mark(call->body.data, call->body.n);
    if (!is_shallow(call->body.data, call->body.n))
        return serve_fail(error, 400, "", "the body is nested more than %d deep", MAX_DEPTH_JSON);
    const size_t flags = JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES;
    app_json_status status = app_json_read(&ask->body, call->body.data, call->body.n, flags, &where);
    if (status == APP_JSON_WRONG && serve_mend_halves(call->body.data, call->body.n))
        status = app_json_read(&ask->body, call->body.data, call->body.n, flags, &where);
    if (status == APP_JSON_WRONG && json_error_code(&where) == json_error_numeric_overflow) {
        serve_numbers_narrow(call->body.data, call->body.n, &ask->wide_seed);
        status = app_json_read(&ask->body, call->body.data, call->body.n, flags, &where);
    }
    if (status == APP_JSON_NO_MEMORY) return serve_fail_memory(error);
    if (status == APP_JSON_WRONG)
        return serve_fail(error, 400, "", "the body is not JSON: %.200s (line %d, column %d)", where.text, where.line,
                          where.column);
    if (!json_is_object(ask->body)) return serve_fail(error, 400, "", "the body must be a JSON object; found a list");
    serve_body_free(call);
    return read_scope(ask, error) && read_speculation(ask, error) && read_expected(ask, error);
}

bool serve_ask_kept(const serve_ask *ask, serve_error *error)
{
    return !(app_json_lacked() || atomic_load(&ask->use->refused)) || serve_fail_memory(error);
}

bool serve_ask_model(serve_ask *ask, serve_error *error)
{
    const char *name = NULL;
    if (!serve_get_text(ask->body, "model", &name, error)) return false;
    sem_post(ask->call->work); /* other requests continue, since loading a model may take long */
    ask->call->uses = ask->model = serve_models_take(ask->server->models, name, ask->call, error);
    sem_wait(ask->call->work);
    if (!ask->model) return false;
    ask->model_name = ask->server->models->n == 1 && name && *name ? name : ask->model->name;
    ask->style = ask->model->plain.style;
    if (ask->server->options->seed_given && !ask->server->options->seed_random) ask->seed = ask->server->options->sampling.seed;
    else ask->seed = ask->call->repeat.on ? ask->call->repeat.seed : draw_seed(ask->server);
    return true;
}

const serve_template *serve_ask_template(const serve_ask *ask)
{
    return ask->tools ? &ask->model->with_tools : &ask->model->plain;
}

bool serve_ask_replace(serve_ask *ask, json_t *body, bool ok, serve_error *error)
{
    if (!ok) {
        json_decref(body);
        return error->status ? false : serve_fail_memory(error);
    }
    json_decref(ask->body);
    ask->body = body;
    return true;
}

bool serve_ask_may_try(serve_ask *ask)
{
    enum { MOST_TRIES = 2 }; /* besides the first one */
    return !ask->server->options->machines && ask->n_tries++ < MOST_TRIES;
}

void serve_ask_leave(serve_ask *ask)
{
    if (!ask->model) return;
    ask->left = ask->model;
    ask->fingerprint = ask->left->models.info.fingerprint;
    ask->call->uses = ask->model = NULL;
    serve_models_used(ask->server->models, ask->left, ask->keep);
    serve_models_give(ask->server->models, ask->left);
}

bool serve_ask_return(serve_ask *ask, double end, serve_error *error)
{
    if (!serve_models_take_again(ask->server->models, ask->left, ask->call, end, error)) return false;
    ask->call->uses = ask->model = ask->left;
    if (ask->model->models.info.fingerprint == ask->fingerprint) return true;
    serve_models_give(ask->server->models, ask->model);
    ask->call->uses = ask->model = NULL;
    return serve_fail(error, 500, "model", "the device failed, and meanwhile the file of '%.100s' was replaced",
                      ask->left->name);
}

bool serve_ask_wait(serve_ask *ask, serve_error *error)
{
    if (!serve_model_fails(ask->model)) return true;
    serve_ask_leave(ask);
    return serve_ask_return(ask, app_now() + SERVE_WAIT_SECONDS, error);
}

bool serve_ask_again(serve_ask *ask, aerie_status status, serve_error *error)
{
    if (status == AERIE_ERROR_INTERNAL) serve_model_note_pass(ask->model, status);
    const bool failed = status == AERIE_ERROR_INTERNAL || (status != AERIE_OK && serve_model_fails(ask->model));
    if (!failed || !serve_ask_may_try(ask)) return false;
    sem_post(ask->call->work);
    const bool ready = serve_ask_wait(ask, error);
    sem_wait(ask->call->work);
    return ready;
}

void serve_ask_free(serve_ask *ask)
{
    serve_ask_leave(ask);
    aerie_grammar_free(ask->grammar);
    aerie_free(ask->tokens);
    aerie_free(ask->prompt);
    aerie_prompt_free(ask->pictured);
    serve_pictures_free(&ask->images);
    free(ask->expected);
    free(ask->prefix);
    app_text_free(&ask->begun);
    app_text_free(&ask->reasoning_end);
    free(ask->ends);
    free(ask->stops);
    free(ask->breakers);
    free(ask->bias);
    json_decref(ask->tools);
    json_decref(ask->loose_tools);
    json_decref(ask->forms);
    json_decref(ask->body);
}
