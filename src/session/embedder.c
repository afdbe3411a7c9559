/* embedder.c - aerie_extra.h: vectors of texts. */
#include <math.h>
#include <string.h>

#include "session/session_int.h"
#include "aerie_extra.h"
#include "base/math/fmath.h"
#include "base/mem.h"
#include "base/os.h"
#include "engine/embed.h"
#include "session/media.h"

struct aerie_embedder {
    const aerie_model *model;
    ae_embedder *embedder;
    ae_embed_options options; /* resolved */
};

#define MAX_P 64         /* largest p of a p-norm */
#define DECODER_CTX 4096 /* context of a model that is not an encoder, unless the caller asks for another */

static const char *const names[] = {
    [AERIE_POOLING_AUTO] = "auto", [AERIE_POOLING_MEAN] = "mean", [AERIE_POOLING_CLS] = "cls",
    [AERIE_POOLING_LAST] = "last", [AERIE_POOLING_RANK] = "rank",
};
#define N_NAMES (sizeof names / sizeof *names)

_Static_assert((int)AERIE_POOLING_MEAN == (int)AE_POOLING_MEAN && (int)AERIE_POOLING_RANK == (int)AE_POOLING_RANK,
               "one numbering");

const char *aerie_pooling_name(aerie_pooling pooling)
{
    return (size_t)pooling < N_NAMES ? names[pooling] : NULL;
}

bool aerie_pooling_parse(const char *name, aerie_pooling *pooling)
{
    if (!name || !pooling) return false;
    for (size_t i = 0; i < N_NAMES; i++) {
        if (strcmp(names[i], name)) continue;
        *pooling = (aerie_pooling)i;
        return true;
    }
    return false;
}

aerie_pooling ae_session_pooling(const ae_model *model)
{
    const ae_pooling file = model->hparams.pooling;
    if (file != AE_POOLING_NONE && (file != AE_POOLING_RANK || model->cls_out)) return (aerie_pooling)file;
    return model->hparams.encoder ? AERIE_POOLING_MEAN : AERIE_POOLING_LAST;
}

/* ---- Embedders --------------------------------------------------------------------------------------- */

static aerie_status resolve_sizes(const ae_model *m, const aerie_embedder_params *p, ae_embed_options *o, aerie_error *error)
{
    const ae_hparams *h = &m->hparams;
    const uint32_t trained = h->n_ctx_train ? h->n_ctx_train : h->n_positions ? h->n_positions : 512;
    const uint32_t limit = h->n_positions ? h->n_positions : AE_SESSION_MAX_CTX;
    o->n_ctx = p->n_ctx ? p->n_ctx : trained < limit ? trained : limit;
    if (!p->n_ctx && !h->encoder && o->n_ctx > DECODER_CTX) o->n_ctx = DECODER_CTX;
    if (o->n_ctx > limit)
        return ae_fail(error, AERIE_ERROR_ARGUMENT,
                       "texts of %u tokens: this model knows %u positions; a context (-c) up to that "
                       "would work",
                       o->n_ctx, limit);
    if (p->n_batch > AE_SESSION_MAX_CTX)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "passes of %u tokens; at most %u are possible", p->n_batch,
                       AE_SESSION_MAX_CTX);
    o->n_batch = p->n_batch ? p->n_batch : 512;
    if ((h->encoder || h->denoises) && o->n_batch < o->n_ctx) o->n_batch = o->n_ctx; /* a text is one pass */
    o->n_seqs = h->encoder ? 64 : h->recur.kind ? 1 : 16;
    if (o->n_seqs > o->n_batch) o->n_seqs = o->n_batch;
    return AERIE_OK;
}

static aerie_status resolve(const ae_model *m, const aerie_embedder_params *p, ae_embed_options *o, aerie_error *error)
{
    const aerie_pooling pooling = p->pooling == AERIE_POOLING_AUTO ? ae_session_pooling(m) : p->pooling;
    if (!aerie_pooling_name(p->pooling)) return ae_fail(error, AERIE_ERROR_ARGUMENT, "pooling %d is unknown", (int)p->pooling);
    if (pooling == AERIE_POOLING_RANK && !m->cls_out)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "pooling 'rank' needs a model with a classification head "
                       "(cls.output.weight), such as a BERT reranker; mean, cls and last work with any model");
    if (p->normalize < -1 || p->normalize > MAX_P)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "normalize is %d; -1 to %d are possible", (int)p->normalize, MAX_P);
    *o = (ae_embed_options){.n_threads = p->n_threads ? p->n_threads : (uint32_t)ae_os_n_cores(),
                            .pooling = (ae_pooling)pooling,
                            .normalize = p->normalize};
    return resolve_sizes(m, p, o, error);
}

