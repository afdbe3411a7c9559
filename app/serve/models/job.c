/* job.c - implements job.h. */
#define _GNU_SOURCE /* POLLRDHUP */
#include "serve/models/job.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "aerie_measure.h"
#include "serve/models/models.h"

serve_job *serve_job_create(serve_model *model, serve_use *use, uint32_t n)
{
    serve_job *job = calloc(1, sizeof *job + n * sizeof *job->choices);
    if (!job) return NULL;
    job->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (job->bell < 0) {
        free(job);
        return NULL;
    }
    job->model = model;
    job->use = use;
    job->n = n;
    job->end = &job->first;
    pthread_mutex_init(&job->lock, NULL);
    for (uint32_t i = 0; i < n; i++) {
        job->choices[i].job = job;
        job->choices[i].slot = -1;
    }
    return job;
}

/* Wakes the thread that waits for the job. The caller holds the lock. */
static void ring(serve_job *job)
{
    const uint64_t one = 1;
    if (!job->waits) return;
    job->waits = false;
    if (write(job->bell, &one, sizeof one) < 0) { /* it rings already */
    }
}

/* Waits until the thread is woken, or until something happens to the client (NULL: it is not watched). Returns true if the
 * client is gone. */
static bool wait_for(const serve_job *job, const serve_call *call, double seconds)
{
    const bool half_closed = call && serve_call_half_closed(call); /* poll would report this at once, again and again */
    struct pollfd fds[2] = {{.fd = job->bell, .events = POLLIN},
                            {.fd = call ? call->socket : -1, .events = half_closed ? 0 : POLLRDHUP}};
    uint64_t count;
    if (half_closed && seconds > SERVE_PROBE_SECONDS) seconds = SERVE_PROBE_SECONDS;
    const int n = poll(fds, call ? 2 : 1, seconds > 0 ? (int)(seconds * 1e3) : 0);
    if (n > 0 && fds[0].revents & POLLIN && read(job->bell, &count, sizeof count) < 0) { /* it was rung off */
    }
    return (half_closed || (n > 0 && call && fds[1].revents)) && serve_call_gone(call);
}

static size_t event_bytes(const serve_event *event)
{
    return sizeof *event + (event->now ? sizeof *event->now : 0) + event->n_top * sizeof *event->top + event->n_text + 1;
}

static void event_free(const serve_job *job, serve_event *event)
{
    if (event) serve_use_drop(job->use, event_bytes(event));
    free(event);
}

bool serve_job_is_over(serve_job *job)
{
    pthread_mutex_lock(&job->lock);
    const bool over = !job->n_left;
    pthread_mutex_unlock(&job->lock);
    return over;
}

void serve_job_free(serve_job *job)
{
    if (!job) return;
    for (uint32_t i = 0; i < job->n; i++)
        if (job->choices[i].task) aerie_task_cancel(job->choices[i].task);
    for (;;) {
        pthread_mutex_lock(&job->lock);
        const bool over = !job->n_left;
        job->waits = !over;
        pthread_mutex_unlock(&job->lock);
        if (over) break;
        wait_for(job, NULL, 1);
    }
    for (serve_event *list = job->taken ? job->taken : NULL; list;) {
        serve_event *next = list->next;
        event_free(job, list);
        list = next;
    }
    while (job->first) {
        serve_event *next = job->first->next;
        event_free(job, job->first);
        job->first = next;
    }
    for (uint32_t i = 0; i < job->n; i++) {
        aerie_task_free(job->choices[i].task);
        free(job->choices[i].kept);
    }
    event_free(job, job->current);
    close(job->bell);
    pthread_mutex_destroy(&job->lock);
    free(job);
}

const serve_event *serve_job_next(serve_job *job, const serve_call *call, double seconds, bool *gone)
{
    const double end = app_now() + seconds;
    event_free(job, job->current);
    job->current = NULL;
    *gone = false;
    while (!job->taken) {
        pthread_mutex_lock(&job->lock);
        job->taken = job->first;
        job->first = NULL;
        job->end = &job->first;
        job->waits = !job->taken;
        job->lost = !job->taken && !job->n_left;
        pthread_mutex_unlock(&job->lock);
        if (job->taken) break;
        if (job->lost) return NULL;
        const double left = end - app_now();
        const bool before = serve_call_half_closed(call);
        *gone = wait_for(job, call, left);
        if (*gone || left <= 0 || before != serve_call_half_closed(call)) return NULL;
    }
    job->current = job->taken;
    job->taken = job->taken->next;
    return job->current;
}

/* ---- The stepping thread ------------------------------------------------------------------------------------ */

