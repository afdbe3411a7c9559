/* test_draft.c - the suffix automaton against brute force, and the drafters that need no weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/math/rng.h"
#include "fail_alloc.h"
#include "draft/drafter.h"
#include "draft/suffix.h"

/* ---- helpers --------------------------------------------------------------------------------------- */

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

static ae_draft_request chain_of(const int32_t *tokens, size_t n, uint32_t depth)
{
    return (ae_draft_request){.tokens = tokens, .n_tokens = n, .max_depth = depth, .max_nodes = AERIE_MAX_DRAFT};
}

static ae_draft_request tree_of(const int32_t *tokens, size_t n, uint32_t depth, uint32_t nodes)
{
    return (ae_draft_request){.tokens = tokens, .n_tokens = n, .max_depth = depth, .max_nodes = nodes, .shape = AE_DRAFT_TREE};
}

/* Proposes a tree and checks the properties that every drafter must have. */
static void propose(ae_drafter *d, ae_draft_request request, int32_t n_vocab, ae_tree *tree)
{
    memset(tree, 0xa5, sizeof *tree); /* nothing after n may be read */
    tree->n = 0;
    request.tree = tree;
    assert_int_equal(d->ops->propose(d, &request, 1, NULL), AERIE_OK);
    assert_true(ae_tree_is_sound(tree, n_vocab));
    assert_true(tree->n <= request.max_nodes);
    float children[AERIE_MAX_DRAFT + 1] = {0};
    for (uint32_t i = 0; i < tree->n; i++) {
        assert_true(tree->depth[i] <= (int32_t)request.max_depth);
        assert_true(tree->p[i] > 0.0f && tree->p[i] <= 1.0f);
        if (!request.shape) assert_int_equal(tree->parent[i], (int32_t)i - 1);
        children[tree->parent[i] + 1] += tree->p[i];
    }
    if (!strcmp(d->ops->name, "ngram"))
        for (int i = 0; i <= AERIE_MAX_DRAFT; i++) assert_true(children[i] <= 1.001f);
}

/* Nodes on the path of `truth` through the tree. */
static uint32_t accepted(const ae_tree *tree, const int32_t *truth, size_t n)
{
    int32_t node = -1;
    for (uint32_t k = 0;; k++) {
        if (k == n || (node = ae_tree_child(tree, node, truth[k])) < 0) return k;
    }
}

static void same_tree(const ae_tree *a, const ae_tree *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->token, b->token, a->n * sizeof *a->token);
    assert_memory_equal(a->parent, b->parent, a->n * sizeof *a->parent);
    assert_memory_equal(a->p, b->p, a->n * sizeof *a->p);
}

static void begin(ae_drafter *d, uint32_t slot)
{
    d->ops->begin(d, &(ae_draft_begin){.slot = slot, .donor = slot});
}

static ae_drafter *ngram(uint32_t n_slots)
{
    ae_drafter *d;
    assert_int_equal(ae_draft_ngram_create(&d, n_slots, 0, NULL), AERIE_OK);
    for (uint32_t i = 0; i < n_slots; i++) begin(d, i);
    return d;
}

/* ---- The automaton --------------------------------------------------------------------------------- */

/* Length of the longest suffix of t[0..n) that occurred before; *ends: how often, *latest: where last before n. */
static uint32_t brute(const int32_t *t, size_t n, uint32_t *ends, size_t *latest)
{
    uint32_t longest = 0;
    *ends = 0;
    *latest = 0;
    for (size_t end = 1; end < n; end++) {
        uint32_t k = 0;
        while (k < end && t[end - 1 - k] == t[n - 1 - k]) k++;
        if (k > longest) {
            longest = k;
            *ends = 1;
        } else if (k == longest) {
            *ends += 1;
        }
        if (k == longest) *latest = end;
    }
    *ends += 1;
    return longest;
}

static bool brute_continued(const int32_t *t, size_t n, uint32_t length, int32_t token)
{
    for (size_t end = length; end < n; end++)
        if (t[end] == token && !memcmp(t + end - length, t + n - length, length * sizeof *t)) return true;
    return false;
}

