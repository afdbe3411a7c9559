/* decide.c - /v1/systemone: typed questions about a state, answered by a model with a decision head, as TypeSafe's API and
 * llama.cpp's server define it.
 *
 * Nothing is generated: the file's template "systemone" writes a prompt that offers the options of each question, and the head
 * scores them. With a JOINT head (Clef) one prompt has all questions, and its pieces are tokenized one by one; with a MARKS
 * head (ModernBERT's, Laya) each question has a prompt of its own, which is cut to the lengths that the model was trained with.
 * The model's embedder computes the scores under its embed_lock, so requests take turns. An answer depends on the model file
 * and the request alone. Images of a request come before its text; models with a MARKS head read none.
 */
#define _GNU_SOURCE /* memmem */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aerie_extra.h"
#include "serve/dialects/handlers.h"

enum { MAX_OPTIONS = 255, MAX_QUESTIONS = 256, MAX_LEVELS = 10, OPTION_TOKENS = 48, NEEDED = 16, LEAST_OPTION = 4,
       LEAST_QUESTION = 8 };

/* Text between the pieces of a joint prompt, and at the start of a question's and of an option's piece. */
#define MARKER "<<clef:"
#define SEP MARKER "sep>>"
#define MARK_QUESTION MARKER "question>>"
#define MARK_OPTION MARKER "option>>"

static const char *const type_names[] = {
    [AERIE_SPAN_NOUL] = "noul", [AERIE_SPAN_CHOICE] = "choice", [AERIE_SPAN_SCORE] = "score",
};

typedef struct question {
    const char *id;       /* borrowed from the body */
    aerie_span type;
    const json_t *instructions; /* borrowed */
    json_t *options;      /* owned, a list of {"key", "description"} in the order in which the model sees them */
    size_t n_options;
    float *scores;        /* [n_options] within decision.scores */
} question;

typedef struct decision {
    serve_ask ask;
    serve_call *call;
    serve_error *error;   /* valid until the reply */
    json_t *state;        /* without its images, owned */
    question *questions;  /* [n_questions] */
    size_t n_questions, n_options; /* of all questions */
    float *scores;        /* [n_options] */
    /* the prompt that is being made: ask.pictured, then tokens */
    int32_t *tokens;      /* [n_tokens] */
    uint8_t *spans;       /* [n_tokens] */
    size_t n_tokens, n_all; /* n_all: positions of all prompts so far */
} decision;

static void decision_free(decision *d)
{
    for (size_t i = 0; d->questions && i < d->n_questions; i++) json_decref(d->questions[i].options);
    free(d->questions);
    json_decref(d->state);
    free(d->scores);
    free(d->tokens);
    free(d->spans);
    serve_ask_free(&d->ask);
    free(d);
}

/* ---- Keys of the file --------------------------------------------------------------------------------- */

/* Returns a value of the file's keys as text; NULL: absent (or no memory). The caller frees it with aerie_free. */
static char *key_of(const decision *d, bool own, const char *name)
{
    const aerie_model_info *info = &d->ask.model->models.info;
    char key[160], *value = NULL;
    snprintf(key, sizeof key, "%s%s%s", own ? info->arch : "", own ? "." : "", name);
    aerie_model_metadata_get(d->ask.model->models.model, key, &value, NULL, NULL, NULL);
    return value;
}

static double number_of(const decision *d, bool own, const char *name, double absent)
{
    char *text = key_of(d, own, name);
    const double number = text ? app_number(text, NULL) : absent;
    aerie_free(text);
    return number;
}

/* Returns the temperature for a question: by its type and number of options, by its type, or 1. */
static float temperature_of(const decision *d, const question *q)
{
    const size_t n = q->n_options;
    const char *bucket = n <= 2 ? "2" : n <= 5 ? "3_5" : n <= 10 ? "6_10" : "11";
    char name[64];
    snprintf(name, sizeof name, "decision.temperature.%s.%s", type_names[q->type], bucket);
    const double own = number_of(d, true, name, 0);
    snprintf(name, sizeof name, "decision.temperature.%s", type_names[q->type]);
    return (float)(own != 0 ? own : number_of(d, true, name, 1));
}

