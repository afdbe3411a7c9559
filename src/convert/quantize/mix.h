/* mix.h - chooses the type of each tensor when a file is quantized.
 * Owns the table of mixes (Q4_K_M ...), the rules by which a mix chooses, and the fallbacks for rows that are not
 * whole blocks. Does not own the encoders (types.h), or rewriting a file (rewrite.h). The choice depends on a tensor's
 * name and shape and on the model's size, never on the weights. Source: the names, numbers and rules are those of
 * llama.cpp's quantize program (src/llama-quant.cpp, without importance matrix), so that a file with the same name
 * has the same types. For a type that only aerie can encode, the rule of the nearest type is used. Drafter heads
 * (docs/heads.md) have no rules of their own: every weight gets the mix's type. In encoders with Q8_0 the matrices of queries,
 * keys and values are F16, unlike llama.cpp's (docs/embeddings.md says why). */
#ifndef AE_CONVERT_QUANTIZE_MIX_H
#define AE_CONVERT_QUANTIZE_MIX_H

#include "formats/gguf.h"
#include "quant/types.h"

#define AE_MIX_AS_IS AE_TYPE_COUNT /* not a type: keeps the file's type, or uses the mix's */

typedef struct ae_mix {
    const char *name;   /* "Q4_K_M" */
    uint32_t type;      /* type of most weights; AE_MIX_AS_IS: types stay as they are (COPY) */
    uint32_t file_type; /* value of general.file_type; unused for COPY */
    const char *about;
} ae_mix;

size_t ae_mix_count(void);
const ae_mix *ae_mix_at(size_t i);
/* Ignores case, and knows the short names Q3_K, Q4_K, Q5_K and MXFP4. NULL if unknown. */
const ae_mix *ae_mix_by_name(const char *name);

/* Facts about the model on which the choice depends. */
typedef struct ae_mix_model {
    uint32_t n_layers, n_gqa, n_experts; /* n_gqa: query heads per KV head; n_experts 0: none */
    bool head;                           /* a drafter head */
    bool tied;                           /* there is no output.weight: the embeddings serve as the output */
    bool encoder;                        /* of BERT's family */
} ae_mix_model;

/* Reads the facts from a file. Missing or malformed keys count as 0 layers, 1 query head per KV head, no experts. */
void ae_mix_model_read(ae_mix_model *model, const ae_gguf *gguf);

/* Returns whether the tensor is quantized: a float matrix called "...weight" that is not a norm, a router, a position table or
 * a small convolution. */
bool ae_mix_is_weight(const ae_gguf_tensor *tensor);
/* Returns the type that the mix wants for a weight of this name. ne0: elements in a row. */
uint32_t ae_mix_type(const ae_mix *mix, const ae_mix_model *model, ae_gguf_string name, int64_t ne0);
/* Returns the type itself, or a fallback if rows of ne0 elements do not fit its blocks. */
uint32_t ae_mix_fit(uint32_t type, int64_t ne0);

/* Returns whether the mix makes sense only for models with experts (MXFP4_MOE). */
bool ae_mix_needs_experts(const ae_mix *mix);
/* Returns whether weights of this type lose much quality without an importance matrix. */
bool ae_mix_needs_importance(uint32_t type);

/* Returns whether encoding a tensor of this type would quantize it a second time. */
bool ae_mix_is_quantized(uint32_t type);

/* Returns whether it is an encoder's matrix of queries, keys or values, which Q8_0 leaves in F16. */
bool ae_mix_needs_floats(ae_gguf_string name);

bool ae_mix_name_is(ae_gguf_string name, const char *text);
bool ae_mix_name_holds(ae_gguf_string name, const char *text);

#endif
