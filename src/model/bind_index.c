/* bind_index.c - keys and tensors of block-sparse attention (MiniMax-M3), and of index keys for pools of positions: see bind.h.
 *
 * Owns nothing. The index of latent attention is in bind_mla.c. */
#include "model/hparams.h"

aerie_status ae_bind_blocks_hparams(ae_binder *b, ae_hparams *h, ae_layer *layers)
{
    ae_index_hparams *x = &h->index;
    const uint32_t n_rot = h->ropes[0].n_rot;
    uint32_t n_dense = 0, n_blocks = 0;
    if (n_rot > AE_MAX_LATENT_ROPE)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s is %u; at most %u values of an index key can rotate",
                       ae_gguf_path(b->gguf), ae_bind_key(b, "rope.dimension_count"), n_rot, AE_MAX_LATENT_ROPE);
    AE_TRY(ae_bind_get(b, "attention.indexer.head_count", true, 1, AE_MAX_HEADS, &x->n_heads));
    AE_TRY(ae_bind_get(b, "attention.indexer.key_length", true, n_rot, AE_MAX_HEAD_DIM, &x->head_dim));
    if (x->head_dim % 2)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s is %u; it must be even", ae_gguf_path(b->gguf),
                       ae_bind_key(b, "attention.indexer.key_length"), x->head_dim);
    AE_TRY(ae_bind_get(b, "attention.indexer.block_size", true, 1, 1u << 20, &x->block));
    AE_TRY(ae_bind_get(b, "attention.indexer.top_k", true, 1, INT32_MAX, &n_blocks));
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "attention.indexer.local_blocks"), true, &x->n_local, b->error));
    /* not all of more local blocks could be chosen */
    AE_TRY(ae_bind_range(b, "attention.indexer.local_blocks", x->n_local, 0, n_blocks));
    x->n_most = (n_blocks < INT32_MAX / x->block ? n_blocks : INT32_MAX / x->block) * x->block;
    x->neox = b->arch->rope_neox;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "leading_dense_block_count"), false, &n_dense, b->error));
    for (uint32_t i = n_dense; i < h->n_layers; i++) {
        ae_layer_spec *s = &layers[i].spec;
        if (s->n_kv_heads != x->n_heads)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u, but layer %u has %u KV heads; each of them chooses by "
                           "an index head of its own", ae_gguf_path(b->gguf), ae_bind_key(b, "attention.indexer.head_count"),
                           x->n_heads, i, s->n_kv_heads);
        s->index = AE_INDEX_OWN;
        s->index_from = i;
    }
    return AERIE_OK;
}

aerie_status ae_bind_blocks(ae_binder *b, uint32_t i, const ae_hparams *h, ae_mla_layer *l)
{
    const ae_index_hparams *x = &h->index;
    AE_TRY(ae_bind_layer(b, i, "indexer.q_proj.weight", true, x->n_heads * x->head_dim, h->n_embd, &l->index_q));
    AE_TRY(ae_bind_layer(b, i, "indexer.q_norm.weight", true, 0, x->head_dim, &l->index_q_norm));
    AE_TRY(ae_bind_layer(b, i, "indexer.k_proj.weight", true, x->head_dim, h->n_embd, &l->index_k));
    return ae_bind_layer(b, i, "indexer.k_norm.weight", true, 0, x->head_dim, &l->index_k_norm);
}

/* ---- Pools --------------------------------------------------------------------------------------- */

aerie_status ae_bind_pool_room(ae_binder *b, ae_index_hparams *x)
{
    if (x->n_most % x->pool)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u; pools of %u positions are chosen, which must divide it",
                       ae_gguf_path(b->gguf), ae_bind_key(b, "attention.indexer.top_k"), x->n_most, x->pool);
    x->n_most = (x->n_most < INT32_MAX / 2 ? x->n_most : INT32_MAX / 2 / x->pool * x->pool) + x->pool - 1;
    return AERIE_OK;
}

aerie_status ae_bind_pool_hparams(ae_binder *b, ae_index_hparams *x)
{
    bool tail = false;
    AE_TRY(ae_bind_get(b, "attention.indexer.kpool", true, 2, AE_COMPRESS_MOST, &x->pool));
    AE_TRY(ae_gguf_get_bool(b->gguf, ae_bind_key(b, "attention.indexer.kpool_select_tail"), false, &tail, b->error));
    if (!tail)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: %s is not true; then a row would not see itself before its pool "
                       "of %u positions is complete", ae_gguf_path(b->gguf), b->key, x->pool);
    AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, "attention.layer_norm_epsilon"), false, &x->eps, b->error));
    if (!(x->eps >= 0.0f && x->eps < 1.0f))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %g; it must lie between 0 and 1", ae_gguf_path(b->gguf), b->key,
                       (double)x->eps);
    return ae_bind_pool_room(b, x);
}

aerie_status ae_bind_pool(ae_binder *b, uint32_t i, const ae_hparams *h, ae_compressor *to)
{
    const ae_index_hparams *x = &h->index;
    AE_TRY(ae_bind_layer(b, i, "indexer_compressor_gate.weight", true, x->head_dim, h->n_embd, &to->gate));
    return ae_bind_layer(b, i, "indexer_compressor_ape.weight", true, x->pool, x->head_dim, &to->ape);
}
