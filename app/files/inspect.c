/* inspect.c - aerie inspect: shows what a GGUF file contains, even if aerie cannot run it.
 * Reads the file with the library's own reader (src/formats), which aerie.h does not expose, because this command shows
 * metadata of any kind. Strings of the file may be malicious: they are escaped for terminals and made valid UTF-8 for JSON. */
#include <stdlib.h>
#include <string.h>

#include "aerie_extra.h"
#include "engine/tower.h"
#include "formats/gguf.h"
#include "formats/kind.h"
#include "cli/commands.h"

#define MAX_ELEMENTS 8 /* of an array, and */
#define MAX_BYTES 120  /* bytes of a string that are shown without --full */

static bool matches(const app_options *options, ae_gguf_string name)
{
    const size_t n = options->inspect.match ? strlen(options->inspect.match) : 0;
    if (n == 0) return true;
    for (size_t i = 0; i + n <= name.n; i++) {
        if (memcmp(name.data + i, options->inspect.match, n) == 0) return true;
    }
    return false;
}

typedef struct totals {
    uint64_t n[AE_TYPE_COUNT], elements[AE_TYPE_COUNT], bytes[AE_TYPE_COUNT];
    uint64_t n_params, n_bytes;
    uint32_t n_experts, n_used; /* 0 = none */
    uint64_t n_active;          /* parameters except those of experts that a token does not use */
    uint64_t n_read_bytes;      /* bytes of weights that are read to decode a token */
    uint32_t n_scales;          /* weights that have a .scale */
} totals;

/* Returns "<architecture>.<suffix>" as a count; 0 if it is missing. */
static uint32_t arch_count(const ae_gguf *gguf, const char *suffix)
{
    ae_gguf_string arch = {0};
    uint32_t value = 0;
    char key[128];
    if (ae_gguf_get_string(gguf, "general.architecture", false, &arch, NULL) != AERIE_OK || !arch.data || arch.n > 64) return 0;
    snprintf(key, sizeof key, "%.*s.%s", (int)arch.n, arch.data, suffix);
    return ae_gguf_get_u32(gguf, key, false, &value, NULL) == AERIE_OK ? value : 0;
}

/* Returns whether a tensor belongs to experts, judging by its name. */
static bool is_expert(ae_gguf_string name)
{
    static const char part[] = "_exps.";
    for (size_t i = 0; i + sizeof part - 1 <= name.n; i++) {
        if (memcmp(name.data + i, part, sizeof part - 1) == 0) return true;
    }
    return false;
}

/* Returns whether a tensor is the "NAME.scale" of a "NAME.weight". */
static bool is_scale(const ae_gguf *gguf, ae_gguf_string name)
{
    static const char end[] = ".scale";
    char weight[128];
    if (name.n < sizeof end || name.n > 100 || memcmp(name.data + name.n - (sizeof end - 1), end, sizeof end - 1)) return false;
    snprintf(weight, sizeof weight, "%.*s.weight", (int)(name.n - (sizeof end - 1)), name.data);
    return ae_gguf_tensor_find(gguf, weight) != NULL;
}

static bool begins(ae_gguf_string name, const char *text)
{
    return name.n >= strlen(text) && memcmp(name.data, text, strlen(text)) == 0;
}

/* Returns whether decoding reads the whole tensor. Of a token table it reads only a row, unless the table is also the output
 * matrix; blocks that only draft (from block n_plain on) are not read. */
static bool is_read(ae_gguf_string name, bool has_output, uint32_t n_plain)
{
    if (begins(name, "per_layer_token_embd.")) return false;
    if (begins(name, "token_embd.")) return !has_output;
    if (!begins(name, "blk.")) return true;
    uint64_t block = 0; /* the name is not terminated by a NUL */
    for (size_t i = 4; i < name.n && i < 14 && name.data[i] >= '0' && name.data[i] <= '9'; i++)
        block = 10 * block + (uint64_t)(name.data[i] - '0');
    return block < n_plain;
}

