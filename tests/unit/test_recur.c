/* test_recur.c - what the recurrent operations compute, against the published formulas in double.
 *
 * kernels/test_kernels and laws/test_recur_laws compare bits; this test finds wrong rules: which group a head belongs to, the
 * order of gate and norm, the decay's sign, where a convolution begins.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "device/device.h"
#include "base/mem.h"

enum { ROWS = 9, HEADS = 6, GROUPS = 3, KEY = 12, VALUE = 20, TAPS = 4 };

static uint64_t random_state = 1;

static float uniform(float lo, float hi)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return lo + (hi - lo) * (float)(random_state >> 40) * 0x1p-24f;
}

static void fill(float *x, size_t n, float lo, float hi)
{
    for (size_t i = 0; i < n; i++) x[i] = uniform(lo, hi);
}

static void close_to(const char *what, double got, double want)
{
    if (!(fabs(got - want) <= 2e-5 * (1 + fabs(want)))) fail_msg("%s is %g, must be %g", what, got, want);
}

typedef struct rig {
    ae_backend *backend;
    ae_pool *pool;
    ae_stream *stream;
    ae_state_store *store;
    ae_state_run run;
    ae_state_pass pass;
    int32_t parent[ROWS];
} rig;

static void rig_open(rig *r, const ae_state_layer *layer)
{
    aerie_error error = {0};
    const ae_state_shape shape = {1, layer, 1, 1, 1};
    *r = (rig){.run = {.n_committed = ROWS}};
    if (ae_pool_create(&r->pool, 1, &error) != AERIE_OK) fail_msg("%s", error.text);
    const ae_stream_options options = {.n_threads = 1, .max_rows = ROWS, .max_in = 32, .state = &shape, .pool = r->pool};
    if (ae_backend_open(&r->backend, NULL, NULL, &error) != AERIE_OK ||
        r->backend->ops->stream_create(r->backend, &options, &r->stream, &error) != AERIE_OK ||
        r->backend->ops->state_create(r->backend, &shape, &r->store, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    for (int32_t i = 0; i < ROWS; i++) r->parent[i] = i - 1;
    r->pass = (ae_state_pass){.store = r->store, .n_rows = ROWS, .parent = r->parent, .n_runs = 1, .runs = &r->run};
}

static void rig_close(rig *r)
{
    r->backend->ops->state_free(r->backend, r->store);
    r->backend->ops->stream_free(r->stream);
    ae_pool_free(r->pool);
    ae_backend_close(r->backend);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double softplus(double x) { return x > 20 ? x : log1p(exp(x)); }

static void test_conv(void **state)
{
    enum { C = 37 };
    static float x[ROWS][C], x2[ROWS][C], gate[ROWS][C], y[ROWS][C], weight[C][TAPS], bias[C];
    const ae_state_layer layer = {.kind = AE_STATE_CONV, .n_channels = C, .n_taps = TAPS};
    (void)state;
    for (int how = 0; how < 2; how++) {
        rig r;
        rig_open(&r, &layer);
        fill(x[0], ROWS * C, -1, 1), fill(x2[0], ROWS * C, -1, 1), fill(gate[0], ROWS * C, -1, 1);
        fill(weight[0], C * TAPS, -1, 1), fill(bias, C, -1, 1);
        static double in[ROWS][C];
        for (int t = 0; t < ROWS; t++)
            for (int c = 0; c < C; c++) in[t][c] = (double)x[t][c] * (how ? (double)x2[t][c] : 1);
        r.backend->ops->conv(r.stream, &(ae_conv){.pass = &r.pass, .x = x[0], .x2 = how ? x2[0] : NULL, .x_stride = C,
                                                  .weight = weight[0], .bias = how ? NULL : bias, .silu = !how,
                                                  .gate = how ? gate[0] : NULL, .y = y[0], .y_stride = C});
        for (int t = 0; t < ROWS; t++)
            for (int c = 0; c < C; c++) {
                double sum = how ? 0 : (double)bias[c];
                for (int j = 0; j < TAPS; j++)
                    if (t - TAPS + 1 + j >= 0) sum += (double)weight[c][j] * in[t - TAPS + 1 + j][c];
                close_to("a convolution", (double)y[t][c], how ? sum * (double)gate[t][c] : sum * sigmoid(sum));
            }
        rig_close(&r);
    }
}

static void test_delta(void **state)
{
    enum { C = 2 * GROUPS * KEY + HEADS * VALUE };
    static float c[ROWS][C], kept[ROWS][C], ab[ROWS][2 * HEADS], y[ROWS][HEADS * VALUE], decay[HEADS], dt[HEADS];
    (void)state;
    for (int how = 0; how < 4; how++) { /* tiled, and the two projections in one */
        const bool tiled = how & 1, packed = how >> 1;
        const ae_state_layer layer = {AE_STATE_DELTA, C, TAPS, HEADS, GROUPS, KEY, VALUE, tiled, NULL};
        const uint32_t per_group = HEADS / GROUPS;
        rig r;
        rig_open(&r, &layer);
        fill(c[0], ROWS * C, -1, 1), fill(ab[0], ROWS * 2 * HEADS, -2, 2), fill(decay, HEADS, -3, -0.1f),
            fill(dt, HEADS, -1, 1);
        memcpy(kept, c, sizeof c);
        r.backend->ops->recur(r.stream, &(ae_recur){.pass = &r.pass, .c = c[0], .c_stride = C,
                                                    .a = ab[0] + (packed ? per_group : HEADS), .b = ab[0],
                                                    .ab_stride = 2 * HEADS, .ab_group = packed ? per_group : 0, .decay = decay,
                                                    .dt_bias = dt, .y = y[0], .y_stride = HEADS * VALUE});
        for (uint32_t h = 0; h < HEADS; h++) {
            static double s[KEY][VALUE];
            const uint32_t group = tiled ? h % GROUPS : h / per_group;
            const uint32_t b_at = packed ? h / per_group * 2 * per_group + h % per_group : h;
            const uint32_t a_at = packed ? b_at + per_group : HEADS + h;
            memset(s, 0, sizeof s);
            for (int t = 0; t < ROWS; t++) {
                const float *q = kept[t] + group * KEY, *k = kept[t] + (GROUPS + group) * KEY;
                const float *v = kept[t] + 2 * GROUPS * KEY + h * VALUE;
                double qq = 1e-6, kk = 1e-6;
                for (int i = 0; i < KEY; i++) qq += (double)q[i] * (double)q[i], kk += (double)k[i] * (double)k[i];
                const double alpha = exp((double)decay[h] * softplus((double)ab[t][a_at] + (double)dt[h]));
                const double beta = sigmoid((double)ab[t][b_at]);
                for (int j = 0; j < VALUE; j++) {
                    double had = 0, o = 0;
                    for (int i = 0; i < KEY; i++) had += (s[i][j] *= alpha) * (double)k[i] / sqrt(kk);
                    for (int i = 0; i < KEY; i++) {
                        s[i][j] += (double)k[i] / sqrt(kk) * beta * ((double)v[j] - had);
                        o += s[i][j] * (double)q[i] / sqrt(qq);
                    }
                    close_to("the delta rule", (double)y[t][h * VALUE + (uint32_t)j], o / sqrt(KEY));
                }
            }
        }
        rig_close(&r);
    }
}

