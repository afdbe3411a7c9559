/* mix.c - implements mix.h. */
#include "convert/quantize/mix.h"

#include <stdio.h>
#include <string.h>

/* ---- The mixes ------------------------------------------------------------------------------------ */

enum mix_id {
    IQ1_S,
    IQ1_M,
    IQ2_XXS,
    IQ2_XS,
    IQ2_S,
    IQ2_M,
    IQ3_XXS,
    IQ3_XS,
    IQ3_S,
    IQ3_M,
    Q2_K,
    Q2_K_S,
    Q3_K_S,
    Q3_K_M,
    Q3_K_L,
    Q4_K_S,
    Q4_K_M,
    Q5_K_S,
    Q5_K_M,
    Q6_K,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    IQ4_NL,
    IQ4_XS,
    TQ1_0,
    TQ2_0,
    MXFP4_MOE,
    NVFP4,
    Q1_0,
    Q2_0,
    F16,
    BF16,
    F32,
    COPY,
    N_MIXES
};

static const ae_mix mixes[N_MIXES] = {
    [IQ1_S] = {"IQ1_S", AE_TYPE_IQ1_S, 24, "1.6 bits from a grid; values, outputs and the first down projections 2"},
    [IQ1_M] = {"IQ1_M", AE_TYPE_IQ1_M, 31, "1.75 bits from a grid; values, outputs and the first down projections 2"},
    [IQ2_XXS] = {"IQ2_XXS", AE_TYPE_IQ2_XXS, 19, "2.06 bits from a grid; values and the first down projections 2.6"},
    [IQ2_XS] = {"IQ2_XS", AE_TYPE_IQ2_XS, 20, "2.3 bits from a grid; values and the first down projections 2.6"},
    [IQ2_S] = {"IQ2_S", AE_TYPE_IQ2_XS, 28, "2.3 bits from a grid; values, outputs and the first down projections 3.4"},
    [IQ2_M] = {"IQ2_M", AE_TYPE_IQ2_S, 29, "2.6 bits from a grid; values, outputs and the first down projections 3.4"},
    [IQ3_XXS] = {"IQ3_XXS", AE_TYPE_IQ3_XXS, 23, "3.06 bits from a grid; queries and keys 2.6, other attention and down 3.4"},
    [IQ3_XS] = {"IQ3_XS", AE_TYPE_IQ3_S, 22, "3.4 bits from a grid; queries, keys and most of gate and up 3.06"},
    [IQ3_S] = {"IQ3_S", AE_TYPE_IQ3_S, 26, "3.4 bits from a grid"},
    [IQ3_M] = {"IQ3_M", AE_TYPE_IQ3_S, 27, "3.4 bits from a grid; values, outputs and the first down projections 4"},
    [Q2_K] = {"Q2_K", AE_TYPE_Q2_K, 10, "2 bits, values and down projections 3 to 4"},
    [Q2_K_S] = {"Q2_K_S", AE_TYPE_Q2_K, 21, "2 bits"},
    [Q3_K_S] = {"Q3_K_S", AE_TYPE_Q3_K, 11, "3 bits"},
    [Q3_K_M] = {"Q3_K_M", AE_TYPE_Q3_K, 12, "3 bits, values, outputs and down projections 4 to 5"},
    [Q3_K_L] = {"Q3_K_L", AE_TYPE_Q3_K, 13, "3 bits, values, outputs and down projections 5"},
    [Q4_K_S] = {"Q4_K_S", AE_TYPE_Q4_K, 14, "4 bits, the first layers a little more"},
    [Q4_K_M] = {"Q4_K_M", AE_TYPE_Q4_K, 15, "4 bits, half of the values and down projections 6; a good choice"},
    [Q5_K_S] = {"Q5_K_S", AE_TYPE_Q5_K, 16, "5 bits"},
    [Q5_K_M] = {"Q5_K_M", AE_TYPE_Q5_K, 17, "5 bits, half of the values and down projections 6"},
    [Q6_K] = {"Q6_K", AE_TYPE_Q6_K, 18, "6 bits"},
    [Q4_0] = {"Q4_0", AE_TYPE_Q4_0, 2, "4 bits, a scale for 32: the fastest here"},
    [Q4_1] = {"Q4_1", AE_TYPE_Q4_1, 3, "4 bits, a scale and a minimum for 32"},
    [Q5_0] = {"Q5_0", AE_TYPE_Q5_0, 8, "5 bits, a scale for 32"},
    [Q5_1] = {"Q5_1", AE_TYPE_Q5_1, 9, "5 bits, a scale and a minimum for 32"},
    [Q8_0] = {"Q8_0", AE_TYPE_Q8_0, 7, "8 bits, a scale for 32"},
    [IQ4_NL] = {"IQ4_NL", AE_TYPE_IQ4_NL, 25, "4 bits by a table, a scale for 32"},
    [IQ4_XS] = {"IQ4_XS", AE_TYPE_IQ4_XS, 30, "4 bits by a table, scales in blocks of 256"},
    [TQ1_0] = {"TQ1_0", AE_TYPE_TQ1_0, 36, "three values, 1.69 bits: for models trained so"},
    [TQ2_0] = {"TQ2_0", AE_TYPE_TQ2_0, 37, "three values, 2.06 bits: for models trained so"},
    [MXFP4_MOE] = {"MXFP4_MOE", AE_TYPE_MXFP4, 38, "experts in MXFP4, all else Q8_0"},
    [NVFP4] = {"NVFP4", AE_TYPE_NVFP4, 39, "4-bit floats, a scale for 16"},
    [Q1_0] = {"Q1_0", AE_TYPE_Q1_0, 40, "1 bit: for models trained so"},
    [Q2_0] = {"Q2_0", AE_TYPE_Q2_0, 41, "2 bits, a scale for 64: for models trained so"},
    [F16] = {"F16", AE_TYPE_F16, 1, "half floats"},
    [BF16] = {"BF16", AE_TYPE_BF16, 32, "bfloat16"},
    [F32] = {"F32", AE_TYPE_F32, 0, "floats"},
    [COPY] = {"COPY", AE_MIX_AS_IS, 0, "every tensor as it is (joins a split model)"},
};

