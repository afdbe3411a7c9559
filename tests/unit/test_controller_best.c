/* test_controller_best.c - how near the controller comes to the best fixed setting, known beforehand, on simulated machines
 * (controller_sim.h), and how far it falls below plain decoding in any 500 rounds.
 *
 * Each case has a goal: 0.97 of the best fixed depth, 0.95 of the best of three drafters, 0.99 of plain decoding in any 500
 * rounds, 0.97 in short answers. Not all cases reach theirs. So the bounds of each group are what the controller reached when
 * they were measured (2026-11-28), with a small margin: a change may not make it worse, and a better one tightens them. Under
 * sanitizers, which make it ten times as slow, every eighth case runs, and the means are not compared.
 * AERIE_TEST_TABLE=1 prints the figures, and the cases that miss their goals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "controller_sim.h"

#define WINDOW 500
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EVERY 8
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define EVERY 8
#endif
#endif
#ifndef EVERY
#define EVERY 1
#endif

/* The constants were tuned on the seeds of set 0; those of set 1 were added later, to check other seeds. */
static uint32_t n_bad, n_all, set;

static uint64_t seed_of(int k)
{
    return (uint64_t)k + 1000 * set;
}

/* Many sequences take long: they are left to set 0. */
static uint32_t n_counts(uint32_t all)
{
    return set ? 3 : all;
}

/* Whether a case is left out. The hash spreads those that run over all loops. */
static bool is_skipped(void)
{
    static uint32_t n;
    return (n++ * 2654435761u >> 16) % EVERY;
}

static sim_result result;

/* Shares of the goal by group of cases. */
typedef struct tally {
    const char *name;
    double sum, least;
    uint32_t n, n_missed;
} tally;

static void expect(tally *t, const sim_machine *m, double got, double goal, double least)
{
    static const char *kinds[] = {"flat", "steep", "stepped"};
    const double share = got / goal;
    if (!t->n || share < t->least) t->least = share;
    t->sum += share;
    t->n++;
    n_all++;
    if (share >= least) return;
    t->n_missed++;
    if (!getenv("AERIE_TEST_TABLE")) return;
    const sim_drafter *d = m->drafters;
    print_error("%s: %s, %u sequences, noise %g%s, %s cost %g acceptance %g>%g: %.3f, goal %.3f, share %.3f < %.3f\n", t->name,
                kinds[m->kind], m->n_seqs, m->noise, m->slow_to ? ", slow" : "", d->one_pass ? "one pass" : "levels", d->cost,
                d->acceptance, d->later, got, goal, share, least);
}

/* The bounds of a group of cases: the mean share of the goal, the least share, and how many may miss it. */
typedef struct bounds {
    double mean, least;
    uint32_t n_missed;
} bounds;

static void report(const tally *t, const bounds *b)
{
    if (getenv("AERIE_TEST_TABLE"))
        printf("| %s%s | %u | %.3f | %.3f | %u |\n", t->name, set ? ", held out" : "", t->n, t->sum / t->n, t->least,
               t->n_missed);
    if ((EVERY > 1 || t->sum / t->n >= b->mean) && t->least >= b->least && t->n_missed <= b->n_missed) return;
    n_bad++;
    print_error("%s%s: mean %.3f, least %.3f, %u of %u below the goal; expected %.3f, %.3f, %u\n", t->name,
                set ? ", held out" : "", t->sum / t->n, t->least, t->n_missed, t->n, b->mean, b->least, b->n_missed);
}

static void none_is_bad(void)
{
    const uint32_t n = n_bad;
    n_bad = 0;
    assert_int_equal(n, 0);
}

static const uint32_t counts[] = {1, 4, 16, 64, 256};
static const double acceptances[] = {0.3, 0.6, 0.8, 0.9}, draft_costs[] = {0.05, 0.25};

/* A long run on every machine: near the best fixed depth after 500 rounds, above plain in all windows. */
static void run_stationary(double noise, bool slow, const char *name, double near, const bounds *of_best,
                           const bounds *of_plain)
{
    char names[2][64];
    snprintf(names[0], 64, "%s: of the best fixed depth", name);
    snprintf(names[1], 64, "%s: worst 500 rounds", name);
    tally best = {.name = names[0]}, plain = {.name = names[1]};
    for (uint32_t c = 0; c < n_counts(5); c++)
        for (int kind = 0; kind < 3; kind++)
            for (int k = 0; k < 16; k++) {
                if (counts[c] > 16 && (k + kind) % (counts[c] > 64 ? 5 : 3)) continue; /* many sequences take long */
                if (is_skipped()) continue;
                sim_machine m = {.kind = (sim_kind)kind, .n_seqs = counts[c], .n_max = k % 2 ? 15 : 6, .n_drafters = 1,
                                 .noise = noise, .seed = seed_of(k)};
                m.drafters[0] = (sim_drafter){.one_pass = k % 2, .cost = draft_costs[k / 2 % 2], .cost_seq = 0.05,
                                              .acceptance = acceptances[k / 4]};
                if (slow) m.slow_from = 700, m.slow_to = 1000;
                const uint32_t n = counts[c] > 64 ? 1100 : 1500;
                assert_true(sim_run(&m, n, 0, &result));
                expect(&best, &m, sim_gain(&m, &result, 500, n), sim_best(&m, 0), near);
                expect(&plain, &m, sim_worst_window(&m, &result, WINDOW), 1, 0.99);
            }
    report(&best, of_best);
    report(&plain, of_plain);
}

