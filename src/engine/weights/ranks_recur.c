/* ranks_recur.c - which rank has which heads of recurrent layers, and so which rows of their weights (ranks.h).
 *
 * Gated DeltaNet is cut by groups: keys with the heads that read them. Where heads are tiled, those of a rank are not
 * consecutive: one run for each round through the groups. Mamba-2 is cut by groups too; if there is only one, by heads, and
 * every rank computes the keys. KDA, PLaMo-2 and RWKV are cut by heads, Mamba-1 and short convolutions by channels. Owns
 * nothing.
 */
#include "engine/weights/ranks.h"

/* The heads, or channels, that one rank has as a whole. */
typedef struct units {
    uint32_t n_runs, first[AE_RECUR_RUNS], n; /* n in each run */
    uint32_t first_group, n_groups;           /* groups of keys */
} units;

static void add_run(ae_runs *runs, uint64_t first, uint32_t n)
{
    runs->list[runs->n++] = (ae_part_run){first, n};
}

/* Adds `width` rows of each unit, in a section of the tensor that begins at row `base`. */
static void add_units(ae_runs *runs, const units *u, uint64_t base, uint32_t width)
{
    for (uint32_t i = 0; i < u->n_runs; i++) add_run(runs, base + (uint64_t)u->first[i] * width, u->n * width);
}

static void add_groups(ae_runs *runs, const units *u, uint64_t base, uint32_t width)
{
    add_run(runs, base + (uint64_t)u->first_group * width, u->n_groups * width);
}

static bool has_channels(const ae_recur_hparams *r)
{
    return r->kind == AE_RECUR_MAMBA1 || r->kind == AE_RECUR_SHORTCONV;
}

static bool by_group(const ae_recur_hparams *r)
{
    return r->kind == AE_RECUR_DELTA || (r->kind == AE_RECUR_MAMBA2 && r->n_groups > 1);
}

static bool can_cut(const ae_model *m)
{
    const ae_recur_hparams *r = &m->hparams.recur;
    if (r->kind == AE_RECUR_NONE || r->kind == AE_RECUR_LIGHTNING) return false;
    if (!by_group(r) || !r->tiled) return true;
    for (uint32_t i = 0; i < m->hparams.n_layers; i++)
        if (m->layers[i].recur.beta_alpha) return false; /* beta_alpha is ordered by consecutive heads */
    return r->n_heads / r->n_groups + 2 <= AE_RECUR_RUNS;
}

/* Returns the units of a rank that has [first, first + n) of what is cut. */
static units units_of(const ae_recur_hparams *r, uint32_t first, uint32_t n)
{
    units u = {.n_runs = 1, .first = {first}, .n = n, .n_groups = r->n_groups};
    if (r->kind == AE_RECUR_KDA) u.first_group = first, u.n_groups = n;
    if (!by_group(r)) return u;
    const uint32_t per_group = r->n_heads / r->n_groups;
    u.first_group = first, u.n_groups = n;
    if (r->tiled) {
        u.n_runs = per_group;
        for (uint32_t t = 0; t < per_group; t++) u.first[t] = t * r->n_groups + first;
    } else {
        u.first[0] = first * per_group, u.n = n * per_group;
    }
    return u;
}

static void set_own(const ae_recur_hparams *r, const units *u, ae_recur_hparams *own)
{
    const uint32_t n = u->n * u->n_runs;
    *own = *r;
    if (has_channels(r)) {
        own->n_channels = n;
        own->value_dim = r->kind == AE_RECUR_MAMBA1 ? n : 0;
        return;
    }
    own->n_heads = n;
    own->n_groups = u->n_groups;
    own->n_channels = n * r->value_dim;
    if (r->kind == AE_RECUR_KDA) own->n_channels *= 3;
    if (r->kind == AE_RECUR_DELTA || r->kind == AE_RECUR_MAMBA2) own->n_channels += 2 * u->n_groups * r->key_dim;
    if (!n) own->n_channels = 0;
}

/* Lists the rows of `in`, and for `width` numbers of each channel those of the convolution. */
static void add_sections(const ae_recur_hparams *r, const units *u, ae_runs *in, ae_runs *taps, ae_runs *bias)
{
    const uint32_t w = has_channels(r) ? 1 : r->value_dim, n = has_channels(r) ? r->n_channels : r->n_heads * w;
    const uint32_t keys = r->n_groups * r->key_dim, t = r->n_taps;
    switch (r->kind) {
    case AE_RECUR_DELTA:
        for (uint32_t k = 0; k < 2; k++)
            add_groups(in, u, k * keys, r->key_dim), add_groups(taps, u, k * keys * t, r->key_dim * t);
        add_units(in, u, 2 * keys, w), add_units(taps, u, 2 * keys * t, w * t);
        *bias = *in;
        break;
    case AE_RECUR_MAMBA2:
        add_units(in, u, 0, w), add_units(in, u, n, w);
        add_units(taps, u, 0, w * t), add_units(bias, u, 0, w);
        for (uint32_t k = 0; k < 2; k++) {
            add_groups(in, u, 2 * n + k * keys, r->key_dim);
            add_groups(taps, u, (n + k * keys) * t, r->key_dim * t), add_groups(bias, u, n + k * keys, r->key_dim);
        }
        add_units(in, u, 2 * n + 2 * keys, 1);
        break;
    case AE_RECUR_PLAMO2:
        add_units(in, u, 0, 2 * w), add_units(taps, u, 0, w * t), add_units(bias, u, 0, w);
        break;
    default: /* KDA, MAMBA1, SHORTCONV: sections of all units, and taps of one section in a tensor */
        for (uint32_t k = 0; k < (r->kind == AE_RECUR_MAMBA1 ? 2 : 3); k++) add_units(in, u, k * n, w);
        add_units(taps, u, 0, w * t), add_units(bias, u, 0, w);
        break;
    }
}

