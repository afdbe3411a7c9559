/* detok.c - tokens back to bytes, whole or as a stream.
 *
 * A stream's output never ends inside a UTF-8 character that later tokens may finish; bytes that
 * cannot become a character are passed on unchanged. The concatenation is exact.
 */
#include "text/token/unicode.h"
#include "text/token/vocab_int.h"

/* Returns the bytes of a token. Unused tokens have none, and neither have control tokens unless `special`. */
const char *ae_vocab_piece_view(const ae_vocab *vocab, int32_t token, bool special, uint32_t *n)
{
    *n = 0;
    AE_ASSERT(token >= 0 && token < vocab->n_tokens);
    if (vocab->types[token] == AE_TOKEN_UNUSED) return "";
    if (!special && ae_vocab_is_control(vocab, token)) return "";
    return ae_strings_get(&vocab->pieces, token, n);
}

void ae_vocab_piece(const ae_vocab *vocab, int32_t token, bool special, ae_buf *out)
{
    uint32_t n;
    const char *piece = ae_vocab_piece_view(vocab, token, special, &n);
    ae_buf_add(out, piece, n);
}

const char *ae_detok_piece(ae_detok *detok, int32_t token, uint32_t *n)
{
    const char *piece = ae_vocab_piece_view(detok->vocab, token, detok->special, n);
    if (*n == 0) return piece;
    /* SPM writes a space before the first word; it belongs to the vocabulary, not to the text. */
    if (!detok->started && detok->vocab->add_space_prefix && piece[0] == ' ') {
        piece++;
        --*n;
    }
    detok->started = true;
    return piece;
}

void ae_detok_bytes(ae_detok *detok, const char *bytes, size_t n, ae_buf *out)
{
    if (!n) return;
    size_t begin = out->n;
    ae_buf_add(out, detok->pending, detok->n_pending);
    ae_buf_add(out, bytes, n);
    if (out->failed) return;
    uint32_t held = ae_uni_incomplete(out->data + begin, out->n - begin);
    memcpy(detok->pending, out->data + out->n - held, held);
    detok->n_pending = held;
    out->n -= held;
    out->data[out->n] = 0;
}

void ae_detok_add(ae_detok *detok, int32_t token, ae_buf *out)
{
    uint32_t n;
    const char *piece = ae_detok_piece(detok, token, &n);
    ae_detok_bytes(detok, piece, n, out);
}

void ae_detok_end(ae_detok *detok, ae_buf *out)
{
    ae_buf_add(out, detok->pending, detok->n_pending);
    detok->n_pending = 0;
}
