/* model.c - aerie.h: loads a model, and answers what is known about it.
 *
 * Owns aerie_model: the file, its vocabulary and its weights on devices. Immutable once loaded; shared by sessions and threads.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "aerie_measure.h"
#include "base/mem.h"
#include "base/os.h"
#include "device/device.h"
#include "formats/kind.h"
#include "model/arch.h"
#include "session/session_int.h"

void aerie_model_free(aerie_model *model)
{
    if (!model) return;
    ae_vocab_free(model->vocab);
    if (!model->model) ae_gguf_close(model->gguf);
    ae_net_free(model->net);
    ae_net_free(model->source_net);
    ae_session_leave(model);
    ae_model_free(model->source);
    ae_model_free(model->model);
    ae_session_close_devices(&model->devices);
    ae_free(model);
}

static aerie_status load_vocab(aerie_model *m, const char *path, const aerie_model_params *p, aerie_error *error)
{
    const ae_gguf_options options = {.index_only = p->no_mmap, .overrides = p->overrides, .n_overrides = p->n_overrides};
    AE_TRY(ae_gguf_open(&m->gguf, path, &options, error));
    AE_TRY(ae_role_need(m->gguf, AE_ROLE_MODEL, error));
    const aerie_status status = ae_vocab_create(&m->vocab, m->gguf, error);
    ae_gguf_string arch = {0};
    if (ae_gguf_get_string(m->gguf, "general.architecture", false, &arch, NULL) != AERIE_OK || !arch.data) return status;
    const ae_arch *row = ae_arch_find(arch.data, arch.n);
    if (status == AERIE_ERROR_FORMAT && row && row->drafter) /* most heads use the vocabulary of their model */
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: \"%s\" is a drafter's head, not a model of its own; give it with "
                       "-md", ae_gguf_path(m->gguf), row->name);
    m->reads_alone = row && (row->encoder || row->decides);
    return status;
}

static aerie_status check_weights(const ae_model *model, const ae_split *split, const ae_load_options *options,
                                  aerie_error *error)
{
    size_t on[AE_MAX_DEVICES];
    AE_TRY(ae_net_plan_split(on, model, split, options, error));
    if (split->n_devices == 1)
        return ae_session_check_memory(split->devices[0], "this model", on[0],
                                       strncmp(split->devices[0]->ops->name, "cpu", 3) != 0
                                           ? "a smaller model or quantization would fit, or fewer layers there (-ngl)"
                                           : "a smaller model or quantization would fit", error);
    return ae_session_check_split(split, "this model", on, "fewer layers there (-ngl, --tensor-split) would fit", error);
}

/* Loads the encoder of an encoder-decoder model onto the device of the first layer. In a group only the first process has it,
 * and sends its rows to the others. */
static aerie_status load_source(aerie_model *m, const char *path, const ae_model_options *options, const ae_split *split,
                                const ae_load_options *how, aerie_error *error)
{
    ae_model_options own = *options;
    ae_load_options alone = *how;
    own.source = true, alone.ranks = NULL;
    if (!m->model->hparams.crosses || (m->comm && m->comm->rank)) return AERIE_OK;
    AE_TRY(ae_model_load(&m->source, path, &own, error));
    return ae_net_create(&m->source_net, m->source, split->devices[split->mixer[0]], &alone, error);
}

static aerie_status load_weights(aerie_model *m, const char *path, const aerie_model_params *p, aerie_error *error)
{
    const ae_model_options options = {.no_mmap = p->no_mmap, .rope = p->rope, .overrides = p->overrides,
                                      .n_overrides = p->n_overrides};
    AE_TRY(ae_session_open_devices(&m->devices, p, error));
    AE_TRY(ae_model_load(&m->model, path, &options, error));
    AE_TRY(ae_vocab_create(&m->vocab, m->model->gguf, error));
    AE_TRY(ae_gguf_fingerprint(m->model->gguf, &m->fingerprint, error));
    AE_TRY(ae_session_join(m, p, error));
    ae_load_options net = ae_session_net_options(p);
    net.ranks = m->ranks;
    ae_split split;
    AE_TRY(ae_session_place(&split, &m->devices, m->model, p, error));
    AE_TRY(check_weights(m->model, &split, &net, error));
    AE_TRY(ae_net_create_split(&m->net, m->model, &split, &net, error));
    m->backend = m->net->backend;
    AE_TRY(load_source(m, path, &options, &split, &net, error));
    return ae_session_joined(m, p, error);
}

