/* sha256.h - SHA-256 (FIPS 180-4) of bytes that come in pieces. Owns nothing; any thread. */
#ifndef AE_BASE_SHA256_H
#define AE_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ae_sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    uint8_t block[64]; /* [n_bytes % 64] not yet hashed */
} ae_sha256;

void ae_sha256_start(ae_sha256 *hash);
void ae_sha256_add(ae_sha256 *hash, const void *bytes, size_t n);
/* Writes 64 lower-case digits and a NUL into out; the hash must not be used again. */
void ae_sha256_end(ae_sha256 *hash, char out[65]);

/* Converts a hash as others write it (with or without "sha256:", in either case) to the form of ae_sha256_end. Returns false if
 * it is not a hash. */
bool ae_sha256_read(char out[65], const char *text);

#endif
