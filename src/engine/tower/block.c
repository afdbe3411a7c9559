/* block.c - a vision encoder's operations on the device: the start of the stream, a block, the projector (int.h).
 *
 * Owns nothing. A block is x += Wo attention(norm(x)), then x += Wdown(act(norm(x) Wup)). The encoder's type adds to this:
 * norms and scales of what is added, bounds around products, windows. Feed-forward blocks process the rows in several parts;
 * rows are independent, so no bit changes. */
#include <math.h>
#include <string.h>

#include "engine/tower/int.h"

static const float bare_eps = 1e-5f; /* epsilon of layer norms for which the file gives none */

tower_norm tower_norm_of(const ae_tower *t, const float *weight, const float *bias)
{
    return (tower_norm){weight, bias, t->model->hparams.layer_norm, t->model->hparams.norm_eps};
}

void tower_norm_rows(const ae_tower *t, float *x, uint32_t n, uint32_t dim, tower_norm norm)
{
    if (norm.weight)
        t->backend->ops->norm(t->stream, &(ae_norm){.n_rows = n, .n_groups = 1, .dim = dim, .x = x, .x_stride = dim,
                                                    .weight = norm.weight, .eps = norm.eps, .layer = norm.layer,
                                                    .bias = norm.bias});
}

void tower_copy_rows(const ae_tower *t, uint32_t n, uint32_t dim, const float *x, size_t x_stride, float *y, size_t y_stride)
{
    t->backend->ops->copy(t->stream, &(ae_copy){.n = n, .dim = dim, .x = x, .x_stride = x_stride, .y = y,
                                                .y_stride = y_stride});
}

static void map_rows(const ae_tower *t, ae_map_kind kind, uint32_t n, uint32_t dim, float *x, float a, const float *each)
{
    t->backend->ops->map(t->stream, &(ae_map){.kind = kind, .n_rows = n, .dim = dim, .x = x, .x_stride = dim, .a = a,
                                              .x2 = each, .x2_stride = 0});
}

static void bound(const ae_tower *t, uint32_t n, uint32_t dim, float *x, float low, float high)
{
    t->backend->ops->map(t->stream, &(ae_map){.kind = AE_MAP_BETWEEN, .n_rows = n, .dim = dim, .x = x, .x_stride = dim,
                                              .a = high, .glu_limit = low});
}

void tower_add_rows(const ae_tower *t, uint32_t n, uint32_t dim, float a, const float *x, size_t x_stride, float *y)
{
    t->backend->ops->axpy(t->stream, &(ae_axpy){n, dim, a, x, x_stride, y, dim});
}

/* The same for a part of the rows. */
static void some_products(const ae_tower *t, uint32_t first, uint32_t n, const float *x, uint32_t n_in, tower_norm norm,
                          const tower_product *p, uint32_t n_products, bool add)
{
    const ae_input kind = !norm.weight ? AE_INPUT_PLAIN : norm.layer ? AE_INPUT_LAYERNORM : AE_INPUT_RMSNORM;
    ae_matmul m = {.n_rows = n, .input = kind, .x = x, .x_stride = n_in, .norm = norm.weight, .norm_bias = norm.bias,
                   .norm_eps = norm.eps};
    for (uint32_t i = 0; i < n_products; i++) {
        const ae_tower_clamp *c = p[i].clamp;
        float *y = p[i].y + (size_t)first * p[i].n_out;
        const struct ae_matmul_out out = {p[i].weight, p[i].bias, y, p[i].n_out, add};
        if (!c || !c->set) {
            m.out[m.n_weights++] = out;
            continue;
        }
        ae_matmul alone = {.n_rows = n, .x = t->bounded, .x_stride = n_in, .n_weights = 1, .out = {out}};
        tower_copy_rows(t, n, n_in, x, n_in, t->bounded, n_in);
        tower_norm_rows(t, t->bounded, n, n_in, norm);
        bound(t, n, n_in, t->bounded, c->in_least, c->in_most);
        t->backend->ops->matmul(t->stream, &alone);
        bound(t, n, p[i].n_out, y, c->out_least, c->out_most);
    }
    if (m.n_weights) t->backend->ops->matmul(t->stream, &m);
}

