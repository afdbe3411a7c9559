/* recurrent.h - arguments of the seam's operations for recurrent layers, which carry a state instead of a KV cache.
 * Included only by backend.h.
 *
 * Objects
 *   ae_state_store  planes and records. A plane is the state of all recurrent layers after some row: for each layer the last
 *                   n_taps - 1 rows before its convolution, and its matrices S. Planes [0, n_seqs) belong to the sequences,
 *                   the others are snapshots. A record is the data that one tentative row stores for the next pass.
 *
 * The definition is the row-by-row recurrence: a row's state is a function of its parent's state. It depends neither on the
 * other rows of the pass nor on how rows are divided into passes. A pass has, for each of its sequences,
 *   accepted records  of the pass before, root side first. They are absorbed: the plane moves on to the last of them;
 *   committed rows    a chain. The plane moves on to the last of them, and is written once;
 *   tentative rows    a tree whose root is the last committed row. They run on copies of the state and store records; the
 *                     plane does not change.
 * Absorbing repeats the element-wise half of the recurrence with the stored numbers, so that the plane gets the same bits as
 * if the row had been committed.
 *
 * Arithmetic of a row (backend/cpu/ref/recurrent.c), every step rounded to f32 unless it says fma:
 *   convolution   c = 0; c = fmaf(w[j], x[j], c) over the taps, oldest row first; c += bias; c = silu(c). Rows before the
 *                 first position are 0.
 *   S [n_heads][key_dim i][value_dim j]; group g of head h: h / (n_heads / n_groups), tiled: h % n_groups.
 *   dot(s, k) over i: four sums of consecutive quarters, i ascending from 0 by fmaf, then (0 + 2) + (1 + 3).
 *   DELTA   q, k of a group: x * (1 / sqrtf(ae_sum64 of squares as in the RMS norm + 1e-6));
 *           alpha = exp(decay * softplus(a + dt_bias)) by ae_exp and ae_log in double, rounded once
 *           beta = 1 / (1 + ae_expf(-b))
 *           kv = dot(s, k);  d = beta * (v - alpha * kv);  s_i = fmaf(alpha, s_i, k_i * d)
 *           y = dot(s, q) * (1 / sqrtf(key_dim))
 *   MAMBA2  delta = softplus(a + dt_bias) in double, rounded; alpha = exp(decay * delta) as above; d = x * delta;
 *           s_i = fmaf(alpha, s_i, B_i * d);  y = fmaf(skip, x, dot(s, C))
 *   softplus(x) = x > 20 ? x : log(1 + e^x).
 *   MAMBA1  delta_j = ae_softplusf(a_j + dt_bias_j), in f32 throughout; alpha_ij = ae_expf(delta_j * decay_ji); d = x * delta;
 *           s_i = fmaf(alpha_ij, s_i, B_i * d);  y = fmaf(skip_j, x_j, dot(s, C)). A record has delta in place of alpha.
 *   KDA     q, k as DELTA has them, of each head; alpha_i = ae_expf(g_i), in f32 throughout, for every key:
 *           f = a_i + dt_bias_i;  g_i = decay * ae_softplusf(f), with a bound bound / (1 + ae_expf(-(|decay| * f)));
 *           t_i = alpha_i * s_i;  d = beta * (v - dot(t, k));  s_i = fmaf(k_i, d, t_i);  y = dot(s, q) * (1 / sqrtf(key_dim))
 *   WKV6    alpha = ae_expf(-ae_expf(a)) for every key; s'_i = fmaf(k_i, v, alpha_i * s_i);
 *           y = fmaf(bonus, v, dot(s, r)), bonus the sum of (k * r) * first over the head's keys, by 64 sums and ae_sum64;
 *           without first k = k - k * alpha comes before, and y = dot(s', r) * (1 / sqrtf(key_dim))
 *   WKV7    alpha = ae_expf(-0.606531 / (1 + ae_expf(-a))); kk = k * k_k normed as q and k of DELTA with 1e-24;
 *           b = 1 / (1 + ae_expf(-b)); k = fmaf(k * k_a, b - 1, k); e = 0 - dot(s, kk);
 *           s'_i = fmaf(k_i, v, fmaf(kk_i * b_i, e, alpha_i * s_i));  y = dot(s', r);  bonus as WKV6, an output
 */
#ifndef AE_BACKEND_RECURRENT_H
#define AE_BACKEND_RECURRENT_H

#include "base/err.h"

#define AE_STATE_MAX_KEY 256   /* the largest key_dim; key_dim is a multiple of 4 */
#define AE_STATE_MAX_TAPS 8
#define AE_STATE_BUFFERS 8     /* copies of the state that a walk over a tree of draft rows holds at once */

typedef struct ae_state_store ae_state_store;
typedef struct ae_stream ae_stream;

typedef enum ae_state_kind {
    AE_STATE_CONV,   /* only the rows of a convolution */
    AE_STATE_DELTA,  /* gated delta rule; channels: q, k [n_groups][key_dim] each, v [n_heads][value_dim] */
    AE_STATE_MAMBA2, /* channels: x [n_heads][value_dim], B, C [n_groups][key_dim] each */
    AE_STATE_KDA,    /* as DELTA with n_groups = n_heads, but each key has its own decay */
    AE_STATE_WKV6,   /* RWKV 6: n_groups = n_heads; the convolution is the difference to the row before */
    AE_STATE_WKV7,   /* RWKV 7: the same, and a step also erases what the state has for a key */
    AE_STATE_MAMBA1, /* one head and group; channels: x [value_dim], with key_dim numbers of state for each */
} ae_state_kind;

