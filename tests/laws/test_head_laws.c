/* test_head_laws.c - drafting heads: same bytes, and drafts that are a pure function of the sequence.
 *
 * Law 1 for heads of every kind and every shape of draft, through aerie.h. Then, one level below, what makes heads go
 * wrong elsewhere (frozen memory, rows of the wrong sequence, guesses that stay, positions that drift): every
 * draft of a run is made again from nothing, the whole text so far as true rows in one batch, and must be the same tree to the
 * last bit. Acceptance counted online then equals teacher-forced agreement (depth 1) and self-fed agreement (deeper)
 * on the same text by construction; the sums are compared all the same.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/head_engine.h"
#include "mkhead.h"
#include "spec/spec.h"
#include "spec_rig.inc"

#define N_PROMPTS 4
#define N_PREDICT 40
#define N_CTX 256

static const struct kind {
    const char *name;
    mkhead_options options;
    aerie_spec_type type;
} kinds[] = {
    {"eagle", {.kind = "eagle", .type = "q8_0"}, AERIE_SPEC_EAGLE},
    {"eagle-few", {.kind = "eagle", .type = "q8_0", .n_draft = 12, .biases = true}, AERIE_SPEC_EAGLE},
    {"eagle3", {.kind = "eagle3", .type = "q4_0", .n_draft = 24}, AERIE_SPEC_EAGLE3},
    {"eagle3.1", {.kind = "eagle3.1", .type = "q8_0", .n_draft = 16}, AERIE_SPEC_EAGLE3},
    {"window", {.kind = "eagle3.1", .type = "f16", .n_draft = 16, .window = 64, .n_sinks = 64}, AERIE_SPEC_EAGLE3},
    {"medusa", {.kind = "medusa", .type = "q8_0", .n_draft = 16}, AERIE_SPEC_MEDUSA},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static aerie_model *target;
static aerie_head *heads[N_KINDS];
static int32_t prompts[N_PROMPTS][160];
static const size_t prompt_lengths[N_PROMPTS] = {2, 63, 130, 100};
static const enum aerie_tree trees[] = {AERIE_TREE_OFF, AERIE_TREE_AUTO, AERIE_TREE_STATIC, AERIE_TREE_DYNAMIC};

static int make_files(void **state)
{
    (void)state;
    mk_options o;
    aerie_error error = {0};
    char model[128];
    if (!mkdtemp(folder) || !mk_shape("tiny", &o)) return 1;
    o.forgetful = true; /* repeats itself: tokens of a small draft vocabulary come up often enough to be accepted */
    o.n_layers = 3;
    snprintf(model, sizeof model, "%s", path_of("target"));
    if (mk_model(&o, model, &error) != AERIE_OK) return 1;
    target = load(model, NULL);
    for (size_t i = 0; i < N_KINDS; i++) {
        if (mkhead_write(&kinds[i].options, model, path_of(kinds[i].name), &error) != AERIE_OK ||
            aerie_head_load(&heads[i], target, path_of(kinds[i].name), NULL, &error) != AERIE_OK) {
            print_error("%s: %s\n", kinds[i].name, error.text);
            return 1;
        }
    }
    uint64_t random = 3;
    for (size_t i = 0; i < N_PROMPTS; i++)
        for (size_t k = 0; k < prompt_lengths[i]; k++) prompts[i][k] = (int32_t)(mk_random(&random) % o.n_vocab);
    memcpy(prompts[3], prompts[2], 90 * sizeof **prompts); /* a prefix to share */
    return 0;
}

static int drop_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_KINDS; i++) {
        aerie_head_free(heads[i]);
        unlink(path_of(kinds[i].name));
    }
    aerie_model_free(target);
    unlink(path_of("target"));
    return rmdir(folder);
}

/* ---- Law 1 ----------------------------------------------------------------------------------------- */

