/* bind_compress.c - keys and tensors of DeepSeek-V4's layers: attention over compressed rows, hyper-connections, experts that
 * tokens have from a table. See bind.h.
 *
 * Owns nothing. */
#include <stdio.h>

#include "model/hparams.h"

static aerie_status fail_shape(ae_binder *b, const char *what, uint32_t n, const char *because)
{
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u; %s", ae_gguf_path(b->gguf), ae_bind_key(b, what), n, because);
}

static aerie_status read_index(ae_binder *b, ae_hparams *h)
{
    ae_index_hparams *x = &h->index;
    AE_TRY(ae_bind_get(b, "attention.indexer.head_count", true, 1, AE_MAX_HEADS, &x->n_heads));
    AE_TRY(ae_bind_get(b, "attention.indexer.key_length", true, h->ropes[0].n_rot, AE_MAX_HEAD_DIM, &x->head_dim));
    AE_TRY(ae_bind_get(b, "attention.indexer.top_k", true, 1, INT32_MAX, &x->n_most));
    return x->head_dim % 2 ? fail_shape(b, "attention.indexer.key_length", x->head_dim, "it must be even") : AERIE_OK;
}

/* Layers that compress rotate with a base of their own and the file's scaling, but without its magnitude; other layers rotate
 * without scaling. Blocks rotate by their first position. */
static aerie_status read_ropes(ae_binder *b, ae_hparams *h)
{
    static const uint32_t every[] = {0, AE_COMPRESS_OVERLAP, AE_COMPRESS_MOST};
    ae_rope late = h->ropes[0], *first = &h->ropes[0];
    first->scaling = AE_ROPE_SCALING_NONE;
    first->factor = first->yarn_attn_factor = 1.0f;
    late.yarn_attn_factor = late.yarn_log_mul = 1.0f; /* so that the magnitude is 1 */
    late.divisors = late.divisors_long = first->divisors = first->divisors_long = NULL;
    AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, "attention.compress_rope_freq_base"), true, &late.base, b->error));
    AE_TRY(ae_bind_check_rope(b, &late, h->head_dim));
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        h->ropes[h->n_ropes] = late;
        h->ropes[h->n_ropes++].every = every[i];
    }
    return AERIE_OK;
}

aerie_status ae_bind_compress_hparams(ae_binder *b, ae_hparams *h, ae_layer *layers)
{
    ae_compress_hparams *c = &h->compress;
    uint32_t ratios[AE_MAX_LAYERS] = {0}, window = 0;
    AE_TRY(ae_bind_get(b, "attention.q_lora_rank", true, 1, AE_MAX_EMBD, &c->n_q));
    AE_TRY(ae_bind_get(b, "attention.sliding_window", true, 1, INT32_MAX, &window));
    AE_TRY(ae_bind_get(b, "attention.output_group_count", true, 1, h->n_heads, &c->n_groups));
    AE_TRY(ae_bind_get(b, "attention.output_lora_rank", true, 1, AE_MAX_EMBD / c->n_groups, &c->n_out));
    AE_TRY(ae_bind_per_layer(b, "attention.compress_ratios", true, h->n_layers, AE_COMPRESS_MOST, ratios));
    const ae_gguf_kv *given = ae_gguf_kv_find(b->gguf, ae_bind_key(b, "attention.compress_ratios"));
    AE_TRY(read_ropes(b, h));
    for (uint32_t i = 0; i < b->n_specs; i++) {
        ae_layer_spec *s = &layers[i].spec;
        const bool is_ahead = i >= h->n_layers; /* an MTP block */
        if (is_ahead && (given->type != AE_GGUF_ARRAY || i >= given->n)) ratios[i] = 0;
        if (is_ahead && ratios[i])
            return fail_shape(b, "attention.compress_ratios", ratios[i], "an MTP block does not compress: it must be 0 there");
        if (s->n_kv_heads != 1) return fail_shape(b, "attention.head_count_kv", s->n_kv_heads, "it must be 1");
        if (s->n_heads % c->n_groups)
            return fail_shape(b, "attention.output_group_count", c->n_groups, "it must divide the number of heads");
        if (ratios[i] && ratios[i] != AE_COMPRESS_OVERLAP && ratios[i] != AE_COMPRESS_MOST)
            return fail_shape(b, "attention.compress_ratios", ratios[i], "a layer can have 0, 4 or 128");
        s->mixer = AE_MIXER_COMPRESSED;
        s->window = window;
        s->every = ratios[i];
        s->rope = s->every ? 1 : 0;
        s->late_rope = s->every == AE_COMPRESS_OVERLAP ? 2 : 3;
        if (s->every > c->widest) c->widest = s->every;
        if (s->every != AE_COMPRESS_OVERLAP) continue;
        s->index = AE_INDEX_OWN;
        s->index_from = i;
        if (!h->index.n_heads) AE_TRY(read_index(b, h));
    }
    return AERIE_OK;
}

