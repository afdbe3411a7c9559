/* chat.c - conversations to prompt text: the values that a chat template expects, then jinja.h.
 *
 * Source of the names: what tokenizers hand to their templates (messages, bos_token, eos_token,
 * add_generation_prompt).
 */
#include "text/chat.h"

#include "text/jinja.h"

static bool put_text(ae_value_heap *heap, ae_value object, const char *key, const char *text)
{
    ae_value value;
    if (!text) text = "";
    return ae_value_string(heap, text, strlen(text), &value) && ae_value_object_put(heap, object, key, value);
}

static bool build_root(ae_value_heap *heap, const ae_chat_message *messages, size_t n_messages,
                       const ae_chat_options *options, ae_value *root)
{
    ae_value list, message;
    if (!ae_value_object(heap, root) || !ae_value_array(heap, AE_ARRAY_LIST, n_messages, &list)) return false;
    for (size_t i = 0; i < n_messages; i++) {
        if (!ae_value_object(heap, &message) || !put_text(heap, message, "role", messages[i].role) ||
            !put_text(heap, message, "content", messages[i].content) || !ae_value_array_add(heap, list, message))
            return false;
    }
    return ae_value_object_put(heap, *root, "messages", list) && put_text(heap, *root, "bos_token", options->bos_text) &&
           put_text(heap, *root, "eos_token", options->eos_text) &&
           ae_value_object_put(heap, *root, "add_generation_prompt", ae_value_bool(options->add_generation_prompt));
}

/* Some templates walk over all messages for each message; long conversations must not hit the limit
 * that is meant for runaway templates. */
static uint64_t steps_for(size_t n_messages)
{
    uint64_t n = n_messages < 1000 ? n_messages : 1000;
    return ae_template_options_default().max_steps + 16 * n * n;
}

aerie_status ae_chat_render(const char *template_text, const ae_chat_message *messages, size_t n_messages,
                            const ae_chat_options *options, ae_buf *out, aerie_error *error)
{
    ae_template *tmpl;
    ae_value_heap heap;
    ae_value root;
    ae_template_options limits = ae_template_options_default();
    limits.max_steps = steps_for(n_messages);
    AE_TRY(ae_template_parse(&tmpl, template_text, strlen(template_text), error));
    ae_value_heap_init(&heap, SIZE_MAX); /* as large as the conversation that the caller has in memory */
    aerie_status status = build_root(&heap, messages, n_messages, options, &root)
                              ? ae_template_render(tmpl, root, &limits, out, error)
                              : ae_fail_memory(error, "the messages of a chat", heap.arena.used_bytes);
    ae_value_heap_free(&heap);
    ae_template_free(tmpl);
    return status;
}
