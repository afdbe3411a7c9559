/* mm_p16_32_amx.c - packed AE_DOT_32 products with AMX: arithmetic and layout in kernels.h, the walk in tiles.inc.
 *
 * A run is one chunk times one group of rows; its pieces (32 or 16 k, one scale each) are products. Every step does
 * four things that wait for nothing younger than a step: store product i + 1, multiply product i + 2, load the
 * operands of product i + 3 (whatever run they belong to), and the tail of product i: convert, scale, add, with the
 * run's sums in registers. The tail bounds it.
 *
 * Tried and slower: bf16 tiles, whose products are exact and need no conversion. They move twice the bytes, and what L1
 * and L2 deliver bounded them (16 rows of Q4_0: 46 ns for 16 outputs x 32 k against 34). */
#include "backend/cpu/simd/p16_base.inc"

#define CHUNK_BLOCKS 8
#define MOST_PIECES (2 * CHUNK_BLOCKS)

struct scales { /* of a chunk of one panel */
    float piece[MOST_PIECES][AE_PANEL]; /* d of each piece */
    float min[CHUNK_BLOCKS][AE_PANEL];  /* m of each block */
};

struct own {
    int32_t c[2 + MOST_PIECES][AE_TILE_ROWS][AE_PANEL] __attribute__((aligned(64)));
    int8_t codes[2][CHUNK_BLOCKS][512] __attribute__((aligned(64))); /* [turn] */
    struct scales scale[2] __attribute__((aligned(64)));             /* [turn] */
};

#include "backend/cpu/x86/tiles.inc"

/* ---- Unpacking ------------------------------------------------------------------------------ */

/* One block of 32 k as signed codes: rows of a B tile, k ascending. */
INLINE void unpack_signed(const kind k, const walk *j, const uint8_t *codes, int8_t *to)
{
    const __m512i zero = _mm512_set1_epi8((char)j->zero);
    const bool lut = k.form == FORM_LUT;
    __m512i w[8];
    unpack(codes, k.form, lut ? _mm512_sub_epi8(lut_of(j), zero) : zero, w);
    UNROLL
    for (int g = 0; g < 8; g++) _mm512_store_si512(to + 64 * g, lut || k.has_min ? w[g] : _mm512_sub_epi8(w[g], zero));
}

INLINE __m512 scale_at(const uint8_t *from, uint32_t i, bool f32)
{
    return f32 ? _mm512_loadu_ps((const float *)(const void *)from + 16 * i)
               : _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(from + 32 * i)));
}

INLINE void take_block(const kind k, walk *j, const place *at, uint32_t i)
{
    struct scales *s = &j->own.scale[at->turn];
    const uint8_t *from = at->scales + i * j->scale_bytes;
    unpack_signed(k, j, at->codes[i], j->own.codes[at->turn][i]);
    UNROLL
    for (uint32_t n = 0; n < k.n_sub; n++) _mm512_store_ps(s->piece[i * k.n_sub + n], scale_at(from, n, k.scale_f32));
    if (k.has_min) _mm512_store_ps(s->min[i], scale_at(from, k.n_sub, k.scale_f32));
}

/* ---- Products ------------------------------------------------------------------------------- */

/* One piece, and the one before it is stored. */
#define PIECE(i, tc, before, ta, tb) \
    do { \
        TILE_LOAD(ta, a + (size_t)((i) / k.n_sub) * GROUP * 32 + (i) % k.n_sub * 16, 32); \
        TILE_LOAD(tb, b + (size_t)(i) * (512 / k.n_sub), 64); \
        TILE_ZERO(tc); \
        TILE_DOT(tc, ta, tb); \
        TILE_STORE(before, o->c[i]); \
        if (first && (i) % k.n_sub == 0) unpack_some(k, j); \
    } while (0)

#define LAST(c1, c2) \
    do { \
        TILE_STORE(c1, o->c[n]); \
        TILE_STORE(c2, o->c[n + 1]); \
    } while (0)

