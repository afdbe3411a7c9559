/* test_share.c - shares of passes (speculate/share.h), on simulated machines: how much requests of several parties slow each
 * other down, that nobody is limited without benefit, and that costs are estimated from the times of passes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "speculate/share.h"

#define MOST 64
#define PASSES 4000

typedef struct party {
    uint64_t client, group;
    uint32_t n_seqs, n_context;
    uint32_t n_prompt; /* rows that each sequence wants in each pass: a prompt without end; 0: it decodes */
    double got;        /* rows in all */
} party;

static ae_share start(uint32_t n, ae_share_cost cost)
{
    ae_share share;
    aerie_error error = {0};
    assert_int_equal(ae_share_init(&share, n, &cost, &error), AERIE_OK);
    return share;
}

static double pass_of(ae_share_cost c, double rows, double context)
{
    return c.pass + c.row * rows + c.context * context;
}

static double attended(uint32_t n_context, uint32_t n_rows)
{
    return n_rows ? n_context * (1 + (n_rows - 1) / 4.0) : 0;
}

/* Seconds of PASSES passes that these parties share. */
static double play(ae_share *share, ae_share_cost c, party *parties, uint32_t n)
{
    uint64_t last[MOST] = {0};
    double seconds = 0;
    for (uint32_t i = 0; i < n; i++) parties[i].got = 0;
    for (uint32_t pass = 1; pass <= PASSES; pass++) {
        uint32_t rows[MOST], at = 0;
        double all = 0, context = 0;
        ae_share_begin(share);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < parties[i].n_seqs; k++, at++) {
                const uint32_t wanted = parties[i].n_prompt ? parties[i].n_prompt : 1;
                assert_int_equal(at, ae_share_add(share, parties[i].client, parties[i].group, last[at], parties[i].n_context,
                                                  wanted));
            }
        ae_share_divide(share);
        at = 0;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < parties[i].n_seqs; k++, at++) {
                rows[at] = share->parts[at].n_rows;
                assert_true(rows[at] <= share->parts[at].n_wanted && share->parts[at].n_drafts > 0);
                if (rows[at]) last[at] = pass;
                all += rows[at];
                context += attended(parties[i].n_context, rows[at]);
                parties[i].got += rows[at];
            }
        assert_true(all > 0);
        ae_share_saw(share, rows, pass_of(c, all, context));
        seconds += pass_of(c, all, context);
    }
    return seconds;
}

/* How many times slower the party is than alone. */
static double slowdown(ae_share_cost c, const party *p, double seconds)
{
    const uint32_t n = p->n_prompt ? p->n_prompt : 1;
    const double round = (double)p->n_seqs * n, alone = pass_of(c, round, p->n_seqs * attended(p->n_context, n));
    return p->got > 0 ? seconds / p->got * round / alone : HUGE_VAL;
}

static const ae_share_cost tiny_model = {1, 0.05, 8e-4}, large_model = {1, 0.05, 1e-5};

static void check_bounds(ae_share_cost c, const party *given, uint32_t n, const double *most)
{
    party parties[8];
    memcpy(parties, given, n * sizeof *given);
    ae_share share = start(MOST, c);
    const double seconds = play(&share, c, parties, n);
    for (uint32_t i = 0; i < n; i++) {
        const double times = slowdown(c, &parties[i], seconds);
        if (times > most[i]) fail_msg("party %u of %u is %.2f times slower than alone, not %.2f", i, n, times, most[i]);
    }
    ae_share_free(&share);
}

static void test_nobody_is_slowed_beyond_its_share(void **state)
{
    (void)state;
    const party group[] = {{1, 1, 1, 50, 0, 0}, {1, 2, 4, 4000, 0, 0}};
    check_bounds(tiny_model, group, 2, (double[]){2, 2});
    const party seven[] = {{1, 1, 1, 50, 0, 0}, {2, 2, 7, 1000, 0, 0}};
    check_bounds(tiny_model, seven, 2, (double[]){2, 2});
    const party three[] = {{1, 1, 1, 50, 0, 0}, {2, 2, 4, 4000, 0, 0}, {3, 3, 8, 500, 0, 0}};
    check_bounds(tiny_model, three, 3, (double[]){3.1, 3.1, 3.1});
    /* a client with many requests has no more than one with a single one */
    const party many[] = {{1, 1, 1, 50, 0, 0}, {2, 2, 1, 4000, 0, 0}, {2, 3, 1, 4000, 0, 0}, {2, 4, 1, 4000, 0, 0},
                          {2, 5, 1, 4000, 0, 0}};
    check_bounds(tiny_model, many, 5, (double[]){2, 8, 8, 8, 8});
    /* a prompt without end */
    const party prompt[] = {{1, 1, 1, 50, 0, 0}, {2, 2, 1, 100, 512, 0}};
    check_bounds(large_model, prompt, 2, (double[]){2.1, 2.1});
}

