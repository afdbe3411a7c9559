/* commands_int.h - the state of commands, shared by commands.c (rank 0) and follow.c (the others). */
#ifndef AE_ENGINE_COMMANDS_INT_H
#define AE_ENGINE_COMMANDS_INT_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/commands.h"

#define AE_COMMANDS_WORDS (AE_COMM_FRAME / sizeof(uint32_t) - 1)
#define AE_COMMANDS_ADAPTERS 64

struct ae_commands {
    ae_comm *comm;
    struct {
        uint32_t n; /* words that follow */
        uint32_t words[AE_COMMANDS_WORDS];
    } frame;
    uint32_t at; /* index of the next word to read in the frame */
    bool taken[AE_COMMANDS_MAX_ENGINES];
    const ae_adapter *adapters[AE_COMMANDS_ADAPTERS];
    uint32_t n_adapters;
    atomic_uintptr_t holder; /* the thread that is writing a command or running a pass (pthread_self); 0: none */
    bool began; /* rank 0: an engine has been created */
    bool ended; /* ranks other than 0: rank 0 has ended the group */
};

_Static_assert(sizeof(((struct ae_commands *)0)->frame) == AE_COMM_FRAME, "a frame is full of words");

/* The number of words that encode an engine's options: all numbers that must agree between ranks. */
#define AE_COMMANDS_OPTIONS 20

#endif
