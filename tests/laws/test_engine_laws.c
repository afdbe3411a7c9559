/* test_engine_laws.c - law 1 below sampling: logits rows and KV bytes, compared bit for bit.
 *
 * Models of every tensor type and several shapes, at every CPU level of this machine, with 1, 2 and 3 threads. "Plain"
 * is always: one row at a time, by the reference kernels on one thread. Each law is one test. Laws (a), (b) and (g) walk all
 * models, since kernels differ by type; the others, about rows and slots, walk the `deep` ones. The levels and thread counts of
 * a model rotate, but three models run all of them.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "every.h"
#include "rig.inc"
#include "rig_rows.inc"

/* ---- Models and configurations --------------------------------------------------------------- */

typedef struct case_model {
    const char *type, *shape;
    uint32_t n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_vocab; /* 0: as the shape says */
    bool tied, biases, rope_freqs;
    const char *arch;    /* NULL: llama. For tiny-moe n_ff is also that of an expert */
    uint32_t n_ff_shared, n_dense;
    bool fused;
    uint32_t n_q;        /* latent attention with a projection before queries */
    bool old_mla;
    ae_kv_type kv;
    uint32_t window; /* as if the model had it; 0: none */
    bool deep;       /* walked by every law */
    bool all_levels; /* runs with all levels x threads */
} case_model;

