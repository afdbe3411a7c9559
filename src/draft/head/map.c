/* map.c - the draft vocabulary: which token of the target each output row of a head stands for.
 *
 * The tensor d2t has two conventions: target ids, or offsets to be added to the row's own number. A key may say which. Without
 * a key: ids are distinct, so values that repeat are offsets (a vocabulary of frequent tokens has long runs of neighbours, and
 * hence of equal offsets); values that cannot be ids are offsets, too; everything else is ids.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "draft/head/head_int.h"

typedef enum map_kind { MAP_ABSOLUTE, MAP_OFFSET } map_kind;

ae_tensor_ref ae_dhead_find_map(const ae_gguf *gguf)
{
    ae_tensor_ref t = ae_gguf_tensor_find(gguf, "d2t");
    return t ? t : ae_gguf_tensor_find(gguf, "d2t.weight");
}

static int by_value(const void *a, const void *b)
{
    int64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* Sorts values [n] into sorted [n]; returns the index of the first value that equals the one before it, or 0. */
static size_t find_repeat(const int64_t *values, int64_t *sorted, size_t n)
{
    memcpy(sorted, values, n * sizeof *values);
    qsort(sorted, n, sizeof *sorted, by_value);
    for (size_t i = 1; i < n; i++)
        if (sorted[i] == sorted[i - 1]) return i;
    return 0;
}

/* Computes the target id of entry i. Returns false if it is not a valid id. */
static bool decode(map_kind kind, const int64_t *values, size_t i, int64_t n_vocab, int64_t *id)
{
    *id = values[i];
    if (kind == MAP_OFFSET && __builtin_add_overflow(*id, (int64_t)i, id)) return false;
    return *id >= 0 && *id < n_vocab;
}

/* Returns the index of the first entry that is not a valid target id under that reading; n if all are valid. */
static size_t first_bad(map_kind kind, const int64_t *values, size_t n, int64_t n_vocab)
{
    int64_t id;
    for (size_t i = 0; i < n; i++)
        if (!decode(kind, values, i, n_vocab, &id)) return i;
    return n;
}

static aerie_status read_values(ae_binder *b, ae_tensor_ref t, int64_t *values, size_t n)
{
    ae_gguf_reader reader = ae_gguf_reader_open(b->gguf);
    const aerie_status status = ae_gguf_read(&reader, t, 0, values, t->bytes, b->error);
    ae_gguf_reader_close(&reader);
    if (t->type != AE_TYPE_I32) return status;
    for (size_t i = n; i-- > 0;) { /* in place, from the end */
        int32_t x;
        memcpy(&x, (const char *)values + i * sizeof x, sizeof x);
        values[i] = x;
    }
    return status;
}

static aerie_status fail_entry(ae_binder *b, map_kind kind, const int64_t *values, size_t i, int64_t n_vocab)
{
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: d2t[%zu] is %" PRId64 ";%s the target's tokens are 0 to %" PRId64,
                   ae_gguf_path(b->gguf), i, values[i], kind == MAP_OFFSET ? " added to its place it is not a token:" : "",
                   n_vocab - 1);
}

/* Chooses the reading: as the key says, or else as the values allow. */
static aerie_status choose(ae_binder *b, const int64_t *values, int64_t *sorted, size_t n, int64_t n_vocab, map_kind *kind)
{
    ae_gguf_string text = {0};
    const char *key = ae_bind_key(b, "draft_map");
    AE_TRY(ae_gguf_get_string(b->gguf, key, false, &text, b->error));
    if (text.data) {
        if (text.n == 6 && !memcmp(text.data, "offset", 6)) *kind = MAP_OFFSET;
        else if (text.n == 8 && !memcmp(text.data, "absolute", 8)) *kind = MAP_ABSOLUTE;
        else
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is \"%.*s\"; absolute and offset are known",
                           ae_gguf_path(b->gguf), key, (int)(text.n < 32 ? text.n : 32), text.data);
        return AERIE_OK;
    }
    *kind = MAP_OFFSET;
    if (find_repeat(values, sorted, n)) return AERIE_OK;
    const size_t bad = first_bad(MAP_ABSOLUTE, values, n, n_vocab);
    if (bad == n) *kind = MAP_ABSOLUTE;
    else if (first_bad(MAP_OFFSET, values, n, n_vocab) < n)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: d2t[%zu] is %" PRId64 ", not one of the target's tokens (0 to "
                       "%" PRId64 "), and the values are not offsets to them either", ae_gguf_path(b->gguf), bad, values[bad],
                       n_vocab - 1);
    return AERIE_OK;
}

/* Converts values [n] to ids, which must be distinct and in the vocabulary. */
static aerie_status to_ids(ae_binder *b, int64_t *values, int64_t *sorted, size_t n, int64_t n_vocab)
{
    map_kind kind;
    AE_TRY(choose(b, values, sorted, n, n_vocab, &kind));
    const size_t bad = first_bad(kind, values, n, n_vocab);
    if (bad < n) return fail_entry(b, kind, values, bad, n_vocab);
    for (size_t i = 0; i < n; i++) decode(kind, values, i, n_vocab, &values[i]);
    const size_t at = find_repeat(values, sorted, n);
    if (!at) return AERIE_OK;
    size_t first = 0, second;
    while (values[first] != sorted[at]) first++;
    for (second = first + 1; values[second] != sorted[at];) second++;
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: d2t[%zu] and d2t[%zu] both stand for token %" PRId64
                   "; each may appear once", ae_gguf_path(b->gguf), first, second, sorted[at]);
}

aerie_status ae_dhead_read_map(ae_binder *b, ae_dhead *head)
{
    const ae_tensor_ref t = ae_dhead_find_map(b->gguf);
    const size_t n = head->hparams.n_draft;
    if (!t) return AERIE_OK;
    if (t->ne[0] != (int64_t)n || t->ne[1] != 1 || t->ne[2] != 1 || t->ne[3] != 1)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor d2t has shape [%lld, %lld, %lld, %lld], expected [%zu]: one "
                       "entry for each row of the output", ae_gguf_path(b->gguf), (long long)t->ne[0], (long long)t->ne[1],
                       (long long)t->ne[2], (long long)t->ne[3], n);
    if (t->type != AE_TYPE_I32 && t->type != AE_TYPE_I64)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor d2t has type %s; token ids are I32 or I64",
                       ae_gguf_path(b->gguf), ae_type_name(t->type));
    int64_t *values = ae_alloc(n, sizeof *values), *sorted = ae_alloc(n, sizeof *sorted);
    int32_t *ids = ae_arena_alloc(&head->arena, n, sizeof *ids);
    aerie_status status = AERIE_OK;
    if (!values || !sorted || !ids) status = ae_fail_memory(b->error, "the draft vocabulary", n * sizeof *values);
    if (status == AERIE_OK) status = read_values(b, t, values, n);
    if (status == AERIE_OK)
        status = to_ids(b, values, sorted, n, head->hparams.n_vocab ? (int64_t)head->hparams.n_vocab : (int64_t)INT32_MAX);
    for (size_t i = 0; status == AERIE_OK && i < n; i++) ids[i] = (int32_t)values[i];
    ae_free(values);
    ae_free(sorted);
    head->to_target = ids;
    return status;
}
