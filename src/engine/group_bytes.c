/* group_bytes.c - implements group_bytes.h. */
#include "engine/group_bytes.h"

#include "backend/saved.h"
#include "base/mem.h"
#include "engine/layers/block.h"

/* The lists while they are made. Too large for the stack of a small thread. */
typedef struct maker {
    const ae_model *m;
    ae_kv_type type;
    uint32_t n_kv, n_state;
    ae_kv_layer whole[AE_MAX_KV_LAYERS], own[AE_MAX_KV_LAYERS];
    uint32_t windows[AE_MAX_KV_LAYERS], owners[AE_MAX_KV_LAYERS];
    bool own_rows[AE_MAX_KV_LAYERS];
    ae_state_layer state, own_state[AE_MAX_LAYERS];
    bool given[AE_MAX_KV_LAYERS], state_given[AE_MAX_LAYERS], keys_given[AE_MAX_LAYERS]; /* by a rank before */
    bool failed;
} maker;

static void add(maker *k, ae_rank_bytes *b, size_t whole, size_t own, size_t n, bool gives)
{
    ae_bytes_run *runs = ae_grow(b->runs, b->n, &b->capacity, sizeof *runs);
    if (!runs) {
        k->failed = true;
        return;
    }
    b->runs = runs;
    b->runs[b->n++] = (ae_bytes_run){whole, own, n, gives};
    if (gives) b->given += n;
}

static bool once(bool *given)
{
    const bool first = !*given;
    *given = true;
    return first;
}

static void list_kv(maker *k, const ae_ranks *ranks, ae_rank_bytes *of)
{
    size_t at[AE_BYTES_KINDS] = {0};
    for (uint32_t i = 0; i < k->n_kv; i++) {
        const ae_bytes_kind kind = k->windows[i] ? AE_BYTES_PARTS : AE_BYTES_PAGES;
        const size_t row = ae_kv_row_bytes(k->type, &k->whole[i]);
        const size_t own = ae_kv_row_bytes(k->type, &k->own[i]) * k->own[i].n_heads;
        const uint32_t layer = k->owners[i];
        const bool heads = k->own_rows[i] && ranks->layers[layer].mixer && k->m->layers[layer].spec.mixer == AE_MIXER_ATTENTION;
        const size_t first = heads ? ranks->layers[layer].first_kv_head * row : 0;
        if (ae_ranks_keeps(ranks, k->m, layer, k->own_rows[i]))
            add(k, &of[kind], at[kind] + first, of[kind].own, own, heads || once(&k->given[i]));
        of[kind].own += own;
        at[kind] += row * k->whole[i].n_heads;
    }
}

static size_t state_floats(const ae_state_layer *l)
{
    return (size_t)(l->n_taps - 1) * l->n_channels + (size_t)l->n_heads * l->key_dim * l->value_dim;
}

/* Lists a state's bytes: its rows for the convolution, then its matrices. */
static void list_state(maker *k, const ae_recur_cut *cut, uint32_t i, size_t whole, ae_rank_bytes *b)
{
    const ae_state_layer *all = &k->state, *own = &k->own_state[i];
    const size_t f = sizeof(float), to = b->own;
    const ae_runs *channels = cut->own.kind == AE_RECUR_KDA ? &cut->in : &cut->bias;
    const bool shift = cut->own.kind >= AE_RECUR_WKV6; /* all channels of RWKV's token shift are on every rank */
    /* a single group of keys, which every rank has, too */
    const bool keys = (cut->whole_norm || shift) && once(&k->keys_given[i]);
    for (uint32_t t = 0; t + 1 < all->n_taps; t++)
        for (uint32_t r = 0, at = 0; r < channels->n; at += channels->list[r++].n)
            add(k, b, whole + ((size_t)t * all->n_channels + channels->list[r].first) * f,
                to + ((size_t)t * own->n_channels + at) * f, channels->list[r].n * f,
                keys || (!shift && (!cut->whole_norm || !r)));
    const size_t from = whole + (size_t)(all->n_taps - 1) * all->n_channels * f;
    const size_t here = to + (size_t)(own->n_taps - 1) * own->n_channels * f;
    const size_t matrix = (size_t)all->key_dim * all->value_dim * f;
    const bool by_value = cut->own.kind == AE_RECUR_MAMBA1; /* one matrix, of which a rank holds columns */
    for (uint32_t row = 0; by_value && row < all->n_heads * all->key_dim; row++)
        add(k, b, from + (row * (size_t)all->value_dim + cut->units.list[0].first) * f, here + row * (size_t)own->value_dim * f,
            own->value_dim * f, true);
    for (uint32_t r = 0, at = 0; !by_value && all->n_heads && r < cut->units.n; at += cut->units.list[r++].n)
        add(k, b, from + cut->units.list[r].first * matrix, here + at * matrix, cut->units.list[r].n * matrix, true);
}

static void list_states(maker *k, const ae_ranks *ranks, ae_rank_bytes *b)
{
    size_t whole = 0;
    for (uint32_t i = 0, n = 0; i < k->m->hparams.n_layers; i++) {
        if (k->m->layers[i].spec.mixer != AE_MIXER_RECUR && !k->m->layers[i].spec.recur_beside) continue;
        const size_t all = state_floats(&k->state) * sizeof(float), own = state_floats(&k->own_state[n]) * sizeof(float);
        const bool cut = ranks->layers[i].recur;
        if (ae_ranks_has(ranks, i) && !cut) add(k, b, whole, b->own, all, once(&k->state_given[n]));
        else if (cut && ranks->recur.own.n_channels) list_state(k, &ranks->recur, n, whole, b);
        b->own += own;
        whole += all;
        n++;
    }
}

