/* test_follow_laws.c - a rank that follows survives any command: damaged frames end with a sentence, or are harmless.
 *
 * Frames of a real run are recorded from rank 0, damaged, and given to a rank that follows. The communicator is the test's: it
 * hands out frames, and its rounds leave the buffer as it is. AERIE_TEST_FRAMES sets the number of tries. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "device/device.h"
#include "engine/commands.h"
#include "engine/engine_int.h"
#include "every.h"
#include "mkarch.h"
#include "mkmodel.h"

#define N_CTX 192
#define N_BATCH 48
#define MOST_FRAMES 64
#define WORDS (AE_COMM_FRAME / 4)

static char folder[] = "/tmp/aerie_follow_XXXXXX", path[64];

static void need(aerie_status status, const aerie_error *error)
{
    if (status != AERIE_OK) fail_msg("%s", error->text);
}

/* ---- A communicator of frames ------------------------------------------------------------------------------------- */

typedef struct tape {
    ae_comm comm;
    uint32_t frames[MOST_FRAMES][WORDS];
    uint32_t n, at;
    char why[256];
} tape;

static void no_close(ae_comm *comm)
{
    (void)comm;
}

static void no_exchange(ae_comm *comm, char *packed, const size_t *begin, ae_receivers to)
{
    (void)comm, (void)packed, (void)begin, (void)to;
}

static void frame(ae_comm *comm, void *bytes)
{
    tape *t = (tape *)comm;
    if (!comm->rank && t->n < MOST_FRAMES) memcpy(t->frames[t->n++], bytes, AE_COMM_FRAME);
    if (!comm->rank) return;
    if (t->at < t->n) memcpy(bytes, t->frames[t->at++], AE_COMM_FRAME);
    else ae_comm_fail(comm, "the frames have come to their end");
}

static void on_fail(ae_comm *comm, const char *reason)
{
    snprintf(((tape *)comm)->why, sizeof ((tape *)comm)->why, "%s", reason);
}

static const ae_comm_ops ops = {.name = "tape", .close = no_close, .exchange = no_exchange, .frame = frame, .fail = on_fail};

/* ---- A rank ---------------------------------------------------------------------------------------------------------- */

typedef struct bench {
    ae_backend *backend;
    ae_model *model;
    tape tape;
    ae_ranks *map;
    ae_net *net;
    ae_commands *commands;
    ae_engine *engine;
} bench;

static void run(bench *b)
{
    aerie_error error = {0};
    ae_engine_expect(b->engine, 3);
    ae_engine_cut(b->engine, 3); /* in a pipeline alone */
    need(ae_engine_pass(b->engine, &error), &error);
    if (ae_engine_n_rows(b->engine) % 2) (void)ae_engine_logits(b->engine, 0); /* all rows have some */
}

#include "story.inc"

static void open_rank(bench *b, uint32_t rank, uint32_t n_stages)
{
    aerie_error error = {0};
    b->tape.comm.ops = &ops, b->tape.comm.rank = rank, b->tape.comm.n_ranks = 2;
    need(ae_ranks_create(&b->map, b->model, &b->tape.comm, n_stages, NULL, &error), &error);
    need(ae_net_create(&b->net, b->model, b->backend, &(ae_load_options){.n_threads = 1, .ranks = b->map}, &error), &error);
}

static void close_rank(bench *b)
{
    ae_net_free(b->net);
    ae_ranks_free(b->map);
    ae_free(b->tape.comm.packed);
}

/* A draft by masks, as far as the model's rows may see each other. */
static void draft_masks(bench *b, uint32_t seq)
{
    aerie_error error = {0};
    ae_tree tree = {0};
    uint32_t first;
    if (!ae_engine_may_join(b->net)) return;
    for (int32_t i = 0; i < 4; i++) ae_tree_add(&tree, i - 1, 7, 1);
    ae_engine_rows_clear(b->engine);
    need(ae_engine_add_tree_from(b->engine, seq, &tree, 1, &first, &error), &error);
    ae_engine_join_rows(b->engine, first, tree.n);
    run(b);
    assert_int_equal(ae_engine_commit(b->engine, seq, 0, NULL, 0), AERIE_OK);
}