static void test_mamba2(void **state)
{
    enum { V = HEADS * VALUE, C = V + 2 * GROUPS * KEY };
    static float c[ROWS][C], dt[ROWS][HEADS], y[ROWS][V], decay[HEADS], bias[HEADS], skip[HEADS];
    const ae_state_layer layer = {AE_STATE_MAMBA2, C, TAPS, HEADS, GROUPS, KEY, VALUE, false, NULL};
    rig r;
    (void)state;
    rig_open(&r, &layer);
    fill(c[0], ROWS * C, -1, 1), fill(dt[0], ROWS * HEADS, -2, 25), fill(decay, HEADS, -3, -0.1f), fill(bias, HEADS, -1, 1);
    fill(skip, HEADS, -1, 1);
    r.backend->ops->recur(r.stream, &(ae_recur){.pass = &r.pass, .c = c[0], .c_stride = C, .a = dt[0], .ab_stride = HEADS,
                                                .decay = decay, .dt_bias = bias, .skip = skip, .y = y[0], .y_stride = V});
    for (uint32_t h = 0; h < HEADS; h++) {
        static double s[VALUE][KEY];
        memset(s, 0, sizeof s);
        for (int t = 0; t < ROWS; t++) {
            const float *x = c[t] + h * VALUE, *b = c[t] + V + h / (HEADS / GROUPS) * KEY, *cc = b + GROUPS * KEY;
            const double delta = softplus((double)dt[t][h] + (double)bias[h]), alpha = exp((double)decay[h] * delta);
            for (int p = 0; p < VALUE; p++) {
                double o = (double)skip[h] * (double)x[p];
                for (int n = 0; n < KEY; n++) {
                    s[p][n] = s[p][n] * alpha + (double)b[n] * (double)x[p] * delta;
                    o += s[p][n] * (double)cc[n];
                }
                close_to("the Mamba2 step", (double)y[t][h * VALUE + (uint32_t)p], o);
            }
        }
    }
    rig_close(&r);
}

