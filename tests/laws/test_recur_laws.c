/* test_recur_laws.c - law 1 for layers that keep a state: logits and states, compared bit for bit.
 *
 * A model of each kind of recurrent layer. "Plain" is always: one committed row at a time, by the reference kernels on one
 * thread; the others run at the best level, on two. States are compared as their canonical bytes.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/cpu/cpu_int.h"
#include "device/device.h"
#include "engine/engine_int.h"
#include "every.h"
#include "mkarch.h"
#include "mkmodel.h"

static const char *const names[] = {"qwen35", "qwen3next-fused", "nemotron_h", "granitehybrid-moe", "lfm2"};
#define N_NAMES (sizeof names / sizeof names[0])

#define SKIP (AE_TEST_EVERY > 4 ? 2 : 1) /* of models, seeds: every other one where tests run slowly */

enum { N = 96, V = MKARCH_VOCAB, N_RECORDS = 24, N_SNAPSHOTS = 6 };

static char folder[] = "/tmp/aerie_recur_XXXXXX";
static int32_t tokens[N];

typedef struct rig {
    ae_model *model;
    ae_backend *backend;
    ae_net *net;
    ae_engine *engine;
} rig;

/* What plain decoding gives. */
static struct plain {
    float logits[N][V];
    uint8_t *states; /* [N + 1][state_bytes] after so many tokens */
    size_t state_bytes;
} plains[N_NAMES];

static void need(aerie_status status, const aerie_error *error)
{
    if (status != AERIE_OK) fail_msg("%s", error->text);
}

static void rig_open(rig *r, size_t i, const char *level, uint32_t n_threads)
{
    aerie_error error = {0};
    char path[96];
    snprintf(path, sizeof path, "%s/%s.gguf", folder, names[i]);
    *r = (rig){0};
    const ae_engine_options options = {.n_ctx = 2 * N, .n_seqs = 3, .n_batch = 3 * (N + AERIE_MAX_DRAFT),
                                       .n_threads = n_threads,
                                       .n_outputs = 3 * (N + AERIE_MAX_DRAFT), .n_records = N_RECORDS,
                                       .n_snapshots = N_SNAPSHOTS};
    need(ae_model_load(&r->model, path, NULL, &error), &error);
    need(ae_backend_open(&r->backend, NULL, level, &error), &error);
    need(ae_net_create(&r->net, r->model, r->backend, &(ae_load_options){.n_threads = n_threads}, &error), &error);
    need(ae_engine_create(&r->engine, r->net, &options, &error), &error);
    assert_non_null(r->engine->state);
}

static void rig_close(rig *r)
{
    ae_engine_free(r->engine);
    ae_net_free(r->net);
    ae_backend_close(r->backend);
    ae_model_free(r->model);
}

static const char *failing; /* the case, for messages */

/* Checks that row `row` of the pass has the logits of plain decoding at that position. */
static void check_row(const rig *r, size_t i, uint32_t row, uint32_t position)
{
    const float *got = ae_engine_logits(r->engine, row);
    if (memcmp(got, plains[i].logits[position], sizeof plains[i].logits[0]))
        fail_msg("%s: %s: logits at position %u differ: %a, must be %a", names[i], failing, position, (double)got[0],
                 (double)plains[i].logits[position][0]);
}

static void check_state(const rig *r, size_t i, uint32_t seq)
{
    const uint32_t n = ae_engine_n_live(r->engine, seq);
    uint8_t *bytes = malloc(plains[i].state_bytes);
    assert_non_null(bytes);
    assert_int_equal(ae_state_n_live(r->engine->state, seq), n);
    assert_int_equal(ae_state_read(r->engine->state, ae_engine_stream(r->engine), seq, bytes), AERIE_OK);
    if (memcmp(bytes, plains[i].states + n * plains[i].state_bytes, plains[i].state_bytes))
        fail_msg("%s: %s: the state after %u tokens differs", names[i], failing, n);
    free(bytes);
}

/* Adds the next n true tokens of a sequence. */
static uint32_t add(rig *r, uint32_t seq, uint32_t n)
{
    aerie_error error = {0};
    uint32_t first;
    need(ae_engine_add_chain(r->engine, seq, tokens + ae_engine_n_live(r->engine, seq), n, AE_EXPORT_ALL, &first, &error),
         &error);
    return first;
}

