/* test_load.c - the ways to load a model: the same output from all, failing reads, a file that changes, cancelling; the plan of
 * memory before. */
#define _XOPEN_SOURCE 700 /* mkstemp, truncate */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "aerie.h"
#include "aerie_extra.h"
#include "aerie_measure.h"
#include "engine/layers/block.h"
#include "fail_read.h"
#include "formats/gguf.h"
#include "mkarch.h"
#include "mkmodel.h"

#define N_TOKENS 6

typedef struct way {
    const char *name;
    bool mmap, no_mmap;
    uint32_t n_threads;
} way;

static const way ways[] = {{"default", false, false, 2}, {"mmap", true, false, 2}, {"no_mmap", false, true, 3}};
#define N_WAYS (sizeof ways / sizeof ways[0])

static char path[] = "/tmp/aerie_load_XXXXXX";

static int make_path(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    return fd < 0;
}

static int drop_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void make_model(const char *shape, const char *type, bool tied)
{
    mk_options o;
    aerie_error error;
    assert_true(mk_shape(shape, &o));
    o.type = type;
    o.tied = tied;
    o.rope_freqs = true;
    if (mk_model(&o, path, &error) != AERIE_OK) fail_msg("%s", error.text);
}

static aerie_model_params params_of(const way *w, const char *level)
{
    aerie_model_params p = aerie_model_params_default();
    p.mmap = w->mmap, p.no_mmap = w->no_mmap, p.n_threads = w->n_threads, p.cpu_level = level;
    return p;
}

/* The number of open descriptors, to see that none was left open. */
static int open_files(void)
{
    const int fd = dup(0);
    if (fd >= 0) close(fd);
    return fd;
}

typedef struct sums {
    float *logits; /* [N_TOKENS][n_vocab] */
    size_t n_vocab;
} sums;

static bool keep(void *user, size_t position, const float *logits)
{
    sums *s = user;
    memcpy(s->logits + position * s->n_vocab, logits, s->n_vocab * sizeof *logits);
    return true;
}

/* Logits of a few tokens by a freshly loaded model. */
static sums logits_of(const aerie_model_params *p)
{
    static const int32_t tokens[N_TOKENS] = {5, 77, 130, 9, 201, 77};
    aerie_model *model;
    aerie_session *session;
    aerie_error error = {0};
    aerie_session_params sp = aerie_session_params_default();
    sp.n_ctx = 32, sp.n_threads = 3;
    if (aerie_model_load(&model, path, p, &error) != AERIE_OK) fail_msg("%s", error.text);
    if (aerie_session_create(&session, model, &sp, &error) != AERIE_OK) fail_msg("%s", error.text);
    aerie_model_info info;
    aerie_model_info_get(model, &info, sizeof info);
    sums s = {calloc((size_t)N_TOKENS * info.n_vocab, sizeof(float)), info.n_vocab};
    assert_non_null(s.logits);
    if (aerie_session_eval(session, tokens, N_TOKENS, keep, &s, &error) != AERIE_OK) fail_msg("%s", error.text);
    aerie_session_free(session);
    aerie_model_free(model);
    return s;
}

static void test_same_logits_however_loaded(void **state)
{
    (void)state;
    static const char *const types[] = {"q4_0",   "q8_0",  "q5_1", "q4_k", "q6_k",  "q2_k",
                                        "iq4_nl", "mxfp4", "f16",  "f32",  "q4_k_m"};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        make_model("tiny-gqa", types[t], t % 2);
        const aerie_model_params first = params_of(&ways[0], "ref");
        sums want = logits_of(&first);
        for (size_t w = 0; w < N_WAYS; w++)
            for (int best = 0; best < 2; best++) {
                const aerie_model_params p = params_of(&ways[w], best ? NULL : "ref");
                sums got = logits_of(&p);
                if (memcmp(want.logits, got.logits, N_TOKENS * want.n_vocab * sizeof(float)))
                    fail_msg("%s, %s, %s: other logits", types[t], ways[w].name, best ? "best level" : "ref");
                free(got.logits);
            }
        free(want.logits);
    }
}

