/* names.c - gives the tensors of a checkpoint names that do not depend on its producer, and finds unused tensors. */
#include <stdlib.h>
#include <string.h>

#include "convert/checkpoint/checkpoint.h"

static char *usual_name(ae_convert *c, const ae_convert_rename *renames, size_t n_renames, const char *name)
{
    ae_buf text = {0};
    ae_buf_adds(&text, name);
    for (size_t i = 0; i < n_renames && !text.failed; i++) {
        const size_t n = strlen(renames[i].old);
        if (strncmp(text.data, renames[i].old, n)) continue;
        ae_buf next = {0};
        ae_buf_addf(&next, "%s%s", renames[i].instead, text.data + n);
        ae_buf_free(&text);
        text = next;
    }
    char *copy = text.failed ? NULL : ae_arena_strndup(&c->arena, text.data, text.n);
    ae_buf_free(&text);
    return copy;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ae_convert_entry *)a)->name, ((const ae_convert_entry *)b)->name);
}

/* Refuses two tensors for the same part. */
aerie_status ae_convert_sort_names(const ae_convert *c)
{
    if (c->n_entries) qsort(c->entries, c->n_entries, sizeof *c->entries, by_name);
    for (size_t i = 1; i < c->n_entries; i++) {
        if (strcmp(c->entries[i].name, c->entries[i - 1].name) == 0) {
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensors %s and %s are the same part; --skip leaves one out",
                           c->path, c->entries[i].tensor->name, c->entries[i - 1].tensor->name);
        }
    }
    return AERIE_OK;
}

bool ae_convert_is_skipped(const ae_convert *c, const char *name)
{
    for (size_t i = 0; i < c->options.n_skip; i++)
        if (strstr(name, c->options.skip[i])) return true;
    return false;
}

aerie_status ae_convert_read_names(ae_convert *c, const ae_convert_rename *renames, size_t n_renames)
{
    const size_t n = ae_safetensors_n_tensors(c->st);
    c->n_entries = 0;
    c->entries = ae_arena_alloc(&c->arena, n, sizeof *c->entries);
    if (!c->entries) return ae_convert_no_memory(c, "the names of tensors");
    for (size_t i = 0; i < n; i++) {
        const ae_st_tensor *t = ae_safetensors_tensor_at(c->st, i);
        ae_convert_entry *e = &c->entries[c->n_entries];
        if (ae_convert_is_skipped(c, t->name)) continue;
        *e = (ae_convert_entry){.name = usual_name(c, renames, n_renames, t->name), .tensor = t};
        if (!e->name) return ae_convert_no_memory(c, "the names of tensors");
        if (t->next_rank) AE_TRY(ae_convert_join_ranks(c, t, &e->tensor));
        c->n_entries++;
    }
    return ae_convert_sort_names(c);
}

static const char *renamed_part(ae_convert *c, const ae_convert_rename *parts, const char *name)
{
    const size_t n_layer = strncmp(name, "layers.", 7) ? 0 : strspn(name + 7, "0123456789");
    const char *part = name + 7 + n_layer + 1;
    if (!n_layer || part[-1] != '.') return name;
    for (; parts->old; parts++) {
        const size_t n = strlen(parts->old);
        if (strncmp(part, parts->old, n)) continue;
        ae_buf text = {0};
        ae_buf_addf(&text, "%.*s%s%s", (int)(part - name), name, parts->instead, part + n);
        const char *copy = text.failed ? NULL : ae_arena_strndup(&c->arena, text.data, text.n);
        ae_buf_free(&text);
        return copy;
    }
    return name;
}

aerie_status ae_convert_rename_parts(ae_convert *c, const ae_convert_rename *parts)
{
    for (size_t i = 0; i < c->n_entries; i++) {
        c->entries[i].name = renamed_part(c, parts, c->entries[i].name);
        if (!c->entries[i].name) return ae_convert_no_memory(c, "the names of tensors");
    }
    return ae_convert_sort_names(c);
}

ae_convert_entry *ae_convert_find(const ae_convert *c, const char *name)
{
    const ae_convert_entry key = {.name = name};
    return c->n_entries ? bsearch(&key, c->entries, c->n_entries, sizeof key, by_name) : NULL;
}

const ae_st_tensor *ae_convert_look(const ae_convert *c, const char *name)
{
    const ae_convert_entry *e = ae_convert_find(c, name);
    return e ? e->tensor : NULL;
}

const ae_st_tensor *ae_convert_take(ae_convert *c, const char *name)
{
    ae_convert_entry *e = ae_convert_find(c, name);
    if (e) e->used = true;
    return e ? e->tensor : NULL;
}

const ae_convert_entry *ae_convert_unused(const ae_convert *c, const char *const *unneeded, size_t n)
{
    for (size_t i = 0; i < c->n_entries; i++) {
        bool fine = c->entries[i].used;
        for (size_t k = 0; k < n && !fine; k++) fine = strcmp(c->entries[i].name, unneeded[k]) == 0;
        if (!fine) return &c->entries[i];
    }
    return NULL;
}

const char *ae_convert_shape(const ae_st_tensor *t, char out[128])
{
    size_t n = (size_t)snprintf(out, 128, "[");
    for (uint32_t i = 0; i < t->n_dims && n < 100; i++) {
        n += (size_t)snprintf(out + n, 128 - n, "%s%llu", i ? ", " : "", (unsigned long long)t->shape[i]);
    }
    snprintf(out + n, 128 - n, "]");
    return out;
}

aerie_status ae_convert_check_shape(const ae_convert *c, const ae_st_tensor *t, uint64_t rows, uint64_t columns,
                                    const char *why)
{
    char shape[128];
    const bool fits = rows ? t->n_dims == 2 && t->shape[0] == rows && t->shape[1] == columns
                           : t->n_dims == 1 && t->shape[0] == columns;
    if (fits) return AERIE_OK;
    if (rows) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; [%llu, %llu] is needed (%s)", c->path, t->name,
                       ae_convert_shape(t, shape), (unsigned long long)rows, (unsigned long long)columns, why);
    }
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; [%llu] is needed (%s)", c->path, t->name,
                   ae_convert_shape(t, shape), (unsigned long long)columns, why);
}
