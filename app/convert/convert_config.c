/* convert_config.c - config.json of a checkpoint: values by key, and who wrote it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "convert/convert.h"

static const char *const producers[CONVERT_N_PRODUCERS] = {"official",    "specforge", "angelslim",
                                                           "speculators", "nvidia",    "medusa"};

const char *convert_producer_name(convert_producer producer)
{
    return producers[producer];
}

/* ---- The file ----------------------------------------------------------------------------------- */

/* config.json in the folder of the checkpoint; NULL when out of memory. */
static char *beside(convert *c)
{
    struct stat info;
    ae_buf path = {0};
    if (stat(c->path, &info) == 0 && S_ISDIR(info.st_mode)) {
        ae_buf_addf(&path, "%s/config.json", c->path);
    } else {
        const char *slash = strrchr(c->path, '/');
        ae_buf_addf(&path, "%.*sconfig.json", slash ? (int)(slash - c->path) + 1 : 0, c->path);
    }
    char *copy = path.failed ? NULL : ae_arena_strndup(&c->arena, path.data, path.n);
    ae_buf_free(&path);
    return copy;
}

static int parse_config(convert *c)
{
    json_error_t where;
    ae_file_map text;
    aerie_error error = {0};
    CONVERT_TRY(app_report(APP_LOADING, ae_file_map_open(&text, c->config_path, true, &error), &error));
    c->config = json_loadb((const char *)text.data, text.bytes, JSON_REJECT_DUPLICATES, &where);
    ae_file_map_close(&text);
    if (!c->config) {
        return app_error(APP_BAD_FILE, "%s: line %d, column %d: %s", c->config_path, where.line, where.column, where.text);
    }
    if (!json_is_object(c->config)) return app_error(APP_BAD_FILE, "%s: this is not a JSON object", c->config_path);
    c->layer = json_object_get(c->config, "transformer_layer_config");
    if (c->layer && !json_is_object(c->layer)) {
        return app_error(APP_BAD_FILE, "%s: 'transformer_layer_config' is not an object", c->config_path);
    }
    c->eagle = json_object_get(c->config, "eagle_config");
    if (!json_is_object(c->eagle)) c->eagle = NULL;
    return APP_DONE;
}

int convert_read_config(convert *c)
{
    struct stat info;
    const char *given = c->options->convert_config;
    c->config_path = given ? given : beside(c);
    if (!c->config_path) return app_error_memory("a path");
    if (!given && stat(c->config_path, &info) != 0) {
        c->config_path = ""; /* Medusa heads need none; for others the missing key is reported later */
        return APP_DONE;
    }
    return parse_config(c);
}

/* ---- Values ------------------------------------------------------------------------------------- */

const json_t *convert_value(const convert *c, const char *key)
{
    const json_t *value = json_object_get(c->layer, key);
    if (!value || json_is_null(value)) value = json_object_get(c->config, key);
    return json_is_null(value) ? NULL : value;
}

/* The value, shortened, for messages. */
static const char *as_text(const json_t *value, char out[48])
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(out, 48, "%.40s", text ? text : "?");
    free(text);
    return out;
}

int convert_u32(const convert *c, const char *key, uint32_t lo, uint32_t hi, uint32_t *value)
{
    char found[48];
    const json_t *json = convert_value(c, key);
    if (!json) return APP_DONE;
    if (!json_is_integer(json) || json_integer_value(json) < (json_int_t)lo || json_integer_value(json) > (json_int_t)hi) {
        return app_error(APP_BAD_FILE, "%s: '%s' is %s, but must be a whole number from %u to %u", c->config_path, key,
                         as_text(json, found), (unsigned)lo, (unsigned)hi);
    }
    *value = (uint32_t)json_integer_value(json);
    return APP_DONE;
}

int convert_need_u32(const convert *c, const char *key, uint32_t lo, uint32_t hi, uint32_t *value)
{
    if (!c->config) {
        return app_error(APP_BAD_FILE, "%s: there is no config.json beside it, which is needed for '%s'; --config "
                                       "FILE names another config", c->path,
                         key);
    }
    if (!convert_value(c, key)) return app_error(APP_BAD_FILE, "%s: '%s' is missing", c->config_path, key);
    return convert_u32(c, key, lo, hi, value);
}

int convert_real(const convert *c, const json_t *value, const char *key, double lo, double hi, double *out)
{
    char found[48];
    if (!value || json_is_null(value)) return APP_DONE;
    const double real = json_number_value(value);
    if (!json_is_number(value) || !(real >= lo && real <= hi)) {
        return app_error(APP_BAD_FILE, "%s: '%s' is %s, but must be a number from %g to %g", c->config_path, key,
                         as_text(value, found), lo, hi);
    }
    *out = real;
    return APP_DONE;
}

int convert_bool(const convert *c, const char *key, bool *value, bool *given)
{
    char found[48];
    const json_t *json = convert_value(c, key);
    if (given) *given = json != NULL;
    if (!json) return APP_DONE;
    if (!json_is_boolean(json)) {
        return app_error(APP_BAD_FILE, "%s: '%s' is %s, but must be true or false", c->config_path, key, as_text(json, found));
    }
    *value = json_is_true(json);
    return APP_DONE;
}

const char *convert_text(const convert *c, const char *key)
{
    return json_string_value(convert_value(c, key));
}

/* ---- Who wrote it --------------------------------------------------------------------------------- */

static bool is_architecture(const convert *c, const char *name)
{
    const json_t *list = json_object_get(c->config, "architectures"), *item;
    size_t i;
    json_array_foreach(list, i, item) {
        const char *text = json_string_value(item);
        if (text && strcmp(text, name) == 0) return true;
    }
    return false;
}

/* ModelOpt's own words in eagle_config; SpecForge writes two others there. */
static bool is_modelopt(const convert *c)
{
    static const char *const words[] = {"use_last_layernorm", "use_input_layernorm_in_first_layer", "use_mtp_layernorm"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (json_object_get(c->eagle, words[i])) return true;
    }
    const json_t *use = json_object_get(c->eagle, "use_aux_hidden_state");
    return json_is_false(use);
}

static bool is_speculators(const convert *c)
{
    static const char *const keys[] = {"speculators_config", "speculators_model_type", "speculators_version",
                                       "transformer_layer_config"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (json_object_get(c->config, keys[i])) return true;
    }
    return is_architecture(c, "Eagle3Speculator") || is_architecture(c, "Eagle3DraftModel") ||
           is_architecture(c, "EagleSpeculator");
}

int convert_find_producer(convert *c)
{
    const char *given = c->options->convert_producer;
    convert_producer *producer = &c->head.producer;
    if (given) {
        for (int i = 0; i < CONVERT_MEDUSA; i++) {
            if (strcmp(given, producers[i]) == 0) {
                *producer = (convert_producer)i;
                return APP_DONE;
            }
        }
        return app_error(APP_USAGE, "--producer takes official, specforge, angelslim, speculators or nvidia; found '%s'",
                         given);
    }
    if (is_speculators(c)) *producer = CONVERT_SPECULATORS;
    else if (is_modelopt(c)) *producer = CONVERT_NVIDIA;
    else if (is_architecture(c, "Eagle3LlamaForCausalLM")) *producer = CONVERT_ANGELSLIM;
    else if (is_architecture(c, "LlamaForCausalLMEagle3") || c->eagle) *producer = CONVERT_SPECFORGE;
    else *producer = CONVERT_OFFICIAL;
    return APP_DONE;
}
