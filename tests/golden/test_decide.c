/* test_decide.c - decision heads: scores against a float64 program's, the same bits however they are computed, every weight,
 * and what is refused.
 *
 * Golden scores: tests/golden/decide/NAME.bin; format and how they are made: tests/golden/make_decision_vectors.py.
 */
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

#include "aerie_extra.h"
#include "arch_rig.inc"
#include "engine/decide.h"

enum { MAX_TEXT = 128, MAX_SCORES = 16, MAX_NUMBERS = 8 * 64 };

typedef struct decided {
    uint32_t n, m; /* tokens, scores */
    uint64_t model_hash;
    int32_t tokens[MAX_TEXT];
    uint8_t spans[MAX_TEXT];
    double scores[MAX_SCORES];
    uint32_t image[3];        /* an image's first position, rows (0: there is no image) and columns */
    float rows[MAX_NUMBERS];
    aerie_chunk chunks[3];
    size_t n_chunks;
} decided;

/* golden scores, and the models that they are of */
static const struct {
    const char *scores, *model;
} names[] = {{"clef", "clef"}, {"clef-image", "clef"}, {"modern-bert-decides", "modern-bert-decides"}};
enum { N_NAMES = sizeof names / sizeof *names };

static char path[128];

static void read_decided(decided *g, const char *name)
{
    char file[128];
    snprintf(file, sizeof file, "tests/golden/decide/%s.bin", name);
    FILE *f = fopen(file, "rb");
    if (!f) fail_msg("%s is missing; make_decision_vectors.py makes it", file);
    *g = (decided){0};
    bool ok = fread(&g->n, 4, 1, f) == 1 && fread(&g->m, 4, 1, f) == 1 && fread(&g->model_hash, 8, 1, f) == 1;
    assert_true(ok && g->n <= MAX_TEXT && g->m <= MAX_SCORES);
    ok = fread(g->tokens, 4, g->n, f) == g->n && fread(g->spans, 1, g->n, f) == g->n && fread(g->scores, 8, g->m, f) == g->m;
    assert_true(ok);
    if (fread(g->image, 4, 3, f) == 3) {
        const size_t n = fread(g->rows, sizeof *g->rows, MAX_NUMBERS, f);
        assert_true(g->image[1] && n % g->image[1] == 0 && g->image[0] + g->image[1] <= g->n);
    }
    fclose(f);
    const uint32_t first = g->image[0], n = g->image[1];
    if (first) g->chunks[g->n_chunks++] = (aerie_chunk){.tokens = g->tokens, .n_tokens = first};
    if (n) g->chunks[g->n_chunks++] = (aerie_chunk){.rows = g->rows, .n_rows = n, .n_across = g->image[2]};
    g->chunks[g->n_chunks++] = (aerie_chunk){.tokens = g->tokens + first + n, .n_tokens = g->n - first - n};
    for (uint32_t i = 0; i < n; i++) g->tokens[first + i] = -1 - (int32_t)i;
}

static void write_model(const mkarch_spec *spec)
{
    aerie_error error = {0};
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    need(mkarch_write(spec, false, path, &error), &error);
}

static uint64_t hash_of_model(void)
{
    ae_file_map map;
    aerie_error error = {0};
    uint64_t hash = 0xcbf29ce484222325u;
    need(ae_file_map_open(&map, path, false, &error), &error);
    for (size_t i = 0; i < map.bytes; i++) hash = (hash ^ map.data[i]) * 0x100000001b3u;
    ae_file_map_close(&map);
    return hash;
}

static double error_of(const float *scores, const decided *g)
{
    double off = 0, all = 0;
    for (uint32_t i = 0; i < g->m; i++) {
        off += ((double)scores[i] - g->scores[i]) * ((double)scores[i] - g->scores[i]);
        all += g->scores[i] * g->scores[i];
    }
    return off / all;
}

/* ---- Golden scores ----------------------------------------------------------------------------------- */

