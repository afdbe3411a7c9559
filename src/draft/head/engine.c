/* engine.c - the life of a drafter head at work, its rows, and what is read of a pass (engine.h). The pass itself: forward.c.
 * */
#include "draft/head/pass.h"
#include "backend/alloc_fail.h"

#include <string.h>

#include "base/math/fmath.h"

/* ---- Life ------------------------------------------------------------------------------------- */

static uint64_t whole_pages(uint32_t n)
{
    return ((uint64_t)n + AE_KV_PAGE - 1) / AE_KV_PAGE * AE_KV_PAGE;
}

/* Returns the most drafted rows of a sequence in a pass. */
static uint32_t per_seq(const ae_dhead *head)
{
    const uint32_t n = head->hparams.n_block;
    return n > AE_DHEAD_LEVEL_MAX ? n : AE_DHEAD_LEVEL_MAX;
}

static ae_dhead_engine_options resolve(const ae_dhead *head, const ae_dhead_engine_options *o)
{
    ae_dhead_engine_options r = *o;
    const uint32_t level = r.n_seqs * per_seq(head);
    if (r.n_batch < level + head->hparams.n_parallel) r.n_batch = level + head->hparams.n_parallel;
    if (r.n_batch < ae_dhead_lattice_rows(&head->hparams)) r.n_batch = ae_dhead_lattice_rows(&head->hparams);
    if (!r.window) {
        r.window = head->hparams.window;
        r.n_sinks = head->hparams.n_sinks;
    }
    /* A window that is at least as long as the context drops nothing. Limiting any other to n_ctx keeps the sums in kv_options
     * and forget from overflowing. */
    const uint64_t window = whole_pages(r.window), n_sinks = whole_pages(r.n_sinks);
    const bool forgets = window && window + n_sinks + AE_KV_PAGE < r.n_ctx;
    r.window = forgets ? (uint32_t)window : 0;
    r.n_sinks = forgets ? (uint32_t)n_sinks : 0;
    return r;
}

/* Returns the most outputs of a pass: logits of drafted rows, or one for each of Medusa's heads. */
static uint32_t outputs_of(const ae_dhead *head, const ae_dhead_engine_options *o)
{
    return o->n_seqs * (head->hparams.n_medusa ? head->hparams.n_medusa : per_seq(head));
}

/* Returns the number of links in a pass (DSpark and DFly); 0 for other heads. */
static size_t n_links(const ae_dhead *head, const ae_dhead_engine_options *o)
{
    return head->hparams.n_markov || head->hparams.n_correct ? (size_t)o->n_seqs * AE_DHEAD_LEVEL_MAX : 0;
}

static ae_rows_kind rows_kind(const ae_dhead *head)
{
    return head->hparams.n_steps > 1 ? AE_ROWS_STEPS : AE_ROWS_HEAD;
}

static void host_layout(ae_layout *l, const ae_dhead *head, uint32_t n_draft, bool view_needs_room,
                        const ae_dhead_engine_options *o, ae_dhead_engine *e)
{
    const size_t n = o->n_batch, n_out = outputs_of(head, o);
    ae_rows_layout(l, n, n_out, rows_kind(head), &e->rows);
    e->logits_host = ae_layout_add(l, n_out, sizeof *e->logits_host);
    e->seqs = ae_layout_add(l, o->n_seqs, sizeof *e->seqs);
    e->given = ae_layout_add(l, n, sizeof *e->given);
    e->host_links = ae_layout_add(l, 2 * n_links(head, o), sizeof *e->host_links);
    const ae_dhead_hparams *hp = &head->hparams;
    const size_t n_paired = ae_dhead_n_paired(hp, o->n_seqs) * hp->n_pair;
    e->conv_rows = ae_layout_add(l, n * hp->n_conv, sizeof *e->conv_rows);
    e->pair_rows_host = ae_layout_add(l, n_out * hp->n_pair, sizeof(float));
    e->pair_before_host = ae_layout_add(l, n_paired, sizeof(float));
    e->pair_after_host = ae_layout_add(l, n_paired, sizeof(float));
    e->logits_room = ae_layout_add(l, view_needs_room ? n_out * n_draft : 0, sizeof(float));
}

