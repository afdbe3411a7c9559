/* test_vision_laws.c - law 1 for prompts of which some positions are no tokens: rows that are given.
 *
 * Rows that are a token's embedding answer as the token does. Answers do not depend on the batch, threads, level, other
 * sequences, preemption, what the prefix tree holds, or a drafter; with rows of one direction and with groups that see each
 * other. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie_extra.h"
#include "mkarch.h"
#include "mkhead.h"
#include "model/model.h"
#define MAX_PREDICT 24
#include "spec_rig.inc"

enum { N_EMBD = 64, N_BEFORE = 21, N_MEDIA = 12, N_AFTER = 9, N_KINDS = 6 };

/* The last two rotate by height and width; of the third rows join two layers; the fourth has recurrent layers. */
enum { N_MODELS = 4, DEEP = 2, RECURRENT = 3, N_DEEP = 2 };
static aerie_model *models[N_MODELS];
static const char *const names[] = {"llama", "gemma3-cap", "qwen3vl", "qwen35"};
static const char *const overrides[] = {"qwen3vl.n_deepstack_layers=int:2"};
static uint32_t n_across; /* of pictures */
static int32_t before[N_BEFORE], after[N_KINDS][N_AFTER];
static float pictures[2][N_MEDIA * N_EMBD * (1 + N_DEEP)];
static float *embedding[N_MODELS]; /* [MKARCH_VOCAB][N_EMBD], scaled as the model does */

static void read_embedding(int i)
{
    aerie_error error = {0};
    ae_model *m;
    need(ae_model_load(&m, path_of(names[i]), NULL, &error), &error);
    const size_t n = (size_t)MKARCH_VOCAB * N_EMBD;
    embedding[i] = malloc(n * sizeof(float));
    need(ae_model_read_f32(m, m->embedding, embedding[i], n, &error), &error);
    for (size_t k = 0; k < n; k++) embedding[i][k] *= m->hparams.embedding_scale;
    ae_model_free(m);
}

static aerie_model *load_model(int i, const char *level)
{
    aerie_error error = {0};
    aerie_model *model;
    if (i != DEEP) return load(path_of(names[i]), level);
    aerie_model_params params = aerie_model_params_default();
    params.cpu_level = level;
    params.n_threads = 1;
    params.overrides = overrides;
    params.n_overrides = 1;
    const aerie_status status = aerie_model_load(&model, path_of(names[i]), &params, &error);
    if (status == AERIE_ERROR_ARGUMENT && strstr(error.text, "lacks the level")) return NULL;
    need(status, &error);
    return model;
}

static int make(void **state)
{
    (void)state;
    aerie_error error = {0};
    uint64_t random = 3;
    if (!mkdtemp(folder)) return 1;
    for (int i = 0; i < N_MODELS; i++) {
        need(mkarch_write(mkarch_find(names[i]), false, path_of(names[i]), &error), &error);
        models[i] = load_model(i, NULL);
        read_embedding(i);
    }
    for (size_t k = 0; k < N_BEFORE; k++) before[k] = (int32_t)(3 + mk_random(&random) % 250);
    for (size_t i = 0; i < N_KINDS; i++)
        for (size_t k = 0; k < N_AFTER; k++) after[i][k] = (int32_t)(3 + mk_random(&random) % 250);
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < N_MEDIA * N_EMBD * (1 + N_DEEP); k++)
            pictures[i][k] = (float)((double)(mk_random(&random) >> 40) * 0x1p-23 - 1);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        aerie_model_free(models[i]);
        free(embedding[i]);
        unlink(path_of(names[i]));
    }
    return rmdir(folder);
}

/* Request of a kind: 0 and 1 have a picture each, 2 both, 3 the same twice, 4 one at the start, 5 none. */
typedef struct asked {
    aerie_chunk chunks[6];
    aerie_request request;
} asked;

