/* hparams.c - reads a model's keys as hyper-parameters, and as one specification for each layer.
 *
 * Owns nothing. What the keys leave open is decided by the architecture's row in arch.c, and what both leave open by the common
 * defaults of GGUF files. */
#include "model/hparams.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math/fmath.h"

#define MOST_BANKS 64 /* most rows of the stream that attention residuals keep */

/* ---- Values for each layer ------------------------------------------------------------------------------ */

aerie_status ae_bind_per_layer(ae_binder *b, const char *suffix, bool required, uint32_t n_trunk, uint32_t most,
                               uint32_t *values)
{
    const char *key = ae_bind_key(b, suffix);
    const ae_gguf_kv *kv = ae_gguf_kv_find(b->gguf, key);
    if (!kv || kv->type != AE_GGUF_ARRAY) {
        uint32_t value = values[0];
        AE_TRY(ae_gguf_get_u32(b->gguf, key, required, &value, b->error));
        if (kv && value > most) return ae_bind_range(b, suffix, value, 0, most);
        for (uint32_t i = 0; kv && i < b->n_specs; i++) values[i] = value;
        return AERIE_OK;
    }
    if (kv->n < n_trunk)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s has %llu values; there are %u layers", ae_gguf_path(b->gguf), key,
                       (unsigned long long)kv->n, n_trunk);
    uint32_t largest = 0;
    for (uint32_t i = 0; i < b->n_specs; i++) {
        if (i >= kv->n) { /* some files have no value for their MTP blocks */
            values[i] = most > 1 ? largest : 0;
            continue;
        }
        int64_t v = 0;
        const bool is_bool = kv->element_type == AE_GGUF_BOOL;
        if (is_bool) v = kv->data[i] != 0;
        if ((!is_bool && !ae_gguf_kv_int(kv, i, &v)) || v < 0 || v > (int64_t)most)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: element %u of %s is not a count of at most %u",
                           ae_gguf_path(b->gguf), i, key, most);
        values[i] = (uint32_t)v;
        if (values[i] > largest) largest = values[i];
    }
    return AERIE_OK;
}

static aerie_status get_f32(ae_binder *b, const char *suffix, float *value)
{
    AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, suffix), false, value, b->error));
    if (fabsf(*value) < 1e12f) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %g", ae_gguf_path(b->gguf), b->key, (double)*value);
}

/* ---- Experts -------------------------------------------------------------------------------------- */

/* Reads the size of the expert that all rows share. */
static aerie_status read_shared(ae_binder *b, ae_hparams *h)
{
    ae_expert_hparams *x = &h->experts;
    const ae_arch_shared shared = b->arch->shared;
    if (shared == AE_SHARED_GATED || shared == AE_SHARED_SIZE) {
        const bool full = shared == AE_SHARED_GATED || b->arch->shared_full;
        x->n_ff_shared = full ? h->n_ff : 0;
        AE_TRY(ae_bind_count(b, "expert_shared_feed_forward_length", &x->n_ff_shared));
        AE_TRY(ae_bind_range(b, "expert_shared_feed_forward_length", x->n_ff_shared, full, AE_MAX_FF));
        if (!x->n_ff_shared && b->arch->shared_default) x->n_ff_shared = x->n_ff;
    } else if (shared == AE_SHARED_COUNT || shared == AE_SHARED_SIZE_COUNT) {
        uint32_t n = 0, size = x->n_ff;
        if (shared == AE_SHARED_SIZE_COUNT) AE_TRY(ae_bind_count(b, "expert_shared_feed_forward_length", &size));
        AE_TRY(ae_bind_range(b, "expert_shared_feed_forward_length", size, 1, AE_MAX_FF));
        AE_TRY(ae_bind_get(b, "expert_shared_count", true, 0, AE_MAX_FF / size, &n));
        x->n_ff_shared = n * size;
    } else if (shared == AE_SHARED_SIZE_ELSE_COUNT) {
        uint32_t n = 0;
        AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "expert_shared_count"), false, &n, b->error));
        AE_TRY(ae_bind_range(b, "expert_shared_count", n, 0, AE_MAX_FF / x->n_ff));
        x->n_ff_shared = n * x->n_ff;
        if (n) AE_TRY(ae_bind_count(b, "expert_shared_feed_forward_length", &x->n_ff_shared));
        AE_TRY(ae_bind_range(b, "expert_shared_feed_forward_length", x->n_ff_shared, 0, AE_MAX_FF));
    } else if (shared == AE_SHARED_ONE) {
        x->n_ff_shared = x->n_ff;
    }
    return AERIE_OK;
}

static aerie_status read_groups(ae_binder *b, ae_expert_hparams *x)
{
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "expert_group_count"), false, &x->n_groups, b->error));
    if (x->n_groups <= 1) {
        x->n_groups = 0;
        return AERIE_OK;
    }
    x->n_groups_used = x->n_groups;
    AE_TRY(ae_bind_count(b, "expert_group_used_count", &x->n_groups_used));
    AE_TRY(ae_bind_range(b, "expert_group_count", x->n_groups, 1, x->n));
    AE_TRY(ae_bind_range(b, "expert_group_used_count", x->n_groups_used, 1, x->n_groups));
    if (x->n % x->n_groups || x->n / x->n_groups * x->n_groups_used < x->n_used)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %u experts in %u groups, of which a row uses %u experts from %u "
                       "groups: that does not divide", ae_gguf_path(b->gguf), x->n, x->n_groups, x->n_used, x->n_groups_used);
    return AERIE_OK;
}

