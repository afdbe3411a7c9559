/* scaled_weights.c - computes the numbers of weights that a checkpoint stores as small codes and scales.
 *
 * Owns the interpretation of four formats. FP8: a tensor NAME of F8_E4M3 or F8_E5M2, multiplied by NAME_scale_inv or
 * NAME_scale: one number, or a grid of numbers for blocks of weight_block_size (the last ones may be smaller), or else for
 * equal parts. DeepSeek V4 has NAME.scale for NAME.weight. Scales of U8 or F8_E8M0 are exponents. MXFP4: two codes in each
 * byte, the first in the low bits, and an exponent for each group of 32: NAME_blocks [matrices, rows, groups, 16] and
 * NAME_scales [matrices, rows, groups] in gpt-oss, NAME_packed [rows, columns / 2] and NAME_scale [rows, groups] by
 * compressed-tensors (Kimi K3), NAME.weight and NAME.scale of these shapes in DeepSeek V4. NVFP4: codes as in MXFP4, an F8_E4M3
 * for each group of 16, and a number for each matrix: NAME.weight, NAME.weight_scale and NAME.weight_scale_2 by ModelOpt,
 * NAME.weight_packed, NAME.weight_scale and NAME.weight_global_scale by compressed-tensors, which divides by the last one. What
 * both have for activations is not used.
 * BitNet: NAME.weight of U8 [rows / 4, columns] has -1, 0 and 1 as 0, 1 and 2, and no 3, which becomes NAN: the lowest bits
 * of all its bytes are the first quarter of the matrix; NAME.weight_scale is a number to multiply by (linear_class
 * autobitlinear) or to divide by.
 * Other code sees a normal tensor with a type that exists in no file (ae_convert_scaled). Sources: transformers'
 * integrations/finegrained_fp8.py, mxfp4.py and bitnet.py; ModelOpt's and compressed-tensors' code for NVFP4.
 */
#include <math.h>
#include <string.h>

#include "convert/checkpoint/checkpoint.h"
#include "quant/unit.h"

typedef struct scaled {
    ae_st_tensor tensor; /* must come first: ae_convert_floats gets a pointer to it */
    const ae_st_tensor *codes, *scales;
    const float *factors;                  /* NVFP4: [matrices]; BitNet: one */
    uint64_t rows, columns;                /* of one matrix */
    uint64_t block_rows, block_columns;    /* size of the blocks that share a scale */
    uint64_t scale_columns, matrix_scales; /* scales in a row of blocks, scales of a matrix */
} scaled;

/* ---- Numbers ---------------------------------------------------------------------------------------------- */

static float of_e4m3(uint8_t code)
{
    const uint32_t exponent = code >> 3 & 15, mantissa = code & 7;
    if ((code & 127) == 127) return NAN;
    const float size = exponent ? ldexpf((float)(8 + mantissa), (int)exponent - 10) : (float)mantissa * 0x1p-9f;
    return code & 128 ? -size : size;
}

static void set_codes(ae_st_dtype dtype, float value[256])
{
    for (unsigned i = 0; i < 256; i++)
        value[i] = dtype == AE_ST_F8_E4M3 ? of_e4m3((uint8_t)i) : ae_f16_to_f32((uint16_t)(i << 8));
}

static bool is_exponents(const ae_st_tensor *t)
{
    return t->dtype == AE_ST_U8 || t->dtype == AE_ST_F8_E8M0;
}

/* Returns scale number i; for MXFP4 and NVFP4 half of it, because codes are stored doubled. */
static float scale_at(const scaled *s, uint64_t i)
{
    float scale = 0.0f;
    if (s->tensor.dtype == AE_CONVERT_NVFP4) return 0.5f * of_e4m3(s->scales->data[i]);
    if (!is_exponents(s->scales)) {
        (void)ae_convert_floats(s->scales, i, &scale, 1);
        return scale;
    }
    const uint8_t exponent = s->scales->data[i];
    if (exponent == 255) return NAN;
    return (s->tensor.dtype == AE_CONVERT_MXFP4 ? 1.0f : 2.0f) * ae_quant_e8m0_half(exponent);
}

