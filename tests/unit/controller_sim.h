/* controller_sim.h - simulated machines for the controller: what a choice earns is known exactly.
 *
 * A machine has T(n), drafters with a cost and a rate of acceptance, n-gram drafts, and load that makes some passes slow. Each
 * round asks the controller as the speculation loop does, with times that include the load. The score is free of load and
 * chance: it uses the times of the idle machine and the tokens expected of the verified chains. So only decisions are judged,
 * and 1 is plain decoding. The controller itself sees times with load and random verdicts.
 *
 * Owns a few static arrays; one simulation at a time.
 */
#ifndef AE_TESTS_CONTROLLER_SIM_H
#define AE_TESTS_CONTROLLER_SIM_H

#include <math.h>
#include <string.h>

#include "base/math/rng.h"
#include "speculate/control/controller.h"

#define SIM_SEQS 256
#define SIM_DEPTH 16
#define SIM_ROUNDS 4096

typedef enum sim_kind { SIM_FLAT, SIM_STEEP, SIM_STEPPED } sim_kind;

typedef struct sim_drafter {
    bool one_pass;      /* a draft costs the same whatever its depth */
    double cost;        /* of a draft or of a level for one sequence, in T(1) */
    double cost_seq;    /* the same for each further sequence, as a share of cost */
    double acceptance;  /* of a token whose parent was accepted */
    double later;       /* acceptance from round `change` on; 0: no change */
} sim_drafter;

typedef struct sim_machine {
    sim_kind kind;
    uint32_t n_seqs, n_max;
    sim_drafter drafters[3];
    uint32_t n_drafters;
    double ngram_cost, ngram_share, ngram_acceptance; /* per sequence (0: no n-grams); share of rounds with an n-gram draft */
    uint32_t change;            /* round in which acceptance changes */
    double noise;               /* share of passes and drafts that take 2 to 8 times as long; the others vary by 4 % */
    uint32_t slow_from, slow_to; /* rounds in which everything takes 2.5 times as long */
    uint64_t seed;
} sim_machine;

typedef struct sim_result {
    double tokens[SIM_ROUNDS + 1], seconds[SIM_ROUNDS + 1]; /* sums over the rounds before */
    uint32_t n;
} sim_result;

typedef struct sim_state {
    ae_controller c;
    ae_acceptance acceptance[SIM_SEQS];
    ae_tree tree[SIM_SEQS];
    ae_chance chance[SIM_SEQS];
    uint64_t n_random;
    uint64_t seed;
} sim_state;

static sim_state sim;

static double sim_random(void)
{
    uint32_t out[4];
    ae_philox(sim.seed, sim.n_random++, 0, out);
    return out[0] / 4294967296.0;
}

static double sim_pass(sim_kind kind, double n)
{
    if (kind == SIM_FLAT) return 1 + 0.01 * (n - 1);
    if (kind == SIM_STEEP) return 1 + 0.15 * (n - 1);
    return 1 + 0.4 * (ceil(n / 8) - 1); /* rows cost in groups of eight */
}

static double sim_draft_cost(const sim_drafter *d, uint32_t n, uint32_t depth)
{
    return d->cost * (1 + d->cost_seq * (n - 1.0)) * (d->one_pass ? 1 : depth);
}

static double sim_acceptance(const sim_machine *m, const sim_drafter *d, uint32_t round)
{
    return d->later > 0 && round >= m->change ? d->later : d->acceptance;
}

/* The speed of the best fixed depth of one drafter for all sequences, relative to plain decoding; n-grams are left out. */
static double sim_best_fixed(const sim_machine *m, const sim_drafter *d, uint32_t round)
{
    double best = 1;
    for (uint32_t k = 1; k <= m->n_max; k++) {
        double tokens = 1, reach = 1;
        for (uint32_t i = 0; i < k; i++) tokens += reach *= sim_acceptance(m, d, round);
        const double seconds = sim_pass(m->kind, m->n_seqs * (k + 1.0)) + sim_draft_cost(d, m->n_seqs, k);
        const double gain = tokens * sim_pass(m->kind, m->n_seqs) / seconds;
        if (gain > best) best = gain;
    }
    return best;
}

static double sim_best(const sim_machine *m, uint32_t round)
{
    double best = 1;
    for (uint32_t i = 0; i < m->n_drafters; i++) {
        const double gain = sim_best_fixed(m, &m->drafters[i], round);
        if (gain > best) best = gain;
    }
    return best;
}

static double sim_load(const sim_machine *m, uint32_t round)
{
    const double slow = round >= m->slow_from && round < m->slow_to ? 2.5 : 1;
    if (m->noise <= 0) return slow;
    const double jitter = 1 + 0.04 * sim_random();
    return slow * (sim_random() < m->noise ? 2 + 6 * sim_random() : jitter);
}

static void sim_grow(ae_tree *tree, uint32_t depth, float p, uint8_t from)
{
    for (uint32_t d = 0; d < depth; d++) {
        const int32_t node = ae_tree_add(tree, (int32_t)d - 1, (int32_t)d, p);
        if (node >= 0) tree->from[node] = from;
    }
}

