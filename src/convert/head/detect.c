/* detect.c - finds the kind of a head, the program that wrote it, and its sizes: from the tensors if they show it, else from
 * the config. */
#include <stdlib.h>
#include <string.h>

#include "convert/head/parts.h"

/* ---- Who wrote it --------------------------------------------------------------------------------- */

static const char *const producers[AE_CONVERT_N_PRODUCERS] = {"official",    "specforge", "angelslim",
                                                           "speculators", "nvidia",    "medusa"};

const char *ae_convert_producer_name(ae_convert_producer producer)
{
    return producers[producer];
}

bool ae_convert_producer_parse(const char *name, int *producer)
{
    for (int i = 0; i < AE_CONVERT_MEDUSA; i++) {
        if (strcmp(name, producers[i])) continue;
        *producer = i;
        return true;
    }
    return false;
}

static bool is_architecture(const ae_convert *c, const char *name)
{
    const json_t *list = json_object_get(c->config, "architectures"), *item;
    size_t i;
    json_array_foreach(list, i, item) {
        const char *text = json_string_value(item);
        if (text && strcmp(text, name) == 0) return true;
    }
    return false;
}

/* ModelOpt has its own keys in eagle_config; SpecForge writes two other keys there. */
static bool is_modelopt(const ae_convert *c)
{
    static const char *const words[] = {"use_last_layernorm", "use_input_layernorm_in_first_layer", "use_mtp_layernorm"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (json_object_get(c->eagle, words[i])) return true;
    }
    const json_t *use = json_object_get(c->eagle, "use_aux_hidden_state");
    return json_is_false(use);
}

static bool is_speculators(const ae_convert *c)
{
    static const char *const keys[] = {"speculators_config", "speculators_model_type", "speculators_version",
                                       "transformer_layer_config"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (json_object_get(c->config, keys[i])) return true;
    }
    return is_architecture(c, "Eagle3Speculator") || is_architecture(c, "Eagle3DraftModel") ||
           is_architecture(c, "EagleSpeculator");
}

static ae_convert_producer find_producer(const ae_convert *c)
{
    if (c->options.producer != AE_CONVERT_PRODUCER_AUTO) return (ae_convert_producer)c->options.producer;
    if (is_speculators(c)) return AE_CONVERT_SPECULATORS;
    if (is_modelopt(c)) return AE_CONVERT_NVIDIA;
    if (is_architecture(c, "Eagle3LlamaForCausalLM")) return AE_CONVERT_ANGELSLIM;
    if (is_architecture(c, "LlamaForCausalLMEagle3") || c->eagle) return AE_CONVERT_SPECFORGE;
    return AE_CONVERT_OFFICIAL;
}

/* ---- The layer: EAGLE of all versions --------------------------------------------------------------- */

static aerie_status check_layer_kind(ae_convert *c, uint32_t n_most)
{
    uint32_t n_layers = 1;
    const char *act = ae_convert_text(c, "hidden_act");
    AE_TRY(ae_convert_u32(c, "num_hidden_layers", 1, AE_MAX_LAYERS, &n_layers));
    c->head.n_layers = n_layers;
    if (n_layers > n_most) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'num_hidden_layers' is %u; heads of this kind with at most %u are "
                       "supported", c->config_path, (unsigned)n_layers, (unsigned)n_most);
    }
    if (act && strcmp(act, "silu") && strcmp(act, "swish")) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'hidden_act' is '%.40s'; only silu is supported", c->config_path,
                       act);
    }
    return AERIE_OK;
}

