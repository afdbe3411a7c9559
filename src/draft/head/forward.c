/* forward.c - a pass of a drafter head, written over the backend's operations.
 *
 * The networks are those of draft/head/head.h. What differs between kinds is which norms and matrices there are. */
#include "base/hash.h"
#include "draft/head/pass.h"

static void copy(ae_dhead_engine *e, uint32_t n, uint32_t dim, const float *x, size_t x_stride, const int32_t *rows, float *y,
                 size_t y_stride)
{
    e->backend->ops->copy(e->stream, &(ae_copy){.n = n, .dim = dim, .x = x, .x_stride = x_stride, .rows = rows, .y = y,
                                                .y_stride = y_stride});
}

/* Copies n rows of x, those of `rows` or the first ones, to where a step's feedback is kept. */
static void keep_fed(ae_dhead_engine *e, uint32_t i_step, uint32_t n, const float *x, const int32_t *rows, const int32_t *to)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t W = ae_dhead_width(h);
    e->backend->ops->copy(e->stream, &(ae_copy){.n = n, .dim = W, .x = x, .x_stride = W, .rows = rows,
                                                .y = e->fed + (size_t)i_step * W, .y_stride = (size_t)h->n_steps * W,
                                                .to = to});
}

/* Norms `dim` values of each row in place. */
static void norm(ae_dhead_engine *e, uint32_t n_rows, uint32_t n_groups, uint32_t dim, float *x, size_t stride,
                 const float *weight)
{
    e->backend->ops->norm(e->stream, &(ae_norm){.n_rows = n_rows, .n_groups = n_groups, .dim = dim, .x = x, .x_stride = stride,
                                                .weight = weight, .eps = e->net->head->hparams.layer.norm_eps,
                                                .layer = e->net->head->hparams.layer.layer_norm});
}

/* Norms rows at the end of a step, in place; they are as wide as the step's layer. */
static void norm_end(ae_dhead_engine *e, const ae_dhead_step *step, uint32_t n_rows, float *x)
{
    const ae_hparams *h = &e->net->head->hparams.layer;
    const bool own = h->nextn_end_layer && step->own_norm; /* the model's own end has the usual norm */
    e->backend->ops->norm(e->stream, &(ae_norm){.n_rows = n_rows, .n_groups = 1, .dim = h->n_embd, .x = x,
                                                .x_stride = h->n_embd, .weight = step->norm,
                                                .eps = own ? h->nextn_eps : h->norm_eps, .layer = own || h->layer_norm});
}

static void product(ae_dhead_engine *e, uint32_t n_rows, const float *x, size_t x_stride, const ae_weight *w, const float *bias,
                    float *y, size_t y_stride, bool add)
{
    e->backend->ops->matmul(e->stream, &(ae_matmul){.n_rows = n_rows, .input = AE_INPUT_PLAIN, .x = x, .x_stride = x_stride,
                                                    .n_weights = 1, .out = {{w, bias, y, y_stride, add}}});
}

/* Computes g of true rows: the target's hidden rows through fc. All kinds except EAGLE-3 and block drafters use their single
 * hidden row as it is. */
void ae_dhead_fuse(ae_dhead_engine *e)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const size_t width = (size_t)h->n_taps * h->n_target_embd;
    if (!ae_dhead_traits_of(h)->fuses) {
        copy(e, e->n_rows, (uint32_t)width, e->features, width, NULL, e->g, ae_dhead_width(h));
        return;
    }
    if (h->fc_norm == AE_FC_NORM_JOINT) norm(e, e->n_rows, 1, (uint32_t)width, e->features, width, e->net->fc_norm[0]);
    for (uint32_t i = 0; h->fc_norm == AE_FC_NORM_EACH && i < h->n_taps; i++)
        norm(e, e->n_rows, 1, h->n_target_embd, e->features + (size_t)i * h->n_target_embd, width, e->net->fc_norm[i]);
    product(e, e->n_rows, e->features, width, e->net->steps[0].fc, e->net->fc_bias, e->g, h->layer.n_embd, false);
}

/* Does the same with hyper-connections, where g and x have several streams; c has the embedding next to each stream's
 * feature. */