static totals count(const ae_gguf *gguf)
{
    const uint32_t n_blocks = arch_count(gguf, "block_count"), n_drafting = arch_count(gguf, "nextn_predict_layers");
    const uint32_t n_plain = n_blocks > n_drafting ? n_blocks - n_drafting : UINT32_MAX;
    const bool has_output = ae_gguf_tensor_find(gguf, "output.weight") != NULL;
    totals t = {.n_experts = arch_count(gguf, "expert_count"), .n_used = arch_count(gguf, "expert_used_count")};
    if (t.n_used > t.n_experts) t.n_used = t.n_experts;
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_tensor *tensor = ae_gguf_tensor_at(gguf, i);
        uint64_t elements = 1;
        for (int d = 0; d < 4; d++) elements *= (uint64_t)tensor->ne[d]; /* cannot overflow: the reader checked the product */
        t.n[tensor->type]++;
        t.elements[tensor->type] += elements;
        t.bytes[tensor->type] += tensor->bytes;
        t.n_params += elements;
        t.n_active += t.n_experts && is_expert(tensor->name) ? elements / t.n_experts * t.n_used : elements;
        t.n_bytes += tensor->bytes;
        if (is_read(tensor->name, has_output, n_plain))
            t.n_read_bytes += t.n_experts && is_expert(tensor->name) ? tensor->bytes / t.n_experts * t.n_used : tensor->bytes;
        t.n_scales += is_scale(gguf, tensor->name);
    }
    return t;
}

uint64_t app_bytes_per_token(const char *path)
{
    ae_gguf *gguf;
    if (ae_gguf_open(&gguf, path, NULL, NULL) != AERIE_OK) return 0;
    const uint64_t bytes = count(gguf).n_read_bytes;
    ae_gguf_close(gguf);
    return bytes;
}

static double bits_per_weight(uint64_t bytes, uint64_t elements)
{
    return elements ? 8.0 * (double)bytes / (double)elements : 0;
}

/* ---- Text --------------------------------------------------------------------------------------- */

/* Prints at most MAX_BYTES bytes of a string, in whole characters. */
static void print_text(const app_options *options, ae_gguf_string s, bool quote)
{
    size_t n = s.n;
    if (!options->inspect.full && n > MAX_BYTES) {
        uint32_t code;
        n = 0;
        while (n < MAX_BYTES) {
            const size_t step = app_utf8_char(s.data + n, s.n - n, &code);
            n += step ? step : 1;
        }
    }
    if (quote) app_write("\"", 1);
    app_write_escaped(s.data, n);
    if (quote) app_write("\"", 1);
    if (n < s.n) app_print("... (%zu bytes)", s.n);
}

/* Returns a u64, which may exceed the int64 of the reader's functions. */
static uint64_t raw_u64(const uint8_t *data, uint64_t i)
{
    uint64_t value;
    memcpy(&value, data + 8 * i, 8);
    return value;
}

static void print_element(const ae_gguf_kv *kv, uint64_t i)
{
    int64_t whole;
    double real;
    if (kv->element_type == AE_GGUF_BOOL) app_print("%s", kv->data[i] ? "true" : "false");
    else if (kv->element_type == AE_GGUF_U64) app_print("%llu", (unsigned long long)raw_u64(kv->data, i));
    else if (ae_gguf_kv_int(kv, i, &whole)) app_print("%lld", (long long)whole);
    else if (ae_gguf_kv_float(kv, i, &real)) app_print("%.9g", real);
    else app_print("?");
}

static void print_value(const app_options *options, const ae_gguf_kv *kv)
{
    const bool array = kv->type == AE_GGUF_ARRAY;
    const uint64_t n = !options->inspect.full && kv->n > MAX_ELEMENTS ? MAX_ELEMENTS : kv->n;
    size_t cursor = 0;
    if (array) app_print("[");
    for (uint64_t i = 0; i < n; i++) {
        ae_gguf_string s;
        if (i) app_print(", ");
        if (kv->element_type != AE_GGUF_STRING) print_element(kv, i);
        else if (ae_gguf_kv_next_string(kv, &cursor, &s)) print_text(options, s, true);
    }
    if (array && n < kv->n) app_print(", ...");
    if (array) app_print("]");
}

/* Prints a heading, after an empty line unless it is the first thing that is printed. */
static void print_heading(const char *what, size_t n_shown, size_t n_all, const char *unit, bool first)
{
    if (n_shown < n_all) app_print("%s%s (%zu of %zu%s)\n", first ? "" : "\n", what, n_shown, n_all, unit);
    else app_print("%s%s (%zu%s)\n", first ? "" : "\n", what, n_all, unit);
}

static void print_keys(const app_options *options, const ae_gguf *gguf)
{
    const size_t n_all = ae_gguf_n_kv(gguf);
    size_t n_shown = 0;
    for (size_t i = 0; i < n_all; i++) n_shown += matches(options, ae_gguf_kv_at(gguf, i)->key);
    print_heading("Metadata", n_shown, n_all, " keys", options->inspect.keys);
    for (size_t i = 0; i < ae_gguf_n_kv(gguf); i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_at(gguf, i);
        if (!matches(options, kv->key)) continue;
        app_print("  ");
        print_text(options, kv->key, false);
        if (kv->type == AE_GGUF_ARRAY) {
            app_print("  %s[%llu]  ", ae_gguf_type_name(kv->element_type), (unsigned long long)kv->n);
        } else {
            app_print("  %s  ", ae_gguf_type_name(kv->type));
        }
        print_value(options, kv);
        app_print("\n");
    }
}

