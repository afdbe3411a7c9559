/* decide.c - /v1/systemone: typed questions about a state, answered by a decision model, as TypeSafe's API and llama.cpp's
 * server define it.
 *
 * Nothing is generated: the file's template "systemone" writes a prompt that offers the options of each question, and a head,
 * or the logits of their labels, scores them (decide_prompt.c). An answer depends on the model file and the request alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/dialects/decide.h"

enum { MAX_QUESTIONS = 256, MAX_LEVELS = 10 };

static void decision_free(decision *d)
{
    for (size_t i = 0; d->questions && i < d->n_questions; i++) json_decref(d->questions[i].options);
    free(d->questions);
    json_decref(d->state);
    free(d->scores);
    free(d->labels);
    free(d->codes);
    free(d->tokens);
    free(d->spans);
    serve_ask_free(&d->ask);
    free(d);
}

/* ---- Questions ----------------------------------------------------------------------------------------- */

static bool add_option(decision *d, decide_question *q, const char *key, const json_t *description)
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

static bool read_choice(decision *d, decide_question *q, const json_t *criteria)
{
    const char *keys[DECIDE_MAX_OPTIONS], *key;
    const json_t *value;
    size_t n = 0;
    const size_t n_all = json_is_object(criteria) ? json_object_size(criteria) : 0;
    if (!n_all) return serve_fail(d->error, 400, "questions", "questions.%.60s: 'criteria' must be a non-empty object", q->id);
    if (n_all > DECIDE_MAX_OPTIONS)
        return serve_fail(d->error, 400, "questions", "questions.%.60s: %zu options; this model reads at most %d", q->id, n_all,
                          DECIDE_MAX_OPTIONS);
    json_object_foreach((json_t *)criteria, key, value) keys[n++] = key;
    if (d->kind->sorted_choice) qsort(keys, n, sizeof *keys, by_key);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) ok = add_option(d, q, keys[i], json_object_get(criteria, keys[i]));
    return ok;
}

static bool read_score(decision *d, decide_question *q, const json_t *criteria)
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

static bool read_noul(decision *d, decide_question *q, const json_t *criteria)
{
    static const char *const keys[] = {"false", "true"};
    const bool swap = d->kind->true_first;
    if (criteria && !json_is_null(criteria) && !json_is_object(criteria))
        return serve_fail(d->error, 400, "questions", "questions.%.60s: 'criteria' must be an object", q->id);
    return add_option(d, q, keys[swap], json_object_get(criteria, keys[swap])) &&
           add_option(d, q, keys[!swap], json_object_get(criteria, keys[!swap]));
}

static bool read_question(decision *d, decide_question *q, const char *id, const json_t *json)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    const json_t *criteria = json_object_get(json, "criteria");
    *q = (decide_question){.id = id, .instructions = json_object_get(json, "instructions"), .options = json_array()};
    if (!q->options) return serve_fail_memory(d->error);
    if (!json_is_object(json)) return serve_fail(d->error, 400, "questions", "questions.%.60s must be an object", id);
    if (!q->instructions || json_is_null(q->instructions))
        return serve_fail(d->error, 400, "questions", "questions.%.60s: 'instructions' is missing", id);
    for (q->type = AERIE_SPAN_NOUL; type && q->type <= AERIE_SPAN_SCORE; q->type++)
        if (!strcmp(type, decide_type_name(q->type))) break;
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
        json_t *part = json_array_get(content, k);
        const bool is_image = serve_is_image(part);
        char here[96];
        snprintf(here, sizeof here, "%s.content[%zu]", where, k);
        ok = is_image ? serve_pictures_take_one(&d->ask, json_object_get(part, "image_url"), here, d->error)
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
            if (serve_is_image(json_array_get(content, k))) return true;
    }
    return json_array_size(images) != 0;
}

/* Lets every question have its part of the scores. */
static bool make_scores(decision *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_questions; i++) {
        decide_question *q = &d->questions[i];
        d->n_options += q->n_options;
        q->n_scores = d->kind->rated && q->type == AERIE_SPAN_NOUL ? DECIDE_RATINGS : q->n_options;
        q->n_orders = d->kind->both_orders && q->type == AERIE_SPAN_CHOICE && q->n_options > 1 ? 2 : 1;
        n += q->n_scores * q->n_orders;
    }
    d->scores = calloc(n, sizeof *d->scores);
    if (!d->scores) return serve_fail_memory(d->error);
    float *at = d->scores;
    for (size_t i = 0; i < d->n_questions; at += d->questions[i].n_scores * d->questions[i].n_orders, i++)
        d->questions[i].scores = at;
    return true;
}

