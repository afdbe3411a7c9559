/* test_sampler.c - the chain and the draw: filters against plain definitions, the draw against a brute-force argmax,
 * frequencies against the softmax, purity (same arguments, same token). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/math/fmath.h"
#include "base/math/rng.h"
#include "device/device.h"
#include "sample/sampler.h"

#define N 1000

static void make_logits(uint64_t seed, float *logits)
{
    for (uint32_t i = 0; i < N; i++) {
        uint32_t r[4];
        ae_philox(seed, i, 0, r);
        logits[i] = 8.0f * (float)ae_uniform_open(r[0]) - (r[1] % 7 == 0 ? 3.0f : 0.0f);
        if (r[2] % 50 == 0) logits[i] = 7.5f; /* ties */
    }
}

/* Every filter off. */
static ae_sampling plain_sampling(float temperature, uint64_t seed)
{
    ae_sampling p = ae_sampling_default();
    p.temperature = temperature, p.top_k = 0, p.top_p = 1, p.min_p = 0, p.penalty_last_n = 0, p.seed = seed;
    return p;
}

/* Token ids by logit, best first, lowest id first among equals. */
static const float *sort_logits;
static int by_logit(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (sort_logits[x] != sort_logits[y]) return sort_logits[x] > sort_logits[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* The same chain in the slow, obvious way. */
static int32_t draw_plainly(const ae_sampling *p, const float *in, const int32_t *tokens, size_t n_tokens)
{
    float logits[N];
    int32_t order[N];
    memcpy(logits, in, sizeof logits);
    const size_t last = p->penalty_last_n < 0 || (size_t)p->penalty_last_n > n_tokens ? n_tokens : (size_t)p->penalty_last_n;
    for (int32_t id = 0; id < N; id++) {
        size_t count = 0;
        for (size_t j = n_tokens - last; j < n_tokens; j++) count += tokens[j] == id;
        if (!count) continue;
        logits[id] = logits[id] > 0 ? logits[id] / p->repeat_penalty : logits[id] * p->repeat_penalty;
        logits[id] = logits[id] - (float)count * p->frequency_penalty - p->presence_penalty;
    }
    for (int32_t i = 0; i < N; i++) order[i] = i;
    sort_logits = logits;
    qsort(order, N, sizeof order[0], by_logit);
    if (p->temperature <= 0) return order[0];
    uint32_t n = p->top_k > 0 && p->top_k < N ? (uint32_t)p->top_k : N;
    if (p->top_p < 1) {
        uint64_t total = 0, sum = 0; /* of weights in units of 2^-40 */
        for (uint32_t i = 0; i < n; i++) total += (uint64_t)(ae_expf(logits[order[i]] - logits[order[0]]) * 0x1p40f);
        uint32_t keep = 0;
        while (keep < n) {
            sum += (uint64_t)(ae_expf(logits[order[keep]] - logits[order[0]]) * 0x1p40f);
            keep++;
            if (sum >= (uint64_t)((double)p->top_p * (double)total)) break;
        }
        n = keep;
    }
    double best = -INFINITY;
    int32_t best_id = -1;
    for (uint32_t i = 0; i < n; i++) {
        const float x = logits[order[i]];
        if (p->min_p > 0 && x < logits[order[0]] + (float)ae_log((double)p->min_p)) continue;
        const double score = ((double)x - (double)logits[order[0]]) / (double)p->temperature +
                             ae_gumbel(p->seed, n_tokens, (uint32_t)order[i]);
        if (score > best || (score == best && order[i] < best_id)) {
            best = score;
            best_id = order[i];
        }
    }
    return best_id;
}

static void test_chain_is_its_definition(void **state)
{
    (void)state;
    const ae_sampling plain = plain_sampling(1, 3);
    ae_sampling cases[10];
    for (int i = 0; i < 10; i++) cases[i] = plain;
    cases[0].temperature = 0;
    cases[1].top_k = 40;
    cases[2].top_p = 0.9f;
    cases[3].min_p = 0.1f;
    cases[4].top_k = 50, cases[4].top_p = 0.7f, cases[4].min_p = 0.05f, cases[4].temperature = 0.6f;
    cases[5].repeat_penalty = 1.3f, cases[5].penalty_last_n = 64;
    cases[6].presence_penalty = 0.8f, cases[6].frequency_penalty = 0.4f, cases[6].penalty_last_n = -1, cases[6].top_k = 20;
    cases[7].temperature = 5;
    cases[8].temperature = 0, cases[8].repeat_penalty = 2, cases[8].penalty_last_n = 10;
    cases[9].top_k = 1;
    float logits[N];
    int32_t tokens[300];
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t r[4];
        ae_philox(99, i, 1, r);
        tokens[i] = (int32_t)(r[0] % 60 * (r[1] % 16 + 1));
    }
    for (int c = 0; c < 10; c++) {
        ae_sampler *s;
        assert_int_equal(ae_sampler_create(&s, &cases[c], NULL, N, 300, NULL), AERIE_OK);
        for (uint32_t i = 0; i < 200; i++) {
            make_logits(1000 * (uint64_t)c + i, logits);
            const int32_t id = ae_sampler_draw(s, logits, tokens, i);
            assert_int_equal(id, draw_plainly(&cases[c], logits, tokens, i));
            assert_int_equal(id, ae_sampler_draw(s, logits, tokens, i)); /* nothing is remembered */
        }
        ae_sampler_free(s);
    }
}

/* 40,000 draws from eight tokens at positions 0, 1, ...: chi-square against the softmax, 7 degrees of freedom. */
static void test_frequencies(void **state)
{
    (void)state;
    const float logits[8] = {0.0f, 1.0f, 2.0f, -1.0f, 0.5f, 1.5f, -0.5f, 0.25f};
    const ae_sampling p = plain_sampling(0.9f, 12345);
    ae_sampler *s;
    assert_int_equal(ae_sampler_create(&s, &p, NULL, 8, 40000, NULL), AERIE_OK);
    const int n = 40000;
    int count[8] = {0};
    int32_t *tokens = calloc((size_t)n, sizeof *tokens);
    for (int i = 0; i < n; i++) count[ae_sampler_draw(s, logits, tokens, (size_t)i)]++;
    double total = 0, chi = 0;
    for (int i = 0; i < 8; i++) total += exp((double)logits[i] / 0.9);
    for (int i = 0; i < 8; i++) {
        const double want = n * exp((double)logits[i] / 0.9) / total;
        chi += (count[i] - want) * (count[i] - want) / want;
    }
    assert_true(chi < 24.3); /* p = 0.001 */
    free(tokens);
    ae_sampler_free(s);
}

/* Over a flat vocabulary of 128k the token with the largest noise is drawn: the eight largest values are practically never
 * equal. */
static void test_the_largest_noises_do_not_tie(void **state)
{
    enum { N_VOCAB = 128256, N_POSITIONS = 100, N_TOP = 8 };
    int n_ties = 0;
    (void)state;
    for (uint64_t position = 0; position < N_POSITIONS; position++) {
        double top[N_TOP + 1];
        for (int i = 0; i <= N_TOP; i++) top[i] = -INFINITY;
        for (uint32_t token = 0; token < N_VOCAB; token++) {
            const double noise = ae_gumbel(21, position, token);
            if (noise < top[N_TOP - 1]) continue;
            int at = N_TOP;
            for (; at && top[at - 1] < noise; at--) top[at] = top[at - 1];
            top[at] = noise;
        }
        for (int i = 1; i < N_TOP; i++) n_ties += top[i] == top[i - 1];
        assert_true(top[0] <= AE_GUMBEL_MAX);
    }
    assert_int_equal(n_ties, 0); /* expected: 0.02; of 23 bits 12 */
}

/* The ends of the noise, and that neighbouring words at the upper end differ. */
static void test_ends_of_the_noise(void **state)
{
    const uint32_t last = UINT32_MAX;
    double before = INFINITY;
    (void)state;
    for (uint32_t i = 0; i < 100000; i++) {
        const double u = ae_uniform_open(last - i), noise = -ae_log(-ae_log(u));
        assert_true(u < 1 && noise < before && noise <= AE_GUMBEL_MAX);
        before = noise;
    }
    assert_true(ae_uniform_open(0) > 0 && isfinite(ae_log(-ae_log(ae_uniform_open(0)))));
    assert_true(1 - ae_uniform_open(last) == ae_uniform_open(0));
}

/* A drafter with the target's own logits proposes first what the target will draw. */
static void test_coupled_proposals(void **state)
{
    (void)state;
    const ae_sampling p = plain_sampling(1, 8);
    ae_sampler *s;
    assert_int_equal(ae_sampler_create(&s, &p, NULL, N, 400, NULL), AERIE_OK);
    float logits[N], prob[4];
    int32_t ids[4], tokens[400] = {0};
    int same = 0;
    for (uint32_t i = 0; i < 400; i++) {
        make_logits(i, logits);
        for (int k = 0; k < 5; k++) logits[k * 100 + i % 100] += 9; /* a few likely tokens, as models have */
        assert_int_equal(ae_sampler_propose(s, logits, N, NULL, i, 4, ids, prob), 4);
        same += ids[0] == ae_sampler_draw(s, logits, tokens, i);
        for (int k = 0; k < 4; k++) assert_true(prob[k] >= 0 && prob[k] <= 1);
    }
    assert_true(same > 340);
    ae_sampler_free(s);
}

/* The same with filters, where it always holds, since the remaining tokens are among the drafter's best. */
static void test_filtered_proposals(void **state)
{
    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        ae_sampling p = ae_sampling_default();
        p.seed = 11;
        p.temperature = kind == 4 ? 0.8f : 1.0f;
        p.top_k = kind == 1 || kind == 4 ? 5 : 40;
        p.top_p = kind == 2 || kind == 4 ? 0.7f : 1.0f;
        p.min_p = kind == 3 || kind == 4 ? 0.2f : 0.0f;
        ae_sampler *s;
        assert_int_equal(ae_sampler_create(&s, &p, NULL, N, 400, NULL), AERIE_OK);
        float logits[N], prob[4];
        int32_t ids[4], tokens[400] = {0};
        for (uint32_t i = 0; i < 400; i++) {
            make_logits(i, logits);
            for (int k = 0; k < 5; k++) logits[k * 100 + i % 100] += 9 + (float)k / 3;
            assert_true(ae_sampler_propose(s, logits, N, NULL, i, 4, ids, prob) >= 1);
            assert_int_equal(ids[0], ae_sampler_draw(s, logits, tokens, i));
        }
        ae_sampler_free(s);
    }
}

