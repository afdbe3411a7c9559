/* complete.h - the completions that Tab offers. */
#ifndef AERIE_APP_RUN_COMPLETE_H
#define AERIE_APP_RUN_COMPLETE_H

#include "shared/app.h"

/* Possible completions of the typed word. All zero: none. */
typedef struct app_choices {
    char **items; /* [n] owned; sorted after app_choices_sort */
    size_t n, capacity;
} app_choices;

bool app_choices_add(app_choices *choices, const char *word, size_t n, const char *end); /* false: out of memory */
void app_choices_sort(app_choices *choices);
void app_choices_free(app_choices *choices);
/* Returns the number of bytes that all of them have in common at the beginning, in whole UTF-8 characters. */
size_t app_choices_common(const app_choices *choices);
/* Adds files whose names begin with the path; folders end in '/', and "~/" is the home folder. Returns false if memory is
 * short. */
bool app_choices_add_files(app_choices *choices, const char *path);

#endif
