/* encoder.h - from f32 to the blocks of a tensor type: which types can be written, and by which function.
 *
 * Owns the table of encoders (encoder.c). quant/types.h defines what the bytes of a block mean; the encoders and their contract
 * for hostile input are in encode.h.
 */
#ifndef AE_QUANT_ENCODE_ENCODER_H
#define AE_QUANT_ENCODE_ENCODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Encodes x[n] as blocks; n is a multiple of the type's block. importance[n]: the weight of each element's error (an importance
 * matrix has a number for each column), or NULL: equal weights. Floats, Q8_0, TQ1_0 and TQ2_0 have only one encoding and ignore
 * it. */
typedef void ae_encode_fn(const float *x, const float *importance, void *blocks, size_t n);

/* Returns the encoder of a type; NULL if the type is unknown or cannot be written. */
ae_encode_fn *ae_type_encoder(uint32_t type);

/* Returns whether a type can hold n finite numbers (a multiple of its block) without cutting any: no float becomes infinite,
 * and no scale is cut to the format's largest. If not, x[*at] is the largest number of the first block that would be cut. */
bool ae_type_holds(uint32_t type, const float *x, size_t n, size_t *at);

#endif
