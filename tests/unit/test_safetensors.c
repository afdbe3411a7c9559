/* test_safetensors.c - safetensors checkpoints: one file, shards under an index, folders; broken files; failing memory. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fail_alloc.h"
#include "st_make.h"

static char folder[] = "/tmp/aerie-st-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char line[128];
    (void)state;
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return system(line);
}

static const char *in_folder(const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, 256, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_made(const char *name, st_make *m)
{
    ae_buf file = {0};
    st_make_finish(m, &file);
    write_file(name, file.data, file.n);
    ae_buf_free(&file);
}

static void refused(aerie_status status, ae_safetensors *const *st, const aerie_error *error, aerie_status wanted,
                    const char *text)
{
    assert_null(*st);
    if (status != wanted || error->status != wanted || !strstr(error->text, text))
        fail_msg("expected %d with '%s'; found %d: %s", (int)wanted, text, (int)status, error->text);
}

/* ---- Good ones ------------------------------------------------------------------------------------- */

static void make_sample(st_make *m)
{
    static const unsigned char bytes[64] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    st_make_floats(m, "b", "key", 3, 5);
    st_make_floats(m, "a.weight", "other", 0, 7);
    st_make_raw(m, "scalar", "F64", "[]", bytes, 8);
    st_make_raw(m, "empty", "I16", "[4,0,2]", bytes, 0);
    st_make_raw(m, "flags", "BOOL", "[3]", bytes, 3);
    st_make_raw(m, "odd", "BF16", "[2,2]", bytes, 8); /* at an odd address */
    st_make_raw(m, "deep", "U8", "[1,1,1,1,1,1,1,2]", bytes, 2);
    st_make_raw(m, "half", "F16", "[1]", bytes, 2);
    st_make_raw(m, "i8", "I8", "[1]", bytes, 1);
    st_make_raw(m, "i32", "I32", "[1]", bytes, 4);
    st_make_raw(m, "\\u00e9\\n", "I64", "[1]", bytes, 8);
}

static void reads_what_was_written(void **state)
{
    st_make m = {0};
    ae_buf file = {0};
    ae_safetensors *st;
    aerie_error error = {0};
    (void)state;
    make_sample(&m);
    st_make_finish(&m, &file);
    assert_int_equal(ae_safetensors_open_memory(&st, file.data, file.n, "x", &error), AERIE_OK);
    assert_null(st_check_all(st, (const uint8_t *)file.data, file.n));
    assert_int_equal(ae_safetensors_n_tensors(st), 11);
    const ae_st_tensor *b = ae_safetensors_tensor_find(st, "b");
    assert_int_equal(b->dtype, AE_ST_F32);
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->shape[0], 3);
    assert_int_equal(b->shape[1], 5);
    for (uint64_t i = 0; i < 15; i++) {
        float v;
        memcpy(&v, b->data + 4 * i, 4);
        assert_true(v == st_value("key", i));
    }
    assert_int_equal(ae_safetensors_tensor_find(st, "scalar")->n, 1);
    assert_int_equal(ae_safetensors_tensor_find(st, "scalar")->n_dims, 0);
    assert_int_equal(ae_safetensors_tensor_find(st, "empty")->n, 0);
    assert_non_null(ae_safetensors_tensor_find(st, "\xc3\xa9\n"));
    assert_int_equal(ae_safetensors_tensor_find(st, "odd")->data[0], 1);
    assert_string_equal(ae_st_dtype_name(AE_ST_BF16), "BF16");
    ae_safetensors_close(st);
    ae_buf_free(&file);
}

static void metadata_and_nothing(void **state)
{
    static const char *const good[] = {"{}", "{} ", "{\"__metadata__\":{\"format\":\"pt\"}}",
                                       "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0],\"more\":1}}"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ae_buf file = {0};
        ae_safetensors *st;
        aerie_error error = {0};
        st_make_text(&file, good[i], 0);
        assert_int_equal(ae_safetensors_open_memory(&st, file.data, file.n, "x", &error), AERIE_OK);
        assert_int_equal(ae_safetensors_n_tensors(st), i == 3);
        ae_safetensors_close(st);
        ae_buf_free(&file);
    }
}

