/* convert_write.c - the GGUF file of a head: keys, descriptions, and the numbers, row by row. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convert/convert.h"
#include "quant/types.h"

/* ---- Numbers of a checkpoint ------------------------------------------------------------------------ */

#define EACH(type, expression)                                \
    for (size_t i = 0; i < n; i++) {                          \
        type v;                                               \
        memcpy(&v, p + i * sizeof v, sizeof v);               \
        out[i] = expression;                                  \
    }                                                         \
    return true

bool convert_floats(const ae_st_tensor *t, uint64_t first, float *out, size_t n)
{
    const uint8_t *p = t->data + (size_t)first * ae_st_dtype_bytes(t->dtype);
    switch (t->dtype) {
    case AE_ST_F64: EACH(double, (float)v);
    case AE_ST_F32: EACH(float, v);
    case AE_ST_F16: EACH(uint16_t, ae_f16_to_f32(v));
    case AE_ST_BF16: EACH(uint16_t, ae_bf16_to_f32(v));
    default: return false;
    }
}

bool convert_ints(const ae_st_tensor *t, uint64_t first, int64_t *out, size_t n)
{
    const uint8_t *p = t->data + (size_t)first * ae_st_dtype_bytes(t->dtype);
    switch (t->dtype) {
    case AE_ST_I64: EACH(int64_t, v);
    case AE_ST_I32: EACH(int32_t, v);
    case AE_ST_U32: EACH(uint32_t, v);
    case AE_ST_I16: EACH(int16_t, v);
    case AE_ST_U16: EACH(uint16_t, v);
    case AE_ST_I8: EACH(int8_t, v);
    case AE_ST_U8: EACH(uint8_t, v);
    case AE_ST_BOOL: EACH(uint8_t, v != 0);
    default: return false;
    }
}

/* ---- Keys --------------------------------------------------------------------------------------------- */

/* Keeps the first failure; calls after it do nothing. */
typedef struct keys {
    ae_gguf_writer *w;
    const char *arch;
    aerie_status status;
    aerie_error error;
} keys;

static const char *key(const keys *k, const char *suffix, char out[96])
{
    snprintf(out, 96, "%s.%s", k->arch, suffix);
    return out;
}

static void put_u32(keys *k, const char *suffix, uint32_t value)
{
    char name[96];
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_u32(k->w, key(k, suffix, name), value, &k->error);
}

static void put_f32(keys *k, const char *suffix, double value)
{
    char name[96];
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_f32(k->w, key(k, suffix, name), (float)value, &k->error);
}

static void put_bool(keys *k, const char *suffix, bool value)
{
    char name[96];
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_bool(k->w, key(k, suffix, name), value, &k->error);
}

/* suffix NULL: the name is whole. */
static void put_text(keys *k, const char *name, const char *suffix, const char *value)
{
    char made[96];
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_string(k->w, suffix ? key(k, suffix, made) : name, value, &k->error);
}

static void put_layer(keys *k, const convert_head *h)
{
    put_u32(k, "block_count", 1);
    put_u32(k, "context_length", h->n_ctx);
    put_u32(k, "feed_forward_length", h->n_ff);
    put_u32(k, "attention.head_count", h->n_heads);
    put_u32(k, "attention.head_count_kv", h->n_kv_heads);
    put_u32(k, "attention.key_length", h->head_dim);
    put_u32(k, "attention.value_length", h->head_dim);
    put_f32(k, "attention.layer_norm_rms_epsilon", h->norm_eps);
    put_u32(k, "rope.dimension_count", h->n_rot);
    put_f32(k, "rope.freq_base", h->rope_base);
    if (strcmp(h->rope_type, "none") == 0) return;
    put_text(k, NULL, "rope.scaling.type", h->rope_type);
    put_f32(k, "rope.scaling.factor", h->rope_factor);
    if (h->rope_n_ctx_orig) put_u32(k, "rope.scaling.original_context_length", h->rope_n_ctx_orig);
}

static void put_eagle3(keys *k, const convert_head *h)
{
    int32_t taps[AE_DHEAD_MAX_TAPS];
    char name[96];
    for (uint32_t i = 0; i < h->n_taps; i++) taps[i] = (int32_t)h->taps[i];
    if (k->status == AERIE_OK) {
        k->status = ae_gguf_writer_array(k->w, key(k, "target_layers", name), AE_GGUF_I32, taps, h->n_taps, &k->error);
    }
    put_bool(k, "norm_before_residual", h->norm_before_residual);
    put_bool(k, "norm_before_fc", h->fc_norm == AE_FC_NORM_JOINT);
    put_bool(k, "fc_norm", h->fc_norm == AE_FC_NORM_EACH);
    put_text(k, NULL, "feedback", h->feedback_post ? "post" : "pre");
}

