/* bind_recur.c - keys and tensors of layers that keep a state instead of a KV cache: see bind.h. */
#include <stdio.h>

#include "base/math/fmath.h"
#include "model/hparams.h"

#define MAX_TAPS 8
#define MAX_STATE 256

/* Falcon-Mamba norms the inputs of time steps, B and C, without weights. */
static aerie_status read_step_norms(ae_binder *b, ae_recur_hparams *r)
{
    AE_TRY(ae_gguf_get_bool(b->gguf, ae_bind_key(b, "ssm.dt_b_c_rms"), false, &r->plain_norms, b->error));
    if (!r->plain_norms || r->n_dt <= AE_MAX_HEAD_DIM) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: time steps are made from %u normed numbers; at most %d are possible",
                   ae_gguf_path(b->gguf), r->n_dt, AE_MAX_HEAD_DIM);
}

static aerie_status read_kda(ae_binder *b, ae_hparams *h)
{
    ae_recur_hparams *r = &h->recur;
    bool safe = true;
    AE_TRY(ae_bind_get(b, "kda.head_dim", true, 4, MAX_STATE, &r->key_dim));
    r->n_heads = r->n_groups = h->n_heads;
    r->value_dim = r->key_dim;
    r->n_channels = 3 * r->n_heads * r->value_dim;
    AE_TRY(ae_bind_range(b, "attention.head_count", r->n_heads, 1, AE_MAX_FF / r->value_dim));
    const bool may = b->arch->bounded_decay || b->arch->may_bound, must = b->arch->bounded_decay;
    AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, "kda.gate_lower_bound"), must, &r->bound, b->error));
    if (!must && r->bound < -1e30f) r->bound = 0.0f; /* other programs write this for "none" */
    if (b->arch->bounded_decay) /* other architectures have no such gate, even if their files have the key */
        AE_TRY(ae_gguf_get_bool(b->gguf, ae_bind_key(b, "kda.safe_gate"), false, &safe, b->error));
    if (r->key_dim % 4 || !safe)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s.kda.head_dim is %u and kda.safe_gate %s; a multiple of 4 and "
                       "true are needed", ae_gguf_path(b->gguf), b->arch->name, r->key_dim, safe ? "true" : "false");
    if ((may && r->bound < 0.0f && r->bound > -1e3f) || (!must && r->bound == 0.0f)) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s.kda.gate_lower_bound is %g; %s", ae_gguf_path(b->gguf), b->arch->name,
                   (double)r->bound, may ? "a negative number is needed" : "this architecture has none");
}

/* Lightning attention: its state is Mamba2's, with a group for each head and no convolution. */
static aerie_status read_lightning(ae_binder *b, ae_hparams *h)
{
    ae_recur_hparams *r = &h->recur;
    r->n_taps = 1;
    r->n_heads = r->n_groups = h->n_heads;
    r->key_dim = r->value_dim = h->head_dim;
    AE_TRY(ae_bind_range(b, "attention.key_length", h->head_dim, 4, MAX_STATE));
    AE_TRY(ae_bind_range(b, "attention.head_count", r->n_heads, 1, AE_MAX_FF / (3 * h->head_dim)));
    r->n_channels = 3 * r->n_heads * r->value_dim;
    if (h->head_dim % 4 == 0) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s is %u; a multiple of 4 is needed", ae_gguf_path(b->gguf),
                   ae_bind_key(b, "attention.key_length"), h->head_dim);
}

