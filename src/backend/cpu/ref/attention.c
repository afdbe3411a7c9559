/* attention.c - the definition of attention: one query at a time, position by position.
 *
 * A draft row's ancestors are read from the slots in its path, in position order, so the arithmetic is the same
 * as if they had been accepted before (docs/same-bytes.md). */
#include <math.h>
#include <string.h>

#include "backend/cpu/ref/ref.h"
#include "backend/arithmetic.h"
#include "base/math/fmath.h"

/* A query with the data that its cache type needs. */
typedef struct view {
    const ae_attn_tile *t;
    const ae_attn_query *query;
    const int32_t *codes; /* [head_dim] */
    float code_scale;     /* scale of the codes, times the tile's scale / h */
    ae_kv_type type;      /* of codes */
    uint32_t n_planes, value_planes; /* planes of codes; value_planes is not used for latent rows */
    /* only for latent rows: */
    const int32_t *rope_codes; /* [n_rope] */
    float rope_scale;
} view;

static const void *slot_page(const ae_attn_tile *t, int32_t slot)
{
    return (const char *)t->base + (size_t)t->table[slot / AE_KV_PAGE] * t->page_stride;
}

static int32_t slot_of(const ae_attn_query *query, int32_t pos)
{
    return pos < query->n_inplace ? pos : query->path[pos - query->n_inplace];
}

/* ---- f16 -------------------------------------------------------------------------------------- */

static float score_f16(const view *w, int32_t slot)
{
    const ae_attn_tile *t = w->t;
    const uint32_t place = (uint32_t)slot % AE_KV_PAGE;
    const uint16_t *k = (const uint16_t *)slot_page(t, slot) + (size_t)(place / 16) * t->head_dim * 16 + place % 16;
    float s = 0;
    for (uint32_t i = 0; i < t->head_dim; i++) s = fmaf(ae_f16_to_f32(k[i * 16]), w->query->q[i] * t->scale, s);
    return s;
}

static void values_f16(const view *w, int32_t first, int32_t last, const float *p, float *o)
{
    const ae_attn_tile *t = w->t;
    memset(o, 0, t->head_dim * sizeof *o);
    for (int32_t pos = first; pos <= last; pos++) {
        const int32_t slot = slot_of(w->query, pos);
        const uint16_t *page = slot_page(t, slot);
        const uint16_t *v = page + AE_KV_K_ELEMENTS(t->head_dim) + (size_t)(slot % AE_KV_PAGE) * t->head_dim;
        for (uint32_t i = 0; i < t->head_dim; i++) o[i] = fmaf(p[pos % AE_KV_PAGE], ae_f16_to_f32(v[i]), o[i]);
    }
}

/* ---- f32 -------------------------------------------------------------------------------------- */

static float score_f32(const view *w, int32_t slot)
{
    const ae_attn_tile *t = w->t;
    const float *k = (const float *)slot_page(t, slot) + (size_t)(slot % AE_KV_PAGE) * t->head_dim;
    float s = 0;
    for (uint32_t i = 0; i < t->head_dim; i++) s = fmaf(k[i], w->query->q[i] * t->scale, s);
    return s;
}

static void values_f32(const view *w, int32_t first, int32_t last, const float *p, float *o)
{
    const ae_attn_tile *t = w->t;
    memset(o, 0, t->head_dim * sizeof *o);
    for (int32_t pos = first; pos <= last; pos++) {
        const int32_t slot = slot_of(w->query, pos);
        const float *v = (const float *)slot_page(t, slot) + AE_KV_K_ELEMENTS(t->head_dim) +
                         (size_t)(slot % AE_KV_PAGE) * t->head_dim;
        for (uint32_t i = 0; i < t->head_dim; i++) o[i] = fmaf(p[pos % AE_KV_PAGE], v[i], o[i]);
    }
}

/* ---- q4_0, q8_0, i16 ------------------------------------------------------------------------------ */

/* Combines the sums of one or two planes. */
static float of_planes(const int32_t *sums, uint32_t n)
{
    return n == 1 ? (float)sums[0] : fmaf((float)sums[0], 128.0f, (float)sums[1]);
}

/* Returns the level of one of the two codes of 4 bits in a byte. */
static int32_t level4(int8_t byte, bool high)
{
    static const int8_t levels[] = AE_KV4_LEVELS;
    const uint32_t code = (uint8_t)byte >> (high ? 4 : 0) & 15;
    return code < 8 ? -levels[7 - code] : levels[code - 8];
}

