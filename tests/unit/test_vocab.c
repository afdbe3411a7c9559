/* test_vocab.c - tokenizers on small vocabularies: special tokens, round trips, streams, merging against
 * a plain reference, scanners against PCRE2, hostile files, every allocation failing in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "every.h"
#include "fail_alloc.h"
#include "gguf_make.h"
#include "text/token/unicode.h"
#include "text/token/vocab_int.h"
#include "vocab_make.h"

static const ae_encode_options plain = {0}, full = {.add_special = true, .parse_special = true};

static ae_vocab *make_by(void (*maker)(ae_buf *, const vocab_make *), vocab_make how)
{
    ae_buf file = {0};
    ae_vocab *vocab;
    aerie_error error = {0};
    maker(&file, &how);
    if (vocab_make_load(&vocab, &file, &error) != AERIE_OK) fail_msg("%s", error.text);
    ae_buf_free(&file);
    return vocab;
}

static ae_vocab *make(bool spm, vocab_make how)
{
    return make_by(spm ? vocab_make_spm : vocab_make_bpe, how);
}

static ae_tokens encode(const ae_vocab *vocab, const char *text, size_t n, ae_encode_options options)
{
    ae_tokens tokens = {0};
    aerie_error error = {0};
    if (ae_vocab_encode(vocab, text, n, options, &tokens, &error) != AERIE_OK) fail_msg("%s", error.text);
    return tokens;
}

/* The pieces of a text, separated by bars; control tokens in brackets. */
static void check_pieces(const ae_vocab *vocab, const char *text, ae_encode_options options, const char *want)
{
    ae_tokens tokens = encode(vocab, text, strlen(text), options);
    ae_buf got = {0};
    ae_buf_adds(&got, "");
    for (size_t i = 0; i < tokens.n; i++) {
        bool control = ae_vocab_is_control(vocab, tokens.data[i]);
        ae_buf_adds(&got, control ? "[" : i ? "|" : "");
        ae_vocab_piece(vocab, tokens.data[i], true, &got);
        if (control) ae_buf_adds(&got, "]");
    }
    assert_string_equal(got.data, want);
    ae_buf_free(&got);
    ae_tokens_free(&tokens);
}

/* encode, decode: the same bytes, whole and token by token; a stream of well-formed text is well-formed. */
static void check_round_trip(const ae_vocab *vocab, const char *text, size_t n)
{
    ae_tokens tokens = encode(vocab, text, n, plain);
    ae_buf stream = {0}, whole = {0};
    ae_detok detok = {.vocab = vocab};
    bool valid = ae_uni_is_valid(text, n);
    for (size_t i = 0; i < tokens.n; i++) {
        size_t before = stream.n;
        ae_detok_add(&detok, tokens.data[i], &stream);
        if (valid) assert_true(ae_uni_is_valid(stream.data + before, stream.n - before));
        ae_vocab_piece(vocab, tokens.data[i], false, &whole);
    }
    if (valid) assert_int_equal(detok.n_pending, 0);
    ae_detok_end(&detok, &stream);
    size_t drop = vocab->add_space_prefix && whole.n ? 1 : 0;
    assert_int_equal(stream.n, n);
    assert_int_equal(whole.n - drop, n);
    if (n) assert_memory_equal(stream.data, text, n);
    if (n) assert_memory_equal(whole.data + drop, text, n);
    ae_buf_free(&stream);
    ae_buf_free(&whole);
    ae_tokens_free(&tokens);
}

static void test_bpe(void **state)
{
    (void)state;
    ae_vocab *v = make(false, (vocab_make){.pre = "smollm"});
    assert_string_equal(ae_vocab_kind(v), "bpe/smollm");
    check_pieces(v, "", plain, "");
    check_pieces(v, "hello world", plain, "hello| world");
    check_pieces(v, "hellohello", plain, "hello|hello");
    check_pieces(v, "hello  world", plain, "hello| | world");
    check_pieces(v, "é中123", plain, "é|中|1|2|3"); /* smollm keeps numbers apart */
    check_pieces(v, VOCAB_START, plain, "<|||i|m|_|s|t|a|r|t|||>");
    check_pieces(v, "hello" VOCAB_START "hello" VOCAB_END, full, "hello[" VOCAB_START "]|hello[" VOCAB_END "]");
    check_pieces(v, "<tool><tool <too", plain, "<tool>|<tool| |<|t|o|o");
    assert_false(ae_vocab_adds_bos(v));
    assert_true(ae_vocab_is_eog(v, ae_vocab_eos(v)));
    assert_true(ae_vocab_is_control(v, ae_vocab_eos(v))); /* by its text */
    assert_false(ae_vocab_is_eog(v, -1));
    assert_false(ae_vocab_is_eog(v, ae_vocab_n_tokens(v)));
    assert_null(ae_vocab_chat_template(v));
    ae_vocab_free(v);

    v = make(false, (vocab_make){.pre = "llama-bpe"});
    check_pieces(v, "hello world123", full, "[" VOCAB_START "]|hello| world|123");
    ae_vocab_free(v);
    v = make(false, (vocab_make){.pre = NULL});
    assert_string_equal(ae_vocab_kind(v), "bpe/default");
    ae_vocab_free(v);
}