#define M(type_name, ...) {.type = type_name, .shape = __VA_ARGS__}
#define SIZES(e, f, h, kv, d, v) .n_embd = e, .n_ff = f, .n_heads = h, .n_kv_heads = kv, .head_dim = d, .n_vocab = v
#define MLA .arch = "deepseek2", .n_ff_shared = 96, .n_dense = 1
static const case_model models[] = {
    M("q4_0", "tiny", .deep = true, .all_levels = true),
    M("f32", "tiny"), M("f16", "tiny", .deep = true), M("bf16", "tiny"), M("q4_1", "tiny"), M("q5_0", "tiny"),
    M("q5_1", "tiny"),
    M("q8_0", "tiny"), M("iq4_nl", "tiny"), M("mxfp4", "tiny"), M("nvfp4", "tiny"),
    M("q4_k_m", "tiny-gqa", .deep = true, .all_levels = true),
    M("q2_K", "tiny-gqa"), M("q3_K", "tiny-gqa"), M("q4_K", "tiny-gqa"), M("q5_K", "tiny-gqa"), M("q6_K", "tiny-gqa"),
    M("iq4_xs", "tiny-gqa"), M("q5_k_m", "tiny-gqa"), M("tq1_0", "tiny-gqa"), M("tq2_0", "tiny-gqa"), M("q1_0", "tiny-gqa"),
    M("q2_0", "tiny-gqa"), M("iq1_s", "tiny-gqa"), M("iq1_m", "tiny-gqa"), M("iq2_xxs", "tiny-gqa"), M("iq2_xs", "tiny-gqa"),
    M("iq2_s", "tiny-gqa"), M("iq3_xxs", "tiny-gqa"), M("iq3_s", "tiny-gqa"),
    M("q4_1", "tiny-mha", .tied = true, .deep = true, .all_levels = true),
    M("q8_0", "tiny-mha", .tied = true, .biases = true, .deep = true),
    M("q6_K", "tiny-gqa", .tied = true, .rope_freqs = true, .deep = true),
    M("q4_0", "tiny", .biases = true, .rope_freqs = true),
    /* odd sizes: heads of 20 (no multiple of a vector), one KV head of 128, rows that are not a multiple of 16 */
    M("q8_0", "tiny", SIZES(96, 160, 8, 2, 20, 301), .biases = true, .deep = true),
    M("q4_0", "tiny", SIZES(64, 96, 3, 1, 128, 263), .deep = true),
    M("f32", "tiny", SIZES(72, 100, 3, 3, 24, 277)),
    M("f16", "tiny", SIZES(40, 52, 5, 1, 16, 259), .tied = true),
    /* other architectures, with experts */
    M("q4_0", "tiny-moe", .deep = true, .all_levels = true),
    M("q8_0", "tiny-moe", SIZES(64, 96, 4, 2, 16, 300), .arch = "qwen2moe", .n_ff_shared = 160, .biases = true, .deep = true),
    M("q4_k_m", "tiny-moe", SIZES(256, 256, 4, 2, 32, 300), .arch = "qwen3moe", .fused = true, .deep = true),
    M("q4_1", "tiny-moe", SIZES(64, 96, 4, 4, 16, 300), .arch = "dots1", .n_ff_shared = 192, .n_dense = 1, .deep = true),
    M("f32", "tiny-moe", SIZES(72, 50, 3, 3, 24, 277), .arch = "olmoe"),
    M("q6_K", "tiny-moe", SIZES(256, 256, 8, 8, 32, 300), .arch = "deepseek", .n_ff_shared = 512),
    M("q5_0", "tiny", .arch = "qwen3"),
    M("iq4_nl", "tiny", .arch = "qwen2", .biases = true, .tied = true),
    /* 8-bit caches, also with heads that are not a multiple of a vector or of 64 */
    M("q4_0", "tiny-gqa", .kv = AE_KV_Q8_0, .deep = true, .all_levels = true),
    M("q8_0", "tiny", SIZES(96, 160, 8, 2, 20, 301), .kv = AE_KV_Q8_0, .biases = true, .deep = true),
    M("q4_0", "tiny", SIZES(64, 96, 3, 1, 128, 263), .kv = AE_KV_Q8_0, .deep = true),
    M("q4_1", "tiny", SIZES(64, 96, 8, 1, 64, 263), .kv = AE_KV_Q8_0, .deep = true),
    M("f32", "tiny", SIZES(72, 100, 3, 3, 24, 277), .kv = AE_KV_Q8_0),
    /* 15-bit caches, and keys and values of two types */
    M("q4_0", "tiny-gqa", .kv = AE_KV_I16, .deep = true, .all_levels = true),
    M("q8_0", "tiny", SIZES(96, 160, 8, 2, 20, 301), .kv = AE_KV_I16, .biases = true, .deep = true),
    M("q4_0", "tiny", SIZES(64, 96, 3, 1, 128, 263), .window = 70, .kv = AE_KV_I16, .deep = true),
    M("q4_1", "tiny", SIZES(64, 96, 8, 1, 64, 263), .kv = AE_KV_I16_Q8_0, .deep = true),
    M("q4_1", "tiny", SIZES(64, 96, 8, 1, 64, 263), .kv = AE_KV_Q8_0_I16, .deep = true),
    /* 4-bit caches */
    M("q4_0", "tiny-gqa", .kv = AE_KV_Q4_0, .deep = true, .all_levels = true),
    M("q8_0", "tiny", SIZES(96, 160, 8, 2, 20, 301), .kv = AE_KV_Q4_0, .biases = true, .deep = true),
    M("q4_0", "tiny", SIZES(64, 96, 3, 1, 128, 263), .window = 70, .kv = AE_KV_Q4_0, .deep = true),
    M("f32", "tiny", SIZES(72, 100, 3, 3, 24, 277), .kv = AE_KV_Q8_0_Q4_0),
    M("q4_1", "tiny", SIZES(64, 96, 8, 1, 64, 263), .kv = AE_KV_I16_Q4_0, .deep = true),
    /* latent attention: split and fused, with and without a projection before queries, both codes of the cache */
    M("q4_0", "tiny-mla", MLA, .deep = true),
    M("q8_0", "tiny-mla", MLA, .n_q = 96, .old_mla = true, .kv = AE_KV_Q8_0, .deep = true),
    /* windows: smaller than a draft, not a multiple of a chunk, larger than one chunk */
    M("q4_0", "tiny", .window = 5, .deep = true),
    M("q4_0", "tiny-gqa", .window = 50, .deep = true),
    M("f16", "tiny", .window = 100, .deep = true),
    M("q4_0", "tiny-gqa", .window = 5, .kv = AE_KV_Q8_0, .deep = true),
    M("q8_0", "tiny", .window = 70, .kv = AE_KV_Q8_0, .deep = true),
};
#define N_MODELS (sizeof models / sizeof models[0])

static char folder[] = "/tmp/aerie_laws_XXXXXX";
static bool has_level[N_LEVELS];

#define N_ROWS 140 /* tokens of a plain run: more than two attention chunks */
#define N_FEW 70   /* of models that are not deep: more than one */
#define N_CTX 256

static const char *model_path(size_t i)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/%zu.gguf", folder, i);
    return path;
}

