/* gguf_override.h - metadata from the user that replaces values of a file. Private to src/formats.
 *
 * Owns: the keys and values, in the same form as those of a file, so that all typed reads work on them.
 */
#ifndef AE_FORMATS_GGUF_OVERRIDE_H
#define AE_FORMATS_GGUF_OVERRIDE_H

#include <stdatomic.h>

#include "base/mem.h"
#include "formats/gguf.h"

typedef struct ae_gguf_overrides {
    ae_gguf_kv *kv; /* [n] in the order given; if keys are equal, the last one is used */
    atomic_bool *read; /* [n] whether the key has been looked up */
    size_t n;
    ae_arena arena; /* holds keys, values and both arrays */
} ae_gguf_overrides;

/* texts [n]: "KEY=TYPE:VALUE". Errors: ARGUMENT, with a message that quotes the text; MEMORY. After a failure there is nothing
 * to free. */
aerie_status ae_gguf_overrides_parse(ae_gguf_overrides *out, const char *const *texts, size_t n, aerie_error *error);
void ae_gguf_overrides_free(ae_gguf_overrides *overrides);
/* Returns the override of a key, marked as read; NULL if there is none. Any thread. */
const ae_gguf_kv *ae_gguf_overrides_find(const ae_gguf_overrides *overrides, const char *key);

#endif