static void pass(rig *r)
{
    aerie_error error = {0};
    need(ae_engine_pass(r->engine, &error), &error);
}

static void chain(rig *r, size_t i, uint32_t seq, uint32_t n)
{
    const uint32_t live = ae_engine_n_live(r->engine, seq);
    ae_engine_rows_clear(r->engine);
    const uint32_t first = add(r, seq, n);
    pass(r);
    for (uint32_t k = 0; k < n; k++) check_row(r, i, first + k, live + k);
    assert_int_equal(ae_engine_commit(r->engine, seq, n, NULL, 0), AERIE_OK);
}

/* ---- Rounds of drafts ------------------------------------------------------------------------------- */

typedef struct round {
    ae_tree tree;
    int32_t path[AERIE_MAX_DRAFT]; /* nodes that carry the true tokens */
    uint32_t n_path, first_chain, first_tree, n_chain;
} round_;

/* A tree of up to n nodes with `depth` true ones in a row. bushy 0: a chain. */
static void grow(ae_tree *tree, uint32_t n, uint32_t position, uint32_t depth, uint32_t bushy, uint64_t *state)
{
    int32_t good = -1;
    tree->n = 0;
    for (uint32_t done = 0, tries = 0; tree->n < n && tries < 4 * n; tries++) {
        const uint64_t x = mk_random(state);
        if (done < depth && position + done < N && (!bushy || x % 3 == 0 || tries > 2 * n)) {
            good = ae_tree_add(tree, good, tokens[position + done], 0.5f);
            if (good < 0) return; /* a wrong node has the true token by chance: stop here */
            done++;
            continue;
        }
        if (!bushy && done < depth) continue;
        const int32_t parent = bushy ? (int32_t)(x >> 8) % ((int32_t)tree->n + 1) - 1 : (int32_t)tree->n - 1;
        ae_tree_add(tree, parent < -1 ? -1 : parent, (int32_t)((x >> 40) % V), 0.5f);
    }
}

static void add_round(rig *r, uint32_t seq, uint32_t n_chain, uint32_t n_nodes, uint32_t bushy, uint64_t *state, round_ *x)
{
    aerie_error error = {0};
    const uint32_t position = ae_engine_n_live(r->engine, seq) + n_chain;
    grow(&x->tree, n_nodes, position, (uint32_t)(mk_random(state) % 7), bushy, state);
    x->n_chain = n_chain;
    x->first_chain = n_chain ? add(r, seq, n_chain) : 0;
    need(ae_engine_add_tree(r->engine, seq, &x->tree, &x->first_tree, &error), &error);
    x->n_path = 0;
    for (int32_t node = -1; position + x->n_path < N; x->n_path++) {
        node = ae_tree_child(&x->tree, node, tokens[position + x->n_path]);
        if (node < 0) break;
        x->path[x->n_path] = node;
    }
}

static void end_round(rig *r, size_t i, uint32_t seq, const round_ *x, uint32_t n_accepted)
{
    const uint32_t live = ae_engine_n_live(r->engine, seq);
    for (uint32_t k = 0; k < x->n_chain; k++) check_row(r, i, x->first_chain + k, live + k);
    for (uint32_t k = 0; k < x->n_path; k++)
        check_row(r, i, x->first_tree + (uint32_t)x->path[k], live + x->n_chain + k);
    assert_int_equal(ae_engine_commit(r->engine, seq, x->n_chain, x->path, n_accepted), AERIE_OK);
}

static uint32_t left(const rig *r, uint32_t seq)
{
    return N - ae_engine_n_live(r->engine, seq);
}

static uint32_t at_most(uint64_t x, uint32_t n)
{
    return (uint32_t)(x % (n + 1));
}

/* ---- The laws -------------------------------------------------------------------------------------------- */