/* Returns the dot product over n values of the row, from element `at` on; rows of `dim`. */
static float dot_part(const view *w, int32_t slot, uint32_t dim, uint32_t at, uint32_t n, const int32_t *codes)
{
    const uint32_t place = (uint32_t)slot % AE_KV_PAGE;
    const int8_t *plane = slot_page(w->t, slot);
    int32_t sums[2] = {0};
    if (!w->t->n_rope && ae_kv_key_bits(w->type) == 4) {
        for (uint32_t i = 0; i < n; i++) sums[0] += level4(plane[ae_kv4_k_at(dim, place, i)], i & 4) * codes[i];
        return (float)sums[0];
    }
    for (uint32_t p = 0; p < w->n_planes; p++, plane += AE_KV8_CODES(dim))
        for (uint32_t i = 0; i < n; i++) sums[p] += plane[ae_kv8_k_at(dim, place, at + i)] * codes[i];
    return of_planes(sums, w->n_planes);
}

static const float *scales_of(const view *w, const void *page)
{
    return ae_kv_scales(page, w->type, w->t->head_dim);
}

static float score_codes(const view *w, int32_t slot)
{
    const uint32_t n = w->t->head_dim;
    const float dot = dot_part(w, slot, n, 0, n, w->codes);
    return dot * (scales_of(w, slot_page(w->t, slot))[slot % AE_KV_PAGE] * w->code_scale);
}

/* Converts a chunk's weights to codes; returns their scale. */
static float weight_codes(const float *weight, uint32_t n, int32_t *code)
{
    float top = 0;
    for (uint32_t j = 0; j < n; j++) top = weight[j] > top ? weight[j] : top;
    const float inv = top > 1e-30f ? AE_KV_WEIGHT / top : 0;
    for (uint32_t j = 0; j < n; j++) code[j] = ae_round_magic(weight[j], inv);
    return top > 1e-30f ? top * (1 / AE_KV_WEIGHT) : 0;
}

static void values_codes(const view *w, int32_t first, int32_t last, const float *p, float *o)
{
    const ae_attn_tile *t = w->t;
    const size_t plane = AE_KV8_CODES(t->head_dim), values = ae_kv_key_bytes(w->type, t->head_dim);
    const bool halves = ae_kv_value_bits(w->type) == 4;
    const int8_t *page[AE_KV_PAGE];
    uint32_t place[AE_KV_PAGE];
    float weight[AE_KV_PAGE];
    int32_t code[AE_KV_PAGE];
    const int32_t n = last - first + 1;
    for (int32_t j = 0; j < n; j++) {
        const int32_t slot = slot_of(w->query, first + j);
        page[j] = slot_page(t, slot);
        place[j] = (uint32_t)slot % AE_KV_PAGE;
        weight[j] = p[(first + j) % AE_KV_PAGE] * scales_of(w, page[j])[AE_KV_PAGE + place[j]];
    }
    const float d = weight_codes(weight, (uint32_t)n, code);
    for (uint32_t i = 0; i < t->head_dim; i++) {
        int32_t sums[2] = {0};
        for (int32_t j = 0; halves && j < n; j++)
            sums[0] += code[j] * level4(page[j][values + ae_kv4_v_at(t->head_dim, place[j], i)], i & 16);
        for (uint32_t k = 0; !halves && k < w->value_planes; k++)
            for (int32_t j = 0; j < n; j++)
                sums[k] += code[j] * page[j][values + k * plane + ae_kv_v_at(t->head_dim, place[j], i)];
        o[i] = of_planes(sums, w->value_planes) * d;
    }
}

/* ---- Latent rows --------------------------------------------------------------------------------- */

static const float *latent_row(const view *w, int32_t slot)
{
    return (const float *)slot_page(w->t, slot) + (size_t)(slot % AE_KV_PAGE) * (w->t->n_rope + w->t->head_dim);
}

static float score_latent_f32(const view *w, int32_t slot)
{
    const float *k = latent_row(w, slot);
    float s = 0;
    for (uint32_t i = 0; i < w->t->n_rope + w->t->head_dim; i++) s = fmaf(k[i], w->query->q[i] * w->t->scale, s);
    return s;
}