size_t ae_mix_count(void)
{
    return N_MIXES;
}

const ae_mix *ae_mix_at(size_t i)
{
    return &mixes[i];
}

static int upper(int c)
{
    return c >= 'a' && c <= 'z' ? c + 'A' - 'a' : c; /* toupper would depend on the locale */
}

static bool same_word(const char *a, const char *b)
{
    while (*a && upper(*a) == upper(*b)) a++, b++;
    return !*a && !*b;
}

const ae_mix *ae_mix_by_name(const char *name)
{
    static const struct {
        const char *name;
        enum mix_id id;
    } short_names[] = {{"Q3_K", Q3_K_M}, {"Q4_K", Q4_K_M}, {"Q5_K", Q5_K_M}, {"MXFP4", MXFP4_MOE}};
    char number[16];
    for (size_t i = 0; i < N_MIXES; i++) {
        snprintf(number, sizeof number, "%u", (unsigned)mixes[i].file_type); /* llama-quantize takes it, too */
        if (same_word(name, mixes[i].name) || (i != COPY && same_word(name, number))) return &mixes[i];
    }
    for (size_t i = 0; i < sizeof short_names / sizeof *short_names; i++)
        if (same_word(name, short_names[i].name)) return &mixes[short_names[i].id];
    return NULL;
}

bool ae_mix_needs_experts(const ae_mix *mix)
{
    return mix == &mixes[MXFP4_MOE];
}