static aerie_status read_chunks(ae_binder *b, const ae_hparams *h, ae_expert_hparams *x)
{
    uint32_t n_each = 0;
    x->n_ff_chunk = h->head_dim;
    AE_TRY(ae_bind_count(b, "expert_chunk_feed_forward_length", &x->n_ff_chunk));
    AE_TRY(ae_bind_range(b, "expert_chunk_feed_forward_length", x->n_ff_chunk, 1, AE_MAX_FF));
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "experts_per_group"), true, &n_each, b->error));
    AE_TRY(ae_bind_range(b, "experts_per_group", n_each, 1, x->n));
    if (x->n % n_each)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %u experts cannot be divided into groups of %u (%s)",
                       ae_gguf_path(b->gguf), x->n, n_each, b->key);
    x->n_chunks = x->n / n_each;
    AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, "expert_group_scale"), true, &x->chunk_scale, b->error));
    if (fabsf(x->chunk_scale) < 1e6f) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %g", ae_gguf_path(b->gguf), b->key, (double)x->chunk_scale);
}

static aerie_status read_experts(ae_binder *b, ae_hparams *h)
{
    ae_expert_hparams *x = &h->experts;
    const ae_gguf *gguf = b->gguf;
    uint32_t gate = 0; /* other programs write 0 for "not given" */
    AE_TRY(ae_gguf_get_u32(gguf, ae_bind_key(b, "expert_count"), b->arch->experts == AE_EXPERTS_ALWAYS, &x->n, b->error));
    if (b->arch->experts == AE_EXPERTS_ALWAYS) AE_TRY(ae_bind_range(b, "expert_count", x->n, 1, AE_MAX_EXPERTS));
    if (!x->n) return AERIE_OK;
    /* other programs write values that they do not use */
    if (b->arch->experts == AE_EXPERTS_NEVER && ae_bind_is_saved(b)) x->n = 0;
    if (!x->n) return AERIE_OK;
    if (b->arch->experts == AE_EXPERTS_NEVER)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s.expert_count is %u; models of this architecture have no "
                       "experts", ae_gguf_path(gguf), b->arch->name, x->n);
    AE_TRY(ae_bind_range(b, "expert_count", x->n, 1, AE_MAX_EXPERTS));
    AE_TRY(ae_gguf_get_u32(gguf, ae_bind_key(b, "expert_used_count"), true, &x->n_used, b->error));
    AE_TRY(ae_bind_range(b, "expert_used_count", x->n_used, 1, x->n));
    const char *latent = b->arch->latent ? "expert_latent_length" : "moe_latent_size";
    AE_TRY(ae_gguf_get_u32(gguf, ae_bind_key(b, latent), false, &x->n_latent, b->error));
    AE_TRY(ae_bind_range(b, latent, x->n_latent, 0, AE_MAX_EMBD));
    x->n_ff = b->arch->split_ff ? h->n_ff / x->n_used : h->n_ff;
    AE_TRY(ae_bind_count(b, "expert_feed_forward_length", &x->n_ff));
    AE_TRY(ae_bind_range(b, "expert_feed_forward_length", x->n_ff, 1, AE_MAX_FF));
    AE_TRY(read_shared(b, h));
    AE_TRY(read_groups(b, x));
    if (b->arch->chunks) AE_TRY(read_chunks(b, h, x));
    AE_TRY(ae_gguf_get_u32(gguf, ae_bind_key(b, "expert_gating_func"), false, &gate, b->error));
    if (!gate && b->arch->sigmoid_vocab == h->n_vocab) gate = AE_EXPERT_GATE_SIGMOID;
    if (gate) AE_TRY(ae_bind_range(b, "expert_gating_func", gate, AE_EXPERT_GATE_SOFTMAX, AE_EXPERT_GATE_SQRT_SOFTPLUS));
    x->gate = gate ? (ae_expert_gate)gate : b->arch->gate;
    x->renorm = b->arch->renorm;
    x->weigh_input = b->arch->weigh_input;
    if (!x->renorm || !ae_bind_is_saved(b))
        AE_TRY(ae_gguf_get_bool(gguf, ae_bind_key(b, "expert_weights_norm"), false, &x->renorm, b->error));
    AE_TRY(ae_gguf_get_f32(gguf, ae_bind_key(b, "expert_weights_scale"), false, &x->scale, b->error));
    if (x->scale == 0.0f) x->scale = 1.0f; /* other programs write 0 for "none" */
    if (!(fabsf(x->scale) < 1e6f))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s.expert_weights_scale is %g", ae_gguf_path(gguf), b->arch->name,
                       (double)x->scale);
    return AERIE_OK;
}

/* Decides which layers have experts. */
static aerie_status place_experts(ae_binder *b, const ae_hparams *h, ae_layer *layers)
{
    uint32_t n_dense = 0, step = 1, every = 0;
    if (!h->experts.n) return AERIE_OK;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "leading_dense_block_count"), false, &n_dense, b->error));
    AE_TRY(ae_bind_range(b, "leading_dense_block_count", n_dense, 0, h->n_layers));
    if (b->arch->expert_step) {
        AE_TRY(ae_bind_count(b, "interleave_moe_layer_step", &step));
        AE_TRY(ae_bind_range(b, "interleave_moe_layer_step", step, 1, AE_MAX_LAYERS));
    }
    if (b->arch->expert_every) {
        AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "moe_every_n_layers"), false, &every, b->error));
        if (!every) return AERIE_OK;
    }
    for (uint32_t i = b->arch->expert_by_tensor ? 0 : n_dense; i < b->n_specs; i++) {
        char name[48];
        snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", i);
        const bool by_tensor = b->arch->expert_by_tensor || i >= h->n_layers;
        const bool chosen = by_tensor ? ae_gguf_tensor_find(b->gguf, name) != NULL
                            : every   ? i % every == 1
                                      : (i + 1) % step == 0;
        if (!chosen) continue;
        snprintf(name, sizeof name, "blk.%u.ffn_up.weight", i);
        const bool beside = b->arch->experts_beside && (!b->arch->beside_plain || ae_gguf_tensor_find(b->gguf, name));
        layers[i].spec.ffn = beside ? AE_FFN_BOTH : AE_FFN_EXPERTS;
        if (beside && b->arch->beside_scale > 0.0f) layers[i].spec.experts_scale = b->arch->beside_scale;
        layers[i].spec.experts_of_input = b->arch->beside_input;
        layers[i].spec.router_of_input = b->arch->router_of_input;
    }
    return AERIE_OK;
}

