/* test_head_ref.c - the float64 reference of drafter heads against cases of two elements worked out by hand (the figures come
 * from the formulas of docs/heads.md, written out for these numbers), and against itself: trees, windows. */
#define _XOPEN_SOURCE 700 /* mkstemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gguf_make.h"
#include "head_ref.h"
#include "mkhead.h"
#include "mkmodel.h"

/* ---- Heads of two elements --------------------------------------------------------------------------- */

typedef struct small {
    ae_buf head, data;
    uint64_t n_kv, n_tensors;
} small;

static void put(small *s, const char *name, uint64_t n_in, uint64_t n_out, const float *x)
{
    const uint64_t ne[2] = {n_in, n_out ? n_out : 1};
    gguf_make_pad(&s->data, 32);
    gguf_make_tensor(&s->head, name, n_out ? 2 : 1, ne, AE_TYPE_F32, s->data.n);
    ae_buf_add(&s->data, x, (size_t)(ne[0] * ne[1]) * sizeof *x);
    s->n_tensors++;
}

static void put_u32(small *s, const char *arch, const char *suffix, uint32_t value)
{
    char key[64];
    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    gguf_make_kv_u32(&s->head, key, value);
    s->n_kv++;
}

static void put_bool(small *s, const char *key, bool value)
{
    const uint8_t byte = value;
    gguf_make_kv(&s->head, key, AE_GGUF_BOOL, &byte, 1);
    s->n_kv++;
}

static void start(small *s, const char *arch)
{
    gguf_make_header(&s->head, 3, 0, 0);
    gguf_make_kv_string(&s->head, "general.architecture", arch);
    s->n_kv++;
}

/* One attention head of two elements, a hidden layer of one. */
static void put_layer_keys(small *s, const char *arch)
{
    char key[64];
    const float eps = 1e-12f;
    put_u32(s, arch, "embedding_length", 2);
    put_u32(s, arch, "feed_forward_length", 1);
    put_u32(s, arch, "attention.head_count", 1);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_make_kv(&s->head, key, AE_GGUF_F32, &eps, 4);
    s->n_kv++;
}

#define F(...) (const float[]){__VA_ARGS__}

/* Queries are always (2, 0), keys (3, 0), before they are rotated: scores 6 cos(distance) / sqrt(2). The second value counts
 * ten times as much. */
static void put_layer(small *s, uint64_t n_in, const float *values)
{
    put(s, "token_embd.weight", 2, 3, F(3, 4, 0, 2, 1, 1));
    put(s, "output.weight", 2, 3, F(1, 0, 0, 1, 1, -1));
    put(s, "blk.0.attn_q.weight", n_in, 2, F(0, 0, 0, 0, 0, 0, 0, 0));
    put(s, "blk.0.attn_k.weight", n_in, 2, F(0, 0, 0, 0, 0, 0, 0, 0));
    put(s, "blk.0.attn_q.bias", 2, 0, F(2, 0));
    put(s, "blk.0.attn_k.bias", 2, 0, F(3, 0));
    put(s, "blk.0.attn_v.weight", n_in, 2, values);
    put(s, "blk.0.attn_output.weight", 2, 2, F(1, 0, 0, 10));
    put(s, "blk.0.ffn_norm.weight", 2, 0, F(1, 1));
    put(s, "blk.0.ffn_gate.weight", 2, 1, F(1, 0));
    put(s, "blk.0.ffn_up.weight", 2, 1, F(0, 1));
    put(s, "blk.0.ffn_down.weight", 1, 2, F(1, 0));
}

static ae_dhead *finish(small *s)
{
    ae_gguf *gguf;
    ae_dhead *head = NULL;
    aerie_error error = {0};
    memcpy(s->head.data + 8, &s->n_tensors, 8);
    memcpy(s->head.data + 16, &s->n_kv, 8);
    gguf_make_pad(&s->head, 32);
    ae_buf_add(&s->head, s->data.data, s->data.n);
    if (ae_gguf_open_memory(&gguf, s->head.data, s->head.n, "small.gguf", &error) != AERIE_OK ||
        ae_dhead_bind(&head, gguf, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    return head;
}

static void done(small *s, ae_dhead *head, head_ref *ref)
{
    head_ref_free(ref);
    ae_dhead_free(head);
    ae_buf_free(&s->head);
    ae_buf_free(&s->data);
}

static void is(const double *x, const double *expected, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs(x[i] - expected[i]) <= 1e-6 * (1 + fabs(expected[i]))))
            fail_msg("element %zu is %.9g, not %.9g", i, x[i], expected[i]);
}

