/* test_corpus.c - what n-grams remember of sequences that have ended: matches against brute force, forgetting, scopes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/math/rng.h"
#include "draft/corpus.h"
#include "draft/drafter.h"
#include "fail_alloc.h"

static uint32_t dice(uint64_t key, uint64_t counter)
{
    uint32_t r[4];
    ae_philox(key, counter, 7, r);
    return r[0];
}

static void random_tokens(uint64_t key, uint32_t n_vocab, int32_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (int32_t)(dice(key, i) % n_vocab);
}

static void add_all(ae_corpus *c, uint64_t scope, const int32_t *tokens, size_t n)
{
    ae_corpus_add(c, scope, tokens, n);
    for (size_t i = 0; i <= n / AE_CORPUS_STEP; i++) ae_corpus_work(c);
}

/* The longest suffix of q[0..n) that is somewhere in t[0..n_t). */
static uint32_t brute(const int32_t *t, size_t n_t, const int32_t *q, size_t n)
{
    uint32_t longest = 0;
    for (size_t end = 1; end <= n_t; end++) {
        uint32_t k = 0;
        while (k < end && k < n && t[end - 1 - k] == q[n - 1 - k]) k++;
        if (k > longest) longest = k;
    }
    return longest;
}

/* Sequences are shorter than a block, so that all of each is added. Some are added while the query goes on. */
static void test_finds_the_longest_suffix(void **state)
{
    (void)state;
    enum { N_TEXTS = 40, LENGTH = 50, N = 300, AHEAD = 30 };
    static int32_t texts[N_TEXTS][LENGTH], query[N + AHEAD];
    for (uint32_t n_vocab = 2; n_vocab < 12; n_vocab += 3) {
        ae_corpus *c = ae_corpus_create(1 << 14);
        ae_corpus_place place = {.scope = 7};
        uint32_t n_texts = 0;
        random_tokens(1000 + n_vocab, n_vocab, query, N + AHEAD);
        for (size_t n = 1; n <= N; n++) {
            if (n % 8 == 1 && n_texts < N_TEXTS) {
                random_tokens(n_vocab * 100 + n_texts, n_vocab, texts[n_texts], LENGTH);
                if (n_texts % 3 == 2) memcpy(texts[n_texts] + 10, query + n, AHEAD * sizeof *query); /* what comes next */
                add_all(c, 7, texts[n_texts], LENGTH);
                n_texts++;
            }
            uint32_t longest = 0;
            for (uint32_t i = 0; i < n_texts; i++) {
                const uint32_t k = brute(texts[i], LENGTH, query, n);
                if (k > longest) longest = k;
            }
            if (n > 1) ae_corpus_step(c, &place, query[n - 1]);
            ae_corpus_match m = {0};
            const ae_suffix *s = ae_corpus_find(c, &place, query, n, &m);
            assert_int_equal(s ? m.length : 0, longest);
            if (s) assert_true(m.state != AE_SUFFIX_ROOT && m.length <= s->states[m.state].length);
        }
        ae_corpus_free(c);
    }
}

static uint32_t length_of(const ae_corpus *c, uint64_t scope, const int32_t *tokens, size_t n)
{
    ae_corpus_place place = {.scope = scope};
    ae_corpus_match m;
    return ae_corpus_find(c, &place, tokens, n, &m) ? m.length : 0;
}

static void test_forgets_the_oldest(void **state)
{
    (void)state;
    enum { BUDGET = 4096, LENGTH = 700, N_TEXTS = 30 };
    static int32_t texts[N_TEXTS][LENGTH];
    ae_corpus *c = ae_corpus_create(BUDGET);
    for (uint32_t i = 0; i < N_TEXTS; i++) {
        random_tokens(i, 5000, texts[i], LENGTH);
        add_all(c, 1, texts[i], LENGTH);
        assert_int_equal(length_of(c, 1, texts[i], 600), AE_CORPUS_LOOK);
        if (i) assert_int_equal(length_of(c, 1, texts[i - 1], 600), AE_CORPUS_LOOK); /* half of the budget is always there */
    }
    for (uint32_t i = 0; i + 7 < N_TEXTS; i++) assert_true(length_of(c, 1, texts[i], 600) < 8);
    ae_corpus_free(c);
    /* one text that is larger than all: its newest part */
    static int32_t large[3 * BUDGET];
    random_tokens(99, 5000, large, 3 * BUDGET);
    c = ae_corpus_create(BUDGET);
    add_all(c, 1, large, 3 * BUDGET);
    assert_int_equal(length_of(c, 1, large, 3 * BUDGET - 5), AE_CORPUS_LOOK);
    assert_true(length_of(c, 1, large, 1000) < 8);
    ae_corpus_free(c);
    for (uint32_t tiny = 1; tiny < 200; tiny += 33) { /* too small to be useful, but harmless */
        c = ae_corpus_create(tiny);
        add_all(c, 1, large, 1000);
        ae_corpus_free(c);
    }
}

