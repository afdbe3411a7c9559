/* chat.h - conversations to prompt text, by the model's own template.
 *
 * The template is hostile input: bounded in depth, steps and output; it can reach nothing but
 * the values it is given (text/jinja.h).
 */
#ifndef AE_TEXT_CHAT_H
#define AE_TEXT_CHAT_H

#include "base/err.h"
#include "base/mem.h"

typedef struct ae_chat_message {
    const char *role;    /* "system", "user", "assistant", "tool" */
    const char *content; /* UTF-8, NUL-terminated */
} ae_chat_message;

typedef struct ae_chat_options {
    const char *bos_text; /* what the template sees as bos_token; "" if none */
    const char *eos_text;
    bool add_generation_prompt;
} ae_chat_options;

/* Appends the prompt. Errors: FORMAT (template line and reason, or the template's own raise_exception
 * text), LIMIT, MEMORY. */
aerie_status ae_chat_render(const char *template_text, const ae_chat_message *messages, size_t n_messages,
                            const ae_chat_options *options, ae_buf *out, aerie_error *error);

#endif
