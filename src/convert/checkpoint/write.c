/* write.c - the new file: the list of its tensors, and their numbers, row by row. Each kind of checkpoint writes its keys. */
#include <math.h>
#include <string.h>

#include "base/math/fmath.h"
#include "convert/checkpoint/checkpoint.h"
#include "quant/encode/encoder.h"
#include "quant/types.h"

/* ---- Numbers of a checkpoint ------------------------------------------------------------------------ */

#define EACH(type, expression)                                \
    for (size_t i = 0; i < n; i++) {                          \
        type v;                                               \
        memcpy(&v, p + i * sizeof v, sizeof v);               \
        out[i] = expression;                                  \
    }                                                         \
    return true

bool ae_convert_floats(const ae_st_tensor *t, uint64_t first, float *out, size_t n)
{
    if (t->dtype >= AE_ST_DTYPE_COUNT) {
        (t->dtype == AE_CONVERT_RANKED ? ae_convert_ranked_floats : ae_convert_scaled_floats)(t, first, out, n);
        return true;
    }
    const uint8_t *p = t->data + (size_t)first * ae_st_dtype_bytes(t->dtype);
    switch (t->dtype) {
    case AE_ST_F64: EACH(double, (float)v);
    case AE_ST_F32: EACH(float, v);
    case AE_ST_F16: EACH(uint16_t, ae_f16_to_f32(v));
    case AE_ST_BF16: EACH(uint16_t, ae_bf16_to_f32(v));
    default: return false;
    }
}

bool ae_convert_ints(const ae_st_tensor *t, uint64_t first, int64_t *out, size_t n)
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

/* ---- The list ------------------------------------------------------------------------------------------- */

/* Checks that the elements to be read are inside the tensor. Sizes are products of a file's numbers, so each step is
 * checked. */
static aerie_status check_room(const ae_convert *c, const ae_convert_item *item, const ae_st_tensor *t)
{
    const uint64_t counts[] = {item->parts ? 1 : item->n_stack - item->n_zero, item->rows, item->columns};
    const uint64_t steps[] = {item->stack_step, item->row_step, item->step};
    uint64_t last = item->first, part;
    bool fits = item->columns > 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && fits; i++)
        fits = counts[i] < 2 ||
               (!__builtin_mul_overflow(counts[i] - 1, steps[i], &part) && !__builtin_add_overflow(last, part, &last));
    if (fits && last < t->n) return AERIE_OK;
    char shape[128];
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s, which is too small for what config.json says", c->path,
                   t->name, ae_convert_shape(t, shape));
}

aerie_status ae_convert_add(ae_convert *c, const ae_convert_item *item)
{
    ae_convert_item *grown = ae_grow(c->items, c->n_items, &c->capacity, sizeof *grown);
    if (!grown) return ae_convert_no_memory(c, "the list of tensors");
    c->items = grown;
    ae_convert_item *to = &c->items[c->n_items++];
    *to = *item;
    to->name = ae_arena_strndup(&c->arena, item->name, strlen(item->name));
    if (!to->name) return ae_convert_no_memory(c, "the name of a tensor");
    if (!to->step) to->step = 1;
    if (!to->row_step) to->row_step = to->columns;
    if (!to->stack_step) to->stack_step = to->rows * to->row_step;
    const uint64_t n_checked = to->starts ? 0 : to->parts ? to->n_stack : to->from && !to->beside;
    for (uint64_t i = 0; i < n_checked; i++) AE_TRY(check_room(c, to, to->parts ? to->parts[i] : to->from));
    if (item->how == AE_CONVERT_IDS) to->type = AE_TYPE_I64;
    else if (item->how == AE_CONVERT_WHOLE) to->type = AE_TYPE_I32;
    else if (!item->rows || item->f32 || (item->floating && c->out_type != AE_TYPE_F16)) to->type = AE_TYPE_F32;
    else if (item->how == AE_CONVERT_UNIT || (item->f16 && c->out_type == AE_TYPE_Q8_0)) to->type = AE_TYPE_F16;
    else to->type = c->out_type;
    /* such weights are MXFP4 already, which stores them exactly in less space than a wider type */
    const ae_st_tensor *of = to->parts ? to->parts[0] : to->from;
    const bool wide = to->type == AE_TYPE_F16 || to->type == AE_TYPE_BF16 || to->type == AE_TYPE_Q8_0;
    if (of && of->dtype == AE_CONVERT_MXFP4 && to->step == 1 && !to->column_from && wide) to->type = AE_TYPE_MXFP4;
    return AERIE_OK;
}

