/* test_grammar_schema.c - schemas by hand: how values are written, which schemas are refused and with which place, limits,
 * failing allocations.
 *
 * tests/schema checks that random documents are accepted exactly when a validator accepts them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_alloc.h"
#include "text/grammar/match.h"

static void check(const char *schema, bool standard, const char *const *members, const char *const *others)
{
    aerie_error error = {0};
    ae_grammar *g;
    ae_matcher m;
    if (ae_grammar_from_schema(&g, schema, strlen(schema), standard, &error) != AERIE_OK)
        fail_msg("%s\n%s", error.text, schema);
    assert_int_equal(ae_matcher_init(&m, g, NULL), AERIE_OK);
    for (int k = 0; k < 2; k++)
        for (const char *const *text = k ? others : members; *text; text++) {
            assert_true(ae_matcher_restart(&m));
            const bool accepted = ae_matcher_advance(&m, *text, strlen(*text)) && ae_matcher_may_end(&m, m.current);
            if (accepted == (bool)k) fail_msg("%s %s: %s", schema, k ? "accepts" : "refuses", *text);
        }
    ae_matcher_free(&m);
    ae_grammar_free(g);
}

#define LIST(...) (const char *const[]){__VA_ARGS__, NULL}

static void test_spelling(void **state)
{
    (void)state;
    check("{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}", false,
          LIST("[]", "[ ]", "[1,2]", "[1, 2]", "[\n  1,\n\t2\n]"),
          LIST(" []", "[] ", "[1 ,2]", "[  1]", "[\n\n1]", "[01]", "[1.0]", "[-]"));
    check("{\"type\":\"string\"}", false, LIST("\"\"", "\"\\u00e9\\/\xC3\xA9\"", "\"\\ud83d\\ude00\"", "\"\x7f\""),
          LIST("\"\\ud83d\"", "\"\\ude00\"", "\"\n\"", "\"\\x\"", "\"\\u12\"", "\"a"));
    check("{\"type\":\"string\",\"minLength\":1,\"maxLength\":2}", false,
          LIST("\"a\"", "\"\\n\\\"\"", "\"\\ud83d\\ude00\xF0\x9F\x98\x80\""), LIST("\"\"", "\"abc\"", "\"\\n\\n\\n\""));
    check("{\"enum\":[\"a/\\u0001\\n\",1.0,1.50,1e300,{\"k\":[]}]}", false,
          LIST("\"a/\\u0001\\n\"", "1", "1.5", "1e+300", "{\"k\": [ ]}"), LIST("\"a\\/\\u0001\\n\"", "1.0", "2", "{}"));
    check("{\"type\":\"number\"}", false, LIST("0", "-0.5", "12e5", "1.25E-3"),
          LIST("+1", ".5", "1.", "00", "1e", "- 1", "NaN"));
}

static void test_objects(void **state)
{
    (void)state;
    check("{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"},\"c\":{\"type\":\"null\"}},"
          "\"required\":[\"b\"]}",
          false,
          LIST("{\"b\":null}", "{\"a\":null,\"b\":null}", "{\"b\": null, \"c\": null}",
               "{\"a\":null,\n\"b\":null,\"c\":null }"),
          LIST("{}", "{\"a\":null}", "{\"b\":null,\"a\":null}", "{\"b\":null,\"b\":null}", "{\"b\":null,}",
               "{\"b\":null,\"d\":1}", "null"));
    /* as the standard says: other keys and other types are allowed */
    check("{\"properties\":{\"a\":{\"type\":\"null\"},\"ab\":{\"type\":\"null\"}}}", true,
          LIST("{}", "7", "{\"x\":1,\"\":2,\"b\":3,\"abc\":4,\"aa\":5,\"A\":6}", "{\"ab\":null,\"\\n\":0}"),
          LIST("{\"a\":1}", "{\"x\":1,\"a\":null}", "{\"x\":1,\"ab\":2}", "{\"\\u0061\":1}"));
    check("{}", false, LIST("{}", "{\"a\":[1]}"), LIST("[]", "1"));
    check("{}", true, LIST("{}", "[]", "1", "null"), LIST("", "nul"));
    check(
        "{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2,\"additionalProperties\":{\"type\":\"boolean\"}}",
        false, LIST("{\"a\":true}", "{\"a\":true,\"b\":false}"),
        LIST("{}", "{\"a\":1}", "{\"a\":true,\"b\":false,\"c\":true}"));
    check("{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":3}}},{\"properties\":{\"a\":{\"type\":\"integer\","
          "\"maximum\":5}},\"required\":[\"a\"]}]}",
          false, LIST("{\"a\":3}", "{\"a\":5}"), LIST("{\"a\":2}", "{\"a\":6}", "{}", "{\"a\":3.5}"));
}

static void test_recursion(void **state)
{
    (void)state;
    check("{\"$ref\":\"#/$defs/"
          "t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"l\":{\"$ref\":\"#/"
          "$defs/t\"},"
          "\"r\":{\"anyOf\":[{\"$ref\":\"#/$defs/t\"},{\"type\":\"null\"}]}},\"required\":[\"v\"]}}}",
          false, LIST("{\"v\":1}", "{\"v\":1,\"l\":{\"v\":2,\"r\":null},\"r\":{\"v\":3,\"l\":{\"v\":4}}}"),
          LIST("{}", "{\"v\":1,\"l\":null}", "{\"v\":1,\"l\":{}}"));
    check("{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"maxItems\":2}", false, LIST("[]", "[[],[[]]]"),
          LIST("[[],[],[]]", "[1]"));
    /* an escaped pointer; a reference beside other keywords */
    check("{\"$ref\":\"#/definitions/a~1b%20c\",\"maximum\":4,\"definitions\":{\"a/b "
          "c\":{\"type\":\"integer\",\"minimum\":2}}}",
          false, LIST("2", "4"), LIST("1", "5"));
}