static void test_spm(void **state)
{
    (void)state;
    ae_vocab *v = make(true, (vocab_make){.pre = NULL});
    assert_string_equal(ae_vocab_kind(v), "spm");
    assert_true(v->split_at_space);
    check_pieces(v, "", full, "[<s>]");
    check_pieces(v, "hello world", plain, " hello| world");
    check_pieces(v, "hello world", full, "[<s>]| hello| world");
    check_pieces(v, "<s>hello</s>", full, "[<s>][<s>]| hello[</s>]");
    check_pieces(v, "<s>", plain, " |<|s|>"); /* text does not become a control token */
    check_pieces(v, "hello<tool>world", plain, " hello|<tool>| world");
    check_pieces(v, "   world", plain, "  | | world");
    /* text that goes on: just its bytes */
    check_pieces(v, "hello<tool>world", (ae_encode_options){.inside = true}, "he|ll|o|<tool>|w|or|ld");
    check_pieces(v, " hello", (ae_encode_options){.inside = true}, " hello");
    ae_vocab_free(v);
}

/* Merges of characters, lines, runs of newlines; BOS whatever the file says, and no space before the text. */
static void test_gemma4(void **state)
{
    (void)state;
    for (int crossing = 0; crossing < 2; crossing++) {
        ae_vocab *v = make_by(vocab_make_gemma4, (vocab_make){.pre = crossing ? "crossing" : NULL});
        assert_string_equal(ae_vocab_kind(v), "bpe/gemma4");
        assert_int_equal(v->split_at_space, !crossing);
        assert_true(ae_vocab_adds_bos(v));
        assert_true(ae_vocab_is_eog(v, ae_vocab_eos(v)));
        check_pieces(v, "", full, "[<bos>]");
        check_pieces(v, "hello world", full, "[<bos>]|hello| world");
        check_pieces(v, " hello\xe2\x96\x81world", plain, " hello| world"); /* U+2581 is a space in any text */
        check_pieces(v, "hello     world", plain, "hello|    | world");
        check_pieces(v, "new news", plain, "new| |new|s");
        check_pieces(v, "nel", plain, "n|e|l"); /* "ne" merges, but is not a token */
        check_pieces(v, "z7\xc3\xa9\xe4\xb8\xadx", plain, "z|7|\xc3\xa9\xe4\xb8\xad|x");
        check_pieces(v, "\xc3\xa0", plain, "\xc3|\xa0");
        check_pieces(v, "a\nb\n\nc", plain, "a|\n|b|\n\n|c");
        check_pieces(v, "\n\n\n", plain, "\n\n\n"); /* no merge makes it */
        check_pieces(v, "a\n\n\n\nb\n\n\n\n\n", plain, "a|\n\n\n\n|b|\n\n\n\n|\n");
        check_pieces(v, "of the", plain, crossing ? "of the" : "of| |the");
        check_pieces(v, "hello<turn|><tool>  <eos>", full, "[<bos>]|hello[<turn|>]|<tool>|  [<eos>]");
        check_pieces(v, "<bos>", plain, "<|b|o|s|>");
        check_pieces(v, " hello", (ae_encode_options){.inside = true}, " hello");
        ae_vocab_free(v);
    }
}

static void test_round_trips(void **state)
{
    (void)state;
    static const char *const names[] = {"smollm", "gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "deepseek-v3", "gpt-4o",
                                        "tekken", "default", "bloom", "chameleon", "exaone-moe", "youtu", NULL, "gemma4",
                                        "jais-2", "laguna", "ufakzeka", "afmoe", "tiny_aya", "superbpe", "spark2_5", "glm5"};
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const bool gemma4 = names[i] && strcmp(names[i], "gemma4") == 0;
        ae_vocab *v = gemma4 ? make_by(vocab_make_gemma4, (vocab_make){0})
                             : make(names[i] == NULL, (vocab_make){.pre = names[i]});
        char text[4096];
        for (int byte = 0; byte < 256; byte++) {
            text[byte] = (char)byte;
            check_round_trip(v, &text[byte], 1);
        }
        check_round_trip(v, text, 256);
        for (int round = 0; round < 60; round++) {
            size_t n = gguf_make_random(&seed) % sizeof text;
            for (size_t k = 0; k < n; k++) text[k] = (char)(gguf_make_random(&seed) >> 32);
            check_round_trip(v, text, n);
            n = 0;
            while (n + 4 < sizeof text) {
                uint64_t r = gguf_make_random(&seed);
                uint32_t code = (uint32_t)(r >> 8) % ((r & 3) == 0 ? 0x110000 : (r & 3) == 1 ? 0x3000 : 0x80);
                if (code < 0xD800 || code > 0xDFFF) n += ae_uni_encode(code, text + n);
            }
            /* U+2581 itself comes back as a space from SPM, which no reference avoids: not in this text */
            for (size_t k = 0; k + 2 < n; k++) {
                if (memcmp(text + k, "\xe2\x96\x81", 3) == 0) memcpy(text + k, "abc", 3);
            }
            check_round_trip(v, text, n);
        }
        ae_vocab_free(v);
    }
}

