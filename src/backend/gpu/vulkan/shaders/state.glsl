/* state.glsl - arguments of the shaders for recurrent layers (kernels/args_state.h), and where state and records lie. */
#define MAX_TAPS 8

struct StateView { /* ae_gpu_state_view */
    uint64_t plane, record, plane_floats, record_floats;
    uint n_records, n_channels, n_taps, n_heads, n_groups, key_dim, value_dim, delta, tiled, unused;
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
    uint64_t c, a, b, decay, dt_bias, skip, alpha, beta, y;
    uint c_stride, ab_stride, ab_group, y_stride;
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

/* The parts of a record after its channels. */
uint64_t record_k(StateView v, uint64_t record) { return record + uint64_t(v.n_channels) * 4ul; }
uint64_t record_d(StateView v, uint64_t record) { return record_k(v, record) + uint64_t(v.n_groups) * v.key_dim * 4ul; }
uint64_t record_alpha(StateView v, uint64_t record) { return record_d(v, record) + uint64_t(v.n_heads) * v.value_dim * 4ul; }

/* The run of a row; n_runs: none. */
uint run_of(StateRows rows, uint row)
{
    for (uint i = 0; i < rows.n_runs; i++) {
        const StateRun run = Runs(rows.runs).v[i];
        if (row >= run.first && row - run.first < run.n_committed + run.n_tentative) return i;
    }
    return rows.n_runs;
}

/* Where k, q and v of a row begin. */
struct Channels {
    uint64_t k, q, v;
};

Channels channels_of(RecurArgs a, uint row)
{
    const uint64_t keys = uint64_t(a.view.n_groups) * a.view.key_dim * 4ul;
    const uint64_t values = uint64_t(a.view.n_heads) * a.view.value_dim * 4ul;
    const uint64_t c = a.c + uint64_t(row) * a.c_stride * 4ul;
    Channels its;
    its.k = c + (a.view.delta != 0 ? keys : values);
    its.q = a.view.delta != 0 ? c : c + values + keys;
    its.v = a.view.delta != 0 ? c + 2ul * keys : c;
    return its;
}
