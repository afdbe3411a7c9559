/* test_sampler_steps.c - every step of the chain, alone and in random chains, against the slow and obvious definition in double
 * precision, written from llama.cpp's documented behaviour; mirostat's state; hostile logits; what is refused.
 *
 * The chain's candidates are compared as sets, log weights within 1e-4 (of more than one: else they do not matter). Where a
 * candidate lies within rounding (1e-5) of a border, both answers are right; the definition reports that, and those few rows
 * are counted and left out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/rng.h"
#include "mkmodel.h"
#include "draw/best.h"
#include "sample/sampler.h"
#include "vocab_make.h"

#define N 600
#define N_TOKENS 120
#define NEAR 1e-5

/* ---- The definition ------------------------------------------------------------------------------ */

typedef struct plain {
    bool in[N];
    double x[N]; /* logit divided by the temperatures so far */
    bool near;   /* some decision was within rounding */
} plain;

static uint32_t count_of(const plain *c)
{
    uint32_t n = 0;
    for (int i = 0; i < N; i++) n += c->in[i];
    return n;
}

static void softmax(const plain *c, double *p)
{
    double top = -INFINITY, total = 0;
    for (int i = 0; i < N; i++)
        if (c->in[i] && c->x[i] > top) top = c->x[i];
    for (int i = 0; i < N; i++) total += p[i] = c->in[i] ? exp(c->x[i] - top) : 0;
    for (int i = 0; i < N; i++) p[i] /= total;
}

/* Ids that are in, least key first, lowest id first among equals. */
static const double *sort_keys;
static int by_key(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    if (sort_keys[x] != sort_keys[y]) return sort_keys[x] < sort_keys[y] ? -1 : 1;
    return x - y;
}

static uint32_t sorted(const plain *c, const double *keys, int *order)
{
    uint32_t n = 0;
    for (int i = 0; i < N; i++)
        if (c->in[i]) order[n++] = i;
    sort_keys = keys;
    qsort(order, n, sizeof *order, by_key);
    return n;
}

static uint32_t best_first(const plain *c, int *order)
{
    static double keys[N];
    for (int i = 0; i < N; i++) keys[i] = -c->x[i];
    return sorted(c, keys, order);
}

static void keep_first(plain *c, const int *order, uint32_t n)
{
    memset(c->in, 0, sizeof c->in);
    for (uint32_t i = 0; i < n; i++) c->in[order[i]] = true;
}

static void penalties(plain *c, const ae_sampling *p, const int32_t *tokens, size_t n)
{
    const size_t last = p->penalty_last_n < 0 || (size_t)p->penalty_last_n > n ? n : (size_t)p->penalty_last_n;
    for (int id = 0; id < N; id++) {
        int count = 0;
        for (size_t j = n - last; j < n; j++) count += tokens[j] == id;
        if (!count) continue;
        c->x[id] = c->x[id] <= 0 ? c->x[id] * (double)p->repeat_penalty : c->x[id] / (double)p->repeat_penalty;
        c->x[id] -= count * (double)p->frequency_penalty + (double)p->presence_penalty;
    }
}

/* is_breaker [N]: tokens that break by themselves; may be NULL. */
static void dry(plain *c, const ae_sampling *p, const int32_t *tokens, size_t n, const bool *is_breaker)
{
    const size_t window = p->dry_penalty_last_n < 0 || (size_t)p->dry_penalty_last_n > n ? n : (size_t)p->dry_penalty_last_n;
    const int32_t *w = tokens + (n - window);
    size_t limit = window;
    for (size_t i = 0; is_breaker && i < window; i++)
        if (is_breaker[w[window - 1 - i]]) {
            limit = i;
            break;
        }
    int longest[N];
    memset(longest, -1, sizeof longest);
    for (size_t end = 1; end < window; end++) { /* w[0..end) ends with an earlier copy of the newest tokens */
        size_t length = 0;
        while (length < end && length < limit && w[end - 1 - length] == w[window - 1 - length]) length++;
        if ((int)length > longest[w[end]]) longest[w[end]] = (int)length;
    }
    const int most = p->dry_base > 1.000001f ? (int)(88.7228391 / log((double)p->dry_base)) : 1 << 20;
    for (int id = 0; id < N; id++) {
        if (longest[id] < p->dry_allowed_length || (is_breaker && is_breaker[id]) || window <= (size_t)p->dry_allowed_length)
            continue;
        int exponent = longest[id] - p->dry_allowed_length;
        if (exponent > most) exponent = most;
        c->x[id] -= (double)p->dry_multiplier * pow((double)p->dry_base, exponent);
    }
}

