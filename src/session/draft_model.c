/* draft_model.c - aerie.h: speculation by a draft model, or by one that has a drafter of its own. Decides whether its
 * vocabulary is the target's and, if not, which tokens both share; how large its context is; and how much memory that takes.
 * The drafters themselves are in draft/model.c and speculate/hier.c.
 */
#include <string.h>

#include "session/session_int.h"
#include "aerie_extra.h"
#include "base/err.h"
#include "device/device.h"
#include "base/os.h"

/* Sets *map to NULL if both have the same tokens. UNSUPPORTED if they share too few. */
static aerie_status map_vocabularies(const ae_vocab *target, const char *target_name, const ae_vocab *draft,
                                     const char *draft_name, ae_vocab_map **map, aerie_error *error)
{
    *map = NULL;
    if (ae_vocab_check_same(target, draft, NULL) == AERIE_OK) return AERIE_OK;
    AE_TRY(ae_vocab_map_create(map, target, draft, error));
    const aerie_status status = ae_vocab_map_check(*map, target_name, draft_name, error);
    if (status == AERIE_OK) return status;
    ae_vocab_map_free(*map);
    *map = NULL;
    return status;
}

/* Returns the options of the draft model's engine for a session with these (resolved) parameters. */
static ae_engine_options draft_options(const aerie_session_params *params, const ae_vocab_map *map, const ae_model *draft)
{
    ae_engine_options o = ae_session_engine_options(params, 1);
    o.max_rank = 0;
    o.n_kv_pages = 0; /* its cache has room for all sequences at their longest */
    o.n_taps = 0;
    o.n_records = AERIE_MAX_DRAFT; /* the engine can run any tree that is drafted for the target */
    if (map) { /* the same text may take more tokens in the draft model's vocabulary */
        const double n_ctx = (double)o.n_ctx * ae_vocab_map_overlap(map)->length_ratio * 1.1;
        if (n_ctx > (double)o.n_ctx) o.n_ctx = n_ctx < AE_SESSION_MAX_CTX ? (uint32_t)n_ctx : AE_SESSION_MAX_CTX;
    }
    const uint32_t train = draft->hparams.n_ctx_train;
    if (train && o.n_ctx > train) o.n_ctx = train;
    /* one level of the chains of all sequences, or of one tree; several trees run one after the other if they do not fit
     * together */
    o.n_outputs = AERIE_MAX_DRAFT + o.n_seqs;
    return o;
}

aerie_status ae_session_create_draft_model(aerie_session *s, ae_drafter **drafter, aerie_error *error)
{
    const aerie_model *draft = s->params.spec.draft_model;
    if (!draft->net) return ae_fail(error, AERIE_ERROR_ARGUMENT, "the draft model was loaded without its weights");
    AE_TRY(ae_session_check_drafts(draft->model, error));
    ae_vocab_map *map;
    AE_TRY(map_vocabularies(s->model->vocab, s->model->model->name, draft->vocab, draft->model->name, &map, error));
    if (map) {
        const ae_overlap *overlap = ae_vocab_map_overlap(map);
        s->mapped = true;
        s->overlap = (aerie_overlap){.n_target = (uint32_t)overlap->n_target, .n_draft = (uint32_t)overlap->n_draft,
                                     .n_shared = (uint32_t)overlap->n_shared, .vocab_share = overlap->vocab_share,
                                     .text_share = overlap->text_share};
    }
    ae_engine_options o = draft_options(&s->params, map, draft->model);
    o.pool = ae_engine_pool(s->engine);
    ae_engine *engine;
    aerie_status status = ae_session_check_engine(draft->model, &draft->net->split, &o, "the draft model's session",
                                                  "a smaller context (-c) would fit", error);
    if (status == AERIE_OK) status = ae_engine_create(&engine, draft->net, &o, error);
    if (status == AERIE_OK) 
        return ae_draft_model_create(drafter, engine, draft->vocab, map, s->params.n_seqs, s->params.n_ctx, error);
    ae_vocab_map_free(map);
    return status;
}

bool aerie_session_overlap(const aerie_session *session, aerie_overlap *overlap, size_t size)
{
    if (!session || !overlap) return false;
    if (session->mapped) ae_struct_give(overlap, size, &session->overlap, sizeof session->overlap);
    return session->mapped;
}