static void run_requests(const aerie_spec *spec, uint32_t n_seqs, uint32_t n_batch, uint32_t sampling, run *r)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    aerie_request requests[N_PROMPTS + 2];
    params.n_ctx = N_CTX, params.n_seqs = n_seqs, params.n_batch = n_batch, params.n_threads = 1;
    params.spec = *spec;
    need(aerie_session_create(&session, target, &params, &error), &error);
    for (size_t i = 0; i < N_PROMPTS + 2; i++) {
        requests[i] = aerie_request_default();
        requests[i].tokens = prompts[i % N_PROMPTS];
        requests[i].n_tokens = prompt_lengths[i % N_PROMPTS];
        requests[i].n_predict = N_PREDICT;
        requests[i].ignore_eos = true;
        requests[i].sampling = sampling_of(sampling);
    }
    generate(session, target, requests, N_PROMPTS + 2, r);
    aerie_session_free(session);
}

static void test_same_tokens(void **state)
{
    (void)state;
    static run plain[N_SAMPLINGS], r;
    uint64_t drafted = 0, accepted = 0;
    for (uint32_t s = 0; s < N_SAMPLINGS; s++) {
        aerie_spec none = aerie_spec_default();
        none.type = AERIE_SPEC_NONE;
        run_requests(&none, 1, 512, s, &plain[s]);
    }
    for (uint32_t c = 0; c < N_KINDS * 4 * 3; c++) { /* each kind with each shape, the rest by turns */
        aerie_spec spec = aerie_spec_default();
        const size_t kind = c % N_KINDS;
        const uint32_t sampling = c % N_SAMPLINGS, n_seqs = c / 3 % 2 ? 1 : 4;
        char what[160];
        spec.type = c % 5 ? kinds[kind].type : AERIE_SPEC_AUTO;
        spec.head = heads[kind];
        spec.tree = trees[c / N_KINDS % 4];
        spec.fixed = c % 4 != 3;
        spec.n_max = 1 + c % 7;
        spec.n_nodes = c % 3 ? 0 : 9;
        snprintf(what, sizeof what, "head %s, %s, depth %u, %s, %u at once, sampling %u", kinds[kind].name, aerie_tree_name(spec.tree),
                 spec.n_max, spec.fixed ? "fixed" : "controlled", n_seqs, sampling);
        run_requests(&spec, n_seqs, c % 2 ? 512 : 37, sampling, &r);
        for (size_t i = 0; i < N_PROMPTS + 2; i++) {
            same_answer(&r.answers[i], &plain[sampling].answers[i], what, i);
            drafted += r.answers[i].stats.n_drafted;
            accepted += r.answers[i].stats.n_accepted;
        }
    }
    print_message("%llu drafted, %llu accepted\n", (unsigned long long)drafted, (unsigned long long)accepted);
    assert_true(accepted > 50 && accepted < drafted / 2);
}

static void test_refused(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session;
    aerie_head *head;
    aerie_session_params params = aerie_session_params_default();
    params.spec.type = AERIE_SPEC_EAGLE3;
    assert_int_equal(aerie_session_create(&session, target, &params, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "needs a drafting head"));
    params.spec.head = heads[0];
    assert_int_equal(aerie_session_create(&session, target, &params, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "draft-eagle, not draft-eagle3"));
    assert_int_equal(aerie_head_load(&head, target, path_of("target"), NULL, &error), AERIE_ERROR_UNSUPPORTED);
    assert_true(aerie_file_is_head(path_of("medusa")) && !aerie_file_is_head(path_of("target")) && !aerie_file_is_head("/nowhere"));
}

/* ---- Drafts are a function of the sequence -------------------------------------------------------------- */

#define MAX_RECORDS 600

/* What was asked of the drafter and what it said. */
typedef struct record {
    ae_draft_request request; /* tokens: a copy */
    ae_tree tree;
} record;

typedef struct recorder {
    ae_drafter base;
    ae_drafter *inner;
    record records[MAX_RECORDS];
    uint32_t n;
} recorder;

static uint32_t recorder_begin(ae_drafter *d, const ae_draft_begin *b)
{
    return ((recorder *)d)->inner->ops->begin(((recorder *)d)->inner, b);
}

