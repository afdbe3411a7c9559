/* test_draft_laws.c - a draft model drafts for all sequences together (draft/model.c): its draft for one does not depend on the
 * others, and the number of passes does not grow with their number.
 *
 * Passes, waits and transfers are counted at the seam, so that no test depends on time.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/math/rng.h"
#include "draft/drafter.h"
#include "every.h"
#include "mkarch.h"
#include "rig.inc"

enum { N_SEQS = 8, N_CTX = 256, N_DEPTH = 5, N_ROUNDS = 4, N_NODES = 24 };

static char folder[] = "/tmp/aerie_drafts_XXXXXX";

static const char *path_of(const char *name)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    return path;
}

/* ---- A device that counts ------------------------------------------------------------------------------- */

static struct {
    uint32_t n_passes, n_syncs, n_downloads;
    const ae_backend_ops *ops;
} count;

static bool count_pass(ae_stream *stream, uint64_t key)
{
    count.n_passes++;
    return count.ops->pass_begin(stream, key);
}

static aerie_status count_sync(ae_stream *stream, aerie_error *error)
{
    count.n_syncs++;
    return count.ops->sync(stream, error);
}

static void count_download(ae_stream *stream, void *host, const void *device, size_t n)
{
    count.n_downloads++;
    count.ops->download(stream, host, device, n);
}

static void count_on(ae_backend *backend)
{
    static ae_backend_ops ops;
    count.ops = backend->ops;
    ops = *backend->ops;
    ops.pass_begin = count_pass;
    ops.sync = count_sync;
    ops.download = count_download;
    backend->ops = &ops;
}

/* ---- A draft model ---------------------------------------------------------------------------------------- */

typedef struct drafts {
    ae_model *model;
    ae_backend *backend;
    ae_net *net;
    ae_engine *engine; /* the drafter's */
    ae_drafter *drafter;
} drafts;

static void open_drafts(drafts *d, const char *name, uint32_t n_batch, uint32_t n_outputs)
{
    aerie_error error = {0};
    const ae_engine_options options = {.n_ctx = N_CTX, .n_seqs = N_SEQS, .n_threads = 1, .n_batch = n_batch,
                                       .n_outputs = n_outputs, .n_snapshots = 2 * N_SEQS, .n_windows = 2 * N_SEQS};
    need(ae_model_load(&d->model, path_of(name), NULL, &error), &error);
    need(rig_backend(&d->backend, NULL, &error), &error);
    count_on(d->backend);
    need(ae_net_create(&d->net, d->model, d->backend, &(ae_load_options){.n_threads = 1}, &error), &error);
    need(ae_engine_create(&d->engine, d->net, &options, &error), &error);
    need(ae_draft_model_create(&d->drafter, d->engine, NULL, NULL, N_SEQS, N_CTX, &error), &error);
}

static void close_drafts(drafts *d)
{
    d->drafter->ops->destroy(d->drafter);
    ae_net_free(d->net);
    ae_backend_close(d->backend);
    ae_model_free(d->model);
}

/* ---- Sequences -------------------------------------------------------------------------------------------- */

typedef struct texts {
    int32_t tokens[N_SEQS][N_CTX];
    size_t n[N_SEQS];
    ae_sampler *sampler[N_SEQS];
    ae_tree tree[N_SEQS];
} texts;

static uint32_t dice(uint64_t key, uint64_t counter)
{
    uint32_t r[4];
    ae_philox(key, counter, 11, r);
    return r[0];
}

/* Makes texts whose lengths are from 3 to 3 + longest. */
static void make_texts(texts *t, uint32_t n_vocab, size_t longest, float temperature)
{
    aerie_error error = {0};
    ae_sampling sampling = ae_sampling_default();
    memset(t, 0, sizeof *t);
    for (uint32_t s = 0; s < N_SEQS; s++) {
        t->n[s] = 3 + s * longest / (N_SEQS - 1);
        for (size_t i = 0; i < N_CTX; i++) t->tokens[s][i] = (int32_t)(3 + dice(s + 1, i) % (n_vocab - 3));
        sampling.temperature = temperature;
        sampling.seed = s + 5;
        need(ae_sampler_create(&t->sampler[s], &sampling, NULL, n_vocab, N_CTX, &error), &error);
    }
}