static void test_splits(void **state)
{
    (void)state;
    uint64_t random = 11;
    failing = "splits into passes";
    for (size_t i = 0; i < N_NAMES; i += SKIP) {
        static const char *const levels[] = {"ref", NULL, "avx2"};
        for (uint32_t how = 0; how < 9; how += 2 * SKIP - 1) {
            rig r;
            rig_open(&r, i, levels[how % (sizeof levels / sizeof *levels)], 1 + how % 3);
            while (left(&r, 0)) {
                const uint32_t most = how < 2 ? N : how < 4 ? 1 : how < 8 ? 5 : 40;
                const uint32_t n = 1 + at_most(mk_random(&random), (most < left(&r, 0) ? most : left(&r, 0)) - 1);
                chain(&r, i, 0, how < 2 ? left(&r, 0) : n);
            }
            check_state(&r, i, 0);
            rig_close(&r);
        }
    }
}

/* Drafts accepted and rejected, records of rejected rows overwritten, several sequences at once. */
static void run_rounds(size_t i, uint32_t bushy, uint32_t n_seqs, bool poison, uint64_t seed)
{
    rig r;
    uint64_t random = seed;
    rig_open(&r, i, NULL, 2);
    for (uint32_t seq = 0; seq < n_seqs; seq++) chain(&r, i, seq, 1 + seq);
    for (uint32_t turn = 0; turn < 50; turn++) {
        round_ x[3];
        bool runs[3] = {false};
        uint32_t n_running = 0;
        ae_engine_rows_clear(r.engine);
        for (uint32_t seq = 0; seq < n_seqs; seq++) {
            const uint32_t most = left(&r, seq) < 4 ? left(&r, seq) : 4;
            runs[seq] = left(&r, seq) && (n_seqs == 1 || mk_random(&random) % 4);
            if (!runs[seq]) continue;
            n_running++;
            add_round(&r, seq, at_most(mk_random(&random), most), 1 + at_most(mk_random(&random), N_RECORDS - 1), bushy,
                      &random, &x[seq]);
        }
        if (!n_running) continue;
        pass(&r);
        for (uint32_t seq = 0; seq < n_seqs; seq++) {
            if (!runs[seq]) continue;
            end_round(&r, i, seq, &x[seq], mk_random(&random) % 3 ? x[seq].n_path : at_most(mk_random(&random), x[seq].n_path));
            if (mk_random(&random) % 4 == 0) check_state(&r, i, seq); /* advances the plane, too */
        }
        if (poison) { /* the records that the next pass may read are kept */
            size_t n;
            float *records = ae_cpu_state_records(ae_state_store_get(r.engine->state), &n);
            const size_t one = n / (3 * N_RECORDS);
            for (uint32_t seq = 0; seq < n_seqs; seq++)
                for (uint32_t k = 0; k < N_RECORDS; k++) {
                    bool accepted = !runs[seq];
                    for (uint32_t a = 0; runs[seq] && a < x[seq].n_path; a++)
                        accepted = accepted || x[seq].path[a] == (int32_t)k;
                    for (size_t f = 0; !accepted && f < one; f++) records[((size_t)seq * N_RECORDS + k) * one + f] = NAN;
                }
        }
    }
    for (uint32_t seq = 0; seq < n_seqs; seq++) {
        if (left(&r, seq)) chain(&r, i, seq, left(&r, seq));
        check_state(&r, i, seq);
    }
    rig_close(&r);
}

static void test_drafts(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i += SKIP)
        for (uint64_t seed = 1; seed <= 2; seed += SKIP) {
            failing = "chains accepted and rejected";
            run_rounds(i, 0, 1, false, seed);
            failing = "trees accepted and rejected";
            run_rounds(i, 1, 1, false, seed);
        }
}

static void test_sequences(void **state)
{
    (void)state;
    failing = "sequences side by side";
    for (size_t i = 0; i < N_NAMES; i += SKIP)
        for (uint64_t seed = 1; seed <= 2; seed += SKIP) run_rounds(i, (uint32_t)seed % 2, 3, false, seed);
}

static void test_poison(void **state)
{
    (void)state;
    failing = "records of rejected rows overwritten";
    for (size_t i = 0; i < N_NAMES; i += SKIP)
        for (uint64_t seed = 1; seed <= 2; seed += SKIP) run_rounds(i, 1, 1 + (uint32_t)seed % 2, true, seed);
}

