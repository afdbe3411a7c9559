/* adapters.c - aerie_extra.h: LoRA adapters, the list that a session has, and those that a request uses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "session/session_int.h"
#include "aerie_extra.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/os.h"

/* ---- Life ------------------------------------------------------------------------------------------------- */

void aerie_adapter_free(aerie_adapter *adapter)
{
    if (!adapter) return;
    ae_adapter_free(adapter->adapter);
    ae_arena_free(&adapter->arena);
    ae_free(adapter);
}

/* Copies a text of the metadata; "" if there is none. */
static aerie_status copy_text(aerie_adapter *a, const char *key, const char **text, aerie_error *error)
{
    ae_gguf_string found = {0};
    AE_TRY(ae_gguf_get_string(a->adapter->gguf, key, false, &found, error));
    *text = ae_arena_strndup(&a->arena, found.data ? found.data : "", found.n);
    return *text ? AERIE_OK : ae_fail_memory(error, "an adapter", found.n);
}

static aerie_status load(aerie_adapter *a, const char *path, const aerie_adapter_params *p, aerie_error *error)
{
    const ae_gguf_options options = {.index_only = p->no_mmap};
    const ae_load_options how = {.n_threads = p->n_threads ? p->n_threads : (uint32_t)ae_os_n_cores()};
    ae_gguf *gguf;
    AE_TRY(ae_gguf_open(&gguf, path, &options, error));
    AE_TRY(ae_adapter_create(&a->adapter, gguf, a->model->net, &how, error));
    AE_TRY(ae_gguf_fingerprint(gguf, &a->adapter->fingerprint, error));
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(gguf, i);
        a->n_params += (uint64_t)(t->ne[0] * t->ne[1]);
    }
    a->path = ae_arena_strndup(&a->arena, path, strlen(path));
    if (!a->path) return ae_fail_memory(error, "an adapter", strlen(path));
    AE_TRY(copy_text(a, "general.name", &a->name, error));
    AE_TRY(copy_text(a, "adapter.lora.task_name", &a->task_name, error));
    return copy_text(a, "adapter.lora.prompt_prefix", &a->prompt_prefix, error);
}

aerie_status aerie_adapter_load(aerie_adapter **adapter, const aerie_model *model, const char *path,
                                const aerie_adapter_params *params, aerie_error *error)
{
    AE_NEED(adapter, error);
    *adapter = NULL;
    AE_NEED(model, error);
    AE_NEED(path, error);
    AE_STRUCT_TAKE(adapter_params, p, params, error);
    if (!path || !*path) return ae_fail(error, AERIE_ERROR_ARGUMENT, "no adapter file was given");
    if (!model || !model->net)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "an adapter needs its model loaded with its weights");
    if (model->model->hparams.encoder)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: '%s' is an encoder, which cannot be adapted", path,
                       model->model->name);
    if (model->source)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: '%s' has an encoder beside its decoder; adapters of such models "
                       "are not read", path, model->model->name);
    aerie_adapter *a = ae_alloc(1, sizeof *a);
    if (!a) return ae_fail_memory(error, "an adapter", sizeof *a);
    ae_arena_init(&a->arena, 1024);
    a->model = model;
    aerie_status status = load(a, path, &p, error);
    if (status == AERIE_OK) status = ae_session_same_adapter(model, a->adapter->gguf, a->adapter->alpha, error);
    if (status == AERIE_OK && model->commands) status = ae_commands_add_adapter(model->commands, a->adapter, error);
    if (status != AERIE_OK) {
        aerie_adapter_free(a);
        return status;
    }
    ae_log_say(&model->log, AERIE_LOG_INFO, "loaded the adapter '%s': %u matrices, rank %u at most", path,
               a->adapter->n_matrices, a->adapter->max_rank);
    *adapter = a;
    return AERIE_OK;
}