/* ---- Questions ----------------------------------------------------------------------------------------- */

static bool add_option(decision *d, question *q, const char *key, const json_t *description)
{
    json_t *one = json_pack("{s:s, s:O?}", "key", key, "description", description);
    if (!one || json_array_append_new(q->options, one)) return serve_fail_memory(d->error);
    q->n_options++;
    return true;
}

static int by_key(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static bool read_choice(decision *d, question *q, const json_t *criteria)
{
    const char *keys[MAX_OPTIONS], *key;
    const json_t *value;
    size_t n = 0;
    const size_t n_all = json_is_object(criteria) ? json_object_size(criteria) : 0;
    if (!n_all) return serve_fail(d->error, 400, "questions", "questions.%.60s: 'criteria' must be a non-empty object", q->id);
    if (n_all > MAX_OPTIONS)
        return serve_fail(d->error, 400, "questions", "questions.%.60s: %zu options; this model reads at most %d", q->id, n_all,
                          MAX_OPTIONS);
    json_object_foreach((json_t *)criteria, key, value) keys[n++] = key;
    /* models with a joint head were trained with sorted keys */
    if (d->ask.model->models.info.decision == AERIE_DECISION_JOINT) qsort(keys, n, sizeof *keys, by_key);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) ok = add_option(d, q, keys[i], json_object_get(criteria, keys[i]));
    return ok;
}

static bool read_score(decision *d, question *q, const json_t *criteria)
{
    const size_t n = json_is_array(criteria) ? json_array_size(criteria) : 0;
    bool ok = true;
    if (n < 2 || n > MAX_LEVELS)
        return serve_fail(d->error, 400, "questions", "questions.%.60s: 'criteria' must be a list of 2 to %d levels", q->id,
                          MAX_LEVELS);
    for (size_t i = 0; ok && i < n; i++) {
        const char key[2] = {(char)('0' + i), '\0'};
        ok = add_option(d, q, key, json_array_get(criteria, i));
    }
    return ok;
}

static bool read_noul(decision *d, question *q, const json_t *criteria)
{
    static const char *const keys[] = {"false", "true"};
    const bool swap = d->ask.model->models.info.decision == AERIE_DECISION_JOINT;
    if (criteria && !json_is_null(criteria) && !json_is_object(criteria))
        return serve_fail(d->error, 400, "questions", "questions.%.60s: 'criteria' must be an object", q->id);
    return add_option(d, q, keys[swap], json_object_get(criteria, keys[swap])) &&
           add_option(d, q, keys[!swap], json_object_get(criteria, keys[!swap]));
}

static bool read_question(decision *d, question *q, const char *id, const json_t *json)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    const json_t *criteria = json_object_get(json, "criteria");
    *q = (question){.id = id, .instructions = json_object_get(json, "instructions"), .options = json_array()};
    if (!q->options) return serve_fail_memory(d->error);
    if (!json_is_object(json)) return serve_fail(d->error, 400, "questions", "questions.%.60s must be an object", id);
    if (!q->instructions || json_is_null(q->instructions))
        return serve_fail(d->error, 400, "questions", "questions.%.60s: 'instructions' is missing", id);
    for (q->type = AERIE_SPAN_NOUL; type && q->type <= AERIE_SPAN_SCORE; q->type++)
        if (!strcmp(type, type_names[q->type])) break;
    if (!type || q->type > AERIE_SPAN_SCORE)
        return serve_fail(d->error, 400, "questions", "questions.%.60s: 'type' must be choice, score or noul", id);
    return q->type == AERIE_SPAN_CHOICE  ? read_choice(d, q, criteria)
           : q->type == AERIE_SPAN_SCORE ? read_score(d, q, criteria)
                                         : read_noul(d, q, criteria);
}

