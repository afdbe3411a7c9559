/* llama_options.h - options and commands of other programs, and what to use instead.
 * Owns every option of llama.cpp that is not in the table of options.h (one that is there has the same meaning), the names of
 * such options in ollama, vLLM and transformers, and the names of these programs' commands.
 * Invariant: no name is in both tables (tests/app/test_llama_options.c); the table of options.h is always searched first. */
#ifndef AERIE_APP_CLI_LLAMA_OPTIONS_H
#define AERIE_APP_CLI_LLAMA_OPTIONS_H

#include "cli/options.h"

typedef enum app_foreign_kind {
    APP_NO_EFFECT, /* accepted and ignored */
    APP_OTHERWISE, /* aerie has it in another form */
    APP_NOT_YET,   /* planned, but missing */
    APP_ABSENT,    /* not part of this program */
} app_foreign_kind;

typedef struct app_foreign {
    const char *names;    /* separated by spaces */
    const char *argument; /* for an option without effect: NULL if it takes no argument, "[...]" if the argument is optional */
    app_foreign_kind kind;
    const char *text; /* what to use instead, or why it has no effect; a clause without a full stop */
} app_foreign;

size_t app_n_foreign_options(void);
const app_foreign *app_foreign_option_at(size_t i);
/* Returns the option called name[0..n), or NULL. */
const app_foreign *app_foreign_option(const char *name, size_t n);
size_t app_n_foreign_commands(void);
const app_foreign *app_foreign_command_at(size_t i);
const app_foreign *app_foreign_command(const char *name);

#endif
