/* tokenize_stream.c - tokens of many texts, for tests that know them otherwise.
 *
 * usage: tokenize_stream VOCABULARY.gguf      ids, without BOS and EOS, special tokens parsed
 *        tokenize_stream --words NAME         ends of the words of a pre-tokenizer (tokenizer.ggml.pre)
 *
 * Standard input: for each text its length in bytes and then the bytes. Standard output: for each text a count, then as many
 * numbers. All are 32-bit integers in this machine's order. A text that fails is answered by a count of -1, its sentence on
 * standard error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/token/vocab.h"
#include "text/token/vocab_int.h"

typedef struct job {
    ae_vocab *vocab; /* NULL: words */
    ae_pretok pretok;
    ae_tokens out;
} job;

static aerie_status add_end(void *context, size_t begin, size_t end)
{
    job *j = context;
    (void)begin;
    return ae_tokens_add(&j->out, (int32_t)end) ? AERIE_OK : AERIE_ERROR_MEMORY;
}

static bool answer(job *j, const char *text, size_t n)
{
    aerie_error error = {0};
    j->out.n = 0;
    const ae_encode_options options = {.parse_special = true};
    const aerie_status status = j->vocab ? ae_vocab_encode(j->vocab, text, n, options, &j->out, &error)
                                         : ae_pretok_run(&j->pretok, NULL, text, n, add_end, j, &error);
    int32_t count = (int32_t)j->out.n;
    if (status != AERIE_OK) {
        fprintf(stderr, "tokenize_stream: %s\n", error.text);
        count = -1;
    }
    if (fwrite(&count, sizeof count, 1, stdout) != 1) return false;
    if (count > 0 && fwrite(j->out.data, sizeof *j->out.data, (size_t)count, stdout) != (size_t)count) return false;
    return fflush(stdout) == 0;
}

static int fail(const char *sentence)
{
    fprintf(stderr, "tokenize_stream: %s\n", sentence);
    return 1;
}

static int open_job(job *j, int argc, char **argv)
{
    aerie_error error = {0};
    if (argc == 3 && strcmp(argv[1], "--words") == 0) {
        return ae_pretok_init(&j->pretok, argv[2], strlen(argv[2]), &error) == AERIE_OK ? 0 : fail(error.text);
    }
    if (argc != 2) return fail("a vocabulary's file, or --words NAME");
    ae_gguf *gguf = NULL;
    if (ae_gguf_open(&gguf, argv[1], NULL, &error) != AERIE_OK) return fail(error.text);
    const aerie_status status = ae_vocab_create(&j->vocab, gguf, &error);
    ae_gguf_close(gguf);
    return status == AERIE_OK ? 0 : fail(error.text);
}

int main(int argc, char **argv)
{
    job j = {0};
    char *text = NULL;
    uint32_t n = 0, capacity = 0;
    if (open_job(&j, argc, argv)) return 1;
    while (fread(&n, sizeof n, 1, stdin) == 1) {
        if (n >= capacity) {
            free(text);
            capacity = n + 1;
            text = malloc(capacity);
        }
        if (!text || fread(text, 1, n, stdin) != n || !answer(&j, text, n)) return fail("cut off");
    }
    free(text);
    ae_tokens_free(&j.out);
    ae_vocab_free(j.vocab);
    ae_pretok_free(&j.pretok);
    return 0;
}