static void test_mamba1(void **state)
{
    enum { V = HEADS * VALUE, S = 2 * KEY + 3 };
    static float c[ROWS][V], keys[ROWS][S], dt[ROWS][V], y[ROWS][V], decay[V][KEY], bias[V], skip[V];
    const ae_state_layer layer = {AE_STATE_MAMBA1, V, TAPS, 1, 1, KEY, V, false, decay[0]};
    rig r;
    (void)state;
    rig_open(&r, &layer);
    fill(c[0], ROWS * V, -1, 1), fill(keys[0], ROWS * S, -1, 1), fill(dt[0], ROWS * V, -9, 25);
    fill(decay[0], V * KEY, -3, -0.1f);
    fill(bias, V, -1, 1), fill(skip, V, -1, 1);
    r.backend->ops->recur(r.stream, &(ae_recur){.pass = &r.pass, .c = c[0], .c_stride = V, .a = dt[0], .ab_stride = V,
                                                .keys = keys[0], .keys_stride = S, .dt_bias = bias, .skip = skip, .y = y[0],
                                                .y_stride = V});
    for (int p = 0; p < V; p++) {
        double s[KEY] = {0};
        for (int t = 0; t < ROWS; t++) {
            const double delta = softplus((double)dt[t][p] + (double)bias[p]), x = (double)c[t][p];
            double o = (double)skip[p] * x;
            for (int n = 0; n < KEY; n++) {
                s[n] = s[n] * exp((double)decay[p][n] * delta) + (double)keys[t][n] * x * delta;
                o += s[n] * (double)keys[t][KEY + n];
            }
            close_to("the Mamba1 step", (double)y[t][p], o);
        }
    }
    rig_close(&r);
}

static void test_kda(void **state)
{
    enum { V = HEADS * KEY, C = 3 * V, AB = V + HEADS + 5 };
    static float c[ROWS][C], given[ROWS][C], ab[ROWS][AB], y[ROWS][V], decay[HEADS], bias[V];
    const ae_state_layer layer = {AE_STATE_KDA, C, TAPS, HEADS, HEADS, KEY, KEY, false, NULL};
    (void)state;
    for (int bounded = 0; bounded < 2; bounded++) {
        rig r;
        const double bound = bounded ? -3 : 0;
        rig_open(&r, &layer);
        fill(c[0], ROWS * C, -1, 1), fill(ab[0], ROWS * AB, -2, 2);
        fill(decay, HEADS, bounded ? 0.2f : -2, bounded ? 2 : -0.1f);
        fill(bias, V, -1, 1);
        memcpy(given, c, sizeof given);
        r.backend->ops->recur(r.stream, &(ae_recur){.pass = &r.pass, .c = c[0], .c_stride = C, .a = ab[0], .b = ab[0] + V,
                                                    .ab_stride = AB, .decay = decay, .dt_bias = bias, .bound = (float)bound,
                                                    .y = y[0], .y_stride = V});
        for (uint32_t h = 0; h < HEADS; h++) {
            static double s[KEY][KEY];
            memset(s, 0, sizeof s);
            for (int t = 0; t < ROWS; t++) {
                const float *q = given[t] + h * KEY, *k = q + V, *v = k + V, *a = ab[t] + h * KEY;
                const double beta = 1 / (1 + exp(-(double)ab[t][V + h]));
                double qq = 1e-6, kk = 1e-6;
                for (int i = 0; i < KEY; i++) qq += (double)q[i] * (double)q[i], kk += (double)k[i] * (double)k[i];
                for (int i = 0; i < KEY; i++) {
                    const double f = (double)a[i] + (double)bias[h * KEY + (uint32_t)i], rate = (double)decay[h];
                    const double g = bounded ? bound / (1 + exp(-rate * f)) : rate * softplus(f);
                    for (int j = 0; j < KEY; j++) s[i][j] *= exp(g);
                }
                for (int j = 0; j < KEY; j++) {
                    double had = 0, o = 0;
                    for (int i = 0; i < KEY; i++) had += s[i][j] * (double)k[i] / sqrt(kk);
                    for (int i = 0; i < KEY; i++) {
                        s[i][j] += (double)k[i] / sqrt(kk) * beta * ((double)v[j] - had);
                        o += s[i][j] * (double)q[i] / sqrt(qq);
                    }
                    close_to("the delta rule by keys", (double)y[t][h * KEY + (uint32_t)j], o / sqrt(KEY));
                }
            }
        }
        rig_close(&r);
    }
}

