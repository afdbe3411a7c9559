/* reshaped.c - models with recurrent layers or latent attention (deepseek2, qwen3next, qwen35, qwen4exp, granitehybrid,
 * nemotron_h, dots3note), and gemma4: keys that depend on several values, and tensors that are cut or reordered (arch.h). The
 * orders are those of the models' code and of GGUF files. Owns nothing. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/archs/arch.h"

static aerie_status fail_kind(const ae_convert *c, uint32_t layer)
{
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: layer %u is of a kind that architecture %s has no place for",
                   c->config_path, layer, c->arch->arch);
}

/* Takes a tensor of the layer, which must have this shape (rows 0: [columns]; n_dims 3 in *t: [rows, 1, columns]); NULL:
 * absent. */
static aerie_status take(ae_convert *c, uint32_t layer, const char *part, uint64_t rows, uint64_t columns,
                         const ae_st_tensor **t)
{
    char name[128];
    snprintf(name, sizeof name, "layers.%u.%s", layer, part);
    *t = ae_convert_take(c, name);
    if (!*t || ((*t)->n_dims == 3 && (*t)->shape[0] == rows && (*t)->shape[1] == 1 && (*t)->shape[2] == columns))
        return AERIE_OK;
    return ae_convert_check_shape(c, *t, rows, columns, "by config.json");
}

static aerie_status add(ae_convert *c, uint32_t layer, const char *part, ae_convert_item item)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", layer, part);
    item.name = name;
    return ae_convert_add(c, &item);
}

/* ---- Latent attention (deepseek2) --------------------------------------------------------------------- */

typedef struct mla_sizes {
    uint32_t latent, rope, nope, value;
} mla_sizes;

static aerie_status read_mla(const ae_convert *c, mla_sizes *s)
{
    AE_TRY(ae_convert_need_u32(c, "kv_lora_rank", 1, AE_MAX_HEAD_DIM, &s->latent));
    AE_TRY(ae_convert_need_u32(c, "qk_rope_head_dim", c->arch->flags & AE_ARCH_NO_ROPE ? 0 : 2, AE_MAX_HEAD_DIM, &s->rope));
    AE_TRY(ae_convert_need_u32(c, "qk_nope_head_dim", 1, AE_MAX_HEAD_DIM, &s->nope));
    return ae_convert_need_u32(c, "v_head_dim", 1, AE_MAX_HEAD_DIM, &s->value);
}

aerie_status ae_convert_put_mla(ae_convert_keys *k, const ae_convert *c)
{
    mla_sizes s;
    AE_TRY(read_mla(c, &s));
    ae_convert_put_u32(k, "attention.key_length", s.latent + s.rope);
    ae_convert_put_u32(k, "attention.value_length", s.latent);
    ae_convert_put_u32(k, "attention.key_length_mla", s.nope + s.rope);
    ae_convert_put_u32(k, "attention.value_length_mla", s.value);
    return k->status;
}

aerie_status ae_convert_keys_mla(ae_convert_keys *k, const ae_convert *c)
{
    ae_convert_put_u32(k, "attention.head_count_kv", 1);
    AE_TRY(ae_convert_put_mla(k, c));
    if (c->head.rope_log_mul > 0) ae_convert_put_f32(k, "rope.scaling.yarn_log_multiplier", 0.1 * c->head.rope_log_mul);
    return k->status;
}

/* Adds for each head the rows of keys, transposed, and the rows of values. */
aerie_status ae_convert_tensors_mla(ae_convert *c, uint32_t layer)
{
    mla_sizes s;
    const ae_st_tensor *t;
    AE_TRY(read_mla(c, &s));
    const uint64_t n = c->model.n_heads, head = (uint64_t)(s.nope + s.value) * s.latent;
    AE_TRY(take(c, layer, "self_attn.kv_b_proj.weight", n * (s.nope + s.value), s.latent, &t));
    if (!t) return AERIE_OK;
    AE_TRY(add(c, layer, "attn_k_b.weight", (ae_convert_item){.from = t, .n_stack = n, .rows = s.latent, .columns = s.nope,
                                                              .stack_step = head, .row_step = 1, .step = s.latent}));
    return add(c, layer, "attn_v_b.weight", (ae_convert_item){.from = t, .first = (uint64_t)s.nope * s.latent, .n_stack = n,
                                                              .rows = s.value, .columns = s.latent, .stack_step = head});
}

/* ---- Gated DeltaNet (qwen3next, qwen35) --------------------------------------------------------------- */

typedef struct delta {
    uint32_t n_keys, n_values, dim, taps, *head; /* head [n_values]: the checkpoint's head at each place */
    uint64_t keys, values; /* values of all heads */
} delta;

/* Reads the sizes. qwen3next keeps the order of heads; qwen35 has the first value head of each key head, then the second of
 * each, and so on. */
static aerie_status read_delta(ae_convert *c, delta *d)
{
    uint32_t value_dim;
    AE_TRY(ae_convert_need_u32(c, "linear_num_key_heads", 1, AE_MAX_HEADS, &d->n_keys));
    AE_TRY(ae_convert_need_u32(c, "linear_num_value_heads", 1, AE_MAX_HEADS, &d->n_values));
    AE_TRY(ae_convert_need_u32(c, "linear_key_head_dim", 1, AE_MAX_HEAD_DIM, &d->dim));
    AE_TRY(ae_convert_need_u32(c, "linear_value_head_dim", 1, AE_MAX_HEAD_DIM, &value_dim));
    AE_TRY(ae_convert_need_u32(c, "linear_conv_kernel_dim", 1, 64, &d->taps));
    if (value_dim != d->dim || d->n_values % d->n_keys)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: %u heads of %u values for %u heads of %u keys: sizes must be equal, "
                       "and the heads must divide",
                       c->config_path, d->n_values, value_dim, d->n_keys, d->dim);
    d->keys = (uint64_t)d->n_keys * d->dim, d->values = (uint64_t)d->n_values * d->dim;
    d->head = ae_arena_alloc(&c->arena, d->n_values, sizeof *d->head);
    if (!d->head) return ae_convert_no_memory(c, "the order of heads");
    const uint32_t each = d->n_values / d->n_keys;
    for (uint32_t i = 0; i < d->n_values; i++)
        d->head[i] = strcmp(c->arch->arch, "qwen3next") ? i % d->n_keys * each + i / d->n_keys : i;
    return AERIE_OK;
}