static bool is_key_of_file(const ae_gguf *gguf, const char *name, size_t n)
{
    for (size_t i = 0; i < ae_gguf_n_kv(gguf); i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_at(gguf, i);
        if (kv->key.n == n && !memcmp(kv->key.data, name, n)) return true;
    }
    return false;
}

/* Returns whether an override certainly had no effect. This is unknown where only the vocabulary was loaded, which reads fewer
 * keys than a model, and for ids of special tokens and general keys, which are read on demand. */
static bool is_idle(const aerie_model *m, const ae_gguf *gguf, const aerie_model_params *p, size_t i)
{
    const char *text = p->overrides[i], *equals = strchr(text, '='), *id = strstr(text, "_token_id=");
    return m->model && !ae_gguf_override_was_read(gguf, i) && strncmp(text, "general.", 8) && (!id || id > equals);
}

/* Warns of placements without effect, in one line: there may be hundreds. */
static void warn_of_placements(const aerie_model *m, const aerie_model_params *p)
{
    enum { MOST = 3 };
    char names[MOST * 90] = "";
    size_t n = 0;
    for (size_t i = 0, at = 0; i < p->n_placements; i++) {
        if (!ae_session_placement_is_idle(m->model, p, i)) continue;
        if (n < MOST) at += (size_t)snprintf(names + at, sizeof names - at, "%s'%.80s'", n ? ", " : "", p->placements[i]);
        n++;
    }
    if (n == 1)
        ae_log_say(&p->log, AERIE_LOG_WARNING, "the placement %s has no effect: it matches the name of no weight of a "
                   "feed-forward block, and others lie where their layers do", names);
    else if (n)
        ae_log_say(&p->log, AERIE_LOG_WARNING, "%zu placements have no effect (%s%s): they match the name of no weight of a "
                   "feed-forward block, and others lie where their layers do", n, names, n > MOST ? ", ..." : "");
}

/* Logs what was loaded, and which overrides look like mistakes. */
static void tell_loaded(const aerie_model *m, const aerie_model_params *p)
{
    const ae_gguf *gguf = m->model ? m->model->gguf : m->gguf;
    for (size_t i = 0; i < p->n_overrides; i++) {
        const size_t n = strcspn(p->overrides[i], "=");
        if (is_key_of_file(gguf, p->overrides[i], n)) continue;
        if (is_idle(m, gguf, p, i))
            ae_log_say(&p->log, AERIE_LOG_WARNING,
                       "override '%.80s' has no effect: the file has no key of this name, and models of architecture %s do not "
                       "read it",
                       p->overrides[i], m->model->hparams.arch);
        else
            ae_log_say(&p->log, AERIE_LOG_INFO, "override '%.80s': the file has no key of this name, so it is added",
                       p->overrides[i]);
    }
    if (*ae_vocab_warning(m->vocab))
        ae_log_say(&p->log, AERIE_LOG_WARNING, "%.300s: %s", ae_gguf_path(gguf), ae_vocab_warning(m->vocab));
    if (!m->model) return;
    if (m->model->n_unused)
        ae_log_say(&p->log, AERIE_LOG_WARNING, "%.300s: tensor %.*s%s not used, as in llama.cpp; published models of "
                   "architecture %s have no such tensors", ae_gguf_path(gguf),
                   (int)(m->model->unused->name.n < 100 ? m->model->unused->name.n : 100), m->model->unused->name.data,
                   m->model->n_unused > 1 ? " and others are" : " is", m->model->hparams.arch);
    warn_of_placements(m, p);
    const ae_parts *parts = &m->net->parts;
    const double seconds = parts->fill_seconds, rate = seconds > 0 ? (double)parts->fill_bytes / 1e9 / seconds : 0;
    ae_log_say(&p->log, AERIE_LOG_INFO, "loaded '%s' (%s, %.1f M parameters) in %.2f s: read %.1f MiB in %.2f s (%.2f GB/s), "
               "weights take %.1f MiB, kernels: %s", m->model->name, m->model->hparams.arch, (double)m->model->n_params / 1e6,
               m->load_seconds, ae_session_mib(parts->fill_bytes), seconds, rate, ae_session_mib(parts->bytes),
              ae_backend_cpu_level(m->backend));
    if (m->net->split.n_devices > 1) {
        char map[512];
        ae_session_describe_split(&m->net->split, m->model->hparams.n_layers, map, sizeof map);
        ae_log_say(&p->log, AERIE_LOG_INFO, "devices: %s", map);
    }
    const char *tiles = ae_backend_cpu_choices(m->backend);
    if (*tiles) ae_log_say(&p->log, AERIE_LOG_DEBUG, "kernels: matrix tiles are used, as measured, for %s", tiles);
}

