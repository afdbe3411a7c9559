/* engine.c - the life of an engine, its passes and their results (engine.h). The rows of a pass are added in add.c, the forward
 * pass is forward.c, and sequence.c changes sequences between passes. */
#include "engine/engine.h"
#include "backend/alloc_fail.h"

#include <string.h>

#include "base/hash.h"
#include "base/os.h"
#include "engine/commands.h"
#include "engine/engine_int.h"

static ae_rows_kind rows_kind(const ae_model *m)
{
    const ae_hparams *h = &m->hparams;
    return h->encoder ? AE_ROWS_ENCODER : h->crosses ? AE_ROWS_SOURCED : h->n_positions ? AE_ROWS_PLACED : AE_ROWS_TOKENS;
}
#include "text/token/vocab.h"

/* ---- Life ------------------------------------------------------------------------------------- */

static ae_engine_options resolve(const ae_engine_options *o)
{
    ae_engine_options r = *o;
    if (!r.n_outputs) r.n_outputs = r.n_seqs * (AERIE_MAX_DRAFT + 1);
    if (r.n_batch < r.n_outputs) r.n_batch = r.n_outputs;
    if (r.pool) r.n_threads = ae_pool_n_workers(r.pool);
    if (!r.n_records || r.n_records > AERIE_MAX_DRAFT) r.n_records = AERIE_MAX_DRAFT;
    return r;
}

static uint32_t list_eog(const ae_vocab *vocab, int32_t *out)
{
    uint32_t n = 0;
    for (int32_t i = 0; vocab && i < ae_vocab_n_tokens(vocab); i++) {
        if (!ae_vocab_is_eog(vocab, i)) continue;
        if (out) out[n] = i;
        n++;
    }
    return n;
}

/* most adapter sets whose keys are remembered, in addition to one for each sequence; prefixes are found again by these keys */
#define KNOWN_SETS 64

/* Returns how many positions a row can see at most, its drafted ancestors included. */
static uint32_t most_seen(const ae_engine_options *o)
{
    return o->n_ctx + AERIE_MAX_DRAFT;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Returns how many positions an index chooses at most. */
static uint32_t most_by_index(const ae_model *m, const ae_engine_options *o)
{
    const uint32_t every = m->hparams.compress.n_groups ? AE_COMPRESS_OVERLAP : 1;
    return least(m->hparams.index.n_most, most_seen(o) / every + 1);
}

static uint32_t n_chosen(const ae_model *m, const ae_engine_options *o)
{
    const ae_hparams *h = &m->hparams;
    const uint32_t chosen = least(most_by_index(m, o), most_seen(o));
    const uint32_t all = h->compress.widest ? most_seen(o) / AE_COMPRESS_MOST + 1 : 0; /* where no index chooses */
    return chosen > all ? chosen : all;
}

/* Returns how many rows of the window and compressed rows a row attends to at most. */
static uint32_t most_gathered(const ae_model *m, const ae_engine_options *o)
{
    if (!m->hparams.compress.widest) return 0;
    return least(m->layers[0].spec.window, most_seen(o)) + n_chosen(m, o);
}

/* Returns the most floats of one row that moves between devices. */
static size_t moved_size(const ae_model *m, const ae_engine_options *o)
{
    const size_t layers = (size_t)m->hparams.n_layers * m->hparams.n_embd_layer, chosen = n_chosen(m, o);
    const size_t several = ae_model_n_streams(&m->hparams) + m->hparams.n_banks;
    const size_t wide = (several ? several : 1) * m->hparams.n_embd;
    const size_t adapter = m->hparams.adapters.n ? AE_SWITCH_DIM : 0, rows = wide > adapter ? wide : adapter;
    const size_t most = layers > rows ? layers : rows;
    return most > chosen ? most : chosen;
}

/* Returns the most floats that one round gathers, for rows of the pass or for logits. */
static size_t gathered_size(const ae_model *m, const ae_engine_options *o)
{
    const ae_hparams *h = &m->hparams;
    const ae_widths w = ae_model_widths(m->layers, h->n_layers);
    const ae_expert_hparams *x = &h->experts;
    const size_t recur = (size_t)h->recur.n_heads * h->recur.value_dim, experts = (size_t)x->n_used * x->n_ff + x->n_ff_shared;
    const size_t wide[] = {ae_ranks_stream_width(h), w.q + w.kv, w.ff, recur, x->n_latent, experts};
    size_t row = 0, n_logits = (size_t)ae_engine_collected(m) * h->n_vocab;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) row = wide[i] > row ? wide[i] : row;
    const size_t rows = row * o->n_batch, most = rows > n_logits ? rows : n_logits;
    const size_t best = (size_t)o->n_outputs * ae_engine_best_room(o->ranks) * sizeof(ae_candidate) / sizeof(float);
    return best > most ? best : most;
}

static bool has_sections(const ae_rope *r)
{
    return r->sections[0] || r->sections[1] || r->sections[2] || r->sections[3];
}

