/* finite.h - whether weights in the file's layout are numbers: no scale, minimum or float among them is infinite or NaN. */
#ifndef AE_QUANT_FINITE_H
#define AE_QUANT_FINITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* n elements, a multiple of the type's block; false: *at is the first element of the first block that is not. Types without
 * decoder hold nothing else. */
bool ae_type_finite(uint32_t type, const void *blocks, size_t n, size_t *at);

#endif
