/* tower.c - a vision encoder's weights, its working memory, and the order in which a view is computed (int.h). Sizes and text
 * are in plan.c. */
#include "engine/tower.h"
#include "backend/alloc_fail.h"

#include <math.h>
#include <string.h>

#include "engine/tower/int.h"

const ae_tower_model *ae_tower_model_of(const ae_tower *tower)
{
    return tower->model;
}

/* ---- Weights --------------------------------------------------------------------------------------------------- */

static void list_block(ae_tower *t, uint32_t i)
{
    const ae_tower_block *from = &t->model->blocks[i];
    tower_block *to = &t->blocks[i];
    ae_parts *p = &t->parts;
    t->layers[i].index = i;
    ae_net_list_layer(p, &t->model->hparams, &t->model->layers[i], NULL, &t->layers[i]);
    ae_parts_vector(p, from->scale[0], &to->scale[0]);
    ae_parts_vector(p, from->scale[1], &to->scale[1]);
    ae_parts_vector(p, from->out_scale, &to->out_scale);
    ae_parts_vector(p, from->deep_norm, &to->deep_norm);
    ae_parts_vector(p, from->deep_norm_b, &to->deep_norm_b);
    ae_parts_vector(p, from->deep_1_b, &to->deep_1_b);
    ae_parts_vector(p, from->deep_2_b, &to->deep_2_b);
    ae_parts_weight(p, from->deep_1, AE_WEIGHT_MATMUL, &to->deep_1);
    ae_parts_weight(p, from->deep_2, AE_WEIGHT_MATMUL, &to->deep_2);
}

static void list_resampler(ae_tower *t)
{
    const ae_tower_resampler *r = &t->model->resampler;
    ae_parts *p = &t->parts;
    ae_parts_vector(p, r->query, &t->resampler.query);
    ae_parts_weight(p, r->narrow, AE_WEIGHT_MATMUL, &t->resampler.narrow);
    for (int i = 0; i < 3; i++) {
        ae_parts_vector(p, r->norm[i], &t->resampler.norm[i]);
        ae_parts_vector(p, r->norm_b[i], &t->resampler.norm_b[i]);
    }
    for (int i = 0; i < 4; i++) {
        ae_parts_weight(p, r->w[i], AE_WEIGHT_MATMUL, &t->resampler.w[i]);
        ae_parts_vector(p, r->b[i], &t->resampler.b[i]);
    }
}

static void list_parts(ae_tower *t)
{
    ae_tower_model *m = t->model;
    ae_parts *p = &t->parts;
    const struct {
        ae_tensor_ref from;
        float **to;
    } vectors[] = {{m->patch_bias, &t->patch_bias}, {m->cls, &t->cls}, {m->pre_norm, &t->pre_norm},
                   {m->start_norm, &t->start_norm}, {m->start_norm_b, &t->start_norm_b}, {m->patch_norm_b, &t->patch_norm_b},
                   {m->merger_b, &t->merger_b}, {m->gated_norm, &t->gated_norm}, {m->gated_norm_b, &t->gated_norm_b},
                   {m->gated_b[0], &t->gated_b[0]}, {m->gated_b[1], &t->gated_b[1]}, {m->gated_b[2], &t->gated_b[2]},
                   {m->pre_norm_b, &t->pre_norm_b}, {m->post_norm, &t->post_norm}, {m->post_norm_b, &t->post_norm_b},
                   {m->patch_norm, &t->patch_norm}, {m->norm, &t->norm}, {m->norm_b, &t->norm_b}, {m->std_bias, &t->std_bias},
                   {m->std_scale, &t->std_scale}, {m->project_b, &t->project_b}, {m->project2_b, &t->project2_b},
                   {m->bare_norm[0], &t->bare_norm[0]}, {m->bare_norm[1], &t->bare_norm[1]},
                   {m->bare_norm[2], &t->bare_norm[2]}, {m->bare_norm_b[0], &t->bare_norm_b[0]},
                   {m->bare_norm_b[1], &t->bare_norm_b[1]}, {m->bare_norm_b[2], &t->bare_norm_b[2]},
                   {m->type->positions == AE_TOWER_POS_TABLE ? m->positions : NULL, &t->positions}};
    ae_parts_weight(p, &m->patch_view, AE_WEIGHT_MATMUL, &t->patches);
    if (m->type->frames) ae_parts_weight(p, &m->frame_view, AE_WEIGHT_MATMUL, &t->frame);
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) list_block(t, i);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) ae_parts_vector(p, vectors[i].from, vectors[i].to);
    ae_parts_weight(p, m->merger, AE_WEIGHT_MATMUL, &t->merger);
    for (int i = 0; i < 3; i++) ae_parts_weight(p, m->gated[i], AE_WEIGHT_MATMUL, &t->gated[i]);
    if (m->type->size == AE_TOWER_SQUARE) ae_parts_transposed(p, m->project, 0, m->hparams.n_embd, &t->project);
    else ae_parts_weight(p, m->project, AE_WEIGHT_MATMUL, &t->project);
    ae_parts_weight(p, m->project2, AE_WEIGHT_MATMUL, &t->project2);
    list_resampler(t);
    ae_parts_ones(p, m->hparams.n_embd > AE_MAX_HEAD_DIM ? m->hparams.n_embd : AE_MAX_HEAD_DIM, &t->ones);
}