static void test_long_texts(void **state)
{
    (void)state;
    static const char *const names[] = {"smollm", "llama-bpe", "qwen35", "deepseek-coder", "deepseek-llm", "deepseek-v3",
                                        "kimi-k2", "gpt-4o", "default", "falcon", NULL};
    static const char *const classes[] = {"a", "A", " ", "\n", "1", "!", "'", "\t", "é", "中", "\xcc\x81", "\xff", "h e"};
    const size_t n = AE_TEST_EVERY > 4 ? 30000 : 300000;
    char *text = malloc(n + 8);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ae_vocab *v = make(names[i] == NULL, (vocab_make){.pre = names[i]});
        for (size_t k = 0; k < sizeof classes / sizeof classes[0]; k++) {
            size_t n_class = strlen(classes[k]), done = 0;
            while (done + n_class <= n) {
                memcpy(text + done, classes[k], n_class);
                done += n_class;
            }
            text[done] = 'x'; /* what follows a run changes the result of many patterns */
            check_round_trip(v, text, done + 1);
        }
        ae_vocab_free(v);
    }
    free(text);
}

/* ---- Merging against the plain definition --------------------------------------------------- */

/* Merges the best pair, leftmost first, until there is none. */
static size_t merge_plainly(const ae_vocab *v, const char *word, size_t n, int32_t *ids)
{
    for (size_t i = 0; i < n; i++) ids[i] = v->byte_symbol[(uint8_t)word[i]];
    for (;;) {
        size_t best = n;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            const ae_merge *m = ae_merges_find(v, ids[i], ids[i + 1]);
            if (m && m->rank < rank) {
                rank = m->rank;
                best = i;
            }
        }
        if (best == n) return n;
        ids[best] = ae_merges_find(v, ids[best], ids[best + 1])->id;
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
        n--;
    }
}

static void test_merge_order(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int round = 0; round < 30; round++) {
        char parts[90][40];
        const char *pairs[121] = {NULL};
        size_t n_parts = 3, n_pairs = 0;
        strcpy(parts[0], "a");
        strcpy(parts[1], "b");
        strcpy(parts[2], "c");
        while (n_parts < 60) {
            const char *left = parts[gguf_make_random(&seed) % n_parts], *right = parts[gguf_make_random(&seed) % n_parts];
            if (strlen(left) + strlen(right) >= sizeof parts[0]) continue;
            snprintf(parts[n_parts], sizeof parts[0], "%.19s%.19s", left, right);
            pairs[n_pairs++] = left;
            pairs[n_pairs++] = right;
            n_parts++;
        }
        ae_vocab *v = make(false, (vocab_make){.pre = "gpt-2", .merges = pairs});
        for (int k = 0; k < 60; k++) {
            char word[400];
            int32_t want[400];
            size_t n = 1 + gguf_make_random(&seed) % (k < 30 ? 40 : 400);
            for (size_t i = 0; i < n; i++) word[i] = "abc"[gguf_make_random(&seed) % 3];
            ae_tokens got = encode(v, word, n, plain);
            size_t n_want = merge_plainly(v, word, n, want);
            assert_int_equal(got.n, n_want);
            assert_memory_equal(got.data, want, n_want * sizeof *want);
            ae_tokens_free(&got);
        }
        ae_vocab_free(v);
    }
}

/* ---- Scanners against PCRE2 ----------------------------------------------------------------- */

typedef struct cuts {
    size_t at[4096];
    size_t n;
} cuts;

static aerie_status note_cut(void *context, size_t begin, size_t end)
{
    cuts *c = context;
    assert_true(end > begin && begin == (c->n ? c->at[c->n - 1] : 0));
    c->at[c->n++] = end;
    return AERIE_OK;
}

/* Characters whose class has not changed in many years of Unicode. */
static size_t random_text(uint64_t *seed, char *text, size_t n_characters)
{
    static const char *const special[] = {" ", " ", " ", "\n", "\r", "\t", "'", "'s", "'LL", "'ve", "'ſ", "\u00a0", "\u2028",
                                          "\u3000", "\xc2\x85", "\u180e", "\u0301", "\u200b", "٣", "Ⅷ", "½", "/", "."};
    static const uint32_t ranges[][2] = {{0x20, 0x7E}, {0x30, 0x39}, {0x61, 0x66}, {0xA1, 0x24F}, {0x391, 0x3C9},
                                         {0x410, 0x44F}, {0x5D0, 0x5EA}, {0x905, 0x939}, {0x300, 0x36F}, {0xE01, 0xE3A},
                                         {0x4E00, 0x9FA5}, {0xAC00, 0xD7A3}, {0x1F600, 0x1F64F}, {0x2190, 0x21FF}};
    size_t n = 0;
    for (size_t i = 0; i < n_characters; i++) {
        uint64_t r = gguf_make_random(seed);
        if (r % 3 == 0) {
            const char *s = special[(r >> 8) % (sizeof special / sizeof special[0])];
            memcpy(text + n, s, strlen(s));
            n += strlen(s);
        } else if (r % 97 == 1) {
            text[n++] = (char)(0x80 | (r >> 16 & 0x7F)); /* ill-formed now and then */
        } else {
            const uint32_t *range = ranges[(r >> 8) % (sizeof ranges / sizeof ranges[0])];
            n += ae_uni_encode(range[0] + (uint32_t)(r >> 32) % (range[1] - range[0] + 1), text + n);
        }
    }
    return n;
}

