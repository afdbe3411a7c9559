/* Block drafters against their authors' own code: hidden rows of a block after injected context, logits, greedy drafts and
 * confidences, from vectors that make_block_vectors.py wrote; P-EAGLE's rows from make_peagle_vectors.py. The KV cache of
 * drafters has 16-bit floats, theirs 32. And greedy drafts along a text, target included, against llama.cpp's
 * (block/llama_drafts.sh). */
#define _XOPEN_SOURCE 700 /* mkstemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/device.h"
#include "draft/head/pass.h"
#include "mkhead.h"
#include "mkmodel.h"
#include "text/token/vocab.h"

#define TOLERANCE 0.005 /* of rows of order 1; of logits of order 3 three times as much */

static char target_path[] = "/tmp/aerie_block_XXXXXX", head_path[] = "/tmp/aerie_block_XXXXXX";

static const struct {
    const char *name;
    mkhead_options options;
} cases[] = {
    {"dflash", {.kind = "dflash", .n_block = 8}},
    {"dflash-anchor", {.kind = "dflash", .n_block = 5, .from_anchor = 1, .n_layers = 3}},
    {"dflash-causal", {.kind = "dflash", .n_block = 16, .causal = true, .own_embedding = true, .own_output = true}},
    {"dflash2", {.kind = "dflash2", .n_block = 8}},
    {"dfly", {.kind = "dfly", .n_block = 8, .n_layers = 3}},
    {"dfly-narrow", {.kind = "dfly", .n_block = 5, .from_anchor = 1, .n_correct = 24}},
    {"dflash2-taps", {.kind = "dflash2", .n_block = 12, .n_conv = 4, .conv_group = 8, .n_pair = 37, .n_candidates = 16,
                      .n_layers = 3}},
    {"lilicorr", {.kind = "lilicorr", .n_block = 8, .n_lattice = 48, .lattice_heads = 3, .n_factors = 20}},
    {"lilicorr-conv", {.kind = "lilicorr", .n_block = 6, .n_lattice = 64, .lattice_layers = 3, .n_conv = 2,
                       .n_candidates = 16}},
    {"dspark", {.kind = "dspark", .n_block = 7, .n_markov = 16}},
    {"dspark-in-place", {.kind = "dspark", .n_block = 6, .from_anchor = -1, .n_markov = 32, .no_confidence = true}},
};

#define OK(call)                                                                     \
    do {                                                                             \
        aerie_error ok_error = {0};                                                  \
        if (call != AERIE_OK) fail_msg("%s: %s", #call, ok_error.text);              \
    } while (0)

/* A file of vectors; make_block_vectors.py says what it holds. */
typedef struct vectors {
    uint64_t hash;
    uint32_t n_context, width, n_rows, n_embd, n_vocab;
    int32_t anchor;
    const char *data;
    const float *features, *hidden; /* [n_context][width], [n_rows][n_embd] */
    const char *rows;               /* [n_rows] of token, confidence, logits */
} vectors;

static vectors read_vectors(const char *name)
{
    char path[512];
    vectors v = {0};
    snprintf(path, sizeof path, "tests/golden/block/%s.bin", name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s is missing", path);
    char *data = malloc(1 << 20);
    const size_t n = fread(data, 1, 1 << 20, f);
    fclose(f);
    assert_true(n > 32);
    memcpy(&v.hash, data, 8);
    memcpy(&v.n_context, data + 8, 20);
    memcpy(&v.anchor, data + 28, 4);
    v.data = data;
    v.features = (const float *)(const void *)(data + 32);
    v.hidden = v.features + v.n_context * v.width;
    v.rows = (const char *)(v.hidden + v.n_rows * v.n_embd);
    assert_int_equal(n, v.rows - data + v.n_rows * (8 + 4 * (size_t)v.n_vocab));
    return v;
}

static uint64_t hash_of(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint64_t h = 0xcbf29ce484222325u;
    assert_non_null(f);
    for (int c; (c = fgetc(f)) != EOF;) h = (h ^ (uint64_t)c) * 0x100000001b3u;
    fclose(f);
    return h;
}

static double distance(const float *a, const float *b, uint32_t n)
{
    double most = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= most)) most = fabs((double)a[i] - (double)b[i]); /* NaN counts */
    return most;
}