static bool keeps_rows(const ae_dhead *head)
{
    return ae_dhead_traits_of(&head->hparams)->keeps_rows;
}

/* layers has room for AE_DHEAD_MAX_LAYERS. */
static ae_kv_options kv_options(const ae_dhead *head, const ae_dhead_engine_options *o, ae_kv_layer *layers)
{
    const uint32_t kept = o->window + o->n_sinks + AE_KV_PAGE + o->n_batch; /* cannot overflow: resolve has limited these */
    const uint32_t n = o->window && kept < o->n_ctx ? kept : o->n_ctx;
    for (uint32_t i = 0; keeps_rows(head) && i < head->hparams.n_layers; i++) {
        const ae_layer_spec *s = &ae_dhead_layers(head)[i].spec;
        layers[i] = s->mixer == AE_MIXER_MLA ? (ae_kv_layer){1, s->mla.n_latent, s->mla.n_rope, false, false}
                                             : (ae_kv_layer){s->n_kv_heads, s->head_dim, 0, false, false};
    }
    return (ae_kv_options){.n_layers = head->hparams.n_layers,
                           .layers = layers,
                           .n_seqs = o->n_seqs,
                           .n_slots = n + AERIE_MAX_DRAFT,
                           .type = AE_KV_F16};
}

static void device_layout(ae_layout *l, const ae_dhead *head, uint32_t n_draft, const ae_dhead_engine_options *o,
                          ae_dhead_engine *e)
{
    const ae_dhead_hparams *hp = &head->hparams;
    const ae_hparams *h = &hp->layer;
    const bool medusa = hp->n_medusa;
    const size_t n = medusa ? 0 : o->n_batch, n_out = outputs_of(head, o), H = h->n_embd, W = ae_dhead_width(hp);
    const bool block = ae_dhead_is_block(hp);
    const size_t L = n_links(head, o), T = ae_dhead_n_paired(hp, o->n_seqs), n_conv = hp->n_conv ? n : 0;
    const struct {
        float **field;
        size_t n;
    } arrays[] = {
        {&e->features, n * hp->n_taps * hp->n_target_embd},
        {&e->g, n * W}, {&e->c, block ? 0 : n * 2 * W}, {&e->medusa, medusa ? n_out * H : 0},
        {&e->x_out, n_out * H}, {&e->logits, n_out * n_draft},
        {&e->fed, block ? 0 : (size_t)o->n_seqs * (1 + AERIE_MAX_DRAFT) * hp->n_steps * W},
        {&e->hidden, block ? n_out * H : 0}, {&e->link_in, L * (hp->n_correct ? 2 * H : H + hp->n_markov)}, {&e->conf, L},
        {&e->linked, L * n_draft}, {&e->link_up, 2 * L * hp->n_correct}, {&e->link_x, hp->n_correct ? L * H : 0},
        {&e->conv_in, n_conv ? (n + 1) * H : 0}, {&e->conv_out, n_conv ? (n + 1) * H : 0},
        {&e->conv_y, n_conv * H}, {&e->conv_a, n_conv * H}, {&e->conv_b, n_conv * H},
        {&e->conv_c, n_conv ? n * 2 * hp->n_conv * (H / hp->conv_group) : 0},
        {&e->anchors, hp->lattice.width ? o->n_seqs * H : 0},
        {&e->pair_rows, n_out * hp->n_pair}, {&e->pair_before, T * hp->n_pair}, {&e->pair_after, T * hp->n_pair},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        *arrays[i].field = ae_layout_add(l, arrays[i].n, sizeof(float));
    e->compress = (ae_compress_rows){0};
    e->compress.grouped = ae_layout_add(l, n * h->compress.n_groups * h->compress.n_out, sizeof(float));
    ae_block_layout(l, h, ae_dhead_layers(head), hp->n_layers, n, &e->block);
    for (uint32_t i = 0; i < h->n_ropes; i++) {
        e->cos[i] = ae_layout_add(l, n * h->ropes[i].n_rot / 2, sizeof(float));
        e->sin[i] = ae_layout_add(l, n * h->ropes[i].n_rot / 2, sizeof(float));
        e->rope_freq[i] = ae_layout_add(l, h->ropes[i].n_rot / 2, sizeof(double));
    }
    ae_rows_layout(l, n, n_out, rows_kind(head), &e->on_device);
    e->links = ae_layout_add(l, L, sizeof *e->links);
    e->pair_tokens = ae_layout_add(l, T, sizeof *e->pair_tokens);
    e->link_tokens = ae_layout_add(l, L, sizeof *e->link_tokens);
    e->proposals = ae_layout_add(l, n_out, sizeof *e->proposals);
    e->to_target = ae_layout_add(l, n_draft, sizeof *e->to_target);
}

static ae_stream_options stream_options(const ae_dhead *head, const ae_dhead_engine_options *o, uint32_t n_threads,
                                        ae_pool *pool)
{
    const ae_dhead_hparams *hp = &head->hparams;
    const ae_hparams *h = &hp->layer;
    const ae_expert_hparams *x = &h->experts;
    const uint32_t W = ae_dhead_width(hp);
    const uint32_t dims[] = {2 * (h->hyper ? h->n_embd : W), hp->n_taps * hp->n_target_embd, W + hp->n_markov, hp->n_correct,
                             ae_dhead_lattice_max_in(hp)};
    uint32_t max_in = ae_block_max_in(h, ae_dhead_layers(head), hp->n_layers);
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (dims[i] > max_in) max_in = dims[i];
    return (ae_stream_options){.n_threads = n_threads, .max_rows = o->n_batch, .max_in = max_in,
                               .moe = {x->n, x->n_used, h->n_embd, x->n_ff, x->n_ff_shared, x->weigh_input, 0, false},
                               .n_streams = h->n_streams, .hyper = h->hyper,
                               .pool = pool};
}

size_t ae_dhead_engine_plan_bytes(const ae_dhead *head, const ae_net *target, const ae_dhead_engine_options *options,
                                 uint32_t n_threads)
{
    const ae_dhead_engine_options o = resolve(head, options);
    const uint32_t n_draft = head->to_target || !ae_dhead_borrows_output(head) ? head->hparams.n_draft
                                                                               : target->model->hparams.n_vocab;
    const ae_stream_options stream = stream_options(head, &o, n_threads, NULL);
    ae_kv_layer layers[AE_DHEAD_MAX_LAYERS];
    const ae_kv_options kv = kv_options(head, &o, layers);
    ae_dhead_engine e;
    ae_layout host = {0}, device = {0};
    host_layout(&host, head, n_draft, target->backend->ops->view_needs_room, &o, &e);
    device_layout(&device, head, n_draft, &o, &e);
    size_t total = 0;
    const size_t parts[] = {host.bytes, device.bytes, target->backend->ops->stream_bytes(target->backend, &stream),
                            !keeps_rows(head) ? 0 : ae_kv_plan_bytes(target->backend, &kv, NULL),
                            !head->hparams.lattice.width
                                ? 0 : ae_dhead_lattice_bytes(&head->hparams, target->backend, o.n_batch, o.n_seqs)};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!ae_add_size(total, parts[i], &total)) return SIZE_MAX;
    return host.overflow || device.overflow ? SIZE_MAX : total;
}

