/* forward.c - the forward pass, written once over the backend's operations.
 *
 * Differences between architectures are data in ae_hparams and absent (NULL) weights. If layers are on several devices, a pass
 * is a sequence of runs, each of consecutive halves of layers (weights/split.h) on one device; the residual stream moves
 * between them. */
#include <float.h>
#include <math.h>

#include "base/math/fmath.h"
#include "engine/layers/block.h"
#include "engine/engine_int.h"

/* ---- Hidden rows ----------------------------------------------------------------------------------------------- */

static size_t tapped_size(const ae_engine *e)
{
    return (size_t)e->options.n_batch * e->net->model->hparams.n_embd;
}

/* Applies the last norm to n rows in place. */
static void norm_end(const ae_engine *e, ae_engine_device *d, float *x, size_t stride, uint32_t n)
{
    const ae_hparams *h = &e->net->model->hparams;
    if (!e->net->out_norm) return;
    d->backend->ops->norm(d->stream, &(ae_norm){.n_rows = n, .n_groups = 1, .dim = h->n_embd, .x = x, .x_stride = stride,
                                                .weight = e->net->out_norm, .eps = h->norm_eps, .layer = h->layer_norm,
                                                .bias = h->layer_norm ? e->net->out_norm_b : NULL});
    if (e->net->out_norm_b && !h->layer_norm)
        d->backend->ops->axpy(d->stream, &(ae_axpy){n, h->n_embd, 1.0f, e->net->out_norm_b, 0, x, stride});
}

/* Copies the residual stream before layer `at` for the taps there. If this device is not the output's, the copy waits here
 * until it is moved. */
static void tap(ae_engine *e, ae_engine_device *d, uint32_t at)
{
    const uint32_t n_embd = e->net->model->hparams.n_embd, n_taps = e->options.n_taps;
    const bool streams = at >= AE_TAP_STREAM && at != AERIE_TAP_NORMED;
    const float *x = streams ? d->block.streams + (size_t)(at - AE_TAP_STREAM) * n_embd : d->block.x;
    const size_t x_stride = streams ? (size_t)e->net->model->hparams.n_streams * n_embd : n_embd;
    for (uint32_t i = 0; i < n_taps; i++) {
        if (e->options.taps[i] != at) continue;
        const bool stays = d == e->out;
        float *y = stays ? e->features + (size_t)i * n_embd : d->tapped + i * tapped_size(e);
        const size_t stride = stays ? (size_t)n_taps * n_embd : n_embd;
        d->backend->ops->copy(d->stream, &(ae_copy){.n = e->n_rows, .dim = n_embd, .x = x, .x_stride = x_stride,
                                                    .y = y, .y_stride = stride});
        if (at == AERIE_TAP_NORMED) norm_end(e, d, y, stride, e->n_rows);
    }
}

/* Returns whether tap i belongs to a layer on another device than the output's. */
static bool comes_from_afar(const ae_engine *e, uint32_t i)
{
    const uint32_t at = e->options.taps[i];
    return at < e->net->model->hparams.n_layers && e->net->split.mixer[at] != e->net->split.output;
}

/* Copies the taps that came from other devices to their places in the feature rows. */
static void place_tapped(ae_engine *e)
{
    const uint32_t n_embd = e->net->model->hparams.n_embd, n_taps = e->options.n_taps;
    for (uint32_t i = 0; i < n_taps; i++)
        if (comes_from_afar(e, i))
            e->out->backend->ops->copy(e->out->stream, &(ae_copy){.n = e->n_rows, .dim = n_embd,
                                                                  .x = e->out->tapped + i * tapped_size(e), .x_stride = n_embd,
                                                                  .y = e->features + (size_t)i * n_embd,
                                                                  .y_stride = (size_t)n_taps * n_embd});
}

/* ---- Before a pass --------------------------------------------------------------------------------------------- */

/* Computes the angles of rows with several rotary positions on the host, in the same way as the device computes those of one
 * position (ae_rope_table). Rows whose positions are all equal therefore have the same bits either way. */
