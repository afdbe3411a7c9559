/* test_comm.c - ranks that are threads: gathered and sent data reach the right ranks, nobody waits in a group that has failed,
 * a slow network takes as long as it should, and texts that describe a network are parsed. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/os.h"
#include "comm/comm.h"
#include "comm/mpi.h"

#define MOST 7
#define STRIDE 40
#define N_ROWS 3

static void need(aerie_status status, const aerie_error *error)
{
    if (status != AERIE_OK) fail_msg("%s", error->text);
}

typedef struct rank {
    ae_comm *comm;
    pthread_t thread;
    ae_receivers to;
    uint32_t n_rounds, fails_at; /* the round in which rank 1 fails */
    uint32_t n_wrong, n_given;
} rank;

/* Uneven slices, one of them empty where there are more than two ranks. */
static ae_slices slices_of(uint32_t n)
{
    ae_slices s = {{0}, {0}};
    uint32_t at = 1;
    for (uint32_t r = 0; r < n; r++) {
        s.first[r] = at;
        s.n[r] = n > 2 && r == 1 ? 0 : 2 + r % 3;
        at += s.n[r] + 1; /* with a gap of one float that no rank has */
    }
    return s;
}

static float value_of(uint32_t of, uint32_t row, uint32_t column, uint32_t round)
{
    return (float)(of * 100000 + round * 1000 + row * 100 + column);
}

static void check(rank *me, const float *rows, const ae_slices *s, uint32_t round, bool gets)
{
    for (uint32_t row = 0; row < N_ROWS; row++)
        for (uint32_t r = 0; r < me->comm->n_ranks; r++)
            for (uint32_t i = s->first[r]; i < s->first[r] + s->n[r]; i++) {
                const bool has = gets || r == me->comm->rank;
                me->n_wrong += rows[row * STRIDE + i] != (has ? value_of(r, row, i, round) : -1.0f);
            }
    me->n_wrong += rows[0] != -1.0f; /* belongs to nobody */
}

static void *take_part(void *context)
{
    rank *me = context;
    const uint32_t own = me->comm->rank;
    const ae_slices s = slices_of(me->comm->n_ranks);
    for (uint32_t round = 0; round < me->n_rounds; round++) {
        float rows[N_ROWS * STRIDE];
        unsigned char frame[AE_COMM_FRAME];
        for (size_t i = 0; i < N_ROWS * STRIDE; i++) rows[i] = -1.0f;
        for (uint32_t row = 0; row < N_ROWS; row++)
            for (uint32_t i = s.first[own]; i < s.first[own] + s.n[own]; i++) rows[row * STRIDE + i] = value_of(own, row,
                                                                                                                i, round);
        if (me->fails_at && round + 1 == me->fails_at && own == 1) ae_comm_fail(me->comm, "for a test");
        ae_comm_gather(me->comm, &(ae_comm_part){rows, STRIDE, sizeof *rows, N_ROWS, &s}, 1, me->to);
        if (ae_comm_status(me->comm, NULL) != AERIE_OK) return NULL;
        check(me, rows, &s, round, ae_receives(me->to, own));
        memset(frame, own ? 0 : (int)round % 200 + 1, sizeof frame);
        ae_comm_frame(me->comm, frame);
        if (ae_comm_status(me->comm, NULL) != AERIE_OK) return NULL;
        me->n_wrong += frame[0] != round % 200 + 1 || frame[sizeof frame - 1] != round % 200 + 1;
        me->n_given++;
    }
    return NULL;
}

static void run_group(uint32_t n, ae_receivers to, uint32_t n_rounds, uint32_t fails_at, const ae_comm_delay *delay,
                      rank *ranks)
{
    aerie_error error = {0};
    ae_comm *comms[MOST];
    need(ae_comm_threads(comms, n, &error), &error);
    for (uint32_t i = 0; i < n; i++) {
        ranks[i] = (rank){.comm = comms[i], .to = to, .n_rounds = n_rounds, .fails_at = fails_at};
        if (delay) need(ae_comm_slow(&ranks[i].comm, comms[i], delay, &error), &error);
        need(ae_comm_reserve(ranks[i].comm, STRIDE * N_ROWS * sizeof(float), &error), &error);
    }
    for (uint32_t i = 1; i < n; i++) assert_int_equal(pthread_create(&ranks[i].thread, NULL, take_part, &ranks[i]), 0);
    take_part(&ranks[0]);
    for (uint32_t i = 1; i < n; i++) pthread_join(ranks[i].thread, NULL);
}

