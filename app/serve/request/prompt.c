/* prompt.c - makes prompts: from texts and tokens as given, and from conversations by the model's chat template (request.h). */
#include <stdlib.h>
#include <string.h>

#include "serve/request/request.h"

enum { MAX_ANSWERS = 128 }; /* number of answers to all prompts of a request */

enum {
    TOKENIZING_BYTES = 40, /* most bytes of memory for each byte of a text: one long word without a space needs that much */
};

bool serve_ask_tokenize(serve_ask *ask, const char *text, size_t n_text, bool first, bool special, const char *field,
                        int32_t **tokens, size_t *n, serve_error *error)
{
    aerie_error why = {0};
    if (!serve_use_add(ask->use, TOKENIZING_BYTES * n_text)) return serve_fail_memory(error);
    const aerie_status status = aerie_model_tokenize(ask->model->models.model, text, n_text, first, special, tokens, n, &why);
    serve_use_drop(ask->use, TOKENIZING_BYTES * n_text);
    if (status != AERIE_OK) return serve_fail_library(error, status, &why, field);
    serve_use_force(ask->use, *n * sizeof **tokens);
    return true;
}

bool serve_ask_expected(serve_ask *ask, int32_t **tokens, size_t *n, serve_error *error)
{
    *tokens = NULL, *n = 0;
    if (!ask->expected) return true;
    return serve_ask_tokenize(ask, ask->expected, strlen(ask->expected), false, false, "aerie_expected", tokens, n, error);
}

/* ---- Completions -------------------------------------------------------------------------------------------- */

bool serve_ask_add_tokens(serve_ask *ask, const int32_t *tokens, size_t n, serve_error *error)
{
    const size_t wanted = ask->n_tokens + n;
    if (wanted > ask->tokens_capacity) {
        if (!serve_use_add(ask->use, (2 * wanted - ask->tokens_capacity) * sizeof *tokens)) return serve_fail_memory(error);
        int32_t *all = realloc(ask->tokens, 2 * wanted * sizeof *all);
        if (!all) return serve_fail_memory(error);
        ask->tokens = all;
        ask->tokens_capacity = 2 * wanted;
    }
    if (n) memcpy(ask->tokens + ask->n_tokens, tokens, n * sizeof *tokens);
    ask->n_tokens = wanted;
    return true;
}

bool serve_ask_add_text(serve_ask *ask, const char *text, size_t n_text, bool first, bool special, serve_error *error)
{
    int32_t *tokens = NULL;
    size_t n = 0;
    if (!serve_ask_tokenize(ask, text, n_text, first, special, "prompt", &tokens, &n, error)) return false;
    const bool ok = serve_ask_add_tokens(ask, tokens, n, error);
    serve_use_drop(ask->use, n * sizeof *tokens);
    aerie_free(tokens);
    return ok;
}

static bool add_token(serve_ask *ask, const json_t *v, const char *field, serve_error *error)
{
    const json_int_t id = json_integer_value(v);
    const int32_t token = (int32_t)id;
    if (!json_is_integer(v) || id < 0 || id >= ask->model->models.info.n_vocab)
        return serve_fail(error, 400, field, "'%s' must hold strings and tokens from 0 to %u", field,
                          (unsigned)ask->model->models.info.n_vocab - 1);
    return serve_ask_add_tokens(ask, &token, 1, error);
}

bool serve_ask_prompt(serve_ask *ask, const json_t *value, const char *field, serve_error *error)
{
    const size_t n = json_array_size(value);
    bool ok = true;
    if (json_is_array(value) && n == 1 && json_is_array(json_array_get(value, 0)))
        return serve_ask_prompt(ask, json_array_get(value, 0), field, error); /* a list of one prompt */
    if (json_is_string(value)) {
        ok = serve_ask_add_text(ask, json_string_value(value), json_string_length(value), true, true, error);
    } else if (json_is_array(value)) {
        for (size_t i = 0; ok && i < n; i++) {
            const json_t *v = json_array_get(value, i);
            if (json_is_string(v) && json_is_string(json_array_get(value, 0)) && i)
                return serve_fail(error, 400, field, "'%s' contains several prompts, which /v1/completions answers; this path "
                                  "answers only one", field);
            if (json_is_string(v))
                ok = serve_ask_add_text(ask, json_string_value(v), json_string_length(v), i == 0, true, error);
            else ok = add_token(ask, v, field, error);
        }
    } else {
        return serve_fail(error, 400, field,
                          value && !json_is_null(value) ? "'%s' must be a string or a list of tokens" : "'%s' is missing",
                          field);
    }
    if (ok && !ask->n_tokens) return serve_fail(error, 400, field, "'%s' has no tokens", field);
    return ok;
}

