/* mm_p16_32_amx.c - packed AE_DOT_32 products with AMX: arithmetic and layout in kernels.h, the walk in tiles.inc.
 *
 * A run is one chunk times one group of rows; its pieces (32 or 16 k, one scale each) are products. Every step does
 * four things that wait for nothing younger than a step: store product i + 1, multiply product i + 2, load the
 * operands of product i + 3 (whatever run they belong to), and the tail of product i: convert, scale, add, with the
 * run's sums in registers. The tail bounds it: 3 instructions a row. */
#include "backend/cpu/simd/p16_base.inc"

struct scales { /* of a chunk of one panel */
    float piece[16][AE_PANEL]; /* d of each piece */
    float min[8][AE_PANEL];    /* m of each block */
};

struct own {
    const int8_t *q; /* tiles of the activations, at the batch */
    struct cursor { /* what is loaded next */
        const int8_t *a, *b;
        uint32_t left, group; /* pieces left in the run, this one included */
        bool ahead;           /* in next, not at */
    } cursor;
    uint32_t older; /* which of c holds the older product */
    int32_t c[2][AE_TILE_ROWS][AE_PANEL] __attribute__((aligned(64)));
    int8_t codes[2][12][512] __attribute__((aligned(64))); /* [turn]; 8 of 12: a block is not written where another is
                                                              read 4 KB away, which the processor takes for the same */
    struct scales scale[2] __attribute__((aligned(64)));
};

#include "backend/cpu/x86/tiles.inc"

/* A run, as its tails see it. */
typedef struct run_args {
    const struct scales *s;
    float (*acc)[AE_PANEL];
    const float *dx, *sx; /* [units][GROUP] */
    uint32_t n_pieces;
    bool fresh; /* the sums begin */
    bool first; /* group: unpacks */
} run_args;

/* ---- Unpacking ------------------------------------------------------------------------------ */

/* One block of 32 k as signed codes: rows of a B tile, k ascending. */
INLINE void unpack_signed(const walk *j, const uint8_t *codes, int8_t *to, const int form)
{
    const __m512i zero = _mm512_set1_epi8((char)j->zero);
    __m512i w[8];
    unpack(codes, form, form == FORM_LUT ? _mm512_sub_epi8(lut_of(j), zero) : zero, w);
    UNROLL
    for (int g = 0; g < 8; g++) _mm512_store_si512(to + 64 * g, form == FORM_LUT ? w[g] : _mm512_sub_epi8(w[g], zero));
}

INLINE __m512 scale_at(const uint8_t *from, uint32_t i, bool f32)
{
    return f32 ? _mm512_loadu_ps((const float *)(const void *)from + 16 * i)
               : _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(from + 32 * i)));
}

/* Inlined where sums are in registers: a call would spill them all. */
INLINE void take_block(const kind k, walk *j, const place *at, uint32_t i, const uint8_t *codes, const uint8_t *from)
{
    struct scales *s = &j->own.scale[at->turn];
    int8_t *to = j->own.codes[at->turn][i];
    switch (j->form) {
    case FORM_4: if (k.forms & HAS_4) unpack_signed(j, codes, to, FORM_4); break;
    case FORM_5: if (k.forms & HAS_5) unpack_signed(j, codes, to, FORM_5); break;
    case FORM_8: if (k.forms & HAS_8) unpack_signed(j, codes, to, FORM_8); break;
    case FORM_LUT: if (k.forms & HAS_LUT) unpack_signed(j, codes, to, FORM_LUT); break;
    }
    for (uint32_t n = 0; n < k.n_sub; n++) _mm512_store_ps(s->piece[i * k.n_sub + n], scale_at(from, n, k.scale_f32));
    if (k.has_min) _mm512_store_ps(s->min[i], scale_at(from, k.n_sub, k.scale_f32));
}

/* ---- The pipeline --------------------------------------------------------------------------- */

/* The first piece of a run. */
INLINE void cursor_set(const kind k, walk *j)
{
    struct cursor *c = &j->own.cursor;
    const place *at = c->ahead ? &j->next : &j->at;
    c->left = at->n_blocks * halves_of(k);
    c->a = j->own.q + ((size_t)c->group * j->n_blocks + at->block) * GROUP * 32;
    c->b = j->own.codes[at->turn][0];
}

INLINE void cursor_step(const kind k, walk *j)
{
    struct cursor *c = &j->own.cursor;
    if (--c->left) {
        const bool odd = halves_of(k) == 2 && c->left % 2;
        c->a += halves_of(k) == 1 ? GROUP * 32 : odd ? 16 : GROUP * 32 - 16;
        c->b += 512 / halves_of(k);
        return;
    }
    if (++c->group == j->n_groups) {
        if (!j->next.n_blocks) { /* nothing more: the last operands again, to no effect */
            c->group = j->n_groups - 1;
            c->left = 1;
            return;
        }
        c->group = 0;
        c->ahead = true;
    }
    cursor_set(k, j);
}

