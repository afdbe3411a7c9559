/* media.h - prompts of which some positions are no tokens: their chunks as one list of ids, and the numbers of their rows.
 *
 * Owns: a session's table from the SHA-256 of a chunk's rows to the ids that stand for them, and the memory of a prompt. Ids
 * are below 0, so no vocabulary has them; equal rows have equal ids, and other rows never have ids that were given out before:
 * what compares tokens (prefix tree, snapshots, preemption) needs to know no more. The table forgets the chunk that was used
 * least recently; should it come again it gets new ids. Threads: any, under the table's lock; steps do not take it.
 */
#ifndef AE_SESSION_MEDIA_H
#define AE_SESSION_MEDIA_H

#include "aerie_extra.h"
#include "speculate/speculate.h"

typedef struct ae_media_table ae_media_table;

/* NULL: out of memory. */
ae_media_table *ae_media_table_create(void);
void ae_media_table_free(ae_media_table *table);

/* A request's chunks, copied. */
typedef struct ae_media_prompt {
    void *memory;    /* owned, or NULL */
    int32_t *tokens; /* [n_tokens] with the ids of rows */
    size_t n_tokens;
    ae_spec_media *media; /* [n_media] */
    uint32_t n_media;
} ae_media_prompt;

/* ARGUMENT: a chunk is empty, both tokens and rows, not finite, or has a token below 0. LIMIT: more positions than n_ctx, or
 * the session has given out all ids. */
aerie_status ae_media_prompt_make(ae_media_prompt *out, ae_media_table *table, const aerie_chunk *chunks, size_t n_chunks,
                                  const ae_hparams *h, uint32_t n_ctx, aerie_error *error);
void ae_media_prompt_free(ae_media_prompt *prompt);

#endif
