/* convert_plan.c - lists the tensors of the new file and their sources in the checkpoint, and checks their shapes. */
#include <stdlib.h>
#include <string.h>

#include "convert/convert.h"
#include "quant/types.h"

static int add(convert *c, const convert_item *item)
{
    if (c->n_items == c->n_room) {
        const size_t room = c->n_room ? 2 * c->n_room : 64;
        convert_item *grown = ae_realloc(c->items, room, sizeof *grown);
        if (!grown) return app_error_memory("the list of tensors");
        c->items = grown;
        c->n_room = room;
    }
    convert_item *to = &c->items[c->n_items++];
    *to = *item;
    to->name = ae_arena_strndup(&c->arena, item->name, strlen(item->name));
    if (!to->name) return app_error_memory("the name of a tensor");
    if (item->how == CONVERT_IDS) to->type = AE_TYPE_I64;
    else if (!item->rows) to->type = AE_TYPE_F32;
    else to->type = item->how == CONVERT_UNIT ? AE_TYPE_F16 : c->out_type;
    return APP_DONE;
}

typedef struct wanted {
    const char *from, *to; /* in the checkpoint, in the file; without ".weight" */
    uint64_t rows, columns; /* rows 0: one dimension */
    const char *why;        /* the shape, in words */
    uint32_t n_heads;       /* not 0: rows are rotated */
    bool optional;
} wanted;

static int copy_part(convert *c, const wanted *w, const char *part, uint64_t rows, uint64_t columns, bool optional)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", w->from, part);
    const ae_st_tensor *t = convert_take(c, name);
    if (!t) {
        if (optional) return APP_DONE;
        return app_error(APP_BAD_FILE, "%s: tensor %s is missing", c->path, name);
    }
    CONVERT_TRY(convert_check_shape(c, t, rows, columns, w->why));
    snprintf(name, sizeof name, "%s.%s", w->to, part);
    return add(c, &(convert_item){.name = name, .how = w->n_heads ? CONVERT_ROTATED : CONVERT_PLAIN, .from = t, .rows = rows,
                                  .columns = columns, .n_heads = w->n_heads});
}

static int copy(convert *c, const wanted *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        CONVERT_TRY(copy_part(c, &list[i], "weight", list[i].rows, list[i].columns, list[i].optional));
        if (list[i].rows) CONVERT_TRY(copy_part(c, &list[i], "bias", 0, list[i].rows, true));
    }
    return APP_DONE;
}

/* ---- The layer -------------------------------------------------------------------------------------- */

static int plan_layer(convert *c)
{
    const convert_head *h = &c->head;
    const uint64_t n_in = h->kind == AE_DHEAD_EAGLE3 ? 2 * (uint64_t)h->n_embd : h->n_embd;
    const uint64_t n_q = (uint64_t)h->n_heads * h->head_dim, n_kv = (uint64_t)h->n_kv_heads * h->head_dim;
    static const char q_why[] = "num_attention_heads x head_dim, width of the layer's input";
    static const char kv_why[] = "num_key_value_heads x head_dim, width of the layer's input";
    const wanted list[] = {
        {"layers.0.self_attn.q_proj", "blk.0.attn_q", n_q, n_in, q_why, h->n_heads, false},
        {"layers.0.self_attn.k_proj", "blk.0.attn_k", n_kv, n_in, kv_why, h->n_kv_heads, false},
        {"layers.0.self_attn.v_proj", "blk.0.attn_v", n_kv, n_in, kv_why, 0, false},
        {"layers.0.self_attn.o_proj", "blk.0.attn_output", h->n_embd, n_q, "hidden_size, num_attention_heads x head_dim", 0,
         false},
        {"layers.0.self_attn.q_norm", "blk.0.attn_q_norm", 0, h->head_dim, "head_dim", 1, true},
        {"layers.0.self_attn.k_norm", "blk.0.attn_k_norm", 0, h->head_dim, "head_dim", 1, true},
        {"layers.0.post_attention_layernorm", "blk.0.ffn_norm", 0, h->n_embd, "hidden_size", 0, false},
        {"layers.0.mlp.gate_proj", "blk.0.ffn_gate", h->n_ff, h->n_embd, "intermediate_size, hidden_size", 0, false},
        {"layers.0.mlp.up_proj", "blk.0.ffn_up", h->n_ff, h->n_embd, "intermediate_size, hidden_size", 0, false},
        {"layers.0.mlp.down_proj", "blk.0.ffn_down", h->n_embd, h->n_ff, "hidden_size, intermediate_size", 0, false},
    };
    CONVERT_TRY(copy(c, list, sizeof list / sizeof *list));
    if (!h->divisors) return APP_DONE;
    return add(c, &(convert_item){.name = "rope_freqs.weight", .how = CONVERT_VALUES, .values = h->divisors,
                                  .columns = h->n_rot / 2});
}

