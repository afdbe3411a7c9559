/* turns.c - system messages, tool calls and their results, for templates that do not expect them (request.h).
 * A template without tools may refuse calls and results in a conversation, or leave out results (the client may have used
 * another model before). Then they become text: calls of the assistant, results of the user.
 * Many templates refuse a system message that is not the first, or leave it out; some accept none at all. So a conversation
 * with such a message is first rendered with short words instead of its texts, and the first arrangement is used that puts all
 * of them into the prompt:
 *   1. as the client sent it;
 *   2. those at the beginning as one message, later ones as the user's text, in their place;
 *   3. all of them in the first message;
 *   4. all of them before the user's first message.
 * Some templates accept only turns that alternate, and the user's first, and refuse a user's message after a result. A client
 * may send other ones (Anthropic's API joins them; Codex sends several messages of the user). If a template refuses a
 * conversation as it is, messages of the same role become one; if it refuses that too, what the user says after a result goes
 * to the result's text. calls.c has what such templates refuse of calls and results. */
#include <stdlib.h>
#include <string.h>

#include "serve/request/request.h"

enum { AS_GIVEN, IN_PLACE, FIRST, FIRST_OF_USER, N_ARRANGEMENTS }; /* of system messages */
enum { TURNS_AS_GIVEN, TURNS_JOINED, TURNS_JOINED_TO_RESULTS, N_TURNS };

static bool has_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

/* ---- Arrangements --------------------------------------------------------------------------------------------------- */

/* A message whose text grows. */
typedef struct growing {
    json_t *message; /* lent; NULL: none */
    app_text text;
} growing;

static bool add_paragraph(app_text *text, const json_t *more)
{
    const size_t n = json_string_length(more);
    return !n || ((!text->n || app_text_add(text, "\n\n", 2)) && app_text_add(text, json_string_value(more), n));
}

/* Stores the accumulated paragraphs as the message's text. */
static bool close_growing(growing *g)
{
    const char *text = g->text.data ? g->text.data : "";
    const bool ok = !g->message || json_object_set_new(g->message, "content", json_stringn(text, g->text.n)) == 0;
    app_text_free(&g->text);
    *g = (growing){0};
    return ok;
}

/* Adds a paragraph to a message. */
static bool grow(growing *g, json_t *message, const json_t *more)
{
    if (g->message != message) {
        if (!close_growing(g) || !add_paragraph(&g->text, json_object_get(message, "content"))) return false;
        g->message = message;
    }
    return add_paragraph(&g->text, more);
}

static json_t *last_of(const json_t *list)
{
    return json_array_get(list, json_array_size(list) - 1);
}

/* A list of messages under construction. */
typedef struct list {
    json_t *out, *joined; /* the messages; the system's texts that come first */
    json_t *own;          /* the last message that has the user's role but contains only the system's text; borrowed from out */
    growing last, first;  /* of out, joined */
} list;

/* Adds a system message in its place as the user's text: to the user's message before it, or as a separate message, which the
 * next message of the user joins. */
static bool put_in_place(list *l, const json_t *message)
{
    json_t *content = json_object_get(message, "content");
    if (!has_role(last_of(l->out), "user")) {
        if (json_array_append_new(l->out, json_pack("{s:s, s:s}", "role", "user", "content", ""))) return false;
        l->own = last_of(l->out);
    }
    return grow(&l->last, last_of(l->out), content);
}

/* Adds a message that is not a system message. */
static bool put_message(list *l, json_t *message)
{
    const bool takes_in = l->own && l->own == last_of(l->out) && has_role(message, "user");
    if (!takes_in) return json_array_append(l->out, message) == 0;
    json_t *content = json_incref(json_object_get(message, "content"));
    bool ok = close_growing(&l->last) && !json_object_set(message, "content", json_object_get(l->own, "content")) &&
              !json_array_set(l->out, json_array_size(l->out) - 1, message);
    l->own = NULL;
    ok = ok && grow(&l->last, message, content);
    json_decref(content);
    return ok;
}

static json_t *first_of_user(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (has_role(json_array_get(messages, i), "user")) return json_array_get(messages, i);
    return NULL;
}

/* Puts the system's texts that come first before the other messages. */
static bool put_first(list *l, int how)
{
    json_t *user = how == FIRST_OF_USER ? first_of_user(l->out) : NULL;
    if (user)
        return grow(&l->first, l->joined, json_object_get(user, "content")) && close_growing(&l->first) &&
               !json_object_set(user, "content", json_object_get(l->joined, "content"));
    return close_growing(&l->first) &&
           !json_object_set_new(l->joined, "role", json_string(how == FIRST_OF_USER ? "user" : "system")) &&
           !json_array_insert(l->out, 0, l->joined);
}

