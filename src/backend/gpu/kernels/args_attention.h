/* args_attention.h - arguments of the kernels for attention (attention_*.cu).
 *
 * A unit, which is a block or a warp, has a tile: up to Q queries that share a KV head, numbered row * group + head of the
 * group. It walks chunks of 64 positions (cpu/ref/kernels.h). With few rows, chunks are distributed: n_splits units of a tile
 * take every n_splits-th chunk and store its m, l and o as a part. The last block of the tile to arrive, or attention_merge,
 * merges the parts in ascending order. With few chunks, or more than the parts have room for, one unit walks them all and
 * merges as it goes. All ways give the same bits.
 */
#ifndef AE_BACKEND_GPU_KERNELS_ARGS_ATTENTION_H
#define AE_BACKEND_GPU_KERNELS_ARGS_ATTENTION_H

#include <stdint.h>
#include <string.h>

#include "backend/gpu/kernels/kv_layout.h"

#define AE_ATTENTION_WARPS 4 /* of a block */
#define AE_ATTENTION_CODES 8 /* queries of a tile in caches of codes, which are the columns of a matrix instruction */

typedef struct ae_gpu_attention_args {
    ae_gpu_kv_view kv;
    const int32_t *seq;       /* [n_rows], the fields of ae_places */
    const int32_t *pos;       /* [n_rows] */
    const int32_t *last;      /* [n_rows] or NULL */
    const int32_t *n_inplace; /* [n_rows] */
    const int32_t *path;      /* [n_rows][path_stride] */
    const int32_t *tables;    /* [n_seqs][table_stride] */
    const uint32_t *n_actual; /* [1] or NULL */
    const float *sinks;       /* [n_heads] or NULL */
    const float *slopes;      /* [n_heads] or NULL */
    const float *bias;        /* [n_heads][AE_BIAS_ROW] or NULL */
    const int32_t *first;     /* [n_rows] or NULL */
    const float *q;           /* [n_rows][n_heads][n_rope + head_dim] */
    float *y;                 /* [n_rows][n_heads][head_dim] */
    float *parts;             /* [n_rows][n_heads][max_parts][ae_gpu_attention_part] */
    /* ae_attention_more; more_pos NULL: there are none */
    const int32_t *more_pos;    /* [n_rows] */
    const int32_t *more_path;   /* [n_rows][more_stride] */
    const int32_t *more_tables; /* [n_seqs][table_stride] */
    const uint8_t *more_base;   /* base and page_bytes of the further rows, as in kv */
    uint64_t more_page_bytes;
    uint32_t *arrivals;       /* [n_kv_heads][n_tiles] number of blocks that have stored their parts; 0 between launches */
    uint32_t path_stride, table_stride, more_stride;
    uint32_t head_rows;       /* distance in pos, n_inplace and path between KV heads; 0: all have the same places */
    uint32_t n_rows, n_heads, n_kv_heads;
    uint32_t window, chunked;
    float scale, softcap;
    uint32_t n_tiles;         /* tiles of all rows, for one KV head */
    uint32_t n_splits;        /* units of a tile */
    uint32_t merge_apart;     /* a launch of attention_merge merges the parts, not the last block */
    uint32_t max_parts;       /* most chunks of a row that parts has room for; 0: one unit walks each row */
    uint32_t n_warps;         /* if units are warps: the warps of a block that work, limited by shared memory */
} ae_gpu_attention_args;

/* Arguments for the choice of the positions that rows attend to (ae_select in backend/attention.h). A choice belongs to a row,
 * or to a group of heads of a row: its number is group * n_rows + row. Grid: choices from `first` on; for scores also ranges of
 * chunks, for blocks of positions ranges of these. */