static void test_quiet(void **state)
{
    static const bounds best[2] = {{0.993, 0.930, 4}, {0.993, 0.945, 4}},
                        plain[2] = {{1.593, 0.987, 1}, {1.692, 0.986, 1}};
    (void)state;
    for (set = 0; set < 2; set++) run_stationary(0, false, "quiet", 0.97, &best[set], &plain[set]);
    none_is_bad();
}

static void test_noisy(void **state)
{
    static const bounds best[2] = {{0.990, 0.885, 6}, {0.990, 0.945, 4}},
                        plain[2] = {{1.587, 0.980, 6}, {1.686, 0.982, 5}};
    (void)state;
    for (set = 0; set < 2; set++) run_stationary(0.1, false, "noisy", 0.97, &best[set], &plain[set]);
    none_is_bad();
}

static void test_slow_minute(void **state)
{
    static const bounds best[2] = {{0.987, 0.920, 12}, {0.985, 0.905, 13}},
                        plain[2] = {{1.574, 0.987, 1}, {1.669, 0.986, 1}};
    (void)state;
    for (set = 0; set < 2; set++) run_stationary(0, true, "slow minute", 0.97, &best[set], &plain[set]);
    none_is_bad();
}

/* Acceptance changes in the middle of a text: no window falls below plain, and 500 rounds later the choice is right again. */
static void run_change(const bounds *of_best, const bounds *of_plain)
{
    static const double pairs[][2] = {{0.8, 0.1}, {0.9, 0.4}, {0.1, 0.8}, {0.6, 0.3}, {0.4, 0.9}};
    tally best = {.name = "change: of the best 500 rounds later"}, plain = {.name = "change: worst 500 rounds"};
    for (uint32_t c = 0; c < n_counts(4); c++)
        for (int kind = 0; kind < 3; kind++)
            for (int k = 0; k < 20; k++) {
                if (is_skipped()) continue;
                sim_machine m = {.kind = (sim_kind)kind, .n_seqs = counts[c], .n_max = k % 2 ? 15 : 6, .n_drafters = 1,
                                 .change = 1000, .noise = 0.05, .seed = seed_of(k)};
                m.drafters[0] = (sim_drafter){.one_pass = k % 2, .cost = draft_costs[k / 2 % 2], .cost_seq = 0.05,
                                              .acceptance = pairs[k / 4][0], .later = pairs[k / 4][1]};
                assert_true(sim_run(&m, 2200, 0, &result));
                expect(&best, &m, sim_gain(&m, &result, 1500, 2200), sim_best(&m, 2000), 0.95);
                expect(&plain, &m, sim_worst_window(&m, &result, WINDOW), 1, 0.99);
            }
    report(&best, of_best);
    report(&plain, of_plain);
}

static void test_change(void **state)
{
    static const bounds best[2] = {{0.986, 0.760, 12}, {0.984, 0.785, 13}},
                        plain[2] = {{1.042, 0.976, 35}, {1.059, 0.977, 34}};
    (void)state;
    for (set = 0; set < 2; set++) run_change(&best[set], &plain[set]);
    none_is_bad();
}

/* Three drafters, of which one is best: within 5 % of it after 1,000 rounds, in whatever order they are given. */
static void run_three(const bounds *of_best, const bounds *of_plain)
{
    static const sim_drafter kinds[] = {{false, 0.05, 0.05, 0.6, 0}, {false, 0.25, 0.05, 0.85, 0}, {true, 0.3, 0.05, 0.7, 0},
                                        {true, 0.1, 0.05, 0.4, 0},   {false, 0.1, 0.05, 0.2, 0},  {true, 0.4, 0.05, 0.9, 0}};
    tally best = {.name = "three drafters: of the best of them"}, plain = {.name = "three drafters: worst 500 rounds"};
    for (uint32_t c = 0; c < n_counts(4); c++)
        for (int kind = 0; kind < 3; kind++)
            for (int k = 0; k < 12; k++) {
                if (is_skipped()) continue;
                sim_machine m = {.kind = (sim_kind)kind, .n_seqs = counts[c], .n_max = 8, .n_drafters = 3, .noise = 0.05,
                                 .seed = seed_of(k)};
                for (int i = 0; i < 3; i++) m.drafters[i] = kinds[(k + i * (1 + k / 6 * 4)) % 6];
                const uint32_t n = 2000;
                assert_true(sim_run(&m, n, 0, &result));
                expect(&best, &m, sim_gain(&m, &result, 1000, n), sim_best(&m, 0), 0.95);
                expect(&plain, &m, sim_worst_window(&m, &result, WINDOW), 1, 0.99);
            }
    report(&best, of_best);
    report(&plain, of_plain);
}

