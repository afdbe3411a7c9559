/* fuzz_vocab.c - any bytes as text: they encode, and decode to themselves, in every kind of tokenizer.
 *
 * The first byte picks the vocabulary and the options. With parse_special the text may hold control
 * tokens; printed with them it must still be the same, but for the spaces that SPM adds. */
#include "fuzz_vocabs.inc"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    size_t i = data[0] % FUZZ_N_VOCABS;
    bool special = data[0] >= 128;
    const ae_vocab *vocab = fuzz_vocab(i);
    const char *text = (const char *)data + 1;
    size_t n = size - 1;

    ae_tokens tokens = {0};
    aerie_error error = {0};
    ae_buf back = {0};
    ae_detok detok = {.vocab = vocab, .special = special};
    if (ae_vocab_encode(vocab, text, n, (ae_encode_options){.parse_special = special}, &tokens, &error) != AERIE_OK) {
        fuzz_broken(error.text, i);
    }
    for (size_t k = 0; k < tokens.n; k++) {
        if (tokens.data[k] < 0 || tokens.data[k] >= ae_vocab_n_tokens(vocab)) fuzz_broken("an id out of range", i);
        ae_detok_add(&detok, tokens.data[k], &back);
    }
    ae_detok_end(&detok, &back);
    bool same = back.n == n && (n == 0 || memcmp(back.data, text, n) == 0);
    if (!same && fuzz_vocab_names[i]) fuzz_broken("the text changed", i);
    if (!same && !special && back.n <= n) { /* SPM: U+2581 turns into a space, a user token brings one */
        for (size_t k = 0; k + 2 < n; k++) same = same || memcmp(text + k, "\xe2\x96\x81", 3) == 0;
        if (!same) fuzz_broken("the text changed", i);
    }
    ae_buf_free(&back);
    ae_tokens_free(&tokens);
    return 0;
}
