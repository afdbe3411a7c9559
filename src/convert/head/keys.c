/* keys.c - the metadata of a drafter head's GGUF file (docs/heads.md). */
#include <string.h>

#include "convert/head/parts.h"

void ae_convert_put_rope(ae_convert_keys *k, const ae_convert_head *h)
{
    ae_convert_put_u32(k, "rope.dimension_count", h->n_rot);
    ae_convert_put_f32(k, "rope.freq_base", h->rope_base);
    if (strcmp(h->rope_type, "none") == 0) return;
    ae_convert_put_text(k, "rope.scaling.type", h->rope_type);
    ae_convert_put_f32(k, "rope.scaling.factor", h->rope_factor);
    if (h->rope_n_ctx_orig) ae_convert_put_u32(k, "rope.scaling.original_context_length", h->rope_n_ctx_orig);
}

static void put_layer(ae_convert_keys *k, const ae_convert_head *h)
{
    ae_convert_put_u32(k, "block_count", h->n_layers);
    ae_convert_put_u32(k, "context_length", h->n_ctx);
    ae_convert_put_u32(k, "feed_forward_length", h->n_ff);
    ae_convert_put_u32(k, "attention.head_count", h->n_heads);
    ae_convert_put_u32(k, "attention.head_count_kv", h->n_kv_heads);
    ae_convert_put_u32(k, "attention.key_length", h->head_dim);
    ae_convert_put_u32(k, "attention.value_length", h->head_dim);
    ae_convert_put_f32(k, "attention.layer_norm_rms_epsilon", h->norm_eps);
    ae_convert_put_rope(k, h);
}

static void put_eagle3(ae_convert_keys *k, const ae_convert_head *h)
{
    int32_t taps[AERIE_MAX_TAPS];
    for (uint32_t i = 0; i < h->n_taps; i++) taps[i] = (int32_t)h->taps[i];
    ae_convert_put_array(k, "target_layers", AE_GGUF_I32, taps, h->n_taps);
    ae_convert_put_bool(k, "norm_before_residual", h->norm_before_residual);
    ae_convert_put_bool(k, "norm_before_fc", h->fc_norm == AE_FC_NORM_JOINT);
    ae_convert_put_bool(k, "fc_norm", h->fc_norm == AE_FC_NORM_EACH);
    ae_convert_put_text(k, "feedback", h->feedback_post && !h->n_parallel ? "post" : "pre");
    if (!h->n_parallel) return;
    ae_convert_put_u32(k, "parallel_depth", h->n_parallel);
    ae_convert_put_u32(k, "mask_token_id", h->mask);
}

/* Copies the target's tokenizer, which other programs need in every file. */
static void put_tokenizer(ae_convert_keys *k, const ae_convert *c)
{
    static const char mask_key[] = "tokenizer.ggml.mask_token_id";
    const ae_gguf *gguf = c->target->gguf;
    for (size_t i = 0; i < ae_gguf_n_kv(gguf) && k->status == AERIE_OK; i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_at(gguf, i);
        const bool mask = kv->key.n == sizeof mask_key - 1 && !memcmp(kv->key.data, mask_key, kv->key.n);
        if (mask && ae_dhead_has_blocks(c->head.kind)) continue; /* the drafter's own mask token is written instead */
        if (kv->key.n > 10 && memcmp(kv->key.data, "tokenizer.", 10) == 0) k->status = ae_gguf_writer_copy(k->w, kv, k->error);
    }
}

static void put_all(ae_convert_keys *k, const ae_convert *c)
{
    const ae_convert_head *h = &c->head;
    ae_convert_put_general(k, c);
    ae_convert_put_u32(k, "embedding_length", h->n_embd);
    ae_convert_put_u32(k, "target_hidden_size", h->n_target_embd);
    if (h->n_target_layers) ae_convert_put_u32(k, "target_layer_count", h->n_target_layers);
    ae_convert_put_u32(k, "vocab_size", h->n_vocab);
    if (h->ids) ae_convert_put_text(k, "draft_map", "absolute");
    if (h->kind == AE_DHEAD_MEDUSA) {
        ae_convert_put_u32(k, "head_count", h->n_medusa);
        ae_convert_put_u32(k, "block_count", h->n_blocks);
    } else {
        put_layer(k, h);
        if (h->kind == AE_DHEAD_EAGLE3) put_eagle3(k, h);
        if (ae_dhead_has_blocks(h->kind)) ae_convert_block_keys(k, c);
        if (c->options.window) ae_convert_put_u32(k, "attention.window", c->options.window);
        if (c->options.n_sinks) ae_convert_put_u32(k, "attention.sinks", c->options.n_sinks);
    }
    if (c->options.tokenizer) put_tokenizer(k, c);
}

aerie_status ae_convert_head_keys(const ae_convert *c, ae_gguf_writer *w)
{
    static const char *const archs[] = {[AE_DHEAD_EAGLE] = "eagle", [AE_DHEAD_EAGLE3] = "eagle3", [AE_DHEAD_MEDUSA] = "medusa",
                                        [AE_DHEAD_DFLASH] = "dflash", [AE_DHEAD_DSPARK] = "dflash",
                                        [AE_DHEAD_DFLASH2] = "dflash", [AE_DHEAD_DFLY] = "dflash",
                                        [AE_DHEAD_LILICORR] = "dflash"};
    ae_convert_keys k = {.w = w, .arch = archs[c->head.kind], .status = AERIE_OK, .error = c->error};
    put_all(&k, c);
    return k.status;
}
