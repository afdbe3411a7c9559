/* tower.c - a vision encoder's weights and passes (tower.h). Sizes and text: tower_plan.c. */
#include "engine/tower.h"

#include <math.h>
#include <string.h>

#include "base/math/fmath.h"
#include "engine/block.h"
#include "engine/rows.h"

struct ae_tower {
    ae_tower_model *model;
    ae_backend *backend;
    ae_pool *pool;
    ae_parts parts;
    ae_net_layer *layers;
    ae_weight *patches, *merger, *project, *project2;
    float *patch_bias, *positions, *pre_norm, *pre_norm_b, *post_norm, *post_norm_b, *in_norm, *project_b, *project2_b, *ones;
    float *row_break;      /* (host) [n_out], or NULL */
    float colour[3][256];  /* (host) a channel's values, normalised */
    /* for n_most patches */
    uint32_t n_most, n_tokens;
    ae_stream *stream;
    ae_kv *kv;
    void *host, *device;
    size_t device_bytes;
    ae_rows rows, on_device;
    ae_block block;
    float *pixels;         /* [n_most][3 * patch * patch] (device) */
    float *cos, *sin;      /* [n_most][head_dim / 2] (device) by AE_TOWER_ANY */
    float *merged, *hidden, *out; /* (device) [n_tokens][...] what the projector takes, has between two matrices, and gives */
    float *pixels_host, *x_host, *merged_host, *angles_host; /* (host) */
};

const ae_tower_model *ae_tower_model_of(const ae_tower *tower)
{
    return tower->model;
}

/* ---- Weights --------------------------------------------------------------------------------------------------- */

static void list_parts(ae_tower *t)
{
    ae_tower_model *m = t->model;
    ae_parts *p = &t->parts;
    ae_parts_weight(p, &m->patch_view, AE_WEIGHT_MATMUL, &t->patches);
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        t->layers[i].index = i;
        ae_net_list_layer(p, &m->hparams, &m->layers[i], NULL, &t->layers[i]);
    }
    ae_parts_vector(p, m->patch_bias, &t->patch_bias);
    ae_parts_vector(p, m->positions, &t->positions);
    ae_parts_vector(p, m->pre_norm, &t->pre_norm);
    ae_parts_vector(p, m->pre_norm_b, &t->pre_norm_b);
    ae_parts_vector(p, m->post_norm, &t->post_norm);
    ae_parts_vector(p, m->post_norm_b, &t->post_norm_b);
    ae_parts_vector(p, m->in_norm, &t->in_norm);
    ae_parts_weight(p, m->merger, AE_WEIGHT_MATMUL, &t->merger);
    if (m->type->merge == AE_TOWER_POOL) ae_parts_transposed(p, m->project, 0, m->hparams.n_embd, &t->project);
    else ae_parts_weight(p, m->project, AE_WEIGHT_MATMUL, &t->project);
    ae_parts_vector(p, m->project_b, &t->project_b);
    ae_parts_weight(p, m->project2, AE_WEIGHT_MATMUL, &t->project2);
    ae_parts_vector(p, m->project2_b, &t->project2_b);
    ae_parts_ones(p, AE_MAX_HEAD_DIM, &t->ones);
}

static aerie_status load_weights(ae_tower *t, const ae_load_options *options, aerie_error *error)
{
    const ae_hparams *h = &t->model->hparams;
    t->layers = ae_alloc(h->n_layers, sizeof *t->layers);
    if (!t->layers) return ae_fail_memory(error, "the weight tables", h->n_layers * sizeof *t->layers);
    AE_TRY(ae_parts_init(&t->parts, t->backend, t->model->gguf, NULL, 16 + (size_t)AE_NET_PARTS_PER_LAYER * h->n_layers,
                         error));
    list_parts(t);
    ae_parts_place(&t->parts, options->in_place);
    AE_TRY(ae_parts_create(&t->parts, error));
    AE_TRY(ae_parts_fill(&t->parts, options, error));
    if (!t->model->row_break) return AERIE_OK;
    t->row_break = ae_alloc(t->model->n_out, sizeof *t->row_break);
    if (!t->row_break) return ae_fail_memory(error, "a row", t->model->n_out * sizeof *t->row_break);
    const ae_model reader = {.gguf = t->model->gguf};
    return ae_model_read_f32(&reader, t->model->row_break, t->row_break, t->model->n_out, error);
}

