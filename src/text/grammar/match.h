/* match.h - walking a grammar's automaton: states, steps by a byte, one current state.
 *
 * Owns: the states visited so far, as sets of stacks, and the steps between them that were taken.
 *
 * A stack is a list of nodes, the innermost first. Stacks share their tails: a cell is (node, tail), equal cells are one
 * cell (hash-consed), so a stack is the number of its first cell. A state is a set of stacks whose first nodes consume
 * bytes, plus "the text may end here"; equal states are one state. Steps are kept in a table, state by class of bytes:
 * a deterministic automaton that is built as far as it is used. A tail call adds no cell, so the stacks of lists written by
 * right recursion do not grow.
 *
 * Everything is allocated when the matcher is made: stepping never allocates. When the room is used up,
 * ae_matcher_flush forgets all but the current state. Invariants:
 *   1. Whether a walk from the current state succeeds does not depend on what was walked before: a walk that does not fit
 *      beside older states is repeated after a flush (advance, and the masks of mask.c, do so).
 *   2. Numbers of states are valid until the next flush; `generation` counts these.
 *   3. Walking by ae_matcher_step leaves the current state alone: a rejected branch leaves no trace.
 */
#ifndef AE_TEXT_GRAMMAR_MATCH_H
#define AE_TEXT_GRAMMAR_MATCH_H

#include "text/grammar/build.h"

typedef uint32_t ae_gstate;

#define AE_GSTATE_FULL 0u /* no room for the answer */
#define AE_GSTATE_DEAD 1u /* no text of the grammar continues like this */
#define AE_GSTATE_FIRST 2u

#define AE_MATCHER_CELLS (1u << 16)
#define AE_MATCHER_STATES (1u << 14)
#define AE_MATCHER_CONFIGS (1u << 18)
#define AE_MATCHER_MAX_STACKS 4096   /* most stacks of a state; a step to more is AE_GSTATE_DEAD and sets limit_hit */
#define AE_MATCHER_MAX_VISITED 16384 /* most stacks visited to find those of a state */

typedef struct ae_gstate_entry {
    uint32_t first, n; /* configs[first..first + n): cells in ascending order */
    bool may_end;
} ae_gstate_entry;

typedef struct ae_matcher {
    ae_grammar *grammar; /* shared, owned */
    void *block;
    uint32_t *cell_node, *cell_tail, *cell_stamp; /* [AE_MATCHER_CELLS]; cell 0 is the empty stack */
    uint32_t *cell_table;                         /* [2 * AE_MATCHER_CELLS] */
    ae_gstate_entry *states;                      /* [AE_MATCHER_STATES] */
    uint32_t *state_table;                        /* [2 * AE_MATCHER_STATES] */
    uint32_t *configs;                            /* [AE_MATCHER_CONFIGS] */
    uint32_t *rows;                               /* [AE_MATCHER_STATES][n_classes] next state; 0: not known yet */
    uint32_t *work;                               /* [AE_MATCHER_CELLS] */
    uint32_t *list;                               /* [AE_MATCHER_MAX_STACKS] */
    uint32_t n_cells, n_states, n_configs, n_classes, stamp;
    uint32_t generation;
    bool limit_hit; /* a limit closed a step or ended a walk */
    ae_gstate current;
} ae_matcher;

/* Checks that a text of the grammar can begin within the limits, so that a request can be refused before anything is computed:
 * the errors of ae_matcher_init, without keeping a matcher. */
aerie_status ae_grammar_check_start(const ae_grammar *grammar, aerie_error *error);

/* Sets the current state to the grammar's beginning. MEMORY; LIMIT if even that state has too many stacks. */
aerie_status ae_matcher_init(ae_matcher *matcher, const ae_grammar *grammar, aerie_error *error);
void ae_matcher_free(ae_matcher *matcher);
/* Returns the bytes of memory that a matcher takes. */
size_t ae_matcher_bytes(const ae_grammar *grammar);

/* Returns to the beginning; cached states are kept. Returns false if there is not enough room even without them. */
bool ae_matcher_restart(ae_matcher *matcher);
/* Moves the current state along the bytes of a token; there must be room for the states after all of them at once. Returns
 * false, without a move, if the text does not match the grammar, or if limit_hit is set. */
bool ae_matcher_advance(ae_matcher *matcher, const char *bytes, size_t n);
/* Forgets all states but the current one. */
void ae_matcher_flush(ae_matcher *matcher);

ae_gstate ae_matcher_find_step(ae_matcher *matcher, ae_gstate state, uint32_t class);

/* Returns the state after a byte. */
static inline ae_gstate ae_matcher_step(ae_matcher *m, ae_gstate state, uint8_t byte)
{
    if (state < AE_GSTATE_FIRST) return state;
    const uint32_t class = m->grammar->class_of[byte];
    const ae_gstate next = m->rows[(size_t)state * m->n_classes + class];
    return next ? next : ae_matcher_find_step(m, state, class);
}

/* Returns whether a text may end at this state. */
static inline bool ae_matcher_may_end(const ae_matcher *m, ae_gstate state)
{
    return state >= AE_GSTATE_FIRST && m->states[state].may_end;
}
/* Returns whether a text may end at this state and nothing can follow. */
static inline bool ae_matcher_is_complete(const ae_matcher *m, ae_gstate state)
{
    return ae_matcher_may_end(m, state) && !m->states[state].n;
}
/* Returns the only byte that can follow, or -1 (also where the text may end). */
int ae_matcher_forced_byte(ae_matcher *matcher, ae_gstate state);

#endif