static void recorder_observe(ae_drafter *d, const ae_draft_seen *seen)
{
    ((recorder *)d)->inner->ops->observe(((recorder *)d)->inner, seen);
}

static aerie_status recorder_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    recorder *d = (recorder *)drafter;
    AE_TRY(d->inner->ops->propose(d->inner, requests, n, error));
    for (uint32_t i = 0; i < n && d->n < MAX_RECORDS; i++) {
        record *r = &d->records[d->n++];
        int32_t *tokens = ae_alloc(requests[i].n_tokens, sizeof *tokens);
        memcpy(tokens, requests[i].tokens, requests[i].n_tokens * sizeof *tokens);
        r->request = requests[i];
        r->request.tokens = tokens;
        r->tree = *requests[i].tree;
    }
    return AERIE_OK;
}

static void recorder_destroy(ae_drafter *d)
{
    (void)d; /* the test keeps it */
}

static const ae_drafter_ops recorder_ops = {.name = "recorder", .begin = recorder_begin, .observe = recorder_observe,
                                            .propose = recorder_propose, .destroy = recorder_destroy};

/* A target's engine and a head's drafter on it. */
typedef struct side {
    ae_engine *engine;
    ae_drafter *drafter;
} side;

typedef struct bench {
    ae_backend *backend;
    ae_model *model;
    ae_net *net;
    ae_head *head;
    ae_head_net *head_net;
} bench;

static bench open_bench(const struct kind *kind)
{
    bench b = {0};
    aerie_error error = {0};
    const ae_load_options load_options = {.n_threads = 1};
    const ae_head_net_options head_options = {.load = load_options};
    need(ae_backend_cpu_create(&b.backend, "", &error), &error);
    need(ae_model_load(&b.model, path_of("target"), NULL, &error), &error);
    need(ae_net_create(&b.net, b.model, b.backend, &load_options, &error), &error);
    need(ae_head_load(&b.head, path_of(kind->name), &error), &error);
    need(ae_head_net_create(&b.head_net, b.head, b.net, &head_options, &error), &error);
    return b;
}

static void close_bench(bench *b)
{
    ae_head_net_free(b->head_net);
    ae_head_free(b->head);
    ae_net_free(b->net);
    ae_model_free(b->model);
    ae_backend_cpu_free(b->backend);
}

static side open_side(const bench *b, uint32_t n_seqs)
{
    side s;
    aerie_error error = {0};
    ae_head_engine *head;
    ae_engine_options o = {.n_ctx = N_CTX, .n_seqs = n_seqs, .n_batch = N_CTX, .n_threads = 1, .n_taps = b->head->hparams.n_taps};
    memcpy(o.taps, b->head->hparams.taps, sizeof o.taps);
    need(ae_engine_create(&s.engine, b->net, &o, &error), &error);
    const ae_head_engine_options ho = {.n_ctx = N_CTX, .n_seqs = n_seqs, .n_batch = 300};
    need(ae_head_engine_create(&head, b->head_net, s.engine, &ho, &error), &error);
    need(ae_draft_head_create(&s.drafter, head, s.engine, n_seqs, &error), &error);
    return s;
}

/* All tokens but the newest run at once, then the draft. */
static void draft_again(const side *s, const record *r, ae_sampler *sampler, ae_tree *tree)
{
    aerie_error error = {0};
    int32_t rows[N_CTX];
    uint32_t first;
    const uint32_t n = (uint32_t)r->request.n_tokens - 1;
    s->drafter->ops->begin(s->drafter, &(ae_draft_begin){0});
    ae_kv_truncate(ae_engine_kv(s->engine), 0, 0);
    ae_engine_rows_clear(s->engine);
    tree->n = 0;
    if (n) {
        need(ae_engine_add_chain(s->engine, 0, r->request.tokens, n, AE_EXPORT_NONE, &first, &error), &error);
        ae_engine_pass(s->engine);
        ae_engine_commit(s->engine, 0, n, NULL, 0);
        for (uint32_t i = 0; i < n; i++) rows[i] = (int32_t)(first + i);
        s->drafter->ops->observe(s->drafter, &(ae_draft_seen){0, rows, n, r->request.tokens, r->request.n_tokens});
    }
    ae_draft_request request = r->request;
    request.slot = 0, request.sampler = sampler, request.tree = tree;
    need(s->drafter->ops->propose(s->drafter, &request, 1, &error), &error);
}