/* ---- Room ------------------------------------------------------------------------------------------------------ */

static uint32_t patch_floats(const ae_tower_model *m)
{
    return 3 * m->patch * m->patch;
}

/* Floats of a token when its patches are merged. */
static uint32_t merged_floats(const ae_tower_model *m)
{
    return m->hparams.n_embd * (m->type->merge == AE_TOWER_POOL ? 1 : m->merge * m->merge);
}

static void device_layout(ae_layout *l, ae_tower *t)
{
    const ae_tower_model *m = t->model;
    const ae_hparams *h = &m->hparams;
    const size_t n = t->n_most, n_tokens = t->n_tokens;
    ae_rows_layout(l, n, 1, AE_ROWS_ENCODER, &t->on_device);
    ae_block_layout(l, h, m->layers, h->n_layers, n, &t->block);
    t->pixels = ae_layout_add(l, n * patch_floats(m), sizeof(float));
    t->cos = ae_layout_add(l, h->n_ropes ? n * (h->head_dim / 2) : 0, sizeof(float));
    t->sin = ae_layout_add(l, h->n_ropes ? n * (h->head_dim / 2) : 0, sizeof(float));
    t->merged = ae_layout_add(l, n_tokens * merged_floats(m), sizeof(float));
    t->hidden = ae_layout_add(l, m->project2 ? n_tokens * (m->n_out > h->n_embd ? m->n_out : h->n_embd) : 0, sizeof(float));
    t->out = ae_layout_add(l, n_tokens * m->n_out, sizeof(float));
}

static void host_layout(ae_layout *l, ae_tower *t)
{
    const ae_tower_model *m = t->model;
    const size_t n = t->n_most, widest = m->n_out > merged_floats(m) ? m->n_out : merged_floats(m);
    ae_rows_layout(l, n, 1, AE_ROWS_ENCODER, &t->rows);
    t->pixels_host = ae_layout_add(l, n * patch_floats(m), sizeof(float));
    t->x_host = ae_layout_add(l, n * m->hparams.n_embd, sizeof(float));
    t->merged_host = ae_layout_add(l, t->n_tokens * widest, sizeof(float));
    t->angles_host = ae_layout_add(l, m->hparams.n_ropes ? 2 * n * (m->hparams.head_dim / 2) : 0, sizeof(float));
}

static aerie_status make_room(ae_tower *t, aerie_error *error)
{
    const ae_tower_model *m = t->model;
    const ae_hparams *h = &m->hparams;
    ae_layout l = {0};
    host_layout(&l, t);
    t->host = l.overflow ? NULL : ae_alloc_aligned(1, l.bytes);
    if (!t->host) return ae_fail_memory(error, "the pixels of a vision encoder", l.bytes);
    l = (ae_layout){.base = t->host};
    host_layout(&l, t);
    l = (ae_layout){0};
    device_layout(&l, t);
    t->device_bytes = l.bytes;
    t->device = l.overflow ? NULL : t->backend->ops->alloc(t->backend, l.bytes);
    if (!t->device) return ae_fail_memory(error, "the activations of a vision encoder", l.bytes);
    l = (ae_layout){.base = t->device};
    device_layout(&l, t);
    const uint32_t widths[] = {ae_block_max_in(h, m->layers, h->n_layers), patch_floats(m), merged_floats(m), m->n_out};
    uint32_t widest = 0;
    for (int i = 0; i < 4; i++) widest = widths[i] > widest ? widths[i] : widest;
    const ae_stream_options stream = {.n_threads = ae_pool_n_workers(t->pool), .max_rows = t->n_most, .max_in = widest,
                                      .pool = t->pool};
    AE_TRY(t->backend->ops->stream_create(t->backend, &stream, &t->stream, error));
    const ae_kv_layer layer = {h->n_kv_heads, h->head_dim, 0};
    const ae_kv_options kv = {.n_layers = 1, .layers = &layer, .n_seqs = 1, .n_slots = t->n_most, .type = AE_KV_F16,
                              .n_batch = t->n_most};
    return ae_kv_create(&t->kv, t->backend, &kv, error);
}