static aerie_status create_buffers(ae_dhead_engine *e, aerie_error *error)
{
    const ae_dhead *head = e->net->head;
    const bool room = e->backend->ops->view_needs_room;
    ae_layout l = {0};
    host_layout(&l, head, e->net->n_draft, room, &e->options, e);
    e->host = l.overflow ? NULL : ae_alloc_aligned(1, l.bytes);
    if (!e->host) return ae_fail_memory(error, "the rows of a head's pass", l.bytes);
    l = (ae_layout){.base = e->host};
    host_layout(&l, head, e->net->n_draft, room, &e->options, e);
    l = (ae_layout){0};
    device_layout(&l, head, e->net->n_draft, &e->options, e);
    e->device_bytes = l.bytes;
    e->device = l.overflow ? NULL : e->backend->ops->alloc(e->backend, l.bytes);
    if (!e->device) return ae_backend_fail_alloc(e->backend, "a head's activations", l.bytes, error);
    l = (ae_layout){.base = e->device};
    device_layout(&l, head, e->net->n_draft, &e->options, e);
    const ae_hparams *h = &head->hparams.layer;
    if (e->net->to_target)
        AE_TRY(e->backend->ops->fill(e->backend, e->to_target, e->net->to_target, e->net->n_draft * sizeof *e->to_target,
                                     error));
    for (uint32_t i = 0; i < h->n_ropes; i++)
        AE_TRY(e->backend->ops->fill(e->backend, e->rope_freq[i], e->net->rope_freq[i],
                                     h->ropes[i].n_rot / 2 * sizeof **e->rope_freq, error));
    return AERIE_OK;
}

