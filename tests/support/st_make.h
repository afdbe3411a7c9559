/* st_make.h - builds safetensors files in memory: good ones from descriptions, and any header over any data.
 *
 * Values of a tensor are a function of a name and a place (st_value), so a test knows the expected values under any name.
 */
#ifndef AE_TEST_ST_MAKE_H
#define AE_TEST_ST_MAKE_H

#include "base/mem.h"
#include "formats/safetensors.h"

typedef struct st_make {
    ae_buf header, data;
    size_t n;
} st_make;

/* A tensor with these bytes. */
void st_make_raw(st_make *m, const char *name, const char *dtype, const char *shape, const void *bytes, size_t n);
/* F32 [rows, columns] (rows 0: [columns]) of st_value(key, i). */
void st_make_floats(st_make *m, const char *name, const char *key, uint64_t rows, uint64_t columns);
void st_make_i64(st_make *m, const char *name, const int64_t *values, size_t n);
/* The whole file into `file`; the maker is empty again. */
void st_make_finish(st_make *m, ae_buf *file);
/* A file of this header, as it is, and n zero bytes of data. */
void st_make_text(ae_buf *file, const char *header, size_t n_data);

/* About 0.2 wide, from the key and the place. */
float st_value(const char *key, uint64_t i);

/* Checks that everything that an open reader lends is readable and keeps the promises of safetensors.h; NULL, or the broken
 * one. */
const char *st_check_all(const ae_safetensors *st, const uint8_t *base, size_t n);

#endif
