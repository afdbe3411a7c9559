/* mkmodel.h - random models of any shape and tensor type, as complete GGUF files.
 *
 * For tests (tiny models, generated and not stored), and through tools/mkmodel.c for benchmarks (the shapes of
 * real models). Same options: same bytes. Every tensor is drawn from the seed and its own name, so a model with fewer
 * layers shares all weights of the layers it has: that makes a draft model which agrees with its target now
 * and then.
 *
 * Weights are random bytes of the format with scales set so that decoded values have mean about 0 and
 * standard deviation gain / sqrt(n_in): no encoder is needed, every type works, and writing is fast. Gains
 * are such that attention looks back, logits spread by about 3, and a greedy continuation goes on changing.
 * The vocabulary is byte-level BPE: three control tokens, 256 bytes, some merges, then padding. Or another one, or the same
 * with its ids in another order: for drafters that have another vocabulary than their target.
 */
#ifndef AE_TEST_MKMODEL_H
#define AE_TEST_MKMODEL_H

#include "base/err.h"

typedef struct mk_options {
    uint32_t n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_vocab, n_ctx;
    float rope_base;
    bool tied;         /* no output.weight */
    bool biases;       /* on every projection; of other architectures than llama on q, k, v */
    bool rope_freqs;   /* divisors of the frequencies, as Llama 3 has them */
    bool forgetful;    /* attention adds next to nothing: a greedy continuation soon runs in circles */
    float layer_decay; /* what a layer adds to the stream shrinks by this from layer to layer; 0 = 1 */
    const char *type;  /* a tensor type ("q4_0", "IQ2_XS"), or a mix: "q4_k_m", "q5_k_m" */
    const char *pre;   /* tokenizer.ggml.pre: "smollm", "gpt-2" ... */
    uint64_t seed;
    const char *vocab; /* "bpe" (NULL); "bpe-other": other merges and control tokens; "spm"; "foreign": no ASCII in it;
                        * "bpe-tags": with tokens for tool calls and infill */
    uint64_t vocab_order; /* ids in an order drawn from this, embedding and output rows with them: the same function of texts */
    const char *arch;  /* "llama" (NULL), "qwen2", "qwen2moe", "qwen3", "qwen3moe", "olmoe", "deepseek", "dots1",
                        * "deepseek2" */
    /* experts; 0 = none */
    uint32_t n_experts, n_used, n_ff_expert;
    uint32_t n_ff_shared; /* of the shared expert, where the architecture has one; a multiple of n_ff_expert but for qwen2moe */
    uint32_t n_dense;     /* leading layers without experts, where the architecture has them */
    bool fused;           /* gate and up of the experts in one tensor */
    /* latent attention (deepseek2), head_dim being n_rope and what does not rotate; 0 = none */
    uint32_t n_latent, n_rope, value_dim;
    uint32_t n_q;         /* width of the projection before queries; 0: none, and experts chosen as in DeepSeek-V2, not V3 */
    bool old_mla;         /* one tensor for keys and values, and the keys of the time before it was split */
} mk_options;

/* "tiny", "tiny-gqa", "tiny-mha", "tiny-moe", "tiny-mla" (all below a second in any test), "135m", "1b", "3b", "8b", and with
 * experts "moe" (OLMoE 1B-7B: 64 of which a row uses 8; 6.9 G weights), "moe-8x1b" (Mixtral in small: 8, 2; 6.7 G), "v2-lite"
 * (DeepSeek-V2-Lite: 64, 6, latent attention; 15.7 G): fills the
 * shape, type q4_0, seed 1. tiny-gqa suits the 256-wide types. false for an unknown name. */
bool mk_shape(const char *name, mk_options *options);
/* "tiny, tiny-gqa, ..." */
const char *mk_shapes_known(void);

/* Tokens that the usual vocabulary starts with. */
#define MK_TOKEN_END 0      /* <|endoftext|> */
#define MK_TOKEN_IM_START 1 /* bos */
#define MK_TOKEN_IM_END 2   /* eos */
#define MK_MIN_VOCAB 259

/* Writes the model. ARGUMENT for an unknown type or a shape that cannot be. A tensor whose rows do not suit the
 * type's blocks gets another type, as llama.cpp does it. */
aerie_status mk_model(const mk_options *options, const char *path, aerie_error *error);

/* ---- Inside, shared by mkmodel*.c, mkhead.c and mkarch.c ------------------------------------------------------------- */

struct ae_gguf_writer;

/* splitmix64 */
static inline uint64_t mk_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Where the draws of a tensor begin. */
static inline uint64_t mk_stream(uint64_t seed, const char *name)
{
    for (; *name; name++) {
        seed ^= (uint64_t)(unsigned char)*name;
        mk_random(&seed);
        seed *= 0x2545f4914f6cdd1du;
    }
    return seed;
}

/* n random elements (a multiple of the type's block) into blocks, standard deviation about sd. `balanced`: half of the
 * scales are negative. The codes of many types lean to one side (-8 to 7): in a large model what all weights have in
 * common then drowns what differs from token to token, and all rows would choose the same experts. */
void mk_blocks(uint32_t type, float sd, bool balanced, uint64_t *state, void *blocks, size_t n);
/* `type`, or what llama.cpp takes in its place when rows of n_in are not whole blocks. */
uint32_t mk_type_for(uint32_t type, uint32_t n_in);
bool mk_vocab_known(const char *vocab);
/* order [n_vocab]: which token of the usual order stands under an id. */
void mk_vocab_order(const mk_options *options, uint32_t *order);
aerie_status mk_vocab(const mk_options *options, struct ae_gguf_writer *writer, aerie_error *error);

#endif