/* Returns an order of [first + values] numbers: the first `first` stay, then heads of `dim` numbers are in the file's order. */
static uint32_t *value_order(ae_convert *c, const delta *d, uint64_t first, uint32_t dim)
{
    uint32_t *order = ae_arena_alloc(&c->arena, first + (uint64_t)d->n_values * dim, sizeof *order);
    for (uint64_t i = 0; order && i < first; i++) order[i] = (uint32_t)i;
    for (uint64_t i = 0; order && i < (uint64_t)d->n_values * dim; i++)
        order[first + i] = (uint32_t)(first + (uint64_t)d->head[i / dim] * dim + i % dim);
    return order;
}

/* Splits the checkpoint's tensor, which has queries, keys, values and gates of each key head together. */
static aerie_status split_qkvz(ae_convert *c, uint32_t layer, const delta *d, const ae_st_tensor *t)
{
    const uint64_t each = d->values / d->n_keys, group = 2 * (uint64_t)d->dim + 2 * each, n = 2 * d->keys + d->values;
    uint32_t *order = ae_arena_alloc(&c->arena, n + d->values, sizeof *order), *at = order;
    if (!order) return ae_convert_no_memory(c, "the order of rows");
    const uint64_t from[] = {0, d->dim, 2 * (uint64_t)d->dim, 2 * (uint64_t)d->dim + each},
                   size[] = {d->dim, d->dim, each, each};
    for (size_t part = 0; part < 4; part++)
        for (uint64_t g = 0; g < d->n_keys; g++)
            for (uint64_t i = 0; i < size[part]; i++) *at++ = (uint32_t)(g * group + from[part] + i);
    const uint64_t e = c->model.n_embd;
    AE_TRY(add(c, layer, "attn_qkv.weight", (ae_convert_item){.from = t, .rows = n, .columns = e, .row_from = order}));
    return add(c, layer, "attn_gate.weight",
               (ae_convert_item){.from = t, .rows = d->values, .columns = e, .row_from = order + n});
}

aerie_status ae_convert_tensors_delta(ae_convert *c, uint32_t layer)
{
    delta d;
    const ae_st_tensor *t;
    AE_TRY(read_delta(c, &d));
    const uint64_t e = c->model.n_embd, channels = 2 * d.keys + d.values;
    const uint32_t *heads = d.head, *values = value_order(c, &d, 0, d.dim), *all = value_order(c, &d, 2 * d.keys, d.dim);
    if (!values || !all) return ae_convert_no_memory(c, "the order of rows");
    const struct {
        const char *from, *to;
        uint64_t rows, columns;
        const uint32_t *row_from, *column_from;
        bool f32;
        ae_convert_change change;
    } parts[] = {
        {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight", channels, e, all, NULL, false, AE_CONVERT_SAME},
        {"linear_attn.in_proj_z.weight", "attn_gate.weight", d.values, e, values, NULL, false, AE_CONVERT_SAME},
        {"linear_attn.in_proj_b.weight", "ssm_beta.weight", d.n_values, e, heads, NULL, false, AE_CONVERT_SAME},
        {"linear_attn.in_proj_a.weight", "ssm_alpha.weight", d.n_values, e, heads, NULL, false, AE_CONVERT_SAME},
        {"linear_attn.conv1d.weight", "ssm_conv1d.weight", channels, d.taps, all, NULL, true, AE_CONVERT_SAME},
        {"linear_attn.dt_bias", "ssm_dt.bias", 0, d.n_values, NULL, heads, true, AE_CONVERT_SAME},
        {"linear_attn.A_log", "ssm_a", 0, d.n_values, NULL, heads, true, AE_CONVERT_MINUS_EXP},
        {"linear_attn.out_proj.weight", "ssm_out.weight", e, d.values, NULL, values, false, AE_CONVERT_SAME},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        AE_TRY(take(c, layer, parts[i].from, parts[i].rows, parts[i].columns, &t));
        if (t)
            AE_TRY(add(c, layer, parts[i].to,
                       (ae_convert_item){.from = t,
                                         .rows = parts[i].rows,
                                         .columns = parts[i].columns,
                                         .row_from = parts[i].row_from,
                                         .column_from = parts[i].column_from,
                                         .f32 = parts[i].f32,
                                         .change = parts[i].change}));
    }
    AE_TRY(take(c, layer, "linear_attn.in_proj_qkvz.weight", channels + d.values, e, &t));
    return t ? split_qkvz(c, layer, &d, t) : AERIE_OK;
}

/* Writes the sizes of DeltaNet, and the sections of the rotation. */
static aerie_status put_delta(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *scaling = ae_convert_value(c, "rope_parameters");
    uint32_t n_keys = 1, n_values = 1, dim = 1, taps = 4;
    int32_t sections[4] = {0};
    AE_TRY(ae_convert_u32(c, "linear_num_key_heads", 1, AE_MAX_HEADS, &n_keys));
    AE_TRY(ae_convert_u32(c, "linear_num_value_heads", 1, AE_MAX_HEADS, &n_values));
    AE_TRY(ae_convert_u32(c, "linear_key_head_dim", 1, AE_MAX_HEAD_DIM, &dim));
    AE_TRY(ae_convert_u32(c, "linear_conv_kernel_dim", 1, 64, &taps));
    ae_convert_put_u32(k, "ssm.conv_kernel", taps);
    ae_convert_put_u32(k, "ssm.state_size", dim);
    ae_convert_put_u32(k, "ssm.group_count", n_keys);
    ae_convert_put_u32(k, "ssm.time_step_rank", n_values);
    ae_convert_put_u32(k, "ssm.inner_size", n_values * dim);
    if (strcmp(c->arch->arch, "qwen3next") == 0) return k->status;
    const json_t *given = json_object_get(scaling, "mrope_section");
    if (!given) given = json_object_get(ae_convert_value(c, "rope_scaling"), "mrope_section");
    for (size_t i = 0; i < 3; i++) sections[i] = (int32_t)json_integer_value(json_array_get(given, i));
    if (!given) sections[0] = (int32_t)(c->head.n_rot / 2); /* all sections of a text are equal */
    ae_convert_put_array(k, "rope.dimension_sections", AE_GGUF_I32, sections, 4);
    return k->status;
}

aerie_status ae_convert_keys_delta(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *types = ae_convert_value(c, "layer_types");
    uint32_t interval = 4;
    AE_TRY(ae_convert_u32(c, "full_attention_interval", 1, AE_MAX_LAYERS, &interval));
    for (uint32_t i = 0; types && i < c->model.n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type || strcmp(type, "full_attention")) continue;
        interval = i + 1;
        break;
    }
    for (uint32_t i = 0; types && i < c->model.n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type || strcmp(type, (i + 1) % interval ? "linear_attention" : "full_attention")) return fail_kind(c, i);
    }
    ae_convert_put_u32(k, "full_attention_interval", interval);
    return put_delta(k, c);
}

