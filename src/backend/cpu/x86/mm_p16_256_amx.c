/* mm_p16_256_amx.c - packed AE_DOT_256 products with AMX: arithmetic and layout in kernels.h, the walk in tiles.inc.
 *
 * Since the sum over a unit is exact, the scale of a sub-block goes into the weights: code * sub is unpacked as two
 * digits of 8 bits, and two products gather the whole unit in 4 steps of 64 k each. What is left per row and unit is a
 * shift, an add and the float steps.
 *
 * The tail of a run (a unit times one or two groups of rows) is taken during the next one, when its products have been
 * stored; so it is `due` while the next is multiplied. */
#include "backend/cpu/simd/p16_base.inc"

#define CHUNK_BLOCKS 8 /* a unit */
#define STEPS 4        /* of 64 k in it */

struct scales { /* of a unit of one panel */
    float d[AE_PANEL], dmin[AE_PANEL];
    int32_t pair[8][AE_PANEL]; /* two sub-blocks' minimums, as int16 */
};

/* What the tail of a run needs; n_rows == 0: none. */
struct due {
    const struct scales *s;
    float (*acc)[AE_PANEL];
    const float *dx;     /* [GROUP] */
    const int32_t *bsum; /* [n_sub / 2][GROUP] two sums of activation codes, as int16 */
    uint32_t panel, row, n_rows;
    bool fresh, last; /* the sums begin; end */
};

struct own {
    const int8_t *q; /* tiles of the activations, at the batch */
    struct due due[2]; /* of one or two groups */
    int32_t c[2][2][AE_TILE_ROWS][AE_PANEL] __attribute__((aligned(64))); /* [group][high, low] */
    int8_t codes[2][2][STEPS + 1][16][64] __attribute__((aligned(64)));   /* [turn][high, low]; one more than used: what is
                                       written at a step is not 4 KB from what is read, which the processor takes for the same */
    struct scales scale[3] __attribute__((aligned(64)));                  /* [slot] */
};

#include "backend/cpu/x86/tiles.inc"

/* High digits count 2^base_of; one_of: there are only low ones, as scale * code is at most 15 * 3. */
INLINE unsigned base_of(const kind k) { return k.has_min ? 3 : 8; }
INLINE bool one_of(const kind k) { return k.has_min && k.n_sub == 16; }

/* ---- Unpacking ------------------------------------------------------------------------------ */

INLINE __m128i bytes_at(const uint8_t *from, uint32_t i)
{
    return _mm_loadu_si128((const __m128i *)(const void *)(from + i * AE_PANEL));
}

/* The scale of each row, widened to both halves of its lane, for group g of a block. */
INLINE __m512i sub_at(const kind k, const uint8_t *sub, uint32_t block, int g)
{
    const uint32_t n = halves_of(k);
    const __m512i s = _mm512_cvtepi8_epi32(bytes_at(sub, k.n_sub == 1 ? 0 : block * n + (uint32_t)g / 4 * (n - 1)));
    return _mm512_or_si512(_mm512_slli_epi32(s, 16), _mm512_and_si512(s, _mm512_set1_epi32(0xFFFF)));
}

/* Codes and scales are small and not negative: the scale is split, sub = high * 8 + low, and one product of 16 bits does
 * two codes at once, as neither carries into the other (31 * 7 < 256). one_of(k): the scale is small enough as it is. */
INLINE void unpack_split(const kind k, const walk *j, const uint8_t *codes, const uint8_t *sub, uint32_t block, int8_t (*high)[64],
                         int8_t (*low)[64], const int form)
{
    __m512i w[8], s0 = _mm512_setzero_si512(), s1 = s0;
    unpack(codes, form, _mm512_set1_epi8((char)j->zero), w);
    UNROLL
    for (int g = 0; g < 8; g++) {
        if (g % (8 / (int)halves_of(k)) == 0) {
            const __m512i s = sub_at(k, sub, block, g);
            s0 = one_of(k) ? s : _mm512_and_si512(s, _mm512_set1_epi16(7));
            s1 = _mm512_srli_epi16(s, 3);
        }
        _mm512_store_si512(low[g], _mm512_mullo_epi16(w[g], s0));
        if (!one_of(k)) _mm512_store_si512(high[g], _mm512_mullo_epi16(w[g], s1));
    }
}

