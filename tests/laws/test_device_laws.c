/* test_device_laws.c - law 1 across devices: logits and KV bytes of the device under test are those of the CPU's reference,
 * bit for bit, however the rows are divided into passes.
 *
 * The device is named by AERIE_TEST_DEVICE; without it it is "emu", and where the build has none everything is skipped. What
 * the device declines (UNSUPPORTED) is skipped with its sentence. tests/laws/test_device_spec.c does the same for generated
 * texts. AERIE_TEST_ARCH: test_architectures walks the one of this name alone. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "every.h"
#include "mkarch.h"
#include "rig.inc"
#include "rig_rows.inc"

typedef struct case_model {
    const char *arch;  /* of mkarch; or NULL: */
    const char *shape, *type; /* of mkmodel */
    ae_kv_type kv;
    uint32_t window;   /* as if the model had it; 0: its own */
} case_model;

static const case_model models[] = {
    {NULL, "tiny", "q4_0", AE_KV_F16, 0},
    {NULL, "tiny-gqa", "q4_k_m", AE_KV_Q8_0, 0},
    {NULL, "tiny", "q8_0", AE_KV_F32, 0},
    {NULL, "tiny", "q4_0", AE_KV_F16, 50},
    {NULL, "tiny-gqa", "q6_K", AE_KV_Q8_0, 5},
    {NULL, "tiny-mha", "f16", AE_KV_F16, 0},
    {"qwen3", NULL, NULL, AE_KV_F16, 0},
    {"gemma3", NULL, NULL, AE_KV_F16, 0},
    {"mistral3", NULL, NULL, AE_KV_Q8_0, 0},
    {"gpt-oss", NULL, NULL, AE_KV_F16, 0},
    {NULL, "tiny-moe", "q4_0", AE_KV_F16, 0},
    {"qwen35", NULL, NULL, AE_KV_F16, 0},
    {"rwkv7", NULL, NULL, AE_KV_F16, 0},
    {"jamba", NULL, NULL, AE_KV_F16, 0},
    {"kimi-linear", NULL, NULL, AE_KV_F16, 0},
    {"rwkv6", NULL, NULL, AE_KV_F16, 0},
    {"gemma3n", NULL, NULL, AE_KV_F16, 0},
    {"deepseek32", NULL, NULL, AE_KV_F16, 0},
    {"glm-dsa-shared", NULL, NULL, AE_KV_Q8_0, 0},
    {"grovemoe", NULL, NULL, AE_KV_I16_Q8_0, 0},
    {NULL, "tiny-gqa", "q4_0", AE_KV_I16, 0},
    {NULL, "tiny", "q8_0", AE_KV_Q8_0_I16, 50},
    {NULL, "tiny-gqa", "q4_0", AE_KV_Q4_0, 0},
    {NULL, "tiny", "q8_0", AE_KV_Q8_0_Q4_0, 50},
    {"gemma3", NULL, NULL, AE_KV_I16_Q4_0, 0},
    {"graniteswitch", NULL, NULL, AE_KV_F16, 0},
    {"minimax-m3", NULL, NULL, AE_KV_Q8_0, 0},
    {"kimi-k3", NULL, NULL, AE_KV_F16, 0},
    {"hy_v4", NULL, NULL, AE_KV_F16, 0},
    {"deepseek4", NULL, NULL, AE_KV_F16, 0},
    {"deepseek4", NULL, NULL, AE_KV_Q4_0, 0},
    {"deepseek4", NULL, NULL, AE_KV_I16_Q8_0, 0},
    {"qwen4exp", NULL, NULL, AE_KV_F16, 0},
    {"glm5-next", NULL, NULL, AE_KV_Q8_0_Q4_0, 0},
};
#define N_MODELS (sizeof models / sizeof models[0])
#define N_ROWS 80 /* tokens of a plain run: more than a page */
#define N_CTX 192
#define N_SEQS 3

static char folder[] = "/tmp/aerie_device_XXXXXX";
static const char *device;

