/* test_answer.c - the parser of answers: every format, cut in every way and cut off everywhere; how templates are recognised;
 * how calls are forced.
 *
 * Events as the rig writes them: R{reasoning} C{content} name A{arguments} . (complete) or ... (not).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <time.h>

#include "aerie.h"
#include "answer_rig.inc"
#include "every.h"

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"tags\":{\"type\":\"array\"},\"note\":{}},"
    "\"required\":[\"city\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"put\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"any\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},\"one\":{\"oneOf\":[{\"$ref\":\"#/$defs/Z\"}]},"
    "\"list\":{\"type\":[\"string\",\"null\"]},\"ref\":{\"$ref\":\"#/$defs/Z\"},\"const\":{\"const\":\"1\"},"
    "\"all\":{\"allOf\":[{},{\"$ref\":\"#/$defs/Z\"}]},\"enum\":{\"enum\":[\"1\",\"2\"]},"
    "\"mixed\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]},\"number\":{\"type\":[\"number\",\"null\"]},"
    "\"items\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},\"additionalProperties\":{\"type\":\"string\"},"
    "\"$defs\":{\"Z\":{\"type\":\"string\"}}}}}]";

typedef enum mode { AS_IS, KEEP, NO_TOOLS } mode; /* KEEP: reasoning_format "none" */

typedef struct example {
    mode mode;
    const char *format, *tags, *prompt, *text, *events;
} example;

#define CITY "A{{\"city\":\"Paris\"}} ."

