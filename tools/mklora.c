/* mklora.c - writes a random LoRA adapter for a model as a GGUF file: for trying things.
 *
 * See usage below; what an option means stands in tests/support/mklora.h. The same options and model give the same bytes.
 * Exit status 0, 1 (could not write), 2 (command line).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mklora.h"

static const char help[] =
    "usage: mklora [options] MODEL.gguf ADAPTER.gguf\n"
    "Writes an adapter of random weights for MODEL.\n"
    "  --rank N        (default 8)\n"
    "  --alpha X       (default: twice the rank)\n"
    "  --gain X        what is added, compared with what a matrix gives (default 0.5)\n"
    "  --type NAME     f32 (default), f16, bf16, q8_0 ...\n"
    "  --seed N\n"
    "  --match WORDS   matrices whose names contain one of them (default: attention, dense feed-forward blocks, output)\n"
    "  --uneven 0|1    every second pair of half the rank\n";

int main(int argc, char **argv)
{
    mklora_options o = {0};
    aerie_error error = {0};
    int i = 1;
    if (argc == 2 && !strcmp(argv[1], "--help")) return fputs(help, stdout) < 0;
    for (; i + 1 < argc && !strncmp(argv[i], "--", 2); i += 2) {
        const char *value = argv[i + 1];
        if (!strcmp(argv[i], "--rank")) o.rank = (uint32_t)strtoul(value, NULL, 10);
        else if (!strcmp(argv[i], "--alpha")) o.alpha = strtof(value, NULL);
        else if (!strcmp(argv[i], "--gain")) o.gain = strtof(value, NULL);
        else if (!strcmp(argv[i], "--type")) o.type = value;
        else if (!strcmp(argv[i], "--seed")) o.seed = strtoull(value, NULL, 10);
        else if (!strcmp(argv[i], "--match")) o.match = value;
        else if (!strcmp(argv[i], "--uneven")) o.uneven = !strcmp(value, "1");
        else break;
    }
    if (argc - i != 2 || !strncmp(argv[i], "--", 2)) {
        fprintf(stderr, "mklora: a model and the adapter to write are needed, after options with values; mklora --help lists "
                        "them\n");
        return 2;
    }
    if (mklora_write(&o, argv[i], argv[i + 1], &error) == AERIE_OK) return 0;
    fprintf(stderr, "mklora: %s\n", error.text);
    return 1;
}