static void upload_turns(ae_engine *e)
{
    const ae_rope *rope = &e->net->model->hparams.ropes[0];
    const uint32_t half = rope->n_rot / 2;
    for (uint32_t r = 0; r < e->n_rows; r++)
        for (uint32_t i = 0; i < half; i++) {
            double s, c;
            ae_sincos(e->turn[4 * (size_t)r + ae_model_rope_component(rope, i)] * e->rope_host[i], &s, &c);
            e->turn_cos[(size_t)r * half + i] = (float)(c * e->rope_magnitude[0]);
            e->turn_sin[(size_t)r * half + i] = (float)(s * e->rope_magnitude[0]);
        }
    for (uint32_t i = 0; i < e->n_devices; i++) {
        ae_engine_device *d = &e->devices[i];
        d->backend->ops->upload(d->stream, d->cos[0], e->turn_cos, (size_t)e->n_rows * half * sizeof(float));
        d->backend->ops->upload(d->stream, d->sin[0], e->turn_sin, (size_t)e->n_rows * half * sizeof(float));
    }
}

/* Computes which adapters the rows' tokens choose, on the device of the first layer. */
static void upload_switches(ae_engine *e)
{
    const ae_switch_hparams *x = &e->net->model->hparams.adapters;
    const size_t n = (size_t)e->options.n_batch * AE_SWITCH_DIM;
    ae_engine_device *d = &e->devices[e->net->split.mixer[0]];
    for (uint32_t r = 0; r < e->n_rows; r++) {
        float *row = e->switch_host + (size_t)r * AE_SWITCH_DIM; /* the other values stay 0 */
        uint32_t i = 0;
        while (i + 1 < x->n && x->activate[i] != e->ids[r]) i++;
        const bool chooses = i + 1 < x->n;
        row[0] = 1.0f;
        row[n] = chooses ? x->gain : -x->gain;
        row[2 * n] = chooses ? (float)(i + 1) : 0.0f;
        e->embedded[r] = chooses ? x->substitute[i] : e->rows.token[r];
    }
    for (size_t k = 0; k < 3; k++)
        d->backend->ops->upload(d->stream, d->switch_rows + k * n, e->switch_host + k * n,
                                (size_t)e->n_rows * AE_SWITCH_DIM * sizeof(float));
    d->backend->ops->upload(d->stream, d->switch_token, e->embedded, e->n_rows * sizeof *e->embedded);
}

void ae_forward_upload(ae_engine *e)
{
    const ae_hparams *h = &e->net->model->hparams;
    if (e->turned) upload_turns(e);
    if (h->adapters.n) upload_switches(e);
    if (h->temp_scale == 0.0f) return;
    for (uint32_t r = 0; r < e->n_rows; r++) {
        const double at =
            /* how often the length fits into the position */
            (double)(uint32_t)(((float)e->rows.pos[r] + h->temp_offset) / (float)h->temp_length);
        e->q_scale_host[r] = (float)(1.0 + (double)h->temp_scale * ae_log(at + 1.0));
    }
    for (uint32_t i = 0; i < e->n_devices; i++) {
        ae_engine_device *d = &e->devices[i];
        d->backend->ops->upload(d->stream, d->q_scale, e->q_scale_host, e->n_rows * sizeof *e->q_scale_host);
    }
}

/* ---- The beginning of the stream ------------------------------------------------------------------------------- */

static void scale(ae_engine *e, ae_engine_device *d, float *x, uint32_t dim, float a)
{
    d->backend->ops->map(d->stream, &(ae_map){.kind = AE_MAP_SCALE, .n_rows = e->n_rows, .dim = dim, .x = x, .x_stride = dim,
                                              .a = a});
}

/* Computes the embeddings that layers add: from a table of their own, and from the start of the stream. */
static void layer_embeddings(ae_engine *e, ae_engine_device *d)
{
    const ae_backend_ops *ops = d->backend->ops;
    const ae_hparams *h = &e->net->model->hparams;
    const uint32_t n = h->n_layers * h->n_embd_layer;
    ops->lookup(d->stream, e->net->ple_embedding, d->rows.token, e->n_rows, d->ple, n);
    scale(e, d, d->ple, n, sqrtf((float)h->n_embd_layer));
    ae_adapter_matmul(ops, d->stream, &(ae_matmul){
        .n_rows = e->n_rows, .input = AE_INPUT_PLAIN, .x = d->block.x, .x_stride = h->n_embd, .n_weights = 1,
        .out = {{e->net->ple_model_proj, NULL, d->ple_part, n, false}}}, &d->adapted);
    scale(e, d, d->ple_part, n, 1.0f / sqrtf((float)h->n_embd));
    ops->norm(d->stream, &(ae_norm){.n_rows = e->n_rows, .n_groups = h->n_layers, .dim = h->n_embd_layer, .x = d->ple_part,
                                    .x_stride = n, .weight = e->net->ple_proj_norm, .eps = h->norm_eps});
    ops->axpy(d->stream, &(ae_axpy){e->n_rows, n, 1.0f, d->ple_part, n, d->ple, n});
    scale(e, d, d->ple, n, 1.0f / sqrtf(2.0f));
}

