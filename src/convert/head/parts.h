/* parts.h - functions for detecting (detect.c) and planning (plan.c) that the kinds of drafter heads share. */
#ifndef AE_CONVERT_HEAD_PARTS_H
#define AE_CONVERT_HEAD_PARTS_H

#include "convert/checkpoint/checkpoint.h"

typedef struct ae_convert_wanted {
    const char *from, *to; /* names in the checkpoint and in the file, without ".weight" */
    uint64_t rows, columns; /* rows 0: one dimension */
    const char *why;        /* explains the shape in messages */
    bool rotated;           /* rows of q or k, which are reordered */
    bool optional;
} ae_convert_wanted;

/* Adds the listed weights, and biases where they exist. */
aerie_status ae_convert_copy(ae_convert *c, const ae_convert_wanted *list, size_t n);
/* Reads the sizes of layers, at most n_most of them. */
aerie_status ae_convert_head_layer(ae_convert *c, uint32_t n_most);
/* Reads the sizes of both vocabularies. */
aerie_status ae_convert_head_vocab(ae_convert *c);

/* block.c: returns whether it is a block drafter. */
bool ae_convert_is_block(const ae_convert *c);
aerie_status ae_convert_block_detect(ae_convert *c);
aerie_status ae_convert_block_plan(ae_convert *c);
void ae_convert_block_keys(ae_convert_keys *k, const ae_convert *c);

/* Adds a tensor [rows, columns], with rows 0 [columns], as F32, with any dimensions of that size. */
aerie_status ae_convert_numbers(ae_convert *c, const char *from, const char *to, uint64_t rows, uint64_t columns);
/* lattice.c: detects the parts of LiLiCorr that DFlash lacks. */
aerie_status ae_convert_lattice_detect(ae_convert *c);
aerie_status ae_convert_lattice_plan(ae_convert *c);
void ae_convert_lattice_keys(ae_convert_keys *k, const ae_convert_head *h);
/* block.c: returns a setting of dflash_config, or of the top level. */
const json_t *ae_convert_block_setting(const ae_convert *c, const char *key);
aerie_status ae_convert_block_count(const ae_convert *c, const char *key, uint32_t lo, uint32_t hi, uint32_t *value);

#endif
