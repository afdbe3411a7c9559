/* decision.c - decision models made of Qwen 3.5 (docs/decisions.md). Clef has a joint head: joint_head_config.json and
 * joint_head.safetensors beside the trunk are read, and the tensors and keys planned that model/bind_decision.c reads. OpenJev,
 * whose folder has helper/shim.py, is a language model with a prompt and temperatures of its own.
 *
 * Owns nothing: the head's file belongs to the conversion. The head's tensors stand in the list of all tensors as
 * "joint_head.NAME". Every shape is checked here, against the trunk's width and the head's own.
 * Source: the names of the published checkpoint, and the GGUF files that llama.cpp reads. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math/fmath.h"
#include "convert/archs/arch.h"

#define CONFIG "joint_head_config.json"
#define TENSORS "joint_head.safetensors"
#define PREFIX "joint_head."

enum { MAX_SCALE = 100 };

/* The prompt with which Clef was trained. Keys of JSON come sorted; the pieces between `sep` are tokenized one by one; the
 * pieces of a question and of an option begin with their marks. */
const char ae_convert_systemone_clef[] =
    "{% macro text(v) %}{{ v if v is string else v | tojson(separators=[',', ':']) }}{% endmacro %}"
    "{{ \"<|im_start|>system\\nRead the complete state and schema. Decide every field jointly. Each answer must be exactly one "
    "of that field's allowed options.<|im_end|>\\n<|im_start|>user\\nSTATE:\\n\" }}"
    "{% if images %}{{ sep }}{% for image in images %}{{ image }}{% endfor %}{{ \"\\n\" }}{% endif %}"
    "{{ sep }}{{ text(state) }}{{ sep }}{{ \"\\n\\nSCHEMA FIELDS:\\n\" }}"
    "{% for q in questions %}"
    "{{ sep }}{{ \"\\nFIELD \" }}{{ loop.index }}{{ \"\\nID: \" }}{{ q.id }}{{ \"\\nTYPE: \" }}{{ q.type }}"
    "{{ \"\\nINSTRUCTION: \" }}{{ sep }}{{ mark_question }}{{ text(q.instructions) }}{{ sep }}{{ \"\\nALLOWED OPTIONS:\\n\" }}"
    "{% for o in q.options %}"
    "{{ sep }}{{ \"OPTION \" }}{{ loop.index }}{{ \": \" }}{{ sep }}{{ mark_option }}"
    "{% if o.description is not none %}"
    "{{ {'description': o.description, 'option_id': o.key} | tojson(separators=[',', ':']) }}"
    "{% elif q.type != 'noul' %}{{ {'option_id': o.key} | tojson(separators=[',', ':']) }}"
    "{% elif o.key == 'true' %}{{ {'description': 'The proposition is true or the answer is yes.', 'option_id': o.key} "
    "| tojson(separators=[',', ':']) }}"
    "{% else %}{{ {'description': 'The proposition is false or the answer is no.', 'option_id': o.key} "
    "| tojson(separators=[',', ':']) }}{% endif %}"
    "{{ sep }}{{ \"\\n\" }}{% endfor %}"
    "{{ sep }}{{ \"END FIELD\\n\" }}{% endfor %}"
    "{{ sep }}{{ \"\\n<|im_end|>\\n<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\nJOINT SCHEMA DECISIONS:\" }}";

/* ---- The head's files --------------------------------------------------------------------------------- */

/* Sets *path to a file of the folder, in the arena. */
static aerie_status path_of(ae_convert *c, const char *name, const char **path)
{
    char *text = ae_convert_path_in(c, name);
    *path = text ? ae_arena_strndup(&c->arena, text, strlen(text)) : NULL;
    ae_free(text);
    return *path ? AERIE_OK : ae_convert_no_memory(c, "a path");
}

aerie_status ae_convert_has_decision(ae_convert *c, bool *has)
{
    const char *config, *tensors;
    AE_TRY(path_of(c, CONFIG, &config));
    AE_TRY(path_of(c, TENSORS, &tensors));
    const bool has_config = ae_file_exists(config), has_tensors = ae_file_exists(tensors);
    *has = has_config || has_tensors;
    if (has_config == has_tensors) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_IO, "%s: this file is missing; %s beside it says that the model has a decision head",
                   has_config ? tensors : config, has_config ? CONFIG : TENSORS);
}

