/* mkhead.h - random drafter heads of every kind and variant for a given target, as complete GGUF files.
 *
 * For tests, and through tools/mkhead.c for trying things. Same options and target: same bytes. Every tensor is drawn
 * from the seed and its own name. Weights are scaled (as in mkmodel.h) so that features, fed back any number of times, stay
 * of order 1 and logits spread by about 3. What the head borrows it does not hold; see docs/heads.md for the schemas.
 */
#ifndef AE_TEST_MKHEAD_H
#define AE_TEST_MKHEAD_H

#include "draft/head/head.h"

typedef struct mkhead_options {
    const char *kind; /* "eagle", "eagle3" (NULL), "eagle3.1", "medusa", "mtp" (blocks alone, for a target of Llama's shape),
                       * "dflash", "dspark", "dflash2", "dfly", "lilicorr" */
    const char *type;   /* of the matrices; NULL: "q8_0" */
    const char *schema; /* "new" (NULL), "old" (extract_layers, hidden_norm, offsets), "double" (old, with doubled keys) */
    uint64_t seed;
    /* 0: as the target. Another n_embd implies its own embedding and output (and EAGLE-3). */
    uint32_t n_embd, n_ff, n_heads, n_kv_heads, head_dim;
    uint32_t n_draft; /* tokens drafted from, a random subset under d2t; 0: all, and no d2t */
    uint32_t n_taps, taps[AERIE_MAX_TAPS]; /* EAGLE-3; none: 2, L/2, L-3, or 1, L/2, L if the target has fewer than six */
    uint32_t window, n_sinks;
    uint32_t n_medusa, n_blocks; /* 0: 4 and 1 */
    uint32_t n_nextn;   /* MTP blocks; 0: 1 */
    /* Block drafters: layers, 0: 2; rows of a block, 0: 8; rank of the bias, 0: 8; attention.sliding_window */
    uint32_t n_layers, n_block, n_markov, sliding;
    /* DFlash2: taps of the convolutions, 0: 2; channels of a group, 0: 16 or 1; rank of pair scores, 0: 8; candidates, 0: 6 */
    uint32_t n_conv, conv_group, n_pair, n_candidates;
    uint32_t n_correct; /* DFly: width of the correction, 0: as the target */
    bool no_correction;
    /* LiLiCorr: width of the lattice, 0: 32 (as the head's: no token_proj); its heads and layers, 0: 2; factors, 0: 8. It has
     * convolutions if n_conv is given. */
    uint32_t n_lattice, lattice_heads, lattice_layers, n_factors;
    bool waves; /* the lattice's weights are those of its authors' test */
    uint32_t n_parallel; /* EAGLE-3: tokens of a pass of P-EAGLE, 0: another head. n_layers counts for EAGLE-3, too, 0: 1 */
    const char *arch;   /* block drafters: general.architecture, NULL: "dflash" */
    int from_anchor;    /* block drafters: sample_from_anchor, 1 or -1 (false); 0: no key, as the kind has it */
    bool causal, no_confidence, plain_confidence; /* block drafters; plain: of the row alone */
    bool norm_before_residual, norm_before_fc;
    bool own_embedding, no_output; /* EAGLE-1/2 has an output of its own only with own_output, EAGLE-3 unless no_output */
    bool own_output; /* MTP: each block, and own_embedding too */
    bool biases;     /* fc, attention, Medusa */
    bool rope_freqs;
    bool qk_norm;
    bool map_i32;    /* d2t as I32, else I64 */
    bool whole_fc_norm; /* EAGLE-3.1: the norms of all taps in one tensor */
    bool tokenizer;  /* the target's, copied: other programs want one */
} mkhead_options;

/* Reads the target's sizes, writes the head. ARGUMENT for a kind, type, schema or shape that cannot be. */
aerie_status mkhead_write(const mkhead_options *options, const char *target, const char *path, aerie_error *error);

/* Whether a loaded head holds what checkpoint/head.h promises: shapes, ranges, weights that can be read. NULL, or the broken
 * promise. */
const char *mkhead_check(const ae_dhead *head);

#endif