/* Adds rows of a table to the stream. */
static void add_rows(ae_engine *e, ae_engine_device *d, const ae_weight *table, const int32_t *rows)
{
    const ae_backend_ops *ops = d->backend->ops;
    const uint32_t n = e->net->model->hparams.n_embd;
    ops->lookup(d->stream, table, rows, e->n_rows, d->block.y, n);
    ops->axpy(d->stream, &(ae_axpy){e->n_rows, n, 1.0f, d->block.y, n, d->block.x, n});
}

static void norm_embeddings(ae_engine *e, ae_engine_device *d)
{
    const ae_hparams *h = &e->net->model->hparams;
    d->backend->ops->norm(d->stream, &(ae_norm){.n_rows = e->n_rows, .n_groups = 1, .dim = h->n_embd, .x = d->block.x,
                                                .x_stride = h->n_embd, .weight = e->net->embed_norm, .eps = h->norm_eps,
                                                .layer = h->layer_norm, .bias = e->net->embed_norm_b});
}

/* Starts an encoder's stream: the normed sum of token, token type and position embeddings. */
static void begin_encoder(ae_engine *e, ae_engine_device *d)
{
    const ae_net *net = e->net;
    if (net->types) add_rows(e, d, net->types, d->rows.type);
    if (net->positions) add_rows(e, d, net->positions, d->rows.pos);
    if (net->embed_norm) norm_embeddings(e, d);
}

static void begin_stream(ae_engine *e, ae_engine_device *d, const ae_block *b)
{
    const ae_hparams *h = &e->net->model->hparams;
    d->backend->ops->lookup(d->stream, e->net->embedding, h->adapters.n ? d->switch_token : d->rows.token, e->n_rows,
                            d->block.x, h->n_embd);
    if (h->embedding_scale != 1.0f) scale(e, d, d->block.x, h->n_embd, h->embedding_scale);
    for (uint32_t i = 0; i < e->n_given; i++)
        d->backend->ops->upload(d->stream, d->block.x + (size_t)e->given[i].first * h->n_embd, e->given[i].rows,
                                (size_t)e->given[i].n * h->n_embd * sizeof(float));
    if (h->adapters.n) ae_block_find_adapters(b, e->net->kv_switch, d->switch_rows, e->options.n_batch);
    if (h->n_embd_layer) layer_embeddings(e, d);
    if (h->encoder) begin_encoder(e, d);
    else if (e->net->embed_norm) norm_embeddings(e, d);
    if (h->hyper) ae_block_hyper_begin(b);
    else if (h->n_streams) ae_block_streams_begin(b, e->net->altup_proj);
    if (h->n_stack) ae_block_cycles_begin(b, e->net->low_start);
    if (h->adds_start || h->crosses)
        d->backend->ops->copy(d->stream, &(ae_copy){.n = e->n_rows, .dim = h->n_embd, .x = d->block.x, .x_stride = h->n_embd,
                                                    .y = d->block.start, .y_stride = h->n_embd});
    if (e->net->positions && !h->encoder) add_rows(e, d, e->net->positions, d->rows.place);
}

/* Adds the given rows' further numbers for this layer to the stream. */
static void add_deep(ae_engine *e, ae_engine_device *d, uint32_t i_layer)
{
    const ae_backend_ops *ops = d->backend->ops;
    const uint32_t n = e->net->model->hparams.n_embd;
    for (uint32_t i = 0; i < e->n_given; i++) {
        const ae_given *g = &e->given[i];
        ops->upload(d->stream, d->deep, g->rows + (i_layer + 1) * g->plane, (size_t)g->n * n * sizeof(float));
        ops->axpy(d->stream, &(ae_axpy){g->n, n, 1.0f, d->deep, n, d->block.x + (size_t)g->first * n, n});
    }
}

/* ---- Its end ----------------------------------------------------------------------------------------------------- */

/* Called before this rank sends results of the pass: if the pass has failed here, the group fails now. */
void ae_forward_vouch(ae_engine *e, const ae_engine_device *d)
{
    aerie_error error = {0};
    if (!e->net->ranks->own || e->group_status != AERIE_OK) return;
    e->group_status = d->backend->ops->sync(d->stream, &error);
    if (e->group_status != AERIE_OK) ae_comm_fail(e->net->ranks->comm, error.text);
}

