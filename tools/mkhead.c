/* mkhead.c - writes a random drafter head for a target model as a GGUF file: for trying things.
 *
 * See usage below; what an option means stands in tests/support/mkhead.h. The same options and seed give the same bytes.
 * Exit status 0, 1 (could not write), 2 (command line), 3 (the target is unusable).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mkhead.h"

static const char help[] =
    "usage: mkhead [options] TARGET.gguf HEAD.gguf\n"
    "Writes a head of random weights that drafts for TARGET.\n"
    "  --kind eagle|eagle3|eagle3.1|medusa|mtp|dflash|dspark|dflash2|dfly|lilicorr   (default eagle3)\n"
    "  --type NAME              type of the matrices: q8_0 (default), q4_0, q4_K, f16 ...\n"
    "  --schema new|old|double  names of keys and tensors, and what d2t holds (default new: token ids)\n"
    "  --seed N                 (default 1)\n"
    "  --draft-vocab N          tokens drafted from; 0 (default): all of the target's, and no d2t\n"
    "  --embd N --ff N --heads N --kv-heads N --head-dim N   (default: the target's)\n"
    "  --taps A,B,C             layers of the target whose input the head sees (eagle3, dflash, dspark)\n"
    "  --window N --sinks N     rows of attention that the head looks back to\n"
    "  --medusa-heads N --medusa-blocks N   (default 4 and 1)\n"
    "  --mtp-blocks N           (default 1)\n"
    "  --layers N --block N --markov N --sliding N   of block drafters (default 2, 8, 8, 0)\n"
    "  --conv N --conv-group N --pair N --candidates N   of dflash2 (default 2, 16, 8, 6)\n"
    "  --correct N --no-correction 0|1   of dfly (default: as wide as the target)\n"
    "  --lattice N --lattice-heads N --lattice-layers N --factors N   of lilicorr (default 32, 2, 2, 8), beside\n"
    "                           --candidates, and --conv and --conv-group if it has convolutions\n"
    "  --parallel N --layers N  of eagle3: P-EAGLE, tokens of a pass (default: none); layers (default 1)\n"
    "  --from-anchor 0|1 --causal 0|1 --no-confidence 0|1   of block drafters\n"
    "  --norm-before-residual 0|1  --norm-before-fc 0|1  --whole-fc-norm 0|1\n"
    "  --own-embedding 0|1      token_embd.weight of its own\n"
    "  --own-output 0|1         output.weight of its own (default: 1 for eagle3, 0 for eagle)\n"
    "  --biases 0|1  --rope-freqs 0|1  --qk-norm 0|1\n"
    "  --map-i32 0|1            d2t as I32, not I64\n"
    "  --tokenizer 0|1          copies the target's tokenizer\n";

static int usage(const char *what, const char *value)
{
    fprintf(stderr, "mkhead: %s%s; mkhead --help lists the options\n", what, value);
    return 2;
}

static bool parse_count(const char *text, uint64_t most, uint64_t *value)
{
    char *end;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && *value <= most;
}

static bool parse_taps(const char *text, mkhead_options *o)
{
    for (o->n_taps = 0; o->n_taps < AERIE_MAX_TAPS; text++) {
        char *end;
        if (*text < '0' || *text > '9') return false;
        const unsigned long n = strtoul(text, &end, 10);
        if (n > AE_MAX_LAYERS) return false;
        o->taps[o->n_taps++] = (uint32_t)n;
        text = end;
        if (!*text) return true;
        if (*text != ',') return false;
    }
    return false;
}

/* An option with a value; false if the name or the value is not good. */
static bool set_option(mkhead_options *o, const char *name, const char *value)
{
    const struct {
        const char *name, **to;
    } words[] = {{"--kind", &o->kind}, {"--type", &o->type}, {"--schema", &o->schema}};
    const struct {
        const char *name;
        uint32_t *to;
    } counts[] = {{"--draft-vocab", &o->n_draft}, {"--embd", &o->n_embd}, {"--ff", &o->n_ff}, {"--heads", &o->n_heads},
                  {"--kv-heads", &o->n_kv_heads}, {"--head-dim", &o->head_dim}, {"--window", &o->window},
                  {"--sinks", &o->n_sinks}, {"--medusa-heads", &o->n_medusa}, {"--medusa-blocks", &o->n_blocks},
                  {"--mtp-blocks", &o->n_nextn}, {"--layers", &o->n_layers}, {"--block", &o->n_block},
                  {"--markov", &o->n_markov}, {"--conv", &o->n_conv}, {"--conv-group", &o->conv_group},
                  {"--pair", &o->n_pair}, {"--candidates", &o->n_candidates}, {"--correct", &o->n_correct},
                  {"--parallel", &o->n_parallel},
                  {"--lattice", &o->n_lattice}, {"--lattice-heads", &o->lattice_heads},
                  {"--lattice-layers", &o->lattice_layers}, {"--factors", &o->n_factors},
                  {"--sliding", &o->sliding}};
    const struct {
        const char *name;
        bool *to;
    } flags[] = {{"--norm-before-residual", &o->norm_before_residual}, {"--norm-before-fc", &o->norm_before_fc},
                 {"--whole-fc-norm", &o->whole_fc_norm}, {"--own-embedding", &o->own_embedding},
                 {"--own-output", &o->own_output}, {"--biases", &o->biases}, {"--rope-freqs", &o->rope_freqs},
                 {"--qk-norm", &o->qk_norm}, {"--map-i32", &o->map_i32}, {"--tokenizer", &o->tokenizer},
                 {"--causal", &o->causal}, {"--no-correction", &o->no_correction},
                 {"--no-confidence", &o->no_confidence}};
    uint64_t n;
    if (!strcmp(name, "--seed")) return parse_count(value, UINT64_MAX, &o->seed);
    if (!strcmp(name, "--taps")) return parse_taps(value, o);
    if (!strcmp(name, "--from-anchor")) return parse_count(value, 1, &n) && ((o->from_anchor = n ? 1 : -1), true);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strcmp(name, words[i].name)) return *words[i].to = value, true;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (!strcmp(name, counts[i].name)) return parse_count(value, UINT32_MAX, &n) && ((*counts[i].to = (uint32_t)n), true);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (!strcmp(name, flags[i].name)) {
            if (!parse_count(value, 1, &n)) return false;
            *flags[i].to = n;
            if (flags[i].to == &o->own_output) o->no_output = !n;
            return true;
        }
    return false;
}

int main(int argc, char **argv)
{
    mkhead_options o = {.seed = 1};
    const char *paths[2];
    int n_paths = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(help, stdout) < 0;
        if (argv[i][0] != '-') {
            if (n_paths == 2) return usage("one target and one head, not also ", argv[i]);
            paths[n_paths++] = argv[i];
            continue;
        }
        if (i + 1 == argc) return usage("a value is missing after ", argv[i]);
        if (!set_option(&o, argv[i], argv[i + 1])) return usage("unknown option or bad value: ", argv[i]);
        i++;
    }
    if (n_paths < 2) return usage("the files of the target and of the head must be named", "");
    aerie_error error;
    const aerie_status status = mkhead_write(&o, paths[0], paths[1], &error);
    if (status != AERIE_OK) fprintf(stderr, "mkhead: %s\n", error.text);
    switch (status) {
    case AERIE_OK: return 0;
    case AERIE_ERROR_ARGUMENT: return 2;
    case AERIE_ERROR_FORMAT: case AERIE_ERROR_UNSUPPORTED: return 3;
    default: return 1;
    }
}