static void shape_model(const case_model *m, mk_options *o)
{
    assert_true(mk_shape(m->shape, o));
    o->type = m->type;
    if (m->n_embd) {
        o->n_embd = m->n_embd, o->n_ff = m->n_ff, o->n_heads = m->n_heads;
        o->n_kv_heads = m->n_kv_heads, o->head_dim = m->head_dim, o->n_vocab = m->n_vocab;
    }
    if (!m->deep) o->n_layers = 1, o->n_vocab = o->n_vocab < 301 ? o->n_vocab : 301;
    if (o->n_experts && m->n_ff) o->n_ff_expert = m->n_ff;
    o->n_q = m->n_q, o->old_mla = m->old_mla;
    o->arch = m->arch, o->n_ff_shared = m->n_ff_shared, o->n_dense = m->n_dense, o->fused = m->fused;
    o->tied = m->tied, o->biases = m->biases, o->rope_freqs = m->rope_freqs;
}

/* Results of plain decoding by model, computed once. */
static struct {
    float *rows;
    uint8_t *kv;
} plains[N_MODELS];

static int make_models(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_MODELS; i++) {
        mk_options o;
        aerie_error error;
        shape_model(&models[i], &o);
        if (mk_model(&o, model_path(i), &error) != AERIE_OK) {
            print_error("%s\n", error.text);
            return 1;
        }
    }
    for (size_t i = 0; i < N_LEVELS; i++) {
        has_level[i] = rig_has_level(levels[i]);
        if (!has_level[i]) print_message("skip: this machine lacks the CPU level %s\n", levels[i]);
    }
    return 0;
}

static int drop_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        unlink(model_path(i));
        free(plains[i].rows);
        free(plains[i].kv);
    }
    return rmdir(folder);
}

/* One model at one level with some threads, and the results of a plain run. */
typedef struct bench {
    rig rig;
    size_t i_model;
    uint32_t n; /* tokens of the plain run */
    char name[128];
    int32_t tokens[N_ROWS];
    const float *plain;      /* [N_ROWS][n_vocab] lent by plains */
    const uint8_t *plain_kv; /* [N_ROWS][slot_bytes] likewise */
    float *rows;       /* [N_ROWS][n_vocab] of the run under test */
    uint8_t *kv;       /* [N_ROWS][slot_bytes] */
    uint64_t random;
} bench;

static void *get(size_t n, size_t size)
{
    void *p = calloc(n, size);
    assert_non_null(p);
    return p;
}

static uint32_t below(bench *b, uint32_t n)
{
    return (uint32_t)(mk_random(&b->random) % n);
}

/* The device of plain runs: in a sample (every.h) the CPU, whose rows and KV bytes every device must have. */
static const char *plain_device(void)
{
    return test_whole() ? NULL : "cpu";
}

static void make_plain(size_t i_model, const int32_t *tokens, uint32_t n)
{
    rig r;
    const char *device = rig_device;
    rig_device = plain_device();
    rig_open(&r, model_path(i_model), "ref", 1, 3, N_CTX, models[i_model].kv, models[i_model].window);
    plains[i_model].rows = get(N_ROWS * r.n_vocab, sizeof(float));
    plains[i_model].kv = get(N_ROWS, r.slot_bytes);
    rig_chain(&r, 0, tokens, n, 1, plains[i_model].rows);
    rig_kv(&r, 0, 0, n, plains[i_model].kv);
    rig_close(&r);
    rig_device = device;
}

static void bench_open(bench *b, size_t i_model, size_t i_level, uint32_t n_threads)
{
    memset(b, 0, sizeof *b);
    b->i_model = i_model;
    b->n = models[i_model].deep ? N_ROWS : N_FEW;
    b->random = i_model;
    rig_open(&b->rig, model_path(i_model), levels[i_level], n_threads, 3, N_CTX, models[i_model].kv, models[i_model].window);
    snprintf(b->name, sizeof b->name, "model %zu (%s %s, kv %d, window %u), %s, %u threads", i_model, models[i_model].shape,
             models[i_model].type, (int)models[i_model].kv, models[i_model].window, levels[i_level], n_threads);
    for (size_t i = 0; i < N_ROWS; i++) b->tokens[i] = (int32_t)below(b, b->rig.n_vocab);
    if (!plains[i_model].rows) make_plain(i_model, b->tokens, b->n);
    b->plain = plains[i_model].rows;
    b->plain_kv = plains[i_model].kv;
    b->rows = get(N_ROWS * b->rig.n_vocab, sizeof(float));
    b->kv = get(N_ROWS, b->rig.slot_bytes);
}

static void bench_close(bench *b)
{
    rig_close(&b->rig);
    free(b->rows);
    free(b->kv);
}

/* All tokens live in sequence 0. */
static void fill_cache(bench *b)
{
    rig_truncate(&b->rig, 0, 0);
    rig_chain(&b->rig, 0, b->tokens, N_ROWS, N_ROWS, NULL);
}

