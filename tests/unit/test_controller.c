/* The controller on simulated machines: its gains are known exactly, and so is the time that other programs take.
 *
 * A machine has a T(n), the cost of a drafted level and of n-gram drafts, and a load: a share of passes that take a multiple
 * of their time, and a number of passes at the start that all do. Times of the outcome are those of the same machine without
 * any load, so that only decisions are judged: 1 is plain decoding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/math/rng.h"
#include "speculate/control/controller.h"

#define N_MAX 8
#define MOST_SEQS 1024

typedef struct machine {
    double row;         /* T(n) = 1 + row * (n - 1) */
    uint32_t tile;      /* rows cost in groups of this size; 0: one by one */
    double level;       /* a drafted level, in T(1), ... */
    double level_row;   /* ... and for each sequence beyond the first */
    double acceptance;  /* acceptance of every drafted token; < 0: expected to be 0, so that nothing is verified */
    double ngram;       /* n-gram drafts for a sequence, in T(1) */
    double ngram_share, ngram_acceptance; /* how often n-grams propose something; how often a token of it is right */
    bool no_drafts;     /* n-grams alone */
    uint32_t n_seqs;
    uint32_t n_good;    /* drafts are right for these sequences only; 0: for all */
    uint32_t n_slow_start; /* passes and drafts that take 2 to 12 times as long */
    double slow_share;     /* of those after them */
    double upkeep;         /* cost of the network's state, in each round in which it is active */
    double phase;          /* everything repeatedly takes this many times as long for a while; 0: never */
    uint32_t n_tokens;     /* of a sequence */
    uint32_t n_max;        /* depth of drafts; 0: N_MAX */
    double missed;         /* of the first draft: text that the network has to run before */
    const struct machine *other; /* NULL: it has one network; else level, level_row and acceptance of the next one */
} machine;

typedef struct outcome {
    double seconds, tokens; /* unloaded */
    uint32_t n_rounds, n_drafted_rounds, n_asked, most_rows, n_rested;
    double late_seconds, late_tokens; /* of the second half */
} outcome;

typedef struct sequence {
    ae_acceptance acceptance;
    ae_tree tree;
} sequence;

static sequence seqs[MOST_SEQS];
static ae_chance chances[MOST_SEQS];
static uint32_t n_random;

static double random01(void)
{
    uint32_t out[4];
    ae_philox(7, n_random++, 0, out);
    return out[0] / 4294967296.0;
}

/* How much longer this pass or draft takes. */
static double load(const machine *m, uint32_t n_done)
{
    const bool slow = n_done < m->n_slow_start || random01() < m->slow_share;
    const double phase = m->phase > 0 && n_done / 37 % 3 == 1 ? m->phase : 1;
    return phase * (slow ? 2 + 10 * random01() : 1);
}

/* The machine as it drafts now. */
static const machine *turn_of(const ae_controller *c, const machine *m)
{
    uint32_t active;
    for (uint32_t i = ae_controller_network(c, &active); i; i--) m = m->other;
    return m;
}

static uint32_t depth_of(const machine *m)
{
    return m->n_max ? m->n_max : N_MAX;
}

static double pass_seconds(const machine *m, uint32_t n)
{
    if (m->tile) n = (n + m->tile - 1) / m->tile * m->tile;
    return 1 + m->row * (n - 1.0);
}

static void grow(ae_tree *tree, uint32_t depth, float p, float floor, uint8_t from)
{
    float reach = 1;
    for (uint32_t d = 0; d < depth && (reach *= p) >= floor; d++) {
        const int32_t node = ae_tree_add(tree, (int32_t)d - 1, (int32_t)d, p);
        if (node >= 0) tree->from[node] = from;
    }
}

static double make_ngrams(ae_controller *c, const machine *m, float floor, uint32_t n_round)
{
    const double took = m->ngram * m->n_seqs;
    for (uint32_t i = 0; i < m->n_seqs; i++)
        if (random01() < m->ngram_share) grow(&seqs[i].tree, N_MAX, (float)m->ngram_acceptance, floor, AE_FROM_NGRAM);
    ae_controller_saw_ngrams(c, m->n_seqs, took * load(m, n_round) + 1e-6);
    return took;
}