static void free_texts(texts *t)
{
    for (uint32_t s = 0; s < N_SEQS; s++) ae_sampler_free(t->sampler[s]);
}

/* Drafts for the sequences [first, first + n). */
static void draft(drafts *d, texts *t, ae_draft_shape shape, uint32_t first, uint32_t n)
{
    ae_draft_request requests[N_SEQS];
    aerie_error error = {0};
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t s = first + i;
        t->tree[s].n = 0;
        /* different depths, so that drafts end at different levels */
        const uint32_t depth = N_DEPTH - s % 3;
        requests[i] = (ae_draft_request){.slot = s, .tokens = t->tokens[s], .n_tokens = t->n[s], .max_depth = depth,
                                         .max_nodes = shape == AE_DRAFT_CHAIN ? depth : N_NODES, .shape = shape,
                                         .min_p = s == 4 ? 0.3f : 0, .sampler = t->sampler[s], .tree = &t->tree[s]};
    }
    need(d->drafter->ops->propose(d->drafter, requests, n, &error), &error);
}

/* The target accepts some of a draft and adds a token: the same in both runs, which have the same trees. */
static void go_on(texts *t, uint32_t round)
{
    for (uint32_t s = 0; s < N_SEQS; s++) {
        const ae_tree *tree = &t->tree[s];
        uint32_t n = dice(round + 99, s) % 4;
        for (int32_t node = -1; n-- && (node = ae_tree_best_child(tree, node)) >= 0;)
            t->tokens[s][t->n[s]++] = tree->token[node];
        t->n[s]++; /* what stands there */
    }
}

static void check_batch(const char *name, ae_draft_shape shape, float temperature, size_t longest, uint32_t n_batch,
                        uint32_t n_outputs)
{
    drafts one, all;
    static texts a, b;
    open_drafts(&one, name, n_batch, n_outputs);
    open_drafts(&all, name, n_batch, n_outputs);
    make_texts(&a, one.model->hparams.n_vocab, longest, temperature);
    make_texts(&b, one.model->hparams.n_vocab, longest, temperature);
    uint32_t n_nodes = 0;
    const uint32_t n_rounds = test_whole() ? N_ROUNDS : 2; /* the second drafts after what was accepted */
    for (uint32_t round = 0; round < n_rounds; round++) {
        for (uint32_t s = 0; s < N_SEQS; s++) draft(&one, &a, shape, s, 1);
        draft(&all, &b, shape, 0, N_SEQS);
        for (uint32_t s = 0; s < N_SEQS; s++) {
            const ae_tree *x = &a.tree[s], *y = &b.tree[s];
            assert_true(ae_tree_is_sound(y, (int32_t)one.model->hparams.n_vocab));
            assert_int_equal(x->n, y->n);
            assert_memory_equal(x->token, y->token, x->n * sizeof *x->token);
            assert_memory_equal(x->parent, y->parent, x->n * sizeof *x->parent);
            assert_memory_equal(x->p, y->p, x->n * sizeof *x->p);
            n_nodes += y->n;
        }
        assert_true(ae_kv_is_sound(ae_engine_kv(all.engine)));
        go_on(&a, round);
        go_on(&b, round);
    }
    assert_true(n_nodes > N_SEQS * n_rounds);
    free_texts(&a);
    free_texts(&b);
    close_drafts(&one);
    close_drafts(&all);
}

static const char *const kinds[] = {"attention", "recurrent"};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static void test_a_draft_does_not_depend_on_the_others(void **state)
{
    uint32_t at = 0;
    (void)state;
    for (size_t k = 0; k < N_KINDS; k++)
        for (int tree = 0; tree < 2; tree++)
            for (int warm = 0; warm < 2; warm++) {
                const ae_draft_shape shape = tree ? AE_DRAFT_TREE : AE_DRAFT_CHAIN;
                const float temperature = warm ? 0.8f : 0;
                if (test_takes(&at)) check_batch(kinds[k], shape, temperature, 20, 512, AERIE_MAX_DRAFT + N_SEQS);
                if (test_takes(&at)) /* texts: several passes */
                    check_batch(kinds[k], shape, temperature, 160, 80, AERIE_MAX_DRAFT + N_SEQS);
                if (test_takes(&at)) check_batch(kinds[k], shape, temperature, 90, 32, 24); /* levels of trees, too */
            }
}

