/* best.h - the best logits of rows, found on the device: inside the GPU backends, for draw.c. */
#ifndef AE_BACKEND_GPU_BEST_H
#define AE_BACKEND_GPU_BEST_H

#include "backend/gpu/gpu.h"

/* A search, and where its results go: to the stream's `landing`, from `at` on. */
typedef struct ae_gpu_search {
    const float *logits;  /* [row][n_logits], on the device */
    uint32_t n_logits;
    const uint32_t *rows; /* (host) [n_rows] rows of logits */
    uint32_t n_rows;
    uint32_t k;           /* candidates of a row, 1 to AE_GPU_BEST */
    bool totals;          /* the search also returns each row's total weight */
    size_t at;            /* a multiple of 64 */
} ae_gpu_search;

/* Returns the bytes of the search's results. */
size_t ae_gpu_search_bytes(const ae_gpu_search *search);
/* Queues the search and the copies of its results; `landing` must be large enough. Returns false if the device has no memory
 * for it, or if a launch failed, which is noted in the stream. */
bool ae_gpu_search_run(ae_stream *stream, const ae_gpu_search *search);
/* After a wait: copies the candidates of row i, best first, and returns their number. *total: the weight of the row in units,
 * if the search has totals. *whole: the row holds an infinite logit, so the host has to look at all of it. */
uint32_t ae_gpu_search_get(const ae_stream *stream, const ae_gpu_search *search, uint32_t i, ae_candidate best[AE_GPU_BEST],
                           uint64_t *total, bool *whole);

#endif