/* A sequence that has an n-gram draft keeps it: one chain each. */
static double make_drafts(ae_controller *c, const machine *m, float floor, outcome *o, double *seen)
{
    uint32_t n = 0, deepest = 0;
    for (uint32_t i = 0; i < m->n_seqs; i++) {
        sequence *s = &seqs[i];
        if (!chances[i].n_levels) continue;
        n++;
        if (s->tree.n && s->tree.p[0] < 0.7f) s->tree.n = 0; /* the better one of two chains */
        if (!s->tree.n) grow(&s->tree, chances[i].n_levels, m->acceptance < 0 ? 1e-4f : 0.7f, floor, AE_FROM_NETWORK);
        chances[i].n_levels = s->tree.n && s->tree.from[0] == AE_FROM_NETWORK ? s->tree.n : 1;
        if (chances[i].n_levels > deepest) deepest = chances[i].n_levels;
    }
    const double level = m->level + m->level_row * (n - 1.0), times = load(m, o->n_rounds);
    ae_controller_saw_draft(c, n, deepest, level * times, (deepest - 1) * level * times);
    o->n_asked += n;
    *seen = deepest * level * times;
    return deepest * level;
}

static uint32_t walk(ae_controller *c, const machine *m, uint32_t i, ae_result *r)
{
    sequence *s = &seqs[i];
    int32_t path[AERIE_MAX_DRAFT];
    uint32_t n = 0;
    while (n < s->tree.n) {
        const bool by_ngram = s->tree.from[n] & AE_FROM_NGRAM;
        const double p = by_ngram ? m->ngram_acceptance : m->n_good && i >= m->n_good ? 0.05 : m->acceptance;
        r->n_nodes[by_ngram ? AE_KIND_NGRAM : AE_KIND_NETWORK]++;
        if (random01() >= p) break;
        r->n_accepted[by_ngram ? AE_KIND_NGRAM : AE_KIND_NETWORK]++;
        path[n] = (int32_t)n;
        n++;
    }
    for (uint32_t j = n + 1; j < s->tree.n; j++) r->n_nodes[s->tree.from[j] & AE_FROM_NGRAM ? 0 : 1]++;
    ae_controller_saw_verdict(c, &chances[i], path, n);
    return n + 1;
}

static void step(ae_controller *c, const machine *m, const ae_round *r, outcome *o)
{
    ae_result result = {0};
    double draft = 0, seen_draft = 0, ngrams = 0;
    const bool wanted = ae_controller_begin(c, r);
    const float floor = ae_controller_floor(c, r);
    for (uint32_t i = 0; i < m->n_seqs; i++) {
        seqs[i].tree.n = 0;
        chances[i] = (ae_chance){.acceptance = &seqs[i].acceptance, .tree = &seqs[i].tree, .max_depth = depth_of(m)};
    }
    if (wanted && m->ngram > 0) {
        ngrams = make_ngrams(c, m, floor, o->n_rounds);
        result.used[AE_KIND_NGRAM] = true;
    }
    if (ae_controller_plan(c, r, chances, m->n_seqs)) {
        if (!o->n_asked) result.start = m->missed * load(m, o->n_rounds), ngrams += m->missed;
        draft = make_drafts(c, turn_of(c, m), floor, o, &seen_draft);
        result.used[AE_KIND_NETWORK] = true;
    }
    ae_controller_choose(c, r, seen_draft, chances, m->n_seqs);
    uint32_t n_rows = m->n_seqs, n_emitted = 0;
    for (uint32_t i = 0; i < m->n_seqs; i++) n_rows += seqs[i].tree.n;
    const double seconds = pass_seconds(m, n_rows);
    ae_controller_saw_pass(c, r, n_rows, seconds * load(m, o->n_rounds));
    for (uint32_t i = 0; i < m->n_seqs; i++) n_emitted += walk(c, turn_of(c, m), i, &result);
    result.upkeep = ae_controller_is_paused(c) ? 0 : m->upkeep * load(m, o->n_rounds);
    o->n_rested += ae_controller_is_paused(c);
    ngrams += ae_controller_is_paused(c) ? 0 : m->upkeep;
    ae_controller_saw_round(c, r, &result);
    o->seconds += seconds + draft + ngrams;
    o->tokens += n_emitted;
    o->n_rounds++;
    o->n_drafted_rounds += n_rows > m->n_seqs;
    if (n_rows > o->most_rows) o->most_rows = n_rows;
    if (o->tokens > m->n_seqs * m->n_tokens / 2.0) {
        o->late_seconds += seconds + draft + ngrams;
        o->late_tokens += n_emitted;
    }
}

static void run(ae_controller *c, const machine *m, outcome *o)
{
    *o = (outcome){0};
    for (uint32_t i = 0; i < m->n_seqs; i++) seqs[i].acceptance = (ae_acceptance){0};
    while (o->tokens < m->n_seqs * m->n_tokens) {
        const ae_round r = {m->n_seqs, m->n_seqs, (uint32_t)(10 + o->tokens / m->n_seqs), false};
        step(c, m, &r, o);
    }
}