aerie_status ae_convert_head_layer(ae_convert *c, uint32_t n_most)
{
    ae_convert_head *h = &c->head;
    AE_TRY(ae_convert_need_u32(c, "hidden_size", 2, AE_MAX_EMBD, &h->n_embd));
    AE_TRY(check_layer_kind(c, n_most));
    AE_TRY(ae_convert_need_u32(c, "num_attention_heads", 1, AE_MAX_HEADS, &h->n_heads));
    AE_TRY(ae_convert_need_u32(c, "intermediate_size", 1, AE_MAX_FF, &h->n_ff));
    h->n_kv_heads = h->n_heads;
    AE_TRY(ae_convert_u32(c, "num_key_value_heads", 1, h->n_heads, &h->n_kv_heads));
    if (h->n_heads % h->n_kv_heads) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: 'num_attention_heads' %u is not a multiple of 'num_key_value_heads' %u", c->config_path,
                       (unsigned)h->n_heads, (unsigned)h->n_kv_heads);
    }
    AE_TRY(ae_convert_u32(c, "head_dim", 2, AE_MAX_HEAD_DIM, &h->head_dim));
    if (!h->head_dim) {
        h->head_dim = h->n_embd / h->n_heads;
        if (h->n_embd % h->n_heads || h->head_dim < 2 || h->head_dim > AE_MAX_HEAD_DIM) {
            return ae_fail(c->error, AERIE_ERROR_FORMAT,
                           "%s: 'head_dim' is missing, and 'hidden_size' %u is not a suitable multiple of "
                           "'num_attention_heads' %u",
                           c->config_path, (unsigned)h->n_embd, (unsigned)h->n_heads);
        }
    }
    h->norm_eps = 1e-6;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "rms_norm_eps"), "rms_norm_eps", 0, 1, &h->norm_eps));
    h->n_ctx = 2048;
    AE_TRY(ae_convert_u32(c, "max_position_embeddings", 1, INT32_MAX, &h->n_ctx));
    AE_TRY(ae_convert_u32(c, "target_hidden_size", 2, AE_MAX_EMBD, &h->n_target_embd));
    return ae_convert_u32(c, "vocab_size", 1, INT32_MAX, &h->n_vocab);
}

/* ---- EAGLE-3: norms ------------------------------------------------------------------------------------ */

static aerie_status read_fc_norm(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    bool each = false, joint = false;
    AE_TRY(ae_convert_bool(c, "fc_norm", &each, NULL));
    AE_TRY(ae_convert_bool(c, "norm_before_fc", &joint, NULL));
    const bool parts = ae_convert_look(c, "fc_norm.0.weight"), whole = ae_convert_look(c, "fc_norm.weight");
    const bool named = ae_convert_look(c, "input_norm.weight");
    if ((each && joint) || (parts && (whole || named || joint)) || (named && (whole || each))) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: there is a norm for each tap (fc_norm) as well as one over all taps "
                       "(norm_before_fc, input_norm); a head has only one of them",
                       c->path);
    }
    if (each && !parts && !whole) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: the config says 'fc_norm', but fc_norm.0.weight is missing", c->path);
    }
    if (joint && !named && !whole) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: the config says 'norm_before_fc', but input_norm.weight is missing",
                       c->path);
    }
    if (whole && !each && !joint) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: fc_norm.weight is one norm over all taps or one for each; the config must say "
                       "'norm_before_fc' or 'fc_norm'",
                       c->path);
    }
    h->fc_norm = joint || named ? AE_FC_NORM_JOINT : each || parts ? AE_FC_NORM_EACH : AE_FC_NORM_NONE;
    return AERIE_OK;
}

/* Sets the start of the residual: by the option, else by the config, else by the producer's default. */
static aerie_status read_residual(ae_convert *c)
{
    const ae_convert_choice given = c->options.norm_before_residual;
    bool *normed = &c->head.norm_before_residual;
    *normed = given == AE_CONVERT_YES || (given == AE_CONVERT_AUTO && c->head.producer == AE_CONVERT_SPECULATORS);
    return given == AE_CONVERT_AUTO ? ae_convert_bool(c, "norm_before_residual", normed, NULL) : AERIE_OK;
}

