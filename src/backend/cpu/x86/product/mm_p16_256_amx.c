/* mm_p16_256_amx.c - packed AE_DOT_256 products with AMX. Arithmetic and layout: kernels.h; the loop over tiles: tiles.inc.
 * Since the sum over a unit is exact, the scale of a sub-block is multiplied into the weights: code * sub is unpacked as two
 * digits of 8 bits, and two products compute the whole unit in 4 steps of 64 k each. What remains per row and unit is a
 * shift, an addition and the float steps. Q2_K and Q3_K need only one digit.
 * A chunk is a unit. Tails either run beside the products of later groups of rows, two groups later, or in a separate phase,
 * where they are twice as fast. The former pays if tails are long, as with minimums, or if there are many groups (ns for 16
 * outputs x 32 k with 16, 64, 512 rows: Q4_K 30, 86, 770 in phases and 27, 71, 640 side by side; Q6_K 38, 81, 735 and 42, 75,
 * 655). */
#include "backend/cpu/simd/p16_base.inc"

#define CHUNK_BLOCKS 8 /* a unit */
#define STEPS 4        /* of 64 k in it */

struct scales { /* of a unit of one panel */
    float d[AE_PANEL], dmin[AE_PANEL];
    int32_t pair[8][AE_PANEL]; /* minimums of two sub-blocks, as int16 */
};

typedef struct job { /* a unit times a group of rows: the operands of its tails */
    const struct scales *s;
    const float *dx;     /* [GROUP] */
    const int32_t *bsum; /* [n_sub / 2][GROUP] */
    float *acc;          /* [GROUP][AE_PANEL] */
    uint32_t panel, group;
    uint32_t n_rows;     /* 0: there is no such job */
    bool fresh;          /* the sums begin */
    bool last;           /* whether the sums are complete after this unit */
} job;

struct own {
    int32_t c[4][2][AE_TILE_ROWS][AE_PANEL] __attribute__((aligned(64))); /* [group of a batch, or i_job % 2][high, low] */
    int8_t codes[2][2][STEPS][16][64] __attribute__((aligned(64)));       /* [turn_of][high, low] */
    struct scales scale[4] __attribute__((aligned(64)));                  /* [i of the place % 4] */
    job jobs[3];                                                          /* [i_job % 3] */
    uint32_t i_job;                                                       /* the next one */
};

#include "backend/cpu/x86/tiles.inc"

_Static_assert(BATCH == 4 * GROUP, "room for the products of a batch");

/* Q3_K: scale * code is from -124 to 128, so its negative is a byte. */
INLINE bool negated(const kind k) { return !k.has_min && k.n_sub == 16 && k.form == FORM_4; }

/* High digits count 2^base_of. one_of: there are only low digits, because scale * code is at most 15 * 3, or a byte. */
INLINE unsigned base_of(const kind k) { return k.has_min ? 3 : 8; }
INLINE bool one_of(const kind k) { return (k.has_min && k.n_sub == 16) || negated(k); }

/* The number of sub-blocks in 32 k, if it is more than one. */
INLINE uint32_t halves_of(const kind k) { return k.n_sub == 16 ? 2 : 1; }

/* ---- Unpacking ------------------------------------------------------------------------------ */

INLINE __m128i bytes_at(const uint8_t *from, uint32_t i)
{
    return _mm_loadu_si128((const __m128i *)(const void *)(from + i * AE_PANEL));
}

/* Returns the scale of each row, a byte, in both halves of its lane, for half h of a block. */
INLINE __m512i sub_at(const kind k, const uint8_t *sub, uint32_t block, uint32_t h)
{
    const uint32_t n = halves_of(k);
    const __m512i lanes = _mm512_set_epi32(0x0F0F0F0F, 0x0E0E0E0E, 0x0D0D0D0D, 0x0C0C0C0C, 0x0B0B0B0B, 0x0A0A0A0A, 0x09090909,
                                           0x08080808, 0x07070707, 0x06060606, 0x05050505, 0x04040404, 0x03030303, 0x02020202,
                                           0x01010101, 0);
    const __m512i all = _mm512_broadcast_i32x4(bytes_at(sub, k.n_sub == 1 ? 0 : block * n + h * (n - 1)));
    return _mm512_maskz_shuffle_epi8(0x5555555555555555, all, lanes);
}

