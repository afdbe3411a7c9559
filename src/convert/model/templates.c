/* templates.c - the chat templates of a model's folder, in the order in which transformers looks for them: chat_template.jinja
 * and additional_chat_templates/NAME.jinja, which replace the others; tokenizer_config.json; chat_template.json, in models for
 * images or sound. The default template is written as tokenizer.chat_template, and the others under their names. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/archs/arch.h"
#include "convert/model/vocab.h"

enum { MAX_TEMPLATES = 32, NAME_BYTES = 41 };

typedef struct templates {
    struct {
        char name[NAME_BYTES]; /* "default" */
        char *text;            /* owned */
    } items[MAX_TEMPLATES];
    size_t n;
} templates;

/* Adds a template; the first one with a name counts. Names that no key can contain are ignored. */
static aerie_status add(const ae_convert *c, templates *t, const char *name, size_t n_name, const char *text, size_t n)
{
    if (!n_name || n_name >= NAME_BYTES || t->n == MAX_TEMPLATES || memchr(text, '\0', n)) return AERIE_OK;
    for (size_t i = 0; i < t->n; i++)
        if (strlen(t->items[i].name) == n_name && memcmp(t->items[i].name, name, n_name) == 0) return AERIE_OK;
    memcpy(t->items[t->n].name, name, n_name);
    t->items[t->n].name[n_name] = '\0';
    t->items[t->n].text = ae_strndup(text, n);
    if (!t->items[t->n].text) return ae_convert_no_memory(c, "a chat template");
    t->n++;
    return AERIE_OK;
}

/* Adds a file of the folder, if it exists. */
static aerie_status add_file(const ae_convert *c, templates *t, const char *name, size_t n_name, const char *file)
{
    char *text = NULL, *path = ae_convert_path_in(c, file);
    size_t n = 0;
    if (!path) return ae_convert_no_memory(c, "a path");
    aerie_status status = AERIE_OK;
    if (ae_file_exists(path)) {
        status = ae_convert_read_text(c, path, &text, &n);
        if (status == AERIE_OK && memchr(text, '\0', n))
            status = ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: %s is not text", c->path, file);
        if (status == AERIE_OK) status = add(c, t, name, n_name, text, n);
    }
    ae_free(text);
    ae_free(path);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

#define ADDITIONAL "additional_chat_templates"

/* Adds the files in the order of their names, because the order of a folder depends on the system. */
static aerie_status add_additional(const ae_convert *c, templates *t)
{
    static const char end[] = ".jinja";
    char *names[MAX_TEMPLATES], *path = ae_convert_path_in(c, ADDITIONAL);
    size_t n = 0;
    aerie_status status = path ? AERIE_OK : ae_convert_no_memory(c, "a path");
    DIR *folder = path ? opendir(path) : NULL;
    for (const struct dirent *e; folder && n < MAX_TEMPLATES && (e = readdir(folder));) {
        const size_t n_name = strlen(e->d_name);
        if (n_name <= strlen(end) || strcmp(e->d_name + n_name - strlen(end), end)) continue;
        if ((names[n] = ae_strndup(e->d_name, n_name))) n++;
        else status = ae_convert_no_memory(c, "a path");
    }
    if (folder) closedir(folder);
    if (n) qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++) {
        ae_buf file = {0};
        ae_buf_addf(&file, ADDITIONAL "/%s", names[i]);
        if (status == AERIE_OK && file.failed) status = ae_convert_no_memory(c, "a path");
        if (status == AERIE_OK) status = add_file(c, t, names[i], strlen(names[i]) - strlen(end), file.data);
        ae_buf_free(&file);
        ae_free(names[i]);
    }
    ae_free(path);
    return status;
}

/* Adds a text, a list of objects with "name" and "template", or an object that maps names to texts. */
static aerie_status add_json(const ae_convert *c, templates *t, const json_t *value)
{
    json_t *one;
    const char *key;
    size_t i;
    json_object_foreach((json_t *)value, key, one)
        if (json_is_string(one)) AE_TRY(add(c, t, key, strlen(key), json_string_value(one), json_string_length(one)));
    if (json_is_string(value))
        return add(c, t, "default", strlen("default"), json_string_value(value), json_string_length(value));
    json_array_foreach((json_t *)value, i, one) {
        const json_t *name = json_object_get(one, "name"), *text = json_object_get(one, "template");
        if (json_is_string(name) && json_is_string(text) && strlen(json_string_value(name)) == json_string_length(name))
            AE_TRY(add(c, t, json_string_value(name), json_string_length(name), json_string_value(text),
                       json_string_length(text)));
    }
    return AERIE_OK;
}

static aerie_status find_all(const ae_convert *c, templates *t, const json_t *config)
{
    json_t *processor;
    AE_TRY(add_file(c, t, "default", strlen("default"), "chat_template.jinja"));
    const bool replaced = t->n > 0;
    AE_TRY(add_additional(c, t));
    if (!replaced) AE_TRY(add_json(c, t, json_object_get(config, "chat_template")));
    AE_TRY(ae_convert_read_json(c, "chat_template.json", &processor));
    const aerie_status status = replaced ? AERIE_OK : add_json(c, t, json_object_get(processor, "chat_template"));
    json_decref(processor);
    return status;
}

aerie_status ae_convert_put_templates(const ae_convert *c, ae_gguf_writer *out, const json_t *config)
{
    templates t = {.n = 0};
    aerie_status status = find_all(c, &t, config);
    if (status == AERIE_OK && c->decision_config) {
        ae_buf text = {0};
        status = ae_convert_systemone_modern(c, config, &text);
        if (status == AERIE_OK) status = add(c, &t, "systemone", strlen("systemone"), text.data, text.n);
        ae_buf_free(&text);
    }
    if (status == AERIE_OK && c->arch && c->arch->systemone)
        status = add(c, &t, "systemone", strlen("systemone"), c->arch->systemone, strlen(c->arch->systemone));
    for (size_t i = 0; i < t.n; i++) {
        char key[96] = "tokenizer.chat_template";
        const bool is_default = strcmp(t.items[i].name, "default") == 0;
        if (!is_default) snprintf(key, sizeof key, "tokenizer.chat_template.%s", t.items[i].name);
        if (status == AERIE_OK) status = ae_gguf_writer_string(out, key, t.items[i].text, c->error);
        ae_free(t.items[i].text);
    }
    return status;
}