static aerie_status read_host(const ae_tower *t, ae_tensor_ref tensor, size_t n, float **out, aerie_error *error)
{
    const ae_model reader = {.gguf = t->model->gguf};
    if (!tensor) return AERIE_OK;
    *out = ae_alloc(n, sizeof **out);
    if (!*out) return ae_fail_memory(error, "a table of a vision encoder", n * sizeof **out);
    AE_TRY(ae_model_read_f32(&reader, tensor, *out, n, error));
    for (size_t i = 0; i < n; i++)
        if (!isfinite((*out)[i]))
            return ae_fail(error, AERIE_ERROR_FORMAT, "%s: tensor %.*s has a number that is not finite",
                           ae_gguf_path(t->model->gguf), (int)tensor->name.n, tensor->name.data);
    return AERIE_OK;
}

/* Puts the norms of heads into the order of rotated heads (block.c). */
static aerie_status turn_norms(ae_tower *t, aerie_error *error)
{
    const ae_hparams *h = &t->model->hparams;
    const uint32_t d = h->head_dim, quarter = d / 4;
    static const uint8_t order[] = {0, 2, 1, 3};
    if (t->model->type->turn != AE_TOWER_TURN_XY) return AERIE_OK;
    t->turned_norms = t->backend->ops->alloc(t->backend, 2 * (size_t)h->n_layers * d * sizeof(float));
    if (!t->turned_norms)
        return ae_fail_memory(error, "norms of a vision encoder", 2 * (size_t)h->n_layers * d * sizeof(float));
    for (uint32_t i = 0; i < 2 * h->n_layers; i++) {
        const ae_layer *l = &t->model->layers[i / 2];
        float *from = NULL, turned[AE_MAX_HEAD_DIM];
        aerie_status status = read_host(t, i % 2 ? l->k_norm : l->q_norm, d, &from, error);
        for (uint32_t k = 0; status == AERIE_OK && k < d; k++) turned[k] = from[order[k / quarter] * quarter + k % quarter];
        ae_free(from);
        float *to = t->turned_norms + (size_t)i * d;
        if (status == AERIE_OK) status = t->backend->ops->fill(t->backend, to, turned, d * sizeof *turned, error);
        if (status != AERIE_OK) return status;
        *(i % 2 ? &t->blocks[i / 2].k_norm : &t->blocks[i / 2].q_norm) = to;
    }
    return AERIE_OK;
}

/* Returns the floats of the learned positions from which the host computes those of a view; 0: it does not. */
static size_t n_table_floats(const ae_tower_model *m)
{
    if (!m->positions || m->type->positions == AE_TOWER_POS_TABLE) return 0;
    return (size_t)m->n_positions * m->hparams.n_embd * (m->type->positions == AE_TOWER_POS_AXES ? 2 : 1);
}

/* Lists the parts and finds their places. */
static aerie_status place_weights(ae_tower *t, const ae_load_options *options, aerie_error *error)
{
    const ae_tower_model *m = t->model;
    const ae_hparams *h = &m->hparams;
    t->layers = ae_alloc(h->n_layers + 1, sizeof *t->layers);
    t->blocks = ae_alloc(h->n_layers + 1, sizeof *t->blocks);
    if (!t->layers || !t->blocks) return ae_fail_memory(error, "the weight tables", h->n_layers * sizeof *t->layers);
    AE_TRY(ae_parts_init(&t->parts, t->backend, m->gguf, NULL, 64 + (size_t)(AE_NET_PARTS_PER_LAYER + 16) * h->n_layers,
                         error));
    list_parts(t);
    ae_parts_place(&t->parts, options->in_place);
    return AERIE_OK;
}

