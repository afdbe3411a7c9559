/* test_jinja.c - the template language, its limits, and chat rendering.
 *
 * Expectations: jinja_cases.json, made by make_jinja_cases.py with Python's jinja2. An error there must be an error here; the
 * text that a template raises must be reported word for word.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/template/chat.h"
#include "text/template/jinja.h"
#include "text/template/value_json.h"

static const struct tm fixed_now = {.tm_year = 125, .tm_mon = 6, .tm_mday = 4, .tm_hour = 15, .tm_min = 4, .tm_sec = 5,
                                    .tm_wday = 5, .tm_yday = 184};

static aerie_status render(const char *text, size_t n, ae_value root, const ae_template_options *options, ae_buf *out,
                           aerie_error *error)
{
    ae_template *tmpl = NULL;
    aerie_status status = ae_template_parse(&tmpl, text, n, error);
    if (status == AERIE_OK) status = ae_template_render(tmpl, root, options, out, NULL, error);
    ae_template_free(tmpl);
    return status;
}

/* ---- Language --------------------------------------------------------------------------- */

static bool check_case(const json_t *entry, ae_value root)
{
    static const char raised[] = "TemplateError: ";
    const json_t *tmpl = json_object_get(entry, "template"), *text = json_object_get(entry, "text");
    const char *wanted_error = json_string_value(json_object_get(entry, "error"));
    ae_buf out = {0};
    aerie_error error = {0};
    ae_template_options options = ae_template_options_default();
    options.now = &fixed_now;
    aerie_status status = render(json_string_value(tmpl), json_string_length(tmpl), root, &options, &out, &error);
    bool ok;
    if (text) {
        ok = status == AERIE_OK && out.n == json_string_length(text) &&
             memcmp(out.n ? out.data : "", json_string_value(text), out.n) == 0;
    } else if (strncmp(wanted_error, raised, strlen(raised)) == 0) {
        ok = status == AERIE_ERROR_FORMAT && strcmp(error.text, wanted_error + strlen(raised)) == 0;
    } else {
        ok = (status == AERIE_ERROR_FORMAT || status == AERIE_ERROR_LIMIT || status == AERIE_ERROR_UNSUPPORTED) &&
             error.status == status && strncmp(error.text, "template line ", 14) == 0 && out.n == 0;
    }
    if (!ok)
        print_error("%s\n  ours:   [%s] %s\n  wanted: [%s]\n", json_string_value(tmpl), out.data ? out.data : "",
                    status ? error.text : "", text ? json_string_value(text) : wanted_error);
    ae_buf_free(&out);
    return ok;
}

static void test_language(void **state)
{
    (void)state;
    size_t i, n_wrong = 0, n_errors = 0;
    json_t *entry;
    json_error_t json_error;
    ae_value_heap heap;
    ae_value root;
    json_t *json = json_load_file("tests/unit/jinja_cases.json", JSON_ALLOW_NUL, &json_error);
    if (!json) fail_msg("jinja_cases.json: %s", json_error.text);
    ae_value_heap_init(&heap, SIZE_MAX);
    assert_true(ae_value_from_json(&heap, json_object_get(json, "variables"), &root));
    json_array_foreach(json_object_get(json, "cases"), i, entry)
    {
        n_wrong += !check_case(entry, root);
        n_errors += json_object_get(entry, "error") != NULL;
    }
    print_message("%zu templates, %zu of them errors; %zu not as expected\n", i, n_errors, n_wrong);
    ae_value_heap_free(&heap);
    json_decref(json);
    assert_int_equal(n_wrong, 0);
    assert_true(n_errors >= 60);
}

/* ---- Limits ----------------------------------------------------------------------------- */

static void expect(const char *text, const ae_template_options *options, aerie_status wanted)
{
    ae_value_heap heap;
    ae_value root;
    ae_buf out = {0};
    aerie_error error = {0};
    ae_value_heap_init(&heap, SIZE_MAX);
    assert_true(ae_value_object(&heap, &root));
    aerie_status status = render(text, strlen(text), root, options, &out, &error);
    if (status != wanted) print_error("%.80s: %d %s\n", text, status, error.text);
    assert_int_equal(status, wanted);
    assert_true(status == AERIE_OK || (out.n == 0 && error.text[0] && !strchr(error.text, '\n')));
    ae_buf_free(&out);
    ae_value_heap_free(&heap);
}

