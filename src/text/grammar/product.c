/* product.c - the intersection of a piece with a deterministic automaton (build.h).
 *
 * A place of the product is a node of the piece, a state of the monitor, and the open calls of rules: rules are expanded in
 * place, since what follows a call depends on the monitor's state after it. Places from which no text can end are left out,
 * since an answer that reached one could not end.
 */
#include "text/grammar/build.h"

/* ---- Sets of triples ------------------------------------------------------------------------------------- */

static uint32_t hash_key(uint32_t a, uint32_t b, uint32_t c)
{
    uint64_t x = (a * 0x9E3779B97F4A7C15u) ^ (b * 0xC2B2AE3D27D4EB4Fu) ^ (c * 0x165667B19E3779F9u);
    x = (x ^ x >> 31) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(x >> 32);
}

static bool grow_keys(ae_gkeys *k)
{
    if (k->n < k->capacity) return true;
    const uint32_t capacity = k->capacity ? k->capacity * 2 : 128, size = capacity * 2;
    void *items = ae_realloc(k->items, capacity, sizeof *k->items);
    if (items) k->items = items;
    uint32_t *table = items ? ae_alloc(size, sizeof *table) : NULL;
    if (!table) return false;
    for (uint32_t i = 0; i < k->n; i++) {
        uint32_t at = hash_key(k->items[i][0], k->items[i][1], k->items[i][2]) & (size - 1);
        while (table[at]) at = (at + 1) & (size - 1);
        table[at] = i + 1;
    }
    ae_free(k->table);
    k->table = table;
    k->table_size = size;
    k->capacity = capacity;
    return true;
}

uint32_t ae_gkeys_add(ae_gkeys *k, uint32_t a, uint32_t b, uint32_t c)
{
    if (!grow_keys(k)) return AE_GNONE;
    uint32_t at = hash_key(a, b, c) & (k->table_size - 1);
    for (; k->table[at]; at = (at + 1) & (k->table_size - 1)) {
        const uint32_t *key = k->items[k->table[at] - 1];
        if (key[0] == a && key[1] == b && key[2] == c) return k->table[at] - 1;
    }
    k->items[k->n][0] = a, k->items[k->n][1] = b, k->items[k->n][2] = c;
    k->table[at] = ++k->n;
    return k->n - 1;
}

void ae_gkeys_free(ae_gkeys *k)
{
    ae_free(k->items);
    ae_free(k->table);
    *k = (ae_gkeys){0};
}

/* ---- The walk --------------------------------------------------------------------------------------------- */

typedef struct step {
    uint32_t from, to; /* places */
    bool empty;
    uint8_t lo, hi; /* unless empty */
} step;

typedef struct walk {
    ae_gbuild *b;
    const ae_gmonitor *monitor;
    ae_gpiece piece;
    uint32_t max_places;
    ae_gkeys places; /* context, node, state */
    /* Open calls of rules, as (context of the caller, node to return to, 0). A context is the number of an open call + 1; 0: no
     * call is open. */
    ae_gkeys contexts;
    step *steps; /* [n_steps] */
    uint32_t n_steps;
    size_t steps_capacity;
    bool too_large, no_memory;
} walk;

static bool is_good(const walk *w)
{
    return !w->too_large && !w->no_memory;
}

static bool is_end(const walk *w, uint32_t context, uint32_t node)
{
    return !context && node == w->piece.end;
}

/* Follows calls, returns and moves that leave no choice. */
static void settle(walk *w, uint32_t *context, uint32_t *node)
{
    for (uint32_t i = 0; is_good(w) && !is_end(w, *context, *node); i++) {
        const ae_gnode *n = &w->b->nodes[*node];
        if (n->kind == AE_GNODE_CALL) {
            const uint32_t start = w->b->rules[n->a].start, inner = ae_gkeys_add(&w->contexts, *context, n->b, 0);
            w->no_memory |= inner == AE_GNONE;
            w->too_large |= start == AE_GNONE || w->contexts.n > w->max_places;
            if (!is_good(w)) return;
            *context = inner + 1;
            *node = start;
        } else if (n->kind == AE_GNODE_RETURN && *context) {
            const uint32_t *around = w->contexts.items[*context - 1];
            *context = around[0];
            *node = around[1];
        } else if (n->kind == AE_GNODE_SPLIT && n->a != AE_GNONE && w->b->edges[n->a].next == AE_GNONE && i < 1000) {
            *node = w->b->edges[n->a].target;
        } else {
            return;
        }
    }
}

static uint32_t place_at(walk *w, uint32_t context, uint32_t node, uint32_t state)
{
    settle(w, &context, &node);
    const uint32_t place = is_good(w) ? ae_gkeys_add(&w->places, context, node, state) : 0;
    w->no_memory |= place == AE_GNONE;
    w->too_large |= w->places.n > w->max_places;
    return place;
}

static void add_step(walk *w, step s)
{
    if (!is_good(w)) return;
    step *grown = ae_grow(w->steps, w->n_steps, &w->steps_capacity, sizeof *grown);
    if (!grown) {
        w->no_memory = true;
        return;
    }
    w->steps = grown;
    w->steps[w->n_steps++] = s;
    w->too_large |= w->n_steps > 8 * (uint64_t)w->max_places;
}

