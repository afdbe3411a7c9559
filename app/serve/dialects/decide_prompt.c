/* decide_prompt.c - prompts of decision models, and their scores (decide.h).
 *
 * With JOINT (Clef) one prompt has all questions, and its pieces are tokenized one by one; with MARKS (ModernBERT's, Laya) and
 * LABELS (language models) each question has a prompt of its own. Images come before the text of a joint prompt; in one with
 * labels, where the template puts them. The model's embedder computes the scores under its embed_lock, so requests take turns.
 */
#define _GNU_SOURCE /* memmem */
#include <stdlib.h>
#include <string.h>

#include "serve/dialects/decide.h"

enum { OPTION_TOKENS = 48, NEEDED = 16, LEAST_OPTION = 4, LEAST_QUESTION = 8 };

/* Text between the pieces of a joint prompt, and at the start of a question's and of an option's piece. */
#define MARKER "<<clef:"
#define SEP MARKER "sep>>"
#define MARK_QUESTION MARKER "question>>"
#define MARK_OPTION MARKER "option>>"

const char *decide_type_name(aerie_span type)
{
    static const char *const names[] = {
        [AERIE_SPAN_NOUL] = "noul", [AERIE_SPAN_CHOICE] = "choice", [AERIE_SPAN_SCORE] = "score",
    };
    return names[type];
}

/* ---- Kinds --------------------------------------------------------------------------------------------- */

/* Returns a value of the file's keys as text; NULL: absent (or no memory). The caller frees it with aerie_free. */
static char *key_of(const serve_model *model, bool own, const char *name)
{
    const aerie_model_info *info = &model->models.info;
    char key[160], *value = NULL;
    snprintf(key, sizeof key, "%s%s%s", own ? info->arch : "", own ? "." : "", name);
    aerie_model_metadata_get(model->models.model, key, &value, NULL, NULL, NULL);
    return value;
}

double decide_number(const serve_model *model, bool own, const char *name, double absent)
{
    char *text = key_of(model, own, name);
    const double number = text ? app_number(text, NULL) : absent;
    aerie_free(text);
    return number;
}