void tower_products(const ae_tower *t, uint32_t n, const float *x, uint32_t n_in, tower_norm norm, const tower_product *p,
                     uint32_t n_products, bool add)
{
    for (uint32_t first = 0; first < n; first += AE_TOWER_FFN_ROWS)
        some_products(t, first, n - first < AE_TOWER_FFN_ROWS ? n - first : AE_TOWER_FFN_ROWS, x + (size_t)first * n_in, n_in,
                      norm, p, n_products, add);
}

static void product(const ae_tower *t, uint32_t n, const float *x, uint32_t n_in, tower_norm norm, const ae_weight *w,
                    const float *bias, float *y, uint32_t n_out)
{
    tower_products(t, n, x, n_in, norm, &(tower_product){w, bias, y, n_out, NULL}, 1, false);
}

/* Multiplies a matrix with act(x), or with act(x) * other if other is not NULL. */
static void activated(const ae_tower *t, uint32_t n, const float *x, const float *other, uint32_t n_in, ae_glu glu, float limit,
                      tower_product p, bool add)
{
    for (uint32_t first = 0; first < n; first += AE_TOWER_FFN_ROWS) {
        const size_t at = (size_t)first * n_in;
        t->backend->ops->matmul(t->stream, &(ae_matmul){
            .n_rows = n - first < AE_TOWER_FFN_ROWS ? n - first : AE_TOWER_FFN_ROWS, .input = AE_INPUT_GLU, .x = x + at,
            .x2 = other ? other + at : NULL, .x_stride = n_in, .glu = glu, .glu_limit = limit, .n_weights = 1,
            .out = {{p.weight, p.bias, p.y + (size_t)first * p.n_out, p.n_out, add}}});
    }
}

/* ---- The start of the stream ------------------------------------------------------------------------------------ */

void tower_begin(ae_tower *t, const tower_view *v)
{
    const ae_tower_model *m = t->model;
    const ae_backend_ops *ops = t->backend->ops;
    const uint32_t e = m->hparams.n_embd, n_in = tower_patch_floats(m), n = v->across * v->down, cls = v->n - n;
    float *x = t->x + (size_t)cls * e;
    const tower_norm bare = {m->type->bare ? t->bare_norm[0] : NULL, t->bare_norm_b[0], true, bare_eps};
    ops->upload(t->stream, t->pixels, t->pixels_host, (size_t)n * n_in * sizeof(float));
    product(t, n, t->pixels, n_in, bare, t->patches, t->patch_bias, x, e);
    if (m->type->frames)
        tower_products(t, n, t->pixels, n_in, (tower_norm){0}, &(tower_product){t->frame, NULL, x, e, NULL}, 1, true);
    if (m->type->bare) tower_norm_rows(t, x, n, e, (tower_norm){t->bare_norm[1], t->bare_norm_b[1], true, bare_eps});
    tower_norm_rows(t, x, n, e, tower_norm_of(t, t->start_norm, t->start_norm_b));
    if (cls) tower_copy_rows(t, 1, e, t->cls, e, t->x, e);
    if (t->positions) tower_add_rows(t, v->n, e, 1.0f, t->positions, e, t->x);
    if (t->table) {
        ops->upload(t->stream, t->y, t->x_host, (size_t)n * e * sizeof(float));
        tower_add_rows(t, n, e, 1.0f, t->y, e, x);
    }
    if (m->type->bare) tower_norm_rows(t, x, n, e, (tower_norm){t->bare_norm[2], t->bare_norm_b[2], true, bare_eps});
    tower_norm_rows(t, t->x, v->n, e, tower_norm_of(t, t->pre_norm, t->pre_norm_b));
    if (m->hparams.n_ropes) {
        const size_t angles = (size_t)v->n * (m->hparams.head_dim / 2);
        ops->upload(t->stream, t->cos, t->angles_host, angles * sizeof(float));
        ops->upload(t->stream, t->sin, t->angles_host + angles, angles * sizeof(float));
    }
}

