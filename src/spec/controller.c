#include "spec/controller.h"

#include <stdlib.h>
#include <string.h>

#define STEP_GUESS 0.03   /* relative cost of one more row, until it was measured */
#define GAIN_NEEDED 1.01  /* speculate only for at least this expected gain */
#define REST_FIRST 32     /* rounds of the first rest; doubled each time speculation fails again */
#define REST_LAST 512
#define PROBE_DEPTH 2
#define AE_CONTROLLER_NODES (16 * AE_TREE_MAX) /* of all trees of a pass; more are not verified */

void ae_controller_init(ae_controller *c, const ae_controller_options *options)
{
    memset(c, 0, sizeof *c);
    c->options = *options;
    c->rest_length = REST_FIRST;
}

/* ---- T(n) --------------------------------------------------------------------------------------- */

static uint32_t bucket_of(uint32_t n_context)
{
    return n_context < 512 ? 0 : n_context < 2048 ? 1 : n_context < 8192 ? 2 : 3;
}

/* From the passes seen in one bucket; 0 if there are none. A pass costs no more than any larger one seen, so a
 * slow outlier that is never tried again does no harm. */
static double estimate(const double *pass, uint32_t n)
{
    double below = 0, above = 0;
    uint32_t m;
    for (m = n; m > 0 && !pass[m]; m--) {}
    if (m) below = pass[m] * (1 + STEP_GUESS * (n - m));
    for (m = n; m < AE_T_ROWS; m++)
        if (pass[m] && (!above || pass[m] < above)) above = pass[m];
    if (!below) return above;
    return above && above < below ? above : below;
}

double ae_controller_pass_seconds(const ae_controller *c, uint32_t n_rows, uint32_t n_context)
{
    if (n_rows >= AE_T_ROWS) n_rows = AE_T_ROWS - 1;
    const uint32_t bucket = bucket_of(n_context);
    for (uint32_t distance = 0; distance < AE_T_BUCKETS; distance++) {
        double t = 0;
        if (bucket >= distance) t = estimate(c->pass[bucket - distance], n_rows);
        if (!t && bucket + distance < AE_T_BUCKETS) t = estimate(c->pass[bucket + distance], n_rows);
        if (t) return t;
    }
    return 1e-3 * (1 + STEP_GUESS * (n_rows - 1.0)); /* nothing seen yet: only ratios matter */
}

void ae_controller_saw_pass(ae_controller *c, uint32_t n_rows, uint32_t n_context, double seconds)
{
    if (!n_rows || n_rows >= AE_T_ROWS || !(seconds > 0)) return;
    double *t = &c->pass[bucket_of(n_context)][n_rows];
    uint32_t *n = &c->n_pass[bucket_of(n_context)][n_rows];
    if (*n == 0) *t = seconds;
    else if (*n < 4) *t = seconds < *t ? seconds : *t; /* first passes meet cold caches: keep the best */
    else *t += 0.1 * ((seconds < 1.5 * *t ? seconds : 1.5 * *t) - *t);
    ++*n;
}

void ae_controller_saw_draft(ae_controller *c, uint32_t n_levels, double seconds)
{
    if (!n_levels) return;
    const double step = seconds / n_levels;
    c->draft_step = c->draft_step ? c->draft_step + 0.1 * (step - c->draft_step) : step;
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

void ae_controller_saw_round(ae_controller *c, const ae_round *round, uint32_t n_tokens, double seconds)
{
    c->spec_tokens = 0.97 * c->spec_tokens + n_tokens;
    c->plain_tokens = 0.97 * c->plain_tokens +
                      seconds * round->n_drawing / ae_controller_pass_seconds(c, round->n_rows, round->n_context);
    if (c->options.fixed || ++c->n_rounds < 16) return;
    if (c->spec_tokens < 0.98 * c->plain_tokens) {
        c->rest = c->rest_length;
        c->rest_length = c->rest_length * 2 < REST_LAST ? c->rest_length * 2 : REST_LAST;
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
    uint32_t depth = 0;
    for (uint32_t k = 1; k <= c->options.n_max && k <= AE_TREE_MAX; k++) {
        reach *= (c->depth_hits[k] + 0.7 * 4) / (c->depth_tries[k] + 4);
        expected += reach * n_drafting;
        const double rate = expected / (k * c->draft_step + ae_controller_pass_seconds(c, r->n_rows + k * n_drafting, r->n_context));
        if (rate > best) {
            best = rate;
            depth = k;
        }
    }
    return depth;
}

uint32_t ae_controller_depth(ae_controller *c, const ae_round *r, uint32_t n_drafting)
{
    if (c->options.fixed) return c->options.n_max;
    if (c->rest) {
        c->rest--;
        return 0;
    }
    if (!c->n_rounds && r->n_rows < AE_T_ROWS && !c->pass[bucket_of(r->n_context)][r->n_rows] && r->n_rows == r->n_drawing)
        return 0; /* the first round is plain: everything is compared with it */
    if (c->options.free_draft) return c->options.n_max;
    const uint32_t depth = paid_depth(c, r, n_drafting);
    if (depth) return depth;
    c->rest = c->rest_length;
    c->rest_length = c->rest_length * 2 < REST_LAST ? c->rest_length * 2 : REST_LAST;
    return PROBE_DEPTH < c->options.n_max ? PROBE_DEPTH : c->options.n_max;
}

float ae_controller_floor(const ae_controller *c, const ae_round *r)
{
    if (c->options.fixed || c->options.free_draft || !c->draft_step) return 0;
    const double plain = ae_controller_pass_seconds(c, r->n_rows, r->n_context);
    const double row = (ae_controller_pass_seconds(c, r->n_rows + 8, r->n_context) - plain) / 8;
    const double floor = (c->draft_step / r->n_drawing + (row > 0 ? row : 0)) * r->n_drawing / plain;
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
    const double plain = r->n_drawing / (ae_controller_pass_seconds(c, r->n_rows, r->n_context) + (c->options.free_draft ? 0 : draft_seconds));
    double expected = r->n_drawing, best = c->options.free_draft ? GAIN_NEEDED * plain : plain;
    uint32_t n_keep = 0;
    for (uint32_t k = 0; k < n_nodes; k++) {
        expected += nodes[k].reach;
        const double rate = expected / (draft_seconds + ae_controller_pass_seconds(c, r->n_rows + k + 1, r->n_context));
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
