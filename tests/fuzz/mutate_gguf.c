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
        if (status == AERIE_ERROR_FORMAT || status == AERIE_ERROR_UNSUPPORTED || status == AERIE_ERROR_LIMIT) return told ? REFUSED : BROKEN;
        *why = "it was refused with a status that does not suit";
        return BROKEN;
    }
    *why = gguf_check_all(gguf, bytes, n);
    ae_gguf_close(gguf);
    return *why ? BROKEN : OPENED;
}

#define N_SAMPLES 16

int main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: mutate_gguf N SEED [file...]\n", stderr);
        return 2;
    }
    uint64_t n = strtoull(argv[1], NULL, 10), seed = strtoull(argv[2], NULL, 10);
    size_t n_bases = 0, n_most = N_SAMPLES + (size_t)(argc - 3);
    base_file *bases = calloc(n_most, sizeof *bases);
    int status = bases ? 0 : 1;
    for (size_t i = 0; i < n_most && status == 0; i++) {
        uint8_t *data;
        size_t bytes;
        const char *name = i < N_SAMPLES ? "sample" : argv[3 + i - N_SAMPLES];
        if (i < N_SAMPLES) {
            ae_buf buf = {0};
            gguf_make_sample(&buf, seed * N_SAMPLES + i);
            data = (uint8_t *)buf.data; /* malloc'd: as good as read_all's */
            bytes = buf.n;
        } else {
            data = read_all(name, &bytes);
        }
        status = data && base_init(&bases[n_bases++], data, bytes, name) ? 0 : 1;
    }
    if (status == 0) status = run(n, seed, bases, n_bases, &(use_info){use_gguf, 4096, 4});
    bases_free(bases, n_bases);
    return status;
}