static void test_scanners(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-2", "smollm", "llama-bpe", "glm4", "qwen2", "qwen35", "seed-coder", "minicpm5",
                                        "default", "falcon", "chameleon", "gpt-4o",
                                        "tekken", "youtu", "jais-2", "laguna", "ufakzeka", "afmoe", "tiny_aya", "superbpe"};
    uint64_t seed = 99;
    char text[4096];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ae_pretok fast, oracle;
        assert_int_equal(ae_pretok_init(&fast, names[i], strlen(names[i]), NULL), AERIE_OK);
        assert_int_equal(ae_pretok_init_oracle(&oracle, names[i], NULL), AERIE_OK);
        for (int round = 0; round < (AE_TEST_EVERY > 4 ? 400 : 3000); round++) {
            size_t n = random_text(&seed, text, 1 + (size_t)round % 60);
            cuts got = {.n = 0}, want = {.n = 0};
            assert_int_equal(ae_pretok_run(&fast, NULL, text, n, note_cut, &got, NULL), AERIE_OK);
            assert_int_equal(ae_pretok_run(&oracle, NULL, text, n, note_cut, &want, NULL), AERIE_OK);
            if (got.n != want.n || memcmp(got.at, want.at, got.n * sizeof *got.at) != 0) {
                fail_msg("%s cuts \"%.*s\" otherwise than its pattern", names[i], (int)n, text);
            }
            assert_int_equal(got.at[got.n - 1], n);
        }
        ae_pretok_free(&fast);
        ae_pretok_free(&oracle);
    }
}

/* Runs of white space and of digits, with the characters that matter before, inside and after them. */
static void test_runs(void **state)
{
    (void)state;
    static const char *const names[] = {"jais-2", "tiny_aya", "afmoe", "superbpe"};
    static const char *const before[] = {"", "a", "!", "!\n", "\n", "7a"};
    static const char *const inside[] = {" ", "\t", "\u3000", "1", "\u0663"};
    static const char *const after[] = {"", "b", "_", "\u0301", "!", "\n", "\n ", "\u00bd", "\u2167", "1", " 1"};
    static const size_t lengths[] = {1,   2,   3,   4,   5,   6,   7,   8,   9,   15,  16,   17,   18,   33,   64,
                                     65,  127, 129, 255, 256, 511, 512, 513, 514, 515, 1023, 1024, 1025, 1026, 1500};
    char text[8192];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ae_pretok fast, oracle;
        assert_int_equal(ae_pretok_init(&fast, names[i], strlen(names[i]), NULL), AERIE_OK);
        assert_int_equal(ae_pretok_init_oracle(&oracle, names[i], NULL), AERIE_OK);
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths * 6 * 5 * 11; k++) {
            cuts got = {.n = 0}, want = {.n = 0};
            size_t n = 0, length = lengths[k / (6 * 5 * 11)], unit = k / 6 % 5;
            if (length > 40 && ((unit >= 3) == (i == 0) || k % 6 % 3 || k / 30 % 11 % 5)) continue; /* quadratic patterns */
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", before[k % 6]);
            while (length--) n += (size_t)snprintf(text + n, sizeof text - n, "%s", inside[unit]);
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", after[k / 30 % 11]);
            assert_int_equal(ae_pretok_run(&fast, NULL, text, n, note_cut, &got, NULL), AERIE_OK);
            assert_int_equal(ae_pretok_run(&oracle, NULL, text, n, note_cut, &want, NULL), AERIE_OK);
            if (got.n != want.n || memcmp(got.at, want.at, got.n * sizeof *got.at) != 0)
                fail_msg("%s cuts \"%.*s\" otherwise than its pattern", names[i], (int)n, text);
        }
        ae_pretok_free(&fast);
        ae_pretok_free(&oracle);
    }
}

/* Where Kimi K2's published expression cuts, according to Python's package regex, which supports its subtraction of classes. */
static void test_kimi_k2(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t at[16];
    } cases[] = {
        {"Hello, world's BEST JSONParser 12345!?\n\n  x",
         {5, 6, 14, 19, 30, 31, 34, 36, 40, 41, 43}},
        {"中文和English混排   汉字,。 々〇x",
         {9, 16, 22, 24, 25, 31, 35, 36, 42, 43}},
        {"  汉字  HTTPServer 它's",
         {1, 2, 8, 9, 20, 21, 24, 26}},
        {"ça Ünï ไทย日本語カナ 한국어 12中3 a中b Ǆabc",
         {3, 9, 19, 28, 34, 44, 45, 47, 50, 51, 53, 56, 57, 63}},
        {"\t中\r\n 中 \n",
         {1, 4, 6, 7, 10, 12}},
        {"ÀÉ中ÀÉé'LL're 〡〢 𠀀𠀁x ⺀",
         {4, 7, 16, 19, 20, 26, 27, 35, 36, 40}},
    };
    ae_pretok pretok;
    assert_int_equal(ae_pretok_init(&pretok, "kimi-k2", 7, NULL), AERIE_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cuts got = {.n = 0};
        assert_int_equal(ae_pretok_run(&pretok, NULL, cases[i].text, strlen(cases[i].text), note_cut, &got, NULL), AERIE_OK);
        for (size_t k = 0; k < got.n; k++)
            if (got.at[k] != cases[i].at[k])
                fail_msg("\"%s\" is cut at %zu, must be at %zu", cases[i].text, (size_t)got.at[k], cases[i].at[k]);
        assert_int_equal(got.at[got.n - 1], strlen(cases[i].text));
    }
    ae_pretok_free(&pretok);
}