static void test_refuses_nonsense(void **state)
{
    (void)state;
    ae_sampling p = ae_sampling_default();
    aerie_error error;
    assert_int_equal(ae_sampling_check(&p, N, &error), AERIE_OK);
    p.temperature = NAN;
    assert_int_equal(ae_sampling_check(&p, N, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "temperature"));
    p = ae_sampling_default();
    p.penalty_last_n = -5;
    assert_int_equal(ae_sampling_check(&p, N, &error), AERIE_ERROR_ARGUMENT);
    p = ae_sampling_default();
    p.repeat_penalty = 0;
    assert_int_equal(ae_sampling_check(&p, N, &error), AERIE_ERROR_ARGUMENT);
}

/* ---- Draws and proposals as operations of a backend ---------------------------------------------------------- */

static const char *const backends[] = {"cpu", "cpu-strict"};

typedef struct bench {
    ae_backend *backend;
    const ae_backend_ops *ops;
    ae_pool *pool;
    ae_stream *stream;
} bench;

static bench bench_open(const char *name)
{
    bench b;
    aerie_error error = {0};
    if (ae_pool_create(&b.pool, 2, &error) != AERIE_OK || ae_backend_open(&b.backend, name, "ref", &error) != AERIE_OK)
        fail_msg("%s", error.text);
    b.ops = b.backend->ops;
    const ae_stream_options options = {.n_threads = 2, .max_rows = 8, .max_in = 32, .pool = b.pool};
    if (b.ops->stream_create(b.backend, &options, &b.stream, &error) != AERIE_OK) fail_msg("%s", error.text);
    return b;
}

