/* convert.c - aerie convert: converts the checkpoint of a model, an encoder or a drafter head to a GGUF file, with src/convert,
 * because aerie.h offers no conversions. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "setup/load.h"
#include "convert/convert.h"
#include "formats/tensor_type.h"

/* ---- Options ------------------------------------------------------------------------------------------ */

/* An option that allows only two words, and perhaps "auto". */
typedef struct word {
    const char *option, *given, *words[2];
    ae_convert_choice first; /* what words[0] stands for */
    bool is_auto;            /* "auto" is a word, too */
    ae_convert_choice *out;
} word;

static int parse_words(const app_options *o, ae_convert_options *c)
{
    const word words[] = {
        {"--rope", o->convert.rope, {"halves", "pairs"}, AE_CONVERT_NO, false, &c->pairs},
        {"--feedback", o->convert.feedback, {"pre", "post"}, AE_CONVERT_NO, false, &c->feedback_post},
        {"--norm-before-residual", o->convert.residual, {"on", "off"}, AE_CONVERT_YES, false, &c->norm_before_residual},
        {"--d2t", o->convert.d2t, {"offset", "absolute"}, AE_CONVERT_NO, false, &c->ids_absolute},
        {"--embedding", o->convert.embedding, {"keep", "drop"}, AE_CONVERT_YES, true, &c->own_embedding},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const word *w = &words[i];
        if (!w->given || (w->is_auto && strcmp(w->given, "auto") == 0)) continue;
        const bool first = strcmp(w->given, w->words[0]) == 0;
        if (!first && strcmp(w->given, w->words[1]))
            return app_error(APP_USAGE, "%s takes %s%s or %s; found '%s'", w->option, w->is_auto ? "auto, " : "", w->words[0],
                             w->words[1], w->given);
        *w->out = first == (w->first == AE_CONVERT_YES) ? AE_CONVERT_YES : AE_CONVERT_NO;
    }
    return APP_DONE;
}

/* Reads --taps: input, output, or 2,15,27. */
static int parse_taps(const char *text, ae_convert_options *c)
{
    if (!text) return APP_DONE;
    c->taps_are = strcmp(text, "input") == 0    ? AE_CONVERT_TAPS_INPUTS
                  : strcmp(text, "output") == 0 ? AE_CONVERT_TAPS_OUTPUTS
                                                : AE_CONVERT_TAPS_LIST;
    for (const char *p = text; c->taps_are == AE_CONVERT_TAPS_LIST; p++) {
        char *end;
        const unsigned long value = strtoul(p, &end, 10);
        if (*p < '0' || *p > '9' || value > AE_MAX_LAYERS || (*end && *end != ',') || c->n_taps == AERIE_MAX_TAPS) {
            return app_error(APP_USAGE,
                             "--taps takes input, output, or up to %d layers (2,15,27, layers whose inputs are "
                             "tapped); found '%s'",
                             AERIE_MAX_TAPS, text);
        }
        c->taps[c->n_taps++] = (uint32_t)value;
        if (!*end) break;
        p = end;
    }
    return APP_DONE;
}

static int check_arguments(const app_options *options)
{
    if (options->arguments.n == 0) return app_error(APP_USAGE, "'convert' needs a checkpoint: aerie convert DIR -o model.gguf");
    if (options->arguments.n > 1)
        return app_error(APP_USAGE, "'convert' takes one checkpoint; found '%s' too", options->arguments.items[1]);
    if (!options->convert.output && !options->mmproj)
        return app_error(APP_USAGE, "'convert' needs a file to write: -o model.gguf, or --mmproj mmproj.gguf for a vision "
                         "encoder");
    if (options->convert.output && options->mmproj && strcmp(options->convert.output, options->mmproj) == 0)
        return app_error(APP_USAGE, "-o and --mmproj name the same file, '%s'", options->mmproj);
    if (options->mmproj && options->convert.target)
        return app_error(APP_USAGE, "--mmproj writes a model's vision encoder, which has no --target");
    if (options->convert.tokenizer && !options->convert.target)
        return app_error(APP_USAGE, "--tokenizer copies the target's tokenizer; give --target FILE");
    if (options->convert.self_check && !options->convert.target)
        return app_error(APP_USAGE, "--self-check runs the target; give --target FILE");
    if (options->convert.check_file && !options->convert.self_check)
        return app_error(APP_USAGE, "--self-check-file needs --self-check");
    if (options->convert.sinks && !options->convert.window)
        return app_error(APP_USAGE, "--sinks needs --window N");
    return APP_DONE;
}

