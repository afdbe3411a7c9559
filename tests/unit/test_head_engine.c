/* Running drafter heads against the float64 reference: hidden rows and logits of true rows, of chains and of trees, for every
 * kind and variant; the batching of true rows changes no bit; windows; rows shared between sequences. */
#define _XOPEN_SOURCE 700 /* mkstemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/gguf_write.h"
#include "device/device.h"
#include "draft/head/engine.h"
#include "head_ref.h"
#include "mkhead.h"
#include "mkmodel.h"
#include "text/token/vocab.h"

#define N_TEXT 40
static char target_path[] = "/tmp/aerie_head_engine_XXXXXX", head_path[] = "/tmp/aerie_head_engine_XXXXXX";
#define TOLERANCE 1e-3

typedef struct rig {
    ae_backend *backend;
    ae_model *model;
    ae_vocab *vocab;
    ae_net *net;
    ae_engine *engine;
    ae_dhead *head;
    ae_dhead_net *head_net;
    ae_dhead_engine *head_engine;
    head_ref *ref;
    uint32_t width; /* features of a position */
    int32_t tokens[N_TEXT];
    float *features;    /* [N_TEXT][width] of the engine */
    double *features64; /* the same */
} rig;

static void make_target(const char *path, const char *type)
{
    mk_options o;
    assert_true(mk_shape("tiny-gqa", &o));
    o.type = type;
    aerie_error error = {0};
    if (mk_model(&o, path, &error) != AERIE_OK) fail_msg("%s", error.text);
}

#define OK(call)                                                                     \
    do {                                                                             \
        aerie_error ok_error = {0};                                                  \
        if (call != AERIE_OK) fail_msg("%s: %s", #call, ok_error.text);              \
    } while (0)

/* The true features of a text, from the target. */
static void run_target(rig *r)
{
    uint32_t first;
    uint64_t seed = 5;
    const uint32_t n_vocab = r->model->hparams.n_vocab;
    for (int i = 0; i < N_TEXT; i++) r->tokens[i] = (int32_t)(mk_random(&seed) % n_vocab);
    ae_engine_rows_clear(r->engine);
    OK(ae_engine_add_chain(r->engine, 0, r->tokens, N_TEXT, AE_EXPORT_NONE, &first, &ok_error));
    OK(ae_engine_pass(r->engine, &ok_error));
    r->features = ae_alloc(N_TEXT * (size_t)r->width, sizeof *r->features);
    r->features64 = ae_alloc(N_TEXT * (size_t)r->width, sizeof *r->features64);
    r->backend->ops->download(ae_engine_stream(r->engine), r->features, ae_engine_features(r->engine, first),
                              N_TEXT * (size_t)r->width * sizeof *r->features);
    for (size_t i = 0; i < N_TEXT * (size_t)r->width; i++) r->features64[i] = (double)r->features[i];
    ae_engine_commit(r->engine, 0, 0, NULL, 0);
}

static rig open_rig(const mkhead_options *o, uint32_t n_vocab)
{
    rig r = {0};
    aerie_error error = {0};
    make_target(target_path, "f32");
    if (mkhead_write(o, target_path, head_path, &error) != AERIE_OK) fail_msg("%s", error.text);
    OK(ae_backend_open(&r.backend, NULL, "", &ok_error));
    OK(ae_model_load(&r.model, target_path, NULL, &ok_error));
    const ae_load_options load = {.n_threads = 1};
    OK(ae_net_create(&r.net, r.model, r.backend, &load, &ok_error));
    OK(ae_dhead_load(&r.head, head_path, &ok_error));
    OK(ae_vocab_create(&r.vocab, r.model->gguf, &ok_error));
    const ae_dhead_net_options head_load = {.load = load, .vocab = r.vocab, .n_vocab = n_vocab};
    OK(ae_dhead_net_create(&r.head_net, r.head, r.net, &head_load, &ok_error));
    ae_engine_options eo = {.n_ctx = 512, .n_seqs = 2, .n_threads = 1, .n_taps = r.head->hparams.n_taps};
    memcpy(eo.taps, r.head->hparams.taps, sizeof eo.taps);
    OK(ae_engine_create(&r.engine, r.net, &eo, &ok_error));
    const ae_dhead_engine_options ho = {.n_ctx = 512, .n_seqs = 2, .n_batch = 64};
    OK(ae_dhead_engine_create(&r.head_engine, r.head_net, r.engine, &ho, &ok_error));
    r.width = eo.n_taps * r.model->hparams.n_embd;
    assert_non_null(r.ref = head_ref_create(r.head, r.model));
    run_target(&r);
    return r;
}

static void close_rig(rig *r)
{
    head_ref_free(r->ref);
    ae_free(r->features);
    ae_free(r->features64);
    ae_dhead_engine_free(r->head_engine);
    ae_engine_free(r->engine);
    ae_dhead_net_free(r->head_net);
    ae_dhead_free(r->head);
    ae_net_free(r->net);
    ae_vocab_free(r->vocab);
    ae_model_free(r->model);
    ae_backend_close(r->backend);
}

/* |a - b| / |b| */
static double distance(const float *a, const double *b, size_t n)
{
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s += b[i] * b[i];
    }
    return sqrt(d / s);
}