static uint32_t seed;

static void start(ae_controller *c, const machine *m)
{
    n_random = seed << 24; /* a case does not depend on those before it */
    uint32_t n_networks = 1;
    for (const machine *at = m; at->other; at = at->other) n_networks++;
    const ae_controller_options options = {
        .n_max = depth_of(m), .n_seqs = MOST_SEQS, .ngrams = m->ngram > 0, .drafts = !m->no_drafts, .n_networks = n_networks,
        .n_warm = m->upkeep > 0 ? 16 : 0};
    assert_int_equal(ae_controller_init(c, &options, NULL), AERIE_OK);
}

static double per_plain(const machine *m)
{
    return pass_seconds(m, m->n_seqs) / m->n_seqs;
}

static double speed(const machine *m, outcome *o)
{
    ae_controller c;
    start(&c, m);
    run(&c, m, o);
    ae_controller_free(&c);
    return o->tokens / o->seconds * per_plain(m);
}

/* The speed of the best fixed number of sequences and depth. */
static double best_speed(const machine *m)
{
    double best = 1;
    for (uint32_t k = 1; k <= depth_of(m) && !m->no_drafts; k++)
        for (uint32_t n = 1; n <= m->n_seqs; n++) {
            double tokens = 0, reach = 1;
            for (uint32_t d = 0; d < k; d++) tokens += reach *= m->acceptance < 0 ? 0 : m->acceptance;
            const double took = pass_seconds(m, m->n_seqs + n * k) + k * (m->level + m->level_row * (n - 1.0));
            const double s = (m->n_seqs + n * tokens) / took * per_plain(m);
            if (s > best) best = s;
        }
    return best;
}

static const double rows[] = {0.005, 0.03, 0.1, 0.3, 0.7}, levels[] = {0.001, 0.02, 0.1, 0.3},
                    acceptances[] = {-1, 0.3, 0.5, 0.8, 0.95};
#define EACH(m)                                 \
    for (size_t i = 0; i < 5; i++) \
        for (size_t j = 0; j < 4; j++) \
            for (size_t k = 0; k < 5; k++) \
                if (((m)->row = rows[i], (m)->level = levels[j], (m)->level_row = levels[j] * rows[i], \
                     (m)->acceptance = acceptances[k]), true)

static uint32_t n_bad;

static void expect(const char *what, const machine *m, double got, double least)
{
    if (got >= least) return;
    n_bad++;
    print_error("%s: row %g, level %g, acceptance %g, %u sequences: %.3f of plain, at least %.3f expected\n", what, m->row,
                m->level, m->acceptance, m->n_seqs, got, least);
}

static void none_is_bad(void)
{
    const uint32_t n = n_bad;
    n_bad = 0;
    assert_int_equal(n, 0);
}

/* Never much below plain, and near the best fixed choice, on every kind of machine, the cost of exploration included. */
static void test_in_quiet(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 4, 16};
    for (size_t n = 0; n < 3; n++) {
        machine m = {.n_seqs = counts[n], .n_tokens = n ? 1000 : 3000};
        EACH(&m) {
            outcome o;
            const double got = speed(&m, &o), best = best_speed(&m);
            expect("quiet", &m, got, best > 1.1 ? 0.83 * best : 0.97);
        }
    }
    none_is_bad();
}

/* A network that has to run a prompt before its first draft is not judged by that. */
static void test_missed_text(void **state)
{
    (void)state;
    static const double per_row[] = {0.05, 0.1, 0.2}, accepted[] = {0.55, 0.65, 0.75}, missed[] = {0, 1, 4};
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++)
            for (size_t n = 0; n < 3; n++) {
                const machine m = {.row = per_row[i], .level = 0.05, .acceptance = accepted[k], .n_seqs = 1, .n_tokens = 64,
                                   .ngram = 0.001, .missed = missed[n], .slow_share = 0.1};
                const double best = best_speed(&m), paid = 64 / (64 / best + m.missed);
                double got = 0;
                outcome o;
                for (seed = 1; seed <= 32; seed++) got += speed(&m, &o) / 32;
                seed = 0;
                expect("missed text", &m, got, 0.87 * paid);
            }
    none_is_bad();
}

