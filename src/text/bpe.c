/* bpe.c - one word of byte-level BPE: bytes become symbols, merges join them, symbols become ids.
 *
 * Words come from the pre-tokenizer; merges never cross them. A symbol that is no token falls back
 * to the tokens of its bytes; a byte without a token gives nothing, as in the reference.
 */
#include "text/vocab_int.h"

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
    for (size_t i = 0; ok && i < n; i++) {
        merger->symbols[i] =
            (ae_symbol){.begin = (uint32_t)i, .n = 1, .id = vocab->byte_symbol[(uint8_t)word[i]], .prev = -1, .next = -1};
    }
    merger->n = n;
    ok = ok && ae_merger_run(vocab, merger, word);
    for (int32_t i = 0; ok && i >= 0; i = merger->symbols[i].next) {
        const ae_symbol *s = &merger->symbols[i];
        ok = s->id < vocab->n_tokens ? ae_tokens_add(out, s->id) : add_bytes(vocab, word + s->begin, s->n, out);
    }
    return ok ? AERIE_OK : ae_fail_memory(error, "merging a word", n * sizeof(ae_symbol));
}