/* A conversation whose turns each begin with all earlier ones takes the memory of its last turn only. */
static void test_the_same_text_is_added_once(void **state)
{
    (void)state;
    enum { BUDGET = 8192, TURNS = 40, TURN = 90, OTHER = 500 };
    static int32_t talk[TURNS * TURN], other[OTHER];
    ae_corpus *c = ae_corpus_create(BUDGET);
    random_tokens(1, 5000, talk, TURNS * TURN);
    random_tokens(2, 5000, other, OTHER);
    add_all(c, 3, other, OTHER);
    for (size_t i = 1; i <= TURNS; i++) { /* 73,800 tokens in all */
        add_all(c, 3, talk, i * TURN);
        assert_int_equal(length_of(c, 3, talk, i * TURN - 1), AE_CORPUS_LOOK);
    }
    assert_int_equal(length_of(c, 3, other, OTHER - 10), AE_CORPUS_LOOK);
    assert_int_equal(length_of(c, 3, talk, TURN + 20), AE_CORPUS_LOOK);
    ae_corpus_free(c);
}

static void test_scopes_are_apart(void **state)
{
    (void)state;
    enum { LENGTH = 300, N_SCOPES = 3 * AE_CORPUS_SCOPES };
    static int32_t texts[N_SCOPES][LENGTH];
    ae_corpus *c = ae_corpus_create(4096);
    for (uint32_t i = 0; i < N_SCOPES; i++) {
        random_tokens(i, 5000, texts[i], LENGTH);
        add_all(c, i, texts[i], LENGTH);
        for (uint32_t k = 0; k <= i; k++) {
            if (k != i) assert_int_equal(length_of(c, i, texts[k], LENGTH), brute(texts[i], LENGTH, texts[k], LENGTH));
            if (i - k > AE_CORPUS_SCOPES) assert_int_equal(length_of(c, k, texts[k], LENGTH), 0); /* made room */
        }
        assert_int_equal(length_of(c, i, texts[i], LENGTH - 1), AE_CORPUS_LOOK);
    }
    ae_corpus_free(c);
}

/* ---- Files -------------------------------------------------------------------------------------------------------- */

static void test_files_keep_scopes(void **state)
{
    (void)state;
    enum { LENGTH = 700, N_SCOPES = 5, N_VOCAB = 5000 };
    static int32_t texts[N_SCOPES][LENGTH];
    ae_corpus *c = ae_corpus_create(4096), *again = ae_corpus_create(4096);
    for (uint32_t i = 0; i < N_SCOPES; i++) {
        random_tokens(i + 50, N_VOCAB, texts[i], LENGTH);
        ae_corpus_add(c, 100 + i, texts[i], LENGTH - i);
        ae_corpus_add(c, 100 + i, texts[i], LENGTH - i); /* once */
    }
    ae_corpus_finish(c);
    const size_t n = ae_corpus_bytes(c);
    uint8_t *bytes = malloc(n + 1);
    ae_corpus_write(c, bytes);
    size_t n_read, n_all = 0;
    for (uint32_t i = 0; i < N_SCOPES; i++) n_all += LENGTH - i;
    assert_true(ae_corpus_read(again, bytes, n, N_VOCAB, &n_read));
    /* a block that was added before is not added again; a text that starts a new block overlaps the one before */
    assert_in_range(n_read, n_all, n_all + N_SCOPES * 2 * 64);
    for (uint32_t i = 0; i < N_SCOPES; i++)
        for (uint32_t k = 0; k < N_SCOPES; k++)
            assert_int_equal(length_of(again, 100 + i, texts[k], LENGTH - 10),
                             i == k ? AE_CORPUS_LOOK : brute(texts[i], LENGTH, texts[k], LENGTH - 10));
    assert_int_equal(length_of(again, 7, texts[0], LENGTH - 10), 0);
    assert_int_equal(ae_corpus_bytes(again), n); /* the same text, scope by scope */
    ae_corpus *empty = ae_corpus_create(4096);
    for (size_t cut = 1; cut < n; cut += 13) assert_false(ae_corpus_read(empty, bytes, cut, N_VOCAB, &n_read));
    assert_false(ae_corpus_read(empty, bytes, n, 100, &n_read)); /* tokens of another vocabulary */
    assert_int_equal(ae_corpus_bytes(empty), 0);        /* nothing was added */
    uint64_t random = 3;
    for (int i = 0; i < 3000; i++) { /* any bytes: refused, or text like another */
        const size_t at = (size_t)(random = random * 6364136223846793005u + 1442695040888963407u) % n;
        const uint8_t was = bytes[at];
        bytes[at] = (uint8_t)(random >> 56);
        if (i % 100 == 0 || at < 16) (void)ae_corpus_read(empty, bytes, n, N_VOCAB, &n_read);
        bytes[at] = was;
    }
    assert_true(ae_corpus_read(empty, bytes, 0, N_VOCAB, &n_read));
    assert_int_equal(n_read, 0);
    free(bytes);
    ae_corpus_free(empty);
    ae_corpus_free(again);
    ae_corpus_free(c);
}

