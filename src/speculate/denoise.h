/* denoise.h - answers of models that denoise (Dream, LLaDA): all positions at once, in place of the loop of speculate.h.
 *
 * A slot's answer is a canvas of fixed length, masked at first. A step runs prompt and canvas as one text whose rows see each
 * other, draws a token for every masked position of the current block, and keeps some of them for good; nothing of a step
 * stays in the KV cache. Tokens are emitted as soon as all positions before them are known, so text arrives in its order, and
 * a sequence ends where an end-of-generation token is known that way.
 * Law: an answer depends on weights, adapters, prompt, sampler settings, the settings of aerie_diffusion, its length and the
 * seed: noise is a function of seed, step and position. Steps that keep nothing run no pass.
 *
 * Owns: the canvases of the slots (spec_slot.tokens has the tokens; -1 is a mask), scratch. Source: the papers of Dream and
 * LLaDA and their published generation code; schedules and their rounding are those of llama.cpp's diffusion program, but where
 * docs/diffusion.md says otherwise.
 */
#ifndef AE_SPECULATE_DENOISE_H
#define AE_SPECULATE_DENOISE_H

#include "speculate/speculate_int.h"

/* The progress of an answer. Its text has one block, or several of block_length positions. */
struct ae_canvas {
    aerie_diffusion how;     /* the request's settings, with defaults in place of zeros */
    void *user;              /* for the callback how.canvas, together with `id` */
    size_t id;
    uint32_t begin, end;     /* the answer's positions in the text */
    uint32_t n_blocks, i_block;
    uint32_t block, block_end; /* the current block's positions */
    uint32_t n_masked;       /* masked positions of the block at its beginning */
    uint32_t step, n_steps;  /* of the block */
    uint32_t n_before;       /* steps of earlier blocks */
    uint32_t n_keep;         /* positions that the step keeps */
    uint32_t first;          /* the text's first row in the pass */
    bool runs;               /* has rows in the pass */
    uint8_t *wanted;         /* [n_ctx] first: whether the step draws a token for the position; then: whether the position's row
                              * exports logits */
};

/* State that the slots share. */
struct ae_denoiser {
    int32_t mask;
    bool shifts;        /* the row before a position predicts its token */
    uint32_t n_vocab, n_outputs;
    int32_t *text;      /* [n_ctx] a canvas with mask tokens */
    uint8_t *exported;  /* [n_ctx] */
    uint32_t *at;       /* [n_ctx] positions for which tokens were drawn */
    int32_t *drawn;     /* [n_ctx] the tokens */
    double *score;      /* [n_ctx] the scores by which positions are chosen */
    float *row;         /* [n_vocab] */
    float *seeing;      /* [n_outputs][n_vocab] logits that saw the prompt; created for the first request with cfg_scale */
};

/* Creates the state that the slots share. */
aerie_status ae_denoise_create(ae_spec *spec, aerie_error *error);
void ae_denoise_free(ae_spec *spec);
/* Errors: ARGUMENT, UNSUPPORTED: the request cannot be denoised, and why (the model may have no mask token). */
aerie_status ae_denoise_check(const ae_spec *spec, const ae_spec_request *request, aerie_error *error);
/* Prepares a slot whose tokens are the prompt. Errors: MEMORY. */
aerie_status ae_denoise_start(ae_spec *spec, uint32_t i_slot, const ae_spec_request *request, aerie_error *error);
/* Runs one step of as many slots as the pass has room for, those that have waited longest first. */
aerie_status ae_denoise_step(ae_spec *spec, ae_spec_emit *emit, void *user, aerie_error *error);

#endif
