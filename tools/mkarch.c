/* mkarch.c - writes a random model of an architecture as a GGUF file: a tiny one, for trying things and for golden logits, or
 * one in the full shape of a published model, for load times, memory and speed.
 *
 * See usage below; what the models are made of stands in tests/support/mkarch_table.c and tests/support/mkarch_shapes.c. The
 * same arguments give the same bytes. Exit status 0, 1 (could not write), 2 (command line).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mkarch.h"
#include "mkmmproj.h"

static const char help[] =
    "usage: mkarch [--decoded] NAME FILE.gguf\n"
    "       mkarch mmproj-TYPE[:WIDTH] FILE.gguf\n"
    "       mkarch --shape NAME [--type TYPE] [--layers N] FILE.gguf\n"
    "       mkarch --list | --shapes\n"
    "The first writes a tiny model of random weights, which are F32 but for a few experts; --decoded: those too. The second "
    "writes a\n"
    "published model's full shape, its matrices as random blocks of TYPE (default q4_0); --layers N: only the first N layers.\n"
    "mmproj-TYPE is a tiny vision encoder (gemma3, gemma4v, gemma4uv, glm4v, idefics3, internvl, lfm2, minicpmv, pixtral,\n"
    "qwen2.5vl, qwen3vl, ...: a wrong TYPE prints all) for a model of WIDTH (default 64; minicpmv: of 128).\n"
    "--list prints the name of each tiny model with its architecture, --shapes that of each shape.\n";

typedef struct arguments {
    const char *shape, *type, *files[2]; /* files: what is not an option */
    uint32_t n_layers;
    int n_files;
    bool decoded;
} arguments;

static int usage(const char *what, const char *value)
{
    fprintf(stderr, "mkarch: %s%s\n%s", what, value, help);
    return 2;
}

static int parse(int argc, char **argv, arguments *a)
{
    for (int i = 1; i < argc; i++) {
        char *end;
        const bool shape = !strcmp(argv[i], "--shape"), type = !strcmp(argv[i], "--type");
        if (!strcmp(argv[i], "--decoded")) {
            a->decoded = true;
        } else if (shape || type || !strcmp(argv[i], "--layers")) {
            const char *name = argv[i];
            if (++i == argc) return usage("a value is missing after ", name);
            if (shape) a->shape = argv[i];
            else if (type) a->type = argv[i];
            else a->n_layers = (uint32_t)strtoul(argv[i], &end, 10);
            if (!shape && !type && (*end || !a->n_layers)) return usage("--layers takes a number of layers, not ", argv[i]);
        } else if (*argv[i] == '-') {
            return usage("unknown option: ", argv[i]);
        } else if (a->n_files == 2) {
            return usage("one model at a time, not also ", argv[i]);
        } else {
            a->files[a->n_files++] = argv[i];
        }
    }
    if (a->n_files != (a->shape ? 1 : 2)) return usage("a name and a file are needed", "");
    if (a->shape && a->decoded) return usage("--decoded is for tiny models", "");
    if (!a->shape && (a->type || a->n_layers)) return usage("--type and --layers are for --shape", "");
    return 0;
}

static int list(const mkarch_spec *specs, size_t n)
{
    for (size_t i = 0; i < n; i++) printf("%s %s\n", specs[i].name, specs[i].arch);
    return 0;
}

static int write_mmproj(const char *name, const char *path)
{
    char type[32];
    aerie_error error = {0};
    const char *colon = strchr(name, ':');
    snprintf(type, sizeof type, "%.*s", (int)(colon ? (size_t)(colon - name) : strlen(name)), name);
    const unsigned long width = colon ? strtoul(colon + 1, NULL, 10) : 64;
    if (mkmmproj_write(type, (uint32_t)width, path, &error) == AERIE_OK) return 0;
    fprintf(stderr, "mkarch: %s\n", error.text);
    return error.status == AERIE_ERROR_ARGUMENT ? 2 : 1;
}

int main(int argc, char **argv)
{
    arguments a = {0};
    aerie_error error = {0};
    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) return fputs(help, stdout) < 0;
    if (argc == 2 && !strcmp(argv[1], "--list")) return list(mkarch_specs, mkarch_n_specs);
    if (argc == 2 && !strcmp(argv[1], "--shapes")) return list(mkarch_shapes, mkarch_n_shapes);
    const int wrong = parse(argc, argv, &a);
    if (wrong) return wrong;
    if (!a.shape && !strncmp(a.files[0], "mmproj-", 7)) return write_mmproj(a.files[0] + 7, a.files[1]);
    const mkarch_spec *spec = a.shape ? mkarch_find_shape(a.shape) : mkarch_find(a.files[0]);
    if (!spec) {
        fprintf(stderr, "mkarch: there is no %s \"%s\"; mkarch %s prints all\n", a.shape ? "shape" : "model",
                a.shape ? a.shape : a.files[0], a.shape ? "--shapes" : "--list");
        return 2;
    }
    const aerie_status status = a.shape ? mkarch_write_shape(spec, a.type ? a.type : "q4_0", a.n_layers, a.files[0], &error)
                                        : mkarch_write(spec, a.decoded, a.files[1], &error);
    if (status != AERIE_OK) fprintf(stderr, "mkarch: %s\n", error.text);
    return status == AERIE_OK ? 0 : status == AERIE_ERROR_ARGUMENT ? 2 : 1;
}
