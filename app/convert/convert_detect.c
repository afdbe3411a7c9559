/* convert_detect.c - which kind of head a checkpoint holds, and its sizes: from tensors where they tell, else from config. */
#include <stdlib.h>
#include <string.h>

#include "convert/convert.h"

/* ---- The layer: EAGLE of all versions --------------------------------------------------------------- */

static int check_layer_kind(const convert *c)
{
    uint32_t n_layers = 1;
    const char *act = convert_text(c, "hidden_act");
    CONVERT_TRY(convert_u32(c, "num_hidden_layers", 1, AE_MAX_LAYERS, &n_layers));
    if (n_layers != 1) {
        return app_error(APP_BAD_FILE, "%s: 'num_hidden_layers' is %u; only heads with one layer are supported", c->config_path,
                         (unsigned)n_layers);
    }
    if (act && strcmp(act, "silu") && strcmp(act, "swish")) {
        return app_error(APP_BAD_FILE, "%s: 'hidden_act' is '%.40s'; only silu is supported", c->config_path, act);
    }
    return APP_DONE;
}

static int read_layer(convert *c)
{
    convert_head *h = &c->head;
    CONVERT_TRY(convert_need_u32(c, "hidden_size", 2, AE_MAX_EMBD, &h->n_embd));
    CONVERT_TRY(check_layer_kind(c));
    CONVERT_TRY(convert_need_u32(c, "num_attention_heads", 1, AE_MAX_HEADS, &h->n_heads));
    CONVERT_TRY(convert_need_u32(c, "intermediate_size", 1, AE_MAX_FF, &h->n_ff));
    h->n_kv_heads = h->n_heads;
    CONVERT_TRY(convert_u32(c, "num_key_value_heads", 1, h->n_heads, &h->n_kv_heads));
    if (h->n_heads % h->n_kv_heads) {
        return app_error(APP_BAD_FILE, "%s: 'num_attention_heads' %u is not a multiple of 'num_key_value_heads' %u",
                         c->config_path, (unsigned)h->n_heads, (unsigned)h->n_kv_heads);
    }
    CONVERT_TRY(convert_u32(c, "head_dim", 2, AE_MAX_HEAD_DIM, &h->head_dim));
    if (!h->head_dim) {
        h->head_dim = h->n_embd / h->n_heads;
        if (h->n_embd % h->n_heads || h->head_dim < 2 || h->head_dim > AE_MAX_HEAD_DIM) {
            return app_error(APP_BAD_FILE,
                             "%s: 'head_dim' is missing, and 'hidden_size' %u is not a suitable multiple of "
                             "'num_attention_heads' %u",
                             c->config_path, (unsigned)h->n_embd, (unsigned)h->n_heads);
        }
    }
    h->norm_eps = 1e-6;
    CONVERT_TRY(convert_real(c, convert_value(c, "rms_norm_eps"), "rms_norm_eps", 0, 1, &h->norm_eps));
    h->n_ctx = 2048;
    CONVERT_TRY(convert_u32(c, "max_position_embeddings", 1, INT32_MAX, &h->n_ctx));
    CONVERT_TRY(convert_u32(c, "target_hidden_size", 2, AE_MAX_EMBD, &h->n_target_embd));
    return convert_u32(c, "vocab_size", 1, INT32_MAX, &h->n_vocab);
}

/* ---- EAGLE-3: norms ------------------------------------------------------------------------------------ */