static void close_group(rank *ranks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) ae_comm_close(ranks[i].comm);
}

static void test_rounds(void **state)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 7};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t k = 0; k < sizes[i] * sizes[i]; k++) { /* every range of receivers */
            rank ranks[MOST];
            const uint32_t n = sizes[i];
            const ae_receivers to = {k / n, k % n + 1};
            if (to.first + to.n > n) continue;
            const ae_slices s = slices_of(n);
            uint64_t sum = 0;
            run_group(n, to, 20, 0, NULL, ranks);
            for (uint32_t r = 0; r < n; r++) sum += s.n[r] * N_ROWS * sizeof(float);
            for (uint32_t r = 0; r < n; r++) {
                const uint64_t own = s.n[r] * N_ROWS * sizeof(float);
                assert_int_equal(ranks[r].n_wrong, 0);
                assert_int_equal(ranks[r].n_given, 20);
                const bool gets = ae_receives(to, r);
                assert_int_equal(ranks[r].comm->counts.n_rounds, n > 1 && (own || gets) ? 20 : 0);
                assert_int_equal(ranks[r].comm->counts.n_sent, 20 * own * (to.n - gets));
                assert_int_equal(ranks[r].comm->counts.n_received, gets ? 20 * (sum - own) * (n > 1) : 0);
            }
            close_group(ranks, n);
        }
}

static void test_failure(void **state)
{
    (void)state;
    for (uint32_t at = 1; at <= 20; at += 6) {
        rank ranks[MOST];
        run_group(4, (ae_receivers){0, 4}, 20, at, NULL, ranks);
        for (uint32_t r = 0; r < 4; r++) {
            aerie_error error;
            assert_int_equal(ranks[r].n_wrong, 0);
            assert_in_range(ranks[r].n_given, at > 2 ? at - 2 : 0, at - 1); /* a late rank learns of it in the round before */
            assert_int_equal(ae_comm_status(ranks[r].comm, &error), AERIE_ERROR_UNSUPPORTED);
            float rows[STRIDE] = {0};
            const ae_slices s = slices_of(4);
            const ae_comm_part part = {rows, STRIDE, sizeof *rows, 1, &s};
            ae_comm_gather(ranks[r].comm, &part, 1, ae_to_all(ranks[r].comm)); /* returns at once */
        }
        close_group(ranks, 4);
    }
}

static void *give_frame(void *context)
{
    rank *me = context;
    unsigned char frame[AE_COMM_FRAME];
    memset(frame, 1, sizeof frame);
    ae_comm_frame(me->comm, frame);
    memset(frame, 2, sizeof frame); /* the rank has left the round */
    return NULL;
}

/* Rank 0 leaves a round because rank 1 has failed; rank 2 enters it after that, and must not take what rank 0 had offered. */
static void test_late(void **state)
{
    (void)state;
    aerie_error error = {0};
    ae_comm *comms[3];
    unsigned char frame[AE_COMM_FRAME] = {0};
    need(ae_comm_threads(comms, 3, &error), &error);
    rank first = {.comm = comms[0]};
    assert_int_equal(pthread_create(&first.thread, NULL, give_frame, &first), 0);
    ae_comm_frame(comms[1], frame);
    assert_int_equal(frame[0], 1);
    ae_comm_fail(comms[1], "for a test");
    pthread_join(first.thread, NULL);
    frame[0] = 0;
    ae_comm_frame(comms[2], frame);
    assert_int_equal(frame[0], 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ae_comm_status(comms[i], &error), AERIE_ERROR_UNSUPPORTED);
        ae_comm_close(comms[i]);
    }
}

