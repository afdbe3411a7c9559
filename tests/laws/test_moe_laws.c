/* test_moe_laws.c - the feed-forward block with experts, by itself: the choice, the value against a float64 reference
 * written from the formulas, rows that share experts against each row alone, and that weights are walked once. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/cpu/ref/ref.h"
#include "base/math/fmath.h"
#include "every.h"
#include "rig.inc"

/* ---- Models -------------------------------------------------------------------------------------- */

static const struct case_model {
    const char *type, *arch;
    uint32_t n_embd, n_ff, n_heads, n_ff_shared, n_experts, n_used;
    bool fused;
    double tolerance; /* relative error against float64: activations are int8 in groups of 32 or 256, except with float
                       * weights */
} models[] = {
    {"f32", "llama", 64, 96, 4, 0, 6, 2, false, 1e-5},
    {"f32", "qwen2moe", 64, 100, 4, 75, 9, 3, false, 1e-5},
    {"f32", "dots1", 72, 50, 3, 100, 7, 4, true, 1e-5},
    {"q8_0", "olmoe", 64, 96, 4, 0, 6, 2, false, 2e-2},
    {"q4_0", "deepseek", 64, 96, 4, 192, 8, 2, true, 2e-2},
    {"q4_0", "qwen3moe", 96, 160, 4, 0, 33, 5, false, 2e-2},
    {"q4_k_m", "qwen2moe", 256, 256, 4, 512, 8, 2, false, 4e-2},
    {"iq4_nl", "llama", 64, 32, 4, 0, 1, 1, false, 2e-2},
    {"f16", "olmoe", 40, 24, 5, 0, 12, 12, false, 1e-5},
    {"q6_K", "llama", 256, 256, 8, 0, 16, 3, true, 4e-2},
};
#define N_MODELS (sizeof models / sizeof models[0])

#define N_ROWS 60
#define MAX_THREADS 4

static char folder[] = "/tmp/aerie_moe_XXXXXX";

static const char *model_path(size_t i)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/%zu.gguf", folder, i);
    return path;
}

static mk_options options_of(size_t i)
{
    mk_options o;
    assert_true(mk_shape("tiny-moe", &o));
    o.n_layers = 1;
    o.type = models[i].type, o.arch = models[i].arch, o.n_embd = models[i].n_embd, o.n_ff_expert = models[i].n_ff;
    o.n_heads = o.n_kv_heads = models[i].n_heads, o.head_dim = models[i].n_embd / models[i].n_heads;
    o.n_ff_shared = models[i].n_ff_shared, o.n_experts = models[i].n_experts, o.n_used = models[i].n_used;
    o.fused = models[i].fused;
    return o;
}

static int make_models(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_MODELS; i++) {
        const mk_options o = options_of(i);
        aerie_error error;
        if (mk_model(&o, model_path(i), &error) == AERIE_OK) continue;
        print_error("%s\n", error.text);
        return 1;
    }
    return 0;
}

static int drop_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) unlink(model_path(i));
    return rmdir(folder);
}

static void *get(size_t n, size_t size)
{
    void *p = ae_alloc_aligned(n, size);
    assert_non_null(p);
    return p;
}

/* n rows of which every third equals the one three before, so that experts are shared. */
static float *make_rows(uint32_t n, uint32_t n_embd, uint64_t seed)
{
    float *x = get((size_t)n * n_embd, sizeof *x);
    for (size_t i = 0; i < (size_t)n * n_embd; i++) x[i] = (float)(mk_random(&seed) >> 40) * 0x1p-22f - 2.0f;
    for (uint32_t r = 3; r < n; r += 3) memcpy(x + (size_t)r * n_embd, x + (size_t)(r - 3) * n_embd, n_embd * sizeof *x);
    return x;
}

static ae_moe block_of(const rig *r, uint32_t n_rows, uint32_t n_used, const float *x, float *y)
{
    const ae_hparams *h = &r->model->hparams;
    const ae_expert_hparams *e = &h->experts;
    const ae_net_layer *l = &r->net->layers[0];
    return (ae_moe){
        .n_rows = n_rows, .routing = {e->n, n_used, e->gate == AE_EXPERT_GATE_SIGMOID ? AE_GATE_SIGMOID : AE_GATE_SOFTMAX,
                                      e->renorm, e->scale, 0, 0, 0},
        .x = x, .norm = l->ffn_norm, .norm_eps = h->norm_eps, .router = l->router, .bias = l->router_bias, .gate = l->e_gate,
        .up = l->e_up, .down = l->e_down, .shared_gate = l->s_gate, .shared_up = l->s_up, .shared_down = l->s_down,
        .shared_router = l->s_router, .y = y};
}

