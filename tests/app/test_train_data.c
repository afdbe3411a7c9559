/* test_train_data.c - train-data from outside, on a generated model: the outputs of the three steps, steps that continue where
 * they were cut, features equal to those of aerie_session_eval_features, and refusals.
 */
#include "cli.h"

#include <jansson.h>
#include <math.h>

#include "aerie.h"
#include "aerie_measure.h"

static void write_prompts(void)
{
    static const char lines[] = "{\"id\": \"a\", \"text\": \"hello\", \"group\": \"x\"}\n"
                                "{\"id\": \"b\", \"text\": \"what is it\", \"temperature\": 1, \"seed\": 5}\n\n"
                                "{\"id\": \"c\", \"messages\": [{\"role\": \"user\", \"content\": \"one\"}, "
                                "{\"role\": \"assistant\", \"content\": \"two\"}, "
                                "{\"role\": \"user\", \"content\": \"three\"}]}\n";
    cli_write("p.jsonl", lines, sizeof lines - 1);
}

static json_t *line_of(const char *name, const char *id)
{
    static char text[1 << 18];
    cli_read(name, text, sizeof text);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        assert_non_null(object);
        if (strcmp(json_string_value(json_object_get(object, "id")), id) == 0) return object;
        json_decref(object);
    }
    fail_msg("%s has no line of id %s", name, id);
    return NULL;
}

static void turns_are_written(void **state)
{
    (void)state;
    cli("$A train-data turns -m m.gguf -o t.jsonl --n-turns 5 -n 9 --temp 1 -s 3 -np 2 -q && wc -l < t.jsonl");
    assert_int_equal(cli_last.status, 0);
    assert_int_equal(atoi(cli_last.out), 5);
    json_t *turn = line_of("t.jsonl", "turn-3");
    assert_true(json_string_length(json_object_get(turn, "text")) > 0);
    json_decref(turn);
    cli("cp t.jsonl was; head -n 2 was > t.jsonl; printf '{\"id\": \"tur' >> t.jsonl; "
        "$A train-data turns -m m.gguf -o t.jsonl --n-turns 5 -n 9 --temp 1 -s 3 -q && sort t.jsonl > a && sort was | cmp - a");
    assert_int_equal(cli_last.status, 0);
}

static void answers_are_what_run_prints(void **state)
{
    (void)state;
    write_prompts();
    cli("$A train-data answers p.jsonl -m m.gguf -o a.jsonl -n 12 --temp 0 -np 3 -q && wc -l < a.jsonl");
    assert_int_equal(cli_last.status, 0);
    assert_int_equal(atoi(cli_last.out), 3);
    json_t *answer = line_of("a.jsonl", "a"), *tokens = json_object_get(answer, "tokens");
    const size_t n_prompt = (size_t)json_integer_value(json_object_get(answer, "n_prompt"));
    assert_null(json_object_get(answer, "text"));
    assert_string_equal(json_string_value(json_object_get(answer, "group")), "x");
    cli("$A run -m m.gguf -p hello -n 12 --temp 0 -q --ids");
    const char *at = cli_last.out;
    for (size_t i = n_prompt; i < json_array_size(tokens); i++) {
        char *end;
        assert_int_equal(strtol(at, &end, 10), json_integer_value(json_array_get(tokens, i)));
        at = end;
    }
    assert_string_equal(at, "\n");
    json_decref(answer);
    cli("cp a.jsonl was; head -n 1 was > a.jsonl; printf x >> a.jsonl; $A train-data answers p.jsonl -m m.gguf "
        "-o a.jsonl -n 12 --temp 0 -np 1 -q && sort a.jsonl > a && sort was | cmp - a");
    assert_int_equal(cli_last.status, 0);
}

/* ---- Features ----------------------------------------------------------------------------------------- */

typedef struct checker {
    const uint8_t *features, *likely, *log_p;
    size_t n_features, n_vocab, n_seen;
} checker;

static float from_f16(const uint8_t *p)
{
    const unsigned h = p[0] | (unsigned)p[1] << 8, e = h >> 10 & 31, m = h & 1023;
    const float x = e ? ldexpf((float)(m | 1024), (int)e - 25) : ldexpf((float)m, -24);
    return h >> 15 ? -x : x;
}

static bool check_row(void *user, size_t position, const float *logits, const float *features)
{
    checker *c = user;
    int32_t id;
    float p;
    for (size_t i = 0; i < c->n_features; i++) {
        const float kept = from_f16(c->features + (position * c->n_features + i) * 2);
        if (fabsf(kept - features[i]) > 1e-7f + fabsf(features[i]) / 2000)
            fail_msg("position %zu, value %zu: %g, not %g", position, i, kept, features[i]);
    }
    double sum = 0;
    size_t best = 0, above = 0;
    for (size_t i = 0; i < c->n_vocab; i++) {
        sum += exp((double)logits[i]);
        if (logits[i] > logits[best]) best = i;
    }
    memcpy(&id, c->likely + position * 3 * 4, 4);
    memcpy(&p, c->log_p + position * 3 * 4, 4);
    assert_int_equal(id, best);
    assert_float_equal(p, (double)logits[best] - log(sum), 1e-4);
    memcpy(&id, c->likely + position * 3 * 4 + 8, 4);
    for (size_t i = 0; i < c->n_vocab; i++) above += logits[i] > logits[id];
    assert_int_equal(above, 2);
    c->n_seen++;
    return true;
}

