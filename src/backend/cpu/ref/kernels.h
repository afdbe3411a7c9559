/* kernels.h - the table of CPU kernels, and the data they share: prepared activations, packed weights.
 *
 * Each level (ref, avx2, avx512, ...) overwrites the entries of the table that it improves and keeps those of the level
 * below. Kernels do not use threads: they get a range of output rows or a tile of queries.
 * All kernels of an entry give the same bits as the one in cpu/ref, which defines the arithmetic.
 *
 * Arithmetic of a matrix product, for output o and row r (docs/same-bytes.md); all
 * integer sums exact, float steps in this order, units u ascending, `acc` starting at 0:
 *   AE_DOT_32   for each scale j of the unit (1, or 2 of 16 elements each):
 *                 acc = fmaf((float)isum_j, d_j * dx, acc)          dx = act.d32[r][u]
 *               if the type has minimums: acc = fmaf(m, act.s32[r][u], acc)
 *   AE_DOT_256  p = sum_j(sub_j * isum_j), in int32               |p| <= 256 * 127 * AE_UNIT_TOP
 *               acc = fmaf((float)p, d * dx, acc)                   dx = act.d256[r][u]
 *               if minimums: acc = fmaf((float)sum_j(submin_j * bsum_j), -(dmin * dx), acc)
 *   AE_DOT_FLOAT sixteen sums a[k % 16] = fmaf(w[k], x[k], a[k % 16]), k ascending, then ae_sum16
 * then acc = acc * scale if the weight has one, and y = acc (+ bias), or y = y + (acc (+ bias)).
 *
 * Which NaN an operation returns depends on the machine; its sign and payload are not defined. The KV cache is stored and
 * compared as bytes, so it has one form for all NaNs.
 */
#ifndef AE_BACKEND_CPU_REF_KERNELS_H
#define AE_BACKEND_CPU_REF_KERNELS_H

#include "backend/arithmetic.h"
#include "backend/backend.h"
#include "base/math/fmath.h"
#include "base/mem.h"
#include "quant/types.h"

/* AE_DOT_256: |sub * code| is at most this in every type (Q6_K: 128 * 32), so p stays below 2^27 and int32 holds it
 * in any order. With packed codes, code + zero <= 255, p would stay below 2^30. */
#define AE_UNIT_TOP 4096

#define AE_PANEL 16     /* output rows interleaved in a packed weight */
#define AE_TILE_ROWS 16 /* activation rows in a tile */
#define AE_TILES_IN 128 /* least columns of a product by tiles */

/* ---- Activations, prepared once for all weights that share them ------------------------------- */

typedef struct ae_act {
    uint32_t n_rows, n_in;
    /* AE_DOT_FLOAT: the f32 input of the product */
    float *x;       /* [n_rows][n_in] */
    /* AE_DOT_32: int8 in groups of 32. For each t of AE_QUANT_TOPS: inv = t / max|x|, q = round-to-even(x * inv),
     * e = fmaf(x, inv, -q), error = ae_sum16 of e * e over k % 16, times (max|x| / t)^2; the t with the least error
     * (the first among equals) gives q and d = max|x| / t. */
    int8_t *q32;    /* [n_rows][ae_act_stride(n_in)], in [-127, 127] */
    float *d32;     /* [n_rows][n_in / 32] */
    int32_t *sum32; /* [n_rows][n_in / 32] sum of q */
    float *s32;     /* [n_rows][n_in / 32] d * (float)sum */
    /* AE_DOT_256: in groups of 256, d = max|x| / 127, q = round-to-even(x * (127 / max|x|)) */
    int8_t *q256;   /* [n_rows][ae_act_stride(n_in)] */
    float *d256;    /* [n_rows][n_in / 256] */
    int16_t *bsum;  /* [n_rows][n_in / 16] sum of 16 q */
    /* The tiled form, for the kernels that need it (ae_kernels.mm_tiles_*): rows in groups of 16; a tile is 16 rows x 32 or
     * 64 k and contiguous; the tiles of a group are in ascending k. The last group's missing rows are undefined. */
    int8_t *t32;          /* [n_groups][n_in / 32][16][32] q32; for few rows [n_in / 64][2][m][2][32], see ae_act_pair_rows */
    float *td32, *ts32;   /* [n_groups][n_in / 32][16] d32, s32 */
    int8_t *t256;         /* [n_groups][n_in / 64][16][64] q256 */
    float *td256;         /* [n_groups][n_in / 256][16] d256 */
    int16_t *tb16, *tb32; /* [n_groups][n_in / 256][8 or 4][16][2] sums of 16 and of 32 q256, in pairs of neighbours */
} ae_act;

/* Bytes from row to row of int8 codes. If rows were a multiple of 1024 bytes apart, the same columns of 4, 8 or all of 16
 * rows would fall into one set of the L1 cache, which has 8 to 12 lines: each product would read them from L2. */
static inline size_t ae_act_stride(size_t n_in)
{
    return n_in % 1024 ? n_in : n_in + 64;
}

/* With few rows, most of a tile would be empty, and a product takes as long as with a full one. So a tile of 64 k holds two
 * blocks of 32 k, one below the other in 2 m rows: the first m rows have the first block's k, then zeros; the others have
 * zeros, then the second block's k. Returns m, 4 or 8; 0 if there are more rows, or too few columns for chunks of six blocks.
 * The result depends only on n_rows and n_in. */
static inline uint32_t ae_act_pair_rows(const ae_act *act)
{
    const uint32_t pairs = act->n_in / 64, chunks = (act->n_in + 511) / 512;
    if (act->n_rows > 8 || act->n_in % 64 || pairs < 3 * chunks) return 0;
    return act->n_rows > 4 ? 8 : 4;
}

/* ---- Weights ------------------------------------------------------------------------------------ */

