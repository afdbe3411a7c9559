/* lattice.c - LiLiCorr's transformer over the candidates of blocks (head.h, engine.h).
 *
 * A candidate is a node: node (s * n_rows + row) * k + rank of sequence s of a pass. Nodes of a sequence see each other; a pass
 * has as many sequences as the engine's largest pass has room for. Scores of attention get their bias by further elements of
 * queries and keys, so that the backend's attention serves: a query has 1 / scale in the element of its row and 0 in those of
 * the others, a key the bias that each row of queries gives it. These elements depend on nothing but a node's place, as do the
 * places in the store of keys and values: all that is written once. Vectors come back to the host, which scores pairs.
 *
 * Owns: the arrays and the store of keys and values of a pass (ae_dhead_lattice_room), which belongs to one engine.
 * Source: NVIDIA/TensorRT-LLM (modeling_lilicorr.py, Apache 2.0), arXiv 2608.20530.
 */
#include "backend/alloc_fail.h"
#include "base/hash.h"
#include "base/math/fmath.h"
#include "draft/head/pass.h"

#include <math.h>
#include <string.h>

#define NORM_EPS 1e-5f   /* epsilon of the features' layer norm */
#define LEAST_P 0x1p-40f /* smaller probabilities are not told apart */
#define ALIGNED 32       /* a head's number of elements is rounded up to a multiple of this, for which there are fast kernels */

struct ae_dhead_lattice_room {
    ae_backend *backend;
    void *device, *host;
    size_t device_bytes;
    ae_kv_store *kv;
    uint32_t n_seqs, n_nodes, n_wide, n_pages; /* of a pass; n_nodes: of a sequence; n_wide: elements of a head; pages of a
                                                * sequence */
    /* device; N = n_seqs * n_nodes, M = width, E = width of embeddings, A = n_heads * n_wide, F = n_factors */
    float *features, *embeddings, *rows; /* [N][5], [N][E], [n_seqs * rows of a block][M] */
    float *places;                       /* [n_nodes][M] embeddings of place and rank */
    float *x, *q, *k, *v, *y;            /* [N][M] */
    float *wide_q, *wide_k, *wide_v, *wide_y; /* [N][A] */
    float *up, *joint, *z;               /* [N][n_ff or M], [N][3M], [N][M] */
    float *anchor, *context;             /* [n_seqs][E], [n_seqs][M] */
    float *first, *out, *in;             /* [n_seqs][F], [N][F] x 2 */
    int32_t *tokens, *anchors;           /* [N], [n_seqs] */
    int32_t *seq, *pos, *slot, *n_inplace, *path, *tables; /* [N]; tables [n_seqs][n_pages] */
    /* host */
    float *features_host, *before, *after; /* [N][5], [n_seqs + N][F], [N][F] */
    int32_t *tokens_host;                  /* [N] */
};

typedef struct ae_dhead_lattice_room room;

/* ---- Sizes ----------------------------------------------------------------------------------------------- */

static uint32_t n_rows_of(const ae_dhead_hparams *h)
{
    return h->n_block - 1;
}

static void set_sizes(room *r, const ae_dhead_hparams *h, uint32_t n_batch, uint32_t n_seqs)
{
    const uint32_t d = h->lattice.width / h->lattice.n_heads;
    r->n_nodes = n_rows_of(h) * h->n_candidates;
    r->n_seqs = n_batch / r->n_nodes;
    if (r->n_seqs > n_seqs) r->n_seqs = n_seqs;
    r->n_wide = (d + n_rows_of(h) + ALIGNED - 1) / ALIGNED * ALIGNED;
    r->n_pages = (r->n_nodes + AE_KV_PAGE - 1) / AE_KV_PAGE;
}

uint32_t ae_dhead_lattice_rows(const ae_dhead_hparams *h)
{
    return h->lattice.width ? n_rows_of(h) * h->n_candidates : 0;
}

uint32_t ae_dhead_lattice_max_in(const ae_dhead_hparams *h)
{
    const uint32_t m = 3 * h->lattice.width;
    return m > h->lattice.n_ff ? m : h->lattice.n_ff;
}