/* ---- Tensors -------------------------------------------------------------------------------------------- */

/* Chooses another type for rows that are not a multiple of the type's block: q8_0 if it fits, else f16. */
static void settle_type(ae_convert *c, ae_convert_item *item, size_t *n_other)
{
    if (ae_type_row_bytes(item->type, item->columns)) return;
    item->type = ae_type_row_bytes(AE_TYPE_Q8_0, item->columns) ? AE_TYPE_Q8_0 : AE_TYPE_F16;
    if (++*n_other > 1) return;
    ae_log_say(&c->options.log, AERIE_LOG_INFO, "rows of %llu elements (%s) do not fit %s; such matrices are written as %s",
                   (unsigned long long)item->columns, item->name, ae_type_name(c->out_type), ae_type_name(item->type));
}

/* Returns the number of rows in all matrices of the stack. */
static uint64_t n_rows(const ae_convert_item *item)
{
    return (item->rows ? item->rows : 1) * (item->n_stack ? item->n_stack : 1);
}

static aerie_status describe(ae_convert *c, ae_gguf_writer *w)
{
    size_t n_other = 0;
    c->out_bytes = 0;
    for (size_t i = 0; i < c->n_items; i++) {
        ae_convert_item *item = &c->items[i];
        const int64_t p = item->kernel, ne[3] = {(int64_t)item->columns, (int64_t)item->rows, (int64_t)item->n_stack};
        const int64_t of_kernel[4] = {p, p, p ? ne[0] / (p * p) : 0, ne[1]}, of_stack[4] = {ne[0], 1, 1, ne[2]};
        settle_type(c, item, &n_other);
        c->out_bytes += ae_type_row_bytes(item->type, item->columns) * n_rows(item);
        AE_TRY(ae_gguf_writer_tensor(w, item->name, item->type, p || item->fourth ? 4 : item->n_stack ? 3 : item->rows ? 2 : 1,
                                     p ? of_kernel : item->fourth ? of_stack : ne, c->error));
    }
    return AERIE_OK;
}

/* Returns the source row of a row of q or k: within each head, new row 2i is old row i, and 2i + 1 is i + n_rot/2; the others
 * stay. */
static uint64_t old_row(const ae_convert *c, const ae_convert_item *item, uint64_t row)
{
    const uint64_t in_head = row % item->head_dim, half = item->n_rot / 2;
    if (in_head >= item->n_rot || c->head.pairs) return row;
    return row - in_head + in_head / 2 + (in_head % 2 ? half : 0);
}

/* Returns the index of the part, among vertically stacked parts, that contains a row. */
static uint32_t part_of(const ae_convert_item *item, uint64_t row)
{
    uint32_t lo = 0, hi = item->n_parts;
    while (hi - lo > 1) {
        const uint32_t middle = lo + (hi - lo) / 2;
        if (item->starts[middle] <= row) lo = middle;
        else hi = middle;
    }
    return lo;
}

/* Returns the tensor that contains a row of a PLAIN item, and its first element there. */
static const ae_st_tensor *place_of(const ae_convert_item *item, uint64_t row, uint64_t *first)
{
    const uint64_t r = item->rows ? row % item->rows : row, i = (item->rows ? row / item->rows : 0) - item->n_zero;
    *first = item->first + (item->parts ? 0 : i * item->stack_step) + (item->row_from ? item->row_from[r] : r) * item->row_step;
    return item->parts ? item->parts[i] : item->from;
}

