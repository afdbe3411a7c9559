/* session.c - aerie.h: creates and frees thread pools and sessions.
 *
 * Owns aerie_session and aerie_pool: engine, drafters and loop, in the order in which they need each other. Requests are
 * handled by tasks.c.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "session/session_int.h"
#include "aerie_extra.h"
#include "backend/backend.h"
#include "device/device.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/os.h"
#include "formats/kind.h"
#include "text/grammar/match.h"
#include "text/token/vocab.h"

/* ---- Thread pools ---------------------------------------------------------------------------------------------- */

aerie_status aerie_pool_create(aerie_pool **pool, uint32_t n_threads, aerie_error *error)
{
    AE_NEED(pool, error);
    *pool = NULL;
    aerie_pool *p = ae_alloc(1, sizeof *p);
    if (!p) return ae_fail_memory(error, "a thread pool", sizeof *p);
    const aerie_status status = ae_pool_create(&p->threads, n_threads ? n_threads : (uint32_t)ae_os_n_cores(), error);
    if (status == AERIE_OK) *pool = p;
    else ae_free(p);
    return status;
}

void aerie_pool_free(aerie_pool *pool)
{
    if (!pool) return;
    ae_pool_free(pool->threads);
    ae_free(pool);
}

uint32_t aerie_pool_n_threads(const aerie_pool *pool)
{
    if (!pool) return 0;
    return ae_pool_n_workers(pool->threads);
}

/* ---- Sessions -------------------------------------------------------------------------------------------------- */

static aerie_status create_one(aerie_session *s, uint32_t i, ae_drafter **drafter, aerie_error *error)
{
    *drafter = NULL;
    if (!aerie_spec_type_name(s->types[i])) return ae_session_create_test_drafter(s, drafter, error);
    switch (s->types[i]) {
    case AERIE_SPEC_NGRAM: return ae_draft_ngram_create(drafter, s->params.n_seqs, s->params.spec.ngram_memory, error);
    case AERIE_SPEC_DRAFT: return ae_session_create_draft_model(s, drafter, error);
    case AERIE_SPEC_MOE: return ae_session_create_self(s, i, drafter, error);
    case AERIE_SPEC_HIER: return ae_session_create_hier(s, drafter, error);
    case AERIE_SPEC_NLD: return ae_session_create_masked(s, drafter, error);
    case AERIE_SPEC_EAGLE:
    case AERIE_SPEC_EAGLE3:
    case AERIE_SPEC_MEDUSA:
    case AERIE_SPEC_DFLASH:
    case AERIE_SPEC_DSPARK:
    case AERIE_SPEC_MTP: return ae_session_create_head_drafter(s, drafter, error);
    default: return AERIE_OK;
    }
}

/* Adds a drafter of this type; for drafts by the model itself, one for each number of experts to try. */
static void add_type(aerie_session *s, aerie_spec_type type)
{
    int32_t n_experts[AE_SELF_TRIALS];
    const uint32_t n = type == AERIE_SPEC_MOE ? ae_session_self_trials(s->model->model, &s->params.spec, n_experts) : 1;
    for (uint32_t i = 0; i < n; i++) {
        if (type == AERIE_SPEC_MOE) s->moe_experts[s->n_types] = n_experts[i];
        if (n > 1) snprintf(s->names[s->n_types], sizeof *s->names, "moe-%d", (int)n_experts[i]);
        s->types[s->n_types++] = type;
    }
}

/* Lists the drafters that are available in addition to the one that AUTO stands for. */
static void list_types(aerie_session *s, bool any)
{
    const aerie_spec *spec = &s->params.spec;
    add_type(s, spec->type);
    if (!any || !(spec->tree == AERIE_TREE_AUTO || spec->tree == AERIE_TREE_OFF)) return;
    const bool experts = s->model->model->hparams.experts.n || spec->skip_attn || spec->skip_ffn;
    if (ae_session_masks_ahead(s->model->model) && spec->type != AERIE_SPEC_NLD) add_type(s, AERIE_SPEC_NLD);
    if (spec->draft_model && spec->type != AERIE_SPEC_DRAFT) add_type(s, AERIE_SPEC_DRAFT);
    if (spec->draft_model && spec->inner) add_type(s, AERIE_SPEC_HIER);
    if (experts && spec->type != AERIE_SPEC_MOE) add_type(s, AERIE_SPEC_MOE);
}

static void name_drafters(aerie_session *s)
{
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_types; i++)
        if (!i || s->types[i] != s->types[i - 1])
            n += (size_t)snprintf(s->spec_name + n, sizeof s->spec_name - n, "%s%s", i ? "+" : "",
                                  ae_session_test_spec_name(s->types[i]));
    if (s->params.spec.ngram) snprintf(s->spec_name + n, sizeof s->spec_name - n, "+ngram");
}

static void drop_type(aerie_session *s, uint32_t at)
{
    s->n_types--;
    for (uint32_t i = at; i < s->n_types; i++) {
        s->types[i] = s->types[i + 1];
        s->moe_experts[i] = s->moe_experts[i + 1];
        memcpy(s->names[i], s->names[i + 1], sizeof *s->names);
    }
}