static void ternary_floats(const scaled *s, uint64_t first, float *out, size_t n)
{
    const uint64_t quarter = s->codes->n;
    for (size_t i = 0; i < n; i++) {
        const uint64_t at = first + i;
        const int code = s->codes->data[at % quarter] >> 2 * (at / quarter) & 3;
        out[i] = code < 3 ? (float)(code - 1) * s->factors[0] : NAN;
    }
}

void ae_convert_scaled_floats(const ae_st_tensor *t, uint64_t first, float *out, size_t n)
{
    const scaled *s = (const scaled *)(const void *)t;
    const bool mx = t->dtype != AE_CONVERT_FP8;
    float value[256];
    if (t->dtype == AE_CONVERT_TERNARY) {
        ternary_floats(s, first, out, n);
        return;
    }
    if (!mx && n > 1) set_codes(s->codes->dtype, value);
    for (size_t i = 0; i < n;) {
        const uint64_t at = first + i, column = at % s->columns, row = at / s->columns % s->rows;
        const uint64_t matrix = at / s->columns / s->rows;
        const uint64_t block = matrix * s->matrix_scales + row / s->block_rows * s->scale_columns + column / s->block_columns;
        uint64_t end = at + s->block_columns - column % s->block_columns; /* end of the numbers with this scale */
        if (end > at + s->columns - column) end = at + s->columns - column;
        if (end > first + n) end = first + n;
        const float scale = scale_at(s, block), factor = s->factors ? s->factors[matrix] : 1.0f;
        for (uint64_t k = at; k < end; k++, i++) {
            const uint8_t code = s->codes->data[mx ? k / 2 : k];
            /* the first product is exact */
            if (mx) out[i] = (float)ae_quant_fp4_values[k % 2 ? code >> 4 : code & 15] * scale * factor;
            else if (n > 1) out[i] = value[code] * scale;
            else out[i] = (s->codes->dtype == AE_ST_F8_E4M3 ? of_e4m3(code) : ae_f16_to_f32((uint16_t)(code << 8))) * scale;
        }
    }
}

float ae_convert_scaled_factor(const ae_st_tensor *t, uint64_t i)
{
    const scaled *s = (const scaled *)(const void *)t;
    return s->factors[i / (s->rows * s->columns)];
}

bool ae_convert_scaled_nvfp4(const ae_st_tensor *t, uint64_t first, uint8_t *blocks, size_t n)
{
    const scaled *s = (const scaled *)(const void *)t;
    for (size_t i = 0; i < n; i += 16, first += 16) {
        const uint8_t *from = s->codes->data + first / 2, scale = s->scales->data[first / 16];
        uint8_t *block = blocks + i / 64 * 36, *to = block + 4 + i % 64 / 2;
        if (scale >= 0x7f) return false;
        block[i % 64 / 16] = scale;
        for (size_t k = 0; k < 8; k++) { /* numbers k and k + 8 share a byte */
            const uint8_t lo = from[k / 2], hi = from[4 + k / 2];
            to[k] = (uint8_t)(k % 2 ? lo >> 4 | (hi & 0xf0) : (lo & 15) | hi << 4);
        }
    }
    return true;
}

/* ---- The tensors ------------------------------------------------------------------------------------------ */

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

/* Finds the entry whose name is `name` without its last `cut` characters, followed by `end`. */
static ae_convert_entry *find_beside(const ae_convert *c, const char *name, size_t cut, const char *end)
{
    ae_buf text = {0};
    ae_buf_addf(&text, "%.*s%s", (int)(strlen(name) - cut), name, end);
    ae_convert_entry *found = text.failed ? NULL : ae_convert_find(c, text.data);
    ae_buf_free(&text);
    return found;
}

static aerie_status fail_scales(const ae_convert *c, const ae_st_tensor *t, const ae_st_tensor *scales, const char *needed)
{
    char shape[128], of[128];
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s of %s, but the scales of %s %s must be %s", c->path,
                   scales->name, ae_convert_shape(scales, shape), ae_st_dtype_name(scales->dtype), t->name,
                   ae_convert_shape(t, of), needed);
}

