/* test_split_laws.c - a model whose layers lie on two devices gives the bytes of one on one device: for every border between
 * two layers, either order of devices, and feed-forward blocks alternately on the other device.
 *
 * The devices are "cpu" and "cpu-strict": if a layer reads memory of the other device, "cpu-strict" ends the test. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "device/device.h"
#include "engine/engine_int.h"
#include "every.h"
#include "fail_alloc.h"
#include "mkarch.h"
#include "mkmodel.h"

#define N_CTX 192
#define N_SEQS 5
#define N_BATCH 48

static char folder[] = "/tmp/aerie_split_XXXXXX", path[64];

static void need(aerie_status status, const aerie_error *error)
{
    if (status != AERIE_OK) fail_msg("%s", error->text);
}

/* ---- An engine over two devices -------------------------------------------------------------------------- */

typedef struct bench {
    ae_model *model;
    ae_backend *devices[2];
    ae_net *net;
    ae_engine *engine;
    ae_buf log; /* everything that came out */
} bench;

static ae_engine_options options_for(const ae_model *m)
{
    const uint32_t n = m->hparams.n_layers;
    return (ae_engine_options){.n_ctx = N_CTX, .n_seqs = N_SEQS, .n_threads = 1, .n_batch = N_BATCH, .n_outputs = N_BATCH,
                               .n_records = 8, .n_snapshots = 6, .n_windows = 6, .n_taps = 4,
                               .taps = {0, n / 2, n, m->hparams.encoder ? 1 : AERIE_TAP_NORMED}};
}

static void open_engine(bench *b, const ae_split *split)
{
    aerie_error error = {0};
    const ae_engine_options options = options_for(b->model);
    need(ae_net_create_split(&b->net, b->model, split, &(ae_load_options){.n_threads = 1}, &error), &error);
    need(ae_engine_create(&b->engine, b->net, &options, &error), &error);
    b->log = (ae_buf){0};
}

static void close_engine(bench *b)
{
    ae_engine_free(b->engine);
    ae_net_free(b->net);
    ae_buf_free(&b->log);
}

static void open_model(bench *b, const mkarch_spec *spec, const char *first, const char *second)
{
    aerie_error error = {0};
    const char *names[2] = {first, second};
    *b = (bench){0};
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    need(mkarch_write(spec, true, path, &error), &error);
    need(ae_model_load(&b->model, path, NULL, &error), &error);
    for (int i = 0; i < 2; i++) need(ae_backend_open(&b->devices[i], names[i], NULL, &error), &error);
}

static void close_model(bench *b)
{
    ae_model_free(b->model);
    for (int i = 0; i < 2; i++) ae_backend_close(b->devices[i]);
    unlink(path);
}

/* ---- Operations ------------------------------------------------------------------------------------------ */

static void say(bench *b, const void *bytes, size_t n)
{
    ae_buf_add(&b->log, bytes, n);
    assert_false(b->log.failed);
}

/* Runs the pass; logits of rows that have them, hidden rows of all. */
static void run(bench *b)
{
    aerie_error error = {0};
    const ae_hparams *h = &b->model->hparams;
    const size_t width = (size_t)4 * h->n_embd;
    float *row = malloc(width * sizeof *row);
    assert_non_null(row);
    need(ae_engine_pass(b->engine, &error), &error);
    for (uint32_t r = 0; r < ae_engine_n_rows(b->engine); r++) {
        if (b->engine->out_index[r] >= 0) say(b, ae_engine_logits(b->engine, r), h->n_vocab * sizeof(float));
        b->net->backend->ops->download(ae_engine_stream(b->engine), row, ae_engine_features(b->engine, r), width * sizeof *row);
        say(b, row, width * sizeof *row);
    }
    free(row);
}

#include "story.inc"

/* Saves a sequence's cache and state as bytes, from which another sequence gets them. */
static void save(bench *b, uint32_t from, uint32_t to)
{
    ae_engine *e = b->engine;
    ae_kv *kv = ae_engine_kv(e);
    ae_stream *stream = ae_engine_stream(e);
    const uint32_t n = ae_engine_n_live(e, from), first = ae_kv_saved_first(kv, from, n);
    const size_t bytes = ae_kv_saved_bytes(kv, n, first), state_bytes = e->state ? ae_state_bytes(e->state) : 0;
    int32_t tokens[N_CTX];
    char *saved = malloc(bytes + 1), *state = malloc(state_bytes + 1);
    assert_true(saved && state);
    for (uint32_t i = 0; i < n; i++) tokens[i] = 1000 + (int32_t)i; /* by no other sequence */
    ae_kv_save(kv, stream, from, first, 0, n, ae_kv_bytes_at(kv, n, first, 0, saved));
    say(b, saved, bytes);
    if (e->state) assert_int_equal(ae_state_read(e->state, stream, from, state), AERIE_OK);
    say(b, state, state_bytes);
    (void)ae_engine_truncate(e, to, 0);
    ae_kv_write_prefix(kv, stream, ae_engine_seq_key(e, to), tokens, n, first, 0, n, ae_kv_bytes_at(kv, n, first, 0, saved));
    assert_int_equal(ae_kv_adopt(kv, stream, to, ae_engine_seq_key(e, to), tokens, n), n);
    if (e->state) assert_int_equal(ae_state_write(e->state, stream, to, tokens, n, state), AERIE_OK);
    free(saved);
    free(state);
}

