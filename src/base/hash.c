/* hash.c - a 64-bit hash by multiplication and shifts (hash.h). Saved sequences and fingerprints store its values, so the
 * function must not change. */
#include "base/hash.h"

#include <string.h>

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9E3779B97F4A7C15u; /* an odd factor makes each step invertible, so no change of one word is lost */
    return h ^ h >> 29;
}

/* Returns the n <= 8 bytes as a little-endian number, whatever the machine's byte order. */
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

uint64_t ae_hash64_begin(uint64_t seed, size_t n)
{
    return mix(seed, n);
}

uint64_t ae_hash64_add(uint64_t h, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    for (; n >= 8; at += 8, n -= 8) h = mix(h, word_at(at, 8));
    return n ? mix(h, word_at(at, n)) : h;
}

uint64_t ae_hash64_end(uint64_t h)
{
    return mix(mix(h, 0), 0);
}

uint64_t ae_hash64(uint64_t seed, const void *bytes, size_t n)
{
    return ae_hash64_end(ae_hash64_add(ae_hash64_begin(seed, n), bytes, n));
}