/* The most patches that a view has. */
static uint32_t most_patches(const ae_tower_model *m)
{
    const uint32_t unit = m->patch * m->merge, side = (m->image_size + unit - 1) / unit * m->merge;
    return side * side;
}

aerie_status ae_tower_create(ae_tower **out, ae_tower_model *model, ae_backend *backend, const ae_load_options *options,
                             ae_pool *pool, aerie_error *error)
{
    *out = NULL;
    ae_tower *t = ae_alloc(1, sizeof *t);
    if (!t) {
        ae_tower_model_free(model);
        return ae_fail_memory(error, "a vision encoder", sizeof *t);
    }
    t->model = model;
    t->backend = backend;
    t->pool = pool;
    t->n_most = most_patches(model);
    t->n_tokens = t->n_most / (model->merge * model->merge);
    for (int c = 0; c < 3; c++)
        for (int u = 0; u < 256; u++) t->colour[c][u] = (float)((u / 255.0 - (double)model->mean[c]) / (double)model->std[c]);
    aerie_status status = load_weights(t, options, error);
    if (status == AERIE_OK) status = make_room(t, error);
    if (status == AERIE_OK) *out = t;
    else ae_tower_free(t);
    return status;
}

void ae_tower_free(ae_tower *t)
{
    if (!t) return;
    ae_kv_free(t->kv);
    if (t->stream) t->backend->ops->stream_free(t->stream);
    if (t->device) t->backend->ops->free(t->backend, t->device, t->device_bytes);
    ae_parts_free(&t->parts);
    ae_free(t->row_break);
    ae_free(t->layers);
    ae_free(t->host);
    ae_tower_model_free(t->model);
    ae_free(t);
}

/* ---- On the host ----------------------------------------------------------------------------------------------- */

/* Patches by row, in each channel, y, x. */
static void cut_patches(ae_tower *t, const ae_image *view)
{
    const uint32_t p = t->model->patch, across = view->width / p, down = view->height / p;
    float *out = t->pixels_host;
    for (uint32_t py = 0; py < down; py++)
        for (uint32_t px = 0; px < across; px++)
            for (uint32_t c = 0; c < 3; c++)
                for (uint32_t y = 0; y < p; y++) {
                    const uint8_t *u = view->rgb + (((size_t)(py * p + y)) * view->width + (size_t)px * p) * 3 + c;
                    for (uint32_t x = 0; x < p; x++, u += 3) *out++ = t->colour[c][*u];
                }
}

/* The first half of a head's pairs turns with the row, the other half with the column. */
static void turn_angles(ae_tower *t, uint32_t across, uint32_t n)
{
    const ae_rope *rope = &t->model->hparams.ropes[0];
    const uint32_t half = rope->n_rot / 2, quarter = half / 2;
    float *c = t->angles_host, *s = c + (size_t)n * half;
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t i = 0; i < half; i++) {
            const uint32_t k = i < quarter ? 2 * i : 2 * (i - quarter) + 1; /* even frequencies, then odd ones */
            const double f = ae_pow((double)rope->base, -2.0 * k / rope->n_rot);
            double sine, cosine;
            ae_sincos((i < quarter ? r / across : r % across) * f, &sine, &cosine);
            *c++ = (float)cosine;
            *s++ = (float)sine;
        }
}

