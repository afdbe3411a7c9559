/* test_gguf_read.c - an index without its tensors, and tensors read by offset: as from the mapping. */
#define _XOPEN_SOURCE 700 /* mkdtemp, truncate */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "formats/gguf_write.h"

#define N_PARTS 3
#define LARGE_BYTES ((size_t)5 << 19) /* a head is read by steps of 1 MiB */

static char folder[] = "/tmp/aerie_read_XXXXXX", path[64];

static const char *name_part(unsigned i, unsigned n)
{
    snprintf(path, sizeof path, "%s/m-%05u-of-%05u.gguf", folder, i + 1, n);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int drop_folder(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_PARTS; i++) unlink(name_part(i, N_PARTS));
    unlink(name_part(0, 1));
    return rmdir(folder);
}

static void need(aerie_status status, const aerie_error *error)
{
    if (status != AERIE_OK) fail_msg("%s", error->text);
}

/* A part with two tensors and a key of n_large bytes. */
static void write_part(unsigned i, unsigned n, size_t n_large)
{
    aerie_error error;
    ae_gguf_writer *w;
    const int64_t ne[2][4] = {{32, 3, 1, 1}, {64, 5 + i, 1, 1}};
    uint8_t *bytes = malloc(n_large + 4096);
    assert_non_null(bytes);
    for (size_t k = 0; k < n_large + 4096; k++) bytes[k] = (uint8_t)((k + i) * 2654435761u >> 13);
    need(ae_gguf_writer_create(&w, name_part(i, n), &error), &error);
    if (n_large) need(ae_gguf_writer_array(w, "many", AE_GGUF_U8, bytes, n_large, &error), &error);
    need(ae_gguf_writer_u32(w, "split.no", i, &error), &error);
    need(ae_gguf_writer_u32(w, "split.count", n, &error), &error);
    for (unsigned t = 0; t < 2; t++) {
        char name[16];
        snprintf(name, sizeof name, "part.%u.%u", i, t);
        need(ae_gguf_writer_tensor(w, name, AE_TYPE_F32, 2, ne[t], &error), &error);
    }
    need(ae_gguf_writer_begin(w, &error), &error);
    need(ae_gguf_writer_data(w, bytes, 32 * 3 * 4, &error), &error);
    need(ae_gguf_writer_data(w, bytes + 7, 64 * (5 + i) * 4, &error), &error);
    need(ae_gguf_writer_finish(w, &error), &error);
    ae_gguf_writer_free(w);
    free(bytes);
}

static void check_tensors(const ae_gguf *whole, const ae_gguf *index)
{
    aerie_error error;
    ae_gguf_reader readers[] = {ae_gguf_reader_open(whole), ae_gguf_reader_open(index)};
    for (size_t i = 0; i < ae_gguf_n_tensors(whole); i++) {
        const ae_gguf_tensor *a = ae_gguf_tensor_at(whole, i), *b = ae_gguf_tensor_at(index, i);
        uint8_t *bytes = malloc(a->bytes);
        assert_non_null(bytes);
        assert_null(b->data);
        assert_int_equal(a->offset, b->offset);
        for (int r = 0; r < 2; r++) {
            const size_t from = a->bytes / 3;
            memset(bytes, 0, a->bytes);
            need(ae_gguf_read(&readers[r], r ? b : a, from, bytes + from, a->bytes - from, &error), &error);
            need(ae_gguf_read(&readers[r], r ? b : a, 0, bytes, from, &error), &error);
            assert_memory_equal(bytes, a->data, a->bytes);
        }
        free(bytes);
    }
    for (int r = 0; r < 2; r++) ae_gguf_reader_close(&readers[r]);
}

static void check_same(const char *file)
{
    aerie_error error;
    ae_gguf *whole, *index;
    need(ae_gguf_open(&whole, file, NULL, &error), &error);
    need(ae_gguf_open(&index, file, &(ae_gguf_options){.index_only = true}, &error), &error);
    assert_int_equal(ae_gguf_n_kv(whole), ae_gguf_n_kv(index));
    assert_int_equal(ae_gguf_n_tensors(whole), ae_gguf_n_tensors(index));
    assert_int_equal(ae_gguf_file_bytes(whole), ae_gguf_file_bytes(index));
    for (size_t i = 0; i < ae_gguf_n_kv(whole); i++) {
        const ae_gguf_kv *a = ae_gguf_kv_at(whole, i), *b = ae_gguf_kv_at(index, i);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    check_tensors(whole, index);
    ae_gguf_close(whole);
    ae_gguf_close(index);
}

static void test_set(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_PARTS; i++) write_part(i, N_PARTS, 0);
    for (unsigned i = 0; i < N_PARTS; i++) check_same(name_part(i, N_PARTS));
}

/* An index that takes several steps to read, whole and cut short at many places. */
static void test_large_index(void **state)
{
    (void)state;
    aerie_error error;
    ae_gguf *g;
    write_part(0, 1, LARGE_BYTES);
    check_same(name_part(0, 1));
    for (off_t cut = (off_t)LARGE_BYTES; cut >= 0; cut -= 1 << 19) {
        assert_int_equal(truncate(path, cut), 0);
        assert_int_equal(ae_gguf_open(&g, path, &(ae_gguf_options){.index_only = true}, &error), AERIE_ERROR_FORMAT);
        assert_non_null(strstr(error.text, cut ? "bytes follow" : "the file is empty"));
        assert_null(g);
    }
}

static void test_replaced_file(void **state)
{
    (void)state;
    aerie_error error = {0};
    ae_gguf *g;
    uint8_t bytes[16];
    write_part(0, 1, 0);
    need(ae_gguf_open(&g, name_part(0, 1), NULL, &error), &error);
    write_part(0, 1, 100); /* another file of that name; the old one's pages stay mapped */
    ae_gguf_reader reader = ae_gguf_reader_open(g);
    assert_int_equal(ae_gguf_read(&reader, ae_gguf_tensor_at(g, 0), 0, bytes, sizeof bytes, &error), AERIE_ERROR_IO);
    assert_non_null(strstr(error.text, "was changed"));
    ae_gguf_reader_close(&reader);
    ae_gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_large_index),
        cmocka_unit_test(test_replaced_file),
    };
    return cmocka_run_group_tests_name("reading by offset", tests, make_folder, drop_folder);
}
