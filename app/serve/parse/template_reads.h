/* template_reads.h - what a chat template reads from a request: the variables that turn its thinking on and off, and the name
 * of the field with a message's reasoning.
 * Owns the rules that recognize these in a template's source. Does not own formats of answers (parse/answer_format.c) or
 * rendering. */
#ifndef AERIE_APP_SERVE_PARSE_TEMPLATE_READS_H
#define AERIE_APP_SERVE_PARSE_TEMPLATE_READS_H

#include <jansson.h>
#include <stdbool.h>

typedef enum serve_think { SERVE_THINK_DEFAULT, SERVE_THINK_OFF, SERVE_THINK_ON } serve_think;

typedef struct serve_reads {
    bool reasoning;      /* a variable of that name decides whether to think; in other templates it is a field of a message */
    bool mode;           /* thinking_mode: "enabled", "disabled" */
    bool budget;         /* thinking_budget: 0 turns thinking off */
    bool effort_level;   /* thinking_effort */
    bool strength;       /* reasoning_strength */
    bool no_think;       /* reasoning_effort "no_think" turns thinking off, and is the default */
    bool parts;          /* a message's content may have parts of type "thinking" */
    bool low, high;      /* the levels that the template names; a template with both may refuse others */
    bool medium, minimal, max, xhigh;
    const char *message_reasoning; /* the field of a message with its reasoning; NULL: none */
} serve_reads;

serve_reads serve_reads_of(const char *template_text);
/* Sets the variables that turn thinking on or off and choose its amount (effort; NULL: the template's default). Returns false
 * if memory is short. */
bool serve_reads_think(const serve_reads *reads, json_t *variables, serve_think think, const char *effort);
/* Renames a message's reasoning to the field that the template reads. merge: joins a message's text with its calls. Returns
 * false if memory is short. */
bool serve_reads_message(const serve_reads *reads, json_t *message, bool merge);
/* Moves reasoning into the content if the template reads it there. Returns false if memory is short. */
bool serve_reads_parts(const serve_reads *reads, json_t *messages);

/* Returns the tools without null members; whole: with the members that templates expect in each tool. NULL: out of memory. */
json_t *serve_reads_tools(const json_t *tools, bool whole);

#endif
