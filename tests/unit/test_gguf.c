/* test_gguf.c - GGUF files read and written: round trips, versions, split sets, typed reads, real files,
 * and every allocation failing in turn. Broken files: test_gguf_bad.c. */
#define _GNU_SOURCE
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/os.h"
#include "fail_alloc.h"
#include "formats/gguf_write.h"
#include "gguf_make.h"

static char folder[256];

static int make_folder(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/aerie-gguf-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int count_files(bool remove_them)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        n++;
        if (remove_them) unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d) closedir(d);
    return n;
}

static int empty_folder(void **state)
{
    (void)state;
    count_files(true);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    count_files(true);
    return rmdir(folder);
}

/* A path in the folder; the last four results stay valid. */
static const char *in_folder(const char *name)
{
    static char paths[4][512];
    static int i;
    i = (i + 1) % 4;
    snprintf(paths[i], sizeof paths[i], "%s/%s", folder, name);
    return paths[i];
}

static void save(const char *name, ae_buf *b)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->n, f), b->n);
    assert_int_equal(fclose(f), 0);
    ae_buf_free(b);
}

#define assert_ok(call)                                                     \
    do {                                                                    \
        error.text[0] = 0;                                                  \
        if ((call) != AERIE_OK) fail_msg("%s: %s", #call, error.text);      \
    } while (0)

#define assert_fails(call, want, says)                                                          \
    do {                                                                                        \
        assert_int_equal((call), (want));                                                       \
        if (!strstr(error.text, (says))) fail_msg("\"%s\" lacks \"%s\"", error.text, (says));   \
    } while (0)

/* ---- Writer to reader ------------------------------------------------------------------------ */

static const ae_gguf_string words[] = {{"alpha", 5}, {"", 0}, {"\0\xff", 2}};
static const uint64_t raw_values[4] = {0x8182838485868788u, 0x4049000040490000u, 1, 0x7ff0000000000000u};

static const struct planned {
    const char *name;
    uint32_t type, n_dims;
    int64_t ne[4];
} planned[] = {
    {"token_embd.weight", AE_TYPE_Q8_0, 2, {64, 5, 1, 1}}, {"blk.0.attn_norm.weight", AE_TYPE_F32, 1, {7, 1, 1, 1}},
    {"blk.0.ffn_up.weight", AE_TYPE_Q4_K, 3, {256, 3, 2, 1}}, {"odd", AE_TYPE_I8, 4, {3, 1, 5, 1}},
    {"last", AE_TYPE_BF16, 2, {1, 1, 1, 1}},
};
#define N_PLANNED (sizeof planned / sizeof planned[0])

static size_t planned_bytes(const struct planned *t)
{
    return ae_type_row_bytes(t->type, (uint64_t)t->ne[0]) * (size_t)(t->ne[1] * t->ne[2] * t->ne[3]);
}

/* Tensor data in one run, byte i being a function of i, in pieces of changing size. */
static aerie_status write_data(ae_gguf_writer *w, aerie_error *error)
{
    uint8_t piece[97];
    size_t total = 0, done = 0;
    for (size_t i = 0; i < N_PLANNED; i++) total += planned_bytes(&planned[i]);
    for (size_t n = 1; done < total; n = n % sizeof piece + 1) {
        if (n > total - done) n = total - done;
        for (size_t k = 0; k < n; k++) piece[k] = (uint8_t)((done + k) * 7 >> 3);
        AE_TRY(ae_gguf_writer_data(w, piece, n, error));
        done += n;
    }
    return AERIE_OK;
}

static aerie_status write_keys(ae_gguf_writer *w, uint32_t alignment, aerie_error *error)
{
    char key[32];
    AE_TRY(ae_gguf_writer_string(w, "general.architecture", "llama", error));
    AE_TRY(ae_gguf_writer_u32(w, "general.alignment", alignment, error));
    AE_TRY(ae_gguf_writer_u32(w, "u32", 4000000000u, error));
    AE_TRY(ae_gguf_writer_f32(w, "f32", -1.5f, error));
    AE_TRY(ae_gguf_writer_bool(w, "true", true, error));
    AE_TRY(ae_gguf_writer_bool(w, "false", false, error));
    AE_TRY(ae_gguf_writer_string(w, "empty", "", error));
    AE_TRY(ae_gguf_writer_strings(w, "words", words, 3, error));
    AE_TRY(ae_gguf_writer_strings(w, "no words", NULL, 0, error));
    for (uint32_t type = 0; type <= AE_GGUF_F64; type++) {
        if (type == AE_GGUF_STRING || type == AE_GGUF_ARRAY) continue;
        snprintf(key, sizeof key, "%s.array", ae_gguf_type_name((ae_gguf_type)type));
        AE_TRY(ae_gguf_writer_array(w, key, (ae_gguf_type)type, raw_values, 4, error));
    }
    return AERIE_OK;
}

static aerie_status write_model(const char *path, uint32_t alignment, aerie_error *error)
{
    ae_gguf_writer *w;
    AE_TRY(ae_gguf_writer_create(&w, path, error));
    aerie_status status = write_keys(w, alignment, error);
    for (size_t i = 0; i < N_PLANNED && status == AERIE_OK; i++)
        status = ae_gguf_writer_tensor(w, planned[i].name, planned[i].type, planned[i].n_dims, planned[i].ne, error);
    if (status == AERIE_OK) status = ae_gguf_writer_begin(w, error);
    if (status == AERIE_OK) status = write_data(w, error);
    if (status == AERIE_OK) status = ae_gguf_writer_finish(w, error);
    ae_gguf_writer_free(w);
    return status;
}

static void check_model(const ae_gguf *g, uint32_t alignment)
{
    aerie_error error;
    uint32_t u = 0;
    float f = 0;
    bool yes = false, no = true;
    ae_gguf_string s = {0};
    const ae_gguf_kv *kv;
    assert_null(gguf_check_all(g, NULL, 0));
    assert_int_equal(ae_gguf_version(g), 3);
    assert_int_equal(ae_gguf_alignment(g), alignment);
    assert_int_equal(ae_gguf_n_kv(g), 9 + 11);
    assert_ok(ae_gguf_get_u32(g, "u32", true, &u, &error));
    assert_ok(ae_gguf_get_f32(g, "f32", true, &f, &error));
    assert_ok(ae_gguf_get_bool(g, "true", true, &yes, &error));
    assert_ok(ae_gguf_get_bool(g, "false", true, &no, &error));
    assert_true(u == 4000000000u && f == -1.5f && yes && !no);
    assert_ok(ae_gguf_get_string(g, "empty", true, &s, &error));
    assert_int_equal(s.n, 0);
    assert_ok(ae_gguf_get_string(g, "general.architecture", true, &s, &error));
    assert_true(s.n == 5 && !memcmp(s.data, "llama", 5));
    assert_ok(ae_gguf_get_array(g, "words", true, AE_GGUF_STRING, &kv, &error));
    size_t cursor = 0, i = 0;
    for (; ae_gguf_kv_next_string(kv, &cursor, &s); i++) assert_true(s.n == words[i].n && !memcmp(s.data, words[i].data,
                                                                                                  s.n));
    assert_int_equal(i, 3);
    for (uint32_t type = 0; type <= AE_GGUF_F64; type++) {
        char key[32];
        if (type == AE_GGUF_STRING || type == AE_GGUF_ARRAY) continue;
        snprintf(key, sizeof key, "%s.array", ae_gguf_type_name((ae_gguf_type)type));
        assert_ok(ae_gguf_get_array(g, key, true, (ae_gguf_type)type, &kv, &error));
        assert_int_equal(kv->n, 4);
        assert_memory_equal(kv->data, raw_values, kv->bytes);
    }
    assert_int_equal(ae_gguf_n_tensors(g), N_PLANNED);
    size_t done = 0;
    for (i = 0; i < N_PLANNED; i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_find(g, planned[i].name);
        assert_ptr_equal(t, ae_gguf_tensor_at(g, i));
        assert_int_equal(t->type, planned[i].type);
        assert_int_equal(t->n_dims, planned[i].n_dims);
        assert_memory_equal(t->ne, planned[i].ne, sizeof t->ne);
        assert_int_equal(t->bytes, planned_bytes(&planned[i]));
        assert_int_equal(t->offset % alignment, 0);
        assert_int_equal((uintptr_t)t->data % (alignment < 64 ? alignment : 64), 0);
        for (size_t k = 0; k < t->bytes; k++) assert_int_equal(t->data[k], (uint8_t)((done + k) * 7 >> 3));
        done += t->bytes;
    }
    assert_null(ae_gguf_tensor_find(g, "absent"));
    assert_null(ae_gguf_kv_find(g, "absent"));
}

static void test_round_trip(void **state)
{
    (void)state;
    static const uint32_t alignments[] = {8, 32, 64, 1 << 20};
    aerie_error error;
    ae_gguf *g;
    for (size_t i = 0; i < 4; i++) {
        const char *path = in_folder("model.gguf");
        assert_ok(write_model(path, alignments[i], &error)); /* the second replaces the first */
        assert_int_equal(count_files(false), 1);
        for (int no_mmap = 0; no_mmap < 2; no_mmap++) {
            assert_ok(ae_gguf_open(&g, path, &(ae_gguf_options){.no_mmap = no_mmap}, &error));
            check_model(g, alignments[i]);
            assert_string_equal(ae_gguf_path(g), path);
            assert_int_equal(ae_gguf_n_files(g), 1);
            assert_int_equal(ae_gguf_file_bytes(g) % alignments[i], 0);
            ae_gguf_close(g);
        }
    }
    ae_gguf_close(NULL);
}

/* Every value type, copied from a file to another, byte for byte. */
static void test_copy(void **state)
{
    (void)state;
    aerie_error error;
    for (uint64_t seed = 0; seed < 20; seed++) {
        ae_buf b = {0};
        ae_gguf *from, *to;
        ae_gguf_writer *w;
        gguf_make_sample(&b, seed);
        assert_ok(ae_gguf_open_memory(&from, b.data, b.n, "sample", &error));
        assert_null(gguf_check_all(from, (uint8_t *)b.data, b.n));
        assert_int_equal(ae_gguf_version(from), seed % 4 ? 3 : 2);
        assert_ok(ae_gguf_writer_create(&w, in_folder("copy.gguf"), &error));
        for (size_t i = 0; i < ae_gguf_n_kv(from); i++) assert_ok(ae_gguf_writer_copy(w, ae_gguf_kv_at(from, i), &error));
        for (size_t i = 0; i < ae_gguf_n_tensors(from); i++) {
            const ae_gguf_tensor *t = ae_gguf_tensor_at(from, i);
            char *name = ae_strndup(t->name.data, t->name.n);
            assert_ok(ae_gguf_writer_tensor(w, name, t->type, t->n_dims, t->ne, &error));
            ae_free(name);
        }
        assert_ok(ae_gguf_writer_begin(w, &error));
        for (size_t i = 0; i < ae_gguf_n_tensors(from); i++) {
            const ae_gguf_tensor *t = ae_gguf_tensor_at(from, i);
            assert_ok(ae_gguf_writer_data(w, t->data, t->bytes, &error));
        }
        assert_ok(ae_gguf_writer_finish(w, &error));
        ae_gguf_writer_free(w);
        assert_ok(ae_gguf_open(&to, in_folder("copy.gguf"), NULL, &error));
        assert_int_equal(ae_gguf_n_kv(to), ae_gguf_n_kv(from));
        assert_int_equal(ae_gguf_n_tensors(to), ae_gguf_n_tensors(from));
        for (size_t i = 0; i < ae_gguf_n_kv(from); i++) {
            const ae_gguf_kv *x = ae_gguf_kv_at(from, i), *y = ae_gguf_kv_at(to, i);
            assert_true(x->type == y->type && x->element_type == y->element_type && x->n == y->n && x->bytes == y->bytes);
            assert_memory_equal(x->data, y->data, x->bytes);
        }
        for (size_t i = 0; i < ae_gguf_n_tensors(from); i++)
            assert_memory_equal(ae_gguf_tensor_at(from, i)->data, ae_gguf_tensor_at(to, i)->data,
                                ae_gguf_tensor_at(from, i)->bytes);
        ae_gguf_close(from);
        ae_gguf_close(to);
        ae_buf_free(&b);
    }
}

/* A leftover of a killed process is removed by the next process that writes the file; files of running writers and other files
 * stay.
 */
static void test_killed_writer(void **state)
{
    (void)state;
    aerie_error error;
    ae_gguf_writer *living, *w;
    static const char *const others[] = {"w.gguf.part", "w.gguf.1-.part", "ww.gguf.1-0.part"};
    for (size_t i = 0; i < 3; i++) {
        FILE *f = fopen(in_folder(others[i]), "wb");
        assert_true(f && fclose(f) == 0);
    }
    assert_int_equal(mkdir(in_folder("w.gguf.1-0.part"), 0700), 0);
    assert_ok(ae_gguf_writer_create(&living, in_folder("w.gguf"), &error));
    assert_ok(ae_gguf_writer_begin(living, &error));
    assert_int_equal(count_files(false), 5);
    for (int closes = 0; closes < 2; closes++) {
        const pid_t child = fork();
        if (child == 0) {
            if (ae_gguf_writer_create(&w, in_folder("w.gguf"), &error) || ae_gguf_writer_begin(w, &error)) _exit(1);
            if (closes && ae_gguf_writer_close(w, &error)) _exit(1);
            raise(SIGKILL);
        }
        int how;
        assert_true(child > 0 && waitpid(child, &how, 0) == child && WIFSIGNALED(how));
        assert_int_equal(count_files(false), 6);
        assert_ok(ae_gguf_writer_create(&w, in_folder("w.gguf"), &error));
        assert_ok(ae_gguf_writer_begin(w, &error));
        assert_int_equal(count_files(false), 6);
        assert_ok(ae_gguf_writer_close(w, &error)); /* still locked */
        ae_gguf_writer *third;
        assert_ok(ae_gguf_writer_create(&third, in_folder("w.gguf"), &error));
        assert_ok(ae_gguf_writer_begin(third, &error));
        assert_int_equal(count_files(false), 7);
        ae_gguf_writer_free(third);
        ae_gguf_writer_free(w);
        assert_int_equal(count_files(false), 5);
    }
    assert_ok(ae_gguf_writer_finish(living, &error));
    ae_gguf_writer_free(living);
    assert_int_equal(access(in_folder("w.gguf"), F_OK), 0);
    assert_int_equal(rmdir(in_folder("w.gguf.1-0.part")), 0);
}

static void test_writer_misuse(void **state)
{
    (void)state;
    aerie_error error;
    ae_gguf_writer *w;
    const int64_t ne[4] = {32, 1, 1, 1}, bad[4] = {33, 1, 1, 1}, zero[4] = {32, 0, 1, 1},
                  huge[4] = {INT64_MAX / 32 * 32, 2, 1, 1};
    assert_ok(ae_gguf_writer_create(&w, in_folder("w.gguf"), &error));
    assert_ok(ae_gguf_writer_u32(w, "k", 1, &error));
    assert_fails(ae_gguf_writer_string(w, "k", "x", &error), AERIE_ERROR_ARGUMENT, "key \"k\" already has a value");
    assert_fails(ae_gguf_writer_u32(w, "general.alignment", 33, &error), AERIE_ERROR_ARGUMENT, "power of two");
    assert_fails(ae_gguf_writer_f32(w, "general.alignment", 32, &error), AERIE_ERROR_ARGUMENT, "must be a u32");
    assert_fails(ae_gguf_writer_array(w, "a", AE_GGUF_STRING, "", 0, &error), AERIE_ERROR_ARGUMENT, "must be scalars");
    assert_fails(ae_gguf_writer_array(w, "a", AE_GGUF_U64, "", SIZE_MAX / 4, &error), AERIE_ERROR_ARGUMENT, "too long");
    assert_fails(ae_gguf_writer_tensor(w, "t", 4, 1, ne, &error), AERIE_ERROR_ARGUMENT, "type 4 does not exist");
    assert_fails(ae_gguf_writer_tensor(w, "t", AE_TYPE_Q4_0, 1, bad, &error), AERIE_ERROR_ARGUMENT, "multiples of 32");
    assert_fails(ae_gguf_writer_tensor(w, "t", AE_TYPE_Q4_0, 2, zero, &error), AERIE_ERROR_ARGUMENT, "does not suit");
    assert_fails(ae_gguf_writer_tensor(w, "t", AE_TYPE_Q4_0, 2, huge, &error), AERIE_ERROR_ARGUMENT, "does not suit");
    assert_fails(ae_gguf_writer_tensor(w, "t", AE_TYPE_Q4_0, 0, ne, &error), AERIE_ERROR_ARGUMENT, "1 to 4 dimensions");
    assert_fails(ae_gguf_writer_tensor(w, "t", AE_TYPE_Q4_0, 5, ne, &error), AERIE_ERROR_ARGUMENT, "1 to 4 dimensions");
    assert_fails(ae_gguf_writer_data(w, "x", 1, &error), AERIE_ERROR_ARGUMENT, "header must be written first");
    assert_fails(ae_gguf_writer_finish(w, &error), AERIE_ERROR_ARGUMENT, "header must be written first");
    assert_ok(ae_gguf_writer_tensor(w, "t", AE_TYPE_Q4_0, 1, ne, &error));
    assert_ok(ae_gguf_writer_begin(w, &error));
    assert_fails(ae_gguf_writer_begin(w, &error), AERIE_ERROR_ARGUMENT, "already written");
    assert_fails(ae_gguf_writer_u32(w, "late", 1, &error), AERIE_ERROR_ARGUMENT, "before the header");
    assert_fails(ae_gguf_writer_tensor(w, "late", AE_TYPE_Q4_0, 1, ne, &error), AERIE_ERROR_ARGUMENT, "before the header");
    assert_ok(ae_gguf_writer_data(w, "0123456789", 10, &error));
    assert_fails(ae_gguf_writer_finish(w, &error), AERIE_ERROR_ARGUMENT, "tensor \"t\" has 10 of its 18 bytes");
    assert_fails(ae_gguf_writer_data(w, "0123456789", 9, &error), AERIE_ERROR_ARGUMENT, "more tensor data");
    assert_int_equal(count_files(false), 1); /* the temporary one */
    assert_ok(ae_gguf_writer_finish(w, &error));
    assert_fails(ae_gguf_writer_finish(w, &error), AERIE_ERROR_ARGUMENT, "already finished");
    ae_gguf_writer_free(w);
    assert_int_equal(access(in_folder("w.gguf"), F_OK), 0);
    unlink(in_folder("w.gguf"));

    /* not finished: no file remains */
    assert_ok(ae_gguf_writer_create(&w, in_folder("w.gguf"), &error));
    assert_ok(ae_gguf_writer_tensor(w, "t", AE_TYPE_Q4_0, 1, ne, &error));
    assert_ok(ae_gguf_writer_begin(w, &error));
    ae_gguf_writer_free(w);
    ae_gguf_writer_free(NULL);
    assert_int_equal(count_files(false), 0);

    assert_ok(ae_gguf_writer_create(&w, in_folder("w.gguf"), &error));
    assert_ok(ae_gguf_writer_tensor(w, "t", AE_TYPE_Q4_0, 1, ne, &error));
    assert_ok(ae_gguf_writer_tensor(w, "t", AE_TYPE_F32, 1, ne, &error));
    assert_fails(ae_gguf_writer_begin(w, &error), AERIE_ERROR_ARGUMENT, "tensor \"t\" was described twice");
    ae_gguf_writer_free(w);
    assert_ok(ae_gguf_writer_create(&w, in_folder("absent/w.gguf"), &error));
    assert_fails(ae_gguf_writer_begin(w, &error), AERIE_ERROR_IO, "No such file or directory");
    ae_gguf_writer_free(w);
    /* a folder or a device cannot be replaced, even if it appears later */
    static const char *const taken[] = {folder, "/dev/null"};
    for (size_t i = 0; i < 2; i++) {
        assert_ok(ae_gguf_writer_create(&w, taken[i], &error));
        assert_fails(ae_gguf_writer_begin(w, &error), AERIE_ERROR_IO, i ? "it is a device" : "it is a directory");
        ae_gguf_writer_free(w);
    }
    assert_ok(ae_gguf_writer_create(&w, in_folder("w.gguf"), &error));
    assert_ok(ae_gguf_writer_begin(w, &error));
    assert_int_equal(mkdir(in_folder("w.gguf"), 0700), 0);
    assert_fails(ae_gguf_writer_finish(w, &error), AERIE_ERROR_IO, "renamed into place");
    assert_fails(ae_gguf_writer_data(w, "x", 1, &error), AERIE_ERROR_IO, "an earlier write failed");
    ae_gguf_writer_free(w);
    assert_int_equal(rmdir(in_folder("w.gguf")), 0);
    assert_int_equal(count_files(false), 0);
}

/* When the disk fills up, the reason is reported, no new file remains, and the old file stays. */
static void test_write_fails(void **state)
{
    (void)state;
    aerie_error error;
    struct rlimit before, small;
    const char *path = in_folder("full.gguf");
    assert_ok(write_model(path, 32, &error));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN); /* so that a write beyond the limit fails with EFBIG */
    for (rlim_t bytes = 0; bytes < 1500; bytes += 300) {
        small = before;
        small.rlim_cur = bytes;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        aerie_status status = write_model(path, 32, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_fails(status, AERIE_ERROR_IO, "full.gguf: write failed: File too large");
        assert_int_equal(count_files(false), 1);
    }
    signal(SIGXFSZ, SIG_DFL);
    ae_gguf *g;
    assert_ok(ae_gguf_open(&g, path, NULL, &error));
    check_model(g, 32);
    ae_gguf_close(g);
}

/* ---- Typed reads ----------------------------------------------------------------------------- */

static void check_elements(const ae_gguf *g)
{
    int64_t x = 77;
    double y = 77;
    size_t cursor = 0;
    ae_gguf_string s;
    assert_false(ae_gguf_kv_int(ae_gguf_kv_find(g, "u64"), 0, &x));
    assert_false(ae_gguf_kv_int(ae_gguf_kv_find(g, "bool"), 0, &x));
    assert_false(ae_gguf_kv_int(ae_gguf_kv_find(g, "empty"), 0, &x));
    assert_false(ae_gguf_kv_int(ae_gguf_kv_find(g, "array"), 1, &x));
    assert_false(ae_gguf_kv_float(ae_gguf_kv_find(g, "f64"), 1, &y));
    assert_false(ae_gguf_kv_float(ae_gguf_kv_find(g, "u8"), 0, &y));
    assert_true(ae_gguf_kv_int(ae_gguf_kv_find(g, "i64"), 0, &x));
    assert_int_equal(x, -1);
    assert_true(ae_gguf_kv_float(ae_gguf_kv_find(g, "f64"), 0, &y));
    assert_true(y == 0.5);
    assert_true(ae_gguf_kv_next_string(ae_gguf_kv_find(g, "string"), &cursor, &s));
    assert_int_equal(s.n, 4);
    assert_false(ae_gguf_kv_next_string(ae_gguf_kv_find(g, "string"), &cursor, &s));
    cursor = 0;
    assert_false(ae_gguf_kv_next_string(ae_gguf_kv_find(g, "array"), &cursor, &s));
}

static void test_typed_reads(void **state)
{
    (void)state;
    const uint64_t minus_one = UINT64_MAX, large = (uint64_t)1 << 63, f64_large = 0x7e37e43c8800759cu; /* 1e300 */
    const double half = 0.5, infinite = INFINITY;
    aerie_error error;
    ae_gguf *g;
    ae_buf b = {0};
    gguf_make_header(&b, 3, 0, 12);
    gguf_make_kv(&b, "i8", AE_GGUF_I8, &minus_one, 1);
    gguf_make_kv(&b, "u8", AE_GGUF_U8, &minus_one, 1);
    gguf_make_kv(&b, "i64", AE_GGUF_I64, &minus_one, 8);
    gguf_make_kv(&b, "u64", AE_GGUF_U64, &large, 8);
    gguf_make_kv(&b, "u32", AE_GGUF_U32, &minus_one, 4);
    gguf_make_kv(&b, "f64", AE_GGUF_F64, &half, 8);
    gguf_make_kv(&b, "f64.large", AE_GGUF_F64, &f64_large, 8);
    gguf_make_kv(&b, "f64.infinite", AE_GGUF_F64, &infinite, 8);
    gguf_make_kv(&b, "bool", AE_GGUF_BOOL, "\2", 1);
    gguf_make_kv_string(&b, "string", "text");
    gguf_make_kv_array(&b, "array", AE_GGUF_U32, 1, "\1\0\0\0", 4);
    gguf_make_kv_array(&b, "empty", AE_GGUF_U32, 0, NULL, 0);
    assert_ok(ae_gguf_open_memory(&g, b.data, b.n, "m.gguf", &error));

    uint32_t u = 77;
    float f = 77;
    bool t = false;
    ae_gguf_string s = {"77", 2};
    const ae_gguf_kv *kv = NULL;
    assert_ok(ae_gguf_get_u32(g, "absent", false, &u, &error));
    assert_ok(ae_gguf_get_f32(g, "absent", false, &f, &error));
    assert_ok(ae_gguf_get_bool(g, "absent", false, &t, &error));
    assert_ok(ae_gguf_get_string(g, "absent", false, &s, &error));
    assert_ok(ae_gguf_get_array(g, "absent", false, AE_GGUF_U8, &kv, &error));
    assert_true(u == 77 && f == 77 && !t && s.n == 2 && !kv);
    assert_fails(ae_gguf_get_u32(g, "absent", true, &u, &error), AERIE_ERROR_FORMAT, "m.gguf: key \"absent\" is missing");
    assert_fails(ae_gguf_get_u32(g, "i8", true, &u, &error), AERIE_ERROR_FORMAT,
                 "key \"i8\": the value is -1; it must be from 0 to 4294967295");
    assert_fails(ae_gguf_get_u32(g, "i64", true, &u, &error), AERIE_ERROR_FORMAT, "the value is -1");
    assert_fails(ae_gguf_get_u32(g, "u64", true, &u, &error), AERIE_ERROR_FORMAT, "the value is 9223372036854775808");
    assert_fails(ae_gguf_get_u32(g, "f64", true, &u, &error), AERIE_ERROR_FORMAT,
                 "key \"f64\": the value is of type f64; an integer is needed");
    assert_fails(ae_gguf_get_u32(g, "bool", true, &u, &error), AERIE_ERROR_FORMAT, "of type bool");
    assert_fails(ae_gguf_get_u32(g, "array", true, &u, &error), AERIE_ERROR_FORMAT, "of type array of u32; an integer");
    assert_int_equal(u, 77);
    assert_ok(ae_gguf_get_u32(g, "u8", true, &u, &error));
    assert_int_equal(u, 255);
    assert_ok(ae_gguf_get_u32(g, "u32", true, &u, &error));
    assert_int_equal(u, UINT32_MAX);
    assert_fails(ae_gguf_get_f32(g, "u32", true, &f, &error), AERIE_ERROR_FORMAT, "an f32 or f64 is needed");
    assert_fails(ae_gguf_get_f32(g, "f64.large", true, &f, &error), AERIE_ERROR_FORMAT, "does not fit in an f32");
    assert_ok(ae_gguf_get_f32(g, "f64", true, &f, &error));
    assert_true(f == 0.5f);
    assert_ok(ae_gguf_get_f32(g, "f64.infinite", true, &f, &error));
    assert_true(isinf(f));
    assert_ok(ae_gguf_get_bool(g, "bool", true, &t, &error));
    assert_true(t);
    assert_fails(ae_gguf_get_bool(g, "u8", true, &t, &error), AERIE_ERROR_FORMAT, "a bool is needed");
    assert_fails(ae_gguf_get_string(g, "u8", true, &s, &error), AERIE_ERROR_FORMAT, "a string is needed");
    assert_fails(ae_gguf_get_array(g, "array", true, AE_GGUF_F32, &kv, &error), AERIE_ERROR_FORMAT,
                 "array of u32; array of f32 is needed");
    assert_fails(ae_gguf_get_array(g, "u8", true, AE_GGUF_U8, &kv, &error), AERIE_ERROR_FORMAT,
                 "of type u8; array of u8 is needed");
    assert_fails(ae_gguf_get_array(g, "absent", true, AE_GGUF_U8, &kv, &error), AERIE_ERROR_FORMAT, "missing");

    check_elements(g);
    assert_string_equal(ae_gguf_type_name((ae_gguf_type)99), "unknown");
    ae_gguf_close(g);
    ae_buf_free(&b);
}

/* ---- Files and sets -------------------------------------------------------------------------- */

static void test_files(void **state)
{
    (void)state;
    aerie_error error;
    ae_gguf *g;
    ae_buf b = {0};
    assert_fails(ae_gguf_open(&g, in_folder("absent.gguf"), NULL, &error), AERIE_ERROR_IO,
                 "absent.gguf: cannot open: No such file");
    assert_null(g);
    assert_fails(ae_gguf_open(&g, folder, NULL, &error), AERIE_ERROR_IO, "a directory");
    gguf_make_u32(&b, 0);
    b.n = 0;
    save("empty.gguf", &b);
    for (int no_mmap = 0; no_mmap < 2; no_mmap++)
        assert_fails(ae_gguf_open(&g, in_folder("empty.gguf"), &(ae_gguf_options){.no_mmap = no_mmap}, &error),
                     AERIE_ERROR_FORMAT, "the file is empty");
    /* no tensors, no padding after the last key: a vocabulary */
    gguf_make_header(&b, 3, 0, 1);
    gguf_make_kv_u32(&b, "x", 1);
    save("vocabulary.gguf", &b);
    assert_ok(ae_gguf_open(&g, in_folder("vocabulary.gguf"), NULL, &error));
    assert_int_equal(ae_gguf_n_tensors(g), 0);
    assert_int_equal(ae_gguf_alignment(g), 32);
    ae_gguf_close(g);
}

/* Part no (from 0) of count, with two tensors of its own; total as split.tensors.count. */
static void save_part(const char *name, uint16_t no, uint16_t count, int32_t total, const char *second)
{
    ae_buf b = {0};
    char first[32];
    const uint64_t ne[1] = {4};
    snprintf(first, sizeof first, "part.%d", no);
    gguf_make_header(&b, 3, 2, no ? 3 : 4);
    if (!no) gguf_make_kv_string(&b, "general.architecture", "llama");
    gguf_make_kv_u16(&b, "split.no", no);
    gguf_make_kv_u16(&b, "split.count", count);
    gguf_make_kv(&b, "split.tensors.count", AE_GGUF_I32, &total, 4);
    gguf_make_tensor(&b, first, 1, ne, AE_TYPE_F32, 0);
    gguf_make_tensor(&b, second, 1, ne, AE_TYPE_F32, 32);
    gguf_make_pad(&b, 32);
    for (int i = 0; i < 48; i++) ae_buf_add(&b, &(char){(char)(16 * no + i)}, 1);
    save(name, &b);
}

static const char *part_name(int no)
{
    static char name[64];
    snprintf(name, sizeof name, "m-%05d-of-00003.gguf", no + 1);
    return name;
}

static void save_set(void)
{
    static const char *const second[] = {"a", "b", "c"};
    for (uint16_t i = 0; i < 3; i++) save_part(part_name(i), i, 3, 6, second[i]);
}

static void test_split(void **state)
{
    (void)state;
    aerie_error error;
    ae_gguf *g;
    save_set();
    for (int i = 0; i < 3; i++) { /* any part opens all of them */
        assert_ok(ae_gguf_open(&g, in_folder(part_name(i)), NULL, &error));
        assert_null(gguf_check_all(g, NULL, 0));
        assert_int_equal(ae_gguf_n_files(g), 3);
        assert_int_equal(ae_gguf_n_tensors(g), 6);
        assert_int_equal(ae_gguf_n_kv(g), 4);
        assert_non_null(ae_gguf_kv_find(g, "general.architecture"));
        const ae_gguf_tensor *t = ae_gguf_tensor_find(g, "c");
        assert_int_equal(t->i_file, 2);
        assert_int_equal(t->data[0], 32 + 32);
        assert_int_equal(ae_gguf_tensor_find(g, "part.1")->i_file, 1);
        assert_int_equal(ae_gguf_tensor_find(g, "part.1")->data[0], 16);
        ae_gguf_close(g);
    }
    save_part(part_name(1), 1, 3, 6, "a"); /* a name that part 1 has */
    assert_fails(ae_gguf_open(&g, in_folder(part_name(0)), NULL, &error), AERIE_ERROR_FORMAT,
                 "m-00002-of-00003.gguf: tensor \"a\": the name occurs twice");
    save_part(part_name(1), 2, 3, 6, "b");
    assert_fails(ae_gguf_open(&g, in_folder(part_name(0)), NULL, &error), AERIE_ERROR_FORMAT,
                 "m-00002-of-00003.gguf: this file is needed as part 2 of 3 of a split model: it says that it is part 3 of 3");
    save_part(part_name(1), 1, 4, 6, "b");
    assert_fails(ae_gguf_open(&g, in_folder(part_name(0)), NULL, &error), AERIE_ERROR_FORMAT,
                 "it says that it is part 2 of 4");
    assert_fails(ae_gguf_open(&g, in_folder(part_name(1)), NULL, &error), AERIE_ERROR_FORMAT,
                 "its name must end in \"-00002-of-00004.gguf\"");
    ae_buf b = {0};
    ae_buf_adds(&b, "<html>");
    save(part_name(1), &b);
    assert_fails(ae_gguf_open(&g, in_folder(part_name(2)), NULL, &error), AERIE_ERROR_FORMAT, "perhaps an HTML page");
    unlink(in_folder(part_name(1)));
    assert_fails(ae_gguf_open(&g, in_folder(part_name(2)), NULL, &error), AERIE_ERROR_IO,
                 "m-00002-of-00003.gguf: this file is needed as part 2 of 3 of a split model");
    save_part(part_name(1), 1, 3, 7, "b");
    assert_ok(ae_gguf_open(&g, in_folder(part_name(0)), NULL, &error));
    ae_gguf_close(g);
    assert_fails(ae_gguf_open(&g, in_folder(part_name(1)), NULL, &error), AERIE_ERROR_FORMAT, "\"split.tensors.count\" is 7");
    save_part("renamed.gguf", 0, 3, 6, "a");
    assert_fails(ae_gguf_open(&g, in_folder("renamed.gguf"), NULL, &error), AERIE_ERROR_FORMAT,
                 "its name must end in \"-00001-of-00003.gguf\"");
    save_part("m-00001-of-00002.gguf", 1, 3, 6, "a");
    assert_fails(ae_gguf_open(&g, in_folder("m-00001-of-00002.gguf"), NULL, &error), AERIE_ERROR_FORMAT,
                 "must end in \"-00002-of-00003.gguf\"");
    save_part("beyond.gguf", 3, 3, 6, "a");
    assert_fails(ae_gguf_open(&g, in_folder("beyond.gguf"), NULL, &error), AERIE_ERROR_FORMAT,
                 "beyond.gguf: key \"split.no\": the value is 3");
    save_part("alone.gguf", 0, 1, 2, "a"); /* a set of one needs no such name */
    assert_ok(ae_gguf_open(&g, in_folder("alone.gguf"), NULL, &error));
    ae_gguf_close(g);
}

/* Very many names that differ in their last bytes only: found in reasonable time, and limited. */
static void test_many(void **state)
{
    (void)state;
    enum { N = 60000 };
    aerie_error error;
    ae_gguf *g;
    ae_buf b = {0};
    char name[64];
    gguf_make_header(&b, 3, N, N);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "a.long.common.beginning.of.keys.%07d", (i * 7919) % N);
        gguf_make_kv_u32(&b, name, (uint32_t)i);
    }
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "a.long.common.beginning.of.tensors.%07d", (i * 7919) % N);
        gguf_make_tensor(&b, name, 1, (const uint64_t[]){8}, AE_TYPE_F32, 32 * (uint64_t)((i * 4801) % N));
    }
    gguf_make_pad(&b, 32);
    gguf_make_zeros(&b, 32 * N);
    double start = ae_time_now();
    assert_ok(ae_gguf_open_memory(&g, b.data, b.n, "many", &error));
    for (int i = 0; i < N; i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_at(g, (size_t)i);
        snprintf(name, sizeof name, "%.*s", (int)kv->key.n, kv->key.data);
        assert_ptr_equal(ae_gguf_kv_find(g, name), kv);
    }
    double seconds = ae_time_now() - start;
    print_message("%d keys and tensors: %.3f s\n", N, seconds);
    assert_true(seconds < 10); /* generous: sanitizers, busy machines; squared time would be minutes */
    ae_gguf_close(g);
    ae_buf_clear(&b);
    gguf_make_header(&b, 3, 0, AE_GGUF_MAX_ENTRIES + 1);
    gguf_make_zeros(&b, 14 << 20);
    assert_fails(ae_gguf_open_memory(&g, b.data, b.n, "many", &error), AERIE_ERROR_LIMIT,
                 "1048577 keys; aerie reads at most 1048576");
    ae_buf_free(&b);
}

