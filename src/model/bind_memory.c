/* bind_memory.c - keys and tensors of Qwen 4's layers: hyper-connections of low rank, an index over means of keys, a memory of
 * n-grams. See bind.h.
 *
 * Owns nothing. */
#include <stdio.h>
#include <string.h>

#include "model/hparams.h"

/* ---- Hyper-connections of low rank ------------------------------------------------------------------- */

aerie_status ae_bind_stream_norms(ae_binder *b, const char *name, const ae_hparams *h, ae_tensor_ref *out)
{
    const ae_gguf_tensor *t = ae_gguf_tensor_find(b->gguf, name);
    const uint32_t n = h->n_embd, c = h->n_streams;
    const bool flat = t && t->ne[1] == 1;
    return ae_bind(b, name, true, flat ? 0 : c, flat ? c * n : n, out);
}

aerie_status ae_bind_hyper_low(ae_binder *b, const char *prefix, const ae_hparams *h, bool end, ae_hyper_layer *to)
{
    const uint32_t wide = h->n_streams * h->n_embd;
    char name[64];
    snprintf(name, sizeof name, "%s_norm.weight", prefix);
    AE_TRY(ae_bind_stream_norms(b, name, h, &to->norm));
    snprintf(name, sizeof name, "%s_down.weight", prefix);
    AE_TRY(ae_bind(b, name, true, h->hyper_rank, wide, &to->down));
    snprintf(name, sizeof name, "%s_up.weight", prefix);
    AE_TRY(ae_bind(b, name, true, wide, h->hyper_rank, &to->up));
    snprintf(name, sizeof name, "%s_inject.weight", prefix);
    return end ? AERIE_OK : ae_bind(b, name, true, h->n_streams, wide, &to->inject);
}

/* ---- An index over means ------------------------------------------------------------------------------- */

aerie_status ae_bind_means_hparams(ae_binder *b, ae_hparams *h, ae_layer *layers)
{
    ae_index_hparams *x = &h->index;
    uint32_t ratios[AE_MAX_LAYERS] = {0}, pool = 0;
    AE_TRY(ae_bind_per_layer(b, "attention.compress_ratios", false, h->n_layers, AE_COMPRESS_MOST, ratios));
    for (uint32_t i = 0; i < h->n_layers; i++) {
        if (ratios[i] && pool && ratios[i] != pool)
            return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s has %u and %u; all layers that choose need pools of "
                           "one size", ae_gguf_path(b->gguf), ae_bind_key(b, "attention.compress_ratios"), pool, ratios[i]);
        pool = ratios[i] ? ratios[i] : pool;
        if (!ratios[i]) continue;
        layers[i].spec.index = AE_INDEX_OWN; /* layers without attention lose it again */
        layers[i].spec.index_from = i;
    }
    AE_TRY(ae_bind_get(b, "attention.indexer.head_count", true, 1, AE_MAX_HEAD_DIM, &x->n_heads));
    AE_TRY(ae_bind_get(b, "attention.indexer.key_length", true, h->ropes[0].n_rot, AE_MAX_HEAD_DIM, &x->head_dim));
    AE_TRY(ae_bind_get(b, "attention.indexer.top_k", true, 1, INT32_MAX, &x->n_most));
    if (h->ropes[0].n_rot > AE_MAX_LATENT_ROPE || x->head_dim % 2)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: index keys of %u values, of which %u rotate; an even number is "
                       "needed, of which at most %d rotate", ae_gguf_path(b->gguf), x->head_dim, h->ropes[0].n_rot,
                       AE_MAX_LATENT_ROPE);
    if (!pool) { /* the tensors exist, but every row sees all positions */
        x->n_heads = 0;
        return AERIE_OK;
    }
    AE_TRY(ae_bind_range(b, "attention.compress_ratios", pool, 2, AE_COMPRESS_MOST));
    x->pool = pool;
    x->mean = true;
    x->neox = b->arch->rope_neox;
    x->pool_rope = (int)h->n_ropes++;
    h->ropes[x->pool_rope] = h->ropes[0];
    h->ropes[x->pool_rope].every = pool;
    memset(h->ropes[x->pool_rope].sections, 0, sizeof h->ropes[0].sections); /* texts have one position per row */
    return ae_bind_pool_room(b, x);
}

aerie_status ae_bind_means(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l)
{
    uint32_t n_heads = h->index.n_heads, dim = h->index.head_dim;
    /* layers that see all positions do not use it */
    ae_mla_layer unused = {0}, *to = l->spec.index == AE_INDEX_OWN ? &l->mla : &unused;
    if (!n_heads) AE_TRY(ae_bind_get(b, "attention.indexer.head_count", true, 1, AE_MAX_HEAD_DIM, &n_heads));
    AE_TRY(ae_bind_layer(b, i, "indexer.q_proj.weight", true, n_heads * dim, h->n_embd, &to->index_q));
    AE_TRY(ae_bind_layer(b, i, "indexer.k_proj.weight", true, dim, h->n_embd, &to->index_k));
    AE_TRY(ae_bind_layer(b, i, "indexer.q_norm.weight", true, 0, dim, &to->index_q_norm));
    return ae_bind_layer(b, i, "indexer.k_norm.weight", true, 0, dim, &to->index_k_norm);
}

/* ---- A memory of n-grams ------------------------------------------------------------------------------- */

