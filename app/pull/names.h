/* names.h - models by a bare name, as ollama's users type it: NAME, NAME:TAG, OWNER/NAME, hf.co/OWNER/REPO:QUANT.
 *
 * Owns: which of the models on this machine a name means: those that were pulled, ollama's store, Hugging Face's cache. The
 * latter two are read only. Needs no network.
 */
#ifndef AERIE_APP_PULL_NAMES_H
#define AERIE_APP_PULL_NAMES_H

#include "cli/options.h"

typedef struct name_found {
    char *text;        /* owned; NULL: there is no such model here */
    bool is_reference; /* a reference (source.h) of a pulled model, otherwise the path of a file */
    const char *where; /* where it was found, for messages; static */
} name_found;

/* Whether the text can be such a name: it is neither a reference, nor does it look like a path or a sentence. */
bool name_is_bare(const char *text);
/* Finds the model that a name means on this machine; only_pulled: among pulled models only. */
int name_find(name_found *out, const char *name, bool only_pulled, const app_options *options);
/* Returns the reference that a name stands for if no model here has it: ollama's library, or Hugging Face's after hf.co/. To be
 * freed. */
char *name_reference(const char *name);
/* Returns the name of a model here of which it is a misspelling, or NULL. Released by free. */
char *name_nearest(const char *name, const app_options *options);

#endif
