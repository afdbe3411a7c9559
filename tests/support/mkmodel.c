/* mkmodel.c - see mkmodel.h. Owns: the shapes, which tensor has which type and spread, writing the file. */
#include "mkmodel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "formats/gguf_write.h"
#include "quant/types.h"

/* ---- Shapes -------------------------------------------------------------------------------------- */

/* layers, embd, ff, heads, kv heads, head dim, vocab, context, rope base, tied */
static const struct named {
    const char *name;
    mk_options o;
} shapes[] = {
    {"tiny", {3, 64, 128, 4, 2, 32, 320, 2048, 10000.0f, .tied = false}},
    {"tiny-gqa", {2, 256, 256, 8, 2, 32, 384, 2048, 10000.0f, .tied = false}},
    {"tiny-mha", {2, 128, 192, 2, 2, 64, 300, 2048, 10000.0f, .tied = true}},
    {"tiny-moe", {2, 64, 128, 4, 2, 32, 320, 2048, 10000.0f, .tied = false, .n_experts = 6, .n_used = 2, .n_ff_expert = 96}},
    {"135m", {30, 576, 1536, 9, 3, 64, 49152, 8192, 100000.0f, .tied = true}},
    {"1b", {16, 2048, 8192, 32, 8, 64, 128256, 131072, 500000.0f, .tied = false}},
    {"3b", {28, 3072, 8192, 24, 8, 128, 128256, 131072, 500000.0f, .tied = true}},
    {"8b", {32, 4096, 14336, 32, 8, 128, 128256, 131072, 500000.0f, .tied = false}},
    {"moe", {16, 2048, 1024, 16, 16, 128, 50304, 4096, 10000.0f, .tied = false, .arch = "olmoe", .n_experts = 64, .n_used = 8,
             .n_ff_expert = 1024}},
    {"moe-8x1b", {16, 2048, 8192, 32, 8, 64, 32000, 32768, 1000000.0f, .tied = false, .n_experts = 8, .n_used = 2,
                  .n_ff_expert = 8192}},
    {"tiny-mla", {2, 64, 128, 4, 1, 48, 320, 2048, 10000.0f, .tied = false, .arch = "deepseek2", .n_experts = 6, .n_used = 2,
                  .n_ff_expert = 96, .n_ff_shared = 96, .n_dense = 1, .n_latent = 64, .n_rope = 16, .value_dim = 32}},
    {"v2-lite", {27, 2048, 10944, 16, 1, 192, 102400, 163840, 10000.0f, .tied = false, .arch = "deepseek2", .n_experts = 64,
                 .n_used = 6, .n_ff_expert = 1408, .n_ff_shared = 2816, .n_dense = 1, .n_latent = 512, .n_rope = 64,
                 .value_dim = 128}},
};

bool mk_shape(const char *name, mk_options *options)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (strcmp(shapes[i].name, name)) continue;
        *options = shapes[i].o;
        options->type = "q4_0";
        options->seed = 1;
        return true;
    }
    return false;
}

const char *mk_shapes_known(void)
{
    return "tiny, tiny-gqa, tiny-mha, tiny-moe, tiny-mla, 135m, 1b, 3b, 8b, moe, moe-8x1b, v2-lite";
}

/* ---- Architectures ------------------------------------------------------------------------------- */

/* The keys and tensors of each architecture besides the common ones. */
static const struct arch {
    const char *name;
    char qk_norm; /* d = by head, q = all heads together, 0 = none */
    bool shared, shared_router, select_bias, dense_lead;
    bool says_ff; /* writes expert_feed_forward_length */
} archs[] = {
    {.name = "llama"},
    {.name = "qwen2"},
    {.name = "qwen2moe", .shared = true, .shared_router = true, .says_ff = true},
    {.name = "qwen3", .qk_norm = 'd'},
    {.name = "qwen3moe", .qk_norm = 'd', .says_ff = true},
    {.name = "olmoe", .qk_norm = 'q'},
    {.name = "deepseek", .shared = true, .dense_lead = true, .says_ff = true},
    {.name = "deepseek2", .shared = true, .dense_lead = true, .says_ff = true},
    {.name = "dots1", .qk_norm = 'd', .shared = true, .select_bias = true, .dense_lead = true, .says_ff = true},
};

static const struct arch *arch_of(const mk_options *o)
{
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (!strcmp(archs[i].name, o->arch ? o->arch : "llama")) return &archs[i];
    return NULL;
}

