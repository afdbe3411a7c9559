/* fuzz_mmproj.c - damaged files of vision encoders, and a small picture through those that are accepted (mmproj.inc).
 *
 * An input says what is damaged, so that it is short: its first byte chooses one of the tiny encoders (mkmmproj.h), two more
 * the picture's sides, then each 8 bytes a place (3), how many bytes there are replaced (1: below 5) and by what (4). One that
 * begins with a byte above 127 is a whole file after that byte.
 */
#define _XOPEN_SOURCE 700 /* mkstemp */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mkmmproj.h"
#include "mmproj.inc"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const types[] = {"gemma3", "idefics3", "pixtral", "pixtral-merge", "glm4v", "kimik25", "mlp", "paddleocr",
                                    "minicpmv25", "granitevision"};
#define N_TYPES (sizeof types / sizeof *types)

static uint8_t *files[N_TYPES]; /* kept to the end of the program */
static size_t sizes[N_TYPES];

static void make_files(void)
{
    char path[] = "/tmp/aerie_fuzz_XXXXXX";
    aerie_error error = {0};
    const int fd = mkstemp(path);
    bool ok = fd >= 0 && mmproj_open();
    for (size_t i = 0; ok && i < N_TYPES; i++) {
        ae_file_map map;
        const uint32_t width = strcmp(types[i], "minicpmv25") ? 32 : 128;
        ok = mkmmproj_write(types[i], width, path, &error) == AERIE_OK &&
             ae_file_map_open(&map, path, false, &error) == AERIE_OK;
        if (!ok) break;
        sizes[i] = map.bytes;
        files[i] = malloc(map.bytes);
        ok = files[i] != NULL;
        if (ok) memcpy(files[i], map.data, map.bytes);
        ae_file_map_close(&map);
    }
    if (fd >= 0) close(fd), unlink(path);
    if (ok) return;
    fprintf(stderr, "fuzz_mmproj: %s\n", error.text);
    abort();
}

static void damage(uint8_t *file, size_t n, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        size_t at = (size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16;
        if (data[3] & 0x80) at %= 8192; /* keys and names */
        at %= n;
        for (size_t i = 0; i < (data[3] & 0x7Fu) % 5 && at + i < n; i++) file[at + i] = data[4 + i];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool opened;
    const char *wrong = NULL;
    if (!files[0]) make_files();
    if (size && data[0] > 127) {
        wrong = mmproj_use(data + 1, size - 1, 8, 8, &opened);
    } else if (size > 2) {
        const size_t i = data[0] % N_TYPES;
        uint8_t *file = malloc(sizes[i]); /* of exactly its size, so that a sanitizer sees the first byte read too far */
        if (!file) return 0;
        memcpy(file, files[i], sizes[i]);
        damage(file, sizes[i], data + 3, size - 3);
        wrong = mmproj_use(file, sizes[i], 1 + data[1] % 64, 1 + data[2] % 64, &opened);
        free(file);
    }
    if (wrong) {
        fprintf(stderr, "fuzz_mmproj: %s\n", wrong);
        abort();
    }
    return 0;
}
