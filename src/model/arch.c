#include "model/arch.h"

#include <string.h>

#define EXPERTS AE_EXPERTS_ALWAYS, .gate = AE_EXPERT_GATE_SOFTMAX

static const ae_arch archs[] = {
    /* Llama 1 to 3, Mistral, Mixtral, SmolLM2, TinyLlama, and whatever else is converted under that name */
    {.name = "llama", .experts = AE_EXPERTS_MAYBE, .gate = AE_EXPERT_GATE_SOFTMAX, .renorm = true},
    {.name = "qwen2", .rope_neox = true},
    {.name = "qwen2moe", .rope_neox = true, .experts = EXPERTS, .shared = AE_SHARED_GATED, .split_ff = true},
    {.name = "qwen3", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD},
    {.name = "qwen3moe", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD, .experts = EXPERTS, .renorm = true, .split_ff = true},
    {.name = "olmoe", .rope_neox = true, .qk_norm = AE_QK_NORM_ROW, .experts = EXPERTS},
    {.name = "deepseek", .experts = EXPERTS, .shared = AE_SHARED_COUNT},
    {.name = "dots1", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD, .experts = EXPERTS, .shared = AE_SHARED_COUNT},
    {.name = "eagle", .drafter = true},
    {.name = "eagle3", .drafter = true},
    {.name = "medusa", .drafter = true},
};

const ae_arch *ae_arch_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (strlen(archs[i].name) == n && !memcmp(archs[i].name, name, n)) return &archs[i];
    return NULL;
}

const char *ae_model_known_archs(void)
{
    return "llama, qwen2, qwen2moe, qwen3, qwen3moe, olmoe, deepseek, dots1";
}
