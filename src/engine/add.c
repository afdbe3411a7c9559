/* add.c - adds the rows of the next pass: chains, trees, and rows whose embeddings the caller gives (engine.h). Owns
 * nothing. */
#include <string.h>

#include "engine/commands.h"
#include "engine/engine_int.h"

void ae_engine_rows_clear(ae_engine *e)
{
    ae_commands_put(e, &(ae_command){.kind = AE_COMMAND_CLEAR}, NULL);
    e->n_rows = e->n_out = e->n_given = e->n_waves = 0;
    e->best.wanted = e->best.ran = 0;
    if (e->best.noisy) memset(e->best.noise, 0, e->options.n_seqs * sizeof *e->best.noise);
    e->best.noisy = e->best.ran_noisy = false;
    e->grouped = e->turned = false;
    e->mode = NULL;
    if (e->state) ae_state_begin(e->state);
    memset(e->n_added, 0, e->options.n_seqs * sizeof *e->n_added);
}

void ae_engine_set_mode(ae_engine *e, const ae_pass_mode *mode)
{
    e->mode = mode;
    ae_commands_put_mode(e, mode);
}

uint32_t ae_engine_n_rows(const ae_engine *e)
{
    return e->n_rows;
}

uint32_t ae_engine_rows_left(const ae_engine *e)
{
    return e->options.n_batch - e->n_rows;
}

uint32_t ae_engine_outputs_left(const ae_engine *e)
{
    return e->options.n_outputs - e->n_out;
}

static aerie_status check_room(const ae_engine *e, uint32_t n, uint32_t n_out, aerie_error *error)
{
    if (n > e->options.n_batch - e->n_rows)
        return ae_fail(error, AERIE_ERROR_LIMIT, "%u more rows do not fit a pass of %u, of which %u are taken", n,
                       e->options.n_batch, e->n_rows);
    if (n_out > e->options.n_outputs - e->n_out)
        return ae_fail(error, AERIE_ERROR_LIMIT, "%u more rows with logits do not fit the %u of a pass, of which %u are taken",
                       n_out, e->options.n_outputs, e->n_out);
    return AERIE_OK;
}

static void add_row(ae_engine *e, uint32_t seq, int32_t token, uint32_t pos, uint32_t slot, uint32_t n_inplace, int32_t parent,
                    bool export_row)
{
    const uint32_t r = e->n_rows++;
    const ae_hparams *h = &e->net->model->hparams;
    e->rows.parent[r] = parent;
    e->ids[r] = token;
    e->rows.token[r] = token < 0 ? 0 : token;
    e->rows.last[r] = (int32_t)pos;
    e->rows.seq[r] = (int32_t)seq;
    e->rows.pos[r] = (int32_t)pos;
    e->rows.slot[r] = (int32_t)slot;
    if (h->n_positions && !h->encoder) e->rows.place[r] = (int32_t)(pos < h->n_positions ? pos : h->n_positions - 1);
    e->rows.n_inplace[r] = (int32_t)n_inplace;
    if (h->crosses) e->rows.first[r] = token < 0 ? 0 : (int32_t)e->n_source[seq];
    if (h->crosses) e->rows.cross[r] = token < 0 ? (int32_t)pos : (int32_t)e->n_source[seq] - 1;
    for (uint32_t i = 0; e->turn && i < 4; i++) e->turn[4 * (size_t)r + i] = (int32_t)pos;
    e->out_index[r] = export_row ? (int32_t)e->n_out : -1;
    if (export_row) e->rows.out_rows[e->n_out++] = (int32_t)r;
}

static aerie_status out_of_step(uint32_t seq, aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_INTERNAL, "the recurrent state of sequence %u is out of step with its KV cache; please "
                   "report", seq);
}

/* A sequence whose last pass was not committed cannot take rows. */
static aerie_status check_state(const ae_engine *e, uint32_t seq, aerie_error *error)
{
    const uint32_t live = ae_kv_n_live(e->kv, seq);
    if (!e->state || (ae_state_n_live(e->state, seq) == live && ae_state_landing(e->state, seq, live) == live)) return AERIE_OK;
    return out_of_step(seq, error);
}

