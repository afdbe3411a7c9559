/* embed.h - texts in, one vector each out: rows of an engine, pooled.
 *
 * Owns: an engine with as many sequences as a pass may have texts, and the classification head. Borrows the network. One user
 * thread at a time. The texts of a pass are sequences side by side, without padding; nothing is kept of them after the pass.
 * Law: the vector of a text depends on the weights and on the text, and on nothing else: rows are the engine's (engine.h), and
 * pooling is plain double arithmetic in order of position.
 */
#ifndef AE_ENGINE_EMBED_H
#define AE_ENGINE_EMBED_H

#include "engine/decide.h"
#include "engine/engine.h"

typedef struct ae_embedder ae_embedder;

typedef struct ae_embed_options {
    uint32_t n_ctx;     /* longest text, in tokens; an encoder's is limited to its number of positions */
    uint32_t n_batch;   /* rows of a pass; at least n_ctx for encoders */
    uint32_t n_seqs;    /* most texts of a pass */
    uint32_t n_threads;
    ae_pool *pool;      /* as in ae_engine_options */
    ae_pooling pooling; /* not NONE; RANK only with a classification head */
    int32_t normalize;  /* -1: none; 0: scaled to a largest magnitude of 32760; p: scaled to a p-norm of 1 */
} ae_embed_options;

typedef struct ae_embed_text {
    const int32_t *tokens; /* [n] 1 to n_ctx ids of the vocabulary, checked by the caller */
    uint32_t n, n_first;   /* tokens from n_first on belong to a second text (ae_engine_add_text) */
    const ae_media *media; /* [n_media] positions that are not tokens, whose ids are negative; lent until the call ends */
    uint32_t n_media;
} ae_embed_text;

size_t ae_embedder_plan_bytes(const ae_model *model, const ae_backend *backend, const ae_embed_options *options);
aerie_status ae_embedder_create(ae_embedder **out, const ae_net *net, const ae_embed_options *options, aerie_error *error);
void ae_embedder_free(ae_embedder *embedder);

/* Returns the length of a vector: n_embd, or 1 with RANK. */
uint32_t ae_embedder_n_out(const ae_embedder *embedder);
/* Returns the threads that the embedder computes on. */
ae_pool *ae_embedder_pool(const ae_embedder *embedder);
/* Computes the rows of one text, as they are pooled, into rows (host) [text->n][n_embd]. Errors: those of the backend. */
aerie_status ae_embedder_rows(ae_embedder *embedder, const ae_embed_text *text, float *rows, aerie_error *error);
/* Computes the vectors of texts [n]: out [n][n_out]. After an error, one of the backend's, out has no meaning, but the embedder
 * stays usable. */
aerie_status ae_embedder_run(ae_embedder *embedder, const ae_embed_text *texts, size_t n, float *out, aerie_error *error);

/* Computes the logits of tokens[n] after one text. Not for encoders. Errors: those of the backend. */
aerie_status ae_embedder_logits(ae_embedder *embedder, const ae_embed_text *text, const int32_t *tokens, size_t n,
                                float *logits, aerie_error *error);

/* Scores the options of one text with spans [text->n] (decide.h); the model has a decision head. After an error, one of the
 * backend's or of ae_decider_run, the embedder stays usable. */
aerie_status ae_embedder_decide(ae_embedder *embedder, const ae_embed_text *text, const uint8_t *spans, float *scores,
                                aerie_error *error);

#endif
