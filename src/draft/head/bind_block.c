/* bind_block.c - reads the file of a block drafter (DFlash, DSpark, DFlash2, DFly, LiLiCorr): its keys, and its tensors outside
 * layers.
 *
 * The layers, and the embedding and output if there are any, are read like a model's (model/model.c): they are Qwen3's, with
 * norms of queries and keys. The tensors show which kind of drafter it is. Keys and tensors: docs/heads.md. LiLiCorr's own
 * are read by bind_lattice.c.
 * Sources: z-lab/dflash, deepseek-ai/DeepSpec (both MIT), and the GGUF files that llama.cpp reads.
 */
#include <stdio.h>
#include <string.h>

#include "backend/draw.h"
#include "base/math/fmath.h"
#include "draft/head/head_int.h"

#define DEFAULT_BLOCK 16
#define LATTICE "lilicorr.factor_out.weight" /* a tensor that LiLiCorr alone has */

static bool has(const ae_binder *b, const char *name)
{
    return ae_gguf_tensor_find(b->gguf, name) != NULL;
}

static aerie_status unsupported(ae_binder *b, const char *what)
{
    return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s; aerie runs DFlash, DSpark, DFlash2, DFly and LiLiCorr with "
                   "layers like Qwen3's", ae_gguf_path(b->gguf), what);
}

/* Refuses variants that would need another computation. */
static aerie_status refuse_others(ae_binder *b)
{
    ae_gguf_string text = {0};
    float scale = 1.0f;
    if (has(b, "layer_fusion") && (has(b, "markov_w1.weight") || has(b, "selector_hidden.weight")))
        return unsupported(b, "the drafter joins DFly's context (layer_fusion) with a head of another kind");
    if (has(b, LATTICE) && (has(b, "markov_w1.weight") || has(b, "selector_hidden.weight") || has(b, "layer_fusion")))
        return unsupported(b, "the drafter joins LiLiCorr (" LATTICE ") with a head of another kind");
    if (has(b, "markov_gate.weight") || has(b, "markov_rnn.weight"))
        return unsupported(b, "the drafter's Markov head is gated or recurrent");
    if (ae_gguf_kv_find(b->gguf, ae_bind_key(b, "hyper_connection.count")))
        return unsupported(b, "the drafter has DeepSeek-V4's layers (hyper_connection.count)");
    AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, "attention.value_scale"), false, &scale, b->error));
    if (scale != 1.0f && scale != 0.0f) return unsupported(b, "the drafter scales its values (attention.value_scale)");
    AE_TRY(ae_gguf_get_string(b->gguf, ae_bind_key(b, "hidden_activation"), false, &text, b->error));
    if (text.data && !(text.n == 4 && !memcmp(text.data, "silu", 4)))
        return unsupported(b, "the drafter's feed-forward blocks have another activation than silu (hidden_activation)");
    return AERIE_OK;
}

static aerie_status read_mask(ae_binder *b, ae_dhead_hparams *h)
{
    uint32_t mask = 0;
    const char *key = "tokenizer.ggml.mask_token_id";
    if (!ae_gguf_kv_find(b->gguf, key)) key = ae_bind_key(b, "mask_token_id");
    if (!ae_gguf_kv_find(b->gguf, key))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: neither tokenizer.ggml.mask_token_id nor %s names the mask token of "
                       "the rows that a block predicts", ae_gguf_path(b->gguf), key);
    AE_TRY(ae_gguf_get_u32(b->gguf, key, true, &mask, b->error));
    if (mask >= h->n_vocab)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u; the vocabulary has %u tokens", ae_gguf_path(b->gguf), key,
                       mask, h->n_vocab);
    h->mask = (int32_t)mask;
    return AERIE_OK;
}