static void host_layout(ae_layout *l, const ae_model *m, const ae_split *split, const ae_engine_options *o, ae_engine *e)
{
    const size_t n = o->n_batch, n_logits = (size_t)o->n_outputs * m->hparams.n_vocab;
    ae_rows_layout(l, n, o->n_outputs, rows_kind(m), &e->rows);
    e->out_index = ae_layout_add(l, n, sizeof(int32_t));
    e->ids = ae_layout_add(l, n, sizeof *e->ids);
    e->given = ae_layout_add(l, n, sizeof *e->given);
    e->n_added = ae_layout_add(l, o->n_seqs, sizeof *e->n_added);
    e->logits_room = ae_layout_add(l, split->devices[split->output]->ops->view_needs_room ? n_logits : 0, sizeof(float));
    e->logits_host = ae_layout_add(l, o->n_outputs, sizeof *e->logits_host);
    e->trees = ae_layout_add(l, o->n_seqs, sizeof *e->trees);
    e->ranked = ae_layout_add(l, o->n_outputs, sizeof *e->ranked);
    e->n_source = ae_layout_add(l, o->n_seqs, sizeof *e->n_source);
    e->first_row = ae_layout_add(l, o->n_seqs, sizeof *e->first_row);
    uint32_t n_rot = 0;
    for (uint32_t i = 0; i < m->hparams.n_ropes; i++)
        if (m->hparams.ropes[i].n_rot > n_rot) n_rot = m->hparams.ropes[i].n_rot;
    e->rope_host = ae_layout_add(l, n_rot / 2, sizeof(double));
    const bool turns = m->hparams.n_ropes && has_sections(&m->hparams.ropes[0]);
    e->turn = turns ? ae_layout_add(l, 4 * n, sizeof *e->turn) : NULL;
    e->turn_cos = ae_layout_add(l, turns ? n * (m->hparams.ropes[0].n_rot / 2) : 0, sizeof(float));
    e->turn_sin = ae_layout_add(l, turns ? n * (m->hparams.ropes[0].n_rot / 2) : 0, sizeof(float));
    e->q_scale_host = ae_layout_add(l, n, sizeof(float));
    const size_t n_switched = m->hparams.adapters.n ? n : 0;
    e->switch_host = ae_layout_add(l, 3 * n_switched * AE_SWITCH_DIM, sizeof(float));
    e->embedded = ae_layout_add(l, n_switched, sizeof *e->embedded);
    e->moved = ae_layout_add(l, split->n_devices > 1 ? n * moved_size(m, o) : 0, sizeof(float));
    e->best.noise = ae_layout_add(l, ae_engine_best_room(o->ranks) ? o->n_seqs : 0, sizeof *e->best.noise);
    e->best.list = ae_layout_add(l, (size_t)o->n_outputs * ae_engine_best_room(o->ranks), sizeof *e->best.list);
    e->best.eog = ae_layout_add(l, list_eog(o->vocab, NULL), sizeof *e->best.eog);
    e->group.room = ae_layout_add(l, o->ranks ? gathered_size(m, o) : 0, sizeof(float));
    e->sets = ae_layout_add(l, o->n_seqs, sizeof *e->sets);
    e->mode_sets = ae_layout_add(l, o->max_rank ? o->n_seqs : 0, sizeof *e->mode_sets);
    e->runs = ae_layout_add(l, o->n_seqs, sizeof *e->runs);
    e->runs_out = ae_layout_add(l, o->n_seqs, sizeof *e->runs_out);
    ae_adapter_keys_layout(l, o->max_rank ? o->n_seqs + KNOWN_SETS : 1, &e->keys);
}

static void output_layout(ae_layout *l, const ae_model *m, const ae_engine_options *o, ae_engine *e)
{
    const ae_hparams *h = &m->hparams;
    e->walked = ae_layout_add(l, o->n_seqs, sizeof *e->walked);
    e->proposals = ae_layout_add(l, o->n_outputs, sizeof *e->proposals);
    e->n_eog = list_eog(o->vocab, NULL);
    e->eog = ae_layout_add(l, e->n_eog, sizeof *e->eog);
    e->x_out = ae_layout_add(l, (size_t)o->n_outputs * h->n_embd, sizeof(float));
    e->logits = ae_layout_add(l, (size_t)o->n_outputs * h->n_vocab, sizeof(float));
    e->features = ae_layout_add(l, (size_t)o->n_batch * o->n_taps * h->n_embd, sizeof(float));
}

static void selection_layout(ae_layout *l, const ae_model *m, const ae_engine_options *o, ae_selection *s)
{
    const ae_index_hparams *x = &m->hparams.index;
    const size_t n = x->n_heads || m->hparams.compress.widest ? o->n_batch : 0, n_choices = n * ae_index_n_groups(x);
    s->n_most = n_chosen(m, o);
    s->pos = ae_layout_add(l, n_choices, sizeof *s->pos);
    s->n_inplace = ae_layout_add(l, n_choices, sizeof *s->n_inplace);
    s->path = ae_layout_add(l, n_choices * s->n_most, sizeof *s->path);
    s->q = ae_layout_add(l, n * x->n_heads * x->head_dim, sizeof(float));
    s->k = ae_layout_add(l, n * x->head_dim, sizeof(float));
    s->weight = ae_layout_add(l, n * x->n_heads, sizeof(float));
}

static void compress_layout(ae_layout *l, const ae_model *m, const ae_engine_options *o, ae_compress_rows *c)
{
    const ae_hparams *h = &m->hparams;
    const size_t n = h->compress.n_groups ? o->n_batch : 0, wide = h->compress.widest ? 4 : 0; /* parts, values and scores */
    c->rows = ae_layout_add(l, n * wide * h->head_dim, sizeof(float));
    c->index = ae_layout_add(l, (h->index.pool ? 2 * (size_t)o->n_batch : n * wide) * h->index.head_dim, sizeof(float));
    c->grouped = ae_layout_add(l, n * h->compress.n_groups * h->compress.n_out, sizeof(float));
    c->n_most_chosen = most_by_index(m, o);
}

