/* lattice.c - checkpoints of LiLiCorr: the parts that DFlash's (block.c) lack, with settings in dflash_config's lilicorr_*.
 * Two spellings are in use: numbered parts of sequential modules, and named ones (up_proj, down_proj, feature_norm). Queries,
 * keys and values are one matrix in the checkpoint, and three in the file. Source: NVIDIA/TensorRT-LLM (modeling_lilicorr.py,
 * Apache 2.0). */
#include <stdio.h>
#include <string.h>

#include "backend/draw.h"
#include "convert/head/parts.h"

static aerie_status need_real(const ae_convert *c, const char *key, double hi, float *value)
{
    const json_t *json = ae_convert_block_setting(c, key);
    double x = 0;
    if (!json) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' is missing", c->config_path, key);
    AE_TRY(ae_convert_real(c, json, key, 0, hi, &x));
    *value = (float)x;
    return AERIE_OK;
}

aerie_status ae_convert_lattice_detect(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    struct ae_dhead_lattice_hparams *l = &h->lattice;
    const ae_st_tensor *up = ae_convert_look(c, "lilicorr.layers.0.mlp.up_proj.weight");
    if (!up) up = ae_convert_look(c, "lilicorr.layers.0.mlp.0.weight");
    AE_TRY(ae_convert_block_count(c, "lilicorr_hidden_size", 0, AE_MAX_EMBD / 4, &l->width));
    if (!l->width) l->width = h->n_embd;
    AE_TRY(ae_convert_block_count(c, "lilicorr_num_layers", 1, AE_DHEAD_MAX_LATTICE, &l->n_layers));
    AE_TRY(ae_convert_block_count(c, "lilicorr_num_heads", 1, AE_MAX_HEADS, &l->n_heads));
    AE_TRY(ae_convert_block_count(c, "lilicorr_candidate_topk", 1, AE_PROPOSE_MAX, &h->n_candidates));
    AE_TRY(ae_convert_block_count(c, "lilicorr_factor_dim", 1, AE_MAX_EMBD, &l->n_factors));
    AE_TRY(need_real(c, "lilicorr_vector_eps", 0.5, &l->vector_eps));
    AE_TRY(need_real(c, "lilicorr_logit_scale", 1e6, &l->scale));
    if (!up || up->n_dims != 2 || up->shape[0] < 1 || up->shape[0] > AE_MAX_EMBD)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: lilicorr.layers.0.mlp.up_proj.weight %s", c->path,
                       up ? "is no matrix of a possible size" : "is missing");
    l->n_ff = (uint32_t)up->shape[0];
    return AERIE_OK;
}

aerie_status ae_convert_numbers(ae_convert *c, const char *from, const char *to, uint64_t rows, uint64_t columns)
{
    const ae_st_tensor *t = ae_convert_take(c, from);
    const uint64_t n = rows ? rows * columns : columns;
    uint64_t all = 1;
    char shape[128];
    for (uint32_t i = 0; t && i < t->n_dims; i++)
        if (__builtin_mul_overflow(all, t->shape[i], &all)) all = 0;
    if (!t || all != n)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; %llu numbers are needed", c->path, from,
                       t ? ae_convert_shape(t, shape) : "missing", (unsigned long long)n);
    return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .rows = rows, .columns = columns, .f32 = true});
}

/* Plans queries, keys and values, which are stacked in `part` (weight or bias) of in_proj. */
static aerie_status plan_joint(ae_convert *c, uint32_t i, const char *part, uint64_t columns)
{
    static const char names[] = "qkv";
    const uint64_t m = c->head.lattice.width, n = columns ? m * columns : m;
    char from[64], to[64], shape[128];
    snprintf(from, sizeof from, "lilicorr.layers.%u.attn.in_proj_%s", (unsigned)i, part);
    const ae_st_tensor *t = ae_convert_take(c, from);
    if (!t || t->n_dims != (columns ? 2 : 1) || t->shape[0] != 3 * m || (columns && t->shape[1] != columns))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; 3 x lilicorr_hidden_size rows of as many numbers "
                       "are needed", c->path, from, t ? ae_convert_shape(t, shape) : "missing");
    for (uint32_t k = 0; k < 3; k++) {
        snprintf(to, sizeof to, "lilicorr.blk.%u.attn_%c.%s", (unsigned)i, names[k], part);
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .first = k * n, .rows = columns ? m : 0,
                                                    .columns = m}));
    }
    return AERIE_OK;
}

