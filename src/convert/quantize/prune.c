/* prune.c - leaves layers of a model out when its file is rewritten (rewrite_int.h).
 * Owns the new names of tensors and the keys that depend on the number of layers: block_count, leading_dense_block_count,
 * nextn_predict_layers, and lists with an entry for each layer; and the check that the other layers still compute the same,
 * which their numbers may decide. Source: llama.cpp's llama-quantize --prune-layers. */
#include <stdio.h>
#include <string.h>

#include "convert/quantize/rewrite_int.h"
#include "model/model.h"

aerie_status ae_prune_read(ae_prune *p, const ae_gguf *gguf, const uint32_t *out, size_t n, aerie_error *error)
{
    char key[96];
    ae_gguf_string arch;
    *p = (ae_prune){.n = 0};
    if (!n) return AERIE_OK;
    AE_TRY(ae_gguf_get_string(gguf, "general.architecture", true, &arch, error));
    snprintf(p->arch, sizeof p->arch, "%.*s", (int)(arch.n < sizeof p->arch ? arch.n : sizeof p->arch - 1), arch.data);
    snprintf(key, sizeof key, "%s.block_count", p->arch);
    AE_TRY(ae_gguf_get_u32(gguf, key, true, &p->n_layers, error));
    if (out[n - 1] >= p->n_layers)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "layer %u cannot be left out: the model has layers 0 to %u", out[n - 1],
                       p->n_layers ? p->n_layers - 1 : 0);
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_string name = ae_gguf_tensor_at(gguf, i)->name;
        if (name.n > 8 && !memcmp(name.data, "enc.blk.", 8))
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                           "layers of %s, which has an encoder and a decoder, cannot be left out", p->arch);
    }
    if (n == p->n_layers) return ae_fail(error, AERIE_ERROR_ARGUMENT, "all %zu layers would be left out", n);
    p->out = out;
    p->n = n;
    return AERIE_OK;
}

/* Returns how many of the layers [from, to) are left out. */
static uint32_t n_between(const ae_prune *p, uint32_t from, uint32_t to)
{
    uint32_t n = 0;
    for (size_t i = 0; i < p->n; i++) n += p->out[i] >= from && p->out[i] < to;
    return n;
}

bool ae_prune_name(const ae_prune *p, ae_arena *arena, ae_gguf_string *name, bool *failed)
{
    static const char start[] = "blk.";
    const size_t n_start = sizeof start - 1;
    uint32_t layer = 0;
    size_t at = n_start;
    *failed = false;
    if (!p->n || name->n <= n_start || memcmp(name->data, start, n_start) != 0) return true;
    for (; at < name->n && name->data[at] >= '0' && name->data[at] <= '9' && layer < p->n_layers; at++)
        layer = layer * 10 + (uint32_t)(name->data[at] - '0');
    if (at == n_start || at == name->n || name->data[at] != '.' || layer >= p->n_layers) return true;
    if (n_between(p, layer, layer + 1)) return false;
    const size_t n = name->n + 16;
    char *text = ae_arena_alloc(arena, n, 1);
    *failed = !text;
    if (!text) return false;
    snprintf(text, n, "blk.%u%.*s", layer - n_between(p, 0, layer), (int)(name->n - at), name->data + at);
    *name = (ae_gguf_string){text, strlen(text)};
    return true;
}

/* Returns whether the key is "<architecture>.<last>"; last NULL: any key of the architecture. */
static bool is_key(const ae_prune *p, ae_gguf_string key, const char *last)
{
    const size_t n = strlen(p->arch);
    if (key.n <= n || memcmp(key.data, p->arch, n) != 0 || key.data[n] != '.') return false;
    return !last || (key.n == n + 1 + strlen(last) && !memcmp(key.data + n + 1, last, strlen(last)));
}

static aerie_status write_list(const ae_prune *p, ae_gguf_writer *writer, const char *key, const ae_gguf_kv *kv,
                               aerie_error *error)
{
    const size_t size = kv->bytes / p->n_layers, n = p->n_layers - p->n;
    uint8_t *values = ae_alloc(n, size);
    if (!values) return ae_fail_memory(error, "a key", n * size);
    for (uint32_t i = 0, k = 0; i < p->n_layers; i++)
        if (!n_between(p, i, i + 1)) memcpy(values + size * k++, kv->data + size * i, size);
    const aerie_status status = ae_gguf_writer_array(writer, key, kv->element_type, values, n, error);
    ae_free(values);
    return status;
}

