/* plan.c - aerie_extra.h: how much memory a model and a session would take, computed without loading them, and of
 * which kind the model is. */
#include "aerie_extra.h"
#include "base/os.h"
#include "session/session_int.h"

static void describe_kind(aerie_memory_plan *plan, const ae_hparams *h)
{
    plan->is_encoder = ae_model_only_reads(h);
    plan->is_diffusion = h->denoises;
    plan->is_encoder_decoder = h->crosses;
    plan->decision = h->decision.kind;
}

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
    ae_session_devices devices;
    ae_split split;
    ae_model *model = NULL;
    AE_TRY(ae_session_open_devices(&devices, &mp, error));
    const ae_load_options no = ae_session_net_options(&mp);
    size_t weight_bytes = 0, on[AE_MAX_DEVICES];
    plan->available_bytes = ae_session_available(devices.list[0]);
    aerie_status status = ae_model_load(&model, path, &options, error);
    if (status == AERIE_OK) describe_kind(plan, &model->hparams);
    if (status == AERIE_OK) status = ae_session_place(&split, &devices, model, &mp, error);
    if (status == AERIE_OK) status = ae_net_plan_split(on, model, &split, &no, error);
    for (uint32_t i = 0; status == AERIE_OK && i < split.n_devices; i++) weight_bytes += on[i];
    if (status == AERIE_OK) plan->available_bytes = ae_session_available_split(&split);
    if (status == AERIE_OK && ae_model_only_reads(&model->hparams)) {
        plan->session_bytes = ae_session_embedder_bytes(model, split.devices[split.output]);
    } else if (status == AERIE_OK) {
        status = ae_session_resolve(model, session_params, false, &sp, error);
    }
    if (status == AERIE_OK && !ae_model_only_reads(&model->hparams)) {
        ae_engine_options eo = ae_session_engine_options(&sp, model->hparams.n_vocab);
        ae_session_hold_texts(model, &sp, &eo);
        plan->session_bytes = ae_session_bytes(model, &split, &eo);
    }
    if (status == AERIE_OK && model->hparams.crosses) {
        ae_model *source = NULL;
        ae_model_options of_source = options;
        of_source.source = true;
        size_t bytes = 0;
        status = ae_model_load(&source, path, &of_source, error);
        if (status == AERIE_OK) status = ae_net_plan_bytes(&bytes, source, split.devices[split.mixer[0]], &no, error);
        if (status == AERIE_OK) plan->session_bytes += ae_session_source_bytes(source, split.devices[split.mixer[0]], sp.n_ctx);
        weight_bytes += bytes;
        ae_model_free(source);
    }
    if (status == AERIE_OK) plan->weight_bytes = weight_bytes;
    ae_struct_give(theirs, plan_size, plan, sizeof *plan);
    ae_model_free(model);
    ae_session_close_devices(&devices);
    return status;
}
