/* test_vision_saved.c - saved sequences with rows that are not tokens: the rest of the answer is that of a sequence that was
 * never saved, wherever it was saved and in whatever session it goes on; a cached prompt is found only by its rows.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "vision_rig.inc"
#include "base/mem.h"
#include "formats/sections.h"
#include "every.h"

enum { MEDIA = 6, ROWS = 7 }; /* sections of src/session/saved.c */

static void poll_into(aerie_session *session, answer *a)
{
    const aerie_token_event *e;
    while ((e = aerie_session_poll(session))) {
        if (e->refused) fail_msg("%s", e->refused->text);
        if (e->token < 0) continue;
        assert_true(a->n < MAX_PREDICT);
        a->ids[a->n++] = e->token;
    }
}

/* Steps until the task ends, or at most n times. */
static bool steps(aerie_session *session, const aerie_task *task, uint32_t n, answer *a)
{
    aerie_error error = {0};
    for (uint32_t i = 0; i < n && !aerie_task_ended(task); i++) need(aerie_session_step(session, &error), &error);
    poll_into(session, a);
    return !aerie_task_ended(task);
}

static aerie_request go_on(aerie_request request, const void *data, size_t n)
{
    request.chunks = NULL, request.n_chunks = 0;
    request.saved = data, request.n_saved = n;
    return request;
}

/* Saves after `at` steps; another session goes on, is saved at once before its first step, and a third one goes on. False: it
 * had ended before. */
static bool save_at(int m, int kind, uint32_t at, const answer *want)
{
    static const how ways[] = {{.n_batch = 16, .n_threads = 1, .n_seqs = 1},
                               {.n_batch = 64, .n_threads = 2, .n_seqs = 3, .type = AERIE_SPEC_NGRAM},
                               {.n_batch = 20, .n_threads = 2, .n_seqs = 2, .n_kv = 256}};
    aerie_error error = {0};
    answer got = {0};
    asked a;
    void *data[2];
    size_t n[2];
    ask(&a, kind, m == 1);
    for (int i = 0; i < 3; i++) {
        aerie_task *task, *beside = NULL;
        asked b;
        how h = ways[(i + at) % 3];
        if (m == 1 && h.n_batch < N_MEDIA + h.n_seqs) h.n_batch = 64;
        aerie_session *session = open_session(models[m], &h);
        ask(&b, 1, m == 1); /* so that ids of rows differ from session to session */
        b.request.token = NULL;
        if (i) need(aerie_session_submit(session, &b.request, &beside, &error), &error);
        if (i) aerie_task_cancel(beside);
        const aerie_request r = i ? go_on(a.request, data[i - 1], n[i - 1]) : a.request;
        need(aerie_session_submit(session, &r, &task, &error), &error);
        const bool runs = i == 1 || steps(session, task, i ? UINT32_MAX : at, &got);
        if (i < 2 && runs) need(aerie_task_save(task, &data[i], &n[i], &error), &error);
        aerie_task_free(task);
        aerie_task_free(beside);
        if (i == 1 || (!i && !runs)) (void)aerie_session_step(session, &error);
        aerie_session_free(session);
        if (!i && !runs) return false;
    }
    aerie_free(data[0]);
    aerie_free(data[1]);
    if (got.n != want->n || memcmp(got.ids, want->ids, got.n * sizeof *got.ids))
        fail_msg("%s, kind %d, saved after %u steps: %zu tokens differ from %zu", names[m], kind, at, got.n, want->n);
    return true;
}

static void a_saved_task_goes_on(void **state)
{
    (void)state;
    static run want;
    const uint32_t every = AE_TEST_EVERY > 4 ? 5 : 1;
    for (int m = 0; m < N_MODELS; m++) {
        n_across = m >= DEEP ? 4 : 0;
        answer_all(models[m], &(how){.n_batch = 512, .n_threads = 1, .n_seqs = 1}, m == 1, 1, &want);
        for (int kind = 0; kind < N_KINDS; kind++)
            for (uint32_t at = (uint32_t)kind % every; save_at(m, kind, at, &want.answers[kind]); at += every) {}
        n_across = 0;
    }
}

