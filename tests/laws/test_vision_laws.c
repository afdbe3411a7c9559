/* test_vision_laws.c - law 1 for prompts of which some positions are not tokens: rows that are given.
 *
 * Rows that are a token's embedding answer as the token does. Answers do not depend on the batch, threads, level, other
 * sequences, preemption, what the prefix tree holds, or a drafter; with rows of one direction and with groups that see each
 * other. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "vision_rig.inc"

static void rows_of_tokens_answer_as_tokens(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        static float rows[N_BEFORE * N_EMBD * (1 + N_DEEP)];
        const size_t width = m == DEEP ? N_EMBD * (1 + N_DEEP) : N_EMBD; /* the inputs added at layers are 0 */
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
        aerie_session *session = open_session(models[m], &(how){.n_batch = 16, .n_threads = 2, .n_seqs = 2});
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
            answer_all(models[m], &(how){.n_batch = 512, .n_threads = 1, .n_seqs = 1}, false, 1, &flat);
            n_across = 4;
        }
        answer_all(models[m], &(how){.n_batch = 512, .n_threads = 1, .n_seqs = 1}, group, 1, &want);
        if (group) answer_all(models[m], &(how){.n_batch = 512, .n_threads = 1, .n_seqs = 1}, false, 1, &flat);
        if (m) { /* whether they see each other, or are a grid, has an effect */
            assert_false(is_same(&flat.answers[0], &want.answers[0]) && is_same(&flat.answers[1], &want.answers[1]));
            assert_true(is_same(&flat.answers[5], &want.answers[5]));
        }
        assert_false(is_same(&want.answers[0], &want.answers[1]));
        const aerie_model *const draft = models[m];
        const how ways[] = {
            {.n_batch = 16, .n_threads = 2, .n_seqs = 1}, {.n_batch = 20, .n_threads = 3, .n_seqs = 6},
            {.n_batch = 64, .n_threads = 2, .n_seqs = 3}, {.n_batch = 512, .n_threads = 2, .n_seqs = 6, .n_kv = 256},
            {.n_batch = 16, .n_threads = 1, .n_seqs = 2, .type = AERIE_SPEC_NGRAM},
            {.n_batch = 64, .n_threads = 2, .n_seqs = 6, .type = AERIE_SPEC_NGRAM},
            {.n_batch = 64, .n_threads = 2, .n_seqs = 1, .type = AERIE_SPEC_DRAFT, .draft = draft},
            {.n_batch = 32, .n_threads = 2, .n_seqs = 6, .n_kv = 256, .type = AERIE_SPEC_DRAFT, .draft = draft}};
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

static void levels_answer_alike(void **state)
{
    (void)state;
    static run want, got;
    for (int m = 0; m < N_MODELS; m++) {
        n_across = m >= DEEP ? 4 : 0;
        answer_all(models[m], &(how){.n_batch = 512, .n_threads = 1, .n_seqs = 1}, m == 1, 1, &want);
        for (size_t k = 0; k < N_LEVELS; k++) {
            aerie_model *model = load_model(m, levels[k]);
            if (!model) continue;
            answer_all(model, &(how){.n_batch = 32, .n_threads = 2, .n_seqs = 2}, m == 1, 1, &got);
            same_run(&got, &want, levels[k]);
            aerie_model_free(model);
        }
        n_across = 0;
    }
}

/* The first answer's prefix is found, pictures included, and only by requests that begin with the same rows. */
static void prefixes_are_found(void **state)
{
    (void)state;
    static run r;
    aerie_error error = {0};
    aerie_stats stats;
    asked a;
    aerie_session *session = open_session(models[0], &(how){.n_batch = 64, .n_threads = 2, .n_seqs = 1});
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
    aerie_session *session = open_session(models[0], &(how){.n_batch = 16, .n_threads = 1, .n_seqs = 1});
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
    refuse((aerie_chunk[]){{.rows = many, .n_rows = 300}, text}, 2, "300 tokens and rows of images");
    refuse((aerie_chunk[]){{.rows = many, .n_rows = 100, .group = true}, text}, 2, "larger batch");
    refuse((aerie_chunk[]){{.rows = many, .n_rows = SIZE_MAX / 2}, text}, 2, "tokens and rows");
    refuse((aerie_chunk[]){{.tokens = before, .n_tokens = 3, .reserved = {1}}}, 1, "aerie_chunk");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_tokens_answer_as_tokens), cmocka_unit_test(answers_depend_on_nothing_else),
        cmocka_unit_test(levels_answer_alike),
        cmocka_unit_test(prefixes_are_found), cmocka_unit_test(refuses_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
