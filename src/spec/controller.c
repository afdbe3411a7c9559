#include "spec/controller.h"

#include <stdlib.h>
#include <string.h>

#define STEP_GUESS 0.03   /* relative cost of one more row, until it was measured */
#define GAIN_NEEDED 1.01  /* speculate only for at least this expected gain */
#define REST_FIRST 32     /* rounds of the first rest; doubled each time speculation fails again */
#define REST_LAST 512
#define PROBE_DEPTH 2
#define N_PROBES 2        /* in a row */
#define N_TRUSTED 3       /* times seen */
#define FRESH 512         /* rounds that a time is trusted for */
#define PLAIN_EVERY 256   /* rounds between two plain ones; */
#define PLAIN_EARLY 16    /* until N_TRUSTED were seen, */
#define PLAIN_DOUBTED 8   /* and while it seems slower than a larger pass */
#define SLOW 2.0          /* times what was expected: somebody else had the cores */
#define AE_CONTROLLER_NODES (16 * AE_TREE_MAX) /* of all trees of a pass; more are not verified */

void ae_controller_init(ae_controller *c, const ae_controller_options *options)
{
    memset(c, 0, sizeof *c);
    c->options = *options;
    c->rest_length = REST_FIRST;
}

/* ---- Times -------------------------------------------------------------------------------------- */

static void add_sample(ae_samples *s, double seconds, uint32_t clock)
{
    s->seconds[s->n_seen++ % AE_SAMPLES] = (float)seconds;
    s->last = clock;
    const uint32_t n = s->n_seen < AE_SAMPLES ? s->n_seen : AE_SAMPLES;
    float sorted[AE_SAMPLES];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at && sorted[at - 1] > s->seconds[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = s->seconds[i];
    }
    s->typical = sorted[n / 4];
}

static bool is_trusted(const ae_controller *c, const ae_samples *s)
{
    return s->n_seen >= N_TRUSTED && c->clock - s->last <= FRESH;
}

static uint32_t bucket_of(uint32_t n_context)
{
    return n_context < 512 ? 0 : n_context < 2048 ? 1 : n_context < 8192 ? 2 : 3;
}

/* The next trusted number of rows from n on, downwards or upwards; 0 if there is none. */
static uint32_t trusted_below(const ae_controller *c, const ae_samples *pass, uint32_t n)
{
    while (n && !is_trusted(c, &pass[n])) n--;
    return n;
}

static uint32_t trusted_above(const ae_controller *c, const ae_samples *pass, uint32_t n)
{
    while (n < AE_T_ROWS && !is_trusted(c, &pass[n])) n++;
    return n < AE_T_ROWS ? n : 0;
}

/* T(n) where n itself is not trusted but m below it is: as the last rows went, but hoping for STEP_GUESS a row; halfway
 * between that and the line to what is trusted above, so that not all numbers on the way to a dear one must be tried. */
static double guess(const ae_controller *c, const ae_samples *pass, uint32_t n, uint32_t m)
{
    const double known = (double)pass[m].typical;
    const uint32_t below = trusted_below(c, pass, m - 1), above = trusted_above(c, pass, n);
    double step = STEP_GUESS * known;
    if (below) {
        const double seen = (known - (double)pass[below].typical) / (m - below);
        step = seen < 0 ? 0 : seen < step ? seen : step;
    }
    if (above) {
        const double line = ((double)pass[above].typical - known) / (above - m);
        if (line > step) step = 0.5 * (step + line);
    }
    return known + step * (n - m);
}

/* T(n) from the passes seen in one bucket; 0 if there are none. */
static double estimate(const ae_controller *c, const ae_samples *pass, uint32_t n)
{
    double t = (double)pass[n].typical;
    if (!is_trusted(c, &pass[n])) {
        const uint32_t m = trusted_below(c, pass, n);
        const double hope = m ? guess(c, pass, n, m) : 0;
        if (m && (!t || hope < t)) t = hope;
    }
    for (uint32_t m = n - 1; !t && m > 0; m--) t = (double)pass[m].typical * (1 + STEP_GUESS * (n - m));
    for (uint32_t m = n + 1; m < AE_T_ROWS; m++) /* no pass costs more than a larger one */
        if (pass[m].typical > 0 && (!t || (double)pass[m].typical < t)) t = (double)pass[m].typical;
    return t;
}

double ae_controller_pass_seconds(const ae_controller *c, uint32_t n_rows, uint32_t n_context)
{
    if (n_rows >= AE_T_ROWS) n_rows = AE_T_ROWS - 1;
    const uint32_t bucket = bucket_of(n_context);
    for (uint32_t distance = 0; distance < AE_T_BUCKETS; distance++) {
        double t = 0;
        if (bucket >= distance) t = estimate(c, c->pass[bucket - distance], n_rows);
        if (!t && bucket + distance < AE_T_BUCKETS) t = estimate(c, c->pass[bucket + distance], n_rows);
        if (t) return t;
    }
    return 1e-3 * (1 + STEP_GUESS * (n_rows - 1.0)); /* nothing seen yet: only ratios matter */
}