/* For small codes and scales that are not negative: splits the scale, sub = high * 8 + low, and multiplies two codes at once by
 * one product of 16 bits, because neither carries into the other (31 * 7 < 256). one_of(k): the scale is small enough without
 * splitting. Codes of 4 bits in upper nibbles stay there: the upper half of their product with 2^12 times the factor is the
 * same. */
INLINE void unpack_split(const kind k, const uint8_t *codes, ptrdiff_t line, const uint8_t *sub, uint32_t block,
                         int8_t (*high)[64], int8_t (*low)[64])
{
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i w[8], s0 = nibble, s1 = nibble, u0 = nibble, u1 = nibble;
    if (k.form != FORM_4) unpack_gfni(codes, line, k.form, nibble, false, w);
    UNROLL
    for (int g = 0; g < 8; g++) {
        const bool upper = k.form == FORM_4 && g % 2;
        if (g % (8 / (int)halves_of(k)) == 0) {
            const __m512i s = sub_at(k, sub, block, (uint32_t)g / 4);
            s0 = one_of(k) ? s : _mm512_and_si512(s, _mm512_set1_epi16(7));
            s1 = _mm512_srli_epi16(s, 3);
            u0 = _mm512_slli_epi16(s0, 12);
            u1 = _mm512_slli_epi16(s1, 12);
        }
        if (k.form == FORM_4) {
            const __m512i both = _mm512_load_si512(codes + g / 2 * line);
            w[g] = upper ? _mm512_andnot_si512(nibble, both) : _mm512_and_si512(both, nibble);
        }
        _mm512_store_si512(low[g], upper ? _mm512_mulhi_epu16(w[g], u0) : _mm512_mullo_epi16(w[g], s0));
        if (!one_of(k)) _mm512_store_si512(high[g], upper ? _mm512_mulhi_epu16(w[g], u1) : _mm512_mullo_epi16(w[g], s1));
    }
}

/* For any codes and scales: computes (stored - zero) * sub = high * 256 + low, both signed. After adding 128, the upper byte is
 * the high digit, and the lower byte with its top bit inverted is the low one. */
INLINE void unpack_bytes(const kind k, const walk *j, const uint8_t *codes, ptrdiff_t line, const uint8_t *sub, uint32_t block,
                         int8_t (*high)[64], int8_t (*low)[64])
{
    const __m512i zero = _mm512_set1_epi16((short)j->zero);
    const __m512i up = _mm512_set1_epi32(0x02020000), down = _mm512_set1_epi32(0x03030101); /* shift bytes */
    const __m512i lanes = _mm512_set4_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0);
    const __m512i lower = _mm512_add_epi8(up, lanes), upper = _mm512_add_epi8(down, lanes);
    __m512i w[8], even = zero, odd = zero, less = zero;
    unpack_gfni(codes, line, k.form, k.form == FORM_LUT ? lut_of(j) : zero, false, w);
    UNROLL
    for (int g = 0; g < 8; g++) {
        if (g % (8 / (int)halves_of(k)) == 0) { /* in bytes 0 and 2 of a lane, then in 1 and 3 */
            even = sub_at(k, sub, block, (uint32_t)g / 4);
            odd = _mm512_slli_epi16(even, 8);
            less = _mm512_sub_epi16(_mm512_mullo_epi16(_mm512_srai_epi16(odd, 8), zero), _mm512_set1_epi16(128));
        }
        const __m512i e = _mm512_sub_epi16(_mm512_maddubs_epi16(w[g], even), less);
        const __m512i o = _mm512_sub_epi16(_mm512_maddubs_epi16(w[g], odd), less);
        const __m512i both = _mm512_mask_shuffle_epi8(e, 0xAAAAAAAAAAAAAAAA, o, lower);
        _mm512_store_si512(low[g], _mm512_xor_si512(both, _mm512_set1_epi8((char)128)));
        _mm512_store_si512(high[g], _mm512_mask_shuffle_epi8(o, 0x5555555555555555, e, upper));
    }
}

