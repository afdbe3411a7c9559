/* mm_p16_32_amx.c - packed AE_DOT_32 products with AMX. Arithmetic and layout: kernels.h; the loop over tiles: tiles.inc.
 * A run is one chunk times one group of rows; its pieces (32 or 16 k, one scale each) are products. Every step does three
 * things, none of which needs a result of the same step: it starts product i + 2 by loading its operands (whichever run
 * they belong to), stores product i + 1, and runs the tail of product i: convert, scale, add, with the run's sums in registers.
 * Tails of 16 rows are 48 instructions for the one port that products leave them (tiles.inc): 20 of the 27 to 32 ns that 16
 * outputs x 32 k take.
 * Tried and slower: all products of a run, then all its tails; each half then runs at full speed, but not for its first 60
 * cycles, and 8 KB of products take room in L1 (16 rows of Q4_0: 33.5 ns against 32.6, 64 rows: 122 against 110). Tried and
 * slower: bf16 tiles, whose products are exact and need no conversion. They move twice the bytes and are bound by the bandwidth
 * of L1 and L2; with everything in L1 they are faster (64 rows of Q4_0: 114 ns against 107; in L1 84 and 96). Tried without
 * gain: four tiles in turn; unpacking by the shuffle port. Converting by an addition and a subtraction,
 * (float)i = as_float(i + 0x4B400000) - 12582912, instead of the instruction does not pay either: with tiles that begin at
 * 0x4B400000 (loaded, 16 more lines through L1) 16, 32, 64 rows of Q4_0 take 1.15 times as long; with the addition in the
 * tail 1.03, of Q8_0 0.96 to 1.00. */
#include "backend/cpu/simd/p16_base.inc"

#define CHUNK_BLOCKS 16 /* 8 rows of Q4_0, 2-core Sapphire Rapids VM: 8, 16, 32 blocks took 19.3, 18.6, 23 ns */
#define AHEAD 2 /* by how many products the tiles are ahead of the tails */
#define MOST_PIECES (2 * CHUNK_BLOCKS)

struct scales { /* of a chunk of one panel */
    float piece[MOST_PIECES][AE_PANEL]; /* d of each piece */
    float min[CHUNK_BLOCKS][AE_PANEL];  /* m of each block */
};

struct own {
    uint32_t turn; /* buffer of c, and tile, for the next product */
    int32_t c[2][AE_TILE_ROWS][AE_PANEL] __attribute__((aligned(64)));
    /* A block of the next chunk overwrites one that is not needed any more, since L1 is small. */
    int8_t codes[CHUNK_BLOCKS][512] __attribute__((aligned(64)));
    struct scales scale[2] __attribute__((aligned(64))); /* [i of the place % 2] */
};

#include "backend/cpu/x86/tiles.inc"

/* ---- Unpacking ------------------------------------------------------------------------------ */

/* Unpacks one block of 32 k to signed codes: rows of a B tile, k ascending. */
INLINE void unpack_signed(const kind k, const walk *j, const uint8_t *codes, ptrdiff_t line, int8_t *to)
{
    const __m512i zero = _mm512_set1_epi8((char)j->zero);
    const bool lut = k.form == FORM_LUT, minus = !lut && !k.half && !k.has_min;
    __m512i w[8];
    unpack_gfni(codes, line, k.form, lut ? _mm512_sub_epi8(lut_of(j), zero) : zero, k.half, w);
    UNROLL
    for (int g = 0; g < 8; g++) _mm512_store_si512(to + 64 * g, minus ? _mm512_sub_epi8(w[g], zero) : w[g]);
}

INLINE __m512 scale_at(const uint8_t *from, uint32_t i, bool f32)
{
    return f32 ? _mm512_loadu_ps((const float *)(const void *)from + 16 * i)
               : _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(from + 32 * i)));
}

INLINE void take_block(const kind k, walk *j, const place *at, uint32_t i)
{
    struct scales *s = &j->own.scale[at->i % 2];
    const uint8_t *from = at->scales + i * j->scale_bytes;
    unpack_signed(k, j, at->codes + i * at->step, at->line, j->own.codes[i]);
    UNROLL
    for (uint32_t n = 0; n < k.n_sub; n++) _mm512_store_ps(s->piece[i * k.n_sub + n], scale_at(from, n, k.scale_f32));
    if (k.has_min) _mm512_store_ps(s->min[i], scale_at(from, k.n_sub, k.scale_f32));
}

/* ---- Products ------------------------------------------------------------------------------- */

/* A run, as its tails use it. */
typedef struct run_args {
    const struct scales *s;
    float (*acc)[AE_PANEL];
    const float *dx, *sx;                  /* [units][GROUP] */
    const int8_t *a, *next_a; /* operands of this run and of the next one */
    uint32_t n_pieces;  /* or pairs */
    uint32_t pair_rows; /* ae_act_pair_rows; 0 if the kind determines it */
    bool fresh; /* the sums begin */
    bool last;  /* group: unpacks */
} run_args;