static aerie_status load_weights(ae_tower *t, const ae_load_options *options, aerie_error *error)
{
    const ae_tower_model *m = t->model;
    AE_TRY(place_weights(t, options, error));
    AE_TRY(ae_parts_create(&t->parts, error));
    AE_TRY(ae_parts_fill(&t->parts, options, error));
    AE_TRY(turn_norms(t, error));
    if (n_table_floats(m)) AE_TRY(read_host(t, m->positions, n_table_floats(m), &t->table, error));
    AE_TRY(read_host(t, m->newline, m->n_out, &t->newline, error));
    return read_host(t, m->row_break, m->n_out, &t->row_break, error);
}

/* ---- Room ------------------------------------------------------------------------------------------------------ */

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t n_tokens_of(const ae_tower *t)
{
    if (t->model->n_query) return t->model->n_query;
    return t->n_room / (t->model->merge * t->model->merge);
}

/* Returns whether some product has bounds. */
static bool has_bounds(const ae_tower_model *m)
{
    bool has = m->clamp.set;
    for (uint32_t i = 0; i < m->hparams.n_layers; i++)
        for (int k = 0; k < AE_TOWER_PRODUCTS; k++) has |= m->blocks[i].clamp[k].set;
    return has;
}

/* Returns whether some block norms or scales a half's output before adding it to the stream. */
static bool has_joins(const ae_tower_model *m)
{
    bool has = has_bounds(m);
    for (uint32_t i = 0; i < m->hparams.n_layers; i++)
        has |= m->layers[i].attn_post_norm || m->layers[i].ffn_post_norm || m->blocks[i].scale[0] || m->blocks[i].scale[1];
    return has;
}

/* Lays out arrays that are not needed at the same time in the same memory. */
static void shared_layout(ae_layout *l, ae_tower *t)
{
    const ae_tower_model *m = t->model;
    const ae_hparams *h = &m->hparams;
    const size_t n = t->n_room, n_tokens = n_tokens_of(t), q_dim = (size_t)h->n_heads * h->head_dim, begin = l->bytes;
    const bool joins = has_joins(m), reordered = m->type->turn == AE_TOWER_TURN_XY;
    const bool two = m->project2 || m->n_deep || m->n_gated;
    size_t most;
    t->y = ae_layout_add(l, n * h->n_embd, sizeof(float));
    const size_t after_y = l->bytes;
    t->pixels = ae_layout_add(l, n * tower_patch_floats(m), sizeof(float));
    most = l->bytes;
    l->bytes = joins ? after_y : begin;
    t->q = ae_layout_add(l, n * q_dim, sizeof(float));
    t->k = ae_layout_add(l, n * q_dim, sizeof(float));
    t->v = ae_layout_add(l, n * q_dim, sizeof(float));
    t->attn = reordered ? ae_layout_add(l, n * q_dim, sizeof(float)) : t->k;
    most = l->bytes > most ? l->bytes : most;
    l->bytes = begin;
    const size_t asked = m->n_query ? m->n_out : 0;
    t->wide = ae_layout_add(l, n * asked, sizeof(float));
    t->keys = ae_layout_add(l, n * asked, sizeof(float));
    t->values = ae_layout_add(l, n * asked, sizeof(float));
    t->places = ae_layout_add(l, n * asked, sizeof(float));
    t->asked = ae_layout_add(l, m->n_query * asked, sizeof(float));
    t->found = ae_layout_add(l, m->n_query * asked, sizeof(float));
    t->merged = ae_layout_add(l, n_tokens * tower_merged_floats(m), sizeof(float));
    t->part = ae_layout_add(l, m->type->merge == AE_TOWER_POOL ? n_tokens * h->n_embd : 0, sizeof(float));
    t->hidden = ae_layout_add(l, two ? n_tokens * larger(m->n_mid, tower_merged_floats(m)) : 0, sizeof(float));
    t->out = ae_layout_add(l, n_tokens * m->n_out, sizeof(float));
    l->bytes = l->bytes > most ? l->bytes : most;
}

