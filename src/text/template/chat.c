/* chat.c - conversations to prompt text: the values that a chat template expects, then jinja.h.
 *
 * Source of the names: what tokenizers hand to their templates (messages, tools, documents, bos_token, eos_token,
 * add_generation_prompt).
 */
#include "text/template/chat.h"

#include <stdio.h>
#include <string.h>

#include "text/template/jinja.h"
#include "text/template/value_json.h"

static bool put_text(ae_value_heap *heap, ae_value object, const char *key, const char *text)
{
    ae_value value;
    if (!text) text = "";
    return ae_value_string(heap, text, strlen(text), &value) && ae_value_object_put(heap, object, key, value);
}

/* Marks a role as the template's own text: it names a part of the layout, and some templates spell control tokens with it ("<|"
 * + role + "|>"). A role that could spell a token by itself is not marked. */
static void trust_role(ae_value role)
{
    if (role.kind != AE_VALUE_STRING) return;
    ae_string *s = (ae_string *)role.as.string; /* the string belongs to this conversation, and nothing else refers to it yet */
    for (size_t i = 0; i < s->n; i++) {
        const char c = s->data[i];
        if (!((c | 32) >= 'a' && (c | 32) <= 'z') && !(c >= '0' && c <= '9') && c != '_' && c != '-') return;
    }
    s->origin = AE_ORIGIN_TEMPLATE;
}

static bool build_messages(ae_value_heap *heap, const ae_chat_message *messages, size_t n_messages, ae_value *list)
{
    ae_value message;
    heap->is_data = true;
    if (!ae_value_array(heap, AE_ARRAY_LIST, n_messages, list)) return false;
    list->as.array->is_data = true;
    for (size_t i = 0; i < n_messages; i++) {
        if (!ae_value_object(heap, &message) || !put_text(heap, message, "role", messages[i].role) ||
            !put_text(heap, message, "content", messages[i].content) || !ae_value_array_add(heap, *list, message))
            return false;
        trust_role(message.as.object->entries[0].value);
    }
    return true;
}

static bool build_root(ae_value_heap *heap, ae_value messages, const ae_chat_options *options, ae_value *root)
{
    heap->is_data = false;
    const bool ok = ae_value_object(heap, root) && ae_value_object_put(heap, *root, "messages", messages) &&
                    ae_value_object_put(heap, *root, "tools", ae_value_none()) &&
                    ae_value_object_put(heap, *root, "documents", ae_value_none()) &&
                    put_text(heap, *root, "bos_token", options->bos_text) &&
                    put_text(heap, *root, "eos_token", options->eos_text) &&
                    ae_value_object_put(heap, *root, "add_generation_prompt", ae_value_bool(options->add_generation_prompt));
    heap->is_data = true;
    return ok;
}

/* Some templates walk over all messages for each message, and looking at a text costs steps in proportion to its length; long
 * conversations must not reach the limit that is meant for runaway templates. */
static uint64_t steps_for(size_t n_messages, size_t n_bytes)
{
    uint64_t n = n_messages < 1000 ? n_messages : 1000;
    return ae_template_options_default().max_steps + 16 * n * n + n_bytes;
}

/* Puts the template's name before its message. */
static aerie_status named(aerie_status status, const ae_chat_options *options, aerie_error *error)
{
    char sentence[sizeof error->text];
    if (status == AERIE_OK || !options->template_name || !error || error->status != status) return status;
    memcpy(sentence, error->text, sizeof sentence);
    return ae_fail(error, status, "%s: %s", options->template_name, sentence[0] ? sentence : ae_status_text(status));
}

/* ---- JSON --------------------------------------------------------------------------------------------------- */

static bool is_array(ae_value v) { return v.kind == AE_VALUE_ARRAY; }
static bool is_object(ae_value v) { return v.kind == AE_VALUE_OBJECT; }

/* Returns member `key`, or NULL; null counts as absent. */
static const ae_value *member(ae_value object, const char *key)
{
    const ae_object *o = object.as.object;
    for (size_t i = 0; i < o->n; i++) {
        const ae_entry *e = &o->entries[i];
        if (e->key.kind == AE_VALUE_STRING && ae_string_is(e->key.as.string, key))
            return e->value.kind == AE_VALUE_NONE ? NULL : &e->value;
    }
    return NULL;
}

static aerie_status put_all(ae_value_heap *heap, ae_value root, ae_value from, aerie_error *error)
{
    const ae_object *object = from.as.object;
    for (size_t i = 0; i < object->n; i++) {
        if (!ae_value_object_set(heap, root, object->entries[i].key, object->entries[i].value))
            return ae_fail_memory(error, "the variables of a template", heap->arena.used_bytes);
    }
    return AERIE_OK;
}