static void same_rows(const bench *b, const float *got, const float *expected, uint32_t n, const char *what, uint32_t at)
{
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t i = 0; i < b->rig.n_vocab; i++) {
            const size_t k = (size_t)r * b->rig.n_vocab + i;
            if (memcmp(&got[k], &expected[k], sizeof *got))
                fail_msg("%s: %s %u: row %u: logit %u is %a, plain decoding gives %a", b->name, what, at, r, i, (double)got[k],
                         (double)expected[k]);
        }
}

static void same_kv(bench *b, uint32_t seq, const uint8_t *expected, uint32_t n, const char *what, uint32_t at)
{
    rig_kv(&b->rig, seq, 0, n, b->kv);
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(b->kv + i * b->rig.slot_bytes, expected + i * b->rig.slot_bytes, b->rig.slot_bytes))
            fail_msg("%s: %s %u: the K and V of position %u differ from those of a plain run", b->name, what, at, i);
}

typedef void law_fn(bench *b);

/* For each model plain decoding by the reference comes first, which takes most of the time where tests run slowly. */
#define EVERY ((uint32_t)AE_TEST_EVERY * (AE_TEST_EVERY > 8 ? 2 : 1))

/* Each model runs each level with one thread count, or all of both. Laws about rows and slots use little of the slow level
 * (ref). Samples of the laws begin at different models. */
static void walk(law_fn *law, bool deep)
{
    static size_t n_walks;
    const size_t start = test_whole() ? 0 : 13 * n_walks++;
    uint32_t n = 0, at = 0;
    for (size_t m = 0; m < N_MODELS; m++)
        for (uint32_t k = 0; k < N_LEVELS * 3; k++) {
            const size_t i = (start + m) % N_MODELS;
            const uint32_t level = k / 3, n_threads = 1 + k % 3;
            if (!has_level[level] || (deep && !models[i].deep)) continue;
            if (!models[i].all_levels && (n_threads != 1 + (i + level) % 3 || (deep && level == 0))) continue;
            if (deep && level == 0 && n_threads != 2) continue;
            if (n++ % EVERY || !test_takes(&at)) continue;
            bench b;
            bench_open(&b, i, level, n_threads);
            law(&b);
            bench_close(&b);
        }
}

/* ---- (a) Prompt chunks ------------------------------------------------------------------------- */

static void law_a(bench *b)
{
    const uint32_t chunks[] = {b->n, 64, 7, 1};
    const size_t nv = b->rig.n_vocab;
    for (size_t i = 0; i < b->n * nv; i++) assert_true(isfinite(b->plain[i]));
    assert_memory_not_equal(b->plain + 5 * nv, b->plain + 6 * nv, nv * sizeof(float));
    for (size_t i = 0; i < 4; i++) {
        if (i == 1 && !models[b->i_model].deep) continue;
        const uint32_t n = chunks[i] > 1 ? b->n : test_fewer(b->n);
        rig_truncate(&b->rig, 0, 0);
        rig_chain(&b->rig, 0, b->tokens, n, chunks[i], b->rows);
        same_rows(b, b->rows, b->plain, n, "prompt in chunks of", chunks[i]);
        same_kv(b, 0, b->plain_kv, n, "prompt in chunks of", chunks[i]);
    }
}

static void test_law_a_prompt_chunks_give_the_rows_of_plain_decoding(void **state)
{
    (void)state;
    walk(law_a, false);
}

/* ---- (b) Draft chains ---------------------------------------------------------------------------- */

static void chain_tree(ae_tree *tree, const int32_t *tokens, uint32_t n)
{
    tree->n = 0;
    for (uint32_t i = 0; i < n; i++) assert_int_equal(ae_tree_add(tree, (int32_t)i - 1, tokens[i], 0.5f), i);
}

