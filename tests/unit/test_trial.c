/* test_trial.c - rounds with a network against rounds without it, on simulated clocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "spec/trial.h"

static uint64_t noise_state = 1;

/* 1, now and then much more: somebody else has the cores. */
static double noise(void)
{
    noise_state = noise_state * 6364136223846793005u + 1442695040888963407u;
    const uint32_t draw = (uint32_t)(noise_state >> 33);
    return draw % 5 ? 1 + draw % 100 * 0.001 : 3;
}

/* n_rounds of 64 sequences; a round with the network makes `tokens` per sequence in `seconds`, one without 1 in 1. Returns seconds
 * a token over all. */
static double run(ae_trial *t, uint32_t n_seqs, uint32_t n_rounds, double tokens, double seconds, bool noisy)
{
    double all_seconds = 0, all_tokens = 0;
    for (uint32_t i = 0; i < n_rounds; i++) {
        const bool with = ae_trial_allows(t, n_seqs);
        const double took = (with ? seconds : 1) * (noisy ? noise() : 1);
        const uint32_t made = (uint32_t)((with ? tokens : 1) * n_seqs);
        ae_trial_saw(t, with, made, took);
        all_seconds += took / (noisy ? 1.5 : 1);
        all_tokens += made;
    }
    return all_seconds * n_seqs / all_tokens;
}

static void test_a_network_that_loses_rests(void **state)
{
    (void)state;
    for (int noisy = 0; noisy < 2; noisy++) {
        ae_trial t = {0};
        run(&t, 64, 16, 1.15, 1.3, noisy);
        assert_true(ae_trial_rests(&t));
        ae_trial again = {0};
        if (!noisy) assert_true(run(&again, 64, 1000, 1.15, 1.3, false) < 1.01); /* 1.13 with it in every round */
    }
}

static void test_a_network_that_wins_stays(void **state)
{
    (void)state;
    for (int noisy = 0; noisy < 2; noisy++) {
        ae_trial t = {0};
        run(&t, 64, 16, 1.5, 1.1, noisy);
        assert_false(ae_trial_rests(&t));
        assert_true(ae_trial_allows(&t, 64));
        ae_trial again = {0};
        if (!noisy) assert_true(run(&again, 64, 1000, 1.5, 1.1, false) < 0.76); /* 0.733 in every round */
    }
}

static void test_few_sequences_are_left_alone(void **state)
{
    (void)state;
    ae_trial t = {0};
    for (uint32_t i = 0; i < 100; i++) {
        assert_true(ae_trial_allows(&t, 1 + i % (AE_TRIAL_SEQS - 1)));
        ae_trial_saw(&t, true, 1, 5);
    }
    assert_false(ae_trial_rests(&t));
}

static void test_another_number_of_sequences_begins_anew(void **state)
{
    (void)state;
    ae_trial t = {0};
    run(&t, 64, 10, 1.15, 1.3, false);
    ae_trial_allows(&t, 30);
    assert_int_equal(t.n_seqs, 30);
    assert_int_equal(t.n_rounds, 0);
    run(&t, 30, 16, 1.15, 1.3, false);
    assert_true(ae_trial_rests(&t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_network_that_loses_rests),
        cmocka_unit_test(test_a_network_that_wins_stays),
        cmocka_unit_test(test_few_sequences_are_left_alone),
        cmocka_unit_test(test_another_number_of_sequences_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
