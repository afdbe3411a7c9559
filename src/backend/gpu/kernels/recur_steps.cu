/* recur_steps.cu - the recurrence: columns of S of a head, of all rows of a run. backend/recurrent.h states the arithmetic,
 * cpu/ref/recurrent.c defines it.
 *
 * Four lanes have one column of S, each a quarter of its rows in registers: columns are independent. What the columns of a head
 * share is computed before (recur_prepare) and recorded after all of them have absorbed the previous records (recur_records);
 * each column's own values are recorded here. */
#include "backend/arithmetic.h"
#include "backend/gpu/kernels/state.h"

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

/* Returns the column among those of all heads. */
AE_DEV size_t value_of(const ae_gpu_state_view *v, const column *c)
{
    return (size_t)c->head * v->value_dim + c->j;
}

/* Returns the sum of the quarters' sums: (0 + 2) + (1 + 3). */
AE_DEV float sum_quarters(float sum)
{
    return ae_fold<ae_add>(sum, 2 * AE_GPU_STATE_COLUMNS, AE_GPU_STATE_COLUMNS);
}

/* The vectors of a row or record in shared memory (AE_GPU_STATE_VECTORS): quarter p is at p * (n + 4), so that the lanes of a
 * column read different banks. */
enum { KEYS, QUERIES, ALPHA, WRITTEN, ERASED };

template <int n> AE_DEV void put_vector(float *room, uint32_t which, const float *from, uint32_t key_dim)
{
    float *to = room + which * AE_GPU_STATE_KEYS(n);
    for (uint32_t i = ae_thread(); i < key_dim; i += 32)
        AE_STORE_SHARED(float, to + i / (key_dim / 4) * (n + 4) + i % (key_dim / 4), from[i]);
}

/* Returns the lane's quarter of a vector. */
template <int n> AE_DEV const float *own(const float *room, const column *c, uint32_t which)
{
    return room + which * AE_GPU_STATE_KEYS(n) + c->p * (n + 4);
}

template <int n> AE_DEV float dot(const float *s, const column *c, const float *k)
{
    float sum = 0;
    AE_UNROLL
    for (uint32_t i = 0; i < n; i++)
        if (i < c->quarter) sum = ae_fma(s[i], AE_LOAD_SHARED(float, k + i), sum);
    return sum_quarters(sum);
}

/* s_i = fmaf(alpha, s_i, k_i * d) */
template <int n> AE_DEV void decay_add(float *s, const column *c, const float *k, float alpha, float d)
{
    AE_UNROLL
    for (uint32_t i = 0; i < n; i++)
        if (i < c->quarter) s[i] = ae_fma(alpha, s[i], AE_LOAD_SHARED(float, k + i) * d);
}

/* s_i = fmaf(k_i, d, alpha_i * s_i) */
template <int n> AE_DEV void keyed_add(float *s, const column *c, const float *k, const float *alpha, float d)
{
    AE_UNROLL
    for (uint32_t i = 0; i < n; i++)
        if (i < c->quarter) s[i] = ae_fma(AE_LOAD_SHARED(float, k + i), d, AE_LOAD_SHARED(float, alpha + i) * s[i]);
}

/* s_i = fmaf(k_i, v, fmaf(written_i, e, alpha_i * s_i)) */
template <int n> AE_DEV void wkv7_add(float *s, const column *c, const float *room, float v, float e)
{
    const float *k = own<n>(room, c, KEYS), *alpha = own<n>(room, c, ALPHA), *written = own<n>(room, c, WRITTEN);
    AE_UNROLL
    for (uint32_t i = 0; i < n; i++) {
        if (i >= c->quarter) break;
        const float t = ae_fma(AE_LOAD_SHARED(float, written + i), e, AE_LOAD_SHARED(float, alpha + i) * s[i]);
        s[i] = ae_fma(AE_LOAD_SHARED(float, k + i), v, t);
    }
}

