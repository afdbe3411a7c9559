/* test_gguf_bad.c - broken GGUF files made by hand: each is refused with the right status and a sentence
 * that names the file, what is wrong and where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gguf_make.h"

#define ONE_DIM(n) 1, (const uint64_t[]){n}
#define TWO_DIMS(n, m) 2, (const uint64_t[]){n, m}

/* ---- Header ---------------------------------------------------------------------------------- */

static void empty(ae_buf *b)
{
    ae_buf_clear(b);
}

static void other_magic(ae_buf *b)
{
    ae_buf_adds(b, "ABCDEFGH");
}

static void lfs_pointer(ae_buf *b)
{
    ae_buf_adds(b, "version https://git-lfs.github.com/spec/v1\noid sha256:00\n");
}

static void old_ggjt(ae_buf *b)
{
    ae_buf_adds(b, "tjgg\3");
    gguf_make_zeros(b, 40);
}

static void html(ae_buf *b)
{
    ae_buf_adds(b, "<!DOCTYPE html><html>404</html>");
}

static void zip(ae_buf *b)
{
    ae_buf_adds(b, "PK\3\4 data.pkl");
}

static void safetensors(ae_buf *b)
{
    gguf_make_u64(b, 40);
    ae_buf_adds(b, "{\"__metadata__\":{}}");
}

static void magic_only(ae_buf *b)
{
    ae_buf_adds(b, "GGUF");
}

static void cut_magic(ae_buf *b)
{
    ae_buf_adds(b, "GG");
}

static void version_0(ae_buf *b)
{
    gguf_make_header(b, 0, 0, 0);
}

static void version_1(ae_buf *b)
{
    gguf_make_header(b, 1, 0, 0);
}

static void version_4(ae_buf *b)
{
    gguf_make_header(b, 4, 0, 0);
}

static void big_endian(ae_buf *b)
{
    gguf_make_header(b, 0x03000000, 0, 0);
}

static void cut_counts(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 0);
    b->n -= 3;
}

static void huge_n_kv(ae_buf *b)
{
    gguf_make_header(b, 3, 0, UINT64_MAX);
    gguf_make_zeros(b, 100);
}

static void wrapping_n_kv(ae_buf *b)
{
    gguf_make_header(b, 3, 0, ((uint64_t)1 << 60) + 1); /* times the size of a key: a small number */
    gguf_make_zeros(b, 100);
}

static void huge_n_tensors(ae_buf *b)
{
    gguf_make_header(b, 3, (uint64_t)1 << 59, 0);
    gguf_make_zeros(b, 100);
}

static void more_keys_than_there_are(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 2);
    gguf_make_kv_string(b, "a", "0123456789abcdef");
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static void huge_key_length(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_u64(b, UINT64_MAX - 7);
    gguf_make_zeros(b, 100);
}

static void long_key(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_u64(b, 65536);
    gguf_make_zeros(b, 65536 + 5);
}

static void bad_value_type(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv(b, "odd\nkey", 13, "\0\0\0\0\0\0\0", 8);
}

static void cut_value(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv(b, "key", AE_GGUF_U64, "1234567", 7);
}

static void huge_string(ae_buf *b)
{
    uint64_t n = INT64_MAX;
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv(b, "general.name", AE_GGUF_STRING, &n, sizeof n);
}

static void string_one_too_long(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv_string(b, "general.name", "four");
    b->n -= 1;
}

static void nested_array(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv_array(b, "nest", AE_GGUF_ARRAY, 1, "\4\0\0\0\0\0\0\0\0\0\0\0", 12);
}

static void bad_element_type(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv_array(b, "list", 99, 1, "\0\0\0\0", 4);
}

static void huge_array(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv_array(b, "list", AE_GGUF_U64, ((uint64_t)1 << 61) + 1, "12345678", 8); /* times 8: wraps to 8 */
}

static void huge_string_array(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv_array(b, "tokenizer.ggml.tokens", AE_GGUF_STRING, (uint64_t)1 << 40, "\0\0\0\0\0\0\0", 8);
}

static void bad_string_in_array(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv_array(b, "tokenizer.ggml.tokens", AE_GGUF_STRING, 2, "\0\0\0\0\0\0\0\0\377\0\0\0\0\0\0\0", 16);
}

static void key_twice(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 3);
    gguf_make_kv_u32(b, "same", 1);
    gguf_make_kv_u32(b, "other", 1);
    gguf_make_kv_string(b, "same", "x");
}

