/* build.c - pieces of automata and how they are put together (build.h).
 *
 * UTF-8 ranges are cut as in Ken Thompson's and Russ Cox's regular expression compilers: at the borders of encoded
 * lengths, then byte by byte.
 */
#include "text/grammar/build.h"

#include <stdlib.h>

#include "text/template/value.h"

/* ---- Storage ------------------------------------------------------------------------------------ */

void ae_gbuild_init(ae_gbuild *b, aerie_error *error)
{
    *b = (ae_gbuild){.error = error, .cycle = AE_GNONE};
    ae_arena_init(&b->names, 4096);
}

void ae_gbuild_free(ae_gbuild *b)
{
    ae_arena_free(&b->names);
    ae_free(b->nodes);
    ae_free(b->edges);
    ae_free(b->rules);
    ae_free(b->table);
    *b = (ae_gbuild){0};
}

void ae_gbuild_fail(ae_gbuild *b, aerie_status status)
{
    if (b->status == AERIE_OK) b->status = status;
}

/* Makes room for one more item; returns false after any failure. */
static bool grow(ae_gbuild *b, void **items, uint32_t n, uint32_t *capacity, size_t size, uint32_t limit, const char *what)
{
    if (b->status != AERIE_OK) return false;
    if (n >= limit) {
        ae_gbuild_fail(b, ae_fail(b->error, AERIE_ERROR_LIMIT,
                                  "the grammar is too large: it needs more than %u %s; fewer or shorter repetitions would help",
                                  limit, what));
        return false;
    }
    if (n < *capacity) return true;
    const uint32_t wanted = *capacity ? *capacity * 2 : 256;
    void *grown = ae_realloc(*items, wanted, size);
    if (!grown) {
        ae_gbuild_fail(b, ae_fail_memory(b->error, "a grammar", wanted * size));
        return false;
    }
    *items = grown;
    *capacity = wanted;
    return true;
}

/* Returns the new node; 0 after a failure, when no result is ever used. */
uint32_t ae_gbuild_node(ae_gbuild *b, uint8_t kind)
{
    void *items = b->nodes;
    const bool ok = grow(b, &items, b->n_nodes, &b->nodes_capacity, sizeof *b->nodes, AE_GRAMMAR_MAX_NODES, "nodes");
    b->nodes = items;
    if (!ok) return 0;
    b->nodes[b->n_nodes] = (ae_gnode){.kind = kind, .a = AE_GNONE, .b = AE_GNONE};
    return b->n_nodes++;
}

void ae_gbuild_edge(ae_gbuild *b, uint32_t from, uint8_t lo, uint8_t hi, uint32_t to)
{
    void *items = b->edges;
    const bool ok = grow(b, &items, b->n_edges, &b->edges_capacity, sizeof *b->edges, AE_GRAMMAR_MAX_NODES, "edges");
    b->edges = items;
    if (!ok) return;
    b->edges[b->n_edges] = (ae_gedge){lo, hi, to, b->nodes[from].a};
    b->nodes[from].a = b->n_edges++;
}

void ae_gbuild_move(ae_gbuild *b, uint32_t from, uint32_t to)
{
    ae_gbuild_edge(b, from, 0, 0, to);
}

/* ---- Rules ----------------------------------------------------------------------------------------- */

static uint32_t add_rule(ae_gbuild *b, const char *name, size_t n, uint32_t line, uint32_t column)
{
    void *items = b->rules;
    const bool ok = grow(b, &items, b->n_rules, &b->rules_capacity, sizeof *b->rules, AE_GRAMMAR_MAX_RULES, "rules");
    b->rules = items;
    if (!ok) return 0;
    char *copy = NULL;
    if (name && !(copy = ae_arena_strndup(&b->names, name, n))) {
        ae_gbuild_fail(b, ae_fail_memory(b->error, "a grammar", n));
        return 0;
    }
    b->rules[b->n_rules] = (ae_grule){copy, AE_GNONE, line, column};
    return b->n_rules++;
}

uint32_t ae_gbuild_rule(ae_gbuild *b, const char *name)
{
    return add_rule(b, name, name ? strlen(name) : 0, 0, 0);
}