/* ---- Qwen 4 ----------------------------------------------------------------------------------------------------- */

static aerie_status rename_entry(ae_convert *c, size_t i, const char *name)
{
    c->entries[i].name = ae_arena_strndup(&c->arena, name, strlen(name));
    return c->entries[i].name ? AERIE_OK : ae_convert_no_memory(c, "the names of tensors");
}

/* Renames the MTP block mtp.* to a layer after the last one; the norm of its hidden rows gets a name that no rule matches. */
static aerie_status rename_qwen4_ahead(ae_convert *c)
{
    static const char *const parts[][2] = {{"mtp.layers.0.", ""}, {"mtp.fc_embedding.", "e_proj."},
                                           {"mtp.fc_hidden.", "h_proj."}, {"mtp.pre_fc_norm_embedding.", "enorm."},
                                           {"mtp.", ""}};
    uint32_t n = 0;
    bool any = false;
    AE_TRY(ae_convert_need_u32(c, "num_hidden_layers", 1, AE_MAX_LAYERS, &n));
    if (!ae_convert_look(c, "mtp.fc_embedding.weight")) return AERIE_OK; /* a block of another kind, which is left out */
    for (size_t i = 0; i < c->n_entries; i++) {
        const char *old = c->entries[i].name;
        char name[160];
        size_t k = 0;
        if (strncmp(old, "mtp.", 4) || strlen(old) > 100) continue;
        while (strncmp(old, parts[k][0], strlen(parts[k][0]))) k++;
        snprintf(name, sizeof name, "layers.%u.%s%s", n, parts[k][1], old + strlen(parts[k][0]));
        AE_TRY(rename_entry(c, i, name));
        any = true;
    }
    return any ? ae_convert_sort_names(c) : AERIE_OK;
}

aerie_status ae_convert_begin_qwen4(ae_convert *c)
{
    const char *gate = ae_convert_text(c, "output_gate_type");
    if (!gate) gate = ae_convert_text(c, "hidden_act");
    if (gate && strcmp(gate, "sigmoid"))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: the gate of linear attention is \"%.40s\" ('output_gate_type', "
                       "else 'hidden_act'); GGUF files of architecture %s run with sigmoid", c->config_path, gate,
                       c->arch->arch);
    return rename_qwen4_ahead(c);
}

/* Finds the layer with an n-gram memory, of which config.json and GGUF files can have one; if there is none, *layer is no
 * layer's number. */
static aerie_status find_memory(const ae_convert *c, uint32_t *layer)
{
    const json_t *list = ae_convert_value(c, "ple_layer_ids");
    const json_int_t id = json_integer_value(json_array_get(list, 0));
    *layer = UINT32_MAX;
    if (!json_array_size(list)) return AERIE_OK;
    if (json_array_size(list) > 1 || id < 1 || id > (json_int_t)c->model.n_layers)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'ple_layer_ids' has %zu entries, the first %lld; GGUF files of "
                       "architecture %s have one layer with n-grams, from 1 to %u here", c->config_path,
                       json_array_size(list), (long long)id, c->arch->arch, c->model.n_layers);
    *layer = (uint32_t)id - 1;
    return AERIE_OK;
}

/* Writes the integers of a tensor as a key. */
static aerie_status put_numbers(ae_convert_keys *k, const ae_convert *c, uint32_t layer, const char *part, uint32_t n,
                                const char *to)
{
    char name[96];
    int64_t values[AE_MAX_NGRAM_HEADS];
    uint64_t numbers[AE_MAX_NGRAM_HEADS];
    snprintf(name, sizeof name, "layers.%u.ple.ple_embedding.%s", layer, part);
    const ae_st_tensor *t = ae_convert_look(c, name);
    if (!t) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing", c->path, name);
    bool fits = t->n == n && n <= AE_MAX_NGRAM_HEADS && ae_convert_ints(t, 0, values, n);
    for (uint32_t i = 0; fits && i < n; i++) fits = values[i] >= 0, numbers[i] = (uint64_t)values[i];
    if (!fits)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s must hold %u whole numbers from 0 on, at most %d", c->path,
                       t->name, n, AE_MAX_NGRAM_HEADS);
    ae_convert_put_array(k, to, AE_GGUF_U64, numbers, n);
    return k->status;
}

