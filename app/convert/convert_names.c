/* convert_names.c - gives the tensors of a checkpoint names that do not depend on its producer, and finds those left over at
 * the end. */
#include <stdlib.h>
#include <string.h>

#include "convert/convert.h"

/* Prefixes and their replacements. Tried in this order, each once, so that model.midlayer.x becomes layers.0.x. */
static const struct {
    const char *old, *instead;
} starts[] = {
    {"draft_model.", ""},
    {"model.", ""},
    {"midlayer.", "layers.0."},
    {"transformer.", "layers.0."},
    {"fusion_fc.", "fc."},
    {"fc_norms.", "fc_norm."},
    {"enc.output_norm.", "input_norm."},
    {"draft_id_to_target_id", "d2t"},
    {"token_map", "d2t_absolute"},
};

static char *usual_name(convert *c, const char *name)
{
    ae_buf text = {0};
    ae_buf_adds(&text, name);
    for (size_t i = 0; i < sizeof starts / sizeof *starts && !text.failed; i++) {
        const size_t n = strlen(starts[i].old);
        if (strncmp(text.data, starts[i].old, n)) continue;
        ae_buf next = {0};
        ae_buf_addf(&next, "%s%s", starts[i].instead, text.data + n);
        ae_buf_free(&text);
        text = next;
    }
    char *copy = text.failed ? NULL : ae_arena_strndup(&c->arena, text.data, text.n);
    ae_buf_free(&text);
    return copy;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const convert_entry *)a)->name, ((const convert_entry *)b)->name);
}

int convert_read_names(convert *c)
{
    const size_t n = ae_safetensors_n_tensors(c->st);
    c->entries = ae_arena_alloc(&c->arena, n, sizeof *c->entries);
    if (!c->entries) return app_error_memory("the names of tensors");
    for (size_t i = 0; i < n; i++) {
        const ae_st_tensor *t = ae_safetensors_tensor_at(c->st, i);
        convert_entry *e = &c->entries[c->n_entries];
        bool skip = false;
        for (size_t k = 0; k < c->options->convert_skip.n && !skip; k++)
            skip = strstr(t->name, c->options->convert_skip.items[k]) != NULL;
        if (skip) continue;
        *e = (convert_entry){.name = usual_name(c, t->name), .tensor = t};
        if (!e->name) return app_error_memory("the names of tensors");
        c->n_entries++;
    }
    if (c->n_entries) qsort(c->entries, c->n_entries, sizeof *c->entries, by_name);
    for (size_t i = 1; i < c->n_entries; i++) {
        if (strcmp(c->entries[i].name, c->entries[i - 1].name) == 0) {
            return app_error(APP_BAD_FILE, "%s: tensors %s and %s stand for the same part of the head; --skip leaves one out",
                             c->path, c->entries[i - 1].tensor->name, c->entries[i].tensor->name);
        }
    }
    return APP_DONE;
}

static convert_entry *find(const convert *c, const char *name)
{
    const convert_entry key = {.name = name};
    return c->n_entries ? bsearch(&key, c->entries, c->n_entries, sizeof key, by_name) : NULL;
}

const ae_st_tensor *convert_look(const convert *c, const char *name)
{
    const convert_entry *e = find(c, name);
    return e ? e->tensor : NULL;
}

const ae_st_tensor *convert_take(convert *c, const char *name)
{
    convert_entry *e = find(c, name);
    if (e) e->used = true;
    return e ? e->tensor : NULL;
}

/* Tensors that training leaves in a checkpoint and that inference does not need. */
static bool is_ballast(const char *name)
{
    static const char *const known[] = {"t2d", "verifier_lm_head.weight", "verifier_norm.weight", "rotary_emb.inv_freq",
                                        "layers.0.self_attn.rotary_emb.inv_freq"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i]) == 0) return true;
    }
    return false;
}

int convert_check_unused(const convert *c)
{
    for (size_t i = 0; i < c->n_entries; i++) {
        const convert_entry *e = &c->entries[i];
        char shape[128];
        if (e->used || is_ballast(e->name)) continue;
        if (strncmp(e->name, "layers.", 7) == 0 && strncmp(e->name, "layers.0.", 9)) {
            return app_error(APP_BAD_FILE, "%s: tensor %s: this head has more than one layer; only heads with one "
                                           "layer are supported",
                             c->path, e->tensor->name);
        }
        return app_error(APP_BAD_FILE, "%s: tensor %s %s is not known in this kind of head, which may depend on it; "
                         "--skip %s leaves it out", c->path, e->tensor->name, convert_shape(e->tensor, shape), e->tensor->name);
    }
    return APP_DONE;
}

const char *convert_shape(const ae_st_tensor *t, char out[128])
{
    size_t n = (size_t)snprintf(out, 128, "[");
    for (uint32_t i = 0; i < t->n_dims && n < 100; i++) {
        n += (size_t)snprintf(out + n, 128 - n, "%s%llu", i ? ", " : "", (unsigned long long)t->shape[i]);
    }
    snprintf(out + n, 128 - n, "]");
    return out;
}

int convert_check_shape(const convert *c, const ae_st_tensor *t, uint64_t rows, uint64_t columns, const char *why)
{
    char shape[128];
    const bool fits = rows ? t->n_dims == 2 && t->shape[0] == rows && t->shape[1] == columns
                           : t->n_dims == 1 && t->shape[0] == columns;
    if (fits) return APP_DONE;
    if (rows) {
        return app_error(APP_BAD_FILE, "%s: tensor %s is %s; [%llu, %llu] is needed (%s)", c->path, t->name,
                         convert_shape(t, shape), (unsigned long long)rows, (unsigned long long)columns, why);
    }
    return app_error(APP_BAD_FILE, "%s: tensor %s is %s; [%llu] is needed (%s)", c->path, t->name, convert_shape(t, shape),
                     (unsigned long long)columns, why);
}
