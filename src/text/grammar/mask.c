/* mask.c - the trie of a vocabulary, and masks found by walking it with a grammar (mask.h). */
#include "text/grammar/mask.h"

#include <math.h>
#include <stdlib.h>

#include "base/os.h"

/* ---- Trie ---------------------------------------------------------------------------------------------- */

/* Nodes are in the order of a walk: parents before children, siblings by byte. */
typedef struct trie_node {
    uint32_t skip;        /* first node after this one's descendants */
    uint32_t first_token; /* index in tokens[]; the tokens from here to the next node's first_token end at this node */
    uint32_t depth;       /* from 1 */
    uint8_t byte;
} trie_node;

struct ae_token_trie {
    uint32_t n_vocab, n_nodes, n_tokens, max_depth, n_ends;
    trie_node *nodes; /* [n_nodes + 1] the last one marks the end */
    int32_t *tokens;  /* [n_tokens] in ascending order of bytes, then ids */
    char *bytes;      /* all tokens' bytes */
    uint32_t *begin;  /* [n_vocab + 1] a token's first index in bytes */
    int32_t *ends;    /* [n_ends] tokens that end a generation, ascending */
};

void ae_token_trie_free(ae_token_trie *t)
{
    if (!t) return;
    ae_free(t->nodes);
    ae_free(t->tokens);
    ae_free(t->bytes);
    ae_free(t->begin);
    ae_free(t->ends);
    ae_free(t);
}

typedef struct entry {
    const char *bytes;
    uint32_t n;
    int32_t token;
} entry;

