#version 460
/* recur_steps.comp - the recurrence: columns of S of a head, of all rows of a run. KIND is ae_gpu_steps (kernels/args_state.h):
 * 0 recur_steps, 1 keyed_steps, 2 wkv7_steps, 3 scan_steps; SIZE, 16 to 64, the most values of a column that a thread holds.
 * backend/recurrent.h states the arithmetic.
 *
 * Four threads have a column, each a quarter of its rows in registers; a work-group has eight columns. What a row's columns
 * share is in shared memory. The states to which a walk over a tree returns are in private memory of the thread: they take 1 to
 * 4 KiB per lane, more than shared memory has, and chains do not read them. All rows use one loop, since a second copy of the
 * step costs registers. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "state.glsl"

layout(local_size_x = 32) in;

#define COLUMNS 8u
#define BUFFERS 8u
#define MAX_KEY 256u

/* The vectors of a row or record in shared memory. */
#define KEYS 0u
#define QUERIES 1u
#define ALPHA 2u
#define WRITTEN 3u
#define ERASED 4u

shared float vectors[5 * MAX_KEY];
shared float quarters[32];
shared uint shared_quarter; /* quarter once more. Where it is read after each barrier, a compiler compares it with each value's
                             * number where the value is used; what it knows for all of the shader it compares once, and then
                             * keeps more results than it has registers (RADV spilled up to 3,800) */

RecurArgs a;
StateRun run;
uint head, group, j, part, quarter;
bool is_used; /* column j exists */
float s[SIZE];
float decay[KIND == 3 ? SIZE : 1]; /* of the column's values */

/* Returns the sum of the quarters' sums: (0 + 2) + (1 + 3). */
float sum_quarters(float sum)
{
    const uint t = THREAD;
    barrier();
    quarters[t] = sum;
    barrier();
    const float even = quarters[t % COLUMNS] + quarters[t % COLUMNS + 2 * COLUMNS];
    const float odd = quarters[t % COLUMNS + COLUMNS] + quarters[t % COLUMNS + 3 * COLUMNS];
    return even + odd;
}

void put_vector(uint which, uint64_t from)
{
    for (uint n = THREAD; n < a.view.key_dim; n += 32) vectors[which * MAX_KEY + n] = F32(from).v[n];
}

/* Returns value i of the thread's quarter of a vector. */
float own(uint which, uint i)
{
    return vectors[which * MAX_KEY + part * quarter + i];
}

float dot_state(uint which)
{
    float sum = 0.0;
    const uint n = shared_quarter;
    [[unroll]] for (uint i = 0; i < SIZE; i++)
        if (i < n) sum = ae_fma(s[i], own(which, i), sum);
    return sum_quarters(sum);
}

/* Applies a record again; `more` is alpha of a head, e of WKV7, delta of a column of MAMBA1. */
void absorb_row(float d, float more)
{
    const uint n = shared_quarter;
    [[unroll]] for (uint i = 0; i < SIZE; i++) {
        if (i >= n) continue;
        if (KIND == 0) s[i] = ae_fma(more, s[i], own(KEYS, i) * d);
        if (KIND == 1) s[i] = ae_fma(own(KEYS, i), d, own(ALPHA, i) * s[i]);
        if (KIND == 2) s[i] = ae_fma(own(KEYS, i), d, ae_fma(own(WRITTEN, i), more, own(ALPHA, i) * s[i]));
        if (KIND == 3) s[i] = ae_fma(ae_expf(more * decay[i]), s[i], own(KEYS, i) * d);
    }
}

void load_state(uint64_t plane)
{
    const uint n = is_used ? shared_quarter : 0;
    [[unroll]] for (uint i = 0; i < SIZE; i++)
        s[i] = i < n ? F32(plane + uint64_t(i) * a.view.value_dim * 4ul).v[0] : 0.0;
}