/* Adds a message to a list, without its images, which are taken. `where` names it. */
static bool add_message(decision *d, json_t *list, json_t *message, const char *where)
{
    json_t *content = json_object_get(message, "content"), *rest = json_array(), *copy = NULL;
    bool ok = rest != NULL || serve_fail_memory(d->error);
    for (size_t k = 0; ok && k < json_array_size(content); k++) {
        json_t *part = json_array_get(content, k), *image = json_object_get(part, "image_url");
        char here[96];
        snprintf(here, sizeof here, "%s.content[%zu]", where, k);
        ok = image ? serve_pictures_take_one(&d->ask, image, here, d->error)
                   : json_array_append(rest, part) == 0 || serve_fail_memory(d->error);
    }
    if (ok && json_array_size(rest) < json_array_size(content)) {
        copy = json_copy(message);
        ok = (copy && !json_object_set(copy, "content", rest)) || serve_fail_memory(d->error);
    }
    if (ok) ok = json_array_append(list, copy ? copy : message) == 0 || serve_fail_memory(d->error);
    json_decref(rest);
    json_decref(copy);
    return ok;
}

/* Takes the images: those of the field "images", then those of the state if it is chat messages, and what is left of it. */
static bool read_state(decision *d, const json_t *images)
{
    json_t *state = json_object_get(d->ask.body, "state"), *messages = state;
    const bool wrapped = json_is_object(state) && json_is_array(json_object_get(state, "messages"));
    char where[64];
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(images); i++) {
        snprintf(where, sizeof where, "images[%zu]", i);
        ok = serve_pictures_take_one(&d->ask, json_array_get(images, i), where, d->error);
    }
    if (wrapped) messages = json_object_get(state, "messages");
    json_t *list = json_is_array(messages) ? json_array() : NULL;
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        snprintf(where, sizeof where, wrapped ? "state.messages[%zu]" : "state[%zu]", i);
        ok = list ? add_message(d, list, json_array_get(messages, i), where) : serve_fail_memory(d->error);
    }
    d->state = wrapped ? json_copy(state) : json_incref(list ? list : state);
    if (ok && wrapped) ok = (d->state && !json_object_set(d->state, "messages", list)) || serve_fail_memory(d->error);
    json_decref(list);
    return ok;
}

/* Returns whether the request has images. */
static bool shows_pictures(const json_t *state, const json_t *images)
{
    const json_t *messages = json_is_object(state) ? json_object_get(state, "messages") : state;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        for (size_t k = 0; k < json_array_size(content); k++)
            if (json_object_get(json_array_get(content, k), "image_url")) return true;
    }
    return json_array_size(images) != 0;
}

static bool read_body(decision *d)
{
    const json_t *state = json_object_get(d->ask.body, "state"), *videos = json_object_get(d->ask.body, "videos");
    const json_t *questions = NULL, *images = NULL, *one;
    const char *id;
    if (d->ask.model->models.info.decision == AERIE_DECISION_NONE)
        return serve_fail(d->error, 501, "model", "the model '%.100s' has no decision head", d->ask.model->name);
    if (!state || json_is_null(state)) return serve_fail(d->error, 400, "state", "'state' is missing");
    if (!serve_get_object(d->ask.body, "questions", &questions, d->error)) return false;
    if (!json_object_size(questions))
        return serve_fail(d->error, 400, "questions", "'questions' must be a non-empty object");
    if (json_object_size(questions) > MAX_QUESTIONS)
        return serve_fail(d->error, 400, "questions", "'questions' has %zu questions; at most %d are possible",
                          json_object_size(questions), MAX_QUESTIONS);
    if (videos && !json_is_null(videos) && (!json_is_array(videos) || json_array_size(videos)))
        return serve_fail(d->error, 400, "videos", "'videos' is not supported");
    if (!serve_get_list(d->ask.body, "images", &images, d->error)) return false;
    if (shows_pictures(state, images) && !d->ask.model->tower)
        return serve_fail(d->error, 501, "images", d->ask.model->models.info.decision == AERIE_DECISION_JOINT
                              ? "the model '%.100s' was loaded without its mmproj file (--mmproj), which reads images"
                              : "the model '%.100s' decides about text, not about images", d->ask.model->name);
    if (!read_state(d, images)) return false;
    d->questions = calloc(json_object_size(questions), sizeof *d->questions);
    if (!d->questions) return serve_fail_memory(d->error);
    json_object_foreach((json_t *)questions, id, one) {
        if (!read_question(d, &d->questions[d->n_questions++], id, one)) return false;
        d->n_options += d->questions[d->n_questions - 1].n_options;
    }
    d->scores = calloc(d->n_options, sizeof *d->scores);
    if (!d->scores) return serve_fail_memory(d->error);
    float *at = d->scores;
    for (size_t i = 0; i < d->n_questions; at += d->questions[i++].n_options) d->questions[i].scores = at;
    return true;
}