/* Lays out the arrays of device i. */
static void device_layout(ae_layout *l, const ae_model *m, const ae_split *split, uint32_t i, const ae_engine_options *o,
                          ae_engine_device *d, ae_engine *e)
{
    const ae_hparams *h = &m->hparams;
    const size_t n = o->n_batch;
    ae_rows_layout(l, n, o->n_outputs, rows_kind(m), &d->rows);
    ae_block_layout(l, h, m->layers, h->n_layers, n, &d->block);
    if (o->ranks) ae_block_layout_group(l, h, m->layers, n, o->ranks->codes && !o->max_rank, &d->block);
    d->ple = ae_layout_add(l, n * h->n_layers * h->n_embd_layer, sizeof(float));
    d->ple_part = ae_layout_add(l, i == split->mixer[0] ? n * h->n_layers * h->n_embd_layer : 0, sizeof(float));
    d->ple_gate = ae_layout_add(l, n * h->n_embd_layer, sizeof(float));
    d->ple_own = ae_layout_add(l, n * h->n_embd_layer, sizeof(float));
    for (uint32_t k = 0; k < h->n_ropes; k++) {
        d->rope_freq[k] = ae_layout_add(l, h->ropes[k].n_rot / 2, sizeof(double));
        d->cos[k] = ae_layout_add(l, n * h->ropes[k].n_rot / 2, sizeof(float));
        d->sin[k] = ae_layout_add(l, n * h->ropes[k].n_rot / 2, sizeof(float));
    }
    d->deep = ae_layout_add(l, h->n_deepstack ? n * h->n_embd : 0, sizeof(float));
    d->q_scale = ae_layout_add(l, h->temp_scale != 0.0f ? n : 0, sizeof(float));
    selection_layout(l, m, o, &d->selection);
    compress_layout(l, m, o, &d->compress);
    const size_t n_switched = h->adapters.n ? n : 0;
    d->switch_rows = ae_layout_add(l, 3 * n_switched * AE_SWITCH_DIM, sizeof(float));
    d->switch_token = ae_layout_add(l, n_switched, sizeof *d->switch_token);
    d->block.adapter = ae_layout_add(l, n_switched * AE_SWITCH_DIM, sizeof(float));
    const ae_recur_widths w = ae_block_recur_widths(&h->recur);
    d->recur.in = ae_layout_add(l, n * w.in, sizeof(float));
    d->recur.z = ae_layout_add(l, n * w.z, sizeof(float));
    d->recur.ab = ae_layout_add(l, n * w.ab, sizeof(float));
    d->recur.c = ae_layout_add(l, n * w.c, sizeof(float));
    d->recur.y = ae_layout_add(l, n * w.y, sizeof(float));
    d->adapted.t = ae_layout_add(l, n * o->max_rank * AE_MATMUL_MAX, sizeof(float));
    d->tapped = ae_layout_add(l, split->n_devices > 1 ? n * o->n_taps * h->n_embd : 0, sizeof(float));
    if (i == split->output) output_layout(l, m, o, e);
}

/* The shapes of each layer's cache and recurrent state. Too large for the stack of a small thread. */
typedef struct layer_lists {
    ae_kv_layer layers[AE_MAX_KV_LAYERS];
    uint32_t windows[AE_MAX_KV_LAYERS];
    ae_state_layer state_layers[AE_MAX_LAYERS]; /* the states of layers differ only in their weights */
    ae_state_shape state;
    uint8_t kv_device[AE_MAX_KV_LAYERS], state_device[AE_MAX_LAYERS];
    ae_cache_device devices[AE_MAX_DEVICES];
    uint32_t n_devices;
} layer_lists;

/* net: the network that the layers belong to; NULL if only sizes are wanted. */
static void list_layers(const ae_model *m, const ae_split *split, const ae_net *net, const ae_ranks *ranks,
                        layer_lists *s)
{
    s->state = (ae_state_shape){.layers = s->state_layers};
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        if (m->layers[i].spec.mixer != AE_MIXER_RECUR && !m->layers[i].spec.recur_beside) continue;
        s->state_device[s->state.n_layers] = split->mixer[i];
        s->state_layers[s->state.n_layers++] = ae_block_recur_state(&m->hparams.recur, net ? &net->layers[i].recur : NULL);
    }
    ae_ranks_state(ranks, m, s->state_layers);
    ae_net_kv_devices(m, split, s->kv_device);
    s->n_devices = split->n_devices;
    for (uint32_t i = 0; i < split->n_devices; i++) s->devices[i].backend = split->devices[i];
}

static ae_kv_options kv_options(const ae_model *m, const ae_engine_options *o, layer_lists *c)
{
    const uint32_t n_layers = ae_net_kv_layers(m, c->layers, c->windows, NULL);
    ae_ranks_kv(o->ranks, m, c->layers, n_layers);
    return (ae_kv_options){
        .n_layers = n_layers, .layers = c->layers, .windows = c->windows,
        .n_seqs = o->n_seqs, .n_slots = o->n_ctx + AERIE_MAX_DRAFT, /* drafts may extend beyond the context */
        .type = o->kv_type, .n_pages = o->n_kv_pages, .n_batch = o->n_batch, .n_retained = o->n_windows,
        .n_devices = c->n_devices, .devices = c->devices, .device_of = c->kv_device};
}

static ae_state_options state_options(const layer_lists *s, const ae_engine_options *o)
{
    return (ae_state_options){s->state.n_layers, s->state_layers, o->n_seqs, o->n_ctx + AERIE_MAX_DRAFT, o->n_records,
                              o->n_snapshots, s->n_devices, s->devices, s->state_device};
}

