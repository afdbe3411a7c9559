#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch.h"
#include "quant/types.h"

/* ---- Keys -------------------------------------------------------------------------------------- */

typedef struct binder {
    ae_model *model;
    const ae_arch *arch;
    aerie_error *error;
    char key[96];
} binder;

static const char *arch_key(binder *b, const char *suffix)
{
    snprintf(b->key, sizeof b->key, "%s.%s", b->arch->name, suffix);
    return b->key;
}

static aerie_status need_range(binder *b, const char *what, uint32_t value, uint32_t lo, uint32_t hi)
{
    if (value >= lo && value <= hi) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s.%s is %u; %u to %u are possible", ae_gguf_path(b->model->gguf),
                   b->arch->name, what, value, lo, hi);
}

/* Some files give one value per layer; we need them equal. */
static aerie_status get_uniform(binder *b, const char *suffix, bool required, uint32_t *value)
{
    const ae_gguf *gguf = b->model->gguf;
    const char *key = arch_key(b, suffix);
    const ae_gguf_kv *kv = ae_gguf_kv_find(gguf, key);
    if (!kv || kv->type != AE_GGUF_ARRAY) return ae_gguf_get_u32(gguf, key, required, value, b->error);
    for (uint64_t i = 0; i < kv->n; i++) {
        int64_t v;
        if (!ae_gguf_kv_int(kv, i, &v) || v < 0 || v > INT32_MAX)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: element %llu of %s is not a count", ae_gguf_path(gguf),
                           (unsigned long long)i, key);
        if (i && (uint32_t)v != *value)
            return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s differs between layers (%u and %u); aerie needs it equal",
                           ae_gguf_path(gguf), key, *value, (uint32_t)v);
        *value = (uint32_t)v;
    }
    return AERIE_OK;
}

static aerie_status read_rope(binder *b)
{
    ae_hparams *h = &b->model->hparams;
    const ae_gguf *gguf = b->model->gguf;
    h->n_rot = h->head_dim;
    h->rope_base = 10000.0f;
    h->rope_factor = 1.0f;
    h->rope_neox = b->arch->rope_neox;
    h->rope_n_ctx_orig = h->n_ctx_train;
    AE_TRY(ae_gguf_get_u32(gguf, arch_key(b, "rope.dimension_count"), false, &h->n_rot, b->error));
    AE_TRY(ae_gguf_get_f32(gguf, arch_key(b, "rope.freq_base"), false, &h->rope_base, b->error));
    AE_TRY(ae_gguf_get_f32(gguf, arch_key(b, "rope.scale_linear"), false, &h->rope_factor, b->error));
    if (h->rope_factor != 1.0f) h->rope_scaling = AE_ROPE_SCALING_LINEAR;
    ae_gguf_string kind = {0};
    AE_TRY(ae_gguf_get_string(gguf, arch_key(b, "rope.scaling.type"), false, &kind, b->error));
    if (kind.data) {
        if (kind.n == 4 && !memcmp(kind.data, "none", 4)) h->rope_scaling = AE_ROPE_SCALING_NONE;
        else if (kind.n == 6 && !memcmp(kind.data, "linear", 6)) h->rope_scaling = AE_ROPE_SCALING_LINEAR;
        else if (kind.n == 4 && !memcmp(kind.data, "yarn", 4)) h->rope_scaling = AE_ROPE_SCALING_YARN;
        else
            return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: rope scaling \"%.*s\" is unknown; none, linear and yarn are known",
                           ae_gguf_path(gguf), (int)(kind.n < 32 ? kind.n : 32), kind.data);
    }
    AE_TRY(ae_gguf_get_f32(gguf, arch_key(b, "rope.scaling.factor"), false, &h->rope_factor, b->error));
    AE_TRY(ae_gguf_get_u32(gguf, arch_key(b, "rope.scaling.original_context_length"), false, &h->rope_n_ctx_orig, b->error));
    AE_TRY(need_range(b, "rope.dimension_count", h->n_rot, 2, h->head_dim));
    if (h->n_rot % 2)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s.rope.dimension_count is %u, an odd number", ae_gguf_path(gguf),
                       b->arch->name, h->n_rot);
    if (!(h->rope_base > 1.0f && h->rope_base < 1e12f) || !(h->rope_factor > 0.0f && h->rope_factor < 1e6f))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: rope base %g or factor %g is out of range", ae_gguf_path(gguf),
                       (double)h->rope_base, (double)h->rope_factor);
    if (h->rope_factor == 1.0f) h->rope_scaling = AE_ROPE_SCALING_NONE;
    return AERIE_OK;
}

