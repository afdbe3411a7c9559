/* test_denoise_laws.c - answers of models that denoise: compared with a second implementation of the loop over the model's
 * logits, and law 1: the same tokens for any number of threads, CPU level, number of sequences at once and size of passes.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie_extra.h"
#include "aerie_measure.h"
#include "mkarch.h"
#define MAX_PREDICT 96
#include "spec_rig.inc"

enum { N_CTX = 96, MASK = 0, N_PROMPTS = 5 };

static const char *const names[] = {"dream", "llada", "llada-moe", "rnd1"};
enum { N_MODELS = sizeof names / sizeof *names };

static aerie_model *models[N_MODELS];
static int32_t prompts[N_PROMPTS][24];
static const size_t lengths[N_PROMPTS] = {1, 5, 12, 17, 24};

static bool shifts(size_t i)
{
    return i == 0 || i == 3;
}

static int make(void **state)
{
    uint64_t random = 3;
    aerie_error error = {0};
    (void)state;
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_MODELS; i++) {
        need(mkarch_write(mkarch_find(names[i]), false, path_of(names[i]), &error), &error);
        models[i] = load(path_of(names[i]), NULL);
    }
    for (size_t i = 0; i < N_PROMPTS; i++)
        for (size_t k = 0; k < lengths[i]; k++) prompts[i][k] = (int32_t)(3 + mk_random(&random) % 256);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        aerie_model_free(models[i]);
        unlink(path_of(names[i]));
    }
    return rmdir(folder);
}

static aerie_session *open_session(const aerie_model *model, uint32_t n_seqs, uint32_t n_batch, uint32_t n_threads)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = N_CTX, params.n_seqs = n_seqs, params.n_batch = n_batch, params.n_threads = n_threads;
    need(aerie_session_create(&session, model, &params, &error), &error);
    return session;
}

static aerie_request request_of(size_t i, float temperature)
{
    aerie_request r = aerie_request_default();
    r.tokens = prompts[i];
    r.n_tokens = lengths[i];
    r.n_predict = 30 + (uint32_t)i;
    r.ignore_eos = true;
    r.sampling = sampling_of(0);
    r.sampling.temperature = temperature;
    r.sampling.seed = 100 + i;
    static aerie_diffusion usual;
    usual = aerie_diffusion_default();
    usual.n_steps = 11;
    r.diffusion = &usual;
    return r;
}

/* Runs requests without check_stats of spec_rig.inc, whose rules for passes and drafts hold for decoding only. */
static void answer_all(aerie_session *session, const aerie_request *requests, size_t n, run *r)
{
    aerie_error error = {0};
    aerie_stats stats[MAX_REQUESTS];
    memset(r, 0, sizeof *r);
    r->n = n;
    need(aerie_session_generate(session, requests, n, on_token, r, stats, sizeof(aerie_stats), &error), &error);
    for (size_t i = 0; i < n; i++) {
        r->answers[i].stats = stats[i];
        assert_int_equal(stats[i].n_generated, r->answers[i].n);
        assert_true(stats[i].n_passes && !stats[i].n_drafted);
    }
}

/* ---- A second implementation of the loop: greedy draws, double precision ---------------------------------------------- */

typedef struct reference {
    float logits[N_CTX][MKARCH_VOCAB];
} reference;

static bool keep_logits(void *user, size_t position, const float *logits)
{
    memcpy(((reference *)user)->logits[position], logits, sizeof ((reference *)user)->logits[0]);
    return true;
}

static void evaluate(aerie_session *session, const int32_t *text, size_t n, reference *out)
{
    aerie_error error = {0};
    need(aerie_session_eval(session, text, n, keep_logits, out, &error), &error);
}