static void features_are_the_engines(void **state)
{
    enum { HEADER = 64, RECORD = 16 };
    static uint8_t file[1 << 18];
    char path[256];
    (void)state;
    write_prompts();
    cli("rm -f a.jsonl; $A train-data answers p.jsonl -m m.gguf -o a.jsonl -n 12 --temp 0 -np 1 -q && "
        "$A train-data features a.jsonl -m m.gguf -o f.bin --taps 0,1,2 --n-likely 3 -q");
    assert_int_equal(cli_last.status, 0);
    const size_t n = cli_read("f.bin", (char *)file, sizeof file);
    assert_true(n > HEADER && n < sizeof file - 1);
    uint32_t head[8], record[4];
    assert_memory_equal(file, "AEFEAT01", 8);
    memcpy(head, file + 8, sizeof head);
    memcpy(record, file + HEADER, sizeof record);
    assert_int_equal(head[1], 3);
    assert_int_equal(head[2], 3);
    assert_int_equal(head[5], 1);
    assert_int_equal(head[6], 2);

    aerie_model_params mp = aerie_model_params_default();
    aerie_session_params sp = aerie_session_params_default();
    aerie_model *model;
    aerie_session *session;
    snprintf(path, sizeof path, "%s/m.gguf", cli_folder);
    assert_int_equal(aerie_model_load(&model, path, &mp, NULL), AERIE_OK);
    sp.spec.type = AERIE_SPEC_NONE;
    sp.n_taps = 3;
    sp.taps[1] = 1;
    sp.taps[2] = 2;
    assert_int_equal(aerie_session_create(&session, model, &sp, NULL), AERIE_OK);
    const size_t tokens = HEADER + RECORD + 4; /* the id is one letter */
    checker c = {.n_features = 3 * head[0], .n_vocab = head[3], .likely = file + tokens + record[0] * 4};
    c.log_p = c.likely + record[0] * 12;
    c.features = c.log_p + record[0] * 12;
    int32_t ids[256];
    assert_true(record[0] <= 256 && record[1] < record[0]);
    memcpy(ids, file + tokens, record[0] * 4);
    assert_int_equal(aerie_session_eval_features(session, ids, record[0], check_row, &c, NULL), AERIE_OK);
    assert_int_equal(c.n_seen, record[0]);
    aerie_session_free(session);
    aerie_model_free(model);
}

static void features_go_on(void **state)
{
    (void)state;
    write_prompts();
    cli("rm -f a.jsonl f.bin; $A train-data answers p.jsonl -m m.gguf -o a.jsonl -n 12 --temp 0 -q && "
        "$A train-data features a.jsonl -m m.gguf -o f.bin --taps 1 -q && cp f.bin g.bin && truncate -s -5 g.bin && "
        "$A train-data features a.jsonl -m m.gguf -o g.bin --taps 1 -q && cmp f.bin g.bin");
    assert_int_equal(cli_last.status, 0);
    cli("$A train-data features a.jsonl -m m.gguf -o f.bin --taps 2");
    cli_refused(3, "f.bin", "these taps");
    cli("printf something > h.bin; $A train-data features a.jsonl -m m.gguf -o h.bin --taps 1");
    cli_refused(3, "h.bin", "remove it");
}

/* Compares the records of two files by id: `made` has what `wanted` has, except a last token that was not run. */
typedef struct record {
    uint32_t n_tokens, n_prompt;
    const uint8_t *id, *tokens, *likely, *log_p, *features;
} record;

static size_t read_records(const uint8_t *file, size_t n, record *records, size_t most)
{
    uint32_t head[4], r[4];
    size_t at = 64, found = 0;
    memcpy(head, file + 8, sizeof head);
    while (at < n) {
        assert_true(found < most && at + sizeof r <= n);
        memcpy(r, file + at, sizeof r);
        record *c = &records[found++];
        c->n_tokens = r[0];
        c->n_prompt = r[1];
        c->id = file + at + sizeof r;
        c->tokens = c->id + (r[2] + 3) / 4 * 4;
        c->likely = c->tokens + r[0] * 4;
        c->log_p = c->likely + r[0] * head[2] * 4;
        c->features = c->log_p + r[0] * head[2] * 4;
        at = (size_t)(c->features - file) + (size_t)r[0] * head[1] * head[0] * 2;
    }
    assert_int_equal(at, n);
    return found;
}