/* Runs one kind; returns the number of positions found in the cache. */
static uint32_t run_kind(aerie_session *session, int m, int kind, answer *a)
{
    static run r;
    aerie_error error = {0};
    aerie_stats stats;
    asked one;
    ask(&one, kind, m == 1);
    one.request.id = 0;
    memset(&r, 0, sizeof r);
    r.n = 1;
    need(aerie_session_generate(session, &one.request, 1, on_token, &r, &stats, sizeof stats, &error), &error);
    *a = r.answers[0];
    return stats.n_cached;
}

/* The prompt's tokens, and the answer but for its last. */
static size_t tokens_of(int m, int kind, const answer *a, int32_t *tokens)
{
    aerie_error error = {0};
    asked one;
    size_t n = 0;
    ask(&one, kind, m == 1);
    need(aerie_model_chunk_tokens(models[m], one.request.chunks, one.request.n_chunks, tokens, &error), &error);
    for (size_t i = 0; i < one.request.n_chunks; i++) n += one.chunks[i].n_tokens + one.chunks[i].n_rows;
    memcpy(tokens + n, a->ids, (a->n - 1) * sizeof *tokens);
    return n + a->n - 1;
}

static void what_was_kept_is_found_by_its_rows(void **state)
{
    (void)state;
    const how h = {.n_batch = 64, .n_threads = 2, .n_seqs = 1};
    for (int m = 0; m < N_MODELS; m++) {
        aerie_error error = {0};
        answer first, again, other, plain;
        int32_t tokens[200], *read;
        void *data;
        size_t n_data, n_loaded, n_read, n_prompt;
        n_across = m >= DEEP ? 4 : 0;
        aerie_session *from = open_session(models[m], &h), *to = open_session(models[m], &h);
        run_kind(to, m, 1, &plain); /* ids differ between the sessions */
        run_kind(from, m, 0, &first);
        const size_t n = tokens_of(m, 0, &first, tokens);
        assert_int_equal(aerie_session_prefix_find(from, 0, NULL, 0, tokens, n), n);
        assert_int_equal(aerie_session_prefix_find(to, 0, NULL, 0, tokens, n), m == RECURRENT ? 0 : N_BEFORE);
        need(aerie_session_prefix_save(from, 0, NULL, 0, tokens, n, &data, &n_data, &error), &error);
        need(aerie_saved_tokens(data, n_data, &read, &n_read, &n_prompt, &error), &error);
        assert_int_equal(n_read, n);
        assert_memory_equal(read, tokens, n * sizeof *tokens);
        aerie_free(read);
        need(aerie_session_prefix_load(to, 0, data, n_data, &n_loaded, &error), &error);
        assert_int_equal(n_loaded, n);
        assert_int_equal(aerie_session_prefix_find(to, 0, NULL, 0, tokens, n), n);
        const uint32_t n_cached = run_kind(to, m, 0, &again); /* but for its last position, where it can be cut there */
        if (m != RECURRENT) assert_int_equal(n_cached, N_BEFORE + N_MEDIA + N_AFTER - 1);
        same_answer(&again, &first, names[m], 0);
        run_kind(to, m, 1, &other);
        same_answer(&other, &plain, names[m], 1);
        /* its rows were not saved, so it is not a task */
        aerie_task *task;
        aerie_request r = go_on(aerie_request_default(), data, n_data);
        assert_int_equal(aerie_session_submit(to, &r, &task, &error), AERIE_ERROR_UNSUPPORTED);
        assert_non_null(strstr(error.text, "without their rows"));
        aerie_free(data);
        /* a part of a picture */
        if (m != RECURRENT) {
            aerie_session *third = open_session(models[m], &h);
            need(aerie_session_prefix_save(from, 0, NULL, 0, tokens, N_BEFORE + 5, &data, &n_data, &error), &error);
            need(aerie_session_prefix_load(third, 0, data, n_data, &n_loaded, &error), &error);
            assert_int_equal(n_loaded, N_BEFORE + 5);
            assert_int_equal(run_kind(third, m, 0, &again), N_BEFORE + 5);
            same_answer(&again, &first, names[m], 0);
            aerie_free(data);
            aerie_session_free(third);
        }
        aerie_session_free(from);
        aerie_session_free(to);
        n_across = 0;
    }
}

