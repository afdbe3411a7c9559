/* attention.h - arguments of the seam's operations: positions of rows, rotation, the pages of a KV cache, attention.
 *
 * Owns nothing. Included by backend.h. Arrays are in device memory unless they are marked (host).
 */
#ifndef AE_BACKEND_ATTENTION_H
#define AE_BACKEND_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/shape_limits.h"

#define AE_KV_PAGE 64 /* positions per KV page; also the attention chunk, cut at logical positions */

typedef struct ae_kv_store ae_kv_store;

typedef enum ae_kv_type {
    AE_KV_F16,
    AE_KV_Q8_0, /* int8 codes, one f32 scale for each row of a head */
    AE_KV_I16,  /* codes of 15 bits as two digits, one f32 scale for each row of a head */
    AE_KV_I16_Q8_0, /* keys as I16, values as Q8_0 */
    AE_KV_Q8_0_I16, /* keys as Q8_0, values as I16 */
    AE_KV_Q4_0, /* codes of 4 bits, one f32 scale for each row of a head */
    AE_KV_Q8_0_Q4_0, /* keys as Q8_0, values as Q4_0 */
    AE_KV_I16_Q4_0, /* keys as I16, values as Q4_0 */
    AE_KV_TUNED, /* number of types that have kernels at every level */
    AE_KV_F32 = AE_KV_TUNED, /* unconverted; only the reference has kernels: for comparing with other engines */
    AE_KV_TYPES,
} ae_kv_type;

/* The cache of one layer; keys and values have the same head_dim. If n_rope is not 0, the layer keeps latent rows: one row for
 * all heads (n_heads is 1). The row is the key: n_rope rotated values, then head_dim latent ones; the latent ones are the
 * value. F16 and I16 then mean codes of 15 bits, Q8_0 and Q4_0 codes of 8 bits; of two types, the keys' counts
 * (backend/cpu/ref/kernels.h). With `plain`, a head of a position is head_dim f32 whatever the type, as ae_compress needs
 * it. With `one_row`, a position has one row (n_heads is 1, n_rope 0), which is both its key and its value and is stored once,
 * as ae_kv_row_type says; only attention with further rows (ae_attention_more) reads it. */
typedef struct ae_kv_layer {
    uint32_t n_heads, head_dim, n_rope;
    bool plain, one_row;
} ae_kv_layer;

/* Returns the bits of the codes in which a type stores keys, and values: 16 bits are two digits of 8; 0: they are not codes. */
static inline uint32_t ae_kv_key_bits(ae_kv_type type)
{
    switch (type) {
    case AE_KV_I16: case AE_KV_I16_Q8_0: case AE_KV_I16_Q4_0: return 16;
    case AE_KV_Q8_0: case AE_KV_Q8_0_I16: case AE_KV_Q8_0_Q4_0: return 8;
    case AE_KV_Q4_0: return 4;
    case AE_KV_F16: case AE_KV_F32: case AE_KV_TYPES: break;
    }
    return 0;
}

static inline uint32_t ae_kv_value_bits(ae_kv_type type)
{
    switch (type) {
    case AE_KV_I16: case AE_KV_Q8_0_I16: return 16;
    case AE_KV_Q8_0: case AE_KV_I16_Q8_0: return 8;
    case AE_KV_Q4_0: case AE_KV_Q8_0_Q4_0: case AE_KV_I16_Q4_0: return 4;
    case AE_KV_F16: case AE_KV_F32: case AE_KV_TYPES: break;
    }
    return 0;
}

/* Returns the type of a row that is key and value: that of the keys. */
static inline ae_kv_type ae_kv_row_type(ae_kv_type type)
{
    const uint32_t bits = ae_kv_key_bits(type);
    return bits == 16 ? AE_KV_I16 : bits == 8 ? AE_KV_Q8_0 : type;
}

/* Returns the number of planes of digits of these codes. */
static inline uint32_t ae_kv_key_planes(ae_kv_type type) { return (ae_kv_key_bits(type) + 7) / 8; }
static inline uint32_t ae_kv_value_planes(ae_kv_type type) { return (ae_kv_value_bits(type) + 7) / 8; }

typedef struct ae_kv_shape {
    uint32_t n_layers;         /* layers with keys and values of their own */
    const ae_kv_layer *layers; /* [n_layers], copied */
    uint32_t n_pages;
    ae_kv_type type;
} ae_kv_shape;