static void bench_close(bench *b)
{
    b->ops->stream_free(b->stream);
    ae_backend_close(b->backend);
    ae_pool_free(b->pool);
}

static void *send(const bench *b, const void *host, size_t n)
{
    void *device = b->ops->alloc(b->backend, n);
    assert_non_null(device);
    if (host) b->ops->upload(b->stream, device, host, n);
    return device;
}

static void fetch(const bench *b, void *host, void *device, size_t n)
{
    aerie_error error = {0};
    b->ops->download(b->stream, host, device, n);
    if (b->ops->sync(b->stream, &error) != AERIE_OK) fail_msg("%s", error.text);
    b->ops->free(b->backend, device, n);
}

enum { N_NODES = 3, N_ROWS = 2 * (1 + N_NODES) }; /* of two trees */

/* The walk in the obvious way. */
static ae_walked walk_plainly(ae_sampler *sampler, const ae_walk_tree *t, float logits[][N], const int32_t *token,
                              const int32_t *parent, int32_t eog)
{
    ae_walked w = {0};
    for (uint32_t at = 0;;) { /* 0: the root; else a node, from 1 on */
        bool finite = false;
        for (uint32_t i = 0; i < N; i++) finite |= isfinite(logits[t->output + at][i]);
        if (!finite) {
            w.overflowed = 1;
            return w;
        }
        const int32_t id = ae_sampler_draw(sampler, logits[t->output + at], NULL, (size_t)t->position + w.n_drawn);
        w.drawn[w.n_drawn++] = id;
        uint32_t child = 0;
        for (uint32_t k = 1; k <= t->n; k++)
            if (parent[t->row + k] == (int32_t)(t->row + at) && token[t->row + k] == id) child = k;
        if (child) w.path[w.n_path++] = (int32_t)child - 1;
        if (!child || w.n_drawn == t->n_most || (t->ends && id == eog)) return w;
        at = child;
    }
}

