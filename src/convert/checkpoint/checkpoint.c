/* checkpoint.c - the files of a checkpoint: opens its tensors and its config.json, and reads values of that by key. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "convert/checkpoint/checkpoint.h"
#include "formats/kind.h"

aerie_status ae_convert_no_memory(const ae_convert *c, const char *what)
{
    return ae_fail(c->error, AERIE_ERROR_MEMORY, "not enough memory for %s", what);
}

aerie_status ae_convert_step(const ae_convert *c, const char *step, uint64_t done, uint64_t total)
{
    if (!c->options.progress || c->options.progress(c->options.user, step, done, total)) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_CANCELLED, "%s was cancelled", step);
}

/* ---- The files ---------------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Returns whether torch.save uses this name: such files are pickles, which only Python can read. */
static bool is_pickle(const char *path)
{
    static const char *const ends[] = {".bin", ".pt", ".pth", ".ckpt"};
    const size_t n = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t k = strlen(ends[i]);
        if (n > k && strcmp(path + n - k, ends[i]) == 0) return true;
    }
    return false;
}

static aerie_status fail_pickle(const ae_convert *c, const char *path)
{
    const char *other = ae_kind_path(path);
    if (other) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: this is %s", path, other);
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: this is a PyTorch checkpoint, which aerie does not read; convert it to "
                   "safetensors: python3 training/torch_to_safetensors.py %s", path, c->path);
}

static aerie_status open_tensors(ae_convert *c)
{
    static const char *const files[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "medusa_lm_head.pt"};
    char path[4096];
    if (is_pickle(c->path) && ae_file_exists(c->path)) return fail_pickle(c, c->path);
    const aerie_status status = ae_safetensors_open(&c->st, c->path, c->error);
    for (size_t i = 0; status == AERIE_ERROR_IO && i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", c->path, files[i]);
        if (ae_file_exists(path)) return fail_pickle(c, path);
    }
    return status;
}

/* Returns whether the checkpoint is an adapter: by the names that PEFT gives tensors, or by its config. */
static bool is_adapter(const ae_convert *c, const char *peft, const char *config)
{
    for (size_t i = 0; c->st && i < ae_safetensors_n_tensors(c->st); i++) {
        const char *name = ae_safetensors_tensor_at(c->st, i)->name;
        if (strstr(name, ".lora_A.") || strstr(name, ".lora_B.")) return true;
    }
    return ae_file_exists(peft) && !(c->st && ae_file_exists(config));
}

aerie_status ae_convert_open_tensors(ae_convert *c)
{
    char *peft = ae_convert_path_in(c, "adapter_config.json"), *config = ae_convert_path_in(c, "config.json");
    const char *what = NULL;
    aerie_status status = peft && config ? open_tensors(c) : ae_convert_no_memory(c, "a path");
    if (status != AERIE_ERROR_MEMORY) {
        const bool adapter = is_adapter(c, peft, config);
        c->is_adapter = adapter && c->st && c->options.target;
        if (c->is_adapter) {
            if (!c->options.config && ae_file_exists(peft))
                c->options.config = ae_arena_strndup(&c->arena, peft, strlen(peft));
            if (!c->options.config && ae_file_exists(peft)) status = ae_convert_no_memory(c, "a path");
        } else if (adapter)
            what = ae_file_exists(peft) && is_folder(c->path) ? ae_kind_folder(c->path)
                   : c->st                                    ? ae_kind_path(ae_safetensors_file(c->st, 0))
                                                              : NULL;
    }
    if (what) status = ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: this is %s", c->path, what);
    ae_free(peft);
    ae_free(config);
    return status;
}

char *ae_convert_path_in(const ae_convert *c, const char *name)
{
    ae_buf path = {0};
    if (is_folder(c->path)) {
        ae_buf_addf(&path, "%s/%s", c->path, name);
    } else {
        const char *slash = strrchr(c->path, '/');
        ae_buf_addf(&path, "%.*s%s", slash ? (int)(slash - c->path) + 1 : 0, c->path, name);
    }
    if (!path.failed) return path.data;
    ae_buf_free(&path);
    return NULL;
}

aerie_status ae_convert_read_text(const ae_convert *c, const char *path, char **text, size_t *n)
{
    ae_file_map map;
    *text = NULL;
    AE_TRY(ae_file_map_open(&map, path, true, c->error));
    const char *encoding = ae_text_foreign((const char *)map.data, map.bytes);
    aerie_status status = AERIE_OK;
    if (ae_kind_is_pointer(map.data, map.bytes))
        status = ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: this is %s", path, ae_kind_bytes(map.data, map.bytes));
    else if (encoding)
        status = ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: this is %s, but must be UTF-8: 'iconv -f %s -t UTF-8' converts it",
                         path, encoding, encoding);
    else if (!(*text = ae_strndup((const char *)map.data, map.bytes))) status = ae_convert_no_memory(c, path);
    else *n = ae_text_settle(*text, map.bytes);
    ae_file_map_close(&map);
    return status;
}

