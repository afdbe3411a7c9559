/* adapter.c - converts LoRA adapters of PEFT (adapter_config.json, adapter_model.safetensors) to the GGUF file for --lora.
 * Owns the assignment of the checkpoint's pairs to the target's matrices, and the scale. The target (--target) determines the
 * architecture, and with it the rules that name matrices (archs.c), the shapes, and the order of rows of queries and keys.
 * Does not own running adapters (engine/weights/adapter.h). Invariant: every tensor of the checkpoint is written, or refused by
 * name, so no part of an adapter is silently lost. Sources: PEFT's LoraConfig and its names of tensors; llama.cpp's
 * convert_lora_to_gguf.py for the file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/archs/arch.h"

static const char suffix_a[] = ".lora_A.weight", suffix_b[] = ".lora_B.weight";

static aerie_status fail_config(const ae_convert *c, const char *what)
{
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: %s", c->config_path, what);
}

/* Refuses settings that change the product B A x by more than a factor. */
static aerie_status check_config(const ae_convert *c)
{
    static const char *const switches[] = {"use_dora", "use_qalora", "fan_in_fan_out", "use_bdlora"};
    const char *type = ae_convert_text(c, "peft_type");
    char text[160];
    if (!c->config)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: there is no adapter_config.json beside the adapter's weights",
                       c->path);
    if (!type || strcmp(type, "LORA")) {
        snprintf(text, sizeof text, "'peft_type' is %.40s; only LORA can be converted", type ? type : "missing");
        return fail_config(c, text);
    }
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        bool on = false;
        AE_TRY(ae_convert_bool(c, switches[i], &on, NULL));
        snprintf(text, sizeof text, "'%s' is true; only adapters of plain LoRA can be converted", switches[i]);
        if (on) return fail_config(c, text);
    }
    if (json_object_size(ae_convert_value(c, "alpha_pattern")))
        return fail_config(c, "'alpha_pattern' gives matrices scales of their own; a GGUF file has one 'lora_alpha' for all");
    if (json_is_array(ae_convert_value(c, "alora_invocation_tokens")))
        return fail_config(c, "'alora_invocation_tokens' makes it an activated LoRA, which aerie does not run");
    return AERIE_OK;
}

/* Reads alpha. PEFT scales by alpha / r, or with use_rslora by alpha / sqrt(r); readers of GGUF files by alpha / r, with the
 * rank of each pair. */
static aerie_status read_alpha(ae_convert *c)
{
    uint32_t rank = 0;
    bool by_root = false;
    double alpha = 8; /* PEFT's default */
    AE_TRY(ae_convert_need_u32(c, "r", 1, 1 << 20, &rank));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "lora_alpha"), "lora_alpha", 1e-9, 1e9, &alpha));
    AE_TRY(ae_convert_bool(c, "use_rslora", &by_root, NULL));
    if (by_root && json_object_size(ae_convert_value(c, "rank_pattern")))
        return fail_config(c, "'use_rslora' with 'rank_pattern' has no place in a GGUF file, whose scale is divided by each "
                              "rank");
    c->adapter.alpha = by_root ? alpha * sqrt(rank) : alpha;
    return AERIE_OK;
}

static aerie_status adapter_detect(ae_convert *c, bool *mine)
{
    static const ae_convert_rename renames[] = {
        {"base_model.model.", ""}, {"language_model.", ""}, {"model.language_model.", ""}, {"model.", ""}, {"backbone.", ""}};
    const ae_model_options how = {.no_mmap = true};
    *mine = c->is_adapter;
    if (!*mine) return AERIE_OK;
    AE_TRY(ae_convert_read_names(c, renames, sizeof renames / sizeof *renames));
    AE_TRY(check_config(c));
    AE_TRY(read_alpha(c));
    AE_TRY(ae_model_load(&c->target, c->options.target, &how, c->error));
    c->adapter.arch = c->target->hparams.arch;
    const ae_convert_arch *arch;
    for (size_t i = 0; !c->arch && (arch = ae_convert_arch_at(i)); i++)
        if (strcmp(arch->arch, c->adapter.arch) == 0) c->arch = arch;
    if (c->arch) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: adapters of architecture %s cannot be converted: the names of its "
                   "matrices in other checkpoints are not known", c->options.target, c->adapter.arch);
}

/* ---- Pairs ---------------------------------------------------------------------------------------------- */

static const ae_convert_rule *find_rule(const ae_convert_rule *rules, const char *part)
{
    for (const ae_convert_rule *r = rules; r && r->from; r++) {
        const bool whole = r->kind == AE_RULE_PLAIN || r->kind == AE_RULE_Q || r->kind == AE_RULE_K;
        if (!r->exact && whole && strcmp(r->from, part) == 0) return r;
    }
    return NULL;
}

/* Returns the matrix of the target for `base` ("layers.3.self_attn.q_proj"), and its name in name [96], or NULL. */
static const ae_gguf_tensor *find_matrix(const ae_convert *c, const char *base, const ae_convert_rule **rule, uint32_t *layer,
                                         char *name)
{
    char *end = NULL;
    *rule = NULL;
    *layer = 0;
    if (strncmp(base, "layers.", 7)) {
        *rule = find_rule(ae_convert_global_rules, base);
        if (*rule) snprintf(name, 96, "%s.weight", (*rule)->to);
    } else {
        const unsigned long i = strtoul(base + 7, &end, 10);
        if (end == base + 7 || *end != '.' || i >= c->target->hparams.n_layers) return NULL;
        *layer = (uint32_t)i;
        *rule = find_rule(c->arch->rules, end + 1);
        if (!*rule) *rule = find_rule(ae_convert_shared_rules, end + 1);
        if (*rule) snprintf(name, 96, "blk.%lu.%s.weight", i, (*rule)->to);
    }
    const ae_gguf_tensor *t = *rule ? ae_gguf_tensor_find(c->target->gguf, name) : NULL;
    return t && t->n_dims == 2 ? t : NULL;
}