/* An output of the engine against a row of the reference. */
static void check(const rig *r, uint32_t out, int row, const char *what)
{
    const ae_dhead_hparams *h = &r->head->hparams;
    const double *hidden = h->feedback_normed ? head_ref_normed(r->ref, row) : head_ref_hidden(r->ref, row);
    float *fed = ae_alloc(h->layer.n_embd, sizeof *fed);
    r->backend->ops->download(ae_engine_stream(r->engine), fed, ae_dhead_hidden(r->head_engine, out),
                              h->layer.n_embd * sizeof *fed);
    const double dh = distance(fed, hidden, h->layer.n_embd);
    ae_free(fed);
    if (!(dh < TOLERANCE)) fail_msg("%s: hidden row differs by %g", what, dh);
    const double *logits = head_ref_logits(r->ref, row);
    double all[4096];
    const uint32_t n = r->head_net->n_draft;
    assert_true(n <= 4096);
    /* the rows of the target's head that the engine kept */
    for (uint32_t i = 0; i < n; i++)
        all[i] = r->head_net->trimmed && !r->head->to_target ? logits[r->head_net->to_target[i]] : logits[i];
    const double dl = distance(ae_dhead_logits(r->head_engine, out), all, n);
    if (!(dl < TOLERANCE)) fail_msg("%s: logits differ by %g", what, dl);
}

/* True rows [at, at + n) of sequence seq; the output of the last. */
static uint32_t add_true(const rig *r, uint32_t seq, uint32_t at, uint32_t n)
{
    uint32_t out = 0;
    ae_dhead_clear(r->head_engine);
    ae_dhead_add_true(r->head_engine, seq, r->features + (size_t)at * r->width, r->tokens + at + 1, n, true, &out);
    OK(ae_dhead_run_true(r->head_engine, &ok_error));
    OK(ae_dhead_sync(r->head_engine, &ok_error));
    return out;
}

static uint32_t draft_row(const rig *r, uint32_t seq, int32_t parent, int32_t token, uint32_t *out)
{
    ae_dhead_clear(r->head_engine);
    const uint32_t row = ae_dhead_add_drafted(r->head_engine, seq, parent, token, out);
    ae_dhead_run_drafted(r->head_engine);
    OK(ae_dhead_sync(r->head_engine, &ok_error));
    return row;
}

