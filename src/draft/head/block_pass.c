/* block_pass.c - the passes of a block drafter: context rows, blocks, DSpark's and DFly's links, DFlash2's pairs (engine.h,
 * head.h).
 * The layers of DFlash2: block_conv.c; LiLiCorr's candidates: lattice.c.
 *
 * A context row is a position of the target: fc and a norm make a feature of its taps, and each layer keeps keys and values of
 * it, made by the matrices that block rows use, without the layer's norm. Block rows are after the context rows, in places of
 * their own, and are dropped after the draft. All rows of a block that is not causal attend from its last position, so that
 * they see each other; a layer's window is therefore that of the last row.
 *
 * Source: z-lab/dflash (model.py), deepseek-ai/DeepSpec (modeling/dspark, eval/dspark), arXiv 2602.06036, 2607.05147, and
 * what AngelSpec's checkpoints of DFly need.
 */
#include "draft/head/pass.h"

/* ---- Context ------------------------------------------------------------------------------------------- */

/* g: the features that layer i makes them of. */
static void keep_layer(ae_dhead_engine *e, uint32_t i, const float *g, const ae_places *places)
{
    const ae_layer_spec *s = &ae_dhead_layers(e->net->head)[i].spec;
    const ae_hparams *h = &e->net->head->hparams.layer;
    const ae_net_layer *l = &e->net->layers[i];
    const uint32_t kv_dim = s->n_kv_heads * s->head_dim;
    const ae_rope *rope = s->rope == AE_NO_ROPE ? NULL : &h->ropes[s->rope];
    const float *ones = e->net->target->ones[e->net->target->split.output];
    e->backend->ops->matmul(e->stream, &(ae_matmul){
        .n_rows = e->n_rows, .input = AE_INPUT_PLAIN, .x = g, .x_stride = h->n_embd, .n_weights = 2,
        .out = {{l->wk, l->bk, e->block.k, kv_dim, false}, {l->wv, l->bv, e->block.v, kv_dim, false}}});
    e->backend->ops->rope_kv(e->stream, &(ae_rope_kv){
        .places = places, .kv = ae_kv_pages(e->kv), .layer = l->kv, .n_heads = 0, .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim, .n_rot = rope ? rope->n_rot : 0, .kind = rope && rope->neox ? AE_ROPE_NEOX : AE_ROPE_NORM,
        .cos = rope ? e->cos[s->rope] : NULL, .sin = rope ? e->sin[s->rope] : NULL, .q = e->block.q, .k = e->block.k,
        .v = e->block.v, .k_norm = s->qk_norm == AE_QK_NORM_NONE ? NULL : l->k_norm ? l->k_norm : ones,
        .norm_eps = h->norm_eps});
}

static void norm_features(ae_dhead_engine *e, float *g)
{
    const ae_hparams *h = &e->net->head->hparams.layer;
    e->backend->ops->norm(e->stream, &(ae_norm){.n_rows = e->n_rows, .n_groups = 1, .dim = h->n_embd, .x = g,
                                                .x_stride = h->n_embd, .weight = e->net->steps[0].hnorm, .eps = h->norm_eps});
}

/* DFly: computes the feature of layer i as a weighted sum of the taps, then norms it. The result is in the array of the stream,
 * which is free here: context rows do not pass through the layers. */
static float *mix_layer(ae_dhead_engine *e, uint32_t i)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t H = h->layer.n_embd;
    const ae_backend_ops *ops = e->backend->ops;
    ops->copy(e->stream, &(ae_copy){.n = e->n_rows, .dim = H, .x = e->g, .x_stride = H, .y = e->block.x, .y_stride = H});
    for (uint32_t j = 0; j < h->n_taps; j++)
        ops->axpy(e->stream, &(ae_axpy){e->n_rows, H, e->net->head->fusion[i][j], e->features + (size_t)j * H,
                                        (size_t)h->n_taps * H, e->block.x, H});
    norm_features(e, e->block.x);
    return e->block.x;
}