/* Computes (zero - stored) * sub, which fits in a byte. */
INLINE void unpack_negated(const kind k, const walk *j, const uint8_t *codes, ptrdiff_t line, const uint8_t *sub,
                           uint32_t block, int8_t (*low)[64])
{
    const __m512i zero = _mm512_set1_epi16((short)j->zero), lower = _mm512_set1_epi16(255);
    __m512i w[8], even = zero, odd = zero, from = zero;
    unpack_gfni(codes, line, k.form, zero, false, w);
    UNROLL
    for (int g = 0; g < 8; g++) {
        if (g % 4 == 0) { /* in bytes 0 and 2 of a lane, then in 1 and 3 */
            even = sub_at(k, sub, block, (uint32_t)g / 4);
            odd = _mm512_slli_epi16(even, 8);
            from = _mm512_mullo_epi16(_mm512_srai_epi16(odd, 8), zero);
        }
        const __m512i e = _mm512_sub_epi16(from, _mm512_maddubs_epi16(w[g], even));
        const __m512i o = _mm512_sub_epi16(from, _mm512_maddubs_epi16(w[g], odd));
        _mm512_store_si512(low[g], _mm512_ternarylogic_epi32(lower, e, _mm512_slli_epi16(o, 8), 0xCA));
    }
}

INLINE void take_scales(const kind k, const uint8_t *from, uint32_t block, struct scales *to)
{
    const uint32_t halves = halves_of(k), i = block * halves;
    if (block == 0) _mm512_store_ps(to->d, _mm512_loadu_ps((const float *)(const void *)from));
    if (!k.has_min) return;
    if (block == 0) _mm512_store_ps(to->dmin, _mm512_loadu_ps((const float *)(const void *)(from + 64)));
    if (halves == 1 && block % 2) return;
    const uint8_t *submin = from + 128 + k.n_sub * AE_PANEL; /* i and i + 1: minimums of two adjacent sub-blocks */
    const __m128i a = bytes_at(submin, i), b = bytes_at(submin, i + 1);
    const __m256i both = _mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b));
    _mm512_store_si512(to->pair[i / 2], _mm512_cvtepu8_epi16(both));
}

/* Returns whether tails run beside the products of later groups, instead of in a separate phase. */
INLINE bool beside(const kind k, const walk *j)
{
    return k.has_min || (!one_of(k) && j->n_groups > 2);
}

/* Returns whether the next unit is unpacked between products, into another buffer. Otherwise it replaces the current one, since
 * L1 is small, during the steps of the last group or after all of them. */
INLINE bool between(const kind k, const walk *j) { return !k.has_min && (j->n_groups == 2 || beside(k, j)); }
INLINE bool at_last(const kind k) { return k.has_min && k.form == FORM_4; }

/* Returns which of two buffers holds a unit's codes. */
INLINE uint32_t turn_of(const kind k, const walk *j, const place *p)
{
    return between(k, j) ? p->i % 2 : 0;
}

