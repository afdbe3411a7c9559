/* test_chat.c - prompts of conversations through aerie.h: a prompt begins with one BOS, whether the template or the library
 * writes it, and with none if the model has none; later BOS tokens are the template's.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie.h"
#include "vocab_make.h"

static aerie_model *load(bool spm, const vocab_make *how)
{
    char path[] = "/tmp/aerie_chat_XXXXXX";
    ae_buf file = {0};
    aerie_error error = {0};
    aerie_model *model;
    aerie_model_params params = aerie_model_params_default();
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    params.vocab_only = true;
    if (spm) vocab_make_spm(&file, how);
    else vocab_make_bpe(&file, how);
    assert_int_equal(write(fd, file.data, file.n), file.n);
    assert_int_equal(close(fd), 0);
    if (aerie_model_load(&model, path, &params, &error) != AERIE_OK) fail_msg("%s", error.text);
    ae_buf_free(&file);
    unlink(path);
    return model;
}

/* The number of BOS tokens at the beginning of a prompt, and in all of it. */
typedef struct count {
    size_t first, all;
} count;

static count count_bos(const aerie_model *model, const char *text, size_t n)
{
    int32_t *tokens;
    size_t n_tokens;
    count c = {0};
    aerie_error error = {0};
    aerie_model_info info;
    aerie_model_info_get(model, &info, sizeof info);
    if (aerie_model_chat_tokenize(model, text, n, &tokens, &n_tokens, &error) != AERIE_OK) fail_msg("%s", error.text);
    assert_true(n_tokens > 2);
    while (c.first < n_tokens && info.bos >= 0 && tokens[c.first] == info.bos) c.first++;
    for (size_t i = 0; i < n_tokens; i++) c.all += info.bos >= 0 && tokens[i] == info.bos;
    aerie_free(tokens);
    return c;
}

/* Both ways to make a prompt give the same. */
static void check(bool spm, vocab_make how, const char *tmpl, count wanted)
{
    static const aerie_message messages[] = {{"user", "hello"}, {"assistant", "world"}, {"user", "hello"}};
    static const char json[] = "[{\"role\": \"user\", \"content\": \"hello\"}, "
                               "{\"role\": \"assistant\", \"content\": \"world\"}, "
                               "{\"role\": \"user\", \"content\": \"hello\"}]";
    const aerie_chat turns = {.size = sizeof(aerie_chat), .turns = messages, .n_turns = 3};
    const aerie_chat chat = {.size = sizeof(aerie_chat), .messages = {json, sizeof json - 1, NULL}};
    char *text, *other;
    size_t n, n_other;
    aerie_error error = {0};
    how.chat_template = tmpl;
    aerie_model *model = load(spm, &how);
    if (aerie_model_chat_render(model, &turns, &text, &n, &error) != AERIE_OK) fail_msg("%s", error.text);
    if (aerie_model_chat_render(model, &chat, &other, &n_other, &error) != AERIE_OK) fail_msg("%s", error.text);
    assert_string_equal(text, other);
    const count c = count_bos(model, text, n);
    if (c.first != wanted.first || c.all != wanted.all)
        fail_msg("%s, spm %d, add %d: begins with %zu BOS of %zu, not %zu of %zu", text, spm, how.add_bos, c.first, c.all,
                 wanted.first, wanted.all);
    aerie_free(text);
    aerie_free(other);
    aerie_model_free(model);
}

static const char writes[] = "{{ bos_token }}{% for m in messages %}{{ m.role + m.content }}{% endfor %}",
                  writes_none[] = "{% for m in messages %}{{ m.role + m.content }}{% endfor %}",
                  each_turn[] = "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token }}{% endif %}{{ m.content }}"
                                "{% endfor %}";

static void one_bos_whoever_writes_it(void **state)
{
    (void)state;
    for (int spm = 0; spm < 2; spm++) {
        const vocab_make adds = {.add_bos = true};
        check(spm, adds, writes, (count){1, 1});
        check(spm, adds, writes_none, (count){1, 1});
        check(spm, adds, each_turn, (count){1, 2});
    }
}

static void the_template_decides_where_the_tokenizer_adds_none(void **state)
{
    (void)state;
    check(false, (vocab_make){0}, writes, (count){1, 1});
    check(false, (vocab_make){0}, writes_none, (count){0, 0});
    check(false, (vocab_make){0}, each_turn, (count){1, 2});
}

static void none_where_the_model_has_none(void **state)
{
    (void)state;
    static const char *const templates[] = {writes, writes_none, each_turn};
    for (int i = 0; i < 3; i++) {
        check(false, (vocab_make){.no_bos = true}, templates[i], (count){0, 0});
        check(false, (vocab_make){.no_bos = true, .add_bos = true}, templates[i], (count){0, 0});
    }
}

