/* hparams.c - reads a head's keys and, if a key is absent, the shapes of its tensors. See docs/heads.md. */
#include <stdio.h>
#include <string.h>

#include "draft/head/head_int.h"

static const ae_gguf_tensor *find(const ae_binder *b, const char *name)
{
    return ae_gguf_tensor_find(b->gguf, name);
}

static const char *path_of(const ae_binder *b)
{
    return ae_gguf_path(b->gguf);
}

static aerie_status get_u32(ae_binder *b, const char *suffix, uint32_t *value)
{
    return ae_gguf_get_u32(b->gguf, ae_bind_key(b, suffix), false, value, b->error);
}

static bool has_key(ae_binder *b, const char *suffix)
{
    return ae_gguf_kv_find(b->gguf, ae_bind_key(b, suffix)) != NULL;
}

/* Reads a bool that may be absent. */
static aerie_status get_flag(ae_binder *b, const char *suffix, bool *given, bool *value)
{
    *given = has_key(b, suffix);
    return ae_gguf_get_bool(b->gguf, b->key, false, value, b->error);
}

/* ---- Taps --------------------------------------------------------------------------------------- */

static aerie_status read_tap_list(ae_binder *b, const ae_gguf_kv *kv, ae_dhead_hparams *h)
{
    const uint32_t most = h->n_target_layers ? h->n_target_layers : AE_MAX_LAYERS;
    if (kv->type != AE_GGUF_ARRAY)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is a single %s; a list of layers is needed", path_of(b), b->key,
                       ae_gguf_type_name(kv->type));
    if (!kv->n || kv->n > AERIE_MAX_TAPS)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s lists %llu layers; 1 to %d are possible", path_of(b), b->key,
                       (unsigned long long)kv->n, AERIE_MAX_TAPS);
    h->n_taps = (uint32_t)kv->n;
    for (uint32_t i = 0; i < h->n_taps; i++) {
        int64_t layer;
        if (!ae_gguf_kv_int(kv, i, &layer))
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s[%u] is not a layer but a value of type %s", path_of(b), b->key,
                           i, ae_gguf_type_name(kv->element_type));
        if (layer < 0 || layer > most)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s[%u] is layer %lld, but the target has only 0 to %u (%u: after "
                           "the last); is the head one of another model?", path_of(b), b->key, i, (long long)layer, most, most);
        h->taps[i] = (uint32_t)layer;
    }
    return AERIE_OK;
}

aerie_status ae_dhead_read_taps(ae_binder *b, ae_dhead_hparams *h)
{
    static const char *const names[] = {"target_layers", "extract_layers", "target_layer_ids"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_find(b->gguf, ae_bind_key(b, names[i]));
        if (kv) return read_tap_list(b, kv, h);
    }
    const uint32_t n = h->n_target_layers;
    if (!n)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: neither %s.target_layers (the layers that the head reads) nor "
                       "%s.target_layer_count is given", path_of(b), b->arch->name, b->arch->name);
    if (n < 3)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s.target_layers is missing, and a target of %u layers has no usual "
                       "ones (2, L/2 and L-3)", path_of(b), b->arch->name, n);
    h->n_taps = 3;
    h->taps[0] = 2, h->taps[1] = n / 2, h->taps[2] = n - 3;
    return AERIE_OK;
}

/* Reads the width of a tapped row: from a key, or from the length of fc's rows. */
static aerie_status read_target_width(ae_binder *b, ae_dhead_hparams *h)
{
    const uint32_t before = h->kind == AE_DHEAD_EAGLE ? h->layer.n_embd : 0;
    AE_TRY(get_u32(b, "target_hidden_size", &h->n_target_embd));
    if (!has_key(b, "target_hidden_size")) {
        const ae_gguf_tensor *fc = find(b, "fc.weight");
        if (!fc) return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor fc.weight is missing; architecture %s needs it",
                                path_of(b), b->arch->name);
        const int64_t width = fc->ne[0] - before;
        if (width < 1 || width % h->n_taps || width / h->n_taps > AE_MAX_EMBD)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: rows of fc.weight have %lld elements; %u for the token's "
                           "embedding and %u equal parts for the taps are expected", path_of(b), (long long)fc->ne[0], before,
                           h->n_taps);
        h->n_target_embd = (uint32_t)(width / h->n_taps);
    }
    if (h->kind == AE_DHEAD_EAGLE && h->n_target_embd != h->layer.n_embd)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: an EAGLE-1/2 head takes its own output for a feature, but "
                       "embedding_length is %u and target_hidden_size %u", path_of(b), h->layer.n_embd, h->n_target_embd);
    return ae_bind_range(b, "target_hidden_size", h->n_target_embd, 1, AE_MAX_EMBD);
}

