/* test_cli.c - the program from outside, without a model: help, exit statuses, sentences, tokens, metadata. */
#include "cli.h"

#include <jansson.h>

#include "gguf_make.h"
#include "vocab_make.h"

static void help_goes_where_it_should(void **state)
{
    (void)state;
    cli("$A");
    assert_int_equal(cli_last.status, 2);
    assert_int_equal(cli_last.n_out, 0);
    assert_non_null(strstr(cli_last.err, "usage:"));
    static const char *const asks[] = {"help",
                                       "--help",
                                       "-h",
                                       "help run",
                                       "run --help",
                                       "tokenize -h",
                                       "help bench",
                                       "bench --help",
                                       "bench speed --help",
                                       "help bench verify",
                                       "--version",
                                       "--completion-bash",
                                       "--man"};
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        cli("$A %s", asks[i]);
        if (cli_last.status != 0 || cli_last.n_err || !cli_last.n_out)
            fail_msg("%s: %d %s", asks[i], cli_last.status, cli_last.err);
    }
    cli("$A help run --all");
    assert_non_null(strstr(cli_last.out, "AERIE_SPEC_DRAFT_N_MAX"));
    assert_non_null(strstr(cli_last.out, "--predict"));
    assert_null(strstr(cli_last.out, "--ids-file"));
    cli("$A help chat | awk 'length > 79'"); /* as /help prints it: a terminal of 80 columns breaks no line */
    assert_string_equal(cli_last.out, "");
    cli("$A --version");
    assert_non_null(strstr(cli_last.out, "aerie 0."));
    assert_non_null(strstr(cli_last.out, "cpu level: "));
    cli("$A --completion-bash > c && bash -n c");
    assert_int_equal(cli_last.status, 0);
}

static void wrong_command_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line, *text, *other;
    } cases[] = {
        {"rnu", "unknown command 'rnu'", "'run'"},
        {"zzzzzzzzzzzzzzzzzz", "unknown command", "tokenize"},
        {"speed", "unknown command", "'bench speed'"},
        {"-m x", "a command comes before", "run"},
        {"bench", "speed, verify, spec, study, shapes or logits", ""},
        {"bench fast", "speed, verify, spec, study, shapes or logits", "'fast'"},
        {"bench -m x", "speed, verify, spec, study, shapes or logits", "'aerie bench speed -m ...'"},
        {"bench x.gguf", "speed, verify, spec, study, shapes or logits", "'aerie bench speed x.gguf'"},
        {"help nothing", "no help about 'nothing'; topics are chat, environment, exit-status, llama.cpp, topics",
         "'aerie help'"},
        {"help enviroment", "did you mean 'aerie help environment'?", "topics are "},
        {"help rnu", "did you mean 'aerie help run'?", "topics are "},
        {"run", "needs a model", "-m FILE"},
        {"run -m", "-m needs a value", "FILE"},
        {"run --tmep 1", "unknown option '--tmep'", "'--temp'"},
        {"run -temp 1", "unknown option '-temp'", "'--temp'"},
        {"run --ids-file x", "has no option '--ids-file'", "bench logits"},
        {"tokenize --temp 1", "has no option '--temp'", "'run'"},
        {"run -m m.gguf stray", "found 'stray'", "-p"},
        {"run --temp 1x", "--temp takes a number from 0 to 1000", "'1x'"},
        {"run --temp nan", "--temp takes a number", "'nan'"},
        {"run --temp 1001", "--temp takes a number", "'1001'"},
        {"run --temp ''", "--temp takes a number", "''"},
        {"run --temp 0x1", "--temp takes a number", "'0x1'"},
        {"run --top-k 1.5", "--top-k takes a whole number", "'1.5'"},
        {"run --top-p 1.1", "from 0 to 1;", "'1.1'"},
        {"run -t 99999999999999999999", "-t takes a whole number", "99999999999999999999"},
        {"run -n 0", "-n takes", "'0'"},
        {"run -n -3", "-n takes", "'-3'"},
        {"run -n 3000000000", "-n takes", "3000000000"},
        {"run --seed -2", "--seed takes", "'-2'"},
        {"run --seed 1e3", "--seed takes", "'1e3'"},
        {"run --spec-type eagle9", "auto, none, ngram, draft", "'eagle9'"},
        {"run --kv-type q5_0", "f16, q8_0", "'q5_0'"},
        {"run -ctk q4_0 -ctv q8_0", "--cache-type-k is q4_0", "--kv-type"},
        {"run -ctk bf16 -ctv bf16", "--cache-type-k takes one of f16, q8_0", "'bf16'"},
        {"run -ctk q8_0 -ctv f16", "the same type", "--kv-type"},
        {"run -ctk i16", "--cache-type-k is i16 and --cache-type-v f16", "not given"},
        {"run -ctk i16/q8_0 -ctv i16", "--cache-type-k is i16/q8_0", "--cache-type-v i16"},
        {"run -ctv q8_0", "--cache-type-k is f16 and --cache-type-v q8_0", "not given"},
        {"run --spec-draft-n-max 65", "from 0 to 64", "'65'"},
        {"run --spec-draft-n-min 5 --spec-draft-n-max 4", "--spec-draft-n-min 5", "4"},
        {"run --spec-tree maybe", "takes one of off, auto", "'maybe'"},
        {"run --ids=1", "--ids takes no value", "'1'"},
        {"run -v -q -m x", "exclude each other", ""},
        {"run -m x --spec-type draft -p y", "needs a draft model", "-md"},
        {"run -m x -p y -f z", "only one of -p, -f", ""},
        {"run -m x -p ''", "empty prompt", ""},
        {"run -m x", "prompt from standard input is empty", ""},
        {"tokenize -m x 1 2", "--decode", ""},
        {"inspect", "needs a model", ""},
        {"inspect a b", "takes one file", "'b'"},
        {"bench verify -n 1,,2", "-n takes a list", "'1,,2'"},
        {"bench verify -n 0", "-n takes a list", "'0'"},
        {"bench speed -p 0 -n 0 -m x", "nothing to measure", ""},
        {"bench spec --spec-types ngram,foo", "takes one of", "'foo'"},
        {"bench logits -m x", "--ids-file", ""},
        {"bench shapes --types q4_0,i8", "--types takes a list of tensor types", "'q4_0,i8'"},
        {"bench shapes --types ''", "--types takes a list of tensor types", "''"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("$A %s", cases[i].line);
        cli_refused(2, cases[i].text, cases[i].other);
    }
}

