/* switch.c - low-rank adapters of a model's own, which tokens choose (block.h, ae_switch_hparams).
 *
 * Which adapter a row has follows from all tokens before it. One head of attention finds it: keys and values of positions are
 * in the KV cache like any others, so drafts, trees, shared prefixes and saved sequences have them without code of their own.
 * Owns nothing. */
#include "engine/layers/block.h"

void ae_block_find_adapters(const ae_block *b, uint32_t layer, float *rows, size_t n_batch)
{
    const size_t n = n_batch * AE_SWITCH_DIM;
    b->ops->rope_kv(b->stream, &(ae_rope_kv){
        .places = b->places, .kv = b->kv, .layer = layer, .n_heads = 1, .n_kv_heads = 1, .head_dim = AE_SWITCH_DIM,
        .q = rows, .k = rows + n, .v = rows + 2 * n});
    b->ops->attention(b->stream, &(ae_attention){
        .places = b->places, .kv = b->kv, .layer = layer, .n_heads = 1, .n_kv_heads = 1, .head_dim = AE_SWITCH_DIM,
        .scale = 1.0f, .q = rows, .y = b->adapter});
}

void ae_block_switched(const ae_block *b, const ae_net_layer *l, uint32_t which, const float *x, const float *norm, float *y)
{
    const ae_net_switch *s = &l->switched[which];
    if (!s->a) return;
    b->ops->moe(b->stream, &(ae_moe){
        .n_rows = b->n_rows, .routing = {.n_experts = b->h->adapters.n, .n_used = 1}, .x = x, .norm = norm,
        .norm_eps = b->h->norm_eps, .glu = AE_GLU_LINEAR, .up = s->a, .down = s->b, .given = b->adapter,
        .given_stride = AE_SWITCH_DIM, .y = y});
}
