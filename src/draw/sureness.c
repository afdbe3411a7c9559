/* sureness.c - how sure a draw was of its token (draw.h). Sums are of integers, so they do not depend on the order of the
 * candidates. Owns nothing. */
#include "draw/draw_int.h"

/* Returns the share of the total that a candidate with this logit has. */
static double share_of(const ae_draw_room *s, float logit, float top, uint64_t total)
{
    return (double)ae_weight_units(ae_weight(logit, top, s->t)) / (double)total;
}

double ae_draw_sureness(const ae_draw *draw, ae_draw_room *s, const float *logits, int32_t token, ae_sureness kind)
{
    /* a greedy draw leaves one candidate, which says nothing about how sure it was: the row is examined instead */
    if (draw->draft_temperature <= 0) ae_chain_begin(s, draw, logits);
    ae_to_list(s);
    if (!s->n) return 0;
    const float top = ae_list_top(s);
    uint64_t total;
    if (kind == AE_SURENESS_ENTROPY) return -ae_list_entropy(s, top, &total);
    total = ae_list_total(s, top);
    float own = -INFINITY, second = -INFINITY;
    bool passed = false; /* the best candidate was passed; there may be several of equal logit */
    for (uint32_t i = 0; i < s->n; i++) {
        const float x = s->list[i].logit;
        if (s->list[i].id == token) own = x;
        if (x == top && !passed) passed = true;
        else if (x > second) second = x;
    }
    if (kind == AE_SURENESS_PROBABILITY) return share_of(s, own, top, total);
    return share_of(s, top, top, total) - (s->n > 1 ? share_of(s, second, top, total) : 0);
}
