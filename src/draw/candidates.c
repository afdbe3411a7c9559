/* candidates.c - rows and lists of candidates: finding the best, their weights, conversion between the two forms.
 *
 * Sums are of integers (ae_weight_units) and do not depend on order. Heaps give the same order for any input, since ae_before
 * is total.
 */
#include "base/heap.h"
#include "draw/draw_int.h"

/* Returns the best id of a row: largest logit, lowest id among equals. Sixteen lanes so that it vectorizes. */
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

/* The top of the heap is its worst candidate. */
#define WORSE(context, a, b) ae_before(*(b), *(a))
AE_HEAP_SINK(sink, ae_candidate, 2, WORSE)

/* Turns a heap whose top is the worst into a list, best first. */
static void heap_sort(ae_candidate *heap, uint32_t n)
{
    for (uint32_t end = n; end > 1; end--) {
        const ae_candidate worst = heap[0];
        heap[0] = heap[end - 1];
        heap[end - 1] = worst;
        sink(heap, end - 1, 0, NULL);
    }
}

#define LOOK 32

/* Most of a row is below what was already found, so many logits are compared at once. NaN is never above. */
static bool any_above(const float *x, float floor)
{
    int above = 0;
    for (uint32_t j = 0; j < LOOK; j++) above |= x[j] > floor;
    return above;
}

uint32_t ae_select_top(const float *logits, uint32_t n, uint32_t k, ae_candidate *out)
{
    if (k > n) k = n;
    for (uint32_t i = 0; i < k; i++) out[i] = (ae_candidate){(int32_t)i, ae_clean(logits[i])};
    for (uint32_t i = k / 2; i-- > 0;) sink(out, k, i, NULL);
    for (uint32_t i = k; k && i < n;) {
        const uint32_t end = i + LOOK <= n ? i + LOOK : n;
        if (end - i == LOOK && !any_above(logits + i, out[0].logit)) i = end;
        for (; i < end; i++) {
            if (!(logits[i] > out[0].logit)) continue;
            const float x = ae_clean(logits[i]);
            if (!(x > out[0].logit)) continue;
            out[0] = (ae_candidate){(int32_t)i, x};
            sink(out, k, 0, NULL);
        }
    }
    heap_sort(out, k);
    while (k && out[k - 1].logit == -INFINITY) k--;
    return k;
}

/* ---- Weights of many ---- */

/* On CPUs with fused multiplication, the same steps run on eight values at a time and give the same bits. */

static inline __attribute__((always_inline)) void weigh(const float *logits, uint32_t n, float top, double t, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        const float x = logits[i] > FLT_MAX ? FLT_MAX : logits[i]; /* NaN has no weight, like -infinity */
        const float w = ae_weight(x, top, t);
        out[i] = x >= -FLT_MAX ? w : 0.0f;
    }
}

static uint64_t add_units(const float *weights, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += ae_weight_units(weights[i]);
    return sum;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void weigh_fused(const float *logits, uint32_t n, float top, double t, float *out)
{
    weigh(logits, n, top, t, out);
}

/* AVX2 does not convert to 64-bit integers but shifts each by a count of its own: w = m 2^(e - 150), so w 2^40 is m shifted
 * left by 17, then right by 127 - e. */
__attribute__((target("avx2"))) static uint64_t add_units_shifted(const float *weights, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &weights[i], 4);
        const uint32_t down = 127 - (bits >> 23), shift = down < 63 ? down : 63;
        sum += (uint64_t)((bits & 0x7FFFFF) | 0x800000) << 17 >> shift;
    }
    return sum;
}

static bool fused(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

static void weights_of(const float *logits, uint32_t n, float top, double t, float *out)
{
#if defined(__x86_64__)
    if (fused()) {
        weigh_fused(logits, n, top, t, out);
        return;
    }
#endif
    weigh(logits, n, top, t, out);
}

/* Returns the sum of weights from 0 to 1 in units. */
static uint64_t units_of(const float *weights, uint32_t n)
{
#if defined(__x86_64__)
    if (fused()) return add_units_shifted(weights, n);
#endif
    return add_units(weights, n);
}

uint64_t ae_total_weight(const float *logits, uint32_t n, float top, double t)
{
    float w[AE_WEIGHTS_PART];
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i += AE_WEIGHTS_PART) {
        const uint32_t m = n - i < AE_WEIGHTS_PART ? n - i : AE_WEIGHTS_PART;
        weights_of(logits + i, m, top, t, w);
        sum += units_of(w, m);
    }
    return sum;
}

void ae_list_weights(const ae_draw_room *s, uint32_t first, uint32_t n, float top, float *weights)
{
    float logits[AE_WEIGHTS_PART];
    for (uint32_t j = 0; j < n; j++) logits[j] = s->list[first + j].logit;
    weights_of(logits, n, top, s->t, weights);
}

