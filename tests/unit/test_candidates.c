/* Weights of many logits and sorted lists against their definitions, one element at a time. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

#include "base/math/rng.h"
#include "draw/draw_int.h"
#include "sample/sampler.h"

#define N 5000

static float pick(uint32_t i, uint32_t kinds)
{
    uint32_t bits[4];
    ae_philox(7, 1, i, bits);
    switch (bits[0] % kinds) {
    case 0: return (float)(bits[1] % 64) - 32.0f; /* many equals */
    case 1: return ((float)ae_uniform_open(bits[1]) - 0.5f) * 60.0f;
    case 2: return ((float)ae_uniform_open(bits[1]) - 0.5f) * 1e-3f;
    case 3: return bits[1] % 2 ? 0.0f : -0.0f;
    case 4: return -INFINITY;
    case 5: return NAN;
    default: return bits[1] % 2 ? -3e38f : 1e-40f;
    }
}

static uint64_t defined_total(const float *logits, uint32_t n, float top, double t)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const float x = ae_clean(logits[i]);
        if (x != -INFINITY) sum += (uint64_t)((double)ae_weight(x, top, t) * 0x1p40);
    }
    return sum;
}

static void test_the_total_is_that_of_single_weights(void **state)
{
    static const uint32_t counts[] = {0, 1, 7, 255, 256, 257, 1000, N};
    static const double temperatures[] = {1.0, 0.3, 2.5, 1e-20};
    static float logits[N];
    (void)state;
    for (uint32_t i = 0; i < N; i++) logits[i] = pick(i, 7);
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (size_t k = 0; k < sizeof temperatures / sizeof temperatures[0]; k++)
            for (int huge = 0; huge < 2; huge++) {
                const float first = logits[0], top = huge ? FLT_MAX : 32.0f;
                if (huge) logits[0] = INFINITY;
                const uint64_t got = ae_total_weight(logits, counts[c], top, temperatures[k]);
                const uint64_t want = defined_total(logits, counts[c], top, temperatures[k]);
                logits[0] = first;
                assert_true(got == want);
            }
}

static void make_list(ae_draw_room *s, uint32_t n, bool ascending)
{
    s->n = 0;
    s->sorted = false;
    for (uint32_t i = 0; i < n; i++) {
        const float x = ae_clean(pick(i, 4));
        s->list[s->n++] = (ae_candidate){(int32_t)(ascending ? i : n - 1 - i), x};
    }
}

static void test_lists_are_sorted_by_logit_then_id(void **state)
{
    static const uint32_t counts[] = {0, 1, 2, 1023, 1024, 1025, N};
    static ae_candidate list[N], spare[N];
    (void)state;
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (int ascending = 0; ascending < 2; ascending++) {
            ae_draw_room s = {.list = list, .spare = spare, .t = 1.0};
            bool seen[N] = {false};
            make_list(&s, counts[c], ascending);
            ae_sort_list(&s);
            assert_true(s.sorted && s.n == counts[c]);
            for (uint32_t i = 0; i < s.n; i++) {
                const uint32_t id = (uint32_t)s.list[i].id, at = ascending ? id : s.n - 1 - id;
                const float logit = ae_clean(pick(at, 4));
                assert_memory_equal(&s.list[i].logit, &logit, sizeof logit);
                assert_true(!seen[id] && (!i || ae_before(s.list[i - 1], s.list[i])));
                seen[id] = true;
            }
        }
}

static void test_a_list_reaches_as_its_weights_add_up(void **state)
{
    static ae_candidate list[N], spare[N];
    ae_draw_room s = {.list = list, .spare = spare, .t = 20.0};
    uint64_t sum = 0, total = 0;
    (void)state;
    make_list(&s, N, true);
    ae_sort_list(&s);
    const float top = s.list[0].logit;
    for (uint32_t i = 0; i < N; i++) {
        sum += ae_weight_units(ae_weight(s.list[i].logit, top, s.t));
        if (i % 97 == 0) assert_int_equal(ae_list_reaching(&s, top, sum, 1, &total), i + 1);
        if (i % 97 == 0) assert_int_equal(ae_list_reaching(&s, top, sum, i + 3, &total), i + 3 <= N ? i + 3 : N + 1);
    }
    assert_int_equal(ae_list_reaching(&s, top, sum * 2, 1, &total), N + 1);
    assert_true(total == sum);
    assert_true(ae_list_total(&s, top) == sum);
}

typedef struct sums {
    uint64_t total;
    double entropy;
    uint32_t n_within, n_typical, n_xtc;
    double dynamic;
} sums;