static void law_b(bench *b)
{
    static const struct {
        uint32_t base, n;
    } drafts[] = {{0, 64}, {57, 8}, {63, 3}, {64, 1}, {126, 13}};
    for (size_t i = 0; i < sizeof drafts / sizeof drafts[0]; i++) {
        if (drafts[i].base + drafts[i].n >= b->n) continue;
        const uint32_t base = drafts[i].base, keep = below(b, drafts[i].n + 1);
        const float *expected = b->plain + (size_t)base * b->rig.n_vocab;
        ae_tree tree;
        int32_t path[AERIE_MAX_DRAFT];
        chain_tree(&tree, b->tokens + base + 1, drafts[i].n);
        rig_truncate(&b->rig, 0, 0);
        rig_chain(&b->rig, 0, b->tokens, base, N_ROWS, NULL);
        rig_tree(&b->rig, 0, b->tokens[base], &tree, b->rows);
        same_rows(b, b->rows, expected, 1 + drafts[i].n, "draft chain at", base);
        for (uint32_t k = 0; k < keep; k++) path[k] = (int32_t)k;
        rig_commit(&b->rig, 0, 1, path, keep);
        const uint32_t live = base + 1 + keep, more = b->n - live < 3 ? b->n - live : 3;
        rig_chain(&b->rig, 0, b->tokens + live, more, 1, b->rows);
        same_rows(b, b->rows, b->plain + (size_t)live * b->rig.n_vocab, more, "after a draft chain at", base);
    }
}

static void test_law_b_draft_chain_rows_equal_plain_decoding(void **state)
{
    (void)state;
    walk(law_b, false);
}

/* ---- (c) Draft trees ------------------------------------------------------------------------------ */

/* Each node against the plain decoding of its path. Plain decoding goes on from an ancestor's rows where it can, leaving
 * the same state as decoding the whole path one row at a time. */
static void check_nodes(bench *b, uint32_t base, const ae_tree *tree)
{
    const size_t row_bytes = b->rig.n_vocab * sizeof(float);
    float *row = get(1, row_bytes);
    int32_t last[AERIE_MAX_DRAFT] = {0}, nodes[AERIE_MAX_DRAFT];
    uint32_t n_last = 0;
    rig_truncate(&b->rig, 0, base);
    rig_chain(&b->rig, 0, b->tokens + base, 1, 1, row);
    same_rows(b, b->rows, row, 1, "root of a tree at", base);
    for (uint32_t i = 0; i < tree->n; i++) {
        const uint32_t depth = rig_path(tree, (int32_t)i, nodes);
        uint32_t shared = 0;
        while (shared < n_last && shared + 1 < depth && nodes[shared] == last[shared]) shared++;
        rig_truncate(&b->rig, 0, base + 1 + shared);
        for (uint32_t d = shared; d < depth; d++) rig_chain(&b->rig, 0, &tree->token[nodes[d]], 1, 1, row);
        same_rows(b, b->rows + (size_t)(1 + i) * b->rig.n_vocab, row, 1, "node of a tree at", base);
        memcpy(last, nodes, depth * sizeof *last);
        n_last = depth;
    }
    free(row);
}

static void law_c(bench *b)
{
    static const uint32_t bases[] = {0, 1, 30, 58, 60, 61, 62, 63, 64, 65, 66, 100, 126, 127, 128, 129, 130};
    fill_cache(b);
    for (size_t i = sizeof bases / sizeof bases[0]; i-- > 0;) { /* descending: positions below stay live */
        ae_tree tree;
        if (!test_picks(i, sizeof bases / sizeof bases[0], b->i_model)) continue;
        const uint32_t kind = (uint32_t)(i + b->i_model) % 4, n = i == b->i_model % 17 ? AERIE_MAX_DRAFT : 2 + below(b, 14);
        rig_random_tree(&tree, n, b->rig.n_vocab, kind, &b->random);
        rig_truncate(&b->rig, 0, bases[i]);
        rig_tree(&b->rig, 0, b->tokens[bases[i]], &tree, b->rows);
        check_nodes(b, bases[i], &tree);
    }
}

static void test_law_c_tree_rows_equal_plain_decoding_of_their_paths(void **state)
{
    (void)state;
    walk(law_c, true);
}

/* ---- (d) Committing ---------------------------------------------------------------------------------- */

/* A tree that holds the true continuation down to some depth, hidden among others; path[0..*n_path) are its nodes. */
static void true_tree(bench *b, uint32_t at, uint32_t most, ae_tree *tree, int32_t *path, uint32_t *n_path)
{
    const uint32_t n = 1 + below(b, 14), true_depth = below(b, most + 1);
    int32_t node = -1;
    *n_path = 0;
    tree->n = 0;
    while (tree->n < n || *n_path < true_depth) {
        if (*n_path < true_depth && below(b, 2)) {
            node = ae_tree_add(tree, node, b->tokens[at + 1 + *n_path], 0.5f);
            if (node < 0) node = ae_tree_child(tree, *n_path ? path[*n_path - 1] : -1, b->tokens[at + 1 + *n_path]);
            path[(*n_path)++] = node;
        } else {
            const int32_t parent = (int32_t)below(b, tree->n + 1) - 1;
            ae_tree_add(tree, parent, (int32_t)below(b, b->rig.n_vocab), 0.5f);
        }
    }
}

