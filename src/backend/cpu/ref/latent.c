/* latent.c - the definition of latent rows in the cache: writing them, and turning results back (kernels.h). Attention over
 * them is in attention.c. */
#include <string.h>

#include "backend/cpu/ref/ref.h"
#include "base/shape_limits.h"
#include "base/math/fmath.h"

#define MAX_DIM AE_MAX_LATENT /* of a part */

void ae_ref_latent_write_f32(const float *row, uint32_t n_rope, uint32_t head_dim, void *page, uint32_t place)
{
    const uint32_t n = n_rope + head_dim;
    memcpy((float *)page + (size_t)place * n, row, n * sizeof *row);
}

/* Writes the codes of one part, from element `at` of the padded row on; returns their scale. */
static float write_part15(const float *x, uint32_t n, int8_t *page, uint32_t at, uint32_t dim, uint32_t place)
{
    int32_t codes[MAX_DIM];
    const float d = ae_ref_quant_query(x, n, codes);
    for (uint32_t i = 0; i < n; i++) {
        const int32_t high = ae_latent_high(codes[i]);
        page[ae_kv8_k_at(dim, place, at + i)] = (int8_t)high;
        page[AE_KV_PAGE * (size_t)dim + ae_kv8_k_at(dim, place, at + i)] = (int8_t)(codes[i] - 128 * high);
    }
    return d;
}

void ae_ref_latent_write_codes15(const float *row, uint32_t n_rope, uint32_t head_dim, void *page, uint32_t place)
{
    const uint32_t rope = (uint32_t)AE_LATENT_DIM(n_rope), dim = rope + (uint32_t)AE_LATENT_DIM(head_dim);
    float *d = ae_latent_scales(page, 2, head_dim, n_rope);
    d[place] = write_part15(row + n_rope, head_dim, page, rope, dim, place);
    d[AE_KV_PAGE + place] = write_part15(row, n_rope, page, 0, dim, place);
}

static float write_part8(const float *x, uint32_t n, int8_t *page, uint32_t at, uint32_t dim, uint32_t place)
{
    float turned[MAX_DIM];
    int8_t codes[MAX_DIM];
    ae_ref_turn(x, n, turned);
    const float d = ae_ref_quant_row(turned, n, codes);
    for (uint32_t i = 0; i < n; i++) page[ae_kv8_k_at(dim, place, at + i)] = codes[i];
    return d;
}

void ae_ref_latent_write_q8(const float *row, uint32_t n_rope, uint32_t head_dim, void *page, uint32_t place)
{
    const uint32_t rope = (uint32_t)AE_LATENT_DIM(n_rope), dim = rope + (uint32_t)AE_LATENT_DIM(head_dim);
    float *d = ae_latent_scales(page, 1, head_dim, n_rope);
    d[place] = write_part8(row + n_rope, head_dim, page, rope, dim, place);
    d[AE_KV_PAGE + place] = write_part8(row, n_rope, page, 0, dim, place);
}

void ae_ref_latent_unturn(float *y, uint32_t n)
{
    const float scale = 1.0f / (float)ae_kv8_turn(n);
    ae_ref_turn(y, n, y);
    for (uint32_t i = 0; i < n; i++) y[i] *= scale;
}
