/* text.c - aerie.h: text to tokens and back. */
#include "session/session_int.h"

aerie_status aerie_model_tokenize(const aerie_model *model, const char *text, size_t n, bool add_special, bool parse_special,
                                  int32_t **tokens, size_t *n_tokens, aerie_error *error)
{
    AE_NEED(tokens, error);
    *tokens = NULL;
    AE_NEED(model, error);
    AE_NEED(n_tokens, error);
    AE_NEED_IF(n, text, error);
    const ae_encode_options options = {.add_special = add_special, .parse_special = parse_special};
    return ae_session_tokenize(model, text, n, options, tokens, n_tokens, error);
}

aerie_status aerie_model_detokenize(const aerie_model *model, const int32_t *tokens, size_t n_tokens, bool special, char **text,
                                    size_t *n, aerie_error *error)
{
    AE_NEED(text, error);
    *text = NULL;
    AE_NEED(model, error);
    AE_NEED(n, error);
    AE_NEED_IF(n_tokens, tokens, error);
    ae_buf buf = {0};
    ae_detok detok = {.vocab = model->vocab, .special = special};
    const int32_t n_vocab = ae_vocab_n_tokens(model->vocab);
    *n = 0;
    for (size_t i = 0; i < n_tokens; i++) {
        if (tokens[i] < 0 || tokens[i] >= n_vocab) {
            ae_buf_free(&buf);
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "token %zu is %d; 0 to %d are possible", i, tokens[i], n_vocab - 1);
        }
        ae_detok_add(&detok, tokens[i], &buf);
    }
    ae_detok_end(&detok, &buf);
    return ae_session_give_text(&buf, text, n, error);
}

bool aerie_model_token_is_eog(const aerie_model *model, int32_t token)
{
    if (!model) return false;
    return token >= 0 && token < ae_vocab_n_tokens(model->vocab) && ae_vocab_is_eog(model->vocab, token);
}
