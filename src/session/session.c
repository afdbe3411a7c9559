/* session.c - aerie.h: argument checks, then calls inward. Holds no logic of its own. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "session/session_int.h"
#include "backend/backend.h"
#include "device/device.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/os.h"
#include "formats/kind.h"
#include "text/grammar/match.h"
#include "text/token/vocab.h"

const char *aerie_version(void)
{
#define TEXT(x) #x
#define VERSION(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)
    return VERSION(AERIE_VERSION_MAJOR, AERIE_VERSION_MINOR, AERIE_VERSION_PATCH);
}

const char *aerie_status_text(aerie_status status)
{
    return ae_status_text(status);
}

void aerie_free(void *memory)
{
    ae_free(memory);
}

const char *aerie_log_level_name(aerie_log_level level)
{
    static const char *const names[] = {"debug", "info", "warning"};
    return (size_t)level < sizeof names / sizeof names[0] ? names[level] : NULL;
}

/* ---- Models ------------------------------------------------------------------------------------------ */

const char *aerie_rope_scaling_name(aerie_rope_scaling scaling)
{
    return ae_model_rope_scaling_name(scaling);
}

bool aerie_rope_scaling_parse(const char *name, aerie_rope_scaling *scaling)
{
    if (!name || !scaling) return false;
    return ae_model_rope_scaling_parse(name, strlen(name), scaling);
}

const char *aerie_backend_names(void)
{
    return ae_backend_names();
}

void aerie_model_free(aerie_model *model)
{
    if (!model) return;
    ae_vocab_free(model->vocab);
    if (!model->model) ae_gguf_close(model->gguf);
    ae_net_free(model->net);
    ae_model_free(model->model);
    ae_backend_close(model->backend);
    ae_free(model);
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

aerie_status ae_api_check_memory(const char *what, uint64_t needed, const char *advice, aerie_error *error)
{
    const uint64_t available = ae_os_memory_available();
    if (!available || needed <= available) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_MEMORY, "%s needs %.0f MiB of memory, but %.0f MiB are available; %s", what, mib(needed),
                   mib(available), advice);
}

static aerie_status load_vocab(aerie_model *m, const char *path, const aerie_model_params *p, aerie_error *error)
{
    const ae_gguf_options options = {.index_only = p->no_mmap, .overrides = p->overrides, .n_overrides = p->n_overrides};
    AE_TRY(ae_gguf_open(&m->gguf, path, &options, error));
    AE_TRY(ae_role_need(m->gguf, AE_ROLE_MODEL, error));
    return ae_vocab_create(&m->vocab, m->gguf, error);
}

ae_load_options ae_api_net_options(const aerie_model_params *p)
{
    return (ae_load_options){p->n_threads ? p->n_threads : (uint32_t)ae_os_n_cores(), p->progress, p->user, p->mmap};
}

static aerie_status load_weights(aerie_model *m, const char *path, const aerie_model_params *p, aerie_error *error)
{
    const ae_model_options options = {.no_mmap = p->no_mmap, .rope = p->rope, .overrides = p->overrides,
                                      .n_overrides = p->n_overrides};
    AE_TRY(ae_backend_open(&m->backend, p->backend, p->cpu_level, error));
    AE_TRY(ae_model_load(&m->model, path, &options, error));
    AE_TRY(ae_vocab_create(&m->vocab, m->model->gguf, error));
    const ae_load_options net = ae_api_net_options(p);
    size_t bytes;
    AE_TRY(ae_net_plan_bytes(&bytes, m->model, m->backend, &net, error));
    AE_TRY(ae_api_check_memory("this model", bytes, "a smaller model or quantization would fit", error));
    AE_TRY(ae_net_create(&m->net, m->model, m->backend, &net, error));
    return ae_api_fingerprint(m->model->gguf, &m->fingerprint, error);
}

static bool is_key_of_file(const ae_gguf *gguf, const char *name, size_t n)
{
    for (size_t i = 0; i < ae_gguf_n_kv(gguf); i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_at(gguf, i);
        if (kv->key.n == n && !memcmp(kv->key.data, name, n)) return true;
    }
    return false;
}

/* Whether nothing can have come of an override; a vocabulary alone reads less than models do, and ids of special tokens and
 * what is general are read when somebody asks. */
static bool is_idle(const aerie_model *m, const ae_gguf *gguf, const aerie_model_params *p, size_t i)
{
    const char *text = p->overrides[i], *equals = strchr(text, '='), *id = strstr(text, "_token_id=");
    return m->model && !ae_gguf_override_was_read(gguf, i) && strncmp(text, "general.", 8) && (!id || id > equals);
}

