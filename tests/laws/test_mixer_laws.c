/* test_mixer_laws.c - law 1 for one model of every kind of mixer, with every kind of drafter.
 *
 * Below aerie.h: rows of a prompt in chunks, a drafted tree, and what follows an accepted path, by the best kernels on several
 * threads, equal plain decoding by the reference kernels on one, one row at a time. Through aerie.h: the same tokens with every
 * drafter, in chains and trees, for one sequence and several. A new kind is a row of `mixers`. Embeddings: the vector of a text
 * among others, by any kernels on any threads, equals that of the text alone by the reference.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie_extra.h"
#include "engine/engine.h"
#include "device/device.h"
#include "every.h"
#include "mkarch.h"
#include "mkhead.h"
#include "spec_rig.inc"

/* Models of mkarch_table.c; a drafter that is a model is the next one. */
static const struct mixer {
    const char *kind, *model;
} mixers[] = {
    {"attention", "llama"},      {"windows", "gemma3"},  {"sinks", "gpt-oss"},          {"chunks", "llama4"},
    {"gated, DeltaNet", "qwen35"}, {"Mamba2", "nemotron_h"}, {"short convolution", "lfm2"}, {"shared KV", "gemma4"},
    {"latent", "deepseek2"}, {"Mamba2 beside attention", "falcon-h1"}, {"narrow values", "mimo2"}, {"own gate", "afmoe"},
    {"Mamba1", "mamba"}, {"Mamba1, experts", "jamba-moe"},
    {"repeated layers", "nanbeige"}, {"a table of positions", "gpt2"}, {"layers without parts", "deci"},
    {"experts of the layer's input", "arctic"},
    {"KDA, latent", "kimi-linear"}, {"bounded KDA", "bailingmoe3"}, {"PLaMo-2", "plamo2"},
    {"sparse, latent", "deepseek32"}, {"sparse, shared choices", "glm-dsa-shared"},
    {"sparse and windowed, latent", "dots3note"}, {"banked rows", "kimi-k3"},
    {"sparse, streams apart", "hy_v4"},
    {"sparse blocks of each group", "minimax-m3"}, {"two streams", "hrm_text"},
    {"adapters that tokens choose", "graniteswitch"},
    {"the start of the stream again", "talkie"}, {"several streams", "gemma3n"},
    {"compressed rows, hyper-connections", "deepseek4"}, {"pools, KDA, streams", "glm5-next"},
    {"n-grams, means, low-rank streams", "qwen4exp"},
    {"shared small experts", "grovemoe"}, {"linear attention", "minimax-01"}, {"RWKV 6", "rwkv6"}, {"RWKV 7", "rwkv7"},
    {"RWKV 6, shared heads", "rwkv6qwen2"}, {"RWKV 7 and a gated network", "arwkv7"},
    {"parallel blocks", "command-r"},
    {"scores by distance", "bloom"}, {"an early router", "smallthinker"}, {"softplus gates", "laguna"},
};
#define N_MIXERS (sizeof mixers / sizeof mixers[0])

enum { N_ROWS = 75, N_BEFORE = 41, N_TREE = 14, N_REQUESTS = 3, N_PREDICT = 14 };

static aerie_model *models[N_MIXERS], *ref_models[N_MIXERS];
static aerie_drafter_head *heads[N_MIXERS];
static int32_t tokens[N_REQUESTS][N_ROWS];

/* ---- Rows ---------------------------------------------------------------------------------------------------------- */

typedef struct engine {
    ae_model *model;
    ae_backend *backend;
    ae_net *net;
    ae_engine *engine;
} engine;

static void open_engine(engine *e, const char *path, const char *level, uint32_t n_threads)
{
    aerie_error error = {0};
    const ae_engine_options o = {.n_ctx = MKARCH_CTX, .n_seqs = 1, .n_batch = N_ROWS,
                                 .n_outputs = N_ROWS, .n_threads = n_threads, .n_snapshots = 2};
    need(ae_model_load(&e->model, path, NULL, &error), &error);
    need(ae_backend_open(&e->backend, NULL, level, &error), &error);
    need(ae_net_create(&e->net, e->model, e->backend, &(ae_load_options){.n_threads = n_threads}, &error), &error);
    need(ae_engine_create(&e->engine, e->net, &o, &error), &error);
}

