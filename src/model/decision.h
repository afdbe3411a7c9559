/* decision.h - heads that score options which a text offers, instead of writing text: sizes and tensors. Part of model.h.
 *
 * engine/decide.h has the arithmetic. Owns nothing.
 */
#ifndef AE_MODEL_DECISION_H
#define AE_MODEL_DECISION_H

#include "formats/gguf.h"

typedef enum ae_decision_kind {
    AE_DECISION_NONE,
    AE_DECISION_JOINT, /* Clef: a text has several questions with options, which are decided together */
    AE_DECISION_MARKS, /* ModernBERT's: a text has one question; each option begins with a mark, whose row is scored */
} ae_decision_kind;

typedef struct ae_decision_hparams {
    ae_decision_kind kind; /* NONE: all other fields are 0 */
    uint32_t n_routing;    /* JOINT: blocks in which options read the text; they come first */
    uint32_t n_blocks;     /* all blocks */
    uint32_t n_heads;
    uint32_t n_embd;       /* width of the blocks; MARKS: the model's */
    uint32_t n_ff;
    float eps;             /* of all norms */
} ae_decision_hparams;

/* A matrix [n_out, n_in] with its bias [n_out], or a norm's weights and bias, [n] x 2. Either may be NULL. */
typedef struct ae_decision_pair {
    const ae_gguf_tensor *w, *b;
} ae_decision_pair;

/* Sizes: h = n_embd of the head. */
typedef struct ae_decision_attn {
    ae_decision_pair q, k, v; /* [h, h] each; MARKS: q is [3 h, h], with the rows of k and v after its own */
    ae_decision_pair o;
} ae_decision_attn;

typedef struct ae_decision_block {
    ae_decision_pair memory_norm; /* JOINT, routing: norm of the text's rows */
    ae_decision_pair self_norm;   /* not routing */
    ae_decision_attn self;
    ae_decision_pair cross_norm;  /* JOINT */
    ae_decision_attn cross;
    ae_decision_pair ffn_norm, up, down;
} ae_decision_block;

/* Sizes: e = n_embd of the model. */
typedef struct ae_decision {
    ae_decision_block *blocks; /* [n_blocks] */
    ae_decision_pair types;    /* JOINT [3, h]: noul, choice, score; MARKS [3, e]: choice, score, noul */
    /* MARKS: [e] x 2, [e, e] and [e], [1, e] and [1]. JOINT: the last two are [h, 4 h] and [h], [1, h] and [1] */
    ae_decision_pair score_norm, scorer, out;
    /* JOINT: [e]; [h] x 3 */
    ae_decision_pair hidden_norm, summary_norm, field_norm, option_norm;
    ae_decision_pair memory, question, option_question, global, option_context, option_lexical; /* [h, e] without bias */
    ae_decision_pair scales;   /* [3]: of the prior, of the cosine, of all that is not the prior */
} ae_decision;

#endif