/* Records a story of two sequences. */
static void record(bench *b)
{
    aerie_error error = {0};
    int32_t tokens[N_CTX];
    need(ae_commands_open(&b->commands, &b->tape.comm, &error), &error);
    const ae_engine_options o = {.n_ctx = N_CTX, .n_seqs = 2, .n_threads = 1, .n_batch = N_BATCH, .n_outputs = N_BATCH,
                                 .n_records = 8, .n_snapshots = 3, .n_windows = 2, .n_taps = b->map->n_stages == 1,
                                 .commands = b->commands};
    need(ae_engine_create(&b->engine, b->net, &o, &error), &error);
    for (uint32_t k = 0; k < 2; k++) go_on(b, (const uint32_t[]){0, 1}, 2, 20);
    draft(b, 0, 5);
    draft_masks(b, 1);
    look(b, 1, 8);
    ae_engine_snapshot(b->engine, 1);
    const uint32_t n = ae_engine_n_live(b->engine, 0);
    for (uint32_t i = 0; i < n; i++) tokens[i] = token_of(0, i);
    ae_engine_saved s = {.n = n, .end = n};
    char *bytes = malloc(ae_engine_saved_bytes(b->engine, n, 0, false));
    assert_non_null(bytes);
    ae_engine_save_seq(b->engine, 0, &s, bytes);
    ae_engine_keep(b->engine, 0, tokens);
    ae_engine_save_prefix(b->engine, ae_engine_seq_key(b->engine, 0), tokens, &s, bytes);
    tokens[5]++;
    (void)ae_engine_load_prefix(b->engine, ae_engine_seq_key(b->engine, 0), tokens, &s, bytes);
    tokens[5]--;
    free(bytes);
    (void)ae_engine_adopt(b->engine, 0, tokens, n);
    (void)ae_engine_share(b->engine, 1, 0, ae_engine_n_live(b->engine, 0));
    go_on(b, (const uint32_t[]){0, 1}, 2, 1);
    (void)ae_engine_truncate(b->engine, 1, ae_engine_n_live(b->engine, 1) / 2);
    ae_engine_free(b->engine);
    ae_commands_close(b->commands);
    assert_in_range(b->tape.n, 2, MOST_FRAMES - 1);
}

/* Damages a few words, cuts the frames off, repeats a frame, or invents one. */
static void damage(const tape *from, tape *to, uint64_t *seed)
{
    static const uint32_t odd[] = {0, 1, 2, 7, 8, 17, 255, 256, 1023, 1024, 1u << 24, 1u << 31, UINT32_MAX, UINT32_MAX - 1};
    memcpy(to->frames, from->frames, sizeof to->frames);
    to->n = from->n;
    const uint32_t how = (uint32_t)(mk_random(seed) % 8);
    for (uint32_t k = 0; k <= mk_random(seed) % 3; k++) {
        uint32_t *f = to->frames[mk_random(seed) % to->n];
        const uint32_t used = f[0] < WORDS ? f[0] + 1 : WORDS;
        const uint64_t r = mk_random(seed);
        f[r % used] = mk_random(seed) % 2 ? odd[mk_random(seed) % (sizeof odd / sizeof *odd)]
                                          : (uint32_t)(mk_random(seed) % 40);
    }
    if (how == 0) to->n = 1 + (uint32_t)(mk_random(seed) % to->n);
    if (how == 1) memcpy(to->frames[mk_random(seed) % to->n], to->frames[mk_random(seed) % to->n], AE_COMM_FRAME);
    if (how == 2)
        for (uint32_t i = 1, at = 1 + (uint32_t)(mk_random(seed) % (to->n - 1)); i < WORDS; i++)
            to->frames[at][i] = (uint32_t)(mk_random(seed) % 20);
}

static void damage_frames(const char *arch, uint32_t n_stages, int n)
{
    aerie_error error = {0};
    bench told = {0}, b = {0};
    uint64_t seed = 11;
    int n_refused = 0;
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    need(mkarch_write(mkarch_find(arch), true, path, &error), &error);
    need(ae_model_load(&b.model, path, NULL, &error), &error);
    need(ae_backend_open(&b.backend, "cpu", NULL, &error), &error);
    told.model = b.model, told.backend = b.backend;
    open_rank(&told, 0, n_stages);
    record(&told);
    open_rank(&b, 1, n_stages);
    for (int i = -1; i < n; i++) {
        if (i < 0) memcpy(b.tape.frames, told.tape.frames, sizeof b.tape.frames), b.tape.n = told.tape.n;
        else damage(&told.tape, &b.tape, &seed);
        b.tape.at = 0;
        *b.tape.why = 0;
        atomic_store(&b.tape.comm.failed, false);
        need(ae_commands_open(&b.commands, &b.tape.comm, &error), &error);
        error.text[0] = 0;
        const aerie_status status = ae_commands_follow(b.commands, b.net, 1, &error);
        if (i < 0) need(status, &error);
        else if (status != AERIE_OK) {
            n_refused++;
            assert_true(error.text[0] && b.tape.why[0]);
        }
        ae_commands_close(b.commands);
    }
    assert_true(n_refused > n / 3);
    close_rank(&b);
    close_rank(&told);
    ae_backend_close(b.backend);
    ae_model_free(b.model);
    unlink(path);
}

