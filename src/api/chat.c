/* chat.c - aerie.h: conversations to prompts. Checks arguments and fills defaults, then calls text/template/chat.h.
 *
 * A template always sees the model's BOS, and may write it; tokenizing ensures that the prompt has only one.
 */
#include <string.h>

#include "api/chat_int.h"
#include "session/session_int.h"
#include "base/err.h"
#include "base/mem.h"
#include "text/template/chat.h"
#include "text/token/vocab.h"

static aerie_status fail_no_template(aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the model file carries no chat template; give the prompt as plain text");
}

static void add_piece(const aerie_model *model, int32_t token, ae_buf *out)
{
    if (token >= 0) ae_vocab_piece(model->vocab, token, true, out);
    ae_buf_add(out, "", 0);
}

static ae_chat_json json_of(const aerie_text *text, const char *name)
{
    return (ae_chat_json){text->data, text->n, text->name ? text->name : name};
}

/* Renders the turns of the chat with the template's options. */
static aerie_status render_turns(const aerie_text *source, const aerie_chat *chat, const ae_chat_options *options, ae_buf *out,
                                 aerie_error *error)
{
    ae_chat_message *copy = ae_alloc(chat->n_turns, sizeof *copy);
    char *template_text = ae_strndup(source->data, source->n);
    aerie_status status;
    if (!copy || !template_text) {
        status = ae_fail_memory(error, "a conversation", source->n + chat->n_turns * sizeof *copy);
    } else {
        for (size_t i = 0; i < chat->n_turns; i++) copy[i] = (ae_chat_message){chat->turns[i].role, chat->turns[i].content};
        status = ae_chat_render(template_text, copy, chat->n_turns, options, out, error);
    }
    ae_free(copy);
    ae_free(template_text);
    return status;
}

aerie_status ae_api_render_chat(const aerie_model *model, const aerie_chat *chat, ae_buf *values, char **text, size_t *n,
                                aerie_error *error)
{
    aerie_text source = chat->template_text;
    const char *tool_template = NULL;
    *text = NULL;
    *n = 0;
    if (!source.data && model) {
        source.data = ae_vocab_chat_template(model->vocab);
        tool_template = ae_vocab_tool_template(model->vocab);
        if (!source.data) return fail_no_template(error);
        source.n = strlen(source.data);
    }
    if (!source.data) return ae_fail(error, AERIE_ERROR_ARGUMENT, "a chat needs a template, or a model that has one");
    if (!chat->messages.data && !chat->turns) return ae_fail(error, AERIE_ERROR_ARGUMENT, "a chat needs messages");
    ae_buf bos = {0}, eos = {0}, out = {0};
    if (chat->bos) ae_buf_adds(&bos, chat->bos);
    else if (model) add_piece(model, ae_vocab_bos(model->vocab), &bos);
    if (chat->eos) ae_buf_adds(&eos, chat->eos);
    else if (model) add_piece(model, ae_vocab_eos(model->vocab), &eos);
    const ae_chat_options options = {bos.data, eos.data, !chat->no_generation_prompt, tool_template,
                                     source.name ? source.name : chat->turns ? NULL : "the chat template",
                                     json_of(&chat->tools, "the tools"), json_of(&chat->variables, "the variables"), values};
    aerie_status status;
    if (bos.failed || eos.failed) status = ae_fail_memory(error, "a conversation", bos.n + eos.n);
    else if (chat->turns) status = render_turns(&source, chat, &options, &out, error);
    else status = ae_chat_render_json(source.data, source.n, json_of(&chat->messages, "the messages"), &options, &out, error);
    if (status == AERIE_OK) status = ae_session_give_text(&out, text, n, error);
    else ae_buf_free(&out);
    ae_buf_free(&bos);
    ae_buf_free(&eos);
    return status;
}

const char *aerie_chat_template_builtin(const char *name)
{
    if (!name) return NULL;
    return ae_chat_builtin(name);
}

const char *aerie_chat_template_name(size_t i)
{
    return ae_chat_builtin_name(i);
}

aerie_status aerie_model_chat_render(const aerie_model *model, const aerie_chat *chat, char **text, size_t *n,
                                     aerie_error *error)
{
    AE_NEED(text, error);
    *text = NULL;
    AE_NEED(chat, error);
    AE_NEED(n, error);
    *n = 0;
    AE_STRUCT_TAKE(chat, own, chat, error);
    return ae_api_render_chat(model, &own, NULL, text, n, error);
}

static aerie_status tokenize(const aerie_model *model, const char *text, size_t n, const ae_span *plain, size_t n_plain,
                             int32_t **tokens, size_t *n_tokens, aerie_error *error)
{
    const ae_encode_options options = {.add_special = true, .parse_special = true, .plain = plain, .n_plain = n_plain};
    AE_TRY(ae_session_tokenize(model, text, n, options, tokens, n_tokens, error));
    const int32_t bos = ae_vocab_bos(model->vocab);
    if (ae_vocab_adds_bos(model->vocab) && *n_tokens > 1 && (*tokens)[0] == bos && (*tokens)[1] == bos) {
        *n_tokens -= 1;
        memmove(*tokens, *tokens + 1, *n_tokens * sizeof **tokens);
    }
    return AERIE_OK;
}

aerie_status aerie_model_chat_tokens(const aerie_model *model, const aerie_chat *chat, int32_t **tokens, size_t *n_tokens,
                                     char **text, size_t *n, aerie_error *error)
{
    AE_NEED(tokens, error);
    *tokens = NULL;
    AE_NEED(model, error);
    AE_NEED(chat, error);
    AE_NEED(n_tokens, error);
    ae_buf values = {0};
    char *written = NULL;
    size_t n_written = 0;
    *n_tokens = 0;
    if (text) *text = NULL;
    if (n) *n = 0;
    AE_STRUCT_TAKE(chat, own, chat, error);
    aerie_status status = ae_api_render_chat(model, &own, own.special_in_messages ? NULL : &values, &written, &n_written,
                                             error);
    if (status == AERIE_OK)
        status = tokenize(model, written, n_written, (const ae_span *)(const void *)values.data, values.n / sizeof(ae_span),
                          tokens, n_tokens, error);
    ae_buf_free(&values);
    if (status != AERIE_OK || !text) {
        aerie_free(written);
        return status;
    }
    *text = written;
    if (n) *n = n_written;
    return AERIE_OK;
}

aerie_status aerie_model_chat_tokenize(const aerie_model *model, const char *text, size_t n, int32_t **tokens, size_t *n_tokens,
                                       aerie_error *error)
{
    AE_NEED(tokens, error);
    *tokens = NULL;
    AE_NEED(model, error);
    AE_NEED(n_tokens, error);
    AE_NEED_IF(n, text, error);
    return tokenize(model, text, n, NULL, 0, tokens, n_tokens, error);
}