/* Gathers all ranks' logits at rank 0, as many rows at a time as the group has room for. */
void ae_forward_collect(ae_engine *e)
{
    const ae_engine_device *d = e->out;
    const uint32_t n_vocab = e->net->model->hparams.n_vocab, n_each = ae_engine_collected(e->net->model);
    const ae_ranks *ranks = e->net->ranks;
    ae_forward_vouch(e, d);
    for (uint32_t at = 0, n; at < e->n_out; at += n) {
        n = e->n_out - at < n_each ? e->n_out - at : n_each;
        const ae_block_slices rows = {e->logits + (size_t)at * n_vocab, n_vocab, n, &ranks->vocab, 1};
        ae_block_gather(&e->group, d->backend->ops, d->stream, &rows, 1, ae_to_first());
    }
}

void ae_engine_set_whole(ae_engine *engine, bool whole)
{
    engine->whole = whole;
}

/* Returns whether the last layer's feed-forward block runs on the output rows alone, in x_out: it reads and writes only the
 * stream, on the output's device, and nothing but the logits reads its result. */
static bool is_narrow(const ae_engine *e)
{
    const ae_net *net = e->net;
    const ae_hparams *h = &net->model->hparams;
    const uint32_t last = h->n_layers - 1;
    const bool reads_others = h->hyper || h->n_banks || h->n_streams || h->n_stack || h->parallel || h->keeps_input ||
                              h->adds_start || h->crosses || h->adapters.n || h->n_embd_layer || h->n_deepstack > last ||
                              net->layers[last].router_table || net->model->layers[last].spec.ffn == AE_FFN_CHANNEL_MIX;
    if (e->whole || e->n_out == e->n_rows || net->ranks || reads_others) return false;
    for (uint32_t i = 0; i < e->options.n_taps; i++)
        if (e->options.taps[i] > last) return false;
    return net->split.ffn[last] == net->split.output;
}

static void gather_outputs(ae_engine *e)
{
    const ae_engine_device *d = e->out;
    const uint32_t n = e->net->model->hparams.n_embd;
    d->backend->ops->copy(d->stream, &(ae_copy){.n = e->n_out, .dim = n, .x = d->block.x, .x_stride = n,
                                                .rows = d->rows.out_rows, .y = e->x_out, .y_stride = n});
}

static void put_logits(ae_engine *e)
{
    const ae_engine_device *d = e->out;
    const ae_backend_ops *ops = d->backend->ops;
    const ae_hparams *h = &e->net->model->hparams;
    const ae_ranks *ranks = e->net->ranks;
    /* in a group, the products compute only this rank's part of the vocabulary */
    const uint32_t n_own = ranks ? ranks->vocab.n[ranks->own] : h->n_vocab;
    float *own = e->logits + (ranks ? ranks->vocab.first[ranks->own] : 0);
    if (!n_own) return;
    if (!is_narrow(e)) gather_outputs(e);
    const bool apart = e->net->out_norm_b && !h->layer_norm; /* products cannot apply an RMS norm with a bias */
    if (apart) norm_end(e, e->out, e->x_out, h->n_embd, e->n_out);
    ae_adapter_matmul(ops, d->stream, &(ae_matmul){
        .n_rows = e->n_out, .x = e->x_out,
        .input = apart || !e->net->out_norm ? AE_INPUT_PLAIN : h->layer_norm ? AE_INPUT_LAYERNORM : AE_INPUT_RMSNORM,
        .x_stride = h->n_embd, .norm = e->net->out_norm, .norm_bias = e->net->out_norm_b, .norm_eps = h->norm_eps,
        .n_weights = 1, .out = {{e->net->output, e->net->output_b, own, h->n_vocab, false}}}, &d->adapted_out);
    ae_map map = {.kind = AE_MAP_SCALE, .n_rows = e->n_out, .dim = n_own, .x = own, .x_stride = h->n_vocab,
                  .a = h->logit_scale};
    if (h->logit_scale != 1.0f) ops->map(d->stream, &map);
    map.kind = AE_MAP_SOFTCAP, map.a = h->logit_softcap;
    if (h->logit_softcap != 0.0f) ops->map(d->stream, &map);
    for (uint32_t i = h->mask_begin, n; i < h->mask_end; i += n) {
        n = h->mask_end - i < AE_MAX_HEAD_DIM ? h->mask_end - i : AE_MAX_HEAD_DIM;
        map.kind = AE_MAP_ZERO, map.dim = n, map.x = e->logits + i;
        ops->map(d->stream, &map);
        ops->axpy(d->stream, &(ae_axpy){e->n_out, n, -FLT_MAX, e->net->ones[e->net->split.output], 0, e->logits + i,
                                        h->n_vocab});
    }
}