static void check_match(const ae_suffix *s, const int32_t *t, size_t n, int32_t n_vocab)
{
    uint32_t length, ends;
    size_t latest;
    const uint32_t state = ae_suffix_match(s, &length);
    assert_int_equal(length, brute(t, n, &ends, &latest));
    if (!length) {
        assert_int_equal(state, AE_SUFFIX_ROOT);
        return;
    }
    assert_int_equal(s->states[state].latest, t[latest]);
    assert_int_equal(s->states[state].count, ends);
    for (int32_t token = 0; token < n_vocab; token++)
        assert_int_equal(ae_suffix_step(s, state, token) != AE_SUFFIX_NONE, brute_continued(t, n, length, token));
}

static void test_suffix_brute_force(void **state)
{
    (void)state;
    int32_t t[160];
    ae_suffix s = {0};
    for (uint64_t round = 0; round < 4000; round++) {
        const int32_t n_vocab = 1 + (int32_t)(round % 5);
        /* counts are exact as long as no more suffixes recur than one token updates */
        const size_t n = n_vocab == 1 ? AE_SUFFIX_WALK : round % 64 == 63 ? 160 : 1 + dice(1, round) % 48;
        random_tokens(100 + round, (uint32_t)n_vocab, t, n);
        if (round % 3 == 2) /* a copy inside */
            for (size_t i = n / 2; i < n; i++) t[i] = t[i - n / 2];
        for (size_t i = 0; i < n; i++) {
            assert_true(ae_suffix_add(&s, t[i]));
            if (n <= 48 || i % 16 == 15) check_match(&s, t, i + 1, n_vocab);
        }
        assert_true(s.n_states <= 2 * n + 1);
        assert_true(s.n_edges <= 3 * n);
        ae_suffix_clear(&s);
        uint32_t length;
        assert_int_equal(ae_suffix_match(&s, &length), AE_SUFFIX_ROOT);
        assert_int_equal(length, 0);
    }
    ae_suffix_free(&s);
}

/* Every substring is spelled by a path from the root, and no other string is. */
static void test_suffix_recognizes(void **state)
{
    (void)state;
    int32_t t[24];
    for (uint64_t round = 0; round < 200; round++) {
        const size_t n = 1 + dice(2, round) % 24;
        random_tokens(9000 + round, 2, t, n);
        ae_suffix s = {0};
        for (size_t i = 0; i < n; i++) assert_true(ae_suffix_add(&s, t[i]));
        for (uint32_t length = 1; length <= 8; length++)
            for (uint32_t word = 0; word < 1u << length; word++) {
                uint32_t at = AE_SUFFIX_ROOT, count = 0;
                for (uint32_t i = 0; i < length && at != AE_SUFFIX_NONE; i++)
                    at = ae_suffix_step(&s, at, (int32_t)(word >> i & 1));
                for (size_t start = 0; start + length <= n; start++) {
                    uint32_t k = 0;
                    while (k < length && t[start + k] == (int32_t)(word >> k & 1)) k++;
                    count += k == length;
                }
                assert_int_equal(at != AE_SUFFIX_NONE, count > 0);
                if (count) assert_int_equal(s.states[at].count, count);
            }
        ae_suffix_free(&s);
    }
}

static void test_suffix_million(void **state)
{
    (void)state;
    const size_t n = 1000000;
    int32_t *t = malloc(n * sizeof *t);
    assert_non_null(t);
    for (int kind = 0; kind < 3; kind++) {
        if (kind == 0) memset(t, 0, n * sizeof *t);
        else random_tokens(77, kind == 1 ? 256 : 128000, t, n);
        ae_suffix s = {0};
        for (size_t i = 0; i < n; i++)
            if (!ae_suffix_add(&s, t[i])) fail();
        assert_true(s.n_states <= 2 * n + 1);
        assert_true(s.n_edges <= 3 * n);
        uint32_t length;
        ae_suffix_match(&s, &length);
        if (kind == 0) assert_int_equal(length, n - 1);
        ae_suffix_clear(&s); /* the memory that is returned */
        assert_null(s.states);
        ae_suffix_free(&s);
    }
    free(t);
}