aerie_status ae_dhead_engine_create(ae_dhead_engine **out, const ae_dhead_net *net, ae_engine *target,
                                   const ae_dhead_engine_options *options, aerie_error *error)
{
    *out = NULL;
    ae_dhead_engine *e = ae_alloc(1, sizeof *e);
    if (!e) return ae_fail_memory(error, "a drafter head's state", sizeof *e);
    e->net = net;
    e->target = target;
    e->backend = net->backend;
    e->options = resolve(net->head, options);
    e->n_outputs = outputs_of(net->head, &e->options);
    const ae_stream_options stream =
        stream_options(net->head, &e->options, ae_engine_options_get(target)->n_threads, ae_engine_pool(target));
    ae_kv_layer layers[AE_DHEAD_MAX_LAYERS];
    const ae_kv_options kv = kv_options(net->head, &e->options, layers);
    aerie_status status;
    AE_TRY_GOTO(status, create_buffers(e, error), fail);
    AE_TRY_GOTO(status, e->backend->ops->stream_create(e->backend, &stream, &e->stream, error), fail);
    if (keeps_rows(net->head)) AE_TRY_GOTO(status, ae_kv_create(&e->kv, e->backend, &kv, error), fail);
    if (net->head->hparams.lattice.width) AE_TRY_GOTO(status, ae_dhead_lattice_create(&e->lattice, e, error), fail);
    *out = e;
    return AERIE_OK;
fail:
    ae_dhead_engine_free(e);
    return status;
}

void ae_dhead_engine_free(ae_dhead_engine *engine)
{
    if (!engine) return;
    if (engine->stream) (void)engine->backend->ops->sync(engine->stream, NULL);
    ae_kv_free(engine->kv);
    ae_dhead_lattice_free(engine->lattice);
    if (engine->stream) engine->backend->ops->stream_free(engine->stream);
    if (engine->device) engine->backend->ops->free(engine->backend, engine->device, engine->device_bytes);
    ae_free(engine->host);
    ae_free(engine);
}

ae_stream *ae_dhead_engine_stream(const ae_dhead_engine *engine)
{
    return engine->stream;
}

const ae_dhead_net *ae_dhead_engine_net(const ae_dhead_engine *engine)
{
    return engine->net;
}

/* ---- Sequences ------------------------------------------------------------------------------------ */

/* With several layers, each reads the previous layer's output for the newest true row. Gives `to` the outputs of `from`, or
 * none if `from` is NULL. */
static void set_carried(ae_dhead_engine *e, uint32_t to, const uint32_t *from)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t n = h->n_steps * ae_dhead_width(h);
    float *y = e->fed + (size_t)to * (1 + AERIE_MAX_DRAFT) * n;
    if (h->n_steps < 2) return;
    if (!from) e->backend->ops->map(e->stream, &(ae_map){.kind = AE_MAP_ZERO, .n_rows = 1, .dim = n, .x = y, .x_stride = n});
    else if (*from != to)
        e->backend->ops->copy(e->stream, &(ae_copy){.n = 1, .dim = n, .x = e->fed + (size_t)*from * (1 + AERIE_MAX_DRAFT) * n,
                                                    .x_stride = n, .y = y, .y_stride = n});
}

/* Returns the number of true rows that are kept. */
static uint32_t n_kept(const ae_dhead_engine *e, uint32_t seq)
{
    return e->kv ? ae_kv_n_live(e->kv, seq) : 0;
}

uint32_t ae_dhead_n_true(const ae_dhead_engine *e, uint32_t seq)
{
    return n_kept(e, seq) + e->seqs[seq].forgotten;
}

