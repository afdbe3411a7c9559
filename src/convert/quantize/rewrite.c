/* rewrite.c - implements rewrite.h: the plan, and the header of the new file. rows.c writes the rows. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "formats/kind.h"
#include "formats/gguf_parse.h"
#include "formats/patterns.h"
#include "convert/quantize/rewrite_int.h"

ae_rewrite_settings ae_rewrite_settings_default(const ae_mix *mix)
{
    return (ae_rewrite_settings){.mix = mix, .output_type = AE_MIX_AS_IS, .embedding_type = AE_MIX_AS_IS};
}

size_t ae_rewrite_n_tensors(const ae_rewrite *rewrite)
{
    return rewrite->n_tensors;
}

const ae_rewrite_tensor *ae_rewrite_tensor_at(const ae_rewrite *rewrite, size_t i)
{
    return &rewrite->tensors[i];
}

size_t ae_rewrite_rule_uses(const ae_rewrite *rewrite, size_t i)
{
    return rewrite->rule_uses[i];
}

uint32_t ae_rewrite_n_files(const ae_rewrite *r)
{
    return r->n_writers;
}

bool ae_rewrite_was_checked(const ae_rewrite *r)
{
    return r->checked;
}

bool ae_rewrite_keeps(const ae_rewrite_tensor *t)
{
    return t->type == t->from->type && t->row_copies == 1 && t->column_copies == 1;
}

void ae_rewrite_free(ae_rewrite *r)
{
    if (!r) return;
    for (uint32_t i = 0; r->writers && i < r->n_writers; i++) ae_gguf_writer_free(r->writers[i]);
    ae_free(r->writers);
    ae_free(r->part_of);
    ae_arena_free(&r->arena);
    ae_free(r->rule_uses);
    ae_free(r->tensors);
    ae_free(r);
}

/* ---- Types ---------------------------------------------------------------------------------------------- */

aerie_status ae_rewrite_fail(const ae_gguf *gguf, const ae_gguf_tensor *tensor, aerie_error *error, aerie_status status,
                             const char *format, ...)
{
    char what[320], quoted[AE_GGUF_QUOTE_BYTES];
    const char *dots, *path = ae_gguf_path_end(ae_gguf_path(gguf), &dots);
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return ae_fail(error, status, "%s%s: tensor %s %s", dots, path, ae_gguf_quote(quoted, tensor->name), what);
}

static aerie_status check_type(uint32_t type, aerie_error *error)
{
    const ae_type_info *info = ae_type_get(type);
    if (type == AE_MIX_AS_IS || (info && ae_type_encoder(info->type))) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_ARGUMENT, "tensors of type %s can be read but not written",
                   info ? info->name : "?");
}

/* Chooses the requested type, before the length of the rows is considered. */
static aerie_status want(ae_rewrite *r, ae_patterns *rules, const ae_rewrite_settings *s, ae_rewrite_tensor *t,
                         aerie_error *error)
{
    const ae_gguf_string name = t->name;
    const bool output = ae_mix_name_is(name, "output.weight"), embedding = ae_mix_name_is(name, "token_embd.weight");
    size_t rule = s->n_rules;
    t->wanted = s->pure ? s->mix->type : ae_mix_type(s->mix, &r->model, name, t->ne[0]);
    AE_TRY(ae_patterns_first(rules, name, &rule, error));
    if (rule < s->n_rules) {
        t->wanted = s->rules[rule].type;
        r->rule_uses[rule]++;
    }
    if (s->output_type != AE_MIX_AS_IS && (output || (embedding && r->model.tied && !r->model.head)))
        t->wanted = s->output_type;
    if (s->embedding_type != AE_MIX_AS_IS && embedding) t->wanted = s->embedding_type;
    const bool kept = (s->leave_output && output) || (s->only_copied && t->row_copies == 1 && t->column_copies == 1);
    if (t->wanted == AE_MIX_AS_IS || kept) t->wanted = t->from->type;
    return AERIE_OK;
}

/* Decides whether the importance matrix is used for the tensor. It may list the embeddings for another reason: as an output
 * head they have inputs, but as rows to look up they have none. */
