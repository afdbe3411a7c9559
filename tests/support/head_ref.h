/* head_ref.h - drafter heads computed in float64 straight from the formulas: the reference for the engine's drafters.
 *
 * Written from docs/heads.md and the papers, not from the engine: shares with it only the file's tables and the decoding of
 * weights. Slow and simple: every row walks its ancestors one by one.
 *
 * Rows form a tree. A row's parent is the row that stands before it; its position is its parent's plus one; it attends to
 * its ancestors and itself, and to nothing else (with a window: to those less than `window` positions away, and those at the
 * positions 0 to n_sinks - 1). A row takes a token and either true features of the target or, without them, what its parent
 * feeds back. Row P of a text: the token at P + 1, the features at P. A chain drafted after it: rows without features.
 */
#ifndef AE_TEST_HEAD_REF_H
#define AE_TEST_HEAD_REF_H

#include "draft/head/head.h"

typedef struct head_ref head_ref;

/* The target lends embedding and output where the head has none, else may be NULL. Both must have their tensors in memory
 * (no index_only, no no_mmap) and outlive the reference. NULL when out of memory. */
head_ref *head_ref_create(const ae_dhead *head, const ae_model *target);
void head_ref_free(head_ref *ref);

/* Appends a row after `parent` (-1: the first of a sequence, at position 0). features: [n_taps * n_target_embd], or NULL for
 * the parent's feedback. Returns the row's number, counted from 0; -1 when out of memory, or when there is neither. Not for
 * Medusa. */
int head_ref_add(head_ref *ref, int parent, int32_t token, const double *features);
/* The rows of a text of n + 1 tokens with the features [n][n_taps * n_target_embd] of its first n; returns the last row. */
int head_ref_text(head_ref *ref, const int32_t *tokens, const double *features, int n);
/* A chain of n self-fed rows of those tokens; returns the last row. */
int head_ref_chain(head_ref *ref, int parent, const int32_t *tokens, int n);

/* The values of a row, valid until the next one is appended: */
const double *head_ref_feature(const head_ref *ref, int row); /* [n_embd] fc's output, or fed back; EAGLE-1/2: fc's */
const double *head_ref_hidden(const head_ref *ref, int row);  /* [n_embd] before the output norm */
const double *head_ref_normed(const head_ref *ref, int row);  /* [n_embd] what the output head multiplies */
const double *head_ref_logits(const head_ref *ref, int row);  /* [n_draft] */

/* Head j of a Medusa head on one feature [n_embd]: hidden [n_embd] and logits [n_draft] out. False when out of memory. */
bool head_ref_medusa(head_ref *ref, uint32_t j, const double *feature, double *hidden, double *logits);

#endif