static void walk(const mkhead_options *o, uint32_t n_vocab, const char *what)
{
    rig r = open_rig(o, n_vocab);
    const int32_t t[] = {7, 21, 3, 90, 14, 55};
    int row = -1;
    /* a text in pieces, a draft on each */
    for (uint32_t at = 0, n = 1; at + n < N_TEXT; at += n, n = n % 5 + 1) {
        uint32_t out = add_true(&r, 1, at, n);
        for (uint32_t i = 0; i < n; i++) {
            row = head_ref_add(r.ref, row, r.tokens[at + i + 1], r.features64 + (size_t)(at + i) * r.width);
            assert_true(row >= 0);
        }
        check(&r, out, row, what);
        int ref_row = row;
        int32_t parent = -1;
        for (int i = 0; i < 4; i++) { /* a chain */
            parent = (int32_t)draft_row(&r, 1, parent, t[i], &out);
            ref_row = head_ref_add(r.ref, ref_row, t[i], NULL);
            check(&r, out, ref_row, what);
        }
        ae_dhead_drop_drafted(r.head_engine, 1);
        /* a tree, two rows a level, whose second path is scattered over the slots */
        uint32_t outs[2];
        int32_t rows[2] = {-1, -1};
        int ref_rows[2] = {row, row};
        for (int level = 0; level < 3; level++) {
            ae_dhead_clear(r.head_engine);
            for (int i = 0; i < 2; i++) {
                rows[i] = (int32_t)ae_dhead_add_drafted(r.head_engine, 1, rows[i], t[2 * i + level], &outs[i]);
                ref_rows[i] = head_ref_add(r.ref, ref_rows[i], t[2 * i + level], NULL);
            }
            ae_dhead_run_drafted(r.head_engine);
            OK(ae_dhead_sync(r.head_engine, &ok_error));
            for (int i = 0; i < 2; i++) check(&r, outs[i], ref_rows[i], what);
        }
        ae_dhead_drop_drafted(r.head_engine, 1);
    }
    close_rig(&r);
}

/* P-EAGLE: mask rows after the true rows of a pass are rows of the reference that have the mask's token and its vector. */
static void walk_masks(const mkhead_options *o, const char *what)
{
    rig r = open_rig(o, 0);
    int row = -1;
    double *taps = malloc(r.width * sizeof *taps);
    const float *mask = (const float *)(const void *)r.head->mask_hidden->data;
    for (uint32_t i = 0; i < r.width; i++) taps[i] = (double)mask[i];
    for (uint32_t at = 0, n = 1; at + n < N_TEXT; at += n, n = n % 5 + 1) {
        const uint32_t n_masks = at % r.head->hparams.n_parallel;
        uint32_t out = 0, other = 0;
        ae_dhead_clear(r.head_engine);
        OK(ae_dhead_add_true(r.head_engine, 0, r.features, r.tokens + 1, 2, true, &other)); /* and rows of another sequence */
        OK(ae_dhead_add_masks(r.head_engine, 0, 1));
        OK(ae_dhead_add_true(r.head_engine, 1, r.features + (size_t)at * r.width, r.tokens + at + 1, n, true, &out));
        OK(ae_dhead_add_masks(r.head_engine, 1, n_masks));
        assert_int_equal(ae_dhead_add_masks(r.head_engine, 1, r.head->hparams.n_parallel), AERIE_ERROR_INTERNAL);
        OK(ae_dhead_run_true(r.head_engine, &ok_error));
        OK(ae_dhead_sync(r.head_engine, &ok_error));
        assert_int_equal(out, 2);
        assert_int_equal(ae_dhead_n_true(r.head_engine, 1), at + n);
        for (uint32_t i = 0; i < n; i++)
            row = head_ref_add(r.ref, row, r.tokens[at + i + 1], r.features64 + (size_t)(at + i) * r.width);
        int ref_row = row;
        for (uint32_t i = 0; i <= n_masks; i++) {
            check(&r, out + i, ref_row, what);
            ref_row = head_ref_add(r.ref, ref_row, r.head->hparams.mask, taps);
        }
        ae_dhead_restart(r.head_engine, 0, 0);
    }
    free(taps);
    close_rig(&r);
}

