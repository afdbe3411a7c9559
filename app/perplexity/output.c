/* output.c - checks the file that a long run writes at its end, so that problems are reported before the run. */
#include <string.h>
#include <sys/stat.h>

#include "perplexity/perplexity.h"
#include "convert/quantize/imatrix.h" /* the kind of a GGUF file that is not a model, which aerie.h does not report */

static bool is_gguf(const char *path)
{
    char start[4] = {0};
    FILE *f = fopen(path, "rb");
    const bool is = f && fread(start, 1, sizeof start, f) == sizeof start && !memcmp(start, "GGUF", 4);
    if (f) fclose(f);
    return is;
}

static bool is_imatrix(const char *path)
{
    ae_imatrix *imatrix;
    if (ae_imatrix_open(&imatrix, path, NULL) != AERIE_OK) return false;
    ae_imatrix_close(imatrix);
    return true;
}

int app_check_output(const app_options *o, const char *option, const char *path)
{
    const char *const read[] = {o->model, o->draft_model, o->file};
    struct stat there;
    if (!*path) return app_error(APP_USAGE, "%s needs the name of a file", option);
    if (stat(path, &there)) return app_check_writable(option, path);
    if (!S_ISREG(there.st_mode)) return app_error(APP_USAGE, "%s %s is there already and is not a regular file", option, path);
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        struct stat in;
        if (read[i] && stat(read[i], &in) == 0 && in.st_dev == there.st_dev && in.st_ino == there.st_ino)
            return app_error(APP_USAGE, "%s %s is a file that is being read; give the new one another name", option, path);
    }
    if (is_gguf(path) && !is_imatrix(path))
        return app_error(APP_USAGE, "%s %s is there already and is a model or another GGUF file; give the new one another name",
                         option, path);
    return app_check_writable(option, path);
}