/* Any codes and scales: (stored - zero) * sub = high * 256 + low, both signed: with 128 added the upper byte is the high
 * digit and the lower one, its top bit turned, the low one. */
INLINE void unpack_bytes(const kind k, const walk *j, const uint8_t *codes, const uint8_t *sub, uint32_t block, int8_t (*high)[64],
                         int8_t (*low)[64], const int form)
{
    const __m512i first = _mm512_set1_epi32(0x00FF00FF), zero = _mm512_set1_epi16((short)j->zero);
    __m512i w[8], even = first, odd = first, less = zero;
    unpack(codes, form, form == FORM_LUT ? lut_of(j) : zero, w);
    UNROLL
    for (int g = 0; g < 8; g++) {
        if (g % (8 / (int)halves_of(k)) == 0) { /* in bytes 0 and 2 of a lane, then in 1 and 3 */
            const __m512i s = sub_at(k, sub, block, g);
            even = _mm512_and_si512(s, first);
            odd = _mm512_slli_epi16(s, 8);
            less = _mm512_sub_epi16(_mm512_mullo_epi16(s, zero), _mm512_set1_epi16(128));
        }
        const __m512i e = _mm512_sub_epi16(_mm512_maddubs_epi16(w[g], even), less);
        const __m512i o = _mm512_sub_epi16(_mm512_maddubs_epi16(w[g], odd), less);
        const __m512i both = _mm512_ternarylogic_epi32(first, e, _mm512_slli_epi16(o, 8), 0xCA);
        _mm512_store_si512(low[g], _mm512_xor_si512(both, _mm512_set1_epi8((char)128)));
        _mm512_store_si512(high[g], _mm512_ternarylogic_epi32(first, _mm512_srli_epi16(e, 8), o, 0xCA));
    }
}

INLINE void unpack_digits(const kind k, const walk *j, const uint8_t *codes, const uint8_t *sub, uint32_t block, int8_t (*high)[64],
                          int8_t (*low)[64], const int form)
{
    if (k.has_min) unpack_split(k, j, codes, sub, block, high, low, form);
    else unpack_bytes(k, j, codes, sub, block, high, low, form);
}

INLINE void take_scales(const kind k, const uint8_t *from, uint32_t block, struct scales *to)
{
    const uint32_t halves = halves_of(k), i = block * halves;
    if (block == 0) _mm512_store_ps(to->d, _mm512_loadu_ps((const float *)(const void *)from));
    if (!k.has_min) return;
    if (block == 0) _mm512_store_ps(to->dmin, _mm512_loadu_ps((const float *)(const void *)(from + 64)));
    if (halves == 1 && block % 2) return;
    const uint8_t *submin = from + 128 + k.n_sub * AE_PANEL; /* i and i + 1: the minimums of two sub-blocks side by side */
    const __m128i a = bytes_at(submin, i), b = bytes_at(submin, i + 1);
    _mm512_store_si512(to->pair[i / 2], _mm512_cvtepu8_epi16(_mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b))));
}