/* A round that is larger than planned writes nothing and ends the group. */
static void test_too_large(void **state)
{
    (void)state;
    aerie_error error = {0};
    ae_comm *comms[2];
    float rows[4 * STRIDE * N_ROWS] = {0};
    const ae_slices s = slices_of(2);
    need(ae_comm_threads(comms, 2, &error), &error);
    need(ae_comm_reserve(comms[0], 16, &error), &error);
    ae_comm_gather(comms[0], &(ae_comm_part){rows, STRIDE, sizeof *rows, N_ROWS, &s}, 1, ae_to_all(comms[0]));
    assert_int_equal(ae_comm_status(comms[0], &error), AERIE_ERROR_UNSUPPORTED);
    assert_int_equal(comms[0]->counts.n_rounds, 0);
    for (int i = 0; i < 2; i++) ae_comm_close(comms[i]);
    assert_int_equal(ae_comm_threads(comms, 0, &error), AERIE_ERROR_ARGUMENT);
    assert_int_equal(ae_comm_threads(comms, AE_MAX_RANKS + 1, &error), AERIE_ERROR_ARGUMENT);
}

static void test_slow(void **state)
{
    (void)state;
    const ae_comm_delay delay = {.latency = 2e-3, .bandwidth = 100e3, .jitter = 0, .seed = 1};
    rank ranks[MOST];
    run_group(3, (ae_receivers){0, 3}, 10, 0, &delay, ranks);
    for (uint32_t r = 0; r < 3; r++) { /* slices of 2, 0 and 4 floats, 3 rows: rank 1 gets 72 bytes */
        assert_int_equal(ranks[r].n_wrong, 0);
        assert_true(ranks[r].comm->counts.seconds >= 10 * (2e-3 + 72 / 100e3) * 0.99);
    }
    close_group(ranks, 3);
}

static void test_parse(void **state)
{
    static const char *const bad[] = {"latency", "latency=", "latency=5", "latency=-1us", "latency=61s", "bandwidth=1",
                                      "jitter=1",
                                      "jitter=nan", "latency=1e400s", "latency=1us,,seed=1", "speed=1us", "latency=1usx", ",",
                                      "latency=0.0000000000000000000000000000000000000000000000000000000000000000001us"};
    aerie_error error;
    ae_comm_delay d;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (ae_comm_delay_parse(bad[i], &d, &error) != AERIE_ERROR_ARGUMENT) fail_msg("\"%s\" was taken", bad[i]);
        assert_non_null(strstr(error.text, "latency=200us"));
    }
    need(ae_comm_delay_parse("latency=200us,bandwidth=117MB,jitter=0.1,seed=7", &d, &error), &error);
    assert_true(d.latency > 199e-6 && d.latency < 201e-6 && d.bandwidth == 117e6 && d.seed == 7 && d.jitter == 0.1);
    need(ae_comm_delay_parse("", &d, &error), &error);
    assert_true(d.latency == 0 && d.bandwidth == 0);
}

static void test_addresses(void **state)
{
    static const struct {
        uint8_t bytes[16];
        size_t n;
        bool is_public;
    } cases[] = {
        {{10, 1, 2, 3}, 4, false},     {{11, 0, 0, 1}, 4, true},      {{172, 16, 0, 1}, 4, false}, {{172, 31, 9, 9}, 4, false},
        {{172, 32, 0, 1}, 4, true},    {{192, 168, 7, 7}, 4, false},  {{192, 169, 0, 1}, 4, true}, {{127, 0, 0, 1}, 4, false},
        {{169, 254, 1, 1}, 4, false},  {{100, 64, 0, 1}, 4, false},   {{100, 128, 0, 1}, 4, true}, {{8, 8, 8, 8}, 4, true},
        {{0x20, 0x01, 0x0d}, 16, true}, {{0xfd, 0x12}, 16, false},    {{0xfe, 0x80}, 16, false},   {{0xff, 0x02}, 16, true},
        {{[15] = 1}, 16, false},       {{[10] = 0xff, 0xff, 10, 0, 0, 1}, 16, false}, {{[10] = 0xff, 0xff, 9, 9, 9, 9}, 16,
                                                                                       true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (ae_comm_is_public(cases[i].bytes, cases[i].n) != cases[i].is_public) fail_msg("address %zu", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds), cmocka_unit_test(test_failure), cmocka_unit_test(test_late),
        cmocka_unit_test(test_too_large), cmocka_unit_test(test_slow), cmocka_unit_test(test_parse),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