/* Returns a new list of the messages, whose texts may change. Returns NULL when out of memory. */
static json_t *arrange(const json_t *messages, int how)
{
    list l = {.out = json_array(), .joined = json_pack("{s:s, s:s}", "role", "system", "content", "")};
    bool ok = l.out && l.joined, leads = true;
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        const bool system = has_role(message, "system");
        if (!system) ok = put_message(&l, message);
        else if (how == IN_PLACE && !leads) ok = put_in_place(&l, message);
        else ok = grow(&l.first, l.joined, json_object_get(message, "content"));
        leads = leads && system;
    }
    ok = ok && close_growing(&l.last) && (!l.first.text.n || put_first(&l, how));
    app_text_free(&l.first.text);
    app_text_free(&l.last.text);
    json_decref(l.joined);
    if (ok) return l.out;
    json_decref(l.out);
    return NULL;
}

/* ---- Turns of the same role ------------------------------------------------------------------------------------------ */

/* Returns whether the message belongs to the turn of the one before it. */
static bool continues_turn(const json_t *before, const json_t *message, int turns)
{
    const bool to_result = turns == TURNS_JOINED_TO_RESULTS && has_role(before, "tool");
    if (has_role(message, "user")) return has_role(before, "user") || to_result;
    return has_role(message, "assistant") && has_role(before, "assistant") && !json_object_get(before, "tool_calls");
}

/* Adds the members of the message, such as its calls, to the one that it joins; of texts of reasoning both are kept. */
static bool join_members(json_t *before, const json_t *message)
{
    const char *key;
    json_t *value;
    bool ok = true;
    json_object_foreach((json_t *)message, key, value)
    {
        const json_t *own = json_object_get(before, key);
        if (!ok || !strcmp(key, "role") || !strcmp(key, "content")) continue;
        if (!own) ok = !json_object_set(before, key, value);
        else if ((strstr(key, "reasoning") || !strcmp(key, "thinking")) && json_is_string(own) && json_is_string(value))
            ok = !json_object_set_new(before, key,
                                      json_sprintf("%s\n\n%s", json_string_value(own), json_string_value(value)));
    }
    return ok;
}

/* Returns a new list in which the turns alternate as far as `turns` says, beginning with the user's. NULL when out of
 * memory. */
static json_t *join_turns(const json_t *messages, int turns)
{
    json_t *out = json_array();
    growing g = {0};
    bool ok = out != NULL, begun = false;
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        if (!begun && has_role(message, "assistant"))
            ok = !json_array_append_new(out, json_pack("{s:s, s:s}", "role", "user", "content", ""));
        begun = begun || !has_role(message, "system");
        if (ok && continues_turn(last_of(out), message, turns)) {
            ok = grow(&g, last_of(out), json_object_get(message, "content"));
            if (ok && has_role(message, "assistant")) ok = join_members(last_of(out), message);
            continue;
        }
        ok = ok && !json_array_append_new(out, json_copy(message));
    }
    ok = close_growing(&g) && ok;
    if (ok) return out;
    json_decref(out);
    return NULL;
}

/* Returns whether a strict template may refuse the order of the turns. */
static bool may_be_joined(const json_t *messages)
{
    bool begun = false;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        if (!begun && has_role(message, "assistant")) return true;
        if (i && continues_turn(json_array_get(messages, i - 1), message, TURNS_JOINED_TO_RESULTS)) return true;
        begun = begun || !has_role(message, "system");
    }
    return false;
}

/* ---- Trying them ------------------------------------------------------------------------------------------------------ */

#define WORD "aerie"
enum { WORD_DIGITS = 8 }; /* digits of a message's number: the size limit of a body allows fewer messages */

static json_t *word_of(size_t i)
{
    return json_sprintf(WORD "%0*u", WORD_DIGITS, (unsigned)i);
}

/* Sets seen [n] for the words that occur in a text. */
static void mark_words(const char *text, bool *seen, size_t n)
{
    for (const char *at = strstr(text, WORD); at; at = strstr(at, WORD)) {
        size_t i = 0;
        at += strlen(WORD);
        if (strspn(at, "0123456789") < WORD_DIGITS) continue;
        for (int k = 0; k < WORD_DIGITS; k++) i = 10 * i + (size_t)(at[k] - '0');
        if (i < n) seen[i] = true;
    }
}

