/* chat_format.h - how conversations become prompts: which chat template, and what it sees beside the messages.
 *
 * Owns: the template of --chat-template and --chat-template-file, or the plain one for models that have none; the tools; the
 * variables of --chat-template-kwargs, --set, --reasoning, --reasoning-effort and --reasoning-budget.
 */
#ifndef AERIE_APP_SETUP_CHAT_FORMAT_H
#define AERIE_APP_SETUP_CHAT_FORMAT_H

#include "cli/options.h"

typedef struct app_format {
    app_text template_text; /* Jinja; without data the model's own */
    const char *name;       /* of the template, for sentences; NULL: the model's own */
    app_text tools, variables; /* JSON; without data none */
    const char *tools_name;
    bool any;               /* the format has a template */
    bool special_in_messages; /* control tokens spelled in messages are control tokens */
    bool no_thinking;       /* a variable of the template turns thinking off */
    bool fallback;          /* the plain one, since nothing tells which layout the model knows */
} app_format;

/* Reads the files that the options name; needs no model. */
int app_format_read(app_format *format, const app_options *options);
/* Fits it to a model (NULL: none is loaded), whose template may be missing: then that of its family is taken, or the plain one,
 * where a conversation is needed, and a line says so. */
int app_format_fit(app_format *format, const aerie_model *model, const aerie_model_info *info, const app_options *options,
                   bool needed);
/* family.c: the known template whose marks the vocabulary has; NULL: none, or no model. */
const char *app_format_family(const aerie_model *model, const aerie_model_info *info);
/* Says so if --reasoning-budget changes nothing. has_tags: the template shows which texts are around reasoning. */
void app_format_note_budget(const app_format *format, const app_options *options, bool has_tags);
void app_format_free(app_format *format);
/* "standard input" for "-". */
const char *app_path_name(const char *path);

/* Returns the format's values for aerie_model_chat_render; the messages are to be added. Borrows from the format. */
aerie_chat app_format_chat(const app_format *format);

/* Returns whether the template writes a first message of the system; whether it writes the tools that it is given. */
bool app_format_takes_system(const app_format *format, const aerie_model_info *info);
bool app_format_takes_tools(const app_format *format, const aerie_model_info *info);

/* Texts that end an answer in the plain format, whose marks the model may not know as tokens: [*n]. */
const char *const *app_format_stops(const app_format *format, size_t *n);

#endif