/* ---- How many passes --------------------------------------------------------------------------------------- */

static uint32_t passes_of(drafts *d, texts *t, ae_draft_shape shape, uint32_t n)
{
    count.n_passes = 0;
    draft(d, t, shape, 0, n);
    return count.n_passes;
}

static void test_passes_do_not_grow_with_sequences(void **state)
{
    (void)state;
    for (int tree = 0; tree < 2; tree++) {
        const ae_draft_shape shape = tree ? AE_DRAFT_TREE : AE_DRAFT_CHAIN;
        drafts d;
        static texts t;
        open_drafts(&d, kinds[0], 512, N_SEQS * (AERIE_MAX_DRAFT + 1));
        make_texts(&t, d.model->hparams.n_vocab, 45, 0);
        for (uint32_t s = 0; s < N_SEQS; s++) t.n[s] = 48;
        const uint32_t first = passes_of(&d, &t, shape, N_SEQS); /* passes for missed rows, for new rows, for further levels */
        /* trees may end before their last level is filled: its pass was not needed */
        assert_true(first == d.drafter->cost.n_levels + 1 || (tree && first == d.drafter->cost.n_levels + 2));
        assert_true(d.drafter->cost.start_seconds > 0);
        for (uint32_t round = 0; round < N_ROUNDS; round++) {
            go_on(&t, round);
            const uint32_t all = passes_of(&d, &t, shape, N_SEQS), n_levels = d.drafter->cost.n_levels;
            assert_true(n_levels > 1 && n_levels <= N_DEPTH);
            assert_true(all == n_levels || (tree && all == n_levels + 1));
            assert_true(d.drafter->cost.start_seconds == 0);
        }
        free_texts(&t);
        close_drafts(&d);
    }
}

/* ---- Refusals ------------------------------------------------------------------------------------------------ */

static void test_edges(void **state)
{
    (void)state;
    drafts d;
    static texts t;
    aerie_error error = {0};
    open_drafts(&d, kinds[0], 512, N_SEQS * (AERIE_MAX_DRAFT + 1));
    make_texts(&t, d.model->hparams.n_vocab, 20, 0);
    assert_int_equal(d.drafter->ops->propose(d.drafter, NULL, 0, &error), AERIE_OK);
    ae_draft_request r = {.slot = N_SEQS, .tokens = t.tokens[0], .n_tokens = 3, .max_depth = 2, .max_nodes = 2,
                          .sampler = t.sampler[0], .tree = &t.tree[0]};
    assert_int_equal(d.drafter->ops->propose(d.drafter, &r, 1, &error), AERIE_ERROR_ARGUMENT);
    t.n[1] = N_CTX; /* no place is left */
    t.n[2] = N_CTX - 1;
    t.n[3] = 0;
    draft(&d, &t, AE_DRAFT_CHAIN, 0, N_SEQS);
    assert_int_equal(t.tree[1].n, 0);
    assert_int_equal(t.tree[2].n, 1);
    assert_int_equal(t.tree[3].n, 0);
    assert_true(t.tree[0].n > 1);
    free_texts(&t);
    close_drafts(&d);
}

static int make_models(void **state)
{
    mk_options o;
    aerie_error error = {0};
    (void)state;
    if (!mkdtemp(folder)) return 1;
    mk_shape("tiny", &o);
    o.type = "q4_0", o.n_layers = 2;
    if (mk_model(&o, path_of(kinds[0]), &error) != AERIE_OK) return 1;
    return mkarch_write(mkarch_find("qwen3next"), true, path_of(kinds[1]), &error) != AERIE_OK;
}

static int drop_models(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_KINDS; k++) unlink(path_of(kinds[k]));
    rmdir(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_draft_does_not_depend_on_the_others),
        cmocka_unit_test(test_passes_do_not_grow_with_sequences),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, make_models, drop_models);
}
