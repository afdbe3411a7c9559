#version 460
/* recurrent.comp - recurrent layers: the convolution, what the heads share, records, the norm. KIND: 0 conv_runs, 1 conv_rows,
 * 2 conv_move, 3 recur_prepare, 4 recur_records, 5 gated_norm_groups, 6 gated_norm_rows. backend/recurrent.h states the
 * arithmetic, cpu/ref/recurrent.c defines it. The recurrence itself is in recur_steps.comp. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "state.glsl"

layout(local_size_x = 128) in;

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer ConvArgs { /* ae_gpu_conv_args */
    StateView view;
    StateRows rows;
    uint64_t x, x2, weight, weight_2, weight_3, bias, gate, y;
    uint x_stride, y_stride, silu, first, n;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer NormArgs { /* ae_gpu_gated_norm_args */
    uint64_t x, z, weight, bias, bonus, v;
    uint n_rows, n_groups, dim, x_stride, z_stride, by_group, gate_first, layer, gate;
    float eps;
};

shared float parts[64];

/* ---- Convolution ------------------------------------------------------------------------------------ */

float conv_x(ConvArgs a, uint row, uint channel)
{
    const uint64_t at = (uint64_t(row) * a.x_stride + (channel - a.first)) * 4ul;
    const float x = F32(a.x + at).v[0];
    return a.x2 != 0ul ? x * F32(a.x2 + at).v[0] : x;
}

/* Returns the row `back` places before a run's first one; 1: the newest. */
float row_before(ConvArgs a, uint i_run, uint back, uint channel)
{
    const StateRun run = Runs(a.rows.runs).v[i_run];
    if (back <= run.n_accepted) return F32(accepted_of(a.view, a.rows, i_run, run.n_accepted - back)).v[channel];
    const uint at = a.view.n_taps - 1 - (back - run.n_accepted);
    return F32(a.view.plane + (uint64_t(run.seq) * a.view.plane_floats + at * a.view.n_channels + channel) * 4ul).v[0];
}

/* Returns the weight of a channel for the row `back` rows before its own. */
float tap_of(ConvArgs a, uint channel, uint back)
{
    const uint n_taps = a.view.n_taps, third = a.view.n_channels / 3u;
    uint64_t weight = a.weight;
    if (weight == 0ul) return back != 0 ? 1.0 : -1.0;
    if (a.weight_3 != 0ul && channel >= 2u * third) {
        weight = a.weight_3;
        channel -= 2u * third;
    } else if (a.weight_2 != 0ul && channel >= third) {
        weight = a.weight_2;
        channel -= third;
    }
    return F32(weight + (uint64_t(channel) * n_taps + n_taps - 1 - back) * 4ul).v[0];
}

void conv_row(ConvArgs a, uint i_run, uint row, uint channel)
{
    const uint n_taps = a.view.n_taps;
    float x[MAX_TAPS], c = 0.0;
    int at = int(row);
    uint back = 1;
    for (uint j = 0; j < n_taps; j++) { /* the newest row first */
        if (at >= 0) {
            x[j] = conv_x(a, uint(at), channel);
            at = I32(a.rows.parent).v[at];
        } else x[j] = row_before(a, i_run, back++, channel);
    }
    for (uint j = n_taps; j-- > 0;) c = ae_fma(tap_of(a, channel, j), x[j], c);
    if (a.bias != 0ul) c = c + F32(a.bias).v[channel];
    if (a.silu != 0) c = ae_siluf(c);
    if (a.gate != 0ul) c = c * F32(a.gate + (uint64_t(row) * a.x_stride + (channel - a.first)) * 4ul).v[0];
    F32(a.y + (uint64_t(row) * a.y_stride + (channel - a.first)) * 4ul).v[0] = c;
}