void ae_dhead_share(ae_dhead_engine *e, uint32_t to, uint32_t from, uint32_t *n)
{
    const ae_dhead_seq *f = &e->seqs[from];
    const uint32_t n_true = ae_dhead_n_true(e, from);
    uint32_t first = e->kv && f->forgotten ? f->forgotten + e->options.n_sinks : 0;
    if (first < f->gap_end) first = f->gap_end;
    if (*n > n_true) *n = n_true;
    if (*n < first) *n = 0;
    ae_dhead_drop_drafted(e, from);
    if (e->kv && ae_kv_share(e->kv, e->stream, to, from, *n ? *n - f->forgotten : 0) != AERIE_OK) *n = 0;
    set_carried(e, to, *n && *n == n_true ? &from : NULL);
    if (e->lattice && *n == n_true && from != to) {
        const uint32_t H = e->net->head->hparams.layer.n_embd;
        e->backend->ops->copy(e->stream, &(ae_copy){.n = 1, .dim = H, .x = e->anchors + (size_t)from * H, .x_stride = H,
                                                    .y = e->anchors + (size_t)to * H, .y_stride = H});
    }
    e->seqs[to] = (ae_dhead_seq){.forgotten = !e->kv ? *n : *n ? f->forgotten : 0, .gap_end = *n ? f->gap_end : 0,
                                  .debt = *n ? f->debt : 0};
}

void ae_dhead_skip(ae_dhead_engine *e, uint32_t seq, uint32_t position)
{
    ae_dhead_seq *s = &e->seqs[seq];
    s->forgotten += position - ae_dhead_n_true(e, seq); /* keys are already rotated, so slots need not match positions */
    s->gap_end = position;
}

void ae_dhead_restart(ae_dhead_engine *e, uint32_t seq, uint32_t position)
{
    if (e->kv) (void)ae_kv_truncate(e->kv, seq, 0); /* cutting to nothing cannot fail */
    set_carried(e, seq, NULL);
    e->seqs[seq] = (ae_dhead_seq){.forgotten = position};
}

/* Drops the oldest pages until, with n more rows, at most the window and a page are left after the sinks. */
static void forget(ae_dhead_engine *e, uint32_t seq, uint32_t n)
{
    const ae_dhead_engine_options *o = &e->options;
    const uint32_t keep = o->n_sinks + o->window + AE_KV_PAGE + n;
    while (o->window && ae_kv_n_live(e->kv, seq) + n > keep && ae_kv_n_live(e->kv, seq) >= o->n_sinks + AE_KV_PAGE) {
        if (ae_kv_forget(e->kv, seq, o->n_sinks / AE_KV_PAGE) != AERIE_OK) return; /* reserve will report the error */
        e->seqs[seq].forgotten += AE_KV_PAGE;
    }
}

/* ---- Rows ------------------------------------------------------------------------------------------- */

uint32_t ae_dhead_rows_left(const ae_dhead_engine *e)
{
    return e->options.n_batch - e->n_rows;
}

void ae_dhead_clear(ae_dhead_engine *e)
{
    e->n_rows = e->n_out = e->n_chains = e->n_given = 0;
    for (uint32_t i = 0; i < e->options.n_seqs; i++) e->seqs[i].n_added = e->seqs[i].n_media = 0;
}

void ae_dhead_set_media(ae_dhead_engine *e, uint32_t seq, const ae_media *media, uint32_t n_media)
{
    e->seqs[seq].media = media;
    e->seqs[seq].n_media = n_media;
}

/* Cannot run out of room: the cache was created with enough slots for a context and a tree. */
static bool reserve(ae_dhead_engine *e, uint32_t seq, uint32_t n)
{
    return ae_kv_reserve(e->kv, e->stream, seq, n, NULL) == AERIE_OK;
}

uint32_t ae_dhead_add_row(ae_dhead_engine *e, uint32_t seq, int32_t token, uint32_t pos, uint32_t slot, uint32_t n_inplace)
{
    const uint32_t r = e->n_rows++;
    e->rows.token[r] = token < 0 ? 0 : token;
    e->rows.seq[r] = (int32_t)seq;
    e->rows.pos[r] = (int32_t)pos;
    e->rows.rope_pos[r] = (int32_t)(pos + e->seqs[seq].forgotten - e->seqs[seq].debt);
    e->rows.slot[r] = (int32_t)slot;
    e->rows.n_inplace[r] = (int32_t)n_inplace;
    return r;
}