void ae_dhead_forward_context(ae_dhead_engine *e)
{
    const bool mixed = e->net->head->hparams.kind == AE_DHEAD_DFLY;
    const uint32_t H = e->net->head->hparams.layer.n_embd;
    const ae_places places = ae_rows_places(&e->on_device, e->n_rows, e->kv);
    if (!ae_dhead_pass_begin(e, AE_DHEAD_CONTEXT, 0)) return;
    ae_dhead_turn(e);
    ae_dhead_fuse(e);
    if (!mixed) norm_features(e, e->g);
    if (e->lattice)
        e->backend->ops->copy(e->stream, &(ae_copy){.n = e->n_out, .dim = H, .x = e->g, .x_stride = H,
                                                    .rows = e->on_device.out_rows, .y = e->anchors, .y_stride = H,
                                                    .to = e->on_device.out_fed});
    for (uint32_t i = 0; i < e->net->head->hparams.n_layers; i++) keep_layer(e, i, mixed ? mix_layer(e, i) : e->g, &places);
    e->backend->ops->pass_end(e->stream);
}

/* ---- Blocks ----------------------------------------------------------------------------------------------- */

aerie_status ae_dhead_add_block(ae_dhead_engine *e, uint32_t seq, int32_t token, uint32_t n_out, uint32_t *out)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t n = h->n_block, skipped = h->from_anchor ? 0 : 1;
    if (seq >= e->options.n_seqs || n > ae_dhead_rows_left(e) || n_out > ae_dhead_n_foreseen(h) ||
        n_out > e->n_outputs - e->n_out)
        return AERIE_ERROR_INTERNAL;
    ae_dhead_drop_drafted(e, seq);
    const uint32_t base = ae_kv_n_live(e->kv, seq), first = ae_dhead_n_true(e, seq);
    if (ae_kv_reserve(e->kv, e->stream, seq, n, NULL) != AERIE_OK) return AERIE_ERROR_INTERNAL;
    *out = e->n_out;
    for (uint32_t j = 0; j < n; j++) {
        const uint32_t last = h->causal ? j : n - 1;
        const uint32_t row = ae_dhead_add_row(e, seq, j ? h->mask : token, base + last, base + j, base + last + 1);
        e->rows.rope_pos[row] = (int32_t)(first + j);
        if (j < skipped || j - skipped >= n_out) continue;
        e->rows.out_rows[e->n_out] = (int32_t)row;
        e->rows.out_fed[e->n_out++] = 0;
    }
    return AERIE_OK;
}

/* Computes logits [n][n_draft] of rows x [n][n_embd]. */
static void put_logits(ae_dhead_engine *e, uint32_t n, const float *x, float *logits)
{
    const ae_hparams *h = &e->net->head->hparams.layer;
    const ae_backend_ops *ops = e->backend->ops;
    const uint32_t V = e->net->n_draft;
    ops->matmul(e->stream, &(ae_matmul){.n_rows = n, .input = AE_INPUT_PLAIN, .x = x, .x_stride = h->n_embd, .n_weights = 1,
                                        .out = {{e->net->steps[0].output, NULL, logits, V, false}}});
    ae_map map = {.kind = AE_MAP_SCALE, .n_rows = n, .dim = V, .x = logits, .x_stride = V, .a = h->logit_scale};
    if (h->logit_scale != 1.0f) ops->map(e->stream, &map);
    map.kind = AE_MAP_SOFTCAP, map.a = h->logit_softcap;
    if (h->logit_softcap != 0.0f) ops->map(e->stream, &map);
}

/* Norms the rows of the outputs and computes their logits, unless links provide these. */
static void put_rows(ae_dhead_engine *e)
{
    const ae_hparams *h = &e->net->head->hparams.layer;
    const ae_backend_ops *ops = e->backend->ops;
    ops->copy(e->stream, &(ae_copy){.n = e->n_out, .dim = h->n_embd, .x = e->block.x, .x_stride = h->n_embd,
                                    .rows = e->on_device.out_rows, .y = e->hidden, .y_stride = h->n_embd});
    ops->norm(e->stream, &(ae_norm){.n_rows = e->n_out, .n_groups = 1, .dim = h->n_embd, .x = e->hidden,
                                    .x_stride = h->n_embd, .weight = e->net->steps[0].norm, .eps = h->norm_eps});
    if (!e->net->correct_down) put_logits(e, e->n_out, e->hidden, e->logits);
}