/* Replaces an infinity or NaN at text[0..n) by 0. Returns its length; 0: there is none. */
static size_t blank_infinity(char *text, size_t n)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    for (size_t k = 0; k < 3; k++) {
        const size_t n_word = strlen(words[k]);
        if (n < n_word || memcmp(text, words[k], n_word)) continue;
        memset(text, ' ', n_word);
        text[0] = '0';
        return n_word;
    }
    return 0;
}

/* Rewrites an integer at text[0..n) that does not fit in 64 bits as a floating-point number of about the same value. Returns
 * the length of the number, rewritten or not; 0: there is none. */
static size_t shorten_integer(char *text, size_t n)
{
    static const char most[] = "9223372036854775807";
    size_t n_digits = 0, n_all = 0;
    while (n_digits < n && text[n_digits] >= '0' && text[n_digits] <= '9') n_digits++;
    for (n_all = n_digits; n_digits && n_all < n && memchr("0123456789.eE+-", text[n_all], 15);) n_all++;
    const bool fits = n_digits < sizeof most - 1 || (n_digits == sizeof most - 1 && memcmp(text, most, n_digits) <= 0);
    if (fits || n_all > n_digits) return n_all;
    char number[24];
    const int length = snprintf(number, sizeof number, "%c.%.12se%zu", text[0], text + 1, n_digits < 300 ? n_digits - 1 : 300);
    memset(text, ' ', n_digits);
    memcpy(text, number, (size_t)length);
    return n_all;
}

/* Rewrites numbers that Python writes, but that JSON or its reader do not support. No value that is used here is an infinity or
 * a
 * NaN. An integer beyond 64 bits is usually model_max_length, 10^30 for tokenizers without a limit. */
static void settle_numbers(char *text, size_t n)
{
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        if (quoted && text[i] == '\\') i++;
        else if (text[i] == '"') quoted = !quoted;
        if (quoted || i >= n) continue;
        size_t n_number = blank_infinity(text + i, n - i);
        if (!n_number) n_number = shorten_integer(text + i, n - i);
        if (n_number) i += n_number - 1;
    }
}

aerie_status ae_convert_read_json(const ae_convert *c, const char *name, json_t **json)
{
    char *text = NULL, *path = ae_convert_path_in(c, name);
    size_t n = 0;
    json_error_t where;
    *json = NULL;
    if (!path) return ae_convert_no_memory(c, "a path");
    aerie_status status = AERIE_OK;
    if (ae_file_exists(path)) {
        status = ae_convert_read_text(c, path, &text, &n);
        if (status == AERIE_OK) {
            settle_numbers(text, n);
            *json = json_loadb(text, n, JSON_ALLOW_NUL, &where);
            if (!json_is_object(*json))
                status =
                    ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: %s", path, *json ? "this is not a JSON object" : where.text);
        }
    }
    if (status != AERIE_OK) {
        json_decref(*json);
        *json = NULL;
    }
    ae_free(text);
    ae_free(path);
    return status;
}

static bool has_file(const ae_convert *c, const char *name)
{
    char *path = ae_convert_path_in(c, name);
    const bool has = path && ae_file_exists(path);
    ae_free(path);
    return has;
}

/* Finds the settings of Laya's or Julia's decision head. */
static void find_decision(ae_convert *c)
{
    static const char *const names[] = {"julia_config.json", "rl_agent_config.json"};
    for (size_t i = 0; i < 2 && has_file(c, "encoder/config.json") && !c->decision_config; i++)
        if (has_file(c, names[i])) c->decision_config = names[i];
}

/* Returns the path of config.json in the checkpoint's folder; NULL if memory is short. */
static const char *beside(ae_convert *c)
{
    char *path = ae_convert_path_in(c, c->decision_config ? "encoder/config.json" : "config.json");
    const char *copy = path ? ae_arena_strndup(&c->arena, path, strlen(path)) : NULL;
    ae_free(path);
    return copy;
}