/* ---- A block --------------------------------------------------------------------------------------------------- */

/* Reorders heads [n][n_heads][4 quarters] for the rotation: the second and the third quarter change places, so that pairs
 * within each half become pairs (i, i + half). */
static void reorder(const ae_tower *t, uint32_t n, const float *from, float *to)
{
    const uint32_t d = t->model->hparams.head_dim, quarter = d / 4;
    static const uint8_t order[] = {0, 2, 1, 3};
    for (uint32_t i = 0; i < 4; i++) tower_copy_rows(t, n, quarter, from + order[i] * quarter, d, to + i * quarter, d);
}

/* Adds the output in y of a half of the block to the stream, normed and scaled first. */
static void join(const ae_tower *t, uint32_t first, uint32_t n, const float *norm, const float *scale)
{
    const uint32_t e = t->model->hparams.n_embd;
    tower_norm_rows(t, t->y, n, e, tower_norm_of(t, norm, NULL));
    if (scale) map_rows(t, AE_MAP_TIMES, n, e, t->y, 0, scale);
    tower_add_rows(t, n, e, 1.0f, t->y, e, t->x + (size_t)first * e);
}

static void attend(const ae_tower *t, uint32_t i, const tower_view *v)
{
    const ae_tower_model *m = t->model;
    const ae_hparams *h = &m->hparams;
    const ae_layer_spec *s = &m->layers[i].spec;
    const ae_net_layer *l = &t->layers[i];
    const tower_block *b = &t->blocks[i];
    const ae_tower_clamp *c = m->blocks[i].clamp;
    const uint32_t e = h->n_embd, q_dim = s->n_heads * s->head_dim, n = v->n;
    const bool windowed = m->blocks[i].windowed, reordered = m->type->turn == AE_TOWER_TURN_XY;
    const bool normed = s->qk_norm != AE_QK_NORM_NONE;
    float *q = reordered ? t->attn : t->q, *k = reordered ? t->q : t->k; /* q and k before they are reordered */
    const tower_product qkv[] = {{l->wq, l->bq, q, q_dim, &c[AE_TOWER_Q]}, {l->wk, l->bk, k, q_dim, &c[AE_TOWER_K]},
                                 {l->wv, l->bv, t->v, q_dim, &c[AE_TOWER_V]}};
    tower_products(t, n, t->x, e, tower_norm_of(t, l->attn_norm, l->attn_norm_b), qkv, 3, false);
    if (reordered) reorder(t, n * s->n_heads, k, t->k);
    if (reordered) reorder(t, n * s->n_heads, q, t->q);
    ae_places places = ae_rows_places(windowed ? &t->windows : &t->on_device, n, windowed ? t->window_kv : t->kv);
    places.last = windowed ? t->windows.last : t->on_device.last;
    ae_kv_store *kv = ae_kv_pages(windowed ? t->window_kv : t->kv);
    t->backend->ops->rope_kv(t->stream, &(ae_rope_kv){
        .places = &places, .kv = kv, .n_heads = s->n_heads, .n_kv_heads = s->n_kv_heads, .head_dim = s->head_dim,
        .n_rot = h->n_ropes ? s->head_dim : 0, .kind = h->n_ropes && h->ropes[0].neox ? AE_ROPE_NEOX : AE_ROPE_NORM,
        .cos = h->n_ropes ? t->cos : NULL, .sin = h->n_ropes ? t->sin : NULL, .q = t->q, .k = t->k, .v = t->v,
        .q_norm = normed ? b->q_norm ? b->q_norm : l->q_norm : NULL,
        .k_norm = normed ? b->k_norm ? b->k_norm : l->k_norm : NULL,
        .norm_row = s->qk_norm == AE_QK_NORM_ROW, .v_norm = s->v_norm ? t->ones : NULL, .norm_eps = h->norm_eps});
    t->backend->ops->attention(t->stream, &(ae_attention){
        .places = &places, .kv = kv, .n_heads = s->n_heads, .n_kv_heads = s->n_kv_heads, .head_dim = s->head_dim,
        .scale = s->attn_scale, .q = t->q, .y = t->attn});
    const bool joins = l->attn_post_norm || b->scale[0] || c[AE_TOWER_O].set;
    const tower_product out = {l->wo, l->bo, joins ? t->y : t->x, e, &c[AE_TOWER_O]};
    tower_products(t, n, t->attn, q_dim, (tower_norm){0}, &out, 1, !joins);
    if (joins) join(t, 0, n, l->attn_post_norm, b->scale[0]);
}