bool ae_mix_needs_importance(uint32_t type)
{
    switch (type) {
    case AE_TYPE_IQ1_S:
    case AE_TYPE_IQ1_M:
    case AE_TYPE_IQ2_XXS:
    case AE_TYPE_IQ2_XS:
    case AE_TYPE_IQ2_S: return true;
    default: return false;
    }
}

bool ae_mix_is_quantized(uint32_t type)
{
    return ae_type_block_elements(type) > 1;
}

/* ---- The model -------------------------------------------------------------------------------------- */

bool ae_mix_name_is(ae_gguf_string name, const char *text)
{
    return name.n == strlen(text) && !memcmp(name.data, text, name.n);
}

bool ae_mix_name_holds(ae_gguf_string name, const char *text)
{
    const size_t n = strlen(text);
    for (size_t i = 0; i + n <= name.n; i++)
        if (!memcmp(name.data + i, text, n)) return true;
    return false;
}

static bool ends(ae_gguf_string name, const char *text)
{
    const size_t n = strlen(text);
    return name.n >= n && !memcmp(name.data + name.n - n, text, n);
}

/* Reads "<architecture>.<suffix>", of an array the first element; returns `otherwise` if there is no such count. */
static uint32_t arch_count(const ae_gguf *gguf, ae_gguf_string arch, const char *suffix, uint32_t otherwise)
{
    char key[160];
    int64_t value;
    if (!arch.data || arch.n > 64) return otherwise;
    snprintf(key, sizeof key, "%.*s.%s", (int)arch.n, arch.data, suffix);
    const ae_gguf_kv *kv = ae_gguf_kv_find(gguf, key);
    return kv && ae_gguf_kv_int(kv, 0, &value) && value > 0 && value < 1 << 20 ? (uint32_t)value : otherwise;
}

void ae_mix_model_read(ae_mix_model *model, const ae_gguf *gguf)
{
    ae_gguf_string arch = {0};
    *model = (ae_mix_model){.n_gqa = 1, .tied = !ae_gguf_tensor_find(gguf, "output.weight")};
    if (ae_gguf_get_string(gguf, "general.architecture", false, &arch, NULL) != AERIE_OK || !arch.data) return;
    const uint32_t heads = arch_count(gguf, arch, "attention.head_count", 1);
    model->n_layers = arch_count(gguf, arch, "block_count", 0);
    model->n_gqa = heads / arch_count(gguf, arch, "attention.head_count_kv", heads);
    model->n_experts = arch_count(gguf, arch, "expert_count", 0);
    model->head = ae_mix_name_is(arch, "eagle3") || ae_mix_name_is(arch, "eagle") || ae_mix_name_is(arch, "medusa");
    model->encoder = ae_mix_name_is(arch, "bert") || ae_mix_name_is(arch, "nomic-bert");
}

/* ---- Which tensors are quantized ---------------------------------------------------------------------------------- */

bool ae_mix_is_weight(const ae_gguf_tensor *tensor)
{
    /* small tensors, and tensors whose code needs floats */
    static const char *const kept[] = {
        "_norm.weight",
        "ffn_gate_inp.weight",
        "altup",
        "laurel",
        "per_layer_model_proj",
        "ssm_conv1d",
        "shortconv.conv.weight",
        "indexer.k_proj.weight",
        "indexer.q_proj.weight",
        "attn_rel_b.weight",
        "time_mix_first.weight",
        "time_mix_w0.weight",
        "time_mix_w1.weight",
        "time_mix_w2.weight",
        "time_mix_v0.weight",
        "time_mix_v1.weight",
        "time_mix_v2.weight",
        "time_mix_a0.weight",
        "time_mix_a1.weight",
        "time_mix_a2.weight",
        "time_mix_g1.weight",
        "time_mix_g2.weight",
        "time_mix_decay_w1.weight",
        "time_mix_decay_w2.weight",
        "time_mix_lerp_fused.weight",
    };
    const ae_type_info *info = ae_type_get(tensor->type);
    const bool matrix = tensor->ne[1] > 1 || tensor->ne[2] > 1 || tensor->ne[3] > 1;
    if (!info || !info->decode || info->type == AE_TYPE_F64 || !matrix || !ends(tensor->name, "weight")) return false;
    if (ae_mix_name_is(tensor->name, "position_embd.weight") || ae_mix_name_is(tensor->name, "token_types.weight"))
        return false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (ae_mix_name_holds(tensor->name, kept[i])) return false;
    return true;
}