static void law_d(bench *b)
{
    for (uint32_t run = 0; run < 3; run++) {
        if (!test_picks(run, 3, b->i_model)) continue;
        const uint32_t n_prompt = run == 0 ? 1 : 50;
        uint32_t live = n_prompt, n_kept = 0, n_dropped = 0;
        rig_truncate(&b->rig, 0, 0);
        rig_chain(&b->rig, 0, b->tokens, n_prompt, N_ROWS, b->rows);
        while (live < N_ROWS) {
            ae_tree tree;
            int32_t path[AERIE_MAX_DRAFT];
            uint32_t n_path, most = N_ROWS - live - 1 < 6 ? N_ROWS - live - 1 : 6;
            true_tree(b, live, most, &tree, path, &n_path);
            rig_tree(&b->rig, 0, b->tokens[live], &tree, b->rows);
            same_rows(b, b->rows, b->plain + (size_t)live * b->rig.n_vocab, 1, "after committed drafts, position", live);
            for (uint32_t i = 0; i < n_path; i++)
                same_rows(b, b->rows + (size_t)(1 + path[i]) * b->rig.n_vocab,
                          b->plain + (size_t)(live + 1 + i) * b->rig.n_vocab, 1, "true node at position", live + 1 + i);
            rig_commit(&b->rig, 0, 1, path, n_path);
            live += 1 + n_path;
            n_kept += n_path;
            n_dropped += tree.n - n_path;
            assert_int_equal(ae_kv_n_live(ae_engine_kv(b->rig.engine), 0), live);
            same_kv(b, 0, b->plain_kv, live, "after a commit, live", live);
        }
        assert_true(n_kept > 20 && n_dropped > 20);
    }
}

static void test_law_d_live_kv_after_commits_equals_a_run_that_never_drafted(void **state)
{
    (void)state;
    walk(law_d, true);
}

/* ---- (e) Several sequences in one pass ------------------------------------------------------------------ */

static void law_e(bench *b)
{
    aerie_error error = {0};
    const size_t nv = b->rig.n_vocab;
    for (uint32_t run = 0; run < 4; run++) {
        if (!test_picks(run, 4, b->i_model)) continue;
        /* sequences 0, 1, 2 have the same text, stand at other places, and bring other rows: a prompt chunk, one row,
         * a chain as tree; the assignment rotates from run to run */
        const uint32_t live[3] = {10 + 23 * run, 64, 120}, brings[3] = {run % 3, (run + 1) % 3, (run + 2) % 3};
        uint32_t first[3], tree_first[3], n[3];
        ae_tree tree;
        for (uint32_t s = 0; s < 3; s++) {
            rig_truncate(&b->rig, s, 0);
            rig_chain(&b->rig, s, b->tokens, live[s], N_ROWS, NULL);
        }
        ae_engine_rows_clear(b->rig.engine);
        for (uint32_t s = 0; s < 3; s++) {
            n[s] = brings[s] == 0 ? 19 : 1;
            need(ae_engine_add_chain(b->rig.engine, s, b->tokens + live[s], n[s], AE_EXPORT_ALL, &first[s], &error), &error);
            if (brings[s] != 2) continue;
            chain_tree(&tree, b->tokens + live[s] + 1, 9);
            need(ae_engine_add_tree(b->rig.engine, s, &tree, &tree_first[s], &error), &error);
        }
        check_sound(&b->rig);
        need(ae_engine_pass(b->rig.engine, &error), &error);
        for (uint32_t s = 0; s < 3; s++) {
            for (uint32_t i = 0; i < n[s]; i++)
                same_rows(b, ae_engine_logits(b->rig.engine, first[s] + i), b->plain + (live[s] + i) * nv, 1,
                          "in a shared pass, sequence", s);
            for (uint32_t i = 0; brings[s] == 2 && i < 9; i++)
                same_rows(b, ae_engine_logits(b->rig.engine, tree_first[s] + i), b->plain + (live[s] + 1 + i) * nv, 1,
                          "drafts in a shared pass, sequence", s);
        }
        for (uint32_t s = 0; s < 3; s++) {
            const int32_t path[] = {0, 1, 2, 3};
            rig_commit(&b->rig, s, n[s], path, brings[s] == 2 ? 4 : 0);
        }
        for (uint32_t s = 0; s < 3; s++)
            same_kv(b, s, b->plain_kv, ae_kv_n_live(ae_engine_kv(b->rig.engine), s), "after a shared pass, sequence", s);
    }
}

