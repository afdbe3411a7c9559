/* st_make.c - implements st_make.h. */
#include "st_make.h"

#include <stdio.h>

void st_make_raw(st_make *m, const char *name, const char *dtype, const char *shape, const void *bytes, size_t n)
{
    ae_buf_addf(&m->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", m->n ? "," : "{", name,
                dtype, shape, m->data.n, m->data.n + n);
    ae_buf_add(&m->data, bytes, n);
    m->n++;
}

float st_value(const char *key, uint64_t i)
{
    uint64_t x = 1469598103934665603u;
    for (; *key; key++) x = (x ^ (unsigned char)*key) * 1099511628211u;
    x += i * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return (float)((int64_t)(x >> 40) - (1 << 23)) / (float)(1 << 25);
}

void st_make_floats(st_make *m, const char *name, const char *key, uint64_t rows, uint64_t columns)
{
    char shape[64];
    ae_buf values = {0};
    const uint64_t n = (rows ? rows : 1) * columns;
    if (rows) snprintf(shape, sizeof shape, "[%llu,%llu]", (unsigned long long)rows, (unsigned long long)columns);
    else snprintf(shape, sizeof shape, "[%llu]", (unsigned long long)columns);
    for (uint64_t i = 0; i < n; i++) {
        const float v = st_value(key, i);
        ae_buf_add(&values, &v, sizeof v);
    }
    st_make_raw(m, name, "F32", shape, values.data, values.n);
    ae_buf_free(&values);
}

void st_make_i64(st_make *m, const char *name, const int64_t *values, size_t n)
{
    char shape[32];
    snprintf(shape, sizeof shape, "[%zu]", n);
    st_make_raw(m, name, "I64", shape, values, n * sizeof *values);
}

static void add_header(ae_buf *file, const char *text, size_t n)
{
    const uint64_t size = n;
    ae_buf_add(file, &size, sizeof size);
    ae_buf_add(file, text, n);
}

void st_make_finish(st_make *m, ae_buf *file)
{
    ae_buf_adds(&m->header, m->n ? "}" : "{}");
    while (m->header.n % 8) ae_buf_adds(&m->header, " ");
    add_header(file, m->header.data, m->header.n);
    ae_buf_add(file, m->data.data, m->data.n);
    ae_buf_free(&m->header);
    ae_buf_free(&m->data);
    *m = (st_make){0};
}

void st_make_text(ae_buf *file, const char *header, size_t n_data)
{
    add_header(file, header, strlen(header));
    for (size_t i = 0; i < n_data; i++) ae_buf_add(file, "", 1);
}

const char *st_check_all(const ae_safetensors *st, const uint8_t *base, size_t n)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < ae_safetensors_n_tensors(st); i++) {
        const ae_st_tensor *t = ae_safetensors_tensor_at(st, i);
        uint64_t elements = 1;
        if (!*t->name) return "a tensor without a name";
        if (i && strcmp(ae_safetensors_tensor_at(st, i - 1)->name, t->name) >= 0) return "names are not distinct and sorted";
        if (ae_safetensors_tensor_find(st, t->name) != t) return "a tensor is not found by its name";
        if (t->dtype >= AE_ST_DTYPE_COUNT || t->n_dims > AE_ST_MAX_DIMS) return "an unknown type or too many dimensions";
        for (uint32_t d = 0; d < AE_ST_MAX_DIMS; d++) {
            if (d >= t->n_dims && t->shape[d] != 1) return "a dimension beyond the last is not 1";
            if (__builtin_mul_overflow(elements, t->shape[d], &elements)) return "elements overflow";
        }
        if (elements != t->n || t->n * ae_st_dtype_bytes(t->dtype) != t->bytes) return "sizes do not agree";
        if (base && (t->data < base || t->data + t->bytes > base + n)) return "data outside the file";
        for (size_t k = 0; k < t->bytes; k++) sum = (uint8_t)(sum + t->data[k]);
        if (t->i_file >= ae_safetensors_n_files(st)) return "no such file";
    }
    return ae_safetensors_tensor_find(st, "no such tensor") ? "a tensor that is not there was found" : NULL;
}
