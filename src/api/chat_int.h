/* chat_int.h - the function of chat.c that pictures.c needs. */
#ifndef AE_API_CHAT_INT_H
#define AE_API_CHAT_INT_H

#include "base/mem.h"

/* Renders a conversation to text, which the caller owns. values: receives the ae_span of bytes that come from messages and
 * tools; NULL: not wanted. */
aerie_status ae_api_render_chat(const aerie_model *model, const aerie_chat *chat, ae_buf *values, char **text, size_t *n,
                                aerie_error *error);

#endif
