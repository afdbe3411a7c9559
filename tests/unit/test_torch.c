/* test_torch.c - PyTorch checkpoints: files that torch.save wrote (tests/golden/make_torch_sample.py), pickles made here,
 * archives cut and changed, failing memory. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fail_alloc.h"
#include "formats/torch.h"
#include "quant/types.h"
#include "st_make.h"

#define SAMPLES "tests/golden/torch/"

static void refused(aerie_status status, ae_safetensors *const *st, const aerie_error *error, aerie_status wanted,
                    const char *text)
{
    assert_null(*st);
    if (status != wanted || error->status != wanted || !strstr(error->text, text))
        fail_msg("expected %d with '%s'; found %d: %s", (int)wanted, text, (int)status, error->text);
}

/* ---- What torch.save wrote ------------------------------------------------------------------------------ */

static const ae_st_tensor *tensor(const ae_safetensors *st, const char *name, ae_st_dtype dtype, uint32_t n_dims, uint64_t n)
{
    const ae_st_tensor *t = ae_safetensors_tensor_find(st, name);
    if (!t) fail_msg("%s is missing", name);
    if (t->dtype != dtype || t->n_dims != n_dims || t->n != n)
        fail_msg("%s: %s, %u dimensions, %llu", name, ae_st_dtype_name(t->dtype), t->n_dims, (unsigned long long)t->n);
    return t;
}

static void reads_tables(void **state)
{
    ae_safetensors *st;
    aerie_error error = {0};
    (void)state;
    if (ae_torch_open(&st, SAMPLES "table.pt", &error) != AERIE_OK) fail_msg("%s", error.text);
    assert_null(st_check_all(st, NULL, 0));
    assert_int_equal(ae_safetensors_n_tensors(st), 14);
    const ae_st_tensor *t = tensor(st, "f32", AE_ST_F32, 2, 6);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    for (size_t i = 0; i < 12; i++) {
        float x;
        uint16_t h;
        if (i < 6) {
            memcpy(&x, t->data + 4 * i, 4);
            assert_true(x == 1 + (float)i / 8);
        }
        memcpy(&x, tensor(st, "same", AE_ST_F32, 2, 12)->data + 4 * i, 4);
        assert_true(x == 11 + (float)i / 8);
        if (i < 4) {
            memcpy(&x, tensor(st, "slice", AE_ST_F32, 2, 4)->data + 4 * i, 4);
            assert_true(x == 11 + (float)(i + 4) / 8);
            memcpy(&h, tensor(st, "f16", AE_ST_F16, 1, 4)->data + 2 * i, 2);
            assert_true(ae_f16_to_f32(h) == 2 + (float)i / 8);
        }
        if (i < 8) {
            memcpy(&h, tensor(st, "bf16", AE_ST_BF16, 3, 8)->data + 2 * i, 2);
            assert_true(ae_bf16_to_f32(h) == 3 + (float)i / 8);
        }
        if (i < 3) {
            memcpy(&x, tensor(st, "parameter", AE_ST_F32, 1, 3)->data + 4 * i, 4);
            assert_true(x == 10 + (float)i / 8);
        }
    }
    double d;
    int64_t whole;
    memcpy(&d, tensor(st, "f64", AE_ST_F64, 0, 1)->data, 8);
    assert_true(d == 4);
    memcpy(&whole, tensor(st, "i64", AE_ST_I64, 1, 5)->data + 8, 8);
    assert_int_equal(whole, -49);
    assert_int_equal((int8_t)tensor(st, "i8", AE_ST_I8, 1, 3)->data[0], -80);
    assert_int_equal(tensor(st, "u8", AE_ST_U8, 1, 3)->data[2], 92);
    assert_int_equal(tensor(st, "i16", AE_ST_I16, 1, 3)->data[0], 70);
    assert_int_equal(tensor(st, "i32", AE_ST_I32, 1, 3)->data[0], 60);
    assert_int_equal(tensor(st, "bool", AE_ST_BOOL, 1, 3)->data[2], 1);
    tensor(st, "empty", AE_ST_F32, 2, 0);
    ae_safetensors_close(st);
    if (ae_torch_open(&st, SAMPLES "nested.pt", &error) != AERIE_OK) fail_msg("%s", error.text);
    tensor(st, "w", AE_ST_F32, 2, 6);
    ae_safetensors_close(st);
}