/* Vocabularies made by other programs. */
static void test_real_files(void **state)
{
    (void)state;
    const char *shared = getenv("AERIE_SHARED");
    char path[1024];
    int n = 0;
    snprintf(path, sizeof path, "%s/data/tokenizers", shared ? shared : "../shared");
    DIR *d = opendir(path);
    if (!d) {
        print_message("skip: no folder %s (set AERIE_SHARED to the folder that holds data/)\n", path);
        skip();
    }
    for (struct dirent *e; (e = readdir(d));) {
        size_t length = strlen(e->d_name);
        if (length < 5 || strcmp(e->d_name + length - 5, ".gguf")) continue;
        char file[1400];
        aerie_error error;
        ae_gguf *g;
        const ae_gguf_kv *tokens;
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        assert_ok(ae_gguf_open(&g, file, NULL, &error));
        assert_null(gguf_check_all(g, NULL, 0));
        assert_ok(ae_gguf_get_array(g, "tokenizer.ggml.tokens", true, AE_GGUF_STRING, &tokens, &error));
        assert_true(tokens->n > 1000);
        ae_gguf_close(g);
        n++;
    }
    closedir(d);
    print_message("%d vocabularies\n", n);
    assert_true(n > 0);
}

/* ---- Every allocation failing in turn -------------------------------------------------------- */