/* Sequences are cut anywhere, and computed again from the position that remains. */
static void test_snapshots(void **state)
{
    (void)state;
    failing = "return to a snapshot";
    for (size_t i = 0; i < N_NAMES; i += SKIP) {
        rig r;
        uint64_t random = 5;
        bool kept[N + 1] = {true};
        rig_open(&r, i, NULL, 2);
        for (uint32_t turn = 0; turn < 60; turn++) {
            const uint32_t most = left(&r, 0) < 12 ? left(&r, 0) : 12;
            if (most) chain(&r, i, 0, 1 + at_most(mk_random(&random), most - 1));
            const uint32_t live = ae_engine_n_live(r.engine, 0), n = at_most(mk_random(&random), live);
            if (turn % 10 < N_SNAPSHOTS - 1) ae_engine_snapshot(r.engine, 0), kept[live] = true;
            check_state(&r, i, 0);
            const uint32_t landing = ae_engine_landing(r.engine, 0, n);
            assert_true(landing <= n && kept[landing]);
            assert_int_equal(ae_engine_truncate(r.engine, 0, n), landing);
            check_state(&r, i, 0);
        }
        rig_close(&r);
    }
}

/* Records that were not absorbed yet are dropped one by one. */
static void test_cut_records(void **state)
{
    (void)state;
    failing = "accepted rows cut again";
    for (size_t i = 0; i < N_NAMES; i += SKIP)
        for (uint32_t cut = 0; cut <= 5; cut++) {
            rig r;
            round_ x;
            aerie_error error = {0};
            rig_open(&r, i, NULL, 2);
            chain(&r, i, 0, 7);
            ae_engine_rows_clear(r.engine);
            x.tree.n = 0;
            for (int32_t k = 0; k < 5; k++) x.path[k] = ae_tree_add(&x.tree, k - 1, tokens[7 + k], 0.5f);
            need(ae_engine_add_tree(r.engine, 0, &x.tree, &x.first_tree, &error), &error);
            pass(&r);
            assert_int_equal(ae_engine_commit(r.engine, 0, 0, x.path, 5), AERIE_OK);
            assert_int_equal(ae_engine_truncate(r.engine, 0, 12 - cut), 12 - cut);
            if (cut % 2) check_state(&r, i, 0);
            chain(&r, i, 0, 9);
            check_state(&r, i, 0);
            rig_close(&r);
        }
}

static void test_forks(void **state)
{
    (void)state;
    failing = "forks and written states";
    for (size_t i = 0; i < N_NAMES; i += SKIP)
        for (uint32_t n = 1; n < 70; n += 17) {
            rig r;
            rig_open(&r, i, NULL, 2);
            chain(&r, i, 0, n);
            assert_int_equal(ae_engine_share(r.engine, 1, 0, n), n);
            chain(&r, i, 1, 8);
            check_state(&r, i, 0);
            check_state(&r, i, 1);
            assert_int_equal(ae_engine_share(r.engine, 2, 1, n + 3), 0); /* there is no state of that position */
            ae_engine_snapshot(r.engine, 0);
            assert_int_equal(ae_engine_share(r.engine, 2, 1, n + 3), n); /* another's snapshot will do */
            chain(&r, i, 2, 5);
            check_state(&r, i, 2);
            chain(&r, i, 0, 8);
            /* ended, and begun again */
            ae_engine_keep(r.engine, 0, tokens);
            assert_int_equal(ae_engine_match(r.engine, (ae_kv_key){0}, tokens, n + 7), n);
            assert_int_equal(ae_engine_adopt(r.engine, 0, tokens, n + 8), n + 8);
            check_state(&r, i, 0);
            chain(&r, i, 0, 4);
            /* through bytes */
            uint8_t *bytes = malloc(plains[i].state_bytes);
            assert_non_null(bytes);
            assert_int_equal(ae_state_bytes(r.engine->state), plains[i].state_bytes);
            assert_int_equal(ae_state_read(r.engine->state, ae_engine_stream(r.engine), 0, bytes), AERIE_OK);
            assert_int_equal(ae_state_write(r.engine->state, ae_engine_stream(r.engine), 2, tokens, n + 12, bytes), AERIE_OK);
            assert_int_equal(ae_state_n_live(r.engine->state, 2), n + 12);
            free(bytes);
            ae_engine_forget_prefixes(r.engine);
            assert_int_equal(ae_engine_match(r.engine, (ae_kv_key){0}, tokens, n + 12), 0);
            rig_close(&r);
        }
}

