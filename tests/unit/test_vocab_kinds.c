/* test_vocab_kinds.c - vocabularies other than byte-level BPE, SPM and WordPiece, made in memory: encoding, decoding, and files
 * that are refused. Ids of real vocabularies are compared in golden/tokenizer_vectors and tests/tokenizers.
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

/* tiktoken's rule gives the same as merges in the order of the ids. */
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

/* ---- Unigram ------------------------------------------------------------------------------------------------------ */

static void test_unigram(void **state)
{
    (void)state;
    ae_vocab *v = make(vocab_make_unigram, (vocab_make){0});
    assert_string_equal(ae_vocab_kind(v), "unigram");
    assert_true(ae_vocab_adds_eos(v) && !ae_vocab_adds_bos(v));
    assert_int_equal(v->unknown, 2);
    check_pieces(v, "hello", plain, "h|e|llo"); /* no space before the first word, since no key asks for one */
    v->add_space_prefix = v->collapses_spaces = true;
    check_pieces(v, "hello", full, " hello[</s>]");
    check_pieces(v, "  hello \t", plain, " hello| [<unk>]"); /* a tab is not a space without a map */
    check_pieces(v, "hello   world ", plain, " hello| world");
    check_pieces(v, "   ", plain, "");
    check_pieces(v, "", full, "[</s>]");
    check_pieces(v, "aaaaa", plain, " |aa|aaa"); /* as good as aaa|aa, and found first */
    check_pieces(v, "aaac", plain, " |aaa[<unk>]");
    check_pieces(v, "xyz\xff\xe4\xb8 hello x", plain, " [<unk>]| hello| [<unk>]");
    check_pieces(v, "\xe4\xb8\xad\xe6\x96\x87\xe4\xb8\xad", plain, " |\xe4\xb8\xad\xe6\x96\x87[<unk>]");
    check_pieces(v, "hello\xe2\x96\x81world", plain, " hello| world");
    check_pieces(v, "hello<tool>hello </s>x", full, " hello|<tool>| hello[</s>]| [<unk>][</s>]");
    check_pieces(v, "</s>[PAD7]", plain, " [<unk>]|s[<unk>]"); /* never a control token, nor an unused one */
    v->collapses_spaces = false;
    check_pieces(v, " hello  ", plain, " | hello|  "); /* the prefix and the space */
    ae_vocab_free(v);

    v = make(vocab_make_unigram, (vocab_make){.pre = "bytes"});
    v->add_space_prefix = v->collapses_spaces = true;
    check_pieces(v, "\xe4\xb8\xad\xff!", plain, " |\xe4|\xb8|\xad|\xef|\xbf|\xbd|!");
    ae_vocab_free(v);
}

/* The array of a map with two keys, worked out by hand: "A" becomes "a", and "AB" becomes "l l". Offsets: 0x100 from the root,
 * 0x200 from the node of A, 0x300 from that of AB. */
static ae_buf small_map(uint32_t value_of_a, uint32_t offset_of_root)
{
    uint32_t units[0x400] = {0};
    static const char replacements[] = "a\0l l";
    ae_buf blob = {0};
    units[0] = offset_of_root << 10;
    units[0x100 ^ 'A'] = 'A' | 1u << 8 | (0x200u ^ (0x100 ^ 'A')) << 10;
    units[0x200] = 1u << 31 | value_of_a;
    units[0x200 ^ 'B'] = 'B' | 1u << 8 | (0x300u ^ (0x200 ^ 'B')) << 10;
    units[0x300] = 1u << 31 | 2;
    const uint32_t size = sizeof units;
    ae_buf_add(&blob, &size, 4);
    ae_buf_add(&blob, units, sizeof units);
    ae_buf_add(&blob, replacements, sizeof replacements);
    return blob;
}

static void test_charsmap(void **state)
{
    (void)state;
    aerie_error error = {0};
    ae_vocab *v = make(vocab_make_unigram, (vocab_make){0});
    v->add_space_prefix = v->collapses_spaces = true;
    ae_buf blob = small_map(0, 0x100);
    assert_int_equal(ae_charsmap_create(&v->charsmap, (uint8_t *)blob.data, blob.n, "map", &error), AERIE_OK);
    check_pieces(v, "Aa", plain, " |aa");
    check_pieces(v, "ABA ACA", plain, " |l| |l|a| |a[<unk>]|a");
    check_pieces(v, "A", plain, " |a");
    ae_charsmap_free(&v->charsmap);
    for (size_t n = 0; n <= blob.n + 1; n++) { /* cut anywhere */
        ae_charsmap map;
        const aerie_status status = ae_charsmap_create(&map, (uint8_t *)blob.data, n > blob.n ? 3 : n, "map", &error);
        assert_true(status == AERIE_OK ? n == 0 || blob.data[n - 1] == 0 : status == AERIE_ERROR_FORMAT);
        if (status == AERIE_OK) ae_charsmap_free(&map);
    }
    ae_buf_free(&blob);
    for (uint32_t k = 0; k < 3; k++) { /* values and offsets that lead outside */
        blob = small_map(k == 0 ? 0x7FFFFF : 0, k == 1 ? 0x1FFFFF : 0x100);
        if (k == 2) blob.data[4] = (char)0xFF, blob.data[5] = (char)0xFF;
        assert_int_equal(ae_charsmap_create(&v->charsmap, (uint8_t *)blob.data, blob.n, "map", &error), AERIE_OK);
        ae_tokens tokens = {0};
        assert_int_equal(ae_vocab_encode(v, "AB A AAB", 8, plain, &tokens, &error), AERIE_OK);
        ae_tokens_free(&tokens);
        ae_charsmap_free(&v->charsmap);
        ae_buf_free(&blob);
    }
    ae_vocab_free(v);
}