/* Writes the keys of the n-gram memory. N-grams end at one token: the first of a list, as in transformers. */
static aerie_status put_memory(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *end = ae_convert_value(c, "eos_token_id");
    uint32_t layer, size = 3, n_each = 8, taps = 4, image = UINT32_MAX;
    AE_TRY(find_memory(c, &layer));
    if (layer == UINT32_MAX) return AERIE_OK;
    if (json_is_array(end)) end = json_array_get(end, 0);
    if (!json_is_integer(end) || json_integer_value(end) < 0 || json_integer_value(end) >= (json_int_t)c->model.n_vocab)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'eos_token_id' must be one of %u tokens, because n-grams end there",
                       c->config_path, c->model.n_vocab);
    AE_TRY(ae_convert_u32(c, "ngram_size", 2, AE_MAX_NGRAM, &size));
    AE_TRY(ae_convert_u32(c, "heads_per_ngram", 1, AE_MAX_NGRAM_HEADS / (size - 1), &n_each));
    AE_TRY(ae_convert_u32(c, "ple_conv_kernel_size", 1, 64, &taps));
    AE_TRY(ae_convert_u32(c, "image_token_id", 0, INT32_MAX, &image));
    ae_convert_put_array(k, "ple.layers", AE_GGUF_U32, &layer, 1);
    ae_convert_put_u32(k, "ple.ngram_size", size);
    ae_convert_put_u32(k, "ple.heads_per_ngram", n_each);
    ae_convert_put_u32(k, "ple.conv_kernel", taps);
    ae_convert_put_u32(k, "ple.eos_token_id", (uint32_t)json_integer_value(end));
    if (image != UINT32_MAX) ae_convert_put_u32(k, "ple.image_token_id", image);
    for (size_t i = 0; i < c->n_items; i++)
        if (strcmp(c->items[i].name, "per_layer_token_embd.weight") == 0)
            ae_convert_put_u32(k, "embedding_length_per_layer_input", (uint32_t)c->items[i].columns);
    AE_TRY(put_numbers(k, c, layer, "layer_multipliers", size, "ple.layer_multipliers"));
    AE_TRY(put_numbers(k, c, layer, "ngram_heads_offsets", (size - 1) * n_each, "ple.head_offsets"));
    return put_numbers(k, c, layer, "ngram_heads_vocab_sizes", (size - 1) * n_each, "ple.head_vocab_sizes");
}

/* Writes which layers are recurrent; the others, and the MTP block, attend to pools of this size, which an index chooses. */
aerie_status ae_convert_keys_qwen4(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *types = ae_convert_value(c, "layer_types");
    uint32_t interval = 4, pool = 0, ratios[AE_MAX_LAYERS] = {0};
    const uint32_t n = c->model.n_layers + c->model.n_ahead;
    uint8_t linear[AE_MAX_LAYERS] = {0};
    AE_TRY(ae_convert_u32(c, "full_attention_interval", 1, AE_MAX_LAYERS, &interval));
    AE_TRY(ae_convert_need_u32(c, "indexer_compress_ratio", 1, INT32_MAX, &pool));
    for (uint32_t i = 0; i < n && i < AE_MAX_LAYERS; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (i < c->model.n_layers) linear[i] = type ? strcmp(type, "linear_attention") == 0 : (i + 1) % interval != 0;
        if (types && i < c->model.n_layers && !linear[i] &&
            (!type || (strcmp(type, "full_attention") && strcmp(type, "indexed_attention"))))
            return fail_kind(c, i);
        ratios[i] = linear[i] ? 0 : pool;
    }
    ae_convert_put_array(k, "attention.recurrent_layers", AE_GGUF_BOOL, linear, n);
    ae_convert_put_array(k, "attention.compress_ratios", AE_GGUF_U32, ratios, n);
    AE_TRY(put_delta(k, c));
    return put_memory(k, c);
}

/* Adds a norm of a row's streams, with a row of the file for each. The checkpoint stores the weights minus 1. */
static aerie_status add_stream_norm(ae_convert *c, const char *from, const char *to)
{
    uint32_t n = 4;
    const ae_st_tensor *t = ae_convert_take(c, from);
    if (!t) return AERIE_OK;
    AE_TRY(ae_convert_u32(c, "hc_count", 2, AE_MAX_STREAMS, &n));
    const uint64_t n_all = (uint64_t)n * c->model.n_embd;
    if (t->n != n_all) return ae_convert_check_shape(c, t, 0, n_all, "by config.json");
    return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .rows = n, .columns = c->model.n_embd, .f32 = true,
                                                .change = AE_CONVERT_PLUS_ONE});
}

/* Adds the table of n-grams, which is published in parts. */
static aerie_status add_table(ae_convert *c, uint32_t layer)
{
    char name[96];
    uint32_t n = 1;
    snprintf(name, sizeof name, "layers.%u.ple.ple_embedding.ngram_embedding.weight", layer);
    const ae_st_tensor *whole = ae_convert_take(c, name);
    if (!whole) AE_TRY(ae_convert_need_u32(c, "split_ngram_parts", 1, 1 << 16, &n));
    const ae_st_tensor **parts = ae_arena_alloc(&c->arena, n, sizeof *parts);
    uint64_t *starts = ae_arena_alloc(&c->arena, n + (size_t)1, sizeof *starts);
    if (!parts || !starts) return ae_convert_no_memory(c, "the list of parts");
    starts[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "layers.%u.ple.ple_embedding.ngram_embedding.shard_%u.weight", layer, i);
        parts[i] = whole ? whole : ae_convert_take(c, name);
        if (!parts[i])
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing; config.json says that the table of n-grams "
                           "has %u parts", c->path, name, n);
        AE_TRY(ae_convert_check_shape(c, parts[i], parts[i]->shape[0], parts[0]->n_dims == 2 ? parts[0]->shape[1] : 0,
                                      "as the first part"));
        starts[i + 1] = starts[i] + parts[i]->shape[0];
    }
    return ae_convert_add(c, &(ae_convert_item){.name = "per_layer_token_embd.weight", .parts = parts, .starts = starts,
                                                .n_parts = n, .rows = starts[n], .columns = parts[0]->shape[1]});
}

