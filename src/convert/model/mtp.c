/* mtp.c - converts a model's MTP blocks, which predict tokens further ahead, to the nextn tensors of docs/heads.md.
 * Checkpoints store them in two ways: as layers after the last one, with eh_proj and its norms (DeepSeek-V3, GLM-4.5 and
 * later), or as one block mtp.* (Qwen3-Next, Qwen3.5). An embedding or output that equals the model's is not written again. */
#include <stdio.h>
#include <string.h>

#include "convert/archs/arch.h"

#define PLAIN(from, to) {from, to, AE_RULE_PLAIN, false}
#define END {NULL, NULL, AE_RULE_PLAIN, false}

static const ae_convert_rule as_layer[] = {
    PLAIN("eh_proj", "nextn.eh_proj"), PLAIN("enorm", "nextn.enorm"), PLAIN("hnorm", "nextn.hnorm"),
    PLAIN("shared_head.norm", "nextn.shared_head_norm"), PLAIN("shared_head.head", "nextn.shared_head_head"),
    PLAIN("embed_tokens", "nextn.embed_tokens"), END,
};
static const ae_convert_rule apart[] = {
    PLAIN("fc", "nextn.eh_proj"), PLAIN("pre_fc_norm_embedding", "nextn.enorm"), PLAIN("pre_fc_norm_hidden", "nextn.hnorm"),
    PLAIN("norm", "nextn.shared_head_norm"), PLAIN("shared_head.head", "nextn.shared_head_head"),
    PLAIN("embed_tokens", "nextn.embed_tokens"), END,
};

static const ae_st_tensor *look_in(const ae_convert *c, const char *block, const char *part)
{
    char name[96];
    snprintf(name, sizeof name, "%s%s", block, part);
    return ae_convert_look(c, name);
}

/* Returns the prefix "layers.N." of block k. */
static const char *layer_name(const ae_convert *c, uint32_t k, char out[32])
{
    snprintf(out, 32, "layers.%u.", c->model.n_layers + k);
    return out;
}

/* Returns whether a block has eh_proj, or as in DeepSeek V4 its halves e_proj and h_proj. */
static bool starts_ahead(const ae_convert *c, const char *block)
{
    return look_in(c, block, "eh_proj.weight") || look_in(c, block, "e_proj.weight");
}

static bool is_apart(const ae_convert *c)
{
    return ae_convert_look(c, "mtp.fc.weight") != NULL;
}

void ae_convert_count_ahead(ae_convert *c)
{
    char block[32];
    uint32_t n = 0;
    if (c->arch->flags & AE_ARCH_DECIDES) return;
    if (is_apart(c)) {
        n = !look_in(c, "mtp.layers.1.", "input_layernorm.weight"); /* a block with two layers is another kind of model */
    } else {
        while (c->model.n_layers + n < AE_MAX_LAYERS && starts_ahead(c, layer_name(c, n, block))) n++;
    }
    c->model.n_ahead = n;
    if (!n || c->options.mtp || c->arch->flags & AE_ARCH_AHEAD) return;
    ae_log_say(&c->options.log, AERIE_LOG_INFO,
               "%s: the MTP blocks are left out, because llama.cpp loads no files of architecture %s with them; --mtp writes "
               "them",
               c->path, c->arch->arch);
    c->model.n_ahead = 0;
}

/* Marks tensors as used that equal those of the model. */
static void pass_over_same(ae_convert *c, const char *block, const char *part, const char *of_model)
{
    const ae_st_tensor *mine = look_in(c, block, part), *other = ae_convert_look(c, of_model);
    char name[96];
    if (!mine || !other || mine->dtype != other->dtype || mine->dtype >= AE_ST_DTYPE_COUNT || mine->bytes != other->bytes ||
        memcmp(mine->data, other->data, mine->bytes) != 0)
        return;
    snprintf(name, sizeof name, "%s%s", block, part);
    ae_convert_take(c, name);
}

static aerie_status apply_all(ae_convert *c, const ae_convert_rule *rules, const char *in, const char *out)
{
    for (const ae_convert_rule *r = rules; r && r->from; r++) AE_TRY(ae_convert_apply(c, r, in, out));
    return AERIE_OK;
}

aerie_status ae_convert_plan_ahead(ae_convert *c)
{
    const bool tied = !ae_convert_look(c, "lm_head.weight");
    for (uint32_t k = 0; k < c->model.n_ahead; k++) {
        char out[32], as[32];
        const char *block = is_apart(c) ? "mtp." : layer_name(c, k, as), *layer = is_apart(c) ? "mtp.layers.0." : block;
        snprintf(out, sizeof out, "blk.%u.", c->model.n_layers + k);
        pass_over_same(c, block, "embed_tokens.weight", "embed_tokens.weight");
        pass_over_same(c, block, "shared_head.head.weight", tied ? "embed_tokens.weight" : "lm_head.weight");
        AE_TRY(apply_all(c, is_apart(c) ? apart : as_layer, block, out));
        AE_TRY(apply_all(c, c->arch->rules, layer, out));
        AE_TRY(apply_all(c, ae_convert_shared_rules, layer, out));
        if (c->arch->more_tensors && !is_apart(c)) AE_TRY(c->arch->more_tensors(c, c->model.n_layers + k));
    }
    return AERIE_OK;
}

aerie_status ae_convert_check_ahead(const ae_convert *c, const char *path, char *unread, aerie_error *error)
{
    ae_model *model;
    if (!c->model.n_ahead) return AERIE_OK;
    AE_TRY(ae_model_load(&model, path, &(ae_model_options){.nextn = true, .unread = unread}, error));
    ae_model_free(model);
    return AERIE_OK;
}
