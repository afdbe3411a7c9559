/* trie.c - see trie.h. Built level by level from the sorted strings: the strings below a node are a range of them, and a node's
 * children are appended together. No recursion.
 */
#include "text/token/search/trie.h"

#include <stdlib.h>

static int compare(const void *left, const void *right)
{
    const ae_trie_string *a = left, *b = right;
    const int order = memcmp(a->bytes, b->bytes, a->n < b->n ? a->n : b->n);
    if (order) return order;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Strings [begin, end) have the first `depth` bytes of a node in common. */
typedef struct range {
    uint32_t begin, end, depth;
} range;

typedef struct builder {
    ae_trie *trie;
    range *ranges; /* [capacity], one per node */
    size_t capacity;
} builder;

static bool add_node(builder *b, uint8_t byte, range r)
{
    ae_trie *trie = b->trie;
    if (trie->n >= UINT32_MAX) return false;
    ae_trie_node *nodes = ae_grow(trie->nodes, trie->n, &trie->capacity, sizeof *nodes);
    if (!nodes) return false;
    trie->nodes = nodes;
    range *ranges = ae_grow(b->ranges, trie->n, &b->capacity, sizeof *ranges);
    if (!ranges) return false;
    b->ranges = ranges;
    ranges[trie->n] = r;
    nodes[trie->n++] = (ae_trie_node){.byte = byte, .id = -1};
    return true;
}

static bool add_children(builder *b, const ae_trie_string *strings, uint32_t node)
{
    range r = b->ranges[node];
    if (strings[r.begin].n == r.depth) b->trie->nodes[node].id = strings[r.begin].id;
    while (r.begin < r.end && strings[r.begin].n == r.depth) r.begin++; /* equal strings: the first has the lowest id */
    b->trie->nodes[node].first = (uint32_t)b->trie->n;
    for (uint32_t i = r.begin, stop; i < r.end; i = stop) {
        const uint8_t byte = (uint8_t)strings[i].bytes[r.depth];
        for (stop = i + 1; stop < r.end && (uint8_t)strings[stop].bytes[r.depth] == byte;) stop++;
        if (!add_node(b, byte, (range){i, stop, r.depth + 1})) return false;
        b->trie->nodes[node].n_children++;
        if (node == 0) b->trie->root[byte] = (uint32_t)b->trie->n - 1;
    }
    return true;
}

aerie_status ae_trie_build(ae_trie *trie, ae_trie_string *strings, size_t n, aerie_error *error)
{
    builder b = {.trie = trie};
    *trie = (ae_trie){0};
    if (n) qsort(strings, n, sizeof *strings, compare);
    uint32_t begin = 0;
    while (begin < n && strings[begin].n == 0) begin++;
    bool ok = n < UINT32_MAX && add_node(&b, 0, (range){begin, (uint32_t)n, 0});
    if (ok && begin == n) b.trie->nodes[0].first = 1; /* no strings: a root alone */
    for (uint32_t node = 0; ok && begin < n && node < trie->n; node++) ok = add_children(&b, strings, node);
    ae_free(b.ranges);
    if (ok) return AERIE_OK;
    ae_trie_free(trie);
    return ae_fail_memory(error, "a trie of tokens", n * sizeof *strings);
}

void ae_trie_free(ae_trie *trie)
{
    ae_free(trie->nodes);
    *trie = (ae_trie){0};
}

int32_t ae_trie_longest(const ae_trie *trie, const char *text, size_t n, size_t *length)
{
    int32_t id = -1;
    uint32_t node = 0;
    for (size_t i = 0; i < n && (node = ae_trie_step(trie, node, (uint8_t)text[i])) != 0; i++) {
        if (trie->nodes[node].id < 0) continue;
        id = trie->nodes[node].id;
        *length = i + 1;
    }
    return id;
}
