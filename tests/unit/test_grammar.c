/* test_grammar.c - GBNF: languages by strings that belong and strings that do not, failures by line and column, limits.
 *
 * The languages are those of llama.cpp's sample grammars (json, arithmetic, chess, list, a C-like language, Japanese),
 * written anew. Every string is also fed in all its prefixes: a prefix of a member must never be refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aerie_extra.h"
#include "fail_alloc.h"
#include "text/grammar/match.h"

static ae_grammar *grammar_of(const char *text)
{
    aerie_error error = {0};
    ae_grammar *g;
    if (ae_grammar_from_gbnf(&g, text, strlen(text), &error) != AERIE_OK) fail_msg("%s\n%s", error.text, text);
    return g;
}

static bool is_member(ae_matcher *m, const char *text, size_t n)
{
    assert_true(ae_matcher_restart(m));
    for (size_t i = 0; i < n; i++)
        if (!ae_matcher_advance(m, text + i, 1)) return false;
    return ae_matcher_may_end(m, m->current);
}

static void check_members(const char *grammar, const char *const *members, const char *const *others)
{
    ae_grammar *g = grammar_of(grammar);
    ae_matcher m;
    assert_int_equal(ae_matcher_init(&m, g, NULL), AERIE_OK);
    for (size_t i = 0; members[i]; i++) {
        const size_t n = strlen(members[i]);
        if (!is_member(&m, members[i], n)) fail_msg("refused: %s", members[i]);
        assert_true(ae_matcher_restart(&m)); /* and in one go */
        assert_true(ae_matcher_advance(&m, members[i], n));
        assert_true(ae_matcher_may_end(&m, m.current));
    }
    for (size_t i = 0; others[i]; i++)
        if (is_member(&m, others[i], strlen(others[i]))) fail_msg("accepted: %s", others[i]);
    ae_matcher_free(&m);
    ae_grammar_free(g);
}

#define LIST(...) (const char *const[]){__VA_ARGS__, NULL}

/* ---- Languages ---------------------------------------------------------------------------------- */

static const char json_grammar[] =
    "# a JSON object\n"
    "root   ::= object\n"
    "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
    "object ::= \"{\" ws ( string \":\" ws value (\",\" ws string \":\" ws value)* )? \"}\" ws\n"
    "array  ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
    "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) )* \"\\\"\" ws\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

static void test_json(void **state)
{
    (void)state;
    check_members(json_grammar,
                  LIST("{}", "{ }", "{\"a\":1}", "{\"a\": [1, 2.5e-3, -0, \"x\\u00e9\\n\", null, true, {}]}",
                       "{\"na\xC3\xAFve\": \"\xF0\x9F\x98\x80\"}", "{\"a\":\n  1,\n \"b\":2}\n", "{\"\":{\"\":{\"\":[[[]]]}}}"),
                  LIST("", "[]", "{", "{\"a\"}", "{\"a\":}", "{\"a\":01}", "{\"a\":1,}", "{\"a\":\"\n\"}", "{\"a\":\"\\x\"}",
                       "{\"a\":tru}", "{}}", "{\"a\":\"\xC3\"}", "{\"a\":\"\xED\xA0\x80\"}", "{\"a\":\"\xC0\x80\"}",
                       "{\"a\":\"\xF4\x90\x80\x80\"}"));
}

static void test_arithmetic(void **state)
{
    (void)state;
    check_members("root  ::= (expr \"=\" ws term \"\\n\")+\n"
                  "expr  ::= term ([-+*/] term)*\n"
                  "term  ::= ident | num | \"(\" ws expr \")\" ws\n"
                  "ident ::= [a-z] [a-z0-9_]* ws\n"
                  "num   ::= [0-9]+ ws\n"
                  "ws    ::= [ \\t\\n]*\n",
                  LIST("1=1\n", "a +b = c\n", "(1+(2*x))/3 = y2\n1-1=0\n"),
                  LIST("1=1", "=1\n", "1+=2\n", "((1)=1\n", "A=1\n", "1=2+3\n"));
}