static uint32_t hash_name(const char *name, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)name[i]) * 16777619u;
    return h;
}

static bool grow_table(ae_gbuild *b)
{
    if (b->n_rules * 2 < b->n_table) return true;
    const uint32_t n = b->n_table ? b->n_table * 2 : 256;
    uint32_t *table = ae_alloc(n, sizeof *table);
    if (!table) {
        ae_gbuild_fail(b, ae_fail_memory(b->error, "a grammar", n * sizeof *table));
        return false;
    }
    for (uint32_t i = 0; i < b->n_table; i++) {
        if (!b->table[i]) continue;
        const char *name = b->rules[b->table[i] - 1].name;
        uint32_t at = hash_name(name, strlen(name)) & (n - 1);
        while (table[at]) at = (at + 1) & (n - 1);
        table[at] = b->table[i];
    }
    ae_free(b->table);
    b->table = table;
    b->n_table = n;
    return true;
}

uint32_t ae_gbuild_rule_named(ae_gbuild *b, const char *name, size_t n, uint32_t line, uint32_t column)
{
    if (b->status != AERIE_OK || !grow_table(b)) return 0;
    uint32_t at = hash_name(name, n) & (b->n_table - 1);
    for (; b->table[at]; at = (at + 1) & (b->n_table - 1)) {
        const char *known = b->rules[b->table[at] - 1].name;
        if (!strncmp(known, name, n) && !known[n]) return b->table[at] - 1;
    }
    const uint32_t rule = add_rule(b, name, n, line, column);
    if (b->status == AERIE_OK) b->table[at] = rule + 1;
    return rule;
}

void ae_gbuild_define(ae_gbuild *b, uint32_t rule, ae_gpiece piece)
{
    if (b->status != AERIE_OK) return;
    b->rules[rule].start = piece.start;
    b->nodes[piece.end].kind = AE_GNODE_RETURN;
}

/* ---- Pieces -------------------------------------------------------------------------------------------- */

ae_gpiece ae_gbuild_empty(ae_gbuild *b)
{
    const uint32_t node = ae_gbuild_node(b, AE_GNODE_SPLIT);
    return (ae_gpiece){node, node};
}

ae_gpiece ae_gbuild_never(ae_gbuild *b)
{
    const uint32_t start = ae_gbuild_node(b, AE_GNODE_SPLIT);
    return (ae_gpiece){start, ae_gbuild_node(b, AE_GNODE_SPLIT)};
}

ae_gpiece ae_gbuild_bytes(ae_gbuild *b, const char *bytes, size_t n)
{
    if (!n) return ae_gbuild_empty(b);
    const uint32_t start = ae_gbuild_node(b, AE_GNODE_BYTES);
    uint32_t at = start;
    for (size_t i = 0; i < n && b->status == AERIE_OK; i++) {
        const uint32_t next = ae_gbuild_node(b, i + 1 < n ? AE_GNODE_BYTES : AE_GNODE_SPLIT);
        ae_gbuild_edge(b, at, (uint8_t)bytes[i], (uint8_t)bytes[i], next);
        at = next;
    }
    return (ae_gpiece){start, at};
}