/* A file without a tokenizer that aerie knows gives the same logits of the same ids, and refuses texts. */
static void test_without_vocabulary(void **state)
{
    (void)state;
    static const char *const models[] = {"tokenizer.ggml.model=str:none", "tokenizer.ggml.model=str:no_vocab",
                                         "tokenizer.ggml.model=str:test", "tokenizer.ggml.pre=str:nonesuch"};
    make_model("tiny-gqa", "q8_0", true);
    aerie_model_params p = params_of(&ways[0], NULL);
    sums want = logits_of(&p);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        aerie_model *model;
        aerie_error error = {0};
        int32_t *tokens;
        size_t n;
        aerie_model_info info;
        p.overrides = &models[i];
        p.n_overrides = 1;
        sums got = logits_of(&p);
        assert_int_equal(got.n_vocab, want.n_vocab);
        assert_memory_equal(got.logits, want.logits, N_TOKENS * want.n_vocab * sizeof(float));
        free(got.logits);
        if (aerie_model_load(&model, path, &p, &error) != AERIE_OK) fail_msg("%s", error.text);
        aerie_model_info_get(model, &info, sizeof info);
        assert_string_equal(info.tokenizer, "none");
        assert_int_equal(aerie_model_tokenize(model, "a", 1, true, true, &tokens, &n, &error), AERIE_ERROR_UNSUPPORTED);
        assert_non_null(strstr(error.text, "token ids only"));
        aerie_model_free(model);
    }
    free(want.logits);
}

/* The bytes that a way reads, and those that it keeps in memory. */
static void test_what_is_read(void **state)
{
    (void)state;
    aerie_model_info info[N_WAYS];
    aerie_memory_plan plan;
    aerie_error error;
    make_model("tiny", "q4_0", false);
    for (size_t w = 0; w < N_WAYS; w++) {
        aerie_model *model;
        const aerie_model_params p = params_of(&ways[w], NULL);
        assert_int_equal(aerie_model_load(&model, path, &p, &error), AERIE_OK);
        aerie_model_info_get(model, &info[w], sizeof info[w]);
        assert_int_equal(aerie_memory_plan_get(path, &p, NULL, &plan, sizeof plan, &error), AERIE_OK);
        assert_int_equal(plan.weight_bytes, info[w].weight_bytes);
        assert_true(info[w].load_seconds >= info[w].fill_seconds);
        aerie_model_free(model);
    }
    assert_int_equal(info[1].load_bytes, 0);
    assert_true(info[1].weight_bytes < info[0].weight_bytes);
    assert_true(info[0].load_bytes <= info[2].load_bytes && info[0].weight_bytes <= info[2].weight_bytes);
    aerie_model *model;
    aerie_model_params both = params_of(&ways[1], NULL);
    both.no_mmap = true;
    assert_int_equal(aerie_model_load(&model, path, &both, &error), AERIE_ERROR_ARGUMENT);
}

/* Bytes of a tensor in the file. */
static size_t tensor_bytes(const char *file, const char *name)
{
    ae_gguf *gguf;
    aerie_error error;
    size_t bytes = 0;
    assert_int_equal(ae_gguf_open(&gguf, file, NULL, &error), AERIE_OK);
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(gguf, i);
        if (t->name.n == strlen(name) && !memcmp(t->name.data, name, t->name.n)) bytes = t->bytes;
    }
    ae_gguf_close(gguf);
    assert_true(bytes);
    return bytes;
}

static size_t planned_weights(const char *file, const way *w)
{
    aerie_memory_plan plan;
    aerie_error error;
    const aerie_model_params p = params_of(w, NULL);
    assert_int_equal(aerie_memory_plan_get(file, &p, NULL, &plan, sizeof plan, &error), AERIE_OK);
    return plan.weight_bytes;
}

/* Tables that are looked up stay in the file, and where they are read they keep their type; experts may stay there, too
 * (docs/loading.md). */
static void test_tables_and_experts(void **state)
{
    (void)state;
    aerie_error error;
    make_model("tiny", "q4_0", false);
    const size_t embedding = tensor_bytes(path, "token_embd.weight");
    assert_in_range(planned_weights(path, &ways[2]) - planned_weights(path, &ways[0]), embedding, embedding + 63);
    make_model("tiny-moe", "q4_0", false);
    const size_t experts = tensor_bytes(path, "blk.0.ffn_up_exps.weight");
    assert_true(planned_weights(path, &ways[0]) - planned_weights(path, &ways[1]) >= 3 * experts);
    /* Gemma 4's table of embeddings for layers: of a float type here, as are all its matrices */
    assert_int_equal(mkarch_write(mkarch_find("gemma4"), true, path, &error), AERIE_OK);
    const size_t table = tensor_bytes(path, "per_layer_token_embd.weight");
    assert_true(planned_weights(path, &ways[0]) < table);
    assert_in_range(planned_weights(path, &ways[2]), table, table + tensor_bytes(path, "token_embd.weight") * 40);
}

