/* mklora.h - random LoRA adapters for a given model, as complete GGUF files like those of llama.cpp's convert_lora_to_gguf.py.
 *
 * For tests, and through tools/mklora.c for trying things. Same options and shapes of the model: same bytes.
 */
#ifndef AE_TEST_MKLORA_H
#define AE_TEST_MKLORA_H

#include "formats/gguf_write.h"

typedef struct mklora_options {
    uint32_t rank;     /* 0: 8; of every second matrix half of it, if `uneven` */
    float alpha;       /* 0: twice the rank */
    float gain;        /* size of the added values relative to the matrix's own; 0: 0.5 */
    uint64_t seed;
    const char *type;  /* NULL: "f32" */
    const char *match; /* words with spaces between: matrices whose names contain one of them; NULL: those of attention and
                        * dense feed-forward blocks, and the output */
    bool uneven, no_alpha;
    /* Faults, for tests of refusals. */
    const char *arch, *general_type, *adapter_type; /* NULL: as it should be; "": the key is missing */
    const char *extra; /* name of one more tensor [4, 4] */
    bool bad_rank, bad_shape, no_b, not_finite, stacked;
    bool alora;
} mklora_options;

/* ARGUMENT for an unknown type, or if nothing matches. */
aerie_status mklora_write(const mklora_options *options, const char *model, const char *path, aerie_error *error);

#endif