static void device_layout(ae_layout *l, ae_tower *t)
{
    const ae_tower_model *m = t->model;
    const ae_hparams *h = &m->hparams;
    const size_t n = t->n_room, q_dim = (size_t)h->n_heads * h->head_dim;
    const size_t n_ffn = n < AE_TOWER_FFN_ROWS ? n : AE_TOWER_FFN_ROWS;
    const uint32_t widest = larger(larger(h->n_embd, (uint32_t)q_dim), larger(h->n_ff, tower_merged_floats(m)));
    ae_rows_layout(l, n, 1, AE_ROWS_ENCODER, &t->on_device);
    ae_rows_layout(l, t->n_windows ? n : 0, 1, AE_ROWS_ENCODER, &t->windows);
    ae_rows_layout(l, m->n_query ? n : 0, 1, AE_ROWS_ENCODER, &t->asking);
    t->x = ae_layout_add(l, n * h->n_embd, sizeof(float));
    t->features = ae_layout_add(l, m->n_features > 1 ? n * m->n_features * h->n_embd : 0, sizeof(float));
    t->gate = ae_layout_add(l, m->type->gated ? n_ffn * larger(h->n_ff, m->n_gated) : 0, sizeof(float));
    t->up = ae_layout_add(l, n_ffn * larger(h->n_ff, m->n_gated), sizeof(float));
    t->bounded = ae_layout_add(l, has_bounds(m) ? n_ffn * widest : 0, sizeof(float));
    t->cos = ae_layout_add(l, h->n_ropes ? n * (h->head_dim / 2) : 0, sizeof(float));
    t->sin = ae_layout_add(l, h->n_ropes ? n * (h->head_dim / 2) : 0, sizeof(float));
    shared_layout(l, t);
}

static void host_layout(ae_layout *l, ae_tower *t)
{
    const ae_tower_model *m = t->model;
    const size_t n = t->n_room, n_tokens = n_tokens_of(t);
    ae_rows_layout(l, n, 1, AE_ROWS_ENCODER, &t->rows);
    t->pixels_host = ae_layout_add(l, n * tower_patch_floats(m), sizeof(float));
    t->x_host = ae_layout_add(l, n_table_floats(m) || m->type->merge == AE_TOWER_UNFOLD ? n * m->hparams.n_embd : 0,
                              sizeof(float));
    t->merged_host = ae_layout_add(l, n_tokens * (m->type->merge == AE_TOWER_UNFOLD ? larger(m->n_out, tower_merged_floats(m))
                                                                                    : m->n_out), sizeof(float));
    t->angles_host = ae_layout_add(l, m->hparams.n_ropes ? 2 * n * (m->hparams.head_dim / 2) : 0, sizeof(float));
    t->places_host = ae_layout_add(l, m->n_query ? n * m->n_out : 0, sizeof(float));
    t->deep_host = ae_layout_add(l, m->n_deep * n_tokens * m->n_out, sizeof(float));
    t->order = ae_layout_add(l, n, sizeof *t->order);
    t->place = ae_layout_add(l, n, sizeof *t->place);
    t->chosen = ae_layout_add(l, n, sizeof *t->chosen);
}

static void free_room(ae_tower *t)
{
    ae_kv_free(t->kv);
    ae_kv_free(t->window_kv);
    ae_kv_free(t->asked_kv);
    if (t->stream) t->backend->ops->stream_free(t->stream);
    if (t->device) t->backend->ops->free(t->backend, t->device, t->device_bytes);
    ae_free(t->host);
    t->kv = t->window_kv = t->asked_kv = NULL;
    t->stream = NULL;
    t->device = t->host = NULL;
    t->n_room = t->n_windows = 0;
}

typedef enum room_kv {
    ROOM_BLOCKS,
    ROOM_WINDOWS, /* each window is a sequence */
    ROOM_ASKED,   /* what a resampler's queries attend to */
    ROOM_KINDS,
} room_kv;

static bool has_kv(const ae_tower *t, room_kv kind)
{
    return kind == ROOM_BLOCKS || (kind == ROOM_WINDOWS ? t->n_windows : t->model->n_query) != 0;
}

/* layer: lent while the options are used. */
static ae_kv_options kv_options(const ae_tower *t, ae_kv_layer *layer, room_kv kind)
{
    const ae_tower_model *m = t->model;
    const ae_hparams *h = &m->hparams;
    const uint32_t side = m->window * m->merge;
    *layer = (ae_kv_layer){h->n_kv_heads, h->head_dim, 0, false, false};
    if (kind == ROOM_ASKED) *layer = (ae_kv_layer){m->n_out / AE_TOWER_HEAD, AE_TOWER_HEAD, 0, false, false};
    ae_kv_options kv = {.n_layers = 1, .layers = layer, .n_seqs = 1, .n_slots = t->n_room, .type = AE_KV_F16,
                        .n_batch = t->n_room};
    if (kind != ROOM_WINDOWS) return kv;
    kv.n_seqs = t->n_windows;
    kv.n_slots = kv.n_batch = (uint64_t)side * side < t->n_room ? side * side : t->n_room;
    return kv;
}

