/* test_fail_alloc_head.c - every allocation of loading a drafter head fails in turn, once or from then on: an error with a
 * sentence, nothing handed out, nothing left behind. */
#define _XOPEN_SOURCE 700 /* mkstemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "fail_alloc.h"
#include "mkhead.h"
#include "mkmodel.h"

static void sweep(const char *path)
{
    for (long n = 1;; n++)
        for (int forever = 0; forever < 2; forever++) {
            aerie_error error = {0};
            ae_dhead *head = NULL;
            fail_alloc_arm(n, forever);
            const aerie_status status = ae_dhead_load(&head, path, &error);
            ae_dhead_free(head);
            const bool hit = fail_alloc_disarm();
            if (fail_alloc_live()) fail_msg("allocation %ld: %zu blocks were left behind", n, fail_alloc_live());
            if (!hit && status == AERIE_OK && n > 3) return;
            if (status != AERIE_ERROR_MEMORY || head || error.status != status || !error.text[0])
                fail_msg("allocation %ld: status %d, \"%s\"", n, (int)status, error.text);
        }
}

static void test_failing_allocations(void **state)
{
    (void)state;
    static const char *const kinds[] = {"eagle", "eagle3", "eagle3.1", "medusa", "mtp"};
    char target[] = "/tmp/aerie_fail_XXXXXX", path[] = "/tmp/aerie_fail_XXXXXX";
    const int a = mkstemp(target), b = mkstemp(path);
    mk_options o;
    aerie_error error = {0};
    assert_true(a >= 0 && b >= 0 && mk_shape("tiny", &o));
    close(a), close(b);
    if (mk_model(&o, target, &error) != AERIE_OK) fail_msg("%s", error.text);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const mkhead_options h = {.kind = kinds[i], .seed = 1, .n_draft = 50, .rope_freqs = true};
        if (mkhead_write(&h, target, path, &error) != AERIE_OK) fail_msg("%s", error.text);
        sweep(path);
    }
    unlink(target), unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failing_allocations)};
    return cmocka_run_group_tests_name("failing allocations of heads", tests, NULL, NULL);
}