/* Reads weight_block_size: [rows, columns]. */
static aerie_status read_block_size(const ae_convert *c, uint64_t size[2])
{
    const json_t *given = json_object_get(json_object_get(c->config, "quantization_config"), "weight_block_size");
    size[0] = size[1] = 128;
    if (!given || json_is_null(given)) return AERIE_OK;
    for (size_t i = 0; i < 2; i++) {
        const json_int_t n = json_integer_value(json_array_get(given, i));
        if (json_array_size(given) != 2 || n < 1 || n > INT32_MAX)
            return ae_fail(c->error, AERIE_ERROR_FORMAT,
                           "%s: 'weight_block_size' must be two whole numbers from 1 on, rows and columns", c->config_path);
        size[i] = (uint64_t)n;
    }
    return AERIE_OK;
}

/* Returns the number of blocks of this size that cover n. */
static uint64_t parts(uint64_t n, uint64_t size)
{
    return n / size + (n % size != 0);
}

static aerie_status set_fp8(const ae_convert *c, scaled *s)
{
    const ae_st_tensor *t = s->codes, *scales = s->scales;
    uint64_t size[2];
    if (t->n_dims != 2 && t->n_dims != 3)
        return fail_scales(c, t, scales, "those of a matrix or a stack of matrices");
    AE_TRY(read_block_size(c, size));
    const uint64_t matrices = t->n_dims == 3 ? t->shape[0] : 1;
    s->rows = t->shape[t->n_dims - 2];
    s->columns = t->shape[t->n_dims - 1];
    if (scales->dtype != AE_ST_F32 && scales->dtype != AE_ST_BF16 && scales->dtype != AE_ST_F16 && !is_exponents(scales))
        return fail_scales(c, t, scales, "F32, F16, BF16, or exponents in U8 or F8_E8M0");
    const uint32_t n = scales->n_dims;
    const bool one = scales->n == 1 && matrices == 1;
    const uint64_t high = one ? 1 : n < 2 ? 0 : scales->shape[n - 2], wide = one ? 1 : n < 2 ? 0 : scales->shape[n - 1];
    const bool stacked = one || (n == t->n_dims && (n == 2 || scales->shape[0] == matrices));
    if (stacked && high == parts(s->rows, size[0]) && wide == parts(s->columns, size[1])) {
        s->block_rows = size[0], s->block_columns = size[1];
    } else if (stacked && high && wide && s->rows % high == 0 && s->columns % wide == 0) {
        s->block_rows = s->rows / high, s->block_columns = s->columns / wide;
    } else {
        char needed[128];
        snprintf(needed, sizeof needed, "one number, one for each row, or one for each block of %llu x %llu",
                 (unsigned long long)size[0], (unsigned long long)size[1]);
        return fail_scales(c, t, scales, needed);
    }
    if (!s->block_rows || !s->block_columns) return fail_scales(c, t, scales, "of a matrix that is not empty");
    s->scale_columns = wide, s->matrix_scales = high * wide;
    s->tensor = *t;
    s->tensor.dtype = AE_CONVERT_FP8;
    return AERIE_OK;
}

static aerie_status set_mxfp4(const ae_convert *c, scaled *s)
{
    const ae_st_tensor *t = s->codes, *scales = s->scales;
    bool fits = t->dtype == AE_ST_U8 && t->n_dims == 4 && t->shape[3] == 16 && scales->dtype == AE_ST_U8 && scales->n_dims == 3;
    for (size_t i = 0; i < 3 && fits; i++) fits = scales->shape[i] == t->shape[i];
    if (!fits) return fail_scales(c, t, scales, "U8 [matrices, rows, groups] for U8 [matrices, rows, groups, 16]");
    s->rows = t->shape[1];
    s->columns = 32 * t->shape[2];
    s->block_rows = 1, s->block_columns = 32, s->scale_columns = t->shape[2], s->matrix_scales = s->rows * t->shape[2];
    s->tensor = *t;
    s->tensor.dtype = AE_CONVERT_MXFP4;
    s->tensor.n_dims = 3;
    s->tensor.shape[2] = s->columns;
    s->tensor.shape[3] = 1;
    s->tensor.n = 2 * t->n;
    return AERIE_OK;
}