static void test_three(void **state)
{
    static const bounds best[2] = {{0.966, 0.710, 29}, {0.968, 0.710, 21}},
                        plain[2] = {{1.627, 0.985, 5}, {1.840, 0.984, 3}};
    (void)state;
    for (set = 0; set < 2; set++) run_three(&best[set], &plain[set]);
    none_is_bad();
}

/* A short answer, the first of a session: 128 tokens, the mean of 8 runs. */
static void run_short(const bounds *of_plain)
{
    tally plain = {.name = "short answers"};
    for (uint32_t c = 0; c < n_counts(4); c++)
        for (int kind = 0; kind < 3; kind++)
            for (int k = 0; k < 24; k++) {
                if (is_skipped()) continue;
                static const double rates[] = {0.02, 0.2, 0.3, 0.5, 0.7, 0.9};
                sim_machine m = {.kind = (sim_kind)kind, .n_seqs = counts[c], .n_max = k % 2 ? 15 : 6, .n_drafters = 1};
                m.drafters[0] = (sim_drafter){.one_pass = k % 2, .cost = draft_costs[k / 2 % 2], .cost_seq = 0.05,
                                              .acceptance = rates[k / 4]};
                double sum = 0;
                for (int i = 0; i < 8; i++) {
                    m.seed = seed_of(i);
                    assert_true(sim_run(&m, 300, 128, &result));
                    sum += sim_gain(&m, &result, 0, result.n) / 8;
                }
                expect(&plain, &m, sum, 1, 0.97);
            }
    report(&plain, of_plain);
}

static void test_short(void **state)
{
    static const bounds plain[2] = {{1.258, 0.966, 2}, {1.342, 0.971, 1}};
    (void)state;
    for (set = 0; set < 2; set++) run_short(&plain[set]);
    none_is_bad();
}

/* N-grams beside a network: at least as good as the better of the two alone, within 5 %. */
static void run_union(const bounds *of_best, const bounds *of_plain)
{
    tally best = {.name = "with n-grams: of the better one alone"}, plain = {.name = "with n-grams: worst 500 rounds"};
    for (uint32_t c = 0; c < n_counts(4); c++)
        for (int kind = 0; kind < 3; kind++)
            for (int k = 0; k < 8; k++) {
                if (is_skipped()) continue;
                sim_machine m = {.kind = (sim_kind)kind, .n_seqs = counts[c], .n_max = 8, .n_drafters = 1, .noise = 0.05,
                                 .ngram_cost = 1e-3, .ngram_share = k & 1 ? 0.6 : 0.15,
                                 .ngram_acceptance = k & 2 ? 0.9 : 0.3, .seed = seed_of(k)};
                m.drafters[0] = (sim_drafter){.cost = 0.1, .cost_seq = 0.05, .acceptance = k & 4 ? 0.8 : 0.3};
                const uint32_t n = 1500;
                sim_machine one = m;
                one.ngram_cost = 0;
                assert_true(sim_run(&one, n, 0, &result));
                double goal = sim_gain(&one, &result, 500, n);
                one = m, one.n_drafters = 0;
                assert_true(sim_run(&one, n, 0, &result));
                const double ngrams = sim_gain(&one, &result, 500, n);
                if (ngrams > goal) goal = ngrams;
                if (goal < 1) goal = 1;
                assert_true(sim_run(&m, n, 0, &result));
                expect(&best, &m, sim_gain(&m, &result, 500, n), goal, 0.95);
                expect(&plain, &m, sim_worst_window(&m, &result, WINDOW), 1, 0.99);
            }
    report(&best, of_best);
    report(&plain, of_plain);
}

static void test_union(void **state)
{
    static const bounds best[2] = {{0.981, 0.572, 12}, {0.977, 0.572, 11}},
                        plain[2] = {{1.460, 0.989, 1}, {1.590, 0.989, 1}};
    (void)state;
    for (set = 0; set < 2; set++) run_union(&best[set], &plain[set]);
    none_is_bad();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quiet), cmocka_unit_test(test_noisy), cmocka_unit_test(test_slow_minute),
        cmocka_unit_test(test_change), cmocka_unit_test(test_three), cmocka_unit_test(test_short), cmocka_unit_test(test_union),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (getenv("AERIE_TEST_TABLE")) printf("%u cases\n", n_all);
    return failed;
}