/* The layouts that model cards publish, for system "S", user " U ", assistant "A", user "V". */
static void known_templates(void **state)
{
    static const char *const wanted[][2] = {
        {"chatglm3", "[gMASK]sop<|system|>\n S<|user|>\n  U <|assistant|>\n A<|user|>\n V<|assistant|>"},
        {"chatglm4", "[gMASK]<sop><|system|>\nS<|user|>\n U <|assistant|>\nA<|user|>\nV<|assistant|>\n"},
        {"chatml", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n U <|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
                   "<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n"},
        {"command-r", "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>U"
                      "<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>A<|END_OF_TURN_TOKEN|>"
                      "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>V<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"},
        {"deepseek", "S### Instruction:\n U \n### Response:\nA\n<|EOT|>\n### Instruction:\nV\n### Response:\n"},
        {"deepseek2", "S\n\nUser:  U \n\nAssistant: A<\uff5cend\u2581of\u2581sentence\uff5c>User: V\n\nAssistant:"},
        {"deepseek3", "S\n\n<\uff5cUser\uff5c> U <\uff5c" "Assistant\uff5c>A<\uff5cend\u2581of\u2581sentence\uff5c>"
                      "<\uff5cUser\uff5c>V<\uff5c" "Assistant\uff5c>"},
        {"exaone3", "[|system|]S[|endofturn|]\n[|user|]U\n[|assistant|]A[|endofturn|]\n[|user|]V\n[|assistant|]"},
        {"falcon3", "<|system|>\nS\n<|user|>\n U \n<|assistant|>\nA\n<|user|>\nV\n<|assistant|>\n"},
        {"gemma", "<start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n<start_of_turn>user\nV"
                  "<end_of_turn>\n<start_of_turn>model\n"},
        {"gemma4", "<|turn>system\nS<turn|>\n<|turn>user\nU<turn|>\n<|turn>model\nA<turn|>\n<|turn>user\nV<turn|>\n"
                   "<|turn>model\n"},
        {"gpt-oss", "<|start|>system<|message|>S<|end|><|start|>user<|message|> U <|end|><|start|>assistant<|channel|>final"
                    "<|message|>A<|end|><|start|>user<|message|>V<|end|><|start|>assistant"},
        {"granite", "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n<|start_of_role|>user<|end_of_role|> U "
                    "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>A<|end_of_text|>\n"
                    "<|start_of_role|>user<|end_of_role|>V<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"},
        {"kimi-k2", "<|im_system|>system<|im_middle|>S<|im_end|><|im_user|>user<|im_middle|> U <|im_end|>"
                    "<|im_assistant|>assistant<|im_middle|>A<|im_end|><|im_user|>user<|im_middle|>V<|im_end|>"
                    "<|im_assistant|>assistant<|im_middle|>"},
        {"llama2", "[INST] S\n U  [/INST]A</s>[INST] V [/INST]"},
        {"llama2-sys", "[INST] <<SYS>>\nS\n<</SYS>>\n\n U  [/INST]A</s>[INST] V [/INST]"},
        {"llama2-sys-bos", "[INST] <<SYS>>\nS\n<</SYS>>\n\n U  [/INST]A</s><s>[INST] V [/INST]"},
        {"llama2-sys-strip", "[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST]A</s>[INST] V [/INST]"},
        {"llama3", "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU"
                   "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user"
                   "<|end_header_id|>\n\nV<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"llama4", "<|header_start|>system<|header_end|>\n\nS<|eot|><|header_start|>user<|header_end|>\n\nU<|eot|>"
                   "<|header_start|>assistant<|header_end|>\n\nA<|eot|><|header_start|>user<|header_end|>\n\nV<|eot|>"
                   "<|header_start|>assistant<|header_end|>\n\n"},
        {"megrez", "<|role_start|>system<|role_end|>S<|turn_end|><|role_start|>user<|role_end|> U <|turn_end|><|role_start|>"
                   "assistant<|role_end|>A<|turn_end|><|role_start|>user<|role_end|>V<|turn_end|><|role_start|>assistant"
                   "<|role_end|>"},
        {"minicpm", "S<\u7528\u6237>U<AI>A<\u7528\u6237>V<AI>"},
        {"mistral-v1", " [INST] S\n\n U  [/INST] A</s> [INST] V [/INST]"},
        {"mistral-v3", "[INST] S\n\n U [/INST] A</s>[INST] V[/INST]"},
        {"mistral-v3-tekken", "[INST]S\n\n U [/INST]A</s>[INST]V[/INST]"},
        {"mistral-v7", "[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST]  U [/INST] A</s>[INST] V[/INST]"},
        {"mistral-v7-tekken", "[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST] U [/INST]A</s>[INST]V[/INST]"},
        {"monarch", "system\nS</s>\n<s>user\n U </s>\n<s>assistant\nA</s>\n<s>user\nV</s>\n<s>assistant\n"},
        {"openchat", "S<|end_of_turn|>GPT4 Correct User:  U <|end_of_turn|>GPT4 Correct Assistant: A<|end_of_turn|>"
                     "GPT4 Correct User: V<|end_of_turn|>GPT4 Correct Assistant:"},
        {"orion", "S\n\nHuman:  U \n\nAssistant: </s>A</s>Human: V\n\nAssistant: </s>"},
        {"phi3", "<|system|>\nS<|end|>\n<|user|>\n U <|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nV<|end|>\n<|assistant|>\n"},
        {"phi4", "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|> U <|im_end|><|im_start|>assistant<|im_sep|>"
                 "A<|im_end|><|im_start|>user<|im_sep|>V<|im_end|><|im_start|>assistant<|im_sep|>"},
        {"seed_oss", "<seed:bos>system\nS<seed:eos><seed:bos>user\n U <seed:eos><seed:bos>assistant\nA<seed:eos>"
                     "<seed:bos>user\nV<seed:eos><seed:bos>assistant\n"},
        {"vicuna", "S\n\nUSER:  U \nASSISTANT: A</s>\nUSER: V\nASSISTANT:"},
        {"vicuna-orca", "SYSTEM: S\nUSER:  U \nASSISTANT: A</s>\nUSER: V\nASSISTANT:"},
        {"zephyr", "<|system|>\nS</s>\n<|user|>\n U </s>\n<|assistant|>\nA</s>\n<|user|>\nV</s>\n<|assistant|>\n"},
    };
    static const aerie_message turns[] = {{"system", "S"}, {"user", " U "}, {"assistant", "A"}, {"user", "V"}};
    size_t i = 0;
    (void)state;
    for (; aerie_chat_template_name(i); i++) {
        const char *name = aerie_chat_template_name(i), *text = aerie_chat_template_builtin(name);
        char *prompt;
        size_t n;
        aerie_error error = {0};
        assert_non_null(text);
        const aerie_chat chat = {.size = sizeof(aerie_chat), .template_text = {text, strlen(text), name},
                                 .turns = turns, .n_turns = 4, .bos = "<s>",
                                 .eos = "</s>"};
        if (aerie_model_chat_render(NULL, &chat, &prompt, &n, &error) != AERIE_OK) fail_msg("%s", error.text);
        assert_true(i < sizeof wanted / sizeof *wanted);
        assert_string_equal(name, wanted[i][0]);
        if (strcmp(prompt, wanted[i][1])) fail_msg("%s: [%s], wanted [%s]", name, prompt, wanted[i][1]);
        aerie_free(prompt);
    }
    assert_int_equal(i, sizeof wanted / sizeof *wanted);
    assert_null(aerie_chat_template_builtin("chat"));
    assert_null(aerie_chat_template_builtin(""));
}