static int read_fc_norm(convert *c)
{
    convert_head *h = &c->head;
    bool each = false, joint = false;
    CONVERT_TRY(convert_bool(c, "fc_norm", &each, NULL));
    CONVERT_TRY(convert_bool(c, "norm_before_fc", &joint, NULL));
    const bool parts = convert_look(c, "fc_norm.0.weight"), whole = convert_look(c, "fc_norm.weight");
    const bool named = convert_look(c, "input_norm.weight");
    if ((each && joint) || (parts && (whole || named || joint)) || (named && (whole || each))) {
        return app_error(APP_BAD_FILE, "%s: there is a norm for each tap (fc_norm) as well as one over all taps "
                         "(norm_before_fc, input_norm); a head has only one of them", c->path);
    }
    if (each && !parts && !whole) {
        return app_error(APP_BAD_FILE, "%s: the config says 'fc_norm', but fc_norm.0.weight is missing", c->path);
    }
    if (joint && !named && !whole) {
        return app_error(APP_BAD_FILE, "%s: the config says 'norm_before_fc', but input_norm.weight is missing", c->path);
    }
    if (whole && !each && !joint) {
        return app_error(APP_BAD_FILE, "%s: fc_norm.weight is one norm over all taps or one for each; the config must say "
                         "'norm_before_fc' or 'fc_norm'", c->path);
    }
    h->fc_norm = joint || named ? AE_FC_NORM_JOINT : each || parts ? AE_FC_NORM_EACH : AE_FC_NORM_NONE;
    return APP_DONE;
}

/* An option decides both, else the config, else the default of the producer. */
static int read_residual(convert *c)
{
    const char *given = c->options->convert_residual;
    bool *normed = &c->head.norm_before_residual;
    *normed = c->head.producer == CONVERT_SPECULATORS;
    if (!given) return convert_bool(c, "norm_before_residual", normed, NULL);
    *normed = strcmp(given, "on") == 0;
    if (*normed || strcmp(given, "off") == 0) return APP_DONE;
    return app_error(APP_USAGE, "--norm-before-residual takes on or off; found '%s'", given);
}

/* norm_output: at SpecForge whether the output head sees normed rows; elsewhere what is fed back. */
static int read_feedback(convert *c)
{
    const char *given = c->options->convert_feedback;
    const bool specforge = c->head.producer == CONVERT_SPECFORGE;
    bool norm_output = false, said = false, *post = &c->head.feedback_post;
    CONVERT_TRY(convert_bool(c, "norm_output", &norm_output, &said));
    if (specforge && said && !norm_output) {
        return app_error(APP_BAD_FILE, "%s: 'norm_output' is false, which in SpecForge means a head without a norm "
                         "before its lm_head; such heads are not supported (if another program saved it, give --producer)",
                         c->config_path);
    }
    *post = norm_output && !specforge;
    if (!given) return APP_DONE;
    *post = strcmp(given, "post") == 0;
    if (*post || strcmp(given, "pre") == 0) return APP_DONE;
    return app_error(APP_USAGE, "--feedback takes pre or post; found '%s'", given);
}

/* ---- Vocabulary ------------------------------------------------------------------------------------------ */

#define MAX_PADDING 1024 /* rows by which checkpoints and GGUF files of one vocabulary differ */

static int settle_vocab(convert *c)
{
    convert_head *h = &c->head;
    const ae_st_tensor *embed = convert_look(c, "embed_tokens.weight"), *t2d = convert_look(c, "t2d");
    if (!h->n_vocab && embed && embed->n_dims == 2 && embed->shape[0] <= INT32_MAX) h->n_vocab = (uint32_t)embed->shape[0];
    if (!h->n_vocab && t2d && t2d->n <= INT32_MAX) h->n_vocab = (uint32_t)t2d->n;
    if (!c->target) return APP_DONE;
    const uint32_t of_target = c->target->hparams.n_vocab;
    if (!h->n_vocab) h->n_vocab = of_target;
    const uint32_t more = h->n_vocab > of_target ? h->n_vocab - of_target : of_target - h->n_vocab;
    if (more > MAX_PADDING) {
        return app_error(APP_BAD_FILE, "%s: the head is for %u tokens, but %s has %u: it was trained for another "
                                       "model", c->path,
                         (unsigned)h->n_vocab, c->options->convert_target, (unsigned)of_target);
    }
    return APP_DONE;
}