/* y = x + block(x). */
static void run_block(rig *r, uint32_t n_rows, uint32_t n_used, const float *x, float *y)
{
    memcpy(y, x, (size_t)n_rows * r->model->hparams.n_embd * sizeof *y);
    const ae_moe args = block_of(r, n_rows, n_used, y, y);
    r->backend->ops->moe(ae_engine_stream(r->engine), &args);
    aerie_error error = {0};
    need(r->backend->ops->sync(ae_engine_stream(r->engine), &error), &error);
}

/* ---- The choice ------------------------------------------------------------------------------------- */

static void check_route(ae_routing routing, const float *logits, const float *bias, const uint32_t *ids, const double *weights)
{
    uint32_t got[AE_MAX_EXPERTS];
    float p[AE_MAX_EXPERTS], w[AE_MAX_EXPERTS];
    ae_ref_route(&routing, logits, bias, NULL, p, got, w);
    for (uint32_t i = 0; i < routing.n_used; i++) {
        if (got[i] != ids[i]) fail_msg("choice %u is expert %u, must be %u", i, got[i], ids[i]);
        if (weights && !(fabs((double)w[i] - weights[i]) < 1e-6))
            fail_msg("weight %u is %g, must be %g", i, (double)w[i], weights[i]);
    }
}

static void test_ties_go_to_the_lowest_id(void **state)
{
    (void)state;
    const float equal[6] = {1, 1, 1, 1, 1, 1}, pairs[6] = {0, 2, 1, 2, 1, 2}, edges[6] = {NAN, -INFINITY, 3, NAN, INFINITY, 3};
    const float nothing[3] = {NAN, NAN, NAN}, zeros[6] = {0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -1.0f};
    check_route((ae_routing){6, 3, AE_GATE_SOFTMAX, true, 1, 0, 0, 0}, equal, NULL, (uint32_t[]){0, 1, 2},
                (double[]){1 / 3.0, 1 / 3.0, 1 / 3.0});
    check_route((ae_routing){6, 2, AE_GATE_SOFTMAX, false, 1, 0, 0, 0}, pairs, NULL, (uint32_t[]){1, 3}, NULL);
    check_route((ae_routing){6, 4, AE_GATE_SOFTMAX, false, 1, 0, 0, 0}, pairs, NULL, (uint32_t[]){1, 2, 3, 5}, NULL);
    check_route((ae_routing){6, 3, AE_GATE_SIGMOID, false, 1, 0, 0, 0}, edges, NULL, (uint32_t[]){2, 4, 5}, NULL);
    check_route((ae_routing){6, 4, AE_GATE_SIGMOID, false, 1, 0, 0, 0}, edges, NULL, (uint32_t[]){1, 2, 4, 5}, NULL);
    check_route((ae_routing){6, 5, AE_GATE_SIGMOID, false, 1, 0, 0, 0}, edges, NULL, (uint32_t[]){0, 1, 2, 4, 5}, NULL);
    check_route((ae_routing){3, 2, AE_GATE_SOFTMAX, true, 1, 0, 0, 0}, nothing, NULL, (uint32_t[]){0, 1}, NULL);
    check_route((ae_routing){6, 2, AE_GATE_SIGMOID, false, 1, 0, 0, 0}, zeros, NULL, (uint32_t[]){0, 1}, NULL);
    check_route((ae_routing){6, 6, AE_GATE_SOFTMAX, false, 1, 0, 0, 0}, pairs, NULL, (uint32_t[]){0, 1, 2, 3, 4, 5}, NULL);
}