static aerie_status read_count(const ae_convert *c, const json_t *json, const char *path, const char *key, uint32_t lo,
                               uint32_t hi, uint32_t *value)
{
    const json_t *number = json_object_get(json, key);
    const json_int_t n = json_integer_value(number);
    if (!number || json_is_null(number)) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' is missing", path, key);
    if (!json_is_integer(number) || n < (json_int_t)lo || n > (json_int_t)hi)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' must be a whole number from %u to %u", path, key, lo, hi);
    *value = (uint32_t)n;
    return AERIE_OK;
}

static aerie_status read_counts(const ae_convert *c, const json_t *json, const char *path, ae_decision_hparams *d)
{
    uint32_t n_joint = 0;
    AE_TRY(read_count(c, json, path, "routing_layers", 0, AE_MAX_LAYERS, &d->n_routing));
    AE_TRY(read_count(c, json, path, "layers", d->n_routing ? 0 : 1, AE_MAX_LAYERS, &n_joint));
    AE_TRY(read_count(c, json, path, "heads", 1, AE_MAX_HEADS, &d->n_heads));
    d->n_blocks = d->n_routing + n_joint;
    return AERIE_OK;
}

/* Adds the head's tensors to the list. */
static aerie_status join_names(ae_convert *c)
{
    const size_t n = ae_safetensors_n_tensors(c->joint);
    ae_convert_entry *all = ae_arena_alloc(&c->arena, c->n_entries + n, sizeof *all);
    if (!all) return ae_convert_no_memory(c, "the names of tensors");
    memcpy(all, c->entries, c->n_entries * sizeof *all);
    c->entries = all;
    for (size_t i = 0; i < n; i++) {
        const ae_st_tensor *t = ae_safetensors_tensor_at(c->joint, i);
        if (ae_convert_is_skipped(c, t->name)) continue;
        ae_buf name = {0};
        ae_buf_addf(&name, PREFIX "%s", t->name);
        const char *copy = name.failed ? NULL : ae_arena_strndup(&c->arena, name.data, name.n);
        ae_buf_free(&name);
        if (!copy) return ae_convert_no_memory(c, "the names of tensors");
        all[c->n_entries++] = (ae_convert_entry){.name = copy, .tensor = t};
    }
    return ae_convert_sort_names(c);
}

aerie_status ae_convert_begin_clef(ae_convert *c)
{
    const char *path;
    json_t *json;
    AE_TRY(ae_convert_read_json(c, CONFIG, &json));
    aerie_status status = path_of(c, CONFIG, &path);
    if (status == AERIE_OK) status = read_counts(c, json, path, &c->model.decision);
    json_decref(json);
    AE_TRY(status);
    AE_TRY(path_of(c, TENSORS, &path));
    AE_TRY(ae_safetensors_open(&c->joint, path, c->error));
    return join_names(c);
}

/* ---- Tensors -------------------------------------------------------------------------------------------- */

typedef enum size {
    NONE, /* a vector has no rows */
    ONE,
    KINDS, /* of questions */
    EMBD, /* the trunk's */
    HEAD,
    HEAD_4,
    FF,
} size;

typedef struct part {
    const char *from, *to; /* without .weight and .bias */
    size rows, columns;
    bool bias, f32;
} part;

static const part whole[] = {
    {"hidden_norm", "decision.hidden_norm", NONE, EMBD, true, true},
    {"option_summary_norm", "decision.option_summary_norm", NONE, HEAD, true, true},
    {"field_norm", "decision.field_norm", NONE, HEAD, true, true},
    {"option_norm", "decision.option_norm", NONE, HEAD, true, true},
    {"memory_projection", "decision.proj_memory", HEAD, EMBD, false, false},
    {"question_projection", "decision.proj_question", HEAD, EMBD, false, false},
    {"option_question_projection", "decision.proj_option_question", HEAD, EMBD, false, false},
    {"global_projection", "decision.proj_global", HEAD, EMBD, false, false},
    {"option_context_projection", "decision.proj_option_context", HEAD, EMBD, false, false},
    {"option_lexical_projection", "decision.proj_option_lexical", HEAD, EMBD, false, false},
    {"type_embedding", "token_types", KINDS, HEAD, false, true},
    {"residual_scorer.0", "decision.scorer", HEAD, HEAD_4, true, false},
    {"residual_scorer.3", "decision.scorer_out", ONE, HEAD, true, false},
};
#define N_WHOLE (sizeof whole / sizeof *whole)