/* ---- Prompts ------------------------------------------------------------------------------------------- */

/* Replaces `from` by `to`, which is not longer, in a text. */
static void replace(char *text, const char *from, const char *to)
{
    const size_t n_from = strlen(from), n_to = strlen(to);
    char *out = text;
    for (const char *at = text; *at;) {
        const bool found = n_from && strncmp(at, from, n_from) == 0;
        if (found) memcpy(out, to, n_to);
        else *out = *at;
        out += found ? n_to : 1;
        at += found ? n_from : 1;
    }
    *out = '\0';
}

/* Renders the template with these variables, of which it takes ownership. `marker` in them becomes `instead`, so that what the
 * client writes is no mark; then the members `more` are added. */
static bool render(decision *d, json_t *variables, const char *marker, const char *instead, const char *more, char **text,
                   size_t *n)
{
    char *plain = variables ? json_dumps(variables, JSON_COMPACT | (*more ? JSON_SORT_KEYS : 0)) : NULL;
    char *json = plain ? malloc(strlen(plain) + strlen(more) + 2) : NULL;
    char *source = key_of(d, false, "tokenizer.chat_template.systemone");
    aerie_error why = {0};
    json_decref(variables);
    bool ok = json != NULL || serve_fail_memory(d->error);
    if (ok) {
        strcpy(json, plain);
        replace(json, marker, instead);
        strcpy(json + strlen(json) - 1, more);
        strcat(json, "}");
    }
    app_json_free(plain);
    if (ok && !source) {
        ok = serve_fail(d->error, 501, "model", "the file of '%.100s' has no template \"systemone\"", d->ask.model->name);
    } else if (ok) {
        aerie_chat chat = aerie_chat_default();
        chat.template_text = (aerie_text){.data = source, .n = strlen(source), .name = "template systemone"};
        chat.messages = (aerie_text){.data = "[]", .n = 2};
        chat.variables = (aerie_text){.data = json, .n = strlen(json), .name = "the request"};
        const aerie_status status = aerie_model_chat_render(d->ask.model->models.model, &chat, text, n, &why);
        ok = status == AERIE_OK || serve_fail_library(d->error, status, &why, "questions");
    }
    free(json);
    aerie_free(source);
    return ok;
}

/* Appends tokens, of which it takes ownership, to the prompt. */
static bool add_tokens(decision *d, int32_t *tokens, size_t n, uint8_t span)
{
    int32_t *all = realloc(d->tokens, (d->n_tokens + n + 1) * sizeof *all);
    if (all) d->tokens = all;
    uint8_t *spans = all ? realloc(d->spans, d->n_tokens + n + 1) : NULL;
    if (spans) d->spans = spans;
    if (spans) {
        if (n) memcpy(all + d->n_tokens, tokens, n * sizeof *all);
        memset(spans + d->n_tokens, span, n);
        d->n_tokens += n;
    }
    aerie_free(tokens);
    return spans || serve_fail_memory(d->error);
}

static bool unexpected(decision *d)
{
    return serve_fail(d->error, 500, "model", "the template \"systemone\" of '%.100s' writes a prompt without the expected "
                      "marks", d->ask.model->name);
}

