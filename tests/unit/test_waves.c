/* test_waves.c - the number of waves in which a pipeline's passes run (speculate/control/waves.h), against simulated
 * pipelines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "speculate/control/waves.h"

#define N_STAGES 4
#define N_PASSES 4000

/* Seconds of a pass in n waves on stages that take `fixed` seconds for a wave and `row` for each of its rows. */
static double pass_seconds(uint32_t n_rows, uint32_t n, double fixed, double row)
{
    return (N_STAGES + n - 1) * (fixed + row * n_rows / n);
}

/* Returns the time of many passes over that of as many with the best number of waves; *best: that number. */
static double regret(uint32_t n_rows, double fixed, double row, uint32_t *best, uint32_t *last)
{
    ae_waves w = {.n_stages = N_STAGES};
    double sum = 0, least = pass_seconds(n_rows, 1, fixed, row);
    *best = 1;
    for (uint32_t n = N_STAGES; n <= 4 * N_STAGES && n <= n_rows; n *= 2)
        if (pass_seconds(n_rows, n, fixed, row) < least) *best = n, least = pass_seconds(n_rows, n, fixed, row);
    uint32_t n_best = 0;
    for (uint32_t i = 0; i < N_PASSES; i++) {
        const uint32_t n = ae_waves_choose(&w, n_rows, n_rows);
        const double seconds = pass_seconds(n_rows, n, fixed, row);
        assert_in_range(n, 1, n_rows);
        sum += seconds;
        n_best += n == *best;
        ae_waves_saw(&w, n_rows, n, seconds);
    }
    *last = n_best;
    return sum / (N_PASSES * least);
}

static void test_best_is_found(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_rows, best;
        double fixed, row;
    } cases[] = {
        {1, 1, 1, 1},       /* nothing to cut */
        {3, 1, 0, 1},       /* fewer rows than stages */
        {8, 1, 1, 0.01},    /* a stage reads its weights, and little else */
        {16, 4, 1, 0.25},
        {512, 16, 1, 1},    /* a prompt */
        {512, 8, 20, 1},
        {512, 1, 1000, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t best, n_best;
        const double r = regret(cases[i].n_rows, cases[i].fixed, cases[i].row, &best, &n_best);
        assert_int_equal(best, cases[i].best);
        assert_true(r < 1.02);
        assert_true(n_best > N_PASSES * 95 / 100);
    }
}

/* A pipeline whose stages change is learned again. */
static void test_changes_are_seen(void **state)
{
    (void)state;
    ae_waves w = {.n_stages = N_STAGES};
    uint32_t n_new = 0;
    for (uint32_t i = 0; i < 2 * N_PASSES; i++) {
        const bool now = i >= N_PASSES;
        const uint32_t n = ae_waves_choose(&w, 64, 64);
        n_new += now && n > 1;
        ae_waves_saw(&w, 64, n, now ? pass_seconds(64, n, 1, 1) : pass_seconds(64, n, 1, 0.001));
    }
    assert_true(n_new > N_PASSES / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_is_found),
        cmocka_unit_test(test_changes_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