INLINE void take_block(const kind k, walk *j, const place *at, uint32_t i)
{
    const uint8_t *sub = at->scales + (k.has_min ? 128 : 64);
    int8_t(*digits)[STEPS][16][64] = j->own.codes[turn_of(k, j, at)];
    int8_t(*high)[64] = digits[0][0] + i * 8, (*low)[64] = digits[1][0] + i * 8;
    const uint8_t *codes = at->codes + i * at->step;
    if (k.has_min) unpack_split(k, codes, at->line, sub, i, high, low);
    else if (negated(k)) unpack_negated(k, j, codes, at->line, sub, i, low);
    else unpack_bytes(k, j, codes, at->line, sub, i, high, low);
    take_scales(k, at->scales, i, &j->own.scale[at->i % 4]);
}

/* ---- Tails ---------------------------------------------------------------------------------- */

/* Collects the operands of the tails of j->at times a group. */
INLINE job job_of(const kind k, walk *j, uint32_t g)
{
    const void *sums = halves_of(k) == 2 ? j->act->tb16 : j->act->tb32;
    const size_t unit = (size_t)(j->row / GROUP + g) * j->n_blocks / 8 + j->at->block / 8;
    return (job){.s = &j->own.scale[j->at->i % 4], .dx = j->act->td256 + unit * GROUP,
                 .bsum = (const int32_t *)sums + unit * k.n_sub / 2 * GROUP, .acc = sums_of(j, g)[0], .panel = j->at->panel,
                 .group = g, .n_rows = rows_of(j, g), .fresh = !j->at->i_chunk, .last = j->at->i_chunk + 1 == j->n_chunks};
}

/* Computes rows [row, row + n). Values are loaded once, before the stores that could alias them, so that they stay in
 * registers. */
INLINE void tail(const kind k, const job *t, const int32_t (*c)[AE_TILE_ROWS][AE_PANEL], uint32_t row, const uint32_t n)
{
    static const float zeros[AE_PANEL] __attribute__((aligned(64)));
    const struct scales *s = t->s;
    const float *dxs = t->dx;
    const int32_t *bsum = t->bsum;
    float *acc = t->acc;
    const float *from = t->fresh ? zeros : acc;
    const size_t step_from = t->fresh ? 0 : AE_PANEL;
    const __m512 d = _mm512_load_ps(s->d), dmin = k.has_min ? _mm512_load_ps(s->dmin) : d;
    __m512i pair[8];
    if (k.has_min)
        UNROLL
        for (uint32_t m = 0; m < k.n_sub / 2; m++) pair[m] = _mm512_load_si512(s->pair[m]);
    for (uint32_t r = row; r < row + n; r++) {
        const __m512 dx = _mm512_set1_ps(dxs[r]);
        __m512i sum = _mm512_load_si512(c[1][r]);
        if (!one_of(k)) sum = _mm512_add_epi32(sum, _mm512_slli_epi32(_mm512_load_si512(c[0][r]), base_of(k)));
        const __m512 f = _mm512_cvtepi32_ps(sum), by = _mm512_mul_ps(d, dx), was = _mm512_load_ps(from + r * step_from);
        __m512 a = negated(k) ? _mm512_fnmadd_ps(f, by, was) : _mm512_fmadd_ps(f, by, was);
        if (k.has_min) {
            __m512i less = _mm512_setzero_si512();
            UNROLL
            for (uint32_t m = 0; m < k.n_sub / 2; m++)
                less = _mm512_dpwssd_epi32(less, pair[m], _mm512_set1_epi32(bsum[m * GROUP + r]));
            a = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(less), _mm512_mul_ps(dmin, dx), a);
        }
        _mm512_store_ps(acc + r * AE_PANEL, a);
    }
}

INLINE const int32_t (*products_of(const struct own *o, uint32_t i))[AE_TILE_ROWS][AE_PANEL]
{
    return (const int32_t(*)[AE_TILE_ROWS][AE_PANEL])o->c[i];
}

/* ---- Products ------------------------------------------------------------------------------- */

/* Both digits are signed or both are not: switching between the instructions costs half a product. */
#define PRODUCT(k, c, a, b) \
    do { \
        if ((k).has_min) TILE_DOT_U(c, a, b); \
        else TILE_DOT(c, a, b); \
    } while (0)

