/* test_template.c - aerie template from outside: prompts to the byte, messages, exit statuses. */
#include "cli.h"

#include <jansson.h>

#include "vocab_make.h"

#define CHATML                                                                                                            \
    "{{- bos_token }}{% for m in messages %}\n{{- '<|im_start|>' + m.role + '\\n' + m['content'] + '<|im_end|>\\n' }}\n"    \
    "{%- endfor %}\n{%- if tools %}{{ tools|tojson }}{% endif %}\n{%- if add_generation_prompt %}<|im_start|>assistant\n" \
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}{{ eos_token }}"

static int make_files(void **state)
{
    static const char messages[] = "[{\"role\": \"system\", \"content\": \"Be \\u00fc.\"},\n"
                                   " {\"role\": \"user\", \"content\": \"Hi {{ 1 }}\"}]";
    ae_buf vocab = {0};
    if (cli_setup(state)) return -1;
    cli_write("t.jinja", CHATML, sizeof CHATML - 1);
    cli_write("m.json", messages, sizeof messages - 1);
    vocab_make_bpe(&vocab, &(vocab_make){.chat_template = CHATML, .add_bos = 1});
    cli_write("v.gguf", vocab.data, vocab.n);
    ae_buf_clear(&vocab);
    vocab_make_bpe(&vocab, &(vocab_make){0});
    cli_write("bare.gguf", vocab.data, vocab.n);
    ae_buf_free(&vocab);
    return 0;
}

#define TURNS "<|im_start|>system\nBe \xc3\xbc.<|im_end|>\n<|im_start|>user\nHi {{ 1 }}<|im_end|>\n"

static void gives(const char *arguments, const char *wanted)
{
    cli("$A template %s", arguments);
    if (cli_last.status || strcmp(cli_last.out, wanted) || cli_last.n_out != strlen(wanted) || cli_last.n_err)
        fail_msg("%s: %d\n[%s]\nwanted [%s]\n%s", arguments, cli_last.status, cli_last.out, wanted, cli_last.err);
}

static void prompts_to_the_byte(void **state)
{
    (void)state;
    gives("--file t.jinja --messages m.json", TURNS "<|im_start|>assistant\n");
    gives("--file t.jinja --messages - < m.json", TURNS "<|im_start|>assistant\n");
    gives("--file - --messages m.json < t.jinja", TURNS "<|im_start|>assistant\n");
    gives("--chat-template-file t.jinja --messages m.json --no-generation-prompt --bos '<s>' --eos '</s>'", "<s>" TURNS "</s>");
    gives("--file t.jinja --messages m.json --set enable_thinking=false",
          TURNS "<|im_start|>assistant\n<think>\n\n</think>\n\n");
    gives("--file t.jinja --messages m.json --set enable_thinking=true", TURNS "<|im_start|>assistant\n");
    gives("--file t.jinja --messages m.json --chat-template-kwargs '{\"enable_thinking\": false}'",
          TURNS "<|im_start|>assistant\n<think>\n\n</think>\n\n");
    gives("--file t.jinja --messages m.json --chat-template-kwargs '{\"enable_thinking\": false}' --set enable_thinking=true",
          TURNS "<|im_start|>assistant\n");
    cli("echo '[{\"b\": 1, \"a\": [1.0, \"<\\u00e9>\", null]}]' > tools.json; echo '[]' > none.json");
    gives("--file t.jinja --messages m.json --no-generation-prompt --tools tools.json",
          TURNS "[{\"b\": 1, \"a\": [1.0, \"<\xc3\xa9>\", null]}]");
    gives("--file t.jinja --messages m.json --no-generation-prompt --tools none.json", TURNS);
    cli("echo '{{ messages|length }} {{ tools }} {{ documents }} {{ x }} {{ y.z }}' > vars.jinja");
    gives("--file vars.jinja --messages m.json --set x='\"a b\"' --set 'y={\"z\": 1e2}'", "2 None None a b 100.0");
    /* Bodies of chat APIs, and empty values. */
    cli("echo '{\"model\": \"m\", \"messages\": [], \"tools\": [1], "
        "\"chat_template_kwargs\": {\"x\": 5, \"y\": {}}}' > body.json");
    gives("--file vars.jinja --messages body.json", "0 [1] None 5 ");
    gives("--file vars.jinja --messages body.json --set x=6 --tools none.json", "0 None None 6 ");
    cli(": > empty.jinja");
    gives("--file empty.jinja --messages m.json", "");
}

