/* measure.c - aerie_measure.h: the logits or features at every position of a text, and the times of passes. */
#include "session/session_int.h"
#include "aerie_measure.h"
#include "backend/backend.h"
#include "base/mem.h"
#include "base/os.h"
#include "sample/logprobs.h"

float aerie_logprobs(const float *logits, uint32_t n_vocab, int32_t token, uint32_t n, aerie_logprob *top, uint32_t *n_top)
{
    return ae_logprobs(logits, n_vocab, token, n, top, n_top);
}

aerie_status aerie_session_watch_passes(aerie_session *session, aerie_pass_callback *callback, void *user, aerie_error *error)
{
    AE_NEED(session, error);
    return ae_spec_watch(session->spec, callback, user, error);
}

bool aerie_task_stats_now(const aerie_task *task, aerie_stats *stats, size_t size)
{
    aerie_stats now;
    const int32_t slot = aerie_task_slot(task);
    if (!task || !stats) return false;
    if (atomic_load(&task->ended)) now = task->stats;
    else if (slot >= 0) ae_spec_stats_now(task->session->spec, (uint32_t)slot, &now);
    else return false;
    ae_struct_give(stats, size, &now, sizeof now);
    return true;
}

/* The caller's callback, one of two kinds. */
typedef struct eval {
    aerie_logits_callback *logits;
    aerie_features_callback *features;
    void *user;
    float *row;    /* (host) [n_taps][n_embd] for features */
    size_t first;  /* first position that is reported */
    bool parallel; /* report on all threads; logits only */
} eval;

static aerie_status eval_row(aerie_session *session, const eval *e, size_t position, uint32_t row, bool *more,
                             aerie_error *error)
{
    const float *logits = ae_engine_logits(session->engine, row);
    *more = !e->logits || e->logits(e->user, position, logits);
    if (e->logits) return AERIE_OK;
    const size_t bytes = ae_session_row_features(session) * sizeof(float);
    session->model->backend->ops->download(ae_engine_stream(session->engine), e->row, ae_engine_features(session->engine, row),
                                           bytes);
    AE_TRY(ae_engine_sync(session->engine, error));
    *more = e->features(e->user, position, logits, e->row);
    return AERIE_OK;
}

/* The rows of a pass, whose positions are reported on all threads. */
typedef struct eval_job {
    const aerie_session *session;
    const eval *eval;
    size_t at; /* position of the first row */
    uint32_t row;
    atomic_bool more;
} eval_job;

static void eval_item(void *context, uint32_t i, uint32_t i_worker)
{
    eval_job *job = context;
    (void)i_worker;
    if (!job->eval->logits(job->eval->user, job->at + i, ae_engine_logits(job->session->engine, job->row + i)))
        atomic_store(&job->more, false);
}

/* Reports n rows of the pass. *more becomes false if the callback wants no more. */
static aerie_status eval_rows(aerie_session *session, const eval *e, size_t at, uint32_t row, uint32_t n, bool *more,
                              aerie_error *error)
{
    ae_engine_fetch_logits(session->engine);
    AE_TRY(ae_engine_sync(session->engine, error)); /* rows that could not be copied from the device are zeros */
    if (!e->parallel) {
        for (uint32_t i = 0; *more && i < n; i++) AE_TRY(eval_row(session, e, at + i, row + i, more, error));
        return AERIE_OK;
    }
    eval_job job = {.session = session, .eval = e, .at = at, .row = row, .more = true};
    session->model->backend->ops->host_run(ae_engine_stream(session->engine), eval_item, &job, n);
    *more = atomic_load(&job.more);
    return AERIE_OK;
}

/* Runs the pass. After a failure the session's sequence is empty. */
static aerie_status run_pass(aerie_session *session, aerie_error *error)
{
    const aerie_status status = ae_engine_pass(session->engine, error);
    if (status != AERIE_OK) ae_spec_reset(session->spec);
    return status;
}

/* Commits the first n rows of the pass. */
static aerie_status keep(aerie_session *session, uint32_t n, aerie_error *error)
{
    const aerie_status status = ae_engine_commit(session->engine, 0, n, NULL, 0);
    return status == AERIE_OK ? status : ae_fail(error, status, "the KV cache is out of step; please report");
}