static aerie_status make_kvs(ae_tower *t, aerie_error *error)
{
    ae_kv **const places[ROOM_KINDS] = {&t->kv, &t->window_kv, &t->asked_kv};
    ae_kv_layer layer;
    for (int i = 0; i < ROOM_KINDS; i++) {
        const ae_kv_options kv = kv_options(t, &layer, (room_kv)i);
        if (has_kv(t, (room_kv)i)) AE_TRY(ae_kv_create(places[i], t->backend, &kv, error));
    }
    return AERIE_OK;
}

static ae_stream_options stream_options(const ae_tower *t, uint32_t n_threads)
{
    const ae_tower_model *m = t->model;
    const ae_hparams *h = &m->hparams;
    uint32_t widest = larger(larger(h->n_embd, h->n_ff), larger(tower_patch_floats(m), tower_merged_floats(m)));
    widest = larger(larger(widest, larger(m->n_out, m->n_gated)), larger(m->n_mid, h->n_heads * h->head_dim));
    return (ae_stream_options){.n_threads = n_threads, .max_rows = t->n_room, .max_product_rows = AE_TOWER_FFN_ROWS,
                               .max_in = widest, .pool = t->pool};
}

/* Allocates memory for n_room rows and n_windows windows; after a failure free_room releases what was allocated. */
static aerie_status make_room(ae_tower *t, aerie_error *error)
{
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
    if (!t->device)
        return ae_backend_fail_alloc(t->backend, "the activations of a vision encoder, for a picture of this size; "
                                     "--image-max-tokens makes it smaller", l.bytes, error);
    l = (ae_layout){.base = t->device};
    device_layout(&l, t);
    const ae_stream_options stream = stream_options(t, ae_pool_n_workers(t->pool));
    AE_TRY(t->backend->ops->stream_create(t->backend, &stream, &t->stream, error));
    return t->model->hparams.n_layers ? make_kvs(t, error) : AERIE_OK;
}

/* Counts the bytes that make_room would allocate; SIZE_MAX if they overflow. */
static size_t count_room(ae_tower *t, uint32_t n_threads)
{
    const ae_stream_options stream = stream_options(t, n_threads);
    ae_layout host = {0}, device = {0};
    ae_kv_layer layer;
    size_t sum = 0;
    host_layout(&host, t);
    device_layout(&device, t);
    bool fits = !host.overflow && !device.overflow && ae_add_size(host.bytes, device.bytes, &sum) &&
                ae_add_size(sum, t->backend->ops->stream_bytes(t->backend, &stream), &sum);
    for (int i = 0; fits && t->model->hparams.n_layers && i < ROOM_KINDS; i++) {
        const ae_kv_options kv = kv_options(t, &layer, (room_kv)i);
        if (!has_kv(t, (room_kv)i)) continue;
        const size_t bytes = ae_kv_plan_bytes(t->backend, &kv, NULL);
        fits = bytes != SIZE_MAX && ae_add_size(sum, bytes, &sum);
    }
    return fits ? sum : SIZE_MAX;
}

aerie_status ae_tower_plan_bytes(ae_tower_model *model, ae_backend *backend, const ae_load_options *options,
                                 const ae_tower_plan *plan, size_t *weights, size_t *room, aerie_error *error)
{
    ae_tower *t = ae_alloc(1, sizeof *t);
    if (!t) return ae_fail_memory(error, "a vision encoder", sizeof *t);
    t->model = model;
    t->backend = backend;
    const aerie_status status = place_weights(t, options, error);
    *weights = t->parts.bytes + (n_table_floats(model) + (model->row_break ? model->n_out : 0)) * sizeof(float);
    for (uint32_t i = 0; i < plan->n_views; i++) {
        uint32_t w, h;
        ae_tower_view(plan, i, &w, &h);
        const uint32_t across = w / model->patch, down = h / model->patch;
        t->n_room = larger(larger(t->n_room, model->n_query), across * down + model->n_cls);
        t->n_windows = larger(t->n_windows, tower_n_windows(model, across, down));
    }
    *room = status == AERIE_OK ? count_room(t, options->n_threads) : 0;
    ae_parts_free(&t->parts);
    ae_free(t->layers);
    ae_free(t->blocks);
    ae_free(t);
    if (*room != SIZE_MAX) return status;
    return ae_fail(error, AERIE_ERROR_LIMIT, "a vision encoder's memory for a picture of %u x %u pixels cannot be addressed",
                   plan->width, plan->height);
}