static aerie_status read_block(ae_binder *b, ae_dhead_hparams *h)
{
    ae_gguf_string text = {0};
    bool causal = false, from_anchor = h->kind == AE_DHEAD_DSPARK;
    h->n_block = DEFAULT_BLOCK;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "block_size"), false, &h->n_block, b->error));
    AE_TRY(ae_gguf_get_bool(b->gguf, ae_bind_key(b, "sample_from_anchor"), false, &from_anchor, b->error));
    AE_TRY(ae_bind_range(b, "block_size", h->n_block, from_anchor ? 1 : 2, AE_DHEAD_MAX_BLOCK));
    AE_TRY(ae_gguf_get_string(b->gguf, ae_bind_key(b, "decoder_arch"), false, &text, b->error));
    causal = text.data && text.n == 6 && !memcmp(text.data, "laguna", 6);
    AE_TRY(ae_gguf_get_bool(b->gguf, ae_bind_key(b, "attention.causal"), false, &causal, b->error));
    h->from_anchor = from_anchor;
    h->causal = causal;
    return read_mask(b, h);
}

/* Binds fc. Its rows are as long as all taps together, which gives the target's width. */
static aerie_status bind_encoder(ae_binder *b, ae_dhead *head)
{
    ae_dhead_hparams *h = &head->hparams;
    const ae_gguf_tensor *fc = ae_gguf_tensor_find(b->gguf, "fc.weight");
    const int64_t width = fc ? fc->ne[0] : 0;
    if (fc && (width < 1 || width % h->n_taps || width / h->n_taps > AE_MAX_EMBD))
        return ae_fail(b->error, AERIE_ERROR_FORMAT,
                       "%s: rows of fc.weight have %lld elements; %u equal parts, one for each of "
                       "target_layers, are expected", ae_gguf_path(b->gguf), (long long)width, h->n_taps);
    h->n_target_embd = fc ? (uint32_t)(width / h->n_taps) : h->layer.n_embd;
    uint32_t given = h->n_target_embd;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "target_hidden_size"), false, &given, b->error));
    if (given != h->n_target_embd)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u, but fc.weight takes %u layers of %u elements",
                       ae_gguf_path(b->gguf), b->key, given, h->n_taps, h->n_target_embd);
    AE_TRY(ae_bind(b, "fc.weight", true, h->layer.n_embd, h->n_taps * h->n_target_embd, &head->fc));
    const char *norm = h->kind == AE_DHEAD_DFLY ? "context_norm.weight" : "enc.output_norm.weight";
    return ae_bind(b, norm, true, 0, h->layer.n_embd, &head->hidden_norm);
}

static aerie_status bind_markov(ae_binder *b, ae_dhead *head)
{
    ae_dhead_hparams *h = &head->hparams;
    const uint32_t e = h->layer.n_embd;
    const ae_gguf_tensor *w1 = ae_gguf_tensor_find(b->gguf, "markov_w1.weight");
    const ae_gguf_tensor *conf = ae_gguf_tensor_find(b->gguf, "conf_proj.weight");
    if (w1->ne[0] < 1 || w1->ne[0] > AE_MAX_EMBD)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: rows of markov_w1.weight have %lld elements; 1 to %d are possible",
                       ae_gguf_path(b->gguf), (long long)w1->ne[0], AE_MAX_EMBD);
    h->n_markov = (uint32_t)w1->ne[0];
    AE_TRY(ae_bind(b, "markov_w1.weight", true, h->n_vocab, h->n_markov, &head->markov_w1));
    AE_TRY(ae_bind(b, "markov_w2.weight", true, h->n_draft, h->n_markov, &head->markov_w2));
    h->conf_markov = conf && conf->ne[0] != e;
    AE_TRY(ae_bind(b, "conf_proj.weight", false, 1, h->conf_markov ? e + h->n_markov : e, &head->conf));
    return ae_bind(b, "conf_proj.bias", false, 0, 1, &head->conf_bias);
}

