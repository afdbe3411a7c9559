/* plan.c - lists the tensors of a drafter head's file and their sources in the checkpoint, and checks their shapes. */
#include <stdio.h>
#include <string.h>

#include "convert/head/parts.h"
#include "quant/types.h"

static aerie_status copy_part(ae_convert *c, const ae_convert_wanted *w, const char *part, uint64_t rows, uint64_t columns,
                              bool optional)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", w->from, part);
    const ae_st_tensor *t = ae_convert_take(c, name);
    if (!t) {
        if (optional) return AERIE_OK;
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing", c->path, name);
    }
    AE_TRY(ae_convert_check_shape(c, t, rows, columns, w->why));
    snprintf(name, sizeof name, "%s.%s", w->to, part);
    return ae_convert_add(c, &(ae_convert_item){.name = name,
                                                .how = w->rotated ? AE_CONVERT_ROTATED : AE_CONVERT_PLAIN,
                                                .from = t,
                                                .rows = rows,
                                                .columns = columns,
                                                .head_dim = c->head.head_dim,
                                                .n_rot = c->head.n_rot});
}

aerie_status ae_convert_copy(ae_convert *c, const ae_convert_wanted *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        AE_TRY(copy_part(c, &list[i], "weight", list[i].rows, list[i].columns, list[i].optional));
        if (list[i].rows) AE_TRY(copy_part(c, &list[i], "bias", 0, list[i].rows, true));
    }
    return AERIE_OK;
}

/* ---- The layer -------------------------------------------------------------------------------------- */

static aerie_status plan_layer(ae_convert *c, uint32_t i)
{
    const ae_convert_head *h = &c->head;
    const uint64_t n_in = h->kind == AE_DHEAD_EAGLE3 && !i ? 2 * (uint64_t)h->n_embd : h->n_embd;
    const uint64_t n_q = (uint64_t)h->n_heads * h->head_dim, n_kv = (uint64_t)h->n_kv_heads * h->head_dim, e = h->n_embd;
    static const char q_why[] = "num_attention_heads x head_dim, width of the layer's input";
    static const char kv_why[] = "num_key_value_heads x head_dim, width of the layer's input";
    const ae_convert_wanted list[] = {
        {"self_attn.q_proj", "attn_q", n_q, n_in, q_why, true, false},
        {"self_attn.k_proj", "attn_k", n_kv, n_in, kv_why, true, false},
        {"self_attn.v_proj", "attn_v", n_kv, n_in, kv_why, false, false},
        {"self_attn.o_proj", "attn_output", e, n_q, "hidden_size, num_attention_heads x head_dim", false, false},
        {"self_attn.q_norm", "attn_q_norm", 0, h->head_dim, "head_dim", true, true},
        {"self_attn.k_norm", "attn_k_norm", 0, h->head_dim, "head_dim", true, true},
        {"post_attention_layernorm", "ffn_norm", 0, e, "hidden_size", false, false},
        {"mlp.gate_proj", "ffn_gate", h->n_ff, e, "intermediate_size, hidden_size", false, false},
        {"mlp.up_proj", "ffn_up", h->n_ff, e, "intermediate_size, hidden_size", false, false},
        {"mlp.down_proj", "ffn_down", e, h->n_ff, "hidden_size, intermediate_size", false, false},
        /* the first layer's norm is planned by plan_eagle3 */
        {"input_layernorm", "attn_norm", 0, e, "hidden_size", false, false},
    };
    const size_t n = sizeof list / sizeof *list - !i;
    for (size_t k = 0; k < n; k++) {
        char from[64], to[64];
        ae_convert_wanted wanted = list[k];
        snprintf(from, sizeof from, "layers.%u.%s", (unsigned)i, list[k].from);
        snprintf(to, sizeof to, "blk.%u.%s", (unsigned)i, list[k].to);
        wanted.from = from, wanted.to = to;
        AE_TRY(ae_convert_copy(c, &wanted, 1));
    }
    if (!h->divisors || i) return AERIE_OK;
    return ae_convert_add(
        c, &(ae_convert_item){
               .name = "rope_freqs.weight", .how = AE_CONVERT_VALUES, .values = h->divisors, .columns = h->n_rot / 2});
}

/* ---- Fusion ------------------------------------------------------------------------------------------- */

