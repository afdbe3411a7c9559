/* model.c - loads a model: architecture, hyper-parameters and the tensors of all layers, bound and checked (model.h). hparams.c
 * reads the keys, bind.c single tensors. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math/fmath.h"
#include "formats/kind.h"
#include "model/hparams.h"

/* ---- Tensors ------------------------------------------------------------------------------------- */

static aerie_status bind_experts_of(ae_binder *b, uint32_t n_experts, uint32_t i, const char *part, bool required,
                                    uint32_t n_out, uint32_t n_in, ae_tensor_ref *out)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", i, part);
    return ae_bind_stack(b, name, required, n_experts, n_out, n_in, out);
}

/* Binds the bias of all experts, [E][n], or NULL. */
static aerie_status bind_expert_bias(ae_binder *b, uint32_t n_experts, uint32_t i, const char *part, uint32_t n,
                                     ae_tensor_ref *out)
{
    return ae_bind_layer(b, i, part, false, n_experts, n, out);
}

static aerie_status bind_experts(ae_binder *b, const ae_hparams *h, uint32_t i, ae_layer *l)
{
    const ae_expert_hparams *x = &h->experts;
    const uint32_t e = h->n_embd, f = x->n_ff, s = x->n_ff_shared;
    const uint32_t in = x->n_latent ? x->n_latent : e; /* width of the experts' input and output */
    const bool gated = !b->arch->ungated;
    char name[64];
    snprintf(name, sizeof name, "blk.%u.ffn_gate.0.weight", i);
    if (ae_gguf_tensor_find(b->gguf, name))
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s: the experts are stored one by one, as before April "
                       "2024; convert the model again", ae_gguf_path(b->gguf), name);
    AE_TRY(ae_bind_layer(b, i, "ffn_gate_inp.weight", true, x->n, e, &l->router));
    AE_TRY(ae_bind_layer(b, i, "ffn_gate_inp.bias", false, 0, x->n, &l->router_b));
    AE_TRY(ae_bind_layer(b, i, "exp_probs_b.bias", false, 0, x->n, &l->router_bias));
    if (!l->router_bias) AE_TRY(ae_bind_layer(b, i, "exp_probs_b", false, 0, x->n, &l->router_bias));
    if (gated) AE_TRY(bind_experts_of(b, x->n, i, "ffn_gate_up_exps.weight", false, 2 * f, in, &l->e_gate_up));
    if (!l->e_gate_up) {
        if (gated) AE_TRY(bind_experts_of(b, x->n, i, "ffn_gate_exps.weight", true, f, in, &l->e_gate));
        AE_TRY(bind_experts_of(b, x->n, i, "ffn_up_exps.weight", true, f, in, &l->e_up));
        AE_TRY(bind_expert_bias(b, x->n, i, "ffn_gate_exps.bias", f, &l->eb_gate));
        AE_TRY(bind_expert_bias(b, x->n, i, "ffn_up_exps.bias", f, &l->eb_up));
    }
    AE_TRY(bind_experts_of(b, x->n, i, "ffn_down_exps.weight", true, in, f, &l->e_down));
    AE_TRY(bind_expert_bias(b, x->n, i, "ffn_down_exps.bias", in, &l->eb_down));
    if (x->n_chunks) {
        AE_TRY(bind_experts_of(b, x->n_chunks, i, "ffn_gate_chexps.weight", true, x->n_ff_chunk, e, &l->c_gate));
        AE_TRY(bind_experts_of(b, x->n_chunks, i, "ffn_up_chexps.weight", true, x->n_ff_chunk, e, &l->c_up));
        AE_TRY(bind_experts_of(b, x->n_chunks, i, "ffn_down_chexps.weight", true, e, x->n_ff_chunk, &l->c_down));
    }
    if (b->arch->beside_input) AE_TRY(ae_bind_layer(b, i, "ffn_norm_exps.weight", true, 0, e, &l->e_norm));
    if (l->spec.ffn == AE_FFN_BOTH && !b->arch->beside_plain && !b->arch->beside_input) {
        AE_TRY(ae_bind_layer(b, i, "ffn_gate_inp.scale", true, 0, e, &l->router_norm));
        AE_TRY(ae_bind_layer(b, i, "ffn_down_exps.scale", false, 0, x->n, &l->e_scale));
        AE_TRY(ae_bind_layer(b, i, "pre_ffw_norm_2.weight", true, 0, e, &l->e_norm));
        AE_TRY(ae_bind_layer(b, i, "post_ffw_norm_1.weight", true, 0, e, &l->dense_post_norm));
        AE_TRY(ae_bind_layer(b, i, "post_ffw_norm_2.weight", true, 0, e, &l->e_post_norm));
    }
    if (x->n_latent) {
        const char *prefix = b->arch->latent ? b->arch->latent : "ffn_latent";
        snprintf(name, sizeof name, "%s_down.weight", prefix);
        AE_TRY(ae_bind_layer(b, i, name, true, in, e, &l->latent_down));
        snprintf(name, sizeof name, "%s_up.weight", prefix);
        AE_TRY(ae_bind_layer(b, i, name, true, e, in, &l->latent_up));
        snprintf(name, sizeof name, "%s_norm.weight", prefix);
        if (b->arch->latent) AE_TRY(ae_bind_layer(b, i, name, false, 0, in, &l->latent_norm));
    }
    if (!s) return AERIE_OK;
    snprintf(name, sizeof name, "blk.%u.ffn_up_shexp.weight", i);
    const ae_gguf_tensor *up = ae_gguf_tensor_find(b->gguf, name);
    if (gated && up && up->ne[1] == 2 * (int64_t)s) {
        AE_TRY(ae_bind_layer(b, i, "ffn_up_shexp.weight", true, 2 * s, e, &l->s_gate_up));
    } else {
        if (gated) AE_TRY(ae_bind_layer(b, i, "ffn_gate_shexp.weight", true, s, e, &l->s_gate));
        AE_TRY(ae_bind_layer(b, i, "ffn_up_shexp.weight", true, s, e, &l->s_up));
    }
    AE_TRY(ae_bind_layer(b, i, "ffn_down_shexp.weight", true, e, s, &l->s_down));
    if (b->arch->shared == AE_SHARED_GATED) AE_TRY(ae_bind_layer(b, i, "ffn_gate_inp_shexp.weight", true, 1, e, &l->s_router));
    return AERIE_OK;
}

