/* block.c - checkpoints of block drafters: z-lab's DFlash and DFlash2, DeepSpec's DFlash and DSpark, speculators' DSpark,
 * AngelSpec's DFly, NVIDIA's LiLiCorr (lattice.c has its other parts).
 * They are recognized by fc and hidden_norm, a norm of fused features outside the layers. Layers have Qwen3's names. Rows of q
 * and k are not reordered, since the file also rotates by halves. Settings are in dflash_config or at the top level.
 * Taps are outputs of layers; the file counts inputs, which are one higher (docs/heads.md). */
#include <stdio.h>
#include <string.h>

#include "backend/draw.h"
#include "convert/head/parts.h"

bool ae_convert_is_block(const ae_convert *c)
{
    return ae_convert_look(c, "hidden_norm.weight") && ae_convert_look(c, "fc.weight") &&
           ae_convert_look(c, "layers.0.self_attn.q_proj.weight");
}

/* ---- Settings --------------------------------------------------------------------------------------------- */

const json_t *ae_convert_block_setting(const ae_convert *c, const char *key)
{
    const json_t *own = json_object_get(json_object_get(c->config, "dflash_config"), key);
    if (own && !json_is_null(own)) return own;
    return ae_convert_value(c, key);
}

aerie_status ae_convert_block_count(const ae_convert *c, const char *key, uint32_t lo, uint32_t hi, uint32_t *value)
{
    const json_t *json = ae_convert_block_setting(c, key);
    if (json_is_integer(json) && json_integer_value(json) >= lo && json_integer_value(json) <= hi) {
        *value = (uint32_t)json_integer_value(json);
        return AERIE_OK;
    }
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' %s; a number from %u to %u is needed, in dflash_config or beside it",
                   c->config_path, key, json ? "is not such a number" : "is missing", (unsigned)lo, (unsigned)hi);
}

static aerie_status read_flag(const ae_convert *c, const char *key, bool *value)
{
    const json_t *json = ae_convert_block_setting(c, key);
    if (!json || json_is_null(json)) return AERIE_OK;
    if (!json_is_boolean(json))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' is neither true nor false", c->config_path, key);
    *value = json_is_true(json);
    return AERIE_OK;
}

static aerie_status read_factor(const ae_convert *c, const char *key, double *value)
{
    const json_t *json = ae_convert_block_setting(c, key);
    if (!json || json_is_null(json)) return AERIE_OK;
    return ae_convert_real(c, json, key, 0, 1e6, value);
}

/* Reads the numbers of the layers whose outputs are tapped; -1 is the embedding. speculators lists inputs. */
static aerie_status read_taps(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    const json_t *list = ae_convert_block_setting(c, "target_layer_ids"), *item;
    const json_t *inputs = ae_convert_block_setting(c, "aux_hidden_state_layer_ids");
    const int64_t more = list ? 1 : 0;
    size_t i;
    if (c->options.taps_are == AE_CONVERT_TAPS_LIST) {
        h->taps_from = "given";
        h->n_taps = c->options.n_taps;
        memcpy(h->taps, c->options.taps, sizeof h->taps);
        return AERIE_OK;
    }
    h->taps_from = list ? "outputs in the config" : "inputs in the config";
    if (!list) list = inputs;
    if (!json_array_size(list) || json_array_size(list) > AERIE_MAX_TAPS)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'target_layer_ids' has %zu layers; 1 to %d are needed (or --taps)",
                       c->config_path, json_array_size(list), AERIE_MAX_TAPS);
    json_array_foreach(list, i, item) {
        const int64_t layer = json_is_integer(item) ? (int64_t)json_integer_value(item) + more : -1;
        if (layer < 0 || layer > AE_MAX_LAYERS)
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: element %zu of the target's layers is not a layer from 0 to %d",
                           c->config_path, i, AE_MAX_LAYERS);
        h->taps[h->n_taps++] = (uint32_t)layer;
    }
    return AERIE_OK;
}

/* Reads which layers have a window: all, or those that layer_types names. */
static aerie_status read_window(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    bool all = false, some = false;
    AE_TRY(read_flag(c, "use_swa", &all));
    AE_TRY(read_flag(c, "use_sliding_window", &some));
    const json_t *types = ae_convert_value(c, "layer_types"), *own = ae_convert_block_setting(c, "swa_window_size");
    if (!all && !some) return AERIE_OK;
    AE_TRY(ae_convert_block_count(c, own ? "swa_window_size" : "sliding_window", 1, INT32_MAX, &h->window));
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        h->windowed[i] = all || (type && !strcmp(type, "sliding_attention"));
    }
    return AERIE_OK;
}

