/* simple.c - the shortest complete use of libaerie: load, ask, stream the answer, print figures.
 * cc examples/simple.c -Iinclude build/libaerie.a -lpcre2-8 -lutf8proc -lm -lpthread -o simple
 * ./simple model.gguf "Why is the sky blue?"
 */
#include <stdio.h>
#include <string.h>

#include "aerie.h"

static bool on_token(void *user, const aerie_token_event *event)
{
    fwrite(event->text, 1, event->n_text, user);
    return fflush(user) == 0; /* false would end the answer */
}

int main(int argc, char **argv)
{
    aerie_error error = {0};
    aerie_model *model = NULL;
    aerie_session *session = NULL;
    aerie_model_info info;
    aerie_request request = aerie_request_default();
    aerie_stats stats;
    int32_t *tokens = NULL;
    char *text = NULL;
    size_t n_text = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
        return 2;
    }
    const aerie_message messages[] = {{"user", argv[2]}};
    aerie_status status = aerie_model_load(&model, argv[1], NULL, &error);
    if (status != AERIE_OK) goto end;
    aerie_model_info_get(model, &info);
    /* NULL parameters: defaults, which draft by n-gram; the answer is the same with any drafter */
    status = aerie_session_create(&session, model, NULL, &error);
    if (status != AERIE_OK) goto end;
    if (info.has_chat_template) status = aerie_chat_prompt(model, messages, 1, true, &text, &n_text, &error);
    if (status != AERIE_OK) goto end;
    if (text) status = aerie_chat_tokenize(model, text, n_text, &tokens, &request.n_tokens, &error);
    else status = aerie_tokenize(model, argv[2], strlen(argv[2]), true, true, &tokens, &request.n_tokens, &error);
    if (status != AERIE_OK) goto end;
    request.tokens = tokens;
    request.n_predict = 256;
    status = aerie_generate(session, &request, 1, on_token, stdout, &stats, &error);
    if (status != AERIE_OK) goto end;
    fprintf(stderr, "\n%u tokens in %.2f s, %u target passes, %u of %u drafted tokens accepted\n", stats.n_generated,
            stats.decode_seconds, stats.n_passes, stats.n_accepted, stats.n_drafted);
end:
    if (status != AERIE_OK) fprintf(stderr, "%s\n", error.text[0] ? error.text : aerie_status_text(status));
    aerie_free(text);
    aerie_free(tokens);
    aerie_session_free(session);
    aerie_model_free(model);
    return status == AERIE_OK ? 0 : 1;
}