/* Binds the biases of query and key norms that are layer norms; a bias has as many values as its norm has weights. */
static aerie_status bind_qk_biases(ae_binder *b, uint32_t i, ae_layer *l)
{
    const ae_tensor_ref q = l->q_norm, k = l->k_norm;
    const uint32_t q_rows = q && q->ne[1] > 1 ? (uint32_t)q->ne[1] : 0, k_rows = k && k->ne[1] > 1 ? (uint32_t)k->ne[1] : 0;
    if (!q || !k) return AERIE_OK;
    AE_TRY(ae_bind_layer(b, i, "attn_q_norm.bias", false, q_rows, (uint32_t)q->ne[0], &l->q_norm_b));
    if (!l->q_norm_b) return AERIE_OK; /* a bias for keys alone would be a tensor that nothing reads */
    return ae_bind_layer(b, i, "attn_k_norm.bias", true, k_rows, (uint32_t)k->ne[0], &l->k_norm_b);
}

/* Binds norms of heads that have a single weight per head. They commute with the rotation, which the published code applies
 * after them. */
static aerie_status bind_head_gain(ae_binder *b, uint32_t i, ae_arena *arena, ae_layer *l)
{
    const uint32_t n_heads = l->spec.n_heads, dim = l->spec.head_dim;
    float gain[AE_MAX_HEADS], scale = 1.0f, *x = ae_arena_alloc(arena, (size_t)n_heads * dim, sizeof *x);
    ae_tensor_ref tensor;
    if (!x) return ae_fail_memory(b->error, "the weights of a norm", (size_t)n_heads * dim * sizeof *x);
    AE_TRY(ae_bind_layer(b, i, "attn_q_norm.weight", true, n_heads, 1, &tensor));
    AE_TRY(ae_bind_read_f32(b, tensor, gain, n_heads));
    const ae_tensor_ref beside = ae_model_scale(b->gguf, b->bound, tensor);
    if (beside) AE_TRY(ae_bind_read_f32(b, beside, &scale, 1));
    for (uint32_t k = 0; k < n_heads * dim; k++) x[k] = gain[k / dim] * scale;
    l->q_gain = x;
    return AERIE_OK;
}

/* Binds biases by distance. Layers without a table of their own use the first layer's. In an encoder, positions before and
 * after a row have separate biases; half of the buckets are single distances, the others grow by a factor up to
 * AE_BIAS_REACH. */
static aerie_status bind_bias(ae_binder *b, const ae_hparams *h, uint32_t i, ae_arena *arena, ae_layer *l)
{
    const uint32_t n_heads = l->spec.n_heads, n = h->n_buckets, half = h->encoder ? n / 2 : n, n_exact = half / 2;
    ae_tensor_ref tensor;
    AE_TRY(ae_bind_layer(b, i, "attn_rel_b.weight", false, n, n_heads, &tensor));
    if (!tensor) AE_TRY(ae_bind_layer(b, 0, "attn_rel_b.weight", true, n, n_heads, &tensor));
    float *table = ae_arena_alloc(arena, (size_t)n * n_heads, sizeof *table), scale = 1.0f;
    float *bias = ae_arena_alloc(arena, (size_t)n_heads * AE_BIAS_ROW, sizeof *bias);
    if (!table || !bias) return ae_fail_memory(b->error, "the biases of a layer", (size_t)n_heads * AE_BIAS_ROW * sizeof *bias);
    AE_TRY(ae_bind_read_f32(b, tensor, table, n * n_heads));
    const ae_tensor_ref beside = ae_model_scale(b->gguf, b->bound, tensor);
    if (beside) AE_TRY(ae_bind_read_f32(b, beside, &scale, 1));
    for (int at = 0; at < AE_BIAS_ROW; at++) {
        int distance = at - AE_BIAS_PAD - AE_BIAS_REACH; /* of the other position */
        if (distance < -AE_BIAS_REACH) distance = -AE_BIAS_REACH;
        if (distance > AE_BIAS_REACH - 1) distance = AE_BIAS_REACH - 1;
        const bool after = distance > 0;
        const uint32_t far = (uint32_t)(after ? h->encoder ? distance : 0 : -distance);
        uint32_t bucket = far;
        if (far >= n_exact) { /* no whole distance is within 1e-9 of a border without being on it */
            const double part = ae_log((double)far / n_exact) / ae_log((double)AE_BIAS_REACH / n_exact);
            bucket = n_exact + (uint32_t)(part * (half - n_exact) + 1e-9);
        }
        if (bucket > half - 1) bucket = half - 1;
        if (after && h->encoder) bucket += half;
        for (uint32_t k = 0; k < n_heads; k++) bias[(size_t)k * AE_BIAS_ROW + at] = table[bucket * n_heads + k] * scale;
    }
    l->bias = bias;
    return AERIE_OK;
}

static aerie_status bind_cross(ae_binder *b, const ae_hparams *h, uint32_t i, ae_layer *l)
{
    const uint32_t e = h->n_embd, q = l->spec.n_heads * l->spec.head_dim, kv = l->spec.n_kv_heads * l->spec.head_dim;
    ae_tensor_ref unused; /* files have biases by distance to the source, which no program reads */
    AE_TRY(ae_bind_layer(b, i, "cross_attn_norm.weight", true, 0, e, &l->cross_norm));
    AE_TRY(ae_bind_layer(b, i, "cross_attn_q.weight", true, q, e, &l->cross_q));
    AE_TRY(ae_bind_layer(b, i, "cross_attn_k.weight", true, kv, e, &l->cross_k));
    AE_TRY(ae_bind_layer(b, i, "cross_attn_v.weight", true, kv, e, &l->cross_v));
    AE_TRY(ae_bind_layer(b, i, "cross_attn_o.weight", true, e, q, &l->cross_o));
    return ae_bind_layer(b, i, "cross_attn_rel_b.weight", false, h->n_buckets, l->spec.n_heads, &unused);
}