static const ae_samples *pass_of(const ae_controller *c, uint32_t n_rows, uint32_t n_context)
{
    return &c->pass[bucket_of(n_context)][n_rows < AE_T_ROWS ? n_rows : 0]; /* [0]: never seen */
}

void ae_controller_saw_pass(ae_controller *c, uint32_t n_rows, uint32_t n_context, double seconds)
{
    if (n_rows && n_rows < AE_T_ROWS && seconds > 0) add_sample(&c->pass[bucket_of(n_context)][n_rows], seconds, c->clock);
}

void ae_controller_saw_draft(ae_controller *c, uint32_t n_levels, double seconds)
{
    if (n_levels) add_sample(&c->draft_step, seconds / n_levels, c->clock);
}

/* ---- Acceptance ------------------------------------------------------------------------------------ */

static uint32_t belief_bin(float p)
{
    const int bin = (int)(p * AE_BELIEFS);
    return bin < 0 ? 0 : bin >= AE_BELIEFS ? AE_BELIEFS - 1 : (uint32_t)bin;
}

/* The drafter's own belief counts as three observations. */
static double calibrated(const ae_controller *c, float p)
{
    const uint32_t bin = belief_bin(p);
    return (c->belief_hits[bin] + 3.0 * (double)p) / (c->belief_tries[bin] + 3.0);
}

static void count(double *tries, double *hits, bool hit)
{
    if (*tries > 64) {
        *tries *= 0.75;
        *hits *= 0.75;
    }
    *tries += 1;
    *hits += hit;
}

void ae_controller_saw_verdict(ae_controller *c, const ae_tree *tree, const int32_t *path, uint32_t n_accepted)
{
    for (uint32_t i = 0; i < tree->n; i++) {
        const uint32_t depth = (uint32_t)tree->depth[i];
        const int32_t parent = depth == 1 ? -1 : depth - 2 < n_accepted ? path[depth - 2] : -2;
        if (tree->parent[i] != parent) continue; /* its parent was not accepted: nothing was learnt */
        const bool hit = depth - 1 < n_accepted && path[depth - 1] == (int32_t)i;
        count(&c->belief_tries[belief_bin(tree->p[i])], &c->belief_hits[belief_bin(tree->p[i])], hit);
    }
    /* by depth: was any node of this depth accepted, given one above was and there was one to try */
    for (uint32_t depth = 1; depth <= AE_TREE_MAX && depth <= n_accepted + 1; depth++) {
        bool tried = depth <= n_accepted;
        for (uint32_t i = 0; i < tree->n && !tried; i++)
            tried = (uint32_t)tree->depth[i] == depth && tree->parent[i] == (depth == 1 ? -1 : path[depth - 2]);
        if (tried) count(&c->depth_tries[depth], &c->depth_hits[depth], depth <= n_accepted);
    }
}

/* ---- Choices ------------------------------------------------------------------------------------------ */

static void rest(ae_controller *c)
{
    c->rest = c->rest_length;
    c->rest_length = c->rest_length * 2 < REST_LAST ? c->rest_length * 2 : REST_LAST;
}

void ae_controller_saw_round(ae_controller *c, const ae_round *round, uint32_t n_rows, uint32_t n_levels, uint32_t n_tokens,
                             double seconds)
{
    const double plain = ae_controller_pass_seconds(c, round->n_rows, round->n_context);
    const double expected = ae_controller_pass_seconds(c, n_rows, round->n_context) + n_levels * (double)c->draft_step.typical;
    if (is_trusted(c, pass_of(c, n_rows, round->n_context)) || seconds > SLOW * expected) seconds = expected;
    c->spec_tokens = 0.97 * c->spec_tokens + n_tokens;
    c->plain_tokens = 0.97 * c->plain_tokens + seconds * round->n_drawing / plain;
    if (c->options.fixed || ++c->n_rounds < 16) return;
    if (c->spec_tokens < 0.98 * c->plain_tokens) {
        rest(c);
        c->spec_tokens = c->plain_tokens = 0;
        c->n_rounds = 8; /* the next trial is shorter */
    } else if (c->n_rounds > 64) {
        c->rest_length = REST_FIRST;
    }
}

/* For drafters that cost time: the depth whose expected rate is best, by what each depth brought so far. */
static uint32_t paid_depth(const ae_controller *c, const ae_round *r, uint32_t n_drafting)
{
    double best = GAIN_NEEDED * r->n_drawing / ae_controller_pass_seconds(c, r->n_rows, r->n_context);
    double expected = r->n_drawing, reach = 1;
    const double step = (double)c->draft_step.typical;
    uint32_t depth = 0;
    for (uint32_t k = 1; k <= c->options.n_max && k <= AE_TREE_MAX; k++) {
        reach *= (c->depth_hits[k] + 0.7 * 4) / (c->depth_tries[k] + 4);
        expected += reach * n_drafting;
        const double rate = expected / (k * step + ae_controller_pass_seconds(c, r->n_rows + k * n_drafting, r->n_context));
        if (rate > best) {
            best = rate;
            depth = k;
        }
    }
    return depth;
}