static void close_engine(engine *e)
{
    ae_engine_free(e->engine);
    ae_net_free(e->net);
    ae_backend_close(e->backend);
    ae_model_free(e->model);
}

/* Logits of list[0..n), `step` rows a pass, after what is live; all are kept. */
static void chain(const engine *e, const int32_t *list, uint32_t n, uint32_t step, float *logits)
{
    aerie_error error = {0};
    for (uint32_t done = 0, m; done < n; done += m) {
        uint32_t first;
        m = n - done < step ? n - done : step;
        ae_engine_rows_clear(e->engine);
        need(ae_engine_add_chain(e->engine, 0, list + done, m, AE_EXPORT_ALL, &first, &error), &error);
        need(ae_engine_pass(e->engine, &error), &error);
        for (uint32_t i = 0; i < m; i++)
            memcpy(logits + (size_t)(done + i) * MKARCH_VOCAB, ae_engine_logits(e->engine, first + i),
                   MKARCH_VOCAB * sizeof *logits);
        assert_int_equal(ae_engine_commit(e->engine, 0, m, NULL, 0), AERIE_OK);
    }
}

static void same_rows(const char *kind, const char *what, const float *got, const float *wanted, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(got + (size_t)i * MKARCH_VOCAB, wanted + (size_t)i * MKARCH_VOCAB, MKARCH_VOCAB * sizeof *got))
            fail_msg("%s: %s: row %u is another", kind, what, i);
}

/* A tree after N_BEFORE tokens: each node's row is that of its path; a path is accepted, and the rows after it are as if it had
 * never been a draft. */
static void check_tree(const char *kind, const engine *best, const engine *ref, uint64_t seed)
{
    static float got[N_ROWS * MKARCH_VOCAB], wanted[N_ROWS * MKARCH_VOCAB];
    aerie_error error = {0};
    ae_tree tree = {.n = 0};
    uint64_t random = seed;
    uint32_t root, first;
    int32_t path[N_TREE], text[N_ROWS];
    for (uint32_t i = 0; i < N_TREE; i++)
        ae_tree_add(&tree, (int32_t)(mk_random(&random) % (i + 1)) - 1, (int32_t)(3 + mk_random(&random) % 250), 0.5f);
    (void)ae_engine_truncate(best->engine, 0, 0);
    chain(best, tokens[0], N_BEFORE, 11, got);
    ae_engine_rows_clear(best->engine);
    need(ae_engine_add_chain(best->engine, 0, tokens[0] + N_BEFORE, 1, AE_EXPORT_ALL, &root, &error), &error);
    need(ae_engine_add_tree(best->engine, 0, &tree, &first, &error), &error);
    need(ae_engine_pass(best->engine, &error), &error);
    memcpy(text, tokens[0], (N_BEFORE + 1) * sizeof *text);
    (void)ae_engine_truncate(ref->engine, 0, 0);
    chain(ref, text, N_BEFORE + 1, 1, wanted);
    ae_engine_snapshot(ref->engine, 0);
    uint32_t n_path = 0;
    for (uint32_t i = 0; i < tree.n; i++) {
        uint32_t n = (uint32_t)tree.depth[i];
        n_path = n;
        for (int32_t at = (int32_t)i; at >= 0; at = tree.parent[at]) path[--n] = at;
        for (uint32_t k = 0; k < n_path; k++) text[N_BEFORE + 1 + k] = tree.token[path[k]];
        const uint32_t begin = ae_engine_truncate(ref->engine, 0, N_BEFORE + 1); /* a snapshot is there */
        chain(ref, text + begin, N_BEFORE + 1 + n_path - begin, 1, wanted);
        if (memcmp(ae_engine_logits(best->engine, first + i), wanted + (size_t)(N_BEFORE + n_path - begin) * MKARCH_VOCAB,
                   MKARCH_VOCAB * sizeof *wanted))
            fail_msg("%s: node %u of the tree is another", kind, i);
    }
    assert_int_equal(ae_engine_commit(best->engine, 0, 1, path, n_path), AERIE_OK); /* the last node's path */
    chain(best, tokens[1], 9, 4, got);
    chain(ref, tokens[1], 9, 1, wanted);
    same_rows(kind, "after an accepted path", got, wanted, 9);
    assert_true(ae_kv_is_sound(ae_engine_kv(best->engine)));
}