static aerie_status bind_mixer(ae_binder *b, const ae_hparams *h, uint32_t i, ae_arena *arena, ae_layer *l)
{
    ae_layer_spec *s = &l->spec;
    const uint32_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    const bool by_row = s->qk_norm == AE_QK_NORM_ROW || s->qk_norm == AE_QK_NORM_ROW_LAYER, by_head = !by_row;
    const bool layer = s->qk_norm == AE_QK_NORM_LAYER || s->qk_norm == AE_QK_NORM_EACH;
    char name[48];
    snprintf(name, sizeof name, "%.10s.%u.attn_gate.weight", ae_bind_prefix(b), i);
    const ae_gguf_tensor *gate = ae_gguf_tensor_find(b->gguf, name);
    if (b->arch->softplus_gate && gate && gate->ne[1] == s->n_heads) s->out_gate = AE_OUT_GATE_NONE; /* one gate per head */
    const bool own = s->out_gate == AE_OUT_GATE_OWN;
    AE_TRY(ae_bind_layer(b, i, "attn_gate.weight", own, own ? q : s->n_heads, h->n_embd, &l->out_gate));
    if (l->out_gate && !own) s->out_gate = AE_OUT_GATE_HEAD;
    AE_TRY(ae_bind_attention(b, i, h, s, h->n_embd, l));
    if (b->arch->index_means) AE_TRY(ae_bind_means(b, i, h, l));
    else if (s->index == AE_INDEX_OWN) AE_TRY(ae_bind_blocks(b, i, h, &l->mla));
    if (b->arch->relative) AE_TRY(bind_bias(b, h, i, arena, l));
    if (h->crosses) AE_TRY(bind_cross(b, h, i, l));
    if (b->arch->head_gain) AE_TRY(bind_head_gain(b, i, arena, l));
    if (s->qk_norm && !b->arch->qk_norm_plain && !b->arch->head_gain) {
        const bool required = !b->arch->qk_norm_optional;
        AE_TRY(
            ae_bind_layer(b, i, "attn_q_norm.weight", required, layer ? s->n_heads : 0, by_head ? s->head_dim : q, &l->q_norm));
        if (l->q_norm && s->kv_from == (int)i)
            AE_TRY(ae_bind_layer(b, i, "attn_k_norm.weight", true, layer ? s->n_kv_heads : 0,
                                 by_head ? s->head_dim : kv, &l->k_norm));
        if (layer || s->qk_norm == AE_QK_NORM_ROW_LAYER) AE_TRY(bind_qk_biases(b, i, l));
        if (!l->q_norm) s->qk_norm = AE_QK_NORM_NONE;
    }
    return ae_bind_layer(b, i, "attn_sinks.weight", false, 0, s->n_heads, &l->sinks);
}

/* Binds the norms around mixer and feed-forward block. */
static aerie_status bind_norms(ae_binder *b, const ae_hparams *h, uint32_t i, ae_layer *l)
{
    const ae_arch *a = b->arch;
    const uint32_t e = h->n_embd;
    char name[48];
    if (a->norms == AE_NORMS_STREAM) {
        AE_TRY(ae_bind_layer(b, i, "attn_output_norm.weight", true, 0, e, &l->attn_post_norm));
        AE_TRY(ae_bind_layer(b, i, "attn_output_norm.bias", false, 0, e, &l->attn_post_norm_b));
        if (a->again_norm && h->keeps_input) /* if block 0 has it, all blocks must */
            AE_TRY(ae_bind_layer(b, i, "attn_norm_2.weight", true, 0, e, &l->again_norm));
        if (l->again_norm) AE_TRY(ae_bind_layer(b, i, "attn_norm_2.bias", false, 0, e, &l->again_norm_b));
        AE_TRY(ae_bind_layer(b, i, "layer_output_norm.weight", true, 0, e, &l->ffn_post_norm));
        return ae_bind_layer(b, i, "layer_output_norm.bias", false, 0, e, &l->ffn_post_norm_b);
    }
    if (a->plain_norms || a->hyper_low) return AERIE_OK;
    if (a->carries) {
        AE_TRY(ae_bind_layer(b, i, "attn_norm.weight", true, 0, e, &l->mixer_carry));
        return ae_bind_layer(b, i, "ffn_norm.weight", true, 0, e, &l->ffn_carry);
    }
    if (h->norm_after) {
        AE_TRY(ae_bind_layer(b, i, "attn_norm.weight", true, 0, e, &l->attn_post_norm));
        return ae_bind_layer(b, i, "ffn_norm.weight", true, 0, e, &l->ffn_post_norm);
    }
    if (a->norms == AE_NORMS_ONE && i >= h->n_layers) /* an MTP block */
        AE_TRY(ae_bind_layer(b, i, "post_attention_norm.weight", true, 0, e, &l->ffn_norm));
    if (a->norms == AE_NORMS_ONE)
        return ae_bind_layer(b, i, "attn_norm.weight", true, 0, e, l->spec.mixer ? &l->attn_norm : &l->ffn_norm);
    if (a->norms != AE_NORMS_POST) {
        AE_TRY(ae_bind_layer(b, i, "attn_norm.weight", !(a->embed_norm && a->encoder && !i) && l->spec.mixer, 0, e,
                             &l->attn_norm));
        if (h->layer_norm || a->norm_bias) AE_TRY(ae_bind_layer(b, i, "attn_norm.bias", false, 0, e, &l->attn_norm_b));
    }
    if (a->second_norm) {
        ae_tensor_ref second;
        AE_TRY(ae_bind_layer(b, i, "attn_norm_2.weight", false, 0, e, &second));
        if (second) {
            l->ffn_norm = l->attn_norm, l->ffn_norm_b = l->attn_norm_b;
            l->attn_norm = second;
            AE_TRY(ae_bind_layer(b, i, "attn_norm_2.bias", false, 0, e, &l->attn_norm_b));
        }
    }
    const bool own_ffn_norm = a->norms == AE_NORMS_PRE || a->norms == AE_NORMS_PRE_POST || a->parallel_key;
    if (own_ffn_norm && !(a->parallel_optional && h->parallel)) {
        snprintf(name, sizeof name, a->bare_ffn_norm ? "%s" : "%s.weight", a->ffn_norm ? a->ffn_norm : "ffn_norm");
        AE_TRY(ae_bind_layer(b, i, name, l->spec.ffn != AE_FFN_NONE, 0, e, &l->ffn_norm));
        snprintf(name, sizeof name, "%s.bias", a->ffn_norm ? a->ffn_norm : "ffn_norm");
        if (h->layer_norm || a->norm_bias) AE_TRY(ae_bind_layer(b, i, name, false, 0, e, &l->ffn_norm_b));
    }
    if (a->norms == AE_NORMS_POST || a->norms == AE_NORMS_PRE_POST) {
        const bool bare = a->bare_post_norms;
        snprintf(name, sizeof name, bare ? "%s" : "%s.weight", a->attn_post_norm ? a->attn_post_norm : "post_attention_norm");
        AE_TRY(ae_bind_layer(b, i, name, true, 0, e, &l->attn_post_norm));
        snprintf(name, sizeof name, "%s.weight", a->ffn_post_norm ? a->ffn_post_norm : "");
        if (a->ffn_post_norm) AE_TRY(ae_bind_layer(b, i, name, false, 0, e, &l->ffn_post_norm));
        if (l->ffn_post_norm) return AERIE_OK;
        AE_TRY(ae_bind_layer(b, i, bare ? "post_ffw_norm" : "post_ffw_norm.weight", true, 0, e, &l->ffn_post_norm));
    }
    return AERIE_OK;
}

