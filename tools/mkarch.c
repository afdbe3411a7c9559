/* mkarch.c - writes a tiny random model of an architecture as a GGUF file: for trying things and for golden logits.
 *
 * See usage below; what the models are made of stands in tests/mkarch_table.c. The same name gives the same bytes.
 * Exit status 0, 1 (could not write), 2 (command line).
 */
#include <stdio.h>
#include <string.h>

#include "mkarch.h"

static const char help[] =
    "usage: mkarch [--decoded] NAME FILE.gguf\n"
    "       mkarch --list\n"
    "Writes a tiny model of random weights, which are F32 but for a few experts; --decoded: those too. --list prints each name\n"
    "with its architecture.\n";

int main(int argc, char **argv)
{
    aerie_error error = {0};
    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) return fputs(help, stdout) < 0;
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (size_t i = 0; i < mkarch_n_specs; i++) printf("%s %s\n", mkarch_specs[i].name, mkarch_specs[i].arch);
        return 0;
    }
    const bool decoded = argc == 4 && !strcmp(argv[1], "--decoded");
    if (argc != 3 && !decoded) {
        fputs(help, stderr);
        return 2;
    }
    const mkarch_spec *spec = mkarch_find(argv[argc - 2]);
    if (!spec) {
        fprintf(stderr, "mkarch: there is no model \"%s\"; mkarch --list prints all\n", argv[argc - 2]);
        return 2;
    }
    if (mkarch_write(spec, decoded, argv[argc - 1], &error) == AERIE_OK) return 0;
    fprintf(stderr, "mkarch: %s\n", error.text);
    return 1;
}