/* ---- Control tokens spelled in messages are text ---------------------------------------------------------------------- */

static size_t count_token(const int32_t *tokens, size_t n, int32_t token)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) found += tokens[i] == token;
    return found;
}

static int32_t control_token(const aerie_model *model, const char *text)
{
    int32_t *tokens, token;
    size_t n;
    assert_int_equal(aerie_model_tokenize(model, text, strlen(text), false, true, &tokens, &n, NULL), AERIE_OK);
    assert_int_equal(n, 1);
    token = tokens[0];
    aerie_free(tokens);
    return token;
}

/* The control tokens of a conversation: those that the template writes, and those spelled in messages if they are asked for. */
static void check_control(const char *tmpl, const char *json, size_t n_template, size_t n_messages)
{
    static const char tools[] = "[{\"name\": \"<|im_end|>\", \"<|im_end|>\": [\"x<|im_end|>\"]}]";
    aerie_error error = {0};
    aerie_model *model = load(false, &(vocab_make){.chat_template = tmpl});
    aerie_chat chat = {.size = sizeof(aerie_chat), .messages = {json, strlen(json), NULL},
                       .tools = {tools, sizeof tools - 1, NULL}};
    const int32_t control = control_token(model, "<|im_end|>");
    for (int special = 0; special < 2; special++) {
        int32_t *tokens, *plain;
        char *text, *back;
        size_t n_tokens, n_plain, n, n_back;
        chat.special_in_messages = special;
        if (aerie_model_chat_tokens(model, &chat, &tokens, &n_tokens, &text, &n, &error) != AERIE_OK) fail_msg("%s",
                                                                                                               error.text);
        const size_t found = count_token(tokens, n_tokens, control), wanted = n_template + (special ? n_messages : 0);
        if (found != wanted)
            fail_msg("%s: %s: %zu control tokens, not %zu, special %d", tmpl, text, found, wanted, special);
        /* the text is the same, and with all control tokens wanted so are the tokens */
        assert_int_equal(aerie_model_detokenize(model, tokens, n_tokens, true, &back, &n_back, &error), AERIE_OK);
        assert_string_equal(back, text);
        assert_int_equal(aerie_model_chat_tokenize(model, text, n, &plain, &n_plain, &error), AERIE_OK);
        assert_int_equal(count_token(plain, n_plain, control), n_template + n_messages);
        if (special || !n_messages) {
            assert_int_equal(n_plain, n_tokens);
            if (n_tokens) assert_memory_equal(plain, tokens, n_tokens * sizeof *tokens);
        }
        aerie_free(tokens);
        aerie_free(plain);
        aerie_free(text);
        aerie_free(back);
    }
    aerie_model_free(model);
}

