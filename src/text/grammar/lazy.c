/* lazy.c - lazy grammars: free text up to a trigger, then a part that follows a grammar, then free text (aerie.h); or,
 * with a grammar for the rest, no free text but the reasoning.
 *
 * Free text is a deterministic automaton by Aho and Corasick over the triggers: its state is the longest beginning of a trigger
 * that the text ends with. So a lazy grammar is a grammar like any other, and where it takes hold depends on the text alone.
 */
#include "aerie_extra.h"
#include "text/grammar/build.h"

#define MAX_WORD_BYTES 2048 /* most bytes of all words together */
#define MAX_SPACE 4 /* most white space characters after reasoning or a call */
#define NO_WORD UINT16_MAX

/* ---- Words in a text --------------------------------------------------------------------------------------- */

typedef struct word {
    const char *text;
    uint32_t behind; /* node at which the text continues after the word */
} word;

/* An automaton that finds words. State 0 is the beginning. The table of a state that ends a word is not used. */
typedef struct finder {
    uint16_t (*next)[256]; /* [n] */
    uint16_t *suffix; /* [n] the longest shorter state that ends in the same way */
    uint16_t *ends;   /* [n] the word that ends in this state */
    uint16_t *queue;  /* [n] */
    uint32_t n;
} finder;

static void finder_free(finder *f)
{
    ae_free(f->next);
    ae_free(f->suffix);
    ae_free(f->ends);
    ae_free(f->queue);
}

static void add_word(finder *f, const char *text, uint16_t i)
{
    uint16_t at = 0;
    for (const uint8_t *c = (const uint8_t *)text; *c; c++) {
        if (!f->next[at][*c]) f->next[at][*c] = (uint16_t)f->n++;
        at = f->next[at][*c];
    }
    if (f->ends[at] == NO_WORD) f->ends[at] = i;
}

static void close_finder(finder *f)
{
    uint32_t n = 0;
    f->queue[n++] = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint16_t at = f->queue[i];
        for (int c = 0; c < 256; c++) {
            const uint16_t other = at ? f->next[f->suffix[at]][c] : 0, to = f->next[at][c];
            if (!to) {
                f->next[at][c] = other;
                continue;
            }
            f->suffix[to] = other;
            if (f->ends[to] == NO_WORD) f->ends[to] = f->ends[other];
            f->queue[n++] = to;
        }
    }
}

/* Returns false if memory is short. */
static bool finder_create(finder *f, const word *words, size_t n_words)
{
    size_t most = 1;
    for (size_t i = 0; i < n_words; i++) most += strlen(words[i].text);
    *f = (finder){.next = ae_alloc(most, sizeof *f->next),
                  .suffix = ae_alloc(most, sizeof *f->suffix),
                  .ends = ae_alloc(most, sizeof *f->ends),
                  .queue = ae_alloc(most, sizeof *f->queue),
                  .n = 1};
    if (!f->next || !f->suffix || !f->ends || !f->queue) return false;
    for (size_t i = 0; i < most; i++) f->ends[i] = NO_WORD;
    for (size_t i = 0; i < n_words; i++) add_word(f, words[i].text, (uint16_t)i);
    close_finder(f);
    return true;
}

/* ---- Free text --------------------------------------------------------------------------------------------- */

static void add_edges(ae_gbuild *b, const finder *f, const word *words, const uint32_t *nodes, uint32_t at, uint32_t from)
{
    for (unsigned lo = 0, hi; lo < AE_GRAMMAR_CONTROL; lo = hi + 1) {
        const uint16_t to = f->next[at][lo];
        for (hi = lo; hi + 1 < AE_GRAMMAR_CONTROL && f->next[at][hi + 1] == to; hi++) {}
        const uint32_t node = f->ends[to] == NO_WORD ? nodes[to] : words[f->ends[to]].behind;
        ae_gbuild_edge(b, from, (uint8_t)lo, (uint8_t)hi, node);
    }
    ae_gbuild_edge(b, from, AE_GRAMMAR_CONTROL, AE_GRAMMAR_CONTROL, nodes[at]);
}

/* Adds free text from the node `start` on. It may end at `end` (AE_GNONE: it may not); after a word it continues at the word's
 * node. */
static void add_free(ae_gbuild *b, uint32_t start, uint32_t end, const word *words, size_t n_words)
{
    finder f;
    uint32_t *nodes = NULL;
    const bool ok = finder_create(&f, words, n_words) && (nodes = ae_alloc(f.n, sizeof *nodes));
    if (!ok) ae_gbuild_fail(b, ae_fail_memory(b->error, "a lazy grammar", MAX_WORD_BYTES * sizeof *f.next));
    for (uint32_t i = 0; ok && i < f.n; i++) nodes[i] = i ? ae_gbuild_node(b, AE_GNODE_SPLIT) : start;
    for (uint32_t i = 0; ok && i < f.n && b->status == AERIE_OK; i++) {
        if (f.ends[i] != NO_WORD) continue;
        const uint32_t bytes = ae_gbuild_node(b, AE_GNODE_BYTES);
        ae_gbuild_move(b, nodes[i], bytes);
        if (end != AE_GNONE) ae_gbuild_move(b, nodes[i], end);
        add_edges(b, &f, words, nodes, i, bytes);
    }
    ae_free(nodes);
    finder_free(&f);
}