/* Plain decoding is due: never seen at this number of sequences, not lately, or slower than passes that do more. */
static bool plain_is_due(const ae_controller *c, const ae_round *r)
{
    if (r->n_rows != r->n_drawing || r->n_rows >= AE_T_ROWS) return false;
    const ae_samples *plain = pass_of(c, r->n_rows, r->n_context);
    if (!plain->n_seen) return true;
    const uint32_t age = c->clock - plain->last;
    if (age >= (plain->n_seen < N_TRUSTED ? PLAIN_EARLY : PLAIN_EVERY)) return true;
    return age >= PLAIN_DOUBTED && (double)plain->typical > 1.05 * ae_controller_pass_seconds(c, r->n_rows, r->n_context);
}

uint32_t ae_controller_depth(ae_controller *c, const ae_round *r, uint32_t n_drafting)
{
    c->clock++;
    if (c->options.fixed) return c->options.n_max;
    if (c->rest) {
        c->rest--;
        return 0;
    }
    if (plain_is_due(c, r)) return 0;
    if (c->options.free_draft) return c->options.n_max;
    const uint32_t depth = paid_depth(c, r, n_drafting);
    if (depth) {
        c->n_probes = 0;
        return depth;
    }
    if (!c->n_probes) c->n_probes = N_PROBES;
    if (!--c->n_probes) rest(c);
    return PROBE_DEPTH < c->options.n_max ? PROBE_DEPTH : c->options.n_max;
}

float ae_controller_floor(const ae_controller *c, const ae_round *r)
{
    if (c->options.fixed || c->options.free_draft || !c->draft_step.n_seen) return 0;
    const double plain = ae_controller_pass_seconds(c, r->n_rows, r->n_context);
    const double row = (ae_controller_pass_seconds(c, r->n_rows + 8, r->n_context) - plain) / 8;
    const double floor = ((double)c->draft_step.typical / r->n_drawing + (row > 0 ? row : 0)) * r->n_drawing / plain;
    return floor < 0.5 ? (float)floor : 0.5f;
}

/* A node of one of several trees. */
typedef struct reached {
    double reach;
    uint32_t tree, node;
} reached;

static int by_reach(const void *a, const void *b)
{
    const reached *x = a, *y = b;
    if (x->reach != y->reach) return x->reach > y->reach ? -1 : 1;
    if (x->tree != y->tree) return x->tree < y->tree ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node; /* equals in index order: parents stay before children */
}

void ae_controller_choose(const ae_controller *c, const ae_round *r, double draft_seconds, ae_tree *const *trees, uint32_t n)
{
    reached nodes[AE_CONTROLLER_NODES];
    uint32_t n_nodes = 0;
    if (c->options.fixed) return;
    for (uint32_t t = 0; t < n; t++) {
        double reach[AE_TREE_MAX];
        for (uint32_t i = 0; i < trees[t]->n; i++) {
            const int32_t parent = trees[t]->parent[i];
            reach[i] = calibrated(c, trees[t]->p[i]) * (parent < 0 ? 1.0 : reach[parent]);
            if (n_nodes < AE_CONTROLLER_NODES) nodes[n_nodes++] = (reached){reach[i], t, i};
        }
    }
    qsort(nodes, n_nodes, sizeof *nodes, by_reach);
    const double spent = c->options.free_draft ? 0 : draft_seconds; /* whatever is verified */
    const double plain = r->n_drawing / (ae_controller_pass_seconds(c, r->n_rows, r->n_context) + spent);
    double expected = r->n_drawing, best = c->options.free_draft ? GAIN_NEEDED * plain : plain;
    double seconds = draft_seconds + ae_controller_pass_seconds(c, r->n_rows, r->n_context);
    uint32_t n_keep = 0;
    for (uint32_t k = 0; k < n_nodes; k++) {
        /* no longer prefix can win: T does not fall, and no node behind is likelier */
        if (expected + (n_nodes - k) * nodes[k].reach <= best * seconds) break;
        expected += nodes[k].reach;
        seconds = draft_seconds + ae_controller_pass_seconds(c, r->n_rows + k + 1, r->n_context);
        const double rate = expected / seconds;
        if (rate > best) {
            best = rate;
            n_keep = k + 1;
        }
    }
    for (uint32_t t = 0; t < n; t++) {
        bool keep[AE_TREE_MAX] = {false};
        uint32_t kept = 0;
        for (uint32_t k = 0; k < n_keep; k++)
            if (nodes[k].tree == t) keep[nodes[k].node] = true, kept++;
        if (kept < c->options.n_min) memset(keep, 0, sizeof keep);
        ae_tree_prune(trees[t], keep);
    }
}