static json_t *joint_variables(const decision *d)
{
    json_t *questions = json_array(), *images = json_array();
    bool ok = questions && images;
    for (size_t i = 0; ok && i < d->n_questions; i++) {
        const question *q = &d->questions[i];
        ok = !json_array_append_new(questions, json_pack("{s:s, s:s, s:O, s:O}", "id", q->id, "type", type_names[q->type],
                                                         "instructions", q->instructions, "options", q->options));
    }
    for (size_t i = 0; ok && i < d->ask.images.n; i++)
        ok = !json_array_append_new(images, json_string(serve_pictures_mark()));
    json_t *all = ok ? json_pack("{s:O, s:O, s:O}", "state", d->state, "questions", questions, "images", images) : NULL;
    json_decref(questions);
    json_decref(images);
    return all;
}

/* Adds one piece of a joint prompt. */
static bool add_piece(decision *d, const char *piece, size_t n, size_t *n_questions, size_t *n_options)
{
    static const size_t n_question = sizeof MARK_QUESTION - 1, n_option = sizeof MARK_OPTION - 1;
    uint8_t span = AERIE_SPAN_NONE;
    int32_t *tokens;
    size_t n_tokens;
    if (n >= n_question && !memcmp(piece, MARK_QUESTION, n_question)) {
        if (*n_questions >= d->n_questions) return unexpected(d);
        span = (uint8_t)d->questions[(*n_questions)++].type;
        piece += n_question, n -= n_question;
    } else if (n >= n_option && !memcmp(piece, MARK_OPTION, n_option)) {
        span = AERIE_SPAN_OPTION;
        ++*n_options;
        piece += n_option, n -= n_option;
    }
    if (!serve_ask_tokenize(&d->ask, piece, n, false, true, "questions", &tokens, &n_tokens, d->error)) return false;
    if (span && !n_tokens) {
        aerie_free(tokens);
        return serve_fail(d->error, 400, "questions", "instructions and options must not be empty");
    }
    if (span && d->n_tokens && d->spans[d->n_tokens - 1] == span) { /* the head would take both for one */
        aerie_free(tokens);
        return serve_fail(d->error, 501, "model", "the template \"systemone\" of '%.100s' writes two options, or two "
                          "questions, without a text between them; the head cannot tell these apart", d->ask.model->name);
    }
    return add_tokens(d, tokens, n_tokens, span);
}

/* Returns where the piece that begins at `at` ends. */
static const char *piece_end(const char *at, const char *end)
{
    static const size_t n_sep = sizeof SEP - 1;
    for (; (size_t)(end - at) >= n_sep; at++)
        if (!memcmp(at, SEP, n_sep)) return at;
    return end;
}

/* Makes the beginning of a joint prompt with images: the pieces from *at on, up to the one that has the images, are one text.
 * *at: where the next piece begins; NULL: there is none. */
static bool add_pictures(decision *d, const char **at, const char *end)
{
    const char *mark = serve_pictures_mark();
    app_text head = {0};
    aerie_error why = {0};
    bool found = false, ok = true;
    while (ok && !found && *at) {
        const char *next = piece_end(*at, end);
        found = memmem(*at, (size_t)(next - *at), mark, strlen(mark)) != NULL;
        ok = app_text_add(&head, *at, (size_t)(next - *at)) || serve_fail_memory(d->error);
        *at = next < end ? next + sizeof SEP - 1 : NULL;
    }
    if (ok && !found)
        ok = serve_fail(d->error, 501, "images", "the template \"systemone\" of '%.100s' has no place for images",
                        d->ask.model->name);
    if (ok && memmem(head.data, head.n, MARKER, sizeof MARKER - 1)) ok = unexpected(d);
    if (ok) {
        const aerie_status status = serve_pictures_encode_text(&d->ask, head.data, head.n, &why);
        ok = status == AERIE_OK ||
             (status == AERIE_ERROR_ARGUMENT ? unexpected(d) : serve_fail_library(d->error, status, &why, "images"));
    }
    app_text_free(&head);
    return ok;
}