/* Texts of different lengths, drafts, saved and shared sequences, all of which go on. */
static void story(bench *b)
{
    ae_engine *e = b->engine;
    int32_t tokens[N_CTX];
    for (uint32_t s = 0; s < N_SEQS; s++) go_on(b, &s, 1, 7 + 8 * s);
    for (int k = 0; k < 3; k++) go_on(b, (const uint32_t[]){0, 1, 2, 3, 4}, N_SEQS, 9);
    look(b, 3, 8);
    for (uint32_t k = 0; k < 3; k++) draft(b, k, 5 + k);
    go_on(b, (const uint32_t[]){0, 1, 2, 3, 4}, N_SEQS, 1);
    draft(b, 1, 77);
    save(b, 1, 4);
    go_on(b, (const uint32_t[]){1, 4}, 2, 2); /* as one: they differ by name alone */
    const uint32_t n = ae_engine_n_live(e, 2);
    for (uint32_t i = 0; i < n; i++) tokens[i] = token_of(9, i);
    ae_engine_keep(e, 2, tokens); /* preempted: its text comes back by the prefix tree, as far as it goes */
    const uint32_t back = ae_engine_adopt(e, 2, tokens, n);
    say(b, &back, sizeof back);
    go_on(b, (const uint32_t[]){2}, 1, 3);
    const uint32_t shared = ae_engine_share(e, 0, 3, ae_engine_n_live(e, 3));
    say(b, &shared, sizeof shared);
    go_on(b, (const uint32_t[]){0, 3}, 2, 2);
    draft(b, 0, 4);
    const uint32_t cut = ae_engine_truncate(e, 3, ae_engine_n_live(e, 3) - 5);
    say(b, &cut, sizeof cut);
    go_on(b, (const uint32_t[]){3}, 1, 1);
}

/* Texts of an encoder. */
static void encode(bench *b)
{
    aerie_error error = {0};
    uint32_t first;
    int32_t tokens[20];
    ae_engine_rows_clear(b->engine);
    for (uint32_t s = 0; s < 2; s++) {
        for (uint32_t i = 0; i < 20; i++) tokens[i] = token_of(s, i);
        need(ae_engine_add_text(b->engine, s, tokens, 20 - s, 8, &first, &error), &error);
    }
    run(b);
}

/* Sources of two sequences, alone in their pass and beside a text, then texts about them with drafts. */
static void write_about(bench *b)
{
    aerie_error error = {0};
    static float rows[12 * 64];
    const uint32_t n_embd = b->model->hparams.n_embd;
    uint64_t random = 17;
    assert_int_equal(n_embd, 64);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) rows[i] = ((float)(mk_random(&random) % 2001) - 1000.0f) * 1e-3f;
    for (uint32_t s = 0; s < 2; s++) {
        int32_t ids[12];
        uint32_t first;
        for (int32_t i = 0; i < 12; i++) ids[i] = -1 - i - 100 * (int32_t)s;
        ae_engine_rows_clear(b->engine);
        if (s) {
            int32_t text[4];
            for (uint32_t i = 0; i < 4; i++) text[i] = token_of(0, i);
            need(ae_engine_add_chain(b->engine, 0, text, 4, AE_EXPORT_ALL, &first, &error), &error);
        }
        need(ae_engine_add_chain(b->engine, s, ids, 12, AE_EXPORT_NONE, &first, &error), &error);
        need(ae_engine_add_given(b->engine, first, 12, rows, 0, false, &error), &error);
        run(b);
        if (s) assert_int_equal(ae_engine_commit(b->engine, 0, 4, NULL, 0), AERIE_OK);
        assert_int_equal(ae_engine_commit(b->engine, s, 12, NULL, 0), AERIE_OK);
    }
    go_on(b, (const uint32_t[]){0, 1}, 2, 5);
    draft(b, 0, 4);
    draft(b, 1, 9);
    const uint32_t cut = ae_engine_truncate(b->engine, 1, 14), shared = ae_engine_share(b->engine, 2, 0, 15);
    say(b, &cut, sizeof cut);
    say(b, &shared, sizeof shared);
    go_on(b, (const uint32_t[]){0, 1, 2}, 3, 2);
}