/* ---- Which type ---------------------------------------------------------------------------------- */

typedef enum role { EMBED, HEAD, QK, VALUE, OUT, GATE_UP, DOWN, NORM, BIAS, FREQS, ROUTER } role;

typedef struct plan {
    const mk_options *o;
    uint32_t type;  /* of most matrices */
    bool mix;       /* *_k_m: some in Q6_K */
    float decay;
} plan;

/* llama.cpp's llama_tensor_get_type: the first and last eighth of the layers and every third between. */
static bool more_bits(uint32_t i, uint32_t n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

uint32_t mk_type_for(uint32_t type, uint32_t n_in)
{
    if (n_in % ae_type_block_elements(type) == 0) return type;
    uint32_t other = AE_TYPE_IQ4_NL;
    if (type == AE_TYPE_Q4_K) other = AE_TYPE_Q5_0;
    if (type == AE_TYPE_Q5_K) other = AE_TYPE_Q5_1;
    if (type == AE_TYPE_Q6_K) other = AE_TYPE_Q8_0;
    return n_in % ae_type_block_elements(other) ? (uint32_t)AE_TYPE_F16 : other;
}

static uint32_t type_of(const plan *p, role r, uint32_t layer, uint32_t n_in)
{
    if (r >= NORM) return AE_TYPE_F32;
    const bool head = r == HEAD || (r == EMBED && p->o->tied);
    const bool wide = p->mix && (head || ((r == VALUE || r == DOWN) && more_bits(layer, p->o->n_layers)));
    return mk_type_for(wide ? (uint32_t)AE_TYPE_Q6_K : p->type, n_in);
}

static bool plan_type(plan *p, const char *name)
{
    const bool q4 = !strcmp(name, "q4_k_m"), q5 = !strcmp(name, "q5_k_m");
    const ae_type_info *info = ae_type_by_name(q4 ? "q4_K" : q5 ? "q5_K" : name);
    if (!info || info->dot == AE_DOT_NONE) return false;
    p->type = info->type;
    p->mix = q4 || q5;
    return true;
}

/* ---- What is in it ---------------------------------------------------------------------------------- */

/* Standard deviation times sqrt(n_in). Attention must have an effect (QK); logits come from normed rows, so the head's gain is
 * their spread; a tied head must not drown in the embedding that it equals, so layers say more. */
static float gain_of(const plan *p, role r, uint32_t layer)
{
    const float add = powf(p->decay, (float)layer) * (p->o->tied ? 3.0f : 1.0f);
    switch (r) {
    case EMBED: return p->o->tied ? 3.0f : 0.7f;
    case HEAD: return 3.0f;
    case QK: return 1.6f;
    case OUT: return (p->o->forgetful ? 0.001f : 1.4f) * add;
    case DOWN: return 2.0f * add;
    case ROUTER: return 1.5f;
    default: return 0.7f;
    }
}

/* Norms lie near 1, biases near 0, divisors between 1 and 8. Half of a tied model's output norm is negative:
 * else a token's own logit would always be the largest. */
static void fill_vector(const plan *p, role r, bool last_norm, uint64_t *state, float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t bits = mk_random(state);
        const float u = (float)(bits >> 40) * 0x1p-24f;
        if (r == NORM) x[i] = (0.9f + 0.2f * u) * (last_norm && p->o->tied && (bits & 1) ? -1.0f : 1.0f);
        else if (r == BIAS) x[i] = 0.2f * (u - 0.5f);
        else x[i] = n > 1 ? 1.0f + 7.0f * (float)i / (float)(n - 1) : 1.0f;
    }
}

typedef struct tensor {
    char name[64];
    role role;
    uint32_t layer, n_out, n_in; /* n_out 0: a vector */
    uint32_t n_stack;            /* matrices in one tensor */
} tensor;

typedef aerie_status visit_fn(void *context, const tensor *t, aerie_error *error);