/* The best token of a row other than the mask, and the algorithm's confidence in it. */
static int32_t best_of(const float *row, uint32_t algorithm, double *sure)
{
    int32_t best = -1, second = -1;
    double total = 0, entropy = 0;
    for (int32_t i = 0; i < MKARCH_VOCAB; i++)
        if (i != MASK && (best < 0 || row[i] > row[best])) best = i;
    for (int32_t i = 0; i < MKARCH_VOCAB; i++)
        if (i != MASK && i != best && (second < 0 || row[i] > row[second])) second = i;
    for (int32_t i = 0; i < MKARCH_VOCAB; i++) total += i == MASK ? 0 : exp((double)row[i] - (double)row[best]);
    for (int32_t i = 0; i < MKARCH_VOCAB; i++) {
        const double p = i == MASK ? 0 : exp((double)row[i] - (double)row[best]) / total;
        entropy -= p > 0 ? p * log(p) : 0;
    }
    *sure = algorithm == AERIE_DIFFUSION_ENTROPY  ? -entropy
            : algorithm == AERIE_DIFFUSION_MARGIN ? (1 - exp((double)row[second] - (double)row[best])) / total
                                                  : 1 / total;
    return best;
}

/* Shortest distance between a confidence that was kept and one that was not: below it rounding may decide. */
static double closest;

static void keep_best(int32_t *text, const size_t *at, const int32_t *drawn, double *sure, size_t n, size_t n_keep)
{
    for (size_t k = 0; k < n_keep; k++) {
        size_t best = n;
        for (size_t i = 0; i < n; i++)
            if (!isnan(sure[i]) && (best == n || sure[i] > sure[best])) best = i;
        text[at[best]] = drawn[best];
        for (size_t i = 0; k + 1 == n_keep && i < n; i++)
            if (i != best && !isnan(sure[i]) && sure[best] - sure[i] < closest) closest = sure[best] - sure[i];
        sure[best] = NAN;
    }
}

/* How many of n masked positions step i of n_steps keeps. first: how many there were before step 0. */
static size_t n_of_step(const aerie_diffusion *d, uint32_t i, uint32_t n_steps, size_t n, size_t first)
{
    if (i + 1 == n_steps) return n;
    if (d->block_length) return first / n_steps + (i < first % n_steps);
    const float t = 1.0f - (float)i / (float)n_steps * (1.0f - d->eps);
    const float s = 1.0f - (float)(i + 1) / (float)n_steps * (1.0f - d->eps);
    return (size_t)((float)n * (1.0f - s / t));
}

static void denoise(aerie_session *session, bool shift, const aerie_request *r, int32_t *text)
{
    static reference seeing, blind;
    const aerie_diffusion *d = r->diffusion;
    const size_t begin = r->n_tokens, end = begin + r->n_predict, length = d->block_length ? d->block_length : r->n_predict;
    const uint32_t n_blocks = (uint32_t)((r->n_predict + length - 1) / length);
    int32_t hidden[N_CTX];
    memcpy(text, r->tokens, begin * sizeof *text);
    for (size_t i = begin; i < end; i++) text[i] = MASK;
    for (uint32_t b = 0; b < n_blocks; b++) {
        const size_t from = begin + b * length, to = from + length < end ? from + length : end;
        uint32_t n_steps = d->n_steps / n_blocks + (b < d->n_steps % n_blocks);
        n_steps = n_steps ? n_steps : 1;
        for (uint32_t step = 0; step < n_steps; step++) {
            size_t at[N_CTX], n = 0;
            int32_t drawn[N_CTX];
            double sure[N_CTX];
            evaluate(session, text, end, &seeing);
            memcpy(hidden, text, end * sizeof *text);
            for (size_t i = 0; i < begin; i++) hidden[i] = MASK;
            if (d->cfg_scale > 0) evaluate(session, hidden, end, &blind);
            for (size_t i = from; i < to; i++) {
                if (text[i] != MASK) continue;
                float *row = seeing.logits[shift ? i - 1 : i];
                const float *other = blind.logits[shift ? i - 1 : i];
                float mixed[MKARCH_VOCAB];
                for (size_t k = 0; k < MKARCH_VOCAB; k++)
                    mixed[k] = d->cfg_scale > 0 ? other[k] + (d->cfg_scale + 1.0f) * (row[k] - other[k]) : row[k];
                drawn[n] = best_of(mixed, d->algorithm, &sure[n]);
                at[n++] = i;
            }
            keep_best(text, at, drawn, sure, n, n_of_step(d, step, n_steps, n, to - from));
        }
    }
}