/* Returns the recurrent layers of a device. */
static ae_state_shape states_on(const layer_lists *s, uint32_t i_device)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->state.n_layers; i++) n += s->state_device[i] == i_device;
    return (ae_state_shape){.n_layers = n, .layers = s->state_layers}; /* all alike */
}

/* state: the state of the device's layers; it must outlive the returned options. */
static ae_stream_options stream_options(const ae_model *m, const ae_state_shape *state, const ae_engine_options *o)
{
    const ae_hparams *h = &m->hparams;
    const ae_expert_hparams *x = &h->experts;
    const uint32_t widest = ae_block_max_in(h, m->layers, h->n_layers);
    const ae_widths w = ae_model_widths(m->layers, h->n_layers);
    const uint32_t wide = w.q > w.ff ? w.q : w.ff; /* width of the adapters that tokens choose */
    const ae_moe_shape switched = {.n_experts = h->adapters.n, .n_used = 1, .n_embd = wide > h->n_embd ? wide : h->n_embd,
                                   .n_ff = h->adapters.rank, .given = true};
    const ae_moe_shape moe = {x->n, x->n_used, x->n_latent > h->n_embd ? x->n_latent : h->n_embd,
                              x->n_ff > x->n_ff_chunk ? x->n_ff : x->n_ff_chunk, x->n_ff_shared, x->weigh_input,
                              x->n_chunks ? x->n / x->n_chunks : 0, false};
    return (ae_stream_options){
        .n_threads = o->n_threads, .max_rows = o->n_batch,
        .max_in = widest > o->max_rank ? widest : o->max_rank,
        .moe = h->adapters.n ? switched : moe,
        .n_selected_from = h->index.n_heads || h->compress.widest ? most_seen(o) : 0,
        .selects_blocks = h->index.block > 0 || h->index.pool > 0,
        .n_streams = h->n_streams, .n_banks = h->n_banks,
        .n_gathered = most_gathered(m, o), .gathered_dim = h->head_dim, .gathered_type = o->kv_type,
        .biased = h->biased, .hyper = h->hyper,
        .state = state->n_layers ? state : NULL,
        .pool = o->pool};
}

/* Returns the bytes that device i needs in addition to the KV cache and recurrent state. */
static size_t plan_device(const ae_model *m, const ae_split *split, uint32_t i, const ae_engine_options *o,
                          const layer_lists *lists)
{
    const ae_backend *backend = split->devices[i];
    const ae_state_shape states = states_on(lists, i);
    const ae_stream_options stream = stream_options(m, &states, o);
    ae_engine e;
    ae_engine_device d;
    ae_layout layout = {0};
    size_t bytes;
    device_layout(&layout, m, split, i, o, &d, &e);
    const bool fits = !layout.overflow && ae_add_size(layout.bytes, backend->ops->stream_bytes(backend, &stream), &bytes);
    return fits ? bytes : SIZE_MAX;
}

size_t ae_engine_plan_split(const ae_model *model, const ae_split *split, const ae_engine_options *options, size_t *on)
{
    const ae_engine_options o = resolve(options);
    layer_lists *lists = ae_alloc(1, sizeof *lists);
    if (!lists) return SIZE_MAX;
    size_t kv_on[AE_MAX_DEVICES], state_on[AE_MAX_DEVICES] = {0}, sum = 0;
    list_layers(model, split, NULL, o.ranks, lists);
    const ae_kv_options kv = kv_options(model, &o, lists);
    const ae_state_options state = state_options(lists, &o);
    const size_t kv_bytes = ae_kv_plan_bytes(NULL, &kv, kv_on);
    const size_t state_bytes = state.n_layers ? ae_state_plan_bytes(NULL, &state, state_on) : 0;
    ae_engine e;
    ae_layout host = {0};
    host_layout(&host, model, split, &o, &e);
    bool fits = !host.overflow && ae_add_size(host.bytes, kv_bytes, &sum) && ae_add_size(sum, state_bytes, &sum);
    for (uint32_t i = 0; i < split->n_devices; i++) {
        const size_t own = plan_device(model, split, i, &o, lists);
        fits = fits && ae_add_size(sum, own, &sum);
        if (on && (!ae_add_size(kv_on[i], state_on[i], &on[i]) || !ae_add_size(on[i], own, &on[i]))) on[i] = SIZE_MAX;
    }
    ae_free(lists);
    return fits ? sum : SIZE_MAX;
}

size_t ae_engine_plan_bytes(const ae_model *model, const ae_backend *backend, const ae_engine_options *options)
{
    ae_split split;
    ae_split_one(&split, model, (ae_backend *)backend);
    return ae_engine_plan_split(model, &split, options, NULL);
}

static aerie_status create_device(ae_engine *e, uint32_t i, aerie_error *error)
{
    const ae_model *m = e->net->model;
    const ae_split *split = &e->net->split;
    ae_engine_device *d = &e->devices[i];
    ae_layout l = {0};
    device_layout(&l, m, split, i, &e->options, d, e);
    d->bytes = l.bytes;
    d->memory = l.overflow ? NULL : d->backend->ops->alloc(d->backend, l.bytes);
    if (!d->memory) return ae_backend_fail_alloc(d->backend, "the activations", l.bytes, error);
    l = (ae_layout){.base = d->memory};
    device_layout(&l, m, split, i, &e->options, d, e);
    for (uint32_t k = 0; k < m->hparams.n_ropes; k++) {
        const ae_rope *rope = &m->hparams.ropes[k];
        ae_model_rope_freqs(rope, e->options.n_ctx, e->rope_host, &e->rope_magnitude[k]);
        AE_TRY(d->backend->ops->fill(d->backend, d->rope_freq[k], e->rope_host, rope->n_rot / 2 * sizeof *e->rope_host, error));
    }
    return AERIE_OK;
}