static void files_and_folders(void **state)
{
    st_make m = {0};
    ae_safetensors *st;
    aerie_error error = {0};
    (void)state;
    refused(ae_safetensors_open(&st, in_folder("missing"), &error), &st, &error, AERIE_ERROR_IO, "missing");
    refused(ae_safetensors_open(&st, folder, &error), &st, &error, AERIE_ERROR_IO, "contains no model.safetensors");
    st_make_floats(&m, "w", "w", 2, 2);
    write_made("medusa_lm_head.safetensors", &m);
    assert_int_equal(ae_safetensors_open(&st, folder, &error), AERIE_OK);
    assert_non_null(strstr(ae_safetensors_file(st, 0), "medusa_lm_head"));
    ae_safetensors_close(st);
    st_make_floats(&m, "w", "w", 2, 2);
    write_made("second.safetensors", &m);
    refused(ae_safetensors_open(&st, folder, &error), &st, &error, AERIE_ERROR_FORMAT, "2 *.safetensors");
    assert_int_equal(ae_safetensors_open(&st, in_folder("second.safetensors"), &error), AERIE_OK);
    ae_safetensors_close(st);
    st_make_floats(&m, "other", "w", 2, 2);
    write_made("model.safetensors", &m);
    assert_int_equal(ae_safetensors_open(&st, folder, &error), AERIE_OK);
    assert_non_null(ae_safetensors_tensor_find(st, "other"));
    ae_safetensors_close(st);
    assert_int_equal(unlink(in_folder("model.safetensors")), 0);
}

static void shards(void **state)
{
    static const char index[] = "{\"metadata\":{},"
                                "\"weight_map\":{\"a\":\"s1.safetensors\",\"c\":\"s1.safetensors\",\"b\":\"s2.safetensors\"}}";
    static const struct {
        const char *index, *text;
        aerie_status status;
    } bad[] = {
        {"{\"weight_map\":{\"a\":\"../s1.safetensors\"}}", "not a file name", AERIE_ERROR_FORMAT},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "not a file name", AERIE_ERROR_FORMAT},
        {"{\"weight_map\":{\"a\":\"..\"}}", "not a file name", AERIE_ERROR_FORMAT},
        {"{\"weight_map\":{\"a\":\"\"}}", "not a file name", AERIE_ERROR_FORMAT},
        {"{\"weight_map\":{\"a\":1}}", "is not a string", AERIE_ERROR_FORMAT},
        {"{\"weight_map\":{\"a\":\"s2.safetensors\"}}", "is not in s2.safetensors", AERIE_ERROR_FORMAT},
        {"{\"weight_map\":{\"a\":\"s3.safetensors\"}}", "s3.safetensors", AERIE_ERROR_IO},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"a\":\"s1.safetensors\"}}", "duplicate", AERIE_ERROR_FORMAT},
        {"{\"weight_map\":[]}", "'weight_map'", AERIE_ERROR_FORMAT},
        {"{}", "'weight_map'", AERIE_ERROR_FORMAT},
        {"[]", "not a JSON object", AERIE_ERROR_FORMAT},
        {"", "not JSON", AERIE_ERROR_FORMAT},
    };
    st_make m = {0};
    ae_safetensors *st;
    aerie_error error = {0};
    (void)state;
    st_make_floats(&m, "a", "a", 2, 2);
    st_make_floats(&m, "c", "c", 2, 2);
    write_made("s1.safetensors", &m);
    st_make_floats(&m, "b", "b", 2, 2);
    st_make_floats(&m, "unlisted", "b", 2, 2);
    st_make_floats(&m, "c", "other", 2, 2); /* the index says that the other shard's counts */
    write_made("s2.safetensors", &m);
    write_file("model.safetensors.index.json", index, sizeof index - 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ae_safetensors_open(&st, i ? in_folder("model.safetensors.index.json") : folder, &error), AERIE_OK);
        assert_null(st_check_all(st, NULL, 0));
        assert_int_equal(ae_safetensors_n_tensors(st), 4);
        assert_int_equal(ae_safetensors_n_files(st), 2);
        assert_non_null(ae_safetensors_tensor_find(st, "unlisted")); /* transformers reads it, too */
        float v;
        memcpy(&v, ae_safetensors_tensor_find(st, "b")->data, 4);
        assert_true(v == st_value("b", 0));
        memcpy(&v, ae_safetensors_tensor_find(st, "c")->data, 4);
        assert_true(v == st_value("c", 0));
        ae_safetensors_close(st);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file("bad.json", bad[i].index, strlen(bad[i].index));
        refused(ae_safetensors_open(&st, in_folder("bad.json"), &error), &st, &error, bad[i].status, bad[i].text);
    }
}