/* ---- Fusion ------------------------------------------------------------------------------------------- */

static int plan_each_norm(convert *c)
{
    const convert_head *h = &c->head;
    char name[64];
    const ae_st_tensor *whole = convert_take(c, "fc_norm.weight");
    if (whole)
        CONVERT_TRY(convert_check_shape(c, whole, 0, (uint64_t)h->n_taps * h->n_target_embd, "taps x width of the target"));
    for (uint32_t i = 0; i < h->n_taps; i++) {
        snprintf(name, sizeof name, "fc_norm.%u.weight", (unsigned)i);
        const ae_st_tensor *t = whole ? whole : convert_take(c, name);
        if (!t)
            return app_error(APP_BAD_FILE, "%s: tensor %s is missing: %u taps have a norm each", c->path, name,
                             (unsigned)h->n_taps);
        if (!whole) CONVERT_TRY(convert_check_shape(c, t, 0, h->n_target_embd, "width of the target"));
        CONVERT_TRY(add(c, &(convert_item){.name = name, .from = t, .first = whole ? (uint64_t)i * h->n_target_embd : 0,
                                           .columns = h->n_target_embd}));
    }
    return APP_DONE;
}

/* The target's final norm as the norm of the one tap (convert_taps.c: use_last). */
static int plan_last_norm(convert *c)
{
    const uint32_t n = c->head.n_target_embd;
    const ae_gguf_tensor *t = c->target->out_norm;
    float *values = ae_arena_alloc(&c->arena, n, sizeof *values);
    aerie_error error = {0};
    if (!values) return app_error_memory("the target's final norm");
    if (t->type != AE_TYPE_F32) {
        return app_error(APP_BAD_FILE, "%s: output_norm.weight is %s; it must be F32 to be copied",
                         c->options->convert_target, ae_type_name(t->type));
    }
    ae_gguf_reader reader = ae_gguf_reader_open(c->target->gguf);
    const aerie_status status = ae_gguf_read(&reader, t, 0, values, n * sizeof *values, &error);
    ae_gguf_reader_close(&reader);
    CONVERT_TRY(app_report(APP_LOADING, status, &error));
    return add(c, &(convert_item){.name = "enc.output_norm.weight", .how = CONVERT_VALUES, .values = values, .columns = n});
}

static int plan_eagle3(convert *c)
{
    const convert_head *h = &c->head;
    const uint64_t wide = (uint64_t)h->n_taps * h->n_target_embd;
    const wanted fc = {"fc", "fc", h->n_embd, wide, "hidden_size, taps x width of the target", 0, false};
    const wanted joint = {convert_look(c, "input_norm.weight") ? "input_norm" : "fc_norm", "enc.output_norm", 0, wide,
                          "taps x width of the target", 0, false};
    const wanted norms[] = {
        {"layers.0.input_layernorm", "blk.0.attn_norm", 0, h->n_embd, "hidden_size", 0, false},
        {"layers.0.hidden_norm", "blk.0.attn_norm_2", 0, h->n_embd, "hidden_size", 0, false},
        {"norm", "output_norm", 0, h->n_embd, "hidden_size", 0, false},
    };
    if (h->no_aux && !convert_look(c, "fc.weight")) {
        CONVERT_TRY(add(c, &(convert_item){.name = "fc.weight", .how = CONVERT_UNIT, .rows = h->n_embd, .columns = h->n_embd}));
    } else {
        CONVERT_TRY(copy(c, &fc, 1));
    }
    if (h->no_aux) CONVERT_TRY(plan_last_norm(c));
    else if (h->fc_norm == AE_FC_NORM_EACH) CONVERT_TRY(plan_each_norm(c));
    else if (h->fc_norm == AE_FC_NORM_JOINT) CONVERT_TRY(copy(c, &joint, 1));
    CONVERT_TRY(copy(c, norms, sizeof norms / sizeof *norms));
    return plan_layer(c);
}

/* ---- Tables -------------------------------------------------------------------------------------------- */

/* Rows of the target's vocabulary: a checkpoint may have more padding than the GGUF file, but not less. */
static int check_table(const convert *c, const ae_st_tensor *t, uint32_t rows)
{
    char shape[128];
    if (t->n_dims == 2 && t->shape[0] >= rows && t->shape[1] == c->head.n_embd) return APP_DONE;
    return app_error(APP_BAD_FILE, "%s: tensor %s is %s; [%u, %u] is needed (vocabulary, hidden_size)", c->path, t->name,
                     convert_shape(t, shape), (unsigned)rows, (unsigned)c->head.n_embd);
}