/* Returns the operands of piece i, or of pair i. m: ae_act_pair_rows, the number of rows in whose tiles pieces of half a block
 * are. */
INLINE const int8_t *a_of(const kind k, const int8_t *a, uint32_t i, uint32_t m)
{
    if (k.pairs) return a + (size_t)i * GROUP * 64;
    const uint32_t block = i / k.n_sub;
    a += i % k.n_sub * 16;
    return k.n_sub > 1 && m ? a + (size_t)(block / 2) * GROUP * 64 + block % 2 * (m * 64 + 32) : a + (size_t)block * GROUP * 32;
}

INLINE const int8_t *b_of(const kind k, const int8_t *b, uint32_t i)
{
    return b + (size_t)i * (k.pairs ? 1024 : 512 / k.n_sub);
}

/* Returns the bytes from row to row of A. */
INLINE size_t a_stride(const kind k, uint32_t m)
{
    return k.pairs || (k.n_sub > 1 && m) ? 64 : 32;
}

#define LOAD_A(tile) \
    do { \
        if (k.pairs) TILE_LOAD_64(tile, a); \
        else if (k.n_sub == 1) TILE_LOAD_32(tile, a); \
        else TILE_LOAD(tile, a, stride); \
    } while (0)

/* Starts one product and stores the one before it. */
INLINE void step_tiles(const kind k, struct own *o, uint32_t turn, const int8_t *a, const int8_t *b, size_t stride)
{
    if (turn) {
        LOAD_A(5);
        TILE_LOAD_64(7, b);
        TILE_ZERO(1);
        TILE_DOT(1, 5, 7);
        TILE_STORE(0, o->c[0]);
    } else {
        LOAD_A(4);
        TILE_LOAD_64(6, b);
        TILE_ZERO(0);
        TILE_DOT(0, 4, 6);
        TILE_STORE(1, o->c[1]);
    }
}

/* piece, min [AE_PANEL]; dx, sx [GROUP]. Plain pointers, which the compiler keeps in registers. */
INLINE void tail(const kind k, const float *piece, const float *min, const float *dx, const float *sx,
                 const int32_t (*c)[AE_PANEL], __m512 *sum, const int rows)
{
    const __m512 d = _mm512_load_ps(piece);
    UNROLL
    for (int r = 0; r < rows; r++)
        sum[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(c[r])), _mm512_mul_ps(d, _mm512_set1_ps(dx[r])), sum[r]);
    if (!k.has_min) return;
    const __m512 m = _mm512_load_ps(min);
    UNROLL
    for (int r = 0; r < rows; r++) sum[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(sx[r]), sum[r]);
}

INLINE void run(const kind k, walk *j, const run_args *s, const int rows)
{
    struct own *o = &j->own;
    const uint32_t n = s->n_pieces, m = s->pair_rows;
    const size_t stride = a_stride(k, m);
    uint32_t turn = o->turn;
    const float *piece = s->s->piece[0], *min = s->s->min[0], *dx = s->dx, *sx = s->sx;
    const int8_t *a = a_of(k, s->a, AHEAD, m), *b = b_of(k, o->codes[0], AHEAD);
    __m512 sum[GROUP];
    UNROLL
    for (int r = 0; r < rows; r++) sum[r] = s->fresh ? _mm512_setzero_ps() : _mm512_load_ps(s->acc[r]);
    for (uint32_t i = 0; i < n; i++) {
        if (i + AHEAD == n) a = s->next_a, b = o->codes[0];
        turn ^= 1;
        const int32_t(*c)[AE_PANEL] = (const int32_t(*)[AE_PANEL])o->c[turn];
        step_tiles(k, o, turn, a, b, stride);
        const uint32_t next = i + 1 + AHEAD;
        b = b_of(k, b, 1);
        if (k.n_sub == 1) a = a_of(k, a, 1, 0);
        else a = next < n ? a_of(k, s->a, next, m) : a_of(k, s->next_a, next - n, m);
        tail(k, piece, min, dx, sx, c, sum, rows);
        piece += AE_PANEL;
        if (k.n_sub == 1 || i % k.n_sub) dx += GROUP, sx += GROUP, min += AE_PANEL;
        if (k.pairs) {
            unpack_some(k, j);
            tail(k, piece, min, dx, sx, c + rows, sum, rows);
            piece += AE_PANEL, dx += GROUP, sx += GROUP, min += AE_PANEL;
        }
        if (k.pairs || (s->last && i % k.n_sub == 0)) unpack_some(k, j);
    }
    o->turn = turn;
    UNROLL
    for (int r = 0; r < rows; r++) _mm512_store_ps(s->acc[r], sum[r]);
}