/* ---- The rules ------------------------------------------------------------------------------------------ */

/* Returns whether a layer gets more bits: the first and last eighth of the layers, and every third in between. */
static bool more_bits(uint32_t i, uint32_t n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

/* Returns N of "blk.N."; 0 for other names. */
static uint32_t layer_of(ae_gguf_string name)
{
    uint32_t layer = 0;
    if (name.n < 5 || memcmp(name.data, "blk.", 4)) return 0;
    for (size_t i = 4; i < name.n && name.data[i] >= '0' && name.data[i] <= '9' && layer < 1 << 20; i++)
        layer = 10 * layer + (uint32_t)(name.data[i] - '0');
    return layer;
}

/* Returns whether the mix has less than three bits; IQ2_S and IQ2_M are the largest of these. */
static bool is_low(enum mix_id id)
{
    return id <= IQ2_M;
}

static bool is_larger_low(enum mix_id id)
{
    return id == IQ2_S || id == IQ2_M;
}

/* Returns the type of the matrix that computes the logits. */
static uint32_t output_type(enum mix_id id, uint32_t type, int64_t ne0)
{
    if (id == MXFP4_MOE || id == NVFP4 || type == AE_TYPE_Q8_0 || ne0 % ae_type_block_elements(type))
        return AE_TYPE_Q8_0;
    return is_low(id) || id == IQ3_XXS ? AE_TYPE_Q5_K : AE_TYPE_Q6_K;
}

static uint32_t embedding_type(enum mix_id id, uint32_t type)
{
    if (id == TQ1_0 || id == TQ2_0) return AE_TYPE_Q4_K;
    if (is_larger_low(id) || id == IQ3_XXS) return AE_TYPE_IQ3_S;
    return is_low(id) ? (uint32_t)AE_TYPE_Q2_K : type;
}

/* Chooses types in mixes below three bits, where the tensors that benefit most get a few more bits. */
static uint32_t low_type(enum mix_id id, uint32_t type, const ae_mix_model *m, ae_gguf_string name, uint32_t layer)
{
    const uint32_t more = is_larger_low(id) ? AE_TYPE_IQ3_S : AE_TYPE_Q2_K;
    if (ae_mix_name_holds(name, "attn_v.weight") || ae_mix_name_holds(name, "attn_qkv.weight"))
        return m->n_gqa >= 4 || m->n_experts >= 4 ? (uint32_t)AE_TYPE_Q4_K : more;
    if (ae_mix_name_holds(name, "attn_k.weight")) return m->n_experts == 8 ? (uint32_t)AE_TYPE_Q4_K : type;
    if (ae_mix_name_holds(name, "ffn_down")) return layer < m->n_layers / 8 ? more : type;
    if (!ae_mix_name_holds(name, "attn_output.weight")) return type;
    if (m->n_experts == 8) return AE_TYPE_Q5_K;
    if (is_larger_low(id)) return AE_TYPE_IQ3_S;
    return id == IQ1_S || id == IQ1_M ? (uint32_t)AE_TYPE_IQ2_XXS : type;
}

static uint32_t value_type(enum mix_id id, uint32_t type, const ae_mix_model *m, uint32_t layer)
{
    const bool grouped = m->n_gqa >= 4;
    switch (id) {
    case Q2_K: type = grouped ? AE_TYPE_Q4_K : AE_TYPE_Q3_K; break;
    case Q2_K_S:
    case IQ3_XS:
    case IQ3_S: type = grouped ? AE_TYPE_Q4_K : type; break;
    case IQ3_XXS: type = grouped ? AE_TYPE_Q4_K : AE_TYPE_IQ3_S; break;
    case IQ3_M: type = AE_TYPE_Q4_K; break;
    case Q3_K_M: type = layer < 2 ? AE_TYPE_Q5_K : AE_TYPE_Q4_K; break;
    case Q3_K_L: type = AE_TYPE_Q5_K; break;
    case IQ4_NL:
    case IQ4_XS: type = grouped ? AE_TYPE_Q5_K : type; break;
    case Q4_K_M:
    case Q5_K_M: type = more_bits(layer, m->n_layers) ? AE_TYPE_Q6_K : type; break;
    case Q4_K_S: type = layer < 4 ? AE_TYPE_Q5_K : type; break;
    default: break;
    }
    /* eight query heads share these weights in 70B models, so more bits cost almost nothing */
    const bool shared_by_many = m->n_layers == 80 && m->n_gqa > 1;
    if (shared_by_many && (type == AE_TYPE_Q3_K || type == AE_TYPE_Q4_K)) type = AE_TYPE_Q5_K;
    return m->n_experts == 8 ? AE_TYPE_Q8_0 : type;
}

static uint32_t down_type(enum mix_id id, uint32_t type, const ae_mix_model *m, uint32_t layer)
{
    const bool first = layer < m->n_layers / 8;
    switch (id) {
    case IQ3_XXS: return first ? AE_TYPE_Q4_K : AE_TYPE_Q3_K;
    case IQ3_M: return first || (m->n_experts == 8 && more_bits(layer, m->n_layers)) ? AE_TYPE_Q4_K : type;
    case Q2_K: return AE_TYPE_Q3_K;
    case Q2_K_S: return first ? AE_TYPE_Q4_K : type;
    case Q3_K_M: return layer < m->n_layers / 16 ? AE_TYPE_Q5_K : AE_TYPE_Q4_K;
    case Q3_K_L: return AE_TYPE_Q5_K;
    case Q4_K_M:
    case Q5_K_M: return more_bits(layer, m->n_layers) ? AE_TYPE_Q6_K : type;
    case Q4_K_S:
    case IQ4_NL:
    case IQ4_XS: return first ? AE_TYPE_Q5_K : type;
    default: return type;
    }
}

/* Returns the type of the attention's output projection. */
static uint32_t out_type(enum mix_id id, uint32_t type, const ae_mix_model *m)
{
    if (m->n_experts == 8) {
        const bool raised = id == Q2_K || id == Q3_K_S || id == Q3_K_M || id == IQ4_NL || id == Q4_K_S || id == Q4_K_M ||
                            id == IQ4_XS || id == IQ3_XXS || id == IQ3_XS || id == IQ3_S || id == IQ3_M;
        return raised ? AE_TYPE_Q5_K : type;
    }
    switch (id) {
    case IQ3_XXS: return AE_TYPE_IQ3_S;
    case Q2_K: return AE_TYPE_Q3_K;
    case IQ3_M:
    case Q3_K_M: return AE_TYPE_Q4_K;
    case Q3_K_L: return AE_TYPE_Q5_K;
    default: return type;
    }
}

static uint32_t fused_type(enum mix_id id, uint32_t type)
{
    switch (id) {
    case IQ3_M:
    case Q3_K_M:
    case Q3_K_L: return AE_TYPE_Q4_K;
    case Q4_K_M: return AE_TYPE_Q5_K;
    case Q5_K_M: return AE_TYPE_Q6_K;
    default: return type;
    }
}

/* Returns the type of queries and keys. */
static uint32_t key_type(enum mix_id id, uint32_t type)
{
    return id == IQ3_XS ? (uint32_t)AE_TYPE_IQ3_XXS : id == IQ3_XXS ? (uint32_t)AE_TYPE_IQ2_S : type;
}

/* Returns the type of gates and up projections; IQ3_XS uses IQ3_S in the outer layers. */
static uint32_t up_type(enum mix_id id, uint32_t type, const ae_mix_model *m, uint32_t layer)
{
    const bool inner = layer >= m->n_layers / 8 && layer < 7 * m->n_layers / 8;
    return id == IQ3_XS && inner ? (uint32_t)AE_TYPE_IQ3_XXS : type;
}

bool ae_mix_needs_floats(ae_gguf_string name)
{
    return ae_mix_name_holds(name, "attn_q.weight") || ae_mix_name_holds(name, "attn_k.weight") ||
           ae_mix_name_holds(name, "attn_v.weight") || ae_mix_name_holds(name, "attn_qkv.weight");
}

uint32_t ae_mix_type(const ae_mix *mix, const ae_mix_model *m, ae_gguf_string name, int64_t ne0)
{
    const enum mix_id id = (enum mix_id)(mix - mixes);
    const uint32_t type = mix->type, layer = layer_of(name);
    const bool embedding = ae_mix_name_is(name, "token_embd.weight");
    if (id == COPY || m->head || !ae_mix_is_quantized(type)) return type;
    if (ae_mix_name_is(name, "output.weight") || (m->tied && embedding)) return output_type(id, type, ne0);
    if (m->encoder && id == Q8_0 && ae_mix_needs_floats(name)) return AE_TYPE_F16;
    if (id == MXFP4_MOE) return ae_mix_name_holds(name, "_exps.") ? type : (uint32_t)AE_TYPE_Q8_0;
    if (embedding) return embedding_type(id, type);
    if (is_low(id)) return low_type(id, type, m, name, layer);
    if (ae_mix_name_holds(name, "attn_v.weight")) return value_type(id, type, m, layer);
    if (ae_mix_name_holds(name, "attn_k.weight")) return m->n_experts == 8 ? (uint32_t)AE_TYPE_Q8_0 : key_type(id, type);
    if (ae_mix_name_holds(name, "attn_q.weight")) return key_type(id, type);
    if (ae_mix_name_holds(name, "ffn_gate") || ae_mix_name_holds(name, "ffn_up")) return up_type(id, type, m, layer);
    if (ae_mix_name_holds(name, "ffn_down")) return down_type(id, type, m, layer);
    if (ae_mix_name_holds(name, "attn_output.weight")) return out_type(id, type, m);
    if (ae_mix_name_holds(name, "attn_qkv.weight")) return fused_type(id, type);
    return type;
}

/* ---- Fallbacks ------------------------------------------------------------------------------------------ */

/* Returns the next larger type with smaller blocks. */
static uint32_t with_smaller_blocks(uint32_t type)
{
    switch (type) {
    case AE_TYPE_Q1_0:
    case AE_TYPE_Q2_0:
    case AE_TYPE_TQ1_0:
    case AE_TYPE_TQ2_0:
    case AE_TYPE_Q2_K:
    case AE_TYPE_Q3_K: return AE_TYPE_Q4_0;
    case AE_TYPE_IQ1_S:
    case AE_TYPE_IQ1_M:
    case AE_TYPE_IQ2_XXS:
    case AE_TYPE_IQ2_XS:
    case AE_TYPE_IQ2_S:
    case AE_TYPE_IQ3_XXS:
    case AE_TYPE_IQ3_S:
    case AE_TYPE_NVFP4:
    case AE_TYPE_IQ4_XS: return AE_TYPE_IQ4_NL;
    case AE_TYPE_Q4_K: return AE_TYPE_Q5_0;
    case AE_TYPE_Q5_K: return AE_TYPE_Q5_1;
    case AE_TYPE_Q6_K: return AE_TYPE_Q8_0;
    default: return AE_TYPE_F16;
    }
}

uint32_t ae_mix_fit(uint32_t type, int64_t ne0)
{
    while (ne0 % ae_type_block_elements(type)) type = with_smaller_blocks(type);
    return type;
}