/* Rounds numbers to -1, 0 or 1 times `scale`; others than finite ones stay, for the check. */
static void round_ternary(float *x, size_t n, float scale)
{
    for (size_t k = 0; k < n; k++)
        if (isfinite(x[k])) x[k] = x[k] / scale > 0.5f ? scale : x[k] / scale < -0.5f ? -scale : 0.0f;
}

/* Reads one row, counted over all matrices. */
static bool read_plain(const ae_convert_item *item, uint64_t row, float *x)
{
    const size_t n = (size_t)item->columns;
    const uint64_t at = item->rows ? row / item->rows : 0, r = item->rows ? row % item->rows : row;
    uint64_t first;
    if (at < item->n_zero) {
        memset(x, 0, n * sizeof *x);
        return true;
    }
    if (item->starts) {
        const uint32_t part = part_of(item, row);
        return ae_convert_floats(item->parts[part], (row - item->starts[part]) * n, x, n);
    }
    const ae_st_tensor *t = place_of(item, row, &first);
    if (item->beside) {
        if (!ae_convert_floats(t, r * (n / 2), x, n / 2) || !ae_convert_floats(item->beside, r * (n / 2), x + n / 2, n / 2))
            return false;
    } else if (item->step == 1 && !item->column_from) {
        if (!ae_convert_floats(t, first, x, n)) return false;
    } else {
        for (size_t k = 0; k < n; k++)
            if (!ae_convert_floats(t, first + (item->column_from ? item->column_from[k] : k) * item->step, x + k, 1))
                return false;
    }
    for (size_t k = 0; k < n && item->change == AE_CONVERT_PLUS_ONE; k++) x[k] += 1.0f;
    for (size_t k = 0; k < n && item->change == AE_CONVERT_MINUS_EXP; k++) x[k] = (float)-ae_exp((double)x[k]);
    for (size_t k = 0; k < n && item->change == AE_CONVERT_EXP; k++) x[k] = (float)ae_exp((double)x[k]);
    for (size_t k = 0; k < n && item->plus != 0; k++) x[k] += item->plus;
    for (size_t k = 0; k < n && item->factors; k++) x[k] *= item->factors[r];
    if (item->ternary > 0) round_ternary(x, n, item->ternary);
    return true;
}

/* Reads one row; a rotated tensor of one dimension is read element by element. */
static bool read_row(const ae_convert *c, const ae_convert_item *item, uint64_t row, float *x)
{
    const size_t n = (size_t)item->columns;
    switch (item->how) {
    case AE_CONVERT_VALUES: memcpy(x, item->values + row * n, n * sizeof *x); return true;
    case AE_CONVERT_UNIT:
        memset(x, 0, n * sizeof *x);
        x[row] = 1;
        return true;
    case AE_CONVERT_ROTATED:
        if (item->rows) return ae_convert_floats(item->from, old_row(c, item, row) * n, x, n);
        for (size_t i = 0; i < n; i++) {
            if (!ae_convert_floats(item->from, old_row(c, item, i), x + i, 1)) return false;
        }
        return true;
    default: return read_plain(item, row, x);
    }
}

/* Returns the source tensor, for messages; NULL: the numbers come from no tensor. */
static const ae_st_tensor *source(const ae_convert_item *item)
{
    return item->parts ? item->parts[0] : item->from;
}

static aerie_status check_row(const ae_convert *c, const ae_convert_item *item, const float *x)
{
    const char *name = source(item) ? source(item)->name : item->name;
    for (uint64_t i = 0; i < item->columns; i++) {
        if (!isfinite(x[i]) && source(item) && source(item)->dtype == AE_CONVERT_TERNARY)
            return ae_fail(c->error, AERIE_ERROR_FORMAT,
                           "%s: tensor %s holds the code 3, but BitNet's are 0, 1 and 2 (-1, 0 and 1): the file is damaged or "
                           "packed in another way", c->path, name);
        if (!isfinite(x[i])) {
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s holds %g", c->path, name, (double)x[i]);
        }
        if (item->type == AE_TYPE_F16 && fabsf(x[i]) > 65504.0f) {
            return ae_fail(c->error, AERIE_ERROR_FORMAT,
                           "%s: tensor %s holds %g, which is too large for f16; use --outtype bf16 or f32", c->path, name,
                           (double)x[i]);
        }
    }
    return AERIE_OK;
}