static void top_n_sigma(plain *c, const ae_sampling *p)
{
    double sum = 0, squares = 0, top = -INFINITY;
    const uint32_t n = count_of(c);
    for (int i = 0; i < N; i++)
        if (c->in[i]) {
            sum += c->x[i];
            if (c->x[i] > top) top = c->x[i];
        }
    for (int i = 0; i < N; i++)
        if (c->in[i]) squares += pow(c->x[i] - sum / n, 2);
    const double least = top - (double)p->top_n_sigma * sqrt(squares / n);
    for (int i = 0; n > 1 && i < N; i++) {
        c->near |= c->in[i] && fabs(c->x[i] - least) < NEAR;
        c->in[i] = c->in[i] && c->x[i] >= least;
    }
}

static void prefix(plain *c, const double *p, const int *order, uint32_t n, double share, uint32_t min_keep)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += p[order[i]];
        c->near |= fabs(sum - share) < NEAR;
        if (sum >= share && i + 1 >= min_keep) {
            keep_first(c, order, i + 1);
            return;
        }
    }
}

static void top_p(plain *c, const ae_sampling *s)
{
    static double p[N];
    static int order[N];
    softmax(c, p);
    prefix(c, p, order, best_first(c, order), (double)s->top_p, s->min_keep);
}

static void typical(plain *c, const ae_sampling *s)
{
    static double p[N], keys[N];
    static int order[N];
    double entropy = 0;
    softmax(c, p);
    for (int i = 0; i < N; i++)
        if (c->in[i]) entropy -= p[i] * log(p[i]);
    for (int i = 0; i < N; i++) keys[i] = c->in[i] ? fabs(-log(p[i]) - entropy) : 0;
    const uint32_t n = sorted(c, keys, order);
    prefix(c, p, order, n, (double)s->typical_p, s->min_keep);
    for (uint32_t i = 1; i < n; i++) /* equal logits have equal keys in both; others may change places at the border */
        if (c->in[order[i - 1]] && !c->in[order[i]])
            c->near |= c->x[order[i]] != c->x[order[i - 1]] && keys[order[i]] - keys[order[i - 1]] < NEAR;
}

static void min_p(plain *c, const ae_sampling *s)
{
    static int order[N];
    const uint32_t n = best_first(c, order);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double d = c->x[order[i]] - (c->x[order[0]] + log((double)s->min_p));
        c->near |= fabs(d) < NEAR;
        kept += d >= 0;
    }
    if (kept < s->min_keep) kept = s->min_keep < n ? s->min_keep : n;
    keep_first(c, order, kept);
}

static void xtc(plain *c, const ae_sampling *s, size_t position)
{
    static double p[N];
    static int order[N];
    uint32_t bits[4];
    ae_philox(s->seed, position, (uint64_t)1 << 32, bits);
    if (ae_uniform_open(bits[0]) > (double)s->xtc_probability || s->xtc_threshold > 0.5f) return;
    softmax(c, p);
    const uint32_t n = best_first(c, order);
    uint32_t last = 0;
    for (uint32_t i = 0; i < n; i++) {
        c->near |= fabs(p[order[i]] - (double)s->xtc_threshold) < NEAR;
        if (p[order[i]] >= (double)s->xtc_threshold) last = i;
        else break;
    }
    if (last > 0 && n - last >= s->min_keep) keep_first(c, order + last, n - last);
}

static void temperature(plain *c, const ae_sampling *s)
{
    static double p[N];
    static int order[N];
    double t = (double)s->temperature, entropy = 0;
    const uint32_t n = best_first(c, order);
    if (s->dynatemp_range > 0) {
        if (n <= 1) return;
        softmax(c, p);
        for (int i = 0; i < N; i++)
            if (c->in[i] && p[i] > 0) entropy -= p[i] * log(p[i]);
        c->near |= entropy < 1e-4; /* f32 weights cannot tell how small it is */
        const double low = fmax(0, t - (double)s->dynatemp_range), high = t + (double)s->dynatemp_range;
        t = low + (high - low) * pow(entropy / log(n), (double)s->dynatemp_exponent);
    }
    if (t <= 0) keep_first(c, order, n ? 1 : 0);
    else
        for (int i = 0; i < N; i++) c->x[i] /= t;
}

