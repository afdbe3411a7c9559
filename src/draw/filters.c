/* filters.c - steps that remove candidates, the temperature, and biases.
 *
 * Definitions are llama.cpp's (docs/sampling.md). p is the softmax of logit / t over the candidates that are left.
 */
#include "base/heap.h"
#include "base/math/rng.h"
#include "draw/draw_int.h"

#define LN2 0.693147180559945309417
#define LEAST_T 1e-30 /* temperatures below are greedy: dividing by them would overflow f32 */

void ae_step_bias(ae_draw_room *s)
{
    ae_to_row(s);
    const ae_sampling *p = &s->draw->params;
    for (size_t i = 0; i < p->n_logit_bias; i++) s->row[p->logit_bias[i].token] += p->logit_bias[i].bias;
}

/* Keeps the candidates within n standard deviations of the best. Dividing all logits by t changes nothing here. The deviation
 * is computed from sums of integers: the distance of each candidate to the best, in 2^-20 of the next power of two above the
 * largest distance. */
void ae_step_top_n_sigma(ae_draw_room *s)
{
    ae_to_list(s);
    if (s->n <= 1) return;
    const float top = ae_list_top(s);
    float bottom = top;
    for (uint32_t i = 0; i < s->n; i++) bottom = s->list[i].logit < bottom ? s->list[i].logit : bottom;
    if (bottom == top) return;
    int exponent;
    frexp((double)top - (double)bottom, &exponent);
    const double scale = ldexp(1.0, 20 - exponent);
    uint64_t sum = 0, squares = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const uint64_t d = (uint64_t)(int64_t)(((double)top - (double)s->list[i].logit) * scale);
        sum += d;
        squares += d * d;
    }
    const double mean = (double)sum / s->n, variance = (double)squares / s->n - mean * mean;
    const double least = (double)top - (double)s->draw->params.top_n_sigma * sqrt(variance > 0 ? variance : 0) / scale;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if ((double)s->list[i].logit >= least) s->list[n++] = s->list[i];
    s->n = n;
}

/* Returns the length of the shortest prefix of the sorted list that reaches p of the total and has min_keep candidates; more
 * than there are if none does. */
static uint32_t nucleus(const ae_draw_room *s, uint64_t total)
{
    uint64_t all;
    if (!s->n) return 1;
    const ae_sampling *p = &s->draw->params;
    return ae_list_reaching(s, s->list[0].logit, ae_share((double)p->top_p, total), p->min_keep, &all);
}

#define FEW 256 /* most nuclei are shorter */

void ae_step_top_p(ae_draw_room *s)
{
    uint64_t total = 0;
    const bool row = s->logits != NULL;
    if (row) {
        const uint32_t n = s->draw->n_vocab;
        total = ae_total_weight(s->logits, n, ae_clean(s->logits[ae_argmax(s->logits, n)]), s->t);
        s->n = ae_select_top(s->logits, n, FEW, s->list);
        const uint32_t kept = nucleus(s, total);
        if (kept <= s->n) {
            s->logits = NULL;
            s->sorted = true;
            s->n = kept;
            return;
        }
        ae_to_list(s);
    }
    ae_sort_list(s);
    if (!row && s->n) total = ae_list_total(s, s->list[0].logit);
    const uint32_t kept = nucleus(s, total);
    if (kept < s->n) s->n = kept;
}

/* Orders candidates so that more typical ones come first. */
static bool more_typical(const ae_typical *a, const ae_typical *b)
{
    return a->key < b->key || (a->key == b->key && ae_before(a->c, b->c));
}

#define MORE_TYPICAL(context, a, b) more_typical(a, b)
AE_HEAP_SINK(sink, ae_typical, 2, MORE_TYPICAL)

/* Keeps the candidates whose surprise is nearest to the entropy, until they reach more than p. */
void ae_step_typical(ae_draw_room *s)
{
    ae_to_list(s);
    if (!s->n) return;
    const float top = ae_list_top(s);
    uint64_t total, sum = 0;
    const double excess = ae_list_entropy(s, top, &total) - ae_log_total(total);
    for (uint32_t i = 0; i < s->n; i++) {
        const ae_candidate c = s->list[i];
        s->typical[i] = (ae_typical){c, fabs(((double)top - (double)c.logit) / s->t - excess)};
    }
    for (uint32_t i = s->n / 2; i-- > 0;) sink(s->typical, s->n, i, NULL);
    uint32_t kept = 0;
    for (uint32_t left = s->n; left > 0;) {
        const ae_candidate best = s->typical[0].c;
        s->list[kept++] = best;
        sum += ae_weight_units(ae_weight(best.logit, top, s->t));
        if (sum > ae_share((double)s->draw->params.typical_p, total) && kept >= s->draw->params.min_keep) break;
        s->typical[0] = s->typical[--left];
        sink(s->typical, left, 0, NULL);
    }
    s->n = kept;
    s->sorted = false;
}