static bool make_joint(decision *d)
{
    static const char marks[] = ",\"sep\":\"" SEP "\",\"mark_question\":\"" MARK_QUESTION "\",\"mark_option\":\"" MARK_OPTION
                                "\"";
    char *text = NULL;
    size_t n = 0, n_questions = 0, n_options = 0;
    bool ok = render(d, joint_variables(d), MARKER, "<<clef ", marks, &text, &n);
    const char *at = text, *end = text + n;
    if (ok && d->ask.images.n) ok = add_pictures(d, &at, end);
    while (ok && at) {
        const char *next = piece_end(at, end);
        ok = add_piece(d, at, (size_t)(next - at), &n_questions, &n_options);
        at = next < end ? next + sizeof SEP - 1 : NULL;
    }
    aerie_free(text);
    return ok && ((n_questions == d->n_questions && n_options == d->n_options) || unexpected(d));
}

static json_t *own_variables(const decision *d, const question *q)
{
    return json_pack("{s:s, s:s, s:O, s:O, s:O, s:[]}", "id", q->id, "type", type_names[q->type], "instructions",
                     q->instructions, "state", d->state, "options", q->options, "images");
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }
static size_t most(size_t a, size_t b) { return a > b ? a : b; }

/* Where the parts of a prompt are: [first] question [sep] ([mark] option)* [sep] state [sep] */
typedef struct layout {
    size_t question_end;           /* the first [sep] */
    size_t options[MAX_OPTIONS + 1]; /* [n_options + 1] marks, then the second [sep] */
} layout;

static bool find_layout(const int32_t *tokens, size_t n, size_t n_options, int32_t mark, int32_t sep, layout *to)
{
    size_t n_marks = 0, end;
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] != mark) continue;
        if (n_marks == n_options) return false;
        to->options[n_marks++] = i;
    }
    if (n_marks != n_options || to->options[0] < 2 || tokens[to->options[0] - 1] != sep || tokens[n - 1] != sep) return false;
    for (end = to->options[n_marks - 1]; end < n && tokens[end] != sep;) end++;
    to->question_end = to->options[0] - 1;
    to->options[n_marks] = end;
    return end + 1 < n;
}

/* Adds the prompt's tokens, question and options cut so that they have at most `room` tokens, as the model was trained. */
static bool add_cut(decision *d, const question *q, const int32_t *tokens, size_t n, size_t room, const layout *at)
{
    size_t n_all = 0, longest = OPTION_TOKENS + 1;
    int32_t *cut = malloc(n * sizeof *cut);
    uint8_t *spans = calloc(n, 1);
    for (size_t i = 0; i < q->n_options; i++) n_all += least(at->options[i + 1] - at->options[i], longest);
    if (n_all + NEEDED > room) {
        longest = least(longest, most(LEAST_OPTION, (room - least(room, NEEDED)) / q->n_options));
        n_all = 0;
        for (size_t i = 0; i < q->n_options; i++) n_all += least(at->options[i + 1] - at->options[i], longest);
    }
    size_t m = least(at->question_end, 1 + most(LEAST_QUESTION, room - least(room, n_all)));
    free(d->tokens);
    free(d->spans);
    d->tokens = cut, d->spans = spans;
    if (!cut || !spans) return serve_fail_memory(d->error);
    memcpy(cut, tokens, m * sizeof *cut);
    memset(spans, q->type, m);
    cut[m++] = tokens[at->question_end];
    for (size_t i = 0; i < q->n_options; i++) {
        const size_t n_own = least(at->options[i + 1] - at->options[i], longest);
        spans[m] = AERIE_SPAN_OPTION;
        memcpy(cut + m, tokens + at->options[i], n_own * sizeof *cut);
        m += n_own;
    }
    const size_t n_rest = n - at->options[q->n_options];
    memcpy(cut + m, tokens + at->options[q->n_options], n_rest * sizeof *cut);
    d->n_tokens = m + n_rest;
    return true;
}

