/* ranks.c - see ranks.h. */
#include "engine/weights/ranks.h"

#include "base/mem.h"
#include "engine/weights/net.h"
#include "quant/types.h"

void ae_ranks_cut(ae_slices *slices, uint32_t total, uint32_t unit, const uint32_t *shares, uint32_t n)
{
    const uint64_t n_units = ((uint64_t)total + unit - 1) / unit;
    uint64_t sum = 0, before = 0;
    for (uint32_t r = 0; r < n; r++) sum += shares[r];
    for (uint32_t r = 0; r < n; r++) {
        const uint64_t begin = n_units * before / sum * unit, end = n_units * (before + shares[r]) / sum * unit;
        slices->first[r] = (uint32_t)(begin < total ? begin : total);
        slices->n[r] = (uint32_t)(end < total ? end : total) - slices->first[r];
        before += shares[r];
    }
}

/* ---- Which halves can be cut ----------------------------------------------------------------------------------- */

static bool can_cut_attention(const ae_model *m, uint32_t i)
{
    const ae_layer_spec *s = &m->layers[i].spec;
    const ae_hparams *h = &m->hparams;
    if (h->adapters.n || h->crosses) return false; /* in these models some products read all heads and others only a rank's */
    if (h->index.n_heads && (ae_index_n_groups(&h->index) > 1 || s->n_heads != m->layers[0].spec.n_heads)) return false;
    if (s->mixer == AE_MIXER_MLA) return s->mla.value_dim <= s->head_dim; /* whether there is room to gather */
    if (s->mixer != AE_MIXER_ATTENTION || s->kv_from < 0) return false;
    if (ae_ranks_norms_rows(s) && (s->qk_norm_last || (s->value_dim && s->value_dim != s->head_dim))) return false;
    /* the layer whose keys and values it reads; both have the same number of KV heads */
    const ae_layer_spec *of = &m->layers[s->kv_from].spec;
    return of->mixer == AE_MIXER_ATTENTION && of->n_kv_heads == s->n_kv_heads && of->head_dim == s->head_dim &&
           s->n_heads % s->n_kv_heads == 0;
}

/* Returns whether all layers that read the same keys and values can be cut: they are cut together or not at all. */
static bool all_readers_can(const ae_model *m, uint32_t i)
{
    const int of = m->layers[i].spec.kv_from;
    for (uint32_t k = 0; k < m->hparams.n_layers; k++)
        if (m->layers[k].spec.mixer == AE_MIXER_ATTENTION && m->layers[k].spec.kv_from == of && !can_cut_attention(m, k))
            return false;
    return can_cut_attention(m, i);
}

/* Cuts by key-value groups: a rank has whole heads of keys and values, and the queries that read them. */
static void cut_heads(ae_ranks *ranks, const uint32_t *shares, ae_layer_cut *cut)
{
    const ae_layer_spec *s = &cut->own;
    const bool mla = s->mixer == AE_MIXER_MLA;
    const uint32_t n_units = mla ? s->n_heads : s->n_kv_heads, group = s->n_heads / n_units;
    const uint32_t value = mla ? s->mla.value_dim : s->value_dim ? s->value_dim : s->head_dim;
    ae_slices units = {{0}, {0}};
    ae_ranks_cut(&units, n_units, 1, shares, ranks->n);
    for (uint32_t r = 0; r < ranks->n; r++) {
        cut->attn.first[r] = units.first[r] * group * value;
        cut->attn.n[r] = units.n[r] * group * value;
    }
    cut->mixer = true;
    cut->first_head = units.first[ranks->own] * group;
    cut->first_kv_head = mla ? 0 : units.first[ranks->own];
    cut->own.n_heads = units.n[ranks->own] * group;
    if (ae_ranks_norms_rows(s)) cut->own.qk_norm = AE_QK_NORM_NONE; /* the norm is applied to rows that were gathered before */
    if (!mla) cut->own.n_kv_heads = units.n[ranks->own];
}

