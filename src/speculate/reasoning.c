/* reasoning.c - follows an answer's text into its reasoning and out of it, and counts tokens (reasoning.h).
 *
 * A text that opens or closes reasoning may begin and end inside of tokens, so bytes are compared: the last bytes of the text
 * are kept. A token counts if the text is inside of reasoning before it.
 */
#include "speculate/reasoning.h"

#include <string.h>

#include "base/mem.h"

typedef struct tag {
    char text[AE_REASONING_TAG];
    size_t n;
} tag;

struct ae_reasoning {
    const ae_vocab *vocab;
    tag open, close;
    ae_tokens end;      /* the tokens that end the reasoning when the limit is reached */
    uint32_t n_most, n; /* tokens of reasoning: the limit, and those so far */
    uint32_t n_written; /* tokens of `end` that were written; end.n: all, or the reasoning goes on without them */
    uint32_t n_missing; /* bytes that complete the text's last UTF-8 character */
    bool inside;
    char last[AE_REASONING_TAG]; /* [n_last] the text's last bytes */
    size_t n_last;
};

static const char *end_of(const aerie_reasoning *limit)
{
    return limit->end ? limit->end : limit->close;
}

aerie_status ae_reasoning_check(const aerie_reasoning *limit, aerie_error *error)
{
    const char *const texts[] = {limit->open, limit->close};
    for (size_t i = 0; i < 2; i++)
        if (!texts[i] || !*texts[i] || strlen(texts[i]) > AE_REASONING_TAG)
            return ae_fail(error, AERIE_ERROR_ARGUMENT,
                           "a limit of reasoning needs the texts that open and close it, of 1 to %d bytes", AE_REASONING_TAG);
    if (!strstr(end_of(limit), limit->close))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the text that ends reasoning, '%.60s', lacks '%.60s', which closes it",
                       end_of(limit), limit->close);
    return AERIE_OK;
}

static const char *copy_text(const char *text, ae_arena *arena, bool *ok)
{
    const char *copy = text ? ae_arena_strndup(arena, text, strlen(text)) : NULL;
    *ok = *ok && (copy || !text);
    return copy;
}

const aerie_reasoning *ae_reasoning_copy(const aerie_reasoning *limit, ae_arena *arena, bool *ok)
{
    aerie_reasoning *copy = ae_arena_alloc(arena, 1, sizeof *copy);
    *ok = *ok && copy;
    if (!copy) return NULL;
    *copy = *limit;
    copy->open = copy_text(limit->open, arena, ok);
    copy->close = copy_text(limit->close, arena, ok);
    copy->end = copy_text(limit->end, arena, ok);
    return copy;
}

static tag tag_of(const char *text)
{
    tag t = {.n = strlen(text)};
    memcpy(t.text, text, t.n);
    return t;
}

aerie_status ae_reasoning_create(ae_reasoning **out, const ae_vocab *vocab, const aerie_reasoning *limit, aerie_error *error)
{
    *out = NULL;
    AE_TRY(ae_reasoning_check(limit, error));
    ae_reasoning *r = ae_alloc(1, sizeof *r);
    if (!r) return ae_fail_memory(error, "a limit of reasoning", sizeof *r);
    *r = (ae_reasoning){.vocab = vocab, .open = tag_of(limit->open), .close = tag_of(limit->close), .n_most = limit->n_most,
                        .inside = limit->opened};
    const ae_encode_options options = {.parse_special = true, .inside = true};
    const aerie_status status = ae_vocab_encode(vocab, end_of(limit), strlen(end_of(limit)), options, &r->end, error);
    if (status == AERIE_OK) *out = r;
    else ae_reasoning_free(r);
    return status;
}

void ae_reasoning_free(ae_reasoning *reasoning)
{
    if (!reasoning) return;
    ae_tokens_free(&reasoning->end);
    ae_free(reasoning);
}

int32_t ae_reasoning_forced(const ae_reasoning *r, uint32_t i)
{
    if (!r->n_written && (!r->inside || r->n < r->n_most || r->n_missing)) return -1;
    return i < r->end.n - r->n_written ? r->end.data[r->n_written + i] : -1;
}

static bool ends_with(const ae_reasoning *r, const tag *t)
{
    return r->n_last >= t->n && !memcmp(r->last + r->n_last - t->n, t->text, t->n);
}

static void add_byte(ae_reasoning *r, char byte)
{
    const uint8_t c = (uint8_t)byte;
    if (r->n_last == sizeof r->last) memmove(r->last, r->last + 1, --r->n_last);
    r->last[r->n_last++] = byte;
    if (c >= 0xC0) r->n_missing = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
    else r->n_missing = c >= 0x80 && r->n_missing ? r->n_missing - 1 : 0;
    if (!ends_with(r, r->inside ? &r->close : &r->open)) return;
    r->inside = !r->inside;
    r->n_last = 0; /* bytes of one tag are not part of the next */
}

void ae_reasoning_advance(ae_reasoning *r, int32_t token)
{
    uint32_t n = 0;
    const bool forced = ae_reasoning_forced(r, 0) >= 0;
    if (forced) r->n_written = token == r->end.data[r->n_written] ? r->n_written + 1 : (uint32_t)r->end.n;
    else r->n += r->inside;
    const char *piece = ae_vocab_piece_view(r->vocab, token, true, &n);
    for (uint32_t i = 0; i < n; i++) add_byte(r, piece[i]);
    if (r->n_written == r->end.n && !r->inside) r->n_written = 0; /* reasoning that is opened again ends at once */
}
