/* mutate_mmproj.c - damaged files of vision encoders (mutate.inc says how).
 *
 *     mutate_mmproj N SEED [file...]
 *
 * Mutants of a tiny encoder of every type, and of the files given, are bound; those accepted get a small picture (mmproj.inc).
 * Exit status 1 when something does not hold.
 */
#define _XOPEN_SOURCE 700 /* mkstemp */
#define MUTATE_NAME "mutate_mmproj"
#include <unistd.h>

#include "mutate.inc"

#include "mkmmproj.h"
#include "mmproj.inc"

static outcome use_mmproj(const uint8_t *bytes, size_t n, const char **why)
{
    bool opened;
    *why = mmproj_use(bytes, n, 9, 14, &opened);
    return *why ? BROKEN : opened ? OPENED : REFUSED;
}

static const char *const types[] = {"gemma3", "idefics3", "pixtral", "pixtral-merge", "glm4v", "kimik25", "mlp", "paddleocr",
                                    "minicpmv25", "granitevision"};

static uint8_t *make_mmproj(size_t i, uint64_t seed, size_t *n, const char **name)
{
    (void)seed; /* the same files always */
    char path[] = "/tmp/aerie_mutate_XXXXXX";
    aerie_error error;
    const int fd = mkstemp(path);
    uint8_t *data = NULL;
    *name = types[i];
    if (fd < 0) return NULL;
    close(fd);
    if (mkmmproj_write(types[i], strcmp(types[i], "minicpmv25") ? 32 : 128, path, &error) == AERIE_OK) data = read_all(path, n);
    else fprintf(stderr, MUTATE_NAME ": %s\n", error.text);
    unlink(path);
    return data;
}

int main(int argc, char **argv)
{
    if (!mmproj_open()) return 1;
    const use_info use = {use_mmproj, (size_t)64 << 20, 4};
    const int status = mutate(argc, argv, sizeof types / sizeof *types, make_mmproj, &use);
    mmproj_close();
    return status;
}
