/* test_trial.c - rounds with a network against rounds without it, on simulated clocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "speculate/control/clock_trial.h"

static uint64_t noise_state = 1;

/* 1, and now and then much more: another process has the cores. */
static double noise(void)
{
    noise_state = noise_state * 6364136223846793005u + 1442695040888963407u;
    const uint32_t draw = (uint32_t)(noise_state >> 33);
    return draw % 5 ? 1 + draw % 100 * 0.001 : 3;
}

/* n_rounds; one with the network makes `tokens` per sequence in `seconds`, one without 1 in 1. Returns seconds a token and
 * sequence over all, and *n_with: rounds with it. */
static double run(ae_trial *t, uint32_t n_seqs, uint32_t n_rounds, double tokens, double seconds, bool noisy, uint32_t *n_with)
{
    double all_seconds = 0, all_tokens = 0;
    *n_with = 0;
    for (uint32_t i = 0; i < n_rounds; i++) {
        ae_trial_begin(t, n_seqs, AE_TRIAL_FIRST_NETWORK);
        const bool with = ae_trial_allows(t);
        const double unloaded = with ? seconds : 1, took = unloaded * (noisy ? noise() : 1);
        const uint32_t made = (uint32_t)((with ? tokens : 1) * n_seqs);
        ae_trial_saw(t, with ? AE_TRIAL_USED : AE_TRIAL_UNUSED, made, took);
        all_seconds += unloaded;
        all_tokens += made;
        *n_with += with;
    }
    return all_seconds * n_seqs / all_tokens;
}

static void test_a_network_that_loses_rests(void **state)
{
    (void)state;
    for (uint32_t n_seqs = AE_TRIAL_SEQS; n_seqs <= 1000; n_seqs *= 5)
        for (int noisy = 0; noisy < 2; noisy++) {
            uint32_t n_with;
            ae_trial t = {0}, again = {0}, useless = {0};
            /* 1.27 with it in every round; an answer that ends with the first trial bears most of it */
            const double brief = run(&t, n_seqs, AE_TRIAL_FIRST_NETWORK + 8, 1.1, 1.4, noisy, &n_with);
            if (!noisy && brief > 1.025) fail_msg("%u sequences: %.3f", n_seqs, brief);
            assert_true(run(&again, n_seqs, 2000, 1.1, 1.4, noisy, &n_with) < (noisy ? 1.03 : 1.005));
            assert_true(run(&useless, n_seqs, 2000, 1, 2, noisy, &n_with) < (noisy ? 1.03 : 1.012));
            if (!noisy) assert_true(n_with < 25);
        }
}

static void test_a_network_that_wins_stays(void **state)
{
    (void)state;
    uint32_t n_with;
    ae_trial t = {0};
    run(&t, 64, AE_TRIAL_FIRST_NETWORK + 16, 1.5, 1.1, false, &n_with);
    assert_true(ae_trial_allows(&t));
    ae_trial again = {0};
    assert_true(run(&again, 64, 1000, 1.5, 1.1, false, &n_with) < 0.76); /* 0.733 in every round */
    ae_trial noisy = {0};
    assert_true(run(&noisy, 64, 4000, 1.5, 1.1, true, &n_with) < 0.85);
}

/* What keeps a network ready is known before it is needed. */
static void test_it_is_told_to_get_ready(void **state)
{
    (void)state;
    ae_trial t = {0};
    uint32_t n_ready = 0;
    for (int i = 0; i < 100; i++) {
        ae_trial_begin(&t, 16, AE_TRIAL_FIRST_NETWORK);
        if (ae_trial_allows(&t)) break;
        if (ae_trial_rests(&t)) assert_int_equal(n_ready, 0);
        n_ready += !ae_trial_rests(&t);
        ae_trial_saw(&t, AE_TRIAL_UNUSED, 16, 1);
    }
    assert_int_equal(n_ready, AE_TRIAL_WARM);
}

/* One that has nothing to do while it is allowed to is as good as none, and only costs its upkeep; seeing what it costs is no
 * use either. */