/* Prompts shorter than the convolution, then one by one. */
static void test_short(void **state)
{
    (void)state;
    failing = "short prompts";
    for (size_t i = 0; i < N_NAMES; i += SKIP)
        for (uint32_t n = 1; n <= 4; n++) {
            rig r;
            rig_open(&r, i, NULL, 2);
            chain(&r, i, 0, n);
            check_state(&r, i, 0);
            for (uint32_t k = 0; k < 6; k++) chain(&r, i, 0, 1);
            check_state(&r, i, 0);
            rig_close(&r);
        }
}

/* A tree whose true path leaves a wrong one at each depth, and whose leaf is the last node. */
static void test_branch(void **state)
{
    (void)state;
    failing = "a leaf at a branch accepted";
    for (size_t i = 0; i < N_NAMES; i += SKIP)
        for (uint32_t depth = 1; depth <= 6; depth++) {
            rig r;
            round_ x = {.n_chain = 1};
            aerie_error error = {0};
            rig_open(&r, i, NULL, 2);
            chain(&r, i, 0, 5);
            int32_t node = -1;
            for (uint32_t d = 0; d < depth; d++) {
                for (int32_t wrong = 1; wrong <= 2; wrong++)
                    ae_tree_add(&x.tree, (int32_t)node, (tokens[6 + d] + wrong) % V, 0.5f);
                node = x.path[x.n_path++] = ae_tree_add(&x.tree, node, tokens[6 + d], 0.5f);
            }
            for (uint32_t turn = 0; turn < 3; turn++) {
                ae_engine_rows_clear(r.engine);
                if (!turn) x.first_chain = add(&r, 0, 1);
                else x.n_chain = 0;
                need(ae_engine_add_tree(r.engine, 0, &x.tree, &x.first_tree, &error), &error);
                pass(&r);
                end_round(&r, i, 0, &x, turn < 2 ? 0 : x.n_path); /* rejected twice, then accepted */
            }
            chain(&r, i, 0, 7);
            check_state(&r, i, 0);
            rig_close(&r);
        }
}

static void test_rejected(void **state)
{
    (void)state;
    failing = "all drafts rejected again and again";
    for (size_t i = 0; i < N_NAMES; i += SKIP) {
        rig r;
        uint64_t random = 9;
        rig_open(&r, i, NULL, 2);
        chain(&r, i, 0, 10);
        for (uint32_t k = 0; k < 20; k++) {
            round_ x;
            ae_engine_rows_clear(r.engine);
            add_round(&r, 0, k % 2, 1 + at_most(mk_random(&random), N_RECORDS - 1), k % 3, &random, &x);
            pass(&r);
            end_round(&r, i, 0, &x, 0);
        }
        check_state(&r, i, 0);
        chain(&r, i, 0, 5);
        rig_close(&r);
    }
}

/* More drafts than records, and passes that are not committed, are refused, and the sequence stays valid or can be restored. */
static void test_refused(void **state)
{
    (void)state;
    failing = "refused";
    for (size_t i = 0; i < N_NAMES; i += SKIP) {
        rig r;
        ae_tree tree = {0};
        aerie_error error = {0};
        uint32_t first;
        rig_open(&r, i, NULL, 2);
        chain(&r, i, 0, 10);
        ae_engine_snapshot(r.engine, 0);
        assert_int_equal(ae_engine_max_tree(r.engine), N_RECORDS);
        for (int32_t k = 0; k <= N_RECORDS; k++) ae_tree_add(&tree, k - 1, k, 0.5f);
        ae_engine_rows_clear(r.engine);
        assert_int_equal(ae_engine_add_tree(r.engine, 0, &tree, &first, &error), AERIE_ERROR_LIMIT);
        assert_non_null(strstr(error.text, "25 drafted rows, but the recurrent state has records for 24"));
        assert_int_equal(ae_engine_n_rows(r.engine), 0);
        chain(&r, i, 0, 3);
        ae_engine_rows_clear(r.engine);
        add(&r, 0, 2);
        pass(&r);
        assert_int_equal(ae_engine_commit(r.engine, 0, 1, NULL, 0), AERIE_ERROR_INTERNAL); /* the second row ran, too */
        ae_engine_rows_clear(r.engine);
        assert_int_equal(ae_engine_add_chain(r.engine, 0, tokens + 13, 1, AE_EXPORT_ALL, &first, &error), AERIE_ERROR_INTERNAL);
        assert_int_equal(ae_engine_add_tree(r.engine, 0, &(ae_tree){.n = 1, .parent = {-1}, .depth = {1}}, &first, &error),
                         AERIE_ERROR_INTERNAL);
        assert_int_equal(ae_engine_truncate(r.engine, 0, 13), 10);
        check_state(&r, i, 0);
        chain(&r, i, 0, 5);
        check_state(&r, i, 0);
        rig_close(&r);
    }
}