/* The size of the expert that all rows share. */
static aerie_status read_shared(binder *b)
{
    ae_hparams *h = &b->model->hparams;
    ae_expert_hparams *x = &h->experts;
    if (b->arch->shared == AE_SHARED_GATED) {
        x->n_ff_shared = h->n_ff;
        AE_TRY(ae_gguf_get_u32(b->model->gguf, arch_key(b, "expert_shared_feed_forward_length"), false, &x->n_ff_shared, b->error));
        AE_TRY(need_range(b, "expert_shared_feed_forward_length", x->n_ff_shared, 1, AE_MAX_FF));
    } else if (b->arch->shared == AE_SHARED_COUNT) {
        uint32_t n = 0;
        AE_TRY(ae_gguf_get_u32(b->model->gguf, arch_key(b, "expert_shared_count"), true, &n, b->error));
        AE_TRY(need_range(b, "expert_shared_count", n, 0, AE_MAX_FF / x->n_ff));
        x->n_ff_shared = n * x->n_ff;
    }
    return AERIE_OK;
}

static aerie_status read_experts(binder *b)
{
    ae_hparams *h = &b->model->hparams;
    ae_expert_hparams *x = &h->experts;
    const ae_gguf *gguf = b->model->gguf;
    uint32_t n_groups = 0, gate = b->arch->gate;
    AE_TRY(ae_gguf_get_u32(gguf, arch_key(b, "expert_count"), b->arch->experts == AE_EXPERTS_ALWAYS, &x->n, b->error));
    if (b->arch->experts == AE_EXPERTS_ALWAYS) AE_TRY(need_range(b, "expert_count", x->n, 1, AE_MODEL_MAX_EXPERTS));
    if (!x->n) return AERIE_OK;
    if (b->arch->experts == AE_EXPERTS_NEVER)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s.expert_count is %u; models of this architecture have no experts",
                       ae_gguf_path(gguf), b->arch->name, x->n);
    AE_TRY(need_range(b, "expert_count", x->n, 1, AE_MODEL_MAX_EXPERTS));
    AE_TRY(ae_gguf_get_u32(gguf, arch_key(b, "expert_used_count"), true, &x->n_used, b->error));
    AE_TRY(need_range(b, "expert_used_count", x->n_used, 1, x->n));
    AE_TRY(ae_gguf_get_u32(gguf, arch_key(b, "expert_group_count"), false, &n_groups, b->error));
    if (n_groups > 1)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: experts in %u groups, of which a row uses some; aerie knows no such "
                       "groups", ae_gguf_path(gguf), n_groups);
    x->n_ff = b->arch->split_ff ? h->n_ff / x->n_used : h->n_ff;
    AE_TRY(ae_gguf_get_u32(gguf, arch_key(b, "expert_feed_forward_length"), false, &x->n_ff, b->error));
    AE_TRY(need_range(b, "expert_feed_forward_length", x->n_ff, 1, AE_MAX_FF));
    AE_TRY(read_shared(b));
    AE_TRY(ae_gguf_get_u32(gguf, arch_key(b, "leading_dense_block_count"), false, &x->n_dense, b->error));
    AE_TRY(need_range(b, "leading_dense_block_count", x->n_dense, 0, h->n_layers));
    AE_TRY(ae_gguf_get_u32(gguf, arch_key(b, "expert_gating_func"), false, &gate, b->error));
    AE_TRY(need_range(b, "expert_gating_func", gate, AE_EXPERT_GATE_SOFTMAX, AE_EXPERT_GATE_SOFTMAX_CHOSEN));
    x->gate = (ae_expert_gate)gate;
    x->renorm = b->arch->renorm;
    AE_TRY(ae_gguf_get_bool(gguf, arch_key(b, "expert_weights_norm"), false, &x->renorm, b->error));
    AE_TRY(ae_gguf_get_f32(gguf, arch_key(b, "expert_weights_scale"), false, &x->scale, b->error));
    if (x->scale == 0.0f) x->scale = 1.0f; /* so other programs write "none" */
    if (!(fabsf(x->scale) < 1e6f))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s.expert_weights_scale is %g", ae_gguf_path(gguf), b->arch->name,
                       (double)x->scale);
    return AERIE_OK;
}