/* ---- Norms and feedback --------------------------------------------------------------------------- */

static aerie_status read_feedback(ae_binder *b, ae_dhead_hparams *h)
{
    bool given, normed = false;
    ae_gguf_string text = {0};
    AE_TRY(get_flag(b, "norm_output", &given, &normed));
    h->feedback_normed = normed;
    AE_TRY(ae_gguf_get_string(b->gguf, ae_bind_key(b, "feedback"), false, &text, b->error));
    if (text.data) {
        const bool pre = text.n == 3 && !memcmp(text.data, "pre", 3), post = text.n == 4 && !memcmp(text.data, "post", 4);
        if (!pre && !post)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is \"%.*s\"; pre and post are known", path_of(b), b->key,
                           (int)(text.n < 32 ? text.n : 32), text.data);
        if (given && normed != post)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is \"%s\", but norm_output is %s: they contradict each other",
                           path_of(b), b->key, post ? "post" : "pre", normed ? "true" : "false");
        h->feedback_normed = post;
    }
    if (h->kind != AE_DHEAD_EAGLE3 && h->feedback_normed)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: a normed feedback is asked for, but a head of architecture %s has "
                       "no output norm", path_of(b), b->arch->name);
    return AERIE_OK;
}

/* Finds which norm comes before fc. Keys and tensors must agree. */
static aerie_status read_fc_norm(ae_binder *b, ae_dhead_hparams *h)
{
    const bool numbered = find(b, "fc_norm.0.weight"), whole = find(b, "fc_norm.weight");
    const bool encoder = find(b, "enc.output_norm.weight");
    bool each_given, each = false, joint_given, joint = false;
    AE_TRY(get_flag(b, "fc_norm", &each_given, &each));
    AE_TRY(get_flag(b, "norm_before_fc", &joint_given, &joint));
    const char *wrong = NULL;
    if (each && joint) wrong = "fc_norm (a norm for each tap) and norm_before_fc (one for all) are both true";
    else if (numbered && (whole || encoder)) wrong = "there are norms for each tap (fc_norm.0.weight) and one for all";
    else if (numbered && each_given && !each) wrong = "fc_norm is false, but there is a tensor fc_norm.0.weight";
    else if (numbered && joint) wrong = "norm_before_fc is true, but the norms are of each tap (fc_norm.0.weight)";
    else if (encoder && joint_given && !joint) wrong = "norm_before_fc is false, but there is a tensor enc.output_norm.weight";
    else if (encoder && each) wrong = "fc_norm is true, but the norm is of all taps together (enc.output_norm.weight)";
    else if (whole && encoder) wrong = "fc_norm.weight and enc.output_norm.weight are both there";
    else if (whole && !each && !joint)
        wrong = "there is a tensor fc_norm.weight, but neither fc_norm (by tap) nor norm_before_fc (all taps together) is true";
    if (wrong) return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s", path_of(b), wrong);
    h->fc_norm = each || numbered ? AE_FC_NORM_EACH : joint || encoder ? AE_FC_NORM_JOINT : AE_FC_NORM_NONE;
    return AERIE_OK;
}

/* Refuses norms that an EAGLE-1/2 head does not have: the result would be wrong without them. */
static aerie_status refuse_norms(ae_binder *b)
{
    static const char *const names[] = {"blk.0.attn_norm.weight", "blk.0.attn_norm_2.weight", "blk.0.hidden_norm.weight",
                                        "output_norm.weight", "enc.output_norm.weight", "fc_norm.weight", "fc_norm.0.weight"};
    bool given, before = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (find(b, names[i]))
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor %s is not part of an EAGLE-1/2 head; is the architecture "
                           "eagle3?", path_of(b), names[i]);
    AE_TRY(get_flag(b, "norm_before_residual", &given, &before));
    if (before)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is true, but an EAGLE-1/2 head has no norm of the feature",
                       path_of(b), b->key);
    return AERIE_OK;
}

/* ---- Vocabularies ----------------------------------------------------------------------------------- */

static aerie_status take_rows(ae_binder *b, const char *name, int64_t rows, uint32_t *value)
{
    if (rows > INT32_MAX)
        return ae_fail(b->error, AERIE_ERROR_LIMIT, "%s: %s has %lld entries; %d are possible", path_of(b), name,
                       (long long)rows, INT32_MAX);
    *value = (uint32_t)rows;
    return AERIE_OK;
}

