/* media.h - prompts in which some positions are not tokens: their chunks as one list of ids, and the ids of their rows.
 *
 * Owns: a session's table from the SHA-256 of a chunk's rows to the ids that stand for them, and the memory of a prompt. Ids
 * are negative, so no vocabulary has them. Equal rows have equal ids, and different rows never share an id. Code that compares
 * tokens (prefix tree, snapshots, preemption) therefore works unchanged. The table forgets the least recently used chunk, which
 * gets new ids if it comes again. Threads: any, under the table's lock, which steps do not take.
 *
 * Outside of a session a row is a mark: a number below 0 made of its chunk's digest and its place in it, the same in every
 * session and process. Marks are hashes, so two rows may share one; nothing is taken for equal because its marks are. What is
 * saved names the digests, and ids come from these alone.
 */
#ifndef AE_SESSION_MEDIA_H
#define AE_SESSION_MEDIA_H

#include "aerie_extra.h"
#include "speculate/speculate.h"

typedef struct ae_media_table ae_media_table;

/* Returns NULL if memory is short. */
ae_media_table *ae_media_table_create(void);
void ae_media_table_free(ae_media_table *table);

/* Rows of a sequence by their digest, as they are saved: all rows of a chunk, or its first ones. */
typedef struct ae_media_ref {
    uint32_t first, n;  /* positions [first, first + n); n is less than n_rows only where the sequence ends */
    uint32_t n_rows;    /* of the chunk */
    uint32_t n_across;  /* as in aerie_chunk */
    uint32_t group;     /* 1: as in aerie_chunk; else 0 */
    uint32_t reserved;
    uint8_t digest[32]; /* SHA-256 of the chunk */
} ae_media_ref;
_Static_assert(sizeof(ae_media_ref) == 56, "as it lies in files");

/* A request's chunks, copied. */
typedef struct ae_media_prompt {
    void *memory;       /* owned, or NULL */
    int32_t *tokens;    /* [n_tokens] including the ids of rows */
    size_t n_tokens;
    ae_media *media;    /* [n_media] */
    ae_media_ref *refs; /* [n_media] */
    uint32_t n_media;
} ae_media_prompt;

/* Copies chunks[n_chunks] to *out. ARGUMENT: a chunk is empty, has both tokens and rows, has a number that is not finite, or a
 * negative token. LIMIT: more positions than n_ctx, or the session has no ids left. MEMORY. */
aerie_status ae_media_prompt_make(ae_media_prompt *out, ae_media_table *table, const aerie_chunk *chunks, size_t n_chunks,
                                  const ae_hparams *h, uint32_t n_ctx, aerie_error *error);
void ae_media_prompt_free(ae_media_prompt *prompt);

/* Converts chunks to tokens [positions], with marks in place of rows. Errors: as ae_media_prompt_make, without a context. */
aerie_status ae_media_marks(const aerie_chunk *chunks, size_t n_chunks, const ae_hparams *h, int32_t *tokens,
                            aerie_error *error);
/* Writes the marks of refs[n] over their positions in tokens. */
void ae_media_write_marks(const ae_media_ref *refs, uint32_t n, int32_t *tokens);
bool ae_media_has_marks(const ae_media_ref *ref, const int32_t *tokens);
/* Puts ids in place of the marks among tokens[0..n), and the chunks into refs [as many as there are marks], *n_refs of them.
 * Returns for how many tokens, from the first on, it has ids: it stops at a mark of a chunk that the table does not know. */
size_t ae_media_find(ae_media_table *table, int32_t *tokens, size_t n, ae_media_ref *refs, uint32_t *n_refs);
/* Puts the ids of refs[n_refs], which may be new to the table, into tokens. LIMIT: the session has no ids left. */
aerie_status ae_media_enter(ae_media_table *table, const ae_media_ref *refs, uint32_t n_refs, int32_t *tokens,
                            aerie_error *error);
/* Returns the number of floats in the rows of refs[n]. */
uint64_t ae_media_n_floats(const ae_media_ref *refs, uint32_t n, const ae_hparams *h);
/* Copies the rows of media[n] to out in aerie_chunk's order: the numbers of a row are contiguous. */
void ae_media_write_rows(const ae_media *media, uint32_t n, const ae_hparams *h, float *out);

#endif
