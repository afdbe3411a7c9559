/* test_number.c - numbers as text under a locale whose decimal point is a comma: read and written as under "C", by the
 * functions themselves, by overrides and by chat templates.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp, setenv */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/number.h"
#include "formats/gguf_override.h"
#include "text/template/value.h"

static char folder[] = "/tmp/aerie_number_XXXXXX";

/* Makes the locale for the test if the system has its sources; returns 0 otherwise, too. */
static int set_comma(void **state)
{
    char command[256];
    (void)state;
    if (!mkdtemp(folder)) return 1;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
    const int made = system(command);
    (void)made;
    setenv("LOCPATH", folder, 1);
    setlocale(LC_ALL, "de_DE.UTF-8");
    return 0;
}

static int drop(void **state)
{
    char command[256];
    (void)state;
    setlocale(LC_ALL, "C");
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static bool has_comma(void)
{
    char text[16];
    snprintf(text, sizeof text, "%.1f", 0.5);
    if (!strcmp(text, "0,5")) return true;
    print_message("skip: no locale with a comma can be made here\n");
    return false;
}

static void test_parse(void **state)
{
    static const struct {
        const char *text;
        double value;
        size_t n;
    } cases[] = {{"0.5", 0.5, 3}, {"1e-5x", 1e-5, 4}, {"0,5", 0, 1}, {"-.25", -0.25, 4}, {"12.5.7", 12.5, 4}, {"x", 0, 0}};
    (void)state;
    if (!has_comma()) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *end;
        assert_true(ae_number_parse(cases[i].text, &end) == cases[i].value);
        assert_int_equal(end - cases[i].text, cases[i].n);
    }
    assert_true(strtod("0,5", NULL) == 0.5); /* the caller's locale is unchanged */
}

static void test_is(void **state)
{
    static const char *const good[] = {"0.5", "1e-5", "-3", "+.5", "1e-400"};
    static const char *const bad[] = {"", "0,5", "1.5 ", " 1.5", "0x1p3", "nan", "inf", "1e400", "1.5x"};
    double value;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_true(ae_number_is(good[i], &value));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (ae_number_is(bad[i], &value)) fail_msg("'%s' is not a number", bad[i]);
}

static void test_print(void **state)
{
    char text[64];
    (void)state;
    if (!has_comma()) skip();
    assert_int_equal(ae_number_print(text, sizeof text, "%.9g", 0, 0.5), 3);
    assert_string_equal(text, "0.5");
    assert_int_equal(ae_number_print(text, sizeof text, "%.*f", 3, -2.25), 6);
    assert_string_equal(text, "-2.250");
}

static void test_overrides(void **state)
{
    static const char *const texts[] = {"a.b=float:0.5"}, *const comma[] = {"a.b=float:0,5"};
    ae_gguf_overrides o;
    aerie_error error = {0};
    double value = 0;
    (void)state;
    if (!has_comma()) skip();
    assert_int_equal(ae_gguf_overrides_parse(&o, texts, 1, &error), AERIE_OK);
    assert_true(ae_gguf_kv_float(ae_gguf_overrides_find(&o, "a.b"), 0, &value) && value == 0.5);
    ae_gguf_overrides_free(&o);
    assert_int_equal(ae_gguf_overrides_parse(&o, comma, 1, &error), AERIE_ERROR_ARGUMENT);
}

static void test_values_of_templates(void **state)
{
    char text[AE_DOUBLE_TEXT];
    (void)state;
    if (!has_comma()) skip();
    ae_double_repr(0.1, text);
    assert_string_equal(text, "0.1");
    assert_true(ae_double_parse("2.75xyz", 4) == 2.75);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parse), cmocka_unit_test(test_is), cmocka_unit_test(test_print),
                                       cmocka_unit_test(test_overrides), cmocka_unit_test(test_values_of_templates)};
    return cmocka_run_group_tests(tests, set_comma, drop);
}