/* DFly: binds the weights that mix the taps for each layer, and the correction, if there is one. */
static aerie_status bind_fusion(ae_binder *b, ae_dhead *head)
{
    ae_dhead_hparams *h = &head->hparams;
    const ae_gguf_tensor *gate = ae_gguf_tensor_find(b->gguf, "hidden_correction.gate.weight");
    const uint32_t e = h->layer.n_embd, n = h->n_taps;
    ae_tensor_ref fusion;
    float x[AE_DHEAD_MAX_LAYERS * AERIE_MAX_TAPS];
    if (h->n_target_embd != e)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: a DFly drafter is as wide as the layers that it taps; it has %u "
                       "elements, and they %u", ae_gguf_path(b->gguf), e, h->n_target_embd);
    AE_TRY(ae_bind(b, "layer_fusion", true, h->n_layers, n, &fusion));
    AE_TRY(ae_bind_read_f32(b, fusion, x, h->n_layers * n));
    for (uint32_t i = 0; i < h->n_layers; i++) {
        float top = x[i * n], sum = 0;
        for (uint32_t j = 1; j < n; j++) top = x[i * n + j] > top ? x[i * n + j] : top;
        for (uint32_t j = 0; j < n; j++) sum += head->fusion[i][j] = ae_expf(x[i * n + j] - top);
        for (uint32_t j = 0; j < n; j++) head->fusion[i][j] /= sum;
        if (!(sum >= 1.0f)) /* NaN too */
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: layer_fusion has numbers of layer %u that are not finite",
                           ae_gguf_path(b->gguf), i);
    }
    if (!gate) return AERIE_OK;
    if (gate->ne[1] < 1 || gate->ne[1] > AE_MAX_EMBD)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: hidden_correction.gate.weight has %lld rows; 1 to %d are possible",
                       ae_gguf_path(b->gguf), (long long)gate->ne[1], AE_MAX_EMBD);
    h->n_correct = (uint32_t)gate->ne[1];
    AE_TRY(ae_bind(b, "hidden_correction.hidden_norm.weight", true, 0, e, &head->correct_hidden_norm));
    AE_TRY(ae_bind(b, "hidden_correction.embed_norm.weight", true, 0, e, &head->correct_embd_norm));
    AE_TRY(ae_bind(b, "hidden_correction.gate.weight", true, h->n_correct, 2 * e, &head->correct_gate));
    AE_TRY(ae_bind(b, "hidden_correction.up.weight", true, h->n_correct, 2 * e, &head->correct_up));
    return ae_bind(b, "hidden_correction.down.weight", true, e, h->n_correct, &head->correct_down);
}

/* Binds the convolution around sublayer k (0: attention) of layer i. */
static aerie_status bind_conv(ae_binder *b, ae_dhead *head, uint32_t i, uint32_t k)
{
    const ae_dhead_hparams *h = &head->hparams;
    const uint32_t e = h->layer.n_embd, n = 2 * h->n_conv * (e / h->conv_group);
    const char *part = k ? "ffn_conv" : "attn_conv";
    char name[48];
    snprintf(name, sizeof name, "blk.%u.%s_base", i, part); /* the name in files has no ".weight" */
    AE_TRY(ae_bind_stack(b, name, true, 2, h->n_conv, e, &head->conv[i][k].base));
    snprintf(name, sizeof name, "blk.%u.%s_proj.weight", i, part);
    return ae_bind(b, name, true, n, e, &head->conv[i][k].proj);
}

/* The keys of counts that are at least 1. */
typedef struct count_key {
    const char *key;
    uint32_t most, *to;
} count_key;

static aerie_status read_counts(ae_binder *b, const count_key *counts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, counts[i].key), true, counts[i].to, b->error));
        AE_TRY(ae_bind_range(b, counts[i].key, *counts[i].to, 1, counts[i].most));
    }
    return AERIE_OK;
}

/* Binds the convolutions of all layers. */
static aerie_status bind_convs(ae_binder *b, ae_dhead *head)
{
    ae_dhead_hparams *h = &head->hparams;
    const count_key counts[] = {{"conv_kernel_size", AE_DHEAD_MAX_CONV, &h->n_conv},
                                {"conv_group_size", h->layer.n_embd, &h->conv_group}};
    AE_TRY(read_counts(b, counts, 2));
    if (h->layer.n_embd % h->conv_group)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u, which does not divide the width %u", ae_gguf_path(b->gguf),
                       ae_bind_key(b, "conv_group_size"), h->conv_group, h->layer.n_embd);
    for (uint32_t i = 0; i < 2 * h->n_layers; i++) AE_TRY(bind_conv(b, head, i / 2, i % 2));
    return AERIE_OK;
}