static serve_event *copy_event(const serve_choice *choice, const aerie_token_event *event)
{
    aerie_stats stats;
    const bool timed = choice->job->wants_now && event->token >= 0 && aerie_task_stats_now(event->task, &stats, sizeof stats);
    const size_t n_now = timed ? sizeof stats : 0, n_top = event->n_top * sizeof(aerie_logprob);
    const size_t n = sizeof(serve_event) + n_now + n_top + event->n_text + 1;
    serve_use *use = choice->job->use;
    if (event->token < 0) serve_use_force(use, n); /* an end must come */
    else if (!serve_use_add(use, n)) return NULL;
    serve_event *copy = malloc(n);
    if (!copy) {
        serve_use_drop(use, n);
        return NULL;
    }
    aerie_stats *now = (aerie_stats *)(void *)(copy + 1);
    aerie_logprob *top = (aerie_logprob *)(void *)((char *)now + n_now);
    if (timed) *now = stats;
    char *text = (char *)top + n_top;
    if (n_top) memcpy(top, event->top, n_top);
    if (event->n_text) memcpy(text, event->text, event->n_text);
    text[event->n_text] = '\0';
    *copy = (serve_event){.next = NULL,
                          .choice = (uint32_t)(choice - choice->job->choices),
                          .token = event->token,
                          .depth = event->draft_depth,
                          .logprob = event->logprob,
                          .n_top = event->n_top,
                          .n_text = event->n_text,
                          .now = timed ? now : NULL,
                          .top = top,
                          .text = text};
    return copy;
}

/* Appends a list of events to the queue. first NULL: there was no memory for an event. */
static void put(serve_job *job, serve_event *first, serve_event **end, bool last)
{
    pthread_mutex_lock(&job->lock);
    if (first) {
        *job->end = first;
        job->end = end;
    } else {
        job->no_room = true;
    }
    job->n_left -= last;
    ring(job);
    pthread_mutex_unlock(&job->lock); /* after its last event another thread may free the job */
}

static bool waits_for_rows(const serve_choice *choice)
{
    return choice->n_rows + 1 < choice->n_scored;
}

static void hold(serve_choice *choice, serve_event *copy)
{
    if (!choice->held) choice->held_end = &choice->held;
    *choice->held_end = copy;
    choice->held_end = &copy->next;
}

static void release(serve_choice *choice)
{
    if (choice->held) put(choice->job, choice->held, choice->held_end, false);
    choice->held = NULL;
}

static void keep_token(serve_choice *choice, int32_t token)
{
    int32_t *grown = choice->kept ? app_grow(choice->kept, choice->n_kept, &choice->capacity, sizeof *grown) : NULL;
    if (!grown) return; /* without memory, this slot cannot be saved */
    choice->kept = grown;
    grown[choice->n_kept++] = token;
}

bool serve_job_on_token(void *user, const aerie_token_event *event)
{
    serve_choice *choice = user;
    serve_job *job = choice->job;
    const double now = app_now();
    const bool last = event->token < 0;
    serve_event *copy = copy_event(choice, event);
    if (last) {
        choice->stats = *event->stats;
        serve_engine_ended(choice); /* the choice leaves its slot, and the model no longer refers to it */
    } else {
        if (choice->last_token > 0) serve_latency_count(choice->latencies, now - choice->last_token);
        else choice->first_token = now;
        choice->last_token = now;
        atomic_fetch_add(&choice->n_told, 1);
        keep_token(choice, event->token);
    }
    if (copy && !last && waits_for_rows(choice)) {
        hold(choice, copy);
        return true;
    }
    if (last) release(choice);
    put(job, copy, copy ? &copy->next : NULL, last);
    return copy != NULL;
}

bool serve_job_on_progress(void *user, uint64_t done, uint64_t total)
{
    serve_choice *choice = user;
    (void)total;
    serve_event *copy = copy_event(choice, &(aerie_token_event){.task = choice->task, .text = ""});
    if (!copy) return true; /* the answer does without this report */
    copy->of_progress = true;
    copy->n_done = (uint32_t)done;
    put(choice->job, copy, &copy->next, false);
    return true;
}

void serve_job_on_row(void *user, size_t i_request, size_t position, const float *logits, const float *features)
{
    (void)i_request, (void)features;
    serve_choice *choice = user;
    aerie_logprob top[AERIE_MAX_LOGPROBS];
    aerie_token_event event = {.text = "", .top = top};
    if (position + 1 >= choice->n_scored) return; /* tokens of the answer come with their own log-probabilities */
    event.token = choice->scored[position + 1];
    event.logprob = aerie_logprobs(logits, choice->n_vocab, event.token, choice->n_top, top, &event.n_top);
    serve_event *copy = copy_event(choice, &event);
    if (copy) copy->of_prompt = true;
    put(choice->job, copy, copy ? &copy->next : NULL, false);
    choice->n_rows++;
    if (!waits_for_rows(choice)) release(choice);
}
