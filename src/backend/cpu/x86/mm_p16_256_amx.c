/* mm_p16_256_amx.c - packed AE_DOT_256 products with AMX: arithmetic and layout in kernels.h, the walk in tiles.inc.
 *
 * A run is one unit: the sums p stay in registers, those of the outputs pass through L1. */
#include "backend/cpu/x86/tiles.inc"

INLINE __m128i bytes_at(const uint8_t *from, uint32_t i)
{
    return _mm_loadu_si128((const __m128i *)(const void *)(from + i * AE_PANEL));
}

INLINE void take_scales(const kind k, const uint8_t *from, uint32_t block, scales *to)
{
    const uint8_t *sub = from + (k.has_min ? 128 : 64), *submin = sub + k.n_sub * AE_PANEL;
    const uint32_t halves = k.n_sub == 16 ? 2 : 1;
    if (block == 0) {
        _mm512_store_ps(to->unit[0], _mm512_loadu_ps((const float *)(const void *)from));
        if (k.has_min) _mm512_store_ps(to->unit[1], _mm512_loadu_ps((const float *)(const void *)(from + 64)));
    }
    for (uint32_t i = block * halves; i < (block + 1) * halves && i < k.n_sub; i++)
        _mm512_store_si512(to->piece[i], _mm512_cvtepi8_epi32(bytes_at(sub, i)));
    if (!k.has_min || (halves == 1 && block % 2)) return;
    const uint32_t i = block * halves; /* and i + 1: the minimums of two pieces side by side */
    const __m128i a = bytes_at(submin, i), b = bytes_at(submin, i + 1);
    _mm512_store_si512(to->pair[i / 2], _mm512_cvtepu8_epi16(_mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b))));
}

/* acc - sum_j(submin_j * bsum_j) * (dmin * dx) of row r */
INLINE __m512 less_min(const kind k, const run_args *s, int r, __m512 acc)
{
    const int16_t *bsum = s->bsum + ((uint32_t)r < s->n_rows ? (size_t)r : 0) * s->bsum_stride;
    __m512i sum = _mm512_setzero_si512();
    UNROLL
    for (uint32_t i = 0; i < k.n_sub / 2; i++) {
        int32_t two;
        memcpy(&two, bsum + 2 * i, 4);
        sum = _mm512_dpwssd_epi32(sum, _mm512_load_si512(s->s->pair[i]), _mm512_set1_epi32(two));
    }
    const __m512 dmin = _mm512_mul_ps(_mm512_load_ps(s->s->unit[1]), _mm512_set1_ps(s->dx[r]));
    return _mm512_fnmadd_ps(_mm512_cvtepi32_ps(sum), dmin, acc);
}

INLINE void run(const kind k, walk *j, const run_args *s, const int rows)
{
    __m512i p[GROUP];
    UNROLL
    for (int r = 0; r < rows; r++) p[r] = _mm512_setzero_si512();
    for (uint32_t i = 0; i < 8 * halves_of(k); i++) {
        const int32_t(*c)[AE_PANEL] = advance(k, j);
        const __m512i sub = _mm512_load_si512(s->s->piece[k.n_sub == 1 ? 0 : i]); /* int32 here */
        UNROLL
        for (int r = 0; r < rows; r++) p[r] = _mm512_add_epi32(p[r], _mm512_mullo_epi32(_mm512_load_si512(c[r]), sub));
        if (s->first) unpack_some(k, j, i);
    }
    const __m512 d = _mm512_load_ps(s->s->unit[0]);
    UNROLL
    for (int r = 0; r < rows; r++) {
        __m512 a = s->fresh ? _mm512_setzero_ps() : _mm512_load_ps(s->acc[r]);
        a = _mm512_fmadd_ps(_mm512_cvtepi32_ps(p[r]), _mm512_mul_ps(d, _mm512_set1_ps(s->dx[r])), a);
        _mm512_store_ps(s->acc[r], k.has_min ? less_min(k, s, r, a) : a);
    }
}

/* From how many rows on tiles cost less than VNNI (see mm_p16_32_amx.c). */
static uint32_t least_rows(const ae_packed *p)
{
    if (p->n_sub == 1) return 3;
    if (p->n_sub == 8) return p->has_min ? 13 : p->has_lut ? 5 : 9;
    return p->has_min ? 24 : p->code_bits == 6 ? 13 : 10;
}

void ae_amx_mm_p16_256(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    const ae_packed *p = &w->packed;
    if (act->n_rows < least_rows(p)) ae_avx512_mm_p16_256(w, act, out, begin, end);
    else if (p->n_sub == 1) drive((kind){true, 1, false, false, HAS_4}, w, act, out, begin, end);
    else if (p->n_sub == 8 && p->has_min) drive((kind){true, 8, true, false, HAS_4 | HAS_5}, w, act, out, begin, end);
    else if (p->n_sub == 8) drive((kind){true, 8, false, false, HAS_LUT | HAS_5 | HAS_8}, w, act, out, begin, end);
    else if (p->has_min) drive((kind){true, 16, true, false, HAS_4}, w, act, out, begin, end);
    else drive((kind){true, 16, false, false, HAS_4 | HAS_5 | HAS_6 | HAS_8}, w, act, out, begin, end);
}
