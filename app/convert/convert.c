/* convert.c - aerie convert: a drafter head as its trainer saved it, to a GGUF file. What is done where: convert.h. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "convert/convert.h"
#include "formats/torch.h"
#include "common/commands.h"

static void convert_close(convert *c)
{
    ae_gguf_writer_free(c->writer);
    ae_free(c->items);
    ae_model_free(c->target);
    ae_safetensors_close(c->st);
    json_decref(c->config);
    ae_arena_free(&c->arena);
}

static const char *kind_name(const convert_head *h)
{
    if (h->kind == AE_DHEAD_MEDUSA) return "Medusa";
    if (h->kind == AE_DHEAD_EAGLE) return "EAGLE-1/2";
    return h->fc_norm == AE_FC_NORM_EACH || h->feedback_post ? "EAGLE-3.1" : "EAGLE-3";
}

/* "2, 15, 27" into out [96]. */
static const char *taps_text(const convert_head *h, char out[96])
{
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < h->n_taps; i++) {
        n += (size_t)snprintf(out + n, 96 - n, "%s%u", i ? ", " : "", (unsigned)h->taps[i]);
    }
    return out;
}

static const char *tables_text(const convert_head *h)
{
    if (h->kind == AE_DHEAD_MEDUSA) return "";
    if (h->embedding) return h->output ? ", own embedding" : ", own embedding, the target's output head";
    return h->output ? ", the target's embedding" : ", the target's embedding and output head";
}

/* Prints what was detected in one line on standard error, so that users can spot a wrong guess. */
static void say(const convert *c)
{
    const convert_head *h = &c->head;
    char line[512], taps[96], size[32];
    size_t n = (size_t)snprintf(line, sizeof line, "%s head (%s), ", kind_name(h), convert_producer_name(h->producer));
    if (h->kind == AE_DHEAD_MEDUSA) {
        n += (size_t)snprintf(line + n, sizeof line - n, "%u heads of %u block%s, width %u", (unsigned)h->n_medusa,
                              (unsigned)h->n_blocks, h->n_blocks == 1 ? "" : "s", (unsigned)h->n_embd);
    } else {
        n += (size_t)snprintf(line + n, sizeof line - n, "width %u for %u, %u/%u heads of %u, FFN %u", (unsigned)h->n_embd,
                              (unsigned)h->n_target_embd, (unsigned)h->n_heads, (unsigned)h->n_kv_heads, (unsigned)h->head_dim,
                              (unsigned)h->n_ff);
    }
    if (h->kind == AE_DHEAD_EAGLE3) {
        n += (size_t)snprintf(line + n, sizeof line - n, ", taps before layers %s (%s), residual %s, feedback %s",
                              taps_text(h, taps), h->taps_from, h->norm_before_residual ? "normed" : "raw",
                              h->feedback_post ? "post" : "pre");
    }
    snprintf(line + n, sizeof line - n, ", drafts %u of %u tokens%s; %zu tensors, %s, %s", (unsigned)h->n_draft,
             (unsigned)h->n_vocab, tables_text(h), c->n_items, ae_type_name(c->out_type), app_bytes(size, c->out_bytes));
    app_note("%s", line);
}

static json_t *check_json(const convert *c)
{
    const convert_check *k = &c->check;
    json_t *before = json_array(), *after = json_array();
    for (uint32_t d = 0; d < k->n_depths; d++) {
        app_json_append(before, json_real(k->before[d]));
        app_json_append(after, json_real(k->agreement[d]));
    }
    return json_pack("{s:I, s:o, s:o, s:b}", "places", (json_int_t)k->n, "agreement", after, "before", before, "changed",
                     k->changed);
}