/* Rows of the output head: its own, or the target's. */
static int settle_draft(convert *c)
{
    convert_head *h = &c->head;
    const ae_st_tensor *lm_head = convert_look(c, "lm_head.weight");
    uint32_t said = 0;
    CONVERT_TRY(convert_u32(c, "draft_vocab_size", 1, INT32_MAX, &said));
    h->n_draft = said ? said : h->n_vocab;
    if (!lm_head) return APP_DONE;
    if (lm_head->n_dims != 2 || lm_head->shape[0] < 1 || lm_head->shape[0] > INT32_MAX) {
        char shape[128];
        return app_error(APP_BAD_FILE, "%s: tensor %s is %s; draft tokens x hidden size is needed", c->path, lm_head->name,
                         convert_shape(lm_head, shape));
    }
    const uint32_t rows = (uint32_t)lm_head->shape[0];
    if (said && rows != said) {
        return app_error(APP_BAD_FILE, "%s: lm_head.weight has %u rows, but 'draft_vocab_size' is %u", c->path, (unsigned)rows,
                         (unsigned)said);
    }
    h->n_draft = rows;
    if (!h->n_vocab) h->n_vocab = rows;
    return APP_DONE;
}

/* ---- Kinds -------------------------------------------------------------------------------------------------- */

static int detect_eagle3(convert *c)
{
    convert_head *h = &c->head;
    CONVERT_TRY(read_layer(c));
    CONVERT_TRY(settle_vocab(c));
    CONVERT_TRY(settle_draft(c));
    CONVERT_TRY(read_fc_norm(c));
    CONVERT_TRY(read_residual(c));
    CONVERT_TRY(read_feedback(c));
    if (c->target) {
        const uint32_t wide = c->target->hparams.n_embd;
        if (h->n_target_embd && h->n_target_embd != wide) {
            return app_error(APP_BAD_FILE, "%s: 'target_hidden_size' is %u, but %s has %u: it was trained for another model",
                             c->config_path, (unsigned)h->n_target_embd, c->options->convert_target, (unsigned)wide);
        }
        h->n_target_embd = wide;
        h->n_target_layers = c->target->hparams.n_layers;
    }
    return convert_read_taps(c);
}

static int detect_eagle(convert *c)
{
    convert_head *h = &c->head;
    const ae_st_tensor *fc = convert_look(c, "fc.weight");
    char shape[128];
    CONVERT_TRY(read_layer(c));
    CONVERT_TRY(settle_vocab(c));
    CONVERT_TRY(settle_draft(c));
    if (fc->n_dims != 2 || fc->shape[0] != h->n_embd || fc->shape[1] <= h->n_embd || fc->shape[1] - h->n_embd > AE_MAX_EMBD) {
        return app_error(APP_BAD_FILE, "%s: tensor %s is %s; [%u, %u + width of the target] is needed", c->path, fc->name,
                         convert_shape(fc, shape), (unsigned)h->n_embd, (unsigned)h->n_embd);
    }
    h->n_target_embd = (uint32_t)(fc->shape[1] - h->n_embd);
    h->taps_from = "its output";
    if (c->target) h->n_target_layers = c->target->hparams.n_layers;
    if (!c->target || c->target->hparams.n_embd == h->n_target_embd) return APP_DONE;
    return app_error(APP_BAD_FILE, "%s: fc.weight takes features of width %u, but %s has %u: it was trained for another model",
                     c->path, (unsigned)h->n_target_embd, c->options->convert_target, (unsigned)c->target->hparams.n_embd);
}

/* The names of Medusa itself, or of vLLM. */
const ae_st_tensor *convert_medusa(convert *c, uint32_t j, int b, const char *part)
{
    static const char *const prefixes[] = {"", "medusa_head.", "medusa_heads.", "heads."};
    const uint32_t n_blocks = c->head.n_blocks;
    char name[96];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        if (b < 0) snprintf(name, sizeof name, "%s%u.%u.%s", prefixes[i], (unsigned)j, (unsigned)n_blocks, part);
        else snprintf(name, sizeof name, "%s%u.%d.linear.%s", prefixes[i], (unsigned)j, b, part);
        const ae_st_tensor *t = convert_take(c, name);
        if (t) return t;
    }
    if (b < 0) snprintf(name, sizeof name, "lm_heads.%u.%s", (unsigned)j, part);
    else snprintf(name, sizeof name, "blocks.%u.layers.%d.%s", (unsigned)j, b, part);
    const ae_st_tensor *t = convert_take(c, name);
    return t || b >= 0 ? t : convert_take(c, "lm_head.weight"); /* vLLM: one for all of them */
}