/* Reads the list of messages; the document's other parts go to *tools and *kwargs, which are undefined if absent. */
static aerie_status read_messages(ae_value_heap *heap, const ae_chat_json *json, ae_value *list, ae_value *tools,
                                  ae_value *kwargs, aerie_error *error)
{
    heap->is_data = true;
    AE_TRY(ae_value_parse_json(heap, json->text, json->n, json->name, list, error));
    if (is_object(*list)) {
        const ae_value *messages = member(*list, "messages"), *own_tools = member(*list, "tools"),
                       *own_kwargs = member(*list, "chat_template_kwargs");
        if (own_tools) *tools = *own_tools;
        if (own_kwargs) *kwargs = *own_kwargs;
        if (own_tools && !is_array(*own_tools))
            return ae_fail(error, AERIE_ERROR_FORMAT, "%s: \"tools\" is not a list", json->name);
        if (own_kwargs && !is_object(*own_kwargs))
            return ae_fail(error, AERIE_ERROR_FORMAT, "%s: \"chat_template_kwargs\" is not an object", json->name);
        *list = messages ? *messages : ae_value_none();
    }
    if (!is_array(*list))
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s: neither a list of messages nor an object with the list as \"messages\"",
                       json->name);
    for (size_t i = 0; i < list->as.array->n; i++) {
        if (!is_object(list->as.array->items[i]))
            return ae_fail(error, AERIE_ERROR_FORMAT,
                           "%s: message %zu is not an object such as {\"role\": \"user\", \"content\": \"...\"}", json->name,
                           i + 1);
        const ae_value *role = member(list->as.array->items[i], "role");
        if (role) trust_role(*role);
    }
    return AERIE_OK;
}

/* Sets tools and variables: first those of a document of messages, then those of the options. */
static aerie_status put_options(ae_value_heap *heap, ae_value root, ae_value own_tools, ae_value kwargs,
                                const ae_chat_options *options, aerie_error *error)
{
    const ae_chat_json *tools = &options->tools, *variables = &options->variables;
    ae_value more;
    if (tools->text) {
        AE_TRY(ae_value_parse_json(heap, tools->text, tools->n, tools->name, &own_tools, error));
        if (!is_array(own_tools)) return ae_fail(error, AERIE_ERROR_FORMAT, "%s: not a list of tools", tools->name);
    }
    /* An empty list counts as no tools, as in every API that has tools. */
    const bool has_tools = is_array(own_tools) && own_tools.as.array->n;
    if (has_tools && !ae_value_object_put(heap, root, "tools", own_tools))
        return ae_fail_memory(error, "the tools of a chat", heap->arena.used_bytes);
    if (is_object(kwargs)) AE_TRY(put_all(heap, root, kwargs, error));
    if (!variables->text) return AERIE_OK;
    heap->is_data = false; /* these values come from the caller, not from a message */
    AE_TRY(ae_value_parse_json(heap, variables->text, variables->n, variables->name, &more, error));
    if (!is_object(more)) return ae_fail(error, AERIE_ERROR_FORMAT, "%s: not a JSON object", variables->name);
    return put_all(heap, root, more, error);
}

/* ---- Rendering ---------------------------------------------------------------------------------------------- */

/* Sets a variable to what a small template makes of the others. data: the text comes from messages and tools. */
static bool put_rendered(ae_value_heap *heap, ae_value root, const char *key, const char *text, bool data)
{
    ae_template *tmpl = NULL;
    ae_buf out = {0};
    ae_value value;
    const ae_template_options limits = ae_template_options_default();
    bool ok = ae_template_parse(&tmpl, text, strlen(text), NULL) == AERIE_OK &&
              ae_template_render(tmpl, root, &limits, &out, NULL, NULL) == AERIE_OK;
    heap->is_data = data;
    ok = ok && ae_value_string(heap, out.n ? out.data : "", out.n, &value) && ae_value_object_put(heap, root, key, value);
    heap->is_data = true;
    ae_template_free(tmpl);
    ae_buf_free(&out);
    return ok;
}

/* Templates that are older than `tools` want them as text in `functions`, and the date in `datetime` (firefunction-v2). Only
 * the day is given: a prompt that changes every second would never be found in a cache. */
static bool put_old_names(ae_value_heap *heap, ae_value root)
{
    return (member(root, "functions") ||
            put_rendered(heap, root, "functions", "{{ (tools or []) | tojson(indent=4) }}", true)) &&
           (member(root, "datetime") || put_rendered(heap, root, "datetime", "{{ strftime_now('%Y-%m-%d') }}", false));
}

