/* mm_p16_32_amx.c - packed AE_DOT_32 products with AMX: arithmetic and layout in kernels.h, the walk in tiles.inc. */
#include "backend/cpu/x86/tiles.inc"

INLINE __m512 scale_at(const uint8_t *from, uint32_t i, bool f32)
{
    return f32 ? _mm512_loadu_ps((const float *)(const void *)from + 16 * i)
               : _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(from + 32 * i)));
}

INLINE void take_scales(const kind k, const uint8_t *from, uint32_t block, scales *to)
{
    for (uint32_t i = 0; i < k.n_sub; i++) _mm512_store_ps(to->piece[block * k.n_sub + i], scale_at(from, i, k.scale_f32));
    if (k.has_min) _mm512_store_ps(to->unit[block], scale_at(from, k.n_sub, k.scale_f32));
}

INLINE void tail(const kind k, const step *s, uint32_t panel, uint32_t first, const int n)
{
    float(*acc)[AE_PANEL] = s->acc[panel] + first;
    __m512 a[8];
    UNROLL
    for (int r = 0; r < n; r++) a[r] = _mm512_load_ps(acc[r]);
    for (uint32_t i = 0; i < s->n_pieces; i++) {
        const uint32_t piece = s->first + i, block = piece / k.n_sub;
        const int32_t(*c)[AE_PANEL] = (const int32_t(*)[AE_PANEL])s->c[i][panel] + first;
        const float *dx = s->dx + block * GROUP + first, *sx = s->sx + block * GROUP + first;
        const __m512 d = _mm512_load_ps(s->s[panel].piece[piece]);
        UNROLL
        for (int r = 0; r < n; r++)
            a[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(c[r])), _mm512_mul_ps(d, _mm512_set1_ps(dx[r])), a[r]);
        if (!k.has_min) continue;
        const __m512 m = _mm512_load_ps(s->s[panel].unit[block]);
        UNROLL
        for (int r = 0; r < n; r++) a[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(sx[r]), a[r]);
    }
    UNROLL
    for (int r = 0; r < n; r++) _mm512_store_ps(acc[r], a[r]);
}

void ae_amx_mm_p16_32(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    const ae_packed *p = &w->packed;
    if (act->n_rows < AE_AMX_ROWS) ae_avx512_mm_p16_32(w, act, out, begin, end);
    else if (p->n_sub == 2) drive((kind){false, 2, false, true}, w, act, out, begin, end);
    else if (p->scale_f32) drive((kind){false, 1, false, true}, w, act, out, begin, end);
    else if (p->has_min) drive((kind){false, 1, true, false}, w, act, out, begin, end);
    else drive((kind){false, 1, false, false}, w, act, out, begin, end);
}
