/* job.h - a request while the engine computes it: its tasks, and the queue that returns their tokens.
 * The stepping thread copies events into the queue and wakes the reader; it never waits for the reader. The tokens of prompt
 * and answer bound the size of a queue. Invariant: a job is freed only after the last event of each of its tasks, so no
 * callback comes too late. */
#ifndef AERIE_APP_SERVE_MODELS_JOB_H
#define AERIE_APP_SERVE_MODELS_JOB_H

#include "serve/http/http.h"

struct serve_model;
struct serve_job;

typedef struct serve_event {
    struct serve_event *next;
    uint32_t choice;
    bool of_prompt; /* the token belongs to the prompt, from its second on; its log-probability is that after the tokens before
                     * it */
    bool of_progress; /* `now` tells how far the prompt is, and there is no token */
    int32_t token;  /* -1: the choice has ended, and its statistics are valid */
    uint32_t depth; /* 0: decoded; k: the k-th of an accepted draft */
    float logprob;
    uint32_t n_top;
    size_t n_text;
    uint32_t n_done;  /* with of_progress: tokens of the prompt that the KV cache holds */
    const aerie_stats *now; /* statistics up to this event; NULL: the job does not want them */
    const aerie_logprob *top; /* [n_top] */
    const char *text;         /* [n_text] */
} serve_event;

#define SERVE_N_LATENCIES 16

typedef struct serve_choice {
    struct serve_job *job;
    aerie_task *task;
    aerie_stats stats; /* final after the last event; `error`: why the request was not served */
    double first_token, last_token; /* monotonic; 0: not yet */
    uint32_t latencies[SERVE_N_LATENCIES]; /* times between tokens, as in metrics.h */
    atomic_uint n_told;
    /* under the model's lock */
    struct serve_choice *next;
    int slot; /* -1: waits, or has ended */
    const int32_t *prompt; /* [n_prompt] borrowed until it is submitted */
    size_t n_prompt;
    const int32_t *scored; /* [n_scored] the prompt, borrowed as long as the job lives, if its log-probabilities are wanted;
                            * else NULL */
    size_t n_scored;
    uint32_t n_top, n_vocab; /* for `scored`: number of alternatives for each token; size of the vocabulary */
    size_t n_rows;           /* used by the stepping thread: positions of the prompt that have arrived */
    serve_event *held, **held_end; /* used by the stepping thread: tokens drawn in the pass that ends the prompt wait here for
                                    * the prompt's rows */
    uint64_t seed, scope, client;
    aerie_adapter_use adapters[AERIE_MAX_ADAPTERS]; /* [n_adapters] */
    size_t n_adapters;
    int32_t *kept; /* [n_kept] prompt and answer, owned, if slots can be saved; NULL: not, or no longer */
    size_t n_kept, capacity;
} serve_choice;

typedef struct serve_job {
    struct serve_model *model;
    serve_use *use; /* counts the memory; borrowed from the call that waits for the job */
    pthread_mutex_t lock;
    serve_event *first, **end;
    bool waits;   /* a thread waits to be woken */
    bool no_room; /* memory was short for an event */
    uint32_t n_left; /* choices that have not ended */
    int bell;     /* eventfd */
    bool lost;    /* set by the reader: no more events come, although the end of a choice was lost for lack of memory */
    serve_event *taken; /* the reader's */
    serve_event *current; /* the event that was returned last */
    double submitted;
    double took, took_plain; /* of the model when it was submitted */
    uint64_t id;
    bool streams;
    bool tells_progress; /* there are events of progress */
    bool wants_now; /* the events carry statistics */
    uint32_t n_predict;
    uint32_t n; /* choices */
    serve_choice choices[];
} serve_job;

/* Returns NULL if memory or descriptors are short. */
serve_job *serve_job_create(struct serve_model *model, serve_use *use, uint32_t n);
/* Returns whether all choices have ended, so that serve_job_next does not wait. */
bool serve_job_is_over(serve_job *job);
/* Cancels running tasks, waits until they have ended, and frees the job. */
void serve_job_free(serve_job *job);
/* Returns the next event, which is valid until the next call; waits at most this many seconds for it. Returns NULL if none has
 * come or the client has stopped sending; with *gone the client is gone, with job->lost no event will come. */
const serve_event *serve_job_next(serve_job *job, const serve_call *call, double seconds, bool *gone);
/* Implements aerie_request.token; user is a serve_choice. Called by the stepping thread. */
bool serve_job_on_token(void *choice, const aerie_token_event *event);
/* Implements aerie_request.progress, for jobs that report the progress of their prompts. Called by the stepping thread. */
bool serve_job_on_progress(void *choice, uint64_t done, uint64_t total);
/* Implements aerie_request.row, for choices with `scored`. Called by the stepping thread. */
void serve_job_on_row(void *choice, size_t i_request, size_t position, const float *logits, const float *features);

#endif