/* Returns the conversation with a word instead of each text; empty texts stay empty. */
static json_t *skeleton_of(const json_t *messages)
{
    json_t *out = json_array();
    bool ok = out != NULL;
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *copy = json_copy(json_array_get(messages, i));
        const bool silent = !json_string_length(json_object_get(copy, "content"));
        ok = copy && (silent || !json_object_set_new(copy, "content", word_of(i)));
        if (!ok) json_decref(copy);
        ok = ok && !json_array_append_new(out, copy);
    }
    if (ok) return out;
    json_decref(out);
    return NULL;
}

/* Returns a new list with the system's messages arranged and the turns joined. Returns NULL when out of memory. */
static json_t *shape(json_t *messages, int how, int turns)
{
    json_t *arranged = how == AS_GIVEN ? json_incref(messages) : arrange(messages, how);
    if (!arranged || turns == TURNS_AS_GIVEN) return arranged;
    json_t *joined = join_turns(arranged, turns);
    json_decref(arranged);
    return joined;
}

/* Returns whether the rendered prompt contains the texts of all system and tool messages. */
static bool holds(serve_ask *ask, const json_t *messages, const json_t *object, int how, int turns)
{
    char *text = NULL;
    const size_t n = json_array_size(messages);
    size_t n_text = 0;
    bool *seen = calloc(n, sizeof *seen);
    json_t *skeleton = skeleton_of(messages);
    json_t *tried = skeleton ? shape(skeleton, how, turns) : NULL;
    bool ok = seen && tried && serve_ask_try(ask, tried, object, &text, &n_text);
    if (ok) mark_words(text, seen, n);
    for (size_t i = 0; ok && i < n; i++) {
        const json_t *message = json_array_get(messages, i);
        const bool matters = has_role(message, "system") || has_role(message, "tool");
        ok = !matters || !json_string_length(json_object_get(message, "content")) || seen[i];
    }
    aerie_free(text);
    free(seen);
    json_decref(skeleton);
    json_decref(tried);
    return ok;
}

/* Returns whether the system messages are as templates may expect them: at most one, at the beginning. */
static bool is_expected(const serve_ask *ask, const json_t *messages)
{
    bool expected = serve_ask_template(ask)->takes_system || !has_role(json_array_get(messages, 0), "system");
    for (size_t i = 1; expected && i < json_array_size(messages); i++)
        expected = !has_role(json_array_get(messages, i), "system");
    return expected;
}

/* ---- Calls and results as text -------------------------------------------------------------------------------------- */

static bool has_calls(const json_t *message)
{
    return json_array_size(json_object_get(message, "tool_calls")) || has_role(message, "tool");
}

static bool any_calls(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (has_calls(json_array_get(messages, i))) return true;
    return false;
}

/* Notes, by its id, which function each of the message's calls names. Returns false if memory is short. */
static bool note_names(json_t *names, const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    for (size_t k = 0; k < json_array_size(calls); k++) {
        const json_t *call = json_array_get(calls, k);
        const char *id = json_string_value(json_object_get(call, "id"));
        json_t *name = json_object_get(json_object_get(call, "function"), "name");
        if (id && name && json_object_set(names, id, name)) return false;
    }
    return true;
}

/* Returns the name of the function whose result the message is; NULL if it is unknown. */
static const char *called_name(const json_t *names, const json_t *result)
{
    const char *id = json_string_value(json_object_get(result, "tool_call_id"));
    const char *name = json_string_value(json_object_get(result, "name"));
    return name || !id ? name : json_string_value(json_object_get(names, id));
}

/* Writes a message's text and then its calls, one per line. */
static bool tell_calls(growing *g, json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    bool ok = true;
    for (size_t k = 0; ok && k < json_array_size(calls); k++) {
        const json_t *function = json_object_get(json_array_get(calls, k), "function");
        json_t *line = json_pack("{s:O, s:O*}", "name", json_object_get(function, "name"), "arguments",
                                 json_object_get(function, "arguments"));
        char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
        json_t *more = text ? json_string(text) : NULL;
        ok = more && grow(g, message, more);
        json_decref(more);
        json_decref(line);
        app_json_free(text);
    }
    return ok && !(calls && json_object_del(message, "tool_calls"));
}

