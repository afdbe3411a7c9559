/* fused.c - tensors that have queries, keys and values together (arch.h): cuts them, or brings them into the order of GGUF
 * files, which have all queries first, then all keys, then all values; and rows that rotate in another order than files expect.
 * Owns nothing.
 * Sources: the models' own code, or transformers' if it has the class; orders of GGUF files as llama.cpp reads them. */
#include <stdio.h>
#include <string.h>

#include "convert/archs/arch.h"

enum { QUERIES, KEYS, VALUES, N_PARTS };

/* Returns the place, among the heads of a tensor, of a head of a part. */
static uint64_t place_of(const ae_convert *c, ae_convert_rule_kind kind, uint32_t part, uint32_t head)
{
    const uint32_t n = c->model.n_heads, n_kv = c->model.n_kv_heads, each = n / n_kv;
    switch (kind) {
    case AE_RULE_QKV_GROUPED:
        if (part == QUERIES) return (uint64_t)(head / each) * (each + 2) + head % each;
        return (uint64_t)head * (each + 2) + each + (part == VALUES);
    case AE_RULE_KV_JOINED: return (uint64_t)(part == VALUES) * n_kv + head;
    default: return part == QUERIES ? head : (uint64_t)n + (part == VALUES ? n_kv : 0) + head;
    }
}

/* Writes the source of each row of a part; returns how many there are. Queries and keys are reordered from halves to
 * neighbours if the architecture rotates those. */
static uint64_t order_part(const ae_convert *c, ae_convert_rule_kind kind, uint32_t part, uint32_t *order)
{
    const uint32_t d = c->model.head_dim, n_rot = c->head.n_rot;
    const uint32_t n = part == QUERIES ? c->model.n_heads : c->model.n_kv_heads;
    const bool turns = (c->arch->flags & AE_ARCH_PAIRS) && part != VALUES;
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t i = 0; i < d; i++) {
            const uint32_t from = turns && i < n_rot ? i / 2 + (i % 2 ? n_rot / 2 : 0) : i;
            *order++ = (uint32_t)(place_of(c, kind, part, h) * d + from);
        }
    return (uint64_t)n * d;
}

static aerie_status add_rows(ae_convert *c, const ae_st_tensor *t, const char *to, const uint32_t *order, uint64_t n)
{
    if (t->n_dims == 1)
        return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .columns = n, .column_from = order});
    return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .rows = n, .columns = t->shape[1], .row_from = order});
}

aerie_status ae_convert_add_fused(ae_convert *c, const ae_convert_rule *r, const ae_st_tensor *t, const char *to)
{
    static const char *const letters[] = {"q", "k", "v"};
    const ae_convert_model *m = &c->model;
    const uint32_t first = r->kind == AE_RULE_KV_JOINED ? KEYS : QUERIES;
    const uint64_t n = ((first == QUERIES ? m->n_heads : 0) + 2 * (uint64_t)m->n_kv_heads) * m->head_dim;
    const char *at = strstr(to, "%s");
    if (m->n_heads % m->n_kv_heads)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: %u heads of queries are not a multiple of %u heads of keys",
                       c->config_path, m->n_heads, m->n_kv_heads);
    AE_TRY(ae_convert_check_shape(c, t, t->n_dims == 2 ? n : 0, t->n_dims == 2 ? m->n_embd : n, "by config.json"));
    uint32_t *order = ae_arena_alloc(&c->arena, n, sizeof *order);
    if (!order) return ae_convert_no_memory(c, "the order of rows");
    uint64_t done = 0;
    for (uint32_t part = first; part < N_PARTS; part++) {
        char name[96];
        const uint64_t n_part = order_part(c, r->kind, part, order + done);
        if (at) snprintf(name, sizeof name, "%.*s%s%s", (int)(at - to), to, letters[part], at + 2);
        if (at) AE_TRY(add_rows(c, t, name, order + done, n_part));
        done += n_part;
    }
    return at ? AERIE_OK : add_rows(c, t, to, order, n);
}

aerie_status ae_convert_halve_last(ae_convert *c, const char *name, uint64_t dim, uint32_t n_rot)
{
    ae_convert_item *item = NULL;
    for (size_t i = 0; i < c->n_items; i++)
        if (strcmp(c->items[i].name, name) == 0) item = &c->items[i];
    if (!item) return AERIE_OK;
    if (!dim) dim = item->rows;
    if (!dim || dim < n_rot || item->rows % dim || item->rows > UINT32_MAX) return AERIE_OK; /* binding refuses such shapes */
    uint32_t *from = ae_arena_alloc(&c->arena, item->rows, sizeof *from);
    if (!from) return ae_convert_no_memory(c, "the order of rows");
    for (uint64_t r = 0; r < item->rows; r++) {
        const uint64_t first = dim - n_rot, i = r % dim - first, half = n_rot / 2;
        from[r] = (uint32_t)(r % dim < first ? r : r - i + (i < half ? 2 * i : 2 * (i - half) + 1));
    }
    item->row_from = from;
    return AERIE_OK;
}
