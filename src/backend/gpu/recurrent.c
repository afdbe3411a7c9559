/* recurrent.c - recurrent layers on the device: the store of planes and records, and the launches of
 * kernels/recurrent.cu and kernels/recur_steps.cu.
 * Owns the store. A saved plane has the same floats in the same order, without padding. */
#include <string.h>

#include "backend/gpu/gpu.h"
#include "backend/alloc_fail.h"
#include "base/mem.h"

#define STATE_ALIGN 64  /* floats: planes and records begin at multiples */
#define FEW_ROWS 16u    /* taps of a convolution that takes one launch */

typedef struct state_place {
    ae_state_layer layer;
    size_t plane, record; /* offsets of the layer in a plane and in a record, in floats */
} state_place;

struct ae_state_store {
    ae_gpu_backend *backend;
    ae_state_shape shape;   /* without layers */
    state_place *places;    /* (host) [n_layers] */
    size_t saved_floats;    /* floats of a saved plane, without padding */
    size_t plane_floats, record_floats;
    float *planes;          /* on the device, [n_planes][plane_floats] */
    float *records;         /* [n_seqs][n_records][record_floats], in the same block */
};

/* ---- The store ----------------------------------------------------------------------------------------------- */

static size_t align_up(size_t n)
{
    return (n + STATE_ALIGN - 1) / STATE_ALIGN * STATE_ALIGN;
}

static size_t keys_of(const ae_state_layer *l) { return (size_t)l->n_groups * l->key_dim; }
static size_t values_of(const ae_state_layer *l) { return (size_t)l->n_heads * l->value_dim; }

static bool is_wkv(const ae_state_layer *l) { return l->kind == AE_STATE_WKV6 || l->kind == AE_STATE_WKV7; }

static size_t alphas_of(const ae_state_layer *l)
{
    if (l->kind == AE_STATE_KDA || is_wkv(l)) return (size_t)l->n_heads * l->key_dim;
    return l->kind == AE_STATE_MAMBA1 ? l->value_dim : l->n_heads;
}

static ae_gpu_steps steps_of(ae_state_kind kind)
{
    switch (kind) {
    case AE_STATE_KDA:
    case AE_STATE_WKV6: return AE_GPU_STEPS_KEYED;
    case AE_STATE_WKV7: return AE_GPU_STEPS_WKV7;
    case AE_STATE_MAMBA1: return AE_GPU_STEPS_SCAN;
    default: return AE_GPU_STEPS_RECUR;
    }
}

/* Lays out planes and records; places may be NULL. Returns the total size in bytes, SIZE_MAX if it is too large. */
static size_t lay_out(ae_state_store *store, const ae_state_shape *s, state_place *places)
{
    size_t plane = 0, record = 0, planes, records, bytes;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const ae_state_layer *l = &s->layers[i];
        if (places) places[i] = (state_place){*l, plane, record};
        plane += (size_t)(l->n_taps - 1) * l->n_channels + values_of(l) * l->key_dim;
        record += l->n_channels + keys_of(l) + values_of(l) + alphas_of(l);
        if (l->kind == AE_STATE_WKV7) record += alphas_of(l) + values_of(l);
    }
    store->saved_floats = plane;
    store->plane_floats = align_up(plane);
    store->record_floats = align_up(record);
    if (!ae_mul_size(store->plane_floats * sizeof(float), s->n_planes, &planes) ||
        !ae_mul_size(store->record_floats * sizeof(float), (size_t)s->n_seqs * s->n_records, &records) ||
        !ae_add_size(planes, records, &bytes))
        return SIZE_MAX;
    return bytes;
}

size_t ae_gpu_state_bytes(const ae_backend *backend, const ae_state_shape *shape)
{
    ae_state_store store = {0};
    (void)backend;
    return lay_out(&store, shape, NULL);
}

/* Returns how many values of a column a lane of <steps>_N holds. */
static uint32_t lane_values(uint32_t key_dim)
{
    return key_dim <= 64 ? 16 : key_dim <= 128 ? 32 : 64;
}

