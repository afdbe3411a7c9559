/* rates.c - rates of acceptance, and the test for changes (rates.h). */
#include "base/math/fmath.h"
#include "speculate/control/rates.h"

#include <math.h>

#define PRIOR 0.6        /* acceptance of the first level while nothing is known */
#define PRIOR_TRIES 3.0  /* tries that the prior counts as; a depth's rate counts as many at the next depth */
#define OWN_TRIES 3.0    /* tries that the drafter's own probability counts as */
#define MOST_RATE 0.98
#define ODDS 8.0         /* a change is assumed to multiply or divide the odds by this */
#define ALARM 10.0       /* threshold of the sum of log-likelihood ratios, for one sequence */
#define ROUNDS_IDLE 512.0 /* rounds without a draft in which knowledge loses two thirds of its weight */
#define OLD_TRIES 8.0     /* the weight, in tries, that old knowledge keeps ... */
#define ROUNDS_OLD 2048.0 /* ... for this many rounds */
#define DEEPER (1 - 1.0 / 128) /* weight that the knowledge of a level keeps after a round that drafted fewer levels */

static double swayed(double rate, double tries, double sway)
{
    const double r = rate + sway * sqrt(rate * (1 - rate) / tries);
    return r < 0 ? 0 : r < MOST_RATE ? r : MOST_RATE;
}

void ae_rates_by_depth(const ae_rates *b, uint32_t n, double sway, double *rate)
{
    double mean = PRIOR;
    for (uint32_t d = 1; d <= n; d++) {
        const double tries = b->depth[d].tries + PRIOR_TRIES;
        mean = swayed((b->depth[d].hits + PRIOR_TRIES * mean) / tries, tries, d == 1 ? sway : 0);
        rate[d] = mean;
    }
}

static ae_rate *bin_of(const ae_rates *b, float p)
{
    const int bin = (int)(p * AE_RATES_BINS);
    return (ae_rate *)&b->bin[bin < 0 ? 0 : bin >= AE_RATES_BINS ? AE_RATES_BINS - 1 : bin];
}

double ae_rates_of_node(const ae_rates *b, float p, double sway)
{
    const ae_rate *r = bin_of(b, p);
    const double tries = r->tries + OWN_TRIES;
    return swayed((r->hits + OWN_TRIES * (double)p) / tries, tries, sway);
}

/* Adds to an exponential average over `window` tries; until it is full it is a plain mean. */
static void add(ae_rate *r, double hit, double window)
{
    const double keep = r->tries < window ? 1 : 1 - 1 / window;
    r->tries = r->tries * keep + 1;
    r->hits = r->hits * keep + hit;
}

/* Adds the log-likelihood ratio of the verdict, for odds that are `times` the estimated ones. */
static void weigh(struct ae_change *c, double rate, double hit, double times)
{
    const double odds = times * rate / (1 - rate), other = odds / (1 + odds);
    c->sum += hit * ae_log(other / rate) + (1 - hit) * ae_log((1 - other) / (1 - rate));
    if (c->sum <= 0) {
        *c = (struct ae_change){0};
        return;
    }
    c->tries++;
    c->hits += hit;
    c->expected += rate;
}

/* Forgets all but `most` tries. The rate is corrected by the verdicts since the change. */
static void forget(ae_rate *r, const struct ae_change *c, double most)
{
    const double tries = r->tries < most ? r->tries : most, times = (c->hits + 0.1) / (c->expected + 0.1);
    double rate = r->tries > 0 ? r->hits / r->tries * times : 0;
    if (times > 1) rate = r->tries > 0 ? 1 - (1 - r->hits / r->tries) * (c->tries - c->hits) / (c->tries - c->expected) : 0;
    *r = (ae_rate){tries, tries * (rate < 1 ? rate : 1)};
}

void ae_rates_saw_depth(ae_rates *b, uint32_t depth, double hit, uint32_t n_seqs)
{
    double rate[AERIE_MAX_DRAFT + 1];
    ae_rates_by_depth(b, depth, 0, rate);
    const double expected = rate[depth] > 0.02 ? rate[depth] : 0.02, n = n_seqs ? n_seqs : 1;
    weigh(&b->change[0], expected, hit, 1 / ODDS);
    weigh(&b->change[1], expected, hit, ODDS);
    add(&b->depth[depth], hit, AE_RATES_ROUNDS * n);
    for (int i = 0; i < 2; i++) {
        if (b->change[i].sum < ALARM + ae_log(n)) continue;
        for (uint32_t d = 1; d <= AERIE_MAX_DRAFT; d++) forget(&b->depth[d], &b->change[i], b->change[i].tries / d);
        for (uint32_t k = 0; k < AE_RATES_BINS; k++) forget(&b->bin[k], &b->change[i], b->change[i].tries);
        b->change[0] = b->change[1] = (struct ae_change){0};
    }
}

void ae_rates_saw_node(ae_rates *b, float p, bool hit, uint32_t n_seqs)
{
    add(bin_of(b, p), hit, 128.0 * (n_seqs ? n_seqs : 1));
}

/* Reduces the weight of a rate: down to a few tries at once, and slowly from there. */
static void age(ae_rate *r, double rounds)
{
    const double keep = 1 - 1 / (r->tries > OLD_TRIES ? rounds : ROUNDS_OLD);
    r->tries *= keep;
    r->hits *= keep;
}

void ae_rates_age(ae_rates *b, uint32_t n_levels)
{
    for (uint32_t d = n_levels + 1; d <= AERIE_MAX_DRAFT; d++) {
        if (!n_levels) age(&b->depth[d], ROUNDS_IDLE);
        else b->depth[d].tries *= DEEPER, b->depth[d].hits *= DEEPER;
    }
    for (uint32_t i = 0; i < AE_RATES_BINS && !n_levels; i++) age(&b->bin[i], ROUNDS_IDLE);
}