/* P16: panels of 16 output rows (the last one padded with zero weights). A panel has codes and scales, both in ascending k
 * (ae_lines_of() says where the lines of codes are):
 *   codes   per 32 k a block of code_bits lines of 64 bytes, at ae_lines_of(). Group g holds k = 4g .. 4g + 3, j = k % 4:
 *             8 bits: byte [row * 4 + j] of line g
 *             4 bits: byte [row * 4 + j] of line v has group 2v in its low nibble, 2v + 1 in its high one
 *             5 bits: as 4, then one line: bit g of byte [row * 4 + j] is bit 4 of the code
 *             6 bits: as 4, then two lines: bits 2 (g % 4) of byte [row * 4 + j] of line 4 + g / 4 are bits 4, 5
 *           codes are stored unsigned as code + zero; with has_lut (4 bits) as an index: lut[i] = code + zero.
 *           zero is 0 if has_min. Unsigned 8-bit codes are below 128 unless zero is 128; in a lut with
 *           zero below 16 they are below 32.
 *   scales  per unit, AE_DOT_32:  d [n_sub][16], then m [16] if has_min; f16, or f32 if scale_f32
 *                     AE_DOT_256: d [16] f32, dmin [16] f32 if has_min, sub [n_sub][16] int8,
 *                                 submin [n_sub][16] uint8 if has_min
 */
typedef struct ae_packed {
    uint32_t code_bits; /* 4, 5, 6 or 8; 0 = not packed */
    int32_t zero;       /* 0 to 128 */
    uint32_t n_sub;     /* scales per unit: AE_DOT_32: 1 or 2; AE_DOT_256: 1, 8 or 16 */
    bool has_min;
    bool scale_f32;     /* AE_DOT_32 */
    bool has_lut;       /* codes are 4-bit indices of unevenly spaced values */
    uint8_t lut[16];
    uint32_t n_units, n_blocks;    /* of a row: units of 32 or 256 k; blocks of 32 k */
    uint32_t n_panels, run_panels; /* all panels; panels per run (ae_run_panels) */
    bool in_order;       /* blocks of codes are contiguous: ascending k, panel after panel */
    size_t scale_stride; /* bytes per panel */
    uint8_t *codes;      /* [ae_code_bytes], 64-byte aligned */
    uint8_t *scales;     /* [n_panels][scale_stride], 64-byte aligned */
} ae_packed;

/* Codes have one of two orders; choose.c measures which is faster.
 * in_order: block after block in ascending k, panel after panel; the lines of 64 bytes of a block are adjacent.
 * Otherwise they are in runs of whole panels. A run has first line 0 of all its blocks, then line 1, and so on, so a product
 * reads 4 to 8 sequential streams. CPUs prefetch only inside a page, and only a few lines of each stream, so several
 * streams have more bandwidth than one, and long ones more than short ones. Read bandwidth of the same pattern, 2 cores of a
 * Granite Rapids VM, medians of 7, GB/s: one stream 29; four streams of 4 KiB, read block after block, 31.3; four streams of
 * 16, 32, 64 KiB, line after line, 31.0, 33.1, 33.8, of 128 and 256 KiB no more; with prefetches only 1 KiB ahead 9 % less.
 * A Zen 5 reads one stream, prefetched well ahead, faster than four: products with one row and two threads, 2,048 columns, in
 * runs and in order: Q4_K with AVX-512 35 and 51 GB/s, Q4_0 with AVX2 30 and 42. */
#define AE_LINE 64
#define AE_RUN 4096 /* most blocks of a run, which has at least one panel */

/* Returns the panels per run, for rows of n blocks. */
static inline uint32_t ae_run_panels(uint32_t n)
{
    return n < AE_RUN ? AE_RUN / n : 1;
}

/* Returns the lines between the starts of two streams of a run of n blocks. Up to 15 lines are left unused, so that the streams
 * start in different sets of an L1 cache with 4 KiB per way: Q4_0, 4,096 columns, 1, 4, 8, 16 rows on the same VM took 2.3,
 * 2.4, 3.1, 5.9 ms without and 2.2, 2.3, 3.0, 5.9 ms with them, 2.5, 2.7, 3.1, 5.8 ms with four streams of 4 KiB read block
 * after block. */
static inline uint32_t ae_run_lines(uint32_t n)
{
    const uint32_t past = n % 32;
    return past < 8 ? n + 8 - past : past > 24 ? n + 40 - past : n;
}

static inline size_t ae_run_bytes(const ae_packed *p, uint32_t n)
{
    return n ? (size_t)ae_run_lines(n) * p->code_bits * AE_LINE : 0;
}

/* Returns the bytes of the codes of a weight, enough for either order. */
static inline size_t ae_code_bytes(const ae_packed *p)
{
    const uint32_t full = p->n_panels / p->run_panels, rest = p->n_panels % p->run_panels;
    return full * ae_run_bytes(p, p->run_panels * p->n_blocks) + ae_run_bytes(p, rest * p->n_blocks);
}

/* The run of a panel. */
typedef struct ae_run {
    size_t at;       /* byte offset in the weight's codes */
    uint32_t n;      /* blocks of the run */
    uint32_t begin;  /* the panel's first block in the run */
    uint32_t n_next; /* blocks of the next run; 0: there is none */
} ae_run;

static inline ae_run ae_run_of(const ae_packed *p, uint32_t panel)
{
    const uint32_t most = p->run_panels, i = panel / most, in = panel % most, left = p->n_panels - i * most;
    const uint32_t n = left < most ? left : most, next = left - n < most ? left - n : most;
    return (ae_run){i * ae_run_bytes(p, most * p->n_blocks), n * p->n_blocks, in * p->n_blocks, next * p->n_blocks};
}

/* Where the lines of a block are, in bytes. */
typedef struct ae_lines {
    size_t at;            /* offset of the first line in the weight's codes */
    ptrdiff_t line, step; /* distance between two lines of the block; distance from a line to the same one of the panel's next
                           * block */
} ae_lines;

