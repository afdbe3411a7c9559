/* old.c - functions for the rows of archs_old.c: values and keys that follow from several values. Owns nothing.
 * Sources: the models' own code, or transformers' if it has the class; names and keys of GGUF files as llama.cpp
 * reads them. */
#include <math.h>
#include <string.h>

#include "convert/archs/arch.h"

/* ---- Falcon, MPT ------------------------------------------------------------------------------------------------- */

/* Falcon's first models count the heads of keys only if they are of the new kind: else there is one, or there are as many as
 * heads of queries, whatever num_kv_heads says. */
aerie_status ae_convert_begin_falcon(ae_convert *c)
{
    bool is_new = false, one = true;
    uint32_t n = 0, n_heads = 0;
    AE_TRY(ae_convert_need_u32(c, "num_attention_heads", 1, AE_MAX_HEADS, &n_heads));
    AE_TRY(ae_convert_bool(c, "new_decoder_architecture", &is_new, NULL));
    AE_TRY(ae_convert_bool(c, "multi_query", &one, NULL));
    AE_TRY(ae_convert_u32(c, "num_kv_heads", 1, AE_MAX_HEADS, &n));
    /* the first files of the new kind do not say that they are */
    if (ae_convert_look(c, "layers.0.ln_attn.weight")) is_new = true;
    if (is_new && !n) n = n_heads;
    if (!is_new) n = one ? 1 : n_heads;
    return ae_convert_set_missing(c, "num_key_value_heads", json_integer(n));
}

aerie_status ae_convert_begin_mpt(ae_convert *c)
{
    const char *type = ae_convert_text(c, "attn_type");
    if (type && strcmp(type, "multiquery_attention") == 0)
        return ae_convert_set_missing(c, "num_key_value_heads", json_integer(1));
    return AERIE_OK;
}

aerie_status ae_convert_keys_mpt(ae_convert_keys *k, const ae_convert *c)
{
    bool alibi = ae_convert_look(c, "wpe.weight") == NULL;
    double most = 8;
    AE_TRY(ae_convert_bool(c, "alibi", &alibi, NULL));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "alibi_bias_max"), "alibi_bias_max", 1e-3, 1e3, &most));
    ae_convert_put_f32(k, "attention.max_alibi_bias", alibi ? most : 0);
    return k->status;
}

/* ---- MiniCPM ----------------------------------------------------------------------------------------------------- */

aerie_status ae_convert_keys_minicpm(ae_convert_keys *k, const ae_convert *c)
{
    double embedding = 1, depth = 1, base = 1;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "scale_emb"), "scale_emb", 1e-6, 1e6, &embedding));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "scale_depth"), "scale_depth", 1e-6, 1e6, &depth));
    base = c->model.n_embd;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "dim_model_base"), "dim_model_base", 1e-6, 1e6, &base));
    ae_convert_put_f32(k, "embedding_scale", embedding);
    ae_convert_put_f32(k, "residual_scale", depth / sqrt(c->model.n_layers));
    ae_convert_put_f32(k, "logit_scale", c->model.n_embd / base);
    return k->status;
}

/* ---- Mamba-2 ----------------------------------------------------------------------------------------------------- */

aerie_status ae_convert_begin_mamba2(ae_convert *c)
{
    const json_t *limit = ae_convert_value(c, "time_step_limit");
    uint32_t n_embd = 0, dim = 0, factor = 2;
    AE_TRY(ae_convert_need_u32(c, "hidden_size", 1, AE_MAX_EMBD, &n_embd));
    AE_TRY(ae_convert_need_u32(c, "head_dim", 1, AE_MAX_EMBD, &dim));
    AE_TRY(ae_convert_u32(c, "expand", 1, 64, &factor));
    if (json_number_value(json_array_get(limit, 0)) > 0 ||
        (json_is_number(json_array_get(limit, 1)) && json_number_value(json_array_get(limit, 1)) < 1e30))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'time_step_limit' limits time steps, but GGUF files of "
                       "architecture %s have no limit", c->config_path, c->arch->arch);
    return ae_convert_set_missing(c, "num_heads", json_integer((json_int_t)factor * n_embd / dim));
}

aerie_status ae_convert_keys_mamba2(ae_convert_keys *k, const ae_convert *c)
{
    ae_convert_put_u32(k, "feed_forward_length", 0);
    ae_convert_put_u32(k, "attention.head_count", 0);
    return ae_convert_put_mamba(k, c, "conv_kernel", "state_size", "num_heads", "head_dim");
}
