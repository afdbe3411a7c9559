/* mkmodel.c - writes a random model as a GGUF file: for benchmarks of any shape, and for trying things.
 *
 *     mkmodel [options] FILE
 *         --shape NAME   tiny, tiny-gqa, tiny-mha, tiny-moe, 135m, 1b, 3b, 8b, moe, moe-8x1b (default tiny; see
 *                        tests/support/mkmodel.h); what follows changes it
 *         --arch NAME    llama, qwen2, qwen2moe, qwen3, qwen3moe, olmoe, deepseek, dots1 (default: the shape's)
 *         --type NAME    a tensor type (q4_0, q8_0, q4_K, iq2_xs, f16 ...), or q4_k_m, q5_k_m (default q4_0)
 *         --seed N       (default 1) the same options and seed give the same bytes
 *         --layers N --embd N --ff N --heads N --kv-heads N --head-dim N --vocab N --ctx N
 *         --rope-base X  --layer-decay X   (see tests/support/mkmodel.h)
 *         --experts N --used N --ff-expert N --ff-shared N --dense-layers N --fused 0|1
 *         --tied 0|1 --biases 0|1 --rope-freqs 0|1 --forgetful 0|1
 *         --pre NAME     pre-tokenizer (default smollm)
 *         --vocab-kind NAME  bpe, bpe-other, bpe-tags, spm, foreign (default bpe); --vocab-order N shuffles the ids
 *
 * A model with fewer --layers and the same seed shares its layers with the larger one: a draft model.
 * Exit status 0, 1 (could not write), 2 (command line).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mkmodel.h"

static int usage(const char *what, const char *value)
{
    fprintf(stderr, "mkmodel: %s%s\nusage: mkmodel [--shape %s] [--type q4_0] [--seed N] [--layers N ...] FILE\n", what, value,
            mk_shapes_known());
    return 2;
}

static bool parse_count(const char *text, uint64_t most, uint64_t *value)
{
    char *end;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && *value <= most;
}

/* A numeric option; false if the name or the value is not good. */
static bool set_number(mk_options *o, const char *name, const char *value)
{
    const struct {
        const char *name;
        uint32_t *to;
    } counts[] = {{"--layers", &o->n_layers}, {"--embd", &o->n_embd}, {"--ff", &o->n_ff}, {"--heads", &o->n_heads},
                  {"--kv-heads", &o->n_kv_heads}, {"--head-dim", &o->head_dim}, {"--vocab", &o->n_vocab}, {"--ctx", &o->n_ctx},
                  {"--experts", &o->n_experts}, {"--used", &o->n_used}, {"--ff-expert", &o->n_ff_expert},
                  {"--ff-shared", &o->n_ff_shared}, {"--dense-layers", &o->n_dense}};
    const struct {
        const char *name;
        bool *to;
    } flags[] = {{"--tied", &o->tied}, {"--biases", &o->biases}, {"--rope-freqs", &o->rope_freqs},
                 {"--forgetful", &o->forgetful},
                 {"--fused", &o->fused}};
    uint64_t n;
    if (!strcmp(name, "--rope-base")) return (o->rope_base = strtof(value, NULL)) > 1.0f;
    if (!strcmp(name, "--layer-decay")) return (o->layer_decay = strtof(value, NULL)) > 0.0f;
    if (!strcmp(name, "--seed")) return parse_count(value, UINT64_MAX, &o->seed);
    if (!strcmp(name, "--vocab-order")) return parse_count(value, UINT64_MAX, &o->vocab_order);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (!strcmp(name, counts[i].name)) return parse_count(value, UINT32_MAX, &n) && ((*counts[i].to = (uint32_t)n), true);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (!strcmp(name, flags[i].name)) return parse_count(value, 1, &n) && ((*flags[i].to = n), true);
    return false;
}

int main(int argc, char **argv)
{
    mk_options o;
    const char *path = NULL, *shape = "tiny";
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "--shape")) shape = argv[i + 1];
    if (!mk_shape(shape, &o)) return usage("there is no shape ", shape);
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            if (path) return usage("one file at a time, not also ", argv[i]);
            path = argv[i];
            continue;
        }
        if (i + 1 == argc) return usage("a value is missing after ", argv[i]);
        const char *name = argv[i], *value = argv[++i];
        if (!strcmp(name, "--shape")) continue;
        if (!strcmp(name, "--type")) o.type = value;
        else if (!strcmp(name, "--pre")) o.pre = value;
        else if (!strcmp(name, "--arch")) o.arch = value;
        else if (!strcmp(name, "--vocab-kind")) o.vocab = value;
        else if (!set_number(&o, name, value)) return usage("unknown option or bad value: ", name);
    }
    if (!path) return usage("no file is named", "");
    aerie_error error;
    aerie_status status = mk_model(&o, path, &error);
    if (status != AERIE_OK) fprintf(stderr, "mkmodel: %s\n", error.text);
    return status == AERIE_OK ? 0 : status == AERIE_ERROR_ARGUMENT ? 2 : 1;
}