static void chain(plain *c, const ae_sampling *s, const float *logits, const int32_t *tokens, size_t n_tokens,
                  const bool *is_breaker)
{
    static int order[N];
    memset(c, 0, sizeof *c);
    for (int i = 0; i < N; i++) c->x[i] = (double)logits[i];
    for (size_t i = 0; i < s->n_logit_bias; i++) c->x[s->logit_bias[i].token] += (double)s->logit_bias[i].bias;
    for (int i = 0; i < N; i++) c->in[i] = c->x[i] > -INFINITY;
    for (size_t i = 0; i < AERIE_MAX_SAMPLERS && s->samplers[i] != AERIE_SAMPLER_END; i++) {
        switch (s->samplers[i]) {
        case AERIE_SAMPLER_PENALTIES: penalties(c, s, tokens, n_tokens); break;
        case AERIE_SAMPLER_DRY: if (s->dry_multiplier != 0) dry(c, s, tokens, n_tokens, is_breaker); break;
        case AERIE_SAMPLER_TOP_N_SIGMA: if (s->top_n_sigma > 0) top_n_sigma(c, s); break;
        case AERIE_SAMPLER_TOP_K: {
            const uint32_t n = best_first(c, order);
            if (s->top_k > 0) keep_first(c, order, (uint32_t)s->top_k < n ? (uint32_t)s->top_k : n);
            break;
        }
        case AERIE_SAMPLER_TYPICAL_P: if (s->typical_p < 1) typical(c, s); break;
        case AERIE_SAMPLER_TOP_P: if (s->top_p < 1) top_p(c, s); break;
        case AERIE_SAMPLER_MIN_P: if (s->min_p > 0) min_p(c, s); break;
        case AERIE_SAMPLER_XTC: if (s->xtc_probability > 0) xtc(c, s, n_tokens); break;
        case AERIE_SAMPLER_TEMPERATURE: temperature(c, s); break;
        case AERIE_SAMPLER_END: break;
        }
    }
}

/* ---- Rows, texts, comparison ----------------------------------------------------------------------- */

static double uniform(uint64_t *random)
{
    return (double)(mk_random(random) >> 11) * 0x1p-53;
}

/* Logits as models have them: a few far above many; ties now and then; some masked. */
static void make_logits(uint64_t *random, float *logits)
{
    const double spread = 0.5 + 3 * uniform(random);
    for (int i = 0; i < N; i++) {
        const double g = uniform(random) + uniform(random) + uniform(random) + uniform(random) - 2;
        logits[i] = (float)(g * 2 * spread + (mk_random(random) % 60 == 0 ? 5 * spread * uniform(random) : 0));
        if (mk_random(random) % 40 == 0) logits[i] = 1.25f;
        if (mk_random(random) % 100 == 0) logits[i] = -INFINITY;
    }
}

/* Texts that repeat themselves. */
static void make_tokens(uint64_t *random, int32_t *tokens)
{
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (int32_t)(mk_random(random) % 40);
        if (i > 12 && mk_random(random) % 3 == 0) {
            const int from = (int)(mk_random(random) % (uint64_t)(i - 10)), length = 2 + (int)(mk_random(random) % 9);
            for (int k = 0; k < length && i < N_TOKENS; k++) tokens[i++] = tokens[from + k];
            i--;
        }
    }
}

static ae_sampling off(void)
{
    ae_sampling s = ae_sampling_default();
    s.temperature = 1, s.top_k = 0, s.top_p = 1, s.min_p = 0, s.penalty_last_n = 0, s.seed = 11, s.n_dry_breakers = 0;
    return s;
}

static double gumbel_argmax_gap; /* between the best two */

static int32_t draw_from(const plain *c, uint64_t seed, size_t position)
{
    double best = -INFINITY, second = -INFINITY;
    int32_t id = -1;
    for (int i = 0; i < N; i++) {
        if (!c->in[i]) continue;
        const double score = c->x[i] + ae_gumbel(seed, position, (uint32_t)i);
        if (score > best) second = best, best = score, id = i;
        else if (score > second) second = score;
    }
    gumbel_argmax_gap = best - second;
    return id;
}