static aerie_status add(ae_convert *c, const char *matrix, const char *part, ae_convert_item item)
{
    char name[112];
    snprintf(name, sizeof name, "%s.%s", matrix, part);
    item.name = name;
    item.rows = item.from->shape[0], item.columns = item.from->shape[1];
    return ae_convert_add(c, &item);
}

/* Returns the rotation of a model's layers; NULL: none of them rotates. All layers have their rows in the order for this
 * rotation, even those that do not rotate. */
static const ae_rope *rope_of(const ae_model *model)
{
    for (uint32_t i = 0; i < model->hparams.n_layers; i++)
        if (model->layers[i].spec.rope >= 0) return &model->hparams.ropes[model->layers[i].spec.rope];
    return NULL;
}

static aerie_status add_pair(ae_convert *c, const ae_convert_entry *entry_a, const char *base)
{
    char name[96], name_b[192], why[256];
    const ae_convert_rule *rule;
    uint32_t layer;
    const ae_gguf_tensor *matrix = find_matrix(c, base, &rule, &layer, name);
    snprintf(name_b, sizeof name_b, "%s%s", base, suffix_b);
    const ae_st_tensor *a = entry_a->tensor, *b = ae_convert_take(c, name_b);
    if (!b) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s has no counterpart lora_B", c->path, a->name);
    if (!matrix)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s: %s has no matrix for it that an adapter can change; "
                       "--skip leaves it out", c->path, a->name, c->options.target);
    snprintf(why, sizeof why, "by %s of %.80s", name, c->options.target);
    AE_TRY(ae_convert_check_shape(c, a, a->shape[0], (uint64_t)matrix->ne[0], why));
    AE_TRY(ae_convert_check_shape(c, b, (uint64_t)matrix->ne[1], a->shape[0], why));
    const ae_layer_spec *spec = &c->target->layers[layer].spec;
    const ae_rope *rope = rope_of(c->target);
    const bool turns = (rule->kind == AE_RULE_Q || rule->kind == AE_RULE_K) && (c->arch->flags & AE_ARCH_PAIRS) && rope &&
                       spec->head_dim && b->shape[0] % spec->head_dim == 0;
    ae_convert_item item_b = {.from = b};
    if (turns) {
        item_b.how = AE_CONVERT_ROTATED, item_b.head_dim = spec->head_dim;
        item_b.n_rot = rope->n_rot;
    }
    AE_TRY(add(c, name, "lora_a", (ae_convert_item){.from = a}));
    AE_TRY(add(c, name, "lora_b", item_b));
    c->adapter.n_pairs++;
    if (a->shape[0] > c->adapter.rank) c->adapter.rank = (uint32_t)a->shape[0];
    return AERIE_OK;
}

static bool is_number(const ae_st_tensor *t)
{
    return t->dtype == AE_ST_F32 || t->dtype == AE_ST_F16 || t->dtype == AE_ST_BF16 || t->dtype == AE_ST_F64;
}

static aerie_status adapter_plan(ae_convert *c)
{
    c->out_type = c->options.type != AE_CONVERT_TYPE_AUTO ? c->options.type : AE_TYPE_F32;
    for (size_t i = 0; i < c->n_entries; i++) {
        ae_convert_entry *e = &c->entries[i];
        const size_t n = strlen(e->name), n_a = strlen(suffix_a);
        char base[128];
        if (!is_number(e->tensor))
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s has type %s, but must be F32, F16, BF16 or F64",
                           c->path, e->tensor->name, ae_st_dtype_name(e->tensor->dtype));
        if (n <= n_a || n - n_a >= sizeof base || strcmp(e->name + n - n_a, suffix_a)) continue;
        if (e->tensor->n_dims != 2)
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is not a matrix", c->path, e->tensor->name);
        snprintf(base, sizeof base, "%.*s", (int)(n - n_a), e->name);
        e->used = true;
        AE_TRY(add_pair(c, e, base));
    }
    const ae_convert_entry *left = ae_convert_unused(c, NULL, 0);
    if (left)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s is not part of a pair lora_A, lora_B of a matrix, "
                       "which is all that --lora takes; --skip leaves it out", c->path, left->tensor->name);
    if (c->adapter.n_pairs) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: contains no pair lora_A, lora_B", c->path);
}

static aerie_status adapter_keys(const ae_convert *c, ae_gguf_writer *w)
{
    ae_convert_keys k = {.w = w, .arch = c->adapter.arch, .error = c->error};
    ae_convert_put_general(&k, c);
    ae_convert_put_name(&k, "general.type", "adapter");
    ae_convert_put_name(&k, "adapter.type", "lora");
    if (k.status == AERIE_OK) k.status = ae_gguf_writer_f32(w, "adapter.lora.alpha", (float)c->adapter.alpha, c->error);
    return k.status;
}

/* Needs no checks: the plan has compared all shapes with the target's. */
static aerie_status adapter_check(ae_convert *c)
{
    (void)c;
    return AERIE_OK;
}

const ae_convert_kind ae_convert_adapter_kind = {adapter_detect, adapter_plan, adapter_keys, adapter_check};
