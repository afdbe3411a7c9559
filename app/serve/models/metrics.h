/* metrics.h - the server's counters, which /metrics shows in Prometheus' text format under the names that vLLM and llama.cpp's
 * server use.
 * Invariant: counters never fall, not even when a model is unloaded and loaded again. */
#ifndef AERIE_APP_SERVE_MODELS_METRICS_H
#define AERIE_APP_SERVE_MODELS_METRICS_H

#include "serve/models/job.h"

/* A histogram with the exact sum of its values. */
typedef struct serve_histogram {
    uint64_t counts[SERVE_N_LATENCIES]; /* the last one counts values beyond all bounds */
    double sum;
} serve_histogram;

typedef struct serve_figures {
    uint64_t n_prompt, n_cached, n_generated, n_passes, n_preempted, n_parked;
    uint64_t n_drafts, n_drafted, n_accepted;
    uint64_t accepted_at[AERIE_MAX_DRAFT], drafted_at[AERIE_MAX_DRAFT], tried_at[AERIE_MAX_DRAFT];
    uint64_t n_stopped, n_length, n_aborted, n_errors; /* answers by how they ended */
    double prompt_seconds, decode_seconds;
    serve_histogram first_token, whole; /* seconds from submission */
    serve_histogram between;            /* seconds from token to token */
    uint64_t n_most;                    /* most tokens of a sequence */
    uint64_t n_restored, n_restored_tokens, n_damaged; /* counts of conversations (conversations.h) until the model was last
                                                        * unloaded */
} serve_figures;

/* Sorts latencies between tokens into counts [SERVE_N_LATENCIES]. */
void serve_latency_count(uint32_t *counts, double seconds);
/* Counts an answer that has ended. */
void serve_figures_add(serve_figures *figures, const serve_choice *choice);
/* Answers GET /metrics. */
void serve_get_metrics(serve_call *call);

#endif
