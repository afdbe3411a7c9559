/* names.h - finds models by a bare name, as ollama's users type it: NAME, NAME:TAG, OWNER/NAME, hf.co/OWNER/REPO:QUANT.
 * Owns the search for the model that a name means: among pulled models, in ollama's store, and in Hugging Face's cache, the
 * last two of which are only read. Needs no network. */
#ifndef AERIE_APP_PULL_NAMES_H
#define AERIE_APP_PULL_NAMES_H

#include "cli/options.h"

typedef struct name_found {
    char *text;        /* owned; NULL: no such model on this machine */
    bool is_reference; /* a reference (source.h) of a pulled model, otherwise the path of a file */
    const char *where; /* where it was found, for messages; static storage */
} name_found;

/* Returns whether the text can be such a name: it is not a reference, and does not look like a path or a sentence. */
bool name_is_bare(const char *text);
/* Finds the model that a name means on this machine; only_pulled: among pulled models only. */
int name_find(name_found *out, const char *name, bool only_pulled, const app_options *options);
/* Returns the reference to use for a name that no model here has: in ollama's library, or after hf.co/ in Hugging Face's. The
 * caller frees it. */
char *name_reference(const char *name);
/* Returns the name of a model here that the text may misspell, or NULL. The caller frees it. */
char *name_nearest(const char *name, const app_options *options);

#endif