static void print_tensors(const app_options *options, const ae_gguf *gguf)
{
    const size_t n_all = ae_gguf_n_tensors(gguf);
    size_t n_shown = 0;
    for (size_t i = 0; i < n_all; i++) n_shown += matches(options, ae_gguf_tensor_at(gguf, i)->name);
    print_heading("Tensors", n_shown, n_all, "", options->inspect.tensors && !options->inspect.keys);
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_tensor *tensor = ae_gguf_tensor_at(gguf, i);
        char shape[96];
        size_t n = 0;
        if (!matches(options, tensor->name)) continue;
        for (uint32_t d = 0; d < tensor->n_dims; d++) {
            n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%lld", d ? " x " : "", (long long)tensor->ne[d]);
        }
        app_print("  %-8s %12zu bytes  %-22s ", ae_type_name(tensor->type), tensor->bytes, n ? shape : "1");
        print_text(options, tensor->name, false);
        if (ae_gguf_n_files(gguf) > 1) app_print("  (part %u)", (unsigned)tensor->i_file + 1);
        app_print("\n");
    }
}

static void print_field(const ae_gguf *gguf, const app_options *options, const char *label, const char *key)
{
    const ae_gguf_kv *kv = ae_gguf_kv_find(gguf, key);
    if (!kv) return;
    app_print("%-14s", label);
    print_value(options, kv);
    app_print("\n");
}

/* Prints how many tokens a vision encoder makes of pictures of common sizes, or why this program cannot use it. */
static void print_tower(const char *path)
{
    static const uint32_t sizes[][2] = {{1024, 1024}, {1920, 1080}, {300, 200}};
    aerie_error error = {0};
    ae_tower_model *m;
    if (ae_tower_model_load(&m, path, true, &error) != AERIE_OK) {
        app_print("%-14snot read by this program: ", "images");
        app_write_escaped(error.text, strlen(error.text)); /* it may quote the file */
        app_print("\n");
        return;
    }
    app_print("%-14s%s, %u blocks of width %u, patches of %u pixels, rows of width %u", "images", m->type->name,
              (unsigned)m->hparams.n_layers, (unsigned)m->hparams.n_embd, (unsigned)m->patch, (unsigned)m->n_out);
    if (m->n_deep) app_print(" (and for %u layer%s of the text model)", (unsigned)m->n_deep, app_plural(m->n_deep));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ae_tower_plan plan;
        if (ae_tower_plan_make(m, sizes[i][0], sizes[i][1], &plan, &error) != AERIE_OK) continue;
        const uint32_t n_rows = ae_tower_plan_rows(m, &plan);
        app_print("\n%-14s%u x %u pixels take %u token%s in %u view%s", "", (unsigned)sizes[i][0], (unsigned)sizes[i][1],
                  (unsigned)n_rows, app_plural(n_rows), (unsigned)plan.n_views, app_plural(plan.n_views));
    }
    app_print("\n");
    ae_tower_model_free(m);
    aerie_memory_plan plan;
    char weights[32], room[32];
    if (aerie_memory_plan_tower(path, NULL, NULL, 0, 0, &plan, sizeof plan, NULL) == AERIE_OK)
        app_print("%-14s%s of weights, and %s while a picture of 1024 x 1024 is read\n", "memory",
                  app_bytes(weights, plan.weight_bytes), app_bytes(room, plan.session_bytes));
}

