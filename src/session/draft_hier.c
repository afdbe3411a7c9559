/* draft_hier.c - speculation of type HIER: creates the session of the intermediate model, whose loop drafts for the target.
 *
 * The drafter itself is in speculate/hier.c.
 */
#include "session/session_int.h"
#include "base/err.h"

#define DRAFT_LENGTH 6 /* the value of min_draft_length in the HierSpec paper */

/* Its KV cache has room for all sequences at their longest, because they stay in it between drafts. */
static aerie_session_params inner_params(aerie_session *s, const ae_model *model)
{
    aerie_session_params p = aerie_session_params_default();
    const uint32_t train = model->hparams.n_ctx_train;
    p.n_ctx = train && s->params.n_ctx > train ? train : s->params.n_ctx;
    p.n_seqs = s->params.n_seqs;
    p.n_batch = s->params.n_batch;
    p.kv_type = s->params.kv_type;
    p.pool = &s->inner_pool;
    const uint64_t n_kv = (uint64_t)p.n_seqs * ((uint64_t)p.n_ctx + AERIE_MAX_DRAFT + 2 * AE_KV_PAGE);
    p.n_kv = n_kv < UINT32_MAX / 2 ? (uint32_t)n_kv : UINT32_MAX / 2;
    p.log = s->params.log;
    if (s->params.spec.inner) p.spec = *s->params.spec.inner;
    else p.spec.type = AERIE_SPEC_NGRAM;
    return p;
}

aerie_status ae_session_create_hier(aerie_session *s, ae_drafter **drafter, aerie_error *error)
{
    const aerie_model *model = s->params.spec.draft_model;
    const uint32_t n_enough = s->params.spec.min_draft_length ? s->params.spec.min_draft_length : DRAFT_LENGTH;
    if (!model->net) return ae_fail(error, AERIE_ERROR_ARGUMENT, "the intermediate model was loaded without its weights");
    AE_TRY(ae_session_check_drafts(model->model, error));
    AE_TRY(ae_vocab_check_same(s->model->vocab, model->vocab, error));
    if (model->model->hparams.n_vocab != s->model->model->hparams.n_vocab)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       "the intermediate model gives %u logits, the model %u; speculation of type "
                       "hier needs as many, --spec-type draft does not",
                       model->model->hparams.n_vocab, s->model->model->hparams.n_vocab);
    s->inner_pool.threads = ae_engine_pool(s->engine);
    const aerie_session_params params = inner_params(s, model->model);
    const ae_session_test test = {.fixed = s->test.fixed};
    AE_TRY(ae_session_create(&s->inner, model, &params, test.fixed ? &test : NULL, error));
    s->params.spec.inner = NULL; /* it belongs to the caller */
    return ae_draft_hier_create(drafter, s->inner->spec, s->params.n_seqs, n_enough, error);
}