static aerie_status read_hparams(binder *b)
{
    ae_hparams *h = &b->model->hparams;
    const ae_gguf *gguf = b->model->gguf;
    h->arch = b->arch->name;
    AE_TRY(ae_gguf_get_u32(gguf, arch_key(b, "block_count"), true, &h->n_layers, b->error));
    AE_TRY(ae_gguf_get_u32(gguf, arch_key(b, "embedding_length"), true, &h->n_embd, b->error));
    AE_TRY(ae_gguf_get_u32(gguf, arch_key(b, "context_length"), false, &h->n_ctx_train, b->error));
    AE_TRY(get_uniform(b, "feed_forward_length", true, &h->n_ff));
    AE_TRY(get_uniform(b, "attention.head_count", true, &h->n_heads));
    h->n_kv_heads = h->n_heads;
    AE_TRY(get_uniform(b, "attention.head_count_kv", false, &h->n_kv_heads));
    AE_TRY(ae_gguf_get_f32(gguf, arch_key(b, "attention.layer_norm_rms_epsilon"), true, &h->norm_eps, b->error));
    AE_TRY(need_range(b, "block_count", h->n_layers, 1, AE_MAX_LAYERS));
    AE_TRY(need_range(b, "embedding_length", h->n_embd, 1, AE_MAX_EMBD));
    AE_TRY(need_range(b, "feed_forward_length", h->n_ff, 1, AE_MAX_FF));
    AE_TRY(need_range(b, "attention.head_count", h->n_heads, 1, AE_MAX_HEADS));
    AE_TRY(need_range(b, "attention.head_count_kv", h->n_kv_heads, 1, h->n_heads));
    if (h->n_heads % h->n_kv_heads)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %u attention heads cannot share %u KV heads evenly", ae_gguf_path(gguf),
                       h->n_heads, h->n_kv_heads);
    h->head_dim = h->n_embd / h->n_heads;
    uint32_t value_dim;
    AE_TRY(ae_gguf_get_u32(gguf, arch_key(b, "attention.key_length"), false, &h->head_dim, b->error));
    value_dim = h->head_dim;
    AE_TRY(ae_gguf_get_u32(gguf, arch_key(b, "attention.value_length"), false, &value_dim, b->error));
    AE_TRY(need_range(b, "attention.key_length", h->head_dim, 2, AE_MAX_HEAD_DIM));
    if (value_dim != h->head_dim)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: keys of %u and values of %u elements a head; aerie needs them equal",
                       ae_gguf_path(gguf), h->head_dim, value_dim);
    h->attn_scale = 1.0f / sqrtf((float)h->head_dim);
    if (!(h->norm_eps > 0.0f && h->norm_eps < 1.0f))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: the norm's epsilon is %g; it must lie between 0 and 1", ae_gguf_path(gguf),
                       (double)h->norm_eps);
    h->qk_norm = b->arch->qk_norm;
    AE_TRY(read_experts(b));
    return read_rope(b);
}

/* ---- Tensors ------------------------------------------------------------------------------------- */

/* The tensor `name` of shape [n_stack][n_out, n_in] (n_out 0: a vector [n_in]); NULL in *out if optional and absent. */
static aerie_status bind_stack(binder *b, const char *name, bool required, uint32_t n_stack, uint32_t n_out, uint32_t n_in,
                               ae_tensor_ref *out)
{
    const char *path = ae_gguf_path(b->model->gguf);
    const ae_gguf_tensor *t = ae_gguf_tensor_find(b->model->gguf, name);
    *out = t;
    if (!t) {
        if (!required) return AERIE_OK;
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing; architecture %s needs it", path, name, b->arch->name);
    }
    const int64_t rows = n_out ? n_out : 1;
    if (t->ne[0] != n_in || t->ne[1] != rows || t->ne[2] != n_stack || t->ne[3] != 1) {
        char depth[24] = "";
        if (n_stack > 1) snprintf(depth, sizeof depth, ", %u", n_stack);
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor %s has shape [%lld, %lld, %lld, %lld], expected [%u, %lld%s]", path,
                       name, (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3], n_in,
                       (long long)rows, depth);
    }
    const ae_type_info *info = ae_type_get(t->type);
    if (!info || !info->decode || (n_out && info->dot == AE_DOT_NONE))
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s has type %s, which cannot hold weights", path, name,
                       ae_type_name(t->type));
    return AERIE_OK;
}

