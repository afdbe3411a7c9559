/* complete.h - the completions that Tab offers. */
#ifndef AERIE_APP_RUN_COMPLETE_H
#define AERIE_APP_RUN_COMPLETE_H

#include "shared/app.h"

/* The words that what was typed may become. All zero: none. */
typedef struct app_choices {
    char **items; /* [n], sorted once app_choices_sort was called; owned */
    size_t n, capacity;
} app_choices;

bool app_choices_add(app_choices *choices, const char *word, size_t n, const char *end); /* false: out of memory */
void app_choices_sort(app_choices *choices);
void app_choices_free(app_choices *choices);
/* Returns the bytes that all of them begin with, whole UTF-8 characters. */
size_t app_choices_common(const app_choices *choices);
/* Files whose names begin with the path; folders end in '/'. "~/" is the home folder. Returns false if memory is short. */
bool app_choices_add_files(app_choices *choices, const char *path);

#endif