static void environment(void **state)
{
    (void)state;
    cli("AERIE_TEMP=hot $A run -m x -p y");
    cli_refused(2, "AERIE_TEMP takes a number", "'hot'");
    cli("AERIE_IGNORE_EOS=perhaps $A run -m x -p y");
    cli_refused(2, "AERIE_IGNORE_EOS", "'perhaps'");
    cli("AERIE_TEMP=hot $A run -m missing.gguf -p y --temp 0"); /* the command line wins */
    cli_refused(3, "missing.gguf", "");
    cli("AERIE_MODEL=other.gguf $A run -p y");
    cli_refused(3, "other.gguf", "");
    cli("AERIE_TEMP=hot $A inspect missing.gguf"); /* inspect has no temperature */
    cli_refused(3, "missing.gguf", "");
    cli("AERIE_CPU=sse1 $A run -m missing.gguf -p y");
    cli_refused(2, "sse1", "ref");
}

static void unusable_files(void **state)
{
    (void)state;
    ae_buf vocab = {0};
    vocab_make_bpe(&vocab, &(vocab_make){0});
    cli_write("vocab.gguf", vocab.data, vocab.n);
    cli_write("cut.gguf", vocab.data, vocab.n / 2);
    cli_write("text.gguf", "\033[31mnot a model\n", 17);
    cli_write("empty.gguf", "", 0);
    ae_buf_free(&vocab);
    static const char *const commands[] = {"run -p x",    "tokenize -p x", "inspect",
                                           "bench speed", "bench verify",  "bench spec", "bench study --types as-is"};
    static const char *const files[] = {"missing.gguf", ".", "cut.gguf", "text.gguf", "empty.gguf"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
            cli("$A %s -m %s", commands[i], files[k]);
            cli_refused(3, files[k], "");
            assert_null(strchr(cli_last.err, '\033')); /* bytes of a file never reach the terminal raw */
        }
    }
    cli("$A run -m vocab.gguf -p x");
    cli_refused(3, "vocab.gguf", "");
    cli("$A tokenize -m vocab.gguf -f missing.txt");
    cli_refused(3, "missing.txt", "No such file");
    cli("$A run -m vocab.gguf -f .");
    cli_refused(3, ".", "");
    cli("$A run -m vocab.gguf --prompts-file empty.gguf");
    cli_refused(3, "empty.gguf", "no prompt");
    if (geteuid() != 0) {
        cli("chmod 0 cut.gguf; $A inspect cut.gguf");
        cli_refused(3, "cut.gguf", "ermission");
    }
}

