/* text.c - tokenizes text for the parts of a session, and gives buffers to the caller. Owns nothing. */
#include <string.h>

#include "base/mem.h"
#include "session/session_int.h"

aerie_status ae_session_tokenize(const aerie_model *model, const char *text, size_t n, ae_encode_options options,
                                 int32_t **tokens, size_t *n_tokens, aerie_error *error)
{
    ae_tokens list = {0};
    *tokens = NULL;
    *n_tokens = 0;
    const aerie_status status = ae_vocab_encode(model->vocab, text, n, options, &list, error);
    if (status != AERIE_OK) {
        ae_tokens_free(&list);
        return status;
    }
    *tokens = list.data;
    *n_tokens = list.n;
    return AERIE_OK;
}

aerie_status ae_session_give_text(ae_buf *buf, char **text, size_t *n, aerie_error *error)
{
    ae_buf_add(buf, "", 0); /* so that an empty text becomes "" */
    if (buf->failed) {
        ae_buf_free(buf);
        return ae_fail_memory(error, "a text", buf->n);
    }
    *text = buf->data;
    *n = buf->n;
    return AERIE_OK;
}
