/* model.c - examines a model for `aerie doctor`: the memory that it needs on this machine, and the rate that bandwidth allows.
 * Owns nothing. Reads no weights. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "aerie_extra.h"
#include "doctor/doctor.h"
#include "setup/load.h"

static void hide_error(aerie_error *error)
{
    char *hidden = doctor_hide(error->text);
    if (hidden) snprintf(error->text, sizeof error->text, "%s", hidden);
    free(hidden);
}

/* Reads the value under ARCH and the rest of the key, or "". */
static void read_value(char *out, size_t capacity, const aerie_model *loaded, const char *arch, const char *rest)
{
    char key[128], *value = NULL;
    snprintf(key, sizeof key, "%s%s", arch, rest);
    *out = '\0';
    if (aerie_model_metadata_get(loaded, key, &value, NULL, NULL, NULL) == AERIE_OK && value)
        snprintf(out, capacity, "%s", value);
    aerie_free(value);
}

/* Reads the file up to the vocabulary, without which the weights are of no use, and what the file says about itself. */
static aerie_status read_head(doctor_model *model, aerie_model_params params, const char *path)
{
    aerie_model *loaded;
    aerie_model_info info;
    char text[64];
    params.vocab_only = true;
    const aerie_status status = aerie_model_load(&loaded, path, &params, &model->error);
    if (status != AERIE_OK) return status;
    aerie_model_info_get(loaded, &info, sizeof info);
    read_value(model->arch, sizeof model->arch, loaded, "", "general.architecture");
    read_value(text, sizeof text, loaded, model->arch, ".context_length");
    model->n_ctx_train = (uint32_t)strtoul(text, NULL, 10);
    model->mapped = info.file_bytes; /* reduced by the packed weights once these are known */
    aerie_model_free(loaded);
    return AERIE_OK;
}

/* Examines the part that reads images, which the options name or which is beside the model. */
static void read_mmproj(doctor_model *model, const aerie_model_params *params, const app_options *options)
{
    size_t n;
    const aerie_tower_params tower = app_tower_params(options);
    char *path = app_mmproj_path(options, &n);
    if (!path) return;
    model->mmproj = doctor_hide(path);
    if (aerie_memory_plan_tower(path, params, &tower, 0, 0, &model->mmproj_plan, sizeof model->mmproj_plan,
                                &model->mmproj_error) != AERIE_OK)
        hide_error(&model->mmproj_error);
    free(path);
}

void doctor_model_read(doctor_model *model, const doctor_machine *machine, const app_options *options)
{
    aerie_model_params params = options->model_params;
    aerie_session_params session = options->session;
    *model = (doctor_model){.given = options->model != NULL};
    if (!model->given) return;
    model->path = doctor_hide(options->model);
    /* a warning says that already; it is not an error of the file */
    if (!machine->level || machine->lacks_level) params.cpu_level = NULL;
    if (!machine->backend) params.backend = "cpu"; /* likewise */
    session.spec.type = AERIE_SPEC_NONE;
    model->status = read_head(model, params, options->model);
    if (model->status == AERIE_OK)
        model->status = aerie_memory_plan_get(options->model, &params, &session, &model->plan, sizeof model->plan,
                                              &model->error);
    if (model->status != AERIE_OK) {
        hide_error(&model->error);
        return;
    }
    model->is_encoder = model->plan.is_encoder;
    model->mapped -= model->plan.weight_bytes < model->mapped ? model->plan.weight_bytes : model->mapped;
    if (!model->is_encoder) read_mmproj(model, &params, options);
    app_main_type(options->model, model->type);
    model->per_token = model->is_encoder ? 0 : app_bytes_per_token(options->model);
    if (model->per_token) model->most_rate = machine->bandwidth / (double)model->per_token;
}

void doctor_model_judge(const doctor_model *model, const app_options *options, doctor_warnings *w)
{
    const aerie_memory_plan *plan = &model->plan;
    const uint64_t bytes = plan->weight_bytes + plan->session_bytes;
    const uint64_t images = model->mmproj_plan.weight_bytes + model->mmproj_plan.session_bytes;
    char needed[32], available[32], mapped[32];
    if (!model->given || model->status != AERIE_OK) return;
    if (model->mmproj_error.status != AERIE_OK) doctor_warn(w, "images cannot be read: %s", model->mmproj_error.text);
    if (plan->available_bytes && bytes <= plan->available_bytes && bytes + images > plan->available_bytes)
        doctor_warn(w, "the model needs %s of memory and its vision encoder %s more, but only %s are available; --no-mmproj "
                       "leaves the encoder out, --image-max-tokens makes pictures smaller",
                    app_bytes(needed, bytes), app_bytes(mapped, images), app_bytes(available, plan->available_bytes));
    if (plan->available_bytes && bytes > plan->available_bytes)
        doctor_warn(w, "the model needs %s of memory, but only %s are available, so aerie refuses to load it; use a smaller -c "
                       "or -np, or a smaller quantization",
                    app_bytes(needed, bytes), app_bytes(available, plan->available_bytes));
    else if (plan->available_bytes && bytes + model->mapped > plan->available_bytes)
        doctor_warn(w, "the model uses %s of its file in place, beside %s of memory, and only %s are available: it will be "
                       "read from the disk again and again",
                    app_bytes(mapped, model->mapped), app_bytes(needed, bytes), app_bytes(available, plan->available_bytes));
    if (strcasecmp(model->type, "F32") == 0 || strcasecmp(model->type, "F16") == 0 || strcasecmp(model->type, "BF16") == 0)
        doctor_warn(w, "the model's weights are %s; after 'aerie quantize' to Q8_0 or Q4_K_M a token reads %s of the bytes",
                    model->type, strcasecmp(model->type, "F32") ? "1/2 or 1/3" : "1/4 or 1/7");
    if (options->model_params.mmap)
        doctor_warn(w, "--mmap uses the weights as they lie in the file, which starts at once and runs slower");
}