/* The public loop gives the tokens of the loop above. */
static void test_the_loop(void **state)
{
    static const aerie_diffusion hows[] = {
        {.n_steps = 11, .algorithm = AERIE_DIFFUSION_CONFIDENCE, .eps = 0.001f},
        {.n_steps = 20, .algorithm = AERIE_DIFFUSION_ENTROPY, .eps = 0.2f},
        {.n_steps = 7, .algorithm = AERIE_DIFFUSION_MARGIN, .eps = 0.001f, .cfg_scale = 0.7f},
        {.n_steps = 12, .algorithm = AERIE_DIFFUSION_CONFIDENCE, .block_length = 8},
        {.n_steps = 3, .algorithm = AERIE_DIFFUSION_MARGIN, .block_length = 7, .cfg_scale = 2},
        {.n_steps = 30, .algorithm = AERIE_DIFFUSION_ENTROPY, .block_length = 100},
    };
    static run r;
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        aerie_session *session = open_session(models[m], 1, 512, 2);
        for (size_t i = m % 2; i < sizeof hows / sizeof *hows; i += 2) {
            int32_t text[N_CTX];
            aerie_request request = request_of(1 + (m + i) % (N_PROMPTS - 1), 0);
            aerie_diffusion how = hows[i];
            how.size = sizeof how;
            request.diffusion = &how;
            closest = 1;
            denoise(session, shifts(m), &request, text);
            answer_all(session, &request, 1, &r);
            assert_int_equal(r.answers[0].n, request.n_predict);
            for (size_t k = 0; k < request.n_predict; k++)
                if (r.answers[0].ids[k] != text[request.n_tokens + k])
                    fail_msg("%s, settings %zu: token %zu is %d, the loop written down here gives %d (closest choice: %g)",
                             names[m], i, k, r.answers[0].ids[k], text[request.n_tokens + k], closest);
        }
        aerie_session_free(session);
    }
}

/* ---- Law 1 -------------------------------------------------------------------------------------------------------- */

enum { N_HOWS = 8 };

static aerie_request varied(size_t i)
{
    aerie_request r = request_of(i % N_PROMPTS, i % 3 ? 0.8f : 0);
    r.sampling.top_k = i % 2 ? 20 : 0;
    r.sampling.top_p = i % 4 == 1 ? 0.9f : 1;
    static aerie_diffusion hows[2 * N_HOWS];
    aerie_diffusion *how = &hows[i];
    *how = aerie_diffusion_default();
    how->algorithm = (uint32_t)i % 5;
    how->n_steps = 4 + (uint32_t)i;
    how->block_length = i % 2 ? 9 : 0;
    how->cfg_scale = i % 4 == 3 ? 1.1f : 0;
    how->alg_temp = i % 4 == 2 ? 0.4f : 0;
    r.diffusion = how;
    r.ignore_eos = i % 5 > 0;
    return r;
}

static void same_answers(const run *got, const run *expected, const char *what)
{
    for (size_t i = 0; i < expected->n; i++) same_answer(&got->answers[i], &expected->answers[i], what, i);
}

