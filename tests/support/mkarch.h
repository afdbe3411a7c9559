/* mkarch.h - a tiny random F32 model of every architecture, and published shapes in quantized types, as complete GGUF files.
 *
 * For comparisons with another engine (tests/golden/arch) and for anything that needs a model of a given kind: each takes
 * milliseconds to write. The shapes are chosen so that a rule which is broken shows in the logits: head sizes that differ from
 * n_embd / n_heads, windows shorter than the text, groups of unequal size, weights that make every layer count. Same name:
 * same bytes, on every machine. What a model consists of stands in mkarch_table.c, as text: see mkarch_spec.
 *
 * mkarch_shapes.c has models as large as published ones, for load times, memory and speed.
 */
#ifndef AE_TEST_MKARCH_H
#define AE_TEST_MKARCH_H

#include "base/err.h"

/* The tokens of every tiny vocabulary: three control tokens, the 256 bytes, five merges. */
#define MKARCH_VOCAB 264
/* context_length of every tiny model */
#define MKARCH_CTX 256

/* One model. The texts have one entry per line, its words separated by single spaces.
 *   keys:    TYPE NAME VALUE...  with the type u (u32), f (f32), b (bool), s (string), or I, U, B, F for an array (i32, u64,
 *            bool, f32); the name without the architecture that precedes it in the file, or whole after a dot.
 *   tensors: LAYERS NAME INIT NE...  in the file's order of dimensions. LAYERS names the kinds of layers (letters of `layers`)
 *            that have the tensor, "*" all of them, "-" the model itself. ".weight" is appended to a name without a dot
 *            (nextn. and shortconv. aside); a trailing dot stands for a name without suffix. INIT is a letter, and a gain
 *            if it is not 1:
 *              w  matrix, N(0, 1.2 / sqrt(ne0))     e  embedding, N(0, 1)      E  the same with mean 1/2
 *              n  norm, 1 + N(0, 0.2), one in eight negative                   b  bias, N(0, 0.3)
 *              s  N(0, 1)     c  convolution, N(0, 0.5)     a  -U(0.2, 4)      o  U(0.5, 1.5)     u  U(1, 1 + gain)
 *              f  divisors of frequencies, 1 to 8           F  the same as 1, and 1e30 for the upper half
 *              x  as w, but of MXFP4                t  the experts of tokens, of as many as the gain says (i32)
 */
typedef struct mkarch_spec {
    const char *name;   /* "gemma4-moe" */
    const char *arch;   /* general.architecture */
    const char *layers; /* a letter per block: block_count is its length */
    const char *keys;
    const char *tensors;
} mkarch_spec;

extern const mkarch_spec mkarch_specs[]; /* [mkarch_n_specs] */
extern const size_t mkarch_n_specs;

/* Drafters that are not heads of one layer: NAME.assistant is made for the model NAME. */
extern const mkarch_spec mkarch_drafters[]; /* [mkarch_n_drafters] */
extern const size_t mkarch_n_drafters;

/* Models with decision heads, which have no logits to compare: tests/golden/decide has their scores. */
extern const mkarch_spec mkarch_deciders[]; /* [mkarch_n_deciders] */
extern const size_t mkarch_n_deciders;

const mkarch_spec *mkarch_find(const char *name); /* among all three; NULL if unknown */

extern const mkarch_spec mkarch_shapes[]; /* [mkarch_n_shapes] */
extern const size_t mkarch_n_shapes;

const mkarch_spec *mkarch_find_shape(const char *name); /* NULL if unknown */

/* Writes the model; decoded: quantized weights as the F32 numbers that they stand for. FORMAT names a line of the spec that
 * makes no sense. */
aerie_status mkarch_write(const mkarch_spec *spec, bool decoded, const char *path, aerie_error *error);

/* Writes a shape, w and e as random blocks of `type`, apart from routers and from rows that are not whole blocks (mk_type_for).
 * Only the first n_layers are written, 0 being all; lists with a value per layer are cut, too. ARGUMENT for an unknown type or
 * too many layers. */
aerie_status mkarch_write_shape(const mkarch_spec *shape, const char *type, uint32_t n_layers, const char *path,
                                aerie_error *error);

#endif
