/* recurrent.cu - recurrent layers: the convolution, the recurrence and the norm after it. backend/recurrent.h states the
 * arithmetic, cpu/ref/recurrent.c defines it.
 *
 * A thread of the convolution has one channel of all rows of a sequence, and four lanes of the recurrence have one column of S:
 * neither ever needs another's values. What the columns of a head share is made before (recur_prepare) and recorded after all
 * of them have absorbed the records that stood there (recur_records). */
#include "backend/arithmetic.h"
#include "backend/gpu/kernels/args_state.h"
#include "backend/gpu/kernels/kernel.h"
#include "backend/gpu/kernels/sums.h"
#include "base/math/double.h"

/* Accepted record i of a run. */
AE_DEV float *accepted_of(const ae_gpu_state_view *v, const ae_gpu_state_rows *rows, uint32_t i_run, uint32_t i)
{
    const uint32_t record = rows->accepted[(size_t)i_run * rows->stride + i];
    return v->record + ((uint64_t)rows->runs[i_run].seq * v->n_records + record) * v->record_floats;
}

AE_DEV float *record_of(const ae_gpu_state_view *v, const ae_state_run *run, uint32_t i)
{
    return v->record + ((uint64_t)run->seq * v->n_records + i) * v->record_floats;
}

/* The run of a row; n_runs: none. */
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
    const size_t at = (size_t)row * a->x_stride + channel;
    return a->x2 ? a->x[at] * a->x2[at] : a->x[at];
}

/* What came before a run's first row; `back` 1: the newest. */
AE_DEV float row_before(const ae_gpu_conv_args *a, uint32_t i_run, uint32_t back, uint32_t channel)
{
    const ae_gpu_state_view *v = &a->view;
    const ae_state_run *run = &a->rows.runs[i_run];
    if (back <= run->n_accepted) return accepted_of(v, &a->rows, i_run, run->n_accepted - back)[channel];
    const uint32_t at = v->n_taps - 1 - (back - run->n_accepted);
    return v->plane[(uint64_t)run->seq * v->plane_floats + (size_t)at * v->n_channels + channel];
}

AE_DEV void conv_row(const ae_gpu_conv_args *a, uint32_t i_run, uint32_t row, uint32_t channel)
{
    const uint32_t n_taps = a->view.n_taps;
    const float *weight = a->weight + (size_t)channel * n_taps;
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
        if (j < n_taps) c = ae_fma(weight[n_taps - 1 - j], x[j], c);
    if (a->bias) c += a->bias[channel];
    if (a->silu) c = ae_siluf(c);
    if (a->gate) c *= a->gate[(size_t)row * a->x_stride + channel];
    a->y[(size_t)row * a->y_stride + channel] = c;
}

/* The plane's rows become the newest of its own, the accepted and the committed ones; tentative rows become records. */
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
        float *x = a->x + (size_t)r * a->x_stride + channel;
        *x = conv_x(a, r, channel);
    }
}

/* A few rows: a thread runs one channel of all rows of a run. */
AE_KERNEL(conv_runs, ae_gpu_conv_args, 128)
{
    const uint32_t channel = ae_block_x() * AE_GPU_STATE_BLOCK + ae_thread(), i_run = ae_block_y();
    if (channel >= a.view.n_channels) return;
    const ae_state_run *run = &a.rows.runs[i_run];
    const uint32_t end = run->first + run->n_committed + run->n_tentative;
    for (uint32_t r = run->first; r < end; r++) conv_row(&a, i_run, r, channel);
    conv_move_on(&a, i_run, channel);
}

/* Many rows: first all rows at once, then what they leave behind. */
AE_KERNEL(conv_rows, ae_gpu_conv_args, 128)
{
    const uint32_t channel = ae_block_y() * AE_GPU_STATE_BLOCK + ae_thread(), i_run = run_of(&a.rows, ae_block_x());
    if (channel < a.view.n_channels && i_run < a.rows.n_runs) conv_row(&a, i_run, ae_block_x(), channel);
}

AE_KERNEL(conv_move, ae_gpu_conv_args, 128)
{
    const uint32_t channel = ae_block_x() * AE_GPU_STATE_BLOCK + ae_thread();
    if (channel < a.view.n_channels) conv_move_on(&a, ae_block_y(), channel);
}