static void test_parallel(void **state)
{
    (void)state;
    walk_masks(&(mkhead_options){.type = "f32", .n_parallel = 6, .n_draft = 128}, "P-EAGLE");
    walk_masks(&(mkhead_options){.type = "f32", .n_parallel = 16, .n_layers = 4, .norm_before_residual = true,
                                 .own_embedding = true}, "P-EAGLE of four layers");
    walk_masks(&(mkhead_options){.type = "f32", .n_parallel = 3, .norm_before_fc = true, .n_embd = 96, .n_heads = 6,
                                 .n_kv_heads = 3, .head_dim = 16, .n_layers = 2}, "a narrower P-EAGLE");
}

static void test_eagle(void **state)
{
    (void)state;
    walk(&(mkhead_options){.kind = "eagle", .type = "f32"}, 0, "EAGLE-1");
    walk(&(mkhead_options){.kind = "eagle", .type = "f32", .biases = true, .own_embedding = true}, 100,
         "EAGLE-1 of the first 100 tokens");
    walk(&(mkhead_options){.kind = "eagle", .type = "f32", .n_draft = 64, .n_kv_heads = 1}, 0,
         "EAGLE-1 with a draft vocabulary");
}

static void test_eagle3(void **state)
{
    (void)state;
    walk(&(mkhead_options){.type = "f32", .n_draft = 128}, 0, "EAGLE-3");
    walk(&(mkhead_options){.type = "f32", .norm_before_residual = true, .biases = true, .rope_freqs = true},
         0, "norm_before_residual");
    walk(&(mkhead_options){.type = "f32", .n_layers = 3, .norm_before_residual = true, .qk_norm = true}, 0, "three layers");
    walk(&(mkhead_options){.type = "f32", .norm_before_fc = true, .n_draft = 50, .no_output = true},
         0, "norm_before_fc, output borrowed");
    walk(&(mkhead_options){.type = "f32", .n_embd = 96, .n_heads = 6, .n_kv_heads = 3, .head_dim = 16, .n_draft = 128},
         0, "a narrower head");
    walk(&(mkhead_options){.type = "f32", .qk_norm = true, .own_embedding = true, .head_dim = 64, .n_taps = 2, .taps = {0, 1}},
         0, "qk norm, two taps");
}

static void test_eagle31(void **state)
{
    (void)state;
    walk(&(mkhead_options){.kind = "eagle3.1", .type = "f32", .n_draft = 128}, 0, "EAGLE-3.1");
    walk(&(mkhead_options){.kind = "eagle3.1", .type = "f32", .whole_fc_norm = true, .norm_before_residual = true},
         0, "EAGLE-3.1, one norm tensor");
}

static void test_medusa(void **state)
{
    (void)state;
    const mkhead_options o = {.kind = "medusa", .type = "f32", .biases = true, .n_blocks = 2, .n_medusa = 3, .n_draft = 200};
    rig r = open_rig(&o, 0);
    const uint32_t H = r.head->hparams.layer.n_embd;
    double *hidden = ae_alloc(H, sizeof *hidden), *logits = ae_alloc(200, sizeof *logits);
    OK(ae_dhead_run_medusa(r.head_engine, r.features + 3 * (size_t)r.width, 2, &ok_error));
    OK(ae_dhead_sync(r.head_engine, &ok_error));
    for (uint32_t row = 0; row < 2; row++)
        for (uint32_t j = 0; j < 3; j++) {
            assert_true(head_ref_medusa(r.ref, j, r.features64 + (3 + row) * (size_t)r.width, hidden, logits));
            const double d = distance(ae_dhead_logits(r.head_engine, row * 3 + j), logits, 200);
            if (!(d < TOLERANCE)) fail_msg("head %u of row %u differs by %g", j, row, d);
        }
    ae_free(hidden);
    ae_free(logits);
    close_rig(&r);
}