static void tokens_there_and_back(void **state)
{
    (void)state;
    ae_buf vocab = {0};
    vocab_make_bpe(&vocab, &(vocab_make){0});
    cli_write("vocab.gguf", vocab.data, vocab.n);
    ae_buf_free(&vocab);
    static const char text[] = "Hello\tworld\n\xf0\x9f\x90\xa6 \xc3\xa9\r\n  \x00\x01\xff tail\n\n";
    cli_write("text", text, sizeof text - 1);
    cli("$A tokenize -m vocab.gguf -f text > ids && $A tokenize -m vocab.gguf --decode -f ids > back && cmp text back");
    assert_int_equal(cli_last.status, 0);
    cli("$A tokenize -m vocab.gguf < text | cmp - ids && $A tokenize -m vocab.gguf --decode < ids | cmp - text");
    assert_int_equal(cli_last.status, 0);
    cli("$A tokenize -m vocab.gguf -p A");
    assert_string_equal(cli_last.out, "65\n");
    cli("$A tokenize -m vocab.gguf -p '' --show-count");
    assert_string_equal(cli_last.out, "\n");
    assert_string_equal(cli_last.err, "aerie: 0 tokens\n");
    cli("$A tokenize -m vocab.gguf -p A --show-count");
    assert_string_equal(cli_last.err, "aerie: 1 token\n");
    cli("$A tokenize -m vocab.gguf --decode 65 66,67");
    assert_string_equal(cli_last.out, "ABC");
    cli("$A tokenize -m vocab.gguf -e -p 'A\\n\\x42\\q' | $A tokenize -m vocab.gguf --decode");
    assert_string_equal(cli_last.out, "A\nB\\q");
    cli("$A tokenize -m vocab.gguf --decode 65 x6");
    cli_refused(2, "'x6'", "token id");
    cli("$A tokenize -m vocab.gguf --decode 99999999999");
    cli_refused(2, "99999999999", "token id");
    cli("$A tokenize -m vocab.gguf --decode 2147483647");
    cli_refused(2, "2147483647", "");
    cli("$A tokenize -m vocab.gguf --decode -f text");
    cli_refused(3, "text", "token id");
    cli("$A tokenize -m vocab.gguf -p '" VOCAB_START "' --json");
    json_t *json = json_loads(cli_last.out, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(json, "count")), 1);
    json_decref(json);
    cli("$A tokenize -m vocab.gguf -p '" VOCAB_START "' --no-parse-special --json");
    json = json_loads(cli_last.out, 0, NULL);
    assert_true(json_integer_value(json_object_get(json, "count")) > 1);
    json_decref(json);
}

static void inspect_shows_hostile_strings_safely(void **state)
{
    (void)state;
    ae_buf file = {0};
    gguf_make_header(&file, 3, 0, 4);
    gguf_make_kv_string(&file, "general.architecture", "no-such\033[2Jmachine");
    gguf_make_kv_string(&file, "evil\r\nkey", "\xff\xfe bell\a \xe2\x80\xae reversed");
    gguf_make_kv_u32(&file, "answer", 42);
    static const float floats[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    gguf_make_kv_array(&file, "list", AE_GGUF_F32, 12, floats, sizeof floats);
    cli_write("evil.gguf", file.data, file.n);
    ae_buf_free(&file);
    cli("$A inspect evil.gguf");
    assert_int_equal(cli_last.status, 0);
    for (size_t i = 0; i < cli_last.n_out; i++) {
        const unsigned char c = (unsigned char)cli_last.out[i];
        assert_true(c == '\n' || (c >= 0x20 && c < 0x7f));
    }
    assert_non_null(strstr(cli_last.out, "\\x1b[2J"));
    assert_non_null(strstr(cli_last.out, "evil\\x0d\\nkey"));
    assert_non_null(strstr(cli_last.out, "\\u{202e}"));
    assert_non_null(strstr(cli_last.out, "8, ...]"));
    cli("$A inspect evil.gguf --full --match list");
    assert_non_null(strstr(cli_last.out, "11, 12]"));
    assert_null(strstr(cli_last.out, "answer"));
    cli("$A inspect evil.gguf --keys --match list"); /* nothing before the heading, which counts what is shown */
    assert_int_equal(strncmp(cli_last.out, "Metadata (1 of 4 keys)\n", 23), 0);
    cli("$A inspect evil.gguf --tensors");
    assert_string_equal(cli_last.out, "Tensors (0)\n");
    cli("$A inspect evil.gguf --json");
    json_t *json = json_loads(cli_last.out, 0, NULL), *keys = json_object_get(json, "keys");
    assert_int_equal(json_integer_value(json_object_get(keys, "answer")), 42);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(keys, "list"), "n")), 12);
    json_decref(json);
}

