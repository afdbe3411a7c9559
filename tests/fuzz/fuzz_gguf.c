/* fuzz_gguf.c - any bytes opened as a GGUF file: refused with a sentence, or everything lent is readable. */
#include <stdio.h>
#include <stdlib.h>

#include "gguf_make.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
    if (wrong) {
        fprintf(stderr, "fuzz_gguf: %s\n", wrong);
        abort();
    }
    return 0;
}