static int print_json(const convert *c)
{
    const convert_head *h = &c->head;
    json_t *taps = json_array();
    for (uint32_t i = 0; i < h->n_taps; i++) app_json_append(taps, json_integer(h->taps[i]));
    static const char *const fc_norms[] = {"none", "each", "joint"};
    json_t *json = json_pack("{s:o, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "file",
                             app_json_text(c->path, strlen(c->path)), "output",
                             app_json_text(c->options->convert_output, strlen(c->options->convert_output)), "kind",
                             kind_name(h), "producer", convert_producer_name(h->producer), "n_embd", (json_int_t)h->n_embd,
                             "n_target_embd", (json_int_t)h->n_target_embd, "n_target_layers", (json_int_t)h->n_target_layers,
                             "n_vocab", (json_int_t)h->n_vocab, "n_draft", (json_int_t)h->n_draft, "n_tensors",
                             (json_int_t)c->n_items, "bytes", (json_int_t)c->out_bytes, "n_taps", (json_int_t)h->n_taps);
    bool ok = json && json_object_set_new(json, "type", json_string(ae_type_name(c->out_type))) == 0;
    if (ok && h->kind == AE_DHEAD_MEDUSA) {
        json_t *medusa = json_pack("{s:I, s:I}", "n_medusa", (json_int_t)h->n_medusa, "n_blocks", (json_int_t)h->n_blocks);
        ok = json_object_update_new(json, medusa) == 0;
    } else if (ok) {
        const char *scaling = h->divisors && strcmp(h->rope_type, "none") == 0 ? "divisors" : h->rope_type;
        const char *draft_map = !h->ids ? "none" : h->ids_were_absolute ? "absolute" : "offset";
        json_t *layer = json_pack("{s:I, s:I, s:I, s:I, s:b, s:b, s:s, s:f, s:s, s:s}", "n_heads", (json_int_t)h->n_heads,
                                  "n_kv_heads", (json_int_t)h->n_kv_heads, "head_dim", (json_int_t)h->head_dim,
                                  "n_ff", (json_int_t)h->n_ff, "own_embedding", h->embedding, "own_output", h->output,
                                  "rope_scaling", scaling, "rope_base", h->rope_base, "taps_from", h->taps_from,
                                  "draft_map", draft_map);
        ok = json_object_update_new(json, layer) == 0;
    }
    if (ok && h->kind == AE_DHEAD_EAGLE3) {
        json_t *eagle3 = json_pack("{s:O, s:b, s:s, s:s}", "taps", taps, "norm_before_residual", h->norm_before_residual,
                                   "feedback", h->feedback_post ? "post" : "pre", "fc_norm", fc_norms[h->fc_norm]);
        ok = json_object_update_new(json, eagle3) == 0;
    }
    json_decref(taps);
    if (ok && c->options->convert_self_check) ok = json_object_set_new(json, "self_check", check_json(c)) == 0;
    if (!ok) {
        json_decref(json);
        json = NULL;
    }
    return app_print_json(json);
}

static int check_arguments(const app_options *options)
{
    if (options->arguments.n == 0) return app_error(APP_USAGE, "'convert' needs a checkpoint: aerie convert DIR -o head.gguf");
    if (options->arguments.n > 1)
        return app_error(APP_USAGE, "'convert' takes one checkpoint; found '%s' too", options->arguments.items[1]);
    if (!options->convert_output) return app_error(APP_USAGE, "'convert' needs a file to write: -o head.gguf");
    if (options->convert_tokenizer && !options->convert_target)
        return app_error(APP_USAGE, "--tokenizer copies the target's tokenizer; give --target FILE");
    if (options->convert_self_check && !options->convert_target)
        return app_error(APP_USAGE, "--self-check runs the target; give --target FILE");
    if (options->convert_check_file && !options->convert_self_check)
        return app_error(APP_USAGE, "--self-check-file needs --self-check");
    if (options->convert_rope && strcmp(options->convert_rope, "halves") && strcmp(options->convert_rope, "pairs"))
        return app_error(APP_USAGE, "--rope takes halves or pairs; found '%s'", options->convert_rope);
    if (options->convert_sinks && !options->convert_window)
        return app_error(APP_USAGE, "--sinks needs --window N");
    return APP_DONE;
}