static aerie_status weigh(const ae_rewrite *r, ae_rewrite_tensor *t, aerie_error *error)
{
    const ae_gguf_tensor *from = t->from;
    uint64_t n_columns, n_matrices;
    if (!r->settings.imatrix || !t->weight || t->row_copies > 1 || t->column_copies > 1) return AERIE_OK;
    if (!ae_imatrix_find(r->settings.imatrix, from->name, &n_columns, &n_matrices)) return AERIE_OK;
    const uint64_t width = (uint64_t)from->ne[0], n = (uint64_t)(from->ne[2] * from->ne[3]);
    if (n_matrices ? n_columns != width || n_matrices != n : n_columns % width || n_columns / width != n)
        return ae_rewrite_fail(r->gguf, from, error, AERIE_ERROR_FORMAT,
                               "has %lld columns and %lld matrices, but %llu and %llu in the importance matrix %s, which was "
                               "made of another model",
                               (long long)from->ne[0], (long long)(from->ne[2] * from->ne[3]), (unsigned long long)n_columns,
                               (unsigned long long)n_matrices, ae_imatrix_path(r->settings.imatrix));
    t->weighed = !ae_rewrite_keeps(t);
    return AERIE_OK;
}

static aerie_status choose(ae_rewrite *r, ae_patterns *rules, const ae_rewrite_settings *s, ae_rewrite_tensor *t,
                           aerie_error *error)
{
    const ae_type_info *from = ae_type_get(t->from->type), *to;
    t->wanted = t->from->type;
    if (t->weight) AE_TRY(want(r, rules, s, t, error));
    t->type = ae_mix_fit(t->wanted, t->ne[0]);
    if (ae_rewrite_keeps(t)) return AERIE_OK;
    to = ae_type_get(t->type);
    if (!from->decode || !ae_type_encoder(to->type))
        return ae_rewrite_fail(r->gguf, t->from, error, AERIE_ERROR_UNSUPPORTED,
                               "is %s, which cannot become %s with other values", from->name, to->name);
    const bool again = ae_mix_is_quantized(from->type) && ae_mix_is_quantized(to->type) && to != from;
    if (again && !s->allow_requantize)
        return ae_rewrite_fail(
            r->gguf, t->from, error, AERIE_ERROR_ARGUMENT,
            "is quantized already (%s); %s made from it is worse than made from the original: use an F16, BF16 or F32 file, or "
            "override with --allow-requantize",
            from->name, to->name);
    return AERIE_OK;
}

/* ---- Shapes --------------------------------------------------------------------------------------------- */

static bool multiply(int64_t *ne, uint32_t by)
{
    return !__builtin_mul_overflow(*ne, (int64_t)by, ne);
}

static aerie_status shape(const ae_rewrite *r, ae_rewrite_tensor *t, aerie_error *error)
{
    const ae_rewrite_settings *s = &r->settings;
    const ae_gguf_tensor *from = t->from;
    const bool vector = from->ne[1] * from->ne[2] * from->ne[3] == 1;
    memcpy(t->ne, from->ne, sizeof t->ne);
    t->row_copies = t->column_copies = 1;
    if (s->shape) AE_TRY(s->shape(s->shape_context, t, error));
    const bool good =
        t->row_copies >= 1 && t->column_copies >= 1 &&
        (t->row_copies == 1 || (from->ne[2] * from->ne[3] == 1 && (!vector || from->type == AE_TYPE_F32)));
    if (!good)
        return ae_rewrite_fail(r->gguf, from, error, AERIE_ERROR_UNSUPPORTED,
                               "is neither a matrix nor a vector of f32: its rows cannot be copied");
    if (!multiply(&t->ne[vector ? 0 : 1], t->row_copies) || !multiply(&t->ne[0], t->column_copies))
        return ae_rewrite_fail(r->gguf, from, error, AERIE_ERROR_LIMIT, "would become too large");
    return AERIE_OK;
}

static aerie_status measure(ae_rewrite *r, ae_rewrite_tensor *t, aerie_error *error)
{
    size_t bytes = ae_type_row_bytes(t->type, (uint64_t)t->ne[0]);
    bool fits = bytes > 0;
    for (int d = 1; d < 4; d++) fits = fits && ae_mul_size(bytes, (size_t)t->ne[d], &bytes);
    t->bytes = bytes;
    fits = fits && !__builtin_add_overflow(r->total, (uint64_t)bytes, &r->total);
    return fits ? AERIE_OK : ae_rewrite_fail(r->gguf, t->from, error, AERIE_ERROR_LIMIT, "would become too large");
}

/* Refuses a mix that would change almost nothing in this model. */
static aerie_status check_mix(const ae_rewrite *r, aerie_error *error)
{
    const ae_rewrite_settings *s = &r->settings;
    const char *dots, *path = ae_gguf_path_end(ae_gguf_path(r->gguf), &dots);
    if (!ae_mix_needs_experts(s->mix) || s->pure || r->model.head || r->model.n_experts) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_ARGUMENT,
                   "%s%s: %s is for models with experts and this one has none, so everything would become Q8_0; use Q8_0, or "
                   "Q4_0 or IQ4_NL for 4 bits, or --pure with %s for every weight",
                   dots, path, s->mix->name, ae_type_name(s->mix->type));
}