/* Makes the memory large enough for a view. */
static aerie_status need_room(ae_tower *t, const tower_view *v, aerie_error *error)
{
    if (v->n <= t->n_room && v->n_windows <= t->n_windows) return AERIE_OK;
    const uint32_t n = larger(larger(v->n, t->model->n_query), t->n_room), n_windows = larger(v->n_windows, t->n_windows);
    free_room(t);
    t->n_room = n, t->n_windows = n_windows;
    const aerie_status status = make_room(t, error);
    if (status != AERIE_OK) free_room(t); /* the next view starts without any memory */
    return status;
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
    for (int c = 0; c < 3; c++)
        for (int u = 0; u < 256; u++) t->colour[c][u] = (float)((u / 255.0 - (double)model->mean[c]) / (double)model->std[c]);
    const aerie_status status = load_weights(t, options, error);
    if (status == AERIE_OK) *out = t;
    else ae_tower_free(t);
    return status;
}

void ae_tower_free(ae_tower *t)
{
    if (!t) return;
    const ae_hparams *h = &t->model->hparams;
    free_room(t);
    if (t->turned_norms)
        t->backend->ops->free(t->backend, t->turned_norms, 2 * (size_t)h->n_layers * h->head_dim * sizeof(float));
    ae_parts_free(&t->parts);
    ae_free(t->row_break);
    ae_free(t->newline);
    ae_free(t->table);
    ae_free(t->layers);
    ae_free(t->blocks);
    ae_tower_model_free(t->model);
    ae_free(t);
}

/* ---- Views ----------------------------------------------------------------------------------------------------- */

/* Makes rows [first, first + n) positions 0 to n - 1 of sequence `seq`; all of them see each other. */
static void place_rows(ae_rows *rows, uint32_t seq, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t r = first + i;
        rows->token[r] = rows->type[r] = 0;
        rows->seq[r] = (int32_t)seq;
        rows->pos[r] = rows->slot[r] = (int32_t)i;
        rows->parent[r] = i ? (int32_t)r - 1 : -1;
        rows->n_inplace[r] = (int32_t)n;
        rows->last[r] = (int32_t)n - 1;
    }
}

static aerie_status upload_rows(ae_tower *t, const tower_view *v, aerie_error *error)
{
    const ae_backend_ops *ops = t->backend->ops;
    if (!t->kv) return AERIE_OK;
    AE_TRY(ae_kv_reserve(t->kv, t->stream, 0, v->n, error));
    place_rows(&t->rows, 0, 0, v->n);
    ae_rows_upload(&t->rows, &t->on_device, v->n, 0, t->kv, ops, t->stream);
    uint32_t at = 0;
    for (uint32_t i = 0; i < v->n_windows; i++) {
        const uint32_t n = tower_window_rows(t->model, v, i);
        AE_TRY(ae_kv_reserve(t->window_kv, t->stream, i, n, error));
        place_rows(&t->rows, i, at, n);
        at += n;
    }
    if (at) ae_rows_upload(&t->rows, &t->windows, at, 0, t->window_kv, ops, t->stream);
    return t->asked_kv ? tower_resampler_begin(t, v, error) : AERIE_OK;
}

static void forget_rows(ae_tower *t)
{
    if (t->kv) (void)ae_kv_truncate(t->kv, 0, 0); /* cutting to nothing cannot fail */
    if (t->asked_kv) (void)ae_kv_truncate(t->asked_kv, 0, 0);
    for (uint32_t i = 0; i < t->n_windows; i++) (void)ae_kv_truncate(t->window_kv, i, 0);
}

/* Computes everything before the first block. Holds the thread pool while the device works. */
static aerie_status begin_view(ae_tower *t, const ae_image *image, const tower_view *v, aerie_error *error)
{
    AE_TRY(need_room(t, v, error));
    tower_order(t, v);
    tower_cut(t, image, v);
    if (t->table) tower_positions(t, v);
    if (t->model->hparams.n_ropes) tower_angles(t, v);
    if (t->model->n_query) tower_places(t, v);
    ae_pool_hold(t->pool);
    aerie_status status = upload_rows(t, v, error);
    if (status == AERIE_OK) {
        tower_begin(t, v);
        tower_keep(t, 0, v);
        status = t->backend->ops->sync(t->stream, error);
    }
    ae_pool_release(t->pool);
    return status;
}

static aerie_status run_block(ae_tower *t, uint32_t i, const tower_view *v, aerie_error *error)
{
    ae_pool_hold(t->pool);
    tower_run_block(t, i, v);
    tower_keep(t, i + 1, v);
    tower_deep(t, i, v);
    const aerie_status status = t->backend->ops->sync(t->stream, error);
    ae_pool_release(t->pool);
    return status;
}

