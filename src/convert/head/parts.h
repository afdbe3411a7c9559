/* parts.h - what the kinds of drafter heads share while they are detected (detect.c) and planned (plan.c). */
#ifndef AE_CONVERT_HEAD_PARTS_H
#define AE_CONVERT_HEAD_PARTS_H

#include "convert/checkpoint/checkpoint.h"

typedef struct ae_convert_wanted {
    const char *from, *to; /* in the checkpoint, in the file; without ".weight" */
    uint64_t rows, columns; /* rows 0: one dimension */
    const char *why;        /* the shape, in words */
    bool rotated;           /* rows of q or k, to be permuted */
    bool optional;
} ae_convert_wanted;

/* Weights and, where there are, biases. */
aerie_status ae_convert_copy(ae_convert *c, const ae_convert_wanted *list, size_t n);
/* The token embedding and the output head, where they are not the target's. */
aerie_status ae_convert_head_embedding(ae_convert *c);
aerie_status ae_convert_head_output(ae_convert *c);
/* Sizes of layers, of which there may be n_most. */
aerie_status ae_convert_head_layer(ae_convert *c, uint32_t n_most);
/* Both vocabularies. */
aerie_status ae_convert_head_vocab(ae_convert *c);

/* block.c: DFlash and DSpark. */
bool ae_convert_is_block(const ae_convert *c);
aerie_status ae_convert_block_detect(ae_convert *c);
aerie_status ae_convert_block_plan(ae_convert *c);
void ae_convert_block_keys(ae_convert_keys *k, const ae_convert *c);

#endif