static void test_rows(void **state)
{
    (void)state;
    static float got[N_ROWS * MKARCH_VOCAB], wanted[N_ROWS * MKARCH_VOCAB];
    for (size_t i = 0; i < N_MIXERS; i += AE_TEST_EVERY > 4 ? 5 : 1) {
        engine best, ref;
        open_engine(&best, path_of(mixers[i].model), "", 3);
        open_engine(&ref, path_of(mixers[i].model), "ref", 1);
        chain(&ref, tokens[0], N_ROWS, 1, wanted);
        static const uint32_t steps[] = {N_ROWS, 13, 1};
        for (size_t k = 0; k < 3; k++) {
            (void)ae_engine_truncate(best.engine, 0, 0);
            chain(&best, tokens[0], N_ROWS, steps[k], got);
            same_rows(mixers[i].kind, "a prompt in chunks", got, wanted, N_ROWS);
        }
        check_tree(mixers[i].kind, &best, &ref, i + 1);
        close_engine(&best);
        close_engine(&ref);
    }
}

/* Runs list[0..n) in one pass and compares the rows that export logits with those of plain decoding. */
static void export_some(const engine *e, const char *kind, uint32_t at, uint32_t n, ae_export exported, const float *wanted)
{
    aerie_error error = {0};
    uint32_t first;
    ae_engine_rows_clear(e->engine);
    need(ae_engine_add_chain(e->engine, 0, tokens[0] + at, n, exported, &first, &error), &error);
    need(ae_engine_pass(e->engine, &error), &error);
    for (uint32_t i = exported == AE_EXPORT_ALL ? 0 : n - 1; exported != AE_EXPORT_NONE && i < n; i++)
        same_rows(kind, "a row among others without logits", ae_engine_logits(e->engine, first + i),
                  wanted + (size_t)(at + i) * MKARCH_VOCAB, 1);
    assert_int_equal(ae_engine_commit(e->engine, 0, n, NULL, 0), AERIE_OK);
}

/* Rows whose logits nobody reads skip most of the last layer; the others, in the same pass and in later ones, do not notice. */
static void test_unread_rows(void **state)
{
    (void)state;
    static const ae_export exported[] = {AE_EXPORT_NONE, AE_EXPORT_LAST, AE_EXPORT_NONE, AE_EXPORT_ALL, AE_EXPORT_LAST};
    static float wanted[N_ROWS * MKARCH_VOCAB];
    for (size_t i = 0; i < N_MIXERS; i += AE_TEST_EVERY > 4 ? 3 : 1) {
        engine best, ref;
        open_engine(&best, path_of(mixers[i].model), "", 3);
        open_engine(&ref, path_of(mixers[i].model), "ref", 1);
        ae_engine_set_whole(ref.engine, true);
        chain(&ref, tokens[0], N_ROWS, 1, wanted);
        for (uint32_t k = 0; k < 5; k++) export_some(&best, mixers[i].kind, k * N_ROWS / 5, N_ROWS / 5, exported[k], wanted);
        close_engine(&best);
        close_engine(&ref);
    }
}

typedef struct seen {
    const ae_weight *weight;
    uint32_t n_rows;
} seen;

static void count_rows(void *user, const ae_weight *weight, const float *x, size_t stride, uint32_t n_rows, uint32_t n_in)
{
    seen *s = user;
    (void)x, (void)stride, (void)n_in;
    if (weight == s->weight) s->n_rows += n_rows;
}