static void test_strings(void **state)
{
    (void)state;
    check("{\"pattern\":\"^[a-c]{2,3}(x|\\\\d+)?$\"}", false, LIST("\"ab\"", "\"abcx\"", "\"ab12\""),
          LIST("\"a\"", "\"abcd\"", "\"abxx\"", "ab"));
    check("{\"pattern\":\"a.b\"}", false,
          LIST("\"a-b\"", "\"xxa\\\"byy\"",
               "\"a\xC3\xA9"
               "b\""),
          LIST("\"ab\"", "\"a\\nb\"", "\"\""));
    check("{\"pattern\":\"^a|b$|\\\\u0063\"}", false, LIST("\"ax\"", "\"xb\"", "\"xcx\""), LIST("\"xa\"", "\"bx\"", "\"\""));
    check("{\"format\":\"date-time\"}", false, LIST("\"2024-02-29T23:59:59Z\"", "\"1999-12-31T00:00:00.25+01:30\""),
          LIST("\"2023-02-29T00:00:00Z\"", "\"2024-02-29 00:00:00Z\"", "\"2024-02-29T24:00:00Z\"", "\"2024-02-29T00:00:00\""));
    check("{\"format\":\"uuid\"}", false, LIST("\"123e4567-e89b-12d3-a456-426614174000\""),
          LIST("\"123e4567e89b12d3a456426614174000\""));
}

static void test_numbers(void **state)
{
    (void)state;
    check("{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}", false, LIST("-12", "-9", "0", "99", "100", "105"),
          LIST("-13", "-20", "106", "200", "-0"));
    check("{\"type\":\"integer\",\"exclusiveMinimum\":9.5}", true, LIST("10", "99", "123456789012345678901234567890"),
          LIST("9", "0", "-10"));
    check("{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}", false,
          LIST("-9223372036854775808", "9223372036854775807", "0"), LIST("-9223372036854775809", "9223372036854775808"));
    check("{\"type\":\"number\",\"minimum\":-0.25,\"exclusiveMaximum\":1.05}", false,
          LIST("-0.25", "-0.2", "0", "1", "1.0499", "1.0"),
          LIST("-0.26", "-0.251", "1.05", "1.050", "1.1", "2", "1e0"));
    check("{\"type\":\"number\",\"exclusiveMinimum\":0}", false, LIST("0.01", "1", "5.50"), LIST("0", "0.0", "-1", "0.00"));
    check("{\"type\":\"number\",\"minimum\":2.5,\"maximum\":2.5}", false, LIST("2.5", "2.500"), LIST("2", "2.51", "2.49"));
}

/* Small models would write digits without end. */
static void test_digits_are_bounded(void **state)
{
    (void)state;
#define D16 "1234567890123456"
#define D17 D16 "7"
    for (int standard = 0; standard < 2; standard++) {
        const char *const *const never = LIST("x", "01"), *const *const most = LIST(D16, "-" D16, "0");
        check("{\"type\":\"integer\"}", standard, standard ? LIST(D17, "-" D17 D17) : most,
              standard ? never : LIST(D17, "-" D17));
        check("{\"type\":\"integer\",\"minimum\":7}", standard, LIST(D16, "7"), standard ? LIST("6") : LIST("6", D17));
        check("{\"type\":\"integer\",\"minimum\":123456789012345678}", standard,
              LIST("123456789012345678", "999999999999999999"), standard ? LIST(D17) : LIST(D17, "1999999999999999999"));
        check("{\"type\":\"number\"}", standard, LIST(D16 "." D16 "e-324", "0." D16),
              standard ? never : LIST("0." D17, D17 ".0", "1e1234"));
        check("{\"type\":\"number\",\"minimum\":0,\"maximum\":1}", standard, LIST("0", "1.0", "0." D16, "0.0"),
              standard ? LIST("1.01") : LIST("0." D17, "0.00000000000000000", "1.00000000000000001"));
        check("{\"type\":\"number\",\"minimum\":0.12345678901234567,\"maximum\":1}", standard,
              LIST("0.1234567890123457", "0.2"),
              LIST("0.1234567890123456", "0.1"));
    }
}

/* Numbers from -150 to 150 in steps of 1/8: accepted exactly when they are multiples and within the bounds. */
static void check_multiples(const char *schema, double of, double min, double max)
{
    aerie_error error = {0};
    ae_grammar *g;
    ae_matcher m;
    if (ae_grammar_from_schema(&g, schema, strlen(schema), false, &error) != AERIE_OK) fail_msg("%s: %s", schema, error.text);
    assert_int_equal(ae_matcher_init(&m, g, NULL), AERIE_OK);
    for (int i = -1200; i <= 1200; i++) {
        char text[32];
        const double x = i / 8.0;
        const bool wanted = x >= min && x <= max && x / of == (double)(long)(x / of);
        const int n = snprintf(text, sizeof text, "%.9g", x);
        assert_true(ae_matcher_restart(&m));
        const bool accepted = ae_matcher_advance(&m, text, (size_t)n) && ae_matcher_may_end(&m, m.current);
        if (accepted != wanted) fail_msg("%s %s %s", schema, accepted ? "accepts" : "refuses", text);
    }
    ae_matcher_free(&m);
    ae_grammar_free(g);
}

static void test_multiples(void **state)
{
    (void)state;
    check_multiples("{\"multipleOf\":7}", 7, -200, 200);
    check_multiples("{\"type\":\"integer\",\"multipleOf\":1}", 1, -200, 200);
    check_multiples("{\"type\":\"integer\",\"multipleOf\":5,\"minimum\":-12,\"exclusiveMaximum\":105}", 5, -12, 104.9);
    check_multiples("{\"type\":\"integer\",\"multipleOf\":0.4}", 2, -200, 200);
    check_multiples("{\"type\":\"number\",\"multipleOf\":0.25}", 0.25, -200, 200);
    check_multiples("{\"type\":\"number\",\"multipleOf\":1.5,\"minimum\":0.5}", 1.5, 0.5, 200);
    check_multiples("{\"type\":\"number\",\"multipleOf\":2.0}", 2, -200, 200);
    check_multiples("{\"allOf\":[{\"multipleOf\":6},{\"multipleOf\":4},{\"multipleOf\":0.5}]}", 12, -200, 200);
    check("{\"multipleOf\":0.01}", false, LIST("0.1", "0.30", "19.99", "-5", "1234567890123456.12"),
          LIST("0.001", "0.", "1e2", "1.000", ".5"));
    check("{\"multipleOf\":1000}", false, LIST("0", "1000", "-123000", "987654321000"), LIST("100", "1001", "1000.0", "00"));
    check("{\"type\":\"integer\",\"minimum\":0,\"maximum\":86400,\"multipleOf\":900}", false, LIST("0", "900", "86400", "1800"),
          LIST("450", "87300", "86399", "-900"));
    check("{\"items\":{\"multipleOf\":3},\"maxItems\":2}", false, LIST("[]", "[3]", "[12, 9]"), LIST("[4]", "[3,5]"));
}