INLINE void take_block(const kind k, walk *j, const place *at, uint32_t i, const uint8_t *codes, const uint8_t *from)
{
    const uint8_t *sub = from + (k.has_min ? 128 : 64);
    int8_t(*high)[64] = j->own.codes[at->turn][0][i / 2] + i % 2 * 8, (*low)[64] = j->own.codes[at->turn][1][i / 2] + i % 2 * 8;
    switch (j->form) {
    case FORM_4: if (k.forms & HAS_4) unpack_digits(k, j, codes, sub, i, high, low, FORM_4); break;
    case FORM_5: if (k.forms & HAS_5) unpack_digits(k, j, codes, sub, i, high, low, FORM_5); break;
    case FORM_6: if (k.forms & HAS_6) unpack_digits(k, j, codes, sub, i, high, low, FORM_6); break;
    case FORM_8: if (k.forms & HAS_8) unpack_digits(k, j, codes, sub, i, high, low, FORM_8); break;
    case FORM_LUT: if (k.forms & HAS_LUT) unpack_digits(k, j, codes, sub, i, high, low, FORM_LUT); break;
    }
    take_scales(k, from, i, &j->own.scale[at->slot]);
}

/* ---- The pipeline --------------------------------------------------------------------------- */

/* Rows [r, r + 2) of a run that is due. */
INLINE void tail(const kind k, const walk *j, uint32_t which, uint32_t r)
{
    const struct due *t = &j->own.due[which];
    if (r >= t->n_rows) return;
    const int32_t(*high)[AE_PANEL] = (const int32_t(*)[AE_PANEL])j->own.c[which][0];
    const int32_t(*low)[AE_PANEL] = (const int32_t(*)[AE_PANEL])j->own.c[which][1];
    const struct scales *s = t->s;
    UNROLL
    for (uint32_t i = 0; i < 2; i++, r++) {
        const __m512 dx = _mm512_set1_ps(t->dx[r]);
        __m512i sum = _mm512_load_si512(low[r]);
        if (!one_of(k)) sum = _mm512_add_epi32(sum, _mm512_slli_epi32(_mm512_load_si512(high[r]), base_of(k)));
        __m512 a = t->fresh ? _mm512_setzero_ps() : _mm512_load_ps(t->acc[r]);
        a = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(_mm512_load_ps(s->d), dx), a);
        if (k.has_min) {
            __m512i less = _mm512_setzero_si512();
            UNROLL
            for (uint32_t n = 0; n < k.n_sub / 2; n++)
                less = _mm512_dpwssd_epi32(less, _mm512_load_si512(s->pair[n]), _mm512_set1_epi32(t->bsum[n * GROUP + r]));
            a = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(less), _mm512_mul_ps(_mm512_load_ps(s->dmin), dx), a);
        }
        _mm512_store_ps(t->acc[r], a);
    }
}

INLINE void tails_end(walk *j)
{
    for (int i = 0; i < 2; i++) {
        const struct due *t = &j->own.due[i];
        if (t->n_rows && t->last) store(j->out, (const float(*)[AE_PANEL])t->acc, t->row, t->n_rows, t->panel * AE_PANEL, j->w->n_out);
        j->own.due[i].n_rows = 0;
    }
}

INLINE struct due due_of(const kind k, const walk *j, uint32_t group)
{
    const uint32_t first = j->row + group * GROUP, left = j->n_rows - group * GROUP;
    if (j->at.i_chunk + 1 == j->n_chunks) fetch_out(j->out, first, left < GROUP ? left : GROUP, j->at.panel * AE_PANEL);
    const size_t unit = (size_t)(first / GROUP) * j->n_blocks / 8 + j->at.block / 8;
    return (struct due){
        .s = &j->own.scale[j->at.slot], .acc = sums_of(j, &j->at, group), .dx = j->act->td256 + unit * GROUP,
        .bsum = (const int32_t *)(const void *)(halves_of(k) == 2 ? j->act->tb16 : j->act->tb32) + unit * k.n_sub / 2 * GROUP,
        .panel = j->at.panel, .row = first, .n_rows = left < GROUP ? left : GROUP,
        .fresh = !j->at.i_chunk, .last = j->at.i_chunk + 1 == j->n_chunks};
}

/* Both digits are signed or neither: changing from one instruction to the other costs half a product. */
#define PRODUCT(k, c, a, b) \
    do { \
        if ((k).has_min) TILE_DOT_U(c, a, b); \
        else TILE_DOT(c, a, b); \
    } while (0)

