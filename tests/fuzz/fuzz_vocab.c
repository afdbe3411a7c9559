/* fuzz_vocab.c - any bytes as text: they encode, and decode to themselves, in every kind of tokenizer.
 *
 * The first byte picks the vocabulary and the options. With parse_special the text may hold control
 * tokens; printed with them it must still be the same, but for the spaces that SPM adds. */
#include <stdio.h>
#include <stdlib.h>

#include "vocab_make.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"smollm", "gpt-2", "llama-bpe", "qwen35", "deepseek-llm", "deepseek-v3", "deepseek-coder",
                                    "gpt-4o", "tekken", "default", "bloom", "viking", "chameleon", "youtu", "exaone-moe",
                                    "minicpm5", NULL};
enum { N_NAMES = sizeof names / sizeof names[0] };

static void broken(const char *what, size_t i)
{
    fprintf(stderr, "fuzz_vocab: %s (%s)\n", what, names[i] ? names[i] : "spm");
    abort();
}

static ae_vocab *load(size_t i)
{
    ae_buf file = {0};
    ae_vocab *vocab;
    aerie_error error = {0};
    vocab_make how = {.pre = names[i]};
    if (names[i]) {
        vocab_make_bpe(&file, &how);
    } else {
        vocab_make_spm(&file, &how);
    }
    if (vocab_make_load(&vocab, &file, &error) != AERIE_OK) broken(error.text, i);
    ae_buf_free(&file);
    return vocab;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ae_vocab *vocabs[N_NAMES];
    if (size < 1) return 0;
    size_t i = data[0] % N_NAMES;
    bool special = data[0] >= 128;
    if (!vocabs[i]) vocabs[i] = load(i);
    const char *text = (const char *)data + 1;
    size_t n = size - 1;

    ae_tokens tokens = {0};
    aerie_error error = {0};
    ae_buf back = {0};
    ae_detok detok = {.vocab = vocabs[i], .special = special};
    if (ae_vocab_encode(vocabs[i], text, n, (ae_encode_options){false, special}, &tokens, &error) != AERIE_OK) {
        broken(error.text, i);
    }
    for (size_t k = 0; k < tokens.n; k++) {
        if (tokens.data[k] < 0 || tokens.data[k] >= ae_vocab_n_tokens(vocabs[i])) broken("an id out of range", i);
        ae_detok_add(&detok, tokens.data[k], &back);
    }
    ae_detok_end(&detok, &back);
    bool same = back.n == n && (n == 0 || memcmp(back.data, text, n) == 0);
    if (!same && names[i]) broken("the text changed", i);
    if (!same && !special && back.n <= n) { /* SPM: U+2581 turns into a space, a user token brings one */
        for (size_t k = 0; k + 2 < n; k++) same = same || memcmp(text + k, "\xe2\x96\x81", 3) == 0;
        if (!same) broken("the text changed", i);
    }
    ae_buf_free(&back);
    ae_tokens_free(&tokens);
    return 0;
}