/* run: the panel's */
static inline ae_lines ae_lines_of(const ae_packed *p, const ae_run *run, uint32_t panel, uint32_t block)
{
    const size_t bytes = (size_t)p->code_bits * AE_LINE;
    if (p->in_order) return (ae_lines){((size_t)panel * p->n_blocks + block) * bytes, AE_LINE, (ptrdiff_t)bytes};
    return (ae_lines){run->at + (size_t)(run->begin + block) * AE_LINE, (ptrdiff_t)ae_run_lines(run->n) * AE_LINE, AE_LINE};
}

/* Bytes of scratch of a product: too many for a small stack. The arm64 kernels keep arranged activations there. */
#if defined(__aarch64__)
#define AE_MM_SCRATCH ((size_t)128 << 10)
#else
#define AE_MM_SCRATCH ((size_t)48 << 10)
#endif

typedef struct ae_mm_out {
    float *y;          /* [n_rows][stride] */
    size_t stride;
    const float *bias; /* [n_out] or NULL */
    bool add;
    void *scratch;     /* [AE_MM_SCRATCH], 64-byte aligned, used only by this call */
} ae_mm_out;

/* Computes outputs [begin, end) of all rows of act; begin is a multiple of 16, end is one too or n_out. */
typedef void ae_mm_fn(const ae_weight *weight, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end);

struct ae_weight {
    uint32_t type, n_out, n_in;
    ae_dot dot;
    const uint8_t *plain; /* [n_out][row_bytes] the file's layout; NULL if there is only the packed form */
    size_t row_bytes;
    ae_packed packed;     /* with in_place it has no memory: each panel is packed when it is used */
    bool in_place;
    uint8_t *own;         /* [n_out][row_bytes] the memory of `plain` if weight_fill fills it; else NULL */
    bool has_scale, has_row_scale; /* false: the factor is 1 and is not applied */
    float scale, row_scale; /* factors of products' sums and of looked-up rows */
    ae_mm_fn *mm, *mm_tiles; /* mm_tiles is for tiles_from rows or more, or NULL */
    uint32_t tiles_from;     /* chosen when the weight was created, see choose.c; AE_NO_TILES: never */
};

#define AE_NO_TILES UINT32_MAX

/* The forms of prepared rows that the weights reading them need. */
typedef struct ae_act_need {
    bool rows[4];           /* by ae_dot: the row form */
    uint32_t tiles_from[4]; /* by ae_dot: the tiled form, from this number of rows on; 0: never */
} ae_act_need;

static inline void ae_act_need_add(ae_act_need *need, const ae_weight *reader)
{
    uint32_t *from = &need->tiles_from[reader->dot];
    need->rows[reader->dot] = true;
    if (reader->tiles_from != AE_NO_TILES && (!*from || reader->tiles_from < *from)) *from = reader->tiles_from;
}

static inline bool ae_act_wants_tiles(const ae_act_need *need, ae_dot dot, uint32_t n_rows)
{
    return need->tiles_from[dot] && n_rows >= need->tiles_from[dot];
}

/* ---- Attention ------------------------------------------------------------------------------------ */