/* Draws of tokens in the tree and outside it; ends by length and by a token; rows without numbers. */
static void test_walks_of_a_backend(void **state)
{
    (void)state;
    static float logits[N_ROWS][N];
    uint32_t n_ended = 0, n_overflowed = 0, longest = 0;
    for (size_t which = 0; which < 2; which++) {
        bench b = bench_open(backends[which]);
        for (uint32_t round = 0; round < 40; round++) {
            int32_t token[N_ROWS] = {0}, parent[N_ROWS], eog;
            ae_sampler *samplers[2];
            ae_walk_tree trees[2];
            for (uint32_t r = 0; r < N_ROWS; r++) make_logits(round * N_ROWS + r, logits[r]);
            if (round % 8 == 7)
                for (uint32_t i = 0; i < N; i++) logits[1 + N_NODES][i] = i % 2 ? NAN : INFINITY;
            for (uint32_t t = 0; t < 2; t++) {
                const ae_sampling p = plain_sampling(round % 2 ? 0.8f : 0, round + t);
                const uint32_t first = t * (1 + N_NODES);
                assert_int_equal(ae_sampler_create(&samplers[t], &p, NULL, N, 64, NULL), AERIE_OK);
                trees[t] = (ae_walk_tree){.draw = ae_sampler_plain(samplers[t]), .room = ae_sampler_room(samplers[t]),
                                           .row = first, .output = first, .n = round % 5 ? N_NODES : 0,
                                          .n_most = 1 + round % 4, .position = 9 + round, .ends = t || round % 3};
                /* a chain of the tokens that will be drawn, with a wrong sibling before the second one */
                parent[first] = (int32_t)first - 1;
                parent[first + 1] = (int32_t)first, parent[first + 2] = parent[first + 3] = (int32_t)first + 1;
                token[first + 1] = ae_sampler_draw(samplers[t], logits[first], NULL, 9 + round);
                token[first + 3] = ae_sampler_draw(samplers[t], logits[first + 1], NULL, 10 + round);
                token[first + 2] = (token[first + 3] + 1) % N;
            }
            eog = token[1];
            ae_walked got[2];
            ae_walked *out = send(&b, NULL, sizeof got);
            float *logits_there = send(&b, logits, sizeof logits);
            int32_t *token_there = send(&b, token, sizeof token), *parent_there = send(&b, parent, sizeof parent);
            int32_t *eog_there = send(&b, &eog, sizeof eog);
            b.ops->walk(b.stream, &(ae_walk){.n_trees = 2, .n_vocab = N, .trees = trees, .logits = logits_there,
                                             .token = token_there, .parent = parent_there, .eog = eog_there, .n_eog = 1,
                                             .out = out});
            fetch(&b, got, out, sizeof got);
            for (uint32_t t = 0; t < 2; t++) {
                const ae_walked want = walk_plainly(samplers[t], &trees[t], logits, token, parent, eog);
                if (got[t].n_drawn != want.n_drawn || got[t].n_path != want.n_path || got[t].overflowed != want.overflowed ||
                    memcmp(got[t].drawn, want.drawn, want.n_drawn * sizeof *want.drawn) ||
                    memcmp(got[t].path, want.path, want.n_path * sizeof *want.path))
                    fail_msg("%s, round %u, tree %u: %u drawn, %u of the tree; must be %u and %u", b.ops->name, round, t,
                             got[t].n_drawn, got[t].n_path, want.n_drawn, want.n_path);
                n_ended += trees[t].ends && want.n_drawn && want.drawn[want.n_drawn - 1] == eog;
                n_overflowed += want.overflowed;
                if (want.n_path > longest) longest = want.n_path;
                ae_sampler_free(samplers[t]);
            }
            b.ops->free(b.backend, logits_there, sizeof logits);
            b.ops->free(b.backend, token_there, sizeof token);
            b.ops->free(b.backend, parent_there, sizeof parent);
            b.ops->free(b.backend, eog_there, sizeof eog);
        }
        bench_close(&b);
    }
    assert_true(n_ended && n_overflowed && longest == 2);
}

