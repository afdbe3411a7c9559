#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/bind.h"

/* The size of the expert that all rows share. */
static aerie_status read_shared(ae_binder *b, ae_hparams *h)
{
    ae_expert_hparams *x = &h->experts;
    if (b->arch->shared == AE_SHARED_GATED) {
        x->n_ff_shared = h->n_ff;
        AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "expert_shared_feed_forward_length"), false, &x->n_ff_shared, b->error));
        AE_TRY(ae_bind_range(b, "expert_shared_feed_forward_length", x->n_ff_shared, 1, AE_MAX_FF));
    } else if (b->arch->shared == AE_SHARED_COUNT) {
        uint32_t n = 0;
        AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "expert_shared_count"), true, &n, b->error));
        AE_TRY(ae_bind_range(b, "expert_shared_count", n, 0, AE_MAX_FF / x->n_ff));
        x->n_ff_shared = n * x->n_ff;
    }
    return AERIE_OK;
}

static aerie_status read_experts(ae_binder *b, ae_hparams *h)
{
    ae_expert_hparams *x = &h->experts;
    const ae_gguf *gguf = b->gguf;
    uint32_t n_groups = 0, gate = b->arch->gate;
    AE_TRY(ae_gguf_get_u32(gguf, ae_bind_key(b, "expert_count"), b->arch->experts == AE_EXPERTS_ALWAYS, &x->n, b->error));
    if (b->arch->experts == AE_EXPERTS_ALWAYS) AE_TRY(ae_bind_range(b, "expert_count", x->n, 1, AE_MODEL_MAX_EXPERTS));
    if (!x->n) return AERIE_OK;
    if (b->arch->experts == AE_EXPERTS_NEVER)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s.expert_count is %u; models of this architecture have no "
                       "experts", ae_gguf_path(gguf), b->arch->name, x->n);
    AE_TRY(ae_bind_range(b, "expert_count", x->n, 1, AE_MODEL_MAX_EXPERTS));
    AE_TRY(ae_gguf_get_u32(gguf, ae_bind_key(b, "expert_used_count"), true, &x->n_used, b->error));
    AE_TRY(ae_bind_range(b, "expert_used_count", x->n_used, 1, x->n));
    AE_TRY(ae_gguf_get_u32(gguf, ae_bind_key(b, "expert_group_count"), false, &n_groups, b->error));
    if (n_groups > 1)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: experts in %u groups, of which a row uses some; aerie knows no "
                       "such groups", ae_gguf_path(gguf), n_groups);
    x->n_ff = b->arch->split_ff ? h->n_ff / x->n_used : h->n_ff;
    AE_TRY(ae_gguf_get_u32(gguf, ae_bind_key(b, "expert_feed_forward_length"), false, &x->n_ff, b->error));
    AE_TRY(ae_bind_range(b, "expert_feed_forward_length", x->n_ff, 1, AE_MAX_FF));
    AE_TRY(read_shared(b, h));
    AE_TRY(ae_gguf_get_u32(gguf, ae_bind_key(b, "leading_dense_block_count"), false, &x->n_dense, b->error));
    AE_TRY(ae_bind_range(b, "leading_dense_block_count", x->n_dense, 0, h->n_layers));
    AE_TRY(ae_gguf_get_u32(gguf, ae_bind_key(b, "expert_gating_func"), false, &gate, b->error));
    AE_TRY(ae_bind_range(b, "expert_gating_func", gate, AE_EXPERT_GATE_SOFTMAX, AE_EXPERT_GATE_SOFTMAX_CHOSEN));
    x->gate = (ae_expert_gate)gate;
    x->renorm = b->arch->renorm;
    AE_TRY(ae_gguf_get_bool(gguf, ae_bind_key(b, "expert_weights_norm"), false, &x->renorm, b->error));
    AE_TRY(ae_gguf_get_f32(gguf, ae_bind_key(b, "expert_weights_scale"), false, &x->scale, b->error));
    if (x->scale == 0.0f) x->scale = 1.0f; /* so other programs write "none" */
    if (!(fabsf(x->scale) < 1e6f))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s.expert_weights_scale is %g", ae_gguf_path(gguf), b->arch->name,
                       (double)x->scale);
    return AERIE_OK;
}