/* Adds the steps of an edge: one for each run of bytes that lead to the same state. */
static void add_bytes(walk *w, uint32_t place, uint32_t context, const ae_gedge *e, uint32_t state)
{
    const ae_gmonitor *m = w->monitor;
    for (unsigned lo = e->lo; lo <= e->hi;) {
        const uint32_t next = m->step(m->context, state, (uint8_t)lo);
        unsigned hi = lo;
        while (hi < e->hi && m->step(m->context, state, (uint8_t)(hi + 1)) == next) hi++;
        if (next != AE_GNONE)
            add_step(w, (step){place, place_at(w, context, e->target, next), false, (uint8_t)lo, (uint8_t)hi});
        lo = hi + 1;
    }
}

static void expand(walk *w, uint32_t place)
{
    const uint32_t context = w->places.items[place][0], node = w->places.items[place][1], state = w->places.items[place][2];
    const ae_gnode *n = &w->b->nodes[node];
    if (n->kind != AE_GNODE_SPLIT && n->kind != AE_GNODE_BYTES) return;
    for (uint32_t i = n->a; i != AE_GNONE && is_good(w); i = w->b->edges[i].next) {
        const ae_gedge *e = &w->b->edges[i];
        if (n->kind == AE_GNODE_BYTES) add_bytes(w, place, context, e, state);
        else add_step(w, (step){place, place_at(w, context, e->target, state), true, 0, 0});
    }
}

static bool is_final(const walk *w, uint32_t place)
{
    const uint32_t *key = w->places.items[place];
    return is_end(w, key[0], key[1]) && w->monitor->may_end(w->monitor->context, key[2]);
}

/* ---- Useful places ------------------------------------------------------------------------------------------- */

/* Sets node [n_places] to 0 where a text can still end, else to AE_GNONE. Scratch: first [n_places + 1], order [n_steps],
 * work [n_places]. */
static void find_useful(const walk *w, uint32_t *node, uint32_t *first, uint32_t *order, uint32_t *work)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_steps; i++) first[w->steps[i].to + 1]++;
    for (uint32_t i = 0; i < w->places.n; i++) first[i + 1] += first[i];
    /* first[p + 1] is now the index at which the steps into p begin */
    for (uint32_t i = w->n_steps; i-- > 0;) order[--first[w->steps[i].to + 1]] = i;
    for (uint32_t i = 0; i < w->places.n; i++) {
        node[i] = is_final(w, i) ? 0 : AE_GNONE;
        if (node[i] == 0) work[n++] = i;
    }
    while (n) {
        const uint32_t at = work[--n], end = at + 1 < w->places.n ? first[at + 2] : w->n_steps;
        for (uint32_t k = first[at + 1]; k < end; k++) {
            const uint32_t from = w->steps[order[k]].from;
            if (node[from] != AE_GNONE) continue;
            node[from] = 0;
            work[n++] = from;
        }
    }
}

static ae_gpiece emit(const walk *w, uint32_t *node)
{
    ae_gbuild *b = w->b;
    const ae_gpiece out = ae_gbuild_never(b);
    for (uint32_t i = 0; i < w->places.n; i++)
        if (node[i] != AE_GNONE) {
            const bool bytes = b->nodes[w->places.items[i][1]].kind == AE_GNODE_BYTES;
            node[i] = ae_gbuild_node(b, bytes ? AE_GNODE_BYTES : AE_GNODE_SPLIT);
        }
    for (uint32_t i = 0; i < w->n_steps && b->status == AERIE_OK; i++) {
        const step *s = &w->steps[i];
        if (node[s->from] == AE_GNONE || node[s->to] == AE_GNONE) continue;
        if (s->empty) ae_gbuild_move(b, node[s->from], node[s->to]);
        else ae_gbuild_edge(b, node[s->from], s->lo, s->hi, node[s->to]);
    }
    for (uint32_t i = 0; i < w->places.n && b->status == AERIE_OK; i++)
        if (node[i] != AE_GNONE && is_final(w, i)) ae_gbuild_move(b, node[i], out.end);
    ae_gbuild_move(b, out.start, node[0]);
    return out;
}

static void finish(walk *w, ae_gpiece *out)
{
    const uint32_t n = w->places.n;
    uint32_t *block = ae_alloc(3 * (size_t)n + 1 + w->n_steps, sizeof *block);
    if (!block) {
        w->no_memory = true;
        return;
    }
    uint32_t *node = block, *work = node + n, *first = work + n, *order = first + n + 1;
    find_useful(w, node, first, order, work);
    *out = node[0] == AE_GNONE ? (ae_gpiece){AE_GNONE, AE_GNONE} : emit(w, node);
    ae_free(block);
}

bool ae_gbuild_both(ae_gbuild *b, ae_gpiece piece, const ae_gmonitor *monitor, uint32_t max_places, ae_gpiece *out)
{
    walk w = {.b = b, .monitor = monitor, .piece = piece, .max_places = max_places};
    *out = piece;
    if (b->status != AERIE_OK) return true;
    place_at(&w, 0, piece.start, monitor->start);
    for (uint32_t i = 0; i < w.places.n && is_good(&w); i++) expand(&w, i);
    if (is_good(&w)) finish(&w, out);
    if (w.no_memory) ae_gbuild_fail(b, ae_fail_memory(b->error, "a grammar", w.places.n * sizeof *w.places.items));
    ae_gkeys_free(&w.places);
    ae_gkeys_free(&w.contexts);
    ae_free(w.steps);
    return !w.too_large;
}
