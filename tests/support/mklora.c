/* mklora.c - see mklora.h. */
#include "mklora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "mkmodel.h"
#include "quant/types.h"

#define MAX_PAIRS 4096

typedef struct pair {
    char name[96];
    uint32_t n_in, n_out, rank;
} pair;

typedef struct maker {
    const mklora_options *o;
    aerie_error *error;
    ae_gguf *model;
    ae_gguf_writer *writer;
    uint32_t type, rank;
    pair *pairs;
    size_t n_pairs;
} maker;

static bool matches(const char *name, const char *words)
{
    char word[64];
    for (const char *at = words; *at;) {
        const size_t n = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        if (strstr(name, word)) return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

static aerie_status list(maker *m)
{
    static const char usual[] = "attn_q.weight attn_k.weight attn_v.weight attn_qkv.weight attn_output.weight ffn_gate.weight "
                                "ffn_up.weight ffn_down.weight output.weight";
    for (size_t i = 0; i < ae_gguf_n_tensors(m->model); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(m->model, i);
        pair *p = &m->pairs[m->n_pairs];
        if (t->name.n >= sizeof p->name) continue;
        memcpy(p->name, t->name.data, t->name.n);
        p->name[t->name.n] = '\0';
        if (t->n_dims < 2 || !matches(p->name, m->o->match ? m->o->match : usual) || m->n_pairs == MAX_PAIRS) continue;
        p->n_in = (uint32_t)t->ne[0], p->n_out = (uint32_t)t->ne[1];
        p->rank = m->o->uneven && m->n_pairs % 2 && m->rank > 1 ? m->rank / 2 : m->rank;
        m->n_pairs++;
    }
    if (m->n_pairs) return AERIE_OK;
    return ae_fail(m->error, AERIE_ERROR_ARGUMENT, "%s has none of these tensors", ae_gguf_path(m->model));
}

static aerie_status write_text(maker *m, const char *key, const char *given, const char *usual)
{
    const char *text = given ? given : usual;
    return *text ? ae_gguf_writer_string(m->writer, key, text, m->error) : AERIE_OK;
}

static aerie_status write_keys(maker *m)
{
    const mklora_options *o = m->o;
    ae_gguf_string arch = {0};
    char text[64];
    AE_TRY(ae_gguf_get_string(m->model, "general.architecture", true, &arch, m->error));
    snprintf(text, sizeof text, "%.*s", (int)arch.n, arch.data);
    AE_TRY(write_text(m, "general.architecture", o->arch, text));
    AE_TRY(write_text(m, "general.type", o->general_type, "adapter"));
    AE_TRY(write_text(m, "adapter.type", o->adapter_type, "lora"));
    AE_TRY(write_text(m, "general.name", NULL, "A random adapter"));
    const int32_t tokens[] = {1, 2};
    if (o->alora)
        AE_TRY(ae_gguf_writer_array(m->writer, "adapter.alora.invocation_tokens", AE_GGUF_I32, tokens, 2, m->error));
    if (o->no_alpha) return AERIE_OK;
    return ae_gguf_writer_f32(m->writer, "adapter.lora.alpha", o->alpha != 0 ? o->alpha : 2 * (float)m->rank, m->error);
}

/* The side's name, type and shape. */
static aerie_status describe(maker *m, size_t i, bool is_b)
{
    const pair *p = &m->pairs[i];
    const bool spoilt = i == m->n_pairs / 2;
    char name[112];
    int64_t ne[3] = {is_b ? p->rank : p->n_in, is_b ? p->n_out : p->rank, 2};
    if (is_b && spoilt && m->o->bad_rank) ne[0]++;
    if (is_b && spoilt && m->o->bad_shape) ne[1]--;
    snprintf(name, sizeof name, "%s.lora_%c", p->name, is_b ? 'b' : 'a');
    return ae_gguf_writer_tensor(m->writer, name, mk_type_for(m->type, (uint32_t)ne[0]), spoilt && m->o->stacked ? 3 : 2, ne,
                                 m->error);
}

static aerie_status fill(maker *m, size_t i, bool is_b)
{
    const pair *p = &m->pairs[i];
    const mklora_options *o = m->o;
    const bool spoilt = i == m->n_pairs / 2;
    const uint32_t n_in = (is_b ? p->rank : p->n_in) + (is_b && spoilt && o->bad_rank);
    size_t n_out = (is_b ? p->n_out : p->rank) - (is_b && spoilt && o->bad_shape);
    if (spoilt && o->stacked) n_out *= 2;
    const uint32_t type = mk_type_for(m->type, n_in);
    const float alpha = o->alpha != 0 ? o->alpha : 2 * (float)m->rank, scale = o->no_alpha ? 1 : alpha / (float)p->rank;
    const float sd = is_b ? (o->gain != 0 ? o->gain : 0.5f) / sqrtf((float)p->rank) / scale : 1 / sqrtf((float)p->n_in);
    const size_t bytes = n_out * ae_type_row_bytes(type, n_in);
    char name[112];
    snprintf(name, sizeof name, "%s.%c", p->name, is_b ? 'b' : 'a');
    uint64_t random = mk_stream(o->seed + 1, name);
    uint8_t *data = ae_alloc(bytes, 1);
    if (!data) return ae_fail_memory(m->error, "an adapter", bytes);
    mk_blocks(type, sd, false, &random, data, n_out * n_in);
    const uint16_t infinity = 0x7C00;
    const float not_a_number = NAN;
    if (is_b && spoilt && o->not_finite) {
        if (type == AE_TYPE_F32) memcpy(data + 4 * (n_in + 1), &not_a_number, 4);
        else memcpy(data, &infinity, 2);
    }
    const aerie_status status = ae_gguf_writer_data(m->writer, data, bytes, m->error);
    ae_free(data);
    return status;
}

static aerie_status make(maker *m, const char *model, const char *path)
{
    const ae_type_info *type = ae_type_by_name(m->o->type ? m->o->type : "f32");
    const ae_gguf_options index_only = {.index_only = true};
    const int64_t four[] = {4, 4};
    if (!type) return ae_fail(m->error, AERIE_ERROR_ARGUMENT, "type %s is unknown", m->o->type);
    m->type = type->type;
    m->rank = m->o->rank ? m->o->rank : 8;
    m->pairs = ae_alloc(MAX_PAIRS + 1, sizeof *m->pairs);
    if (!m->pairs) return ae_fail_memory(m->error, "an adapter", MAX_PAIRS * sizeof *m->pairs);
    AE_TRY(ae_gguf_open(&m->model, model, &index_only, m->error));
    AE_TRY(list(m));
    AE_TRY(ae_gguf_writer_create(&m->writer, path, m->error));
    AE_TRY(write_keys(m));
    for (size_t i = 0; i < m->n_pairs; i++) {
        AE_TRY(describe(m, i, false));
        if (!m->o->no_b || i != m->n_pairs / 2) AE_TRY(describe(m, i, true));
    }
    if (m->o->extra) AE_TRY(ae_gguf_writer_tensor(m->writer, m->o->extra, AE_TYPE_F32, 2, four, m->error));
    AE_TRY(ae_gguf_writer_begin(m->writer, m->error));
    for (size_t i = 0; i < m->n_pairs; i++) {
        AE_TRY(fill(m, i, false));
        if (!m->o->no_b || i != m->n_pairs / 2) AE_TRY(fill(m, i, true));
    }
    const float zeros[16] = {0};
    if (m->o->extra) AE_TRY(ae_gguf_writer_data(m->writer, zeros, sizeof zeros, m->error));
    return ae_gguf_writer_finish(m->writer, m->error);
}

aerie_status mklora_write(const mklora_options *options, const char *model, const char *path, aerie_error *error)
{
    maker m = {.o = options, .error = error};
    const aerie_status status = make(&m, model, path);
    ae_gguf_writer_free(m.writer);
    ae_gguf_close(m.model);
    ae_free(m.pairs);
    return status;
}