/* The same model on the reference and on the device. */
typedef struct pair {
    rig cpu, dut;
    char path[96], name[96];
    int32_t tokens[N_ROWS];
    float *want, *got;     /* [N_ROWS][n_vocab] */
    uint8_t *kv[2];        /* [N_CTX][slot_bytes] */
    uint64_t random;
} pair;

/* ---- Models on both ------------------------------------------------------------------------------------- */

static aerie_status open_on(rig *r, const char *path, const char *backend, const case_model *m, aerie_error *error)
{
    const ae_engine_options options = {.n_ctx = N_CTX, .n_seqs = N_SEQS, .n_threads = 1, .kv_type = m->kv};
    *r = (rig){.n_threads = 1};
    AE_TRY(ae_model_load(&r->model, path, NULL, error));
    for (uint32_t i = 0; m->window && i < r->model->hparams.n_layers; i++) r->model->layers[i].spec.window = m->window;
    AE_TRY(ae_backend_open(&r->backend, backend, strcmp(backend, "cpu") ? "" : "ref", error));
    AE_TRY(ae_net_create(&r->net, r->model, r->backend, &(ae_load_options){.n_threads = 1}, error));
    AE_TRY(ae_engine_create(&r->engine, r->net, &options, error));
    r->n_vocab = r->model->hparams.n_vocab;
    r->slot_bytes = ae_kv_slot_bytes(ae_engine_kv(r->engine));
    return AERIE_OK;
}

static void make_model(const case_model *m, const char *path)
{
    aerie_error error = {0};
    if (m->arch) {
        need(mkarch_write(mkarch_find(m->arch), true, path, &error), &error);
        return;
    }
    mk_options o;
    assert_true(mk_shape(m->shape, &o));
    o.type = m->type;
    o.n_layers = 2, o.n_vocab = 300;
    need(mk_model(&o, path, &error), &error);
}

static uint32_t cut(const rig *r, uint32_t seq, uint32_t n)
{
    const uint32_t at = ae_engine_truncate(r->engine, seq, n);
    check_sound(r);
    return at;
}

/* Runs one row to learn what the device declines. */
static aerie_status try_row(const rig *r, aerie_error *error)
{
    const int32_t token = 1;
    uint32_t first;
    ae_engine_rows_clear(r->engine);
    AE_TRY(ae_engine_add_chain(r->engine, 0, &token, 1, AE_EXPORT_LAST, &first, error));
    AE_TRY(ae_engine_pass(r->engine, error));
    cut(r, 0, 0);
    return AERIE_OK;
}

static void pair_close(pair *p)
{
    rig_close(&p->cpu);
    rig_close(&p->dut);
    free(p->want), free(p->got), free(p->kv[0]), free(p->kv[1]);
    unlink(p->path);
}

/* false: the device declines the model. */
static bool pair_open(pair *p, size_t i)
{
    const case_model *m = &models[i];
    aerie_error error = {0};
    *p = (pair){.random = i};
    snprintf(p->path, sizeof p->path, "%s/%zu.gguf", folder, i);
    snprintf(p->name, sizeof p->name, "%s %s, kv %d, window %u", m->arch ? m->arch : m->shape, m->type ? m->type : "f32",
             (int)m->kv, m->window);
    make_model(m, p->path);
    need(open_on(&p->cpu, p->path, "cpu", m, &error), &error);
    aerie_status status = open_on(&p->dut, p->path, device, m, &error);
    if (status == AERIE_OK) status = try_row(&p->dut, &error);
    if (status == AERIE_ERROR_UNSUPPORTED) {
        print_message("declined: %s: %s\n", p->name, error.text);
        pair_close(p);
        return false;
    }
    need(status, &error);
    assert_int_equal(p->cpu.slot_bytes, p->dut.slot_bytes);
    for (uint32_t r = 0; r < N_ROWS; r++) p->tokens[r] = (int32_t)(mk_random(&p->random) % p->cpu.n_vocab);
    p->want = calloc((size_t)N_ROWS * p->cpu.n_vocab, sizeof *p->want);
    p->got = calloc((size_t)N_ROWS * p->cpu.n_vocab, sizeof *p->got);
    for (int d = 0; d < 2; d++) p->kv[d] = calloc(N_CTX, p->cpu.slot_bytes);
    assert_true(p->want && p->got && p->kv[0] && p->kv[1]);
    return true;
}