/* What the loaded model is, and what of the overrides may be a slip. */
static void tell_loaded(const aerie_model *m, const aerie_model_params *p)
{
    const ae_gguf *gguf = m->model ? m->model->gguf : m->gguf;
    for (size_t i = 0; i < p->n_overrides; i++) {
        const size_t n = strcspn(p->overrides[i], "=");
        if (is_key_of_file(gguf, p->overrides[i], n)) continue;
        if (is_idle(m, gguf, p, i))
            ae_log_say(&p->log, AERIE_LOG_WARNING,
                       "override '%.80s' changes nothing: the file has no key of this name, and models of architecture %s "
                       "do not read it",
                       p->overrides[i], m->model->hparams.arch);
        else
            ae_log_say(&p->log, AERIE_LOG_INFO, "override '%.80s': the file has no key of this name, so it is added",
                       p->overrides[i]);
    }
    if (*ae_vocab_warning(m->vocab))
        ae_log_say(&p->log, AERIE_LOG_WARNING, "%.300s: %s", ae_gguf_path(gguf), ae_vocab_warning(m->vocab));
    if (!m->model) return;
    const ae_parts *parts = &m->net->parts;
    const double seconds = parts->fill_seconds, rate = seconds > 0 ? (double)parts->fill_bytes / 1e9 / seconds : 0;
    ae_log_say(&p->log, AERIE_LOG_INFO, "loaded '%s' (%s, %.1f M parameters) in %.2f s: read %.1f MiB in %.2f s (%.2f GB/s), "
               "weights take %.1f MiB, kernels: %s", m->model->name, m->model->hparams.arch, (double)m->model->n_params / 1e6,
               m->load_seconds, mib(parts->fill_bytes), seconds, rate, mib(parts->bytes), ae_backend_cpu_level(m->backend));
    const char *tiles = ae_backend_cpu_choices(m->backend);
    if (*tiles) ae_log_say(&p->log, AERIE_LOG_DEBUG, "kernels: matrix tiles are used, as measured, for %s", tiles);
}

aerie_status aerie_model_load(aerie_model **model, const char *path, const aerie_model_params *params, aerie_error *error)
{
    AE_API_NEED(model, error);
    AE_API_NEED(path, error);
    *model = NULL;
    AE_API_TAKE(model_params, p, params, error);
    AE_API_TAKE(rope, rope, p.rope, error);
    if (p.rope) p.rope = &rope;
    if (!path || !*path) return ae_fail(error, AERIE_ERROR_ARGUMENT, "no model file is named");
    if (p.mmap && p.no_mmap) return ae_fail(error, AERIE_ERROR_ARGUMENT, "mmap and no_mmap exclude each other");
    const double start = ae_time_now();
    aerie_model *m = ae_alloc(1, sizeof *m);
    if (!m) return ae_fail_memory(error, "a model", sizeof *m);
    const aerie_status status = p.vocab_only ? load_vocab(m, path, &p, error) : load_weights(m, path, &p, error);
    m->load_seconds = ae_time_now() - start;
    m->settings = ae_api_settings_hash(&p);
    m->log = p.log;
    m->rope_given = p.rope != NULL;
    if (status != AERIE_OK) {
        aerie_model_free(m);
        return status;
    }
    tell_loaded(m, &p);
    *model = m;
    return AERIE_OK;
}

static void fill_info(const aerie_model *model, aerie_model_info *info)
{
    *info = (aerie_model_info){.name = "", .arch = "", .cpu_level = "", .cpu_tiles = ""};
    info->tokenizer = ae_vocab_kind(model->vocab);
    info->n_vocab = (uint32_t)ae_vocab_n_tokens(model->vocab);
    info->bos = ae_vocab_bos(model->vocab);
    info->eos = ae_vocab_eos(model->vocab);
    info->load_seconds = model->load_seconds;
    info->chat_template = ae_vocab_chat_template(model->vocab);
    info->has_chat_template = info->chat_template != NULL;
    if (!model->model) {
        info->file_bytes = ae_gguf_file_bytes(model->gguf);
        return;
    }
    const ae_hparams *h = &model->model->hparams;
    info->name = model->model->name;
    info->arch = h->arch;
    info->cpu_level = ae_backend_cpu_level(model->backend);
    info->cpu_tiles = ae_backend_cpu_choices(model->backend);
    info->n_params = model->model->n_params;
    info->file_bytes = ae_gguf_file_bytes(model->model->gguf);
    info->weight_bytes = model->net->parts.bytes;
    info->load_bytes = model->net->parts.fill_bytes;
    info->fill_seconds = model->net->parts.fill_seconds;
    info->n_ctx_train = h->n_ctx_train;
    info->n_embd = h->n_embd;
    info->n_layers = h->n_layers;
    info->n_heads = h->n_heads;
    info->n_kv_heads = h->n_kv_heads;
    info->n_ff = h->n_ff;
    info->n_experts = h->experts.n;
    info->n_experts_used = h->experts.n ? h->experts.n_used : 0;
    info->is_encoder = h->encoder;
    info->pooling = ae_api_pooling(model->model);
}