uint32_t ae_ranks_block(ae_tensor_ref weight)
{
    const ae_type_info *info = weight ? ae_type_get(weight->type) : NULL;
    return !info ? 0 : info->dot == AE_DOT_32 ? 32 : info->dot == AE_DOT_256 ? 256 : 0;
}

/* Returns `block` if all slices are whole blocks, else 0. */
static uint32_t whole_blocks(const ae_slices *slices, uint32_t n, uint32_t block)
{
    bool whole = block > 0;
    for (uint32_t r = 0; whole && r < n; r++) whole = !slices->n[r] || !(slices->first[r] % block || slices->n[r] % block);
    return whole ? block : 0;
}

#define BLOCKS_EACH 4 /* so many for each rank, at least, or shares of whole blocks would be too coarse */

uint32_t ae_ranks_unit(const ae_ranks *ranks, uint32_t n, uint32_t block)
{
    return block && n / block >= BLOCKS_EACH * ae_ranks_of(ranks, ranks->stage).n ? block : AE_WEIGHT_ROWS;
}

static void cut_dense(ae_ranks *ranks, const ae_layer *from, const uint32_t *shares, ae_layer_cut *cut)
{
    const uint32_t n_ff = cut->own.n_ff, block = from->ffn_sub_norm ? 0 : ae_ranks_block(from->w_down);
    cut->ffn = true;
    ae_ranks_cut(&cut->ff, n_ff, ae_ranks_unit(ranks, n_ff, block), shares, ranks->n);
    cut->own.n_ff = cut->ff.n[ranks->own];
    cut->ff_block = whole_blocks(&cut->ff, ranks->n, block);
}

/* Sets in which blocks a layer's recurrent heads and experts send what they have computed. */
static void find_blocks(const ae_ranks *ranks, const ae_layer *from, ae_layer_cut *cut)
{
    const ae_recur_cut *recur = &ranks->recur;
    if (cut->recur && !(recur->whole_norm && from->recur.norm)) cut->recur_block = ae_ranks_block(from->recur.out);
    for (uint32_t i = 0; cut->recur_block && i < recur->n_slices; i++)
        cut->recur_block = whole_blocks(&recur->slices[i], ranks->n, cut->recur_block);
    if (!cut->experts) return;
    cut->expert_block = whole_blocks(&ranks->expert_ff, ranks->n, ae_ranks_block(from->e_down));
    cut->shared_block = whole_blocks(&ranks->shared_ff, ranks->n, ae_ranks_block(from->s_down));
}

static void cut_layer(ae_ranks *ranks, const ae_model *m, uint32_t i, const uint32_t *shares)
{
    ae_layer_cut *cut = &ranks->layers[i];
    const ae_layer_spec *s = &m->layers[i].spec;
    const bool dense = s->ffn == AE_FFN_DENSE || s->ffn == AE_FFN_BOTH || s->ffn == AE_FFN_CHANNEL_MIX;
    const bool experts = s->ffn == AE_FFN_EXPERTS || s->ffn == AE_FFN_BOTH;
    if (all_readers_can(m, i)) cut_heads(ranks, shares, cut);
    if (cut->mixer && !m->layers[i].attn_sub_norm)
        cut->attn_block = whole_blocks(&cut->attn, ranks->n, ae_ranks_block(m->layers[i].wo));
    if (dense && (s->sparse || m->hparams.adapters.n)) {
        ranks->n_whole++; /* the cutoff of a row depends on all its inner values */
    } else if (dense) {
        cut_dense(ranks, &m->layers[i], shares, cut);
    }
    cut->experts = experts;
    cut->recur = ranks->recur.is_cut && (s->mixer == AE_MIXER_RECUR || s->recur_beside);
    find_blocks(ranks, &m->layers[i], cut);
    const bool recurs = s->mixer == AE_MIXER_RECUR || s->recur_beside, attends = s->mixer != AE_MIXER_RECUR;
    if (s->mixer != AE_MIXER_NONE && ((recurs && !cut->recur) || (attends && !cut->mixer))) ranks->n_whole++;
}