/* text: contents of --self-check-file, borrowed by *c. */
static int parse_options(const app_options *o, ae_convert_options *c, app_text *text)
{
    int bad = check_arguments(o);
    if (bad) return bad;
    *c = (ae_convert_options){.checkpoint = o->arguments.items[0],
                              .output = o->convert.output,
                              .config = o->convert.config,
                              .name = o->convert.name,
                              .type = AE_CONVERT_TYPE_AUTO,
                              .skip = (const char *const *)o->convert.skip.items,
                              .n_skip = o->convert.skip.n,
                              .pre = o->convert.pre,
                              .mtp = o->convert.mtp,
                              .n_threads = o->n_threads,
                              .cpu_level = o->model_params.cpu_level,
                              .target = o->convert.target,
                              .tokenizer = o->convert.tokenizer,
                              .producer = AE_CONVERT_PRODUCER_AUTO,
                              .window = o->convert.window,
                              .n_sinks = o->convert.sinks,
                              .self_check = o->convert.self_check,
                              .check_path = o->convert.check_file};
    if (o->convert.producer && !ae_convert_producer_parse(o->convert.producer, &c->producer)) {
        return app_error(APP_USAGE, "--producer takes official, specforge, angelslim, speculators or nvidia; found '%s'",
                         o->convert.producer);
    }
    if (o->convert.type && strcmp(o->convert.type, "auto") && !ae_convert_type_parse(o->convert.type, &c->type)) {
        return app_error(APP_USAGE,
                         "--outtype takes auto, f32, f16, bf16, q8_0 or another type that can be written (q6_k, "
                         "q5_k, q4_k, q4_0 ...); found '%s'",
                         o->convert.type);
    }
    bad = parse_words(o, c);
    if (!bad) bad = parse_taps(o->convert.taps, c);
    if (bad || !c->check_path) return bad;
    bad = app_read_file(text, c->check_path);
    c->check_text = text->data ? text->data : "";
    c->n_check_text = text->n;
    return bad;
}

/* ---- The report ------------------------------------------------------------------------------------ */

typedef struct watcher {
    bool quiet, shown; /* shown: the bar is on the terminal */
    int percent;
} watcher;

static void on_log(void *user, aerie_log_level level, const char *sentence)
{
    watcher *w = user;
    app_progress_clear(&w->percent);
    if (level == AERIE_LOG_WARNING || !w->quiet) app_note("%s", sentence);
}

static bool progress(void *user, const char *step, uint64_t done, uint64_t total)
{
    watcher *w = user;
    if (w->shown) app_progress_show(step, done, total, &w->percent);
    return !app_interrupted();
}

/* Writes "2, 15, 27" into out [96]. */
static const char *taps_text(const ae_convert_head *h, char out[96])
{
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < h->n_taps; i++) {
        n += (size_t)snprintf(out + n, 96 - n, "%s%u", i ? ", " : "", (unsigned)h->taps[i]);
    }
    return out;
}

static const char *tables_text(const ae_convert_head *h)
{
    if (h->kind == AE_DHEAD_MEDUSA) return "";
    if (h->embedding) return h->output ? ", own embedding" : ", own embedding, the target's output head";
    return h->output ? ", the target's embedding" : ", the target's embedding and output head";
}

static void say_check(const ae_convert_check *k)
{
    char line[96];
    size_t n = 0;
    line[0] = '\0';
    for (uint32_t d = 0; d < k->n_depths; d++)
        n += (size_t)snprintf(line + n, sizeof line - n, "%s%.2f", d ? ", " : "", k->agreement[d]);
    app_note("self-check: the head predicts %s of the target's choices 1 to %u steps ahead (%u positions)%s", line,
             (unsigned)k->n_depths, (unsigned)k->n,
             k->agreement[0] < 0.1 ? "; hardly any: is it a head for this target?" : "");
}

static void say_encoder(const ae_convert_report *r)
{
    const ae_convert_encoder *b = r->encoder;
    const char *pooling = aerie_pooling_name((aerie_pooling)b->pooling);
    char size[32];
    app_note("%s, %u layers, width %u, %u heads, FFN %u, %u positions, %u tokens, pooling %s; %zu tensors, %s, %s", r->kind,
             (unsigned)b->n_layers, (unsigned)b->n_embd, (unsigned)b->n_heads, (unsigned)b->n_ff, (unsigned)b->n_ctx,
             (unsigned)b->n_vocab, b->pooling == AE_POOLING_NONE ? "not said" : pooling, r->n_tensors, ae_type_name(r->type),
             app_bytes(size, r->bytes));
}