static void test_lengths_beside_pattern(void **state)
{
    (void)state;
    check("{\"pattern\":\"^[a-c]*$\",\"minLength\":2,\"maxLength\":4}", false, LIST("\"ab\"", "\"abca\""),
          LIST("\"a\"", "\"\"", "\"abcab\"", "\"abd\""));
    check("{\"pattern\":\"b\",\"maxLength\":3}", false,
          LIST("\"b\"", "\"abc\"", "\"\\nb\\\"\"",
               "\"\xF0\x9F\x98\x80\xC3\xA9"
               "b\""),
          LIST("\"abcd\"", "\"a\"", "\"\\n\\tb\\\"\"",
               "\"\xC3\xA9\xC3\xA9\xC3\xA9"
               "b\""));
    check("{\"pattern\":\"^(?:[\\u0000-\\u0003]|ab)+$\",\"minLength\":2,\"maxLength\":3}", false,
          LIST("\"ab\"", "\"\\u0001\\u0002\"", "\"ab\\u0003\"", "\"\\u0001ab\""),
          LIST("\"\\u0001\"", "\"abab\"", "\"\\u0001\\u0001\\u0001\\u0001\"", "\"\\u0041\""));
    /* repetitions of groups are rules, which the product writes out */
    check("{\"pattern\":\"^((ab|c){2}-){1,9}$\",\"minLength\":6,\"maxLength\":7}", false,
          LIST("\"cc-cc-\"", "\"abc-cc-\"", "\"cc-cab-\""), LIST("\"abc-\"", "\"abab-cc-\"", "\"cc-c-\"", "\"abc-abc-\""));
    check("{\"format\":\"email\",\"maxLength\":6}", false, LIST("\"a@b.c\"", "\"a@b.de\""), LIST("\"aa@b.de\"", "\"a@b\""));
    check("{\"allOf\":[{\"pattern\":\"^x\"},{\"maxLength\":5},{\"minLength\":5}]}", false, LIST("\"xabcd\""),
          LIST("\"x\"", "\"xabcde\"", "\"abcde\""));
    check("{\"pattern\":\"^(a*)*$\",\"minLength\":1}", false, LIST("\"a\"", "\"aaaaaaaa\""), LIST("\"\"", "\"b\""));
    /* there are no dead ends: after "ab" only the end is possible */
    check("{\"pattern\":\"^(ab|abcdef)$\",\"maxLength\":5}", false, LIST("\"ab\""), LIST("\"abcdef\""));
    ae_grammar *g;
    ae_matcher m;
    static const char schema[] = "{\"pattern\":\"^(ab|abcdef)$\",\"maxLength\":5}";
    assert_int_equal(ae_grammar_from_schema(&g, schema, sizeof schema - 1, false, NULL), AERIE_OK);
    assert_int_equal(ae_matcher_init(&m, g, NULL), AERIE_OK);
    assert_true(ae_matcher_advance(&m, "\"ab", 3));
    for (int byte = 0; byte < 256; byte++)
        assert_int_equal(ae_matcher_step(&m, m.current, (uint8_t)byte) >= AE_GSTATE_FIRST, byte == '"');
    ae_matcher_free(&m);
    ae_grammar_free(g);
}

