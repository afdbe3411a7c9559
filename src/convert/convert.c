/* convert.c - the steps of every conversion: detects, plans, writes and checks, and gives the file its final name. */
#include "convert/convert.h"

#include <stdio.h>
#include <string.h>

#include "convert/checkpoint/checkpoint.h"
#include "quant/encode/encoder.h"
#include "quant/types.h"

static const ae_convert_kind *const kinds[] = {&ae_convert_mmproj_kind, &ae_convert_adapter_kind, &ae_convert_encoder_kind,
                                               &ae_convert_decoder, &ae_convert_drafter_head};

bool ae_convert_type_parse(const char *name, uint32_t *type)
{
    const ae_type_info *info = ae_type_by_name(name);
    if (!info || !ae_type_encoder(info->type) || info->dot == AE_DOT_NONE) return false;
    *type = info->type;
    return true;
}

/* Checks that the output is not an input file, whatever path or link leads to it. */
static aerie_status check_output(const ae_convert *c)
{
    static const char index[] = "/model.safetensors.index.json";
    const ae_convert_options *o = &c->options;
    const char *read = NULL;
    char beside[4096];
    snprintf(beside, sizeof beside, "%s%s", c->path, index);
    const char *const paths[] = {c->path, c->config_path, beside, o->target, o->check_path};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (ae_file_same(o->output, paths[i])) read = paths[i];
    for (uint32_t i = 0; i < ae_safetensors_n_files(c->st); i++)
        if (ae_file_same(o->output, ae_safetensors_file(c->st, i))) read = ae_safetensors_file(c->st, i);
    static const char *const beside_tensors[] = {
        "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.txt", "generation_config.json",
        "added_tokens.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json", "1_Pooling/config.json",
        "processor_config.json", "preprocessor_config.json", "joint_head_config.json", "joint_head.safetensors",
        "modules.json", "2_Dense/model.safetensors", "3_Dense/model.safetensors",
        "rl_agent_config.json", "julia_config.json", "tokenizer/tokenizer.json",
        "tokenizer/tokenizer_config.json"};
    for (size_t i = 0; i < sizeof beside_tensors / sizeof *beside_tensors && !read; i++) {
        char *path = ae_convert_path_in(c, beside_tensors[i]);
        if (!path) return ae_convert_no_memory(c, "a path");
        if (ae_file_same(o->output, path)) read = beside_tensors[i];
        ae_free(path);
    }
    if (!read && c->target && ae_gguf_reads(c->target->gguf, o->output)) read = o->target;
    if (!read) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_ARGUMENT, "-o %s is a file that is being read (%s); choose another name for the "
                   "output",
                   o->output, read);
}

static aerie_status detect(ae_convert *c)
{
    aerie_status status = AERIE_OK;
    AE_TRY(ae_convert_open_tensors(c));
    AE_TRY(ae_convert_read_config(c));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool mine = true;
        c->kind = kinds[i];
        status = c->kind->detect(c, &mine);
        if (mine) break;
    }
    return status;
}

aerie_status ae_convert_open(ae_convert **out, const ae_convert_options *options, aerie_error *error)
{
    ae_convert *c = *out = ae_alloc(1, sizeof *c);
    if (!c) return ae_fail_memory(error, "a conversion", sizeof *c);
    *c = (ae_convert){.options = *options, .error = error, .path = options->checkpoint, .config_path = "",
                      .head.pairs = options->pairs == AE_CONVERT_YES};
    ae_arena_init(&c->arena, 65536);
    const aerie_status status = detect(c);
    c->error = NULL;
    if (status == AERIE_OK) return AERIE_OK;
    ae_convert_free(c);
    *out = NULL;
    return status;
}

static aerie_status run(ae_convert *c)
{
    AE_TRY(c->kind->plan(c));
    AE_TRY(check_output(c));
    AE_TRY(ae_convert_write(c, &c->writer));
    AE_TRY(c->kind->check(c));
    return ae_gguf_writer_finish(c->writer, c->error);
}

aerie_status ae_convert_run(ae_convert *c, aerie_error *error)
{
    c->error = error;
    const aerie_status status = run(c);
    c->error = NULL;
    return status;
}

void ae_convert_free(ae_convert *c)
{
    if (!c) return;
    ae_gguf_writer_free(c->writer);
    ae_free(c->items);
    ae_model_free(c->target);
    ae_safetensors_close(c->st);
    ae_safetensors_close(c->joint);
    for (size_t i = 0; i < 2; i++) ae_safetensors_close(c->dense[i]);
    json_decref(c->config);
    ae_arena_free(&c->arena);
    ae_free(c);
}

ae_convert_report ae_convert_reported(const ae_convert *c)
{
    return (ae_convert_report){.head = c->kind == &ae_convert_drafter_head ? &c->head : NULL,
                               .encoder = c->kind == &ae_convert_encoder_kind ? &c->encoder : NULL,
                               .model = c->kind == &ae_convert_decoder ? &c->model : NULL,
                               .adapter = c->kind == &ae_convert_adapter_kind ? &c->adapter : NULL,
                               .tower = c->kind == &ae_convert_mmproj_kind ? &c->tower : NULL,
                               .check = c->options.self_check ? &c->check : NULL,
                               .kind = c->head_kind ? c->head_kind : "", .n_tensors = c->n_items, .bytes = c->out_bytes,
                               .type = c->out_type};
}
