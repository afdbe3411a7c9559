/* head_keys.c - the metadata of a drafter head's GGUF file (docs/heads.md). */
#include <stdio.h>
#include <string.h>

#include "convert/convert_int.h"
#include "quant/types.h"

/* Keeps the first failure; calls after it do nothing. */
typedef struct keys {
    ae_gguf_writer *w;
    const char *arch;
    aerie_status status;
    aerie_error *error;
} keys;

static const char *key(const keys *k, const char *suffix, char out[96])
{
    snprintf(out, 96, "%s.%s", k->arch, suffix);
    return out;
}

static void put_u32(keys *k, const char *suffix, uint32_t value)
{
    char name[96];
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_u32(k->w, key(k, suffix, name), value, k->error);
}

static void put_f32(keys *k, const char *suffix, double value)
{
    char name[96];
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_f32(k->w, key(k, suffix, name), (float)value, k->error);
}

static void put_bool(keys *k, const char *suffix, bool value)
{
    char name[96];
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_bool(k->w, key(k, suffix, name), value, k->error);
}

/* suffix NULL: the name is whole. */
static void put_text(keys *k, const char *name, const char *suffix, const char *value)
{
    char made[96];
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_string(k->w, suffix ? key(k, suffix, made) : name, value, k->error);
}

static void put_layer(keys *k, const ae_convert_head *h)
{
    put_u32(k, "block_count", 1);
    put_u32(k, "context_length", h->n_ctx);
    put_u32(k, "feed_forward_length", h->n_ff);
    put_u32(k, "attention.head_count", h->n_heads);
    put_u32(k, "attention.head_count_kv", h->n_kv_heads);
    put_u32(k, "attention.key_length", h->head_dim);
    put_u32(k, "attention.value_length", h->head_dim);
    put_f32(k, "attention.layer_norm_rms_epsilon", h->norm_eps);
    put_u32(k, "rope.dimension_count", h->n_rot);
    put_f32(k, "rope.freq_base", h->rope_base);
    if (strcmp(h->rope_type, "none") == 0) return;
    put_text(k, NULL, "rope.scaling.type", h->rope_type);
    put_f32(k, "rope.scaling.factor", h->rope_factor);
    if (h->rope_n_ctx_orig) put_u32(k, "rope.scaling.original_context_length", h->rope_n_ctx_orig);
}

static void put_eagle3(keys *k, const ae_convert_head *h)
{
    int32_t taps[AE_DHEAD_MAX_TAPS];
    char name[96];
    for (uint32_t i = 0; i < h->n_taps; i++) taps[i] = (int32_t)h->taps[i];
    if (k->status == AERIE_OK) {
        k->status = ae_gguf_writer_array(k->w, key(k, "target_layers", name), AE_GGUF_I32, taps, h->n_taps, k->error);
    }
    put_bool(k, "norm_before_residual", h->norm_before_residual);
    put_bool(k, "norm_before_fc", h->fc_norm == AE_FC_NORM_JOINT);
    put_bool(k, "fc_norm", h->fc_norm == AE_FC_NORM_EACH);
    put_text(k, NULL, "feedback", h->feedback_post ? "post" : "pre");
}

/* The target's tokenizer, which other programs need in every file. */
static void put_tokenizer(keys *k, const ae_convert *c)
{
    const ae_gguf *gguf = c->target->gguf;
    for (size_t i = 0; i < ae_gguf_n_kv(gguf) && k->status == AERIE_OK; i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_at(gguf, i);
        if (kv->key.n > 10 && memcmp(kv->key.data, "tokenizer.", 10) == 0) k->status = ae_gguf_writer_copy(k->w, kv, k->error);
    }
}

/* The last part of the checkpoint's path that is a name. */
const char *ae_convert_name(const ae_convert *c, char out[128])
{
    size_t n = strlen(c->path), from;
    if (c->options.name) return c->options.name;
    while (n > 1 && c->path[n - 1] == '/') n--;
    for (from = n; from && c->path[from - 1] != '/'; from--) {}
    snprintf(out, 128, "%.*s", (int)(n - from < 120 ? n - from : 120), c->path + from);
    return out;
}

static void put_all(keys *k, const ae_convert *c)
{
    const ae_convert_head *h = &c->head;
    char name[128];
    put_text(k, "general.architecture", NULL, k->arch);
    put_text(k, "general.name", NULL, ae_convert_name(c, name));
    if (k->status == AERIE_OK && ae_type_get(c->out_type)->dot != AE_DOT_FLOAT) {
        k->status = ae_gguf_writer_u32(k->w, "general.quantization_version", 2, k->error);
    }
    put_u32(k, "embedding_length", h->n_embd);
    put_u32(k, "target_hidden_size", h->n_target_embd);
    if (h->n_target_layers) put_u32(k, "target_layer_count", h->n_target_layers);
    put_u32(k, "vocab_size", h->n_vocab);
    if (h->ids) put_text(k, NULL, "draft_map", "absolute");
    if (h->kind == AE_DHEAD_MEDUSA) {
        put_u32(k, "head_count", h->n_medusa);
        put_u32(k, "block_count", h->n_blocks);
    } else {
        put_layer(k, h);
        if (h->kind == AE_DHEAD_EAGLE3) put_eagle3(k, h);
        if (c->options.window) put_u32(k, "attention.window", c->options.window);
        if (c->options.n_sinks) put_u32(k, "attention.sinks", c->options.n_sinks);
    }
    if (c->options.tokenizer) put_tokenizer(k, c);
}

aerie_status ae_convert_head_keys(const ae_convert *c, ae_gguf_writer *w)
{
    static const char *const archs[] = {[AE_DHEAD_EAGLE] = "eagle", [AE_DHEAD_EAGLE3] = "eagle3", [AE_DHEAD_MEDUSA] = "medusa"};
    keys k = {.w = w, .arch = archs[c->head.kind], .status = AERIE_OK, .error = c->error};
    put_all(&k, c);
    return k.status;
}