/* ---- Attention ------------------------------------------------------------------------------------ */

/* Decides which layers have a window: a flag for each layer. */
static aerie_status read_windows(ae_binder *b, ae_hparams *h, ae_layer *layers)
{
    const ae_arch *a = b->arch;
    uint32_t window = a->window, windowed[AE_MAX_LAYERS], period = a->window_period;
    if (!period) return AERIE_OK;
    if (a->only_layers && h->n_layers != a->only_layers) return AERIE_OK;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "attention.sliding_window"), false, &window, b->error));
    if (!window || window > INT32_MAX) return AERIE_OK;
    if (a->near) h->n_near = window / 2;
    if (a->chunked) window = a->window; /* files have another number, which is not used */
    const ae_gguf_kv *kv = ae_gguf_kv_find(b->gguf, ae_bind_key(b, "attention.sliding_window_pattern"));
    if (kv && kv->type != AE_GGUF_ARRAY) AE_TRY(ae_gguf_get_u32(b->gguf, b->key, false, &period, b->error));
    for (uint32_t i = 0; i < b->n_specs; i++) { /* MTP blocks see all positions unless an array says otherwise */
        const bool sees_all = period && (a->window_last ? i % period == 0 : i % period == period - 1);
        windowed[i] = i < h->n_layers && !sees_all;
    }
    if (kv && kv->type == AE_GGUF_ARRAY)
        AE_TRY(ae_bind_per_layer(b, "attention.sliding_window_pattern", false, h->n_layers, 1, windowed));
    for (uint32_t i = 0; i < b->n_specs; i++) {
        const bool told = kv && kv->type == AE_GGUF_ARRAY && i < kv->n;
        windowed[i] |= i >= h->n_layers && (a->mla_window || (a->nextn_window && !told));
        layers[i].spec.window = !windowed[i] ? 0 : a->near ? window / 2 + 1 : window;
        layers[i].spec.chunked = windowed[i] && a->chunked;
    }
    return AERIE_OK;
}

/* Adds a rotation for some layers, which differs from the first one in the keys; *index is its index. */
static aerie_status add_rope(ae_binder *b, ae_hparams *h, ae_arch_rotation rotation, int *index)
{
    *index = rotation == AE_ROTATION_NONE ? AE_NO_ROPE : 0;
    if (rotation == AE_ROTATION_NONE || rotation == AE_ROTATION_SAME) return AERIE_OK;
    *index = (int)h->n_ropes;
    ae_rope *r = &h->ropes[h->n_ropes++];
    *r = h->ropes[0];
    if (rotation == AE_ROTATION_HALF) {
        r->n_rot = r->n_rot / 4 * 2;
    } else {
        r->scaling = AE_ROPE_SCALING_NONE;
        r->factor = 1.0f;
        r->yarn_attn_factor = 1.0f;
        r->divisors = r->divisors_long = NULL;
        if (b->arch->window_rope_base > 0.0f) r->base = b->arch->window_rope_base;
        AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, "rope.freq_base_swa"), false, &r->base, b->error));
        if (b->arch->window_heads)
            AE_TRY(ae_bind_count(b, "attention.key_length_swa", &r->n_rot));
        AE_TRY(ae_bind_count(b, "rope.dimension_count_swa", &r->n_rot));
    }
    return ae_bind_check_rope(b, r, h->head_dim);
}

static aerie_status place_ropes(ae_binder *b, ae_hparams *h, ae_layer *layers)
{
    const ae_arch *a = b->arch;
    bool finetuned = true, windows = false;
    int of_window = 0, of_full = 0;
    uint32_t n_dense = 0, rotates[AE_MAX_LAYERS];
    for (uint32_t i = 0; i < b->n_specs; i++) rotates[i] = 1;
    if (a->rope_pattern) AE_TRY(ae_bind_per_layer(b, "attention.rope_pattern", false, h->n_layers, 1, rotates));
    if (a->rope_dense) AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "leading_dense_block_count"), false, &n_dense, b->error));
    if (a->rope_finetuned)
        AE_TRY(ae_gguf_get_bool(b->gguf, ae_bind_key(b, "rope.scaling.finetuned"), false, &finetuned, b->error));
    for (uint32_t i = 0; i < b->n_specs; i++) windows |= layers[i].spec.window != 0;
    if (windows) {
        AE_TRY(add_rope(b, h, a->window_rope, &of_window));
        AE_TRY(add_rope(b, h, a->full_rope, &of_full));
    }
    for (uint32_t i = 0; i < b->n_specs; i++) {
        ae_layer_spec *s = &layers[i].spec;
        const bool whole = a->chunked && !windows; /* Llama 4's small models rotate in every layer */
        const bool skipped = (a->no_rope_period && !whole && (i + 1) % a->no_rope_period == 0) || !rotates[i];
        const bool still = !finetuned || skipped || h->slopes || a->relative;
        const bool rotates_always = i < n_dense || (a->rope_dense && i >= h->n_layers);
        s->rope = still ? AE_NO_ROPE : s->window || rotates_always ? of_window : of_full;
        if (a->qk_norm_plain && s->rope == AE_NO_ROPE) s->qk_norm = AE_QK_NORM_NONE;
    }
    return AERIE_OK;
}