/* ---- Parts --------------------------------------------------------------------------------------------------- */

/* Copies a finished grammar's automaton into this one; returns its root rule. */
static uint32_t copy_grammar(ae_gbuild *b, const ae_grammar *g)
{
    const uint32_t node = b->n_nodes, rule = b->n_rules;
    for (uint32_t i = 0; i < g->n_nodes; i++) ae_gbuild_node(b, g->nodes[i].kind);
    for (uint32_t i = 0; i < g->n_rules; i++) ae_gbuild_rule(b, NULL);
    if (b->status != AERIE_OK) return 0;
    for (uint32_t i = 0; i < g->n_rules; i++) b->rules[rule + i].start = node + g->rules[i];
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const ae_gnode *from = &g->nodes[i];
        if (from->kind == AE_GNODE_CALL) {
            b->nodes[node + i].a = rule + from->a;
            b->nodes[node + i].b = node + from->b;
        } else if (from->kind != AE_GNODE_RETURN) {
            for (uint32_t e = from->a; e != AE_GNONE; e = g->edges[e].next)
                ae_gbuild_edge(b, node + i, g->edges[e].lo, g->edges[e].hi, node + g->edges[e].target);
        }
    }
    return rule + g->root;
}

/* Adds the bytes of a text after the node `at`, each possibly after control tokens; returns the node after them. */
static uint32_t add_text(ae_gbuild *b, uint32_t at, const char *text, size_t n)
{
    for (size_t i = 0; i < n && b->status == AERIE_OK; i++) {
        const uint32_t bytes = ae_gbuild_node(b, AE_GNODE_BYTES), behind = ae_gbuild_node(b, AE_GNODE_SPLIT);
        ae_gbuild_move(b, at, bytes);
        ae_gbuild_edge(b, bytes, AE_GRAMMAR_CONTROL, AE_GRAMMAR_CONTROL, bytes);
        ae_gbuild_edge(b, bytes, (uint8_t)text[i], (uint8_t)text[i], behind);
        at = behind;
    }
    return at;
}

/* Adds all parts as choices between the nodes `start` and `end`. */
static void add_parts(ae_gbuild *b, const aerie_lazy_params *p, uint32_t start, uint32_t end)
{
    uint32_t *rules = ae_alloc(p->n_parts, sizeof *rules);
    if (!rules) ae_gbuild_fail(b, ae_fail_memory(b->error, "a lazy grammar", p->n_parts * sizeof *rules));
    for (size_t i = 0; i < p->n_parts && b->status == AERIE_OK; i++) {
        const aerie_grammar_part *part = &p->parts[i];
        size_t same = 0;
        while (p->parts[same].grammar != part->grammar) same++;
        rules[i] = same < i ? rules[same] : copy_grammar(b, part->grammar);
        const uint32_t at = add_text(b, start, part->text, part->n_text);
        const ae_gpiece call = ae_gbuild_call(b, rules[i]);
        ae_gbuild_move(b, at, call.start);
        ae_gbuild_move(b, call.end, end);
    }
    ae_free(rules);
}

/* ---- Without free text ---------------------------------------------------------------------------------------- */

/* Adds up to MAX_SPACE characters of white space after the node `at`; returns the node after them. */
static uint32_t add_space(ae_gbuild *b, uint32_t at)
{
    static const uint8_t spaces[] = " \t\n\r";
    const uint32_t end = ae_gbuild_node(b, AE_GNODE_SPLIT);
    ae_gbuild_move(b, at, end);
    for (int i = 0; i < MAX_SPACE && b->status == AERIE_OK; i++) {
        const uint32_t bytes = ae_gbuild_node(b, AE_GNODE_BYTES), next = ae_gbuild_node(b, AE_GNODE_SPLIT);
        ae_gbuild_move(b, at, bytes);
        for (size_t k = 0; k < sizeof spaces - 1; k++) ae_gbuild_edge(b, bytes, spaces[k], spaces[k], next);
        ae_gbuild_move(b, next, end);
        at = next;
    }
    return end;
}

