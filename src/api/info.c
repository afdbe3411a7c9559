/* info.c - aerie.h: reading the metadata and the vocabulary of a model's file. */
#include <stdio.h>
#include <string.h>

#include "session/session_int.h"
#include "base/err.h"
#include "base/number.h"

static const ae_gguf *gguf_of(const aerie_model *model)
{
    return model->model ? model->model->gguf : model->gguf;
}

/* ---- Metadata --------------------------------------------------------------------------------------------- */

static void add_quoted(ae_buf *out, const char *text, size_t n)
{
    ae_buf_adds(out, "\"");
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\') ae_buf_addf(out, "\\%c", c);
        else if (c < 0x20) ae_buf_addf(out, "\\u%04x", c);
        else ae_buf_add(out, text + i, 1);
    }
    ae_buf_adds(out, "\"");
}

static void add_number(ae_buf *out, const ae_gguf_kv *kv, uint64_t i)
{
    int64_t whole;
    double x;
    uint64_t large;
    if (kv->element_type == AE_GGUF_BOOL) ae_buf_adds(out, kv->data[i] ? "true" : "false");
    else if (ae_gguf_kv_int(kv, i, &whole)) ae_buf_addf(out, "%lld", (long long)whole);
    else if (kv->element_type == AE_GGUF_U64) {
        memcpy(&large, kv->data + i * sizeof large, sizeof large);
        ae_buf_addf(out, "%llu", (unsigned long long)large);
    } else if (ae_gguf_kv_float(kv, i, &x)) {
        char text[40];
        ae_number_print(text, sizeof text, kv->element_type == AE_GGUF_F32 ? "%.9g" : "%.17g", 0, x);
        ae_buf_adds(out, text);
    }
}

static void add_value(ae_buf *out, const ae_gguf_kv *kv)
{
    ae_gguf_string string;
    size_t cursor = 0;
    const bool is_list = kv->type == AE_GGUF_ARRAY, strings = kv->element_type == AE_GGUF_STRING;
    if (!is_list && strings) {
        if (ae_gguf_kv_next_string(kv, &cursor, &string)) ae_buf_add(out, string.data, string.n);
        return;
    }
    if (is_list) ae_buf_adds(out, "[");
    for (uint64_t i = 0; i < kv->n; i++) {
        if (i) ae_buf_adds(out, ", ");
        if (!strings) add_number(out, kv, i);
        else if (ae_gguf_kv_next_string(kv, &cursor, &string)) add_quoted(out, string.data, string.n);
    }
    if (is_list) ae_buf_adds(out, "]");
}

size_t aerie_model_n_metadata(const aerie_model *model)
{
    if (!model) return 0;
    return ae_gguf_n_kv(gguf_of(model));
}

aerie_status aerie_model_metadata_key(const aerie_model *model, size_t i, char **key, aerie_error *error)
{
    AE_NEED(key, error);
    *key = NULL;
    AE_NEED(model, error);
    const size_t n = ae_gguf_n_kv(gguf_of(model));
    if (i >= n) return ae_fail(error, AERIE_ERROR_ARGUMENT, "entry %zu of the metadata is asked for, of %zu", i, n);
    const ae_gguf_string name = ae_gguf_kv_at(gguf_of(model), i)->key;
    *key = ae_strndup(name.data, name.n);
    return *key ? AERIE_OK : ae_fail_memory(error, "a key", name.n);
}

aerie_status aerie_model_metadata_get(const aerie_model *model, const char *key, char **value, size_t *n, const char **type,
                                      aerie_error *error)
{
    AE_NEED(value, error);
    *value = NULL;
    AE_NEED(model, error);
    ae_buf out = {0};
    size_t n_value;
    if (n) *n = 0;
    if (type) *type = NULL;
    const ae_gguf_kv *kv = key ? ae_gguf_kv_find(gguf_of(model), key) : NULL;
    if (!kv) return AERIE_OK;
    add_value(&out, kv);
    AE_TRY(ae_session_give_text(&out, value, &n_value, error));
    if (n) *n = n_value;
    if (type) *type = ae_gguf_type_name(kv->type);
    return AERIE_OK;
}

/* ---- Vocabulary ------------------------------------------------------------------------------------------------ */

bool aerie_model_token_info_get(const aerie_model *model, int32_t token, aerie_token_info *info, size_t size)
{
    if (!model || !info) return false;
    aerie_token_info own = {.text = "", .type = AERIE_TOKEN_UNUSED};
    const bool known = token >= 0 && token < ae_vocab_n_tokens(model->vocab);
    if (known) {
        uint32_t n;
        double score = 0;
        const ae_gguf_kv *scores = ae_gguf_kv_find(gguf_of(model), "tokenizer.ggml.scores");
        if (scores) (void)ae_gguf_kv_float(scores, (uint64_t)token, &score);
        own = (aerie_token_info){.text = ae_vocab_piece_view(model->vocab, token, true, &n), .score = (float)score,
                                 .type = (aerie_token_type)ae_vocab_type(model->vocab, token),
                                 .is_eog = ae_vocab_is_eog(model->vocab, token)};
        own.n_text = n;
    }
    ae_struct_give(info, size, &own, sizeof own);
    return known;
}

int32_t aerie_model_token_special(const aerie_model *model, aerie_special which)
{
    if (!model) return -1;
    return ae_vocab_special(model->vocab, gguf_of(model), which);
}

bool aerie_model_adds_bos(const aerie_model *model)
{
    if (!model) return false;
    return ae_vocab_adds_bos(model->vocab);
}

bool aerie_model_adds_eos(const aerie_model *model)
{
    if (!model) return false;
    return ae_vocab_adds_eos(model->vocab);
}
