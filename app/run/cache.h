/* cache.h - --prompt-cache: a file with the KV cache of a prompt, for a later run that begins with the same prompt.
 * Owns the tokens of the file, and those to be written to it. The library owns the bytes (docs/saved.md), and refuses files
 * that another model or other settings have made. The output does not depend on the file. */
#ifndef AERIE_APP_CACHE_H
#define AERIE_APP_CACHE_H

#include "run/generate.h"

typedef struct app_cache {
    const char *path; /* NULL: none */
    const app_loras *loras;
    bool all;         /* answers are kept too */
    bool read_only;
    int32_t *held;    /* [n_held] tokens in the file */
    size_t n_held;
    int32_t *tokens;  /* [n_tokens] tokens to be written */
    size_t n_tokens;
} app_cache;

/* Checks whether such a file is possible, before any work. */
int app_cache_check(const app_options *options);
/* Reads the file, if there is one, into the session's KV cache. */
int app_cache_open(app_cache *cache, const app_options *options, aerie_session *session);
/* Notes that a prompt was answered. Of several prompts the first is kept; with `all` the last one and its answer. */
int app_cache_note(app_cache *cache, const aerie_model *model, const app_prompt *prompt, const app_answer *answer);
/* Writes the file unless it has all the tokens already. */
int app_cache_save(const app_cache *cache, aerie_session *session);
void app_cache_free(app_cache *cache);

#endif
