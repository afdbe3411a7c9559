/* fuzz_torch.c - any bytes opened as a PyTorch checkpoint: refused with a sentence, or everything lent is readable. */
#include <stdio.h>
#include <stdlib.h>

#include "gguf/torch.h"
#include "st_make.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ae_safetensors *st;
    aerie_error error = {0};
    const aerie_status status = ae_torch_open_memory(&st, data, size, "fuzz.pt", &error);
    const char *wrong = NULL;
    if (status == AERIE_OK) {
        wrong = st_check_all(st, data, size);
        ae_safetensors_close(st);
    } else if (st || error.status != status || !error.text[0]) {
        wrong = "a failure without an error record";
    }
    if (wrong) {
        fprintf(stderr, "fuzz_torch: %s\n", wrong);
        abort();
    }
    return 0;
}