/* Exact to the last bit: sixteen sums by the expert's id, whatever its place in the list, and one tree. */
static void test_sums_go_by_id(void **state)
{
    enum { N = 100, USED = 37 };
    float logits[N], p[N], got_p[N], w[USED], all[16] = {0}, chosen[16] = {0};
    uint32_t ids[USED];
    uint64_t random = 5;
    (void)state;
    for (uint32_t i = 0; i < N; i++) logits[i] = (float)(mk_random(&random) % 100003) * 1e-4f;
    float top = logits[0];
    for (uint32_t i = 1; i < N; i++) top = logits[i] > top ? logits[i] : top;
    for (uint32_t i = 0; i < N; i++) all[i % 16] += p[i] = ae_expf(logits[i] - top);
    ae_ref_route(&(ae_routing){N, USED, AE_GATE_SOFTMAX, true, 1, 0, 0, 0}, logits, NULL, NULL, got_p, ids, w);
    for (uint32_t i = 0; i < N; i++) assert_true(got_p[i] == p[i] / ae_sum16(all));
    for (uint32_t i = 0; i < USED; i++) chosen[ids[i] % 16] += got_p[ids[i]];
    for (uint32_t i = 0; i < USED; i++) assert_true(w[i] == got_p[ids[i]] / ae_sum16(chosen));
    /* weights of the chosen experts only, scaled to add up to 1 again */
    float q[USED], sums[16] = {0}, again[16] = {0};
    top = logits[ids[0]];
    for (uint32_t i = 0; i < USED; i++) top = logits[ids[i]] > top ? logits[ids[i]] : top;
    for (uint32_t i = 0; i < USED; i++) sums[ids[i] % 16] += q[i] = ae_expf(logits[ids[i]] - top);
    for (uint32_t i = 0; i < USED; i++) again[ids[i] % 16] += q[i] /= ae_sum16(sums);
    ae_ref_route(&(ae_routing){N, USED, AE_GATE_SOFTMAX_CHOSEN, true, 1, 0, 0, 0}, logits, NULL, NULL, got_p, ids, w);
    for (uint32_t i = 0; i < USED; i++) assert_true(w[i] == q[i] / ae_sum16(again));
}

static void test_weights_follow_the_rule(void **state)
{
    (void)state;
    const float l[4] = {0.5f, -1.0f, 2.0f, 1.0f}, bias[4] = {0, 0.9f, -0.5f, 0};
    const double q[4] = {exp(0.5), exp(-1.0), exp(2.0), exp(1.0)}, sum = q[0] + q[1] + q[2] + q[3];
    const double s[4] = {1 / (1 + exp(-0.5)), 1 / (1 + exp(1.0)), 1 / (1 + exp(-2.0)), 1 / (1 + exp(-1.0))};
    const uint32_t top[] = {2, 3};
    check_route((ae_routing){4, 2, AE_GATE_SOFTMAX, false, 1, 0, 0, 0}, l, NULL, top, (double[]){q[2] / sum, q[3] / sum});
    check_route((ae_routing){4, 2, AE_GATE_SOFTMAX, true, 1, 0, 0, 0}, l, NULL, top,
                (double[]){q[2] / (q[2] + q[3]), q[3] / (q[2] + q[3])});
    check_route((ae_routing){4, 2, AE_GATE_SOFTMAX_CHOSEN, false, 2, 0, 0, 0}, l, NULL, top,
                (double[]){2 * q[2] / (q[2] + q[3]), 2 * q[3] / (q[2] + q[3])});
    /* scores with the bias: 0.62, 1.17, 0.38, 0.73; the weights do not include it */
    check_route((ae_routing){4, 2, AE_GATE_SIGMOID, false, 1, 0, 0, 0}, l, bias, (uint32_t[]){1, 3}, (double[]){s[1], s[3]});
    check_route((ae_routing){4, 2, AE_GATE_SIGMOID, true, 2.5f, 0, 0, 0}, l, bias, (uint32_t[]){1, 3},
                (double[]){2.5 * s[1] / (s[1] + s[3]), 2.5 * s[3] / (s[1] + s[3])});
    /* sparse mixer: each weight is a share among the experts within 2 % that are not chosen before, as PhiMoE has it */
    const float near[4] = {1.0f, 1.01f, -3.0f, 0.985f}, below_zero[3] = {-1.015f, -1.0f, -1.05f};
    const double e[3] = {exp(-0.01), exp(-0.015), exp(-0.015)};
    check_route((ae_routing){4, 2, AE_GATE_SPARSE_MIXER, false, 1, 0, 0, 0}, near, NULL, (uint32_t[]){0, 1},
                (double[]){1 / (1 + e[1]), 1 / (1 + e[0])});
    check_route((ae_routing){3, 2, AE_GATE_SPARSE_MIXER, false, 1, 0, 0, 0}, below_zero, NULL, (uint32_t[]){0, 1},
                (double[]){1, 1 / (1 + e[2])});
    check_route((ae_routing){4, 1, AE_GATE_SPARSE_MIXER, false, 1, 0, 0, 2}, near, NULL, (uint32_t[]){1},
                (double[]){1 / (1 + e[0])});
    const float none[2] = {-200, -200}; /* the sum is held above 2^-14 */
    check_route((ae_routing){2, 2, AE_GATE_SIGMOID, true, 1, 0, 0, 0}, none, NULL, (uint32_t[]){0, 1}, (double[]){0, 0});
}