/* x_host [n][n_embd] becomes merged_host, token after token. */
static void merge_patches(ae_tower *t, uint32_t across, uint32_t down)
{
    const uint32_t m = t->model->merge, e = t->model->hparams.n_embd, n = merged_floats(t->model);
    const ae_tower_merge how = t->model->type->merge;
    float *out = t->merged_host;
    for (uint32_t ty = 0; ty < down / m; ty++)
        for (uint32_t tx = 0; tx < across / m; tx++, out += n) {
            for (uint32_t i = 0; how == AE_TOWER_POOL && i < e; i++) out[i] = 0;
            for (uint32_t k = 0; k < m * m; k++) {
                const float *x = t->x_host + ((size_t)(ty * m + k / m) * across + (size_t)tx * m + k % m) * e;
                for (uint32_t i = 0; i < e; i++) {
                    if (how == AE_TOWER_POOL) out[i] = fmaf(1.0f / (float)(m * m), x[i], out[i]);
                    else out[how == AE_TOWER_SHUFFLE ? k * e + i : i * m * m + k] = x[i];
                }
            }
        }
}

/* erf by its series, whose terms are all positive: 2 / sqrt(pi) * e^-x^2 * sum of 2^n x^(2n + 1) / (1 * 3 * ... (2n + 1)). */
static double erf_of(double x)
{
    const double a = fabs(x);
    double term = a, sum = a;
    if (a > 6) return x < 0 ? -1 : 1;
    for (int n = 1; n < 200 && term > sum * 1e-17; n++) sum += term *= 2 * a * a / (2 * n + 1);
    const double y = 1.12837916709551257390 * ae_exp(-a * a) * sum;
    return x < 0 ? -y : y;
}

static void gelu(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)(0.5 * (double)x[i] * (1 + erf_of((double)x[i] * 0.70710678118654752440)));
}

/* ---- On the device --------------------------------------------------------------------------------------------- */

static aerie_status upload_rows(ae_tower *t, uint32_t n, aerie_error *error)
{
    AE_TRY(ae_kv_reserve(t->kv, t->stream, 0, n, error));
    for (uint32_t r = 0; r < n; r++) {
        t->rows.token[r] = t->rows.seq[r] = t->rows.type[r] = 0;
        t->rows.pos[r] = t->rows.slot[r] = (int32_t)r;
        t->rows.parent[r] = (int32_t)r - 1;
        t->rows.n_inplace[r] = (int32_t)n;
        t->rows.last[r] = (int32_t)n - 1;
    }
    ae_rows_upload(&t->rows, &t->on_device, n, 0, t->kv, t->backend->ops, t->stream);
    return AERIE_OK;
}

static void product(ae_tower *t, uint32_t n, const float *x, uint32_t n_in, const float *norm, const ae_weight *w,
                    const float *bias, float *y, uint32_t n_out)
{
    ae_matmul m = {.n_rows = n, .input = norm ? AE_INPUT_RMSNORM : AE_INPUT_PLAIN, .x = x, .x_stride = n_in, .norm = norm,
                   .norm_eps = t->model->hparams.norm_eps, .n_weights = 1, .out = {{w, bias, y, n_out, false}}};
    t->backend->ops->matmul(t->stream, &m);
}

static void norm_rows(ae_tower *t, uint32_t n, const float *weight, const float *bias)
{
    const ae_hparams *h = &t->model->hparams;
    if (!weight) return;
    t->backend->ops->norm(t->stream, &(ae_norm){.n_rows = n, .n_groups = 1, .dim = h->n_embd, .x = t->block.x,
                                                .x_stride = h->n_embd, .weight = weight, .eps = h->norm_eps,
                                                .layer = h->layer_norm, .bias = bias});
}