static void test_unique(void **state)
{
    (void)state;
    check("{\"items\":{\"enum\":[\"a\",\"b\",\"ab\"]},\"uniqueItems\":true}", false,
          LIST("[]", "[\"a\"]", "[\"b\", \"a\"]", "[\"ab\",\"a\",\"b\"]", "[ \"a\",\n \"ab\" ]"),
          LIST("[\"a\",\"a\"]", "[\"a\",\"b\",\"a\"]", "[\"ab\",\"a\",\"b\",\"ab\"]", "[\"c\"]", "[,]", "[\"a\",]"));
    check("{\"type\":\"array\",\"items\":{\"type\":[\"boolean\",\"null\"]},\"uniqueItems\":true,\"minItems\":1,\"maxItems\":2}",
          false, LIST("[true]", "[null,false]", "[true,false]"), LIST("[]", "[true,true]", "[null,true,false]", "[1]"));
    check(
        "{\"items\":{\"anyOf\":[{\"const\":1},{\"enum\":[1.0,2,{\"k\":[]}]},{\"anyOf\":[{\"type\":\"null\"},{\"const\":2}]}]},"
        "\"uniqueItems\":true}",
        false, LIST("[1,2]", "[{\"k\":[]},1,null,2]"),
        LIST("[1,1]", "[2,2]", "[null,null]", "[{\"k\":[]},{\"k\":[]}]", "[1,2,1]"));
    /* at most two of 26: 677 sets; at most one: any items differ */
    check(
        "{\"items\":{\"enum\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\",\"l\",\"m\",\"n\",\"o\",\"p\","
        "\"q\",\"r\",\"s\",\"t\",\"u\",\"v\",\"w\",\"x\",\"y\",\"z\"]},\"uniqueItems\":true,\"maxItems\":2}",
        false, LIST("[\"z\",\"a\"]", "[\"a\",\"z\"]", "[]"), LIST("[\"z\",\"z\"]", "[\"a\",\"b\",\"c\"]"));
    check("{\"items\":{\"type\":\"integer\"},\"uniqueItems\":true,\"maxItems\":1}", false, LIST("[]", "[7]"),
          LIST("[7,7]", "[\"a\"]"));
    check("{\"items\":{\"enum\":[1,2]},\"uniqueItems\":false}", false, LIST("[1,1]"), LIST("[3]"));
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *schema;
        aerie_status status;
        const char *part;
    } cases[] = {
        {"", AERIE_ERROR_FORMAT, "not JSON: line 1"},
        {"{\"a\":1,\"a\":2}", AERIE_ERROR_FORMAT, "duplicate"},
        {"7", AERIE_ERROR_FORMAT, "schema at #: a schema is an object, true or false"},
        {"{\"properties\":{\"a/b\":{\"items\":{\"not\":{}}}}}", AERIE_ERROR_UNSUPPORTED,
         "schema at #/properties/a~1b/items: the keyword \"not\""},
        {"{\"items\":{\"maxLenght\":3}}", AERIE_ERROR_UNSUPPORTED, "#/items: the keyword \"maxLenght\""},
        {"{\"uniqueItems\":true}", AERIE_ERROR_UNSUPPORTED, "uniqueItems"},
        {"{\"type\":\"strnig\"}", AERIE_ERROR_FORMAT, "\"type\" is one or a list of"},
        {"{\"type\":[]}", AERIE_ERROR_FORMAT, "\"type\" is one or a list of"},
        {"{\"format\":\"iri\"}", AERIE_ERROR_UNSUPPORTED, "\"format\": \"iri\" is not supported in a grammar; date, time"},
        {"{\"$ref\":\"http://x/y\"}", AERIE_ERROR_UNSUPPORTED, "references begin with #/"},
        {"{\"$ref\":\"#/$defs/x\"}", AERIE_ERROR_FORMAT, "leads nowhere"},
        {"{\"$ref\":\"#\"}", AERIE_ERROR_FORMAT, "schema at #: this schema refers to itself"},
        {"{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"allOf\":[{\"$ref\":\"#/$defs/"
         "a\"}]}},\"items\":{\"$ref\":\"#/$defs/a\"}}",
         AERIE_ERROR_FORMAT, "#/$defs/a: this schema refers to itself"},
        {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", AERIE_ERROR_FORMAT, "refers to itself"},
        {"{\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/b\"},{\"const\":1}]},\"b\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
         "a\"}]}},\"$ref\":\"#/$defs/a\"}",
         AERIE_ERROR_FORMAT, "refers to itself"},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", AERIE_ERROR_FORMAT, "nothing satisfies"},
        {"false", AERIE_ERROR_FORMAT, "nothing satisfies"},
        {"{\"minimum\":1e300,\"type\":\"number\"}", AERIE_ERROR_UNSUPPORTED, "too large or too small"},
        {"{\"format\":\"date\",\"pattern\":\"a\"}", AERIE_ERROR_UNSUPPORTED, "only one of several patterns and formats"},
        {"{\"pattern\":\"^(a|bc)*$\",\"maxLength\":90000}", AERIE_ERROR_UNSUPPORTED, "too large beside this pattern"},
        {"{\"multipleOf\":0}", AERIE_ERROR_FORMAT, "\"multipleOf\" is a number greater than 0"},
        {"{\"multipleOf\":-2}", AERIE_ERROR_FORMAT, "\"multipleOf\" is a number greater than 0"},
        {"{\"multipleOf\":\"2\"}", AERIE_ERROR_FORMAT, "\"multipleOf\" is a number greater than 0"},
        {"{\"multipleOf\":1e-300}", AERIE_ERROR_UNSUPPORTED, "\"multipleOf\": 1e-300 is not possible here"},
        {"{\"multipleOf\":65537}", AERIE_ERROR_UNSUPPORTED, "\"multipleOf\": 65537 is not possible here"},
        {"{\"allOf\":[{\"multipleOf\":65536},{\"multipleOf\":3}]}", AERIE_ERROR_UNSUPPORTED, "at #/allOf/1: \"multipleOf\": 3"},
        {"{\"type\":\"integer\",\"multipleOf\":9999,\"minimum\":-12345678901234,\"maximum\":98765432109876}",
         AERIE_ERROR_UNSUPPORTED, "\"multipleOf\": 9999 is too large beside these bounds"},
        {"{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":1,\"maximum\":6}", AERIE_ERROR_FORMAT, "nothing satisfies"},
        {"{\"uniqueItems\":1}", AERIE_ERROR_FORMAT, "\"uniqueItems\" is true or false"},
        {"{\"items\":{\"enum\":[1,1.0,2]},\"uniqueItems\":true,\"minItems\":3}", AERIE_ERROR_FORMAT, "nothing satisfies"},
        {"{\"items\":{\"enum\":[0,1,2,3,4,5,6,7,8,9,10,11]},\"uniqueItems\":true}", AERIE_ERROR_UNSUPPORTED, "of a few values"},
        {"{\"pattern\":\"^ab?$\",\"minLength\":3}", AERIE_ERROR_FORMAT, "nothing satisfies"},
        {"{\"enum\":[1],\"minimum\":0}", AERIE_ERROR_UNSUPPORTED, "beside enum and const"},
        {"{\"minItems\":-1}", AERIE_ERROR_FORMAT, "\"minItems\" is a whole number from 0"},
        {"{\"maxLength\":1e9}", AERIE_ERROR_LIMIT, "is the limit"},
        {"{\"properties\":{\"a\":{}},\"minProperties\":2}", AERIE_ERROR_UNSUPPORTED,
         "minProperties and maxProperties are possible only"},
        {"{\"pattern\":\"a(?=b)\"}", AERIE_ERROR_UNSUPPORTED, "pattern 'a(?=b)', character 3: only plain groups"},
        {"{\"enum\":[]}", AERIE_ERROR_FORMAT, "\"enum\" is a list of at least one value"},
        {"{\"enum\":{}}", AERIE_ERROR_FORMAT, "\"enum\" is a list of at least one value"},
        {"{\"enum\":null}", AERIE_ERROR_FORMAT, "\"enum\" is a list of at least one value"},
        {"{\"allOf\":[{\"const\":1},{\"enum\":{}}]}", AERIE_ERROR_FORMAT, "at #/allOf/1: \"enum\" is a list of"},
        {"{\"pattern\":\"(a\"}", AERIE_ERROR_FORMAT, "not closed by )"},
        {"{\"pattern\":\"a**\"}", AERIE_ERROR_FORMAT, "nothing to repeat"},
        {"{\"pattern\":\"(a)\\\\1\"}", AERIE_ERROR_UNSUPPORTED, "this escape is not supported"},
        {"{\"pattern\":\"a^b\"}", AERIE_ERROR_UNSUPPORTED, "at the ends only"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        aerie_error error = {0};
        ae_grammar *g = (ae_grammar *)&error;
        const aerie_status status = ae_grammar_from_schema(&g, cases[i].schema, strlen(cases[i].schema), false, &error);
        if (status != cases[i].status || !strstr(error.text, cases[i].part))
            fail_msg("%s: [%d] %s", cases[i].schema, (int)status, error.text);
        assert_null(g);
        assert_null(strchr(error.text, '\n'));
    }
}

/* Counts that are too large for an automaton are ignored with a warning; other keywords still hold. */
static void test_large_counts(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *warning, *good, *bad;
    } cases[] = {
        {"{\"type\":\"string\",\"maxLength\":2147483647,\"minLength\":2}", "\"maxLength\" is 2147483647", "\"ab\"", "\"a\""},
        {"{\"type\":\"string\",\"minLength\":1e12,\"maxLength\":2}", "\"minLength\" is 1000000000000", "\"ab\"", "\"abc\""},
        {"{\"type\":\"array\",\"maxItems\":1e15,\"items\":{\"type\":\"null\"}}", "\"maxItems\" is 1", "[null,null]", "[1]"},
        {"{\"type\":\"object\",\"maxProperties\":4294967296,\"minProperties\":1}", "\"maxProperties\" is 4294967296",
         "{\"a\":1}", "{}"},
        {"{\"type\":\"string\",\"maxLength\":1000000}", "\"maxLength\" is 1000000", "\"a\"", "1"}, /* nodes run out */
        {"{\"type\":\"array\",\"maxItems\":2,\"items\":{\"type\":\"string\",\"maxLength\":1000000}}", "is 1000000", "[\"a\"]",
         "[\"a\",\"b\",\"c\"]"},
        {"{\"type\":\"string\",\"maxLength\":20000}", NULL, "\"a\"", "1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const schema = cases[i].schema;
        ae_grammar *g = NULL;
        ae_buf warnings = {0};
        aerie_error error = {0};
        bool good = false, bad = true;
        size_t n = 0;
        assert_int_equal(ae_grammar_from_schema_with(&g, schema, strlen(schema), &(aerie_schema_params){0}, &warnings, &error),
                         AERIE_OK);
        assert_string_equal(error.text, "");
        ae_buf_add(&warnings, "", 1);
        if (cases[i].warning ? !strstr(warnings.data, cases[i].warning) : warnings.n > 1)
            fail_msg("%s: %s", schema, warnings.data);
        assert_int_equal(aerie_grammar_check(g, cases[i].good, strlen(cases[i].good), &good, &n, NULL), AERIE_OK);
        assert_int_equal(aerie_grammar_check(g, cases[i].bad, strlen(cases[i].bad), &bad, &n, NULL), AERIE_OK);
        if (!good || bad) fail_msg("%s: %d %d", schema, good, bad);
        ae_grammar_free(g);
        ae_buf_free(&warnings);
    }
}

/* Every keyword with a value of every kind, alone, beside a type, and in allOf with a valid schema: it is compiled or refused
 * with a sentence, never a crash. */
static void test_values_of_any_kind(void **state)
{
    (void)state;
    static const char *const keywords[] = {"type",
                                           "enum",
                                           "const",
                                           "properties",
                                           "required",
                                           "additionalProperties",
                                           "minProperties",
                                           "maxProperties",
                                           "items",
                                           "prefixItems",
                                           "additionalItems",
                                           "minItems",
                                           "maxItems",
                                           "uniqueItems",
                                           "minLength",
                                           "maxLength",
                                           "pattern",
                                           "format",
                                           "minimum",
                                           "maximum",
                                           "exclusiveMinimum",
                                           "exclusiveMaximum",
                                           "multipleOf",
                                           "anyOf",
                                           "oneOf",
                                           "allOf",
                                           "$ref",
                                           "$defs",
                                           "not"};
    static const char *const values[] = {"null",  "true",    "false",        "0",          "-1",          "1e308", "2.5",
                                         "\"\"",  "\"a\"",   "[]",           "{}",         "[[]]",        "[{}]",  "[null]",
                                         "[1,1]", "[false]", "{\"a\":null}", "{\"a\":{}}", "[\"string\"]"};
    static const char *const forms[] = {
        "{\"%s\":%s}", "{\"allOf\":[{\"%s\":%s},{\"enum\":[1,\"a\",[],{}]}]}",
        "{\"allOf\":[{\"const\":[]},{\"%s\":%s}]}", "{\"items\":{\"%s\":%s},\"type\":[\"array\",\"string\"]}"};
    for (size_t k = 0; k < sizeof keywords / sizeof *keywords; k++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
                char schema[200];
                aerie_error error = {0};
                ae_grammar *g;
                snprintf(schema, sizeof schema, forms[f], keywords[k], values[v]);
                const aerie_status status = ae_grammar_from_schema(&g, schema, strlen(schema), f % 2, &error);
                if ((status == AERIE_OK) != (g != NULL) || (status == AERIE_OK) != !*error.text)
                    fail_msg("%s: [%d] %s", schema, (int)status, error.text);
                ae_grammar_free(g);
            }
}

/* What clients write although the standard does not know it, where it has one meaning. */
static void test_tidied(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *member, *other;
    } cases[] = {
        {"{\"type\":\"OBJECT\",\"properties\":{\"a\":{\"type\":\"STRING\"}},\"required\":[\"a\"]}",
         "{\"a\":\"x\"}", "{\"a\":1}"},
        {"{\"type\":\"dict\",\"properties\":{\"a\":{\"type\":\"float\"},\"b\":{\"type\":\"tuple\"}}}",
         "{\"a\":1.5,\"b\":[1]}", "{\"a\":\"1\"}"},
        {"{\"properties\":{\"a\":{\"type\":\"any\"},\"b\":{\"type\":[\"int\",\"None\"]}}}",
         "{\"a\":[1],\"b\":null}", "{\"b\":\"1\"}"},
        {"{\"type\":\"array\",\"items\":{\"type\":[\"any\",\"null\"]}}",
         "[1,\"a\"]", "{}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":null,\"minLength\":null}},"
         "\"required\":null}",
         "{\"a\":\"x\"}", "{\"a\":1}"},
        {"{\"type\":\"object\",\"properties\":null}",
         "{\"a\":1}", "[]"},
        {"{\"type\":null,\"items\":null,\"anyOf\":null,\"$ref\":null,\"properties\":{\"a\":null}}",
         "{\"a\":[1]}", "{\"b\":1}"},
        {"{\"type\":\"object\",\"required\":true,\"properties\":{\"a\":{\"type\":\"object\",\"required\":false}}}",
         "{\"a\":{\"b\":1}}", "{\"a\":1}"},
        {"{\"properties\":{\"type\":{\"const\":null},\"required\":{\"enum\":[null]}},\"required\":[\"type\"]}",
         "{\"type\":null,\"required\":null}", "{\"type\":1}"},
        {"{\"$defs\":{\"A\":{\"$anchor\":\"here\",\"type\":\"INTEGER\"}},\"items\":{\"$ref\":\"#here\"}}",
         "[1,2]", "[\"a\"]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const aerie_schema_params params = {.strict = false};
        const char *schema = cases[i].schema, *member = cases[i].member, *other = cases[i].other;
        aerie_error error = {0};
        ae_grammar *g;
        ae_matcher m;
        if (ae_grammar_from_schema_with(&g, schema, strlen(schema), &params, NULL, &error) != AERIE_OK)
            fail_msg("%s: %s", schema, error.text);
        assert_int_equal(ae_matcher_init(&m, g, NULL), AERIE_OK);
        if (!ae_matcher_advance(&m, member, strlen(member)) || !ae_matcher_may_end(&m, m.current))
            fail_msg("%s refuses %s", schema, member);
        assert_true(ae_matcher_restart(&m));
        if (ae_matcher_advance(&m, other, strlen(other)) && ae_matcher_may_end(&m, m.current))
            fail_msg("%s accepts %s", schema, other);
        ae_matcher_free(&m);
        ae_grammar_free(g);
    }
}

/* What a grammar cannot enforce gives one warning with its place unless `strict` is set; the rest is enforced. */
static void test_passed_over(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *warning, *member, *other;
    } cases[] = {
        {"{\"items\":{\"type\":\"integer\"},\"uniqueItems\":true}",
         "schema at #: \"uniqueItems\": true is possible only where all items are of a few values (enum, const, boolean); it "
         "is not "
         "enforced",
         "[1,1]", "[\"a\"]"},
        {"{\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":1},\"uniqueItems\":true}", "uniqueItems", "[1,1]", "[2]"},
        {"{\"type\":\"integer\",\"multipleOf\":1e9}", "\"multipleOf\": 1e+09 is not possible", "7", "7.5"},
        {"{\"type\":\"integer\",\"not\":{\"const\":3},\"maxLenght\":2}",
         "schema at #: the keyword \"not\" is not possible in a grammar; it is not enforced; schema at #: the keyword "
         "\"maxLenght\" is not possible in a grammar; it is not enforced",
         "3", "\"a\""},
        {"{\"properties\":{\"a\":{\"type\":\"string\",\"format\":\"iri\"}}}",
         "schema at #/properties/a: \"format\": \"iri\" is not", "{\"a\":\"x y\"}", "{\"a\":1}"},
        {"{\"pattern\":\"^a$\",\"format\":\"date\"}", "only one of several patterns and formats", "\"2024-01-01\"", "\"a\""},
        {"{\"pattern\":\"^(a|bc)*$\",\"maxLength\":90000}", "too large beside this pattern", "\"abc\"", "\"b\""},
        {"{\"pattern\":\"a(?=b)\",\"minLength\":3}", "pattern 'a(?=b)', character 3: only plain groups", "\"xyz\"", "\"xy\""},
        {"{\"properties\":{\"a\":{\"type\":\"null\"}},\"minProperties\":1}", "minProperties and maxProperties", "{}", "[]"},
        {"{\"enum\":[1,2,\"a\"],\"minimum\":2}", "beside enum and const", "1", "3"},
        {"{\"enum\":[1,\"a\"],\"uniqueItems\":true}", "beside enum and const", "\"a\"", "[1]"},
        {"{\"const\":\"a\",\"multipleOf\":2}", "beside enum and const", "\"a\"", "2"},
        {"{\"type\":\"number\",\"minimum\":1e300,\"maximum\":2}", "too large or too small", "1.5", "3"},
        {"{\"anyOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/a\"}],\"$defs\":{\"a\":{\"type\":\"null\",\"if\":{}}}}",
         "schema at #/$defs/a: the keyword \"if\" is not possible in a grammar; it is not enforced", "null", "1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int strict = 0; strict < 2; strict++) {
            const aerie_schema_params params = {.strict = strict};
            const char *schema = cases[i].schema;
            aerie_error error = {0};
            ae_buf warnings = {0};
            ae_grammar *g;
            ae_matcher m;
            const aerie_status status = ae_grammar_from_schema_with(&g, schema, strlen(schema), &params, &warnings, &error);
            if (strict) {
                assert_int_equal(status, AERIE_ERROR_UNSUPPORTED);
                assert_int_equal(warnings.n, 0);
                continue;
            }
            if (status != AERIE_OK) fail_msg("%s: %s", schema, error.text);
            assert_int_equal(error.status, AERIE_OK);
            if (!warnings.n || !strstr(warnings.data, cases[i].warning)) fail_msg("%s: %s", schema, warnings.data);
            const char *first = strstr(warnings.data, cases[i].warning);
            if (strstr(first + 1, cases[i].warning)) fail_msg("said twice: %s", warnings.data);
            assert_int_equal(ae_matcher_init(&m, g, NULL), AERIE_OK);
            assert_true(ae_matcher_advance(&m, cases[i].member, strlen(cases[i].member)) && ae_matcher_may_end(&m, m.current));
            assert_true(ae_matcher_restart(&m));
            assert_false(ae_matcher_advance(&m, cases[i].other, strlen(cases[i].other)) && ae_matcher_may_end(&m, m.current));
            ae_matcher_free(&m);
            ae_grammar_free(g);
            ae_buf_free(&warnings);
        }
    /* their number is limited */
    ae_buf text = {0}, warnings = {0};
    ae_grammar *g;
    ae_buf_adds(&text, "{\"type\":\"null\"");
    for (int i = 0; i < 100; i++) ae_buf_addf(&text, ",\"k%d\":0", i);
    ae_buf_adds(&text, "}");
    assert_int_equal(ae_grammar_from_schema_with(&g, text.data, text.n, &(aerie_schema_params){0}, &warnings, NULL), AERIE_OK);
    assert_true(warnings.n < 1000);
    assert_non_null(strstr(warnings.data, "; and more"));
    ae_grammar_free(g);
    ae_buf_free(&text);
    ae_buf_free(&warnings);
}

