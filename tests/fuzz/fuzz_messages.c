/* fuzz_messages.c - any conversation under templates of the usual kinds: with tools, parts of content, reasoning, merging.
 *
 * Input: a byte that picks the template, then JSON of messages, and after a byte 1E each of tools and of variables. When that
 * is refused, the input is cut at zero bytes into messages of plain text. Looks for crashes, hangs, leaks, failures without a
 * sentence, text that is not UTF-8, and a role or text of a plain conversation that the simplest template loses.
 */
#include <stdlib.h>
#include <string.h>

#include "text/template/chat.h"
#include "text/template/value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PLAIN 0
static const char *const templates[] = {
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}",
    /* system apart, turns that must alternate, content trimmed */
    "{{ bos_token }}{% if messages and messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system = messages[0]['content'] | trim %}{% else %}{% set loop_messages = messages %}{% endif %}"
    "{% for m in loop_messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}"
    "{% if loop.first and system is defined %}{{ '<<SYS>>\\n' + system + '\\n<</SYS>>\\n' }}{% endif %}"
    "{{ m.content | trim }}{{ eos_token if m.role == 'assistant' }}{% endfor %}",
    /* tools as JSON, calls, and a namespace that finds the last question */
    "{%- if tools %}{{- '# Tools\\n' }}{%- for tool in tools %}{{- tool | tojson }}{{ '\\n' }}{%- endfor %}{%- endif %}"
    "{%- set ns = namespace(last=-1, multi=true) %}"
    "{%- for m in messages[::-1] %}{%- set index = (messages | length - 1) - loop.index0 %}"
    "{%- if ns.multi and m.role == 'user' and m.content is string and not m.content.startswith('<tool_response>') %}"
    "{%- set ns.multi = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}"
    "{%- for m in messages %}{%- set text = m.content if m.content is string else '' %}"
    "{%- if '</think>' in text %}"
    "{%- set reason = text.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
    "{%- set text = text.split('</think>')[-1].lstrip('\\n') %}"
    "{%- if loop.index0 > ns.last %}{{- reason }}{%- endif %}{%- endif %}"
    "{{- '<|im_start|>' + m.role + '\\n' + text }}"
    "{%- for call in m.tool_calls or [] %}{%- set f = call.function if call.function else call %}"
    "{{- '{\"name\": \"' ~ f.name ~ '\", \"arguments\": ' }}"
    "{{- f.arguments if f.arguments is string else f.arguments | tojson(indent=2) }}{{- '}' }}{%- endfor %}"
    "{{- '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}",
    /* parts of content, macros, schemas of tools walked */
    "{%- macro part(c) -%}{%- if c is string -%}{{ c }}{%- elif c is mapping -%}{{ c.text | default('[' ~ c.type ~ ']') }}"
    "{%- elif c is iterable -%}{%- for x in c -%}{{ part(x) }}{%- if not loop.last %}, {% endif -%}{%- endfor -%}"
    "{%- else -%}{{ c }}{%- endif -%}{%- endmacro -%}"
    "{%- for t in tools or [] -%}type {{ t.function.name }} = (_: {\n"
    "{%- for name, p in t.function.parameters.properties.items() %}"
    "{{ name | upper }}{{ '?' if name not in (t.function.parameters.required or []) }}: "
    "{{ p.enum | map('string') | join(' | ') if p.enum else p.type }},\n{%- endfor -%}}) => any;\n{%- endfor -%}"
    "{%- for m in messages | selectattr('role', 'ne', 'system') | list -%}{{ m.role | title }}: {{ part(m.content) }}"
    "{{ m.get('name', '') }}{{ m | length }}{%- if loop.previtem is defined and loop.previtem.role == m.role %}+{% endif -%}"
    "{{ loop.cycle('a', 'b') }}\n{%- endfor -%}"
    "{{ messages | map(attribute='role') | unique | sort | join(',') }}{{ strftime_now('%d %b %Y') }}",
    /* everything written out, in ways that use every kind of value */
    "{% for k, v in (messages[0] if messages else {}) | dictsort %}{{ k }}={{ v }}|{{ v | string | length }};{% endfor %}"
    "{{ messages | tojson }}{{ messages | string | replace('\\n', ' ') | truncate(100) }}"
    "{% for m in messages %}{{ m }}{{ m.content | wordcount if m.content is string }}"
    "{{ m.content[:20] if m.content is string }}{{ m.content | first | default('', true) if m.content }}"
    "{{ (m.content | int) + 1 if m.content is string }}{{ '%s' | format(m.role) }}"
    "{{ m.content == messages[-1].content }}{% endfor %}",
};
enum { N_TEMPLATES = sizeof templates / sizeof templates[0] };

static void check_text(const ae_buf *out)
{
    for (size_t i = 0; i < out->n;) {
        const size_t n = ae_utf8_valid(out->data + i, out->n - i);
        if (!n) abort();
        i += n;
    }
}

static void check_status(aerie_status status, const aerie_error *error, const ae_buf *out)
{
    if (status != AERIE_OK && (out->n || !error->text[0] || status == AERIE_ERROR_INTERNAL)) abort();
    check_text(out);
}

/* The next part of the input as a document; *left bytes are after it. */
static ae_chat_json take_json(const char **data, size_t *left, const char *name)
{
    const char *end = *left ? memchr(*data, 0x1e, *left) : NULL;
    const ae_chat_json part = {*left ? *data : NULL, end ? (size_t)(end - *data) : *left, name};
    *data = end ? end + 1 : *data + part.n;
    *left -= part.n + (end != NULL);
    return part;
}

static bool render_json(unsigned which, const char *data, size_t size)
{
    ae_chat_options options = {.bos_text = "<s>", .eos_text = "</s>", .add_generation_prompt = true};
    ae_buf out = {0};
    aerie_error error = {0};
    const ae_chat_json messages = take_json(&data, &size, "messages");
    options.tools = take_json(&data, &size, "tools");
    options.variables = take_json(&data, &size, "variables");
    const aerie_status status =
        ae_chat_render_json(templates[which], strlen(templates[which]), messages, &options, &out, &error);
    check_status(status, &error, &out);
    ae_buf_free(&out);
    return status == AERIE_OK;
}

/* role, zero byte, content, zero byte, ... */
static void render_plain(unsigned which, const uint8_t *data, size_t size)
{
    ae_chat_message messages[32];
    ae_buf out = {0};
    aerie_error error = {0};
    size_t n = 0, length = 0;
    char *text = malloc(size + 1);
    if (!text) abort();
    memcpy(text, data, size);
    text[size] = 0;
    for (char *at = text; n < 32 && at < text + size; n++) {
        messages[n].role = at;
        at += strlen(at) + 1;
        messages[n].content = at < text + size ? at : "";
        if (at < text + size) at += strlen(at) + 1;
        length += strlen(messages[n].role) + strlen(messages[n].content) + strlen("<||><|end|>");
    }
    const ae_chat_options options = {.bos_text = "<s>", .eos_text = "</s>", .add_generation_prompt = true};
    const aerie_status status = ae_chat_render(templates[which], messages, n, &options, &out, &error);
    check_status(status, &error, &out);
    if (which == PLAIN && (status != AERIE_OK || out.n < length)) abort(); /* bad bytes become longer, never shorter */
    ae_buf_free(&out);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    const unsigned which = data[0] % N_TEMPLATES;
    if (!render_json(which, (const char *)data + 1, size - 1)) render_plain(which, data + 1, size - 1);
    return 0;
}
