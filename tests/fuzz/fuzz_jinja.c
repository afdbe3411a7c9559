/* fuzz_jinja.c - any bytes as a template, rendered over a small conversation.
 *
 * Looks for crashes, hangs, leaks, text that is not UTF-8, and origins that are lost: a character that stands only in the
 * messages must be in a span of data wherever the output has it.
 */
#include <stdlib.h>
#include <string.h>

#include "text/template/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool put(ae_value_heap *heap, ae_value object, const char *key, const char *text)
{
    ae_value value;
    return ae_value_string(heap, text, strlen(text), &value) && ae_value_object_put(heap, object, key, value);
}

#define MARK "\xEE\x84\xA3" /* a character for private use */

static bool build_root(ae_value_heap *heap, ae_value *root)
{
    static const char *const contents[] = {MARK "Be " MARK MARK "brief.", "na\xC3\xAFve" MARK " <b> \xF0\x9F\x98\x80 5 " MARK,
                                           ""};
    static const char *const roles[] = {"system", "user", "assistant"};
    ae_value list, message;
    heap->is_data = true;
    if (!ae_value_object(heap, root) || !ae_value_array(heap, AE_ARRAY_LIST, 0, &list)) return false;
    for (int i = 0; i < 3; i++)
        if (!ae_value_object(heap, &message) || !put(heap, message, "role", roles[i]) ||
            !put(heap, message, "content", contents[i]) || !ae_value_array_add(heap, list, message))
            return false;
    heap->is_data = false;
    return ae_value_object_put(heap, *root, "messages", list) && put(heap, *root, "bos_token", "<s>") &&
           ae_value_object_put(heap, *root, "tools", ae_value_none()) &&
           ae_value_object_put(heap, *root, "n", ae_value_double(2.5)) &&
           ae_value_object_put(heap, *root, "add_generation_prompt", ae_value_bool(true));
}

/* Can the template itself write the mark: as it is, or by an escape? */
static bool may_write_mark(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (data[i] == (uint8_t)MARK[0]) return true;
        if (data[i] == '\\' && i + 1 < size && data[i + 1] && strchr("uUxN01234567", data[i + 1])) return true;
    }
    return false;
}

static void check_spans(const ae_buf *out, const ae_buf *spans, bool marked)
{
    const ae_span *span = (const ae_span *)(const void *)spans->data;
    const size_t n = spans->n / sizeof *span;
    size_t k = 0, last = 0;
    for (size_t i = 0; i < n; i++) {
        if (span[i].begin >= span[i].end || span[i].end > out->n || (i && span[i].begin <= last)) abort();
        last = span[i].end;
    }
    for (size_t i = 0; marked && i + 3 <= out->n; i++) {
        if (memcmp(out->data + i, MARK, 3)) continue;
        while (k < n && span[k].end <= i) k++;
        if (k == n || span[k].begin > i || span[k].end < i + 3) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tm now = {.tm_year = 125, .tm_mday = 1, .tm_wday = 3};
    ae_template_options options = {.max_steps = 20000, .max_output_bytes = 1 << 20, .max_memory_bytes = 8 << 20, .now = &now};
    ae_template *tmpl;
    ae_value_heap heap;
    ae_value root;
    ae_buf out = {0}, spans = {0};
    aerie_error error = {0};
    if (ae_template_parse(&tmpl, (const char *)data, size, &error) != AERIE_OK) {
        if (!error.text[0] || tmpl) abort();
        return 0;
    }
    ae_value_heap_init(&heap, SIZE_MAX);
    if (build_root(&heap, &root)) {
        aerie_status status = ae_template_render(tmpl, root, &options, &out, &spans, &error);
        if (status != AERIE_OK && (out.n || status == AERIE_ERROR_INTERNAL)) abort();
        for (size_t i = 0; i < out.n;) {
            size_t n = ae_utf8_valid(out.data + i, out.n - i);
            if (!n) abort();
            i += n;
        }
        if (status == AERIE_OK) check_spans(&out, &spans, !may_write_mark(data, size));
    }
    ae_buf_free(&spans);
    ae_buf_free(&out);
    ae_value_heap_free(&heap);
    ae_template_free(tmpl);
    return 0;
}