/* Sets whether the block starts at the anchor: it does in both of DeepSpec's drafters, but not in those of z-lab and
 * speculators. */
static aerie_status read_anchor(ae_convert *c)
{
    const json_t *list = json_object_get(c->config, "architectures"), *item;
    const bool speculators = json_object_get(c->config, "transformer_layer_config") ||
                             ae_convert_block_setting(c, "aux_hidden_state_layer_ids");
    size_t i;
    json_array_foreach(list, i, item) {
        const char *text = json_string_value(item);
        c->head.from_anchor |= text && strstr(text, "DSpark") && !speculators;
    }
    return read_flag(c, "sample_from_anchor", &c->head.from_anchor);
}

static aerie_status refuse_others(const ae_convert *c)
{
    const json_t *type = ae_convert_block_setting(c, "markov_head_type");
    const char *text = json_string_value(type), *what = NULL;
    bool neox = true;
    if (ae_convert_look(c, "layer_fusion_weights") && c->head.kind != AE_DHEAD_DFLY)
        what = "the drafter joins DFly's context (layer_fusion_weights) with a head of another kind";
    if (ae_convert_look(c, "lilicorr.out_head.weight") && c->head.kind != AE_DHEAD_LILICORR)
        what = "the drafter joins LiLiCorr with a head of another kind";
    if (ae_convert_look(c, "layers.0.self_attn.k_proj_target.weight"))
        what = "this is a DFlare drafter, which has projections of its own for the context";
    if (ae_convert_look(c, "layers.0.pre_feedforward_layernorm.weight")) what = "the drafter has Gemma's layers";
    if (text && strcmp(text, "vanilla")) what = "the drafter's Markov head is gated or recurrent";
    AE_TRY(read_flag(c, "rope_is_neox_style", &neox));
    if (!neox) what = "the drafter rotates neighbours (rope_is_neox_style)";
    if (!what) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: %s; DFlash, DSpark, DFlash2, DFly and LiLiCorr with layers "
                   "like Qwen3's are supported", c->path, what);
}

static aerie_status read_convs(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    AE_TRY(ae_convert_block_count(c, "conv_kernel_size", 1, AE_DHEAD_MAX_CONV, &h->n_conv));
    AE_TRY(ae_convert_block_count(c, "conv_group_size", 1, h->n_embd, &h->conv_group));
    if (h->n_embd % h->conv_group == 0) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'conv_group_size' is %u, which does not divide the width %u",
                   c->config_path, (unsigned)h->conv_group, (unsigned)h->n_embd);
}

/* Reads the parts of other kinds that DFlash lacks. */
static aerie_status read_kind(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    if (h->kind == AE_DHEAD_DFLASH2) {
        AE_TRY(read_convs(c));
        AE_TRY(ae_convert_block_count(c, "selector_rank", 1, AE_MAX_EMBD, &h->n_pair));
        return ae_convert_block_count(c, "selector_top_k", 1, AE_PROPOSE_MAX, &h->n_candidates);
    }
    if (h->kind != AE_DHEAD_LILICORR) return AERIE_OK;
    if (ae_convert_look(c, "layers.0.attention_conv.base_kernel")) AE_TRY(read_convs(c));
    return ae_convert_lattice_detect(c);
}

