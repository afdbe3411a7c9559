/* chat_format.c - implements chat_format.h. */
#include <string.h>

#include "setup/chat_format.h"

const char *app_path_name(const char *path)
{
    return path && strcmp(path, "-") == 0 ? "standard input" : path;
}

/* ---- Templates ----------------------------------------------------------------------------------------------- */

static int set_template(app_format *format, const char *text, const char *name)
{
    format->name = name;
    return app_text_add(&format->template_text, text, strlen(text)) ? APP_DONE : app_error_memory("the chat template");
}

/* Reads the text of a template, or finds a known one by name. */
static int read_template(app_format *format, const app_options *options)
{
    const char *given = options->chat.template_text;
    if (given && options->chat.template_file)
        return app_error(APP_USAGE, "--chat-template and --chat-template-file exclude each other");
    if (options->chat.template_file) {
        format->name = app_path_name(options->chat.template_file);
        return app_read_file(&format->template_text, options->chat.template_file);
    }
    if (!given) return APP_DONE;
    if (strchr(given, '{')) return set_template(format, given, "--chat-template");
    const char *text = aerie_chat_template_builtin(given);
    if (text) return set_template(format, text, given);
    app_text known = {0};
    for (size_t i = 0; aerie_chat_template_name(i); i++) {
        const char *name = aerie_chat_template_name(i);
        if ((i && !app_text_add(&known, ", ", 2)) || !app_text_add(&known, name, strlen(name))) break;
    }
    app_error(APP_USAGE, "--chat-template takes the text of a template (Jinja) or one of %s; found '%s'; a file is given by "
              "--chat-template-file", known.data ? known.data : "", given);
    app_text_free(&known);
    return APP_USAGE;
}

/* ---- Variables ------------------------------------------------------------------------------------------------ */

enum { NAME_BYTES = 128 };

static bool is_name(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (i == 0 || c < '0' || c > '9')) return false;
    }
    return n > 0 && n < NAME_BYTES;
}