uint64_t ae_session_embedder_bytes(const ae_model *model, const ae_backend *backend)
{
    const aerie_embedder_params p = aerie_embedder_params_default();
    ae_embed_options o;
    return resolve(model, &p, &o, NULL) == AERIE_OK ? ae_embedder_plan_bytes(model, backend, &o) : 0;
}

aerie_status aerie_embedder_create(aerie_embedder **embedder, const aerie_model *model, const aerie_embedder_params *params,
                                   aerie_error *error)
{
    AE_NEED(embedder, error);
    *embedder = NULL;
    AE_NEED(model, error);
    AE_STRUCT_TAKE(embedder_params, p, params, error);
    if (!model || !model->net) return ae_fail(error, AERIE_ERROR_ARGUMENT, "an embedder needs a model loaded with its weights");
    AE_TRY(ae_session_check_alone(model, "embeddings", error));
    aerie_embedder *e = ae_alloc(1, sizeof *e);
    if (!e) return ae_fail_memory(error, "an embedder", sizeof *e);
    e->model = model;
    /* in a model with an encoder and a decoder, the encoder embeds */
    const ae_model *own = model->source ? model->source : model->model;
    const ae_net *net = model->source ? model->source_net : model->net;
    aerie_status status = resolve(own, &p, &e->options, error);
    if (status == AERIE_OK)
        status = ae_session_check_memory(model->backend, "an embedder of this context size",
                                     ae_embedder_plan_bytes(own, net->backend, &e->options),
                                     "a smaller context (-c) would fit", error);
    if (status == AERIE_OK) status = ae_embedder_create(&e->embedder, net, &e->options, error);
    if (status == AERIE_OK) *embedder = e;
    else aerie_embedder_free(e);
    return status;
}

void aerie_embedder_free(aerie_embedder *embedder)
{
    if (!embedder) return;
    ae_embedder_free(embedder->embedder);
    ae_free(embedder);
}

uint32_t aerie_embedder_n_out(const aerie_embedder *embedder)
{
    if (!embedder) return 0;
    return ae_embedder_n_out(embedder->embedder);
}

uint32_t aerie_embedder_n_ctx(const aerie_embedder *embedder)
{
    if (!embedder) return 0;
    return embedder->options.n_ctx;
}

aerie_pooling aerie_embedder_pooling(const aerie_embedder *embedder)
{
    if (!embedder) return AERIE_POOLING_AUTO;
    return (aerie_pooling)embedder->options.pooling;
}

/* ---- Texts ------------------------------------------------------------------------------------------- */

static aerie_status check_text(const aerie_embedder *e, const aerie_embed_text *t, size_t i, aerie_error *error)
{
    const int32_t n_vocab = ae_vocab_n_tokens(e->model->vocab);
    AE_TRY(ae_struct_check_reserved(t->reserved, sizeof t->reserved / sizeof *t->reserved, "aerie_embed_text", error));
    if (!t->n_tokens) return ae_fail(error, AERIE_ERROR_ARGUMENT, "text %zu has no tokens", i + 1);
    if (!t->tokens) return ae_fail(error, AERIE_ERROR_ARGUMENT, "the tokens of text %zu are NULL", i + 1);
    if (t->n_tokens > e->options.n_ctx)
        return ae_fail(error, AERIE_ERROR_LIMIT,
                       "text %zu has %zu tokens; at most %u are possible with this model and context (-c)", i + 1, t->n_tokens,
                       e->options.n_ctx);
    if (t->n_first > t->n_tokens)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "text %zu has %zu tokens, of which %zu belong to its first part", i + 1,
                       t->n_tokens, t->n_first);
    for (size_t k = 0; k < t->n_tokens; k++)
        if (t->tokens[k] < 0 || t->tokens[k] >= n_vocab)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "token %zu of text %zu is %d; 0 to %d are possible", k + 1, i + 1,
                           t->tokens[k], n_vocab - 1);
    return AERIE_OK;
}