/* How many rows the products of the last layer get. */
static void test_unread_rows_cost_nothing(void **state)
{
    (void)state;
    static const struct count {
        ae_export exported;
        bool whole;
        uint32_t n_down, n_out; /* rows of the feed-forward block's last product, and of the attention's */
    } counts[] = {{AE_EXPORT_NONE, false, 0, 0}, {AE_EXPORT_LAST, false, 1, 15}, {AE_EXPORT_ALL, false, 15, 15},
                  {AE_EXPORT_NONE, true, 15, 15}, {AE_EXPORT_LAST, true, 15, 15}};
    engine e;
    open_engine(&e, path_of("llama"), "", 2);
    const ae_net_layer *last = &e.net->layers[e.model->hparams.n_layers - 1];
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        static float rows[N_ROWS * MKARCH_VOCAB];
        seen down = {last->w_down, 0}, out = {last->wo, 0};
        (void)ae_engine_truncate(e.engine, 0, 0);
        ae_engine_set_whole(e.engine, true);
        chain(&e, tokens[0], 15, 15, rows);
        for (uint32_t k = 0; k < 2; k++) {
            (void)ae_engine_truncate(e.engine, 0, 0);
            e.backend->ops->watch(ae_engine_stream(e.engine), count_rows, k ? &out : &down);
            ae_engine_set_whole(e.engine, counts[i].whole);
            export_some(&e, "llama", 0, 15, counts[i].exported, rows);
            e.backend->ops->watch(ae_engine_stream(e.engine), NULL, NULL);
        }
        assert_int_equal(down.n_rows, counts[i].n_down);
        assert_int_equal(out.n_rows, counts[i].n_out);
    }
    close_engine(&e);
}

/* ---- Tokens --------------------------------------------------------------------------------------------------------- */

static void run_all(const aerie_model *model, uint32_t n_seqs, const aerie_spec *spec, uint32_t sampling, const run *plain,
                    run *r)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_request requests[N_REQUESTS];
    static const size_t lengths[N_REQUESTS] = {1, 40, N_ROWS};
    const ae_session_test test = {.fixed = plain != NULL, .oracle_error = 0.3f};
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = MKARCH_CTX, p.n_seqs = n_seqs, p.n_batch = 48, p.n_threads = 2, p.spec = *spec;
    need(ae_session_create_for_test(&session, model, &p, &test, &error), &error);
    if (plain) tell_oracle(session, plain);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        requests[i] = aerie_request_default();
        requests[i].tokens = tokens[i], requests[i].n_tokens = lengths[i], requests[i].n_predict = N_PREDICT;
        requests[i].ignore_eos = true;
        requests[i].sampling = sampling_of(sampling);
    }
    generate(session, model, requests, N_REQUESTS, r);
    aerie_session_free(session);
}

static void test_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        aerie_spec_type type;
        aerie_tree tree;
        uint32_t n_seqs;
    } ways[] = {
        {"n-grams", AERIE_SPEC_NGRAM, AERIE_TREE_AUTO, 3},    {"oracle", AE_SPEC_ORACLE, AERIE_TREE_OFF, 3},
        {"oracle tree", AE_SPEC_ORACLE, AERIE_TREE_AUTO, 1},  {"random", AE_SPEC_RANDOM, AERIE_TREE_AUTO, 2},
        {"draft model", AERIE_SPEC_DRAFT, AERIE_TREE_OFF, 2}, {"draft model's tree", AERIE_SPEC_DRAFT, AERIE_TREE_AUTO, 1},
        {"EAGLE", AERIE_SPEC_EAGLE3, AERIE_TREE_OFF, 1},      {"EAGLE's tree", AERIE_SPEC_EAGLE3, AERIE_TREE_AUTO, 3}};
    static run plain, got;
    const size_t n_ways = sizeof ways / sizeof *ways, step = (size_t)AE_TEST_EVERY < n_ways ? (size_t)AE_TEST_EVERY : n_ways;
    uint32_t n_accepted = 0;
    for (size_t i = 0; i < N_MIXERS; i += AE_TEST_EVERY > 8 ? 3 : 1) {
        const uint32_t sampling = i % 2;
        aerie_spec spec = aerie_spec_default();
        spec.type = AERIE_SPEC_NONE;
        run_all(ref_models[i], 1, &spec, sampling, NULL, &plain);
        for (size_t w = (i + 1) % step; w < n_ways; w += step) {
            spec.type = ways[w].type, spec.tree = ways[w].tree, spec.n_max = 5, spec.ngram = false;
            spec.draft_model = spec.type == AERIE_SPEC_DRAFT ? models[(i + 1) % N_MIXERS] : NULL;
            spec.head = spec.type == AERIE_SPEC_EAGLE3 ? heads[i] : NULL;
            run_all(models[i], ways[w].n_seqs, &spec, sampling, &plain, &got);
            for (size_t k = 0; k < N_REQUESTS; k++) {
                char text[96];
                snprintf(text, sizeof text, "%s, %s", mixers[i].kind, ways[w].name);
                same_answer(&got.answers[k], &plain.answers[k], text, k);
                n_accepted += got.answers[k].stats.n_accepted;
            }
        }
    }
    assert_true(n_accepted > 100u / (uint32_t)AE_TEST_EVERY);
}