/* The better one of two networks drafts nearly always, whichever comes first; two bad ones cost no more than one. */
static void test_two_networks(void **state)
{
    (void)state;
    static const struct {
        double level, acceptance;
    } kinds[] = {{0.05, 0.5}, {0.1, 0.8}, {0.4, 0.9}, {0.9, 0.95}, {0.3, 0.1}, {0.02, 0.2}};
    for (size_t r = 2; r < 3; r++)
        for (size_t i = 0; i < 6; i++)
            for (size_t j = 0; j < 6; j++) {
                machine b = {.row = rows[r], .n_seqs = 1, .n_tokens = 3000};
                b.level = kinds[j].level, b.acceptance = kinds[j].acceptance;
                machine m = b;
                m.level = kinds[i].level, m.acceptance = kinds[i].acceptance;
                const double one = best_speed(&m), two = best_speed(&b), best = one > two ? one : two;
                m.other = &b;
                outcome o;
                expect("two networks", &m, speed(&m, &o), best > 1.1 ? 0.83 * best : 0.97);
            }
    none_is_bad();
}

/* Several networks with long drafts and a short session: there are few passes in which to find the best. */
static void test_a_choice_in_few_passes(void **state)
{
    (void)state;
    static const struct {
        double level, acceptance;
    } kinds[] = {{0.06, 0.6}, {0.18, 0.8}, {0.08, 0.9}, {0.25, 0.5}};
    static const double per_row[] = {0.006, 0.017, 0.05};
    for (size_t n = 1; n <= 3; n++)
        for (size_t i = 0; i < 3; i++)
            for (uint32_t order = 0; order < 24; order++) {
                machine m[4];
                uint32_t left[] = {0, 1, 2, 3}, digits = order;
                double best = 1;
                for (uint32_t k = 0; k < n; k++) {
                    const uint32_t at = digits % (4 - k), kind = left[at];
                    digits /= 4 - k;
                    left[at] = left[3 - k];
                    m[k] = (machine){.row = per_row[i], .n_seqs = 1, .n_tokens = 768, .n_max = 16, .level = kinds[kind].level,
                                     .acceptance = kinds[kind].acceptance};
                    if (k) m[k - 1].other = &m[k];
                    const double alone = best_speed(&m[k]);
                    if (alone > best) best = alone;
                }
                double got = 0;
                outcome o;
                for (seed = 1; seed <= 8; seed++) got += speed(&m[0], &o) / 8;
                seed = 0;
                expect("few passes", m, got, (n == 1 ? 0.9 : n == 2 ? 0.87 : 0.82) * best);
            }
    none_is_bad();
}


/* A short answer, and the first of a session: there is little time to learn in. */
static void test_short(void **state)
{
    (void)state;
    machine m = {.n_seqs = 1, .n_tokens = 128};
    EACH(&m) {
        outcome o;
        expect("short", &m, speed(&m, &o), m.row > 0.5 ? 0.94 : 0.96);
    }
    none_is_bad();
}

/* The same with a few sequences, n-gram drafts that are mostly wrong, and a network with an expected acceptance of 0. */
static void test_short_for_few(void **state)
{
    (void)state;
    static const double per_row[] = {0.02, 0.07, 0.15, 0.3};
    for (uint32_t n_seqs = 1; n_seqs <= 16; n_seqs *= 2)
        for (size_t i = 0; i < 4; i++)
            for (size_t k = 0; k < 6; k++) {
                machine m = {.n_seqs = n_seqs, .n_tokens = 128, .row = per_row[i], .level = 0.08, .level_row = 0.01,
                             .ngram = k < 2 ? 0 : 1e-3, .ngram_share = 0.3, .ngram_acceptance = k % 3 ? 0.15 : 0.3,
                             .no_drafts = k > 3, .acceptance = k % 2 ? -1 : 0.15};
                m.upkeep = m.no_drafts ? 0 : 0.02 * pass_seconds(&m, m.n_seqs);
                outcome o;
                const double got = speed(&m, &o);
                expect("short for few", &m, got, 0.96);
            }
    none_is_bad();
}

/* 64 and more sequences: times of passes of any size are learned, and are never mistaken for those of smaller ones. */
static void test_many_sequences(void **state)
{
    (void)state;
    static const uint32_t counts[] = {64, 200, 1000};
    static const double per_row[] = {0.002, 0.02, 0.1, 1};
    for (size_t n = 0; n < 3; n++)
        for (size_t i = 0; i < 4; i++)
            for (size_t k = 0; k < 5; k++)
                for (uint32_t tile = 0; tile <= 16; tile += 16) {
                    const machine m = {.n_seqs = counts[n], .n_tokens = n ? 150 : 300, .row = per_row[i], .tile = tile,
                                       .level = 0.05, .level_row = 0.05 * per_row[i], .acceptance = acceptances[k]};
                    outcome o;
                    const double got = speed(&m, &o), best = best_speed(&m);
                    expect("many", &m, got, best > 1.15 ? 0.8 * best : 0.97);
                }
    none_is_bad();
}