/* n times `open`, then `middle`, then n times `close` */
static void expect_nested(const char *before, const char *open, const char *middle, const char *close, size_t n,
                          const char *after, aerie_status wanted)
{
    ae_buf text = {0};
    ae_buf_adds(&text, before);
    for (size_t i = 0; i < n; i++) ae_buf_adds(&text, open);
    ae_buf_adds(&text, middle);
    for (size_t i = 0; i < n; i++) ae_buf_adds(&text, close);
    ae_buf_adds(&text, after);
    assert_false(text.failed);
    expect(text.data, NULL, wanted);
    ae_buf_free(&text);
}

static void test_nesting(void **state)
{
    (void)state;
    static const struct {
        const char *before, *open, *middle, *close, *after;
    } shapes[] = {
        {"{{ ", "(", "1", ")", " }}"},
        {"{{ ", "[", "1", "]", " }}"},
        {"{{ ", "{1:", "1", "}", " }}"},
        {"{{ ", "a[", "1", "]", " }}"},
        {"{{ ", "f(", "1", ")", " }}"},
        {"{{ ", "-", "1", "", " }}"},
        {"{{ ", "not ", "1", "", " }}"},
        {"{{ ", "1 if 0 else ", "1", "", " }}"},
        {"{{ 1", "", "", " + 1", " }}"},
        {"{{ 1", "", "", " and 1", " }}"},
        {"{{ x", "", "", ".a", " }}"},
        {"{{ x", "", "", "|string", " }}"},
        {"{{ x", "", "", " is defined", " }}"},
        {"{{ x", "", "", "()", " }}"},
        {"", "{% if 1 %}", "x", "{% endif %}", ""},
        {"", "{% for x in [1] %}", "x", "{% endfor %}", ""},
        {"", "{% macro m() %}", "x", "{% endmacro %}", ""},
        {"", "{% filter upper %}", "x", "{% endfilter %}", ""},
        {"", "{% set x %}", "x", "{% endset %}", ""},
        {"{% set ", "(", "a", ",)", " = 1 %}"},
        {"{% for ", "(", "a", ",)", " in x %}{% endfor %}"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        aerie_status deep = i == 12 ? AERIE_ERROR_FORMAT : i == 13 ? AERIE_ERROR_LIMIT : AERIE_ERROR_LIMIT;
        expect_nested(shapes[i].before, shapes[i].open, shapes[i].middle, shapes[i].close, 60000, shapes[i].after, deep);
    }
    expect_nested("{{ ", "(", "1", ")", 60, " }}", AERIE_OK);
    expect_nested("", "{% if 1 %}", "x", "{% endif %}", 100, "", AERIE_OK);
    expect_nested("{{ 1", "", "", " + 1", 500, " }}", AERIE_OK);
    expect_nested("{{ 1", "", "", " ~ 1", 60000, " }}", AERIE_OK);
    expect_nested("{% if 0 %}", "", "", "{% elif 0 %}", 60000, "{% endif %}", AERIE_OK);
    /* never closed */
    expect_nested("{{ ", "(", "", "", 60000, "", AERIE_ERROR_LIMIT);
    expect_nested("", "{% if 1 %}", "", "", 60000, "", AERIE_ERROR_LIMIT);
}

static void test_run_limits(void **state)
{
    (void)state;
    static const char *const too_much[] = {
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% for x in [1] %}{% if 1 %}{{ [m()] }}{% endif %}{% endfor %}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ caller }}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
        "{{ range(100001) }}",
        "{{ range(-9223372036854775807, 9223372036854775807) }}",
        "{{ 'x' * 100000000000 }}",
        "{{ 'x' * 9223372036854775807 }}",
        "{{ [1] * 9223372036854775807 }}",
        "{{ 'x' * 20000000 }}",
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s|tojson }}",
        "{% set ns = namespace(s=[], t=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% set ns.t = [ns.t] %}"
        "{% endfor %}{{ ns.s == ns.t }}",
        "{% set ns = namespace(s=[], t=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% set ns.t = [ns.t] %}"
        "{% endfor %}{{ ns.s < ns.t }}",
        "{% set ns = namespace(s=[]) %}{% for i in range(64) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[]) %}{% for i in range(64) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}"
        "{{ ns.s == ns.s[:] }}{{ ns.s[0] == ns.s[1][:] }}{% set ns.s = ns.s|tojson %}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(90000) %}{{ (s ~ 'b') is eq s }}{{ s.count('ab') }}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{{ s.replace('', s) }}",
        "{% set s = ' ' * 9000000 %}{% for i in range(90000) %}{{ s.isdigit() }}{{ s.split() }}{% endfor %}",
        "{% set s = '\xC3\xA4' * 1000000 %}{% for i in range(90000) %}{{ s[900000] }}{% endfor %}",
        "{% set s = ' ' * 9000000 %}{% for i in range(90000) %}{{ s.split() }}{% endfor %}", /* looks long, finds nothing */
        "{% set s = ' ' * 9000000 %}{% for i in range(90000) %}{{ s.rsplit() }}{% endfor %}",
        "{% set s = ' ' * 9000000 %}{% for i in range(90000) %}{{ s.strip() }}{% endfor %}",
        "{% set s = 'a' * 9000000 %}{% for i in range(90000) %}{{ s.splitlines()|length }}{% endfor %}",
        "{% set s = 'a' * 9000000 %}{% for i in range(90000) %}{{ s.title()|length }}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% set t = 'a' * 500000 + 'b' %}{{ s.rpartition(t) }}",
        "{{ 'x'.center(99999999999) }}",
        "{{ 'x'|indent(99999999999) }}",
        "{{ '%99999d' % 5 ~ ('%99999d' % 5) * 9999 }}",
        "{{ [1, 2]|batch(9223372036854775807, 0)|list }}",
        "{{ [1]|slice(9223372036854775807)|list }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ -9223372036854775807 - 2 }}",
        "{{ 9223372036854775807 * 3 }}",
        "{{ 3 ** 99 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ 1e30|int }}",
        "{{ '9' * 30 |int }}{{ ('9' * 30)|int }}",
    };
    for (size_t i = 0; i < sizeof too_much / sizeof *too_much; i++) expect(too_much[i], NULL, AERIE_ERROR_LIMIT);
    expect("{{ (-9223372036854775807 - 1) % -1 }}", NULL, AERIE_OK);
    expect("{{ [1, 2, 3][-9223372036854775807:9223372036854775807:9223372036854775807] }}", NULL, AERIE_OK);
    expect("{{ [1, 2, 3][::-9223372036854775807 - 1] }}", NULL, AERIE_OK);
    ae_template_options options = ae_template_options_default();
    options.max_output_bytes = 10;
    expect("12345678901", &options, AERIE_ERROR_LIMIT);
    expect("1234567890", &options, AERIE_OK);
    options = ae_template_options_default();
    options.max_steps = 5;
    expect("{{ 1 }}{{ 1 }}{{ 1 }}{{ 1 }}", &options, AERIE_ERROR_LIMIT);
}