/* The logits after a text do not depend on how its rows were batched, on drafts between, or on which sequence they are in. */
static void test_batches(void **state)
{
    (void)state;
    rig r = open_rig(&(mkhead_options){.kind = "eagle3.1", .type = "q8_0", .n_draft = 128}, 0);
    const uint32_t n = r.head_net->n_draft, n_rows = 30;
    float *want = ae_alloc(n, sizeof *want);
    uint32_t out = add_true(&r, 0, 0, n_rows), steps[] = {1, 2, 3, 7};
    memcpy(want, ae_dhead_logits(r.head_engine, out), n * sizeof *want);
    for (size_t s = 0; s < 4; s++) {
        uint32_t kept = 0;
        ae_dhead_share(r.head_engine, 1, 0, &kept); /* empties it */
        for (uint32_t at = 0; at < n_rows; at += steps[s]) {
            out = add_true(&r, 1, at, at + steps[s] < n_rows ? steps[s] : n_rows - at);
            if (at + steps[s] >= n_rows) break;
            uint32_t drafted;
            const uint32_t row = draft_row(&r, 1, -1, 9, &drafted);
            draft_row(&r, 1, (int32_t)row, 11, &drafted);
        }
        assert_memory_equal(ae_dhead_logits(r.head_engine, out), want, n * sizeof *want);
    }
    /* a prefix shared from another sequence, then its own rows */
    uint32_t kept = 17;
    ae_dhead_share(r.head_engine, 1, 0, &kept);
    assert_int_equal(kept, 17);
    assert_int_equal(ae_dhead_n_true(r.head_engine, 1), 17);
    out = add_true(&r, 1, 17, n_rows - 17);
    assert_memory_equal(ae_dhead_logits(r.head_engine, out), want, n * sizeof *want);
    ae_free(want);
    close_rig(&r);
}

/* With a window old rows are forgotten by pages, the first ones stay, and positions go on. */
static void test_window(void **state)
{
    (void)state;
    rig r = open_rig(&(mkhead_options){.type = "q8_0", .n_draft = 128, .window = 100, .n_sinks = 4}, 0);
    uint32_t out = 0;
    for (uint32_t at = 0; at < 12; at++)
        out = add_true(&r, 0, 0, N_TEXT - 1); /* the same rows again and again, at later positions */
    assert_int_equal(ae_dhead_n_true(r.head_engine, 0), 12 * (N_TEXT - 1));
    for (uint32_t i = 0; i < r.head_net->n_draft; i++) assert_true(isfinite(ae_dhead_logits(r.head_engine, out)[i]));
    uint32_t kept = 12 * (N_TEXT - 1) - 5;
    ae_dhead_share(r.head_engine, 1, 0, &kept);
    assert_int_equal(kept, 12 * (N_TEXT - 1) - 5);
    kept = 70; /* forgotten by now */
    ae_dhead_share(r.head_engine, 1, 0, &kept);
    assert_int_equal(kept, 0);
    ae_dhead_restart(r.head_engine, 1, 33);
    assert_int_equal(ae_dhead_n_true(r.head_engine, 1), 33);
    add_true(&r, 1, 33, 3);
    assert_int_equal(ae_dhead_n_true(r.head_engine, 1), 36);
    close_rig(&r);
}