/* ---- The n-gram drafter ---------------------------------------------------------------------------- */

static void test_ngram_repeats(void **state)
{
    (void)state;
    enum { WORDS = 300, GAP = 20, N = 2 * WORDS + GAP, DEPTH = 16 };
    int32_t t[N];
    random_tokens(5, 32000, t, WORDS + GAP);
    memcpy(t + WORDS + GAP, t, WORDS * sizeof *t);
    ae_drafter *d = ngram(1);
    ae_tree tree;
    size_t n = WORDS + GAP;
    uint32_t passes = 0;
    while (n < N) {
        propose(d, chain_of(t, n, DEPTH), 32000, &tree);
        const size_t left = N - n, copied = n - WORDS - GAP;
        const uint32_t hits = accepted(&tree, t + n, left);
        if (copied >= 8) assert_int_equal(tree.n, DEPTH);
        if (copied >= 8) assert_int_equal(hits, left < DEPTH ? left : DEPTH);
        if (copied >= 32)
            for (uint32_t i = 0; i < tree.n && i < left; i++) assert_true(tree.p[i] >= 0.97f);
        if (copied >= 128) assert_true(tree.p[0] >= 0.98f);
        n += hits + 1;
        passes++;
    }
    assert_true(passes < 32);
    d->ops->destroy(d);
}

static void test_ngram_periodic(void **state)
{
    (void)state;
    int32_t t[200];
    for (size_t i = 0; i < 200; i++) t[i] = (int32_t)(i % 3);
    ae_drafter *d = ngram(1);
    ae_tree tree;
    for (size_t n = 40; n < 150; n++) {
        propose(d, chain_of(t, n, 48), 3, &tree);
        /* past the end of the sequence the period goes on */
        assert_int_equal(tree.n, 48);
        assert_int_equal(accepted(&tree, t + n, 48), 48);
    }
    d->ops->destroy(d);
}

static void test_ngram_random_text(void **state)
{
    (void)state;
    enum { N = 4000, PROMPT = 1500 };
    static int32_t t[N];
    for (uint64_t key = 0; key < 4; key++) {
        random_tokens(600 + key, 256, t, N);
        ae_drafter *d = ngram(1);
        ae_tree tree;
        uint32_t nodes = 0, sure = 0;
        for (size_t n = PROMPT; n < N; n++) {
            propose(d, key & 1 ? tree_of(t, n, 8, 32) : chain_of(t, n, 8), 256, &tree);
            nodes += tree.n;
            float path[AERIE_MAX_DRAFT];
            for (uint32_t i = 0; i < tree.n; i++) {
                path[i] = tree.p[i] * (tree.parent[i] < 0 ? 1.0f : path[tree.parent[i]]);
                sure += path[i] >= 0.3f;
            }
        }
        assert_true(nodes < (N - PROMPT) / 5);
        assert_true(sure < (N - PROMPT) / 200); /* three or four tokens do recur by chance, now and then */
        if (getenv("AERIE_TEST_VERBOSE")) print_message("random text: %u nodes, %u sure\n", nodes, sure);
        d->ops->destroy(d);
    }
}

/* Text whose next token depends on the two before it, mostly; and whole passages copied now and then. */
static void mixed_text(uint64_t key, uint32_t n_vocab, uint32_t noise_percent, int32_t *t, size_t n)
{
    size_t copy_from = 0, copy_left = 0;
    for (size_t i = 0; i < n; i++) {
        if (!copy_left && i > 400 && dice(key, 3 * i) % 200 == 0) {
            copy_left = 100;
            copy_from = dice(key, 3 * i + 1) % (i - 200);
        }
        const uint32_t r = dice(key, 3 * i + 2);
        if (copy_left) {
            copy_left--;
            t[i] = t[copy_from++];
        } else if (i < 2 || r % 100 < noise_percent) {
            t[i] = (int32_t)(r / 100 % n_vocab);
        } else {
            t[i] = (int32_t)(dice(key ^ 99, (uint64_t)t[i - 1] * n_vocab + (uint64_t)t[i - 2] * 4 + r / 100 % 2) %
                             n_vocab);
        }
    }
}

