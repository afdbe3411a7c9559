/* shape_limits.h - the largest sizes of a model, on which scratch memory and kernels rely.
 *
 * Checked once, when a file is bound (model/bind.c); a model that exceeds one is refused with a message that names it. Limits
 * that callers see (nodes of a draft tree, drafters, feature layers, adapters) are in aerie.h only.
 */
#ifndef AE_BASE_SHAPE_LIMITS_H
#define AE_BASE_SHAPE_LIMITS_H

#define AE_MAX_LAYERS 512
#define AE_MAX_HEADS 1024
#define AE_MAX_HEAD_DIM 512    /* elements of a head */
#define AE_MAX_LATENT 1024     /* elements of the latent part of a latent row (MLA) */
#define AE_MAX_LATENT_ROPE 128 /* elements of its rotated part */
#define AE_MAX_EMBD (1u << 17)
#define AE_MAX_FF (1u << 20)
#define AE_MAX_EXPERTS 1024
#define AE_MAX_STREAMS 8       /* of a row */
#define AE_MAX_NGRAM 8         /* tokens that a memory of n-grams hashes */
#define AE_MAX_NGRAM_HEADS 64  /* hashes of a row */
#define AE_MAX_TRAIL 8         /* taps of a convolution over earlier rows */

/* Floats of a head's row of biases by distance (ae_attention.bias): those of the distances from -AE_BIAS_REACH to AE_BIAS_REACH
 * - 1 from AE_BIAS_PAD on, the first and the last repeated outside of them, so that kernels can load 16 at any distance. */
#define AE_BIAS_REACH 128
#define AE_BIAS_PAD 16
#define AE_BIAS_ROW (2 * (AE_BIAS_REACH + AE_BIAS_PAD))

#endif