static aerie_status plan_each_norm(ae_convert *c)
{
    const ae_convert_head *h = &c->head;
    char name[64];
    const ae_st_tensor *whole = ae_convert_take(c, "fc_norm.weight");
    if (whole)
        AE_TRY(ae_convert_check_shape(c, whole, 0, (uint64_t)h->n_taps * h->n_target_embd, "taps x width of the target"));
    for (uint32_t i = 0; i < h->n_taps; i++) {
        snprintf(name, sizeof name, "fc_norm.%u.weight", (unsigned)i);
        const ae_st_tensor *t = whole ? whole : ae_convert_take(c, name);
        if (!t)
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing: %u taps have a norm each", c->path, name,
                           (unsigned)h->n_taps);
        if (!whole) AE_TRY(ae_convert_check_shape(c, t, 0, h->n_target_embd, "width of the target"));
        AE_TRY(ae_convert_add(
            c, &(ae_convert_item){
                   .name = name, .from = t, .first = whole ? (uint64_t)i * h->n_target_embd : 0, .columns = h->n_target_embd}));
    }
    return AERIE_OK;
}

/* Plans the target's final norm as the norm of the only tap (use_last in feature_layers.c). */
static aerie_status plan_last_norm(ae_convert *c)
{
    const uint32_t n = c->head.n_target_embd;
    const ae_gguf_tensor *t = c->target->out_norm;
    float *values = ae_arena_alloc(&c->arena, n, sizeof *values);
    if (!values) return ae_convert_no_memory(c, "the target's final norm");
    if (t->type != AE_TYPE_F32) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: output_norm.weight is %s; it must be F32 to be copied",
                         c->options.target, ae_type_name(t->type));
    }
    ae_gguf_reader reader = ae_gguf_reader_open(c->target->gguf);
    const aerie_status status = ae_gguf_read(&reader, t, 0, values, n * sizeof *values, c->error);
    ae_gguf_reader_close(&reader);
    AE_TRY(status);
    return ae_convert_add(
        c, &(ae_convert_item){.name = "enc.output_norm.weight", .how = AE_CONVERT_VALUES, .values = values, .columns = n});
}

static aerie_status plan_eagle3(ae_convert *c)
{
    const ae_convert_head *h = &c->head;
    const uint64_t wide = (uint64_t)h->n_taps * h->n_target_embd;
    const ae_convert_wanted fc = {"fc", "fc", h->n_embd, wide, "hidden_size, taps x width of the target", false, false};
    const ae_convert_wanted joint = {ae_convert_look(c, "input_norm.weight") ? "input_norm" : "fc_norm",
                          "enc.output_norm",
                          0,
                          wide,
                          "taps x width of the target",
                          false,
                          false};
    const ae_convert_wanted norms[] = {
        {"layers.0.input_layernorm", "blk.0.attn_norm", 0, h->n_embd, "hidden_size", false, false},
        {"layers.0.hidden_norm", "blk.0.attn_norm_2", 0, h->n_embd, "hidden_size", false, false},
        {"norm", "output_norm", 0, h->n_embd, "hidden_size", false, false},
    };
    if (h->no_aux && !ae_convert_look(c, "fc.weight")) {
        AE_TRY(ae_convert_add(
            c, &(ae_convert_item){.name = "fc.weight", .how = AE_CONVERT_UNIT, .rows = h->n_embd, .columns = h->n_embd}));
    } else {
        AE_TRY(ae_convert_copy(c, &fc, 1));
    }
    if (h->no_aux) AE_TRY(plan_last_norm(c));
    else if (h->fc_norm == AE_FC_NORM_EACH) AE_TRY(plan_each_norm(c));
    else if (h->fc_norm == AE_FC_NORM_JOINT) AE_TRY(ae_convert_copy(c, &joint, 1));
    AE_TRY(ae_convert_copy(c, norms, sizeof norms / sizeof *norms));
    if (h->n_parallel) AE_TRY(ae_convert_numbers(c, "mask_hidden", "mask_hidden", 0, wide));
    for (uint32_t i = 0; i < h->n_layers; i++) AE_TRY(plan_layer(c, i));
    return AERIE_OK;
}

/* ---- Tables -------------------------------------------------------------------------------------------- */

/* Checks the number of rows against the target's vocabulary: a checkpoint may have more padding than the GGUF file, but not
 * less. */
static aerie_status check_table(const ae_convert *c, const ae_st_tensor *t, uint32_t rows)
{
    char shape[128];
    if (t->n_dims == 2 && t->shape[0] >= rows && t->shape[1] == c->head.n_embd) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; [%u, %u] is needed (vocabulary, hidden_size)", c->path,
                   t->name, ae_convert_shape(t, shape), (unsigned)rows, (unsigned)c->head.n_embd);
}

