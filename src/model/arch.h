/* arch.h - the table of architectures: what distinguishes them, as data. Private to src/model. */
#ifndef AE_MODEL_ARCH_H
#define AE_MODEL_ARCH_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ae_arch {
    const char *name; /* general.architecture and the prefix of its keys */
    bool rope_neox;
    bool drafter;     /* a head that drafts for another model; not runnable by itself */
} ae_arch;

const ae_arch *ae_arch_find(const char *name, size_t n); /* NULL if unknown */

#endif