const decide_kind *decide_kind_of(const serve_model *model)
{
    static const decide_kind joint = {.type = "clef", .how = DECIDE_JOINT, .true_first = true, .sorted_keys = true,
                                      .sorted_choice = true, .reads_images = true};
    static const decide_kind marks = {.type = "laya", .how = DECIDE_MARKS};
    static const decide_kind labels[] = {
        {.type = "openjev", .how = DECIDE_LABELS, .true_first = true, .reads_images = true},
        {.type = "lev", .how = DECIDE_LABELS, .sorted_keys = true, .codes = true, .both_orders = true, .rated = true,
         .own_bands = true},
        {.type = "nimble", .how = DECIDE_LABELS, .codes = true, .lists_all = true},
    };
    const aerie_model_info *info = &model->models.info;
    if (info->decision) return info->decision == AERIE_DECISION_JOINT ? &joint : &marks;
    if (info->is_encoder || info->is_diffusion) return NULL;
    char *type = key_of(model, true, "decision.type");
    const decide_kind *found = NULL;
    for (size_t i = 0; type && i < sizeof labels / sizeof *labels; i++)
        if (!strcmp(labels[i].type, type)) found = &labels[i];
    aerie_free(type);
    return found;
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
    char *plain = variables ? json_dumps(variables, JSON_COMPACT | (d->kind->sorted_keys ? JSON_SORT_KEYS : 0)) : NULL;
    char *json = plain ? malloc(strlen(plain) + strlen(more) + 2) : NULL;
    char *source = key_of(d->ask.model, false, "tokenizer.chat_template.systemone");
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

/* Returns a mark for each image, as the template gets them; NULL when out of memory. */
static json_t *marks_of(const decision *d)
{
    json_t *marks = json_array();
    bool ok = marks != NULL;
    for (size_t i = 0; ok && i < d->ask.images.n; i++) ok = !json_array_append_new(marks, json_string(serve_pictures_mark()));
    if (ok) return marks;
    json_decref(marks);
    return NULL;
}

/* Makes d->ask.pictured of a text with the marks of all images. */
static bool encode(decision *d, const char *text, size_t n)
{
    aerie_error why = {0};
    aerie_status status;
    do status = serve_pictures_encode_text(&d->ask, text, n, &why);
    while (serve_ask_again(&d->ask, status, d->error));
    if (d->error->status) return false;
    if (status == AERIE_ERROR_ARGUMENT) return unexpected(d);
    return status == AERIE_OK || serve_fail_library(d->error, status, &why, "images");
}

static json_t *joint_variables(const decision *d)
{
    json_t *questions = json_array();
    bool ok = questions != NULL;
    for (size_t i = 0; ok && i < d->n_questions; i++) {
        const decide_question *q = &d->questions[i];
        ok = !json_array_append_new(questions, json_pack("{s:s, s:s, s:O, s:O}", "id", q->id, "type", decide_type_name(q->type),
                                                         "instructions", q->instructions, "options", q->options));
    }
    json_t *all = ok ? json_pack("{s:O, s:O, s:o}", "state", d->state, "questions", questions, "images", marks_of(d)) : NULL;
    json_decref(questions);
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
    ok = ok && encode(d, head.data, head.n);
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

/* Returns the options as the template gets them; reversed: from the last one to the first. */
static json_t *options_of(const decision *d, const decide_question *q, bool reversed)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < q->n_options; i++) {
        json_t *option = json_copy(json_array_get(q->options, reversed ? q->n_options - 1 - i : i));
        const bool ok = option && (!d->codes || !json_object_set_new(option, "label", json_string(d->codes[i])));
        if (json_array_append_new(list, ok ? option : NULL)) {
            if (!ok) json_decref(option);
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *variables_of(const decision *d, const decide_question *q, bool reversed)
{
    json_t *questions = d->kind->lists_all ? json_array() : NULL;
    bool ok = !questions == !d->kind->lists_all;
    for (size_t i = 0; ok && questions && i < d->n_questions; i++) {
        const decide_question *one = &d->questions[i];
        ok = !json_array_append_new(questions, json_pack("{s:s, s:s, s:O, s:o}", "id", one->id, "type",
                                                         decide_type_name(one->type), "instructions", one->instructions,
                                                         "options", options_of(d, one, false)));
    }
    json_t *all = ok ? json_pack("{s:s, s:s, s:O, s:O, s:o, s:o, s:O*}", "id", q->id, "type", decide_type_name(q->type),
                                 "instructions", q->instructions, "state", d->state, "options", options_of(d, q, reversed),
                                 "images", marks_of(d), "questions", questions)
                     : NULL;
    json_decref(questions);
    return all;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }
static size_t most(size_t a, size_t b) { return a > b ? a : b; }

/* Where the parts of a prompt are: [first] question [sep] ([mark] option)* [sep] state [sep] */
typedef struct layout {
    size_t question_end;           /* the first [sep] */
    size_t options[DECIDE_MAX_OPTIONS + 1]; /* [n_options + 1] marks, then the second [sep] */
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
static bool add_cut(decision *d, const decide_question *q, const int32_t *tokens, size_t n, size_t room, const layout *at)
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

/* Makes the prompt of one question, with marks. */
static bool make_marks(decision *d, const decide_question *q)
{
    const int32_t mark = (int32_t)decide_number(d->ask.model, false, "tokenizer.ggml.mask_token_id", -1);
    const int32_t sep = aerie_model_token_special(d->ask.model->models.model, AERIE_SPECIAL_SEP);
    const double room = decide_number(d->ask.model, true, "decision.max_head_tokens", 0);
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
    bool ok = render(d, variables_of(d, q, false), mark_text, " ", "", &text, &n) &&
              serve_ask_tokenize(&d->ask, text, n, false, true, "questions", &tokens, &n_tokens, d->error);
    if (ok && !find_layout(tokens, n_tokens, q->n_options, mark, sep, &at)) ok = unexpected(d);
    if (ok) ok = add_cut(d, q, tokens, n_tokens, (size_t)room, &at);
    aerie_free(mark_text);
    aerie_free(text);
    aerie_free(tokens);
    return ok;
}

/* ---- Labels -------------------------------------------------------------------------------------------- */

/* Writes the label number i that a kind's questions may have; returns false: there is none. */
static bool label_text(const decide_kind *kind, size_t i, char text[3])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const bool two = kind->codes && i >= 26;
    if (i >= (kind->codes ? 26 + 26 * 26 : sizeof letters - 1)) return false;
    text[0] = two ? letters[(i - 26) / 26] : letters[i];
    text[1] = two ? letters[(i - 26) % 26] : '\0';
    text[2] = '\0';
    return true;
}

bool decide_labels(decision *d, size_t n)
{
    const size_t n_wanted = d->kind->rated && n < DECIDE_RATINGS ? DECIDE_RATINGS : n;
    char text[3];
    d->labels = calloc(n_wanted, sizeof *d->labels);
    if (d->kind->codes) d->codes = calloc(n_wanted, sizeof *d->codes);
    if (!d->labels || (d->kind->codes && !d->codes)) return serve_fail_memory(d->error);
    for (size_t i = 0; d->n_labels < n_wanted && label_text(d->kind, i, text); i++) {
        int32_t *tokens;
        size_t n_tokens;
        if (!serve_ask_tokenize(&d->ask, text, strlen(text), false, false, "questions", &tokens, &n_tokens, d->error))
            return false;
        const int32_t token = n_tokens == 1 ? tokens[0] : -1;
        aerie_free(tokens);
        if (token < 0 && !d->kind->codes)
            return serve_fail(d->error, 501, "model", "in the vocabulary of '%.100s' the label '%s' is not one token",
                              d->ask.model->name, text);
        if (token < 0) continue;
        if (d->codes) memcpy(d->codes[d->n_labels], text, sizeof text);
        d->labels[d->n_labels++] = token;
    }
    return d->n_labels == n_wanted ||
           serve_fail(d->error, 400, "questions", "a question has %zu options; this model reads at most %zu", n, d->n_labels);
}

/* Makes the prompt of one question, whose answer is a label. */
static bool make_labels(decision *d, const decide_question *q, bool reversed)
{
    char *text = NULL;
    size_t n = 0;
    d->n_tokens = 0;
    bool ok = render(d, variables_of(d, q, reversed), "", "", "", &text, &n);
    if (ok && d->ask.images.n) {
        ok = encode(d, text, n);
    } else if (ok) {
        int32_t *tokens;
        size_t n_tokens;
        ok = serve_ask_tokenize(&d->ask, text, n, false, true, "questions", &tokens, &n_tokens, d->error) &&
             add_tokens(d, tokens, n_tokens, AERIE_SPAN_NONE);
    }
    aerie_free(text);
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

/* *again: the model failed, so the same prompt is to be scored again. */
static bool score_chunks(decision *d, const aerie_chunk *chunks, size_t n_chunks, const uint8_t *spans, float *scores,
                         size_t n_scores, bool *again)
{
    serve_model *m = d->ask.model;
    aerie_error why = {0};
    aerie_status status = AERIE_OK;
    pthread_mutex_lock(&m->embed_lock);
    *again = serve_model_fails(m); /* for requests before this one */
    aerie_embedder *e = *again ? NULL : serve_embedder_of(&d->ask, AERIE_POOLING_AUTO, false, d->error);
    if (e && d->labels) status = aerie_embedder_logits(e, chunks, n_chunks, d->labels, n_scores, scores, &why);
    else if (e) status = aerie_embedder_decide(e, chunks, n_chunks, spans, scores, n_scores, &why);
    pthread_mutex_unlock(&m->embed_lock);
    if (e) serve_model_note_pass(m, status);
    *again = *again || (status == AERIE_ERROR_INTERNAL && serve_ask_may_try(&d->ask));
    return *again || (e && (status == AERIE_OK || serve_fail_library(d->error, status, &why, "questions")));
}

/* Has the prompt scored: with labels, by the logits of the first n_scores. */
static bool score(decision *d, float *scores, size_t n_scores)
{
    aerie_chunk *chunks = NULL;
    uint8_t *spans = NULL;
    size_t n_chunks;
    bool ok = make_chunks(d, &chunks, &n_chunks, &spans), again = true;
    d->n_all += aerie_prompt_n_positions(d->ask.pictured) + d->n_tokens;
    sem_post(d->call->work); /* let other requests be read and tokenized meanwhile */
    while (ok && again) {
        ok = score_chunks(d, chunks, n_chunks, spans, scores, n_scores, &again);
        if (ok && again) ok = serve_ask_wait(&d->ask, d->error);
    }
    sem_wait(d->call->work);
    free(chunks);
    free(spans);
    return ok;
}

static bool compute_one(decision *d, const decide_question *q)
{
    if (d->kind->how == DECIDE_MARKS) return make_marks(d, q) && score(d, q->scores, q->n_scores);
    for (size_t k = 0; k < q->n_orders; k++)
        if (!make_labels(d, q, k > 0) || !score(d, q->scores + k * q->n_scores, q->n_scores)) return false;
    return true;
}

bool decide_compute(decision *d)
{
    bool ok = true;
    if (d->kind->how == DECIDE_JOINT) ok = make_joint(d) && score(d, d->scores, d->n_options);
    for (size_t i = 0; ok && d->kind->how != DECIDE_JOINT && i < d->n_questions; i++)
        ok = serve_call_gone(d->call) ? serve_fail(d->error, 499, "", "the client is gone")
                                      : compute_one(d, &d->questions[i]);
    d->call->n_prompt = d->n_all;
    if (ok) serve_model_note_answer(d->ask.model);
    return ok;
}