/* RWKV 6 with and without a row's own key, and RWKV 7, as their papers write them. */
static void test_wkv(void **state)
{
    enum { V = HEADS * KEY, FORMS = 3 };
    static float r_[ROWS][V], k_[ROWS][V], v_[ROWS][V], w_[ROWS][V], a_[ROWS][V], k[ROWS][V], y[ROWS][V];
    static float first[V], k_k[V], k_a[V], bonus[ROWS][HEADS];
    (void)state;
    for (int form = 0; form < FORMS; form++) {
        const bool seven = form == 2;
        const ae_state_layer layer = {seven ? AE_STATE_WKV7 : AE_STATE_WKV6, V, 2, HEADS, HEADS, KEY, KEY, false, NULL};
        rig r;
        rig_open(&r, &layer);
        fill(r_[0], ROWS * V, -1, 1), fill(k_[0], ROWS * V, -1, 1), fill(v_[0], ROWS * V, -1, 1), fill(w_[0], ROWS * V, -3, 1);
        fill(a_[0], ROWS * V, -2, 2), fill(first, V, -1, 1), fill(k_k, V, 0.5f, 1.5f), fill(k_a, V, 0.5f, 1.5f);
        memcpy(k, k_, sizeof k);
        r.backend->ops->recur(r.stream, &(ae_recur){.pass = &r.pass, .c = r_[0], .c_stride = V, .k = k[0], .v = v_[0],
                                                    .a = w_[0], .b = a_[0], .ab_stride = V, .first = form == 1 ? NULL : first,
                                                    .k_k = k_k, .k_a = k_a, .bonus = bonus[0], .y = y[0], .y_stride = V});
        for (uint32_t h = 0; h < HEADS; h++) {
            static double s[KEY][KEY]; /* of values by keys */
            memset(s, 0, sizeof s);
            for (int t = 0; t < ROWS; t++) {
                double w[KEY], key[KEY], kk[KEY], rate[KEY], sum = 0, own = 0;
                const size_t at = h * KEY;
                for (int j = 0; j < KEY; j++) {
                    const double x = (double)w_[t][at + (size_t)j], kx = (double)k_[t][at + (size_t)j];
                    w[j] = seven ? exp(-0.606531 / (1 + exp(-x))) : exp(-exp(x));
                    rate[j] = 1 / (1 + exp(-(double)a_[t][at + (size_t)j]));
                    kk[j] = kx * (double)k_k[at + (size_t)j];
                    sum += kk[j] * kk[j];
                    key[j] = seven ? kx + (rate[j] - 1) * kx * (double)k_a[at + (size_t)j] : form ? kx * (1 - w[j]) : kx;
                    own += key[j] * (double)r_[t][at + (size_t)j] * (double)first[at + (size_t)j];
                }
                for (int i = 0; i < KEY; i++) {
                    const double v = (double)v_[t][at + (size_t)i];
                    double o = 0, had = 0;
                    for (int j = 0; j < KEY; j++) had -= s[i][j] * kk[j] / sqrt(sum);
                    for (int j = 0; j < KEY; j++) {
                        const double rj = (double)r_[t][at + (size_t)j], before = s[i][j];
                        s[i][j] = before * w[j] + v * key[j] + (seven ? had * kk[j] / sqrt(sum) * rate[j] : 0);
                        o += (form ? s[i][j] : before) * rj;
                    }
                    const double result = form == 0 ? o + own * v : form == 1 ? o / sqrt(KEY) : o;
                    close_to("RWKV's step", (double)y[t][at + (size_t)i], result);
                }
                if (seven) close_to("a row's own key", (double)bonus[t][h], own);
            }
        }
        rig_close(&r);
    }
}