/* A set of shards whose index is missing is read whole, or not at all. */
static void shards_without_an_index(void **state)
{
    st_make m = {0};
    ae_safetensors *st;
    aerie_error error = {0};
    char sub[600];
    (void)state;
    snprintf(sub, sizeof sub, "%s", in_folder("set"));
    assert_int_equal(mkdir(sub, 0700), 0);
    st_make_floats(&m, "b", "b", 2, 2);
    write_made("set/m-00002-of-00002.safetensors", &m);
    refused(ae_safetensors_open(&st, sub, &error), &st, &error, AERIE_ERROR_FORMAT,
            "shard 1 of 2 is missing: m-00001-of-00002.safetensors");
    st_make_floats(&m, "a", "a", 2, 2);
    write_made("set/m-00001-of-00002.safetensors", &m);
    assert_int_equal(ae_safetensors_open(&st, sub, &error), AERIE_OK);
    assert_null(st_check_all(st, NULL, 0));
    assert_int_equal(ae_safetensors_n_tensors(st), 2);
    assert_int_equal(ae_safetensors_tensor_find(st, "b")->i_file, 1);
    ae_safetensors_close(st);
    st_make_floats(&m, "b", "b", 2, 2);
    write_made("set/m-00001-of-00002.safetensors", &m);
    refused(ae_safetensors_open(&st, sub, &error), &st, &error, AERIE_ERROR_FORMAT, "\"b\" is in two shards");
    st_make_floats(&m, "b", "b", 2, 2);
    write_made("set/other-00001-of-00002.safetensors", &m);
    refused(ae_safetensors_open(&st, sub, &error), &st, &error, AERIE_ERROR_FORMAT, "3 *.safetensors and no index");
}

/* In a set of ranks, the tensors of a name are one; without one of the files nothing is read. */
static void sets_of_ranks(void **state)
{
    st_make m = {0};
    ae_safetensors *st;
    aerie_error error = {0};
    char sub[600], name[64];
    (void)state;
    snprintf(sub, sizeof sub, "%s", in_folder("ranks"));
    assert_int_equal(mkdir(sub, 0700), 0);
    st_make_floats(&m, "a", "a", 2, 2);
    write_made("ranks/m-00000-TP-common.safetensors", &m);
    assert_int_equal(ae_safetensors_open(&st, sub, &error), AERIE_OK);
    ae_safetensors_close(st);
    for (int i = 2; i >= 0; i--) { /* the last one first */
        snprintf(name, sizeof name, "ranks/m-00002-TP-%03d.safetensors", i);
        st_make_floats(&m, "b", name, 2, 2);
        write_made(name, &m);
        if (i == 2) {
            refused(ae_safetensors_open(&st, sub, &error), &st, &error, AERIE_ERROR_FORMAT,
                    "shard 1 of the set is missing: m-00001-TP-...");
            st_make_floats(&m, "c", "c", 2, 2);
            write_made("ranks/m-00001-TP-common.safetensors", &m);
        }
        if (i)
            refused(ae_safetensors_open(&st, sub, &error), &st, &error, AERIE_ERROR_FORMAT,
                    "the part of rank 0 is missing: m-00002-TP-000.safetensors; there are 3 ranks");
    }
    assert_int_equal(ae_safetensors_open(&st, sub, &error), AERIE_OK);
    assert_null(st_check_all(st, NULL, 0));
    assert_int_equal(ae_safetensors_n_tensors(st), 3);
    assert_null(ae_safetensors_tensor_find(st, "c")->next_rank);
    const ae_st_tensor *t = ae_safetensors_tensor_find(st, "b");
    for (int i = 0; i < 3; i++, t = t->next_rank) {
        float v;
        assert_non_null(t);
        memcpy(&v, t->data, 4);
        snprintf(name, sizeof name, "ranks/m-00002-TP-%03d.safetensors", i);
        assert_true(v == st_value(name, 0));
    }
    assert_null(t);
    ae_safetensors_close(st);
    st_make_floats(&m, "b", "b", 2, 2);
    write_made("ranks/m-00003-TP-000.safetensors", &m);
    refused(ae_safetensors_open(&st, sub, &error), &st, &error, AERIE_ERROR_FORMAT, "m-00003-TP-00");
    st_make_floats(&m, "b", "b", 2, 2);
    write_made("ranks/m-00003-TP-common.safetensors", &m);
    assert_int_equal(unlink(in_folder("ranks/m-00003-TP-000.safetensors")), 0);
    refused(ae_safetensors_open(&st, sub, &error), &st, &error, AERIE_ERROR_FORMAT,
            "\"b\" is both in m-00002-TP-002.safetensors and in m-00003-TP-common.safetensors");
    st_make_floats(&m, "b", "b", 2, 2);
    write_made("ranks/n-00003-TP-common.safetensors", &m);
    refused(ae_safetensors_open(&st, sub, &error), &st, &error, AERIE_ERROR_FORMAT, "7 *.safetensors and no index");
}