/* Without shares the first of these would be 14 times slower than alone. */
static void test_a_group_shares_the_pass_with_one(void **state)
{
    (void)state;
    party parties[] = {{1, 1, 1, 50, 0, 0}, {1, 2, 4, 4000, 0, 0}};
    ae_share share = start(8, tiny_model);
    const double seconds = play(&share, tiny_model, parties, 2);
    assert_int_equal((int)parties[0].got, PASSES); /* the party that wants least is in every pass */
    assert_true(parties[1].got > PASSES / 5.0 && parties[1].got < PASSES);
    assert_true(seconds < 2.0 * PASSES * 1.1);
    ae_share_free(&share);
}

static void expect_all(ae_share_cost c, party *parties, uint32_t n)
{
    ae_share share = start(MOST, c);
    play(&share, c, parties, n);
    for (uint32_t i = 0; i < n; i++)
        assert_true(parties[i].got == (double)PASSES * parties[i].n_seqs * (parties[i].n_prompt ? parties[i].n_prompt : 1));
    ae_share_free(&share);
}

static void test_nobody_is_limited_in_vain(void **state)
{
    (void)state;
    party one[] = {{1, 1, 8, 4000, 0, 0}}, pair[] = {{1, 1, 1, 1000, 0, 0}, {2, 2, 1, 1100, 0, 0}};
    party cheap[] = {{1, 1, 1, 10, 0, 0}, {1, 2, 4, 2000, 0, 0}}, prompts[] = {{1, 1, 1, 0, 512, 0}, {2, 2, 1, 0, 512, 0}};
    party many[MOST];
    for (uint32_t i = 0; i < MOST; i++) many[i] = (party){i % 4, i, 1, 300 + i % 16, 0, 0};
    expect_all(tiny_model, one, 1);
    expect_all(tiny_model, pair, 2);
    expect_all(large_model, cheap, 2);
    expect_all(large_model, prompts, 2);
    for (uint32_t i = 0; i < MOST; i++) many[i].client = i;
    expect_all(tiny_model, many, MOST);
}

/* A new party's short prompt is not cut; a long one is. */
static void test_a_short_prompt_runs_at_once(void **state)
{
    (void)state;
    for (uint32_t n = 30; n <= 480; n *= 16) {
        ae_share share = start(8, tiny_model);
        party parties[] = {{1, 1, 1, 1000, 0, 0}};
        play(&share, tiny_model, parties, 1);
        ae_share_begin(&share);
        ae_share_add(&share, 1, 1, PASSES, 1000, 1);
        ae_share_add(&share, 2, 2, 0, 0, n);
        ae_share_divide(&share);
        assert_int_equal(share.parts[0].n_rows, 1);
        if (n == 30) assert_int_equal(share.parts[1].n_rows, 30);
        else assert_in_range(share.parts[1].n_rows, 30, 240);
        ae_share_free(&share);
    }
}

static void test_costs_are_found(void **state)
{
    (void)state;
    const ae_share_cost real = {3e-3, 2e-4, 2.5e-6};
    ae_share share = start(8, (ae_share_cost){0});
    uint64_t random = 1;
    for (uint32_t pass = 0; pass < 600; pass++) {
        uint32_t rows[4], n = 1 + pass / 7 % 4;
        double all = 0, context = 0;
        ae_share_begin(&share);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t n_context = i ? 600 * i + pass : 40;
            ae_share_add(&share, i, i, 0, n_context, rows[i] = pass % 50 == 0 && !i ? 34 : 1);
            all += rows[i];
            context += attended(n_context, rows[i]);
        }
        ae_share_divide(&share);
        random = random * 6364136223846793005u + 1442695040888963407u;
        const double noise = pass % 37 == 3 ? 20 : 0.9 + 0.2 * (double)(random >> 40) / (1 << 24);
        ae_share_saw(&share, rows, pass_of(real, all, context) * noise);
    }
    assert_true(share.known);
    assert_true(fabs(share.cost.pass / real.pass - 1) < 0.5);
    assert_true(share.cost.row > real.row / 3 && share.cost.row < real.row * 3);
    assert_true(fabs(share.cost.context / real.context - 1) < 0.5);
    ae_share_free(&share);
}