/* Reads a prompt, and the text after the answer, if the request has one. */
static bool add_prompt(serve_ask *ask, const json_t *value, serve_error *error)
{
    const char *suffix = NULL;
    if (!serve_get_text(ask->body, "suffix", &suffix, error)) return false;
    if (!suffix || !*suffix) return serve_ask_prompt(ask, value, "prompt", error);
    if (ask->echo) return serve_fail(error, 400, "suffix", "'suffix' and 'echo' exclude each other");
    const bool only = json_array_size(value) == 1; /* a list of one prompt */
    return serve_ask_gap(ask, only ? json_array_get(value, 0) : value, suffix, error);
}

bool serve_ask_own_prompt(serve_ask *ask, serve_error *error)
{
    return add_prompt(ask, json_object_get(ask->body, "prompt"), error);
}

/* Returns whether a value is a list of prompts: all of them strings, or all of them lists. */
static bool is_list_of_prompts(const json_t *value)
{
    const size_t n = json_array_size(value);
    size_t n_texts = 0, n_lists = 0;
    for (size_t i = 0; i < n; i++) {
        n_texts += json_is_string(json_array_get(value, i));
        n_lists += json_is_array(json_array_get(value, i));
    }
    return n > 1 && (n_texts == n || n_lists == n);
}

bool serve_ask_prompts(serve_ask *ask, serve_error *error)
{
    const json_t *value = json_object_get(ask->body, "prompt");
    const size_t n = json_array_size(value);
    if (!is_list_of_prompts(value)) return serve_ask_own_prompt(ask, error);
    if (n * ask->n > MAX_ANSWERS)
        return serve_fail(error, 400, "prompt", "'prompt' contains %zu prompts, which makes %zu answers; %d are possible", n,
                          n * ask->n, MAX_ANSWERS);
    ask->ends = calloc(n, sizeof *ask->ends);
    if (!ask->ends) return serve_fail_memory(error);
    ask->n_prompts = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const size_t before = ask->n_tokens;
        if (!add_prompt(ask, json_array_get(value, i), error)) return false;
        if (ask->n_tokens == before) return serve_fail(error, 400, "prompt", "prompt %zu of 'prompt' has no tokens", i);
        ask->ends[i] = ask->n_tokens;
    }
    return true;
}

uint32_t serve_ask_n_choices(const serve_ask *ask)
{
    return ask->n * (ask->ends ? ask->n_prompts : 1);
}

const int32_t *serve_ask_tokens_of(const serve_ask *ask, uint32_t choice, size_t *n)
{
    const uint32_t prompt = choice / ask->n;
    const size_t from = ask->ends && prompt ? ask->ends[prompt - 1] : 0;
    *n = (ask->ends ? ask->ends[prompt] : ask->n_tokens) - from;
    return ask->tokens + from;
}

/* Forms in which a conversation is given to a template, since templates differ in what they accept. */
enum {
    FORM_OPEN = 1,  /* arguments of calls as objects; else as strings, as clients send them */
    FORM_FILL = 2,  /* tools always have a description and parameters */
    FORM_MERGE = 4, /* in a message with calls, joins its text to its reasoning: some templates read only one of them */
    FORM_PLAIN = 8, /* reasoning stays in the field in which the client sent it */
};

/* ---- Messages ----------------------------------------------------------------------------------------------- */

static bool not_text(serve_error *error, size_t i, const char *type)
{
    if (type && (strcmp(type, "file") == 0 || strcmp(type, "input_file") == 0))
        return serve_fail(error, 400, "messages",
                          "messages[%zu]: content of type '%s' is not supported, since the server reads no documents such as "
                          "PDF: send their text as a part of type 'text', or pages as pictures", i, type);
    return serve_fail(error, 400, "messages",
                      "messages[%zu]: content of type '%.40s' is not supported; the models served here "
                      "read text",
                      i, type ? type : "");
}

/* Joins text parts with newlines between them, as vLLM and llama.cpp do; images become marks. Returns NULL with *error. */
static json_t *join_parts(const serve_ask *ask, const json_t *message, size_t i, serve_error *error)
{
    app_text text = {0};
    bool ok = app_text_add(&text, "", 0), after_text = false;
    const json_t *parts = json_object_get(message, "content");
    const char *mark = ask->images.n ? serve_pictures_mark() : "<__media__>"; /* which is only shown */
    if (serve_pictures_unseen(ask, message)) mark = "(a picture, which this model cannot see)";
    for (size_t k = 0; ok && k < json_array_size(parts); k++) {
        const json_t *part = json_array_get(parts, k), *inner = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (serve_is_image(part)) {
            ok = app_text_add(&text, mark, strlen(mark));
            after_text = false;
            continue;
        }
        if (json_is_string(part)) {
            inner = part;
        } else if (type && strcmp(type, "refusal") == 0) {
            inner = json_object_get(part, type);
        } else if (!type || (strcmp(type, "text") && strcmp(type, "input_text") && strcmp(type, "output_text"))) {
            app_text_free(&text);
            not_text(error, i, type);
            return NULL;
        }
        if (!json_is_string(inner)) {
            app_text_free(&text);
            serve_fail(error, 400, "messages", "messages[%zu]: a part of type %s has no text", i, type ? type : "");
            return NULL;
        }
        ok = (!after_text || app_text_add(&text, "\n", 1)) && app_text_add(&text, json_string_value(inner),
                                                                           json_string_length(inner));
        after_text = true;
    }
    json_t *json = ok ? json_stringn(text.data, text.n) : NULL;
    app_text_free(&text);
    if (!json) serve_fail_memory(error);
    return json;
}

