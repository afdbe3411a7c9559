/* bind_wkv.c - keys and tensors of RWKV 6 and 7, and of Qwen2's layers with their mixers: see bind.h.
 *
 * Owns nothing. Source: llama.cpp's files of rwkv6, rwkv7, rwkv6qwen2 and arwkv7; arXiv 2404.05892, 2503.14456. Tensors that
 * the first layer of RWKV 7 has for a blend with itself are read and not used, as there. */
#include <stdio.h>

#include "model/hparams.h"
#include "quant/types.h"

#define MAX_HEAD 256

static aerie_status read_ranks(ae_binder *b, ae_recur_hparams *r)
{
    const bool pure = b->arch->channel_mix;
    if (r->kind == AE_RECUR_WKV6) {
        AE_TRY(ae_bind_get(b, "time_mix_extra_dim", true, 1, AE_MAX_EMBD / 5, &r->n_mix));
        return ae_bind_get(b, "time_decay_extra_dim", true, 1, AE_MAX_EMBD, &r->n_decay);
    }
    AE_TRY(ae_bind_get(b, "attention.decay_lora_rank", true, 1, AE_MAX_EMBD, &r->n_decay));
    AE_TRY(ae_bind_get(b, "attention.iclr_lora_rank", true, 1, AE_MAX_EMBD, &r->n_rate));
    AE_TRY(ae_bind_get(b, "attention.value_residual_mix_lora_rank", true, 1, AE_MAX_EMBD, &r->n_blend));
    return ae_bind_get(b, "attention.gate_lora_rank", pure, 1, AE_MAX_EMBD, &r->n_gate);
}

aerie_status ae_bind_wkv_hparams(ae_binder *b, ae_hparams *h, ae_layer *layers)
{
    ae_recur_hparams *r = &h->recur;
    const bool pure = b->arch->channel_mix;
    const uint32_t n_shifts = pure ? 2 : 1;
    uint32_t shifts = n_shifts, every = 0;
    AE_TRY(ae_bind_get(b, "wkv.head_size", true, 4, MAX_HEAD, &r->key_dim));
    if (r->key_dim % 4 || h->n_embd % r->key_dim)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s.wkv.head_size is %u; a multiple of 4 is needed that divides "
                       "embedding_length, %u", ae_gguf_path(b->gguf), b->arch->name, r->key_dim, h->n_embd);
    r->n_heads = r->n_groups = r->n_kv = h->n_embd / r->key_dim;
    r->value_dim = r->key_dim;
    r->n_taps = 2;
    r->n_channels = n_shifts * h->n_embd;
    AE_TRY(read_ranks(b, r));
    AE_TRY(ae_bind_count(b, "token_shift_count", &shifts));
    AE_TRY(ae_bind_range(b, "token_shift_count", shifts, n_shifts, n_shifts));
    if (!pure && r->kind == AE_RECUR_WKV6) AE_TRY(ae_bind_count(b, "attention.head_count_kv", &r->n_kv));
    AE_TRY(ae_bind_range(b, "attention.head_count_kv", r->n_kv, 1, r->n_heads));
    if (r->n_heads % r->n_kv)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %u heads cannot share %u heads of keys and values evenly",
                       ae_gguf_path(b->gguf), r->n_heads, r->n_kv);
    if (pure && r->kind == AE_RECUR_WKV6) AE_TRY(ae_bind_get(b, "rescale_every_n_layers", false, 1, UINT32_MAX, &every));
    for (uint32_t i = 0; i < b->n_specs; i++) {
        ae_layer_spec *s = &layers[i].spec;
        s->mixer = AE_MIXER_RECUR;
        s->n_heads = s->n_kv_heads = 0;
        s->out_gate = AE_OUT_GATE_NONE;
        if (pure) s->ffn = AE_FFN_CHANNEL_MIX;
        if (every && (i + 1) % every == 0) layers[i].out_scale = 0.5f;
    }
    return AERIE_OK;
}

