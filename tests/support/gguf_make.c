/* gguf_make.c - see gguf_make.h. */
#include "gguf_make.h"

#include <stdio.h>

void gguf_make_u32(ae_buf *buf, uint32_t value)
{
    ae_buf_add(buf, &value, sizeof value);
}

void gguf_make_u64(ae_buf *buf, uint64_t value)
{
    ae_buf_add(buf, &value, sizeof value);
}

void gguf_make_text(ae_buf *buf, const char *text)
{
    gguf_make_u64(buf, strlen(text));
    ae_buf_adds(buf, text);
}

void gguf_make_header(ae_buf *buf, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    ae_buf_adds(buf, "GGUF");
    gguf_make_u32(buf, version);
    gguf_make_u64(buf, n_tensors);
    gguf_make_u64(buf, n_kv);
}

void gguf_make_kv(ae_buf *buf, const char *key, uint32_t type, const void *value, size_t bytes)
{
    gguf_make_text(buf, key);
    gguf_make_u32(buf, type);
    ae_buf_add(buf, value, bytes);
}

void gguf_make_kv_u32(ae_buf *buf, const char *key, uint32_t value)
{
    gguf_make_kv(buf, key, AE_GGUF_U32, &value, sizeof value);
}

void gguf_make_kv_u16(ae_buf *buf, const char *key, uint16_t value)
{
    gguf_make_kv(buf, key, AE_GGUF_U16, &value, sizeof value);
}

void gguf_make_kv_string(ae_buf *buf, const char *key, const char *value)
{
    gguf_make_text(buf, key);
    gguf_make_u32(buf, AE_GGUF_STRING);
    gguf_make_text(buf, value);
}

void gguf_make_kv_array(ae_buf *buf, const char *key, uint32_t element, uint64_t n, const void *values, size_t bytes)
{
    gguf_make_text(buf, key);
    gguf_make_u32(buf, AE_GGUF_ARRAY);
    gguf_make_u32(buf, element);
    gguf_make_u64(buf, n);
    ae_buf_add(buf, values, bytes);
}

void gguf_make_tensor(ae_buf *buf, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t offset)
{
    gguf_make_text(buf, name);
    gguf_make_u32(buf, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) gguf_make_u64(buf, ne[i]);
    gguf_make_u32(buf, type);
    gguf_make_u64(buf, offset);
}

void gguf_make_zeros(ae_buf *buf, size_t n)
{
    static const char zeros[256];
    for (; n > sizeof zeros; n -= sizeof zeros) ae_buf_add(buf, zeros, sizeof zeros);
    ae_buf_add(buf, zeros, n);
}

void gguf_make_pad(ae_buf *buf, size_t alignment)
{
    gguf_make_zeros(buf, (alignment - buf->n % alignment) % alignment);
}

uint64_t gguf_make_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ---- A sample ------------------------------------------------------------------------------ */

static const uint8_t scalar_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static uint64_t sample_keys(ae_buf *buf, uint64_t *state, uint32_t alignment)
{
    uint64_t n = 0;
    char key[48];
    gguf_make_kv_string(buf, "general.architecture", "llama");
    gguf_make_kv_u32(buf, "general.alignment", alignment);
    gguf_make_kv_u32(buf, "llama.block_count", 1 + (uint32_t)(gguf_make_random(state) % 4));
    n += 3;
    for (uint32_t type = 0; type <= AE_GGUF_F64; type++) {
        uint64_t values[8];
        size_t count = gguf_make_random(state) % 9;
        for (size_t i = 0; i < 8; i++) values[i] = gguf_make_random(state);
        if (type == AE_GGUF_ARRAY || type == AE_GGUF_STRING) continue;
        if (type == AE_GGUF_BOOL) memset(values, 1, sizeof values);
        snprintf(key, sizeof key, "sample.%s", ae_gguf_type_name((ae_gguf_type)type));
        gguf_make_kv(buf, key, type, values, scalar_bytes[type]);
        snprintf(key, sizeof key, "sample.%s.array", ae_gguf_type_name((ae_gguf_type)type));
        gguf_make_kv_array(buf, key, type, count, values, count * scalar_bytes[type]);
        n += 2;
    }
    size_t n_tokens = 1 + gguf_make_random(state) % 24;
    gguf_make_kv_array(buf, "tokenizer.ggml.tokens", AE_GGUF_STRING, n_tokens, NULL, 0);
    for (size_t i = 0; i < n_tokens; i++) {
        size_t length = gguf_make_random(state) % 6;
        gguf_make_u64(buf, length);
        for (size_t k = 0; k < length; k++) ae_buf_add(buf, &(char){(char)gguf_make_random(state)}, 1);
    }
    return n + 1;
}