/* One step of a view: the start of its stream, a block, or what comes after the last one. The pool is held for it. */
static aerie_status begin_view(ae_tower *t, const ae_image *view, uint32_t n, aerie_error *error)
{
    const ae_hparams *h = &t->model->hparams;
    const ae_backend_ops *ops = t->backend->ops;
    const size_t bytes = (size_t)n * patch_floats(t->model) * sizeof(float);
    cut_patches(t, view);
    ae_pool_hold(t->pool);
    aerie_status status = upload_rows(t, n, error);
    if (status == AERIE_OK) {
        ops->upload(t->stream, t->pixels, t->pixels_host, bytes);
        product(t, n, t->pixels, patch_floats(t->model), NULL, t->patches, t->patch_bias, t->block.x, h->n_embd);
        if (t->positions) ops->axpy(t->stream, &(ae_axpy){n, h->n_embd, 1.0f, t->positions, h->n_embd, t->block.x, h->n_embd});
        norm_rows(t, n, t->pre_norm, t->pre_norm_b);
        if (h->n_ropes) {
            const size_t angles = (size_t)n * (h->head_dim / 2);
            turn_angles(t, view->width / t->model->patch, n);
            ops->upload(t->stream, t->cos, t->angles_host, angles * sizeof(float));
            ops->upload(t->stream, t->sin, t->angles_host + angles, angles * sizeof(float));
        }
        status = ops->sync(t->stream, error);
    }
    ae_pool_release(t->pool);
    return status;
}

static aerie_status run_block(ae_tower *t, uint32_t i, uint32_t n, aerie_error *error)
{
    ae_places places = ae_rows_places(&t->on_device, n, t->kv);
    ae_block block = t->block;
    places.last = t->on_device.last;
    block.ops = t->backend->ops, block.stream = t->stream, block.h = &t->model->hparams;
    block.places = block.part_places = &places, block.kv = ae_kv_pages(t->kv);
    block.n_rows = n, block.ones = t->ones, block.cos = &t->cos, block.sin = &t->sin;
    ae_pool_hold(t->pool);
    ae_block_layer(&block, &t->model->layers[i].spec, &t->layers[i]);
    const aerie_status status = t->backend->ops->sync(t->stream, error);
    ae_pool_release(t->pool);
    return status;
}

/* Tokens of the view, to t->merged_host [n_tokens][n_out]. */
static void project(ae_tower *t, uint32_t across, uint32_t down)
{
    const ae_tower_model *m = t->model;
    const ae_backend_ops *ops = t->backend->ops;
    const uint32_t e = m->hparams.n_embd, k = m->merge * m->merge, n_tokens = across * down / k, width = merged_floats(m);
    const bool unfold = m->type->merge == AE_TOWER_UNFOLD;
    norm_rows(t, across * down, t->post_norm, t->post_norm_b);
    if (unfold) norm_rows(t, across * down, t->in_norm, NULL);
    ops->download(t->stream, t->x_host, t->block.x, (size_t)across * down * e * sizeof(float));
    merge_patches(t, across, down);
    ops->upload(t->stream, t->merged, t->merged_host, (size_t)n_tokens * width * sizeof(float));
    if (unfold) {
        const float *x = t->merged;
        if (t->merger) product(t, n_tokens, x, width, NULL, t->merger, NULL, t->block.x, e), x = t->block.x;
        product(t, n_tokens, x, e, NULL, t->project, t->project_b, t->hidden, m->n_out);
        ops->download(t->stream, t->merged_host, t->hidden, (size_t)n_tokens * m->n_out * sizeof(float));
        gelu(t->merged_host, (size_t)n_tokens * m->n_out);
        ops->upload(t->stream, t->hidden, t->merged_host, (size_t)n_tokens * m->n_out * sizeof(float));
        product(t, n_tokens, t->hidden, m->n_out, NULL, t->project2, t->project2_b, t->out, m->n_out);
    } else {
        product(t, n_tokens, t->merged, width, t->in_norm, t->project, t->project_b, t->out, m->n_out);
    }
    ops->download(t->stream, t->merged_host, t->out, (size_t)n_tokens * m->n_out * sizeof(float));
}

/* The tokens, with a row break after each line but the last. */
static void give_rows(const ae_tower *t, uint32_t across, uint32_t down, float *rows)
{
    const size_t n_out = t->model->n_out;
    for (uint32_t y = 0; y < down; y++) {
        memcpy(rows, t->merged_host + (size_t)y * across * n_out, across * n_out * sizeof *rows);
        rows += across * n_out;
        if (!t->row_break || y + 1 == down) continue;
        memcpy(rows, t->row_break, n_out * sizeof *rows);
        rows += n_out;
    }
}

