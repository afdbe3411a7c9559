/* suffix.c - growing and searching the suffix automaton. Its states, invariants and source are in suffix.h. */
#include "draft/suffix.h"

#include <string.h>

#include "base/mem.h"

#define NONE AE_SUFFIX_NONE
#define FIRST_CAPACITY 256u
#define MAX_CAPACITY (1u << 30)  /* indices and twice the capacity stay within 32 bits */
#define KEEP_CAPACITY (1u << 15) /* ae_suffix_clear keeps arrays of at most this many states or edges */

/* ---- Memory ---------------------------------------------------------------------------------------- */

void ae_suffix_free(ae_suffix *suffix)
{
    ae_free(suffix->states);
    ae_free(suffix->edges);
    ae_free(suffix->table);
    *suffix = (ae_suffix){0};
}

void ae_suffix_clear(ae_suffix *suffix)
{
    if (suffix->edge_capacity > KEEP_CAPACITY || suffix->state_capacity > KEEP_CAPACITY) {
        ae_suffix_free(suffix);
        return;
    }
    if (suffix->table) memset(suffix->table, 0, suffix->table_size * sizeof *suffix->table);
    suffix->n_states = suffix->n_edges = 0;
    suffix->last = AE_SUFFIX_ROOT;
}

/* Doubling keeps the copying amortised O(1) per token. */
static void *grow(void *block, uint32_t *capacity, size_t size)
{
    if (*capacity >= MAX_CAPACITY) return NULL;
    const uint32_t wanted = *capacity ? 2 * *capacity : FIRST_CAPACITY;
    void *moved = ae_realloc(block, wanted, size);
    if (moved) *capacity = wanted;
    return moved;
}

/* ---- Edges ----------------------------------------------------------------------------------------- */

/* Returns the table's place for (from, token): the place of its edge, or the free place where the edge would go. */
static uint32_t place_of(const ae_suffix *s, uint32_t from, int32_t token)
{
    uint64_t x = ((uint64_t)from << 32 | (uint32_t)token) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    uint32_t i = (uint32_t)(x >> 32) & (s->table_size - 1);
    for (; s->table[i]; i = (i + 1) & (s->table_size - 1)) {
        const ae_suffix_edge *e = &s->edges[s->table[i] - 1];
        if (e->from == from && e->token == token) break;
    }
    return i;
}

static uint32_t edge_of(const ae_suffix *s, uint32_t from, int32_t token)
{
    if (!s->n_edges) return NONE;
    return s->table[place_of(s, from, token)] - 1u; /* a free place, 0, becomes NONE */
}

static bool grow_edges(ae_suffix *s)
{
    ae_suffix_edge *edges = grow(s->edges, &s->edge_capacity, sizeof *edges);
    if (!edges) return false;
    s->edges = edges;
    uint32_t *table = ae_alloc(2 * (size_t)s->edge_capacity, sizeof *table);
    if (!table) return false;
    ae_free(s->table);
    s->table = table;
    s->table_size = 2 * s->edge_capacity;
    for (uint32_t i = 0; i < s->n_edges; i++) table[place_of(s, s->edges[i].from, s->edges[i].token)] = i + 1;
    return true;
}

static bool add_edge(ae_suffix *s, uint32_t from, int32_t token, uint32_t to)
{
    if (s->n_edges == s->edge_capacity && !grow_edges(s)) return false;
    const uint32_t i = s->n_edges++;
    s->edges[i] = (ae_suffix_edge){.from = from, .to = to, .next = s->states[from].edges, .token = token};
    s->states[from].edges = i;
    s->table[place_of(s, from, token)] = i + 1;
    return true;
}

/* ---- Growing by a token ---------------------------------------------------------------------------- */

static bool reserve_states(ae_suffix *s)
{
    /* a token adds one state and at most one clone; the first token also adds the root */
    if (s->n_states + 3 <= s->state_capacity) return true;
    ae_suffix_state *states = grow(s->states, &s->state_capacity, sizeof *states);
    if (states) s->states = states;
    return states != NULL;
}

/* Splits `state`: moves its substrings of up to `length` tokens, whose end positions now differ from the others', to a new
 * state. Returns NONE when out of memory. */
static uint32_t split(ae_suffix *s, uint32_t state, uint32_t length)
{
    const uint32_t clone = s->n_states++;
    s->states[clone] = s->states[state];
    s->states[clone].length = length;
    s->states[clone].edges = NONE;
    for (uint32_t i = s->states[state].edges; i != NONE; i = s->edges[i].next) {
        const ae_suffix_edge edge = s->edges[i];
        if (!add_edge(s, clone, edge.token, edge.to)) return NONE;
    }
    s->states[state].link = clone;
    return clone;
}

/* Extends the automaton by a token (the construction of Blumer et al.). Returns false when out of memory; the automaton is then
 * incomplete. */
static bool extend(ae_suffix *s, int32_t token)
{
    const uint32_t newest = s->n_states++;
    s->states[newest] =
        (ae_suffix_state){.length = s->states[s->last].length + 1, .link = AE_SUFFIX_ROOT, .edges = NONE};
    uint32_t p = s->last, edge = NONE;
    for (; p != NONE && (edge = edge_of(s, p, token)) == NONE; p = s->states[p].link) {
        if (!add_edge(s, p, token, newest)) return false;
        s->states[p].latest = token;
    }
    s->last = newest;
    if (p == NONE) return true;
    const uint32_t q = s->edges[edge].to;
    if (s->states[q].length == s->states[p].length + 1) {
        s->states[newest].link = q;
        return true;
    }
    const uint32_t clone = split(s, q, s->states[p].length + 1);
    if (clone == NONE) return false;
    s->states[newest].link = clone;
    for (; p != NONE && (edge = edge_of(s, p, token)) != NONE && s->edges[edge].to == q; p = s->states[p].link)
        s->edges[edge].to = clone;
    return true;
}

bool ae_suffix_add(ae_suffix *s, int32_t token)
{
    if (!reserve_states(s)) {
        ae_suffix_free(s);
        return false;
    }
    if (!s->n_states) {
        s->states[s->n_states++] = (ae_suffix_state){.link = NONE, .edges = NONE};
        s->last = AE_SUFFIX_ROOT;
    }
    uint32_t p = s->last;
    for (int i = 0; i < AE_SUFFIX_WALK && p != AE_SUFFIX_ROOT; i++, p = s->states[p].link) s->states[p].latest = token;
    if (!extend(s, token)) {
        ae_suffix_free(s);
        return false;
    }
    p = s->last;
    for (int i = 0; i < AE_SUFFIX_WALK && p != AE_SUFFIX_ROOT; i++, p = s->states[p].link) s->states[p].count++;
    return true;
}

uint32_t ae_suffix_match(const ae_suffix *s, uint32_t *length)
{
    const bool empty = !s->n_states || s->last == AE_SUFFIX_ROOT;
    const uint32_t state = empty ? AE_SUFFIX_ROOT : s->states[s->last].link;
    *length = empty ? 0 : s->states[state].length;
    return state;
}

uint32_t ae_suffix_step(const ae_suffix *s, uint32_t state, int32_t token)
{
    const uint32_t edge = edge_of(s, state, token);
    return edge == NONE ? NONE : s->edges[edge].to;
}
