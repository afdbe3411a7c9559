/* state.glsl - arguments of the shaders for recurrent layers (kernels/args_state.h), and where state and records lie. */
#define MAX_TAPS 8

/* ae_state_kind */
#define DELTA 1u
#define MAMBA2 2u
#define KDA 3u
#define WKV6 4u
#define WKV7 5u
#define MAMBA1 6u

struct StateView { /* ae_gpu_state_view */
    uint64_t plane, record, plane_floats, record_floats;
    uint n_records, n_channels, n_taps, n_heads, n_groups, key_dim, value_dim, kind, tiled, n_alphas;
};

struct StateRows { /* ae_gpu_state_rows */
    uint64_t parent, runs, visits, accepted;
    uint n_rows, n_runs, stride, unused;
};

struct StateRun { /* ae_state_run */
    int seq;
    uint first, n_committed, n_tentative, n_accepted;
};

layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Runs { StateRun v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Visits { ivec3 v[]; }; /* row, from, to */

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer RecurArgs { /* ae_gpu_recur_args */
    StateView view;
    StateRows rows;
    uint64_t c, a, b, decay, dt_bias, skip, alpha, beta, y, k, v, first, k_k, k_a, bonus, keys, erased;
    uint c_stride, ab_stride, ab_group, y_stride, keys_stride;
    float bound;
};

/* Record i of a run's sequence. */
uint64_t record_of(StateView v, StateRun run, uint i)
{
    return v.record + (uint64_t(run.seq) * v.n_records + i) * v.record_floats * 4ul;
}

/* Accepted record i of a run. */
uint64_t accepted_of(StateView v, StateRows rows, uint i_run, uint i)
{
    return record_of(v, Runs(rows.runs).v[i_run], uint(U8(rows.accepted).v[i_run * rows.stride + i]));
}

/* Returns the parts of a record after its channels. */
uint64_t record_k(StateView v, uint64_t record) { return record + uint64_t(v.n_channels) * 4ul; }
uint64_t record_d(StateView v, uint64_t record) { return record_k(v, record) + uint64_t(v.n_groups) * v.key_dim * 4ul; }
uint64_t record_alpha(StateView v, uint64_t record) { return record_d(v, record) + uint64_t(v.n_heads) * v.value_dim * 4ul; }
uint64_t record_written(StateView v, uint64_t record) { return record_alpha(v, record) + uint64_t(v.n_alphas) * 4ul; }
uint64_t record_e(StateView v, uint64_t record) { return record_written(v, record) + uint64_t(v.n_alphas) * 4ul; }

/* Returns the run of a row; n_runs: none. */
uint run_of(StateRows rows, uint row)
{
    for (uint i = 0; i < rows.n_runs; i++) {
        const StateRun run = Runs(rows.runs).v[i];
        if (row >= run.first && row - run.first < run.n_committed + run.n_tentative) return i;
    }
    return rows.n_runs;
}

/* The offsets of k, q and v in a row. */
struct Channels {
    uint64_t k, q, v;
};

Channels channels_of(RecurArgs a, uint row)
{
    const uint64_t keys = uint64_t(a.view.n_groups) * a.view.key_dim * 4ul;
    const uint64_t values = uint64_t(a.view.n_heads) * a.view.value_dim * 4ul;
    const uint64_t at = uint64_t(row) * a.c_stride * 4ul, c = a.c + at;
    Channels its;
    if (a.view.kind == WKV6 || a.view.kind == WKV7) {
        its.k = a.k + at;
        its.q = c;
        its.v = a.v + at;
    } else if (a.view.kind == MAMBA1) {
        its.k = a.keys + uint64_t(row) * a.keys_stride * 4ul;
        its.q = its.k + keys;
        its.v = c;
    } else if (a.view.kind == MAMBA2) {
        its.k = c + values;
        its.q = c + values + keys;
        its.v = c;
    } else {
        its.k = c + keys;
        its.q = c;
        its.v = c + 2ul * keys;
    }
    return its;
}