/* Writes the rows of a tensor that stays NVFP4. row [row_bytes] is a buffer for one row. */
static aerie_status write_blocks(ae_convert *c, ae_gguf_writer *w, const ae_convert_item *item, void *row, uint64_t *done)
{
    const size_t n = (size_t)item->columns, row_bytes = ae_type_row_bytes(item->type, item->columns);
    for (uint64_t r = 0; r < n_rows(item); r++) {
        uint64_t first = 0;
        const ae_st_tensor *t = item->from;
        if (item->how == AE_CONVERT_ROTATED) first = old_row(c, item, r) * n;
        else t = place_of(item, r, &first);
        AE_TRY(ae_convert_step(c, "writing", *done, c->out_bytes));
        if (!ae_convert_scaled_nvfp4(t, first, row, n))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: a scale of tensor %s is negative or no number", c->path, t->name);
        AE_TRY(ae_gguf_writer_data(w, row, row_bytes, c->error));
        *done += row_bytes;
    }
    return AERIE_OK;
}

/* Writes all rows. x [columns] and row [row_bytes] are buffers for one row; *done counts the bytes written. */
static aerie_status write_rows(ae_convert *c, ae_gguf_writer *w, const ae_convert_item *item, float *x, void *row,
                               uint64_t *done)
{
    const size_t n = (size_t)item->columns, row_bytes = ae_type_row_bytes(item->type, item->columns);
    const ae_type_info *info = ae_type_get(item->type);
    for (uint64_t r = 0; r < n_rows(item); r++) {
        if (!read_row(c, item, r, x)) {
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s has type %s, but must be F32, F16, BF16 or F64",
                           c->path, item->from->name, ae_st_dtype_name(item->from->dtype));
        }
        AE_TRY(ae_convert_step(c, "writing", *done, c->out_bytes));
        AE_TRY(check_row(c, item, x));
        ae_type_encoder(info->type)(x, NULL, row, n);
        AE_TRY(ae_gguf_writer_data(w, row, row_bytes, c->error));
        *done += row_bytes;
    }
    return AERIE_OK;
}

static aerie_status write_whole(ae_convert *c, ae_gguf_writer *w, const ae_convert_item *item, uint64_t *done)
{
    const uint64_t n = n_rows(item) * item->columns;
    for (uint64_t i = 0; i < n; i++) {
        int64_t value;
        if (!ae_convert_ints(item->from, i, &value, 1) || value < INT32_MIN || value > INT32_MAX)
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s (%s) must hold whole numbers of 32 bits", c->path,
                           item->from->name, ae_st_dtype_name(item->from->dtype));
        const int32_t whole = (int32_t)value;
        AE_TRY(ae_gguf_writer_data(w, &whole, sizeof whole, c->error));
    }
    *done += n * sizeof(int32_t);
    return AERIE_OK;
}

static aerie_status write_item(ae_convert *c, ae_gguf_writer *w, const ae_convert_item *item, uint64_t *done)
{
    const size_t n = (size_t)item->columns;
    if (item->how == AE_CONVERT_IDS) {
        *done += n * sizeof *item->ids;
        return ae_gguf_writer_data(w, item->ids, n * sizeof *item->ids, c->error);
    }
    if (item->how == AE_CONVERT_WHOLE) return write_whole(c, w, item, done);
    float *x = ae_alloc(n, sizeof *x);
    void *row = ae_alloc(1, ae_type_row_bytes(item->type, item->columns));
    aerie_status status = x && row ? AERIE_OK : ae_convert_no_memory(c, "a row of a tensor");
    if (status == AERIE_OK)
        status = item->as_is ? write_blocks(c, w, item, row, done) : write_rows(c, w, item, x, row, done);
    ae_free(x);
    ae_free(row);
    return status;
}

/* ---- NVFP4 that stays what it is ------------------------------------------------------------------------- */

