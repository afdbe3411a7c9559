/* mm_p16_256_amx.c - packed AE_DOT_256 products with AMX: arithmetic and layout in kernels.h, the walk in tiles.inc.
 *
 * A chunk is one unit. The chain p goes through L1 between the steps of a unit. */
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
        _mm512_store_ps(to->piece[i], _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes_at(sub, i))));
    if (!k.has_min || (halves == 1 && block % 2)) return;
    const uint32_t i = block * halves; /* and i + 1: the minimums of two pieces side by side */
    const __m128i a = bytes_at(submin, i), b = bytes_at(submin, i + 1);
    _mm512_store_si512(to->pair[i / 2], _mm512_cvtepu8_epi16(_mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b))));
}

/* acc -= sum_j(submin_j * bsum_j) * (dmin * dx) */
INLINE void add_min(const kind k, const step *s, const scales *at, uint32_t first, const int n, __m512 *acc)
{
    const __m512 dmin = _mm512_load_ps(at->unit[1]);
    UNROLL
    for (int r = 0; r < n; r++) {
        const int16_t *bsum = s->bsum + (first + (uint32_t)r) * s->bsum_stride;
        __m512i sum = _mm512_setzero_si512();
        UNROLL
        for (uint32_t i = 0; i < k.n_sub / 2; i++) {
            int32_t two;
            memcpy(&two, bsum + 2 * i, 4);
            sum = _mm512_dpwssd_epi32(sum, _mm512_load_si512(at->pair[i]), _mm512_set1_epi32(two));
        }
        acc[r] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(dmin, _mm512_set1_ps(s->dx[first + (uint32_t)r])), acc[r]);
    }
}

INLINE void tail(const kind k, const step *s, uint32_t panel, uint32_t first, const int n)
{
    const scales *at = s->s + panel;
    float(*kept)[AE_PANEL] = s->p[panel] + first, (*acc)[AE_PANEL] = s->acc[panel] + first;
    __m512 p[8];
    __m512i whole[8]; /* n_sub == 1: one sum through all pieces, kept in the chain's place */
    UNROLL
    for (int r = 0; r < n; r++) {
        p[r] = s->first ? _mm512_load_ps(kept[r]) : _mm512_setzero_ps();
        whole[r] = _mm512_castps_si512(p[r]);
    }
    UNROLL
    for (uint32_t i = 0; i < STEP; i++) {
        const int32_t(*c)[AE_PANEL] = (const int32_t(*)[AE_PANEL])s->c[i][panel] + first;
        const __m512 sub = _mm512_load_ps(at->piece[k.n_sub == 1 ? 0 : s->first + i]);
        UNROLL
        for (int r = 0; r < n; r++) {
            if (k.n_sub == 1) whole[r] = _mm512_add_epi32(whole[r], _mm512_load_si512(c[r]));
            else p[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(c[r])), sub, p[r]);
        }
    }
    if (!s->last) {
        UNROLL
        for (int r = 0; r < n; r++) _mm512_store_ps(kept[r], k.n_sub == 1 ? _mm512_castsi512_ps(whole[r]) : p[r]);
        return;
    }
    const __m512 d = _mm512_load_ps(at->unit[0]), sub = _mm512_load_ps(at->piece[0]);
    __m512 a[8];
    UNROLL
    for (int r = 0; r < n; r++) {
        if (k.n_sub == 1) p[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[r]), sub, _mm512_setzero_ps());
        a[r] = _mm512_fmadd_ps(p[r], _mm512_mul_ps(d, _mm512_set1_ps(s->dx[first + (uint32_t)r])), _mm512_load_ps(acc[r]));
    }
    if (k.has_min) add_min(k, s, at, first, n, a);
    UNROLL
    for (int r = 0; r < n; r++) _mm512_store_ps(acc[r], a[r]);
}

void ae_amx_mm_p16_256(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    const ae_packed *p = &w->packed;
    if (act->n_rows < AE_AMX_ROWS) ae_avx512_mm_p16_256(w, act, out, begin, end);
    else if (p->n_sub == 1) drive((kind){true, 1, false, false}, w, act, out, begin, end);
    else if (p->n_sub == 8 && p->has_min) drive((kind){true, 8, true, false}, w, act, out, begin, end);
    else if (p->n_sub == 8) drive((kind){true, 8, false, false}, w, act, out, begin, end);
    else if (p->has_min) drive((kind){true, 16, true, false}, w, act, out, begin, end);
    else drive((kind){true, 16, false, false}, w, act, out, begin, end);
}
