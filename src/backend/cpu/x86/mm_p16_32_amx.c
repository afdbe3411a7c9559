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
            const __m512 m = _mm512_load_ps(s->s->unit[block]);
            UNROLL
            for (int r = 0; r < rows; r++) a[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(sx[r]), a[r]);
        }
        if (s->first) unpack_some(k, j, i);
    }
    UNROLL
    for (int r = 0; r < rows; r++) _mm512_store_ps(s->acc[r], a[r]);
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