/* Makes the prompt of one question. */
static bool make_own(decision *d, const question *q)
{
    const int32_t mark = (int32_t)number_of(d, false, "tokenizer.ggml.mask_token_id", -1);
    const int32_t sep = aerie_model_token_special(d->ask.model->models.model, AERIE_SPECIAL_SEP);
    const double room = number_of(d, true, "decision.max_head_tokens", 0);
    aerie_error why = {0};
    char *text = NULL, *mark_text = NULL;
    int32_t *tokens = NULL;
    size_t n = 0, n_tokens = 0, n_mark = 0;
    layout at = {0};
    if (mark < 0 || sep < 0 || !(room >= 1 && room <= UINT32_MAX))
        return serve_fail(d->error, 501, "model", "the file of '%.100s' lacks a mask token, a separator token or "
                          "decision.max_head_tokens", d->ask.model->name);
    const aerie_status status = aerie_model_detokenize(d->ask.model->models.model, &mark, 1, true, &mark_text, &n_mark, &why);
    if (status != AERIE_OK) return serve_fail_library(d->error, status, &why, "model");
    bool ok = render(d, own_variables(d, q), mark_text, " ", "", &text, &n) &&
              serve_ask_tokenize(&d->ask, text, n, false, true, "questions", &tokens, &n_tokens, d->error);
    if (ok && !find_layout(tokens, n_tokens, q->n_options, mark, sep, &at)) ok = unexpected(d);
    if (ok) ok = add_cut(d, q, tokens, n_tokens, (size_t)room, &at);
    aerie_free(mark_text);
    aerie_free(text);
    aerie_free(tokens);
    return ok;
}

/* ---- Scores -------------------------------------------------------------------------------------------- */

/* Makes the chunks of the prompt, with spans for all positions. Both lists are owned by the caller. */
static bool make_chunks(const decision *d, aerie_chunk **chunks, size_t *n_chunks, uint8_t **spans)
{
    const size_t n_before = aerie_prompt_n_positions(d->ask.pictured);
    const aerie_chunk *before = aerie_prompt_chunks(d->ask.pictured, n_chunks);
    *chunks = calloc(*n_chunks + 1, sizeof **chunks);
    *spans = calloc(n_before + d->n_tokens + 1, 1);
    if (!*chunks || !*spans) return serve_fail_memory(d->error);
    if (*n_chunks) memcpy(*chunks, before, *n_chunks * sizeof *before);
    if (d->n_tokens) {
        (*chunks)[(*n_chunks)++] = (aerie_chunk){.tokens = d->tokens, .n_tokens = d->n_tokens};
        memcpy(*spans + n_before, d->spans, d->n_tokens);
    }
    return true;
}

static bool score(decision *d, float *scores, size_t n_scores)
{
    serve_model *m = d->ask.model;
    aerie_error why = {0};
    aerie_status status = AERIE_OK;
    aerie_chunk *chunks = NULL;
    uint8_t *spans = NULL;
    aerie_embedder *embedder = NULL;
    size_t n_chunks;
    const bool ok = make_chunks(d, &chunks, &n_chunks, &spans);
    d->n_all += aerie_prompt_n_positions(d->ask.pictured) + d->n_tokens;
    sem_post(d->call->work); /* let other requests be read and tokenized meanwhile */
    pthread_mutex_lock(&m->embed_lock);
    if (ok) embedder = serve_embedder_of(&d->ask, AERIE_POOLING_AUTO, d->error);
    if (embedder) status = aerie_embedder_decide(embedder, chunks, n_chunks, spans, scores, n_scores, &why);
    pthread_mutex_unlock(&m->embed_lock);
    sem_wait(d->call->work);
    free(chunks);
    free(spans);
    return embedder && (status == AERIE_OK || serve_fail_library(d->error, status, &why, "questions"));
}

static bool compute(decision *d)
{
    bool ok = true;
    if (d->ask.model->models.info.decision == AERIE_DECISION_JOINT) {
        ok = make_joint(d) && score(d, d->scores, d->n_options);
    } else {
        for (size_t i = 0; ok && i < d->n_questions; i++) {
            if (serve_call_gone(d->call)) ok = serve_fail(d->error, 499, "", "the client is gone");
            else ok = make_own(d, &d->questions[i]) && score(d, d->questions[i].scores, d->questions[i].n_options);
        }
    }
    d->call->n_prompt = d->n_all;
    return ok;
}

