/* test_cpu_level.c - kernel levels by name: one that is unknown, and one that this machine lacks, are wrong arguments. Matrix
 * tiles are denied (the build replaces the system's answer by __wrap_ae_os_ask_for_tiles). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "device/device.h"

bool __wrap_ae_os_ask_for_tiles(void);
bool __wrap_ae_os_ask_for_tiles(void)
{
    return false;
}

static void test_levels(void **state)
{
    (void)state;
    ae_backend *backend;
    aerie_error error = {0};
    assert_int_equal(ae_backend_open(&backend, NULL, "sse9", &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "\"sse9\" is unknown"));
#if defined(__x86_64__)
    assert_int_equal(ae_backend_open(&backend, NULL, "amx", &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "lacks the level \"amx\""));
#endif
    assert_int_equal(ae_backend_open(&backend, NULL, "ref", &error), AERIE_OK);
    ae_backend_close(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