/* A session knows the latest 1,024 chunks of rows. Sequences with older ones are saved up to these. */
static void forgotten_rows_are_not_saved(void **state)
{
    (void)state;
    aerie_error error = {0};
    answer a;
    int32_t tokens[200];
    void *data;
    size_t n_data, n_prompt, n_read;
    aerie_session *session = open_session(models[0], &(how){.n_batch = 64, .n_threads = 1, .n_seqs = 1});
    run_kind(session, 0, 0, &a);
    const size_t n = tokens_of(0, 0, &a, tokens);
    assert_int_equal(aerie_session_prefix_find(session, 0, NULL, 0, tokens, n), n);
    for (int i = 0; i < 1024; i++) {
        float row[N_EMBD] = {(float)i};
        aerie_task *task;
        aerie_request r = aerie_request_default();
        const aerie_chunk chunks[] = {{.rows = row, .n_rows = 1}, {.tokens = before, .n_tokens = 1}};
        r.chunks = chunks, r.n_chunks = 2;
        need(aerie_session_submit(session, &r, &task, &error), &error);
        aerie_task_free(task);
        need(aerie_session_step(session, &error), &error);
    }
    assert_int_equal(aerie_session_prefix_find(session, 0, NULL, 0, tokens, n), N_BEFORE);
    need(aerie_session_prefix_save(session, 0, NULL, 0, tokens, n, &data, &n_data, &error), &error);
    int32_t *read;
    need(aerie_saved_tokens(data, n_data, &read, &n_read, &n_prompt, &error), &error);
    assert_int_equal(n_read, N_BEFORE);
    aerie_free(read);
    aerie_free(data);
    aerie_session_free(session);
}

static void chunk_tokens_are_checked(void **state)
{
    (void)state;
    aerie_error error = {0};
    float rows[2 * N_EMBD] = {0};
    int32_t tokens[8], again[8];
    const aerie_chunk chunks[] = {{.rows = rows, .n_rows = 2}, {.tokens = before, .n_tokens = 2}};
    need(aerie_model_chunk_tokens(models[0], chunks, 2, tokens, &error), &error);
    assert_true(tokens[0] < 0 && tokens[1] < 0 && tokens[0] != tokens[1] && tokens[2] == before[0]);
    rows[N_EMBD] = 1; /* each number of a chunk counts for all of its rows */
    need(aerie_model_chunk_tokens(models[0], chunks, 2, again, &error), &error);
    assert_true(again[0] != tokens[0] && again[1] != tokens[1]);
    rows[0] = NAN;
    assert_int_equal(aerie_model_chunk_tokens(models[0], chunks, 2, again, &error), AERIE_ERROR_ARGUMENT);
    assert_int_equal(aerie_model_chunk_tokens(NULL, chunks, 2, again, &error), AERIE_ERROR_ARGUMENT);
    assert_int_equal(aerie_model_chunk_tokens(models[0], NULL, 2, again, &error), AERIE_ERROR_ARGUMENT);
    assert_int_equal(aerie_model_chunk_tokens(models[0], chunks, 2, NULL, &error), AERIE_ERROR_ARGUMENT);
    need(aerie_model_chunk_tokens(models[0], NULL, 0, NULL, &error), &error);
}

/* ---- Damage ------------------------------------------------------------------------------------------------- */

static void *save_some(size_t *n)
{
    aerie_error error = {0};
    answer a = {0};
    asked one;
    aerie_task *task;
    void *data;
    ask(&one, 2, false);
    aerie_session *session = open_session(models[0], &(how){.n_batch = 64, .n_threads = 1, .n_seqs = 1});
    need(aerie_session_submit(session, &one.request, &task, &error), &error);
    assert_true(steps(session, task, 4, &a));
    need(aerie_task_save(task, &data, n, &error), &error);
    aerie_task_free(task);
    aerie_session_free(session);
    return data;
}

/* Submits and loads; accepted requests run for some steps. *why: the sentence of the refusal. */
static aerie_status try_bytes(const uint8_t *data, size_t n, aerie_error *why)
{
    aerie_error error = {0};
    aerie_task *task;
    asked one;
    ask(&one, 2, false);
    aerie_session *session = open_session(models[0], &(how){.n_batch = 64, .n_threads = 1, .n_seqs = 1});
    const aerie_request r = go_on(one.request, data, n);
    const aerie_status status = aerie_session_submit(session, &r, &task, why);
    (void)aerie_session_prefix_load(session, 0, data, n, NULL, &error);
    if (status == AERIE_OK)
        for (int i = 0; i < 3; i++) need(aerie_session_step(session, &error), &error);
    else assert_true(why->text[0] && status != AERIE_ERROR_INTERNAL && status != AERIE_ERROR_MEMORY);
    aerie_task_free(task);
    aerie_session_free(session);
    return status;
}

