/* bind_switch.c - keys and tensors of adapters that tokens choose (Granite Switch): see bind.h.
 *
 * Owns nothing: the lists of tokens are in the model's arena. */
#include <math.h>
#include <stdio.h>

#include "model/hparams.h"

/* Reads n tokens. */
static aerie_status read_tokens(ae_binder *b, const char *suffix, uint32_t n, uint32_t n_vocab, ae_arena *arena,
                                const int32_t **out)
{
    const ae_gguf_kv *kv = ae_gguf_kv_find(b->gguf, ae_bind_key(b, suffix));
    int32_t *tokens = ae_arena_alloc(arena, n, sizeof *tokens);
    if (!tokens) return ae_fail_memory(b->error, "the tokens that choose adapters", n * sizeof *tokens);
    if (!kv || kv->type != AE_GGUF_ARRAY || kv->n != n)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s must list %u tokens, one for each adapter", ae_gguf_path(b->gguf),
                       b->key, n);
    for (uint32_t i = 0; i < n; i++) {
        int64_t token = 0;
        if (!ae_gguf_kv_int(kv, i, &token) || token < 0 || token >= (int64_t)n_vocab)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: element %u of %s is not a token; there are %u",
                           ae_gguf_path(b->gguf), i, b->key, n_vocab);
        tokens[i] = (int32_t)token;
    }
    *out = tokens;
    return AERIE_OK;
}

aerie_status ae_bind_switch_hparams(ae_binder *b, ae_hparams *h, ae_arena *arena)
{
    ae_switch_hparams *x = &h->adapters;
    uint32_t n = 0;
    AE_TRY(ae_bind_get(b, "adapters.count", true, 1, AE_MAX_EXPERTS - 1, &n));
    AE_TRY(ae_bind_get(b, "adapters.lora_rank", true, 1, AE_MAX_EMBD, &x->rank));
    x->gain = 15.0f;
    AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, "adapters.router_gain"), false, &x->gain, b->error));
    if (!(fabsf(x->gain) < 1e4f))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %g; it must be below 10000", ae_gguf_path(b->gguf), b->key,
                       (double)x->gain);
    AE_TRY(read_tokens(b, "adapters.token_ids_activate", n, h->n_vocab, arena, &x->activate));
    AE_TRY(read_tokens(b, "adapters.token_ids_substitute", n, h->n_vocab, arena, &x->substitute));
    x->n = n + 1;
    return AERIE_OK;
}

aerie_status ae_bind_switch(ae_binder *b, uint32_t i, const ae_hparams *h, ae_layer *l)
{
    const ae_layer_spec *s = &l->spec;
    const uint32_t e = h->n_embd, q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim, rank = h->adapters.rank;
    const struct {
        const char *name;
        uint32_t n_in, n_out;
    } products[AE_SWITCHES] = {{"attn_q", e, q}, {"attn_k", e, kv}, {"attn_v", e, kv}, {"attn_output", q, e},
                               {"ffn_gate", e, s->n_ff}, {"ffn_up", e, s->n_ff}, {"ffn_down", s->n_ff, e}};
    for (uint32_t k = 0; k < AE_SWITCHES; k++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s.lora_a", i, products[k].name);
        AE_TRY(ae_bind_stack(b, name, true, h->adapters.n, rank, products[k].n_in, &l->switch_a[k]));
        snprintf(name, sizeof name, "blk.%u.%s.lora_b", i, products[k].name);
        AE_TRY(ae_bind_stack(b, name, true, h->adapters.n, products[k].n_out, rank, &l->switch_b[k]));
    }
    return AERIE_OK;
}