static void test_eagle3_by_hand(void **state)
{
    (void)state;
    static const double expected[3][4][5] = {/* hidden row, logits; of two true rows, one fed by the second, one by the first */
        {{3.10961930869, 12, 0.354754615792, 2.73799135322, -2.38323673743},
         {0.111351275069, 18.626368717, 0.00845423345378, 2.8283765845, -2.81992235105},
         {1.01751148017, 32.759387286, 0.0439045122979, 2.82706377275, -2.78315926045},
         {4.12797134345, 25.2304938803, 0.228344039719, 2.79131438539, -2.56297034567}},
        {{2.03102541768, 11, 0.256778229233, 2.78141326738, -2.52463503815}, /* the residual is the normed feature */
         {0.112715594349, 15.0405822794, 0.0105979571313, 2.82834770373, -2.8177497466},
         {0.945112328898, 15.5470662693, 0.0858121916618, 2.82321537808, -2.73740318642},
         {1.18342071525, 14.8112762206, 0.11263667463, 2.8194417742, -2.70680509957}},
        {{3.10961930869, 12, 0.354754615792, 2.73799135322, -2.38323673743}, /* the normed output is fed back */
         {0.111351275069, 18.626368717, 0.00845423345378, 2.8283765845, -2.81992235105},
         {0.937760303728, 16.9615607227, 0.0780689414269, 2.8241141906, -2.74604524917},
         {1.28071111199, 16.261724446, 0.111034227253, 2.81969601225, -2.708661785}},
    };
    static const int32_t tap = 0, text[3] = {2, 0, 1}, next = 2;
    static const double features[4] = {1, 2, 0, 5};
    for (int i = 0; i < 3; i++) {
        small s = {0};
        start(&s, "eagle3");
        put_layer_keys(&s, "eagle3");
        gguf_make_kv_array(&s.head, "eagle3.target_layers", AE_GGUF_I32, 1, &tap, 4);
        s.n_kv++;
        put_bool(&s, "eagle3.norm_before_residual", i == 1);
        put_bool(&s, "eagle3.norm_output", i == 2);
        put(&s, "fc.weight", 2, 2, F(2, 0, 0, 1));
        put(&s, "blk.0.attn_norm.weight", 2, 0, F(1, 1));
        put(&s, "blk.0.hidden_norm.weight", 2, 0, F(1, 1));
        put(&s, "output_norm.weight", 2, 0, F(1, 2));
        put_layer(&s, 4, F(1, 0, 0, 0, 0, 0, 0, 1)); /* the first element of the embedding, the second of the feature */
        ae_dhead *head = finish(&s);
        head_ref *ref = head_ref_create(head, NULL);
        assert_int_equal(head_ref_text(ref, text, features, 2), 1);
        is(head_ref_feature(ref, 0), (double[]){2, 2}, 2);
        is(head_ref_feature(ref, 1), (double[]){0, 5}, 2);
        assert_int_equal(head_ref_chain(ref, 1, &next, 1), 2);
        assert_int_equal(head_ref_add(ref, 0, 0, NULL), 3);
        for (int k = 0; k < 4; k++) {
            is(head_ref_hidden(ref, k), expected[i][k], 2);
            is(head_ref_logits(ref, k), expected[i][k] + 2, 3);
            assert_memory_equal(head_ref_normed(ref, k), head_ref_logits(ref, k), 16); /* the first two rows of the output */
        }
        assert_int_equal(head_ref_add(ref, -1, 0, NULL), -1); /* nothing is fed back */
        done(&s, head, ref);
    }
}

