/* fuzz_head.c - any bytes as the file of a drafter head: refused with a sentence, or all that checkpoint/head.h promises holds.
 * */
#include <stdio.h>
#include <stdlib.h>

#include "mkhead.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ae_gguf *gguf;
    ae_dhead *head = NULL;
    aerie_error error = {0};
    aerie_status status = ae_gguf_open_memory(&gguf, data, size, "fuzz.gguf", &error);
    if (status == AERIE_OK) status = ae_dhead_bind(&head, gguf, &error);
    const char *wrong = NULL;
    if (status == AERIE_OK) wrong = mkhead_check(head);
    else if (head || error.status != status || !error.text[0]) wrong = "a failure without an error record";
    ae_dhead_free(head);
    if (wrong) {
        fprintf(stderr, "fuzz_head: %s\n", wrong);
        abort();
    }
    return 0;
}