static const struct part {
    const char *name;
    role role;
    char out, in; /* e = n_embd, q = heads, k = KV heads, f = n_ff, x = n_ff of an expert, y = two of these,
                     s = n_ff of the shared expert, n = experts, 1 = one, - = none;
                     of latent attention L = n_q, l = n_latent, r = n_latent + n_rope, N = head_dim - n_rope, V = value_dim,
                     b = heads of N + V; o = heads of value_dim, or as q */
} parts[] = {
    {"attn_norm.weight", NORM, '-', 'e'}, {"attn_q.weight", QK, 'q', 'e'}, {"attn_k.weight", QK, 'k', 'e'},
    {"attn_v.weight", VALUE, 'k', 'e'}, {"attn_output.weight", OUT, 'e', 'o'}, {"ffn_norm.weight", NORM, '-', 'e'},
    {"ffn_gate.weight", GATE_UP, 'f', 'e'}, {"ffn_up.weight", GATE_UP, 'f', 'e'}, {"ffn_down.weight", DOWN, 'e', 'f'},
    {"attn_q.bias", BIAS, '-', 'q'}, {"attn_k.bias", BIAS, '-', 'k'}, {"attn_v.bias", BIAS, '-', 'k'},
    {"attn_output.bias", BIAS, '-', 'e'}, {"ffn_gate.bias", BIAS, '-', 'f'}, {"ffn_up.bias", BIAS, '-', 'f'},
    {"ffn_down.bias", BIAS, '-', 'e'},
    {"attn_q_norm.weight", NORM, '-', 'q'}, {"attn_k_norm.weight", NORM, '-', 'k'},
    {"ffn_gate_inp.weight", ROUTER, 'n', 'e'}, {"exp_probs_b.bias", BIAS, '-', 'n'},
    {"ffn_gate_exps.weight", GATE_UP, 'x', 'e'}, {"ffn_up_exps.weight", GATE_UP, 'x', 'e'},
    {"ffn_gate_up_exps.weight", GATE_UP, 'y', 'e'}, {"ffn_down_exps.weight", DOWN, 'e', 'x'},
    {"ffn_gate_shexp.weight", GATE_UP, 's', 'e'}, {"ffn_up_shexp.weight", GATE_UP, 's', 'e'},
    {"ffn_down_shexp.weight", DOWN, 'e', 's'}, {"ffn_gate_inp_shexp.weight", ROUTER, '1', 'e'},
    {"attn_q_a.weight", QK, 'L', 'e'}, {"attn_q_a_norm.weight", NORM, '-', 'L'}, {"attn_q_b.weight", QK, 'q', 'L'},
    {"attn_kv_a_mqa.weight", QK, 'r', 'e'}, {"attn_kv_a_norm.weight", NORM, '-', 'l'}, {"attn_k_b.weight", QK, 'l', 'N'},
    {"attn_v_b.weight", VALUE, 'V', 'l'}, {"attn_kv_b.weight", VALUE, 'b', 'l'},
};

