/* mkscale.c - see mkscale.h. */
#include "mkscale.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "formats/gguf_write.h"
#include "mkmodel.h"

typedef struct scaler {
    const mkscale_options *o;
    aerie_error *error;
    ae_gguf *in;
    ae_gguf_writer *out;
} scaler;

/* The name of the scale beside a weight; false: it gets none. */
static bool name_beside(const scaler *s, const ae_gguf_tensor *t, const char *end, char name[128])
{
    static const char weight[] = ".weight";
    const size_t n = t->name.n - (sizeof weight - 1);
    if (s->o->kind == MKSCALE_NONE || t->n_dims < 2 || t->name.n < sizeof weight || t->name.n > 100) return false;
    if (memcmp(t->name.data + n, weight, sizeof weight - 1)) return false;
    if (t->type == AE_TYPE_I32) return false; /* a table of experts */
    snprintf(name, 128, "%.*s.scale", (int)n, t->name.data);
    if (ae_gguf_tensor_find(s->in, name)) return false; /* Gemma 4's, which have another meaning */
    snprintf(name, 128, "%.*s", (int)t->name.n, t->name.data);
    if (s->o->only && !strstr(name, s->o->only)) return false;
    snprintf(name, 128, "%.*s%s", (int)n, t->name.data, end);
    return true;
}

/* Number i of a weight's scales. */
static float scale_of(const scaler *s, const char *name, uint64_t i)
{
    uint64_t random = mk_stream(7, name) + i;
    const uint64_t draw = mk_random(&random);
    if (s->o->kind == MKSCALE_OTHER) return 0.75f + 0.5f * (float)(draw >> 40) / (float)(1 << 24);
    static const float powers[] = {0.125f, 0.25f, 0.5f, 2.0f, 4.0f, 8.0f};
    return powers[draw % 6];
}

static aerie_status write_tensor(scaler *s, const ae_gguf_tensor *t)
{
    char name[128];
    uint8_t *data = ae_alloc(t->bytes, 1);
    if (!data) return ae_fail_memory(s->error, "a tensor", t->bytes);
    memcpy(data, t->data, t->bytes);
    const bool scaled = name_beside(s, t, ".scale", name);
    const uint64_t each = (uint64_t)(t->ne[0] * t->ne[1]);
    float *x = (float *)(void *)data;
    for (uint64_t i = 0; scaled && s->o->kind == MKSCALE_SAME && i < t->bytes / sizeof *x;) {
        const float scale = scale_of(s, name, i / each % (uint64_t)t->ne[2]);
        for (uint64_t k = 0; k < each; k++) x[i++] /= scale;
    }
    aerie_status status = ae_gguf_writer_data(s->out, data, t->bytes, s->error);
    ae_free(data);
    for (int64_t i = 0; scaled && status == AERIE_OK && i < t->ne[2]; i++) {
        const float scale = scale_of(s, name, (uint64_t)i);
        status = ae_gguf_writer_data(s->out, &scale, sizeof scale, s->error);
    }
    const float input_scale = 3.0f;
    for (int64_t i = 0; scaled && status == AERIE_OK && i < t->ne[2]; i++)
        status = ae_gguf_writer_data(s->out, &input_scale, sizeof input_scale, s->error);
    return status;
}

static aerie_status describe(scaler *s, const ae_gguf_tensor *t)
{
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.data);
    AE_TRY(ae_gguf_writer_tensor(s->out, name, t->type, t->n_dims, t->ne, s->error));
    if (!name_beside(s, t, ".scale", name)) return AERIE_OK;
    AE_TRY(ae_gguf_writer_tensor(s->out, name, AE_TYPE_F32, 1, &t->ne[2], s->error));
    name_beside(s, t, ".input_scale", name);
    return ae_gguf_writer_tensor(s->out, name, AE_TYPE_F32, 1, &t->ne[2], s->error);
}

static bool is_left_out(const scaler *s, ae_gguf_string key)
{
    const size_t n = s->o->without ? strlen(s->o->without) : 0;
    return n && key.n > n && memcmp(key.data + key.n - n, s->o->without, n) == 0;
}

static aerie_status make(scaler *s, const char *in, const char *out)
{
    const int64_t n_extra = s->o->n_extra;
    AE_TRY(ae_gguf_open(&s->in, in, NULL, s->error));
    AE_TRY(ae_gguf_writer_create(&s->out, out, s->error));
    for (size_t i = 0; i < ae_gguf_n_kv(s->in); i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_at(s->in, i);
        if (!is_left_out(s, kv->key)) AE_TRY(ae_gguf_writer_copy(s->out, kv, s->error));
    }
    if (s->o->keys) AE_TRY(s->o->keys(s->out, s->in, s->error));
    for (size_t i = 0; i < ae_gguf_n_tensors(s->in); i++) AE_TRY(describe(s, ae_gguf_tensor_at(s->in, i)));
    if (s->o->extra) AE_TRY(ae_gguf_writer_tensor(s->out, s->o->extra, AE_TYPE_F32, 1, &n_extra, s->error));
    AE_TRY(ae_gguf_writer_begin(s->out, s->error));
    for (size_t i = 0; i < ae_gguf_n_tensors(s->in); i++) AE_TRY(write_tensor(s, ae_gguf_tensor_at(s->in, i)));
    for (uint32_t i = 0; s->o->extra && i < s->o->n_extra; i++) {
        const float x = i == 0 && s->o->first != 0.0f ? s->o->first : 1.0f;
        AE_TRY(ae_gguf_writer_data(s->out, &x, sizeof x, s->error));
    }
    return ae_gguf_writer_finish(s->out, s->error);
}

aerie_status mkscale_write(const mkscale_options *options, const char *in, const char *out, aerie_error *error)
{
    scaler s = {.o = options, .error = error};
    const aerie_status status = make(&s, in, out);
    ae_gguf_writer_free(s.out);
    ae_gguf_close(s.in);
    return status;
}