/* Impossible times leave usable estimates. */
static void test_odd_times(void **state)
{
    (void)state;
    static const double times[] = {0, -1, 1e-12, 1e9, NAN, 1e-3, HUGE_VAL, 1e-3, 1e-3, 5e-3};
    ae_share share = start(4, (ae_share_cost){0});
    for (uint32_t pass = 0; pass < 2000; pass++) {
        uint32_t rows[2];
        ae_share_begin(&share);
        ae_share_add(&share, 1, 1, pass, pass % 3 ? 1u << 20 : 0, 1);
        ae_share_add(&share, 2, 2, pass, 4, pass % 5 ? 1 : 1u << 20);
        ae_share_divide(&share);
        for (uint32_t i = 0; i < 2; i++) rows[i] = share.parts[i].n_rows, assert_true(rows[i] <= share.parts[i].n_wanted);
        assert_true(rows[0] || rows[1]);
        ae_share_saw(&share, rows, times[pass % (sizeof times / sizeof *times)]);
        assert_true(isfinite(share.cost.pass) && isfinite(share.cost.row) && isfinite(share.cost.context));
    }
    ae_share_free(&share);
}

/* A pass of n long sequences of one party, with a short one of another or without: seconds that their drafts may take, and
 * the seconds of the pass without drafts; HUGE_VAL: any number. */
static double drafts_of(ae_share *share, ae_share_cost c, uint32_t n, bool with_another, double *plain)
{
    uint32_t rows[MOST];
    double all = 0, context = 0, drafts = 0;
    ae_share_begin(share);
    for (uint32_t i = 0; i < n; i++) ae_share_add(share, 1, 1, 0, 2000, 1);
    if (with_another) ae_share_add(share, 2, 2, 0, 20, 1);
    ae_share_divide(share);
    for (uint32_t i = 0; i < n + with_another; i++) {
        const ae_share_part *p = &share->parts[i];
        rows[i] = p->n_rows;
        all += rows[i];
        context += attended(p->n_context, rows[i]);
        if (i >= n || !rows[i]) continue;
        drafts += p->n_drafts == UINT32_MAX ? HUGE_VAL : p->n_drafts * (c.row + c.context * p->n_context / 4);
    }
    *plain = pass_of(c, all, context);
    ae_share_saw(share, rows, *plain);
    return drafts;
}

/* Drafts after long contexts are expensive, so few are allowed beside another party, and shortly after. */
static void test_drafts_are_shared_by_time(void **state)
{
    const ae_share_cost c = {0.03, 1e-3, 2e-6};
    const double least = 8 * (c.row + c.context * 2000 / 4); /* 8 nodes are always allowed */
    double plain;
    (void)state;
    ae_share share = start(8, c);
    assert_true(drafts_of(&share, c, 4, false, &plain) == HUGE_VAL);
    double drafts = drafts_of(&share, c, 4, true, &plain);
    assert_true(drafts > 0 && drafts <= fmax(plain / 2, least));
    double alone = 0;
    while ((drafts = drafts_of(&share, c, 4, false, &plain)) < HUGE_VAL) {
        assert_true(drafts >= plain / 4 && drafts <= fmax(plain, least));
        alone += plain;
        assert_true(alone < 4);
    }
    assert_true(alone > 1);
    ae_share_free(&share);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_is_slowed_beyond_its_share), cmocka_unit_test(test_a_group_shares_the_pass_with_one),
        cmocka_unit_test(test_nobody_is_limited_in_vain),         cmocka_unit_test(test_a_short_prompt_runs_at_once),
        cmocka_unit_test(test_costs_are_found),                   cmocka_unit_test(test_odd_times),
        cmocka_unit_test(test_drafts_are_shared_by_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