/* ---- Broken ones -------------------------------------------------------------------------------------- */

#define T(dtype, shape, offsets) "{\"a\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void broken_headers(void **state)
{
    static const struct {
        const char *header;
        size_t n_data;
        aerie_status status;
        const char *text;
    } cases[] = {
        {"", 0, AERIE_ERROR_FORMAT, "not JSON"},
        {"[]", 0, AERIE_ERROR_FORMAT, "not a JSON object"},
        {"{\"a\":1}", 0, AERIE_ERROR_FORMAT, "entry of tensor \"a\" is not an object"},
        {"{\"__metadata__\":1}", 0, AERIE_ERROR_FORMAT, "is not an object"},
        {"{\"a\":{},\"a\":{}}", 0, AERIE_ERROR_FORMAT, "duplicate"},
        {"{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, AERIE_ERROR_FORMAT, "empty name"},
        {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, AERIE_ERROR_FORMAT, "not JSON"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, AERIE_ERROR_FORMAT, "no 'dtype'"},
        {T("4", "[1]", "[0,1]"), 1, AERIE_ERROR_FORMAT, "no 'dtype'"},
        {T("\"F99\"", "[1]", "[0,1]"), 1, AERIE_ERROR_UNSUPPORTED, "'F99'"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, AERIE_ERROR_FORMAT, "'shape'"},
        {T("\"U8\"", "[-1]", "[0,1]"), 1, AERIE_ERROR_FORMAT, "dimension 0"},
        {T("\"U8\"", "[1.5]", "[0,1]"), 1, AERIE_ERROR_FORMAT, "dimension 0"},
        {T("\"U8\"", "[1,\"2\"]", "[0,1]"), 1, AERIE_ERROR_FORMAT, "dimension 1"},
        {T("\"U8\"", "[4294967296,4294967296]", "[0,1]"), 1, AERIE_ERROR_FORMAT, "64 bits"},
        {T("\"U8\"", "[99999999999999999999]", "[0,1]"), 1, AERIE_ERROR_FORMAT, "not JSON"},
        {T("\"F64\"", "[4611686018427387904]", "[0,0]"), 0, AERIE_ERROR_FORMAT, "8 bytes"},
        {T("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, AERIE_ERROR_UNSUPPORTED, "9 dimensions"},
        {T("\"U8\"", "[1]", "[0]"), 1, AERIE_ERROR_FORMAT, "data_offsets"},
        {T("\"U8\"", "[1]", "[0,1,2]"), 1, AERIE_ERROR_FORMAT, "data_offsets"},
        {T("\"U8\"", "[1]", "[0,1.0]"), 1, AERIE_ERROR_FORMAT, "data_offsets"},
        {T("\"U8\"", "[1]", "[-1,0]"), 1, AERIE_ERROR_FORMAT, "bytes -1 to 0"},
        {T("\"U8\"", "[1]", "[1,0]"), 1, AERIE_ERROR_FORMAT, "bytes 1 to 0"},
        {T("\"U8\"", "[2]", "[0,2]"), 1, AERIE_ERROR_FORMAT, "cut short"},
        {T("\"U8\"", "[1]", "[9223372036854775806,9223372036854775807]"), 1, AERIE_ERROR_FORMAT, "cut short"},
        {T("\"F32\"", "[2]", "[0,7]"), 7, AERIE_ERROR_FORMAT, "2 elements of 4 bytes, but 7"},
        {T("\"U8\"", "[1]", "[1,2]"), 2, AERIE_ERROR_FORMAT, "1 bytes before"},
        {T("\"U8\"", "[1]", "[0,1]"), 2, AERIE_ERROR_FORMAT, "last 1 bytes"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_"
         "offsets\":[1,3]}}",
         3, AERIE_ERROR_FORMAT, "overlaps"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_"
         "offsets\":[0,2]}}",
         2, AERIE_ERROR_FORMAT, "overlaps"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ae_buf file = {0};
        ae_safetensors *st;
        aerie_error error = {0};
        st_make_text(&file, cases[i].header, cases[i].n_data);
        refused(ae_safetensors_open_memory(&st, file.data, file.n, "x", &error), &st, &error, cases[i].status, cases[i].text);
        ae_buf_free(&file);
    }
}

static void too_deep_and_too_large(void **state)
{
    ae_buf header = {0}, file = {0};
    ae_safetensors *st;
    aerie_error error = {0};
    uint64_t n = UINT64_MAX;
    (void)state;
    for (int i = 0; i < 100000; i++) ae_buf_adds(&header, "[");
    st_make_text(&file, header.data, 0);
    refused(ae_safetensors_open_memory(&st, file.data, file.n, "x", &error), &st, &error, AERIE_ERROR_FORMAT, "depth");
    memcpy(file.data, &n, 8);
    refused(ae_safetensors_open_memory(&st, file.data, file.n, "x", &error), &st, &error, AERIE_ERROR_FORMAT, "cut short");
    refused(ae_safetensors_open_memory(&st, file.data, 7, "x", &error), &st, &error, AERIE_ERROR_FORMAT, "7 bytes");
    ae_buf_free(&file);
    n = AE_ST_MAX_HEADER + 1;
    unsigned char *zeros = calloc(1, (size_t)n + 8);
    assert_non_null(zeros);
    memcpy(zeros, &n, 8);
    refused(ae_safetensors_open_memory(&st, zeros, (size_t)n + 8, "x", &error), &st, &error, AERIE_ERROR_LIMIT, "at most");
    free(zeros);
    ae_buf_free(&header);
}

static void cut_anywhere(void **state)
{
    st_make m = {0};
    ae_buf file = {0};
    (void)state;
    make_sample(&m);
    st_make_finish(&m, &file);
    for (size_t n = 0; n < file.n; n++) {
        ae_safetensors *st;
        aerie_error error = {0};
        void *copy = malloc(n ? n : 1);
        memcpy(copy, file.data, n);
        if (ae_safetensors_open_memory(&st, copy, n, "x", &error) == AERIE_OK)
            fail_msg("opened although cut at %zu of %zu", n, file.n);
        assert_null(st);
        free(copy);
    }
    ae_buf_free(&file);
}

static void memory_runs_out(void **state)
{
    st_make m = {0};
    ae_buf file = {0};
    (void)state;
    make_sample(&m);
    st_make_finish(&m, &file);
    for (long n = 1;; n++) {
        ae_safetensors *st;
        aerie_error error = {0};
        fail_alloc_arm(n, false);
        const aerie_status status = ae_safetensors_open_memory(&st, file.data, file.n, "x", &error);
        if (status == AERIE_OK) ae_safetensors_close(st);
        const bool hit = fail_alloc_disarm();
        assert_int_equal(fail_alloc_live(), 0);
        if (!hit) {
            assert_int_equal(status, AERIE_OK);
            assert_true(n > 3);
            break;
        }
        assert_int_equal(status, AERIE_ERROR_MEMORY);
    }
    ae_buf_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_was_written), cmocka_unit_test(metadata_and_nothing),
        cmocka_unit_test(files_and_folders),      cmocka_unit_test(shards),
        cmocka_unit_test(shards_without_an_index),
        cmocka_unit_test(sets_of_ranks),
        cmocka_unit_test(broken_headers),         cmocka_unit_test(too_deep_and_too_large),
        cmocka_unit_test(cut_anywhere),           cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
