/* fuzz_detok.c - any token ids, streamed: whole characters only, and together what the tokens spell.
 *
 * Input: a byte that picks the vocabulary (fuzz_vocabs.inc) and whether control tokens print, then two bytes for each id.
 * Looks for bytes lost, held back too long or released too early, and for a text that encodes to one that decodes to another.
 */
#include "fuzz_vocabs.inc"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The stream printed so far is no longer than its input, holds back at most three bytes, and ends between characters as far
 * as those can be told. */
static void check_stream(const ae_buf *told, const ae_buf *came, size_t i)
{
    if (told->n > came->n || came->n - told->n > 3 || (told->n && memcmp(told->data, came->data, told->n)))
        fuzz_broken("a stream told other bytes than its tokens have", i);
    if (came->n && ae_uni_incomplete(came->data, came->n) != came->n - told->n)
        fuzz_broken("a stream holds back other bytes than an unfinished character", i);
}

/* A text that a byte-level vocabulary decoded, encoded again, decodes to itself. */
static void check_again(const ae_vocab *vocab, const ae_buf *text, bool special, size_t i)
{
    ae_tokens tokens = {0};
    ae_buf again = {0};
    aerie_error error = {0};
    ae_detok detok = {.vocab = vocab, .special = special};
    if (ae_vocab_encode(vocab, text->data, text->n, (ae_encode_options){.parse_special = special}, &tokens, &error) != AERIE_OK)
        fuzz_broken(error.text, i);
    for (size_t k = 0; k < tokens.n; k++) ae_detok_add(&detok, tokens.data[k], &again);
    ae_detok_end(&detok, &again);
    if (again.n != text->n || (text->n && memcmp(again.data, text->data, text->n))) fuzz_broken("a text changed", i);
    ae_buf_free(&again);
    ae_tokens_free(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    const size_t i = data[0] % FUZZ_N_VOCABS;
    const bool special = data[0] >= 128;
    const ae_vocab *vocab = fuzz_vocab(i);
    ae_detok detok = {.vocab = vocab, .special = special};
    ae_buf told = {0}, came = {0};
    bool started = false;
    for (size_t at = 1; at + 1 < size; at += 2) {
        const int32_t id = (int32_t)((data[at] | (unsigned)data[at + 1] << 8) % (unsigned)ae_vocab_n_tokens(vocab));
        const size_t before = came.n;
        uint32_t n;
        ae_vocab_piece(vocab, id, special, &came);
        const char *view = ae_vocab_piece_view(vocab, id, special, &n);
        if (came.n - before != n || (n && memcmp(view, came.data + before, n))) fuzz_broken("two spellings of a token", i);
        if (!fuzz_vocab_names[i] && !started && n) { /* SPM: the first space is the vocabulary's */
            if (came.data[before] == ' ') {
                memmove(came.data + before, came.data + before + 1, n - 1);
                came.n--;
            }
            started = true;
        }
        ae_detok_add(&detok, id, &told);
        check_stream(&told, &came, i);
    }
    ae_detok_end(&detok, &told);
    if (told.n != came.n || (told.n && memcmp(told.data, came.data, told.n))) fuzz_broken("a stream lost its end", i);
    if (fuzz_vocab_names[i]) check_again(vocab, &told, special, i);
    ae_buf_free(&told);
    ae_buf_free(&came);
    return 0;
}
