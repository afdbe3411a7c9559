/* generate.h - collects the answers to a list of prompts, and prints them in the prompts' order while they grow.
 * Owns the answers. Invariant: standard output is always a prefix of the answers one after another, each with a newline after
 * it (and with several texts, unless --quiet, a header before it). Several answers may grow at once, but only the first
 * unfinished one is printed as it grows. On a terminal lines end between words (wrap.h). */
#ifndef AERIE_APP_GENERATE_H
#define AERIE_APP_GENERATE_H

#include "run/wrap.h"
#include "setup/load.h"

/* A token's log-probability, followed by those of the likeliest tokens at its position. */
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
    app_origin *origins;   /* [n_origins] if colours are on */
    size_t n_origins, origin_capacity;
    int32_t *ids; /* [n_ids] */
    size_t n_ids, capacity;
    bool ended, refused; /* refused: none of it is printed */
    aerie_reasoning reasoning; /* its limit, if it has one */
    app_text reasoning_end;
} app_answer;

typedef enum app_show { APP_SHOW_NOTHING, APP_SHOW_TEXT, APP_SHOW_IDS, APP_SHOW_LINES } app_show;

typedef struct app_generation {
    const app_models *models;
    const app_options *options;
    const app_prompts *prompts;
    const struct app_generation *known; /* for ORACLE: the plain answers; else NULL */
    app_show show;
    app_answer *answers; /* [prompts->n] */
    aerie_stats *stats;  /* [prompts->n] */
    aerie_diffusion diffusion; /* for diffusion models: the options, and the callback that shows the canvas */
    double seconds;      /* of wall clock */
    bool color;          /* colours tokens by origin, on a terminal */

    bool wraps;          /* standard output is a terminal, and lines are wrapped to its width */
    app_wrap wrap;       /* for the answer being printed */
    bool headers;        /* prints a line before each text that names its prompt */
    bool watched;        /* shows progress, because standard error is a terminal */
    double start;        /* of the generation */
    double noted;        /* when a line about the prompt was printed last, or the start */
    int percent;         /* progress of the prompt as the bar shows it; -1: there is no bar */
    uint64_t n_longest;  /* tokens of the longest prompt being computed, whose progress is shown */

    bool begun;              /* the header of answer i_shown has been printed */
    size_t i_shown, n_shown; /* the answer being printed, and how much of it was (bytes or ids) */
    size_t i_origin;         /* of the next byte to show */
    bool failed;             /* memory was short, or standard output was closed */
} app_generation;

/* The caller sets models, options, prompts, known and show; the rest is zero. */
int app_generate(app_generation *generation, aerie_session *session);
/* Runs n of them, each in its own session, one pass at a time; the next pass is always that of the one that has advanced least.
 * `seconds`: the total time of each one's passes. So load on the machine affects all alike. Prints nothing. */
int app_generate_in_turns(app_generation *generations, aerie_session *const *sessions, size_t n);
/* Returns whether to colour tokens: --color-drafts is given, the output is text (no --json, no --ids) and goes to a terminal,
 * and NO_COLOR is not set. If so, also says what each colour means, unless -q is given. */
bool app_wants_color(const app_options *options);
/* Reports answers that do not match the grammar because they ended too early. Returns APP_FAILED if there are any. */
int app_generation_check(const app_generation *generation);
/* Returns an answer as an object: text, ids, stats, and log-probabilities if requested. */
json_t *app_json_answer(const app_generation *generation, size_t i);
void app_generation_free(app_generation *generation);

#endif