aerie_status aerie_model_load(aerie_model **model, const char *path, const aerie_model_params *params, aerie_error *error)
{
    AE_NEED(model, error);
    *model = NULL;
    AE_NEED(path, error);
    AE_STRUCT_TAKE(model_params, p, params, error);
    AE_STRUCT_TAKE(rope, rope, p.rope, error);
    if (p.rope) p.rope = &rope;
    if (!path || !*path) return ae_fail(error, AERIE_ERROR_ARGUMENT, "no model file was given");
    if (p.mmap && p.no_mmap) return ae_fail(error, AERIE_ERROR_ARGUMENT, "mmap and no_mmap exclude each other");
    const double start = ae_time_now();
    aerie_model *m = ae_alloc(1, sizeof *m);
    if (!m) return ae_fail_memory(error, "a model", sizeof *m);
    m->settings = ae_session_settings_hash(&p);
    m->log = p.log;
    const aerie_status status = p.vocab_only ? load_vocab(m, path, &p, error) : load_weights(m, path, &p, error);
    m->load_seconds = ae_time_now() - start;
    m->rope_given = p.rope != NULL;
    if (status != AERIE_OK) {
        if (m->comm) ae_comm_fail(m->comm, error ? error->text : "its part of the model cannot be loaded");
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
        info->is_encoder = model->reads_alone;
        return;
    }
    const ae_hparams *h = &model->model->hparams;
    info->name = model->model->name;
    info->arch = h->arch;
    info->cpu_level = ae_backend_cpu_level(model->backend);
    info->cpu_tiles = ae_backend_cpu_choices(model->backend);
    info->n_params = model->model->n_params;
    info->file_bytes = ae_gguf_file_bytes(model->model->gguf);
    info->weight_bytes = model->net->parts.bytes + (model->source_net ? model->source_net->parts.bytes : 0);
    info->load_bytes = model->net->parts.fill_bytes + (model->source_net ? model->source_net->parts.fill_bytes : 0);
    info->fill_seconds = model->net->parts.fill_seconds;
    info->n_ctx_train = h->n_ctx_train;
    info->n_embd = h->n_embd;
    info->n_layers = h->n_layers;
    info->n_heads = h->n_heads;
    info->n_kv_heads = h->n_kv_heads;
    info->n_ff = h->n_ff;
    info->n_experts = h->experts.n;
    info->n_experts_used = h->experts.n ? h->experts.n_used : 0;
    info->fingerprint = model->fingerprint;
    info->is_encoder = ae_model_only_reads(h);
    info->decision = h->decision.kind;
    info->is_diffusion = h->denoises;
    info->pooling = ae_session_pooling(model->model);
}

void aerie_model_info_get(const aerie_model *model, aerie_model_info *info, size_t size)
{
    if (info) memset(info, 0, size);
    if (!model || !info) return;
    aerie_model_info own;
    fill_info(model, &own);
    ae_struct_give(info, size, &own, sizeof own);
}

uint64_t aerie_model_pass_bytes(const aerie_model *model)
{
    if (!model) return 0;
    return model->net ? model->net->pass_bytes : 0;
}
