/* gguf_fingerprint.c - a hash that tells one model from another without reading the whole file. See gguf.h.
 *
 * It is a sum over keys and tensors, so that neither their order nor the way a set is split matters. Keys that do not affect
 * what a model computes are left out.
 */
#include <string.h>

#include "base/hash.h"
#include "formats/gguf.h"

#define TENSOR 2 /* seed of the hash of a tensor; saved sequences store fingerprints, so it must not change */

#define N_SAMPLES 4
#define SAMPLE_BYTES 4096

/* Returns whether a key does not affect what a model computes. */
static bool is_label(ae_gguf_string key)
{
    static const char *const prefixes[] = {"general.", "split.", "quantize.", "tokenizer.chat_template"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (key.n >= strlen(prefixes[i]) && !memcmp(key.data, prefixes[i], strlen(prefixes[i]))) return true;
    return false;
}

/* Adds the hash of a tensor's name, type, shape, and 4096 bytes from each of four places (all bytes of a small tensor). */
static aerie_status add_tensor(ae_gguf_reader *reader, const ae_gguf_tensor *t, uint64_t *sum, aerie_error *error)
{
    uint8_t bytes[SAMPLE_BYTES];
    const uint64_t shape[] = {t->type, (uint64_t)t->ne[0], (uint64_t)t->ne[1], (uint64_t)t->ne[2], (uint64_t)t->ne[3]};
    uint64_t h = ae_hash64(ae_hash64(TENSOR, t->name.data, t->name.n), shape, sizeof shape);
    for (size_t i = 0; i < N_SAMPLES; i++) {
        const size_t n = t->bytes < SAMPLE_BYTES ? t->bytes : SAMPLE_BYTES;
        AE_TRY(ae_gguf_read(reader, t, (t->bytes - n) / (N_SAMPLES - 1) * i, bytes, n, error));
        h = ae_hash64(h, bytes, n);
    }
    *sum += h;
    return AERIE_OK;
}

aerie_status ae_gguf_fingerprint(const ae_gguf *gguf, uint64_t *hash, aerie_error *error)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < ae_gguf_n_kv(gguf); i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_at(gguf, i);
        if (!is_label(kv->key)) sum += ae_hash64(ae_hash64(kv->type, kv->key.data, kv->key.n), kv->data, kv->bytes);
    }
    ae_gguf_reader reader = ae_gguf_reader_open(gguf);
    aerie_status status = AERIE_OK;
    for (size_t i = 0; status == AERIE_OK && i < ae_gguf_n_tensors(gguf); i++)
        status = add_tensor(&reader, ae_gguf_tensor_at(gguf, i), &sum, error);
    ae_gguf_reader_close(&reader);
    *hash = sum;
    return status;
}