static void test_chess(void **state)
{
    (void)state;
    check_members("root ::= \"1. \" move \" \" move \"\\n\" ([1-9] [0-9]? \". \" move \" \" move \"\\n\")+\n"
                  "move ::= (pawn | nonpawn | castle) [+#]?\n"
                  "nonpawn ::= [NBKQR] [a-h]? [1-8]? \"x\"? [a-h] [1-8]\n"
                  "pawn ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBKQR])?\n"
                  "castle ::= \"O-O\" \"-O\"?\n",
                  LIST("1. e4 e5\n2. Nf3 Nc6\n", "1. d4 d5\n2. exd5 Qxd5+\n3. O-O O-O-O\n", "1. e4 e5\n17. Nbxd2 e8=Q#\n"),
                  LIST("1. e4 e5\n", "1. e9 e5\n2. d4 d5\n", "2. e4 e5\n2. d4 d5\n", "1. e4 e5\n2. d4\n"));
}

static void test_list(void **state)
{
    (void)state;
    check_members(
        "root ::= item+\n"
        "# Excludes various line break characters\n"
        "item ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"\n",
        LIST("- a\n", "- milk\n- \xC3\xA9ggs\n- \xE6\x9C\xAC\n", "- \xE2\x80\xA7\n", "- \xC2\x86\n"),
        LIST("", "- a", "-a\n", "- \n", "- a\r\n", "- \xE2\x80\xA8\n", "- \xE2\x80\xA9\n", "- \xC2\x85\n", "- \x0b\n"));
}

static void test_c_like(void **state)
{
    (void)state;
    check_members("root ::= (declaration)*\n"
                  "declaration ::= dataType identifier \"(\" parameter? \")\" \"{\" statement* \"}\"\n"
                  "dataType  ::= \"int\" ws | \"float\" ws | \"char\" ws\n"
                  "identifier ::= [a-zA-Z_] [a-zA-Z_0-9]*\n"
                  "parameter ::= dataType identifier\n"
                  "statement ::= ( dataType identifier ws \"=\" ws expression \";\" ) |\n"
                  "    ( identifier ws \"=\" ws expression \";\" ) |\n"
                  "    ( \"return\" ws expression \";\" ) |\n"
                  "    ( \"while\" \"(\" condition \")\" \"{\" statement* \"}\" ) |\n"
                  "    ( \"if\" \"(\" condition \")\" \"{\" statement* \"}\" (\"else\" \"{\" statement* \"}\")? ) |\n"
                  "    ( singleLineComment )\n"
                  "condition ::= expression relationOperator expression\n"
                  "relationOperator ::= (\"<=\" | \"<\" | \"==\" | \"!=\" | \">=\" | \">\")\n"
                  "expression ::= term ((\"+\" | \"-\") term)*\n"
                  "term ::= factor ((\"*\" | \"/\") factor)*\n"
                  "factor ::= identifier | number | \"-\" factor | \"(\" expression \")\"\n"
                  "number ::= [0-9]+\n"
                  "singleLineComment ::= \"//\" [^\\n]* \"\\n\"\n"
                  "ws ::= ([ \\t\\n]+)\n",
                  LIST("", "int main(){}", "int f(char c){int x = 1;return x;}",
                       "int f(){while(a<=-(b+2)*3){if(a==1){x = 2;}else{}}}", "float g(){// note\n}"),
                  LIST("int", "void f(){}", "int f(){x=1;}", "int f(){if(a){}}", "int f(){return ;}", "int f(){"));
}

static void test_japanese(void **state)
{
    (void)state;
    check_members("root ::= jp-char+ ([ \\t\\n] jp-char+)*\n"
                  "jp-char ::= hiragana | katakana | punctuation | cjk\n"
                  "hiragana ::= [\xE3\x81\x81-\xE3\x82\x9F]\n"
                  "katakana ::= [\xE3\x82\xA1-\xE3\x83\xBF]\n"
                  "punctuation ::= [\xE3\x80\x81-\xE3\x80\xBE]\n"
                  "cjk ::= [\xE4\xB8\x80-\xE9\xBF\xBF]\n",
                  LIST("\xE3\x81\x81", "\xE6\x97\xA5\xE6\x9C\xAC \xE3\x82\xAB", "\xE9\xBF\xBF", "\xE3\x80\x82\n\xE3\x81\x82"),
                  LIST("", "a", "\xE6\x97", "\xE6\x97\xA5 ", "\xE3\x82\xA0", "\xEA\x80\x80"));
}