/* alpha_i = ae_expf(delta * decay_i); s_i = fmaf(alpha_i, s_i, k_i * d) */
template <int n> AE_DEV void scan_add(float *s, const column *c, const float *k, const float *decay, float delta, float d)
{
    AE_UNROLL
    for (uint32_t i = 0; i < n; i++)
        if (i < c->quarter) s[i] = ae_fma(ae_expf(delta * decay[i]), s[i], AE_LOAD_SHARED(float, k + i) * d);
}

template <int n> AE_DEV void load_state(float *s, const column *c, const float *plane, uint32_t stride)
{
    AE_UNROLL
    for (uint32_t i = 0; i < n; i++) s[i] = c->used && i < c->quarter ? plane[(size_t)i * stride] : 0;
}

/* ---- Accepted records ---------------------------------------------------------------------------------- */

/* Ends without a barrier: what next writes the room, step(), begins with one. */
template <int n, int steps>
AE_DEV void absorb(const ae_gpu_recur_args *a, const column *c, float *s, const float *decay, float *room)
{
    const ae_gpu_state_view *v = &a->view;
    const uint32_t n_accepted = a->rows.runs[c->i_run].n_accepted;
    const size_t value = value_of(v, c), key = (size_t)c->head * v->key_dim;
    for (uint32_t i = 0; i < n_accepted; i++) {
        float *record = accepted_of(v, &a->rows, c->i_run, i);
        const float d = c->used ? record_d(v, record)[value] : 0;
        const float *k = own<n>(room, c, KEYS);
        ae_sync_warp();
        put_vector<n>(room, KEYS, record_k(v, record) + (size_t)c->group * v->key_dim, v->key_dim);
        if (steps == AE_GPU_STEPS_KEYED || steps == AE_GPU_STEPS_WKV7)
            put_vector<n>(room, ALPHA, record_alpha(v, record) + key, v->key_dim);
        if (steps == AE_GPU_STEPS_WKV7) put_vector<n>(room, WRITTEN, record_written(v, record) + key, v->key_dim);
        ae_sync_warp();
        if (steps == AE_GPU_STEPS_RECUR) decay_add<n>(s, c, k, record_alpha(v, record)[c->head], d);
        if (steps == AE_GPU_STEPS_KEYED) keyed_add<n>(s, c, k, own<n>(room, c, ALPHA), d);
        if (steps == AE_GPU_STEPS_WKV7) wkv7_add<n>(s, c, room, d, c->used ? record_e(v, record)[value] : 0);
        if (steps == AE_GPU_STEPS_SCAN) scan_add<n>(s, c, k, decay, c->used ? record_alpha(v, record)[c->j] : 0, d);
    }
}

/* ---- A row ---------------------------------------------------------------------------------------------- */

/* Values that a lane loads from a row: two numbers of the head or the column, its column's v, then its parts of the vectors. */
#define FETCHED(n, steps) (3 + (n) / 8 * AE_GPU_STATE_VECTORS(steps))

/* The vectors of a row. */
typedef struct vectors {
    const float *at[5];
} vectors;

template <int steps> AE_DEV vectors vectors_of(const ae_gpu_recur_args *a, const column *c, uint32_t row)
{
    const ae_gpu_state_view *v = &a->view;
    const channels in = channels_of(a, row);
    const size_t key = (size_t)c->group * v->key_dim, at = (size_t)row * v->n_alphas + (size_t)c->head * v->key_dim;
    vectors of;
    of.at[KEYS] = in.k + key;
    of.at[QUERIES] = in.q + key;
    of.at[ALPHA] = of.at[WRITTEN] = of.at[ERASED] = NULL;
    if (steps == AE_GPU_STEPS_KEYED || steps == AE_GPU_STEPS_WKV7) of.at[ALPHA] = a->alpha + at;
    if (steps == AE_GPU_STEPS_WKV7) of.at[WRITTEN] = a->beta + at, of.at[ERASED] = a->erased + at;
    return of;
}

