/* bind_lattice.c - reads the part of a block drafter's file that LiLiCorr adds: the transformer over candidates (head.h).
 *
 * Keys and tensors: docs/heads.md. No names were published for GGUF; these are aerie's.
 * Source: NVIDIA/TensorRT-LLM (modeling_lilicorr.py, Apache 2.0), arXiv 2608.20530.
 */
#include <stdio.h>

#include "backend/draw.h"
#include "draft/head/head_int.h"

typedef struct ae_dhead_lattice_hparams lattice_hparams;

static aerie_status fail(ae_binder *b, const char *what)
{
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s", ae_gguf_path(b->gguf), what);
}

static aerie_status read_keys(ae_binder *b, ae_dhead_hparams *h)
{
    lattice_hparams *l = &h->lattice;
    const struct {
        const char *key;
        uint32_t most, *to;
    } counts[] = {{"lilicorr.embedding_length", AE_MAX_EMBD / 4, &l->width},
                  {"lilicorr.block_count", AE_DHEAD_MAX_LATTICE, &l->n_layers},
                  {"lilicorr.head_count", AE_MAX_HEADS, &l->n_heads},
                  {"lilicorr.feed_forward_length", AE_MAX_EMBD, &l->n_ff},
                  {"lilicorr.factor_length", AE_MAX_EMBD, &l->n_factors},
                  {"lilicorr.top_k", AE_PROPOSE_MAX, &h->n_candidates}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, counts[i].key), true, counts[i].to, b->error));
        AE_TRY(ae_bind_range(b, counts[i].key, *counts[i].to, 1, counts[i].most));
    }
    if (l->width % l->n_heads || l->width / l->n_heads > AE_MAX_HEAD_DIM - 2 * AE_DHEAD_MAX_BLOCK)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: lilicorr.embedding_length is %u and lilicorr.head_count %u; heads of "
                       "1 to %d elements are possible", ae_gguf_path(b->gguf), l->width, l->n_heads,
                       AE_MAX_HEAD_DIM - 2 * AE_DHEAD_MAX_BLOCK);
    AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, "lilicorr.vector_epsilon"), true, &l->vector_eps, b->error));
    AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, "lilicorr.logit_scale"), true, &l->scale, b->error));
    if (!(l->vector_eps > 0 && l->vector_eps < 0.5f) || !(l->scale > 0 && l->scale <= 1e6f))
        return fail(b, "lilicorr.vector_epsilon is to be between 0 and 0.5, and lilicorr.logit_scale above 0");
    if (h->from_anchor || h->causal)
        return fail(b, "LiLiCorr's candidates are of masks alone, which see each other, but sample_from_anchor or "
                       "attention.causal is true");
    if (h->n_candidates > h->n_draft) return fail(b, "lilicorr.top_k is more than the tokens that can be drafted");
    return AERIE_OK;
}

/* Binds the linear map of tensors "<prefix><name>.weight" and ".bias". */
static aerie_status bind_linear(ae_binder *b, const char *prefix, const char *name, uint32_t n_out, uint32_t n_in,
                                ae_dhead_linear *to)
{
    char text[64];
    snprintf(text, sizeof text, "%s%s.weight", prefix, name);
    AE_TRY(ae_bind(b, text, true, n_out, n_in, &to->w));
    snprintf(text, sizeof text, "%s%s.bias", prefix, name);
    return ae_bind(b, text, true, 0, n_out, &to->b);
}

static aerie_status bind_vector(ae_binder *b, const char *prefix, const char *name, uint32_t n, ae_tensor_ref *to)
{
    char text[64];
    snprintf(text, sizeof text, "%s%s", prefix, name);
    return ae_bind(b, text, true, 0, n, to);
}

static aerie_status bind_layer(ae_binder *b, const lattice_hparams *l, uint32_t i, struct ae_dhead_lattice_layer *to)
{
    char prefix[32];
    const uint32_t m = l->width;
    snprintf(prefix, sizeof prefix, "lilicorr.blk.%u.", i);
    AE_TRY(bind_vector(b, prefix, "attn_norm.weight", m, &to->attn_norm));
    AE_TRY(bind_linear(b, prefix, "attn_q", m, m, &to->q));
    AE_TRY(bind_linear(b, prefix, "attn_k", m, m, &to->k));
    AE_TRY(bind_linear(b, prefix, "attn_v", m, m, &to->v));
    AE_TRY(bind_linear(b, prefix, "attn_output", m, m, &to->o));
    AE_TRY(bind_vector(b, prefix, "ffn_norm.weight", m, &to->ffn_norm));
    AE_TRY(bind_linear(b, prefix, "ffn_up", l->n_ff, m, &to->up));
    return bind_linear(b, prefix, "ffn_down", m, l->n_ff, &to->down);
}