/* Every allocation of a run fails once: the heap's ceiling is raised byte by byte. */
static void test_memory_sweep(void **state)
{
    (void)state;
    static const char text[] =
        "{% set ns = namespace(a=[1, 2]) %}{% macro m(a, b=2) %}{{ varargs }}{{ kwargs }}{{ caller() }}{% endmacro %}"
        "{% for x in ns.a if x %}{% call m(1, 2, 3, c=4) %}{{ loop.index }}{% endcall %}{% endfor %}"
        "{{ {'b': [1.5, none], 'a': 'x'}|tojson(indent=2, sort_keys=true) }}{{ 'a b'.split()|map('upper')|join(',') }}"
        "{{ ['b', 'a']|sort }}{{ {'a': 1}|dictsort }}{{ 'x%s' % 3 }}{{ '{}'.format(1) }}{{ 'abc'[::-1] }}{{ ns.x is defined }}"
        "{% set s %}x{% endset %}{% filter upper|indent %}a{% endfilter %}{{ strftime_now('%Y') }}{{ '<'|e + '>' }}"
        "{% with q = 1 %}{{ q }}{% endwith %}{{ (1, 2)|batch(1)|list }}{{ 'a' ~ 1 }}{{ 'a'.replace('a', 'b')|title }}";
    ae_value_heap heap;
    ae_value root;
    ae_template_options options = ae_template_options_default();
    ae_value_heap_init(&heap, SIZE_MAX);
    assert_true(ae_value_object(&heap, &root));
    ae_template *tmpl;
    assert_int_equal(ae_template_parse(&tmpl, text, sizeof text - 1, NULL), AERIE_OK);
    size_t limit = 0;
    for (aerie_status status = AERIE_ERROR_LIMIT; status != AERIE_OK; limit += 16) {
        ae_buf out = {0};
        aerie_error error = {0};
        options.max_memory_bytes = limit;
        status = ae_template_render(tmpl, root, &options, &out, NULL, &error);
        if (status != AERIE_OK && status != AERIE_ERROR_LIMIT) print_error("%s\n", error.text);
        assert_true(status == AERIE_OK || (status == AERIE_ERROR_LIMIT && out.n == 0));
        ae_buf_free(&out);
        assert_true(limit < 1000000);
    }
    assert_true(limit > 5000);
    ae_template_free(tmpl);
    ae_value_heap_free(&heap);
}

