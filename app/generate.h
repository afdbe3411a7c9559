/* generate.h - answers to a list of prompts, collected, and shown in the prompts' order while they grow.
 *
 * Owns: the answers. Invariant: what is on standard output is always a prefix of the answers one
 * after another, each with a newline behind it; several may grow at once, but only the first
 * unfinished one is seen growing.
 */
#ifndef AERIE_APP_GENERATE_H
#define AERIE_APP_GENERATE_H

#include "load.h"

typedef struct app_answer {
    app_text text;
    int32_t *ids; /* [n_ids] */
    size_t n_ids, capacity;
    bool ended;
} app_answer;

typedef enum app_show { APP_SHOW_NOTHING, APP_SHOW_TEXT, APP_SHOW_IDS } app_show;

typedef struct app_generation {
    const app_models *models;
    const app_options *options;
    const app_prompts *prompts;
    const struct app_generation *known; /* ORACLE: the plain answers; else NULL */
    app_show show;
    app_answer *answers; /* [prompts->n] */
    aerie_stats *stats;  /* [prompts->n] */
    double seconds;      /* of wall clock */

    size_t i_shown, n_shown; /* the answer being shown, and how much of it (bytes or ids) */
    bool failed;             /* out of memory, or standard output is gone */
} app_generation;

/* models, options, prompts, known and show are set; the rest is zero. */
int app_generate(app_generation *generation, aerie_session *session);
void app_generation_free(app_generation *generation);

#endif
