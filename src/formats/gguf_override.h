/* gguf_override.h - metadata given by the user that replaces a file's. Private to src/formats.
 *
 * Owns: the keys and values, in the same form as those of a file, so that all typed reads work on them.
 */
#ifndef AE_FORMATS_GGUF_OVERRIDE_H
#define AE_FORMATS_GGUF_OVERRIDE_H

#include <stdatomic.h>

#include "base/mem.h"
#include "formats/gguf.h"

typedef struct ae_gguf_overrides {
    ae_gguf_kv *kv; /* [n] as given; of equal keys the last one counts */
    atomic_bool *read; /* [n] whether anything has asked for the key */
    size_t n;
    ae_arena arena; /* all of it */
} ae_gguf_overrides;

/* texts [n]: "KEY=TYPE:VALUE". ARGUMENT, with a message that quotes the text. After a failure there is nothing to free. */
aerie_status ae_gguf_overrides_parse(ae_gguf_overrides *out, const char *const *texts, size_t n, aerie_error *error);
void ae_gguf_overrides_free(ae_gguf_overrides *overrides);
/* NULL if no key has that name. Any thread. */
const ae_gguf_kv *ae_gguf_overrides_find(const ae_gguf_overrides *overrides, const char *key);

#endif
