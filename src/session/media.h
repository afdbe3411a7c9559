/* media.h - prompts in which some positions are no tokens: their chunks as one list of ids, and the ids of their rows.
 *
 * Owns: a session's table from the SHA-256 of a chunk's rows to the ids that stand for them, and the memory of a prompt. Ids
 * are negative, so no vocabulary has them. Equal rows have equal ids, and different rows never share an id. Code that compares
 * tokens (prefix tree, snapshots, preemption) therefore works unchanged. The table forgets the least recently used chunk, which
 * gets new ids if it comes again. Threads: any, under the table's lock, which steps do not take.
 */
#ifndef AE_SESSION_MEDIA_H
#define AE_SESSION_MEDIA_H

#include "aerie_extra.h"
#include "speculate/speculate.h"

typedef struct ae_media_table ae_media_table;

/* Returns NULL if memory is short. */
ae_media_table *ae_media_table_create(void);
void ae_media_table_free(ae_media_table *table);

/* A request's chunks, copied. */
typedef struct ae_media_prompt {
    void *memory;    /* owned, or NULL */
    int32_t *tokens; /* [n_tokens] including the ids of rows */
    size_t n_tokens;
    ae_media *media; /* [n_media] */
    uint32_t n_media;
} ae_media_prompt;

/* Copies chunks[n_chunks] to *out. ARGUMENT: a chunk is empty, has both tokens and rows, has a number that is not finite, or a
 * negative token. LIMIT: more positions than n_ctx, or the session has no ids left. MEMORY. */
aerie_status ae_media_prompt_make(ae_media_prompt *out, ae_media_table *table, const aerie_chunk *chunks, size_t n_chunks,
                                  const ae_hparams *h, uint32_t n_ctx, aerie_error *error);
void ae_media_prompt_free(ae_media_prompt *prompt);

#endif
