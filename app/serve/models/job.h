/* job.h - a request on its way through the engine: its tasks, and the queue on which their tokens come back.
 *
 * The stepping thread copies events onto the queue and rings; it never waits for their reader. The size of a queue is bounded
 * by the tokens of prompt and answer. Invariant: a job is freed only after the last event of each of its tasks, so no callback
 * can come late.
 */
#ifndef AERIE_APP_SERVE_MODELS_JOB_H
#define AERIE_APP_SERVE_MODELS_JOB_H

#include "serve/http/http.h"

struct serve_model;
struct serve_job;

typedef struct serve_event {
    struct serve_event *next;
    uint32_t choice;
    bool of_prompt; /* a token of the prompt, from the second on, with its log-probability given those before it */
    int32_t token;  /* -1: the end of this choice; its statistics are in it */
    uint32_t depth; /* 0: decoded; k: the k-th of an accepted draft */
    float logprob;
    uint32_t n_top;
    size_t n_text;
    const aerie_logprob *top; /* [n_top] */
    const char *text;         /* [n_text] */
} serve_event;

#define SERVE_N_LATENCIES 16

typedef struct serve_choice {
    struct serve_job *job;
    aerie_task *task;
    aerie_stats stats; /* final after its last event; error: why it was not served */
    double first_token, last_token; /* monotonic; 0: not yet */
    uint32_t latencies[SERVE_N_LATENCIES]; /* between tokens, as in metrics.h */
    atomic_uint n_told;
    /* under the model's lock */
    struct serve_choice *next;
    int slot; /* -1: waits, or has ended */
    const int32_t *prompt; /* [n_prompt] lent until it is submitted */
    size_t n_prompt;
    const int32_t *scored; /* [n_scored] the prompt, lent while the job lives, if its log-probabilities are wanted; else NULL */
    size_t n_scored;
    uint32_t n_top, n_vocab; /* for scored: likeliest tokens told with each; tokens of the model */
    size_t n_rows;           /* the stepping thread's: positions of the prompt that have come */
    serve_event *held, **held_end; /* the stepping thread's: tokens drawn in the pass that ends the prompt wait for its rows */
    uint64_t seed, scope, client;
    aerie_adapter_use adapters[AERIE_MAX_ADAPTERS]; /* [n_adapters] */
    size_t n_adapters;
    int32_t *kept; /* [n_kept] prompt and answer, if slots can be saved; NULL: not, or not any more. Owned */
    size_t n_kept, capacity;
} serve_choice;

typedef struct serve_job {
    struct serve_model *model;
    serve_use *use; /* lent: of the call that waits for it */
    pthread_mutex_t lock;
    serve_event *first, **end;
    bool waits;   /* somebody waits for the bell */
    bool no_room; /* an event could not be kept */
    uint32_t n_left; /* choices that have not ended */
    int bell;     /* eventfd */
    bool lost;    /* used by the reader: no more events come, although an end is missing for lack of memory */
    serve_event *taken; /* the reader's */
    serve_event *current; /* the one that was given out last */
    double submitted;
    uint64_t id;
    bool streams;
    uint32_t n_predict;
    uint32_t n; /* choices */
    serve_choice choices[];
} serve_job;

/* Returns NULL if memory or descriptors are short. */
serve_job *serve_job_create(struct serve_model *model, serve_use *use, uint32_t n);
/* Cancels what runs and waits until it has ended. */
void serve_job_free(serve_job *job);
/* Returns the next event, valid until the next call; waits for it at most this many seconds. NULL: none has come, or the client
 * sends no more from now on, or, with *gone, the client is gone, or, with job->lost, none will come. */
const serve_event *serve_job_next(serve_job *job, const serve_call *call, double seconds, bool *gone);
/* Called by the stepping thread: aerie_request.token with a serve_choice as user. */
bool serve_job_on_token(void *choice, const aerie_token_event *event);
/* The same as aerie_request.row, for choices with `scored`. */
void serve_job_on_row(void *choice, size_t i_request, size_t position, const float *logits, const float *features);

#endif