static void forward_blocks(ae_dhead_engine *e)
{
    const ae_hparams *h = &e->net->head->hparams.layer;
    const ae_backend_ops *ops = e->backend->ops;
    if (!ae_dhead_pass_begin(e, AE_DHEAD_BLOCKS, 0)) return;
    ae_dhead_turn(e);
    ops->lookup(e->stream, e->net->steps[0].embedding, e->on_device.token, e->n_rows, e->block.x, h->n_embd);
    if (h->embedding_scale != 1.0f)
        ops->map(e->stream, &(ae_map){.kind = AE_MAP_SCALE, .n_rows = e->n_rows, .dim = h->n_embd, .x = e->block.x,
                                      .x_stride = h->n_embd, .a = h->embedding_scale});
    ae_dhead_run_layers(e, 0);
    if (e->n_out) put_rows(e);
    ops->pass_end(e->stream);
}

void ae_dhead_run_blocks(ae_dhead_engine *e)
{
    if (!e->n_rows) return;
    ae_dhead_upload_rows(e);
    if (e->net->head->hparams.n_conv) ae_dhead_conv_begin(e);
    forward_blocks(e);
    ae_dhead_end_pass(e, e->logits);
}

/* ---- Links of DSpark and DFly ------------------------------------------------------------------------------------------ */

/* Writes the input of the confidence: the row. Next to it is the token's contribution to the bias, which is already there. */
static void ask_confidence(ae_dhead_engine *e, uint32_t n)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t H = h->layer.n_embd;
    e->backend->ops->copy(e->stream, &(ae_copy){.n = n, .dim = H, .x = e->hidden, .x_stride = H, .rows = e->links,
                                                .y = e->link_in, .y_stride = H + h->n_markov});
    e->backend->ops->matmul(e->stream, &(ae_matmul){
        .n_rows = n, .input = AE_INPUT_PLAIN, .x = e->link_in, .x_stride = H + h->n_markov, .n_weights = 1,
        .out = {{e->net->conf, e->net->conf_bias, e->conf, 1, false}}});
}

/* DFly: corrects the rows by the tokens before them, and computes their logits. */
static void correct(ae_dhead_engine *e, uint32_t n)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const ae_backend_ops *ops = e->backend->ops;
    const ae_dhead_net *net = e->net;
    const uint32_t H = h->layer.n_embd, F = h->n_correct;
    float *in = e->link_in, *gate = e->link_up, *up = e->link_up + (size_t)n * F;
    ops->copy(e->stream, &(ae_copy){.n = n, .dim = H, .x = e->hidden, .x_stride = H, .rows = e->links, .y = e->link_x,
                                    .y_stride = H});
    ops->copy(e->stream, &(ae_copy){.n = n, .dim = H, .x = e->link_x, .x_stride = H, .y = in, .y_stride = 2 * (size_t)H});
    ops->lookup(e->stream, net->steps[0].embedding, e->link_tokens, n, in + H, 2 * (size_t)H);
    ae_norm norm = {.n_rows = n, .n_groups = 1, .dim = H, .x = in, .x_stride = 2 * (size_t)H,
                    .weight = net->correct_hidden_norm, .eps = h->layer.norm_eps};
    ops->norm(e->stream, &norm);
    norm.x = in + H, norm.weight = net->correct_embd_norm;
    ops->norm(e->stream, &norm);
    ops->matmul(e->stream, &(ae_matmul){.n_rows = n, .input = AE_INPUT_PLAIN, .x = in, .x_stride = 2 * (size_t)H,
                                        .n_weights = 2,
                                        .out = {{net->correct_gate, NULL, gate, F, false},
                                                {net->correct_up, NULL, up, F, false}}});
    ops->matmul(e->stream, &(ae_matmul){.n_rows = n, .input = AE_INPUT_GLU, .x = gate, .x2 = up, .x_stride = F,
                                        .glu = AE_GLU_SILU, .n_weights = 1,
                                        .out = {{net->correct_down, NULL, e->link_x, H, true}}});
    put_logits(e, n, e->link_x, e->linked);
}

/* DSpark: computes the rows' logits, with a bias that depends on the token before. */
static void add_bias(ae_dhead_engine *e, uint32_t n)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const ae_backend_ops *ops = e->backend->ops;
    const uint32_t H = h->layer.n_embd, K = h->n_markov, V = e->net->n_draft;
    ops->copy(e->stream, &(ae_copy){.n = n, .dim = V, .x = e->logits, .x_stride = V, .rows = e->links, .y = e->linked,
                                    .y_stride = V});
    ops->lookup(e->stream, e->net->markov_w1, e->link_tokens, n, e->link_in + H, H + K);
    ops->matmul(e->stream, &(ae_matmul){.n_rows = n, .input = AE_INPUT_PLAIN, .x = e->link_in + H, .x_stride = H + K,
                                        .n_weights = 1, .out = {{e->net->markov_w2, NULL, e->linked, V, true}}});
    if (e->net->conf) ask_confidence(e, n);
}