static void feed_forward(const ae_tower *t, uint32_t i, uint32_t first, uint32_t n)
{
    const ae_tower_model *m = t->model;
    const ae_layer_spec *s = &m->layers[i].spec;
    const ae_net_layer *l = &t->layers[i];
    const tower_block *b = &t->blocks[i];
    const ae_tower_clamp *c = m->blocks[i].clamp;
    const uint32_t e = m->hparams.n_embd, f = s->n_ff;
    const ae_glu glu = ae_block_glu(s->activation);
    float *x = t->x + (size_t)first * e;
    const tower_product in[] = {{l->w_up, l->b_up, t->up, f, &c[AE_TOWER_UP]}, {l->w_gate, l->b_gate, t->gate, f,
                                                                               &c[AE_TOWER_GATE]}};
    tower_products(t, n, x, e, tower_norm_of(t, l->ffn_norm, l->ffn_norm_b), in, l->w_gate ? 2 : 1, false);
    const bool bounded = c[AE_TOWER_DOWN].set, joins = l->ffn_post_norm || b->scale[1] || bounded;
    float *from = l->w_gate ? t->gate : t->up;
    const tower_product out = {l->w_down, l->b_down, joins ? t->y : x, e, &c[AE_TOWER_DOWN]};
    if (bounded) {
        t->backend->ops->map(t->stream, &(ae_map){.kind = AE_MAP_GLU, .n_rows = n, .dim = f, .x = from, .x_stride = f,
                                                  .x2 = l->w_gate ? t->up : NULL, .x2_stride = f, .glu = glu,
                                                  .glu_limit = s->shared_limit});
        tower_products(t, n, from, f, (tower_norm){0}, &out, 1, false);
    } else {
        activated(t, n, from, l->w_gate ? t->up : NULL, f, glu, s->shared_limit, out, !joins);
    }
    if (joins) join(t, first, n, l->ffn_post_norm, b->scale[1]);
}

void tower_run_block(ae_tower *t, uint32_t i, const tower_view *v)
{
    attend(t, i, v);
    for (uint32_t first = 0; first < v->n; first += AE_TOWER_FFN_ROWS)
        feed_forward(t, i, first, v->n - first < AE_TOWER_FFN_ROWS ? v->n - first : AE_TOWER_FFN_ROWS);
    if (t->blocks[i].out_scale) map_rows(t, AE_MAP_TIMES, v->n, t->model->hparams.n_embd, t->x, 0, t->blocks[i].out_scale);
}

/* ---- The projector --------------------------------------------------------------------------------------------- */

/* Lists the row of patch k of every token. */
static void choose(ae_tower *t, uint32_t k, const tower_view *v)
{
    const uint32_t m = t->model->merge, across = v->across / m, cls = v->n - v->across * v->down;
    for (uint32_t i = 0; i < v->n_tokens; i++)
        t->chosen[i] = (int32_t)cls + t->place[(i / across * m + k / m) * v->across + i % across * m + k % m];
}

