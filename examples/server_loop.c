/* server_loop.c - requests that come and go: one thread steps the session, another submits and cancels.
 *
 *     ./server_loop model.gguf < prompts.txt
 *
 * Every line of standard input is a prompt, submitted as it comes; an empty line cancels the oldest answer that still runs.
 * Up to four answers are generated at once. Each is printed when it has ended.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "aerie.h"

#define MAX_REQUESTS 256

typedef struct server {
    const aerie_model *model;
    aerie_session *session;
    aerie_task *tasks[MAX_REQUESTS]; /* [n], by id; written by the reader before `n` counts them */
    char *text[MAX_REQUESTS];        /* of the stepping thread */
    size_t n_text[MAX_REQUESTS];
    atomic_size_t n;
    atomic_bool all_read;
} server;

static void submit(server *s, const char *line)
{
    aerie_error error = {0};
    aerie_request request = aerie_request_default();
    int32_t *tokens = NULL;
    aerie_task *task = NULL;
    aerie_status status = aerie_model_tokenize(s->model, line, strlen(line), true, false, &tokens, &request.n_tokens, &error);
    request.tokens = tokens;
    request.n_predict = 64;
    request.id = s->n;
    if (status == AERIE_OK) status = aerie_session_submit(s->session, &request, &task, &error);
    if (status != AERIE_OK) fprintf(stderr, "refused: %s\n", error.text);
    aerie_free(tokens);
    s->tasks[s->n] = task; /* NULL if it was refused */
    atomic_fetch_add(&s->n, 1);
}

/* The other thread: reads, submits, cancels. */
static void *read_prompts(void *user)
{
    server *s = user;
    char line[4096];
    while (s->n < MAX_REQUESTS && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (*line) {
            submit(s, line);
            continue;
        }
        size_t i = 0;
        while (i < s->n && (!s->tasks[i] || aerie_task_ended(s->tasks[i]))) i++;
        if (i < s->n) aerie_task_cancel(s->tasks[i]);
    }
    atomic_store(&s->all_read, true);
    return NULL;
}

static void keep_text(server *s, const aerie_token_event *event)
{
    const size_t i = event->i_request, n = s->n_text[i];
    char *grown = realloc(s->text[i], n + event->n_text + 1);
    if (!grown) return; /* this answer loses a piece */
    memcpy(grown + n, event->text, event->n_text);
    s->text[i] = grown;
    s->n_text[i] += event->n_text;
}

static void print_end(const server *s, const aerie_token_event *event)
{
    const size_t i = event->i_request;
    printf("[%zu] %.*s\n    (%u tokens%s)\n", i, (int)s->n_text[i], s->text[i] ? s->text[i] : "", event->stats->n_generated,
           event->stats->stop == AERIE_STOP_CALLER ? ", cancelled" : "");
    fflush(stdout);
}

static aerie_status serve(server *s, aerie_error *error)
{
    const aerie_token_event *event;
    while (!s->all_read || aerie_session_n_tasks(s->session)) {
        if (!aerie_session_wait(s->session, 0.1)) continue;
        const aerie_status status = aerie_session_step(s->session, error);
        if (status != AERIE_OK) return status;
        while ((event = aerie_session_poll(s->session))) {
            keep_text(s, event);
            if (event->token < 0) print_end(s, event);
        }
    }
    return AERIE_OK;
}

int main(int argc, char **argv)
{
    aerie_error error = {0};
    aerie_model *model = NULL;
    static server s;
    aerie_session_params params = aerie_session_params_default();
    pthread_t reader;
    if (argc != 2) return fprintf(stderr, "usage: %s MODEL < PROMPTS\n", argv[0]), 2;
    params.n_seqs = 4;
    aerie_status status = aerie_model_load(&model, argv[1], NULL, &error);
    if (status == AERIE_OK) status = aerie_session_create(&s.session, model, &params, &error);
    s.model = model;
    if (status == AERIE_OK && pthread_create(&reader, NULL, read_prompts, &s) == 0) {
        status = serve(&s, &error);
        pthread_join(reader, NULL);
    }
    if (status != AERIE_OK) fprintf(stderr, "%s\n", error.text);
    aerie_session_free(s.session);
    for (size_t i = 0; i < s.n; i++) {
        aerie_task_free(s.tasks[i]);
        free(s.text[i]);
    }
    aerie_model_free(model);
    return status == AERIE_OK ? 0 : 1;
}