/* The target's tokenizer, which other programs need in every file. */
static void put_tokenizer(keys *k, const convert *c)
{
    const ae_gguf *gguf = c->target->gguf;
    for (size_t i = 0; i < ae_gguf_n_kv(gguf) && k->status == AERIE_OK; i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_at(gguf, i);
        if (kv->key.n > 10 && memcmp(kv->key.data, "tokenizer.", 10) == 0) k->status = ae_gguf_writer_copy(k->w, kv, &k->error);
    }
}

/* The last part of the checkpoint's path that is a name. */
static const char *name_of(const convert *c, char out[128])
{
    size_t n = strlen(c->path), from;
    if (c->options->convert_name) return c->options->convert_name;
    while (n > 1 && c->path[n - 1] == '/') n--;
    for (from = n; from && c->path[from - 1] != '/'; from--) {}
    snprintf(out, 128, "%.*s", (int)(n - from < 120 ? n - from : 120), c->path + from);
    return out;
}

static void put_keys(keys *k, const convert *c)
{
    const convert_head *h = &c->head;
    char name[128];
    put_text(k, "general.architecture", NULL, k->arch);
    put_text(k, "general.name", NULL, name_of(c, name));
    if (k->status == AERIE_OK && ae_type_get(c->out_type)->dot != AE_DOT_FLOAT) {
        k->status = ae_gguf_writer_u32(k->w, "general.quantization_version", 2, &k->error);
    }
    put_u32(k, "embedding_length", h->n_embd);
    put_u32(k, "target_hidden_size", h->n_target_embd);
    if (h->n_target_layers) put_u32(k, "target_layer_count", h->n_target_layers);
    put_u32(k, "vocab_size", h->n_vocab);
    if (h->ids) put_text(k, NULL, "draft_map", "absolute");
    if (h->kind == AE_DHEAD_MEDUSA) {
        put_u32(k, "head_count", h->n_medusa);
        put_u32(k, "block_count", h->n_blocks);
    } else {
        put_layer(k, h);
        if (h->kind == AE_DHEAD_EAGLE3) put_eagle3(k, h);
        if (c->options->convert_window) put_u32(k, "attention.window", c->options->convert_window);
        if (c->options->convert_sinks) put_u32(k, "attention.sinks", c->options->convert_sinks);
    }
    if (c->options->convert_tokenizer) put_tokenizer(k, c);
}

/* ---- Tensors -------------------------------------------------------------------------------------------- */

/* Rows that are not a multiple of a type's block get another type: q8_0 if it fits, else f16. */
static void settle_type(convert *c, convert_item *item, size_t *n_other)
{
    if (ae_type_row_bytes(item->type, item->columns)) return;
    item->type = ae_type_row_bytes(AE_TYPE_Q8_0, item->columns) ? AE_TYPE_Q8_0 : AE_TYPE_F16;
    if (++*n_other == 1 && !c->options->quiet) {
        app_note("rows of %llu elements (%s) do not fit %s; such matrices are written as %s", (unsigned long long)item->columns,
                 item->name, ae_type_name(c->out_type), ae_type_name(item->type));
    }
}

static int describe(convert *c, keys *k)
{
    size_t n_other = 0;
    c->out_bytes = 0;
    for (size_t i = 0; i < c->n_items && k->status == AERIE_OK; i++) {
        convert_item *item = &c->items[i];
        const int64_t ne[2] = {(int64_t)item->columns, (int64_t)item->rows};
        settle_type(c, item, &n_other);
        c->out_bytes += ae_type_row_bytes(item->type, item->columns) * (item->rows ? item->rows : 1);
        k->status = ae_gguf_writer_tensor(k->w, item->name, item->type, item->rows ? 2 : 1, ne, &k->error);
    }
    return app_report(APP_WORKING, k->status, &k->error);
}

/* Rotated rows: within each head the new row 2i is the old row i, 2i + 1 is i + n_rot/2; the rest stays. */
static uint64_t old_row(const convert_head *h, uint64_t row)
{
    const uint64_t in_head = row % h->head_dim, half = h->n_rot / 2;
    if (in_head >= h->n_rot || h->pairs) return row;
    return row - in_head + in_head / 2 + (in_head % 2 ? half : 0);
}

