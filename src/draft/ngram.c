/* ngram.c - the drafter without weights: it proposes what followed the same context before.
 *
 * Each slot keeps a suffix automaton (suffix.h) over prompt and output. The current match is the longest suffix of the sequence
 * that occurred before; the tokens that followed it are the candidates for the next token. A candidate leads to the match of
 * the next node. A match that was never continued ends at the end of the sequence, as in periodic text; its longest continued
 * suffix takes over. Sequences of the same scope that have ended are remembered too (corpus.h): where their text has a longer
 * suffix of the sequence than the sequence itself, what followed there is proposed. Drafting from suffix structures over
 * history: SuffixDecoding (arXiv 2411.04975). Calibrated probabilities replace its thresholds.
 *
 * Owns per slot: the automaton and learned hit rates; the corpus. Does not own the decision how much of the tree is verified:
 * that is the controller's.
 *
 * Probabilities. The favourite continuation of a match is judged by the match's length and by the favourite's share of the
 * counted continuations. Both are cut into buckets. Each cell keeps how often its favourite was right, and starts from a prior
 * (PRIOR) that counts as PRIOR_WEIGHT trials. Every token that really came is a trial, drafted or not: before it is added, the
 * drafter computes what it would have proposed. A node at depth d, given that its parents were right, is the same event as a
 * first node whose match is d - 1 longer, so one table serves every depth. The remaining probability goes to the other
 * continuations of the match, then to those of its shorter suffixes, again at learned rates.
 *
 * Invariants
 *   1. Proposals are a function of the slot's history of requests and of the sequences of its scope that have ended. They use
 *      no clock, and nothing of another scope.
 *   2. Drafting never breaks generation: out of memory means an empty tree, and a new try some proposals later.
 *   3. A request whose sequence does not continue the last one's restarts the automaton. The rates are kept, unless the
 *      sequence has another scope (ae_draft_begin.new_scope).
 *   4. Work per added token and per proposed node is bounded: at most MAX_SEEN continuations are looked at.
 */
#include "draft/drafter.h"

#include <math.h>
#include <string.h>

#include "base/math/fmath.h"
#include "base/mem.h"
#include "draft/corpus.h"

#define MAX_SEEN 32     /* most continuations of a match that are looked at */
#define MAX_CHILDREN 8  /* proposed per node */
#define N_SHORTER 2     /* shorter suffixes whose continuations are proposed too */
#define LONG_MATCH 8    /* length from which the newest occurrence outweighs all others */
#define MANY 4          /* from this many continuations on, their counts are taken for a distribution */
#define WORTHLESS 0.02f /* no target pass is so cheap that it pays to verify a node less probable than this */
#define LEAST_REMEMBERED 4 /* shortest match in the corpus that counts: shorter ones are chance */
#define TAIL 32         /* newest tokens that are compared to tell whether a request continues the last one */
#define WINDOW 64.0f    /* trials that a cell remembers; older ones fade, since text changes */
#define PRIOR_WEIGHT 4.0f
#define PROMPT_TRIALS 512u  /* newest tokens of the prompt that count as trials */
#define PROMPT_WEIGHT 0.25f /* weight of such a trial: a prompt says less about the output than the output does */
#define FIRST_WAIT 32u      /* proposals skipped after running out of memory; doubles each time */
#define LAST_WAIT 4096u

#define N_LENGTHS 12
#define N_SHARES 7
/* Shortest match of each bucket, and how often the continuation of a match that was seen once proved right. Rounded from
 * measurements on this project's C sources and English prose, split into words and punctuation. Lower at both ends, since a
 * wasted pass costs. */
static const uint32_t LENGTHS[N_LENGTHS] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
static const float PRIOR[N_LENGTHS] = {0.12f, 0.20f, 0.28f, 0.42f, 0.57f, 0.70f,
                                       0.78f, 0.86f, 0.93f, 0.97f, 0.98f, 0.985f};