/* ---- The plan ------------------------------------------------------------------------------------------- */

static aerie_status plan_tensors(ae_rewrite *r, ae_patterns *rules, const ae_rewrite_settings *s, aerie_error *error)
{
    r->n_tensors = 0;
    for (size_t i = 0; i < ae_gguf_n_tensors(r->gguf); i++) {
        ae_rewrite_tensor *t = &r->tensors[r->n_tensors];
        bool failed;
        t->from = ae_gguf_tensor_at(r->gguf, i);
        t->name = t->from->name;
        const bool kept = ae_prune_name(&r->layers, &r->arena, &t->name, &failed);
        if (failed) return ae_fail_memory(error, "a tensor's name", t->name.n);
        if (!kept) continue;
        r->n_tensors++;
        t->weight = ae_mix_is_weight(t->from);
        AE_TRY(shape(r, t, error));
        AE_TRY(choose(r, rules, s, t, error));
        AE_TRY(weigh(r, t, error));
        AE_TRY(measure(r, t, error));
    }
    return AERIE_OK;
}

/* Numbers the new files. The first one has the keys, so it is written even without tensors. */
static aerie_status plan_parts(ae_rewrite *r, aerie_error *error)
{
    const uint32_t n = ae_gguf_n_files(r->gguf);
    r->n_writers = 1;
    r->part_of = ae_alloc(n, sizeof *r->part_of);
    if (!r->part_of) return ae_fail_memory(error, "a plan", n * sizeof *r->part_of);
    if (!r->settings.keep_split) return AERIE_OK;
    for (size_t i = 0; i < r->n_tensors; i++) r->part_of[r->tensors[i].from->i_file] = 1;
    r->part_of[0] = 0;
    for (uint32_t i = 1; i < n; i++)
        if (r->part_of[i]) r->part_of[i] = r->n_writers++;
    return AERIE_OK;
}

aerie_status ae_rewrite_plan(ae_rewrite **out, const ae_gguf *gguf, const ae_rewrite_settings *s, aerie_error *error)
{
    ae_patterns rules = {0};
    *out = NULL;
    if (ae_role_of(gguf) != AE_ROLE_MMPROJ) AE_TRY(ae_role_need(gguf, AE_ROLE_MODEL, error));
    AE_TRY(check_type(s->mix->type, error));
    AE_TRY(check_type(s->output_type, error));
    AE_TRY(check_type(s->embedding_type, error));
    for (size_t i = 0; i < s->n_rules; i++) AE_TRY(check_type(s->rules[i].type, error));
    ae_rewrite *r = ae_alloc(1, sizeof *r);
    if (!r) return ae_fail_memory(error, "a plan", sizeof *r);
    r->gguf = gguf;
    r->settings = *s;
    ae_arena_init(&r->arena, 4096);
    const size_t n_tensors = ae_gguf_n_tensors(gguf);
    ae_mix_model_read(&r->model, gguf);
    r->model.n_layers -= r->model.n_layers > s->n_pruned ? (uint32_t)s->n_pruned : 0;
    r->tensors = ae_alloc(n_tensors + 1, sizeof *r->tensors);
    r->rule_uses = ae_alloc(s->n_rules + 1, sizeof *r->rule_uses);
    aerie_status status = AERIE_OK;
    if (!r->tensors || !r->rule_uses) status = ae_fail_memory(error, "a plan", (n_tensors + 1) * sizeof *r->tensors);
    if (status == AERIE_OK) status = ae_prune_read(&r->layers, gguf, s->pruned, s->n_pruned, error);
    if (status == AERIE_OK) status = check_mix(r, error);
    for (size_t i = 0; i < s->n_rules && status == AERIE_OK; i++)
        status = ae_patterns_add(&rules, s->rules[i].pattern, strlen(s->rules[i].pattern), error);
    if (status == AERIE_OK) status = plan_tensors(r, &rules, s, error);
    if (status == AERIE_OK) status = plan_parts(r, error);
    ae_patterns_free(&rules);
    if (status == AERIE_OK) *out = r;
    else ae_rewrite_free(r);
    return status;
}

/* ---- The head of the file ------------------------------------------------------------------------------- */

typedef struct new_keys {
    ae_rewrite_key items[32]; /* keys to set, whether the file has them or not */
    bool done[32];
    size_t n;
} new_keys;