/* Splits the index's matrix into queries and keys. */
static aerie_status part_index(ae_convert *c, uint32_t layer)
{
    uint32_t n_heads, dim;
    const ae_st_tensor *t;
    const uint64_t e = c->model.n_embd;
    AE_TRY(ae_convert_need_u32(c, "indexer_n_heads", 1, AE_MAX_HEADS, &n_heads));
    AE_TRY(ae_convert_need_u32(c, "indexer_head_dim", 1, AE_MAX_HEAD_DIM, &dim));
    const uint64_t n = (uint64_t)n_heads * dim;
    AE_TRY(take(c, layer, "self_attn.indexer.index_qk_proj.weight", n + dim, e, &t));
    if (!t) return AERIE_OK;
    AE_TRY(add(c, layer, "indexer.q_proj.weight", (ae_convert_item){.from = t, .rows = n, .columns = e}));
    return add(c, layer, "indexer.k_proj.weight", (ae_convert_item){.from = t, .first = n * e, .rows = dim, .columns = e});
}

/* Joins the MTP block's projections of its two inputs, that of the embedding first. */
static aerie_status join_halves(ae_convert *c, uint32_t layer)
{
    const uint64_t e = c->model.n_embd;
    const ae_st_tensor *of_embedding, *of_hidden;
    AE_TRY(take(c, layer, "e_proj.weight", e, e, &of_embedding));
    AE_TRY(take(c, layer, "h_proj.weight", e, e, &of_hidden));
    if (!of_embedding || !of_hidden)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: of mtp.fc_embedding and mtp.fc_hidden one is missing", c->path);
    return add(c, layer, "nextn.eh_proj.weight", (ae_convert_item){.from = of_embedding, .beside = of_hidden, .rows = e,
                                                                   .columns = 2 * e});
}

aerie_status ae_convert_tensors_qwen4(ae_convert *c, uint32_t layer)
{
    static const char *const norms[][2] = {{"attn_hyper_connection.hc_norm", "hc_attn_norm"},
                                           {"mlp_hyper_connection.hc_norm", "hc_ffn_norm"}, {"ple.norm_key", "ple_norm_key"},
                                           {"ple.norm_query", "ple_norm_query"}, {"ple.norm_conv", "ple_norm_conv"},
                                           {"hyper_connection_mixer.hc_norm", "nextn.hc_head_norm"},
                                           {"pre_fc_norm_hidden", "nextn.hnorm"}};
    static const char *const numbers[] = {"layer_multipliers", "ngram_heads_offsets", "ngram_heads_vocab_sizes"};
    static const ae_convert_rule end[] = {
        {"hyper_connection_mixer.input_mix_weight_down", "output_hc_down", AE_RULE_PLAIN, false},
        {"hyper_connection_mixer.input_mix_weight_up", "output_hc_up", AE_RULE_PLAIN, false}};
    uint32_t memory;
    char from[96], to[64];
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        snprintf(from, sizeof from, "layers.%u.%s.weight", layer, norms[i][0]);
        snprintf(to, sizeof to, "blk.%u.%s.weight", layer, norms[i][1]);
        AE_TRY(add_stream_norm(c, from, to));
    }
    for (size_t i = 0; i < 2 && !layer; i++) AE_TRY(ae_convert_apply(c, &end[i], "", ""));
    if (!layer) AE_TRY(add_stream_norm(c, "hyper_connection_mixer.hc_norm.weight", "output_hc_norm.weight"));
    AE_TRY(find_memory(c, &memory));
    for (size_t i = 0; i < 3 && layer == memory; i++) { /* put_memory writes these as keys */
        snprintf(from, sizeof from, "layers.%u.ple.ple_embedding.%s", layer, numbers[i]);
        ae_convert_take(c, from);
    }
    if (layer == memory) AE_TRY(add_table(c, layer));
    if (layer >= c->model.n_layers) AE_TRY(join_halves(c, layer));
    AE_TRY(part_index(c, layer));
    return ae_convert_tensors_delta(c, layer);
}

/* ---- Mamba 2 (granitehybrid, nemotron_h) -------------------------------------------------------------- */

aerie_status ae_convert_put_mamba(ae_convert_keys *k, const ae_convert *c, const char *taps, const char *state,
                                  const char *heads, const char *dim)
{
    uint32_t n_taps = 4, n_state, n_heads, head_dim;
    AE_TRY(ae_convert_u32(c, taps, 1, 64, &n_taps));
    AE_TRY(ae_convert_need_u32(c, state, 1, AE_MAX_EMBD, &n_state));
    AE_TRY(ae_convert_need_u32(c, heads, 1, AE_MAX_HEADS, &n_heads));
    AE_TRY(ae_convert_need_u32(c, dim, 1, AE_MAX_FF / n_heads, &head_dim));
    ae_convert_put_u32(k, "ssm.conv_kernel", n_taps);
    ae_convert_put_u32(k, "ssm.state_size", n_state);
    ae_convert_put_u32(k, "ssm.time_step_rank", n_heads);
    ae_convert_put_u32(k, "ssm.inner_size", n_heads * head_dim);
    ae_convert_put_u32(k, "ssm.group_count", c->model.n_groups);
    return k->status;
}