static aerie_status create_drafter(aerie_session *s, bool any, ae_drafter **drafter, aerie_error *error)
{
    ae_drafter *all[AERIE_MAX_DRAFTERS], *one = NULL;
    aerie_status status = AERIE_OK;
    uint32_t n = 0;
    *drafter = NULL;
    list_types(s, any);
    while (n < s->n_types && status == AERIE_OK) {
        aerie_error why = {0};
        status = create_one(s, n, &all[n], &why);
        if (status == AERIE_ERROR_UNSUPPORTED && n) { /* the drafter was not asked for by name */
            ae_log_say(&s->params.log, AERIE_LOG_WARNING, "no speculation of type %s: %s", aerie_spec_type_name(s->types[n]),
                       why.text);
            drop_type(s, n);
            status = AERIE_OK;
        } else if (status != AERIE_OK) {
            ae_fail(error, status, "%s", why.text);
        } else {
            n++;
        }
    }
    s->params.spec.moe_layers = s->params.spec.skip_attn = s->params.spec.skip_ffn = NULL; /* they belong to the caller */
    if (status != AERIE_OK) {
        while (n) n--, all[n]->ops->destroy(all[n]);
        return status;
    }
    name_drafters(s);
    if (n > 1) AE_TRY(ae_draft_choice_create(&one, all, n, error));
    else one = all[0];
    if (s->params.spec.ngram) return ae_draft_joined_create(drafter, one, s->params.n_seqs, s->params.spec.ngram_memory, error);
    *drafter = one;
    return AERIE_OK;
}

void aerie_session_free(aerie_session *session)
{
    if (!session) return;
    ae_session_tasks_free(session);
    ae_spec_free(session->spec);
    aerie_session_free(session->inner);
    ae_session_source_close(session); /* the source runs on the engine's threads */
    ae_engine_free(session->engine);
    ae_free(session->adapters);
    ae_free(session);
}

aerie_status aerie_session_create(aerie_session **session, const aerie_model *model, const aerie_session_params *params,
                                  aerie_error *error)
{
    AE_NEED(session, error);
    *session = NULL;
    AE_NEED(model, error);
    return ae_session_create(session, model, params, NULL, error);
}

void aerie_session_kv_use(const aerie_session *session, aerie_kv_use *use, size_t size)
{
    if (use) memset(use, 0, size);
    if (!session || !use) return;
    const ae_kv *kv = ae_engine_kv(session->engine);
    const uint32_t n = ae_kv_n_pages(kv);
    const aerie_kv_use own = {AE_KV_PAGE, n, n - ae_kv_n_available(kv)};
    ae_struct_give(use, size, &own, sizeof own);
}

/* Warns of what a user may not expect of a new session. given: the parameters as asked for. */
static void tell_session(const aerie_session *s, const aerie_session_params *given)
{
    const aerie_log *log = &s->params.log;
    const uint32_t n_ctx = s->params.n_ctx, trained = s->model->model->hparams.n_ctx_train;
    if (trained && n_ctx > trained && !s->model->rope_given)
        ae_log_say(log, AERIE_LOG_WARNING, "a context (-c) of %u is more than the %u positions that the model was trained for; "
                   "beyond those its answers get worse. RoPE scaling (--rope-scaling) can extend its range", n_ctx, trained);
    const uint64_t n_kv = (uint64_t)ae_kv_n_pages(ae_engine_kv(s->engine)) * AE_KV_PAGE;
    if (given->n_kv && n_kv >= (uint64_t)given->n_kv + AE_KV_PAGE)
        ae_log_say(log, AERIE_LOG_WARNING,
                   "a KV cache of %u positions cannot hold one sequence of a context of %u, so it has %llu", given->n_kv, n_ctx,
                   (unsigned long long)n_kv);
    if (given->n_taps && s->params.spec.head && s->params.n_taps != given->n_taps)
        ae_log_say(log, AERIE_LOG_WARNING, "the session taps the rows that its drafter head needs, not the %u asked for",
                   given->n_taps);
    if (s->model->model->hparams.denoises && s->model->model->hparams.mask_token < 0)
        ae_log_say(log, AERIE_LOG_WARNING, "the model's file names no mask token (tokenizer.ggml.mask_token_id), so that it "
                   "cannot generate text; --override-kv tokenizer.ggml.mask_token_id=int:ID sets it");
    bool masks = false;
    for (uint32_t i = 0; i < s->n_types; i++) masks = masks || s->types[i] == AERIE_SPEC_NLD;
    if (given->spec.adapter && !masks)
        ae_log_say(log, AERIE_LOG_WARNING,
                   "the adapter for drafts (--spec-draft-lora) is not used: only speculation of type nld has one");
    if (s->mapped)
        ae_log_say(log, AERIE_LOG_INFO, "vocabularies: the model has %u tokens, the draft model %u; they share %.1f%% of the "
                   "model's, and only these are drafted; words with other "
                   "tokens are encoded by the draft model's own tokenizer",
                   s->overlap.n_target, s->overlap.n_draft, 100 * s->overlap.vocab_share);
}

