/* turns.h - which requests have the slots of a session while others wait (aerie_session_params.max_turn).
 *
 * A request belongs to a group (the answers to one request of a server), a group to a client. If all slots are taken:
 *   - A client gives a slot to one that has at least two fewer; within a client the same holds for its groups. So one request
 *   for many answers has more than one slot only while nobody else waits.
 *   - Among clients and groups with equally many slots, a request gives its slot to one that has had much less: its score must
 *   be at least the other's need and twice the other's score. The score is the work that a request has had, less the passes
 *   that it has waited since. Its need is the work that it asks for, but at most max_turn. Work counts generated tokens, and an
 *   eighth for each computed token of a prompt. So a request that has had nothing waits for at most max_turn tokens of each
 *   slot and of those that came before it, and two long requests do not alternate token by token.
 *   - A request that comes back keeps its slot until it has generated as many tokens as its return cost in work and, among
 *   equally many slots, until it has had as much work as the other needs.
 * A free slot goes to the client with the fewest slots, among these to the one with the least work; within it to the group with
 * the fewest slots, and there to the request with the lowest score by powers of two, the oldest of these.
 *
 * Owns the accounts of clients and groups that have requests, and the order of the waiting list. Does not own slots
 * (speculate.h) or tasks (tasks.c). Everything is counted in tokens and passes, never in time, so the same events give the same
 * order. No byte of an answer depends on it (park.c).
 * Threads: everything runs on the stepping thread except ae_turns_prepare.
 */
#ifndef AE_SESSION_TURNS_H
#define AE_SESSION_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "aerie.h"

typedef struct ae_turns_account {
    struct ae_turns_account *next, *groups; /* groups: those of a client's account */
    uint64_t id; /* 0: a group that belongs to one request alone */
    uint32_t n_tasks, n_running;
    double work;                /* a client's work, without what running requests have had since they got their slots */
    struct aerie_task *best;    /* while a task is chosen: the first of a client's waiting tasks */
} ae_turns_account;

/* The state that a session keeps for sharing slots among its tasks. */
typedef struct ae_turns {
    ae_turns_account *clients;
    uint64_t n_passes;
} ae_turns;

/* The state of one task. */
typedef struct ae_turn {
    ae_turns_account *client, *group; /* NULL: not entered */
    ae_turns_account *spare[2];       /* owned: allocated at submission, so that entering cannot fail */
    bool running, returned;           /* running: it has a slot; returned: it has had one before */
    /* the score, less the passes that the task waited, when it got its slot; or its score when it lost the slot */
    double score;
    uint64_t since;                   /* the pass in which it lost its slot */
    uint32_t n_generated, n_live;     /* their values when it got its slot */
} ae_turn;

/* Allocates what a task needs in order to be counted. Any thread. MEMORY. */
aerie_status ae_turns_prepare(ae_turn *turn, aerie_error *error);
void ae_turns_drop(ae_turn *turn);
/* Counts a task that joins the waiting list, or stops counting one that has ended. */
void ae_turns_enter(ae_turns *turns, struct aerie_task *task);
void ae_turns_leave(ae_turns *turns, struct aerie_task *task);
/* Called when the task gets a slot, and when it gives the slot back. */
void ae_turns_begin(const ae_turns *turns, struct aerie_task *task, uint32_t n_generated, uint32_t n_live);
void ae_turns_end(ae_turns *turns, struct aerie_task *task, double work);
/* Returns the work of a task since it got its slot; n_generated and n_live are its present values. */
double ae_turns_work(const struct aerie_task *task, uint32_t n_generated, uint32_t n_live);
/* Returns the place in the waiting list of the task that shall get the next free slot; *list is not NULL. */
struct aerie_task **ae_turns_next(const ae_turns *turns, struct aerie_task **list, uint32_t max_turn);
/* Returns the slot whose task makes room for a waiting one; n_seqs if none does. running [n_seqs] and works [n_seqs] are by
 * slot. */
uint32_t ae_turns_victim(const ae_turns *turns, const struct aerie_task *task, struct aerie_task *const *running,
                         const double *works, uint32_t n_seqs, uint32_t max_turn);

#endif
