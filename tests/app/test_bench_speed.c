/* test_bench_speed.c - aerie bench speed from outside: lists in all combinations, and llama-bench's formats, whose columns are
 * those of llama-bench of build 11434.
 */
#include "cli.h"

#include <jansson.h>

static const char *const columns[] = {
    "build_commit", "build_number", "cpu_info", "gpu_info", "backends", "model_filename", "model_type", "model_size",
    "model_n_params", "n_batch", "n_ubatch", "n_threads", "cpu_mask", "cpu_strict", "poll", "type_k", "type_v", "n_gpu_layers",
    "n_cpu_moe", "split_mode", "main_gpu", "no_kv_offload", "flash_attn", "devices", "tensor_split", "tensor_buft_overrides",
    "load_mode", "lazy_mode", "embeddings", "no_op_offload", "no_host", "repack", "fit_target", "fit_min_ctx", "n_prompt",
    "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts",
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

/* Joins the names by `between`. */
static void join(char out[2048], const char *between)
{
    size_t n = 0;
    for (size_t i = 0; i < N_COLUMNS; i++) n += (size_t)snprintf(out + n, 2048 - n, "%s%s", i ? between : "", columns[i]);
}

static json_int_t whole(const json_t *test, const char *key)
{
    if (!json_is_integer(json_object_get(test, key))) fail_msg("%s is not a whole number", key);
    return json_integer_value(json_object_get(test, key));
}

static void check_object(json_t *test, size_t n_samples)
{
    const char *key;
    json_t *value;
    size_t i = 0;
    assert_int_equal(json_object_size(test), N_COLUMNS + 2);
    json_object_foreach(test, key, value)
    {
        assert_string_equal(key, i < N_COLUMNS ? columns[i] : i == N_COLUMNS ? "samples_ns" : "samples_ts");
        i++;
    }
    const json_t *rates = json_object_get(test, "samples_ts"), *times = json_object_get(test, "samples_ns");
    double sum = 0;
    assert_int_equal(json_array_size(rates), n_samples);
    assert_int_equal(json_array_size(times), n_samples);
    for (i = 0; i < n_samples; i++) {
        const double rate = json_real_value(json_array_get(rates, i));
        const double seconds = (double)json_integer_value(json_array_get(times, i)) / 1e9;
        const double tokens = rate * seconds, n = (double)(whole(test, "n_prompt") + whole(test, "n_gen"));
        assert_true(rate > 0 && tokens > 0.99 * n && tokens < 1.01 * n);
        sum += rate;
    }
    const double mean = json_real_value(json_object_get(test, "avg_ts")), own = sum / (double)n_samples;
    assert_true(mean > 0.999 * own && mean < 1.001 * own);
    assert_true(json_real_value(json_object_get(test, "stddev_ts")) >= 0 && whole(test, "avg_ns") > 0);
    assert_true(whole(test, "model_size") > 0 && whole(test, "model_n_params") > 0);
    assert_string_equal(json_string_value(json_object_get(test, "model_filename")), "m.gguf");
    assert_int_equal(json_string_length(json_object_get(test, "test_time")), strlen("2026-11-26T14:36:07Z"));
    assert_true(json_is_false(json_object_get(test, "embeddings")) && json_is_true(json_object_get(test, "repack")));
}

/* All combinations, in llama-bench's order. */
static void lists(void **state)
{
    (void)state;
    static const int kinds[][2] = {{8, 0}, {12, 0}, {0, 3}, {8, 4}, {0, 5}};
    cli("$A bench speed -m m.gguf -p 8,12 -n 3 -pg 8,4 -pg 0,5 -d 0,16 -t 1 -t 2 -ub 4,8 -r 2 -o json");
    assert_int_equal(cli_last.status, 0);
    json_t *json = json_loads(cli_last.out, 0, NULL);
    assert_int_equal(json_array_size(json), 2 * 2 * 2 * 5);
    for (size_t i = 0; i < json_array_size(json); i++) {
        json_t *test = json_array_get(json, i);
        check_object(test, 2);
        assert_int_equal(whole(test, "n_prompt"), kinds[i % 5][0]);
        assert_int_equal(whole(test, "n_gen"), kinds[i % 5][1]);
        assert_int_equal(whole(test, "n_depth"), i / 5 % 2 * 16);
        assert_int_equal(whole(test, "n_ubatch"), i / 10 % 2 ? 8 : 4);
        assert_int_equal(whole(test, "n_threads"), i / 20 + 1);
    }
    json_decref(json);
    cli("$A bench speed -m m.gguf -p 2-6+2,8-32*2 -n 0 -r 1 -o json");
    json = json_loads(cli_last.out, 0, NULL);
    static const int sizes[] = {2, 4, 6, 8, 16, 32};
    assert_int_equal(json_array_size(json), 6);
    for (size_t i = 0; i < 6; i++) assert_int_equal(whole(json_array_get(json, i), "n_prompt"), sizes[i]);
    json_decref(json);
}

static size_t n_lines(void)
{
    size_t n = 0;
    for (const char *p = cli_last.out; *p; p++) n += *p == '\n';
    return n;
}

static void formats(void **state)
{
    (void)state;
    char names[2048], start[4096];
    cli("$A bench speed -m m.gguf -p 8 -n 2 -r 1 -o csv");
    join(names, ",");
    snprintf(start, sizeof start, "%s\n\"", names);
    assert_memory_equal(cli_last.out, start, strlen(start));
    assert_int_equal(n_lines(), 3);
    cli("$A bench speed -m m.gguf -p 8 -n 2 -r 1 -o sql");
    join(names, ", ");
    snprintf(start, sizeof start, "\n);\n\nINSERT INTO llama_bench (%s) VALUES ('", names);
    assert_ptr_equal(strstr(cli_last.out, "CREATE TABLE IF NOT EXISTS llama_bench (\n  build_commit TEXT,\n  build_number "
                                          "INTEGER,\n"), cli_last.out);
    assert_non_null(strstr(cli_last.out, start));
    assert_non_null(strstr(cli_last.out, "  avg_ts REAL,\n  stddev_ts REAL\n);"));
    assert_int_equal(n_lines(), 1 + N_COLUMNS + 2 + 2);
    cli("$A bench speed -m m.gguf -p 8 -n 2 -r 3 -o jsonl");
    assert_int_equal(n_lines(), 2);
    *strchr(cli_last.out, '\n') = '\0';
    json_t *json = json_loads(cli_last.out, 0, NULL);
    check_object(json, 3);
    json_decref(json);
    cli("$A bench speed -m m.gguf -p 8 -n 2 -pg 8,2 -d 4 -r 1 -o md");
    assert_non_null(strstr(cli_last.out, "| model                          |       size |     params | backend    | threads |"
                                         "            test |                  t/s |\n"
                                         "| ------------------------------ | ---------: | ---------: | ---------- | ------: |"
                                         " --------------: | -------------------: |\n"));
    assert_non_null(strstr(cli_last.out, " pp8 @ d4 |"));
    assert_non_null(strstr(cli_last.out, " tg2 @ d4 |"));
    assert_non_null(strstr(cli_last.out, " pp8+tg2 @ d4 |"));
    assert_non_null(strstr(cli_last.out, " \u00b1 "));
    assert_non_null(strstr(cli_last.out, "\nbuild: "));
}

/* The program's own output has a row for each test too. */
static void own_output(void **state)
{
    (void)state;
    cli("$A bench speed -m m.gguf -p 8 -n 2 -pg 8,2 -d 0,4 -r 1 --csv --progress");
    assert_int_equal(n_lines(), 7);
    assert_non_null(strstr(cli_last.out, "type,level,test,n,mean,min,max,median,n_prompt,n_gen,depth,threads,batch,ubatch\n"));
    assert_non_null(strstr(cli_last.err, "test 6 of 6: pp8+tg2 @ d4, -t "));
    cli("$A bench speed -m m.gguf -p 8 -n 2 -pg 8,2 -d 4 -r 1");
    assert_non_null(strstr(cli_last.out, "prefill+decode       8+2        4 "));
    cli("$A bench speed -m m.gguf -p 8 -n 2 -d 4 -r 1 --json");
    json_t *json = json_loads(cli_last.out, 0, NULL), *tests = json_object_get(json, "tests");
    assert_int_equal(json_array_size(tests), 2);
    assert_int_equal(whole(json_array_get(tests, 1), "n_depth"), 4);
    json_decref(json);
}

static void refusals(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"-p 8,x", "-p", "8,x"}, {"-p 9-3", "-p", "9-3"}, {"-p 1-", "-p", "1-"}, {"-p 1-9+0", "-p", "1-9+0"},
        {"-p 0-9*2", "-p", "0-9*2"}, {"-p 1-100", "-p", "64 values"}, {"-pg 8", "-pg", "'8'"}, {"-pg 8,", "-pg", "'8,'"},
        {"-pg 0,0", "-pg", "'0,0'"}, {"-pg 8,2,3", "-pg", "8,2,3"}, {"-o xml", "jsonl", "'xml'"},
        {"-o json --csv", "-o", "--csv"}, {"-o md --json", "-o", "--json"}, {"-t 1025", "-t", "1024"}, {"-d x", "-d", "'x'"},
        {"-d 99999999999999999999", "-d", "9999"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("$A bench speed -m m.gguf -r 1 %s", cases[i][0]);
        cli_refused(2, cases[i][1], cases[i][2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists), cmocka_unit_test(formats), cmocka_unit_test(own_output), cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, cli_setup_model, cli_teardown);
}