/* ---- Hostile files, other vocabularies, memory ----------------------------------------------- */

typedef void maker(ae_buf *, const vocab_make *);
static void check_refused(maker *make_file, vocab_make how, aerie_status want, const char *word)
{
    ae_buf file = {0};
    ae_vocab *vocab;
    aerie_error error = {0};
    make_file(&file, &how);
    assert_int_equal(vocab_make_load(&vocab, &file, &error), want);
    assert_null(vocab);
    if (!strstr(error.text, word)) fail_msg("\"%s\" does not speak of %s", error.text, word);
    ae_buf_free(&file);
}

/* An unknown tokenizer: ids work, texts are refused with a sentence that names the tokenizer. */
static void check_raw(vocab_make how, const char *word)
{
    ae_buf file = {0}, text = {0};
    ae_vocab *vocab;
    aerie_error error = {0};
    ae_tokens tokens = {0};
    vocab_make_bpe(&file, &how);
    assert_int_equal(vocab_make_load(&vocab, &file, &error), AERIE_OK);
    assert_string_equal(ae_vocab_kind(vocab), "none");
    assert_true(ae_vocab_n_tokens(vocab) > 256);
    assert_true(ae_vocab_eos(vocab) > 256 && ae_vocab_is_eog(vocab, ae_vocab_eos(vocab))); /* its key is read */
    assert_int_equal(ae_vocab_encode(vocab, "a", 1, full, &tokens, &error), AERIE_ERROR_UNSUPPORTED);
    assert_int_equal(tokens.n, 0);
    assert_non_null(strstr(error.text, "token ids only"));
    if (!strstr(error.text, word)) fail_msg("\"%s\" does not speak of %s", error.text, word);
    assert_int_equal(ae_vocab_encode(vocab, "", 0, plain, &tokens, &error), AERIE_OK);
    ae_detok detok = {.vocab = vocab, .special = true};
    for (int32_t id = 0; id < ae_vocab_n_tokens(vocab); id++) ae_detok_add(&detok, id, &text);
    assert_int_equal(text.n, 0);
    assert_int_equal(ae_vocab_check_same(vocab, vocab, &error), AERIE_OK);
    ae_vocab *other = make(false, (vocab_make){.pre = "gpt-2"});
    assert_int_equal(ae_vocab_check_same(vocab, other, &error), AERIE_ERROR_UNSUPPORTED);
    ae_vocab_free(other);
    ae_vocab_free(vocab);
    ae_tokens_free(&tokens);
    ae_buf_free(&text);
    ae_buf_free(&file);
}

static void test_wordpiece(void **state)
{
    (void)state;
    ae_buf file = {0};
    aerie_error error = {0};
    ae_vocab *vocab;
    const ae_encode_options around = {.add_special = true, .parse_special = true};
    vocab_make_wpm(&file, &(vocab_make){0});
    assert_int_equal(vocab_make_load(&vocab, &file, &error), AERIE_OK);
    assert_string_equal(ae_vocab_kind(vocab), "wordpiece/uncased");
    assert_int_equal(ae_vocab_bos(vocab), 2);
    check_pieces(vocab, "Hello  HELLOo\tworld!", plain, " hello| hello|o| world| !");
    check_pieces(vocab, "h\xc3\xa9llo caf\xc3\xa9 cafe\xcc\x81 \xc3\xa9", plain, " hello| cafe| cafe| e");
    check_pieces(vocab, "wor\xc2\xadld\x01 e\xe4\xb8\xad\x65", plain, " world| e| \xe4\xb8\xad| e");
    check_pieces(vocab, "hello's xyz 11 hellx", plain, " hello| '| s[[UNK]]| 1|1[[UNK]]");
    check_pieces(vocab, "hello[SEP]world [MASK]", around, "[[CLS]]| hello[[SEP]]| world| [[[UNK]]| ][[SEP]]");
    check_pieces(vocab, "[SEP]", plain, " [[[UNK]]| ]");
    check_pieces(vocab, "\xe2\x96\x81hello e\xe2\x96\x81hello", plain, "[[UNK]][[UNK]]");
    check_pieces(vocab, " \n ", around, "[[CLS]][[SEP]]");
    /* 100 characters are a word, 101 become [UNK]. */
    char text[128];
    memset(text, 'a', sizeof text);
    ae_tokens tokens = encode(vocab, text, 100, plain);
    assert_true(tokens.n > 10);
    ae_tokens_free(&tokens);
    tokens = encode(vocab, text, 101, plain);
    assert_int_equal(tokens.n, 1);
    assert_int_equal(tokens.data[0], 1);
    ae_tokens_free(&tokens);
    ae_vocab_free(vocab);

    ae_buf_clear(&file);
    vocab_make_wpm(&file, &(vocab_make){.pre = "cased"});
    assert_int_equal(vocab_make_load(&vocab, &file, &error), AERIE_OK);
    check_pieces(vocab, "Hello hello caf\xc3\xa9 \xc3\xa9", plain, " Hello| hello[[UNK]]| \xc3\xa9");
    ae_vocab_free(vocab);
    ae_buf_free(&file);
}