void aerie_model_info_get(const aerie_model *model, aerie_model_info *info, size_t size)
{
    if (info) memset(info, 0, size);
    if (!model || !info) return;
    aerie_model_info own;
    fill_info(model, &own);
    ae_api_give(info, size, &own, sizeof own);
}

uint64_t aerie_model_pass_bytes(const aerie_model *model)
{
    if (!model) return 0;
    return model->net ? model->net->pass_bytes : 0;
}

/* ---- Text ----------------------------------------------------------------------------------------------- */

aerie_status ae_api_tokenize(const aerie_model *model, const char *text, size_t n, ae_encode_options options, int32_t **tokens,
                             size_t *n_tokens, aerie_error *error)
{
    ae_tokens list = {0};
    *tokens = NULL;
    *n_tokens = 0;
    const aerie_status status = ae_vocab_encode(model->vocab, text, n, options, &list, error);
    if (status != AERIE_OK) {
        ae_tokens_free(&list);
        return status;
    }
    *tokens = list.data;
    *n_tokens = list.n;
    return AERIE_OK;
}

aerie_status aerie_tokenize(const aerie_model *model, const char *text, size_t n, bool add_special, bool parse_special,
                            int32_t **tokens, size_t *n_tokens, aerie_error *error)
{
    AE_API_NEED(model, error);
    AE_API_NEED(tokens, error);
    AE_API_NEED(n_tokens, error);
    AE_API_NEED_IF(n, text, error);
    const ae_encode_options options = {.add_special = add_special, .parse_special = parse_special};
    return ae_api_tokenize(model, text, n, options, tokens, n_tokens, error);
}

aerie_status ae_api_give_text(ae_buf *buf, char **text, size_t *n, aerie_error *error)
{
    ae_buf_add(buf, "", 0); /* so that an empty text is "" */
    if (buf->failed) {
        ae_buf_free(buf);
        return ae_fail_memory(error, "a text", buf->n);
    }
    *text = buf->data;
    *n = buf->n;
    return AERIE_OK;
}

aerie_status aerie_detokenize(const aerie_model *model, const int32_t *tokens, size_t n_tokens, bool special, char **text,
                              size_t *n, aerie_error *error)
{
    AE_API_NEED(model, error);
    AE_API_NEED(text, error);
    AE_API_NEED(n, error);
    AE_API_NEED_IF(n_tokens, tokens, error);
    ae_buf buf = {0};
    ae_detok detok = {.vocab = model->vocab, .special = special};
    const int32_t n_vocab = ae_vocab_n_tokens(model->vocab);
    *text = NULL;
    *n = 0;
    for (size_t i = 0; i < n_tokens; i++) {
        if (tokens[i] < 0 || tokens[i] >= n_vocab) {
            ae_buf_free(&buf);
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "token %zu is %d; 0 to %d are possible", i, tokens[i], n_vocab - 1);
        }
        ae_detok_add(&detok, tokens[i], &buf);
    }
    ae_detok_end(&detok, &buf);
    return ae_api_give_text(&buf, text, n, error);
}

bool aerie_token_is_eog(const aerie_model *model, int32_t token)
{
    if (!model) return false;
    return token >= 0 && token < ae_vocab_n_tokens(model->vocab) && ae_vocab_is_eog(model->vocab, token);
}

/* ---- Grammars ------------------------------------------------------------------------------------------------ */

aerie_status aerie_grammar_create(aerie_grammar **grammar, const char *gbnf, size_t n, aerie_error *error)
{
    AE_API_NEED(grammar, error);
    AE_API_NEED_IF(n, gbnf, error);
    return ae_grammar_from_gbnf(grammar, gbnf, n, error);
}