static aerie_status create_buffers(ae_engine *e, aerie_error *error)
{
    const ae_model *m = e->net->model;
    const ae_split *split = &e->net->split;
    ae_layout l = {0};
    host_layout(&l, m, split, &e->options, e);
    e->host = l.overflow ? NULL : ae_alloc_aligned(1, l.bytes);
    if (!e->host) return ae_fail_memory(error, "the rows of a pass", l.bytes);
    l = (ae_layout){.base = e->host};
    host_layout(&l, m, split, &e->options, e);
    for (uint32_t i = 0; i < e->n_devices; i++) AE_TRY(create_device(e, i, error));
    if (e->turn) ae_model_rope_freqs(&m->hparams.ropes[0], e->options.n_ctx, e->rope_host, &e->rope_magnitude[0]);
    (void)list_eog(e->options.vocab, e->best.eog);
    if (!e->n_eog) return AERIE_OK;
    return e->out->backend->ops->fill(e->out->backend, e->eog, e->best.eog, e->n_eog * sizeof *e->eog, error);
}

static aerie_status create_streams(ae_engine *e, layer_lists *lists, aerie_error *error)
{
    for (uint32_t i = 0; i < e->n_devices; i++) {
        ae_engine_device *d = &e->devices[i];
        const ae_state_shape states = states_on(lists, i);
        const ae_stream_options options = stream_options(e->net->model, &states, &e->options);
        AE_TRY(d->backend->ops->stream_create(d->backend, &options, &d->stream, error));
        lists->devices[i].stream = d->stream;
    }
    return AERIE_OK;
}

static aerie_status create(ae_engine **out, const ae_net *net, const ae_engine_options *options, layer_lists *lists,
                           aerie_error *error)
{
    ae_engine *e = ae_alloc(1, sizeof *e);
    if (!e) return ae_fail_memory(error, "an engine", sizeof *e);
    aerie_status status;
    e->net = net, e->options = resolve(options);
    e->options.ranks = e->group.ranks = net->ranks;
    e->group.codes = net->ranks && net->ranks->codes && !e->options.max_rank;
    e->devices = ae_alloc(net->split.n_devices, sizeof *e->devices);
    if (!e->devices) {
        ae_engine_free(e);
        return ae_fail_memory(error, "an engine", net->split.n_devices * sizeof *e->devices);
    }
    e->n_devices = net->split.n_devices;
    e->out = &e->devices[net->split.output];
    for (uint32_t i = 0; i < e->n_devices; i++) e->devices[i].backend = net->split.devices[i];
    list_layers(net->model, &net->split, net, net->ranks, lists);
    const ae_state_options state = state_options(lists, &e->options);
    const ae_kv_options kv = kv_options(net->model, &e->options, lists);
    AE_TRY_GOTO(status, create_buffers(e, error), fail);
    if (!e->options.pool) {
        AE_TRY_GOTO(status, ae_pool_create(&e->own_pool, e->options.n_threads, error), fail);
        e->options.pool = e->own_pool;
    }
    AE_TRY_GOTO(status, create_streams(e, lists, error), fail);
    AE_TRY_GOTO(status, ae_kv_create(&e->kv, NULL, &kv, error), fail);
    if (state.n_layers) AE_TRY_GOTO(status, ae_state_create(&e->state, NULL, &state, error), fail);
    if (net->ranks)
        AE_TRY_GOTO(status, ae_comm_reserve(net->ranks->comm, gathered_size(net->model, &e->options) * sizeof(float), error),
                    fail);
    if (net->ranks && net->ranks->n > 1)
        AE_TRY_GOTO(status, ae_group_bytes_create(&e->saving.bytes, net->model, net->ranks, e->options.kv_type, error), fail);
    if (e->options.commands) AE_TRY_GOTO(status, ae_commands_create(e->options.commands, e, error), fail);
    *out = e;
    return AERIE_OK;
fail:
    e->options.commands = NULL; /* creation failed, so no rank follows this engine */
    ae_engine_free(e);
    return status;
}

aerie_status ae_engine_create(ae_engine **out, const ae_net *net, const ae_engine_options *options, aerie_error *error)
{
    layer_lists *lists = ae_alloc(1, sizeof *lists);
    *out = NULL;
    if (net->ranks && net->split.n_devices > 1) {
        ae_free(lists);
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "a rank of a group uses one device; this one has %u",
                       net->split.n_devices);
    }
    if (!lists) return ae_fail_memory(error, "the lists of layers", sizeof *lists);
    const aerie_status status = create(out, net, options, lists, error);
    ae_free(lists);
    return status;
}

void ae_engine_free(ae_engine *engine)
{
    if (!engine) return;
    ae_commands_free_engine(engine);
    for (uint32_t i = 0; i < engine->n_devices; i++) { /* device memory is in use until its stream is idle */
        const ae_engine_device *d = &engine->devices[i];
        if (d->stream) (void)d->backend->ops->sync(d->stream, NULL);
    }
    ae_kv_free(engine->kv);
    ae_state_free(engine->state);
    for (uint32_t i = 0; i < engine->n_devices; i++) {
        const ae_engine_device *d = &engine->devices[i];
        if (d->stream) d->backend->ops->stream_free(d->stream);
    }
    ae_pool_free(engine->own_pool);
    for (uint32_t i = 0; i < engine->n_devices; i++) {
        const ae_engine_device *d = &engine->devices[i];
        if (d->memory) d->backend->ops->free(d->backend, d->memory, d->bytes);
    }
    ae_group_bytes_free(engine->saving.bytes);
    ae_free(engine->saving.own);
    ae_free(engine->saving.all);
    ae_free(engine->devices);
    ae_free(engine->host);
    ae_free(engine);
}