static aerie_status read_heads(ae_binder *b, ae_hparams *h, ae_layer *layers)
{
    uint32_t n_heads[AE_MAX_LAYERS] = {0}, n_kv[AE_MAX_LAYERS] = {0}, n_ff[AE_MAX_LAYERS] = {0};
    AE_TRY(ae_bind_per_layer(b, "attention.head_count", !b->arch->no_attention, h->n_layers, AE_MAX_HEADS, n_heads));
    for (uint32_t i = 0; i < b->n_specs; i++) n_kv[i] = n_heads[i], n_ff[i] = h->n_ff;
    AE_TRY(ae_bind_per_layer(b, "attention.head_count_kv", false, h->n_layers, AE_MAX_HEADS, n_kv));
    AE_TRY(ae_bind_per_layer(b, "feed_forward_length", false, h->n_layers, AE_MAX_FF, n_ff));
    for (uint32_t i = 0; i < b->n_specs; i++) {
        ae_layer_spec *s = &layers[i].spec;
        if (b->arch->no_attention) n_heads[i] = 1, n_kv[i] = 0;
        if (b->arch->no_attention && b->arch->norms == AE_NORMS_ONE) n_ff[i] = 0; /* such a layer has only a mixer */
        s->n_heads = n_heads[i], s->n_kv_heads = n_kv[i], s->n_ff = b->arch->double_ff ? n_ff[i] / 2 : n_ff[i];
        const bool none = !s->n_kv_heads && b->arch->recur; /* a layer without attention */
        if (b->arch->parts_optional && !s->n_ff) s->ffn = AE_FFN_NONE;
        if (b->arch->beside_input) s->n_ff = h->n_embd;
        if (b->arch->parts_optional && (!s->n_heads || !s->n_kv_heads)) {
            s->mixer = s->n_heads ? AE_MIXER_LINEAR : AE_MIXER_NONE;
            s->n_heads = s->n_kv_heads = 0;
            continue;
        }
        if (!s->n_heads && none) s->n_heads = 1; /* any number: the layer will lose its heads */
        if (!s->n_heads || (!none && (!s->n_kv_heads || s->n_heads % s->n_kv_heads)))
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %u attention heads of layer %u cannot share %u KV heads evenly",
                           ae_gguf_path(b->gguf), s->n_heads, i, s->n_kv_heads);
        if (!s->n_ff && s->ffn == AE_FFN_DENSE && b->arch->norms != AE_NORMS_ONE)
            return ae_bind_range(b, "feed_forward_length", 0, 1, AE_MAX_FF);
    }
    return AERIE_OK;
}

/* Reads the sizes of heads in layers with a window, and which layers read the keys and values of earlier ones. */
static aerie_status read_sharing(ae_binder *b, const ae_hparams *h, ae_layer *layers)
{
    uint32_t head_dim = h->head_dim, n_shared = 0;
    if (b->arch->window_heads) {
        AE_TRY(ae_bind_count(b, "attention.key_length_swa", &head_dim));
        AE_TRY(ae_bind_range(b, "attention.key_length_swa", head_dim, 2, AE_MAX_HEAD_DIM));
    }
    if (b->arch->shared_kv) {
        if (b->arch->shared_from && h->n_layers > b->arch->shared_from) n_shared = h->n_layers - b->arch->shared_from;
        AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "attention.shared_kv_layers"), false, &n_shared, b->error));
        AE_TRY(ae_bind_range(b, "attention.shared_kv_layers", n_shared, 0, h->n_layers < 2 ? 0 : h->n_layers - 2));
    }
    const uint32_t n_own = h->n_layers - n_shared;
    for (uint32_t i = 0; i < b->n_specs; i++) {
        ae_layer_spec *s = &layers[i].spec;
        if (s->window && b->arch->window_heads) s->head_dim = s->value_dim = head_dim;
        if (i < n_own || i >= h->n_layers) continue;
        uint32_t own = n_own; /* set to the last layer of the same kind that has keys and values of its own */
        while (own && !layers[own - 1].spec.window != !s->window) own--;
        if (!own)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: layer %u is to read the keys and values of an earlier layer, but "
                           "none of the first %u has a window like its own", ae_gguf_path(b->gguf), i, n_own);
        const ae_layer_spec *from = &layers[s->kv_from = (int)own - 1].spec;
        if (from->head_dim != s->head_dim || from->n_kv_heads != s->n_kv_heads)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: layer %u is to read the keys and values of layer %d, which have "
                           "%u heads of %u values, not %u of %u", ae_gguf_path(b->gguf), i, s->kv_from, from->n_kv_heads,
                           from->head_dim, s->n_kv_heads, s->head_dim);
    }
    return AERIE_OK;
}

/* ALiBi (arXiv 2108.12409): slopes are powers of 2^(-bias / n), where n is the largest power of two that is at most the number
 * of heads. The remaining heads take values in between. */
static aerie_status read_slopes(ae_binder *b, ae_hparams *h, ae_arena *arena)
{
    float bias = b->arch->alibi;
    uint32_t n = 1;
    if (b->arch->alibi_layers && h->n_layers != b->arch->alibi_layers) return AERIE_OK;
    if (b->arch->alibi_key) AE_TRY(get_f32(b, "attention.max_alibi_bias", &bias));
    if (!(bias > 0.0f)) return AERIE_OK;
    float *slopes = ae_arena_alloc(arena, h->n_heads, sizeof *slopes);
    if (!slopes) return ae_fail_memory(b->error, "the slopes of heads", h->n_heads * sizeof *slopes);
    while (2 * n <= h->n_heads) n *= 2;
    for (uint32_t i = 0; i < h->n_heads; i++) {
        const double step = i < n ? i + 1.0 : (2.0 * (i - n) + 1.0) / 2.0;
        slopes[i] = (float)ae_pow(2.0, -(double)bias * step / n);
    }
    h->slopes = slopes;
    return AERIE_OK;
}

static aerie_status read_buckets(ae_binder *b, ae_hparams *h)
{
    if (!b->arch->relative) return AERIE_OK;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "attention.relative_buckets_count"), true, &h->n_buckets, b->error));
    AE_TRY(ae_bind_range(b, "attention.relative_buckets_count", h->n_buckets, 4, AE_BIAS_REACH));
    h->biased = true;
    if (h->n_buckets % 4 == 0) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u; a multiple of 4 is expected", ae_gguf_path(b->gguf), b->key,
                   h->n_buckets);
}