/* Drafts that reach beyond a table of positions do not change the drafts of other sequences. */
static void test_end_of_table(void **state)
{
    enum { N_OVER = 6, N_DRAFT = 12, N_LIVE = MKARCH_CTX - N_DRAFT + N_OVER };
    static int32_t text[N_LIVE + N_DRAFT];
    static float wanted[(N_LIVE + N_DRAFT) * MKARCH_VOCAB];
    aerie_error error = {0};
    aerie_session *session;
    ae_tree tree = {.n = 0};
    engine best, ref;
    uint32_t first;
    size_t m = 0;
    (void)state;
    while (strcmp(mixers[m].model, "gpt2")) m++;
    for (size_t k = 0; k < N_LIVE + N_DRAFT; k++) text[k] = tokens[k % 2][k % N_ROWS];
    open_engine(&best, path_of("gpt2"), "", 2);
    open_engine(&ref, path_of("gpt2"), "ref", 1);
    chain(&ref, text, MKARCH_CTX, 1, wanted);
    for (int i = 0; i < N_DRAFT; i++) ae_tree_add(&tree, i - 1, text[N_LIVE + i], 0.5f);
    static float scratch[N_LIVE * MKARCH_VOCAB];
    chain(&best, text, N_LIVE, 50, scratch);
    ae_engine_rows_clear(best.engine);
    need(ae_engine_add_tree(best.engine, 0, &tree, &first, &error), &error);
    need(ae_engine_pass(best.engine, &error), &error);
    for (uint32_t i = 0; i < N_DRAFT - N_OVER; i++)
        same_rows("a table of positions", "a draft before its end", ae_engine_logits(best.engine, first + i),
                  wanted + (size_t)(N_LIVE + i) * MKARCH_VOCAB, 1);
    close_engine(&best);
    close_engine(&ref);
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = MKARCH_CTX + 1;
    const aerie_status status = aerie_session_create(&session, models[m], &p, &error);
    if (status != AERIE_ERROR_ARGUMENT || !strstr(error.text, "a table of 256 positions"))
        fail_msg("status %d: %s", (int)status, error.text);
}

/* ---- Embeddings ------------------------------------------------------------------------------------------------------ */

enum { N_TEXTS = 14, MAX_TEXT = 230, MAX_WIDTH = 128 };

static int32_t text_tokens[N_TEXTS][MAX_TEXT];
static aerie_embed_text texts[N_TEXTS];

static aerie_embedder *embedder_of(const aerie_model *model, uint32_t n_threads, uint32_t n_batch, aerie_pooling pooling)
{
    aerie_error error = {0};
    aerie_embedder *e;
    aerie_embedder_params p = aerie_embedder_params_default();
    p.n_threads = n_threads;
    p.n_batch = n_batch;
    p.pooling = pooling;
    need(aerie_embedder_create(&e, model, &p, &error), &error);
    return e;
}

/* Texts from short to several chunks of keys; some are two texts. */
static void make_texts(void)
{
    static const size_t lengths[N_TEXTS] = {1, 2, 5, 9, 17, 33, 63, 64, 65, 100, 128, 129, 200, MAX_TEXT};
    uint64_t random = 11;
    for (size_t i = 0; i < N_TEXTS; i++) {
        for (size_t k = 0; k < lengths[i]; k++) text_tokens[i][k] = 3 + (int32_t)(mk_random(&random) % 250);
        texts[i] =
            (aerie_embed_text){.tokens = text_tokens[i], .n_tokens = lengths[i], .n_first = i % 3 == 2 ? lengths[i] / 2 : 0};
    }
}