template <int n, int steps> AE_DEV void fetch(const ae_gpu_recur_args *a, const column *c, uint32_t row, float *f)
{
    const ae_gpu_state_view *v = &a->view;
    const vectors of = vectors_of<steps>(a, c, row);
    const size_t at_head = (size_t)row * v->n_heads + c->head;
    f[0] = f[1] = 0;
    if (steps == AE_GPU_STEPS_RECUR) f[0] = a->alpha[at_head];
    if (steps == AE_GPU_STEPS_RECUR || steps == AE_GPU_STEPS_KEYED) f[1] = a->beta[at_head];
    if (steps == AE_GPU_STEPS_SCAN && c->used) {
        const float x = a->a[(size_t)row * a->ab_stride + c->j];
        f[0] = a->dt_bias ? x + a->dt_bias[c->j] : x;
    }
    f[2] = c->used ? channels_of(a, row).v[value_of(v, c)] : 0;
    AE_UNROLL
    for (uint32_t w = 0; w < AE_GPU_STATE_VECTORS(steps); w++) {
        AE_UNROLL
        for (uint32_t m = 0; m < n / 8; m++) {
            const uint32_t i = ae_thread() + 32 * m;
            f[3 + w * (n / 8) + m] = i < v->key_dim ? of.at[w][i] : 0;
        }
    }
}

/* The fetched vectors to shared memory. */
template <int n, int steps> AE_DEV void put_fetched(const column *c, uint32_t key_dim, const float *f, float *room)
{
    AE_UNROLL
    for (uint32_t m = 0; m < n / 8; m++) {
        const uint32_t i = ae_thread() + 32 * m, to = i / c->quarter * (n + 4) + i % c->quarter;
        if (i >= key_dim) break;
        AE_UNROLL
        for (uint32_t w = 0; w < AE_GPU_STATE_VECTORS(steps); w++)
            AE_STORE_SHARED(float, room + w * AE_GPU_STATE_KEYS(n) + to, f[3 + w * (n / 8) + m]);
    }
}

/* The results of a row's step besides the state: the output, and what the column records. */
typedef struct result {
    float y, d, more; /* more: e of WKV7, delta of MAMBA1 */
} result;

template <int n>
AE_DEV result step_recur(const ae_gpu_recur_args *a, const column *c, const float *f, float *s, const float *room)
{
    const bool delta = a->view.kind == AE_STATE_DELTA;
    const float alpha = f[0], beta = f[1], x = f[2], *k = own<n>(room, c, KEYS);
    result r;
    r.more = 0;
    r.d = x * beta;
    if (delta) {
        const float decayed = alpha * dot<n>(s, c, k);
        r.d = beta * (x - decayed);
    }
    decay_add<n>(s, c, k, alpha, r.d);
    r.y = dot<n>(s, c, own<n>(room, c, QUERIES));
    if (delta) r.y = r.y * (1.0f / sqrtf((float)a->view.key_dim));
    else if (a->skip) r.y = ae_fma(a->skip[c->head], x, r.y);
    return r;
}

/* KDA decays, reads and then adds; WKV6 reads first, or last where it has no bonus. */
template <int n>
AE_DEV result step_keyed(const ae_gpu_recur_args *a, const column *c, const float *f, float *s, const float *room)
{
    const float beta = f[1], x = f[2], *k = own<n>(room, c, KEYS), *q = own<n>(room, c, QUERIES);
    const float *alpha = own<n>(room, c, ALPHA), scale = 1.0f / sqrtf((float)a->view.key_dim);
    result r;
    r.more = 0;
    if (a->view.kind == AE_STATE_WKV6) {
        const float before = a->first ? dot<n>(s, c, q) : 0;
        r.d = x;
        keyed_add<n>(s, c, k, alpha, x);
        r.y = a->first ? ae_fma(beta, x, before) : dot<n>(s, c, q) * scale;
        return r;
    }
    AE_UNROLL
    for (uint32_t i = 0; i < n; i++)
        if (i < c->quarter) s[i] = AE_LOAD_SHARED(float, alpha + i) * s[i];
    r.d = beta * (x - dot<n>(s, c, k));
    AE_UNROLL
    for (uint32_t i = 0; i < n; i++)
        if (i < c->quarter) s[i] = ae_fma(AE_LOAD_SHARED(float, k + i), r.d, s[i]);
    r.y = dot<n>(s, c, q) * scale;
    return r;
}

