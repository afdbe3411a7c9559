/* decide.h - decision heads: scores of the options that a text offers (model/decision.h).
 *
 * Owns: the head's weights as floats. Borrows the model. One user thread at a time.
 * A text's tokens belong to spans. With a JOINT head (Clef), adjacent tokens of one kind are a span: a question of some kind,
 * or an option of the question before it; each question needs an option. With a MARKS head (ModernBERT's) there is one
 * question, whose kind the first token of such a kind tells, and each token of an option's kind is the mark of an option.
 * Law: scores depend on the weights, the rows, the tokens and the spans, and on nothing else. Sums are double: a product has 8
 * chains by k mod 8 and one fixed tree, other sums go in order of position. Between products there are floats.
 * Source: llama.cpp's clef.cpp and modern-bert.cpp, which define what the published heads compute.
 */
#ifndef AE_ENGINE_DECIDE_H
#define AE_ENGINE_DECIDE_H

#include "base/pool.h"
#include "model/model.h"

typedef enum ae_decision_span {
    AE_SPAN_NONE,
    AE_SPAN_NOUL,   /* a question to be answered by true or false */
    AE_SPAN_CHOICE, /* one of several options */
    AE_SPAN_SCORE,  /* one of several levels */
    AE_SPAN_OPTION,
    AE_SPANS,
} ae_decision_span;

typedef struct ae_decider ae_decider;

/* Bytes of the head's weights, and of what a text of n_ctx tokens needs. */
size_t ae_decider_plan_bytes(const ae_model *model, uint32_t n_ctx, uint32_t n_threads);
/* The model must have a decision head. Errors: IO, FORMAT, MEMORY. */
aerie_status ae_decider_create(ae_decider **out, const ae_model *model, aerie_error *error);
void ae_decider_free(ae_decider *decider);

/* Counts the options of a text of n tokens. ARGUMENT: the spans are none that the model's head can read. */
aerie_status ae_decider_count(const ae_model *model, const uint8_t *spans, uint32_t n, uint32_t *n_options,
                              aerie_error *error);
/* Scores the options [ae_decider_count], in order of position. rows [n][n_embd]: the text's rows as they leave the trunk;
 * they are overwritten. Errors: MEMORY, IO. */
aerie_status ae_decider_run(ae_decider *decider, ae_pool *pool, const int32_t *tokens, const uint8_t *spans, uint32_t n,
                            float *rows, float *scores, aerie_error *error);

#endif