/* Returns the kind of a layer: 'M' recurrent, '*' attention, '-' feed-forward, 'E' experts, 0: another kind. */
char ae_convert_layer_kind(const ae_convert *c, uint32_t layer)
{
    static const struct {
        const char *name;
        char kind;
    } names[] = {{"linear_attention", 'M'}, {"mamba", 'M'}, {"full_attention", '*'},
                 {"attention", '*'},        {"mlp", '-'},   {"moe", 'E'}};
    const char *pattern = ae_convert_text(c, "hybrid_override_pattern");
    const json_t *types = ae_convert_value(c, "layers_block_type");
    if (!types) types = ae_convert_value(c, "layer_types");
    const char *type = json_string_value(json_array_get(types, layer));
    if (!type) return pattern && layer < strlen(pattern) ? pattern[layer] : 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(type, names[i].name) == 0) return names[i].kind;
    return 0;
}

static void put_heads(ae_convert_keys *k, const ae_convert *c, const uint32_t *n_kv)
{
    ae_convert_put_array(k, "attention.head_count_kv", AE_GGUF_U32, n_kv, c->model.n_layers);
    ae_convert_put_u32(k, "attention.key_length", c->model.head_dim);
    ae_convert_put_u32(k, "attention.value_length", c->model.head_dim);
}

aerie_status ae_convert_keys_granitehybrid(ae_convert_keys *k, const ae_convert *c)
{
    const char *positions = ae_convert_text(c, "position_embedding_type");
    uint32_t n_kv[AE_MAX_LAYERS] = {0}, n_ff = 0;
    for (uint32_t i = 0; i < c->model.n_layers; i++) {
        const char kind = ae_convert_layer_kind(c, i);
        if (kind != 'M' && kind != '*') return fail_kind(c, i);
        n_kv[i] = kind == '*' ? c->model.n_kv_heads : 0;
    }
    put_heads(k, c, n_kv);
    AE_TRY(ae_convert_u32(c, c->model.n_experts ? "intermediate_size" : "shared_intermediate_size", 1, AE_MAX_FF, &n_ff));
    ae_convert_put_u32(k, "feed_forward_length", n_ff);
    ae_convert_put_bool(k, "rope.scaling.finetuned", positions && strcmp(positions, "rope") == 0);
    return ae_convert_put_mamba(k, c, "mamba_d_conv", "mamba_d_state", "mamba_n_heads", "mamba_d_head");
}

aerie_status ae_convert_keys_nemotron(ae_convert_keys *k, const ae_convert *c)
{
    uint32_t n_kv[AE_MAX_LAYERS] = {0}, n_ff[AE_MAX_LAYERS] = {0}, dense = 0, experts = 0, latent = 0;
    AE_TRY(ae_convert_u32(c, "intermediate_size", 1, AE_MAX_FF, &dense));
    AE_TRY(ae_convert_u32(c, "moe_intermediate_size", 1, AE_MAX_FF, &experts));
    AE_TRY(ae_convert_u32(c, "moe_latent_size", 0, AE_MAX_EMBD, &latent));
    for (uint32_t i = 0; i < c->model.n_layers; i++) {
        const char kind = ae_convert_layer_kind(c, i);
        if (kind != 'M' && kind != '*' && kind != (c->model.n_experts ? 'E' : '-')) return fail_kind(c, i);
        n_kv[i] = kind == '*' ? c->model.n_kv_heads : 0;
        n_ff[i] = kind == '-' ? dense : kind == 'E' ? experts : 0;
    }
    put_heads(k, c, n_kv);
    ae_convert_put_array(k, "feed_forward_length", AE_GGUF_U32, n_ff, c->model.n_layers);
    if (c->model.n_experts && latent) ae_convert_put_u32(k, "moe_latent_size", latent);
    return ae_convert_put_mamba(k, c, "conv_kernel", "ssm_state_size", "mamba_num_heads", "mamba_head_dim");
}

/* ---- Gemma 4 ------------------------------------------------------------------------------------------ */

/* Returns the number of rows of a tensor of the layer; 0: there is none. */
static uint32_t rows_of(const ae_convert *c, uint32_t layer, const char *part)
{
    char name[96];
    snprintf(name, sizeof name, "layers.%u.%s", layer, part);
    const ae_st_tensor *t = ae_convert_look(c, name);
    return t && t->shape[0] <= INT32_MAX ? (uint32_t)t->shape[0] : 0;
}

typedef struct gemma4_sizes {
    bool windowed[AE_MAX_LAYERS];
    uint32_t head_dim[2]; /* of layers without a window, and of those with one; 0: there are none */
    uint32_t n_kv[AE_MAX_LAYERS], n_ff[AE_MAX_LAYERS], n_shared;
} gemma4_sizes;

/* Reads the sizes from the tensors, because they depend on the kind of layer, and configs express them in several ways. Layers
 * that read the keys and values of earlier ones have the KV heads of those. */
static aerie_status read_gemma4(const ae_convert *c, gemma4_sizes *s)
{
    const uint32_t n = c->model.n_layers;
    uint32_t n_kv[2] = {0};
    *s = (gemma4_sizes){.n_shared = 0};
    ae_convert_find_windows(c, c->arch->window_period, s->windowed);
    AE_TRY(ae_convert_u32(c, "num_kv_shared_layers", 0, n, &s->n_shared));
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t dim = rows_of(c, i, "self_attn.q_norm.weight"), k_rows = rows_of(c, i, "self_attn.k_proj.weight");
        uint32_t *usual = &s->head_dim[s->windowed[i]];
        if (!dim || dim > AE_MAX_HEAD_DIM || (*usual && *usual != dim) || k_rows % dim) return fail_kind(c, i);
        *usual = dim;
        if (i + s->n_shared < n) n_kv[s->windowed[i]] = k_rows / dim;
        s->n_kv[i] = n_kv[s->windowed[i]];
        s->n_ff[i] = rows_of(c, i, "mlp.gate_proj.weight");
    }
    return AERIE_OK;
}

static const json_t *gemma4_rope(const ae_convert *c, const char *kind, const char *key)
{
    return json_object_get(json_object_get(ae_convert_value(c, "rope_parameters"), kind), key);
}