static void test_no_use(void **state)
{
    (void)state;
    for (int use = AE_TRIAL_UNUSED; use <= AE_TRIAL_PROBED; use++) {
        ae_trial t = {0};
        uint32_t n_allowed = 0;
        for (int i = 0; i < 80; i++) {
            ae_trial_begin(&t, 16, AE_TRIAL_FIRST_NETWORK);
            n_allowed += ae_trial_allows(&t);
            ae_trial_saw(&t, ae_trial_allows(&t) ? (ae_trial_use)use : AE_TRIAL_UNUSED, 16, 1);
        }
        assert_true(n_allowed >= 8 && n_allowed <= 16);
    }
}

/* Two kinds: when one of them comes or goes, times from before say nothing about the other. */
static void test_disturbed(void **state)
{
    (void)state;
    ae_trial t = {0};
    uint32_t n_with;
    run(&t, 64, AE_TRIAL_FIRST_NETWORK - 1, 1.5, 1.1, false, &n_with);
    ae_trial_disturb(&t);
    run(&t, 64, 3, 1.5, 1.1, false, &n_with);
    assert_false(ae_trial_allows(&t)); /* three rounds are not enough to compare with */
    run(&t, 64, 1, 1.5, 1.1, false, &n_with);
    assert_true(ae_trial_allows(&t) && ae_trial_compares(&t));
    run(&t, 64, 6, 1.5, 1.1, false, &n_with);
    assert_true(ae_trial_allows(&t) && !ae_trial_compares(&t));
    run(&t, 64, 15, 1.5, 1.1, false, &n_with);
    ae_trial_disturb(&t);
    run(&t, 64, 1, 1.5, 1.1, false, &n_with); /* a check would be due */
    assert_true(ae_trial_allows(&t));
    run(&t, 64, 6, 1.5, 1.1, false, &n_with);
    assert_true(ae_trial_allows(&t) && !ae_trial_compares(&t)); /* checked, and kept */
}

static void test_few_sequences_are_left_alone(void **state)
{
    (void)state;
    ae_trial t = {0};
    for (uint32_t i = 0; i < 100; i++) {
        ae_trial_begin(&t, 1 + i % (AE_TRIAL_SEQS - 1), AE_TRIAL_FIRST_NETWORK);
        assert_true(ae_trial_allows(&t));
        assert_false(ae_trial_rests(&t));
        ae_trial_saw(&t, AE_TRIAL_USED, 1, 5);
    }
}

static void test_another_number_of_sequences_begins_anew(void **state)
{
    (void)state;
    ae_trial t = {0};
    uint32_t n_with;
    run(&t, 64, AE_TRIAL_FIRST_NETWORK + 2, 1.5, 1.1, false, &n_with);
    assert_true(ae_trial_allows(&t));
    ae_trial_begin(&t, 30, AE_TRIAL_FIRST_NETWORK); /* in the middle of a trial */
    assert_int_equal(t.n_seqs, 30);
    assert_false(ae_trial_allows(&t));
    assert_int_equal(t.n_seen[0] + t.n_seen[1], 0);
    run(&t, 30, AE_TRIAL_FIRST_NETWORK + 36, 1.5, 1.1, false, &n_with);
    assert_true(ae_trial_allows(&t));
    ae_trial_begin(&t, 60, AE_TRIAL_FIRST_NETWORK); /* it won: a few plain rounds say whether it still does */
    assert_false(ae_trial_allows(&t) || ae_trial_rests(&t));
    run(&t, 60, 4, 1.5, 1.1, false, &n_with);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_network_that_loses_rests),
        cmocka_unit_test(test_a_network_that_wins_stays),
        cmocka_unit_test(test_it_is_told_to_get_ready),
        cmocka_unit_test(test_no_use),
        cmocka_unit_test(test_disturbed),
        cmocka_unit_test(test_few_sequences_are_left_alone),
        cmocka_unit_test(test_another_number_of_sequences_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