/* Returns the first of the layers whose keys and values, or choice of positions, layer k reads. */
static uint32_t read_by(const ae_model *m, uint32_t k)
{
    const ae_layer_spec *s = &m->layers[k].spec;
    uint32_t first = k;
    if ((s->mixer == AE_MIXER_ATTENTION || s->mixer == AE_MIXER_MLA) && s->kv_from >= 0) first = (uint32_t)s->kv_from;
    for (uint32_t i = k; s->index == AE_INDEX_OTHER && i-- > 0;)
        if (m->layers[i].spec.index == AE_INDEX_OWN) return i < first ? i : first;
    return first;
}

/* Deals ranks, and layers by the sums of their shares, to stages. */
static void cut_stages(ae_ranks *ranks, const ae_model *m, const uint32_t *shares)
{
    ae_slices layers = {{0}, {0}};
    uint32_t sums[AE_MAX_RANKS] = {0};
    const uint32_t n = ranks->n_stages, each = ranks->n / n, more = ranks->n % n;
    for (uint32_t s = 0; s < n; s++) {
        ranks->first[s + 1] = ranks->first[s] + each + (s < more);
        for (uint32_t r = ranks->first[s]; r < ranks->first[s + 1]; r++) sums[s] += shares[r];
    }
    while (ranks->own >= ranks->first[ranks->stage + 1]) ranks->stage++;
    ae_ranks_cut(&layers, m->hparams.n_layers, 1, sums, n);
    for (uint32_t s = 0; s < n; s++) {
        uint32_t at = layers.first[s];
        for (uint32_t k = at; k < m->hparams.n_layers; k++) /* the layers that others read must be in the same stage */
            if (read_by(m, k) < at) at = k + 1;
        ranks->begin[s] = s ? at : 0;
    }
    ranks->begin[n] = m->hparams.n_layers;
}

/* Writes the shares of a stage's ranks, and 0 for the others. In a stage without any share the first rank has all. */
static void shares_in(const ae_ranks *ranks, uint32_t stage, uint32_t *shares)
{
    const ae_receivers in = ae_ranks_of(ranks, stage);
    uint32_t sum = 0;
    for (uint32_t r = 0; r < ranks->n; r++) sum += shares[r] = ae_receives(in, r) ? ranks->shares[r] : 0;
    if (!sum) shares[in.first] = 1;
}

void ae_ranks_handed(const ae_ranks *ranks, uint32_t stage, uint32_t width, ae_slices *slices)
{
    uint32_t equal[AE_MAX_RANKS] = {0};
    for (uint32_t r = 0; r < ranks->n; r++) equal[r] = ae_receives(ae_ranks_of(ranks, stage), r);
    ae_ranks_cut(slices, width, AE_WEIGHT_ROWS, equal, ranks->n);
}

/* Cuts the inner rows of all layers' experts alike, in units of the largest block that a layer's product of them reads. */
static void cut_inner(ae_ranks *ranks, const ae_model *m, const uint32_t *shares)
{
    const ae_expert_hparams *x = &m->hparams.experts;
    uint32_t block = 0, shared = 0;
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        const uint32_t own = ae_ranks_block(m->layers[i].e_down), of_shared = ae_ranks_block(m->layers[i].s_down);
        block = own > block ? own : block;
        shared = of_shared > shared ? of_shared : shared;
    }
    ae_ranks_cut(&ranks->expert_ff, x->n_ff, ae_ranks_unit(ranks, x->n_ff, block), shares, ranks->n);
    ae_ranks_cut(&ranks->shared_ff, x->n_ff_shared, ae_ranks_unit(ranks, x->n_ff_shared, shared), shares, ranks->n);
}