/* params has the size of this library's struct. */
static aerie_status create_session(aerie_session **session, const aerie_model *model, const aerie_session_params *params,
                                   const ae_session_test *test, aerie_error *error)
{
    *session = NULL;
    if (!model || !model->net) return ae_fail(error, AERIE_ERROR_ARGUMENT, "a session needs a model loaded with its weights");
    AE_TRY(ae_session_check_decoder(model->model, error));
    aerie_session *s = ae_alloc(1, sizeof *s);
    if (!s) return ae_fail_memory(error, "a session", sizeof *s);
    s->model = model;
    if (test) s->test = *test;
    aerie_status status;
    ae_drafter *drafter;
    AE_TRY_GOTO(status, ae_session_resolve(model->model, params, test != NULL, &s->params, error), fail);
    ae_engine_options eo = ae_session_engine_options(&s->params, model->model->hparams.n_vocab);
    eo.vocab = model->vocab;
    ae_session_hold_texts(model->model, &s->params, &eo);
    if (model->model->hparams.denoises)
        AE_TRY_GOTO(status, ae_session_check_alone(model, "denoising answers", error), fail);
    eo.ranks = model->ranks, eo.commands = model->commands;
    if (aerie_model_rank(model, NULL)) {
        status = ae_fail(error, AERIE_ERROR_ARGUMENT, "a process that follows the first one of its group has no sessions");
        goto fail;
    }
    AE_TRY_GOTO(status, ae_session_check_engine(model->model, &model->net->split, &eo, "a session of this context size",
                                                "a smaller context (-c) or fewer sequences would fit", error), fail);
    AE_TRY_GOTO(status, ae_session_take_adapters(s, error), fail);
    AE_TRY_GOTO(status, ae_engine_create(&s->engine, model->net, &eo, error), fail);
    AE_TRY_GOTO(status, ae_session_source_open(s, error), fail);
    const bool any = params->spec.type == AERIE_SPEC_AUTO && !model->model->hparams.denoises;
    AE_TRY_GOTO(status, create_drafter(s, any, &drafter, error), fail);
    const aerie_spec *spec = &s->params.spec;
    const ae_spec_options so = {.vocab = model->vocab,
                                .n_chunk = s->params.n_batch,
                                .max_pause = s->params.max_pause * 1e-3,
                                .n_max = spec->n_max,
                                .n_min = spec->n_min,
                                .p_min = spec->p_min,
                                .shape = ae_session_shape(spec->tree),
                                .n_nodes = spec->n_nodes,
                                .top_k = spec->top_k,
                                .fixed = s->test.fixed,
                                .least_seconds = s->test.least_seconds,
                                .least_row_seconds = s->test.least_row_seconds,
                                .shared = s->params.max_turn > 0,
                                .share = {s->test.share[0], s->test.share[1], s->test.share[2]}};
    AE_TRY_GOTO(status, ae_spec_create(&s->spec, s->engine, drafter, &so, error), fail);
    AE_TRY_GOTO(status, ae_session_tasks_init(s, error), fail);
    *session = s;
    return AERIE_OK;
fail:
    aerie_session_free(s);
    return status;
}

aerie_status ae_session_create(aerie_session **session, const aerie_model *model, const aerie_session_params *params,
                                   const ae_session_test *test, aerie_error *error)
{
    *session = NULL;
    AE_STRUCT_TAKE(session_params, p, params, error);
    if (model && !p.log.call) p.log = model->log;
    aerie_spec *spec = &p.spec;
    aerie_error own, *why = error ? error : &own;
    aerie_status status = create_session(session, model, &p, test, why);
    while (status != AERIE_OK && spec->optional && spec->type == AERIE_SPEC_AUTO && (spec->head || spec->draft_model)) {
        const aerie_error first = *why;
        const char *what = spec->head ? "drafter head" : "draft model";
        if (spec->head) spec->head = NULL;
        else spec->draft_model = NULL;
        status = create_session(session, model, &p, test, why);
        if (status == AERIE_OK) ae_log_say(&p.log, AERIE_LOG_WARNING, "the %s is not used: %s", what, first.text);
    }
    if (status == AERIE_OK) tell_session(*session, &p);
    return status;
}

uint32_t aerie_session_n_ctx(const aerie_session *session)
{
    if (!session) return 0;
    return session->params.n_ctx;
}

const char *aerie_session_spec_name(const aerie_session *session)
{
    if (!session) return NULL;
    return session->spec_name;
}

const char *aerie_session_drafter_name(const aerie_session *session, uint32_t i)
{
    if (!session) return NULL;
    const aerie_spec_type type = i < session->n_types ? session->types[i] : AERIE_SPEC_NONE;
    if (i < session->n_types && session->names[i][0]) return session->names[i];
    return type == AERIE_SPEC_NONE || type == AERIE_SPEC_NGRAM ? NULL : ae_session_test_spec_name(type);
}
