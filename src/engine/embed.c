/* embed.c - the life of an embedder, passes over many texts, and pooling in double precision in order of position (embed.h). */
#include "engine/embed.h"

#include <math.h>
#include <string.h>

#include "base/math/fmath.h"

struct ae_embedder {
    const ae_net *net;
    ae_engine *engine;
    ae_embed_options options;
    float *rows;      /* (host) [n_batch][n_embd] if the host cannot read device memory; else NULL */
    double *sum;      /* [n_embd] */
    uint32_t *first;  /* [n_seqs] row of the pass at which each text begins */
    /* the classification head, with RANK; cls is NULL if it has a single layer */
    float *cls, *cls_b, *cls_norm, *cls_out, cls_out_b; /* [n_embd][n_embd], [n_embd] x 3 */
    /* [n_wide][n_embd] and [n_embd][n_wide]: two layers applied to the pooled row; both NULL if there are none */
    float *dense_2, *dense_3;
    double *room;     /* [max(n_embd, n_wide)] scratch */
    uint32_t n_wide;
    ae_decider *decider; /* NULL: the model has no decision head */
};

/* ---- Life -------------------------------------------------------------------------------------------- */

static ae_engine_options engine_options(const ae_model *m, const ae_embed_options *o)
{
    return (ae_engine_options){.n_ctx = o->n_ctx,
                               .n_seqs = o->n_seqs,
                               .n_batch = o->n_batch,
                               .n_outputs = 1,
                               .n_records = 1,
                               .n_kv_pages = o->n_batch / AE_KV_PAGE + o->n_seqs + 1,
                               .n_threads = o->n_threads,
                               .pool = o->pool,
                               .kv_type = AE_KV_F16,
                               .n_taps = 1,
                               .taps = {ae_engine_text_tap(m)}};
}

size_t ae_embedder_plan_bytes(const ae_model *model, const ae_backend *backend, const ae_embed_options *options)
{
    const ae_engine_options o = engine_options(model, options);
    return ae_engine_plan_bytes(model, backend, &o) + ae_decider_plan_bytes(model, o.n_ctx, o.n_threads);
}

/* Reads a tensor's numbers into a new array *to; *to is NULL if there is no tensor. */
static aerie_status read_all(const ae_model *m, ae_tensor_ref t, float **to, aerie_error *error)
{
    if (!t) return AERIE_OK;
    const size_t n = (size_t)(t->ne[0] * t->ne[1]);
    *to = ae_alloc(n, sizeof **to);
    if (!*to) return ae_fail_memory(error, "the classification head", n * sizeof **to);
    return ae_model_read_f32(m, t, *to, n, error);
}

static aerie_status read_head(ae_embedder *e, aerie_error *error)
{
    const ae_model *m = e->net->model;
    float *bias = NULL;
    AE_TRY(read_all(m, m->cls, &e->cls, error));
    AE_TRY(read_all(m, m->cls_b, &e->cls_b, error));
    AE_TRY(read_all(m, m->cls_norm, &e->cls_norm, error));
    AE_TRY(read_all(m, m->cls_out, &e->cls_out, error));
    const aerie_status status = read_all(m, m->cls_out_b, &bias, error);
    if (status == AERIE_OK && bias) e->cls_out_b = *bias;
    ae_free(bias);
    return status;
}

static aerie_status read_dense(ae_embedder *e, aerie_error *error)
{
    const ae_model *m = e->net->model;
    if (!m->dense_2 && !m->cls_norm) return AERIE_OK;
    e->n_wide = m->dense_2 ? (uint32_t)m->dense_2->ne[1] : 0;
    const uint32_t n = m->hparams.n_embd > e->n_wide ? m->hparams.n_embd : e->n_wide;
    e->room = ae_alloc(n, sizeof *e->room);
    if (!e->room) return ae_fail_memory(error, "an embedder", n * sizeof *e->room);
    AE_TRY(read_all(m, m->dense_2, &e->dense_2, error));
    return read_all(m, m->dense_3, &e->dense_3, error);
}

