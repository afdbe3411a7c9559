/* holds.c - whether a type can hold the numbers to be written (encoder.h). It writes them, and also smaller ones that every
 * type can hold, and compares. */
#include <math.h>

#include "quant/encode/encoder.h"
#include "quant/types.h"

#define SAFE 2048.0f /* no type cuts numbers below this; the smallest limit is NVFP4's, 448 * 6 */
#define MOST 256     /* most elements of a block */

/* Checks one block: encodes it as it is, and divided by a power of two, which no type cuts. */
static bool block_holds(const ae_type_info *info, const float *x, size_t n, size_t top)
{
    float small[MOST], got[MOST], want[MOST];
    ae_encode_fn *encode = ae_type_encoder(info->type);
    uint8_t block[MOST * sizeof(float)];
    int exponent;
    (void)frexpf(x[top], &exponent);
    for (size_t i = 0; i < n; i++) small[i] = ldexpf(x[i], -exponent);
    encode(x, NULL, block, n);
    info->decode(block, got, n);
    encode(small, NULL, block, n);
    info->decode(block, want, n);
    return isfinite(got[top]) && ldexpf(fabsf(got[top]), -exponent) >= 0.95f * fabsf(want[top]);
}

bool ae_type_holds(uint32_t type, const float *x, size_t n, size_t *at)
{
    const ae_type_info *info = ae_type_get(type);
    const size_t block = info->n_block;
    if (type == AE_TYPE_F32 || block > MOST || block == 0) return true;
    for (size_t i = 0; i < n; i += block) {
        size_t top = 0;
        for (size_t k = 1; k < block; k++)
            if (fabsf(x[i + k]) > fabsf(x[i + top])) top = k;
        if (!(fabsf(x[i + top]) > SAFE) || block_holds(info, x + i, block, top)) continue;
        *at = i + top;
        return false;
    }
    return true;
}
