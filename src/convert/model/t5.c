/* t5.c - T5, UMT5 and their encoders: names of configuration and tensors that other models do not have (arch.h).
 * Owns nothing. A folder may contain the embedding once for each half, and old folders contain biases between decoder and
 * encoder that no program uses; both are left out. Sources: transformers' code; names of GGUF files as llama.cpp reads
 * them. */
#include <stdio.h>
#include <string.h>

#include "convert/archs/arch.h"

#define PLAIN(from, to) {from, to, AE_RULE_PLAIN, false}
#define ATTENTION(place, to)                                                                                                   \
    PLAIN(place ".q", to "q"), PLAIN(place ".k", to "k"), PLAIN(place ".v", to "v")
#define FFN(place)                                                                                                             \
    PLAIN(place ".DenseReluDense.wi_0", "ffn_gate"), PLAIN(place ".DenseReluDense.wi_1", "ffn_up"),                            \
        PLAIN(place ".DenseReluDense.wi", "ffn_up"), PLAIN(place ".DenseReluDense.wo", "ffn_down"),                            \
        PLAIN(place ".layer_norm", "ffn_norm")
#define SELF                                                                                                                   \
    PLAIN("layer.0.layer_norm", "attn_norm"), ATTENTION("layer.0.SelfAttention", "attn_"),                                     \
        PLAIN("layer.0.SelfAttention.o", "attn_o"),                                                                       \
        {"layer.0.SelfAttention.relative_attention_bias", "attn_rel_b", AE_RULE_F32, false}

static const ae_convert_rule encoder[] = {SELF, FFN("layer.1"), {NULL, NULL, AE_RULE_PLAIN, false}};
static const ae_convert_rule decoder[] = {
    SELF, PLAIN("layer.1.layer_norm", "cross_attn_norm"), ATTENTION("layer.1.EncDecAttention", "cross_attn_"),
    PLAIN("layer.1.EncDecAttention.o", "cross_attn_o"), FFN("layer.2"), {NULL, NULL, AE_RULE_PLAIN, false},
};
static const ae_convert_rule outside[] = {
    PLAIN("encoder.final_layer_norm", "enc.output_norm"), PLAIN("decoder.final_layer_norm", "dec.output_norm"),
    {NULL, NULL, AE_RULE_PLAIN, false},
};

static bool has_decoder(const ae_convert *c)
{
    return strcmp(c->arch->arch, "t5") == 0;
}

aerie_status ae_convert_keys_t5(ae_convert_keys *k, const ae_convert *c)
{
    static const char *const known[] = {"relu", "gated-gelu", "gated-gelu_new"};
    uint32_t n_buckets = 32, distance = 128, n_decoder = c->model.n_layers, start = 0;
    const char *act = ae_convert_text(c, "feed_forward_proj");
    bool fits = !act;
    AE_TRY(ae_convert_u32(c, "relative_attention_num_buckets", 4, 128, &n_buckets));
    AE_TRY(ae_convert_u32(c, "relative_attention_max_distance", 1, INT32_MAX, &distance));
    AE_TRY(ae_convert_u32(c, "num_decoder_layers", 1, AE_MAX_LAYERS, &n_decoder));
    AE_TRY(ae_convert_u32(c, "pad_token_id", 0, INT32_MAX, &start));
    AE_TRY(ae_convert_u32(c, "decoder_start_token_id", 0, INT32_MAX, &start));
    if (distance != 128)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'relative_attention_max_distance' is %u; GGUF files of "
                       "architecture %s run with 128", c->config_path, distance, c->arch->arch);
    for (size_t i = 0; act && i < sizeof known / sizeof *known; i++) fits |= strcmp(act, known[i]) == 0;
    if (!fits)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'feed_forward_proj' is \"%.40s\"; GGUF files of architecture %s "
                       "run with relu or gated-gelu", c->config_path, act, c->arch->arch);
    ae_convert_put_u32(k, "attention.relative_buckets_count", n_buckets);
    if (!has_decoder(c)) return k->status;
    ae_convert_put_u32(k, "decoder_block_count", n_decoder);
    ae_convert_put_u32(k, "decoder_start_token_id", start);
    return k->status;
}

static aerie_status apply_all(ae_convert *c, const ae_convert_rule *rules, const char *in, const char *out)
{
    for (const ae_convert_rule *r = rules; r->from; r++) AE_TRY(ae_convert_apply(c, r, in, out));
    return AERIE_OK;
}

aerie_status ae_convert_tensors_t5(ae_convert *c, uint32_t layer)
{
    uint32_t n_decoder = c->model.n_layers;
    char in[48], out[32];
    AE_TRY(ae_convert_u32(c, "num_decoder_layers", 1, AE_MAX_LAYERS, &n_decoder));
    snprintf(in, sizeof in, "encoder.block.%u.", layer);
    snprintf(out, sizeof out, "enc.blk.%u.", layer);
    AE_TRY(apply_all(c, encoder, in, out));
    if (layer) return AERIE_OK;
    AE_TRY(apply_all(c, outside, "", ""));
    ae_convert_take(c, "encoder.embed_tokens.weight");
    ae_convert_take(c, "decoder.embed_tokens.weight");
    ae_convert_take(c, "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight");
    for (uint32_t i = 0; has_decoder(c) && i < n_decoder; i++) {
        snprintf(in, sizeof in, "decoder.block.%u.", i);
        snprintf(out, sizeof out, "dec.blk.%u.", i);
        AE_TRY(apply_all(c, decoder, in, out));
    }
    return AERIE_OK;
}
