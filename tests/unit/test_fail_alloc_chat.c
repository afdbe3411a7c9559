/* test_fail_alloc_chat.c - every allocation of rendering a conversation fails in turn, once or from then on.
 *
 * Each time: an error status with a sentence, nothing handed out, no block left behind. Allocations of jansson are excluded:
 * its reader ignores some failures and goes on with a shorter string.
 */
#define _XOPEN_SOURCE 700 /* mkstemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie.h"
#include "base/mem.h"
#include "fail_alloc.h"
#include "vocab_make.h"

static const char tmpl[] =
    "{{ bos_token }}{% macro show(m, n=1) %}{{ m.role|upper }}{{ caller() if caller is defined }}{% endmacro %}"
    "{% set ns = namespace(n=0) %}{% for m in messages if m.content %}{% set ns.n = ns.n + 1 %}{{ show(m) ~ m.content }}"
    "{% for call in m.tool_calls %}{{ call|tojson(indent=1) }}{% endfor %}{% endfor %}"
    "{{ tools|map(attribute='name')|join(', ') }}"
    "{% if enable_thinking is false %}{{ 'a,b'.split(',')|sort|first }}{% endif %}{{ ns.n }}{{ eos_token }}";
static const char messages[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"H\\u00e9 \"}, {\"role\": \"assistant\", "
                               "\"content\": \"x\", \"tool_calls\": "
                               "[{\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, null, true]}}]}], \"chat_template_kwargs\": "
                               "{\"enable_thinking\": false}}";
static const char tools[] = "[{\"name\": \"f\"}, {\"name\": \"g\"}]", variables[] = "{\"x\": {\"y\": []}}";

static int make_model(void **state)
{
    char path[] = "/tmp/aerie_chat_XXXXXX";
    ae_buf file = {0};
    aerie_error error = {0};
    aerie_model_params params = aerie_model_params_default();
    const int fd = mkstemp(path);
    params.vocab_only = true;
    vocab_make_bpe(&file, &(vocab_make){.chat_template = tmpl, .add_bos = true});
    bool ok = fd >= 0 && write(fd, file.data, file.n) == (ssize_t)file.n && close(fd) == 0;
    ok = ok && aerie_model_load((aerie_model **)state, path, &params, &error) == AERIE_OK;
    if (!ok) print_error("%s\n", error.text);
    ae_buf_free(&file);
    unlink(path);
    return !ok;
}

static int free_model(void **state)
{
    aerie_model_free(*state);
    return 0;
}

static aerie_status render(const aerie_model *model, char **text, aerie_error *error)
{
    const aerie_chat chat = {.size = sizeof(aerie_chat), .messages = {messages, sizeof messages - 1, NULL},
                             .tools = {tools, sizeof tools - 1, NULL},
                             .variables = {variables, sizeof variables - 1, NULL}};
    size_t n = 0;
    int32_t *tokens = NULL;
    size_t n_tokens = 0;
    aerie_status status = aerie_model_chat_render(model, &chat, text, &n, error);
    if (status == AERIE_OK) status = aerie_model_chat_tokenize(model, *text, n, &tokens, &n_tokens, error);
    aerie_free(tokens);
    return status;
}

static void sweep(const aerie_model *model, bool forever)
{
    char *whole = NULL;
    aerie_error error = {0};
    assert_int_equal(render(model, &whole, &error), AERIE_OK);
    long n = 1, n_failed = 0;
    for (;; n++) {
        char *text = NULL;
        memset(&error, 0, sizeof error);
        fail_alloc_arm(n, forever);
        const aerie_status status = render(model, &text, &error);
        const bool same = text && strcmp(text, whole) == 0;
        if (status == AERIE_OK && !same) fail_msg("allocation %ld changes the text:\n%s\n%s", n, text, whole);
        aerie_free(text);
        const bool failed = fail_alloc_disarm();
        assert_int_equal(fail_alloc_live(), 0);
        if (status != AERIE_OK) {
            if (status != AERIE_ERROR_MEMORY || !strstr(error.text, "memory"))
                fail_msg("allocation %ld: status %d, %s", n, (int)status, error.text);
            n_failed++;
        }
        if (!failed) break;
    }
    print_message("%ld allocations, %ld of them needed\n", n - 1, n_failed);
    assert_true(n_failed > 10);
    aerie_free(whole);
}

static void test_once(void **state) { sweep(*state, false); }
static void test_for_ever(void **state) { sweep(*state, true); }

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_once), cmocka_unit_test(test_for_ever)};
    return cmocka_run_group_tests(tests, make_model, free_model);
}