/* A text that n-grams know after texts in which they found nothing: they are asked at its beginning, and asked again while
 * their drafts are right. */
static void test_ngrams_after_nothing(void **state)
{
    static const double costs[] = {0.01, 0.1, 0.3}, draft_costs[] = {1e-3, 0.02, 0.1};
    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) {
            const machine nothing = {.n_seqs = 1, .n_tokens = 600, .row = costs[i], .ngram = draft_costs[k], .no_drafts = true};
            machine known = nothing;
            ae_controller c;
            outcome o;
            known.n_tokens = 120, known.ngram_share = 1, known.ngram_acceptance = 0.97;
            start(&c, &nothing);
            run(&c, &nothing, &o);
            ae_controller_new_text(&c);
            run(&c, &known, &o);
            print_message("n-grams after nothing: row %g, drafts %g: speed %.2f, %u of %u rounds drafted\n", costs[i],
                          draft_costs[k], o.tokens / o.seconds * per_plain(&known), o.n_drafted_rounds, o.n_rounds);
            assert_true(2 * o.n_drafted_rounds > o.n_rounds);
            ae_controller_free(&c);
        }
}

/* N-gram drafts for many sequences that are mostly wrong, or right, or cost too much to be asked for. */
static void test_ngrams(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 8, 64, 200};
    static const double shares[] = {0, 0.05, 0.5}, rates[] = {0.1, 0.5, 0.9}, draft_costs[] = {1e-4, 0.02};
    for (size_t n = 0; n < 4; n++)
        for (size_t i = 0; i < 3; i++)
            for (size_t k = 0; k < 3; k++)
                for (size_t p = 0; p < 2; p++) {
                    machine m = {.n_seqs = counts[n], .n_tokens = 400, .row = 0.05, .ngram = draft_costs[p], .no_drafts = true,
                                 .ngram_share = shares[i], .ngram_acceptance = rates[k]};
                    outcome o;
                    const double got = speed(&m, &o);
                    m.level = m.ngram, m.acceptance = m.ngram_acceptance; /* for the message */
                    expect("n-grams", &m, got, shares[i] == 0.5 && rates[k] == 0.9 && p == 0 && n < 2 ? 1.2 : 0.97);
                }
    none_is_bad();
}

/* Both kinds: a useless network does not stop the n-grams, and vice versa. */
static void test_joined(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 8, 64};
    for (size_t n = 0; n < 3; n++) {
        const machine ngrams = {.n_seqs = counts[n], .n_tokens = n ? 1000 : 8000, .row = 0.02, .ngram = 1e-3,
                                .ngram_share = 0.4, .ngram_acceptance = 0.85, .no_drafts = true};
        machine both = ngrams, drafts = ngrams, poor = ngrams;
        outcome o;
        const double alone = speed(&ngrams, &o);
        expect("n-grams alone", &ngrams, alone, n < 2 ? 1.3 : 1);
        both.no_drafts = false, both.level = 0.1, both.level_row = 0.002, both.acceptance = -1;
        expect("a random network beside n-grams", &both, speed(&both, &o), 0.96 * alone);
        poor.no_drafts = false, poor.level = 0.03, poor.level_row = 6e-4, poor.acceptance = 0.8;
        const double together = speed(&poor, &o);
        expect("a good network beside n-grams", &poor, together, (n < 1 ? 1.03 : 0.99) * alone);
        drafts = poor, drafts.ngram_acceptance = 0.02;
        const double with_bad = speed(&drafts, &o);
        drafts.ngram = 0;
        expect("bad n-grams beside a good network", &drafts, with_bad, 0.93 * speed(&drafts, &o));
    }
    none_is_bad();
}

/* Where n-gram drafts are certain to be accepted, the network is not asked. */
static void test_sure_ngrams(void **state)
{
    (void)state;
    const machine m = {.n_seqs = 8, .n_tokens = 2000, .row = 0.02, .ngram = 1e-3, .ngram_share = 1, .ngram_acceptance = 0.97,
                       .level = 0.1, .level_row = 0.002, .acceptance = 0.7};
    outcome o;
    speed(&m, &o);
    assert_true(o.n_asked < o.n_rounds); /* of 8 a round */
}