/* The plane then holds the newest rows among its own, the accepted and the committed ones; tentative rows become records. */
void conv_move_on(ConvArgs a, uint i_run, uint channel)
{
    const StateRun run = Runs(a.rows.runs).v[i_run];
    const uint n_kept = a.view.n_taps - 1, end = run.first + run.n_committed;
    float kept[MAX_TAPS];
    for (uint t = 0; t < n_kept; t++) {
        const uint back = n_kept - t; /* from the last committed row */
        kept[t] = back <= run.n_committed ? conv_x(a, end - back, channel)
                                          : row_before(a, i_run, back - run.n_committed, channel);
    }
    F32 plane = F32(a.view.plane + (uint64_t(run.seq) * a.view.plane_floats + channel) * 4ul);
    for (uint t = 0; t < n_kept; t++) plane.v[t * a.view.n_channels] = kept[t];
    for (uint i = 0; i < run.n_tentative; i++) F32(record_of(a.view, run, i)).v[channel] = conv_x(a, end + i, channel);
    for (uint r = run.first; a.x2 != 0ul && r < end + run.n_tentative; r++)
        F32(a.x + (uint64_t(r) * a.x_stride + (channel - a.first)) * 4ul).v[0] = conv_x(a, r, channel);
}

/* A few rows: a thread runs one channel of all rows of a run. */
void conv_runs(ConvArgs a)
{
    const uint channel = a.first + BLOCK_X * 128 + THREAD, i_run = BLOCK_Y;
    if (channel >= a.first + a.n) return;
    const StateRun run = Runs(a.rows.runs).v[i_run];
    const uint end = run.first + run.n_committed + run.n_tentative;
    for (uint r = run.first; r < end; r++) conv_row(a, i_run, r, channel);
    conv_move_on(a, i_run, channel);
}

/* Many rows: first all rows at once, then the state after them. */
void conv_rows(ConvArgs a)
{
    const uint channel = a.first + BLOCK_Y * 128 + THREAD, i_run = run_of(a.rows, BLOCK_X);
    if (channel < a.first + a.n && i_run < a.rows.n_runs) conv_row(a, i_run, BLOCK_X, channel);
}

void conv_move(ConvArgs a)
{
    const uint channel = a.first + BLOCK_X * 128 + THREAD;
    if (channel < a.first + a.n) conv_move_on(a, BLOCK_Y, channel);
}

/* ---- exp and log of doubles: base/math/double.h ----------------------------------------------------- */

/* a / b to nearest even, for b in [1.7, 2.5] and |a| in {0} or [2^-54, 0.5]; by integers, since Vulkan promises less. */
double divide_doubles(double a, double b)
{
    const uvec2 ua = unpackDouble2x32(a), ub = unpackDouble2x32(b);
    if (a == 0.0LF) return a;
    uint64_t ma = packUint2x32(uvec2(ua.x, ua.y & 0xfffffu | 0x100000u));
    const uint64_t mb = packUint2x32(uvec2(ub.x, ub.y & 0xfffffu | 0x100000u));
    int e = int(ua.y >> 20 & 0x7ffu) - int(ub.y >> 20 & 0x7ffu);
    if (ma < mb) {
        ma <<= 1;
        e--;
    }
    uint64_t q = 0ul;
    for (int i = 0; i < 55; i++) { /* 53 digits, and two to round by */
        q <<= 1;
        if (ma >= mb) {
            ma -= mb;
            q |= 1ul;
        }
        ma <<= 1;
    }
    const uint rest = uint(q & 3ul) * 2u + (ma != 0ul ? 1u : 0u);
    q >>= 2;
    if (rest > 4u || (rest == 4u && (q & 1ul) != 0ul)) q++;
    const uvec2 bits = unpackUint2x32(q + (uint64_t(e + 1022) << 52)); /* the leading 1 of q adds one to the exponent */
    return packDouble2x32(uvec2(bits.x, bits.y | ua.y & 0x80000000u));
}

double log_of(double x)
{
    const uvec2 u = unpackDouble2x32(x);
    int e = int(u.y >> 20) - 1022;
    double m = packDouble2x32(uvec2(u.x, u.y & 0x000fffffu | 0x3fe00000u));
    if (m < 0.70710678118654752440LF) {
        m = m + m;
        e--;
    }
    const double s = divide_doubles(m - 1.0LF, m + 1.0LF), s2 = s * s;
    const double inverse[12] = double[12](1.0LF / 23.0LF, 1.0LF / 21.0LF, 1.0LF / 19.0LF, 1.0LF / 17.0LF, 1.0LF / 15.0LF,
                                          1.0LF / 13.0LF, 1.0LF / 11.0LF, 1.0LF / 9.0LF, 1.0LF / 7.0LF, 1.0LF / 5.0LF,
                                          1.0LF / 3.0LF, 1.0LF);
    double sum = 0.0LF;
    for (int i = 0; i < 12; i++) sum = sum * s2 + inverse[i];
    return double(e) * 0.693147180559945309417LF + 2.0LF * s * sum;
}