static void forward_links(ae_dhead_engine *e, uint32_t n)
{
    if (!ae_dhead_pass_begin(e, AE_DHEAD_LINKS, n)) return;
    if (e->net->correct_down) correct(e, n);
    else add_bias(e, n);
    e->backend->ops->pass_end(e->stream);
}

aerie_status ae_dhead_run_links(ae_dhead_engine *e, const ae_dhead_link *links, uint32_t n, float *conf, aerie_error *error)
{
    const ae_backend_ops *ops = e->backend->ops;
    const bool has_links = e->net->head->hparams.n_markov || e->net->head->hparams.n_correct;
    const uint32_t most = has_links ? e->options.n_seqs * AE_DHEAD_LEVEL_MAX : 0;
    if (n > most || !has_links)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "%u links of a drafter's tokens, of %u; please report", n, most);
    if (!n) return AERIE_OK;
    for (uint32_t i = 0; i < n; i++) {
        e->host_links[i] = (int32_t)links[i].out;
        e->host_links[n + i] = links[i].token;
    }
    ops->upload(e->stream, e->links, e->host_links, n * sizeof *e->links);
    ops->upload(e->stream, e->link_tokens, e->host_links + n, n * sizeof *e->links);
    forward_links(e, n);
    ae_dhead_end_pass(e, e->linked);
    e->conf_out = e->net->conf ? conf : NULL;
    e->n_conf = n;
    return AERIE_OK;
}

/* ---- DFlash2's pairs ------------------------------------------------------------------------------------------- */

aerie_status ae_dhead_run_pairs(ae_dhead_engine *e, const int32_t *tokens, uint32_t n, ae_dhead_pairs *pairs,
                                aerie_error *error)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const ae_backend_ops *ops = e->backend->ops;
    const uint32_t P = h->n_pair;
    if (n > ae_dhead_n_paired(h, e->options.n_seqs))
        return ae_fail(error, AERIE_ERROR_INTERNAL, "%u tokens are to be scored in pairs; please report", n);
    *pairs = (ae_dhead_pairs){P, e->pair_rows_host, e->pair_before_host, e->pair_after_host};
    if (!n || !e->n_out) return AERIE_OK;
    ops->upload(e->stream, e->pair_tokens, tokens, n * sizeof *tokens);
    ops->matmul(e->stream, &(ae_matmul){.n_rows = e->n_out, .input = AE_INPUT_PLAIN, .x = e->hidden,
                                        .x_stride = h->layer.n_embd, .n_weights = 1,
                                        .out = {{e->net->pair_rows, NULL, e->pair_rows, P, false}}});
    for (uint32_t at = 0; at < n; at += e->options.n_batch) {
        const uint32_t part = n - at < e->options.n_batch ? n - at : e->options.n_batch;
        const size_t to = (size_t)at * P;
        ops->lookup(e->stream, e->net->pair_before, e->pair_tokens + at, part, e->pair_before + to, P);
        ops->lookup(e->stream, e->net->pair_after, e->pair_tokens + at, part, e->pair_after + to, P);
    }
    ops->download(e->stream, e->pair_rows_host, e->pair_rows, (size_t)e->n_out * P * sizeof(float));
    ops->download(e->stream, e->pair_before_host, e->pair_before, (size_t)n * P * sizeof(float));
    ops->download(e->stream, e->pair_after_host, e->pair_after, (size_t)n * P * sizeof(float));
    return ae_dhead_sync(e, error);
}

float ae_dhead_pair_score(const ae_dhead_pairs *p, uint32_t out, uint32_t before, uint32_t after)
{
    const float *row = p->rows ? p->rows + (size_t)out * p->rank : NULL, *a = p->before + (size_t)before * p->rank;
    const float *b = p->after + (size_t)after * p->rank;
    float sum[8] = {0}; /* eight sums, which a compiler keeps in one vector */
    uint32_t i = 0;
    for (; !row && i < p->rank; i++) sum[i % 8] += a[i] * b[i];
    for (; i + 8 <= p->rank; i += 8)
        for (uint32_t k = 0; k < 8; k++) sum[k] += a[i + k] * row[i + k] * b[i + k];
    for (; i < p->rank; i++) sum[i % 8] += a[i] * row[i] * b[i];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}