static aerie_status plan_draft(const ae_model *target, const ae_model *draft, const ae_split *split,
                               const aerie_model_params *model_params, const aerie_session_params *session_params,
                               aerie_memory_plan *plan, aerie_error *error)
{
    aerie_session_params params;
    ae_vocab *target_vocab, *draft_vocab = NULL;
    ae_vocab_map *map = NULL;
    AE_TRY(ae_session_resolve(target, session_params, false, &params, error));
    const ae_load_options no = ae_session_net_options(model_params);
    size_t weight_bytes = 0, on[AE_MAX_DEVICES];
    AE_TRY(ae_net_plan_split(on, draft, split, &no, error));
    for (uint32_t i = 0; i < split->n_devices; i++) weight_bytes += on[i];
    aerie_status status = ae_vocab_create(&target_vocab, target->gguf, error);
    if (status == AERIE_OK) status = ae_vocab_create(&draft_vocab, draft->gguf, error);
    if (status == AERIE_OK) status = map_vocabularies(target_vocab, target->name, draft_vocab, draft->name, &map, error);
    /* after UNSUPPORTED, the creation of a session will say what the vocabularies do not share */
    if (status == AERIE_OK || status == AERIE_ERROR_UNSUPPORTED) {
        const ae_engine_options eo = draft_options(&params, map, draft);
        plan->weight_bytes = weight_bytes;
        plan->session_bytes = ae_engine_plan_split(draft, split, &eo, NULL);
        status = AERIE_OK;
    }
    ae_vocab_map_free(map);
    ae_vocab_free(draft_vocab);
    ae_vocab_free(target_vocab);
    return status;
}

aerie_status aerie_memory_plan_draft(const char *path, const char *draft_path, const aerie_model_params *model_params,
                                     const aerie_session_params *session_params, aerie_memory_plan *theirs, size_t plan_size,
                                     aerie_error *error)
{
    AE_NEED(path, error);
    AE_NEED(draft_path, error);
    AE_NEED(theirs, error);
    aerie_memory_plan own = {.available_bytes = ae_os_memory_available()}, *plan = &own;
    ae_struct_give(theirs, plan_size, plan, sizeof *plan);
    AE_STRUCT_TAKE(model_params, mp, model_params, error);
    AE_STRUCT_TAKE(rope, rope, mp.rope, error);
    if (mp.rope) mp.rope = &rope;
    mp.n_placements = 0; /* they are the target's */
    const ae_model_options options = {.no_mmap = mp.no_mmap};
    const ae_model_options target_options = {.no_mmap = mp.no_mmap, .rope = mp.rope, .overrides = mp.overrides,
                                             .n_overrides = mp.n_overrides};
    ae_session_devices devices;
    ae_split split;
    ae_model *target = NULL, *draft = NULL;
    AE_TRY(ae_session_open_devices(&devices, &mp, error));
    plan->available_bytes = ae_session_available(devices.list[0]);
    aerie_status status = ae_model_load(&target, path, &target_options, error);
    if (status == AERIE_OK) status = ae_model_load(&draft, draft_path, &options, error);
    if (status == AERIE_OK) status = ae_session_check_drafts(target, error);
    if (status == AERIE_OK) status = ae_session_check_drafts(draft, error);
    if (status == AERIE_OK) status = ae_session_place(&split, &devices, draft, &mp, error);
    if (status == AERIE_OK) plan->available_bytes = ae_session_available_split(&split);
    if (status == AERIE_OK) status = plan_draft(target, draft, &split, &mp, session_params, plan, error);
    ae_struct_give(theirs, plan_size, plan, sizeof *plan);
    ae_model_free(draft);
    ae_model_free(target);
    ae_session_close_devices(&devices);
    return status;
}

/* ---- Hierarchies: a session of the intermediate model, whose loop drafts for the target ---- */

#define DRAFT_LENGTH 6 /* the value of min_draft_length in the HierSpec paper */

/* The inner session's KV cache has room for all sequences at their longest, because they stay in it between drafts. */
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
                       "the intermediate model has %u logits per row, the model %u; speculation of type hier needs the same "
                       "vocabulary, --spec-type draft does not",
                       model->model->hparams.n_vocab, s->model->model->hparams.n_vocab);
    s->inner_pool.threads = ae_engine_pool(s->engine);
    const aerie_session_params params = inner_params(s, model->model);
    const ae_session_test test = {.fixed = s->test.fixed};
    AE_TRY(ae_session_create(&s->inner, model, &params, test.fixed ? &test : NULL, error));
    s->params.spec.inner = NULL; /* it belongs to the caller */
    return ae_draft_hier_create(drafter, s->inner->spec, s->params.n_seqs, n_enough, error);
}
