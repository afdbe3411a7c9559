/* decide.h - a request of /v1/systemone between its parts: decide.c reads questions and writes answers, decide_prompt.c makes
 * the prompts and has them scored. Nothing here is kept beyond a request.
 */
#ifndef AERIE_APP_SERVE_DIALECTS_DECIDE_H
#define AERIE_APP_SERVE_DIALECTS_DECIDE_H

#include "aerie_extra.h"
#include "serve/dialects/handlers.h"

enum { DECIDE_MAX_OPTIONS = 255, DECIDE_RATINGS = 9 };

/* How a model of a type reads questions. Source: llama.cpp's server-decision.cpp. */
typedef struct decide_kind {
    const char *type; /* ARCH.decision.type of its file */
    enum {
        DECIDE_JOINT,  /* one prompt has all questions; a head scores the options */
        DECIDE_MARKS,  /* a prompt for each question, cut to the lengths of training; a head scores the marks of its options */
        DECIDE_LABELS, /* a prompt for each question; the logits of one token for each option are its scores */
    } how;
    bool true_first;   /* the options of a noul */
    bool sorted_keys;  /* of all objects that the template gets */
    bool sorted_choice;
    bool reads_images;
    /* LABELS */
    bool codes;        /* the template gets each option's label: A to Z, AA to ZZ, as far as they are tokens; else it writes A
                        * to Z and a to z by itself */
    bool both_orders;  /* a choice is asked twice, the second time from its last option to its first */
    bool rated;        /* a noul is read from a scale of DECIDE_RATINGS labels */
    bool lists_all;    /* the prompt of a question lists all questions */
    bool own_bands;    /* temperatures for up to 8, up to 26 and more options, instead of 2, 5, 10 and more */
} decide_kind;

typedef struct decide_question {
    const char *id;             /* borrowed from the body */
    aerie_span type;
    const json_t *instructions; /* borrowed */
    json_t *options;            /* owned, a list of {"key", "description"} in the order in which the model sees them */
    size_t n_options;
    size_t n_scores, n_orders;  /* options or ratings, and how often they are scored */
    float *scores;              /* [n_orders][n_scores] within decision.scores */
} decide_question;

typedef struct decision {
    serve_ask ask;
    serve_call *call;
    serve_error *error;   /* valid until the reply */
    const decide_kind *kind;
    json_t *state;        /* without its images, owned */
    decide_question *questions; /* [n_questions] */
    size_t n_questions, n_options; /* of all questions */
    float *scores;        /* of all questions */
    int32_t *labels;      /* [n_labels] tokens, with LABELS */
    char (*codes)[3];     /* [n_labels] their texts; NULL: the template knows them */
    size_t n_labels;
    /* the prompt that is being made: ask.pictured, then tokens */
    int32_t *tokens;      /* [n_tokens] */
    uint8_t *spans;       /* [n_tokens] */
    size_t n_tokens, n_all; /* n_all: positions of all prompts so far */
} decision;

const char *decide_type_name(aerie_span type);
/* Returns how the model decides; NULL: it does not. */
const decide_kind *decide_kind_of(const serve_model *model);
/* Returns a value of the file's keys, or `absent`. own: the name follows the architecture's. */
double decide_number(const serve_model *model, bool own, const char *name, double absent);

/* Finds labels for the questions, of which one may have as many as n options. Errors: 400, if the model has fewer; 501. */
bool decide_labels(decision *d, size_t n);
/* Scores all questions. */
bool decide_compute(decision *d);

#endif