/* Adds a row of an assistant. All rows of a draft see the target's cache up to its newest position, and rotate by the next
 * one. */
static uint32_t add_assistant_row(ae_dhead_engine *e, uint32_t seq, int32_t token)
{
    const uint32_t n_true = e->seqs[seq].forgotten, newest = n_true - 1;
    const uint32_t r = ae_dhead_add_row(e, seq, token, newest, newest, n_true);
    e->rows.rope_pos[r] = (int32_t)n_true;
    return r;
}

static uint32_t add_output(ae_dhead_engine *e, uint32_t row, uint32_t seq, uint32_t i_fed)
{
    e->rows.out_rows[e->n_out] = (int32_t)row;
    e->rows.out_fed[e->n_out] = (int32_t)(seq * (1 + AERIE_MAX_DRAFT) + i_fed);
    return e->n_out++;
}

/* The next operations read features that the target's stream wrote, or keys and values in the target's cache. */
static void wait_for_target(ae_dhead_engine *e)
{
    e->backend->ops->wait(e->stream, ae_engine_stream(e->target));
}

/* Copies the features of the rows that are added next. */
static void copy_features(ae_dhead_engine *e, const float *features, uint32_t n)
{
    wait_for_target(e);
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const size_t width = (size_t)h->n_taps * h->n_target_embd;
    e->backend->ops->copy(e->stream, &(ae_copy){.n = n, .dim = (uint32_t)width, .x = features, .x_stride = width,
                                                .y = e->features + e->n_rows * width, .y_stride = width});
}

/* Returns whether the head's layers rotate by several components, like its target's. */
static bool turns(const ae_dhead_engine *e)
{
    const ae_hparams *h = &e->net->head->hparams.layer;
    return h->n_ropes && (h->ropes[0].sections[0] || h->ropes[0].sections[1] || h->ropes[0].sections[2]);
}

/* Finds which of the n rows that are added next, at positions [first, first + n), take something other than a token. */
static void give(ae_dhead_engine *e, const ae_dhead_seq *s, uint32_t first, uint32_t n)
{
    const uint32_t width = e->net->head->hparams.n_target_embd;
    for (uint32_t i = 0; i < s->n_media; i++) {
        const ae_media *m = &s->media[i];
        const uint32_t begin = m->first > first ? m->first : first, end = m->first + m->n;
        const uint32_t stop = end < first + n ? end : first + n;
        if (begin >= stop || e->n_given == e->options.n_batch) continue;
        e->given[e->n_given++] = (struct ae_dhead_given){e->n_rows + begin - first, stop - begin,
                                                         m->rows + (size_t)(begin - m->first) * width};
    }
}

aerie_status ae_dhead_add_true(ae_dhead_engine *e, uint32_t seq, const float *features, const int32_t *next_tokens, uint32_t n,
                              bool output, uint32_t *out)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const size_t width = (size_t)h->n_taps * h->n_target_embd;
    const bool exports = output || e->lattice;
    if (seq >= e->options.n_seqs || e->seqs[seq].n_added || !n || n > ae_dhead_rows_left(e) ||
        e->n_out + exports > e->n_outputs)
        return AERIE_ERROR_INTERNAL;
    ae_dhead_seq *s = &e->seqs[seq];
    ae_dhead_drop_drafted(e, seq);
    s->n_added = n;
    if (ae_dhead_traits_of(h)->reads_target) { /* only the row at which a draft begins is run */
        s->forgotten += n;
        if (!output) return AERIE_OK;
        copy_features(e, features + (n - 1) * width, 1);
        *out = add_output(e, add_assistant_row(e, seq, next_tokens[n - 1]), seq, 0);
        return AERIE_OK;
    }
    forget(e, seq, n);
    const uint32_t live = ae_kv_n_live(e->kv, seq);
    if (!reserve(e, seq, n)) {
        s->n_added = 0;
        return AERIE_ERROR_INTERNAL;
    }
    copy_features(e, features, n);
    if (next_tokens) give(e, s, live + s->forgotten + 1, n);
    uint32_t row = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t position = live + i + s->forgotten;
        s->debt = turns(e) ? position - ae_media_turned(s->media, s->n_media, position) : 0;
        row = ae_dhead_add_row(e, seq, next_tokens ? next_tokens[i] : 0, live + i, live + i, live + i + 1);
    }
    if (output) *out = add_output(e, row, seq, 0);
    if (e->lattice) e->rows.out_fed[add_output(e, row, seq, 0)] = (int32_t)seq; /* whose anchor it becomes */
    if (h->n_steps > 1) {
        e->rows.chain_first[e->n_chains] = (int32_t)(row + 1 - n);
        e->rows.chain_last[e->n_chains] = (int32_t)row;
        e->rows.chain_fed[e->n_chains++] = (int32_t)(seq * (1 + AERIE_MAX_DRAFT));
    }
    return AERIE_OK;
}