aerie_status aerie_grammar_create_schema_with(aerie_grammar **grammar, const char *json, size_t n,
                                              const aerie_schema_params *params, aerie_error *error)
{
    AE_API_NEED(grammar, error);
    AE_API_NEED_IF(n, json, error);
    *grammar = NULL;
    AE_API_TAKE(schema_params, own, params, error);
    ae_buf said = {0};
    aerie_status status = ae_grammar_from_schema_with(grammar, json, n, &own, own.log.call ? &said : NULL, error);
    if (status == AERIE_OK && said.failed) {
        ae_grammar_free(*grammar);
        *grammar = NULL;
        status = ae_fail_memory(error, "a warning", said.n);
    }
    if (status == AERIE_OK && said.n)
        ae_log_say(&own.log, AERIE_LOG_WARNING, "%.*s", (int)(said.n < INT_MAX ? said.n : INT_MAX), said.data);
    ae_buf_free(&said);
    return status;
}

aerie_status aerie_grammar_create_schema(aerie_grammar **grammar, const char *json, size_t n, bool standard, aerie_error *error)
{
    AE_API_NEED(grammar, error);
    AE_API_NEED_IF(n, json, error);
    return ae_grammar_from_schema(grammar, json, n, standard, error);
}

aerie_status aerie_grammar_create_lazy(aerie_grammar **grammar, const aerie_lazy_params *params, aerie_error *error)
{
    AE_API_NEED(grammar, error);
    AE_API_NEED(params, error);
    *grammar = NULL;
    AE_API_TAKE(lazy_params, own, params, error);
    return ae_grammar_lazy(grammar, &own, error);
}

void aerie_grammar_free(aerie_grammar *grammar)
{
    ae_grammar_free(grammar);
}

aerie_status aerie_grammar_check(const aerie_grammar *grammar, const char *text, size_t n, bool *accepted, size_t *n_good,
                                 aerie_error *error)
{
    AE_API_NEED(grammar, error);
    AE_API_NEED(accepted, error);
    AE_API_NEED(n_good, error);
    AE_API_NEED_IF(n, text, error);
    ae_matcher m;
    AE_TRY(ae_matcher_init(&m, grammar, error));
    *n_good = 0;
    while (*n_good < n && ae_matcher_advance(&m, text + *n_good, 1)) (*n_good)++;
    *accepted = *n_good == n && ae_matcher_may_end(&m, m.current);
    const bool limit = m.limit_hit && *n_good < n;
    ae_matcher_free(&m);
    if (!limit) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_LIMIT, "the grammar has too many ways, or nests too deep, behind byte %zu", *n_good);
}

/* ---- Parameters --------------------------------------------------------------------------------------------- */

aerie_sampling aerie_sampling_default(void)
{
    return ae_sampling_default();
}

aerie_status ae_api_check_decoder(const ae_model *model, aerie_error *error)
{
    if (!model->hparams.encoder) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                   "%s: architecture %s is an encoder: it embeds texts (aerie embed), but cannot "
                   "generate any",
                   ae_gguf_path(model->gguf), model->hparams.arch);
}

static const char *const spec_names[] = {
    [AERIE_SPEC_AUTO] = "auto",
    [AERIE_SPEC_NONE] = "none",
    [AERIE_SPEC_NGRAM] = "ngram",
    [AERIE_SPEC_DRAFT] = "draft",
    [AERIE_SPEC_EAGLE] = "draft-eagle",
    [AERIE_SPEC_EAGLE3] = "draft-eagle3",
    [AERIE_SPEC_MEDUSA] = "draft-medusa",
    [AERIE_SPEC_MTP] = "draft-mtp",
    [AERIE_SPEC_MOE] = "moe",
    [AERIE_SPEC_HIER] = "hier",
};
#define N_SPEC_TYPES (sizeof spec_names / sizeof spec_names[0])

/* Those that n-grams go beside. */
static bool is_joined(aerie_spec_type type)
{
    return type >= AERIE_SPEC_DRAFT && (size_t)type < N_SPEC_TYPES;
}

const char *aerie_spec_type_name(aerie_spec_type type)
{
    return (size_t)type < N_SPEC_TYPES ? spec_names[type] : NULL;
}

bool aerie_spec_type_parse(const char *name, aerie_spec_type *type)
{
    if (!name || !type) return false;
    for (size_t i = 0; i < N_SPEC_TYPES; i++)
        if (!strcmp(spec_names[i], name)) {
            *type = (aerie_spec_type)i;
            return true;
        }
    return false;
}

static const struct kv_name {
    const char *name;
    ae_kv_type type;
} kv_names[] = {
    [AERIE_KV_F16] = {"f16", AE_KV_F16},
    [AERIE_KV_Q8_0] = {"q8_0", AE_KV_Q8_0},
};
#define N_KV_TYPES (sizeof kv_names / sizeof kv_names[0])