/* Reads the size of the target's vocabulary: vocab_size, or the length of tables that its tokens index. */
static aerie_status read_n_vocab(ae_binder *b, ae_dhead_hparams *h)
{
    const ae_gguf_tensor *embedding = h->kind == AE_DHEAD_MEDUSA ? NULL : find(b, "token_embd.weight");
    const ae_gguf_kv *tokens = ae_gguf_kv_find(b->gguf, "tokenizer.ggml.tokens");
    AE_TRY(get_u32(b, "vocab_size", &h->n_vocab));
    if (has_key(b, "vocab_size")) return ae_bind_range(b, "vocab_size", h->n_vocab, 1, INT32_MAX);
    if (embedding) return take_rows(b, "token_embd.weight", embedding->ne[1], &h->n_vocab);
    if (tokens && tokens->type == AE_GGUF_ARRAY && tokens->n)
        return take_rows(b, "tokenizer.ggml.tokens", tokens->n < INT64_MAX ? (int64_t)tokens->n : INT64_MAX, &h->n_vocab);
    return AERIE_OK;
}

static aerie_status read_vocabularies(ae_binder *b, ae_dhead_hparams *h)
{
    const char *name = h->kind == AE_DHEAD_MEDUSA ? "medusa.0.output.weight" : "output.weight";
    const ae_gguf_tensor *output = find(b, name), *map = ae_dhead_find_map(b->gguf);
    AE_TRY(read_n_vocab(b, h));
    if (output) AE_TRY(take_rows(b, name, output->ne[1], &h->n_draft));
    else if (map) AE_TRY(take_rows(b, "d2t", map->ne[0], &h->n_draft));
    else h->n_draft = h->n_vocab;
    if (!h->n_draft)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: the size of the draft vocabulary is unknown: one of %s.vocab_size, "
                       "output.weight, d2t and token_embd.weight is needed", path_of(b), b->arch->name);
    if (!map && !h->n_vocab) h->n_vocab = h->n_draft;
    if (h->n_vocab && h->n_draft > h->n_vocab)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s has %u rows, but the target only %u tokens", path_of(b),
                       output ? name : "d2t", h->n_draft, h->n_vocab);
    if (!map && h->n_draft != h->n_vocab)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s has %u rows for a vocabulary of %u tokens, and no d2t says which "
                       "they are", path_of(b), name, h->n_draft, h->n_vocab);
    h->layer.n_vocab = h->n_draft;
    return AERIE_OK;
}

/* P-EAGLE: reads the keys of a head that has a vector for mask rows. */
static aerie_status read_masks(ae_binder *b, ae_dhead_hparams *h)
{
    uint32_t mask = 0;
    const bool has_rows = find(b, "mask_hidden");
    if (!has_rows && !has_key(b, "parallel_depth")) return AERIE_OK;
    if (!has_rows)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: there is %s, but not the tensor mask_hidden", path_of(b), b->key);
    if (h->feedback_normed)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: there is a tensor mask_hidden, but a normed feedback is asked for; "
                       "such a head feeds nothing back", path_of(b));
    h->n_parallel = 8;
    AE_TRY(get_u32(b, "parallel_depth", &h->n_parallel));
    AE_TRY(ae_bind_range(b, "parallel_depth", h->n_parallel, 2, AE_DHEAD_MAX_PARALLEL));
    const char *general = "tokenizer.ggml.mask_token_id", *key = has_key(b, "mask_token_id") ? b->key : general;
    if (!ae_gguf_kv_find(b->gguf, key))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: neither %s nor %s says which token stands for those that are "
                       "predicted", path_of(b), ae_bind_key(b, "mask_token_id"), general);
    AE_TRY(ae_gguf_get_u32(b->gguf, key, true, &mask, b->error));
    if (mask >= (h->n_vocab ? h->n_vocab : INT32_MAX))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u; the vocabulary has %u tokens", path_of(b), key, mask,
                       h->n_vocab);
    h->mask = (int32_t)mask;
    return AERIE_OK;
}

/* ---- By kind ------------------------------------------------------------------------------------------ */

