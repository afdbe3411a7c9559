/* charsmap.h - the normalization of text that SentencePiece compiles into a model: sequences of bytes and what replaces them.
 *
 * Owns: a copy of the blob. The blob may be hostile: whatever it holds, lookups stay inside it and look at most at
 * AE_CHARSMAP_LONGEST bytes of text. Source: SentencePiece's normalizer.cc (a u32 with the size of a Darts double array, the
 * array, then replacements that end with a NUL).
 */
#ifndef AE_TEXT_TOKEN_SEARCH_CHARSMAP_H
#define AE_TEXT_TOKEN_SEARCH_CHARSMAP_H

#include "base/err.h"
#include "base/mem.h"

enum { AE_CHARSMAP_LONGEST = 256 }; /* longest sequence that is replaced, in bytes; published maps have some 20 */

typedef struct ae_charsmap {
    uint32_t *units; /* [n_units] the double array */
    size_t n_units;
    char *replacements; /* [n_replacements], the last byte is a NUL */
    size_t n_replacements;
} ae_charsmap;

/* Copies a blob [n]; n == 0 gives a map that replaces nothing. `what` names the blob in messages. Errors: FORMAT, MEMORY. */
aerie_status ae_charsmap_create(ae_charsmap *map, const uint8_t *blob, size_t n, const char *what, aerie_error *error);
void ae_charsmap_free(ae_charsmap *map);

/* Finds the longest sequence at text[0..n) that is replaced: returns its length (0: none), and its replacement [*n_out], lent
 * by the map. */
size_t ae_charsmap_find(const ae_charsmap *map, const char *text, size_t n, const char **out, size_t *n_out);

#endif