/* ---- The recurrence -------------------------------------------------------------------------------------- */

/* Where k, q and v of a row begin. */
typedef struct channels {
    float *k, *q, *v;
} channels;

AE_DEV channels channels_of(const ae_gpu_recur_args *a, uint32_t row)
{
    const size_t keys = (size_t)a->view.n_groups * a->view.key_dim, values = (size_t)a->view.n_heads * a->view.value_dim;
    float *c = a->c + (size_t)row * a->c_stride;
    channels in;
    in.k = c + (a->view.delta ? keys : values);
    in.q = a->view.delta ? c : c + values + keys;
    in.v = a->view.delta ? c + 2 * keys : c;
    return in;
}

/* The parts of a record after its channels. */
AE_DEV float *record_k(const ae_gpu_state_view *v, float *record) { return record + v->n_channels; }
AE_DEV float *record_d(const ae_gpu_state_view *v, float *record)
{
    return record_k(v, record) + (size_t)v->n_groups * v->key_dim;
}
AE_DEV float *record_alpha(const ae_gpu_state_view *v, float *record)
{
    return record_d(v, record) + (size_t)v->n_heads * v->value_dim;
}

AE_DEV void prepare_head(const ae_gpu_recur_args *a, uint32_t row, uint32_t h)
{
    const uint32_t group = a->ab_group, at_head = group ? h / group * 2 * group + h % group : h;
    const size_t at = (size_t)row * a->ab_stride + at_head, to = (size_t)row * a->view.n_heads + h;
    const float x = a->dt_bias ? a->a[at] + a->dt_bias[h] : a->a[at];
    const float delta = x > 20.0f ? x : (float)ae_log_of(1.0 + ae_exp_of((double)x));
    a->alpha[to] = (float)ae_exp_of((double)a->decay[h] * (double)delta);
    a->beta[to] = a->view.delta ? 1.0f / (1.0f + ae_expf(-a->b[at])) : delta;
}

AE_DEV void l2norm(float *x, uint32_t n, uint32_t lane)
{
    const float inv = 1.0f / sqrtf(ae_warp_sum(x, n, 0, true, lane) + 1e-6f);
    for (uint32_t k = lane; k < n; k += 32) x[k] *= inv;
}

/* A warp norms one group of keys or queries, or handles 32 heads. */
AE_KERNEL(recur_prepare, ae_gpu_recur_args, 128)
{
    const uint32_t lane = ae_thread() % 32, row = ae_block_x(), n_norms = a.view.delta ? 2 * a.view.n_groups : 0;
    const uint32_t i = ae_block_y() * 4 + ae_thread() / 32;
    if (i < n_norms) {
        const channels c = channels_of(&a, row);
        l2norm((i % 2 ? c.q : c.k) + (size_t)(i / 2) * a.view.key_dim, a.view.key_dim, lane);
    } else {
        const uint32_t h = (i - n_norms) * 32 + lane;
        if (h < a.view.n_heads) prepare_head(&a, row, h);
    }
}

/* Column j of a head, quarter p of its rows: what one of four lanes works on. The lanes of a column are 8 apart. */
typedef struct column {
    uint32_t i_run, head, group, j, p, quarter;
    bool used;  /* column j exists */
    size_t at;  /* of the quarter's first element in a plane of the layer */
} column;

AE_DEV column column_of(const ae_gpu_recur_args *a)
{
    const ae_gpu_state_view *v = &a->view;
    const uint32_t lane = ae_thread();
    column c;
    c.i_run = ae_block_z();
    c.head = ae_block_y();
    c.group = v->tiled ? c.head % v->n_groups : c.head / (v->n_heads / v->n_groups);
    c.j = ae_block_x() * AE_GPU_STATE_COLUMNS + lane % AE_GPU_STATE_COLUMNS;
    c.p = lane / AE_GPU_STATE_COLUMNS;
    c.quarter = v->key_dim / 4;
    c.used = c.j < v->value_dim;
    c.at = (size_t)(v->n_taps - 1) * v->n_channels + ((size_t)c.head * v->key_dim + c.p * c.quarter) * v->value_dim + c.j;
    return c;
}