/* Reads a tensor [rows, columns] as numbers into the arena. */
static aerie_status read_table(ae_binder *b, ae_dhead *head, const char *name, uint32_t rows, uint32_t columns,
                               const float **out)
{
    ae_tensor_ref t;
    const size_t n = (size_t)rows * columns;
    AE_TRY(ae_bind(b, name, true, rows, columns, &t));
    float *x = ae_arena_alloc(&head->arena, n, sizeof *x);
    if (!x) return ae_fail_memory(b->error, name, n * sizeof *x);
    *out = x;
    return ae_bind_read_f32(b, t, x, (uint32_t)n);
}

static aerie_status read_biases(ae_binder *b, ae_dhead *head)
{
    const ae_dhead_hparams *h = &head->hparams;
    const uint32_t n = h->lattice.n_heads;
    ae_tensor_ref t;
    float *same = ae_arena_alloc(&head->arena, n, sizeof *same);
    if (!same) return ae_fail_memory(b->error, "biases of candidates", n * sizeof *same);
    AE_TRY(read_table(b, head, "lilicorr.slot_bias.weight", n, 2 * h->n_block - 1, &head->lattice.bias));
    AE_TRY(ae_bind(b, "lilicorr.same_slot_bias", true, 0, n, &t));
    head->lattice.same_bias = same;
    return ae_bind_read_f32(b, t, same, n);
}

aerie_status ae_dhead_bind_lattice(ae_binder *b, ae_dhead *head)
{
    static const char prefix[] = "lilicorr.";
    ae_dhead_hparams *h = &head->hparams;
    ae_dhead_lattice *t = &head->lattice;
    AE_TRY(read_keys(b, h));
    const uint32_t e = h->layer.n_embd, m = h->lattice.width, f = h->lattice.n_factors;
    const bool projects = ae_gguf_tensor_find(b->gguf, "lilicorr.token_proj.weight") != NULL;
    if (projects) AE_TRY(bind_linear(b, prefix, "token_proj", m, e, &t->token));
    else if (m != e)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor lilicorr.token_proj.weight is missing; embeddings have %u "
                       "elements, and lilicorr.embedding_length is %u", ae_gguf_path(b->gguf), e, m);
    AE_TRY(bind_linear(b, prefix, "hidden_proj", m, e, &t->row));
    AE_TRY(bind_vector(b, prefix, "feature_norm.weight", 5, &t->feature_norm));
    AE_TRY(bind_vector(b, prefix, "feature_norm.bias", 5, &t->feature_norm_b));
    AE_TRY(bind_linear(b, prefix, "feature_up", m, 5, &t->feature_up));
    AE_TRY(bind_linear(b, prefix, "feature_down", m, m, &t->feature_down));
    AE_TRY(bind_linear(b, prefix, "context_proj", m, e, &t->context));
    AE_TRY(bind_vector(b, prefix, "context_norm.weight", m, &t->context_norm));
    for (uint32_t i = 0; i < h->lattice.n_layers; i++) AE_TRY(bind_layer(b, &h->lattice, i, &t->layers[i]));
    AE_TRY(bind_vector(b, prefix, "output_norm.weight", m, &t->out_norm));
    AE_TRY(bind_linear(b, prefix, "factor_proj", m, 3 * m, &t->factors));
    AE_TRY(bind_linear(b, prefix, "factor_out", f, m, &t->out));
    AE_TRY(bind_linear(b, prefix, "factor_in", f, m, &t->in));
    AE_TRY(bind_linear(b, prefix, "factor_first", f, m, &t->first));
    AE_TRY(read_table(b, head, "lilicorr.slot_embd.weight", h->n_block - 1, m, &t->slots));
    AE_TRY(read_table(b, head, "lilicorr.rank_embd.weight", h->n_candidates, m, &t->ranks));
    return read_biases(b, head);
}
