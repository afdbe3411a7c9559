/* answer_format.c - the formats of tool calls and reasoning, and how a template shows which one it uses.
 * Source: the models' own chat templates (how they render an assistant's turn with tool_calls) and their model cards. */
#include <string.h>

#include "serve/parse/answer_int.h"

/* In the tags of DeepSeek, ｜ is U+FF5C and ▁ U+2581. */
#define DS(name) "<｜" name "｜>"
#define DSML "｜DSML｜"
#define M3 "]<]minimax[>["
/* GLM's notation with other tags; some of Hunyuan's models add a suffix to all of them. */
#define HY3(name_, mark, mark2, suffix)                                                                               \
    {.name = name_, .marks = {mark, mark2}, .open = {"<tool_calls" suffix ">"}, .close = "</tool_calls" suffix ">",  \
     .item = "<tool_call" suffix ">", .item_close = "</tool_call" suffix ">", .ends = {"<tool_sep" suffix ">"},      \
     .head = ANSWER_HEAD_NAME, .body = ANSWER_BODY_PARAMS, .param = "<arg_key" suffix ">",                           \
     .key_end = "</arg_key" suffix ">", .value = "<arg_value" suffix ">", .value_close = "</arg_value" suffix ">",   \
     .special = true, .force_arguments = "<tool_calls" suffix ">\n<tool_call" suffix ">%s<tool_sep" suffix ">\n"}
/* DeepSeek 3.2 and 4 write different tags around calls, but read both. */
#define DSML_FORMAT(name_, mark, around)                                                                              \
    {.name = name_, .marks = {DSML, mark}, .open = {"<" DSML "function_calls>", "<" DSML "tool_calls>"},              \
     .close = "</" DSML "function_calls>", .close2 = "</" DSML "tool_calls>", .item = "<" DSML "invoke name=\"",      \
     .item_close = "</" DSML "invoke>", .ends = {"\">"}, .head = ANSWER_HEAD_NAME, .body = ANSWER_BODY_PARAMS,        \
     .param = "<" DSML "parameter name=\"", .key_end = ">", .value_close = "</" DSML "parameter>", .special = true,   \
     .breaks_reasoning = true, .force_arguments = "<" DSML around ">\n<" DSML "invoke name=\"%s\">\n"}