/* If drafts are good for some sequences only, the controller drafts for these. */
static void test_sequences_differ(void **state)
{
    (void)state;
    const machine some = {.n_seqs = 32, .n_good = 8, .n_tokens = 600, .row = 0.01, .level = 0.05, .level_row = 0.0015,
                          .acceptance = 0.85};
    outcome o;
    const double got = speed(&some, &o);
    expect("some good", &some, got, 1.08);
    assert_true((double)o.n_asked / o.n_rounds < 20);
    none_is_bad();
}

/* Everything measured at the start was wrong: it must be forgotten. */
static void test_after_a_noisy_start(void **state)
{
    (void)state;
    for (uint32_t n_slow = 1; n_slow <= 40; n_slow += 13) {
        machine m = {.n_seqs = 1, .n_tokens = 3000, .n_slow_start = n_slow};
        EACH(&m) {
            outcome o;
            speed(&m, &o);
            const double best = best_speed(&m);
            expect("noisy start", &m, o.late_tokens / o.late_seconds, best > 1.1 ? 0.77 * best : 0.97);
        }
    }
    none_is_bad();
}

/* One pass or draft in four is slow, permanently. */
static void test_under_load(void **state)
{
    (void)state;
    for (uint32_t n_seqs = 1; n_seqs <= 64; n_seqs *= 8) {
        machine m = {.n_seqs = n_seqs, .n_tokens = n_seqs == 1 ? 3000 : 600, .slow_share = 0.25};
        double sum = 0;
        uint32_t n_plain = 0, n_low = 0;
        EACH(&m) {
            outcome o;
            const double got = speed(&m, &o), best = best_speed(&m);
            expect("load", &m, got, best > 1.1 ? 0.55 * best : 0.94);
            if (best > 1.1) continue;
            sum += got, n_plain++, n_low += got < 0.95;
        }
        assert_true(sum > 0.99 * n_plain && n_low <= 2);
    }
    none_is_bad();
}

/* The whole machine is slow for a while, again and again: what was measured then and now is still compared rightly. */
static void test_phases(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 4, 8, 64, 4, 8, 4, 8};
    static const uint32_t seeds[] = {0, 0, 0, 0, 5, 1, 8, 8}; /* the later ones once let a wrong drift last */
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        machine m = {.n_seqs = counts[n], .n_tokens = n ? 600 : 2000, .phase = 2.2};
        seed = seeds[n];
        double share = 0;
        uint32_t n_winnable = 0;
        EACH(&m) {
            outcome o;
            const double got = speed(&m, &o), best = best_speed(&m);
            expect("phases", &m, got, best > 1.1 ? 0.97 : 0.96);
            if (best > 1.1) share += got / best, n_winnable++;
        }
        if (share < 0.88 * n_winnable) print_error("%u sequences: %.3f of the best\n", m.n_seqs, share / n_winnable);
        assert_true(share >= 0.88 * n_winnable);
    }
    seed = 0;
    none_is_bad();
}

/* A network whose state costs something in every round, with drafts or without: one of which nothing is accepted is paused, and
 * costs nothing then; a good one stays active. */
static void test_upkeep(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 4, 64, 1000};
    static const double upkeeps[] = {0.01, 0.05, 0.2};
    for (size_t n = 0; n < 4; n++)
        for (size_t u = 0; u < 3; u++) {
            machine m = {.n_seqs = counts[n], .n_tokens = 500, .row = 0.05, .level = 0.1, .level_row = 0.005, .acceptance = -1};
            outcome o;
            m.upkeep = upkeeps[u] * pass_seconds(&m, m.n_seqs);
            expect("upkeep of a network with an expected acceptance of 0", &m, speed(&m, &o), 0.96);
            if (upkeeps[u] > 0.02 && o.n_rested < o.n_rounds / 3) expect("rests", &m, (double)o.n_rested / o.n_rounds, 0.33);
            m.acceptance = 0.3;
            expect("upkeep of a poor network", &m, speed(&m, &o), 0.965);
            if (n) continue;
            m.acceptance = 0.9;
            expect("upkeep of a good network", &m, speed(&m, &o), 1.3);
        }
    none_is_bad();
}

/* A drafter that stops being good while rows become expensive on the machine, and the way back. */
static void test_changes(void **state)
{
    (void)state;
    ae_controller c;
    const machine good = {.row = 0.02, .level = 0.05, .acceptance = 0.8, .n_seqs = 1, .n_tokens = 1500};
    const machine bad = {.row = 0.5, .level = 0.3, .acceptance = 0.3, .n_seqs = 1, .n_tokens = 1500};
    outcome o;
    start(&c, &good);
    run(&c, &good, &o);
    expect("first", &good, o.tokens / o.seconds, 0.9 * best_speed(&good));
    run(&c, &bad, &o);
    expect("then dear", &bad, o.tokens / o.seconds, 0.95);
    expect("dear for long", &bad, o.late_tokens / o.late_seconds, 0.97);
    run(&c, &good, &o);
    expect("cheap again", &good, o.late_tokens / o.late_seconds, 0.85 * best_speed(&good));
    ae_controller_free(&c);
    none_is_bad();
}

