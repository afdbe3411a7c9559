/* draw_int.h - what the files of the draw and samplers share. Private to src/draw and src/sample.
 *
 * During a draw the candidates are either a row (all tokens, logits [n_vocab], read only unless it is s->row) or a list. A step
 * converts them to the form that it needs: ae_to_list, ae_to_row, ae_keep_top. Log weights are logit / t.
 */
#ifndef AE_DRAW_DRAW_INT_H
#define AE_DRAW_DRAW_INT_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/math/fmath.h"
#include "draw/best.h"
#include "draw/draw.h"

#define AE_NOISE_BINS 1024 /* bins of random words, by the words' upper bits */

/* A candidate with the number by which typical-p sorts. */
typedef struct ae_typical {
    ae_candidate c;
    double key;
} ae_typical;

/* The arrays belong to the creator of the room. */
struct ae_draw_room {
    float *row;           /* [n_vocab] working copy for changed logits */
    ae_candidate *list;   /* [n_vocab] */
    ae_candidate *spare;  /* [n_vocab]; only for top-p without top-k before it, otherwise NULL */
    ae_typical *typical;  /* [n_vocab]; only for typical-p */
    double noise_bound[AE_NOISE_BINS]; /* upper bound of the noise from bits in [i, i + 1) / AE_NOISE_BINS */
    double mu;            /* mirostat's mu */

    /* the current draw */
    const ae_draw *draw;
    const float *logits; /* the row; NULL: the candidates are the list */
    uint32_t n;          /* length of the list */
    bool sorted;         /* the list is sorted, best first */
    double t;            /* product of the temperatures so far */
};

/* NaN and -infinity are not candidates; +infinity counts as the largest float. */
static inline float ae_clean(float x)
{
    return x != x ? -INFINITY : x > FLT_MAX ? FLT_MAX : x;
}

/* Returns whether a is better than b: a larger logit, or an equal one with a lower id. */
static inline bool ae_before(ae_candidate a, ae_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Returns the weight, not normalized: 1 for the best candidate. */
static inline float ae_weight(float x, float top, double t)
{
    return ae_expf((x - top) / (float)t);
}

/* Weights are summed in units of 2^-40, so that no sum depends on the order of the candidates. Sums of 2^24 weights fit. */
static inline uint64_t ae_weight_units(float weight)
{
    return (uint64_t)(int64_t)(weight * 0x1p40f);
}

/* Returns the natural logarithm of a sum. */
static inline double ae_log_total(uint64_t total)
{
    return ae_log((double)total * 0x1p-40);
}

/* Returns the smallest sum that reaches the given share of a total. */
static inline uint64_t ae_share(double share, uint64_t total)
{
    return (uint64_t)(share * (double)total);
}

/* ---- chain.c: a draw step by step, for samplers that have further steps ---- */

/* Returns whether the chain has the step. */
bool ae_draw_has(const ae_draw *draw, aerie_sampler step);
/* Returns whether top-p may have to sort more candidates than top-k leaves. */
bool ae_draw_sorts_many(const ae_draw *draw);
/* Fills noise_bound. */
void ae_draw_room_init(ae_draw_room *room);
/* Starts a draw from a row. */
void ae_chain_begin(ae_draw_room *s, const ae_draw *draw, const float *logits);
/* Runs one of the steps in this folder; does nothing for penalties and DRY. */
void ae_chain_step(ae_draw_room *s, aerie_sampler step, size_t position);
/* Draws from the candidates that are left. logits: the row at the beginning, whose best token is taken if no candidate is
 * left. */
int32_t ae_chain_end(ae_draw_room *s, const float *logits, size_t position);

/* ---- candidates.c ---- */

int32_t ae_argmax(const float *logits, uint32_t n);
/* Returns the total weight of all candidates in a row. */
uint64_t ae_total_weight(const float *logits, uint32_t n, float top, double t);
void ae_to_list(ae_draw_room *s);
/* Makes the candidates a row that may be changed, s->row; t becomes 1. */
void ae_to_row(ae_draw_room *s);
/* Makes the candidates a list of the k best, best first. */
void ae_keep_top(ae_draw_room *s, uint32_t k);
/* Returns the largest logit of a list, which must not be empty. */
float ae_list_top(const ae_draw_room *s);
#define AE_WEIGHTS_PART 256
/* Computes the weights [n] of list[first .. first + n); n is at most AE_WEIGHTS_PART. */
void ae_list_weights(const ae_draw_room *s, uint32_t first, uint32_t n, float top, float *weights);
uint64_t ae_list_total(const ae_draw_room *s, float top);
/* Returns the length of the shortest beginning of the list that has at least `least` candidates and weighs at least `wanted`.
 * If the whole list weighs less, returns a number above its length, and in *total the list's weight. */
uint32_t ae_list_reaching(const ae_draw_room *s, float top, uint64_t wanted, uint32_t least, uint64_t *total);
/* Returns the entropy of the list in nats, and its total: log total + sum of w d / total with d = (top - x) / t. Each w d is
 * rounded to units of 2^-40, and counts 0 where w is less than one unit. */
double ae_list_entropy(const ae_draw_room *s, float top, uint64_t *total);
/* Sorts the list, best first. */
void ae_sort_list(ae_draw_room *s);

/* ---- filters.c: take candidates away, or set t ---- */

/* Adds the biases, of any sign; the row becomes s->row. */
void ae_step_bias(ae_draw_room *s);
void ae_step_top_n_sigma(ae_draw_room *s);
void ae_step_top_p(ae_draw_room *s);
void ae_step_typical(ae_draw_room *s);
void ae_step_min_p(ae_draw_room *s);
void ae_step_xtc(ae_draw_room *s, size_t position);
void ae_step_temperature(ae_draw_room *s);
void ae_step_mirostat(ae_draw_room *s);
/* Returns the mu that follows when `id`, one of the candidates left, is emitted. */
double ae_mirostat_next(const ae_draw_room *s, int32_t id);

#endif