void aerie_adapter_info_get(const aerie_adapter *a, aerie_adapter_info *info, size_t size)
{
    if (info) memset(info, 0, size);
    if (!a || !info) return;
    const aerie_adapter_info own = {.name = a->name, .path = a->path, .alpha = a->adapter->alpha,
                                    .max_rank = a->adapter->max_rank, .n_matrices = a->adapter->n_matrices,
                                    .n_params = a->n_params, .task_name = a->task_name, .prompt_prefix = a->prompt_prefix};
    ae_struct_give(info, size, &own, sizeof own);
}

/* ---- Of a session ------------------------------------------------------------------------------------------ */

uint32_t ae_session_max_rank(const aerie_session_params *p)
{
    uint32_t most = 0;
    for (size_t i = 0; i < p->n_adapters; i++)
        if (p->adapters[i]->adapter->max_rank > most) most = p->adapters[i]->adapter->max_rank;
    if (p->spec.adapter && p->spec.adapter->adapter->max_rank > most) most = p->spec.adapter->adapter->max_rank;
    return most;
}

aerie_status ae_session_check_adapters(const aerie_session_params *p, aerie_error *error)
{
    enum { MOST = 1024 };
    if (p->n_adapters > MOST || (p->n_adapters && !p->adapters))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a session can have up to %d adapters; %zu were given", MOST,
                       p->n_adapters);
    for (size_t i = 0; i < p->n_adapters; i++)
        if (!p->adapters[i]) return ae_fail(error, AERIE_ERROR_ARGUMENT, "adapter %zu of the session is NULL", i);
    return AERIE_OK;
}

aerie_status ae_session_take_adapters(aerie_session *s, aerie_error *error)
{
    const size_t n = s->params.n_adapters;
    for (size_t i = 0; i < n; i++)
        if (s->params.adapters[i]->model != s->model)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "adapter %zu (%s) was loaded for another model than the session's", i,
                           s->params.adapters[i]->path);
    s->adapters = ae_alloc(n, sizeof *s->adapters);
    if (n && !s->adapters) return ae_fail_memory(error, "a session's adapters", n * sizeof *s->adapters);
    if (n) memcpy(s->adapters, s->params.adapters, n * sizeof *s->adapters);
    s->params.adapters = s->adapters; /* the caller's list was lent for the call only */
    return AERIE_OK;
}

/* Orders adapters by fingerprint: their order is part of the arithmetic, so it must not depend on the caller or the session. */
static int by_fingerprint(const void *x, const void *y)
{
    const uint64_t a = ((const ae_adapter_use *)x)->adapter->fingerprint, b = ((const ae_adapter_use *)y)->adapter->fingerprint;
    /* orders the uses of a file that was loaded twice */
    const float s = ((const ae_adapter_use *)x)->scale, t = ((const ae_adapter_use *)y)->scale;
    return a != b ? (a > b) - (a < b) : (s > t) - (s < t);
}

aerie_status ae_session_adapter_set(const aerie_session *s, const aerie_adapter_use *uses, size_t n, ae_adapter_set *set,
                                aerie_error *error)
{
    *set = (ae_adapter_set){0};
    if (n > AERIE_MAX_ADAPTERS || (n && !uses))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a request can have up to %d adapters; %zu were given",
                       AERIE_MAX_ADAPTERS, n);
    for (size_t i = 0; i < n; i++) {
        if (uses[i].adapter >= s->params.n_adapters)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "adapter %u is asked for, but the session was created with %zu",
                           uses[i].adapter, s->params.n_adapters);
        if (!isfinite(uses[i].scale))
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "the scale of adapter %u is not a finite number", uses[i].adapter);
        for (size_t k = 0; k < i; k++)
            if (uses[k].adapter == uses[i].adapter)
                return ae_fail(error, AERIE_ERROR_ARGUMENT, "adapter %u is asked for twice; one scale is needed",
                               uses[i].adapter);
        if (uses[i].scale != 0.0f) set->list[set->n++] = (ae_adapter_use){s->adapters[uses[i].adapter]->adapter, uses[i].scale};
    }
    qsort(set->list, set->n, sizeof set->list[0], by_fingerprint);
    return AERIE_OK;
}