/* The sum of the quarters' sums: (0 + 2) + (1 + 3). */
AE_DEV float sum_quarters(float sum)
{
    sum = sum + ae_shfl_xor(sum, 2 * AE_GPU_STATE_COLUMNS);
    return sum + ae_shfl_xor(sum, AE_GPU_STATE_COLUMNS);
}

/* Keys or queries in shared memory: quarter p is at p * (n + 4), so that the lanes of a column read different banks. */
template <int n> AE_DEV void put_keys(float *to, const float *from, uint32_t key_dim)
{
    for (uint32_t i = ae_thread(); i < key_dim; i += 32)
        AE_STORE_SHARED(float, to + i / (key_dim / 4) * (n + 4) + i % (key_dim / 4), from[i]);
}

/* s_i = fmaf(alpha, s_i, k_i * d) */
template <int n> AE_DEV void absorb_row(float *s, const column *c, const float *k, float alpha, float d)
{
    AE_UNROLL
    for (uint32_t i = 0; i < n; i++)
        if (i < c->quarter) s[i] = ae_fma(alpha, s[i], AE_LOAD_SHARED(float, k + i) * d);
}

template <int n> AE_DEV float dot(const float *s, const column *c, const float *k)
{
    float sum = 0;
    AE_UNROLL
    for (uint32_t i = 0; i < n; i++)
        if (i < c->quarter) sum = ae_fma(s[i], AE_LOAD_SHARED(float, k + i), sum);
    return sum_quarters(sum);
}

template <int n> AE_DEV void load_state(float *s, const column *c, const float *plane, uint32_t stride)
{
    AE_UNROLL
    for (uint32_t i = 0; i < n; i++) s[i] = c->used && i < c->quarter ? plane[(size_t)i * stride] : 0;
}

template <int n> AE_DEV void absorb(const ae_gpu_recur_args *a, const column *c, float *s, float *keys)
{
    const ae_gpu_state_view *v = &a->view;
    const uint32_t n_accepted = a->rows.runs[c->i_run].n_accepted;
    for (uint32_t i = 0; i < n_accepted; i++) {
        float *record = accepted_of(v, &a->rows, c->i_run, i);
        const float d = c->used ? record_d(v, record)[(size_t)c->head * v->value_dim + c->j] : 0;
        ae_sync_warp();
        put_keys<n>(keys, record_k(v, record) + (size_t)c->group * v->key_dim, v->key_dim);
        ae_sync_warp();
        absorb_row<n>(s, c, keys + c->p * (n + 4), record_alpha(v, record)[c->head], d);
    }
    ae_sync_warp();
}

/* What a lane fetches of a row: alpha, beta, its column's v, then its parts of k and q. */
#define FETCHED(n) (3 + (n) / 4)

template <int n> AE_DEV void fetch(const ae_gpu_recur_args *a, const column *c, uint32_t row, float *f)
{
    const ae_gpu_state_view *v = &a->view;
    const channels in = channels_of(a, row);
    const size_t at_head = (size_t)row * v->n_heads + c->head, at_keys = (size_t)c->group * v->key_dim;
    f[0] = a->alpha[at_head];
    f[1] = a->beta[at_head];
    f[2] = c->used ? in.v[(size_t)c->head * v->value_dim + c->j] : 0;
    AE_UNROLL
    for (uint32_t m = 0; m < n / 8; m++) {
        const uint32_t i = ae_thread() + 32 * m;
        f[3 + m] = i < v->key_dim ? in.k[at_keys + i] : 0;
        f[3 + n / 8 + m] = i < v->key_dim ? in.q[at_keys + i] : 0;
    }
}

/* One row, of which f was fetched; then f becomes that of row `next` (-1: none), while the lanes compute. `record`: where the
 * row's d is kept, or NULL. */