static void print_summary(const app_options *options, const ae_gguf *gguf)
{
    char size[32];
    const totals t = count(gguf);
    app_print("%-14s", "file");
    app_write_escaped(ae_gguf_path(gguf), strlen(ae_gguf_path(gguf)));
    app_print("\n%-14sGGUF version %u, alignment %u, %u file%s, %s\n", "format", (unsigned)ae_gguf_version(gguf),
              (unsigned)ae_gguf_alignment(gguf), (unsigned)ae_gguf_n_files(gguf), app_plural(ae_gguf_n_files(gguf)),
              app_bytes(size, ae_gguf_file_bytes(gguf)));
    print_field(gguf, options, "architecture", "general.architecture");
    print_field(gguf, options, "name", "general.name");
    print_field(gguf, options, "tokenizer", "tokenizer.ggml.model");
    if (ae_gguf_n_tensors(gguf) == 0) {
        app_print("%-14snone (a vocabulary only)\n", "tensors");
        return;
    }
    app_print("%-14s%llu (%.2f M)\n", "parameters", (unsigned long long)t.n_params, (double)t.n_params / 1e6);
    if (t.n_experts) {
        app_print("%-14s%u, of which a token uses %u: %.2f M parameters\n", "experts", (unsigned)t.n_experts,
                  (unsigned)t.n_used, (double)t.n_active / 1e6);
    }
    if (ae_role_of(gguf) == AE_ROLE_MMPROJ) print_tower(ae_gguf_path(gguf));
    if (t.n_scales) app_print("%-14sbeside %u weights (.scale)\n", "scales", (unsigned)t.n_scales);
    app_print("%-14s%s, %.3f bits per weight\n", "weights", app_bytes(size, t.n_bytes),
              bits_per_weight(t.n_bytes, t.n_params));
    app_print("\n  %-8s %8s %16s %12s %8s\n", "type", "tensors", "weights", "size", "bits");
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        if (t.n[type] == 0) continue;
        app_print("  %-8s %8llu %16llu %12s %8.3f\n", ae_type_name(type), (unsigned long long)t.n[type],
                  (unsigned long long)t.elements[type], app_bytes(size, t.bytes[type]),
                  bits_per_weight(t.bytes[type], t.elements[type]));
    }
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

static json_t *element_json(const ae_gguf_kv *kv, uint64_t i)
{
    int64_t whole;
    double real;
    if (kv->element_type == AE_GGUF_BOOL) return json_boolean(kv->data[i]);
    if (ae_gguf_kv_int(kv, i, &whole)) return json_integer(whole);
    if (kv->element_type == AE_GGUF_U64) return app_json_real((double)raw_u64(kv->data, i));
    if (ae_gguf_kv_float(kv, i, &real)) return app_json_real(real);
    return json_null();
}

/* Returns a scalar as a JSON value; an array as {"type", "n", "values"}, shortened unless --full. */
static json_t *value_json(const app_options *options, const ae_gguf_kv *kv)
{
    const bool array = kv->type == AE_GGUF_ARRAY;
    const uint64_t n = !options->inspect.full && kv->n > MAX_ELEMENTS ? MAX_ELEMENTS : kv->n;
    json_t *values = json_array();
    size_t cursor = 0;
    for (uint64_t i = 0; values && i < n; i++) {
        ae_gguf_string s;
        json_t *element;
        if (kv->element_type != AE_GGUF_STRING) element = element_json(kv, i);
        else if (ae_gguf_kv_next_string(kv, &cursor, &s)) element = app_json_text(s.data, s.n);
        else break;
        if (json_array_append_new(values, element)) {
            json_decref(values);
            return NULL;
        }
    }
    if (array) {
        return json_pack("{s:s, s:I, s:o}", "type", ae_gguf_type_name(kv->element_type), "n", (json_int_t)kv->n,
                         "values", values);
    }
    json_t *only = json_incref(json_array_get(values, 0));
    json_decref(values);
    return only;
}

/* Sets a member whose name may be any bytes. */
static bool set(json_t *object, ae_gguf_string name, json_t *value)
{
    json_t *text = app_json_text(name.data, name.n);
    const bool ok =
        text && value && json_object_setn_new(object, json_string_value(text), json_string_length(text), value) == 0;
    if (!ok && !text) json_decref(value); /* otherwise json_object_setn_new has released it */
    json_decref(text);
    return ok;
}

static json_t *keys_json(const app_options *options, const ae_gguf *gguf)
{
    json_t *object = json_object();
    bool ok = object != NULL;
    for (size_t i = 0; ok && i < ae_gguf_n_kv(gguf); i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_at(gguf, i);
        if (matches(options, kv->key)) ok = set(object, kv->key, value_json(options, kv));
    }
    if (ok) return object;
    json_decref(object);
    return NULL;
}