static void say_model(const ae_convert_report *r)
{
    const ae_convert_model *m = r->model;
    char size[32], experts[32] = "", ahead[32] = "";
    if (m->n_experts) snprintf(experts, sizeof experts, "%u experts, ", (unsigned)m->n_experts);
    if (m->n_ahead) snprintf(ahead, sizeof ahead, " and %u MTP", (unsigned)m->n_ahead);
    app_note("%s (%s), %u layers%s, width %u, %u/%u heads of %u, %s%u positions, %u tokens; %zu tensors, %s, %s", m->arch,
             m->class, (unsigned)m->n_layers, ahead, (unsigned)m->n_embd, (unsigned)m->n_heads, (unsigned)m->n_kv_heads,
             (unsigned)m->head_dim, experts, (unsigned)m->n_ctx, (unsigned)m->n_vocab, r->n_tensors, ae_type_name(r->type),
             app_bytes(size, r->bytes));
}

static void say_adapter(const ae_convert_report *r)
{
    const ae_convert_adapter *a = r->adapter;
    char size[32];
    app_note("LoRA adapter for %s: %u matrices, rank %u, alpha %g; %s, %s", a->arch, (unsigned)a->n_pairs, (unsigned)a->rank,
             a->alpha, ae_type_name(r->type), app_bytes(size, r->bytes));
}

static void say_tower(const ae_convert_report *r)
{
    const ae_convert_tower *m = r->tower;
    char size[32];
    app_note("vision encoder %s (%s), %u blocks, width %u, %u heads, FFN %u, patches of %u, %ux%u to a token of width %u; %zu "
             "tensors, %s, %s", m->type, m->class, (unsigned)m->n_layers, (unsigned)m->n_embd, (unsigned)m->n_heads,
             (unsigned)m->n_ff, (unsigned)m->patch, (unsigned)m->merge, (unsigned)m->merge, (unsigned)m->n_out, r->n_tensors,
             ae_type_name(r->type), app_bytes(size, r->bytes));
}

/* Prints a line on standard error that says what was detected, so that users can notice a wrong guess. */
static void say(const ae_convert_report *r)
{
    const ae_convert_head *h = r->head;
    char line[512], taps[96], size[32];
    size_t n = (size_t)snprintf(line, sizeof line, "%s head (%s), ", r->kind, ae_convert_producer_name(h->producer));
    if (h->kind == AE_DHEAD_MEDUSA) {
        n += (size_t)snprintf(line + n, sizeof line - n, "%u heads of %u block%s, width %u", (unsigned)h->n_medusa,
                              (unsigned)h->n_blocks, app_plural(h->n_blocks), (unsigned)h->n_embd);
    } else {
        n += (size_t)snprintf(line + n, sizeof line - n, "width %u for %u, %u/%u heads of %u, FFN %u", (unsigned)h->n_embd,
                              (unsigned)h->n_target_embd, (unsigned)h->n_heads, (unsigned)h->n_kv_heads, (unsigned)h->head_dim,
                              (unsigned)h->n_ff);
    }
    if (ae_dhead_has_blocks(h->kind)) {
        n += (size_t)snprintf(line + n, sizeof line - n,
                              ", %u layers, blocks of %u read %s, mask %u, taps before layers %s (%s)",
                              (unsigned)h->n_layers, (unsigned)h->n_block, h->from_anchor ? "from the anchor" : "in place",
                              (unsigned)h->mask, taps_text(h, taps), h->taps_from);
    } else if (h->kind == AE_DHEAD_EAGLE3) {
        n += (size_t)snprintf(line + n, sizeof line - n, ", taps before layers %s (%s), residual %s, feedback %s",
                              taps_text(h, taps), h->taps_from, h->norm_before_residual ? "normed" : "raw",
                              h->feedback_post ? "post" : "pre");
    }
    snprintf(line + n, sizeof line - n, ", drafts %u of %u tokens%s; %zu tensors, %s, %s", (unsigned)h->n_draft,
             (unsigned)h->n_vocab, tables_text(h), r->n_tensors, ae_type_name(r->type), app_bytes(size, r->bytes));
    app_note("%s", line);
}

static json_t *check_json(const ae_convert_check *k)
{
    json_t *before = json_array(), *after = json_array();
    for (uint32_t d = 0; d < k->n_depths; d++) {
        app_json_append(before, json_real(k->before[d]));
        app_json_append(after, json_real(k->agreement[d]));
    }
    return json_pack("{s:I, s:o, s:o, s:b}", "places", (json_int_t)k->n, "agreement", after, "before", before, "changed",
                     k->changed);
}

