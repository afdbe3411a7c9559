/* hash.h - a 64-bit hash of any bytes, the same on every machine, for checksums and fingerprints. It detects accidental
 * changes; it does not resist deliberate collisions. */
#ifndef AE_BASE_HASH_H
#define AE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* seed: 0, or the hash of the preceding bytes. Any change of one 8-byte word changes the hash. */
uint64_t ae_hash64(uint64_t seed, const void *bytes, size_t n);
/* The same for n bytes in pieces: begin, add for each piece, end. All pieces but the last have a multiple of 8 bytes. */
uint64_t ae_hash64_begin(uint64_t seed, size_t n);
uint64_t ae_hash64_add(uint64_t state, const void *bytes, size_t n);
uint64_t ae_hash64_end(uint64_t state);

#endif