/* Returns the unit in which the channels or heads of all layers are cut. */
static uint32_t unit_of(const ae_ranks *ranks, const ae_model *m)
{
    uint32_t block = 0;
    if (!has_channels(&m->hparams.recur)) return 1;
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        const uint32_t own = ae_ranks_block(m->layers[i].recur.out);
        block = own > block ? own : block;
    }
    return ae_ranks_unit(ranks, m->hparams.recur.n_channels, block);
}

/* RWKV: by heads of keys and values, with those that share them. The token shift and its state are on every rank: all channels
 * are mixed. Not cut if a rank would have no heads, since the channel mix keeps its last row in the same state. */
static void cut_wkv(ae_ranks *ranks, const ae_recur_hparams *r, const uint32_t *shares)
{
    ae_recur_cut *cut = &ranks->recur;
    const ae_receivers in = ae_ranks_of(ranks, ranks->stage);
    const uint32_t n_kv = r->n_kv ? r->n_kv : r->n_heads, each = r->n_heads / n_kv, d = r->key_dim;
    ae_slices heads = {{0}, {0}};
    ae_ranks_cut(&heads, n_kv, 1, shares, ranks->n);
    for (uint32_t i = in.first; i < in.first + in.n; i++)
        if (!heads.n[i]) return;
    const uint32_t first = heads.first[ranks->own], n = heads.n[ranks->own];
    for (uint32_t i = 0; i < ranks->n; i++)
        cut->slices[0].first[i] = heads.first[i] * each * d, cut->slices[0].n[i] = heads.n[i] * each * d;
    cut->n_slices = 1;
    cut->is_cut = true;
    cut->own = *r;
    cut->own.n_heads = n * each, cut->own.n_kv = r->n_kv ? n : 0;
    if (r->n_groups == r->n_heads) cut->own.n_groups = n * each;
    add_run(&cut->units, first * each, n * each);
    add_run(&cut->values, (uint64_t)first * each * d, n * each * d);
    add_run(&cut->pairs, (uint64_t)first * d, n * d);
    add_run(&cut->bias, 0, r->n_channels);
}

void ae_ranks_cut_recur(ae_ranks *ranks, const ae_model *m, const uint32_t *shares)
{
    const ae_recur_hparams *r = &m->hparams.recur;
    ae_recur_cut *cut = &ranks->recur;
    ae_slices parts = {{0}, {0}};
    if (!can_cut(m)) return;
    if (r->kind == AE_RECUR_WKV6 || r->kind == AE_RECUR_WKV7) {
        cut_wkv(ranks, r, shares);
        return;
    }
    const uint32_t w = has_channels(r) ? 1 : r->value_dim;
    const uint32_t n = has_channels(r) ? r->n_channels : by_group(r) ? r->n_groups : r->n_heads;
    ae_ranks_cut(&parts, n, unit_of(ranks, m), shares, ranks->n);
    for (uint32_t i = 0; i < ranks->n; i++) {
        const units u = units_of(r, parts.first[i], parts.n[i]);
        cut->n_slices = u.n_runs;
        for (uint32_t t = 0; t < u.n_runs; t++) cut->slices[t].first[i] = u.first[t] * w, cut->slices[t].n[i] = u.n * w;
    }
    const units u = units_of(r, parts.first[ranks->own], parts.n[ranks->own]);
    set_own(r, &u, &cut->own);
    cut->is_cut = true;
    cut->whole_norm = r->kind == AE_RECUR_MAMBA2 && !by_group(r);
    add_sections(r, &u, &cut->in, &cut->taps, &cut->bias);
    add_units(&cut->units, &u, 0, 1);
    add_units(&cut->values, &u, 0, w);
    add_groups(&cut->pairs, &u, 0, r->n_groups ? 2 * r->n_heads / r->n_groups : 0);
    add_groups(&cut->norm, &u, 0, r->n_groups ? r->n_heads * w / r->n_groups : 0);
    add_units(&cut->decay, &u, 0, r->key_dim);
}