/* Products of groups g and, if there are two, g + 1: four sums at a time hide the latency of a product. The tails
 * and the unpacking stand between them in small pieces, so that both go on at once. */
INLINE void run(const kind k, walk *j, uint32_t g, const bool two)
{
    struct own *o = &j->own;
    const int8_t *a = o->q + ((size_t)g * j->n_blocks + j->at.block) * GROUP * 32, *b = a + (size_t)j->n_blocks * GROUP * 32;
    const bool hurry = j->n_groups <= 2; /* one run unpacks it all */
    TILE_ZERO(1);
    if (!one_of(k)) TILE_ZERO(0);
    if (two) TILE_ZERO(3);
    if (two && !one_of(k)) TILE_ZERO(2);
    for (uint32_t i = 0; i < STEPS; i++) {
        TILE_LOAD(4, a + i * GROUP * 64, 64);
        TILE_LOAD(7, o->codes[j->at.turn][1][i], 64);
        PRODUCT(k, 1, 4, 7);
        tail(k, j, 0, 4 * i);
        if (!one_of(k)) {
            TILE_LOAD(6, o->codes[j->at.turn][0][i], 64);
            PRODUCT(k, 0, 4, 6);
        }
        tail(k, j, 0, 4 * i + 2);
        unpack_some(k, j);
        if (two) {
            TILE_LOAD(5, b + i * GROUP * 64, 64);
            PRODUCT(k, 3, 5, 7);
        }
        tail(k, j, 1, 4 * i);
        if (hurry) unpack_some(k, j);
        if (two && !one_of(k)) PRODUCT(k, 2, 5, 6);
        tail(k, j, 1, 4 * i + 2);
    }
    tails_end(j);
    TILE_STORE(1, o->c[0][1]);
    if (!one_of(k)) TILE_STORE(0, o->c[0][0]);
    o->due[0] = due_of(k, j, g);
    if (two) {
        TILE_STORE(3, o->c[1][1]);
        if (!one_of(k)) TILE_STORE(2, o->c[1][0]);
        o->due[1] = due_of(k, j, g + 1);
    }
}

INLINE void begin_batch(const kind k, walk *j)
{
    (void)k;
    j->own.q = j->act->t256 + (size_t)(j->row / GROUP) * j->n_blocks * GROUP * 32;
    j->own.due[0] = j->own.due[1] = (struct due){0};
}

INLINE void chunk(const kind k, walk *j)
{
    uint32_t g = 0;
    for (; g + 2 <= j->n_groups; g += 2) run(k, j, g, true);
    if (g < j->n_groups) run(k, j, g, false);
}

INLINE void end_batch(const kind k, walk *j)
{
    for (uint32_t r = 0; r < GROUP; r += 2) tail(k, j, 0, r), tail(k, j, 1, r);
    tails_end(j);
}

INLINE void drive_256(const kind k, const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    walk j;
    begin_walk(k, &j, w, act, out);
    AE_ASSERT(act->t256);
    tiles_begin(64, act->n_rows < GROUP ? (act->n_rows + 3) / 4 * 4 : GROUP);
    drive(k, &j, begin, end);
    tiles_end();
}

void ae_amx_mm_p16_256(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    const ae_packed *p = &w->packed;
    if (p->n_sub == 1) drive_256((kind){true, 1, false, false, HAS_4}, w, act, out, begin, end);
    else if (p->n_sub == 8 && p->has_min) drive_256((kind){true, 8, true, false, HAS_4 | HAS_5}, w, act, out, begin, end);
    else if (p->n_sub == 8) drive_256((kind){true, 8, false, false, HAS_LUT | HAS_5 | HAS_8}, w, act, out, begin, end);
    else if (p->has_min) drive_256((kind){true, 16, true, false, HAS_4}, w, act, out, begin, end);
    else drive_256((kind){true, 16, false, false, HAS_4 | HAS_5 | HAS_6 | HAS_8}, w, act, out, begin, end);
}