/* Decides whether the head's own embedding is written. */
static aerie_status choose_embedding(ae_convert *c, const ae_st_tensor *embed, bool *keep)
{
    const ae_convert_head *h = &c->head;
    const ae_convert_choice own = c->options.own_embedding;
    const bool narrow = h->n_embd != h->n_target_embd;
    bool same = false;
    *keep = embed && narrow;
    if (own == AE_CONVERT_AUTO) {
        if (narrow && !embed) {
            return ae_fail(c->error, AERIE_ERROR_FORMAT,
                           "%s: embed_tokens.weight is missing: the head is %u wide, the target %u, so it "
                           "cannot borrow the target's",
                           c->path, (unsigned)h->n_embd, (unsigned)h->n_target_embd);
        }
        if (narrow || !embed || !c->target) return AERIE_OK;
        AE_TRY(ae_convert_head_same(c, embed, c->target->embedding, &same));
        *keep = !same;
        return AERIE_OK;
    }
    *keep = own == AE_CONVERT_YES;
    if (*keep && !embed)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: --embedding keep, but embed_tokens.weight is missing", c->path);
    if (*keep || !narrow) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_ARGUMENT,
                   "--embedding drop: the head is %u wide, the target %u, so it cannot borrow the target's",
                   (unsigned)h->n_embd, (unsigned)h->n_target_embd);
}

/* Adds the token embedding, unless the head uses the target's. */
static aerie_status plan_embedding(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    const ae_st_tensor *embed = ae_convert_take(c, "embed_tokens.weight");
    if (embed) AE_TRY(ae_convert_check_shape(c, embed, embed->shape[0], h->n_embd, "vocabulary, hidden_size"));
    AE_TRY(choose_embedding(c, embed, &h->embedding));
    if (!h->embedding) return AERIE_OK;
    AE_TRY(check_table(c, embed, h->n_vocab));
    return ae_convert_add(
        c, &(ae_convert_item){.name = "token_embd.weight", .from = embed, .rows = h->n_vocab, .columns = h->n_embd});
}

/* Adds the output head, unless the head uses the target's. */
static aerie_status plan_output(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    const bool narrow = h->n_embd != h->n_target_embd;
    const ae_st_tensor *t = ae_convert_take(c, "lm_head.weight");
    bool tied = false, same = false;
    AE_TRY(ae_convert_bool(c, "tie_word_embeddings", &tied, NULL));
    if (!t && narrow && tied && h->n_draft == h->n_vocab) t = ae_convert_take(c, "embed_tokens.weight");
    if (!t) {
        if (!narrow) return AERIE_OK;
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: lm_head.weight is missing: the head is %u wide, the target %u, so it cannot borrow the target's",
                       c->path, (unsigned)h->n_embd, (unsigned)h->n_target_embd);
    }
    AE_TRY(check_table(c, t, h->n_draft));
    /* without an own output, its own embedding would serve as the output */
    const bool tied_to_own = ae_dhead_has_blocks(h->kind) && h->embedding;
    if (c->target && !narrow && !h->ids && h->n_draft == h->n_vocab && !tied_to_own) {
        AE_TRY(ae_convert_head_same(c, t, c->target->output, &same));
        if (same) return AERIE_OK;
    }
    h->output = true;
    return ae_convert_add(c, &(ae_convert_item){.name = "output.weight", .from = t, .rows = h->n_draft, .columns = h->n_embd});
}

/* Fits the tables to the target's vocabulary; ids beyond it are padding of the checkpoint. */
static aerie_status fit_vocab(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    const uint32_t of_target = c->target ? c->target->hparams.n_vocab : h->n_vocab;
    if (h->n_vocab == of_target) return AERIE_OK;
    ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: the vocabulary has %u tokens, but %s has %u: the rest is taken for "
               "padding", c->path,
                   (unsigned)h->n_vocab, c->options.target, (unsigned)of_target);
    if (!h->ids && h->n_draft == h->n_vocab) {
        if (h->n_vocab > of_target) {
            h->n_draft = of_target;
        } else { /* all rows of the head, in order */
            h->ids = ae_arena_alloc(&c->arena, h->n_draft, sizeof *h->ids);
            if (!h->ids) return ae_convert_no_memory(c, "d2t");
            for (uint32_t i = 0; i < h->n_draft; i++) h->ids[i] = i;
        }
    }
    for (uint32_t i = 0; h->ids && i < h->n_draft; i++) {
        if (h->ids[i] >= of_target) {
            return ae_fail(c->error, AERIE_ERROR_FORMAT,
                           "%s: the head drafts token %lld, but %s has %u: it was trained for another "
                           "model",
                           c->path, (long long)h->ids[i], c->options.target, (unsigned)of_target);
        }
    }
    h->n_vocab = of_target;
    return AERIE_OK;
}

/* ---- Kinds --------------------------------------------------------------------------------------------------- */