static int print_encoder_json(const ae_convert_options *c, const ae_convert_report *r)
{
    const ae_convert_encoder *b = r->encoder;
    return app_print_json(json_pack("{s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:s}", "file",
                                    app_json_text(c->checkpoint, strlen(c->checkpoint)), "output",
                                    app_json_text(c->output, strlen(c->output)), "kind", r->kind, "n_layers",
                                    (json_int_t)b->n_layers, "n_embd", (json_int_t)b->n_embd, "n_heads", (json_int_t)b->n_heads,
                                    "n_ff", (json_int_t)b->n_ff, "n_ctx", (json_int_t)b->n_ctx, "n_vocab",
                                    (json_int_t)b->n_vocab, "pooling",
                                    b->pooling == AE_POOLING_NONE ? "none" : aerie_pooling_name((aerie_pooling)b->pooling),
                                    "n_tensors", (json_int_t)r->n_tensors, "bytes", (json_int_t)r->bytes, "type",
                                    ae_type_name(r->type)));
}

static int print_model_json(const ae_convert_options *c, const ae_convert_report *r)
{
    const ae_convert_model *m = r->model;
    return app_print_json(json_pack(
        "{s:o, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "file",
        app_json_text(c->checkpoint, strlen(c->checkpoint)), "output", app_json_text(c->output, strlen(c->output)), "kind",
        m->class, "architecture", m->arch, "n_layers", (json_int_t)m->n_layers, "n_mtp", (json_int_t)m->n_ahead, "n_embd",
        (json_int_t)m->n_embd, "n_heads",
        (json_int_t)m->n_heads, "n_kv_heads", (json_int_t)m->n_kv_heads, "head_dim", (json_int_t)m->head_dim, "n_experts",
        (json_int_t)m->n_experts, "n_ctx", (json_int_t)m->n_ctx, "n_vocab", (json_int_t)m->n_vocab, "n_tensors",
        (json_int_t)r->n_tensors, "bytes", (json_int_t)r->bytes, "type", ae_type_name(r->type)));
}

static int print_adapter_json(const ae_convert_options *c, const ae_convert_report *r)
{
    const ae_convert_adapter *a = r->adapter;
    return app_print_json(json_pack("{s:o, s:o, s:s, s:s, s:I, s:I, s:f, s:I, s:s}", "file",
                                    app_json_text(c->checkpoint, strlen(c->checkpoint)), "output",
                                    app_json_text(c->output, strlen(c->output)), "kind", "LoRA", "architecture", a->arch,
                                    "n_matrices", (json_int_t)a->n_pairs, "rank", (json_int_t)a->rank, "alpha", a->alpha,
                                    "bytes", (json_int_t)r->bytes, "type", ae_type_name(r->type)));
}

static int print_tower_json(const ae_convert_options *c, const ae_convert_report *r)
{
    const ae_convert_tower *m = r->tower;
    return app_print_json(json_pack(
        "{s:o, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "file",
        app_json_text(c->checkpoint, strlen(c->checkpoint)), "output", app_json_text(c->output, strlen(c->output)), "kind",
        m->class, "projector_type", m->type, "n_layers", (json_int_t)m->n_layers, "n_embd", (json_int_t)m->n_embd, "n_heads",
        (json_int_t)m->n_heads, "n_ff", (json_int_t)m->n_ff, "n_out", (json_int_t)m->n_out, "image_size",
        (json_int_t)m->image_size, "patch_size", (json_int_t)m->patch, "merge", (json_int_t)m->merge, "n_tensors",
        (json_int_t)r->n_tensors, "bytes", (json_int_t)r->bytes, "type", ae_type_name(r->type)));
}