/* Merges the patches of each token channel by channel, on the host. */
static void unfold(ae_tower *t, const tower_view *v)
{
    const uint32_t e = t->model->hparams.n_embd, kk = t->model->merge * t->model->merge;
    t->backend->ops->download(t->stream, t->x_host, t->x, (size_t)v->n * e * sizeof(float));
    for (uint32_t k = 0; k < kk; k++) {
        choose(t, k, v);
        for (uint32_t i = 0; i < v->n_tokens; i++)
            for (uint32_t c = 0; c < e; c++)
                t->merged_host[((size_t)i * e + c) * kk + k] = t->x_host[(size_t)t->chosen[i] * e + c];
    }
    t->backend->ops->upload(t->stream, t->merged, t->merged_host, (size_t)v->n_tokens * kk * e * sizeof(float));
}

/* Merges the rows of x into tokens in `merged`; where several blocks are projected, a row is a token. */
static void merge(ae_tower *t, const tower_view *v)
{
    const ae_tower_merge how = t->model->type->merge;
    const uint32_t e = t->model->hparams.n_embd, kk = t->model->merge * t->model->merge;
    if (how == AE_TOWER_UNFOLD) {
        unfold(t, v);
        return;
    }
    if (t->model->n_features > 1) {
        const uint32_t width = tower_merged_floats(t->model);
        tower_copy_rows(t, v->n_tokens, width, t->features + (size_t)(v->n - v->n_tokens) * width, width, t->merged, width);
        return;
    }
    if (how == AE_TOWER_POOL) map_rows(t, AE_MAP_ZERO, v->n_tokens, e, t->merged, 0, NULL);
    for (uint32_t k = 0; k < kk; k++) {
        choose(t, k, v);
        t->backend->ops->copy(t->stream, &(ae_copy){
            .n = v->n_tokens, .dim = e, .x = t->x, .x_stride = e, .host_rows = t->chosen,
            .y = how == AE_TOWER_POOL ? t->part : t->merged + (size_t)k * e, .y_stride = how == AE_TOWER_POOL ? e : kk * e});
        if (how == AE_TOWER_POOL) tower_add_rows(t, v->n_tokens, e, 1.0f / (float)kk, t->part, e, t->merged);
    }
}

void tower_keep(ae_tower *t, uint32_t n_done, const tower_view *v)
{
    const ae_tower_model *m = t->model;
    const uint32_t e = m->hparams.n_embd, n = m->n_features;
    for (uint32_t i = 0; n > 1 && i < n; i++)
        if (m->features[i] == n_done) tower_copy_rows(t, v->n, e, t->x, e, t->features + (size_t)i * e, (size_t)n * e);
}

void tower_deep(ae_tower *t, uint32_t i, const tower_view *v)
{
    const ae_tower_model *m = t->model;
    const tower_block *b = &t->blocks[i];
    const uint32_t side = tower_merged_floats(m);
    if (!b->deep_1) return;
    merge(t, v);
    product(t, v->n_tokens, t->merged, side, tower_norm_of(t, b->deep_norm, b->deep_norm_b), b->deep_1, b->deep_1_b, t->hidden,
            side);
    activated(t, v->n_tokens, t->hidden, NULL, side, AE_GLU_GELU_ERF, 0,
              (tower_product){b->deep_2, b->deep_2_b, t->out, m->n_out, NULL}, false);
    t->backend->ops->download(t->stream, t->deep_host + (size_t)m->blocks[i].i_deep * v->n_tokens * m->n_out, t->out,
                              (size_t)v->n_tokens * m->n_out * sizeof(float));
}