/* Whether the head's own embedding is written. */
static int choose_embedding(convert *c, const ae_st_tensor *embed, bool *keep)
{
    const convert_head *h = &c->head;
    const char *mode = c->options->convert_embedding;
    const bool narrow = h->n_embd != h->n_target_embd;
    bool same = false;
    *keep = embed && narrow;
    if (!mode || strcmp(mode, "auto") == 0) {
        if (narrow && !embed) {
            return app_error(APP_BAD_FILE, "%s: embed_tokens.weight is missing: the head is %u wide, the target %u, so it "
                             "cannot borrow the target's", c->path, (unsigned)h->n_embd, (unsigned)h->n_target_embd);
        }
        if (narrow || !embed || !c->target) return APP_DONE;
        CONVERT_TRY(convert_same_as_target(c, embed, c->target->embedding, &same));
        *keep = !same;
        return APP_DONE;
    }
    *keep = strcmp(mode, "keep") == 0;
    if (!*keep && strcmp(mode, "drop")) return app_error(APP_USAGE, "--embedding takes auto, keep or drop; found '%s'", mode);
    if (*keep && !embed) return app_error(APP_BAD_FILE, "%s: --embedding keep, but embed_tokens.weight is missing", c->path);
    if (*keep || !narrow) return APP_DONE;
    return app_error(APP_USAGE, "--embedding drop: the head is %u wide, the target %u, so it cannot borrow the target's",
                     (unsigned)h->n_embd, (unsigned)h->n_target_embd);
}

static int plan_embedding(convert *c)
{
    convert_head *h = &c->head;
    const ae_st_tensor *embed = convert_take(c, "embed_tokens.weight");
    if (embed) CONVERT_TRY(convert_check_shape(c, embed, embed->shape[0], h->n_embd, "vocabulary, hidden_size"));
    CONVERT_TRY(choose_embedding(c, embed, &h->embedding));
    if (!h->embedding) return APP_DONE;
    CONVERT_TRY(check_table(c, embed, h->n_vocab));
    return add(c, &(convert_item){.name = "token_embd.weight", .from = embed, .rows = h->n_vocab, .columns = h->n_embd});
}

static int plan_output(convert *c)
{
    convert_head *h = &c->head;
    const bool narrow = h->n_embd != h->n_target_embd;
    const ae_st_tensor *t = convert_take(c, "lm_head.weight");
    bool tied = false, same = false;
    CONVERT_TRY(convert_bool(c, "tie_word_embeddings", &tied, NULL));
    if (!t && narrow && tied && h->n_draft == h->n_vocab) t = convert_take(c, "embed_tokens.weight");
    if (!t) {
        if (!narrow) return APP_DONE;
        return app_error(APP_BAD_FILE,
                         "%s: lm_head.weight is missing: the head is %u wide, the target %u, so it cannot borrow the target's",
                         c->path, (unsigned)h->n_embd, (unsigned)h->n_target_embd);
    }
    CONVERT_TRY(check_table(c, t, h->n_draft));
    if (c->target && !narrow && !h->ids && h->n_draft == h->n_vocab) {
        CONVERT_TRY(convert_same_as_target(c, t, c->target->output, &same));
        if (same) return APP_DONE;
    }
    h->output = true;
    return add(c, &(convert_item){.name = "output.weight", .from = t, .rows = h->n_draft, .columns = h->n_embd});
}

/* The vocabulary that counts is the target's; ids after its end stand for padding of the checkpoint. */
static int fit_vocab(convert *c)
{
    convert_head *h = &c->head;
    const uint32_t of_target = c->target ? c->target->hparams.n_vocab : h->n_vocab;
    if (h->n_vocab == of_target) return APP_DONE;
    app_note("%s: the vocabulary has %u tokens, but %s has %u: the rest is taken for padding", c->path, (unsigned)h->n_vocab,
             c->options->convert_target, (unsigned)of_target);
    if (!h->ids && h->n_draft == h->n_vocab) {
        if (h->n_vocab > of_target) {
            h->n_draft = of_target;
        } else { /* all that the head has, in their order */
            h->ids = ae_arena_alloc(&c->arena, h->n_draft, sizeof *h->ids);
            if (!h->ids) return app_error_memory("d2t");
            for (uint32_t i = 0; i < h->n_draft; i++) h->ids[i] = i;
        }
    }
    for (uint32_t i = 0; h->ids && i < h->n_draft; i++) {
        if (h->ids[i] >= of_target) {
            return app_error(APP_BAD_FILE, "%s: the head drafts token %lld, but %s has %u: it was trained for another "
                                           "model", c->path,
                             (long long)h->ids[i], c->options->convert_target, (unsigned)of_target);
        }
    }
    h->n_vocab = of_target;
    return APP_DONE;
}