static void combine_streams(ae_dhead_engine *e, const ae_dhead_step *step)
{
    const ae_hparams *h = &e->net->head->hparams.layer;
    const uint32_t n = e->n_rows, H = h->n_embd, n_streams = h->n_streams, n_all = n * n_streams;
    const size_t pair = 2 * (size_t)H, stride = n_streams * pair;
    float *x = e->block.streams;
    for (uint32_t k = 1; k < n_streams; k++) copy(e, n, H, e->c, stride, NULL, e->c + k * pair, stride);
    copy(e, n_all, H, e->g, H, NULL, e->c + H, pair);
    if (!h->hyper_rank) norm(e, n_all, 1, H, e->c + H, pair, step->hnorm);
    for (uint32_t k = 0; h->hyper_rank && k < n_streams; k++)
        norm(e, n, 1, H, e->c + k * pair + H, stride, step->hnorm + (size_t)k * H);
    if (n_all <= e->options.n_batch) { /* drafts read the weights once */
        product(e, n_all, e->c, pair, step->fc, NULL, x, H, false);
        return;
    }
    for (uint32_t k = 0; k < n_streams; k++)
        product(e, n, e->c + k * pair, stride, step->fc, NULL, x + (size_t)k * H, (size_t)n_streams * H, false);
}

/* Computes the start of the residual stream x from the feature g and, in c, the second input of EAGLE-3's layer. */
static void combine(ae_dhead_engine *e, const ae_dhead_step *step)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t n = e->n_rows, H = h->layer.n_embd, W = ae_dhead_width(h);
    const bool assistant = ae_dhead_traits_of(h)->reads_target;
    const uint32_t E = assistant ? W : H; /* width of an embedding */
    const float scale = assistant ? e->net->target->model->hparams.embedding_scale : h->layer.embedding_scale;
    float *feature = e->c + W, *x = e->block.x;
    e->backend->ops->lookup(e->stream, step->embedding, e->on_device.token, n, e->c, 2 * (size_t)W);
    if (scale != 1.0f)
        e->backend->ops->map(e->stream, &(ae_map){.kind = AE_MAP_SCALE, .n_rows = n, .dim = E, .x = e->c,
                                                  .x_stride = 2 * (size_t)W, .a = scale});
    for (uint32_t i = 0; i < e->n_given; i++) { /* these rows are as wide as the target's; x is not needed yet */
        const struct ae_dhead_given *given = &e->given[i];
        e->backend->ops->upload(e->stream, x, given->rows, (size_t)given->n * E * sizeof *x);
        copy(e, given->n, E, x, E, NULL, e->c + 2 * (size_t)given->first * W, 2 * (size_t)W);
    }
    if (step->enorm) norm(e, n, 1, E, e->c, 2 * (size_t)W, step->enorm);
    if (h->layer.hyper) {
        combine_streams(e, step);
        return;
    }
    copy(e, n, W, e->g, W, NULL, feature, 2 * (size_t)W);
    if (step->hnorm) norm(e, n, 1, W, feature, 2 * (size_t)W, step->hnorm);
    if (!ae_dhead_traits_of(h)->doubles) product(e, n, e->c, 2 * (size_t)W, step->fc, e->net->fc_bias, x, H, false);
    else if (h->norm_before_residual) copy(e, n, H, feature, 2 * (size_t)W, NULL, x, H);
    else copy(e, n, H, e->g, H, NULL, x, H);
}

/* Runs the layers of a step. */
void ae_dhead_run_layers(ae_dhead_engine *e, uint32_t i_step)
{
    const ae_dhead *head = e->net->head;
    const ae_hparams *h = &head->hparams.layer;
    const uint32_t n_layers = head->hparams.n_layers / head->hparams.n_steps, first = i_step * n_layers;
    static const ae_selection nothing = {0}; /* no layer chooses what it attends to */
    const ae_kv *kv = ae_dhead_kv(e);
    /* the target's cache may be on several devices; a head is on the device of its output */
    const uint32_t i_device = kv == e->kv ? 0 : e->net->target->split.output;
    const ae_kv_view view = ae_kv_on(kv, i_device);
    const ae_places places = ae_rows_places_on(&e->on_device, e->n_rows, kv, i_device);
    ae_places part_places = places;
    part_places.tables = view.part_tables;
    ae_block block = e->block;
    block.ops = e->backend->ops, block.stream = e->stream, block.h = h, block.places = &places, block.kv = view.pages;
    block.part_places = &part_places, block.kv_parts = view.parts;
    block.n_rows = e->n_rows, block.ones = e->net->target->ones[e->net->target->split.output];
    block.cos = e->cos, block.sin = e->sin;
    block.compress = &e->compress, block.selection = &nothing;
    if (ae_dhead_traits_of(&head->hparams)->doubles) block.mixer_in = e->c, block.mixer_in_stride = 2 * (size_t)h->n_embd;
    for (uint32_t i = first; i < first + n_layers; i++) {
        if (i > first) block.mixer_in = NULL; /* only the first layer of EAGLE-3 reads two rows side by side */
        if (head->hparams.n_conv) ae_dhead_conv_layer(e, &block, i);
        else ae_block_layer(&block, &ae_dhead_layers(head)[i].spec, &e->net->layers[i]);
    }
}