static aerie_status read_shape(ae_binder *b, ae_hparams *h)
{
    ae_recur_hparams *r = &h->recur;
    const ae_recur_kind kind = r->kind;
    uint32_t inner;
    if (kind == AE_RECUR_SHORTCONV) {
        r->n_channels = h->n_embd;
        return ae_bind_get(b, "shortconv.l_cache", true, 1, MAX_TAPS, &r->n_taps);
    }
    if (kind == AE_RECUR_LIGHTNING) return read_lightning(b, h);
    AE_TRY(ae_bind_get(b, "ssm.conv_kernel", true, 1, MAX_TAPS, &r->n_taps));
    if (kind == AE_RECUR_KDA) return read_kda(b, h);
    AE_TRY(ae_bind_get(b, "ssm.state_size", true, 4, MAX_STATE, &r->key_dim));
    if (r->key_dim % 4)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s is %u; a multiple of 4 is needed", ae_gguf_path(b->gguf),
                       ae_bind_key(b, "ssm.state_size"), r->key_dim);
    if (kind == AE_RECUR_MAMBA1) {
        r->n_heads = r->n_groups = 1;
        AE_TRY(ae_bind_get(b, "ssm.time_step_rank", true, 1, AE_MAX_EMBD, &r->n_dt));
        AE_TRY(ae_bind_get(b, "ssm.inner_size", true, 1, AE_MAX_FF, &r->value_dim));
        r->n_channels = r->value_dim;
        return read_step_norms(b, r);
    }
    AE_TRY(ae_bind_get(b, "ssm.time_step_rank", true, 1, AE_MAX_HEADS, &r->n_heads));
    if (kind == AE_RECUR_PLAMO2) r->n_groups = 1; /* 0 in files */
    else AE_TRY(ae_bind_get(b, "ssm.group_count", true, 1, r->n_heads, &r->n_groups));
    AE_TRY(ae_bind_get(b, "ssm.inner_size", true, 1, AE_MAX_FF, &inner));
    r->value_dim = inner / r->n_heads;
    if (inner % r->n_heads || r->n_heads % r->n_groups || (kind == AE_RECUR_DELTA && r->value_dim != r->key_dim))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u, for %u heads in %u groups with a state of %u: they do not "
                       "divide", ae_gguf_path(b->gguf), ae_bind_key(b, "ssm.inner_size"), inner, r->n_heads, r->n_groups,
                       r->key_dim);
    r->n_channels = kind == AE_RECUR_PLAMO2 ? inner : inner + 2 * r->n_groups * r->key_dim;
    if (kind == AE_RECUR_PLAMO2) r->n_dt = h->n_embd > 64 * 16 ? h->n_embd / 16 : 64;
    return AERIE_OK;
}

/* Finds the layers with attention: from a list of the recurrent layers, or one in each interval. */
static aerie_status find_attention(ae_binder *b, const ae_hparams *h, const ae_layer *layers, bool *attends)
{
    const bool lightning = h->recur.kind == AE_RECUR_LIGHTNING;
    uint32_t interval = lightning ? 8 : 4, recurrent[AE_MAX_LAYERS] = {0};
    if (h->recur.kind != AE_RECUR_DELTA && !lightning) {
        for (uint32_t i = 0; i < b->n_specs; i++) {
            const ae_layer_spec *s = &layers[i].spec;
            attends[i] = s->n_kv_heads != 0 && !(b->arch->norms == AE_NORMS_ONE && s->n_ff); /* a layer has one block only */
            attends[i] |= b->arch->nextn_both && i >= h->n_layers;
        }
        return AERIE_OK;
    }
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "full_attention_interval"), false, &interval, b->error));
    AE_TRY(ae_bind_range(b, "full_attention_interval", interval, 1, AE_MAX_LAYERS));
    for (uint32_t i = 0; i < h->n_layers; i++) recurrent[i] = (i + 1) % interval != 0;
    AE_TRY(ae_bind_per_layer(b, "attention.recurrent_layers", false, h->n_layers, 1, recurrent));
    /* MTP blocks always have attention */
    for (uint32_t i = 0; i < b->n_specs; i++) attends[i] = i >= h->n_layers || !recurrent[i];
    return AERIE_OK;
}

