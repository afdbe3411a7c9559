/* fuzz_schema.c - any bytes as a JSON schema; texts of what compiles must be JSON.
 *
 * Looks for crashes, hangs, leaks, failures without a sentence, and for a grammar that allows what jansson cannot read.
 * Input: a byte (bit 0: as the standard has it; bit 1: what cannot be enforced is passed over with a warning), then the
 * schema.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar/match.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A text of the grammar as the input chooses; only complete ones are checked. */
static void write_text(ae_matcher *m, const uint8_t *bytes, size_t n)
{
    char text[400];
    size_t length = 0;
    for (size_t i = 0; length < sizeof text; i++) {
        int byte = -1;
        const uint8_t from = n ? bytes[i % n] : 0;
        for (int k = 0; k < 256 && byte < 0; k++)
            if (ae_matcher_step(m, m->current, (uint8_t)(from + k)) >= AE_GSTATE_FIRST) byte = (uint8_t)(from + k);
        const char c = (char)byte;
        if (byte < 0 || !ae_matcher_advance(m, &c, 1)) break;
        text[length++] = c;
    }
    if (!ae_matcher_may_end(m, m->current)) return;
    json_error_t e;
    json_t *json = json_loadb(text, length, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    /* numbers out of range and \u0000 in a key are JSON, but not jansson's */
    if (!json && json_error_code(&e) != json_error_numeric_overflow &&
        json_error_code(&e) != json_error_null_byte_in_key)
        abort();
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    aerie_error error = {0};
    ae_grammar *g;
    ae_matcher m;
    if (!size) return 0;
    const aerie_schema_params params = {.standard = data[0] & 1, .strict = !(data[0] & 2)};
    ae_buf warnings = {0};
    const aerie_status status = ae_grammar_from_schema_with(&g, (const char *)data + 1, size - 1, &params, &warnings, &error);
    if (warnings.n && (params.strict || strchr(warnings.data, '\n'))) abort();
    ae_buf_free(&warnings);
    if (status != AERIE_OK) {
        if (!error.text[0] || g || error.status == AERIE_ERROR_INTERNAL || strchr(error.text, '\n')) abort();
        return 0;
    }
    if (ae_matcher_init(&m, g, &error) == AERIE_OK) {
        write_text(&m, data, size);
        ae_matcher_free(&m);
    } else if (error.status != AERIE_ERROR_LIMIT) {
        abort();
    }
    ae_grammar_free(g);
    return 0;
}