static void assert_same_records(const char *made_name, const char *wanted_name, size_t n_wanted)
{
    static uint8_t made[1 << 18], wanted[1 << 18];
    record a[8], b[8];
    uint32_t head[4];
    const size_t n_a = cli_read(made_name, (char *)made, sizeof made),
                 n_b = cli_read(wanted_name, (char *)wanted, sizeof wanted);
    assert_memory_equal(made, wanted, 64);
    memcpy(head, made + 8, sizeof head);
    assert_int_equal(read_records(made, n_a, a, 8), n_wanted);
    assert_int_equal(read_records(wanted, n_b, b, 8), n_wanted);
    for (size_t i = 0; i < n_wanted; i++) {
        size_t j = 0;
        while (j < n_wanted && *b[j].id != *a[i].id) j++;
        assert_true(j < n_wanted);
        const size_t n = a[i].n_tokens;
        assert_true(n + 1 == b[j].n_tokens || n == b[j].n_tokens);
        assert_int_equal(a[i].n_prompt, b[j].n_prompt);
        assert_memory_equal(a[i].tokens, b[j].tokens, n * 4);
        assert_memory_equal(a[i].likely, b[j].likely, n * head[2] * 4);
        assert_memory_equal(a[i].log_p, b[j].log_p, n * head[2] * 4);
        assert_memory_equal(a[i].features, b[j].features, n * head[1] * head[0] * 2);
    }
}

/* Prompts share their beginning, which the cache would give to the later ones; -ub 5 splits them, -np 2 mixes passes. */
static void features_come_with_the_answers(void **state)
{
    (void)state;
    write_prompts();
    cli("rm -f a.jsonl b.jsonl f.bin g.bin; $A train-data answers p.jsonl -m m.gguf -o b.jsonl -n 12 --temp 0 -np 2 -q && "
        "$A train-data answers p.jsonl -m m.gguf -o a.jsonl --features f.bin --taps 0,1,2 --n-likely 3 -n 12 --temp 0 -np 2 "
        "-ub 5 -q && $A train-data features a.jsonl -m m.gguf -o g.bin --taps 0,1,2 --n-likely 3 -q && sort a.jsonl > x && "
        "sort b.jsonl | cmp - x");
    assert_int_equal(cli_last.status, 0);
    assert_same_records("f.bin", "g.bin", 3);
    /* the record of one is torn, the line of another is missing */
    cli("cp a.jsonl was; head -n 2 was > a.jsonl; truncate -s -5 f.bin; "
        "$A train-data answers p.jsonl -m m.gguf -o a.jsonl --features f.bin --taps 0,1,2 --n-likely 3 -n 12 --temp 0 -q && "
        "sort a.jsonl > a && sort was | cmp - a");
    assert_int_equal(cli_last.status, 0);
    assert_same_records("f.bin", "g.bin", 3);
    cli("$A train-data features a.jsonl -m m.gguf -o h.bin --features i.bin --taps 1");
    cli_refused(2, "--features", "answers");
    cli("$A train-data answers p.jsonl -m m.gguf -o a.jsonl --features f.bin --taps 1");
    cli_refused(3, "f.bin", "these taps");
}

static void bad_input_is_refused(void **state)
{
    static const struct {
        const char *line, *text;
    } bad[] = {{"no json", "line 1"}, {"[1]", "JSON object"}, {"{\"text\": \"x\"}", "\"id\""},
               {"{\"id\": \"x\"}", "\"messages\""},
               {"{\"id\": \"x\", \"text\": \"a\\u0000b\"}", "NUL"},
               {"{\"id\": \"x\", \"messages\": [{\"role\": \"user\"}]}", "\"content\""}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cli_write("x.jsonl", bad[i].line, strlen(bad[i].line));
        cli("$A train-data answers x.jsonl -m m.gguf -o y.jsonl -q");
        cli_refused(3, "x.jsonl", bad[i].text);
    }
    static const char *const lines[] = {
        "{\"id\": \"x\", \"tokens\": [], \"n_prompt\": 0}", "{\"id\": \"x\", \"tokens\": [1, 99999999], \"n_prompt\": 1}",
        "{\"id\": \"x\", \"tokens\": [1, 2], \"n_prompt\": 3}", "{\"id\": \"x\", \"tokens\": [1, \"2\"], \"n_prompt\": 1}"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        cli_write("x.jsonl", lines[i], strlen(lines[i]));
        cli("rm -f y.bin; $A train-data features x.jsonl -m m.gguf -o y.bin --taps 1 -q");
        cli_refused(3, "x.jsonl", "line 1");
    }
    cli("$A train-data features missing.jsonl -m m.gguf -o y.bin --taps 1");
    cli_refused(3, "missing.jsonl", "cannot open");
    cli("$A train-data features x.jsonl -m m.gguf -o y.bin --taps 99");
    cli_refused(2, "99", "layers");
    cli("$A train-data -m m.gguf -o y");
    cli_refused(2, "turns, answers or features", "found ''");
    cli("$A train-data turns -m m.gguf");
    cli_refused(2, "-o FILE", "turns");
    cli("$A train-data answers -m m.gguf -o y");
    cli_refused(2, "takes one file", "answers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_are_written),       cmocka_unit_test(answers_are_what_run_prints),
        cmocka_unit_test(features_are_the_engines), cmocka_unit_test(features_go_on),
        cmocka_unit_test(features_come_with_the_answers),
        cmocka_unit_test(bad_input_is_refused),
    };
    return cmocka_run_group_tests_name("train-data", tests, cli_setup_model, cli_teardown);
}
