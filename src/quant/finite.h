/* finite.h - whether weights in a file's layout are finite: no scale, minimum or float is infinite or NaN. */
#ifndef AE_QUANT_FINITE_H
#define AE_QUANT_FINITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Checks n elements, a multiple of the type's block. Returns false if *at is the first element of the first block that is not
 * finite. Types without a decoder are always finite. */
bool ae_type_finite(uint32_t type, const void *blocks, size_t n, size_t *at);

#endif
