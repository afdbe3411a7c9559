/* test_session_params.c - ranges of aerie_session_params and aerie_spec: every field out of range is refused with a sentence
 * that names it, by the session and by the memory plan, before it is used. */
#define _XOPEN_SOURCE 700 /* mkstemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie.h"
#include "aerie_extra.h"
#include "session/test_drafters.h"
#include "mkmodel.h"

static char path[] = "/tmp/aerie_session_params_XXXXXX";
static aerie_model *model;

static void refused(const aerie_session_params *params, const char *text)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_memory_plan plan;
    assert_int_equal(aerie_session_create(&session, model, params, &error), AERIE_ERROR_ARGUMENT);
    assert_null(session);
    if (!strstr(error.text, text)) fail_msg("'%s' does not name '%s'", error.text, text);
    error.text[0] = '\0';
    assert_int_equal(aerie_memory_plan_get(path, NULL, params, &plan, sizeof plan, &error), AERIE_ERROR_ARGUMENT);
    if (!strstr(error.text, text)) fail_msg("'%s' does not name '%s'", error.text, text);
}

#define REFUSED(text, ...)                                                \
    do {                                                                  \
        aerie_session_params p = aerie_session_params_default();          \
        p.n_ctx = 64, p.n_threads = 1;                                    \
        __VA_ARGS__;                                                      \
        refused(&p, text);                                                \
    } while (0)

static void test_every_field(void **state)
{
    (void)state;
    REFUSED("the context size is 7", p.n_ctx = 7);
    REFUSED("the number of sequences is 0", p.n_seqs = 0);
    REFUSED("the number of sequences is 4294967295", p.n_seqs = UINT32_MAX);
    REFUSED("the batch size is 0", p.n_batch = 0);
    REFUSED("the number of threads is 4294967295", p.n_threads = UINT32_MAX);
    REFUSED("KV cache type -1", p.kv_type = (aerie_kv_type)-1);
    REFUSED("9 taps", p.n_taps = 9);
    REFUSED("tap 0 is before layer 99", p.n_taps = 1, p.taps[0] = 99);
    REFUSED("speculation type 99", p.spec.type = (aerie_spec_type)99);
    REFUSED("speculation type -1", p.spec.type = (aerie_spec_type)-1);
    REFUSED("tree shape 4", p.spec.tree = (aerie_tree)4);
    REFUSED("tree shape -1", p.spec.tree = (aerie_tree)-1);
    REFUSED("the draft length is 0", p.spec.n_max = 0);
    REFUSED("the draft length is 65", p.spec.n_max = 65);
    REFUSED("the shortest draft is 65", p.spec.n_min = 65);
    REFUSED("the size of a draft tree is 65", p.spec.n_nodes = 65);
    REFUSED("children of a tree's node is 65", p.spec.top_k = 65);
    REFUSED("window is 4294967295", p.spec.window = UINT32_MAX);
    REFUSED("window is 2147483647", p.spec.window = INT32_MAX, p.spec.n_sinks = INT32_MAX);
    REFUSED("sinks is 4294967232", p.spec.window = 64, p.spec.n_sinks = UINT32_MAX - 63);
    REFUSED("the least probability of a draft is nan", p.spec.p_min = fabsf(NAN));
    REFUSED("the least probability of a draft is -0.5", p.spec.p_min = -0.5f);
    REFUSED("the least probability of a draft is inf", p.spec.p_min = INFINITY);
    REFUSED("speculation type 1000", p.spec.type = AE_SPEC_ORACLE); /* tests' drafters are not public */
    REFUSED("speculation type 1001", p.spec.type = AE_SPEC_RANDOM);
    REFUSED("needs a draft model", p.spec.type = AERIE_SPEC_DRAFT);
    REFUSED("needs a drafter head", p.spec.type = AERIE_SPEC_EAGLE3);
    REFUSED("needs a drafter head", p.spec.type = AERIE_SPEC_MEDUSA);
}

/* Parameters for tests (test_drafters.h) are checked, too. */
static void test_drafters_of_tests(void **state)
{
    (void)state;
    aerie_session_params p = aerie_session_params_default();
    aerie_spec_type type;
    p.n_ctx = 64, p.n_threads = 1;
    for (size_t i = 0; ae_session_test_spec_at(i); i++) {
        assert_true(ae_session_test_spec_parse(ae_session_test_spec_at(i), &type));
        assert_string_equal(ae_session_test_spec_name(type), ae_session_test_spec_at(i));
        assert_int_equal(aerie_spec_type_name(type) != NULL, aerie_spec_type_parse(ae_session_test_spec_at(i), &type));
    }
    assert_false(ae_session_test_spec_parse("oracles", &type));
    static const float rates[] = {1.5f, -0.25f, NAN, INFINITY};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        aerie_error error = {0};
        aerie_session *session;
        p.spec.type = AE_SPEC_ORACLE;
        assert_int_equal(ae_session_create_for_test(&session, model, &p, &(ae_session_test){.oracle_error = rates[i]}, &error),
                         AERIE_ERROR_ARGUMENT);
        assert_null(session);
        assert_non_null(strstr(error.text, "the oracle's error rate is"));
    }
    aerie_session *session;
    p.spec.type = AE_SPEC_RANDOM;
    assert_int_equal(ae_session_create_for_test(&session, model, &p, NULL, NULL), AERIE_OK);
    assert_string_equal(aerie_session_spec_name(session), "random");
    aerie_session_free(session);
}

static int setup(void **state)
{
    mk_options options;
    aerie_error error = {0};
    (void)state;
    if (close(mkstemp(path)) || !mk_shape("tiny", &options) || mk_model(&options, path, &error) != AERIE_OK) return -1;
    return aerie_model_load(&model, path, NULL, &error) == AERIE_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    aerie_model_free(model);
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_field), cmocka_unit_test(test_drafters_of_tests)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
