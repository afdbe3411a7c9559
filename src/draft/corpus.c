/* corpus.c - implements corpus.h. */
#include "draft/corpus.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

#define BLOCK 64   /* tokens per block; the block's hash tells whether it was added before */
/* the tokens just before a new block that are added again with it, so that a context that reaches across the block's start is
 * found */
#define OVERLAP 64

typedef struct generation {
    ae_suffix suffix;
    int32_t *tokens;  /* [n] of capacity: the tokens added so far, which a file stores */
    uint32_t n, capacity; /* n includes the tokens that mark ends of sequences */
    uint64_t *blocks; /* [block_capacity, a power of two] hashes of the prefixes up to each block; 0: free */
    uint32_t n_blocks, block_capacity;
} generation;

/* A text that waits to be added. */
typedef struct waiting {
    struct waiting *next;
    size_t n, at; /* tokens in all, and tokens that were added or skipped */
    int32_t tokens[];
} waiting;

typedef struct text {
    uint64_t scope, version, used;
    generation young, old;
    waiting *first; /* oldest first */
    uint64_t prefix; /* hash of the first text's tokens before `at`, in whole blocks */
    bool skips;      /* the newest tokens of the young generation are not those that precede `at` in the first text */
} text;

struct ae_corpus {
    uint32_t n_tokens; /* budget of one scope's text */
    uint64_t clock;
    int32_t end; /* the last end of a sequence; each end is a different negative number */
    text texts[AE_CORPUS_SCOPES];
    uint32_t n_texts;
};

/* ---- Generations --------------------------------------------------------------------------------------------- */

static void generation_free(generation *g)
{
    ae_suffix_free(&g->suffix);
    ae_free(g->tokens);
    ae_free(g->blocks);
    *g = (generation){0};
}

static uint32_t place_of(const generation *g, uint64_t hash)
{
    uint32_t i = (uint32_t)(hash >> 32) & (g->block_capacity - 1);
    while (g->blocks[i] && g->blocks[i] != hash) i = (i + 1) & (g->block_capacity - 1);
    return i;
}

static bool has_block(const generation *g, uint64_t hash)
{
    return g->block_capacity && g->blocks[place_of(g, hash)] == hash;
}

/* If memory is short, the block is not recorded. It may be added again later, which does no harm. */
static void note_block(generation *g, uint64_t hash)
{
    if (2 * (g->n_blocks + 1) > g->block_capacity) {
        const generation was = *g;
        const uint32_t capacity = was.block_capacity ? 2 * was.block_capacity : 64;
        uint64_t *blocks = ae_alloc(capacity, sizeof *blocks);
        if (!blocks) return;
        g->blocks = blocks;
        g->block_capacity = capacity;
        for (uint32_t i = 0; i < was.block_capacity; i++)
            if (was.blocks[i]) blocks[place_of(g, was.blocks[i])] = was.blocks[i];
        ae_free(was.blocks);
    }
    const uint32_t i = place_of(g, hash);
    if (!g->blocks[i]) g->n_blocks++;
    g->blocks[i] = hash;
}

/* ---- Texts --------------------------------------------------------------------------------------------------------- */

static void text_free(text *t)
{
    generation_free(&t->young);
    generation_free(&t->old);
    for (waiting *w = t->first, *next; w; w = next) {
        next = w->next;
        ae_free(w);
    }
    *t = (text){0};
}

static text *text_of(const ae_corpus *c, uint64_t scope)
{
    for (uint32_t i = 0; i < c->n_texts; i++)
        if (c->texts[i].scope == scope) return (text *)&c->texts[i];
    return NULL;
}

static text *least_recent(ae_corpus *c, const text *but)
{
    text *least = NULL;
    for (uint32_t i = 0; i < c->n_texts; i++)
        if (&c->texts[i] != but && (!least || c->texts[i].used < least->used)) least = &c->texts[i];
    return least;
}