/* ---- In phases ------------------------------------------------------------------------------ */

/* Multiplies a unit with groups g and, if there are two, g + 1: two or four sums at a time hide the latency of a product.
 * Unpacks the next unit in between. */
INLINE void products(const kind k, walk *j, uint32_t g, const bool two)
{
    struct own *o = &j->own;
    const int8_t *a = j->act->t256 + ((size_t)(j->row / GROUP + g) * j->n_blocks + j->at->block) * GROUP * 32;
    const int8_t *b = a + (size_t)j->n_blocks * GROUP * 32;
    const int8_t *high = o->codes[turn_of(k, j, j->at)][0][0][0], *low = o->codes[turn_of(k, j, j->at)][1][0][0];
    TILE_ZERO(1);
    if (!one_of(k)) TILE_ZERO(0);
    if (two) TILE_ZERO(3);
    if (two && !one_of(k)) TILE_ZERO(2);
    for (uint32_t i = 0; i < STEPS; i++, high += 1024, low += 1024, a += GROUP * 64, b += GROUP * 64) {
        TILE_LOAD_64(4, a);
        TILE_LOAD_64(7, low);
        PRODUCT(k, 1, 4, 7);
        if (!one_of(k)) {
            TILE_LOAD_64(6, high);
            PRODUCT(k, 0, 4, 6);
        }
        if (between(k, j)) unpack_some(k, j);
        if (two) {
            TILE_LOAD_64(5, b);
            PRODUCT(k, 3, 5, 7);
        }
        if (two && !one_of(k)) PRODUCT(k, 2, 5, 6);
        if (between(k, j)) unpack_some(k, j);
    }
    TILE_STORE(1, o->c[g][1]);
    if (!one_of(k)) TILE_STORE(0, o->c[g][0]);
    if (two) TILE_STORE(3, o->c[g + 1][1]);
    if (two && !one_of(k)) TILE_STORE(2, o->c[g + 1][0]);
}

INLINE void chunk_in_phases(const kind k, walk *j)
{
    uint32_t g = 0;
    for (; g + 2 <= j->n_groups; g += 2) products(k, j, g, true);
    if (g < j->n_groups) products(k, j, g, false);
    for (g = 0; g < j->n_groups; g++) {
        const job t = job_of(k, j, g);
        tail(k, &t, products_of(&j->own, g), 0, t.n_rows);
        if (t.last) put(j, t.panel, g, t.acc);
    }
}

/* ---- Side by side --------------------------------------------------------------------------- */

/* A step of job i: its products; between the first ones the store of job i - 1. */
#define STEP(n, high_c, low_c, a_tile, high_was, low_was, was) \
    do { \
        if ((n) == 0) TILE_ZERO(low_c); \
        if ((n) == 0 && !one_of(k)) TILE_ZERO(high_c); \
        TILE_LOAD_64(a_tile, a); \
        TILE_LOAD_64(7, low); \
        PRODUCT(k, low_c, a_tile, 7); \
        if (!one_of(k)) { \
            TILE_LOAD_64(6, high); \
            PRODUCT(k, high_c, a_tile, 6); \
        } \
        if ((n) == 1) TILE_STORE(low_was, o->c[was][1]); \
        if ((n) == 2 && !one_of(k)) TILE_STORE(high_was, o->c[was][0]); \
    } while (0)

