/* chat.h - conversations to prompt text, by the model's own template or another.
 *
 * The template is hostile input: bounded in depth, steps and output; it can reach nothing but
 * the values it is given (text/template/jinja.h). It sees what Hugging Face transformers shows to it: messages, tools and
 * documents (none where there are none), add_generation_prompt, bos_token, eos_token, and further variables.
 */
#ifndef AE_TEXT_CHAT_H
#define AE_TEXT_CHAT_H

#include "base/err.h"
#include "base/mem.h"

typedef struct ae_chat_message {
    const char *role;    /* "system", "user", "assistant", "tool" */
    const char *content; /* UTF-8, NUL-terminated */
} ae_chat_message;

/* A JSON document; `name` begins the sentences about it. text NULL: there is no document. */
typedef struct ae_chat_json {
    const char *text; /* [n] */
    size_t n;
    const char *name;
} ae_chat_json;

typedef struct ae_chat_options {
    const char *bos_text; /* the template's bos_token; "" if none */
    const char *eos_text;
    bool add_generation_prompt;
    const char *tool_template; /* replaces the template of conversations with tools; NULL: the one for all */
    const char *template_name; /* begins the sentences about the template; NULL: nothing is put before them */
    ae_chat_json tools;        /* a list */
    ae_chat_json variables;    /* an object, whose members are set last and replace all others of the same name */
    ae_buf *values;            /* gets the ae_span of the prompt's parts that come from messages and tools appended
                                * (docs/templates.md); NULL: not wanted */
} ae_chat_options;

/* Appends the prompt. Errors: FORMAT (template line, column and reason, or the template's own raise_exception
 * text), LIMIT, MEMORY. */
aerie_status ae_chat_render(const char *template_text, const ae_chat_message *messages, size_t n_messages,
                            const ae_chat_options *options, ae_buf *out, aerie_error *error);

/* The same for messages of any shape: a list, or an object that has the list as "messages" and may have "tools", which those of
 * the options replace, and "chat_template_kwargs". */
aerie_status ae_chat_render_json(const char *template_text, size_t n_template, ae_chat_json messages,
                                 const ae_chat_options *options, ae_buf *out, aerie_error *error);

/* Templates that many models share, by llama.cpp's names; NULL for an unknown name. */
const char *ae_chat_builtin(const char *name);
const char *ae_chat_builtin_name(size_t i); /* NULL after the last */

#endif
