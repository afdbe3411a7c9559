/* finite.h - whether weights in the file's layout are numbers: no scale, minimum or float among them is infinite or NaN; and
 * whether a type can hold numbers that are to be written. */
#ifndef AE_QUANT_FINITE_H
#define AE_QUANT_FINITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* n elements, a multiple of the type's block; false: *at is the first element of the first block that is not. Types without
 * decoder hold nothing else. */
bool ae_type_finite(uint32_t type, const void *blocks, size_t n, size_t *at);

/* Whether a type can hold n finite numbers, a multiple of its block, as large as they are: no float becomes infinite, and no
 * scale is cut to the largest one that there is. false: x[*at] is the largest of the first block that would be cut. */
bool ae_type_holds(uint32_t type, const float *x, size_t n, size_t *at);

#endif
