/* test_fmath.c - our exp, log and pow against libm's in long double: how far they are off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/math/fmath.h"
#include "mkmodel.h"

static double between(uint64_t *random, double lo, double hi)
{
    return lo + (hi - lo) * (double)(mk_random(random) >> 11) * 0x1p-53;
}

static void test_exp(void **state)
{
    uint64_t random = 1;
    (void)state;
    for (int i = 0; i < 100000; i++) {
        const double x = i & 1 ? between(&random, -700, 700) : between(&random, -1, 1);
        const long double want = expl((long double)x);
        assert_true(fabsl((long double)ae_exp(x) - want) < 1e-15L * want);
    }
    assert_true(ae_exp(0) == 1);
    assert_true(ae_exp(1e300) == ae_exp(700) && ae_exp(-INFINITY) == ae_exp(-700) && ae_exp(NAN) == ae_exp(-700));
}

static void test_log(void **state)
{
    uint64_t random = 2;
    (void)state;
    for (int i = 0; i < 100000; i++) {
        const double x = ldexp(between(&random, 1, 2), i & 1 ? (int)(mk_random(&random) % 2000) - 1000 : 0);
        const long double want = logl((long double)x), size = fabsl(want) > 1 ? fabsl(want) : 1;
        assert_true(fabsl((long double)ae_log(x) - want) < 1e-15L * size);
    }
    /* near 1 the noise of the draw needs all digits */
    for (int i = 1; i < 53; i++) {
        const double x = 1 - ldexp(1, -i);
        const long double want = logl((long double)x);
        assert_true(fabsl((long double)ae_log(x) - want) < -1e-15L * want);
    }
    assert_true(ae_log(1) == 0);
}

static void test_pow(void **state)
{
    uint64_t random = 3;
    (void)state;
    for (int i = 0; i < 100000; i++) {
        const double x = i & 1 ? between(&random, 1, 1e6) : between(&random, 1e-3, 2), y = between(&random, -2, 2);
        const long double want = powl((long double)x, (long double)y), size = 1 + fabsl((long double)y * logl((long double)x));
        assert_true(fabsl((long double)ae_pow(x, y) - want) < 1e-15L * size * want);
    }
    assert_true(ae_pow(10000, 0) == 1 && ae_pow(10000, -0.0) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exp), cmocka_unit_test(test_log), cmocka_unit_test(test_pow)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
