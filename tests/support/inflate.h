/* inflate.h - a model made larger that stays the same function: every neuron of its feed-forward layers is there r times.
 *
 * For end-to-end benchmarks with real text and real acceptance at the cost of a larger model,
 * through tools/inflate.c. The r copies of a neuron have the same rows in ffn_gate and ffn_up and so compute the same;
 * each column of ffn_down is divided by r, so together they add what one added. What differs is rounding: of sums, and
 * of quantized weights, where copies are rounded so that their mean is nearer to the original than any of them. Models
 * with experts are refused.
 */
#ifndef AE_TEST_INFLATE_H
#define AE_TEST_INFLATE_H

#include "convert/quantize/rewrite.h"

#define INFLATE_MOST 64

typedef struct inflate_options {
    uint32_t n_copies;  /* r, 1 to INFLATE_MOST */
    uint32_t group;     /* so many neurons, then the same again ...; 1: the copies of a neuron side by side; 0: the best
                         * known,     256 where that divides the number of neurons, else all of them together */
    bool plain;         /* copies are equal; else each compensates the rounding of those before it (rewrite.h) */
    bool keep_rest;     /* tensors that do not grow keep their types */
    const ae_mix *mix;  /* COPY: each tensor keeps its type (or what fits its new rows) */
    uint32_t n_threads; /* 0 counts as 1 */
} inflate_options;

/* Reads `in`, writes `out`. *n_params (may be NULL): weights of the new model. Errors: those of rewrite.h, ARGUMENT,
 * UNSUPPORTED. */
aerie_status inflate(const inflate_options *options, const char *in, const char *out, uint64_t *n_params,
                     aerie_error *error);

#endif