/* The same in a session that holds rows of pictures: the ids in a file must not stand for them. */
static void refuse_prefix(const uint8_t *data, size_t n)
{
    aerie_error error = {0};
    answer a = {0};
    aerie_task *task;
    asked one;
    size_t n_loaded = 0;
    ask(&one, 2, false);
    aerie_session *session = open_session(models[0], &(how){.n_batch = 64, .n_threads = 1, .n_seqs = 1});
    need(aerie_session_submit(session, &one.request, &task, &error), &error);
    assert_true(steps(session, task, 2, &a));
    assert_int_not_equal(aerie_session_prefix_load(session, 0, data, n, &n_loaded, &error), AERIE_OK);
    assert_true(error.text[0] && !n_loaded);
    aerie_task_free(task);
    aerie_session_free(session);
}

/* Every word of MEDIA, and some of ROWS, TOKENS and others, with each of some values; the checksum is right. */
static void damage_is_refused(void **state)
{
    (void)state;
    static const uint32_t words[] = {0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
    aerie_error error = {0};
    size_t n, n_accepted = 0, n_tried = 0;
    uint8_t *data = save_some(&n), *copy = malloc(n);
    ae_sections sections;
    need(ae_sections_open(&sections, data, n, &error), &error);
    assert_int_equal(try_bytes(data, n, &error), AERIE_OK);
    for (uint32_t s = 0; s < sections.n; s++) {
        const ae_section *it = &sections.list[s];
        const size_t at = (size_t)(it->data - data), close = it->type == MEDIA ? 4 : (it->n / 8 + 4) / 4 * 4;
        for (size_t k = 0; k + 4 <= it->n; k += close)
            for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
                if (it->type == 3 && k >= 16) continue; /* numbers of the KV cache are trusted */
                memcpy(copy, data, n);
                memcpy(copy + at + k, &words[w], 4);
                if (!memcmp(copy, data, n)) continue;
                ae_sections_seal(copy, n);
                n_tried++;
                const bool accepted = try_bytes(copy, n, &error) == AERIE_OK;
                n_accepted += accepted;
                if (accepted && (it->type == MEDIA || it->type == ROWS)) fail_msg("section %u, byte %zu", it->type, k);
            }
    }
    assert_true(n_tried > 150 && n_accepted < n_tried / 4);
    /* one list without the other, and a list that lacks its last entry */
    for (uint32_t s = 0; s < sections.n; s++) {
        const uint32_t type = sections.list[s].type, optional = 99, flags = AE_SECTION_OPTIONAL;
        const size_t head = (size_t)(sections.list[s].data - data) - 16;
        if (type != MEDIA && type != ROWS) continue;
        memcpy(copy, data, n);
        memcpy(copy + head, &optional, 4);
        memcpy(copy + head + 4, &flags, 4);
        ae_sections_seal(copy, n);
        assert_int_not_equal(try_bytes(copy, n, &error), AERIE_OK);
    }
    /* neither list, though the tokens have ids of rows: those of rows that this session may or may not hold */
    memcpy(copy, data, n);
    for (uint32_t s = 0; s < sections.n; s++) {
        const uint32_t optional = 99 + s, flags = AE_SECTION_OPTIONAL;
        const size_t head = (size_t)(sections.list[s].data - data) - 16;
        if (sections.list[s].type != MEDIA && sections.list[s].type != ROWS) continue;
        memcpy(copy + head, &optional, 4);
        memcpy(copy + head + 4, &flags, 4);
    }
    ae_sections_seal(copy, n);
    assert_int_not_equal(try_bytes(copy, n, &error), AERIE_OK);
    refuse_prefix(copy, n);
    free(copy);
    aerie_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_saved_task_goes_on), cmocka_unit_test(what_was_kept_is_found_by_its_rows),
        cmocka_unit_test(forgotten_rows_are_not_saved), cmocka_unit_test(chunk_tokens_are_checked),
        cmocka_unit_test(damage_is_refused),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
