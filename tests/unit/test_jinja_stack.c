/* test_jinja_stack.c - the deepest templates that are allowed, and deeper ones, in a thread with 256 KiB of stack. They are
 * rendered or refused; the stack suffices for both. Below it lies a page that may not be touched. */
#define _XOPEN_SOURCE 700
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aerie.h"
#include "base/mem.h"

/* Sanitizers and compilers that do not optimise make larger frames; there only the verdicts are tested. */
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define STACK ((size_t)256 << 10)
#else
#define STACK ((size_t)8 << 20)
#endif

typedef struct job {
    const char *text;
    size_t n;
    aerie_status status;
    aerie_error error;
} job;

static void *render(void *context)
{
    job *j = context;
    const aerie_chat chat = {.size = sizeof(aerie_chat), .template_text = {j->text, j->n, "t"}, .messages = {"[]", 2, "m"}};
    char *text = NULL;
    size_t n = 0;
    j->status = aerie_model_chat_render(NULL, &chat, &text, &n, &j->error);
    aerie_free(text);
    return NULL;
}

static job in_a_thread(const char *text, size_t n)
{
    job j = {.text = text, .n = n};
    pthread_attr_t attributes;
    pthread_t thread;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, STACK), 0); /* glibc adds a guard page below */
    assert_int_equal(pthread_create(&thread, &attributes, render, &j), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_attr_destroy(&attributes), 0);
    return j;
}

/* Without an end: LIMIT. */
static void test_recursion(void **state)
{
    (void)state;
    static const char *const templates[] = {
        "{% macro m(n) %}{{ m(n+1) }}{% endmacro %}{{ m(0) }}",
        "{% macro m(n) %}{% if 1 %}{{ m(n+1) }}{% endif %}{% endmacro %}{{ m(0) }}",
        "{% macro m(n) %}{% for x in [1] %}{{ m(n+1) }}{% endfor %}{% endmacro %}{{ m(0) }}",
        "{% macro m(n) %}{{ [m(n+1)]|join }}{% endmacro %}{{ m(0) }}",
        "{% macro m(n) %}{% set x %}{{ m(n+1) }}{% endset %}{% endmacro %}{{ m(0) }}",
        "{% macro m(n) %}{% filter upper %}{{ m(n+1) }}{% endfilter %}{% endmacro %}{{ m(0) }}",
        "{% macro m(n) %}{% call m(n+1) %}{{ caller() }}{% endcall %}{% endmacro %}{% call m(0) %}y{% endcall %}",
        "{% macro m(n) %}{{ 'x'.replace('x', m(n+1)) }}{% endmacro %}{{ m(0) }}",
        "{% macro m(n) %}{{ 'x'|replace('x', m(n+1)) }}{% endmacro %}{{ m(0) }}",
        "{% macro m(n) %}{{ {'a': m(n+1)} }}{% endmacro %}{{ m(0) }}",
        "{% macro m(n) %}{{ '%s' % m(n+1) }}{% endmacro %}{{ m(0) }}",
        "{% macro m(n) %}{{ '{}'.format(m(n+1)) }}{% endmacro %}{{ m(0) }}",
        "{% macro m(n) %}{{ range(m(n+1)) }}{% endmacro %}{{ m(0) }}",
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
        "{% for x in [[1]] recursive %}{% if 1 %}{{ [loop([[1]])] }}{% endif %}{% endfor %}",
        "{% set n = namespace(x=[]) %}{% for i in range(50000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=[]) %}{% for i in range(50000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x|tojson }}",
        ("{% set n = namespace(x=[], y=[]) %}{% for i in range(9000) %}{% set n.x = [n.x] %}{% set n.y = [n.y] %}{% endfor %}"
         "{{ n.x == n.y }}"),
    };
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        const job j = in_a_thread(templates[i], strlen(templates[i]));
        if (j.status != AERIE_ERROR_LIMIT || !strstr(j.error.text, "levels deep"))
            fail_msg("%s: status %d: %s", templates[i], (int)j.status, j.error.text);
    }
}

/* A template of begin, n times `again`, middle, n times `close`, end: from some n on it gives LIMIT, and never a crash. */
static void test_nesting(void **state)
{
    (void)state;
    static const char *const parts[][5] = {
        {"{{ ", "(", "1", ")", " }}"},          {"{{ ", "[", "1", "]", " }}"},
        {"{{ ", "{1:", "1", "}", " }}"},        {"{{ ", "not ", "1", "", " }}"},
        {"{{ ", "-", "1", "", " }}"},           {"{{ ", "1 if 0 else ", "1", "", " }}"},
        {"{{ ", "1 if (", "1", ") else 2", " }}"}, {"{{ ", "1+", "1", "", " }}"},
        {"{{ ", "1 and ", "1", "", " }}"},      {"{{ ''", "|list", "", "", " }}"},
        {"{{ ''", ".strip()", "", "", " }}"},   {"{{ ''", ".replace('a', 'b')", "", "", " }}"},
        {"", "{% if 1 %}", "x", "{% endif %}", ""}, {"", "{% for x in [1] %}", "x", "{% endfor %}", ""},
    };
    static const int counts[] = {50, 140, 149, 390, 399, 780, 799, 3000};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bool refused = false;
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            ae_buf text = {0};
            ae_buf_addf(&text, "%s", parts[i][0]);
            for (int n = 0; n < counts[k]; n++) ae_buf_addf(&text, "%s", parts[i][1]);
            ae_buf_addf(&text, "%s", parts[i][2]);
            for (int n = 0; n < counts[k]; n++) ae_buf_addf(&text, "%s", parts[i][3]);
            ae_buf_addf(&text, "%s", parts[i][4]);
            const job j = in_a_thread(text.data, text.n);
            ae_buf_free(&text);
            if (j.status != AERIE_OK && j.status != AERIE_ERROR_LIMIT)
                fail_msg("%s: status %d: %s", parts[i][1], (int)j.status, j.error.text);
            if (refused) assert_int_equal(j.status, AERIE_ERROR_LIMIT);
            refused = j.status == AERIE_ERROR_LIMIT;
            if (counts[k] == 50) assert_false(refused); /* deeper than any real template */
        }
        assert_true(refused);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recursion), cmocka_unit_test(test_nesting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