/* All texts at once, from the i-th on, against those of each alone. */
static void check_vectors(const char *name, const aerie_model *model, uint32_t n_threads, uint32_t n_batch,
                          aerie_pooling pooling, const float *wanted)
{
    static float got[N_TEXTS * MAX_WIDTH];
    aerie_error error = {0};
    aerie_embed_text turned[N_TEXTS];
    aerie_embedder *e = embedder_of(model, n_threads, n_batch, pooling);
    const size_t n = aerie_embedder_n_out(e), first = n_threads * 5 % N_TEXTS;
    for (size_t i = 0; i < N_TEXTS; i++) turned[i] = texts[(first + i) % N_TEXTS];
    need(aerie_embedder_embed(e, turned, N_TEXTS, got, &error), &error);
    for (size_t i = 0; i < N_TEXTS; i++)
        if (memcmp(got + i * n, wanted + (first + i) % N_TEXTS * n, n * sizeof *got))
            fail_msg("%s: the vector of text %zu is another on %u threads, %u rows a pass", name,
                     (first + i) % N_TEXTS, n_threads, n_batch);
    aerie_embedder_free(e);
}

static void check_embeddings(const char *name, aerie_pooling pooling)
{
    static float wanted[N_TEXTS * MAX_WIDTH];
    aerie_error error = {0};
    char path[96];
    snprintf(path, sizeof path, "%s", path_of(name));
    need(mkarch_write(mkarch_find(name), true, path, &error), &error);
    aerie_model *ref = load(path, "ref");
    aerie_embedder *e = embedder_of(ref, 1, 512, pooling);
    assert_true(aerie_embedder_n_out(e) <= MAX_WIDTH);
    for (size_t i = 0; i < N_TEXTS; i++)
        need(aerie_embedder_embed(e, &texts[i], 1, wanted + i * aerie_embedder_n_out(e), &error), &error);
    aerie_embedder_free(e);
    for (size_t l = 0; l < N_LEVELS; l += AE_TEST_EVERY > 4 ? 3 : 1) {
        aerie_model *model = load(path, levels[l]);
        if (!model) continue;
        check_vectors(name, model, 1, 512, pooling, wanted);
        check_vectors(name, model, 3, 70, pooling, wanted);
        aerie_model_free(model);
    }
    aerie_model_free(ref);
    unlink(path);
}

static void test_embeddings(void **state)
{
    static const struct {
        const char *name;
        aerie_pooling pooling;
    } cases[] = {{"bert", AERIE_POOLING_AUTO}, {"bert-rank", AERIE_POOLING_AUTO}, {"smollm3", AERIE_POOLING_MEAN},
                 {"nomic-bert", AERIE_POOLING_CLS}, {"olmo3", AERIE_POOLING_AUTO}, {"qwen3next", AERIE_POOLING_LAST},
                 {"modern-bert", AERIE_POOLING_AUTO}, {"nomic-bert-moe", AERIE_POOLING_AUTO},
                 {"eurobert", AERIE_POOLING_LAST}, {"modern-bert-rank", AERIE_POOLING_AUTO},
                 {"neo-bert", AERIE_POOLING_CLS}, {"llama-embed", AERIE_POOLING_AUTO},
                 {"gemma-embedding", AERIE_POOLING_AUTO}, {"jina-bert-v2-code", AERIE_POOLING_MEAN},
                 {"t5encoder", AERIE_POOLING_MEAN}};
    (void)state;
    make_texts();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += AE_TEST_EVERY > 4 ? 3 : 1)
        check_embeddings(cases[i].name, cases[i].pooling);
}

static void refused(aerie_status status, aerie_status wanted, const aerie_error *error, const char *part)
{
    if (status != wanted || !strstr(error->text, part)) fail_msg("status %d: %s", (int)status, error->text);
}

