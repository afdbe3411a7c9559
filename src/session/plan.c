/* plan.c - aerie.h: what a model and a session would take of memory, without loading them. */
#include "aerie_extra.h"
#include "base/os.h"
#include "device/device.h"
#include "session/session_int.h"

aerie_status aerie_memory_plan_get(const char *path, const aerie_model_params *model_params,
                                   const aerie_session_params *session_params, aerie_memory_plan *theirs, size_t plan_size,
                                   aerie_error *error)
{
    AE_NEED(path, error);
    AE_NEED(theirs, error);
    aerie_memory_plan own = {.available_bytes = ae_os_memory_available()}, *plan = &own;
    ae_struct_give(theirs, plan_size, plan, sizeof *plan);
    AE_STRUCT_TAKE(model_params, mp, model_params, error);
    AE_STRUCT_TAKE(rope, rope, mp.rope, error);
    if (mp.rope) mp.rope = &rope;
    const ae_model_options options = {.no_mmap = mp.no_mmap, .rope = mp.rope, .overrides = mp.overrides,
                                      .n_overrides = mp.n_overrides};
    aerie_session_params sp;
    ae_backend *backend;
    ae_model *model = NULL;
    AE_TRY(ae_backend_open(&backend, mp.backend, mp.cpu_level, error));
    const ae_load_options no = ae_session_net_options(&mp);
    size_t weight_bytes = 0;
    plan->available_bytes = ae_session_available(backend);
    aerie_status status = ae_model_load(&model, path, &options, error);
    if (status == AERIE_OK) status = ae_net_plan_bytes(&weight_bytes, model, backend, &no, error);
    if (status == AERIE_OK && model->hparams.encoder) {
        plan->session_bytes = ae_session_embedder_bytes(model, backend);
    } else if (status == AERIE_OK) {
        status = ae_session_resolve(model, session_params, false, &sp, error);
    }
    if (status == AERIE_OK && !model->hparams.encoder) {
        const ae_engine_options eo = ae_session_engine_options(&sp, model->hparams.n_vocab);
        plan->session_bytes = ae_session_bytes(model, backend, &eo);
    }
    if (status == AERIE_OK) plan->weight_bytes = weight_bytes;
    ae_struct_give(theirs, plan_size, plan, sizeof *plan);
    ae_model_free(model);
    ae_backend_close(backend);
    return status;
}
