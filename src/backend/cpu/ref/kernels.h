/* kernels.h - the table of CPU kernels, and the data they share: prepared activations, packed weights.
 *
 * A level (ref, avx2, avx512, ...) fills the table over the one below it and leaves what it does not
 * improve. Kernels know nothing of threads: they get a range of output rows or a tile of queries.
 * Every kernel of a slot gives the same bits as the one in cpu/ref, which defines the arithmetic.
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
 * Which NaN an operation returns depends on the machine; its sign and payload are outside the law. What is stored and compared
 * as bytes, the KV cache, has one form for all.
 */
#ifndef AE_BACKEND_CPU_REF_KERNELS_H
#define AE_BACKEND_CPU_REF_KERNELS_H

#include "backend/backend.h"
#include "base/math/fmath.h"
#include "base/mem.h"
#include "quant/types.h"

/* AE_DOT_256: |sub * code| is at most this in every type (Q6_K: 128 * 32), so p stays below 2^27 and int32 holds it
 * whatever the order. With codes as they are packed, code + zero <= 255, it would stay below 2^30. */
#define AE_UNIT_TOP 4096

#define AE_PANEL 16     /* output rows interleaved in a packed weight */
#define AE_TILE_ROWS 16 /* activation rows in a tile */
#define AE_TILES_IN 128 /* columns that a product by tiles must have at least */

/* ---- Activations, prepared once for all weights that share them ------------------------------- */

/* Codes that the largest element of a group may get: eight scales are tried. Rounding errors of 32 elements vary from
 * scale to scale, so the best of eight leaves less squared error than always 127. Whole numbers, because the largest
 * element often matters most and is then exact. SmolLM2 Q4_1, 6144 tokens, KL divergence from float arithmetic: always
 * 127 about 3.6e-3, these 3.13e-3, sixteen 3.03e-3, eight from 127.4 in steps of 0.7 about 3.4e-3; llama.cpp 3.39e-3. */
#define AE_QUANT_TRIES 8
#define AE_QUANT_TOPS {127, 126, 125, 124, 123, 122, 121, 120}

typedef struct ae_act {
    uint32_t n_rows, n_in;
    /* f32 as they enter the product */
    float *x;       /* [n_rows][n_in] */
    /* AE_DOT_32: int8 in groups of 32. For each t of AE_QUANT_TOPS: inv = t / max|x|, q = round-to-even(x * inv),
     * e = fmaf(x, inv, -q), error = ae_sum16 of e * e over k % 16, times (max|x| / t)^2; the t of least error
     * (the first of equals) gives q and d = max|x| / t. */
    int8_t *q32;    /* [n_rows][ae_act_stride(n_in)], in [-127, 127] */
    float *d32;     /* [n_rows][n_in / 32] */
    int32_t *sum32; /* [n_rows][n_in / 32] sum of q */
    float *s32;     /* [n_rows][n_in / 32] d * (float)sum */
    /* AE_DOT_256: in groups of 256, d = max|x| / 127, q = round-to-even(x * (127 / max|x|)) */
    int8_t *q256;   /* [n_rows][ae_act_stride(n_in)] */
    float *d256;    /* [n_rows][n_in / 256] */
    int16_t *bsum;  /* [n_rows][n_in / 16] sum of 16 q */
    /* The same by tiles, for the kernels that want it (ae_kernels.mm_tiles_*): rows in groups of 16, a tile is 16 rows x 32 or
     * 64 k and contiguous, tiles of a group in ascending k. The last group's missing rows are undefined. */
    int8_t *t32;          /* [n_groups][n_in / 32][16][32] q32; of few rows [n_in / 64][2][m][2][32], see ae_act_pair_rows */
    float *td32, *ts32;   /* [n_groups][n_in / 32][16] d32, s32 */
    int8_t *t256;         /* [n_groups][n_in / 64][16][64] q256 */
    float *td256;         /* [n_groups][n_in / 256][16] d256 */
    int16_t *tb16, *tb32; /* [n_groups][n_in / 256][8 or 4][16][2] sums of 16 and of 32 q256, two neighbours side by side */
} ae_act;

