/* cost.c - T(n) by context, the drift of the machine, and what drafts cost (cost.h). Curves of times: timing.c. */
#include "speculate/control/cost.h"

#include <string.h>

#define MOST_DRIFT 8.0
#define MOST_EXTRA 1.5
#define PLAIN_EARLY 12    /* rounds until the next plain one while its time is not well known */
#define PLAIN_CLOSE 48    /* rounds until the next plain one while speculation gains little */
#define PLAIN_EVERY 192   /* rounds until the next plain one otherwise */
#define PLAIN_ODD 2       /* rounds until the next plain one after one whose time did not agree with the drift */
#define PLAIN_DRIFTED 4   /* rounds until the next plain one after the machine became slower or faster */
#define PLAIN_DOUBTED 8   /* rounds until the next plain one when it seems slower than a larger pass */
#define USUAL_FRESH 32    /* rounds after which the weight of old times of passes with drafts is halved */
#define DRIFT_ODD 1.25    /* a ratio to the drift that is more than noise */
#define DRIFT_FAR 1.3
#define DRIFT_SLOW 0.1    /* weight of a plain pass in the usual drift */
#define ODD_FASTER 2      /* plain passes in a row that replace the drift, if they are faster than it and agree with each
                           * other */
#define ODD_SLOWER 3      /* the same for slower ones */

void ae_cost_init(ae_cost *c)
{
    memset(c, 0, sizeof *c);
    c->drift = c->plain_drift = c->usual_drift = c->extra = 1;
}

/* ---- Measured over expected -------------------------------------------------------------------------- */

static void ratios_add(ae_ratios *r, double ratio)
{
    r->ratio[r->n_seen++ % AE_RATIOS] = (float)ratio;
}

/* Returns the lower quartile of the ratios: it corrects wrong expectations, and ignores a slow pass now and then. Returns 1
 * while there are no ratios. */