static aerie_status read_attention(ae_binder *b, ae_hparams *h, ae_layer *layers)
{
    const ae_arch *a = b->arch;
    float value_scale = 0.0f, clamp = 0.0f;
    if (a->value_scale) AE_TRY(get_f32(b, "attention.value_scale", &value_scale));
    if (a->clamp_qkv) AE_TRY(get_f32(b, "attention.clamp_kqv", &clamp));
    float softcap = a->attn_softcap, scale = a->attn_scale > 0.0f ? a->attn_scale : h->attn_scale;
    if (a->keep_attn_softcap) AE_TRY(get_f32(b, "attn_logit_softcapping", &softcap));
    if (a->scale_by_size) scale = 1.0f / (float)h->head_dim;
    if (a->wide_layers == h->n_layers) scale = 1.0f / sqrtf((float)(h->n_embd / h->n_heads));
    float given = 0.0f; /* other programs write 0 for "none" */
    AE_TRY(get_f32(b, "attention.scale", &given));
    if (a->output_scale && given == 0.0f) AE_TRY(get_f32(b, "attention.output_scale", &given));
    if (given != 0.0f) scale = given;
    for (uint32_t i = 0; i < b->n_specs; i++) {
        ae_layer_spec *s = &layers[i].spec;
        if (s->n_heads) s->mixer = AE_MIXER_ATTENTION;
        s->head_dim = h->head_dim;
        s->value_dim = h->value_dim;
        s->value_scale = value_scale != 0.0f ? value_scale : 1.0f;
        s->clamp_qkv = clamp > 0.0f ? clamp : 0.0f;
        s->attn_scale = scale;
        s->attn_softcap = softcap;
        s->qk_norm = a->qk_norm_not_of && a->qk_norm_not_of == h->experts.n ? AE_QK_NORM_NONE : a->qk_norm;
        s->qk_norm_last = a->qk_norm_last;
        s->v_norm = a->v_norm;
        s->out_gate = a->gated_output ? AE_OUT_GATE_ELEMENT : a->own_gate ? AE_OUT_GATE_OWN : AE_OUT_GATE_NONE;
        s->softplus_gate = a->softplus_gate;
        s->kv_from = a->assistant ? AE_KV_OTHER : (int)i;
    }
    if (a->index_blocks) AE_TRY(ae_bind_blocks_hparams(b, h, layers));
    if (a->index_means) AE_TRY(ae_bind_means_hparams(b, h, layers));
    if (a->compress) return ae_bind_compress_hparams(b, h, layers);
    AE_TRY(read_windows(b, h, layers));
    if (a->mla) AE_TRY(ae_bind_mla_hparams(b, h, layers));
    AE_TRY(read_sharing(b, h, layers));
    AE_TRY(place_ropes(b, h, layers));
    if (a->temperature) {
        AE_TRY(get_f32(b, "attention.temperature_scale", &h->temp_scale));
        h->temp_length = h->ropes[0].n_ctx_orig;
        AE_TRY(ae_bind_count(b, "attention.temperature_length", &h->temp_length));
    } else if (a->chunked) { /* Llama 4's numbers, for which there are no keys */
        h->temp_scale = 0.1f, h->temp_offset = 1.0f, h->temp_length = 8192;
    }
    if (h->temp_scale != 0.0f && !h->temp_length)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s.attention.temperature_scale needs "
                       "%s.rope.scaling.original_context_length", ae_gguf_path(b->gguf), a->name, a->name);
    for (uint32_t i = 0; i < b->n_specs; i++)
        layers[i].spec.temperature = h->temp_scale != 0.0f && (a->temperature || layers[i].spec.rope == AE_NO_ROPE);
    return AERIE_OK;
}

/* ---- All of it ------------------------------------------------------------------------------------ */

static aerie_status read_scalars(ae_binder *b, ae_hparams *h)
{
    const ae_arch *a = b->arch;
    h->embedding_scale = a->scale_embedding ? sqrtf((float)h->n_embd) : 1.0f;
    if (a->embedding_scale > 0.0f) h->embedding_scale = a->embedding_scale;
    h->residual_scale = 1.0f;
    h->logit_scale = a->logit_factor > 0.0f ? a->logit_factor : 1.0f;
    if (a->mask_images && h->n_vocab > 8196) h->mask_begin = 4, h->mask_end = 8196; /* Chameleon's image tokens */
    h->logit_softcap = a->logit_softcap;
    float embedding_scale = 0.0f, residual_scale = 0.0f, logit_scale = 0.0f; /* 0 means "none" in these files */
    if (a->minicpm_scalars) {
        h->embedding_scale = 12.0f;
        h->residual_scale = 1.4f / sqrtf((float)h->n_layers);
        h->logit_scale = (float)h->n_embd / 256.0f;
    }
    AE_TRY(get_f32(b, "embedding_scale", &embedding_scale));
    if (embedding_scale != 0.0f) h->embedding_scale = embedding_scale;
    AE_TRY(get_f32(b, "residual_scale", &residual_scale));
    if (residual_scale != 0.0f) h->residual_scale = residual_scale;
    if (a->carries) h->carry_scale = h->residual_scale, h->residual_scale = 1.0f;
    if (a->keep_logit_softcap) AE_TRY(get_f32(b, "final_logit_softcapping", &h->logit_softcap));
    if (a->layer_embedding) {
        AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "embedding_length_per_layer_input"), false, &h->n_embd_layer, b->error));
        AE_TRY(ae_bind_range(b, "embedding_length_per_layer_input", h->n_embd_layer, 0, AE_MAX_EMBD / h->n_layers));
    }
    if (a->deepstack) {
        AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "n_deepstack_layers"), false, &h->n_deepstack, b->error));
        AE_TRY(ae_bind_range(b, "n_deepstack_layers", h->n_deepstack, 0, h->n_layers < 16 ? h->n_layers : 16));
    }
    if (a->logit_scale != AE_LOGIT_SCALE_NONE) AE_TRY(get_f32(b, "logit_scale", &logit_scale));
    if (logit_scale != 0.0f) h->logit_scale = logit_scale;
    if (a->logit_scale == AE_LOGIT_SCALE_OVER) h->logit_scale = 1.0f / h->logit_scale;
    return AERIE_OK;
}

