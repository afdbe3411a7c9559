/* suffix.h - an online suffix automaton over a token sequence.
 *
 * The automaton (Blumer, Blumer, Haussler, Ehrenfeucht, Chen, Seiferas: "The smallest automaton
 * recognizing the subwords of a text", 1985) has one state per set of end positions: all substrings
 * that end at the same places share a state, whose longest substring has `length` tokens. The suffix
 * link leads to the longest suffix that also ends elsewhere. So after every token the link of the state
 * of the whole sequence is the longest suffix that occurred before, at no further cost.
 *
 * Owns: states, edges, the hash that finds an edge by (state, token). Does not own: tokens, and the use
 * of a match (ngram.c).
 *
 * Invariants
 *   1. At most 2 n states and 3 n edges for n tokens; adding a token costs amortised O(1) however
 *      large the vocabulary is, since edges sit in one hash and in a list per state, never in rows.
 *   2. length[link[s]] < length[s]; the root has length 0 and no link.
 *   3. A state without edges is a suffix of the sequence that occurs nowhere else; every other state
 *      was continued before, and `latest` is one of its edges' tokens.
 *   4. `count` and `latest` tell how often the state's substrings ended so far (the end of the
 *      sequence included) and how they were last continued. Each token updates the
 *      AE_SUFFIX_WALK longest suffixes only: exact for text whose suffixes recur at fewer depths than
 *      that, too low or too old for the short contexts of very repetitive text. Without the
 *      bound a run of one token would cost O(n^2).
 *   5. After ae_suffix_add returned false the automaton is empty and owns nothing; it may be used again.
 */
#ifndef AE_DRAFT_SUFFIX_H
#define AE_DRAFT_SUFFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AE_SUFFIX_ROOT 0u
#define AE_SUFFIX_NONE UINT32_MAX
#define AE_SUFFIX_WALK 32

typedef struct ae_suffix_state {
    uint32_t length; /* tokens in the longest substring */
    uint32_t link;   /* AE_SUFFIX_NONE for the root */
    uint32_t edges;  /* first of a list, or AE_SUFFIX_NONE */
    uint32_t count;  /* end positions, see invariant 4 */
    int32_t latest;  /* newest continuation; meaningless without edges */
} ae_suffix_state;

typedef struct ae_suffix_edge {
    uint32_t from, to;
    uint32_t next; /* another edge of the same state, or AE_SUFFIX_NONE */
    int32_t token;
} ae_suffix_edge;

typedef struct ae_suffix {   /* empty when all zero */
    ae_suffix_state *states; /* [n_states] of state_capacity */
    ae_suffix_edge *edges;   /* [n_edges] of edge_capacity */
    uint32_t *table;         /* [table_size] edge + 1, 0 = free; a power of two >= 2 edge_capacity */
    uint32_t n_states, state_capacity, n_edges, edge_capacity;
    uint32_t table_size;
    uint32_t last; /* state of the whole sequence */
} ae_suffix;

/* Appends a token; false when out of memory. */
bool ae_suffix_add(ae_suffix *suffix, int32_t token);
/* Returns to the empty sequence; keeps the memory unless it is large (KEEP_CAPACITY). */
void ae_suffix_clear(ae_suffix *suffix);
void ae_suffix_free(ae_suffix *suffix);

/* Returns the state of the longest suffix that occurred before, and its length (that of the state's longest substring); the
 * root and 0 if not even the newest token occurred before. */
uint32_t ae_suffix_match(const ae_suffix *suffix, uint32_t *length);
/* Returns the state after one more token, or AE_SUFFIX_NONE if that continuation never occurred. */
uint32_t ae_suffix_step(const ae_suffix *suffix, uint32_t state, int32_t token);

#endif