static void test_proposals_of_a_backend(void **state)
{
    (void)state;
    static float logits[4][N];
    static int32_t map[N];
    for (uint32_t r = 0; r < 4; r++) make_logits(r, logits[r]);
    for (int32_t i = 0; i < N; i++) map[i] = 3 * (N - i);
    for (size_t which = 0; which < 2; which++) {
        bench b = bench_open(backends[which]);
        for (int mapped = 0; mapped < 2; mapped++) {
            ae_propose_row rows[3];
            ae_proposal got[3];
            ae_sampler *samplers[3];
            for (uint32_t i = 0; i < 3; i++) {
                const ae_sampling p = plain_sampling(i ? 0.7f : 0, 5 + i);
                assert_int_equal(ae_sampler_create(&samplers[i], &p, NULL, 3 * N + 1, 64, NULL), AERIE_OK);
                rows[i] = (ae_propose_row){ae_sampler_plain(samplers[i]), 3 - i,
                                           i == 2 ? AE_PROPOSE_MAX + 9 : 1 + 4 * i, 20 + i};
            }
            ae_proposal *out = send(&b, NULL, sizeof got);
            float *logits_there = send(&b, logits, sizeof logits);
            int32_t *map_there = send(&b, map, sizeof map);
            b.ops->propose(b.stream, &(ae_propose){.n_rows = 3, .n_logits = N, .rows = rows, .logits = logits_there,
                                                   .map = mapped ? map_there : NULL, .out = out});
            fetch(&b, got, out, sizeof got);
            for (uint32_t i = 0; i < 3; i++) {
                ae_proposal want;
                const uint32_t k = rows[i].k < AE_PROPOSE_MAX ? rows[i].k : AE_PROPOSE_MAX;
                want.n = ae_sampler_propose(samplers[i], logits[rows[i].output], N, mapped ? map : NULL, rows[i].position, k,
                                            want.id, want.p);
                assert_int_equal(want.n, k);
                assert_int_equal(got[i].n, k);
                assert_memory_equal(got[i].id, want.id, k * sizeof *want.id);
                assert_memory_equal(got[i].p, want.p, k * sizeof *want.p);
                ae_sampler_free(samplers[i]);
            }
            b.ops->free(b.backend, logits_there, sizeof logits);
            b.ops->free(b.backend, map_there, sizeof map);
        }
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_is_its_definition),
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_the_largest_noises_do_not_tie),
        cmocka_unit_test(test_ends_of_the_noise),
        cmocka_unit_test(test_coupled_proposals),
        cmocka_unit_test(test_filtered_proposals),
        cmocka_unit_test(test_walks_of_a_backend),
        cmocka_unit_test(test_proposals_of_a_backend),
        cmocka_unit_test(test_refuses_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
