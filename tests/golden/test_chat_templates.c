/* test_chat_templates.c - real chat templates render byte for byte as Python's jinja2 renders them.
 *
 * Expectations: chat/<conversation>.json, made by chat/make_chat_vectors.py. The templates are
 * other people's work and not part of the repository: they are looked for in
 * $AERIE_SHARED/data/templates, else ../shared/data/templates; absent, the test is skipped.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/os.h"
#include "text/template/jinja.h"
#include "text/template/value_json.h"

static const struct tm fixed_now = {.tm_year = 125, .tm_mon = 6, .tm_mday = 4, .tm_hour = 15, .tm_min = 4, .tm_sec = 5,
                                    .tm_wday = 5, .tm_yday = 184};

static char folder[1024];
static size_t n_equal, n_errors, n_wrong, n_missing;

/* The text that a template raises must be reported unchanged; other errors have texts of our own. */
static bool same_words(const char *wanted, const char *ours)
{
    static const char raised[] = "TemplateError: ";
    return strncmp(wanted, raised, sizeof raised - 1) != 0 || strcmp(wanted + sizeof raised - 1, ours) == 0;
}

/* What jinja2 refuses and we render, as llama.cpp does: tojson takes what a filter makes, too, as a list; a template may append
 * to a list of its own. */
static bool is_ours_alone(const char *wanted)
{
    return strcmp(wanted, "TypeError: Object of type generator is not JSON serializable") == 0 ||
           strcmp(wanted, "SecurityError: access to attribute 'append' of 'list' object is unsafe.") == 0;
}

static void compare(const char *conversation, const char *name, ae_value root, const json_t *expected)
{
    char path[2048];
    ae_file_map map;
    ae_template *tmpl = NULL;
    ae_buf out = {0};
    aerie_error error = {0};
    ae_template_options options = ae_template_options_default();
    options.now = &fixed_now;
    snprintf(path, sizeof path, "%s/%s.jinja", folder, name);
    if (ae_file_map_open(&map, path, true, NULL) != AERIE_OK) {
        n_missing++;
        return;
    }
    aerie_status status = ae_template_parse(&tmpl, (const char *)map.data, map.bytes, &error);
    if (status == AERIE_OK) status = ae_template_render(tmpl, root, &options, &out, NULL, &error);
    const json_t *text = json_object_get(expected, "text");
    const char *refused = text ? "" : json_string_value(json_object_get(expected, "error"));
    bool equal = text ? status == AERIE_OK && out.n == json_string_length(text) &&
                            memcmp(out.n ? out.data : "", json_string_value(text), out.n) == 0
                      : is_ours_alone(refused) || (status != AERIE_OK && same_words(refused, error.text));
    n_equal += equal;
    n_errors += equal && !text;
    if (!equal) {
        n_wrong++;
        size_t at = 0;
        const char *want = text ? json_string_value(text) : "";
        while (at < out.n && out.data[at] == want[at]) at++;
        size_t from = at > 40 ? at - 40 : 0;
        print_error("%s, %s: differs at byte %zu\n  ours: %s [%s]\n  wanted: %s\n", name, conversation, at,
                    out.n > from ? out.data + from : "", status ? error.text : "ok",
                    text ? want + (strlen(want) > from ? from : 0) : refused);
    }
    ae_buf_free(&out);
    ae_template_free(tmpl);
    ae_file_map_close(&map);
}

static void run_conversation(const char *file)
{
    char path[1024];
    const char *name;
    json_t *expected;
    json_error_t json_error;
    ae_value_heap heap;
    ae_value root;
    snprintf(path, sizeof path, "tests/golden/chat/%s", file);
    json_t *json = json_load_file(path, 0, &json_error);
    if (!json) fail_msg("%s: %s", path, json_error.text);
    ae_value_heap_init(&heap, SIZE_MAX);
    assert_true(ae_value_from_json(&heap, json_object_get(json, "variables"), &root));
    json_object_foreach(json_object_get(json, "expected"), name, expected) compare(file, name, root, expected);
    ae_value_heap_free(&heap);
    json_decref(json);
}

static void test_chat_templates(void **state)
{
    (void)state;
    const char *shared = getenv("AERIE_SHARED");
    snprintf(folder, sizeof folder, "%s/data/templates", shared ? shared : "../shared");
    DIR *templates = opendir(folder);
    if (!templates) {
        print_message("skip: no chat templates in %s (set AERIE_SHARED)\n", folder);
        skip();
    }
    closedir(templates);
    DIR *vectors = opendir("tests/golden/chat");
    assert_non_null(vectors);
    for (struct dirent *entry; (entry = readdir(vectors));)
        if (strstr(entry->d_name, ".json")) run_conversation(entry->d_name);
    closedir(vectors);
    print_message("%zu renderings as expected (%zu of them errors), %zu not, %zu templates missing\n", n_equal, n_errors,
                  n_wrong, n_missing);
    assert_int_equal(n_wrong, 0);
    assert_true(n_equal > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chat_templates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