/* Adds NAME=JSON to the object. */
static int add_variable(json_t *object, const char *text)
{
    json_error_t e;
    char name[NAME_BYTES];
    const char *equals = strchr(text, '=');
    if (!equals || !is_name(text, (size_t)(equals - text)))
        return app_error(APP_USAGE, "--set takes NAME=JSON, such as enable_thinking=false; found '%s'", text);
    snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    json_t *value = json_loads(equals + 1, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (!value)
        return app_error(APP_USAGE, "--set %s: not JSON: %s (a text stands in quotes: --set '%s=\"...\"')", text, e.text, name);
    return json_object_set_new(object, name, value) ? app_error_memory("the variables") : APP_DONE;
}

static int append(const char *bytes, size_t n, void *text)
{
    return app_text_add(text, bytes, n) ? 0 : -1;
}

static int write_variables(app_text *out, const json_t *object)
{
    out->n = 0;
    return json_dump_callback(object, append, out, JSON_COMPACT) ? app_error_memory("the variables") : APP_DONE;
}

/* Reads --chat-template-kwargs and --set as one JSON object; the text stays empty if there are none. */
static int read_variables(app_text *out, const app_options *options)
{
    json_error_t e;
    if (!options->chat.template_kwargs && !options->render.variables.n) return APP_DONE;
    json_t *object = options->chat.template_kwargs ? json_loads(options->chat.template_kwargs, JSON_ALLOW_NUL,
                                                                &e) : json_object();
    int bad = APP_DONE;
    if (!object && !options->chat.template_kwargs) bad = app_error_memory("the variables");
    else if (!object) bad = app_error(APP_USAGE, "--chat-template-kwargs: not a JSON object: %s", e.text);
    else if (!json_is_object(object)) bad = app_error(APP_USAGE, "--chat-template-kwargs: not a JSON object");
    for (size_t i = 0; !bad && i < options->render.variables.n; i++) bad = add_variable(object,
                                                                                        options->render.variables.items[i]);
    if (!bad) bad = write_variables(out, object);
    json_decref(object);
    return bad;
}

/* ---- Thinking -------------------------------------------------------------------------------------------------- */

/* Returns the prompt of a short conversation with these variables; NULL if the template refuses. */
static char *try_variable(const app_format *format, const char *text, const json_t *variables, const char *name, bool value,
                          size_t *n)
{
    static const aerie_message turn = {"user", "x"};
    char *prompt = NULL;
    app_text all = {0};
    json_t *object = json_copy((json_t *)variables);
    const bool ok = object && !json_object_set_new(object, name, json_boolean(value)) && !write_variables(&all, object);
    aerie_chat chat = app_format_chat(format);
    chat.template_text = (aerie_text){text, strlen(text), NULL};
    chat.variables = (aerie_text){all.data, all.n, NULL};
    chat.turns = &turn;
    chat.n_turns = 1;
    if (ok && aerie_model_chat_render(NULL, &chat, &prompt, n, NULL) != AERIE_OK) prompt = NULL;
    json_decref(object);
    app_text_free(&all);
    return prompt;
}

/* Returns whether the template's output depends on this variable. */
static bool has_variable(const app_format *format, const char *text, const json_t *variables, const char *name)
{
    size_t n_on = 0, n_off = 0;
    char *on = try_variable(format, text, variables, name, true, &n_on);
    char *off = try_variable(format, text, variables, name, false, &n_off);
    const bool differ = on && off && (n_on != n_off || memcmp(on, off, n_on));
    aerie_free(on);
    aerie_free(off);
    return differ;
}

static bool is_on(const app_chat_options *chat) { return chat->reasoning && !strcmp(chat->reasoning, "on"); }
static bool is_off(const app_chat_options *chat) { return chat->reasoning && !strcmp(chat->reasoning, "off"); }

/* Sets a variable that is not given yet. Takes ownership of value. */
static int set_default(json_t *object, const char *name, json_t *value)
{
    const bool given = json_object_get(object, name) != NULL;
    if (given) json_decref(value);
    return given || !json_object_set_new(object, name, value) ? APP_DONE : app_error_memory("the variables");
}

/* Sets the variables that turn thinking on and off in templates. Returns whether the template reads one of them. */
static bool set_thinking(const app_format *format, const char *text, json_t *object, bool on, int *bad)
{
    static const char *const names[] = {"enable_thinking", "thinking"};
    bool found = false;
    for (size_t i = 0; !*bad && i < sizeof names / sizeof *names; i++) {
        if (!has_variable(format, text, object, names[i])) continue;
        found = true;
        *bad = set_default(object, names[i], json_boolean(on));
    }
    return found;
}

/* Sets the variables for --reasoning, --reasoning-budget 0 and --reasoning-effort. */
static int set_reasoning(app_format *format, const char *text, const app_chat_options *chat)
{
    const char *effort = chat->reasoning_effort;
    const bool off = chat->reasoning_budget == 0 || is_off(chat);
    json_t *object = format->variables.n ? json_loadb(format->variables.data, format->variables.n, JSON_ALLOW_NUL, NULL)
                                         : json_object();
    int bad = object ? APP_DONE : app_error_memory("the variables");
    if (!bad && (off || is_on(chat))) {
        const bool found = set_thinking(format, text, object, !off, &bad);
        format->no_thinking = found && off;
        if (!found && chat->reasoning_budget)
            app_note("--reasoning %s has no effect: the chat template has no variable that turns thinking on and off "
                     "(enable_thinking, thinking)", chat->reasoning);
    }
    if (!bad && effort) bad = set_default(object, "reasoning_effort", json_string(effort));
    if (!bad && effort && !strstr(text, "reasoning_effort"))
        app_note("--reasoning-effort has no effect: the chat template does not read reasoning_effort");
    if (!bad) bad = write_variables(&format->variables, object);
    json_decref(object);
    return bad;
}

/* ---- What a template writes ---------------------------------------------------------------------------------------- */

typedef enum app_written { APP_WRITTEN, APP_NOT_WRITTEN, APP_REFUSED } app_written;

const char *app_format_template(const app_format *format, const aerie_model_info *info, bool tools)
{
    if (format->template_text.data) return format->template_text.data;
    if (tools && format->tool_template.data) return format->tool_template.data;
    return info && info->has_chat_template ? info->chat_template : NULL;
}

/* Finds out whether a word in messages or tools (JSON; NULL: none) appears in the prompt. */
static app_written find_written(const app_format *format, const aerie_model_info *info, const char *messages, const char *tools,
                                const char *word)
{
    const char *text = app_format_template(format, info, tools != NULL);
    aerie_chat chat = app_format_chat(format);
    char *prompt = NULL;
    size_t n = 0;
    if (!text) return APP_NOT_WRITTEN;
    chat.template_text = (aerie_text){text, strlen(text), NULL};
    chat.messages = (aerie_text){messages, strlen(messages), NULL};
    chat.tools = tools ? (aerie_text){tools, strlen(tools), NULL} : (aerie_text){0};
    if (aerie_model_chat_render(NULL, &chat, &prompt, &n, NULL) != AERIE_OK) return APP_REFUSED;
    const bool found = strstr(prompt, word) != NULL;
    aerie_free(prompt);
    return found ? APP_WRITTEN : APP_NOT_WRITTEN;
}

static const char tools_tried[] = "[{\"type\": \"function\", \"name\": \"aerieword\", "
                                  "\"function\": {\"name\": \"aerieword\", \"description\": \"x\", "
                                  "\"parameters\": {\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"string\", "
                                  "\"description\": \"x\"}}, \"required\": [\"x\"]}}}]";

bool app_format_takes_system(const app_format *format, const aerie_model_info *info, bool with_tools)
{
    static const char messages[] = "[{\"role\": \"system\", \"content\": \"aeriesystem\"}, "
                                   "{\"role\": \"user\", \"content\": \"x\"}]";
    const bool other = with_tools && format->tool_template.data && !format->template_text.data;
    return find_written(format, info, messages, other ? tools_tried : NULL, "aeriesystem") == APP_WRITTEN;
}

/* Tries without and with a system message, because some templates write tools only into that. A template that refuses both
 * may accept tools in other conversations. */
bool app_format_takes_tools(const app_format *format, const aerie_model_info *info)
{
    static const char user[] = "[{\"role\": \"user\", \"content\": \"x\"}]";
    static const char both[] = "[{\"role\": \"system\", \"content\": \"x\"}, {\"role\": \"user\", \"content\": \"x\"}]";
    const app_written alone = find_written(format, info, user, tools_tried, "aerieword");
    if (alone == APP_WRITTEN) return true;
    const app_written after = find_written(format, info, both, tools_tried, "aerieword");
    return after == APP_WRITTEN || (alone == APP_REFUSED && after == APP_REFUSED);
}

/* ---- Format ---------------------------------------------------------------------------------------------------- */

int app_format_read(app_format *format, const app_options *options)
{
    *format = (app_format){.special_in_messages = options->special_in_messages};
    if (options->chat.reasoning && !is_on(&options->chat) && !is_off(&options->chat) && strcmp(options->chat.reasoning, "auto"))
        return app_error(APP_USAGE, "--reasoning takes on, off or auto; found '%s'", options->chat.reasoning);
    int bad = read_template(format, options);
    if (!bad && options->chat.tools) {
        format->tools_name = app_path_name(options->chat.tools);
        bad = app_read_file(&format->tools, options->chat.tools);
    }
    if (!bad) bad = read_variables(&format->variables, options);
    return bad;
}

/* Gets the model's template for tools, which the library uses when a conversation has tools. */
static int find_tool_template(app_format *format, const aerie_model *model)
{
    aerie_error error = {0};
    char *value = NULL;
    size_t n = 0;
    const aerie_status status = aerie_model_metadata_get(model, "tokenizer.chat_template.tool_use", &value, &n, NULL, &error);
    int bad = app_report(APP_LOADING, status, &error);
    app_text_free(&format->tool_template);
    if (!bad && value && value[strspn(value, " \t\r\n")] && !app_text_add(&format->tool_template, value, n))
        bad = app_error_memory("the template for tools");
    aerie_free(value);
    return bad;
}

int app_format_fit(app_format *format, const aerie_model *model, const aerie_model_info *info, const app_options *options,
                   bool needed)
{
    int bad = APP_DONE;
    const bool own = info && info->has_chat_template;
    if (options->no_conversation || (info && info->is_encoder)) return APP_DONE;
    if (model && own) bad = find_tool_template(format, model);
    if (bad) return bad;
    if (!format->template_text.data && !own && needed) {
        const char *family = app_format_family(model, info);
        bad = set_template(format, aerie_chat_template_builtin(family ? family : "chatml"), family ? family : "chatml");
        format->fallback = !family;
        if (!bad && !options->quiet)
            app_note("the model has no chat template, so messages use the built-in template %s%s; --chat-template sets "
                     "another, -no-cnv uses none", family ? family : "ChatML",
                     family ? ", whose control tokens are in its vocabulary" : "");
    }
    format->any = format->template_text.data || own;
    if (!bad && format->any && format->tools.data && !app_format_takes_tools(format, info))
        app_note("--tools has no effect: the chat template%s%s has no place for tools; --chat-template-file names another",
                 format->name ? " of " : "", format->name ? format->name : "");
    if (bad || !format->any) return bad;
    return set_reasoning(format, app_format_template(format, info, false), &options->chat);
}

void app_format_note_budget(const app_format *format, const app_options *options, bool has_tags)
{
    const int32_t budget = options->chat.reasoning_budget;
    if (budget < 0 || has_tags || (!budget && format->no_thinking)) return;
    app_note("--reasoning-budget %d has no effect: the chat template shows no reasoning%s", (int)budget,
             budget ? "" : ", and has no variable that turns thinking off (enable_thinking, thinking)");
}

void app_format_free(app_format *format)
{
    app_text_free(&format->template_text);
    app_text_free(&format->tool_template);
    app_text_free(&format->tools);
    app_text_free(&format->variables);
    *format = (app_format){0};
}

aerie_chat app_format_chat(const app_format *format)
{
    return (aerie_chat){
        .size = sizeof(aerie_chat),
        .template_text = {format->template_text.data, format->template_text.n, format->name},
        .tools = {format->tools.data, format->tools.n, format->tools_name},
        .variables = {format->variables.data, format->variables.n, "the template's variables"},
        .special_in_messages = format->special_in_messages,
    };
}

const char *const *app_format_stops(const app_format *format, size_t *n)
{
    static const char *const marks[] = {"<|im_end|>", "<|im_start|>"};
    *n = format->fallback ? sizeof marks / sizeof *marks : 0;
    return marks;
}