static json_t *tensors_json(const app_options *options, const ae_gguf *gguf)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_tensor *tensor = ae_gguf_tensor_at(gguf, i);
        if (!matches(options, tensor->name)) continue;
        json_t *shape = json_array();
        for (uint32_t d = 0; d < tensor->n_dims; d++) app_json_append(shape, json_integer(tensor->ne[d]));
        json_t *entry =
            json_pack("{s:o, s:s, s:o, s:I, s:I, s:I}", "name", app_json_text(tensor->name.data, tensor->name.n),
                      "type", ae_type_name(tensor->type), "shape", shape, "bytes", (json_int_t)tensor->bytes, "file",
                      (json_int_t)tensor->i_file, "offset", (json_int_t)tensor->offset);
        if (json_array_append_new(list, entry)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *types_json(const totals *t)
{
    json_t *list = json_array();
    for (uint32_t type = 0; list && type < AE_TYPE_COUNT; type++) {
        if (t->n[type] == 0) continue;
        app_json_append(list, json_pack("{s:s, s:I, s:I, s:I, s:f}", "type", ae_type_name(type), "tensors",
                                              (json_int_t)t->n[type], "parameters", (json_int_t)t->elements[type],
                                              "bytes", (json_int_t)t->bytes[type], "bits_per_weight",
                                              bits_per_weight(t->bytes[type], t->elements[type])));
    }
    return list;
}

static int print_json(const app_options *options, const ae_gguf *gguf)
{
    const totals t = count(gguf);
    json_t *json = json_pack(
        "{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:o}", "file",
        app_json_text(ae_gguf_path(gguf), strlen(ae_gguf_path(gguf))), "version", (json_int_t)ae_gguf_version(gguf),
        "alignment", (json_int_t)ae_gguf_alignment(gguf), "n_files", (json_int_t)ae_gguf_n_files(gguf), "file_bytes",
        (json_int_t)ae_gguf_file_bytes(gguf), "n_params", (json_int_t)t.n_params, "weight_bytes", (json_int_t)t.n_bytes,
        "bits_per_weight", bits_per_weight(t.n_bytes, t.n_params), "types", types_json(&t));
    bool ok = json != NULL;
    if (ok && t.n_experts)
        ok = json_object_set_new(json, "experts",
                                 json_pack("{s:I, s:I, s:I}", "n", (json_int_t)t.n_experts, "n_used", (json_int_t)t.n_used,
                                           "n_params_active", (json_int_t)t.n_active)) == 0;
    if (ok && t.n_scales) ok = json_object_set_new(json, "n_scales", json_integer(t.n_scales)) == 0;
    if (ok && (options->inspect.keys || !options->inspect.tensors))
        ok = json_object_set_new(json, "keys", keys_json(options, gguf)) == 0;
    if (ok && (options->inspect.tensors || !options->inspect.keys))
        ok = json_object_set_new(json, "tensors", tensors_json(options, gguf)) == 0;
    if (!ok) {
        json_decref(json);
        json = NULL;
    }
    return app_print_json(json);
}

/* Prints what each process needs with --machines KIND:N, or 2x4. */
static int print_machines(const app_options *options, const char *path)
{
    char *text = NULL;
    aerie_error error = {0};
    const uint32_t n = app_machines_n(options->machines);
    if (!n)
        return app_error(APP_USAGE,
                         "'inspect' takes a number of processes, 1 to 64, after the kind, as in --machines split:4; found '%s'",
                         options->machines);
    const aerie_status status = aerie_machines_describe(&text, path, options->model_params.machines, n, &error);
    if (status == AERIE_OK) app_print("%s", text);
    aerie_free(text);
    return app_report(APP_LOADING, status, &error);
}

int app_inspect(const app_options *options)
{
    const char *path = options->arguments.n ? options->arguments.items[0] : options->model;
    const ae_gguf_options how = {.index_only = options->model_params.no_mmap};
    aerie_error error = {0};
    ae_gguf *gguf = NULL;
    if (options->arguments.n > 1)
        return app_error(APP_USAGE, "'inspect' takes one file; found '%s' too", options->arguments.items[1]);
    if (!path) return app_error(APP_USAGE, "'inspect' needs a model: aerie inspect FILE");
    if (options->machines) return print_machines(options, path);
    const aerie_status status = ae_gguf_open(&gguf, path, &how, &error);
    if (status != AERIE_OK) return app_report(APP_LOADING, status, &error);
    int bad = APP_DONE;
    if (options->json) {
        bad = print_json(options, gguf);
    } else {
        if (!options->inspect.keys && !options->inspect.tensors) print_summary(options, gguf);
        if (options->inspect.keys || !options->inspect.tensors) print_keys(options, gguf);
        if (options->inspect.tensors || (options->inspect.match && !options->inspect.keys)) print_tensors(options, gguf);
        else if (!options->inspect.keys) app_print("\n%zu tensors; --tensors lists them\n", ae_gguf_n_tensors(gguf));
    }
    ae_gguf_close(gguf);
    return bad;
}