static double ratios_usual(const ae_ratios *r)
{
    const uint32_t n = r->n_seen < AE_RATIOS ? r->n_seen : AE_RATIOS;
    float sorted[AE_RATIOS + 1] = {1}; /* a 1 is added, since one or two ratios are not enough */
    uint32_t m = n < AE_RATIOS;
    for (uint32_t i = 0; i < n; i++, m++) {
        uint32_t at = m;
        for (; at && sorted[at - 1] > r->ratio[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = r->ratio[i];
    }
    return (double)sorted[m / 4];
}

static uint32_t bucket_of(uint32_t n_context)
{
    return n_context < 512 ? 0 : n_context < 2048 ? 1 : n_context < 8192 ? 2 : 3;
}

/* Makes the line of expected times of passes. Sizes that a bucket has not measured take the shape of the nearest bucket that
 * has them. For still larger sizes, passes over prompts show what many rows cost, so that the first drafts are not too large.
 * Returns false if nothing was measured yet. */
static bool pass_line(const ae_cost *c, uint32_t n_context, bool prompts, bool hope, ae_line *line)
{
    void (*const make)(const ae_curve *, uint32_t, bool, ae_line *) = hope ? ae_curve_line : ae_curve_sure_line;
    const uint32_t bucket = bucket_of(n_context);
    ae_line other;
    line->n = 0;
    if (prompts) make(&c->pass[AE_T_BUCKETS], c->clock, false, line);
    for (uint32_t i = 0; i < 2 * AE_T_BUCKETS; i++) { /* the context's own bucket, one below, one above, two below, ... */
        const uint32_t distance = (i + 1) / 2, b = i % 2 ? bucket - distance : bucket + distance;
        if (b >= AE_T_BUCKETS) continue;
        make(&c->pass[b], c->clock, false, &other);
        ae_line_extend(line, &other);
    }
    if (!prompts && line->n) {
        make(&c->pass[AE_T_BUCKETS], c->clock, false, &other);
        ae_line_append(line, &other);
    }
    if (line->n) return true;
    *line = (ae_line){.n = 1, .size = {1}, .seconds = {1e-3f}}; /* only ratios matter */
    return false;
}

/* A pass without drafts took `ratio` times the usual time. If several in a row agree with each other and not with the drift,
 * the drift is wrong, and so are the times recorded since the last pass that agreed with it. Without this check, wrong times of
 * other sizes and a wrong drift could confirm each other as long as only those sizes run. */
static void check_drift(ae_cost *c, uint32_t n_rows, double ratio)
{
    const bool agrees = ratio < DRIFT_ODD * c->drift && ratio > c->drift / DRIFT_ODD;
    const bool again = ratio < DRIFT_ODD * c->odd_drift && ratio > c->odd_drift / DRIFT_ODD;
    c->n_odd = agrees ? 0 : again ? c->n_odd + 1 : 1;
    if (agrees) c->last_agreed = c->clock;
    else c->odd_drift = ratio;
    if (c->n_odd < (ratio < c->drift ? ODD_FASTER : ODD_SLOWER)) return;
    c->n_odd = 0;
    c->drift_ratios.n_seen = 0;
    for (int i = 0; i < AE_RATIOS; i++) ratios_add(&c->drift_ratios, ratio);
    for (uint32_t b = 0; b < AE_T_BUCKETS; b++) ae_curve_forget(&c->pass[b], c->last_agreed, n_rows);
    c->last_agreed = c->clock;
}

double ae_cost_saw_pass(ae_cost *c, const ae_round *r, uint32_t n_rows, double seconds)
{
    ae_curve *curve = &c->pass[r->prompts ? AE_T_BUCKETS : bucket_of(r->n_context)];
    const ae_times *t = ae_curve_times(curve, n_rows);
    if (!r->prompts && ae_times_trusted(t, c->clock)) {
        ratios_add(&c->drift_ratios, seconds / (double)t->typical);
        if (n_rows == r->n_rows) check_drift(c, n_rows, seconds / (double)t->typical);
        c->drift = ratios_usual(&c->drift_ratios);
        if (c->drift < 1 / MOST_DRIFT) c->drift = 1 / MOST_DRIFT;
        if (c->drift > MOST_DRIFT) c->drift = MOST_DRIFT;
    }
    seconds /= c->drift;
    ae_curve_add(curve, n_rows, seconds, c->clock);
    if (n_rows > r->n_rows && c->known) {
        ratios_add(&c->pass_ratios, seconds / ae_line_at(&c->now, n_rows));
        c->last_drafts = c->clock;
    }
    return seconds;
}

double ae_cost_pass(const ae_cost *c, double n_rows, bool hope)
{
    return ae_line_at(hope ? &c->hope : &c->now, n_rows) * (n_rows > c->n_plain ? c->usual : 1);
}

void ae_cost_saw_whole(ae_cost *c, bool network, double ratio)
{
    ratios_add(&c->whole[network], ratio);
    const double more = ratios_usual(&c->whole[1]) / ratios_usual(&c->whole[0]);
    c->extra = !c->whole[1].n_seen || more < 1 ? 1 : more < MOST_EXTRA ? more : MOST_EXTRA;
}

double ae_cost_saw_ngrams(ae_cost *c, uint32_t n, double seconds)
{
    ae_curve_add(&c->ngrams, n, seconds / c->drift, c->clock);
    return (double)ae_curve_times(&c->ngrams, n)->typical;
}

double ae_cost_ngrams(const ae_cost *c, uint32_t n)
{
    const ae_times *t = ae_curve_times(&c->ngrams, n);
    return t->n_seen ? (double)t->typical : 0;
}

/* Returns the baseline: tokens that a pass without drafts is worth. These are the tokens that it draws, and its prompt rows,
 * counted as the tokens that plain decoding draws in the same time. Without them, any draft would seem to pay beside a long
 * prompt. */
static double worth(const ae_cost *c, const ae_round *r)
{
    ae_line decoding;
    if (!r->prompts || !r->n_drawing || !pass_line(c, r->n_context, false, false, &decoding)) return r->n_drawing;
    const double alone = ae_line_at(&decoding, r->n_drawing);
    return c->plain > alone && alone > 0 ? r->n_drawing * c->plain / alone : r->n_drawing;
}

void ae_cost_begin(ae_cost *c, const ae_round *r)
{
    c->clock++;
    c->known = pass_line(c, r->n_context, r->prompts, false, &c->now);
    pass_line(c, r->n_context, r->prompts, true, &c->hope);
    c->n_plain = r->n_rows;
    const double usual = ratios_usual(&c->pass_ratios), age = c->clock - c->last_drafts;
    c->usual = usual > 1 ? 1 + (usual - 1) * USUAL_FRESH / (USUAL_FRESH + age) : 1;
    c->plain = ae_line_at(&c->now, r->n_rows);
    c->worth = worth(c, r);
}

void ae_cost_saw_plain(ae_cost *c)
{
    c->last_plain = c->clock;
    c->plain_drift = c->drift;
    c->usual_drift += DRIFT_SLOW * (c->drift - c->usual_drift);
}

bool ae_cost_plain_is_due(const ae_cost *c, const ae_round *r, double gain)
{
    if (r->prompts || r->n_rows != r->n_drawing) return false;
    const ae_curve *curve = &c->pass[bucket_of(r->n_context)];
    const ae_times *t = ae_curve_times(curve, r->n_rows);
    if (!t->n_seen && r->n_rows > AE_TIME_EXACT) t = ae_curve_times(curve, r->n_rows + r->n_rows / 16);
    if (!t->n_seen) return true;
    const uint32_t age = c->clock - c->last_plain;
    if (!ae_times_trusted(t, c->clock)) return age >= PLAIN_EARLY;
    if (c->n_odd && age >= PLAIN_ODD) return true;
    const double off = c->drift / c->usual_drift;
    if (age >= PLAIN_DOUBTED && (off > DRIFT_FAR || off < 1 / DRIFT_FAR)) return true;
    if (age >= PLAIN_DOUBTED && (double)t->typical > 1.05 * ae_line_at(&c->now, (double)t->typical_size)) return true;
    const double since = c->drift / c->plain_drift; /* one wrongly measured size looks like a change of the whole machine */
    if (age >= PLAIN_DRIFTED && (since > 1.25 || since < 0.8)) return true;
    const bool close = gain < 1.2;
    return age >= (close ? PLAIN_CLOSE : PLAIN_EVERY);
}

/* ---- Costs of drafts ---------------------------------------------------------------------------------- */

void ae_network_cost_begin(ae_network_cost *p, uint32_t clock)
{
    ae_curve_sure_line(&p->first, clock, true, &p->first_now);
    ae_curve_sure_line(&p->level, clock, true, &p->level_now);
}

bool ae_network_cost_known(const ae_network_cost *p)
{
    return p->first_now.n > 0;
}

ae_level_cost ae_network_cost_at(const ae_network_cost *p, double n)
{
    const double first = ae_line_at(&p->first_now, n);
    return (ae_level_cost){first, p->level_now.n ? ae_line_at(&p->level_now, n) : first};
}

double ae_network_cost_of(const ae_network_cost *p, double n, uint32_t n_levels)
{
    return ae_level_cost_of(ae_network_cost_at(p, n), n_levels);
}

double ae_network_cost_saw(ae_network_cost *p, uint32_t clock, uint32_t n, uint32_t n_levels, double first, double others)
{
    const double seconds = first + others, expected = ae_network_cost_known(p) ? ae_network_cost_of(p, n, n_levels) : seconds;
    if (expected > 0) ratios_add(&p->ratios, seconds / expected);
    const double usual = expected * ratios_usual(&p->ratios), least = 1e-4 * first; /* a curve ignores a time of 0 */
    ae_curve_add(&p->first, n, first, clock);
    if (n_levels > 1) ae_curve_add(&p->level, n, others / (n_levels - 1) > least ? others / (n_levels - 1) : least, clock);
    ae_network_cost_begin(p, clock);
    return usual;
}
