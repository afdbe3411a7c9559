/* test_vocab_kinds.c - vocabularies other than byte-level BPE, SPM and WordPiece, made in memory: what text becomes, what
 * tokens print, and files that are refused. Ids of real vocabularies are compared in golden/tokenizer_vectors and
 * tests/tokenizers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gguf_make.h"
#include "text/token/vocab_int.h"
#include "vocab_make.h"

static const ae_encode_options plain = {0}, full = {.add_special = true, .parse_special = true};

static ae_vocab *make(void (*maker)(ae_buf *, const vocab_make *), vocab_make how)
{
    ae_buf file = {0};
    aerie_error error = {0};
    ae_vocab *vocab;
    maker(&file, &how);
    if (vocab_make_load(&vocab, &file, &error) != AERIE_OK) fail_msg("%s", error.text);
    ae_buf_free(&file);
    return vocab;
}

/* Tokens with | between them; control tokens in brackets. */
static void check_pieces(const ae_vocab *vocab, const char *text, ae_encode_options options, const char *want)
{
    ae_tokens tokens = {0};
    aerie_error error = {0};
    ae_buf got = {0};
    if (ae_vocab_encode(vocab, text, strlen(text), options, &tokens, &error) != AERIE_OK) fail_msg("%s", error.text);
    ae_buf_adds(&got, "");
    for (size_t i = 0; i < tokens.n; i++) {
        const bool control = ae_vocab_is_control(vocab, tokens.data[i]);
        ae_buf_adds(&got, control ? "[" : i ? "|" : "");
        ae_vocab_piece(vocab, tokens.data[i], true, &got);
        if (control) ae_buf_adds(&got, "]");
    }
    assert_string_equal(got.data, want);
    ae_buf_free(&got);
    ae_tokens_free(&tokens);
}

/* Characters merged by a list, as files say by tokenizer.ggml.pre under the model gpt2. */
static void test_character_bpe(void **state)
{
    (void)state;
    ae_vocab *v = make(vocab_make_gemma4, (vocab_make){.model = "gpt2", .pre = "granite-embed-multi-311m"});
    assert_string_equal(ae_vocab_kind(v), "bpe/granite-embed-multi-311m");
    check_pieces(v, "hello world\n\n\na", full, "[<bos>]|hello| world|\n\n\n|a");
    ae_vocab_free(v);

    v = make(vocab_make_gemma4, (vocab_make){.model = "gpt2", .pre = "sarvam-moe"});
    assert_false(ae_vocab_adds_bos(v));
    check_pieces(v, "hello world\n\n\na", full, "hello| world|\n\n|\n|a"); /* newlines merge like all else */
    check_pieces(v, "7", plain, "7");
    ae_vocab_free(v);

    v = make(vocab_make_gemma4, (vocab_make){.model = "gpt2", .pre = "mmbert"});
    assert_false(ae_vocab_adds_bos(v));
    check_pieces(v, "hello hello", plain, " hello| hello");
    check_pieces(v, "hello  hello", plain, " hello| | hello"); /* each space begins a word */
    check_pieces(v, " hello", plain, " hello");
    check_pieces(v, "hello\nhello\n hello\n\n\nhello\n", plain, " hello|\n| hello|\n| hello|\n\n\n| hello|\n");
    check_pieces(v, "\xe2\x96\x81hello", plain, " hello");
    check_pieces(v, "hello  \t<mask>  world<mask>", full, " hello[<mask>]| | world[<mask>]");
    check_pieces(v, "", full, "");
    ae_vocab_free(v);
}

static void test_bare_words(void **state)
{
    (void)state;
    ae_vocab *v = make(vocab_make_gemma4, (vocab_make){.model = "whitespace"});
    assert_string_equal(ae_vocab_kind(v), "bpe/whitespace");
    check_pieces(v, " hello\n world\xe3\x80\x80ll ", plain, "hello|w|or|ld|ll");
    check_pieces(v, "HE he", plain, "H|E|he"); /* bytes */
    v->lowercase = true;
    check_pieces(v, "HE \xc3\x89 he\xff", plain, "he|\xc3\xa9|he|\xff");
    check_pieces(v, " \n\t", plain, "");
    ae_vocab_free(v);
    v = make(vocab_make_gemma4, (vocab_make){.model = "gpt2", .pre = "whitespace"});
    check_pieces(v, "hello hello", plain, "hello|hello");
    ae_vocab_free(v);
}

/* tiktoken's rule gives what merges in the order of the ids give. */
static void test_without_merges(void **state)
{
    (void)state;
    ae_vocab *with = make(vocab_make_bpe, (vocab_make){.pre = "kimi-k2"});
    ae_vocab *without = make(vocab_make_bpe, (vocab_make){.pre = "kimi-k2", .no_merges = true});
    static const char *const texts[] = {"hello world 12123 worl",
                                        "\xc3\xa9\xe4\xb8\xad\xe4\xb8\xff  \n\n\n's ab", "hellohellohellohello"};
    assert_int_equal(ae_vocab_bos(without), ae_vocab_bos(with));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ae_tokens a = {0}, b = {0};
        assert_int_equal(ae_vocab_encode(with, texts[i], strlen(texts[i]), plain, &a, NULL), AERIE_OK);
        assert_int_equal(ae_vocab_encode(without, texts[i], strlen(texts[i]), plain, &b, NULL), AERIE_OK);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.data, b.data, a.n * sizeof *a.data);
        ae_tokens_free(&a);
        ae_tokens_free(&b);
    }
    check_pieces(with, " he", plain, " |he"); /* no merge has these parts */
    check_pieces(without, " he", plain, " he");
    ae_vocab_free(with);
    ae_vocab_free(without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_character_bpe),
        cmocka_unit_test(test_bare_words),
        cmocka_unit_test(test_without_merges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
