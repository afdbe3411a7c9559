/* Weights of many logits and sorted lists against their definitions, one element at a time. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

#include "base/rng.h"
#include "sample/sampler_int.h"

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

static double defined_total(const float *logits, uint32_t n, float top, double t)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const float x = ae_clean(logits[i]);
        if (x != -INFINITY) sum += (double)ae_weight(x, top, t);
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
                const double got = ae_total_weight(logits, counts[c], top, temperatures[k]);
                const double want = defined_total(logits, counts[c], top, temperatures[k]);
                logits[0] = first;
                assert_memory_equal(&got, &want, sizeof got);
            }
}

static void make_list(ae_sampler *s, uint32_t n, bool ascending)
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
            ae_sampler s = {.list = list, .spare = spare, .t = 1.0};
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
    ae_sampler s = {.list = list, .spare = spare, .t = 20.0};
    double sum = 0, total = 0;
    (void)state;
    make_list(&s, N, true);
    ae_sort_list(&s);
    const float top = s.list[0].logit;
    for (uint32_t i = 0; i < N; i++) {
        sum += (double)ae_weight(s.list[i].logit, top, s.t);
        if (i % 97 == 0) assert_int_equal(ae_list_reaching(&s, top, sum, 1, &total), i + 1);
        if (i % 97 == 0) assert_int_equal(ae_list_reaching(&s, top, sum, i + 3, &total), i + 3 <= N ? i + 3 : N + 1);
    }
    assert_int_equal(ae_list_reaching(&s, top, sum * 2, 1, &total), N + 1);
    assert_memory_equal(&total, &sum, sizeof sum);
    total = ae_list_total(&s, top);
    assert_memory_equal(&total, &sum, sizeof sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_total_is_that_of_single_weights),
        cmocka_unit_test(test_lists_are_sorted_by_logit_then_id),
        cmocka_unit_test(test_a_list_reaches_as_its_weights_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