static void same_rows(const pair *p, const float *got, const float *want, uint32_t n, const char *what, uint32_t at)
{
    for (size_t i = 0; i < (size_t)n * p->cpu.n_vocab; i++)
        if (memcmp(&got[i], &want[i], sizeof *got))
            fail_msg("%s: %s %u: row %zu: logit %zu is %a on %s, %a on the CPU", p->name, what, at, i / p->cpu.n_vocab,
                     i % p->cpu.n_vocab, (double)got[i], device, (double)want[i]);
}

/* All live positions of a sequence. */
static void same_kv(pair *p, uint32_t seq, const char *what, uint32_t at)
{
    const uint32_t n = ae_kv_n_live(ae_engine_kv(p->cpu.engine), seq);
    assert_int_equal(n, ae_kv_n_live(ae_engine_kv(p->dut.engine), seq));
    rig_kv(&p->cpu, seq, 0, n, p->kv[0]);
    rig_kv(&p->dut, seq, 0, n, p->kv[1]);
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(p->kv[0] + i * p->cpu.slot_bytes, p->kv[1] + i * p->cpu.slot_bytes, p->cpu.slot_bytes))
            fail_msg("%s: %s %u: the K and V of position %u differ", p->name, what, at, i);
}

typedef void law_fn(pair *p);

static void walk(law_fn *law)
{
    static uint32_t turn; /* each law begins with another model */
    const uint32_t every = (uint32_t)AE_TEST_EVERY < N_MODELS ? (uint32_t)AE_TEST_EVERY : N_MODELS;
    pair p;
    for (size_t i = turn++ % every; i < N_MODELS; i += every) {
        if (!pair_open(&p, i)) continue;
        law(&p);
        pair_close(&p);
    }
}

/* ---- Laws ----------------------------------------------------------------------------------------------- */

static void law_prompts(pair *p)
{
    const uint32_t chunks[] = {N_ROWS, 17, 1};
    rig_chain(&p->cpu, 0, p->tokens, N_ROWS, 16, p->want);
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        const uint32_t n = chunks[i] > 1 ? N_ROWS : 12;
        cut(&p->dut, 0, 0);
        rig_chain(&p->dut, 0, p->tokens, n, chunks[i], p->got);
        same_rows(p, p->got, p->want, n, "prompt in chunks of", chunks[i]);
    }
    rig_chain(&p->dut, 0, p->tokens + 12, N_ROWS - 12, 64, p->got);
    same_rows(p, p->got, p->want + (size_t)12 * p->cpu.n_vocab, N_ROWS - 12, "the rest, after", 12);
    same_kv(p, 0, "prompt of", N_ROWS);
}

static void test_prompts(void **state)
{
    (void)state;
    walk(law_prompts);
}

static void law_trees(pair *p)
{
    const uint32_t bases[] = {60, 3}, sizes[] = {13, 24};
    for (uint32_t i = 0; i < 2; i++) {
        ae_tree tree;
        int32_t nodes[AERIE_MAX_DRAFT];
        rig_random_tree(&tree, sizes[i], p->cpu.n_vocab, 1 + i, &p->random);
        const uint32_t n = rig_path(&tree, (int32_t)tree.n - 1, nodes);
        for (int d = 0; d < 2; d++) {
            rig *r = d ? &p->dut : &p->cpu;
            float *logits = d ? p->got : p->want;
            cut(r, 1, 0);
            rig_chain(r, 1, p->tokens, bases[i], 64, NULL);
            rig_tree(r, 1, p->tokens[bases[i]], &tree, logits);
            rig_commit(r, 1, 1, nodes, n);
            rig_chain(r, 1, p->tokens + bases[i] + 1, 3, 3, logits + (size_t)(1 + tree.n) * p->cpu.n_vocab);
        }
        same_rows(p, p->got, p->want, 1 + tree.n + 3, "a tree at", bases[i]);
        same_kv(p, 1, "after a tree at", bases[i]);
    }
}