/* The network's drafts for the sequences that the plan asks for. Returns the idle machine's seconds; *seen: those with load. */
static double sim_draft(const sim_machine *m, const sim_drafter *d, uint32_t round, double *seen)
{
    uint32_t n = 0, deepest = 0;
    for (uint32_t i = 0; i < m->n_seqs; i++) {
        ae_chance *chance = &sim.chance[i];
        if (!chance->n_levels) continue;
        n++;
        if (chance->n_levels > deepest) deepest = chance->n_levels;
        if (!sim.tree[i].n) sim_grow(&sim.tree[i], chance->n_levels, 0.7f, AE_FROM_NETWORK);
    }
    const double seconds = sim_draft_cost(d, n, deepest), load = sim_load(m, round);
    const double first = d->one_pass ? seconds : seconds / deepest;
    *seen = seconds * load;
    ae_controller_saw_draft(&sim.c, n, deepest, first * load, (seconds - first) * load);
    return seconds;
}

/* Draws the verdict on a sequence's chain. Returns the tokens expected of it. */
static double sim_walk(const sim_machine *m, const sim_drafter *d, uint32_t round, uint32_t i, ae_result *result)
{
    const ae_tree *tree = &sim.tree[i];
    int32_t path[AERIE_MAX_DRAFT];
    uint32_t n_path = 0;
    bool alive = true;
    double tokens = 1, reach = 1;
    for (uint32_t k = 0; k < tree->n; k++) {
        const int kind = tree->from[k] & AE_FROM_NGRAM ? AE_KIND_NGRAM : AE_KIND_NETWORK;
        const double p = kind == AE_KIND_NGRAM ? m->ngram_acceptance : sim_acceptance(m, d, round);
        tokens += reach *= p;
        result->n_nodes[kind]++;
        if (!alive || sim_random() >= p) {
            alive = false;
            continue;
        }
        result->n_accepted[kind]++;
        path[n_path++] = (int32_t)k;
    }
    ae_controller_saw_verdict(&sim.c, &sim.chance[i], path, n_path);
    return tokens;
}

static void sim_round(const sim_machine *m, uint32_t round, sim_result *out)
{
    const ae_round r = {m->n_seqs, m->n_seqs, 100, false};
    ae_result result = {0};
    double seconds = 0, spent = 0, tokens = 0;
    uint32_t active, n_rows = m->n_seqs;
    const bool wanted = ae_controller_begin(&sim.c, &r) && m->ngram_cost > 0;
    const sim_drafter *d = &m->drafters[ae_controller_network(&sim.c, &active)];
    for (uint32_t i = 0; i < m->n_seqs; i++) {
        sim.tree[i].n = 0;
        sim.chance[i] = (ae_chance){.acceptance = &sim.acceptance[i], .tree = &sim.tree[i], .max_depth = m->n_max};
        if (wanted && sim_random() < m->ngram_share)
            sim_grow(&sim.tree[i], m->n_max, (float)m->ngram_acceptance, AE_FROM_NGRAM);
    }
    if (wanted) {
        seconds += m->ngram_cost * m->n_seqs;
        ae_controller_saw_ngrams(&sim.c, m->n_seqs, seconds * sim_load(m, round));
        result.used[AE_KIND_NGRAM] = true;
    }
    if (ae_controller_plan(&sim.c, &r, sim.chance, m->n_seqs)) {
        seconds += sim_draft(m, d, round, &spent);
        result.used[AE_KIND_NETWORK] = true;
    }
    ae_controller_choose(&sim.c, &r, spent, sim.chance, m->n_seqs);
    for (uint32_t i = 0; i < m->n_seqs; i++) n_rows += sim.tree[i].n;
    const double pass = sim_pass(m->kind, n_rows);
    ae_controller_saw_pass(&sim.c, &r, n_rows, pass * sim_load(m, round));
    for (uint32_t i = 0; i < m->n_seqs; i++) tokens += sim_walk(m, d, round, i, &result);
    ae_controller_saw_round(&sim.c, &r, &result);
    out->tokens[out->n + 1] = out->tokens[out->n] + tokens;
    out->seconds[out->n + 1] = out->seconds[out->n] + seconds + pass;
    out->n++;
}

/* Runs n_rounds rounds, or until each sequence has n_tokens (0: no limit). False: no memory. */
static bool sim_run(const sim_machine *m, uint32_t n_rounds, double n_tokens, sim_result *out)
{
    const ae_controller_options options = {.n_max = m->n_max, .n_seqs = m->n_seqs, .ngrams = m->ngram_cost > 0,
                                           .drafts = m->n_drafters > 0, .n_networks = m->n_drafters};
    memset(&sim, 0, sizeof sim);
    memset(out, 0, sizeof *out);
    sim.seed = m->seed + 1;
    if (ae_controller_init(&sim.c, &options, NULL) != AERIE_OK) return false;
    for (uint32_t i = 0; i < n_rounds && (n_tokens <= 0 || out->tokens[i] < n_tokens * m->n_seqs); i++) sim_round(m, i, out);
    ae_controller_free(&sim.c);
    return true;
}

/* Tokens over time between two rounds; 1 is plain decoding. */
static double sim_gain(const sim_machine *m, const sim_result *r, uint32_t from, uint32_t to)
{
    return (r->tokens[to] - r->tokens[from]) / (r->seconds[to] - r->seconds[from]) * sim_pass(m->kind, m->n_seqs) / m->n_seqs;
}

/* The least gain of any `width` rounds in a row. */
static double sim_worst_window(const sim_machine *m, const sim_result *r, uint32_t width)
{
    double worst = HUGE_VAL;
    for (uint32_t i = 0; i + width <= r->n; i++) {
        const double gain = sim_gain(m, r, i, i + width);
        if (gain < worst) worst = gain;
    }
    return worst;
}

#endif