static aerie_status check_layer(const ae_gpu_backend *b, const ae_state_layer *l, aerie_error *error)
{
    if (!l->n_taps || l->n_taps > AE_STATE_MAX_TAPS)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "a convolution over %u rows; 1 to %d are possible", l->n_taps,
                       AE_STATE_MAX_TAPS);
    if (l->kind == AE_STATE_CONV) return AERIE_OK;
    if ((uint32_t)l->kind > AE_STATE_MAMBA1)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s does not run this kind of recurrent layer; --device cpu runs it",
                       b->name);
    if (is_wkv(l) && (l->n_groups != l->n_heads || l->value_dim != l->key_dim || l->n_taps != 2))
        return ae_fail(error, AERIE_ERROR_INTERNAL, "a WKV state of %u groups, %u values and %u taps; please report",
                       l->n_groups, l->value_dim, l->n_taps);
    if (!l->key_dim || l->key_dim > AE_STATE_MAX_KEY || l->key_dim % 4)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "a recurrent state of %u rows; multiples of 4 up to %d are possible",
                       l->key_dim, AE_STATE_MAX_KEY);
    if (!l->n_heads || !l->n_groups || !l->value_dim || l->n_heads % l->n_groups)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%u recurrent heads of %u values cannot share %u groups evenly",
                       l->n_heads, l->value_dim, l->n_groups);
    const uint32_t shared = AE_GPU_STATE_SHARED(steps_of(l->kind), lane_values(l->key_dim));
    if (shared > b->facts.max_shared_bytes)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: a recurrent state of %u rows needs %u bytes of shared memory, and "
                       "this device has %u; --device cpu runs it", b->name, l->key_dim, shared, b->facts.max_shared_bytes);
    return AERIE_OK;
}

static aerie_status check_shape(const ae_gpu_backend *b, const ae_state_shape *s, aerie_error *error)
{
    if (s->n_records > AERIE_MAX_DRAFT || s->n_planes < s->n_seqs)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "%u records and %u planes for %u sequences; please report", s->n_records,
                       s->n_planes, s->n_seqs);
    for (uint32_t i = 0; i < s->n_layers; i++) AE_TRY(check_layer(b, &s->layers[i], error));
    return AERIE_OK;
}

aerie_status ae_gpu_state_create(ae_backend *backend, const ae_state_shape *shape, ae_state_store **out, aerie_error *error)
{
    ae_gpu_backend *b = ae_gpu(backend);
    *out = NULL;
    AE_TRY(check_shape(b, shape, error));
    ae_state_store *s = ae_alloc(1, sizeof *s);
    if (!s || !(s->places = ae_alloc(shape->n_layers ? shape->n_layers : 1, sizeof *s->places))) {
        ae_free(s);
        return ae_fail_memory(error, "the recurrent state", shape->n_layers * sizeof *s->places);
    }
    s->backend = b;
    s->shape = *shape;
    s->shape.layers = NULL;
    const size_t bytes = lay_out(s, shape, s->places);
    s->planes = bytes == SIZE_MAX ? NULL : b->driver->alloc(b->device, bytes ? bytes : 1);
    if (!s->planes) {
        ae_gpu_state_free(backend, s);
        return ae_backend_fail_alloc(backend, "the recurrent state", bytes, error);
    }
    s->records = s->planes + shape->n_planes * s->plane_floats;
    *out = s;
    return AERIE_OK;
}

void ae_gpu_state_free(ae_backend *backend, ae_state_store *store)
{
    const ae_gpu_backend *b = ae_gpu(backend);
    if (!store) return;
    if (store->planes) b->driver->free(b->device, store->planes);
    ae_free(store->places);
    ae_free(store);
}

/* ---- Whole planes ----------------------------------------------------------------------------------------------- */

static float *plane_of(const ae_state_store *s, uint32_t plane)
{
    return s->planes + plane * s->plane_floats;
}

void ae_gpu_state_zero(ae_stream *stream, ae_state_store *store, uint32_t plane)
{
    if (store->plane_floats) ae_gpu_zero(stream, plane_of(store, plane), store->plane_floats * sizeof(float));
}

void ae_gpu_state_copy(ae_stream *stream, ae_state_store *store, uint32_t from, uint32_t to)
{
    const size_t bytes = store->plane_floats * sizeof(float), blocks = (bytes + 4095) / 4096;
    ae_gpu_launch(stream, AE_GPU_kv_page, blocks < 1024 ? (uint32_t)blocks : 1024, 1, 1, 0,
                  &(ae_gpu_kv_page_args){(const uint8_t *)plane_of(store, from), (uint8_t *)plane_of(store, to), bytes});
}

size_t ae_gpu_state_plane_bytes(const ae_state_store *store)
{
    return store->saved_floats * sizeof(float);
}

void ae_gpu_state_read(ae_stream *stream, const ae_state_store *store, uint32_t plane, void *out)
{
    if (store->saved_floats) ae_gpu_download(stream, out, plane_of(store, plane), store->saved_floats * sizeof(float));
}