static void test_law_e_sequences_in_one_pass_equal_each_alone(void **state)
{
    (void)state;
    walk(law_e, true);
}

/* ---- (f) Shared prefixes ---------------------------------------------------------------------------------- */

static void law_f(bench *b)
{
    static const uint32_t prefixes[] = {0, 1, 63, 64, 65, 100, 128, N_ROWS};
    const size_t nv = b->rig.n_vocab;
    ae_kv *kv = ae_engine_kv(b->rig.engine);
    ae_stream *stream = ae_engine_stream(b->rig.engine);
    float *fresh = get(8 * nv, sizeof *fresh);
    int32_t noise[N_ROWS];
    for (uint32_t i = 0; i < N_ROWS; i++) noise[i] = (int32_t)below(b, b->rig.n_vocab);
    fill_cache(b);
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        const uint32_t n = prefixes[i];
        int32_t other[8];
        if (!test_picks(i, sizeof prefixes / sizeof prefixes[0], b->i_model)) continue;
        for (uint32_t k = 0; k < 8; k++) other[k] = (int32_t)below(b, b->rig.n_vocab);
        rig_truncate(&b->rig, 2, 0);
        rig_chain(&b->rig, 2, b->tokens, n, N_ROWS, NULL);
        rig_chain(&b->rig, 2, other, 8, 1, fresh);
        /* the pages that the share will use hold other data, not those of an earlier run */
        rig_truncate(&b->rig, 1, 0);
        rig_chain(&b->rig, 1, noise, N_ROWS, N_ROWS, NULL);
        ae_kv_share(kv, stream, 1, 0, n);
        check_sound(&b->rig);
        assert_int_equal(ae_kv_n_live(kv, 1), n);
        same_kv(b, 1, b->plain_kv, n, "shared prefix of", n);
        rig_chain(&b->rig, 1, other, 8, i % 2 ? 8 : 1, b->rows);
        same_rows(b, b->rows, fresh, 8, "after a shared prefix of", n);
        same_kv(b, 0, b->plain_kv, N_ROWS, "source of a shared prefix of", n);
        /* cut inside a page that both hold, then write: the other sequence must not see it */
        const uint32_t cut = n > 40 ? n - 40 : 0;
        rig_truncate(&b->rig, 1, cut);
        rig_chain(&b->rig, 1, other, 8, 8, NULL);
        same_kv(b, 0, b->plain_kv, N_ROWS, "source of a cut prefix of", n);
        ae_kv_share(kv, stream, 1, 0, n);
        rig_truncate(&b->rig, 0, cut);
        rig_chain(&b->rig, 0, other, 8, 8, NULL);
        same_kv(b, 1, b->plain_kv, n, "sharer, when the source changed, of", n);
        rig_truncate(&b->rig, 0, cut);
        rig_chain(&b->rig, 0, b->tokens + cut, N_ROWS - cut, N_ROWS, NULL);
        same_kv(b, 0, b->plain_kv, N_ROWS, "source written again after", cut);
    }
    free(fresh);
}

static void test_law_f_a_shared_prefix_equals_a_fresh_one(void **state)
{
    (void)state;
    walk(law_f, true);
}

/* ---- (g) Levels and threads ---------------------------------------------------------------------------------- */

#define N_BASES 3
#define N_NODES 20

/* Rows of three trees, [N_BASES][1 + N_NODES][n_vocab]. */
static void run_trees(bench *b, float *rows)
{
    const uint32_t bases[N_BASES] = {b->n - 13, 61, 3};
    uint64_t random = b->i_model + 77;
    for (uint32_t i = 0; i < N_BASES; i++) {
        ae_tree tree;
        rig_random_tree(&tree, N_NODES, b->rig.n_vocab, i + 1, &random);
        rig_truncate(&b->rig, 0, bases[i]);
        rig_tree(&b->rig, 0, b->tokens[bases[i]], &tree, rows + (size_t)i * (1 + N_NODES) * b->rig.n_vocab);
    }
}