/* Does the same with hyper-connections: the outputs feed back all streams, and read one sum of them. */
static void feed_streams_back(ae_dhead_engine *e, uint32_t i_step)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t W = ae_dhead_width(h);
    ae_block block = e->block;
    block.ops = e->backend->ops, block.stream = e->stream, block.h = &h->layer, block.n_rows = e->n_out;
    block.ones = e->net->target->ones[e->net->target->split.output];
    block.streams = e->g, block.x = e->x_out; /* g's rows have been read */
    copy(e, e->n_out, W, e->block.streams, W, e->on_device.out_rows, e->g, W);
    keep_fed(e, i_step, e->n_out, e->g, NULL, e->on_device.out_fed);
    ae_block_hyper_end(&block, &e->net->end);
}

/* Writes the rows that the outputs feed back, before or after the norm, and copies them to x_out too (for an assistant before
 * its projection). */
static void feed_back(ae_dhead_engine *e, uint32_t i_step)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const ae_dhead_step *step = &e->net->steps[i_step];
    const uint32_t H = h->layer.n_embd, W = ae_dhead_width(h);
    const float *fed = e->x_out;
    if (h->layer.hyper) {
        feed_streams_back(e, i_step);
        return;
    }
    copy(e, e->n_out, H, e->block.x, H, e->on_device.out_rows, e->x_out, H);
    if (h->feedback_normed) norm_end(e, step, e->n_out, e->x_out);
    if (step->post) {
        product(e, e->n_out, e->x_out, H, step->post, NULL, e->g, W, false);
        fed = e->g; /* g's rows have been read */
    }
    keep_fed(e, i_step, e->n_out, fed, NULL, e->on_device.out_fed);
}

static void put_logits(ae_dhead_engine *e, uint32_t i_step)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const ae_dhead_step *step = &e->net->steps[i_step];
    const bool normed = h->feedback_normed || !step->norm;
    e->backend->ops->matmul(e->stream, &(ae_matmul){
        .n_rows = e->n_out, .input = normed ? AE_INPUT_PLAIN : AE_INPUT_RMSNORM, .x = e->x_out, .x_stride = h->layer.n_embd,
        .norm = step->norm, .norm_eps = h->layer.norm_eps, .n_weights = 1,
        .out = {{step->output, NULL, e->logits, e->net->n_draft, false}}});
    ae_map map = {.kind = AE_MAP_SCALE, .n_rows = e->n_out, .dim = e->net->n_draft, .x = e->logits,
                  .x_stride = e->net->n_draft, .a = h->layer.logit_scale};
    if (h->kind != AE_DHEAD_MTP) return;
    if (map.a != 1.0f) e->backend->ops->map(e->stream, &map);
    map.kind = AE_MAP_SOFTCAP, map.a = h->layer.logit_softcap;
    if (map.a != 0.0f) e->backend->ops->map(e->stream, &map);
}

/* For true rows of a head with several layers: gives this layer's output for a row to the next layer, as the feature of the
 * following row. */
static void pass_on(ae_dhead_engine *e, uint32_t i_step)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t W = ae_dhead_width(h), n = e->n_rows;
    copy(e, n, W, h->layer.hyper ? e->block.streams : e->block.x, W, NULL, e->c, W);
    if (h->feedback_normed) norm_end(e, &e->net->steps[i_step], n, e->c);
    if (n > 1) copy(e, n - 1, W, e->c, W, NULL, e->g + W, W);
    /* the first row of each chain takes the output of its sequence's newest row, which the chain's last row then becomes */
    e->backend->ops->copy(e->stream, &(ae_copy){
        .n = e->n_chains, .dim = W, .x = e->fed + (size_t)i_step * W, .x_stride = (size_t)h->n_steps * W,
        .rows = e->on_device.chain_fed, .y = e->g, .y_stride = W, .to = e->on_device.chain_first});
    keep_fed(e, i_step, e->n_chains, e->c, e->on_device.chain_last, e->on_device.chain_fed);
}

