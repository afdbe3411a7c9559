/* recurrent.cu - recurrent layers: the convolution, what the columns of a head share before and after the recurrence
 * (recur_steps.cu), and the norm after it. backend/recurrent.h states the arithmetic, cpu/ref/recurrent.c defines it.
 *
 * A thread of the convolution has one channel of all rows of a sequence: channels are independent. */
#include "backend/arithmetic.h"
#include "backend/gpu/kernels/state.h"
#include "backend/gpu/kernels/sums.h"
#include "base/math/double.h"

/* Returns the run of a row; n_runs: none. */
AE_DEV uint32_t run_of(const ae_gpu_state_rows *rows, uint32_t row)
{
    for (uint32_t i = 0; i < rows->n_runs; i++) {
        const ae_state_run *run = &rows->runs[i];
        if (row >= run->first && row - run->first < run->n_committed + run->n_tentative) return i;
    }
    return rows->n_runs;
}

/* ---- Convolution ------------------------------------------------------------------------------------- */

AE_DEV float conv_x(const ae_gpu_conv_args *a, uint32_t row, uint32_t channel)
{
    const size_t at = (size_t)row * a->x_stride + (channel - a->first);
    return a->x2 ? a->x[at] * a->x2[at] : a->x[at];
}

/* Returns the row `back` places before a run's first one; 1: the newest. */
AE_DEV float row_before(const ae_gpu_conv_args *a, uint32_t i_run, uint32_t back, uint32_t channel)
{
    const ae_gpu_state_view *v = &a->view;
    const ae_state_run *run = &a->rows.runs[i_run];
    if (back <= run->n_accepted) return accepted_of(v, &a->rows, i_run, run->n_accepted - back)[channel];
    const uint32_t at = v->n_taps - 1 - (back - run->n_accepted);
    return v->plane[(uint64_t)run->seq * v->plane_floats + (size_t)at * v->n_channels + channel];
}

/* Returns the weights of a channel, or NULL: 1 and -1. */
AE_DEV const float *taps_of(const ae_gpu_conv_args *a, uint32_t channel)
{
    const float *weight = a->weight;
    if (a->weight_2 || a->weight_3) {
        const uint32_t third = a->view.n_channels / 3;
        if (a->weight_3 && channel >= 2 * third) weight = a->weight_3, channel -= 2 * third;
        else if (a->weight_2 && channel >= third) weight = a->weight_2, channel -= third;
    }
    return weight ? weight + (size_t)channel * a->view.n_taps : NULL;
}

AE_DEV void conv_row(const ae_gpu_conv_args *a, uint32_t i_run, uint32_t row, uint32_t channel)
{
    const uint32_t n_taps = a->view.n_taps;
    const float *taps = taps_of(a, channel);
    float x[AE_STATE_MAX_TAPS], c = 0;
    int32_t at = (int32_t)row;
    uint32_t back = 1;
    AE_UNROLL
    for (uint32_t j = 0; j < AE_STATE_MAX_TAPS; j++) { /* the newest row first */
        if (j >= n_taps) break;
        x[j] = at >= 0 ? conv_x(a, (uint32_t)at, channel) : row_before(a, i_run, back++, channel);
        if (at >= 0) at = a->rows.parent[at];
    }
    AE_UNROLL
    for (uint32_t j = AE_STATE_MAX_TAPS; j-- > 0;)
        if (j < n_taps) c = ae_fma(taps ? taps[n_taps - 1 - j] : j ? 1.0f : -1.0f, x[j], c);
    if (a->bias) c += a->bias[channel];
    if (a->silu) c = ae_siluf(c);
    if (a->gate) c *= a->gate[(size_t)row * a->x_stride + (channel - a->first)];
    a->y[(size_t)row * a->y_stride + (channel - a->first)] = c;
}