/* The positions of the rows of a pass. All arrays are on the device, uploaded once for a pass in one block.
 * Slots number the places of a sequence's KV: page slot / 64 of its table, place slot % 64. A committed
 * position p is in slot p. A draft row is in a slot after the committed ones; the path of row r
 * lists, for each position from n_inplace[r] up to its own, the slot that holds its ancestor. */
typedef struct ae_places {
    uint32_t n_rows;
    const int32_t *seq;       /* [n_rows] index into tables; rows of one sequence are adjacent */
    const int32_t *pos;       /* [n_rows] logical position */
    const int32_t *slot;      /* [n_rows] slot to which the row's own K and V are written */
    const int32_t *n_inplace; /* [n_rows] positions below this are in the slot of the same number */
    const int32_t *path;      /* [n_rows][path_stride]; entry i: slot of position n_inplace[r] + i */
    uint32_t path_stride;
    const int32_t *tables;    /* [n_seqs][table_stride] page numbers */
    uint32_t table_stride;
    const uint32_t *n_actual; /* number of rows of a recorded pass; the pass was recorded for at most n_rows */
    const int32_t *last;      /* [n_rows] the last position that a row sees, at least its own; NULL: its own. Rows that see each
                               * other are all in the pass, and n_inplace then covers the positions after a row */
    uint32_t head_rows;       /* for attention: pos, n_inplace and path of KV head h begin at row h * head_rows (last is NULL);
                               * 0: all heads see the same positions */
    const int32_t *first;     /* [n_rows] the first position that a row sees; NULL: 0 */
} ae_places;

/* The rotation angles of a pass: for row r and pair i, cos and sin of pos[r] * freq[i], times the magnitude. Computed in double
 * by ae_sincos and rounded once (cpu/ref). */
typedef struct ae_rope_table {
    uint32_t n_rows, n_rot;
    const int32_t *pos;  /* [n_rows] on the device */
    const double *freq;  /* [n_rot / 2] radians per position, on the device */
    double magnitude;
    float *cos, *sin;    /* (out) [n_rows][n_rot / 2] */
    uint32_t every;      /* above 1: positions are rounded down to a multiple of it first */
} ae_rope_table;

typedef enum ae_rope_kind {
    AE_ROPE_NORM, /* pairs (2i, 2i+1) */
    AE_ROPE_NEOX, /* pairs (i, i + n_rot/2) */
} ae_rope_kind;

/* Norms and rotates q and k, then writes k and v to the pages of a layer. For latent rows head_dim is the length of the whole
 * row, and its first n_rot values are rotated; there is one KV head, k is the row, v is NULL. Nor is v read if the row is key
 * and value (ae_kv_layer.one_row). */
typedef struct ae_rope_kv {
    const ae_places *places;
    ae_kv_store *kv;
    uint32_t layer;         /* of the store */
    uint32_t n_heads, n_kv_heads, head_dim, n_rot; /* n_rot 0: no rotation */
    ae_rope_kind kind;
    const float *cos, *sin; /* [n_rows][n_rot/2] f32 on the device */
    float *q;               /* [n_rows][n_heads * head_dim], changed in place */
    float *k;               /* [n_rows][n_kv_heads * head_dim], changed in place; NULL: the layer has only queries, and reads
                             * another layer's keys and values */
    float *v;               /* [n_rows][n_kv_heads * head_dim], changed in place if v_norm is not NULL */
    /* Queries and keys become x / rms(x) * weight; NULL: they are not normed. */
    const float *q_norm, *k_norm; /* f32 on the device, [head_dim], or [n_heads * head_dim] and [n_kv_heads * head_dim] */
    bool norm_row;          /* norm all heads of a row together instead of each separately */
    bool norm_layer;        /* the layer norm instead, each head with its own weights: [n_heads][head_dim] */
    bool norm_last;         /* norm after the rotation instead of before */
    const float *v_norm;    /* [head_dim] f32 on the device, RMS norm of each head of the values; or NULL */
    float norm_eps;
    const float *q_scale;   /* [n_rows] f32 on the device, factor of the queries, applied last; or NULL */
} ae_rope_kv;