static void device_layout(ae_layout *l, const ae_dhead_hparams *h, room *r)
{
    const size_t n = (size_t)r->n_seqs * r->n_nodes, M = h->lattice.width, E = h->layer.n_embd, F = h->lattice.n_factors;
    const size_t wide = (size_t)h->lattice.n_heads * r->n_wide, up = h->lattice.n_ff > M ? h->lattice.n_ff : M;
    const struct {
        float **field;
        size_t n;
    } arrays[] = {{&r->features, n * 5}, {&r->embeddings, n * E}, {&r->rows, (size_t)r->n_seqs * n_rows_of(h) * M},
                  {&r->places, r->n_nodes * M}, {&r->x, n * M}, {&r->q, n * M}, {&r->k, n * M}, {&r->v, n * M}, {&r->y, n * M},
                  {&r->wide_q, n * wide}, {&r->wide_k, n * wide}, {&r->wide_v, n * wide}, {&r->wide_y, n * wide},
                  {&r->up, n * up}, {&r->joint, n * 3 * M}, {&r->z, n * M}, {&r->anchor, r->n_seqs * E},
                  {&r->context, r->n_seqs * M}, {&r->first, r->n_seqs * F}, {&r->out, n * F}, {&r->in, n * F}};
    int32_t **const numbers[] = {&r->tokens, &r->seq, &r->pos, &r->slot, &r->n_inplace, &r->path};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) *arrays[i].field = ae_layout_add(l, arrays[i].n, sizeof(float));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) *numbers[i] = ae_layout_add(l, n, sizeof(int32_t));
    r->anchors = ae_layout_add(l, r->n_seqs, sizeof *r->anchors);
    r->tables = ae_layout_add(l, (size_t)r->n_seqs * r->n_pages, sizeof *r->tables);
}

static void host_layout(ae_layout *l, const ae_dhead_hparams *h, room *r)
{
    const size_t n = (size_t)r->n_seqs * r->n_nodes, F = h->lattice.n_factors;
    r->features_host = ae_layout_add(l, n * 5, sizeof(float));
    r->before = ae_layout_add(l, (r->n_seqs + n) * F, sizeof(float));
    r->after = ae_layout_add(l, n * F, sizeof(float));
    r->tokens_host = ae_layout_add(l, n, sizeof(int32_t));
}

/* layers [AE_DHEAD_MAX_LATTICE]. Keys and values are 16-bit floats, for which all backends have fast kernels. */
static ae_kv_shape kv_shape(const ae_dhead_hparams *h, const room *r, ae_kv_layer *layers)
{
    for (uint32_t i = 0; i < h->lattice.n_layers; i++)
        layers[i] = (ae_kv_layer){h->lattice.n_heads, r->n_wide, 0, false, false};
    return (ae_kv_shape){h->lattice.n_layers, layers, r->n_seqs * r->n_pages, AE_KV_F16};
}

size_t ae_dhead_lattice_bytes(const ae_dhead_hparams *h, const ae_backend *backend, uint32_t n_batch, uint32_t n_seqs)
{
    room r = {0};
    ae_layout device = {0}, host = {0};
    ae_kv_layer layers[AE_DHEAD_MAX_LATTICE];
    set_sizes(&r, h, n_batch, n_seqs);
    device_layout(&device, h, &r);
    host_layout(&host, h, &r);
    const ae_kv_shape kv = kv_shape(h, &r, layers);
    size_t total = device.bytes;
    if (device.overflow || host.overflow || !ae_add_size(total, host.bytes, &total) ||
        !ae_add_size(total, backend->ops->kv_bytes(backend, &kv), &total))
        return SIZE_MAX;
    return total;
}

/* ---- Life ------------------------------------------------------------------------------------------------- */

/* Writes what attention reads of a node's place: the additional elements of its queries and keys. */
static aerie_status fill_places(const ae_dhead_engine *e, room *r, aerie_error *error)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t n_heads = h->lattice.n_heads, d = h->lattice.width / n_heads, S = n_rows_of(h), W = r->n_wide;
    const size_t n = (size_t)r->n_seqs * r->n_nodes, bytes = n * n_heads * W * sizeof(float);
    const float *bias = e->net->head->lattice.bias, whole = sqrtf((float)d);
    float *x = ae_alloc(n * n_heads, W * sizeof *x);
    if (!x) return ae_fail_memory(error, "the places of candidates", bytes);
    for (size_t i = 0; i < n * n_heads; i++) x[i * W + d + i / n_heads / h->n_candidates % S] = whole;
    aerie_status status = r->backend->ops->fill(r->backend, r->wide_q, x, bytes, error);
    for (size_t i = 0; i < n * n_heads; i++) {
        const uint32_t row = (uint32_t)(i / n_heads / h->n_candidates % S);
        for (uint32_t j = 0; j < S; j++) x[i * W + d + j] = bias[i % n_heads * (2 * h->n_block - 1) + j + h->n_block - 1 - row];
        x[i * W + d + row] += e->net->head->lattice.same_bias[i % n_heads];
    }
    if (status == AERIE_OK) status = r->backend->ops->fill(r->backend, r->wide_k, x, bytes, error);
    ae_free(x);
    return status;
}