static aerie_stop drop_token(void *user, uint32_t slot, int32_t token, uint32_t depth, const float *logits)
{
    (void)user, (void)slot, (void)token, (void)depth, (void)logits;
    return AERIE_STOP_NONE;
}

static void check_pure(const struct kind *kind, ae_draft_shape shape, uint32_t n_seqs, float temperature, bool fixed)
{
    bench b = open_bench(kind);
    side online = open_side(&b, n_seqs), offline = open_side(&b, 1);
    aerie_error error = {0};
    recorder *rec = ae_alloc(1, sizeof *rec);
    *rec = (recorder){.base = {&recorder_ops}, .inner = online.drafter};
    ae_spec *spec;
    const ae_spec_options so = {.n_chunk = 50, .n_max = 4, .shape = shape, .fixed = fixed};
    need(ae_spec_create(&spec, online.engine, &rec->base, &so, &error), &error);
    ae_sampling sampling = ae_sampling_default();
    sampling.temperature = temperature;
    sampling.seed = 11;
    for (uint32_t started = 0; started < 6 || ae_spec_n_active(spec);) { /* the last two find their prefix in the cache */
        while (started < 6 && ae_spec_n_free(spec)) {
            uint32_t slot;
            const uint32_t i = started++ % N_PROMPTS;
            const ae_spec_request request = {.tokens = prompts[i], .n_tokens = prompt_lengths[i], .n_predict = N_PREDICT, .ignore_eog = true, .sampling = sampling};
            need(ae_spec_start(spec, &request, &slot, &error), &error);
        }
        need(ae_spec_step(spec, drop_token, NULL, &error), &error);
    }
    ae_sampler *sampler;
    need(ae_sampler_create(&sampler, &sampling, NULL, b.model->hparams.n_vocab, 4096, &error), &error);
    uint32_t n_trees = 0;
    for (uint32_t i = 0; i < rec->n; i++) {
        const record *r = &rec->records[i];
        ae_tree again;
        draft_again(&offline, r, sampler, &again);
        n_trees += again.n > 0;
        if (again.n != r->tree.n || memcmp(again.token, r->tree.token, again.n * sizeof *again.token) ||
            memcmp(again.parent, r->tree.parent, again.n * sizeof *again.parent) || memcmp(again.p, r->tree.p, again.n * sizeof *again.p))
            fail_msg("%s, shape %d, %u sequences: draft %u, behind %zu tokens of slot %u, is another when made again (%u nodes, then %u)",
                     kind->name, (int)shape, n_seqs, i, r->request.n_tokens, r->request.slot, r->tree.n, again.n);
        ae_free((void *)r->request.tokens);
    }
    assert_true(n_trees > 30);
    ae_sampler_free(sampler);
    ae_spec_free(spec);
    online.drafter->ops->destroy(online.drafter);
    offline.drafter->ops->destroy(offline.drafter);
    ae_engine_free(online.engine);
    ae_engine_free(offline.engine);
    ae_free(rec);
    close_bench(&b);
}

static void test_drafts_are_a_function_of_the_sequence(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_KINDS; i++) {
        if (kinds[i].options.window) continue; /* what a window forgets depends on how rows came */
        check_pure(&kinds[i], AE_DRAFT_CHAIN, 1, 0, true);
        check_pure(&kinds[i], AE_DRAFT_DYNAMIC, 3, 0, true);
        check_pure(&kinds[i], AE_DRAFT_TREE, 2, 1, true);
        check_pure(&kinds[i], AE_DRAFT_STATIC, 1, 0.7f, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_tokens),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_drafts_are_a_function_of_the_sequence),
    };
    return cmocka_run_group_tests(tests, make_files, drop_files);
}
