/* mkscale.h - copies a GGUF file with a ".scale" beside each weight, or with another tensor or other keys added, or a key left
 * out.
 *
 * For tests: llama.cpp's converter writes such files for NVFP4 checkpoints, one number for a matrix and one for each expert
 * of a stack. Each also gets an ".input_scale", which changes nothing.
 */
#ifndef AE_TEST_MKSCALE_H
#define AE_TEST_MKSCALE_H

#include "base/err.h"

struct ae_gguf;
struct ae_gguf_writer;

typedef enum mkscale_kind {
    MKSCALE_NONE,
    MKSCALE_SAME,  /* of F32 weights: powers of two, by which the weights are divided: the same function, to the bit */
    MKSCALE_OTHER, /* between 0.75 and 1.25, of weights as they are: another function */
} mkscale_kind;

typedef struct mkscale_options {
    mkscale_kind kind;
    const char *only;   /* a part of the names of weights that get one; NULL: all matrices */
    const char *extra;  /* a vector of F32 ones to be added, or NULL */
    uint32_t n_extra;   /* of so many elements */
    float first;        /* what the extra one begins with, if not 0 */
    const char *without; /* the end of the name of a key that is left out, or NULL */
    aerie_status (*keys)(struct ae_gguf_writer *out, const struct ae_gguf *in, aerie_error *error); /* adds keys; or NULL */
} mkscale_options;

aerie_status mkscale_write(const mkscale_options *options, const char *in, const char *out, aerie_error *error);

#endif