static void test_gated_norm(void **state)
{
    enum { DIM = 20, N = GROUPS * DIM };
    static float x[2][N], z[2][N], weight[N], kept[2][N];
    const ae_state_layer layer = {.kind = AE_STATE_CONV, .n_channels = 16, .n_taps = 2};
    rig r;
    (void)state;
    rig_open(&r, &layer);
    for (int first = 0; first < 2; first++) {
        fill(x[0], 2 * N, -1, 1), fill(z[0], 2 * N, -2, 2), fill(weight, N, -1, 1);
        memcpy(kept, x, sizeof x);
        r.backend->ops->gated_norm(r.stream, &(ae_gated_norm){.n_rows = 2, .n_groups = GROUPS, .dim = DIM, .x = x[0],
                                                              .x_stride = N, .z = z[0], .z_stride = N, .weight = weight,
                                                              .by_group = first, .gate_first = first, .eps = 1e-5f});
        for (int t = 0; t < 2; t++)
            for (int g = 0; g < GROUPS; g++) {
                double in[DIM], sum = 0;
                for (int i = 0; i < DIM; i++) {
                    const double zz = (double)z[t][g * DIM + i];
                    in[i] = (double)kept[t][g * DIM + i] * (first ? zz * sigmoid(zz) : 1);
                    sum += in[i] * in[i];
                }
                for (int i = 0; i < DIM; i++) {
                    const double zz = (double)z[t][g * DIM + i], w = (double)weight[first ? g * DIM + i : i];
                    const double normed = in[i] / sqrt(sum / DIM + 1e-5) * w;
                    close_to("a gated norm", (double)x[t][g * DIM + i], first ? normed : normed * zz * sigmoid(zz));
                }
            }
    }
    rig_close(&r);
}

/* ---- Absorbing --------------------------------------------------------------------------------------------- */

enum { ABSORB_C = 2 * GROUPS * KEY + HEADS * VALUE, N_TREE = 3 };

/* A backend with a store of one sequence. */
typedef struct lab {
    ae_backend *backend;
    ae_pool *pool;
    ae_stream *stream;
    ae_state_store *store;
    const ae_state_layer *layer;
} lab;