static const float PRIOR_MORE = 0.3f, PRIOR_SHORTER = 0.3f;

typedef struct rate {
    float hits, trials;
} rate;

/* How often proposals were right. */
typedef struct rates {
    rate favourite[N_LENGTHS][N_SHARES];
    rate more[N_LENGTHS];    /* the favourite was wrong, but another continuation of the match was right */
    rate shorter[N_LENGTHS]; /* no longer match was right, but a continuation of the suffix of this length was */
} rates;

typedef struct slot_state {
    ae_suffix suffix;
    ae_corpus_place place; /* place of the sequence in the corpus */
    size_t n_seen;       /* tokens in the automaton */
    int32_t tail[TAIL];  /* the newest tokens of the sequence, oldest first, at the end of the array */
    uint32_t skip, wait; /* proposals still to skip before memory is tried again; length of the next wait */
    rates own, remembered; /* rates of matches in the sequence, and of matches in the corpus */
} slot_state;

typedef struct ngram {
    ae_drafter base;
    uint32_t n_slots;
    slot_state *slots; /* [n_slots] */
    ae_corpus *corpus; /* NULL: nothing is remembered */
} ngram;

/* A suffix of the sequence, or of it and some drafted tokens, that was continued before. */
typedef struct match {
    const ae_suffix *in; /* the sequence's automaton or one of the corpus */
    uint32_t state, length;
} match;

/* The continuations of a match. */
typedef struct seen {
    uint32_t n;
    int32_t token[MAX_SEEN];
    uint32_t to[MAX_SEEN];    /* state after it */
    uint32_t count[MAX_SEEN]; /* >= 1 */
    uint32_t total;           /* sum of all counts, listed or not */
} seen;

/* ---- Rates ----------------------------------------------------------------------------------------- */

static uint32_t length_bucket(uint32_t length)
{
    uint32_t b = N_LENGTHS - 1;
    while (b > 0 && length < LENGTHS[b]) b--;
    return b;
}

/* 0 to 2: the only continuation, seen once, a few times or often. 3 to 6: one of several, the larger its share the lower the
 * number. */
static uint32_t share_bucket(uint32_t count, uint32_t total)
{
    if (count >= total) return total == 1 ? 0 : total < MANY ? 1 : 2;
    const float share = (float)count / (float)total;
    return share >= 0.75f ? 3 : share >= 0.5f ? 4 : share >= 0.25f ? 5 : 6;
}

static float favourite_prior(uint32_t length, uint32_t share)
{
    static const float doubt[3] = {1.0f, 0.5f, 0.25f}, among_several[N_SHARES] = {0, 0, 0, 0.65f, 0.35f, 0.18f, 0.07f};
    /* in the same texts, a longer match helps little once continuations differ */
    return share < 3 ? 1.0f - (1.0f - PRIOR[length]) * doubt[share] : among_several[share];
}

static float rate_value(rate r, float prior)
{
    const float p = (r.hits + PRIOR_WEIGHT * prior) / (r.trials + PRIOR_WEIGHT);
    return p < 0.999f ? p : 0.999f;
}

static void rate_add(rate *r, bool hit, float weight)
{
    r->hits += hit ? weight : 0.0f;
    r->trials += weight;
    if (r->trials <= WINDOW) return;
    r->hits *= WINDOW / r->trials;
    r->trials = WINDOW;
}

/* ---- Continuations --------------------------------------------------------------------------------- */

static void list_add(seen *list, const ae_suffix *suffix, int32_t token, uint32_t to)
{
    const uint32_t i = list->n++;
    list->token[i] = token;
    list->to[i] = to;
    list->count[i] = suffix->states[to].count ? suffix->states[to].count : 1;
    list->total += list->count[i];
}

static bool list_has(const seen *list, int32_t token)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->token[i] == token) return true;
    return false;
}

