/* chat_int.h - what pictures.c needs of chat.c. */
#ifndef AE_API_CHAT_INT_H
#define AE_API_CHAT_INT_H

#include "base/mem.h"

/* The text of a conversation, owned by the caller. values: receives the ae_span of it that come from messages and tools; NULL:
 * not wanted. */
aerie_status ae_api_render_chat(const aerie_model *model, const aerie_chat *chat, ae_buf *values, char **text, size_t *n,
                                aerie_error *error);

#endif