template <int n> AE_DEV result step_wkv7(const column *c, const float *f, float *s, const float *room)
{
    result r;
    r.d = f[2];
    r.more = 0.0f - dot<n>(s, c, own<n>(room, c, ERASED));
    wkv7_add<n>(s, c, room, r.d, r.more);
    r.y = dot<n>(s, c, own<n>(room, c, QUERIES));
    return r;
}

template <int n>
AE_DEV result step_scan(const ae_gpu_recur_args *a, const column *c, const float *f, float *s, const float *decay,
                        const float *room)
{
    const float x = f[2];
    result r;
    r.more = ae_softplusf(f[0]);
    r.d = x * r.more;
    scan_add<n>(s, c, own<n>(room, c, KEYS), decay, r.more, r.d);
    r.y = dot<n>(s, c, own<n>(room, c, QUERIES));
    if (a->skip && c->used) r.y = ae_fma(a->skip[c->j], x, r.y);
    return r;
}

/* Whether rows are fetched while the row before is computed: lanes with large states have no registers for that. */
#define AHEAD(n) ((n) <= 32)
/* Whether a lane keeps the decays of its values in registers; with 32 of them the compiler for 12.0 has too few. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
#define KEEPS_DECAY(n) ((n) <= 16)
#else
#define KEEPS_DECAY(n) AHEAD(n)
#endif

/* Computes one row, whose loads are in f, and loads row `next` (-1: none) into f while the lanes compute (AHEAD). `record`:
 * where the row's own numbers are kept, or NULL. */
template <int n, int steps>
AE_DEV void step(const ae_gpu_recur_args *a, const column *c, uint32_t row, int32_t next, float *f, float *s,
                 const float *decay, float *room, float *record)
{
    const ae_gpu_state_view *v = &a->view;
    const size_t at = value_of(v, c);
    result r;
    if (!AHEAD(n)) fetch<n, steps>(a, c, row, f);
    const float now[3] = {f[0], f[1], f[2]};
    ae_sync_warp(); /* all lanes have read the vectors of the row or record before */
    put_fetched<n, steps>(c, v->key_dim, f, room);
    ae_sync_warp();
    if (AHEAD(n) && next >= 0) fetch<n, steps>(a, c, (uint32_t)next, f);
    if (steps == AE_GPU_STEPS_RECUR) r = step_recur<n>(a, c, now, s, room);
    else if (steps == AE_GPU_STEPS_KEYED) r = step_keyed<n>(a, c, now, s, room);
    else if (steps == AE_GPU_STEPS_WKV7) r = step_wkv7<n>(c, now, s, room);
    else r = step_scan<n>(a, c, now, s, decay, room);
    if (c->p || !c->used) return;
    a->y[(size_t)row * a->y_stride + at] = r.y;
    if (!record) return;
    record_d(v, record)[at] = r.d;
    if (steps == AE_GPU_STEPS_WKV7) record_e(v, record)[at] = r.more;
    if (steps == AE_GPU_STEPS_SCAN) record_alpha(v, record)[at] = r.more;
}

/* ---- All rows of a run -------------------------------------------------------------------------------------- */

