/* test_grammar_cli.c - --grammar and its like from outside, on a generated model: answers, messages, exit statuses.
 */
#include "cli.h"

#include <jansson.h>

#define RUN "$A run -m m.gguf -no-cnv -p hello -n 60 --temp 1 -s 3 "

static void answers_are_of_the_grammar(void **state)
{
    (void)state;
    cli(RUN "-q --grammar 'root ::= \"yes\" | \"no\"'");
    assert_int_equal(cli_last.status, 0);
    if (strcmp(cli_last.out, "yes\n") && strcmp(cli_last.out, "no\n")) fail_msg("%s", cli_last.out);
    cli("echo 'root ::= [ab]{7}' > g.gbnf; " RUN "-q --grammar-file g.gbnf");
    assert_int_equal(cli_last.status, 0);
    assert_int_equal(cli_last.n_out, 8);
    assert_int_equal(strspn(cli_last.out, "ab"), 7);
    cli("echo '{\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":10,\"maximum\":99}},\"required\":[\"a\"]}' > "
        "s.json; " RUN "-q -jf s.json > a; " RUN "-q -j \"$(cat s.json)\" | cmp - a && cat a");
    assert_int_equal(cli_last.status, 0);
    json_error_t e;
    json_t *json = json_loads(cli_last.out, 0, &e);
    assert_non_null(json);
    assert_in_range(json_integer_value(json_object_get(json, "a")), 10, 99);
    json_decref(json);
    cli(RUN "--json --grammar 'root ::= \"yes\" | \"no\"'");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.out, "\"stop\": \"grammar\""));
    cli(RUN "--stats -j '{}'");
    assert_non_null(strstr(cli_last.err, "masks computed"));
}

static void speculation_changes_nothing(void **state)
{
    (void)state;
    static const char *const kinds[] = {"ngram", "random --spec-fixed", "oracle --spec-fixed --spec-oracle-error 0.3",
                                        "draft -md m.gguf"};
    cli(RUN "-q --ids --spec-type none -j '{}' > a");
    assert_in_range(cli_last.status, 0, 1); /* 60 tokens need not be enough for a whole object */
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        cli(RUN "-q --ids -j '{}' --spec-type %s 2>/dev/null | cmp - a", kinds[i]);
        if (cli_last.status) fail_msg("%s: %s%s", kinds[i], cli_last.out, cli_last.err);
    }
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        int status;
        const char *part;
    } cases[] = {
        {"--grammar 'root ::= x'", 2, "--grammar: grammar line 1, column 10: rule 'x' is used, but not defined"},
        {"--grammar 'root ::= root \"a\"'", 2, "left-recursive"},
        {"--grammar-file missing", 3, "missing"},
        {"--grammar-file bad", 3, "bad: grammar line 1"},
        {"--json-schema-strict -j '{\"not\":{}}'", 2, "--json-schema: schema at #: the keyword \"not\""},
        {"-j nonsense", 2, "not JSON"},
        {"-j '{}' --grammar 'root ::= \"a\"'", 2, "exclude each other"},
        {"--grammar \"root ::= $(head -c 60000 /dev/zero | tr '\\0' '(')\"", 2, "nested deeper than 128"},
        {"--grammar 'root ::= []'", 1, "the grammar leaves no token"},
    };
    cli("echo 'root = 1' > bad");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli(RUN "-q %s", cases[i].options);
        if (cli_last.status != cases[i].status || !strstr(cli_last.err, cases[i].part))
            fail_msg("%s: exit status %d, %s", cases[i].options, cli_last.status, cli_last.err);
        assert_int_equal(strchr(cli_last.err, '\n') - cli_last.err, (long)cli_last.n_err - 1);
    }
}

/* One line on standard error, and the answer is still given. */
static void what_is_not_enforced_is_said(void **state)
{
    (void)state;
    cli(RUN "-j '{\"enum\":[1],\"not\":{},\"uniqueItems\":true}'");
    assert_int_equal(cli_last.status, 0);
    assert_string_equal(cli_last.out, "1\n");
    const char *line =
        strstr(cli_last.err, "--json-schema: schema at #: the keyword \"not\" is not possible in a grammar; it is not "
                             "enforced; schema at #: beside enum and const only");
    if (!line || strstr(line + 1, "--json-schema")) fail_msg("%s", cli_last.err);
}

/* The exit status says whether every answer is a text of the grammar. */
static void answers_that_end_too_early_are_failures(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        int status;
        const char *part;
    } cases[] = {
        {"-n 3 --grammar 'root ::= [ab]{7}'", 1,
         "the answer has 3 bytes and is not a complete text of the grammar: -n 3 ended it"},
        {"-n 3 --grammar 'root ::= [ab]{3}'", 0, ""},
        {"-n 3 --grammar 'root ::= [ab]+'", 0, ""}, /* may end there, and may go on */
        {"-n 3 -j '{\"type\":\"integer\",\"minimum\":1000000}'", 1, "is not complete JSON of the schema: -n 3 ended it"},
        {"-n 20 -c 8 --grammar 'root ::= [ab]{70}'", 1, "the context is full"},
        {"--grammar 'root ::= \"abcdef\"' --stop cd", 1, "a stop string ended it"},
        {"-p more -n 3 --grammar 'root ::= [ab]{7}'", 1, "answer 2 has 3 bytes"},
        {"-n 3 --json --grammar 'root ::= [ab]{7}'", 1, "-n 3 ended it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli(RUN "-q %s", cases[i].options);
        if (cli_last.status != cases[i].status || !strstr(cli_last.err, cases[i].part) || (!*cases[i].part && cli_last.n_err))
            fail_msg("%s: exit status %d, %s", cases[i].options, cli_last.status, cli_last.err);
        assert_true(cli_last.n_out > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_that_end_too_early_are_failures),
        cmocka_unit_test(answers_are_of_the_grammar),
        cmocka_unit_test(speculation_changes_nothing),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(what_is_not_enforced_is_said),
    };
    return cmocka_run_group_tests(tests, cli_setup_model, cli_teardown);
}
