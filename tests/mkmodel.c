/* mkmodel.c - see mkmodel.h. Owns: the shapes, which tensor has which type and spread, writing the file. */
#include "mkmodel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gguf/gguf_write.h"
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
    {"135m", {30, 576, 1536, 9, 3, 64, 49152, 8192, 100000.0f, .tied = true}},
    {"1b", {16, 2048, 8192, 32, 8, 64, 128256, 131072, 500000.0f, .tied = false}},
    {"3b", {28, 3072, 8192, 24, 8, 128, 128256, 131072, 500000.0f, .tied = true}},
    {"8b", {32, 4096, 14336, 32, 8, 128, 128256, 131072, 500000.0f, .tied = false}},
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
    return "tiny, tiny-gqa, tiny-mha, 135m, 1b, 3b, 8b";
}

/* ---- Which type ---------------------------------------------------------------------------------- */

typedef enum role { EMBED, HEAD, QK, VALUE, OUT, GATE_UP, DOWN, NORM, BIAS, FREQS } role;

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

/* What llama.cpp takes when rows are not whole blocks. */
static uint32_t fallback(uint32_t type, uint32_t n_in)
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
    return fallback(wide ? (uint32_t)AE_TYPE_Q6_K : p->type, n_in);
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

/* Standard deviation times sqrt(n_in). Attention must look somewhere (QK); logits come from normed rows, so the
 * head's gain is their spread; a tied head must not drown in the embedding that it equals, so layers say more. */
static float gain_of(const plan *p, role r, uint32_t layer)
{
    const float add = powf(p->decay, (float)layer) * (p->o->tied ? 3.0f : 1.0f);
    switch (r) {
    case EMBED: return p->o->tied ? 3.0f : 0.7f;
    case HEAD: return 3.0f;
    case QK: return 1.6f;
    case OUT: return (p->o->forgetful ? 0.001f : 1.4f) * add;
    case DOWN: return 2.0f * add;
    default: return 0.7f;
    }
}

/* Norms lie near 1, biases near 0, divisors between 1 and 8. Half of a tied model's output norm is negative:
 * else a token's own logit would be the largest for ever. */
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
} tensor;

typedef aerie_status visit_fn(void *context, const tensor *t, aerie_error *error);

static const struct part {
    const char *name;
    role role;
    char out, in; /* e = n_embd, q = heads, k = KV heads, f = n_ff, - = none */
} parts[] = {
    {"attn_norm.weight", NORM, '-', 'e'}, {"attn_q.weight", QK, 'q', 'e'}, {"attn_k.weight", QK, 'k', 'e'},
    {"attn_v.weight", VALUE, 'k', 'e'}, {"attn_output.weight", OUT, 'e', 'q'}, {"ffn_norm.weight", NORM, '-', 'e'},
    {"ffn_gate.weight", GATE_UP, 'f', 'e'}, {"ffn_up.weight", GATE_UP, 'f', 'e'}, {"ffn_down.weight", DOWN, 'e', 'f'},
    {"attn_q.bias", BIAS, '-', 'q'}, {"attn_k.bias", BIAS, '-', 'k'}, {"attn_v.bias", BIAS, '-', 'k'},
    {"attn_output.bias", BIAS, '-', 'e'}, {"ffn_gate.bias", BIAS, '-', 'f'}, {"ffn_up.bias", BIAS, '-', 'f'},
    {"ffn_down.bias", BIAS, '-', 'e'},
};

static uint32_t dim(const mk_options *o, char c)
{
    switch (c) {
    case 'e': return o->n_embd;
    case 'q': return o->n_heads * o->head_dim;
    case 'k': return o->n_kv_heads * o->head_dim;
    case 'f': return o->n_ff;
    default: return 0;
    }
}