static void inspect_shows_experts(void **state)
{
    (void)state;
    static const uint64_t ne[3] = {32, 2, 8}, dense[1] = {32};
    ae_buf file = {0};
    gguf_make_header(&file, 3, 2, 3);
    gguf_make_kv_string(&file, "general.architecture", "olmoe");
    gguf_make_kv_u32(&file, "olmoe.expert_count", 8);
    gguf_make_kv_u32(&file, "olmoe.expert_used_count", 3);
    gguf_make_tensor(&file, "blk.0.ffn_up_exps.weight", 3, ne, AE_TYPE_F32, 0);
    gguf_make_tensor(&file, "output_norm.weight", 1, dense, AE_TYPE_F32, 2048);
    gguf_make_pad(&file, 32);
    gguf_make_zeros(&file, 2048 + 128);
    cli_write("experts.gguf", file.data, file.n);
    ae_buf_free(&file);
    cli("$A inspect experts.gguf");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.out, "8, of which a token uses 3: 0.00 M parameters"));
    cli("$A inspect experts.gguf --json");
    json_t *json = json_loads(cli_last.out, 0, NULL), *experts = json_object_get(json, "experts");
    assert_int_equal(json_integer_value(json_object_get(experts, "n_used")), 3);
    assert_int_equal(json_integer_value(json_object_get(experts, "n_params_active")), 512 * 3 / 8 + 32);
    json_decref(json);
}

static void any_valid_file_can_be_inspected(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        ae_buf file = {0};
        gguf_make_sample(&file, seed);
        cli_write("sample.gguf", file.data, file.n);
        ae_buf_free(&file);
        cli("$A inspect sample.gguf --full && $A inspect sample.gguf --json > json");
        assert_int_equal(cli_last.status, 0);
        assert_int_equal(cli_last.n_err, 0);
        static char text[1 << 20];
        cli_read("json", text, sizeof text);
        json_t *json = json_loads(text, JSON_ALLOW_NUL, NULL);
        assert_non_null(json_object_get(json, "tensors"));
        json_decref(json);
    }
}

static void lost_output_is_noticed(void **state)
{
    (void)state;
    cli("$A help > /dev/full");
    cli_refused(1, "cannot write to standard output", "");
    cli("$A help run >&-");
    assert_int_equal(cli_last.status, 1);
    cli("$A run -m missing.gguf -p x >&-"); /* nothing was to be written */
    assert_int_equal(cli_last.status, 3);
    cli("$A run -m missing.gguf -f /dev/fd/0 <&-"); /* a closed stream's number is taken: no other file gets it */
    assert_null(strstr(cli_last.err, "'/dev/fd/0': No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_goes_where_it_should),
        cmocka_unit_test(wrong_command_lines),
        cmocka_unit_test(environment),
        cmocka_unit_test(unusable_files),
        cmocka_unit_test(tokens_there_and_back),
        cmocka_unit_test(inspect_shows_hostile_strings_safely),
        cmocka_unit_test(inspect_shows_experts),
        cmocka_unit_test(any_valid_file_can_be_inspected),
        cmocka_unit_test(lost_output_is_noticed),
    };
    return cmocka_run_group_tests(tests, cli_setup, cli_teardown);
}