static void values_latent_f32(const view *w, int32_t first, int32_t last, const float *p, float *o)
{
    memset(o, 0, w->t->head_dim * sizeof *o);
    for (int32_t pos = first; pos <= last; pos++) {
        const float *v = latent_row(w, slot_of(w->query, pos)) + w->t->n_rope;
        for (uint32_t i = 0; i < w->t->head_dim; i++) o[i] = fmaf(p[pos % AE_KV_PAGE], v[i], o[i]);
    }
}

/* Returns the first element of the latent part in a padded row. */
static uint32_t latent_at(const ae_attn_tile *t)
{
    return (uint32_t)AE_LATENT_DIM(t->n_rope);
}

/* Returns the length of a padded row. */
static uint32_t latent_dim(const ae_attn_tile *t)
{
    return latent_at(t) + (uint32_t)AE_LATENT_DIM(t->head_dim);
}

static float score_latent(const view *w, int32_t slot)
{
    const ae_attn_tile *t = w->t;
    const float *d = ae_latent_scales(slot_page(t, slot), w->n_planes, t->head_dim, t->n_rope) + slot % AE_KV_PAGE;
    const float latent = dot_part(w, slot, latent_dim(t), latent_at(t), t->head_dim, w->codes);
    const float rotated = dot_part(w, slot, latent_dim(t), 0, t->n_rope, w->rope_codes);
    return fmaf(latent, d[0] * w->code_scale, rotated * (d[AE_KV_PAGE] * w->rope_scale));
}

static void values_latent(const view *w, int32_t first, int32_t last, const float *p, float *o)
{
    const ae_attn_tile *t = w->t;
    const uint32_t dim = latent_dim(t), at = latent_at(t);
    const int8_t *page[AE_KV_PAGE];
    uint32_t place[AE_KV_PAGE];
    float weight[AE_KV_PAGE];
    int32_t code[AE_KV_PAGE];
    const uint32_t n = (uint32_t)(last - first + 1);
    for (uint32_t j = 0; j < n; j++) {
        const int32_t slot = slot_of(w->query, first + (int32_t)j);
        page[j] = slot_page(t, slot);
        place[j] = (uint32_t)slot % AE_KV_PAGE;
        const float *scales = ae_latent_scales(page[j], w->n_planes, t->head_dim, t->n_rope);
        weight[j] = p[((uint32_t)first + j) % AE_KV_PAGE] * scales[place[j]];
    }
    const float d = weight_codes(weight, n, code);
    for (uint32_t i = 0; i < t->head_dim; i++) {
        int32_t sums[2] = {0};
        for (uint32_t k = 0; k < w->n_planes; k++)
            for (uint32_t j = 0; j < n; j++)
                sums[k] += code[j] * page[j][k * AE_KV_PAGE * (size_t)dim + ae_kv8_k_at(dim, place[j], at + i)];
        o[i] = of_planes(sums, w->n_planes) * d;
    }
}

/* ---- Chunks ------------------------------------------------------------------------------------- */

typedef struct kind {
    float (*score)(const view *w, int32_t slot);
    void (*values)(const view *w, int32_t first, int32_t last, const float *p, float *o);
} kind;

/* Handles positions [first, last] of one chunk: computes their maximum, their sum and o [head_dim]. */
static void chunk(const view *w, const kind *k, int32_t first, int32_t last, float *m, float *l, float *o)
{
    float s[AE_KV_PAGE], sums[16] = {0};
    float top = -INFINITY; /* a NaN never becomes the maximum, wherever it stands */
    for (int32_t p = first; p <= last; p++) {
        float x = k->score(w, slot_of(w->query, p));
        if (w->t->softcap != 0.0f) x = ae_softcapf(x, w->t->softcap);
        if (w->query->slope != 0.0f) x = ae_biased(x, w->query->slope, w->query->own, p);
        if (w->query->bias) x += w->query->bias[ae_attn_bias_at(w->query->own, p)];
        s[p % AE_KV_PAGE] = x;
        top = x > top ? x : top;
    }
    for (int32_t p = first; p <= last; p++) {
        float *x = &s[p % AE_KV_PAGE];
        *x = ae_attn_exp(*x - top);
        sums[p % 16] += *x;
    }
    k->values(w, first, last, s, o);
    *m = top;
    *l = ae_sum16(sums);
}