/* Which of a chain's rows export logits. */
typedef struct exports {
    ae_export which;
    const uint8_t *wanted; /* [n] instead; or NULL */
} exports;

static bool is_exported(const exports *x, uint32_t i, uint32_t n)
{
    return x->wanted ? x->wanted[i] : x->which == AE_EXPORT_ALL || (x->which == AE_EXPORT_LAST && i + 1 == n);
}

/* Counts a chain's rows of the source before they are added: they come first, and text needs at least one of them before it. */
static aerie_status count_source(ae_engine *e, uint32_t seq, const int32_t *tokens, uint32_t n, aerie_error *error)
{
    const uint32_t live = ae_kv_n_live(e->kv, seq);
    uint32_t *n_source = &e->n_source[seq], i = 0;
    if (!e->net->model->hparams.crosses) return AERIE_OK;
    if (*n_source > live) *n_source = live;
    while (*n_source == live + i && i < n && tokens[i] < 0) i++, ++*n_source;
    for (; i < n && tokens[i] >= 0; i++) continue;
    if (*n_source && i == n) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "architecture %s reads a source text with its encoder and generates another "
                   "text: a sequence begins with the source's rows, not with a token", e->net->model->hparams.arch);
}

static aerie_status add_chain(ae_engine *e, uint32_t seq, const int32_t *tokens, uint32_t n, exports exported,
                              uint32_t *first, aerie_error *error)
{
    const uint32_t live = seq < e->options.n_seqs ? ae_kv_n_live(e->kv, seq) : 0;
    uint32_t n_out = 0;
    for (uint32_t i = 0; i < n; i++) n_out += is_exported(&exported, i, n);
    if (seq >= e->options.n_seqs || e->n_added[seq])
        return ae_fail(error, AERIE_ERROR_INTERNAL, "sequence %u already has its rows, or is not one of %u; please report", seq,
                       e->options.n_seqs);
    AE_TRY(check_room(e, n, n_out, error));
    if (live > e->options.n_ctx || n > e->options.n_ctx - live)
        return ae_fail(error, AERIE_ERROR_LIMIT, "the context of %u tokens is full: %u are used and %u more are needed",
                       e->options.n_ctx, live, n);
    AE_TRY(check_state(e, seq, error));
    AE_TRY(count_source(e, seq, tokens, n, error));
    AE_TRY(ae_kv_reserve(e->kv, NULL, seq, n, error));
    *first = e->first_row[seq] = e->n_rows;
    if (e->state && ae_state_add_chain(e->state, seq, *first, n) != AERIE_OK) return out_of_step(seq, error);
    for (uint32_t i = 0; i < n; i++)
        add_row(e, seq, tokens[i], live + i, live + i, live + i + 1, i ? (int32_t)(*first + i) - 1 : -1,
                is_exported(&exported, i, n));
    e->n_added[seq] = n;
    return AERIE_OK;
}

aerie_status ae_engine_add_chain(ae_engine *e, uint32_t seq, const int32_t *tokens, uint32_t n, ae_export export_rows,
                                 uint32_t *first, aerie_error *error)
{
    const aerie_status status = add_chain(e, seq, tokens, n, (exports){export_rows, NULL}, first, error);
    ae_commands_put(e, &(ae_command){.kind = AE_COMMAND_CHAIN, .seq = seq, .a = export_rows, .result = (uint32_t)status,
                                     .n = n},
                    tokens);
    return status;
}