static void empty_key_twice(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 2);
    gguf_make_kv_u32(b, "", 1);
    gguf_make_kv_u32(b, "", 1);
}

static void quoted_key(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv(b, "a\"b\\c\x7f", 64, "\0\0\0\0", 4);
}

static void alignment_type(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv_string(b, "general.alignment", "32");
}

static void alignment_zero(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv_u32(b, "general.alignment", 0);
}

static void alignment_odd(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv_u32(b, "general.alignment", 48);
}

static void alignment_huge(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv_u32(b, "general.alignment", 0x80000000u);
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static void no_dims(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "w", 0, NULL, AE_TYPE_F32, 0);
    gguf_make_zeros(b, 100);
}

static void five_dims(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "w", 5, (const uint64_t[]){1, 1, 1, 1, 1}, AE_TYPE_F32, 0);
    gguf_make_zeros(b, 100);
}

static void zero_dim(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "w", TWO_DIMS(4, 0), AE_TYPE_F32, 0);
    gguf_make_zeros(b, 100);
}

static void negative_dim(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "w", TWO_DIMS((uint64_t)-4, (uint64_t)-1), AE_TYPE_F32, 0);
    gguf_make_zeros(b, 100);
}

static void dims_wrap(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "w", TWO_DIMS((uint64_t)1 << 32, ((uint64_t)1 << 32) + 1), AE_TYPE_F32, 0);
    gguf_make_zeros(b, 100);
}

static void bytes_wrap(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "w", TWO_DIMS(4, (uint64_t)1 << 60), AE_TYPE_F32, 0); /* 2^62 elements, 2^64 bytes */
    gguf_make_zeros(b, 100);
}

static void row_bytes_wrap(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "w", ONE_DIM((uint64_t)1 << 62), AE_TYPE_F64, 0);
    gguf_make_zeros(b, 100);
}

static void not_a_block(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "output.weight", TWO_DIMS(100, 2), AE_TYPE_Q4_K, 0);
    gguf_make_zeros(b, 1000);
}

static void unknown_type(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "w", ONE_DIM(32), 77, 0);
    gguf_make_zeros(b, 100);
}

static void retired_type(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "w", ONE_DIM(32), 4, 0);
    gguf_make_zeros(b, 100);
}

static void retired_repacked_type(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "w", ONE_DIM(32), 31, 0);
    gguf_make_zeros(b, 100);
}

static void offset_unaligned(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "w", ONE_DIM(4), AE_TYPE_F32, 8);
    gguf_make_zeros(b, 200);
}

static void offset_outside(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "w", ONE_DIM(4), AE_TYPE_F32, 1 << 20);
    gguf_make_zeros(b, 200);
}

static void offset_wraps(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "w", ONE_DIM(16), AE_TYPE_F32, UINT64_MAX - 31); /* offset + bytes wraps to 32 */
    gguf_make_zeros(b, 200);
}

static void truncated(ae_buf *b)
{
    gguf_make_header(b, 3, 2, 0);
    gguf_make_tensor(b, "first", ONE_DIM(8), AE_TYPE_F32, 0);
    gguf_make_tensor(b, "second", ONE_DIM(8), AE_TYPE_F32, 32);
    gguf_make_pad(b, 32);
    gguf_make_zeros(b, 63);
}

static void no_data_section(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_tensor(b, "w", ONE_DIM(8), AE_TYPE_F32, 0);
}

static void overlap(ae_buf *b)
{
    gguf_make_header(b, 3, 3, 0);
    gguf_make_tensor(b, "third", ONE_DIM(8), AE_TYPE_F32, 64);
    gguf_make_tensor(b, "first", ONE_DIM(9), AE_TYPE_F32, 0);
    gguf_make_tensor(b, "second", ONE_DIM(8), AE_TYPE_F32, 32);
    gguf_make_pad(b, 32);
    gguf_make_zeros(b, 96);
}

static void same_place(ae_buf *b)
{
    gguf_make_header(b, 3, 2, 0);
    gguf_make_tensor(b, "a", ONE_DIM(8), AE_TYPE_F32, 0);
    gguf_make_tensor(b, "b", ONE_DIM(8), AE_TYPE_F32, 0);
    gguf_make_pad(b, 32);
    gguf_make_zeros(b, 96);
}