/* Writes a token's row: the start of the text model's stream, then what is added after its layers. */
static float *give_token(const ae_tower *t, const tower_view *v, uint32_t i, float *rows)
{
    const size_t n_out = t->model->n_out;
    memcpy(rows, t->merged_host + i * n_out, n_out * sizeof *rows);
    for (uint32_t k = 0; k < t->model->n_deep; k++)
        memcpy(rows + (k + 1) * n_out, t->deep_host + ((size_t)k * v->n_tokens + i) * n_out, n_out * sizeof *rows);
    return rows + (1 + t->model->n_deep) * n_out;
}

/* Writes the tokens, with a row break after each line but the last. */
static void give_rows(const ae_tower *t, const tower_view *v, float *rows)
{
    const uint32_t across = v->across / t->model->merge;
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        rows = give_token(t, v, i, rows);
        if (!t->row_break || (i + 1) % across || i + 1 == v->n_tokens) continue;
        memcpy(rows, t->row_break, t->model->n_out * sizeof *rows);
        rows += t->model->n_out;
    }
}

static aerie_status check_finite(const float *x, size_t n, aerie_error *error)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return ae_fail(error, AERIE_ERROR_FORMAT,
                           "the vision encoder produced a number that is not finite: its weights overflow; "
                           "another file of it is needed");
    return AERIE_OK;
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

static aerie_status run_view(ae_tower *t, const ae_image *image, float *rows, told *p, aerie_error *error)
{
    const ae_tower_model *m = t->model;
    tower_view v = {.across = image->width / m->patch, .down = image->height / m->patch};
    const uint32_t n = v.across * v.down;
    v.n = n + m->n_cls;
    v.n_tokens = m->n_query ? m->n_query : n / (m->merge * m->merge);
    v.n_windows = tower_n_windows(m, v.across, v.down);
    if (!v.n_tokens) return ae_fail(error, AERIE_ERROR_INTERNAL, "a view without patches; please report");
    AE_TRY(begin_view(t, image, &v, error));
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        AE_TRY(run_block(t, i, &v, error));
        AE_TRY(tell(p, error));
    }
    ae_pool_hold(t->pool);
    tower_project(t, &v);
    const aerie_status status = t->backend->ops->sync(t->stream, error);
    ae_pool_release(t->pool);
    if (status != AERIE_OK) return status;
    AE_TRY(check_finite(t->merged_host, (size_t)v.n_tokens * m->n_out, error));
    AE_TRY(check_finite(t->deep_host, (size_t)m->n_deep * v.n_tokens * m->n_out, error));
    give_rows(t, &v, rows);
    return AERIE_OK;
}

static ae_image_filter filter_of(const ae_tower_type *type)
{
    return type->lanczos ? AE_IMAGE_LANCZOS : type->bicubic ? AE_IMAGE_BICUBIC : AE_IMAGE_BILINEAR;
}

/* Cuts view i out of a picture that has the plan's size. The view of the whole picture is made from the intermediate picture if
 * there was one (resized by its longest side), otherwise from the original. */
static aerie_status take_view(const ae_tower *t, const ae_image *image, const ae_image *resized, const ae_tower_plan *plan,
                              uint32_t i, ae_image *view, aerie_error *error)
{
    uint32_t w, h;
    ae_tower_view(plan, i, &w, &h);
    const uint32_t tile = i - plan->whole_first;
    if (!ae_tower_is_whole(plan, i))
        return ae_image_crop(view, resized, tile % plan->n_across * w, tile / plan->n_across * h, w, h, error);
    const bool from_resized = t->model->type->size == AE_TOWER_TILES || !plan->n_across;
    return ae_image_resize(view, from_resized ? resized : image, w, h, filter_of(t->model->type), error);
}

/* Puts a picture in the middle of a square, and resizes the square. */
static aerie_status resize_square(const ae_tower *t, const ae_image *image, const ae_tower_plan *plan, ae_image *whole,
                                  aerie_error *error)
{
    const uint32_t w = image->width, h = image->height, side = w > h ? w : h;
    ae_image square = {0};
    AE_TRY(ae_image_put(&square, image, side, side, (side - w) / 2, (side - h) / 2, t->model->type->colour, error));
    const aerie_status status = ae_image_resize(whole, &square, plan->width, plan->height, filter_of(t->model->type), error);
    ae_image_free(&square);
    return status;
}

/* Reduces a picture, and adds black at its right and bottom. */
static aerie_status resize_fit(const ae_tower *t, const ae_image *image, const ae_tower_plan *plan, ae_image *whole,
                               aerie_error *error)
{
    static const uint8_t black[3] = {0, 0, 0};
    uint32_t w, h;
    ae_image small = {0};
    ae_tower_fit(t->model, image->width, image->height, &w, &h);
    AE_TRY(ae_image_resize(&small, image, w, h, filter_of(t->model->type), error));
    const aerie_status status = ae_image_put(whole, &small, plan->width, plan->height, 0, 0, black, error);
    ae_image_free(&small);
    return status;
}

