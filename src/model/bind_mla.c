/* bind_mla.c - keys and tensors of multi-head latent attention: see bind.h.
 *
 * There are two generations of files. Since 2025, key_length and value_length describe the row that a position keeps,
 * key_length_mla and value_length_mla describe a head, and there are attn_k_b and attn_v_b. Older files have only the sizes of
 * a head, and one tensor attn_kv_b. */
#include <math.h>
#include <stdio.h>

#include "base/math/fmath.h"
#include "model/hparams.h"

static bool has_key(ae_binder *b, const char *suffix)
{
    uint32_t value = 0;
    return ae_bind_count(b, suffix, &value) != AERIE_OK || value;
}

static bool is_new(ae_binder *b)
{
    return has_key(b, "attention.key_length_mla") || has_key(b, "attention.value_length_mla");
}

aerie_status ae_bind_mla_head(ae_binder *b, ae_hparams *h)
{
    const char *suffix = is_new(b) ? "attention.key_length_mla" : "attention.key_length";
    return ae_bind_get(b, suffix, true, 2, AE_MAX_HEAD_DIM, &h->head_dim);
}

/* Checks a size that follows from other sizes, if the file has it. */
static aerie_status check_size(ae_binder *b, const char *suffix, uint32_t want, const char *because)
{
    uint32_t found = want;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, suffix), false, &found, b->error));
    if (found == want) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u; it must be %u, %s", ae_gguf_path(b->gguf),
                   ae_bind_key(b, suffix), found, want, because);
}

static aerie_status read_sizes(ae_binder *b, ae_hparams *h)
{
    ae_mla_hparams *m = &h->mla;
    uint32_t n_rope = 0;
    AE_TRY(ae_bind_get(b, "attention.kv_lora_rank", true, 1, AE_MAX_LATENT, &m->n_latent));
    m->still = b->arch->mla_still;
    if (m->still) AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "rope.dimension_count"), false, &n_rope, b->error));
    else AE_TRY(ae_bind_get(b, "rope.dimension_count", true, 2, AE_MAX_LATENT_ROPE, &n_rope));
    if (m->still && n_rope)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s is %u; 0 is expected: nothing rotates in this architecture",
                       ae_gguf_path(b->gguf), b->key, n_rope);
    m->n_rope = m->still ? 2 : n_rope;
    if (is_new(b)) {
        AE_TRY(ae_bind_get(b, "attention.value_length_mla", true, 1, AE_MAX_HEAD_DIM, &m->value_dim));
    } else { /* files of MiniCPM3 lack it */
        m->value_dim = h->n_heads ? h->n_embd / h->n_heads : 0;
        AE_TRY(ae_bind_get(b, "attention.value_length", false, 1, AE_MAX_HEAD_DIM, &m->value_dim));
        AE_TRY(ae_bind_range(b, "attention.value_length", m->value_dim, 1, AE_MAX_HEAD_DIM));
    }
    if (is_new(b) && n_rope >= h->head_dim) /* old files may leave none */
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: queries of %u values a head, of which %u rotate; some must be left "
                       "that do not", ae_gguf_path(b->gguf), h->head_dim, n_rope);
    m->n_nope = h->head_dim - n_rope;
    /* attention.value_length says nothing: converters write kv_lora_rank, or head_dim of config.json */
    if (is_new(b))
        AE_TRY(check_size(b, "attention.key_length", m->n_latent + n_rope,
                          "kv_lora_rank and rope.dimension_count together"));
    /* whatever q_lora_rank says, as in other programs */
    if (!b->arch->recur && ae_gguf_tensor_find(b->gguf, "blk.0.attn_q.weight"))
        return AERIE_OK;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "attention.q_lora_rank"), false, &m->n_q, b->error));
    return ae_bind_range(b, "attention.q_lora_rank", m->n_q, 0, AE_MAX_EMBD);
}

/* Reads the sizes of layers with a window, which have their own widths of rows and queries and their own part that does not
 * rotate. */
static aerie_status read_window_sizes(ae_binder *b, const ae_hparams *h, ae_mla_hparams *m)
{
    uint32_t head_dim = 0;
    *m = h->mla;
    AE_TRY(ae_bind_get(b, "attention.kv_lora_rank_swa", true, 1, AE_MAX_LATENT, &m->n_latent));
    AE_TRY(ae_bind_get(b, "attention.key_length_mla_swa", true, m->n_rope + 1, AE_MAX_HEAD_DIM, &head_dim));
    AE_TRY(ae_bind_get(b, "attention.value_length_mla_swa", true, 1, AE_MAX_HEAD_DIM, &m->value_dim));
    m->n_nope = head_dim - m->n_rope;
    AE_TRY(check_size(b, "attention.key_length_swa", m->n_latent + m->n_rope,
                      "kv_lora_rank_swa and rope.dimension_count together"));
    return check_size(b, "attention.value_length_swa", m->n_latent, "kv_lora_rank_swa");
}