/* Empties sequence 0 and gives it the adapters used for measuring. */
static void start(aerie_session *session)
{
    ae_spec_reset(session->spec);
    ae_engine_adapt(session->engine, 0, &session->eval_adapters);
}

aerie_status aerie_session_eval_adapters(aerie_session *session, const aerie_adapter_use *adapters, size_t n_adapters,
                                         aerie_error *error)
{
    AE_NEED(session, error);
    AE_NEED_IF(n_adapters, adapters, error);
    ae_adapter_set set;
    AE_TRY(ae_session_adapter_set(session, adapters, n_adapters, &set, error));
    session->eval_adapters = set;
    ae_spec_reset(session->spec);
    return AERIE_OK;
}

/* Evaluates a text whose rows see each other, in one pass. */
static aerie_status eval_whole(aerie_session *session, const int32_t *tokens, uint32_t n, const eval *e, aerie_error *error)
{
    uint32_t row;
    const uint32_t first = e->first < n ? (uint32_t)e->first : n;
    ae_engine_rows_clear(session->engine);
    AE_TRY(ae_engine_add_whole(session->engine, 0, tokens, n, NULL, &row, error));
    AE_TRY(run_pass(session, error));
    bool more = true;
    const aerie_status status = n > first ? eval_rows(session, e, first, row + first, n - first, &more, error) : AERIE_OK;
    ae_spec_reset(session->spec);
    return status;
}

static aerie_status eval_tokens(aerie_session *session, const int32_t *tokens, size_t n_tokens, const eval *e,
                                aerie_error *error)
{
    const ae_engine_options *o = ae_engine_options_get(session->engine);
    const uint32_t step = o->n_batch < o->n_outputs ? o->n_batch : o->n_outputs;
    const int32_t n_vocab = ae_vocab_n_tokens(session->model->vocab);
    if (n_tokens > o->n_ctx)
        return ae_fail(error, AERIE_ERROR_LIMIT, "the text has %zu tokens, but the context holds %u", n_tokens, o->n_ctx);
    for (size_t i = 0; i < n_tokens; i++)
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "token %zu is %d; 0 to %d are possible", i, tokens[i], n_vocab - 1);
    start(session);
    if (session->model->model->hparams.denoises && n_tokens)
        return eval_whole(session, tokens, (uint32_t)n_tokens, e, error);
    bool more = true;
    for (size_t at = 0; more && at < n_tokens;) {
        const bool told = at >= e->first;
        const size_t most = told ? step : o->n_batch, end = !told && e->first < n_tokens ? e->first : n_tokens;
        const uint32_t n = end - at < most ? (uint32_t)(end - at) : (uint32_t)most;
        uint32_t row;
        ae_engine_rows_clear(session->engine);
        AE_TRY(ae_engine_add_chain(session->engine, 0, tokens + at, n, told ? AE_EXPORT_ALL : AE_EXPORT_NONE, &row, error));
        AE_TRY(run_pass(session, error));
        if (told) AE_TRY(eval_rows(session, e, at, row, n, &more, error));
        AE_TRY(keep(session, n, error));
        at += n;
    }
    ae_spec_reset(session->spec);
    return ae_engine_sync(session->engine, error);
}

aerie_status aerie_session_eval(aerie_session *session, const int32_t *tokens, size_t n_tokens, aerie_logits_callback *callback,
                                void *user, aerie_error *error)
{
    AE_NEED(session, error);
    AE_NEED(callback, error);
    AE_NEED_IF(n_tokens, tokens, error);
    AE_TRY(ae_session_check_process(session, error));
    return eval_tokens(session, tokens, n_tokens, &(eval){.logits = callback, .user = user}, error);
}

aerie_status aerie_session_eval_parallel(aerie_session *session, const int32_t *tokens, size_t n_tokens, size_t first,
                                         aerie_logits_callback *callback, void *user, aerie_error *error)
{
    AE_NEED(session, error);
    AE_NEED(callback, error);
    AE_NEED_IF(n_tokens, tokens, error);
    AE_TRY(ae_session_check_process(session, error));
    return eval_tokens(session, tokens, n_tokens,
                       &(eval){.logits = callback, .user = user, .first = first, .parallel = true}, error);
}