double exp_of(double x)
{
    const double magic = 6755399441055744.0LF;
    x = x > -700.0LF ? x : -700.0LF;
    x = x < 700.0LF ? x : 700.0LF;
    const double t = x * 1.44269504088896340736LF + magic, n = t - magic;
    const double q = (x - n * 0.6931471803691238LF) - n * 1.9082149292705877e-10LF;
    const double inverse[13] = double[13](
        1.0LF / 479001600.0LF, 1.0LF / 39916800.0LF, 1.0LF / 3628800.0LF, 1.0LF / 362880.0LF, 1.0LF / 40320.0LF,
        1.0LF / 5040.0LF, 1.0LF / 720.0LF, 1.0LF / 120.0LF, 1.0LF / 24.0LF, 1.0LF / 6.0LF, 1.0LF / 2.0LF, 1.0LF, 1.0LF);
    double sum = 1.0LF / 6227020800.0LF;
    for (int i = 0; i < 13; i++) sum = sum * q + inverse[i];
    return sum * packDouble2x32(uvec2(0u, uint(int(n) + 1023) << 20));
}

/* ---- What the columns of a head share --------------------------------------------------------------- */

void prepare_head(RecurArgs a, uint row, uint h)
{
    const uint group = a.ab_group, at_head = group != 0 ? h / group * 2 * group + h % group : h;
    const uint64_t at = (uint64_t(row) * a.ab_stride + at_head) * 4ul, to = (uint64_t(row) * a.view.n_heads + h) * 4ul;
    float x = F32(a.a + at).v[0];
    if (a.dt_bias != 0ul) x = x + F32(a.dt_bias).v[h];
    const float delta = x > 20.0 ? x : float(log_of(1.0LF + exp_of(double(x))));
    F32(a.alpha + to).v[0] = float(exp_of(double(F32(a.decay).v[h]) * double(delta)));
    F32(a.beta + to).v[0] = a.view.kind == DELTA ? ae_div(1.0, 1.0 + ae_expf(-F32(a.b + at).v[0])) : delta;
}

/* ae_sum64 of the parts, by all threads; all get it. */
float sum_parts()
{
    const uint t = THREAD;
    for (uint h = 32; h >= 1; h /= 2) {
        barrier();
        if (t < h) parts[t] = parts[t] + parts[t + h];
    }
    barrier();
    return parts[0];
}

/* Returns the sum over x [n], or of the squares of x - mean; a mean of 0 changes no bit. */
float sum_of(uint64_t x, uint n, float mean, bool squares)
{
    const uint t = THREAD;
    float sum = 0.0;
    barrier();
    if (t < 64) {
        for (uint k = t; k < n; k += 64) {
            const float d = F32(x).v[k] - mean;
            sum = squares ? ae_fma(d, d, sum) : sum + d;
        }
        parts[t] = sum;
    }
    return sum_parts();
}

void l2norm(uint64_t x, uint n, float eps)
{
    const float inv = ae_div(1.0, ae_sqrt(sum_of(x, n, 0.0, true) + eps));
    for (uint k = THREAD; k < n; k += 128) F32(x).v[k] = F32(x).v[k] * inv;
}

float sigmoid_of(float x)
{
    return ae_div(1.0, 1.0 + ae_expf(-x));
}