/* With YaRN, scores are multiplied by the square of a magnitude, instead of only scaling the rotated values. The file has a
 * tenth of the multiplier. */
static float yarn_scale(ae_rope *r)
{
    const float multiplier = r->yarn_log_mul > 0.0f ? 10.0f * r->yarn_log_mul : 1.0f;
    if (r->yarn_log_mul > 0.0f) r->yarn_log_mul = 1.0f; /* so that the rotation's own magnitude is 1 */
    if (r->scaling != AE_ROPE_SCALING_YARN || !(r->factor > 1.0f)) return 1.0f;
    const double m = (double)r->yarn_attn_factor * (1.0 + 0.1 * (double)multiplier * ae_log((double)r->factor));
    return (float)(m * m);
}

/* Finds the layers with an index, for files of GLM-5.2 (contexts of a million tokens) that do not list them. */
static bool has_index(uint32_t i)
{
    return i < 3 || (i - 2) % 4 == 0;
}

static aerie_status read_index(ae_binder *b, ae_hparams *h, ae_layer *layers)
{
    ae_index_hparams *x = &h->index;
    uint32_t types[AE_MAX_LAYERS], from = AE_MAX_LAYERS;
    if (!h->mla.n_q)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is missing; the index of sparse attention needs it",
                       ae_gguf_path(b->gguf), ae_bind_key(b, "attention.q_lora_rank"));
    AE_TRY(ae_bind_get(b, "attention.indexer.head_count", true, 1, AE_MAX_HEADS, &x->n_heads));
    AE_TRY(ae_bind_get(b, "attention.indexer.key_length", true, h->mla.n_rope, AE_MAX_HEAD_DIM, &x->head_dim));
    AE_TRY(ae_bind_get(b, "attention.indexer.top_k", true, 1, INT32_MAX, &x->n_most));
    if (x->head_dim % 2)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s is %u; it must be even", ae_gguf_path(b->gguf),
                       ae_bind_key(b, "attention.indexer.key_length"), x->head_dim);
    x->neox = b->arch->index_neox;
    x->eps = b->arch->index_late ? h->norm_eps : 1e-6f;
    x->late = b->arch->index_late;
    x->still = h->mla.still;
    if (b->arch->index_pool) AE_TRY(ae_bind_pool_hparams(b, x));
    for (uint32_t i = 0; i < b->n_specs; i++)
        types[i] = !b->arch->index_types || x->pool || h->n_ctx_train < 1u << 20 || has_index(i);
    if (b->arch->index_types)
        AE_TRY(ae_bind_per_layer(b, "attention.indexer.types", false, h->n_layers, 1, types));
    for (uint32_t i = 0; i < h->n_layers && i < b->n_specs; i++) { /* MTP blocks see all positions, or a window */
        if (layers[i].spec.window || layers[i].spec.mixer != AE_MIXER_MLA) continue;
        if (types[i]) from = i;
        if (from == AE_MAX_LAYERS)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: by %s layer %u has no index, and no layer before it chose "
                           "positions for it", ae_gguf_path(b->gguf), ae_bind_key(b, "attention.indexer.types"), i);
        layers[i].spec.index = types[i] ? AE_INDEX_OWN : AE_INDEX_OTHER;
        layers[i].spec.index_from = from;
    }
    return AERIE_OK;
}

aerie_status ae_bind_mla_hparams(ae_binder *b, ae_hparams *h, ae_layer *layers)
{
    ae_mla_hparams of_window = {0};
    AE_TRY(read_sizes(b, h));
    if (b->arch->mla_window) AE_TRY(read_window_sizes(b, h, &of_window));
    const float scale = yarn_scale(&h->ropes[0]);
    for (uint32_t i = 0; i < b->n_specs; i++) {
        ae_layer_spec *s = &layers[i].spec;
        if (!s->n_kv_heads && b->arch->recur) continue; /* a layer without attention */
        if (s->n_kv_heads != 1 && s->n_kv_heads != s->n_heads)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u; with latent attention it is 1, or as many as there are "
                           "heads (%u)", ae_gguf_path(b->gguf), ae_bind_key(b, "attention.head_count_kv"), s->n_kv_heads,
                           s->n_heads);
        s->mixer = AE_MIXER_MLA;
        s->n_kv_heads = 1;
        s->mla = s->window && b->arch->mla_window ? of_window : h->mla;
        s->head_dim = s->mla.n_rope + s->mla.n_latent;
        s->value_dim = s->head_dim;
        if (s->window && b->arch->mla_window) s->attn_scale = 1.0f / sqrtf((float)(s->mla.n_nope + s->mla.n_rope));
        s->attn_scale *= scale;
    }
    uint32_t n_most = !b->arch->index_late;
    if (b->arch->index_late)
        AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "attention.indexer.top_k"), false, &n_most, b->error));
    return b->arch->index && n_most ? read_index(b, h, layers) : AERIE_OK;
}