/* Binds the weights that compress rows of d values, in n_parts parts. */
static aerie_status bind_compressor(ae_binder *b, uint32_t i, const char *name, uint32_t n_embd, uint32_t d, uint32_t n_parts,
                                    uint32_t every, ae_compressor *c)
{
    char part[48];
    snprintf(part, sizeof part, "%s_kv.weight", name);
    AE_TRY(ae_bind_layer(b, i, part, true, n_parts * d, n_embd, &c->kv));
    snprintf(part, sizeof part, "%s_gate.weight", name);
    AE_TRY(ae_bind_layer(b, i, part, true, n_parts * d, n_embd, &c->gate));
    snprintf(part, sizeof part, "%s_ape.weight", name);
    AE_TRY(ae_bind_layer(b, i, part, true, every, n_parts * d, &c->ape));
    snprintf(part, sizeof part, "%s_norm.weight", name);
    return ae_bind_layer(b, i, part, true, 0, d, &c->norm);
}

/* Some files have the matrices of all groups as a single one. */
static aerie_status bind_groups(ae_binder *b, uint32_t i, const ae_compress_hparams *c, uint32_t n_in, ae_tensor_ref *out)
{
    char name[48];
    snprintf(name, sizeof name, "blk.%u.attn_output_a.weight", i);
    const ae_gguf_tensor *t = ae_gguf_tensor_find(b->gguf, name);
    const bool stacked = t && t->ne[2] > 1;
    return ae_bind_stack(b, name, true, stacked ? c->n_groups : 1, stacked ? c->n_out : c->n_out * c->n_groups, n_in, out);
}

aerie_status ae_bind_compress(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l)
{
    const ae_compress_hparams *c = &h->compress;
    const ae_layer_spec *s = &l->spec;
    const ae_index_hparams *x = &h->index;
    const uint32_t e = h->n_embd, d = s->head_dim, n_parts = s->every == AE_COMPRESS_OVERLAP ? 2 : 1;
    AE_TRY(ae_bind_layer(b, i, "attn_q_a.weight", true, c->n_q, e, &l->mla.q_a));
    AE_TRY(ae_bind_layer(b, i, "attn_q_a_norm.weight", true, 0, c->n_q, &l->mla.q_a_norm));
    AE_TRY(ae_bind_layer(b, i, "attn_q_b.weight", true, s->n_heads * d, c->n_q, &l->mla.q_b));
    AE_TRY(ae_bind_layer(b, i, "attn_kv.weight", true, d, e, &l->wk));
    AE_TRY(ae_bind_layer(b, i, "attn_kv_a_norm.weight", true, 0, d, &l->mla.kv_a_norm));
    AE_TRY(ae_bind_layer(b, i, "attn_sinks.weight", true, 0, s->n_heads, &l->sinks));
    AE_TRY(bind_groups(b, i, c, s->n_heads / c->n_groups * d, &l->compress.out_a));
    AE_TRY(ae_bind_layer(b, i, "attn_output_b.weight", true, e, c->n_groups * c->n_out, &l->wo));
    if (!s->every) return AERIE_OK;
    AE_TRY(bind_compressor(b, i, "attn_compressor", e, d, n_parts, s->every, &l->compress.rows));
    if (s->index != AE_INDEX_OWN) return AERIE_OK;
    AE_TRY(bind_compressor(b, i, "indexer_compressor", e, x->head_dim, n_parts, s->every, &l->compress.index));
    AE_TRY(ae_bind_layer(b, i, "indexer.attn_q_b.weight", true, x->n_heads * x->head_dim, c->n_q, &l->mla.index_q));
    return ae_bind_layer(b, i, "indexer.proj.weight", true, x->n_heads, e, &l->mla.index_weight);
}

/* ---- Hyper-connections ----------------------------------------------------------------------------- */

aerie_status ae_bind_hyper_hparams(ae_binder *b, ae_hparams *h)
{
    h->hyper = true;
    AE_TRY(ae_bind_get(b, "hyper_connection.count", true, 2, AE_MAX_STREAMS, &h->n_streams));
    h->hyper_iterations = 1;
    if (b->arch->hyper_low) AE_TRY(ae_bind_get(b, "hyper_connection.low_rank", true, 1, AE_MAX_EMBD, &h->hyper_rank));
    else if (!b->arch->hyper_apart)
        AE_TRY(ae_bind_get(b, "hyper_connection.sinkhorn_iterations", true, 1, 1000, &h->hyper_iterations));
    else AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, "hyper_connection.magnitude"), true, &h->hyper_magnitude, b->error));
    if (b->arch->hyper_apart && !(h->hyper_magnitude > 0.0f && h->hyper_magnitude < 1e6f))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %g; a number above 0 is needed", ae_gguf_path(b->gguf), b->key,
                       (double)h->hyper_magnitude);
    if (!b->arch->hyper_low)
        AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, "hyper_connection.epsilon"), true, &h->hyper_eps, b->error));
    if (h->n_embd > AE_MAX_EMBD / h->n_streams)
        return ae_fail(b->error, AERIE_ERROR_LIMIT, "%s: %u streams of %u values; %u values are possible together",
                       ae_gguf_path(b->gguf), h->n_streams, h->n_embd, AE_MAX_EMBD);
    if (h->hyper_eps >= 0.0f && h->hyper_eps < 1.0f) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %g; it must lie between 0 and 1", ae_gguf_path(b->gguf), b->key,
                   (double)h->hyper_eps);
}