static int detect_medusa(convert *c)
{
    convert_head *h = &c->head;
    while (h->n_blocks <= AE_DHEAD_MAX_BLOCKS && convert_medusa(c, 0, (int)h->n_blocks, "weight")) h->n_blocks++;
    while (h->n_medusa <= AE_DHEAD_MAX_MEDUSA && convert_medusa(c, h->n_medusa, 0, "weight")) h->n_medusa++;
    if (h->n_blocks > AE_DHEAD_MAX_BLOCKS || h->n_medusa > AE_DHEAD_MAX_MEDUSA) {
        return app_error(APP_BAD_FILE, "%s: there are more than %d Medusa heads, or more than %d blocks in one of "
                                       "them", c->path,
                         AE_DHEAD_MAX_MEDUSA, AE_DHEAD_MAX_BLOCKS);
    }
    const ae_st_tensor *w = convert_medusa(c, 0, 0, "weight"), *out = convert_medusa(c, 0, -1, "weight");
    if (!out)
        return app_error(APP_BAD_FILE, "%s: Medusa head 0 has no output weights (0.%u.weight)", c->path, (unsigned)h->n_blocks);
    if (w->n_dims != 2 || w->shape[0] < 2 || w->shape[0] > AE_MAX_EMBD || out->n_dims != 2 || out->shape[0] < 1 ||
        out->shape[0] > INT32_MAX) {
        char shape[128], of_out[128];
        return app_error(APP_BAD_FILE, "%s: tensor %s is %s and %s is %s; width x width and tokens x width are needed", c->path,
                         w->name, convert_shape(w, shape), out->name, convert_shape(out, of_out));
    }
    h->n_embd = h->n_target_embd = (uint32_t)w->shape[0];
    h->n_draft = (uint32_t)out->shape[0];
    h->producer = CONVERT_MEDUSA;
    h->taps_from = "its output";
    if (c->config) CONVERT_TRY(convert_u32(c, "vocab_size", 1, INT32_MAX, &h->n_vocab));
    CONVERT_TRY(settle_vocab(c));
    if (!h->n_vocab) h->n_vocab = h->n_draft;
    if (c->target) h->n_target_layers = c->target->hparams.n_layers;
    if (!c->target || c->target->hparams.n_embd == h->n_embd) return APP_DONE;
    return app_error(APP_BAD_FILE, "%s: the heads have width %u, but %s has %u: they were trained for another model", c->path,
                     (unsigned)h->n_embd, c->options->convert_target, (unsigned)c->target->hparams.n_embd);
}

int convert_detect(convert *c)
{
    convert_head *h = &c->head;
    if (convert_look(c, "layers.0.hidden_norm.weight")) {
        h->kind = AE_DHEAD_EAGLE3;
        return detect_eagle3(c);
    }
    if (convert_look(c, "fc.weight") && convert_look(c, "layers.0.self_attn.q_proj.weight")) {
        h->kind = AE_DHEAD_EAGLE;
        return detect_eagle(c);
    }
    if (convert_medusa(c, 0, 0, "weight")) {
        h->kind = AE_DHEAD_MEDUSA;
        return detect_medusa(c);
    }
    return app_error(APP_BAD_FILE,
                     "%s: this is not a drafter head: an EAGLE-3 head has midlayer.hidden_norm.weight, an EAGLE-1 or "
                     "2 head fc.weight, "
                     "a Medusa head 0.0.linear.weight; found %zu tensors%s%s",
                     c->path, c->n_entries, c->n_entries ? ", the first " : "", c->n_entries ? c->entries[0].tensor->name : "");
}