/* Fetches the feature of drafted rows for a step: the output of the step before for their parents; the last step uses its own
 * output once it is the only one left. */
static void fetch_fed(ae_dhead_engine *e, uint32_t i_step)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t from = e->depth >= h->n_steps ? h->n_steps - 1 : i_step - 1, W = ae_dhead_width(h);
    copy(e, e->n_rows, W, e->fed + (size_t)from * W, (size_t)h->n_steps * W, e->on_device.fed_from, e->g, W);
}

void ae_dhead_turn(ae_dhead_engine *e)
{
    const ae_hparams *h = &e->net->head->hparams.layer;
    for (uint32_t i = 0; i < h->n_ropes; i++)
        e->backend->ops->rope_table(e->stream,
                                    &(ae_rope_table){e->n_rows, h->ropes[i].n_rot, e->on_device.rope_pos, e->rope_freq[i],
                                                     e->net->rope_magnitude[i], e->cos[i], e->sin[i], 0});
}

/* Begins a pass of `kind`, keyed by what its operations depend on: the rows, and `more`. */
bool ae_dhead_pass_begin(ae_dhead_engine *e, ae_dhead_pass kind, uint64_t more)
{
    const uint64_t key[] = {kind, e->n_rows, e->n_out, e->n_chains, more};
    return e->backend->ops->pass_begin(e->stream, ae_hash64(0, key, sizeof key));
}

void ae_dhead_forward(ae_dhead_engine *e, bool drafted)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t last = h->n_steps - 1, first = !drafted ? 0 : e->depth < last ? e->depth : last;
    if (e->n_out) e->i_out = first;
    const uint32_t depth = e->depth < h->n_steps ? e->depth : h->n_steps; /* deeper levels are alike */
    if (!ae_dhead_pass_begin(e, drafted ? AE_DHEAD_DRAFTED : AE_DHEAD_TRUE, drafted ? depth : 0)) return;
    ae_dhead_turn(e);
    for (uint32_t i = first; i <= last; i++) {
        if (drafted) fetch_fed(e, i);
        else if (i == 0) ae_dhead_fuse(e);
        combine(e, &e->net->steps[i]);
        ae_dhead_run_layers(e, i);
        if (!drafted && last > 0) pass_on(e, i); /* before the previous row's output, which this reads, is replaced */
        if (e->n_out && (drafted || i == 0)) feed_back(e, i);
        if (e->n_out && i == first) put_logits(e, i);
    }
    e->backend->ops->pass_end(e->stream);
}

void ae_dhead_forward_medusa(ae_dhead_engine *e, const float *features, uint32_t n)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t H = h->layer.n_embd;
    const size_t stride = (size_t)h->n_medusa * H;
    const uint64_t more[] = {n, (uint64_t)(uintptr_t)features};
    if (!ae_dhead_pass_begin(e, AE_DHEAD_MEDUSAS, ae_hash64(0, more, sizeof more))) return;
    for (uint32_t j = 0; j < h->n_medusa; j++) {
        float *x = e->x_out + (size_t)j * H; /* row r is output r * n_medusa + j */
        copy(e, n, H, features, H, NULL, x, stride);
        for (uint32_t b = 0; b < h->n_blocks; b++) {
            product(e, n, x, stride, e->net->medusa_w[j][b], e->net->medusa_b[j][b], e->medusa, H, false);
            e->backend->ops->map(e->stream, &(ae_map){.kind = AE_MAP_GLU, .n_rows = n, .dim = H, .x = e->medusa, .x_stride = H,
                                                      .glu = AE_GLU_SILU});
            e->backend->ops->axpy(e->stream, &(ae_axpy){n, H, 1.0f, e->medusa, H, x, stride});
        }
        product(e, n, x, stride, e->net->medusa_out[j], NULL, e->logits + (size_t)j * e->net->n_draft,
                (size_t)h->n_medusa * e->net->n_draft, false);
    }
    e->backend->ops->pass_end(e->stream);
}