/* Parts of blocks; attention is split by itself. */
static const part routing[] = {
    {"query_norm", "cross_attn_norm", NONE, HEAD, true, true},
    {"memory_norm", "cross_attn_norm_kv", NONE, HEAD, true, true},
    {"feedforward_norm", "ffn_norm", NONE, HEAD, true, true},
    {"attention.out_proj", "cross_attn_o", HEAD, HEAD, true, false},
    {"feedforward.0", "ffn_up", FF, HEAD, true, false},
    {"feedforward.3", "ffn_down", HEAD, FF, true, false},
};
static const part joint[] = {
    {"norm1", "attn_norm", NONE, HEAD, true, true},
    {"norm2", "cross_attn_norm", NONE, HEAD, true, true},
    {"norm3", "ffn_norm", NONE, HEAD, true, true},
    {"self_attn.out_proj", "attn_o", HEAD, HEAD, true, false},
    {"multihead_attn.out_proj", "cross_attn_o", HEAD, HEAD, true, false},
    {"linear1", "ffn_up", FF, HEAD, true, false},
    {"linear2", "ffn_down", HEAD, FF, true, false},
};

static uint64_t size_of(const ae_convert *c, size s)
{
    const ae_decision_hparams *d = &c->model.decision;
    const uint64_t sizes[] = {[NONE] = 0, [ONE] = 1, [KINDS] = 3, [EMBD] = c->model.n_embd, [HEAD] = d->n_embd,
                              [HEAD_4] = 4 * (uint64_t)d->n_embd, [FF] = d->n_ff};
    return sizes[s];
}

static const char *file_of(const ae_convert *c)
{
    return ae_safetensors_file(c->joint, 0);
}

/* Takes a tensor of floats. */
static aerie_status take(ae_convert *c, const char *name, const ae_st_tensor **t)
{
    char full[128];
    const ae_decision_hparams *d = &c->model.decision;
    snprintf(full, sizeof full, PREFIX "%s", name);
    *t = ae_convert_take(c, full);
    if (!*t)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing; " CONFIG " says that there are %u routing "
                       "blocks and %u joint ones", file_of(c), name, d->n_routing, d->n_blocks - d->n_routing);
    const ae_st_dtype type = (*t)->dtype;
    if (type == AE_ST_F32 || type == AE_ST_F16 || type == AE_ST_BF16 || type == AE_ST_F64) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s has type %s, but must be F32, F16, BF16 or F64",
                   file_of(c), name, ae_st_dtype_name(type));
}

static aerie_status take_shaped(ae_convert *c, const char *name, uint64_t rows, uint64_t columns, const ae_st_tensor **t)
{
    char shape[128];
    AE_TRY(take(c, name, t));
    const uint64_t *s = (*t)->shape;
    const uint32_t n = (*t)->n_dims;
    if (rows ? n == 2 && s[0] == rows && s[1] == columns : n == 1 && s[0] == columns) return AERIE_OK;
    ae_convert_shape(*t, shape);
    if (!rows)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; [%llu] is needed", file_of(c), name, shape,
                       (unsigned long long)columns);
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; [%llu, %llu] is needed", file_of(c), name, shape,
                   (unsigned long long)rows, (unsigned long long)columns);
}

/* Reads a size of the head from the number of a matrix's rows. */
static aerie_status read_rows(ae_convert *c, const char *name, uint64_t columns, uint32_t most, uint32_t *rows)
{
    char shape[128];
    const ae_st_tensor *t;
    AE_TRY(take(c, name, &t));
    if (t->n_dims != 2 || t->shape[1] != columns || t->shape[0] < 1 || t->shape[0] > most)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; [at most %u rows, %llu] is needed", file_of(c), name,
                       ae_convert_shape(t, shape), most, (unsigned long long)columns);
    *rows = (uint32_t)t->shape[0];
    return AERIE_OK;
}