aerie_status ae_embedder_create(ae_embedder **out, const ae_net *net, const ae_embed_options *options, aerie_error *error)
{
    const uint32_t n = net->model->hparams.n_embd;
    const ae_engine_options engine = engine_options(net->model, options);
    *out = NULL;
    ae_embedder *e = ae_alloc(1, sizeof *e);
    if (!e) return ae_fail_memory(error, "an embedder", sizeof *e);
    e->net = net;
    e->options = *options;
    e->sum = ae_alloc(n, sizeof *e->sum);
    e->first = ae_alloc(options->n_seqs, sizeof *e->first);
    bool ok = e->sum && e->first;
    if (ok && net->backend->ops->view_needs_room) {
        e->rows = ae_alloc((size_t)options->n_batch * n, sizeof *e->rows);
        ok = e->rows != NULL;
    }
    aerie_status status = ok ? AERIE_OK : ae_fail_memory(error, "an embedder", (size_t)options->n_batch * n * sizeof *e->rows);
    if (status == AERIE_OK && options->pooling == AE_POOLING_RANK) status = read_head(e, error);
    if (status == AERIE_OK) status = read_dense(e, error);
    if (status == AERIE_OK && net->model->decision) status = ae_decider_create(&e->decider, net->model, error);
    if (status == AERIE_OK) status = ae_engine_create(&e->engine, net, &engine, error);
    if (status == AERIE_OK) *out = e;
    else ae_embedder_free(e);
    return status;
}

void ae_embedder_free(ae_embedder *e)
{
    if (!e) return;
    ae_engine_free(e->engine);
    ae_decider_free(e->decider);
    ae_free(e->rows);
    ae_free(e->sum);
    ae_free(e->first);
    ae_free(e->cls);
    ae_free(e->cls_b);
    ae_free(e->cls_norm);
    ae_free(e->dense_2);
    ae_free(e->dense_3);
    ae_free(e->room);
    ae_free(e->cls_out);
    ae_free(e);
}

ae_pool *ae_embedder_pool(const ae_embedder *embedder)
{
    return ae_engine_pool(embedder->engine);
}

uint32_t ae_embedder_n_out(const ae_embedder *e)
{
    return e->options.pooling == AE_POOLING_RANK ? 1 : e->net->model->hparams.n_embd;
}

/* ---- From rows to a vector --------------------------------------------------------------------------- */

static double dot(const float *a, const double *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)a[i] * x[i];
    return sum;
}

static double gelu(double x)
{
    const double z = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    return x / (1 + ae_exp(-2 * z));
}

/* Returns the score by a head with a norm: GELU by tanh, then the layer norm. */
static float judge_normed(const ae_embedder *e)
{
    const uint32_t n = e->net->model->hparams.n_embd;
    double mean = 0, square = 0, out = (double)e->cls_out_b;
    for (uint32_t i = 0; i < n; i++) {
        const double x = dot(e->cls + (size_t)i * n, e->sum, n) + (e->cls_b ? (double)e->cls_b[i] : 0);
        mean += e->room[i] = gelu(x);
    }
    mean /= n;
    for (uint32_t i = 0; i < n; i++) square += (e->room[i] - mean) * (e->room[i] - mean);
    const double by = 1 / sqrt(square / n + (double)e->net->model->hparams.norm_eps);
    for (uint32_t i = 0; i < n; i++) out += (double)e->cls_out[i] * ((e->room[i] - mean) * by * (double)e->cls_norm[i]);
    return (float)out;
}

/* Returns the score that the classification head gives the row in e->sum. */
static float judge(const ae_embedder *e)
{
    const uint32_t n = e->net->model->hparams.n_embd;
    if (!e->cls) return (float)(dot(e->cls_out, e->sum, n) + (double)e->cls_out_b);
    if (e->cls_norm) return judge_normed(e);
    double out = (double)e->cls_out_b;
    for (uint32_t i = 0; i < n; i++) {
        const double x = dot(e->cls + (size_t)i * n, e->sum, n) + (e->cls_b ? (double)e->cls_b[i] : 0);
        out += (double)e->cls_out[i] * (1 - 2 / (ae_exp(2 * x) + 1)); /* tanh */
    }
    return (float)out;
}

/* Returns the length by which e->sum is divided. It is 0 for a vector of zeros, which stays as it is. */
static double length(const ae_embedder *e)
{
    const uint32_t n = e->net->model->hparams.n_embd;
    const int32_t p = e->options.normalize;
    double sum = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double x = fabs(e->sum[i]);
        most = x > most ? x : most;
    }
    if (p < 0) return 1;
    if (p == 0 || most == 0) return most / 32760;
    for (uint32_t i = 0; i < n; i++) {
        const double x = fabs(e->sum[i]) / most; /* keeps powers from overflowing */
        sum += p == 1 ? x : p == 2 ? x * x : x < 1e-300 ? 0 : ae_pow(x, p);
    }
    return most * (p == 1 ? sum : p == 2 ? sqrt(sum) : ae_pow(sum, 1.0 / p));
}

/* Returns whether the mean of all rows is pooled. */
static bool takes_mean(const ae_embedder *e)
{
    return e->options.pooling == AE_POOLING_MEAN ||
           (e->options.pooling == AE_POOLING_RANK && e->net->model->hparams.rank_mean);
}