/* One row; false when it is within rounding of a border. */
static bool compare(ae_sampler *s, const ae_sampling *p, const float *logits, const int32_t *tokens, size_t n_tokens,
                    const bool *is_breaker, const char *what)
{
    static plain c;
    static bool got[N];
    uint32_t n;
    double t;
    chain(&c, p, logits, tokens, n_tokens, is_breaker);
    if (c.near) return false;
    const ae_candidate *list = ae_sampler_candidates(s, logits, tokens, n_tokens, &n, &t);
    memset(got, 0, sizeof got);
    for (uint32_t i = 0; i < n; i++) {
        got[list[i].id] = true;
        const double d = (double)list[i].logit / t - c.x[list[i].id];
        if (n > 1 && c.in[list[i].id] && !(fabs(d) < 1e-4 * (1 + fabs(c.x[list[i].id]))))
            fail_msg("%s: token %d has log weight %.8g, by definition %.8g", what, list[i].id, (double)list[i].logit / t,
                     c.x[list[i].id]);
    }
    for (int i = 0; i < N; i++)
        if (got[i] != c.in[i])
            fail_msg("%s: token %d is %s, by definition %s", what, i, got[i] ? "in" : "out", c.in[i] ? "in" : "out");
    const int32_t id = draw_from(&c, p->seed, n_tokens);
    if (id >= 0 && gumbel_argmax_gap > 1e-4) assert_int_equal(ae_sampler_draw(s, logits, tokens, n_tokens), id);
    return true;
}

static uint32_t n_compared, n_near, n_from_best, n_by_floor;

/* The draw from the row's best candidates, where they suffice, is the draw from the row. */
static void compare_best(ae_sampler *s, const float *logits, size_t n_tokens, const char *what)
{
    const ae_draw *d = ae_sampler_plain(s);
    ae_candidate best[AE_BEST_MOST];
    const uint32_t wants = ae_draw_wants(d), n = ae_select_top(logits, N, wants, best);
    const uint32_t takes = wants ? ae_draw_takes(d, best, n, n < wants) : 0;
    if (!takes) return;
    n_from_best++;
    n_by_floor += !ae_draw_reach(d);
    const int32_t from_row = ae_draw_token(d, ae_sampler_room(s), logits, n_tokens);
    if (ae_draw_best(d, ae_sampler_room(s), best, takes, n_tokens) != from_row) fail_msg("%s: not from the best", what);
}

static void compare_rows(const ae_sampling *p, uint64_t seed, uint32_t n_rows, const char *what)
{
    float logits[N];
    int32_t tokens[N_TOKENS];
    uint64_t random = seed;
    ae_sampler *s;
    aerie_error error = {0};
    if (ae_sampler_create(&s, p, NULL, N, N_TOKENS, &error) != AERIE_OK) fail_msg("%s: %s", what, error.text);
    for (uint32_t i = 0; i < n_rows; i++) {
        make_logits(&random, logits);
        make_tokens(&random, tokens);
        n_compared++;
        const size_t n_tokens = mk_random(&random) % (N_TOKENS + 1);
        n_near += !compare(s, p, logits, tokens, n_tokens, NULL, what);
        compare_best(s, logits, n_tokens, what);
    }
    ae_sampler_free(s);
}

#define N_PART 2048 /* tokens of a row that is cut into parts */

/* Makes the scores of some tokens, whose noises are neighbours, as equal as floats allow, and the best of all. */
static void tie(float *logits, uint64_t seed, size_t position, float t, uint32_t n_tied, uint32_t first)
{
    double noise[N_PART];
    for (uint32_t i = 0; i < N_PART; i++) noise[i] = ae_gumbel(seed, position, i), logits[i] = -64.0f * t - (float)(i % 7);
    for (uint32_t k = 0; k < n_tied; k++) {
        uint32_t next = first;
        double least = INFINITY; /* of the distances to those that are not tied yet */
        for (uint32_t i = 0; i < N_PART; i++)
            if (logits[i] < -32.0f * t && fabs(noise[i] - noise[first]) < least)
                next = i, least = fabs(noise[i] - noise[first]);
        logits[next] = (float)((double)t * (noise[first] - noise[next]));
    }
}