aerie_status ae_prune_key(const ae_prune *p, ae_gguf_writer *writer, const ae_gguf_kv *kv, bool *done, aerie_error *error)
{
    int64_t value;
    char key[256];
    *done = false;
    if (!p->n || !is_key(p, kv->key, NULL) || kv->key.n >= sizeof key) return AERIE_OK;
    snprintf(key, sizeof key, "%.*s", (int)kv->key.n, kv->key.data);
    *done = true;
    if (kv->type == AE_GGUF_ARRAY && kv->n == p->n_layers && kv->element_type != AE_GGUF_STRING)
        return write_list(p, writer, key, kv, error);
    const bool known = kv->type != AE_GGUF_ARRAY && ae_gguf_kv_int(kv, 0, &value) && value >= 0 && value <= p->n_layers;
    const uint32_t n = known ? (uint32_t)value : 0;
    if (known && is_key(p, kv->key, "block_count")) return ae_gguf_writer_u32(writer, key, n - (uint32_t)p->n, error);
    if (known && is_key(p, kv->key, "leading_dense_block_count"))
        return ae_gguf_writer_u32(writer, key, n - n_between(p, 0, n), error);
    if (known && is_key(p, kv->key, "nextn_predict_layers"))
        return ae_gguf_writer_u32(writer, key, n - n_between(p, p->n_layers - n, p->n_layers), error);
    *done = false;
    return AERIE_OK;
}

/* ---- The check ------------------------------------------------------------------------------------------------ */

/* Returns whether two layers compute the same, given their weights. from: the layer whose keys and values the first one reads,
 * by its number in the model of the second. */
static bool same_kind(const ae_layer_spec *a, const ae_layer_spec *b, int from)
{
    return a->mixer == b->mixer && a->recur_beside == b->recur_beside && a->n_heads == b->n_heads &&
           a->n_kv_heads == b->n_kv_heads && a->head_dim == b->head_dim && a->window == b->window && a->chunked == b->chunked &&
           a->rope == b->rope && a->attn_scale == b->attn_scale && a->qk_norm == b->qk_norm &&
           a->temperature == b->temperature && from == b->kv_from && a->every == b->every && a->ffn == b->ffn &&
           a->n_ff == b->n_ff && a->activation == b->activation && a->sparse == b->sparse && a->cutoff == b->cutoff &&
           a->limit == b->limit && a->shared_limit == b->shared_limit && a->normed_after == b->normed_after;
}

static aerie_status compare(const ae_prune *p, const ae_model *before, const ae_model *after, aerie_error *error)
{
    for (uint32_t i = 0; i < before->hparams.n_layers; i++) {
        const uint32_t now = i - n_between(p, 0, i);
        if (n_between(p, i, i + 1) || now >= after->hparams.n_layers) continue;
        const ae_layer_spec *a = &before->layers[i].spec;
        const int kv = a->kv_from, from = kv < 0 ? kv : kv - (int)n_between(p, 0, (uint32_t)kv);
        if (!same_kind(a, &after->layers[now].spec, from))
            return ae_fail(error, AERIE_ERROR_ARGUMENT,
                           "layer %u would become layer %u, and what layers of %s compute depends on their numbers; leave out "
                           "whole periods of their pattern", i, now, p->arch);
    }
    return AERIE_OK;
}

aerie_status ae_prune_check(const ae_prune *p, const char *path, const char *const *parts, uint32_t n_parts, bool *checked,
                            aerie_error *error)
{
    const ae_model_options how = {.no_mmap = true};
    const ae_gguf_options set = {.index_only = true, .parts = parts, .n_parts = n_parts};
    ae_model *before, *after;
    ae_gguf *gguf;
    aerie_error why = {0};
    *checked = false;
    if (ae_model_load(&before, path, &how, NULL) != AERIE_OK) return AERIE_OK;
    aerie_status status = ae_gguf_open(&gguf, parts[0], &set, &why);
    if (status == AERIE_OK) status = ae_model_bind(&after, gguf, &why);
    if (status == AERIE_OK) {
        status = compare(p, before, after, error);
        ae_model_free(after);
    } else if (status != AERIE_ERROR_MEMORY) { /* the message may name a new file as it is called while it is written */
        const char *text = why.text;
        for (uint32_t i = 0; i < n_parts; i++) {
            const size_t n = strlen(parts[i]);
            if (strncmp(why.text, parts[i], n) == 0 && why.text[n] == ':') text = why.text + n + 2;
        }
        status = ae_fail(error, AERIE_ERROR_ARGUMENT, "what is left would be no model of architecture %s: %.300s", p->arch,
                         text);
    } else if (error) {
        *error = why;
    }
    ae_model_free(before);
    *checked = true;
    return status;
}