/* ---- Input that is not a text, and values --------------------------------------------------- */

static void test_bytes(void **state)
{
    (void)state;
    ae_template *tmpl = NULL;
    aerie_error error;
    assert_int_equal(ae_template_parse(&tmpl, "a\xff", 2, &error), AERIE_ERROR_FORMAT);
    assert_int_equal(ae_template_parse(&tmpl, "{{ '\xC3' }}", 8, &error), AERIE_ERROR_FORMAT);
    assert_null(tmpl);
    assert_int_equal(ae_template_parse(&tmpl, "", AE_TEMPLATE_MAX_BYTES + 1, &error), AERIE_ERROR_LIMIT);
    /* Every prefix of a template parses or fails with a sentence. */
    static const char text[] = "{%- for a, b in d.items() if a -%}{{ a|join('\\x41') ~ [1, 2][0:1] }}{# c #}{% endfor %}"
                               "{% raw %}{% endraw %}";
    for (size_t n = 0; n < sizeof text; n++) {
        if (ae_template_parse(&tmpl, text, n, &error) == AERIE_OK) ae_template_free(tmpl);
    }
}

static void test_bad_utf8_values(void **state)
{
    (void)state;
    ae_chat_message message = {.role = "user", .content = "a\xC3(\xF0\x9F\x98 b\xED\xA0\x80"};
    ae_chat_options options = {.bos_text = "<s>", .eos_text = NULL, .add_generation_prompt = true};
    ae_buf out = {0};
    aerie_error error = {0};
    assert_int_equal(ae_chat_render("{{ messages[0].content|upper }}", &message, 1, &options, &out, &error), AERIE_OK);
    for (size_t i = 0; i < out.n;) {
        size_t n = ae_utf8_valid(out.data + i, out.n - i);
        assert_true(n > 0);
        i += n;
    }
    ae_buf_free(&out);
}

static void test_objects(void **state)
{
    (void)state;
    ae_value_heap heap;
    ae_value object;
    char key[16];
    ae_value_heap_init(&heap, SIZE_MAX);
    assert_true(ae_value_object(&heap, &object));
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 5000; i++) {
            snprintf(key, sizeof key, "k%d", i);
            assert_true(ae_value_object_put(&heap, object, key, ae_value_int(i * (round + 1))));
        }
    assert_int_equal(object.as.object->n, 5000);
    for (int i = 0; i < 5000; i++) {
        ae_value name;
        snprintf(key, sizeof key, "k%d", i);
        assert_true(ae_value_string(&heap, key, strlen(key), &name));
        assert_int_equal(ae_object_find(object.as.object, name)->as.integer, 2 * i);
        assert_int_equal(object.as.object->entries[i].value.as.integer, 2 * i);
    }
    assert_true(ae_value_object_set(&heap, object, ae_value_bool(true), ae_value_int(1)));
    assert_int_equal(ae_object_find(object.as.object, ae_value_double(1.0))->as.integer, 1);
    assert_null(ae_object_find(object.as.object, ae_value_none()));
    ae_value_heap_free(&heap);
}

