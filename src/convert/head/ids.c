/* ids.c - d2t: the token of the target for each row of the head's output, as absolute ids.
 * Checkpoints store offsets (target id = draft id + d2t) or ids; t2d marks the target's tokens that have a row. The right
 * interpretation of d2t is the one that gives distinct ids within the vocabulary that agree with t2d; if both do, offsets. */
#include <string.h>

#include "convert/checkpoint/checkpoint.h"

typedef enum reading {
    AS_OFFSET,
    AS_ABSOLUTE
} reading;

typedef struct map {
    const ae_st_tensor *d2t, *t2d; /* t2d may be NULL */
    int64_t *raw, *has;            /* [n_draft]; [n_vocab] or NULL */
    unsigned char *seen;           /* [n_vocab] */
    bool absolute;                 /* its name says so */
} map;

static int64_t target_id(const map *m, size_t i, reading how)
{
    int64_t id;
    if (how == AS_ABSOLUTE) return m->raw[i];
    return __builtin_add_overflow(m->raw[i], (int64_t)i, &id) ? -1 : id;
}

/* Returns NULL if this interpretation is consistent; otherwise what is wrong, with the row and the id. */
static const char *check(const ae_convert_head *h, const map *m, reading how, size_t *row, int64_t *id)
{
    memset(m->seen, 0, h->n_vocab);
    for (size_t i = 0; i < h->n_draft; i++) {
        *row = i;
        *id = target_id(m, i, how);
        if (*id < 0 || *id >= h->n_vocab) return "is outside the vocabulary";
        if (m->seen[*id]++) return "occurs twice";
        if (m->has && !m->has[*id]) return "has no mark in t2d";
    }
    for (size_t v = 0; m->has && v < h->n_vocab; v++) {
        if (m->has[v] && !m->seen[v]) {
            *row = h->n_draft;
            *id = (int64_t)v;
            return "has a mark in t2d, but no row";
        }
    }
    return NULL;
}

static aerie_status settle(ae_convert *c, map *m)
{
    ae_convert_head *h = &c->head;
    const ae_convert_choice given = c->options.ids_absolute;
    size_t row = 0;
    int64_t id = 0;
    reading how = m->absolute ? AS_ABSOLUTE : AS_OFFSET;
    if (given != AE_CONVERT_AUTO) how = given == AE_CONVERT_YES ? AS_ABSOLUTE : AS_OFFSET;
    const char *wrong = check(h, m, how, &row, &id);
    if (wrong && given == AE_CONVERT_AUTO && !m->absolute) {
        size_t other_row;
        int64_t other_id;
        if (!check(h, m, AS_ABSOLUTE, &other_row, &other_id)) {
            wrong = NULL;
            how = AS_ABSOLUTE;
        }
    }
    if (wrong) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: d2t (%s): row %zu: token %lld %s (%u draft tokens, vocabulary %u)%s",
                       c->path, how == AS_ABSOLUTE ? "absolute ids" : "offsets", row, (long long)id, wrong,
                       (unsigned)h->n_draft, (unsigned)h->n_vocab, m->has ? "; --skip t2d leaves t2d out" : "");
    }
    h->ids_were_absolute = how == AS_ABSOLUTE;
    for (size_t i = 0; i < h->n_draft; i++) h->ids[i] = target_id(m, i, how);
    return AERIE_OK;
}

/* Derives the ids from t2d alone: rows are in the order of tokens. */
static aerie_status from_marks(ae_convert *c, const map *m)
{
    ae_convert_head *h = &c->head;
    uint32_t n = 0;
    for (uint32_t v = 0; v < h->n_vocab; v++) {
        if (!m->has[v]) continue;
        if (n < h->n_draft) h->ids[n] = v;
        n++;
    }
    if (n == h->n_draft) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: t2d marks %u tokens, but there are %u draft tokens", c->path, (unsigned)n,
                   (unsigned)h->n_draft);
}

static aerie_status read_marks(ae_convert *c, map *m)
{
    const ae_convert_head *h = &c->head;
    const ae_st_tensor *t = m->t2d = ae_convert_take(c, "t2d");
    if (!t) return AERIE_OK;
    if (t->n_dims != 1 || t->n != h->n_vocab) {
        char shape[128];
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; a mark for each of the %u tokens is needed", c->path,
                       t->name, ae_convert_shape(t, shape), (unsigned)h->n_vocab);
    }
    m->has = ae_arena_alloc(&c->arena, h->n_vocab, sizeof *m->has);
    if (!m->has) return ae_convert_no_memory(c, "t2d");
    if (!ae_convert_ints(t, 0, m->has, h->n_vocab)) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is of type %s; marks (BOOL) are needed", c->path, t->name,
                       ae_st_dtype_name(t->dtype));
    }
    return AERIE_OK;
}

static aerie_status read_map(ae_convert *c, map *m)
{
    ae_convert_head *h = &c->head;
    const ae_st_tensor *t = m->d2t;
    if (t->n_dims != 1 || t->n != h->n_draft) {
        char shape[128];
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; an entry for each of the %u draft tokens is needed",
                       c->path, t->name, ae_convert_shape(t, shape), (unsigned)h->n_draft);
    }
    m->raw = ae_arena_alloc(&c->arena, h->n_draft, sizeof *m->raw);
    m->seen = ae_arena_alloc(&c->arena, h->n_vocab, 1);
    if (!m->raw || !m->seen) return ae_convert_no_memory(c, "d2t");
    if (!ae_convert_ints(t, 0, m->raw, h->n_draft)) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is of type %s; whole numbers are needed", c->path, t->name,
                       ae_st_dtype_name(t->dtype));
    }
    return settle(c, m);
}

aerie_status ae_convert_head_ids(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    map m = {0};
    const ae_st_tensor *plain = ae_convert_take(c, "d2t"), *absolute = ae_convert_take(c, "d2t_absolute");
    m.d2t = plain ? plain : absolute;
    m.absolute = !plain;
    if (!h->n_vocab || !h->n_draft) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: the size of the vocabulary is unknown, since the config has no 'vocab_size'; give "
                       "--target FILE",
                       c->path);
    }
    if (h->n_draft > h->n_vocab) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: there are %u draft tokens, but only %u in the vocabulary", c->path,
                       (unsigned)h->n_draft, (unsigned)h->n_vocab);
    }
    AE_TRY(read_marks(c, &m));
    if (!m.d2t && h->n_draft == h->n_vocab) return AERIE_OK;
    if (!m.d2t && !m.has) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: the head drafts %u of %u tokens, but there is no d2t to say which",
                       c->path, (unsigned)h->n_draft, (unsigned)h->n_vocab);
    }
    h->ids = ae_arena_alloc(&c->arena, h->n_draft, sizeof *h->ids);
    if (!h->ids) return ae_convert_no_memory(c, "d2t");
    AE_TRY(m.d2t ? read_map(c, &m) : from_marks(c, &m));
    bool same = h->n_draft == h->n_vocab;
    for (uint32_t i = 0; same && i < h->n_draft; i++) same = h->ids[i] == (int64_t)i;
    if (same) h->ids = NULL; /* all tokens in order, so no map is needed */
    return AERIE_OK;
}