/* A row in parts: what each names, and the largest logit, draw the token of the row. */
static void test_noise_by_parts(void **state)
{
    (void)state;
    static const float temperatures[] = {0.05f, 0.7f, 1, 1.3f, 40};
    static float logits[N_PART];
    uint32_t n_second = 0, n_more = 0, n_odd = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        uint64_t random = i;
        ae_sampling p = aerie_sampling_default();
        ae_sampler *s;
        ae_noise noise;
        ae_candidate all[64 * AE_NOISY_MOST + 1];
        uint32_t n = 1, n_parts = 1 + (uint32_t)(mk_random(&random) % 60), at = 0;
        bool more = false;
        p.top_k = 0, p.top_p = 1, p.min_p = 0, p.seed = mk_random(&random), p.temperature = temperatures[i % 5];
        assert_int_equal(ae_sampler_create(&s, &p, NULL, N_PART, 8, NULL), AERIE_OK);
        const ae_draw *d = ae_sampler_plain(s);
        assert_true(ae_draw_is_noise(d, &noise));
        for (uint32_t k = 0; k < N_PART; k++) logits[k] = (float)(mk_random(&random) % 20001) / 1000.0f - 10.0f;
        if (i % 3 == 1) logits[mk_random(&random) % N_PART] = i % 2 ? NAN : -INFINITY, n_odd++;
        if (i % 3 == 2) tie(logits, p.seed, i, p.temperature, 2 + i % 4, (uint32_t)(mk_random(&random) % N_PART));
        assert_int_equal(ae_select_top(logits, N_PART, 1, all), 1);
        for (uint32_t r = 0; r < n_parts; r++) {
            const uint32_t end = r + 1 < n_parts ? at + (uint32_t)(mk_random(&random) % (N_PART - at + 1)) / 3 : N_PART;
            ae_candidate named[AE_NOISY_MOST];
            ae_draw_noisy(&noise, i, logits + at, end - at, at, named);
            for (uint32_t k = 0; k < AE_NOISY_MOST; k++) {
                more |= named[k].id == AE_NOISY_MORE;
                n_second += k && named[k].id >= 0;
                if (named[k].id >= 0) assert_true(named[k].logit == logits[named[k].id]);
                if (named[k].id >= 0 && named[k].id != all[0].id) all[n++] = named[k];
            }
            at = end;
        }
        n_more += more;
        const int32_t from_row = ae_draw_token(d, ae_sampler_room(s), logits, i);
        if (!more) assert_int_equal(ae_draw_best(d, ae_sampler_room(s), all, n, i), from_row);
        ae_sampler_free(s);
    }
    if (!n_second || !n_more || !n_odd) fail_msg("%u second tokens, %u times more, %u odd rows", n_second, n_more, n_odd);
}

static void test_noise_is_of_plain_chains(void **state)
{
    (void)state;
    const aerie_logit_bias bias = {3, 1.0f};
    for (int i = 0; i < 8; i++) {
        ae_sampling p = aerie_sampling_default();
        ae_draw d;
        ae_noise noise;
        p.top_k = 0, p.top_p = 1, p.min_p = 0, p.temperature = 0.7f;
        if (i == 1) p.temperature = 1;
        if (i == 2) p.temperature = 0;
        if (i == 3) p.top_k = 40;
        if (i == 4) p.min_p = 0.1f;
        if (i == 5) p.dynatemp_range = 0.3f;
        if (i == 6) p.repeat_penalty = 1.1f;
        if (i == 7) p.logit_bias = &bias, p.n_logit_bias = 1;
        ae_draw_plan(&d, &p, N);
        assert_int_equal(ae_draw_is_noise(&d, &noise), i < 2);
    }
}

static void test_each_step_is_its_definition(void **state)
{
    (void)state;
    ae_sampling p;
    for (int i = 0; i < 4; i++) {
        static const float shares[] = {0.1f, 0.5f, 0.9f, 0.99f};
        char what[64];
        snprintf(what, sizeof what, "share %g", (double)shares[i]);
        p = off(), p.top_p = shares[i], compare_rows(&p, 1, 100, what);
        p.min_keep = 9, compare_rows(&p, 2, 50, what);
        p = off(), p.typical_p = shares[i], compare_rows(&p, 3, 150, what);
        p.min_keep = 9, compare_rows(&p, 4, 50, what);
        p = off(), p.min_p = shares[i] / 10, compare_rows(&p, 5, 100, what);
        p.min_keep = 9, compare_rows(&p, 6, 50, what);
        p = off(), p.xtc_probability = shares[i], p.xtc_threshold = 0.02f * (float)(i + 1), compare_rows(&p, 7, 150, what);
        p.min_keep = 595, compare_rows(&p, 8, 50, what);
        p = off(), p.top_n_sigma = 0.5f + (float)i, compare_rows(&p, 9, 100, what);
        p = off(), p.dynatemp_range = 2 * shares[i], p.dynatemp_exponent = 0.5f + (float)i, compare_rows(&p, 10, 100, what);
        p = off(), p.repeat_penalty = 1 + shares[i], p.presence_penalty = 0.5f, p.frequency_penalty = 0.25f;
        p.penalty_last_n = i ? 20 * i : -1, compare_rows(&p, 11, 50, what);
        p = off(), p.dry_multiplier = 0.8f, p.dry_base = 1 + shares[i], p.dry_allowed_length = i,
        p.dry_penalty_last_n = i == 1 ? 30 : -1;
        compare_rows(&p, 12, 150, what);
        p = off(), p.top_k = 1 + 30 * i, compare_rows(&p, 13, 50, what);
        p = off(), p.temperature = shares[i] * 2, compare_rows(&p, 14, 50, what);
    }
    static const aerie_logit_bias bias[] = {{3, 12.5f}, {4, -INFINITY}, {599, -2}, {3, 1}};
    p = off(), p.logit_bias = bias, p.n_logit_bias = 4, compare_rows(&p, 15, 50, "bias");
    p.temperature = 0, compare_rows(&p, 16, 50, "bias, greedy");
    assert_true(n_near * 20 < n_compared && n_from_best > 20 && n_by_floor > 5);
}