/* One KV page of one layer and head holds 64 positions, place = slot % 64. D = head_dim rounded up to 16, padding undefined.
 *   AE_KV_F16   K  f16 [4][head_dim][16]   place p at [p / 16][i][p % 16]
 *               V  f16 [64][head_dim]
 *   AE_KV_Q8_0  K  int8 [4][D / 4][16][4]  place p at [p / 16][i / 4][p % 16][i % 4]
 *               V  int8 [16][D][4]         place p at [p / 4][i][p % 4]
 *               kd, vd  f32 [64]           scales of the rows
 *   AE_KV_I16   as Q8_0, but K and V have two such planes each, of high and of low digits (AE_KV_I16_Q8_0: K has two, V one;
 *               AE_KV_Q8_0_I16: V has two, K one): planes of K, planes of V, scales
 *   AE_KV_Q4_0  as Q8_0, but K and V hold two codes of 4 bits in a byte, in the order of ae_kv4_k_at and ae_kv4_v_at (of
 *               AE_KV_Q8_0_Q4_0 and AE_KV_I16_Q4_0 V alone)
 *   AE_KV_F32   K, V f32 [64][head_dim]
 * Arithmetic, for one query: chunks of 64 logical positions from the first one inside the window to the
 * query's own, ascending. In a chunk, for the positions j that the query sees:
 *   s_j is the score (below), with a softcap ae_softcapf of it, then with a slope ae_biased of that; with biases plus that of
 *   the distance
 *   m = max s_j (from -inf, a NaN is never the maximum);  p_j = e(s_j - m)
 *   l = ae_sum16 of the sums of p_j over j % 16, j ascending (j = position)
 *   o[i] is the weighted sum of the values (below)
 * first chunk: M = m, L = l, O = o; later: N = max(M, m), a = e(M - N), b = e(m - N),
 *   L = fmaf(L, a, l * b), O[i] = fmaf(O[i], a, o[i] * b), M = N.
 * y[i] = O[i] * (1 / L). With a sink s: N = max(M, s), a = e(M - N), y[i] = O[i] * (a / fmaf(L, a, e(s - N))).
 * e(x) = ae_expf(max(x, AE_ATTN_LOWEST)); for NaN ae_expf(AE_ATTN_LOWEST).
 * f16, f32:  q = query * scale
 *       s_j = fmaf(k_j[i], q[i], s_j), i ascending, s_j starting at 0
 *       o[i] = fmaf(p_j, v_j[i], o[i]), j ascending, o[i] starting at 0
 *       f16 stores K and V rounded to nearest even; NaN as 0x7E00, whatever its sign and payload.
 * q8_0: each row of K and V becomes codes and a scale as AE_DOT_32 activations do (ae_act: the best of AE_QUANT_TOPS),
 *   but squared errors are summed as in a row norm: 64 sums over i % 64, then ae_sum64. The code of a NaN is -127.
 *   Before that, K and the query are turned (a Walsh-Hadamard transform): in blocks of h, the largest power of two that divides
 *   head_dim, (a, b) = (a + b, a - b) of elements 1, 2, 4 .. h / 2 apart. That multiplies products by h and spreads the few
 *   large elements of keys over the row, so that the other elements lose fewer bits.
 *   The turned query: top = max |x|, qd = top / AE_KV_QUERY, qc = round-to-even(x * (AE_KV_QUERY / top)), for a NaN
 *   -AE_KV_QUERY; 0 unless top > 1e-30.
 *   s_j = (float)(sum_i kc_j[i] * qc[i]) * (kd_j * (qd * (scale / h))); sums of codes are exact
 *   w_j = p_j * vd_j, W = max w_j (from 0), u_j = round-to-even(w_j * (AE_KV_WEIGHT / W))
 *   o[i] = (float)(sum_j u_j * vc_j[i]) * (W / AE_KV_WEIGHT); 0 unless W > 1e-30
 * i16: rows of K are turned as those of q8_0, rows of V are not. A row gets codes and a scale as the turned query does (with
 *   AE_KV_QUERY); a code is 128 * high + low, low from -64 to 63. Each sum over codes is then two, one of a plane, and
 *   (float)sum becomes fmaf((float)high sum, 128, (float)low sum); all else is as for q8_0.
 * q4_0: rows of K and of V are turned. The code of y is the number of limits below y, of a NaN 0; the limits are 0 and those of
 *   AE_KV4_LIMITS with either sign, code c stands for a level of AE_KV4_LEVELS (c from 8 on) or minus one (below). A row's
 *   codes are those of x * (t / top), top = max |x|, and its scale top / t, t the best of AE_KV4_TOPS: the first with the least
 *   squared error, e = |x * (t / top)| - level, summed as that of q8_0; both 0 unless top > 1e-30. Levels take the place of
 *   codes in all sums. The resulting values are still turned, as those of latent rows (below); they are turned back last.
 * The sums over j are exact integers, so they do not depend on the order of j inside a chunk, and kernels may use byte tiles.
 *
 * Latent rows (multi-head latent attention): one page of a layer serves all heads. A row has two parts, n_rope rotated values
 * and head_dim latent ones; both together are the key, the latent ones are the value. P and D are the lengths of the two parts
 * rounded up to 16; each part is padded by itself, the padding is undefined.
 *   AE_KV_F32   f32 [64][n_rope + head_dim]; arithmetic as above, i over the whole row
 *   AE_KV_Q8_0  one plane int8 [4][(P + D) / 4][16][4], place p and element i of the padded row at
 *               [p / 16][i / 4][p % 16][i % 4]; then cd, rd f32 [64], scales of the latent and of the rotated part
 *   AE_KV_F16   two such planes, then the scales: a code is 128 * high + low, low from -64 to 63; the plane of high digits
 *               comes first. AE_KV_I16 and AE_KV_I16_Q8_0 are the same, AE_KV_Q8_0_I16 is Q8_0
 * Each part is turned by itself, as K of q8_0 is, in blocks of h (hc, hr), and gets its own codes and scale: Q8_0 as K of q8_0,
 * F16 as a query: d = top / AE_KV_QUERY and the query's code formula. Both parts of a query get codes too: scales qc, qr.
 *   dot(part) = (float)(sum of plane codes * query codes); with two planes fmaf((float)high sum, 128, (float)low sum)
 *   s_j = fmaf(dot(latent), cd_j * (qc * (scale / hc)), dot(rotated) * (rd_j * (qr * (scale / hr))))
 *   w_j = p_j * cd_j, W and u_j as above;  o[i] = (float)(sum_j u_j * code_j[i]) * (W / AE_KV_WEIGHT); with two planes
 *         fmaf((float)high sum, 128, (float)low sum) * (W / AE_KV_WEIGHT)
 * The resulting values are still turned. So after the factor 1 / L, y is turned once more and multiplied by 1 / hc, which
 * inverts the turn.
 *
 * A row that is key and value (ae_kv_layer.one_row) is stored once, as a key of ae_kv_row_type. f16, f32 and q4_0: arithmetic
 * as above, where V has the numbers of K. q8_0 and i16: V is the turned row with the codes and the scale of K, and y is turned
 * back as that of latent rows. */
typedef struct ae_attn_query {
    const float *q;      /* [head_dim]; for latent rows [n_rope + head_dim] */
    float *y;            /* [head_dim] */
    int32_t own;         /* the query's own position, from which windows are counted */
    int32_t pos;         /* last position that the query sees: `own`, except in a group of rows that see each other */
    int32_t n_inplace;   /* positions below this are in the slot of the same number */
    float slope;         /* slope of the query's head; 0: distance costs nothing */
    const float *bias;   /* bias of the query's head [AE_BIAS_ROW]; or NULL */
    float sink;          /* sink of the query's head, if the tile has sinks */
    const int32_t *path; /* slot of position n_inplace + i */
    int32_t first;       /* the query sees no position before this */
} ae_attn_query;

/* Queries of one sequence and KV head, handled together so that K and V are read once. */
#define AE_ATTN_TILE 16
#define AE_ATTN_WORK ((size_t)192 << 10) /* bytes */

