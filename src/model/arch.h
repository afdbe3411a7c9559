/* arch.h - the table of architectures: what distinguishes them, as data. Private to src/model. */
#ifndef AE_MODEL_ARCH_H
#define AE_MODEL_ARCH_H

#include "model/model.h"

/* Whether there are experts. */
typedef enum ae_arch_experts {
    AE_EXPERTS_NEVER,
    AE_EXPERTS_MAYBE, /* if expert_count is above 0 */
    AE_EXPERTS_ALWAYS,
} ae_arch_experts;

/* An expert that every row uses beside the chosen ones. */
typedef enum ae_arch_shared {
    AE_SHARED_NONE,
    AE_SHARED_GATED, /* of expert_shared_feed_forward_length, weighed by a sigmoid */
    AE_SHARED_COUNT, /* expert_shared_count times the size of an expert, added as it is */
} ae_arch_shared;

typedef struct ae_arch {
    const char *name; /* general.architecture and the prefix of its keys */
    bool rope_neox;
    bool drafter;     /* a head that drafts for another model; not runnable by itself */
    ae_qk_norm qk_norm;
    ae_arch_experts experts;
    ae_arch_shared shared;
    ae_expert_gate gate; /* unless the file says another */
    bool renorm;         /* chosen weights divided by their sum, unless the file says otherwise */
    bool split_ff;       /* without expert_feed_forward_length an expert has n_ff / n_used, else n_ff */
} ae_arch;

const ae_arch *ae_arch_find(const char *name, size_t n); /* NULL if unknown */

#endif