static aerie_status cut_experts(ae_ranks *ranks, const ae_model *m, const uint32_t *shares, aerie_error *error)
{
    const ae_expert_hparams *x = &m->hparams.experts;
    const ae_slices *out = x->n_latent ? &ranks->latent : &ranks->embd;
    const uint32_t own = ranks->own, n_out = x->n_latent ? x->n_latent : m->hparams.n_embd;
    cut_inner(ranks, m, shares);
    ae_ranks_cut(&ranks->latent, x->n_latent, AE_WEIGHT_ROWS, shares, ranks->n);
    ranks->inner_bias = ae_alloc(2 * (size_t)x->n + 1, sizeof *ranks->inner_bias);
    if (!ranks->inner_bias) return ae_fail_memory(error, "the map of ranks", 2 * (size_t)x->n * sizeof *ranks->inner_bias);
    ranks->out_bias = ranks->inner_bias + x->n;
    for (uint32_t e = 0; e < x->n; e++) {
        ranks->inner_bias[e] = (ae_part_run){(uint64_t)e * x->n_ff + ranks->expert_ff.first[own], ranks->expert_ff.n[own]};
        ranks->out_bias[e] = (ae_part_run){(uint64_t)e * n_out + out->first[own], out->n[own]};
    }
    return AERIE_OK;
}

static aerie_status read_shares(ae_ranks *ranks, const uint32_t *shares, aerie_error *error)
{
    uint32_t sum = 0;
    for (uint32_t r = 0; r < ranks->n; r++) {
        ranks->shares[r] = shares ? shares[r] : 1;
        if (ranks->shares[r] > 1000)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "share %u of the ranks is %u; 0 to 1000 are possible", r,
                           ranks->shares[r]);
        sum += ranks->shares[r];
    }
    if (!sum) return ae_fail(error, AERIE_ERROR_ARGUMENT, "all ranks have a share of 0; one must have more");
    return AERIE_OK;
}

static aerie_status cut_all(ae_ranks *ranks, const ae_model *model, aerie_error *error)
{
    const ae_hparams *h = &model->hparams;
    uint32_t shares[AE_MAX_RANKS];
    cut_stages(ranks, model, ranks->shares);
    shares_in(ranks, 0, shares);
    ae_ranks_cut(&ranks->vocab, h->n_vocab, AE_WEIGHT_ROWS, shares, ranks->n);
    shares_in(ranks, ranks->stage, shares);
    ae_ranks_cut(&ranks->embd, h->n_embd, AE_WEIGHT_ROWS, shares, ranks->n);
    AE_TRY(cut_experts(ranks, model, shares, error));
    ranks->layers = ae_alloc(h->n_layers, sizeof *ranks->layers);
    if (!ranks->layers) return ae_fail_memory(error, "the map of ranks", h->n_layers * sizeof *ranks->layers);
    if (ae_ranks_cuts(ranks)) ae_ranks_cut_recur(ranks, model, shares);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        ranks->layers[i].own = model->layers[i].spec;
        if (ae_ranks_cuts(ranks) && ae_ranks_has(ranks, i)) cut_layer(ranks, model, i, shares);
    }
    return AERIE_OK;
}

aerie_status ae_ranks_create(ae_ranks **out, const ae_model *model, ae_comm *comm, uint32_t n_stages, const uint32_t *shares,
                             aerie_error *error)
{
    *out = NULL;
    if (model->hparams.encoder)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s is an encoder; encoders run on one machine, or as replicas",
                       ae_gguf_path(model->gguf));
    if (!n_stages || n_stages > comm->n_ranks)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%u stages of %u ranks; each stage needs one", n_stages, comm->n_ranks);
    ae_ranks *ranks = ae_alloc(1, sizeof *ranks);
    if (!ranks) return ae_fail_memory(error, "the map of ranks", sizeof *ranks);
    *ranks = (ae_ranks){.comm = comm, .n = comm->n_ranks, .own = comm->rank, .n_stages = n_stages};
    aerie_status status = read_shares(ranks, shares, error);
    if (status == AERIE_OK) status = cut_all(ranks, model, error);
    if (status == AERIE_OK) *out = ranks;
    else ae_ranks_free(ranks);
    return status;
}