aerie_status aerie_embedder_embed(aerie_embedder *embedder, const aerie_embed_text *texts, size_t n, float *vectors,
                                  aerie_error *error)
{
    AE_NEED(embedder, error);
    AE_NEED_IF(n, texts, error);
    AE_NEED_IF(n, vectors, error);
    AE_TRY(ae_session_check_fork(ae_embedder_pool(embedder->embedder), "embedder", error));
    enum { PART = 64 };
    ae_embed_text part[PART];
    const size_t n_out = ae_embedder_n_out(embedder->embedder);
    for (size_t i = 0; i < n; i++) AE_TRY(check_text(embedder, &texts[i], i, error));
    for (size_t i = 0, m = 0; i < n; i += m) {
        m = n - i < PART ? n - i : PART;
        for (size_t k = 0; k < m; k++) {
            const aerie_embed_text *t = &texts[i + k];
            part[k] = (ae_embed_text){.tokens = t->tokens, .n = (uint32_t)t->n_tokens,
                                      .n_first = (uint32_t)(t->n_first ? t->n_first : t->n_tokens)};
        }
        AE_TRY(ae_embedder_run(embedder->embedder, part, m, vectors + i * n_out, error));
    }
    return AERIE_OK;
}

_Static_assert((int)AERIE_SPAN_OPTION == (int)AE_SPAN_OPTION && (int)AERIE_DECISION_MARKS == (int)AE_DECISION_MARKS,
               "one numbering");

/* Copies the chunks of a text, whose tokens are checked. The caller frees *text. */
static aerie_status take_chunks(const aerie_embedder *e, const aerie_chunk *chunks, size_t n_chunks, ae_media_prompt *text,
                                aerie_error *error)
{
    const ae_model *m = e->model->model;
    const uint32_t n_ctx = e->options.n_ctx;
    size_t n = 0;
    for (size_t i = 0; i < n_chunks; i++) {
        const size_t own = chunks[i].n_tokens ? chunks[i].n_tokens : chunks[i].n_rows; /* that it has one is checked below */
        n = own > SIZE_MAX - n ? SIZE_MAX : n + own;
    }
    if (!n) return ae_fail(error, AERIE_ERROR_ARGUMENT, "the text has no tokens");
    if (n > n_ctx)
        return ae_fail(error, AERIE_ERROR_LIMIT, "the text has %zu tokens and rows of images; at most %u are possible with "
                       "this model and context (-c)", n, n_ctx);
    ae_media_table *table = ae_media_table_create(); /* ids need not outlive the text */
    if (!table) return ae_fail_memory(error, "the images of a text", 0);
    aerie_status status = ae_media_prompt_make(text, table, chunks, n_chunks, &m->hparams, n_ctx + 1, error);
    ae_media_table_free(table);
    for (size_t i = 0; status == AERIE_OK && i < text->n_tokens; i++)
        if (text->tokens[i] >= (int32_t)m->hparams.n_vocab)
            status = ae_fail(error, AERIE_ERROR_ARGUMENT, "token %zu of the text is %d; 0 to %u are possible", i + 1,
                             text->tokens[i], m->hparams.n_vocab - 1);
    return status;
}

static ae_embed_text text_of(const ae_media_prompt *p)
{
    const uint32_t n = (uint32_t)p->n_tokens;
    return (ae_embed_text){.tokens = p->tokens, .n = n, .n_first = n, .media = p->media, .n_media = p->n_media};
}

static aerie_status decide(aerie_embedder *e, const ae_media_prompt *prompt, const uint8_t *spans, float *scores,
                           size_t n_scores, aerie_error *error)
{
    const ae_model *m = e->model->model;
    const ae_embed_text text = text_of(prompt);
    uint32_t n_options;
    if (text.n_media && m->hparams.encoder)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the model decides about text, not about images");
    for (uint32_t i = 0; i < text.n; i++)
        if (text.tokens[i] < 0 && spans[i] != AE_SPAN_NONE)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "the span of position %u is %d, but it is a row of an image, which "
                           "belongs to no question and no option", i, spans[i]);
    AE_TRY(ae_decider_count(m, spans, text.n, &n_options, error));
    if (n_options != n_scores)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the text has %u options, but %zu scores are wanted", n_options, n_scores);
    return ae_embedder_decide(e->embedder, &text, spans, scores, error);
}

aerie_status aerie_embedder_decide(aerie_embedder *embedder, const aerie_chunk *chunks, size_t n_chunks, const uint8_t *spans,
                                   float *scores, size_t n_scores, aerie_error *error)
{
    AE_NEED(embedder, error);
    AE_NEED_IF(n_chunks, chunks, error);
    AE_NEED_IF(n_chunks, spans, error);
    AE_NEED_IF(n_scores, scores, error);
    AE_TRY(ae_session_check_fork(ae_embedder_pool(embedder->embedder), "embedder", error));
    const ae_model *m = embedder->model->model;
    ae_media_prompt text = {0};
    if (!m->decision)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the model has no decision head");
    aerie_status status = take_chunks(embedder, chunks, n_chunks, &text, error);
    if (status == AERIE_OK) status = decide(embedder, &text, spans, scores, n_scores, error);
    ae_media_prompt_free(&text);
    return status;
}