static aerie_status add_tree(ae_engine *e, uint32_t seq, const ae_tree *tree, uint32_t n_silent, uint32_t *first,
                             aerie_error *error)
{
    const uint32_t base = ae_kv_n_live(e->kv, seq) + e->n_added[seq]; /* slot and position of the tree's first row */
    if (tree->n > AERIE_MAX_DRAFT)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "a tree of %u nodes, of %d at most; please report", tree->n,
                       AERIE_MAX_DRAFT);
    if (tree->n > ae_engine_max_tree(e))
        return ae_fail(error, AERIE_ERROR_LIMIT, "%u drafted rows, but the recurrent state has records for %u", tree->n,
                       ae_engine_max_tree(e));
    AE_TRY(check_room(e, tree->n, n_silent < tree->n ? tree->n - n_silent : 0, error));
    if (!e->n_added[seq]) AE_TRY(check_state(e, seq, error));
    AE_TRY(ae_kv_reserve(e->kv, NULL, seq, e->n_added[seq] + tree->n, error));
    *first = e->n_rows;
    if (!e->n_added[seq]) e->first_row[seq] = *first;
    if (e->state && ae_state_add_tree(e->state, seq, *first, tree->parent, tree->n) != AERIE_OK) return out_of_step(seq, error);
    const int32_t root = e->n_added[seq] ? (int32_t)*first - 1 : -1;
    for (uint32_t i = 0; i < tree->n; i++) {
        const uint32_t depth = (uint32_t)tree->depth[i];
        int32_t *path = e->rows.path + (size_t)e->n_rows * AERIE_MAX_DRAFT;
        const uint32_t in_place = ae_tree_path(tree->parent, i, depth, base, path);
        const int32_t parent = tree->parent[i] < 0 ? root : (int32_t)*first + tree->parent[i];
        add_row(e, seq, tree->token[i], base + depth - 1, base + i, base + in_place, parent, i >= n_silent);
    }
    return AERIE_OK;
}

aerie_status ae_engine_add_tree(ae_engine *e, uint32_t seq, const ae_tree *tree, uint32_t *first, aerie_error *error)
{
    return ae_engine_add_tree_from(e, seq, tree, 0, first, error);
}

aerie_status ae_engine_add_tree_from(ae_engine *e, uint32_t seq, const ae_tree *tree, uint32_t n_silent, uint32_t *first,
                                     aerie_error *error)
{
    const aerie_status status = add_tree(e, seq, tree, n_silent, first, error);
    ae_commands_put_tree(e, seq, tree, n_silent, status);
    return status;
}

bool ae_engine_may_join(const ae_net *net)
{
    return !net->n_recur && !net->model->hparams.index.n_heads;
}

static void join_rows(ae_engine *e, uint32_t first, uint32_t n)
{
    for (uint32_t r = first; r < first + n; r++) {
        e->rows.last[r] = e->rows.pos[first + n - 1];
        e->rows.n_inplace[r] = e->rows.last[r] + 1;
        e->grouped = true;
    }
}

void ae_engine_join_rows(ae_engine *e, uint32_t first, uint32_t n)
{
    ae_commands_put(e, &(ae_command){.kind = AE_COMMAND_JOIN, .a = first, .b = n}, NULL);
    join_rows(e, first, n);
}

aerie_status ae_engine_add_text(ae_engine *e, uint32_t seq, const int32_t *tokens, uint32_t n, uint32_t n_first,
                                uint32_t *first, aerie_error *error)
{
    const ae_hparams *h = &e->net->model->hparams;
    const bool encoder = h->encoder;
    if (encoder && seq < e->options.n_seqs && ae_kv_n_live(e->kv, seq))
        return ae_fail(error, AERIE_ERROR_INTERNAL, "sequence %u of an encoder contains a text already; please report", seq);
    AE_TRY(ae_engine_add_chain(e, seq, tokens, n, AE_EXPORT_NONE, first, error));
    if (h->denoises) ae_engine_join_rows(e, *first, n);
    for (uint32_t i = 0; encoder && i < n; i++) {
        e->rows.n_inplace[*first + i] = (int32_t)n;
        e->rows.last[*first + i] = (int32_t)n - 1;
        e->rows.near[*first + i] = (int32_t)(n - 1 - i < h->n_near ? n - 1 : i + h->n_near);
        e->rows.type[*first + i] = i >= n_first && h->n_types > 1;
    }
    return AERIE_OK;
}

