/* turns.h - which requests have the slots of a session while others wait (aerie_session_params.max_turn).
 *
 * A request belongs to a group (the answers to one request of a server), a group to a client. Where all slots are taken:
 *   - A client gives a slot to one that has at least two fewer; within a client the same holds for its groups. So one
 *     request for many answers has more than one slot only as long as nobody else waits.
 *   - Among those that have as many slots, a request gives its own to one that has had much less: its score is at least the
 *     other's need and twice the other's score. Score: the work that it has had, less the passes that it has waited since.
 *     Need: what the other one asks for, and max_turn at most. Work: generated tokens, and an eighth for each computed one
 *     of a prompt. So a request that has had nothing waits for at most max_turn tokens of each slot and of those that came
 *     before it, and two long ones do not take turns token by token.
 *   - A request that goes on has a slot until it has generated as much as its return has cost in work, and among those that
 *     have as many slots until it has had as much as the other's need.
 * A free slot gets the client with the fewest slots, of these the one with the least work; in it the group with the fewest
 * slots, of these the request with the lowest score by powers of two, of these the oldest.
 *
 * Owns accounts of clients and groups that have requests, and the order of the waiting list. Does not own slots
 * (speculate.h) or tasks (tasks.c). All is counted in tokens and passes, never in time, so the same events give the same
 * order. No byte of an answer depends on any of it (park.c).
 * Threads: all on the stepping thread but ae_turns_prepare.
 */
#ifndef AE_SESSION_TURNS_H
#define AE_SESSION_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "aerie.h"

typedef struct ae_turns_account {
    struct ae_turns_account *next, *groups; /* groups: of a client */
    uint64_t id; /* of a group 0: it belongs to one request alone */
    uint32_t n_tasks, n_running;
    double work;                /* of a client, without what running requests have had in this turn */
    struct aerie_task *best;    /* of a client: of its waiting tasks, while one is chosen */
} ae_turns_account;

/* What the session keeps. */
typedef struct ae_turns {
    ae_turns_account *clients;
    uint64_t n_passes;
} ae_turns;

/* What a task keeps. */
typedef struct ae_turn {
    ae_turns_account *client, *group; /* NULL: not in a session with turns */
    ae_turns_account *spare[2];       /* made when it was submitted; owned */
    bool running, returned;           /* it has a slot; it had one before this one */
    double score;                     /* when it got its slot, what it waited for subtracted; when it lost it */
    uint64_t since;                   /* pass at which it lost it */
    uint32_t n_generated, n_live;     /* when it got its slot */
} ae_turn;

/* What a task needs to be counted. Any thread. */
aerie_status ae_turns_prepare(ae_turn *turn, aerie_error *error);
void ae_turns_drop(ae_turn *turn);
/* A task comes to the waiting list; it has ended. */
void ae_turns_enter(ae_turns *turns, struct aerie_task *task);
void ae_turns_leave(ae_turns *turns, struct aerie_task *task);
/* It gets a slot; it gives it back. */
void ae_turns_begin(const ae_turns *turns, struct aerie_task *task, uint32_t n_generated, uint32_t n_live);
void ae_turns_end(ae_turns *turns, struct aerie_task *task, double work);
/* The work of a task since it got its slot, in which it has generated and computed so many tokens by now. */
double ae_turns_work(const struct aerie_task *task, uint32_t n_generated, uint32_t n_live);
/* Where the task is in the waiting list that shall get the next free slot; *list is not NULL. */
struct aerie_task **ae_turns_next(const ae_turns *turns, struct aerie_task **list, uint32_t max_turn);
/* The slot whose task gives way to a waiting one; n_seqs: none does. running [n_seqs] by slot, works [n_seqs]. */
uint32_t ae_turns_victim(const ae_turns *turns, const struct aerie_task *task, struct aerie_task *const *running,
                         const double *works, uint32_t n_seqs, uint32_t max_turn);

#endif