typedef struct ae_state_layer {
    ae_state_kind kind;
    uint32_t n_channels, n_taps; /* of the convolution */
    uint32_t n_heads, n_groups, key_dim, value_dim; /* 0 for AE_STATE_CONV */
    bool tiled; /* head h belongs to group h % n_groups instead of h / (n_heads / n_groups) */
    const float *decay; /* MAMBA1: [value_dim][key_dim] f32 on the device, negative, lent as long as the store lives; NULL: only
                         * sizes are requested */
} ae_state_layer;

typedef struct ae_state_shape {
    uint32_t n_layers;
    const ae_state_layer *layers; /* (host) [n_layers], read only while a store is created */
    uint32_t n_seqs;
    uint32_t n_planes;  /* n_seqs plus the number of snapshots */
    uint32_t n_records; /* records of a sequence, at most AERIE_MAX_DRAFT */
} ae_state_shape;

/* One step of a walk over the tentative rows, which visits parents before children. */
typedef struct ae_state_visit {
    int32_t row;
    int32_t from, to; /* the buffers that hold the state before and after the row; from -1: the plane. They may be the same */
} ae_state_visit;

/* The rows of one sequence in a pass. */
typedef struct ae_state_run {
    int32_t seq;
    uint32_t first, n_committed; /* rows [first, first + n_committed) */
    uint32_t n_tentative;        /* rows after the committed ones; the i-th of them stores record i */
    uint32_t n_accepted;         /* accepted records of the previous pass */
} ae_state_run;

/* The rows of a pass as recurrent layers see them. The arrays are on the device, uploaded once for a pass. */
typedef struct ae_state_pass {
    ae_state_store *store;
    uint32_t n_rows;
    const int32_t *parent; /* [n_rows] the row's parent in this pass; -1: the last accepted record, or the plane */
    uint32_t n_runs;
    const ae_state_run *runs; /* [n_runs] */
    const ae_state_visit *visits; /* [n_runs][stride], n_tentative entries of each run are used */
    const uint8_t *accepted;  /* [n_runs][stride] record numbers, n_accepted of each run, root side first */
    uint32_t stride;
} ae_state_pass;

/* Causal depthwise convolution over a row and its ancestors. */
typedef struct ae_conv {
    const ae_state_pass *pass;
    uint32_t layer;      /* of the store */
    float *x;            /* [n_rows][x_stride] f32; the first n (or all n_channels) are used */
    const float *x2;     /* x *= x2 before anything else; or NULL */
    size_t x_stride;     /* also that of x2 and gate */
    uint32_t first, n;   /* x and y are channels [first, first + n) of the layer; n 0: all of them */
    const float *weight; /* [n_channels][n_taps] f32 on the device; NULL, with two taps: 1 and -1 */
    const float *weight_2, *weight_3; /* weights of the second and of the last third of the channels; NULL: they are in
                                       * `weight` */
    const float *bias;   /* [n_channels] f32 on the device, or NULL */
    bool silu;
    const float *gate;   /* [n_rows][x_stride] factors of y; or NULL */
    float *y;            /* [n_rows][y_stride]; may not be x */
    size_t y_stride;
} ae_conv;

/* The recurrence step of all kinds except AE_STATE_CONV. */
typedef struct ae_recur {
    const ae_state_pass *pass;
    uint32_t layer;
    float *c;             /* [n_rows][c_stride] channels after the convolution; q and k of DELTA are normed in place */
    size_t c_stride;
    const float *a, *b;   /* [n_rows][ab_stride]; DELTA, KDA and WKV7 use b. Head h uses element h, or with ab_group element
                           * h / ab_group * 2 * ab_group + h % ab_group; a of KDA and WKV and b of WKV7 have key_dim elements
                           * for each head */
    size_t ab_stride;
    uint32_t ab_group;
    float *k, *v;         /* WKV: [n_rows][c_stride] x 2; c is then r. k changes in place, and so does b of WKV7 */
    const float *first;   /* WKV: [n_heads][key_dim], for WKV7 r_k; or NULL */
    const float *k_k, *k_a; /* WKV7: [n_heads][key_dim] x 2 */
    float *bonus;         /* WKV7: [n_rows][n_heads], an output */
    const float *keys;    /* MAMBA1: [n_rows][keys_stride] B, then C; a has an element for each channel */
    size_t keys_stride;
    const float *decay;   /* [n_heads] f32 on the device, negative; MAMBA1 uses its layer's */
    const float *dt_bias; /* [n_heads], MAMBA1 [value_dim], KDA [n_heads][key_dim]; or NULL */
    float bound;          /* KDA: bound of the decay, negative; 0: none */
    const float *skip;    /* [n_heads] for MAMBA2, [value_dim] for MAMBA1, or NULL */
    float *y;             /* [n_rows][y_stride]; n_heads * value_dim are written */
    size_t y_stride;
} ae_recur;

/* Norms x in groups of dim, in place: x / rms(x) * weight * silu(z), or with gate_first x * silu(z), then / rms * weight. With
 * `sigmoid`, sigmoid(z) replaces silu(z); with `times`, z itself does. With `layer` it is the layer norm, after which the bonus
 * is added. */
typedef struct ae_gated_norm {
    uint32_t n_rows, n_groups, dim;
    float *x;
    size_t x_stride;
    const float *z;      /* [n_rows][z_stride]; NULL: no gate */
    size_t z_stride;
    const float *weight; /* [dim], or [n_groups][dim] with by_group; f32 on the device. NULL: no norm */
    bool by_group, gate_first, sigmoid;
    bool layer, times;
    const float *bias;   /* like weight; with `layer`, or NULL */
    const float *bonus;  /* [n_rows][n_groups] or NULL: before the gate, a group becomes fmaf(bonus, v, x) */
    const float *v;      /* [n_rows][x_stride] */
    float eps;
} ae_gated_norm;

#endif
