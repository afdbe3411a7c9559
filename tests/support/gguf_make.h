/* gguf_make.h - builds GGUF files byte by byte, good and broken ones, and checks what the reader lends.
 *
 * Unlike the library's writer it checks nothing, so a test determines every byte. A file is: gguf_make_header, keys, tensor
 * descriptions, gguf_make_pad, data. Names and counts need not agree with each other.
 */
#ifndef AE_TEST_GGUF_MAKE_H
#define AE_TEST_GGUF_MAKE_H

#include "base/mem.h"
#include "formats/gguf.h"

void gguf_make_u32(ae_buf *buf, uint32_t value);
void gguf_make_u64(ae_buf *buf, uint64_t value);
/* u64 length, then the bytes */
void gguf_make_text(ae_buf *buf, const char *text);

void gguf_make_header(ae_buf *buf, uint32_t version, uint64_t n_tensors, uint64_t n_kv);
/* key, type, value[bytes] as it stands in the file */
void gguf_make_kv(ae_buf *buf, const char *key, uint32_t type, const void *value, size_t bytes);
void gguf_make_kv_u32(ae_buf *buf, const char *key, uint32_t value);
void gguf_make_kv_u16(ae_buf *buf, const char *key, uint16_t value);
void gguf_make_kv_string(ae_buf *buf, const char *key, const char *value);
/* key, array, element type, n, values[bytes] */
void gguf_make_kv_array(ae_buf *buf, const char *key, uint32_t element, uint64_t n, const void *values, size_t bytes);
/* name, n_dims, ne[n_dims], type, offset in the data section */
void gguf_make_tensor(ae_buf *buf, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t offset);
/* Zeros up to a multiple of alignment, and n zeros. */
void gguf_make_pad(ae_buf *buf, size_t alignment);
void gguf_make_zeros(ae_buf *buf, size_t n);

/* A whole valid file: every value type, arrays, strings, tensors of several types; all drawn from seed. */
void gguf_make_sample(ae_buf *buf, uint64_t seed);

/* Deterministic random numbers (splitmix64). */
uint64_t gguf_make_random(uint64_t *state);

/* Reads everything that an open file lends, and checks the invariants of gguf.h. `base` and n: the bytes
 * it was opened from, or NULL. Returns NULL, or the broken invariant. */
const char *gguf_check_all(const ae_gguf *gguf, const uint8_t *base, size_t n);

#endif
