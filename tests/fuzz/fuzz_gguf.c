/* fuzz_gguf.c - any bytes opened as a GGUF file: refused with a sentence, or everything lent is readable. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_make.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Checks that a part of the bytes gives the same end of the file, which downloads use, as all of them. NULL: it does. */
static const char *check_extent(const uint8_t *data, size_t size, aerie_status status)
{
    ae_gguf_extent all = {0}, some;
    aerie_error error = {0};
    const aerie_status whole = ae_gguf_extent_read(&all, data, size, "fuzz.gguf", &error);
    if (status == AERIE_OK && (whole != AERIE_OK || !all.end || all.end > size || all.padded < all.end || all.n_parts != 1))
        return "the end of a file that opens is not known";
    for (size_t n = size / 2; n; n /= 2) {
        uint8_t *copy = malloc(n); /* of this size, so that reading beyond is seen */
        if (!copy) return NULL;
        memcpy(copy, data, n);
        const aerie_status early = ae_gguf_extent_read(&some, copy, n, "fuzz.gguf", &error);
        free(copy);
        if (early == AERIE_OK && some.end && (whole != AERIE_OK || some.end != all.end || some.padded != all.padded))
            return "the first bytes of a file tell another end than all of it";
    }
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ae_gguf *gguf;
    aerie_error error = {0};
    aerie_status status = ae_gguf_open_memory(&gguf, data, size, "fuzz.gguf", &error);
    const char *wrong = NULL;
    if (status == AERIE_OK) {
        wrong = gguf_check_all(gguf, data, size);
        ae_gguf_close(gguf);
    } else if (gguf || error.status != status || !error.text[0]) {
        wrong = "a failure without an error record";
    }
    if (!wrong) wrong = check_extent(data, size, status);
    if (wrong) {
        fprintf(stderr, "fuzz_gguf: %s\n", wrong);
        abort();
    }
    return 0;
}