static aerie_status read_hparams(ae_binder *b, ae_hparams *h, const aerie_rope *rope)
{
    h->arch = b->arch->name;
    h->rope_neox = b->arch->rope_neox;
    h->qk_norm = b->arch->qk_norm;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "block_count"), true, &h->n_layers, b->error));
    AE_TRY(ae_bind_range(b, "block_count", h->n_layers, 1, AE_MAX_LAYERS));
    AE_TRY(ae_bind_hparams(b, h));
    if (rope) AE_TRY(ae_bind_rope(b, h, rope));
    return read_experts(b, h);
}

/* ---- Tensors ------------------------------------------------------------------------------------- */

static aerie_status bind_experts_of(ae_binder *b, uint32_t n_experts, uint32_t i, const char *part, bool required,
                                    uint32_t n_out, uint32_t n_in, ae_tensor_ref *out)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", i, part);
    return ae_bind_stack(b, name, required, n_experts, n_out, n_in, out);
}

static aerie_status bind_experts(ae_binder *b, const ae_hparams *h, uint32_t i, ae_layer *l)
{
    const ae_expert_hparams *x = &h->experts;
    const uint32_t e = h->n_embd, f = x->n_ff, s = x->n_ff_shared;
    char name[64];
    snprintf(name, sizeof name, "blk.%u.ffn_gate.0.weight", i);
    if (ae_gguf_tensor_find(b->gguf, name))
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s: the experts are stored one by one, as before April "
                       "2024; convert the model again", ae_gguf_path(b->gguf), name);
    AE_TRY(ae_bind_layer(b, i, "ffn_gate_inp.weight", true, x->n, e, &l->router));
    AE_TRY(ae_bind_layer(b, i, "exp_probs_b.bias", false, 0, x->n, &l->router_bias));
    AE_TRY(bind_experts_of(b, x->n, i, "ffn_gate_up_exps.weight", false, 2 * f, e, &l->e_gate_up));
    if (!l->e_gate_up) {
        AE_TRY(bind_experts_of(b, x->n, i, "ffn_gate_exps.weight", true, f, e, &l->e_gate));
        AE_TRY(bind_experts_of(b, x->n, i, "ffn_up_exps.weight", true, f, e, &l->e_up));
    }
    AE_TRY(bind_experts_of(b, x->n, i, "ffn_down_exps.weight", true, e, f, &l->e_down));
    if (!s) return AERIE_OK;
    AE_TRY(ae_bind_layer(b, i, "ffn_gate_shexp.weight", true, s, e, &l->s_gate));
    AE_TRY(ae_bind_layer(b, i, "ffn_up_shexp.weight", true, s, e, &l->s_up));
    AE_TRY(ae_bind_layer(b, i, "ffn_down_shexp.weight", true, e, s, &l->s_down));
    if (b->arch->shared == AE_SHARED_GATED) AE_TRY(ae_bind_layer(b, i, "ffn_gate_inp_shexp.weight", true, 1, e, &l->s_router));
    return AERIE_OK;
}

static aerie_status bind_layers(ae_binder *b, ae_model *m)
{
    const ae_hparams *h = &m->hparams;
    const uint32_t e = h->n_embd, q = h->n_heads * h->head_dim, kv = h->n_kv_heads * h->head_dim;
    const bool by_head = h->qk_norm == AE_QK_NORM_HEAD;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        ae_layer *l = &m->layers[i];
        AE_TRY(ae_bind_layer(b, i, "attn_norm.weight", true, 0, e, &l->attn_norm));
        AE_TRY(ae_bind_attention(b, i, h, e, l));
        if (h->qk_norm) {
            AE_TRY(ae_bind_layer(b, i, "attn_q_norm.weight", true, 0, by_head ? h->head_dim : q, &l->q_norm));
            AE_TRY(ae_bind_layer(b, i, "attn_k_norm.weight", true, 0, by_head ? h->head_dim : kv, &l->k_norm));
        }
        AE_TRY(ae_bind_layer(b, i, "ffn_norm.weight", true, 0, e, &l->ffn_norm));
        if (h->experts.n && i >= h->experts.n_dense) AE_TRY(bind_experts(b, h, i, l));
        else AE_TRY(ae_bind_dense(b, i, h, l));
    }
    return AERIE_OK;
}

