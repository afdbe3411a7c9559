/* controller.c - the three decisions of a pass, and the exploration budget (controller.h). cost.c estimates times, rates.c
 * estimates acceptance. */
#include "speculate/control/controller.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define GAIN_NEEDED 1.01 /* speculate only for at least this expected gain */
#define SWAY 1.5         /* standard deviations above the mean: the upper end of an estimate */
#define PROBE_SHARE 8    /* a draft that is not expected to pay is tried for one in this many sequences */
#define PROBE_LEVELS 2   /* levels of a network's first draft: two, so that it shows what the first level and a further level
                          * cost */
#define PROBE_COST 0.25  /* plain passes that a first draft of unknown cost is assumed to lose */
#define TRIAL 4          /* least number of rounds that a network drafts when it is tried although another is expected to be
                          * better */
#define IDLE_MOST 24     /* rounds without a draft after which a network is paused */
/* standard deviations below the mean at which a draft must still pay; otherwise the budget pays for it */
#define DOUBT 1.0
#define PAUSE 32         /* rounds before a network that could not draft is tried again */
#define YOUNG 3          /* drafts of a network before its expected gain is trusted */
#define RISK_LEAST 0.2   /* plain passes whose time any pass may risk */
#define RISK_WON 8       /* rounds whose expected gain a pass may risk, if its drafts pay even at the lower end of the
                          * estimates */
#define SEQUENCE_TRIES 32 /* when a sequence's own rate counts more tries, older ones lose a quarter of their weight */
#define MOST_GROWTH 2    /* no pass has more than this many times the rows of the largest measured one */
#define ODD_TIME 2.5     /* a pass whose time differs from the expected one by this factor was disturbed */
#define NGRAM_ROUNDS 32  /* rounds that ngram_gain averages over */
#define NGRAM_PAUSE 8    /* rounds before n-grams are asked again after a failure; doubled after each further one */
#define NGRAM_PAUSE_MOST 64
#define NGRAM_TRIES 8     /* weight, in rounds, of a try after a pause, so that n-grams that pay are soon trusted */

struct ae_reached {
    float reach;
    uint16_t tree, node;
};