static void test_same_bytes(void **state)
{
    static run alone, r;
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        aerie_request requests[N_HOWS];
        aerie_session *session = open_session(models[m], 1, 512, 1);
        for (size_t i = 0; i < N_HOWS; i++) requests[i] = varied(i + m);
        answer_all(session, requests, N_HOWS, &alone);
        answer_all(session, requests, N_HOWS, &r);
        same_answers(&r, &alone, "again");
        aerie_session_free(session);
        static const struct {
            uint32_t n_seqs, n_batch, n_threads;
        } others[] = {{1, 64, 3}, {N_HOWS, 1024, 2}, {N_HOWS, 100, 1}, {3, 200, 2}};
        for (size_t k = m % 2; k < sizeof others / sizeof *others; k += 2) {
            session = open_session(models[m], others[k].n_seqs, others[k].n_batch, others[k].n_threads);
            answer_all(session, requests, N_HOWS, &r);
            same_answers(&r, &alone, names[m]);
            aerie_session_free(session);
        }
        for (size_t k = m; k < N_LEVELS; k += 3) { /* the reference level, and other levels with the other models */
            aerie_model *model = load(path_of(names[m]), levels[k]);
            if (!model) continue;
            session = open_session(model, 4, 256, 2);
            answer_all(session, requests, N_HOWS, &r);
            same_answers(&r, &alone, levels[k]);
            aerie_session_free(session);
            aerie_model_free(model);
        }
    }
}

/* Different seeds give different answers at a temperature, and the same ones without. */
static void test_seeds(void **state)
{
    static run r;
    (void)state;
    aerie_session *session = open_session(models[1], 2, 512, 1);
    for (int greedy = 0; greedy < 2; greedy++) {
        aerie_request requests[2] = {request_of(2, greedy ? 0 : 1), request_of(2, greedy ? 0 : 1)};
        requests[1].sampling.seed++;
        answer_all(session, requests, 2, &r);
        assert_int_equal(!memcmp(r.answers[0].ids, r.answers[1].ids, r.answers[0].n * sizeof(int32_t)), greedy);
    }
    aerie_session_free(session);
}

/* ---- Canvases, ends, refusals ---------------------------------------------------------------------------------------- */

typedef struct watch {
    int32_t tokens[N_CTX];
    size_t n_calls, n_known, n_prompt, n_tokens;
    uint32_t n_steps, step;
    run answers;
} watch;

static void on_canvas(void *user, size_t i, uint32_t step, uint32_t n_steps, const int32_t *tokens, size_t n_prompt, size_t n)
{
    watch *w = user;
    size_t n_known = 0;
    assert_true(i == 0 && step < n_steps && n <= N_CTX);
    for (size_t k = 0; k < n; k++) {
        n_known += tokens[k] >= 0;
        if (w->n_calls && w->tokens[k] >= 0) assert_int_equal(tokens[k], w->tokens[k]); /* known tokens stay */
        w->tokens[k] = tokens[k];
    }
    if (w->n_calls) assert_true(n_known > w->n_known && step > w->step && n_steps == w->n_steps);
    else assert_int_equal(n_known, n_prompt);
    /* the tokens that were sent are the known ones at the beginning */
    size_t n_told = w->answers.answers[0].n;
    for (size_t k = 0; k < n_told; k++) assert_int_equal(tokens[n_prompt + k], w->answers.answers[0].ids[k]);
    assert_true(n_prompt + n_told == n || tokens[n_prompt + n_told] < 0);
    w->n_known = n_known, w->n_prompt = n_prompt, w->n_tokens = n, w->n_steps = n_steps, w->step = step;
    w->n_calls++;
}

static bool on_watched(void *user, const aerie_token_event *event)
{
    watch *w = user;
    return on_token(&w->answers, event);
}

static void test_canvas(void **state)
{
    static watch w;
    aerie_error error = {0};
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        aerie_session *session = open_session(models[m], 1, 512, 1);
        aerie_request request = request_of(3, 0.9f);
        memset(&w, 0, sizeof w);
        w.answers.n = 1;
        aerie_diffusion how = *request.diffusion;
        how.canvas = on_canvas;
        request.diffusion = &how;
        need(aerie_session_generate(session, &request, 1, on_watched, &w, NULL, 0, &error), &error);
        assert_true(w.n_calls > 1 && w.n_calls <= 11 && w.n_prompt == lengths[3]);
        assert_int_equal(w.n_tokens, lengths[3] + request.n_predict);
        assert_int_equal(w.answers.answers[0].n, request.n_predict);
        aerie_session_free(session);
    }
}

