/* choices.c - tasks with several answers of which one is right: HellaSwag, ARC and the like.
 * The model's answer is the one whose tokens have the highest mean log-probability after the question, as in llama.cpp.
 * A task is six lines (context, number of the right ending, four endings: llama.cpp's HellaSwag file) or a line of JSON
 * (docs/evaluating.md) with HellaSwag's or ARC's members. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aerie_measure.h"
#include "perplexity/perplexity.h"

#define MAX_ANSWERS 16
#define CONTEXT 2048 /* tokens of a task, unless -c is given */

typedef struct task {
    char *question; /* owned, like the answers */
    char *answers[MAX_ANSWERS];
    size_t n, right;
} task;

typedef struct tasks {
    task *items;
    size_t n, capacity;
} tasks;

static void task_free(task *t)
{
    free(t->question);
    for (size_t i = 0; i < t->n; i++) free(t->answers[i]);
}

static void tasks_free(tasks *all)
{
    for (size_t i = 0; i < all->n; i++) task_free(&all->items[i]);
    free(all->items);
}

static int add_task(tasks *all, task *t)
{
    task *items = app_grow(all->items, all->n, &all->capacity, sizeof *items);
    if (!items) {
        task_free(t);
        return app_error_memory("the tasks");
    }
    all->items = items;
    all->items[all->n++] = *t;
    return APP_DONE;
}

/* ---- Six lines ---------------------------------------------------------------------------------------------------- */

static int read_lines(tasks *all, const app_text *text, const char *path)
{
    const char *line;
    size_t at = 0, n, i = 0;
    int bad = APP_DONE;
    task t = {0};
    while (!bad && app_next_line(text, &at, &line, &n)) {
        char *own = strndup(line, n), *end = NULL;
        if (!own) bad = app_error_memory("the tasks");
        else if (i % 6 == 0) t.question = own;
        else if (i % 6 == 1) {
            t.right = strtoul(own, &end, 10);
            if (end == own || *end || t.right > 3)
                bad = app_error(APP_BAD_FILE, "'%s', line %zu: the number of the right ending is 0 to 3; found '%s'", path,
                                i + 1, own);
            free(own);
        } else {
            t.answers[t.n++] = own;
        }
        if (!bad && ++i % 6 == 0) {
            bad = add_task(all, &t);
            t = (task){0};
        }
    }
    task_free(&t);
    if (!bad && i % 6)
        return app_error(APP_BAD_FILE,
                         "'%s' has %zu lines, but a task has six: context, number of the right ending, four endings", path, i);
    return bad;
}

/* ---- JSON ----------------------------------------------------------------------------------------------------------- */

/* Reads a number, or a number in quotes. */
static bool number_of(const json_t *value, size_t *number)
{
    char *end = NULL;
    const char *text = json_string_value(value);
    if (text) *number = strtoul(text, &end, 10);
    else if (json_is_integer(value) && json_integer_value(value) >= 0) *number = (size_t)json_integer_value(value);
    else return false;
    return !text || (end != text && !*end);
}

/* Reads the answers' texts, and which one is right: by its number, or by its label ("B"). */
static bool read_answers(const json_t *object, task *t)
{
    const json_t *choices = json_object_get(object, "choices"), *labels = json_object_get(choices, "label");
    const json_t *list = json_object_get(object, "endings"), *label = json_object_get(object, "label"), *item;
    const char *key = json_string_value(json_object_get(object, "answerKey"));
    size_t i;
    if (!list) list = json_is_array(choices) ? choices : json_object_get(choices, "text");
    if (!label) label = json_object_get(object, "answer");
    if (json_array_size(list) < 2 || json_array_size(list) > MAX_ANSWERS) return false;
    t->right = MAX_ANSWERS;
    if (!key && !number_of(label, &t->right)) return false;
    json_array_foreach(list, i, item)
    {
        const char *text = json_string_value(item), *name = json_string_value(json_array_get(labels, i));
        char *own = text ? strdup(text) : NULL;
        if (!own) return false;
        t->answers[t->n++] = own;
        if (key && name && !strcmp(key, name)) t->right = i;
    }
    return t->right < t->n;
}

