/* media.h - the positions of a sequence that are not tokens: where they are, their rows, and how they are counted.
 *
 * Owns nothing: rows and lists are lent by the owner of the request. Lists are ascending and do not overlap.
 */
#ifndef AE_ENGINE_MEDIA_H
#define AE_ENGINE_MEDIA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Positions of a prompt that are not tokens. Their ids in the list of tokens are below 0; equal ids mean equal rows. */
typedef struct ae_media {
    uint32_t first, n;
    const float *rows; /* [1 + n_deepstack][n][n_embd], lent while the sequence is active */
    bool group;        /* the rows see each other, and run in one pass */
    uint32_t n_across; /* columns of the grid that the rows form, and by which they rotate; 0: no grid */
} ae_media;

/* Returns how much lower than their index the positions after `m` rotate: a grid counts as its longer side. */
static inline uint32_t ae_media_debt(const ae_media *m)
{
    if (!m->n_across) return 0;
    const uint32_t down = (m->n + m->n_across - 1) / m->n_across;
    return m->n - (down > m->n_across ? down : m->n_across);
}

/* Returns the first component of the rotation at a position, the one that text uses: all rows of a grid have that of its
 * beginning. */
static inline uint32_t ae_media_turned(const ae_media *media, uint32_t n, uint32_t position)
{
    uint32_t debt = 0;
    for (uint32_t i = 0; i < n && media[i].first <= position; i++) {
        if (position < media[i].first + media[i].n) return (media[i].n_across ? media[i].first : position) - debt;
        debt += ae_media_debt(&media[i]);
    }
    return position - debt;
}

/* Returns whether some of the tokens stand for rows (ids below 0). */
static inline bool ae_media_among(const int32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0) return true;
    return false;
}

#endif