typedef struct ae_attn_tile {
    uint32_t n_queries; /* <= AE_ATTN_TILE */
    ae_attn_query query[AE_ATTN_TILE];
    uint32_t head_dim;
    uint32_t n_rope; /* values of the rotated part of latent rows; otherwise 0 */
    uint32_t window; /* 0 = all */
    bool chunked, has_sinks;
    float scale, softcap;
    const void *base;      /* page 0 of this layer and head */
    size_t page_stride;    /* bytes from page to page */
    const int32_t *table;  /* page numbers of the sequence */
    float *scratch;        /* [AE_ATTN_TILE][head_dim + 64] for the kernel */
    void *work;            /* [AE_ATTN_WORK] for the kernel, 64-byte aligned: too large for the stack of a thread */
    /* If work is split over chunks: for each chunk of [chunk_begin, chunk_end) that a query sees, the kernel stores m, l, o in
     * parts[chunk - chunk_begin][query][AE_ATTN_PART(head_dim)], and does not change y. NULL: all chunks are merged into y. */
    float *parts;
    int32_t chunk_begin, chunk_end;
} ae_attn_tile;

/* Floats of a part: m, l, 14 unused, o [head_dim] and padding. */
#define AE_ATTN_PART(head_dim) (16 + (((size_t)(head_dim) + 15) / 16 * 16))

/* M and L of each query of a tile while parts are merged. */
typedef struct ae_attn_state {
    float m[AE_ATTN_TILE], l[AE_ATTN_TILE];
} ae_attn_state;

static inline int32_t ae_attn_first_seen(const ae_attn_tile *tile, const ae_attn_query *query)
{
    const int32_t window = (int32_t)tile->window;
    if (!window || query->own < window) return query->first;
    const int32_t first = tile->chunked ? query->own / window * window : query->own - window + 1;
    return first > query->first ? first : query->first;
}

/* Returns the last factor of a query's weighted values. */
static inline float ae_attn_finish(const ae_attn_tile *tile, const ae_attn_query *query, float m, float l)
{
    if (!tile->has_sinks) return 1.0f / l;
    const float top = m > query->sink ? m : query->sink, a = ae_attn_exp(m - top);
    return a / fmaf(l, a, ae_attn_exp(query->sink - top));
}

/* A row's queries of index keys, for the scores of positions [first, end); see ae_select. */
typedef struct ae_index_row {
    uint32_t n_heads, head_dim, n_rope; /* sizes of a key: n_rope values of the first part, head_dim of the second */
    const float *q;        /* [n_heads][n_rope + head_dim] */
    const float *weight;   /* [n_heads] */
    float floor;           /* dot products below it, and NaN, count as this: 0 or -INFINITY */
    int32_t first, end;
    int32_t n_inplace;     /* as in ae_attn_query */
    const int32_t *path;
    const void *base;      /* as in ae_attn_tile */
    size_t page_stride;
    const int32_t *table;
    float *score;          /* (out) [end], of which those from `first` on are written */
    float *scratch;        /* as in ae_attn_tile */
    void *work;
} ae_index_row;

/* f16: V follows K inside a page of a layer and head. */
#define AE_KV_K_ELEMENTS(head_dim) ((size_t)AE_KV_PAGE * (head_dim))

/* Returns x as the f16 cache stores it. */
static inline uint16_t ae_kv_half(float x)
{
    return x == x ? ae_f32_to_f16(x) : 0x7E00;
}

/* Types of codes: a page has the bytes of K, those of V, then the scales of both. */
#define AE_KV8_DIM(head_dim) (((size_t)(head_dim) + 15) / 16 * 16)
#define AE_KV8_CODES(head_dim) (AE_KV_PAGE * AE_KV8_DIM(head_dim))
#define AE_KV4_DIM(head_dim) (((size_t)(head_dim) + 31) / 32 * 32) /* of values of 4 bits */

/* Returns the bytes of K and of V in a page of a layer and head. */
static inline size_t ae_kv_key_bytes(ae_kv_type type, uint32_t head_dim)
{
    return AE_KV8_CODES(head_dim) * ae_kv_key_bits(type) / 8;
}

static inline size_t ae_kv_value_bytes(ae_kv_type type, uint32_t head_dim)
{
    const uint32_t bits = ae_kv_value_bits(type);
    return AE_KV_PAGE * (bits == 4 ? AE_KV4_DIM(head_dim) : AE_KV8_DIM(head_dim)) * bits / 8;
}

/* Returns the bytes of a page of a layer and head. */
static inline size_t ae_kv_head_bytes(ae_kv_type type, uint32_t head_dim)
{
    if (ae_kv_key_bits(type))
        return ae_kv_key_bytes(type, head_dim) + ae_kv_value_bytes(type, head_dim) + 2 * AE_KV_PAGE * sizeof(float);
    return 2 * AE_KV_K_ELEMENTS(head_dim) * (type == AE_KV_F32 ? sizeof(float) : sizeof(uint16_t));
}

static inline size_t ae_kv8_k_at(uint32_t head_dim, uint32_t place, uint32_t i)
{
    return ((place / 16 * (AE_KV8_DIM(head_dim) / 4) + i / 4) * 16 + place % 16) * 4 + i % 4;
}

/* Returns the offset from the first plane of V. */
static inline size_t ae_kv_v_at(uint32_t head_dim, uint32_t place, uint32_t i)
{
    return (place / 4 * AE_KV8_DIM(head_dim) + i) * 4 + place % 4;
}

/* Returns the block h of the turn. */
static inline uint32_t ae_kv8_turn(uint32_t head_dim)
{
    return head_dim & (~head_dim + 1);
}

/* Returns the byte of element i at a place, for 4-bit codes. In keys, elements 8 j + k and 8 j + 4 + k (k < 4) share a byte, in
 * values 32 j + k and 32 j + 16 + k (k < 16); the second has the high bits. So no two places share a byte, and threads may
 * write rows of one page at the same time. */
static inline size_t ae_kv4_k_at(uint32_t head_dim, uint32_t place, uint32_t i)
{
    return ((place / 16 * (AE_KV8_DIM(head_dim) / 8) + i / 8) * 16 + place % 16) * 4 + i % 4;
}