static void test_eagle_by_hand(void **state)
{
    (void)state;
    static const double expected[3][3] = {{10.718112994, 11, -0.281887005988}, {10.1968524734, 1.2451714612, 8.95168101215},
                                          {4.88883054541, 99.2982912989, -94.4094607535}};
    static const int32_t text[3] = {2, 0, 1}, next = 2;
    static const double features[4] = {1, 2, 0, 5};
    small s = {0};
    start(&s, "eagle");
    put_layer_keys(&s, "eagle");
    put(&s, "fc.weight", 4, 2, F(1, 0, 0, 1, 0, 0, 1, 0)); /* e0 + f1, f0 */
    put_layer(&s, 2, F(1, 0, 0, 1));
    ae_dhead *head = finish(&s);
    head_ref *ref = head_ref_create(head, NULL);
    assert_int_equal(head_ref_chain(ref, head_ref_text(ref, text, features, 2), &next, 1), 2);
    for (int k = 0; k < 3; k++) {
        is(head_ref_hidden(ref, k), expected[k], 2);
        is(head_ref_logits(ref, k), expected[k], 3);
    }
    done(&s, head, ref);
}

static void test_medusa_by_hand(void **state)
{
    (void)state;
    small s = {0};
    double hidden[2], logits[3];
    start(&s, "medusa");
    put_u32(&s, "medusa", "head_count", 1);
    put_u32(&s, "medusa", "block_count", 2);
    put(&s, "medusa.0.0.weight", 2, 2, F(1, 1, 2, 0));
    put(&s, "medusa.0.0.bias", 2, 0, F(0.5f, 0));
    put(&s, "medusa.0.1.weight", 2, 2, F(0, 1, 1, 0));
    put(&s, "medusa.0.output.weight", 2, 3, F(1, 0, 0, 1, 1, -1));
    ae_dhead *head = finish(&s);
    head_ref *ref = head_ref_create(head, NULL);
    assert_true(head_ref_medusa(ref, 0, (double[]){1, -2}, hidden, logits));
    is(hidden, (double[]){0.7061691587861968, 0.32326643744532757}, 2);
    is(logits, (double[]){0.7061691587861968, 0.32326643744532757, 0.3829027213408692}, 3);
    done(&s, head, ref);
}

/* ---- Random heads -------------------------------------------------------------------------------------- */

typedef struct pair {
    ae_model *target;
    ae_dhead *head;
    double *features; /* [8] rows */
} pair;

static pair make(mkhead_options o)
{
    static char paths[2][24];
    pair p = {0};
    mk_options m;
    aerie_error error = {0};
    uint64_t state = 3;
    for (int i = 0; i < 2; i++) {
        strcpy(paths[i], "/tmp/aerie_ref_XXXXXX");
        const int fd = mkstemp(paths[i]);
        assert_true(fd >= 0);
        close(fd);
    }
    assert_true(mk_shape("tiny", &m));
    o.type = "f16", o.n_draft = 40;
    if (mk_model(&m, paths[0], &error) != AERIE_OK || mkhead_write(&o, paths[0], paths[1], &error) != AERIE_OK ||
        ae_model_load(&p.target, paths[0], NULL, &error) != AERIE_OK || ae_dhead_load(&p.head, paths[1], &error) != AERIE_OK)
        fail_msg("%s", error.text);
    unlink(paths[0]), unlink(paths[1]);
    const size_t n = 8 * (size_t)p.head->hparams.n_taps * p.head->hparams.n_target_embd;
    p.features = malloc(n * sizeof *p.features);
    for (size_t i = 0; i < n; i++) p.features[i] = (double)(mk_random(&state) >> 40) * 0x1p-23 - 1;
    return p;
}

static void drop(pair *p)
{
    free(p->features);
    ae_dhead_free(p->head);
    ae_model_free(p->target);
}

static const int32_t text[9] = {5, 100, 7, 31, 200, 9, 310, 0, 64};