static void refuses_what_is_no_table(void **state)
{
    ae_safetensors *st;
    aerie_error error = {0};
    (void)state;
    refused(ae_torch_open(&st, SAMPLES "transposed.pt", &error), &st, &error, AERIE_ERROR_UNSUPPORTED, "not contiguous");
    refused(ae_torch_open(&st, SAMPLES "module.pt", &error), &st, &error, AERIE_ERROR_UNSUPPORTED, "module.pt: the pickle");
    refused(ae_torch_open(&st, SAMPLES "old.pt", &error), &st, &error, AERIE_ERROR_UNSUPPORTED, "1.6");
    refused(ae_torch_open(&st, SAMPLES "missing.pt", &error), &st, &error, AERIE_ERROR_IO, "missing.pt");
    refused(ae_torch_open_memory(&st, "", 0, "x", &error), &st, &error, AERIE_ERROR_UNSUPPORTED, "1.6");
}

/* ---- Archives made here ------------------------------------------------------------------------------------ */

static void put(ae_buf *b, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        const unsigned char byte = i < 8 ? (unsigned char)(value >> 8 * i) : 0;
        ae_buf_add(b, &byte, 1);
    }
}

typedef struct zip_make {
    ae_buf file, table;
    size_t n;
} zip_make;

/* method 0: stored */
static void zip_add(zip_make *z, const char *name, const void *data, size_t n, unsigned method)
{
    const size_t at = z->file.n;
    put(&z->file, 0x04034b50, 4);
    put(&z->file, 0, 14);
    put(&z->file, n, 4);
    put(&z->file, n, 4);
    put(&z->file, strlen(name), 2);
    put(&z->file, 0, 2);
    ae_buf_adds(&z->file, name);
    ae_buf_add(&z->file, data, n);
    put(&z->table, 0x02014b50, 4);
    put(&z->table, 0, 6);
    put(&z->table, method, 2);
    put(&z->table, 0, 8);
    put(&z->table, n, 4);
    put(&z->table, n, 4);
    put(&z->table, strlen(name), 2);
    put(&z->table, 0, 12);
    put(&z->table, at, 4);
    ae_buf_adds(&z->table, name);
    z->n++;
}

static void zip_finish(zip_make *z, ae_buf *file, bool large)
{
    const size_t at = z->file.n, n = z->table.n;
    ae_buf_add(file, z->file.data, at);
    ae_buf_add(file, z->table.data, n);
    if (large) {
        put(file, 0x06064b50, 4);
        put(file, 44, 8);
        put(file, 0, 12);
        put(file, z->n, 8);
        put(file, z->n, 8);
        put(file, n, 8);
        put(file, at, 8);
        put(file, 0x07064b50, 4);
        put(file, 0, 4);
        put(file, at + n, 8);
        put(file, 1, 4);
    }
    put(file, 0x06054b50, 4);
    put(file, 0, 4);
    put(file, large ? 0xffff : z->n, 2);
    put(file, large ? 0xffff : z->n, 2);
    put(file, large ? UINT32_MAX : n, 4);
    put(file, large ? UINT32_MAX : at, 4);
    put(file, 0, 2);
    ae_buf_free(&z->file);
    ae_buf_free(&z->table);
    *z = (zip_make){0};
}