void ae_ranks_free(ae_ranks *ranks)
{
    if (!ranks) return;
    ae_free(ranks->inner_bias);
    ae_free(ranks->layers);
    ae_free(ranks);
}

/* ---- What is where ----------------------------------------------------------------------------------------------- */

uint32_t ae_ranks_stage(const ae_ranks *ranks, uint32_t layer)
{
    uint32_t s = 0;
    if (layer >= ranks->begin[ranks->n_stages]) return 0; /* the output */
    while (layer >= ranks->begin[s + 1]) s++;
    return s;
}

#define STAND_IN_DIM 32 /* the smallest width that all cache types allow */

bool ae_ranks_keeps(const ae_ranks *ranks, const ae_model *model, uint32_t layer, bool own_rows)
{
    if (!own_rows && !layer && model->hparams.adapters.n) return true; /* the layer that finds a row's adapter is on every
                                                                        * rank */
    return ae_ranks_has(ranks, layer) && (ranks->layers[layer].own.n_heads || model->layers[layer].memory.table);
}

uint32_t ae_ranks_stream_width(const ae_hparams *h)
{
    return h->n_embd * (1 + ae_model_n_streams(h) + h->n_banks + (h->recur.kind == AE_RECUR_WKV7));
}

void ae_ranks_kv(const ae_ranks *ranks, const ae_model *model, ae_kv_layer *layers, uint32_t n)
{
    uint32_t owners[AE_MAX_KV_LAYERS];
    bool own_rows[AE_MAX_KV_LAYERS];
    if (!ranks) return;
    ae_net_kv_owners(model, owners, own_rows);
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t i = owners[k];
        if (!ae_ranks_keeps(ranks, model, i, own_rows[k])) layers[k] = (ae_kv_layer){1, STAND_IN_DIM, 0, false, false};
        else if (own_rows[k] && ranks->layers[i].mixer && model->layers[i].spec.mixer == AE_MIXER_ATTENTION)
            layers[k].n_heads = ranks->layers[i].own.n_kv_heads;
    }
}

void ae_ranks_state(const ae_ranks *ranks, const ae_model *model, ae_state_layer *layers)
{
    uint32_t n = 0;
    for (uint32_t i = 0; ranks && i < model->hparams.n_layers; i++) {
        if (model->layers[i].spec.mixer != AE_MIXER_RECUR && !model->layers[i].spec.recur_beside) continue;
        ae_state_layer *l = &layers[n++];
        const ae_recur_hparams *own = &ranks->recur.own;
        if (!ae_ranks_has(ranks, i) || (ranks->layers[i].recur && !own->n_channels))
            *l = (ae_state_layer){.kind = AE_STATE_CONV, .n_channels = 16, .n_taps = 2};
        else if (ranks->layers[i].recur)
            l->n_channels = own->n_channels, l->n_heads = own->n_heads, l->n_groups = own->n_groups,
            l->value_dim = own->value_dim;
    }
}

/* ---- Counts ------------------------------------------------------------------------------------------------------- */

static uint64_t others(const ae_slices *s, const ae_ranks *ranks)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < ranks->n; r++) sum += r != ranks->own ? s->n[r] : 0;
    return sum * sizeof(float);
}

/* Between stages, before layer i + 1. */
static void count_handing(const ae_ranks *ranks, const ae_model *model, uint32_t i, ae_ranks_counts *c)
{
    const uint32_t from = ae_ranks_stage(ranks, i), to = ae_ranks_stage(ranks, i + 1);
    if (from == to) return;
    c->n_handed++;
    const ae_hparams *h = &model->hparams;
    uint32_t n = ae_model_n_streams(h) > h->n_banks ? ae_model_n_streams(h) : h->n_banks; /* the widest of what is sent */
    ae_slices sent;
    ae_ranks_handed(ranks, from, h->n_embd * (n ? n : 1), &sent); /* narrow rows have no part for every rank */
    c->n_own += to == ranks->stage || sent.n[ranks->own] > 0;
    if (to == ranks->stage) c->row_bytes += (uint64_t)ae_ranks_stream_width(&model->hparams) * sizeof(float);
}