/* A row of a tree equals the same row of a chain; features stay of order 1 however often they are fed back. */
static void test_trees_and_long_chains(void **state)
{
    (void)state;
    static const mkhead_options kinds[] = {
        {.kind = "eagle"}, {.kind = "eagle3", .biases = true}, {.kind = "eagle3.1", .n_kv_heads = 1},
        {.norm_before_fc = true, .norm_before_residual = true, .qk_norm = true, .n_embd = 48},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        pair p = make(kinds[i]);
        const uint32_t n = p.head->hparams.n_draft, e = p.head->hparams.layer.n_embd;
        head_ref *tree = head_ref_create(p.head, p.target), *chain = head_ref_create(p.head, p.target);
        const int root = head_ref_text(tree, text, p.features, 8);
        assert_int_equal(root, 7);
        const int a = head_ref_add(tree, root, 3, NULL), b = head_ref_add(tree, root, 8, NULL);
        const int c = head_ref_add(tree, a, 11, NULL), d = head_ref_add(tree, b, 11, NULL);
        assert_int_equal(head_ref_chain(chain, head_ref_text(chain, text, p.features, 8), (int32_t[]){8, 11}, 2), 9);
        assert_memory_equal(head_ref_logits(tree, d), head_ref_logits(chain, 9), n * sizeof(double));
        assert_memory_not_equal(head_ref_logits(tree, c), head_ref_logits(chain, 9), n * sizeof(double));
        int last = d;
        for (int k = 0; k < 24; k++) last = head_ref_add(tree, last, text[k % 9], NULL);
        double sum = 0, spread = 0;
        for (uint32_t k = 0; k < e; k++) sum += pow(head_ref_hidden(tree, last)[k], 2) / e;
        for (uint32_t k = 0; k < n; k++) spread += pow(head_ref_logits(tree, last)[k], 2) / n;
        if (!(sqrt(sum) > 0.1 && sqrt(sum) < 30)) fail_msg("kind %zu: features of %g after 26 steps", i, sqrt(sum));
        if (!(sqrt(spread) > 0.3 && sqrt(spread) < 60)) fail_msg("kind %zu: logits of %g after 26 steps", i, sqrt(spread));
        head_ref_free(tree), head_ref_free(chain);
        drop(&p);
    }
}

/* A window as long as the text changes nothing; a shorter one hides exactly the rows outside of it. */
static void test_windows(void **state)
{
    (void)state;
    pair p = make((mkhead_options){.kind = "eagle3"});
    const size_t bytes = p.head->hparams.n_draft * sizeof(double), width = 3 * 64;
    head_ref *whole = head_ref_create(p.head, p.target);
    head_ref_text(whole, text, p.features, 8);
    for (uint32_t window = 1; window <= 8; window++)
        for (uint32_t n_sinks = 0; n_sinks < 3; n_sinks++) {
            double changed[8 * 3 * 64];
            p.head->hparams.window = window, p.head->hparams.n_sinks = n_sinks;
            head_ref *a = head_ref_create(p.head, p.target);
            assert_int_equal(head_ref_text(a, text, p.features, 8), 7);
            const bool all = window + n_sinks >= 8;
            assert_int_equal(!memcmp(head_ref_logits(a, 7), head_ref_logits(whole, 7), bytes), all);
            for (int hidden = 0; hidden < 8; hidden++) { /* rows that the last row does not see may hold anything */
                memcpy(changed, p.features, sizeof changed);
                for (size_t k = 0; k < width; k++) changed[(size_t)hidden * width + k] += 0.5;
                head_ref *b = head_ref_create(p.head, p.target);
                head_ref_text(b, text, changed, 8);
                const bool seen = hidden > 7 - (int)window || hidden < (int)n_sinks;
                assert_int_equal(memcmp(head_ref_logits(a, 7), head_ref_logits(b, 7), bytes) != 0, seen);
                head_ref_free(b);
            }
            head_ref_free(a);
        }
    head_ref_free(whole);
    drop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eagle3_by_hand), cmocka_unit_test(test_eagle_by_hand), cmocka_unit_test(test_medusa_by_hand),
        cmocka_unit_test(test_trees_and_long_chains), cmocka_unit_test(test_windows),
    };
    return cmocka_run_group_tests_name("the reference of heads", tests, NULL, NULL);
}
