/* replay.c - runs a fuzz target over files, for builds without libFuzzer.
 *
 * Arguments: files, and folders (their files, not deeper). Prints how many ran; exit status 1 when
 * there was none, or one could not be read.
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t n_run;

static int run_file(const char *path, size_t size)
{
    /* exactly as large as the file, so that a sanitizer sees the first byte read too far */
    uint8_t *data = malloc(size ? size : 1);
    FILE *f = fopen(path, "rb");
    size_t n = data && f ? fread(data, 1, size, f) : 0;
    if (f) fclose(f);
    if (!data || !f || n != size) {
        fprintf(stderr, "replay: cannot read %s\n", path);
        free(data);
        return 1;
    }
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    n_run++;
    return 0;
}

static int run_folder(const char *path);

static int run_path(const char *path, int deeper)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
        return 1;
    }
    if (S_ISDIR(st.st_mode)) return deeper ? run_folder(path) : 0;
    return S_ISREG(st.st_mode) ? run_file(path, (size_t)st.st_size) : 0;
}

static int run_folder(const char *path)
{
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort), failed = 0;
    if (n < 0) {
        fprintf(stderr, "replay: cannot list %s\n", path);
        return 1;
    }
    for (int i = 0; i < n; i++) {
        char name[4096];
        if (entries[i]->d_name[0] != '.') {
            snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
            failed |= run_path(name, 0);
        }
        free(entries[i]);
    }
    free(entries);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++) failed |= run_path(argv[i], 1);
    printf("%zu inputs\n", n_run);
    if (!n_run) fputs("replay: no file was found; give the folder of the kept corpus\n", stderr);
    return failed || !n_run;
}