static inline size_t ae_kv4_v_at(uint32_t head_dim, uint32_t place, uint32_t i)
{
    return (place / 4 * (AE_KV4_DIM(head_dim) / 2) + i / 32 * 16 + i % 16) * 4 + place % 4;
}

/* Returns the scales of K; those of V follow. */
static inline float *ae_kv_scales(const void *page, ae_kv_type type, uint32_t head_dim)
{
    return (float *)((uintptr_t)page + ae_kv_key_bytes(type, head_dim) + ae_kv_value_bytes(type, head_dim));
}

/* The padded length of a part of latent rows. */
#define AE_LATENT_DIM(n) AE_KV8_DIM(n)

/* Returns the number of planes of codes. */
static inline uint32_t ae_latent_planes(ae_kv_type type)
{
    const uint32_t bits = ae_kv_key_bits(type);
    return bits == 8 || bits == 4 ? 1 : 2;
}

/* Returns the bytes of a page of latent rows. */
static inline size_t ae_latent_bytes(ae_kv_type type, uint32_t head_dim, uint32_t n_rope)
{
    if (type == AE_KV_F32) return (size_t)AE_KV_PAGE * (n_rope + head_dim) * sizeof(float);
    return AE_KV_PAGE * (ae_latent_planes(type) * (AE_LATENT_DIM(n_rope) + AE_LATENT_DIM(head_dim)) + 2 * sizeof(float));
}

/* Returns the scales of the latent part; those of the rotated part follow. */
static inline float *ae_latent_scales(const void *page, uint32_t n_planes, uint32_t head_dim, uint32_t n_rope)
{
    return (float *)((uintptr_t)page + AE_KV_PAGE * n_planes * (AE_LATENT_DIM(n_rope) + AE_LATENT_DIM(head_dim)));
}

/* Returns the high digit of a code of 15 bits; the low digit is code - 128 * high. */
static inline int32_t ae_latent_high(int32_t code) { return (code + 64) >> 7; }

/* ---- Recurrent state -------------------------------------------------------------------------------- */

/* The matrix S of a head is stored in tiles of 16 columns j: [value_dim / 16][key_dim][16], the last tile padded. Lanes hold
 * columns, so no sum over i is ever split. The arithmetic is in backend/recurrent.h. */
#define AE_STATE_TILE 16

/* The recurrence step of one row in one tile. */
typedef struct ae_state_step {
    uint32_t key_dim;    /* a multiple of 4 */
    bool delta;          /* d is computed from v; otherwise d is an input, and y is the dot product without a factor */
    const float *k, *q;  /* [key_dim] */
    float alpha, beta, scale;
    const float *v;      /* [16], only with delta */
    float *d;            /* [16] */
    float *y;            /* [16] */
} ae_state_step;

/* The same for AE_STATE_MAMBA1, in which each state decays at a rate of its own. */
typedef struct ae_scan_step {
    uint32_t key_dim;          /* a multiple of 4 */
    const float *decay;        /* [key_dim][16] */
    const float *k, *q;        /* [key_dim] */
    const float *delta, *d;    /* [16] x 2 */
    float *y;                  /* [16] */
} ae_scan_step;

/* The same for AE_STATE_KDA, in which each key decays at a rate of its own; d is computed from v. */
typedef struct ae_keyed_step {
    uint32_t key_dim;             /* a multiple of 4 */
    const float *alpha, *k, *q;   /* [key_dim] */
    float beta, scale;
    const float *v;               /* [16] */
    float *d, *y;                 /* [16] x 2 */
} ae_keyed_step;

/* The same for AE_STATE_WKV6 and AE_STATE_WKV7. */
typedef struct ae_wkv_step {
    uint32_t key_dim;                 /* a multiple of 4 */
    const float *alpha, *k, *q;       /* [key_dim] */
    const float *erased, *written;    /* WKV7: [key_dim] x 2, kk and kk * a */
    bool after;                       /* WKV6: y is computed from the state after the step, and scaled; otherwise from the state
                                       * before */
    float bonus, scale;               /* WKV6 */
    const float *v;                   /* [16] */
    float *e, *y;                     /* [16] x 2; e: WKV7, an output */
} ae_wkv_step;

/* ---- The table ---------------------------------------------------------------------------------------- */

/* The types of the table's entries; the table says what each computes. */
typedef void ae_rmsnorm_fn(const float *x, const float *norm, float eps, uint32_t n, float *y);
typedef void ae_layernorm_fn(const float *x, const float *norm, const float *bias, float eps, uint32_t n, float *y);
typedef void ae_glu_fn(const float *g, const float *u, float limit, float up_limit, uint32_t n, float *y);
typedef void ae_softcap_fn(const float *x, float cap, uint32_t n, float *y);
typedef void ae_axpy_fn(float a, const float *x, uint32_t n, float *y);
typedef void ae_cutoff_fn(float a, uint32_t n, float *x);
typedef void ae_match_fn(const float *like, float least, uint32_t n, float *x);
typedef void ae_mix_fn(const ae_row_mix *mix, size_t row);
typedef void ae_quant32_fn(const float *x, uint32_t n, int8_t *q, float *d, int32_t *sum, float *s);
typedef void ae_quant256_fn(const float *x, uint32_t n, int8_t *q, float *d, int16_t *bsum);
typedef void ae_rope_fn(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot, ae_rope_kind kind, const float *cos,
                        const float *sin);