static const example examples[] = {
    {AS_IS, "plain", NULL, "", "Hello <tool_call> {\"name\": \"x\"} \xc3\xa9 \n", "C{Hello <tool_call> {\"name\": "
     "\"x\"} \xc3\xa9 \n}"},
    {AS_IS, "plain", NULL, "", "", ""},
    {AS_IS, "plain", NULL, "", " \n", "C{ \n}"},
    {AS_IS, "plain", "think", "", "<think>\nhm\n</think>\n\nYes. ", "R{hm} C{Yes. }"},
    {AS_IS, "plain", "think", "", "\n<think>a</think>", "R{a}"},
    {AS_IS, "plain", "think", "", "<think></think>\n", ""},
    {AS_IS, "plain", "think", "<|im_start|>assistant\n<think>\n", "hm < </thin </think>\n\nYes", "R{hm < </thin} C{Yes}"},
    {AS_IS, "plain", "think", "<think>\n", "cut in though", "R{cut in though}"},
    {AS_IS, "plain", "think", "", "The tag <think> opens.</think>", "C{The tag <think> opens.</think>}"},
    {KEEP, "plain", "think", "", "<think>\nhm\n</think>\n\nYes", "C{<think>\nhm\n</think>\n\nYes}"},
    {KEEP, "plain", "think", "<think>", "hm</think> Yes", "C{hm</think> Yes}"},
    {AS_IS, "plain", "think-brackets", "", "[THINK]a[/THINK]b", "R{a} C{b}"},
    {AS_IS, "plain", "seed", "", "<seed:think>a</seed:think>b", "R{a} C{b}"},
    {AS_IS, "plain", "gemma", "", "<|channel>thought\na\n<channel|>b", "R{a} C{b}"},
    {AS_IS, "plain", "command-r", "", "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>b<|END_RESPONSE|>", "R{a} C{b}"},
    {AS_IS, "plain", "granite", "", "<think>a</think><response>b</response>", "R{a} C{b}"},

    {AS_IS, "hermes", NULL, "", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\":\"Paris\"}}\n</tool_call>",
     "get_weather " CITY},
    {AS_IS, "hermes", "think", "", "<think>\nx\n</think>\n\nOn it.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
     "{\"city\":\"Paris\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n",
     "R{x} C{On it.} get_weather " CITY " now A{{}} ."},
    {AS_IS, "hermes", "think", "<think>", "I could <tool_call>\n</think><tool_call>{\"name\":\"now\"}</tool_call>",
     "R{I could <tool_call>} now A{{}} ."},
    {AS_IS, "hermes", NULL, "", "<tool_call>{\"arguments\": {\"city\":\"Paris\"}, \"name\": \"get_weather\"}</tool_call>",
     "get_weather " CITY},
    {AS_IS, "hermes", NULL, "", "<tool_call>{\"type\":\"function\",\"function\":{\"name\":\"now\",\"arguments\":{"
     "}}}</tool_call>!",
     "now A{{}} . C{!}"},
    {AS_IS, "hermes", NULL, "", "<tool_call>{\"name\": \"get_weather\", \"arguments\": \"{"
     "\\\"city\\\":\\\"Paris\\\"}\"}</tool_call>",
     "get_weather " CITY},
    {AS_IS, "hermes", NULL, "", "<tool_call>[{\"name\":\"now\",\"arguments\":{}}, {\"name\":\"now\",\"arguments\":{"
     "\"a\":[1, true]}}]"
     "</tool_call>", "now A{{}} . now A{{\"a\":[1, true]}} ."},
    {AS_IS, "hermes", NULL, "", "Use <tool_call> tags, <tool_call>\n{name} or <tool_call>{\"x\": <tool_call>{"
     "\"name\":\"now\"}</tool_call>",
     "C{Use <tool_call> tags, <tool_call>\n{name} or <tool_call>{\"x\": } now A{{}} ."},
    {AS_IS, "hermes", NULL, "", "<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Pa\nris\\q\\u00e9\"}}",
     "get_weather A{{\"city\":\"Pa\\nris\\\\q\\u00e9\"}} ."},
    {AS_IS, "hermes", NULL, "", "<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Pari",
     "get_weather A{{\"city\":\"Pari\"}} ..."},
    {AS_IS, "hermes", NULL, "", "<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"days\":1x, no}}</tool_call> more",
     "get_weather A{{\"days\":1}} ... C{x, no}}</tool_call> more}"},
    {AS_IS, "hermes", NULL, "", "Wait \n<tool_call>\n{\"na", "C{Wait \n<tool_call>\n{\"na}"},
    {NO_TOOLS, "hermes", NULL, "", "<tool_call>{\"name\": \"now\"}</tool_call>", "C{<tool_call>{\"name\": "
     "\"now\"}</tool_call>}"},

    {AS_IS, "qwen3-coder", "think", "<think>\n", "plan\n</think>\n\n<tool_call>\n<function=get_weather>"
     "\n<parameter=city>\nParis\n"
     "</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=tags>\n[\"a\", True]\n</parameter>\n</function>"
     "\n</tool_call>",
     "R{plan} get_weather A{{\"city\":\"Paris\",\"days\":3,\"tags\":[\"a\",true]}} ."},
    {AS_IS, "qwen3-coder", NULL, "", "<function=get_weather>\n<parameter=city>\nline 1\n\n\"2\" <b>\n</parameter>"
     "\n<parameter=note>\n"
     "not json: {\n</parameter>\n</function></tool_call>done",
     "get_weather A{{\"city\":\"line 1\\n\\n\\\"2\\\" <b>\",\"note\":\"not json: {\"}} . C{done}"},
    {AS_IS, "qwen3-coder", NULL, "", "<tool_call>\n<function=now>\n</function>\n</tool_call>", "now A{{}} ."},
    {AS_IS, "qwen3-coder", NULL, "", "<tool_call>\n<function=get_weather>\n<parameter=city>\n</parameter>\n</function>"
     "\n</tool_call>",
     "get_weather A{{\"city\":\"\"}} ."},
    {AS_IS, "qwen3-coder", NULL, "", "<tool_call>\n<function=get_weather>\n<parameter=days>\n12",
     "get_weather A{{}} ... C{<parameter=days>\n12}"},
    {AS_IS, "qwen3-coder", NULL, "", "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>", "now A{{}} ."},

    {AS_IS, "glm", "think", "", "<think>a</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>"
     "Paris</arg_value>\n"
     "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
     "R{a} get_weather A{{\"city\":\"Paris\",\"days\":2}} . now A{{}} ."},
    {AS_IS, "glm", NULL, "", "<tool_call>now</tool_call>", "now A{{}} ."},
    {AS_IS, "glm", NULL, "", "<tool_call> is a tag\n of GLM", "C{<tool_call> is a tag\n of GLM}"},

    {AS_IS, "minimax", "think", "<think>\n", "a\n</think>\n<minimax:tool_call>\n<invoke name=\"get_weather\">"
     "\n<parameter name=\"city\">"
     "Paris</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
     "R{a} get_weather " CITY " now A{{}} ."},
    {AS_IS, "deepseek-dsml", "think", "", "Ok\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">"
     "\n<｜DSML｜parameter "
     "name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n<｜DSML｜parameter name=\"note\" string=\"true\">"
     "12</｜DSML｜parameter>\n"
     "<｜DSML｜parameter name=\"days\" string=\"false\">12</｜DSML｜parameter>\n</｜DSML｜invoke>"
     "\n</｜DSML｜function_calls>",
     "C{Ok} get_weather A{{\"city\":\"Paris\",\"note\":\"12\",\"days\":12}} ."},
    {AS_IS, "seed", "seed", "", "<seed:think>a</seed:think><seed:tool_call>\n<function=get_weather>\n<parameter=city>"
     "Paris</parameter>\n"
     "</function>\n</seed:tool_call>", "R{a} get_weather " CITY},

    {AS_IS, "deepseek", "think", "<think>\n", "a</think>Ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
     "function<｜tool▁sep｜>get_weather\n```json\n"
     "{\"city\":\"Paris\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{"
     "}\n```<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>", "R{a} C{Ok} get_weather " CITY " now A{{}} ."},
    {AS_IS, "deepseek", "think", "<think>", "a<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{"
     "}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "R{a} now A{{}} ."},
    {AS_IS, "kimi", "think", "", "<think>a</think>Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
     "<|tool_call_argument_begin|>{\"city\":\"Paris\"}<|tool_call_end|><|tool_call_begin|>now<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>", "R{a} C{Ok} get_weather " CITY " now A{{}} ."},

    {AS_IS, "mistral", NULL, "", "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\":\"Paris\"}, \"id\": "
     "\"abcdefghi\"}, "
     "{\"name\": \"now\", \"arguments\": {}}]", "get_weather " CITY " now A{{}} ."},
    {AS_IS, "mistral", "think-brackets", "", "[THINK]a[/THINK]Ok[TOOL_CALLS]get_weather[ARGS]{"
     "\"city\":\"Paris\"}[TOOL_CALLS]now[CALL_ID]"
     "123456789[ARGS]{}", "R{a} C{Ok} get_weather " CITY " now A{{}} ."},
    {AS_IS, "mistral", NULL, "", "[TOOL_CALLS]now{}", "now A{{}} ."},
    {AS_IS, "mistral", NULL, "", "[TOOL_CALLS]get_weather[ARGS]", "get_weather A{{}} ."},

    {AS_IS, "llama3", NULL, "", "{\"name\": \"get_weather\", \"parameters\": {\"city\":\"Paris\"}}", "get_weather " CITY},
    {AS_IS, "llama3", NULL, "", "\n<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\":\"Paris\"}}; {"
     "\"name\": \"now\", "
     "\"parameters\": {}}", "get_weather " CITY " now A{{}} ."},
    {AS_IS, "llama3", NULL, "", "<|python_tag|>get_weather.call(city=\"Paris\")", "get_weather " CITY},
    {AS_IS, "llama3", NULL, "", "{\"answer\": 42, \"name\": \"now\"}", "C{{\"answer\": 42, \"name\": \"now\"}}"},
    {AS_IS, "llama3", NULL, "", "{\"name\": \"Bob\", \"parameters\": {}}", "C{{\"name\": \"Bob\", \"parameters\": {}}}"},
    {AS_IS, "llama3", NULL, "", "Yes {\"name\": \"now\", \"parameters\": {}}", "C{Yes {\"name\": \"now\", "
     "\"parameters\": {}}}"},
    {AS_IS, "llama3", NULL, "", "{{{[[[", "C{{{{[[[}"},
    {AS_IS, "functionary", NULL, "", "Ok <function=get_weather>{\"city\":\"Paris\"}</function><function=now>{}</function>",
     "C{Ok} get_weather " CITY " now A{{}} ."},

    {AS_IS, "gemma4", "gemma", "", "<|channel>thought\nx<channel|>Ok<|tool_call>call:get_weather{city:<|\"|>"
     "Pa\"r<|is<|\"|>,days:-1.5e3,"
     "note:{a:[true,<|\"|>b<|\"|>],c:null}}<tool_call|><|tool_call>call:now{}<tool_call|>",
     "R{x} C{Ok} get_weather A{{\"city\":\"Pa\\\"r<|is\",\"days\":-1.5e3,\"note\":{\"a\":[true,\"b\"],\"c\":null}}} . "
     "now A{{}} ."},
    {AS_IS, "functiongemma", NULL, "", "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>",
     "get_weather " CITY},
    {AS_IS, "tool_code", NULL, "", "Sure.\n```tool_code\nprint(get_weather(city='Pa\"ris', days=2))\n```\nDone",
     "C{Sure.} get_weather A{{\"city\":\"Pa\\\"ris\",\"days\":2}} . C{)\n```\nDone}"},
    {AS_IS, "tool_code", NULL, "", "```tool_code\nget_weather(\"Paris\", 2, tags=[(1, 'x'), {'k': None},])\n```",
     "get_weather A{{\"city\":\"Paris\",\"days\":2,\"tags\":[[1,\"x\"],{\"k\":null}]}} ."},
    {AS_IS, "lfm2", NULL, "", "<|tool_call_start|>[get_weather(city=\"Paris\"), now()]<|tool_call_end|>Wait.",
     "get_weather " CITY " now A{{}} . C{Wait.}"},
    {AS_IS, "pythonic", NULL, "", "[get_weather(city='Paris'), now()]", "get_weather " CITY " now A{{}} ."},
    {AS_IS, "pythonic", NULL, "", "[1] is a source", "C{[1] is a source}"},
    {AS_IS, "pythonic", NULL, "", "{\"a\": 1}", "C{{\"a\": 1}}"},

    {AS_IS, "apertus", "apertus", "", "<|inner_prefix|>a<|tools_prefix|>[{\"get_weather\": {\"city\":\"Paris\"}}, {"
     "\"now\": {}}]"
     "<|tools_suffix|>", "R{a} get_weather " CITY " now A{{}} ."},
    {AS_IS, "command-r7b", "command-r", "", "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n    {"
     "\"tool_call_id\": \"0\", "
     "\"tool_name\": \"get_weather\", \"parameters\": {\"city\":\"Paris\"}}\n]<|END_ACTION|>", "R{a} get_weather " CITY},
    {AS_IS, "command-r", NULL, "", "Action:\n```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        "
     "\"parameters\": "
     "{\"city\":\"Paris\"}\n    }\n]```\n", "get_weather " CITY},
    {AS_IS, "functools", NULL, "", "functools[{\"name\": \"get_weather\", \"arguments\": {\"city\":\"Paris\"}}, "
     "{\"name\": \"now\", \"arguments\": {}}]", "get_weather " CITY " now A{{}} ."},
    {AS_IS, "functools", NULL, "", "import functools\nfunctools.reduce(f, x)", "C{import functools\nfunctools.reduce(f, x)}"},
    {AS_IS, "granite", "think", "", "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {"
     "\"city\":\"Paris\"}}]", "get_weather " CITY},
    {AS_IS, "nemotron", NULL, "", "<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>", "now A{{}} ."},
    {AS_IS, "generic", NULL, "", "{\"name\": \"now\", \"arguments\": {}}", "now A{{}} ."},

    {AS_IS, "harmony", "harmony", "", "<|channel|>analysis<|message|>Think. <|end|><|start|>assistant<|channel|>"
     "final<|message|>Hi!<|return|>",
     "R{Think. } C{Hi!}"},
    {AS_IS, "harmony", "harmony", "", "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.get_weather "
     "<|constrain|>json<|message|>{\"city\":\"Paris\"}<|call|>", "R{x} get_weather " CITY},
    {AS_IS, "harmony", "harmony", "", "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant "
     "to=functions.now<|channel|>"
     "commentary json<|message|>{}", "C{Let me see.} now A{{}} ."},
    {AS_IS, "harmony", "harmony", "", "<|channel|>final <|constrain|>json<|message|>{\"a\":1}<|retu", "C{{\"a\":1}<|retu}"},
    {AS_IS, "harmony", "harmony", "", "No header at all", "C{No header at all}"},
    {KEEP, "harmony", "harmony", "", "<|channel|>analysis<|message|>x<|end|><|channel|>final<|message|>y",
     "C{<|channel|>analysis<|message|>x<|end|>y}"},
    {AS_IS, "harmony", "harmony", "", "<|channel|>ana", "C{<|channel|>ana}"},
#include "answer_examples.inc"
};

#define N_EXAMPLES (sizeof examples / sizeof *examples)

static json_t *all_tools;

static answer_params params_of(const example *e)
{
    answer_params params = {.keep_reasoning = e->mode == KEEP, .tools = e->mode == NO_TOOLS ? NULL : all_tools,
                            .prompt = e->prompt, .n_prompt = strlen(e->prompt), .id_seed = 7};
    params.style.format = answer_format_named(e->format);
    params.style.tags = e->tags ? answer_tags_named(e->tags) : NULL;
    assert_non_null(params.style.format);
    assert_true(!e->tags || params.style.tags);
    return params;
}

static void check(const example *e, size_t n, const size_t *cuts, size_t n_cuts, const char *events)
{
    seen s = seen_parse(params_of(e), e->text, n, cuts, n_cuts);
    if (s.bad || strcmp(s.text, events) != 0) {
        print_error("%s: %.*s\ncut into %zu, first at %zu\nexpected %s\ngot      %s\n", e->format, (int)n, e->text, n_cuts + 1,
                    n_cuts ? cuts[0] : 0, events, s.text);
        fail();
    }
    free(s.text);
}

static void test_examples(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_EXAMPLES; i++) check(&examples[i], strlen(examples[i].text), NULL, 0, examples[i].events);
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* The events are the same in two pieces cut anywhere, byte by byte, and in random pieces. */
static void check_cuts(const example *e, size_t n, const char *events, uint64_t *random)
{
    size_t cuts[1024];
    assert_true(n < 1024);
    for (size_t at = 0; at <= n; at++) check(e, n, &at, 1, events);
    for (size_t i = 0; i < n; i++) cuts[i] = i;
    check(e, n, cuts, n, events);
    for (int round = 0; round < 10; round++) {
        size_t n_cuts = 0;
        for (size_t i = 0; i < n; i++)
            if (next_random(random) % 6 == 0) cuts[n_cuts++] = i;
        check(e, n, cuts, n_cuts, events);
    }
}

static void test_cuts(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (size_t i = 0; i < N_EXAMPLES; i++) check_cuts(&examples[i], strlen(examples[i].text), examples[i].events, &random);
}

/* A text cut off anywhere gives the same events however it is then cut into pieces. Without tags of reasoning, a text in which
 * no call begins is reported unchanged. */
static void test_cut_off(void **state)
{
    (void)state;
    uint64_t random = 2;
    for (size_t i = 0; i < N_EXAMPLES; i += (size_t)test_every()) {
        const example *e = &examples[i];
        for (size_t n = 0; n < strlen(e->text); n++) {
            seen whole = seen_parse(params_of(e), e->text, n, NULL, 0);
            assert_false(whole.bad);
            if (n && !e->tags && !whole.n_calls &&
                (whole.n != n + 3 || memcmp(whole.text + 2, e->text, n) != 0 || memcmp(whole.text, "C{", 2) != 0))
                fail_msg("%s: %.*s\nbecame %s", e->format, (int)n, e->text, whole.text);
            size_t cuts[3] = {next_random(&random) % (n + 1)};
            check(e, n, cuts, 1, whole.text);
            if (n >= 3) {
                for (size_t k = 0; k < 3; k++) cuts[k] = n - 3 + k;
                check(e, n, cuts, 3, whole.text);
            }
            free(whole.text);
        }
    }
}

typedef struct ids {
    char all[4][64];
    size_t n;
} ids;

static bool keep_id(void *user, const answer_event *e)
{
    ids *seen_ids = user;
    if (e->kind == ANSWER_CALL) strcpy(seen_ids->all[seen_ids->n++], e->id);
    return true;
}

static ids ids_of(const char *format, const char *text, uint64_t seed)
{
    ids all = {.n = 0};
    answer_params params = {.tools = all_tools, .id_seed = seed, .sink = keep_id, .user = &all};
    params.style.format = answer_format_named(format);
    answer_parser *parser = answer_create(&params);
    assert_true(answer_feed(parser, text, strlen(text)) && answer_end(parser, false));
    answer_free(parser);
    return all;
}

static void test_ids(void **state)
{
    (void)state;
    const char *two = "<tool_call>{\"name\":\"now\"}</tool_call><tool_call>{\"name\":\"now\"}</tool_call>";
    const ids a = ids_of("hermes", two, 1), b = ids_of("hermes", two, 1), c = ids_of("hermes", two, 2);
    assert_int_equal(a.n, 2);
    assert_string_equal(a.all[0], b.all[0]);
    assert_string_not_equal(a.all[0], a.all[1]);
    assert_string_not_equal(a.all[0], c.all[0]);
    assert_int_equal(strlen(a.all[0]), 29);
    assert_memory_equal(a.all[0], "call_", 5);
    assert_int_equal(strlen(ids_of("mistral", "[TOOL_CALLS]now[ARGS]{}", 1).all[0]), 9);
    assert_string_equal(ids_of("mistral", "[TOOL_CALLS]now[CALL_ID]a1b2c3d4e[ARGS]{}", 1).all[0], "a1b2c3d4e");
    assert_string_equal(ids_of("mistral", "[TOOL_CALLS][{\"id\":\"abcdefghi\",\"name\":\"now\"}]", 1).all[0], "abcdefghi");
    assert_string_equal(ids_of("kimi", "<|tool_calls_section_begin|><|tool_call_begin|>"
    "functions.now:3<|tool_call_argument_begin|>{}",
                               1).all[0], "functions.now:3");
}

static bool refuse(void *user, const answer_event *e)
{
    (void)e;
    return --*(int *)user > 0;
}

static void test_sink_stops(void **state)
{
    (void)state;
    int left = 2;
    answer_params params = {.tools = all_tools, .sink = refuse, .user = &left};
    params.style.format = answer_format_named("hermes");
    answer_parser *parser = answer_create(&params);
    assert_true(answer_feed(parser, "Hello", 5));
    assert_false(answer_feed(parser, " you", 4));
    assert_false(answer_feed(parser, "!", 1));
    assert_false(answer_end(parser, false));
    assert_false(answer_out_of_memory(parser));
    assert_int_equal(left, 0);
    answer_free(parser);
    answer_free(NULL);
}

/* Texts with which a careless parser reads the same bytes repeatedly. Bytes per step are bounded, so the time for twice as many
 * is not four times as long; the limit is far above what a linear parser needs. */
static void test_linear(void **state)
{
    (void)state;
    static const char *const repeated[] = {
        "<tool_call>{\"a\":[", "<tool_call>", "<tool_call>{\"arguments\":{\"a\":\"", " ", "\n<", "<function=a><parameter=b>",
        "<function=now>\n<parameter=note>\n\n\n", "[TOOL_CALLS]now{", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>", "{\"name\":\"now\"",
        "<|channel|>x", "<think>", "get_weather(a  ", "```tool_code\nnow(note =  ", "call:now{a:<|\"|><|\"", "\xf0\x9f",
    };
    for (size_t f = 0; answer_format_at(f); f++)
        for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) {
            const size_t n_all = 200000 / (size_t)test_every(), n_one = strlen(repeated[i]);
            char *text = malloc(n_all);
            for (size_t k = 0; k < n_all; k++) text[k] = repeated[i][k % n_one];
            const example e = {.format = answer_format_name(answer_format_at(f)), .tags = "think", .prompt = "", .text = text};
            answer_params params = params_of(&e);
            int left = INT32_MAX;
            params.sink = refuse, params.user = &left;
            const clock_t began = clock();
            answer_parser *parser = answer_create(&params);
            for (size_t k = 0; k < n_all; k++) assert_true(answer_feed(parser, text + k, 1));
            assert_true(answer_end(parser, false));
            answer_free(parser);
            if (clock() - began > 20 * CLOCKS_PER_SEC) fail_msg("%s and %s: not linear", e.format, repeated[i]);
            free(text);
        }
}

/* ---- Templates ---------------------------------------------------------------------------------------- */

/* One or two marks of each family's template. */
static void test_detect(void **state)
{
    (void)state;
    static const struct { const char *text, *format, *tags; } all[] = {
        {NULL, "plain", "none"},
        {"", "plain", "none"},
        {"{{ messages }}", "plain", "none"},
        {"<tool_call>\n{\"name\": <function-name>", "hermes", "none"},
        {"<tool_call></tool_call> '<think>\\n'", "hermes", "think"},
        {"<tool_call>\n<function=example>", "qwen3-coder", "none"},
        {"<tool_call>{function-name}\n<arg_key> <think>", "glm", "think"},
        {"<|start_header_id|> {\"name\": name, \"parameters\": x", "llama3", "none"},
        {"[TOOL_CALLS] [ARGS] [THINK]", "mistral", "think-brackets"},
        {"<|start|> <|channel|> <|message|>", "harmony", "harmony"},
        {"<｜tool▁calls▁begin｜> </think>", "deepseek", "think"},
        {"<|tool_call> <|channel>thought", "gemma4", "gemma"},
        {"'List of tools: ['", "lfm2", "none"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const answer_style style = answer_style_detect(all[i].text, all[i].text ? strlen(all[i].text) : 0);
        assert_string_equal(answer_format_name(style.format), all[i].format);
        assert_string_equal(answer_tags_name(style.tags), all[i].tags);
    }
    const answer_style plain = answer_style_detect(NULL, 0), harmony = answer_style_detect("<|start|><|channel|>"
    "<|message|>", 31);
    assert_false(answer_style_needs_special(&plain));
    assert_true(answer_style_needs_special(&harmony));
    assert_null(answer_format_named("nonsense"));
    assert_null(answer_tags_named("nonsense"));
    for (size_t i = 0; answer_tags_at(i); i++)
        assert_ptr_equal(answer_tags_named(answer_tags_name(answer_tags_at(i))), answer_tags_at(i));
    for (size_t i = 0; answer_format_at(i); i++)
        assert_ptr_equal(answer_format_named(answer_format_name(answer_format_at(i))), answer_format_at(i));
}

/* Published templates: file, format, tags; whether it writes calls of tools that the caller has not written itself. */
static const struct { const char *file, *format, *tags; bool writes; } templates[] = {
    {"Apertus-8B-Instruct", "apertus", "apertus", true},
    {"Bielik-11B-v3.0-Instruct", "hermes", "think", true},
    {"CohereForAI-c4ai-command-r-plus-tool_use", "command-r", "none", true},
    {"GLM-4.6", "glm", "think", true},
    {"GigaChat3-10B-A1.8B", "gigachat", "none", true},
    {"HuggingFaceTB-SmolLM3-3B", "plain", "think", false},
    {"Kimi-K2-Thinking", "kimi", "think", false}, /* it changes a list, which no sandbox allows */
    {"LFM2.5-Instruct", "lfm2", "think", false},
    {"MiniMax-M2", "minimax", "think", true},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3-coder", "think", true},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes", "none", true},
    {"Qwen-QwQ-32B", "hermes", "think", true},
    {"Qwen-Qwen3-0.6B", "hermes", "think", true},
    {"Qwen3.5-4B", "qwen3-coder", "think", true},
    {"StepFun3.5-Flash", "qwen3-coder", "think", true},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek", "think", true},
    {"deepseek-ai-DeepSeek-V3.2", "deepseek-dsml", "think", true},
    {"google-gemma-2-2b-it", "plain", "none", false},
    {"google-gemma-4-31B-it", "gemma4", "gemma", true},
    {"ibm-granite-granite-4.0", "hermes", "none", true},
    {"llama-cpp-deepseek-r1", "deepseek", "think", false}, /* it writes a generator as JSON, which Python cannot either */
    {"meetkai-functionary-medium-v3.1", "functionary", "none", true},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama3", "none", true},
    {"meta-llama-Llama-3.3-70B-Instruct", "llama3", "none", true},
    {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral", "think-brackets", true},
    {"moonshotai-Kimi-K2", "kimi", "none", true},
    {"stepfun-ai-Step-3.5-Flash", "qwen3-coder", "think", true},
    {"unsloth-mistral-Devstral-Small-2507", "mistral", "none", true},
    {"Apriel-1.6-15b-Thinker-fixed", "tool_calls", "none", true},
    {"ByteDance-Seed-OSS", "seed", "seed", true},
    {"Cohere2MoE", "command-r7b", "command-r", true},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command-r7b", "command-r", true},
    {"GLM-4.7-Flash", "glm", "think", true},
    {"GigaChat3.1-10B-A1.8B", "gigachat3.1", "none", true},
    {"Kimi-K3", "kimi-k3", "kimi-k3", true},
    {"LFM2.5-8B-A1B", "lfm2", "think", true},
    {"MiMo-VL", "hermes", "none", true},
    {"MiniMax-M1", "tool_calls", "none", true},
    {"MiniMax-M3", "minimax-m3", "minimax-m3", true},
    {"Mistral-Small-3.2-24B-Instruct-2506", "mistral", "none", true},
    {"NVIDIA-Nemotron-Nano-v2", "nemotron", "think", true},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes", "none", true},
    {"Qwen-Qwen2.5-7B-Instruct", "hermes", "none", true},
    {"Qwen3-Coder", "qwen3-coder", "none", true},
    {"Reka-Edge", "hermes", "think", true},
    {"Spark2.5", "glm", "think", true},
    {"deepseek-ai-DeepSeek-V3.1", "deepseek", "think", true},
    {"deepseek-ai-DeepSeek-V4", "deepseek-dsml", "think", true},
    {"deepseek-ai-DeepSeek-V4-Flash-0731", "deepseek-dsml", "think", true},
    {"google-gemma-4-31B-it-interleaved", "gemma4", "gemma", true},
    {"ibm-granite-granite-3.3-2B-Instruct", "granite", "granite", false},
    {"ibm-granite-granite-4.1", "hermes", "none", true},
    {"inclusionai-ling-3.0-flash", "glm", "think", true},
    {"meta-llama-Llama-3.2-3B-Instruct", "llama3", "none", true},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral", "none", true},
    {"muse-glimmer", "atem", "atem", true},
    {"openai-gpt-oss-120b", "harmony", "harmony", true},
    {"llm-jp-llm-jp-4.1-8b-thinking", "harmony", "harmony", true},
    {"openbmb-MiniCPM5-1B", "minicpm5", "think", true},
    {"poolside-Laguna-S-2.1", "glm", "think", true},
    {"poolside-Laguna-XS-2.1", "glm", "think", true},
    {"tencent-Hy3", "hy3", "hy3", true},
    {"unsloth-Apriel-1.5", "tool_calls", "none", true},
};

/* A conversation with everything that a template may look for. */
static const char whole_tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Weather\",\"parameters\":{"
    "\"type\":\"object\","
    "\"properties\":{\"city\":{\"type\":\"string\",\"description\":\"City\"},\"days\":{\"type\":\"integer\",\"description\":"
    "\"Days\"}},\"required\":[\"city\"]}}}]";

static char *render(const char *source, size_t n, const char *messages, bool prompt)
{
    aerie_chat chat = aerie_chat_default();
    aerie_error error = {0};
    char *text = NULL;
    size_t n_text;
    chat.template_text = (aerie_text){.data = source, .n = n};
    chat.messages = (aerie_text){.data = messages, .n = strlen(messages)};
    chat.tools = (aerie_text){.data = whole_tools_json, .n = strlen(whole_tools_json)};
    chat.bos = chat.eos = "";
    chat.no_generation_prompt = !prompt;
    if (aerie_model_chat_render(NULL, &chat, &text, &n_text, &error) != AERIE_OK) fail_msg("%.30s: %s", source, error.text);
    return text;
}

/* The parser reads the text that a template writes for a call as that call. */
static void check_written(const char *file, const char *source, size_t n, answer_style style)
{
    static const char user[] = "[{\"role\":\"user\",\"content\":\"Question\"}",
        call[] = ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"id\":\"abcdefghi\","
                 "\"function\":{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Pa\\\"ris\\n\\u00e9\",\"days\":3}}}]}";
    char messages[512];
    snprintf(messages, sizeof messages, "%s]", user);
    char *prompt = render(source, n, messages, true);
    snprintf(messages, sizeof messages, "%s%s]", user, call);
    char *both = render(source, n, messages, false);
    size_t at = 0;
    while (prompt[at] && prompt[at] == both[at]) at++;
    size_t tag = at; /* both may end in the opening tag of reasoning; it must not be there twice */
    while (tag && at - tag < 12 && !strchr("<[>]\n", both[tag])) tag--;
    if (both[tag] == '<' || both[tag] == '[') at = tag;
    answer_params params = {.style = style, .tools = all_tools};
    seen s = seen_parse(params, both + at, strlen(both + at), NULL, 0);
    const char *begin = strstr(s.text, "get_weather A{"), *end = begin ? strstr(begin, "} .") : NULL;
    json_t *json = end ? json_loadb(begin + 14, (size_t)(end - begin - 14), 0, NULL) : NULL;
    json_t *expected = json_pack("{s:s, s:i}", "city", "Pa\"ris\n\xc3\xa9", "days", 3);
    if (s.n_calls != 1 || !json_equal(json, expected)) fail_msg("%s wrote %s\nread as %s", file, both + at, s.text);
    json_decref(json);
    json_decref(expected);
    free(s.text);
    aerie_free(prompt);
    aerie_free(both);
}

static void test_templates(void **state)
{
    (void)state;
    const char *shared = getenv("AERIE_SHARED");
    size_t n_found = 0;
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        char path[1024], source[65536];
        snprintf(path, sizeof path, "%s/data/templates/%s.jinja", shared ? shared : "../shared", templates[i].file);
        FILE *f = fopen(path, "rb");
        if (!f) continue;
        const size_t n = fread(source, 1, sizeof source, f);
        fclose(f);
        n_found++;
        const answer_style style = answer_style_detect(source, n);
        if (strcmp(answer_format_name(style.format), templates[i].format) ||
            strcmp(answer_tags_name(style.tags), templates[i].tags))
            fail_msg("%s: %s, %s", templates[i].file, answer_format_name(style.format), answer_tags_name(style.tags));
        if (templates[i].writes) check_written(templates[i].file, source, n, style);
    }
    if (n_found) return;
    print_message("skip: no chat templates in %s/data/templates (set AERIE_SHARED)\n", shared ? shared : "../shared");
    skip();
}

/* A schema that refers to itself does not tell the type. */
static void test_circular_schemas(void **state)
{
    (void)state;
    static const char *const parameters[] = {
        "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/L\"}},\"$defs\":{\"L\":{\"$ref\":\"#/$defs/L\"}}}",
        "{\"$ref\":\"#\"}", "{\"properties\":{\"a\":{\"$ref\":\"#/properties/a\"}}}",
        "{\"properties\":{\"a\":{\"$ref\":\"b\"}}}",
        ("{\"$defs\":{\"L\":{\"anyOf\":[{\"$ref\":\"#/$defs/L\"},{\"$ref\":\"#/$defs/L\"},{\"$ref\":\"#/$defs/L\"}]}},"
         "\"properties\":{\"a\":{\"$ref\":\"#/$defs/L\"}}}"),
        "{\"properties\":{\"a\":{\"$ref\":\"#/$defs\"}},\"$defs\":[]}", "{\"properties\":[]}",
        "{\"$ref\":\"#/x/0/~1\",\"x\":[1]}",
    };
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        json_t *schema = json_loads(parameters[i], 0, NULL);
        json_t *tools = json_pack("[{s:s, s:{s:s, s:o}}]", "type", "function", "function", "name", "f", "parameters", schema);
        static const char text[] = "<tool_call><function=f><parameter=a>1</parameter></function></tool_call>";
        answer_params params = {.style.format = answer_format_named("qwen3-coder"), .tools = tools};
        seen s = seen_parse(params, text, strlen(text), NULL, 0);
        assert_string_equal(s.text, "f A{{\"a\":1}} .");
        free(s.text);
        json_decref(tools);
    }
}