const ae_net *ae_engine_net(const ae_engine *engine)
{
    return engine->net;
}

const ae_engine_options *ae_engine_options_get(const ae_engine *engine)
{
    return &engine->options;
}

ae_kv *ae_engine_kv(const ae_engine *engine)
{
    return engine->kv;
}

ae_stream *ae_engine_stream(const ae_engine *engine)
{
    return engine->out->stream;
}

ae_pool *ae_engine_pool(const ae_engine *engine)
{
    return engine->options.pool;
}

/* ---- Passes ----------------------------------------------------------------------------------------- */

/* Adds the row at place i of the pass to the runs of rows with adapters, if its sequence has any. */
static void add_to_runs(const ae_engine *e, ae_adapter_run *runs, uint32_t *n, uint32_t i, uint32_t row)
{
    const bool mode = e->mode && e->mode->adapter;
    const ae_adapter_set *set = &(mode ? e->mode_sets : e->sets)[e->rows.seq[row]];
    ae_adapter_run *last = *n ? &runs[*n - 1] : NULL;
    if (!set->n) return;
    if (last && last->set->key == set->key && last->first + last->n == i) last->n++;
    else runs[(*n)++] = (ae_adapter_run){i, 1, set};
}

/* Makes the sets of the pass's sequences with the adapter of the pass's mode added. A full set stays as it is. */
static void join_mode(ae_engine *e)
{
    if (!e->mode || !e->mode->adapter) return;
    for (uint32_t i = 0; i < e->n_rows; i++) {
        if (i && e->rows.seq[i] == e->rows.seq[i - 1]) continue;
        ae_adapter_set *set = &e->mode_sets[e->rows.seq[i]];
        *set = e->sets[e->rows.seq[i]];
        if (set->n == AERIE_MAX_ADAPTERS) continue;
        set->list[set->n++] = (ae_adapter_use){e->mode->adapter, 1.0f};
        set->key ^= UINT64_C(1) << 63; /* differs from the keys of all sets without the adapter */
    }
}

/* Rows of a sequence are adjacent, so there are at most as many runs as sequences. */
static void list_runs(ae_engine *e)
{
    uint32_t n = 0, n_out = 0;
    join_mode(e);
    for (uint32_t i = 0; i < e->n_rows; i++) add_to_runs(e, e->runs, &n, i, i);
    for (uint32_t i = 0; i < e->n_out; i++) add_to_runs(e, e->runs_out, &n_out, i, (uint32_t)e->rows.out_rows[i]);
    for (uint32_t i = 0; i < e->n_devices; i++) {
        ae_engine_device *d = &e->devices[i];
        d->adapted = (ae_adapter_rows){e->runs, n, d->adapted.t};
        d->adapted_out = (ae_adapter_rows){e->runs_out, n_out, d->adapted.t};
    }
}

static uint64_t hash_number(uint64_t hash, uint64_t number)
{
    return ae_hash64(hash, &number, sizeof number);
}

static uint64_t hash_runs(uint64_t hash, const ae_adapter_rows *rows)
{
    for (uint32_t i = 0; i < rows->n; i++) {
        const ae_adapter_run *run = &rows->runs[i];
        hash = hash_number(hash_number(hash_number(hash, run->first), run->n), run->set->n);
        for (uint32_t k = 0; k < run->set->n; k++) {
            const ae_adapter_use *use = &run->set->list[k];
            hash = ae_hash64(hash, &use->scale, sizeof use->scale);
            hash = hash_number(hash, use->adapter->serial);
        }
    }
    return hash_number(hash, rows->n);
}

/* Passes with the same key run the same operations with the same arguments. The key is a hash of everything that ae_forward
 * bases a choice on and that differs between the passes of an engine. The addresses of the model's and the engine's own arrays
 * never change. */
static uint64_t pass_key(const ae_engine *e)
{
    uint64_t hash = hash_number(hash_number(0, e->n_rows), e->n_out);
    if (e->state) hash = hash_number(hash, ae_state_n_runs(e->state));
    if (e->mode) {
        hash = hash_number(hash, 1 + (uint64_t)e->mode->n_experts);
        hash = ae_hash64(hash, e->mode->lacks, e->net->model->hparams.n_layers * sizeof *e->mode->lacks);
    }
    hash = hash_number(hash, e->turned | 2u * e->grouped | 4u * e->whole); /* rows that see each other use other places */
    return hash_runs(hash_runs(hash, &e->out->adapted), &e->out->adapted_out);
}

/* Checks that every row of a source is given. */
static aerie_status check_source(const ae_engine *e, aerie_error *error)
{
    uint32_t n = 0, n_given = 0;
    if (!e->net->model->hparams.crosses) return AERIE_OK;
    for (uint32_t i = 0; i < e->n_rows; i++) n += e->ids[i] < 0;
    for (uint32_t i = 0; i < e->n_given; i++) n_given += e->given[i].n;
    if (n == n_given) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_INTERNAL, "%u rows of a source are given, of %u in the pass; please report", n_given, n);
}

/* Checks that a pass in a mode writes no rows to the KV cache that would be kept. */
static aerie_status check_mode(const ae_engine *e, aerie_error *error)
{
    for (uint32_t i = 0; e->mode && i < e->options.n_seqs; i++)
        if (e->n_added[i])
            return ae_fail(error, AERIE_ERROR_INTERNAL,
                           "rows of sequence %u in a pass that drafts would be kept; please report", i);
    return AERIE_OK;
}