/* Binds [n][1, 1, e], or one vector for each of the n. */
static aerie_status bind_lerp(ae_binder *b, uint32_t i, uint32_t e, uint32_t n, bool required, ae_tensor_ref *out)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.time_mix_lerp_fused.weight", i);
    const ae_gguf_tensor *t = ae_gguf_tensor_find(b->gguf, name);
    if (!t && required)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing; architecture %s needs it",
                       ae_gguf_path(b->gguf), name, b->arch->name);
    if (!t) return AERIE_OK;
    const ae_type_info *info = ae_type_get(t->type);
    if (t->ne[0] != e || t->ne[1] != 1 || t->ne[2] != 1 || t->ne[3] != n)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor %s has shape [%lld, %lld, %lld, %lld], expected "
                       "[%u, 1, 1, %u]", ae_gguf_path(b->gguf), name, (long long)t->ne[0], (long long)t->ne[1],
                       (long long)t->ne[2], (long long)t->ne[3], e, n);
    if (!info || !info->decode)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s has type %s, which cannot hold weights",
                       ae_gguf_path(b->gguf), name, ae_type_name(t->type));
    ae_bind_mark(b, t);
    *out = t;
    return ae_bind_scale(b, t, 1);
}

/* Binds a product in two steps, and what is added to it: PART0, PART1, PART2. */
static aerie_status bind_steps(ae_binder *b, uint32_t i, const char *part, uint32_t e, uint32_t rank, ae_tensor_ref *bias,
                               ae_tensor_ref *first, ae_tensor_ref *second)
{
    char name[48];
    snprintf(name, sizeof name, "time_mix_%s0.weight", part);
    if (bias) AE_TRY(ae_bind_layer(b, i, name, true, 0, e, bias));
    snprintf(name, sizeof name, "time_mix_%s1.weight", part);
    AE_TRY(ae_bind_layer(b, i, name, true, rank, e, first));
    snprintf(name, sizeof name, "time_mix_%s2.weight", part);
    return ae_bind_layer(b, i, name, true, e, rank, second);
}

static aerie_status bind_wkv6(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l)
{
    static const char *const parts[] = {"w", "k", "v", "r", "g"};
    const ae_recur_hparams *r = &h->recur;
    const uint32_t e = h->n_embd, kv = r->n_kv * r->key_dim;
    ae_wkv_layer *w = &l->wkv;
    char name[64];
    AE_TRY(ae_bind_layer(b, i, "time_mix_lerp_x.weight", true, 0, e, &w->lerp_x));
    AE_TRY(ae_bind_layer(b, i, "time_mix_w1.weight", true, 5 * r->n_mix, e, &w->mix_a));
    snprintf(name, sizeof name, "blk.%u.time_mix_w2.weight", i);
    AE_TRY(ae_bind_stack(b, name, true, 5, e, r->n_mix, &w->mix_b));
    AE_TRY(bind_lerp(b, i, e, 5, !b->arch->channel_mix, &w->lerp));
    for (uint32_t k = 0; !w->lerp && k < 5; k++) {
        snprintf(name, sizeof name, "time_mix_lerp_%s.weight", parts[k]);
        AE_TRY(ae_bind_layer(b, i, name, true, 0, e, &w->lerps[k]));
    }
    if (b->arch->channel_mix) {
        const uint32_t rows = r->n_heads > 1 ? r->n_heads : 0;
        AE_TRY(ae_bind_layer(b, i, "time_mix_first.weight", true, rows, r->key_dim, &w->first));
    } else {
        AE_TRY(ae_bind_layer(b, i, "time_mix_receptance.bias", false, 0, e, &w->bias_r));
        AE_TRY(ae_bind_layer(b, i, "time_mix_key.bias", false, 0, kv, &w->bias_k));
        AE_TRY(ae_bind_layer(b, i, "time_mix_value.bias", false, 0, kv, &w->bias_v));
    }
    AE_TRY(ae_bind_layer(b, i, "time_mix_decay.weight", true, 0, e, &w->decay));
    AE_TRY(ae_bind_layer(b, i, "time_mix_decay_w1.weight", true, r->n_decay, e, &w->decay_a));
    AE_TRY(ae_bind_layer(b, i, "time_mix_decay_w2.weight", true, e, r->n_decay, &w->decay_b));
    return ae_bind_layer(b, i, "time_mix_gate.weight", true, e, e, &l->recur.gate);
}