/* An id that no token has is ignored with a message, unless every text would get that token. */
static void test_ids_of_no_token(void **state)
{
    (void)state;
    ae_buf file = {0};
    aerie_error error = {0};
    ae_vocab *vocab;
    vocab_make_bpe(&file, &(vocab_make){.pre = "gpt-2", .eos = 100000});
    assert_int_equal(vocab_make_load(&vocab, &file, &error), AERIE_OK);
    assert_int_equal(ae_vocab_eos(vocab), -1);
    assert_non_null(strstr(ae_vocab_warning(vocab), "eos_token_id is 100000, but the vocabulary has"));
    ae_vocab_free(vocab);
    ae_buf_clear(&file);
    vocab_make_bpe(&file, &(vocab_make){.pre = "gpt-2"});
    assert_int_equal(vocab_make_load(&vocab, &file, &error), AERIE_OK);
    assert_string_equal(ae_vocab_warning(vocab), "");
    ae_vocab_free(vocab);
    ae_buf_free(&file);
    check_refused(vocab_make_wpm, (vocab_make){.eos = 100000}, AERIE_ERROR_FORMAT, "after every text");
    static const int32_t ends[] = {5, -7, 100000};
    for (size_t n = 1; n <= 3; n++) {
        ae_buf_clear(&file);
        vocab_make_bpe(&file, &(vocab_make){.pre = "gpt-2", .ends = ends, .n_ends = n});
        assert_int_equal(vocab_make_load(&vocab, &file, &error), AERIE_OK);
        assert_true(ae_vocab_is_eog(vocab, 5));
        if (n == 1) assert_string_equal(ae_vocab_warning(vocab), "");
        else assert_non_null(strstr(ae_vocab_warning(vocab), "eos_token_ids has -7, but the vocabulary has"));
        ae_vocab_free(vocab);
    }
    ae_buf_free(&file);
}

/* -1 means none, however it is written; a list names several ends, EOS first. */
static void test_signed_and_listed_ends(void **state)
{
    (void)state;
    static const int32_t ends[] = {6, 5};
    ae_vocab *vocab = make(false, (vocab_make){.pre = "gpt-2", .eos_signed = -1});
    assert_int_equal(ae_vocab_eos(vocab), -1);
    assert_string_equal(ae_vocab_warning(vocab), "");
    ae_vocab_free(vocab);
    vocab = make(false, (vocab_make){.pre = "gpt-2", .eos_signed = -7});
    assert_int_equal(ae_vocab_eos(vocab), -1);
    assert_non_null(strstr(ae_vocab_warning(vocab), "eos_token_id is -7, but the vocabulary has"));
    ae_vocab_free(vocab);
    vocab = make(false, (vocab_make){.pre = "gpt-2", .eos_listed = true, .ends = ends, .n_ends = 2});
    assert_int_equal(ae_vocab_eos(vocab), 6);
    assert_true(ae_vocab_is_eog(vocab, 5) && ae_vocab_is_eog(vocab, 6));
    ae_vocab_free(vocab);
}

/* Control tokens that a file types as text are known by their texts, and the file's error is said. */
static void test_mistyped_control_tokens(void **state)
{
    (void)state;
    static const char *const texts[] = {"<|eom_id|>", "<|eot_id|>", "[e~[", "<|code_prefix|>", "<start_of_turn>", NULL};
    static const char *const html[] = {"<end_of_turn>", "<b>", "</s>", NULL}, *const none[] = {"</s>", "<b>", NULL};
    for (int spm = 0; spm < 2; spm++) {
        ae_vocab *v = make(spm, (vocab_make){.pre = "gpt-2", .texts = texts});
        const int32_t n = ae_vocab_n_tokens(v), first = n - 5;
        for (int32_t id = first; id < n; id++) {
            assert_int_equal(ae_vocab_is_eog(v, id), id < first + 3);
            assert_int_equal(ae_vocab_is_control(v, id), id < first + 4);
        }
        assert_int_equal(v->eom, first);
        assert_int_equal(v->eot, first + 1);
        assert_non_null(strstr(ae_vocab_warning(v), "control tokens that the file types as text: 4, such as "));
        assert_non_null(strstr(ae_vocab_warning(v), ", <|eom_id|>;"));
        ae_vocab_free(v);
        v = make(spm, (vocab_make){.pre = "gpt-2", .texts = none, .chat_template = "<b>"});
        assert_int_equal(v->eot, spm ? -1 : ae_vocab_eos(v));
        assert_true(ae_vocab_is_eog(v, ae_vocab_n_tokens(v) - 2));
        assert_non_null(strstr(ae_vocab_warning(v), "<b>, but the file types it as text, so prompts have it in pieces"));
        ae_vocab_free(v);
        v = make(spm, (vocab_make){.pre = "gpt-2", .texts = none, .chat_template = "{{ '<a>' }} < b> <" VOCAB_TOOL "</s><"});
        assert_string_equal(ae_vocab_warning(v), "");
        ae_vocab_free(v);
        v = make(spm, (vocab_make){.pre = "gpt-2", .texts = html});
        assert_non_null(strstr(ae_vocab_warning(v), "text: 1, such as "));
        ae_vocab_free(v);
    }
}