/* A window larger than the context has no effect, however large its numbers: nothing is forgotten, no sum overflows. */
static void test_window_beyond_the_context(void **state)
{
    (void)state;
    static const uint32_t sizes[][2] = {{UINT32_MAX, UINT32_MAX}, {UINT32_MAX - 63, 64}, {INT32_MAX, INT32_MAX},
                                        {64, UINT32_MAX}, {UINT32_MAX - 200, 100}, {448, 0}};
    rig r = open_rig(&(mkhead_options){.type = "q8_0", .n_draft = 128}, 0);
    const uint32_t n = r.head_net->n_draft;
    float *want = ae_alloc(n, sizeof *want);
    for (size_t i = 0; i <= sizeof sizes / sizeof sizes[0]; i++) {
        if (i) {
            const ae_dhead_engine_options o = {.n_ctx = 512, .n_seqs = 2, .n_batch = 64, .window = sizes[i - 1][0],
                                               .n_sinks = sizes[i - 1][1]};
            ae_dhead_engine_free(r.head_engine);
            OK(ae_dhead_engine_create(&r.head_engine, r.head_net, r.engine, &o, &ok_error));
        }
        uint32_t out = 0, shared = 200, drafted = 0;
        for (uint32_t at = 0; at < 13; at++) out = add_true(&r, 0, 0, N_TEXT - 1);
        if (!i) memcpy(want, ae_dhead_logits(r.head_engine, out), n * sizeof *want);
        assert_memory_equal(ae_dhead_logits(r.head_engine, out), want, n * sizeof *want);
        int32_t parent = -1;
        for (int d = 0; d < AERIE_MAX_DRAFT; d++) parent = (int32_t)draft_row(&r, 0, parent, 9, &drafted);
        ae_dhead_clear(r.head_engine);
        assert_int_equal(ae_dhead_add_drafted(r.head_engine, 0, parent, 9, &drafted), AE_DHEAD_NO_ROW); /* the tree is full */
        ae_dhead_share(r.head_engine, 1, 0, &shared);
        assert_int_equal(shared, 200);
    }
    ae_free(want);
    close_rig(&r);
}

/* Rows that do not fit a pass are refused in every build, and nothing is written. */
static void test_rows_that_do_not_fit(void **state)
{
    (void)state;
    rig r = open_rig(&(mkhead_options){.type = "q8_0", .n_draft = 128}, 0);
    ae_dhead_engine *e = r.head_engine;
    uint32_t out;
    ae_dhead_clear(e);
    assert_int_equal(ae_dhead_add_drafted(e, 0, -1, 9, &out), AE_DHEAD_NO_ROW); /* on nothing */
    assert_int_equal(ae_dhead_add_true(e, 2, r.features, r.tokens, 1, true, &out), AERIE_ERROR_INTERNAL);
    assert_int_equal(ae_dhead_add_true(e, 0, r.features, r.tokens, 0, true, &out), AERIE_ERROR_INTERNAL);
    assert_int_equal(ae_dhead_add_true(e, 0, r.features, r.tokens, 65, true, &out), AERIE_ERROR_INTERNAL);
    assert_int_equal(ae_dhead_rows_left(e), 64);
    assert_int_equal(ae_dhead_add_true(e, 0, r.features, r.tokens + 1, 30, true, &out), AERIE_OK);
    assert_int_equal(ae_dhead_add_true(e, 0, r.features, r.tokens + 1, 3, true, &out), AERIE_ERROR_INTERNAL); /* once a pass */
    assert_int_equal(ae_dhead_add_true(e, 1, r.features, r.tokens + 1, 35, true, &out), AERIE_ERROR_INTERNAL);
    OK(ae_dhead_run_true(e, &ok_error));
    OK(ae_dhead_sync(e, &ok_error));
    assert_int_equal(ae_dhead_n_true(e, 0), 30);
    assert_int_equal(ae_dhead_n_true(e, 1), 0);
    ae_dhead_clear(e);
    assert_int_equal(ae_dhead_add_drafted(e, 0, 0, 9, &out), AE_DHEAD_NO_ROW); /* its own parent */
    assert_int_equal(ae_dhead_add_drafted(e, 2, -1, 9, &out), AE_DHEAD_NO_ROW);
    assert_int_equal(ae_dhead_add_drafted(e, 0, -1, 9, &out), 0);
    close_rig(&r);
}

/* ---- Several MTP blocks ------------------------------------------------------------------------------- */