void gguf_make_sample(ae_buf *buf, uint64_t seed)
{
    static const uint32_t types[] = {AE_TYPE_F32,  AE_TYPE_Q4_0, AE_TYPE_Q6_K, AE_TYPE_F16,
                                     AE_TYPE_Q8_0, AE_TYPE_I8,   AE_TYPE_Q4_K};
    uint64_t state = seed, n_kv, at = 0, ends = 0;
    uint64_t n_tensors = gguf_make_random(&state) % 6;
    uint32_t alignment = (uint32_t)8 << gguf_make_random(&state) % 5;
    gguf_make_header(buf, seed % 4 ? 3 : 2, n_tensors, 0);
    n_kv = sample_keys(buf, &state, alignment);
    if (buf->data) memcpy(buf->data + 16, &n_kv, sizeof n_kv);
    for (uint64_t i = 0; i < n_tensors; i++) {
        char name[32];
        uint32_t type = types[gguf_make_random(&state) % 7], n_dims = 1 + (uint32_t)(gguf_make_random(&state) % 4);
        uint64_t ne[4] = {ae_type_block_elements(type) * (1 + gguf_make_random(&state) % 2), 1, 1, 1};
        for (uint32_t d = 1; d < n_dims; d++) ne[d] = 1 + gguf_make_random(&state) % 2;
        snprintf(name, sizeof name, "blk.%d.weight", (int)i);
        gguf_make_tensor(buf, name, n_dims, ne, type, at);
        ends = at + ae_type_row_bytes(type, ne[0]) * ne[1] * ne[2] * ne[3];
        at = (ends + alignment - 1) / alignment * alignment;
    }
    gguf_make_pad(buf, alignment);
    for (uint64_t i = 0; i < ends; i++) ae_buf_add(buf, &(char){(char)gguf_make_random(&state)}, 1);
}

/* ---- Reading everything -------------------------------------------------------------------- */

/* Summed so that no read is optimised away. */
static uint64_t touch(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum = sum * 31 + p[i];
    return sum;
}

static bool inside(const void *part, size_t bytes, const uint8_t *base, size_t n)
{
    const uint8_t *p = part;
    return !base || (p >= base && bytes <= n && (size_t)(p - base) <= n - bytes);
}