void absorb_records(uint i_run)
{
    const uint value = head * a.view.value_dim + j;
    const uint64_t key = uint64_t(head) * a.view.key_dim * 4ul;
    for (uint i = 0; i < run.n_accepted; i++) {
        const uint64_t record = accepted_of(a.view, a.rows, i_run, i), alpha = record_alpha(a.view, record);
        const float d = is_used ? F32(record_d(a.view, record)).v[value] : 0.0;
        float more = 0.0;
        if (KIND == 0) more = F32(alpha).v[head];
        if (KIND == 2 && is_used) more = F32(record_e(a.view, record)).v[value];
        if (KIND == 3 && is_used) more = F32(alpha).v[j];
        barrier();
        put_vector(KEYS, record_k(a.view, record) + uint64_t(group) * a.view.key_dim * 4ul);
        if (KIND == 1 || KIND == 2) put_vector(ALPHA, alpha + key);
        if (KIND == 2) put_vector(WRITTEN, record_written(a.view, record) + key);
        barrier();
        absorb_row(d, more);
    }
}

/* The vectors of a row to shared memory. */
void put_row(uint row, Channels c)
{
    const uint64_t at_keys = uint64_t(group) * a.view.key_dim * 4ul;
    const uint64_t at = (uint64_t(row) * a.view.n_alphas + head * a.view.key_dim) * 4ul;
    barrier();
    put_vector(KEYS, c.k + at_keys);
    put_vector(QUERIES, c.q + at_keys);
    if (KIND == 1 || KIND == 2) put_vector(ALPHA, a.alpha + at);
    if (KIND == 2) {
        put_vector(WRITTEN, a.beta + at);
        put_vector(ERASED, a.erased + at);
    }
    barrier();
}

/* Results of a row: the output, and what the column records. */
struct Result {
    float y, d, more;
};

/* DELTA, MAMBA2 */
Result step_recur(uint row, float x)
{
    const uint at_head = row * a.view.n_heads + head;
    const float alpha = F32(a.alpha).v[at_head], beta = F32(a.beta).v[at_head];
    Result r = Result(0.0, x * beta, 0.0);
    if (a.view.kind == DELTA) {
        const float decayed = alpha * dot_state(KEYS);
        r.d = beta * (x - decayed);
    }
    absorb_row(r.d, alpha);
    r.y = dot_state(QUERIES);
    if (a.view.kind == DELTA) r.y = r.y * ae_div(1.0, ae_sqrt(float(a.view.key_dim)));
    else if (a.skip != 0ul) r.y = ae_fma(F32(a.skip).v[head], x, r.y);
    return r;
}

/* KDA decays, reads and then adds; WKV6 reads first, or last where it has no bonus. */
Result step_keyed(uint row, float x)
{
    const float beta = F32(a.beta).v[row * a.view.n_heads + head];
    const float scale = ae_div(1.0, ae_sqrt(float(a.view.key_dim)));
    const bool first = a.first != 0ul;
    Result r = Result(0.0, x, 0.0);
    if (a.view.kind == WKV6) {
        const float before = first ? dot_state(QUERIES) : 0.0;
        absorb_row(x, 0.0);
        r.y = first ? ae_fma(beta, x, before) : dot_state(QUERIES) * scale;
        return r;
    }
    const uint n = shared_quarter;
    [[unroll]] for (uint i = 0; i < SIZE; i++)
        if (i < n) s[i] = own(ALPHA, i) * s[i];
    r.d = beta * (x - dot_state(KEYS));
    const uint m = shared_quarter;
    [[unroll]] for (uint i = 0; i < SIZE; i++)
        if (i < m) s[i] = ae_fma(own(KEYS, i), r.d, s[i]);
    r.y = dot_state(QUERIES) * scale;
    return r;
}

Result step_wkv7(float x)
{
    Result r = Result(0.0, x, 0.0 - dot_state(ERASED));
    absorb_row(x, r.more);
    r.y = dot_state(QUERIES);
    return r;
}

/* MAMBA1 */
Result step_scan(uint row, float x)
{
    float t = is_used ? F32(a.a + uint64_t(row) * a.ab_stride * 4ul).v[j] : 0.0;
    if (is_used && a.dt_bias != 0ul) t = t + F32(a.dt_bias).v[j];
    const float delta = ae_softplusf(t);
    Result r = Result(0.0, x * delta, delta);
    absorb_row(r.d, delta);
    r.y = dot_state(QUERIES);
    if (is_used && a.skip != 0ul) r.y = ae_fma(F32(a.skip).v[j], x, r.y);
    return r;
}

