/* api_chat.c - aerie.h: conversations to prompts. Argument checks and defaults, then text/template/chat.h.
 *
 * A template always sees the model's BOS, and may write it; aerie_chat_tokenize alone sees to it that there is one only.
 */
#include <string.h>

#include "api_int.h"
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

aerie_status aerie_chat_prompt(const aerie_model *model, const aerie_message *messages, size_t n_messages,
                               bool add_generation_prompt, char **text, size_t *n, aerie_error *error)
{
    *text = NULL;
    *n = 0;
    const char *source = ae_vocab_chat_template(model->vocab);
    if (!source) return fail_no_template(error);
    ae_buf bos = {0}, eos = {0}, out = {0};
    add_piece(model, ae_vocab_bos(model->vocab), &bos);
    add_piece(model, ae_vocab_eos(model->vocab), &eos);
    ae_chat_message *copy = ae_alloc(n_messages, sizeof *copy);
    aerie_status status;
    if (!copy || bos.failed || eos.failed) {
        status = ae_fail_memory(error, "a conversation", n_messages * sizeof *copy);
    } else {
        for (size_t i = 0; i < n_messages; i++) copy[i] = (ae_chat_message){messages[i].role, messages[i].content};
        const ae_chat_options options = {bos.data, eos.data, add_generation_prompt, NULL};
        status = ae_chat_render(source, copy, n_messages, &options, &out, error);
    }
    if (status == AERIE_OK) status = ae_api_give_text(&out, text, n, error);
    else ae_buf_free(&out);
    ae_free(copy);
    ae_buf_free(&bos);
    ae_buf_free(&eos);
    return status;
}

static ae_chat_json json_of(const aerie_text *text, const char *name)
{
    return (ae_chat_json){text->data, text->n, text->name ? text->name : name};
}

aerie_status aerie_chat_render(const aerie_model *model, const aerie_chat *chat, char **text, size_t *n, aerie_error *error)
{
    aerie_text source = chat->template_text;
    *text = NULL;
    *n = 0;
    if (!source.data && model) {
        source.data = ae_vocab_chat_template(model->vocab);
        if (!source.data) return fail_no_template(error);
        source.n = strlen(source.data);
    }
    if (!source.data) return ae_fail(error, AERIE_ERROR_ARGUMENT, "a chat needs a template, or a model that has one");
    if (!chat->messages.data) return ae_fail(error, AERIE_ERROR_ARGUMENT, "a chat needs messages");
    ae_buf bos = {0}, eos = {0}, out = {0};
    if (chat->bos) ae_buf_adds(&bos, chat->bos);
    else if (model) add_piece(model, ae_vocab_bos(model->vocab), &bos);
    if (chat->eos) ae_buf_adds(&eos, chat->eos);
    else if (model) add_piece(model, ae_vocab_eos(model->vocab), &eos);
    const ae_chat_options options = {bos.data, eos.data, !chat->no_generation_prompt,
                                     source.name ? source.name : "the chat template"};
    aerie_status status = bos.failed || eos.failed
                              ? ae_fail_memory(error, "a conversation", bos.n + eos.n)
                              : ae_chat_render_json(source.data, source.n, json_of(&chat->messages, "the messages"),
                                                    json_of(&chat->tools, "the tools"),
                                                    json_of(&chat->variables, "the variables"), &options, &out, error);
    if (status == AERIE_OK) status = ae_api_give_text(&out, text, n, error);
    else ae_buf_free(&out);
    ae_buf_free(&bos);
    ae_buf_free(&eos);
    return status;
}

aerie_status aerie_chat_tokenize(const aerie_model *model, const char *text, size_t n, int32_t **tokens, size_t *n_tokens,
                                 aerie_error *error)
{
    AE_TRY(aerie_tokenize(model, text, n, true, true, tokens, n_tokens, error));
    const int32_t bos = ae_vocab_bos(model->vocab);
    if (ae_vocab_adds_bos(model->vocab) && *n_tokens > 1 && (*tokens)[0] == bos && (*tokens)[1] == bos) {
        *n_tokens -= 1;
        memmove(*tokens, *tokens + 1, *n_tokens * sizeof **tokens);
    }
    return AERIE_OK;
}