/* One step of the pipeline; returns the product that is due. */
INLINE const int32_t (*advance(const kind k, walk *j))[AE_PANEL]
{
    struct own *o = &j->own;
    const int32_t(*due)[AE_PANEL] = (const int32_t(*)[AE_PANEL])o->c[o->older];
    o->older ^= 1;
    TILE_STORE(0, o->c[o->older]);
    TILE_ZERO(0);
    TILE_DOT(0, 4, 6);
    TILE_LOAD(4, o->cursor.a, 32);
    TILE_LOAD(6, o->cursor.b, 64);
    cursor_step(k, j);
    return due;
}

INLINE void run(const kind k, walk *j, const run_args *s, const int rows)
{
    __m512 a[GROUP];
    UNROLL
    for (int r = 0; r < rows; r++) a[r] = s->fresh ? _mm512_setzero_ps() : _mm512_load_ps(s->acc[r]);
    for (uint32_t i = 0; i < s->n_pieces; i++) {
        const uint32_t block = i / k.n_sub;
        const int32_t(*c)[AE_PANEL] = advance(k, j);
        const float *dx = s->dx + block * GROUP, *sx = s->sx + block * GROUP;
        const __m512 d = _mm512_load_ps(s->s->piece[i]);
        UNROLL
        for (int r = 0; r < rows; r++)
            a[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(c[r])), _mm512_mul_ps(d, _mm512_set1_ps(dx[r])), a[r]);
        if (k.has_min) {
            const __m512 m = _mm512_load_ps(s->s->min[block]);
            UNROLL
            for (int r = 0; r < rows; r++) a[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(sx[r]), a[r]);
        }
        if (s->first && i % k.n_sub == 0) unpack_some(k, j);
    }
    UNROLL
    for (int r = 0; r < rows; r++) _mm512_store_ps(s->acc[r], a[r]);
}

/* Rows are counted in fours, the surplus is not stored. */
INLINE void run_rows(const kind k, walk *j, const run_args *s, uint32_t n)
{
    switch ((n + 3) / 4) {
    case 1: run(k, j, s, 4); break;
    case 2: run(k, j, s, 8); break;
    case 3: run(k, j, s, 12); break;
    default: run(k, j, s, 16); break;
    }
}

INLINE void begin_batch(const kind k, walk *j)
{
    j->own.q = j->act->t32 + (size_t)(j->row / GROUP) * j->n_blocks * GROUP * 32;
    j->own.older = 0;
    j->own.cursor = (struct cursor){0};
    cursor_set(k, j);
    for (uint32_t i = 0; i < 3; i++) advance(k, j);
}

INLINE void chunk(const kind k, walk *j)
{
    const bool last = j->at.i_chunk + 1 == j->n_chunks;
    j->own.cursor.ahead = false;
    for (uint32_t g = 0; g < j->n_groups; g++) {
        const uint32_t first = j->row + g * GROUP, m = j->n_rows - g * GROUP < GROUP ? j->n_rows - g * GROUP : GROUP;
        const size_t tile = (size_t)(first / GROUP) * j->n_blocks + j->at.block;
        const run_args s = {.s = &j->own.scale[j->at.turn], .acc = sums_of(j, &j->at, g), .n_pieces = j->at.n_blocks * k.n_sub,
                            .dx = j->act->td32 + tile * GROUP, .sx = j->act->ts32 + tile * GROUP,
                            .fresh = !j->at.i_chunk, .first = !g};
        run_rows(k, j, &s, m);
        if (last) store(j->out, (const float(*)[AE_PANEL])s.acc, first, m, j->at.panel * AE_PANEL, j->w->n_out);
    }
}

INLINE void end_batch(const kind k, walk *j)
{
    (void)k, (void)j;
}

/* From how many rows on tiles cost less than VNNI, by the kernel bench on a 2-core Sapphire Rapids VM, weights coming
 * from memory. The bits are the same, so the choice is free. */
static uint32_t least_rows(const ae_packed *p)
{
    if (p->n_sub == 2) return 3;
    return p->code_bits == 8 ? 8 : p->code_bits == 4 && !p->has_lut ? 12 : 9;
}

void ae_amx_mm_p16_32(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    const ae_packed *p = &w->packed;
    if (act->n_rows < least_rows(p) || w->n_in < MIN_BLOCKS * 32) ae_avx512_mm_p16_32(w, act, out, begin, end);
    else if (p->n_sub == 2) drive((kind){false, 2, false, true, HAS_LUT}, w, act, out, begin, end);
    else if (p->scale_f32) drive((kind){false, 1, false, true, HAS_LUT}, w, act, out, begin, end);
    else if (p->has_min) drive((kind){false, 1, true, false, HAS_4 | HAS_5}, w, act, out, begin, end);
    else drive((kind){false, 1, false, false, HAS_4 | HAS_5 | HAS_8 | HAS_LUT}, w, act, out, begin, end);
}