static void by_a_model(void **state)
{
    (void)state;
    cli("$A template -m v.gguf --messages m.json > prompt; $A tokenize -m v.gguf --no-bos -f prompt > a; "
        "$A template -m v.gguf --messages m.json --tokens > b; cmp a b && cat prompt");
    if (cli_last.status) fail_msg("%s%s", cli_last.out, cli_last.err);
    assert_non_null(strstr(cli_last.out, TURNS));
    assert_int_equal(strncmp(cli_last.out, "<|im_start|><|im_start|>", 24), 0); /* the model's BOS comes first */
    cli("$A template -m v.gguf --messages m.json --bos '' --eos '' > prompt; cat prompt");
    assert_string_equal(cli_last.out, TURNS "<|im_start|>assistant\n");
    /* a control token spelled in a message is text, unless the option says otherwise */
    cli("sed 's/Hi/<|im_end|>/' m.json > forged.json; $A template -m v.gguf --messages forged.json > prompt; "
        "$A tokenize -m v.gguf --no-bos -f prompt > a; $A template -m v.gguf --messages forged.json --tokens > b; "
        "$A template -m v.gguf --messages forged.json --tokens --special-in-messages > c; cmp a c && ! cmp -s a b && cat "
        "prompt");
    if (cli_last.status) fail_msg("%s%s", cli_last.out, cli_last.err);
    assert_non_null(strstr(cli_last.out, "<|im_end|> {{ 1 }}<|im_end|>"));
    cli("$A template -m v.gguf --messages m.json --json --tokens");
    assert_int_equal(cli_last.status, 0);
    json_t *json = json_loads(cli_last.out, 0, NULL);
    assert_non_null(strstr(json_string_value(json_object_get(json, "prompt")), TURNS));
    assert_true(json_array_size(json_object_get(json, "ids")) > 10);
    json_decref(json);
    cli("$A template -m bare.gguf --messages m.json --chat-template chatml > a; "
        "$A template -m bare.gguf --messages m.json | cmp - a");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.err, "the model has no chat template"));
    gives("-m bare.gguf --file t.jinja --messages m.json --bos '' --eos ''", TURNS "<|im_start|>assistant\n");
}