/* Interprets norm_output: in SpecForge it says whether the output head reads normed rows, elsewhere which rows are fed back. */
static aerie_status read_feedback(ae_convert *c)
{
    const ae_convert_choice given = c->options.feedback_post;
    const bool specforge = c->head.producer == AE_CONVERT_SPECFORGE;
    bool norm_output = false, said = false, *post = &c->head.feedback_post;
    AE_TRY(ae_convert_bool(c, "norm_output", &norm_output, &said));
    if (specforge && said && !norm_output) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: 'norm_output' is false, which in SpecForge means a head without a norm "
                       "before its lm_head; such heads are not supported (if another program saved it, give --producer)",
                       c->config_path);
    }
    *post = given == AE_CONVERT_AUTO ? norm_output && !specforge : given == AE_CONVERT_YES;
    return AERIE_OK;
}

/* ---- Vocabulary ------------------------------------------------------------------------------------------ */

#define MAX_PADDING 1024 /* checkpoints and GGUF files with one vocabulary may differ by this many rows */

static aerie_status settle_vocab(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    const ae_st_tensor *embed = ae_convert_look(c, "embed_tokens.weight"), *t2d = ae_convert_look(c, "t2d");
    if (!h->n_vocab && embed && embed->n_dims == 2 && embed->shape[0] <= INT32_MAX) h->n_vocab = (uint32_t)embed->shape[0];
    if (!h->n_vocab && t2d && t2d->n <= INT32_MAX) h->n_vocab = (uint32_t)t2d->n;
    if (!c->target) return AERIE_OK;
    const uint32_t of_target = c->target->hparams.n_vocab;
    if (!h->n_vocab) h->n_vocab = of_target;
    const uint32_t more = h->n_vocab > of_target ? h->n_vocab - of_target : of_target - h->n_vocab;
    if (more > MAX_PADDING) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: the head is for %u tokens, but %s has %u: it was trained for another "
                       "model",
                       c->path, (unsigned)h->n_vocab, c->options.target, (unsigned)of_target);
    }
    return AERIE_OK;
}

/* Sets the number of rows of the output head: its own, or the target's. */
static aerie_status settle_draft(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    const ae_st_tensor *lm_head = ae_convert_look(c, "lm_head.weight");
    uint32_t said = 0;
    AE_TRY(ae_convert_u32(c, "draft_vocab_size", 1, INT32_MAX, &said));
    h->n_draft = said ? said : h->n_vocab;
    if (!lm_head) return AERIE_OK;
    if (lm_head->n_dims != 2 || lm_head->shape[0] < 1 || lm_head->shape[0] > INT32_MAX) {
        char shape[128];
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; draft tokens x hidden size is needed", c->path,
                       lm_head->name, ae_convert_shape(lm_head, shape));
    }
    const uint32_t rows = (uint32_t)lm_head->shape[0];
    if (said && rows != said) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: lm_head.weight has %u rows, but 'draft_vocab_size' is %u", c->path,
                       (unsigned)rows, (unsigned)said);
    }
    h->n_draft = rows;
    if (!h->n_vocab) h->n_vocab = rows;
    return AERIE_OK;
}

aerie_status ae_convert_head_vocab(ae_convert *c)
{
    AE_TRY(settle_vocab(c));
    return settle_draft(c);
}

/* ---- Kinds -------------------------------------------------------------------------------------------------- */

/* P-EAGLE: a learned vector replaces the taps of mask rows. If the config does not say how far ahead it was trained, assumes 8,
 * the default of the training programs. */
static aerie_status read_masks(ae_convert *c)
{
    static const char *const keys[] = {"mask_token_id", "pard_token", "ptd_token_id"};
    ae_convert_head *h = &c->head;
    size_t i = 0;
    if (!ae_convert_look(c, "mask_hidden")) return AERIE_OK;
    h->n_parallel = 8;
    AE_TRY(ae_convert_u32(c, "para_depths", 2, AE_DHEAD_MAX_PARALLEL, &h->n_parallel));
    while (i < 2 && (!ae_convert_value(c, keys[i]) || json_is_null(ae_convert_value(c, keys[i])))) i++;
    return ae_convert_need_u32(c, keys[i], 0, h->n_vocab ? h->n_vocab - 1 : INT32_MAX, &h->mask);
}