typedef void ae_kv_write_fn(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place);
typedef void ae_attention_fn(const ae_attn_tile *tile);
typedef void ae_index_scores_fn(const ae_index_row *row);
typedef void ae_latent_write_fn(const float *row, uint32_t n_rope, uint32_t head_dim, void *page, uint32_t place);
typedef void ae_latent_unturn_fn(float *y, uint32_t n);
typedef void ae_attention_merge_fn(const ae_attn_tile *tile, ae_attn_state *state, bool last);
typedef void ae_l2norm_fn(const float *x, float eps, uint32_t n, float *y);
typedef void ae_conv_fn(const float *const *rows, const float *weight, size_t stride, const float *bias, uint32_t n_taps,
                        uint32_t n, bool silu, float *y);
typedef void ae_state_absorb_fn(float *s, uint32_t key_dim, float alpha, const float *k, const float *d);
typedef void ae_state_step_fn(const float *from, float *to, const ae_state_step *step);
typedef void ae_scan_delta_fn(const float *x, const float *bias, const float *v, float *delta, float *d);
typedef void ae_scan_absorb_fn(float *s, const ae_scan_step *step);
typedef void ae_scan_step_fn(const float *from, float *to, const ae_scan_step *step);
typedef void ae_keyed_decay_fn(const float *x, const float *bias, float decay, float bound, uint32_t n, float *alpha);
typedef void ae_keyed_absorb_fn(float *s, uint32_t key_dim, const float *alpha, const float *k, const float *d);
typedef void ae_keyed_step_fn(const float *from, float *to, const ae_keyed_step *step);
typedef void ae_lerp_fn(const float *d, const float *w, bool add, const float *x, uint32_t n, float *y);
typedef void ae_blend_fn(const float *gate, const float *other, uint32_t n, float *y);
typedef void ae_wkv_decay_fn(const float *x, bool bounded, uint32_t n, float *alpha);
typedef void ae_wkv_keys_fn(const float *kk, const float *ka, uint32_t n, float *k, float *a, float *erased);
typedef float ae_wkv_bonus_fn(const float *k, const float *r, const float *u, uint32_t n);
typedef void ae_wkv_step_fn(const float *from, float *to, const ae_wkv_step *step);
typedef void ae_wkv7_absorb_fn(float *s, const ae_wkv_step *step);

typedef struct ae_kernels {
    const char *level;

    /* y = x * (1 / sqrtf(mean of squares + eps)) * norm, the squares by 64 sums a[k % 64] = fmaf(x[k], x[k], a[k % 64]),
     * k ascending, then ae_sum64; y may be x */
    ae_rmsnorm_fn *rmsnorm;
    /* y = (x - m) * (1 / sqrtf(mean of squares of (x - m) + eps)) * norm (+ bias unless NULL), m the mean; both sums by 64 sums
     * over k % 64 and ae_sum64; y may be x */
    ae_layernorm_fn *layernorm;
    /* y = f(g) * u, or f(g) if u is NULL; kernels by ae_glu, arithmetic in ae_glu_of and ae_glu_times; y may be g */
    ae_glu_fn *glu[AE_GLUS];
    /* y = cap * tanh(x / cap), see ae_softcapf; y may be x */
    ae_softcap_fn *softcap;
    /* y = fmaf(a, x, y) */
    ae_axpy_fn *axpy;
    /* x = max(x - fmaf(a, sqrtf(v), m), 0), m the mean and v the mean of squares of (x - m), summed as in layernorm */
    ae_cutoff_fn *cutoff;
    /* x = x * (sqrtf(l) / sqrtf(max(s, least))), l and s the means of squares of like and x, summed as in rmsnorm */
    ae_match_fn *match;
    /* one row of ae_row_mix */
    ae_mix_fn *mix;
    /* convert one row of activations to int8 */
    ae_quant32_fn *quant32;
    ae_quant256_fn *quant256;

    ae_mm_fn *mm_plain;     /* for any integer type in the file's layout: the reference */
    ae_mm_fn *mm_p16_32[2]; /* packed AE_DOT_32, [0] 4-bit codes, [1] wider; NULL: not at this level */
    ae_mm_fn *mm_p16_256[2]; /* packed AE_DOT_256, likewise */
    ae_mm_fn *mm_tiles_32, *mm_tiles_256; /* the same from the tiled form of ae_act, n_in >= AE_TILES_IN, which is faster from
                                           * some number of rows on; NULL: not at this level */
    ae_mm_fn *mm_f32, *mm_f16, *mm_bf16; /* the file's layout */

    /* one row: rotates pairs by cos, sin [n_rot/2]; a*c - b*s, a*s + b*c, products rounded before the sum */
    ae_rope_fn *rope;
    /* writes k, v [head_dim] f32 as the type to place `place` of a page; by ae_kv_type */
    ae_kv_write_fn *kv_write[AE_KV_TYPES];
    ae_attention_fn *attention[AE_KV_TYPES];
    /* writes row [n_rope + head_dim] to place `place` of a page of latent rows */
    ae_latent_write_fn *latent_write[AE_KV_TYPES];
    ae_attention_fn *latent_attention[AE_KV_TYPES]; /* for types of codes, y is still turned */
    ae_index_scores_fn *index_scores[AE_KV_TYPES]; /* over latent rows */
    ae_latent_unturn_fn *latent_unturn; /* inverts the turn of y */
    /* merges the parts of the tile's chunks, ascending, into y and state; the first chunk that a query sees starts both; last:
     * y is multiplied by its last factor */
    ae_attention_merge_fn *attention_merge;

    /* y = x * (1 / sqrtf(sum of squares as in rmsnorm + eps)); y may be x */
    ae_l2norm_fn *l2norm;
    /* convolution of n channels: rows[n_taps] point to the inputs, oldest first; weight [n_taps][stride]; bias [n] or NULL */
    ae_conv_fn *conv;
    /* s [key_dim][16]: s_i = fmaf(alpha, s_i, k_i * d) */
    ae_state_absorb_fn *state_absorb;
    /* computes the state `to` from the state `from` (they may be the same), y, and with delta d */
    ae_state_step_fn *state_step;
    /* delta = softplus(x + bias (0 if NULL)), d = v * delta, 16 of each */
    ae_scan_delta_fn *scan_delta;
    /* s_ij = fmaf(e(delta_j * decay_ij), s_ij, k_i * d_j), e = ae_expf */
    ae_scan_absorb_fn *scan_absorb;
    /* computes the state `to` from the state `from` (they may be the same), and y */
    ae_scan_step_fn *scan_step;
    /* alpha [n] of x [n], bias [n] or NULL, as backend/recurrent.h says of KDA */
    ae_keyed_decay_fn *keyed_decay;
    /* s_i = fmaf(k_i, d, alpha_i * s_i) */
    ae_keyed_absorb_fn *keyed_absorb;
    /* computes the state `to` from the state `from` (they may be the same), d and y */
    ae_keyed_step_fn *keyed_step;
    /* y = fmaf(d, m, x), m = w, with add y + w, with add and without w (NULL) y; y may be neither d nor x */
    ae_lerp_fn *lerp;
    /* y = fmaf(1 / (1 + ae_expf(-gate)), other - y, y) */
    ae_blend_fn *blend;
    /* alpha = ae_expf(-ae_expf(x)), bounded ae_expf(AE_WKV_BOUND / (1 + ae_expf(-x))) */
    ae_wkv_decay_fn *wkv_decay;
    /* erased = k * kk; a = 1 / (1 + ae_expf(-a)); k = fmaf(k * ka, a - 1, k), k and a in place */
    ae_wkv_keys_fn *wkv_keys;
    /* sum of (k * r) * u by 64 sums over i % 64 and ae_sum64 */
    ae_wkv_bonus_fn *wkv_bonus;
    /* compute the state `to` from the state `from` (they may be the same) and y, WKV7's e too */
    ae_wkv_step_fn *wkv6_step, *wkv7_step;
    /* t = alpha_i * s_i; t = fmaf(written_i, e, t); s_i = fmaf(k_i, v, t) */
    ae_wkv7_absorb_fn *wkv7_absorb;
} ae_kernels;