/* Extensions of other engines to jinja2's immutable sandbox, which published templates use. */
static void test_lists_that_change(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{% set n = namespace(q=[]) %}{% set _ = n.q.append('a') %}{% set _ = n.q.append(2) %}"
         "{{ n.q.pop(0) }}{{ n.q }}", 
         "a[2]"},
        {"{% set q = [1, 2, 3] %}{{ q.insert(0, 9) }}{{ q.insert(-1, 8) }}{{ q.insert(99, 7) }}{{ q }}", 
         "NoneNoneNone[9, 1, 2, 8, 3, 7]"},
        {"{% set q = [1, 2, 1] %}{% set _ = q.remove(1) %}{% set _ = q.extend(q) %}{{ q }}", "[2, 1, 2, 1]"},
        {"{% set q = [1, 2, 3] %}{% set p = q %}{% set _ = q.reverse() %}{{ p }}{{ q.pop() }}{{ q.pop(-2) }}{{ p }}", 
         "[3, 2, 1]13[2]"},
        {"{% set q = [1] %}{% set _ = q.clear() %}{{ q }}{% for x in q %}x{% endfor %}", "[]"},
        {"{% set q = [1, 2, 3, 4] %}{% for x in q %}{{ q.pop() }}{% endfor %}{{ q }}", "4321[]"},
        {"{% set q = [1] %}{% for x in q %}{% set _ = q.append(x) %}{% endfor %}{{ q }}", "[1, 1]"},
        {"{{ messages | map(attribute='role') | tojson }}", "[\"user\"]"},
    };
    static const char *const errors[] = {
        "{{ messages.append(1) }}", "{{ messages.pop() }}", "{{ [].pop() }}", "{{ [1].pop(1) }}", "{{ [1].pop('a') }}",
        "{{ [1].remove(2) }}", "{{ [1].insert('a', 1) }}", "{{ [1].sort() }}", "{{ (1, 2).append(3) }}",
        "{{ range(3).append(3) }}",
        "{{ {}.update({}) }}", "{% set q = [1] %}{% set _ = q.append(q) %}{{ q }}",
        "{% set q = [1] %}{% set _ = q.append(q) %}{{ q|tojson }}",
    };
    const ae_chat_message message = {.role = "user", .content = "c"};
    ae_chat_options options = {.bos_text = ""};
    ae_buf out = {0};
    aerie_error error = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const aerie_status status = ae_chat_render(cases[i][0], &message, 1, &options, &out, &error);
        if (status != AERIE_OK) fail_msg("%s: %s", cases[i][0], error.text);
        assert_int_equal(out.n, strlen(cases[i][1]));
        assert_memory_equal(out.data, cases[i][1], out.n);
        ae_buf_clear(&out);
    }
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        const aerie_status status = ae_chat_render(errors[i], &message, 1, &options, &out, &error);
        if (status == AERIE_OK) fail_msg("%s: %s", errors[i], out.data);
        assert_int_equal(out.n, 0);
    }
    ae_buf_free(&out);
}

static void test_chat(void **state)
{
    (void)state;
    static const char chatml[] =
        "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    static const ae_chat_message messages[] = {{"system", "Be brief."}, {"user", "Hi {{ 1 }}"}};
    ae_chat_options options = {.bos_text = "<s>", .eos_text = "</s>", .add_generation_prompt = true};
    ae_buf out = {0};
    aerie_error error = {0};
    ae_buf_adds(&out, "before:");
    assert_int_equal(ae_chat_render(chatml, messages, 2, &options, &out, &error), AERIE_OK);
    assert_string_equal(out.data, "before:<s><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi {{ 1 }}<|im_end|>\n"
                                  "<|im_start|>assistant\n");
    ae_buf_clear(&out);
    assert_int_equal(ae_chat_render("{{ raise_exception('no ' ~ messages|length) }}", messages, 2, &options, &out, &error),
                     AERIE_ERROR_FORMAT);
    assert_string_equal(error.text, "no 2");
    assert_int_equal(ae_chat_render("a\n\n{{ messages.x.y }}", messages, 2, &options, &out, &error), AERIE_ERROR_FORMAT);
    assert_string_equal(error.text, "template line 3, column 14: a 'list' has no 'x'");
    assert_int_equal(ae_chat_render("a\n{% if %}", messages, 2, &options, &out, NULL), AERIE_ERROR_FORMAT);
    assert_int_equal(out.n, 0);
    ae_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_language),     cmocka_unit_test(test_nesting), cmocka_unit_test(test_run_limits),
        cmocka_unit_test(test_memory_sweep), cmocka_unit_test(test_bytes),   cmocka_unit_test(test_bad_utf8_values),
        cmocka_unit_test(test_objects),      cmocka_unit_test(test_chat),    cmocka_unit_test(test_lists_that_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