static aerie_status bind(binder *b, const char *name, bool required, uint32_t n_out, uint32_t n_in, ae_tensor_ref *out)
{
    return bind_stack(b, name, required, 1, n_out, n_in, out);
}

static aerie_status bind_layer(binder *b, uint32_t i, const char *part, bool required, uint32_t n_out, uint32_t n_in,
                               ae_tensor_ref *out)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", i, part);
    return bind(b, name, required, n_out, n_in, out);
}

static aerie_status bind_experts_of(binder *b, uint32_t i, const char *part, bool required, uint32_t n_out, uint32_t n_in,
                                    ae_tensor_ref *out)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", i, part);
    return bind_stack(b, name, required, b->model->hparams.experts.n, n_out, n_in, out);
}

static aerie_status bind_experts(binder *b, uint32_t i, ae_layer *l)
{
    const ae_expert_hparams *x = &b->model->hparams.experts;
    const uint32_t e = b->model->hparams.n_embd, f = x->n_ff, s = x->n_ff_shared;
    char name[64];
    snprintf(name, sizeof name, "blk.%u.ffn_gate.0.weight", i);
    if (ae_gguf_tensor_find(b->model->gguf, name))
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s: the experts are stored one by one, as before April 2024; "
                       "convert the model again", ae_gguf_path(b->model->gguf), name);
    AE_TRY(bind_layer(b, i, "ffn_gate_inp.weight", true, x->n, e, &l->router));
    AE_TRY(bind_layer(b, i, "exp_probs_b.bias", false, 0, x->n, &l->router_bias));
    AE_TRY(bind_experts_of(b, i, "ffn_gate_up_exps.weight", false, 2 * f, e, &l->e_gate_up));
    if (!l->e_gate_up) {
        AE_TRY(bind_experts_of(b, i, "ffn_gate_exps.weight", true, f, e, &l->e_gate));
        AE_TRY(bind_experts_of(b, i, "ffn_up_exps.weight", true, f, e, &l->e_up));
    }
    AE_TRY(bind_experts_of(b, i, "ffn_down_exps.weight", true, e, f, &l->e_down));
    if (!s) return AERIE_OK;
    AE_TRY(bind_layer(b, i, "ffn_gate_shexp.weight", true, s, e, &l->s_gate));
    AE_TRY(bind_layer(b, i, "ffn_up_shexp.weight", true, s, e, &l->s_up));
    AE_TRY(bind_layer(b, i, "ffn_down_shexp.weight", true, e, s, &l->s_down));
    if (b->arch->shared == AE_SHARED_GATED) AE_TRY(bind_layer(b, i, "ffn_gate_inp_shexp.weight", true, 1, e, &l->s_router));
    return AERIE_OK;
}

static aerie_status bind_dense(binder *b, uint32_t i, ae_layer *l)
{
    const uint32_t e = b->model->hparams.n_embd, f = b->model->hparams.n_ff;
    AE_TRY(bind_layer(b, i, "ffn_gate.weight", true, f, e, &l->w_gate));
    AE_TRY(bind_layer(b, i, "ffn_up.weight", true, f, e, &l->w_up));
    AE_TRY(bind_layer(b, i, "ffn_down.weight", true, e, f, &l->w_down));
    AE_TRY(bind_layer(b, i, "ffn_gate.bias", false, 0, f, &l->b_gate));
    AE_TRY(bind_layer(b, i, "ffn_up.bias", false, 0, f, &l->b_up));
    return bind_layer(b, i, "ffn_down.bias", false, 0, e, &l->b_down);
}

