/* generate.h - answers to a list of prompts, collected, and shown in the prompts' order while they grow.
 *
 * Owns: the answers. Invariant: what is on standard output is always a prefix of the answers one
 * after another, each with a newline after it (and of several texts, unless --quiet, a header before it); several may grow at
 * once, but only the first unfinished one is seen growing. On a terminal lines end between words (wrap.h).
 */
#ifndef AERIE_APP_GENERATE_H
#define AERIE_APP_GENERATE_H

#include "run/wrap.h"
#include "setup/load.h"

/* A token's log-probability, followed by those of the likeliest at its place. */
typedef struct app_logprob {
    aerie_logprob it;
    bool alternative;
} app_logprob;

/* Where a token's text ends, and the token's depth in an accepted draft, 0 if it was decoded. */
typedef struct app_origin {
    size_t end;
    uint32_t depth;
} app_origin;

typedef struct app_answer {
    app_text text;
    app_logprob *logprobs; /* [n_logprobs] */
    size_t n_logprobs, logprob_capacity;
    app_origin *origins;   /* [n_origins], if colour is on */
    size_t n_origins, origin_capacity;
    int32_t *ids; /* [n_ids] */
    size_t n_ids, capacity;
    bool ended, refused; /* refused: nothing is shown of it */
    aerie_reasoning reasoning; /* its limit, if it has one */
    app_text reasoning_end;
} app_answer;

typedef enum app_show { APP_SHOW_NOTHING, APP_SHOW_TEXT, APP_SHOW_IDS, APP_SHOW_LINES } app_show;

typedef struct app_generation {
    const app_models *models;
    const app_options *options;
    const app_prompts *prompts;
    const struct app_generation *known; /* ORACLE: the plain answers; else NULL */
    app_show show;
    app_answer *answers; /* [prompts->n] */
    aerie_stats *stats;  /* [prompts->n] */
    aerie_diffusion diffusion; /* of models that denoise: the options', and who is shown the canvas */
    double seconds;      /* of wall clock */
    bool color;          /* of tokens by origin, on a terminal */

    bool wraps;          /* standard output is a terminal that lines are wrapped for */
    app_wrap wrap;       /* of the answer being shown */
    bool headers;        /* a line before each text says which prompt it answers */
    bool watched;        /* progress is shown: standard error is a terminal */
    double start;        /* of the generation */
    int percent;         /* of the prompt, as the bar on the terminal shows it; -1: there is none */
    uint64_t n_longest;  /* tokens of the longest prompt being computed, whose progress is shown */

    bool begun;              /* the header of answer i_shown stands there */
    size_t i_shown, n_shown; /* the answer being shown, and how much of it (bytes or ids) */
    size_t i_origin;         /* of the next byte to show */
    bool failed;             /* out of memory, or standard output is gone */
} app_generation;

/* models, options, prompts, known and show are set; the rest is zero. */
int app_generate(app_generation *generation, aerie_session *session);
/* Runs n of them, each in its own session, one pass at a time, always of the one that has advanced least. `seconds` is the time
 * of the passes of each, so load on the machine affects all alike. Shows nothing. */
int app_generate_in_turns(app_generation *generations, aerie_session *const *sessions, size_t n);
/* --color-drafts, and standard output is a terminal that may be coloured; says which colour means what. */
bool app_wants_color(const app_options *options);
/* With a grammar: says which answers are not texts of it, because something ended them too early; APP_FAILED if there are
 * any. */
int app_generation_check(const app_generation *generation);
/* Returns an answer as an object: text, ids, stats, log-probabilities if asked for. */
json_t *app_json_answer(const app_generation *generation, size_t i);
void app_generation_free(app_generation *generation);

#endif