/* The decays of a head of KDA, and beta. */
void prepare_keyed(RecurArgs a, uint row, uint h)
{
    const uint n = a.view.key_dim;
    const uint64_t x = a.a + (uint64_t(row) * a.ab_stride + h * n) * 4ul;
    const uint64_t alpha = a.alpha + (uint64_t(row) * a.view.n_alphas + h * n) * 4ul;
    const float decay = F32(a.decay).v[h];
    for (uint i = THREAD; i < n; i += 128) {
        float f = F32(x).v[i];
        if (a.dt_bias != 0ul) f = f + F32(a.dt_bias).v[h * n + i];
        const float g = a.bound != 0.0 ? ae_div(a.bound, 1.0 + ae_expf(-(abs(decay) * f))) : decay * ae_softplusf(f);
        F32(alpha).v[i] = ae_expf(g);
    }
    if (THREAD == 0) F32(a.beta).v[row * a.view.n_heads + h] = sigmoid_of(F32(a.b).v[row * a.ab_stride + h]);
}

/* Returns the sum of (k * r) * u over a head's keys, by all threads; all get it. */
float bonus_of(uint64_t k, uint64_t r, uint64_t u, uint n)
{
    const uint t = THREAD;
    float sum = 0.0;
    barrier();
    if (t < 64) {
        for (uint i = t; i < n; i += 64) sum = ae_fma(F32(k).v[i] * F32(r).v[i], F32(u).v[i], sum);
        parts[t] = sum;
    }
    return sum_parts();
}

/* The decays of a head of WKV, its keys and its bonus; with WKV7 what is erased and written, too. The first 64 threads write
 * what they read later, each its own elements. */
void prepare_wkv(RecurArgs a, uint row, uint h)
{
    const bool seven = a.view.kind == WKV7;
    const uint n = a.view.key_dim, first = THREAD < 64 ? THREAD : n;
    const uint64_t key = uint64_t(h) * n * 4ul, at = uint64_t(row) * a.view.n_alphas * 4ul + key;
    const uint64_t ab = uint64_t(row) * a.ab_stride * 4ul + key;
    const Channels c = channels_of(a, row);
    F32 k = F32(c.k + key), erased = F32(a.erased + at), written = F32(a.beta + at), alphas = F32(a.alpha + at);
    for (uint i = first; i < n; i += 64) {
        const float x = F32(a.a + ab).v[i];
        const float alpha = ae_expf(seven ? ae_div(-0.606531, 1.0 + ae_expf(-x)) : -ae_expf(x));
        alphas.v[i] = alpha;
        if (seven) {
            const float rate = sigmoid_of(F32(a.b + ab).v[i]);
            erased.v[i] = k.v[i] * F32(a.k_k + key).v[i];
            written.v[i] = rate;
            k.v[i] = ae_fma(k.v[i] * F32(a.k_a + key).v[i], rate - 1.0, k.v[i]);
        } else if (a.first == 0ul) k.v[i] = k.v[i] - k.v[i] * alpha;
    }
    if (seven) {
        const float inv = ae_div(1.0, ae_sqrt(sum_of(a.erased + at, n, 0.0, true) + 1e-24));
        for (uint i = first; i < n; i += 64) {
            const float e = erased.v[i] * inv;
            erased.v[i] = e;
            written.v[i] = written.v[i] * e;
        }
    }
    if (a.first == 0ul) return; /* all threads */
    const float bonus = bonus_of(c.k + key, c.q + key, a.first + key, n);
    if (THREAD == 0) F32(seven ? a.bonus : a.beta).v[row * a.view.n_heads + h] = bonus;
}

/* A work-group does what four warps of the kernel do: each norms one group of keys or queries, or handles 32 heads; of KDA and
 * WKV one head. */
void prepare(RecurArgs a)
{
    const uint row = BLOCK_X, kind = a.view.kind, n_norms = kind == DELTA || kind == KDA ? 2 * a.view.n_groups : 0;
    const Channels c = channels_of(a, row);
    for (uint w = 0; w < 4; w++) {
        const uint i = BLOCK_Y * 4 + w, n = a.view.key_dim;
        if (i < n_norms) l2norm((i % 2 != 0 ? c.q : c.k) + uint64_t(i / 2) * n * 4ul, n, 1e-6);
        else if (kind == KDA) {
            if (i - n_norms < a.view.n_heads) prepare_keyed(a, row, i - n_norms);
        } else if (kind == WKV6 || kind == WKV7) {
            if (i < a.view.n_heads) prepare_wkv(a, row, i);
        } else {
            const uint h = (i - n_norms) * 32 + THREAD;
            if (THREAD < 32 && h < a.view.n_heads) prepare_head(a, row, h);
        }
    }
}