static int32_t best_of(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

typedef struct rig {
    ae_backend *backend;
    ae_model *model;
    ae_net *net;
    ae_engine *target;
    ae_dhead *head;
    ae_dhead_net *head_net;
    ae_dhead_engine *engine;
    float *features; /* on the device */
} rig;

static void open_rig(rig *r, const vectors *v)
{
    const ae_load_options load = {.n_threads = 1};
    const ae_dhead_net_options options = {.load = load};
    OK(ae_backend_open(&r->backend, NULL, "", &ok_error));
    OK(ae_model_load(&r->model, target_path, NULL, &ok_error));
    OK(ae_net_create(&r->net, r->model, r->backend, &load, &ok_error));
    OK(ae_dhead_load(&r->head, head_path, &ok_error));
    OK(ae_dhead_net_create(&r->head_net, r->head, r->net, &options, &ok_error));
    ae_engine_options o = {.n_ctx = 128, .n_seqs = 2, .n_batch = 64, .n_threads = 1, .n_taps = r->head->hparams.n_taps};
    memcpy(o.taps, r->head->hparams.taps, sizeof o.taps);
    OK(ae_engine_create(&r->target, r->net, &o, &ok_error));
    const ae_dhead_engine_options ho = {.n_ctx = 128, .n_seqs = 2, .n_batch = 64};
    OK(ae_dhead_engine_create(&r->engine, r->head_net, r->target, &ho, &ok_error));
    const size_t bytes = (size_t)v->n_context * v->width * sizeof(float);
    r->features = r->backend->ops->alloc(r->backend, bytes);
    OK(r->backend->ops->fill(r->backend, r->features, v->features, bytes, &ok_error));
}

static void close_rig(rig *r, const vectors *v)
{
    r->backend->ops->free(r->backend, r->features, (size_t)v->n_context * v->width * sizeof(float));
    ae_dhead_engine_free(r->engine);
    ae_dhead_net_free(r->head_net);
    ae_dhead_free(r->head);
    ae_engine_free(r->target);
    ae_net_free(r->net);
    ae_model_free(r->model);
    ae_backend_close(r->backend);
}

static const float *expected(const vectors *v, uint32_t i, int32_t *token, float *conf)
{
    const char *row = v->rows + i * (8 + 4 * (size_t)v->n_vocab);
    memcpy(token, row, 4);
    memcpy(conf, row + 4, 4);
    return (const float *)(const void *)(row + 8);
}

/* DFlash2: the best of the candidates of a row, the likeliest by its logits, given the token before. */
static int32_t best_pair(rig *r, const vectors *v, uint32_t out, const float *logits, int32_t before)
{
    const uint32_t k = r->head->hparams.n_candidates;
    int32_t tokens[1 + AE_PROPOSE_MAX] = {before}, best = -1;
    bool taken[4096] = {0};
    float top = -INFINITY;
    ae_dhead_pairs pairs;
    assert_true(v->n_vocab <= 4096);
    for (uint32_t c = 1; c <= k; c++) {
        int32_t most = -1;
        for (uint32_t t = 0; t < v->n_vocab; t++)
            if (!taken[t] && (most < 0 || logits[t] > logits[most])) most = (int32_t)t;
        taken[most] = true;
        tokens[c] = most;
    }
    OK(ae_dhead_run_pairs(r->engine, tokens, k + 1, &pairs, &ok_error));
    for (uint32_t c = 1; c <= k; c++) {
        const float score = logits[tokens[c]] + ae_dhead_pair_score(&pairs, out, 0, c);
        if (score > top) top = score, best = tokens[c];
    }
    return best;
}

/* LiLiCorr: the greedy path through the candidates of sequence 1, and the cosine of each of its tokens. */
static void walk_lattice(rig *r, uint32_t out, uint32_t n_rows, int32_t *tokens, float *cosines)
{
    const uint32_t k = r->head->hparams.n_candidates;
    ae_draw greedy;
    ae_propose_row rows[AE_DHEAD_MAX_BLOCK];
    ae_proposal found[AE_DHEAD_MAX_BLOCK];
    ae_dhead_pairs pairs;
    ae_draw_plan(&greedy, &(ae_sampling){.samplers = {AERIE_SAMPLER_TEMPERATURE}}, r->model->hparams.n_vocab);
    for (uint32_t i = 0; i < n_rows; i++) rows[i] = (ae_propose_row){&greedy, out + i, k, i};
    OK(ae_dhead_propose(r->engine, rows, n_rows, found, &ok_error));
    OK(ae_dhead_run_lattice(r->engine, (const uint32_t[]){1}, 1, out, found, &pairs, &ok_error));
    for (uint32_t i = 0, before = 0; i < n_rows; i++) {
        uint32_t best = 0;
        float top = -INFINITY;
        for (uint32_t c = 0; c < k; c++) {
            const float score = ae_dhead_pair_score(&pairs, 0, before, i * k + c);
            if (score > top) top = score, best = c;
        }
        tokens[i] = found[i].id[best], cosines[i] = top / r->head->hparams.lattice.scale;
        before = 1 + i * k + best;
    }
}

/* Down the greedy chain of the vectors; a chain of our own could part at a near tie. */
static void check_rows(rig *r, const vectors *v, const char *name, uint32_t out)
{
    int32_t before = v->anchor;
    double worst_hidden = 0, worst = 0, worst_conf = 0;
    uint32_t n_same = 0, n_moved = 0;
    const bool lattice = r->head->hparams.lattice.width > 0;
    int32_t walked[AE_DHEAD_MAX_BLOCK];
    float cosines[AE_DHEAD_MAX_BLOCK];
    if (lattice) walk_lattice(r, out, v->n_rows, walked, cosines);
    for (uint32_t i = 0; i < v->n_rows; i++) {
        int32_t token;
        float conf, own_conf = -1;
        const float *wanted = expected(v, i, &token, &conf);
        float hidden[256];
        assert_true(v->n_embd <= 256);
        r->backend->ops->download(r->engine->stream, hidden, ae_dhead_hidden(r->engine, out + i), v->n_embd * sizeof *hidden);
        const double far = distance(hidden, v->hidden + i * v->n_embd, v->n_embd);
        if (!(far <= worst_hidden)) worst_hidden = far;
        const ae_dhead_link link = {out + i, before};
        const bool linked = r->head->hparams.n_markov || r->head->hparams.n_correct;
        if (linked) OK(ae_dhead_run_links(r->engine, &link, 1, &own_conf, &ok_error));
        OK(ae_dhead_sync(r->engine, &ok_error));
        const float *logits = ae_dhead_logits(r->engine, linked ? 0 : out + i);
        const double off = distance(logits, wanted, v->n_vocab);
        if (!(off <= worst)) worst = off;
        if (lattice) own_conf = cosines[i];
        if (!(fabsf(conf - own_conf) <= worst_conf)) worst_conf = (double)fabsf(conf - own_conf);
        const bool paired = r->head->hparams.n_pair > 0;
        const int32_t best = lattice  ? walked[i]
                             : paired ? best_pair(r, v, out + i, logits, before)
                                      : best_of(logits, v->n_vocab);
        n_same += best == token;
        n_moved += (paired || lattice) && best != best_of(logits, v->n_vocab);
        before = token;
    }
    print_message("%-16s hidden %.4f, logits %.4f, confidence %.4f, %u of %u tokens\n", name, worst_hidden, worst, worst_conf,
                  n_same, v->n_rows);
    assert_true(worst_hidden < TOLERANCE && worst < 3 * TOLERANCE && worst_conf < TOLERANCE);
    assert_int_equal(n_same, v->n_rows);
    assert_true((!r->head->hparams.n_pair && !lattice) || n_moved); /* the pairs decide something */
}

static void check_case(size_t i)
{
    rig r = {0};
    vectors v = read_vectors(cases[i].name);
    mkhead_options o = cases[i].options;
    uint32_t out;
    o.type = "f32", o.qk_norm = true, o.seed = 3;
    OK(mkhead_write(&o, target_path, head_path, &ok_error));
    if (hash_of(head_path) != v.hash) fail_msg("%s: mkhead makes another head than the vectors are of", cases[i].name);
    open_rig(&r, &v);
    assert_int_equal(v.n_rows, ae_dhead_n_foreseen(&r.head->hparams));
    /* another sequence's rows precede these in the pass, and the context comes in pieces */
    const uint32_t pieces[] = {1, 20, v.n_context - 21};
    ae_dhead_restart(r.engine, 0, 0);
    for (uint32_t k = 0, at = 0; k < 3; at += pieces[k++]) {
        ae_dhead_clear(r.engine);
        OK(ae_dhead_add_true(r.engine, 0, r.features, NULL, 3, false, NULL));
        OK(ae_dhead_add_true(r.engine, 1, r.features + (size_t)at * v.width, NULL, pieces[k], false, NULL));
        OK(ae_dhead_run_true(r.engine, &ok_error));
        OK(ae_dhead_sync(r.engine, &ok_error));
    }
    ae_dhead_clear(r.engine);
    OK(ae_dhead_add_block(r.engine, 0, 5, 1, &out));
    OK(ae_dhead_add_block(r.engine, 1, v.anchor, v.n_rows, &out));
    ae_dhead_run_blocks(r.engine);
    OK(ae_dhead_sync(r.engine, &ok_error));
    assert_int_equal(out, 1);
    check_rows(&r, &v, cases[i].name, out);
    close_rig(&r, &v);
    free((void *)v.data);
}

/* P-EAGLE: the newest row of a text and the mask rows after it, from make_peagle_vectors.py. */
static void check_parallel(const char *name, mkhead_options o)
{
    rig r = {0};
    vectors v = read_vectors(name);
    uint32_t out = 0, other;
    int32_t tokens[64];
    o.type = "f32", o.seed = 3;
    OK(mkhead_write(&o, target_path, head_path, &ok_error));
    if (hash_of(head_path) != v.hash) fail_msg("%s: mkhead makes another head than the vectors are of", name);
    open_rig(&r, &v);
    assert_true(v.n_rows == o.n_parallel && v.n_context <= 64);
    for (uint32_t i = 0; i < v.n_context; i++) tokens[i] = (int32_t)((7 * i * i + 13 * i + 5) % r.model->hparams.n_vocab);
    const uint32_t pieces[] = {1, 20, v.n_context - 21};
    ae_dhead_restart(r.engine, 0, 0);
    for (uint32_t k = 0, at = 0; k < 3; at += pieces[k++]) {
        ae_dhead_clear(r.engine);
        OK(ae_dhead_add_true(r.engine, 0, r.features, tokens + 7, 2, true, &other));
        OK(ae_dhead_add_masks(r.engine, 0, 1));
        OK(ae_dhead_add_true(r.engine, 1, r.features + (size_t)at * v.width, tokens + at, pieces[k], true, &out));
        if (k == 2) OK(ae_dhead_add_masks(r.engine, 1, v.n_rows - 1));
        OK(ae_dhead_run_true(r.engine, &ok_error));
        OK(ae_dhead_sync(r.engine, &ok_error));
        ae_dhead_restart(r.engine, 0, 0);
    }
    check_rows(&r, &v, name, out);
    close_rig(&r, &v);
    free((void *)v.data);
}

static void test_parallel(void **state)
{
    (void)state;
    check_parallel("peagle", (mkhead_options){.n_parallel = 6, .n_draft = 128});
    check_parallel("peagle-layers", (mkhead_options){.n_parallel = 12, .n_layers = 3, .norm_before_residual = true,
                                                     .own_embedding = true});
    check_parallel("peagle-normed", (mkhead_options){.n_parallel = 8, .n_layers = 2, .norm_before_fc = true, .n_draft = 200});
}

static void test_vectors(void **state)
{
    (void)state;
    mk_options o;
    assert_true(mk_shape("tiny", &o));
    o.type = "f32", o.seed = 7;
    OK(mk_model(&o, target_path, &ok_error));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(i);
}

/* ---- LiLiCorr's scores -------------------------------------------------------------------------------------------- */

/* n numbers from `first` to `last`, as torch.linspace has them. */
static void line(float first, float last, uint32_t n, float *x)
{
    for (uint32_t i = 0; i < n; i++) x[i] = (float)((double)first + ((double)last - (double)first) * i / (n - 1));
}

/* Writes the first rows of the head's embeddings. */
static void set_embeddings(const float *x, size_t n)
{
    ae_gguf *gguf;
    OK(ae_gguf_open(&gguf, head_path, NULL, &ok_error));
    const ae_gguf_tensor *t = ae_gguf_tensor_find(gguf, "token_embd.weight");
    const uint8_t *all = t->data;
    char *copy = malloc(t->bytes);
    memcpy(copy, all, t->bytes);
    memcpy(copy, x, n * sizeof *x);
    FILE *f = fopen(head_path, "r+b");
    fseek(f, (long)t->offset, SEEK_SET);
    assert_int_equal(fwrite(copy, 1, t->bytes, f), t->bytes);
    fclose(f);
    free(copy);
    ae_gguf_close(gguf);
}

/* The head, inputs and frozen scores of NVIDIA's own test (TensorRT-LLM, commit 8d62b3e5, test_head_matches_reference_scores).
 * Keys and values of candidates have 16-bit floats here. */
static void test_lattice(void **state)
{
    static const uint32_t ids[9] = {2, 5, 9, 6, 3, 1, 4, 7, 8};
    static const float logs[9] = {-0.4f, -1.5f, -3.0f, -0.6f, -1.7f, -2.7f, -0.2f, -2.1f, -3.4f};
    static const float start[3] = {-2.00565147f, -2.00631571f, -2.01010752f};
    static const float expected[2][3][3] = {
        {{1.16437435f, 1.16812551f, 1.15701485f}, {1.16656375f, 1.17030466f, 1.15921211f},
         {1.17068172f, 1.17445230f, 1.16334319f}},
        {{1.14806044f, 1.14459574f, 1.12698877f}, {1.14481199f, 1.14134955f, 1.12373281f},
         {1.14475155f, 1.14125943f, 1.12357390f}}};
    rig r = {0};
    const vectors none = {.n_context = 1, .width = 1, .features = (const float[]){0}};
    const mkhead_options o = {.kind = "lilicorr", .type = "f32", .waves = true, .n_embd = 32, .n_block = 4, .n_candidates = 3,
                              .n_lattice = 8, .n_factors = 8, .qk_norm = true};
    float embeddings[512], hidden[96], anchor[32];
    ae_proposal rows[3] = {{0}};
    ae_dhead_pairs pairs;
    (void)state;
    OK(mkhead_write(&o, target_path, head_path, &ok_error));
    line(-1.2f, 1.3f, 512, embeddings);
    line(-0.7f, 0.9f, 96, hidden);
    line(-0.5f, 0.4f, 32, anchor);
    set_embeddings(embeddings, 512);
    open_rig(&r, &none);
    for (uint32_t i = 0; i < 9; i++) {
        rows[i / 3].n = 3;
        rows[i / 3].id[i % 3] = (int32_t)ids[i];
        rows[i / 3].p[i % 3] = expf(logs[i]);
    }
    /* the other sequence's anchor is another one */
    OK(r.backend->ops->fill(r.backend, r.engine->hidden, hidden, sizeof hidden, &ok_error));
    OK(r.backend->ops->fill(r.backend, r.engine->anchors + 32, anchor, sizeof anchor, &ok_error));
    OK(ae_dhead_run_lattice(r.engine, (const uint32_t[]){1}, 1, 0, rows, &pairs, &ok_error));
    double worst = 0;
    for (uint32_t b = 0; b < 7; b++)
        for (uint32_t c = 0; c < 3; c++) {
            const float own = ae_dhead_pair_score(&pairs, 0, b, (b + 2) / 3 * 3 + c);
            const float wanted = b ? expected[(b - 1) / 3][(b - 1) % 3][c] : start[c];
            if (!(distance(&own, &wanted, 1) <= worst)) worst = distance(&own, &wanted, 1);
        }
    print_message("LiLiCorr's scores: within %.7f\n", worst);
    assert_true(worst < 3e-6); /* without the biases it is 5.6e-6, without attention 2e-3 */
    close_rig(&r, &none);
}

/* ---- llama.cpp's drafts ------------------------------------------------------------------------------------------ */

enum { N_DRAFTED = 15 }; /* the most that a case drafts */

/* The heads of block/llama_drafts.txt; they tap layers whose input llama.cpp can extract. */
static const struct witness {
    const char *name;
    mkhead_options options;
} witnesses[] = {
    {"dflash", {.kind = "dflash", .n_block = 8}},
    {"dflash-causal", {.kind = "dflash", .n_block = 16, .causal = true, .own_embedding = true, .own_output = true}},
    {"dflash2", {.kind = "dflash2", .n_block = 8}},
    {"dspark", {.kind = "dspark", .n_block = 7, .n_markov = 16}},
    {"dspark-in-place", {.kind = "dspark", .n_block = 6, .from_anchor = -1, .n_markov = 32, .no_confidence = true}},
};

/* Runs tokens [from, to) of the text and gives the head their features. */
static void advance(rig *r, uint32_t from, uint32_t to, uint32_t n_vocab)
{
    int32_t tokens[64];
    uint32_t first;
    for (uint32_t i = from; i < to; i++) tokens[i - from] = (int32_t)((7 * i * i + 13 * i + 5) % n_vocab);
    ae_engine_rows_clear(r->target);
    OK(ae_engine_add_chain(r->target, 0, tokens, to - from, AE_EXPORT_ALL, &first, &ok_error));
    OK(ae_engine_pass(r->target, &ok_error));
    ae_dhead_clear(r->engine);
    OK(ae_dhead_add_true(r->engine, 0, ae_engine_features(r->target, first), NULL, to - from, false, NULL));
    OK(ae_dhead_run_true(r->engine, &ok_error));
    OK(ae_dhead_sync(r->engine, &ok_error));
    assert_int_equal(ae_engine_commit(r->target, 0, to - from, NULL, 0), AERIE_OK);
}

/* The greedy draft after `newest`, each token given the one before it. */
static uint32_t draft(rig *r, int32_t newest, uint32_t n_vocab, int32_t drafted[N_DRAFTED])
{
    const ae_dhead_hparams *h = &r->head->hparams;
    const uint32_t n = ae_dhead_n_foreseen(h);
    const vectors v = {.n_vocab = n_vocab};
    uint32_t out;
    assert_true(n <= N_DRAFTED);
    ae_dhead_clear(r->engine);
    OK(ae_dhead_add_block(r->engine, 0, newest, n, &out));
    ae_dhead_run_blocks(r->engine);
    OK(ae_dhead_sync(r->engine, &ok_error));
    for (uint32_t i = 0; i < n; i++) {
        const int32_t before = i ? drafted[i - 1] : newest;
        float conf;
        const ae_dhead_link link = {out + i, before};
        if (h->n_markov) OK(ae_dhead_run_links(r->engine, &link, 1, &conf, &ok_error));
        OK(ae_dhead_sync(r->engine, &ok_error));
        const float *logits = ae_dhead_logits(r->engine, h->n_markov ? 0 : out + i);
        drafted[i] = h->n_pair ? best_pair(r, &v, out + i, logits, before) : best_of(logits, n_vocab);
    }
    ae_dhead_drop_drafted(r->engine, 0);
    return n;
}

/* Compares the drafts of a case, a line of the file each. */
static void check_witness(const struct witness *w, FILE *f)
{
    rig r = {0};
    const vectors none = {.n_context = 1, .width = 1, .features = (const float[]){0}};
    mkhead_options o = w->options;
    uint32_t at = 0, n_same = 0, n_all = 0, n_lines = 0, position;
    char line[512], name[32];
    o.type = "f32", o.qk_norm = true, o.seed = 3, o.n_taps = 2, o.taps[0] = 1, o.taps[1] = 2;
    OK(mkhead_write(&o, target_path, head_path, &ok_error));
    open_rig(&r, &none);
    ae_dhead_restart(r.engine, 0, 0);
    rewind(f);
    while (fgets(line, sizeof line, f)) {
        int used;
        int32_t drafted[N_DRAFTED];
        if (sscanf(line, "%31s %u%n", name, &position, &used) != 2 || strcmp(name, w->name)) continue;
        const uint32_t n_vocab = r.model->hparams.n_vocab;
        if (position > at) advance(&r, at, position, n_vocab);
        at = position;
        const uint32_t n = draft(&r, (int32_t)((7 * at * at + 13 * at + 5) % n_vocab), n_vocab, drafted);
        const char *rest = line + used;
        for (uint32_t i = 0; i < n; i++, n_all++) {
            char *end;
            const long token = strtol(rest, &end, 10);
            assert_true(end > rest);
            rest = end;
            n_same += token == drafted[i];
            if (token != drafted[i])
                print_message("%s, position %u: token %u is %d, llama.cpp's %ld\n", name, at, i, (int)drafted[i], token);
        }
        n_lines++;
    }
    print_message("%-16s %u of %u tokens are llama.cpp's\n", w->name, n_same, n_all);
    assert_int_equal(n_lines, 6);
    assert_int_equal(n_same, n_all);
    close_rig(&r, &none);
}

static void test_llama(void **state)
{
    (void)state;
    FILE *f = fopen("tests/golden/block/llama_drafts.txt", "r");
    assert_non_null(f);
    for (size_t i = 0; i < sizeof witnesses / sizeof *witnesses; i++) check_witness(&witnesses[i], f);
    fclose(f);
}

static int drop_files(void **state)
{
    (void)state;
    unlink(target_path);
    return unlink(head_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors), cmocka_unit_test(test_parallel),
                                       cmocka_unit_test(test_lattice), cmocka_unit_test(test_llama)};
    const int a = mkstemp(target_path), b = mkstemp(head_path);
    if (a < 0 || b < 0) return 1;
    close(a), close(b);
    return cmocka_run_group_tests(tests, NULL, drop_files);
}
