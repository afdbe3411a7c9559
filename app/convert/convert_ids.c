/* convert_ids.c - d2t: which token of the target each row of the head's output stands for, as absolute ids.
 *
 * Checkpoints hold offsets (target id = draft id + d2t); t2d says which tokens of the target have a row. What d2t holds is
 * decided by which reading gives distinct ids of the vocabulary that agree with t2d; offsets if both do.
 */
#include <string.h>

#include "convert/convert.h"

typedef enum reading {
    AS_OFFSET,
    AS_ABSOLUTE
} reading;

typedef struct map {
    const ae_st_tensor *d2t, *t2d; /* t2d may be NULL */
    int64_t *raw, *has;            /* [n_draft]; [n_vocab] or NULL */
    unsigned char *seen;           /* [n_vocab] */
    bool absolute;                 /* by its name */
} map;

static int64_t target_id(const map *m, size_t i, reading how)
{
    int64_t id;
    if (how == AS_ABSOLUTE) return m->raw[i];
    return __builtin_add_overflow(m->raw[i], (int64_t)i, &id) ? -1 : id;
}

/* NULL if this reading is consistent, else what is wrong, with the row and the id. */
static const char *check(const convert_head *h, const map *m, reading how, size_t *row, int64_t *id)
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

static int settle(convert *c, map *m)
{
    convert_head *h = &c->head;
    const char *given = c->options->convert_d2t;
    size_t row = 0;
    int64_t id = 0;
    reading how = m->absolute ? AS_ABSOLUTE : AS_OFFSET;
    if (given) how = strcmp(given, "absolute") == 0 ? AS_ABSOLUTE : AS_OFFSET;
    const char *wrong = check(h, m, how, &row, &id);
    if (wrong && !given && !m->absolute) {
        size_t other_row;
        int64_t other_id;
        if (!check(h, m, AS_ABSOLUTE, &other_row, &other_id)) {
            wrong = NULL;
            how = AS_ABSOLUTE;
        }
    }
    if (wrong) {
        return app_error(APP_BAD_FILE, "%s: d2t (%s): row %zu: token %lld %s (%u draft tokens, vocabulary %u)%s", c->path,
                         how == AS_ABSOLUTE ? "absolute ids" : "offsets", row, (long long)id, wrong, (unsigned)h->n_draft,
                         (unsigned)h->n_vocab, m->has ? "; --skip t2d leaves t2d out" : "");
    }
    h->ids_were_absolute = how == AS_ABSOLUTE;
    for (size_t i = 0; i < h->n_draft; i++) h->ids[i] = target_id(m, i, how);
    return APP_DONE;
}

/* t2d alone is enough: the rows are in the order of the tokens. */
static int from_marks(convert *c, const map *m)
{
    convert_head *h = &c->head;
    uint32_t n = 0;
    for (uint32_t v = 0; v < h->n_vocab; v++) {
        if (!m->has[v]) continue;
        if (n < h->n_draft) h->ids[n] = v;
        n++;
    }
    if (n == h->n_draft) return APP_DONE;
    return app_error(APP_BAD_FILE, "%s: t2d marks %u tokens, but there are %u draft tokens", c->path, (unsigned)n,
                     (unsigned)h->n_draft);
}

static int read_marks(convert *c, map *m)
{
    const convert_head *h = &c->head;
    const ae_st_tensor *t = m->t2d = convert_take(c, "t2d");
    if (!t) return APP_DONE;
    if (t->n_dims != 1 || t->n != h->n_vocab) {
        char shape[128];
        return app_error(APP_BAD_FILE, "%s: tensor %s is %s; a mark for each of the %u tokens is needed", c->path, t->name,
                         convert_shape(t, shape), (unsigned)h->n_vocab);
    }
    m->has = ae_arena_alloc(&c->arena, h->n_vocab, sizeof *m->has);
    if (!m->has) return app_error_memory("t2d");
    if (!convert_ints(t, 0, m->has, h->n_vocab)) {
        return app_error(APP_BAD_FILE, "%s: tensor %s is of type %s; marks (BOOL) are needed", c->path, t->name,
                         ae_st_dtype_name(t->dtype));
    }
    return APP_DONE;
}

static int read_map(convert *c, map *m)
{
    convert_head *h = &c->head;
    const ae_st_tensor *t = m->d2t;
    if (t->n_dims != 1 || t->n != h->n_draft) {
        char shape[128];
        return app_error(APP_BAD_FILE, "%s: tensor %s is %s; an entry for each of the %u draft tokens is needed", c->path,
                         t->name, convert_shape(t, shape), (unsigned)h->n_draft);
    }
    m->raw = ae_arena_alloc(&c->arena, h->n_draft, sizeof *m->raw);
    m->seen = ae_arena_alloc(&c->arena, h->n_vocab, 1);
    if (!m->raw || !m->seen) return app_error_memory("d2t");
    if (!convert_ints(t, 0, m->raw, h->n_draft)) {
        return app_error(APP_BAD_FILE, "%s: tensor %s is of type %s; whole numbers are needed", c->path, t->name,
                         ae_st_dtype_name(t->dtype));
    }
    return settle(c, m);
}

int convert_read_ids(convert *c)
{
    convert_head *h = &c->head;
    map m = {0};
    const ae_st_tensor *plain = convert_take(c, "d2t"), *absolute = convert_take(c, "d2t_absolute");
    const char *given = c->options->convert_d2t;
    if (given && strcmp(given, "absolute") && strcmp(given, "offset")) {
        return app_error(APP_USAGE, "--d2t takes offset or absolute; found '%s'", given);
    }
    m.d2t = plain ? plain : absolute;
    m.absolute = !plain;
    if (!h->n_vocab || !h->n_draft) {
        return app_error(APP_BAD_FILE,
                         "%s: the size of the vocabulary is unknown, since the config has no 'vocab_size'; give "
                         "--target FILE", c->path);
    }
    if (h->n_draft > h->n_vocab) {
        return app_error(APP_BAD_FILE, "%s: there are %u draft tokens, but only %u in the vocabulary", c->path,
                                       (unsigned)h->n_draft,
                         (unsigned)h->n_vocab);
    }
    CONVERT_TRY(read_marks(c, &m));
    if (!m.d2t && h->n_draft == h->n_vocab) return APP_DONE;
    if (!m.d2t && !m.has) {
        return app_error(APP_BAD_FILE, "%s: the head drafts %u of %u tokens, but there is no d2t to say which", c->path,
                         (unsigned)h->n_draft, (unsigned)h->n_vocab);
    }
    h->ids = ae_arena_alloc(&c->arena, h->n_draft, sizeof *h->ids);
    if (!h->ids) return app_error_memory("d2t");
    CONVERT_TRY(m.d2t ? read_map(c, &m) : from_marks(c, &m));
    bool same = h->n_draft == h->n_vocab;
    for (uint32_t i = 0; same && i < h->n_draft; i++) same = h->ids[i] == (int64_t)i;
    if (same) h->ids = NULL; /* all tokens in order: no map is needed */
    return APP_DONE;
}