aerie_status ae_engine_add_whole(ae_engine *e, uint32_t seq, const int32_t *tokens, uint32_t n, const uint8_t *wanted,
                                 uint32_t *first, aerie_error *error)
{
    if (!ae_engine_may_join(e->net) || e->net->ranks || e->net->model->hparams.crosses)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "texts whose rows see each other need a model without recurrent layers "
                       "and without an index that one machine runs");
    if (seq < e->options.n_seqs && ae_kv_n_live(e->kv, seq))
        return ae_fail(error, AERIE_ERROR_INTERNAL, "sequence %u has rows already; please report", seq);
    AE_TRY(add_chain(e, seq, tokens, n, (exports){AE_EXPORT_ALL, wanted}, first, error));
    ae_engine_join_rows(e, *first, n);
    return AERIE_OK;
}

aerie_status ae_engine_add_given(ae_engine *e, uint32_t first, uint32_t n, const float *rows, size_t plane, bool group,
                                 aerie_error *error)
{
    if (!n || first > e->n_rows || n > e->n_rows - first || e->n_given == e->options.n_batch)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "%u rows from %u on are given in a pass of %u; please report", n, first,
                       e->n_rows);
    if (group && !ae_engine_may_join(e->net))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the prompt has image rows that see each other, but the model has "
                       "recurrent layers, which read rows in order, or an index, which chooses among earlier rows");
    e->given[e->n_given++] = (ae_given){first, n, rows, plane};
    ae_commands_put_given(e, &e->given[e->n_given - 1], group);
    if (group) join_rows(e, first, n);
    return AERIE_OK;
}

void ae_engine_turn(ae_engine *e, uint32_t first, uint32_t n, uint32_t debt, uint32_t n_across, uint32_t from)
{
    ae_commands_put(e, &(ae_command){.kind = AE_COMMAND_TURN, .a = first, .b = n, .n = 3},
                    (const int32_t[]){(int32_t)debt, (int32_t)n_across, (int32_t)from});
    for (uint32_t i = 0; e->turn && i < n && first + i < e->n_rows; i++) {
        int32_t *at = e->turn + 4 * (size_t)(first + i);
        const int32_t pos = e->rows.pos[first + i] - (int32_t)debt, begin = pos - (int32_t)(from + i);
        for (int k = 0; k < 4; k++) at[k] = n_across ? begin : pos;
        if (n_across) {
            at[1] += (int32_t)((from + i) / n_across);
            at[2] += (int32_t)((from + i) % n_across);
            at[3] = 0;
        }
        e->turned |= n_across || debt;
    }
}

void ae_engine_turn_media(ae_engine *e, uint32_t first, uint32_t n, uint32_t at, const ae_media *media, uint32_t n_media)
{
    const uint32_t end = at + n;
    uint32_t debt = 0;
    for (uint32_t i = 0; i < n_media && media[i].first < end; i++) {
        const ae_media *m = &media[i];
        const uint32_t begin = m->first > at ? m->first : at, stop = m->first + m->n < end ? m->first + m->n : end;
        if (begin < stop) {
            if (begin > at) ae_engine_turn(e, first, begin - at, debt, 0, 0);
            ae_engine_turn(e, first + (begin - at), stop - begin, debt, m->n_across, begin - m->first);
            first += stop - at;
            at = stop;
        }
        debt += ae_media_debt(m);
    }
    if (debt && at < end) ae_engine_turn(e, first, end - at, debt, 0, 0);
}

aerie_status ae_engine_add_media(ae_engine *e, uint32_t first, uint32_t n, uint32_t at, const ae_media *media, uint32_t n_media,
                                 aerie_error *error)
{
    const size_t n_embd = e->net->model->hparams.n_embd;
    for (uint32_t i = 0; i < n_media; i++) {
        const ae_media *m = &media[i];
        const uint32_t begin = m->first > at ? m->first : at, stop = m->first + m->n < at + n ? m->first + m->n : at + n;
        if (begin < stop)
            AE_TRY(ae_engine_add_given(e, first + (begin - at), stop - begin, m->rows + (begin - m->first) * n_embd,
                                       m->n * n_embd, m->group, error));
    }
    ae_engine_turn_media(e, first, n, at, media, n_media);
    return AERIE_OK;
}
