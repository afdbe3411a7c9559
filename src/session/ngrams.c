/* ngrams.c - aerie_extra.h: what n-grams draft from beside a sequence's own text: texts of ended requests as bytes, and the
 * text that a request expects.
 *
 * Owns: the meaning of the sections. The texts are the drafter's (draft/corpus.h), the container is formats/sections.h. The
 * bytes are hostile: all lengths and tokens are checked.
 *
 *     VOCAB  u64 hash of the pieces of all tokens
 *     TEXTS  as ae_corpus_write has them
 */
#include <string.h>

#include "session/session_int.h"
#include "aerie_extra.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"
#include "draft/corpus.h"
#include "formats/sections.h"

enum { VOCAB = 64, TEXTS };

/* Texts are tokens, so they suit every model with the same tokens. */
static uint64_t hash_of(const ae_vocab *vocab)
{
    const int32_t n_vocab = ae_vocab_n_tokens(vocab);
    uint64_t hash = ae_hash64(0, &n_vocab, sizeof n_vocab);
    for (int32_t i = 0; i < n_vocab; i++) {
        uint32_t n;
        const char *piece = ae_vocab_piece_view(vocab, i, true, &n);
        hash = ae_hash64(hash + n, piece, n);
    }
    return hash;
}

aerie_status ae_session_check_expected(const aerie_session *session, const aerie_request *r, aerie_error *error)
{
    const int32_t n_vocab = ae_vocab_n_tokens(session->model->vocab);
    AE_NEED_IF(r->n_expected, r->expected, error);
    for (size_t i = 0; i < r->n_expected; i++)
        if (r->expected[i] < 0 || r->expected[i] >= n_vocab)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "expected token %zu is %d; the vocabulary has %d tokens", i,
                           r->expected[i], n_vocab);
    return AERIE_OK;
}

#define BEFORE_EXPECTED 32 /* tokens of the prompt by which n-grams find what is expected after it */

void ae_session_expect(aerie_session *s, const aerie_request *r, const int32_t *prompt, size_t n_prompt)
{
    ae_drafter *d = ae_spec_drafter(s->spec);
    ae_corpus *corpus = d && d->ops->corpus ? d->ops->corpus(d) : NULL;
    const size_t before = n_prompt < BEFORE_EXPECTED ? n_prompt : BEFORE_EXPECTED;
    const size_t n = r->n_expected < s->params.n_ctx ? r->n_expected : s->params.n_ctx;
    int32_t *text = corpus ? ae_alloc(before + n, sizeof *text) : NULL;
    if (!text) return; /* no text is expected, or memory is short: then nothing is drafted from it */
    memcpy(text, prompt + n_prompt - before, before * sizeof *text);
    memcpy(text + before, r->expected, n * sizeof *text);
    ae_corpus_add(corpus, r->scope, text, before + n);
    ae_free(text);
}

static aerie_status find_corpus(aerie_session *s, ae_corpus **corpus, aerie_error *error)
{
    ae_drafter *d = ae_spec_drafter(s->spec);
    *corpus = d && d->ops->corpus ? d->ops->corpus(d) : NULL;
    if (*corpus) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "n-grams do not draft in this session, or have no memory of earlier "
                   "requests (--spec-type, --spec-ngram, --spec-ngram-memory)");
}

static aerie_status check_ngrams(const aerie_session *s, aerie_error *error)
{
    AE_TRY(ae_session_check_process(s, error));
    if (!s->in_step) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_ARGUMENT, "a callback may not save or load what n-grams remember: the pass has not "
                   "ended");
}

aerie_status aerie_session_ngrams_save(aerie_session *session, void **data, size_t *n, aerie_error *error)
{
    ae_corpus *corpus;
    AE_NEED(data, error);
    *data = NULL;
    AE_NEED(session, error);
    AE_NEED(n, error);
    *n = 0;
    AE_TRY(check_ngrams(session, error));
    AE_TRY(find_corpus(session, &corpus, error));
    ae_corpus_finish(corpus);
    const uint64_t hash = hash_of(session->model->vocab);
    ae_section list[] = {{.type = VOCAB, .data = (const uint8_t *)&hash, .n = sizeof hash},
                         {.type = TEXTS, .n = ae_corpus_bytes(corpus)}};
    AE_TRY(ae_sections_create(data, n, list, 2, error));
    ae_corpus_write(corpus, (uint8_t *)list[1].data);
    ae_sections_seal(*data, *n);
    return AERIE_OK;
}

aerie_status aerie_session_ngrams_load(aerie_session *session, const void *data, size_t n, size_t *n_tokens, aerie_error *error)
{
    ae_corpus *corpus;
    ae_sections sections;
    uint64_t hash;
    size_t n_held;
    static const uint32_t known[] = {VOCAB, TEXTS};
    if (n_tokens) *n_tokens = 0;
    AE_NEED(session, error);
    AE_NEED_IF(n, data, error);
    AE_TRY(check_ngrams(session, error));
    AE_TRY(find_corpus(session, &corpus, error));
    AE_TRY(ae_sections_open(&sections, data, n, error));
    AE_TRY(ae_sections_check_known(&sections, known, 2, error));
    const ae_section *vocab = ae_sections_find(&sections, VOCAB), *texts = ae_sections_find(&sections, TEXTS);
    if (!vocab || vocab->n != sizeof hash || !texts)
        return ae_fail(error, AERIE_ERROR_FORMAT, "these bytes hold no text that n-grams remember");
    memcpy(&hash, vocab->data, sizeof hash);
    if (hash != hash_of(session->model->vocab))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the text was saved for a model with other tokens");
    if (!ae_corpus_read(corpus, texts->data, (size_t)texts->n, ae_vocab_n_tokens(session->model->vocab), &n_held))
        return ae_fail(error, AERIE_ERROR_FORMAT, "the text that n-grams remember is damaged: a length or a token is out of "
                       "range");
    if (n_tokens) *n_tokens = n_held;
    return AERIE_OK;
}
