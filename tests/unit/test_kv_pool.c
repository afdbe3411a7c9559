/* test_kv_pool.c - the KV cache's pages: random operations on sequences in a small pool, compared with a plain model of what
 * each slot holds; with and without layers that have a window. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "cache/kv.h"
#include "device/device.h"

#define N_SEQS 5
#define N_SLOTS 400
#define N_POOL 14 /* pages; a sequence at its longest needs 8 with its spare one */
#define HEAD_DIM 32
#define NO_KEY ((ae_kv_key){0})

/* A position's bytes are a hash of the tokens up to it here, so a page that was computed from other tokens is detected. */
static uint64_t mix(uint64_t h, int32_t token)
{
    h = (h ^ (uint32_t)token) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

typedef struct model_seq {
    int32_t tokens[N_SLOTS];
    uint64_t hash[N_SLOTS];
    uint32_t n;
} model_seq;

typedef struct cache {
    ae_backend *backend;
    ae_kv *kv;
    model_seq seqs[N_SEQS];
    uint64_t random;
    uint32_t window; /* of the second layer; 0: there is none */
} cache;

static uint32_t draw(cache *c, uint32_t n)
{
    c->random = c->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(c->random >> 33) % n;
}

static void open_cache(cache *c, uint32_t n_pages, uint32_t window, ae_kv_type type)
{
    aerie_error error = {0};
    const ae_kv_layer layers[] = {{1, HEAD_DIM, 0, false, false}, {1, HEAD_DIM, 0, false, false}};
    const uint32_t windows[] = {0, window};
    memset(c, 0, sizeof *c);
    c->random = 12345;
    c->window = window;
    assert_int_equal(ae_backend_open(&c->backend, NULL, "ref", &error), AERIE_OK);
    const ae_kv_options options = {.n_layers = window ? 2 : 1, .layers = layers, .windows = windows, .n_seqs = N_SEQS,
                                   .n_slots = N_SLOTS, .type = type, .n_pages = n_pages, .n_batch = 160, .n_retained = 2};
    assert_int_equal(ae_kv_create(&c->kv, c->backend, &options, &error), AERIE_OK);
}

static void close_cache(cache *c)
{
    ae_kv_free(c->kv);
    ae_backend_close(c->backend);
}

static void put(cache *c, uint32_t seq, uint32_t slot, uint64_t hash)
{
    uint8_t bytes[2 * (2 * HEAD_DIM * 2 + 8)];
    for (size_t i = 0; i < ae_kv_slot_bytes(c->kv); i++) bytes[i] = (uint8_t)(hash >> i % 8 * 8);
    ae_kv_write(c->kv, NULL, seq, slot, bytes);
}

/* Positions that no row can see any more may be lost, and are zero then. */
static void check_slot(const cache *c, uint32_t seq, uint32_t slot)
{
    uint8_t bytes[2 * (2 * HEAD_DIM * 2 + 8)];
    static const uint8_t zeros[sizeof bytes];
    const size_t n_all = ae_kv_slot_bytes(c->kv), n_whole = c->window ? n_all / 2 : n_all;
    ae_kv_read(c->kv, NULL, seq, slot, bytes);
    const bool lost = slot + c->window <= c->seqs[seq].n && !memcmp(bytes + n_whole, zeros, n_all - n_whole);
    for (size_t i = 0; i < (lost ? n_whole : n_all); i++)
        if (bytes[i] != (uint8_t)(c->seqs[seq].hash[slot] >> i % 8 * 8))
            fail_msg("sequence %u, slot %u is not its own", seq, slot);
}

static void check_all(const cache *c)
{
    assert_true(ae_kv_is_sound(c->kv));
    for (uint32_t i = 0; i < N_SEQS; i++) {
        assert_int_equal(ae_kv_n_live(c->kv, i), c->seqs[i].n);
        for (uint32_t s = 0; s < c->seqs[i].n; s++) check_slot(c, i, s);
    }
}

static void set_token(model_seq *m, uint32_t i, int32_t token)
{
    m->tokens[i] = token;
    m->hash[i] = mix(i ? m->hash[i - 1] : 1, token);
}

/* Texts that share beginnings: from few tokens, and mostly the same token at a position. */
static int32_t some_token(cache *c, uint32_t position)
{
    return draw(c, 60) ? (int32_t)(position % 7) : (int32_t)draw(c, 3);
}

/* Adds n positions and, after them, drafts of which some are kept. True: there was room. */
static bool extend(cache *c, uint32_t seq, uint32_t n)
{
    model_seq *m = &c->seqs[seq];
    const uint32_t n_drafts = draw(c, 3) ? 0 : draw(c, 6), available = ae_kv_n_available(c->kv);
    if (m->n + n + n_drafts > N_SLOTS) return true;
    const uint32_t missing = ae_kv_n_missing(c->kv, seq, n + n_drafts);
    const aerie_status status = ae_kv_reserve(c->kv, NULL, seq, n + n_drafts, NULL);
    assert_int_equal(status, missing > available ? AERIE_ERROR_LIMIT : AERIE_OK);
    if (status != AERIE_OK) return false;
    for (uint32_t i = 0; i < n; i++) {
        set_token(m, m->n + i, some_token(c, m->n + i));
        put(c, seq, m->n + i, m->hash[m->n + i]);
    }
    int32_t path[8];
    uint32_t n_path = 0;
    for (uint32_t i = 0; i < n_drafts; i++) {
        const bool keep = draw(c, 2);
        put(c, seq, m->n + n + i, 99 + i);
        if (!keep) continue;
        set_token(m, m->n + n + n_path, (int32_t)(i % 3));
        put(c, seq, m->n + n + i, m->hash[m->n + n + n_path]);
        path[n_path++] = (int32_t)(m->n + n + i);
    }
    assert_int_equal(ae_kv_commit(c->kv, NULL, seq, n, path, n_path), AERIE_OK);
    m->n += n + n_path;
    return true;
}

static void adopt(cache *c, uint32_t seq)
{
    int32_t tokens[N_SLOTS];
    const uint32_t n = 1 + draw(c, 300);
    for (uint32_t i = 0; i < n; i++) tokens[i] = some_token(c, i);
    const uint32_t has = ae_kv_match(c->kv, NO_KEY, tokens, n), got = ae_kv_adopt(c->kv, NULL, seq, NO_KEY, tokens, n);
    assert_true(got == has || (got < has && got % AE_KV_PAGE == 0 && (c->window || got == has - has % AE_KV_PAGE)));
    for (uint32_t i = 0; i < got; i++) set_token(&c->seqs[seq], i, tokens[i]);
    c->seqs[seq].n = got;
}

/* Saves a sequence to another cache and back: the visible positions are unchanged. */
static void move_out(cache *c, uint32_t seq)
{
    model_seq *m = &c->seqs[seq];
    const uint32_t n = ae_kv_landing(c->kv, seq, draw(c, m->n + 1)), first = ae_kv_saved_first(c->kv, seq, n);
    const uint32_t seen = n < c->window ? 0 : n + 1 - c->window;
    void *bytes = test_malloc(ae_kv_saved_bytes(c->kv, n, first) + 1);
    assert_true(first <= n && (!n || first <= seen));
    const uint32_t border = n * 5 / 8; /* in two pieces */
    ae_kv_save(c->kv, NULL, seq, first, border, n, ae_kv_bytes_at(c->kv, n, first, border, bytes));
    ae_kv_save(c->kv, NULL, seq, first, 0, border, ae_kv_bytes_at(c->kv, n, first, 0, bytes));
    ae_kv_truncate(c->kv, seq, 0);
    ae_kv_forget_prefixes(c->kv);
    const uint32_t half = n / 2 / AE_KV_PAGE * AE_KV_PAGE;
    if (ae_kv_write_prefix(c->kv, NULL, NO_KEY, m->tokens, n, first, 0, half, ae_kv_bytes_at(c->kv, n, first, 0, bytes)))
        ae_kv_write_prefix(c->kv, NULL, NO_KEY, m->tokens, n, first, half, n, ae_kv_bytes_at(c->kv, n, first, half, bytes));
    assert_true(ae_kv_is_sound(c->kv));
    const uint32_t has = ae_kv_match(c->kv, NO_KEY, m->tokens, n);
    if (has == n) {
        const uint32_t again = ae_kv_prefix_first(c->kv, NO_KEY, m->tokens, n);
        assert_true(!n || again <= seen);
        void *copy = test_malloc(ae_kv_saved_bytes(c->kv, n, again) + 1);
        ae_kv_read_prefix(c->kv, NULL, NO_KEY, m->tokens, n, again, 0, border, ae_kv_bytes_at(c->kv, n, again, 0, copy));
        ae_kv_read_prefix(c->kv, NULL, NO_KEY, m->tokens, n, again, border, n, ae_kv_bytes_at(c->kv, n, again, border, copy));
        if (again == first) assert_memory_equal(copy, bytes, ae_kv_saved_bytes(c->kv, n, again));
        test_free(copy);
    }
    m->n = ae_kv_adopt(c->kv, NULL, seq, NO_KEY, m->tokens, n);
    test_free(bytes);
}

static void live(ae_kv_type type, uint32_t n_pages, uint32_t window)
{
    cache c;
    open_cache(&c, n_pages, window, type);
    uint32_t n_full = 0, n_adopted = 0, n_lower = 0;
    assert_int_equal(ae_kv_loses_parts(c.kv), window && n_pages > N_POOL);
    for (uint32_t step = 0; step < (window ? 8000 : 20000); step++) {
        const uint32_t seq = draw(&c, N_SEQS), what = draw(&c, window ? 12 : 10);
        model_seq *m = &c.seqs[seq];
        if (what < 5) {
            n_full += !extend(&c, seq, draw(&c, 150));
        } else if (what == 5) {
            const uint32_t n = draw(&c, m->n + 1), landing = ae_kv_landing(c.kv, seq, n);
            n_lower += landing < n;
            assert_true(landing == n || (window && landing < n && landing % AE_KV_PAGE == 0));
            if (landing < n) assert_int_equal(ae_kv_truncate(c.kv, seq, n), AERIE_ERROR_INTERNAL);
            assert_int_equal(ae_kv_truncate(c.kv, seq, landing), AERIE_OK);
            m->n = landing;
        } else if (what == 6) {
            ae_kv_keep(c.kv, seq, NO_KEY, m->tokens);
        } else if (what == 7) { /* the sequence ends, and the tree keeps it */
            ae_kv_keep(c.kv, seq, NO_KEY, m->tokens);
            ae_kv_truncate(c.kv, seq, 0);
            m->n = 0;
        } else if (what == 8) {
            adopt(&c, seq);
            n_adopted += m->n > 0;
        } else if (what == 10) {
            ae_kv_retain(c.kv, seq);
        } else if (what == 11) {
            if (!draw(&c, 20)) move_out(&c, seq);
        } else {
            const uint32_t from = draw(&c, N_SEQS), n = draw(&c, N_SLOTS);
            ae_kv_share(c.kv, NULL, seq, from, n);
            const uint32_t got = ae_kv_n_live(c.kv, seq);
            assert_true(got <= c.seqs[from].n || seq == from);
            if (seq != from) *m = c.seqs[from];
            m->n = got;
        }
        if (step % 16 == 0) check_all(&c);
    }
    print_message("%u reservations refused, %u adoptions, %u cuts to less\n", n_full, n_adopted, n_lower);
    assert_true((n_full > 100 || n_pages > N_POOL) && n_adopted > 100); /* otherwise the pool was too large to test anything */
    assert_true(!window || n_lower || n_pages == N_POOL);
    for (uint32_t i = 0; i < N_SEQS; i++) ae_kv_truncate(c.kv, i, 0);
    assert_int_equal(ae_kv_n_available(c.kv), n_pages);
    ae_kv_forget_prefixes(c.kv);
    const int32_t zero = 0;
    assert_int_equal(ae_kv_match(c.kv, NO_KEY, &zero, 1), 0);
    assert_true(ae_kv_is_sound(c.kv));
    close_cache(&c);
}

static void test_random_lives(void **state)
{
    (void)state;
    live(AE_KV_F16, N_POOL, 0);
    live(AE_KV_Q8_0, N_POOL, 0);
}

/* In a pool in which every page keeps its part of the window, and in one that gives parts up. */
static void test_random_lives_with_windows(void **state)
{
    (void)state;
    live(AE_KV_F16, N_POOL, 20);
    live(AE_KV_F16, 40, 1);
    live(AE_KV_Q8_0, 40, 20);
    live(AE_KV_F16, 48, 40);
}

/* A long sequence keeps the parts of its window, a retained one besides, and no others; both are found again. */
static void test_windows_that_are_kept(void **state)
{
    (void)state;
    const uint32_t n_slots = 4096;
    const ae_kv_layer layers[] = {{1, HEAD_DIM, 0, false, false}, {1, HEAD_DIM, 0, false, false}};
    const uint32_t windows[] = {0, 128};
    int32_t tokens[4096];
    aerie_error error = {0};
    ae_backend *backend;
    ae_kv *kv;
    ae_kv_options options = {.n_layers = 2, .layers = layers, .windows = windows, .n_seqs = 1, .n_slots = n_slots,
                             .type = AE_KV_F16, .n_batch = 64, .n_retained = 1};
    assert_int_equal(ae_backend_open(&backend, NULL, "ref", &error), AERIE_OK);
    const size_t with = ae_kv_plan_bytes(backend, &options, NULL);
    options.windows = NULL;
    const size_t without = ae_kv_plan_bytes(backend, &options, NULL);
    options.windows = windows;
    assert_true(with < without * 2 / 3); /* half of the bytes are the other layer's */
    assert_int_equal(ae_kv_create(&kv, backend, &options, &error), AERIE_OK);
    for (uint32_t i = 0; i < n_slots; i++) tokens[i] = (int32_t)(i * 7 % 1000);
    for (uint32_t n = 0; n < 4000; n += 50) {
        if (n == 2000) ae_kv_retain(kv, 0);
        assert_int_equal(ae_kv_reserve(kv, NULL, 0, 50, &error), AERIE_OK);
        assert_int_equal(ae_kv_commit(kv, NULL, 0, 50, NULL, 0), AERIE_OK);
    }
    assert_int_equal(ae_kv_landing(kv, 0, 4000), 4000);
    assert_int_equal(ae_kv_landing(kv, 0, 3940), 3940); /* one page is spare, for drafts that are rejected */
    assert_int_equal(ae_kv_landing(kv, 0, 3000), 2000 / AE_KV_PAGE * AE_KV_PAGE + AE_KV_PAGE);
    assert_int_equal(ae_kv_landing(kv, 0, 2000), 2000);
    assert_int_equal(ae_kv_landing(kv, 0, 1800), 0);
    ae_kv_keep(kv, 0, NO_KEY, tokens);
    assert_int_equal(ae_kv_truncate(kv, 0, 0), AERIE_OK);
    assert_int_equal(ae_kv_match(kv, NO_KEY, tokens, n_slots), 4000);
    assert_int_equal(ae_kv_match(kv, NO_KEY, tokens, 2000), 2000);
    assert_int_equal(ae_kv_adopt(kv, NULL, 0, NO_KEY, tokens, 2000), 2000);
    assert_true(ae_kv_is_sound(kv));
    ae_kv_free(kv);
    ae_backend_close(backend);
}

/* The page that was used longest ago goes first, and never one that a sequence holds. */
static void test_least_recently_used_goes_first(void **state)
{
    (void)state;
    cache c;
    open_cache(&c, 8, 0, AE_KV_F16);
    int32_t text[3][2 * AE_KV_PAGE];
    for (uint32_t t = 0; t < 3; t++)
        for (uint32_t i = 0; i < 2 * AE_KV_PAGE; i++) text[t][i] = (int32_t)(t * 1000 + i);
    for (uint32_t t = 0; t < 3; t++) {
        assert_int_equal(ae_kv_reserve(c.kv, NULL, t, 2 * AE_KV_PAGE, NULL), AERIE_OK);
        ae_kv_commit(c.kv, NULL, t, 2 * AE_KV_PAGE, NULL, 0);
        ae_kv_keep(c.kv, t, NO_KEY, text[t]);
        if (t != 2) ae_kv_truncate(c.kv, t, 0);
    }
    assert_int_equal(ae_kv_adopt(c.kv, NULL, 0, NO_KEY, text[0], 2 * AE_KV_PAGE), 2 * AE_KV_PAGE); /* 1 is the oldest */
    ae_kv_truncate(c.kv, 0, 0);
    assert_int_equal(ae_kv_reserve(c.kv, NULL, 3, 3 * AE_KV_PAGE, NULL), AERIE_OK);
    assert_int_equal(ae_kv_match(c.kv, NO_KEY, text[0], 2 * AE_KV_PAGE), 2 * AE_KV_PAGE);
    assert_int_equal(ae_kv_match(c.kv, NO_KEY, text[1], 2 * AE_KV_PAGE), AE_KV_PAGE); /* the leaf was removed, its parent
                                                                                       * remains */
    assert_int_equal(ae_kv_reserve(c.kv, NULL, 3, 6 * AE_KV_PAGE, NULL), AERIE_OK);
    assert_int_equal(ae_kv_match(c.kv, NO_KEY, text[0], 2 * AE_KV_PAGE), 0);
    assert_int_equal(ae_kv_match(c.kv, NO_KEY, text[2], 2 * AE_KV_PAGE), 2 * AE_KV_PAGE); /* sequence 2 holds it */
    assert_int_equal(ae_kv_reserve(c.kv, NULL, 1, 1, NULL), AERIE_ERROR_LIMIT);
    assert_true(ae_kv_is_sound(c.kv));
    close_cache(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_lives),
        cmocka_unit_test(test_random_lives_with_windows),
        cmocka_unit_test(test_windows_that_are_kept),
        cmocka_unit_test(test_least_recently_used_goes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