static uint64_t n_held(const ae_corpus *c)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->n_texts; i++) n += c->texts[i].young.n + c->texts[i].old.n;
    return n;
}

static text *text_for(ae_corpus *c, uint64_t scope)
{
    text *t = text_of(c, scope);
    if (!t) {
        t = c->n_texts < AE_CORPUS_SCOPES ? &c->texts[c->n_texts++] : least_recent(c, NULL);
        text_free(t);
    }
    while (n_held(c) > (uint64_t)(AE_CORPUS_ALL - 1) * c->n_tokens) { /* makes room for this scope's own budget */
        text *least = least_recent(c, t);
        if (!least) break;
        const uint64_t of = least->scope;
        text_free(least);
        least->scope = of;
        least->used = c->clock; /* the text is empty now, so the next one to go is another scope's */
        least->version = ++c->clock;
    }
    t->scope = scope;
    t->used = ++c->clock;
    if (!t->version) t->version = c->clock; /* a number that no earlier text in this place had */
    return t;
}

static void grow_old(ae_corpus *c, text *t)
{
    generation_free(&t->old);
    t->old = t->young;
    t->young = (generation){0};
    t->version = ++c->clock;
}

static bool has_room(generation *g)
{
    if (g->n < g->capacity) return true;
    const uint32_t capacity = g->capacity ? 2 * g->capacity : 1024;
    int32_t *tokens = ae_alloc(capacity, sizeof *tokens);
    if (!tokens) return false;
    if (g->n) memcpy(tokens, g->tokens, g->n * sizeof *tokens);
    ae_free(g->tokens);
    g->tokens = tokens;
    g->capacity = capacity;
    return true;
}

/* If memory is short, the young generation is lost: suffix.h leaves it empty. */
static void add_token(ae_corpus *c, text *t, int32_t token)
{
    if (has_room(&t->young) && ae_suffix_add(&t->young.suffix, token)) {
        t->young.tokens[t->young.n++] = token;
        return;
    }
    generation_free(&t->young);
    t->version = ++c->clock;
}

static uint64_t hash_block(uint64_t prefix, const int32_t *tokens)
{
    const uint64_t hash = ae_hash64(prefix, tokens, BLOCK * sizeof *tokens);
    return hash ? hash : 1;
}

/* Adds the next tokens of the text that has waited longest, at most a block. Returns how many tokens it has looked at. */
static size_t add_some(ae_corpus *c, text *t)
{
    waiting *w = t->first;
    const size_t n = w->n - w->at < BLOCK ? w->n - w->at : BLOCK;
    const uint64_t hash = n == BLOCK ? hash_block(t->prefix, w->tokens + w->at) : 0;
    if (t->young.n + n + OVERLAP + 1 > c->n_tokens / 2) {
        grow_old(c, t);
        t->skips = true; /* the next tokens go to another generation than those before */
    }
    const bool known = hash && (has_block(&t->young, hash) || has_block(&t->old, hash));
    if (known && w->at + n < w->n) {
        t->skips = true;
    } else {
        const size_t from = t->skips ? w->at - (w->at < OVERLAP ? w->at : OVERLAP) : w->at;
        for (size_t i = from; i < w->at + n; i++) add_token(c, t, w->tokens[i]);
        t->skips = false;
        if (hash) note_block(&t->young, hash);
        t->version = ++c->clock;
    }
    t->prefix = hash;
    w->at += n;
    if (w->at == w->n) {
        c->end = c->end == INT32_MIN ? -1 : c->end - 1;
        add_token(c, t, c->end);
        t->first = w->next;
        t->prefix = 0;
        t->skips = false;
        ae_free(w);
    }
    return n;
}

void ae_corpus_work(ae_corpus *c)
{
    size_t n = 0;
    for (uint32_t i = 0; i < c->n_texts; i++)
        while (c->texts[i].first && n < AE_CORPUS_STEP) n += add_some(c, &c->texts[i]);
}