/* ---- Kinds --------------------------------------------------------------------------------------------------- */

static int plan_medusa(convert *c)
{
    const convert_head *h = &c->head;
    char name[64];
    for (uint32_t j = 0; j < h->n_medusa; j++) {
        for (uint32_t b = 0; b < h->n_blocks; b++) {
            const ae_st_tensor *w = convert_medusa(c, j, (int)b, "weight"), *bias = convert_medusa(c, j, (int)b, "bias");
            if (!w)
                return app_error(APP_BAD_FILE, "%s: Medusa head %u has no block %u; head 0 has %u", c->path, (unsigned)j,
                                 (unsigned)b, (unsigned)h->n_blocks);
            CONVERT_TRY(convert_check_shape(c, w, h->n_embd, h->n_embd, "hidden_size, hidden_size"));
            snprintf(name, sizeof name, "medusa.%u.%u.weight", (unsigned)j, (unsigned)b);
            CONVERT_TRY(add(c, &(convert_item){.name = name, .from = w, .rows = h->n_embd, .columns = h->n_embd}));
            if (!bias) continue;
            CONVERT_TRY(convert_check_shape(c, bias, 0, h->n_embd, "hidden_size"));
            snprintf(name, sizeof name, "medusa.%u.%u.bias", (unsigned)j, (unsigned)b);
            CONVERT_TRY(add(c, &(convert_item){.name = name, .from = bias, .columns = h->n_embd}));
        }
        const ae_st_tensor *out = convert_medusa(c, j, -1, "weight");
        if (!out) return app_error(APP_BAD_FILE, "%s: Medusa head %u has no output weights", c->path, (unsigned)j);
        if (j && out->n_dims == 2 && out->shape[0] < h->n_draft)
            CONVERT_TRY(convert_check_shape(c, out, h->n_draft, h->n_embd, "like head 0"));
        CONVERT_TRY(check_table(c, out, h->n_draft));
        snprintf(name, sizeof name, "medusa.%u.output.weight", (unsigned)j);
        CONVERT_TRY(add(c, &(convert_item){.name = name, .from = out, .rows = h->n_draft, .columns = h->n_embd}));
    }
    return APP_DONE;
}

static int choose_type(convert *c)
{
    const ae_type_info *info;
    const char *name = c->options->convert_type;
    const ae_st_tensor *sample = convert_look(c, "layers.0.self_attn.q_proj.weight");
    c->out_type = sample && sample->dtype == AE_ST_BF16 ? AE_TYPE_BF16 : AE_TYPE_F16;
    if (!name || strcmp(name, "auto") == 0) return APP_DONE;
    info = ae_type_by_name(name);
    if (!info || !info->encode || info->dot == AE_DOT_NONE) {
        return app_error(APP_USAGE, "--outtype takes auto, f32, f16, bf16, q8_0 or another type that can be written (q6_k, "
                         "q5_k, q4_k, q4_0 ...); found '%s'", name);
    }
    c->out_type = info->type;
    return APP_DONE;
}

int convert_plan(convert *c)
{
    const convert_head *h = &c->head;
    const wanted fc = {
        "fc", "fc", h->n_embd, (uint64_t)h->n_embd + h->n_target_embd, "hidden_size, hidden_size + width of the target",
        0,    false};
    CONVERT_TRY(choose_type(c));
    CONVERT_TRY(fit_vocab(c));
    switch (h->kind) {
    case AE_DHEAD_EAGLE3: CONVERT_TRY(plan_eagle3(c)); break;
    case AE_DHEAD_EAGLE:
        CONVERT_TRY(copy(c, &fc, 1));
        CONVERT_TRY(plan_layer(c));
        break;
    case AE_DHEAD_MEDUSA: CONVERT_TRY(plan_medusa(c)); break;
    }
    if (h->kind != AE_DHEAD_MEDUSA) {
        CONVERT_TRY(plan_embedding(c));
        CONVERT_TRY(plan_output(c));
    }
    if (h->ids) CONVERT_TRY(add(c, &(convert_item){.name = "d2t", .how = CONVERT_IDS, .columns = h->n_draft}));
    return convert_check_unused(c);
}