/* An archive of this pickle and a record "0" of 8 bytes. */
static void pickled(ae_buf *file, const char *pickle, size_t n)
{
    zip_make z = {0};
    zip_add(&z, "a/data.pkl", pickle, n, 0);
    zip_add(&z, "a/data/0", "12345678", 8, 0);
    zip_finish(&z, file, false);
}

/* A float tensor of two elements in record 0: pieces of pickle. */
#define STORAGE(key) "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" key "X\3\0\0\0cpuK\2tQ"
#define CALL "ctorch._utils\n_rebuild_tensor_v2\n"
#define TWO CALL "(" STORAGE("0") "K\0K\2\x85K\1\x85\x89}tR"

static void pickles(void **state)
{
#define P(text) text, sizeof text - 1
    static const struct {
        const char *pickle;
        size_t n;
        aerie_status status;
        const char *text;
    } cases[] = {
        {P("\x80\2}X\1\0\0\0w" TWO "s."), AERIE_OK, ""},
        {P("\x80\2}(X\1\0\0\0w" TWO "X\1\0\0\0nK\1u."), AERIE_OK, ""},
        {P("\x80\2}q\0h\0X\1\0\0\0w" TWO "s."), AERIE_OK, ""},
        {P(""), AERIE_ERROR_FORMAT, "ends too early"},
        {P("\x80"), AERIE_ERROR_FORMAT, "ends too early"},
        {P("."), AERIE_ERROR_FORMAT, "stack"},
        {P("}."), AERIE_ERROR_FORMAT, "not a table of tensors"},
        {P("K\1."), AERIE_ERROR_FORMAT, "not a table of tensors"},
        {P("(."), AERIE_ERROR_FORMAT, "stack"},
        {P("u."), AERIE_ERROR_FORMAT, "stack"},
        {P("(K\1u."), AERIE_ERROR_FORMAT, "non-dictionary"},
        {P("}(K\1u."), AERIE_ERROR_FORMAT, "non-dictionary"},
        {P("s."), AERIE_ERROR_FORMAT, "stack"},
        {P("\x87."), AERIE_ERROR_FORMAT, "stack"},
        {P("(\x85."), AERIE_ERROR_FORMAT, "stack"},
        {P("R"), AERIE_ERROR_FORMAT, "stack"},
        {P("K\1)R."), AERIE_ERROR_FORMAT, "non-function"},
        {P("cos\nsystem\nX\2\0\0\0ls\x85R."), AERIE_ERROR_UNSUPPORTED, "system"},
        {P("cos\nsystem"), AERIE_ERROR_FORMAT, "ends too early"},
        {P("h\1."), AERIE_ERROR_FORMAT, "that it did not set"},
        {P("Nr\xff\xff\xff\x7f."), AERIE_ERROR_FORMAT, "does not number its memo entries"},
        {P("q\1."), AERIE_ERROR_FORMAT, "stack"},
        {P("X\xff\xff\xff\xff."), AERIE_ERROR_FORMAT, "ends too early"},
        {P("\x8a\x09" "123456789."), AERIE_ERROR_UNSUPPORTED, "9 bytes"},
        {P("i"), AERIE_ERROR_UNSUPPORTED, "0x69"},
        {P("K\1Q."), AERIE_ERROR_UNSUPPORTED, "not a tensor storage"},
        {P("}X\1\0\0\0w" CALL "(K\1K\0K\2\x85K\1\x85tRs."), AERIE_ERROR_FORMAT, "no storage"},
        {P("}X\1\0\0\0w" CALL "(" STORAGE("9") "K\0K\2\x85K\1\x85tRs."), AERIE_ERROR_FORMAT, "record \"9\""},
        {P("}X\1\0\0\0w" CALL "(" STORAGE("0") "K\1K\2\x85K\1\x85tRs."), AERIE_ERROR_FORMAT, "2 elements from 1"},
        {P("}X\1\0\0\0w" CALL "(" STORAGE("0") "K\0K\3\x85K\1\x85tRs."), AERIE_ERROR_FORMAT, "3 elements from 0"},
        {P("}X\1\0\0\0w" CALL "(" STORAGE("0") "J\xff\xff\xff\xffK\1\x85K\1\x85tRs."), AERIE_ERROR_FORMAT, "no storage"},
        {P("}X\1\0\0\0w" CALL "(" STORAGE("0") "K\0J\xff\xff\xff\xff\x85K\1\x85tRs."), AERIE_ERROR_FORMAT, "valid integer"},
        {P("}X\1\0\0\0w" CALL "(" STORAGE("0") "K\0K\2\x85K\2\x85tRs."), AERIE_ERROR_UNSUPPORTED, "not contiguous"},
        {P("}X\1\0\0\0w" CALL "(" STORAGE("0") "K\0K\2\x85)tRs."), AERIE_ERROR_FORMAT, "sizes and strides"},
        {P("}X\1\0\0\0w" TWO "sX\1\0\0\0w" TWO "s."), AERIE_ERROR_FORMAT, "twice"},
        {P("}X\0\0\0\0" TWO "s."), AERIE_ERROR_FORMAT, "name"},
        {P("}X\2\0\0\0w\0" TWO "s."), AERIE_ERROR_FORMAT, "name"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ae_buf file = {0};
        ae_safetensors *st;
        aerie_error error = {0};
        pickled(&file, cases[i].pickle, cases[i].n);
        const aerie_status status = ae_torch_open_memory(&st, file.data, file.n, "x", &error);
        if (cases[i].status == AERIE_OK) {
            if (status != AERIE_OK) fail_msg("case %zu: %s", i, error.text);
            assert_memory_equal(tensor(st, "w", AE_ST_F32, 1, 2)->data, "12345678", 8);
            ae_safetensors_close(st);
        } else {
            refused(status, &st, &error, cases[i].status, cases[i].text);
        }
        ae_buf_free(&file);
    }
}

static void archives(void **state)
{
    static const char pickle[] = "\x80\2}X\1\0\0\0w" TWO "s.";
    ae_safetensors *st;
    aerie_error error = {0};
    zip_make z = {0};
    ae_buf file = {0};
    (void)state;
    zip_add(&z, "a/data.pkl", pickle, sizeof pickle - 1, 0);
    zip_add(&z, "a/data/0", "12345678", 8, 0);
    zip_finish(&z, &file, true); /* zip64 */
    if (ae_torch_open_memory(&st, file.data, file.n, "x", &error) != AERIE_OK) fail_msg("%s", error.text);
    assert_null(st_check_all(st, (const uint8_t *)file.data, file.n));
    ae_safetensors_close(st);
    ae_buf_free(&file);
    zip_add(&z, "a/data.pkl", pickle, sizeof pickle - 1, 8);
    zip_finish(&z, &file, false);
    refused(ae_torch_open_memory(&st, file.data, file.n, "x", &error), &st, &error, AERIE_ERROR_UNSUPPORTED, "compressed");
    ae_buf_free(&file);
    zip_add(&z, "a/readme", "hello", 5, 0);
    zip_finish(&z, &file, false);
    refused(ae_torch_open_memory(&st, file.data, file.n, "x", &error), &st, &error, AERIE_ERROR_FORMAT, "without data.pkl");
    ae_buf_free(&file);
    zip_add(&z, "a/data.pkl", pickle, sizeof pickle - 1, 0);
    zip_add(&z, "a/data.pkl", pickle, sizeof pickle - 1, 0);
    zip_finish(&z, &file, false);
    refused(ae_torch_open_memory(&st, file.data, file.n, "x", &error), &st, &error, AERIE_ERROR_FORMAT, "twice");
    ae_buf_free(&file);
    zip_add(&z, "a/byteorder", "big", 3, 0);
    zip_add(&z, "a/data.pkl", pickle, sizeof pickle - 1, 0);
    zip_finish(&z, &file, false);
    refused(ae_torch_open_memory(&st, file.data, file.n, "x", &error), &st, &error, AERIE_ERROR_UNSUPPORTED, "big-endian");
    ae_buf_free(&file);
}

/* Reads a sample whole; free it. */
static unsigned char *sample(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    unsigned char *data = malloc(1 << 16);
    if (!f || !data) fail_msg("cannot read %s", path);
    *n = fread(data, 1, 1 << 16, f);
    fclose(f);
    return data;
}

static void cut_and_changed(void **state)
{
    size_t n;
    unsigned char *data = sample(SAMPLES "table.pt", &n);
    (void)state;
    for (size_t i = 0; i < n; i += 3) { /* none is complete */
        ae_safetensors *st;
        aerie_error error = {0};
        unsigned char *copy = malloc(i ? i : 1);
        memcpy(copy, data, i);
        if (ae_torch_open_memory(&st, copy, i, "x", &error) == AERIE_OK) fail_msg("opened although cut at %zu of %zu", i, n);
        free(copy);
    }
    for (size_t i = 0; i < n; i++) { /* a byte changed: refused, or all lent is within the file */
        for (int k = 0; k < 3; k++) {
            ae_safetensors *st;
            aerie_error error = {0};
            const unsigned char old = data[i];
            data[i] = k == 0 ? 0 : k == 1 ? 255 : (unsigned char)(old ^ 1);
            if (ae_torch_open_memory(&st, data, n, "x", &error) == AERIE_OK) {
                const char *wrong = st_check_all(st, data, n);
                if (wrong) fail_msg("byte %zu: %s", i, wrong);
                ae_safetensors_close(st);
            }
            data[i] = old;
        }
    }
    free(data);
}

static void memory_runs_out(void **state)
{
    size_t n_bytes;
    unsigned char *data = sample(SAMPLES "table.pt", &n_bytes);
    (void)state;
    for (long n = 1;; n++) {
        ae_safetensors *st;
        aerie_error error = {0};
        fail_alloc_arm(n, false);
        const aerie_status status = ae_torch_open_memory(&st, data, n_bytes, "x", &error);
        if (status == AERIE_OK) ae_safetensors_close(st);
        const bool hit = fail_alloc_disarm();
        assert_int_equal(fail_alloc_live(), 0);
        assert_int_equal(status, hit ? AERIE_ERROR_MEMORY : AERIE_OK);
        if (!hit) {
            assert_true(n > 3);
            break;
        }
    }
    free(data);
}

/* A memo as large as a number in the pickle says, backed by nothing but zeros: a sparse file of 4 KiB on disk took 16 times its
 * apparent size. */
static void memory_follows_from_instructions(void **state)
{
    enum { ZEROS = 1 << 20 };
    ae_buf pickle = {0}, file = {0};
    const uint32_t n = ZEROS, far = ZEROS - 1000;
    ae_safetensors *st;
    aerie_error error = {0};
    (void)state;
    ae_buf_add(&pickle, "\x80\x02X", 3);
    ae_buf_add(&pickle, (const char *)&n, 4);
    for (int i = 0; i < ZEROS; i++) ae_buf_add(&pickle, "", 1);
    ae_buf_add(&pickle, "r", 1);
    ae_buf_add(&pickle, (const char *)&far, 4);
    ae_buf_add(&pickle, ".", 1);
    pickled(&file, pickle.data, pickle.n);
    const aerie_status status = ae_torch_open_memory(&st, file.data, file.n, "x", &error);
    refused(status, &st, &error, AERIE_ERROR_FORMAT, "does not number its memo entries");
    ae_buf_free(&pickle);
    ae_buf_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_tables), cmocka_unit_test(refuses_what_is_no_table), cmocka_unit_test(pickles),
        cmocka_unit_test(archives),     cmocka_unit_test(cut_and_changed),          cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(memory_follows_from_instructions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
