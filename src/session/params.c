/* params.c - fills the defaults of a session's parameters, converts them to engine options, and computes the memory that they
 * take.
 *
 * Owns nothing: the parameters belong to the caller. Every value that a caller can ask for is checked here, once.
 */
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "session/session_int.h"

uint64_t ae_session_available(const ae_backend *backend)
{
    uint64_t n_free = 0, n_total;
    backend->ops->memory_info(backend, &n_free, &n_total);
    return n_free;
}

aerie_status ae_session_check_memory(const ae_backend *backend, const char *what, uint64_t needed, const char *advice,
                                     aerie_error *error)
{
    const uint64_t available = ae_session_available(backend);
    if (!available || needed <= available) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_MEMORY, "%s needs %.0f MiB of memory, but %.0f MiB are available; %s", what,
                   ae_session_mib(needed),
                   ae_session_mib(available), advice);
}

ae_load_options ae_session_net_options(const aerie_model_params *p)
{
    return (ae_load_options){p->n_threads ? p->n_threads : (uint32_t)ae_os_n_cores(), p->progress, p->user, p->mmap,
                             NULL};
}

aerie_status ae_session_check_decoder(const ae_model *model, aerie_error *error)
{
    if (model->hparams.decision.kind)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       "%s: a model of architecture %s with a decision head scores options (aerie serve, /v1/systemone), but "
                       "cannot generate text", ae_gguf_path(model->gguf), model->hparams.arch);
    if (!model->hparams.encoder) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                   "%s: architecture %s is an encoder: it embeds texts (aerie embed; aerie serve, "
                   "/v1/embeddings), but cannot generate any",
                   ae_gguf_path(model->gguf), model->hparams.arch);
}

aerie_status ae_session_check_drafts(const ae_model *model, aerie_error *error)
{
    AE_TRY(ae_session_check_decoder(model, error));
    if (model->hparams.crosses)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: a model of architecture %s has an encoder and a decoder; other "
                       "networks cannot draft for it, "
                       "nor it for them (n-grams can)", ae_gguf_path(model->gguf), model->hparams.arch);
    if (!model->hparams.denoises) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                   "%s: a model of architecture %s fills its answer in any order; it can neither "
                   "draft nor be drafted for", ae_gguf_path(model->gguf), model->hparams.arch);
}

#define DEFAULT_CTX 8192
#define DENOISED_CTX 512 /* context of a model that denoises, unless the caller asks for another: every step computes all of
                          * it */
#define MAX_SEQS 1024
#define FULL_SEQS 4 /* sequences whose full contexts fit the KV cache by default */

/* Returns the default size of the KV cache in positions: full contexts for four sequences, and an eighth of a context for each
 * further one. */
static uint32_t default_kv(const aerie_session_params *p)
{
    const uint64_t one = (uint64_t)p->n_ctx + AERIE_MAX_DRAFT + AE_KV_PAGE, n = p->n_seqs;
    const uint64_t all = n <= FULL_SEQS ? n * one
                                        : FULL_SEQS * one + (n - FULL_SEQS) * (one / 8 + AERIE_MAX_DRAFT + AE_KV_PAGE);
    return (uint32_t)(all < UINT32_MAX / 2 ? all : UINT32_MAX / 2);
}

/* Nothing drafts for answers that are not written from left to right. */
static aerie_status resolve_denoised(const ae_model *model, aerie_session_params *p, aerie_error *error)
{
    if (p->spec.type != AERIE_SPEC_AUTO && p->spec.type != AERIE_SPEC_NONE)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       "%s: a model of architecture %s fills its answer in any order, so nothing can be drafted for it "
                       "(--spec-type %s); use auto or none", ae_gguf_path(model->gguf),
                       model->hparams.arch, aerie_spec_type_name(p->spec.type));
    if (p->spec.draft_model || (p->spec.head && !p->spec.optional))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       "%s: a model of architecture %s fills its answer in any order, so nothing "
                       "can be drafted for it (-md)", ae_gguf_path(model->gguf), model->hparams.arch);
    p->spec.type = AERIE_SPEC_NONE;
    p->spec.head = NULL;
    p->spec.ngram = false;
    return AERIE_OK;
}