static void ask(asked *a, int kind, bool group)
{
    const aerie_chunk text = {.tokens = before, .n_tokens = N_BEFORE};
    const aerie_chunk p[] = {{.rows = pictures[0], .n_rows = N_MEDIA, .group = group, .n_across = n_across},
                             {.rows = pictures[1], .n_rows = N_MEDIA, .group = group, .n_across = n_across}};
    size_t n = 0;
    if (kind != 4) a->chunks[n++] = text;
    if (kind < 5) a->chunks[n++] = p[kind == 1];
    if (kind == 3) a->chunks[n++] = text;
    if (kind == 2 || kind == 3) a->chunks[n++] = p[kind == 2];
    a->chunks[n++] = (aerie_chunk){.tokens = after[kind], .n_tokens = N_AFTER};
    a->request = aerie_request_default();
    a->request.id = (size_t)kind;
    a->request.chunks = a->chunks;
    a->request.n_chunks = n;
    a->request.n_predict = 20;
    a->request.ignore_eos = true;
    a->request.sampling = sampling_of((uint32_t)kind % N_SAMPLINGS);
    if (kind == 2) a->request.sampling.dry_multiplier = 0.8f;
}

typedef struct how {
    uint32_t n_batch, n_threads, n_seqs, n_kv;
    aerie_spec_type type;
    const aerie_model *draft;
    const aerie_drafter_head *head;
} how;

static aerie_session *open_session(const aerie_model *model, const how *h)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = 200, params.n_batch = h->n_batch, params.n_threads = h->n_threads, params.n_seqs = h->n_seqs;
    params.n_kv = h->n_kv;
    params.spec.type = h->type;
    params.spec.draft_model = h->draft;
    params.spec.head = h->head;
    params.spec.n_max = 4;
    need(ae_session_create_for_test(&session, model, &params, &(ae_session_test){.fixed = true}, &error), &error);
    return session;
}

/* All kinds at once. */
static void answer_all(const aerie_model *model, const how *h, bool group, int n_times, run *r)
{
    asked all[N_KINDS];
    aerie_request requests[N_KINDS];
    aerie_stats stats[N_KINDS];
    aerie_error error = {0};
    aerie_session *session = open_session(model, h);
    for (int i = 0; i < N_KINDS; i++) {
        ask(&all[i], i, group);
        requests[i] = all[i].request;
    }
    for (int k = 0; k < n_times; k++) {
        memset(r, 0, sizeof *r);
        r->n = N_KINDS;
        need(aerie_session_generate(session, requests, N_KINDS, on_token, r, stats, sizeof(aerie_stats), &error), &error);
    }
    for (int i = 0; i < N_KINDS; i++) r->answers[i].stats = stats[i];
    aerie_session_free(session);
}

static void same_run(const run *got, const run *want, const char *what)
{
    for (size_t i = 0; i < N_KINDS; i++) same_answer(&got->answers[i], &want->answers[i], what, i);
}

static bool is_same(const answer *a, const answer *b)
{
    return a->n == b->n && !memcmp(a->ids, b->ids, a->n * sizeof *a->ids);
}

static void rows_of_tokens_answer_as_tokens(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        static float rows[N_BEFORE * N_EMBD * (1 + N_DEEP)];
        const size_t width = m == DEEP ? N_EMBD * (1 + N_DEEP) : N_EMBD; /* what joins the layers is 0 */
        memset(rows, 0, sizeof rows);
        aerie_error error = {0};
        aerie_request r[2] = {aerie_request_default(), aerie_request_default()};
        int32_t all[2 * N_BEFORE + N_AFTER];
        memcpy(all, before, sizeof before);
        memcpy(all + N_BEFORE, before, sizeof before);
        memcpy(all + 2 * N_BEFORE, after[0], sizeof after[0]);
        for (size_t k = 0; k < N_BEFORE; k++)
            memcpy(rows + k * width, embedding[m] + (size_t)before[k] * N_EMBD, N_EMBD * sizeof(float));
        const aerie_chunk chunks[] = {{.tokens = before, .n_tokens = N_BEFORE}, {.rows = rows, .n_rows = N_BEFORE},
                                      {.tokens = after[0], .n_tokens = N_AFTER}};
        r[0].tokens = all, r[0].n_tokens = 2 * N_BEFORE + N_AFTER;
        r[1].chunks = chunks, r[1].n_chunks = 3;
        for (int i = 0; i < 2; i++) r[i].n_predict = 20, r[i].ignore_eos = true, r[i].sampling = sampling_of(1);
        aerie_session *session = open_session(models[m], &(how){16, 2, 2, 0, AERIE_SPEC_NONE, NULL, NULL});
        static run got;
        memset(&got, 0, sizeof got);
        got.n = 2;
        need(aerie_session_generate(session, r, 2, on_token, &got, NULL, 0, &error), &error);
        aerie_session_free(session);
        same_answer(&got.answers[1], &got.answers[0], names[m], 1);
    }
}