static aerie_status fill_embeddings(const ae_dhead_engine *e, room *r, aerie_error *error)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const ae_dhead_lattice *l = &e->net->head->lattice;
    const size_t M = h->lattice.width, k = h->n_candidates, bytes = r->n_nodes * M * sizeof(float);
    float *x = ae_alloc(r->n_nodes * M, sizeof *x);
    if (!x) return ae_fail_memory(error, "the places of candidates", bytes);
    for (size_t i = 0; i < r->n_nodes * M; i++) x[i] = l->slots[i / M / k * M + i % M] + l->ranks[i / M % k * M + i % M];
    const aerie_status status = r->backend->ops->fill(r->backend, r->places, x, bytes, error);
    ae_free(x);
    return status;
}

static aerie_status fill_numbers(room *r, aerie_error *error)
{
    const ae_backend_ops *ops = r->backend->ops;
    const size_t n = (size_t)r->n_seqs * r->n_nodes, n_tables = (size_t)r->n_seqs * r->n_pages;
    int32_t *x = ae_alloc(5 * n + n_tables, sizeof *x);
    if (!x) return ae_fail_memory(error, "the places of candidates", (5 * n + n_tables) * sizeof *x);
    int32_t *const to[] = {r->seq, r->pos, r->slot, r->n_inplace, r->path};
    for (size_t i = 0; i < n; i++) {
        x[i] = (int32_t)(i / r->n_nodes);
        x[n + i] = (int32_t)r->n_nodes - 1; /* every node sees all nodes of its sequence */
        x[2 * n + i] = (int32_t)(i % r->n_nodes);
        x[3 * n + i] = (int32_t)r->n_nodes;
    }
    for (size_t i = 0; i < n_tables; i++) x[5 * n + i] = (int32_t)i;
    aerie_status status = ops->fill(r->backend, r->tables, x + 5 * n, n_tables * sizeof *x, error);
    for (size_t i = 0; i < 5 && status == AERIE_OK; i++)
        status = ops->fill(r->backend, to[i], x + i * n, n * sizeof *x, error);
    ae_free(x);
    return status;
}

void ae_dhead_lattice_free(room *r)
{
    if (!r) return;
    if (r->kv) r->backend->ops->kv_free(r->backend, r->kv);
    if (r->device) r->backend->ops->free(r->backend, r->device, r->device_bytes);
    ae_free(r->host);
    ae_free(r);
}

static aerie_status create(const ae_dhead_engine *e, room *r, aerie_error *error)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    ae_layout device = {0}, host = {0};
    ae_kv_layer layers[AE_DHEAD_MAX_LATTICE];
    device_layout(&device, h, r);
    host_layout(&host, h, r);
    r->device_bytes = device.bytes;
    r->device = device.overflow ? NULL : r->backend->ops->alloc(r->backend, device.bytes);
    if (!r->device) return ae_backend_fail_alloc(r->backend, "the candidates of drafts", device.bytes, error);
    r->host = host.overflow ? NULL : ae_alloc_aligned(1, host.bytes);
    if (!r->host) return ae_fail_memory(error, "the candidates of drafts", host.bytes);
    device = (ae_layout){.base = r->device}, host = (ae_layout){.base = r->host};
    device_layout(&device, h, r);
    host_layout(&host, h, r);
    const ae_kv_shape kv = kv_shape(h, r, layers);
    AE_TRY(r->backend->ops->kv_create(r->backend, &kv, &r->kv, error));
    AE_TRY(fill_places(e, r, error));
    AE_TRY(fill_embeddings(e, r, error));
    return fill_numbers(r, error);
}