aerie_status ae_convert_block_detect(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    const ae_st_tensor *fc = ae_convert_look(c, "fc.weight"), *w1 = ae_convert_look(c, "markov_head.markov_w1.weight");
    char shape[128];
    h->kind = w1                                                                      ? AE_DHEAD_DSPARK
              : ae_convert_look(c, "candidate_selector.hidden_projection.weight") ? AE_DHEAD_DFLASH2
              : ae_convert_look(c, "layer_fusion_weights")                        ? AE_DHEAD_DFLY
              : ae_convert_look(c, "lilicorr.out_head.weight")                    ? AE_DHEAD_LILICORR
                                                                                  : AE_DHEAD_DFLASH;
    AE_TRY(refuse_others(c));
    AE_TRY(ae_convert_head_layer(c, AE_DHEAD_MAX_LAYERS));
    AE_TRY(ae_convert_head_vocab(c));
    AE_TRY(read_kind(c));
    AE_TRY(read_taps(c));
    if (fc->n_dims != 2 || fc->shape[0] != h->n_embd || !fc->shape[1] || fc->shape[1] % h->n_taps ||
        fc->shape[1] / h->n_taps > AE_MAX_EMBD)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; [%u, %u x width of the target] is needed", c->path,
                       fc->name, ae_convert_shape(fc, shape), (unsigned)h->n_embd, (unsigned)h->n_taps);
    h->n_target_embd = (uint32_t)(fc->shape[1] / h->n_taps);
    if (c->target && c->target->hparams.n_embd != h->n_target_embd)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: fc.weight takes features of width %u, but %s has %u: it was trained "
                       "for another model", c->path, (unsigned)h->n_target_embd, c->options.target,
                       (unsigned)c->target->hparams.n_embd);
    if (c->target) h->n_target_layers = c->target->hparams.n_layers;
    AE_TRY(read_anchor(c));
    h->n_block = 16;
    if (ae_convert_block_setting(c, "block_size"))
        AE_TRY(ae_convert_block_count(c, "block_size", h->from_anchor ? 1 : 2, AE_DHEAD_MAX_BLOCK, &h->n_block));
    AE_TRY(ae_convert_block_count(c, "mask_token_id", 0, h->n_vocab ? h->n_vocab - 1 : INT32_MAX, &h->mask));
    AE_TRY(read_flag(c, "causal", &h->causal));
    AE_TRY(read_flag(c, "causal_head", &h->causal)); /* JetSpec's */
    AE_TRY(read_flag(c, "is_causal", &h->causal));
    AE_TRY(read_factor(c, "input_embedding_scale", &h->embedding_scale));
    AE_TRY(read_factor(c, "output_multiplier", &h->logit_scale));
    AE_TRY(read_factor(c, "final_logit_softcapping", &h->logit_softcap));
    if (w1 && (w1->n_dims != 2 || w1->shape[1] < 1 || w1->shape[1] > AE_MAX_EMBD))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; vocabulary x rank is needed", c->path, w1->name,
                       ae_convert_shape(w1, shape));
    h->n_markov = w1 ? (uint32_t)w1->shape[1] : 0;
    return read_window(c);
}

/* ---- Tensors -------------------------------------------------------------------------------------------------- */

static aerie_status plan_layer(ae_convert *c, uint32_t i)
{
    const ae_convert_head *h = &c->head;
    const uint64_t e = h->n_embd, q = (uint64_t)h->n_heads * h->head_dim, kv = (uint64_t)h->n_kv_heads * h->head_dim;
    const struct {
        const char *from, *to;
        uint64_t rows, columns;
        bool optional;
    } parts[] = {
        {"input_layernorm", "attn_norm", 0, e, false}, {"self_attn.q_proj", "attn_q", q, e, false},
        {"self_attn.k_proj", "attn_k", kv, e, false}, {"self_attn.v_proj", "attn_v", kv, e, false},
        {"self_attn.o_proj", "attn_output", e, q, false}, {"self_attn.q_norm", "attn_q_norm", 0, h->head_dim, true},
        {"self_attn.k_norm", "attn_k_norm", 0, h->head_dim, true}, {"post_attention_layernorm", "ffn_norm", 0, e, false},
        {"mlp.gate_proj", "ffn_gate", h->n_ff, e, false}, {"mlp.up_proj", "ffn_up", h->n_ff, e, false},
        {"mlp.down_proj", "ffn_down", e, h->n_ff, false},
    };
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        char from[64], to[64];
        snprintf(from, sizeof from, "layers.%u.%s", (unsigned)i, parts[k].from);
        snprintf(to, sizeof to, "blk.%u.%s", (unsigned)i, parts[k].to);
        const ae_convert_wanted wanted = {from, to, parts[k].rows, parts[k].columns, "by the sizes in the config", false,
                                          parts[k].optional};
        AE_TRY(ae_convert_copy(c, &wanted, 1));
    }
    return AERIE_OK;
}