static aerie_status bind_layers(binder *b)
{
    const ae_hparams *h = &b->model->hparams;
    const uint32_t e = h->n_embd, q = h->n_heads * h->head_dim, kv = h->n_kv_heads * h->head_dim;
    const bool by_head = h->qk_norm == AE_QK_NORM_HEAD;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        ae_layer *l = &b->model->layers[i];
        AE_TRY(bind_layer(b, i, "attn_norm.weight", true, 0, e, &l->attn_norm));
        AE_TRY(bind_layer(b, i, "attn_q.weight", true, q, e, &l->wq));
        AE_TRY(bind_layer(b, i, "attn_k.weight", true, kv, e, &l->wk));
        AE_TRY(bind_layer(b, i, "attn_v.weight", true, kv, e, &l->wv));
        AE_TRY(bind_layer(b, i, "attn_output.weight", true, e, q, &l->wo));
        AE_TRY(bind_layer(b, i, "attn_q.bias", false, 0, q, &l->bq));
        AE_TRY(bind_layer(b, i, "attn_k.bias", false, 0, kv, &l->bk));
        AE_TRY(bind_layer(b, i, "attn_v.bias", false, 0, kv, &l->bv));
        AE_TRY(bind_layer(b, i, "attn_output.bias", false, 0, e, &l->bo));
        if (h->qk_norm) {
            AE_TRY(bind_layer(b, i, "attn_q_norm.weight", true, 0, by_head ? h->head_dim : q, &l->q_norm));
            AE_TRY(bind_layer(b, i, "attn_k_norm.weight", true, 0, by_head ? h->head_dim : kv, &l->k_norm));
        }
        AE_TRY(bind_layer(b, i, "ffn_norm.weight", true, 0, e, &l->ffn_norm));
        if (h->experts.n && i >= h->experts.n_dense) AE_TRY(bind_experts(b, i, l));
        else AE_TRY(bind_dense(b, i, l));
    }
    return AERIE_OK;
}

static aerie_status read_rope_divisors(binder *b)
{
    ae_model *m = b->model;
    const size_t n = m->hparams.n_rot / 2;
    ae_tensor_ref t;
    AE_TRY(bind(b, "rope_freqs.weight", false, 0, (uint32_t)n, &t));
    if (!t) return AERIE_OK;
    if (t->type != AE_TYPE_F32)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: rope_freqs.weight is not F32", ae_gguf_path(m->gguf));
    float *divisors = ae_arena_alloc(&m->arena, n, sizeof *divisors);
    if (!divisors) return ae_fail_memory(b->error, "the frequencies of the rotation", n * sizeof *divisors);
    ae_gguf_reader reader = ae_gguf_reader_open(m->gguf);
    const aerie_status status = ae_gguf_read(&reader, t, 0, divisors, n * sizeof *divisors, b->error);
    ae_gguf_reader_close(&reader);
    m->rope_divisors = divisors;
    return status;
}

static aerie_status bind_tensors(binder *b)
{
    ae_model *m = b->model;
    const ae_hparams *h = &m->hparams;
    m->layers = ae_arena_alloc(&m->arena, h->n_layers, sizeof *m->layers);
    if (!m->layers) return ae_fail_memory(b->error, "the layer table", h->n_layers * sizeof *m->layers);
    AE_TRY(bind(b, "token_embd.weight", true, h->n_vocab, h->n_embd, &m->embedding));
    AE_TRY(bind(b, "output_norm.weight", true, 0, h->n_embd, &m->out_norm));
    AE_TRY(bind(b, "output.weight", false, h->n_vocab, h->n_embd, &m->output));
    m->tied = !m->output;
    if (m->tied) m->output = m->embedding;
    AE_TRY(read_rope_divisors(b));
    return bind_layers(b);
}

/* ---- Load ------------------------------------------------------------------------------------------- */

/* Without the vocabulary its size is believed: whoever needs more than sizes loads it. */
static aerie_status read_vocab(ae_model *m, bool no_vocab, aerie_error *error)
{
    if (no_vocab) {
        const ae_gguf_kv *kv;
        AE_TRY(ae_gguf_get_array(m->gguf, "tokenizer.ggml.tokens", true, AE_GGUF_STRING, &kv, error));
        if (kv->n > INT32_MAX)
            return ae_fail(error, AERIE_ERROR_LIMIT, "%s: a vocabulary of %llu tokens", ae_gguf_path(m->gguf), (unsigned long long)kv->n);
        m->hparams.n_vocab = (uint32_t)kv->n;
        return AERIE_OK;
    }
    AE_TRY(ae_vocab_create(&m->vocab, m->gguf, error));
    m->hparams.n_vocab = (uint32_t)ae_vocab_n_tokens(m->vocab);
    return AERIE_OK;
}

