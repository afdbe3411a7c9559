/* gguf_get.c - typed reads of keys, with messages for missing keys and wrong types.
 *
 * Owns nothing. Relies on the reader's invariants: a key's data holds n elements of element_type.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "formats/gguf_parse.h"

const char *ae_gguf_type_name(ae_gguf_type type)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return (size_t)type < sizeof names / sizeof names[0] ? names[type] : "unknown";
}

bool ae_gguf_kv_int(const ae_gguf_kv *kv, uint64_t i, int64_t *value)
{
    if (i >= kv->n) return false;
#define INTEGER(ctype)                                         \
    do {                                                       \
        ctype x;                                               \
        memcpy(&x, kv->data + i * sizeof x, sizeof x);         \
        return !__builtin_add_overflow(x, (int64_t)0, value);  \
    } while (0)
    switch (kv->element_type) {
    case AE_GGUF_U8: INTEGER(uint8_t);
    case AE_GGUF_I8: INTEGER(int8_t);
    case AE_GGUF_U16: INTEGER(uint16_t);
    case AE_GGUF_I16: INTEGER(int16_t);
    case AE_GGUF_U32: INTEGER(uint32_t);
    case AE_GGUF_I32: INTEGER(int32_t);
    case AE_GGUF_U64: INTEGER(uint64_t);
    case AE_GGUF_I64: INTEGER(int64_t);
    default: return false;
    }
#undef INTEGER
}

bool ae_gguf_kv_float(const ae_gguf_kv *kv, uint64_t i, double *value)
{
    if (i >= kv->n) return false;
    if (kv->element_type == AE_GGUF_F32) {
        float x;
        memcpy(&x, kv->data + i * sizeof x, sizeof x);
        *value = (double)x;
        return true;
    }
    if (kv->element_type == AE_GGUF_F64) {
        memcpy(value, kv->data + i * sizeof *value, sizeof *value);
        return true;
    }
    return false;
}

bool ae_gguf_kv_next_string(const ae_gguf_kv *kv, size_t *cursor, ae_gguf_string *value)
{
    uint64_t n;
    if (kv->element_type != AE_GGUF_STRING || *cursor >= kv->bytes) return false;
    memcpy(&n, kv->data + *cursor, sizeof n);
    *value = (ae_gguf_string){(const char *)kv->data + *cursor + sizeof n, (size_t)n};
    *cursor += sizeof n + (size_t)n;
    return true;
}

/* ---- Typed reads ----------------------------------------------------------------------------- */

static aerie_status find(const ae_gguf *gguf, const char *key, bool required, const ae_gguf_kv **kv, aerie_error *error)
{
    *kv = ae_gguf_kv_find(gguf, key);
    if (*kv || !required) return AERIE_OK;
    const char *dots, *path = ae_gguf_path_end(ae_gguf_path(gguf), &dots);
    return ae_fail(error, AERIE_ERROR_FORMAT, "%s%s: key \"%.80s\" is missing; the model cannot be used without it",
                   dots, path, key);
}

static aerie_status fail_type(const ae_gguf *gguf, const ae_gguf_kv *kv, const char *wanted, aerie_error *error)
{
    char quoted[AE_GGUF_QUOTE_BYTES];
    const char *dots, *path = ae_gguf_path_end(ae_gguf_path(gguf), &dots);
    bool array = kv->type == AE_GGUF_ARRAY;
    return ae_fail(error, AERIE_ERROR_FORMAT, "%s%s: key %s: the value is of type %s%s; %s is needed", dots, path,
                   ae_gguf_quote(quoted, kv->key), array ? "array of " : "", ae_gguf_type_name(kv->element_type), wanted);
}

aerie_status ae_gguf_get_u32(const ae_gguf *gguf, const char *key, bool required, uint32_t *value, aerie_error *error)
{
    const ae_gguf_kv *kv;
    AE_TRY(find(gguf, key, required, &kv, error));
    if (!kv) return AERIE_OK;
    if (kv->type == AE_GGUF_ARRAY || kv->type == AE_GGUF_BOOL || kv->type == AE_GGUF_STRING || kv->type == AE_GGUF_F32 ||
        kv->type == AE_GGUF_F64)
        return fail_type(gguf, kv, "an integer", error);
    int64_t x;
    bool fits = ae_gguf_kv_int(kv, 0, &x);
    if (!fits || x < 0 || x > UINT32_MAX) {
        const char *dots, *path = ae_gguf_path_end(ae_gguf_path(gguf), &dots);
        char number[32];
        uint64_t large = 0;
        memcpy(&large, kv->data, fits ? 0 : sizeof large); /* only a u64 does not fit */
        if (fits) snprintf(number, sizeof number, "%" PRId64, x);
        else snprintf(number, sizeof number, "%" PRIu64, large);
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s%s: key \"%.80s\": the value is %s; it must be from 0 to %" PRIu32,
                       dots, path, key,
                       number, UINT32_MAX);
    }
    *value = (uint32_t)x;
    return AERIE_OK;
}

aerie_status ae_gguf_get_f32(const ae_gguf *gguf, const char *key, bool required, float *value, aerie_error *error)
{
    const ae_gguf_kv *kv;
    double x;
    AE_TRY(find(gguf, key, required, &kv, error));
    if (!kv) return AERIE_OK;
    if (kv->type == AE_GGUF_ARRAY || !ae_gguf_kv_float(kv, 0, &x)) return fail_type(gguf, kv, "an f32 or f64", error);
    if (isfinite(x) && fabs(x) > (double)FLT_MAX) {
        const char *dots, *path = ae_gguf_path_end(ae_gguf_path(gguf), &dots);
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s%s: key \"%.80s\": the value %g does not fit in an f32", dots,
                       path, key, x);
    }
    *value = (float)x;
    return AERIE_OK;
}

aerie_status ae_gguf_get_bool(const ae_gguf *gguf, const char *key, bool required, bool *value, aerie_error *error)
{
    const ae_gguf_kv *kv;
    AE_TRY(find(gguf, key, required, &kv, error));
    if (!kv) return AERIE_OK;
    if (kv->type != AE_GGUF_BOOL) return fail_type(gguf, kv, "a bool", error);
    *value = kv->data[0] != 0;
    return AERIE_OK;
}

aerie_status ae_gguf_get_string(const ae_gguf *gguf, const char *key, bool required, ae_gguf_string *value,
                                aerie_error *error)
{
    const ae_gguf_kv *kv;
    size_t cursor = 0;
    AE_TRY(find(gguf, key, required, &kv, error));
    if (!kv) return AERIE_OK;
    if (kv->type != AE_GGUF_STRING) return fail_type(gguf, kv, "a string", error);
    ae_gguf_kv_next_string(kv, &cursor, value);
    return AERIE_OK;
}

aerie_status ae_gguf_get_array(const ae_gguf *gguf, const char *key, bool required, ae_gguf_type element,
                               const ae_gguf_kv **value,
                               aerie_error *error)
{
    const ae_gguf_kv *kv;
    *value = NULL;
    AE_TRY(find(gguf, key, required, &kv, error));
    if (!kv) return AERIE_OK;
    if (kv->type != AE_GGUF_ARRAY || kv->element_type != element) {
        char wanted[32];
        snprintf(wanted, sizeof wanted, "array of %s", ae_gguf_type_name(element));
        return fail_type(gguf, kv, wanted, error);
    }
    *value = kv;
    return AERIE_OK;
}
