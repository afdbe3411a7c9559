/* match.c - states of a grammar's automaton, and steps by a byte (match.h). */
#include "text/grammar/match.h"

/* ---- Life --------------------------------------------------------------------------------------------- */

static void plan(ae_layout *l, ae_matcher *m)
{
    m->cell_node = ae_layout_add(l, AE_MATCHER_CELLS, sizeof(uint32_t));
    m->cell_tail = ae_layout_add(l, AE_MATCHER_CELLS, sizeof(uint32_t));
    m->cell_stamp = ae_layout_add(l, AE_MATCHER_CELLS, sizeof(uint32_t));
    m->cell_table = ae_layout_add(l, 2 * AE_MATCHER_CELLS, sizeof(uint32_t));
    m->states = ae_layout_add(l, AE_MATCHER_STATES, sizeof *m->states);
    m->state_table = ae_layout_add(l, 2 * AE_MATCHER_STATES, sizeof(uint32_t));
    m->configs = ae_layout_add(l, AE_MATCHER_CONFIGS, sizeof(uint32_t));
    m->rows = ae_layout_add(l, (size_t)AE_MATCHER_STATES * m->n_classes, sizeof(uint32_t));
    m->work = ae_layout_add(l, AE_MATCHER_CELLS, sizeof(uint32_t));
    m->list = ae_layout_add(l, AE_MATCHER_MAX_STACKS, sizeof(uint32_t));
}

size_t ae_matcher_bytes(const ae_grammar *grammar)
{
    ae_matcher m = {.n_classes = grammar->n_classes};
    ae_layout l = {0};
    plan(&l, &m);
    return l.bytes;
}

static void forget(ae_matcher *m)
{
    memset(m->rows, 0, (size_t)m->n_states * m->n_classes * sizeof *m->rows);
    memset(m->cell_table, 0, 2 * AE_MATCHER_CELLS * sizeof *m->cell_table);
    memset(m->state_table, 0, 2 * AE_MATCHER_STATES * sizeof *m->state_table);
    m->n_states = AE_GSTATE_FIRST;
    m->n_cells = 1;
    m->n_configs = 0;
    m->generation++;
}

aerie_status ae_matcher_init(ae_matcher *m, const ae_grammar *grammar, aerie_error *error)
{
    *m = (ae_matcher){.n_classes = grammar->n_classes, .n_states = AE_GSTATE_FIRST};
    ae_layout l = {0};
    plan(&l, m);
    /* the system gives zero pages, so unused parts cost nothing; the extra AE_ALIGN bytes are for alignment */
    m->block = ae_alloc(1, l.bytes + AE_ALIGN);
    if (!m->block) return ae_fail_memory(error, "a grammar's states", l.bytes);
    l = (ae_layout){.base = (char *)(((uintptr_t)m->block + AE_ALIGN - 1) & ~(uintptr_t)(AE_ALIGN - 1))};
    plan(&l, m);
    m->n_cells = 1;
    m->grammar = ae_grammar_share(grammar);
    if (ae_matcher_restart(m)) return AERIE_OK;
    ae_matcher_free(m);
    return ae_fail(error, AERIE_ERROR_LIMIT,
                   "the grammar can begin in more than %u ways at once; fewer alternatives that "
                   "begin alike would help",
                   AE_MATCHER_MAX_STACKS);
}

void ae_matcher_free(ae_matcher *m)
{
    if (!m) return;
    ae_free(m->block);
    ae_grammar_free(m->grammar);
    *m = (ae_matcher){0};
}

aerie_status ae_grammar_check_start(const ae_grammar *grammar, aerie_error *error)
{
    ae_matcher m; /* its memory is zero pages, of which making a start state touches few */
    AE_TRY(ae_matcher_init(&m, grammar, error));
    ae_matcher_free(&m);
    return AERIE_OK;
}

/* ---- Cells and states ------------------------------------------------------------------------------------ */

static uint32_t mix(uint32_t a, uint32_t b)
{
    const uint64_t h = ((uint64_t)a << 32 | b) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32) ^ (uint32_t)h;
}

/* Returns the cell (node, tail); 0 when there is no room. */
static uint32_t cell_of(ae_matcher *m, uint32_t node, uint32_t tail)
{
    uint32_t at = mix(node, tail) & (2 * AE_MATCHER_CELLS - 1);
    for (; m->cell_table[at]; at = (at + 1) & (2 * AE_MATCHER_CELLS - 1)) {
        const uint32_t c = m->cell_table[at];
        if (m->cell_node[c] == node && m->cell_tail[c] == tail) return c;
    }
    if (m->n_cells == AE_MATCHER_CELLS) return 0;
    const uint32_t c = m->n_cells++;
    m->cell_node[c] = node;
    m->cell_tail[c] = tail;
    m->cell_stamp[c] = 0;
    m->cell_table[at] = c;
    return c;
}