/* Scales Gemma 4's pooled rows, and standardises them with the file's mean and deviation. */
static void standardise(const ae_tower *t, const tower_view *v)
{
    const uint32_t e = t->model->hparams.n_embd;
    map_rows(t, AE_MAP_SCALE, v->n_tokens, e, t->merged, sqrtf((float)e), NULL);
    if (!t->std_bias) return;
    tower_add_rows(t, v->n_tokens, e, -1.0f, t->std_bias, 0, t->merged);
    map_rows(t, AE_MAP_TIMES, v->n_tokens, e, t->merged, 0, t->std_scale);
}

/* Computes the step after a gated projector's first matrix: hidden becomes out. */
static void project_gated(const ae_tower *t, uint32_t n_tokens)
{
    const ae_tower_model *m = t->model;
    const ae_glu glu = ae_block_glu(m->layers[0].spec.activation);
    const uint32_t o = m->n_out, f = m->n_gated;
    tower_norm_rows(t, t->hidden, n_tokens, o, (tower_norm){t->gated_norm, t->gated_norm_b, true, bare_eps});
    t->backend->ops->map(t->stream, &(ae_map){.kind = AE_MAP_GLU, .n_rows = n_tokens, .dim = o, .x = t->hidden, .x_stride = o,
                                              .glu = AE_GLU_GELU_ERF});
    for (uint32_t first = 0; first < n_tokens; first += AE_TOWER_FFN_ROWS) {
        const uint32_t n = n_tokens - first < AE_TOWER_FFN_ROWS ? n_tokens - first : AE_TOWER_FFN_ROWS;
        const tower_product in[] = {{t->gated[0], t->gated_b[0], t->gate, f, NULL},
                                    {t->gated[1], t->gated_b[1], t->up, f, NULL}};
        tower_products(t, n, t->hidden + (size_t)first * o, o, (tower_norm){0}, in, 2, false);
        activated(t, n, t->gate, t->up, f, glu, m->layers[0].spec.shared_limit,
                  (tower_product){t->gated[2], t->gated_b[2], t->out + (size_t)first * o, o, NULL}, false);
    }
}

void tower_project(ae_tower *t, const tower_view *v)
{
    const ae_tower_model *m = t->model;
    const uint32_t e = m->hparams.n_embd, n = v->n_tokens, merged = tower_merged_floats(m);
    uint32_t width = merged;
    tower_norm_rows(t, t->x, v->n, e, tower_norm_of(t, t->post_norm, t->post_norm_b));
    if (m->type->resampler) {
        tower_resample(t, v);
        return;
    }
    const tower_norm own = {t->patch_norm, t->patch_norm_b, true, m->type->patch_eps};
    tower_norm_rows(t, t->x, v->n, e, m->type->patch_eps > 0 ? own : tower_norm_of(t, t->patch_norm, NULL));
    merge(t, v);
    if (m->type->head_norms) standardise(t, v);
    const float *x = t->merged;
    if (t->merger) {
        width = m->type->merger_kernel ? m->n_out : e;
        float *y = m->type->merger_kernel ? t->out : t->x;
        product(t, n, x, merged, (tower_norm){0}, t->merger, t->merger_b, y, width);
        x = y;
    }
    tower_norm norm = {t->norm, t->norm_b, m->type->norm_layer, m->type->norm_layer ? bare_eps : m->hparams.norm_eps};
    if (m->type->norm && !*m->type->norm) norm.weight = t->ones;
    const tower_product p = {t->project, t->project_b, t->project2 || m->n_gated ? t->hidden : t->out, m->n_mid, &m->clamp};
    tower_products(t, n, x, width, norm, &p, 1, false);
    if (t->project2)
        activated(t, n, t->hidden, NULL, m->n_mid, AE_GLU_GELU_ERF, 0,
                  (tower_product){t->project2, t->project2_b, t->out, m->n_out, NULL}, false);
    if (m->n_gated) project_gated(t, n);
    t->backend->ops->download(t->stream, t->merged_host, t->out, (size_t)n * m->n_out * sizeof(float));
}