/* Scores with keys and values in F32. */
static void score_exactly(const decided *g, float *scores)
{
    aerie_error error = {0};
    ae_backend *backend;
    ae_model *model;
    ae_net *net;
    ae_engine *engine;
    ae_decider *decider;
    uint32_t first, n_options;
    need(ae_model_load(&model, path, NULL, &error), &error);
    need(ae_backend_open(&backend, NULL, NULL, &error), &error);
    need(ae_net_create(&net, model, backend, &(ae_load_options){.n_threads = 1}, &error), &error);
    const ae_engine_options o = {.n_ctx = MKARCH_CTX, .n_seqs = 1, .n_batch = MAX_TEXT, .n_outputs = 1, .n_threads = 1,
                                 .n_records = 1, .kv_type = AE_KV_F32, .n_taps = 1, .taps = {ae_engine_text_tap(model)}};
    need(ae_engine_create(&engine, net, &o, &error), &error);
    ae_engine_rows_clear(engine);
    need(ae_engine_add_text(engine, 0, g->tokens, g->n, g->n, &first, &error), &error);
    const ae_media image = {.first = g->image[0], .n = g->image[1], .rows = g->rows, .n_across = g->image[2]};
    need(ae_engine_add_media(engine, first, g->n, 0, &image, g->image[1] != 0, &error), &error);
    need(ae_engine_pass(engine, &error), &error);
    const size_t bytes = (size_t)g->n * model->hparams.n_embd * sizeof(float);
    float *rows = malloc(bytes), *room = malloc(bytes);
    assert_true(rows && room);
    memcpy(rows, backend->ops->view(ae_engine_stream(engine), ae_engine_features(engine, 0), room, bytes), bytes);
    need(ae_decider_create(&decider, model, &error), &error);
    need(ae_decider_count(model, g->spans, g->n, &n_options, &error), &error);
    assert_int_equal(n_options, g->m);
    need(ae_decider_run(decider, ae_engine_pool(engine), g->tokens, g->spans, g->n, rows, scores, &error), &error);
    ae_decider_free(decider);
    ae_engine_free(engine);
    ae_net_free(net);
    ae_backend_close(backend);
    ae_model_free(model);
    free(rows), free(room);
}

static void test_golden_scores(void **state)
{
    static decided g;
    float scores[MAX_SCORES];
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        read_decided(&g, names[i].scores);
        write_model(mkarch_find(names[i].model));
        if (hash_of_model() != g.model_hash) fail_msg("%s: the golden scores are of another model", names[i].scores);
        score_exactly(&g, scores);
        print_message("%-22s error %.1e\n", names[i].scores, error_of(scores, &g));
        assert_true(error_of(scores, &g) <= 1e-10);
    }
    unlink(path);
}

/* ---- The same bits ----------------------------------------------------------------------------------- */

static aerie_model *load(const char *level, const char *backend)
{
    aerie_error error = {0};
    aerie_model *model;
    aerie_model_params p = aerie_model_params_default();
    p.cpu_level = level;
    p.backend = backend;
    const aerie_status status = aerie_model_load(&model, path, &p, &error);
    if (status == AERIE_ERROR_ARGUMENT && *level) return NULL; /* this machine has no such level */
    need(status, &error);
    return model;
}

static void decide(const aerie_model *model, uint32_t n_threads, uint32_t n_batch, const decided *g, float *scores)
{
    aerie_error error = {0};
    aerie_embedder *e;
    aerie_embedder_params p = aerie_embedder_params_default();
    p.n_threads = n_threads;
    p.n_batch = n_batch;
    need(aerie_embedder_create(&e, model, &p, &error), &error);
    for (int k = 0; k < 2; k++) /* nothing is kept of a text */
        need(aerie_embedder_decide(e, g->chunks, g->n_chunks, g->spans, scores, g->m, &error), &error);
    aerie_embedder_free(e);
}