/* Lists what followed a state, the newest first. Leaves out the continuations in `without` (may be NULL), which a longer match
 * has listed already, and the negative tokens that end sequences in the corpus. */
static void list_seen(const ae_suffix *suffix, uint32_t state, const seen *without, seen *list)
{
    const ae_suffix_state *s = &suffix->states[state];
    list->n = list->total = 0;
    if (s->edges == AE_SUFFIX_NONE) return;
    if (s->latest >= 0 && (!without || !list_has(without, s->latest)))
        list_add(list, suffix, s->latest, ae_suffix_step(suffix, state, s->latest));
    uint32_t i = s->edges;
    for (; i != AE_SUFFIX_NONE && list->n < MAX_SEEN; i = suffix->edges[i].next) {
        const ae_suffix_edge *e = &suffix->edges[i];
        if (e->token < 0 || e->token == s->latest || (without && list_has(without, e->token))) continue;
        list_add(list, suffix, e->token, e->to);
    }
    if (i != AE_SUFFIX_NONE && s->count > list->total) list->total = s->count;
}

/* Chooses the favourite: the newest continuation after a long match, the most frequent one after a short match. When tokens are
 * drawn at a temperature and counts are large enough to be a distribution, the target's own noise decides. */
static uint32_t favourite(const seen *list, uint32_t length, ae_sampler *sampler, size_t position)
{
    if (length >= LONG_MATCH) return 0;
    const ae_sampling *sampling = sampler ? ae_sampler_params(sampler) : NULL;
    const bool noisy = sampling && sampling->temperature > 0.0f && list->n > 1 && list->total >= MANY;
    uint32_t best = 0;
    double best_score = -INFINITY;
    for (uint32_t i = 0; i < list->n; i++) {
        const double weight = (double)list->count[i] + (i == 0 ? 0.5 : 0.0); /* the newest wins among equals */
        const double noise = noisy ? ae_gumbel(sampling->seed, position, (uint32_t)list->token[i]) : 0.0;
        const double score = noisy ? ae_log(weight) + noise : weight;
        if (score > best_score) {
            best_score = score;
            best = i;
        }
    }
    return best;
}

/* ---- Learning -------------------------------------------------------------------------------------- */

/* Counts a trial of a match: whether `token`, which comes next, is what would have been proposed. */
static void learn(rates *r, match m, int32_t token, size_t position, ae_sampler *sampler, float weight)
{
    seen list;
    list_seen(m.in, m.state, NULL, &list);
    if (!list.n) return;
    const uint32_t bucket = length_bucket(m.length), bet = favourite(&list, m.length, sampler, position);
    const bool hit = list.token[bet] == token;
    rate_add(&r->favourite[bucket][share_bucket(list.count[bet], list.total)], hit, weight);
    if (hit) return;
    bool found = list_has(&list, token);
    if (list.n > 1) rate_add(&r->more[bucket], found, weight);
    for (int i = 0; i < N_SHORTER && !found; i++) {
        m.state = m.in->states[m.state].link;
        if (m.state == AE_SUFFIX_ROOT) return;
        found = ae_suffix_step(m.in, m.state, token) != AE_SUFFIX_NONE;
        rate_add(&r->shorter[length_bucket(m.in->states[m.state].length)], found, weight);
    }
}

/* Returns the longest suffix of the sequence that occurred in it before; length 0: none. */
static match own_match(const slot_state *slot)
{
    match m = {.in = &slot->suffix};
    m.state = ae_suffix_match(&slot->suffix, &m.length);
    return m;
}

/* Returns the longest suffix that the corpus has, if it is longer than `own`; length 0: none. */
static match remembered_match(const ngram *d, slot_state *slot, const int32_t *tokens, size_t n, match own)
{
    match m = {0};
    ae_corpus_match at;
    if (!d->corpus || !(m.in = ae_corpus_find(d->corpus, &slot->place, tokens, n, &at))) return m;
    if (at.length < LEAST_REMEMBERED || at.length <= own.length) return m;
    m.state = at.state, m.length = at.length;
    return m;
}