static void test_trees(void **state)
{
    (void)state;
    walk(law_trees);
}

/* One pass of all sequences, a chain of some rows and a tree each; all rows' logits. Returns how many. */
static uint32_t mixed_pass(rig *r, const pair *p, const ae_tree trees[N_SEQS], float *logits)
{
    aerie_error error = {0};
    uint32_t n = 0, first;
    ae_engine_rows_clear(r->engine);
    for (uint32_t s = 0; s < N_SEQS; s++) {
        need(ae_engine_add_chain(r->engine, s, p->tokens + 5 * s, 1 + s, AE_EXPORT_ALL, &first, &error), &error);
        need(ae_engine_add_tree(r->engine, s, &trees[s], &first, &error), &error);
        n += 1 + s + trees[s].n;
    }
    need(ae_engine_pass(r->engine, &error), &error);
    for (uint32_t i = 0; i < n; i++)
        memcpy(logits + (size_t)i * r->n_vocab, ae_engine_logits(r->engine, i), r->n_vocab * sizeof *logits);
    return n;
}

static void law_sequences(pair *p)
{
    static const uint32_t lengths[N_SEQS] = {30, 0, 66};
    for (uint32_t round = 0; round < 3; round++) { /* with equal keys: the later ones are replayed where a device records */
        ae_tree trees[N_SEQS];
        uint32_t n = 0;
        for (uint32_t s = 0; s < N_SEQS; s++) rig_random_tree(&trees[s], 4 + s, p->cpu.n_vocab, 2, &p->random);
        for (int d = 0; d < 2; d++) {
            rig *r = d ? &p->dut : &p->cpu;
            for (uint32_t s = 0; s < N_SEQS; s++)
                if (!round && lengths[s]) rig_chain(r, s, p->tokens, lengths[s], 40, NULL);
            n = mixed_pass(r, p, trees, d ? p->got : p->want);
            for (uint32_t s = 0; s < N_SEQS; s++) {
                int32_t nodes[AERIE_MAX_DRAFT];
                const uint32_t n_nodes = rig_path(&trees[s], (int32_t)trees[s].n - 1, nodes);
                rig_commit(r, s, 1 + s, nodes, n_nodes);
            }
        }
        same_rows(p, p->got, p->want, n, "sequences in round", round);
    }
    for (uint32_t s = 0; s < N_SEQS; s++) same_kv(p, s, "sequence", s);
}

static void test_sequences(void **state)
{
    (void)state;
    walk(law_sequences);
}

/* A sequence is cut and goes on: rows that are no longer live have no effect. */
static void law_cuts(pair *p)
{
    for (int d = 0; d < 2; d++) {
        rig *r = d ? &p->dut : &p->cpu;
        float *logits = d ? p->got : p->want;
        rig_chain(r, 2, p->tokens, 70, 70, NULL);
        const uint32_t at = cut(r, 2, 40);
        rig_chain(r, 2, p->tokens + at, 6, 6, logits);
        rig_chain(r, 2, p->tokens, 3, 1, logits + (size_t)6 * r->n_vocab);
    }
    same_rows(p, p->got, p->want, 9, "after a cut to", 40);
    same_kv(p, 2, "after a cut to", 40);
}

static void test_cuts(void **state)
{
    (void)state;
    walk(law_cuts);
}