static const char *check_kv(const ae_gguf *gguf, const ae_gguf_kv *kv, const uint8_t *base, size_t n, uint64_t *sum)
{
    if (!inside(kv->key.data, kv->key.n, base, n) || !inside(kv->data, kv->bytes, base, n))
        return "a key lies outside the file";
    *sum += touch(kv->key.data, kv->key.n) + touch(kv->data, kv->bytes);
    uint64_t n_strings = 0;
    size_t cursor = 0;
    ae_gguf_string text;
    while (ae_gguf_kv_next_string(kv, &cursor, &text)) {
        if (!inside(text.data, text.n, base, n)) return "a string lies outside the file";
        *sum += touch(text.data, text.n);
        n_strings++;
    }
    if (n_strings != (kv->element_type == AE_GGUF_STRING ? kv->n : 0))
        return "a string array has not the length that it claims";
    for (uint64_t i = 0; i < kv->n && kv->element_type != AE_GGUF_STRING; i++) {
        int64_t x = 0;
        double y = 0;
        bool is_int = ae_gguf_kv_int(kv, i, &x), is_float = ae_gguf_kv_float(kv, i, &y);
        if (is_int && is_float) return "a value is both integer and float";
        *sum += (uint64_t)x + touch(&y, sizeof y);
    }
    if (!memchr(kv->key.data, 0, kv->key.n)) {
        char *key = ae_strndup(kv->key.data, kv->key.n);
        if (!key) return "out of memory";
        const ae_gguf_kv *found = ae_gguf_kv_find(gguf, key), *array;
        uint32_t u = 0;
        float f = 0;
        bool b = false;
        aerie_error error;
        ae_gguf_string s = {0};
        ae_gguf_get_u32(gguf, key, true, &u, &error);
        ae_gguf_get_f32(gguf, key, true, &f, &error);
        ae_gguf_get_bool(gguf, key, true, &b, &error);
        ae_gguf_get_string(gguf, key, true, &s, &error);
        ae_gguf_get_array(gguf, key, true, kv->element_type, &array, &error);
        *sum += u + b + touch(&f, sizeof f) + touch(s.data, s.n);
        ae_free(key);
        if (found != kv) return "a key is not found by its name";
        if ((array != NULL) != (kv->type == AE_GGUF_ARRAY)) return "an array is not found as one";
    }
    return NULL;
}

static const char *check_tensor(const ae_gguf *gguf, const ae_gguf_tensor *t, const uint8_t *base, size_t n, uint64_t *sum)
{
    if (!inside(t->name.data, t->name.n, base, n) || !inside(t->data, t->bytes, base, n))
        return "a tensor lies outside the file";
    if (base && t->data != base + t->offset) return "a tensor's offset is not where its data is";
    if (t->n_dims < 1 || t->n_dims > 4) return "a tensor's number of dimensions";
    uint32_t block = ae_type_block_elements(t->type);
    int64_t product = 1;
    for (int i = 0; i < 4; i++)
        if (t->ne[i] < 1 || __builtin_mul_overflow(product, t->ne[i], &product)) return "a tensor's dimensions";
    if (!block || t->ne[0] % block) return "a tensor's block";
    if ((uint64_t)product / block * ae_type_block_bytes(t->type) != t->bytes) return "a tensor's size";
    *sum += touch(t->name.data, t->name.n) + touch(t->data, t->bytes);
    if (!memchr(t->name.data, 0, t->name.n)) {
        char *name = ae_strndup(t->name.data, t->name.n);
        if (!name) return "out of memory";
        const ae_gguf_tensor *found = ae_gguf_tensor_find(gguf, name);
        ae_free(name);
        if (found != t) return "a tensor is not found by its name";
    }
    return NULL;
}

const char *gguf_check_all(const ae_gguf *gguf, const uint8_t *base, size_t n)
{
    volatile uint64_t sink;
    uint64_t sum = 0;
    const char *wrong = NULL;
    size_t n_kv = ae_gguf_n_kv(gguf), n_tensors = ae_gguf_n_tensors(gguf);
    for (size_t i = 0; i < n_kv && !wrong; i++) wrong = check_kv(gguf, ae_gguf_kv_at(gguf, i), base, n, &sum);
    for (size_t i = 0; i < n_tensors && !wrong; i++) wrong = check_tensor(gguf, ae_gguf_tensor_at(gguf, i), base, n, &sum);
    for (size_t i = 0; i < n_tensors && i < 256 && !wrong; i++)
        for (size_t k = 0; k < i && !wrong; k++) {
            const ae_gguf_tensor *a = ae_gguf_tensor_at(gguf, i), *b = ae_gguf_tensor_at(gguf, k);
            if (a->i_file == b->i_file && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes)
                wrong = "two tensors overlap";
        }
    if (!wrong && (ae_gguf_kv_at(gguf, n_kv) || ae_gguf_tensor_at(gguf, n_tensors)))
        wrong = "an index beyond the end gives something";
    sink = sum;
    (void)sink;
    return wrong;
}
