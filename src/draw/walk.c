/* walk.c - implements walk.h. Owns nothing. */
#include "draw/walk.h"

#include <math.h>

static int32_t child_of(const ae_walk_nodes *nodes, int32_t node, int32_t token)
{
    for (uint32_t i = (uint32_t)(node + 1); i < nodes->n; i++)
        if (nodes->parent[i] - nodes->base == node && nodes->token[i] == token) return (int32_t)i;
    return -1;
}

bool ae_walk_step(const ae_walk_nodes *nodes, uint32_t n_most, ae_walk_verdict verdict, int32_t token, int32_t *node,
                  ae_walked *out)
{
    if (verdict == AE_WALK_OVERFLOW) {
        out->overflowed = 1;
        return false;
    }
    out->drawn[out->n_drawn++] = token;
    *node = child_of(nodes, *node, token);
    if (*node >= 0) out->path[out->n_path++] = *node;
    return verdict != AE_WALK_LAST && *node >= 0 && out->n_drawn < n_most;
}

void ae_walk_down(const ae_walk_nodes *nodes, uint32_t n_most, ae_walk_draw *draw, void *context, ae_walked *out)
{
    int32_t node = -1, token;
    ae_walk_verdict verdict;
    out->n_drawn = out->n_path = out->overflowed = 0;
    do verdict = draw(context, (uint32_t)(node + 1), out->n_drawn, &token);
    while (ae_walk_step(nodes, n_most, verdict, token, &node, out));
}

bool ae_walk_has_finite(const float *logits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (isfinite(logits[i])) return true;
    return false;
}