static void name_twice(ae_buf *b)
{
    gguf_make_header(b, 3, 2, 0);
    gguf_make_tensor(b, "same", ONE_DIM(8), AE_TYPE_F32, 0);
    gguf_make_tensor(b, "same", ONE_DIM(8), AE_TYPE_F32, 32);
    gguf_make_pad(b, 32);
    gguf_make_zeros(b, 64);
}

static void long_name(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_u64(b, 70000);
    gguf_make_zeros(b, 80000);
}

static void cut_shape(ae_buf *b)
{
    gguf_make_header(b, 3, 1, 0);
    gguf_make_text(b, "0123456789");
    gguf_make_u32(b, 4);
    gguf_make_u64(b, 1);
    gguf_make_u64(b, 1);
}

/* ---- Split parts in memory ------------------------------------------------------------------- */

static void part_in_memory(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 2);
    gguf_make_kv_u16(b, "split.no", 0);
    gguf_make_kv_u16(b, "split.count", 2);
}

static void split_type(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv_string(b, "split.count", "2");
}

static void split_array(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv_array(b, "split.count", AE_GGUF_U16, 1, "\2\0", 2);
}

static void split_negative(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv(b, "split.count", AE_GGUF_I8, "\377", 1);
}

static void split_total_type(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 3);
    gguf_make_kv_u16(b, "split.no", 0);
    gguf_make_kv_u16(b, "split.count", 2);
    gguf_make_kv_string(b, "split.tensors.count", "7");
}

static void split_range(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv_u32(b, "split.count", 100000);
}

static void split_no_range(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 2);
    gguf_make_kv_u16(b, "split.no", 2);
    gguf_make_kv_u16(b, "split.count", 2);
}

static void split_no_missing(ae_buf *b)
{
    gguf_make_header(b, 3, 0, 1);
    gguf_make_kv_u16(b, "split.count", 2);
}

/* ---- The table ------------------------------------------------------------------------------- */

typedef struct bad_file {
    void (*make)(ae_buf *b);
    aerie_status status;
    const char *says;
} bad_file;

