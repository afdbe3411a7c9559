/* test_head_find.c - aerie_drafter_head_find: which file beside a model counts as its drafter head, by its name; and the name
 * in the head that is kept in models/. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie.h"
#include "aerie_extra.h"
#include "formats/gguf.h"

static void beside(const char *folder, const char *model, const char *head)
{
    char path[256], expected[256] = "";
    char *found = (char *)1;
    aerie_error error = {0};
    snprintf(path, sizeof path, "%s%s", folder, model);
    if (head) snprintf(expected, sizeof expected, "%s%s", folder, head);
    assert_int_equal(aerie_drafter_head_find(&found, path, AERIE_SPEC_AUTO, &error), AERIE_OK);
    if (!head && found) fail_msg("'%s': there is no head, but '%s' was found", model, found);
    if (head && !found) fail_msg("'%s': '%s' was not found", model, head);
    if (head) assert_string_equal(found, expected);
    aerie_free(found);
}

static void touch(const char *folder, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fclose(file);
}

static void test_beside(void **state)
{
    (void)state;
    static const char *const heads[] = {"a-eagle3.gguf", "b-q4_0-eagle3.gguf", "b-eagle3.gguf", "-eagle3.gguf",
                                        "d-eagle3.gguf", "d-dflash.gguf", "e-dflash.gguf", "e-dspark.gguf"};
    char folder[64] = "/tmp/aerie_beside_XXXXXX", path[128];
    aerie_error error = {0};
    char *found;
    assert_non_null(mkdtemp(folder));
    strcat(folder, "/");
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) touch(folder, heads[i]);
    beside(folder, "a.gguf", "a-eagle3.gguf");
    beside(folder, "a-q4_1.gguf", "a-eagle3.gguf");
    beside(folder, "a.Q4_K_M.gguf", "a-eagle3.gguf");
    beside(folder, "a-00001-of-00003.gguf", "a-eagle3.gguf");
    beside(folder, "a-q8_0-00001-of-00003.gguf", "a-eagle3.gguf");
    beside(folder, "b-q4_0.gguf", "b-q4_0-eagle3.gguf"); /* the closer name counts */
    beside(folder, "b-q8_0.gguf", "b-eagle3.gguf");
    beside(folder, "c-q4_1.gguf", NULL);
    beside(folder, "d.gguf", "d-dflash.gguf");
    beside(folder, "e-q8_0.gguf", "e-dspark.gguf");
    beside(folder, "a-instruct-q4_1.gguf", NULL); /* only one part of the name may be missing */
    beside(folder, "a.bin", NULL);
    beside(folder, "-q4_1.gguf", NULL);
    beside(folder, ".gguf", NULL);
    beside(folder, "", NULL);
    beside("", "", NULL);
    beside("", ".gguf", NULL);
    beside("", "-00001-of-00003.gguf", NULL);
    assert_int_equal(aerie_drafter_head_find(&found, NULL, AERIE_SPEC_AUTO, &error), AERIE_ERROR_ARGUMENT);
    assert_null(found);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        snprintf(path, sizeof path, "%s%s", folder, heads[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void test_the_shipped_head_has_a_name(void **state)
{
    (void)state;
    static const char expected[] = "SmolLM2-135M-Instruct-EAGLE-3.1";
    const ae_gguf_options options = {.index_only = true};
    aerie_error error = {0};
    ae_gguf_string name = {0};
    ae_gguf *gguf;
    if (ae_gguf_open(&gguf, "models/smollm2-135m-instruct-eagle3.gguf", &options, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    assert_int_equal(ae_gguf_get_string(gguf, "general.name", true, &name, &error), AERIE_OK);
    if (name.n != strlen(expected) || memcmp(name.data, expected, name.n) != 0)
        fail_msg("it is called '%.*s'", (int)name.n, name.data);
    ae_gguf_close(gguf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_beside), cmocka_unit_test(test_the_shipped_head_has_a_name)};
    return cmocka_run_group_tests_name("the head beside a model", tests, NULL, NULL);
}