/* The tentative rows of a run, parents before children. f has the loads of the first one; s is the plane's state. */
template <int n, int steps>
AE_DEV void walk(const ae_gpu_recur_args *a, const column *c, float *f, float *s, const float *decay, const float *plane,
                 float *room)
{
    const ae_state_run run = a->rows.runs[c->i_run];
    const ae_state_visit *visits = a->rows.visits + (size_t)c->i_run * a->rows.stride;
    /* [AE_STATE_BUFFERS][n][32], each lane its own */
    float *buffers = room + AE_GPU_STATE_VECTORS(steps) * AE_GPU_STATE_KEYS(n) + ae_thread();
    int32_t held = -1; /* the buffer whose state is in s; -1: the plane's */
    for (uint32_t t = 0; t < run.n_tentative; t++) {
        const ae_state_visit visit = visits[t];
        const uint32_t row = (uint32_t)visit.row;
        if (visit.from < 0 && held >= 0) load_state<n>(s, c, plane, a->view.value_dim);
        if (visit.from >= 0 && visit.from != held) {
            AE_UNROLL
            for (uint32_t i = 0; i < n; i++) s[i] = AE_LOAD_SHARED(float, buffers + (visit.from * n + i) * 32);
        }
        step<n, steps>(a, c, row, t + 1 < run.n_tentative ? visits[t + 1].row : -1, f, s, decay, room,
                       record_of(&a->view, &run, row - run.first - run.n_committed));
        AE_UNROLL
        for (uint32_t i = 0; i < n; i++) AE_STORE_SHARED(float, buffers + (visit.to * n + i) * 32, s[i]);
        held = visit.to;
    }
}

/* Columns of S of a head; n: the most rows of a quarter. */
template <int n, int steps> AE_DEV void run_steps(const ae_gpu_recur_args *a, float *room)
{
    const ae_gpu_state_view *v = &a->view;
    const column c = column_of(a);
    const ae_state_run run = a->rows.runs[c.i_run];
    const int32_t tree = run.n_tentative ? a->rows.visits[(size_t)c.i_run * a->rows.stride].row : -1;
    const int32_t first = run.n_committed ? (int32_t)run.first : tree;
    float *plane = v->plane + (uint64_t)run.seq * v->plane_floats + c.at;
    float s[n], f[FETCHED(n, steps)] = {0}, kept[steps == AE_GPU_STEPS_SCAN && KEEPS_DECAY(n) ? n : 1] = {0};
    const float *decay = kept; /* the lane's values: in registers where there are enough */
    load_state<n>(s, &c, plane, v->value_dim);
    if (steps == AE_GPU_STEPS_SCAN) {
        const float *own = a->decay + (c.used ? (size_t)c.j * v->key_dim + c.p * c.quarter : 0);
        if (KEEPS_DECAY(n)) load_state<n>(kept, &c, own, 1);
        else decay = own;
    }
    if (AHEAD(n) && first >= 0) fetch<n, steps>(a, &c, (uint32_t)first, f);
    absorb<n, steps>(a, &c, s, decay, room);
    for (uint32_t r = 0; r < run.n_committed; r++)
        step<n, steps>(a, &c, run.first + r, r + 1 < run.n_committed ? (int32_t)(run.first + r) + 1 : tree, f, s, decay, room,
                       NULL);
    if (run.n_accepted || run.n_committed) {
        AE_UNROLL
        for (uint32_t i = 0; i < n; i++)
            if (c.used && i < c.quarter) plane[(size_t)i * v->value_dim] = s[i];
    }
    walk<n, steps>(a, &c, f, s, decay, plane, room);
}

#define STEPS(name, n, steps) \
    AE_KERNEL(name##_##n, ae_gpu_recur_args, 32) \
    { \
        AE_SHARED(shared); \
        run_steps<n, steps>(&a, (float *)shared); \
    }
#define STEPS_OF(name, steps) STEPS(name, 16, steps) STEPS(name, 32, steps) STEPS(name, 64, steps)

STEPS_OF(recur_steps, AE_GPU_STEPS_RECUR)
STEPS_OF(keyed_steps, AE_GPU_STEPS_KEYED)
STEPS_OF(wkv7_steps, AE_GPU_STEPS_WKV7)
STEPS_OF(scan_steps, AE_GPU_STEPS_SCAN)