static aerie_status detect_eagle3(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    AE_TRY(ae_convert_head_layer(c, AE_DHEAD_MAX_LAYERS));
    AE_TRY(ae_convert_head_vocab(c));
    AE_TRY(read_masks(c));
    AE_TRY(read_fc_norm(c));
    AE_TRY(read_residual(c));
    AE_TRY(read_feedback(c));
    if (c->target) {
        const uint32_t wide = c->target->hparams.n_embd;
        if (h->n_target_embd && h->n_target_embd != wide) {
            return ae_fail(c->error, AERIE_ERROR_FORMAT,
                           "%s: 'target_hidden_size' is %u, but %s has %u: it was trained for another model", c->config_path,
                           (unsigned)h->n_target_embd, c->options.target, (unsigned)wide);
        }
        h->n_target_embd = wide;
        h->n_target_layers = c->target->hparams.n_layers;
    }
    return ae_convert_head_taps(c);
}

static aerie_status detect_eagle(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    const ae_st_tensor *fc = ae_convert_look(c, "fc.weight");
    char shape[128];
    AE_TRY(ae_convert_head_layer(c, 1));
    AE_TRY(ae_convert_head_vocab(c));
    if (fc->n_dims != 2 || fc->shape[0] != h->n_embd || fc->shape[1] <= h->n_embd || fc->shape[1] - h->n_embd > AE_MAX_EMBD) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; [%u, %u + width of the target] is needed", c->path,
                       fc->name, ae_convert_shape(fc, shape), (unsigned)h->n_embd, (unsigned)h->n_embd);
    }
    h->n_target_embd = (uint32_t)(fc->shape[1] - h->n_embd);
    h->taps_from = "its output";
    if (c->target) h->n_target_layers = c->target->hparams.n_layers;
    if (!c->target || c->target->hparams.n_embd == h->n_target_embd) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_FORMAT,
                   "%s: fc.weight takes features of width %u, but %s has %u: it was trained for another model", c->path,
                   (unsigned)h->n_target_embd, c->options.target, (unsigned)c->target->hparams.n_embd);
}

/* Accepts Medusa's own names, and those of vLLM. */
const ae_st_tensor *ae_convert_head_medusa(ae_convert *c, uint32_t j, int b, const char *part)
{
    static const char *const prefixes[] = {"", "medusa_head.", "medusa_heads.", "heads."};
    const uint32_t n_blocks = c->head.n_blocks;
    char name[96];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        if (b < 0) snprintf(name, sizeof name, "%s%u.%u.%s", prefixes[i], (unsigned)j, (unsigned)n_blocks, part);
        else snprintf(name, sizeof name, "%s%u.%d.linear.%s", prefixes[i], (unsigned)j, b, part);
        const ae_st_tensor *t = ae_convert_take(c, name);
        if (t) return t;
    }
    if (b < 0) snprintf(name, sizeof name, "lm_heads.%u.%s", (unsigned)j, part);
    else snprintf(name, sizeof name, "blocks.%u.layers.%d.%s", (unsigned)j, b, part);
    const ae_st_tensor *t = ae_convert_take(c, name);
    return t || b >= 0 ? t : ae_convert_take(c, "lm_head.weight"); /* vLLM: all heads share it */
}