/* A draft model whose tokenizer makes more tokens of a text gets a larger context, and that is counted; if it shares too few
 * tokens to draft, a session reports that. */
static void test_memory_of_a_draft_model(void **state)
{
    (void)state;
    static const char *const vocabs[] = {"bpe", "bpe", "spm", "foreign"}; /* the target's, then drafters' */
    char paths[4][32];
    aerie_memory_plan plans[4], alone;
    aerie_session_params sp = aerie_session_params_default();
    aerie_error error;
    sp.n_ctx = 1024, sp.n_batch = 16;
    for (int i = 0; i < 4; i++) {
        mk_options o;
        snprintf(paths[i], sizeof paths[i], "/tmp/aerie_load_XXXXXX");
        const int fd = mkstemp(paths[i]);
        assert_true(fd >= 0 && close(fd) == 0 && mk_shape("tiny", &o));
        o.vocab = vocabs[i], o.n_vocab = 420;
        if (mk_model(&o, paths[i], &error) != AERIE_OK) fail_msg("%s", error.text);
        if (aerie_memory_plan_draft(paths[0], paths[i], NULL, &sp, &plans[i], sizeof plans[i], &error) != AERIE_OK)
            fail_msg("%s", error.text);
    }
    assert_int_equal(aerie_memory_plan_get(paths[0], NULL, &sp, &alone, sizeof alone, &error), AERIE_OK);
    assert_int_equal(plans[1].weight_bytes, alone.weight_bytes);
    assert_true(plans[2].session_bytes > plans[1].session_bytes);
    assert_int_equal(plans[3].session_bytes, plans[1].session_bytes);
    assert_int_equal(aerie_memory_plan_draft(paths[0], "/nowhere", NULL, &sp, &alone, sizeof alone, &error), AERIE_ERROR_IO);
    sp.n_ctx = 4;
    assert_int_equal(aerie_memory_plan_draft(paths[0], paths[1], NULL, &sp, &alone, sizeof alone, &error),
                     AERIE_ERROR_ARGUMENT);
    for (int i = 0; i < 4; i++) unlink(paths[i]);
}

/* ---- Reads that fail ---------------------------------------------------------------------------------- */

static void try_read(const way *w, long n, fail_read_kind kind, bool forever)
{
    aerie_model *model;
    aerie_error error = {0};
    const aerie_model_params p = params_of(w, NULL);
    const int before = open_files();
    fail_read_arm(n, kind, forever);
    const aerie_status status = aerie_model_load(&model, path, &p, &error);
    fail_read_disarm();
    const bool harmless = kind == FAIL_READ_SHORT || (kind == FAIL_READ_INTERRUPT && !forever);
    if (status != (harmless ? AERIE_OK : AERIE_ERROR_IO))
        fail_msg("%s: read %ld, kind %d: status %d, \"%s\"", w->name, n, (int)kind, (int)status, error.text);
    if (!harmless && (!strstr(error.text, path) || model)) fail_msg("%s: read %ld: \"%s\"", w->name, n, error.text);
    aerie_model_free(model);
    assert_int_equal(open_files(), before);
}

static void test_failing_reads(void **state)
{
    (void)state;
    make_model("tiny", "q4_0", false);
    for (size_t w = 0; w < N_WAYS; w++) {
        aerie_model *model;
        const aerie_model_params p = params_of(&ways[w], NULL);
        fail_read_arm(0, FAIL_READ_ERROR, false);
        assert_int_equal(aerie_model_load(&model, path, &p, NULL), AERIE_OK);
        const long calls = fail_read_disarm();
        aerie_model_free(model);
        assert_true(calls > 0);
        for (long n = 1; n <= calls; n++)
            for (int kind = 0; kind < FAIL_READ_KINDS; kind++)
                for (int forever = 0; forever < 2; forever++)
                    if (kind != FAIL_READ_INTERRUPT || !forever) try_read(&ways[w], n, (fail_read_kind)kind, forever);
    }
}

/* ---- Weights that are not numbers ------------------------------------------------------------------------- */