/* Reads the pooling that the file asks for. Encoders without a rotation need no angles. */
static aerie_status read_pooling(ae_binder *b, ae_hparams *h)
{
    uint32_t pooling = AE_POOLING_NONE;
    if (h->encoder && (b->arch->no_rope_period == 1 || b->arch->relative)) h->n_ropes = 0;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "pooling_type"), false, &pooling, b->error));
    if (pooling == UINT32_MAX) pooling = AE_POOLING_NONE; /* llama.cpp writes this for "not given" */
    AE_TRY(ae_bind_range(b, "pooling_type", pooling, AE_POOLING_NONE, AE_POOLING_RANK));
    h->pooling = (ae_pooling)pooling;
    pooling = b->arch->rank_mean ? AE_POOLING_MEAN : AE_POOLING_CLS;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "classifier.pooling_type"), false, &pooling, b->error));
    h->rank_mean = pooling == AE_POOLING_MEAN;
    return AERIE_OK;
}

/* Reads the activation, for files that name it. */
static aerie_status read_activation(ae_binder *b, ae_activation *activation)
{
    static const struct {
        const char *name;
        ae_activation activation;
    } known[] = {{"gelu", AE_ACTIVATION_GELU}, {"geglu", AE_ACTIVATION_GELU}, {"gelu_pytorch_tanh", AE_ACTIVATION_GELU},
                 {"silu", AE_ACTIVATION_SILU}, {"swish", AE_ACTIVATION_SILU}, {"swiglu", AE_ACTIVATION_SILU},
                 {"relu2", AE_ACTIVATION_RELU2}};
    ae_gguf_string s = {0};
    AE_TRY(ae_gguf_get_string(b->gguf, ae_bind_key(b, "hidden_activation"), false, &s, b->error));
    if (!s.data) return AERIE_OK;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i].name) != s.n || memcmp(known[i].name, s.data, s.n)) continue;
        *activation = known[i].activation;
        return AERIE_OK;
    }
    return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s is \"%.*s\"; gelu, silu and relu2 are known",
                   ae_gguf_path(b->gguf), b->key, (int)(s.n < 32 ? s.n : 32), s.data);
}

/* Reads xIELU's numbers, one for each layer or one for all; their keys lack the architecture's prefix. */
static aerie_status read_xielu(ae_binder *b, const ae_hparams *h, ae_layer *layers)
{
    static const char *const names[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    for (size_t k = 0; k < 4; k++) {
        const ae_gguf_kv *kv = ae_gguf_kv_find(b->gguf, names[k]);
        if (!kv || (kv->type == AE_GGUF_ARRAY && kv->n < h->n_layers))
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s needs a number for each of %u layers", ae_gguf_path(b->gguf),
                           names[k], h->n_layers);
        for (uint32_t i = 0; i < b->n_specs; i++) {
            double x = 0;
            if (!ae_gguf_kv_float(kv, kv->type == AE_GGUF_ARRAY && i < kv->n ? i : 0, &x) || !(fabs(x) < 1e6))
                return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s has no number for layer %u", ae_gguf_path(b->gguf),
                               names[k], i);
            layers[i].spec.xielu[k] = (float)x;
        }
    }
    for (uint32_t i = 0; i < b->n_specs; i++) { /* the file has the inputs of softplus, whose results are the factors */
        float *x = layers[i].spec.xielu;
        x[0] = ae_softplusf(x[0]);
        x[1] = x[2] + ae_softplusf(x[1]);
    }
    return AERIE_OK;
}

/* Reads which layers drop small gates, and the cutoff of each. A layer that keeps all has minus infinity. */
static aerie_status read_sparsity(ae_binder *b, const ae_hparams *h, ae_layer *layers)
{
    const ae_gguf_kv *kv = ae_gguf_kv_find(b->gguf, ae_bind_key(b, "activation_sparsity_scale"));
    for (uint32_t i = 0; i < b->n_specs; i++) {
        double cutoff = i < 10 ? 1.6448533535003662 : -INFINITY; /* drops 19 of 20 values, if they are normally distributed */
        if (kv && (kv->type != AE_GGUF_ARRAY || kv->n < h->n_layers || !ae_gguf_kv_float(kv, i, &cutoff) || cutoff != cutoff ||
                   cutoff > 100))
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s has no number of at most 100 for layer %u",
                           ae_gguf_path(b->gguf), b->key, i);
        layers[i].spec.sparse = cutoff > -100;
        layers[i].spec.cutoff = layers[i].spec.sparse ? (float)cutoff : 0.0f;
    }
    return AERIE_OK;
}

/* Reads the distance between layers whose rows are banked. */
static aerie_status read_banks(ae_binder *b, ae_hparams *h)
{
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "attn_res.block_size"), true, &h->bank_every, b->error));
    if (h->bank_every) h->n_banks = h->n_layers / h->bank_every + (h->n_layers % h->bank_every > 0);
    if (h->n_banks <= MOST_BANKS) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s is %u; %u layers would bank %u rows, at most %d are possible",
                   ae_gguf_path(b->gguf), b->key, h->bank_every, h->n_layers, h->n_banks, MOST_BANKS);
}

/* SiTU's two numbers. */
static aerie_status read_situ(ae_binder *b, ae_layer *layers)
{
    float beta = 0.0f, linear = 0.0f;
    AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, "activation.situ_linear_beta"), true, &linear, b->error));
    AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, "activation.situ_beta"), true, &beta, b->error));
    if (!(beta > 0.0f && beta < 1e6f && linear < 1e6f))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %g, and situ_linear_beta %g; numbers of at most a million are "
                       "needed, and the first above 0", ae_gguf_path(b->gguf), b->key, (double)beta, (double)linear);
    for (uint32_t i = 0; i < b->n_specs; i++) {
        layers[i].spec.limit = layers[i].spec.shared_limit = beta;
        layers[i].spec.up_limit = linear > 0.0f ? linear : 0.0f;
    }
    return AERIE_OK;
}