/* ---- The drafter -------------------------------------------------------------------------------------------------- */

static uint32_t drafted(ae_drafter *d, uint32_t slot, uint64_t scope, bool new_scope, const int32_t *tokens, size_t n,
                        ae_tree *tree)
{
    d->ops->begin(d, &(ae_draft_begin){.slot = slot, .donor = slot, .scope = scope, .new_scope = new_scope});
    memset(tree, 0, sizeof *tree);
    const ae_draft_request request = {.slot = slot, .tokens = tokens, .n_tokens = n, .max_depth = 8, .max_nodes = 8,
                                      .tree = tree};
    assert_int_equal(d->ops->propose(d, &request, 1, NULL), AERIE_OK);
    return tree->n;
}

static void test_later_sequences_of_the_scope_profit(void **state)
{
    (void)state;
    enum { N = 200 };
    static int32_t t[N];
    ae_tree tree, alone;
    ae_drafter *d, *forgets;
    assert_int_equal(ae_draft_ngram_create(&d, 2, 1 << 16, NULL), AERIE_OK);
    assert_int_equal(ae_draft_ngram_create(&forgets, 2, 0, NULL), AERIE_OK);
    random_tokens(5, 100000, t, N);
    assert_int_equal(drafted(d, 0, 11, false, t, 100, &tree), 0);
    d->ops->end(d, &(ae_draft_end){0, 11, t, N});
    forgets->ops->end(forgets, &(ae_draft_end){0, 11, t, N});
    for (size_t n = 40; n < 150; n += 10) { /* from anywhere in it, in another slot */
        assert_int_equal(drafted(d, 1, 11, false, t + 20, n, &tree), 8);
        assert_memory_equal(tree.token, t + 20 + n, 8 * sizeof *t);
        assert_int_equal(drafted(d, 1, 12, true, t + 20, n, &tree), drafted(forgets, 1, 12, true, t + 20, n, &alone));
        assert_int_equal(tree.n, 0);
    }
    assert_int_equal(drafted(d, 0, 11, false, t, N, &tree), 0); /* at its end nothing follows */
    d->ops->destroy(d);
    forgets->ops->destroy(forgets);
}

static void test_without_memory_nothing_fails(void **state)
{
    (void)state;
    enum { N = 900 };
    static int32_t t[N];
    random_tokens(6, 300, t, N);
    for (long nth = 1;; nth++) {
        fail_alloc_arm(nth, false);
        ae_corpus *c = ae_corpus_create(2048);
        for (int i = 0; c && i < 3; i++) add_all(c, 1, t + 100 * i, N - 200);
        const bool failed = fail_alloc_disarm();
        if (c) {
            add_all(c, 1, t, N);
            assert_int_equal(length_of(c, 1, t, N - 1), AE_CORPUS_LOOK);
        }
        ae_corpus_free(c);
        assert_int_equal(fail_alloc_live(), 0);
        if (!failed) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_longest_suffix),      cmocka_unit_test(test_forgets_the_oldest),
        cmocka_unit_test(test_the_same_text_is_added_once),   cmocka_unit_test(test_scopes_are_apart),
        cmocka_unit_test(test_files_keep_scopes),
        cmocka_unit_test(test_later_sequences_of_the_scope_profit), cmocka_unit_test(test_without_memory_nothing_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
