/* The controller on simulated machines: what it earns is known exactly, and so is what other programs take from it.
 *
 * A machine has a T(n), the price of a drafted level, and a load: a share of passes that take a multiple of their time, and
 * a number of passes at the start that all do. Times of the outcome are those of the same machine without any load, so that only
 * decisions are judged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/rng.h"
#include "spec/controller.h"

#define N_MAX 8

typedef struct machine {
    double row;         /* T(n) = 1 + row * (n - 1) */
    double level;       /* a drafted level, in T(1) */
    double acceptance;  /* of every depth */
    uint32_t n_seqs;
    uint32_t n_slow_start; /* passes and drafts that take 2 to 12 times as long */
    double slow_share;     /* of those after them */
    uint32_t n_tokens;
    bool free_draft;
} machine;

typedef struct outcome {
    double seconds, tokens; /* unloaded */
    uint32_t n_drafted_rounds, n_rounds;
    double late_seconds, late_tokens; /* of the second half */
} outcome;

static uint32_t n_random;

static double random01(void)
{
    uint32_t out[4];
    ae_philox(7, n_random++, 0, out);
    return out[0] / 4294967296.0;
}

/* How much longer this one takes. */
static double load(const machine *m, uint32_t n_done)
{
    const bool slow = n_done < m->n_slow_start || random01() < m->slow_share;
    return slow ? 2 + 10 * random01() : 1;
}

static double pass_seconds(const machine *m, uint32_t n)
{
    return 1 + m->row * (n - 1.0);
}

static void grow_chain(const ae_controller *c, const ae_round *r, uint32_t depth, ae_tree *tree)
{
    const float floor = ae_controller_floor(c, r);
    float p = 1;
    tree->n = 0;
    for (uint32_t d = 0; d < depth && (p *= 0.7f) >= floor; d++) ae_tree_add(tree, (int32_t)d - 1, (int32_t)d, 0.7f);
}

static uint32_t walk(ae_controller *c, const machine *m, const ae_tree *tree)
{
    int32_t path[AE_TREE_MAX];
    uint32_t n = 0;
    while (n < tree->n && random01() < m->acceptance) {
        path[n] = (int32_t)n;
        n++;
    }
    ae_controller_saw_verdict(c, tree, path, n);
    return n + 1;
}

static void run(ae_controller *c, const machine *m, outcome *o)
{
    ae_tree trees[8], *list[8];
    *o = (outcome){0};
    for (uint32_t n_context = 10; o->tokens < m->n_tokens; o->n_rounds++) {
        const ae_round r = {m->n_seqs, m->n_seqs, n_context / m->n_seqs};
        const uint32_t depth = ae_controller_depth(c, &r, m->n_seqs);
        uint32_t n_rows = m->n_seqs, n_levels = 0, n_emitted = 0;
        double draft = 0, seen_draft = 0;
        for (uint32_t i = 0; i < m->n_seqs; i++) {
            list[i] = &trees[i];
            grow_chain(c, &r, depth, list[i]);
            n_levels = trees[i].n > n_levels ? trees[i].n : n_levels;
        }
        if (depth) {
            draft = n_levels * m->level;
            seen_draft = draft * load(m, o->n_rounds);
            ae_controller_saw_draft(c, n_levels, seen_draft);
            ae_controller_choose(c, &r, seen_draft, list, m->n_seqs);
        }
        for (uint32_t i = 0; i < m->n_seqs; i++) n_rows += trees[i].n;
        const double seconds = pass_seconds(m, n_rows), seen = seconds * load(m, o->n_rounds);
        ae_controller_saw_pass(c, n_rows, r.n_context, seen);
        for (uint32_t i = 0; i < m->n_seqs; i++) n_emitted += walk(c, m, list[i]);
        if (seen_draft > 0) ae_controller_saw_round(c, &r, n_rows, n_levels, n_emitted, seen + seen_draft);
        o->seconds += seconds + draft;
        o->tokens += n_emitted;
        n_context += n_emitted;
        o->n_drafted_rounds += n_rows > m->n_seqs;
        if (o->tokens > m->n_tokens / 2.0) {
            o->late_seconds += seconds + draft;
            o->late_tokens += n_emitted;
        }
    }
}

static double speed(const machine *m, outcome *o)
{
    ae_controller c;
    ae_controller_init(&c, &(ae_controller_options){.n_max = N_MAX, .free_draft = m->free_draft});
    run(&c, m, o);
    return o->tokens / o->seconds * pass_seconds(m, m->n_seqs) / m->n_seqs; /* plain decoding: 1 */
}