static bool is_tapped(const ae_engine *e, uint32_t at)
{
    for (uint32_t i = 0; i < e->options.n_taps; i++)
        if (e->options.taps[i] == at) return true;
    return false;
}

/* Combines the streams into one row. A tap at the end of the layers reads their mean in models with hyper-connections. */
static void end_streams(ae_engine *e, ae_engine_device *d, const ae_block *b)
{
    const uint32_t n_layers = b->h->n_layers;
    if (!b->h->hyper) {
        ae_block_streams_end(b, e->net->altup_unembd);
        return;
    }
    if (is_tapped(e, n_layers)) {
        ae_block_hyper_mean(b);
        tap(e, d, n_layers);
    }
    for (uint32_t k = 0; k < b->h->n_streams; k++) tap(e, d, AE_TAP_STREAM + k);
    if (e->net->hyper_end.fn || e->net->hyper_end.up) ae_block_hyper_end(b, &e->net->hyper_end);
    else ae_block_hyper_mean(b);
}

static void end_stream(ae_engine *e)
{
    if (!e->net->model->hparams.hyper) tap(e, e->out, e->net->model->hparams.n_layers);
    tap(e, e->out, AERIE_TAP_NORMED);
    place_tapped(e);
    if (!e->n_out) return;
    put_logits(e);
    if (!ae_ranks_cuts_output(e->net->ranks)) return;
    if (e->best.ran) ae_engine_collect_best(e);
    else ae_forward_collect(e);
}

/* ---- Stages of a pipeline ------------------------------------------------------------------------------------------ */

/* Sends the stream, and whatever else later layers read, from one stage, each of whose ranks has all of it, to some ranks of
 * others. */
static void hand_on(ae_engine *e, const ae_block *b, uint32_t from, ae_receivers to)
{
    const ae_ranks *ranks = e->net->ranks;
    const ae_hparams *h = &e->net->model->hparams;
    const uint32_t n_embd = h->n_embd, n_streams = ae_model_n_streams(h);
    ae_slices parts[4];
    ae_block_slices rows[4];
    uint32_t n = 0;
    if (from != ranks->stage && !ae_receives(to, ranks->own)) return;
    if (from == ranks->stage) ae_forward_vouch(e, e->out); /* the only device of a rank */
    rows[n++] = (ae_block_slices){.rows = b->x, .stride = n_embd};
    if (n_streams) rows[n++] = (ae_block_slices){.rows = b->streams, .stride = (size_t)n_streams * n_embd};
    if (h->n_banks) rows[n++] = (ae_block_slices){.rows = b->banks, .stride = (size_t)h->n_banks * n_embd};
    if (h->recur.kind == AE_RECUR_WKV7)
        rows[n++] = (ae_block_slices){.rows = ae_block_first_values(b->recur), .stride = n_embd};
    for (uint32_t i = 0; i < n; i++) {
        ae_ranks_handed(ranks, from, (uint32_t)rows[i].stride, &parts[i]);
        rows[i].n_rows = b->n_rows, rows[i].slices = &parts[i], rows[i].n = 1;
    }
    ae_block_gather(&e->group, b->ops, b->stream, rows, n, to);
}

/* Nobody reads the output of a pass without logits and taps, so rank 0 does not wait for it, and begins the next pass while
 * other stages compute this one. MOST_AHEAD bounds what waits to be received. */
#define MOST_AHEAD 16

static bool runs_ahead(ae_engine *e)
{
    const bool unread = !e->n_out && !e->options.n_taps;
    e->n_ahead = unread && e->n_ahead < MOST_AHEAD ? e->n_ahead + 1 : 0;
    return e->n_ahead;
}

/* Before layer `at` (n_layers: the output): sends the stream to the stage that owns it, and to rank 0 if a tap reads it
 * there. */
static void enter_rank(ae_engine *e, const ae_block *b, uint32_t at)
{
    const ae_ranks *ranks = e->net->ranks;
    const uint32_t to = ae_ranks_stage(ranks, at), from = at ? ae_ranks_stage(ranks, at - 1) : 0;
    bool tapped = false;
    if (at && from != to) hand_on(e, b, from, ae_ranks_of(ranks, to)); /* all ranks compute the start of the stream */
    for (uint32_t i = 0; i < e->options.n_taps; i++) tapped |= e->options.taps[i] == at;
    if (at && tapped && to) hand_on(e, b, to, ae_to_first());
}