typedef struct ae_gpu_select_args {
    ae_gpu_attention_args keys; /* the index keys, places and queries; one KV head, scale 1; sinks, slopes, y, tiles and parts
                                 * are not used */
    const float *weight;      /* [n_rows][n_heads] or NULL */
    float *scores;            /* [choices of the grid][score_stride]: the scores of [n_seen] positions, then of blocks */
    int32_t *pos, *n_inplace; /* (out) [n_groups][n_rows] x 2 */
    int32_t *path;            /* (out) [n_groups][n_rows][n_most] */
    uint32_t first, n_most, n_seen, score_stride;
    uint32_t n_groups;        /* at least 1 */
    uint32_t block, n_local, pooled; /* block 0: none */
    uint32_t every, listed;   /* every: at least 1; listed: the results are lists of ae_attention_more */
} ae_gpu_select_args;

#define AE_GPU_SELECT_THREADS 256 /* of select_choose */
#define AE_GPU_SELECT_SHARED (17 * AE_GPU_SELECT_THREADS * 4) /* counts of 16 digits by thread, then their totals */

/* Returns the floats of a part: m, l, two unused ones, o [head_dim], rounded up to 16 bytes. */
AE_HD static inline uint32_t ae_gpu_attention_part(uint32_t head_dim)
{
    return 4 + (head_dim + 3) / 4 * 4;
}

/* Floats between the weights of one position and the next in shared memory; padding beyond Q reduces bank conflicts. */
#define AE_ATTENTION_WEIGHTS(Q) ((Q) == 4 ? 4u : (Q) + 4u)
/* Floats between the scores of one query and the next; so lanes with different queries and positions use different banks. */
#define AE_ATTENTION_SCORES 68u
/* Bytes between the digits of one query's weights and the next one's; so the words that lanes load at once are in different
 * banks. */
#define AE_ATTENTION_DIGITS 80u

/* The shared memory of a unit, in bytes from its start; all are multiples of 16. */
typedef struct ae_gpu_attention_room {
    uint32_t n;       /* elements of a head for which there is room */
    uint32_t query;   /* f16, f32: f32 [n][Q], the queries times the scale; codes: see row_bytes */
    uint32_t sum;     /* f32 [Q][n], in the kernel's own order: O of rows that are walked */
    uint32_t place;   /* uint64 [64], blocks over f16 and f32 [Q / 4][64]: the address of each position's value */
    uint32_t state;   /* int32 [Q][4]: first position seen, the query's own position, n_inplace, sequence */
    uint32_t row;     /* int32 [Q] */
    uint32_t index;   /* uint32 [Q]: row * n_heads + head */
    uint32_t factor;  /* f32 [Q][2]: the factors with which O and o are merged */
    uint32_t arrived; /* uint32 [4]: the first is the number of blocks that arrived before this one */
    uint32_t weight;  /* f16, f32: f32 [64][AE_ATTENTION_WEIGHTS(Q)], p of each position; p < 0: the query does not see it */
    uint32_t score;   /* blocks: f32 [Q][AE_ATTENTION_SCORES] */
    uint32_t quad;    /* blocks over f16 and f32: int32 [Q / 4][4], each quad's current group: members, lo, hi, whether it is
                       * plain */
    /* only for codes: */
    uint32_t row_bytes;    /* bytes of a query's digits: int8 [2][Q][row_bytes] at `query`, high digits first */
    uint32_t latent_at;    /* byte at which the latent part begins in a row of digits; else 0 */
    uint32_t digit;        /* uint8 [2][Q][AE_ATTENTION_DIGITS]: the digits of the weights, high ones first */
    uint32_t scale;        /* f32 [64]: the scale of each position's value */
    uint32_t query_scale;  /* f32 [2][Q]: factors of two sums: of the latent or only part, and of the rotated part */
    uint32_t weight_scale; /* f32 [Q] */
    uint32_t bytes;
} ae_gpu_attention_room;

/* Lays out the parts that all units have, from byte `at` on. */
AE_HD static inline uint32_t ae_gpu_attention_room_common(ae_gpu_attention_room *r, uint32_t Q, uint32_t n_places, uint32_t at)
{
    r->sum = at;
    r->place = r->sum + r->n * Q * 4;
    r->state = r->place + n_places * AE_KV_PAGE * 8;
    r->row = r->state + Q * 16;
    r->index = r->row + Q * 4;
    r->factor = r->index + Q * 4;
    r->arrived = r->factor + Q * 8;
    return r->arrived + 16;
}