void ae_corpus_add(ae_corpus *c, uint64_t scope, const int32_t *tokens, size_t n)
{
    if (!n) return;
    const size_t most = c->n_tokens / 2 > 4 * BLOCK ? c->n_tokens / 2 - 2 * BLOCK : 0;
    if (n > most) tokens += n - most, n = most; /* only its newest tokens */
    waiting *w = n ? ae_alloc(1, sizeof *w + n * sizeof *tokens) : NULL;
    if (!w) return;
    w->n = n;
    memcpy(w->tokens, tokens, n * sizeof *tokens);
    text *t = text_for(c, scope);
    waiting **end = &t->first;
    while (*end) end = &(*end)->next;
    *end = w;
    ae_corpus_work(c);
}

/* ---- Places ---------------------------------------------------------------------------------------------------------- */

/* Adding text may have split the state of a match: the match's length shows which part it belongs to. */
static void settle(const ae_suffix *s, ae_corpus_match *m)
{
    while (m->state != AE_SUFFIX_ROOT && m->length <= s->states[s->states[m->state].link].length)
        m->state = s->states[m->state].link;
}

static void step(const ae_suffix *s, ae_corpus_match *m, int32_t token)
{
    if (!s->n_states) {
        *m = (ae_corpus_match){AE_SUFFIX_ROOT, 0};
        return;
    }
    settle(s, m);
    for (;;) {
        const uint32_t to = ae_suffix_step(s, m->state, token);
        if (to != AE_SUFFIX_NONE) {
            m->state = to;
            m->length++;
            return;
        }
        if (m->state == AE_SUFFIX_ROOT) {
            m->length = 0;
            return;
        }
        m->state = s->states[m->state].link;
        m->length = s->states[m->state].length;
    }
}

void ae_corpus_step(const ae_corpus *c, ae_corpus_place *place, int32_t token)
{
    const text *t = text_of(c, place->scope);
    if (!t || place->version != t->version) return; /* ae_corpus_find starts again */
    step(&t->young.suffix, &place->at[0], token);
    step(&t->old.suffix, &place->at[1], token);
}

const ae_suffix *ae_corpus_find(const ae_corpus *c, ae_corpus_place *place, const int32_t *tokens, size_t n,
                                ae_corpus_match *match)
{
    const text *t = text_of(c, place->scope);
    if (!t) return NULL;
    if (place->version != t->version) {
        place->at[0] = place->at[1] = (ae_corpus_match){AE_SUFFIX_ROOT, 0};
        place->version = t->version;
        for (size_t i = n < AE_CORPUS_LOOK ? 0 : n - AE_CORPUS_LOOK; i < n; i++) ae_corpus_step(c, place, tokens[i]);
    }
    const ae_suffix *best = NULL;
    const ae_suffix *const of[2] = {&t->young.suffix, &t->old.suffix};
    for (int i = 0; i < 2; i++) {
        ae_corpus_match m = place->at[i];
        if (!of[i]->n_states) continue;
        settle(of[i], &m);
        while (m.state != AE_SUFFIX_ROOT && of[i]->states[m.state].edges == AE_SUFFIX_NONE) {
            m.state = of[i]->states[m.state].link;
            m.length = of[i]->states[m.state].length;
        }
        if (m.state == AE_SUFFIX_ROOT || (best && m.length <= match->length)) continue;
        *match = m;
        best = of[i];
    }
    return best;
}

/* ---- Files ------------------------------------------------------------------------------------------------------------- */

/* The header of a scope's tokens in a file. */
typedef struct record {
    uint64_t scope;
    uint32_t n, zero;
} record;
_Static_assert(sizeof(record) == 16, "no padding");

void ae_corpus_finish(ae_corpus *c)
{
    for (uint32_t i = 0; i < c->n_texts; i++)
        while (c->texts[i].first) ae_corpus_work(c);
}

static uint32_t n_tokens_of(const text *t)
{
    return t->old.n + t->young.n;
}

