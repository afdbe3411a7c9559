/* calls.c - calls and results that strict templates refuse (request.h): calls without an id (ollama's dialect has none),
 * several calls in a message, results whose call is gone (the client dropped older turns), and answers without a text (they
 * were stopped at once). Each level changes more of the conversation; turns.c takes the first that the template shows whole.
 * Owns nothing. No level loses a text or a call. */
#include <stdio.h>
#include <string.h>

#include "serve/request/request.h"

static bool is_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

/* Returns the id, or NULL if it is absent or empty. */
static const char *id_of(const json_t *object, const char *field)
{
    const char *id = json_string_value(json_object_get(object, field));
    return id && *id ? id : NULL;
}

/* Returns the index of the call that a result belongs to: by its id, or the first one. The size of the list: none. */
static size_t call_of(const json_t *calls, const json_t *result)
{
    const char *id = id_of(result, "tool_call_id");
    const size_t n = json_array_size(calls);
    size_t i = 0;
    while (id && i < n && strcmp(id, json_string_value(json_object_get(json_array_get(calls, i), "id")))) i++;
    return i;
}

static bool is_silent(const json_t *message)
{
    const json_t *content = json_object_get(message, "content"), *reasoning = json_object_get(message, "reasoning_content");
    return is_role(message, "assistant") && !json_string_length(content) && !json_array_size(content) &&
           !json_array_size(json_object_get(message, "tool_calls")) && !json_string_length(reasoning);
}

bool serve_calls_odd(const json_t *messages)
{
    const json_t *calls = NULL;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        if (is_silent(message)) return true;
        if (is_role(message, "tool")) {
            if (!id_of(message, "tool_call_id") || call_of(calls, message) == json_array_size(calls)) return true;
            continue;
        }
        calls = json_object_get(message, "tool_calls");
        if (json_array_size(calls) > 1) return true;
        if (json_array_size(calls) && !id_of(json_array_get(calls, 0), "id")) return true;
    }
    return false;
}

/* The conversation that is being made. */
typedef struct making {
    json_t *out;
    json_t *open;    /* calls of the last message that have no result yet */
    json_t *waiting; /* those of them that get a message of their own before their result */
    unsigned n_ids;
    int level;
} making;

/* Adds a message with one call. */
static bool put_call(making *m, json_t *call)
{
    json_t *message = json_pack("{s:s, s:s, s:[O]}", "role", "assistant", "content", "", "tool_calls", call);
    return !json_array_append_new(m->out, message);
}

static bool put_waiting(making *m, const json_t *call)
{
    for (size_t i = 0; i < json_array_size(m->waiting); i++)
        if (json_array_get(m->waiting, i) == call)
            return put_call(m, json_array_get(m->waiting, i)) && !json_array_remove(m->waiting, i);
    return true;
}

static bool put_result(making *m, json_t *message)
{
    const size_t i = call_of(m->open, message);
    if (i < json_array_size(m->open)) {
        json_t *call = json_array_get(m->open, i), *copy = json_copy(message);
        const bool ok = copy && put_waiting(m, call) && !json_object_set(copy, "tool_call_id", json_object_get(call, "id"));
        return !json_array_append_new(m->out, copy) && ok && !json_array_remove(m->open, i);
    }
    if (m->level < SERVE_CALLS_ORPHANS) return !json_array_append(m->out, message);
    const char *name = json_string_value(json_object_get(message, "name"));
    json_t *content = json_object_get(message, "content");
    json_t *text = json_is_string(content)
                       ? json_sprintf("Result of %s:\n%s", name ? name : "a tool", json_string_value(content))
                       : json_incref(content);
    return !json_array_append_new(m->out, json_pack("{s:s, s:o}", "role", "user", "content", text));
}

/* Adds a message with calls, which all get ids; on the last level only the first call, and the others before their results. */
static bool put_calls(making *m, const json_t *message)
{
    json_t *copy = json_copy((json_t *)message), *calls = json_deep_copy(json_object_get(message, "tool_calls"));
    bool ok = copy && calls;
    for (size_t i = 0; ok && i < json_array_size(calls); i++) {
        json_t *call = json_array_get(calls, i);
        char made[16];
        snprintf(made, sizeof made, "call%05u", m->n_ids % 100000); /* nine letters and digits, as Mistral's templates want */
        if (!id_of(call, "id")) ok = !json_object_set_new(call, "id", json_string(made));
        m->n_ids++;
        ok = ok && !json_array_append(m->open, call);
        if (i && m->level >= SERVE_CALLS_SPLIT) ok = ok && !json_array_append(m->waiting, call);
    }
    if (ok && m->level >= SERVE_CALLS_SPLIT)
        ok = !json_object_set_new(copy, "tool_calls", json_pack("[O]", json_array_get(calls, 0)));
    else ok = ok && !json_object_set(copy, "tool_calls", calls);
    json_decref(calls);
    return !json_array_append_new(m->out, copy) && ok;
}

static bool put(making *m, json_t *message)
{
    bool ok = true;
    if (is_role(message, "tool")) return put_result(m, message);
    while (ok && json_array_size(m->waiting)) ok = put_waiting(m, json_array_get(m->waiting, 0)); /* they never got a result */
    ok = ok && !json_array_clear(m->open);
    if (is_silent(message)) return ok;
    if (json_array_size(json_object_get(message, "tool_calls"))) return ok && put_calls(m, message);
    return ok && !json_array_append(m->out, message);
}

json_t *serve_calls_mend(const json_t *messages, int level)
{
    making m = {.out = json_array(), .open = json_array(), .waiting = json_array(), .level = level};
    bool ok = m.out && m.open && m.waiting;
    for (size_t i = 0; ok && i < json_array_size(messages); i++) ok = put(&m, json_array_get(messages, i));
    while (ok && json_array_size(m.waiting)) ok = put_waiting(&m, json_array_get(m.waiting, 0));
    json_decref(m.open);
    json_decref(m.waiting);
    if (ok) return m.out;
    json_decref(m.out);
    return NULL;
}