static lab lab_open(const char *name, const ae_state_layer *layer)
{
    aerie_error error = {0};
    lab l = {.layer = layer};
    const ae_state_shape shape = {1, layer, 1, 1, N_TREE};
    if (ae_pool_create(&l.pool, 2, &error) != AERIE_OK || ae_backend_open(&l.backend, name, NULL, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    const ae_stream_options options = {.n_threads = 2, .max_rows = ROWS, .max_in = 32, .state = &shape, .pool = l.pool};
    if (l.backend->ops->stream_create(l.backend, &options, &l.stream, &error) != AERIE_OK ||
        l.backend->ops->state_create(l.backend, &shape, &l.store, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    return l;
}

static void lab_close(lab *l)
{
    l->backend->ops->state_free(l->backend, l->store);
    l->backend->ops->stream_free(l->stream);
    ae_backend_close(l->backend);
    ae_pool_free(l->pool);
}

static float in_x[ROWS][ABSORB_C], in_ab[ROWS][2 * HEADS], in_weight[ABSORB_C][TAPS], in_decay[HEADS];
static float in_rates[HEADS * VALUE][KEY]; /* of MAMBA1 */

/* A pass over rows with the inputs of `tokens`: n_committed of them, then the tree. */
static void lab_run(const lab *l, const int32_t *tokens, uint32_t n_committed, const int32_t *parent,
                    const ae_state_visit *visits, uint32_t n_tree)
{
    static float x[ROWS][ABSORB_C], c[ROWS][ABSORB_C], ab[ROWS][2 * HEADS], y[ROWS][HEADS * VALUE];
    const uint32_t n = n_committed + n_tree;
    const ae_state_run run = {.n_committed = n_committed, .n_tentative = n_tree};
    const ae_state_pass pass = {.store = l->store, .n_rows = n, .parent = parent, .n_runs = 1, .runs = &run, .visits = visits,
                                .stride = N_TREE};
    for (uint32_t i = 0; i < n; i++) {
        memcpy(x[i], in_x[tokens[i]], sizeof x[i]);
        memcpy(ab[i], in_ab[tokens[i]], sizeof ab[i]);
    }
    l->backend->ops->conv(l->stream, &(ae_conv){.pass = &pass, .x = x[0], .x_stride = ABSORB_C, .weight = in_weight[0],
                                                .silu = true, .y = c[0], .y_stride = ABSORB_C});
    if (l->layer->kind == AE_STATE_MAMBA1) /* its inputs besides the convolution's result are parts of x here */
        l->backend->ops->recur(l->stream, &(ae_recur){.pass = &pass, .c = c[0], .c_stride = ABSORB_C, .a = x[0],
                                                      .ab_stride = ABSORB_C, .keys = x[0] + HEADS * VALUE,
                                                      .keys_stride = ABSORB_C, .y = y[0], .y_stride = HEADS * VALUE});
    else if (l->layer->kind == AE_STATE_KDA)
        l->backend->ops->recur(l->stream, &(ae_recur){.pass = &pass, .c = c[0], .c_stride = ABSORB_C, .a = x[0],
                                                      .b = x[0] + GROUPS * KEY, .ab_stride = ABSORB_C, .decay = in_decay,
                                                      .y = y[0], .y_stride = HEADS * VALUE});
    else if (l->layer->kind == AE_STATE_WKV6 || l->layer->kind == AE_STATE_WKV7) /* parts of x are r, k, v, a, b */
        l->backend->ops->recur(l->stream, &(ae_recur){.pass = &pass, .c = x[0], .k = x[0] + KEY, .v = x[0] + 2 * KEY,
                                                      .c_stride = ABSORB_C, .a = x[0] + 3 * KEY, .b = x[0] + 4 * KEY,
                                                      .ab_stride = ABSORB_C, .first = in_weight[0], .k_k = in_weight[1],
                                                      .k_a = in_weight[2], .bonus = ab[0], .y = y[0],
                                                      .y_stride = HEADS * VALUE});
    else if (l->layer->kind != AE_STATE_CONV)
        l->backend->ops->recur(l->stream, &(ae_recur){.pass = &pass, .c = c[0], .c_stride = ABSORB_C, .a = ab[0],
                                                      .b = ab[0] + HEADS, .ab_stride = 2 * HEADS, .decay = in_decay,
                                                      .y = y[0], .y_stride = HEADS * VALUE});
    aerie_error error = {0}; /* operations read `run` when they run, which may be as late as here */
    if (l->backend->ops->sync(l->stream, &error) != AERIE_OK) fail_msg("%s", error.text);
}

static void lab_check(const lab *l, const uint8_t *expected, size_t n, const char *what)
{
    aerie_error error = {0};
    uint8_t *got = ae_alloc(n, 1);
    assert_int_equal(l->backend->ops->state_plane_bytes(l->store), n);
    l->backend->ops->state_read(l->stream, l->store, 0, got);
    if (l->backend->ops->sync(l->stream, &error) != AERIE_OK) fail_msg("%s", error.text);
    if (memcmp(got, expected, n)) fail_msg("%s, kind %d, %s", l->backend->ops->name, (int)l->layer->kind, what);
    ae_free(got);
}

/* Two rows, a tree of three on them, of which the first and its child are accepted and absorbed: the plane has the bits that it
 * has when these four rows are committed. Until then it has those of two rows. */
static void test_absorb(void **state)
{
    static const ae_state_layer layers[] = {
        {.kind = AE_STATE_CONV, .n_channels = ABSORB_C, .n_taps = TAPS},
        {AE_STATE_DELTA, ABSORB_C, TAPS, HEADS, GROUPS, KEY, VALUE, false, NULL},
        {AE_STATE_MAMBA2, ABSORB_C, TAPS, HEADS, GROUPS, KEY, VALUE, false, NULL},
        {AE_STATE_KDA, 3 * GROUPS * KEY, TAPS, GROUPS, GROUPS, KEY, KEY, false, NULL},
        {AE_STATE_WKV6, KEY, 2, 1, 1, KEY, KEY, false, NULL},
        {AE_STATE_WKV7, KEY, 2, 1, 1, KEY, KEY, false, NULL},
        {AE_STATE_MAMBA1, HEADS * VALUE, TAPS, 1, 1, KEY, HEADS * VALUE, false, in_rates[0]},
    };
    _Static_assert(5 * KEY <= ABSORB_C, "r, k, v, a and b of one head are parts of a row");
    static const int32_t tokens[] = {0, 1, 2, 3, 4}, parent[] = {-1, 0, 1, 1, 2}, path[] = {0, 1, 2, 4},
                         chain[] = {-1, 0, 1, 2};
    static const ae_state_visit visits[N_TREE] = {{2, -1, 0}, {4, 0, 1}, {3, -1, 2}};
    static const uint8_t accepted[N_TREE] = {0, 2};
    static const char *const names[] = {"cpu", "cpu-strict"};
    (void)state;
    fill(in_x[0], ROWS * ABSORB_C, -1, 1), fill(in_ab[0], ROWS * 2 * HEADS, -2, 2), fill(in_decay, HEADS, -3, -0.1f);
    fill(in_weight[0], ABSORB_C * TAPS, -1, 1);
    fill(in_rates[0], HEADS * VALUE * KEY, -3, -0.1f);
    for (size_t k = 0; k < sizeof layers / sizeof layers[0]; k++) {
        uint8_t *expected[2];
        size_t n = 0;
        for (uint32_t i = 0; i < 2; i++) { /* planes after two and after four rows, by the reference */
            lab l = lab_open("cpu", &layers[k]);
            n = l.backend->ops->state_plane_bytes(l.store);
            expected[i] = ae_alloc(n, 1);
            lab_run(&l, path, 2 + 2 * i, chain, NULL, 0);
            l.backend->ops->state_read(l.stream, l.store, 0, expected[i]);
            lab_close(&l);
        }
        assert_true(memcmp(expected[0], expected[1], n));
        for (size_t b = 0; b < 2; b++) {
            lab l = lab_open(names[b], &layers[k]);
            const ae_state_run run = {.n_accepted = 2};
            lab_run(&l, tokens, 2, parent, visits, N_TREE);
            lab_check(&l, expected[0], n, "before");
            l.backend->ops->state_absorb(l.stream, &(ae_state_pass){.store = l.store, .n_runs = 1, .runs = &run,
                                                                    .accepted = accepted, .stride = N_TREE});
            lab_check(&l, expected[1], n, "absorbed");
            lab_close(&l);
        }
        for (uint32_t i = 0; i < 2; i++) ae_free(expected[i]);
    }
}

/* Shapes that the kernels cannot run are refused. */
static void test_refused(void **state)
{
    static const struct {
        ae_state_layer layer;
        const char *says;
    } bad[] = {
        {{AE_STATE_DELTA, 96, 9, 2, 2, 16, 16, false, NULL}, "a convolution over 9 rows; 1 to 8 are possible"},
        {{AE_STATE_DELTA, 96, 0, 2, 2, 16, 16, false, NULL}, "a convolution over 0 rows"},
        {{AE_STATE_DELTA, 96, 4, 2, 2, 18, 16, false, NULL},
         "a recurrent state of 18 rows; multiples of 4 up to 256 are possible"},
        {{AE_STATE_MAMBA2, 96, 4, 2, 2, 260, 16, false, NULL}, "a recurrent state of 260 rows"},
        {{AE_STATE_MAMBA2, 96, 4, 3, 2, 16, 16, false, NULL}, "3 recurrent heads of 16 values cannot share 2 groups evenly"},
    };
    ae_backend *backend;
    (void)state;
    assert_int_equal(ae_backend_open(&backend, NULL, NULL, NULL), AERIE_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ae_state_store *store;
        aerie_error error = {0};
        const ae_state_shape shape = {1, &bad[i].layer, 1, 1, 1};
        assert_int_equal(backend->ops->state_create(backend, &shape, &store, &error), AERIE_ERROR_UNSUPPORTED);
        assert_non_null(strstr(error.text, bad[i].says));
        assert_null(store);
    }
    ae_backend_close(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_conv), cmocka_unit_test(test_delta), cmocka_unit_test(test_mamba2),
                                       cmocka_unit_test(test_mamba1), cmocka_unit_test(test_kda), cmocka_unit_test(test_wkv),
                                       cmocka_unit_test(test_gated_norm), cmocka_unit_test(test_absorb),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
