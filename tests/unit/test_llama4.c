/* test_llama4.c - properties of Llama 4 that logits of a short text do not show: attention within chunks of positions, and the
 * temperature of queries in layers without rotation. Both begin at position 8192 of a real model; here at 16 and 7. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine_int.h"
#include "device/device.h"
#include "mkarch.h"

enum { CHUNK = 16, N = 40 };

static char folder[] = "/tmp/aerie-llama4-XXXXXX", path[64];

static int make_model(void **state)
{
    aerie_error error = {0};
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    return mkarch_write(mkarch_find("llama4"), true, path, &error) == AERIE_OK ? 0 : -1;
}

static int remove_model(void **state)
{
    (void)state;
    return unlink(path) || rmdir(folder);
}

typedef struct rig {
    ae_model *model;
    ae_backend *backend;
    ae_net *net;
    ae_engine *engine;
    float logits[N][MKARCH_VOCAB];
} rig;

static void need(aerie_status status, const aerie_error *error)
{
    if (status != AERIE_OK) fail_msg("%s", error->text);
}

static void open_rig(rig *r)
{
    aerie_error error = {0};
    need(ae_model_load(&r->model, path, NULL, &error), &error);
    need(ae_backend_open(&r->backend, NULL, "", &error), &error);
}

static void start(rig *r)
{
    aerie_error error = {0};
    const ae_engine_options o = {.n_ctx = 256, .n_seqs = 1, .n_batch = N, .n_outputs = N, .n_threads = 1};
    need(ae_net_create(&r->net, r->model, r->backend, &(ae_load_options){.n_threads = 1}, &error), &error);
    need(ae_engine_create(&r->engine, r->net, &o, &error), &error);
}

static void stop(rig *r)
{
    ae_engine_free(r->engine);
    ae_net_free(r->net);
}

static void close_rig(rig *r)
{
    ae_backend_close(r->backend);
    ae_model_free(r->model);
}

/* Logits of all rows, `step` rows a pass. */
static void run(rig *r, const int32_t *tokens, uint32_t step)
{
    aerie_error error = {0};
    (void)ae_engine_truncate(r->engine, 0, 0);
    for (uint32_t done = 0, n; done < N; done += n) {
        uint32_t first;
        n = N - done < step ? N - done : step;
        ae_engine_rows_clear(r->engine);
        need(ae_engine_add_chain(r->engine, 0, tokens + done, n, AE_EXPORT_ALL, &first, &error), &error);
        need(ae_engine_pass(r->engine, &error), &error);
        for (uint32_t i = 0; i < n; i++)
            memcpy(r->logits[done + i], ae_engine_logits(r->engine, first + i), sizeof r->logits[0]);
        assert_int_equal(ae_engine_commit(r->engine, 0, n, NULL, 0), AERIE_OK);
    }
}

/* The layers as the reader of the file sets them: three of four see a chunk and are rotated, the fourth sees everything and is
 * not. */
static void test_layers(void **state)
{
    (void)state;
    static rig r;
    open_rig(&r);
    const ae_hparams *h = &r.model->hparams;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const ae_layer_spec *s = &r.model->layers[i].spec;
        const bool full = i % 4 == 3;
        assert_int_equal(s->chunked, !full);
        assert_int_equal(s->window, full ? 0 : 8192);
        assert_int_equal(s->rope == AE_NO_ROPE, full);
        assert_int_equal(s->temperature, full);
    }
    assert_float_equal(h->temp_scale, 0.1f, 0);
    assert_float_equal(h->temp_offset, 1.0f, 0);
    assert_int_equal(h->temp_length, 8192);
    close_rig(&r);
}

/* With chunks in all layers a row depends only on the tokens of its own chunk up to itself. */
static void test_chunk_border(void **state)
{
    (void)state;
    static rig r;
    static float whole[N][MKARCH_VOCAB];
    int32_t tokens[N], other[N];
    open_rig(&r);
    for (uint32_t i = 0; i < r.model->hparams.n_layers; i++)
        r.model->layers[i].spec.window = CHUNK, r.model->layers[i].spec.chunked = true;
    start(&r);
    for (uint32_t i = 0; i < N; i++) tokens[i] = 3 + (int32_t)(i * 37 % 250);
    for (uint32_t changed = 0; changed < N; changed += 5) {
        memcpy(other, tokens, sizeof other);
        other[changed] = tokens[changed] % 250 + 7;
        run(&r, tokens, N);
        memcpy(whole, r.logits, sizeof whole);
        run(&r, other, changed % 2 ? 1 : 7);
        for (uint32_t i = 0; i < N; i++) {
            const bool sees = i >= changed && i / CHUNK == changed / CHUNK;
            if (!memcmp(whole[i], r.logits[i], sizeof whole[i]) == sees)
                fail_msg("row %u %s token %u", i, sees ? "does not see" : "sees", changed);
        }
    }
    stop(&r);
    close_rig(&r);
}

static void test_temperature(void **state)
{
    (void)state;
    static rig r;
    static float without[N][MKARCH_VOCAB];
    int32_t tokens[N];
    for (uint32_t i = 0; i < N; i++) tokens[i] = 3 + (int32_t)(i * 37 % 250);
    open_rig(&r);
    start(&r);
    run(&r, tokens, N);
    for (uint32_t i = 0; i < N; i++) assert_float_equal(r.engine->q_scale_host[i], 1.0f, 0);
    memcpy(without, r.logits, sizeof without);
    stop(&r);
    r.model->hparams.temp_length = 8;
    start(&r);
    run(&r, tokens, N);
    for (uint32_t i = 0; i < N; i++) {
        const double wanted = 1.0 + (double)0.1f * log(floor((i + 1.0) / 8.0) + 1.0);
        assert_float_equal(r.engine->q_scale_host[i], (float)wanted, 1e-6f);
        assert_int_equal(memcmp(without[i], r.logits[i], sizeof without[i]) != 0, i >= 7);
    }
    stop(&r);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers), cmocka_unit_test(test_chunk_border), cmocka_unit_test(test_temperature),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