typedef aerie_status swept(void *context, aerie_error *error);

static aerie_status sweep_open(void *context, aerie_error *error)
{
    ae_gguf *g;
    aerie_status status = ae_gguf_open(&g, context, NULL, error);
    if (status == AERIE_OK) ae_gguf_close(g);
    else assert_null(g);
    return status;
}

static aerie_status sweep_read(void *context, aerie_error *error)
{
    ae_gguf *g;
    aerie_status status = ae_gguf_open(&g, context, &(ae_gguf_options){.no_mmap = true}, error);
    if (status == AERIE_OK) ae_gguf_close(g);
    else assert_null(g);
    return status;
}

static aerie_status sweep_memory(void *context, aerie_error *error)
{
    ae_buf *b = context;
    ae_gguf *g;
    aerie_status status = ae_gguf_open_memory(&g, b->data, b->n, "memory", error);
    if (status == AERIE_OK) ae_gguf_close(g);
    else assert_null(g);
    return status;
}

static aerie_status sweep_write(void *context, aerie_error *error)
{
    return write_model(context, 32, error);
}

static void sweep(const char *what, swept *run, void *context)
{
    long n = 1;
    for (int forever = 0; forever < 2; forever++) {
        for (n = 1;; n++) {
            aerie_error error = {0};
            fail_alloc_arm(n, forever);
            aerie_status status = run(context, &error);
            bool hit = fail_alloc_disarm();
            assert_int_equal(fail_alloc_live(), 0);
            if (!hit) {
                assert_int_equal(status, AERIE_OK);
                break;
            }
            assert_int_equal(status, AERIE_ERROR_MEMORY);
            assert_int_equal(error.status, AERIE_ERROR_MEMORY);
            assert_non_null(strstr(error.text, "not enough memory"));
        }
        assert_true(n > 5);
    }
    print_message("%s: %ld allocations failed in turn, once and for ever\n", what, n - 1);
}