/* Sets the entries of latent rows for all types with codes: those with 15 bits and those with 8. */
void ae_kernels_latent(ae_kernels *k, ae_latent_write_fn *write15, ae_latent_write_fn *write8, ae_attention_fn *attention15,
                       ae_attention_fn *attention8);
void ae_kernels_index(ae_kernels *k, ae_index_scores_fn *scores15, ae_index_scores_fn *scores8);

/* Each level, in ascending order, sets the entries that it improves. */
void ae_kernels_ref(ae_kernels *kernels);
#if defined(__x86_64__)
void ae_kernels_avx2(ae_kernels *kernels);
void ae_kernels_avxvnni(ae_kernels *kernels);
void ae_kernels_avx512(ae_kernels *kernels);
void ae_kernels_amx(ae_kernels *kernels);
#elif defined(__aarch64__)
void ae_kernels_neon(ae_kernels *kernels);
void ae_kernels_dotprod(ae_kernels *kernels);
void ae_kernels_i8mm(ae_kernels *kernels);
#endif

/* Fills the table with all levels that this CPU supports, ascending, up to and including `name`; NULL: all levels.
 * Returns false if the name is unknown. *supported: this CPU has the named level. */
bool ae_kernels_select(ae_kernels *kernels, const char *name, bool *supported);
/* Returns "ref, avx2, avxvnni, avx512, amx". */
const char *ae_kernels_known(void);

/* Lays out the memory of n_rows rows of up to n_in elements, with `tiled` rows (0: none) in the tiled form (activation.c). */
void ae_act_layout(ae_layout *layout, size_t n_rows, size_t n_in, size_t tiled, ae_act *act);
/* Returns a view of rows [first, first + n) of `all`, with their tiles from group i_tile on. */
ae_act ae_act_slice(const ae_act *all, uint32_t first, uint32_t i_tile, uint32_t n);
/* Copies row `from` of x in the row form to row `to` of y, in the forms that are needed; n_in of both must be equal. */
void ae_act_copy_row(const ae_act *x, uint32_t from, const ae_act *y, uint32_t to, const ae_act_need *need);
/* Makes the tiled form of blocks [begin, end) of 32 k, all rows, from the row form of AE_DOT_32 or AE_DOT_256 (activation.c).
 * */
void ae_act_tile(ae_act *act, ae_dot dot, uint32_t begin, uint32_t end);
/* The same for the forms that are needed with act's number of rows. */
void ae_act_tile_needed(ae_act *act, const ae_act_need *need, uint32_t begin, uint32_t end);

/* ---- Packing (pack.c) --------------------------------------------------------------------------------- */

/* Fills all fields of the packed form of a type except codes and scales; returns false if the type cannot be packed. */
bool ae_pack_plan(uint32_t type, uint32_t n_out, uint32_t n_in, ae_packed *packed);
/* Pack panels [begin, end) of a weight with n_out rows into packed->codes and ->scales; plain: the rows of these panels in the
 * file's layout. _generic converts through the integer view and defines the packed form. */
void ae_pack_panels_generic(uint32_t type, const uint8_t *plain, uint32_t n_out, uint32_t n_in, const ae_packed *packed,
                            uint32_t begin, uint32_t end);
void ae_pack_panels(uint32_t type, const uint8_t *plain, uint32_t n_out, uint32_t n_in, const ae_packed *packed,
                    uint32_t begin, uint32_t end);

/* Packs one unit of 16 rows: `block` is the first row's block, the others follow at `stride` bytes. Returns the next position
 * in scales. */
typedef uint8_t *ae_pack_unit_fn(const uint8_t *block, size_t stride, uint8_t *codes, uint8_t *scales);
/* Returns the packer of a type; NULL for a type without a packer of its own (pack_fast.c). */
ae_pack_unit_fn *ae_pack_fast(uint32_t type);

#endif