size_t ae_corpus_bytes(const ae_corpus *c)
{
    size_t n = 0;
    for (uint32_t i = 0; i < c->n_texts; i++)
        if (n_tokens_of(&c->texts[i])) n += sizeof(record) + n_tokens_of(&c->texts[i]) * sizeof(int32_t);
    return n;
}

void ae_corpus_write(const ae_corpus *c, uint8_t *out)
{
    uint64_t after = 0;
    for (uint32_t k = 0; k < c->n_texts; k++) { /* in order of use: no two texts have the same clock, except empty ones */
        const text *next = NULL;
        for (uint32_t i = 0; i < c->n_texts; i++) {
            const text *t = &c->texts[i];
            if (n_tokens_of(t) && t->used > after && (!next || t->used < next->used)) next = t;
        }
        if (!next) return;
        after = next->used;
        const record r = {next->scope, n_tokens_of(next), 0};
        memcpy(out, &r, sizeof r);
        out += sizeof r;
        const generation *const of[2] = {&next->old, &next->young};
        for (int g = 0; g < 2; g++) {
            if (of[g]->n) memcpy(out, of[g]->tokens, of[g]->n * sizeof(int32_t));
            out += of[g]->n * sizeof(int32_t);
        }
    }
}

/* Reads the next record of in[*at ..n). Returns false if there is none or it is not valid. */
static bool next_record(const uint8_t *in, size_t n, size_t *at, record *r, const uint8_t **tokens)
{
    if (n - *at < sizeof *r) return false;
    memcpy(r, in + *at, sizeof *r);
    *at += sizeof *r;
    if (!r->n || r->zero || r->n > (n - *at) / sizeof(int32_t)) return false;
    *tokens = in + *at;
    *at += r->n * sizeof(int32_t);
    return true;
}

/* Returns whether in [n] is a valid file. *n_tokens: tokens of all sequences, without the marks of their ends. */
static bool is_sound(const uint8_t *in, size_t n, int32_t n_vocab, size_t *n_tokens)
{
    record r;
    const uint8_t *tokens;
    size_t at = 0;
    *n_tokens = 0;
    while (at < n) {
        if (!next_record(in, n, &at, &r, &tokens)) return false;
        for (uint32_t i = 0; i < r.n; i++) {
            int32_t token;
            memcpy(&token, tokens + i * sizeof token, sizeof token);
            if (token >= n_vocab) return false;
            *n_tokens += token >= 0;
        }
    }
    return true;
}

bool ae_corpus_read(ae_corpus *c, const uint8_t *in, size_t n, int32_t n_vocab, size_t *n_tokens)
{
    record r;
    const uint8_t *tokens;
    if (!is_sound(in, n, n_vocab, n_tokens)) return false;
    for (size_t at = 0; at < n && next_record(in, n, &at, &r, &tokens);) {
        int32_t *list = ae_alloc(r.n, sizeof *list);
        if (!list) return true; /* without memory text is forgotten */
        memcpy(list, tokens, r.n * sizeof *list);
        for (uint32_t first = 0, i = 0; i <= r.n; i++) {
            if (i < r.n && list[i] >= 0) continue;
            if (i > first) ae_corpus_add(c, r.scope, list + first, i - first); /* a sequence, or a piece of one */
            first = i + 1;
        }
        ae_free(list);
    }
    ae_corpus_finish(c);
    return true;
}

/* ---- Life --------------------------------------------------------------------------------------------------------------- */

ae_corpus *ae_corpus_create(uint32_t n_tokens)
{
    ae_corpus *c = ae_alloc(1, sizeof *c);
    if (c) c->n_tokens = n_tokens;
    return c;
}

void ae_corpus_free(ae_corpus *c)
{
    if (!c) return;
    for (uint32_t i = 0; i < c->n_texts; i++) text_free(&c->texts[i]);
    ae_free(c);
}