static aerie_status bind_tensors(ae_binder *b, ae_model *m)
{
    const ae_hparams *h = &m->hparams;
    m->layers = ae_arena_alloc(&m->arena, h->n_layers, sizeof *m->layers);
    if (!m->layers) return ae_fail_memory(b->error, "the layer table", h->n_layers * sizeof *m->layers);
    AE_TRY(ae_bind(b, "token_embd.weight", true, h->n_vocab, h->n_embd, &m->embedding));
    AE_TRY(ae_bind(b, "output_norm.weight", true, 0, h->n_embd, &m->out_norm));
    AE_TRY(ae_bind(b, "output.weight", false, h->n_vocab, h->n_embd, &m->output));
    m->tied = !m->output;
    if (m->tied) m->output = m->embedding;
    AE_TRY(ae_bind_rope_divisors(b, &m->arena, h->n_rot / 2, &m->rope_divisors));
    return bind_layers(b, m);
}

/* ---- Load ------------------------------------------------------------------------------------------- */

/* Without the vocabulary its size is believed: whoever needs more than sizes loads it. */
static aerie_status read_vocab(ae_model *m, bool no_vocab, aerie_error *error)
{
    if (no_vocab) {
        const ae_gguf_kv *kv;
        AE_TRY(ae_gguf_get_array(m->gguf, "tokenizer.ggml.tokens", true, AE_GGUF_STRING, &kv, error));
        if (kv->n > INT32_MAX)
            return ae_fail(error, AERIE_ERROR_LIMIT, "%s: a vocabulary of %llu tokens", ae_gguf_path(m->gguf),
                           (unsigned long long)kv->n);
        m->hparams.n_vocab = (uint32_t)kv->n;
        return AERIE_OK;
    }
    AE_TRY(ae_vocab_create(&m->vocab, m->gguf, error));
    m->hparams.n_vocab = (uint32_t)ae_vocab_n_tokens(m->vocab);
    return AERIE_OK;
}

static aerie_status bind_model(ae_model *m, const ae_model_options *options, aerie_error *error)
{
    ae_binder b = {.gguf = m->gguf, .error = error};
    ae_gguf_string arch = {0}, name = {0};
    AE_TRY(ae_gguf_get_string(m->gguf, "general.architecture", true, &arch, error));
    b.arch = ae_arch_find(arch.data, arch.n);
    if (!b.arch)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: architecture \"%.*s\" is unknown; the known are: %s",
                       ae_gguf_path(m->gguf), (int)(arch.n < 64 ? arch.n : 64), arch.data, ae_model_known_archs());
    if (b.arch->drafter)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: \"%s\" is a drafter's head, not a model of its own; give it with "
                       "-md", ae_gguf_path(m->gguf), b.arch->name);
    AE_TRY(ae_gguf_get_string(m->gguf, "general.name", false, &name, error));
    m->name = ae_arena_strndup(&m->arena, name.data ? name.data : "", name.data ? name.n : 0);
    if (!m->name) return ae_fail_memory(error, "the model's name", name.n);
    if (!ae_gguf_n_tensors(m->gguf))
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s: the file holds a vocabulary only, no weights", ae_gguf_path(m->gguf));
    AE_TRY(read_vocab(m, options->no_vocab, error));
    AE_TRY(read_hparams(&b, &m->hparams, options->rope));
    AE_TRY(bind_tensors(&b, m));
    m->n_params = ae_bind_n_params(m->gguf);
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

aerie_status ae_model_load(ae_model **out, const char *path, const ae_model_options *options, aerie_error *error)
{
    *out = NULL;
    ae_gguf *gguf;
    const ae_model_options how = options ? *options : (ae_model_options){0};
    const ae_gguf_options gguf_options = {.index_only = how.no_mmap, .overrides = how.overrides,
                                          .n_overrides = how.n_overrides};
    AE_TRY(ae_gguf_open(&gguf, path, &gguf_options, error));
    return take_over(out, gguf, &how, error);
}

void ae_model_free(ae_model *model)
{
    if (!model) return;
    ae_vocab_free(model->vocab);
    ae_gguf_close(model->gguf);
    ae_arena_free(&model->arena);
    ae_free(model);
}
