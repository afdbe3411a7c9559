/* test_shares.c - the shares of a group's machines by their speed and memory (session/group/shares.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "session/group/shares.h"

#define GIB ((uint64_t)1 << 30)

static void expect(const ae_group_speed *all, uint32_t n, uint64_t bytes, const uint32_t *wanted)
{
    uint32_t shares[8];
    ae_group_shares(all, n, bytes, shares);
    for (uint32_t i = 0; i < n; i++) assert_int_equal(shares[i], wanted[i]);
}

static void test_by_speed(void **state)
{
    (void)state;
    expect((ae_group_speed[]){{100, 0}, {100, 0}}, 2, GIB, (uint32_t[]){8, 8});
    expect((ae_group_speed[]){{100, 0}, {96, 0}, {50, 0}, {1, 0}}, 4, GIB, (uint32_t[]){8, 8, 4, 1});
    expect((ae_group_speed[]){{0, 0}, {0, 0}, {0, 0}}, 3, GIB, (uint32_t[]){8, 8, 8}); /* no machine could measure */
    expect((ae_group_speed[]){{0, 0}, {5, 0}}, 2, GIB, (uint32_t[]){1, 8});
}

static void test_by_memory(void **state)
{
    (void)state;
    /* half of 16 GiB does not fit in 4 GiB, of which an eighth stays free */
    expect((ae_group_speed[]){{100, 64 * GIB}, {100, 4 * GIB}}, 2, 16 * GIB, (uint32_t[]){8, 2});
    expect((ae_group_speed[]){{100, 64 * GIB}, {100, 1}}, 2, 16 * GIB, (uint32_t[]){8, 0});
    expect((ae_group_speed[]){{100, 1}, {100, 1}}, 2, 16 * GIB, (uint32_t[]){1, 1}); /* no machine has room: loading reports
                                                                                      * that */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_speed), cmocka_unit_test(test_by_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