/* Rotates values [first, first + n_rot) of each head in place. */
typedef struct ae_rotate {
    uint32_t n_rows, n_heads, head_dim, first, n_rot;
    ae_rope_kind kind;
    bool back;              /* by the opposite angles */
    const float *cos, *sin; /* [n_rows][n_rot / 2] */
    float *x;               /* [n_rows][n_heads * head_dim] */
} ae_rotate;

/* Stores what rows of a sequence are compressed from, and compresses them (DeepSeek-V4). A position keeps 2 n_parts heads of
 * `dim` values in a plain layer: n_parts of values v, then n_parts of scores s. A block is `every` positions whose first one is
 * a multiple of it. The row at a block's last position becomes
 *   y[i] = sum of e_m v_m[i] / sum of e_m,  e_m = ae_expf(s_m[i] + ape_m[i] - t), t the largest of s_m[i] + ape_m[i],
 * over the block's positions m, ascending; both sums are chains from 0, the first by fmaf. With n_parts 2, the positions of the
 * block before come first, with their first part, and then the block's own, with their second part; the first block has only
 * its own. ape_m is row m % every of ape. Other rows become 0. */
typedef struct ae_compress {
    const ae_places *places;
    ae_kv_store *kv;
    uint32_t layer;   /* of the store */
    uint32_t dim, n_parts, every;
    const float *x;   /* [n_rows][2 n_parts][dim] the values and scores to keep for each row */
    const float *ape; /* [every][n_parts][dim]; NULL: a position keeps only values, [n_parts][dim], and y is their mean: a chain
                       * of sums from 0, divided by their number */
    float *y;         /* [n_rows][dim] */
} ae_compress;

/* Keeps a row's token, and hashes it with those before it (Qwen 4's memory of n-grams). A position keeps its token as a number
 * in a plain layer of one head of one value. For a row at position p, t_0 is its token and t_j that of position p - j; from the
 * first of t_1, t_2, .. on that is `end`, or before the text, all are `end`. Hash k, of the last n = 2 + k / n_each tokens:
 *   m = t_0 factors[0] ^ t_1 factors[1] ^ .. ^ t_(n - 1) factors[n - 1] in 64 bits;  y[k] = m % sizes[k] + offsets[k] */
typedef struct ae_ngrams {
    const ae_places *places;
    ae_kv_store *kv;
    uint32_t layer;        /* of the store */
    const int32_t *tokens; /* [n_rows] tokens of the rows; below 0 counts as `end` */
    int32_t end;
    uint32_t n_tokens, n_each;
    uint64_t factors[AE_MAX_NGRAM], sizes[AE_MAX_NGRAM_HEADS], offsets[AE_MAX_NGRAM_HEADS];
    int32_t *y;            /* [n_rows][(n_tokens - 1) * n_each] */
} ae_ngrams;

/* Keeps rows, and convolves each with earlier ones on its path, `step` positions apart. A position keeps n_heads heads of dim
 * values in a plain layer. y[i] = SiLU of the chain s = fmaf(weight[i][j], x_j[i], s) from 0, j ascending; x_j is the row at
 * position p - (n_taps - 1 - j) * step, and is left out before the text. */
typedef struct ae_trail {
    const ae_places *places;
    ae_kv_store *kv;
    uint32_t layer;      /* of the store */
    uint32_t n_heads, dim, n_taps, step;
    const float *x;      /* [n_rows][n_heads * dim] */
    const float *weight; /* [n_heads * dim][n_taps] */
    float *y;            /* [n_rows][n_heads * dim]; may be x */
} ae_trail;

/* Further rows that attention reads in addition to positions. */
typedef struct ae_attention_more {
    const int32_t *pos;    /* [n_rows] number of further rows less 1; -1: none */
    const int32_t *path;   /* [n_rows][path_stride] their slots */
    uint32_t path_stride;
    const int32_t *tables; /* [n_seqs][table_stride] page numbers in `kv` */
    const ae_kv_store *kv; /* of the same type */
    uint32_t layer;        /* of the same shape, which has one_row */
} ae_attention_more;