/* ---- The value ---------------------------------------------------------------------------------------- */

/* Row o of matrix i of a tensor, as double. */
static void weight_row(ae_tensor_ref t, uint32_t i, uint32_t o, double *row)
{
    const size_t n = (size_t)t->ne[0], bytes = ae_type_row_bytes(t->type, n);
    float *f = get(n, sizeof *f);
    ae_type_get(t->type)->decode((const uint8_t *)t->data + ((size_t)i * (size_t)t->ne[1] + o) * bytes, f, n);
    for (size_t k = 0; k < n; k++) row[k] = (double)f[k];
    ae_free(f);
}

static double dot_row(ae_tensor_ref t, uint32_t i, uint32_t o, const double *x)
{
    const size_t n = (size_t)t->ne[0];
    double *w = get(n, sizeof *w), sum = 0;
    weight_row(t, i, o, w);
    for (size_t k = 0; k < n; k++) sum += w[k] * x[k];
    ae_free(w);
    return sum;
}

/* y += weight * expert(x): the rows of gate and up start at g0 and u0. */
static void add_expert(ae_tensor_ref gate, uint32_t g0, ae_tensor_ref up, uint32_t u0, ae_tensor_ref down, uint32_t i,
                       double weight, const double *x, double *y)
{
    const uint32_t n_ff = (uint32_t)down->ne[0];
    double *h = get(n_ff, sizeof *h);
    for (uint32_t k = 0; k < n_ff; k++) {
        const double g = dot_row(gate, i, g0 + k, x), u = dot_row(up, i, u0 + k, x);
        h[k] = g / (1 + exp(-g)) * u;
    }
    for (uint32_t o = 0; o < (uint32_t)down->ne[1]; o++) y[o] += weight * dot_row(down, i, o, h);
    ae_free(h);
}

/* The weights of all experts, 0 for those not chosen, and the distance in score that decided. */
static double choose(const ae_layer *l, const ae_expert_hparams *e, const double *x, double *weight)
{
    double p[64], score[64], sum = 0, last = INFINITY, next = -INFINITY;
    for (uint32_t i = 0; i < e->n; i++) {
        const double logit = dot_row(l->router, 0, i, x);
        p[i] = e->gate == AE_EXPERT_GATE_SIGMOID ? 1 / (1 + exp(-logit)) : exp(logit);
        sum += p[i];
    }
    for (uint32_t i = 0; i < e->n; i++) {
        float bias = 0;
        if (l->router_bias) memcpy(&bias, l->router_bias->data + i * sizeof bias, sizeof bias);
        if (e->gate == AE_EXPERT_GATE_SOFTMAX) p[i] /= sum;
        score[i] = p[i] + (double)bias;
        weight[i] = 0;
    }
    sum = 0;
    for (uint32_t k = 0; k < e->n_used; k++) {
        uint32_t best = e->n;
        for (uint32_t i = 0; i < e->n; i++)
            if (weight[i] == 0 && (best == e->n || score[i] > score[best])) best = i;
        weight[best] = p[best];
        last = score[best];
        sum += p[best];
    }
    for (uint32_t i = 0; i < e->n; i++) {
        if (weight[i] == 0) next = score[i] > next ? score[i] : next;
        weight[i] *= (double)e->scale / (e->renorm ? sum : 1);
    }
    return last - next;
}