/* From `outside` on, adds a text of the rest's grammar or calls, up to `end`. Reasoning may come first, and must be closed. */
static void add_rest(ae_gbuild *b, const aerie_lazy_params *p, uint32_t outside, uint32_t inside, uint32_t parts, uint32_t end)
{
    const uint32_t first = add_space(b, outside), after = ae_gbuild_node(b, AE_GNODE_SPLIT), next = add_space(b, after);
    const ae_gpiece rest = ae_gbuild_call(b, copy_grammar(b, p->rest));
    ae_gbuild_move(b, first, rest.start);
    ae_gbuild_move(b, rest.end, end);
    for (size_t i = 0; i < p->n_triggers && b->status == AERIE_OK; i++) {
        const uint32_t at = ae_gbuild_node(b, AE_GNODE_SPLIT);
        ae_gbuild_move(b, first, at);
        ae_gbuild_move(b, next, at);
        ae_gbuild_move(b, add_text(b, at, p->triggers[i], strlen(p->triggers[i])), parts);
    }
    for (size_t i = 0; i < p->n_tails && b->status == AERIE_OK; i++) {
        const uint32_t at = ae_gbuild_node(b, AE_GNODE_SPLIT);
        ae_gbuild_move(b, next, at);
        ae_gbuild_move(b, add_text(b, at, p->tails[i], strlen(p->tails[i])), after);
    }
    if (p->n_parts) add_parts(b, p, parts, after);
    else add_free(b, parts, end, NULL, 0);
    ae_gbuild_move(b, after, end);
    if (p->open && !p->opened) ae_gbuild_move(b, add_text(b, first, p->open, strlen(p->open)), inside);
    if (p->close) add_free(b, inside, AE_GNONE, &(word){p->close, outside}, 1);
}

/* ---- The whole grammar ---------------------------------------------------------------------------------------- */

/* Adds free text outside of reasoning, reasoning, and the parts, each of which free text follows again. */
static void add_free_and_parts(ae_gbuild *b, const aerie_lazy_params *p, uint32_t outside, uint32_t inside, uint32_t parts,
                               uint32_t end)
{
    word *words = ae_alloc(p->n_triggers + 1, sizeof *words);
    if (!words) ae_gbuild_fail(b, ae_fail_memory(b->error, "a lazy grammar", p->n_triggers * sizeof *words));
    for (size_t i = 0; words && i < p->n_triggers; i++) words[i] = (word){p->triggers[i], parts};
    if (words && p->open) words[p->n_triggers] = (word){p->open, inside};
    if (words) add_free(b, outside, end, words, p->n_triggers + (p->open != NULL));
    if (words && p->close) add_free(b, inside, end, &(word){p->close, outside}, 1);
    add_parts(b, p, parts, outside);
    ae_free(words);
}

static aerie_status check(const aerie_lazy_params *p, aerie_error *error)
{
    size_t n = p->open ? strlen(p->open) : 0;
    if ((!p->n_triggers || !p->n_parts) && !(p->rest && !p->n_parts))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a lazy grammar needs triggers and parts; found %zu and %zu", p->n_triggers,
                       p->n_parts);
    if (!p->open != !p->close || (p->open && (!*p->open || !*p->close)) || (p->opened && !p->open))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a lazy grammar's open and close are both texts, or both NULL");
    for (size_t i = 0; i < p->n_triggers; i++) {
        if (!p->triggers[i] || (!*p->triggers[i] && !(p->rest && p->n_parts)))
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "trigger %zu of a lazy grammar is empty", i);
        n += strlen(p->triggers[i]);
        if (n > MAX_WORD_BYTES) break;
    }
    for (size_t i = 0; i < p->n_parts; i++)
        if (!p->parts[i].grammar || (p->parts[i].n_text && !p->parts[i].text))
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "part %zu of a lazy grammar has no grammar or no text", i);
    for (size_t i = 0; i < p->n_tails; i++)
        if (!p->tails[i] || !*p->tails[i] || strlen(p->tails[i]) > MAX_WORD_BYTES)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "tail %zu of a lazy grammar is empty or too long", i);
    if (n > MAX_WORD_BYTES || (p->close && strlen(p->close) > MAX_WORD_BYTES))
        return ae_fail(error, AERIE_ERROR_LIMIT, "a lazy grammar's triggers have more than %d bytes", MAX_WORD_BYTES);
    return AERIE_OK;
}

aerie_status ae_grammar_lazy(ae_grammar **out, const aerie_lazy_params *p, aerie_error *error)
{
    *out = NULL;
    AE_TRY(check(p, error));
    ae_gbuild b;
    ae_gbuild_init(&b, error);
    const uint32_t root = ae_gbuild_rule(&b, NULL);
    const ae_gpiece whole = ae_gbuild_never(&b);
    const uint32_t outside = ae_gbuild_node(&b, AE_GNODE_SPLIT), inside = ae_gbuild_node(&b, AE_GNODE_SPLIT),
                   parts = ae_gbuild_node(&b, AE_GNODE_SPLIT);
    if (p->rest) add_rest(&b, p, outside, inside, parts, whole.end);
    else add_free_and_parts(&b, p, outside, inside, parts, whole.end);
    ae_gbuild_move(&b, whole.start, p->opened ? inside : outside);
    ae_gbuild_define(&b, root, whole);
    const aerie_status status = ae_gbuild_finish(&b, root, "lazy grammar", out);
    ae_gbuild_free(&b);
    return status;
}