static bool read_questions(decision *d, const json_t *questions)
{
    size_t n_most = 0;
    const json_t *one;
    const char *id;
    d->questions = calloc(json_object_size(questions), sizeof *d->questions);
    if (!d->questions) return serve_fail_memory(d->error);
    json_object_foreach((json_t *)questions, id, one) {
        decide_question *q = &d->questions[d->n_questions++];
        if (!read_question(d, q, id, one)) return false;
        if (q->n_options > n_most) n_most = q->n_options;
    }
    return make_scores(d) && (d->kind->how != DECIDE_LABELS || decide_labels(d, n_most));
}

static bool read_body(decision *d)
{
    const json_t *state = json_object_get(d->ask.body, "state"), *videos = json_object_get(d->ask.body, "videos");
    const json_t *questions = NULL, *images = NULL;
    d->kind = decide_kind_of(d->ask.model);
    if (!d->kind) return serve_fail(d->error, 501, "model", "the model '%.100s' is no decision model", d->ask.model->name);
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
    if (shows_pictures(state, images) && !(d->kind->reads_images && d->ask.model->tower))
        return serve_fail(d->error, 501, "images", d->kind->reads_images
                              ? "the model '%.100s' was loaded without its mmproj file (--mmproj), which reads images"
                              : "the model '%.100s' decides about text, not about images", d->ask.model->name);
    return read_state(d, images) && read_questions(d, questions);
}

/* ---- Answers ------------------------------------------------------------------------------------------- */

/* Returns the temperature for a question: by its type and number of options, by its type, or 1. */
static float temperature_of(const decision *d, const decide_question *q)
{
    const size_t n = q->n_options;
    const char *bands = n <= 2 ? "2" : n <= 5 ? "3_5" : n <= 10 ? "6_10" : "11";
    char name[64];
    if (d->kind->own_bands) bands = n <= 8 ? "small" : n <= 26 ? "mid" : "large";
    snprintf(name, sizeof name, "decision.temperature.%s.%s", decide_type_name(q->type), bands);
    const double own = decide_number(d->ask.model, true, name, 0);
    snprintf(name, sizeof name, "decision.temperature.%s", decide_type_name(q->type));
    return (float)(own != 0 ? own : decide_number(d->ask.model, true, name, 1));
}

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

static const char *option_key(const decide_question *q, size_t i)
{
    return json_string_value(json_object_get(json_array_get(q->options, i), "key"));
}

static json_t *answer_of(const decide_question *q, const double *p)
{
    const size_t n = q->n_options;
    double expected = 0;
    if (q->type == AERIE_SPAN_NOUL && n < q->n_scores) { /* rated, from certainly not to certainly */
        for (size_t i = 0; i < q->n_scores; i++) expected += p[i] * (double)i / (double)(q->n_scores - 1);
        return json_pack("{s:s, s:o}", "type", "noul", "noul", app_json_real(expected));
    }
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

/* Computes the probabilities of a question's scores into p [n_scores]: the mean over the orders of its options. */
static aerie_status probabilities_of(const decision *d, const decide_question *q, double *p, aerie_error *why)
{
    const float temperature = temperature_of(d, q);
    const size_t n = q->n_scores;
    double own[DECIDE_MAX_OPTIONS];
    for (size_t i = 0; i < n; i++) p[i] = 0;
    for (size_t k = 0; k < q->n_orders; k++) {
        const aerie_status status = aerie_decision_probabilities(q->scores + k * n, n, temperature, own, why);
        if (status != AERIE_OK) return status;
        for (size_t i = 0; i < n; i++) p[k ? n - 1 - i : i] += own[i] / (double)q->n_orders;
    }
    return AERIE_OK;
}

static json_t *answers_of(decision *d)
{
    json_t *answers = json_object();
    aerie_error why = {0};
    for (size_t i = 0; answers && i < d->n_questions; i++) {
        const decide_question *q = &d->questions[i];
        double p[DECIDE_MAX_OPTIONS];
        const aerie_status status = probabilities_of(d, q, p, &why);
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
    if (serve_text_begin(&d->ask, call, &error) && read_body(d) && decide_compute(d)) json = answers_of(d);
    sem_post(call->work);
    if (!error.status) serve_reply_json(call, 200, json);
    else if (error.status != 499) serve_reply_error(call, &error);
    decision_free(d);
}