static int print_json(const ae_convert_options *c, const ae_convert_report *r)
{
    if (r->tower) return print_tower_json(c, r);
    if (r->adapter) return print_adapter_json(c, r);
    if (r->encoder) return print_encoder_json(c, r);
    if (r->model) return print_model_json(c, r);
    const ae_convert_head *h = r->head;
    json_t *taps = json_array();
    for (uint32_t i = 0; i < h->n_taps; i++) app_json_append(taps, json_integer(h->taps[i]));
    static const char *const fc_norms[] = {"none", "each", "joint"};
    json_t *json =
        json_pack("{s:o, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "file",
                  app_json_text(c->checkpoint, strlen(c->checkpoint)), "output", app_json_text(c->output, strlen(c->output)),
                  "kind", r->kind, "producer", ae_convert_producer_name(h->producer), "n_embd", (json_int_t)h->n_embd,
                  "n_target_embd", (json_int_t)h->n_target_embd, "n_target_layers", (json_int_t)h->n_target_layers, "n_vocab",
                  (json_int_t)h->n_vocab, "n_draft", (json_int_t)h->n_draft, "n_tensors", (json_int_t)r->n_tensors, "bytes",
                  (json_int_t)r->bytes, "n_taps", (json_int_t)h->n_taps);
    bool ok = json && json_object_set_new(json, "type", json_string(ae_type_name(r->type))) == 0;
    if (ok && h->kind == AE_DHEAD_MEDUSA) {
        json_t *medusa = json_pack("{s:I, s:I}", "n_medusa", (json_int_t)h->n_medusa, "n_blocks", (json_int_t)h->n_blocks);
        ok = json_object_update_new(json, medusa) == 0;
    } else if (ok) {
        const char *scaling = h->divisors && strcmp(h->rope_type, "none") == 0 ? "divisors" : h->rope_type;
        const char *draft_map = !h->ids ? "none" : h->ids_were_absolute ? "absolute" : "offset";
        json_t *layer = json_pack("{s:I, s:I, s:I, s:I, s:b, s:b, s:s, s:f, s:s, s:s}", "n_heads", (json_int_t)h->n_heads,
                                  "n_kv_heads", (json_int_t)h->n_kv_heads, "head_dim", (json_int_t)h->head_dim, "n_ff",
                                  (json_int_t)h->n_ff, "own_embedding", h->embedding, "own_output", h->output, "rope_scaling",
                                  scaling, "rope_base", h->rope_base, "taps_from", h->taps_from, "draft_map", draft_map);
        ok = json_object_update_new(json, layer) == 0;
    }
    if (ok && h->kind == AE_DHEAD_EAGLE3) {
        json_t *eagle3 = json_pack("{s:O, s:b, s:s, s:s}", "taps", taps, "norm_before_residual", h->norm_before_residual,
                                   "feedback", h->feedback_post ? "post" : "pre", "fc_norm", fc_norms[h->fc_norm]);
        ok = json_object_update_new(json, eagle3) == 0;
    }
    if (ok && ae_dhead_has_blocks(h->kind)) {
        json_t *block = json_pack("{s:O, s:I, s:I, s:I, s:I, s:b}", "taps", taps, "n_layers", (json_int_t)h->n_layers,
                                  "n_block", (json_int_t)h->n_block, "mask", (json_int_t)h->mask, "markov_rank",
                                  (json_int_t)h->n_markov, "from_anchor", h->from_anchor);
        ok = json_object_update_new(json, block) == 0;
    }
    json_decref(taps);
    if (ok && r->check) ok = json_object_set_new(json, "self_check", check_json(r->check)) == 0;
    if (!ok) {
        json_decref(json);
        json = NULL;
    }
    return app_print_json(json);
}

/* ---- The command ------------------------------------------------------------------------------------------ */

static int report(aerie_status status, const aerie_error *error)
{
    return status == AERIE_ERROR_CANCELLED ? APP_INTERRUPTED : app_report(APP_LOADING, status, error);
}

static int run(const ae_convert_options *options, const app_options *o)
{
    watcher *w = options->user;
    aerie_error error = {0};
    ae_convert *c;
    int bad = report(ae_convert_open(&c, options, &error), &error);
    if (bad) return bad;
    const aerie_status status = ae_convert_run(c, &error);
    app_progress_clear(&w->percent);
    bad = report(status, &error);
    const ae_convert_report r = ae_convert_reported(c);
    if (!bad && !o->quiet && r.check) say_check(r.check);
    if (!bad && !o->quiet && r.encoder) say_encoder(&r);
    if (!bad && !o->quiet && r.model) say_model(&r);
    if (!bad && !o->quiet && r.adapter) say_adapter(&r);
    if (!bad && !o->quiet && r.tower) say_tower(&r);
    if (!bad && !o->quiet && r.head) say(&r);
    if (!bad && o->json) bad = print_json(options, &r);
    ae_convert_free(c);
    return bad;
}

int app_convert(const app_options *options)
{
    ae_convert_options c;
    app_text text = {0};
    watcher w = {.quiet = options->quiet, .shown = !options->quiet && isatty(STDERR_FILENO), .percent = -1};
    int bad = parse_options(options, &c, &text);
    if (!bad) {
        c.log = (aerie_log){on_log, &w};
        c.progress = progress;
        c.user = &w;
        app_interrupt_arm();
        if (c.output) bad = run(&c, options);
        c.mmproj = true;
        c.output = options->mmproj;
        if (!bad && c.output) bad = run(&c, options);
    }
    app_text_free(&text);
    return bad;
}