/* Sends rows, page tables and query scales to all devices. */
static void upload(ae_engine *e)
{
    if (e->state) (void)ae_state_run_pass(e->state, NULL, e->n_rows, NULL);
    for (uint32_t i = 0; i < e->n_devices; i++) {
        ae_engine_device *d = &e->devices[i];
        if (e->state) d->state_pass = ae_state_pass_on(e->state, i, d->rows.parent);
        ae_rows_send(&e->rows, &d->rows, e->n_rows, e->n_out, d->backend->ops, d->stream);
    }
    ae_rows_send_tables(&e->rows, e->n_rows, e->kv, NULL);
    ae_forward_upload(e);
}

/* Runs the halves of layers, one run of consecutive halves per device; each run is a recorded pass of its device. */
static void run_all(ae_engine *e)
{
    const uint32_t n_layers = e->net->model->hparams.n_layers;
    const uint64_t key = pass_key(e);
    for (uint32_t begin = 0, end; begin <= 2 * n_layers; begin = end) {
        end = ae_split_run_end(&e->net->split, n_layers, begin);
        const ae_engine_device *d = &e->devices[ae_split_device(&e->net->split, n_layers, begin)];
        const bool later = e->net->model->hparams.n_deepstack || e->net->model->hparams.crosses; /* layers read given rows */
        if ((e->n_given && (!begin || later)) || (e->net->ranks && e->net->ranks->n > 1)) {
            ae_forward_run(e, begin, end); /* this run uploads in between, so it cannot be recorded */
        } else if (d->backend->ops->pass_begin(d->stream, begin ? hash_number(key, begin) : key)) {
            ae_forward_run(e, begin, end);
            d->backend->ops->pass_end(d->stream);
        }
        if (e->n_devices > 1) ae_forward_move(e, begin, end);
    }
}

/* Waits for all devices and returns the first error. */
static aerie_status sync_all(ae_engine *e, aerie_error *error)
{
    aerie_status status = AERIE_OK;
    for (uint32_t i = 0; i < e->n_devices; i++) {
        const ae_engine_device *d = &e->devices[i];
        const aerie_status own = d->backend->ops->sync(d->stream, status == AERIE_OK ? error : NULL);
        if (status == AERIE_OK) status = own;
    }
    return status;
}

/* Waits after a pass. A group cannot go on after a failure: the pages of its ranks would differ. */
static aerie_status sync_pass(ae_engine *e, aerie_error *error)
{
    const ae_ranks *ranks = e->net->ranks;
    aerie_error own = {0}, *why = error ? error : &own;
    aerie_status status = sync_all(e, why);
    if (!ranks || ranks->n == 1) return status;
    if (status != AERIE_OK) ae_comm_fail(ranks->comm, why->text);
    return status != AERIE_OK ? status : ae_comm_status(ranks->comm, why);
}

static aerie_status run_pass(ae_engine *e, aerie_error *error)
{
    const ae_backend_ops *ops = e->out->backend->ops;
    AE_TRY(check_mode(e, error));
    AE_TRY(check_source(e, error));
    upload(e);
    list_runs(e);
    const double start = e->n_devices > 1 ? ae_time_now() : 0; /* no device sees the time of the others */
    const uint32_t begin = ops->mark(e->out->stream);
    run_all(e);
    const uint32_t end = ops->mark(e->out->stream);
    const aerie_status status = sync_pass(e, error);
    e->pass_seconds = status != AERIE_OK ? 0
                      : e->n_devices > 1 ? ae_time_now() - start : ops->elapsed(e->out->stream, begin, end);
    for (uint32_t i = 0; status != AERIE_OK && i < e->options.n_seqs; i++)
        (void)ae_kv_truncate(e->kv, i, ae_kv_n_live(e->kv, i)); /* drops only drafts, which cannot fail */
    memset(e->logits_host, 0, e->options.n_outputs * sizeof *e->logits_host);
    return status;
}

aerie_status ae_engine_pass(ae_engine *e, aerie_error *error)
{
    if (!e->n_rows) return AERIE_OK;
    const bool held = ae_commands_hold(e->options.commands);
    e->group_status = AERIE_OK;
    e->n_waves = least(e->n_waves, ae_engine_most_waves(e));
    e->best.ran = e->best.wanted;
    e->best.ran_noisy = e->best.ran && e->best.noisy;
    if (e->best.ran_noisy) ae_commands_put_noise(e);
    ae_commands_put(e, &(ae_command){.kind = AE_COMMAND_PASS, .a = e->best.ran, .b = e->n_waves}, NULL);
    ae_commands_send(e->options.commands);
    ae_pool_hold(e->options.pool); /* engines that share threads run one at a time */
    const aerie_status status = run_pass(e, error);
    ae_pool_release(e->options.pool);
    ae_commands_release(e->options.commands, held);
    return status;
}

aerie_status ae_engine_sync(ae_engine *e, aerie_error *error)
{
    ae_kv_settle(e->kv, NULL);
    AE_TRY(sync_all(e, error));
    return e->net->ranks ? ae_comm_status(e->net->ranks->comm, error) : AERIE_OK;
}

double ae_engine_pass_seconds(const ae_engine *e)
{
    return e->pass_seconds;
}