aerie_status ae_dhead_lattice_create(room **out, const ae_dhead_engine *e, aerie_error *error)
{
    room *r = ae_alloc(1, sizeof *r);
    *out = NULL;
    if (!r) return ae_fail_memory(error, "the candidates of drafts", sizeof *r);
    r->backend = e->backend;
    set_sizes(r, &e->net->head->hparams, e->options.n_batch, e->options.n_seqs);
    const aerie_status status = create(e, r, error);
    if (status != AERIE_OK) ae_dhead_lattice_free(r);
    else *out = r;
    return status;
}

/* ---- A pass ------------------------------------------------------------------------------------------------- */

/* Computes y = linear(x), or adds it to y. norm: of x, before the product; NULL: none. */
static void linear(const ae_dhead_engine *e, const ae_dhead_net_linear *l, uint32_t n, const float *x, uint32_t n_in,
                   const float *norm, float *y, uint32_t n_out, bool add)
{
    ae_matmul m = {.n_rows = n, .input = norm ? AE_INPUT_RMSNORM : AE_INPUT_PLAIN, .x = x, .x_stride = n_in, .norm = norm,
                   .norm_eps = e->net->head->hparams.layer.norm_eps, .n_weights = 1, .out = {{l->w, l->b, y, n_out, add}}};
    e->backend->ops->matmul(e->stream, &m);
}

/* The same of silu(x). */
static void linear_of_silu(const ae_dhead_engine *e, const ae_dhead_net_linear *l, uint32_t n, const float *x, uint32_t n_in,
                           float *y, uint32_t n_out, bool add)
{
    e->backend->ops->matmul(e->stream, &(ae_matmul){.n_rows = n, .input = AE_INPUT_GLU, .x = x, .x_stride = n_in,
                                                    .glu = AE_GLU_SILU, .n_weights = 1, .out = {{l->w, l->b, y, n_out, add}}});
}

static void copy(const ae_dhead_engine *e, uint32_t n, uint32_t dim, const float *x, size_t x_stride, float *y, size_t y_stride)
{
    e->backend->ops->copy(e->stream, &(ae_copy){.n = n, .dim = dim, .x = x, .x_stride = x_stride, .y = y,
                                                .y_stride = y_stride});
}

/* Computes x, the nodes' input: what the candidates are, for n_seqs sequences whose block rows are `hidden`. */
static void begin_nodes(const ae_dhead_engine *e, const float *hidden, uint32_t n_seqs)
{
    const room *r = e->lattice;
    const ae_dhead_net *net = e->net;
    const ae_dhead_hparams *h = &net->head->hparams;
    const ae_backend_ops *ops = e->backend->ops;
    const uint32_t n = n_seqs * r->n_nodes, M = h->lattice.width, E = h->layer.n_embd, k = h->n_candidates;
    const uint32_t n_rows = n_seqs * n_rows_of(h);
    for (uint32_t s = 0; s < n_seqs; s++)
        copy(e, r->n_nodes, M, r->places, M, r->x + (size_t)s * r->n_nodes * M, M);
    ops->lookup(e->stream, net->steps[0].embedding, r->tokens, n, r->embeddings, E);
    if (h->layer.embedding_scale != 1.0f)
        ops->map(e->stream, &(ae_map){.kind = AE_MAP_SCALE, .n_rows = n, .dim = E, .x = r->embeddings, .x_stride = E,
                                      .a = h->layer.embedding_scale});
    if (net->lattice.token.w) linear(e, &net->lattice.token, n, r->embeddings, E, NULL, r->x, M, true);
    else ops->axpy(e->stream, &(ae_axpy){n, M, 1.0f, r->embeddings, E, r->x, M});
    linear(e, &net->lattice.row, n_rows, hidden, E, NULL, r->rows, M, false);
    for (uint32_t c = 0; c < k; c++)
        ops->axpy(e->stream, &(ae_axpy){n_rows, M, 1.0f, r->rows, M, r->x + (size_t)c * M, (size_t)k * M});
    ops->matmul(e->stream, &(ae_matmul){.n_rows = n, .input = AE_INPUT_LAYERNORM, .x = r->features, .x_stride = 5,
                                        .norm = net->lattice.feature_norm, .norm_bias = net->lattice.feature_norm_b,
                                        .norm_eps = NORM_EPS, .n_weights = 1,
                                        .out = {{net->lattice.feature_up.w, net->lattice.feature_up.b, r->up, M, false}}});
    linear_of_silu(e, &net->lattice.feature_down, n, r->up, M, r->x, M, true);
}

