/* spm.c - one word of a SentencePiece BPE vocabulary: characters are joined by score, or by merges (Gemma 4).
 *
 * The text has U+2581 for spaces already. Where no token has U+2581 after another character,
 * encode.c passes one word at a time (no merge could cross), else the whole text, or for Gemma 4 and its kin a line. Characters
 * without a token fall back to byte tokens, and where there is none to the unknown token. A run of newlines that is
 * a token of Gemma 4 or mmBERT is that token, whether merges make it or not.
 * Source: SentencePiece, bpe_model.cc; ids as llama.cpp's.
 */
#include "text/token/unicode.h"
#include "text/token/vocab_int.h"

static bool add_bytes(const ae_vocab *vocab, const char *bytes, size_t n, ae_tokens *out)
{
    for (size_t i = 0; i < n; i++) {
        if (vocab->byte_token[(uint8_t)bytes[i]] < 0) return vocab->unknown < 0 || ae_tokens_add(out, vocab->unknown);
    }
    for (size_t i = 0; i < n; i++) {
        if (!ae_tokens_add(out, vocab->byte_token[(uint8_t)bytes[i]])) return false;
    }
    return true;
}

aerie_status ae_spm_word(const ae_vocab *vocab, ae_merger *merger, const char *word, size_t n, ae_tokens *out,
                         aerie_error *error)
{
    const int32_t whole = vocab->newline_tokens && n && *word == '\n' ? ae_keys_find(vocab, word, n) : -1;
    if (whole >= 0 && whole < vocab->n_tokens)
        return ae_tokens_add(out, whole) ? AERIE_OK : ae_fail_memory(error, "the tokens of a text", out->n * sizeof whole);
    bool ok = ae_merger_reserve(merger, n);
    size_t n_symbols = 0;
    for (size_t i = 0; ok && i < n;) {
        uint32_t n_bytes;
        ae_uni_decode(word + i, n - i, &n_bytes);
        merger->symbols[n_symbols++] = (ae_symbol){.begin = (uint32_t)i, .n = n_bytes,
                                                   .id = ae_keys_find(vocab, word + i, n_bytes), .prev = -1, .next = -1};
        i += n_bytes;
    }
    merger->n = n_symbols;
    ok = ok && ae_merger_run(vocab, merger, word);
    for (int32_t i = 0; ok && n_symbols && i >= 0; i = merger->symbols[i].next) {
        const ae_symbol *s = &merger->symbols[i];
        const bool is_token = s->id >= 0 && s->id < vocab->n_tokens;
        ok = is_token ? ae_tokens_add(out, s->id) : add_bytes(vocab, word + s->begin, s->n, out);
    }
    return ok ? AERIE_OK : ae_fail_memory(error, "merging a text", n * sizeof(ae_symbol));
}