/* ---- Every split ------------------------------------------------------------------------------------------- */

static void act(bench *b)
{
    if (b->model->hparams.encoder) encode(b);
    else if (b->model->hparams.crosses) write_about(b);
    else story(b);
}

/* What the model gives on one device, unless that is known. */
static void want(bench *b, ae_backend *device, ae_buf *wanted)
{
    ae_split split;
    if (wanted->n) return;
    ae_split_one(&split, b->model, device);
    open_engine(b, &split);
    act(b);
    *wanted = b->log;
    b->log = (ae_buf){0};
    close_engine(b);
    assert_true(wanted->n > 1000);
}

/* Checks that the engine of the split gives the same as the one that gave `wanted`. */
static void compare(bench *b, const ae_split *split, const ae_buf *wanted, const char *arch, const char *what, uint32_t at)
{
    open_engine(b, split);
    act(b);
    size_t i = 0;
    while (i < wanted->n && i < b->log.n && wanted->data[i] == b->log.data[i]) i++;
    if (i < wanted->n || i < b->log.n)
        fail_msg("%s, %s %u: byte %zu of %zu differs", arch, what, at, i, wanted->n);
    close_engine(b);
}

/* Cases of an architecture are compared with what it gives on the CPU; without cases (in a sample) nothing of it runs. */
static void walk(const char *arch, int every)
{
    static const char *const orders[2][2] = {{"cpu", "cpu-strict"}, {"cpu-strict", "cpu"}};
    aerie_error error = {0};
    static int n_cases;
    ae_buf wanted = {0};
    for (int order = 0; order < 2; order++) {
        bench b;
        ae_split split;
        open_model(&b, mkarch_find(arch), orders[order][0], orders[order][1]);
        const uint32_t n_layers = b.model->hparams.n_layers;
        for (uint32_t at = 0; at <= n_layers + 1; at++) {
            ae_split_layers(&split, b.model, b.devices, (const uint32_t[]){0, at}, 2);
            if (n_cases++ % every) continue;
            want(&b, b.devices[order], &wanted);
            compare(&b, &split, &wanted, arch, "a border before layer", at);
        }
        bool whole = b.model->hparams.parallel || b.model->hparams.keeps_input;
        if (b.model->layers[0].spec.ffn == AE_FFN_CHANNEL_MIX) { /* it shares the state of its mixer */
            whole = true;
            ae_split_one(&split, b.model, b.devices[0]);
            assert_int_equal(ae_split_set_ffn(&split, b.model, 0, b.devices[1], &error), AERIE_ERROR_UNSUPPORTED);
            assert_non_null(strstr(error.text, "channel mix"));
        }
        for (uint32_t at = 0; !whole && at <= n_layers; at++) { /* one block by itself, then every other */
            ae_split_one(&split, b.model, b.devices[0]);
            for (uint32_t i = at < n_layers ? at : 0; i < n_layers; i += at < n_layers ? n_layers : 2)
                need(ae_split_set_ffn(&split, b.model, i, b.devices[1], &error), &error);
            if (n_cases++ % every) continue;
            want(&b, b.devices[order], &wanted);
            compare(&b, &split, &wanted, arch, "the block of layer", at);
        }
        close_model(&b);
    }
    ae_buf_free(&wanted);
}

/* Plain; windows; keys shared between layers, embeddings for layers; experts; experts beside dense blocks; latent attention;
 * recurrent layers of three kinds; temperatures; parallel blocks; an encoder; choices of positions that layers share. */
static const char *const kinds[] = {"llama",     "gemma3", "gemma4", "gemma3n", "qwen3moe", "gemma4-moe", "deepseek2",
                                    "qwen35",    "lfm2",   "granitehybrid-moe", "mistral3", "command-r",  "bert",
                                    "modern-bert", "glm-dsa-shared", "dots3note", "minimax-m3", "deepseek4", "t5",
                                    "kimi-k3", "glm5-next", "qwen4exp"};

static void test_kinds(void **state)
{
    (void)state;
    const int every = AE_TEST_EVERY > 4 ? AE_TEST_EVERY / 4 : 1;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) walk(kinds[i], every);
}

static void test_every_architecture(void **state)
{
    (void)state;
    for (size_t i = 0; i < mkarch_n_specs; i++) walk(mkarch_specs[i].name, 2 * AE_TEST_EVERY);
}