aerie_status ae_session_resolve(const ae_model *model, const aerie_session_params *params, bool tests, aerie_session_params *p,
                            aerie_error *error)
{
    *p = aerie_session_params_default();
    AE_TRY(ae_struct_take(p, sizeof *p, params, "aerie_session_params", error));
    AE_TRY(ae_struct_check_reserved(p->spec.reserved, sizeof p->spec.reserved / sizeof *p->spec.reserved, "aerie_spec", error));
    const uint32_t known = model->hparams.n_positions, said = model->hparams.n_ctx_train;
    const uint32_t train = known && (!said || known < said) ? known : said;
    if (!p->n_ctx && model->hparams.denoises) p->n_ctx = train && train < DENOISED_CTX ? train : DENOISED_CTX;
    if (!p->n_ctx) p->n_ctx = train && train < DEFAULT_CTX ? train : DEFAULT_CTX;
    if (p->n_ctx == AERIE_CTX_TRAINED) p->n_ctx = train ? train : DEFAULT_CTX;
    if (known && p->n_ctx > known)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the context size is %u; this model has a table of %u positions, so up to "
                       "that are possible", p->n_ctx, known);
    if (p->pool) p->n_threads = ae_pool_n_workers(p->pool->threads);
    if (!p->n_threads) p->n_threads = (uint32_t)ae_os_n_cores();
    if (!p->n_kv) p->n_kv = default_kv(p);
    const struct {
        const char *name;
        uint32_t value, lo, hi;
    } fields[] = {
        {"the context size", p->n_ctx, 8, AE_SESSION_MAX_CTX},
        {"the number of sequences", p->n_seqs, 1, MAX_SEQS},
        {"the batch size", p->n_batch, 1, 1u << 16},
        {"the number of threads", p->n_threads, 1, 1024},
        {"the number of checkpoints", p->n_checkpoints, 0, 1024},
        {"the longest pause", p->max_pause, 0, 3600000},
        {"the longest turn", p->max_turn, 0, AE_SESSION_MAX_CTX},
        {"the size of the KV cache", p->n_kv, 0, UINT32_MAX - AE_KV_PAGE},
        {"the draft length", p->spec.n_max, 1, AERIE_MAX_DRAFT},
        {"the shortest draft", p->spec.n_min, 0, AERIE_MAX_DRAFT},
        {"the size of a draft tree", p->spec.n_nodes, 0, AERIE_MAX_DRAFT},
        {"the number of children of a tree's node", p->spec.top_k, 0, AERIE_MAX_DRAFT},
        {"the length of an intermediate model's draft", p->spec.min_draft_length, 0, AERIE_MAX_DRAFT},
        {"a drafter head's window", p->spec.window, 0, AE_SESSION_MAX_CTX},
        {"the number of a drafter head's sinks", p->spec.n_sinks, 0, AE_SESSION_MAX_CTX},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].value < fields[i].lo || fields[i].value > fields[i].hi)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "%s is %u; %u to %u are possible", fields[i].name, fields[i].value,
                           fields[i].lo, fields[i].hi);
    if (!(p->spec.p_min >= 0 && p->spec.p_min <= 1)) /* NaN fails both comparisons */
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the least probability of a draft is %g; 0 to 1 are possible",
                       (double)p->spec.p_min);
    if (!aerie_kv_type_name(p->kv_type))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "KV cache type %d is unknown", (int)p->kv_type);
    if (p->n_taps > AERIE_MAX_TAPS)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%u taps are asked for; at most %d are possible", p->n_taps,
                       AERIE_MAX_TAPS);
    for (uint32_t i = 0; i < p->n_taps; i++)
        if (p->taps[i] > model->hparams.n_layers && p->taps[i] != AERIE_TAP_NORMED)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "tap %u is before layer %u, but the model has %u layers", i, p->taps[i],
                           model->hparams.n_layers);
    if (!aerie_tree_name(p->spec.tree))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "tree shape %d is unknown", (int)p->spec.tree);
    if (!(tests ? ae_session_test_spec_name : aerie_spec_type_name)(p->spec.type))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "speculation type %d is unknown", (int)p->spec.type);
    AE_TRY(ae_session_check_adapters(p, error));
    if (model->hparams.denoises) return resolve_denoised(model, p, error);
    AE_TRY(ae_session_resolve_head(p, error));
    const bool experts = model->hparams.experts.n || p->spec.skip_attn || p->spec.skip_ffn;
    if (p->spec.type == AERIE_SPEC_AUTO)
        p->spec.type = p->spec.draft_model ? AERIE_SPEC_DRAFT
                       : ae_session_masks_ahead(model) ? AERIE_SPEC_NLD : experts ? AERIE_SPEC_MOE : AERIE_SPEC_NGRAM;
    if (p->spec.type == AERIE_SPEC_DRAFT && !p->spec.draft_model)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "speculation by a draft model needs a draft model (-md)");
    if (p->spec.type == AERIE_SPEC_HIER && !p->spec.draft_model)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "speculation of type hier needs an intermediate model (-md)");
    p->spec.ngram = p->spec.ngram && ae_session_is_joined(p->spec.type) &&
                    (p->spec.tree == AERIE_TREE_AUTO || p->spec.tree == AERIE_TREE_OFF);
    return AERIE_OK;
}