static bool starts(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

static bool is_qk_norm(const struct part *p)
{
    return starts(p->name, "attn_q_norm") || starts(p->name, "attn_k_norm");
}

/* A stack: of experts, or of heads. */
static uint32_t stack_of(const mk_options *o, const struct part *p)
{
    const bool heads = starts(p->name, "attn_k_b") || starts(p->name, "attn_v_b");
    return strstr(p->name, "_exps.") ? o->n_experts : heads ? o->n_heads : 1;
}

/* Parts that only latent attention has, or only the usual one. */
static bool has_attention_part(const mk_options *o, const struct part *p)
{
    if (!starts(p->name, "attn_")) return true;
    if (starts(p->name, "attn_q_a") || starts(p->name, "attn_q_b")) return o->n_latent && o->n_q;
    if (starts(p->name, "attn_q.")) return !o->n_q;
    if (starts(p->name, "attn_k.") || starts(p->name, "attn_v.")) return !o->n_latent;
    if (starts(p->name, "attn_kv_b")) return o->n_latent && o->old_mla;
    if (starts(p->name, "attn_k_b") || starts(p->name, "attn_v_b")) return o->n_latent && !o->old_mla;
    return !starts(p->name, "attn_kv_a") || o->n_latent;
}

static bool selects(const mk_options *o)
{
    return arch_of(o)->select_bias || o->n_q;
}

/* Whether layer i has that part. */
static bool has_part(const mk_options *o, const struct part *p, uint32_t i)
{
    const struct arch *a = arch_of(o);
    const bool experts = o->n_experts && !(a->dense_lead && i < o->n_dense), stack = strstr(p->name, "_exps.") != NULL;
    if (is_qk_norm(p)) return a->qk_norm;
    if (!has_attention_part(o, p)) return false;
    if (!strcmp(p->name, "exp_probs_b.bias")) return experts && selects(o);
    if (!strcmp(p->name, "ffn_gate_inp_shexp.weight")) return experts && a->shared_router;
    if (strstr(p->name, "_shexp.")) return experts && a->shared && o->n_ff_shared;
    if (!strcmp(p->name, "ffn_gate_inp.weight")) return experts;
    if (stack && starts(p->name, "ffn_down")) return experts;
    if (stack) return experts && o->fused == starts(p->name, "ffn_gate_up");
    if (p->role == BIAS && !(o->biases && (!strcmp(a->name, "llama") || (starts(p->name, "attn_") && p->in != 'e'))))
        return false;
    return !starts(p->name, "ffn_") || p->role == NORM || !experts;
}

static uint32_t dim(const mk_options *o, char c)
{
    switch (c) {
    case 'e': return o->n_embd;
    case 'q': return o->n_heads * o->head_dim;
    case 'k': return o->n_kv_heads * o->head_dim;
    case 'f': return o->n_ff;
    case 'x': return o->n_ff_expert;
    case 'y': return 2 * o->n_ff_expert;
    case 's': return o->n_ff_shared;
    case 'n': return o->n_experts;
    case '1': return 1;
    case 'o': return o->n_heads * (o->n_latent ? o->value_dim : o->head_dim);
    case 'L': return o->n_q;
    case 'l': return o->n_latent;
    case 'r': return o->n_latent + o->n_rope;
    case 'N': return o->head_dim - o->n_rope;
    case 'V': return o->value_dim;
    case 'b': return o->n_heads * (o->head_dim - o->n_rope + o->value_dim);
    default: return 0;
    }
}

static aerie_status for_each(const mk_options *o, visit_fn *visit, void *context, aerie_error *error)
{
    AE_TRY(visit(context, &(tensor){"token_embd.weight", EMBED, 0, o->n_vocab, o->n_embd, 1}, error));
    if (o->rope_freqs) AE_TRY(visit(context, &(tensor){"rope_freqs.weight", FREQS, 0, 0, o->head_dim / 2, 1}, error));
    for (uint32_t i = 0; i < o->n_layers; i++)
        for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++) {
            const struct part *p = &parts[k];
            if (!has_part(o, p, i)) continue;
            tensor t = {"", p->role, i, dim(o, p->out), dim(o, p->in), stack_of(o, p)};
            if (is_qk_norm(p) && arch_of(o)->qk_norm == 'd') t.n_in = o->head_dim;
            snprintf(t.name, sizeof t.name, "blk.%u.%s", i, p->name);
            AE_TRY(visit(context, &t, error));
        }
    AE_TRY(visit(context, &(tensor){"output_norm.weight", NORM, 0, 0, o->n_embd, 1}, error));
    return o->tied ? AERIE_OK : visit(context, &(tensor){"output.weight", HEAD, 0, o->n_vocab, o->n_embd, 1}, error);
}

/* ---- Writing ------------------------------------------------------------------------------------------ */

typedef struct writing {
    plan plan;
    ae_gguf_writer *writer;
    uint8_t *buffer; /* [BUFFER_BYTES] */
} writing;

#define BUFFER_BYTES ((size_t)4 << 20) /* more than any row */

static aerie_status describe(void *context, const tensor *t, aerie_error *error)
{
    writing *w = context;
    const int64_t ne[3] = {t->n_in, t->n_out, t->n_stack};
    const uint32_t n_dims = t->n_stack > 1 ? 3 : t->n_out > 1 ? 2 : 1; /* one output: a vector, as others write it */
    return ae_gguf_writer_tensor(w->writer, t->name, type_of(&w->plan, t->role, t->layer, t->n_in), n_dims, ne, error);
}

/* The rows of all tokens, in the order of the vocabulary's ids. */
static aerie_status fill_in_order(writing *w, uint32_t type, size_t row, const tensor *t, float sd, uint64_t *state,
                                  aerie_error *error)
{
    uint8_t *rows = ae_alloc(t->n_out, row);
    uint32_t *order = ae_alloc(t->n_out, sizeof *order);
    aerie_status status = AERIE_OK;
    if (rows && order) {
        mk_vocab_order(w->plan.o, order);
        for (uint32_t done = 0, n; done < t->n_out; done += n) { /* in the portions of the usual order: the same bytes */
            n = (uint32_t)(BUFFER_BYTES / row);
            if (n > t->n_out - done) n = t->n_out - done;
            mk_blocks(type, sd, w->plan.o->n_experts > 0, state, rows + done * row, (size_t)n * t->n_in);
        }
        for (uint32_t i = 0; i < t->n_out && status == AERIE_OK; i++)
            status = ae_gguf_writer_data(w->writer, rows + order[i] * row, row, error);
    } else {
        status = ae_fail_memory(error, "a tensor's rows", t->n_out * row);
    }
    ae_free(rows);
    ae_free(order);
    return status;
}