/* Describes a matrix with two codes in each byte. */
static aerie_status set_packed(const ae_convert *c, scaled *s)
{
    const ae_st_tensor *t = s->codes, *scales = s->scales;
    if (t->n_dims != 2 || t->shape[1] % 16 || !is_exponents(scales) || scales->n_dims != 2 || scales->shape[0] != t->shape[0] ||
        scales->shape[1] != t->shape[1] / 16)
        return fail_scales(c, t, scales, "exponents [rows, groups] for codes [rows, 16 groups]");
    s->rows = t->shape[0], s->columns = 2 * t->shape[1];
    s->block_rows = 1, s->block_columns = 32, s->scale_columns = scales->shape[1], s->matrix_scales = scales->n;
    s->tensor = *t;
    s->tensor.dtype = AE_CONVERT_MXFP4;
    s->tensor.shape[1] = s->columns;
    s->tensor.n = 2 * t->n;
    return AERIE_OK;
}

/* Reads the factors of matrices: one for each, or one for all. */
static aerie_status read_factors(const ae_convert *c, scaled *s, const ae_st_tensor *second, bool divides, uint64_t n)
{
    float *factors = ae_arena_alloc((ae_arena *)&c->arena, n, sizeof *factors);
    if (!factors) return ae_convert_no_memory(c, "the scales of matrices");
    bool fits = second->n == 1 || second->n == n;
    for (uint64_t i = 0; i < n && fits; i++) {
        fits = ae_convert_floats(second, second->n == 1 ? 0 : i, &factors[i], 1) && factors[i] > 0 && isfinite(factors[i]);
        if (divides) factors[i] = 1.0f / factors[i];
        fits = fits && factors[i] > 0 && isfinite(factors[i]);
    }
    s->factors = factors;
    return fits ? AERIE_OK : fail_scales(c, s->codes, second, "one positive number for each matrix, or one for all");
}

/* Codes [rows, columns / 2] and scales [rows, columns / 16], or stacks of both. */
static aerie_status set_nvfp4(const ae_convert *c, scaled *s, const ae_st_tensor *second, bool divides)
{
    const ae_st_tensor *t = s->codes, *scales = s->scales;
    const uint32_t n = t->n_dims;
    bool fits = (n == 2 || n == 3) && scales->n_dims == n && t->n > 0 && t->shape[n - 1] % 8 == 0 &&
                scales->shape[n - 1] == t->shape[n - 1] / 8;
    for (uint32_t i = 0; i + 1 < n && fits; i++) fits = scales->shape[i] == t->shape[i];
    if (!fits) return fail_scales(c, t, scales, "[rows, groups] for codes [rows, 8 groups], or stacks of both");
    if (!second)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s has scales of %s, but no factor for the matrix: its tensor "
                       "weight_scale_2 or weight_global_scale is missing", c->path, t->name,
                       ae_st_dtype_name(scales->dtype));
    s->rows = t->shape[n - 2], s->columns = 2 * t->shape[n - 1];
    s->block_rows = 1, s->block_columns = 16, s->scale_columns = scales->shape[n - 1];
    s->matrix_scales = s->rows * s->scale_columns;
    s->tensor = *t;
    s->tensor.dtype = AE_CONVERT_NVFP4;
    s->tensor.shape[n - 1] = s->columns;
    s->tensor.n = 2 * t->n;
    return read_factors(c, s, second, divides, n == 3 ? t->shape[0] : 1);
}

static bool is_bitnet(const ae_convert *c)
{
    const char *method = json_string_value(json_object_get(json_object_get(c->config, "quantization_config"), "quant_method"));
    return method && strcmp(method, "bitnet") == 0;
}

static aerie_status set_ternary(const ae_convert *c, scaled *s)
{
    const char *class = json_string_value(json_object_get(json_object_get(c->config, "quantization_config"), "linear_class"));
    const bool divides = !class || strcmp(class, "autobitlinear");
    const ae_st_tensor *t = s->codes;
    if (t->n_dims != 2 || s->scales->n != 1) return fail_scales(c, t, s->scales, "one number for a matrix");
    s->rows = 4 * t->shape[0], s->columns = t->shape[1];
    s->tensor = *t;
    s->tensor.dtype = AE_CONVERT_TERNARY;
    s->tensor.shape[0] = s->rows;
    s->tensor.n = 4 * t->n;
    return read_factors(c, s, s->scales, divides, 1);
}