static aerie_status gather_keys(const ae_rewrite *r, new_keys *keys, aerie_error *error)
{
    const ae_rewrite_settings *s = &r->settings;
    enum { MOST = sizeof keys->items / sizeof *keys->items - 2 };
    if (s->n_keys > MOST)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%zu keys are to be set; %d can be", s->n_keys, (int)MOST);
    for (size_t i = 0; i < s->n_keys; i++) keys->items[keys->n++] = s->keys[i];
    if (s->mix->type == AE_MIX_AS_IS) return AERIE_OK;
    keys->items[keys->n++] = (ae_rewrite_key){"general.quantization_version", 2};
    keys->items[keys->n++] = (ae_rewrite_key){"general.file_type", s->mix->file_type};
    return AERIE_OK;
}

/* Returns the last override of a key; NULL: there is none. */
static const ae_gguf_kv *override_of(const ae_gguf *gguf, ae_gguf_string key)
{
    const ae_gguf_kv *found = NULL, *kv;
    for (size_t i = 0; (kv = ae_gguf_override_at(gguf, i)); i++)
        if (kv->key.n == key.n && !memcmp(kv->key.data, key.data, key.n)) found = kv;
    return found;
}

/* Writes the value of an override: whole numbers as u32 if they fit, others as f32, since that is what readers expect. */
static aerie_status write_override(ae_rewrite *r, const ae_gguf_kv *kv, aerie_error *error)
{
    int64_t whole;
    double number;
    const bool is_u32 = ae_gguf_kv_int(kv, 0, &whole) && whole >= 0 && whole <= UINT32_MAX;
    const bool is_float = ae_gguf_kv_float(kv, 0, &number);
    if (!is_u32 && !is_float) return ae_gguf_writer_copy(r->writer, kv, error);
    char *key = ae_strndup(kv->key.data, kv->key.n);
    if (!key) return ae_fail_memory(error, "a key", kv->key.n);
    const aerie_status status = is_u32 ? ae_gguf_writer_u32(r->writer, key, (uint32_t)whole, error)
                                       : ae_gguf_writer_f32(r->writer, key, (float)number, error);
    ae_free(key);
    return status;
}

/* Writes the overrides of keys that the file lacks. */
static aerie_status write_added(ae_rewrite *r, aerie_error *error)
{
    const ae_gguf_kv *kv;
    for (size_t i = 0; (kv = ae_gguf_override_at(r->gguf, i)); i++) {
        bool has = override_of(r->gguf, kv->key) != kv;
        for (size_t k = 0; !has && k < ae_gguf_n_kv(r->gguf); k++) {
            const ae_gguf_string key = ae_gguf_kv_at(r->gguf, k)->key;
            has = key.n == kv->key.n && !memcmp(key.data, kv->key.data, key.n);
        }
        if (!has) AE_TRY(write_override(r, kv, error));
    }
    return AERIE_OK;
}

static aerie_status write_key(ae_rewrite *r, const ae_gguf_kv *kv, new_keys *keys, aerie_error *error)
{
    bool done;
    const ae_gguf_kv *given = override_of(r->gguf, kv->key);
    if (kv->key.n >= 6 && !memcmp(kv->key.data, "split.", 6)) return AERIE_OK;
    if (r->settings.imatrix && kv->key.n >= 17 && !memcmp(kv->key.data, "quantize.imatrix.", 17)) return AERIE_OK;
    /* whatever integer type it has in this file */
    if (ae_mix_name_is(kv->key, "general.alignment"))
        return ae_gguf_writer_u32(r->writer, "general.alignment", ae_gguf_alignment(r->gguf), error);
    for (size_t i = 0; i < keys->n; i++) {
        if (!ae_mix_name_is(kv->key, keys->items[i].key)) continue;
        keys->done[i] = true;
        if (given) break;
        return ae_gguf_writer_u32(r->writer, keys->items[i].key, keys->items[i].value, error);
    }
    if (given) return write_override(r, given, error);
    AE_TRY(ae_prune_key(&r->layers, r->writer, kv, &done, error));
    return done ? AERIE_OK : ae_gguf_writer_copy(r->writer, kv, error);
}

