/* gguf_override.c - implements gguf_override.h. Source of the notation: llama.cpp's --override-kv. */
#include "formats/gguf_override.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

#define SHOWN 80 /* bytes of the text that a message quotes */

static aerie_status fail(const char *text, const char *what, aerie_error *error)
{
    const size_t n = strlen(text);
    return ae_fail(error, AERIE_ERROR_ARGUMENT, "override '%.*s%s': %s", (int)(n < SHOWN ? n : SHOWN), text,
                   n > SHOWN ? "..." : "", what);
}

static bool put(ae_gguf_overrides *o, ae_gguf_kv *kv, ae_gguf_type type, const void *bytes, size_t n)
{
    uint8_t *copy = ae_arena_alloc(&o->arena, n ? n : 1, 1);
    if (!copy) return false;
    memcpy(copy, bytes, n);
    kv->type = kv->element_type = type;
    kv->data = copy;
    kv->bytes = n;
    return true;
}

static aerie_status parse_int(const char *value, int64_t *x, const char *text, aerie_error *error)
{
    char *end;
    errno = 0;
    *x = strtoll(value, &end, 10);
    if (end == value || *end || errno || strchr(" \t\n\v\f\r", *value))
        return fail(text, "int takes a 64-bit integer", error);
    return AERIE_OK;
}

static aerie_status parse_float(const char *value, double *x, const char *text, aerie_error *error)
{
    return ae_number_is(value, x) ? AERIE_OK : fail(text, "float takes a number such as 0.5 or 1e-5", error);
}

/* Parses "TYPE:VALUE" at `type` into kv. text: the whole override, for messages. */
static aerie_status parse_value(ae_gguf_overrides *o, ae_gguf_kv *kv, const char *type, const char *text, aerie_error *error)
{
    const char *value = strchr(type, ':') + 1;
    const size_t n_type = (size_t)(value - 1 - type);
    bool ok;
    if (n_type == 3 && !memcmp(type, "int", 3)) {
        int64_t x;
        AE_TRY(parse_int(value, &x, text, error));
        ok = put(o, kv, AE_GGUF_I64, &x, sizeof x);
    } else if (n_type == 5 && !memcmp(type, "float", 5)) {
        double x;
        AE_TRY(parse_float(value, &x, text, error));
        ok = put(o, kv, AE_GGUF_F64, &x, sizeof x);
    } else if (n_type == 4 && !memcmp(type, "bool", 4)) {
        const uint8_t x = !strcmp(value, "true");
        if (!x && strcmp(value, "false")) return fail(text, "bool takes true or false", error);
        ok = put(o, kv, AE_GGUF_BOOL, &x, 1);
    } else if (n_type == 3 && !memcmp(type, "str", 3)) {
        const uint64_t n = strlen(value);
        uint8_t *bytes = ae_arena_alloc(&o->arena, sizeof n + (size_t)n, 1);
        ok = bytes != NULL;
        if (ok) {
            memcpy(bytes, &n, sizeof n);
            memcpy(bytes + sizeof n, value, (size_t)n);
            *kv = (ae_gguf_kv){kv->key, AE_GGUF_STRING, AE_GGUF_STRING, 1, bytes, sizeof n + (size_t)n};
        }
    } else {
        return fail(text, "the type must be int, float, bool or str", error);
    }
    return ok ? AERIE_OK : ae_fail_memory(error, "the overrides", strlen(text));
}

static aerie_status parse_one(ae_gguf_overrides *o, ae_gguf_kv *kv, const char *text, aerie_error *error)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !strchr(equals, ':'))
        return fail(text, "it must be KEY=TYPE:VALUE, such as tokenizer.ggml.add_bos_token=bool:false", error);
    const size_t n = (size_t)(equals - text);
    if (n > AE_GGUF_MAX_NAME) return fail(text, "the key is longer than 65535 bytes", error);
    const char *key = ae_arena_strndup(&o->arena, text, n);
    if (!key) return ae_fail_memory(error, "the overrides", n);
    *kv = (ae_gguf_kv){.key = {key, n}, .n = 1};
    return parse_value(o, kv, equals + 1, text, error);
}

aerie_status ae_gguf_overrides_parse(ae_gguf_overrides *out, const char *const *texts, size_t n, aerie_error *error)
{
    *out = (ae_gguf_overrides){0};
    if (!n) return AERIE_OK;
    ae_arena_init(&out->arena, 4096);
    aerie_status status = AERIE_OK;
    out->kv = ae_arena_alloc(&out->arena, n, sizeof *out->kv);
    out->read = ae_arena_alloc(&out->arena, n, sizeof *out->read);
    if (!out->kv || !out->read) status = ae_fail_memory(error, "the overrides", n * sizeof *out->kv);
    for (; status == AERIE_OK && out->n < n; out->n++) status = parse_one(out, &out->kv[out->n], texts[out->n], error);
    if (status != AERIE_OK) ae_gguf_overrides_free(out);
    return status;
}

void ae_gguf_overrides_free(ae_gguf_overrides *overrides)
{
    if (overrides->kv) ae_arena_free(&overrides->arena);
    *overrides = (ae_gguf_overrides){0};
}

const ae_gguf_kv *ae_gguf_overrides_find(const ae_gguf_overrides *overrides, const char *key)
{
    const size_t n = strlen(key);
    for (size_t i = overrides->n; i-- > 0;) {
        const ae_gguf_kv *kv = &overrides->kv[i];
        if (kv->key.n != n || memcmp(kv->key.data, key, n)) continue;
        atomic_store_explicit(&overrides->read[i], true, memory_order_relaxed);
        return kv;
    }
    return NULL;
}