void ae_step_min_p(ae_draw_room *s)
{
    ae_to_list(s);
    if (!s->n) return;
    const float floor = ae_list_top(s) + (float)(s->t * ae_log((double)s->draw->params.min_p));
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) n += s->list[i].logit >= floor;
    if (n < s->draw->params.min_keep) {
        ae_keep_top(s, s->draw->params.min_keep);
        return;
    }
    n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->list[i].logit >= floor) s->list[n++] = s->list[i];
    s->n = n;
}

/* With the given probability, removes all candidates that reach the threshold except the least likely one. The coin uses a
 * counter that no token's noise uses. */
void ae_step_xtc(ae_draw_room *s, size_t position)
{
    uint32_t bits[4];
    ae_philox(s->draw->params.seed, position, (uint64_t)1 << 32, bits);
    if (ae_uniform_open(bits[0]) > (double)s->draw->params.xtc_probability) return;
    ae_to_list(s);
    if (s->n < 2) return;
    const float top = ae_list_top(s);
    const uint64_t least = ae_share((double)s->draw->params.xtc_threshold, ae_list_total(s, top));
    float w[AE_WEIGHTS_PART];
    uint32_t n_likely = 0;
    ae_candidate last = {0};
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t left = s->n - i, at = i % AE_WEIGHTS_PART;
        if (!at) ae_list_weights(s, i, left < AE_WEIGHTS_PART ? left : AE_WEIGHTS_PART, top, w);
        if (ae_weight_units(w[at]) < least) continue;
        if (!n_likely++ || ae_before(last, s->list[i])) last = s->list[i];
    }
    if (n_likely < 2 || s->n - (n_likely - 1) < s->draw->params.min_keep) return;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (!ae_before(s->list[i], last)) s->list[n++] = s->list[i];
    s->n = n;
}

/* Computes a temperature between temperature - range and + range from the entropy, as a share of the largest possible one; 0:
 * there is nothing to choose from. */
static bool dynamic_temperature(ae_draw_room *s, double *temperature)
{
    const ae_sampling *p = &s->draw->params;
    ae_to_list(s);
    if (s->n <= 1) return false;
    const float top = ae_list_top(s);
    uint64_t total;
    const double share = ae_list_entropy(s, top, &total) / ae_log((double)s->n);
    const double low = p->temperature > p->dynatemp_range ? (double)p->temperature - (double)p->dynatemp_range : 0.0;
    const double high = (double)p->temperature + (double)p->dynatemp_range;
    const double power = share > 0 ? (double)ae_expf((float)((double)p->dynatemp_exponent * ae_log(share)))
                                   : p->dynatemp_exponent > 0 ? 0.0 : 1.0;
    *temperature = low + (high - low) * power;
    return true;
}

void ae_step_temperature(ae_draw_room *s)
{
    double temperature = (double)s->draw->params.temperature;
    if (s->draw->params.dynatemp_range > 0 && !dynamic_temperature(s, &temperature)) return;
    if (s->t * temperature > LEAST_T) {
        s->t *= temperature;
    } else if (s->logits) {
        const int32_t id = ae_argmax(s->logits, s->draw->n_vocab);
        s->list[0] = (ae_candidate){id, ae_clean(s->logits[id])};
        s->n = s->list[0].logit != -INFINITY;
        s->logits = NULL;
        s->sorted = true;
    } else {
        ae_keep_top(s, 1);
    }
}

/* Keeps the candidates whose surprise is at most mu bits, and at least the best one. */
void ae_step_mirostat(ae_draw_room *s)
{
    ae_to_list(s);
    if (!s->n) return;
    const float top = ae_list_top(s);
    const double log_total = ae_log_total(ae_list_total(s, top));
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const double surprise = (log_total - ((double)s->list[i].logit - (double)top) / s->t) / LN2;
        if (surprise <= s->mu) s->list[n++] = s->list[i];
    }
    if (n) s->n = n;
    else ae_keep_top(s, 1);
}

double ae_mirostat_next(const ae_draw_room *s, int32_t id)
{
    const float top = ae_list_top(s);
    double surprise = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->list[i].id == id)
            surprise = (ae_log_total(ae_list_total(s, top)) - ((double)s->list[i].logit - (double)top) / s->t) / LN2;
    return s->mu - (double)s->draw->params.mirostat_eta * (surprise - (double)s->draw->params.mirostat_tau);
}
