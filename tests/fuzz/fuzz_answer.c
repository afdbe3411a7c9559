/* fuzz_answer.c - any bytes as a generated answer, in any format, cut in any way.
 *
 * Looks for crashes, hangs, leaks, events out of order, and events that depend on how the answer is cut: the answer as a whole,
 * byte by byte and in the input's own pieces must give the same events. Arguments must be an object of JSON, those of malformed
 * calls too.
 * Input: a byte for the format, one for the tags of reasoning (bit 7: kept as content; bit 6: the prompt opens them), one that
 * seeds the cuts, then the answer. The whole input is also tried as the source of a template.
 */
#include <stdint.h>

#include "../unit/answer_rig.inc"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"s\":{\"type\":"
    "\"string\"},\"n\":{\"type\":\"integer\"},\"u\":{}}}}},{\"name\":\"g\"}]";

#define MAX_CUTS 4096

typedef struct arguments {
    char *text;
    size_t n;
} arguments;

static bool check_arguments(void *user, const answer_event *e)
{
    arguments *a = user;
    if (e->kind == ANSWER_CALL) a->n = 0;
    if (e->kind == ANSWER_ARGUMENTS) {
        a->text = realloc(a->text, a->n + e->n);
        memcpy(a->text + a->n, e->text, e->n);
        a->n += e->n;
    }
    if (e->kind != ANSWER_CALL_END) return true;
    json_error_t error;
    json_t *json = json_loadb(a->text, a->n, JSON_ALLOW_NUL, &error);
    /* the answer's own bytes may be no UTF-8, and jansson refuses what RFC 8259 allows */
    const enum json_error_code code = json ? json_error_unknown : json_error_code(&error);
    if (!json && code != json_error_invalid_utf8 && code != json_error_numeric_overflow &&
        code != json_error_null_byte_in_key && !strstr(error.text, "surrogate") &&
        !strstr(error.text, "Unicode"))
        abort();
    if (json && !json_is_object(json)) abort();
    json_decref(json);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *tools;
    if (!tools) tools = json_loads(tools_json, 0, NULL);
    (void)answer_style_detect((const char *)data, size);
    if (size < 3) return 0;
    size_t n_formats = 0, n_tags = 0;
    while (answer_format_at(n_formats)) n_formats++;
    while (answer_tags_at(n_tags)) n_tags++;
    answer_params params = {.tools = tools, .id_seed = 1};
    params.style.format = answer_format_at(data[0] % n_formats);
    params.style.tags = answer_tags_at((data[1] & 0x3f) % (n_tags + 1));
    params.keep_reasoning = data[1] >> 7;
    params.prompt = data[1] & 0x40 ? "<think>\n" : "";
    params.n_prompt = strlen(params.prompt);
    const char *text = (const char *)data + 3;
    const size_t n = size - 3;
    size_t cuts[MAX_CUTS], n_cuts = 0;
    uint32_t random = data[2] + 1u;
    seen whole = seen_parse(params, text, n, NULL, 0);
    for (size_t i = 1; i < n && i < MAX_CUTS; i++) cuts[i - 1] = i;
    seen bytes = seen_parse(params, text, n, cuts, n < MAX_CUTS ? n - (n > 0) : MAX_CUTS - 1);
    for (size_t i = 1; i < n && n_cuts < MAX_CUTS; i++) {
        random = random * 1664525u + 1013904223u;
        if (random >> 29 == 0) cuts[n_cuts++] = i;
    }
    seen pieces = seen_parse(params, text, n, cuts, n_cuts);
    if (whole.bad || bytes.bad || pieces.bad || strcmp(whole.text, bytes.text) || strcmp(whole.text, pieces.text)) abort();
    free(whole.text);
    free(bytes.text);
    free(pieces.text);
    arguments a = {0};
    params.sink = check_arguments, params.user = &a;
    answer_parser *parser = answer_create(&params);
    if (parser && answer_feed(parser, text, n)) answer_end(parser, false);
    answer_free(parser);
    free(a.text);
    return 0;
}