const char *aerie_kv_type_name(aerie_kv_type type)
{
    return (size_t)type < N_KV_TYPES ? kv_names[type].name : NULL;
}

bool aerie_kv_type_parse(const char *name, aerie_kv_type *type)
{
    if (!name || !type) return false;
    for (size_t i = 0; i < N_KV_TYPES; i++)
        if (!strcmp(kv_names[i].name, name)) {
            *type = (aerie_kv_type)i;
            return true;
        }
    return false;
}

aerie_spec aerie_spec_default(void)
{
    return (aerie_spec){.type = AERIE_SPEC_AUTO, .n_max = 16, .tree = AERIE_TREE_AUTO, .ngram = true, .moe_experts = 1};
}

#define DEFAULT_CTX 8192
#define MAX_SEQS 1024
#define FULL_SEQS 4 /* sequences whose whole contexts fit the KV cache by default */

/* Positions of the KV cache: whole contexts for four sequences, an eighth of one for each further one. */
static uint32_t default_kv(const aerie_session_params *p)
{
    const uint64_t one = (uint64_t)p->n_ctx + AERIE_MAX_DRAFT + AE_KV_PAGE, n = p->n_seqs;
    const uint64_t all = n <= FULL_SEQS ? n * one : FULL_SEQS * one + (n - FULL_SEQS) * (one / 8 + AERIE_MAX_DRAFT + AE_KV_PAGE);
    return (uint32_t)(all < UINT32_MAX / 2 ? all : UINT32_MAX / 2);
}

aerie_status ae_api_resolve(const ae_model *model, const aerie_session_params *params, bool tests, aerie_session_params *p,
                            aerie_error *error)
{
    *p = aerie_session_params_default();
    AE_TRY(ae_api_take(p, sizeof *p, params, "aerie_session_params", error));
    AE_TRY(ae_api_check_reserved(p->spec.reserved, sizeof p->spec.reserved / sizeof *p->spec.reserved, "aerie_spec", error));
    const uint32_t train = model->hparams.n_ctx_train;
    if (!p->n_ctx) p->n_ctx = train && train < DEFAULT_CTX ? train : DEFAULT_CTX;
    if (p->n_ctx == AERIE_CTX_TRAINED) p->n_ctx = train ? train : DEFAULT_CTX;
    if (p->pool) p->n_threads = ae_pool_n_workers(p->pool->threads);
    if (!p->n_threads) p->n_threads = (uint32_t)ae_os_n_cores();
    if (!p->n_kv) p->n_kv = default_kv(p);
    const struct {
        const char *name;
        uint32_t value, lo, hi;
    } fields[] = {
        {"the context size", p->n_ctx, 8, AE_API_MAX_CTX},
        {"the number of sequences", p->n_seqs, 1, MAX_SEQS},
        {"the batch size", p->n_batch, 1, 1u << 16},
        {"the number of threads", p->n_threads, 1, 1024},
        {"the number of checkpoints", p->n_checkpoints, 0, 1024},
        {"the longest pause", p->max_pause, 0, 3600000},
        {"the size of the KV cache", p->n_kv, 0, UINT32_MAX - AE_KV_PAGE},
        {"the draft length", p->spec.n_max, 1, AERIE_MAX_DRAFT},
        {"the shortest draft", p->spec.n_min, 0, AERIE_MAX_DRAFT},
        {"the size of a draft tree", p->spec.n_nodes, 0, AERIE_MAX_DRAFT},
        {"the number of children of a tree's node", p->spec.top_k, 0, AERIE_MAX_DRAFT},
        {"the length of an intermediate model's draft", p->spec.min_draft_length, 0, AERIE_MAX_DRAFT},
        {"a drafter head's window", p->spec.window, 0, AE_API_MAX_CTX},
        {"the number of a drafter head's sinks", p->spec.n_sinks, 0, AE_API_MAX_CTX},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].value < fields[i].lo || fields[i].value > fields[i].hi)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "%s is %u; %u to %u are possible", fields[i].name, fields[i].value,
                           fields[i].lo, fields[i].hi);
    if (!(p->spec.p_min >= 0 && p->spec.p_min <= 1)) /* NaN is neither */
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
    if (!(tests ? ae_api_test_spec_name : aerie_spec_type_name)(p->spec.type))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "speculation type %d is unknown", (int)p->spec.type);
    AE_TRY(ae_api_check_adapters(p, error));
    AE_TRY(ae_api_resolve_drafter_head(p, error));
    const bool experts = model->hparams.experts.n || p->spec.skip_attn || p->spec.skip_ffn;
    if (p->spec.type == AERIE_SPEC_AUTO)
        p->spec.type = p->spec.draft_model ? AERIE_SPEC_DRAFT : experts ? AERIE_SPEC_MOE : AERIE_SPEC_NGRAM;
    if (p->spec.type == AERIE_SPEC_DRAFT && !p->spec.draft_model)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "speculation by a draft model needs a draft model (-md)");
    if (p->spec.type == AERIE_SPEC_HIER && !p->spec.draft_model)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "speculation of type hier needs an intermediate model (-md)");
    p->spec.ngram = p->spec.ngram && is_joined(p->spec.type) &&
                    (p->spec.tree == AERIE_TREE_AUTO || p->spec.tree == AERIE_TREE_OFF);
    return AERIE_OK;
}

