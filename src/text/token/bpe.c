/* bpe.c - one word of byte-level BPE: bytes become symbols, merges join them, symbols become ids.
 *
 * Words come from the pre-tokenizer; merges never cross them. A symbol that is not a token falls back
 * to the tokens of its bytes; a byte without a token is dropped before its neighbours merge, as in
 * the reference.
 */
#include "text/token/vocab_int.h"

static bool add_bytes(const ae_vocab *vocab, const char *bytes, size_t n, ae_tokens *out)
{
    for (size_t i = 0; i < n; i++) {
        int32_t token = vocab->byte_token[(uint8_t)bytes[i]];
        if (token >= 0 && !ae_tokens_add(out, token)) return false;
    }
    return true;
}

aerie_status ae_bpe_word(const ae_vocab *vocab, ae_merger *merger, const char *word, size_t n, ae_tokens *out,
                         aerie_error *error)
{
    bool ok = true;
    if (n == 1) {
        ok = add_bytes(vocab, word, 1, out);
        return ok ? AERIE_OK : ae_fail_memory(error, "the tokens of a text", out->n * sizeof *out->data);
    }
    if (vocab->ignore_merges) {
        int32_t id = ae_keys_find(vocab, word, n);
        if (id >= 0 && id < vocab->n_tokens && vocab->types[id] != AE_TOKEN_CONTROL) {
            ok = ae_tokens_add(out, id);
            return ok ? AERIE_OK : ae_fail_memory(error, "the tokens of a text", out->n * sizeof *out->data);
        }
    }
    ok = ae_merger_reserve(merger, n);
    size_t n_symbols = 0;
    for (size_t i = 0; ok && i < n; i++) {
        if (vocab->byte_token[(uint8_t)word[i]] < 0) continue;
        merger->symbols[n_symbols++] =
            (ae_symbol){.begin = (uint32_t)i, .n = 1, .id = vocab->byte_symbol[(uint8_t)word[i]], .prev = -1, .next = -1};
    }
    merger->n = n_symbols;
    ok = ok && ae_merger_run(vocab, merger, word);
    for (int32_t i = 0; ok && n_symbols && i >= 0; i = merger->symbols[i].next) {
        int32_t id = merger->symbols[i].id;
        if (id < vocab->n_tokens) {
            ok = ae_tokens_add(out, id);
        } else {
            uint32_t n_key;
            const char *key = ae_strings_get(&vocab->keys, id, &n_key);
            ok = add_bytes(vocab, key, n_key, out);
        }
    }
    return ok ? AERIE_OK : ae_fail_memory(error, "merging a word", n * sizeof(ae_symbol));
}