static sums sums_of(ae_draw_room *s, const ae_candidate *list, uint32_t n)
{
    sums r = {.total = 0};
#define AGAIN() (memcpy(s->list, list, n * sizeof *list), s->n = n, s->sorted = false, s->t = 1.3)
    AGAIN(), r.entropy = ae_list_entropy(s, ae_list_top(s), &r.total);
    AGAIN(), ae_step_top_n_sigma(s), r.n_within = s->n;
    AGAIN(), ae_step_typical(s), r.n_typical = s->n;
    AGAIN(), ae_step_xtc(s, 5), r.n_xtc = s->n;
    AGAIN(), ae_step_temperature(s), r.dynamic = s->t;
#undef AGAIN
    return r;
}

/* No sum depends on the order of candidates. */
static void test_sums_do_not_depend_on_order(void **state)
{
    static ae_candidate list[N], shuffled[N];
    static ae_typical typical_of[N];
    (void)state;
    for (int round = 0; round < 20; round++) {
        ae_draw_room s = {.list = list, .typical = typical_of};
        ae_draw draw = {.params = ae_sampling_default()};
        s.draw = &draw;
        draw.params.top_n_sigma = 0.5f + (float)round / 10, draw.params.typical_p = 0.8f, draw.params.xtc_probability = 1;
        draw.params.xtc_threshold = 1e-5f, draw.params.dynatemp_range = 0.5f, draw.params.dynatemp_exponent = 0.7f;
        for (int32_t i = 0; i < N; i++) {
            uint32_t bits[4];
            ae_philox(31, (uint64_t)i, (uint64_t)round, bits);
            shuffled[i] = (ae_candidate){i, (float)(3 * ae_gumbel(9, (uint64_t)round, bits[1]))};
        }
        const sums first = sums_of(&s, shuffled, N);
        for (uint32_t i = N - 1; i > 0; i--) {
            uint32_t bits[4];
            ae_philox(32, i, (uint64_t)round, bits);
            const ae_candidate c = shuffled[i];
            shuffled[i] = shuffled[bits[0] % (i + 1)];
            shuffled[bits[0] % (i + 1)] = c;
        }
        const sums again = sums_of(&s, shuffled, N);
        assert_true(first.total == again.total && first.entropy == again.entropy && first.dynamic == again.dynamic);
        assert_true(first.n_within == again.n_within && first.n_typical == again.n_typical && first.n_xtc == again.n_xtc);
        assert_true(first.entropy > 0 && first.n_within < N && first.n_typical < N && first.n_xtc < N);
    }
}

/* Weights of every size, one at a time and many: the float times 2^40, cut. */
static void test_units_are_defined_by_the_product(void **state)
{
    static float logits[N];
    uint64_t want = 0;
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = -(float)i * 100 / N;
        want += (uint64_t)((double)ae_expf(logits[i]) * 0x1p40);
        assert_true(ae_weight_units(ae_expf(logits[i])) == (uint64_t)((double)ae_expf(logits[i]) * 0x1p40));
    }
    assert_true(ae_total_weight(logits, N, 0, 1.0) == want);
}

/* The accuracy of sums of units, against libm in double. */
static void test_the_entropy_is_right(void **state)
{
    static ae_candidate list[N];
    (void)state;
    for (int round = 0; round < 40; round++) {
        ae_draw_room s = {.list = list, .t = 1.0, .n = N};
        double total = 0, entropy = 0;
        const double spread = 0.01 * pow(2, round / 3.0);
        for (int32_t i = 0; i < N; i++)
            list[i] = (ae_candidate){i, (float)(spread * ae_gumbel(10, (uint64_t)round, (uint32_t)i))};
        const float top = ae_list_top(&s);
        for (uint32_t i = 0; i < N; i++) total += exp((double)list[i].logit - (double)top);
        for (uint32_t i = 0; i < N; i++) {
            const double p = exp((double)list[i].logit - (double)top) / total;
            if (p > 0) entropy -= p * log(p);
        }
        uint64_t units;
        const double got = ae_list_entropy(&s, top, &units);
        if (!(fabs(got - entropy) < 2e-6)) fail_msg("spread %g: entropy %.9f, must be %.9f", spread, got, entropy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_total_is_that_of_single_weights),
        cmocka_unit_test(test_lists_are_sorted_by_logit_then_id),
        cmocka_unit_test(test_a_list_reaches_as_its_weights_add_up),
        cmocka_unit_test(test_sums_do_not_depend_on_order),
        cmocka_unit_test(test_units_are_defined_by_the_product),
        cmocka_unit_test(test_the_entropy_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
