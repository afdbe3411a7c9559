/* draw_int.h - shared by the files of the draw and by samplers; not included by others.
 *
 * During a draw the candidates are either a row (all tokens, logits [n_vocab], read only unless it is s->row) or a list.
 * A step takes the form it needs: ae_to_list, ae_to_row, ae_keep_top. Log weights are logit / t.
 */
#ifndef AE_DRAW_DRAW_INT_H
#define AE_DRAW_DRAW_INT_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/math/fmath.h"
#include "draw/draw.h"

#define AE_NOISE_BINS 1024 /* by the upper bits of a random word */

/* A candidate with what typical-p sorts by. */
typedef struct ae_typical {
    ae_candidate c;
    double key;
} ae_typical;

/* The arrays belong to whoever made the room. */
struct ae_draw_room {
    float *row;           /* [n_vocab] working copy, when logits are changed */
    ae_candidate *list;   /* [n_vocab] */
    ae_candidate *spare;  /* [n_vocab]; top-p without top-k before it, else NULL */
    ae_typical *typical;  /* [n_vocab]; typical-p only */
    double noise_bound[AE_NOISE_BINS]; /* no noise made of bits in [i, i + 1) / AE_NOISE_BINS is larger */
    double mu;            /* mirostat's */

    /* this draw */
    const ae_draw *draw;
    const float *logits; /* the row; NULL: it is a list */
    uint32_t n;          /* of the list */
    bool sorted;         /* the list, best first */
    double t;            /* product of the temperatures so far */
};

/* NaN and -infinity: no candidate; +infinity: the largest float. */
static inline float ae_clean(float x)
{
    return x != x ? -INFINITY : x > FLT_MAX ? FLT_MAX : x;
}

/* Before means better: larger logit, then lower id. */
static inline bool ae_before(ae_candidate a, ae_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Not normalized, 1 for the best. */
static inline float ae_weight(float x, float top, double t)
{
    return ae_expf((x - top) / (float)t);
}

/* Weights are added up in units of 2^-40, so that no sum depends on the order of the candidates. Sums of 2^24 fit. */
static inline uint64_t ae_weight_units(float weight)
{
    return (uint64_t)(int64_t)(weight * 0x1p40f);
}

/* The natural logarithm of a sum. */
static inline double ae_log_total(uint64_t total)
{
    return ae_log((double)total * 0x1p-40);
}

/* A sum is at least this when it reaches the share of a total. */
static inline uint64_t ae_share(double share, uint64_t total)
{
    return (uint64_t)(share * (double)total);
}

/* ---- chain.c: a draw in steps, for samplers that have more of them ---- */

/* Whether a step is of the chain. */
bool ae_draw_has(const ae_draw *draw, aerie_sampler step);
/* Whether top-p may meet more candidates than top-k leaves. */
bool ae_draw_sorts_many(const ae_draw *draw);
/* Fills noise_bound. */
void ae_draw_room_init(ae_draw_room *room);
/* Begins with a row. */
void ae_chain_begin(ae_draw_room *s, const ae_draw *draw, const float *logits);
/* One of the steps here; nothing for penalties and DRY. */
void ae_chain_step(ae_draw_room *s, aerie_sampler step, size_t position);
/* The token of the candidates that are left; logits: the row at the beginning, from which the best comes if there are none. */
int32_t ae_chain_end(ae_draw_room *s, const float *logits, size_t position);

/* ---- candidates.c ---- */

int32_t ae_argmax(const float *logits, uint32_t n);
/* The k best of the row, best first; no candidates are left out. */
uint32_t ae_select_top(const float *logits, uint32_t n, uint32_t k, ae_candidate *out);
/* The weight of all candidates of a row. */
uint64_t ae_total_weight(const float *logits, uint32_t n, float top, double t);
void ae_to_list(ae_draw_room *s);
/* The row is s->row then and may be changed; t is 1. */
void ae_to_row(ae_draw_room *s);
/* A list of the k best, best first. */
void ae_keep_top(ae_draw_room *s, uint32_t k);
/* The largest logit of a list that is not empty. */
float ae_list_top(const ae_draw_room *s);
#define AE_WEIGHTS_PART 256
/* The weights [n] of list[first .. first + n), n at most AE_WEIGHTS_PART. */
void ae_list_weights(const ae_draw_room *s, uint32_t first, uint32_t n, float top, float *weights);
uint64_t ae_list_total(const ae_draw_room *s, float top);
/* How many of the list, from its front, have weights of at least `wanted` together and are `least` or more; more than there
 * are if none, and their total then. */
uint32_t ae_list_reaching(const ae_draw_room *s, float top, uint64_t wanted, uint32_t least, uint64_t *total);
/* The entropy of the list in nats, and its total: log total + sum of w d / total, d = (top - x) / t, each (w d) in units of
 * 2^-40, too, and none where w is less than one. */
double ae_list_entropy(const ae_draw_room *s, float top, uint64_t *total);
/* A list, best first. */
void ae_sort_list(ae_draw_room *s);

/* ---- filters.c: take candidates away, or set t ---- */

/* Biases, of any sign: the row becomes s->row. */
void ae_step_bias(ae_draw_room *s);
void ae_step_top_n_sigma(ae_draw_room *s);
void ae_step_top_p(ae_draw_room *s);
void ae_step_typical(ae_draw_room *s);
void ae_step_min_p(ae_draw_room *s);
void ae_step_xtc(ae_draw_room *s, size_t position);
void ae_step_temperature(ae_draw_room *s);
void ae_step_mirostat(ae_draw_room *s);
/* What mu becomes when `id`, of the candidates left, is emitted. */
double ae_mirostat_next(const ae_draw_room *s, int32_t id);

#endif