aerie_status ae_bind_recur_hparams(ae_binder *b, ae_hparams *h, ae_layer *layers)
{
    bool attends[AE_MAX_LAYERS];
    if (!b->arch->recur) return AERIE_OK;
    h->recur.kind = b->arch->recur;
    h->recur.tiled = b->arch->recur_tiled;
    h->recur.sigmoid = b->arch->recur_sigmoid;
    if (h->recur.kind == AE_RECUR_WKV6 || h->recur.kind == AE_RECUR_WKV7) return ae_bind_wkv_hparams(b, h, layers);
    AE_TRY(read_shape(b, h));
    AE_TRY(find_attention(b, h, layers, attends));
    for (uint32_t i = 0; i < b->n_specs; i++) {
        ae_layer_spec *s = &layers[i].spec;
        if (b->arch->recur_beside) {
            s->recur_beside = true;
            continue;
        }
        const bool alone = b->arch->norms == AE_NORMS_ONE && !(b->arch->nextn_both && i >= h->n_layers);
        const bool feeds = alone && !attends[i] && s->n_ff;
        if (attends[i] && !s->n_kv_heads) return ae_bind_range(b, "attention.head_count_kv", 0, 1, s->n_heads);
        if (!attends[i]) {
            s->mixer = feeds ? AE_MIXER_NONE : AE_MIXER_RECUR;
            s->index = AE_INDEX_NONE;
            s->n_heads = s->n_kv_heads = 0;
            s->out_gate = AE_OUT_GATE_NONE;
        }
        if (alone) s->ffn = !feeds ? AE_FFN_NONE : h->experts.n ? AE_FFN_EXPERTS : AE_FFN_DENSE;
    }
    return AERIE_OK;
}

static aerie_status bind_delta(ae_binder *b, uint32_t i, const ae_hparams *h, ae_recur_layer *l)
{
    const ae_recur_hparams *r = &h->recur;
    const uint32_t e = h->n_embd, values = r->n_heads * r->value_dim;
    ae_tensor_ref fused = NULL; /* as in Qwen3-Next's files of 2025; tiled heads would need another order */
    if (!r->tiled) AE_TRY(ae_bind_layer(b, i, "ssm_in.weight", false, r->n_channels + values, e, &fused));
    AE_TRY(ae_bind_layer(b, i, "attn_qkv.weight", !fused, r->n_channels, e, &l->in));
    if (l->in) AE_TRY(ae_bind_layer(b, i, "attn_gate.weight", true, values, e, &l->gate)); /* it counts where both are given */
    else l->in = l->gate = fused;
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

/* Binds the taps of some channels: [n_taps, n] or, as converters write them, [n_taps, 1, n]. */
static aerie_status bind_taps(ae_binder *b, uint32_t i, const char *part, uint32_t n_taps, uint32_t n, ae_tensor_ref *out)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", i, part);
    const ae_gguf_tensor *t = ae_gguf_tensor_find(b->gguf, name);
    if (t && t->ne[1] == 1 && n > 1) return ae_bind_stack(b, name, true, n, 1, n_taps, out);
    return ae_bind(b, name, true, n, n_taps, out);
}