/* Removes the members that are null. */
static void drop_nulls(json_t *object)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(object, next, key, value)
        if (json_is_null(value) && strcmp(key, "content")) json_object_del(object, key);
}

/* Converts the arguments of a call from JSON in a string, as requests have them, to an object, which most templates read.
 * Arguments that broke off are completed; "" and null become an empty object. */
static bool open_arguments(json_t *function, serve_error *error)
{
    const json_t *arguments = json_object_get(function, "arguments");
    const char *text = json_is_string(arguments) ? json_string_value(arguments) : "";
    app_text whole = {0};
    json_t *open = NULL;
    if (json_is_object(arguments)) return true;
    if (app_json_read(&open, text, json_is_string(arguments) ? json_string_length(arguments) : 0, JSON_ALLOW_NUL, NULL) ==
        APP_JSON_NO_MEMORY)
        return serve_fail_memory(error);
    bool ok = true;
    if (!json_is_object(open)) {
        json_decref(open);
        ok = answer_repair(&whole, text, json_is_string(arguments) ? json_string_length(arguments) : 0) &&
             app_json_read(&open, whole.data, whole.n, JSON_ALLOW_NUL, NULL) != APP_JSON_NO_MEMORY;
    }
    if (ok && !open) open = json_object(); /* it has a number out of range, for example */
    ok = ok && json_object_set(function, "arguments", open) == 0;
    json_decref(open);
    app_text_free(&whole);
    return ok || serve_fail_memory(error);
}

/* Converts arguments that are objects, as clients of ollama and Anthropic send them, to strings, for templates that join them
 * with other texts. */
static bool close_arguments(json_t *function, serve_error *error)
{
    const json_t *arguments = json_object_get(function, "arguments");
    if (json_is_string(arguments)) return true;
    char *text = json_is_object(arguments) ? json_dumps(arguments, JSON_COMPACT) : NULL;
    const bool ok = (text || !json_is_object(arguments)) &&
                    json_object_set_new(function, "arguments", json_string(text ? text : "{}")) == 0;
    free(text);
    return ok || serve_fail_memory(error);
}

static bool tidy_calls(json_t *message, size_t i, bool open, serve_error *error)
{
    json_t *calls = json_object_get(message, "tool_calls");
    if (!calls) return true;
    if (!json_is_array(calls)) return serve_fail(error, 400, "messages", "messages[%zu]: 'tool_calls' must be a list", i);
    if (!json_array_size(calls)) json_object_del(message, "tool_calls");
    for (size_t k = 0; k < json_array_size(calls); k++) {
        json_t *call = json_array_get(calls, k), *function = json_object_get(call, "function");
        if (!json_is_object(function) || !json_is_string(json_object_get(function, "name")))
            return serve_fail(error, 400, "messages", "messages[%zu]: tool_calls[%zu] names no function", i, k);
        drop_nulls(call);
        drop_nulls(function);
        if (open ? !open_arguments(function, error) : !close_arguments(function, error)) return false;
    }
    return true;
}

/* Adds the text of a part of reasoning: {"type": "thinking", "thinking": a text or a list of text parts}, as Mistral has it, or
 * {"type": "reasoning", "text"}. */
static bool add_thought(app_text *text, const json_t *part)
{
    const json_t *inner = json_object_get(part, "thinking");
    if (!inner) inner = json_object_get(part, "text");
    if (json_is_string(inner)) return app_text_add(text, json_string_value(inner), json_string_length(inner));
    bool ok = true;
    for (size_t k = 0; ok && k < json_array_size(inner); k++) {
        const json_t *one = json_object_get(json_array_get(inner, k), "text");
        ok = !json_is_string(one) || app_text_add(text, json_string_value(one), json_string_length(one));
    }
    return ok;
}

/* Moves the parts of the assistant's content that are reasoning to "reasoning_content", unless it is there. */
static bool take_thoughts(json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    json_t *kept = json_array();
    app_text text = {0};
    bool ok = kept != NULL, any = false;
    for (size_t k = 0; ok && k < json_array_size(content); k++) {
        json_t *part = json_array_get(content, k);
        const char *type = json_string_value(json_object_get(part, "type"));
        const bool thought = type && (strcmp(type, "thinking") == 0 || strcmp(type, "reasoning") == 0);
        any = any || thought;
        ok = thought ? add_thought(&text, part) : !json_array_append(kept, part);
    }
    if (ok && text.n && !json_object_get(message, "reasoning_content"))
        ok = !json_object_set_new(message, "reasoning_content", json_stringn(text.data, text.n));
    if (ok && any) ok = !json_object_set(message, "content", kept);
    app_text_free(&text);
    json_decref(kept);
    return ok;
}