template <int n>
AE_DEV void step(const ae_gpu_recur_args *a, const column *c, uint32_t row, int32_t next, float *f, float *s, float *keys,
                 float *record)
{
    const ae_gpu_state_view *v = &a->view;
    const size_t at = (size_t)c->head * v->value_dim + c->j;
    const float alpha = f[0], beta = f[1], x = f[2];
    float *queries = keys + AE_GPU_STATE_KEYS(n);
    const float *k = keys + c->p * (n + 4), *q = queries + c->p * (n + 4);
    ae_sync_warp();
    AE_UNROLL
    for (uint32_t m = 0; m < n / 8; m++) {
        const uint32_t i = ae_thread() + 32 * m, to = i / c->quarter * (n + 4) + i % c->quarter;
        if (i >= v->key_dim) break;
        AE_STORE_SHARED(float, keys + to, f[3 + m]);
        AE_STORE_SHARED(float, queries + to, f[3 + n / 8 + m]);
    }
    ae_sync_warp();
    if (next >= 0) fetch<n>(a, c, (uint32_t)next, f);
    float d = x * beta;
    if (v->delta) {
        const float decayed = alpha * dot<n>(s, c, k);
        d = beta * (x - decayed);
    }
    absorb_row<n>(s, c, k, alpha, d);
    float y = dot<n>(s, c, q);
    if (v->delta) y = y * (1.0f / sqrtf((float)v->key_dim));
    else if (a->skip) y = ae_fma(a->skip[c->head], x, y);
    if (c->p || !c->used) return;
    a->y[(size_t)row * a->y_stride + at] = y;
    if (record) record_d(v, record)[at] = d;
}

/* The tentative rows of a run, parents before children. f was fetched of the first one; s is the plane's state. */
template <int n>
AE_DEV void walk(const ae_gpu_recur_args *a, const column *c, float *f, float *s, const float *plane, float *keys)
{
    const ae_state_run run = a->rows.runs[c->i_run];
    const ae_state_visit *visits = a->rows.visits + (size_t)c->i_run * a->rows.stride;
    float *buffers = keys + 2 * AE_GPU_STATE_KEYS(n) + ae_thread(); /* [AE_STATE_BUFFERS][n][32], each lane its own */
    int32_t held = -1; /* the buffer whose state is in s; -1: the plane's */
    for (uint32_t t = 0; t < run.n_tentative; t++) {
        const ae_state_visit visit = visits[t];
        const uint32_t row = (uint32_t)visit.row;
        if (visit.from < 0 && held >= 0) load_state<n>(s, c, plane, a->view.value_dim);
        if (visit.from >= 0 && visit.from != held) {
            AE_UNROLL
            for (uint32_t i = 0; i < n; i++) s[i] = AE_LOAD_SHARED(float, buffers + (visit.from * n + i) * 32);
        }
        step<n>(a, c, row, t + 1 < run.n_tentative ? visits[t + 1].row : -1, f, s, keys,
                record_of(&a->view, &run, row - run.first - run.n_committed));
        AE_UNROLL
        for (uint32_t i = 0; i < n; i++) AE_STORE_SHARED(float, buffers + (visit.to * n + i) * 32, s[i]);
        held = visit.to;
    }
}

/* Columns of S of a head, of all rows of a run; n: the most rows of a quarter. */
template <int n> AE_DEV void recur_steps(const ae_gpu_recur_args *a, float *keys)
{
    const ae_gpu_state_view *v = &a->view;
    const column c = column_of(a);
    const ae_state_run run = a->rows.runs[c.i_run];
    const int32_t tree = run.n_tentative ? a->rows.visits[(size_t)c.i_run * a->rows.stride].row : -1;
    const int32_t first = run.n_committed ? (int32_t)run.first : tree;
    float *plane = v->plane + (uint64_t)run.seq * v->plane_floats + c.at;
    float s[n], f[FETCHED(n)];
    load_state<n>(s, &c, plane, v->value_dim);
    if (first >= 0) fetch<n>(a, &c, (uint32_t)first, f);
    absorb<n>(a, &c, s, keys);
    for (uint32_t r = 0; r < run.n_committed; r++)
        step<n>(a, &c, run.first + r, r + 1 < run.n_committed ? (int32_t)(run.first + r) + 1 : tree, f, s, keys, NULL);
    if (run.n_accepted || run.n_committed) {
        AE_UNROLL
        for (uint32_t i = 0; i < n; i++)
            if (c.used && i < c.quarter) plane[(size_t)i * v->value_dim] = s[i];
    }
    walk<n>(a, &c, f, s, plane, keys);
}

