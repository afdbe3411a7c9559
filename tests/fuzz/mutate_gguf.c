/* mutate_gguf.c - the reader over damaged GGUF files (mutate.inc says how).
 *
 *     mutate_gguf N SEED [file...]
 *
 * Small generated files, and the files given. Exit status 1 when a promise of gguf.h is broken.
 */
#define MUTATE_NAME "mutate_gguf"
#include "mutate.inc"

static outcome use_gguf(const uint8_t *bytes, size_t n, const char **why)
{
    ae_gguf *gguf;
    aerie_error error = {0};
    aerie_status status = ae_gguf_open_memory(&gguf, bytes, n, "mutant.gguf", &error);
    if (status != AERIE_OK) {
        bool told = !gguf && error.status == status && strstr(error.text, "mutant.gguf: ");
        *why = "it was refused without a proper error record";
        if (status == AERIE_ERROR_FORMAT || status == AERIE_ERROR_UNSUPPORTED || status == AERIE_ERROR_LIMIT)
            return told ? REFUSED : BROKEN;
        *why = "it was refused with a status that does not suit";
        return BROKEN;
    }
    *why = gguf_check_all(gguf, bytes, n);
    ae_gguf_close(gguf);
    return *why ? BROKEN : OPENED;
}

#define N_SAMPLES 16

static uint8_t *make_sample(size_t i, uint64_t seed, size_t *n, const char **name)
{
    ae_buf buf = {0};
    gguf_make_sample(&buf, seed * N_SAMPLES + i);
    *name = "sample";
    *n = buf.n;
    return (uint8_t *)buf.data;
}

int main(int argc, char **argv)
{
    return mutate(argc, argv, N_SAMPLES, make_sample, &(use_info){use_gguf, 4096, 4});
}