static aerie_status bind_kda(ae_binder *b, uint32_t i, const ae_hparams *h, ae_recur_layer *l)
{
    const ae_recur_hparams *r = &h->recur;
    const uint32_t e = h->n_embd, d = r->value_dim, n = r->n_heads * d;
    const bool direct = b->arch->bounded_decay;
    char name[48];
    AE_TRY(ae_bind_layer(b, i, "attn_qkv.weight", false, 3 * n, e, &l->in));
    if (!l->in) {
        AE_TRY(ae_bind_layer(b, i, "attn_q.weight", true, n, e, &l->in_q));
        AE_TRY(ae_bind_layer(b, i, "attn_k.weight", true, n, e, &l->in_k));
        AE_TRY(ae_bind_layer(b, i, "attn_v.weight", true, n, e, &l->in_v));
    }
    AE_TRY(bind_taps(b, i, "ssm_conv1d_q.weight", r->n_taps, n, &l->conv));
    AE_TRY(bind_taps(b, i, "ssm_conv1d_k.weight", r->n_taps, n, &l->conv_k));
    AE_TRY(bind_taps(b, i, "ssm_conv1d_v.weight", r->n_taps, n, &l->conv_v));
    const bool one_gate = b->arch->bank; /* a full-rank gate, under a name of its own */
    if (!direct) AE_TRY(ae_bind_layer(b, i, "ssm_f_a.weight", true, d, e, &l->f_a));
    if (!direct && !one_gate) AE_TRY(ae_bind_layer(b, i, "ssm_g_a.weight", true, d, e, &l->g_a));
    AE_TRY(ae_bind_layer(b, i, direct ? "ssm_f_a.weight" : "ssm_f_b.weight", true, n, direct ? e : d, &l->alpha));
    AE_TRY(ae_bind_layer(b, i, one_gate ? "ssm_g.weight" : direct ? "ssm_g_a.weight" : "ssm_g_b.weight", true, n,
                         l->g_a ? d : e, &l->gate));
    AE_TRY(ae_bind_layer(b, i, "ssm_beta.weight", true, r->n_heads, e, &l->beta));
    snprintf(name, sizeof name, "blk.%u.ssm_a", i);
    const ae_gguf_tensor *decay = ae_gguf_tensor_find(b->gguf, name); /* [H], or with an additional dimension of 1 before it */
    const bool flat = decay && decay->ne[1] == 1;
    AE_TRY(ae_bind(b, name, true, flat ? 0 : r->n_heads, flat ? r->n_heads : 1, &l->decay));
    AE_TRY(ae_bind_layer(b, i, "ssm_dt.bias", true, 0, n, &l->dt_bias));
    AE_TRY(ae_bind_layer(b, i, "ssm_norm.weight", true, 0, d, &l->norm));
    return ae_bind_layer(b, i, "attn_output.weight", true, e, n, &l->out);
}

static aerie_status bind_mamba1(ae_binder *b, uint32_t i, const ae_hparams *h, ae_recur_layer *l)
{
    const ae_recur_hparams *r = &h->recur;
    const uint32_t e = h->n_embd, n = r->value_dim;
    AE_TRY(ae_bind_layer(b, i, "ssm_in.weight", true, 2 * n, e, &l->in));
    AE_TRY(ae_bind_layer(b, i, "ssm_x.weight", true, r->n_dt + 2 * r->key_dim, n, &l->x_proj));
    AE_TRY(ae_bind_layer(b, i, "ssm_dt_norm.weight", false, 0, r->n_dt, &l->dt_norm));
    AE_TRY(ae_bind_layer(b, i, "ssm_b_norm.weight", l->dt_norm != NULL, 0, r->key_dim, &l->b_norm));
    AE_TRY(ae_bind_layer(b, i, "ssm_c_norm.weight", l->dt_norm != NULL, 0, r->key_dim, &l->c_norm));
    AE_TRY(ae_bind_layer(b, i, "ssm_dt.weight", true, n, r->n_dt, &l->dt_proj));
    AE_TRY(ae_bind_layer(b, i, "ssm_dt.bias", true, 0, n, &l->dt_bias));
    AE_TRY(ae_bind_layer(b, i, "ssm_a", true, n, r->key_dim, &l->decay));
    AE_TRY(ae_bind_layer(b, i, "ssm_d", true, 0, n, &l->skip));
    return ae_bind_layer(b, i, "ssm_out.weight", true, e, n, &l->out);
}

static aerie_status bind_plamo2(ae_binder *b, uint32_t i, const ae_hparams *h, ae_recur_layer *l)
{
    const ae_recur_hparams *r = &h->recur;
    const uint32_t e = h->n_embd, n = r->n_heads * r->value_dim;
    AE_TRY(ae_bind_layer(b, i, "ssm_in.weight", true, 2 * n, e, &l->in));
    AE_TRY(ae_bind_layer(b, i, "ssm_x.weight", true, r->n_dt + 2 * r->key_dim, n, &l->x_proj));
    AE_TRY(ae_bind_layer(b, i, "ssm_dt_norm", true, 0, r->n_dt, &l->dt_norm));
    AE_TRY(ae_bind_layer(b, i, "ssm_b_norm", true, 0, r->key_dim, &l->b_norm));
    AE_TRY(ae_bind_layer(b, i, "ssm_c_norm", true, 0, r->key_dim, &l->c_norm));
    AE_TRY(ae_bind_layer(b, i, "ssm_dt.weight", true, r->n_heads, r->n_dt, &l->dt_proj));
    AE_TRY(ae_bind_layer(b, i, "ssm_dt.bias", true, 0, r->n_heads, &l->dt_bias));
    AE_TRY(ae_bind_layer(b, i, "ssm_a", true, 0, r->n_heads, &l->decay));
    AE_TRY(ae_bind_layer(b, i, "ssm_d", true, 0, r->n_heads, &l->skip));
    return ae_bind_layer(b, i, "ssm_out.weight", true, e, n, &l->out);
}

