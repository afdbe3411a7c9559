/* jinja_renders.c - renders templates for tests that know the result otherwise.
 *
 * Each line of standard input is {"template": text, "variables": {...}}; each line of output is a JSON string, the text, or
 * {"error": sentence}. The clock stands at 2025-07-04 15:04:05, as in the vectors.
 */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/template/jinja.h"
#include "text/template/value_json.h"

static const struct tm fixed_now = {.tm_year = 125, .tm_mon = 6, .tm_mday = 4, .tm_hour = 15, .tm_min = 4, .tm_sec = 5,
                                    .tm_wday = 5, .tm_yday = 184};

static json_t *render(const json_t *line)
{
    const json_t *text = json_object_get(line, "template");
    ae_template_options options = ae_template_options_default();
    ae_template *tmpl = NULL;
    aerie_error error = {0};
    ae_value_heap heap;
    ae_value root;
    ae_buf out = {0};
    options.now = &fixed_now;
    ae_value_heap_init(&heap, SIZE_MAX);
    aerie_status status = ae_value_from_json(&heap, json_object_get(line, "variables"), &root) ? AERIE_OK : AERIE_ERROR_MEMORY;
    if (status == AERIE_OK) status = ae_template_parse(&tmpl, json_string_value(text), json_string_length(text), &error);
    if (status == AERIE_OK) status = ae_template_render(tmpl, root, &options, &out, NULL, &error);
    json_t *answer = status == AERIE_OK ? json_stringn(out.n ? out.data : "", out.n)
                                        : json_pack("{s:s, s:s}", "error", error.text, "status", aerie_status_text(status));
    ae_buf_free(&out);
    ae_template_free(tmpl);
    ae_value_heap_free(&heap);
    return answer;
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    while ((n = getline(&line, &capacity, stdin)) > 0) {
        json_error_t e;
        json_t *json = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, &e), *answer = json ? render(json) : NULL;
        if (!answer) {
            fprintf(stderr, "jinja_renders: %s\n", json ? "no answer" : e.text);
            return 1;
        }
        json_dumpf(answer, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
        putchar('\n');
        fflush(stdout);
        json_decref(answer);
        json_decref(json);
    }
    free(line);
    return 0;
}