/* Bytes from row to row of int8 codes. Where rows lie a multiple of 1024 bytes apart, the same columns of 4, 8 or all of 16
 * rows fall into one set of the first-level cache, which has 8 to 12 lines: each product would read them from the second. */
static inline size_t ae_act_stride(size_t n_in)
{
    return n_in % 1024 ? n_in : n_in + 64;
}

/* Few rows leave most of a tile empty, and a product takes as long. So two blocks of 32 k stand in one tile of 64 k, one
 * below the other in 2 m rows: the first m have the first block's k and zeros, the others zeros and the second block's k. m is
 * 4 or 8; 0: there are more rows, or too few columns for chunks of six blocks. A function of n_rows and n_in alone. */
static inline uint32_t ae_act_pair_rows(const ae_act *act)
{
    const uint32_t pairs = act->n_in / 64, chunks = (act->n_in + 511) / 512;
    if (act->n_rows > 8 || act->n_in % 64 || pairs < 3 * chunks) return 0;
    return act->n_rows > 4 ? 8 : 4;
}

/* ---- Weights ------------------------------------------------------------------------------------ */

/* P16: panels of 16 output rows (the last one padded with zero weights). Two streams per panel, both
 * in ascending k, but for the places of lines:
 *   codes   per 32 k a block of code_bits lines of 64 bytes, at ae_lines_of(). Group g holds k = 4g .. 4g + 3, j = k % 4:
 *             8 bits: byte [row * 4 + j] of line g
 *             4 bits: byte [row * 4 + j] of line v has group 2v in its low nibble, 2v + 1 in its high one
 *             5 bits: as 4, then a line: bit g of byte [row * 4 + j] is bit 4 of the code
 *             6 bits: as 4, then two lines: bits 2 (g % 4) of byte [row * 4 + j] of line 4 + g / 4 are bits 4, 5
 *           codes are stored unsigned, code + zero; with has_lut (4 bits) as an index: lut[i] = code + zero.
 *           zero is 0 if has_min. Unsigned 8-bit codes stay below 128 unless zero is 128; of a lut with
 *           zero below 16 they stay below 32.
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
    bool has_lut;       /* 4-bit indices of unevenly spaced codes */
    uint8_t lut[16];
    uint32_t n_units, n_blocks;    /* per row: of 32 or 256 k; of 32 k */
    uint32_t n_panels, run_panels; /* all of codes; those that share a run (ae_run_panels) */
    bool in_order;       /* blocks of codes stand one after the other, in ascending k, panel after panel */
    size_t scale_stride; /* bytes per panel */
    uint8_t *codes;      /* [ae_code_bytes], 64-byte aligned */
    uint8_t *scales;     /* [n_panels][scale_stride], 64-byte aligned */
} ae_packed;

/* Codes stand in one of two orders; choose.c measures which.
 * in_order: block after block in ascending k, panel after panel, the lines of 64 bytes of a block side by side.
 * Else in runs of whole panels, and in a run first line 0 of all blocks, then line 1, ...: a walk reads 4 to 8 places, each of
 * them line after line. Processors fetch ahead inside a page only, and few lines of each, so several places give more than one,
 * and long ones more than short ones. Read bandwidth of the same pattern, 2 cores of a Granite Rapids VM, medians of 7, GB/s:
 * one place 29; four places of 4 KiB, walked block after block, 31.3; four places of 16, 32, 64 KiB, line after line, 31.0,
 * 33.1, 33.8, of 128 and 256 KiB no more; with prefetches only 1 KiB ahead 9 % less.
 * A Zen 5 reads one place, fetched well ahead, faster than four: products with one row and two threads, 2,048 columns, in runs
 * and in order: Q4_K with AVX-512 35 and 51 GB/s, Q4_0 with AVX2 30 and 42. */
#define AE_LINE 64
#define AE_RUN 4096 /* blocks at most, but no less than a row */

/* Panels that share a run, for rows of n blocks. */
static inline uint32_t ae_run_panels(uint32_t n)
{
    return n < AE_RUN ? AE_RUN / n : 1;
}