/* Writes block k of a file with two MTP blocks after n_layers layers, as the only one of a file. */
static void write_block(const char *from, uint32_t n_layers, uint32_t k, const char *path)
{
    ae_gguf *gguf;
    ae_gguf_writer *w;
    char prefix[24], name[64];
    OK(ae_gguf_open(&gguf, from, NULL, &ok_error));
    OK(ae_gguf_writer_create(&w, path, &ok_error));
    for (size_t i = 0; i < ae_gguf_n_kv(gguf); i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_at(gguf, i);
        snprintf(name, sizeof name, "%.*s", (int)kv->key.n, kv->key.data);
        if (strstr(name, "block_count")) OK(ae_gguf_writer_u32(w, name, n_layers + 1, &ok_error));
        else if (strstr(name, "nextn_predict")) OK(ae_gguf_writer_u32(w, name, 1, &ok_error));
        else OK(ae_gguf_writer_copy(w, kv, &ok_error));
    }
    const size_t n = (size_t)snprintf(prefix, sizeof prefix, "blk.%u.", n_layers + k);
    for (int data = 0; data < 2; data++) {
        for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
            const ae_gguf_tensor *t = ae_gguf_tensor_at(gguf, i);
            if (t->name.n < n || memcmp(t->name.data, prefix, n)) continue;
            snprintf(name, sizeof name, "blk.%u.%.*s", n_layers, (int)(t->name.n - n), t->name.data + n);
            if (data) OK(ae_gguf_writer_data(w, t->data, t->bytes, &ok_error));
            else OK(ae_gguf_writer_tensor(w, name, t->type, t->ne[1] > 1 ? 2 : 1, t->ne, &ok_error));
        }
        if (!data) OK(ae_gguf_writer_begin(w, &ok_error));
    }
    OK(ae_gguf_writer_finish(w, &ok_error));
    ae_gguf_writer_free(w);
    ae_gguf_close(gguf);
}

typedef struct lone_head {
    ae_dhead *head;
    ae_dhead_net *net;
    ae_dhead_engine *engine;
} lone_head;

static lone_head open_lone(const rig *r, const char *path)
{
    lone_head l;
    const ae_dhead_net_options load = {.load = {.n_threads = 1}};
    const ae_dhead_engine_options options = {.n_ctx = 512, .n_seqs = 1, .n_batch = 64};
    OK(ae_dhead_load(&l.head, path, &ok_error));
    OK(ae_dhead_net_create(&l.net, l.head, r->net, &load, &ok_error));
    OK(ae_dhead_engine_create(&l.engine, l.net, r->engine, &options, &ok_error));
    return l;
}

static void close_lone(lone_head *l)
{
    ae_dhead_engine_free(l->engine);
    ae_dhead_net_free(l->net);
    ae_dhead_free(l->head);
}

/* Runs a true row and copies what it feeds back to fed [width]. */
static const float *run_lone(const rig *r, const lone_head *l, const float *feature, int32_t token, float *fed)
{
    uint32_t out;
    ae_dhead_clear(l->engine);
    OK(ae_dhead_add_true(l->engine, 0, feature, &token, 1, true, &out));
    OK(ae_dhead_run_true(l->engine, &ok_error));
    OK(ae_dhead_sync(l->engine, &ok_error));
    r->backend->ops->download(ae_engine_stream(r->engine), fed, ae_dhead_hidden(l->engine, out), r->width * sizeof *fed);
    return ae_dhead_logits(l->engine, out);
}