/* Records k of the tentative rows, their decays, and what WKV7 writes. With MAMBA1 each column records its own delta. */
void records(RecurArgs a)
{
    const uint n_keys = a.view.n_groups * a.view.key_dim, n = a.view.kind == MAMBA1 ? 0 : a.view.n_alphas, row = BLOCK_X;
    const uint i_run = run_of(a.rows, row);
    uint i = BLOCK_Y * 128 + THREAD;
    if (i_run == a.rows.n_runs || i >= n_keys + (a.view.kind == WKV7 ? 2 : 1) * n) return;
    const StateRun run = Runs(a.rows.runs).v[i_run];
    if (row < run.first + run.n_committed) return;
    const uint64_t record = record_of(a.view, run, row - run.first - run.n_committed);
    if (i < n_keys) {
        F32(record_k(a.view, record)).v[i] = F32(channels_of(a, row).k).v[i];
        return;
    }
    i -= n_keys;
    if (i < n) F32(record_alpha(a.view, record)).v[i] = F32(a.alpha).v[row * n + i];
    else F32(record_written(a.view, record)).v[i - n] = F32(a.beta).v[row * n + i - n];
}

/* ---- The norm after it ------------------------------------------------------------------------------ */

/* gate: 0 SiLU of z, 1 its sigmoid, 2 z itself */
float gated(NormArgs a, float x, float z)
{
    if (a.gate == 2) return x * z;
    return (a.gate == 1 ? sigmoid_of(z) : ae_siluf(z)) * x;
}

void gated_norm(NormArgs a, uint i)
{
    const uint r = i / a.n_groups, g = i % a.n_groups;
    if (r >= a.n_rows) return; /* all threads */
    const uint64_t at = uint64_t(g) * a.dim * 4ul, own = a.by_group != 0 ? at : 0ul;
    const uint64_t x = a.x + uint64_t(r) * a.x_stride * 4ul + at, z = a.z + uint64_t(r) * a.z_stride * 4ul + at;
    const uint64_t v = a.v + uint64_t(r) * a.x_stride * 4ul + at;
    const float bonus = a.bonus != 0ul ? F32(a.bonus).v[r * a.n_groups + g] : 0.0;
    if (a.gate_first != 0 && THREAD < 64) /* an element is read and written by one thread alone, also below */
        for (uint k = THREAD; k < a.dim; k += 64) F32(x).v[k] = gated(a, F32(x).v[k], F32(z).v[k]);
    float mean = 0.0, inv = 1.0;
    if (a.weight != 0ul && a.layer != 0) mean = ae_div(sum_of(x, a.dim, 0.0, false), float(a.dim));
    if (a.weight != 0ul) inv = ae_div(1.0, ae_sqrt(ae_div(sum_of(x, a.dim, mean, true), float(a.dim)) + a.eps));
    if (THREAD >= 64) return;
    for (uint k = THREAD; k < a.dim; k += 64) {
        float y = F32(x).v[k];
        if (a.weight != 0ul) y = (y - mean) * inv * F32(a.weight + own).v[k];
        if (a.bias != 0ul) y = y + F32(a.bias + own).v[k];
        if (a.bonus != 0ul) y = ae_fma(bonus, F32(v).v[k], y);
        F32(x).v[k] = a.gate_first != 0 || a.z == 0ul ? y : gated(a, y, F32(z).v[k]);
    }
}

void main()
{
    if (KIND == 0) conv_runs(ConvArgs(push.args));
    else if (KIND == 1) conv_rows(ConvArgs(push.args));
    else if (KIND == 2) conv_move(ConvArgs(push.args));
    else if (KIND == 3) prepare(RecurArgs(push.args));
    else if (KIND == 4) records(RecurArgs(push.args));
    else if (KIND == 5) {
        for (uint i = 0; i < 4; i++) gated_norm(NormArgs(push.args), BLOCK_X * 4 + i);
    } else gated_norm(NormArgs(push.args), BLOCK_X);
}