/* Probabilities are calibrated: over all nodes whose parents were right, the sum of p is the number of hits. */
static void test_ngram_honest(void **state)
{
    (void)state;
    enum { N = 6000, PROMPT = 500 };
    static int32_t t[N];
    for (uint32_t kind = 0; kind < 8; kind++) {
        const uint32_t n_vocab = kind & 2 ? 1000 : 20;
        mixed_text(40 + kind, n_vocab, kind & 4 ? 40 : 5, t, N);
        ae_drafter *d = ngram(1);
        ae_tree tree;
        double expected[4] = {0}, hits[4] = {0}, nodes[4] = {0};
        for (size_t n = PROMPT; n + 8 < N; n++) {
            propose(d, kind & 1 ? tree_of(t, n, 8, 24) : chain_of(t, n, 8), (int32_t)n_vocab, &tree);
            for (uint32_t i = 0; i < tree.n; i++) {
                int32_t path = tree.parent[i];
                bool reached = true;
                for (; path >= 0; path = tree.parent[path])
                    reached = reached && tree.token[path] == t[n + (size_t)tree.depth[path] - 1];
                if (!reached) continue;
                const int bin = tree.p[i] < 0.25f ? 0 : tree.p[i] < 0.5f ? 1 : tree.p[i] < 0.75f ? 2 : 3;
                expected[bin] += (double)tree.p[i];
                hits[bin] += tree.token[i] == t[n + (size_t)tree.depth[i] - 1];
                nodes[bin] += 1;
            }
        }
        for (int bin = 0; bin < 4; bin++) {
            const double off = expected[bin] - hits[bin];
            if (getenv("AERIE_TEST_VERBOSE"))
                print_message("kind %u bin %d: %6.0f nodes, expected %.3f, right %.3f\n", kind, bin, nodes[bin],
                              expected[bin] / (nodes[bin] + 1e-9), hits[bin] / (nodes[bin] + 1e-9));
            /* a token is judged up to eight times, so the nodes are fewer independent events */
            if (nodes[bin] >= 1000) assert_true(off < 0.1 * nodes[bin] && off > -0.1 * nodes[bin]);
        }
        d->ops->destroy(d);
    }
}

static void test_ngram_branches(void **state)
{
    (void)state;
    /* 1 2 3 was followed by 10 twice and by 20 and 30 once, 2 3 also by 40 */
    const int32_t t[] = {1, 2, 3, 10, 5, 1, 2, 3, 20, 6, 9, 2, 3, 40, 7, 1, 2, 3, 10, 8, 1, 2, 3, 30, 4, 1, 2, 3};
    const size_t n = sizeof t / sizeof *t;
    ae_drafter *d = ngram(1);
    ae_tree tree;
    propose(d, chain_of(t, n, 2), 50, &tree);
    assert_int_equal(tree.token[0], 10); /* the most frequent: the match is short */
    propose(d, tree_of(t, n, 4, 32), 50, &tree);
    const int32_t ten = ae_tree_child(&tree, -1, 10), twenty = ae_tree_child(&tree, -1, 20),
                  thirty = ae_tree_child(&tree, -1, 30), forty = ae_tree_child(&tree, -1, 40);
    assert_true(ten == 0 && twenty > 0 && thirty > 0 && forty > 0);
    assert_true(tree.p[ten] > tree.p[twenty]);
    /* in descending order of path probability */
    float path[AERIE_MAX_DRAFT];
    for (uint32_t i = 0; i < tree.n; i++) {
        path[i] = tree.p[i] * (tree.parent[i] < 0 ? 1.0f : path[tree.parent[i]]);
        if (i) assert_true(path[i] <= path[i - 1]);
    }
    propose(
        d,
        (ae_draft_request){.tokens = t, .n_tokens = n, .max_depth = 4, .max_nodes = 32, .shape = AE_DRAFT_TREE, .min_p = 0.1f},
        50, &tree);
    for (uint32_t i = 0; i < tree.n; i++) {
        path[i] = tree.p[i] * (tree.parent[i] < 0 ? 1.0f : path[tree.parent[i]]);
        assert_true(path[i] >= 0.1f);
    }
    d->ops->destroy(d);
}