/* ---- Runs ---------------------------------------------------------------------------------------------------------- */

/* Returns whether this run has the device's first mixer; later runs on the device reuse the rotation tables that this one
 * computes. */
static bool has_first_mixer(const ae_engine *e, uint32_t i_device, uint32_t begin, uint32_t end)
{
    uint32_t i = 0;
    while (i < e->net->model->hparams.n_layers && e->net->split.mixer[i] != i_device) i++;
    return i < e->net->model->hparams.n_layers && 2 * i >= begin && 2 * i < end;
}

/* The places of the rows in layers with and without a window. */
typedef struct layer_places {
    const ae_places *windowed, *flat;
    bool source_alone; /* all rows belong to the source */
} layer_places;

/* Runs the halves [begin, end) of layers, without the output, for the rows of this block. */
static void run_layers(ae_engine *e, ae_engine_device *d, const ae_block *rows, const layer_places *places, uint32_t begin,
                       uint32_t end)
{
    const ae_net *net = e->net;
    const ae_hparams *h = &net->model->hparams;
    const bool narrow = is_narrow(e);
    ae_block block = *rows;
    for (uint32_t i = begin; i < end && i < 2 * h->n_layers; i++) {
        const ae_layer_spec *spec = &net->model->layers[i / 2].spec;
        block.places = spec->window ? places->windowed : places->flat;
        block.lacks = e->mode ? e->mode->lacks[i / 2] : 0;
        if (i % 2 == 0 && net->ranks) enter_rank(e, &block, i / 2);
        if (i % 2 == 0 && h->hyper && is_tapped(e, i / 2)) ae_block_hyper_mean(&block);
        if (i % 2 == 0) tap(e, d, i / 2);
        if (places->source_alone) {
            if (i % 2 == 0 && ae_ranks_has(net->ranks, i / 2)) ae_block_source(&block, spec, &net->layers[i / 2]);
            continue;
        }
        if (i + 2 == 2 * h->n_layers) block.fills = narrow && !e->n_out;
        if (i + 1 == 2 * h->n_layers && narrow) {
            if (!e->n_out) continue;
            gather_outputs(e);
            block.x = e->x_out, block.n_rows = e->n_out, block.adapted = &d->adapted_out;
        }
        if (ae_ranks_has(net->ranks, i / 2)) (i % 2 ? ae_block_ffn : ae_block_mixer)(&block, spec, &net->layers[i / 2]);
        if (i % 2 && i / 2 < h->n_deepstack) add_deep(e, d, i / 2);
    }
}

/* ---- Waves --------------------------------------------------------------------------------------------------------- */

uint32_t ae_engine_most_waves(const ae_engine *e)
{
    const ae_ranks *ranks = e->net->ranks;
    const ae_hparams *h = &e->net->model->hparams;
    if (!ranks || ranks->n_stages < 2 || !e->n_out || e->options.n_taps || e->state) return 1;
    if (e->mode || e->n_given || e->grouped || e->options.max_rank) return 1;
    /* arrays of rows besides the stream's, which a wave would have to find its part of */
    const bool more = ae_model_n_streams(h) || h->n_banks || h->adds_start || h->crosses || h->n_embd_layer || h->adapters.n ||
                      h->index.n_heads || h->compress.widest || h->memory.n_heads || h->encoder || h->n_deepstack;
    return more ? 1 : e->n_rows;
}

void ae_engine_cut(ae_engine *e, uint32_t n)
{
    e->n_waves = n;
}

/* The rows of one wave. */
typedef struct wave {
    ae_block block;
    ae_places windowed, flat, parts;
    layer_places places;
    float *cos[AE_MAX_ROPES], *sin[AE_MAX_ROPES];
} wave;

static ae_places places_from(const ae_places *all, uint32_t first, uint32_t n)
{
    ae_places p = *all; /* rows name pages and positions, not each other */
    p.n_rows = n;
    p.seq += first, p.pos += first, p.slot += first, p.n_inplace += first, p.path += (size_t)first * p.path_stride;
    return p;
}