/* Binds the layer's own embedding of the token with its projections, and the factor of the stream after the layer. */
static aerie_status bind_layer_embedding(ae_binder *b, const ae_hparams *h, uint32_t i, ae_layer *l)
{
    const uint32_t e = h->n_embd, n = h->n_embd_layer;
    ae_tensor_ref scale;
    if (n) {
        AE_TRY(ae_bind_layer(b, i, "inp_gate.weight", true, n, e, &l->ple_gate));
        AE_TRY(ae_bind_layer(b, i, "proj.weight", true, e, n, &l->ple_proj));
        AE_TRY(ae_bind_layer(b, i, "post_norm.weight", true, 0, e, &l->ple_post_norm));
    }
    AE_TRY(ae_bind_layer(b, i, "layer_output_scale.weight", false, 0, 1, &scale));
    return scale ? ae_bind_read_f32(b, scale, &l->out_scale, 1) : AERIE_OK;
}

static aerie_status bind_altup(ae_binder *b, const ae_hparams *h, uint32_t i, ae_altup_layer *a)
{
    const uint32_t e = h->n_embd, c = h->n_streams, rank = h->laurel_rank;
    AE_TRY(ae_bind_layer(b, i, "altup_router.weight", true, c, e, &a->router));
    AE_TRY(ae_bind_layer(b, i, "altup_router_norm.weight", true, 0, e, &a->router_norm));
    AE_TRY(ae_bind_layer(b, i, "altup_predict_coef.weight", true, c * c, c, &a->predict));
    AE_TRY(ae_bind_layer(b, i, "altup_correct_coef.weight", true, c, c, &a->correct));
    AE_TRY(ae_bind_layer(b, i, "altup_correct_scale.weight", true, 0, e, &a->correct_scale));
    AE_TRY(ae_bind_layer(b, i, "laurel_l.weight", true, rank, e, &a->laurel_a));
    AE_TRY(ae_bind_layer(b, i, "laurel_r.weight", true, e, rank, &a->laurel_b));
    return ae_bind_layer(b, i, "laurel_post_norm.weight", true, 0, e, &a->laurel_norm);
}

/* A repeated layer has the weights of an earlier one, but its own cache. */
static void repeat_layer(ae_model *m, uint32_t i)
{
    const bool normed_after = m->layers[i].spec.normed_after;
    m->layers[i] = m->layers[ae_model_block_of(&m->hparams, i)];
    m->layers[i].spec.kv_from = (int)i;
    m->layers[i].spec.normed_after = normed_after;
}

/* Binds the layers from `first` on that have a specification. */
static aerie_status bind_layers(ae_binder *b, ae_model *m, uint32_t first)
{
    const ae_hparams *h = &m->hparams;
    for (uint32_t i = first; i < b->n_specs; i++) {
        ae_layer *l = &m->layers[i];
        if (h->n_blocks && i >= h->n_blocks) break;
        AE_TRY(bind_norms(b, h, i, l));
        if (l->spec.mixer == AE_MIXER_ATTENTION) AE_TRY(bind_mixer(b, h, i, &m->arena, l));
        if (l->spec.mixer == AE_MIXER_LINEAR)
            AE_TRY(ae_bind_layer(b, i, "attn_output.weight", true, h->n_embd, h->n_embd, &l->wo));
        if (l->spec.mixer == AE_MIXER_MLA) AE_TRY(ae_bind_mla(b, i, h, l));
        if (l->spec.mixer == AE_MIXER_COMPRESSED) AE_TRY(ae_bind_compress(b, i, h, l));
        if (l->spec.mixer == AE_MIXER_RECUR || l->spec.recur_beside) AE_TRY(ae_bind_recur(b, i, h, &m->arena, l));
        if (l->spec.ffn == AE_FFN_EXPERTS || l->spec.ffn == AE_FFN_BOTH) AE_TRY(bind_experts(b, h, i, l));
        if (l->spec.ffn == AE_FFN_CHANNEL_MIX) AE_TRY(ae_bind_channel_mix(b, i, h, l));
        if (b->arch->token_experts) AE_TRY(ae_bind_token_experts(b, i, h, &m->arena, l));
        if (h->memory.n_tokens && i == h->memory.layer) AE_TRY(ae_bind_memory(b, i, h, &l->memory));
        if (h->hyper) AE_TRY(ae_bind_hyper(b, i, h, l));
        else if (h->n_streams) AE_TRY(bind_altup(b, h, i, &l->altup));
        if (h->n_banks) AE_TRY(ae_bind_layer(b, i, "attn_res_score.weight", true, 1, h->n_embd, &l->mixer_score));
        if (h->n_banks) AE_TRY(ae_bind_layer(b, i, "ffn_res_score.weight", true, 1, h->n_embd, &l->ffn_score));
        if (h->adapters.n) AE_TRY(ae_bind_switch(b, i, h, l));
        if (b->arch->layer_embedding || b->arch->adds_start) AE_TRY(bind_layer_embedding(b, h, i, l));
        if (l->spec.ffn == AE_FFN_DENSE || l->spec.ffn == AE_FFN_BOTH) AE_TRY(ae_bind_dense(b, i, h, l->spec.n_ff, l));
    }
    for (uint32_t i = b->n_specs; h->n_blocks && i--; ) repeat_layer(m, i); /* no layer comes before its block */
    return AERIE_OK;
}

#define AE_MAX_POSITIONS (1u << 20)

/* Binds a table with as many rows as the file has, up to `most`. */
static aerie_status bind_table(ae_binder *b, const char *name, bool required, uint32_t most, uint32_t n_embd, uint32_t *n_rows,
                               ae_tensor_ref *out)
{
    const ae_gguf_tensor *t = ae_gguf_tensor_find(b->gguf, name);
    if (t && t->ne[1] > most)
        return ae_fail(b->error, AERIE_ERROR_LIMIT, "%s: tensor %s has %lld rows; at most %u are possible",
                       ae_gguf_path(b->gguf), name, (long long)t->ne[1], most);
    *n_rows = t ? (uint32_t)t->ne[1] : 0;
    return ae_bind(b, name, required, *n_rows, n_embd, out);
}