/* Limits are kept, and the same history gives the same tree; with a sampler at temperature 1 too. */
static void test_ngram_limits(void **state)
{
    (void)state;
    enum { N = 1500 };
    static int32_t t[N];
    mixed_text(3, 30, 10, t, N);
    ae_sampling sampling = ae_sampling_default();
    sampling.temperature = 1.0f;
    sampling.seed = 11;
    ae_sampler *sampler;
    assert_int_equal(ae_sampler_create(&sampler, &sampling, NULL, 30, 1500, NULL), AERIE_OK);
    ae_drafter *a = ngram(1), *b = ngram(1);
    ae_tree x, y;
    for (size_t n = 1; n < N;) {
        const uint32_t r = dice(12, n);
        ae_draft_request request = tree_of(t, n, 1 + r % 20, r / 20 % (AERIE_MAX_DRAFT + 1));
        request.shape = r >> 30 & 1 ? AE_DRAFT_TREE : AE_DRAFT_CHAIN;
        request.sampler = r >> 29 & 1 ? sampler : NULL;
        propose(a, request, 30, &x);
        propose(b, request, 30, &y);
        same_tree(&x, &y);
        propose(a, request, 30, &x); /* nothing new: the same again */
        same_tree(&x, &y);
        propose(b, request, 30, &y);
        n += 1 + r / 4096 % 5;
    }
    a->ops->destroy(a);
    b->ops->destroy(b);
    ae_sampler_free(sampler);
}

static void test_ngram_slots(void **state)
{
    (void)state;
    enum { N = 600 };
    static int32_t t[2][N];
    mixed_text(21, 40, 20, t[0], N);
    mixed_text(22, 40, 20, t[1], N);
    ae_drafter *both = ngram(2), *one[2] = {ngram(1), ngram(1)};
    ae_tree x, y;
    for (size_t n = 50; n < N; n++)
        for (uint32_t slot = 0; slot < 2; slot++) {
            if (dice(5, 2 * n + slot) % 3 == 0) continue;
            ae_draft_request request = tree_of(t[slot], n, 6, 20);
            propose(one[slot], request, 40, &x);
            request.slot = slot;
            propose(both, request, 40, &y);
            same_tree(&x, &y);
        }
    ae_draft_request wrong = chain_of(t[0], N, 4);
    wrong.slot = 2;
    aerie_error error;
    assert_int_equal(both->ops->propose(both, &wrong, 1, &error), AERIE_ERROR_ARGUMENT);
    begin(both, 2); /* ignored */
    both->ops->destroy(both);
    for (int i = 0; i < 2; i++) one[i]->ops->destroy(one[i]);
}

static void test_ngram_begin(void **state)
{
    (void)state;
    int32_t t[120], u[120];
    for (int i = 0; i < 120; i++) {
        t[i] = i % 10;
        u[i] = i == 119 ? 5 : 100 + i;
    }
    ae_drafter *d = ngram(1);
    ae_tree tree;
    propose(d, chain_of(t, 120, 8), 1000, &tree);
    assert_int_equal(tree.n, 8);
    begin(d, 0);
    propose(d, chain_of(u, 120, 8), 1000, &tree); /* 5 was seen in the old sequence only */
    assert_int_equal(tree.n, 0);
    propose(d, chain_of(t, 120, 8), 1000, &tree); /* another sequence without a call of begin: the drafter starts over */
    assert_int_equal(tree.n, 8);
    assert_int_equal(accepted(&tree, t, 8), 8);
    propose(d, chain_of(t, 60, 8), 1000, &tree); /* a shorter one */
    assert_int_equal(accepted(&tree, t, 8), 8);
    propose(d, chain_of(u, 1, 8), 1000, &tree);
    assert_int_equal(tree.n, 0);
    propose(d, chain_of(u, 0, 8), 1000, &tree);
    assert_int_equal(tree.n, 0);
    d->ops->destroy(d);
}