/* The plane then holds the newest rows among its own, the accepted and the committed ones; tentative rows become records. */
AE_DEV void conv_move_on(const ae_gpu_conv_args *a, uint32_t i_run, uint32_t channel)
{
    const ae_gpu_state_view *v = &a->view;
    const ae_state_run run = a->rows.runs[i_run];
    const uint32_t n_kept = v->n_taps - 1, end = run.first + run.n_committed;
    float kept[AE_STATE_MAX_TAPS];
    AE_UNROLL
    for (uint32_t t = 0; t < AE_STATE_MAX_TAPS - 1; t++) {
        if (t >= n_kept) break;
        const uint32_t back = n_kept - t; /* from the last committed row */
        kept[t] = back <= run.n_committed ? conv_x(a, end - back, channel)
                                          : row_before(a, i_run, back - run.n_committed, channel);
    }
    float *plane = v->plane + (uint64_t)run.seq * v->plane_floats + channel;
    AE_UNROLL
    for (uint32_t t = 0; t < AE_STATE_MAX_TAPS - 1; t++) {
        if (t >= n_kept) break;
        plane[(size_t)t * v->n_channels] = kept[t];
    }
    for (uint32_t i = 0; i < run.n_tentative; i++) record_of(v, &run, i)[channel] = conv_x(a, end + i, channel);
    for (uint32_t r = run.first; a->x2 && r < end + run.n_tentative; r++) {
        float *x = a->x + (size_t)r * a->x_stride + (channel - a->first);
        *x = conv_x(a, r, channel);
    }
}

/* Returns the channel of a thread of block i; at least first + n: it has none. */
AE_DEV uint32_t channel_of(const ae_gpu_conv_args *a, uint32_t i)
{
    return a->first + i * AE_GPU_STATE_BLOCK + ae_thread();
}

/* A few rows: a thread runs one channel of all rows of a run. */
AE_KERNEL(conv_runs, ae_gpu_conv_args, 128)
{
    const uint32_t channel = channel_of(&a, ae_block_x()), i_run = ae_block_y();
    if (channel >= a.first + a.n) return;
    const ae_state_run *run = &a.rows.runs[i_run];
    const uint32_t end = run->first + run->n_committed + run->n_tentative;
    for (uint32_t r = run->first; r < end; r++) conv_row(&a, i_run, r, channel);
    conv_move_on(&a, i_run, channel);
}

/* Many rows: first all rows at once, then the state after them. */
AE_KERNEL(conv_rows, ae_gpu_conv_args, 128)
{
    const uint32_t channel = channel_of(&a, ae_block_y()), i_run = run_of(&a.rows, ae_block_x());
    if (channel < a.first + a.n && i_run < a.rows.n_runs) conv_row(&a, i_run, ae_block_x(), channel);
}

AE_KERNEL(conv_move, ae_gpu_conv_args, 128)
{
    const uint32_t channel = channel_of(&a, ae_block_x());
    if (channel < a.first + a.n) conv_move_on(&a, ae_block_y(), channel);
}

/* ---- What the columns of a head share ---------------------------------------------------------------- */

AE_DEV void prepare_head(const ae_gpu_recur_args *a, uint32_t row, uint32_t h)
{
    const uint32_t group = a->ab_group, at_head = group ? h / group * 2 * group + h % group : h;
    const size_t at = (size_t)row * a->ab_stride + at_head, to = (size_t)row * a->view.n_heads + h;
    const float x = a->dt_bias ? a->a[at] + a->dt_bias[h] : a->a[at];
    const float delta = x > 20.0f ? x : (float)ae_log_of(1.0 + ae_exp_of((double)x));
    a->alpha[to] = (float)ae_exp_of((double)a->decay[h] * (double)delta);
    a->beta[to] = a->view.kind == AE_STATE_DELTA ? 1.0f / (1.0f + ae_expf(-a->b[at])) : delta;
}

AE_DEV float sigmoid_of(float x)
{
    return 1.0f / (1.0f + ae_expf(-x));
}

/* Each lane reads and writes its own elements alone, as below. */
AE_DEV void l2norm(float *x, uint32_t n, float eps, uint32_t lane)
{
    const float inv = 1.0f / sqrtf(ae_warp_sum(x, n, 0, true, lane) + eps);
    for (uint32_t k = lane; k < n; k += 32) x[k] *= inv;
}

/* The decays of a head of KDA, and beta. */
AE_DEV void prepare_keyed(const ae_gpu_recur_args *a, uint32_t row, uint32_t h, uint32_t lane)
{
    const uint32_t n = a->view.key_dim;
    const float *x = a->a + (size_t)row * a->ab_stride + (size_t)h * n, decay = a->decay[h];
    float *alpha = a->alpha + (size_t)row * a->view.n_alphas + (size_t)h * n;
    for (uint32_t i = lane; i < n; i += 32) {
        const float f = a->dt_bias ? x[i] + a->dt_bias[(size_t)h * n + i] : x[i];
        const float g = a->bound != 0.0f ? a->bound / (1.0f + ae_expf(-(fabsf(decay) * f))) : decay * ae_softplusf(f);
        alpha[i] = ae_expf(g);
    }
    if (!lane) a->beta[(size_t)row * a->view.n_heads + h] = sigmoid_of(a->b[(size_t)row * a->ab_stride + h]);
}