/* Merges a chunk's result into the query's. */
static void join(float *y, float *big_m, float *big_l, const float *o, float m, float l, uint32_t n, bool is_first)
{
    if (is_first) {
        memcpy(y, o, n * sizeof *y);
        *big_m = m;
        *big_l = l;
        return;
    }
    const float top = *big_m > m ? *big_m : m, a = ae_attn_exp(*big_m - top), b = ae_attn_exp(m - top);
    *big_m = top;
    *big_l = fmaf(*big_l, a, l * b);
    for (uint32_t i = 0; i < n; i++) y[i] = fmaf(y[i], a, o[i] * b);
}

static void finish(const ae_attn_tile *t, const ae_attn_query *query, float m, float l)
{
    const float inv = ae_attn_finish(t, query, m, l);
    for (uint32_t i = 0; i < t->head_dim; i++) query->y[i] *= inv;
}

static float *part_of(const ae_attn_tile *t, int32_t i_chunk, uint32_t i_query)
{
    return t->parts + ((size_t)(i_chunk - t->chunk_begin) * t->n_queries + i_query) * AE_ATTN_PART(t->head_dim);
}

/* Finds the first and last chunk that a query sees; with parts only among [chunk_begin, chunk_end). */
static void chunks_of(const ae_attn_tile *t, const ae_attn_query *query, int32_t *first, int32_t *last)
{
    *first = ae_attn_first_seen(t, query) / AE_KV_PAGE;
    *last = query->pos / AE_KV_PAGE;
    if (!t->parts) return;
    if (*first < t->chunk_begin) *first = t->chunk_begin;
    if (*last >= t->chunk_end) *last = t->chunk_end - 1;
}

static void attend(const view *w, const kind *k, uint32_t i_query)
{
    const ae_attn_tile *t = w->t;
    float *y = w->query->y, *o = t->scratch, m, l, big_m = 0, big_l = 0;
    const int32_t low = ae_attn_first_seen(t, w->query);
    int32_t begin, end;
    chunks_of(t, w->query, &begin, &end);
    for (int32_t c = begin; c <= end; c++) {
        const int32_t first = c * AE_KV_PAGE, last = first + AE_KV_PAGE - 1;
        float *part = t->parts ? part_of(t, c, i_query) : NULL;
        chunk(w, k, low > first ? low : first, w->query->pos < last ? w->query->pos : last, &m, &l, part ? part + 16 : o);
        if (part) part[0] = m, part[1] = l;
        else join(y, &big_m, &big_l, o, m, l, t->head_dim, c == begin);
    }
    if (!t->parts) finish(t, w->query, big_m, big_l);
}

void ae_ref_attention_f16(const ae_attn_tile *t)
{
    const kind k = {score_f16, values_f16};
    for (uint32_t i = 0; i < t->n_queries; i++) attend(&(view){.t = t, .query = &t->query[i]}, &k, i);
}

void ae_ref_attention_f32(const ae_attn_tile *t)
{
    const kind k = {score_f32, values_f32};
    for (uint32_t i = 0; i < t->n_queries; i++) attend(&(view){.t = t, .query = &t->query[i]}, &k, i);
}

static void attend_codes(const ae_attn_tile *t, ae_kv_type type)
{
    const kind k = {score_codes, values_codes};
    for (uint32_t i = 0; i < t->n_queries; i++) {
        int32_t *codes = (int32_t *)(void *)(t->scratch + t->head_dim); /* after o */
        const float d = ae_ref_quant_query(t->query[i].q, t->head_dim, codes);
        attend(&(view){.t = t, .query = &t->query[i], .codes = codes, .type = type, .n_planes = ae_kv_key_planes(type),
                       .value_planes = ae_kv_value_planes(type),
                       .code_scale = d * (t->scale / (float)ae_kv8_turn(t->head_dim))}, &k, i);
    }
}

void ae_ref_attention_q8(const ae_attn_tile *t) { attend_codes(t, AE_KV_Q8_0); }
void ae_ref_attention_i16(const ae_attn_tile *t) { attend_codes(t, AE_KV_I16); }
void ae_ref_attention_i16_q8(const ae_attn_tile *t) { attend_codes(t, AE_KV_I16_Q8_0); }
void ae_ref_attention_q8_i16(const ae_attn_tile *t) { attend_codes(t, AE_KV_Q8_0_I16); }
void ae_ref_attention_q4(const ae_attn_tile *t) { attend_codes(t, AE_KV_Q4_0); }
void ae_ref_attention_q8_q4(const ae_attn_tile *t) { attend_codes(t, AE_KV_Q8_0_Q4_0); }
void ae_ref_attention_i16_q4(const ae_attn_tile *t) { attend_codes(t, AE_KV_I16_Q4_0); }