/* A stop string and a length end an answer as usual; without a length it fills the context. */
static void test_ends(void **state)
{
    static run r, full;
    (void)state;
    aerie_session *session = open_session(models[1], 1, 512, 1);
    aerie_request request = request_of(4, 0.9f);
    request.n_predict = 0;
    answer_all(session, &request, 1, &full);
    assert_int_equal(full.answers[0].n, N_CTX - lengths[4]);
    assert_int_equal(full.answers[0].stats.stop, AERIE_STOP_CONTEXT);
    request.n_predict = 1000;
    answer_all(session, &request, 1, &r);
    assert_int_equal(r.answers[0].stats.stop, AERIE_STOP_CONTEXT);
    assert_memory_equal(r.answers[0].ids, full.answers[0].ids, full.answers[0].n * sizeof(int32_t));
    request.n_predict = 1;
    answer_all(session, &request, 1, &r);
    assert_int_equal(r.answers[0].stats.stop, AERIE_STOP_LENGTH);
    assert_int_equal(r.answers[0].stats.n_passes, 1);
    request.n_predict = 40;
    answer_all(session, &request, 1, &full);
    char *text = NULL;
    size_t n = 0, at = 20;
    aerie_error error = {0};
    for (; at < 40 && n == 0; at++)
        if (full.answers[0].ids[at] >= 'A' + 3)
            need(aerie_model_detokenize(models[1], &full.answers[0].ids[at], 1, false, &text, &n, &error), &error);
    const char *stop = text;
    request.stop = &stop, request.n_stop = 1;
    answer_all(session, &request, 1, &r);
    assert_int_equal(r.answers[0].stats.stop, AERIE_STOP_STRING);
    assert_true(r.answers[0].n <= at && !memcmp(r.answers[0].ids, full.answers[0].ids, r.answers[0].n * sizeof(int32_t)));
    aerie_free(text);
    aerie_session_free(session);
}

static void refuses(aerie_session *session, const aerie_request *request, const char *why)
{
    static run r;
    aerie_error error = {0};
    memset(&r, 0, sizeof r);
    r.n = 1;
    const aerie_status status = aerie_session_generate(session, request, 1, on_token, &r, NULL, 0, &error);
    if (status == AERIE_OK || !strstr(error.text, why))
        fail_msg("expected \"%s\", found %d \"%s\"", why, (int)status, error.text);
}

static void on_row(void *user, size_t i, size_t position, const float *logits, const float *features)
{
    (void)user, (void)i, (void)position, (void)logits, (void)features;
}

static void test_refusals(void **state)
{
    static const struct {
        aerie_diffusion how;
        const char *why;
    } bad[] = {
        {{.algorithm = 5}, "diffusion algorithm 5 is unknown"},
        {{.algorithm = UINT32_MAX}, "is unknown"},
        {{.n_steps = UINT32_MAX}, "denoising steps"},
        {{.eps = 1}, "epsilon"},
        {{.eps = -0.1f}, "epsilon"},
        {{.eps = NAN}, "epsilon"},
        {{.eps = 0.1f, .block_length = 8}, "are both given"},
        {{.cfg_scale = -1}, "guidance"},
        {{.cfg_scale = INFINITY}, "guidance"},
        {{.alg_temp = NAN}, "temperature of the diffusion algorithm"},
    };
    aerie_error error = {0};
    aerie_grammar *grammar;
    aerie_task *task;
    void *data;
    size_t n;
    (void)state;
    aerie_session *session = open_session(models[0], 1, 512, 1);
    aerie_request request = request_of(1, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        aerie_diffusion how = bad[i].how;
        how.size = sizeof how;
        request.diffusion = &how;
        refuses(session, &request, bad[i].why);
    }
    need(aerie_grammar_create(&grammar, "root ::= \"a\"", 12, &error), &error);
    request = request_of(1, 1), request.grammar = grammar;
    refuses(session, &request, "a grammar");
    aerie_grammar_free(grammar);
    request = request_of(1, 1), request.sampling.repeat_penalty = 1.1f, request.sampling.penalty_last_n = 64;
    refuses(session, &request, "penalties");
    request = request_of(1, 1), request.sampling.mirostat = 2;
    refuses(session, &request, "mirostat");
    request = request_of(1, 1), request.n_logprobs = 3;
    refuses(session, &request, "log-probabilities");
    request = request_of(1, 1), request.row = on_row;
    refuses(session, &request, "rows are asked for");
    request = request_of(1, 1);
    need(aerie_session_submit(session, &request, &task, &error), &error);
    need(aerie_session_step(session, &error), &error);
    assert_int_equal(aerie_task_save(task, &data, &n, &error), AERIE_ERROR_UNSUPPORTED);
    aerie_task_free(task);
    aerie_session_free(session);
}

