/* hash.c - a 64-bit hash by multiplication and shifts (hash.h). Saved sequences and fingerprints store its values, so the
 * function must not change. */
#include "base/hash.h"

#include <string.h>

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9E3779B97F4A7C15u; /* an odd factor makes each step invertible, so no change of one word is lost */
    return h ^ h >> 29;
}

/* The n <= 8 bytes as a little-endian number, whatever the machine's byte order. */
static uint64_t word_at(const uint8_t *bytes, size_t n)
{
    uint64_t word = 0;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(&word, bytes, n);
#else
    for (size_t i = 0; i < n; i++) word |= (uint64_t)bytes[i] << 8 * i;
#endif
    return word;
}

uint64_t ae_hash64(uint64_t seed, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    uint64_t h = mix(seed, n);
    size_t left = n;
    for (; left >= 8; at += 8, left -= 8) h = mix(h, word_at(at, 8));
    if (left) h = mix(h, word_at(at, left));
    return mix(mix(h, 0), 0);
}