AE_KERNEL(recur_steps_16, ae_gpu_recur_args, 32)
{
    AE_SHARED(shared);
    recur_steps<16>(&a, (float *)shared);
}

AE_KERNEL(recur_steps_32, ae_gpu_recur_args, 32)
{
    AE_SHARED(shared);
    recur_steps<32>(&a, (float *)shared);
}

AE_KERNEL(recur_steps_64, ae_gpu_recur_args, 32)
{
    AE_SHARED(shared);
    recur_steps<64>(&a, (float *)shared);
}

/* k and alpha of the tentative rows. */
AE_KERNEL(recur_records, ae_gpu_recur_args, 128)
{
    const uint32_t n_keys = a.view.n_groups * a.view.key_dim, i = ae_block_y() * 128 + ae_thread(), row = ae_block_x();
    const uint32_t i_run = run_of(&a.rows, row);
    if (i_run == a.rows.n_runs || i >= n_keys + a.view.n_heads) return;
    const ae_state_run run = a.rows.runs[i_run];
    if (row < run.first + run.n_committed) return;
    float *record = record_of(&a.view, &run, row - run.first - run.n_committed);
    if (i < n_keys) record_k(&a.view, record)[i] = channels_of(&a, row).k[i];
    else record_alpha(&a.view, record)[i - n_keys] = a.alpha[(size_t)row * a.view.n_heads + i - n_keys];
}

/* ---- The norm after it ---------------------------------------------------------------------------------------- */

/* What is done to elements first, first + step .. before the norm, and then with it. */
AE_DEV void gate_before(const ae_gpu_gated_norm_args *a, float *x, const float *z, uint32_t first, uint32_t step)
{
    for (uint32_t k = first; a->gate_first && k < a->dim; k += step) x[k] = ae_siluf(z[k]) * x[k];
}

AE_DEV void norm_gate(const ae_gpu_gated_norm_args *a, float *x, const float *z, const float *weight, float inv, uint32_t first,
                      uint32_t step)
{
    for (uint32_t k = first; k < a->dim; k += step) {
        const float y = weight ? x[k] * inv * weight[k] : x[k];
        x[k] = a->gate_first ? y : ae_siluf(z[k]) * y;
    }
}

AE_KERNEL(gated_norm_groups, ae_gpu_gated_norm_args, 128)
{
    const uint32_t lane = ae_thread() % 32, i = ae_block_x() * 4 + ae_thread() / 32, r = i / a.n_groups, g = i % a.n_groups;
    if (r >= a.n_rows) return;
    float *x = a.x + (size_t)r * a.x_stride + (size_t)g * a.dim;
    const float *z = a.z + (size_t)r * a.z_stride + (size_t)g * a.dim;
    const float *weight = a.weight && a.by_group ? a.weight + (size_t)g * a.dim : a.weight;
    gate_before(&a, x, z, lane, 32);
    const float inv = weight ? 1.0f / sqrtf(ae_warp_sum(x, a.dim, 0, true, lane) / (float)a.dim + a.eps) : 1;
    norm_gate(&a, x, z, weight, inv, lane, 32);
}

AE_KERNEL(gated_norm_rows, ae_gpu_gated_norm_args, 256)
{
    AE_SHARED(shared);
    const uint32_t t = ae_thread(), r = ae_block_x() / a.n_groups, g = ae_block_x() % a.n_groups;
    float *x = a.x + (size_t)r * a.x_stride + (size_t)g * a.dim;
    const float *z = a.z + (size_t)r * a.z_stride + (size_t)g * a.dim;
    const float *weight = a.weight && a.by_group ? a.weight + (size_t)g * a.dim : a.weight;
    gate_before(&a, x, z, t, AE_SUM_THREADS);
    const float sum = weight ? ae_block_sum(x, a.dim, 0, true, (float *)shared) : 0;
    norm_gate(&a, x, z, weight, 1.0f / sqrtf(sum / (float)a.dim + a.eps), t, AE_SUM_THREADS);
}