/* Returns the sum of (k * r) * u over a head's keys. */
AE_DEV float bonus_of(const float *k, const float *r, const float *u, uint32_t n, uint32_t lane)
{
    float low = 0, high = 0;
    for (uint32_t i = lane; i < n; i += 64) {
        low = ae_fma(k[i] * r[i], u[i], low);
        if (i + 32 < n) high = ae_fma(k[i + 32] * r[i + 32], u[i + 32], high);
    }
    return ae_warp_sum64(low, high);
}

/* The decays of a head of WKV, its keys and its bonus; with WKV7 what is erased and written too. */
AE_DEV void prepare_wkv(const ae_gpu_recur_args *a, uint32_t row, uint32_t h, uint32_t lane)
{
    const ae_gpu_state_view *v = &a->view;
    const bool seven = v->kind == AE_STATE_WKV7;
    const uint32_t n = v->key_dim;
    const size_t key = (size_t)h * n, at = (size_t)row * v->n_alphas + key, ab = (size_t)row * a->ab_stride + key;
    const channels c = channels_of(a, row);
    float *k = c.k + key, *erased = a->erased + at, *written = a->beta + at;
    for (uint32_t i = lane; i < n; i += 32) {
        const float x = a->a[ab + i];
        const float alpha = ae_expf(seven ? AE_WKV_BOUND / (1.0f + ae_expf(-x)) : -ae_expf(x));
        a->alpha[at + i] = alpha;
        if (!seven && !a->first) k[i] -= k[i] * alpha;
        if (!seven) continue;
        const float rate = sigmoid_of(a->b[ab + i]);
        erased[i] = k[i] * a->k_k[key + i];
        written[i] = rate;
        k[i] = ae_fma(k[i] * a->k_a[key + i], rate - 1.0f, k[i]);
    }
    if (seven) {
        l2norm(erased, n, 1e-24f, lane);
        for (uint32_t i = lane; i < n; i += 32) written[i] *= erased[i];
    }
    if (!a->first) return;
    const float bonus = bonus_of(k, c.q + key, a->first + key, n, lane);
    if (!lane) (seven ? a->bonus : a->beta)[(size_t)row * v->n_heads + h] = bonus;
}

/* A warp norms one group of keys or queries, or handles 32 heads; of KDA and WKV one head. */
AE_KERNEL(recur_prepare, ae_gpu_recur_args, 128)
{
    const uint32_t lane = ae_thread() % 32, row = ae_block_x(), kind = a.view.kind;
    const uint32_t n_norms = kind == AE_STATE_DELTA || kind == AE_STATE_KDA ? 2 * a.view.n_groups : 0;
    const uint32_t i = ae_block_y() * 4 + ae_thread() / 32;
    if (i < n_norms) {
        const channels c = channels_of(&a, row);
        l2norm((i % 2 ? c.q : c.k) + (size_t)(i / 2) * a.view.key_dim, a.view.key_dim, 1e-6f, lane);
    } else if (kind == AE_STATE_KDA) {
        if (i - n_norms < a.view.n_heads) prepare_keyed(&a, row, i - n_norms, lane);
    } else if (is_wkv(&a.view)) {
        if (i < a.view.n_heads) prepare_wkv(&a, row, i, lane);
    } else {
        const uint32_t h = (i - n_norms) * 32 + lane;
        if (h < a.view.n_heads) prepare_head(&a, row, h);
    }
}