static aerie_status list_rank(maker *k, const ae_ranks *ranks, uint32_t r, ae_rank_bytes *of, aerie_error *error)
{
    ae_comm comm = {.rank = r, .n_ranks = ranks->n};
    ae_ranks *own;
    AE_TRY(ae_ranks_create(&own, k->m, &comm, ranks->n_stages, ranks->shares, error));
    memcpy(k->own, k->whole, k->n_kv * sizeof *k->own);
    ae_ranks_kv(own, k->m, k->own, k->n_kv);
    for (uint32_t i = 0; i < k->n_state; i++) k->own_state[i] = k->state;
    ae_ranks_state(own, k->m, k->own_state);
    list_kv(k, own, of);
    list_states(k, own, &of[AE_BYTES_STATE]);
    ae_ranks_free(own);
    return k->failed ? ae_fail_memory(error, "the map of saved sequences", 0) : AERIE_OK;
}

static void measure(maker *k, size_t *whole)
{
    k->n_kv = ae_net_kv_layers(k->m, k->whole, k->windows, NULL);
    ae_net_kv_owners(k->m, k->owners, k->own_rows);
    for (uint32_t i = 0; i < k->n_kv; i++)
        whole[k->windows[i] ? AE_BYTES_PARTS : AE_BYTES_PAGES] += ae_kv_row_bytes(k->type, &k->whole[i]) * k->whole[i].n_heads;
    k->state = ae_block_recur_state(&k->m->hparams.recur, NULL);
    for (uint32_t i = 0; i < k->m->hparams.n_layers; i++)
        k->n_state += k->m->layers[i].spec.mixer == AE_MIXER_RECUR || k->m->layers[i].spec.recur_beside;
    whole[AE_BYTES_STATE] = k->n_state * state_floats(&k->state) * sizeof(float);
}

static aerie_status list_all(maker *k, const ae_ranks *ranks, ae_group_bytes *b, aerie_error *error)
{
    size_t given[AE_BYTES_KINDS] = {0};
    measure(k, b->whole);
    b->n_ranks = ranks->n;
    for (uint32_t r = 0; r < ranks->n; r++) {
        AE_TRY(list_rank(k, ranks, r, b->of[r], error));
        for (uint32_t i = 0; i < AE_BYTES_KINDS; i++) given[i] += b->of[r][i].given;
    }
    for (uint32_t i = 0; i < AE_BYTES_KINDS; i++)
        if (given[i] != b->whole[i])
            return ae_fail(error, AERIE_ERROR_INTERNAL, "the ranks keep %zu bytes of %zu (kind %u); please report", given[i],
                           b->whole[i], i);
    return AERIE_OK;
}

aerie_status ae_group_bytes_create(ae_group_bytes **out, const ae_model *model, const ae_ranks *ranks, ae_kv_type type,
                                   aerie_error *error)
{
    ae_group_bytes *b = ae_alloc(1, sizeof *b);
    maker *k = ae_alloc(1, sizeof *k);
    *out = NULL;
    aerie_status status = AERIE_OK;
    if (!b || !k) status = ae_fail_memory(error, "the map of saved sequences", sizeof *b + sizeof *k);
    if (status == AERIE_OK) {
        k->m = model, k->type = type;
        status = list_all(k, ranks, b, error);
    }
    ae_free(k);
    if (status == AERIE_OK) *out = b;
    else ae_group_bytes_free(b);
    return status;
}

void ae_group_bytes_free(ae_group_bytes *b)
{
    if (!b) return;
    for (uint32_t r = 0; r < AE_MAX_RANKS; r++)
        for (uint32_t i = 0; i < AE_BYTES_KINDS; i++) ae_free(b->of[r][i].runs);
    ae_free(b);
}

/* ---- Copies ---------------------------------------------------------------------------------------------------- */

uint8_t *ae_rank_bytes_pack(const ae_rank_bytes *b, const uint8_t *own, size_t n_rows, uint8_t *packed)
{
    for (size_t row = 0; row < n_rows; row++, own += b->own)
        for (size_t i = 0; i < b->n; i++) {
            const ae_bytes_run *run = &b->runs[i];
            if (!run->gives) continue;
            memcpy(packed, own + run->own, run->n);
            packed += run->n;
        }
    return packed;
}

const uint8_t *ae_rank_bytes_unpack(const ae_rank_bytes *b, const uint8_t *packed, size_t n_rows, uint8_t *all, size_t whole)
{
    for (size_t row = 0; row < n_rows; row++, all += whole)
        for (size_t i = 0; i < b->n; i++) {
            const ae_bytes_run *run = &b->runs[i];
            if (!run->gives) continue;
            memcpy(all + run->whole, packed, run->n);
            packed += run->n;
        }
    return packed;
}

void ae_rank_bytes_take(const ae_rank_bytes *b, const uint8_t *all, size_t whole, size_t n_rows, uint8_t *own)
{
    memset(own, 0, n_rows * b->own);
    for (size_t row = 0; row < n_rows; row++, all += whole, own += b->own)
        for (size_t i = 0; i < b->n; i++) memcpy(own + b->runs[i].own, all + b->runs[i].whole, b->runs[i].n);
}
