/* controller.c - acceptance, costs, budgets, and the three decisions of a pass (controller.h). Curves of times: timing.c. */
#include "speculate/control/controller.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "speculate/control/choose_drafter.h"

#define GAIN_NEEDED 1.01  /* speculate only for at least this expected gain */
#define PRIOR_HIT 0.7     /* acceptance of a level that nothing is known of */
#define PRIOR_TRIES 4.0   /* tries that PRIOR_HIT counts as */
#define PROBE_SHARE 8     /* one sequence in this many gets the first drafts, of one level */
#define PROBE_EVERY 4     /* rounds between such drafts until their cost is known */
#define INTEREST 0.012 /* plain passes that each pass adds to a budget; each failed trial after the first halves it */
#define SEVERAL 1.5       /* times INTEREST, for several networks together */
#define MOST_FAILED 4     /* failed trials in a row that are counted */
#define CREDIT_FIRST 0.5 /* first budget of each kind: a short answer is not much slower for having tried both */
#define CREDIT_MOST 2.0
#define CREDIT_LEAST -0.5
#define CREDIT_WAKE 0.25  /* budget at which a paused kind is tried again */
#define RISK_LEAST 0.2    /* plain passes that may be risked with any budget */
#define MOST_DRIFT 8.0
#define FORGET 0.97       /* factor on acceptance per round without a draft, so that what was bad is tried again */
#define PLAIN_EARLY 12    /* rounds until the next plain one while its time is hardly known */
#define PLAIN_CLOSE 48    /* rounds until the next plain one while speculation gains little */
#define PLAIN_EVERY 192   /* rounds until the next plain one otherwise */
#define PLAIN_ODD 2       /* rounds until the next plain one after one that does not agree with the drift */
#define DRIFT_ODD 1.25    /* ratio to the drift that is not noise */
#define DRIFT_FAR 1.3
#define ODD_FASTER 2      /* plain passes in a row, faster than the drift and agreeing with each other, that replace it */
#define ODD_SLOWER 3      /* the same for slower ones */
#define PLAIN_DRIFTED 4   /* rounds until the next plain one after the machine became slower or faster */
#define PLAIN_DOUBTED 8   /* rounds until the next plain one when it seems slower than a larger pass */

struct ae_reached {
    float reach;
    uint16_t tree, node;
};

aerie_status ae_controller_init(ae_controller *c, const ae_controller_options *options, aerie_error *error)
{
    memset(c, 0, sizeof *c);
    c->options = *options;
    if (!c->options.n_networks) c->options.n_networks = 1;
    c->offers.credit = CREDIT_FIRST;
    ae_contest_init(c);
    for (uint32_t i = 0; i < c->options.n_networks; i++)
        c->networks[i].book.credit = CREDIT_FIRST;
    c->drift = c->plain_drift = 1;
    const size_t n_nodes = (size_t)options->n_seqs * AERIE_MAX_DRAFT;
    c->nodes = ae_alloc(n_nodes, sizeof *c->nodes);
    c->order = ae_alloc(options->n_seqs, sizeof *c->order);
    c->kept = ae_alloc(options->n_seqs, sizeof *c->kept);
    if (c->nodes && c->order && c->kept) return AERIE_OK;
    ae_controller_free(c);
    return ae_fail_memory(error, "the choice of drafts", n_nodes * sizeof(struct ae_reached));
}

void ae_controller_free(ae_controller *c)
{
    ae_free(c->nodes);
    ae_free(c->order);
    ae_free(c->kept);
    c->nodes = NULL;
    c->order = NULL;
    c->kept = NULL;
}

/* ---- Measured over expected -------------------------------------------------------------------------- */

static void add_ratio(ae_ratios *r, double ratio)
{
    r->ratio[r->n_seen++ % AE_RATIOS] = (float)ratio;
}

/* How much longer the last passes took than expected: the lower quartile. This corrects wrong expectations, and ignores a slow
 * pass now and then. */
