/* test_pass_laws.c - passes that a device records and replays: equal keys mean equal operations with equal arguments, and
 * nothing passes between host and device within a pass. The backend "cpu-strict" checks it; its own check is tested first.
 * Then its streams, which run late. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/device.h"
#include "engine/engine.h"
#include "every.h"
#include "mkarch.h"
#include "model/model.h"

static char folder[] = "/tmp/aerie_pass_XXXXXX", path[64];

static void need(aerie_status status, const aerie_error *error)
{
    if (status != AERIE_OK) fail_msg("%s", error->text);
}

/* ---- The check ------------------------------------------------------------------------------------------ */

typedef struct strict {
    ae_backend *backend;
    const ae_backend_ops *ops;
    ae_stream *stream;
    ae_pool *pool;
    float *x, *y; /* on the device, [4][16] each */
} strict;

static strict strict_open(void)
{
    aerie_error error = {0};
    strict s;
    need(ae_backend_open(&s.backend, "cpu-strict", "ref", &error), &error);
    need(ae_pool_create(&s.pool, 1, &error), &error);
    s.ops = s.backend->ops;
    need(s.ops->stream_create(s.backend, &(ae_stream_options){.n_threads = 1, .max_rows = 4, .max_in = 32, .pool = s.pool},
                              &s.stream, &error),
         &error);
    s.x = s.ops->alloc(s.backend, 64 * sizeof *s.x);
    s.y = s.ops->alloc(s.backend, 64 * sizeof *s.y);
    assert_true(s.x && s.y);
    return s;
}

static void strict_close(strict *s)
{
    s->ops->free(s->backend, s->x, 64 * sizeof *s->x);
    s->ops->free(s->backend, s->y, 64 * sizeof *s->y);
    s->ops->stream_free(s->stream);
    ae_pool_free(s->pool);
    ae_backend_close(s->backend);
}

static void scale(const strict *s, float a)
{
    s->ops->map(s->stream, &(ae_map){.kind = AE_MAP_SCALE, .n_rows = 4, .dim = 16, .x = s->x, .x_stride = 16, .a = a});
}

static void copy(const strict *s, const int32_t *host_rows)
{
    s->ops->copy(s->stream, &(ae_copy){.n = 4, .dim = 16, .x = s->x, .x_stride = 16, .y = s->y, .y_stride = 16,
                                       .host_rows = host_rows});
}

/* The sync after a pass; "": there was no fault. */
static void expect(const strict *s, const char *text)
{
    aerie_error error = {0};
    const aerie_status status = s->ops->sync(s->stream, &error);
    if (!*text) need(status, &error);
    else assert_int_equal(status, AERIE_ERROR_INTERNAL);
    if (!strstr(error.text, text)) fail_msg("\"%s\" does not contain \"%s\"", error.text, text);
}

static void pass(const strict *s, uint64_t key, float a, const int32_t *rows)
{
    assert_true(s->ops->pass_begin(s->stream, key));
    scale(s, a);
    if (rows) copy(s, rows);
    s->ops->pass_end(s->stream);
}

static void test_the_check(void **state)
{
    (void)state;
    strict s = strict_open();
    const int32_t rows[4] = {0, 1, 2, 3}, equal[4] = {0, 1, 2, 3}, others[4] = {3, 2, 1, 0};
    float bytes[4] = {0};
    pass(&s, 1, 2.0f, rows);
    expect(&s, "");
    pass(&s, 2, 3.0f, others);
    expect(&s, "");
    pass(&s, 1, 2.0f, equal);
    expect(&s, "");
    pass(&s, 1, 3.0f, rows);
    expect(&s, "operation 0 of a pass, map, has other arguments");
    pass(&s, 1, 2.0f, others);
    expect(&s, "operation 1 of a pass, copy, has other arguments");
    pass(&s, 1, 2.0f, NULL);
    expect(&s, "a pass ended after 1 operations; an earlier one with the same key had 2, the next of them copy");
    pass(&s, 3, 2.0f, NULL);
    pass(&s, 3, 2.0f, rows);
    expect(&s, "operation 1 of a pass is copy; an earlier pass with the same key had 1 operations");
    assert_true(s.ops->pass_begin(s.stream, 3));
    copy(&s, rows);
    s.ops->pass_end(s.stream);
    expect(&s, "operation 0 of a pass is copy; in an earlier pass with the same key it was map");
    assert_true(s.ops->pass_begin(s.stream, 4));
    s.ops->upload(s.stream, s.x, bytes, sizeof bytes);
    s.ops->pass_end(s.stream);
    expect(&s, "upload inside a pass");
    assert_true(s.ops->pass_begin(s.stream, 5));
    s.ops->download(s.stream, bytes, s.x, sizeof bytes);
    s.ops->pass_end(s.stream);
    expect(&s, "download inside a pass");
    pass(&s, 1, 2.0f, rows); /* a failed pass is not compared with others */
    scale(&s, 5.0f);         /* nor are operations outside passes */
    s.ops->upload(s.stream, s.x, bytes, sizeof bytes);
    expect(&s, "");
    strict_close(&s);
}

