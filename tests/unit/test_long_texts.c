/* test_long_texts.c - long texts of one kind of character through every tokenizer: nothing is lost, and 64 KiB of stack do.
 *
 * On long runs backtracking expressions may recurse and merging may become quadratic. Asserted: the tokens give the text back,
 * no limit is reached (PCRE2's grows with the length of the text, so a match must be linear), and a thread with a small stack
 * suffices. Time is not asserted but shown:
 *
 *     unit_test_long_texts --bench [--megabytes N] [VOCABULARY.gguf ...]
 *
 * cuts N megabytes (10) and a tenth of it into words by each pre-tokenizer's rules, and turns them into tokens of each file's
 * vocabulary; CPU time. The ratio of a linear tokenizer is about 10.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "every.h"
#include "text/token/pretok_int.h"
#include "text/token/vocab_int.h"
#include "vocab_make.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STACK_BYTES = 1 << 20 }; /* frames are many times larger there */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { STACK_BYTES = 1 << 20 };
#else
enum { STACK_BYTES = 64 << 10 };
#endif
#else
enum { STACK_BYTES = 64 << 10 };
#endif

/* Texts repeat their unit; "random": letters, or bytes, of a small generator. */
static const struct {
    const char *name, *unit;
    size_t n;
    bool bench;
} kinds[] = {
    {"letter", "a", 1, true},
    {"letters", "random", 0, true},
    {"capitals", "A", 1, false},
    {"camels", "aB", 2, false},
    {"digits", "7", 1, true},
    {"spaces", " ", 1, true},
    {"newlines", "\n", 1, true},
    {"newlines, spaces", " \n", 2, false},
    {"no-break spaces", "\xc2\xa0", 2, false},
    {"punctuation", "!", 1, true},
    {"dashes, slashes", "-/", 2, false},
    {"apostrophes", "'", 1, true},
    {"contractions", "'s", 2, true},
    {"CJK", "\xe4\xb8\xad\xe6\x96\x87", 6, true},
    {"kana", "\xe3\x81\x82", 3, false},
    {"Thai", "\xe0\xb8\x81\xe0\xb8\xb3", 6, false},
    {"combining marks", "\xcc\x81", 2, true},
    {"letters, marks", "e\xcc\x81", 3, false},
    {"emoji", "\xf0\x9f\x98\x80", 4, true},
    {"joined emoji", "\xf0\x9f\x91\xa9\xe2\x80\x8d", 7, false},
    {"controls", "\x01", 1, false},
    {"NULs", "\0", 1, false},
    {"bytes 0x80", "\x80", 1, false},
    {"bytes 0xff", "\xff", 1, true},
    {"cut characters", "\xe4\xb8", 2, true},
    {"random bytes", "random", 1, false},
    {"words", "hello world ", 12, false},
    {"special tokens", VOCAB_START, 12, false},
    {"half a special", "<|im_", 5, false},
    {"sentinels", "<sentinel:1", 11, false},
    {"angles", "<", 1, false},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static void fill(char *text, size_t n, size_t kind)
{
    uint64_t state = 1;
    const bool random = strcmp(kinds[kind].unit, "random") == 0;
    for (size_t i = 0; i < n; i++) {
        if (!random) {
            text[i] = kinds[kind].unit[i % kinds[kind].n];
            continue;
        }
        state = state * 6364136223846793005u + 1442695040888963407u;
        text[i] = kinds[kind].n ? (char)(state >> 56) : (char)('a' + (state >> 40) % 26);
    }
}

/* ---- In a thread of its own ------------------------------------------------------------------------------------ */

typedef struct job {
    const ae_vocab *vocab;
    const char *text;
    size_t n;
    ae_tokens tokens;
    ae_buf back;
    aerie_status status;
    aerie_error error;
    double seconds;
    bool detokenize;
    const ae_pretok *words; /* not NULL: only cuts words, and counts them in n_words */
    size_t n_words;
} job;

static aerie_status count_word(void *context, size_t begin, size_t end)
{
    (void)begin, (void)end;
    ((job *)context)->n_words++;
    return AERIE_OK;
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *work(void *context)
{
    job *j = context;
    const double start = cpu_seconds();
    if (j->words) j->status = ae_pretok_run(j->words, NULL, j->text, j->n, count_word, j, &j->error);
    else
        j->status = ae_vocab_encode(j->vocab, j->text, j->n, (ae_encode_options){.parse_special = true}, &j->tokens, &j->error);
    j->seconds = cpu_seconds() - start;
    if (!j->detokenize) return NULL;
    ae_detok detok = {.vocab = j->vocab, .special = true};
    for (size_t i = 0; i < j->tokens.n; i++) ae_detok_add(&detok, j->tokens.data[i], &j->back);
    ae_detok_end(&detok, &j->back);
    return NULL;
}

static void run(job *j)
{
    pthread_attr_t attributes;
    pthread_t thread;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &attributes, work, j), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
}

static void job_free(job *j)
{
    ae_tokens_free(&j->tokens);
    ae_buf_free(&j->back);
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

/* A quarter of it under sanitizers, which have their own, larger stack. */
static size_t length(void)
{
    return AE_TEST_EVERY > 4 ? 25000 : 100000;
}

static void check(const ae_vocab *vocab, const char *name, bool exact)
{
    const size_t n_text = length();
    char *text = malloc(n_text);
    assert_non_null(text);
    for (size_t kind = 0; kind < N_KINDS; kind++) {
        job j = {.vocab = vocab, .text = text, .n = n_text, .detokenize = true};
        fill(text, n_text, kind);
        run(&j);
        if (j.status != AERIE_OK) fail_msg("%s, %s: %s", name, kinds[kind].name, j.error.text);
        assert_true(j.tokens.n > 0 || !exact); /* WordPiece drops spaces and controls */
        if (exact && (j.back.n != n_text || memcmp(j.back.data, text, n_text)))
            fail_msg("%s, %s: %zu bytes came back as %zu", name, kinds[kind].name, n_text, j.back.n);
        job_free(&j);
    }
    free(text);
}

/* Doubling merges: runs become long tokens, in many steps. */
static const char *const doubling[] = {"a",    "a",    "aa",   "aa",       "aaaa", "aaaa", " ",    " ",        "  ",
                                       "  ",   "    ", "    ", "!",        "!",    "!!",   "!!",   "\n",       "\n",
                                       "\n\n", "\n\n", "7",    "7",        "77",   "77",   "'",    "'",        "'",
                                       "s",    "\xe4", "\xb8", "\xe4\xb8", "\xad", "\xcc", "\x81", "\xcc\x81", "\xcc\x81",
                                       "\xff", "\xff", "\x80", "\x80",     "A",    "A",    "a",    "B",        NULL};

static ae_vocab *make(void (*maker)(ae_buf *, const vocab_make *), const vocab_make *how)
{
    ae_buf file = {0};
    aerie_error error = {0};
    ae_vocab *vocab;
    maker(&file, how);
    if (vocab_make_load(&vocab, &file, &error) != AERIE_OK) fail_msg("%s", error.text);
    ae_buf_free(&file);
    return vocab;
}

static void test_every_pretokenizer(void **state)
{
    (void)state;
    aerie_error error = {0};
    ae_vocab *vocab = make(vocab_make_bpe, &(vocab_make){.pre = "gpt-2", .merges = doubling});
    for (const ae_pretok_rule *rule = ae_pretok_rules; rule->names; rule++) {
        ae_pretok_free(&vocab->pretok);
        assert_int_equal(ae_pretok_init(&vocab->pretok, rule->names, strcspn(rule->names, " "), &error), AERIE_OK);
        check(vocab, ae_pretok_name(&vocab->pretok), true);
    }
    ae_vocab_free(vocab);
}

/* The patterns that scanners replace, and that oracles run. */
static void test_every_pattern(void **state)
{
    (void)state;
    aerie_error error = {0};
    ae_vocab *vocab = make(vocab_make_bpe, &(vocab_make){.pre = "gpt-2", .merges = doubling});
    static const char *const names[] = {"gpt-2", "llama-bpe", "qwen2", "gpt-4o", "tekken"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ae_pretok_free(&vocab->pretok);
        assert_int_equal(ae_pretok_init_oracle(&vocab->pretok, names[i], &error), AERIE_OK);
        check(vocab, names[i], true);
    }
    ae_vocab_free(vocab);
}

static void test_spm(void **state)
{
    (void)state;
    ae_vocab *vocab = make(vocab_make_spm, &(vocab_make){0});
    check(vocab, "spm", false); /* the first space is the tokenizer's */
    vocab->split_at_space = false; /* the whole text is one word */
    check(vocab, "spm, unsplit", false);
    ae_vocab_free(vocab);
}

static void test_gemma4(void **state)
{
    (void)state;
    ae_vocab *vocab = make(vocab_make_gemma4, &(vocab_make){0});
    check(vocab, "gemma4", true);
    ae_vocab_free(vocab);
    vocab = make(vocab_make_gemma4, &(vocab_make){.pre = "crossing"}); /* each line is one word */
    check(vocab, "gemma4, unsplit", true);
    ae_vocab_free(vocab);
}

static void test_tries(void **state)
{
    (void)state;
    ae_vocab *vocab = make(vocab_make_unigram, &(vocab_make){.pre = "bytes"});
    vocab->add_space_prefix = true;
    check(vocab, "unigram", false);
    vocab->split_at_space = false; /* the whole text is one word */
    check(vocab, "unigram, unsplit", false);
    ae_vocab_free(vocab);
    vocab = make(vocab_make_rwkv, &(vocab_make){0});
    check(vocab, "rwkv", true);
    ae_vocab_free(vocab);
    vocab = make(vocab_make_plamo2, &(vocab_make){0});
    check(vocab, "plamo2", true);
    ae_vocab_free(vocab);
}

static void test_wordpiece(void **state)
{
    (void)state;
    ae_vocab *vocab = make(vocab_make_wpm, &(vocab_make){0});
    check(vocab, "wordpiece", false);
    ae_vocab_free(vocab);
}

/* ---- Figures ------------------------------------------------------------------------------------------------------- */

static int bench_one(const ae_vocab *vocab, const ae_pretok *words, const char *name, size_t n)
{
    int bad = 0;
    char *text = malloc(n);
    for (size_t kind = 0; text && kind < N_KINDS; kind++) {
        if (!kinds[kind].bench) continue;
        job tenth = {.vocab = vocab, .words = words, .text = text, .n = n / 10}, whole = tenth;
        whole.n = n;
        fill(text, n, kind);
        run(&tenth);
        run(&whole);
        const bool failed = tenth.status != AERIE_OK || whole.status != AERIE_OK;
        printf("%-16s %-18s %9.1f %9.1f %7.1f%s%s\n", name, kinds[kind].name, 1e3 * tenth.seconds, 1e3 * whole.seconds,
               whole.seconds / tenth.seconds, failed ? "  " : "", failed ? whole.error.text : "");
        fflush(stdout);
        bad |= failed;
        job_free(&tenth);
        job_free(&whole);
    }
    free(text);
    return bad;
}

static ae_vocab *load(const char *path)
{
    ae_gguf *gguf;
    ae_vocab *vocab = NULL;
    aerie_error error = {0};
    if (ae_gguf_open(&gguf, path, NULL, &error) == AERIE_OK) {
        if (ae_vocab_create(&vocab, gguf, &error) != AERIE_OK) vocab = NULL;
        ae_gguf_close(gguf);
    }
    if (!vocab) fprintf(stderr, "%s\n", error.text);
    return vocab;
}

static int bench(int argc, char **argv)
{
    int bad = 0, at = 2;
    size_t n = 10000000;
    if (at + 1 < argc && strcmp(argv[at], "--megabytes") == 0) {
        n = strtoul(argv[at + 1], NULL, 10) * 1000000;
        at += 2;
    }
    printf("%-16s %-18s %9s %9s %7s\n", "", "text", "tenth, ms", "whole, ms", "ratio");
    for (const ae_pretok_rule *rule = ae_pretok_rules; rule->names; rule++) {
        ae_pretok words = {0};
        aerie_error error = {0};
        if (ae_pretok_init(&words, rule->names, strcspn(rule->names, " "), &error) != AERIE_OK) return 1;
        bad |= bench_one(NULL, &words, ae_pretok_name(&words), n);
        ae_pretok_free(&words);
    }
    for (; at < argc; at++) {
        ae_vocab *vocab = load(argv[at]);
        if (!vocab) return 1;
        bad |= bench_one(vocab, NULL, ae_vocab_kind(vocab), n);
        ae_vocab_free(vocab);
    }
    return bad;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tries),
        cmocka_unit_test(test_every_pretokenizer),
        cmocka_unit_test(test_every_pattern),
        cmocka_unit_test(test_spm),
        cmocka_unit_test(test_wordpiece),
        cmocka_unit_test(test_gemma4),
    };
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return bench(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