static double usual_ratio(const ae_ratios *r)
{
    const uint32_t n = r->n_seen < AE_RATIOS ? r->n_seen : AE_RATIOS;
    float sorted[AE_RATIOS + 1] = {1}; /* a 1 is added, since the first two are not enough */
    uint32_t m = n < AE_RATIOS;
    for (uint32_t i = 0; i < n; i++, m++) {
        uint32_t at = m;
        for (; at && sorted[at - 1] > r->ratio[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = r->ratio[i];
    }
    return (double)sorted[m / 4];
}

/* ---- Times -------------------------------------------------------------------------------------- */

static uint32_t bucket_of(uint32_t n_context)
{
    return n_context < 512 ? 0 : n_context < 2048 ? 1 : n_context < 8192 ? 2 : 3;
}

/* Expected times of passes. Sizes that a bucket has not measured take the shape of the nearest bucket that has them. For still
 * larger sizes, passes over prompts say what many rows cost, so that the first drafts are not too large. False: nothing was
 * measured yet. */
static bool pass_line(const ae_controller *c, uint32_t n_context, bool prompts, ae_line *line)
{
    const uint32_t bucket = bucket_of(n_context);
    ae_line other;
    line->n = 0;
    if (prompts) ae_curve_line(&c->pass[AE_T_BUCKETS], c->clock, false, line);
    for (uint32_t i = 0; i < 2 * AE_T_BUCKETS; i++) { /* its own, one below, one above, two below, ... */
        const uint32_t distance = (i + 1) / 2, b = i % 2 ? bucket - distance : bucket + distance;
        if (b >= AE_T_BUCKETS) continue;
        ae_curve_line(&c->pass[b], c->clock, false, &other);
        ae_line_extend(line, &other);
    }
    if (!prompts && line->n) {
        ae_curve_line(&c->pass[AE_T_BUCKETS], c->clock, false, &other);
        ae_line_append(line, &other);
    }
    if (line->n) return true;
    *line = (ae_line){.n = 1, .size = {1}, .seconds = {1e-3f}}; /* only ratios matter */
    return false;
}

/* A pass without drafts took `ratio` times the usual time. If several in a row agree with each other and not with the drift,
 * the drift is wrong, and so are the times recorded since the last pass that agreed with it. Without this check, wrong times of
 * other sizes and a wrong drift could confirm each other as long as only those sizes run. */
static void check_drift(ae_controller *c, uint32_t n_rows, double ratio)
{
    const bool agrees = ratio < DRIFT_ODD * c->drift && ratio > c->drift / DRIFT_ODD;
    const bool again = ratio < DRIFT_ODD * c->odd_drift && ratio > c->odd_drift / DRIFT_ODD;
    c->n_odd = agrees ? 0 : again ? c->n_odd + 1 : 1;
    if (agrees) c->last_agreed = c->clock;
    else c->odd_drift = ratio;
    if (c->n_odd < (ratio < c->drift ? ODD_FASTER : ODD_SLOWER)) return;
    c->n_odd = 0;
    c->drift_ratios.n_seen = 0;
    for (int i = 0; i < AE_RATIOS; i++) add_ratio(&c->drift_ratios, ratio);
    for (uint32_t b = 0; b < AE_T_BUCKETS; b++) ae_curve_forget(&c->pass[b], c->last_agreed, n_rows);
    c->last_agreed = c->clock;
}

void ae_controller_saw_pass(ae_controller *c, const ae_round *r, uint32_t n_rows, double seconds)
{
    ae_curve *curve = &c->pass[r->prompts ? AE_T_BUCKETS : bucket_of(r->n_context)];
    const ae_times *t = ae_curve_times(curve, n_rows);
    if (!r->prompts && ae_times_trusted(t, c->clock)) {
        add_ratio(&c->drift_ratios, seconds / (double)t->typical);
        if (n_rows == r->n_rows) check_drift(c, n_rows, seconds / (double)t->typical);
        c->drift = usual_ratio(&c->drift_ratios);
        if (c->drift < 1 / MOST_DRIFT) c->drift = 1 / MOST_DRIFT;
        if (c->drift > MOST_DRIFT) c->drift = MOST_DRIFT;
    }
    seconds /= c->drift;
    ae_curve_add(curve, n_rows, seconds, c->clock);
    if (n_rows > r->n_rows && c->expected > 0) add_ratio(&c->pass_ratios, seconds / c->expected);
}

/* Expected seconds of a draft of n_levels levels for n sequences. */
static double draft_seconds(const ae_controller *c, double n, uint32_t n_levels)
{
    const double first = ae_line_at(&c->net->first_now, n), level = ae_line_at(&c->net->level_now, n);
    return first + (n_levels - 1) * (c->net->level_now.n ? level : first);
}

void ae_controller_saw_offers(ae_controller *c, uint32_t n, double seconds)
{
    ae_curve_add(&c->offer, n, seconds / c->drift, c->clock);
    c->took[AE_KIND_OFFER] = (double)ae_curve_times(&c->offer, n)->typical;
}

void ae_controller_saw_draft(ae_controller *c, uint32_t n, uint32_t n_levels, double first, double others)
{
    first /= c->drift;
    others /= c->drift;
    const double expected = c->net->first_now.n ? draft_seconds(c, n, n_levels) : first + others;
    if (expected > 0) add_ratio(&c->net->ratios, (first + others) / expected);
    c->took[AE_KIND_DRAFT] = expected * usual_ratio(&c->net->ratios);
    ae_curve_add(&c->net->first, n, first, c->clock);
    if (n_levels > 1) ae_curve_add(&c->net->level, n, others / (n_levels - 1), c->clock);
    ae_curve_line(&c->net->first, c->clock, true, &c->net->first_now);
    ae_curve_line(&c->net->level, c->clock, true, &c->net->level_now);
}

/* ---- Acceptance ------------------------------------------------------------------------------------ */

static uint32_t belief_bin(float p)
{
    const int bin = (int)(p * AE_BELIEFS);
    return bin < 0 ? 0 : bin >= AE_BELIEFS ? AE_BELIEFS - 1 : (uint32_t)bin;
}

static bool is_offered(const ae_tree *tree, uint32_t node)
{
    return tree->from[node] & AE_FROM_OFFER;
}

/* Probability that the node is accepted. The drafter's own probability counts as three observations. */
static double calibrated(const ae_controller *c, const ae_tree *tree, uint32_t node)
{
    const ae_beliefs *b = is_offered(tree, node) ? &c->offered : &c->net->beliefs;
    const uint32_t bin = belief_bin(tree->p[node]);
    return (b->hits[bin] + 3.0 * (double)tree->p[node]) / (b->tries[bin] + 3.0);
}

static void count(double *tries, double *hits, double hit)
{
    if (*tries > 128) {
        *tries *= 0.75;
        *hits *= 0.75;
    }
    *tries += 1;
    *hits += hit;
}

/* Whether a child of `parent` was drafted and verified. */
static bool was_tried(const ae_tree *tree, int32_t parent)
{
    for (uint32_t i = (uint32_t)(parent + 1); i < tree->n; i++)
        if (tree->parent[i] == parent && (tree->from[i] & AE_FROM_DRAFT)) return true;
    return false;
}

/* Counts the verdict on each level. A level that ran but had no node worth verifying counts with its estimated probability. */
static void count_levels(ae_controller *c, const ae_chance *chance, const int32_t *path, uint32_t n_accepted)
{
    const ae_tree *tree = chance->tree;
    for (uint32_t depth = 1; depth <= chance->n_levels && depth <= n_accepted + 1; depth++) {
        double hit = 0;
        if (depth <= n_accepted) hit = (tree->from[path[depth - 1]] & AE_FROM_DRAFT) != 0;
        else if (!was_tried(tree, depth == 1 ? -1 : path[depth - 2])) hit = (double)chance->believed[depth];
        count(&c->net->depth_tries[depth], &c->net->depth_hits[depth], hit);
        if (depth > 1) continue;
        ae_acceptance *a = chance->acceptance;
        if (a->tries > 16) a->tries *= 0.75f, a->hits *= 0.75f;
        a->tries += 1;
        a->hits += (float)hit;
    }
}

void ae_controller_saw_verdict(ae_controller *c, const ae_chance *chance, const int32_t *path, uint32_t n_accepted)
{
    const ae_tree *tree = chance->tree;
    for (uint32_t i = 0; i < tree->n; i++) {
        const uint32_t depth = (uint32_t)tree->depth[i], bin = belief_bin(tree->p[i]);
        ae_beliefs *b = is_offered(tree, i) ? &c->offered : &c->net->beliefs;
        const int32_t parent = depth == 1 ? -1 : depth - 2 < n_accepted ? path[depth - 2] : -2;
        if (tree->parent[i] != parent) continue; /* its parent was not accepted: nothing was learnt */
        const bool hit = depth - 1 < n_accepted && path[depth - 1] == (int32_t)i;
        count(&b->tries[bin], &b->hits[bin], hit);
    }
    count_levels(c, chance, path, n_accepted);
}

/* ---- Books --------------------------------------------------------------------------------------------- */

static void end_trial(ae_book *b)
{
    if (b->trial < 0) b->n_failed += b->n_failed < MOST_FAILED;
    if (b->trial > 0) b->n_failed = 0;
    b->trial = 0;
}

static void enter(ae_book *b, bool used, double gain, double interest, uint32_t n_warm)
{
    b->n_idle = used ? 0 : b->n_idle + 1;
    if (used) b->trial += gain;
    if (b->n_idle == 2) end_trial(b);
    b->credit += gain + interest / (b->n_failed ? 1u << (b->n_failed - 1) : 1u);
    if (b->credit > CREDIT_MOST) b->credit = CREDIT_MOST;
    if (b->credit < CREDIT_LEAST) b->credit = CREDIT_LEAST;
    if (b->credit < 0 && !b->resting) {
        b->resting = true;
        end_trial(b);
    }
    if (b->credit > CREDIT_WAKE && b->resting) {
        b->resting = false;
        b->n_warming = n_warm;
    } else if (b->n_warming) {
        b->n_warming--;
    }
}

void ae_controller_saw_round(ae_controller *c, const ae_round *r, const ae_result *result)
{
    if (c->options.fixed) return;
    ae_book *network = &c->net->book;
    const double plain = c->plain_seconds, upkeep = result->upkeep / (c->drift * plain);
    if (r->prompts || !r->n_drawing) { /* a network works on a prompt's rows too, but that alone does not pause it */
        const double left = network->credit - upkeep;
        if (network->credit > CREDIT_WAKE) network->credit = left > CREDIT_WAKE ? left : CREDIT_WAKE;
        return;
    }
    network->trial -= result->start / (c->drift * plain); /* not its budget: a cost paid once predicts nothing */
    const double n_nodes = result->n_nodes[0] + result->n_nodes[1];
    double more = n_nodes ? c->expected * usual_ratio(&c->pass_ratios) / plain - 1 : 0;
    if (more < 0) more = 0;
    double gain[2], tokens = 1, passes = 1 + more + upkeep;
    for (int k = 0; k < 2; k++) {
        const double accepted = (double)result->n_accepted[k] / r->n_drawing, took = c->took[k] / plain;
        gain[k] = accepted - took - (n_nodes ? more * result->n_nodes[k] / n_nodes : 0);
        if (!result->used[k]) gain[k] = 0;
        tokens += accepted;
        passes += took;
    }
    const bool known = result->used[AE_KIND_DRAFT] || ae_times_trusted(ae_curve_times(&c->net->first, 1), c->clock);
    if (!c->plain && !c->probing && known) ae_contest_saw(c, tokens, passes);
    if (c->net->ratios.n_seen && !network->n_warming) gain[AE_KIND_DRAFT] -= upkeep; /* once it has drafted and is ready */
    const double interest = INTEREST * (c->options.n_networks > 1 ? SEVERAL / c->options.n_networks : 1);
    enter(&c->offers, result->used[AE_KIND_OFFER], gain[AE_KIND_OFFER], INTEREST, 0);
    for (uint32_t i = 0; i < c->options.n_networks; i++) {
        const bool own = &c->networks[i] == c->net, used = own && result->used[AE_KIND_DRAFT];
        enter(&c->networks[i].book, used, own ? gain[AE_KIND_DRAFT] : 0, interest, c->options.n_warm);
    }
}

bool ae_controller_rests(const ae_controller *c)
{
    for (uint32_t i = 0; i < c->options.n_networks; i++)
        if (c->options.fixed || !c->networks[i].book.resting) return false;
    return true;
}

/* ---- Begin ---------------------------------------------------------------------------------------------- */

/* Whether a plain pass is due: never measured at this number of sequences, not lately, or slower than larger passes. */
static bool plain_is_due(const ae_controller *c, const ae_round *r)
{
    if (r->prompts || r->n_rows != r->n_drawing) return false;
    const ae_curve *curve = &c->pass[bucket_of(r->n_context)];
    const ae_times *t = ae_curve_times(curve, r->n_rows);
    if (!t->n_seen && r->n_rows > AE_TIME_EXACT) t = ae_curve_times(curve, r->n_rows + r->n_rows / 16);
    if (!t->n_seen) return true;
    const uint32_t age = c->clock - c->last_plain;
    if (!ae_times_trusted(t, c->clock)) return age >= PLAIN_EARLY;
    if (c->n_odd && age >= PLAIN_ODD) return true;
    if (age >= PLAIN_DOUBTED && (c->drift > DRIFT_FAR || c->drift < 1 / DRIFT_FAR)) return true;
    if (age >= PLAIN_DOUBTED && (double)t->typical > 1.05 * ae_line_at(&c->pass_now, (double)t->typical_size)) return true;
    const double since = c->drift / c->plain_drift; /* one wrongly measured size looks like a change of the whole machine */
    if (age >= PLAIN_DRIFTED && (since > 1.25 || since < 0.8)) return true;
    const bool close = c->gain < 1.2;
    return age >= (close ? PLAIN_CLOSE : PLAIN_EVERY);
}

/* Lets acceptance decay while the network does not draft, since the text changes. */
static void forget(ae_controller *c)
{
    const double keep = 1 - (1 - FORGET) / (1u << c->net->book.n_failed);
    for (uint32_t d = 1; d <= c->options.n_max && d <= AERIE_MAX_DRAFT; d++) {
        c->net->depth_tries[d] *= keep;
        c->net->depth_hits[d] *= keep;
    }
    if (c->clock % 64) return;
    for (int bin = 0; bin < AE_BELIEFS; bin++) {
        c->offered.tries[bin] *= 0.9, c->offered.hits[bin] *= 0.9;
        c->net->beliefs.tries[bin] *= 0.9, c->net->beliefs.hits[bin] *= 0.9;
    }
}

/* The baseline: tokens that a pass without drafts is worth. These are the tokens that it draws, and its prompt rows, counted as
 * the tokens that plain decoding draws in the same time. Without them, any draft would seem to pay beside a long prompt. */
static double worth(const ae_controller *c, const ae_round *r)
{
    ae_line decoding;
    if (!r->prompts || !r->n_drawing || !pass_line(c, r->n_context, false, &decoding)) return r->n_drawing;
    const double alone = ae_line_at(&decoding, r->n_drawing);
    return c->plain_seconds > alone && alone > 0 ? r->n_drawing * c->plain_seconds / alone : r->n_drawing;
}

bool ae_controller_begin(ae_controller *c, const ae_round *r)
{
    c->clock++;
    pass_line(c, r->n_context, r->prompts, &c->pass_now);
    c->plain_seconds = ae_line_at(&c->pass_now, r->n_rows);
    c->worth = worth(c, r);
    c->n_rows = r->n_rows, c->n_drawing = r->n_drawing;
    c->expected = c->took[0] = c->took[1] = 0;
    c->probing = false;
    ae_contest_begin(c);
    if (c->options.fixed) return c->options.offers;
    if (c->net->book.n_idle) forget(c);
    c->plain = plain_is_due(c, r);
    if (c->plain) c->last_plain = c->clock, c->plain_drift = c->drift;
    ae_curve_line(&c->net->first, c->clock, true, &c->net->first_now);
    ae_curve_line(&c->net->level, c->clock, true, &c->net->level_now);
    return c->options.offers && !c->plain && !c->offers.resting;
}

/* ---- Plan -------------------------------------------------------------------------------------------------- */

static double depth_rate_of(const ae_network *net, uint32_t depth)
{
    return (net->depth_hits[depth] + PRIOR_HIT * PRIOR_TRIES) / (net->depth_tries[depth] + PRIOR_TRIES);
}

static double depth_rate(const ae_controller *c, uint32_t depth)
{
    return depth_rate_of(c->net, depth);
}

double ae_controller_expected(const ae_controller *c, const ae_network *net, double sway)
{
    const uint32_t most = c->options.n_max < AERIE_MAX_DRAFT ? c->options.n_max : AERIE_MAX_DRAFT;
    ae_line first, level;
    ae_curve_line(&net->first, c->clock, true, &first);
    ae_curve_line(&net->level, c->clock, true, &level);
    if (!first.n || !c->n_drawing) return 0;
    const double n = c->n_drawing, first_seconds = ae_line_at(&first, n);
    const double level_seconds = level.n ? ae_line_at(&level, n) : first_seconds;
    double reach = 1, sum = 0, best = 0;
    for (uint32_t k = 1; k <= most; k++) {
        const double rate = depth_rate_of(net, k), tries = net->depth_tries[k] + PRIOR_TRIES;
        const double likely = rate + sway * sqrt(rate * (1 - rate) / tries);
        sum += reach *= likely < 0 ? 0 : likely < 0.98 ? likely : 0.98;
        const double took = first_seconds + (k - 1) * level_seconds + ae_line_at(&c->pass_now, c->n_rows + n * k);
        const double gain = (1 + sum) * c->plain_seconds / took;
        if (gain > best) best = gain;
    }
    return best;
}

/* Acceptance of this sequence's drafts relative to others. */
static double sequence_factor(const ae_controller *c, const ae_acceptance *a)
{
    const double usual = depth_rate(c, 1), own = ((double)a->hits + 4 * usual) / ((double)a->tries + 4);
    return own / usual;
}

/* Returns the tokens that n_levels of a network are expected to add to the best n-gram chain, where either may be right.
 * *offered: the tokens expected of that chain alone. */
static double promise(const ae_controller *c, const ae_chance *chance, uint32_t n_levels, double *offered)
{
    const ae_tree *tree = chance->tree;
    const double factor = sequence_factor(c, chance->acceptance);
    double reach = 1, both = 1, sum = 0;
    int32_t node = -1;
    *offered = 0;
    for (uint32_t d = 1; d <= chance->max_depth && both > 1e-3; d++) {
        double own = d <= n_levels ? depth_rate(c, d) * factor : 0, theirs = 0;
        if (own > 0.98) own = 0.98;
        if ((d == 1 || node >= 0) && (node = ae_tree_best_child(tree, node)) >= 0)
            theirs = calibrated(c, tree, (uint32_t)node);
        *offered += reach *= theirs;
        sum += both *= 1 - (1 - own) * (1 - theirs);
    }
    return sum - *offered;
}

static int by_gain(const void *a, const void *b)
{
    const ae_chance *x = *(ae_chance *const *)a, *y = *(ae_chance *const *)b;
    if (x->gain != y->gain) return x->gain > y->gain ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void ask(ae_controller *c, uint32_t n, uint32_t n_levels)
{
    for (uint32_t i = 0; i < n; i++) {
        ae_chance *chance = c->order[i];
        chance->n_levels = n_levels < chance->max_depth ? n_levels : chance->max_depth;
    }
}

/* Seconds beyond a plain pass that may be lost if nothing is accepted. With many sequences, a large tree for each can take as
 * long as several plain passes. So the limit is twice the larger budget. */
static double risk(const ae_controller *c, const ae_round *r, bool network)
{
    if (r->n_drawing == 1) return HUGE_VAL;
    double credit = c->offers.credit;
    if (network && c->net->book.credit > credit) credit = c->net->book.credit;
    return 2 * (credit > RISK_LEAST ? credit : RISK_LEAST) * c->plain_seconds;
}

/* Chooses the sequences with most to gain, and the levels, with the best rate: (baseline + expected accepted tokens) over (time
 * of n-gram drafts, draft and pass). */
static bool plan_best(ae_controller *c, const ae_round *r, uint32_t n, double offered, uint32_t n_offered)
{
    const uint32_t most = c->options.n_max < AERIE_MAX_DRAFT ? c->options.n_max : AERIE_MAX_DRAFT;
    const double spent = c->took[AE_KIND_OFFER], rows = r->n_rows + n_offered, base = c->worth + offered;
    double sum[AERIE_MAX_DRAFT + 1] = {0}, best = GAIN_NEEDED * base / (spent + ae_line_at(&c->pass_now, rows)), unused;
    const double most_lost = risk(c, r, true);
    uint32_t best_n = 0, best_levels = 0;
    for (uint32_t m = 1, next = 1; m <= n; m++) {
        for (uint32_t k = 1; k <= most; k++) sum[k] += promise(c, c->order[m - 1], k, &unused);
        if (m < next && m < n) continue;
        next = m + 1 + m / 8;
        for (uint32_t k = 1; k <= most; k++) {
            const double draft = draft_seconds(c, m, k);
            const double rate = (base + sum[k]) / (spent + draft + ae_line_at(&c->pass_now, rows + (double)m * k));
            if (rate <= best || draft > most_lost) continue;
            best = rate;
            best_n = m;
            best_levels = k;
        }
    }
    ask(c, best_n, best_levels);
    return best_n > 0;
}

bool ae_controller_plan(ae_controller *c, const ae_round *r, ae_chance *chances, uint32_t n)
{
    const uint32_t most = c->options.n_max < AERIE_MAX_DRAFT ? c->options.n_max : AERIE_MAX_DRAFT;
    double offered = 0;
    uint32_t n_offered = 0;
    for (uint32_t i = 0; i < n; i++) {
        chances[i].n_levels = 0;
        c->order[i] = &chances[i];
    }
    if (!c->options.drafts || !n) return false;
    if (c->options.fixed) {
        ask(c, n, most);
        return true;
    }
    if (c->plain || c->net->book.resting || c->net->book.n_warming) return false;
    const float floor = ae_controller_floor(c, r);
    for (uint32_t i = 0; i < n; i++) {
        double theirs;
        float reach[AERIE_MAX_DRAFT];
        const ae_tree *tree = chances[i].tree;
        chances[i].gain = (float)promise(c, &chances[i], most, &theirs);
        offered += theirs;
        for (uint32_t j = 0; j < tree->n; j++) {
            reach[j] = (float)calibrated(c, tree, j) * (tree->parent[j] < 0 ? 1.0f : reach[tree->parent[j]]);
            n_offered += reach[j] > floor;
        }
    }
    qsort(c->order, n, sizeof(struct ae_chance *), by_gain);
    if (c->net->first_now.n && plan_best(c, r, n, offered, n_offered)) return true;
    /* the cost of a level is unknown, or may have been measured while other programs ran */
    const uint32_t n_probe = 1 + (n - 1) / PROBE_SHARE;
    const ae_times *price = ae_curve_times(&c->net->first, n_probe);
    if (ae_times_trusted(price, c->clock) || (price->n_seen && c->clock - price->last < PROBE_EVERY)) return false;
    ask(c, n_probe, 1);
    c->probing = true;
    return true;
}

/* ---- Choose ------------------------------------------------------------------------------------------------ */

float ae_controller_floor(const ae_controller *c, const ae_round *r)
{
    if (c->options.fixed) return 0;
    const double row = (ae_line_at(&c->pass_now, r->n_rows + 8.0) - c->plain_seconds) / 8;
    const double floor = 0.5 * row * c->worth / c->plain_seconds; /* half, since larger passes may have cheaper rows */
    return floor < 0.5 ? (float)floor : 0.5f;
}

static int by_reach(const void *a, const void *b)
{
    const struct ae_reached *x = a, *y = b;
    if (x->reach != y->reach) return x->reach > y->reach ? -1 : 1;
    if (x->tree != y->tree) return x->tree < y->tree ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node; /* equal ones stay in index order, so parents come before children */
}

/* Keeps the first n_keep of the sorted nodes. */
static void prune(ae_controller *c, ae_chance *chances, uint32_t n, uint32_t n_keep)
{
    _Static_assert(AERIE_MAX_DRAFT <= 64, "a bit for each node");
    memset(c->kept, 0, n * sizeof *c->kept);
    for (uint32_t k = 0; k < n_keep; k++) c->kept[c->nodes[k].tree] |= UINT64_C(1) << c->nodes[k].node;
    for (uint32_t t = 0; t < n; t++) {
        bool keep[AERIE_MAX_DRAFT];
        uint32_t kept = 0;
        for (uint32_t i = 0; i < chances[t].tree->n; i++) kept += keep[i] = c->kept[t] >> i & 1;
        if (kept < c->options.n_min) memset(keep, 0, sizeof keep);
        ae_tree_prune(chances[t].tree, keep);
    }
}

/* Stores the estimated probabilities of the best drafted chain, before it is cut. */
static void note_beliefs(const ae_controller *c, ae_chance *chance)
{
    const ae_tree *tree = chance->tree;
    int32_t node = -1;
    for (uint32_t d = 1; d <= chance->n_levels && d <= AERIE_MAX_DRAFT; d++) {
        chance->believed[d] = 0;
        if (d > 1 && node < 0) continue;
        int32_t best = -1;
        for (uint32_t i = (uint32_t)(node + 1); i < tree->n; i++)
            if (tree->parent[i] == node && (tree->from[i] & AE_FROM_DRAFT) && (best < 0 || tree->p[i] > tree->p[best]))
                best = (int32_t)i;
        node = best;
        if (node >= 0) chance->believed[d] = (float)calibrated(c, tree, (uint32_t)node);
    }
}

void ae_controller_choose(ae_controller *c, const ae_round *r, double spent, ae_chance *chances, uint32_t n)
{
    const float floor = 0.5f * ae_controller_floor(c, r);
    uint32_t n_nodes = 0, n_keep = 0;
    if (c->options.fixed) return;
    spent /= c->drift;
    for (uint32_t t = 0; t < n; t++) {
        const ae_tree *tree = chances[t].tree;
        float reach[AERIE_MAX_DRAFT];
        note_beliefs(c, &chances[t]);
        for (uint32_t i = 0; i < tree->n; i++) {
            const int32_t parent = tree->parent[i];
            reach[i] = (float)calibrated(c, tree, i) * (parent < 0 ? 1.0f : reach[parent]);
            if (reach[i] >= floor) c->nodes[n_nodes++] = (struct ae_reached){reach[i], (uint16_t)t, (uint16_t)i};
        }
    }
    qsort(c->nodes, n_nodes, sizeof *c->nodes, by_reach);
    /* the time of the drafts is spent, whatever is verified now */
    double expected = c->worth, seconds = spent + c->plain_seconds, best = GAIN_NEEDED * expected / seconds;
    const double most_pass = c->plain_seconds + risk(c, r, spent > 0);
    c->expected = c->plain_seconds;
    c->gain = 1;
    for (uint32_t k = 0; k < n_nodes; k++) {
        /* no longer prefix can win: the pass gets no faster, and no later node is likelier */
        if (expected + (double)(n_nodes - k) * (double)c->nodes[k].reach <= best * seconds) break;
        expected += (double)c->nodes[k].reach;
        const double pass = ae_line_at(&c->pass_now, r->n_rows + k + 1.0);
        seconds = spent + pass;
        if (pass > most_pass) break; /* more than the budget allows */
        if (expected / seconds <= best) continue;
        best = expected / seconds;
        n_keep = k + 1;
        c->expected = pass;
        c->gain = best * c->plain_seconds / c->worth;
    }
    prune(c, chances, n, n_keep);
}