static aerie_status bind_part(ae_binder *b, const char *prefix, const char *part, uint32_t n_out, uint32_t n_in,
                              ae_tensor_ref *out)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s.weight", prefix, part);
    return ae_bind(b, name, true, n_out, n_in, out);
}

static aerie_status bind_hyper(ae_binder *b, const char *prefix, const ae_hparams *h, uint32_t n, uint32_t n_scales,
                               ae_hyper_layer *to)
{
    AE_TRY(bind_part(b, prefix, "fn", n, h->n_streams * h->n_embd, &to->fn));
    AE_TRY(bind_part(b, prefix, "scale", 0, n_scales, &to->scale));
    return bind_part(b, prefix, "base", 0, n, &to->base);
}

aerie_status ae_bind_hyper(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l)
{
    const bool apart = b->arch->hyper_apart;
    const uint32_t n = h->n_streams * (apart ? 2 : 2 + h->n_streams), n_scales = apart ? 2 : 3;
    char prefix[48];
    snprintf(prefix, sizeof prefix, "blk.%u.hc_attn", i);
    if (h->hyper_rank) AE_TRY(ae_bind_hyper_low(b, prefix, h, false, &l->hyper_mixer));
    else AE_TRY(bind_hyper(b, prefix, h, n, n_scales, &l->hyper_mixer));
    snprintf(prefix, sizeof prefix, "blk.%u.hc_ffn", i);
    if (h->hyper_rank) return ae_bind_hyper_low(b, prefix, h, false, &l->hyper_ffn);
    return bind_hyper(b, prefix, h, n, n_scales, &l->hyper_ffn);
}

aerie_status ae_bind_hyper_end(ae_binder *b, const ae_hparams *h, ae_hyper_layer *end)
{
    if (h->hyper_rank) return ae_bind_hyper_low(b, "output_hc", h, true, end);
    return bind_hyper(b, "output_hc", h, h->n_streams, 1, end);
}

/* ---- Experts of tokens ----------------------------------------------------------------------------- */

/* Converts a token's experts. Returns false if two are equal, or one does not exist. */
static bool take_experts(const int32_t *ids, const ae_expert_hparams *x, float *to)
{
    for (uint32_t k = 0; k < x->n_used; k++) {
        if (ids[k] < 0 || (uint32_t)ids[k] >= x->n) return false;
        for (uint32_t j = 0; j < k; j++)
            if (ids[j] == ids[k]) return false;
        to[k] = (float)ids[k];
    }
    return true;
}

static aerie_status read_table(ae_binder *b, const ae_gguf_tensor *t, const ae_hparams *h, float *table)
{
    const ae_expert_hparams *x = &h->experts;
    int32_t ids[AE_MAX_EXPERTS];
    ae_gguf_reader reader = ae_gguf_reader_open(b->gguf);
    aerie_status status = AERIE_OK;
    const size_t bytes = x->n_used * sizeof *ids;
    for (uint32_t token = 0; token < h->n_vocab && status == AERIE_OK; token++) {
        status = ae_gguf_read(&reader, t, token * bytes, ids, bytes, b->error);
        if (status == AERIE_OK && !take_experts(ids, x, table + (size_t)token * x->n_used))
            status = ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor %.*s: the experts of token %u are not %u different ones "
                             "of %u", ae_gguf_path(b->gguf), (int)t->name.n, t->name.data, token, x->n_used, x->n);
    }
    ae_gguf_reader_close(&reader);
    return status;
}

aerie_status ae_bind_token_experts(ae_binder *b, uint32_t i, const ae_hparams *h, ae_arena *arena, ae_layer *l)
{
    const ae_expert_hparams *x = &h->experts;
    uint32_t n = 0;
    char name[48];
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "hash_layer_count"), false, &n, b->error));
    AE_TRY(ae_bind_range(b, "hash_layer_count", n, 0, h->n_layers));
    if (i >= n) return AERIE_OK;
    snprintf(name, sizeof name, "blk.%u.ffn_gate_tid2eid.weight", i);
    const ae_gguf_tensor *t = ae_gguf_tensor_find(b->gguf, name);
    if (!t || t->type != AE_TYPE_I32 || t->ne[0] != x->n_used || t->ne[1] != h->n_vocab || t->ne[2] != 1 || t->ne[3] != 1)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor %s %s; layer %u needs it as [%u, %u] of type i32, because %s "
                       "is %u", ae_gguf_path(b->gguf), name, t ? "has another shape or type" : "is missing", i, x->n_used,
                       h->n_vocab, ae_bind_key(b, "hash_layer_count"), n);
    float *table = ae_arena_alloc(arena, (size_t)h->n_vocab * x->n_used, sizeof *table);
    if (!table) return ae_fail_memory(b->error, "the experts of tokens", (size_t)h->n_vocab * x->n_used * sizeof *table);
    AE_TRY(read_table(b, t, h, table));
    ae_bind_mark(b, t);
    l->router_table = table;
    return AERIE_OK;
}