/* Lines from one place of a run of n blocks to the next. Up to 15 are left out, so that the places lie in different sets of a
 * first cache with 4 KiB per way: Q4_0, 4,096 columns, 1, 4, 8, 16 rows on the same VM 2.3, 2.4, 3.1, 5.9 ms without and 2.2,
 * 2.3, 3.0, 5.9 with them, 2.5, 2.7, 3.1, 5.8 where four places of 4 KiB were walked block after block. */
static inline uint32_t ae_run_lines(uint32_t n)
{
    const uint32_t past = n % 32;
    return past < 8 ? n + 8 - past : past > 24 ? n + 40 - past : n;
}

static inline size_t ae_run_bytes(const ae_packed *p, uint32_t n)
{
    return n ? (size_t)ae_run_lines(n) * p->code_bits * AE_LINE : 0;
}

/* Bytes of the codes of a weight, in either order. */
static inline size_t ae_code_bytes(const ae_packed *p)
{
    const uint32_t full = p->n_panels / p->run_panels, rest = p->n_panels % p->run_panels;
    return full * ae_run_bytes(p, p->run_panels * p->n_blocks) + ae_run_bytes(p, rest * p->n_blocks);
}

/* The run of a panel. */
typedef struct ae_run {
    size_t at;       /* bytes from the weight's codes */
    uint32_t n;      /* blocks */
    uint32_t begin;  /* the panel's first block */
    uint32_t n_next; /* blocks of the run after it; 0: there is none */
} ae_run;

static inline ae_run ae_run_of(const ae_packed *p, uint32_t panel)
{
    const uint32_t most = p->run_panels, i = panel / most, in = panel % most, left = p->n_panels - i * most;
    const uint32_t n = left < most ? left : most, next = left - n < most ? left - n : most;
    return (ae_run){i * ae_run_bytes(p, most * p->n_blocks), n * p->n_blocks, in * p->n_blocks, next * p->n_blocks};
}

/* The lines of a block, in bytes. */
typedef struct ae_lines {
    size_t at;            /* of the first one, from the weight's codes */
    ptrdiff_t line, step; /* from a line of the block to the next; from a line to the same of the panel's next block */
} ae_lines;

/* run: of the panel */
static inline ae_lines ae_lines_of(const ae_packed *p, const ae_run *run, uint32_t panel, uint32_t block)
{
    const size_t bytes = (size_t)p->code_bits * AE_LINE;
    if (p->in_order) return (ae_lines){((size_t)panel * p->n_blocks + block) * bytes, AE_LINE, (ptrdiff_t)bytes};
    return (ae_lines){run->at + (size_t)(run->begin + block) * AE_LINE, (ptrdiff_t)ae_run_lines(run->n) * AE_LINE, AE_LINE};
}

#define AE_MM_SCRATCH ((size_t)48 << 10) /* bytes that a product may need for itself: too many for a small stack */

typedef struct ae_mm_out {
    float *y;          /* [n_rows][stride] */
    size_t stride;
    const float *bias; /* [n_out] or NULL */
    bool add;
    void *scratch;     /* [AE_MM_SCRATCH], 64-byte aligned, for this call alone */
} ae_mm_out;

/* Outputs [begin, end) of all rows of act; begin is a multiple of 16, end too or n_out. */
typedef void ae_mm_fn(const ae_weight *weight, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end);

struct ae_weight {
    uint32_t type, n_out, n_in;
    ae_dot dot;
    const uint8_t *plain; /* [n_out][row_bytes] the file's layout; NULL if only the packed form is kept */
    size_t row_bytes;
    ae_packed packed;     /* in place: the form without memory; panels are packed one at a time, as they are used */
    bool in_place;
    uint8_t *own;         /* [n_out][row_bytes] plain, where it is to be filled; else NULL */
    bool has_scale, has_row_scale; /* else 1, and nothing is multiplied */
    float scale, row_scale; /* of products' sums; of rows that are looked up */
    ae_mm_fn *mm, *mm_tiles; /* the second: for tiles_from rows or more, or NULL */
    uint32_t tiles_from;     /* chosen when the weight was created, see choose.c; AE_NO_TILES: never */
};

#define AE_NO_TILES UINT32_MAX

