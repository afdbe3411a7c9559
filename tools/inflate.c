/* inflate.c - writes a model again with every feed-forward neuron standing r times: the same function, the cost of a
 * larger model, for benchmarks with real text (how and why: tests/support/inflate.h).
 *
 *     inflate -r 9 [options] IN.gguf OUT.gguf
 *         -r N            copies of each neuron, 1 to 64
 *         --type NAME     types of the weights, as 'aerie quantize' has them: q4_0, q4_k_m, f16 ... (default copy: each
 *                         tensor keeps its own)
 *         --group N       N neurons, then the same again ...; 1: the copies of a neuron side by side (default 256, or
 * all where that does not divide their number)
 *         --keep-rest     only feed-forward layers get the type; all else keeps its own, so that nothing there is
 *                         quantized twice
 *         --plain         copies are rounded the same way; else each compensates the rounding of those before it
 *         -t N            threads (default: one per core)
 *         --help
 *
 * Exit status 0, 1 (could not write), 2 (command line), 3 (the file cannot be read or inflated).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "inflate.h"

static const char text[] =
    "usage: inflate -r N [--type NAME] [--keep-rest] [--group N] [--plain] [-t N] IN.gguf OUT.gguf\n"
    "Writes a model again with every feed-forward neuron standing N times, its column of ffn_down divided by N:\n"
    "the same function at the cost of a larger model.\n"
    "  -r N           copies of each neuron, 1 to 64\n"
    "  --type NAME    types of the weights, as 'aerie quantize' has them; copy: each tensor keeps its own (default: "
    "copy)\n"
    "  --group N      N neurons, then the same again ...; 1: the copies of a neuron side by side (default: 256)\n"
    "  --keep-rest    only feed-forward layers get the type; all else keeps its own\n"
    "  --plain        copies are rounded the same way; else each compensates the rounding of those before it\n"
    "  -t N           threads (default: one per core)\n";

static int usage(const char *what, const char *value)
{
    fprintf(stderr, "inflate: %s%s\n%s", what, value, text);
    return 2;
}

static bool parse_count(const char *word, uint32_t most, uint32_t *value)
{
    char *end;
    const unsigned long n = strtoul(word, &end, 10);
    *value = (uint32_t)n;
    return *word >= '0' && *word <= '9' && !*end && n >= 1 && n <= most;
}

/* One option with its value; NULL, or what is wrong with it. */
static const char *set(inflate_options *o, const char *name, const char *value)
{
    if (!strcmp(name, "-r"))
        return parse_count(value, INFLATE_MOST, &o->n_copies) ? NULL : "-r takes a number from 1 to 64, not ";
    if (!strcmp(name, "-t"))
        return parse_count(value, 1024, &o->n_threads) ? NULL : "-t takes a number from 1 to 1024, not ";
    if (!strcmp(name, "--type")) {
        o->mix = ae_mix_by_name(value);
        return o->mix ? NULL : "'aerie help quantize' lists the types; there is no ";
    }
    if (strcmp(name, "--group")) return "unknown option before ";
    return parse_count(value, 1u << 20, &o->group) ? NULL : "--group takes a number from 1 to 1048576, not ";
}

int main(int argc, char **argv)
{
    inflate_options o = {.mix = ae_mix_by_name("COPY"), .n_threads = (uint32_t)ae_os_n_cores()};
    const char *paths[2];
    int n_paths = 0;
    uint64_t n_params = 0;
    aerie_error error = {0};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(text, stdout) < 0;
        if (argv[i][0] != '-') {
            if (n_paths == 2) return usage("one file to read and one to write, not also ", argv[i]);
            paths[n_paths++] = argv[i];
            continue;
        }
        bool *flag = !strcmp(argv[i], "--plain") ? &o.plain : !strcmp(argv[i], "--keep-rest") ? &o.keep_rest : NULL;
        if (flag) {
            *flag = true;
            continue;
        }
        if (i + 1 == argc) return usage("a value is missing after ", argv[i]);
        const char *wrong = set(&o, argv[i], argv[i + 1]);
        if (wrong) return usage(wrong, argv[i + 1]);
        i++;
    }
    if (n_paths < 2) return usage("a file to read and one to write are needed", "");
    if (!o.n_copies) return usage("how many copies? -r is missing", "");
    const aerie_status status = inflate(&o, paths[0], paths[1], &n_params, &error);
    if (status == AERIE_OK) printf("%s: %.1f M parameters\n", paths[1], (double)n_params / 1e6);
    else fprintf(stderr, "inflate: %s\n", error.text);
    return status == AERIE_OK ? 0 : status == AERIE_ERROR_ARGUMENT ? 2 : status == AERIE_ERROR_MEMORY ? 1 : 3;
}