/* A single slow pass counts by half, and is forgotten when the next ones are not slow. */
static void test_one_slow_pass(void **state)
{
    (void)state;
    static ae_curve curve;
    static ae_line line;
    uint32_t clock = 1;
    for (int i = 0; i < 5; i++) ae_curve_add(&curve, 1, 1.0, clock++);
    ae_curve_add(&curve, 6, 9.0, clock++);
    ae_curve_line(&curve, clock, false, &line);
    assert_true(ae_line_at(&line, 6) > 2 && ae_line_at(&line, 6) < 6);
    for (int i = 0; i < 3; i++) ae_curve_add(&curve, 6, 2.0, clock++);
    ae_curve_line(&curve, clock, false, &line);
    assert_float_equal(ae_line_at(&line, 6), 2.0, 0.02);
    assert_float_equal(ae_line_at(&line, 1), 1.0, 1e-6);
    assert_float_equal(ae_line_at(&line, 3.5), 1.5, 0.02);
    assert_true(ae_line_at(&line, 8) > 2.0);
    ae_curve_add(&curve, 8, 1.5, clock++); /* no size costs more than a larger one */
    ae_curve_line(&curve, clock, false, &line);
    assert_true(ae_line_at(&line, 6) < 1.51);
}

/* Times of all sizes are kept separately, however large. */
static void test_any_size(void **state)
{
    (void)state;
    static ae_curve curve;
    static ae_line line;
    uint32_t last_bin = 0;
    for (uint32_t n = 1; n <= 300000; n += 1 + n / 40) {
        const uint32_t bin = (uint32_t)(ae_curve_times(&curve, n) - curve.bin);
        assert_true(bin >= last_bin && bin <= last_bin + 1 && bin < AE_TIME_BINS);
        last_bin = bin;
    }
    assert_int_equal(last_bin, AE_TIME_BINS - 1);
    for (uint32_t n = 16; n <= 100000; n *= 2)
        for (int i = 0; i < 3; i++) ae_curve_add(&curve, n, n * 1e-3, 1);
    ae_curve_line(&curve, 1, false, &line);
    for (uint32_t n = 16; n <= 65536; n += n / 16) assert_float_equal(ae_line_at(&line, n), n * 1e-3, n * 1e-5);
    assert_true(ae_line_at(&line, 3e5) > 200 && ae_line_at(&line, 3e5) < 400);
}

/* The likeliest nodes of all sequences are verified, not those of the first slots. */
static void test_not_in_slot_order(void **state)
{
    (void)state;
    ae_controller c;
    const machine m = {.n_seqs = 400, .ngram = 1e-3, .no_drafts = true};
    start(&c, &m);
    const ae_round r = {400, 400, 100, false};
    for (int i = 0; i < 3; i++)
        for (uint32_t n = 1; n <= 4096; n *= 2) ae_controller_saw_pass(&c, &r, n, 1 + 0.002 * n);
    ae_controller_begin(&c, &r);
    ae_controller_begin(&c, &r);
    for (uint32_t i = 0; i < 400; i++) {
        chances[i] = (ae_chance){.acceptance = &seqs[i].acceptance, .tree = &seqs[i].tree, .max_depth = AERIE_MAX_DRAFT};
        seqs[i].tree.n = 0;
        grow(&seqs[i].tree, AERIE_MAX_DRAFT, i == 399 ? 0.98f : 0.5f, 0, AE_FROM_NGRAM);
    }
    ae_controller_choose(&c, &r, 0, chances, 400);
    assert_true(seqs[399].tree.n > 20);
    for (uint32_t i = 1; i < 399; i++) assert_int_equal(seqs[i].tree.n, seqs[0].tree.n);
    assert_true(seqs[0].tree.n < 3);
    ae_controller_free(&c);
}

/* Before anything was verified, the prompt's pass tells the time of many rows: 4 sequences whose n-grams propose 7 tokens each,
 * expected to be right, verify few of them if rows are expensive and many if they are cheap. */