static aerie_status add_part(ae_convert *c, const part *p, const char *in, const char *out)
{
    char from[96], to[96];
    const ae_st_tensor *t;
    const uint64_t rows = size_of(c, p->rows), columns = size_of(c, p->columns);
    snprintf(from, sizeof from, "%s%s.weight", in, p->from);
    snprintf(to, sizeof to, "%s%s.weight", out, p->to);
    AE_TRY(take_shaped(c, from, rows, columns, &t));
    AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .rows = rows, .columns = columns, .f32 = p->f32}));
    if (!p->bias) return AERIE_OK;
    snprintf(from, sizeof from, "%s%s.bias", in, p->from);
    snprintf(to, sizeof to, "%s%s.bias", out, p->to);
    AE_TRY(take_shaped(c, from, 0, rows ? rows : columns, &t));
    return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .columns = rows ? rows : columns});
}

/* Splits the rows of queries, keys and values, which torch.nn.MultiheadAttention keeps in one tensor. */
static aerie_status add_attention(ae_convert *c, const char *in, const char *from, const char *out, const char *to)
{
    static const char *const parts[] = {"weight", "bias"};
    const uint64_t h = size_of(c, HEAD);
    for (size_t k = 0; k < 2; k++) {
        char name[96];
        const ae_st_tensor *t;
        snprintf(name, sizeof name, "%s%s.in_proj_%s", in, from, parts[k]);
        AE_TRY(take_shaped(c, name, k ? 0 : 3 * h, k ? 3 * h : h, &t));
        for (size_t i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "%s%s_%c.%s", out, to, "qkv"[i], parts[k]);
            AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = name, .from = t, .first = i * h * (k ? 1 : h),
                                                        .rows = k ? 0 : h, .columns = h}));
        }
    }
    return AERIE_OK;
}

static aerie_status add_block(ae_convert *c, uint32_t i)
{
    const uint32_t n_routing = c->model.decision.n_routing;
    const bool routes = i < n_routing;
    const part *parts = routes ? routing : joint;
    const size_t n = routes ? sizeof routing / sizeof *routing : sizeof joint / sizeof *joint;
    char in[48], out[32];
    snprintf(in, sizeof in, routes ? "evidence_layers.%u." : "layers.%u.", routes ? i : i - n_routing);
    snprintf(out, sizeof out, "dec.blk.%u.", i);
    for (size_t k = 0; k < n; k++) AE_TRY(add_part(c, &parts[k], in, out));
    if (routes) return add_attention(c, in, "attention", out, "cross_attn");
    AE_TRY(add_attention(c, in, "self_attn", out, "attn"));
    return add_attention(c, in, "multihead_attn", out, "cross_attn");
}

/* Adds the factors of the prior, of the cosine, and of all that is not the prior. */
static aerie_status add_scales(ae_convert *c)
{
    static const char *const names[] = {"prior_logit_scale", "joint_logit_scale", "residual_gate"};
    float *values = ae_arena_alloc(&c->arena, 3, sizeof *values);
    if (!values) return ae_convert_no_memory(c, "the scales of the decision head");
    for (size_t i = 0; i < 3; i++) {
        const ae_st_tensor *t;
        float x;
        AE_TRY(take(c, names[i], &t));
        if (t->n != 1 || t->n_dims > 1 || !ae_convert_floats(t, 0, &x, 1) || !isfinite(x))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s must be one finite number", file_of(c), names[i]);
        const double most = ae_log(MAX_SCALE), real = (double)x;
        values[i] = (float)(i < 2 ? ae_exp(real < most ? real : most) : 1 / (1 + ae_exp(-real)));
    }
    return ae_convert_add(c, &(ae_convert_item){.name = "decision.scales", .how = AE_CONVERT_VALUES, .values = values,
                                                .columns = 3});
}