/* Binds what encoders have before and after their layers: a last norm, dense layers for the pooled row, and a head that scores
 * a pair of texts. Some files have an output head, which is not used. */
static aerie_status bind_encoder(ae_binder *b, ae_model *m)
{
    ae_hparams *h = &m->hparams;
    const uint32_t e = h->n_embd;
    uint32_t n_wide = 0;
    ae_tensor_ref unused;
    char name[48];
    if (b->arch->no_rope_period == 1)
        AE_TRY(bind_table(b, "position_embd.weight", true, AE_MAX_POSITIONS, e, &h->n_positions, &m->positions));
    if (h->norm_stream) AE_TRY(bind_table(b, "token_types.weight", false, 1u << 10, e, &h->n_types, &m->types));
    if (h->norm_stream || b->arch->embed_norm) {
        AE_TRY(ae_bind(b, "token_embd_norm.weight", true, 0, e, &m->embed_norm));
        AE_TRY(ae_bind(b, "token_embd_norm.bias", false, 0, e, &m->embed_norm_b));
    }
    AE_TRY(ae_bind(b, "cls.weight", false, e, e, &m->cls));
    AE_TRY(ae_bind(b, "cls.bias", false, 0, e, &m->cls_b));
    AE_TRY(ae_bind(b, "cls.norm.weight", false, 0, e, &m->cls_norm));
    AE_TRY(ae_bind(b, "cls.output.weight", false, 1, e, &m->cls_out));
    AE_TRY(ae_bind(b, "cls.output.bias", false, 0, 1, &m->cls_out_b));
    if (h->norm_stream) return AERIE_OK;
    AE_TRY(bind_table(b, "dense_2.weight", false, AE_MAX_EMBD, e, &n_wide, &m->dense_2));
    AE_TRY(ae_bind(b, "dense_3.weight", m->dense_2 != NULL, e, n_wide ? n_wide : 1, &m->dense_3));
    snprintf(name, sizeof name, "%s.weight", b->arch->out_norm ? b->arch->out_norm : "output_norm");
    AE_TRY(ae_bind(b, "output.weight", false, h->n_vocab, e, &unused));
    return ae_bind(b, name, true, 0, e, &m->out_norm);
}

static aerie_status bind_tensors(ae_binder *b, ae_model *m)
{
    const ae_hparams *h = &m->hparams;
    const char *norm = b->arch->out_norm ? b->arch->out_norm : "output_norm";
    char name[48];
    const bool swapped = b->arch->embedding_is_output && !ae_gguf_tensor_find(b->gguf, "token_embd.weight");
    AE_TRY(ae_bind(b, swapped ? "output.weight" : "token_embd.weight", true, h->n_vocab, h->n_embd, &m->embedding));
    if (h->encoder) {
        AE_TRY(bind_encoder(b, m));
        AE_TRY(ae_bind_decision(b, m));
        return bind_layers(b, m, 0);
    }
    snprintf(name, sizeof name, "%s.weight", norm);
    if (!h->plain_norms && !b->arch->hyper_low) AE_TRY(ae_bind(b, name, true, 0, h->n_embd, &m->out_norm));
    if (b->arch->embed_norm) {
        AE_TRY(ae_bind(b, "token_embd_norm.weight", true, 0, h->n_embd, &m->embed_norm));
        AE_TRY(ae_bind(b, "token_embd_norm.bias", false, 0, h->n_embd, &m->embed_norm_b));
    }
    snprintf(name, sizeof name, "%s.bias", norm);
    if (h->layer_norm || b->arch->norm_bias) AE_TRY(ae_bind(b, name, false, 0, h->n_embd, &m->out_norm_b));
    if (b->arch->positions)
        AE_TRY(bind_table(b, "position_embd.weight", !b->arch->positions_optional, AE_MAX_POSITIONS, h->n_embd,
                          &m->hparams.n_positions, &m->positions));
    if (!swapped) AE_TRY(ae_bind(b, "output.weight", false, h->n_vocab, h->n_embd, &m->output));
    AE_TRY(ae_bind(b, "output.bias", false, 0, h->n_vocab, &m->output_b));
    AE_TRY(ae_bind(b, "output.scale", false, 0, 1, &m->output_scale));
    if (h->n_embd_layer) {
        const uint32_t n = h->n_embd_layer * h->n_layers;
        AE_TRY(ae_bind(b, "per_layer_token_embd.weight", true, h->n_vocab, n, &m->ple_embedding));
        AE_TRY(ae_bind(b, "per_layer_model_proj.weight", true, n, h->n_embd, &m->ple_model_proj));
        AE_TRY(ae_bind(b, "per_layer_proj_norm.weight", true, 0, h->n_embd_layer, &m->ple_proj_norm));
    }
    if (h->n_stack) AE_TRY(ae_bind(b, "hrm.z_l_init", true, 0, h->n_embd, &m->low_start));
    if (h->n_banks) AE_TRY(ae_bind(b, "output_res_score.weight", true, 1, h->n_embd, &m->end_score));
    if (h->hyper && !b->arch->hyper_mean) AE_TRY(ae_bind_hyper_end(b, h, &m->hyper_end));
    if (h->n_streams && !h->hyper) {
        AE_TRY(ae_bind_stack(b, "altup_proj.weight", true, h->n_streams - 1, h->n_embd, h->n_embd, &m->altup_proj));
        AE_TRY(ae_bind_stack(b, "altup_unembd_proj.weight", true, h->n_streams - 1, h->n_embd, h->n_embd, &m->altup_unembd));
    }
    AE_TRY(ae_bind_decision(b, m));
    m->tied = !m->output;
    if (m->tied) m->output = m->embedding;
    /* as published; llama.cpp does not scale */
    if (m->tied && h->crosses) m->hparams.logit_scale /= sqrtf((float)h->n_embd);
    return bind_layers(b, m, 0);
}

/* ---- MTP blocks ------------------------------------------------------------------------------------- */

static const ae_gguf_tensor *find_part(const ae_binder *b, uint32_t i, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", i, part);
    return ae_gguf_tensor_find(b->gguf, name);
}