/* Runs n rows, rounded up to fours; the surplus is not stored. */
INLINE void run_rows(const kind k, walk *j, const run_args *s, uint32_t n)
{
    if (k.pairs) {
        if (n > 4) run(k, j, s, 8);
        else run(k, j, s, 4);
        return;
    }
    switch ((n + 3) / 4) {
    case 1: run(k, j, s, 4); break;
    case 2: run(k, j, s, 8); break;
    case 3: run(k, j, s, 12); break;
    default: run(k, j, s, 16); break;
    }
}

/* Returns the tiles of a group's activations, from a block on. */
INLINE const int8_t *rows_at(const walk *j, uint32_t group, uint32_t block)
{
    return j->act->t32 + ((size_t)(j->row / GROUP + group) * j->n_blocks + block) * GROUP * 32;
}

INLINE void begin_batch(const kind k, walk *j)
{
    struct own *o = &j->own;
    o->turn = 0;
    const uint32_t m = ae_act_pair_rows(j->act);
    const int8_t *a = rows_at(j, 0, j->at->block), *b = o->codes[0];
    for (uint32_t i = 0; i < AHEAD; i++) step_tiles(k, o, o->turn ^= 1, a_of(k, a, i, m), b_of(k, b, i), a_stride(k, m));
}

INLINE void end_batch(const kind k, walk *j) { (void)k, (void)j; }

INLINE void chunk(const kind k, walk *j)
{
    const bool last = j->at->i_chunk + 1 == j->n_chunks, more = j->next->n_blocks > 0;
    for (uint32_t g = 0; g < j->n_groups; g++) {
        const size_t tile = (size_t)(j->row / GROUP + g) * j->n_blocks + j->at->block;
        const bool same = g + 1 < j->n_groups || !more; /* the next run is in this chunk, or there is none, so that any will
                                                         * do */
        const run_args s = {.s = &j->own.scale[j->at->i % 2], .acc = sums_of(j, g),
                            .n_pieces = k.pairs ? j->at->n_blocks / 2 : j->at->n_blocks * k.n_sub,
                            .pair_rows = k.n_sub > 1 ? ae_act_pair_rows(j->act) : 0,
                            .dx = j->act->td32 + tile * GROUP, .sx = j->act->ts32 + tile * GROUP,
                            .a = rows_at(j, g, j->at->block),
                            .next_a = rows_at(j, g + 1 < j->n_groups ? g + 1 : 0, same ? j->at->block : j->next->block),
                            .fresh = !j->at->i_chunk, .last = g + 1 == j->n_groups};
        run_rows(k, j, &s, rows_of(j, g));
        if (last) put(j, j->at->panel, g, sums_of(j, g)[0]);
    }
}

INLINE void drive_32(const kind k, const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    walk j;
    const uint32_t rows = act->n_rows < GROUP ? (act->n_rows + 3) / 4 * 4 : GROUP;
    begin_walk(k, &j, w, act, out);
    AE_ASSERT(act->t32);
    if (k.pairs) tiles_begin(64, 2 * rows);
    else tiles_begin(32 / k.n_sub, rows);
    drive(k, &j, begin, end);
    tiles_end();
}

void ae_amx_mm_p16_32(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    const ae_packed *p = &w->packed;
    const int form = p->has_lut ? FORM_LUT : (int)p->code_bits;
    /* A run of n pieces unpacks n - 1 blocks before it uses piece AHEAD - 1 of the next chunk. If rows are cut into chunks,
     * these have at least half of CHUNK_BLOCKS. With pairs a run unpacks two blocks at each of its steps, of which it has at
     * least three. */
    _Static_assert(AE_TILES_IN / 32 >= AHEAD + 1 && CHUNK_BLOCKS / 2 >= AHEAD + 1,
                   "any weight that is given tiles has enough pieces in each chunk");
    AE_ASSERT(w->n_in >= AE_TILES_IN);
    const bool pairs = ae_act_pair_rows(act) > 0;
#define CASE(n, min, f32, f, half) \
    if (p->n_sub == n && p->has_min == min && p->scale_f32 == f32 && form == f && (!half || p->zero == half)) { \
        if (n == 1 && pairs) return drive_32((kind){false, n, min, f32, f, half, n == 1}, w, act, out, begin, end); \
        return drive_32((kind){false, n, min, f32, f, half, false}, w, act, out, begin, end); \
    }
    CASE(2, false, true, FORM_LUT, 0)
    CASE(1, false, true, FORM_LUT, 0)
    CASE(1, true, false, FORM_4, 0)
    CASE(1, true, false, FORM_5, 0)
    CASE(1, false, false, FORM_4, 8)
    CASE(1, false, false, FORM_4, 0)
    CASE(1, false, false, FORM_5, 16)
    CASE(1, false, false, FORM_8, 0)
    CASE(1, false, false, FORM_LUT, 0)
#undef CASE
    AE_ASSERT(false);
}