/* Reads n numbers from 0 to INT64_MAX. */
static aerie_status read_numbers(ae_binder *b, const char *suffix, uint32_t n, uint64_t *to)
{
    const ae_gguf_kv *kv = ae_gguf_kv_find(b->gguf, ae_bind_key(b, suffix));
    for (uint32_t i = 0; i < n; i++) {
        int64_t v = -1;
        if (!kv || kv->type != AE_GGUF_ARRAY || kv->n < n || !ae_gguf_kv_int(kv, i, &v) || v < 0)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s needs %u numbers of at least 0", ae_gguf_path(b->gguf),
                           b->key, n);
        to[i] = (uint64_t)v;
    }
    return AERIE_OK;
}

/* Checks that every row that a hash can name is in the table. */
static aerie_status check_heads(ae_binder *b, const ae_memory_hparams *m)
{
    const ae_gguf_tensor *t = ae_gguf_tensor_find(b->gguf, "per_layer_token_embd.weight");
    const uint64_t n_rows = t && t->ne[1] > 0 && t->ne[1] <= INT32_MAX ? (uint64_t)t->ne[1] : 0;
    for (uint32_t k = 0; k < m->n_heads; k++)
        if (!m->sizes[k] || m->sizes[k] > n_rows || m->offsets[k] > n_rows - m->sizes[k])
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: by %s and ple.head_vocab_sizes head %u reads %llu rows from row "
                           "%llu on; tensor per_layer_token_embd.weight %s %llu rows", ae_gguf_path(b->gguf),
                           ae_bind_key(b, "ple.head_offsets"), k, (unsigned long long)m->sizes[k],
                           (unsigned long long)m->offsets[k], t ? "has" : "is missing:", (unsigned long long)n_rows);
    return AERIE_OK;
}

aerie_status ae_bind_memory_hparams(ae_binder *b, ae_hparams *h, const ae_layer *layers)
{
    ae_memory_hparams *m = &h->memory;
    const ae_gguf_kv *kv = ae_gguf_kv_find(b->gguf, ae_bind_key(b, "ple.layers"));
    uint64_t layer = 0;
    uint32_t end = 0;
    if (!kv || (kv->type == AE_GGUF_ARRAY && !kv->n)) return AERIE_OK;
    if (kv->type == AE_GGUF_ARRAY && kv->n > 1)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s has %llu layers; one with a memory is supported",
                       ae_gguf_path(b->gguf), b->key, (unsigned long long)kv->n);
    AE_TRY(read_numbers(b, "ple.layers", 1, &layer));
    if (layer >= h->n_layers || layers[layer].spec.mixer != AE_MIXER_RECUR)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %llu; a layer below %u without attention is needed",
                       ae_gguf_path(b->gguf), b->key, (unsigned long long)layer, h->n_layers);
    AE_TRY(ae_bind_get(b, "ple.ngram_size", true, 2, AE_MAX_NGRAM, &m->n_tokens));
    AE_TRY(ae_bind_get(b, "ple.heads_per_ngram", true, 1, AE_MAX_NGRAM_HEADS / (m->n_tokens - 1), &m->n_each));
    AE_TRY(ae_bind_get(b, "ple.conv_kernel", true, 1, AE_MAX_TRAIL, &m->n_taps));
    AE_TRY(ae_bind_get(b, "embedding_length_per_layer_input", true, 1, AE_MAX_EMBD / AE_MAX_NGRAM_HEADS, &m->width));
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "ple.eos_token_id"), true, &end, b->error));
    AE_TRY(ae_bind_range(b, "ple.eos_token_id", end, 0, h->n_vocab - 1));
    m->n_heads = (m->n_tokens - 1) * m->n_each;
    m->layer = (uint32_t)layer;
    m->end = (int32_t)end;
    AE_TRY(read_numbers(b, "ple.layer_multipliers", m->n_tokens, m->factors));
    AE_TRY(read_numbers(b, "ple.head_offsets", m->n_heads, m->offsets));
    AE_TRY(read_numbers(b, "ple.head_vocab_sizes", m->n_heads, m->sizes));
    for (m->part = h->n_embd; m->part > AE_MAX_HEAD_DIM; ) { /* the largest divisor that a place of the cache can hold */
        uint32_t k = 2;
        while (m->part % k) k++;
        m->part /= k;
    }
    return check_heads(b, m);
}

aerie_status ae_bind_memory(ae_binder *b, uint32_t i, const ae_hparams *h, ae_memory_layer *to)
{
    const ae_memory_hparams *m = &h->memory;
    const uint32_t wide = h->n_streams * h->n_embd, n_in = m->n_heads * m->width;
    const ae_gguf_tensor *t = ae_gguf_tensor_find(b->gguf, "per_layer_token_embd.weight");
    static const char *const norms[] = {"key", "query", "conv"};
    ae_tensor_ref *const places[] = {&to->norm_key, &to->norm_query, &to->norm_conv};
    char name[64];
    AE_TRY(ae_bind(b, "per_layer_token_embd.weight", true, t ? (uint32_t)t->ne[1] : 1, m->width, &to->table));
    AE_TRY(ae_bind_layer(b, i, "ple_key.weight", true, wide, n_in, &to->key));
    AE_TRY(ae_bind_layer(b, i, "ple_value.weight", true, h->n_embd, n_in, &to->value));
    for (size_t k = 0; k < 3; k++) {
        snprintf(name, sizeof name, "blk.%u.ple_norm_%s.weight", i, norms[k]);
        AE_TRY(ae_bind_stream_norms(b, name, h, places[k]));
    }
    return ae_bind_layer(b, i, "ple_conv1d.weight", true, wide, m->n_taps, &to->taps);
}
