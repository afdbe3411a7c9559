/* bind_decision.c - keys and tensors of decision heads (decision.h). See bind.h.
 *
 * Owns nothing. */
#include <stdio.h>

#include "model/hparams.h"

/* ---- Keys -------------------------------------------------------------------------------------------- */

aerie_status ae_bind_marks(ae_binder *b, ae_hparams *h)
{
    uint32_t n = 0;
    AE_TRY(ae_bind_get(b, "decision.block_count", false, 1, h->n_layers - 1, &n));
    if (!n) return AERIE_OK;
    h->decision = (ae_decision_hparams){.kind = AE_DECISION_MARKS, .n_blocks = n};
    h->n_layers -= n;
    return AERIE_OK;
}

/* Returns how many rows a matrix of the file has, 0 if it is missing. */
static uint32_t rows_of(const ae_binder *b, const char *name)
{
    const ae_gguf_tensor *t = ae_gguf_tensor_find(b->gguf, name);
    return t && t->ne[1] > 0 && t->ne[1] <= AE_MAX_FF ? (uint32_t)t->ne[1] : 0;
}

static aerie_status read_joint(ae_binder *b, ae_decision_hparams *d)
{
    uint32_t n_joint = 0;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "decision.routing_block_count"), true, &d->n_routing, b->error));
    AE_TRY(ae_bind_range(b, "decision.routing_block_count", d->n_routing, 0, AE_MAX_LAYERS));
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, "decision.block_count"), true, &n_joint, b->error));
    AE_TRY(ae_bind_range(b, "decision.block_count", n_joint, d->n_routing ? 0 : 1, AE_MAX_LAYERS));
    AE_TRY(ae_bind_get(b, "decision.head_count", true, 1, AE_MAX_HEADS, &d->n_heads));
    AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, "attention.layer_norm_epsilon"), true, &d->eps, b->error));
    d->n_blocks = d->n_routing + n_joint;
    d->n_embd = rows_of(b, "decision.proj_memory.weight");
    d->n_ff = rows_of(b, "dec.blk.0.ffn_up.weight");
    return AERIE_OK;
}

aerie_status ae_bind_decision_hparams(ae_binder *b, ae_hparams *h)
{
    ae_decision_hparams *d = &h->decision;
    if (b->arch->decides) {
        d->kind = AE_DECISION_JOINT;
        AE_TRY(read_joint(b, d));
    } else if (d->kind) {
        char name[48];
        snprintf(name, sizeof name, "blk.%u.ffn_up.weight", h->n_layers);
        d->n_embd = h->n_embd;
        d->n_heads = h->n_heads;
        d->n_ff = rows_of(b, name);
        d->eps = h->norm_eps;
    } else {
        return AERIE_OK;
    }
    if (!d->n_embd || d->n_embd > AE_MAX_EMBD || !d->n_ff || d->n_embd % d->n_heads)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: the decision head has %u values, %u neurons and %u attention heads; "
                       "heads must share the values evenly, and none of the three can be 0 (by tensors %s and %s)",
                       ae_gguf_path(b->gguf), d->n_embd, d->n_ff, d->n_heads,
                       b->arch->decides ? "decision.proj_memory.weight" : "token_embd.weight",
                       b->arch->decides ? "dec.blk.0.ffn_up.weight" : "ffn_up.weight of the first decision block");
    if (!(d->eps > 0.0f && d->eps < 1.0f))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %g; it must lie between 0 and 1", ae_gguf_path(b->gguf),
                       ae_bind_key(b, "attention.layer_norm_epsilon"), (double)d->eps);
    return AERIE_OK;
}

/* ---- Tensors ----------------------------------------------------------------------------------------- */

/* Binds NAME.weight and, if `bias`, NAME.bias. n_out 0: a norm of n_in values. */
static aerie_status bind_pair(ae_binder *b, const char *name, bool bias, uint32_t n_out, uint32_t n_in, ae_decision_pair *to)
{
    char full[80];
    snprintf(full, sizeof full, "%s.weight", name);
    AE_TRY(ae_bind(b, full, true, n_out, n_in, &to->w));
    snprintf(full, sizeof full, "%s.bias", name);
    return bias ? ae_bind(b, full, true, 0, n_out ? n_out : n_in, &to->b) : AERIE_OK;
}

/* The same for a part of a block, with a bias. */
static aerie_status bind_part(ae_binder *b, const char *blocks, uint32_t i, const char *part, uint32_t n_out, uint32_t n_in,
                              ae_decision_pair *to)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%u.%s", blocks, i, part);
    return bind_pair(b, name, true, n_out, n_in, to);
}

static aerie_status bind_attn(ae_binder *b, uint32_t i, const char *prefix, uint32_t h, ae_decision_attn *to)
{
    const struct {
        const char *name;
        ae_decision_pair *pair;
    } parts[] = {{"q", &to->q}, {"k", &to->k}, {"v", &to->v}, {"o", &to->o}};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        char part[32];
        snprintf(part, sizeof part, "%s_%s", prefix, parts[k].name);
        AE_TRY(bind_part(b, "dec.blk", i, part, h, h, parts[k].pair));
    }
    return AERIE_OK;
}