static void test_allocation_failures(void **state)
{
    (void)state;
    aerie_error error;
    ae_buf b = {0};
    char path[512];
    snprintf(path, sizeof path, "%s", in_folder("model.gguf"));
    assert_ok(write_model(path, 32, &error));
    sweep("open", sweep_open, path);
    sweep("open without mmap", sweep_read, path);
    sweep("write", sweep_write, path);
    save_set();
    snprintf(path, sizeof path, "%s", in_folder(part_name(1)));
    sweep("open a split set", sweep_open, path);
    gguf_make_sample(&b, 1);
    sweep("open from memory", sweep_memory, &b);
    ae_buf_free(&b);
    assert_int_equal(count_files(false), 4); /* no temporary file is left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_round_trip, empty_folder),
        cmocka_unit_test_teardown(test_copy, empty_folder),
        cmocka_unit_test_teardown(test_killed_writer, empty_folder),
        cmocka_unit_test_teardown(test_writer_misuse, empty_folder),
        cmocka_unit_test_teardown(test_write_fails, empty_folder),
        cmocka_unit_test(test_typed_reads),
        cmocka_unit_test_teardown(test_files, empty_folder),
        cmocka_unit_test_teardown(test_split, empty_folder),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_real_files),
        cmocka_unit_test_teardown(test_allocation_failures, empty_folder),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