/* Tokens around a gap are found by all their spellings, and by the keys of older files. */
static void test_tokens_around_a_gap(void **state)
{
    (void)state;
    static const char *const texts[] = {"<｜fim▁begin｜>", "▁<SUF>", "<|middle|>", "[PAD]", "<REPO>", NULL};
    static const aerie_special which[] = {AERIE_SPECIAL_FIM_PRE, AERIE_SPECIAL_FIM_SUF, AERIE_SPECIAL_FIM_MID,
                                          AERIE_SPECIAL_FIM_PAD, AERIE_SPECIAL_FIM_REP};
    ae_buf file = {0}, older = {0};
    ae_gguf *gguf;
    aerie_error error = {0};
    ae_vocab *v = make(false, (vocab_make){.pre = "gpt-2", .texts = texts});
    gguf_make_header(&older, 3, 0, 0);
    assert_int_equal(ae_gguf_open_memory(&gguf, older.data, older.n, "made.gguf", &error), AERIE_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ae_vocab_special(v, gguf, which[i]), ae_vocab_n_tokens(v) - 5 + i);
        assert_int_equal(ae_vocab_is_eog(v, ae_vocab_n_tokens(v) - 5 + i), i > 2);
    }
    ae_gguf_close(gguf);
    gguf_make_header(&file, 3, 0, 3);
    gguf_make_kv_u32(&file, "tokenizer.ggml.prefix_token_id", 7);
    gguf_make_kv_u32(&file, "tokenizer.ggml.suffix_token_id", 8);
    gguf_make_kv_u32(&file, "tokenizer.ggml.middle_token_id", 9);
    assert_int_equal(ae_gguf_open_memory(&gguf, file.data, file.n, "made.gguf", &error), AERIE_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(ae_vocab_special(v, gguf, which[i]), 7 + i);
    ae_gguf_close(gguf);
    ae_vocab_free(v);
    ae_buf_free(&file);
    ae_buf_free(&older);
}

static void test_hostile(void **state)
{
    (void)state;
    check_raw((vocab_make){.pre = "nonesuch"}, "smollm");
    check_raw((vocab_make){.pre = "gpt-2 phi-2"}, "gpt-2 phi-2");
    check_raw((vocab_make){.pre = "gpt-2", .model = "t6"}, "bert");
    check_raw((vocab_make){.model = "none"}, "\"none\"");
    check_raw((vocab_make){.model = "no_vocab"}, "\"no_vocab\"");
    check_refused(vocab_make_bpe, (vocab_make){.model = "none", .no_tokens = true}, AERIE_ERROR_UNSUPPORTED, "\"none\"");
    check_refused(vocab_make_bpe, (vocab_make){.pre = "gpt-2", .model = "t5"}, AERIE_ERROR_FORMAT, "tokenizer.ggml.scores");
    check_refused(vocab_make_bpe, (vocab_make){.pre = "gpt-2", .no_tokens = true}, AERIE_ERROR_FORMAT, "tokenizer.ggml.tokens");
    check_refused(vocab_make_bpe, (vocab_make){.pre = "gpt-2", .no_merges = true}, AERIE_ERROR_FORMAT, "tokenizer.ggml.merges");
    check_refused(vocab_make_bpe, (vocab_make){.pre = "gpt-2", .bad_merge = true}, AERIE_ERROR_FORMAT, "entry 22");
    check_refused(vocab_make_bpe, (vocab_make){.pre = "gpt-2", .short_types = true}, AERIE_ERROR_FORMAT, "token_type");
    check_refused(vocab_make_bpe, (vocab_make){.pre = "gpt-2", .bad_type = true}, AERIE_ERROR_FORMAT, "token_type");
    check_refused(vocab_make_gemma4, (vocab_make){.no_merges = true}, AERIE_ERROR_FORMAT, "tokenizer.ggml.merges");
    check_refused(vocab_make_gemma4, (vocab_make){.bad_merge = true}, AERIE_ERROR_FORMAT, "entry 21");
    check_refused(vocab_make_gemma4, (vocab_make){.no_tokens = true}, AERIE_ERROR_FORMAT, "tokenizer.ggml.tokens");
    check_refused(vocab_make_spm, (vocab_make){.bad_score = true}, AERIE_ERROR_FORMAT, "scores: entry");
}