/* Adds a result as a paragraph to the user's message; begins one if the last message is not the user's. */
static bool tell_result(growing *g, json_t *out, const json_t *names, const json_t *result)
{
    const json_t *content = json_object_get(result, "content");
    const char *name = called_name(names, result), *text = json_is_string(content) ? json_string_value(content) : "";
    const size_t n = json_string_length(content);
    json_t *more = name ? json_pack("s+++%", "Result of ", name, ":\n", text, n) : json_stringn(text, n);
    bool ok = more && (has_role(last_of(out), "user") ||
                       !json_array_append_new(out, json_pack("{s:s, s:s}", "role", "user", "content", "")));
    ok = ok && grow(g, last_of(out), more);
    json_decref(more);
    return ok;
}

/* Returns a new list of the messages in which calls and results are text and roles alternate. Returns NULL when out of
 * memory. */
static json_t *tell(json_t *messages)
{
    json_t *out = json_array(), *names = json_object();
    growing g = {0};
    bool ok = out && names, told = false; /* told: the last message is a result */
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        const bool result = has_role(message, "tool");
        ok = note_names(names, message);
        if (!ok) break;
        if (result) ok = tell_result(&g, out, names, message);
        else if (told && has_role(message, "user")) ok = grow(&g, last_of(out), json_object_get(message, "content"));
        else ok = !json_array_append_new(out, json_copy(message)) && tell_calls(&g, last_of(out));
        told = result;
    }
    ok = close_growing(&g) && ok;
    json_decref(names);
    if (ok) return out;
    json_decref(out);
    return NULL;
}

/* Returns the messages that are not the system's, which are handled separately; NULL when out of memory. */
static json_t *others_of(const json_t *messages)
{
    json_t *others = json_array();
    bool ok = others != NULL;
    for (size_t i = 0; ok && i < json_array_size(messages); i++)
        if (!has_role(json_array_get(messages, i), "system")) ok = !json_array_append(others, json_array_get(messages, i));
    if (ok) return others;
    json_decref(others);
    return NULL;
}

/* Returns whether the template, which does not know tools, refuses calls and results or leaves out results. */
static bool loses_calls(serve_ask *ask, const json_t *messages, const json_t *object)
{
    const char *text = serve_ask_template(ask)->text;
    if (ask->model->takes_tools || (text && strstr(text, "tool"))) return false;
    json_t *others = others_of(messages);
    const bool loses = others && !holds(ask, others, object, AS_GIVEN, TURNS_AS_GIVEN);
    json_decref(others);
    return loses;
}

/* Returns whether the template takes the conversation apart from system messages, with turns joined if necessary. */
static bool holds_others(serve_ask *ask, const json_t *messages, const json_t *object)
{
    json_t *others = others_of(messages);
    bool ok = false;
    for (int turns = 0; others && !ok && turns < N_TURNS; turns++) ok = holds(ask, others, object, AS_GIVEN, turns);
    json_decref(others);
    return ok;
}

/* Changes calls and results as little as the template needs. Returns false if memory is short. */
static bool settle_calls(serve_ask *ask, json_t **messages, const json_t *object)
{
    if (!serve_calls_odd(*messages) || holds_others(ask, *messages, object)) return true;
    for (int level = 1; level <= SERVE_CALLS_LEVELS; level++) {
        json_t *mended = serve_calls_mend(*messages, level);
        if (!mended) return false;
        const bool helps = holds_others(ask, mended, object);
        json_decref(helps ? *messages : mended);
        if (helps) *messages = mended;
        if (helps) break;
    }
    return true;
}

bool serve_turns_settle(serve_ask *ask, json_t **messages, const json_t *object, serve_error *error)
{
    if (answer_style_wants_short_ids(&ask->style) && !serve_tools_ids(*messages)) return serve_fail_memory(error);
    if (any_calls(*messages) && loses_calls(ask, *messages, object)) {
        json_t *told = tell(*messages);
        if (!told) return serve_fail_memory(error);
        json_decref(*messages);
        *messages = told;
    }
    if (!settle_calls(ask, messages, object)) return serve_fail_memory(error);
    const bool expected = is_expected(ask, *messages), joins = may_be_joined(*messages);
    if (expected && !joins) return true;
    const int n_turns = joins ? N_TURNS : 1, n_how = expected ? 1 : N_ARRANGEMENTS;
    for (int turns = 0; turns < n_turns; turns++) {
        for (int how = 0; how < n_how; how++) {
            if (!holds(ask, *messages, object, how, turns)) continue;
            json_t *shaped = shape(*messages, how, turns);
            if (!shaped) return serve_fail_memory(error);
            json_decref(*messages);
            *messages = shaped;
            return true;
        }
    }
    return true; /* no arrangement helps; the template's error says why */
}