static aerie_status read_streams(ae_binder *b, ae_hparams *h)
{
    uint32_t n = 4, active = 0;
    AE_TRY(ae_bind_count(b, "altup.num_inputs", &n));
    AE_TRY(ae_bind_range(b, "altup.num_inputs", n, 2, AE_MAX_STREAMS));
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "altup.active_idx"), false, &active, b->error));
    AE_TRY(ae_bind_range(b, "altup.active_idx", active, 0, 0));
    h->n_streams = n;
    const ae_gguf_tensor *laurel = ae_gguf_tensor_find(b->gguf, "blk.0.laurel_l.weight"); /* no key has its rank */
    h->laurel_rank = laurel && laurel->ne[1] > 0 && laurel->ne[1] <= AE_MAX_EMBD ? (uint32_t)laurel->ne[1] : 64;
    return AERIE_OK;
}

static aerie_status read_limits(ae_binder *b, const ae_hparams *h, ae_layer *layers)
{
    static const char *const names[] = {"swiglu_clamp_exp", "swiglu_clamp_shexp"};
    ae_activation activation = b->arch->activation;
    if (b->arch->activation_key) AE_TRY(read_activation(b, &activation));
    for (uint32_t i = 0; i < b->n_specs; i++) {
        ae_layer_spec *s = &layers[i].spec;
        s->activation = activation;
        s->limit = s->shared_limit = s->activation == AE_ACTIVATION_OAI ? 7.0f : 0.0f;
    }
    const bool limited = activation == AE_ACTIVATION_SILU_CLAMPED || activation == AE_ACTIVATION_SILU_LIMITED;
    if (activation == AE_ACTIVATION_XIELU) AE_TRY(read_xielu(b, h, layers));
    if (activation == AE_ACTIVATION_SITU) AE_TRY(read_situ(b, layers));
    for (size_t k = 0; limited && k < 2; k++) {
        const ae_gguf_kv *kv = ae_gguf_kv_find(b->gguf, ae_bind_key(b, names[k]));
        if (!kv && (b->arch->compress || b->arch->hyper_mean)) /* one limit for both */
            kv = ae_gguf_kv_find(b->gguf, ae_bind_key(b, names[0]));
        for (uint32_t i = 0; i < b->n_specs; i++) {
            double limit = 0;
            /* an array may lack values for MTP blocks */
            const bool silent = kv && kv->type == AE_GGUF_ARRAY && i >= h->n_layers && i >= kv->n;
            if (kv && !silent && !ae_gguf_kv_float(kv, kv->type == AE_GGUF_ARRAY ? i : 0, &limit))
                return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s has no number for layer %u", ae_gguf_path(b->gguf), b->key,
                               i);
            /* no limit is infinity */
            *(k ? &layers[i].spec.shared_limit : &layers[i].spec.limit) = limit > 1e-6 ? (float)limit : INFINITY;
        }
    }
    return AERIE_OK;
}

/* Reads how stacks of layers repeat. Files count a repeated layer each time. */
static aerie_status read_cycles(ae_binder *b, ae_hparams *h)
{
    uint32_t n_high = 0, n_low = 0;
    AE_TRY(ae_bind_get(b, "hrm.layers_per_stack", true, 1, AE_MAX_LAYERS, &h->n_stack));
    AE_TRY(ae_bind_get(b, "hrm.h_cycles", true, 1, AE_MAX_LAYERS, &n_high));
    AE_TRY(ae_bind_get(b, "hrm.l_cycles", true, 1, AE_MAX_LAYERS, &n_low));
    h->n_cycle = n_low + 1;
    h->n_blocks = 2 * h->n_stack;
    if ((uint64_t)h->n_stack * n_high * h->n_cycle != h->n_layers || h->n_nextn)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %u layers and %u MTP blocks; %u cycles of %u + 1 stacks of %u layers "
                       "are %llu layers, and no MTP block", ae_gguf_path(b->gguf), h->n_layers, h->n_nextn, n_high, n_low,
                       h->n_stack, (unsigned long long)h->n_stack * n_high * h->n_cycle);
    return AERIE_OK;
}

aerie_status ae_bind_n_layers(ae_binder *b, ae_hparams *h)
{
    AE_TRY(ae_bind_get(b, "block_count", true, 1, AE_MAX_LAYERS, &h->n_layers));
    if (b->arch->source) AE_TRY(ae_bind_get(b, "decoder_block_count", false, 1, AE_MAX_LAYERS, &h->n_layers));
    if (!b->arch->drafter) { /* files of drafters may count all their layers as MTP blocks */
        AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "nextn_predict_layers"), false, &h->n_nextn, b->error));
        AE_TRY(ae_bind_range(b, "nextn_predict_layers", h->n_nextn, 0, h->n_layers - 1));
    }
    h->n_layers -= h->n_nextn;
    if (b->arch->loops) {
        uint32_t n_loops = 1;
        AE_TRY(ae_bind_count(b, "num_loops", &n_loops));
        AE_TRY(ae_bind_range(b, "num_loops", n_loops, 1, AE_MAX_LAYERS / h->n_layers));
        if (n_loops > 1 && h->n_nextn)
            return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: MTP blocks after layers that are repeated (num_loops %u) "
                           "are not supported", ae_gguf_path(b->gguf), n_loops);
        if (n_loops > 1) h->n_blocks = h->n_layers;
        h->n_layers *= n_loops;
    }
    h->nextn_pre = b->arch->nextn_pre;
    if (b->arch->marks) AE_TRY(ae_bind_marks(b, h));
    return b->arch->cycles ? read_cycles(b, h) : AERIE_OK;
}