/* Checks that no block of the trunk is an MTP block, which would mean that the key for them is missing or too small. */
static aerie_status check_trunk(const ae_binder *b, const ae_hparams *h)
{
    for (uint32_t i = 0; i < h->n_layers; i++)
        if (find_part(b, i, "nextn.eh_proj.weight"))
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor blk.%u.nextn.eh_proj.weight marks block %u as an MTP "
                           "block, but %s.block_count and %s.nextn_predict_layers (%u) make it a layer of the model",
                           ae_gguf_path(b->gguf), i, i, b->arch->name, b->arch->name, h->n_nextn);
    return AERIE_OK;
}

static aerie_status check_nextn(const ae_binder *b, const ae_hparams *h)
{
    const char *path = ae_gguf_path(b->gguf), *arch = b->arch->name;
    if (!h->n_nextn)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: the model has no MTP block: %s.nextn_predict_layers is missing%s",
                       path, arch,
                       find_part(b, h->n_layers, "nextn.eh_proj.weight") ? ", although its tensors are there" : " or 0");
    const bool tempered = b->arch->temperature && (!b->arch->mla || h->temp_scale != 0.0f);
    const ae_arch_norms norms = b->arch->norms;
    const bool placed = norms == AE_NORMS_PRE || norms == AE_NORMS_PRE_POST || norms == AE_NORMS_PARALLEL ||
                        norms == AE_NORMS_POST || (norms == AE_NORMS_ONE && b->arch->nextn_both);
    if (!placed || b->arch->shared_kv ||
        b->arch->layer_embedding || b->arch->adds_start || b->arch->no_attention || tempered || b->arch->chunked ||
        b->arch->layer_norm || b->arch->hyper_apart || b->arch->hyper_mean || (b->arch->hyper_low && h->n_nextn > 1))
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: MTP blocks of architecture %s are not supported", path, arch);
    for (uint32_t i = h->n_layers; i < h->n_layers + h->n_nextn; i++)
        if (!find_part(b, i, "nextn.eh_proj.weight"))
            return ae_fail(
                b->error, AERIE_ERROR_FORMAT,
                "%s: %s.nextn_predict_layers is %u, but tensor blk.%u.nextn.eh_proj.weight is missing: the file has only the "
                "model without its MTP block; give a file with the block with -md",
                path, arch, h->n_nextn, i);
    return AERIE_OK;
}

static aerie_status bind_nextn(ae_binder *b, ae_model *m)
{
    const ae_hparams *h = &m->hparams;
    const uint32_t e = h->n_embd;
    const ae_gguf_tensor *map = ae_gguf_tensor_find(b->gguf, "d2t");
    const uint32_t n_rows = map && map->ne[0] <= h->n_vocab ? (uint32_t)map->ne[0] : h->n_vocab;
    char name[64];
    snprintf(name, sizeof name, "blk.%u.nextn.hc_head", h->n_layers);
    /* the blocks' own; the other kind of hyper-connections uses the file's */
    if (h->hyper_rank) AE_TRY(ae_bind_hyper_low(b, name, h, true, &m->hyper_end));
    else if (h->hyper) AE_TRY(ae_bind_hyper_end(b, h, &m->hyper_end));
    m->nextn = ae_arena_alloc(&m->arena, h->n_nextn, sizeof *m->nextn);
    if (!m->nextn) return ae_fail_memory(b->error, "the MTP blocks", h->n_nextn * sizeof *m->nextn);
    for (uint32_t k = 0; k < h->n_nextn; k++) {
        const uint32_t i = h->n_layers + k;
        ae_nextn *n = &m->nextn[k];
        ae_layer *l = &m->layers[i];
        AE_TRY(ae_bind_layer(b, i, "nextn.eh_proj.weight", true, e, 2 * e, &n->eh_proj));
        AE_TRY(ae_bind_layer(b, i, "nextn.enorm.weight", true, 0, e, &n->enorm));
        snprintf(name, sizeof name, "blk.%u.nextn.hnorm.weight", i);
        if (h->hyper_rank) AE_TRY(ae_bind_stream_norms(b, name, h, &n->hnorm));
        else AE_TRY(ae_bind(b, name, true, 0, e, &n->hnorm));
        AE_TRY(ae_bind_layer(b, i, "nextn.embed_tokens.weight", false, h->n_vocab, e, &n->embedding));
        AE_TRY(ae_bind_layer(b, i, "nextn.shared_head_head.weight", false, n_rows, e, &n->head));
        AE_TRY(ae_bind_layer(b, i, "nextn.shared_head_norm.weight", false, 0, e, &n->head_norm));
        if (!n->head_norm) AE_TRY(ae_bind_layer(b, i, "layer_output_norm.weight", false, 0, e, &n->head_norm));
        /* in some small models the blocks have no feed-forward part */
        if (l->spec.ffn == AE_FFN_DENSE && !find_part(b, i, "ffn_up.weight")) l->spec.ffn = AE_FFN_NONE;
    }
    return bind_layers(b, m, h->n_layers);
}

/* An assistant without an embedding of its own uses its output head as one. */
static aerie_status bind_assistant(ae_binder *b, ae_model *m)
{
    const ae_hparams *h = &m->hparams;
    const ae_gguf_tensor *post = ae_gguf_tensor_find(b->gguf, "nextn.post_projection.weight");
    uint32_t n = post && post->ne[1] <= AE_MAX_EMBD ? (uint32_t)post->ne[1] : 1;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "embedding_length_out"), false, &n, b->error));
    AE_TRY(ae_bind_range(b, "embedding_length_out", n, 1, AE_MAX_EMBD));
    AE_TRY(ae_bind(b, "nextn.pre_projection.weight", true, h->n_embd, 2 * n, &m->pre_projection));
    AE_TRY(ae_bind(b, "nextn.post_projection.weight", true, n, h->n_embd, &m->post_projection));
    AE_TRY(ae_bind(b, "token_embd.weight", true, h->n_vocab, h->n_embd, &m->embedding));
    AE_TRY(ae_bind(b, "output_norm.weight", true, 0, h->n_embd, &m->out_norm));
    AE_TRY(ae_bind(b, "output.weight", false, h->n_vocab, h->n_embd, &m->output));
    m->tied = !m->output;
    if (m->tied) m->output = m->embedding;
    return bind_layers(b, m, 0);
}

/* Binds a block drafter's layers, and the tensors that it may borrow from the target. Its output has a row for each entry of
 * d2t, if there is one. draft/head reads the rest of the file. */