static aerie_status bind_wkv7(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l)
{
    const ae_recur_hparams *r = &h->recur;
    const uint32_t e = h->n_embd;
    ae_wkv_layer *w = &l->wkv;
    ae_tensor_ref unused[3];
    AE_TRY(bind_lerp(b, i, e, r->n_gate ? 6 : 5, true, &w->lerp));
    AE_TRY(bind_steps(b, i, "w", e, r->n_decay, &w->decay, &w->decay_a, &w->decay_b));
    AE_TRY(bind_steps(b, i, "a", e, r->n_rate, &w->rate, &w->rate_a, &w->rate_b));
    if (i) {
        AE_TRY(bind_steps(b, i, "v", e, r->n_blend, &w->blend, &w->blend_a, &w->blend_b));
    } else {
        AE_TRY(ae_bind_layer(b, i, "time_mix_v0.weight", false, 0, e, &unused[0]));
        AE_TRY(ae_bind_layer(b, i, "time_mix_v1.weight", false, r->n_rate, e, &unused[1]));
        AE_TRY(ae_bind_layer(b, i, "time_mix_v2.weight", false, e, r->n_rate, &unused[2]));
    }
    if (r->n_gate) AE_TRY(bind_steps(b, i, "g", e, r->n_gate, NULL, &w->gate_a, &w->gate_b));
    AE_TRY(ae_bind_layer(b, i, "time_mix_k_k.weight", true, 0, e, &w->k_k));
    AE_TRY(ae_bind_layer(b, i, "time_mix_k_a.weight", true, 0, e, &w->k_a));
    return ae_bind_layer(b, i, "time_mix_r_k.weight", true, 0, e, &w->first);
}

aerie_status ae_bind_wkv(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l)
{
    const ae_recur_hparams *r = &h->recur;
    const bool six = r->kind == AE_RECUR_WKV6, normed = b->arch->channel_mix || !six;
    const uint32_t e = h->n_embd, kv = r->n_kv * r->key_dim;
    AE_TRY(six ? bind_wkv6(b, i, h, l) : bind_wkv7(b, i, h, l));
    if (normed) AE_TRY(ae_bind_layer(b, i, "time_mix_ln.weight", b->arch->channel_mix, 0, e, &l->wkv.norm));
    if (l->wkv.norm) AE_TRY(ae_bind_layer(b, i, "time_mix_ln.bias", true, 0, e, &l->wkv.norm_b));
    AE_TRY(ae_bind_layer(b, i, "time_mix_receptance.weight", true, e, e, &l->recur.in_q));
    AE_TRY(ae_bind_layer(b, i, "time_mix_key.weight", true, kv, e, &l->recur.in_k));
    AE_TRY(ae_bind_layer(b, i, "time_mix_value.weight", true, kv, e, &l->recur.in_v));
    return ae_bind_layer(b, i, "time_mix_output.weight", true, e, e, &l->recur.out);
}

aerie_status ae_bind_channel_mix(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l)
{
    const uint32_t e = h->n_embd, f = l->spec.n_ff;
    AE_TRY(ae_bind_layer(b, i, "channel_mix_lerp_k.weight", true, 0, e, &l->wkv.channel_k));
    if (h->recur.kind == AE_RECUR_WKV6) {
        AE_TRY(ae_bind_layer(b, i, "channel_mix_lerp_r.weight", true, 0, e, &l->wkv.channel_r));
        AE_TRY(ae_bind_layer(b, i, "channel_mix_receptance.weight", true, e, e, &l->w_gate));
    }
    AE_TRY(ae_bind_layer(b, i, "channel_mix_key.weight", true, f, e, &l->w_up));
    return ae_bind_layer(b, i, "channel_mix_value.weight", true, e, f, &l->w_down);
}