void ae_gpu_state_write(ae_stream *stream, ae_state_store *store, uint32_t plane, const void *bytes)
{
    if (store->saved_floats) ae_gpu_upload(stream, plane_of(store, plane), bytes, store->saved_floats * sizeof(float));
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

void ae_gpu_state_layout(ae_layout *layout, const ae_gpu_backend *backend, const ae_stream_options *o,
                         ae_gpu_state_scratch *scratch)
{
    size_t n_alphas = 0, n_erased = 0;
    (void)backend;
    for (uint32_t i = 0; o->state && i < o->state->n_layers; i++) {
        const ae_state_layer *l = &o->state->layers[i];
        const size_t n = l->kind == AE_STATE_MAMBA1 ? 0 : alphas_of(l); /* delta is computed where it is used */
        if (n > n_alphas) n_alphas = n;
        if (l->kind == AE_STATE_WKV7 && n > n_erased) n_erased = n;
    }
    if (!n_alphas) return;
    scratch->alpha = ae_layout_add(layout, o->max_rows * n_alphas, sizeof(float));
    scratch->beta = ae_layout_add(layout, o->max_rows * n_alphas, sizeof(float));
    scratch->erased = ae_layout_add(layout, o->max_rows * n_erased, sizeof(float));
}

static ae_gpu_state_view view_of(const ae_state_store *s, uint32_t layer)
{
    const state_place *p = &s->places[layer];
    const ae_state_layer *l = &p->layer;
    return (ae_gpu_state_view){.plane = s->planes + p->plane, .record = s->records + p->record, .plane_floats = s->plane_floats,
                               .record_floats = s->record_floats, .n_records = s->shape.n_records, .n_channels = l->n_channels,
                               .n_taps = l->n_taps, .n_heads = l->n_heads, .n_groups = l->n_groups, .key_dim = l->key_dim,
                               .value_dim = l->value_dim, .kind = l->kind, .tiled = l->tiled,
                               .n_alphas = (uint32_t)alphas_of(l)};
}

static ae_gpu_state_rows rows_of(const ae_state_pass *p)
{
    return (ae_gpu_state_rows){p->parent, p->runs, p->visits, p->accepted, p->n_rows, p->n_runs, p->stride};
}

static uint32_t channel_blocks(const ae_gpu_conv_args *args)
{
    return (args->n + AE_GPU_STATE_BLOCK - 1) / AE_GPU_STATE_BLOCK;
}

void ae_gpu_conv(ae_stream *stream, const ae_conv *a)
{
    const ae_state_pass *pass = a->pass;
    ae_gpu_conv_args args = {.view = view_of(pass->store, a->layer), .rows = rows_of(pass), .x = a->x, .x2 = a->x2,
                             .weight = a->weight, .weight_2 = a->weight_2, .weight_3 = a->weight_3, .bias = a->bias,
                             .gate = a->gate, .y = a->y, .x_stride = (uint32_t)a->x_stride,
                             .y_stride = (uint32_t)a->y_stride, .silu = a->silu, .first = a->first};
    args.n = a->n ? a->n : args.view.n_channels;
    if (pass->n_rows <= FEW_ROWS) {
        ae_gpu_launch(stream, AE_GPU_conv_runs, channel_blocks(&args), pass->n_runs, 1, 0, &args);
        return;
    }
    ae_gpu_launch(stream, AE_GPU_conv_rows, pass->n_rows, channel_blocks(&args), 1, 0, &args);
    ae_gpu_launch(stream, AE_GPU_conv_move, channel_blocks(&args), pass->n_runs, 1, 0, &args);
}

static const float *decay_of(const ae_state_store *store, uint32_t layer, const float *own)
{
    const ae_state_layer *l = &store->places[layer].layer;
    return l->kind == AE_STATE_MAMBA1 ? l->decay : own;
}

#define STEPS_KERNELS(name) {AE_GPU_##name##_16, AE_GPU_##name##_32, AE_GPU_##name##_64}

static void run_steps(ae_stream *stream, const ae_gpu_recur_args *args)
{
    static const ae_gpu_kernel kernels[][3] = {
        [AE_GPU_STEPS_RECUR] = STEPS_KERNELS(recur_steps), [AE_GPU_STEPS_KEYED] = STEPS_KERNELS(keyed_steps),
        [AE_GPU_STEPS_WKV7] = STEPS_KERNELS(wkv7_steps), [AE_GPU_STEPS_SCAN] = STEPS_KERNELS(scan_steps),
    };
    const ae_gpu_state_view *v = &args->view;
    const uint32_t n = lane_values(v->key_dim);
    const ae_gpu_steps steps = steps_of((ae_state_kind)v->kind);
    const uint32_t n_blocks = (v->value_dim + AE_GPU_STATE_COLUMNS - 1) / AE_GPU_STATE_COLUMNS;
    ae_gpu_launch(stream, kernels[steps][n / 32], n_blocks, v->n_heads, args->rows.n_runs, AE_GPU_STATE_SHARED(steps, n), args);
}

/* Warps of recur_prepare for a row. */
static uint32_t prepare_warps(const ae_gpu_state_view *v)
{
    switch (v->kind) {
    case AE_STATE_DELTA: return 2 * v->n_groups + (v->n_heads + 31) / 32;
    case AE_STATE_KDA: return 2 * v->n_groups + v->n_heads;
    case AE_STATE_WKV6:
    case AE_STATE_WKV7: return v->n_heads;
    case AE_STATE_MAMBA1: return 0;
    default: return (v->n_heads + 31) / 32;
    }
}

void ae_gpu_recur(ae_stream *stream, const ae_recur *a)
{
    const ae_state_pass *pass = a->pass;
    const ae_gpu_recur_args args = {
        .view = view_of(pass->store, a->layer), .rows = rows_of(pass), .c = a->c, .a = a->a, .b = a->b,
        .decay = decay_of(pass->store, a->layer, a->decay), .dt_bias = a->dt_bias, .skip = a->skip,
        .alpha = stream->state.alpha, .beta = stream->state.beta, .erased = stream->state.erased, .y = a->y, .k = a->k,
        .v = a->v, .first = a->first, .k_k = a->k_k, .k_a = a->k_a, .bonus = a->bonus, .keys = a->keys,
        .c_stride = (uint32_t)a->c_stride, .ab_stride = (uint32_t)a->ab_stride, .ab_group = a->ab_group,
        .y_stride = (uint32_t)a->y_stride, .keys_stride = (uint32_t)a->keys_stride, .bound = a->bound,
    };
    const ae_gpu_state_view *v = &args.view;
    const uint32_t n_alphas = v->kind == AE_STATE_MAMBA1 ? 0 : v->kind == AE_STATE_WKV7 ? 2 * v->n_alphas : v->n_alphas;
    ae_gpu_launch(stream, AE_GPU_recur_prepare, pass->n_rows, (prepare_warps(v) + 3) / 4, 1, 0, &args);
    run_steps(stream, &args);
    ae_gpu_launch(stream, AE_GPU_recur_records, pass->n_rows, (v->n_groups * v->key_dim + n_alphas + 127) / 128, 1, 0, &args);
}

void ae_gpu_state_absorb(ae_stream *stream, const ae_state_pass *pass)
{
    for (uint32_t i = 0; i < pass->store->shape.n_layers; i++) {
        ae_gpu_conv_args conv = {.view = view_of(pass->store, i), .rows = rows_of(pass)};
        const ae_gpu_recur_args recur = {.view = conv.view, .rows = conv.rows, .decay = decay_of(pass->store, i, NULL)};
        conv.n = conv.view.n_channels;
        ae_gpu_launch(stream, AE_GPU_conv_move, channel_blocks(&conv), pass->n_runs, 1, 0, &conv);
        if (recur.view.n_heads) run_steps(stream, &recur);
    }
}

void ae_gpu_gated_norm(ae_stream *stream, const ae_gated_norm *a)
{
    const ae_gpu_gated_norm_args args = {
        .x = a->x, .z = a->z, .weight = a->weight, .bias = a->layer && a->weight ? a->bias : NULL, .bonus = a->bonus,
        .v = a->v, .n_rows = a->n_rows, .n_groups = a->n_groups, .dim = a->dim, .x_stride = (uint32_t)a->x_stride,
        .z_stride = (uint32_t)a->z_stride, .by_group = a->by_group, .gate_first = a->gate_first, .layer = a->layer,
        .gate = a->times && !a->gate_first ? AE_GPU_GATE_ITSELF : a->sigmoid ? AE_GPU_GATE_SIGMOID : AE_GPU_GATE_SILU,
        .eps = a->eps,
    };
    const uint32_t n = a->n_rows * a->n_groups;
    if (a->dim > AE_GPU_NORM_WARP) ae_gpu_launch(stream, AE_GPU_gated_norm_rows, n, 1, 1, AE_GPU_NORM_SHARED, &args);
    else ae_gpu_launch(stream, AE_GPU_gated_norm_groups, (n + 3) / 4, 1, 1, 0, &args);
}
