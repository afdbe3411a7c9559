/* names.c - aerie.h: the names of speculation types and of KV cache types. Owns the two tables. */
#include <string.h>

#include "session/session_int.h"

static const char *const spec_names[] = {
    [AERIE_SPEC_AUTO] = "auto",
    [AERIE_SPEC_NONE] = "none",
    [AERIE_SPEC_NGRAM] = "ngram",
    [AERIE_SPEC_DRAFT] = "draft",
    [AERIE_SPEC_EAGLE] = "draft-eagle",
    [AERIE_SPEC_EAGLE3] = "draft-eagle3",
    [AERIE_SPEC_MEDUSA] = "draft-medusa",
    [AERIE_SPEC_MTP] = "draft-mtp",
    [AERIE_SPEC_MOE] = "moe",
    [AERIE_SPEC_HIER] = "hier",
    [AERIE_SPEC_DFLASH] = "draft-dflash",
    [AERIE_SPEC_DSPARK] = "draft-dspark",
    [AERIE_SPEC_NLD] = "nld",
};
#define N_SPEC_TYPES (sizeof spec_names / sizeof spec_names[0])

bool ae_session_is_joined(aerie_spec_type type)
{
    return type >= AERIE_SPEC_DRAFT && (size_t)type < N_SPEC_TYPES;
}

const char *aerie_spec_type_name(aerie_spec_type type)
{
    return (size_t)type < N_SPEC_TYPES ? spec_names[type] : NULL;
}

bool aerie_spec_type_parse(const char *name, aerie_spec_type *type)
{
    if (!name || !type) return false;
    for (size_t i = 0; i < N_SPEC_TYPES; i++)
        if (!strcmp(spec_names[i], name)) {
            *type = (aerie_spec_type)i;
            return true;
        }
    return false;
}

static const struct kv_name {
    const char *name;
    ae_kv_type type;
} kv_names[] = {
    [AERIE_KV_F16] = {"f16", AE_KV_F16},
    [AERIE_KV_Q8_0] = {"q8_0", AE_KV_Q8_0},
    [AERIE_KV_I16] = {"i16", AE_KV_I16},
    [AERIE_KV_I16_Q8_0] = {"i16/q8_0", AE_KV_I16_Q8_0},
    [AERIE_KV_Q8_0_I16] = {"q8_0/i16", AE_KV_Q8_0_I16},
    [AERIE_KV_Q4_0] = {"q4_0", AE_KV_Q4_0},
    [AERIE_KV_Q8_0_Q4_0] = {"q8_0/q4_0", AE_KV_Q8_0_Q4_0},
    [AERIE_KV_I16_Q4_0] = {"i16/q4_0", AE_KV_I16_Q4_0},
};
#define N_KV_TYPES (sizeof kv_names / sizeof kv_names[0])

ae_kv_type ae_session_kv_type(aerie_kv_type type)
{
    return kv_names[type].type;
}

const char *aerie_kv_type_name(aerie_kv_type type)
{
    return (size_t)type < N_KV_TYPES ? kv_names[type].name : NULL;
}

bool aerie_kv_type_parse(const char *name, aerie_kv_type *type)
{
    if (!name || !type) return false;
    for (size_t i = 0; i < N_KV_TYPES; i++)
        if (!strcmp(kv_names[i].name, name)) {
            *type = (aerie_kv_type)i;
            return true;
        }
    return false;
}

aerie_spec aerie_spec_default(void)
{
    return (aerie_spec){.type = AERIE_SPEC_AUTO, .n_max = 16, .tree = AERIE_TREE_AUTO, .ngram = true,
                        .moe_experts = AERIE_MOE_TRIAL, .ngram_memory = 1u << 18};
}