static void test_formats(void **state)
{
    (void)state;
    check("{\"format\":\"email\"}", false, LIST("\"a@b.c\"", "\"ada.b+c@mail-1.example.org\"", "\"o'x@a.bc\""),
          LIST("\"a\"", "\"@b.c\"", "\"a@b\"", "\"a..b@c.d\"", "\"a@-b.c\"", "\"a@b-.c\"", "\"a b@c.d\"", "\"a@b.c.\""));
    check("{\"format\":\"hostname\"}", false, LIST("\"a\"", "\"www.example.org\"", "\"a-1.b\""),
          LIST("\"\"", "\"-a\"", "\"a..b\"", "\"a_b\"", "\"a.\""));
    check("{\"format\":\"uri\"}", false,
          LIST("\"http://example.org\"", "\"https://u:p@h.org:80/a/b%20c?q=1&r=/?#frag\"", "\"mailto:a@b.c\"",
               "\"file:///etc/x\"", "\"urn:isbn:0\""),
          LIST("\"example.org\"", "\"http//x\"", "\"http://a b\"", "\"http://a/%2\"", "\"1http://a\"", "\"http://a/<\"",
               "\"http://a:b/\"", "\"a:#b#c\""));
    check("{\"format\":\"ipv4\"}", false, LIST("\"0.0.0.0\"", "\"255.249.199.10\""),
          LIST("\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\"", "\"1.2.3.4.5\"", "\"1.2.3.\""));
    check("{\"format\":\"ipv6\"}", false,
          LIST("\"::\"", "\"::1\"", "\"1::\"", "\"2001:db8::8:800:200C:417A\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\"",
               "\"1:2:3:4:5:6:1.2.3.4\"", "\"1::3:4:5:6:7:8\"", "\"1:2:3:4:5::1.2.3.4\""),
          LIST("\":\"", "\"1\"", "\":::\"", "\"1::2::3\"", "\"1:2:3:4:5:6:7\"", "\"1:2:3:4:5:6:7:8:9\"", "\"12345::\"",
               "\"g::\"", "\"1:2:3:4:5:6:7:1.2.3.4\"", "\"::1.2.3.256\"", "\"1:2:3:4:5:6:7:8::\""));
}

