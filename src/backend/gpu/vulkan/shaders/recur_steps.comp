#version 460
/* recur_steps.comp - the recurrence: columns of S of a head, of all rows of a run (recur_steps_16 .. 64). SIZE: the most values
 * of a column that a thread holds. backend/recurrent.h states the arithmetic.
 *
 * Four threads have a column, each a quarter of its rows; a work-group has eight columns. Keys and queries of a row are in
 * shared memory, the states that a walk over a tree comes back to are in memory of the thread. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "state.glsl"

layout(local_size_x = 32) in;

#define COLUMNS 8u
#define BUFFERS 8u
#define MAX_KEY 256u

shared float keys[MAX_KEY];
shared float queries[MAX_KEY];
shared float quarters[32];

RecurArgs a;
StateRun run;
uint head, group, j, part, quarter;
bool is_used; /* column j exists */
float s[SIZE];
float held[BUFFERS * SIZE];

/* The sum of the quarters' sums: (0 + 2) + (1 + 3). */
float sum_quarters(float sum)
{
    const uint t = THREAD;
    barrier();
    quarters[t] = sum;
    barrier();
    const float even = quarters[t % COLUMNS] + quarters[t % COLUMNS + 2 * COLUMNS];
    const float odd = quarters[t % COLUMNS + COLUMNS] + quarters[t % COLUMNS + 3 * COLUMNS];
    barrier();
    return even + odd;
}

/* s_i = fma(alpha, s_i, k_i * d) */
void absorb_row(float alpha, float d)
{
    for (uint i = 0; i < SIZE; i++)
        if (i < quarter) s[i] = ae_fma(alpha, s[i], keys[part * quarter + i] * d);
}

float dot_keys()
{
    float sum = 0.0;
    for (uint i = 0; i < SIZE; i++)
        if (i < quarter) sum = ae_fma(s[i], keys[part * quarter + i], sum);
    return sum_quarters(sum);
}

float dot_queries()
{
    float sum = 0.0;
    for (uint i = 0; i < SIZE; i++)
        if (i < quarter) sum = ae_fma(s[i], queries[part * quarter + i], sum);
    return sum_quarters(sum);
}

void load_state(uint64_t plane)
{
    for (uint i = 0; i < SIZE; i++)
        s[i] = is_used && i < quarter ? F32(plane + uint64_t(i) * a.view.value_dim * 4ul).v[0] : 0.0;
}

void absorb_records(uint i_run)
{
    for (uint i = 0; i < run.n_accepted; i++) {
        const uint64_t record = accepted_of(a.view, a.rows, i_run, i);
        const uint64_t k = record_k(a.view, record) + uint64_t(group) * a.view.key_dim * 4ul;
        const float d = is_used ? F32(record_d(a.view, record)).v[head * a.view.value_dim + j] : 0.0;
        barrier();
        for (uint n = THREAD; n < a.view.key_dim; n += 32) keys[n] = F32(k).v[n];
        barrier();
        absorb_row(F32(record_alpha(a.view, record)).v[head], d);
    }
}

/* One row. record: where the row's d is kept, or 0. */
void step_row(uint row, uint64_t record)
{
    const Channels c = channels_of(a, row);
    const uint64_t at_keys = uint64_t(group) * a.view.key_dim * 4ul;
    const uint at_head = row * a.view.n_heads + head, at = head * a.view.value_dim + j;
    const float alpha = F32(a.alpha).v[at_head], beta = F32(a.beta).v[at_head], x = is_used ? F32(c.v).v[at] : 0.0;
    barrier();
    for (uint n = THREAD; n < a.view.key_dim; n += 32) {
        keys[n] = F32(c.k + at_keys).v[n];
        queries[n] = F32(c.q + at_keys).v[n];
    }
    barrier();
    float d = x * beta;
    if (a.view.delta != 0) {
        const float decayed = alpha * dot_keys();
        d = beta * (x - decayed);
    }
    absorb_row(alpha, d);
    float y = dot_queries();
    if (a.view.delta != 0) y = y * ae_div(1.0, ae_sqrt(float(a.view.key_dim)));
    else if (a.skip != 0ul) y = ae_fma(F32(a.skip).v[head], x, y);
    if (part != 0 || !is_used) return;
    F32(a.y + uint64_t(row) * a.y_stride * 4ul).v[at] = y;
    if (record != 0ul) F32(record_d(a.view, record)).v[at] = d;
}

/* The tentative rows of a run, parents before children. s is the plane's state. */
void walk_tree(uint i_run, uint64_t plane)
{
    int newest = -1; /* the buffer whose state is in s; -1: the plane's */
    for (uint t = 0; t < run.n_tentative; t++) {
        const ivec3 visit = Visits(a.rows.visits).v[i_run * a.rows.stride + t];
        const uint row = uint(visit.x);
        if (visit.y < 0 && newest >= 0) load_state(plane);
        if (visit.y >= 0 && visit.y != newest)
            for (uint i = 0; i < SIZE; i++) s[i] = held[uint(visit.y) * SIZE + i];
        step_row(row, record_of(a.view, run, row - run.first - run.n_committed));
        for (uint i = 0; i < SIZE; i++) held[uint(visit.z) * SIZE + i] = s[i];
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
    const uint64_t at = uint64_t(a.view.n_taps - 1) * a.view.n_channels +
                        (uint64_t(head) * a.view.key_dim + part * quarter) * a.view.value_dim + j;
    const uint64_t plane = a.view.plane + (uint64_t(run.seq) * a.view.plane_floats + at) * 4ul;
    load_state(plane);
    absorb_records(i_run);
    for (uint r = 0; r < run.n_committed; r++) step_row(run.first + r, 0ul);
    if (is_used && (run.n_accepted != 0 || run.n_committed != 0))
        for (uint i = 0; i < SIZE; i++)
            if (i < quarter) F32(plane + uint64_t(i) * a.view.value_dim * 4ul).v[0] = s[i];
    walk_tree(i_run, plane);
}