static aerie_status parse_config(ae_convert *c)
{
    json_error_t where;
    char *copy;
    size_t n = 0;
    AE_TRY(ae_convert_read_text(c, c->config_path, &copy, &n));
    settle_numbers(copy, n);
    c->config = json_loadb(copy, n, JSON_REJECT_DUPLICATES, &where);
    if (!c->config && json_error_code(&where) == json_error_duplicate_key) {
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: line %d: %s: the last value counts, as in Python", c->config_path,
                   where.line, where.text);
        c->config = json_loadb(copy, n, 0, &where);
    }
    ae_free(copy);
    if (!c->config) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: line %d, column %d: %s", c->config_path, where.line, where.column,
                       where.text);
    }
    if (!json_is_object(c->config))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: this is not a JSON object", c->config_path);
    c->layer = json_object_get(c->config, "transformer_layer_config");
    if (c->layer && !json_is_object(c->layer)) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'transformer_layer_config' is not an object", c->config_path);
    }
    c->eagle = json_object_get(c->config, "eagle_config");
    if (!json_is_object(c->eagle)) c->eagle = NULL;
    return AERIE_OK;
}

aerie_status ae_convert_read_config(ae_convert *c)
{
    const char *given = c->options.config;
    find_decision(c);
    c->config_path = given ? given : beside(c);
    if (!c->config_path) return ae_convert_no_memory(c, "a path");
    if (!given && !ae_file_exists(c->config_path)) {
        c->config_path = ""; /* Medusa heads need no config; for other heads the missing key is reported later */
        return AERIE_OK;
    }
    return parse_config(c);
}

/* ---- Values ------------------------------------------------------------------------------------- */

const json_t *ae_convert_value(const ae_convert *c, const char *key)
{
    const json_t *value = json_object_get(c->layer, key);
    if (!value || json_is_null(value)) value = json_object_get(c->config, key);
    return json_is_null(value) ? NULL : value;
}

/* Returns the value, shortened, for messages. */
static const char *as_text(const json_t *value, char out[48])
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(out, 48, "%.40s", text ? text : "?");
    free(text);
    return out;
}

aerie_status ae_convert_u32(const ae_convert *c, const char *key, uint32_t lo, uint32_t hi, uint32_t *value)
{
    char found[48];
    const json_t *json = ae_convert_value(c, key);
    if (!json) return AERIE_OK;
    const double real = json_number_value(json); /* 4096.0 and 1e6 are whole numbers, too */
    if (!json_is_number(json) || !(real >= (double)lo && real <= (double)hi) || real != floor(real)) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' is %s, but must be a whole number from %u to %u", c->config_path,
                       key, as_text(json, found), (unsigned)lo, (unsigned)hi);
    }
    *value = (uint32_t)real;
    return AERIE_OK;
}

aerie_status ae_convert_need_u32(const ae_convert *c, const char *key, uint32_t lo, uint32_t hi, uint32_t *value)
{
    if (!c->config) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: there is no config.json beside it, which is needed for '%s'; --config "
                       "FILE names another config",
                       c->path, key);
    }
    if (!ae_convert_value(c, key)) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' is missing", c->config_path, key);
    return ae_convert_u32(c, key, lo, hi, value);
}

aerie_status ae_convert_real(const ae_convert *c, const json_t *value, const char *key, double lo, double hi, double *out)
{
    char found[48];
    if (!value || json_is_null(value)) return AERIE_OK;
    const double real = json_number_value(value);
    if (!json_is_number(value) || !(real >= lo && real <= hi)) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' is %s, but must be a number from %g to %g", c->config_path, key,
                       as_text(value, found), lo, hi);
    }
    *out = real;
    return AERIE_OK;
}

aerie_status ae_convert_bool(const ae_convert *c, const char *key, bool *value, bool *given)
{
    char found[48];
    const json_t *json = ae_convert_value(c, key);
    if (given) *given = json != NULL;
    if (!json) return AERIE_OK;
    if (!json_is_boolean(json)) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' is %s, but must be true or false", c->config_path, key,
                       as_text(json, found));
    }
    *value = json_is_true(json);
    return AERIE_OK;
}

const char *ae_convert_text(const ae_convert *c, const char *key)
{
    return json_string_value(ae_convert_value(c, key));
}

aerie_status ae_convert_check_fixed(const ae_convert *c, const char *key, const json_t *meant, const char *title)
{
    const json_t *value = ae_convert_value(c, key);
    char found[48], wanted[48];
    if (!value) return AERIE_OK;
    const bool same = json_is_number(value) && json_is_number(meant)
                          ? json_number_value(value) <= json_number_value(meant) &&
                                json_number_value(value) >= json_number_value(meant)
                          : json_equal(value, meant);
    if (same) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: '%s' is %s; of %s %s is supported", c->config_path, key,
                   as_text(value, found), title, as_text(meant, wanted));
}