/* Any steps in any order, twice perhaps, with any parameters. */
static void test_random_chains_are_their_definition(void **state)
{
    (void)state;
    uint64_t random = 77;
    for (int round = 0; round < 300; round++) {
        ae_sampling p = off();
        char what[32];
        snprintf(what, sizeof what, "chain %d: ", round);
        const uint32_t n_steps = (uint32_t)(mk_random(&random) % 8);
        for (uint32_t i = 0; i <= n_steps; i++)
            p.samplers[i] = i < n_steps ? (aerie_sampler)(1 + mk_random(&random) % 9) : AERIE_SAMPLER_END;
        size_t length = strlen(what);
        for (uint32_t i = 0; i < n_steps; i++) what[length++] = aerie_sampler_letter(p.samplers[i]);
        what[length] = '\0';
        p.temperature = mk_random(&random) % 6 ? (float)(0.3 + 1.5 * uniform(&random)) : 0;
        p.dynatemp_range = mk_random(&random) % 4 ? 0 : (float)uniform(&random);
        p.top_k = (int32_t)(mk_random(&random) % 80);
        p.top_p = (float)(0.5 + 0.6 * uniform(&random));
        p.typical_p = (float)(0.5 + 0.6 * uniform(&random));
        p.min_p = (float)(0.1 * uniform(&random));
        p.top_n_sigma = (float)(4 * uniform(&random) - 1);
        p.xtc_probability = (float)uniform(&random), p.xtc_threshold = (float)(0.3 * uniform(&random));
        p.repeat_penalty = (float)(1 + uniform(&random)), p.frequency_penalty = (float)uniform(&random), p.penalty_last_n = -1;
        p.dry_multiplier = (float)uniform(&random);
        p.min_keep = (uint32_t)(mk_random(&random) % 5);
        compare_rows(&p, 1000 + (uint64_t)round, 12, what);
    }
    print_message("%u rows compared, %u within rounding of a border\n", n_compared, n_near);
    assert_true(n_near * 20 < n_compared && n_from_best > 20 && n_by_floor > 5);
}

/* A sample vocabulary: bytes, and a merge that holds a newline. */
static void test_dry_breakers_are_found_in_the_text(void **state)
{
    (void)state;
    static const char *const merges[] = {".", "\n", "a", "b", NULL};
    static const char *const texts[] = {"\n", "xyz"};
    const vocab_make how = {.merges = merges};
    ae_buf file = {0};
    ae_vocab *vocab;
    vocab_make_bpe(&file, &how);
    assert_int_equal(vocab_make_load(&vocab, &file, NULL), AERIE_OK);
    ae_buf_free(&file);
    const uint32_t n_vocab = (uint32_t)ae_vocab_n_tokens(vocab);
    ae_sampling p = off();
    p.dry_multiplier = 1, p.dry_allowed_length = 2, p.dry_breakers = texts, p.n_dry_breakers = 2;
    ae_sampler *s;
    assert_int_equal(ae_sampler_create(&s, &p, vocab, n_vocab, 64, NULL), AERIE_OK);
    float *logits = calloc(n_vocab, sizeof *logits);
    /* a text, and the penalty of its next letter 'q': base^(length - 2), where the length stops at a breaker */
    const struct {
        const char *text;
        double penalty;
    } cases[] = {{"abcq.abc", 1.75}, {"abcq.a\nbc", 1}, {"a\nbcq.a\nbc", 1}, {"abcq.abc\n", 0}, {"abxyzcdq.xyzcd", 1},
                 {"abxyzcdq.xyzabxyzcd", 1},
                 {"cxycdq.cxycd", 1.75 * 1.75 * 1.75}, {"xyzc\n.xyzc\n", 0}, {"abc\n.abc", 0}, {"q", 0}, {"", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ae_tokens tokens = {0};
        uint32_t n;
        double t, got = 0;
        for (const char *c = cases[i].text; *c; c++) { /* a token a byte */
            ae_tokens one = {0};
            assert_int_equal(ae_vocab_encode(vocab, c, 1, (ae_encode_options){0}, &one, NULL), AERIE_OK);
            assert_int_equal(one.n, 1);
            assert_true(ae_tokens_add(&tokens, one.data[0]));
            ae_tokens_free(&one);
        }
        const ae_candidate *list = ae_sampler_candidates(s, logits, tokens.data, tokens.n, &n, &t);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t length;
            const char *piece = ae_vocab_piece_view(vocab, list[k].id, true, &length);
            if (length == 1 && *piece == 'q') got = -(double)list[k].logit;
            if (memchr(piece, '\n', length)) assert_true(list[k].logit == 0); /* a breaker is never weakened */
        }
        if (fabs(got - cases[i].penalty) > 1e-6) fail_msg("'%s': %g, by definition %g", cases[i].text, got, cases[i].penalty);
        ae_tokens_free(&tokens);
    }
    free(logits);
    ae_sampler_free(s);
    ae_vocab_free(vocab);
}

