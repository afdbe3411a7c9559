/* merge.c - joins the neighbours of a word in the order that the vocabulary prefers.
 *
 * One loop serves BPE (order = rank of the merge) and SPM (order = score, best first);
 * equal orders go left to right. Short words use a plain scan; longer ones a heap of
 * candidates over a linked list of symbols, so a word of n symbols costs O(n log n). A candidate
 * is stale when its left symbol is gone or the pair has grown since; lengths only grow, so comparing
 * their sum detects that. All memory is on the heap; the caller reuses it, and may reserve it in advance.
 */
#include "base/heap.h"
#include "text/token/vocab_int.h"

#define NONE UINT32_MAX /* the order of a pair that does not merge */
enum { SHORT = 24 };    /* words with fewer symbols are scanned, which is faster than the heap */
enum { WAYS = 4 };      /* children of a node of the heap: one cache line */

void ae_merger_free(ae_merger *merger)
{
    ae_free(merger->symbols);
    ae_free(merger->heap);
    *merger = (ae_merger){0};
}

bool ae_merger_reserve(ae_merger *merger, size_t n)
{
    if (n <= merger->capacity) return true;
    size_t capacity = n < 256 ? 256 : n + n / 2;
    ae_symbol *symbols = ae_realloc(merger->symbols, capacity, sizeof *symbols);
    if (!symbols) return false;
    merger->symbols = symbols;
    merger->capacity = capacity;
    return true;
}

bool ae_merger_reserve_all(ae_merger *merger, size_t n)
{
    size_t capacity; /* room for one candidate per pair and two per merge */
    if (!ae_mul_size(n, 3, &capacity) || !ae_merger_reserve(merger, n)) return false;
    if (capacity <= merger->heap_capacity) return true;
    ae_candidate *heap = ae_realloc(merger->heap, capacity, sizeof *heap);
    if (!heap) return false;
    merger->heap = heap;
    merger->heap_capacity = capacity;
    return true;
}

/* Returns the order in which the pair merges, NONE if it does not; *id is the symbol that it becomes. */
static uint32_t pair_order(const ae_vocab *vocab, const char *word, const ae_symbol *a, const ae_symbol *b, int32_t *id)
{
    if (!vocab->merges) {
        *id = ae_keys_find(vocab, word + a->begin, (size_t)a->n + b->n);
        return *id < 0 || *id >= vocab->n_tokens ? NONE : vocab->order[*id];
    }
    const ae_merge *m = ae_merges_find(vocab, a->id, b->id);
    if (!m) return NONE;
    *id = m->id;
    return m->rank;
}

/* n <= SHORT: find the best pair, join it, close the gap. */
static void run_short(const ae_vocab *vocab, ae_merger *merger, const char *word)
{
    ae_symbol *s = merger->symbols;
    uint32_t order[SHORT];
    int32_t id[SHORT];
    size_t n = merger->n;
    for (size_t i = 0; i + 1 < n; i++) order[i] = pair_order(vocab, word, &s[i], &s[i + 1], &id[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            if (order[i] < order[best]) best = i;
        }
        if (order[best] == NONE) break;
        s[best].n += s[best + 1].n;
        s[best].id = id[best];
        n--;
        for (size_t i = best + 1; i < n; i++) s[i] = s[i + 1];
        for (size_t i = best + 1; i + 1 < n; i++) {
            order[i] = order[i + 1];
            id[i] = id[i + 1];
        }
        if (best + 1 < n) order[best] = pair_order(vocab, word, &s[best], &s[best + 1], &id[best]);
        if (best > 0) order[best - 1] = pair_order(vocab, word, &s[best - 1], &s[best], &id[best - 1]);
    }
    merger->n = n;
    for (size_t i = 0; i < n; i++) s[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
}

static bool before(const ae_candidate *a, const ae_candidate *b)
{
    return a->order != b->order ? a->order < b->order : a->left < b->left;
}

static bool heap_push(ae_merger *merger, ae_candidate candidate)
{
    ae_candidate *heap = ae_grow(merger->heap, merger->n_heap, &merger->heap_capacity, sizeof *heap);
    if (!heap) return false;
    merger->heap = heap;
    size_t i = merger->n_heap++;
    for (size_t up; i > 0 && before(&candidate, &heap[up = (i - 1) / WAYS]); i = up) heap[i] = heap[up];
    heap[i] = candidate;
    return true;
}

#define BEFORE(context, a, b) before(a, b)
AE_HEAP_SINK(sink, ae_candidate, WAYS, BEFORE)

static ae_candidate heap_pop(ae_merger *merger)
{
    const ae_candidate top = merger->heap[0];
    merger->heap[0] = merger->heap[--merger->n_heap];
    sink(merger->heap, merger->n_heap, 0, NULL);
    return top;
}

static bool consider(const ae_vocab *vocab, ae_merger *merger, const char *word, int32_t left, int32_t right)
{
    if (left < 0 || right < 0) return true;
    const ae_symbol *a = &merger->symbols[left], *b = &merger->symbols[right];
    ae_candidate c = {.left = (uint32_t)left, .n_bytes = a->n + b->n};
    c.order = pair_order(vocab, word, a, b, &c.id);
    return c.order == NONE || heap_push(merger, c);
}

bool ae_merger_run(const ae_vocab *vocab, ae_merger *merger, const char *word)
{
    if (merger->n <= SHORT) {
        run_short(vocab, merger, word);
        return true;
    }
    ae_symbol *s = merger->symbols;
    size_t n = merger->n;
    merger->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        s[i].prev = (int32_t)i - 1;
        s[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i + 1 < n; i++) {
        if (!consider(vocab, merger, word, (int32_t)i, (int32_t)i + 1)) return false;
    }
    while (merger->n_heap) {
        ae_candidate c = heap_pop(merger);
        ae_symbol *left = &s[c.left];
        if (!left->n || left->next < 0 || left->n + s[left->next].n != c.n_bytes) continue;
        ae_symbol *right = &s[left->next];
        left->n = c.n_bytes;
        left->id = c.id;
        right->n = 0;
        left->next = right->next;
        if (left->next >= 0) s[left->next].prev = (int32_t)c.left;
        if (!consider(vocab, merger, word, left->prev, (int32_t)c.left)) return false;
        if (!consider(vocab, merger, word, (int32_t)c.left, left->next)) return false;
    }
    return true;
}