static aerie_status plan_layer(ae_convert *c, uint32_t i)
{
    const uint64_t m = c->head.lattice.width, f = c->head.lattice.n_ff;
    char up[64];
    snprintf(up, sizeof up, "lilicorr.layers.%u.mlp.0.weight", (unsigned)i);
    const bool numbered = ae_convert_look(c, up) != NULL;
    const struct {
        const char *from, *to;
        uint64_t rows, columns;
    } parts[] = {{"attn_norm", "attn_norm", 0, m}, {"attn.out_proj", "attn_output", m, m}, {"mlp_norm", "ffn_norm", 0, m},
                 {numbered ? "mlp.0" : "mlp.up_proj", "ffn_up", f, m},
                 {numbered ? "mlp.2" : "mlp.down_proj", "ffn_down", m, f}};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        char from[64], to[64];
        snprintf(from, sizeof from, "lilicorr.layers.%u.%s", (unsigned)i, parts[k].from);
        snprintf(to, sizeof to, "lilicorr.blk.%u.%s", (unsigned)i, parts[k].to);
        const ae_convert_wanted wanted = {from, to, parts[k].rows, parts[k].columns, "by lilicorr_hidden_size", false, false};
        AE_TRY(ae_convert_copy(c, &wanted, 1));
    }
    AE_TRY(plan_joint(c, i, "weight", m));
    return plan_joint(c, i, "bias", 0);
}

aerie_status ae_convert_lattice_plan(ae_convert *c)
{
    const ae_convert_head *h = &c->head;
    const uint64_t e = h->n_embd, m = h->lattice.width, f = h->lattice.n_factors;
    static const char why[] = "by lilicorr_hidden_size, hidden_size and lilicorr_factor_dim";
    const ae_convert_wanted parts[] = {
        {"lilicorr.token_proj", "lilicorr.token_proj", m, e, why, false, m == e},
        {"lilicorr.pass_hidden_proj", "lilicorr.hidden_proj", m, e, why, false, false},
        {"lilicorr.feature_mlp.up_proj", "lilicorr.feature_up", m, 5, why, false, false},
        {"lilicorr.feature_mlp.down_proj", "lilicorr.feature_down", m, m, why, false, false},
        {"lilicorr.context_proj", "lilicorr.context_proj", m, e, why, false, false},
        {"lilicorr.anchor_norm", "lilicorr.context_norm", 0, m, why, false, false},
        {"lilicorr.output_norm", "lilicorr.output_norm", 0, m, why, false, false},
        {"lilicorr.factor_input_proj", "lilicorr.factor_proj", m, 3 * m, why, false, false},
        {"lilicorr.out_head", "lilicorr.factor_out", f, m, why, false, false},
        {"lilicorr.in_head", "lilicorr.factor_in", f, m, why, false, false},
        {"lilicorr.anchor_out_head", "lilicorr.factor_first", f, m, why, false, false},
    };
    AE_TRY(ae_convert_copy(c, parts, sizeof parts / sizeof *parts));
    AE_TRY(ae_convert_numbers(c, "lilicorr.feature_norm.weight", "lilicorr.feature_norm.weight", 0, 5));
    AE_TRY(ae_convert_numbers(c, "lilicorr.feature_norm.bias", "lilicorr.feature_norm.bias", 0, 5));
    AE_TRY(ae_convert_numbers(c, "lilicorr.slot_embedding", "lilicorr.slot_embd.weight", h->n_block - 1, m));
    AE_TRY(ae_convert_numbers(c, "lilicorr.rank_embedding", "lilicorr.rank_embd.weight", h->n_candidates, m));
    AE_TRY(ae_convert_numbers(c, "lilicorr.relative_slot_bias", "lilicorr.slot_bias.weight", h->lattice.n_heads,
                              2 * h->n_block - 1));
    AE_TRY(ae_convert_numbers(c, "lilicorr.same_slot_bias", "lilicorr.same_slot_bias", 0, h->lattice.n_heads));
    for (uint32_t i = 0; i < h->lattice.n_layers; i++) AE_TRY(plan_layer(c, i));
    return AERIE_OK;
}

void ae_convert_lattice_keys(ae_convert_keys *k, const ae_convert_head *h)
{
    ae_convert_put_u32(k, "lilicorr.embedding_length", h->lattice.width);
    ae_convert_put_u32(k, "lilicorr.block_count", h->lattice.n_layers);
    ae_convert_put_u32(k, "lilicorr.head_count", h->lattice.n_heads);
    ae_convert_put_u32(k, "lilicorr.feed_forward_length", h->lattice.n_ff);
    ae_convert_put_u32(k, "lilicorr.factor_length", h->lattice.n_factors);
    ae_convert_put_u32(k, "lilicorr.top_k", h->n_candidates);
    ae_convert_put_f32(k, "lilicorr.vector_epsilon", (double)h->lattice.vector_eps);
    ae_convert_put_f32(k, "lilicorr.logit_scale", (double)h->lattice.scale);
}