/* Case k: level k / 3 with 1 + k % 3 threads. */
static void compare_level(size_t i_model, uint32_t k, float *first_trees)
{
    bench b;
    rig_device = k ? NULL : plain_device();
    bench_open(&b, i_model, k / 3, 1 + k % 3);
    rig_device = NULL;
    float *trees = k ? get(N_BASES * (1 + N_NODES) * (size_t)b.rig.n_vocab, sizeof *trees) : first_trees;
    rig_chain(&b.rig, 0, b.tokens, b.n, 70, b.rows);
    same_rows(&b, b.rows, b.plain, b.n, "against ref with 1 thread, case", k);
    same_kv(&b, 0, b.plain_kv, b.n, "against ref with 1 thread, case", k);
    run_trees(&b, trees);
    same_rows(&b, trees, first_trees, N_BASES * (1 + N_NODES), "trees against ref with 1 thread, case", k);
    if (k) free(trees);
    bench_close(&b);
}

static void test_law_g_levels_and_threads_agree_with_ref_on_one_thread(void **state)
{
    (void)state;
    float *trees = get(N_BASES * (1 + N_NODES) * 512, sizeof *trees); /* no vocabulary above is larger */
    uint32_t at = 0;
    for (size_t i = 0; i < N_MODELS; i += EVERY) {
        if (!test_takes(&at)) continue;
        /* the first case gives the trees that the others are compared with; a sample has one other */
        for (uint32_t k = 0; k < (test_whole() ? N_LEVELS * 3 : 4); k += test_whole() ? 1 : 3)
            if (has_level[k / 3] && (k == 0 || k >= 3 || models[i].all_levels)) compare_level(i, k, trees);
    }
    free(trees);
}

/* ---- Windows --------------------------------------------------------------------------------------------------- */

/* Checks that windows have an effect: rows inside the first one see everything, later ones do not. */
static void test_a_window_hides_what_lies_before_it(void **state)
{
    (void)state;
    enum { WINDOW = 20, N = 100 };
    int32_t tokens[N];
    float *rows[2];
    size_t row_bytes = 0;
    for (int32_t i = 0; i < N; i++) tokens[i] = i * 7 % 250;
    for (uint32_t i = 0; i < 2; i++) {
        rig r;
        rig_open(&r, model_path(0), "ref", 1, 1, N, AE_KV_F16, i * WINDOW);
        row_bytes = r.n_vocab * sizeof(float);
        rows[i] = get(N, row_bytes);
        rig_chain(&r, 0, tokens, N, 64, rows[i]);
        rig_close(&r);
    }
    const size_t nv = row_bytes / sizeof(float);
    assert_memory_equal(rows[0], rows[1], WINDOW * row_bytes);
    for (size_t i = WINDOW; i < N; i++) assert_memory_not_equal(rows[0] + i * nv, rows[1] + i * nv, row_bytes);
    free(rows[0]);
    free(rows[1]);
}

/* ---- Weights ---------------------------------------------------------------------------------------------------- */

/* A device may not give all weights one block of memory. */
static void test_weights_in_several_blocks(void **state)
{
    (void)state;
    enum { N = 9 };
    static const size_t blocks[] = {0, 300, 1};
    const int32_t tokens[N] = {1, 5, 3, 7, 2, 2, 8, 9, 4};
    float *rows[2] = {NULL, NULL};
    for (uint32_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        rig r;
        rig_block = blocks[i];
        rig_open(&r, model_path(0), NULL, 1, 1, N, AE_KV_F16, 0);
        rig_block = 0;
        float *own = rows[i > 0] = get(N, r.n_vocab * sizeof *own);
        rig_chain(&r, 0, tokens, N, N, own);
        if (i) assert_memory_equal(own, rows[0], N * r.n_vocab * sizeof *own);
        assert_true(i ? r.net->parts.n_blocks > 1 : r.net->parts.n_blocks == 1);
        if (i) free(own);
        rig_close(&r);
    }
    free(rows[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_law_a_prompt_chunks_give_the_rows_of_plain_decoding),
        cmocka_unit_test(test_law_b_draft_chain_rows_equal_plain_decoding),
        cmocka_unit_test(test_law_c_tree_rows_equal_plain_decoding_of_their_paths),
        cmocka_unit_test(test_law_d_live_kv_after_commits_equals_a_run_that_never_drafted),
        cmocka_unit_test(test_law_e_sequences_in_one_pass_equal_each_alone),
        cmocka_unit_test(test_law_f_a_shared_prefix_equals_a_fresh_one),
        cmocka_unit_test(test_law_g_levels_and_threads_agree_with_ref_on_one_thread),
        cmocka_unit_test(test_a_window_hides_what_lies_before_it),
        cmocka_unit_test(test_weights_in_several_blocks),
    };
    return cmocka_run_group_tests_name("engine laws", tests, make_models, drop_models);
}
