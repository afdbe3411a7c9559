/* keys.c - writes metadata: keys of an architecture, and keys that every file has. */
#include <stdio.h>
#include <string.h>

#include "convert/checkpoint/checkpoint.h"
#include "quant/types.h"

static const char *key(const ae_convert_keys *k, const char *suffix, char out[96])
{
    snprintf(out, 96, "%s.%s", k->arch, suffix);
    return out;
}

void ae_convert_put_u32(ae_convert_keys *k, const char *suffix, uint32_t value)
{
    char name[96];
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_u32(k->w, key(k, suffix, name), value, k->error);
}

void ae_convert_put_f32(ae_convert_keys *k, const char *suffix, double value)
{
    char name[96];
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_f32(k->w, key(k, suffix, name), (float)value, k->error);
}

void ae_convert_put_bool(ae_convert_keys *k, const char *suffix, bool value)
{
    char name[96];
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_bool(k->w, key(k, suffix, name), value, k->error);
}

void ae_convert_put_text(ae_convert_keys *k, const char *suffix, const char *value)
{
    char name[96];
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_string(k->w, key(k, suffix, name), value, k->error);
}

void ae_convert_put_array(ae_convert_keys *k, const char *suffix, ae_gguf_type element, const void *values, size_t n)
{
    char name[96];
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_array(k->w, key(k, suffix, name), element, values, n, k->error);
}

void ae_convert_put_name(ae_convert_keys *k, const char *name, const char *value)
{
    if (k->status == AERIE_OK) k->status = ae_gguf_writer_string(k->w, name, value, k->error);
}

/* Returns the model's name: that of the options, or the last part of the checkpoint's path, which is written to `out`. */
static const char *name_of(const ae_convert *c, char out[128])
{
    size_t n = strlen(c->path), from;
    if (c->options.name) return c->options.name;
    while (n > 1 && c->path[n - 1] == '/') n--;
    for (from = n; from && c->path[from - 1] != '/'; from--) {}
    snprintf(out, 128, "%.*s", (int)(n - from < 120 ? n - from : 120), c->path + from);
    return out;
}

void ae_convert_put_general(ae_convert_keys *k, const ae_convert *c)
{
    char name[128];
    ae_convert_put_name(k, "general.architecture", k->arch);
    ae_convert_put_name(k, "general.name", name_of(c, name));
    if (k->status == AERIE_OK && ae_type_get(c->out_type)->dot != AE_DOT_FLOAT)
        k->status = ae_gguf_writer_u32(k->w, "general.quantization_version", 2, k->error);
}