/* One row. record: where the row's own numbers are kept, or 0. */
void step_row(uint row, uint64_t record)
{
    const Channels c = channels_of(a, row);
    const uint at = head * a.view.value_dim + j;
    const float x = is_used ? F32(c.v).v[at] : 0.0;
    put_row(row, c);
    Result r;
    if (KIND == 0) r = step_recur(row, x);
    else if (KIND == 1) r = step_keyed(row, x);
    else if (KIND == 2) r = step_wkv7(x);
    else r = step_scan(row, x);
    if (part != 0 || !is_used) return;
    F32(a.y + uint64_t(row) * a.y_stride * 4ul).v[at] = r.y;
    if (record == 0ul) return;
    F32(record_d(a.view, record)).v[at] = r.d;
    if (KIND == 2) F32(record_e(a.view, record)).v[at] = r.more;
    if (KIND == 3) F32(record_alpha(a.view, record)).v[at] = r.more;
}

void write_plane(uint64_t plane)
{
    if (!is_used || (run.n_accepted == 0 && run.n_committed == 0)) return;
    const uint n = shared_quarter;
    [[unroll]] for (uint i = 0; i < SIZE; i++)
        if (i < n) F32(plane + uint64_t(i) * a.view.value_dim * 4ul).v[0] = s[i];
}

/* The committed rows, then the tentative ones, parents before children. s is the plane's state. */
void run_rows(uint i_run, uint64_t plane)
{
    float held[BUFFERS * SIZE];
    int newest = -1; /* the buffer whose state is in s; -1: the plane's */
    for (uint t = 0; t <= run.n_committed + run.n_tentative; t++) {
        if (t == run.n_committed) write_plane(plane);
        if (t == run.n_committed + run.n_tentative) break;
        ivec3 visit = ivec3(run.first + t, -1, -1);
        if (t >= run.n_committed) visit = Visits(a.rows.visits).v[i_run * a.rows.stride + t - run.n_committed];
        if (visit.y < 0 && newest >= 0) load_state(plane);
        if (visit.y >= 0 && visit.y != newest)
            for (uint i = 0; i < SIZE; i++) s[i] = held[uint(visit.y) * SIZE + i];
        const uint row = uint(visit.x);
        step_row(row, visit.z < 0 ? 0ul : record_of(a.view, run, row - run.first - run.n_committed));
        for (uint i = 0; visit.z >= 0 && i < SIZE; i++) held[uint(visit.z) * SIZE + i] = s[i];
        newest = visit.z;
    }
}

void main()
{
    a = RecurArgs(push.args);
    const uint i_run = BLOCK_Z;
    run = Runs(a.rows.runs).v[i_run];
    head = BLOCK_Y;
    group = a.view.tiled != 0 ? head % a.view.n_groups : head / (a.view.n_heads / a.view.n_groups);
    j = BLOCK_X * COLUMNS + THREAD % COLUMNS;
    part = THREAD / COLUMNS;
    quarter = a.view.key_dim / 4;
    is_used = j < a.view.value_dim;
    if (THREAD == 0) shared_quarter = quarter;
    barrier();
    const uint64_t at = uint64_t(a.view.n_taps - 1) * a.view.n_channels +
                        (uint64_t(head) * a.view.key_dim + part * quarter) * a.view.value_dim + j;
    const uint64_t plane = a.view.plane + (uint64_t(run.seq) * a.view.plane_floats + at) * 4ul;
    const uint n = is_used ? shared_quarter : 0;
    [[unroll]] for (uint i = 0; KIND == 3 && i < SIZE; i++)
        decay[i] = i < n ? F32(a.decay).v[j * a.view.key_dim + part * quarter + i] : 0.0;
    barrier();
    load_state(plane);
    absorb_records(i_run);
    run_rows(i_run, plane);
}
