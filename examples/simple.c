/* simple.c - the shortest complete use of libaerie: load a model, ask, stream the answer, print figures.
 *
 * In the source tree, after make:
 *     cc examples/simple.c -Iinclude build/libaerie.a -lpcre2-8 -lutf8proc -ljansson -lm -pthread -o simple
 * With the library installed (make install), by pkg-config, or by CMake as in examples/CMakeLists.txt:
 *     cc examples/simple.c $(pkg-config --cflags --libs aerie) -o simple
 *
 *     ./simple model.gguf "Why is the sky blue?"
 */
#include <stdio.h>
#include <string.h>

#include "aerie.h"
#include "aerie_extra.h"

static bool on_token(void *user, const aerie_token_event *event)
{
    fwrite(event->text, 1, event->n_text, user);
    return fflush(user) == 0; /* false would end the answer */
}

/* The drafter head that lies beside the model, if there is one that fits. Not needed for an answer, which is the same with
 * and without; so what is wrong with it is told and otherwise ignored. */
static aerie_drafter_head *head_beside(const aerie_model *model, const char *model_path)
{
    aerie_error error = {0};
    aerie_drafter_head *head = NULL;
    char *path = NULL;
    aerie_status status = aerie_drafter_head_find(&path, model_path, AERIE_SPEC_AUTO, &error);
    if (status == AERIE_OK && path) status = aerie_drafter_head_load(&head, model, path, NULL, &error);
    if (status != AERIE_OK) fprintf(stderr, "no drafter head: %s\n", error.text);
    aerie_free(path);
    return head;
}

static aerie_status prompt_tokens(const aerie_model *model, const char *prompt, int32_t **tokens, size_t *n, aerie_error *error)
{
    const aerie_message message = {"user", prompt};
    aerie_chat chat = aerie_chat_default();
    aerie_model_info info;
    aerie_model_info_get(model, &info, sizeof info);
    if (!info.has_chat_template) return aerie_model_tokenize(model, prompt, strlen(prompt), true, true, tokens, n, error);
    chat.turns = &message, chat.n_turns = 1;
    return aerie_model_chat_tokens(model, &chat, tokens, n, NULL, NULL, error);
}

int main(int argc, char **argv)
{
    aerie_error error = {0};
    aerie_model *model = NULL;
    aerie_drafter_head *head = NULL;
    aerie_session *session = NULL;
    aerie_session_params params = aerie_session_params_default();
    aerie_request request = aerie_request_default();
    aerie_stats stats;
    int32_t *tokens = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
        return 2;
    }
    aerie_status status = aerie_model_load(&model, argv[1], NULL, &error);
    if (status != AERIE_OK) goto end;
    head = head_beside(model, argv[1]);
    params.spec.head = head; /* NULL: it drafts by n-grams alone */
    status = aerie_session_create(&session, model, &params, &error);
    if (status != AERIE_OK) goto end;
    status = prompt_tokens(model, argv[2], &tokens, &request.n_tokens, &error);
    if (status != AERIE_OK) goto end;
    request.tokens = tokens;
    request.n_predict = 256;
    status = aerie_session_generate(session, &request, 1, on_token, stdout, &stats, sizeof(aerie_stats), &error);
    if (status != AERIE_OK) goto end;
    fprintf(stderr, "\n%u tokens in %.2f s, %u target passes, %u of %u drafted tokens accepted\n", stats.n_generated,
            stats.decode_seconds, stats.n_passes, stats.n_accepted, stats.n_drafted);
end:
    if (status != AERIE_OK) fprintf(stderr, "%s\n", error.text[0] ? error.text : aerie_status_text(status));
    aerie_free(tokens);
    aerie_session_free(session);
    aerie_drafter_head_free(head);
    aerie_model_free(model);
    return status == AERIE_OK ? 0 : 1;
}
