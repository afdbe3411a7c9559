/* test_pool.c - the thread pool: every item once, whatever the number of threads, with and without sleep between jobs. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/pool.h"

#define MAX_ITEMS 1000

typedef struct counts {
    uint32_t plain[MAX_ITEMS]; /* written without atomics: a second run of an item is a race that TSan reports */
    atomic_uint bad_worker;
    uint32_t n_workers;
} counts;

static void count(void *context, uint32_t item, uint32_t i_worker)
{
    counts *c = context;
    c->plain[item]++;
    if (i_worker >= c->n_workers) atomic_fetch_add(&c->bad_worker, 1);
}

static void test_every_item_once(void **state)
{
    (void)state;
    const uint32_t sizes[] = {0, 1, 2, 3, 7, 64, MAX_ITEMS};
    for (uint32_t n_workers = 1; n_workers <= 5; n_workers++) {
        ae_pool *pool;
        assert_int_equal(ae_pool_create(&pool, n_workers, NULL), AERIE_OK);
        assert_int_equal(ae_pool_n_workers(pool), n_workers);
        for (int round = 0; round < 300; round++) {
            const uint32_t n = sizes[round % 7];
            counts c = {.n_workers = n_workers};
            ae_pool_run(pool, count, &c, n);
            for (uint32_t i = 0; i < MAX_ITEMS; i++) assert_int_equal(c.plain[i], i < n);
            assert_int_equal(c.bad_worker, 0);
            if (round % 50 == 0) nanosleep(&(struct timespec){0, 2000000}, NULL); /* let the workers fall asleep */
        }
        ae_pool_free(pool);
    }
}

typedef struct tally {
    atomic_uint count[64];
    uint32_t n;
} tally;

static void tally_item(void *context, uint32_t item, uint32_t i_worker)
{
    tally *t = context;
    (void)i_worker;
    if (item < t->n) atomic_fetch_add(&t->count[item], 1);
}

/* Rounds of different sizes in quick succession, in which a late worker sees the next round being set up, and pools that end at
 * once, in which it sees their end. */
static void test_rounds_in_quick_succession(void **state)
{
    (void)state;
    for (uint32_t run = 0; run < 300; run++) {
        static tally tallies[2];
        ae_pool *pool;
        assert_int_equal(ae_pool_create(&pool, 2 + run % 3, NULL), AERIE_OK);
        for (uint32_t round = 0; round < 400; round++) {
            tally *t = &tallies[round & 1];
            t->n = 2 + round * 7 % 63;
            for (uint32_t i = 0; i < 64; i++) atomic_store(&t->count[i], 0);
            ae_pool_run(pool, tally_item, t, t->n);
            for (uint32_t i = 0; i < 64; i++)
                if (atomic_load(&t->count[i]) != (i < t->n))
                    fail_msg("round %u: item %u of %u ran %u times", round, i, t->n, atomic_load(&t->count[i]));
        }
        ae_pool_free(pool);
    }
}

typedef struct sharer {
    ae_pool *pool;
    uint32_t *in_turn; /* plain: TSan reports a turn that overlaps another */
    counts counts;
    bool coarse;       /* three rounds in one turn */
    bool ok;
} sharer;

static void *take_turns(void *user)
{
    sharer *s = user;
    s->ok = true;
    for (uint32_t turn = 0; turn < 200; turn++) {
        if (s->coarse) {
            ae_pool_hold(s->pool);
            ae_pool_hold(s->pool); /* once more */
            (*s->in_turn)++;
        }
        for (uint32_t round = 0; round < 3; round++) ae_pool_run(s->pool, count, &s->counts, 50);
        if (s->coarse) {
            ae_pool_release(s->pool);
            s->ok = s->ok && *s->in_turn == 1; /* no other thread had the pool in between */
            (*s->in_turn)--;
            ae_pool_release(s->pool);
        }
    }
    return NULL;
}

/* Threads that run jobs of their own on one pool, with turns of several rounds and without. */
static void test_threads_share_a_pool(void **state)
{
    (void)state;
    for (uint32_t n_workers = 1; n_workers <= 3; n_workers++) {
        static sharer sharers[4];
        pthread_t threads[4];
        uint32_t in_turn = 0;
        ae_pool *pool;
        assert_int_equal(ae_pool_create(&pool, n_workers, NULL), AERIE_OK);
        for (size_t i = 0; i < 4; i++) {
            sharers[i] = (sharer){.pool = pool, .in_turn = &in_turn, .counts.n_workers = n_workers, .coarse = i != 3};
            assert_int_equal(pthread_create(&threads[i], NULL, take_turns, &sharers[i]), 0);
        }
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_true(sharers[i].ok);
            assert_int_equal(sharers[i].counts.bad_worker, 0);
            for (uint32_t k = 0; k < 50; k++) assert_int_equal(sharers[i].counts.plain[k], 600);
        }
        ae_pool_free(pool);
    }
}

/* The items of a cut are adjacent and not empty, and all but the last have at least the requested size. */
static void test_items_cover_the_pieces(void **state)
{
    (void)state;
    for (uint32_t n_workers = 1; n_workers <= 65; n_workers += n_workers < 9 ? 1 : 28) {
        for (uint32_t n = 0; n < 700; n++) {
            for (uint32_t least = 0; least < 5; least++) {
                const ae_items items = ae_items_cut(n, n_workers, least);
                const uint32_t n_items = ae_items_count(&items), share = (n + n_workers - 1) / n_workers;
                uint32_t at = 0;
                for (uint32_t i = 0; i < n_items; i++) {
                    const uint32_t end = ae_items_end(&items, i);
                    assert_int_equal(ae_items_begin(&items, i), at);
                    assert_true(end > at && end - at <= share);
                    assert_true(end - at >= least || end - at == share || i + 1 == n_items);
                    at = end;
                }
                assert_int_equal(at, n);
                assert_true(n_items <= 9 * n_workers);
            }
        }
    }
}

static void test_refuses_nonsense(void **state)
{
    (void)state;
    ae_pool *pool;
    aerie_error error;
    assert_int_equal(ae_pool_create(&pool, 0, &error), AERIE_ERROR_ARGUMENT);
    assert_int_equal(ae_pool_create(&pool, 5000, &error), AERIE_ERROR_ARGUMENT);
    assert_null(pool);
    ae_pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_once),
        cmocka_unit_test(test_rounds_in_quick_succession),
        cmocka_unit_test(test_threads_share_a_pool),
        cmocka_unit_test(test_items_cover_the_pieces),
        cmocka_unit_test(test_refuses_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