/* ---- tool_choice ------------------------------------------------------------------------------------------ */

/* The parser reads the forced beginning followed by any text of the schema as a call. */
static void check_forced(const char *format, const char *prompt, const char *name)
{
    const char *why;
    const example e = {.format = format, .tags = "think", .prompt = prompt, .text = ""};
    answer_params params = params_of(&e);
    answer_forced forced;
    if (!answer_force(&forced, &params, name, &why)) fail_msg("%s: %s", format, why);
    aerie_grammar *grammar = NULL;
    aerie_error error = {0};
    if (aerie_grammar_create_schema(&grammar, forced.schema, forced.n_schema, NULL, &error) != AERIE_OK)
        fail_msg("%s: %s: %s", format, forced.schema, error.text);
    static const char *const rests[] = {
        "{\"get_weather\": {\"city\":\"Paris\"}}",
        "{\"city\":\"Paris\"}", "{\"name\": \"get_weather\", \"arguments\": {\"city\":\"Paris\"}}",
        "{\"name\": \"get_weather\", \"parameters\": {\"city\":\"Paris\"}}",
        "{\"tool_name\": \"get_weather\", \"parameters\": {\"city\":\"Paris\"}}",
    };
    size_t n_fit = 0;
    for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
        bool accepted = false;
        size_t n_good;
        assert_int_equal(aerie_grammar_check(grammar, rests[i], strlen(rests[i]), &accepted, &n_good, NULL), AERIE_OK);
        if (!accepted) continue;
        n_fit++;
        char text[1024];
        const size_t n = (size_t)snprintf(text, sizeof text, "%.*s%s", (int)forced.n_prefix, forced.prefix, rests[i]);
        params.style = forced.style;
        seen s = seen_parse(params, text, n, &forced.n_prefix, 1);
        if (s.bad || strcmp(s.text, "get_weather " CITY) != 0) fail_msg("%s: %s\ngot %s", format, text, s.text);
        free(s.text);
    }
    if (n_fit != 1) fail_msg("%s: %zu texts fit %s", format, n_fit, forced.schema);
    aerie_grammar_free(grammar);
    answer_forced_free(&forced);
}