/* As others, of slices that are sent in blocks. */
static uint64_t blocks_of_others(const ae_slices *s, const ae_ranks *ranks, uint32_t block)
{
    const uint64_t bytes = others(s, ranks);
    return block ? bytes / sizeof(float) / block * (block + sizeof(float)) : bytes;
}

static void count_recur(const ae_ranks *ranks, uint32_t block, uint32_t *n_rounds, uint64_t *bytes)
{
    const ae_recur_cut *cut = &ranks->recur;
    const bool twice = cut->own.kind == AE_RECUR_MAMBA1 || cut->own.kind == AE_RECUR_PLAMO2; /* also the convolution */
    for (uint32_t i = 0; i < cut->n_slices; i++)
        *bytes += blocks_of_others(&cut->slices[i], ranks, block) + (twice ? others(&cut->slices[i], ranks) : 0);
    *n_rounds += twice ? 3 : 2;
    *bytes += others(&ranks->embd, ranks);
}

static void count_experts(const ae_ranks *ranks, const ae_model *model, const ae_layer_cut *cut, bool codes, uint32_t *n_rounds,
                          uint64_t *bytes)
{
    const ae_expert_hparams *x = &model->hparams.experts;
    *n_rounds += x->n_latent ? 3 + (x->n_ff_shared > 0) : 2;
    *bytes += x->n_used * blocks_of_others(&ranks->expert_ff, ranks, codes ? cut->expert_block : 0) +
              blocks_of_others(&ranks->shared_ff, ranks, codes ? cut->shared_block : 0) + others(&ranks->latent, ranks) +
              others(&ranks->embd, ranks);
}

static void count_layer(const ae_ranks *ranks, const ae_model *model, uint32_t i, bool codes, uint32_t *n_rounds,
                        uint64_t *bytes)
{
    const ae_layer_cut *cut = &ranks->layers[i];
    const uint32_t attn_block = codes ? cut->attn_block : 0, ff_block = codes ? cut->ff_block : 0;
    *n_rounds += 2 * (cut->mixer + cut->ffn);
    if (cut->mixer) *bytes += blocks_of_others(&cut->attn, ranks, attn_block) + others(&ranks->embd, ranks);
    if (cut->mixer && ae_ranks_norms_rows(&model->layers[i].spec)) {
        const ae_layer_spec *s = &model->layers[i].spec;
        const uint64_t queries = others(&cut->attn, ranks);
        ++*n_rounds;
        *bytes += queries + (s->kv_from == (int)i ? queries / (s->n_heads / s->n_kv_heads) : 0);
    }
    if (cut->ffn) *bytes += blocks_of_others(&cut->ff, ranks, ff_block) + others(&ranks->embd, ranks);
    if (cut->recur) count_recur(ranks, codes ? cut->recur_block : 0, n_rounds, bytes);
    if (cut->recur && ranks->n_stages > 1 && ranks->recur.own.kind == AE_RECUR_WKV7 && !model->layers[i].wkv.blend_a)
        ++*n_rounds, *bytes += others(&ranks->recur.slices[0], ranks); /* its values, which all layers read */
    if (cut->experts) count_experts(ranks, model, cut, codes, n_rounds, bytes);
}

ae_ranks_counts ae_ranks_count(const ae_ranks *ranks, const ae_model *model, bool codes)
{
    ae_ranks_counts c = {0};
    for (uint32_t i = 0; i < model->hparams.n_layers; i++) {
        count_layer(ranks, model, i, codes, &c.n_inner, &c.row_bytes);
        count_handing(ranks, model, i, &c);
    }
    c.n_inner += ae_ranks_cuts_output(ranks) && (!ranks->own || ranks->vocab.n[ranks->own]);
    c.n_own += c.n_inner;
    if (!ranks->own) c.row_bytes += others(&ranks->vocab, ranks);
    return c;
}