static void test_ngram_memory(void **state)
{
    (void)state;
    enum { N = 3000 };
    static int32_t t[N];
    for (int i = 0; i < N; i++) t[i] = i % 1000;
    for (long nth = 1;; nth++) {
        fail_alloc_arm(nth, false);
        ae_drafter *d;
        const aerie_status status = ae_draft_ngram_create(&d, 2, 0, NULL);
        if (status != AERIE_OK) {
            assert_true(fail_alloc_disarm());
            assert_int_equal(status, AERIE_ERROR_MEMORY);
            assert_null(d);
            assert_int_equal(fail_alloc_live(), 0);
            continue;
        }
        ae_tree tree;
        size_t n = 1500;
        propose(d, chain_of(t, n, 8), 1000, &tree);
        const bool failed = fail_alloc_disarm();
        assert_int_equal(tree.n, failed ? 0 : 8);
        /* it recovers */
        for (int i = 0; i < 40 && !tree.n; i++) propose(d, chain_of(t, ++n, 8), 1000, &tree);
        assert_int_equal(tree.n, 8);
        assert_int_equal(accepted(&tree, t + n, 8), 8);
        d->ops->destroy(d);
        assert_int_equal(fail_alloc_live(), 0);
        if (!failed) break;
    }
    ae_drafter *d = NULL;
    fail_alloc_arm(1, true);
    assert_int_equal(ae_draft_oracle_create(&d, 1, 10, 0, 0, NULL), AERIE_ERROR_MEMORY);
    assert_int_equal(ae_draft_random_create(&d, 10, 0, NULL), AERIE_ERROR_MEMORY);
    assert_true(fail_alloc_disarm());
    assert_null(d);
}

/* ---- Oracle and random ----------------------------------------------------------------------------- */

static void test_oracle_rates(void **state)
{
    (void)state;
    enum { N = 1200, VOCAB = 50 };
    static int32_t t[N];
    random_tokens(31, VOCAB, t, N);
    ae_tree tree, again;
    const float rates[] = {0.0f, 0.3f, 1.0f};
    for (int r = 0; r < 6; r++) {
        const float rate = rates[r % 3];
        const bool branch = r >= 3;
        ae_drafter *d;
        assert_int_equal(ae_draft_oracle_create(&d, 2, VOCAB, rate, 9, NULL), AERIE_OK);
        begin(d, 1);
        ae_draft_oracle_tell(d, 1, 0, t, N);
        uint32_t right = 0, asked = 0, scattered = 0;
        for (size_t n = 1; n < N; n++) {
            const uint32_t depth = 1 + (uint32_t)(n % 7), left = (uint32_t)(N - n);
            ae_draft_request request =
                branch ? tree_of(t, n, depth, 1 + (uint32_t)(n % AERIE_MAX_DRAFT)) : chain_of(t, n, depth);
            request.slot = 1;
            propose(d, request, VOCAB, &tree);
            propose(d, request, VOCAB, &again);
            same_tree(&tree, &again);
            const uint32_t hits = accepted(&tree, t + n, left);
            if (rate == 0.0f && !branch) assert_int_equal(hits, depth < left ? depth : left);
            if (rate == 0.0f && !branch) assert_int_equal(hits, tree.n);
            if (rate == 1.0f) assert_int_equal(hits, 0);
            asked++;
            right += hits > 0;
            scattered += hits > 0 && tree.token[0] != t[n];
            request.slot = 0; /* was told nothing */
            propose(d, request, VOCAB, &tree);
            assert_int_equal(tree.n, 0);
        }
        if (rate == 0.0f) assert_int_equal(right, asked);
        if (rate == 0.3f) assert_true(right > 0.65 * asked && right < 0.75 * asked);
        if (branch && rate < 1.0f) assert_true(scattered > asked / 4);
        d->ops->destroy(d);
    }
}