/* The bytes [n] at an offset of a tensor become others. */
static void poison(const char *tensor, uint64_t offset, const void *bytes, size_t n)
{
    ae_gguf *gguf;
    aerie_error error;
    if (ae_gguf_open(&gguf, path, NULL, &error) != AERIE_OK) fail_msg("%s", error.text);
    const ae_gguf_tensor *t = ae_gguf_tensor_find(gguf, tensor);
    if (!t) fail_msg("%s is missing", tensor);
    assert_true(offset + n <= t->bytes);
    const uint64_t at = t->offset + offset;
    ae_gguf_close(gguf);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void test_weights_that_are_no_numbers(void **state)
{
    static const uint16_t half_inf = 0x7C00, half_nan = 0xFE01;
    static const uint32_t nan = 0x7FC00000, inf = 0xFF800000;
    static const struct {
        const char *type, *tensor;
        uint64_t offset;
        const void *bytes;
        size_t n;
        const char *what;
        bool in_place; /* found with --mmap, too */
    } cases[] = {
        {"q4_0", "blk.1.ffn_up.weight", 18 * 2 * 3, &half_nan, 2, "row 3 has a scale",
         false}, /* 64 columns: two blocks a row */
        {"q4_1", "blk.0.attn_q.weight", 22, &half_inf, 2, "row 0 has a scale", false},
        {"q8_0", "token_embd.weight", 34 * 2 * 258, &half_inf, 2, "row 258 has a scale", false},
        {"f16", "blk.0.ffn_down.weight", 2 * 5, &half_inf, 2, "row 0 has a value", false},
        {"bf16", "output.weight", 2 * 64 * 7, &nan, 4, "row 7 has a value", false},
        {"f32", "blk.1.attn_k.weight", 4 * 64, &inf, 4, "row 1 has a value", false},
        {"f32", "token_embd.weight", 4 * 64 * 2, &nan, 4, "row 2 has a value", false},
        {"q4_0", "blk.1.ffn_norm.weight", 8, &nan, 4, "row 0 has a value", true},
        {"q4_0", "output_norm.weight", 0, &inf, 4, "row 0 has a value", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t w = 0; w < N_WAYS; w++) {
            const aerie_model_params p = params_of(&ways[w], NULL);
            aerie_model *model;
            aerie_error error = {0};
            make_model("tiny", cases[i].type, false);
            poison(cases[i].tensor, cases[i].offset, cases[i].bytes, cases[i].n);
            const aerie_status status = aerie_model_load(&model, path, &p, &error);
            const bool found = !ways[w].mmap || cases[i].in_place;
            if (status != (found ? AERIE_ERROR_FORMAT : AERIE_OK))
                fail_msg("%s, %s: status %d, \"%s\"", cases[i].tensor, ways[w].name, (int)status, error.text);
            if (found && (!strstr(error.text, cases[i].tensor) || !strstr(error.text, cases[i].what) || model))
                fail_msg("%s, %s: \"%s\"", cases[i].tensor, ways[w].name, error.text);
            aerie_model_free(model);
        }
}

static bool on_token(void *user, const aerie_token_event *event)
{
    *(int *)user += event->token >= 0;
    return true;
}

/* Finite weights whose products are infinite give an error with a sentence. */
static void test_logits_that_are_no_numbers(void **state)
{
    float huge[64];
    (void)state;
    for (int i = 0; i < 64; i++) huge[i] = 3e38f;
    for (int nan = 0; nan < 2; nan++)
        for (size_t w = 0; w < N_WAYS; w++) {
            const aerie_model_params p = params_of(&ways[w], NULL);
            aerie_session_params sp = aerie_session_params_default();
            aerie_model *model;
            aerie_session *session;
            aerie_error error = {0};
            int n_told = 0;
            make_model("tiny", "f32", false);
            poison(nan ? "blk.1.attn_norm.weight" : "output_norm.weight", 0, huge, sizeof huge);
            if (!nan) /* all products with them overflow */
                for (int row = 0; row < 320; row++) poison("output.weight", 256 * (uint64_t)row, huge, sizeof huge);
            sp.n_ctx = 64, sp.n_threads = 2;
            if (aerie_model_load(&model, path, &p, &error) != AERIE_OK) fail_msg("%s", error.text);
            if (aerie_session_create(&session, model, &sp, &error) != AERIE_OK) fail_msg("%s", error.text);
            const int32_t tokens[] = {5, 6, 7};
            aerie_request request = aerie_request_default();
            request.tokens = tokens, request.n_tokens = 3, request.n_predict = 4;
            for (int again = 0; again < 2; again++) {
                assert_int_equal(aerie_session_generate(session, &request, 1, on_token, &n_told, NULL, 0, &error),
                                 AERIE_ERROR_FORMAT);
                assert_non_null(strstr(error.text, "no finite logit for the token at position 3"));
            }
            assert_int_equal(n_told, 0);
            aerie_session_free(session);
            aerie_model_free(model);
        }
}

/* ---- Progress ------------------------------------------------------------------------------------------- */

typedef struct watch {
    uint64_t n_calls, last, total, stop_at; /* stop_at: the call, from 1, that returns false */
    bool truncate;
} watch;

static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    watch *w = user;
    if (w->n_calls == 0) {
        assert_int_equal(done, 0);
        if (w->truncate) assert_int_equal(truncate(path, 5000), 0);
    }
    assert_true(done <= total && done >= w->last);
    w->last = done;
    w->total = total;
    return ++w->n_calls != w->stop_at;
}

static void test_progress_and_cancel(void **state)
{
    (void)state;
    make_model("tiny-gqa", "q8_0", false);
    for (uint32_t n_threads = 1; n_threads < 4; n_threads += 2) {
        watch w = {0};
        aerie_model *model;
        aerie_error error = {0};
        aerie_model_params p = aerie_model_params_default();
        p.progress = on_progress, p.user = &w, p.n_threads = n_threads;
        assert_int_equal(aerie_model_load(&model, path, &p, &error), AERIE_OK);
        assert_true(w.n_calls >= 2 && w.total > 0 && w.last == w.total);
        aerie_model_free(model);
        const uint64_t n_calls = n_threads == 1 ? w.n_calls : 2; /* their number depends on which thread gets which part */
        for (uint64_t stop = 1; stop <= n_calls; stop++) {
            const int before = open_files();
            w = (watch){.stop_at = stop};
            assert_int_equal(aerie_model_load(&model, path, &p, &error), AERIE_ERROR_CANCELLED);
            assert_null(model);
            assert_int_equal(error.status, AERIE_ERROR_CANCELLED);
            assert_int_equal(w.n_calls, stop);
            assert_int_equal(open_files(), before);
        }
    }
}

/* Cut short between the index and the weights: an error that names the file, no signal. */
static void test_file_cut_while_loading(void **state)
{
    (void)state;
    for (uint32_t n_threads = 1; n_threads < 4; n_threads += 2) {
        make_model("tiny-gqa", "q8_0", true);
        watch w = {.truncate = true};
        aerie_model *model;
        aerie_error error = {0};
        aerie_model_params p = aerie_model_params_default();
        p.progress = on_progress, p.user = &w, p.n_threads = n_threads;
        assert_int_equal(aerie_model_load(&model, path, &p, &error), AERIE_ERROR_IO);
        assert_non_null(strstr(error.text, path));
        assert_null(model);
    }
}

/* A file's embeddings for layers may be wider than anything else that a product reads. */
static void test_room_for_the_widest_input(void **state)
{
    aerie_error error = {0};
    ae_model *m;
    (void)state;
    assert_int_equal(mkarch_write(mkarch_find("gemma3n"), true, path, &error), AERIE_OK);
    assert_int_equal(ae_model_load(&m, path, NULL, &error), AERIE_OK);
    ae_hparams h = m->hparams;
    h.n_embd_layer = 9000;
    assert_in_range(ae_block_max_in(&h, m->layers, h.n_layers), 9000, 9000);
    ae_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_logits_however_loaded),
        cmocka_unit_test(test_without_vocabulary),
        cmocka_unit_test(test_what_is_read),
        cmocka_unit_test(test_tables_and_experts),
        cmocka_unit_test(test_memory_of_a_draft_model),
        cmocka_unit_test(test_failing_reads),
        cmocka_unit_test(test_weights_that_are_no_numbers),
        cmocka_unit_test(test_logits_that_are_no_numbers),
        cmocka_unit_test(test_room_for_the_widest_input),
        cmocka_unit_test(test_progress_and_cancel),
        cmocka_unit_test(test_file_cut_while_loading),
    };
    return cmocka_run_group_tests_name("loading", tests, make_path, drop_path);
}
