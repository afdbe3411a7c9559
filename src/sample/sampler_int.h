/* sampler_int.h - shared by the files of the sampler; not included by others. */
#ifndef AE_SAMPLE_SAMPLER_INT_H
#define AE_SAMPLE_SAMPLER_INT_H

#include "base/mem.h"
#include "draw/draw_int.h"
#include "sample/sampler.h"
#include "text/token/vocab.h"

struct ae_sampler {
    ae_draw draw;             /* its lists point to copies */
    ae_draw_room room;
    const ae_vocab *vocab;    /* NULL: texts of tokens are unknown */
    size_t n_ctx;
    char *texts;              /* owned: the breakers, one after another */
    uint32_t *seen;           /* [n_vocab] zero between steps; penalties and DRY only */
    uint32_t *repeats;        /* [n_ctx]; DRY only */

    /* mirostat: what room.mu becomes if this token is emitted */
    struct {
        size_t position;
        int32_t token; /* -1: none */
        double mu;
    } drawn;
};

/* ---- penalties.c, dry.c: change logits ---- */

void ae_step_penalties(ae_sampler *s, const int32_t *tokens, size_t n_tokens);
void ae_step_dry(ae_sampler *s, const int32_t *tokens, size_t n_tokens);

#endif