/* Writes llama.cpp's keys about the importance matrix, with the names of files but not their folders. */
static aerie_status write_imatrix_keys(ae_rewrite *r, aerie_error *error)
{
    const ae_imatrix *im = r->settings.imatrix;
    const char *path = ae_imatrix_path(im), *slash = strrchr(path, '/');
    const ae_gguf_string dataset = ae_imatrix_dataset(im);
    char *text = ae_strndup(dataset.data, dataset.n);
    if (!text) return ae_fail_memory(error, "a key", dataset.n);
    aerie_status status = ae_gguf_writer_string(r->writer, "quantize.imatrix.file", slash ? slash + 1 : path, error);
    if (status == AERIE_OK) status = ae_gguf_writer_string(r->writer, "quantize.imatrix.dataset", text, error);
    ae_free(text);
    if (status == AERIE_OK)
        status = ae_gguf_writer_u32(r->writer, "quantize.imatrix.entries_count", (uint32_t)ae_imatrix_n_entries(im), error);
    if (status == AERIE_OK)
        status = ae_gguf_writer_u32(r->writer, "quantize.imatrix.chunks_count", ae_imatrix_n_chunks(im), error);
    return status;
}

static aerie_status write_keys(ae_rewrite *r, aerie_error *error)
{
    new_keys keys = {.n = 0};
    AE_TRY(gather_keys(r, &keys, error));
    for (size_t i = 0; i < ae_gguf_n_kv(r->gguf); i++) AE_TRY(write_key(r, ae_gguf_kv_at(r->gguf, i), &keys, error));
    AE_TRY(write_added(r, error));
    for (size_t i = 0; i < keys.n; i++) {
        const char *key = keys.items[i].key;
        if (keys.done[i] || override_of(r->gguf, (ae_gguf_string){key, strlen(key)})) continue;
        AE_TRY(ae_gguf_writer_u32(r->writer, key, keys.items[i].value, error));
    }
    return r->settings.imatrix ? write_imatrix_keys(r, error) : AERIE_OK;
}

static aerie_status write_split(ae_rewrite *r, uint32_t i, aerie_error *error)
{
    if (r->n_writers == 1) return AERIE_OK;
    AE_TRY(ae_gguf_writer_u16(r->writer, "split.no", (uint16_t)i, error));
    AE_TRY(ae_gguf_writer_u16(r->writer, "split.count", (uint16_t)r->n_writers, error));
    return ae_gguf_writer_i32(r->writer, "split.tensors.count", (int32_t)r->n_tensors, error);
}

static aerie_status describe(ae_rewrite *r, const ae_rewrite_tensor *t, aerie_error *error)
{
    const ae_gguf_string from = t->name;
    if (from.n && memchr(from.data, '\0', from.n))
        return ae_rewrite_fail(r->gguf, t->from, error, AERIE_ERROR_UNSUPPORTED, "has a zero byte in its name");
    char *name = ae_strndup(from.data, from.n);
    if (!name) return ae_fail_memory(error, "a tensor's name", from.n + 1);
    const aerie_status status = ae_gguf_writer_tensor(r->writer, name, t->type, t->from->n_dims, t->ne, error);
    ae_free(name);
    return status;
}

/* Begins part i of the new model. */
static aerie_status begin_part(ae_rewrite *r, uint32_t i, const char *path, aerie_error *error)
{
    if (ae_gguf_reads(r->gguf, path))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%s is the file that is being read; choose another name for the new one",
                       path);
    AE_TRY(ae_gguf_writer_create(&r->writers[i], path, error));
    r->writer = r->writers[i];
    if (i == 0) AE_TRY(write_keys(r, error));
    else if (ae_gguf_alignment(r->gguf) != 32)
        AE_TRY(ae_gguf_writer_u32(r->writer, "general.alignment", ae_gguf_alignment(r->gguf), error));
    AE_TRY(write_split(r, i, error));
    for (size_t k = 0; k < r->n_tensors; k++)
        if (r->part_of[r->tensors[k].from->i_file] == i) AE_TRY(describe(r, &r->tensors[k], error));
    return ae_gguf_writer_begin(r->writer, error);
}

aerie_status ae_rewrite_begin(ae_rewrite *r, const char *path, aerie_error *error)
{
    static const char end[] = ".gguf";
    size_t n = strlen(path);
    r->writers = ae_alloc(r->n_writers, sizeof *r->writers);
    if (!r->writers) return ae_fail_memory(error, "the writers", r->n_writers * sizeof *r->writers);
    if (r->n_writers == 1) return begin_part(r, 0, path, error);
    if (n > strlen(end) && strcmp(path + n - strlen(end), end) == 0) n -= strlen(end);
    for (uint32_t i = 0; i < r->n_writers; i++) {
        const size_t size = n + 32;
        char *part = ae_arena_alloc(&r->arena, size, 1);
        if (!part) return ae_fail_memory(error, "a file's name", size);
        snprintf(part, size, "%.*s-%05u-of-%05u.gguf", (int)n, path, i + 1, r->n_writers);
        AE_TRY(begin_part(r, i, part, error));
    }
    return AERIE_OK;
}