static void test_same_bits(void **state)
{
    static const struct {
        const char *level, *backend;
        uint32_t n_threads, n_batch;
    } cases[] = {{"ref", "", 1, 512}, {"", "", 3, 7}, {"avx2", "", 2, 19}, {"avx512", "", 1, 64}, {"", "cpu-strict", 2, 33},
                 {"", "cpu,cpu-strict", 2, 0}};
    static decided g;
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        float wanted[MAX_SCORES], scores[MAX_SCORES];
        read_decided(&g, names[i].scores);
        write_model(mkarch_find(names[i].model));
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            aerie_model *model = load(cases[k].level, cases[k].backend);
            if (!model) continue;
            decide(model, cases[k].n_threads, cases[k].n_batch, &g, k ? scores : wanted);
            if (k && memcmp(scores, wanted, g.m * sizeof *scores)) fail_msg("%s: other bits in case %zu", names[i].scores, k);
            aerie_model_free(model);
        }
        assert_true(error_of(wanted, &g) <= 1e-5); /* keys and values are F16 here */
    }
    unlink(path);
}

/* A score depends on the spans, also of other questions. */
static void test_spans_matter(void **state)
{
    static decided g;
    float wanted[MAX_SCORES], scores[MAX_SCORES];
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        read_decided(&g, names[i].scores);
        write_model(mkarch_find(names[i].model));
        aerie_model *model = load("", "");
        decide(model, 1, 0, &g, wanted);
        for (uint32_t k = 0; k < g.n; k++) /* the last question is of another kind */
            if (g.spans[k] == AERIE_SPAN_SCORE) g.spans[k] = AERIE_SPAN_NOUL;
        decide(model, 1, 0, &g, scores);
        for (uint32_t k = 0; k < g.m; k++)
            if (!(fabsf(scores[k] - wanted[k]) > 1e-6f)) fail_msg("%s: score %u stays", names[i].scores, k);
        aerie_model_free(model);
    }
    unlink(path);
}

/* ---- Every weight ------------------------------------------------------------------------------------ */

/* A copy of a spec in which the first `from` of its keys or tensors is `to`; false: there is none. */
static bool alter(const mkarch_spec *spec, const char *from, const char *to, mkarch_spec *out)
{
    static char text[16384];
    const bool in_keys = strstr(spec->keys, from) != NULL;
    const char *whole = in_keys ? spec->keys : spec->tensors, *at = strstr(whole, from);
    *out = *spec;
    if (!at) return false;
    const int n = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, to, at + strlen(from));
    assert_true(n > 0 && (size_t)n < sizeof text);
    if (in_keys) out->keys = text;
    else out->tensors = text;
    return true;
}

static bool is_of_head(const char *line)
{
    static const char *const parts[] = {"dec.", "decision.", "token_types", "cls", "d ffn", "d attn", "- output "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *at = strstr(line, parts[i]);
        if (at && at <= line + 2) return true;
    }
    return false;
}

static void test_every_weight(void **state)
{
    static decided g;
    float wanted[MAX_SCORES], scores[MAX_SCORES];
    uint32_t n_lines = 0;
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        const mkarch_spec *spec = mkarch_find(names[i].model);
        read_decided(&g, names[i].scores);
        write_model(spec);
        score_exactly(&g, wanted);
        for (const char *line = spec->tensors; *line; line = strchr(line, '\n') + 1) {
            char old[160], new[160], set[16], name[80], init[16];
            int at = 0;
            mkarch_spec altered;
            snprintf(old, sizeof old, "%.*s", (int)strcspn(line, "\n"), line);
            /* a bias of keys moves all scores of a row alike, which their softmax does not see */
            if (!is_of_head(old) || strstr(old, "_k.bias")) continue;
            assert_int_equal(sscanf(old, "%15s %79s %15s%n", set, name, init, &at), 3);
            snprintf(new, sizeof new, "%s %s %c%g%s", set, name, init[0], (init[1] ? atof(init + 1) : 1) * 1.25, old + at);
            assert_true(alter(spec, old, new, &altered));
            write_model(&altered);
            score_exactly(&g, scores);
            if (!memcmp(scores, wanted, g.m * sizeof *scores)) fail_msg("%s: nothing reads %s", names[i].scores, name);
            n_lines++;
        }
    }
    unlink(path);
    assert_true(n_lines > 80);
}

