/* draw_host.c - implements draw_host.h. Owns nothing. */
#include "backend/draw_host.h"

ae_walk_nodes ae_draw_host_nodes(const ae_walk_tree *tree, const int32_t *token, const int32_t *parent)
{
    const uint32_t first = tree->row + 1;
    return (ae_walk_nodes){tree->n, token + first, parent + first, (int32_t)first};
}

static bool is_one_of(const int32_t *ids, uint32_t n, int32_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

ae_walk_verdict ae_draw_host_token(const ae_walk_tree *tree, const float *logits, uint32_t n_vocab, const int32_t *eog,
                                   uint32_t n_eog, uint32_t depth, int32_t *token)
{
    if (!ae_walk_has_finite(logits, n_vocab)) return AE_WALK_OVERFLOW;
    *token = ae_draw_token(tree->draw, tree->room, logits, (size_t)(tree->position + depth));
    return tree->ends && is_one_of(eog, n_eog, *token) ? AE_WALK_LAST : AE_WALK_ON;
}

ae_walk_verdict ae_draw_host_best(const ae_walk_tree *tree, const ae_candidate *best, uint32_t n, const int32_t *eog,
                                  uint32_t n_eog, uint32_t depth, int32_t *token)
{
    if (!n) return AE_WALK_OVERFLOW;
    *token = ae_draw_best(tree->draw, tree->room, best, n, (size_t)(tree->position + depth));
    return tree->ends && is_one_of(eog, n_eog, *token) ? AE_WALK_LAST : AE_WALK_ON;
}

void ae_draw_host_propose(const ae_propose_row *row, const float *logits, uint32_t n_logits, const int32_t *map,
                          ae_proposal *out)
{
    const uint32_t k = row->k < AE_PROPOSE_MAX ? row->k : AE_PROPOSE_MAX;
    out->n = ae_draw_propose(row->draw, logits, n_logits, map, (size_t)row->position, k, out->id, out->p);
}