static void refuse_nested(const char *open, size_t count, const char *close, const char *part)
{
    ae_buf text = {0};
    aerie_error error = {0};
    ae_grammar *g;
    for (size_t i = 0; i < count; i++) ae_buf_adds(&text, open);
    ae_buf_adds(&text, "{}");
    for (size_t i = 0; i < count; i++) ae_buf_adds(&text, close);
    assert_true(ae_grammar_from_schema(&g, text.data, text.n, false, &error) != AERIE_OK);
    if (!strstr(error.text, part)) fail_msg("%s", error.text);
    ae_buf_free(&text);
}

/* $ref from one to the next of n schemas, and back to the first. */
static void refuse_chain(int n, const char *part)
{
    ae_buf text = {0};
    aerie_error error = {0};
    ae_grammar *g;
    ae_buf_adds(&text, "{\"$ref\":\"#/$defs/s0\",\"$defs\":{");
    for (int i = 0; i < n; i++) ae_buf_addf(&text, "%s\"s%d\":{\"$ref\":\"#/$defs/s%d\"}", i ? "," : "", i, (i + 1) % n);
    ae_buf_adds(&text, "}}");
    assert_true(ae_grammar_from_schema(&g, text.data, text.n, false, &error) != AERIE_OK);
    if (!strstr(error.text, part)) fail_msg("%s", error.text);
    ae_buf_free(&text);
}

