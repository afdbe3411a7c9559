/* constrained.c - draws under a grammar, and filters drafts by it (constrained.h). Owns nothing. */
#include "speculate/constrained.h"

#include <math.h>

/* Probability that a forced text continues with its longest fitting token. Models mostly agree, but may split the text
 * differently. */
#define FORCED_P 0.9f

int32_t ae_guide_draw(ae_constraint *c, ae_sampler *sampler, const float *logits, const int32_t *tokens, size_t n_tokens,
                      bool with_end, float *masked)
{
    /* If the best of all tokens is allowed, it is also the best of those allowed, and no mask is needed. This holds only where
     * the draw compares tokens one by one. Samplers that look at all candidates together (XTC, typical-p, entropy, a top-k
     * before penalties) see other candidates once some are masked. */
    if (ae_sampler_is_best_of_any(sampler)) {
        const int32_t token = ae_sampler_draw(sampler, logits, tokens, n_tokens);
        if (ae_constraint_allows(c, token) && logits[token] > -INFINITY) return token;
    }
    if (!ae_constraint_apply(c, logits, with_end, masked)) return AE_GUIDE_NONE;
    const int32_t token = ae_sampler_draw(sampler, masked, tokens, n_tokens);
    /* The sampler returns a masked token only when no token is left. */
    return token >= 0 && masked[token] > -INFINITY ? token : AE_GUIDE_NONE;
}

void ae_guide_filter(ae_constraint *c, const ae_vocab *vocab, bool with_end, uint32_t max_depth, uint32_t max_nodes,
                     ae_tree *tree)
{
    ae_gstate states[AERIE_MAX_DRAFT];
    bool keep[AERIE_MAX_DRAFT];
    const ae_gstate now = ae_constraint_now(c);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < tree->n; i++) {
        const ae_gstate at = tree->parent[i] < 0 ? now : states[tree->parent[i]];
        const bool end = at >= AE_GSTATE_FIRST && with_end && ae_vocab_is_eog(vocab, tree->token[i]);
        states[i] = end ? AE_GSTATE_DEAD : ae_constraint_behind(c, at, tree->token[i]);
        keep[i] = (tree->parent[i] < 0 || keep[tree->parent[i]]) &&
                  (end ? ae_constraint_may_end_at(c, at) : states[i] >= AE_GSTATE_FIRST);
    }
    for (uint32_t i = 0; i < tree->n; i++)
        if (keep[i]) states[kept++] = states[i]; /* the nodes move in the same way in ae_tree_prune */
    ae_tree_prune(tree, keep);
    int32_t node = -1;
    for (int32_t child; (child = ae_tree_best_child(tree, node)) >= 0;) node = child;
    ae_gstate state = node < 0 ? now : states[node];
    uint32_t depth = node < 0 ? 0 : (uint32_t)tree->depth[node];
    while (depth < max_depth && tree->n < max_nodes && tree->n < AERIE_MAX_DRAFT) {
        ae_gstate next = AE_GSTATE_DEAD;
        const int32_t token = ae_constraint_forced(c, state, &next);
        if (token < 0 || (node = ae_tree_add(tree, node, token, FORCED_P)) < 0) break;
        state = next;
        depth++;
    }
}