/* Pairs of texts for an encoder, and refusals. */
static void test_encoder(void **state)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_drafter_head *head;
    aerie_embedder *e;
    aerie_embedder_params p = aerie_embedder_params_default();
    float one[MAX_WIDTH], two[MAX_WIDTH];
    char path[96];
    (void)state;
    make_texts();
    snprintf(path, sizeof path, "%s", path_of("bert"));
    need(mkarch_write(mkarch_find("bert"), true, path, &error), &error);
    aerie_model *model = load(path, "");
    aerie_embed_text text = texts[4];
    e = embedder_of(model, 1, 0, AERIE_POOLING_AUTO);
    assert_int_equal(aerie_embedder_pooling(e), AERIE_POOLING_MEAN);
    text.n_first = 0;
    need(aerie_embedder_embed(e, &text, 1, one, &error), &error);
    text.n_first = text.n_tokens;
    need(aerie_embedder_embed(e, &text, 1, two, &error), &error);
    assert_memory_equal(one, two, aerie_embedder_n_out(e) * sizeof *one);
    text.n_first = 3;
    need(aerie_embedder_embed(e, &text, 1, two, &error), &error);
    assert_memory_not_equal(one, two, aerie_embedder_n_out(e) * sizeof *one);
    text.n_first = text.n_tokens + 1;
    refused(aerie_embedder_embed(e, &text, 1, one, &error), AERIE_ERROR_ARGUMENT, &error, "first part");
    text = (aerie_embed_text){.tokens = text_tokens[0]};
    refused(aerie_embedder_embed(e, &text, 1, one, &error), AERIE_ERROR_ARGUMENT, &error, "no tokens");
    text = (aerie_embed_text){.tokens = (const int32_t[]){5, MKARCH_VOCAB}, .n_tokens = 2};
    refused(aerie_embedder_embed(e, &text, 1, one, &error), AERIE_ERROR_ARGUMENT, &error, "token 2 of text 1 is 264");
    static int32_t many[MKARCH_CTX + 1];
    text = (aerie_embed_text){.tokens = many, .n_tokens = MKARCH_CTX + 1};
    refused(aerie_embedder_embed(e, &text, 1, one, &error), AERIE_ERROR_LIMIT, &error, "257 tokens");
    aerie_embedder_free(e);
    p.pooling = AERIE_POOLING_RANK;
    refused(aerie_embedder_create(&e, model, &p, &error), AERIE_ERROR_UNSUPPORTED, &error, "classification head");
    p = aerie_embedder_params_default();
    p.n_ctx = MKARCH_CTX + 1;
    refused(aerie_embedder_create(&e, model, &p, &error), AERIE_ERROR_ARGUMENT, &error, "256 positions");
    refused(aerie_session_create(&session, model, NULL, &error), AERIE_ERROR_UNSUPPORTED, &error, "is an encoder");
    refused(aerie_drafter_head_load(&head, model, path, NULL, &error), AERIE_ERROR_UNSUPPORTED, &error, "is an encoder");
    aerie_session_params with_draft = aerie_session_params_default();
    with_draft.spec.type = AERIE_SPEC_DRAFT;
    with_draft.spec.draft_model = model;
    refused(aerie_session_create(&session, models[0], &with_draft, &error), AERIE_ERROR_UNSUPPORTED, &error, "is an encoder");
    aerie_model_free(model);
    unlink(path);
}

/* ---- Models ---------------------------------------------------------------------------------------------------------- */

static int make_models(void **state)
{
    uint64_t random = 3;
    (void)state;
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_MIXERS; i++) {
        aerie_error error = {0};
        char path[96], head[112];
        snprintf(path, sizeof path, "%s", path_of(mixers[i].model));
        need(mkarch_write(mkarch_find(mixers[i].model), true, path, &error), &error);
        models[i] = load(path, "");
        ref_models[i] = load(path, "ref");
        snprintf(head, sizeof head, "%s-head.gguf", path);
        const mkhead_options o = {.kind = "eagle3", .type = "f32", .n_draft = 24};
        need(mkhead_write(&o, path, head, &error), &error);
        need(aerie_drafter_head_load(&heads[i], models[i], head, NULL, &error), &error);
        unlink(head);
    }
    for (size_t i = 0; i < N_REQUESTS; i++)
        for (size_t k = 0; k < N_ROWS; k++)
            tokens[i][k] = k < 20 ? 3 + (int32_t)(mk_random(&random) % 250) : tokens[i][k - 20]; /* repeats itself, so that
                                                                                                  * n-grams find something */
    return 0;
}

static int drop_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MIXERS; i++) {
        aerie_drafter_head_free(heads[i]);
        aerie_model_free(models[i]);
        aerie_model_free(ref_models[i]);
        unlink(path_of(mixers[i].model));
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_unread_rows),
                                       cmocka_unit_test(test_unread_rows_cost_nothing), cmocka_unit_test(test_tokens),
                                       cmocka_unit_test(test_end_of_table), cmocka_unit_test(test_embeddings),
                                       cmocka_unit_test(test_encoder)};
    return cmocka_run_group_tests(tests, make_models, drop_models);
}