/* A GPU, or its emulation: AERIE_TEST_DEVICE, or "emu" where the build has it. */
static void test_gpu(void **state)
{
    static const char *const archs[] = {"llama", "qwen35", "deepseek2", "qwen3moe"};
    const char *said = getenv("AERIE_TEST_DEVICE"), *device = said && *said ? said : "emu";
    aerie_error error = {0};
    (void)state;
    if (ae_device_check(device, &error) != AERIE_OK) {
        print_message("skip: %s\n", error.text);
        skip();
    }
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i += AE_TEST_EVERY > 1 && strcmp(device, "emu") == 0 ? 2 : 1) {
        bench b;
        ae_split split;
        open_model(&b, mkarch_find(archs[i]), "cpu", device);
        const uint32_t n_layers = b.model->hparams.n_layers;
        ae_buf wanted = {0};
        want(&b, b.devices[0], &wanted);
        ae_split_layers(&split, b.model, b.devices, (const uint32_t[]){0, n_layers - 1}, 2);
        compare(&b, &split, &wanted, archs[i], "the GPU from layer", n_layers - 1);
        ae_split_one(&split, b.model, b.devices[1]);
        need(ae_split_set_ffn(&split, b.model, n_layers - 1, b.devices[0], &error), &error);
        if (strcmp(device, "emu")) compare(&b, &split, &wanted, archs[i], "the GPU but for the block of layer", n_layers - 1);
        ae_buf_free(&wanted);
        close_model(&b);
    }
}

/* ---- Layers that read each other stay together -------------------------------------------------------------- */

static void test_borders(void **state)
{
    (void)state;
    bench b;
    ae_split split;
    open_model(&b, mkarch_find("gemma4"), "cpu", "cpu-strict");
    const uint32_t n_layers = b.model->hparams.n_layers;
    for (uint32_t at = 0; at <= n_layers + 1; at++) {
        uint32_t n_second = 0;
        ae_split_layers(&split, b.model, b.devices, (const uint32_t[]){0, at}, 2);
        for (uint32_t i = 0; i < n_layers; i++) {
            const ae_layer_spec *s = &b.model->layers[i].spec;
            if (s->mixer == AE_MIXER_ATTENTION) assert_int_equal(split.mixer[i], split.mixer[s->kv_from]);
            n_second += split.devices[split.mixer[i]] == b.devices[1];
        }
        assert_true(n_second <= (at < n_layers ? n_layers - at : 0));
        assert_ptr_equal(split.devices[split.output], b.devices[at <= n_layers]);
        assert_int_equal(split.n_devices, at > 0 && at <= n_layers ? 2 : 1);
    }
    close_model(&b);
}

/* ---- What it takes of memory ---------------------------------------------------------------------------------- */

static void test_plans(void **state)
{
    (void)state;
    aerie_error error = {0};
    bench b;
    open_model(&b, mkarch_find("qwen35"), "cpu", "cpu-strict");
    const ae_engine_options options = options_for(b.model);
    const ae_load_options load = {.n_threads = 1};
    const uint32_t n_layers = b.model->hparams.n_layers;
    size_t whole, one = ae_engine_plan_bytes(b.model, b.devices[0], &options), last = 0;
    need(ae_net_plan_bytes(&whole, b.model, b.devices[0], &load, &error), &error);
    for (uint32_t at = 1; at <= n_layers; at++) {
        ae_split split;
        size_t weights[2], on[2];
        ae_split_layers(&split, b.model, b.devices, (const uint32_t[]){0, at}, 2);
        need(ae_net_plan_split(weights, b.model, &split, &load, &error), &error);
        assert_true(weights[0] > last && weights[0] + weights[1] >= whole);
        last = weights[0];
        const size_t both = ae_engine_plan_split(b.model, &split, &options, on);
        assert_true(both >= one && on[0] + on[1] <= both && on[0] && on[1]);
    }
    close_model(&b);
}

/* ---- Passes allocate nothing ------------------------------------------------------------------------------------ */

static void test_no_allocation(void **state)
{
    (void)state;
    bench b;
    ae_split split;
    const int n_passes = AE_TEST_EVERY > 1 ? 2000 : 10000;
    const int32_t token = 7;
    open_model(&b, mkarch_find("llama-moe"), "cpu", "cpu-strict");
    ae_split_layers(&split, b.model, b.devices, (const uint32_t[]){0, 2}, 2);
    aerie_error error = {0};
    need(ae_split_set_ffn(&split, b.model, 0, b.devices[1], &error), &error);
    open_engine(&b, &split);
    for (int i = 0; i < n_passes + 2; i++) {
        if (i == 2) fail_alloc_arm(0, false);
        ae_engine_rows_clear(b.engine);
        add(&b, 0, &token, 1);
        need(ae_engine_pass(b.engine, &error), &error);
        (void)ae_engine_logits(b.engine, 0);
        commit(&b, 0, 1, NULL, 0);
        if (ae_engine_n_live(b.engine, 0) == N_CTX) (void)ae_engine_truncate(b.engine, 0, 0);
    }
    (void)fail_alloc_disarm();
    assert_int_equal(fail_alloc_calls(), 0);
    close_engine(&b);
    close_model(&b);
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
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_every_architecture),
        cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_borders),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_no_allocation),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