uint32_t ae_list_reaching(const ae_draw_room *s, float top, uint64_t wanted, uint32_t least, uint64_t *total)
{
    float w[AE_WEIGHTS_PART];
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n; i += AE_WEIGHTS_PART) {
        const uint32_t m = s->n - i < AE_WEIGHTS_PART ? s->n - i : AE_WEIGHTS_PART;
        ae_list_weights(s, i, m, top, w);
        const uint64_t part = units_of(w, m);
        if (sum + part < wanted || i + m < least) {
            sum += part;
            continue;
        }
        for (uint32_t j = 0; j < m; j++) {
            sum += ae_weight_units(w[j]);
            if (sum >= wanted && i + j + 1 >= least) return i + j + 1;
        }
    }
    *total = sum;
    return s->n + 1;
}

double ae_list_entropy(const ae_draw_room *s, float top, uint64_t *total)
{
    float w[AE_WEIGHTS_PART];
    uint64_t sum = 0, parts = 0;
    for (uint32_t i = 0; i < s->n; i += AE_WEIGHTS_PART) {
        const uint32_t m = s->n - i < AE_WEIGHTS_PART ? s->n - i : AE_WEIGHTS_PART;
        ae_list_weights(s, i, m, top, w);
        for (uint32_t j = 0; j < m; j++) {
            const uint64_t units = ae_weight_units(w[j]);
            const double d = ((double)top - (double)s->list[i + j].logit) / s->t;
            sum += units;
            if (units) parts += (uint64_t)(int64_t)((double)w[j] * d * 0x1p40); /* w = e^-d, so w d is below 1 */
        }
    }
    *total = sum;
    return ae_log_total(sum) + (double)parts / (double)sum;
}

void ae_to_list(ae_draw_room *s)
{
    if (!s->logits) return;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->draw->n_vocab; i++) {
        const float x = ae_clean(s->logits[i]);
        s->list[n] = (ae_candidate){(int32_t)i, x};
        n += x != -INFINITY;
    }
    s->logits = NULL;
    s->n = n;
    s->sorted = false;
}

void ae_to_row(ae_draw_room *s)
{
    if (s->logits) {
        if (s->logits != s->row) memcpy(s->row, s->logits, s->draw->n_vocab * sizeof *s->row);
    } else {
        for (uint32_t i = 0; i < s->draw->n_vocab; i++) s->row[i] = -INFINITY;
        for (uint32_t i = 0; i < s->n; i++) s->row[s->list[i].id] = s->list[i].logit;
    }
    for (uint32_t i = 0; s->t != 1.0 && i < s->draw->n_vocab; i++) s->row[i] = (float)((double)s->row[i] / s->t);
    s->logits = s->row;
    s->t = 1.0;
}

void ae_keep_top(ae_draw_room *s, uint32_t k)
{
    if (s->logits) {
        s->n = ae_select_top(s->logits, s->draw->n_vocab, k, s->list);
        s->logits = NULL;
        s->sorted = true;
        return;
    }
    ae_candidate *c = s->list;
    if (k > s->n) k = s->n;
    if (!s->sorted && k) {
        for (uint32_t i = k / 2; i-- > 0;) sink(c, k, i, NULL);
        for (uint32_t i = k; i < s->n; i++) {
            if (!ae_before(c[i], c[0])) continue;
            c[0] = c[i];
            sink(c, k, 0, NULL);
        }
        heap_sort(c, k);
    }
    s->n = k;
    s->sorted = true;
}

float ae_list_top(const ae_draw_room *s)
{
    float top = s->list[0].logit;
    for (uint32_t i = 1; !s->sorted && i < s->n; i++) top = s->list[i].logit > top ? s->list[i].logit : top;
    return top;
}

uint64_t ae_list_total(const ae_draw_room *s, float top)
{
    uint64_t total = 0;
    ae_list_reaching(s, top, UINT64_MAX, 0, &total);
    return total;
}

/* ---- Sorting all ---- */

#define SORT_MANY 1024 /* with fewer candidates a heap is as fast */

/* Larger logits have smaller ranks; -0 counts as 0. */
static inline uint32_t rank_of(float logit)
{
    const float x = logit + 0.0f;
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits >> 31 ? bits : ~bits & 0x7FFFFFFF;
}

static bool ids_ascend(const ae_draw_room *s)
{
    for (uint32_t i = 1; i < s->n; i++)
        if (s->list[i].id <= s->list[i - 1].id) return false;
    return true;
}

/* Sorts by the bytes of the rank, the lowest byte first; equal elements keep their order, which is that of their ids. */
void ae_sort_list(ae_draw_room *s)
{
    if (s->sorted || s->n < SORT_MANY || !s->spare || !ids_ascend(s)) {
        ae_keep_top(s, s->n);
        return;
    }
    uint32_t count[4][256] = {{0}};
    ae_candidate *from = s->list, *to = s->spare;
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t rank = rank_of(from[i].logit);
        for (int b = 0; b < 4; b++) count[b][rank >> 8 * b & 255]++;
    }
    for (int b = 0; b < 4; b++) {
        uint32_t at = 0;
        for (int v = 0; v < 256; v++) {
            const uint32_t n = count[b][v];
            count[b][v] = at;
            at += n;
        }
        for (uint32_t i = 0; i < s->n; i++) to[count[b][rank_of(from[i].logit) >> 8 * b & 255]++] = from[i];
        ae_candidate *other = from;
        from = to;
        to = other;
    }
    s->sorted = true;
}