/* Returns whether programs multiply the outputs of a matrix with this name by "NAME.scale". */
static bool takes_scale(const ae_convert *c, const char *name)
{
    static const char *const parts[] = {"attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "attn_gate", "ffn_gate",
                                        "ffn_up", "ffn_down", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp",
                                        "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ssm_in", "ssm_out"};
    const char *part = strncmp(name, "blk.", 4) ? NULL : strchr(name + 4, '.');
    if (strcmp(name, "output.weight") == 0) return true;
    /* which means something else there */
    if (c->model.arch && strcmp(c->model.arch, "gemma4") == 0 && strstr(name, "ffn_down_exps")) return false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && part; i++) {
        const size_t n = strlen(parts[i]);
        if (strncmp(part + 1, parts[i], n) == 0 && strcmp(part + 1 + n, ".weight") == 0) return true;
    }
    return false;
}

static bool stays_nvfp4(const ae_convert *c, const ae_convert_item *item)
{
    const ae_st_tensor *t = item->parts ? item->parts[0] : item->from;
    if (!t || t->dtype != AE_CONVERT_NVFP4 || (c->options.type != AE_CONVERT_TYPE_AUTO && c->out_type != AE_TYPE_NVFP4))
        return false;
    for (uint64_t i = 0; item->parts && i < item->n_stack; i++)
        if (item->parts[i]->dtype != AE_CONVERT_NVFP4) return false;
    const uint64_t n = item->columns;
    const bool whole = n % 64 == 0 && t->shape[t->n_dims - 1] == n && item->step == 1 && item->row_step % n == 0 &&
                       item->stack_step % n == 0 && item->first % n == 0;
    const bool same = !item->column_from && !item->factors && !item->beside && !item->starts && !item->n_zero && !item->f32 &&
                      item->change == AE_CONVERT_SAME && !(item->plus > 0) && !(item->plus < 0);
    return whole && same && (item->how == AE_CONVERT_PLAIN || item->how == AE_CONVERT_ROTATED) && takes_scale(c, item->name);
}

/* Decides which tensors stay, once nothing changes them any more, and adds their factors. */
static aerie_status settle_nvfp4(ae_convert *c)
{
    const size_t n = c->n_items;
    for (size_t i = 0; i < n; i++) {
        ae_convert_item *item = &c->items[i];
        char name[96];
        const uint64_t n_stack = item->n_stack ? item->n_stack : 1;
        if (!stays_nvfp4(c, item)) continue;
        float *factors = ae_arena_alloc(&c->arena, n_stack, sizeof *factors);
        if (!factors) return ae_convert_no_memory(c, "the scales of matrices");
        for (uint64_t k = 0; k < n_stack; k++)
            factors[k] = ae_convert_scaled_factor(item->parts ? item->parts[k] : item->from,
                                                  item->parts ? 0 : item->first + k * item->stack_step);
        item->type = AE_TYPE_NVFP4;
        item->as_is = true;
        snprintf(name, sizeof name, "%.*s.scale", (int)(strlen(item->name) - strlen(".weight")), item->name);
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = name, .how = AE_CONVERT_VALUES, .values = factors,
                                                    .columns = n_stack}));
    }
    return AERIE_OK;
}

static aerie_status write_all(ae_convert *c, ae_gguf_writer *w)
{
    uint64_t done = 0;
    AE_TRY(c->kind->keys(c, w));
    AE_TRY(describe(c, w));
    AE_TRY(ae_gguf_writer_begin(w, c->error));
    for (size_t i = 0; i < c->n_items; i++) AE_TRY(write_item(c, w, &c->items[i], &done));
    AE_TRY(ae_convert_step(c, "writing", done, c->out_bytes));
    return ae_gguf_writer_close(w, c->error);
}

aerie_status ae_convert_write(ae_convert *c, ae_gguf_writer **out)
{
    ae_gguf_writer *w;
    *out = NULL;
    AE_TRY(settle_nvfp4(c));
    AE_TRY(ae_gguf_writer_create(&w, c->options.output, c->error));
    const aerie_status status = write_all(c, w);
    if (status == AERIE_OK) *out = w;
    else ae_gguf_writer_free(w);
    return status;
}
