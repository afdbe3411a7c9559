/* bind_recur.c - keys and tensors of layers that keep a state instead of a KV cache: see bind.h. */
#include "model/bind.h"

#define MAX_TAPS 8
#define MAX_STATE 256

static aerie_status get(ae_binder *b, const char *suffix, uint32_t lo, uint32_t hi, uint32_t *value)
{
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, suffix), true, value, b->error));
    return ae_bind_range(b, suffix, *value, lo, hi);
}

aerie_status ae_bind_recur_hparams(ae_binder *b, ae_recur_kind kind, ae_hparams *h)
{
    ae_recur_hparams *r = &h->recur;
    uint32_t inner;
    r->kind = kind;
    if (kind == AE_RECUR_SHORTCONV) {
        r->n_channels = h->n_embd;
        return get(b, "shortconv.l_cache", 1, MAX_TAPS, &r->n_taps);
    }
    AE_TRY(get(b, "ssm.conv_kernel", 1, MAX_TAPS, &r->n_taps));
    AE_TRY(get(b, "ssm.state_size", 4, MAX_STATE, &r->key_dim));
    AE_TRY(get(b, "ssm.time_step_rank", 1, AE_MAX_HEADS, &r->n_heads));
    AE_TRY(get(b, "ssm.group_count", 1, r->n_heads, &r->n_groups));
    AE_TRY(get(b, "ssm.inner_size", 1, AE_MAX_FF, &inner));
    r->value_dim = inner / r->n_heads;
    if (r->key_dim % 4)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s is %u; a multiple of 4 is needed", ae_gguf_path(b->gguf),
                       ae_bind_key(b, "ssm.state_size"), r->key_dim);
    if (inner % r->n_heads || r->n_heads % r->n_groups || (kind == AE_RECUR_DELTA && r->value_dim != r->key_dim))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u, for %u heads in %u groups with a state of %u: they do not "
                       "divide", ae_gguf_path(b->gguf), ae_bind_key(b, "ssm.inner_size"), inner, r->n_heads, r->n_groups,
                       r->key_dim);
    r->n_channels = inner + 2 * r->n_groups * r->key_dim;
    return AERIE_OK;
}

static aerie_status bind_delta(ae_binder *b, uint32_t i, const ae_hparams *h, ae_recur_layer *l)
{
    const ae_recur_hparams *r = &h->recur;
    const uint32_t e = h->n_embd, values = r->n_heads * r->value_dim;
    ae_tensor_ref old;
    AE_TRY(ae_bind_layer(b, i, "ssm_in.weight", false, r->n_channels + values, e, &old));
    if (old)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor blk.%u.ssm_in.weight: projections of queries, keys, values "
                       "and gates are stored as one, as in 2025; convert the model again", ae_gguf_path(b->gguf), i);
    AE_TRY(ae_bind_layer(b, i, "attn_qkv.weight", true, r->n_channels, e, &l->in));
    AE_TRY(ae_bind_layer(b, i, "attn_gate.weight", true, values, e, &l->gate));
    AE_TRY(ae_bind_layer(b, i, "ssm_ba.weight", false, 2 * r->n_heads, e, &l->beta_alpha));
    if (!l->beta_alpha) {
        AE_TRY(ae_bind_layer(b, i, "ssm_beta.weight", true, r->n_heads, e, &l->beta));
        AE_TRY(ae_bind_layer(b, i, "ssm_alpha.weight", true, r->n_heads, e, &l->alpha));
    }
    AE_TRY(ae_bind_layer(b, i, "ssm_norm.weight", true, 0, r->value_dim, &l->norm));
    AE_TRY(ae_bind_layer(b, i, "ssm_a", true, 0, r->n_heads, &l->decay));
    AE_TRY(ae_bind_layer(b, i, "ssm_dt.bias", true, 0, r->n_heads, &l->dt_bias));
    return ae_bind_layer(b, i, "ssm_out.weight", true, e, values, &l->out);
}

static aerie_status bind_mamba2(ae_binder *b, uint32_t i, const ae_hparams *h, ae_recur_layer *l)
{
    const ae_recur_hparams *r = &h->recur;
    const uint32_t e = h->n_embd, values = r->n_heads * r->value_dim;
    AE_TRY(ae_bind_layer(b, i, "ssm_in.weight", true, values + r->n_channels + r->n_heads, e, &l->in));
    AE_TRY(ae_bind_layer(b, i, "ssm_norm.weight", false, r->n_groups, values / r->n_groups, &l->norm));
    AE_TRY(ae_bind_layer(b, i, "ssm_a", true, r->n_heads, 1, &l->decay));
    AE_TRY(ae_bind_layer(b, i, "ssm_d", true, r->n_heads, 1, &l->skip));
    AE_TRY(ae_bind_layer(b, i, "ssm_dt.bias", true, 0, r->n_heads, &l->dt_bias));
    return ae_bind_layer(b, i, "ssm_out.weight", true, e, values, &l->out);
}

static aerie_status bind_shortconv(ae_binder *b, uint32_t i, const ae_hparams *h, ae_recur_layer *l)
{
    const uint32_t e = h->n_embd;
    AE_TRY(ae_bind_layer(b, i, "shortconv.in_proj.weight", true, 3 * e, e, &l->in));
    AE_TRY(ae_bind_layer(b, i, "shortconv.conv.weight", true, e, h->recur.n_taps, &l->conv));
    return ae_bind_layer(b, i, "shortconv.out_proj.weight", true, e, e, &l->out);
}

aerie_status ae_bind_recur(ae_binder *b, uint32_t i, const ae_hparams *h, ae_recur_layer *l)
{
    const ae_recur_hparams *r = &h->recur;
    if (r->kind == AE_RECUR_SHORTCONV) return bind_shortconv(b, i, h, l);
    AE_TRY(ae_bind_layer(b, i, "ssm_conv1d.weight", true, r->n_channels, r->n_taps, &l->conv));
    AE_TRY(ae_bind_layer(b, i, "ssm_conv1d.bias", false, 0, r->n_channels, &l->conv_bias));
    return r->kind == AE_RECUR_DELTA ? bind_delta(b, i, h, l) : bind_mamba2(b, i, h, l);
}