aerie_status aerie_session_eval_features(aerie_session *session, const int32_t *tokens, size_t n_tokens,
                                         aerie_features_callback *callback, void *user, aerie_error *error)
{
    AE_NEED(session, error);
    AE_NEED(callback, error);
    AE_NEED_IF(n_tokens, tokens, error);
    AE_TRY(ae_session_check_process(session, error));
    const size_t n = ae_session_row_features(session);
    if (!n) return ae_fail(error, AERIE_ERROR_ARGUMENT, "the session was created without taps");
    float *row = ae_alloc(n, sizeof *row);
    if (!row) return ae_fail_memory(error, "a row of features", n * sizeof *row);
    const aerie_status status =
        eval_tokens(session, tokens, n_tokens, &(eval){.features = callback, .user = user, .row = row}, error);
    ae_free(row);
    return status;
}

/* Adds a row of distinct tokens, for passes whose values do not matter. */
static aerie_status add_filler(aerie_session *session, uint32_t n, ae_export rows, int32_t *tokens, aerie_error *error)
{
    uint32_t first;
    const uint32_t n_vocab = (uint32_t)ae_vocab_n_tokens(session->model->vocab);
    for (uint32_t i = 0; i < n; i++) tokens[i] = (int32_t)((i * 7919u + 11u) % n_vocab);
    ae_engine_rows_clear(session->engine);
    return ae_engine_add_chain(session->engine, 0, tokens, n, rows, &first, error);
}

aerie_status aerie_session_time_pass(aerie_session *session, uint32_t n_rows, uint32_t n_context, bool all_logits,
                                     uint32_t n_runs,
                                     double *seconds, aerie_error *error)
{
    AE_NEED(session, error);
    AE_NEED_IF(n_runs, seconds, error);
    AE_TRY(ae_session_check_process(session, error));
    const ae_engine_options *o = ae_engine_options_get(session->engine);
    if (!n_rows || n_rows > o->n_batch || n_context + (uint64_t)n_rows > o->n_ctx)
        return ae_fail(error, AERIE_ERROR_ARGUMENT,
                       "%u rows after %u positions do not fit passes of %u rows in a context of %u", n_rows, n_context,
                       o->n_batch, o->n_ctx);
    int32_t *tokens = ae_alloc(o->n_batch, sizeof *tokens);
    if (!tokens) return ae_fail_memory(error, "a pass", o->n_batch * sizeof *tokens);
    aerie_status status = AERIE_OK;
    ae_kv *kv = ae_engine_kv(session->engine);
    if (ae_kv_n_live(kv, 0) != n_context ||
        !ae_adapter_set_equal(ae_engine_adapters(session->engine, 0), &session->eval_adapters))
        start(session);
    while (status == AERIE_OK && ae_kv_n_live(kv, 0) < n_context) {
        const uint32_t left = n_context - ae_kv_n_live(kv, 0), n = left < o->n_batch ? left : o->n_batch;
        status = add_filler(session, n, AE_EXPORT_NONE, tokens, error);
        if (status == AERIE_OK) status = run_pass(session, error);
        if (status == AERIE_OK) status = keep(session, n, error);
    }
    ae_engine_snapshot(session->engine, 0);
    for (uint32_t i = 0; status == AERIE_OK && i < n_runs; i++) {
        status = add_filler(session, n_rows, all_logits ? AE_EXPORT_ALL : AE_EXPORT_LAST, tokens, error);
        if (status == AERIE_OK) status = run_pass(session, error);
        seconds[i] = ae_engine_pass_seconds(session->engine);
        if (status == AERIE_OK && ae_engine_truncate(session->engine, 0, n_context) != n_context)
            status = ae_fail(error, AERIE_ERROR_INTERNAL, "a timed pass left its %u positions; please report", n_context);
    }
    ae_free(tokens);
    return status;
}