static aerie_status bind_pairs(ae_binder *b, ae_dhead *head)
{
    ae_dhead_hparams *h = &head->hparams;
    const count_key counts[] = {{"selector_rank", AE_MAX_EMBD, &h->n_pair},
                                {"selector_top_k", AE_PROPOSE_MAX, &h->n_candidates}};
    AE_TRY(bind_convs(b, head));
    AE_TRY(read_counts(b, counts, 2));
    AE_TRY(ae_bind(b, "selector_hidden.weight", true, h->n_pair, h->layer.n_embd, &head->pair_rows));
    AE_TRY(ae_bind(b, "selector_predecessor.weight", true, h->n_vocab, h->n_pair, &head->pair_before));
    return ae_bind(b, "selector_successor.weight", true, h->n_vocab, h->n_pair, &head->pair_after);
}

static aerie_status read_draft_size(ae_binder *b, ae_dhead_hparams *h)
{
    const ae_tensor_ref map = ae_dhead_find_map(b->gguf);
    h->n_draft = map ? (uint32_t)map->ne[0] : h->n_vocab; /* at most n_vocab: ae_model_bind_nextn has checked it */
    return AERIE_OK;
}

/* Checks the number of layers before memory is allocated for them. */
static aerie_status limit_layers(ae_binder *b)
{
    uint32_t n = 0;
    const char *key = ae_bind_key(b, "block_count");
    AE_TRY(ae_gguf_get_u32(b->gguf, key, false, &n, b->error));
    if (n <= AE_DHEAD_MAX_LAYERS) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s is %u; aerie runs block drafters of %d layers at most",
                   ae_gguf_path(b->gguf), key, n, AE_DHEAD_MAX_LAYERS);
}

aerie_status ae_dhead_bind_block(ae_dhead *head, const ae_arch *arch, aerie_error *error)
{
    ae_gguf *gguf = head->gguf;
    ae_binder b = {.gguf = gguf, .arch = arch, .error = error};
    AE_TRY(limit_layers(&b));
    head->gguf = NULL;
    AE_TRY(ae_model_bind_nextn(&head->mtp, gguf, error));
    head->gguf = gguf;
    const ae_model *m = head->mtp;
    b.bound = m->bound;
    ae_dhead_hparams *h = &head->hparams;
    head->bound = m->bound, head->name = m->name, head->n_params = m->n_params;
    head->embedding = m->embedding, head->out_norm = m->out_norm;
    /* the head's own embedding also serves as its output */
    head->output = m->output || ae_dhead_find_map(gguf) ? m->output : m->embedding;
    *h = (ae_dhead_hparams){.kind = has(&b, "markov_w1.weight")         ? AE_DHEAD_DSPARK
                                    : has(&b, "selector_hidden.weight") ? AE_DHEAD_DFLASH2
                                    : has(&b, "layer_fusion")           ? AE_DHEAD_DFLY
                                    : has(&b, LATTICE)                  ? AE_DHEAD_LILICORR
                                                                        : AE_DHEAD_DFLASH,
                            .n_vocab = m->hparams.n_vocab,
                            .n_layers = m->hparams.n_layers, .n_steps = 1, .layer = m->hparams};
    AE_TRY(refuse_others(&b));
    AE_TRY(read_draft_size(&b, h));
    AE_TRY(read_block(&b, h));
    AE_TRY(ae_dhead_read_taps(&b, h));
    AE_TRY(bind_encoder(&b, head));
    if (h->kind == AE_DHEAD_DSPARK) AE_TRY(bind_markov(&b, head));
    if (h->kind == AE_DHEAD_DFLASH2) AE_TRY(bind_pairs(&b, head));
    if (h->kind == AE_DHEAD_DFLY) AE_TRY(bind_fusion(&b, head));
    if (h->kind == AE_DHEAD_LILICORR) {
        const bool convolves = has(&b, "blk.0.attn_conv_base") || ae_gguf_kv_find(gguf, ae_bind_key(&b, "conv_kernel_size"));
        if (convolves) AE_TRY(bind_convs(&b, head));
        AE_TRY(ae_dhead_bind_lattice(&b, head));
    }
    AE_TRY(ae_dhead_read_map(&b, head));
    return ae_bind_end(&b, m->layers, 0, h->n_layers, true);
}
