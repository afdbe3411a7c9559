/* cache.h - --prompt-cache: a file that keeps what the KV cache holds of a prompt, for the next run that begins with it.
 *
 * Owns: the file's tokens, and those to be written to it. The bytes are the library's (docs/saved.md), which refuses what
 * another model or other settings have made. The output does not depend on the file.
 */
#ifndef AERIE_APP_CACHE_H
#define AERIE_APP_CACHE_H

#include "run/generate.h"

typedef struct app_cache {
    const char *path; /* NULL: none */
    const app_loras *loras;
    bool all;         /* answers are kept too */
    bool read_only;
    int32_t *held;    /* [n_held] that the file has */
    size_t n_held;
    int32_t *tokens;  /* [n_tokens] that it shall have */
    size_t n_tokens;
} app_cache;

/* Checks before any work whether such a file is possible. */
int app_cache_check(const app_options *options);
/* Reads the file, if there is one, into the session's KV cache. */
int app_cache_open(app_cache *cache, const app_options *options, aerie_session *session);
/* A prompt was answered: of several the first is kept or, with `all`, the last and its answer. */
int app_cache_note(app_cache *cache, const aerie_model *model, const app_prompt *prompt, const app_answer *answer);
/* Writes the file, unless it has all the tokens already. */
int app_cache_save(const app_cache *cache, aerie_session *session);
void app_cache_free(app_cache *cache);

#endif