/* Compares mu with the sampler's; draws that are not emitted change nothing. */
static void test_mirostat_moves_with_emitted_tokens_only(void **state)
{
    (void)state;
    static float logits[N], other[N];
    static plain c;
    static double prob[N];
    int32_t tokens[200];
    uint64_t random = 5;
    ae_sampling p = off();
    p.mirostat = 2, p.mirostat_tau = 3, p.mirostat_eta = 0.3f, p.temperature = 0.9f;
    p.top_k = 1, p.repeat_penalty = 2, p.penalty_last_n = -1; /* has no effect */
    ae_sampler *s;
    assert_int_equal(ae_sampler_create(&s, &p, NULL, N, 200, NULL), AERIE_OK);
    double mu = 6, sum = 0;
    uint32_t n_checked = 0;
    for (size_t i = 0; i < 200; i++) {
        make_logits(&random, logits);
        make_logits(&random, other);
        (void)ae_sampler_draw(s, other, tokens, i); /* another node at this position, not taken */
        ae_sampler_accept(s, -2, i);
        memset(&c, 0, sizeof c);
        for (int k = 0; k < N; k++) c.in[k] = logits[k] > -INFINITY, c.x[k] = (double)logits[k] / (double)p.temperature;
        softmax(&c, prob);
        bool near = false;
        for (int k = 0; k < N; k++) {
            if (!c.in[k]) continue;
            near |= fabs(-log2(prob[k]) - mu) < 1e-4;
            c.in[k] = -log2(prob[k]) <= mu;
        }
        const int32_t expected = draw_from(&c, p.seed, i), id = ae_sampler_draw(s, logits, tokens, i);
        assert_int_equal(id, ae_sampler_draw(s, logits, tokens, i));
        if (!near && gumbel_argmax_gap > 1e-4 && count_of(&c)) assert_int_equal(id, expected), n_checked++;
        softmax(&c, prob);
        const double surprise = c.in[id] ? -log2(prob[id]) : 0;
        ae_sampler_accept(s, id, i);
        ae_sampler_accept(s, id, i); /* once is enough */
        tokens[i] = id;
        mu -= (double)p.mirostat_eta * (surprise - 3);
        sum += surprise;
    }
    assert_true(n_checked > 150);
    assert_true(fabs(sum / 200 - 3) < 0.3); /* the purpose of mirostat */
    ae_sampler_free(s);
}

/* ---- Hostile rows --------------------------------------------------------------------------------------- */

static void fill(float *logits, float x)
{
    for (int i = 0; i < N; i++) logits[i] = x;
}

