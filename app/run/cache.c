/* cache.c - implements cache.h. */
#define _XOPEN_SOURCE 700
#include "run/cache.h"
#include "aerie_extra.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int load(app_cache *c, aerie_session *session, const app_text *text)
{
    aerie_error error = {0};
    int32_t *tokens = NULL;
    aerie_status status = aerie_session_prefix_load(session, 0, text->data, text->n, NULL, &error);
    if (status == AERIE_OK) status = aerie_saved_tokens(text->data, text->n, &tokens, &c->n_held, NULL, &error);
    if (status == AERIE_ERROR_MEMORY) return app_report(APP_WORKING, status, &error);
    if (status != AERIE_OK)
        return app_error(APP_BAD_FILE, "prompt cache '%s': %s; remove the file or name another one", c->path, error.text);
    c->held = malloc((c->n_held + 1) * sizeof *c->held);
    if (c->held) memcpy(c->held, tokens, c->n_held * sizeof *tokens);
    aerie_free(tokens);
    return c->held ? APP_DONE : app_error_memory("the prompt cache");
}

int app_cache_check(const app_options *o)
{
    struct stat there;
    if (!o->run.prompt_cache) return APP_DONE;
    if (stat(o->run.prompt_cache, &there) == 0 && !S_ISREG(there.st_mode))
        return app_error(APP_BAD_FILE, "the prompt cache '%s' is not a regular file", o->run.prompt_cache);
    return o->run.prompt_cache_ro ? APP_DONE : app_check_writable("--prompt-cache", o->run.prompt_cache);
}

int app_cache_open(app_cache *c, const app_options *o, aerie_session *session)
{
    struct stat there;
    app_text text = {0};
    *c = (app_cache){.path = o->run.prompt_cache, .loras = &o->loras, .all = o->run.prompt_cache_all,
                     .read_only = o->run.prompt_cache_ro};
    if (!c->path) return APP_DONE;
    if (stat(c->path, &there)) {
        if (errno != ENOENT) return app_error(APP_BAD_FILE, "cannot read the prompt cache '%s': %s", c->path, strerror(errno));
        if (c->read_only && !o->quiet) app_note("there is no prompt cache '%s', and --prompt-cache-ro writes none", c->path);
        return APP_DONE;
    }
    if (!S_ISREG(there.st_mode)) return app_error(APP_BAD_FILE, "the prompt cache '%s' is not a regular file", c->path);
    if (!there.st_size) return APP_DONE; /* an empty file, such as mktemp creates, counts as absent */
    int bad = app_read_data(&text, c->path);
    if (!bad) bad = load(c, session, &text);
    app_text_free(&text);
    return bad;
}

/* Returns the prompt's tokens [*n], with placeholders for the rows of its images, and space for `room` more. The caller frees
 * them.
 * NULL: they could not be made, mostly for lack of memory. */
static int32_t *tokens_of(const aerie_model *model, const app_prompt *prompt, size_t room, size_t *n)
{
    size_t n_chunks = 0;
    const aerie_chunk *chunks = prompt->pictured ? aerie_prompt_chunks(prompt->pictured, &n_chunks) : NULL;
    *n = prompt->pictured ? aerie_prompt_n_positions(prompt->pictured) : prompt->n_tokens;
    int32_t *tokens = malloc((*n + room + 1) * sizeof *tokens);
    if (!tokens) return NULL;
    if (!prompt->pictured) {
        memcpy(tokens, prompt->tokens, *n * sizeof *tokens);
    } else if (aerie_model_chunk_tokens(model, chunks, n_chunks, tokens, NULL) != AERIE_OK) {
        free(tokens);
        tokens = NULL;
    }
    return tokens;
}

int app_cache_note(app_cache *c, const aerie_model *model, const app_prompt *prompt, const app_answer *answer)
{
    if (!c->path || c->read_only || (c->tokens && !c->all)) return APP_DONE;
    const size_t n_answer = c->all && answer->n_ids ? answer->n_ids - 1 : 0; /* the last token has not been run */
    size_t n;
    int32_t *tokens = tokens_of(model, prompt, n_answer, &n);
    if (!tokens) return app_error_memory("the prompt cache");
    if (n_answer) memcpy(tokens + n, answer->ids, n_answer * sizeof *tokens);
    free(c->tokens);
    c->tokens = tokens;
    c->n_tokens = n + n_answer;
    return APP_DONE;
}

int app_cache_save(const app_cache *c, aerie_session *session)
{
    if (!c->tokens) return APP_DONE;
    if (c->n_held >= c->n_tokens && !memcmp(c->held, c->tokens, c->n_tokens * sizeof *c->tokens)) return APP_DONE;
    aerie_error error = {0};
    void *data;
    size_t n;
    const aerie_status status = aerie_session_prefix_save(session, 0, c->loras->uses, c->loras->n, c->tokens, c->n_tokens,
                                                          &data,
                                                          &n, &error);
    if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
    char *real = realpath(c->path, NULL); /* a link stays; the file it points to is replaced */
    const int failed = app_replace_file(real ? real : c->path, data, n);
    free(real);
    aerie_free(data);
    return failed ? app_error(APP_FAILED, "cannot write the prompt cache '%s': %s", c->path, strerror(failed)) : APP_DONE;
}

void app_cache_free(app_cache *c)
{
    free(c->held);
    free(c->tokens);
    *c = (app_cache){0};
}