/* Returns the layout for attention_merge; see attn_merge. */
AE_HD static inline ae_gpu_attention_room ae_gpu_attention_room_merge(const ae_gpu_kv_form *form, uint32_t Q)
{
    ae_gpu_attention_room r;
    memset(&r, 0, sizeof r);
    r.bytes = ae_gpu_attention_room_common(&r, Q, 1, 0);
    r.score = r.bytes; /* f32 [4][head_dim], only if results are turned back */
    if (ae_gpu_kv_is_turned(form)) r.bytes += AE_ATTENTION_WARPS * form->head_dim * 4;
    return r;
}

/* For f16 and f32. */
AE_HD static inline ae_gpu_attention_room ae_gpu_attention_room_of(const ae_gpu_kv_form *form, uint32_t Q, uint32_t is_block)
{
    ae_gpu_attention_room r;
    memset(&r, 0, sizeof r);
    r.n = form->groups * (AE_GPU_KV_GROUP / form->width);
    r.weight = ae_gpu_attention_room_common(&r, Q, is_block ? Q / 4 : 1, r.n * Q * 4);
    r.score = r.weight + AE_KV_PAGE * AE_ATTENTION_WEIGHTS(Q) * 4;
    r.quad = r.score + (is_block ? Q * AE_ATTENTION_SCORES * 4 : 0);
    r.bytes = r.quad + (is_block ? Q * 4 : 0);
    return r;
}

/* Returns the layout for caches of codes. Each part of a row of digits is padded to 64 bytes, which a matrix instruction reads.
 * Rows are an odd multiple of 64 bytes long, so that the lanes of a load use all banks. */
AE_HD static inline ae_gpu_attention_room ae_gpu_attention_room_codes(const ae_gpu_kv_form *form)
{
    const uint32_t Q = AE_ATTENTION_CODES;
    ae_gpu_attention_room r;
    memset(&r, 0, sizeof r);
    r.n = (form->head_dim + 63) / 64 * 64;
    r.latent_at = (form->rope_groups + 3) / 4 * 64;
    r.row_bytes = (r.latent_at + r.n) | 64;
    r.score = ae_gpu_attention_room_common(&r, Q, 1, 2 * Q * r.row_bytes);
    r.digit = r.score + Q * AE_ATTENTION_SCORES * 4;
    r.scale = r.digit + 2 * Q * AE_ATTENTION_DIGITS;
    r.query_scale = r.scale + AE_KV_PAGE * 4;
    r.weight_scale = r.query_scale + 2 * Q * 4;
    r.bytes = r.weight_scale + Q * 4;
    return r;
}

/* Attention by type of the cache and, for f16 and f32, queries of a tile. Latent rows of f32 are run by the kernels for f32;
 * rows that are key and value by those for latent rows, or of their type if that is f16 or f32, or by attention_row_q4.
 * attention_few and those for codes: units are blocks; the others: units are warps, which walk. */
#define AE_GPU_KERNELS_ATTENTION(X) \
    X(attention_few_f16_4, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_few_f16_8, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_few_f16_16, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_few_f32_8, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_f16_4, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_f16_8, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_f32_4, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_f32_8, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_merge_8, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_merge_16, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_q8, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_i16, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_i16_q8, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_q8_i16, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_q4, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_q8_q4, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_i16_q4, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_latent_q8, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_latent_f16, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(attention_row_q4, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    X(select_scores_f32, ae_gpu_select_args, AE_ATTENTION_WARPS * 32) \
    X(select_scores_q8, ae_gpu_select_args, AE_ATTENTION_WARPS * 32) \
    X(select_scores_f16, ae_gpu_select_args, AE_ATTENTION_WARPS * 32) \
    X(select_blocks, ae_gpu_select_args, AE_GPU_SELECT_THREADS) \
    X(select_choose, ae_gpu_select_args, AE_GPU_SELECT_THREADS)

#endif