/* Converts OpenAI's former "function_call" and role "function" to what replaced them. */
static bool modernize(json_t *message)
{
    const json_t *role = json_object_get(message, "role");
    json_t *call = json_object_get(message, "function_call");
    if (json_is_string(role) && strcmp(json_string_value(role), "function") == 0 &&
        json_object_set_new(message, "role", json_string("tool")))
        return false;
    if (!json_is_object(call) || json_object_get(message, "tool_calls")) return true;
    return !json_object_set_new(message, "tool_calls",
                                json_pack("[{s:s, s:s, s:O}]", "id", "", "type", "function", "function", call)) &&
           !json_object_del(message, "function_call");
}

static bool tidy_message(const serve_ask *ask, json_t *message, size_t i, serve_error *error)
{
    drop_nulls(message);
    if (!modernize(message)) return serve_fail_memory(error);
    const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content");
    if (!json_is_object(message)) return serve_fail(error, 400, "messages", "messages[%zu] must be an object", i);
    if (!json_is_string(role)) return serve_fail(error, 400, "messages", "messages[%zu] has no 'role'", i);
    const bool assistant = strcmp(json_string_value(role), "assistant") == 0;
    const bool may_be_empty = assistant || strcmp(json_string_value(role), "tool") == 0; /* the result of a tool may be empty */
    if (strcmp(json_string_value(role), "developer") == 0 && json_object_set_new(message, "role", json_string("system")))
        return serve_fail_memory(error); /* `role` is gone now */
    if (assistant && json_is_array(content)) {
        if (!take_thoughts(message)) return serve_fail_memory(error);
        content = json_object_get(message, "content"); /* the former list may be gone */
    }
    if (json_is_array(content)) {
        json_t *joined = join_parts(ask, message, i, error);
        if (!joined) return false;
        if (json_object_set_new(message, "content", joined)) return serve_fail_memory(error);
    } else if (!content || json_is_null(content)) {
        json_t *refusal = json_object_get(message, "refusal");
        if (!may_be_empty) return serve_fail(error, 400, "messages", "messages[%zu] has no 'content'", i);
        refusal = json_is_string(refusal) ? json_incref(refusal) : json_string("");
        if (json_object_set_new(message, "content", refusal)) return serve_fail_memory(error);
    } else if (!json_is_string(content)) {
        return serve_fail(error, 400, "messages", "messages[%zu]: 'content' must be a string or a list of parts", i);
    }
    if (!(ask->form & FORM_PLAIN) && !serve_reads_message(&serve_ask_template(ask)->reads, message, ask->form & FORM_MERGE))
        return serve_fail_memory(error);
    return serve_tools_calls(message, i, error) && tidy_calls(message, i, ask->form & FORM_OPEN, error);
}

/* Returns a tidied copy of the messages; NULL with the reason. */
static json_t *tidy_messages(const serve_ask *ask, const json_t *messages, serve_error *error)
{
    if (!json_is_array(messages)) {
        serve_fail(error, 400, "messages", messages ? "'messages' must be a list" : "'messages' is missing");
        return NULL;
    }
    if (!json_array_size(messages)) {
        serve_fail(error, 400, "messages", "'messages' is empty");
        return NULL;
    }
    json_t *copy = json_deep_copy(messages);
    if (!copy) serve_fail_memory(error);
    bool ok = copy != NULL;
    for (size_t i = 0; ok && i < json_array_size(copy); i++) ok = tidy_message(ask, json_array_get(copy, i), i, error);
    if (ok) return copy;
    json_decref(copy);
    return NULL;
}

/* ---- Rendering ---------------------------------------------------------------------------------------------- */