static aerie_status bind_stack(ae_binder *b, uint32_t i, const char *part, uint32_t n_heads, uint32_t n_out, uint32_t n_in,
                               ae_tensor_ref *out)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", i, part);
    return ae_bind_stack(b, name, true, n_heads, n_out, n_in, out);
}

static aerie_status bind_index(ae_binder *b, uint32_t i, const ae_hparams *h, ae_mla_layer *l)
{
    const ae_index_hparams *x = &h->index;
    AE_TRY(ae_bind_layer(b, i, "indexer.attn_q_b.weight", true, x->n_heads * x->head_dim, h->mla.n_q, &l->index_q));
    AE_TRY(ae_bind_layer(b, i, "indexer.attn_k.weight", true, x->head_dim, h->n_embd, &l->index_k));
    AE_TRY(ae_bind_layer(b, i, "indexer.k_norm.weight", true, 0, x->head_dim, &l->index_k_norm));
    AE_TRY(ae_bind_layer(b, i, "indexer.k_norm.bias", true, 0, x->head_dim, &l->index_k_norm_b));
    return ae_bind_layer(b, i, "indexer.proj.weight", true, x->n_heads, h->n_embd, &l->index_weight);
}

aerie_status ae_bind_mla(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l)
{
    const ae_mla_hparams *m = &l->spec.mla;
    const uint32_t n_rope = ae_mla_rotated(m), e = h->n_embd, n = l->spec.n_heads, q = n * (m->n_nope + n_rope);
    if (m->n_q) {
        AE_TRY(ae_bind_layer(b, i, "attn_q_a.weight", true, m->n_q, e, &l->mla.q_a));
        AE_TRY(ae_bind_layer(b, i, "attn_q_a_norm.weight", true, 0, m->n_q, &l->mla.q_a_norm));
        AE_TRY(ae_bind_layer(b, i, "attn_q_b.weight", true, q, m->n_q, &l->mla.q_b));
    } else {
        AE_TRY(ae_bind_layer(b, i, "attn_q.weight", true, q, e, &l->wq));
    }
    AE_TRY(ae_bind_layer(b, i, "attn_kv_a_mqa.weight", true, m->n_latent + n_rope, e, &l->mla.kv_a));
    AE_TRY(ae_bind_layer(b, i, "attn_kv_a_norm.weight", true, 0, m->n_latent, &l->mla.kv_a_norm));
    AE_TRY(ae_bind_layer(b, i, "attn_kv_b.weight", false, n * (m->n_nope + m->value_dim), m->n_latent, &l->mla.kv_b));
    if (!l->mla.kv_b) {
        AE_TRY(bind_stack(b, i, "attn_k_b.weight", n, m->n_latent, m->n_nope, &l->mla.k_b));
        AE_TRY(bind_stack(b, i, "attn_v_b.weight", n, m->value_dim, m->n_latent, &l->mla.v_b));
    }
    if (l->spec.index == AE_INDEX_OWN) AE_TRY(bind_index(b, i, h, &l->mla));
    if (l->spec.index == AE_INDEX_OWN && h->index.pool) AE_TRY(ae_bind_pool(b, i, h, &l->compress.index));
    AE_TRY(ae_bind_layer(b, i, "attn_sinks.weight", false, 0, n, &l->sinks));
    if (b->arch->mla_key_norm) AE_TRY(ae_bind_layer(b, i, "attn_k_norm.weight", true, 0, m->n_rope, &l->k_norm));
    if (b->arch->mla_head_gate) {
        AE_TRY(ae_bind_layer(b, i, "attn_gate.weight", true, n, e, &l->out_gate));
        l->spec.out_gate = AE_OUT_GATE_HEAD;
    }
    if (b->arch->mla_own_gate) {
        AE_TRY(ae_bind_layer(b, i, "attn_gate.weight", false, n * m->value_dim, e, &l->out_gate));
        l->spec.out_gate = l->out_gate ? AE_OUT_GATE_OWN : AE_OUT_GATE_NONE;
    }
    return ae_bind_layer(b, i, "attn_output.weight", true, e, n * m->value_dim, &l->wo);
}