/* Some templates for tools walk over them even if there are none, which fails on an undefined value: they get an empty list. */
static aerie_status render_parsed(const ae_template *tmpl, ae_value_heap *heap, ae_value root,
                                  const ae_template_options *limits, const ae_chat_options *options, ae_buf *out,
                                  aerie_error *error)
{
    ae_value list;
    aerie_error again;
    const aerie_status status = ae_template_render(tmpl, root, limits, out, options->values, error);
    if (status != AERIE_ERROR_FORMAT) return status;
    if (!member(root, "tools") && ae_value_array(heap, AE_ARRAY_LIST, 0, &list) &&
        ae_value_object_put(heap, root, "tools", list) &&
        ae_template_render(tmpl, root, limits, out, options->values, &again) == AERIE_OK)
        return AERIE_OK;
    if (!put_old_names(heap, root)) return status;
    return ae_template_render(tmpl, root, limits, out, options->values, &again) == AERIE_OK ? AERIE_OK : status;
}

static bool has_tools(ae_value root)
{
    const ae_value *tools = member(root, "tools");
    return tools && is_array(*tools) && tools->as.array->n;
}

static aerie_status render(const char *template_text, size_t n_template, ae_value_heap *heap, ae_value root, size_t n_messages,
                           const ae_chat_options *options, ae_buf *out, aerie_error *error)
{
    ae_template *tmpl;
    ae_template_options limits = ae_template_options_default();
    if (options->tool_template && has_tools(root)) {
        template_text = options->tool_template;
        n_template = strlen(template_text);
    }
    limits.max_steps = steps_for(n_messages, heap->arena.used_bytes);
    AE_TRY(named(ae_template_parse(&tmpl, template_text, n_template, error), options, error));
    const aerie_status status = render_parsed(tmpl, heap, root, &limits, options, out, error);
    ae_template_free(tmpl);
    return named(status, options, error);
}

/* Whether the sentence is a template's "a 'dict' has no 'KEY'". */
static bool is_about(const char *sentence, const char *key)
{
    char end[64];
    const size_t n = strlen(sentence), n_end = (size_t)snprintf(end, sizeof end, "a 'dict' has no '%s'", key);
    return n >= n_end && strcmp(sentence + n - n_end, end) == 0;
}

/* A template that failed because a dict lacks a member: if it may be a message, the error names that first, since whoever wrote
 * the messages can change them, and not the template. */
static aerie_status name_message(aerie_status status, ae_value list, const char *name, aerie_error *error)
{
    static const char *const keys[] = {"role", "content", "tool_call_id", "name"}; /* the last two: of results of tools */
    char sentence[sizeof error->text];
    if (status != AERIE_ERROR_FORMAT || !error || error->status != status) return status;
    memcpy(sentence, error->text, sizeof sentence);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        if (!is_about(sentence, keys[k])) continue;
        for (size_t i = 0; i < list.as.array->n; i++) {
            const ae_value *role = member(list.as.array->items[i], "role");
            const bool result = role && role->kind == AE_VALUE_STRING && ae_string_is(role->as.string, "tool");
            if (member(list.as.array->items[i], keys[k]) || (k > 1 && !result)) continue;
            return ae_fail(error, status, "%s: messages[%zu] has no \"%s\" (%s)", name, i, keys[k], sentence);
        }
    }
    return status;
}

aerie_status ae_chat_render(const char *template_text, const ae_chat_message *messages, size_t n_messages,
                            const ae_chat_options *options, ae_buf *out, aerie_error *error)
{
    ae_value_heap heap;
    ae_value list, root;
    ae_value_heap_init(&heap, SIZE_MAX); /* no limit: about as large as the conversation, which the caller has in memory */
    aerie_status status = AERIE_OK;
    if (!build_messages(&heap, messages, n_messages, &list) || !build_root(&heap, list, options, &root))
        status = ae_fail_memory(error, "the messages of a chat", heap.arena.used_bytes);
    if (status == AERIE_OK)
        status = put_options(&heap, root, ae_value_undefined(), ae_value_undefined(), options, error);
    if (status == AERIE_OK)
        status = render(template_text, strlen(template_text), &heap, root, n_messages, options, out, error);
    ae_value_heap_free(&heap);
    return status;
}

aerie_status ae_chat_render_json(const char *template_text, size_t n_template, ae_chat_json messages,
                                 const ae_chat_options *options, ae_buf *out, aerie_error *error)
{
    ae_value_heap heap;
    ae_value list, root, tools = ae_value_undefined(), kwargs = ae_value_undefined();
    ae_value_heap_init(&heap, SIZE_MAX);
    aerie_status status = read_messages(&heap, &messages, &list, &tools, &kwargs, error);
    if (status == AERIE_OK && !build_root(&heap, list, options, &root))
        status = ae_fail_memory(error, "the messages of a chat", heap.arena.used_bytes);
    if (status == AERIE_OK) status = put_options(&heap, root, tools, kwargs, options, error);
    if (status == AERIE_OK)
        status = name_message(render(template_text, n_template, &heap, root, list.as.array->n, options, out, error), list,
                              messages.name, error);
    ae_value_heap_free(&heap);
    return status;
}
