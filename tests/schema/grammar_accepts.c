/* grammar_accepts.c - tells which texts a grammar or a schema accepts; for tests that know the answer otherwise.
 *
 * Each line of standard input is {"schema": text, "standard": bool, "texts": [text, ...]} or {"grammar": GBNF, "texts": ...};
 * each line of output a string of 0 and 1, one for each text, or "error: " and the sentence.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar/match.h"

static bool accepts(ae_matcher *m, const char *text, size_t n)
{
    return ae_matcher_restart(m) && ae_matcher_advance(m, text, n) && ae_matcher_may_end(m, m->current);
}

static void answer(const json_t *line)
{
    const json_t *schema = json_object_get(line, "schema"), *gbnf = json_object_get(line, "grammar"),
                 *texts = json_object_get(line, "texts");
    const json_t *source = schema ? schema : gbnf;
    aerie_error error = {0};
    ae_grammar *g = NULL;
    ae_matcher m = {0};
    const char *text = json_string_value(source);
    const size_t n = json_string_length(source);
    aerie_status status = schema ? ae_grammar_from_schema(&g, text, n, json_is_true(json_object_get(line, "standard")), &error)
                                 : ae_grammar_from_gbnf(&g, text, n, &error);
    if (status == AERIE_OK) status = ae_matcher_init(&m, g, &error);
    if (status != AERIE_OK) {
        printf("error: %s\n", error.text);
    } else {
        for (size_t i = 0; i < json_array_size(texts); i++) {
            const json_t *t = json_array_get(texts, i);
            putchar(accepts(&m, json_string_value(t), json_string_length(t)) ? '1' : '0');
        }
        putchar('\n');
    }
    fflush(stdout);
    ae_matcher_free(&m);
    ae_grammar_free(g);
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 1 << 22, n = 0;
    line = malloc(capacity);
    for (int c; line && (c = getchar()) != EOF;) {
        if (c != '\n') {
            if (n == capacity) {
                char *grown = realloc(line, capacity *= 2);
                if (!grown) break;
                line = grown;
            }
            line[n++] = (char)c;
            continue;
        }
        json_error_t e;
        json_t *json = json_loadb(line, n, JSON_ALLOW_NUL, &e);
        if (!json) {
            fprintf(stderr, "grammar_accepts: not JSON: %s\n", e.text);
            free(line);
            return 1;
        }
        answer(json);
        json_decref(json);
        n = 0;
    }
    free(line);
    return 0;
}