static aerie_status bind_joint_block(ae_binder *b, const ae_decision_hparams *d, uint32_t i, ae_decision_block *to)
{
    const uint32_t h = d->n_embd;
    if (i < d->n_routing) {
        AE_TRY(bind_part(b, "dec.blk", i, "cross_attn_norm_kv", 0, h, &to->memory_norm));
    } else {
        AE_TRY(bind_part(b, "dec.blk", i, "attn_norm", 0, h, &to->self_norm));
        AE_TRY(bind_attn(b, i, "attn", h, &to->self));
    }
    AE_TRY(bind_part(b, "dec.blk", i, "cross_attn_norm", 0, h, &to->cross_norm));
    AE_TRY(bind_attn(b, i, "cross_attn", h, &to->cross));
    AE_TRY(bind_part(b, "dec.blk", i, "ffn_norm", 0, h, &to->ffn_norm));
    AE_TRY(bind_part(b, "dec.blk", i, "ffn_up", d->n_ff, h, &to->up));
    return bind_part(b, "dec.blk", i, "ffn_down", h, d->n_ff, &to->down);
}

static aerie_status bind_joint(ae_binder *b, const ae_hparams *hparams, ae_decision *to)
{
    const uint32_t e = hparams->n_embd, h = hparams->decision.n_embd;
    for (uint32_t i = 0; i < hparams->decision.n_blocks; i++)
        AE_TRY(bind_joint_block(b, &hparams->decision, i, &to->blocks[i]));
    AE_TRY(bind_pair(b, "decision.hidden_norm", true, 0, e, &to->hidden_norm));
    AE_TRY(bind_pair(b, "decision.option_summary_norm", true, 0, h, &to->summary_norm));
    AE_TRY(bind_pair(b, "decision.field_norm", true, 0, h, &to->field_norm));
    AE_TRY(bind_pair(b, "decision.option_norm", true, 0, h, &to->option_norm));
    AE_TRY(bind_pair(b, "decision.proj_memory", false, h, e, &to->memory));
    AE_TRY(bind_pair(b, "decision.proj_question", false, h, e, &to->question));
    AE_TRY(bind_pair(b, "decision.proj_option_question", false, h, e, &to->option_question));
    AE_TRY(bind_pair(b, "decision.proj_global", false, h, e, &to->global));
    AE_TRY(bind_pair(b, "decision.proj_option_context", false, h, e, &to->option_context));
    AE_TRY(bind_pair(b, "decision.proj_option_lexical", false, h, e, &to->option_lexical));
    AE_TRY(ae_bind(b, "decision.scales", true, 0, 3, &to->scales.w));
    AE_TRY(bind_pair(b, "token_types", false, 3, h, &to->types));
    AE_TRY(bind_pair(b, "decision.scorer", true, h, 4 * h, &to->scorer));
    return bind_pair(b, "decision.scorer_out", true, 1, h, &to->out);
}

static aerie_status bind_marks(ae_binder *b, const ae_hparams *hparams, ae_decision *to)
{
    const uint32_t e = hparams->n_embd, f = hparams->decision.n_ff;
    for (uint32_t k = 0; k < hparams->decision.n_blocks; k++) {
        const uint32_t i = hparams->n_layers + k;
        ae_decision_block *block = &to->blocks[k];
        AE_TRY(bind_part(b, "blk", i, "attn_norm", 0, e, &block->self_norm));
        AE_TRY(bind_part(b, "blk", i, "attn_qkv", 3 * e, e, &block->self.q));
        AE_TRY(bind_part(b, "blk", i, "attn_output", e, e, &block->self.o));
        AE_TRY(bind_part(b, "blk", i, "ffn_norm", 0, e, &block->ffn_norm));
        AE_TRY(bind_part(b, "blk", i, "ffn_up", f, e, &block->up));
        AE_TRY(bind_part(b, "blk", i, "ffn_down", e, f, &block->down));
    }
    AE_TRY(bind_pair(b, "token_types", false, 3, e, &to->types));
    AE_TRY(bind_pair(b, "cls.norm", true, 0, e, &to->score_norm));
    AE_TRY(bind_pair(b, "cls", true, e, e, &to->scorer));
    return bind_pair(b, "cls.output", true, 1, e, &to->out);
}

aerie_status ae_bind_decision(ae_binder *b, ae_model *m)
{
    const ae_decision_hparams *d = &m->hparams.decision;
    if (!d->kind) return AERIE_OK;
    ae_decision *to = ae_arena_alloc(&m->arena, 1, sizeof *to);
    if (to) to->blocks = ae_arena_alloc(&m->arena, d->n_blocks, sizeof *to->blocks);
    if (!to || !to->blocks)
        return ae_fail_memory(b->error, "the table of a decision head", d->n_blocks * sizeof *to->blocks);
    m->decision = to;
    m->cls = m->cls_b = m->cls_norm = m->cls_out = m->cls_out_b = NULL; /* they belong to this head */
    return d->kind == AE_DECISION_JOINT ? bind_joint(b, &m->hparams, to) : bind_marks(b, &m->hparams, to);
}