void ae_ref_latent_attention_f32(const ae_attn_tile *t)
{
    const kind k = {score_latent_f32, values_latent_f32};
    for (uint32_t i = 0; i < t->n_queries; i++) attend(&(view){.t = t, .query = &t->query[i]}, &k, i);
}

static void attend_latent(const ae_attn_tile *t, uint32_t n_planes)
{
    const kind k = {score_latent, values_latent};
    for (uint32_t i = 0; i < t->n_queries; i++) {
        const float *q = t->query[i].q;
        int32_t *codes = (int32_t *)(void *)(t->scratch + t->head_dim), *rope = codes + t->head_dim; /* after o */
        const float d = ae_ref_quant_query(q + t->n_rope, t->head_dim, codes), dr = ae_ref_quant_query(q, t->n_rope, rope);
        attend(&(view){.t = t, .query = &t->query[i], .codes = codes, .rope_codes = rope, .n_planes = n_planes,
                       .code_scale = d * (t->scale / (float)ae_kv8_turn(t->head_dim)),
                       .rope_scale = dr * (t->scale / (float)ae_kv8_turn(t->n_rope))}, &k, i);
    }
}

void ae_ref_latent_attention_codes15(const ae_attn_tile *t) { attend_latent(t, 2); }
void ae_ref_latent_attention_q8(const ae_attn_tile *t) { attend_latent(t, 1); }

/* ---- Index keys ---------------------------------------------------------------------------------- */

/* Adds a head's part to the scores; the view has the query and its codes. */
static void score_head(const ae_index_row *r, const view *w, float (*score)(const view *w, int32_t slot), float weight)
{
    for (int32_t p = r->first; p < r->end; p++) {
        const float dot = score(w, slot_of(w->query, p));
        r->score[p] = fmaf(weight, dot > r->floor ? dot : r->floor, r->score[p]);
    }
}

static void index_scores(const ae_index_row *r, uint32_t n_planes)
{
    const ae_attn_tile t = {.head_dim = r->head_dim, .n_rope = r->n_rope, .scale = 1.0f, .base = r->base,
                            .page_stride = r->page_stride, .table = r->table};
    int32_t *codes = (int32_t *)(void *)r->scratch, *rope = codes + r->head_dim;
    for (int32_t p = r->first; p < r->end; p++) r->score[p] = 0;
    for (uint32_t a = 0; a < r->n_heads; a++) {
        const float *q = r->q + (size_t)a * (r->n_rope + r->head_dim);
        const ae_attn_query query = {.q = q, .n_inplace = r->n_inplace, .path = r->path};
        view w = {.t = &t, .query = &query, .codes = codes, .rope_codes = rope, .n_planes = n_planes};
        if (n_planes) {
            w.code_scale = ae_ref_quant_query(q + r->n_rope, r->head_dim, codes) * (1.0f / (float)ae_kv8_turn(r->head_dim));
            w.rope_scale = ae_ref_quant_query(q, r->n_rope, rope) * (1.0f / (float)ae_kv8_turn(r->n_rope));
        }
        score_head(r, &w, n_planes ? score_latent : score_latent_f32, r->weight[a]);
    }
}

void ae_ref_index_scores_f32(const ae_index_row *r) { index_scores(r, 0); }
void ae_ref_index_scores_codes15(const ae_index_row *r) { index_scores(r, 2); }
void ae_ref_index_scores_q8(const ae_index_row *r) { index_scores(r, 1); }

void ae_ref_attention_merge(const ae_attn_tile *t, ae_attn_state *state, bool last)
{
    for (uint32_t i = 0; i < t->n_queries; i++) {
        const ae_attn_query *query = &t->query[i];
        const int32_t first_seen = ae_attn_first_seen(t, query) / AE_KV_PAGE;
        int32_t begin, end;
        chunks_of(t, query, &begin, &end);
        for (int32_t c = begin; c <= end; c++) {
            const float *part = part_of(t, c, i);
            join(query->y, &state->m[i], &state->l[i], part + 16, part[0], part[1], t->head_dim, c == first_seen);
        }
        if (last) finish(t, query, state->m[i], state->l[i]);
    }
}
