/* test_stops.c - stop strings: for random texts, cuts and stop lists the result is that of a plain search over the whole text;
 * bytes are released as early as possible; log-probabilities against plain sums in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mkmodel.h"
#include "sample/logprobs.h"
#include "text/stops.h"

/* Where the text is cut: the beginning of the longest stop string that ends at the first end of any. n: nowhere. */
static size_t search(const char *text, size_t n, const char *const *stops, size_t n_stops, bool *found)
{
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < n_stops; i++) {
            const size_t length = strlen(stops[i]);
            if (length <= end && length > longest && !memcmp(text + end - length, stops[i], length)) longest = length;
        }
        *found = longest > 0;
        if (longest) return end - longest;
    }
    *found = false;
    return n;
}

/* How many bytes of text[0..n) are certain: all but the longest suffix that begins a stop string. */
static size_t certain(const char *text, size_t n, const char *const *stops, size_t n_stops)
{
    for (size_t from = 0; from < n; from++)
        for (size_t i = 0; i < n_stops; i++)
            if (strlen(stops[i]) > n - from && !memcmp(text + from, stops[i], n - from)) return from;
    return n;
}

static void test_any_text_any_cuts_any_stops(void **state)
{
    (void)state;
    uint64_t random = 1;
    uint32_t n_found = 0;
    for (int round = 0; round < 20000; round++) {
        char text[64], stop_texts[6][12];
        const char *stops[6];
        const uint32_t n_letters = 1 + (uint32_t)(mk_random(&random) % 4);
        const size_t n = mk_random(&random) % 60, n_stops = 1 + mk_random(&random) % 6;
        for (size_t i = 0; i < n; i++)
            text[i] = (char)(mk_random(&random) % 9 == 0 ? 0xe2 : 'a' + mk_random(&random) % n_letters);
        for (size_t i = 0; i < n_stops; i++) {
            const size_t length = 1 + mk_random(&random) % 8;
            for (size_t k = 0; k < length; k++) stop_texts[i][k] = (char)('a' + mk_random(&random) % n_letters);
            if (mk_random(&random) % 5 == 0) stop_texts[i][length - 1] = (char)0xe2;
            stop_texts[i][length] = '\0';
            stops[i] = stop_texts[i];
        }
        ae_stops *s;
        ae_buf out = {0};
        bool expected_found, found = false;
        const size_t expected = search(text, n, stops, n_stops, &expected_found);
        assert_int_equal(ae_stops_create(&s, stops, n_stops, NULL), AERIE_OK);
        for (size_t at = 0; at < n && !found;) {
            size_t k = mk_random(&random) % 6;
            if (k > n - at) k = n - at;
            found = ae_stops_feed(s, text + at, k, &out);
            at += k;
            if (!found) assert_int_equal(out.n, certain(text, at, stops, n_stops)); /* neither early nor late */
        }
        if (found) assert_true(ae_stops_feed(s, "zzz", 3, &out));
        ae_stops_end(s, &out);
        assert_int_equal(found, expected_found);
        assert_int_equal(out.n, expected);
        if (expected) assert_memory_equal(out.data, text, expected);
        n_found += found;
        ae_stops_free(s);
        ae_buf_free(&out);
    }
    assert_in_range(n_found, 2000, 19000);
}

static void test_refuses_nonsense(void **state)
{
    (void)state;
    aerie_error error = {0};
    ae_stops *s;
    static char text[AERIE_MAX_STOP_BYTES + 2];
    const char *many[AERIE_MAX_STOPS + 1] = {"a", ""};
    assert_int_equal(ae_stops_create(&s, many, 2, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "stop string 2 is empty"));
    assert_null(s);
    memset(text, 'x', AERIE_MAX_STOP_BYTES + 1);
    many[1] = text;
    assert_int_equal(ae_stops_check(many, 2, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "4097"));
    for (size_t i = 0; i < AERIE_MAX_STOPS + 1; i++) many[i] = "a";
    assert_int_equal(ae_stops_check(many, AERIE_MAX_STOPS, &error), AERIE_OK);
    assert_int_equal(ae_stops_check(many, AERIE_MAX_STOPS + 1, &error), AERIE_ERROR_ARGUMENT);
}

static void test_logprobs_are_the_softmax(void **state)
{
    (void)state;
    enum { N = 1000 };
    static float logits[N];
    static aerie_logprob top[AERIE_MAX_LOGPROBS];
    uint64_t random = 9;
    for (int round = 0; round < 200; round++) {
        double total = 0;
        for (int i = 0; i < N; i++) {
            logits[i] = (float)((double)(mk_random(&random) >> 40) * 0x1p-20) - 8; /* ties among them */
            if (mk_random(&random) % 50 == 0) logits[i] = round % 2 ? NAN : -INFINITY;
            if (logits[i] > -INFINITY) total += exp((double)logits[i]);
        }
        const uint32_t n = (uint32_t)(mk_random(&random) % (AERIE_MAX_LOGPROBS + 1));
        const int32_t token = (int32_t)(mk_random(&random) % N);
        uint32_t n_top;
        const float got = ae_logprobs(logits, N, token, n, top, &n_top);
        if (logits[token] > -INFINITY)
            assert_true(fabs((double)got - ((double)logits[token] - log(total))) < 2e-6 * (1 + fabs((double)got)));
        else assert_true(got == -INFINITY);
        assert_int_equal(n_top, n);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t n_before = 0;
            const int32_t id = top[i].token;
            for (int32_t k = 0; k < N; k++) n_before += logits[k] > logits[id] || (logits[k] == logits[id] && k < id);
            assert_int_equal(n_before, i);
            assert_true(fabs((double)top[i].logprob - ((double)logits[id] - log(total))) <
                        2e-6 * (1 + fabs((double)top[i].logprob)));
        }
    }
    uint32_t n_top;
    for (int i = 0; i < N; i++) logits[i] = -INFINITY;
    assert_true(ae_logprobs(logits, N, 3, 5, top, &n_top) == -INFINITY && n_top == 0);
    logits[3] = INFINITY;
    assert_true(ae_logprobs(logits, N, 3, 5, top, &n_top) == 0 && n_top == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_text_any_cuts_any_stops),
        cmocka_unit_test(test_refuses_nonsense),
        cmocka_unit_test(test_logprobs_are_the_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