static bool continues(const slot_state *slot, const int32_t *tokens, size_t n)
{
    const size_t k = slot->n_seen < TAIL ? slot->n_seen : TAIL;
    return n >= slot->n_seen && (!k || !memcmp(tokens + slot->n_seen - k, slot->tail + TAIL - k, k * sizeof *tokens));
}

static void slot_restart(slot_state *slot)
{
    ae_suffix_clear(&slot->suffix);
    slot->place.version = 0;
    slot->n_seen = 0;
}

/* Counts the next token as a trial of what would have been proposed for it. A prompt's tokens say little about proposals for an
 * answer, and nothing about the corpus: a prompt mostly begins like an earlier one. */
static void learn_next(const ngram *d, slot_state *slot, const ae_draft_request *request, bool prompt)
{
    const size_t at = slot->n_seen;
    const int32_t token = request->tokens[at];
    const match own = own_match(slot);
    if (prompt) {
        if (own.length && request->n_tokens - at <= PROMPT_TRIALS) learn(&slot->own, own, token, at, NULL, PROMPT_WEIGHT);
        return;
    }
    const match remembered = remembered_match(d, slot, request->tokens, at, own);
    if (own.length) learn(&slot->own, own, token, at, request->sampler, 1.0f);
    if (remembered.length) learn(&slot->remembered, remembered, token, at, request->sampler, 1.0f);
}

/* Reads the new tokens. Returns false if there is no memory for them. */
static bool catch_up(const ngram *d, slot_state *slot, const ae_draft_request *request)
{
    const size_t n = request->n_tokens;
    if (!continues(slot, request->tokens, n)) slot_restart(slot);
    const bool prompt = slot->n_seen == 0;
    if (n == slot->n_seen) return true;
    for (; slot->n_seen < n; slot->n_seen++) {
        const int32_t token = request->tokens[slot->n_seen];
        learn_next(d, slot, request, prompt);
        if (d->corpus && !prompt) ae_corpus_step(d->corpus, &slot->place, token);
        if (ae_suffix_add(&slot->suffix, token)) continue;
        slot->n_seen = 0;
        return false;
    }
    if (prompt) slot->place.version = 0; /* ae_corpus_find looks at the end of the prompt */
    const size_t k = n < TAIL ? n : TAIL;
    memcpy(slot->tail + TAIL - k, request->tokens + n - k, k * sizeof *slot->tail);
    return true;
}

/* ---- Proposing ------------------------------------------------------------------------------------- */

/* A node that may enter the tree. */
typedef struct option {
    float path, p; /* probability of the whole path; probability of this node if its parent is right */
    int32_t parent, token;
    match after; /* the match if this node is right */
} option;

/* Options not yet taken, oldest first. Each of the tree's nodes and the root adds at most MAX_CHILDREN. */
typedef struct frontier {
    uint32_t n;
    float least; /* least path probability of an option */
    option option[(AERIE_MAX_DRAFT + 1) * MAX_CHILDREN];
} frontier;

/* Replaces a match that was never continued by its longest suffix that was. */
static match settle(match m)
{
    while (m.state != AE_SUFFIX_ROOT && m.in->states[m.state].edges == AE_SUFFIX_NONE) {
        m.state = m.in->states[m.state].link;
        m.length = m.in->states[m.state].length;
    }
    return m;
}

static void push(frontier *f, option o)
{
    if (o.path >= f->least) f->option[f->n++] = o;
}

/* Adds up to `room` continuations of a list to the frontier, most frequent first, at p = mass * count / total. `used` marks
 * continuations that were added already. Returns how much room is left. */