/* A chunk times a group of rows, while the next chunk is unpacked. */
INLINE void products(const kind k, walk *j, uint32_t group)
{
    struct own *o = &j->own;
    const int8_t *a = j->act->t32 + ((size_t)(j->row / GROUP + group) * j->n_blocks + j->at->block) * GROUP * 32;
    const int8_t *b = o->codes[j->at->turn][0];
    const uint32_t n = j->at->n_blocks * k.n_sub;
    const bool first = !group;
    for (uint32_t i = 0;; i += 4) {
        PIECE(i, 0, 2, 4, 6);
        if (i + 1 == n) { LAST(3, 0); break; }
        PIECE(i + 1, 1, 3, 5, 7);
        if (i + 2 == n) { LAST(0, 1); break; }
        PIECE(i + 2, 2, 0, 4, 6);
        if (i + 3 == n) { LAST(1, 2); break; }
        PIECE(i + 3, 3, 1, 5, 7);
        if (i + 4 == n) { LAST(2, 3); break; }
    }
}

/* ---- Tails ---------------------------------------------------------------------------------- */

/* Convert, scale, add, with the sums in registers. */
INLINE void tail(const kind k, walk *j, uint32_t group, const int rows)
{
    const struct scales *s = &j->own.scale[j->at->turn];
    const size_t tile = (size_t)(j->row / GROUP + group) * j->n_blocks + j->at->block;
    const float *dx = j->act->td32 + tile * GROUP, *sx = j->act->ts32 + tile * GROUP;
    float(*acc)[AE_PANEL] = sums_of(j, group);
    const uint32_t n = j->at->n_blocks * k.n_sub;
    __m512 sum[GROUP];
    UNROLL
    for (int r = 0; r < rows; r++) sum[r] = j->at->i_chunk ? _mm512_load_ps(acc[r]) : _mm512_setzero_ps();
    for (uint32_t i = 0; i < n; i++) {
        const int32_t(*c)[AE_PANEL] = (const int32_t(*)[AE_PANEL])j->own.c[i + 2];
        const __m512 d = _mm512_load_ps(s->piece[i]);
        UNROLL
        for (int r = 0; r < rows; r++)
            sum[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(c[r])), _mm512_mul_ps(d, _mm512_set1_ps(dx[r])), sum[r]);
        if (k.has_min) {
            const __m512 m = _mm512_load_ps(s->min[i]);
            UNROLL
            for (int r = 0; r < rows; r++) sum[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(sx[r]), sum[r]);
            sx += GROUP;
        }
        if (k.n_sub == 1 || i % 2) dx += GROUP;
    }
    UNROLL
    for (int r = 0; r < rows; r++) _mm512_store_ps(acc[r], sum[r]);
}

/* Rows are counted in fours, the surplus is not stored. */
INLINE void tail_rows(const kind k, walk *j, uint32_t group, uint32_t n)
{
    switch ((n + 3) / 4) {
    case 1: tail(k, j, group, 4); break;
    case 2: tail(k, j, group, 8); break;
    case 3: tail(k, j, group, 12); break;
    default: tail(k, j, group, 16); break;
    }
}

INLINE void chunk(const kind k, walk *j)
{
    const bool last = j->at->i_chunk + 1 == j->n_chunks;
    for (uint32_t g = 0; g < j->n_groups; g++) {
        products(k, j, g);
        tail_rows(k, j, g, rows_of(j, g));
        if (last) put(j, g);
    }
}

INLINE void drive_32(const kind k, const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    walk j;
    begin_walk(k, &j, w, act, out);
    AE_ASSERT(act->t32);
    tiles_begin(32 / k.n_sub, act->n_rows < GROUP ? (act->n_rows + 3) / 4 * 4 : GROUP);
    drive(k, &j, begin, end);
    tiles_end();
}

void ae_amx_mm_p16_32(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    const ae_packed *p = &w->packed;
    const int form = p->has_lut ? FORM_LUT : (int)p->code_bits;
    AE_ASSERT(w->n_in >= AE_TILES_IN);
#define CASE(n, min, f32, f) \
    if (p->n_sub == n && p->has_min == min && p->scale_f32 == f32 && form == f) \
        return drive_32((kind){false, n, min, f32, f}, w, act, out, begin, end)
    CASE(2, false, true, FORM_LUT);
    CASE(1, false, true, FORM_LUT);
    CASE(1, true, false, FORM_4);
    CASE(1, true, false, FORM_5);
    CASE(1, false, false, FORM_4);
    CASE(1, false, false, FORM_5);
    CASE(1, false, false, FORM_8);
    CASE(1, false, false, FORM_LUT);
#undef CASE
    AE_ASSERT(false);
}