static void test_damaged_frames(void **state)
{
    (void)state;
    const char *said = getenv("AERIE_TEST_FRAMES");
    const int n = said ? atoi(said) : 4000 / (AE_TEST_EVERY < 40 ? AE_TEST_EVERY : 40);
    damage_frames("qwen35", AE_RANKS_SPLIT, n / 3);
    damage_frames("gemma3", AE_RANKS_SPLIT, n / 3); /* rows see each other */
    damage_frames("llama", 2, n / 3);               /* rows in waves */
}

/* A pass in more waves than it has rows, or in waves where there are no stages, is refused. */
static void test_waves(void **state)
{
    (void)state;
    for (uint32_t n_stages = 1; n_stages <= 2; n_stages++) {
        aerie_error error = {0};
        bench told = {0}, b = {0};
        uint32_t at = 0, *words;
        snprintf(path, sizeof path, "%s/m.gguf", folder);
        need(mkarch_write(mkarch_find("llama"), true, path, &error), &error);
        need(ae_model_load(&b.model, path, NULL, &error), &error);
        need(ae_backend_open(&b.backend, "cpu", NULL, &error), &error);
        told.model = b.model, told.backend = b.backend;
        open_rank(&told, 0, n_stages);
        record(&told);
        open_rank(&b, 1, n_stages);
        memcpy(b.tape.frames, told.tape.frames, sizeof b.tape.frames), b.tape.n = told.tape.n;
        words = b.tape.frames[1] + 1; /* the first one creates the engine */
        while (words[at] != AE_COMMAND_PASS) at += 7 + words[at + 6];
        assert_true(at + 7 < WORDS);
        assert_int_equal(words[at + 4], n_stages > 1 ? 3 : 1);
        words[at + 4] = n_stages > 1 ? 41 : 2; /* of 40 rows */
        need(ae_commands_open(&b.commands, &b.tape.comm, &error), &error);
        assert_int_equal(ae_commands_follow(b.commands, b.net, 1, &error), AERIE_ERROR_INTERNAL);
        assert_non_null(strstr(error.text, "waves"));
        ae_commands_close(b.commands);
        close_rank(&b);
        close_rank(&told);
        ae_backend_close(b.backend);
        ae_model_free(b.model);
        unlink(path);
    }
}

static void *step(void *context)
{
    bench *b = context;
    ae_engine_rows_clear(b->engine); /* while the first thread runs a pass */
    return NULL;
}

/* A second thread calls during a pass: the group ends with a sentence. */
static void test_two_threads(void **state)
{
    (void)state;
    aerie_error error = {0};
    bench b = {0};
    pthread_t thread;
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    need(mkarch_write(mkarch_find("llama"), true, path, &error), &error);
    need(ae_model_load(&b.model, path, NULL, &error), &error);
    need(ae_backend_open(&b.backend, "cpu", NULL, &error), &error);
    open_rank(&b, 0, AE_RANKS_SPLIT);
    need(ae_commands_open(&b.commands, &b.tape.comm, &error), &error);
    const ae_engine_options o = {.n_ctx = N_CTX, .n_seqs = 1, .n_threads = 1, .n_batch = N_BATCH, .commands = b.commands};
    need(ae_engine_create(&b.engine, b.net, &o, &error), &error);
    step(&b);
    assert_int_equal(ae_comm_status(&b.tape.comm, NULL), AERIE_OK);
    const bool held = ae_commands_hold(b.commands); /* as a pass does */
    assert_true(held);
    step(&b);
    assert_int_equal(ae_comm_status(&b.tape.comm, NULL), AERIE_OK);
    assert_int_equal(pthread_create(&thread, NULL, step, &b), 0);
    pthread_join(thread, NULL);
    assert_int_equal(ae_comm_status(&b.tape.comm, NULL), AERIE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(b.tape.why, "two threads"));
    ae_commands_release(b.commands, held);
    ae_engine_free(b.engine);
    ae_commands_close(b.commands);
    close_rank(&b);
    ae_backend_close(b.backend);
    ae_model_free(b.model);
    unlink(path);
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
        cmocka_unit_test(test_damaged_frames),
        cmocka_unit_test(test_waves),
        cmocka_unit_test(test_two_threads),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