static void take_wave(const ae_engine *e, const ae_block *all, const layer_places *places, uint32_t i, wave *w)
{
    const ae_hparams *h = all->h;
    const uint32_t first = (uint32_t)((uint64_t)e->n_rows * i / e->n_waves);
    const uint32_t n = (uint32_t)((uint64_t)e->n_rows * (i + 1) / e->n_waves) - first;
    w->windowed = places_from(places->windowed, first, n);
    w->flat = places_from(places->flat, first, n);
    w->parts = places_from(all->part_places, first, n);
    w->places = (layer_places){&w->windowed, &w->flat, false};
    w->block = *all;
    w->block.n_rows = n;
    w->block.x += (size_t)first * h->n_embd;
    w->block.part_places = &w->parts;
    w->block.tokens += first;
    if (all->q_scale) w->block.q_scale += first;
    for (uint32_t k = 0; k < h->n_ropes; k++) {
        w->cos[k] = all->cos[k] + (size_t)first * (h->ropes[k].n_rot / 2);
        w->sin[k] = all->sin[k] + (size_t)first * (h->ropes[k].n_rot / 2);
    }
    w->block.cos = w->cos, w->block.sin = w->sin;
}

/* Runs the layers on one wave of rows after another, so that a stage computes a wave while the next stage computes the one
 * before. A row's keys and values are in the cache before later rows read them, and scratch is used within a half of a layer
 * only. Stage 0 receives a wave as soon as all other stages may hold one: a send may last until it is received, and each stage
 * would otherwise wait for the next. */
static void run_waves(ae_engine *e, ae_engine_device *d, const ae_block *all, const layer_places *places)
{
    const ae_ranks *ranks = e->net->ranks;
    const uint32_t n_layers = all->h->n_layers;
    uint32_t own = ranks->stage ? n_layers : 0, late = 0; /* stage 0: its layers; the stages after it that have any */
    while (!ranks->stage && own < n_layers && !ae_ranks_stage(ranks, own)) own++;
    for (uint32_t i = own; i < n_layers; i++) late += i == own || ae_ranks_stage(ranks, i) != ae_ranks_stage(ranks, i - 1);
    (void)runs_ahead(e);
    for (uint32_t i = 0; i < e->n_waves + late; i++) {
        wave w;
        if (i < e->n_waves) {
            take_wave(e, all, places, i, &w);
            run_layers(e, d, &w.block, &w.places, 0, 2 * own);
        }
        if (i >= late) {
            wave done;
            take_wave(e, all, places, i - late, &done);
            enter_rank(e, &done.block, n_layers);
        }
        if (i < e->n_waves) run_layers(e, d, &w.block, &w.places, 2 * own, 2 * n_layers);
    }
}

void ae_forward_run(ae_engine *e, uint32_t begin, uint32_t end)
{
    const ae_net *net = e->net;
    const ae_hparams *h = &net->model->hparams;
    const uint32_t i_device = ae_split_device(&net->split, h->n_layers, begin);
    ae_engine_device *d = &e->devices[i_device];
    const ae_kv_view kv = ae_kv_on(e->kv, i_device);
    ae_places places = ae_rows_places_on(&d->rows, e->n_rows, e->kv, i_device);
    if (h->encoder || e->grouped) places.last = d->rows.last; /* an encoder's rows see the whole text */
    ae_places flat = places, part_places = places, near_places = places, cross_places = places;
    bool source_alone = h->crosses; /* all rows belong to the source */
    for (uint32_t i = 0; source_alone && i < e->n_rows; i++) source_alone = e->ids[i] < 0;
    if (h->crosses) places.first = flat.first = d->rows.first;
    cross_places.pos = d->rows.cross;
    if (h->group_windows) flat.last = NULL;
    part_places.tables = kv.part_tables;
    near_places.last = d->rows.near;
    ae_block block = d->block;
    block.ops = d->backend->ops, block.stream = d->stream, block.h = h, block.places = &places, block.kv = kv.pages;
    block.part_places = &part_places, block.kv_parts = kv.parts;
    block.near_places = h->encoder ? &near_places : NULL;
    block.cross_places = &cross_places, block.given = e->given, block.n_given = h->crosses ? e->n_given : 0;
    block.n_rows = e->n_rows, block.ones = net->ones[i_device];
    block.slopes = net->slopes[i_device];
    block.ple = d->ple, block.ple_gate = d->ple_gate, block.ple_own = d->ple_own;
    block.cos = d->cos, block.sin = d->sin, block.q_scale = d->q_scale;
    block.compress = &d->compress, block.tokens = d->rows.token;
    block.selection = &d->selection, block.all_lacks = e->mode ? e->mode->lacks : NULL;
    block.recur = &d->recur, block.state = d->state_pass, block.adapted = &d->adapted;
    block.n_experts = e->mode ? e->mode->n_experts : 0;
    block.group = net->ranks ? &e->group : NULL;
    for (uint32_t i = e->turned; i < h->n_ropes && has_first_mixer(e, i_device, begin, end); i++)
        d->backend->ops->rope_table(d->stream, &(ae_rope_table){e->n_rows, h->ropes[i].n_rot, d->rows.pos, d->rope_freq[i],
                                                                e->rope_magnitude[i], d->cos[i], d->sin[i],
                                                                h->ropes[i].every});
    if (!begin) begin_stream(e, d, &block);
    const layer_places layers = {&places, &flat, source_alone};
    if (e->n_waves > 1) {
        run_waves(e, d, &block, &layers);
    } else {
        run_layers(e, d, &block, &layers, begin, end);
        if (end > 2 * h->n_layers && net->ranks && net->ranks->n_stages > 1 && runs_ahead(e)) return;
        if (end > 2 * h->n_layers && net->ranks) enter_rank(e, &block, h->n_layers);
    }
    const bool ends = end > 2 * h->n_layers, has_end = ends && ae_ranks_has(net->ranks, h->n_layers);
    if (has_end && h->n_banks) ae_block_banks_end(&block, net->end_score);
    if (has_end && h->n_streams) end_streams(e, d, &block);
    if (ends) end_stream(e);
}