/* Fits a picture into a grid of tiles, with black on two sides. */
static aerie_status resize_pinned(const ae_tower *t, const ae_image *image, const ae_tower_plan *plan, ae_image *whole,
                                  aerie_error *error)
{
    static const uint8_t black[3] = {0, 0, 0};
    uint32_t w, h;
    ae_image small = {0};
    ae_tower_grid_fit(image->width, image->height, plan, &w, &h);
    AE_TRY(ae_image_resize(&small, image, w, h, filter_of(t->model->type), error));
    const aerie_status status = ae_image_put(whole, &small, plan->width, plan->height, (plan->width - w) / 2,
                                             (plan->height - h) / 2, black, error);
    ae_image_free(&small);
    return status;
}

/* Resizes a picture to the plan's size; a picture that is cut into tiles is first resized by its longest side. */
static aerie_status resize_whole(const ae_tower *t, const ae_image *image, const ae_tower_plan *plan, ae_image *whole,
                                 aerie_error *error)
{
    const ae_image_filter filter = filter_of(t->model->type);
    uint32_t w = plan->width, h = plan->height;
    if (t->model->n_grids) return resize_pinned(t, image, plan, whole, error);
    if (t->model->type->size == AE_TOWER_PAD) return resize_square(t, image, plan, whole, error);
    if (t->model->type->size == AE_TOWER_FIT) return resize_fit(t, image, plan, whole, error);
    if (t->model->type->size != AE_TOWER_TILES) return ae_image_resize(whole, image, w, h, filter, error);
    ae_image longest = {0};
    ae_tower_longest(t->model, image->width, image->height, &w, &h);
    AE_TRY(ae_image_resize(&longest, image, w, h, filter, error));
    const aerie_status status = ae_image_resize(whole, &longest, plan->width, plan->height, filter, error);
    ae_image_free(&longest);
    return status;
}

/* Puts the rows of tiles together, line by line of the picture, without the tokens that show black alone, and with a newline
 * after each line. */
static void pack_tiles(const ae_tower *t, const ae_tower_plan *plan, const float *tiles, float *rows)
{
    const uint32_t unit = t->model->patch * t->model->merge, side = plan->view_width / unit;
    const uint32_t across = plan->n_across * side, down = plan->n_down * side;
    const size_t n_out = t->model->n_out;
    for (uint32_t y = plan->skip_down; y < down - plan->skip_down; y++) {
        for (uint32_t x = plan->skip_across; x < across - plan->skip_across; x++, rows += n_out) {
            const size_t tile = y / side * plan->n_across + x / side, at = (size_t)(y % side) * side + x % side;
            memcpy(rows, tiles + (tile * side * side + at) * n_out, n_out * sizeof *rows);
        }
        memcpy(rows, t->newline, n_out * sizeof *rows);
        rows += n_out;
    }
}

aerie_status ae_tower_run(ae_tower *t, const ae_image *image, const ae_tower_plan *plan, float *rows,
                          ae_tower_progress *progress, void *user, aerie_error *error)
{
    told p = {progress, user, 0, (uint64_t)plan->n_views * t->model->hparams.n_layers};
    const ae_tower_model *m = t->model;
    const size_t unit = m->patch * m->merge, tile = plan->view_width / unit * (plan->view_height / unit) * m->n_out;
    ae_image whole = {0};
    AE_TRY(resize_whole(t, image, plan, &whole, error));
    float *tiles = m->unpad ? ae_alloc(plan->n_views * tile, sizeof *tiles) : NULL, *packed = NULL;
    aerie_status status = m->unpad && !tiles ? ae_fail_memory(error, "the rows of tiles", plan->n_views * tile * sizeof *tiles)
                                             : AERIE_OK;
    for (uint32_t i = 0; i < plan->n_views && status == AERIE_OK; i++) {
        ae_image view = {0};
        status = take_view(t, image, &whole, plan, i, &view, error);
        if (status == AERIE_OK) status = run_view(t, &view, tiles && i ? tiles + (i - 1) * tile : rows, &p, error);
        if (tiles && i == 1) packed = rows;
        rows += (size_t)ae_tower_view_rows(m, plan, i) * (1 + m->n_deep) * m->n_out;
        ae_image_free(&view);
        forget_rows(t);
    }
    if (status == AERIE_OK && packed) pack_tiles(t, plan, tiles, packed);
    ae_free(tiles);
    ae_image_free(&whole);
    return status;
}
