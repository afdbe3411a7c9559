/* fuzz_grammar.c - any bytes as GBNF; what compiles is walked along its own texts and along the rest of the input.
 *
 * Looks for crashes, hangs, leaks, states that depend on the way to them, and failures without a sentence. Input: the
 * grammar, then a zero byte, then bytes to walk.
 */
#include <stdlib.h>
#include <string.h>

#include "text/grammar/match.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Byte by byte, with a flush now and then: the same answers as without. */
static void walk(ae_matcher *m, const uint8_t *bytes, size_t n)
{
    size_t good = 0;
    while (good < n && ae_matcher_advance(m, (const char *)bytes + good, 1)) good++;
    const bool end = ae_matcher_may_end(m, m->current), limit = m->limit_hit;
    if (!ae_matcher_restart(m)) abort();
    for (size_t i = 0; i < good; i++) {
        if (i % 7 == 3) ae_matcher_flush(m);
        if (!ae_matcher_advance(m, (const char *)bytes + i, 1)) abort();
    }
    if (ae_matcher_may_end(m, m->current) != end) abort();
    if (good < n && !limit && ae_matcher_advance(m, (const char *)bytes + good, 1)) abort();
}

/* Some text of the grammar: bytes that are allowed, chosen by the input. */
static void wander(ae_matcher *m, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n && i < 200; i++) {
        int byte = ae_matcher_forced_byte(m, m->current);
        for (int k = 0; k < 256 && byte < 0; k++)
            if (ae_matcher_step(m, m->current, (uint8_t)(bytes[i] + k)) >= AE_GSTATE_FIRST) byte = (uint8_t)(bytes[i] + k);
        const char c = (char)byte;
        if (byte < 0 || !ae_matcher_advance(m, &c, 1)) break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    const size_t n = zero ? (size_t)(zero - data) : size;
    aerie_error error = {0};
    ae_grammar *g;
    ae_matcher m;
    if (ae_grammar_from_gbnf(&g, (const char *)data, n, &error) != AERIE_OK) {
        if (!error.text[0] || g || error.status == AERIE_ERROR_INTERNAL || strchr(error.text, '\n')) abort();
        return 0;
    }
    if (ae_matcher_init(&m, g, &error) == AERIE_OK) {
        walk(&m, zero ? zero + 1 : data, zero ? size - n - 1 : size);
        if (!ae_matcher_restart(&m)) abort();
        wander(&m, data, size);
        ae_matcher_free(&m);
    } else if (error.status != AERIE_ERROR_LIMIT) {
        abort();
    }
    ae_grammar_free(g);
    return 0;
}