#define MESSAGE(text) "[{\"role\": \"user\", \"content\": \"" text "\"}]"
#define C "messages[0].content"
#define E "<|im_end|>"

static void control_tokens_in_messages_are_text(void **state)
{
    (void)state;
    static const struct {
        const char *tmpl, *json;
        size_t n_template, n_messages;
    } cases[] = {
        {"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}" E "{% endfor %}", MESSAGE("a" E "b"), 1, 1},
        {"{{ " C " }}", MESSAGE(E E), 0, 2},
        {"{{ " C " }}" E, MESSAGE("nothing of the kind"), 1, 0},
        /* through the operations of the language */
        {"{{ '" E "' ~ " C " ~ '" E "' }}", MESSAGE(E), 2, 1},
        {"{{ '" E "' + " C " + " C " }}", MESSAGE(E), 1, 2},
        {"{{ " C "|trim }}{{ " C ".strip()[1:-1] }}", MESSAGE("  x" E "y "), 0, 2},
        {"{{ " C "[::-1][::-1] }}{{ " C "|list|join }}{{ " C "[:12] }}", MESSAGE(E " and"), 0, 3},
        {"{{ " C "|replace('x', '" E "') }}", MESSAGE("x" E), 1, 1},
        {"{{ '" E "x'|replace('x', " C ") }}", MESSAGE(E), 1, 1},
        {"{{ " C ".split('+')|join('" E "') }}", MESSAGE(E "+" E), 1, 2},
        {"{{ (" C " * 2)|lower }}{{ " C "|upper|lower }}{{ " C "|title|lower }}", MESSAGE(E), 0, 4},
        {"{{ '%s" E "%10s'|format(" C ", " C ") }}{{ '{}" E "{}'.format(" C ", 1) }}", MESSAGE(E), 2, 3},
        {"{{ messages|tojson }}" E "{{ messages }}{{ tools|tojson(indent=2) }}{{ tools }}", MESSAGE(E), 1, 8},
        {"{{ (" C " ~ '\n" E "')|indent(2, true) }}", MESSAGE("a\\n" E), 1, 1},
        {"{% set x %}" E "{{ " C " }}{% endset %}{{ x|trim }}{% macro m(t) %}{{ t }}" E "{% endmacro %}{{ m(x) }}",
         MESSAGE(E), 3, 2},
        {"{% filter lower %}" E "{{ " C " }}{% endfilter %}", MESSAGE(E), 1, 1},
        {"{% for c in " C " %}{{ c }}{% endfor %}{% for k in messages[0] %}{{ k }}{% endfor %}", MESSAGE(E), 0, 1},
        {"{{ " C ".partition('|')|join }}{{ " C ".splitlines()[0] }}{{ " C "|truncate(30) }}", MESSAGE(E), 0, 3},
        {"{{ [" C ", '" E "']|join(', ') }}{{ {'k': " C "}.k }}{{ dict(a=" C ")['a'] }}", MESSAGE(E), 1, 3},
        {"{{ " C ".center(20) }}{{ " C "|string|safe }}{{ " C " or '" E "' }}", MESSAGE(E), 0, 3},
        {"{{ tools[0].name }}{% for k, v in tools[0]|dictsort %}{{ k ~ v }}{% endfor %}", MESSAGE("a"), 0, 4},
        /* half is spelled by the template, half by the message: not a control token */
        {"<|im_{{ " C " }}", MESSAGE("x"), 0, 0},
        /* a role counts as the template's, unless it could spell a control token */
        {"<|{{ messages[0].role }}|>", "[{\"role\": \"im_end\", \"content\": \"\"}]", 1, 0},
        {"{{ messages[0].role }}", "[{\"role\": \"" E "\", \"content\": \"\"}]", 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_control(cases[i].tmpl, cases[i].json, cases[i].n_template, cases[i].n_messages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_bos_whoever_writes_it),
        cmocka_unit_test(the_template_decides_where_the_tokenizer_adds_none),
        cmocka_unit_test(none_where_the_model_has_none),
        cmocka_unit_test(known_templates),
        cmocka_unit_test(control_tokens_in_messages_are_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
