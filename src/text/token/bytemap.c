/* bytemap.c - the alphabet of byte-level BPE: 256 printable characters that stand for the bytes.
 *
 * Bytes that print in Latin-1 stand for themselves; the 68 others follow as U+0100, U+0101, ...
 * in ascending order. Source: GPT-2, encoder.py, bytes_to_unicode.
 */
#include "text/token/unicode.h"
#include "text/token/vocab_int.h"

int ae_bytemap_byte(uint32_t code)
{
    if ((code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xFF && code != 0xAD)) return (int)code;
    if (code < 0x100 || code > 0x143) return -1;
    uint32_t i = code - 0x100; /* 00..20, then 7F..A0, then AD */
    if (i < 0x21) return (int)i;
    if (i < 0x43) return (int)(i - 0x21 + 0x7F);
    return 0xAD;
}

bool ae_bytemap_decode(const char *text, size_t n, char *out, size_t *n_out)
{
    size_t n_done = 0;
    for (size_t i = 0; i < n;) {
        uint32_t n_bytes;
        uint32_t code = ae_uni_decode(text + i, n - i, &n_bytes);
        int byte = code == AE_UNI_BAD ? -1 : ae_bytemap_byte(code);
        if (byte < 0) return false;
        out[n_done++] = (char)byte;
        i += n_bytes;
    }
    *n_out = n_done;
    return true;
}