static int by_bytes(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    const int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    if (order) return order;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

static uint32_t shared(const entry *a, const entry *b)
{
    uint32_t n = 0;
    while (n < a->n && n < b->n && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

/* Appends a token's bytes; those of a control token come after AE_GRAMMAR_CONTROL. Other tokens that contain this byte are left
 * out. */
static void add_bytes(const ae_vocab *vocab, int32_t token, ae_buf *all)
{
    const uint8_t mark = AE_GRAMMAR_CONTROL;
    const bool control = ae_vocab_is_control(vocab, token);
    uint32_t n = 0;
    const char *bytes = ae_vocab_piece_view(vocab, token, control, &n);
    if (!n || (!control && memchr(bytes, mark, n))) return;
    if (control) ae_buf_add(all, &mark, 1);
    ae_buf_add(all, bytes, n);
}

/* Collects every token's bytes, except those of end-of-generation tokens, which are not part of a text. */
static bool collect(ae_token_trie *t, const ae_vocab *vocab)
{
    ae_buf all = {0};
    ae_buf_add(&all, "", 0);
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        t->begin[i] = (uint32_t)all.n;
        if (ae_vocab_is_eog(vocab, (int32_t)i)) {
            t->ends[t->n_ends++] = (int32_t)i;
        } else {
            add_bytes(vocab, (int32_t)i, &all);
            if (all.n > UINT32_MAX / 2) all.failed = true;
        }
        t->n_tokens += !all.failed && all.n > t->begin[i];
    }
    t->begin[t->n_vocab] = (uint32_t)all.n;
    t->bytes = all.data;
    return !all.failed;
}

/* Makes the nodes of sorted entries: each entry adds nodes for its bytes after the prefix that it shares with the one before.
 * */
static bool make_nodes(ae_token_trie *t, const entry *entries)
{
    size_t n = 0;
    for (uint32_t i = 0; i < t->n_tokens; i++) n += entries[i].n - (i ? shared(&entries[i - 1], &entries[i]) : 0);
    t->nodes = ae_alloc(n + 1, sizeof *t->nodes);
    if (!t->nodes) return false;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        for (uint32_t d = i ? shared(&entries[i - 1], &entries[i]) : 0; d < entries[i].n; d++)
            t->nodes[t->n_nodes++] = (trie_node){.first_token = i, .depth = d + 1, .byte = (uint8_t)entries[i].bytes[d]};
        if (entries[i].n > t->max_depth) t->max_depth = entries[i].n;
        t->tokens[i] = entries[i].token;
    }
    t->nodes[n].first_token = t->n_tokens;
    /* a token ends at the last of the nodes made for it; no tokens end at the nodes before it */
    return true;
}

static bool link_skips(ae_token_trie *t)
{
    uint32_t *open = ae_alloc((size_t)t->max_depth + 2, sizeof *open); /* by depth */
    if (!open) return false;
    uint32_t depth = 0;
    for (uint32_t i = 0; i <= t->n_nodes; i++) {
        const uint32_t d = i < t->n_nodes ? t->nodes[i].depth : 1;
        for (; depth >= d; depth--) t->nodes[open[depth]].skip = i;
        depth = d;
        open[d] = i;
    }
    ae_free(open);
    return true;
}

aerie_status ae_token_trie_create(ae_token_trie **out, const ae_vocab *vocab, aerie_error *error)
{
    *out = NULL;
    ae_token_trie *t = ae_alloc(1, sizeof *t);
    if (!t) return ae_fail_memory(error, "the tokens' trie", sizeof *t);
    t->n_vocab = (uint32_t)ae_vocab_n_tokens(vocab);
    t->begin = ae_alloc((size_t)t->n_vocab + 1, sizeof *t->begin);
    t->ends = ae_alloc(t->n_vocab, sizeof *t->ends);
    bool ok = t->begin && t->ends && collect(t, vocab);
    entry *entries = ok ? ae_alloc(t->n_tokens, sizeof *entries) : NULL;
    t->tokens = ok ? ae_alloc(t->n_tokens, sizeof *t->tokens) : NULL;
    ok = entries && t->tokens;
    for (uint32_t i = 0, k = 0; ok && i < t->n_vocab; i++)
        if (t->begin[i + 1] > t->begin[i])
            entries[k++] = (entry){t->bytes + t->begin[i], t->begin[i + 1] - t->begin[i], (int32_t)i};
    if (ok && t->n_tokens) qsort(entries, t->n_tokens, sizeof *entries, by_bytes);
    ok = ok && make_nodes(t, entries) && link_skips(t);
    ae_free(entries);
    if (!ok) {
        ae_token_trie_free(t);
        return ae_fail_memory(error, "the tokens' trie", (size_t)ae_vocab_n_tokens(vocab) * sizeof(trie_node));
    }
    *out = t;
    return AERIE_OK;
}

/* ---- Constraint -------------------------------------------------------------------------------------------- */

#define MIN_MASKS 8
#define MAX_MASKS 1024
#define NO_MASK UINT32_MAX

typedef struct mask_entry {
    ae_gstate state;
    uint32_t n_set;
    uint32_t newer, older; /* NO_MASK at the ends */
} mask_entry;

struct ae_constraint {
    ae_matcher matcher;
    const ae_token_trie *trie;
    ae_gstate *path;       /* [max_depth + 1] states along a branch of the trie */
    uint64_t *words;       /* [n_masks][n_words] */
    mask_entry *masks;     /* [n_masks] */
    uint32_t *mask_of;     /* [AE_MATCHER_STATES] number of the state's mask + 1, or 0 */
    uint32_t n_masks, n_used, n_words, newest, oldest;
    uint32_t generation;   /* the matcher's generation when mask_of was valid */
    ae_constraint_stats stats;
};

static void plan(ae_layout *l, ae_constraint *c)
{
    c->path = ae_layout_add(l, (size_t)c->trie->max_depth + 1, sizeof *c->path);
    c->words = ae_layout_add(l, (size_t)c->n_masks * c->n_words, sizeof *c->words);
    c->masks = ae_layout_add(l, c->n_masks, sizeof *c->masks);
    c->mask_of = ae_layout_add(l, AE_MATCHER_STATES, sizeof *c->mask_of);
}

static void drop_masks(ae_constraint *c)
{
    memset(c->mask_of, 0, AE_MATCHER_STATES * sizeof *c->mask_of);
    c->n_used = 0;
    c->newest = c->oldest = NO_MASK;
    c->generation = c->matcher.generation;
}

aerie_status ae_constraint_create(ae_constraint **out, const ae_grammar *grammar, const ae_token_trie *trie, aerie_error *error)
{
    *out = NULL;
    ae_constraint sizes = {.trie = trie, .n_words = (trie->n_vocab + 63) / 64};
    const size_t fit = AE_CONSTRAINT_MASK_BYTES / (sizes.n_words * sizeof(uint64_t) + 1);
    sizes.n_masks = fit < MIN_MASKS ? MIN_MASKS : fit > MAX_MASKS ? MAX_MASKS : (uint32_t)fit;
    ae_layout l = {0};
    plan(&l, &sizes);
    const size_t head = (sizeof sizes + AE_ALIGN - 1) & ~(size_t)(AE_ALIGN - 1);
    ae_constraint *c = l.overflow ? NULL : ae_alloc_aligned(1, head + l.bytes);
    if (!c) return ae_fail_memory(error, "a grammar's masks", head + l.bytes);
    *c = sizes;
    l = (ae_layout){.base = (char *)c + head};
    plan(&l, c);
    const aerie_status status = ae_matcher_init(&c->matcher, grammar, error);
    if (status != AERIE_OK) {
        ae_free(c);
        return status;
    }
    drop_masks(c);
    *out = c;
    return AERIE_OK;
}

void ae_constraint_free(ae_constraint *c)
{
    if (!c) return;
    ae_matcher_free(&c->matcher);
    ae_free(c);
}

const ae_grammar *ae_constraint_grammar(const ae_constraint *c)
{
    return c->matcher.grammar;
}

void ae_constraint_restart(ae_constraint *c)
{
    ae_matcher_restart(&c->matcher);
    c->stats = (ae_constraint_stats){0};
}

size_t ae_constraint_bytes(const ae_constraint *c)
{
    ae_constraint sizes = *c;
    ae_layout l = {0};
    plan(&l, &sizes);
    return sizeof *c + l.bytes + ae_matcher_bytes(c->matcher.grammar);
}

const ae_constraint_stats *ae_constraint_stats_get(const ae_constraint *c)
{
    return &c->stats;
}

/* ---- Masks ---------------------------------------------------------------------------------------------------- */

static void unlink_mask(ae_constraint *c, uint32_t i)
{
    const mask_entry *e = &c->masks[i];
    if (e->newer != NO_MASK) c->masks[e->newer].older = e->older;
    else c->newest = e->older;
    if (e->older != NO_MASK) c->masks[e->older].newer = e->newer;
    else c->oldest = e->newer;
}

static void link_newest(ae_constraint *c, uint32_t i)
{
    c->masks[i].newer = NO_MASK;
    c->masks[i].older = c->newest;
    if (c->newest != NO_MASK) c->masks[c->newest].newer = i;
    else c->oldest = i;
    c->newest = i;
}

/* Walks the tokens that begin with one byte: node `i`, a child of the trie's root, and its descendants. *n: how many of them
 * are allowed. Returns false if there is no room for the states on the way. */
static bool walk_part(ae_constraint *c, uint32_t i, uint64_t *words, uint32_t *n)
{
    const ae_token_trie *t = c->trie;
    const uint32_t after = t->nodes[i].skip;
    ae_matcher *m = &c->matcher;
    ae_gstate *path = c->path;
    *n = 0;
    path[0] = m->current;
    while (i < after) {
        const trie_node *node = &t->nodes[i];
        const ae_gstate s = ae_matcher_step(m, path[node->depth - 1], node->byte);
        if (s == AE_GSTATE_FULL) return false;
        if (s == AE_GSTATE_DEAD) {
            i = node->skip;
            continue;
        }
        path[node->depth] = s;
        /* the nodes made for one token share first_token, and the token ends at the last of them */
        const uint32_t end = node[1].first_token;
        for (uint32_t k = node->first_token; k < end; k++) {
            const uint32_t token = (uint32_t)t->tokens[k];
            words[token / 64] |= (uint64_t)1 << token % 64;
        }
        *n += end - node->first_token;
        i++;
    }
    return true;
}

/* One pass over the trie. may_flush: if there is no room for a part, all states but the current one are dropped and the part is
 * walked again, so that each part needs room for itself only. Returns false if not even that was enough. */
static bool walk(ae_constraint *c, bool may_flush, uint64_t *words, uint32_t *n_set)
{
    const ae_token_trie *t = c->trie;
    memset(words, 0, c->n_words * sizeof *words);
    *n_set = 0;
    for (uint32_t i = 0, n; i < t->n_nodes; i = t->nodes[i].skip) {
        if (!walk_part(c, i, words, &n)) {
            if (!may_flush) return false;
            ae_matcher_flush(&c->matcher);
            if (!walk_part(c, i, words, &n)) return false;
        }
        *n_set += n;
    }
    return true;
}

/* Returns the entry of the current state's mask; NO_MASK if limits prevent one. */
static uint32_t find_mask(ae_constraint *c)
{
    ae_matcher *m = &c->matcher;
    if (m->current < AE_GSTATE_FIRST) return NO_MASK;
    if (c->generation != m->generation) drop_masks(c);
    uint32_t i = c->mask_of[m->current];
    if (i--) {
        c->stats.n_hits++;
        unlink_mask(c, i);
        link_newest(c, i);
        return i;
    }
    c->stats.n_masks++;
    if (c->n_used < c->n_masks) {
        i = c->n_used++;
    } else {
        i = c->oldest;
        c->mask_of[c->masks[i].state] = 0;
        unlink_mask(c, i);
    }
    uint64_t *words = c->words + (size_t)i * c->n_words;
    uint32_t n_set = 0;
    bool done = walk(c, false, words, &n_set);
    if (!done) { /* walk again, with the room of all older states */
        ae_matcher_flush(m);
        drop_masks(c);
        i = c->n_used++;
        words = c->words;
        done = walk(c, true, words, &n_set);
        c->generation = m->generation;
        m->limit_hit |= !done;
    }
    if (!done) { /* the result of an incomplete walk is not valid */
        memset(words, 0, c->n_words * sizeof *words);
        n_set = 0;
    }
    c->masks[i] = (mask_entry){.state = m->current, .n_set = n_set};
    c->mask_of[m->current] = i + 1;
    link_newest(c, i);
    return i;
}

const uint64_t *ae_constraint_mask(ae_constraint *c, uint32_t *n)
{
    const double start = ae_time_now();
    const uint32_t i = find_mask(c);
    c->stats.seconds += ae_time_now() - start;
    *n = i == NO_MASK ? 0 : c->masks[i].n_set;
    return i == NO_MASK ? NULL : c->words + (size_t)i * c->n_words;
}

uint32_t ae_constraint_apply(ae_constraint *c, const float *logits, bool with_end, float *out)
{
    const double start = ae_time_now();
    const uint32_t i = find_mask(c), n_vocab = c->trie->n_vocab;
    uint32_t n = i == NO_MASK ? 0 : c->masks[i].n_set;
    if (n) {
        const uint64_t *words = c->words + (size_t)i * c->n_words;
        for (uint32_t w = 0; w < c->n_words; w++) {
            const uint32_t first = w * 64, count = n_vocab - first < 64 ? n_vocab - first : 64;
            const uint64_t bits = words[w];
            for (uint32_t k = 0; k < count; k++) out[first + k] = bits >> k & 1 ? logits[first + k] : -INFINITY;
        }
    } else {
        for (uint32_t k = 0; k < n_vocab; k++) out[k] = -INFINITY;
    }
    if (with_end && ae_constraint_may_end(c)) {
        for (uint32_t k = 0; k < c->trie->n_ends; k++) out[c->trie->ends[k]] = logits[c->trie->ends[k]];
        n += c->trie->n_ends;
    }
    c->stats.seconds += ae_time_now() - start;
    return n;
}

/* ---- Single tokens -------------------------------------------------------------------------------------------------- */

ae_gstate ae_constraint_now(const ae_constraint *c)
{
    return c->matcher.current;
}

ae_gstate ae_constraint_behind(ae_constraint *c, ae_gstate state, int32_t token)
{
    const ae_token_trie *t = c->trie;
    if (token < 0 || (uint32_t)token >= t->n_vocab || t->begin[token] == t->begin[token + 1]) return AE_GSTATE_DEAD;
    for (uint32_t i = t->begin[token]; i < t->begin[token + 1] && state >= AE_GSTATE_FIRST; i++)
        state = ae_matcher_step(&c->matcher, state, (uint8_t)t->bytes[i]);
    return state;
}

bool ae_constraint_may_end_at(const ae_constraint *c, ae_gstate state)
{
    return ae_matcher_may_end(&c->matcher, state);
}

bool ae_constraint_allows(ae_constraint *c, int32_t token)
{
    const double start = ae_time_now();
    ae_gstate s = ae_constraint_behind(c, c->matcher.current, token);
    if (s == AE_GSTATE_FULL) {
        ae_matcher_flush(&c->matcher);
        s = ae_constraint_behind(c, c->matcher.current, token);
    }
    c->stats.n_checks++;
    c->stats.seconds += ae_time_now() - start;
    return s >= AE_GSTATE_FIRST;
}

bool ae_constraint_advance(ae_constraint *c, int32_t token)
{
    const ae_token_trie *t = c->trie;
    if (token < 0 || (uint32_t)token >= t->n_vocab || t->begin[token] == t->begin[token + 1]) return false;
    return ae_matcher_advance(&c->matcher, t->bytes + t->begin[token], t->begin[token + 1] - t->begin[token]);
}

bool ae_constraint_may_end(const ae_constraint *c)
{
    return ae_matcher_may_end(&c->matcher, c->matcher.current);
}

bool ae_constraint_is_complete(const ae_constraint *c)
{
    return ae_matcher_is_complete(&c->matcher, c->matcher.current);
}

int32_t ae_constraint_forced(ae_constraint *c, ae_gstate state, ae_gstate *next)
{
    const ae_token_trie *t = c->trie;
    ae_matcher *m = &c->matcher;
    int32_t best = -1;
    uint32_t depth = 0;
    int byte = ae_matcher_forced_byte(m, state);
    for (uint32_t i = 0; byte >= 0 && i < t->n_nodes;) {
        const trie_node *node = &t->nodes[i];
        if (node->depth <= depth) break; /* no child has this byte */
        if (node->byte != byte) {
            i = node->skip;
            continue;
        }
        state = ae_matcher_step(m, state, node->byte);
        if (state < AE_GSTATE_FIRST) break;
        if (node[1].first_token > node->first_token) {
            best = t->tokens[node->first_token];
            *next = state;
        }
        depth = node->depth;
        byte = ae_matcher_forced_byte(m, state);
        i++;
    }
    return best;
}
