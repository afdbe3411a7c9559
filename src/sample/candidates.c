/* candidates.c - rows and lists of candidates: the best of them, their weights, one form from the other.
 *
 * Sums run in the order of the row or list. Heaps give the same order for any input, since ae_before is total.
 */
#include "sample/sampler_int.h"

/* The best id of a row: largest logit, lowest id among equals. Sixteen lanes so that it vectorizes. */
int32_t ae_argmax(const float *logits, uint32_t n)
{
    float top[16];
    for (int j = 0; j < 16; j++) top[j] = -INFINITY;
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) top[j] = logits[i + j] > top[j] ? logits[i + j] : top[j];
    float best = top[0];
    for (int j = 1; j < 16; j++) best = top[j] > best ? top[j] : best;
    for (; i < n; i++) best = logits[i] > best ? logits[i] : best;
    for (i = 0; i < n; i++)
        if (logits[i] == best) return (int32_t)i;
    return 0; /* all NaN */
}

static void sift_down(ae_candidate *heap, uint32_t n, uint32_t i)
{
    const ae_candidate x = heap[i];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && ae_before(heap[child], heap[child + 1])) child++; /* the worse child rises */
        if (!ae_before(x, heap[child])) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = x;
}

/* A heap whose top is the worst becomes a list, best first. */
static void heap_sort(ae_candidate *heap, uint32_t n)
{
    for (uint32_t end = n; end > 1; end--) {
        const ae_candidate worst = heap[0];
        heap[0] = heap[end - 1];
        heap[end - 1] = worst;
        sift_down(heap, end - 1, 0);
    }
}

uint32_t ae_select_top(const float *logits, uint32_t n, uint32_t k, ae_candidate *out)
{
    if (k > n) k = n;
    for (uint32_t i = 0; i < k; i++) out[i] = (ae_candidate){(int32_t)i, ae_clean(logits[i])};
    for (uint32_t i = k / 2; i-- > 0;) sift_down(out, k, i);
    for (uint32_t i = k; i < n; i++) {
        if (!(logits[i] > out[0].logit)) continue;
        const float x = ae_clean(logits[i]);
        if (!(x > out[0].logit)) continue;
        out[0] = (ae_candidate){(int32_t)i, x};
        sift_down(out, k, 0);
    }
    heap_sort(out, k);
    while (k && out[k - 1].logit == -INFINITY) k--;
    return k;
}

double ae_total_weight(const float *logits, uint32_t n, float top, double t)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const float x = ae_clean(logits[i]);
        sum += x == -INFINITY ? 0.0 : (double)ae_weight(x, top, t);
    }
    return sum;
}

void ae_to_list(ae_sampler *s)
{
    if (!s->logits) return;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        const float x = ae_clean(s->logits[i]);
        s->list[n] = (ae_candidate){(int32_t)i, x};
        n += x != -INFINITY;
    }
    s->logits = NULL;
    s->n = n;
    s->sorted = false;
}

void ae_to_row(ae_sampler *s)
{
    if (s->logits) {
        if (s->logits != s->row) memcpy(s->row, s->logits, s->n_vocab * sizeof *s->row);
    } else {
        for (uint32_t i = 0; i < s->n_vocab; i++) s->row[i] = -INFINITY;
        for (uint32_t i = 0; i < s->n; i++) s->row[s->list[i].id] = s->list[i].logit;
    }
    for (uint32_t i = 0; s->t != 1.0 && i < s->n_vocab; i++) s->row[i] = (float)((double)s->row[i] / s->t);
    s->logits = s->row;
    s->t = 1.0;
}

void ae_keep_top(ae_sampler *s, uint32_t k)
{
    if (s->logits) {
        s->n = ae_select_top(s->logits, s->n_vocab, k, s->list);
        s->logits = NULL;
        s->sorted = true;
        return;
    }
    ae_candidate *c = s->list;
    if (k > s->n) k = s->n;
    if (!s->sorted && k) {
        for (uint32_t i = k / 2; i-- > 0;) sift_down(c, k, i);
        for (uint32_t i = k; i < s->n; i++) {
            if (!ae_before(c[i], c[0])) continue;
            c[0] = c[i];
            sift_down(c, k, 0);
        }
        heap_sort(c, k);
    }
    s->n = k;
    s->sorted = true;
}

float ae_list_top(const ae_sampler *s)
{
    float top = s->list[0].logit;
    for (uint32_t i = 1; !s->sorted && i < s->n; i++) top = s->list[i].logit > top ? s->list[i].logit : top;
    return top;
}

double ae_list_total(const ae_sampler *s, float top)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->n; i++) sum += (double)ae_weight(s->list[i].logit, top, s->t);
    return sum;
}