static void test_limits(void **state)
{
    (void)state;
    refuse_nested("{\"items\":", 60000, "}", "maximum parsing depth");
    refuse_nested("{\"items\":", 1500, "}", "nested deeper than 128");
    refuse_nested("{\"allOf\":[", 900, "]}", "schemas hold at once");
    refuse_nested("{\"anyOf\":[", 900, "]}", "");
    ae_buf text = {0};
    aerie_error error = {0};
    ae_grammar *g;
    /* 2^40 combinations */
    ae_buf_adds(&text, "{\"allOf\":[");
    for (int i = 0; i < 31; i++)
        ae_buf_addf(&text, "%s{\"anyOf\":[{\"minimum\":%d},{\"maximum\":%d}]}", i ? "," : "", i, 100 + i);
    ae_buf_adds(&text, "]}");
    assert_int_equal(ae_grammar_from_schema(&g, text.data, text.n, false, &error), AERIE_ERROR_LIMIT);
    ae_buf_clear(&text);
    ae_buf_adds(&text, "{\"pattern\":\"");
    for (int i = 0; i < 60000; i++) ae_buf_adds(&text, "(");
    ae_buf_adds(&text, "\"}");
    assert_int_equal(ae_grammar_from_schema(&g, text.data, text.n, false, &error), AERIE_ERROR_LIMIT);
    assert_non_null(strstr(error.text, "groups are nested deeper than 128"));
    ae_buf_free(&text);
    refuse_chain(20, "this schema refers to itself");
    refuse_chain(1000, "schemas hold at once");
}

/* The target of many references is compiled once, however many there are: otherwise each would be a level deeper than the one
 * before. */