typedef struct ae_attention {
    const ae_places *places;
    const ae_kv_store *kv;
    uint32_t layer;
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t n_rope;  /* as in ae_kv_layer for latent rows; else 0 */
    float scale;      /* factor of q before the product */
    float softcap;    /* scores s become softcap * tanh(s / softcap); 0: they are not changed */
    uint32_t window;  /* number of positions that a row attends to, its own included; 0: all */
    bool chunked;     /* a row attends instead to the positions from the last multiple of window on */
    const float *sinks; /* [n_heads] f32 on the device: a score per head that takes part in the softmax but has no value; or
                         * NULL */
    const float *slopes; /* [n_heads] f32 on the device: after the softcap a score loses this times its distance from the row's
                          * own position (ALiBi); or NULL */
    /* After the positions that a row sees come these rows, as if they stood at the positions after them: a row's list is read
     * as positions 0, 1, .., so chunks are cut in this order. One KV head, no softcap, slopes or latent rows. Or NULL */
    const ae_attention_more *more;
    const float *bias; /* [n_heads][AE_BIAS_ROW] f32 on the device: added to scores, by distance (T5); or NULL */
    const float *q;   /* [n_rows][n_heads * (n_rope + head_dim)] */
    float *y;         /* [n_rows][n_heads * head_dim] */
} ae_attention;

/* Which positions a row attends to, where a layer chooses them by index keys (DeepSeek's and MiniMax' sparse attention). The
 * keys are rows of a layer of the store, laid out as latent rows are; rope_kv writes them.
 *   score(p) = sum over the heads a, ascending, from 0: s = fmaf(weight[a], dot > 0 ? dot : 0, s), dot the score of q[a] and
 *   the key at p as attention over latent rows computes it, with a scale of 1; a NaN counts as the lowest number
 * Without weights there is one head, and its dot is the score (a NaN becomes minus infinity).
 * Chosen are the n_most positions of the highest scores, of equal ones the lower position; all, where a row sees no more. What
 * a row chooses depends on its own prefix alone. The results take the place of pos, n_inplace and path in the places of
 * attention, which reads the chosen positions in ascending order as if they were positions 0, 1, ..: so its chunks are cut in
 * this order. Rows that see all keep their own places.
 * With n_groups each KV head chooses by itself: group g has heads [g, g + 1) * n_heads / n_groups and its own results, which
 * begin at row g * n_rows (ae_places.head_rows).
 * With a block whole blocks of this many positions are chosen, n_most / block of them: a block's score is the highest of
 * those positions in it that the row sees, and the block of the row's own position and the n_local - 1 before it come first.
 * In the row's own block only the positions that the row sees are chosen.
 * With `pooled` a block's score is that of the position that ends it. Chosen are n_most / block of the blocks whose end the row
 * sees, and besides what it sees after the last of these; n_most % block is block - 1.
 * With `every`, only the positions p with (p + 1) % every == 0 can be chosen, and the results are those of ae_attention_more:
 * pos is -1 where there is none. */
typedef struct ae_select {
    const ae_places *places; /* last is NULL */
    const ae_kv_store *kv;
    uint32_t layer;          /* layer of the store that has the index keys */
    uint32_t n_heads;
    uint32_t n_groups;       /* 0: one choice for all heads */
    uint32_t block, n_local; /* positions of a block, 0: no blocks; n_local is at most n_most / block */
    bool pooled;             /* with a block: one score per block; not with groups or n_local */
    uint32_t every;          /* only positions p with (p + 1) % every == 0 can be chosen; 0: all can; not with n_groups or
                              * block */
    uint32_t n_most;         /* at least 1; a multiple of block (or as `pooled` says) if any row sees more */
    const float *q;          /* [n_rows][n_heads][length of a key]; n_heads 0: no row sees more than n_most positions */
    const float *weight;     /* [n_rows][n_heads]; NULL: a group has one head */
    int32_t *pos, *n_inplace; /* (out) [n_groups, at least 1][n_rows] x 2: pos and n_inplace for attention */
    int32_t *path;           /* (out) [n_groups, at least 1][n_rows][n_most] */
} ae_select;

/* Two places of a store, each page * AE_KV_PAGE + place in the page. */
typedef struct ae_kv_move {
    int32_t from, to;
} ae_kv_move;

/* Moves rows of all sequences of a pass to other places, in every layer of the store, after the pass. A run has the moves of
 * one sequence. No two runs share a page. The moves of a run are made in order: a place may be the target of a move after it
 * was the source of an earlier one. */
typedef struct ae_kv_commit_args {
    ae_kv_store *kv;
    uint32_t n_runs;
    const int32_t *begin;    /* [n_runs + 1] on the device: run i is move[begin[i]] to move[begin[i + 1] - 1] */
    const ae_kv_move *move;  /* on the device */
} ae_kv_commit_args;

#endif