aerie_status ae_convert_keys_gemma4(ae_convert_keys *k, const ae_convert *c)
{
    gemma4_sizes s;
    uint32_t window = 0;
    double base = 1e6, base_window = 1e4;
    AE_TRY(read_gemma4(c, &s));
    AE_TRY(ae_convert_u32(c, "sliding_window", 1, INT32_MAX, &window));
    AE_TRY(ae_convert_real(c, gemma4_rope(c, "full_attention", "rope_theta"), "rope_theta", 1.001, 1e12, &base));
    AE_TRY(ae_convert_real(c, gemma4_rope(c, "sliding_attention", "rope_theta"), "rope_theta", 1.001, 1e12, &base_window));
    const uint32_t full = s.head_dim[0] ? s.head_dim[0] : s.head_dim[1], swa = s.head_dim[1] ? s.head_dim[1] : full;
    ae_convert_put_array(k, "attention.head_count_kv", AE_GGUF_U32, s.n_kv, c->model.n_layers);
    ae_convert_put_array(k, "feed_forward_length", AE_GGUF_U32, s.n_ff, c->model.n_layers);
    ae_convert_put_array(k, "attention.sliding_window_pattern", AE_GGUF_BOOL, s.windowed, c->model.n_layers);
    ae_convert_put_u32(k, "attention.sliding_window", window);
    ae_convert_put_u32(k, "attention.key_length", full);
    ae_convert_put_u32(k, "attention.value_length", full);
    ae_convert_put_u32(k, "attention.key_length_swa", swa);
    ae_convert_put_u32(k, "attention.value_length_swa", swa);
    ae_convert_put_u32(k, "rope.dimension_count", full);
    ae_convert_put_u32(k, "rope.dimension_count_swa", swa);
    ae_convert_put_f32(k, "rope.freq_base", base);
    ae_convert_put_f32(k, "rope.freq_base_swa", base_window);
    return k->status;
}

/* Adds the divisors of layers without a window, once: pairs beyond the rotated part must not turn. */
aerie_status ae_convert_tensors_gemma4(ae_convert *c, uint32_t layer)
{
    gemma4_sizes s;
    double part = 1;
    if (layer) return AERIE_OK;
    AE_TRY(read_gemma4(c, &s));
    AE_TRY(ae_convert_real(c, gemma4_rope(c, "full_attention", "partial_rotary_factor"), "partial_rotary_factor", 0, 1, &part));
    const uint32_t half = s.head_dim[0] / 2, turning = (uint32_t)(part * half);
    float *divisors = half ? ae_arena_alloc(&c->arena, half, sizeof *divisors) : NULL;
    if (!half) return AERIE_OK;
    if (!divisors) return ae_convert_no_memory(c, "the frequencies of the rotation");
    for (uint32_t i = 0; i < half; i++) divisors[i] = i < turning ? 1.0f : 1e30f;
    return ae_convert_add(c, &(ae_convert_item){.name = "rope_freqs.weight", .how = AE_CONVERT_VALUES, .values = divisors,
                                                .columns = half});
}

/* ---- dots3-note ------------------------------------------------------------------------------------------------- */

/* The sizes of a layer: windowed layers and the MTP block have their own. */
typedef struct dots_sizes {
    uint32_t n_heads, latent, rope, nope, value;
} dots_sizes;

static bool is_windowed(const ae_convert *c, uint32_t layer)
{
    const char *type = json_string_value(json_array_get(ae_convert_value(c, "layer_types"), layer));
    return layer >= c->model.n_layers || (type && strcmp(type, "sliding_attention") == 0);
}

