/* fuzz_saved.c - saved sequences of any bytes: as they come, and with the checksum that makes them whole.
 *
 * Looks for reads outside of the bytes, and for tokens that contradict what the block says of itself. laws/saved_laws gives
 * such blocks to sessions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aerie_extra.h"
#include "base/mem.h"
#include "formats/sections.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_bytes(const uint8_t *data, size_t size)
{
    aerie_error error = {0};
    int32_t *tokens;
    size_t n, n_prompt;
    const aerie_status status = aerie_saved_tokens(data, size, &tokens, &n, &n_prompt, &error);
    if (status == AERIE_OK ? !tokens || !n_prompt || n_prompt > n || n * 4 > size : tokens || error.status != status) {
        fprintf(stderr, "a saved sequence of %zu bytes is read as %zu tokens, status %d\n", size, n, (int)status);
        abort();
    }
    aerie_free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_bytes(data, size);
    uint8_t *copy = ae_alloc(size + 1, 1); /* exactly as long as its allocation, but for one byte */
    if (copy && size >= 32) {
        const uint64_t total = size;
        memcpy(copy, data, size);
        memcpy(copy, "aerieseq\1\0\0", 12);
        memcpy(copy + 16, &total, sizeof total);
        ae_sections_seal(copy, size);
        try_bytes(copy, size);
    }
    ae_free(copy);
    return 0;
}