aerie_status ae_controller_init(ae_controller *c, const ae_controller_options *options, aerie_error *error)
{
    memset(c, 0, sizeof *c);
    c->options = *options;
    if (!c->options.n_networks) c->options.n_networks = 1;
    c->net = c->networks;
    c->budget = AE_BUDGET_FIRST;
    c->gain = 1;
    c->ngram_pause = NGRAM_PAUSE;
    ae_cost_init(&c->cost);
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

static uint32_t most_levels(const ae_controller *c)
{
    return c->options.n_max < AERIE_MAX_DRAFT ? c->options.n_max : AERIE_MAX_DRAFT;
}

/* ---- Begin ---------------------------------------------------------------------------------------------- */

/* Expected gain over plain decoding if the network drafts chains of the best depth for all sequences, as a factor. */
static double expected_gain(const ae_controller *c, const ae_network *net, double sway)
{
    const uint32_t most = most_levels(c);
    const double n = c->n_drawing, plain = c->cost.plain;
    double rate[AERIE_MAX_DRAFT + 1], reach = 1, sum = 0, best = 0;
    const ae_level_cost cost = ae_network_cost_at(&net->cost, n);
    ae_rates_by_depth(&net->rates, most, sway, rate);
    for (uint32_t k = 1; k <= most; k++) {
        sum += reach *= rate[k];
        const double draft = ae_level_cost_of(cost, k);
        const double pass = ae_cost_pass(&c->cost, c->n_rows + n * k, sway > 0);
        const double seconds = c->cost.extra * (draft + pass) + net->upkeep;
        const double gain = (1 + sum) * plain / seconds;
        if (gain > best) best = gain;
    }
    return best;
}

/* Ends a pause of the network. Returns whether it can draft now. */
static bool is_ready(ae_controller *c, ae_network *net)
{
    if (net->paused) {
        net->paused = false;
        net->n_warming = c->options.n_warm;
        net->n_idle = 0;
    }
    return !net->n_warming;
}

/* Returns whether the network has drafted too little to be trusted. */
static bool is_young(const ae_controller *c, const ae_network *net)
{
    return net->n_tried < YOUNG + 2 * (c->n_drawing ? c->n_drawing - 1 : 0);
}

/* Returns the cost of trying the network again: getting ready, and one draft. */
static double trial_cost(const ae_controller *c, const ae_network *net)
{
    const double warm = net->paused ? c->options.n_warm * net->upkeep / c->cost.plain : 0;
    const bool known = ae_network_cost_known(&net->cost);
    const double draft = known ? ae_network_cost_of(&net->cost, 1, 2) / c->cost.plain : PROBE_COST;
    return warm + (draft > PROBE_COST ? draft : PROBE_COST);
}

/* Chooses the network that may draft: the best of those that have drafted enough to be trusted, or one that may be better. */
static void choose_network(ae_controller *c)
{
    ae_network *best = NULL, *other = NULL, *const end = c->networks + c->options.n_networks;
    for (ae_network *n = c->networks; n < end; n++) {
        ae_network_cost_begin(&n->cost, c->cost.clock);
        const bool known = ae_network_cost_known(&n->cost) && c->n_drawing;
        n->gain = known ? expected_gain(c, n, 0) : 1;
        n->most = known ? expected_gain(c, n, SWAY) : HUGE_VAL;
        if (known && !is_young(c, n) && (!best || n->gain > best->gain)) best = n;
    }
    const double sure = best && best->gain > 1 ? best->gain : 1;
    c->sure_gain = sure;
    if (!c->n_trial || c->net == best || c->net->most <= sure) {
        c->n_trial = 0;
        for (ae_network *n = c->networks; n < end; n++) {
            if (n == best || n->n_pause || n->most <= GAIN_NEEDED * sure) continue;
            if (n->gain <= GAIN_NEEDED * sure && trial_cost(c, n) > c->budget) continue; /* no reason to wait for it */
            if (!other || n->most > other->most) other = n;
        }
        if (other && best && (c->plain || trial_cost(c, other) > c->budget || !is_ready(c, other))) other = NULL;
        c->net = other ? other : best ? best : c->networks;
        if (other && best) c->n_trial = TRIAL;
    }
    if (c->net != best) c->otherwise = sure;
}

/* Returns whether to ask for n-gram drafts: they are expected to pay, or it is time to find out. */
static bool asks_ngrams(ae_controller *c)
{
    const double cost = ae_cost_ngrams(&c->cost, c->n_drawing) / c->cost.plain;
    if (!c->options.ngrams || c->plain) return false;
    if (c->ngram_gain >= 0) return true;
    return ++c->ngram_idle >= c->ngram_pause && c->budget > cost;
}

void ae_controller_new_text(ae_controller *c)
{
    c->ngram_idle = c->ngram_pause;
}

bool ae_controller_begin(ae_controller *c, const ae_round *r)
{
    ae_cost_begin(&c->cost, r);
    c->n_rows = r->n_rows, c->n_drawing = r->n_drawing;
    c->expected = c->took[0] = c->took[1] = c->worth[0] = c->worth[1] = c->sway = c->spent = c->measured = 0;
    c->exploring = c->sure = false;
    c->otherwise = 1;
    c->n_asked = c->n_levels = 0;
    if (c->options.fixed) return c->options.ngrams;
    c->plain = ae_cost_plain_is_due(&c->cost, r, c->gain);
    if (c->plain) ae_cost_saw_plain(&c->cost);
    choose_network(c);
    return asks_ngrams(c);
}

void ae_controller_saw_ngrams(ae_controller *c, uint32_t n, double seconds)
{
    c->spent += seconds;
    c->took[AE_KIND_NGRAM] = ae_cost_saw_ngrams(&c->cost, n, seconds);
}

uint32_t ae_controller_network(const ae_controller *c, uint32_t *active)
{
    *active = 0;
    for (uint32_t i = 0; i < c->options.n_networks; i++)
        if (c->options.fixed || !c->networks[i].paused) *active |= 1u << i;
    return (uint32_t)(c->net - c->networks);
}

bool ae_controller_is_paused(const ae_controller *c)
{
    for (uint32_t i = 0; i < c->options.n_networks; i++)
        if (c->options.fixed || !c->networks[i].paused) return false;
    return true;
}

/* ---- Plan -------------------------------------------------------------------------------------------------- */

static bool is_by_ngram(const ae_tree *tree, uint32_t node)
{
    return tree->from[node] & AE_FROM_NGRAM;
}

/* Probability that the node is accepted if its parent was. */
static double calibrated(const ae_controller *c, const ae_tree *tree, uint32_t node)
{
    const bool by_ngram = is_by_ngram(tree, node);
    return ae_rates_of_node(by_ngram ? &c->ngrams : &c->net->rates, tree->p[node], by_ngram ? 0 : c->sway);
}

/* Estimates by how much sequences differ in acceptance beyond chance: the variance of their true rates, from the observed ones.
 * The more they differ, the more the estimate for one sequence follows its own rate; otherwise it follows the common rate.
 * Without this, sequences that were lucky would seem worth a draft. */
static void compare_sequences(ae_controller *c, const ae_chance *chances, uint32_t n)
{
    double rate[2], sum = 0, chance = 0, m = 0;
    ae_rates_by_depth(&c->net->rates, 1, 0, rate);
    c->usual = rate[1];
    for (uint32_t i = 0; i < n; i++) {
        const ae_acceptance *a = chances[i].acceptance;
        if (a->tries < 2) continue;
        const double off = (double)(a->hits / a->tries) - c->usual;
        sum += off * off;
        chance += c->usual * (1 - c->usual) / (double)a->tries;
        m++;
    }
    c->spread = m > 1 && sum > (1 + 2 * sqrt(2 / m)) * chance ? (sum - chance) / m : 0;
}

/* Returns the acceptance of this sequence's drafts relative to others. */
static double sequence_factor(const ae_controller *c, const ae_acceptance *a)
{
    if (c->spread <= 0) return 1;
    const double tries = c->usual * (1 - c->usual) / c->spread; /* the number of tries that the common rate counts as */
    return ((double)a->hits + tries * c->usual) / ((double)a->tries + tries) / c->usual;
}

/* Estimates how many tokens 1 to `most` levels of the network add to the best n-gram chain, where either may be right; adds
 * them to sum [most + 1]. Returns the tokens that the chain alone is expected to bring. */
static double promise(const ae_controller *c, const ae_chance *chance, const double *rate, uint32_t most, double *sum)
{
    const ae_tree *tree = chance->tree;
    const double factor = sequence_factor(c, chance->acceptance);
    double theirs[AERIE_MAX_DRAFT + 2], after = 0, both = 1, with = 0, by_ngram = 0, reach = 1;
    uint32_t n_theirs = 0;
    for (int32_t node = -1; n_theirs < chance->max_depth && (node = ae_tree_best_child(tree, node)) >= 0;)
        by_ngram += reach *= theirs[++n_theirs] = calibrated(c, tree, (uint32_t)node);
    double rest[AERIE_MAX_DRAFT + 2]; /* tokens that the chain brings after each depth, up to its own */
    rest[n_theirs] = 0;
    for (uint32_t d = n_theirs; d >= 1; d--) rest[d - 1] = after = theirs[d] * (1 + after);
    for (uint32_t d = 1; d <= most; d++) {
        if (d <= chance->max_depth) {
            double own = rate[d] * factor;
            if (own > 0.98) own = 0.98;
            with += both *= 1 - (1 - own) * (1 - (d <= n_theirs ? theirs[d] : 0));
        }
        sum[d] += with + both * rest[d < n_theirs ? d : n_theirs] - by_ngram;
    }
    return by_ngram;
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
    c->n_asked = n;
    c->n_levels = n_levels;
}

/* Seconds beyond a plain pass that may be lost if nothing is accepted. With many sequences, a large tree for each can take as
 * long as several plain passes. So the limit is twice the budget. */
static double risk(const ae_controller *c)
{
    if (c->n_drawing == 1) return HUGE_VAL;
    return 2 * (c->budget > RISK_LEAST ? c->budget : RISK_LEAST) * c->cost.plain;
}

/* The same for drafts that pay even at the lower end of the estimates: they may also risk what they are about to gain. */
static double risk_sure(const ae_controller *c)
{
    const double least = risk(c), won = RISK_WON * (c->net->gain - 1) * c->cost.plain;
    return least > won ? least : won;
}

/* Returns the largest number of rows for which the measured passes allow an estimate. */
static double rows_known(const ae_controller *c)
{
    const ae_line *line = &c->cost.now;
    return MOST_GROWTH * (double)line->size[line->n - 1];
}

/* An option of the plan. */
typedef struct ae_option {
    uint32_t n, n_levels; /* n: number of sequences, taken from those with most to gain; 0: no draft */
    double seconds, tokens; /* the time that the option takes, and the tokens that it is expected to add */
} ae_option;

/* Finds the option with the best rate, (baseline + expected accepted tokens) over (time of n-gram drafts, draft and pass),
 * among those for up to n_most sequences. base: the baseline with n-grams. n_rows: rows with their nodes. most_lost: seconds
 * that the option may take beyond those of n-grams alone. */
static ae_option best_option(ae_controller *c, uint32_t n_most, double base, double n_rows, double sway, double most_lost)
{
    const uint32_t most = most_levels(c);
    const double spent = c->took[AE_KIND_NGRAM], most_rows = rows_known(c), bare = ae_cost_pass(&c->cost, n_rows, false);
    const double without = spent + bare;
    double rate[AERIE_MAX_DRAFT + 1], sum[AERIE_MAX_DRAFT + 1] = {0};
    double best = GAIN_NEEDED * base / (without - (c->net->upkeep < 0.5 * without ? c->net->upkeep : 0.5 * without));
    ae_option found = {0};
    ae_rates_by_depth(&c->net->rates, most, sway, rate);
    for (uint32_t m = 1, next = 1; m <= n_most; m++) {
        promise(c, c->order[m - 1], rate, most, sum);
        if (m < next && m < n_most) continue;
        next = m + 1 + m / 8;
        const ae_level_cost cost = ae_network_cost_at(&c->net->cost, m);
        for (uint32_t k = 1; k <= most; k++) {
            const double draft = ae_level_cost_of(cost, k);
            const double pass = ae_cost_pass(&c->cost, n_rows + (double)m * k, sway > 0);
            const double seconds = spent + c->cost.extra * (draft + pass);
            if ((base + sum[k]) / seconds <= best || n_rows + m * k > most_rows) continue;
            const double sure = sway > 0 ? ae_cost_pass(&c->cost, n_rows + (double)m * k, false) : pass;
            if (draft + 0.5 * (sure + pass) - bare > most_lost) continue;
            best = (base + sum[k]) / seconds;
            found = (ae_option){m, k, seconds, sum[k]};
        }
    }
    return found;
}

/* Returns the expected loss of the option against the alternative, in plain passes. */
static double expected_loss(const ae_controller *c, const ae_option *o, double n_rows, double base, double sway)
{
    double rate[AERIE_MAX_DRAFT + 1], sum[AERIE_MAX_DRAFT + 1] = {0};
    ae_rates_by_depth(&c->net->rates, o->n_levels, sway, rate);
    for (uint32_t i = 0; i < o->n; i++) promise(c, c->order[i], rate, o->n_levels, sum);
    const double draft = ae_network_cost_of(&c->net->cost, o->n, o->n_levels);
    const double seconds = c->cost.extra * (draft + ae_cost_pass(&c->cost, n_rows + (double)o->n * o->n_levels, false));
    return seconds / c->cost.plain - (base + sum[o->n_levels]) / (c->cost.worth * c->otherwise);
}

/* Ranks the n-gram drafts of n sequences. Returns the tokens expected of them, and how many nodes pay. Sorts the sequences by
 * what the network would add. */
static double rank(ae_controller *c, const ae_round *r, ae_chance *chances, uint32_t n, uint32_t *n_by_ngram)
{
    const uint32_t most = most_levels(c);
    const float floor = ae_controller_floor(c, r);
    double rate[AERIE_MAX_DRAFT + 1], by_ngram = 0;
    ae_rates_by_depth(&c->net->rates, most, 0, rate);
    compare_sequences(c, chances, n);
    *n_by_ngram = 0;
    for (uint32_t i = 0; i < n; i++) {
        double sum[AERIE_MAX_DRAFT + 1] = {0};
        float reach[AERIE_MAX_DRAFT];
        const ae_tree *tree = chances[i].tree;
        by_ngram += promise(c, &chances[i], rate, most, sum);
        chances[i].gain = (float)sum[most];
        for (uint32_t j = 0; j < tree->n; j++) {
            reach[j] = (float)calibrated(c, tree, j) * (tree->parent[j] < 0 ? 1.0f : reach[tree->parent[j]]);
            *n_by_ngram += reach[j] > floor;
        }
    }
    qsort(c->order, n, sizeof(struct ae_chance *), by_gain);
    return by_ngram;
}

bool ae_controller_plan(ae_controller *c, const ae_round *r, ae_chance *chances, uint32_t n)
{
    uint32_t n_by_ngram;
    for (uint32_t i = 0; i < n; i++) {
        chances[i].n_levels = 0;
        c->order[i] = &chances[i];
    }
    if (!c->options.drafts || !n) return false;
    if (c->options.fixed) {
        ask(c, n, most_levels(c));
        return true;
    }
    const uint32_t n_probe = 1 + (n - 1) / PROBE_SHARE;
    if (c->plain) return false;
    const double base = c->cost.worth + rank(c, r, chances, n, &n_by_ngram), n_rows = r->n_rows + n_by_ngram;
    if (!ae_network_cost_known(&c->net->cost)) {
        if (trial_cost(c, c->net) > c->budget || !is_ready(c, c->net)) return false;
        ask(c, n_probe, PROBE_LEVELS < most_levels(c) ? PROBE_LEVELS : most_levels(c));
        c->sway = SWAY;
        c->exploring = true;
        return true;
    }
    const bool young = is_young(c, c->net), trial = c->n_trial > 0;
    if (trial) c->n_trial--;
    const double most_tried = c->budget * c->cost.plain, most_lost = risk(c);
    ae_option o = best_option(c, n, base, n_rows, 0, young && most_tried < most_lost ? most_tried : risk_sure(c));
    c->sure = o.n && !young && !trial && expected_loss(c, &o, n_rows, base, -DOUBT) <= 0;
    if (!c->sure) {
        if (!young) o = best_option(c, n, base, n_rows, 0, most_lost);
        const double warm = c->net->paused ? c->options.n_warm * c->net->upkeep / c->cost.plain : 0;
        if (!o.n) o = best_option(c, n, base, n_rows, c->sway = SWAY, most_tried);
        const double loss = o.n ? expected_loss(c, &o, n_rows, base, 0) : 0;
        if (!o.n || (loss > 0 ? loss : 0) + warm > c->budget) {
            c->n_trial = 0;
            c->net->n_pause = PAUSE;
            return false;
        }
        c->exploring = true;
    }
    if (!is_ready(c, c->net)) return false;
    ask(c, o.n, o.n_levels);
    return true;
}

void ae_controller_saw_draft(ae_controller *c, uint32_t n, uint32_t n_levels, double first, double others)
{
    const double drift = c->cost.drift;
    c->spent += first + others;
    c->took[AE_KIND_NETWORK] =
        ae_network_cost_saw(&c->net->cost, c->cost.clock, n, n_levels, first / drift, others / drift);
}

/* ---- Choose ------------------------------------------------------------------------------------------------ */

float ae_controller_floor(const ae_controller *c, const ae_round *r)
{
    if (c->options.fixed) return 0;
    const double row = (ae_cost_pass(&c->cost, r->n_rows + 8.0, false) - c->cost.plain) / 8;
    const double floor = 0.5 * row * c->cost.worth / c->cost.plain; /* half, since larger passes may have cheaper rows */
    return floor < 0.5 ? (float)floor : 0.5f;
}

static int by_reach(const void *a, const void *b)
{
    const struct ae_reached *x = a, *y = b;
    if (x->reach != y->reach) return x->reach > y->reach ? -1 : 1;
    if (x->tree != y->tree) return x->tree < y->tree ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node; /* nodes with equal probability stay in order of index, so parents come
                                                        * before children */
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

/* Stores the estimated probabilities of the best drafted chain before it is cut. */
static void note_expected(const ae_controller *c, ae_chance *chance)
{
    const ae_tree *tree = chance->tree;
    int32_t node = -1;
    for (uint32_t d = 1; d <= chance->n_levels && d <= AERIE_MAX_DRAFT; d++) {
        chance->expected[d] = 0;
        if (d > 1 && node < 0) continue;
        int32_t best = -1;
        for (uint32_t i = (uint32_t)(node + 1); i < tree->n; i++)
            if (tree->parent[i] == node && (tree->from[i] & AE_FROM_NETWORK) && (best < 0 || tree->p[i] > tree->p[best]))
                best = (int32_t)i;
        node = best;
        if (node >= 0) chance->expected[d] = (float)ae_rates_of_node(&c->net->rates, tree->p[node], 0);
    }
}

void ae_controller_choose(ae_controller *c, const ae_round *r, double spent, ae_chance *chances, uint32_t n)
{
    const float floor = 0.5f * ae_controller_floor(c, r);
    const double plain = c->cost.plain;
    uint32_t n_nodes = 0, n_keep = 0;
    if (c->options.fixed) return;
    spent /= c->cost.drift;
    for (uint32_t t = 0; t < n; t++) {
        const ae_tree *tree = chances[t].tree;
        float reach[AERIE_MAX_DRAFT];
        note_expected(c, &chances[t]);
        for (uint32_t i = 0; i < tree->n; i++) {
            const int32_t parent = tree->parent[i];
            reach[i] = (float)calibrated(c, tree, i) * (parent < 0 ? 1.0f : reach[parent]);
            if (reach[i] >= floor) c->nodes[n_nodes++] = (struct ae_reached){reach[i], (uint16_t)t, (uint16_t)i};
        }
    }
    qsort(c->nodes, n_nodes, sizeof *c->nodes, by_reach);
    /* the time of the drafts is spent, whatever is verified now */
    double expected = c->cost.worth, seconds = spent + plain, best = GAIN_NEEDED * expected / seconds;
    const double most_pass = plain + (c->sure ? risk_sure(c) : risk(c)), most_rows = rows_known(c);
    c->expected = plain;
    c->tokens = c->cost.worth;
    c->gain = 1;
    for (uint32_t k = 0; k < n_nodes; k++) {
        /* no longer prefix can win: the pass gets no faster, and no later node is likelier */
        if (expected + (double)(n_nodes - k) * (double)c->nodes[k].reach <= best * seconds) break;
        expected += (double)c->nodes[k].reach;
        const double pass = ae_cost_pass(&c->cost, r->n_rows + k + 1.0, c->sway > 0);
        seconds = spent + pass;
        if (pass > most_pass || r->n_rows + k + 1.0 > most_rows) break; /* more than may be risked */
        if (expected / seconds <= best) continue;
        best = expected / seconds;
        n_keep = k + 1;
        c->expected = pass;
        c->tokens = expected;
        c->gain = best * plain / c->cost.worth;
    }
    prune(c, chances, n, n_keep);
}

/* ---- Outcome -------------------------------------------------------------------------------------------- */

void ae_controller_saw_pass(ae_controller *c, const ae_round *r, uint32_t n_rows, double seconds)
{
    c->measured = seconds;
    const double took = ae_cost_saw_pass(&c->cost, r, n_rows, seconds), times = c->expected > 0 ? took / c->expected : 1;
    /* a time that other programs disturbed does not count against the drafts */
    c->pass = times < ODD_TIME && times > 1 / ODD_TIME ? took : c->expected;
}

/* Returns whether a child of `parent` was drafted and verified. */
static bool was_tried(const ae_tree *tree, int32_t parent)
{
    for (uint32_t i = (uint32_t)(parent + 1); i < tree->n; i++)
        if (tree->parent[i] == parent && (tree->from[i] & AE_FROM_NETWORK)) return true;
    return false;
}

/* Counts the verdict on each level. A level that ran but had no node worth verifying counts with its estimated probability. */
static void count_levels(ae_controller *c, const ae_chance *chance, const int32_t *path, uint32_t n_accepted)
{
    const ae_tree *tree = chance->tree;
    for (uint32_t depth = 1; depth <= chance->n_levels && depth <= n_accepted + 1; depth++) {
        double hit = 0;
        if (depth <= n_accepted) hit = (tree->from[path[depth - 1]] & AE_FROM_NETWORK) != 0;
        else if (!was_tried(tree, depth == 1 ? -1 : path[depth - 2])) hit = (double)chance->expected[depth];
        ae_rates_saw_depth(&c->net->rates, depth, hit, c->n_asked);
        if (depth > 1) continue;
        c->net->n_tried++;
        ae_acceptance *a = chance->acceptance;
        if (a->tries > SEQUENCE_TRIES) a->tries *= 0.75f, a->hits *= 0.75f;
        a->tries += 1;
        a->hits += (float)hit;
    }
}

void ae_controller_saw_verdict(ae_controller *c, const ae_chance *chance, const int32_t *path, uint32_t n_accepted)
{
    const ae_tree *tree = chance->tree;
    double reach[AERIE_MAX_DRAFT];
    for (uint32_t i = 0; i < tree->n; i++) {
        const uint32_t depth = (uint32_t)tree->depth[i];
        const int32_t parent = depth == 1 ? -1 : depth - 2 < n_accepted ? path[depth - 2] : -2;
        if (tree->parent[i] != parent) continue; /* its parent was not accepted, so nothing was learnt */
        const bool hit = depth - 1 < n_accepted && path[depth - 1] == (int32_t)i;
        const bool by_ngram = is_by_ngram(tree, i);
        ae_rates_saw_node(by_ngram ? &c->ngrams : &c->net->rates, tree->p[i], hit,
                          by_ngram ? c->n_drawing : c->n_asked);
    }
    count_levels(c, chance, path, n_accepted);
    for (uint32_t i = 0; i < tree->n; i++) {
        const bool by_ngram = is_by_ngram(tree, i);
        const double up = tree->parent[i] < 0 ? 1 : reach[tree->parent[i]];
        reach[i] = up * ae_rates_of_node(by_ngram ? &c->ngrams : &c->net->rates, tree->p[i], 0);
        c->worth[by_ngram ? AE_KIND_NGRAM : AE_KIND_NETWORK] += reach[i];
    }
}

/* Called each round: drops the state of networks that have not been used for long. */
static void pass_time(ae_controller *c, const ae_result *result)
{
    for (uint32_t i = 0; i < c->options.n_networks; i++) {
        ae_network *net = &c->networks[i];
        const bool used = net == c->net && result->used[AE_KIND_NETWORK];
        net->n_idle = used ? 0 : net->n_idle + 1;
        ae_rates_age(&net->rates, used ? c->n_levels : 0);
        if (net->n_pause) net->n_pause--;
        if (net->rates.depth[1].tries < 1) net->n_tried = 0;
        if (net->n_warming) net->n_warming--;
        else if (net->n_idle > IDLE_MOST) net->paused = true;
    }
}

void ae_controller_saw_round(ae_controller *c, const ae_round *r, const ae_result *result)
{
    if (c->options.fixed || r->prompts || !r->n_drawing || !c->cost.known) return;
    const double plain = c->cost.plain, upkeep = result->upkeep / c->cost.drift, n = r->n_drawing;
    const double more = c->pass > plain ? c->pass / plain - 1 : 0, n_nodes = result->n_nodes[0] + result->n_nodes[1];
    double gain[2], paid = 1;
    for (int k = 0; k < 2; k++) {
        gain[k] = result->used[k] && n_nodes ? -c->took[k] / plain - more * result->n_nodes[k] / n_nodes : -c->took[k] / plain;
        paid -= gain[k];
    }
    const double parts = c->measured + c->spent;
    if (result->seconds > 0 && parts > 0)
        ae_cost_saw_whole(&c->cost, result->used[AE_KIND_NETWORK], (result->seconds - result->upkeep - result->start) / parts);
    if (result->used[AE_KIND_NETWORK]) paid *= c->cost.extra;
    if (c->exploring) c->budget -= paid - (1 + (result->n_accepted[0] + result->n_accepted[1]) / n) / c->otherwise;
    if (!result->used[AE_KIND_NETWORK]) c->budget -= upkeep / plain;
    c->budget += (c->sure_gain > GAIN_NEEDED ? AE_BUDGET_SHARE_BEST : AE_BUDGET_SHARE) * paid;
    const double most = 1.25 * trial_cost(c, c->net); /* enough to save up for an expensive trial */
    if (c->budget > AE_BUDGET_MOST && c->budget > most) c->budget = most > AE_BUDGET_MOST ? most : AE_BUDGET_MOST;
    if (c->budget < -AE_BUDGET_DEBT) c->budget = -AE_BUDGET_DEBT;
    if (!c->net->paused) c->net->upkeep += 0.1 * (upkeep - c->net->upkeep);
    if (result->used[AE_KIND_NGRAM]) {
        if (c->ngram_gain < 0) c->budget += gain[AE_KIND_NGRAM];
        const double gained = c->worth[AE_KIND_NGRAM] / n + gain[AE_KIND_NGRAM];
        c->ngram_gain += (gained - c->ngram_gain) / (c->ngram_gain < 0 && gained > 0 ? NGRAM_TRIES : NGRAM_ROUNDS);
        if (c->ngram_gain >= 0) c->ngram_pause = NGRAM_PAUSE;
        else if (c->ngram_pause < NGRAM_PAUSE_MOST) c->ngram_pause *= 2;
        /* A try after a pause is short, since the times of few sizes of passes are known, and may not pay by itself. If all of
         * it was right, the text is known, and the next try comes at once. */
        const uint32_t n_tried = result->n_nodes[AE_KIND_NGRAM];
        const bool whole = n_tried && result->n_accepted[AE_KIND_NGRAM] == n_tried;
        c->ngram_idle = whole ? c->ngram_pause : 0;
    }
    pass_time(c, result);
}