static void test_whole_scores(void **state)
{
    (void)state;
    ae_vocab *vocab = make(true, (vocab_make){.whole_scores = true});
    check_pieces(vocab, "hello world", plain, " hello| world");
    check_pieces(vocab, "helo", plain, " he|lo");
    ae_vocab_free(vocab);
    vocab = make(true, (vocab_make){.pre = NULL});
    check_pieces(vocab, "helo", plain, " he|lo");
    ae_vocab_free(vocab);
}

/* Keys that the description of GGUF calls optional. */
static void test_optional_keys(void **state)
{
    (void)state;
    static const char bytes[] = "h\xc3\xa9\x01llo";
    ae_vocab *whole = make(true, (vocab_make){.pre = NULL}), *vocab = make(true, (vocab_make){.no_types = true});
    ae_tokens a = {0}, b = {0};
    ae_buf text = {0};
    assert_int_equal(ae_vocab_encode(whole, bytes, strlen(bytes), plain, &a, NULL), AERIE_OK);
    assert_int_equal(ae_vocab_encode(vocab, bytes, strlen(bytes), plain, &b, NULL), AERIE_OK);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.data, b.data, a.n * sizeof *a.data);
    for (size_t i = 0; i < b.n; i++) ae_vocab_piece(vocab, b.data[i], false, &text);
    assert_int_equal(text.n, sizeof bytes); /* and a space before them */
    assert_memory_equal(text.data + 1, bytes, sizeof bytes - 1);
    ae_buf_free(&text);
    ae_tokens_free(&a);
    ae_tokens_free(&b);
    ae_vocab_free(whole);
    ae_vocab_free(vocab);
    vocab = make(true, (vocab_make){.no_scores = true});
    assert_non_null(strstr(ae_vocab_warning(vocab), "scores is missing"));
    check_pieces(vocab, "he", plain, " he");
    ae_vocab_free(vocab);
    check_refused(vocab_make_bpe, (vocab_make){.model = "llama"}, AERIE_ERROR_FORMAT, "str:gpt2");
}

static void test_check_same(void **state)
{
    (void)state;
    static const char *const other[] = {"h", "e", "l", "o", NULL};
    aerie_error error = {0};
    ae_vocab *a = make(false, (vocab_make){.pre = "gpt-2"}), *b = make(false, (vocab_make){.pre = "gpt-2"});
    ae_vocab *c = make(false, (vocab_make){.pre = "gpt-2", .merges = other}), *d = make(true, (vocab_make){.pre = NULL});
    assert_int_equal(ae_vocab_check_same(a, b, &error), AERIE_OK);
    assert_int_equal(ae_vocab_check_same(a, c, &error), AERIE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "token 257 is \"ll\" in the target and \"lo\""));
    assert_int_equal(ae_vocab_check_same(a, d, &error), AERIE_ERROR_UNSUPPORTED);
    ae_vocab_free(a);
    ae_vocab_free(b);
    ae_vocab_free(c);
    ae_vocab_free(d);
}

static void test_memory(void **state)
{
    (void)state;
    static const char *const names[] = {"smollm", "gpt-4o", "cased", NULL, "crossing"};
    char text[600];
    for (size_t k = 0; k < sizeof text; k++) text[k] = "hello wor\xffld 123"[k % 16];
    static maker *const makers[] = {vocab_make_bpe, vocab_make_bpe, vocab_make_wpm,
                                                                    vocab_make_spm, vocab_make_gemma4};
    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++) {
        ae_buf file = {0};
        makers[i](&file, &(vocab_make){.pre = names[i]});
        for (long n = 1;; n++) {
            ae_vocab *vocab;
            ae_tokens tokens = {0};
            aerie_error error = {0};
            fail_alloc_arm(n, false);
            aerie_status status = vocab_make_load(&vocab, &file, &error);
            if (status == AERIE_OK) status = ae_vocab_encode(vocab, text, sizeof text, full, &tokens, &error);
            if (status != AERIE_OK) assert_int_equal(tokens.n, 0);
            ae_vocab_free(vocab);
            ae_tokens_free(&tokens);
            bool failed = fail_alloc_disarm();
            assert_int_equal(fail_alloc_live(), 0);
            if (!failed) {
                assert_int_equal(status, AERIE_OK);
                break;
            }
            /* without its word cache encoding is slower, with the same result */
            if (status != AERIE_OK) assert_int_equal(status, AERIE_ERROR_MEMORY);
        }
        ae_buf_free(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe),        cmocka_unit_test(test_spm),         cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_long_texts), cmocka_unit_test(test_merge_order), cmocka_unit_test(test_scanners),
        cmocka_unit_test(test_kimi_k2),    cmocka_unit_test(test_wordpiece),   cmocka_unit_test(test_ids_of_no_token),
        cmocka_unit_test(test_hostile),    cmocka_unit_test(test_runs),        cmocka_unit_test(test_whole_scores),
        cmocka_unit_test(test_optional_keys),
        cmocka_unit_test(test_signed_and_listed_ends),
        cmocka_unit_test(test_mistyped_control_tokens),
        cmocka_unit_test(test_tokens_around_a_gap),
        cmocka_unit_test(test_check_same), cmocka_unit_test(test_memory),      cmocka_unit_test(test_gemma4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