/* Decides which norms there are, from keys and tensors. */
static aerie_status read_norms(ae_binder *b, ae_hparams *h)
{
    const ae_arch *a = b->arch;
    bool parallel = a->norms == AE_NORMS_PARALLEL;
    h->layer_norm = a->layer_norm;
    if (a->norm_by_key) {
        float rms = 0.0f; /* other programs write 0 for "not given" */
        AE_TRY(get_f32(b, "attention.layer_norm_rms_epsilon", &rms));
        h->layer_norm = rms == 0.0f;
    }
    if (a->parallel_key) AE_TRY(ae_gguf_get_bool(b->gguf, ae_bind_key(b, "use_parallel_residual"), false, &parallel, b->error));
    if (a->parallel_optional) parallel = !ae_gguf_tensor_find(b->gguf, "blk.0.ffn_norm.weight");
    h->parallel = parallel;
    h->plain_norms = a->plain_norms;
    h->embed_norm_plain = a->embed_norm_plain;
    h->adds_start = a->adds_start;
    h->keeps_input = a->beside_input || a->router_of_input ||
                     (a->again_norm && ae_gguf_tensor_find(b->gguf, "blk.0.attn_norm_2.weight"));
    if (a->swin_key) AE_TRY(ae_gguf_get_bool(b->gguf, ae_bind_key(b, "swin_norm"), false, &h->norm_after, b->error));
    return AERIE_OK;
}

static aerie_status read_source(ae_binder *b, ae_hparams *h)
{
    uint32_t start = UINT32_MAX;
    if (!b->arch->source) return AERIE_OK;
    h->crosses = true;
    AE_TRY(ae_gguf_get_u32(b->gguf, "tokenizer.ggml.padding_token_id", false, &start, b->error));
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "decoder_start_token_id"), false, &start, b->error));
    if (start == UINT32_MAX) start = 0; /* the padding token of T5's vocabularies */
    h->start_token = (int32_t)start;
    if (start < h->n_vocab) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u, but there are %u tokens", ae_gguf_path(b->gguf), b->key, start,
                   h->n_vocab);
}

/* Reads the additional keys of generators that denoise. */
static aerie_status read_denoising(ae_binder *b, ae_hparams *h)
{
    uint32_t mask = UINT32_MAX;
    h->mask_token = -1;
    if (!b->arch->denoises) return AERIE_OK;
    h->shifts_logits = true;
    AE_TRY(ae_gguf_get_bool(b->gguf, "diffusion.shift_logits", false, &h->shifts_logits, b->error));
    /* models with Dream's layers that do not shift logits can decode too: Nemotron-Labs-Diffusion */
    h->masks_ahead = b->arch->masks_ahead && !h->shifts_logits;
    h->denoises = !h->masks_ahead;
    AE_TRY(ae_gguf_get_u32(b->gguf, "tokenizer.ggml.mask_token_id", false, &mask, b->error));
    if (mask == UINT32_MAX) return AERIE_OK;
    if (mask >= h->n_vocab)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tokenizer.ggml.mask_token_id is %u, but there are %u tokens",
                       ae_gguf_path(b->gguf), mask, h->n_vocab);
    h->mask_token = (int32_t)mask;
    return AERIE_OK;
}

aerie_status ae_bind_model_hparams(ae_binder *b, ae_hparams *h, const aerie_rope *rope, ae_arena *arena, ae_layer *layers)
{
    h->arch = b->arch->name;
    AE_TRY(read_norms(b, h));
    h->norm_stream = b->arch->norms == AE_NORMS_STREAM;
    h->group_windows = b->arch->group_windows;
    h->encoder = b->arch->encoder;
    AE_TRY(ae_bind_hparams(b, h, arena));
    h->post_eps = b->arch->post_eps > 0.0f ? b->arch->post_eps : h->norm_eps;
    h->nextn_end_layer = b->arch->nextn_both;
    h->nextn_eps = h->norm_eps;
    if (b->arch->nextn_both) AE_TRY(get_f32(b, "attention.layer_norm_epsilon", &h->nextn_eps));
    if (rope) AE_TRY(ae_bind_rope(b, h, rope));
    AE_TRY(read_experts(b, h));
    bool skips = false, normed;
    const uint32_t n_part = h->n_stack ? h->n_stack : h->n_blocks; /* number of layers after which the stream is normed */
    if (b->arch->loops) AE_TRY(ae_gguf_get_bool(b->gguf, ae_bind_key(b, "skip_loop_final_norm"), false, &skips, b->error));
    normed = !skips;
    for (uint32_t i = 0; i < b->n_specs; i++) {
        layers[i].spec.ffn = AE_FFN_DENSE;
        layers[i].spec.experts_scale = h->experts.n_ff_shared && b->arch->shared_mean > 0.0f ? b->arch->shared_mean : 1.0f;
        layers[i].spec.normed_after = n_part && normed && (i + 1) % n_part == 0 && i + 1 < h->n_layers;
        layers[i].out_scale = 1.0f;
    }
    AE_TRY(place_experts(b, h, layers));
    AE_TRY(read_heads(b, h, layers));
    AE_TRY(read_slopes(b, h, arena));
    AE_TRY(read_buckets(b, h));
    AE_TRY(read_attention(b, h, layers));
    AE_TRY(ae_bind_recur_hparams(b, h, layers));
    AE_TRY(read_scalars(b, h));
    AE_TRY(read_pooling(b, h));
    if (b->arch->altup) AE_TRY(read_streams(b, h));
    if (b->arch->hyper) AE_TRY(ae_bind_hyper_hparams(b, h));
    if (b->arch->memory) AE_TRY(ae_bind_memory_hparams(b, h, layers));
    if (b->arch->bank) AE_TRY(read_banks(b, h));
    if (b->arch->switches) AE_TRY(ae_bind_switch_hparams(b, h, arena));
    if (b->arch->sparse) AE_TRY(read_sparsity(b, h, layers));
    AE_TRY(read_denoising(b, h));
    AE_TRY(read_source(b, h));
    AE_TRY(ae_bind_decision_hparams(b, h));
    return read_limits(b, h, layers);
}