/* What the best depth, always kept to, would give. */
static double best_speed(const machine *m)
{
    double best = 1;
    for (uint32_t k = 1; k <= N_MAX; k++) {
        double tokens = 1, reach = 1;
        for (uint32_t d = 0; d < k; d++) tokens += reach *= m->acceptance;
        const double s = tokens / (pass_seconds(m, m->n_seqs * (k + 1)) + k * m->level) * pass_seconds(m, m->n_seqs);
        if (s > best) best = s;
    }
    return best;
}

static const double rows[] = {0.005, 0.03, 0.1, 0.3, 0.7}, levels[] = {0, 0.02, 0.1, 0.3}, acceptances[] = {0, 0.3, 0.5, 0.8, 0.95};
#define EACH(m)                                 \
    for (size_t i = 0; i < 5; i++) \
        for (size_t j = 0; j < 4; j++) \
            for (size_t k = 0; k < 5; k++) \
                if (((m)->row = rows[i], (m)->level = levels[j], (m)->acceptance = acceptances[k], (m)->free_draft = j == 0), true)

static void expect(const char *what, const machine *m, double got, double least)
{
    if (got < least)
        fail_msg("%s: row %g, level %g, acceptance %g, %u sequences: %.3f of plain, at least %.3f expected", what, m->row,
                 m->level, m->acceptance, m->n_seqs, got, least);
}

/* Never much below plain, and near the best fixed depth, on every kind of machine, what it takes to find that out counted in. */
static void test_in_quiet(void **state)
{
    (void)state;
    for (uint32_t n_seqs = 1; n_seqs <= 4; n_seqs += 3) {
        machine m = {.n_seqs = n_seqs, .n_tokens = 3000};
        EACH(&m) {
            outcome o;
            const double got = speed(&m, &o), best = best_speed(&m);
            expect("quiet", &m, got, best > 1.1 ? 0.83 * best : 0.96);
        }
    }
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
            expect("noisy start", &m, o.late_tokens / o.late_seconds, best > 1.1 ? 0.8 * best : 0.97);
        }
    }
}

/* One pass or draft in four is slow, for good. */
static void test_under_load(void **state)
{
    (void)state;
    machine m = {.n_seqs = 1, .n_tokens = 3000, .slow_share = 0.25};
    EACH(&m) {
        outcome o;
        const double got = speed(&m, &o), best = best_speed(&m);
        expect("load", &m, got, best > 1.1 ? 0.65 * best : 0.9);
    }
}

/* A drafter that was good and is not any more, on a machine where rows got dear, and back again. */
static void test_changes(void **state)
{
    (void)state;
    ae_controller c;
    ae_controller_init(&c, &(ae_controller_options){.n_max = N_MAX});
    const machine good = {.row = 0.02, .level = 0.05, .acceptance = 0.8, .n_seqs = 1, .n_tokens = 1500};
    const machine bad = {.row = 0.5, .level = 0.3, .acceptance = 0.3, .n_seqs = 1, .n_tokens = 1500};
    outcome o;
    run(&c, &good, &o);
    expect("first", &good, o.tokens / o.seconds, 0.9 * best_speed(&good));
    run(&c, &bad, &o);
    expect("then dear", &bad, o.tokens / o.seconds, 0.9);
    expect("dear for long", &bad, o.late_tokens / o.late_seconds, 0.97);
    run(&c, &good, &o);
    expect("cheap again", &good, o.late_tokens / o.late_seconds, 0.85 * best_speed(&good));
}

/* A slow pass bounds nothing below it, and is forgotten. */
static void test_one_slow_pass(void **state)
{
    (void)state;
    ae_controller c;
    ae_controller_init(&c, &(ae_controller_options){.n_max = N_MAX});
    for (int i = 0; i < 5; i++) ae_controller_saw_pass(&c, 1, 10, 1.0);
    ae_controller_saw_pass(&c, 6, 10, 9.0);
    assert_true(ae_controller_pass_seconds(&c, 6, 10) < 1.2);
    for (int i = 0; i < 3; i++) ae_controller_saw_pass(&c, 6, 10, 2.0);
    assert_true(ae_controller_pass_seconds(&c, 6, 10) > 1.99 && ae_controller_pass_seconds(&c, 6, 10) < 2.01);
    assert_true(ae_controller_pass_seconds(&c, 1, 10) < 1.01);
    assert_true(ae_controller_pass_seconds(&c, 8, 10) > 2.0);
    ae_controller_saw_pass(&c, 8, 10, 1.5); /* no pass costs more than a larger one */
    assert_true(ae_controller_pass_seconds(&c, 6, 10) < 1.51);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_quiet), cmocka_unit_test(test_after_a_noisy_start), cmocka_unit_test(test_under_load),
        cmocka_unit_test(test_changes),  cmocka_unit_test(test_one_slow_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
