/* chat_format.h - how conversations become prompts: which chat template, and what it sees apart from the messages.
 *
 * Owns the template of --chat-template and --chat-template-file, or the plain one for models without a template; the tools; the
 * variables of --chat-template-kwargs, --set, --reasoning, --reasoning-effort and --reasoning-budget.
 */
#ifndef AERIE_APP_SETUP_CHAT_FORMAT_H
#define AERIE_APP_SETUP_CHAT_FORMAT_H

#include "cli/options.h"

typedef struct app_format {
    app_text template_text; /* Jinja; empty: the model's own */
    app_text tool_template; /* the model's own for conversations with tools; empty: it has one template for all */
    const char *name;       /* name of the template for messages; NULL: the model's own */
    app_text tools, variables; /* JSON; empty: none */
    const char *tools_name;
    bool any;               /* the format has a template */
    bool special_in_messages; /* text of messages may contain control tokens */
    bool no_thinking;       /* a variable of the template turns thinking off */
    bool fallback;          /* the plain template, because nothing shows which layout the model knows */
} app_format;

/* Reads the files that the options name; needs no model. */
int app_format_read(app_format *format, const app_options *options);
/* Adapts the format to a model (NULL: none is loaded). If the model has no template but a conversation is needed, uses that of
 * its family, or the plain one, and prints a line that says so. */
int app_format_fit(app_format *format, const aerie_model *model, const aerie_model_info *info, const app_options *options,
                   bool needed);
/* family.c: returns the known template whose marks the vocabulary has; NULL if there is none, or no model. */
const char *app_format_family(const aerie_model *model, const aerie_model_info *info);
/* Prints a note if --reasoning-budget has no effect. has_tags: the template shows which texts surround reasoning. */
void app_format_note_budget(const app_format *format, const app_options *options, bool has_tags);
void app_format_free(app_format *format);
/* Returns the name of a path for messages: "standard input" for "-". */
const char *app_path_name(const char *path);

/* Returns the format's values for aerie_model_chat_render; the messages are to be added. Borrows from the format. */
aerie_chat app_format_chat(const app_format *format);

/* Returns the template's text, for conversations with tools or without; NULL: there is none. Lent. */
const char *app_format_template(const app_format *format, const aerie_model_info *info, bool tools);
/* Returns whether the template (with_tools: that for tools) writes a system message at the beginning. */
bool app_format_takes_system(const app_format *format, const aerie_model_info *info, bool with_tools);
/* Returns whether it writes tools. */
bool app_format_takes_tools(const app_format *format, const aerie_model_info *info);

/* Returns the texts [*n] that end an answer in the plain format, because its marks may not be tokens of the model. */
const char *const *app_format_stops(const app_format *format, size_t *n);

#endif