/* Applies the model's two dense layers to the pooled row. */
static void widen(ae_embedder *e)
{
    const uint32_t n = e->net->model->hparams.n_embd;
    if (!e->dense_2) return;
    for (uint32_t i = 0; i < e->n_wide; i++) e->room[i] = dot(e->dense_2 + (size_t)i * n, e->sum, n);
    for (uint32_t i = 0; i < n; i++) e->sum[i] = dot(e->dense_3 + (size_t)i * e->n_wide, e->room, e->n_wide);
}

/* Adds rows [at, at + n) of a text of n_text tokens to e->sum. */
static void take_rows(ae_embedder *e, const float *rows, uint32_t at, uint32_t n, uint32_t n_text)
{
    const uint32_t n_embd = e->net->model->hparams.n_embd;
    const ae_pooling pooling = takes_mean(e) ? AE_POOLING_MEAN : e->options.pooling;
    if (at == 0) memset(e->sum, 0, n_embd * sizeof *e->sum);
    for (uint32_t r = 0; r < n; r++) {
        const bool wanted = pooling == AE_POOLING_MEAN || (pooling == AE_POOLING_LAST ? at + r + 1 == n_text : at + r == 0);
        for (uint32_t i = 0; wanted && i < n_embd; i++) e->sum[i] += (double)rows[(size_t)r * n_embd + i];
    }
}

static void give_vector(ae_embedder *e, uint32_t n_text, float *out)
{
    const uint32_t n_embd = e->net->model->hparams.n_embd;
    for (uint32_t i = 0; takes_mean(e) && i < n_embd; i++) e->sum[i] /= n_text;
    if (e->options.pooling == AE_POOLING_RANK) {
        *out = judge(e);
        return;
    }
    widen(e);
    const double by = length(e);
    for (uint32_t i = 0; i < n_embd; i++) out[i] = (float)(by > 0 ? e->sum[i] / by : e->sum[i]);
}

/* ---- Passes ------------------------------------------------------------------------------------------ */

/* Runs the pass; *rows (host) gets its hidden rows. */
static aerie_status run_pass(ae_embedder *e, const float **rows, aerie_error *error)
{
    const size_t bytes = (size_t)ae_engine_n_rows(e->engine) * e->net->model->hparams.n_embd * sizeof **rows;
    AE_TRY(ae_engine_pass(e->engine, error));
    *rows = e->net->backend->ops->view(ae_engine_stream(e->engine), ae_engine_features(e->engine, 0), e->rows, bytes);
    return ae_engine_sync(e->engine, error); /* otherwise a copy that fails would give a vector of zeros */
}

/* Adds positions [at, at + n) of a text to the pass. n_first counts from `at`. */
static aerie_status add_part(ae_embedder *e, uint32_t seq, const ae_embed_text *text, uint32_t at, uint32_t n, uint32_t n_first,
                             aerie_error *error)
{
    AE_TRY(ae_engine_add_text(e->engine, seq, text->tokens + at, n, n_first, &e->first[seq], error));
    return ae_engine_add_media(e->engine, e->first[seq], n, at, text->media, text->n_media, error);
}

/* Lets the next part of a text follow the n rows of this pass. */
static aerie_status keep_part(ae_embedder *e, uint32_t n, aerie_error *error)
{
    if (ae_engine_commit(e->engine, 0, n, NULL, 0) == AERIE_OK) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_INTERNAL, "the KV cache is out of step; please report");
}

static uint32_t part_of(const ae_embedder *e, const ae_embed_text *text, uint32_t at)
{
    return text->n - at < e->options.n_batch ? text->n - at : e->options.n_batch;
}

/* Computes a text that is longer than a pass, part by part. */
static aerie_status run_long(ae_embedder *e, const ae_embed_text *text, float *out, aerie_error *error)
{
    for (uint32_t at = 0, n; at < text->n; at += n) {
        const float *rows;
        n = part_of(e, text, at);
        ae_engine_rows_clear(e->engine);
        AE_TRY(add_part(e, 0, text, at, n, n, error));
        AE_TRY(run_pass(e, &rows, error));
        take_rows(e, rows, at, n, text->n);
        AE_TRY(keep_part(e, n, error));
    }
    give_vector(e, text->n, out);
    return AERIE_OK;
}