static aerie_status for_each(const mk_options *o, visit_fn *visit, void *context, aerie_error *error)
{
    AE_TRY(visit(context, &(tensor){"token_embd.weight", EMBED, 0, o->n_vocab, o->n_embd}, error));
    if (o->rope_freqs) AE_TRY(visit(context, &(tensor){"rope_freqs.weight", FREQS, 0, 0, o->head_dim / 2}, error));
    for (uint32_t i = 0; i < o->n_layers; i++)
        for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++) {
            const struct part *p = &parts[k];
            if (p->role == BIAS && !o->biases) continue;
            tensor t = {"", p->role, i, dim(o, p->out), dim(o, p->in)};
            snprintf(t.name, sizeof t.name, "blk.%u.%s", i, p->name);
            AE_TRY(visit(context, &t, error));
        }
    AE_TRY(visit(context, &(tensor){"output_norm.weight", NORM, 0, 0, o->n_embd}, error));
    return o->tied ? AERIE_OK : visit(context, &(tensor){"output.weight", HEAD, 0, o->n_vocab, o->n_embd}, error);
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
    const int64_t ne[2] = {t->n_in, t->n_out};
    return ae_gguf_writer_tensor(w->writer, t->name, type_of(&w->plan, t->role, t->layer, t->n_in), t->n_out ? 2 : 1, ne, error);
}

static aerie_status fill(void *context, const tensor *t, aerie_error *error)
{
    writing *w = context;
    const uint32_t type = type_of(&w->plan, t->role, t->layer, t->n_in);
    const size_t row = ae_type_row_bytes(type, t->n_in);
    uint64_t state = w->plan.o->seed;
    for (const char *c = t->name; *c; c++) {
        state ^= (uint64_t)(unsigned char)*c;
        mk_random(&state);
        state = state * 0x2545f4914f6cdd1du;
    }
    if (!t->n_out) {
        fill_vector(&w->plan, t->role, !strcmp(t->name, "output_norm.weight"), &state, (float *)(void *)w->buffer, t->n_in);
        return ae_gguf_writer_data(w->writer, w->buffer, row, error);
    }
    const float sd = gain_of(&w->plan, t->role, t->layer) / sqrtf((float)t->n_in);
    for (uint32_t done = 0, n; done < t->n_out; done += n) {
        n = (uint32_t)(BUFFER_BYTES / row);
        if (n > t->n_out - done) n = t->n_out - done;
        mk_blocks(type, sd, &state, w->buffer, (size_t)n * t->n_in);
        AE_TRY(ae_gguf_writer_data(w->writer, w->buffer, n * row, error));
    }
    return AERIE_OK;
}

static aerie_status write_keys(const mk_options *o, ae_gguf_writer *w, aerie_error *error)
{
    const struct {
        const char *key;
        uint32_t value;
    } counts[] = {
        {"general.quantization_version", 2}, {"llama.block_count", o->n_layers}, {"llama.context_length", o->n_ctx},
        {"llama.embedding_length", o->n_embd}, {"llama.feed_forward_length", o->n_ff}, {"llama.vocab_size", o->n_vocab},
        {"llama.attention.head_count", o->n_heads}, {"llama.attention.head_count_kv", o->n_kv_heads},
        {"llama.attention.key_length", o->head_dim}, {"llama.attention.value_length", o->head_dim},
        {"llama.rope.dimension_count", o->head_dim},
    };
    AE_TRY(ae_gguf_writer_string(w, "general.architecture", "llama", error));
    AE_TRY(ae_gguf_writer_string(w, "general.name", "random", error));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        AE_TRY(ae_gguf_writer_u32(w, counts[i].key, counts[i].value, error));
    AE_TRY(ae_gguf_writer_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f, error));
    AE_TRY(ae_gguf_writer_f32(w, "llama.rope.freq_base", o->rope_base, error));
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
           o->head_dim % 2 == 0 && o->n_heads * o->head_dim <= most && o->n_ctx && o->n_vocab >= MK_MIN_VOCAB;
}

aerie_status mk_model(const mk_options *o, const char *path, aerie_error *error)
{
    writing w = {.plan = {.o = o, .decay = o->layer_decay > 0 ? o->layer_decay : 1.0f}};
    if (!plan_type(&w.plan, o->type ? o->type : "q4_0"))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "\"%s\" is no type for weights; q4_0, q8_0, q4_K, f16 ... and the mixes "
                       "q4_k_m and q5_k_m are", o->type);
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
