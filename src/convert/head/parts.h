/* parts.h - what detecting (detect.c) and planning (plan.c) the kinds of drafter heads share. */
#ifndef AE_CONVERT_HEAD_PARTS_H
#define AE_CONVERT_HEAD_PARTS_H

#include "convert/checkpoint/checkpoint.h"

typedef struct ae_convert_wanted {
    const char *from, *to; /* names in the checkpoint and in the file, without ".weight" */
    uint64_t rows, columns; /* rows 0: one dimension */
    const char *why;        /* explains the shape in messages */
    bool rotated;           /* rows of q or k that are reordered */
    bool optional;
} ae_convert_wanted;

/* Adds weights and, if there are any, biases. */
aerie_status ae_convert_copy(ae_convert *c, const ae_convert_wanted *list, size_t n);
/* Adds the token embedding and the output head, unless they are the target's. */
aerie_status ae_convert_head_embedding(ae_convert *c);
aerie_status ae_convert_head_output(ae_convert *c);
/* Reads the sizes of layers, of which there may be up to n_most. */
aerie_status ae_convert_head_layer(ae_convert *c, uint32_t n_most);
/* Reads the sizes of both vocabularies. */
aerie_status ae_convert_head_vocab(ae_convert *c);

/* block.c: DFlash and DSpark. */
bool ae_convert_is_block(const ae_convert *c);
aerie_status ae_convert_block_detect(ae_convert *c);
aerie_status ae_convert_block_plan(ae_convert *c);
void ae_convert_block_keys(ae_convert_keys *k, const ae_convert *c);

/* Adds a tensor [rows, columns], with rows 0 [columns], as F32, whatever dimensions of that size it has. */
aerie_status ae_convert_numbers(ae_convert *c, const char *from, const char *to, uint64_t rows, uint64_t columns);
/* lattice.c: what LiLiCorr has in addition to DFlash. */
aerie_status ae_convert_lattice_detect(ae_convert *c);
aerie_status ae_convert_lattice_plan(ae_convert *c);
void ae_convert_lattice_keys(ae_convert_keys *k, const ae_convert_head *h);
/* block.c: a setting of dflash_config, or beside it. */
const json_t *ae_convert_block_setting(const ae_convert *c, const char *key);
aerie_status ae_convert_block_count(const ae_convert *c, const char *key, uint32_t lo, uint32_t hi, uint32_t *value);

#endif