static aerie_status bind_block(ae_binder *b, ae_model *m)
{
    const ae_hparams *h = &m->hparams;
    const ae_gguf_tensor *map = ae_gguf_tensor_find(b->gguf, "d2t");
    if (!map) map = ae_gguf_tensor_find(b->gguf, "d2t.weight");
    if (map && map->ne[0] > h->n_vocab)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor d2t has %lld entries, but the vocabulary only %u tokens",
                       ae_gguf_path(b->gguf), (long long)map->ne[0], h->n_vocab);
    AE_TRY(ae_bind(b, "token_embd.weight", false, h->n_vocab, h->n_embd, &m->embedding));
    AE_TRY(ae_bind(b, "output_norm.weight", true, 0, h->n_embd, &m->out_norm));
    AE_TRY(ae_bind(b, "output.weight", false, map ? (uint32_t)map->ne[0] : h->n_vocab, h->n_embd, &m->output));
    const bool convolves = ae_gguf_tensor_find(b->gguf, "selector_hidden.weight") ||
                           (ae_gguf_tensor_find(b->gguf, "lilicorr.factor_out.weight") &&
                            ae_gguf_tensor_find(b->gguf, "blk.0.attn_conv_base"));
    for (uint32_t i = 0; convolves && i < h->n_layers; i++) {
        static const char *const parts[] = {"attn_conv_base", "attn_conv_proj.weight", "ffn_conv_base", "ffn_conv_proj.weight"};
        char name[48];
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) { /* DFlash2's and LiLiCorr's are read there too */
            snprintf(name, sizeof name, "blk.%u.%s", i, parts[k]);
            const ae_gguf_tensor *t = ae_gguf_tensor_find(b->gguf, name);
            if (t) ae_bind_mark(b, t);
        }
    }
    return bind_layers(b, m, 0);
}

static uint64_t count_nextn(const ae_gguf *gguf, uint32_t first)
{
    uint64_t n = 0;
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(gguf, i);
        ae_gguf_string part;
        if (ae_bind_block_of("blk", t, &part) >= (int)first) n += (uint64_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
    }
    return n;
}

ae_nextn_found ae_model_find_nextn(const ae_gguf *gguf)
{
    ae_gguf_string arch = {0};
    ae_binder b = {.gguf = gguf};
    uint32_t n = 0;
    int least = AE_MAX_LAYERS + 1, least_nextn = least;
    if (ae_gguf_get_string(gguf, "general.architecture", true, &arch, NULL) != AERIE_OK) return AE_NEXTN_NONE;
    b.arch = ae_arch_find(arch.data, arch.n);
    if (!b.arch || b.arch->drafter) return AE_NEXTN_NONE;
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        ae_gguf_string part;
        const int block = ae_bind_block_of("blk", ae_gguf_tensor_at(gguf, i), &part);
        if (block < 0) continue;
        if (block < least) least = block;
        if (block < least_nextn && part.n > 7 && !memcmp(part.data, ".nextn.", 7)) least_nextn = block;
    }
    if (least_nextn <= AE_MAX_LAYERS) return least < least_nextn ? AE_NEXTN_INSIDE : AE_NEXTN_ALONE;
    if (ae_gguf_get_u32(gguf, ae_bind_key(&b, "nextn_predict_layers"), false, &n, NULL) != AERIE_OK) return AE_NEXTN_NONE;
    return n ? AE_NEXTN_KEY : AE_NEXTN_NONE;
}

ae_widths ae_model_widths(const ae_layer *layers, uint32_t n_layers)
{
    ae_widths w = {0};
    for (uint32_t i = 0; i < n_layers; i++) {
        const ae_layer_spec *s = &layers[i].spec;
        const uint32_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
        const bool dense = s->ffn == AE_FFN_DENSE || s->ffn == AE_FFN_BOTH || s->ffn == AE_FFN_CHANNEL_MIX;
        if (q > w.q) w.q = q;
        if (kv > w.kv) w.kv = kv;
        if (dense && s->n_ff > w.ff) w.ff = s->n_ff;
        if (s->n_heads > w.heads) w.heads = s->n_heads;
    }
    return w;
}

/* ---- Load ------------------------------------------------------------------------------------------- */

/* Trusts the length of the list of tokens: ae_vocab_create, which texts need, checks the rest of the list. A file without the
 * list, or with MTP blocks alone, has as many tokens as its embedding or output has rows. */
static aerie_status read_n_vocab(ae_binder *b, ae_hparams *h)
{
    const ae_gguf_kv *tokens = ae_gguf_kv_find(b->gguf, "tokenizer.ggml.tokens");
    const ae_gguf_tensor *embedding = ae_gguf_tensor_find(b->gguf, "token_embd.weight");
    uint64_t n = 0;
    if (tokens && tokens->type == AE_GGUF_ARRAY) n = tokens->n;
    else if (embedding) n = (uint64_t)embedding->ne[1];
    if (n > INT32_MAX)
        return ae_fail(b->error, AERIE_ERROR_LIMIT, "%s: a vocabulary of %llu tokens", ae_gguf_path(b->gguf),
                       (unsigned long long)n);
    h->n_vocab = (uint32_t)n;
    if (n) return AERIE_OK;
    return ae_bind_get(b, "vocab_size", true, 1, INT32_MAX, &h->n_vocab);
}

/* Makes the binder read the encoder of a file that has a decoder too. */
static aerie_status take_source(ae_binder *b, ae_model *m, aerie_error *error)
{
    const char *name = b->arch->source;
    if (!name)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: a model of architecture %s has no encoder of its own",
                       ae_gguf_path(m->gguf), b->arch->name);
    ae_arch *own = ae_arena_alloc(&m->arena, 1, sizeof *own);
    if (!own) return ae_fail_memory(error, "the description of an encoder", sizeof *own);
    *own = *ae_arch_find(name, strlen(name));
    own->name = b->arch->name;
    b->arch = own;
    return AERIE_OK;
}

/* Refuses a file with more blocks of the kind of its first one than its keys count: one of the two is wrong, and those that the
 * keys leave out would not run. Layers that are repeated have one block. A single odd tensor there changes nothing, nor do
 * scales for quantizing activations, which llama.cpp writes for each repetition. */
