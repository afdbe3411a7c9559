/* test_tokenizer_vectors.c - the ids of llama.cpp's tokenizer vectors, all of them, exactly.
 *
 * Files: NAME.gguf (vocabulary only), NAME.gguf.inp (texts separated by a marker line) and
 * NAME.gguf.out (one line of ids for each). Gemma 4's are ours, made by make_gemma4_vectors.py, and Unigram's, RWKV's and
 * PLaMo-2's, by make_trie_vectors.py; the others lie in
 * data/tokenizers of the shared folder: the environment's AERIE_SHARED, or ../shared beside the source. Without the
 * folder the test says "skip". */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/os.h"
#include "text/token/vocab.h"

static const char separator[] = "\n__ggml_vocab_test__\n";

static bool path_of(char *path, size_t n, const char *name, const char *suffix)
{
    const char *shared = getenv("AERIE_SHARED");
    snprintf(path, n, "tests/golden/tokenizers/%s%s", name, suffix);
    if (access(path, R_OK) == 0) return true;
    snprintf(path, n, "%s/data/tokenizers/%s%s", shared ? shared : "../shared", name, suffix);
    return access(path, R_OK) == 0;
}

static const char *find(const char *text, size_t n, const char *what)
{
    size_t n_what = strlen(what);
    for (size_t i = 0; i + n_what <= n; i++) {
        if (memcmp(text + i, what, n_what) == 0) return text + i;
    }
    return NULL;
}

/* The next line of ids; false at the end of the file. */
static bool read_ids(const char **at, const char *end, ae_tokens *ids)
{
    ids->n = 0;
    if (*at >= end) return false;
    while (*at < end && **at != '\n') {
        if (**at == ' ' || **at == '\r') {
            (*at)++;
            continue;
        }
        long id = 0;
        assert_true(**at >= '0' && **at <= '9');
        while (*at < end && **at >= '0' && **at <= '9') id = id * 10 + *(*at)++ - '0';
        assert_true(ae_tokens_add(ids, (int32_t)id));
    }
    (*at)++;
    return true;
}

static void check_text(const ae_vocab *vocab, const char *text, size_t n, bool exact, const ae_tokens *want)
{
    aerie_error error = {0};
    ae_tokens got = {0};
    assert_int_equal(ae_vocab_encode(vocab, text, n, (ae_encode_options){0}, &got, &error), AERIE_OK);
    bool same = got.n == want->n && (!got.n || memcmp(got.data, want->data, got.n * sizeof *got.data) == 0);
    if (!same) {
        print_error("%s: \"%.*s\"\n  want", ae_vocab_kind(vocab), (int)n, text);
        for (size_t i = 0; i < want->n; i++) print_error(" %d", want->data[i]);
        print_error("\n  got ");
        for (size_t i = 0; i < got.n; i++) print_error(" %d", got.data[i]);
        print_error("\n");
    }
    assert_true(same);

    ae_buf back = {0};
    ae_detok detok = {.vocab = vocab};
    for (size_t i = 0; i < got.n; i++) ae_detok_add(&detok, got.data[i], &back);
    ae_detok_end(&detok, &back);
    if (exact) assert_int_equal(back.n, n);
    if (exact && n) assert_memory_equal(back.data, text, n);
    ae_buf_free(&back);
    ae_tokens_free(&got);
}

/* exact: tokens give the text back, byte for byte. */
static void check_vectors(const char *name, bool exact)
{
    char path[1024];
    aerie_error error = {0};
    if (!path_of(path, sizeof path, name, ".gguf")) {
        print_message("skip: %s is not there\n", path);
        skip();
    }
    ae_gguf *gguf;
    ae_vocab *vocab;
    assert_int_equal(ae_gguf_open(&gguf, path, NULL, &error), AERIE_OK);
    double begin = ae_time_now();
    aerie_status status = ae_vocab_create(&vocab, gguf, &error);
    if (status != AERIE_OK) print_error("%s\n", error.text);
    assert_int_equal(status, AERIE_OK);
    print_message("%s: %d tokens as %s in %.1f ms\n", name, ae_vocab_n_tokens(vocab), ae_vocab_kind(vocab),
                  1e3 * (ae_time_now() - begin));
    ae_gguf_close(gguf);

    ae_file_map in, out;
    assert_true(path_of(path, sizeof path, name, ".gguf.inp"));
    assert_int_equal(ae_file_map_open(&in, path, false, &error), AERIE_OK);
    assert_true(path_of(path, sizeof path, name, ".gguf.out"));
    assert_int_equal(ae_file_map_open(&out, path, false, &error), AERIE_OK);

    const char *text = (const char *)in.data, *end = text + in.bytes;
    const char *line = (const char *)out.data, *line_end = line + out.bytes;
    ae_tokens want = {0};
    int n = 0;
    while (text < end) {
        const char *next = find(text, (size_t)(end - text), separator);
        assert_true(read_ids(&line, line_end, &want));
        check_text(vocab, text, (size_t)((next ? next : end) - text), exact, &want);
        n++;
        text = next ? next + strlen(separator) : end;
    }
    assert_false(read_ids(&line, line_end, &want));
    print_message("%s: %d texts agree\n", name, n);
    assert_true(n > 40);

    ae_tokens_free(&want);
    ae_file_map_close(&in);
    ae_file_map_close(&out);
    ae_vocab_free(vocab);
}

#define VECTORS(function, name, exact) \
    static void function(void **state) { (void)state; check_vectors(name, exact); }
VECTORS(gpt2, "gpt-2", true)
VECTORS(starcoder, "starcoder", true)
VECTORS(deepseek_coder, "deepseek-coder", true)
VECTORS(llama_spm, "llama-spm", true)
VECTORS(phi3, "phi-3", true)
VECTORS(gemma4, "gemma4", true)
VECTORS(unigram, "unigram", false)
VECTORS(rwkv, "rwkv", true)
VECTORS(plamo2, "plamo2", false) /* it drops a byte order mark at the beginning */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2),      cmocka_unit_test(starcoder), cmocka_unit_test(deepseek_coder),
        cmocka_unit_test(llama_spm), cmocka_unit_test(phi3),      cmocka_unit_test(gemma4),
        cmocka_unit_test(unigram),   cmocka_unit_test(rwkv),     cmocka_unit_test(plamo2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