static void test_rows_without_sense(void **state)
{
    (void)state;
    static float logits[N];
    const int32_t tokens[4] = {1, 2, 1, 2};
    uint64_t random = 3;
    for (int round = 0; round < 60; round++) {
        ae_sampling p = off();
        for (int i = 0; i < 9; i++) p.samplers[i] = (aerie_sampler)(1 + mk_random(&random) % 9);
        p.samplers[9] = AERIE_SAMPLER_END;
        p.temperature = round % 3 ? 0.8f : 0;
        p.top_k = 20, p.top_p = 0.9f, p.typical_p = 0.9f, p.min_p = 0.05f, p.top_n_sigma = 1, p.xtc_probability = 1,
        p.xtc_threshold = 0.1f;
        p.dry_multiplier = 1, p.repeat_penalty = 1.5f, p.penalty_last_n = -1, p.dynatemp_range = round % 4 ? 0 : 0.5f;
        p.mirostat = round % 10 ? 0 : 2;
        ae_sampler *s;
        assert_int_equal(ae_sampler_create(&s, &p, NULL, N, 16, NULL), AERIE_OK);
        fill(logits, -INFINITY);
        assert_int_equal(ae_sampler_draw(s, logits, tokens, 4), 0);
        fill(logits, NAN);
        assert_int_equal(ae_sampler_draw(s, logits, tokens, 4), 0);
        logits[17] = -3; /* one candidate among nothing */
        assert_int_equal(ae_sampler_draw(s, logits, tokens, 4), 17);
        fill(logits, -INFINITY);
        logits[599] = -1e30f;
        assert_int_equal(ae_sampler_draw(s, logits, tokens, 4), 599);
        fill(logits, 0);
        logits[0] = NAN, logits[5] = INFINITY;
        int32_t id = ae_sampler_draw(s, logits, tokens, 4);
        if (p.temperature <= 0 && !p.dynatemp_range) assert_int_equal(id, 5);
        fill(logits, INFINITY);
        id = ae_sampler_draw(s, logits, tokens, 4);
        assert_in_range(id, 0, N - 1);
        for (int i = 0; i < N; i++) {
            static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0, 1e-45f, 5};
            logits[i] = odd[mk_random(&random) % 8];
        }
        id = ae_sampler_draw(s, logits, tokens, 4);
        assert_in_range(id, 0, N - 1);
        assert_false(isnan(logits[id]) || logits[id] == -INFINITY);
        assert_int_equal(ae_sampler_draw(s, logits, tokens, 4), id);
        ae_sampler_free(s);
    }
    ae_sampler *s; /* a vocabulary of one */
    ae_sampling p = ae_sampling_default();
    p.mirostat = 2;
    assert_int_equal(ae_sampler_create(&s, &p, NULL, 1, 16, NULL), AERIE_OK);
    assert_int_equal(ae_sampler_draw(s, logits, tokens, 4), 0);
    ae_sampler_free(s);
}

static void refused(const ae_sampling *p, const char *name)
{
    aerie_error error = {0};
    assert_int_equal(ae_sampling_check(p, N, &error), AERIE_ERROR_ARGUMENT);
    if (!strstr(error.text, name)) fail_msg("no '%s' in: %s", name, error.text);
}

static void test_refuses_nonsense(void **state)
{
    (void)state;
    static const aerie_logit_bias far = {N, 1}, nan_bias = {1, NAN};
    static const char *const empty[] = {"a", ""};
    ae_sampling p = ae_sampling_default();
    p.typical_p = -1, refused(&p, "typical-p");
    p = off(), p.xtc_threshold = NAN, refused(&p, "xtc-threshold");
    p = off(), p.dry_base = 0.5f, refused(&p, "dry-base");
    p = off(), p.dry_allowed_length = -1, refused(&p, "dry-allowed-length");
    p = off(), p.dry_penalty_last_n = -2, refused(&p, "dry-penalty-last-n");
    p = off(), p.mirostat = 1, refused(&p, "mirostat");
    p = off(), p.samplers[0] = (aerie_sampler)77, refused(&p, "77");
    p = off(), p.logit_bias = &far, p.n_logit_bias = 1, refused(&p, "600");
    p = off(), p.logit_bias = &nan_bias, p.n_logit_bias = 1, refused(&p, "not a number");
    p = off(), p.dry_breakers = empty, p.n_dry_breakers = 2, refused(&p, "dry-sequence-breaker 2");
}

static void test_names(void **state)
{
    (void)state;
    aerie_sampler sampler;
    for (int i = 1; aerie_sampler_name((aerie_sampler)i); i++) {
        assert_true(aerie_sampler_parse(aerie_sampler_name((aerie_sampler)i), &sampler) && (int)sampler == i);
        assert_non_null(strchr("edskypmxt", aerie_sampler_letter((aerie_sampler)i)));
    }
    assert_true(aerie_sampler_parse("nucleus", &sampler) && sampler == AERIE_SAMPLER_TOP_P);
    assert_false(aerie_sampler_parse("infill", &sampler));
    assert_null(aerie_sampler_name(AERIE_SAMPLER_END));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_step_is_its_definition),
        cmocka_unit_test(test_random_chains_are_their_definition),
        cmocka_unit_test(test_dry_breakers_are_found_in_the_text),
        cmocka_unit_test(test_mirostat_moves_with_emitted_tokens_only),
        cmocka_unit_test(test_rows_without_sense),
        cmocka_unit_test(test_refuses_nonsense),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_noise_by_parts),
        cmocka_unit_test(test_noise_is_of_plain_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