static aerie_status read_medusa(ae_binder *b, ae_dhead_hparams *h)
{
    const ae_gguf_tensor *first = find(b, "medusa.0.0.weight");
    uint32_t *width = &h->layer.n_embd;
    h->n_blocks = 1;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "head_count"), true, &h->n_medusa, b->error));
    AE_TRY(ae_bind_range(b, "head_count", h->n_medusa, 1, AE_DHEAD_MAX_MEDUSA));
    AE_TRY(get_u32(b, "block_count", &h->n_blocks));
    AE_TRY(ae_bind_range(b, "block_count", h->n_blocks, 1, AE_DHEAD_MAX_BLOCKS));
    if (has_key(b, "embedding_length")) AE_TRY(get_u32(b, "embedding_length", width));
    else if (has_key(b, "target_hidden_size")) AE_TRY(get_u32(b, "target_hidden_size", width));
    else if (first) *width = first->ne[0] < UINT32_MAX ? (uint32_t)first->ne[0] : UINT32_MAX;
    else return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor medusa.0.0.weight is missing; architecture medusa needs it",
                        path_of(b));
    AE_TRY(ae_bind_range(b, "embedding_length", *width, 1, AE_MAX_EMBD));
    h->n_target_embd = *width;
    AE_TRY(get_u32(b, "target_hidden_size", &h->n_target_embd));
    if (h->n_target_embd != *width)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: a Medusa head is as wide as its target, but embedding_length is %u "
                       "and target_hidden_size %u", path_of(b), *width, h->n_target_embd);
    return AERIE_OK;
}

static aerie_status read_eagle(ae_binder *b, ae_dhead_hparams *h, ae_arena *arena)
{
    uint32_t n_layers = 1;
    AE_TRY(get_u32(b, "block_count", &n_layers));
    AE_TRY(ae_bind_range(b, "block_count", n_layers, 1, AE_MAX_LAYERS));
    const uint32_t most = h->kind == AE_DHEAD_EAGLE3 ? AE_DHEAD_MAX_LAYERS : 1;
    if (n_layers > most)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s is %u; aerie runs heads of this kind with %u at most",
                       path_of(b), ae_bind_key(b, "block_count"), n_layers, most);
    h->n_layers = h->layer.n_layers = n_layers;
    h->n_steps = 1;
    h->layer.embedding_scale = h->layer.residual_scale = 1.0f;
    AE_TRY(ae_bind_hparams(b, &h->layer, arena));
    AE_TRY(get_u32(b, "attention.window", &h->window));
    AE_TRY(get_u32(b, "attention.sinks", &h->n_sinks));
    AE_TRY(ae_bind_range(b, "attention.window", h->window, 0, INT32_MAX));
    AE_TRY(ae_bind_range(b, "attention.sinks", h->n_sinks, 0, INT32_MAX));
    if ((uint64_t)h->window + h->n_sinks > INT32_MAX)
        return ae_fail(b->error, AERIE_ERROR_FORMAT,
                       "%s: attention.window (%u) and attention.sinks (%u) are together more than "
                       "the %d positions that a sequence can have",
                       path_of(b), h->window, h->n_sinks, INT32_MAX);
    AE_TRY(read_feedback(b, h));
    if (h->kind == AE_DHEAD_EAGLE) return refuse_norms(b);
    bool given;
    AE_TRY(get_flag(b, "norm_before_residual", &given, &h->norm_before_residual));
    AE_TRY(read_fc_norm(b, h));
    return ae_dhead_read_taps(b, h);
}

aerie_status ae_dhead_read_hparams(ae_binder *b, ae_dhead *head)
{
    ae_dhead_hparams *h = &head->hparams;
    const bool medusa = !strcmp(b->arch->name, "medusa"), eagle = !strcmp(b->arch->name, "eagle");
    h->kind = medusa ? AE_DHEAD_MEDUSA : eagle ? AE_DHEAD_EAGLE : AE_DHEAD_EAGLE3;
    h->layer.arch = b->arch->name;
    h->n_taps = 1;
    h->taps[0] = AERIE_TAP_NORMED;
    AE_TRY(get_u32(b, "target_layer_count", &h->n_target_layers));
    if (has_key(b, "target_layer_count")) AE_TRY(ae_bind_range(b, "target_layer_count", h->n_target_layers, 1, AE_MAX_LAYERS));
    AE_TRY(h->kind == AE_DHEAD_MEDUSA ? read_medusa(b, h) : read_eagle(b, h, &head->arena));
    if (h->kind != AE_DHEAD_MEDUSA) AE_TRY(read_target_width(b, h));
    AE_TRY(read_vocabularies(b, h));
    return h->kind == AE_DHEAD_EAGLE3 ? read_masks(b, h) : AERIE_OK;
}
