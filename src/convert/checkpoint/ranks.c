/* ranks.c - joins the tensors that a checkpoint holds in parts, one for each rank of tensor parallelism (safetensors.h).
 *
 * Owns: along which dimension which tensor is cut, and the numbers of the joined one. Other code sees a normal tensor with a
 * type that exists in no file. A tensor that is not known to be cut must be the same for all ranks. Source: the layout of
 * xai-org/grok-2, whose experts are cut into 8 parts: w1 and w3 by rows, w2 by columns.
 */
#include <string.h>

#include "convert/checkpoint/checkpoint.h"

typedef struct ranked {
    ae_st_tensor tensor;        /* must come first: ae_convert_floats gets a pointer to it */
    const ae_st_tensor **parts; /* [n_parts] */
    uint64_t n_parts;
    uint64_t run; /* numbers of a part between two of other parts */
} ranked;

void ae_convert_ranked_floats(const ae_st_tensor *t, uint64_t first, float *out, size_t n)
{
    const ranked *r = (const ranked *)(const void *)t;
    for (size_t done = 0; done < n;) {
        const uint64_t at = first + done, run = at / r->run, in_run = at % r->run;
        const size_t n_here = r->run - in_run < n - done ? (size_t)(r->run - in_run) : n - done;
        (void)ae_convert_floats(r->parts[run % r->n_parts], run / r->n_parts * r->run + in_run, out + done, n_here);
        done += n_here;
    }
}

/* Returns whether a name is that of a matrix that is cut, and by what. */
static bool is_cut(const char *name, bool *by_columns)
{
    static const struct {
        const char *end;
        bool by_columns;
    } cuts[] = {{".w1.weight", false}, {".w3.weight", false}, {".w2.weight", true}, {".gate_proj.weight", false},
                {".up_proj.weight", false}, {".down_proj.weight", true}};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        const size_t n_end = strlen(cuts[i].end);
        *by_columns = cuts[i].by_columns;
        if (n > n_end && strcmp(name + n - n_end, cuts[i].end) == 0) return true;
    }
    return false;
}

static const char *file_of(const ae_convert *c, const ae_st_tensor *t)
{
    const char *path = ae_safetensors_file(c->st, t->i_file), *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_same(const ae_st_tensor *a, const ae_st_tensor *b)
{
    return a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

/* Checks that a part is like the first one, but none of its copies. */
static aerie_status check_part(const ae_convert *c, const ae_st_tensor *first, const ae_st_tensor *t)
{
    char shape[128], wanted[128];
    if (t->dtype != first->dtype || t->n_dims != first->n_dims || t->shape[0] != first->shape[0] ||
        t->shape[1] != first->shape[1])
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s %s in %s, but %s %s in %s: the parts of all ranks "
                       "must be alike", c->path, t->name, ae_st_dtype_name(t->dtype), ae_convert_shape(t, shape),
                       file_of(c, t), ae_st_dtype_name(first->dtype), ae_convert_shape(first, wanted), file_of(c, first));
    for (const ae_st_tensor *other = first; other != t; other = other->next_rank)
        if (is_same(other, t))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is the same in %s and %s, which must hold different "
                           "parts of it: one of these files is not what its name says", c->path, t->name, file_of(c, other),
                           file_of(c, t));
    return AERIE_OK;
}

aerie_status ae_convert_join_ranks(ae_convert *c, const ae_st_tensor *t, const ae_st_tensor **out)
{
    bool by_columns;
    uint64_t n = 0;
    *out = t;
    if (!is_cut(t->name, &by_columns)) {
        for (const ae_st_tensor *other = t->next_rank; other; other = other->next_rank)
            if (other->dtype != t->dtype || other->n_dims != t->n_dims || !is_same(t, other))
                return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s differs between %s and %s, and only matrices "
                               "of feed-forward blocks can be joined; convert a checkpoint that is in one part", c->path,
                               t->name, file_of(c, t), file_of(c, other));
        return AERIE_OK;
    }
    if (t->n_dims != 2 || !t->n || (t->dtype != AE_ST_F32 && t->dtype != AE_ST_F16 && t->dtype != AE_ST_BF16))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s is of type %s with %u dimensions; parts of ranks must "
                       "be matrices of F32, F16 or BF16", c->path, t->name, ae_st_dtype_name(t->dtype), t->n_dims);
    for (const ae_st_tensor *part = t; part; part = part->next_rank) {
        AE_TRY(check_part(c, t, part));
        n++;
    }
    ranked *r = ae_arena_alloc(&c->arena, 1, sizeof *r);
    if (r) r->parts = ae_arena_alloc(&c->arena, n, sizeof *r->parts);
    if (!r || !r->parts) return ae_convert_no_memory(c, "the parts of a tensor");
    for (const ae_st_tensor *part = t; part; part = part->next_rank) r->parts[r->n_parts++] = part;
    r->run = by_columns ? t->shape[1] : t->n;
    r->tensor = *t;
    r->tensor.dtype = AE_CONVERT_RANKED;
    r->tensor.shape[by_columns] *= n;
    r->tensor.n *= n;
    r->tensor.data = NULL;
    *out = &r->tensor;
    return AERIE_OK;
}