/* Runs job i, and the tails of job i - 2. */
INLINE void side_by_side(const kind k, walk *j, uint32_t g, const uint32_t odd)
{
    struct own *o = &j->own;
    const int8_t *a = j->act->t256 + ((size_t)(j->row / GROUP + g) * j->n_blocks + j->at->block) * GROUP * 32;
    const int8_t *high = o->codes[turn_of(k, j, j->at)][0][0][0], *low = o->codes[turn_of(k, j, j->at)][1][0][0];
    const job *due = &o->jobs[(o->i_job + 1) % 3];
    UNROLL
    for (uint32_t n = 0; n < STEPS; n++, high += 1024, low += 1024, a += GROUP * 64) {
        if (odd && n % 2) STEP(n, 2, 3, 5, 0, 1, 0);
        else if (odd) STEP(n, 2, 3, 4, 0, 1, 0);
        else if (n % 2) STEP(n, 0, 1, 5, 2, 3, 1);
        else STEP(n, 0, 1, 4, 2, 3, 1);
        if (due->n_rows > 4 * n) tail(k, due, products_of(o, odd), 4 * n, 4);
        if (between(k, j) && n % 2) unpack_some(k, j);
        if (at_last(k) && g + 1 == j->n_groups) {
            unpack_some(k, j);
            unpack_some(k, j);
        }
    }
    if (due->n_rows && due->last) put(j, due->panel, due->group, due->acc);
}

INLINE void chunk_side_by_side(const kind k, walk *j)
{
    struct own *o = &j->own;
    for (uint32_t g = 0; g < j->n_groups; g++, o->i_job++) {
        o->jobs[o->i_job % 3] = job_of(k, j, g);
        if (o->i_job % 2) side_by_side(k, j, g, 1);
        else side_by_side(k, j, g, 0);
    }
}

/* Runs the tails of the last two jobs. */
INLINE void finish(const kind k, walk *j)
{
    struct own *o = &j->own;
    for (uint32_t i = 0; i < 2; i++, o->i_job++) {
        const job *due = &o->jobs[(o->i_job + 1) % 3];
        if (!i && o->i_job % 2) { /* the products of the last one are still in the tiles */
            TILE_STORE(0, o->c[0][0]);
            TILE_STORE(1, o->c[0][1]);
        } else if (!i) {
            TILE_STORE(2, o->c[1][0]);
            TILE_STORE(3, o->c[1][1]);
        }
        if (!due->n_rows) continue;
        tail(k, due, products_of(o, o->i_job % 2), 0, due->n_rows);
        if (due->last) put(j, due->panel, due->group, due->acc);
    }
}

/* ---- The parts of the walk ------------------------------------------------------------------ */

INLINE void begin_batch(const kind k, walk *j)
{
    (void)k;
    j->own.i_job = 0;
    for (int i = 0; i < 3; i++) j->own.jobs[i].n_rows = 0;
}

INLINE void chunk(const kind k, walk *j)
{
    if (beside(k, j)) chunk_side_by_side(k, j);
    else chunk_in_phases(k, j);
}

INLINE void end_batch(const kind k, walk *j)
{
    if (beside(k, j)) finish(k, j);
}

INLINE void drive_256(const kind k, const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    walk j;
    begin_walk(k, &j, w, act, out);
    AE_ASSERT(act->t256 && (!negated(k) || w->packed.zero == 4));
    tiles_begin(64, act->n_rows < GROUP ? (act->n_rows + 3) / 4 * 4 : GROUP);
    drive(k, &j, begin, end);
    tiles_end();
}

void ae_amx_mm_p16_256(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    const ae_packed *p = &w->packed;
    const int form = p->has_lut ? FORM_LUT : (int)p->code_bits;
#define CASE(n, min, f) \
    if (p->n_sub == n && p->has_min == min && form == f) \
        return drive_256((kind){true, n, min, false, f, false, false}, w, act, out, begin, end)
    CASE(1, false, FORM_4);
    CASE(8, true, FORM_4);
    CASE(8, true, FORM_5);
    CASE(8, false, FORM_LUT);
    CASE(8, false, FORM_5);
    CASE(8, false, FORM_8);
    CASE(16, true, FORM_4);
    CASE(16, false, FORM_4);
    CASE(16, false, FORM_5);
    CASE(16, false, FORM_6);
    CASE(16, false, FORM_8);
#undef CASE
    AE_ASSERT(false);
}