static void reference(const rig *r, const float *x, double *y, double *gap)
{
    const ae_hparams *h = &r->model->hparams;
    const ae_layer *l = &r->model->layers[0];
    double *n = get(h->n_embd, sizeof *n), *norm = get(h->n_embd, sizeof *norm), squares = 0, weight[64];
    weight_row(l->ffn_norm, 0, 0, norm);
    for (uint32_t i = 0; i < h->n_embd; i++) squares += (double)x[i] * (double)x[i];
    for (uint32_t i = 0; i < h->n_embd; i++) {
        n[i] = (double)x[i] / sqrt(squares / h->n_embd + (double)h->norm_eps) * norm[i];
        y[i] = 0;
    }
    *gap = choose(l, &h->experts, n, weight);
    for (uint32_t e = 0; e < h->experts.n; e++) {
        if (weight[e] == 0) continue;
        if (l->e_gate_up) add_expert(l->e_gate_up, 0, l->e_gate_up, h->experts.n_ff, l->e_down, e, weight[e], n, y);
        else add_expert(l->e_gate, 0, l->e_up, 0, l->e_down, e, weight[e], n, y);
    }
    const double share = l->s_router ? 1 / (1 + exp(-dot_row(l->s_router, 0, 0, n))) : 1;
    if (l->s_gate) add_expert(l->s_gate, 0, l->s_up, 0, l->s_down, 0, share, n, y);
    ae_free(n), ae_free(norm);
}

static void test_the_block_equals_its_formulas_in_float64(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        rig r;
        rig_open(&r, model_path(m), NULL, 2, 1, 64, AE_KV_F16, 0);
        const uint32_t n_embd = r.model->hparams.n_embd, n_rows = 12;
        float *x = make_rows(n_rows, n_embd, m), *y = get((size_t)n_rows * n_embd, sizeof *y);
        double *want = get(n_embd, sizeof *want), gap;
        uint32_t n_clear = 0;
        run_block(&r, n_rows, models[m].n_used, x, y);
        for (uint32_t i = 0; i < n_rows; i++) {
            double off = 0, size = 0;
            reference(&r, x + (size_t)i * n_embd, want, &gap);
            if (gap < 1e-5) continue; /* too near to call */
            n_clear++;
            for (uint32_t k = 0; k < n_embd; k++) {
                const double got = (double)y[(size_t)i * n_embd + k] - (double)x[(size_t)i * n_embd + k];
                off += (got - want[k]) * (got - want[k]);
                size += want[k] * want[k];
            }
            if (!(sqrt(off / size) < models[m].tolerance))
                fail_msg("model %zu (%s %s): row %u is off by %g of its size", m, models[m].arch, models[m].type, i,
                         sqrt(off / size));
        }
        assert_true(n_clear >= n_rows - 2);
        ae_free(x), ae_free(y), ae_free(want);
        rig_close(&r);
    }
}

/* ---- The law -------------------------------------------------------------------------------------------- */

static void same_as_alone(rig *r, size_t m, uint32_t n_used, const float *x, const float *alone)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 7, 15, 16, 17, 33, N_ROWS};
    const size_t n_embd = r->model->hparams.n_embd;
    float *y = get(N_ROWS * n_embd, sizeof *y);
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        const uint32_t n = counts[c], first = (uint32_t)(c * 5) % (N_ROWS - n + 1);
        run_block(r, n, n_used, x + first * n_embd, y);
        for (uint32_t i = 0; i < n; i++)
            if (memcmp(y + i * n_embd, alone + (first + i) * n_embd, n_embd * sizeof *y))
                fail_msg("model %zu (%s %s), %s, %u threads, %u experts: row %u of %u differs from the row alone", m,
                         models[m].arch, models[m].type, r->level, r->n_threads, n_used, i, n);
    }
    ae_free(y);
}

static void test_rows_that_share_experts_equal_each_row_alone(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        rig r;
        rig_open(&r, model_path(m), "ref", 1, 1, 64, AE_KV_F16, 0);
        const size_t n_embd = r.model->hparams.n_embd;
        const uint32_t used[2] = {models[m].n_used, (models[m].n_used + 1) / 2}; /* as in the plan, and as in a draft */
        float *x = make_rows(N_ROWS, (uint32_t)n_embd, 9 + m), *alone[2];
        for (int u = 0; u < 2; u++) {
            alone[u] = get(N_ROWS * n_embd, sizeof **alone);
            for (uint32_t i = 0; i < N_ROWS; i++) run_block(&r, 1, used[u], x + i * n_embd, alone[u] + i * n_embd);
        }
        rig_close(&r);
        for (size_t l = 0; l < N_LEVELS; l++)
            for (uint32_t t = 1; t <= MAX_THREADS && rig_has_level(levels[l]); t++) {
                if (AE_TEST_EVERY > 4 && (m + l + t) % 3) continue;
                rig_open(&r, model_path(m), levels[l], t, 1, 64, AE_KV_F16, 0);
                for (int u = 0; u < 2; u++) same_as_alone(&r, m, used[u], x, alone[u]);
                rig_close(&r);
            }
        ae_free(x), ae_free(alone[0]), ae_free(alone[1]);
    }
}