static uint32_t push_list(frontier *f, option node, const seen *list, bool *used, uint32_t total, float mass,
                           const match *of, uint32_t room)
{
    const float path = node.path;
    for (; room; room--) {
        uint32_t best = MAX_SEEN;
        for (uint32_t i = 0; i < list->n; i++)
            if (!used[i] && (best == MAX_SEEN || list->count[i] > list->count[best])) best = i;
        if (best == MAX_SEEN) break;
        used[best] = true;
        node.p = mass * (float)list->count[best] / (float)total;
        node.path = path * node.p;
        if (node.path < f->least) return 0; /* the rest is rarer still */
        node.token = list->token[best];
        node.after = (match){of->in, list->to[best], of->length + 1};
        push(f, node);
    }
    return room;
}

/* Adds the children of node `parent`, whose path has probability `path` and whose match is m, to the frontier. */
static void expand(const slot_state *slot, const ae_draft_request *request, frontier *f, int32_t parent, float path,
                   match m, size_t position)
{
    const ae_suffix *suffix = m.in;
    const rates *r = suffix == &slot->suffix ? &slot->own : &slot->remembered;
    seen list;
    list_seen(suffix, m.state, NULL, &list);
    if (!list.n) return;
    bool used[MAX_SEEN] = {false};
    const uint32_t bucket = length_bucket(m.length), bet = favourite(&list, m.length, request->sampler, position);
    const uint32_t share = share_bucket(list.count[bet], list.total);
    const float p = rate_value(r->favourite[bucket][share], favourite_prior(bucket, share));
    push(f, (option){path * p, p, parent, list.token[bet], {suffix, list.to[bet], m.length + 1}});
    if (!request->shape) return;
    used[bet] = true;
    float left = 1.0f - p;
    uint32_t room = MAX_CHILDREN - 1;
    const option node = {.path = path, .parent = parent};
    if (list.n > 1) {
        const float mass = left * rate_value(r->more[bucket], PRIOR_MORE);
        room = push_list(f, node, &list, used, list.total - list.count[bet], mass, &m, room);
        left -= mass;
    }
    for (int i = 0; i < N_SHORTER && room && list.n < MAX_SEEN; i++) {
        m.state = suffix->states[m.state].link;
        if (m.state == AE_SUFFIX_ROOT) return;
        m.length = suffix->states[m.state].length;
        const float mass = left * rate_value(r->shorter[length_bucket(m.length)], PRIOR_SHORTER);
        seen other;
        list_seen(suffix, m.state, &list, &other);
        bool none[MAX_SEEN] = {false};
        room = push_list(f, node, &other, none, other.total, mass, &m, room);
        left -= mass;
        for (uint32_t j = 0; j < other.n && list.n < MAX_SEEN; j++)
            list_add(&list, suffix, other.token[j], other.to[j]);
    }
}

/* Removes the most probable option, the oldest among equals. */
static option take_best(frontier *f)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < f->n; i++)
        if (f->option[i].path > f->option[best].path) best = i;
    const option o = f->option[best];
    f->n--;
    memmove(f->option + best, f->option + best + 1, (f->n - best) * sizeof *f->option);
    return o;
}

static void build(const ngram *d, slot_state *slot, const ae_draft_request *request, ae_tree *tree)
{
    const uint32_t max_nodes = request->max_nodes < AERIE_MAX_DRAFT ? request->max_nodes : AERIE_MAX_DRAFT;
    if (!max_nodes || !request->max_depth) return;
    match m = own_match(slot);
    const match remembered = remembered_match(d, slot, request->tokens, request->n_tokens, m);
    if (remembered.length) m = remembered;
    if (!m.length) return;
    frontier f;
    f.n = 0;
    f.least = request->min_p > WORTHLESS ? request->min_p : WORTHLESS;
    expand(slot, request, &f, -1, 1.0f, m, request->n_tokens);
    while (f.n && tree->n < max_nodes) {
        const option o = take_best(&f);
        const int32_t node = ae_tree_add(tree, o.parent, o.token, o.p);
        if (node < 0 || (uint32_t)tree->depth[node] >= request->max_depth) continue;
        m = settle(o.after);
        if (m.state == AE_SUFFIX_ROOT) continue;
        expand(slot, request, &f, node, o.path, m, request->n_tokens + (size_t)tree->depth[node]);
    }
}