static aerie_status bind_shortconv(ae_binder *b, uint32_t i, const ae_hparams *h, ae_recur_layer *l)
{
    const uint32_t e = h->n_embd;
    AE_TRY(ae_bind_layer(b, i, "shortconv.in_proj.weight", true, 3 * e, e, &l->in));
    AE_TRY(ae_bind_layer(b, i, "shortconv.conv.weight", true, e, h->recur.n_taps, &l->conv));
    return ae_bind_layer(b, i, "shortconv.out_proj.weight", true, e, e, &l->out);
}

/* Head h of layer i decays by exp(-rate) at each step: rates fall with h and with i. */
static aerie_status bind_lightning(ae_binder *b, uint32_t i, const ae_hparams *h, ae_arena *arena, ae_recur_layer *l)
{
    const uint32_t e = h->n_embd, n = h->recur.n_heads, values = n * h->recur.value_dim;
    const double last = h->n_layers - 1, factor = 1.0 - i / (last + 1e-5) + 1e-5;
    float *rates = ae_arena_alloc(arena, 3 * (size_t)n, sizeof *rates);
    if (!rates) return ae_fail_memory(b->error, "the rates of heads", 3 * (size_t)n * sizeof *rates);
    for (uint32_t k = 0; k < n; k++) {
        rates[n + k] = 0.54132485461f; /* ln(e - 1), which softplus turns into a step of exactly 1 */
        rates[2 * n + k] = (float)-(ae_pow(2.0, -8.0 / n * (k + 1.0)) * factor);
    }
    l->rates = rates;
    AE_TRY(ae_bind_layer(b, i, "attn_qkv.weight", true, 3 * values, e, &l->in));
    AE_TRY(ae_bind_layer(b, i, "attn_gate.weight", true, values, e, &l->gate));
    AE_TRY(ae_bind_layer(b, i, "attn_norm_2.weight", true, 0, values, &l->norm));
    return ae_bind_layer(b, i, "attn_output.weight", true, e, values, &l->out);
}

aerie_status ae_bind_recur(ae_binder *b, uint32_t i, const ae_hparams *h, ae_arena *arena, ae_layer *layer)
{
    const ae_recur_hparams *r = &h->recur;
    ae_recur_layer *l = &layer->recur;
    if (r->kind == AE_RECUR_WKV6 || r->kind == AE_RECUR_WKV7) return ae_bind_wkv(b, i, h, layer);
    if (r->kind == AE_RECUR_SHORTCONV) return bind_shortconv(b, i, h, l);
    if (r->kind == AE_RECUR_KDA) return bind_kda(b, i, h, l);
    if (r->kind == AE_RECUR_LIGHTNING) return bind_lightning(b, i, h, arena, l);
    AE_TRY(ae_bind_layer(b, i, "ssm_conv1d.weight", true, r->n_channels, r->n_taps, &l->conv));
    AE_TRY(ae_bind_layer(b, i, "ssm_conv1d.bias", false, 0, r->n_channels, &l->conv_bias));
    if (r->kind == AE_RECUR_MAMBA1) return bind_mamba1(b, i, h, l);
    if (r->kind == AE_RECUR_PLAMO2) return bind_plamo2(b, i, h, l);
    return r->kind == AE_RECUR_DELTA ? bind_delta(b, i, h, l) : bind_mamba2(b, i, h, l);
}