static void sort(uint32_t *x, uint32_t n)
{
    static const uint32_t gaps[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1}; /* Ciura's */
    for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++)
        for (uint32_t i = gaps[g]; i < n; i++) {
            const uint32_t v = x[i];
            uint32_t j = i;
            for (; j >= gaps[g] && x[j - gaps[g]] > v; j -= gaps[g]) x[j] = x[j - gaps[g]];
            x[j] = v;
        }
}

static uint32_t state_slot(const ae_matcher *m, const uint32_t *cells, uint32_t n, bool may_end, bool *found)
{
    uint32_t h = may_end;
    for (uint32_t i = 0; i < n; i++) h = mix(h, cells[i]);
    uint32_t at = h & (2 * AE_MATCHER_STATES - 1);
    for (; m->state_table[at]; at = (at + 1) & (2 * AE_MATCHER_STATES - 1)) {
        const ae_gstate_entry *s = &m->states[m->state_table[at]];
        if (s->n == n && s->may_end == may_end && !memcmp(m->configs + s->first, cells, n * sizeof *cells)) {
            *found = true;
            return at;
        }
    }
    *found = false;
    return at;
}

/* Returns the state for this set of stacks (sorted here). */
static ae_gstate state_of(ae_matcher *m, uint32_t *cells, uint32_t n, bool may_end)
{
    bool found;
    if (!n && !may_end) return AE_GSTATE_DEAD;
    sort(cells, n);
    const uint32_t at = state_slot(m, cells, n, may_end, &found);
    if (found) return m->state_table[at];
    if (m->n_states == AE_MATCHER_STATES || n > AE_MATCHER_CONFIGS - m->n_configs) return AE_GSTATE_FULL;
    const ae_gstate s = m->n_states++;
    m->states[s] = (ae_gstate_entry){m->n_configs, n, may_end};
    memcpy(m->configs + m->n_configs, cells, n * sizeof *cells);
    m->n_configs += n;
    m->state_table[at] = s;
    return s;
}

/* ---- Following empty moves, calls and returns ---------------------------------------------------------------- */

typedef struct closure {
    ae_matcher *m;
    uint32_t n_work, n_visited, n; /* n: of m->list */
    bool may_end, full, limit;
} closure;

static void visit(closure *c, uint32_t node, uint32_t tail)
{
    ae_matcher *m = c->m;
    const uint32_t cell = cell_of(m, node, tail);
    if (!cell) {
        c->full = true;
    } else if (m->cell_stamp[cell] != m->stamp) {
        m->cell_stamp[cell] = m->stamp;
        if (++c->n_visited > AE_MATCHER_MAX_VISITED) c->limit = true;
        else m->work[c->n_work++] = cell;
    }
}

static void call(closure *c, uint32_t rule, uint32_t ret, uint32_t tail)
{
    const ae_grammar *g = c->m->grammar;
    if (g->nodes[ret].kind != AE_GNODE_RETURN) { /* a tail call returns where its caller returns */
        tail = cell_of(c->m, ret, tail);
        if (!tail) {
            c->full = true;
            return;
        }
    }
    visit(c, g->rules[rule], tail);
}

static void expand(closure *c, uint32_t cell)
{
    ae_matcher *m = c->m;
    const ae_grammar *g = m->grammar;
    const uint32_t tail = m->cell_tail[cell];
    const ae_gnode *node = &g->nodes[m->cell_node[cell]];
    switch (node->kind) {
    case AE_GNODE_SPLIT:
        for (uint32_t e = node->a; e != AE_GNONE; e = g->edges[e].next) visit(c, g->edges[e].target, tail);
        break;
    case AE_GNODE_CALL: call(c, node->a, node->b, tail); break;
    case AE_GNODE_RETURN:
        if (tail) visit(c, m->cell_node[tail], m->cell_tail[tail]);
        else c->may_end = true;
        break;
    default: /* BYTES */
        if (node->a == AE_GNONE) break;
        if (c->n == AE_MATCHER_MAX_STACKS) c->limit = true;
        else m->list[c->n++] = cell;
    }
}