static aerie_status check_blocks(const ae_binder *b, const ae_hparams *h)
{
    const uint32_t n_decision = h->decision.kind == AE_DECISION_MARKS ? h->decision.n_blocks : 0; /* the file's last blocks */
    const uint32_t n = (h->n_blocks ? h->n_blocks : h->n_layers) + h->n_nextn + n_decision;
    static const char unused[] = ".input_scale";
    const size_t n_unused = sizeof unused - 1;
    for (size_t i = 0; i < ae_gguf_n_tensors(b->gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(b->gguf, i);
        ae_gguf_string part;
        char first[128];
        const int block = ae_bind_block_of(ae_bind_prefix(b), t, &part);
        if (block < (int)n || part.n > 100) continue;
        if (part.n >= n_unused && !memcmp(part.data + part.n - n_unused, unused, n_unused)) continue;
        snprintf(first, sizeof first, "%s.0%.*s", ae_bind_prefix(b), (int)part.n, part.data);
        if (!ae_gguf_tensor_find(b->gguf, first)) continue;
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor %.*s belongs to block %d, but the keys count only %u blocks "
                       "(%s.block_count): the file is not one model", ae_gguf_path(b->gguf),
                       (int)(t->name.n < 100 ? t->name.n : 100), t->name.data, block, n, b->arch->name);
    }
    return AERIE_OK;
}

static aerie_status bind_model(ae_model *m, const ae_model_options *options, aerie_error *error)
{
    ae_binder b = {.gguf = m->gguf, .error = error, .unread = options->unread};
    ae_gguf_string arch = {0}, name = {0};
    AE_TRY(ae_role_need(m->gguf, AE_ROLE_MODEL, error));
    AE_TRY(ae_gguf_get_string(m->gguf, "general.architecture", true, &arch, error));
    b.arch = ae_arch_find(arch.data, arch.n);
    if (!b.arch)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: architecture \"%.*s\" is unknown; docs/models.md lists those that "
                       "this version runs", ae_gguf_path(m->gguf), (int)(arch.n < 64 ? arch.n : 64), arch.data);
    const bool drafter = options->nextn && (b.arch->assistant || b.arch->block); /* the whole file is a drafter */
    if (b.arch->drafter && !drafter)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: \"%s\" is a drafter's head, not a model of its own; give it with "
                       "-md", ae_gguf_path(m->gguf), b.arch->name);
    if (options->source) AE_TRY(take_source(&b, m, error));
    b.blocks = b.arch->blocks;
    AE_TRY(ae_gguf_get_string(m->gguf, "general.name", false, &name, error));
    m->name = ae_arena_strndup(&m->arena, name.data ? name.data : "", name.data ? name.n : 0);
    if (!m->name) return ae_fail_memory(error, "the model's name", name.n);
    if (!ae_gguf_n_tensors(m->gguf))
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s: the file contains only a vocabulary, no weights", ae_gguf_path(m->gguf));
    AE_TRY(read_n_vocab(&b, &m->hparams));
    AE_TRY(ae_bind_begin(&b, &m->arena));
    m->bound = b.bound;
    AE_TRY(ae_bind_n_layers(&b, &m->hparams));
    AE_TRY(check_trunk(&b, &m->hparams));
    if (options->nextn && !drafter) AE_TRY(check_nextn(&b, &m->hparams));
    b.n_specs = m->hparams.n_layers + (options->nextn ? m->hparams.n_nextn : 0);
    m->layers = ae_arena_alloc(&m->arena, b.n_specs, sizeof *m->layers);
    if (!m->layers) return ae_fail_memory(error, "the layer table", b.n_specs * sizeof *m->layers);
    AE_TRY(ae_bind_model_hparams(&b, &m->hparams, options->rope, &m->arena, m->layers));
    AE_TRY(!options->nextn ? bind_tensors(&b, m) : !drafter ? bind_nextn(&b, m) : b.arch->block ? bind_block(&b, m)
                                                                                 : bind_assistant(&b, m));
    const uint32_t first = options->nextn && !drafter ? m->hparams.n_layers : 0;
    if (!options->nextn) AE_TRY(check_blocks(&b, &m->hparams));
    AE_TRY(ae_bind_end(&b, m->layers + first, first, b.n_specs - first, !first && !b.arch->block));
    m->unused = b.unused, m->n_unused = b.n_unused;
    m->n_params = options->nextn && !drafter ? count_nextn(m->gguf, m->hparams.n_layers) : ae_bind_n_params(m->gguf);
    return AERIE_OK;
}

static aerie_status take_over(ae_model **out, ae_gguf *gguf, const ae_model_options *options, aerie_error *error)
{
    *out = NULL;
    ae_model *m = ae_alloc(1, sizeof *m);
    if (!m) {
        ae_gguf_close(gguf);
        return ae_fail_memory(error, "a model", sizeof *m);
    }
    ae_arena_init(&m->arena, 16384);
    m->gguf = gguf;
    aerie_status status = bind_model(m, options, error);
    if (status != AERIE_OK) {
        ae_model_free(m);
        return status;
    }
    *out = m;
    return AERIE_OK;
}

aerie_status ae_model_bind(ae_model **out, ae_gguf *gguf, aerie_error *error)
{
    return take_over(out, gguf, &(ae_model_options){0}, error);
}

aerie_status ae_model_bind_nextn(ae_model **out, ae_gguf *gguf, aerie_error *error)
{
    return take_over(out, gguf, &(ae_model_options){.nextn = true}, error);
}

aerie_status ae_model_load(ae_model **out, const char *path, const ae_model_options *options, aerie_error *error)
{
    *out = NULL;
    ae_gguf *gguf;
    const ae_model_options how = options ? *options : (ae_model_options){0};
    if (how.unread) *how.unread = '\0';
    const ae_gguf_options gguf_options = {.index_only = how.no_mmap, .overrides = how.overrides,
                                          .n_overrides = how.n_overrides};
    AE_TRY(ae_gguf_open(&gguf, path, &gguf_options, error));
    return take_over(out, gguf, &how, error);
}

aerie_status ae_model_read_f32(const ae_model *model, ae_tensor_ref tensor, float *x, size_t n, aerie_error *error)
{
    ae_binder b = {.gguf = model->gguf, .error = error};
    if (n > UINT32_MAX) return ae_fail(error, AERIE_ERROR_LIMIT, "%s: a tensor of %zu numbers", ae_gguf_path(model->gguf), n);
    return ae_bind_read_f32(&b, tensor, x, (uint32_t)n);
}

void ae_model_free(ae_model *model)
{
    if (!model) return;
    ae_gguf_close(model->gguf);
    ae_arena_free(&model->arena);
    ae_free(model);
}