static uint32_t n_first_verified(double prompt_seconds)
{
    ae_controller c;
    const ae_controller_options options = {.n_max = N_MAX, .n_seqs = 4, .ngrams = true};
    assert_int_equal(ae_controller_init(&c, &options, NULL), AERIE_OK);
    const ae_round prompt = {.n_rows = 190, .prompts = true}, plain = {.n_rows = 4, .n_drawing = 4};
    const ae_result nothing = {0};
    ae_controller_begin(&c, &prompt);
    ae_controller_saw_pass(&c, &prompt, 190, prompt_seconds);
    ae_controller_saw_round(&c, &prompt, &nothing);
    ae_controller_begin(&c, &plain);
    ae_controller_saw_pass(&c, &plain, 4, 0.01);
    ae_controller_saw_round(&c, &plain, &nothing);
    uint32_t n = 0;
    assert_true(ae_controller_begin(&c, &plain));
    for (uint32_t i = 0; i < 4; i++) {
        chances[i] = (ae_chance){.acceptance = &seqs[i].acceptance, .tree = &seqs[i].tree, .max_depth = N_MAX};
        seqs[i].tree.n = 0;
        grow(&seqs[i].tree, 7, 0.8f, 0, AE_FROM_NGRAM);
    }
    ae_controller_choose(&c, &plain, 0, chances, 4);
    for (uint32_t i = 0; i < 4; i++) n += seqs[i].tree.n;
    ae_controller_free(&c);
    return n;
}

static void test_prompts_tell_what_rows_take(void **state)
{
    (void)state;
    const uint32_t n_dear = n_first_verified(0.4), n_cheap = n_first_verified(0.02);
    assert_true(n_dear <= 6);   /* a row takes a fifth of a plain pass */
    assert_true(n_cheap >= 16); /* next to nothing */
}

/* Beside a prompt n-grams propose 7 tokens for each of 4 sequences, every one expected to be right with probability p. A row
 * takes 3 ms, in which plain decoding draws 0.3 tokens. */
static uint32_t n_verified_beside_a_prompt(float p)
{
    ae_controller c;
    const ae_controller_options options = {.n_max = N_MAX, .n_seqs = 4, .ngrams = true};
    const ae_result nothing = {0};
    uint32_t n = 0;
    assert_int_equal(ae_controller_init(&c, &options, NULL), AERIE_OK);
    for (uint32_t i = 0; i < 12; i++) {
        const ae_round round = {.n_rows = i % 2 ? 4 : 64 + 4 * i, .n_drawing = 4, .prompts = !(i % 2)};
        ae_controller_begin(&c, &round);
        ae_controller_saw_pass(&c, &round, round.n_rows, i % 2 ? 0.04 : 3e-3 * round.n_rows);
        ae_controller_saw_round(&c, &round, &nothing);
    }
    const ae_round round = {.n_rows = 68, .n_drawing = 4, .prompts = true};
    assert_true(ae_controller_begin(&c, &round));
    for (uint32_t i = 0; i < 4; i++) {
        chances[i] = (ae_chance){.acceptance = &seqs[i].acceptance, .tree = &seqs[i].tree, .max_depth = N_MAX};
        seqs[i].tree.n = 0;
        grow(&seqs[i].tree, 7, p, 0, AE_FROM_NGRAM);
    }
    ae_controller_choose(&c, &round, 0, chances, 4);
    for (uint32_t i = 0; i < 4; i++) n += seqs[i].tree.n;
    ae_controller_free(&c);
    return n;
}

static void test_a_prompt_s_rows_are_work_too(void **state)
{
    (void)state;
    assert_true(n_verified_beside_a_prompt(0.3f) <= 4); /* second tokens are right one time in ten */
    assert_true(n_verified_beside_a_prompt(0.9f) >= 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_tell_what_rows_take),
        cmocka_unit_test(test_a_prompt_s_rows_are_work_too),
        cmocka_unit_test(test_in_quiet),          cmocka_unit_test(test_missed_text),
        cmocka_unit_test(test_two_networks), cmocka_unit_test(test_short),
        cmocka_unit_test(test_a_choice_in_few_passes),
        cmocka_unit_test(test_many_sequences),    cmocka_unit_test(test_short_for_few),
        cmocka_unit_test(test_ngrams), cmocka_unit_test(test_ngrams_after_nothing), cmocka_unit_test(test_joined),
        cmocka_unit_test(test_sure_ngrams),
        cmocka_unit_test(test_sequences_differ),  cmocka_unit_test(test_after_a_noisy_start),
        cmocka_unit_test(test_under_load),        cmocka_unit_test(test_phases),
        cmocka_unit_test(test_upkeep),
        cmocka_unit_test(test_changes),      cmocka_unit_test(test_one_slow_pass),
        cmocka_unit_test(test_any_size),          cmocka_unit_test(test_not_in_slot_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