/* Refuses names in "chat_template_kwargs" that other fields of the request or the model's file set. */
static bool check_names(const json_t *kwargs, serve_error *error)
{
    static const char *const reserved[] = {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (json_object_get(kwargs, reserved[i]))
            return serve_fail(error, 400, "chat_template_kwargs", "'chat_template_kwargs' may not have '%s'%s", reserved[i],
                              i < 3 ? ", which is a field of the request" : "");
    return true;
}

/* Reads what other services call these: {"thinking": {"type": "enabled"}} of DeepSeek, GLM and Kimi, and {"reasoning":
 * {"effort", "enabled"}} of OpenRouter and ollama. */
static bool read_thinking(const json_t *object, serve_think *think, const char **effort, serve_error *error)
{
    const json_t *thinking = serve_get(object, "thinking"), *reasoning = serve_get(object, "reasoning");
    const char *type = json_string_value(json_object_get(thinking, "type"));
    bool on = true;
    if (json_is_object(reasoning) && (!serve_get_text(reasoning, "effort", effort, error) ||
                                      !serve_get_bool(reasoning, "enabled", &on, error)))
        return false;
    if (*effort) *think = strcmp(*effort, "none") ? SERVE_THINK_ON : SERVE_THINK_OFF;
    if (json_is_boolean(json_object_get(reasoning, "enabled"))) *think = on ? SERVE_THINK_ON : SERVE_THINK_OFF;
    if (json_is_boolean(reasoning)) *think = json_is_true(reasoning) ? SERVE_THINK_ON : SERVE_THINK_OFF;
    if (type && strcmp(type, "disabled") == 0) *think = SERVE_THINK_OFF;
    if (type && (strcmp(type, "enabled") == 0 || strcmp(type, "adaptive") == 0)) *think = SERVE_THINK_ON;
    return true;
}

/* Returns the variables of the request. Like the texts of messages, they never become control tokens. NULL with *error. */
static json_t *variables_of(const serve_ask *ask, const json_t *object, serve_error *error)
{
    const json_t *more = NULL;
    const char *effort = NULL;
    bool on = true;
    serve_think think = SERVE_THINK_DEFAULT;
    if (!serve_get_object(object, "chat_template_kwargs", &more, error) || !check_names(more, error) ||
        !read_thinking(object, &think, &effort, error) ||
        !serve_get_text(object, "reasoning_effort", &effort, error) || !serve_get_bool(object, "enable_thinking", &on, error))
        return NULL;
    const json_t *said = json_object_get(object, "enable_thinking");
    if (serve_get(object, "reasoning_effort")) think = strcmp(effort, "none") ? SERVE_THINK_ON : SERVE_THINK_OFF;
    if (json_is_boolean(said)) think = on ? SERVE_THINK_ON : SERVE_THINK_OFF;
    json_t *all = json_object();
    bool ok = all != NULL;
    ok = ok && serve_reads_think(&serve_ask_template(ask)->reads, all, think, effort);
    if (ok && more) ok = !json_object_update(all, (json_t *)more);
    if (ok) return all;
    json_decref(all);
    serve_fail_memory(error);
    return NULL;
}

/* Adds the command line's variables, except those that the request sets. Returns NULL when out of memory. */
static json_t *given_variables(const serve_ask *ask, const json_t *own)
{
    const app_text *given = &ask->model->models.format.variables;
    const char *name;
    json_t *all = NULL, *value;
    if (given->data) app_json_read(&all, given->data, given->n, JSON_ALLOW_NUL, NULL); /* it was read at the start */
    else all = json_object();
    json_object_foreach((json_t *)own, name, value) if (all) (void)json_object_del(all, name);
    return all;
}

typedef struct rendering {
    aerie_chat chat;
    char *conversation, *tools, *variables;
} rendering;

static char *dump(const json_t *json)
{
    return json ? json_dumps(json, JSON_COMPACT) : NULL;
}

static bool rendering_begin(rendering *r, const serve_ask *ask, json_t *messages, const json_t *object, serve_error *error)
{
    json_t *own = variables_of(ask, object, error), *tools = NULL;
    if (!own) return false;
    if ((ask->tools && !(tools = serve_reads_tools(ask->tools, ask->form & FORM_FILL))) ||
        !serve_reads_parts(&serve_ask_template(ask)->reads, messages)) {
        json_decref(own);
        json_decref(tools);
        return serve_fail_memory(error);
    }
    json_t *given = given_variables(ask, own);
    json_t *conversation = json_pack("{s:O, s:o}", "messages", messages, "chat_template_kwargs", own);
    *r = (rendering){.chat = app_format_chat(&ask->model->models.format),
                     .conversation = dump(conversation),
                     .tools = dump(tools),
                     .variables = dump(given)};
    json_decref(given);
    json_decref(conversation);
    json_decref(tools);
    if (!r->conversation || !r->variables || (ask->tools && !r->tools)) return serve_fail_memory(error);
    r->chat.messages = (aerie_text){r->conversation, strlen(r->conversation), "messages"};
    r->chat.variables = (aerie_text){r->variables, strlen(r->variables), "--chat-template-kwargs"};
    r->chat.tools = r->tools ? (aerie_text){r->tools, strlen(r->tools), "tools"} : (aerie_text){"[]", 2, "tools"};
    bool generation = true;
    const json_t *continued = serve_get(object, "continue_final_message");
    if (!serve_get_bool(object, "add_generation_prompt", &generation, error)) return false;
    r->chat.no_generation_prompt = !generation && !(continued && !json_is_false(continued)); /* that ends it here */
    return true;
}

static void rendering_end(rendering *r)
{
    app_json_free(r->conversation);
    app_json_free(r->tools);
    app_json_free(r->variables);
}

bool serve_ask_try(serve_ask *ask, json_t *messages, const json_t *object, char **text, size_t *n)
{
    rendering r = {0};
    serve_error error = {0};
    const bool ok = rendering_begin(&r, ask, messages, object, &error) &&
                    aerie_model_chat_render(ask->model->models.model, &r.chat, text, n, NULL) == AERIE_OK;
    rendering_end(&r);
    return ok;
}

/* Reads whether the answer continues a last message of the assistant: vLLM's "continue_final_message", for which llama.cpp also
 * takes "content". Without it the server's option decides, and a client that wants no generation prompt wants the messages
 * alone. *wanted: the request asks for it. */
static bool read_continues(const serve_ask *ask, const json_t *object, bool *continues, bool *wanted, serve_error *error)
{
    const json_t *given = serve_get(object, "continue_final_message");
    const char *text = json_string_value(given);
    bool generation = true;
    if (given && !json_is_boolean(given) && !(text && strcmp(text, "content") == 0))
        return serve_fail(error, 400, "continue_final_message", "'continue_final_message' is true, false or \"content\"");
    if (!serve_get_bool(object, "add_generation_prompt", &generation, error)) return false;
    *wanted = given && !json_is_false(given);
    *continues = given ? *wanted : generation && !ask->server->o->no_prefill;
    return true;
}

/* Removes the last message if it is the assistant's and the answer continues it; *prefill gets it, or NULL. */
static bool take_prefill(const serve_ask *ask, json_t *messages, const json_t *object, json_t **prefill, serve_error *error)
{
    const size_t n = json_array_size(messages);
    json_t *last = json_array_get(messages, n - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    bool continues = false, wanted = false;
    *prefill = NULL;
    if (!read_continues(ask, object, &continues, &wanted, error) || !continues) return !error->status;
    if (n < 2 || strcmp(role, "assistant") || json_array_size(json_object_get(last, "tool_calls")) ||
        !json_string_length(json_object_get(last, "content")))
        return !wanted || serve_fail(error, 400, "continue_final_message",
                                     "'continue_final_message' needs a last message of the assistant with a text and no calls");
    *prefill = json_incref(last);
    return json_array_remove(messages, n - 1) == 0 || serve_fail_memory(error);
}

/* Appends to ask->begun, and adds its tokens if they are wanted. special: the text may contain control tokens. */
static bool add_begun(serve_ask *ask, const char *text, size_t n, bool special, bool only_text, serve_error *error)
{
    if (!n) return true;
    if (!only_text && !serve_ask_add_text(ask, text, n, false, special, error)) return false;
    return app_text_add(&ask->begun, text, n) || serve_fail_memory(error);
}

static bool begin_answer(serve_ask *ask, const json_t *prefill, const char *prompt, size_t n_prompt, bool only_text,
                         serve_error *error)
{
    const json_t *content = json_object_get(prefill, "content"), *reasoning = json_object_get(prefill, "reasoning_content");
    const answer_params params = {.style = ask->style, .prompt = prompt, .n_prompt = n_prompt};
    const char *text = json_string_value(content);
    size_t n_skip = 0, n = json_string_length(content), n_reasoning = json_string_length(reasoning);
    const char *open, *close;
    app_text before = {0}, after = {0};
    ask->begun.n = 0;
    if (!answer_reasoning_tags(&ask->style, &open, &close)) n_reasoning = 0;
    bool ok = answer_continue(&before, &after, &params, n_reasoning > 0, text, n, &n_skip) || serve_fail_memory(error);
    if (!before.n && !after.n) n_reasoning = 0; /* there is no place for it */
    ok = ok && add_begun(ask, before.data, before.n, true, only_text, error) &&
         add_begun(ask, json_string_value(reasoning), n_reasoning, false, only_text, error) &&
         add_begun(ask, after.data, after.n, true, only_text, error) &&
         add_begun(ask, text + n_skip, n - n_skip, false, only_text, error);
    app_text_free(&before);
    app_text_free(&after);
    return ok;
}

/* Renders messages to tokens, or to text if `text` is given. */
static aerie_status render(serve_ask *ask, const json_t *messages, const json_t *object, unsigned form, char **text, size_t *n,
                           bool only_text, serve_error *error, aerie_error *why)
{
    rendering r = {0};
    aerie_status status = AERIE_ERROR_ARGUMENT;
    const size_t n_request = atomic_load(&ask->use->bytes);
    /* a copy of the messages, the library's form of them, and the template's values; jansson's memory is counted separately */
    if (!serve_use_add(ask->use, 3 * n_request)) {
        serve_fail_memory(error);
        return AERIE_ERROR_MEMORY;
    }
    serve_use_drop(ask->use, 2 * n_request);
    ask->form = form;
    json_t *tidy = tidy_messages(ask, messages, error);
    if (!tidy) {
        serve_use_drop(ask->use, n_request);
        return status;
    }
    json_t *prefill = NULL;
    if (take_prefill(ask, tidy, object, &prefill, error) && serve_turns_settle(ask, &tidy, object, error) &&
        rendering_begin(&r, ask, tidy, object, error)) {
        if (only_text || ask->images.n) status = aerie_model_chat_render(ask->model->models.model, &r.chat, text, n, why);
        if (!only_text && ask->images.n && status == AERIE_OK) {
            status = serve_pictures_encode(ask, &r.chat, why);
            if (status != AERIE_OK) aerie_free(*text), *text = NULL;
        }
        if (!only_text && !ask->images.n)
            status = aerie_model_chat_tokens(ask->model->models.model, &r.chat, &ask->tokens, &ask->n_tokens, text, n, why);
    }
    if (status == AERIE_OK && prefill && !begin_answer(ask, prefill, *text, *n, only_text, error)) status = AERIE_ERROR_MEMORY;
    rendering_end(&r);
    json_decref(prefill);
    json_decref(tidy);
    serve_use_drop(ask->use, n_request);
    return status;
}

/* Renders the conversation in the first of these forms that the template accepts. */
static bool render_either(serve_ask *ask, const json_t *messages, const json_t *object, char **text, size_t *n, bool only_text,
                          serve_error *error)
{
    static const unsigned forms[] = {FORM_OPEN, FORM_OPEN | FORM_FILL, FORM_OPEN | FORM_FILL | FORM_MERGE,
                                     FORM_OPEN | FORM_FILL | FORM_PLAIN, FORM_FILL, FORM_FILL | FORM_PLAIN};
    aerie_error why = {0}, again = {0};
    aerie_status status;
    do status = render(ask, messages, object, forms[0], text, n, only_text, error, &why); /* may read pictures on the device */
    while (!error->status && serve_ask_again(ask, status, error));
    aerie_status next = status;
    for (size_t i = 1; (next == AERIE_ERROR_FORMAT || next == AERIE_ERROR_LIMIT) && !error->status &&
                       i < sizeof forms / sizeof *forms; i++)
        next = render(ask, messages, object, forms[i], text, n, only_text, error, &again);
    if (next == AERIE_OK) return true;
    return error->status ? false : serve_fail_library(error, status, &why, "messages");
}

bool serve_ask_render(serve_ask *ask, const json_t *messages, const json_t *object, char **text, size_t *n, serve_error *error)
{
    return serve_ask_tools(ask, object, error) && serve_tools_check(ask, error) &&
           render_either(ask, messages, object, text, n, true, error);
}

/* Restricts the rest of the answer to a call. */
static bool force_schema(serve_ask *ask, answer_forced *forced, serve_error *error)
{
    const char *why = "";
    json_t *schema;
    const answer_params params = {.style = ask->style,
                                  .keep_reasoning = ask->keep_reasoning,
                                  .tools = ask->loose_tools ? ask->loose_tools : ask->tools,
                                  .prompt = ask->prompt,
                                  .n_prompt = ask->n_prompt,
                                  .begun = ask->begun.data,
                                  .n_begun = ask->begun.n};
    answer_forced_free(forced);
    if (!answer_force(forced, &params, ask->tool_name, &why))
        return why ? serve_fail(error, 400, "tool_choice", "'tool_choice': %s", why) : serve_fail_memory(error);
    app_json_read(&schema, forced->schema, forced->n_schema, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL); /* it is JSON */
    const bool ok = schema ? serve_ask_schema(ask, schema, "tools", error) : serve_fail_memory(error);
    json_decref(schema);
    return ok;
}

/* Handles tool_choice: makes the answer begin with a call, which a grammar restricts. */
static bool force_call(serve_ask *ask, serve_error *error)
{
    answer_forced forced = {0};
    if (ask->grammar) return serve_fail(error, 400, "tool_choice", "'tool_choice' and a grammar exclude each other");
    bool ok = force_schema(ask, &forced, error);
    if (!ok && error->status == 400 && serve_ask_loosen(ask, error)) ok = force_schema(ask, &forced, error);
    if (ok) ok = serve_ask_add_text(ask, forced.prefix, forced.n_prefix, false, true, error);
    if (!ok) {
        answer_forced_free(&forced);
        return false;
    }
    ask->style = forced.style;
    ask->prefix = malloc(forced.n_prefix + 1);
    if (ask->prefix) {
        memcpy(ask->prefix, forced.prefix, forced.n_prefix);
        ask->n_prefix = forced.n_prefix;
    } else {
        ok = serve_fail_memory(error);
    }
    answer_forced_free(&forced);
    return ok;
}

/* ---- Conversations longer than the context ------------------------------------------------------------------ */

static bool is_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

/* Returns the index of the first message after the system messages at the beginning, which always stay. */
static size_t first_turn(const json_t *messages)
{
    size_t i = 0;
    while (is_role(json_array_get(messages, i), "system") || is_role(json_array_get(messages, i), "developer")) i++;
    return i;
}

/* Returns the index of the message that begins turn n, which is a user's; messages before the first of these belong to turn 0.
 * SIZE_MAX: there is none. */
static size_t turn_at(const json_t *messages, size_t n)
{
    const size_t first = first_turn(messages);
    for (size_t i = first, turn = 0; i < json_array_size(messages); i++)
        if (i > first && is_role(json_array_get(messages, i), "user") && ++turn == n) return i;
    return n ? SIZE_MAX : first;
}

/* Renders the conversation without its n oldest turns. */
static bool render_without(serve_ask *ask, const json_t *messages, const json_t *object, size_t n, serve_error *error)
{
    const size_t first = first_turn(messages), at = turn_at(messages, n);
    json_t *kept = json_array();
    bool ok = kept != NULL;
    for (size_t i = 0; ok && i < json_array_size(messages); i++)
        if (i < first || i >= at) ok = json_array_append(kept, json_array_get(messages, i)) == 0;
    aerie_free(ask->tokens);
    aerie_free(ask->prompt);
    ask->tokens = NULL, ask->n_tokens = ask->tokens_capacity = 0;
    ask->prompt = NULL, ask->n_prompt = 0;
    if (!ok) serve_fail_memory(error);
    serve_pictures_free(&ask->images);
    aerie_prompt_free(ask->pictured);
    ask->pictured = NULL;
    ok = ok && serve_pictures_take(ask, kept, error) &&
         render_either(ask, kept, object, &ask->prompt, &ask->n_prompt, false, error);
    json_decref(kept);
    return ok;
}

/* Returns how many tokens should be left for the answer. */
static size_t answer_room(const serve_ask *ask, size_t n_ctx)
{
    const size_t room = n_ctx / 4 < 1024 ? n_ctx / 4 : 1024;
    return ask->n_predict && ask->n_predict < room ? ask->n_predict : room;
}

/* Drops the oldest turns of a conversation that leaves no room for an answer (--context-shift; "truncation": "auto"). The last
 * turn stays even if it is too long by itself; then the session refuses it and names both numbers. */
static bool fit(serve_ask *ask, const json_t *messages, const json_t *object, serve_error *error)
{
    const char *truncation = NULL;
    if (!serve_get_text(ask->body, "truncation", &truncation, error)) return false;
    if (truncation && strcmp(truncation, "auto") && strcmp(truncation, "disabled"))
        return serve_fail(error, 400, "truncation", "'truncation' is \"auto\" or \"disabled\"; found '%.40s'", truncation);
    const bool wanted = truncation ? strcmp(truncation, "auto") == 0 : ask->server->o->context_shift;
    if (!wanted || !ask->model->session) return true;
    const size_t n_ctx = aerie_session_n_ctx(ask->model->session), limit = n_ctx - answer_room(ask, n_ctx);
    if (ask->n_tokens <= limit) return true;
    size_t low = 0, high = 0; /* without `low` turns it is too long; without `high` turns it fits, or only one turn is left */
    while (turn_at(messages, high + 1) != SIZE_MAX) high++;
    for (size_t middle; high - low > 1; *(ask->n_tokens <= limit ? &high : &low) = middle) {
        middle = low + (high - low) / 2;
        if (!render_without(ask, messages, object, middle, error)) return false;
    }
    ask->n_dropped = (uint32_t)high;
    return !high || render_without(ask, messages, object, high, error);
}

/* Makes the prompt from a conversation in OpenAI's form by the model's chat template. `object` contains tools,
 * chat_template_kwargs and similar fields are. */
static bool ask_chat(serve_ask *ask, const json_t *messages, const json_t *object, serve_error *error)
{
    size_t n_marks = 0;
    const app_format *format = &ask->model->models.format;
    const char *const *marks = app_format_stops(format, &n_marks);
    if (!serve_ask_tools(ask, object, error) || !serve_tools_check(ask, error)) return false;
    if (!serve_pictures_take(ask, messages, error) ||
        !render_either(ask, messages, object, &ask->prompt, &ask->n_prompt, false, error))
        return false;
    if (!fit(ask, messages, object, error)) return false;
    if (!ask->n_tokens) return serve_fail(error, 400, "messages", "the conversation has no tokens");
    for (size_t i = 0; i < n_marks; i++) {
        if (!ask->stops && !(ask->stops = calloc(AERIE_MAX_STOPS, sizeof *ask->stops))) return serve_fail_memory(error);
        if (ask->n_stops < AERIE_MAX_STOPS) ask->stops[ask->n_stops++] = marks[i];
    }
    ask->parses = true;
    if (!serve_ask_limit(ask, error)) return false;
    if (ask->tools && ask->grammar && ask->has_schema) {
        if (!ask->tool_required) return serve_ask_mixed(ask, error);
        aerie_grammar_free(ask->grammar); /* there will be no content */
        ask->grammar = NULL;
    }
    if (!serve_ask_reason(ask, error)) return false;
    if (ask->tool_required) return force_call(ask, error);
    return !ask->tools || ask->grammar || serve_ask_calls(ask, error);
}

bool serve_ask_messages(serve_ask *ask, serve_error *error)
{
    return ask_chat(ask, json_object_get(ask->body, "messages"), ask->body, error);
}