static aerie_status bind_model(ae_model *m, bool no_vocab, aerie_error *error)
{
    binder b = {.model = m, .error = error};
    ae_gguf_string arch = {0}, name = {0};
    AE_TRY(ae_gguf_get_string(m->gguf, "general.architecture", true, &arch, error));
    b.arch = ae_arch_find(arch.data, arch.n);
    if (!b.arch)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: architecture \"%.*s\" is unknown; the known are: %s",
                       ae_gguf_path(m->gguf), (int)(arch.n < 64 ? arch.n : 64), arch.data, ae_model_known_archs());
    if (b.arch->drafter)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: \"%s\" is a drafter's head, not a model of its own; give it with -md",
                       ae_gguf_path(m->gguf), b.arch->name);
    AE_TRY(ae_gguf_get_string(m->gguf, "general.name", false, &name, error));
    m->name = ae_arena_strndup(&m->arena, name.data ? name.data : "", name.data ? name.n : 0);
    if (!m->name) return ae_fail_memory(error, "the model's name", name.n);
    if (!ae_gguf_n_tensors(m->gguf))
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s: the file holds a vocabulary only, no weights", ae_gguf_path(m->gguf));
    AE_TRY(read_vocab(m, no_vocab, error));
    AE_TRY(read_hparams(&b));
    AE_TRY(bind_tensors(&b));
    for (size_t i = 0; i < ae_gguf_n_tensors(m->gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(m->gguf, i);
        m->n_params += (uint64_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
    }
    return AERIE_OK;
}

static aerie_status take_over(ae_model **out, ae_gguf *gguf, bool no_vocab, aerie_error *error)
{
    *out = NULL;
    ae_model *m = ae_alloc(1, sizeof *m);
    if (!m) {
        ae_gguf_close(gguf);
        return ae_fail_memory(error, "a model", sizeof *m);
    }
    ae_arena_init(&m->arena, 16384);
    m->gguf = gguf;
    aerie_status status = bind_model(m, no_vocab, error);
    if (status != AERIE_OK) {
        ae_model_free(m);
        return status;
    }
    *out = m;
    return AERIE_OK;
}

aerie_status ae_model_bind(ae_model **out, ae_gguf *gguf, aerie_error *error)
{
    return take_over(out, gguf, false, error);
}

aerie_status ae_model_load(ae_model **out, const char *path, const ae_model_options *options, aerie_error *error)
{
    *out = NULL;
    ae_gguf *gguf;
    const ae_gguf_options gguf_options = {.index_only = options && options->no_mmap};
    AE_TRY(ae_gguf_open(&gguf, path, &gguf_options, error));
    return take_over(out, gguf, options && options->no_vocab, error);
}

void ae_model_free(ae_model *model)
{
    if (!model) return;
    ae_vocab_free(model->vocab);
    ae_gguf_close(model->gguf);
    ae_arena_free(&model->arena);
    ae_free(model);
}

/* ---- Rotation ------------------------------------------------------------------------------------------ */

/* YaRN (arXiv 2309.00071): pairs that turn often keep their frequency, slow ones are interpolated, with a
 * linear ramp between the pairs that turn 32 and 1 times over the original context. */
static double yarn_pair(const ae_hparams *h, double turns)
{
    const double pi = 3.14159265358979323846;
    return h->n_rot * log(h->rope_n_ctx_orig / (turns * 2 * pi)) / (2 * log((double)h->rope_base));
}

void ae_model_rope_freqs(const ae_hparams *h, const float *divisors, double *freq, double *magnitude)
{
    const uint32_t half = h->n_rot / 2;
    double lo = 0, hi = 0;
    *magnitude = 1.0;
    if (h->rope_scaling == AE_ROPE_SCALING_YARN && h->rope_n_ctx_orig) {
        lo = floor(yarn_pair(h, 32));
        hi = ceil(yarn_pair(h, 1));
        lo = lo < 0 ? 0 : lo;
        hi = hi > h->n_rot - 1 ? h->n_rot - 1 : hi;
        *magnitude = 1.0 + 0.1 * log((double)h->rope_factor);
    }
    for (uint32_t i = 0; i < half; i++) {
        double f = pow((double)h->rope_base, -2.0 * i / h->n_rot);
        if (divisors && divisors[i] > 0.0f) f /= (double)divisors[i];
        const double slow = f / (double)h->rope_factor;
        if (h->rope_scaling == AE_ROPE_SCALING_LINEAR) {
            f = slow;
        } else if (h->rope_scaling == AE_ROPE_SCALING_YARN) {
            double y = (i - lo) / (hi - lo > 0.001 ? hi - lo : 0.001);
            y = y < 0 ? 0 : y > 1 ? 1 : y;
            f = f * (1 - y) + slow * y;
        }
        freq[i] = f;
    }
}