static void answers_depend_on_nothing_else(void **state)
{
    (void)state;
    static run want, got, flat;
    for (int m = 0; m < N_MODELS; m++) {
        const bool group = m == 1;
        if (m >= DEEP) { /* rows of a grid rotate otherwise than rows of a line */
            n_across = 0;
            answer_all(models[m], &(how){512, 1, 1, 0, AERIE_SPEC_NONE, NULL, NULL}, false, 1, &flat);
            n_across = 4;
        }
        answer_all(models[m], &(how){512, 1, 1, 0, AERIE_SPEC_NONE, NULL, NULL}, group, 1, &want);
        if (group) answer_all(models[m], &(how){512, 1, 1, 0, AERIE_SPEC_NONE, NULL, NULL}, false, 1, &flat);
        if (m) { /* that they see each other, or are a grid, shows */
            assert_false(is_same(&flat.answers[0], &want.answers[0]) && is_same(&flat.answers[1], &want.answers[1]));
            assert_true(is_same(&flat.answers[5], &want.answers[5]));
        }
        assert_false(is_same(&want.answers[0], &want.answers[1]));
        const how ways[] = {{16, 2, 1, 0, AERIE_SPEC_NONE, NULL, NULL},  {20, 3, 6, 0, AERIE_SPEC_NONE, NULL, NULL},
                            {64, 2, 3, 0, AERIE_SPEC_NONE, NULL, NULL},  {512, 2, 6, 256, AERIE_SPEC_NONE, NULL, NULL},
                            {16, 1, 2, 0, AERIE_SPEC_NGRAM, NULL, NULL}, {64, 2, 6, 0, AERIE_SPEC_NGRAM, NULL, NULL},
                            {64, 2, 1, 0, AERIE_SPEC_DRAFT, models[m], NULL}, {32, 2, 6, 256, AERIE_SPEC_DRAFT, models[m],
                                                                               NULL}};
        for (size_t i = 0; i < sizeof ways / sizeof *ways - (m == RECURRENT ? 2 : 0); i++) {
            char what[96];
            snprintf(what, sizeof what, "%s, batch %u, %u threads, %u sequences, %u positions, drafter %d", names[m],
                     ways[i].n_batch, ways[i].n_threads, ways[i].n_seqs, ways[i].n_kv, (int)ways[i].type);
            answer_all(models[m], &ways[i], group, 2, &got); /* the second time with what the prefix tree holds */
            same_run(&got, &want, what);
        }
        n_across = 0;
    }
}

static void heads_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *kind;
        aerie_spec_type type;
    } kinds[] = {{"eagle", AERIE_SPEC_EAGLE}, {"eagle3.1", AERIE_SPEC_EAGLE3}, {"medusa", AERIE_SPEC_MEDUSA}};
    static run want, got;
    for (int m = 0; m < RECURRENT; m++) {
        n_across = m == DEEP ? 4 : 0;
        answer_all(models[m], &(how){512, 1, 1, 0, AERIE_SPEC_NONE, NULL, NULL}, m == 1, 1, &want);
        for (int i = 0; i < 3; i++) {
            aerie_error error = {0};
            aerie_drafter_head *head;
            char target[96];
            snprintf(target, sizeof target, "%s", path_of(names[m]));
            need(mkhead_write(&(mkhead_options){.kind = kinds[i].kind, .seed = 4}, target, path_of("head"), &error), &error);
            need(aerie_drafter_head_load(&head, models[m], path_of("head"), NULL, &error), &error);
            for (uint32_t n_seqs = 1; n_seqs <= 6; n_seqs += 5) {
                answer_all(models[m], &(how){24, 2, n_seqs, 0, kinds[i].type, NULL, head}, m == 1, 2, &got);
                same_run(&got, &want, kinds[i].kind);
                for (size_t k = 0; k < N_KINDS; k++) assert_true(got.answers[k].stats.n_drafted > 0);
            }
            aerie_drafter_head_free(head);
            unlink(path_of("head"));
        }
        n_across = 0;
    }
}