/* ---- Answers ------------------------------------------------------------------------------------------- */

static size_t best_of(const double *p, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (p[i] > p[best]) best = i;
    return best;
}

/* Returns how sure a choice is: 0 if all options are equally likely. The formulas are TypeSafe's. */
static double sureness_of_choice(const double *p, size_t n)
{
    const double even = 1.0 / (double)n, sure = n < 2 ? 1 : (p[best_of(p, n)] - even) / (1 - even);
    return sure > 0 ? sure : 0;
}

/* Returns how close levels are to the likeliest one, compared with equally likely levels around their centre. */
static double sureness_of_score(const double *p, size_t n)
{
    const double mode = (double)best_of(p, n), centre = (double)(n - 1) / 2;
    double off = 0, off_even = 0;
    for (size_t i = 0; i < n; i++) {
        off += p[i] * fabs((double)i - mode);
        off_even += fabs((double)i - centre) / (double)n;
    }
    return off < off_even ? 1 - off / off_even : 0;
}

static const char *option_key(const question *q, size_t i)
{
    return json_string_value(json_object_get(json_array_get(q->options, i), "key"));
}

static json_t *answer_of(const question *q, const double *p)
{
    const size_t n = q->n_options;
    double expected = 0;
    if (q->type == AERIE_SPAN_NOUL)
        return json_pack("{s:s, s:o}", "type", "noul", "noul", app_json_real(p[strcmp(option_key(q, 0), "true") != 0]));
    json_t *all = json_object(), *legend = json_object();
    bool ok = all && legend;
    for (size_t i = 0; ok && i < n; i++) {
        expected += (double)i * p[i];
        ok = !json_object_set_new(all, option_key(q, i), app_json_real(p[i])) &&
             !json_object_set(legend, option_key(q, i), json_object_get(json_array_get(q->options, i), "description"));
    }
    json_t *answer = NULL;
    if (ok && q->type == AERIE_SPAN_CHOICE)
        answer = json_pack("{s:s, s:s, s:O, s:o}", "type", "choice", "choice", option_key(q, best_of(p, n)), "probabilities",
                           all, "confidence", app_json_real(sureness_of_choice(p, n)));
    else if (ok)
        answer = json_pack("{s:s, s:o, s:O, s:O, s:o}", "type", "score", "score", app_json_real(expected), "legend", legend,
                           "probabilities", all, "confidence", app_json_real(sureness_of_score(p, n)));
    json_decref(all);
    json_decref(legend);
    return answer;
}

static json_t *answers_of(decision *d)
{
    json_t *answers = json_object();
    aerie_error why = {0};
    for (size_t i = 0; answers && i < d->n_questions; i++) {
        const question *q = &d->questions[i];
        double p[MAX_OPTIONS];
        const aerie_status status = aerie_decision_probabilities(q->scores, q->n_options, temperature_of(d, q), p, &why);
        if (status == AERIE_OK && !json_object_set_new(answers, q->id, answer_of(q, p))) continue;
        if (status != AERIE_OK) serve_fail_library(d->error, status, &why, "questions");
        else serve_fail_memory(d->error);
        json_decref(answers);
        return NULL;
    }
    return answers ? json_pack("{s:o, s:o, s:{s:I, s:i}}", "model", app_json_text(d->ask.model_name, strlen(d->ask.model_name)),
                               "answers", answers, "usage", "input_tokens", (json_int_t)d->n_all, "output_tokens", 0)
                   : NULL;
}

void serve_post_systemone(serve_call *call)
{
    serve_error error = {0};
    json_t *json = NULL;
    decision *d = calloc(1, sizeof *d);
    if (!d) {
        serve_fail_memory(&error);
        serve_reply_error(call, &error);
        return;
    }
    d->call = call;
    d->error = &error;
    if (serve_text_begin(&d->ask, call, &error) && read_body(d) && compute(d)) json = answers_of(d);
    sem_post(call->work);
    if (!error.status) serve_reply_json(call, 200, json);
    else if (error.status != 499) serve_reply_error(call, &error);
    decision_free(d);
}