static bool read_object(const json_t *object, task *t)
{
    const char *activity = json_string_value(json_object_get(object, "activity_label"));
    const char *context = json_string_value(json_object_get(object, "ctx"));
    const char *question = json_string_value(json_object_get(object, "question"));
    const bool arc = question && json_object_get(object, "answerKey");
    const char *before = context && activity ? activity : arc ? "Question" : "";
    const char *text = context ? context : question;
    if (!text) return false;
    const size_t n = strlen(before) + strlen(text) + sizeof ": \nAnswer:";
    t->question = malloc(n);
    if (!t->question) return false;
    snprintf(t->question, n, "%s%s%s%s", before, *before ? ": " : "", text, arc ? "\nAnswer:" : "");
    return read_answers(object, t);
}

static int read_json(tasks *all, const app_text *text, const char *path)
{
    const char *line;
    size_t at = 0, n, i = 0;
    int bad = APP_DONE;
    while (!bad && app_next_line(text, &at, &line, &n)) {
        task t = {0};
        i++;
        if (n == 0) continue;
        json_t *object = json_loadb(line, n, 0, NULL);
        if (read_object(object, &t)) bad = add_task(all, &t);
        else {
            task_free(&t);
            bad = app_error(APP_BAD_FILE,
                            "'%s', line %zu: needs \"question\" or \"ctx\", 2 to %d answers in \"choices\" or "
                            "\"endings\", and the right one in \"answerKey\", \"answer\" or \"label\"",
                            path, i, MAX_ANSWERS);
        }
        json_decref(object);
    }
    return bad;
}

/* ---- Scores ----------------------------------------------------------------------------------------------------------- */

typedef struct answer {
    int32_t *tokens; /* question and answer; freed with aerie_free */
    size_t n;
} answer;

typedef struct sum {
    const answer *a;
    size_t n_vocab, first; /* first: index of the first token that is predicted */
    double *logprobs;      /* [a->n] */
} sum;

static bool add_logprob(void *user, size_t position, const float *logits)
{
    const sum *s = user;
    s->logprobs[position + 1] = app_logprob(logits, s->n_vocab, s->a->tokens[position + 1], NULL);
    return !app_interrupted();
}

/* Returns the number of tokens with which all answers begin: the question, perhaps without its end, which may merge with the
 * beginning of an answer. */
static size_t common_prefix(const answer *answers, size_t n)
{
    size_t common = 0;
    for (bool same = true; same; common += same)
        for (size_t i = 0; i < n && same; i++)
            same = common + 1 < answers[i].n && answers[i].tokens[common] == answers[0].tokens[common];
    return common ? common : 1;
}

static int score_answer(aerie_session *session, const app_models *models, const answer *a, size_t first, size_t i_task,
                        double *mean)
{
    aerie_error error = {0};
    if (a->n < 2 || a->n > aerie_session_n_ctx(session))
        return app_error(a->n < 2 ? APP_BAD_FILE : APP_USAGE, "task %zu has %zu tokens; 2 to %u are possible, see -c",
                         i_task + 1, a->n, (unsigned)aerie_session_n_ctx(session));
    double *logprobs = calloc(a->n, sizeof *logprobs), total = 0;
    if (!logprobs) return app_error_memory("a task");
    sum s = {.a = a, .n_vocab = models->info.n_vocab, .first = first, .logprobs = logprobs};
    const int bad =
        app_report(APP_WORKING, aerie_session_eval_parallel(session, a->tokens, a->n - 1, first - 1, add_logprob, &s, &error),
                   &error);
    for (size_t i = first; i < a->n; i++) total += logprobs[i];
    free(logprobs);
    *mean = total / (double)(a->n - first);
    return bad ? bad : app_interrupted() ? APP_INTERRUPTED : APP_DONE;
}