static aerie_status fill(void *context, const tensor *t, aerie_error *error)
{
    writing *w = context;
    const uint32_t type = type_of(&w->plan, t->role, t->layer, t->n_in);
    const size_t row = ae_type_row_bytes(type, t->n_in);
    uint64_t state = mk_stream(w->plan.o->seed, t->name);
    if (!t->n_out) {
        fill_vector(&w->plan, t->role, !strcmp(t->name, "output_norm.weight"), &state, (float *)(void *)w->buffer, t->n_in);
        return ae_gguf_writer_data(w->writer, w->buffer, row, error);
    }
    const float sd = gain_of(&w->plan, t->role, t->layer) / sqrtf((float)t->n_in);
    if (w->plan.o->vocab_order && (t->role == EMBED || t->role == HEAD))
        return fill_in_order(w, type, row, t, sd, &state, error);
    const uint32_t n_rows = t->n_out * t->n_stack;
    for (uint32_t done = 0, n; done < n_rows; done += n) {
        n = (uint32_t)(BUFFER_BYTES / row);
        if (n > n_rows - done) n = n_rows - done;
        mk_blocks(type, sd, w->plan.o->n_experts > 0, &state, w->buffer, (size_t)n * t->n_in);
        AE_TRY(ae_gguf_writer_data(w->writer, w->buffer, n * row, error));
    }
    return AERIE_OK;
}

static aerie_status key_u32(const mk_options *o, ae_gguf_writer *w, const char *suffix, uint32_t value, aerie_error *error)
{
    char key[80];
    snprintf(key, sizeof key, "%s.%s", arch_of(o)->name, suffix);
    return ae_gguf_writer_u32(w, key, value, error);
}

static aerie_status key_f32(const mk_options *o, ae_gguf_writer *w, const char *suffix, float value, aerie_error *error)
{
    char key[80];
    snprintf(key, sizeof key, "%s.%s", arch_of(o)->name, suffix);
    return ae_gguf_writer_f32(w, key, value, error);
}

static aerie_status write_expert_keys(const mk_options *o, ae_gguf_writer *w, aerie_error *error)
{
    const struct arch *a = arch_of(o);
    char key[80];
    AE_TRY(key_u32(o, w, "expert_count", o->n_experts, error));
    AE_TRY(key_u32(o, w, "expert_used_count", o->n_used, error));
    if (a->says_ff) AE_TRY(key_u32(o, w, "expert_feed_forward_length", o->n_ff_expert, error));
    if (a->dense_lead) AE_TRY(key_u32(o, w, "leading_dense_block_count", o->n_dense, error));
    if (a->shared_router) return key_u32(o, w, "expert_shared_feed_forward_length", o->n_ff_shared, error);
    if (!a->shared) return AERIE_OK;
    AE_TRY(key_u32(o, w, "expert_shared_count", o->n_ff_shared / o->n_ff_expert, error));
    AE_TRY(key_f32(o, w, "expert_weights_scale", 1.75f, error));
    if (!selects(o)) return AERIE_OK;
    AE_TRY(key_u32(o, w, "expert_gating_func", 2, error));
    snprintf(key, sizeof key, "%s.expert_weights_norm", a->name);
    return ae_gguf_writer_bool(w, key, true, error);
}

static aerie_status write_mla_keys(const mk_options *o, ae_gguf_writer *w, aerie_error *error)
{
    AE_TRY(key_u32(o, w, "attention.kv_lora_rank", o->n_latent, error));
    if (o->n_q) AE_TRY(key_u32(o, w, "attention.q_lora_rank", o->n_q, error));
    if (o->old_mla) return AERIE_OK;
    AE_TRY(key_u32(o, w, "attention.key_length_mla", o->head_dim, error));
    return key_u32(o, w, "attention.value_length_mla", o->value_dim, error);
}

