/* draw_host.h - for backends: one draw and one proposal by the host, from rows of logits that the host can read.
 *
 * Owns nothing. */
#ifndef AE_BACKEND_DRAW_HOST_H
#define AE_BACKEND_DRAW_HOST_H

#include "backend/draw.h"

/* Returns the nodes of tree t. token, parent: as in ae_walk, but (host). */
ae_walk_nodes ae_draw_host_nodes(const ae_walk_tree *tree, const int32_t *token, const int32_t *parent);
/* Draws from the (host) logits [n_vocab] of a row of a tree, after `depth` tokens of the walk. eog (host) [n_eog]. Uses the
 * tree's room, so one thread at a time draws for a tree. */
ae_walk_verdict ae_draw_host_token(const ae_walk_tree *tree, const float *logits, uint32_t n_vocab, const int32_t *eog,
                                   uint32_t n_eog, uint32_t depth, int32_t *token);
/* The same from the row's n best candidates (ae_draw_best). */
ae_walk_verdict ae_draw_host_best(const ae_walk_tree *tree, const ae_candidate *best, uint32_t n, const int32_t *eog,
                                  uint32_t n_eog, uint32_t depth, int32_t *token);
/* Proposes after a row, from its (host) logits [n_logits]. map: (host) [n_logits], or NULL. */
void ae_draw_host_propose(const ae_propose_row *row, const float *logits, uint32_t n_logits, const int32_t *map,
                          ae_proposal *out);

#endif