static int run_task(aerie_session *session, const app_models *models, const task *t, size_t i_task, bool *right)
{
    answer answers[MAX_ANSWERS] = {{0}};
    aerie_error error = {0};
    app_text text = {0};
    int bad = APP_DONE;
    double best = -INFINITY;
    for (size_t i = 0; i < t->n && !bad; i++) {
        text.n = 0;
        if (!app_text_add(&text, t->question, strlen(t->question)) || !app_text_add(&text, " ", 1) ||
            !app_text_add(&text, t->answers[i], strlen(t->answers[i])))
            bad = app_error_memory("a task");
        else
            bad = app_report(
                APP_WORKING,
                aerie_model_tokenize(models->model, text.data, text.n, true, false, &answers[i].tokens, &answers[i].n, &error),
                &error);
    }
    const size_t first = bad ? 1 : common_prefix(answers, t->n);
    for (size_t i = 0; i < t->n && !bad; i++) {
        double mean = 0;
        bad = score_answer(session, models, &answers[i], first, i_task, &mean);
        if (!bad && mean > best) {
            best = mean;
            *right = i == t->right;
        }
    }
    for (size_t i = 0; i < t->n; i++) aerie_free(answers[i].tokens);
    app_text_free(&text);
    return bad;
}

/* Computes Wilson's interval of 95 % for k of n. */
static void interval(double k, double n, double *low, double *high)
{
    const double z = 1.959964, p = k / n, centre = p + z * z / (2 * n), width = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n));
    *low = (centre - width) / (1 + z * z / n);
    *high = (centre + width) / (1 + z * z / n);
}

static int run_tasks(aerie_session *session, const app_models *models, const app_options *o, const tasks *all)
{
    const size_t most = o->judge.n_tasks && o->judge.n_tasks < all->n ? o->judge.n_tasks : all->n;
    double n_right = 0, chance = 0, low = 0, high = 0;
    int bad = APP_DONE;
    app_run_line line = {.options = o, .unit = "tasks", .start = app_now()};
    for (size_t i = 0; i < most && !bad; i++) {
        bool right = false;
        char value[96];
        bad = run_task(session, models, &all->items[i], i, &right);
        if (bad) break;
        n_right += right;
        chance += 1.0 / (double)all->items[i].n;
        interval(n_right, (double)(i + 1), &low, &high);
        snprintf(value, sizeof value, "right %.2f%% (95%%: %.2f to %.2f)", 100 * n_right / (double)(i + 1), 100 * low,
                 100 * high);
        app_run_line_show(&line, i + 1, most, value);
    }
    app_run_line_end(&line);
    if (bad) return bad;
    const double seconds = app_now() - line.start, n = (double)most;
    if (o->json)
        return app_print_json(json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "model", o->model, "n_tasks",
                                        (json_int_t)most, "n_right", (json_int_t)n_right, "accuracy", n_right / n,
                                        "accuracy_low", low, "accuracy_high", high, "chance", chance / n, "seconds", seconds));
    app_print("accuracy  %.2f%%, with 95%% confidence %.2f%% to %.2f%%; by chance %.2f%%\n", 100 * n_right / n, 100 * low,
              100 * high, 100 * chance / n);
    app_print("tasks     %zu, in %.1f s\n", most, seconds);
    return APP_DONE;
}

int app_choices(const app_models *models, const app_options *o)
{
    app_text text = {0};
    tasks all = {0};
    aerie_session *session = NULL;
    if (!o->file || o->prompts.n) return app_error(APP_USAGE, "the tasks come from a file: -f FILE, and no -p");
    int bad = app_read_data(&text, o->file);
    if (!bad && text.n && text.data[0] == '{') bad = read_json(&all, &text, o->file);
    else if (!bad && o->judge.hellaswag) bad = read_lines(&all, &text, o->file);
    else if (!bad)
        bad =
            app_error(APP_BAD_FILE, "'%s' does not begin with '{': the tasks of --multiple-choice are lines of JSON", o->file);
    if (!bad && all.n == 0) bad = app_error(APP_BAD_FILE, "'%s' contains no tasks", o->file);
    if (!bad) bad = app_windows_session(&session, models, o, o->session.n_ctx ? o->session.n_ctx : CONTEXT, 128);
    if (!bad) bad = run_tasks(session, models, o, &all);
    aerie_session_free(session);
    tasks_free(&all);
    app_text_free(&text);
    return bad;
}