static const bad_file bad_files[] = {
    {empty, AERIE_ERROR_FORMAT, "the file is empty"},
    {other_magic, AERIE_ERROR_FORMAT, "it starts with \"ABCD\""},
    {cut_magic, AERIE_ERROR_FORMAT, "it starts with \"GG\""},
    {lfs_pointer, AERIE_ERROR_FORMAT, "git lfs pull"},
    {old_ggjt, AERIE_ERROR_FORMAT, "old GGJT format"},
    {html, AERIE_ERROR_FORMAT, "HTML page"},
    {zip, AERIE_ERROR_FORMAT, "zip archive"},
    {safetensors, AERIE_ERROR_FORMAT, "safetensors"},
    {magic_only, AERIE_ERROR_FORMAT, "ends inside the version number; it is 4 bytes long"},
    {version_0, AERIE_ERROR_UNSUPPORTED, "version 0 is not supported"},
    {version_1, AERIE_ERROR_UNSUPPORTED, "version 1 is not supported"},
    {version_4, AERIE_ERROR_UNSUPPORTED, "version 4 is not supported; aerie reads versions 2 and 3 (at byte 4)"},
    {big_endian, AERIE_ERROR_UNSUPPORTED, "big-endian"},
    {cut_counts, AERIE_ERROR_FORMAT, "ends inside the number of keys"},
    {huge_n_kv, AERIE_ERROR_FORMAT, "claims 18446744073709551615 keys, but only 100 bytes follow"},
    {wrapping_n_kv, AERIE_ERROR_FORMAT, "claims 1152921504606846977 keys"},
    {huge_n_tensors, AERIE_ERROR_FORMAT, "claims 576460752303423488 tensors"},
    {more_keys_than_there_are, AERIE_ERROR_FORMAT, "key 2 of 2: the file ends inside a key"},
    {huge_key_length, AERIE_ERROR_FORMAT,
     "key 1 of 1: the length of a key is 18446744073709551608, but only 100 bytes follow (at byte 24)"},
    {long_key, AERIE_ERROR_FORMAT, "is 65536; at most 65535"},
    {bad_value_type, AERIE_ERROR_FORMAT, "key \"odd\\x0akey\": value type 13 does not exist (at byte 39)"},
    {cut_value, AERIE_ERROR_FORMAT, "key \"key\": the file ends inside its value"},
    {huge_string, AERIE_ERROR_FORMAT, "key \"general.name\": the length of its string is 9223372036854775807"},
    {string_one_too_long, AERIE_ERROR_FORMAT, "the length of its string is 4, but only 3 bytes follow"},
    {nested_array, AERIE_ERROR_UNSUPPORTED, "key \"nest\": an array of arrays is not supported"},
    {bad_element_type, AERIE_ERROR_FORMAT, "element type 99 does not exist"},
    {huge_array, AERIE_ERROR_FORMAT,
     "claims 2305843009213693953 elements of 8 bytes, but only 8 bytes follow: is the download complete?"},
    {huge_string_array, AERIE_ERROR_FORMAT, "claims 1099511627776 strings"},
    {bad_string_in_array, AERIE_ERROR_FORMAT, "a string of its array is 255, but only 0 bytes follow"},
    {key_twice, AERIE_ERROR_FORMAT, "key \"same\": the key occurs twice"},
    {empty_key_twice, AERIE_ERROR_FORMAT, "key \"\": the key occurs twice"},
    {quoted_key, AERIE_ERROR_FORMAT, "key \"a\\x22b\\x5cc\\x7f\": value type 64 does not exist"},
    {alignment_type, AERIE_ERROR_FORMAT, "key \"general.alignment\": the value is of type string; it must be u32"},
    {alignment_zero, AERIE_ERROR_FORMAT, "the alignment is 0"},
    {alignment_odd, AERIE_ERROR_FORMAT, "the alignment is 48; it must be a power of two from 8 to 1048576"},
    {alignment_huge, AERIE_ERROR_FORMAT, "the alignment is 2147483648"},
    {no_dims, AERIE_ERROR_FORMAT, "tensor \"w\": it has 0 dimensions"},
    {five_dims, AERIE_ERROR_FORMAT, "tensor \"w\": it has 5 dimensions; there can be 1 to 4 (at byte 33)"},
    {zero_dim, AERIE_ERROR_FORMAT, "its dimension 1 is 0"},
    {negative_dim, AERIE_ERROR_FORMAT, "its dimension 0 is 18446744073709551612"},
    {dims_wrap, AERIE_ERROR_FORMAT, "the product of its dimensions does not fit"},
    {bytes_wrap, AERIE_ERROR_FORMAT, "its size in bytes does not fit"},
    {row_bytes_wrap, AERIE_ERROR_FORMAT, "its size in bytes does not fit"},
    {not_a_block, AERIE_ERROR_FORMAT,
     "tensor \"output.weight\": its rows have 100 elements, not a multiple of 256, the block of Q4_K"},
    {unknown_type, AERIE_ERROR_UNSUPPORTED, "tensor type 77 is unknown"},
    {retired_type, AERIE_ERROR_UNSUPPORTED, "tensor type 4 is no longer in use"},
    {retired_repacked_type, AERIE_ERROR_UNSUPPORTED, "tensor type 31 is no longer in use"},
    {offset_unaligned, AERIE_ERROR_FORMAT, "its offset 8 is not a multiple of the alignment, 32"},
    {offset_outside, AERIE_ERROR_FORMAT, "reach beyond the end of the file"},
    {offset_wraps, AERIE_ERROR_FORMAT, "reach beyond the end of the file"},
    {truncated, AERIE_ERROR_FORMAT, "tensor \"second\": its 32 bytes at offset 32"},
    {no_data_section, AERIE_ERROR_FORMAT, "is the download complete?"},
    {overlap, AERIE_ERROR_FORMAT, "tensor \"second\": its data overlaps that of tensor \"first\""},
    {same_place, AERIE_ERROR_FORMAT, "overlaps that of tensor"},
    {name_twice, AERIE_ERROR_FORMAT, "tensor \"same\": the name occurs twice"},
    {long_name, AERIE_ERROR_FORMAT, "tensor 1 of 1: the length of a name is 70000"},
    {cut_shape, AERIE_ERROR_FORMAT, "tensor \"0123456789\": the file ends inside its dimensions"},
    {part_in_memory, AERIE_ERROR_UNSUPPORTED, "it is part 1 of 2 of a split model"},
    {split_type, AERIE_ERROR_FORMAT, "key \"split.count\": the value is of type string; it must be an integer"},
    {split_array, AERIE_ERROR_FORMAT, "of type array; it must be an integer"},
    {split_negative, AERIE_ERROR_FORMAT, "the value is -1; it must be from 0 to 65535"},
    {split_total_type, AERIE_ERROR_FORMAT, "key \"split.tensors.count\": the value is of type string"},
    {split_range, AERIE_ERROR_FORMAT, "key \"split.count\": the value is 100000; it must be from 0 to 65535"},
    {split_no_range, AERIE_ERROR_FORMAT, "key \"split.no\": the value is 2; it must be from 0 to 1"},
    {split_no_missing, AERIE_ERROR_FORMAT, "key \"split.no\" is missing"},
};