/* One row, or where rotated one element after the other, of a one-dimensional tensor. */
static bool read_row(const convert_head *h, const convert_item *item, uint64_t row, float *x)
{
    const size_t n = (size_t)item->columns;
    switch (item->how) {
    case CONVERT_VALUES: memcpy(x, item->values + row * n, n * sizeof *x); return true;
    case CONVERT_UNIT:
        memset(x, 0, n * sizeof *x);
        x[row] = 1;
        return true;
    case CONVERT_ROTATED:
        if (item->rows) return convert_floats(item->from, old_row(h, row) * n, x, n);
        for (size_t i = 0; i < n; i++) {
            if (!convert_floats(item->from, old_row(h, i), x + i, 1)) return false;
        }
        return true;
    default: return convert_floats(item->from, item->first + row * n, x, n);
    }
}

static int check_row(const convert *c, const convert_item *item, const float *x)
{
    for (uint64_t i = 0; i < item->columns; i++) {
        if (!isfinite(x[i]))
            return app_error(APP_BAD_FILE, "%s: tensor %s holds %g", c->path,
                             item->from ? item->from->name : item->name, (double)x[i]);
        if (item->type == AE_TYPE_F16 && fabsf(x[i]) > 65504.0f) {
            return app_error(APP_BAD_FILE, "%s: tensor %s holds %g, which is too large for f16; use --outtype bf16 or "
                                           "f32", c->path,
                             item->from->name, (double)x[i]);
        }
    }
    return APP_DONE;
}

static int write_rows(convert *c, ae_gguf_writer *w, const convert_item *item)
{
    const size_t n = (size_t)item->columns, row_bytes = ae_type_row_bytes(item->type, item->columns);
    const ae_type_info *info = ae_type_get(item->type);
    aerie_error error = {0};
    float *x = malloc(n * sizeof *x);
    void *row = malloc(row_bytes);
    int bad = x && row ? APP_DONE : app_error_memory("a row of the head");
    for (uint64_t r = 0; r < (item->rows ? item->rows : 1) && !bad; r++) {
        if (!read_row(&c->head, item, r, x)) {
            bad = app_error(APP_BAD_FILE, "%s: tensor %s has type %s, but must be F32, F16, BF16 or F64", c->path,
                            item->from->name, ae_st_dtype_name(item->from->dtype));
            break;
        }
        bad = app_interrupted() ? APP_INTERRUPTED : check_row(c, item, x);
        if (bad) break;
        info->encode(x, NULL, row, n);
        bad = app_report(APP_WORKING, ae_gguf_writer_data(w, row, row_bytes, &error), &error);
    }
    free(x);
    free(row);
    return bad;
}

static int write_all(convert *c, keys *k)
{
    CONVERT_TRY(app_report(APP_WORKING, k->status, &k->error));
    CONVERT_TRY(describe(c, k));
    CONVERT_TRY(app_report(APP_WORKING, ae_gguf_writer_begin(k->w, &k->error), &k->error));
    for (size_t i = 0; i < c->n_items; i++) {
        const convert_item *item = &c->items[i];
        if (item->how != CONVERT_IDS) {
            CONVERT_TRY(write_rows(c, k->w, item));
            continue;
        }
        const aerie_status status = ae_gguf_writer_data(k->w, c->head.ids, c->head.n_draft * sizeof *c->head.ids, &k->error);
        CONVERT_TRY(app_report(APP_WORKING, status, &k->error));
    }
    return app_report(APP_WORKING, ae_gguf_writer_close(k->w, &k->error), &k->error);
}

int convert_write(convert *c, const char *path, ae_gguf_writer **out)
{
    static const char *const archs[] = {[AE_DHEAD_EAGLE] = "eagle", [AE_DHEAD_EAGLE3] = "eagle3", [AE_DHEAD_MEDUSA] = "medusa"};
    keys k = {.arch = archs[c->head.kind]};
    *out = NULL;
    k.status = ae_gguf_writer_create(&k.w, path, &k.error);
    if (k.status == AERIE_OK) put_keys(&k, c);
    const int bad = write_all(c, &k);
    if (bad) ae_gguf_writer_free(k.w);
    else *out = k.w;
    return bad;
}