/* Plans the convolution around a sublayer. */
static aerie_status plan_conv(ae_convert *c, uint32_t i, const char *from, const char *to)
{
    const ae_convert_head *h = &c->head;
    const uint64_t e = h->n_embd;
    char name[64], own[64], shape[128];
    snprintf(name, sizeof name, "layers.%u.%s.base_kernel", (unsigned)i, from);
    const ae_st_tensor *base = ae_convert_take(c, name);
    if (!base || base->n_dims != 3 || base->shape[0] != 2 || base->shape[1] != h->n_conv || base->shape[2] != e)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; [2, %u, %u] is needed", c->path, name,
                       base ? ae_convert_shape(base, shape) : "missing", (unsigned)h->n_conv, (unsigned)e);
    snprintf(own, sizeof own, "blk.%u.%s_base", (unsigned)i, to);
    AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = own, .from = base, .n_stack = 2, .rows = h->n_conv, .columns = e,
                                                .f32 = true}));
    snprintf(name, sizeof name, "layers.%u.%s.kernel_projection", (unsigned)i, from);
    snprintf(own, sizeof own, "blk.%u.%s_proj", (unsigned)i, to);
    const ae_convert_wanted wanted = {name, own, 2 * (uint64_t)h->n_conv * (e / h->conv_group), e,
                                      "2 x conv_kernel_size x hidden_size / conv_group_size, hidden_size", false, false};
    return ae_convert_copy(c, &wanted, 1);
}

/* Plans a table of the candidate selector; rows after the vocabulary are padding. */
static aerie_status plan_codebook(ae_convert *c, const char *from, const char *to)
{
    const ae_convert_head *h = &c->head;
    char name[96], shape[128];
    snprintf(name, sizeof name, "candidate_selector.%s", from);
    const ae_st_tensor *t = ae_convert_take(c, name);
    if (!t) {
        snprintf(name, sizeof name, "candidate_selector.%s.weight", from);
        t = ae_convert_take(c, name);
    }
    if (!t || t->n_dims != 2 || t->shape[0] < h->n_vocab || t->shape[1] != h->n_pair)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; at least %u rows of %u numbers are needed", c->path,
                       name, t ? ae_convert_shape(t, shape) : "missing", (unsigned)h->n_vocab, (unsigned)h->n_pair);
    return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .rows = h->n_vocab, .columns = h->n_pair});
}

static aerie_status plan_pairs(ae_convert *c)
{
    const ae_convert_head *h = &c->head;
    const ae_convert_wanted rows = {"candidate_selector.hidden_projection", "selector_hidden", h->n_pair, h->n_embd,
                                    "selector_rank, hidden_size", false, false};
    AE_TRY(ae_convert_copy(c, &rows, 1));
    AE_TRY(plan_codebook(c, "predecessor_codebook", "selector_predecessor.weight"));
    return plan_codebook(c, "successor_codebook", "selector_successor.weight");
}

/* DFly: plans the numbers that mix the taps, and the correction, which is optional. */
static aerie_status plan_fusion(ae_convert *c)
{
    const ae_convert_head *h = &c->head;
    const ae_st_tensor *mix = ae_convert_take(c, "layer_fusion_weights");
    const ae_st_tensor *gate = ae_convert_look(c, "hidden_correction.gate_proj.weight");
    const uint64_t e = h->n_embd, n = gate && gate->n_dims == 2 ? gate->shape[0] : 0;
    const char *sizes = "by gate_proj's rows and hidden_size";
    char shape[128];
    const ae_convert_wanted parts[] = {
        {"hidden_correction.hidden_norm", "hidden_correction.hidden_norm", 0, e, "hidden_size", false, false},
        {"hidden_correction.embed_norm", "hidden_correction.embed_norm", 0, e, "hidden_size", false, false},
        {"hidden_correction.gate_proj", "hidden_correction.gate", n, 2 * e, sizes, false, false},
        {"hidden_correction.up_proj", "hidden_correction.up", n, 2 * e, sizes, false, false},
        {"hidden_correction.down_proj", "hidden_correction.down", e, n, sizes, false, false},
    };
    if (mix->n_dims != 2 || mix->shape[0] != h->n_layers || mix->shape[1] != h->n_taps)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; [%u, %u] is needed", c->path, mix->name,
                       ae_convert_shape(mix, shape), (unsigned)h->n_layers, (unsigned)h->n_taps);
    AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = "layer_fusion", .from = mix, .rows = h->n_layers, .columns = h->n_taps,
                                                .f32 = true}));
    if (gate && (!n || n > AE_MAX_EMBD))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; a matrix of at most %d rows is needed", c->path,
                       gate->name, ae_convert_shape(gate, shape), AE_MAX_EMBD);
    return gate ? ae_convert_copy(c, parts, sizeof parts / sizeof *parts) : AERIE_OK;
}