/* The second block of two computes what it computes alone, given the first block's output for the row before. */
static void test_mtp_blocks_follow_each_other(void **state)
{
    (void)state;
    char first_path[64], second_path[64];
    static float fed[N_TEXT + 1][256], own[256];
    uint32_t out;
    rig r = {0};
    aerie_error error = {0};
    make_target(target_path, "f32");
    if (mkhead_write(&(mkhead_options){.kind = "mtp", .n_nextn = 2}, target_path, head_path, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    snprintf(first_path, sizeof first_path, "%s-1", head_path);
    snprintf(second_path, sizeof second_path, "%s-2", head_path);
    OK(ae_backend_open(&r.backend, NULL, "", &ok_error));
    OK(ae_model_load(&r.model, target_path, NULL, &ok_error));
    OK(ae_net_create(&r.net, r.model, r.backend, &(ae_load_options){.n_threads = 1}, &ok_error));
    OK(ae_engine_create(&r.engine, r.net, &(ae_engine_options){.n_ctx = 512, .n_seqs = 2, .n_threads = 1, .n_taps = 1,
                                                               .taps = {AERIE_TAP_NORMED}}, &ok_error));
    r.width = r.model->hparams.n_embd;
    assert_true(r.width <= 256);
    run_target(&r);
    write_block(head_path, r.model->hparams.n_layers, 0, first_path);
    write_block(head_path, r.model->hparams.n_layers, 1, second_path);
    lone_head both = open_lone(&r, head_path), first = open_lone(&r, first_path), second = open_lone(&r, second_path);
    const size_t bytes = both.net->n_draft * sizeof(float);
    memset(fed[0], 0, sizeof fed[0]);
    for (uint32_t at = 0, n = 1; at + n < N_TEXT; at += n, n = n % 4 + 1) {
        int32_t token = 7 + (int32_t)at;
        for (uint32_t i = at; i < at + n; i++) {
            run_lone(&r, &first, r.features + (size_t)i * r.width, r.tokens[i + 1], fed[i + 1]);
            run_lone(&r, &second, fed[i], r.tokens[i + 1], own);
        }
        ae_dhead_clear(both.engine);
        OK(ae_dhead_add_true(both.engine, 0, r.features + (size_t)at * r.width, r.tokens + at + 1, n, true, &out));
        OK(ae_dhead_run_true(both.engine, &ok_error));
        OK(ae_dhead_sync(both.engine, &ok_error));
        if (at % 3) continue; /* no draft here */
        /* the first drafted row is the second block's, and so is the next, with that block's own output */
        int32_t row = -1;
        ae_dhead_engine *alone = second.engine;
        const uint32_t n_true = ae_dhead_n_true(alone, 0);
        assert_int_equal(n_true, at + n);
        run_lone(&r, &second, fed[at + n], token, own);
        const float *expected = ae_dhead_logits(alone, 0);
        for (int depth = 1; depth <= 3; depth++) {
            ae_dhead_clear(both.engine);
            row = (int32_t)ae_dhead_add_drafted(both.engine, 0, row, token, &out);
            assert_true(row >= 0);
            ae_dhead_run_drafted(both.engine);
            OK(ae_dhead_sync(both.engine, &ok_error));
            assert_memory_equal(ae_dhead_logits(both.engine, out), expected, bytes);
            token += 3;
            ae_dhead_clear(alone);
            uint32_t here;
            assert_int_equal(ae_dhead_add_drafted(alone, 0, depth - 2, token, &here), depth - 1);
            ae_dhead_run_drafted(alone);
            OK(ae_dhead_sync(alone, &ok_error));
            expected = ae_dhead_logits(alone, here);
        }
        /* the draft is dropped; the row that stood for it cannot be, so the memory is made again */
        ae_dhead_drop_drafted(both.engine, 0);
        ae_dhead_restart(alone, 0, 0);
        for (uint32_t i = 0; i < at + n; i++) run_lone(&r, &second, fed[i], r.tokens[i + 1], own);
    }
    close_lone(&both), close_lone(&first), close_lone(&second);
    unlink(first_path), unlink(second_path);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eagle),  cmocka_unit_test(test_eagle3), cmocka_unit_test(test_parallel),
        cmocka_unit_test(test_eagle31),
        cmocka_unit_test(test_medusa), cmocka_unit_test(test_batches), cmocka_unit_test(test_window),
        cmocka_unit_test(test_window_beyond_the_context), cmocka_unit_test(test_rows_that_do_not_fit),
        cmocka_unit_test(test_mtp_blocks_follow_each_other),
    };
    if (close(mkstemp(target_path)) || close(mkstemp(head_path))) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(target_path);
    unlink(head_path);
    return failed;
}