/* ---- Refusals ---------------------------------------------------------------------------------------- */

static void refused(aerie_status status, aerie_status wanted, const aerie_error *error, const char *part)
{
    if (status != wanted || !strstr(error->text, part)) fail_msg("status %d: %s", (int)status, error->text);
}

static void test_damaged(void **state)
{
    static const struct {
        const char *name, *from, *to, *part;
    } cases[] = {
        {"clef", "u decision.head_count 3\n", "u decision.head_count 5\n", "share the values evenly"},
        {"clef", "u decision.head_count 3\n", "", "head_count"},
        {"clef", "u decision.block_count 2\n", "u decision.block_count 3\n", "dec.blk.4"},
        {"clef", "u decision.block_count 2\n", "u decision.block_count 1\n", "nothing reads tensor dec.blk.3"},
        {"clef", "u decision.routing_block_count 2\n", "u decision.routing_block_count 100000\n", "routing_block_count"},
        {"clef", "f attention.layer_norm_epsilon 1e-5\n", "f attention.layer_norm_epsilon 2\n", "between 0 and 1"},
        {"clef", "- decision.proj_memory.weight. w 64 48\n", "", "proj_memory"},
        {"clef", "- decision.proj_global.weight. w 64 48\n", "- decision.proj_global.weight. w 48 64\n", "proj_global"},
        {"clef", "- decision.scales. o2 3\n", "- decision.scales. o2 2\n", "decision.scales"},
        {"clef", "- token_types e 48 3\n", "- token_types e 48 2\n", "token_types"},
        {"clef", "- dec.blk.0.ffn_up.bias b 80\n", "", "dec.blk.0.ffn_up.bias"},
        {"clef", "- decision.scorer_out.bias b 1\n", "- decision.other.bias b 1\n", "decision.scorer_out.bias"},
        {"modern-bert-decides", "u decision.block_count 2\n", "u decision.block_count 5\n", "decision.block_count"},
        {"modern-bert-decides", "u decision.block_count 2\n", "u decision.block_count 1\n", "tensor"},
        {"modern-bert-decides", "- cls.bias b 64\n", "", "cls.bias"},
        {"modern-bert-decides", "d attn_qkv.bias b 192\n", "", "attn_qkv.bias"},
        {"modern-bert-decides", "d ffn_down w2 80 64\n", "d ffn_down w2 96 64\n", "ffn_down"},
        {"modern-bert-decides", "- token_types e 64 3\n", "", "token_types"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        aerie_error error = {0};
        mkarch_spec altered;
        ae_model *model;
        assert_true(alter(mkarch_find(cases[i].name), cases[i].from, cases[i].to, &altered));
        write_model(&altered);
        const aerie_status status = ae_model_load(&model, path, NULL, &error);
        if (status == AERIE_OK || !strstr(error.text, cases[i].part))
            fail_msg("case %zu: status %d: %s", i, (int)status, error.text);
    }
    unlink(path);
}

static void test_refused(void **state)
{
    static decided g;
    aerie_error error = {0};
    aerie_embedder *e;
    aerie_session *session;
    float scores[MAX_SCORES];
    double p[3];
    (void)state;
    read_decided(&g, "clef");
    write_model(mkarch_find("clef"));
    aerie_model *model = load("", "");
    aerie_model_info info;
    aerie_model_info_get(model, &info, sizeof info);
    assert_int_equal(info.decision, AERIE_DECISION_JOINT);
    assert_true(info.is_encoder);
    refused(aerie_session_create(&session, model, NULL, &error), AERIE_ERROR_UNSUPPORTED, &error, "decision head");
    need(aerie_embedder_create(&e, model, NULL, &error), &error);
#define DECIDE_TOKENS(tokens_, list, n_list, n_scores) \
    aerie_embedder_decide(e, &(aerie_chunk){.tokens = tokens_, .n_tokens = n_list}, 1, list, scores, n_scores, &error)
#define DECIDE(list, n_list, n_scores) DECIDE_TOKENS(g.tokens, list, n_list, n_scores)
    refused(DECIDE(g.spans, g.n, g.m - 1), AERIE_ERROR_ARGUMENT, &error, "9 options");
    refused(DECIDE(g.spans, 0, 1), AERIE_ERROR_ARGUMENT, &error, "no tokens");
    refused(aerie_embedder_decide(e, NULL, 0, g.spans, scores, 1, &error), AERIE_ERROR_ARGUMENT, &error, "no tokens");
    refused(DECIDE(((const uint8_t[]){0, 4, 1, 4}), 4, 2), AERIE_ERROR_ARGUMENT, &error, "before any question");
    refused(DECIDE(((const uint8_t[]){0, 1, 2, 4}), 4, 1), AERIE_ERROR_ARGUMENT, &error, "question 0 has no option");
    refused(DECIDE(((const uint8_t[]){0, 1, 4, 3}), 4, 1), AERIE_ERROR_ARGUMENT, &error, "question 1 has no option");
    refused(DECIDE(((const uint8_t[]){0, 0, 0, 0}), 4, 0), AERIE_ERROR_ARGUMENT, &error, "no token belongs to a question");
    refused(DECIDE(((const uint8_t[]){0, 1, 4, 5}), 4, 1), AERIE_ERROR_ARGUMENT, &error, "the span of token 3 is 5");
    need(DECIDE(((const uint8_t[]){1, 4}), 2, 1), &error); /* the shortest text */
    refused(DECIDE_TOKENS(((const int32_t[]){5, MKARCH_VOCAB}), ((const uint8_t[]){1, 4}), 2, 1), AERIE_ERROR_ARGUMENT, &error,
            "token 2 of the text is 264");
    refused(DECIDE_TOKENS(((const int32_t[]){5, -1}), ((const uint8_t[]){1, 4}), 2, 1), AERIE_ERROR_ARGUMENT, &error, "is -1");
    static int32_t many[MKARCH_CTX + 1];
    static uint8_t spans[MKARCH_CTX + 1] = {1, 4};
    refused(DECIDE_TOKENS(many, spans, MKARCH_CTX + 1, 1), AERIE_ERROR_LIMIT, &error, "257 tokens and rows");
    refused(DECIDE_TOKENS(many, spans, SIZE_MAX, 1), AERIE_ERROR_LIMIT, &error, "at most 256");
    need(DECIDE_TOKENS(many, spans, MKARCH_CTX, 1), &error); /* the longest */
    aerie_chunk *image = &g.chunks[1];
    static const uint8_t asked[] = {1, 0, 4};
    const aerie_chunk one = {.tokens = g.tokens, .n_tokens = 1};
    read_decided(&g, "clef-image");
#define DECIDE_IMAGE(spans_) aerie_embedder_decide(e, (const aerie_chunk[]){one, *image, one}, 3, spans_, scores, 1, &error)
    image->n_rows = image->n_across = 1;
    need(DECIDE_IMAGE(asked), &error);
    refused(DECIDE_IMAGE(((const uint8_t[]){1, 4, 4})), AERIE_ERROR_ARGUMENT, &error, "position 1 is 4, but it is a row");
    image->n_across = 2;
    refused(DECIDE_IMAGE(asked), AERIE_ERROR_ARGUMENT, &error, "do not fill lines of 2");
    image->n_across = 1, image->group = true;
    refused(DECIDE_IMAGE(asked), AERIE_ERROR_UNSUPPORTED, &error, "recurrent layers");
    image->group = false, g.rows[3] = NAN;
    refused(DECIDE_IMAGE(asked), AERIE_ERROR_ARGUMENT, &error, "not finite");
    g.rows[3] = 0, image->n_rows = MKARCH_CTX;
    refused(DECIDE_IMAGE(asked), AERIE_ERROR_LIMIT, &error, "at most 256");
    image->n_rows = 1;
    need(DECIDE_IMAGE(asked), &error); /* nothing stays of what was refused */
    refused(aerie_embedder_logits(e, &one, 1, g.tokens, 1, scores, &error), AERIE_ERROR_UNSUPPORTED, &error, "decision head");
    aerie_embedder_free(e);
    aerie_model_free(model);
    write_model(mkarch_find("llada"));
    model = load("", "");
    need(aerie_embedder_create(&e, model, NULL, &error), &error);
    refused(aerie_embedder_logits(e, &one, 1, g.tokens, 1, scores, &error), AERIE_ERROR_UNSUPPORTED, &error, "token by token");
    aerie_embedder_free(e);
    aerie_model_free(model);
    write_model(mkarch_find("qwen35"));
    model = load("", "");
    need(aerie_embedder_create(&e, model, NULL, &error), &error);
#define LOGITS(chunk_, token_) aerie_embedder_logits(e, chunk_, 1, &(int32_t){token_}, 1, scores, &error)
    need(LOGITS(&one, MKARCH_VOCAB - 1), &error);
    refused(LOGITS(&one, MKARCH_VOCAB), AERIE_ERROR_ARGUMENT, &error, "token 0 is 264");
    refused(LOGITS(&one, -1), AERIE_ERROR_ARGUMENT, &error, "token 0 is -1");
    const aerie_chunk unknown = {.tokens = &(int32_t){MKARCH_VOCAB}, .n_tokens = 1};
    refused(LOGITS(&unknown, 0), AERIE_ERROR_ARGUMENT, &error, "token 1 of the text is 264");
    refused(aerie_embedder_logits(e, NULL, 0, g.tokens, 1, scores, &error), AERIE_ERROR_ARGUMENT, &error, "no tokens");
    aerie_embedder_free(e);
    aerie_model_free(model);
    write_model(mkarch_find("modern-bert-decides"));
    model = load("", "");
    need(aerie_embedder_create(&e, model, NULL, &error), &error);
    refused(DECIDE_IMAGE(asked), AERIE_ERROR_UNSUPPORTED, &error, "not about images");
    aerie_embedder_free(e);
    aerie_model_free(model);
    write_model(mkarch_find("bert"));
    model = load("", "");
    need(aerie_embedder_create(&e, model, NULL, &error), &error);
    refused(DECIDE(((const uint8_t[]){1, 4}), 2, 1), AERIE_ERROR_UNSUPPORTED, &error, "no decision head");
    refused(aerie_embedder_logits(e, &one, 1, g.tokens, 1, scores, &error), AERIE_ERROR_UNSUPPORTED, &error, "is an encoder");
    aerie_embedder_free(e);
    aerie_model_free(model);
    unlink(path);
    need(aerie_decision_probabilities((const float[]){1, 3, 2}, 3, 2, p, &error), &error);
    const double all = exp(-1) + 1 + exp(-0.5);
    assert_true(fabs(p[0] - exp(-1) / all) < 1e-14 && fabs(p[1] - 1 / all) < 1e-14 && fabs(p[2] - exp(-0.5) / all) < 1e-14);
    refused(aerie_decision_probabilities(scores, 0, 1, p, &error), AERIE_ERROR_ARGUMENT, &error, "no scores");
    refused(aerie_decision_probabilities(scores, 1, 0, p, &error), AERIE_ERROR_ARGUMENT, &error, "above 0");
    refused(aerie_decision_probabilities((const float[]){NAN}, 1, 1, p, &error), AERIE_ERROR_ARGUMENT, &error, "score 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden_scores), cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_spans_matter), cmocka_unit_test(test_every_weight),
                                       cmocka_unit_test(test_damaged), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