/* ---- The drafter ----------------------------------------------------------------------------------- */

static uint32_t ngram_begin(ae_drafter *drafter, const ae_draft_begin *begin)
{
    ngram *d = (ngram *)drafter;
    if (begin->slot >= d->n_slots) return begin->n_shared;
    slot_state *slot = &d->slots[begin->slot];
    slot_restart(slot);
    if (begin->new_scope) memset(&slot->own, 0, sizeof slot->own), memset(&slot->remembered, 0, sizeof slot->remembered);
    slot->place.scope = begin->scope;
    slot->skip = 0;
    slot->wait = FIRST_WAIT;
    return begin->n_shared;
}

static void ngram_end(ae_drafter *drafter, const ae_draft_end *end)
{
    const ngram *d = (ngram *)drafter;
    if (d->corpus) ae_corpus_add(d->corpus, end->scope, end->tokens, end->n_tokens);
}

static aerie_status draft(ngram *d, const ae_draft_request *request, ae_tree *tree, aerie_error *error)
{
    if (request->slot >= d->n_slots)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "slot %u: the n-gram drafter has %u", request->slot, d->n_slots);
    slot_state *slot = &d->slots[request->slot];
    if (slot->skip) {
        slot->skip--;
        return AERIE_OK;
    }
    if (catch_up(d, slot, request)) {
        build(d, slot, request, tree);
        return AERIE_OK;
    }
    slot->skip = slot->wait;
    slot->wait = slot->wait < LAST_WAIT ? 2 * slot->wait : LAST_WAIT;
    return AERIE_OK;
}

static aerie_status ngram_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    if (((ngram *)drafter)->corpus) ae_corpus_work(((ngram *)drafter)->corpus);
    for (uint32_t i = 0; i < n; i++) AE_TRY(draft((ngram *)drafter, &requests[i], requests[i].tree, error));
    return AERIE_OK;
}

static ae_corpus *ngram_corpus(ae_drafter *drafter)
{
    return ((ngram *)drafter)->corpus;
}

static void ngram_destroy(ae_drafter *drafter)
{
    ngram *d = (ngram *)drafter;
    if (!d) return;
    for (uint32_t i = 0; i < d->n_slots; i++) ae_suffix_free(&d->slots[i].suffix);
    ae_corpus_free(d->corpus);
    ae_free(d->slots);
    ae_free(d);
}

aerie_status ae_draft_ngram_create(ae_drafter **out, uint32_t n_slots, uint32_t n_remembered, aerie_error *error)
{
    static const ae_drafter_ops ops = {.name = "ngram", .free = true, .begin = ngram_begin, .propose = ngram_propose,
                                       .end = ngram_end, .corpus = ngram_corpus, .destroy = ngram_destroy};
    *out = NULL;
    ngram *d = ae_alloc(1, sizeof *d);
    slot_state *slots = ae_alloc(n_slots, sizeof *slots);
    ae_corpus *corpus = n_remembered ? ae_corpus_create(n_remembered) : NULL;
    if (!d || !slots || (n_remembered && !corpus)) {
        ae_free(d);
        ae_free(slots);
        ae_corpus_free(corpus);
        return ae_fail_memory(error, "the n-gram drafter", sizeof *d + n_slots * sizeof *slots);
    }
    *d = (ngram){.base.ops = &ops, .n_slots = n_slots, .slots = slots, .corpus = corpus};
    for (uint32_t i = 0; i < n_slots; i++) slots[i].wait = FIRST_WAIT;
    *out = &d->base;
    return AERIE_OK;
}