/* Records k of the tentative rows, their decays, and what WKV7 writes. With MAMBA1 each column records its own delta. */
AE_KERNEL(recur_records, ae_gpu_recur_args, 128)
{
    const uint32_t n_keys = a.view.n_groups * a.view.key_dim, n = a.view.kind == AE_STATE_MAMBA1 ? 0 : a.view.n_alphas;
    const uint32_t row = ae_block_x(), i_run = run_of(&a.rows, row);
    uint32_t i = ae_block_y() * 128 + ae_thread();
    if (i_run == a.rows.n_runs || i >= n_keys + (a.view.kind == AE_STATE_WKV7 ? 2 : 1) * n) return;
    const ae_state_run run = a.rows.runs[i_run];
    if (row < run.first + run.n_committed) return;
    float *record = record_of(&a.view, &run, row - run.first - run.n_committed);
    if (i < n_keys) {
        record_k(&a.view, record)[i] = channels_of(&a, row).k[i];
        return;
    }
    i -= n_keys;
    if (i < n) record_alpha(&a.view, record)[i] = a.alpha[(size_t)row * n + i];
    else record_written(&a.view, record)[i - n] = a.beta[(size_t)row * n + i - n];
}

/* ---- The norm after it ---------------------------------------------------------------------------------------- */

/* A group of a row. */
typedef struct group {
    float *x;
    const float *z, *weight, *bias, *v; /* as in the arguments, or NULL */
    float bonus;
} group;

AE_DEV group group_of(const ae_gpu_gated_norm_args *a, uint32_t r, uint32_t i)
{
    const size_t at = (size_t)i * a->dim, own = a->by_group ? at : 0;
    group g;
    g.x = a->x + (size_t)r * a->x_stride + at;
    g.z = a->z ? a->z + (size_t)r * a->z_stride + at : NULL;
    g.weight = a->weight ? a->weight + own : NULL;
    g.bias = a->bias ? a->bias + own : NULL;
    g.v = a->bonus ? a->v + (size_t)r * a->x_stride + at : NULL;
    g.bonus = a->bonus ? a->bonus[(size_t)r * a->n_groups + i] : 0;
    return g;
}

AE_DEV float gated(const ae_gpu_gated_norm_args *a, float x, float z)
{
    if (a->gate == AE_GPU_GATE_ITSELF) return x * z;
    return (a->gate == AE_GPU_GATE_SIGMOID ? sigmoid_of(z) : ae_siluf(z)) * x;
}

/* Handles elements first, first + step .. before the norm, and then norms them. */
AE_DEV void gate_before(const ae_gpu_gated_norm_args *a, const group *g, uint32_t first, uint32_t step)
{
    for (uint32_t k = first; a->gate_first && k < a->dim; k += step) g->x[k] = gated(a, g->x[k], g->z[k]);
}

AE_DEV void norm_gate(const ae_gpu_gated_norm_args *a, const group *g, float mean, float inv, uint32_t first, uint32_t step)
{
    for (uint32_t k = first; k < a->dim; k += step) {
        float y = g->weight ? (g->x[k] - mean) * inv * g->weight[k] : g->x[k]; /* a mean of 0 changes no bit */
        if (g->bias) y = y + g->bias[k];
        if (g->v) y = ae_fma(g->bonus, g->v[k], y);
        g->x[k] = a->gate_first || !g->z ? y : gated(a, y, g->z[k]);
    }
}

AE_KERNEL(gated_norm_groups, ae_gpu_gated_norm_args, 128)
{
    const uint32_t lane = ae_thread() % 32, i = ae_block_x() * 4 + ae_thread() / 32, r = i / a.n_groups;
    if (r >= a.n_rows) return;
    const group g = group_of(&a, r, i % a.n_groups);
    float mean = 0, inv = 1;
    gate_before(&a, &g, lane, 32);
    if (g.weight && a.layer) mean = ae_warp_sum(g.x, a.dim, 0, false, lane) / (float)a.dim;
    if (g.weight) inv = 1.0f / sqrtf(ae_warp_sum(g.x, a.dim, mean, true, lane) / (float)a.dim + a.eps);
    norm_gate(&a, &g, mean, inv, lane, 32);
}

AE_KERNEL(gated_norm_rows, ae_gpu_gated_norm_args, 256)
{
    AE_SHARED(shared);
    const uint32_t t = ae_thread();
    const group g = group_of(&a, ae_block_x() / a.n_groups, ae_block_x() % a.n_groups);
    float mean = 0, inv = 1;
    gate_before(&a, &g, t, AE_SUM_THREADS);
    if (g.weight && a.layer) mean = ae_block_sum(g.x, a.dim, 0, false, (float *)shared) / (float)a.dim;
    if (g.weight) inv = 1.0f / sqrtf(ae_block_sum(g.x, a.dim, mean, true, (float *)shared) / (float)a.dim + a.eps);
    norm_gate(&a, &g, mean, inv, t, AE_SUM_THREADS);
}