/* Where the scales of a tensor are: its name's `end` is replaced. */
typedef enum format { FP8, BLOCKS, PACKED, NVFP4, TERNARY } format;
static const struct way {
    const char *end, *instead;
    format format;
    const char *second; /* NVFP4: the factor of the matrix; of the other formats none */
} ways[] = {{"", "_scale_inv", FP8, NULL}, {"", "_scale", FP8, NULL}, {".weight", ".scale", FP8, NULL},
            {"_blocks", "_scales", BLOCKS, NULL}, {".weight_packed", ".weight_scale", PACKED, NULL},
            {".weight", ".scale", PACKED, NULL}, {".weight_packed", ".weight_scale", NVFP4, ".weight_global_scale"},
            {".weight", ".weight_scale", NVFP4, ".weight_scale_2"}, {"", "_weight_scale", NVFP4, "_weight_scale_2"},
            {".weight", ".weight_scale", TERNARY, NULL}};

/* Finds the scales of a tensor, and their entry in `ways`. `beside`: the suffix by which the scales' name differs; NULL: the
 * tensor has no scales. */
static ae_convert_entry *scales_of(const ae_convert *c, const ae_convert_entry *e, const struct way **way, const char **beside)
{
    const ae_st_dtype type = e->tensor->dtype;
    const bool fp8 = type == AE_ST_F8_E4M3 || type == AE_ST_F8_E5M2, bytes = type == AE_ST_U8 || type == AE_ST_I8;
    *beside = fp8 ? "a tensor of its name with _scale_inv or _scale" : ends_with(e->name, "_blocks") ? "_scales" : NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const struct way *w = &ways[i];
        if ((w->format == FP8) != fp8 || (w->format >= PACKED && !bytes) || !ends_with(e->name, w->end)) continue;
        ae_convert_entry *found = find_beside(c, e->name, strlen(w->end), w->instead);
        /* codes in bytes are MXFP4 or NVFP4 by the type of their scales, else something that is not read */
        if (found && w->format == NVFP4 && found->tensor->dtype != AE_ST_F8_E4M3) continue;
        if (found && w->format == PACKED && found->tensor->dtype == AE_ST_F8_E4M3) continue;
        if (found && w->format == TERNARY && !is_bitnet(c)) continue;
        if (found && w->format == PACKED && strcmp(w->end, ".weight") == 0 && !is_exponents(found->tensor)) continue;
        *way = w;
        if (found) return found;
    }
    return NULL;
}

static aerie_status set_scaled(const ae_convert *c, const ae_convert_entry *e, const struct way *way, scaled *s)
{
    if (way->format == FP8) return set_fp8(c, s);
    if (way->format == BLOCKS) return set_mxfp4(c, s);
    if (way->format == PACKED) return set_packed(c, s);
    if (way->format == TERNARY) return set_ternary(c, s);
    ae_convert_entry *second = find_beside(c, e->name, strlen(way->end), way->second);
    if (second) second->used = true;
    return set_nvfp4(c, s, second ? second->tensor : NULL, strcmp(way->second, ".weight_global_scale") == 0);
}

aerie_status ae_convert_read_scales(ae_convert *c)
{
    const char *beside;
    const struct way *way = NULL;
    bool renamed = false;
    for (size_t i = 0; i < c->n_entries; i++) {
        ae_convert_entry *e = &c->entries[i], *scales;
        if (e->used) continue; /* scales that have the type of codes */
        scales = scales_of(c, e, &way, &beside);
        if (!scales && !beside) continue;
        if (!scales)
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s (%s) has no scales: %s is missing", c->path,
                           e->tensor->name, ae_st_dtype_name(e->tensor->dtype), beside);
        scaled *s = ae_arena_alloc(&c->arena, 1, sizeof *s);
        if (!s) return ae_convert_no_memory(c, "the names of tensors");
        *s = (scaled){.codes = e->tensor, .scales = scales->tensor};
        AE_TRY(set_scaled(c, e, way, s));
        scales->used = true;
        e->tensor = &s->tensor;
    }
    /* done at the end, because entries are found by their sorted names */
    for (size_t i = 0; i < c->n_entries; i++) {
        ae_convert_entry *e = &c->entries[i];
        if (e->tensor->dtype < AE_CONVERT_MXFP4 || !ends_with(e->name, "_packed")) continue;
        e->name = ae_arena_strndup(&c->arena, e->name, strlen(e->name) - strlen("_packed"));
        if (!e->name) return ae_convert_no_memory(c, "the names of tensors");
        renamed = true;
    }
    return renamed ? ae_convert_sort_names(c) : AERIE_OK;
}