/* ---- The grammars that we install ------------------------------------------------------------------------------------- */

static void check_shared(const char *name, const char *const *members, const char *const *others)
{
    char path[64], text[8192];
    snprintf(path, sizeof path, "share/grammars/%s.gbnf", name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("there is no %s", path);
    const size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    assert_in_range(n, 1, sizeof text - 2);
    text[n] = 0;
    check_members(text, members, others);
}

static void test_shared(void **state)
{
    (void)state;
    check_shared("json",
                 LIST("{}", "[]", "0", "-1.5e+10", "\"\\ud83d\\ude00\"", "{\"a\": [1, 2, {\"b\": null}],\n  \"c\": true\n}",
                      "[\n\t1,\n\t\"\xC3\xA9\\n\"\n]", "false"),
                 LIST("", "{", "01", "1.", "{a: 1}", "{\"a\":1,}", "[1 2]", "\"\\ud83d\"", "\"\n\"", "nul", "{\"a\":1} ",
                      "[1,  2]", "'a'", "+1"));
    check_shared("arithmetic", LIST("1 + 1 = 2\n", "(3 + 4) * 2 = 14\nx = -0.5\n", "2^10 % 7 - -y1 = 2\n", "-(a / 2) = 3\n"),
                 LIST("", "1+1 = 2\n", "1 + 1 = 2", "1 + = 2\n", "1 = x\n", "(1 = 1\n", "01 = 1\n", " = 1\n", "1 = 1\n\n"));
    check_shared("list", LIST("- a\n", "- milk\n- two \xC3\xA9ggs, fresh\n", "- - dash\n"),
                 LIST("", "- a", "-a\n", "- \n", "- a \n", "-  a\n", "* a\n", "- a\r\n", "- a\xE2\x80\xA8\n", "- a\n\n"));
    check_shared("chess",
                 LIST("1. e4 e5 2. Nf3 Nc6 3. Bb5 1/2-1/2", "1. e4 *", "12. exd5 Qxd5+ 13. O-O O-O-O 14. e8=Q# 1-0",
                      "1. Nbd2 R1e2 2. Qa1xb2 g6 0-1", "40. axb8=N *"),
                 LIST("", "1. e4 e5", "1. e9 e5 *", "e4 e5 *", "1. e4 e5 2. *", "1. Pe4 *", "1. e8=K *", "0. e4 *", 
                      "1. e4  e5 *", "1. e4 e5 2-0"));
    check_shared("c",
                 LIST("int main(void)\n{\n}\n",
                      "#include <stdio.h>\nint main(void)\n{\n    printf(\"%d\\n\", 1 + 2);\n    return 0;\n}\n",
                      "const char *name = \"x\";\nint values[3] = {1, 2, 3};\n",
                      "int f(int a, char *b)\n{\n    for (int i = 0; i < a; i++) {\n        b[i] = 'c';\n    }\n"
                      "    if (a == 0) return 1;\n    else return f(a - 1, b);\n}\n",
                      "void g(void)\n{\n    // note\n    while (x->next) x = x->next;\n    do {\n    } while (!done);\n"
                      "    y += sizeof z ? 0x1F : 1.5f;\n}\n"),
                 LIST("", "int main(void)\n{", "int main()\n{\n}\n", "main(void)\n{\n}\n", "int x\n",
                      "#include stdio.h\nint x;\n", "int main(void)\n{\n    return 0\n}\n",
                      "int f(void)\n{\n    if a return;\n}\n", "int 1x;\n", "int x = ;\n"));
}

/* ---- Syntax ------------------------------------------------------------------------------------------ */

static void test_syntax(void **state)
{
    (void)state;
    check_members("root::=\"a\"", LIST("a"), LIST("", "b", "aa"));
    check_members("root ::= | \"x\"", LIST("", "x"), LIST("xx"));
    check_members("root ::= \"\"", LIST(""), LIST("x"));
    check_members("root ::= [a-c-]+", LIST("a-", "-c"), LIST("d", ""));
    check_members("root ::= [^]", LIST("a", "\xF4\x8F\xBF\xBF"), LIST("", "\x80"));
    check_members("root ::= [\\]\\[\\x41-\\u0043\\U0001F600]+", LIST("][ABC\xF0\x9F\x98\x80"), LIST("D", "\xF0\x9F\x98\x81"));
    check_members("root ::= \"\\xe9\\u00e9\\U000000e9\"", LIST("\xC3\xA9\xC3\xA9\xC3\xA9"), LIST("\xE9\xE9\xE9"));
    check_members("root ::= .", LIST("a", "\xC3\xA9", "\n"), LIST("", "ab", "\xC3", "\xED\xA0\x80"));
    check_members("root ::= \"ab\"{2}", LIST("abab"), LIST("ab", "ababab", "abb"));
    check_members("root ::= \"ab\"{2,}", LIST("abab", "abababab"), LIST("ab", "", "ababa"));
    check_members("root ::= (\"a\" | \"bc\"){1,3}", LIST("a", "bca", "abca"), LIST("", "aaaa", "b"));
    check_members("root ::= [a-z]{0,2} \"!\"{0}", LIST("", "a", "ab"), LIST("abc", "a!"));
    check_members("root ::= \"a\"? \"b\"+ # end\n\n# more\n", LIST("b", "ab", "abbb"), LIST("a", "aab"));
    check_members("root ::= (\n  \"a\" # one\n  | \"b\"\n) |\n  \"c\"\r\nx ::= \"y\"\r\n", LIST("a", "b", "c"), LIST("y", ""));
    check_members("root ::= \"a\"\n  | \"b\" # two\n\n# three\n\t| x\r\n | \"d\"\nx ::= \"c\"\n",
                  LIST("a", "b", "c", "d"), LIST("", "ab"));
    check_members("root ::= [a\\-z]+ [\\--/]? [+\\-]", LIST("a-z-", "az.+"), LIST("b-", "a"));
    check_members("root ::= a_b-1\na_b-1 ::= \"q\"", LIST("q"), LIST("a"));
    check_members("root ::= (\"a\"*)* (\"b\"?)+ ((\"c\"*)+)*", LIST("", "aaabcc", "bb", "ac"), LIST("ca", "d"));
    check_members("root ::= x{0,3}\nx ::= \"a\"?", LIST("", "a", "aaa"), LIST("aaaa"));
    /* center and right recursion, ambiguity, a rule that never ends beside one that does */
    check_members("root ::= \"a\" root \"b\" | \"\"", LIST("", "ab", "aaabbb"), LIST("a", "aab", "abb", "ba"));
    check_members("root ::= \"a\" root | \"a\"", LIST("a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), LIST("", "ab"));
    check_members("root ::= (\"a\" | \"aa\" | \"aaa\")+ \"b\"", LIST("ab", "aaaaaaaaaaaaaaaab"), LIST("b", "aa"));
    check_members("root ::= never | \"k\"\nnever ::= \"n\" never", LIST("k"), LIST("n", "nn", ""));
}

static void check_failure(const char *text, size_t n, aerie_status status, const char *part)
{
    aerie_error error = {0};
    ae_grammar *g = (ae_grammar *)&error;
    assert_int_equal(ae_grammar_from_gbnf(&g, text, n, &error), status);
    assert_null(g);
    if (!strstr(error.text, part)) fail_msg("\"%s\" lacks \"%s\"", error.text, part);
    assert_null(strchr(error.text, '\n'));
}

static void test_failures(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "no rule 'root'"},
        {"x ::= \"a\"", "no rule 'root'"},
        {"root ::= a b\na ::= \"x\"", "line 1, column 12: rule 'b' is used, but not defined"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: this rule is defined a second time"},
        {"root ::= root \"a\" | \"b\"", "line 1, column 1: rule 'root' is left-recursive"},
        {"root ::= a\na ::= b? c \"x\"\nb ::= \"b\"\nc ::= \"y\" | a", "line 2, column 1: rule 'a' is left-recursive"},
        {"root ::= a\na ::= (\"x\"* a)?", "rule 'a' is left-recursive"},
        {"root ::= a{2,3}\na ::= b \"x\"\nb ::= a{0,4}", "(a -> b -> a)"},
        {"root ::= \"a", "line 1, column 10: this literal is not closed"},
        {"root ::= \"a\nb\"", "this literal is not closed"},
        {"root ::= [a", "line 1, column 10: this character class is not closed"},
        {"root ::= [z-a]", "column 11: this range runs backwards"},
        {"root ::= (\"a\"", "column 14: a group ends with ), found the end of the text"},
        {"root ::= \"a\" )", "column 14: expected a literal"},
        {"root ::= \"\\q\"", "column 11: an unknown escape"},
        {"root ::= \"\\x4\"", "\\x takes 2 hex digits, found '\"'"},
        {"root ::= \"\\ud800\"", "not the number of a character"},
        {"root ::= \"\\U00110000\"", "not the number of a character"},
        {"root ::= \"\\", "an escape needs a character"},
        {"root ::= *", "nothing before this to repeat"},
        {"root ::= \"a\"{}", "a repetition is {m}"},
        {"root ::= \"a\"{2", "a repetition is {m}"},
        {"root ::= \"a\"{3,2}", "maximum is less than its minimum"},
        {"root ::= \"a\"{99999999999999999999}", "exceeds the limit"},
        {"root ::= <think>", "references to tokens"},
        {"root := \"a\"", "expected ::="},
        {"::= \"a\"", "a rule begins with its name"},
        {"root ::= \"\xFF\"", "not UTF-8, found byte 0xff"},
        {"root ::= \"\xC3\xA9\xC3\xA9\" \"\xFF", "column 16: this is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_failure(cases[i].text, strlen(cases[i].text), AERIE_ERROR_FORMAT, cases[i].part);
}

static char *repeated(const char *before, const char *part, size_t count, const char *after, size_t *n)
{
    const size_t a = strlen(before), k = strlen(part), z = strlen(after);
    char *text = malloc(a + k * count + z + 1);
    assert_non_null(text);
    memcpy(text, before, a);
    for (size_t i = 0; i < count; i++) memcpy(text + a + i * k, part, k);
    memcpy(text + a + k * count, after, z + 1);
    *n = a + k * count + z;
    return text;
}

static void test_limits(void **state)
{
    (void)state;
    size_t n;
    char *text = repeated("root ::= ", "(", 60000, "", &n);
    check_failure(text, n, AERIE_ERROR_FORMAT, "column 138: groups are nested deeper than 128");
    free(text);
    text = repeated("root ::= ", "(\"a\"", 129, "", &n);
    check_failure(text, n, AERIE_ERROR_FORMAT, "nested deeper than 128");
    free(text);
    text = repeated("root ::= \"", "a", 1 << 20, "\"", &n);
    check_failure(text, n, AERIE_ERROR_LIMIT, "bytes; 1048576 are possible");
    free(text);
    text = repeated("root ::= ", "\"a\"{1000} ", 3000, "", &n);
    check_failure(text, n, AERIE_ERROR_LIMIT, "too large: it needs more than 1048576");
    free(text);
    static const char large[] = "root ::= ((\"ab\"{1000}){1000}){1000} x{1000000}\nx ::= \"\"";
    check_failure(large, sizeof large - 1, AERIE_ERROR_LIMIT, "too large");
    text = malloc(70000 * 24);
    n = 0;
    for (int i = 0; i < 70000; i++) n += (size_t)sprintf(text + n, "%x::=%x\n", i, i + 1);
    check_failure(text, n < 1 << 20 ? n : 1 << 20, AERIE_ERROR_LIMIT, "rules");
    free(text);
}

/* More ways at once than a state may have: the matcher refuses the byte, reports it and keeps working. */
static void test_ambiguity(void **state)
{
    (void)state;
    ae_buf text = {0};
    ae_buf_adds(&text, "root ::= \"x\" r0 | \"ok\"\n");
    for (int i = 0; i < 20; i++) ae_buf_addf(&text, "r%d ::= r%d \"a\" | r%d \"b\"\n", i, i + 1, i + 1);
    ae_buf_adds(&text, "r20 ::= \"c\"\n");
    ae_grammar *g = grammar_of(text.data);
    ae_matcher m;
    assert_int_equal(ae_matcher_init(&m, g, NULL), AERIE_OK);
    assert_false(ae_matcher_advance(&m, "x", 1));
    assert_true(m.limit_hit);
    assert_true(ae_matcher_advance(&m, "ok", 2));
    assert_true(ae_matcher_is_complete(&m, m.current));
    ae_matcher_free(&m);
    ae_grammar_free(g);
    ae_buf_free(&text);
}

/* Too many ways at the beginning are reported before anything is matched; if they come after a byte, matching starts. */
/* ---- Lazy grammars ------------------------------------------------------------------------------ */

static void check_lazy_failure(const aerie_lazy_params *p, aerie_status status, const char *part)
{
    ae_grammar *g;
    aerie_error error = {0};
    assert_int_equal(ae_grammar_lazy(&g, p, &error), status);
    assert_null(g);
    if (!strstr(error.text, part)) fail_msg("%s", error.text);
}

static void test_lazy_with_a_rest(void **state)
{
    (void)state;
    static const char *const triggers[] = {"<call>"};
    static const struct {
        const char *text;
        bool fits;
    } texts[] = {{"12", true}, {"\n\n12", true}, {"     12", false}, {"", false}, {"free", false}, {"12x", false},
                 {"<call>x", true}, {"\n<call>x\n<call>y", true}, {"<call>x12", false}, {"<call>x\n", false},
                 {"12<call>x", false}};
    ae_grammar *digits = grammar_of("root ::= [0-9]+"), *letter = grammar_of("root ::= [a-z]"), *g;
    const aerie_grammar_part part = {"", 0, letter};
    for (int kind = 0; kind < 6; kind++) { /* with calls or not; no reasoning, it is open, it may come */
        static const char *const before[] = {"", "r<t>1<call>x</t>", "<t>r</t>"};
        aerie_lazy_params p = {.size = sizeof p, .rest = digits};
        const bool calls = kind % 2;
        if (calls) p.triggers = triggers, p.n_triggers = 1, p.parts = &part, p.n_parts = 1;
        if (kind >= 2) p.open = "<t>", p.close = "</t>", p.opened = kind < 4;
        assert_int_equal(ae_grammar_lazy(&g, &p, NULL), AERIE_OK);
        ae_matcher m;
        assert_int_equal(ae_matcher_init(&m, g, NULL), AERIE_OK);
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            char text[64];
            snprintf(text, sizeof text, "%s%s", before[kind / 2], texts[i].text);
            const bool fits = texts[i].fits && (calls || !strstr(texts[i].text, "<call>"));
            if (is_member(&m, text, strlen(text)) != fits) fail_msg("kind %d: %s", kind, text);
            if (kind >= 4 && is_member(&m, texts[i].text, strlen(texts[i].text)) != fits) fail_msg("%s", texts[i].text);
            if (kind / 2 == 1 && is_member(&m, texts[i].text, strlen(texts[i].text))) fail_msg("not closed: %s", texts[i].text);
        }
        ae_matcher_free(&m);
        ae_grammar_free(g);
    }
    ae_grammar_free(digits);
    ae_grammar_free(letter);
}

static void test_lazy(void **state)
{
    (void)state;
    static const char *const triggers[] = {"<call>", "<<a"};
    static char long_text[3000];
    ae_grammar *digits = grammar_of("root ::= \"{\" [0-9]+ \"}\""), *letter = grammar_of("root ::= [a-z]"), *g;
    const aerie_grammar_part parts[] = {{"\n", 1, digits}, {"", 0, digits}, {"x=", 2, letter}};
    aerie_lazy_params p = aerie_lazy_params_default();
    p.triggers = triggers;
    p.n_triggers = 2;
    p.parts = parts;
    p.n_parts = 3;
    p.open = "<t>";
    p.close = "</t>";
    for (int opened = 0; opened < 2; opened++) {
        static const char *const in[] = {
            "",        "free {x",  "<call",      "<cal<call>{1}", "a<call>\n{12}b<call>x=q<<a{3} <",
            "<<<a{0}", "\x80\xc3", "<t><call>{", "<t><call></t>", "<t></t><call>{7}<t><<a",
            NULL};
        static const char *const out[] = {"<call>", "<call>{}", "<call>\n", "a<call> {1}", "<<a{1", "<<<ax", "<call>x=",
                                          "<t></t><call>", "<t></t></t><call>y", NULL};
        p.opened = opened;
        assert_int_equal(ae_grammar_lazy(&g, &p, NULL), AERIE_OK);
        ae_matcher m;
        assert_int_equal(ae_matcher_init(&m, g, NULL), AERIE_OK);
        for (size_t i = 0; in[i]; i++) {
            char text[64];
            snprintf(text, sizeof text, "%s%s", opened ? "r<call>{</t>" : "", in[i]);
            if (!is_member(&m, text, strlen(text))) fail_msg("refused: %s", text);
        }
        for (size_t i = 0; out[i]; i++) {
            char text[64];
            snprintf(text, sizeof text, "%s%s", opened ? "r<call>{</t>" : "", out[i]);
            if (is_member(&m, text, strlen(text))) fail_msg("accepted: %s", text);
        }
        ae_matcher_free(&m);
        ae_grammar_free(g);
    }
    p.n_parts = 0;
    check_lazy_failure(&p, AERIE_ERROR_ARGUMENT, "needs triggers and parts");
    p.n_parts = 3;
    p.close = NULL;
    check_lazy_failure(&p, AERIE_ERROR_ARGUMENT, "both NULL");
    p.open = NULL;
    p.opened = true;
    check_lazy_failure(&p, AERIE_ERROR_ARGUMENT, "both NULL");
    p.opened = false;
    p.triggers = (const char *const[]){"a", ""};
    check_lazy_failure(&p, AERIE_ERROR_ARGUMENT, "trigger 1 of a lazy grammar is empty");
    memset(long_text, 'a', sizeof long_text - 1);
    p.triggers = (const char *const[]){"a", long_text};
    check_lazy_failure(&p, AERIE_ERROR_LIMIT, "2048 bytes");
    p.triggers = triggers;
    p.parts = &(aerie_grammar_part){"x", 1, NULL};
    p.n_parts = 1;
    check_lazy_failure(&p, AERIE_ERROR_ARGUMENT, "part 0");
    ae_grammar_free(digits);
    ae_grammar_free(letter);
}

static void test_start(void **state)
{
    (void)state;
    ae_buf text = {0};
    for (int k = 0; k < 2; k++) {
        aerie_error error = {0};
        ae_buf_clear(&text);
        ae_buf_adds(&text, k ? "root ::= \"x\" all\nall ::= \"a\"" : "root ::= \"a\"");
        for (int i = 0; i < 5000; i++) ae_buf_addf(&text, " | \"a%d\"", i);
        ae_grammar *g = grammar_of(text.data);
        assert_int_equal(ae_grammar_check_start(g, &error), k ? AERIE_OK : AERIE_ERROR_LIMIT);
        if (!k) assert_non_null(strstr(error.text, "more than 4096 ways at once"));
        ae_grammar_free(g);
    }
    ae_buf_free(&text);
}

/* ---- States --------------------------------------------------------------------------------------------- */

/* A text leads to the same state whatever was matched before, even if the memory for states ran out meanwhile. */
static void test_states(void **state)
{
    (void)state;
    ae_grammar *g = grammar_of(json_grammar);
    ae_matcher m;
    assert_int_equal(ae_matcher_init(&m, g, NULL), AERIE_OK);
    const ae_gstate begin = m.current;
    assert_true(ae_matcher_advance(&m, "{\"a\":[1", 7));
    const ae_gstate here = m.current;
    /* exploring changes nothing */
    ae_gstate s = here;
    for (const char *p = ",{\"x\":\"y\"}]"; *p; p++) s = ae_matcher_step(&m, s, (uint8_t)*p);
    assert_true(s >= AE_GSTATE_FIRST);
    assert_int_equal(ae_matcher_step(&m, here, '}'), AE_GSTATE_DEAD);
    assert_int_equal(m.current, here);
    assert_false(ae_matcher_advance(&m, ",}", 2));
    assert_int_equal(m.current, here);
    /* inside of a string nothing new is met */
    assert_true(ae_matcher_advance(&m, ",\"", 2));
    const ae_gstate inside = m.current;
    assert_true(ae_matcher_advance(&m, "lorem \xC3\xA9", 8));
    assert_int_equal(m.current, inside);
    ae_matcher_flush(&m);
    assert_true(ae_matcher_advance(&m, "\"]}", 3));
    assert_true(ae_matcher_may_end(&m, m.current));
    assert_true(ae_matcher_restart(&m));
    assert_true(m.current != begin || m.generation);
    /* deep: stacks fill the memory, and there are more of them than fit */
    assert_true(ae_matcher_advance(&m, "{\"a\":", 5));
    size_t depth = 0;
    while (depth < 200000 && ae_matcher_advance(&m, "[", 1)) depth++;
    assert_in_range(depth, 20000, 70000);
    assert_true(m.limit_hit);
    for (size_t i = 0; i < depth; i++) assert_true(ae_matcher_advance(&m, "]", 1));
    assert_true(ae_matcher_advance(&m, "}", 1));
    assert_true(ae_matcher_may_end(&m, m.current));
    ae_matcher_free(&m);
    ae_grammar_free(g);
}

static void test_forced(void **state)
{
    (void)state;
    ae_grammar *g = grammar_of("root ::= \"abc\" [0-9] (\"x\" | \"y\") \"z\"?");
    ae_matcher m;
    assert_int_equal(ae_matcher_init(&m, g, NULL), AERIE_OK);
    for (const char *p = "abc"; *p; p++) {
        assert_int_equal(ae_matcher_forced_byte(&m, m.current), *p);
        assert_true(ae_matcher_advance(&m, p, 1));
    }
    assert_int_equal(ae_matcher_forced_byte(&m, m.current), -1);
    assert_true(ae_matcher_advance(&m, "5", 1));
    assert_int_equal(ae_matcher_forced_byte(&m, m.current), -1);
    assert_true(ae_matcher_advance(&m, "x", 1));
    assert_int_equal(ae_matcher_forced_byte(&m, m.current), -1); /* it may end */
    assert_false(ae_matcher_is_complete(&m, m.current));
    assert_true(ae_matcher_advance(&m, "z", 1));
    assert_true(ae_matcher_is_complete(&m, m.current));
    ae_matcher_free(&m);
    ae_grammar_free(g);
}

static void test_no_memory(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        aerie_error error = {0};
        ae_grammar *g = NULL;
        ae_matcher m = {0};
        fail_alloc_arm(n, false);
        aerie_status status = ae_grammar_from_gbnf(&g, json_grammar, sizeof json_grammar - 1, &error);
        if (status == AERIE_OK) status = ae_matcher_init(&m, g, &error);
        ae_matcher_free(&m);
        ae_grammar_free(g);
        const bool failed = fail_alloc_disarm();
        assert_int_equal(fail_alloc_live(), 0);
        if (!failed) {
            assert_int_equal(status, AERIE_OK);
            assert_true(n > 5);
            break;
        }
        assert_int_equal(status, AERIE_ERROR_MEMORY);
        assert_non_null(strstr(error.text, "memory"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),     cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_chess),
        cmocka_unit_test(test_list),     cmocka_unit_test(test_c_like),     cmocka_unit_test(test_japanese),
        cmocka_unit_test(test_syntax),   cmocka_unit_test(test_failures),   cmocka_unit_test(test_limits),
        cmocka_unit_test(test_ambiguity), cmocka_unit_test(test_states),    cmocka_unit_test(test_forced),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_start), cmocka_unit_test(test_lazy),
        cmocka_unit_test(test_lazy_with_a_rest),
        cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