static aerie_status detect_medusa(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    while (h->n_blocks <= AE_DHEAD_MAX_BLOCKS && ae_convert_head_medusa(c, 0, (int)h->n_blocks, "weight")) h->n_blocks++;
    while (h->n_medusa <= AE_DHEAD_MAX_MEDUSA && ae_convert_head_medusa(c, h->n_medusa, 0, "weight")) h->n_medusa++;
    if (h->n_blocks > AE_DHEAD_MAX_BLOCKS || h->n_medusa > AE_DHEAD_MAX_MEDUSA) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: there are more than %d Medusa heads, or more than %d blocks in one of "
                       "them",
                       c->path, AE_DHEAD_MAX_MEDUSA, AE_DHEAD_MAX_BLOCKS);
    }
    const ae_st_tensor *w = ae_convert_head_medusa(c, 0, 0, "weight"), *out = ae_convert_head_medusa(c, 0, -1, "weight");
    if (!out)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: Medusa head 0 has no output weights (0.%u.weight)", c->path,
                       (unsigned)h->n_blocks);
    if (w->n_dims != 2 || w->shape[0] < 2 || w->shape[0] > AE_MAX_EMBD || out->n_dims != 2 || out->shape[0] < 1 ||
        out->shape[0] > INT32_MAX) {
        char shape[128], of_out[128];
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: tensor %s is %s and %s is %s; width x width and tokens x width are needed", c->path, w->name,
                       ae_convert_shape(w, shape), out->name, ae_convert_shape(out, of_out));
    }
    h->n_embd = h->n_target_embd = (uint32_t)w->shape[0];
    h->n_draft = (uint32_t)out->shape[0];
    h->producer = AE_CONVERT_MEDUSA;
    h->taps_from = "its output";
    if (c->config) AE_TRY(ae_convert_u32(c, "vocab_size", 1, INT32_MAX, &h->n_vocab));
    AE_TRY(settle_vocab(c));
    if (!h->n_vocab) h->n_vocab = h->n_draft;
    if (c->target) h->n_target_layers = c->target->hparams.n_layers;
    if (!c->target || c->target->hparams.n_embd == h->n_embd) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_FORMAT,
                   "%s: the heads have width %u, but %s has %u: they were trained for another model", c->path,
                   (unsigned)h->n_embd, c->options.target, (unsigned)c->target->hparams.n_embd);
}

/* Applied in this order, once each, so that model.midlayer.x becomes layers.0.x. */
static const ae_convert_rename renames[] = {
    {"draft_model.", ""},
    {"model.", ""},
    {"midlayer.", "layers.0."},
    {"transformer.", "layers.0."},
    {"fusion_fc.", "fc."},
    {"fc_norms.", "fc_norm."},
    {"enc.output_norm.", "input_norm."},
    {"context_proj.", "fc."}, /* AngelSpec's names */
    {"context_norm.", "hidden_norm."},
    {"final_norm.", "norm."},
    {"lilicorr.feature_mlp.0.", "lilicorr.feature_norm."},
    {"lilicorr.feature_mlp.1.", "lilicorr.feature_mlp.up_proj."},
    {"lilicorr.feature_mlp.3.", "lilicorr.feature_mlp.down_proj."},
    {"draft_id_to_target_id", "d2t"},
    {"token_map", "d2t_absolute"},
};

aerie_status ae_convert_head_detect(ae_convert *c, bool *mine)
{
    ae_convert_head *h = &c->head;
    AE_TRY(ae_convert_read_names(c, renames, sizeof renames / sizeof *renames));
    const bool eagle3 = ae_convert_look(c, "layers.0.hidden_norm.weight");
    const bool eagle = ae_convert_look(c, "fc.weight") && ae_convert_look(c, "layers.0.self_attn.q_proj.weight");
    const bool block = !eagle3 && ae_convert_is_block(c);
    const bool medusa = !eagle3 && !eagle && ae_convert_head_medusa(c, 0, 0, "weight");
    *mine = eagle3 || eagle || medusa || block;
    if (!*mine) {
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: this is not a drafter head: an EAGLE-3 head has midlayer.hidden_norm.weight, an EAGLE-1 or 2 head "
                       "fc.weight, a block drafter fc.weight and hidden_norm.weight, a Medusa head 0.0.linear.weight; nor is "
                       "it a BERT encoder, which has embeddings.word_embeddings.weight; found %zu tensors%s%s",
                       c->path, c->n_entries, c->n_entries ? ", the first " : "",
                       c->n_entries ? c->entries[0].tensor->name : "");
    }
    AE_TRY(ae_convert_head_target(c));
    h->producer = find_producer(c);
    if (block) return ae_convert_block_detect(c);
    h->kind = eagle3 ? AE_DHEAD_EAGLE3 : eagle ? AE_DHEAD_EAGLE : AE_DHEAD_MEDUSA;
    return eagle3 ? detect_eagle3(c) : eagle ? detect_eagle(c) : detect_medusa(c);
}