aerie_status aerie_embedder_logits(aerie_embedder *embedder, const aerie_chunk *chunks, size_t n_chunks, const int32_t *tokens,
                                   size_t n, float *logits, aerie_error *error)
{
    AE_NEED(embedder, error);
    AE_NEED_IF(n_chunks, chunks, error);
    AE_NEED_IF(n, tokens, error);
    AE_NEED_IF(n, logits, error);
    AE_TRY(ae_session_check_fork(ae_embedder_pool(embedder->embedder), "embedder", error));
    const ae_model *m = embedder->model->model;
    ae_media_prompt prompt = {0};
    AE_TRY(ae_session_check_decoder(m, error));
    if (m->hparams.denoises || m->hparams.crosses)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "architecture %s does not continue a text token by token",
                       m->hparams.arch);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= (int32_t)m->hparams.n_vocab)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "token %zu is %d; 0 to %u are possible", i, tokens[i],
                           m->hparams.n_vocab - 1);
    aerie_status status = take_chunks(embedder, chunks, n_chunks, &prompt, error);
    const ae_embed_text text = text_of(&prompt);
    if (status == AERIE_OK) status = ae_embedder_logits(embedder->embedder, &text, tokens, n, logits, error);
    ae_media_prompt_free(&prompt);
    return status;
}

aerie_status aerie_decision_probabilities(const float *scores, size_t n, float temperature, double *probabilities,
                                          aerie_error *error)
{
    double most = -HUGE_VAL, all = 0;
    AE_NEED(scores, error);
    AE_NEED(probabilities, error);
    if (!n) return ae_fail(error, AERIE_ERROR_ARGUMENT, "there are no scores");
    if (!(temperature > 0.0f) || isinf(temperature))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the temperature is %g; it must be above 0", (double)temperature);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(scores[i]))
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "score %zu is %g; numbers are needed", i, (double)scores[i]);
        most = (double)scores[i] > most ? (double)scores[i] : most;
    }
    for (size_t i = 0; i < n; i++) all += probabilities[i] = ae_exp(((double)scores[i] - most) / (double)temperature);
    for (size_t i = 0; i < n; i++) probabilities[i] /= all;
    return AERIE_OK;
}

aerie_status aerie_model_rerank_tokens(const aerie_model *model, const char *query, size_t n_query, const char *document,
                                       size_t n_document, int32_t **tokens, size_t *n_tokens, size_t *n_first,
                                       aerie_error *error)
{
    AE_NEED(tokens, error);
    *tokens = NULL;
    AE_NEED(model, error);
    AE_NEED(n_tokens, error);
    AE_NEED(n_first, error);
    AE_NEED_IF(n_query, query, error);
    AE_NEED_IF(n_document, document, error);
    const ae_vocab *vocab = model->vocab;
    const int32_t eos = ae_vocab_adds_eos(vocab) ? ae_vocab_eos(vocab) : -1;
    /* RoBERTa's and XLM-R's pairs have two of them in the middle */
    const bool twice = strcmp(model->model->hparams.arch, "bert") == 0 && strncmp(ae_vocab_kind(vocab), "wordpiece", 9);
    ae_tokens list = {0};
    bool ok = true;
    *n_tokens = *n_first = 0;
    if (ae_vocab_adds_bos(vocab)) ok = ae_tokens_add(&list, ae_vocab_bos(vocab));
    aerie_status status = ok ? ae_vocab_encode(vocab, query, n_query, (ae_encode_options){0}, &list, error) : AERIE_OK;
    for (int i = 0; i < (twice ? 2 : 1) && status == AERIE_OK && ok && eos >= 0; i++) ok = ae_tokens_add(&list, eos);
    *n_first = list.n;
    if (status == AERIE_OK && ok) status = ae_vocab_encode(vocab, document, n_document, (ae_encode_options){0}, &list, error);
    if (status == AERIE_OK && ok && eos >= 0) ok = ae_tokens_add(&list, eos);
    if (status == AERIE_OK && !ok) status = ae_fail_memory(error, "the tokens of a pair", list.n * sizeof *list.data);
    if (status != AERIE_OK) {
        ae_tokens_free(&list);
        *n_first = 0;
        return status;
    }
    *tokens = list.data;
    *n_tokens = list.n;
    return AERIE_OK;
}