static void attend(const ae_dhead_engine *e, uint32_t i, uint32_t n)
{
    const room *r = e->lattice;
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t n_heads = h->lattice.n_heads, d = h->lattice.width / n_heads, W = r->n_wide;
    const ae_places places = {.n_rows = n, .seq = r->seq, .pos = r->pos, .slot = r->slot, .n_inplace = r->n_inplace,
                              .path = r->path, .path_stride = 1, .tables = r->tables, .table_stride = r->n_pages};
    copy(e, n * n_heads, d, r->q, d, r->wide_q, W);
    copy(e, n * n_heads, d, r->k, d, r->wide_k, W);
    copy(e, n * n_heads, d, r->v, d, r->wide_v, W);
    e->backend->ops->rope_kv(e->stream, &(ae_rope_kv){
        .places = &places, .kv = r->kv, .layer = i, .n_heads = n_heads, .n_kv_heads = n_heads, .head_dim = W,
        .kind = AE_ROPE_NEOX, .q = r->wide_q, .k = r->wide_k, .v = r->wide_v});
    e->backend->ops->attention(e->stream, &(ae_attention){
        .places = &places, .kv = r->kv, .layer = i, .n_heads = n_heads, .n_kv_heads = n_heads, .head_dim = W,
        .scale = 1.0f / sqrtf((float)d), .q = r->wide_q, .y = r->wide_y});
    copy(e, n * n_heads, d, r->wide_y, W, r->y, d);
}

static void run_layer(const ae_dhead_engine *e, uint32_t i, uint32_t n)
{
    const room *r = e->lattice;
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t M = h->lattice.width;
    const ae_dhead_net_lattice *w = &e->net->lattice;
    linear(e, &w->layers[i].q, n, r->x, M, w->layers[i].attn_norm, r->q, M, false);
    linear(e, &w->layers[i].k, n, r->x, M, w->layers[i].attn_norm, r->k, M, false);
    linear(e, &w->layers[i].v, n, r->x, M, w->layers[i].attn_norm, r->v, M, false);
    attend(e, i, n);
    linear(e, &w->layers[i].o, n, r->y, M, NULL, r->x, M, true);
    linear(e, &w->layers[i].up, n, r->x, M, w->layers[i].ffn_norm, r->up, h->lattice.n_ff, false);
    linear_of_silu(e, &w->layers[i].down, n, r->up, h->lattice.n_ff, r->x, M, true);
}

/* Computes the vectors out and in of all nodes, and `out` of the newest tokens. */
static void put_factors(const ae_dhead_engine *e, uint32_t n_seqs)
{
    const room *r = e->lattice;
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const ae_backend_ops *ops = e->backend->ops;
    const ae_dhead_net_lattice *w = &e->net->lattice;
    const uint32_t n = n_seqs * r->n_nodes, M = h->lattice.width, E = h->layer.n_embd, F = h->lattice.n_factors;
    ops->copy(e->stream, &(ae_copy){.n = n_seqs, .dim = E, .x = e->anchors, .x_stride = E, .rows = r->anchors, .y = r->anchor,
                                    .y_stride = E});
    linear(e, &w->context, n_seqs, r->anchor, E, NULL, r->context, M, false);
    ae_norm norm = {.n_rows = n_seqs, .n_groups = 1, .dim = M, .x = r->context, .x_stride = M, .weight = w->context_norm,
                    .eps = h->layer.norm_eps};
    ops->norm(e->stream, &norm);
    norm.n_rows = n, norm.x = r->x, norm.weight = w->out_norm;
    ops->norm(e->stream, &norm);
    copy(e, n, M, r->x, M, r->joint, 3 * (size_t)M);
    ops->copy(e->stream, &(ae_copy){.n = n, .dim = M, .x = r->context, .x_stride = M, .rows = r->seq, .y = r->joint + M,
                                    .y_stride = 3 * (size_t)M});
    copy(e, n, M, r->x, M, r->joint + 2 * (size_t)M, 3 * (size_t)M);
    ops->map(e->stream, &(ae_map){.kind = AE_MAP_TIMES, .n_rows = n, .dim = M, .x = r->joint + 2 * (size_t)M,
                                  .x_stride = 3 * (size_t)M, .x2 = r->joint + M, .x2_stride = 3 * (size_t)M});
    linear(e, &w->factors, n, r->joint, 3 * M, NULL, r->z, M, false);
    linear_of_silu(e, &w->out, n, r->z, M, r->out, F, false);
    linear_of_silu(e, &w->in, n, r->z, M, r->in, F, false);
    linear(e, &w->first, n_seqs, r->context, M, NULL, r->first, F, false);
}