/* In the order in which they are tried: specific formats before general ones. */
static const answer_format formats[] = {
    {.name = "harmony", .marks = {"<|channel|>", "<|message|>", "<|start|>"}, .head = ANSWER_HEAD_HARMONY, .special = true,
     .force_arguments = "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>",
     .triggers = {" to=functions."},
     .heads = {"%s <|constrain|>json<|message|>", "%s<|channel|>commentary <|constrain|>json<|message|>",
               "%s<|channel|>commentary json<|message|>", "%s json<|message|>", "%s<|message|>"}},
    {.name = "kimi", .marks = {"<|tool_call_begin|>"}, .open = {"<|tool_calls_section_begin|>"},
     .close = "<|tool_calls_section_end|>", .item = "<|tool_call_begin|>", .item_close = "<|tool_call_end|>",
     .ends = {"<|tool_call_argument_begin|>"}, .head = ANSWER_HEAD_KIMI, .special = true, .breaks_reasoning = true,
     .force_arguments = "<|tool_calls_section_begin|><|tool_call_begin|>functions.%s:0<|tool_call_argument_begin|>",
     .triggers = {"<|tool_call_begin|>"}, .heads = {"functions.%s:%d<|tool_call_argument_begin|>"}},
    {.name = "deepseek", .marks = {"tool▁calls▁begin"},
     .open = {DS("tool▁calls▁begin"), DS("tool▁call▁begin"), "<｜tool_calls_begin｜>", "<｜tool calls begin｜>"},
     .close = DS("tool▁calls▁end"), .item = DS("tool▁call▁begin"), .item_close = DS("tool▁call▁end"),
     .ends = {DS("tool▁sep")}, .head = ANSWER_HEAD_DEEPSEEK, .list = true, .special = true, .breaks_reasoning = true,
     .force_arguments = DS("tool▁calls▁begin") DS("tool▁call▁begin") "function" DS("tool▁sep") "%s\n```json\n",
     .triggers = {DS("tool▁call▁begin")},
     .heads = {"function" DS("tool▁sep") "%s\n```json\n", "%s" DS("tool▁sep")}},
    DSML_FORMAT("deepseek-dsml", "function_calls", "function_calls"),
    DSML_FORMAT("deepseek-dsml4", DSML, "tool_calls"),
    {.name = "kimi-k3", .marks = {"<|open|>", "<|close|>", "<|sep|>"}, .open = {"<|open|>tools<|sep|>"},
     .close = "<|close|>tools<|sep|>", .item = "<|open|>call tool=\"", .item_close = "<|close|>call<|sep|>", .ends = {"\""},
     .attributes = "<|sep|>", .head = ANSWER_HEAD_NAME, .body = ANSWER_BODY_PARAMS, .param = "<|open|>argument key=\"",
     .key_end = "<|sep|>", .value_close = "<|close|>argument<|sep|>", .escaped = true,
     .block = "<|open|>json type=\"object\"<|sep|>", .block_close = "<|close|>json<|sep|>", .special = true,
     .breaks_reasoning = true,
     .force_arguments = "<|open|>tools<|sep|><|open|>call tool=\"%s\"<|sep|><|open|>json type=\"object\"<|sep|>"},
    {.name = "minimax-m3", .marks = {M3, "<tool_call>"}, .open = {M3 "<tool_call>"}, .close = M3 "</tool_call>",
     .item = M3 "<invoke name=\"", .item_close = M3 "</invoke>", .ends = {"\">"}, .head = ANSWER_HEAD_NAME,
     .body = ANSWER_BODY_XML, .param = M3 "<", .key_end = ">", .special = true, .breaks_reasoning = true,
     .force_arguments = M3 "<tool_call>\n" M3 "<invoke name=\"%s\">"},
    HY3("hy3", "tool_sep", ":opensource", ":opensource"),
    HY3("hy3-plain", "tool_sep", "arg_key", ""),
    {.name = "atem", .marks = {"<atem:invoke"}, .open = {"<atem:function_calls>"}, .close = "</atem:function_calls>",
     .item = "<atem:invoke name=\"", .item_close = "</atem:invoke>", .ends = {"\">"}, .head = ANSWER_HEAD_NAME,
     .body = ANSWER_BODY_PARAMS, .param = "<atem:parameter name=\"", .key_end = "\">", .value_close = "</atem:parameter>",
     .special = true, .force_arguments = "<atem:function_calls>\n<atem:invoke name=\"%s\">\n"},
    {.name = "minicpm5", .marks = {"<function name=\"", "<param name=\""}, .open = {"<function name=\""},
     .item = "<function name=\"", .item_close = "</function>", .ends = {"\">"}, .head = ANSWER_HEAD_NAME,
     .body = ANSWER_BODY_PARAMS, .param = "<param name=\"", .key_end = "\">", .value_close = "</param>", .cdata = true,
     .special = true, .force_arguments = "<function name=\"%s\">"},
    {.name = "minimax", .marks = {"minimax:tool_call"}, .open = {"<minimax:tool_call>"}, .close = "</minimax:tool_call>",
     .item = "<invoke name=\"", .item_close = "</invoke>", .ends = {"\">"}, .head = ANSWER_HEAD_NAME,
     .body = ANSWER_BODY_PARAMS, .param = "<parameter name=\"", .key_end = "\">", .value_close = "</parameter>",
     .special = true, .force_arguments = "<minimax:tool_call>\n<invoke name=\"%s\">\n"},
    {.name = "seed", .marks = {"seed:tool_call"}, .open = {"<seed:tool_call>"}, .close = "</seed:tool_call>", .function = true,
     .json = true, .head = ANSWER_HEAD_JSON, .special = true, .force_object = "<seed:tool_call>\n"},
    {.name = "gemma4", .marks = {"<|tool_call>"}, .open = {"<|tool_call>"}, .close = "<tool_call|>", .item = "call:",
     .ends = {"{"}, .head = ANSWER_HEAD_NAME, .body = ANSWER_BODY_LOOSE, .mark = "<|\"|>", .special = true,
     .breaks_reasoning = true, .force_arguments = "<|tool_call>call:%s"},
    {.name = "functiongemma", .marks = {"<start_function_call>"}, .open = {"<start_function_call>"},
     .close = "<end_function_call>", .item = "call:", .ends = {"{"}, .head = ANSWER_HEAD_NAME, .body = ANSWER_BODY_LOOSE,
     .mark = "<escape>", .special = true, .breaks_reasoning = true, .force_arguments = "<start_function_call>call:%s"},
    {.name = "apertus", .marks = {"<|tools_prefix|>"}, .open = {"<|tools_prefix|>"}, .close = "<|tools_suffix|>", .json = true,
     .keyed = true, .list = true, .special = true, .breaks_reasoning = true, .force_object = "<|tools_prefix|>[",
     .heads = {"%l"}},
    {.name = "command-r7b", .marks = {"<|START_ACTION|>"}, .open = {"<|START_ACTION|>"}, .close = "<|END_ACTION|>",
     .json = true, .list = true, .special = true, .breaks_reasoning = true, .force_object = "<|START_ACTION|>[\n    ",
     .name_key = "tool_name", .arguments_key = "parameters",
     .heads = {"%l", "\n%l"}},
    {.name = "command-r", .marks = {"Action:", "tool_name"}, .open = {"Action:\n```json", "Action: ```json"}, .close = "```",
     .json = true, .list = true, .force_object = "Action:\n```json\n[\n    ", .name_key = "tool_name",
     .arguments_key = "parameters",
     .heads = {"\n%l"}},
    {.name = "mistral", .marks = {"[TOOL_CALLS]"}, .open = {"[TOOL_CALLS]"}, .ends = {"[ARGS]", "[CALL_ID]", "{"}, .json = true,
     .list = true, .head = ANSWER_HEAD_NAME, .special = true, .breaks_reasoning = true, .short_ids = true,
     .force_arguments = "[TOOL_CALLS]%s[ARGS]",
     .heads = {"%s[ARGS]", "%s", "%l", " %l"}},
    {.name = "gigachat", .marks = {"'function call'", "<|role_sep|>"}, .open = {"function call<|role_sep|>\n"}, .json = true,
     .special = true, .force_object = "function call<|role_sep|>\n",
     .heads = {"%o"}},
    {.name = "gigachat3.1", .marks = {"<|function_call|>"}, .open = {"<|function_call|>"}, .json = true, .special = true,
     .breaks_reasoning = true, .force_object = "<|function_call|>", .heads = {"%o"}},
    {.name = "lfm2", .marks = {"<|tool_call_start|>"}, .open = {"<|tool_call_start|>"}, .close = "<|tool_call_end|>",
     .list = true, .json = true, .head = ANSWER_HEAD_PYTHON, .special = true, .force_object = "<|tool_call_start|>["},
    {.name = "granite", .marks = {"<|tool_call|>"}, .open = {"<|tool_call|>"}, .close = "<|/tool_call|>", .json = true,
     .list = true, .special = true, .force_object = "<|tool_call|>[",
     .heads = {"%l", "\n%l", " %l"}},
    {.name = "nemotron", .marks = {"<TOOLCALL>"}, .open = {"<TOOLCALL>"}, .close = "</TOOLCALL>", .json = true, .list = true,
     .special = true, .force_object = "<TOOLCALL>[",
     .heads = {"%l", "\n%l", " %l"}},
    {.name = "tool_calls", .marks = {"<tool_calls>"}, .open = {"<tool_calls>"}, .close = "</tool_calls>", .json = true,
     .list = true, .special = true, .force_object = "<tool_calls>\n", .heads = {"\n%o", "%o", " %o", "%l", "\n%l"}},
    {.name = "glm", .marks = {"<arg_key>"}, .open = {"<tool_call>"}, .close = "</tool_call>", .json = true,
     .ends = {"\n", "<arg_key>", "</tool_call>"}, .head = ANSWER_HEAD_NAME, .body = ANSWER_BODY_PARAMS, .param = "<arg_key>",
     .key_end = "</arg_key>", .value = "<arg_value>", .value_close = "</arg_value>", .special = true,
     .force_object = "<tool_call>"},
    {.name = "qwen3-coder", .marks = {"<tool_call>", "<function="}, .open = {"<tool_call>", "<function="},
     .close = "</tool_call>", .function = true, .json = true, .special = true, .force_object = "<tool_call>\n"},
    {.name = "hermes", .marks = {"<tool_call>"}, .open = {"<tool_call>"}, .close = "</tool_call>", .function = true,
     .json = true, .list = true, .special = true, .force_object = "<tool_call>\n",
     .heads = {"\n%o", "%o", " %o"}},
    {.name = "functools", .marks = {"functools["}, .open = {"functools"}, .json = true, .list = true,
     .force_object = "functools[", .heads = {"%l"}},
    {.name = "functionary", .marks = {"<function", "python_tag", "function_name"}, .open = {"<function="}, .function = true,
     .force_arguments = "<function=%s>"},
    {.name = "llama3", .marks = {"\"parameters\"", "<|start_header_id|>"}, .open = {"<|python_tag|>"}, .json = true,
     .bare = true, .list = true, .head = ANSWER_HEAD_PYTHON, .special = true, .force_object = "",
     .arguments_key = "parameters"},
    {.name = "tool_code", .marks = {"tool_code"}, .open = {"```tool_code"}, .close = "```", .head = ANSWER_HEAD_PYTHON,
     .force_object = NULL},
    /* chosen by name only, because templates show no mark of it */
    {.name = "pythonic", .open = {"<|python_start|>"}, .close = "<|python_end|>", .bare = true, .list = true,
     .head = ANSWER_HEAD_PYTHON, .special = true},
    {.name = "generic", .json = true, .bare = true, .list = true, .force_object = ""},
    {.name = "plain"},
};