/* ---- One read of the weights -------------------------------------------------------------------------------- */

#define MAX_PANELS 64

static ae_mm_fn *real_mm;
static ae_weight **counted[3]; /* gate, up, down: [n_experts] */
static uint32_t n_counted;
static atomic_uint n_walked[3][64][MAX_PANELS];

static void counting_mm(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    for (int s = 0; s < 3; s++)
        for (uint32_t e = 0; e < n_counted; e++)
            for (uint32_t p = begin / AE_PANEL; w == counted[s][e] && p * AE_PANEL < end; p++)
                atomic_fetch_add(&n_walked[s][e][p], 1);
    real_mm(w, act, out, begin, end);
}

/* Counts the experts of which every panel of all three matrices was walked once; other experts must not be read. */
static uint32_t experts_walked(uint32_t n_experts, bool *walked)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < n_experts; e++) {
        const uint32_t times = atomic_load(&n_walked[0][e][0]);
        assert_in_range(times, 0, 1);
        for (int s = 0; s < 3; s++)
            for (uint32_t p = 0; p * AE_PANEL < counted[s][e]->n_out; p++)
                assert_int_equal(atomic_load(&n_walked[s][e][p]), times);
        walked[e] |= times;
        n += times;
    }
    memset(n_walked, 0, sizeof n_walked);
    return n;
}

static void test_a_pass_walks_each_chosen_expert_once(void **state)
{
    (void)state;
    const size_t m = 5; /* 33 experts, one row uses 5 */
    const uint32_t n_experts = models[m].n_experts, n_used = models[m].n_used, n_rows = 14;
    rig r;
    rig_open(&r, model_path(m), NULL, 2, 1, 64, AE_KV_F16, 0);
    if (strncmp(r.backend->ops->name, "cpu", 3)) { /* it reads weights of the CPU's backends */
        print_message("skip: counts what the CPU's kernels read, and the device is %s\n", r.backend->ops->name);
        rig_close(&r);
        skip();
    }
    const size_t n_embd = r.model->hparams.n_embd;
    float *x = make_rows(n_rows, (uint32_t)n_embd, 4), *y = get(n_rows * n_embd, sizeof *y);
    ae_weight **const stacks[3] = {r.net->layers[0].e_gate, r.net->layers[0].e_up, r.net->layers[0].e_down};
    for (int s = 0; s < 3; s++) {
        assert_in_range(stacks[s][0]->n_out, 1, MAX_PANELS * AE_PANEL);
        real_mm = stacks[s][0]->mm; /* one type, one kernel */
        counted[s] = stacks[s];
        n_counted = n_experts;
        for (uint32_t e = 0; e < n_experts; e++) stacks[s][e]->mm = counting_mm, stacks[s][e]->tiles_from = AE_NO_TILES;
    }
    bool in_turn[64] = {false}, at_once[64] = {false};
    for (uint32_t i = 0; i < n_rows; i++) {
        run_block(&r, 1, n_used, x + i * n_embd, y);
        assert_int_equal(experts_walked(n_experts, in_turn), n_used);
    }
    run_block(&r, n_rows, n_used, x, y);
    const uint32_t n_union = experts_walked(n_experts, at_once);
    assert_memory_equal(in_turn, at_once, sizeof in_turn);
    assert_in_range(n_union, n_used + 1, n_experts);
    ae_free(x), ae_free(y);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ties_go_to_the_lowest_id),
        cmocka_unit_test(test_sums_go_by_id),
        cmocka_unit_test(test_weights_follow_the_rule),
        cmocka_unit_test(test_the_block_equals_its_formulas_in_float64),
        cmocka_unit_test(test_rows_that_share_experts_equal_each_row_alone),
        cmocka_unit_test(test_a_pass_walks_each_chosen_expert_once),
    };
    return cmocka_run_group_tests_name("moe laws", tests, make_models, drop_models);
}