int ae_gword_compare(const void *a, const void *b)
{
    const ae_gword *x = a, *y = b;
    const int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* A place in the tree of words, reached by a prefix of some word. */
typedef struct word_place {
    uint32_t entry; /* node that leads here */
    uint32_t bytes; /* BYTES node for the bytes that can follow; it is the entry, unless something else may follow too */
} word_place;

static word_place new_place(ae_gbuild *b)
{
    const uint32_t node = ae_gbuild_node(b, AE_GNODE_BYTES);
    return (word_place){node, node};
}

/* Adds an empty move from the place to `node`, in addition to the moves by bytes. */
static void add_way(ae_gbuild *b, word_place *place, uint32_t node)
{
    if (place->entry == place->bytes) {
        place->bytes = ae_gbuild_node(b, AE_GNODE_BYTES);
        if (b->status != AERIE_OK) return;
        b->nodes[place->bytes].a = b->nodes[place->entry].a;
        b->nodes[place->entry] = (ae_gnode){.kind = AE_GNODE_SPLIT, .a = AE_GNONE, .b = AE_GNONE};
        ae_gbuild_move(b, place->entry, place->bytes);
    }
    ae_gbuild_move(b, place->entry, node);
}

static void add_word_step(ae_gbuild *b, word_place *from, uint8_t byte, uint32_t to, uint32_t rule)
{
    if (byte != AE_GWORD_CALL) {
        ae_gbuild_edge(b, from->bytes, byte, byte, to);
        return;
    }
    const uint32_t call = ae_gbuild_node(b, AE_GNODE_CALL);
    if (b->status != AERIE_OK) return;
    b->nodes[call].a = rule;
    b->nodes[call].b = to;
    add_way(b, from, call);
}

static size_t shared_bytes(const ae_gword *a, const ae_gword *b)
{
    size_t n = 0;
    while (n < a->n && n < b->n && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

/* Adds the words. path[i] is the place after the first i bytes of the last word. A word that is a prefix of the next one comes
 * before it, and its end is a place on the next one's path. */
static void add_words(ae_gbuild *b, const ae_gword *words, size_t n, word_place *path, uint32_t end, uint32_t rule)
{
    for (size_t i = 0, last = SIZE_MAX; i < n && b->status == AERIE_OK; i++) {
        const ae_gword *w = &words[i];
        if (i + 1 < n && w->n == w[1].n && shared_bytes(w, w + 1) == w->n) continue; /* the same word follows */
        const bool goes_on = i + 1 < n && shared_bytes(w, w + 1) == w->n;
        for (size_t k = last == SIZE_MAX ? 0 : shared_bytes(w, &words[last]); k < w->n && b->status == AERIE_OK; k++) {
            const bool leaf = k + 1 == w->n && !goes_on;
            const word_place to = leaf ? (word_place){end, end} : new_place(b);
            add_word_step(b, &path[k], (uint8_t)w->bytes[k], to.entry, rule);
            path[k + 1] = to;
        }
        if (goes_on) add_way(b, &path[w->n], end);
        last = i;
    }
}

ae_gpiece ae_gbuild_words(ae_gbuild *b, const ae_gword *words, size_t n, uint32_t rule)
{
    size_t longest = 0;
    for (size_t i = 0; i < n; i++) longest = words[i].n > longest ? words[i].n : longest;
    word_place *path = ae_alloc(longest + 1, sizeof *path);
    if (!path) {
        ae_gbuild_fail(b, ae_fail_memory(b->error, "a grammar", longest * sizeof *path));
        return (ae_gpiece){0, 0};
    }
    path[0] = new_place(b);
    const ae_gpiece piece = {path[0].entry, ae_gbuild_node(b, AE_GNODE_SPLIT)};
    add_words(b, words, n, path, piece.end, rule);
    ae_free(path);
    return piece;
}

ae_gpiece ae_gbuild_text(ae_gbuild *b, const char *text)
{
    return ae_gbuild_bytes(b, text, strlen(text));
}

ae_gpiece ae_gbuild_call(ae_gbuild *b, uint32_t rule)
{
    const uint32_t start = ae_gbuild_node(b, AE_GNODE_CALL), end = ae_gbuild_node(b, AE_GNODE_SPLIT);
    if (b->status == AERIE_OK) b->nodes[start].a = rule, b->nodes[start].b = end;
    return (ae_gpiece){start, end};
}

ae_gpiece ae_gbuild_then(ae_gbuild *b, ae_gpiece first, ae_gpiece second)
{
    ae_gbuild_move(b, first.end, second.start);
    return (ae_gpiece){first.start, second.end};
}

void ae_gbuild_or(ae_gbuild *b, ae_gpiece choices, ae_gpiece piece)
{
    ae_gbuild_move(b, choices.start, piece.start);
    ae_gbuild_move(b, piece.end, choices.end);
}

/* Returns whether the piece is a single step by one byte. Such pieces are copied instead of called. */
static bool is_step(const ae_gbuild *b, ae_gpiece p)
{
    if (b->nodes[p.start].kind != AE_GNODE_BYTES || b->nodes[p.end].a != AE_GNONE) return false;
    for (uint32_t e = b->nodes[p.start].a; e != AE_GNONE; e = b->edges[e].next)
        if (b->edges[e].target != p.end) return false;
    return true;
}

static ae_gpiece copy_step(ae_gbuild *b, ae_gpiece p)
{
    const ae_gpiece copy = {ae_gbuild_node(b, AE_GNODE_BYTES), ae_gbuild_node(b, AE_GNODE_SPLIT)};
    for (uint32_t e = b->nodes[p.start].a; e != AE_GNONE && b->status == AERIE_OK; e = b->edges[e].next)
        ae_gbuild_edge(b, copy.start, b->edges[e].lo, b->edges[e].hi, copy.end);
    return copy;
}

/* A piece that can be used any number of times: copied if it is a step, otherwise called. */
typedef struct many {
    bool step;
    ae_gpiece piece; /* step: copied for each use */
    uint32_t rule;   /* not step: called for each use */
} many;

static ae_gpiece one_of(ae_gbuild *b, const many *m)
{
    return m->step ? copy_step(b, m->piece) : ae_gbuild_call(b, m->rule);
}

/* Once or more. */
static ae_gpiece loop(ae_gbuild *b, ae_gpiece p)
{
    const uint32_t end = ae_gbuild_node(b, AE_GNODE_SPLIT);
    ae_gbuild_move(b, p.end, p.start);
    ae_gbuild_move(b, p.end, end);
    return (ae_gpiece){p.start, end};
}

static ae_gpiece optional(ae_gbuild *b, ae_gpiece p)
{
    const ae_gpiece out = ae_gbuild_never(b);
    ae_gbuild_or(b, out, p);
    ae_gbuild_move(b, out.start, out.end);
    return out;
}

ae_gpiece ae_gbuild_repeat(ae_gbuild *b, ae_gpiece p, uint32_t min, uint32_t max)
{
    if (b->status != AERIE_OK) return p;
    if (max == 0) return ae_gbuild_empty(b);
    if (max == 1) return min ? p : optional(b, p);
    if (max == AE_GNONE && min <= 1) return min ? loop(b, p) : optional(b, loop(b, p));
    many m = {.step = is_step(b, p), .piece = p};
    if (!m.step) {
        m.rule = ae_gbuild_rule(b, NULL);
        ae_gbuild_define(b, m.rule, p);
    }
    ae_gpiece out = ae_gbuild_empty(b);
    for (uint32_t i = 0; i < min && b->status == AERIE_OK; i++) {
        ae_gpiece next = one_of(b, &m);
        if (i + 1 == min && max == AE_GNONE) next = loop(b, next);
        out = ae_gbuild_then(b, out, next);
    }
    if (max == AE_GNONE) return out;
    const uint32_t end = ae_gbuild_node(b, AE_GNODE_SPLIT);
    for (uint32_t i = min; i < max && b->status == AERIE_OK; i++) {
        ae_gbuild_move(b, out.end, end);
        out = ae_gbuild_then(b, out, one_of(b, &m));
    }
    ae_gbuild_move(b, out.end, end);
    return (ae_gpiece){out.start, end};
}

/* ---- Classes ---------------------------------------------------------------------------------------------- */

static int by_lo(const void *a, const void *b)
{
    const uint32_t x = ((const ae_grange *)a)->lo, y = ((const ae_grange *)b)->lo;
    return (x > y) - (x < y);
}

size_t ae_granges_normalize(ae_grange *r, size_t n)
{
    size_t kept = 0;
    if (n) qsort(r, n, sizeof *r, by_lo);
    for (size_t i = 0; i < n; i++) {
        if (kept && r[i].lo <= r[kept - 1].hi + 1) {
            if (r[i].hi > r[kept - 1].hi) r[kept - 1].hi = r[i].hi;
        } else {
            r[kept++] = r[i];
        }
    }
    return kept;
}

#define MAX_CODE 0x10FFFFu

size_t ae_granges_negate(const ae_grange *r, size_t n, ae_grange *out)
{
    size_t kept = 0;
    uint32_t lo = 0;
    for (size_t i = 0; i < n; i++) {
        if (r[i].lo > lo) out[kept++] = (ae_grange){lo, r[i].lo - 1};
        lo = r[i].hi + 1;
    }
    if (lo <= MAX_CODE) out[kept++] = (ae_grange){lo, MAX_CODE};
    return kept;
}

typedef struct encoder {
    ae_gbuild *b;
    uint32_t end;
    uint32_t rest[4]; /* [k] node that accepts any k continuation bytes; AE_GNONE: not made yet */
} encoder;

static uint32_t rest_node(encoder *c, int k)
{
    if (!k) return c->end;
    if (c->rest[k] == AE_GNONE) {
        const uint32_t node = ae_gbuild_node(c->b, AE_GNODE_BYTES);
        c->rest[k] = node;
        ae_gbuild_edge(c->b, node, 0x80, 0xBF, rest_node(c, k - 1));
    }
    return c->rest[k];
}

static bool all(const uint8_t *bytes, int n, uint8_t value)
{
    for (int i = 0; i < n; i++)
        if (bytes[i] != value) return false;
    return true;
}

/* Adds the sequences lo..hi of k bytes, from `node` to the end. */
static void add_sequences(encoder *c, uint32_t node, const uint8_t *lo, const uint8_t *hi, int k)
{
    static const uint8_t least[3] = {0x80, 0x80, 0x80}, most[3] = {0xBF, 0xBF, 0xBF};
    uint8_t first = lo[0], last = hi[0];
    if (c->b->status != AERIE_OK) return;
    if (k == 1) {
        ae_gbuild_edge(c->b, node, first, last, c->end);
        return;
    }
    const bool low_whole = all(lo + 1, k - 1, 0x80), high_whole = all(hi + 1, k - 1, 0xBF);
    if (first == last && !(low_whole && high_whole)) {
        const uint32_t next = ae_gbuild_node(c->b, AE_GNODE_BYTES);
        ae_gbuild_edge(c->b, node, first, first, next);
        add_sequences(c, next, lo + 1, hi + 1, k - 1);
        return;
    }
    if (!low_whole) {
        const uint32_t next = ae_gbuild_node(c->b, AE_GNODE_BYTES);
        ae_gbuild_edge(c->b, node, first, first, next);
        add_sequences(c, next, lo + 1, most, k - 1);
        first++;
    }
    if (!high_whole) {
        const uint32_t next = ae_gbuild_node(c->b, AE_GNODE_BYTES);
        ae_gbuild_edge(c->b, node, last, last, next);
        add_sequences(c, next, least, hi + 1, k - 1);
        last--;
    }
    if (first <= last) ae_gbuild_edge(c->b, node, first, last, rest_node(c, k - 1));
}

static void add_range(encoder *c, uint32_t node, uint32_t lo, uint32_t hi)
{
    /* ranges of code points with the same encoded length; the gap is the surrogates */
    static const ae_grange parts[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, MAX_CODE}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const uint32_t from = lo > parts[i].lo ? lo : parts[i].lo, to = hi < parts[i].hi ? hi : parts[i].hi;
        if (from > to) continue;
        char first[4], last[4];
        const size_t k = ae_utf8_encode(from, first);
        ae_utf8_encode(to, last);
        add_sequences(c, node, (const uint8_t *)first, (const uint8_t *)last, (int)k);
    }
}

ae_gpiece ae_gbuild_class(ae_gbuild *b, const ae_grange *ranges, size_t n)
{
    const ae_gpiece out = {ae_gbuild_node(b, AE_GNODE_BYTES), ae_gbuild_node(b, AE_GNODE_SPLIT)};
    encoder c = {b, out.end, {AE_GNONE, AE_GNONE, AE_GNONE, AE_GNONE}};
    for (size_t i = 0; i < n && b->status == AERIE_OK; i++) add_range(&c, out.start, ranges[i].lo, ranges[i].hi);
    return out;
}