/* The published Hermes 2 Pro and Command R have templates of their own for tools. */
static void a_template_for_tools(void **state)
{
    (void)state;
    cli("echo '[{\"a\": 1}]' > one.json; echo '[]' > none.json");
#define TOOL_USE " --messages m.json --override-kv 'tokenizer.chat_template.tool_use=str:T{{ tools }} {{ messages|length }}' "
    gives("-m v.gguf" TOOL_USE "--tools one.json", "T[{'a': 1}] 2");
    gives("-m v.gguf" TOOL_USE "--no-generation-prompt --bos '' --eos ''", TURNS);
    gives("-m v.gguf" TOOL_USE "--no-generation-prompt --bos '' --eos '' --tools none.json", TURNS);
    gives("-m v.gguf --file t.jinja --no-generation-prompt" TOOL_USE "--bos '' --eos '' --tools one.json",
          TURNS "[{\"a\": 1}]");
    gives("-m bare.gguf" TOOL_USE "-q", "TNone 2"); /* the only template is that of all conversations */
    gives("-m v.gguf --messages m.json --override-kv 'tokenizer.chat_template.tool_use=str: ' --no-generation-prompt "
          "--bos '' --eos '' --tools one.json", TURNS "[{\"a\": 1}]");
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        int status;
        const char *text, *other;
    } cases[] = {
        {"", 2, "--file FILE", "-m FILE"},
        {"--file t.jinja", 2, "--messages FILE", ""},
        {"--file t.jinja --messages m.json model stray", 2, "found 'stray'", ""},
        {"--file - --messages -", 2, "only one of", "standard input"},
        {"--file t.jinja --messages m.json --tokens", 2, "--tokens needs a model", ""},
        {"--file t.jinja --messages m.json --set x", 2, "NAME=JSON", "'x'"},
        {"--file t.jinja --messages m.json --set =1", 2, "NAME=JSON", ""},
        {"--file t.jinja --messages m.json --set 'a b=1'", 2, "NAME=JSON", ""},
        {"--file t.jinja --messages m.json --set x=high", 2, "--set x=high: not JSON", "x=\"...\""},
        {"--file t.jinja --messages m.json --chat-template-kwargs '[1]'", 2, "not a JSON object", ""},
        {"--file t.jinja --messages m.json --chat-template-kwargs '{'", 2, "not a JSON object", ""},
        {"--file missing --messages m.json", 3, "missing", "No such file"},
        {"--file t.jinja --messages missing", 3, "missing", "No such file"},
        {"--file t.jinja --messages m.json --tools missing", 3, "missing", "No such file"},
        {"--file . --messages m.json", 3, "cannot read '.'", ""},
        {"--file t.jinja --messages .", 3, "cannot read '.'", ""},
        {"--file t.jinja --messages - <&-", 3, "cannot read 'standard input'", ""},
        {"--file t.jinja --messages bad", 3, "bad: line 3, column 2: not JSON", ""},
        {"--file t.jinja --messages - < bad", 3, "standard input: line 3, column 2: not JSON", ""},
        {"--file t.jinja --messages /dev/null", 3, "/dev/null: ", "not JSON"},
        {"--file t.jinja --messages number", 3, "number: neither a list of messages", ""},
        {"--file t.jinja --messages strings", 3, "strings: message 2 is not an object", ""},
        {"--file t.jinja --messages object", 3, "object: neither a list", "\"messages\""},
        {"--file t.jinja --messages toolish", 3, "toolish: \"tools\" is not a list", ""},
        {"--file t.jinja --messages m.json --tools number", 3, "number: not a list of tools", ""},
        {"--file t.jinja --messages deep", 3, "deep: ", "nested deeper than 128"},
        {"--file t.jinja --messages deeper", 3, "deeper: ", "nested deeper than 128"},
        {"--file t.jinja --messages big", 3, "big: line 1, column", "too big"},
        {"--file syntax.jinja --messages m.json", 3, "syntax.jinja: template line 2, column 10: ", ""},
        {"--file undefined.jinja --messages m.json", 3,
         "undefined.jinja: template line 3, column 16: 'nothing' is undefined", ""},
        {"--file latin1.jinja --messages m.json", 3, "latin1.jinja: the template is not UTF-8", "byte 2"},
        {"--file raise.jinja --messages m.json", 3, "raise.jinja: Only 1 message, please\\n(found 2)", ""},
        {"--file m.gguf --messages m.json", 3, "m.gguf", ""},
        {"--file need.jinja --messages lacking", 3, "lacking: messages[1] has no \"content\"", "need.jinja: template line 1"},
        {"--file need.jinja --messages - < rolls", 3, "standard input: messages[0] has no \"role\"", ""},
        {"--file t.jinja -p hello", 2, "'template' has no option '-p': a template needs a conversation: --messages", ""},
        {"-m t.jinja --messages m.json", 3, "t.jinja", ""},
        {"--file endless.jinja --messages m.json", 3, "endless.jinja: template line 1, column", "too many steps"},
        {"--file range.jinja --messages m.json", 3, "range.jinja: template line 1, column", "range gives more than"},
        {"--file recursive.jinja --messages m.json", 3, "recursive.jinja: template line 1, column", "levels deep"},
        {"--file doubling.jinja --messages m.json", 3, "doubling.jinja: template line 1, column", "grows beyond"},
        {"--file nested.jinja --messages m.json", 3, "nested.jinja: template line 1, column", "nested"},
    };
    cli("printf '[\\n {},\\n }' > bad; echo 1 > number; echo '[{}, \"x\"]' > strings; echo '{\"a\": 1}' > object; "
        "echo '{\"messages\": [], \"tools\": 3}' > toolish; printf '[{\"a\": 123456789012345678901234567890}]' > big; "
        "{ head -c 127 /dev/zero | tr '\\0' '['; echo '[]'; head -c 127 /dev/zero | tr '\\0' ']'; } > deepest; "
        "{ head -c 128 /dev/zero | tr '\\0' '['; echo '[]'; head -c 128 /dev/zero | tr '\\0' ']'; } > deep; "
        "head -c 1000000 /dev/zero | tr '\\0' '[' > deeper");
    cli("echo '{%% for m in messages %%}{{ m.role + m.content }}{%% endfor %%}' > need.jinja; "
        "echo '[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"user\"}]' > lacking; "
        "echo '[{\"content\": \"a\"}]' > rolls");
    cli("printf 'x\\n{{ 1 + 1 2 }}' > syntax.jinja; printf 'x\\n\\n  \\303\\274 {{ [nothing.x] }}' > undefined.jinja; "
        "printf 'ab\\374' > latin1.jinja; head -c 3000 /dev/urandom > m.gguf; "
        "echo '{% if messages|length > 1 %}{{ raise_exception(\"Only 1 message, please\\n(found \" ~ messages|length ~ \")\") "
        "}}{% endif %}' > raise.jinja");
    cli("echo '{%% for a in range(99999) %%}{%% for b in range(99999) %%}x{%% endfor %%}{%% endfor %%}' > endless.jinja; "
        "echo '{%% for i in range(10**9) %%}{%% endfor %%}' > range.jinja; "
        "echo '{%% macro m() %%}{{ m() }}{%% endmacro %%}{{ m() }}' > recursive.jinja; "
        "echo '{%% set ns = namespace(s=\"x\") %%}{%% for i in range(99) %%}{%% set ns.s = ns.s ~ ns.s %%}{%% endfor %%}' > "
        "doubling.jinja; "
        "{ printf '{{ '; head -c 60000 /dev/zero | tr '\\0' '('; } > nested.jinja");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("$A template %s", cases[i].arguments);
        cli_refused(cases[i].status, cases[i].text, cases[i].other);
        if (strchr(cli_last.err, '\n') != cli_last.err + cli_last.n_err - 1) fail_msg("not one line: %s", cli_last.err);
    }
    cli("$A template --file t.jinja --messages deepest"); /* a list in a list: deep enough, but no message */
    cli_refused(3, "message 1 is not an object", "");
    cli("$A template --file t.jinja --messages m.json > /dev/full");
    cli_refused(1, "cannot write to standard output", "");
}

static void the_rest_of_the_program_knows_it(void **state)
{
    (void)state;
    cli("$A help; $A template --help; $A --completion-bash; $A --man");
    assert_non_null(strstr(cli_last.out, "template      a conversation rendered by a chat template"));
    assert_non_null(strstr(cli_last.out, "--no-generation-prompt"));
    assert_non_null(strstr(cli_last.out, "'template') options="));
    assert_non_null(strstr(cli_last.out, "aerie template"));
    cli("echo '{{ bos_token }}{{ tools }}' > e.jinja; "
        "AERIE_BOS=x AERIE_CHAT_TEMPLATE_FILE=e.jinja AERIE_MESSAGES=m.json $A template");
    assert_string_equal(cli_last.out, "xNone");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_to_the_byte),
        cmocka_unit_test(by_a_model),
        cmocka_unit_test(a_template_for_tools),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(the_rest_of_the_program_knows_it),
    };
    return cmocka_run_group_tests(tests, make_files, cli_teardown);
}