/* Prefixes that ended and other sequences left have the bytes that the device would compute. */
static void law_prefixes(pair *p)
{
    for (int d = 0; d < 2; d++) {
        rig *r = d ? &p->dut : &p->cpu;
        float *logits = d ? p->got : p->want;
        rig_chain(r, 0, p->tokens, 70, 70, NULL);
        ae_engine_snapshot(r->engine, 0);
        const uint32_t shared = ae_engine_share(r->engine, 1, 0, 70);
        rig_chain(r, 1, p->tokens + shared, 3, 3, logits);
        ae_engine_keep(r->engine, 0, p->tokens);
        const uint32_t kept = ae_engine_adopt(r->engine, 2, p->tokens, 67);
        rig_chain(r, 2, p->tokens + kept, 3, 3, logits + (size_t)3 * r->n_vocab);
        check_sound(r);
    }
    same_rows(p, p->got, p->want, 6, "after a prefix of", 70);
    same_kv(p, 1, "a shared prefix of", 70);
    same_kv(p, 2, "a kept prefix of", 67);
}

static void test_prefixes(void **state)
{
    (void)state;
    walk(law_prefixes);
}

/* ---- Every architecture --------------------------------------------------------------------------------- */

/* A prompt and a tree of every architecture; architectures differ in the arguments of operations. */
static void test_architectures(void **state)
{
    uint32_t n = 0, n_declined = 0;
    const char *only = getenv("AERIE_TEST_ARCH");
    (void)state;
    for (size_t i = 0; i < mkarch_n_specs; i++) {
        const case_model m = {mkarch_specs[i].name, NULL, NULL, (ae_kv_type)(i % AE_KV_TYPES), 0};
        char path[96];
        rig rigs[2];
        float *logits[2] = {NULL, NULL};
        int32_t tokens[24];
        aerie_error error = {0};
        uint64_t random = i;
        if (only ? strcmp(only, m.arch) != 0 : i % (uint32_t)AE_TEST_EVERY != 0) continue;
        snprintf(path, sizeof path, "%s/arch.gguf", folder);
        make_model(&m, path);
        need(open_on(&rigs[0], path, "cpu", &m, &error), &error);
        aerie_status status = open_on(&rigs[1], path, device, &m, &error);
        if (rigs[0].model->hparams.encoder) status = AERIE_ERROR_UNSUPPORTED; /* has no logits */
        else if (status == AERIE_OK) status = try_row(&rigs[1], &error);
        n++, n_declined += status == AERIE_ERROR_UNSUPPORTED;
        if (only && status == AERIE_ERROR_UNSUPPORTED) print_message("declined: %s: %s\n", m.arch, error.text);
        if (status != AERIE_ERROR_UNSUPPORTED) {
            need(status, &error);
            for (int t = 0; t < 24; t++) tokens[t] = (int32_t)(mk_random(&random) % MKARCH_VOCAB);
            for (int d = 0; d < 2; d++) {
                logits[d] = calloc((size_t)24 * rigs[d].n_vocab, sizeof *logits[d]);
                assert_non_null(logits[d]);
                rig_chain(&rigs[d], 0, tokens, 24, 20, logits[d]);
            }
            for (size_t k = 0; k < (size_t)24 * rigs[0].n_vocab; k++)
                if (memcmp(&logits[0][k], &logits[1][k], sizeof *logits[0]))
                    fail_msg("%s: row %zu: logit %zu is %a on %s, %a on the CPU", m.arch, k / rigs[0].n_vocab,
                             k % rigs[0].n_vocab, (double)logits[1][k], device, (double)logits[0][k]);
        }
        for (int d = 0; d < 2; d++) rig_close(&rigs[d]), free(logits[d]);
        unlink(path);
    }
    print_message("%u architectures, %u declined or without logits\n", n, n_declined);
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

/* false: the build has no such device, and none was asked for. */
static bool find_device(void)
{
    const char *said = getenv("AERIE_TEST_DEVICE");
    ae_backend *backend;
    aerie_error error = {0};
    device = said && *said ? said : "emu";
    const aerie_status status = ae_backend_open(&backend, device, "", &error);
    if (status == AERIE_OK) test_hold_device(device), ae_backend_close(backend);
    else print_message("%s\n", error.text);
    if (status == AERIE_ERROR_UNSUPPORTED && getenv("AERIE_TEST_OPTIONAL")) return false;
    return status == AERIE_OK || (said && *said);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_architectures),
    };
    if (!find_device()) return 77;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make, drop);
}