const answer_format answer_function_tags = {
    .name = "function", .item = "<function=", .item_close = "</function>", .ends = {">"}, .head = ANSWER_HEAD_NAME,
    .body = ANSWER_BODY_PARAMS, .param = "<parameter=", .key_end = ">", .value_close = "</parameter>", .lines = true,
};

static const answer_tags tags_known[] = {
    {.name = "harmony", .marks = {"<|channel|>"}, .begin = "<|channel|>final<|message|>", .special = true},
    {.name = "kimi-k3", .marks = {"<|open|>"}, .open = {"<|open|>think<|sep|>"}, .close = "<|close|>think<|sep|>",
     .skip = {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"},
     .then = "<|close|>think<|sep|><|open|>response<|sep|>",
     .begin = "<|open|>response<|sep|>", .special = true, .anywhere = true},
    {.name = "minimax-m3", .marks = {"<mm:think>"}, .open = {"<mm:think>"}, .close = "</mm:think>", .special = true},
    {.name = "hy3", .marks = {":opensource"}, .open = {"<think:opensource>"}, .close = "</think:opensource>",
     .special = true},
    {.name = "hy3-plain", .marks = {"<think{}>"}, .open = {"<think>"}, .close = "</think>", .special = true},
    {.name = "atem", .marks = {"to=self<|message|>"}, .open = {" to=self<|message|>"}, .close = "<|eom|>",
     .skip = {"<|start|>assistant", "<|eom|>", "<|eot|>"}, .recipient = "to=", .recipient_end = "<|message|>",
     .begin = " to=user<|message|>", .special = true},
    {.name = "gemma", .marks = {"<|channel>"}, .open = {"<|channel>thought"}, .close = "<channel|>", .special = true,
     .anywhere = true},
    {.name = "think-brackets", .marks = {"[THINK]"}, .open = {"[THINK]"}, .close = "[/THINK]", .special = true},
    {.name = "seed", .marks = {"<seed:think>"}, .open = {"<seed:think>"}, .close = "</seed:think>", .special = true},
    {.name = "command-r", .marks = {"<|START_THINKING|>", "<|START_RESPONSE|>"}, .open = {"<|START_THINKING|>"},
     .close = "<|END_THINKING|>", .skip = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"},
     .then = "<|END_THINKING|><|START_RESPONSE|>", .begin = "<|START_RESPONSE|>",
     .special = true, .anywhere = true},
    {.name = "apertus", .marks = {"<|inner_prefix|>"}, .open = {"<|inner_prefix|>"}, .close = "<|inner_suffix|>",
     .special = true, .anywhere = true},
    {.name = "granite", .marks = {"<response></response>"}, .open = {"<think>"}, .close = "</think>",
     .skip = {"<response>", "</response>"}},
    {.name = "think", .marks = {"<think>", "</think>"}, .open = {"<think>"}, .close = "</think>", .special = true},
};

#define N_FORMATS (sizeof formats / sizeof *formats)
#define N_TAGS (sizeof tags_known / sizeof *tags_known)

const answer_format *answer_format_at(size_t i) { return i < N_FORMATS ? &formats[i] : NULL; }
const char *answer_format_name(const answer_format *format) { return format->name; }
const answer_tags *answer_tags_at(size_t i) { return i < N_TAGS ? &tags_known[i] : NULL; }
const char *answer_tags_name(const answer_tags *tags) { return tags ? tags->name : "none"; }

const answer_format *answer_format_named(const char *name)
{
    for (size_t i = 0; i < N_FORMATS; i++)
        if (!strcmp(formats[i].name, name)) return &formats[i];
    return NULL;
}

const answer_tags *answer_tags_named(const char *name)
{
    for (size_t i = 0; i < N_TAGS; i++)
        if (!strcmp(tags_known[i].name, name)) return &tags_known[i];
    return NULL;
}

static bool contains(const char *text, size_t n, const char *what)
{
    const size_t n_what = strlen(what);
    while (n >= n_what) {
        const char *at = memchr(text, what[0], n - n_what + 1);
        if (!at) return false;
        if (!memcmp(at, what, n_what)) return true;
        n -= (size_t)(at - text) + 1;
        text = at + 1;
    }
    return false;
}

static bool has_marks(const answer_format *format, const char *text, size_t n)
{
    for (size_t i = 0; i < 3 && format->marks[i]; i++)
        if (!contains(text, n, format->marks[i])) return false;
    return format->marks[0] != NULL;
}

answer_style answer_style_detect(const char *text, size_t n)
{
    answer_style style = {.format = &formats[N_FORMATS - 1]};
    if (!text) return style;
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (!has_marks(&formats[i], text, n)) continue;
        style.format = &formats[i];
        break;
    }
    /* LFM2's templates expect calls as text from the caller */
    if (!strcmp(style.format->name, "plain") && contains(text, n, "List of tools: ["))
        style.format = answer_format_named("lfm2");
    for (size_t i = 0; i < N_TAGS && !style.tags; i++)
        for (size_t k = 0; k < 2 && tags_known[i].marks[k]; k++)
            if (contains(text, n, tags_known[i].marks[k])) style.tags = &tags_known[i];
    return style;
}

bool answer_style_wants_short_ids(const answer_style *style) { return style->format->short_ids; }
bool answer_style_needs_special(const answer_style *style)
{
    return style->format->special || (style->tags && style->tags->special);
}