/* The output may not be a file that was read, by whatever path or link it is reached. */
static int check_output(const convert *c)
{
    static const char index[] = "/model.safetensors.index.json";
    const app_options *o = c->options;
    const char *out = o->convert_output, *read = NULL;
    char beside[4096];
    snprintf(beside, sizeof beside, "%s%s", c->path, index);
    const char *const paths[] = {c->path, c->config_path, beside, o->convert_target, o->convert_check_file};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (ae_file_same(out, paths[i])) read = paths[i];
    for (uint32_t i = 0; i < ae_safetensors_n_files(c->st); i++)
        if (ae_file_same(out, ae_safetensors_file(c->st, i))) read = ae_safetensors_file(c->st, i);
    if (!read && c->target && ae_gguf_reads(c->target->gguf, out)) read = o->convert_target;
    if (!read) return APP_DONE;
    return app_error(APP_USAGE, "-o %s is a file that is being read (%s); give the new one another name", out, read);
}

/* Checks that the written file is a head that can be loaded and, if there is a target, fits it. */
static int read_back(const convert *c)
{
    ae_dhead *head;
    aerie_error error = {0};
    aerie_status status = ae_dhead_load(&head, ae_gguf_writer_part(c->writer), &error);
    if (status == AERIE_OK && c->target) status = ae_dhead_fits(head, c->target, &error);
    ae_dhead_free(head);
    return app_report(APP_LOADING, status, &error);
}

static bool is_pickle(const char *path)
{
    static const char *const ends[] = {".bin", ".pt", ".pth", ".ckpt"};
    const size_t n = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t k = strlen(ends[i]);
        if (n > k && strcmp(path + n - k, ends[i]) == 0) return true;
    }
    return false;
}

/* safetensors, else what torch.save wrote. */
static int open_tensors(convert *c)
{
    static const char *const files[] = {"pytorch_model.bin", "medusa_lm_head.pt"};
    aerie_error error = {0};
    struct stat info;
    char path[4096];
    if (is_pickle(c->path)) return app_report(APP_LOADING, ae_torch_open(&c->st, c->path, &error), &error);
    const aerie_status status = ae_safetensors_open(&c->st, c->path, &error);
    for (size_t i = 0; status == AERIE_ERROR_IO && i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", c->path, files[i]);
        if (stat(path, &info) == 0) return app_report(APP_LOADING, ae_torch_open(&c->st, path, &error), &error);
    }
    return app_report(APP_LOADING, status, &error);
}

static int run(convert *c)
{
    CONVERT_TRY(open_tensors(c));
    CONVERT_TRY(convert_read_config(c));
    CONVERT_TRY(convert_read_names(c));
    CONVERT_TRY(convert_open_target(c));
    CONVERT_TRY(convert_find_producer(c));
    CONVERT_TRY(convert_detect(c));
    CONVERT_TRY(convert_read_ids(c));
    if (c->head.kind != AE_DHEAD_MEDUSA) CONVERT_TRY(convert_read_rope(c));
    CONVERT_TRY(convert_plan(c));
    CONVERT_TRY(check_output(c));
    CONVERT_TRY(convert_write(c, c->options->convert_output, &c->writer));
    CONVERT_TRY(read_back(c));
    if (c->options->convert_self_check) CONVERT_TRY(convert_self_check(c));
    aerie_error error = {0};
    CONVERT_TRY(app_report(APP_WORKING, ae_gguf_writer_finish(c->writer, &error), &error));
    if (!c->options->quiet) say(c);
    return c->options->json ? print_json(c) : APP_DONE;
}

int app_convert(const app_options *options)
{
    CONVERT_TRY(check_arguments(options));
    const char *rope = options->convert_rope;
    convert c = {.options = options, .head.pairs = rope && strcmp(rope, "pairs") == 0, .path = options->arguments.items[0],
                 .config_path = ""};
    ae_arena_init(&c.arena, 65536);
    app_interrupt_arm();
    const int bad = run(&c);
    convert_close(&c);
    return bad;
}