static aerie_status read_dots(const ae_convert *c, bool windowed, dots_sizes *s)
{
    const struct {
        const char *key;
        uint32_t lo, hi, *to;
    } all[] = {{"swa_num_attention_heads", 1, AE_MAX_HEADS, &s->n_heads}, {"swa_kv_lora_rank", 1, AE_MAX_EMBD, &s->latent},
               {"swa_qk_rope_head_dim", 2, AE_MAX_HEAD_DIM, &s->rope}, {"swa_qk_nope_head_dim", 1, AE_MAX_HEAD_DIM, &s->nope},
               {"swa_v_head_dim", 1, AE_MAX_HEAD_DIM, &s->value}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        AE_TRY(ae_convert_need_u32(c, all[i].key + (windowed ? 0 : strlen("swa_")), all[i].lo, all[i].hi, all[i].to));
    return AERIE_OK;
}

/* Copies the windowed layers' sizes and the two rotations from the objects in which transformers saves them. */
aerie_status ae_convert_begin_dots3(ae_convert *c)
{
    static const char *const names[] = {"num_attention_heads", "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim",
                                        "qk_nope_head_dim", "v_head_dim"};
    json_t *to = json_is_object(c->layer) ? c->layer : c->config;
    const json_t *each = ae_convert_value(c, "per_layer_config"), *turns = ae_convert_value(c, "rope_parameters");
    json_t *own = json_object_iter_value(json_object_iter((json_t *)each)), *window;
    const json_t *bases[] = {json_object_get(turns, "indexed_attention"), json_object_get(turns, "sliding_attention")};
    ae_convert_entry *embedding = ae_convert_find(c, "mtp.embed_tokens.weight"); /* of the MTP block */
    bool ok = true;
    if (embedding) {
        uint32_t n = 0;
        char name[48];
        AE_TRY(ae_convert_need_u32(c, "num_hidden_layers", 1, AE_MAX_LAYERS, &n));
        snprintf(name, sizeof name, "layers.%u.embed_tokens.weight", n);
        embedding->name = ae_arena_strndup(&c->arena, name, strlen(name));
        if (!embedding->name) return ae_convert_no_memory(c, "the names of tensors");
        AE_TRY(ae_convert_sort_names(c));
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[48];
        json_t *value = json_object_get(own, names[i]);
        snprintf(name, sizeof name, "swa_%s", names[i]);
        if (value && !ae_convert_value(c, name)) ok &= json_object_set(to, name, value) == 0;
    }
    for (size_t i = 0; i < 2; i++) {
        json_t *base = json_object_get(bases[i], "rope_theta");
        if (base) ok &= json_object_set(to, i ? "swa_rope_theta" : "rope_theta", base) == 0;
    }
    if (bases[0]) ok &= json_object_set_new(to, "rope_parameters", json_object()) == 0;
    window = (json_t *)ae_convert_value(c, "sliding_window_size");
    if (window) ok &= json_object_set(to, "sliding_window", window) == 0;
    /* the rotated part is rotated completely; the given share is that of a whole head */
    ok &= json_object_set_new(to, "partial_rotary_factor", json_real(1)) == 0;
    return ok ? AERIE_OK : ae_convert_no_memory(c, "the configuration");
}

aerie_status ae_convert_keys_dots3(ae_convert_keys *k, const ae_convert *c)
{
    const uint32_t n = c->model.n_layers, n_all = n + c->model.n_ahead;
    uint32_t heads[AE_MAX_LAYERS], rank = 0, own_rank = 0, n_dense = 1;
    uint8_t windowed[AE_MAX_LAYERS], indexed[AE_MAX_LAYERS];
    dots_sizes plain, late;
    double base = 50000;
    AE_TRY(read_dots(c, false, &plain));
    AE_TRY(read_dots(c, true, &late));
    AE_TRY(ae_convert_need_u32(c, "q_lora_rank", 1, AE_MAX_EMBD, &rank));
    AE_TRY(ae_convert_u32(c, "swa_q_lora_rank", 1, AE_MAX_EMBD, &own_rank));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "swa_rope_theta"), "swa_rope_theta", 1.001, 1e12, &base));
    if ((own_rank && own_rank != rank) || late.rope != plain.rope)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'q_lora_rank' and 'qk_rope_head_dim' must be the same with swa_ "
                       "before them; GGUF files of architecture %s have one of each", c->config_path, c->arch->arch);
    for (uint32_t i = 0; i < n_all && i < AE_MAX_LAYERS; i++) {
        windowed[i] = is_windowed(c, i);
        indexed[i] = !windowed[i];
        heads[i] = windowed[i] ? late.n_heads : plain.n_heads;
    }
    ae_convert_put_array(k, "attention.head_count", AE_GGUF_U32, heads, n_all);
    ae_convert_put_array(k, "attention.sliding_window_pattern", AE_GGUF_BOOL, windowed, n);
    ae_convert_put_array(k, "attention.indexer.types", AE_GGUF_BOOL, indexed, n);
    ae_convert_put_u32(k, "attention.kv_lora_rank_swa", late.latent);
    ae_convert_put_u32(k, "attention.key_length_swa", late.latent + late.rope);
    ae_convert_put_u32(k, "attention.value_length_swa", late.latent);
    ae_convert_put_u32(k, "attention.key_length_mla_swa", late.nope + late.rope);
    ae_convert_put_u32(k, "attention.value_length_mla_swa", late.value);
    ae_convert_put_f32(k, "rope.freq_base_swa", base);
    AE_TRY(ae_convert_keys_mla(k, c));
    if (ae_convert_value(c, "mlp_layer_types")) return ae_convert_put_dense(k, c);
    AE_TRY(ae_convert_u32(c, "first_k_dense_replace", 0, AE_MAX_LAYERS, &n_dense));
    ae_convert_put_u32(k, "leading_dense_block_count", n_dense);
    return k->status;
}

/* If the checkpoint asks for it, multiplies the weights of a norm of low-rank rows by sqrt(n_embd / rank), which the published
 * code does after the norm. */
static aerie_status scale_norm(ae_convert *c, uint32_t layer, const char *part, uint32_t rank)
{
    char name[64];
    bool wanted = false;
    AE_TRY(ae_convert_bool(c, "apply_mla_qkv_lora_rescale", &wanted, NULL));
    /* transformers' class always does it, without a setting */
    if (!wanted && !ae_convert_value(c, "per_layer_config")) return AERIE_OK;
    snprintf(name, sizeof name, "blk.%u.%s.weight", layer, part);
    for (size_t i = 0; i < c->n_items; i++) {
        float *factor;
        if (strcmp(c->items[i].name, name)) continue;
        factor = ae_arena_alloc(&c->arena, 1, sizeof *factor);
        if (!factor) return ae_convert_no_memory(c, "a factor");
        *factor = (float)sqrt((double)c->model.n_embd / rank);
        c->items[i].factors = factor;
    }
    return AERIE_OK;
}

aerie_status ae_convert_tensors_dots3(ae_convert *c, uint32_t layer)
{
    dots_sizes s;
    uint32_t rank = 1;
    const ae_st_tensor *t;
    AE_TRY(read_dots(c, is_windowed(c, layer), &s));
    AE_TRY(ae_convert_need_u32(c, "q_lora_rank", 1, AE_MAX_EMBD, &rank));
    AE_TRY(scale_norm(c, layer, "attn_q_a_norm", rank));
    AE_TRY(scale_norm(c, layer, "attn_kv_a_norm", s.latent));
    const uint64_t n = s.n_heads, head = (uint64_t)(s.nope + s.value) * s.latent;
    AE_TRY(take(c, layer, "self_attn.kv_b_proj.weight", n * (s.nope + s.value), s.latent, &t));
    if (!t) return AERIE_OK;
    AE_TRY(add(c, layer, "attn_k_b.weight", (ae_convert_item){.from = t, .n_stack = n, .rows = s.latent, .columns = s.nope,
                                                              .stack_step = head, .row_step = 1, .step = s.latent}));
    return add(c, layer, "attn_v_b.weight", (ae_convert_item){.from = t, .first = (uint64_t)s.nope * s.latent, .n_stack = n,
                                                              .rows = s.value, .columns = s.latent, .stack_step = head});
}