/* In the shapes of Qwen3.5-4B, Qwen3.6-27B and Nemotron-3 Nano a tentative row takes at most 1/30 of a snapshot. */
static void test_record_size(void **state)
{
    static const ae_state_layer layers[] = {
        {AE_STATE_DELTA, 8192, 4, 32, 16, 128, 128, true, NULL},
        {AE_STATE_DELTA, 10240, 4, 48, 16, 128, 128, true, NULL},
        {AE_STATE_MAMBA2, 6144, 4, 64, 8, 128, 64, false, NULL},
    };
    ae_backend *backend;
    aerie_error error = {0};
    (void)state;
    need(ae_backend_open(&backend, NULL, "ref", &error), &error);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const ae_state_shape one = {1, &layers[i], 1, 1, 1}, more = {1, &layers[i], 1, 1, 2}, planes = {1, &layers[i], 1, 2, 1};
        const size_t base = backend->ops->state_bytes(backend, &one);
        const size_t record = backend->ops->state_bytes(backend, &more) - base;
        const size_t plane = backend->ops->state_bytes(backend, &planes) - base;
        print_message("a plane takes %zu bytes, a record %zu: 1/%.1f\n", plane, record, (double)plane / (double)record);
        assert_true(30 * record <= plane);
    }
    ae_backend_close(backend);
}

static int make_plains(void **state)
{
    uint64_t random = 3;
    (void)state;
    if (!mkdtemp(folder)) return 1;
    for (uint32_t k = 0; k < N; k++) tokens[k] = (int32_t)(mk_random(&random) % V);
    for (size_t i = 0; i < N_NAMES; i += SKIP) {
        struct plain *p = &plains[i];
        rig r;
        char path[96];
        aerie_error error = {0};
        snprintf(path, sizeof path, "%s/%s.gguf", folder, names[i]);
        need(mkarch_write(mkarch_find(names[i]), true, path, &error), &error);
        rig_open(&r, i, "ref", 1);
        p->state_bytes = ae_state_bytes(r.engine->state);
        p->states = calloc(N + 1, p->state_bytes);
        if (!p->states) return 1;
        for (uint32_t k = 0; k < N; k++) {
            ae_engine_rows_clear(r.engine);
            const uint32_t first = add(&r, 0, 1);
            pass(&r);
            memcpy(p->logits[k], ae_engine_logits(r.engine, first), sizeof p->logits[k]);
            if (ae_engine_commit(r.engine, 0, 1, NULL, 0) != AERIE_OK) return 1;
            if (ae_state_read(r.engine->state, ae_engine_stream(r.engine), 0, p->states + (k + 1) * p->state_bytes) != AERIE_OK)
                return 1;
        }
        rig_close(&r);
    }
    return 0;
}

static int drop_plains(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i += SKIP) {
        char path[96];
        snprintf(path, sizeof path, "%s/%s.gguf", folder, names[i]);
        unlink(path);
        free(plains[i].states);
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),      cmocka_unit_test(test_drafts),   cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_poison),      cmocka_unit_test(test_snapshots), cmocka_unit_test(test_cut_records),
        cmocka_unit_test(test_forks),       cmocka_unit_test(test_short),    cmocka_unit_test(test_branch),
        cmocka_unit_test(test_rejected),    cmocka_unit_test(test_refused),  cmocka_unit_test(test_record_size),
    };
    return cmocka_run_group_tests(tests, make_plains, drop_plains);
}
