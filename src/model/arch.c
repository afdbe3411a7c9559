#include "model/arch.h"

#include <string.h>

#include "model/model.h"

static const ae_arch archs[] = {
    /* Llama 1 to 3, Mistral, SmolLM2, TinyLlama, and whatever else is converted under that name */
    {.name = "llama"},
    {.name = "eagle", .drafter = true},
    {.name = "eagle3", .drafter = true},
};

const ae_arch *ae_arch_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (strlen(archs[i].name) == n && !memcmp(archs[i].name, name, n)) return &archs[i];
    return NULL;
}

const char *ae_model_known_archs(void)
{
    return "llama";
}