static aerie_status plan_medusa(ae_convert *c)
{
    const ae_convert_head *h = &c->head;
    char name[64];
    for (uint32_t j = 0; j < h->n_medusa; j++) {
        for (uint32_t b = 0; b < h->n_blocks; b++) {
            const ae_st_tensor *w = ae_convert_head_medusa(c, j, (int)b, "weight"),
                               *bias = ae_convert_head_medusa(c, j, (int)b, "bias");
            if (!w)
                return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: Medusa head %u has no block %u; head 0 has %u", c->path,
                               (unsigned)j, (unsigned)b, (unsigned)h->n_blocks);
            AE_TRY(ae_convert_check_shape(c, w, h->n_embd, h->n_embd, "hidden_size, hidden_size"));
            snprintf(name, sizeof name, "medusa.%u.%u.weight", (unsigned)j, (unsigned)b);
            AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = name, .from = w, .rows = h->n_embd, .columns = h->n_embd}));
            if (!bias) continue;
            AE_TRY(ae_convert_check_shape(c, bias, 0, h->n_embd, "hidden_size"));
            snprintf(name, sizeof name, "medusa.%u.%u.bias", (unsigned)j, (unsigned)b);
            AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = name, .from = bias, .columns = h->n_embd}));
        }
        const ae_st_tensor *out = ae_convert_head_medusa(c, j, -1, "weight");
        if (!out)
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: Medusa head %u has no output weights", c->path, (unsigned)j);
        if (j && out->n_dims == 2 && out->shape[0] < h->n_draft)
            AE_TRY(ae_convert_check_shape(c, out, h->n_draft, h->n_embd, "like head 0"));
        AE_TRY(check_table(c, out, h->n_draft));
        snprintf(name, sizeof name, "medusa.%u.output.weight", (unsigned)j);
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = name, .from = out, .rows = h->n_draft, .columns = h->n_embd}));
    }
    return AERIE_OK;
}

static uint32_t choose_type(const ae_convert *c)
{
    const ae_st_tensor *sample = ae_convert_look(c, "layers.0.self_attn.q_proj.weight");
    if (c->options.type != AE_CONVERT_TYPE_AUTO) return c->options.type;
    return sample && sample->dtype == AE_ST_BF16 ? AE_TYPE_BF16 : AE_TYPE_F16;
}

static aerie_status check_unused(const ae_convert *c)
{
    /* Only training uses these. */
    static const char *const unneeded[] = {"t2d", "verifier_lm_head.weight", "verifier_norm.weight", "rotary_emb.inv_freq",
                                           "layers.0.self_attn.rotary_emb.inv_freq"};
    const ae_convert_entry *e = ae_convert_unused(c, unneeded, sizeof unneeded / sizeof *unneeded);
    char shape[128];
    if (!e) return AERIE_OK;
    const bool counted = !ae_dhead_has_blocks(c->head.kind);
    unsigned layer;
    if (counted && sscanf(e->name, "layers.%u.", &layer) == 1 && layer >= c->head.n_layers) {
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: tensor %s: this head has more layers than the %u that are expected", c->path, e->tensor->name,
                       (unsigned)c->head.n_layers);
    }
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                   "%s: tensor %s %s is unknown in this kind of head, which may depend on it; --skip %s leaves it out",
                   c->path, e->tensor->name, ae_convert_shape(e->tensor, shape), e->tensor->name);
}

static aerie_status plan_head(ae_convert *c)
{
    const ae_convert_head *h = &c->head;
    const ae_convert_wanted fc = {
        "fc", "fc", h->n_embd, (uint64_t)h->n_embd + h->n_target_embd, "hidden_size, hidden_size + width of the target",
        false, false};
    AE_TRY(ae_convert_head_ids(c));
    if (h->kind != AE_DHEAD_MEDUSA) AE_TRY(ae_convert_head_rope(c));
    c->out_type = choose_type(c);
    AE_TRY(fit_vocab(c));
    switch (h->kind) {
    case AE_DHEAD_EAGLE3: AE_TRY(plan_eagle3(c)); break;
    case AE_DHEAD_EAGLE:
        AE_TRY(ae_convert_copy(c, &fc, 1));
        AE_TRY(plan_layer(c, 0));
        break;
    case AE_DHEAD_MEDUSA: AE_TRY(plan_medusa(c)); break;
    case AE_DHEAD_DFLASH:
    case AE_DHEAD_DSPARK:
    case AE_DHEAD_DFLASH2:
    case AE_DHEAD_DFLY:
    case AE_DHEAD_LILICORR: AE_TRY(ae_convert_block_plan(c)); break;
    default: break; /* these are converted as models or as parts of models */
    }
    if (h->kind != AE_DHEAD_MEDUSA) {
        AE_TRY(plan_embedding(c));
        AE_TRY(plan_output(c));
    }
    if (h->ids)
        AE_TRY(
            ae_convert_add(c, &(ae_convert_item){.name = "d2t", .how = AE_CONVERT_IDS, .ids = h->ids, .columns = h->n_draft}));
    return check_unused(c);
}

const ae_convert_kind ae_convert_drafter_head = {.detect = ae_convert_head_detect, .plan = plan_head,
                                                 .keys = ae_convert_head_keys, .check = ae_convert_head_check};