static void test_many_references(void **state)
{
    (void)state;
    ae_buf text = {0};
    ae_buf_adds(&text, "{\"$defs\":{\"a\":{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
    for (int i = 0; i < 1000; i++)
        ae_buf_addf(&text, "%s\"p%d\":{\"$ref\":\"#/$defs/a\",\"description\":\"d\"}", i ? "," : "", i);
    ae_buf_adds(&text, "}}},\"$ref\":\"#/$defs/a\"}");
    check(text.data, false, LIST("{}", "{\"p0\":{\"p999\":{}},\"p500\":{}}"),
          LIST("1", "{\"p1000\":{}}", "{\"p1\":1}", "{\"p2\":{},\"p1\":{}}"));
    ae_buf_free(&text);
    /* keywords beside a reference still hold */
    check("{\"$defs\":{\"s\":{\"type\":\"string\"}},\"properties\":{\"a\":{\"$ref\":\"#/$defs/s\",\"enum\":[1,\"x\"]}},"
          "\"required\":[\"a\"],\"type\":\"object\",\"additionalProperties\":false}", false, LIST("{\"a\":\"x\"}"),
          LIST("{\"a\":1}", "{\"a\":\"y\"}"));
}

/* Lists of texts become one tree of bytes: thousands of values are one way to begin, and cost their length. */
static void test_long_enum(void **state)
{
    (void)state;
    ae_buf text = {0};
    aerie_error error = {0};
    ae_grammar *g;
    ae_buf_adds(&text, "{\"enum\":[7,null");
    for (int i = 0; i < 60000; i++) ae_buf_addf(&text, ",\"e%d\"", i % 50000);
    ae_buf_adds(&text, "]}");
    check(text.data, false, LIST("7", "null", "\"e0\"", "\"e49999\"", "\"e100\""),
          LIST("\"e50000\"", "\"e\"", "\"e00\"", "\"f\"", "8"));
    check("{\"enum\":[\"a\",\"ab\",\"\",\"a\\n\",\"b\",\"ab\"]}", false, LIST("\"\"", "\"a\"", "\"ab\"", "\"b\"", "\"a\\n\""),
          LIST("\"abc\"", "\"a", "\"a\n\"", "\"ba\""));
    /* so do numbers, lists and objects; a value may begin another */
    ae_buf_clear(&text);
    for (int i = 0; i < 100000; i++) ae_buf_addf(&text, "%s%d", i ? "," : "{\"enum\":[", i * 7);
    ae_buf_adds(&text, "]}");
    check(text.data, false, LIST("0", "7", "70", "700", "699993"), LIST("1", "71", "-7", "00", "7.0", "700000", "7000000", ""));
    ae_buf_clear(&text);
    for (int i = 0; i < 20000; i++) ae_buf_addf(&text, "%s[%d,{\"k\":%d}]", i ? "," : "{\"enum\":[", i, i);
    ae_buf_adds(&text, "]}");
    check(text.data, false, LIST("[0,{\"k\":0}]", "[ 12, {\n  \"k\": 12 } ]", "[19999,\n {\"k\":19999}]"),
          LIST("[1,{\"k\":2}]", "[1 ,{\"k\":1}]", "[20000,{\"k\":20000}]", "[1"));
    check("{\"enum\":[1,12,12,1.5,[],[1],[[1]],[1,2],{},{\"1\":[]},true,\"\",\"1\"]}", false,
          LIST("1", "12", "1.5", "[ ]", "[1]", "[ [1] ]", "[1, 2]", "{}", "{ \"1\": [] }", "true", "\"\"", "\"1\""),
          LIST("122", "1.", "2", "[12]", "[1,]", "[1,2,]", "{\"1\":[1]}", "\"12\"", "tru"));
    check("{\"enum\":[\"a\",\"b\"],\"const\":\"b\"}", false, LIST("\"b\""), LIST("\"a\""));
    check("{\"allOf\":[{\"enum\":[\"a\",\"b\",1]},{\"enum\":[\"b\",1,2]}]}", false, LIST("\"b\"", "1"), LIST("\"a\"", "2"));
    /* Single values as alternatives become the same tree; other alternatives stay. */
    ae_buf_clear(&text);
    for (int i = 0; i < 20000; i++) ae_buf_addf(&text, "%s{\"const\":\"e%d\",\"title\":\"t\"}", i ? "," : "{\"anyOf\":[", i);
    ae_buf_adds(&text, ",{\"type\":\"integer\"},{\"enum\":[\"x\",null]}]}");
    check(text.data, false, LIST("\"e0\"", "\"e19999\"", "\"x\"", "null", "-17"), LIST("\"e20000\"", "\"e\"", "true", "1.5"));
    ae_buf_clear(&text);
    ae_buf_adds(&text, "{\"type\":\"string\",\"oneOf\":[{\"const\":5}");
    for (int i = 0; i < 5000; i++) ae_buf_addf(&text, ",{\"const\":\"%d\"}", i);
    ae_buf_adds(&text, "]}");
    check(text.data, false, LIST("\"0\"", "\"4999\""), LIST("5", "\"5000\""));
    /* Two lists that hold at once are compared, up to a limit. */
    ae_buf both = {0};
    ae_buf_adds(&both, "{\"allOf\":[");
    for (int k = 0; k < 2; k++) {
        ae_buf_adds(&both, k ? ",{\"enum\":[0" : "{\"enum\":[0");
        for (int i = 0; i < 40000; i++) ae_buf_addf(&both, ",\"%d\"", i);
        ae_buf_adds(&both, "]}");
    }
    ae_buf_adds(&both, "]}");
    assert_int_equal(ae_grammar_from_schema(&g, both.data, both.n, false, &error), AERIE_ERROR_LIMIT);
    assert_non_null(strstr(error.text, "too many to compare"));
    ae_buf_free(&both);
    ae_buf_free(&text);
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"pattern\":\"^[a-z]{2}$\"},\"b\":{\"items\":{\"type\":\"number\","
        "\"minimum\":1.5}},"
        "\"c\":{\"anyOf\":[{\"$ref\":\"#\"},{\"enum\":[\"x\",[1]]}]},\"d\":{\"pattern\":\"^(ab|c)*$\",\"maxLength\":9},"
        "\"e\":{\"items\":{\"enum\":[1,2,3,4,5,6,7,8]},\"uniqueItems\":true},\"f\":{\"multipleOf\":30,\"type\":\"integer\"}},"
        "\"additionalProperties\":{\"maxLength\":3}}";
    for (long n = 1;; n++) {
        aerie_error error = {0};
        ae_grammar *g = NULL;
        fail_alloc_arm(n, false);
        const aerie_status status = ae_grammar_from_schema(&g, schema, sizeof schema - 1, true, &error);
        ae_grammar_free(g);
        const bool failed = fail_alloc_disarm();
        assert_int_equal(fail_alloc_live(), 0);
        if (!failed) {
            assert_int_equal(status, AERIE_OK);
            assert_true(n > 20);
            break;
        }
        assert_int_equal(status, AERIE_ERROR_MEMORY);
        assert_non_null(strstr(error.text, "memory"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spelling), cmocka_unit_test(test_objects),   cmocka_unit_test(test_recursion),
        cmocka_unit_test(test_strings),  cmocka_unit_test(test_numbers),   cmocka_unit_test(test_digits_are_bounded),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_multiples), cmocka_unit_test(test_lengths_beside_pattern), cmocka_unit_test(test_unique),
        cmocka_unit_test(test_large_counts),
        cmocka_unit_test(test_values_of_any_kind),
        cmocka_unit_test(test_tidied),
        cmocka_unit_test(test_passed_over),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_many_references),
        cmocka_unit_test(test_long_enum), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