/* ---- RWKV and PLaMo-2 --------------------------------------------------------------------------------------------- */

static void test_rwkv(void **state)
{
    (void)state;
    ae_vocab *v = make(vocab_make_rwkv, (vocab_make){0});
    assert_string_equal(ae_vocab_kind(v), "rwkv");
    assert_false(ae_vocab_adds_bos(v) || ae_vocab_adds_eos(v));
    check_pieces(v, "hello world", plain, "hello wo|r|l|d");
    check_pieces(v, "hello w", plain, "hello| |w");
    check_pieces(v, "\n\n\n", plain, "\n\n|\n");
    check_pieces(v, "\xe4\xb8\xad\xe6\x96\x87", plain, "\xe4\xb8|\xad\xe6|\x96|\x87");
    check_pieces(v, "it's \\x\t\r", plain, "it's| |\\x|\t\r");
    check_pieces(v, "\xff\xfe", plain, "\xff|\xfe");
    check_pieces(v, "<s>[PAD7]", plain, "<|s|>|[|P|A|D|7|]");
    check_pieces(v, "<s><tool>", full, "[<s>]|<tool>");
    ae_vocab_free(v);
}

static void test_plamo2(void **state)
{
    (void)state;
    ae_vocab *v = make(vocab_make_plamo2, (vocab_make){0});
    assert_string_equal(ae_vocab_kind(v), "plamo2");
    check_pieces(v, "hello", plain, "hello");
    check_pieces(v, " hello", plain, " hello");
    check_pieces(v, "hellohe", plain, "hello|he");
    check_pieces(v, "aaaaa", plain, "aaaa|a"); /* sums are equal: the longer first token */
    check_pieces(v, "aab", plain, "aa|b"); /* the score of "ab" is not to be used */
    check_pieces(v, "bab", plain, "ba|b"); /* -4.00005 rounds to -4 */
    check_pieces(v, "\xe4\xb8\xad\xe6\x96\x87\xe6\x96\x87", plain, "\xe4\xb8\xad\xe6\x96\x87|\xe6|\x96|\x87");
    check_pieces(v, "\xef\xbb\xbfhello\xef\xbb\xbf", plain, "hello|\xef|\xbb|\xbf");
    check_pieces(v, "\xff!\xe4", plain, "\xff|!|\xe4");
    check_pieces(v, "<|plamo:eos|>", full, "[<|plamo:eos|>]");
    ae_vocab_free(v);
}

static void refused(void (*maker)(ae_buf *, const vocab_make *), vocab_make how, const char *word)
{
    ae_buf file = {0};
    ae_vocab *vocab;
    aerie_error error = {0};
    maker(&file, &how);
    assert_int_equal(vocab_make_load(&vocab, &file, &error), AERIE_ERROR_FORMAT);
    if (!strstr(error.text, word)) fail_msg("\"%s\" does not speak of %s", error.text, word);
    ae_buf_free(&file);
}

static void test_refused(void **state)
{
    (void)state;
    refused(vocab_make_unigram, (vocab_make){.no_scores = true}, "tokenizer.ggml.scores");
    refused(vocab_make_unigram, (vocab_make){.bad_score = true}, "entry 6");
    refused(vocab_make_unigram, (vocab_make){.no_tokens = true}, "tokenizer.ggml.tokens");
    refused(vocab_make_plamo2, (vocab_make){.no_merges = true}, "<0xFF>");
    refused(vocab_make_plamo2, (vocab_make){.no_scores = true}, "tokenizer.ggml.scores");
    refused(vocab_make_rwkv, (vocab_make){.short_types = true}, "tokenizer.ggml.token_type");
}

/* Reusing memory from call to call gives the same tokens; so does a long text in one call. */
static void test_kept_memory(void **state)
{
    (void)state;
    void (*const makers[])(ae_buf *, const vocab_make *) = {vocab_make_unigram, vocab_make_rwkv, vocab_make_plamo2};
    static const char text[] = "hello  world aab \xe4\xb8\xad\xe6\x96\x87 \xff xyz<tool>hello\n\n";
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        ae_vocab *v = make(makers[i], (vocab_make){0});
        ae_encode_memory *memory;
        ae_tokens once = {0}, kept = {0};
        aerie_error error = {0};
        assert_int_equal(ae_encode_memory_create(&memory, v, sizeof text, &error), AERIE_OK);
        assert_int_equal(ae_vocab_encode(v, text, sizeof text - 1, plain, &once, &error), AERIE_OK);
        for (int k = 0; k < 3; k++) {
            kept.n = 0;
            assert_int_equal(ae_vocab_encode_in(memory, text, sizeof text - 1, plain, &kept, &error), AERIE_OK);
            assert_int_equal(kept.n, once.n);
            assert_memory_equal(kept.data, once.data, once.n * sizeof *once.data);
        }
        ae_encode_memory_free(memory);
        ae_tokens_free(&once);
        ae_tokens_free(&kept);
        ae_vocab_free(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_character_bpe),
        cmocka_unit_test(test_bare_words),
        cmocka_unit_test(test_without_merges),
        cmocka_unit_test(test_unigram),
        cmocka_unit_test(test_charsmap),
        cmocka_unit_test(test_rwkv),
        cmocka_unit_test(test_plamo2),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_kept_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