typedef struct told {
    ae_tower_progress *call;
    void *user;
    uint64_t done, total;
} told;

static aerie_status tell(told *p, aerie_error *error)
{
    p->done++;
    if (!p->call || p->call(p->user, p->done, p->total)) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_CANCELLED, "the caller asked to stop while a picture was read");
}

static aerie_status run_view(ae_tower *t, const ae_image *view, float *rows, told *p, aerie_error *error)
{
    const ae_tower_model *m = t->model;
    const uint32_t across = view->width / m->patch, down = view->height / m->patch, n = across * down;
    if (n > t->n_most || !n)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "%u patches for a vision encoder of %u; please report", n, t->n_most);
    AE_TRY(begin_view(t, view, n, error));
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        AE_TRY(run_block(t, i, n, error));
        AE_TRY(tell(p, error));
    }
    ae_pool_hold(t->pool);
    project(t, across, down);
    const aerie_status status = t->backend->ops->sync(t->stream, error);
    ae_pool_release(t->pool);
    if (status != AERIE_OK) return status;
    for (size_t i = 0; i < (size_t)n / (m->merge * m->merge) * m->n_out; i++)
        if (!isfinite(t->merged_host[i]))
            return ae_fail(error, AERIE_ERROR_FORMAT,
                           "the vision encoder gave a number that is not finite: its weights overflow; "
                           "another file of it is needed");
    give_rows(t, across / m->merge, down / m->merge, rows);
    return AERIE_OK;
}

static ae_image_filter filter_of(const ae_tower_type *type)
{
    return type->lanczos ? AE_IMAGE_LANCZOS : type->bicubic ? AE_IMAGE_BICUBIC : AE_IMAGE_BILINEAR;
}

/* View i of a picture that has the plan's size. */
static aerie_status take_view(const ae_tower *t, const ae_image *whole, const ae_tower_plan *plan, uint32_t i, ae_image *view,
                              aerie_error *error)
{
    const uint32_t w = plan->view_width, h = plan->view_height;
    if (plan->n_across && i + 1 < plan->n_views)
        return ae_image_crop(view, whole, i % plan->n_across * w, i / plan->n_across * h, w, h, error);
    return ae_image_resize(view, whole, w, h, filter_of(t->model->type), error);
}

/* What is drawn on: tiles are cut out of a picture that went through the longest side first. */
static aerie_status resize_whole(const ae_tower *t, const ae_image *image, const ae_tower_plan *plan, ae_image *whole,
                                 aerie_error *error)
{
    const ae_image_filter filter = filter_of(t->model->type);
    uint32_t w = plan->width, h = plan->height;
    if (t->model->type->size != AE_TOWER_TILES) return ae_image_resize(whole, image, w, h, filter, error);
    ae_image longest = {0};
    ae_tower_longest(t->model, image->width, image->height, &w, &h);
    AE_TRY(ae_image_resize(&longest, image, w, h, filter, error));
    const aerie_status status = ae_image_resize(whole, &longest, plan->width, plan->height, filter, error);
    ae_image_free(&longest);
    return status;
}

aerie_status ae_tower_run(ae_tower *t, const ae_image *image, const ae_tower_plan *plan, float *rows,
                          ae_tower_progress *progress, void *user, aerie_error *error)
{
    told p = {progress, user, 0, (uint64_t)plan->n_views * t->model->hparams.n_layers};
    ae_image whole = {0};
    AE_TRY(resize_whole(t, image, plan, &whole, error));
    aerie_status status = AERIE_OK;
    for (uint32_t i = 0; i < plan->n_views && status == AERIE_OK; i++) {
        ae_image view = {0};
        status = take_view(t, &whole, plan, i, &view, error);
        if (status == AERIE_OK) status = run_view(t, &view, rows + (size_t)i * plan->n_rows * t->model->n_out, &p, error);
        ae_image_free(&view);
        (void)ae_kv_truncate(t->kv, 0, 0); /* to nothing: cannot fail */
    }
    ae_image_free(&whole);
    return status;
}
