/* mmproj.h - tables for vision encoders in Hugging Face folders: the encoder of each class, and the names of its tensors in an
 * mmproj file. Private to src/convert/tower.
 * Prefixes that depend on class and version are first replaced: names of the encoder begin with "tower.", names of the
 * projector with "projector.". A rule renames one tensor, with .weight and with .bias unless it is exact; rules for absent
 * tensors are skipped, because binding the new file shows what is missing. Sources: the models' own code in transformers; names
 * and keys of mmproj files as llama.cpp reads them. */
#ifndef AE_CONVERT_TOWER_MMPROJ_H
#define AE_CONVERT_TOWER_MMPROJ_H

#include "convert/checkpoint/checkpoint.h"

typedef enum ae_mmproj_rule_kind {
    AE_MMPROJ_PLAIN,
    AE_MMPROJ_F32,      /* stays F32 */
    AE_MMPROJ_FLOAT,    /* F16 or F32, whatever type other matrices have */
    AE_MMPROJ_PLUS_ONE, /* the checkpoint stores the weights minus 1 */
    AE_MMPROJ_VECTOR,   /* the whole tensor as one row of numbers, F32 */
    AE_MMPROJ_TURNED,   /* rows of heads, moved from halves to neighbours */
    AE_MMPROJ_SPLIT,    /* rows of queries, keys and values: TO has "%c" for q, k and v */
    AE_MMPROJ_KERNEL,   /* [width, 3, p, p] */
    AE_MMPROJ_FRAMES,   /* [width, 3, 2, p, p]: two kernels, of which the second is written as NAME.weight.1 */
    AE_MMPROJ_PIXELS,   /* [width, p * p * 3] in the order row, column, channel: a kernel */
    AE_MMPROJ_COLOURS,  /* like PIXELS, but written in the order channel, row, column */
    AE_MMPROJ_TABLE,    /* [1, n, width], [n, width] or [2, n, width], F32 */
    AE_MMPROJ_FLAT,     /* [lines, columns, width] as [lines * columns, width], F32 */
    AE_MMPROJ_MERGER,   /* [n, width, m, m] */
    /* rows of queries, keys and values, of which those of each query and key [d / 4][2][2] become [2][d / 4][2] */
    AE_MMPROJ_QUARTERS,
    AE_MMPROJ_AXES,     /* [n, 2, width] as [2, n, width], F32 */
} ae_mmproj_rule_kind;

typedef struct ae_mmproj_rule {
    const char *from, *to;
    ae_mmproj_rule_kind kind;
    bool exact; /* both names are complete */
} ae_mmproj_rule;

typedef struct ae_mmproj_family {
    const char *encoder;    /* what vision_config must have as model_type; NULL: anything */
    const char *classes;    /* class names in `architectures`, separated by blanks */
    const char *type;       /* clip.projector_type */
    const char *blocks;     /* prefix of a block, with "%u" for its number; NULL: no blocks */
    const ae_mmproj_rule *rules, *block_rules; /* end with `from` NULL */
    const char *activation; /* activation of the encoder's blocks; "silu" and "gelu" have a key */
    const char *activation_key; /* its key in config.json; NULL: there is none */
    uint32_t n_heads;       /* used if config.json does not say it */
    double eps;             /* likewise */
    const char *eps_key;    /* its key in config.json; NULL: always `eps` */
    /* patches per side of a token: its key in config.json, in vision_config or at the top level, and its key in the file */
    const char *merge_from, *merge_to; /* merge_to NULL: n_merge, which files do not say */
    uint32_t n_merge;       /* used if config.json does not say it */
    uint32_t image_size;    /* 0: computed from the position table */
    bool sideless;          /* the file says 0 */
    bool pixels;            /* the file has the picture processor's limits on pixels */
    bool features;          /* an inner block's rows are read, or those of several */
    bool breaks;            /* each line of tokens ends with the embedding of the token [IMG_BREAK] */
} ae_mmproj_family;

/* mmproj_types.c: finds the family of a class and of vision_config's model_type (or NULL); NULL: there is none. */
const ae_mmproj_family *ae_mmproj_find(const char *class, const char *encoder);
/* Lists the classes of all families, as in "A, B, C"; freed with ae_buf_free. */
void ae_mmproj_classes(ae_buf *out);

#endif