static void test_oracle_arguments(void **state)
{
    (void)state;
    ae_drafter *d;
    aerie_error error;
    assert_int_equal(ae_draft_oracle_create(&d, 1, 10, 1.5f, 0, &error), AERIE_ERROR_ARGUMENT);
    assert_int_equal(ae_draft_oracle_create(&d, 1, 1, 0.5f, 0, &error), AERIE_ERROR_ARGUMENT);
    assert_int_equal(ae_draft_random_create(&d, 0, 0, &error), AERIE_ERROR_ARGUMENT);
    /* the smallest vocabularies, where siblings run out */
    const int32_t t[] = {0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1, 0};
    for (uint32_t n_vocab = 2; n_vocab < 5; n_vocab++)
        for (uint64_t seed = 0; seed < 50; seed++) {
            ae_tree tree;
            assert_int_equal(ae_draft_oracle_create(&d, 1, n_vocab, 0.5f, seed, NULL), AERIE_OK);
            ae_draft_oracle_tell(d, 0, 0, t, 16);
            propose(d, tree_of(t, 3, 9, 40), (int32_t)n_vocab, &tree);
            assert_true(tree.n > 0);
            propose(d, chain_of(t, 3, 9), (int32_t)n_vocab, &tree);
            assert_int_equal(tree.n, 9);
            ae_draft_request request = chain_of(t, 3, 9);
            request.slot = 1;
            assert_int_equal(d->ops->propose(d, &request, 1, &error), AERIE_ERROR_ARGUMENT);
            d->ops->destroy(d);
            assert_int_equal(ae_draft_random_create(&d, n_vocab - 1, seed, NULL), AERIE_OK);
            ae_draft_oracle_tell(d, 0, 0, t, 16); /* not an oracle: ignored */
            propose(d, tree_of(t, 3, 9, 40), (int32_t)n_vocab - 1, &tree);
            d->ops->destroy(d);
        }
}

static void test_random(void **state)
{
    (void)state;
    ae_drafter *d;
    assert_int_equal(ae_draft_random_create(&d, 100, 4, NULL), AERIE_OK);
    ae_tree tree, again;
    uint32_t lengths = 0, largest = 0, deepest = 0, differ = 0;
    for (size_t n = 1; n < 3000; n++) {
        const bool branch = n & 1;
        ae_draft_request request = branch ? tree_of(NULL, n, 10, 40) : chain_of(NULL, n, 10);
        propose(d, request, 100, &tree);
        propose(d, request, 100, &again);
        same_tree(&tree, &again);
        request.slot = 3;
        propose(d, request, 100, &again);
        differ += tree.n != again.n;
        if (!branch) lengths |= 1u << tree.n;
        for (uint32_t i = 0; i < tree.n && branch; i++)
            if (tree.depth[i] > (int32_t)deepest) deepest = (uint32_t)tree.depth[i];
        if (branch && tree.n > largest) largest = tree.n;
        request.max_nodes = 3;
        propose(d, request, 100, &tree);
    }
    assert_int_equal(lengths, (1u << 11) - 1); /* all lengths from none to max_depth */
    assert_true(largest > 35 && deepest == 10 && differ > 1000);
    d->ops->destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suffix_brute_force),
        cmocka_unit_test(test_suffix_recognizes),
        cmocka_unit_test(test_suffix_million),
        cmocka_unit_test(test_ngram_repeats),
        cmocka_unit_test(test_ngram_periodic),
        cmocka_unit_test(test_ngram_random_text),
        cmocka_unit_test(test_ngram_honest),
        cmocka_unit_test(test_ngram_branches),
        cmocka_unit_test(test_ngram_limits),
        cmocka_unit_test(test_ngram_slots),
        cmocka_unit_test(test_ngram_begin),
        cmocka_unit_test(test_ngram_memory),
        cmocka_unit_test(test_oracle_rates),
        cmocka_unit_test(test_oracle_arguments),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
