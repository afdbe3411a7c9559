#include "sample/sampler.h"

#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "base/mem.h"
#include "base/rng.h"

typedef struct candidate {
    int32_t id;
    float logit;
} candidate;

#define NOISE_BINS 1024 /* by the upper bits of a random word */

struct ae_sampler {
    ae_sampling params;
    uint32_t n_vocab;
    float *logits;          /* [n_vocab] working copy, when penalties change them */
    candidate *candidates;  /* [n_vocab] */
    double noise_bound[NOISE_BINS]; /* no noise made of bits in [i, i + 1) / NOISE_BINS is larger */
};

static double gumbel_of(uint32_t bits)
{
    return -ae_log(-ae_log((double)ae_uniform_open(bits)));
}

ae_sampling ae_sampling_default(void)
{
    return (ae_sampling){.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1.0f,
                         .penalty_last_n = 64};
}

aerie_status ae_sampling_check(const ae_sampling *s, aerie_error *error)
{
    const struct {
        const char *name;
        float value, lo, hi;
    } fields[] = {
        {"temperature", s->temperature, -1e6f, 1e6f},
        {"top-p", s->top_p, 0.0f, 1e6f},
        {"min-p", s->min_p, -1e6f, 1.0f},
        {"repeat-penalty", s->repeat_penalty, 1e-3f, 1e3f},
        {"presence-penalty", s->presence_penalty, -1e3f, 1e3f},
        {"frequency-penalty", s->frequency_penalty, -1e3f, 1e3f},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (!(fields[i].value >= fields[i].lo && fields[i].value <= fields[i].hi))
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "%s is %g; %g to %g are possible", fields[i].name,
                           (double)fields[i].value, (double)fields[i].lo, (double)fields[i].hi);
    if (s->penalty_last_n < -1)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "repeat-last-n is %d; -1 (all), 0 (off) or a count are possible", s->penalty_last_n);
    return AERIE_OK;
}

aerie_status ae_sampler_create(ae_sampler **out, const ae_sampling *sampling, uint32_t n_vocab, aerie_error *error)
{
    *out = NULL;
    AE_TRY(ae_sampling_check(sampling, error));
    ae_sampler *s = ae_alloc(1, sizeof *s);
    if (!s) return ae_fail_memory(error, "a sampler", sizeof *s);
    *s = (ae_sampler){.params = *sampling, .n_vocab = n_vocab};
    s->logits = ae_alloc(n_vocab, sizeof *s->logits);
    s->candidates = ae_alloc(n_vocab, sizeof *s->candidates);
    if (!s->logits || !s->candidates) {
        ae_sampler_free(s);
        return ae_fail_memory(error, "a sampler", n_vocab * (sizeof *s->logits + sizeof *s->candidates));
    }
    /* the noise grows with its bits, so a bin's last word bounds it; a hair for the rounding of the logarithms */
    for (uint32_t i = 0; i < NOISE_BINS; i++) s->noise_bound[i] = gumbel_of(i << 22 | 0x3FFFFF) + 1e-9;
    *out = s;
    return AERIE_OK;
}

void ae_sampler_free(ae_sampler *sampler)
{
    if (!sampler) return;
    ae_free(sampler->logits);
    ae_free(sampler->candidates);
    ae_free(sampler);
}

const ae_sampling *ae_sampler_params(const ae_sampler *sampler)
{
    return &sampler->params;
}

double ae_gumbel(uint64_t seed, uint64_t position, uint32_t token)
{
    uint32_t bits[4];
    ae_philox(seed, position, token / 4, bits);
    return gumbel_of(bits[token % 4]);
}