/* Returns the most rows of a pass with logits: one for each sequence, and as many drafted rows as a limited amount of memory
 * holds. */
static uint32_t outputs_of(const aerie_session_params *p, uint32_t n_vocab)
{
    const uint64_t memory = 128u << 20, row = n_vocab * sizeof(float), trees = (uint64_t)p->n_seqs * (AERIE_MAX_DRAFT + 1);
    uint64_t n = memory / row;
    if (n < p->n_seqs + AERIE_MAX_DRAFT) n = p->n_seqs + AERIE_MAX_DRAFT;
    return (uint32_t)(n < trees ? n : trees);
}

ae_engine_options ae_session_engine_options(const aerie_session_params *p, uint32_t n_vocab)
{
    /* n_batch rows of prompts fit in addition to all rows that have logits */
    const uint32_t n_outputs = outputs_of(p, n_vocab);
    ae_engine_options o = {.n_ctx = p->n_ctx, .n_seqs = p->n_seqs, .n_batch = p->n_batch + n_outputs, .n_threads = p->n_threads,
                           .kv_type = ae_session_kv_type(p->kv_type), .n_taps = p->n_taps,
                           .pool = p->pool ? p->pool->threads : NULL,
                           .max_rank = ae_session_max_rank(p), .n_outputs = n_outputs,
                           .n_kv_pages = p->n_kv / AE_KV_PAGE + (p->n_kv % AE_KV_PAGE > 0)};
    const aerie_spec *spec = &p->spec;
    if (spec->type == AERIE_SPEC_NONE) o.n_records = 1;
    else if (spec->tree == AERIE_TREE_OFF) o.n_records = spec->n_max;
    else o.n_records = spec->n_nodes ? spec->n_nodes : 2 * spec->n_max;
    o.n_snapshots = p->n_seqs + p->n_checkpoints;
    o.n_windows = p->n_seqs + (p->n_checkpoints + 3) / 4; /* windows are larger than states */
    memcpy(o.taps, p->taps, sizeof o.taps);
    return o;
}

void ae_session_hold_texts(const ae_model *model, const aerie_session_params *p, ae_engine_options *o)
{
    const uint64_t memory = 256u << 20, row = model->hparams.n_vocab * sizeof(float), all = (uint64_t)p->n_ctx * p->n_seqs;
    uint64_t n = p->n_batch < all ? p->n_batch : all;
    if (!model->hparams.denoises) return;
    if (n > memory / row) n = memory / row;
    if (n < p->n_ctx) n = p->n_ctx;
    o->n_batch = o->n_outputs = (uint32_t)n;
    o->n_kv_pages = (uint32_t)n / AE_KV_PAGE + p->n_seqs + 1;
}

uint64_t ae_session_bytes(const ae_model *model, const ae_split *split, const ae_engine_options *o)
{
    const size_t bytes = ae_engine_plan_split(model, split, o, NULL);
    return bytes == SIZE_MAX ? bytes : bytes + (uint64_t)o->n_seqs * ae_sampler_plan_bytes(model->hparams.n_vocab);
}