static closure closure_begin(ae_matcher *m)
{
    if (++m->stamp == 0) { /* the counter has wrapped around: old stamps must not look new */
        memset(m->cell_stamp, 0, AE_MATCHER_CELLS * sizeof *m->cell_stamp);
        m->stamp = 1;
    }
    return (closure){.m = m};
}

static ae_gstate closure_end(closure *c)
{
    while (c->n_work && !c->full && !c->limit) expand(c, c->m->work[--c->n_work]);
    if (c->limit) {
        c->m->limit_hit = true;
        return AE_GSTATE_DEAD;
    }
    return c->full ? AE_GSTATE_FULL : state_of(c->m, c->m->list, c->n, c->may_end);
}

ae_gstate ae_matcher_find_step(ae_matcher *m, ae_gstate state, uint32_t class)
{
    const ae_grammar *g = m->grammar;
    const ae_gstate_entry *s = &m->states[state];
    const uint8_t byte = g->byte_of[class];
    closure c = closure_begin(m);
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t cell = m->configs[s->first + i];
        for (uint32_t e = g->nodes[m->cell_node[cell]].a; e != AE_GNONE; e = g->edges[e].next)
            if (byte >= g->edges[e].lo && byte <= g->edges[e].hi) visit(&c, g->edges[e].target, m->cell_tail[cell]);
    }
    const ae_gstate next = closure_end(&c);
    m->rows[(size_t)state * m->n_classes + class] = next;
    return next;
}

/* ---- The current state ------------------------------------------------------------------------------------------ */

void ae_matcher_flush(ae_matcher *m)
{
    const ae_gstate_entry root = m->current < AE_GSTATE_FIRST ? (ae_gstate_entry){0} : m->states[m->current];
    const uint32_t n_cells = m->n_cells;
    /* marks cells: a tail has a lower index than the cells on it, so one downward sweep is enough */
    closure_begin(m);
    for (uint32_t i = 0; i < root.n; i++) {
        m->list[i] = m->configs[root.first + i];
        m->cell_stamp[m->list[i]] = m->stamp;
    }
    for (uint32_t c = n_cells; c-- > 1;)
        if (m->cell_stamp[c] == m->stamp && m->cell_tail[c]) m->cell_stamp[m->cell_tail[c]] = m->stamp;
    forget(m);
    /* moves cells in ascending order: a cell never moves to a higher index */
    m->work[0] = 0;
    for (uint32_t c = 1; c < n_cells; c++)
        if (m->cell_stamp[c] == m->stamp) m->work[c] = cell_of(m, m->cell_node[c], m->work[m->cell_tail[c]]);
    for (uint32_t i = 0; i < root.n; i++) m->list[i] = m->work[m->list[i]];
    if (m->current >= AE_GSTATE_FIRST) m->current = state_of(m, m->list, root.n, root.may_end);
}

bool ae_matcher_restart(ae_matcher *m)
{
    const ae_grammar *g = m->grammar;
    for (int tries = 0; tries < 2; tries++) {
        closure c = closure_begin(m);
        m->limit_hit = false;
        visit(&c, g->rules[g->root], 0);
        m->current = closure_end(&c);
        if (m->current != AE_GSTATE_FULL) return !m->limit_hit;
        m->current = AE_GSTATE_DEAD;
        ae_matcher_flush(m);
    }
    return false;
}

bool ae_matcher_advance(ae_matcher *m, const char *bytes, size_t n)
{
    for (int tries = 0; tries < 2; tries++) {
        ae_gstate s = m->current;
        for (size_t i = 0; i < n && s >= AE_GSTATE_FIRST; i++) s = ae_matcher_step(m, s, (uint8_t)bytes[i]);
        if (s >= AE_GSTATE_FIRST) m->current = s;
        if (s != AE_GSTATE_FULL) return s != AE_GSTATE_DEAD;
        ae_matcher_flush(m);
    }
    m->limit_hit = true;
    return false;
}

int ae_matcher_forced_byte(ae_matcher *m, ae_gstate state)
{
    const ae_grammar *g = m->grammar;
    if (state < AE_GSTATE_FIRST || m->states[state].may_end) return -1;
    const ae_gstate_entry *s = &m->states[state];
    int byte = -1;
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t e = g->nodes[m->cell_node[m->configs[s->first + i]]].a; e != AE_GNONE; e = g->edges[e].next) {
            if (g->edges[e].lo != g->edges[e].hi || (byte >= 0 && byte != g->edges[e].lo)) return -1;
            byte = g->edges[e].lo;
        }
    return byte;
}