/* ---- What the engine's passes are ----------------------------------------------------------------------- */

#define N_CTX 64

/* Chains of `n` rows of each of n_seqs sequences, all of which give logits. */
static void chains(ae_engine *e, uint32_t n_seqs, uint32_t n, uint32_t from)
{
    aerie_error error = {0};
    const int32_t tokens[4] = {1, 2, 3, 4};
    uint32_t first;
    ae_engine_rows_clear(e);
    for (uint32_t i = 0; i < n_seqs; i++)
        need(ae_engine_add_chain(e, from + i, tokens, n, AE_EXPORT_ALL, &first, &error), &error);
    need(ae_engine_pass(e, &error), &error);
    for (uint32_t i = 0; i < n_seqs; i++) need(ae_engine_commit(e, from + i, n, NULL, 0), &error);
}

/* Passes of an architecture with equal numbers of rows and outputs, but other sequences and positions. */
static void walk(const char *arch)
{
    aerie_error error = {0};
    ae_model *model;
    ae_backend *backend;
    ae_net *net;
    ae_engine *engine;
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    need(mkarch_write(mkarch_find(arch), true, path, &error), &error);
    need(ae_model_load(&model, path, NULL, &error), &error);
    need(ae_backend_open(&backend, "cpu-strict", NULL, &error), &error);
    need(ae_net_create(&net, model, backend, &(ae_load_options){.n_threads = 1}, &error), &error);
    need(ae_engine_create(&engine, net, &(ae_engine_options){.n_ctx = N_CTX, .n_seqs = 4, .n_threads = 1}, &error), &error);
    for (int round = 0; round < 3; round++) {
        chains(engine, 4, 1, 0);
        chains(engine, 2, 2, 1);
        chains(engine, 1, 4, 3);
        chains(engine, 2, 2, 0);
    }
    ae_engine_free(engine);
    ae_net_free(net);
    ae_backend_close(backend);
    ae_model_free(model);
    unlink(path);
}

static void test_the_engine(void **state)
{
    /* plain; with windows; with experts; recurrent layers; temperatures of queries */
    static const char *const archs[] = {"llama", "gemma3", "qwen3moe", "qwen35", "mistral3", "llama4"};
    (void)state;
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) walk(archs[i]);
}

/* ---- Streams ------------------------------------------------------------------------------------------------ */

/* Two streams have no order unless it is requested, and arguments of a call may change after it. */
static void test_streams_run_late(void **state)
{
    (void)state;
    strict s = strict_open();
    aerie_error error = {0};
    ae_stream *other;
    need(s.ops->stream_create(s.backend, &(ae_stream_options){.n_threads = 1, .max_rows = 4, .max_in = 32, .pool = s.pool},
                              &other, &error),
         &error);
    const ae_copy copied = {.n = 4, .dim = 16, .x = s.x, .x_stride = 16, .y = s.y, .y_stride = 16};
    float bytes[64], got[64];
    int32_t rows[4] = {3, 2, 1, 0};
    for (int i = 0; i < 64; i++) bytes[i] = (float)i;
    s.ops->upload(s.stream, s.x, bytes, sizeof bytes);
    s.ops->copy(other, &copied); /* before its input is ready */
    s.ops->download(other, got, s.y, sizeof got);
    for (int i = 0; i < 64; i++) assert_true(got[i] == 0);
    s.ops->wait(other, s.stream);
    s.ops->copy(other, &copied);
    s.ops->download(other, got, s.y, sizeof got);
    assert_memory_equal(got, bytes, sizeof got);
    s.ops->upload(s.stream, s.x, bytes, sizeof bytes);
    copy(&s, rows);
    const uint32_t begin = s.ops->mark(s.stream);
    scale(&s, 2);
    const uint32_t end = s.ops->mark(s.stream);
    memset(bytes, 0, sizeof bytes);
    memset(rows, 0, sizeof rows);
    s.ops->download(s.stream, got, s.y, sizeof got);
    for (int i = 0; i < 64; i++) assert_true(got[i] == (float)((3 - i / 16) * 16 + i % 16));
    s.ops->download(s.stream, got, s.x, sizeof got);
    for (int i = 0; i < 64; i++) assert_true(got[i] == 2 * (float)i);
    expect(&s, "");
    assert_true(s.ops->elapsed(s.stream, begin, end) > 0);
    copy(&s, rows); /* nobody waits for it */
    s.ops->stream_free(other);
    strict_close(&s);
}

static int make(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}

static int drop(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_check),
        cmocka_unit_test(test_the_engine),
        cmocka_unit_test(test_streams_run_late),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