aerie_status ae_convert_finish_clef(ae_convert *c)
{
    ae_decision_hparams *d = &c->model.decision;
    AE_TRY(read_rows(c, "memory_projection.weight", c->model.n_embd, AE_MAX_EMBD, &d->n_embd));
    AE_TRY(read_rows(c, d->n_routing ? "evidence_layers.0.feedforward.0.weight" : "layers.0.linear1.weight", d->n_embd,
                     AE_MAX_FF, &d->n_ff));
    if (d->n_embd % d->n_heads)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: its rows have %u values, which %u attention heads ('heads' in " CONFIG
                       ") cannot share evenly", file_of(c), d->n_embd, d->n_heads);
    for (size_t i = 0; i < N_WHOLE; i++) AE_TRY(add_part(c, &whole[i], "", ""));
    for (uint32_t i = 0; i < d->n_blocks; i++) AE_TRY(add_block(c, i));
    AE_TRY(add_scales(c));
    for (size_t i = 0; i < c->n_entries; i++)
        if (!c->entries[i].used && strncmp(c->entries[i].name, PREFIX, strlen(PREFIX)) == 0)
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s is unknown in a decision head of %u routing "
                           "blocks and %u joint ones, as " CONFIG " has them; --skip leaves it out", file_of(c),
                           c->entries[i].tensor->name, d->n_routing, d->n_blocks - d->n_routing);
    return AERIE_OK;
}

/* ---- Keys ----------------------------------------------------------------------------------------------- */

aerie_status ae_convert_keys_clef(ae_convert_keys *k, const ae_convert *c)
{
    const ae_decision_hparams *d = &c->model.decision;
    AE_TRY(ae_convert_keys_delta(k, c));
    ae_convert_put_text(k, "decision.type", "clef");
    ae_convert_put_u32(k, "decision.routing_block_count", d->n_routing);
    ae_convert_put_u32(k, "decision.block_count", d->n_blocks - d->n_routing);
    ae_convert_put_u32(k, "decision.head_count", d->n_heads);
    ae_convert_put_f32(k, "attention.layer_norm_epsilon", 1e-5); /* torch.nn.LayerNorm's */
    return k->status;
}

/* ---- OpenJev -------------------------------------------------------------------------------------------- */

/* The prompt with which OpenJev was trained: the answer is the letter of an option. */
const char ae_convert_systemone_openjev[] =
    "{% macro text(v) %}{{ v if v is string else v | tojson }}{% endmacro %}"
    "{% set letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz' %}"
    "{{ \"<|im_start|>user\\n\" }}{% for image in images %}{{ image }}{% endfor %}"
    "{% if images %}{{ \"The screenshot shows the current screen.\\n\" }}{% endif %}"
    "{{ \"State:\\n\" }}{{ text(state) }}{{ \"\\n\\nQuestion: \" }}{{ text(instructions) }}"
    "{% if type == 'score' %}{{ \" Rate along the ordered levels below (lowest first).\" }}{% endif %}"
    "{{ \"\\nOptions:\\n\" }}"
    "{% for o in options %}[{{ letters[loop.index0] }}] "
    "{% if type != 'noul' %}{{ o.key }}: {% if o.description %}{{ text(o.description) }}{% endif %}"
    "{% elif o.key == 'true' %}yes: {% if o.description %}{{ text(o.description) }}{% else %}The statement is true.{% endif %}"
    "{% else %}no: {% if o.description %}{{ text(o.description) }}{% else %}The statement is false.{% endif %}{% endif %}"
    "{{ \"\\n\" }}{% endfor %}"
    "{{ \"\\nAnswer with the letter of the best option only.<|im_end|>\\n<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n\" "
    "}}";

aerie_status ae_convert_is_openjev(ae_convert *c, bool *is)
{
    const char *path;
    AE_TRY(path_of(c, "helper/shim.py", &path));
    *is = ae_file_exists(path);
    return AERIE_OK;
}

aerie_status ae_convert_keys_openjev(ae_convert_keys *k, const ae_convert *c)
{
    static const double temperature = 0.85, of_noul = 1.829074; /* of the checkpoint's helper; the second is a factor */
    AE_TRY(ae_convert_keys_delta(k, c));
    ae_convert_put_text(k, "decision.type", "openjev");
    ae_convert_put_f32(k, "decision.temperature.choice", temperature);
    ae_convert_put_f32(k, "decision.temperature.score", temperature);
    ae_convert_put_f32(k, "decision.temperature.noul", temperature * of_noul);
    return k->status;
}