static bool count_rows(void *user, size_t position, const float *logits)
{
    (void)position, (void)logits;
    ++*(uint32_t *)user;
    return true;
}

/* Sessions that are refused: with drafters. A model that does not name its mask has one, but generates nothing. */
static void test_sessions(void **state)
{
    aerie_error error = {0};
    aerie_session *session;
    (void)state;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = N_CTX;
    params.spec.type = AERIE_SPEC_NGRAM;
    assert_int_equal(aerie_session_create(&session, models[0], &params, &error), AERIE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "nothing can be drafted"));
    params.spec.type = AERIE_SPEC_AUTO;
    params.spec.draft_model = models[1];
    assert_int_equal(aerie_session_create(&session, models[0], &params, &error), AERIE_ERROR_UNSUPPORTED);
    params = aerie_session_params_default();
    need(aerie_session_create(&session, models[3], &params, &error), &error);
    assert_string_equal(aerie_session_spec_name(session), "none");
    assert_int_equal(aerie_session_n_ctx(session), MKARCH_CTX); /* 512, but the model was trained for less */
    aerie_session_free(session);
    const char *override = "tokenizer.ggml.mask_token_id=int:4294967295";
    aerie_model *model;
    aerie_model_params mp = aerie_model_params_default();
    mp.overrides = &override, mp.n_overrides = 1;
    need(aerie_model_load(&model, path_of("dream"), &mp, &error), &error);
    params = aerie_session_params_default();
    const int32_t text[] = {1, 2, 3};
    aerie_request request = request_of(0, 0);
    aerie_task *task;
    uint32_t n_rows = 0;
    need(aerie_session_create(&session, model, &params, &error), &error);
    assert_int_equal(aerie_session_submit(session, &request, &task, &error), AERIE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "needs a mask token to generate text"));
    need(aerie_session_eval(session, text, 3, count_rows, &n_rows, &error), &error); /* which needs none */
    assert_int_equal(n_rows, 3);
    aerie_session_free(session);
    aerie_model_free(model);
    override = "tokenizer.ggml.mask_token_id=int:264";
    assert_int_equal(aerie_model_load(&model, path_of("dream"), &mp, &error), AERIE_ERROR_FORMAT);
    aerie_model_info info;
    aerie_model_info_get(models[0], &info, sizeof info);
    assert_true(info.is_diffusion && !info.is_encoder);
}

/* A request is cancelled in the middle, and another starts in the same slot. */
static void test_cancel(void **state)
{
    static run alone, r;
    aerie_error error = {0};
    aerie_task *task;
    (void)state;
    aerie_session *session = open_session(models[2], 2, 512, 1);
    aerie_request request = request_of(2, 0.8f);
    answer_all(session, &request, 1, &alone);
    need(aerie_session_submit(session, &request, &task, &error), &error);
    for (int i = 0; i < 3; i++) need(aerie_session_step(session, &error), &error);
    aerie_task_cancel(task);
    need(aerie_session_step(session, &error), &error);
    assert_true(aerie_task_ended(task));
    aerie_task_free(task);
    while (aerie_session_poll(session)) {}
    answer_all(session, &request, 1, &r);
    same_answers(&r, &alone, "after a cancelled one");
    aerie_session_free(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_loop), cmocka_unit_test(test_same_bytes), cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_canvas),   cmocka_unit_test(test_ends),       cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_sessions), cmocka_unit_test(test_cancel),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