static void test_force(void **state)
{
    (void)state;
    for (size_t i = 0; answer_format_at(i); i++) {
        const char *name = answer_format_name(answer_format_at(i));
        check_forced(name, "", "get_weather");
        check_forced(name, "", NULL);
        if (strcmp(name, "harmony") != 0) check_forced(name, "<|im_start|>assistant\n<think>\n", NULL);
    }
}

static void test_force_refuses(void **state)
{
    (void)state;
    const char *why;
    answer_forced forced;
    const example e = {.format = "hermes", .prompt = ""};
    answer_params params = params_of(&e);
    assert_false(answer_force(&forced, &params, "nobody", &why));
    assert_non_null(strstr(why, "name"));
    params.tools = NULL;
    assert_false(answer_force(&forced, &params, NULL, &why));
    assert_non_null(strstr(why, "no tools"));
    answer_forced_free(&forced);
}

/* References in a tool's schema still point to the same places. */
static void test_force_references(void **state)
{
    (void)state;
    static const char json[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{\"type\":\"object\",\"properties\":{"
        "\"x\":{\"$ref\":"
        "\"#/$defs/n\"}},\"required\":[\"x\"],\"$defs\":{\"n\":{\"type\":\"integer\"}}}}},"
        "{\"name\":\"b\",\"parameters\":{\"type\":\"object\",\"properties\":{\"y\":{\"$ref\":\"#/$defs/n\"}},"
        "\"required\":[\"y\"],"
        "\"$defs\":{\"n\":{\"type\":\"boolean\"}}}}]";
    json_t *tools = json_loads(json, 0, NULL);
    const example e = {.format = "hermes", .prompt = ""};
    answer_params params = params_of(&e);
    answer_forced forced;
    const char *why;
    params.tools = tools;
    assert_true(answer_force(&forced, &params, NULL, &why));
    aerie_grammar *grammar;
    aerie_error error = {0};
    if (aerie_grammar_create_schema(&grammar, forced.schema, forced.n_schema, NULL, &error) != AERIE_OK)
        fail_msg("%s: %s", forced.schema, error.text);
    static const struct { const char *text; bool good; } texts[] = {
        {"{\"name\": \"a\", \"arguments\": {\"x\": 1}}", true}, {"{\"name\": \"a\", \"arguments\": {\"x\": true}}", false},
        {"{\"name\": \"b\", \"arguments\": {\"y\": true}}", true}, {"{\"name\": \"b\", \"arguments\": {\"y\": 1}}", false},
    };
    for (size_t i = 0; i < 4; i++) {
        bool accepted;
        size_t n_good;
        const char *text = texts[i].text;
        assert_int_equal(aerie_grammar_check(grammar, text, strlen(text), &accepted, &n_good, NULL), AERIE_OK);
        assert_int_equal(accepted, texts[i].good);
    }
    aerie_grammar_free(grammar);
    answer_forced_free(&forced);
    json_decref(tools);
}

static int set_up(void **state)
{
    (void)state;
    all_tools = json_loads(tools_json, 0, NULL);
    return all_tools ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    json_decref(all_tools);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),     cmocka_unit_test(test_cuts),          cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_ids),      cmocka_unit_test(test_sink_stops),    cmocka_unit_test(test_linear),
        cmocka_unit_test(test_detect),   cmocka_unit_test(test_force),         cmocka_unit_test(test_force_refuses),
        cmocka_unit_test(test_force_references), cmocka_unit_test(test_templates), cmocka_unit_test(test_circular_schemas),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