aerie_status ae_dhead_add_masks(ae_dhead_engine *e, uint32_t seq, uint32_t n)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const size_t width = (size_t)h->n_taps * h->n_target_embd;
    if (!n) return AERIE_OK;
    if (seq >= e->options.n_seqs || n >= h->n_parallel || !e->seqs[seq].n_added || n > ae_dhead_rows_left(e) ||
        n > e->n_outputs - e->n_out)
        return AERIE_ERROR_INTERNAL;
    const uint32_t live = ae_kv_n_live(e->kv, seq), first = live + e->seqs[seq].n_added;
    if (!reserve(e, seq, e->seqs[seq].n_added + n)) return AERIE_ERROR_INTERNAL;
    e->backend->ops->copy(e->stream, &(ae_copy){.n = n, .dim = (uint32_t)width, .x = e->net->mask_hidden, .x_stride = 0,
                                                .y = e->features + e->n_rows * width, .y_stride = width});
    for (uint32_t i = 0; i < n; i++)
        add_output(e, ae_dhead_add_row(e, seq, h->mask, first + i, first + i, first + i + 1), seq, 1 + i);
    return AERIE_OK;
}

void ae_dhead_end_pass(ae_dhead_engine *e, const float *read)
{
    e->read = read;
    e->conf_out = NULL;
    memset(e->logits_host, 0, e->n_outputs * sizeof *e->logits_host);
}

/* After an operation has failed, no row of any sequence can be trusted. */
aerie_status ae_dhead_sync(ae_dhead_engine *e, aerie_error *error)
{
    if (e->conf_out) e->backend->ops->download(e->stream, e->conf_out, e->conf, e->n_conf * sizeof *e->conf);
    const aerie_status status = e->backend->ops->sync(e->stream, error);
    for (uint32_t i = 0; e->conf_out && i < e->n_conf; i++) e->conf_out[i] = 1.0f / (1.0f + ae_expf(-e->conf_out[i]));
    e->conf_out = NULL;
    for (uint32_t i = 0; status != AERIE_OK && i < e->options.n_seqs; i++) ae_dhead_restart(e, i, 0);
    return status;
}

void ae_dhead_upload_rows(ae_dhead_engine *e)
{
    ae_rows_upload(&e->rows, &e->on_device, e->n_rows, e->n_out, ae_dhead_kv(e), e->backend->ops, e->stream);
    if (!keeps_rows(e->net->head)) wait_for_target(e); /* the cache, whose moves and tables were just sent, is the target's */
}

aerie_status ae_dhead_run_true(ae_dhead_engine *e, aerie_error *error)
{
    if (e->n_rows) {
        ae_dhead_upload_rows(e);
        if (ae_dhead_is_block(&e->net->head->hparams)) ae_dhead_forward_context(e);
        else ae_dhead_forward(e, false);
        ae_dhead_end_pass(e, e->logits);
    }
    for (uint32_t i = 0; e->kv && i < e->options.n_seqs; i++)
        if (e->seqs[i].n_added && ae_kv_commit(e->kv, e->stream, i, e->seqs[i].n_added, NULL, 0) != AERIE_OK)
            return ae_fail(error, AERIE_ERROR_INTERNAL, "the KV cache of the drafter head is out of step; please report");
    return AERIE_OK;
}