static aerie_status write_keys(const mk_options *o, ae_gguf_writer *w, aerie_error *error)
{
    /* where an architecture has no key for the size of its experts, it is this one */
    const uint32_t n_ff = o->n_experts && !arch_of(o)->says_ff ? o->n_ff_expert : o->n_ff;
    const struct {
        const char *suffix;
        uint32_t value;
    } counts[] = {
        {"block_count", o->n_layers}, {"context_length", o->n_ctx}, {"embedding_length", o->n_embd},
        {"feed_forward_length", n_ff}, {"vocab_size", o->n_vocab}, {"attention.head_count", o->n_heads},
        {"attention.head_count_kv", o->old_mla ? o->n_heads : o->n_kv_heads},
        {"attention.key_length", o->n_latent && !o->old_mla ? o->n_latent + o->n_rope : o->head_dim},
        {"attention.value_length", !o->n_latent ? o->head_dim : o->old_mla ? o->value_dim : o->n_latent},
        {"rope.dimension_count", o->n_latent ? o->n_rope : o->head_dim},
    };
    AE_TRY(ae_gguf_writer_string(w, "general.architecture", arch_of(o)->name, error));
    AE_TRY(ae_gguf_writer_string(w, "general.name", "random", error));
    AE_TRY(ae_gguf_writer_u32(w, "general.quantization_version", 2, error));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        AE_TRY(key_u32(o, w, counts[i].suffix, counts[i].value, error));
    AE_TRY(key_f32(o, w, "attention.layer_norm_rms_epsilon", 1e-5f, error));
    AE_TRY(key_f32(o, w, "rope.freq_base", o->rope_base, error));
    if (o->n_experts) AE_TRY(write_expert_keys(o, w, error));
    if (o->n_latent) AE_TRY(write_mla_keys(o, w, error));
    return mk_vocab(o, w, error);
}

static aerie_status write_model(writing *w, aerie_error *error)
{
    AE_TRY(write_keys(w->plan.o, w->writer, error));
    AE_TRY(for_each(w->plan.o, describe, w, error));
    AE_TRY(ae_gguf_writer_begin(w->writer, error));
    AE_TRY(for_each(w->plan.o, fill, w, error));
    return ae_gguf_writer_finish(w->writer, error);
}

static bool shape_is_good(const mk_options *o)
{
    const uint32_t most = 1u << 18;
    return o->n_layers && o->n_layers <= 512 && o->n_embd && o->n_embd <= most && o->n_ff && o->n_ff <= most && o->n_kv_heads &&
           o->n_heads <= 1024 && o->n_heads && o->n_heads % o->n_kv_heads == 0 && o->head_dim && o->head_dim <= 512 &&
           o->head_dim % 2 == 0 && o->n_heads * o->head_dim <= most && o->n_ctx && o->n_vocab >= MK_MIN_VOCAB &&
           (!o->n_latent ||
            (o->n_latent <= 512 && o->n_rope < o->head_dim && o->value_dim && o->n_heads * o->value_dim <= most)) &&
           (!o->n_experts || (o->n_experts <= 512 && o->n_used && o->n_used <= o->n_experts && o->n_ff_expert &&
                              o->n_ff_expert <= most && o->n_ff_shared <= most && o->n_dense <= o->n_layers));
}

aerie_status mk_model(const mk_options *o, const char *path, aerie_error *error)
{
    writing w = {.plan = {.o = o, .decay = o->layer_decay > 0 ? o->layer_decay : 1.0f}};
    if (!plan_type(&w.plan, o->type ? o->type : "q4_0"))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "\"%s\" is not a type for weights; q4_0, q8_0, q4_K, f16 ... and the mixes "
                       "q4_k_m and q5_k_m are", o->type);
    if (!arch_of(o)) return ae_fail(error, AERIE_ERROR_ARGUMENT, "\"%s\" is not an architecture known here", o->arch);
    if (!mk_vocab_known(o->vocab))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "\"%s\" is not a vocabulary; bpe, bpe-other, spm and foreign are",
                       o->vocab);
    if (!shape_is_good(o))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "no model has this shape: counts must be positive, head counts divide, the "
                       "head dimension be even, and the vocabulary hold at least %d tokens", MK_MIN_VOCAB);
    AE_TRY(ae_gguf_writer_create(&w.writer, path, error));
    w.buffer = ae_alloc(BUFFER_BYTES, 1);
    aerie_status status = w.buffer ? write_model(&w, error) : ae_fail_memory(error, "a buffer", BUFFER_BYTES);
    ae_free(w.buffer);
    ae_gguf_writer_free(w.writer);
    return status;
}