/* Lists tokens and features of all candidates. A row with fewer candidates is filled with any token. */
static void tell(room *r, const ae_dhead_hparams *h, const ae_proposal *rows, uint32_t n_rows)
{
    const uint32_t k = h->n_candidates;
    for (uint32_t i = 0; i < n_rows * k; i++) {
        const ae_proposal *p = &rows[i / k];
        const uint32_t c = i % k;
        const float top = p->n && p->p[0] > LEAST_P ? p->p[0] : LEAST_P;
        const float own = c < p->n && p->p[c] > LEAST_P ? p->p[c] : LEAST_P;
        const float log_p = (float)ae_log((double)own);
        float *phi = r->features_host + (size_t)i * 5;
        r->tokens_host[i] = c < p->n ? p->id[c] : 0;
        phi[0] = log_p, phi[1] = own, phi[2] = log_p - (float)ae_log((double)top);
        phi[3] = k > 1 ? (float)c / (float)(k - 1) : 0, phi[4] = c == 0;
    }
}

/* Scales vectors to length `scale`; one that is shorter than eps is divided by eps instead of its length. */
static void stretch(float *x, size_t n, uint32_t dim, float eps, float scale)
{
    for (size_t i = 0; i < n; i++, x += dim) {
        float sum = 0;
        for (uint32_t j = 0; j < dim; j++) sum += x[j] * x[j];
        const float length = sqrtf(sum), factor = scale / (length > eps ? length : eps);
        for (uint32_t j = 0; j < dim; j++) x[j] *= factor;
    }
}

uint32_t ae_dhead_lattice_most(const ae_dhead_engine *e)
{
    return e->lattice ? e->lattice->n_seqs : 0;
}

aerie_status ae_dhead_run_lattice(ae_dhead_engine *e, const uint32_t *seqs, uint32_t n, uint32_t out,
                                  const ae_proposal *candidates, ae_dhead_pairs *pairs, aerie_error *error)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const ae_backend_ops *ops = e->backend->ops;
    room *r = e->lattice;
    const uint32_t n_rows = n * n_rows_of(h), F = h->lattice.n_factors;
    if (!n || n > ae_dhead_lattice_most(e) || out + n_rows > e->n_outputs)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "candidates of %u sequences are to be scored, of %u at once; please report",
                       n, ae_dhead_lattice_most(e));
    const uint32_t n_nodes = n * r->n_nodes;
    const uint64_t more[] = {n, out};
    tell(r, h, candidates, n_rows);
    ops->upload(e->stream, r->tokens, r->tokens_host, n_nodes * sizeof *r->tokens);
    ops->upload(e->stream, r->features, r->features_host, (size_t)n_nodes * 5 * sizeof *r->features);
    ops->upload(e->stream, r->anchors, seqs, n * sizeof *seqs);
    if (ae_dhead_pass_begin(e, AE_DHEAD_LATTICE, ae_hash64(0, more, sizeof more))) {
        begin_nodes(e, e->hidden + (size_t)out * h->layer.n_embd, n);
        for (uint32_t i = 0; i < h->lattice.n_layers; i++) run_layer(e, i, n_nodes);
        put_factors(e, n);
        ops->pass_end(e->stream);
    }
    ops->download(e->stream, r->before, r->first, (size_t)n * F * sizeof(float));
    ops->download(e->stream, r->before + (size_t)n * F, r->out, (size_t)n_nodes * F * sizeof(float));
    ops->download(e->stream, r->after, r->in, (size_t)n_nodes * F * sizeof(float));
    AE_TRY(ae_dhead_sync(e, error));
    stretch(r->before, n + n_nodes, F, h->lattice.vector_eps, h->lattice.scale);
    stretch(r->after, n_nodes, F, h->lattice.vector_eps, 1.0f);
    *pairs = (ae_dhead_pairs){F, NULL, r->before, r->after};
    return AERIE_OK;
}