uint32_t ae_dhead_add_drafted(ae_dhead_engine *e, uint32_t seq, int32_t parent, int32_t token, uint32_t *out)
{
    if (seq >= e->options.n_seqs) return AE_DHEAD_NO_ROW;
    ae_dhead_seq *s = &e->seqs[seq];
    const bool assistant = ae_dhead_traits_of(&e->net->head->hparams)->reads_target;
    const uint32_t base = n_kept(e, seq), i = s->n_drafted;
    const bool begun = ae_dhead_n_true(e, seq) && (assistant || base);
    if (i >= AERIE_MAX_DRAFT || parent >= (int32_t)i || !begun || !ae_dhead_rows_left(e) || e->n_out >= e->n_outputs)
        return AE_DHEAD_NO_ROW;
    const uint32_t depth = parent < 0 ? 1 : (uint32_t)s->depth[parent] + 1;
    /* the row would have to run in another layer */
    const bool other = e->n_rows && depth != e->depth && e->net->head->hparams.n_steps > 1;
    if (other || (!assistant && !reserve(e, seq, i + 1))) return AE_DHEAD_NO_ROW;
    s->n_drafted++;
    s->parent[i] = parent;
    s->depth[i] = (int32_t)depth;
    e->depth = depth;
    uint32_t row;
    if (assistant) {
        row = add_assistant_row(e, seq, token);
    } else {
        const uint32_t in_place = ae_tree_path(s->parent, i, depth, base, e->rows.path + (size_t)e->n_rows * AERIE_MAX_DRAFT);
        row = ae_dhead_add_row(e, seq, token, base + depth - 1, base + i, base + in_place);
    }
    e->rows.fed_from[row] = (int32_t)(seq * (1 + AERIE_MAX_DRAFT)) + 1 + parent;
    *out = add_output(e, row, seq, 1 + i);
    return i;
}

void ae_dhead_run_drafted(ae_dhead_engine *e)
{
    if (!e->n_rows) return;
    ae_dhead_upload_rows(e);
    ae_dhead_forward(e, true);
    ae_dhead_end_pass(e, e->logits);
}

void ae_dhead_drop_drafted(ae_dhead_engine *e, uint32_t seq)
{
    e->seqs[seq].n_drafted = 0;
    if (e->kv) (void)ae_kv_commit(e->kv, e->stream, seq, 0, NULL, 0); /* keeping nothing cannot fail */
}

aerie_status ae_dhead_run_medusa(ae_dhead_engine *e, const float *features, uint32_t n, aerie_error *error)
{
    if (n > e->options.n_seqs)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "%u sequences draft, of %u; please report", n, e->options.n_seqs);
    if (!n) return AERIE_OK;
    wait_for_target(e);
    ae_dhead_forward_medusa(e, features, n);
    ae_dhead_end_pass(e, e->logits);
    return AERIE_OK;
}

const float *ae_dhead_logits(ae_dhead_engine *e, uint32_t out)
{
    const size_t at = (size_t)out * e->net->n_draft;
    if (!e->logits_host[out])
        e->logits_host[out] = e->backend->ops->view(e->stream, e->read + at, e->logits_room ? e->logits_room + at : NULL,
                                                    e->net->n_draft * sizeof(float));
    return e->logits_host[out];
}

aerie_status ae_dhead_propose(ae_dhead_engine *e, const ae_propose_row *rows, uint32_t n, ae_proposal *out, aerie_error *error)
{
    const ae_backend_ops *ops = e->backend->ops;
    if (!n) return ae_dhead_sync(e, error);
    AE_ASSERT(n <= e->n_outputs);
    ops->propose(e->stream, &(ae_propose){.n_rows = n, .n_logits = e->net->n_draft, .rows = rows, .logits = e->read,
                                          .map = e->net->to_target ? e->to_target : NULL, .out = e->proposals});
    ops->download(e->stream, out, e->proposals, n * sizeof *out); /* the one wait of a level */
    return ae_dhead_sync(e, error);
}

const float *ae_dhead_hidden(const ae_dhead_engine *e, uint32_t out)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    if (ae_dhead_is_block(h)) return e->hidden + (size_t)out * h->layer.n_embd;
    return e->fed + ((size_t)e->rows.out_fed[out] * h->n_steps + e->i_out) * ae_dhead_width(h);
}