static void levels_answer_alike(void **state)
{
    (void)state;
    static run want, got;
    for (int m = 0; m < N_MODELS; m++) {
        n_across = m >= DEEP ? 4 : 0;
        answer_all(models[m], &(how){512, 1, 1, 0, AERIE_SPEC_NONE, NULL, NULL}, m == 1, 1, &want);
        for (size_t k = 0; k < N_LEVELS; k++) {
            aerie_model *model = load_model(m, levels[k]);
            if (!model) continue;
            answer_all(model, &(how){32, 2, 2, 0, AERIE_SPEC_NONE, NULL, NULL}, m == 1, 1, &got);
            same_run(&got, &want, levels[k]);
            aerie_model_free(model);
        }
        n_across = 0;
    }
}

/* What the first answer left is found, pictures included, and only by those that begin with the same rows. */
static void prefixes_are_found(void **state)
{
    (void)state;
    static run r;
    aerie_error error = {0};
    aerie_stats stats;
    asked a;
    aerie_session *session = open_session(models[0], &(how){64, 2, 1, 0, AERIE_SPEC_NONE, NULL, NULL});
    const uint32_t whole = N_BEFORE + N_MEDIA + N_AFTER;
    for (int i = 0; i < 3; i++) {
        ask(&a, i == 2, false);
        memset(&r, 0, sizeof r);
        r.n = 1;
        need(aerie_session_generate(session, &a.request, 1, on_token, &r, &stats, sizeof stats, &error), &error);
        assert_int_equal(stats.n_prompt, whole);
        assert_int_equal(stats.n_cached, i == 1 ? whole - 1 : i == 2 ? N_BEFORE : 0);
    }
    aerie_session_free(session);
}

static void refuse(const aerie_chunk *chunks, size_t n, const char *text)
{
    aerie_error error = {0};
    aerie_task *task;
    aerie_request r = aerie_request_default();
    aerie_session *session = open_session(models[0], &(how){16, 1, 1, 0, AERIE_SPEC_NONE, NULL, NULL});
    r.chunks = chunks, r.n_chunks = n;
    assert_int_not_equal(aerie_session_submit(session, &r, &task, &error), AERIE_OK);
    if (!strstr(error.text, text)) fail_msg("'%s' is not '%s'", error.text, text);
    aerie_session_free(session);
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    static float bad[2 * N_EMBD];
    static float many[300 * N_EMBD];
    const int32_t negative[] = {5, -1};
    bad[70] = INFINITY;
    const aerie_chunk rows = {.rows = pictures[0], .n_rows = 2}, text = {.tokens = before, .n_tokens = 3};
    refuse((aerie_chunk[]){text, {0}}, 2, "chunk 1 of the prompt has 0 tokens and 0 rows");
    refuse((aerie_chunk[]){text, {.n_tokens = 3}}, 2, "has 3 tokens and 0 rows");
    refuse((aerie_chunk[]){text, {.tokens = before, .n_tokens = 1, .rows = bad, .n_rows = 1}}, 2, "one or the");
    refuse((aerie_chunk[]){text, {.rows = bad, .n_rows = 2}, text}, 3, "row 1 in chunk 1");
    refuse((aerie_chunk[]){{.tokens = negative, .n_tokens = 2}}, 1, "token 1 in chunk 0 of the prompt is -1");
    refuse((aerie_chunk[]){text, rows}, 2, "must be a token");
    refuse((aerie_chunk[]){{.rows = many, .n_rows = 300}, text}, 2, "300 tokens and rows");
    refuse((aerie_chunk[]){{.rows = many, .n_rows = 100, .group = true}, text}, 2, "larger batch");
    refuse((aerie_chunk[]){{.rows = many, .n_rows = SIZE_MAX / 2}, text}, 2, "tokens and rows");
    refuse((aerie_chunk[]){{.tokens = before, .n_tokens = 3, .reserved = {1}}}, 1, "aerie_chunk");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_tokens_answer_as_tokens), cmocka_unit_test(answers_depend_on_nothing_else),
        cmocka_unit_test(heads_change_nothing), cmocka_unit_test(levels_answer_alike),
        cmocka_unit_test(prefixes_are_found), cmocka_unit_test(refuses_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
