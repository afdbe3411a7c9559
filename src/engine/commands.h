/* commands.h - how the ranks of a group do the same: rank 0 lists what its engines do, the others follow (follow.c).
 *
 * An engine is a function of the calls that were made to it: pages, prefixes and snapshots come out the same wherever the same
 * calls are made in the same order. So a command is such a call, a few numbers and tokens, and what it returned: a rank that
 * gets something else is out of step, and the group ends. Commands travel in frames of one size, as many as the next pass
 * needs; nothing in them is a pointer, and who follows checks every number.
 *
 * Owns: the frame being written, the list of adapters. Borrows the communicator. Without a group (NULL) nothing is written.
 */
#ifndef AE_ENGINE_COMMANDS_H
#define AE_ENGINE_COMMANDS_H

#include "engine/engine.h"

#define AE_COMMANDS_MAX_ENGINES 8 /* at a time */

typedef enum ae_command_kind {
    AE_COMMAND_END,      /* of the group */
    AE_COMMAND_CREATE,   /* an engine; n options */
    AE_COMMAND_FREE,
    AE_COMMAND_CLEAR,
    AE_COMMAND_CHAIN,    /* a: ae_export; n tokens; result: status, as of the next two */
    AE_COMMAND_TREE,     /* a: rows without logits; n: parents, then tokens */
    AE_COMMAND_COMMIT,   /* a: rows of the chain; n nodes */
    AE_COMMAND_MODE,     /* a: experts + 1, 0: no mode; n: what layers lack */
    AE_COMMAND_PASS,
    AE_COMMAND_ADAPT,    /* a, b: scope, low half first; n: pairs of an adapter's number and the bits of its scale */
    AE_COMMAND_KEY,      /* likewise */
    AE_COMMAND_TRUNCATE, /* a: positions; result: where it landed, as of the next two */
    AE_COMMAND_SHARE,    /* a: from; b: positions */
    AE_COMMAND_ADOPT,    /* n tokens */
    AE_COMMAND_KEEP,     /* n tokens */
    AE_COMMAND_SNAPSHOT,
    AE_COMMAND_FORGET,
    AE_COMMANDS
} ae_command_kind;

/* In a frame a command is these words, then n of payload. */
typedef struct ae_command {
    uint32_t kind, engine, seq, a, b, result, n;
} ae_command;

typedef struct ae_commands ae_commands;

/* Opens the commands of this rank. `comm` may have any number of ranks, 1 included. */
aerie_status ae_commands_open(ae_commands **out, ae_comm *comm, aerie_error *error);
/* Rank 0: the others leave ae_commands_follow. Another rank that rank 0 has not let go ends the group. NULL is fine. */
void ae_commands_close(ae_commands *commands);
ae_comm *ae_commands_comm(const ae_commands *commands);
/* Sequences may have this adapter; all ranks add theirs in one order. LIMIT: too many. */
aerie_status ae_commands_add_adapter(ae_commands *commands, const ae_adapter *adapter, aerie_error *error);

/* ---- Rank 0. What engines call; nothing happens where they have no commands ---- */

aerie_status ae_commands_create(ae_commands *commands, ae_engine *engine, aerie_error *error);
void ae_commands_free_engine(ae_engine *engine);
/* payload [command->n] words. engine and seq of the command are set here and by the caller. */
void ae_commands_put(ae_engine *engine, const ae_command *command, const int32_t *payload);
void ae_commands_put_tree(ae_engine *engine, uint32_t seq, const ae_tree *tree, uint32_t n_silent, aerie_status status);
void ae_commands_put_mode(ae_engine *engine, const ae_pass_mode *mode);
void ae_commands_put_set(ae_engine *engine, ae_command_kind kind, uint32_t seq, const ae_adapter_set *set);
/* What was put goes out. NULL is fine. */
void ae_commands_send(ae_commands *commands);

/* ---- follow.c: ranks from 1 on ---- */

/* Does what rank 0 does, on this network, until it ends. Errors: INTERNAL: a command that cannot be, or another result than
 * rank 0 had (the group has failed then); those of what is done here; UNSUPPORTED: another rank has failed. */
aerie_status ae_commands_follow(ae_commands *commands, const ae_net *net, uint32_t n_threads, aerie_error *error);

#endif