/* The best id of a row: largest logit, lowest id among equals. Sixteen lanes so that it vectorizes. */
static int32_t argmax(const float *logits, uint32_t n)
{
    float top[16];
    for (int j = 0; j < 16; j++) top[j] = logits[0];
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

/* ---- Filters ------------------------------------------------------------------------------------- */

static bool penalties_on(const ae_sampling *p)
{
    return p->penalty_last_n != 0 && (p->repeat_penalty != 1.0f || p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f);
}

/* Counts each seen token once per occurrence; a token's first visit from the end applies it all. */
static void apply_penalties(const ae_sampling *p, float *logits, uint32_t n_vocab, const int32_t *tokens, size_t n)
{
    const size_t last = p->penalty_last_n < 0 || (size_t)p->penalty_last_n > n ? n : (size_t)p->penalty_last_n;
    const int32_t *seen = tokens + (n - last);
    for (size_t i = 0; i < last; i++) {
        const int32_t id = seen[i];
        if (id < 0 || (uint32_t)id >= n_vocab) continue;
        size_t count = 1;
        bool earlier = false;
        for (size_t j = 0; j < i && !earlier; j++) earlier = seen[j] == id;
        if (earlier) continue;
        for (size_t j = i + 1; j < last; j++) count += seen[j] == id;
        float x = logits[id];
        x = x > 0 ? x / p->repeat_penalty : x * p->repeat_penalty;
        logits[id] = x - (float)count * p->frequency_penalty - p->presence_penalty;
    }
}

/* Before means better: larger logit, then lower id. */
static bool before(candidate a, candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(candidate *heap, uint32_t n, uint32_t i)
{
    const candidate x = heap[i];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && before(heap[child], heap[child + 1])) child++; /* the worse child rises */
        if (!before(x, heap[child])) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = x;
}

/* The k best of the row, best first; a heap whose top is the worst kept. */
static uint32_t select_top(const float *logits, uint32_t n, uint32_t k, candidate *out)
{
    if (k > n) k = n;
    for (uint32_t i = 0; i < k; i++) out[i] = (candidate){(int32_t)i, logits[i]};
    for (uint32_t i = k / 2; i-- > 0;) sift_down(out, k, i);
    for (uint32_t i = k; i < n; i++) {
        if (!(logits[i] > out[0].logit)) continue;
        out[0] = (candidate){(int32_t)i, logits[i]};
        sift_down(out, k, 0);
    }
    for (uint32_t end = k; end > 1; end--) {
        const candidate worst = out[0];
        out[0] = out[end - 1];
        out[end - 1] = worst;
        sift_down(out, end - 1, 0);
    }
    return k;
}

/* Nucleus: the shortest prefix whose share of the candidates' probability reaches p. */
static uint32_t top_p(const candidate *c, uint32_t n, double total, float p)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)ae_expf(c[i].logit - c[0].logit);
        if (sum >= (double)p * total) return i + 1;
    }
    return n;
}

static double total_weight(const float *logits, uint32_t n, float top)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)ae_expf(logits[i] - top);
    return sum;
}

/* Candidates that pass top-k and top-p, best first where that was needed. */
static uint32_t filter(ae_sampler *s, const float *logits)
{
    const ae_sampling *p = &s->params;
    candidate *c = s->candidates;
    const uint32_t n = s->n_vocab;
    if (p->top_k > 0) {
        uint32_t k = select_top(logits, n, (uint32_t)p->top_k, c);
        if (p->top_p < 1.0f) {
            double total = 0;
            for (uint32_t i = 0; i < k; i++) total += (double)ae_expf(c[i].logit - c[0].logit);
            k = top_p(c, k, total, p->top_p);
        }
        return k;
    }
    if (p->top_p < 1.0f) {
        /* the nucleus is usually short: widen the selection until it holds enough */
        const double total = total_weight(logits, n, logits[argmax(logits, n)]);
        for (uint32_t k = 256;; k *= 8) {
            const uint32_t got = select_top(logits, n, k, c), kept = top_p(c, got, total, p->top_p);
            if (kept < got || got == n) return kept;
        }
    }
    for (uint32_t i = 0; i < n; i++) c[i] = (candidate){(int32_t)i, logits[i]};
    return n;
}

/* argmax of logit / temperature + noise over candidates not below `floor`. Most cannot win with the upper bits of
 * their noise alone; passing those over saves the logarithms and changes nothing. */