static void test_bad_files(void **state)
{
    (void)state;
    size_t n_wrong = 0;
    for (size_t i = 0; i < sizeof bad_files / sizeof bad_files[0]; i++) {
        const bad_file *bad = &bad_files[i];
        ae_buf b = {0};
        bad->make(&b);
        uint8_t *exact = malloc(b.n ? b.n : 1); /* so that a sanitizer sees the first byte read too far */
        assert_non_null(exact);
        if (b.n) memcpy(exact, b.data, b.n);
        ae_gguf *gguf = (ae_gguf *)&b;
        aerie_error error = {0};
        aerie_status status = ae_gguf_open_memory(&gguf, exact, b.n, "bad.gguf", &error);
        if (status != bad->status || error.status != status || gguf || !strstr(error.text,
                                                                               bad->says) || strncmp(error.text,
                                                                                                     "bad.gguf: ", 10)) {
            print_error("file %zu: status %s instead of %s, \"%s\" instead of \"...%s...\"\n", i, ae_status_name(status),
                        ae_status_name(bad->status), error.text, bad->says);
            n_wrong++;
        }
        assert_int_equal(ae_gguf_open_memory(&gguf, exact, b.n, "bad.gguf", NULL), bad->status); /* without a record */
        free(exact);
        ae_buf_free(&b);
    }
    print_message("%zu broken files\n", sizeof bad_files / sizeof bad_files[0]);
    assert_int_equal(n_wrong, 0);
}

/* Every proper prefix of a good file is refused, whatever it cuts through. */
static void test_truncations(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        ae_buf b = {0};
        gguf_make_sample(&b, seed);
        ae_gguf *gguf;
        aerie_error error;
        assert_int_equal(ae_gguf_open_memory(&gguf, b.data, b.n, "good.gguf", &error), AERIE_OK);
        bool has_tensors = ae_gguf_n_tensors(gguf) > 0;
        size_t meta = 24;
        for (size_t i = 0; i < ae_gguf_n_kv(gguf); i++) {
            const ae_gguf_kv *kv = ae_gguf_kv_at(gguf, i);
            meta = (size_t)(kv->data + kv->bytes - (const uint8_t *)b.data);
        }
        ae_gguf_close(gguf);
        for (size_t n = 0; n < (has_tensors ? b.n : meta); n++) {
            uint8_t *exact = malloc(n ? n : 1);
            assert_non_null(exact);
            memcpy(exact, b.data, n);
            assert_int_equal(ae_gguf_open_memory(&gguf, exact, n, "cut.gguf", &error), AERIE_ERROR_FORMAT);
            free(exact);
        }
        ae_buf_free(&b);
    }
}

/* Names of all kinds in messages: long paths and keys leave room for what is wrong. */
static void test_long_names(void **state)
{
    (void)state;
    ae_buf b = {0}, path = {0}, key = {0};
    for (int i = 0; i < 3000; i++) ae_buf_adds(&path, "p");
    for (int i = 0; i < 3000; i++) ae_buf_adds(&key, "\x80");
    ae_buf_adds(&path, "/end.gguf");
    gguf_make_header(&b, 3, 0, 1);
    gguf_make_kv(&b, key.data, 13, "", 0);
    ae_gguf *gguf;
    aerie_error error;
    assert_int_equal(ae_gguf_open_memory(&gguf, b.data, b.n, path.data, &error), AERIE_ERROR_FORMAT);
    assert_non_null(strstr(error.text, "p/end.gguf: key \"\\x80"));
    assert_non_null(strstr(error.text, "...\": value type 13 does not exist"));
    ae_buf_free(&b);
    ae_buf_free(&path);
    ae_buf_free(&key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_truncations),
        cmocka_unit_test(test_long_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