const float *ae_engine_logits(ae_engine *e, uint32_t row)
{
    AE_ASSERT(e->out_index[row] >= 0);
    const uint32_t i = (uint32_t)e->out_index[row];
    const size_t n_vocab = e->net->model->hparams.n_vocab, at = i * n_vocab;
    if (!e->logits_host[i]) ae_engine_need_logits(e);
    if (!e->logits_host[i])
        e->logits_host[i] = e->out->backend->ops->view(e->out->stream, e->logits + at,
                                                       e->logits_room ? e->logits_room + at : NULL, n_vocab * sizeof(float));
    return e->logits_host[i];
}

void ae_engine_fetch_logits(ae_engine *e)
{
    const size_t n_vocab = e->net->model->hparams.n_vocab;
    if (!e->n_out) return;
    ae_engine_need_logits(e);
    const ae_backend_ops *ops = e->out->backend->ops;
    const float *rows = ops->view(e->out->stream, e->logits, e->logits_room, e->n_out * n_vocab * sizeof *rows);
    for (uint32_t i = 0; i < e->n_out; i++) e->logits_host[i] = rows + i * n_vocab;
}

aerie_status ae_engine_draw(ae_engine *e, const ae_engine_walk *walks, uint32_t n, ae_walked *out, aerie_error *error)
{
    const ae_backend_ops *ops = e->out->backend->ops;
    ae_stream *stream = e->out->stream;
    if (!n) return AERIE_OK;
    for (uint32_t i = 0; i < n; i++) {
        const ae_engine_walk *w = &walks[i];
        AE_ASSERT(e->out_index[w->row] >= 0 && w->row + w->n < e->n_rows);
        e->trees[i] = (ae_walk_tree){.draw = ae_sampler_plain(w->sampler), .room = ae_sampler_room(w->sampler), .row = w->row,
                                     .output = (uint32_t)e->out_index[w->row], .n = w->n,
                                     .n_most = w->n_most, .position = w->position, .ends = w->ends};
    }
    if (ae_engine_draw_best(e, n, out)) return AERIE_OK;
    ae_engine_need_logits(e);
    ops->walk(stream, &(ae_walk){.n_trees = n, .n_vocab = e->net->model->hparams.n_vocab, .trees = e->trees,
                                    .logits = e->logits, .token = e->out->rows.token, .parent = e->out->rows.parent,
                                    .eog = e->eog, .n_eog = e->n_eog, .out = e->walked});
    ops->download(stream, out, e->walked, n * sizeof *out);
    return ops->sync(stream, error);
}

aerie_status ae_engine_propose(ae_engine *e, const ae_engine_rank *ranks, uint32_t n, ae_proposal *out, aerie_error *error)
{
    const ae_backend_ops *ops = e->out->backend->ops;
    ae_stream *stream = e->out->stream;
    if (!n) return AERIE_OK;
    AE_ASSERT(n <= e->options.n_outputs);
    ae_engine_need_logits(e);
    for (uint32_t i = 0; i < n; i++)
        e->ranked[i] = (ae_propose_row){ae_sampler_plain(ranks[i].sampler), (uint32_t)e->out_index[ranks[i].row], ranks[i].k,
                                        ranks[i].position};
    ops->propose(stream, &(ae_propose){.n_rows = n, .n_logits = e->net->model->hparams.n_vocab, .rows = e->ranked,
                                          .logits = e->logits, .out = e->proposals});
    ops->download(stream, out, e->proposals, n * sizeof *out);
    return ops->sync(stream, error);
}

const float *ae_engine_features(const ae_engine *e, uint32_t row)
{
    return e->features + (size_t)row * e->options.n_taps * e->net->model->hparams.n_embd;
}

/* If the KV cache refuses the commit after this, state and cache are out of step, and add_chain refuses the sequence from then
 * on. */
static aerie_status commit_state(ae_engine *e, uint32_t seq, uint32_t n_chain, const int32_t *nodes, uint32_t n_nodes)
{
    const int32_t *tokens = e->ids + e->first_row[seq];
    int32_t path[AERIE_MAX_DRAFT];
    for (uint32_t i = 0; i < n_nodes; i++) {
        if (nodes[i] < 0 || nodes[i] >= AERIE_MAX_DRAFT || e->first_row[seq] + n_chain + (uint32_t)nodes[i] >= e->n_rows)
            return AERIE_ERROR_INTERNAL;
        path[i] = tokens[n_chain + (uint32_t)nodes[i]];
    }
    return ae_state_commit(e->state, seq, n_chain, nodes, n_nodes, tokens, path);
}

static aerie_status commit(ae_engine *e, uint32_t seq, uint32_t n_chain, const int32_t *nodes, uint32_t n_nodes)
{
    const uint32_t live = ae_kv_n_live(e->kv, seq);
    int32_t path[AERIE_MAX_DRAFT];
    if (n_chain > e->n_added[seq] || n_nodes > AERIE_MAX_DRAFT || (e->mode && n_nodes)) return AERIE_ERROR_INTERNAL;
    if (e->state) AE_TRY(commit_state(e, seq, n_chain, nodes, n_nodes));
    for (uint32_t i = 0; i < n_nodes; i++) path[i] = (int32_t)(live + n_chain) + nodes[i];
    return ae_kv_commit(e->kv, NULL, seq, n_chain, path, n_nodes);
}

aerie_status ae_engine_commit(ae_engine *e, uint32_t seq, uint32_t n_chain, const int32_t *nodes, uint32_t n_nodes)
{
    const aerie_status status = commit(e, seq, n_chain, nodes, n_nodes);
    ae_commands_put(e, &(ae_command){.kind = AE_COMMAND_COMMIT, .seq = seq, .a = n_chain, .result = (uint32_t)status,
                                     .n = n_nodes}, nodes);
    return status;
}