static int32_t draw(const ae_sampler *s, uint32_t n, float top, float floor, uint64_t position)
{
    const ae_sampling *p = &s->params;
    const candidate *c = s->candidates;
    double best = -INFINITY;
    int32_t best_id = -1;
    uint32_t bits[4], block = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].logit < floor) continue;
        const double weight = ((double)c[i].logit - (double)top) / (double)p->temperature;
        const uint32_t id = (uint32_t)c[i].id;
        if (weight + AE_GUMBEL_MAX < best) continue;
        if (id / 4 != block) ae_philox(p->seed, position, block = id / 4, bits);
        if (weight + s->noise_bound[bits[id % 4] >> 22] < best) continue;
        const double score = weight + gumbel_of(bits[id % 4]);
        if (score > best || (score == best && c[i].id < best_id)) {
            best = score;
            best_id = c[i].id;
        }
    }
    return best_id;
}

int32_t ae_sampler_draw(ae_sampler *s, const float *logits, const int32_t *tokens, size_t n_tokens)
{
    const ae_sampling *p = &s->params;
    if (penalties_on(p)) {
        memcpy(s->logits, logits, s->n_vocab * sizeof *s->logits);
        apply_penalties(p, s->logits, s->n_vocab, tokens, n_tokens);
        logits = s->logits;
    }
    if (!(p->temperature > 0.0f)) return argmax(logits, s->n_vocab);
    const uint32_t n = filter(s, logits);
    float top = s->candidates[0].logit;
    for (uint32_t i = 1; i < n; i++) top = s->candidates[i].logit > top ? s->candidates[i].logit : top;
    const float floor = p->min_p > 0.0f ? top + (float)ae_log((double)p->min_p) : -INFINITY;
    const int32_t id = draw(s, n, top, floor, n_tokens);
    return id >= 0 ? id : argmax(logits, s->n_vocab);
}

/* Sum of e^(logit - top); what adds less than 1e-7 of the top is left out. */
static double near_weight(const float *logits, uint32_t n, float top)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (logits[i] > top - 16.0f) sum += (double)ae_expf(logits[i] - top);
    return sum;
}

uint32_t ae_sampler_propose(ae_sampler *s, const float *logits, uint32_t n_logits, const int32_t *map, size_t position,
                            uint32_t k, int32_t *ids, float *probs)
{
    const ae_sampling *p = &s->params;
    candidate best[64];
    double score[64], total = 0;
    /* noise moves few tokens past the front: rank a short list, not the vocabulary */
    const bool noisy = p->temperature > 0.0f;
    const uint32_t want = noisy && k < 40 ? 40 : k;
    const uint32_t n = select_top(logits, n_logits, want < 64 ? want : 64, best);
    if (!n) return 0;
    /* noise counts in units of the temperature; what the drafter's logits are wrong by does not shrink with it */
    const double unit = p->temperature < 1.0f ? (double)p->temperature : 1.0, noise = noisy ? unit : 0.0;
    const double scale = p->temperature > 1.0f ? 1.0 / (double)p->temperature : 1.0;
    double top = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t id = (uint32_t)(map ? map[best[i].id] : best[i].id);
        score[i] = ((double)best[i].logit - (double)best[0].logit) * scale;
        if (noisy) score[i] += noise * ae_gumbel(p->seed, position, id);
        if (score[i] > top) top = score[i];
    }
    if (noisy) for (uint32_t i = 0; i < n; i++) total += (double)ae_expf((float)(score[i] - top));
    else total = near_weight(logits, n_logits, best[0].logit);
    if (k > n) k = n;
    for (uint32_t j = 0; j < k; j++) {
        uint32_t at = 0;
        for (uint32_t i = 1; i < n; i++)
            if (score[i] > score[at]) at = i;
        ids[j] = map ? map[best[at].id] : best[at].id;
        probs[j] = (float)((double)ae_expf((float)(score[at] - top)) / total);
        score[at] = -INFINITY;
    }
    return k;
}