/* What the readers of prepared rows want of them. */
typedef struct ae_act_need {
    bool rows[4];           /* by ae_dot: the row form */
    uint32_t tiles_from[4]; /* by ae_dot: the tiled form, if there are so many rows; 0: never */
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
 *   AE_KV_F32   K, V f32 [64][head_dim]
 * Arithmetic, for one query: chunks of 64 logical positions from the first one inside the window to the
 * query's own, ascending. In a chunk with positions j (those seen):
 *   s_j is the score (below), with a softcap ae_softcapf of it
 *   m = max s_j (from -inf, NaN never);  p_j = e(s_j - m);  l = ae_sum16 of sums over j % 16, j ascending (j = position)
 *   o[i] is the weighted sum of the values (below)
 * first chunk: M = m, L = l, O = o; later: N = max(M, m), a = e(M - N), b = e(m - N),
 *   L = fmaf(L, a, l * b), O[i] = fmaf(O[i], a, o[i] * b), M = N.
 * y[i] = O[i] * (1 / L). With a sink s: N = max(M, s), a = e(M - N), y[i] = O[i] * (a / fmaf(L, a, e(s - N))).
 * e(x) = ae_expf(max(x, AE_ATTN_LOWEST)) (NaN: of AE_ATTN_LOWEST).
 * f16, f32:  q = query * scale;  s_j = fmaf(k_j[i], q[i], s_j), i ascending from 0;  o[i] = fmaf(p_j, v_j[i], o[i]), j
 * ascending
 *       from 0.
 *       K and V are stored to nearest even; NaN as 0x7E00, whatever its sign and payload.
 * q8_0: rows of K and V, one by one, become codes and a scale as AE_DOT_32 activations do (ae_act: the best of AE_QUANT_TOPS),
 *   but squared errors are summed as a row's: 64 sums over i % 64, then ae_sum64. The code of a NaN is -127.
 *   Before, K is turned, as is the query: in blocks of h, the largest power of two that divides head_dim, (a, b) = (a + b,
 *   a - b) of elements 1, 2, 4 .. h / 2 apart. That multiplies products by h and spreads the few large elements that keys
 *   have over the row, so that they cost the others fewer bits.
 *   The turned query: top = max |x|, qd = top / AE_KV_QUERY, qc = round-to-even(x * (AE_KV_QUERY / top)), -AE_KV_QUERY of a
 * NaN;
 *   0 unless top > 1e-30.
 *   s_j = (float)(sum_i kc_j[i] * qc[i]) * (kd_j * (qd * (scale / h))); sums of codes are exact
 *   w_j = p_j * vd_j, W = max w_j (from 0), u_j = round-to-even(w_j * (AE_KV_WEIGHT / W))
 *   o[i] = (float)(sum_j u_j * vc_j[i]) * (W / AE_KV_WEIGHT); 0 unless W > 1e-30
 * The order of j inside a chunk is of no account in these sums, which is what lets tiles of bytes compute them.
 *
 * Latent rows (multi-head latent attention): one page of a layer serves all heads. A row has two parts, n_rope rotated values
 * and head_dim latent ones; both together are the key, the latent ones are the value. P and D are the parts rounded up to 16,
 * each part padded by itself, the padding undefined.
 *   AE_KV_F32   f32 [64][n_rope + head_dim]; arithmetic as above, i over the whole row
 *   AE_KV_Q8_0  one plane int8 [4][(P + D) / 4][16][4], place p and element i of the padded row at [p / 16][i / 4][p % 16][i %
 * 4];
 *               then cd, rd f32 [64], scales of the latent and of the rotated part
 *   AE_KV_F16   two such planes, then the scales: a code is 128 * high + low, low from -64 to 63, the high digits' plane first
 * Each part is turned by itself, as K of q8_0 is, in blocks of h (hc, hr), and becomes codes and a scale by itself: Q8_0 as
 * there, F16 as a query's codes do: d = top / AE_KV_QUERY, the codes those. So are both parts of a query: scales qc, qr.
 *   dot(part) = (float)(sum of plane codes * query codes), of two planes fmaf((float)high sum, 128, (float)low sum)
 *   s_j = fmaf(dot(latent), cd_j * (qc * (scale / hc)), dot(rotated) * (rd_j * (qr * (scale / hr))))
 *   w_j = p_j * cd_j, W and u_j as above;  o[i] = (float)(sum_j u_j * code_j[i]) * (W / AE_KV_WEIGHT), of two planes
 *         fmaf((float)high sum, 128, (float)low sum) * (W / AE_KV_WEIGHT)
 * The values that come out are turned, too: in the end, after 1 / L, y is turned back: turned once more, times 1 / hc. */
/* e^-60 is nothing compared with 1, yet products with it are normal numbers: subnormal ones take a CPU a hundred cycles (1B
 * shape, random weights, 16 rows after 4096 positions: half of the time of attention over q8_0). */
#define AE_ATTN_LOWEST (-60.0f)
#define AE_KV_WEIGHT 16383.0f /* two digits of seven bits: as bytes they are signed and unsigned at once */
#define AE_KV_QUERY 16256.0f  /* two signed digits, 128 * hi + lo with lo from -64 to 63 */

typedef struct ae_attn_query {
    const float *q;      /* [head_dim]; of latent rows [n_rope + head_dim] */
    float *y;            /* [head_dim] */
    int32_t pos;         /* own position */
    int32_t n_inplace;   /* positions below this are at the slot of the same number */
    float sink;          /* its head's, if the tile has sinks */
    const int32_t *path; /* slot of position n_inplace + i */
} ae_attn_query;

/* Queries of one sequence and KV head, handled together so that K and V are read once. */
#define AE_ATTN_TILE 16
#define AE_ATTN_WORK ((size_t)192 << 10) /* bytes */

typedef struct ae_attn_tile {
    uint32_t n_queries; /* <= AE_ATTN_TILE */
    ae_attn_query query[AE_ATTN_TILE];
    uint32_t head_dim;
    uint32_t n_rope; /* latent rows: values of the rotated part; else 0 */
    uint32_t window; /* 0 = all */
    bool chunked, has_sinks;
    float scale, softcap;
    const void *base;      /* page 0, this layer and head */
    size_t page_stride;    /* bytes from page to page */
    const int32_t *table;  /* page numbers of the sequence */
    float *scratch;        /* [AE_ATTN_TILE][head_dim + 64] for the kernel */
    void *work;            /* [AE_ATTN_WORK] for the kernel, 64-byte aligned: too much for the stack of a small thread */
    /* Work split over chunks: of the chunks [chunk_begin, chunk_end) that a query sees, its m, l, o go to
     * parts[chunk - chunk_begin][query][AE_ATTN_PART(head_dim)], and y is left alone. NULL: all chunks, merged to y. */
    float *parts;
    int32_t chunk_begin, chunk_end;
} ae_attn_tile;

/* Floats of a part: m, l, 14 unused, o [head_dim] and padding. */
#define AE_ATTN_PART(head_dim) (16 + (((size_t)(head_dim) + 15) / 16 * 16))

/* Where merging parts stands: queries of a tile. */
typedef struct ae_attn_state {
    float m[AE_ATTN_TILE], l[AE_ATTN_TILE];
} ae_attn_state;

static inline int32_t ae_attn_first_seen(const ae_attn_tile *tile, const ae_attn_query *query)
{
    const int32_t window = (int32_t)tile->window;
    if (!window || query->pos < window) return 0;
    return tile->chunked ? query->pos / window * window : query->pos - window + 1;
}

/* e of the arithmetic above */
static inline float ae_attn_exp(float x)
{
    return ae_expf(x > AE_ATTN_LOWEST ? x : AE_ATTN_LOWEST);
}

/* What a query's weighted values are multiplied by in the end. */
static inline float ae_attn_finish(const ae_attn_tile *tile, const ae_attn_query *query, float m, float l)
{
    if (!tile->has_sinks) return 1.0f / l;
    const float top = m > query->sink ? m : query->sink, a = ae_attn_exp(m - top);
    return a / fmaf(l, a, ae_attn_exp(query->sink - top));
}

/* f16: V follows K inside a page of a layer and head. */
#define AE_KV_K_ELEMENTS(head_dim) ((size_t)AE_KV_PAGE * (head_dim))

/* What f16 holds of x. */
static inline uint16_t ae_kv_half(float x)
{
    return x == x ? ae_f32_to_f16(x) : 0x7E00;
}

/* q8_0: bytes of K, of V; scales after both. */
#define AE_KV8_DIM(head_dim) (((size_t)(head_dim) + 15) / 16 * 16)
#define AE_KV8_CODES(head_dim) (AE_KV_PAGE * AE_KV8_DIM(head_dim))

#define AE_KV8_BYTES(head_dim) (2 * AE_KV8_CODES(head_dim) + 2 * AE_KV_PAGE * sizeof(float))

static inline size_t ae_kv8_k_at(uint32_t head_dim, uint32_t place, uint32_t i)
{
    return ((place / 16 * (AE_KV8_DIM(head_dim) / 4) + i / 4) * 16 + place % 16) * 4 + i % 4;
}

static inline size_t ae_kv8_v_at(uint32_t head_dim, uint32_t place, uint32_t i)
{
    return AE_KV8_CODES(head_dim) + (place / 4 * AE_KV8_DIM(head_dim) + i) * 4 + place % 4;
}

/* The block of the turn. */
static inline uint32_t ae_kv8_turn(uint32_t head_dim)
{
    return head_dim & (~head_dim + 1);
}

/* Scales of K; those of V follow. */
static inline float *ae_kv8_scales(const void *page, uint32_t head_dim)
{
    return (float *)((uintptr_t)page + 2 * AE_KV8_CODES(head_dim));
}

/* Latent rows. A part, padded; planes of codes; bytes of a page; scales of the latent part, those of the rotated one follow. */
#define AE_LATENT_DIM(n) AE_KV8_DIM(n)

static inline uint32_t ae_latent_planes(ae_kv_type type) { return type == AE_KV_Q8_0 ? 1 : 2; }

static inline size_t ae_latent_bytes(ae_kv_type type, uint32_t head_dim, uint32_t n_rope)
{
    if (type == AE_KV_F32) return (size_t)AE_KV_PAGE * (n_rope + head_dim) * sizeof(float);
    return AE_KV_PAGE * (ae_latent_planes(type) * (AE_LATENT_DIM(n_rope) + AE_LATENT_DIM(head_dim)) + 2 * sizeof(float));
}

static inline float *ae_latent_scales(const void *page, uint32_t n_planes, uint32_t head_dim, uint32_t n_rope)
{
    return (float *)((uintptr_t)page + AE_KV_PAGE * n_planes * (AE_LATENT_DIM(n_rope) + AE_LATENT_DIM(head_dim)));
}

/* The high digit of a code of 15 bits; the low one is what it leaves. */
static inline int32_t ae_latent_high(int32_t code) { return (code + 64) >> 7; }

/* ---- Recurrent state -------------------------------------------------------------------------------- */

/* A matrix S of a head stands in tiles of 16 columns j: [value_dim / 16][key_dim][16], the last tile padded. Lanes hold
 * columns, so no sum over i is ever split. The arithmetic is in backend/recurrent.h. */
#define AE_STATE_TILE 16

/* One row's step of one tile. */
typedef struct ae_state_step {
    uint32_t key_dim;    /* a multiple of 4 */
    bool delta;          /* d is computed from v; else it is given, and y is the bare dot */
    const float *k, *q;  /* [key_dim] */
    float alpha, beta, scale;
    const float *v;      /* [16], delta alone */
    float *d;            /* [16] */
    float *y;            /* [16] */
} ae_state_step;

/* ---- Activations ------------------------------------------------------------------------------------ */

#define AE_GELU_A (-1.5957691216057308f) /* -2 sqrt(2 / pi) */
#define AE_GELU_B 0.044715f
#define AE_OAI_A (-1.702f)

static inline float ae_minf(float a, float b) { return a < b ? a : b; }
static inline float ae_maxf(float a, float b) { return a > b ? a : b; }

/* f(g) of ae_glu */
static inline float ae_glu_of(ae_glu kind, float g, float limit)
{
    switch (kind) {
    case AE_GLU_SILU: return ae_siluf(g);
    case AE_GLU_GELU: return g / (1.0f + ae_expf(AE_GELU_A * fmaf(AE_GELU_B * (g * g), g, g)));
    case AE_GLU_RELU2: return ae_maxf(g, 0.0f) * ae_maxf(g, 0.0f);
    case AE_GLU_SIGMOID: return 1.0f / (1.0f + ae_expf(-g));
    case AE_GLU_OAI: return ae_minf(g, limit) / (1.0f + ae_expf(AE_OAI_A * ae_minf(g, limit)));
    case AE_GLU_SILU_CLAMPED: return ae_minf(ae_siluf(g), limit);
    case AE_GLUS: break;
    }
    return 0.0f;
}

/* What f(g) is multiplied by. */
static inline float ae_glu_times(ae_glu kind, float u, float limit)
{
    if (kind == AE_GLU_OAI) return ae_maxf(ae_minf(u, limit), -limit) + 1.0f;
    if (kind == AE_GLU_SILU_CLAMPED) return ae_maxf(ae_minf(u, limit), -limit);
    return u;
}

/* cap * tanh(x / cap) = cap * (1 - 2 / (e^(2 x / cap) + 1)); the last term keeps what is not finite visible. */
static inline float ae_softcapf(float x, float cap)
{
    const float t = x / cap;
    return fmaf(x, 0.0f, cap * (1.0f - 2.0f / (ae_expf(t + t) + 1.0f)));
}

/* ---- The table ---------------------------------------------------------------------------------------- */

typedef struct ae_kernels {
    const char *level;

    /* y = x * (1 / sqrtf(mean of squares + eps)) * norm, the squares by 64 sums a[k % 64] = fmaf(x[k], x[k], a[k % 64]),
     * k ascending, then ae_sum64; y may be x */
    void (*rmsnorm)(const float *x, const float *norm, float eps, uint32_t n, float *y);
    /* y = (x - m) * (1 / sqrtf(mean of squares of (x - m) + eps)) * norm (+ bias unless NULL), m the mean; both sums by 64 sums
     * over k % 64 and ae_sum64; y may be x */
    void (*layernorm)(const float *x, const float *norm, const float *bias, float eps, uint32_t n, float *y);
    /* y = f(g) * u, u NULL: f(g); kernels by ae_glu, arithmetic in ae_glu_of and ae_glu_times; y may be g */
    void (*glu[AE_GLUS])(const float *g, const float *u, float limit, uint32_t n, float *y);
    /* y = cap * tanh(x / cap), see ae_softcapf; y may be x */
    void (*softcap)(const float *x, float cap, uint32_t n, float *y);
    /* y = fmaf(a, x, y) */
    void (*axpy)(float a, const float *x, uint32_t n, float *y);
    /* one row of activations to int8 */
    void (*quant32)(const float *x, uint32_t n, int8_t *q, float *d, int32_t *sum, float *s);
    void (*quant256)(const float *x, uint32_t n, int8_t *q, float *d, int16_t *bsum);

    ae_mm_fn *mm_plain;     /* any integer type, the file's layout: the reference */
    ae_mm_fn *mm_p16_32[2]; /* AE_DOT_32, packed, [0] 4-bit codes, [1] wider; NULL: not at this level */
    ae_mm_fn *mm_p16_256[2];
    ae_mm_fn *mm_tiles_32, *mm_tiles_256; /* the same, packed, from the tiled form of ae_act, n_in >= AE_TILES_IN; NULL: not
                                           * at this level. They pay from some number of rows on */
    ae_mm_fn *mm_f32, *mm_f16, *mm_bf16; /* the file's layout */

    /* one row: pairs rotated by cos, sin [n_rot/2]; a*c - b*s, a*s + b*c, products rounded before the sum */
    void (*rope)(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot, ae_rope_kind kind, const float *cos,
                 const float *sin);
    /* k, v [head_dim] f32 to f16 or q8_0, at place `place` of a page; by ae_kv_type */
    void (*kv_write[AE_KV_TYPES])(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place);
    void (*attention[AE_KV_TYPES])(const ae_attn_tile *tile);
    /* row [n_rope + head_dim] to place `place` of a page of latent rows */
    void (*latent_write[AE_KV_TYPES])(const float *row, uint32_t n_rope, uint32_t head_dim, void *page, uint32_t place);
    void (*latent_attention[AE_KV_TYPES])(const ae_attn_tile *tile); /* y of codes is left turned */
    void (*latent_unturn)(float *y, uint32_t n);
    /* the tile's parts of its chunks, ascending, to y and state, which begin with the first chunk that a query sees; last:
     * y is finished */
    void (*attention_merge)(const ae_attn_tile *tile, ae_attn_state *state, bool last);

    /* y = x * (1 / sqrtf(sum of squares as in rmsnorm + eps)); y may be x */
    void (*l2norm)(const float *x, float eps, uint32_t n, float *y);
    /* n channels: rows[n_taps] point to the inputs, oldest first; weight [n_taps][stride]; bias [n] or NULL */
    void (*conv)(const float *const *rows, const float *weight, size_t stride, const float *bias, uint32_t n_taps, uint32_t n,
                 bool silu, float *y);
    /* s [key_dim][16]: s_i = fmaf(alpha, s_i, k_i * d) */
    void (*state_absorb)(float *s, uint32_t key_dim, float alpha, const float *k, const float *d);
    /* the state `from` to the state `to` (they may be the same), d (of delta) and y */
    void (*state_step)(const float *from, float *to, const ae_state_step *step);
} ae_kernels;

/* The ladder: each fills what it improves. */
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

/* Levels in ascending order, those that this CPU can run up to and including `name`; NULL name = all.
 * false: unknown name. *supported: this CPU has the named level. */
bool ae_kernels_select(ae_kernels *kernels, const char *name, bool *supported);
/* "ref, avx2, avxvnni, avx512, amx" */
const char *ae_kernels_known(void);

/* The memory of n_rows rows of up to n_in elements, with `tiled` rows (0: none) in the tiled form (activation.c). */
void ae_act_layout(ae_layout *layout, size_t n_rows, size_t n_in, size_t tiled, ae_act *act);
/* Rows [first, first + n) of `all` as activations of their own, with their tiles from group i_tile on. */
ae_act ae_act_slice(const ae_act *all, uint32_t first, uint32_t i_tile, uint32_t n);
/* Row `from` of x in the row form becomes row `to` of y, in the forms that are needed; n_in of both must be equal. */
void ae_act_copy_row(const ae_act *x, uint32_t from, const ae_act *y, uint32_t to, const ae_act_need *need);
/* The tiled form of blocks [begin, end) of 32 k, all rows, from the row form of AE_DOT_32 or AE_DOT_256 (activation.c). */
void ae_act_tile(ae_act *act, ae_dot dot, uint32_t begin, uint32_t end);
/* The same of the forms that are needed for so many rows. */
void ae_act_tile_needed(ae_act *act, const ae_act_need *need, uint32_t begin, uint32_t end);

/* ---- Packing (pack.c) --------------------------------------------------------------------------------- */

/* The packed form of a type: fills all but codes and scales; false if the type is not packed. */
bool ae_pack_plan(uint32_t type, uint32_t n_out, uint32_t n_in, ae_packed *packed);
/* Pack panels [begin, end) into packed->codes and ->scales, of a weight of n_out rows; plain: the rows of these panels in the
 * file's layout. _generic: through the integer view, the definition. */
void ae_pack_panels_generic(uint32_t type, const uint8_t *plain, uint32_t n_out, uint32_t n_in, const ae_packed *packed,
                            uint32_t begin, uint32_t end);
void ae_pack_panels(uint32_t type, const uint8_t *plain, uint32_t n_out, uint32_t n_in, const ae_packed *packed,
                    uint32_t begin, uint32_t end);

/* One unit of 16 rows: `block` is the first row's block, the others follow at `stride` bytes. Returns what follows in
 * scales. NULL for a type without a packer of its own (pack_fast.c). */
typedef uint8_t *ae_pack_unit_fn(const uint8_t *block, size_t stride, uint8_t *codes, uint8_t *scales);
ae_pack_unit_fn *ae_pack_fast(uint32_t type);

#endif