aerie_status ae_convert_block_plan(ae_convert *c)
{
    const ae_convert_head *h = &c->head;
    const uint64_t e = h->n_embd, r = h->n_markov;
    const ae_st_tensor *conf = ae_convert_look(c, "confidence_head.proj.weight");
    const bool plain = conf && conf->n_dims == 2 && conf->shape[1] == e;
    const ae_convert_wanted parts[] = {
        {"fc", "fc", e, (uint64_t)h->n_taps * h->n_target_embd, "hidden_size, taps x width of the target", false, false},
        {"hidden_norm", h->kind == AE_DHEAD_DFLY ? "context_norm" : "enc.output_norm", 0, e, "hidden_size", false, false},
        {"norm", "output_norm", 0, e, "hidden_size", false, false},
        {"confidence_head.proj", "conf_proj", 1, plain ? e : e + r, "1, hidden_size + markov_rank", false, true},
    };
    const ae_st_tensor *w1 = ae_convert_take(c, "markov_head.markov_w1.weight");
    const ae_st_tensor *w2 = ae_convert_take(c, "markov_head.markov_w2.weight");
    AE_TRY(ae_convert_copy(c, parts, r ? 4 : 3));
    for (uint32_t i = 0; i < h->n_layers; i++) AE_TRY(plan_layer(c, i));
    for (uint32_t i = 0; h->n_conv && i < h->n_layers; i++) {
        AE_TRY(plan_conv(c, i, "attention_conv", "attn_conv"));
        AE_TRY(plan_conv(c, i, "mlp_conv", "ffn_conv"));
    }
    if (h->n_pair) AE_TRY(plan_pairs(c));
    if (h->kind == AE_DHEAD_LILICORR) AE_TRY(ae_convert_lattice_plan(c));
    if (h->kind == AE_DHEAD_DFLY) AE_TRY(plan_fusion(c));
    if (r && (!w2 || w1->shape[0] < h->n_vocab || w2->n_dims != 2 || w2->shape[0] < h->n_draft || w2->shape[1] != r))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: markov_head.markov_w1 and markov_w2 are to have %u and %u rows of %u "
                       "numbers; %s", c->path, (unsigned)h->n_vocab, (unsigned)h->n_draft, (unsigned)r,
                       w2 ? "they have others" : "the second is missing");
    if (r) { /* rows beyond the vocabulary are padding */
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = "markov_w1.weight", .from = w1, .rows = h->n_vocab, .columns = r}));
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = "markov_w2.weight", .from = w2, .rows = h->n_draft, .columns = r}));
    }
    if (!h->divisors) return AERIE_OK;
    return ae_convert_add(c, &(ae_convert_item){.name = "rope_freqs.weight", .how = AE_CONVERT_VALUES, .values = h->divisors,
                                                .columns = h->n_rot / 2});
}

/* ---- Keys ------------------------------------------------------------------------------------------------------ */

void ae_convert_block_keys(ae_convert_keys *k, const ae_convert *c)
{
    const ae_convert_head *h = &c->head;
    int32_t taps[AERIE_MAX_TAPS];
    for (uint32_t i = 0; i < h->n_taps; i++) taps[i] = (int32_t)h->taps[i];
    ae_convert_put_array(k, "target_layers", AE_GGUF_I32, taps, h->n_taps);
    ae_convert_put_u32(k, "block_size", h->n_block);
    ae_convert_put_bool(k, "sample_from_anchor", h->from_anchor);
    if (h->causal) ae_convert_put_bool(k, "attention.causal", true);
    if (h->window) {
        ae_convert_put_u32(k, "attention.sliding_window", h->window);
        ae_convert_put_array(k, "attention.sliding_window_pattern", AE_GGUF_BOOL, h->windowed, h->n_layers);
    }
    if (h->embedding_scale != 0) ae_convert_put_f32(k, "embedding_scale", h->embedding_scale);
    if (h->logit_scale != 0) ae_convert_put_f32(k, "logit_scale", h->logit_scale);
    if (h->logit_softcap != 0) ae_convert_put_f32(k, "final_logit_softcapping", h->logit_softcap);
    if (h->kind == AE_DHEAD_LILICORR) ae_convert_lattice_keys(k, h);
    if (h->n_conv) {
        ae_convert_put_u32(k, "conv_kernel_size", h->n_conv);
        ae_convert_put_u32(k, "conv_group_size", h->conv_group);
    }
    if (h->n_pair) {
        ae_convert_put_u32(k, "selector_rank", h->n_pair);
        ae_convert_put_u32(k, "selector_top_k", h->n_candidates);
    }
    if (h->n_markov) ae_convert_put_bool(k, "has_confidence_head", ae_convert_look(c, "confidence_head.proj.weight") != NULL);
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_u32(k->w, "tokenizer.ggml.mask_token_id", h->mask, k->error);
}