/* Rows of a pass that may have logits: a token for each sequence, and of drafts what some memory holds. */
static uint32_t outputs_of(const aerie_session_params *p, uint32_t n_vocab)
{
    const uint64_t memory = 128u << 20, row = n_vocab * sizeof(float), trees = (uint64_t)p->n_seqs * (AERIE_MAX_DRAFT + 1);
    uint64_t n = memory / row;
    if (n < p->n_seqs + AERIE_MAX_DRAFT) n = p->n_seqs + AERIE_MAX_DRAFT;
    return (uint32_t)(n < trees ? n : trees);
}

ae_engine_options ae_api_engine_options(const aerie_session_params *p, uint32_t n_vocab)
{
    /* so many rows of prompts fit a pass beside all the rows that have logits */
    const uint32_t n_outputs = outputs_of(p, n_vocab);
    ae_engine_options o = {.n_ctx = p->n_ctx, .n_seqs = p->n_seqs, .n_batch = p->n_batch + n_outputs, .n_threads = p->n_threads,
                           .kv_type = kv_names[p->kv_type].type, .n_taps = p->n_taps,
                           .pool = p->pool ? p->pool->threads : NULL,
                           .max_rank = ae_api_max_rank(p), .n_outputs = n_outputs,
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

/* With the samplers of as many requests as run at once. */
static uint64_t session_bytes(const ae_model *model, const ae_backend *backend, const ae_engine_options *o)
{
    const size_t bytes = ae_engine_plan_bytes(model, backend, o);
    return bytes == SIZE_MAX ? bytes : bytes + (uint64_t)o->n_seqs * ae_sampler_plan_bytes(model->hparams.n_vocab);
}

aerie_status aerie_memory_plan_get(const char *path, const aerie_model_params *model_params,
                                   const aerie_session_params *session_params, aerie_memory_plan *theirs, size_t plan_size,
                                   aerie_error *error)
{
    AE_API_NEED(path, error);
    AE_API_NEED(theirs, error);
    aerie_memory_plan own = {.available_bytes = ae_os_memory_available()}, *plan = &own;
    ae_api_give(theirs, plan_size, plan, sizeof *plan);
    AE_API_TAKE(model_params, mp, model_params, error);
    AE_API_TAKE(rope, rope, mp.rope, error);
    if (mp.rope) mp.rope = &rope;
    const ae_model_options options = {.no_mmap = mp.no_mmap, .rope = mp.rope, .overrides = mp.overrides,
                                      .n_overrides = mp.n_overrides};
    aerie_session_params sp;
    ae_backend *backend;
    ae_model *model = NULL;
    AE_TRY(ae_backend_open(&backend, mp.backend, mp.cpu_level, error));
    const ae_load_options no = ae_api_net_options(&mp);
    size_t weight_bytes = 0;
    aerie_status status = ae_model_load(&model, path, &options, error);
    if (status == AERIE_OK) status = ae_net_plan_bytes(&weight_bytes, model, backend, &no, error);
    if (status == AERIE_OK && model->hparams.encoder) {
        plan->session_bytes = ae_api_embedder_bytes(model, backend);
    } else if (status == AERIE_OK) {
        status = ae_api_resolve(model, session_params, false, &sp, error);
    }
    if (status == AERIE_OK && !model->hparams.encoder) {
        const ae_engine_options eo = ae_api_engine_options(&sp, model->hparams.n_vocab);
        plan->session_bytes = session_bytes(model, backend, &eo);
    }
    if (status == AERIE_OK) plan->weight_bytes = weight_bytes;
    ae_api_give(theirs, plan_size, plan, sizeof *plan);
    ae_model_free(model);
    ae_backend_close(backend);
    return status;
}

/* ---- Thread pools ---------------------------------------------------------------------------------------------- */

aerie_status aerie_pool_create(aerie_pool **pool, uint32_t n_threads, aerie_error *error)
{
    AE_API_NEED(pool, error);
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

static aerie_status create_one(aerie_session *s, aerie_spec_type type, ae_drafter **drafter, aerie_error *error)
{
    *drafter = NULL;
    if (!aerie_spec_type_name(type)) return ae_api_test_create_drafter(s, drafter, error);
    switch (type) {
    case AERIE_SPEC_NGRAM: return ae_draft_ngram_create(drafter, s->params.n_seqs, error);
    case AERIE_SPEC_DRAFT: return ae_api_create_draft_model(s, drafter, error);
    case AERIE_SPEC_MOE: return ae_api_create_self(s, drafter, error);
    case AERIE_SPEC_HIER: return ae_api_create_hier(s, drafter, error);
    case AERIE_SPEC_EAGLE:
    case AERIE_SPEC_EAGLE3:
    case AERIE_SPEC_MEDUSA:
    case AERIE_SPEC_MTP: return ae_api_create_head_drafter(s, drafter, error);
    default: return AERIE_OK;
    }
}

/* What there is besides the one that AUTO stands for. */
static void list_types(aerie_session *s, bool any)
{
    const aerie_spec *spec = &s->params.spec;
    s->types[s->n_types++] = spec->type;
    if (!any || !(spec->tree == AERIE_TREE_AUTO || spec->tree == AERIE_TREE_OFF)) return;
    const bool experts = s->model->model->hparams.experts.n || spec->skip_attn || spec->skip_ffn;
    if (spec->draft_model && spec->type != AERIE_SPEC_DRAFT) s->types[s->n_types++] = AERIE_SPEC_DRAFT;
    if (spec->draft_model && spec->inner) s->types[s->n_types++] = AERIE_SPEC_HIER;
    if (experts && spec->type != AERIE_SPEC_MOE) s->types[s->n_types++] = AERIE_SPEC_MOE;
}

static void name_drafters(aerie_session *s)
{
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_types; i++)
        n += (size_t)snprintf(s->spec_name + n, sizeof s->spec_name - n, "%s%s", i ? "+" : "",
                              ae_api_test_spec_name(s->types[i]));
    if (s->params.spec.ngram) snprintf(s->spec_name + n, sizeof s->spec_name - n, "+ngram");
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
        status = create_one(s, s->types[n], &all[n], &why);
        if (status == AERIE_ERROR_UNSUPPORTED && n) { /* one that nobody asked for by name */
            ae_log_say(&s->params.log, AERIE_LOG_WARNING, "no speculation of type %s: %s", aerie_spec_type_name(s->types[n]),
                       why.text);
            memmove(&s->types[n], &s->types[n + 1], (--s->n_types - n) * sizeof *s->types);
            status = AERIE_OK;
        } else if (status != AERIE_OK) {
            ae_fail(error, status, "%s", why.text);
        } else {
            n++;
        }
    }
    if (status != AERIE_OK) {
        while (n) n--, all[n]->ops->destroy(all[n]);
        return status;
    }
    name_drafters(s);
    if (n > 1) AE_TRY(ae_draft_choice_create(&one, all, n, error));
    else one = all[0];
    if (s->params.spec.ngram) return ae_draft_joined_create(drafter, one, s->params.n_seqs, error);
    *drafter = one;
    return AERIE_OK;
}

void aerie_session_free(aerie_session *session)
{
    if (!session) return;
    ae_api_tasks_free(session);
    ae_spec_free(session->spec);
    aerie_session_free(session->inner);
    ae_engine_free(session->engine);
    ae_free(session->adapters);
    ae_free(session);
}

aerie_status aerie_session_create(aerie_session **session, const aerie_model *model, const aerie_session_params *params,
                                  aerie_error *error)
{
    AE_API_NEED(session, error);
    AE_API_NEED(model, error);
    return ae_api_session_create(session, model, params, NULL, error);
}

void aerie_session_kv_use(const aerie_session *session, aerie_kv_use *use, size_t size)
{
    if (use) memset(use, 0, size);
    if (!session || !use) return;
    const ae_kv *kv = ae_engine_kv(session->engine);
    const uint32_t n = ae_kv_n_pages(kv);
    const aerie_kv_use own = {AE_KV_PAGE, n, n - ae_kv_n_available(kv)};
    ae_api_give(use, size, &own, sizeof own);
}

/* What of a new session its user may not expect. given: as asked for. */
static void tell_session(const aerie_session *s, const aerie_session_params *given)
{
    const aerie_log *log = &s->params.log;
    const uint32_t n_ctx = s->params.n_ctx, trained = s->model->model->hparams.n_ctx_train;
    if (trained && n_ctx > trained && !s->model->rope_given)
        ae_log_say(log, AERIE_LOG_WARNING, "a context (-c) of %u is more than the %u positions that the model was trained for; "
                   "beyond those its answers get worse. RoPE scaling (--rope-scaling) stretches what it knows", n_ctx, trained);
    const uint64_t n_kv = (uint64_t)ae_kv_n_pages(ae_engine_kv(s->engine)) * AE_KV_PAGE;
    if (given->n_kv && n_kv >= (uint64_t)given->n_kv + AE_KV_PAGE)
        ae_log_say(log, AERIE_LOG_WARNING,
                   "a KV cache of %u positions cannot hold one sequence of a context of %u, so it has %llu", given->n_kv, n_ctx,
                   (unsigned long long)n_kv);
    if (given->n_taps && s->params.spec.head && s->params.n_taps != given->n_taps)
        ae_log_say(log, AERIE_LOG_WARNING, "the session taps the rows that its drafter head needs, not the %u asked for",
                   given->n_taps);
    if (s->mapped)
        ae_log_say(log, AERIE_LOG_INFO, "vocabularies: the model has %u tokens, the draft model %u; they share %.1f%% of the "
                   "model's, and drafts are made of those; words with others are spelled in the draft model's own tokens",
                   s->overlap.n_target, s->overlap.n_draft, 100 * s->overlap.vocab_share);
}

/* params: of this library's size. */
static aerie_status create_session(aerie_session **session, const aerie_model *model, const aerie_session_params *params,
                                   const ae_api_test *test, aerie_error *error)
{
    *session = NULL;
    if (!model || !model->net) return ae_fail(error, AERIE_ERROR_ARGUMENT, "a session needs a model loaded with its weights");
    AE_TRY(ae_api_check_decoder(model->model, error));
    aerie_session *s = ae_alloc(1, sizeof *s);
    if (!s) return ae_fail_memory(error, "a session", sizeof *s);
    s->model = model;
    if (test) s->test = *test;
    aerie_status status;
    ae_drafter *drafter;
    AE_TRY_GOTO(status, ae_api_resolve(model->model, params, test != NULL, &s->params, error), fail);
    ae_engine_options eo = ae_api_engine_options(&s->params, model->model->hparams.n_vocab);
    eo.vocab = model->vocab;
    const uint64_t bytes = session_bytes(model->model, model->backend, &eo);
    AE_TRY_GOTO(status, ae_api_check_memory("a session of this context size", bytes,
                                            "a smaller context (-c) or fewer sequences would fit", error), fail);
    AE_TRY_GOTO(status, ae_api_take_adapters(s, error), fail);
    AE_TRY_GOTO(status, ae_engine_create(&s->engine, model->net, &eo, error), fail);
    AE_TRY_GOTO(status, create_drafter(s, params->spec.type == AERIE_SPEC_AUTO, &drafter, error), fail);
    const aerie_spec *spec = &s->params.spec;
    const ae_spec_options so = {.vocab = model->vocab,
                                .n_chunk = s->params.n_batch,
                                .max_pause = s->params.max_pause * 1e-3,
                                .n_max = spec->n_max,
                                .n_min = spec->n_min,
                                .p_min = spec->p_min,
                                .shape = ae_api_shape(spec->tree),
                                .n_nodes = spec->n_nodes,
                                .top_k = spec->top_k,
                                .fixed = s->test.fixed,
                                .least_seconds = s->test.least_seconds,
                                .least_row_seconds = s->test.least_row_seconds};
    AE_TRY_GOTO(status, ae_spec_create(&s->spec, s->engine, drafter, &so, error), fail);
    AE_TRY_GOTO(status, ae_api_tasks_init(s, error), fail);
    *session = s;
    return AERIE_OK;
fail:
    aerie_session_free(s);
    return status;
}

aerie_status ae_api_session_create(aerie_session **session, const aerie_model *model, const aerie_session_params *params,
                                   const ae_api_test *test, aerie_error *error)
{
    *session = NULL;
    AE_API_TAKE(session_params, p, params, error);
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
    return type == AERIE_SPEC_NONE || type == AERIE_SPEC_NGRAM ? NULL : ae_api_test_spec_name(type);
}