static void move(ae_engine *e, ae_engine_device *from, const void *source, ae_engine_device *to, void *target, size_t dim)
{
    ae_backend_move(from->backend->ops, from->stream, source, to->backend->ops, to->stream, target, e->moved,
                    e->n_rows * dim * sizeof(float));
}

void ae_forward_move(ae_engine *e, uint32_t begin, uint32_t end)
{
    const ae_hparams *h = &e->net->model->hparams;
    ae_engine_device *d = &e->devices[ae_split_device(&e->net->split, h->n_layers, begin)];
    for (uint32_t i = 0; i < e->options.n_taps; i++) {
        const uint32_t at = e->options.taps[i];
        if (d == e->out || at >= h->n_layers || 2 * at < begin || 2 * at >= end) continue;
        move(e, d, d->tapped + i * tapped_size(e), e->out, e->out->tapped + i * tapped_size(e), h->n_embd);
    }
    for (uint32_t i = 0; !begin && h->n_embd_layer && i < e->n_devices; i++)
        if (d != &e->devices[i]) move(e, d, d->ple, &e->devices[i], e->devices[i].ple, (size_t)h->n_layers * h->n_embd_layer);
    if (end > 2 * h->n_layers) return;
    for (uint32_t i = 0; !begin && (h->adds_start || h->crosses) && i < e->n_devices; i++)
        if (d != &e->devices[i]) move(e, d, d->block.start, &e->devices[i], e->devices[i].block.start, h->n_embd);
    for (uint32_t i = 0; !begin && h->adapters.n && i < e->n_devices; i++)
        if (d != &e->devices[i]) move(e, d, d->block.adapter, &e->devices[i], e->devices[i].block.adapter, AE_SWITCH_DIM);
    for (uint32_t i = 0; !begin && h->recur.kind == AE_RECUR_WKV7 && i < e->n_devices; i++) {
        ae_engine_device *to = &e->devices[i];
        if (d != to) move(e, d, ae_block_first_values(&d->recur), to, ae_block_first_values(&to->recur), h->n_embd);
    }
    ae_engine_device *next = &e->devices[ae_split_device(&e->net->split, h->n_layers, end)];
    move(e, d, d->block.x, next, next->block.x, h->n_embd);
    if (h->n_banks) move(e, d, d->block.banks, next, next->block.banks, (size_t)h->n_banks * h->n_embd);
    const size_t n_streams = ae_model_n_streams(h);
    if (n_streams) move(e, d, d->block.streams, next, next->block.streams, n_streams * h->n_embd);
    uint32_t mixer = (end + 1) / 2; /* mixer of the next layer: a choice goes with the stream up to the last layer that uses
                                     * it */
    while (mixer < h->n_layers && e->net->model->layers[mixer].spec.index == AE_INDEX_NONE) mixer++;
    if (mixer < h->n_layers && e->net->model->layers[mixer].spec.index == AE_INDEX_OTHER) {
        move(e, d, d->selection.pos, next, next->selection.pos, 1);
        move(e, d, d->selection.n_inplace, next, next->selection.n_inplace, 1);
        move(e, d, d->selection.path, next, next->selection.path, d->selection.n_most);
    }
}
