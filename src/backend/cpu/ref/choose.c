/* choose.c - the choice of positions by their scores (ae_select in backend/attention.h): the definition, which all levels use.
 *
 * The keys of scores are counted by digits from the highest on, so a choice takes as long whatever the scores are. */
#include <string.h>

#include "backend/cpu/ref/ref.h"

#define DIGIT_BITS 11 /* of a key: 11, 11 and 10 */

/* Returns numbers in the order of the scores; a NaN is the lowest, and both zeros are equal. */
static uint32_t key_of(float score)
{
    const float x = score + 0.0f;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return 0;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Returns the k-th highest of n keys (k from 1), and how many that are equal to it are among the k highest. */
static uint32_t find_least(const float *score, uint32_t n, uint32_t k, uint32_t *n_equal)
{
    uint32_t prefix = 0, known = 0; /* the key's upper bits, and the mask of those that are known */
    for (uint32_t shift = 32, width; shift; ) {
        uint32_t count[1u << DIGIT_BITS] = {0}, d;
        width = shift < DIGIT_BITS ? shift : DIGIT_BITS;
        shift -= width;
        const uint32_t mask = (1u << width) - 1;
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t key = key_of(score[i]);
            if ((key & known) == prefix) count[key >> shift & mask]++;
        }
        for (d = mask; count[d] < k; d--) k -= count[d];
        prefix |= d << shift;
        known |= mask << shift;
    }
    *n_equal = k;
    return prefix;
}

void ae_ref_choose(const float *score, uint32_t n, uint32_t n_most, int32_t *positions)
{
    uint32_t n_equal;
    const uint32_t least = find_least(score, n, n_most, &n_equal);
    for (uint32_t pos = 0; pos < n; pos++) {
        const uint32_t key = key_of(score[pos]);
        if (key < least || (key == least && !n_equal)) continue;
        n_equal -= key == least;
        *positions++ = (int32_t)pos;
    }
}
