/* trie.h - byte strings in a trie: all that begin a text are found in one walk.
 *
 * Owns: the nodes. Immutable once built; knows no vocabulary. Children of a node lie together, in the order of their bytes.
 * Invariant: node 0 is the root, and no node's child; a walk ends at 0.
 */
#ifndef AE_TEXT_TOKEN_SEARCH_TRIE_H
#define AE_TEXT_TOKEN_SEARCH_TRIE_H

#include "base/err.h"
#include "base/mem.h"

typedef struct ae_trie_node {
    uint32_t first;      /* the node's children are nodes[first, first + n_children) */
    uint16_t n_children; /* 0..256 */
    uint8_t byte;        /* last byte of the node's string */
    int32_t id;          /* id of the string that ends here; -1: none */
} ae_trie_node;

typedef struct ae_trie {
    ae_trie_node *nodes; /* [n] */
    size_t n, capacity;
    uint32_t root[256]; /* the root's children by byte; 0: none */
} ae_trie;

typedef struct ae_trie_string {
    const char *bytes; /* [n] */
    uint32_t n;
    int32_t id; /* >= 0 */
} ae_trie_string;

/* Builds the trie of strings [n], which are sorted; empty ones are left out, and of equal ones the lowest id counts. Time
 * O(bytes log n). Errors: MEMORY. */
aerie_status ae_trie_build(ae_trie *trie, ae_trie_string *strings, size_t n, aerie_error *error);
void ae_trie_free(ae_trie *trie);

/* Returns the child of `node` for `byte`; 0: there is none. */
static inline uint32_t ae_trie_step(const ae_trie *trie, uint32_t node, uint8_t byte)
{
    if (node == 0) return trie->root[byte];
    uint32_t lo = trie->nodes[node].first, hi = lo + trie->nodes[node].n_children;
    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;
        if (trie->nodes[mid].byte == byte) return mid;
        if (trie->nodes[mid].byte < byte) lo = mid + 1;
        else hi = mid;
    }
    return 0;
}

/* Finds the longest string at text[0..n): returns its id, and its length in *length; -1 if there is none. */
int32_t ae_trie_longest(const ae_trie *trie, const char *text, size_t n, size_t *length);

#endif
