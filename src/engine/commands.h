/* commands.h - how the ranks of a group stay in step: rank 0 records what its engines do, and the others repeat it (follow.c).
 *
 * An engine is a function of the calls made to it: pages, prefixes and snapshots come out the same wherever the same calls are
 * made in the same order. A command is one such call: a few numbers and tokens, and the result that rank 0 got. A rank that
 * gets another result is out of step, and the group ends. Commands travel in frames of one size, as many frames as the next
 * pass needs. They contain no pointers, and the ranks that follow check every number.
 *
 * Owns: the frame being written and the list of adapters. Borrows the communicator. Without a group (NULL) nothing is written.
 */
#ifndef AE_ENGINE_COMMANDS_H
#define AE_ENGINE_COMMANDS_H

#include "engine/engine.h"

#define AE_COMMANDS_MAX_ENGINES 8 /* engines that exist at the same time */

typedef enum ae_command_kind {
    AE_COMMAND_END,      /* ends the group */
    AE_COMMAND_CREATE,   /* creates an engine; n options */
    AE_COMMAND_FREE,
    AE_COMMAND_CLEAR,
    AE_COMMAND_CHAIN,    /* a: ae_export; n tokens; result: the status, as in the next two */
    AE_COMMAND_TREE,     /* a: number of rows without logits; n: parents, then tokens */
    AE_COMMAND_COMMIT,   /* a: rows of the chain; n nodes */
    AE_COMMAND_GIVEN,    /* a: first row; b: rows; result: whether they see each other. The rows follow as words: their planes
                          * one after the other (ae_engine_add_given) */
    AE_COMMAND_TURN,     /* a: first row; b: rows; n: debt, columns, cell of the first row */
    AE_COMMAND_JOIN,     /* a: first row; b: rows, which see each other */
    AE_COMMAND_MODE,     /* a: experts + 1, or 0 for no mode; b: the number of its adapter + 1, or 0; n: the AE_LACKS_ bits of
                          * layers */
    AE_COMMAND_PASS,     /* a: number of best candidates of a row that are sent instead of logits, or 0; b: waves of rows */
    AE_COMMAND_ADAPT,    /* a, b: scope, low half first; n: pairs of an adapter's number and the bits of its scale */
    AE_COMMAND_KEY,      /* as AE_COMMAND_ADAPT */
    AE_COMMAND_TRUNCATE, /* a: positions; result: where the sequence landed, as in the next two */
    AE_COMMAND_SHARE,    /* a: source sequence; b: positions */
    AE_COMMAND_ADOPT,    /* n tokens */
    AE_COMMAND_KEEP,     /* n tokens */
    AE_COMMAND_SNAPSHOT,
    AE_COMMAND_FORGET,
    AE_COMMAND_SAVE,     /* a: number of positions; b: `first`; result: whether the state is included; n: begin and end, the
                          * key, then the tokens if they are in the prefix tree. A round follows */
    AE_COMMAND_LOAD,     /* the same, with tokens up to the end */
    AE_COMMAND_LOGITS,   /* after such a pass: sends its logits after all */
    AE_COMMAND_NOISE,    /* before such a pass: the sequence's rows are drawn by noise alone. a: the bits of the temperature; n:
                          * the seed, low half first */
    AE_COMMANDS
} ae_command_kind;

/* A command in a frame: these words, then n words of payload. */
typedef struct ae_command {
    uint32_t kind, engine, seq, a, b, result, n;
} ae_command;

typedef struct ae_commands ae_commands;
struct ae_given;

/* Opens this rank's commands. `comm` may have any number of ranks, including 1. Errors: MEMORY, LIMIT. */
aerie_status ae_commands_open(ae_commands **out, ae_comm *comm, aerie_error *error);
/* On rank 0, lets the other ranks return from ae_commands_follow. On a rank that rank 0 has not released, ends the group. NULL
 * is allowed. */
void ae_commands_close(ae_commands *commands);
/* Rank 0: whether an engine has been created. */
bool ae_commands_began(const ae_commands *commands);
/* Makes an adapter available to sequences. All ranks must add their adapters in the same order. LIMIT: too many. */
aerie_status ae_commands_add_adapter(ae_commands *commands, const ae_adapter *adapter, aerie_error *error);

/* ---- Rank 0: called by engines; without commands these do nothing ---- */

aerie_status ae_commands_create(ae_commands *commands, ae_engine *engine, aerie_error *error);
void ae_commands_free_engine(ae_engine *engine);
/* Writes a command with payload [command->n] words. The caller sets command->seq; the engine's number is set here. */
void ae_commands_put(ae_engine *engine, const ae_command *command, const int32_t *payload);
void ae_commands_put_tree(ae_engine *engine, uint32_t seq, const ae_tree *tree, uint32_t n_silent, aerie_status status);
/* Writes the rows that were added last, `given`. */
void ae_commands_put_given(ae_engine *engine, const struct ae_given *given, bool group);
void ae_commands_put_noise(ae_engine *engine);
void ae_commands_put_mode(ae_engine *engine, const ae_pass_mode *mode);
void ae_commands_put_set(ae_engine *engine, ae_command_kind kind, uint32_t seq, const ae_adapter_set *set);
#define AE_COMMANDS_SAVED 6 /* words before the tokens of a saved sequence */
void ae_commands_put_saved(ae_engine *engine, ae_command_kind kind, uint32_t seq, ae_kv_key key, const int32_t *tokens,
                           uint32_t n_tokens, const ae_engine_saved *saved);
/* Takes hold while a pass runs: messages of two passes would mix, so a second thread that comes meanwhile makes the group fail.
 * Returns whether this call took hold and must release it; false also for NULL, and inside another hold of the same thread. */
bool ae_commands_hold(ae_commands *commands);
void ae_commands_release(ae_commands *commands, bool held);
/* Sends what was written. NULL is allowed. */
void ae_commands_send(ae_commands *commands);

/* ---- follow.c: ranks from 1 on ---- */

/* Repeats what rank 0 does, with this network, until rank 0 ends the group. Errors: INTERNAL: an invalid command, or a result
 * that differs from rank 0's (the group has then failed); UNSUPPORTED: another rank has failed; and whatever the repeated calls
 * return. */
aerie_status ae_commands_follow(ae_commands *commands, const ae_net *net, uint32_t n_threads, aerie_error *error);

#endif