/* Computes as many texts as fit a pass, and stores how many in *n_done. */
static aerie_status run_some(ae_embedder *e, const ae_embed_text *texts, size_t n, float *out, size_t *n_done,
                             aerie_error *error)
{
    const uint32_t n_out = ae_embedder_n_out(e), n_embd = e->net->model->hparams.n_embd;
    const float *rows;
    uint32_t s = 0;
    *n_done = 1;
    if (texts[0].n > e->options.n_batch) return run_long(e, texts, out, error);
    ae_engine_rows_clear(e->engine);
    for (; s < n && s < e->options.n_seqs && texts[s].n <= ae_engine_rows_left(e->engine); s++)
        AE_TRY(add_part(e, s, &texts[s], 0, texts[s].n, texts[s].n_first, error));
    AE_TRY(run_pass(e, &rows, error));
    for (uint32_t i = 0; i < s; i++) {
        take_rows(e, rows + (size_t)e->first[i] * n_embd, 0, texts[i].n, texts[i].n);
        give_vector(e, texts[i].n, out + (size_t)i * n_out);
    }
    *n_done = s;
    return AERIE_OK;
}

aerie_status ae_embedder_run(ae_embedder *e, const ae_embed_text *texts, size_t n, float *out, aerie_error *error)
{
    const uint32_t n_out = ae_embedder_n_out(e);
    aerie_status status = AERIE_OK;
    for (size_t i = 0, done = 0; i < n && status == AERIE_OK; i += done) {
        status = run_some(e, texts + i, n - i, out + i * n_out, &done, error);
        for (uint32_t s = 0; s < e->options.n_seqs; s++) (void)ae_engine_truncate(e->engine, s, 0);
    }
    return status;
}

/* Computes the rows part by part. The caller truncates the sequence. */
static aerie_status run_rows(ae_embedder *e, const ae_embed_text *text, float *rows, aerie_error *error)
{
    const uint32_t n_embd = e->net->model->hparams.n_embd;
    for (uint32_t at = 0, n; at < text->n; at += n) {
        const float *found;
        n = part_of(e, text, at);
        ae_engine_rows_clear(e->engine);
        AE_TRY(add_part(e, 0, text, at, n, n, error));
        AE_TRY(run_pass(e, &found, error));
        memcpy(rows + (size_t)at * n_embd, found, (size_t)n * n_embd * sizeof *rows);
        if (at + n < text->n) AE_TRY(keep_part(e, n, error));
    }
    return AERIE_OK;
}

aerie_status ae_embedder_rows(ae_embedder *e, const ae_embed_text *text, float *rows, aerie_error *error)
{
    const aerie_status status = run_rows(e, text, rows, error);
    (void)ae_engine_truncate(e->engine, 0, 0);
    return status;
}

static aerie_status run_logits(ae_embedder *e, const ae_embed_text *text, const float **logits, aerie_error *error)
{
    for (uint32_t at = 0, n; at < text->n; at += n) {
        uint32_t first;
        n = part_of(e, text, at);
        const bool last = at + n == text->n;
        ae_engine_rows_clear(e->engine);
        AE_TRY(ae_engine_add_chain(e->engine, 0, text->tokens + at, n, last ? AE_EXPORT_LAST : AE_EXPORT_NONE, &first, error));
        AE_TRY(ae_engine_add_media(e->engine, first, n, at, text->media, text->n_media, error));
        AE_TRY(ae_engine_pass(e->engine, error));
        if (last) *logits = ae_engine_logits(e->engine, first + n - 1);
        else AE_TRY(keep_part(e, n, error));
    }
    return ae_engine_sync(e->engine, error); /* as in run_pass */
}

aerie_status ae_embedder_logits(ae_embedder *e, const ae_embed_text *text, const int32_t *tokens, size_t n, float *logits,
                                aerie_error *error)
{
    const float *all = NULL;
    const aerie_status status = run_logits(e, text, &all, error);
    for (size_t i = 0; status == AERIE_OK && i < n; i++) logits[i] = all[tokens[i]];
    (void)ae_engine_truncate(e->engine, 0, 0);
    return status;
}

aerie_status ae_embedder_decide(ae_embedder *e, const ae_embed_text *text, const uint8_t *spans, float *scores,
                                aerie_error *error)
{
    const size_t n_numbers = (size_t)text->n * e->net->model->hparams.n_embd;
    float *rows = ae_alloc(n_numbers, sizeof *rows);
    if (!rows) return ae_fail_memory(error, "the rows of a text", n_numbers * sizeof *rows);
    aerie_status status = ae_embedder_rows(e, text, rows, error);
    if (status == AERIE_OK)
        status = ae_decider_run(e->decider, ae_engine_pool(e->engine), text->tokens, spans, text->n, rows, scores, error);
    ae_free(rows);
    return status;
}
