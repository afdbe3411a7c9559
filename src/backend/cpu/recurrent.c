/* recurrent.c - recurrent layers on the CPU: the store of planes and records, the convolution, the norm after a recurrence.
 * The recurrence itself: recur.c.
 *
 * Owns: the store. Work on a convolution is split over channels, which are independent, so a work item runs all rows of a
 * sequence over its part, which is read and written once. */
#include <string.h>

#include "backend/cpu/state.h"
#include "base/os.h"

/* ---- The store -------------------------------------------------------------------------------- */

static size_t up16(size_t n)
{
    return (n + AE_STATE_TILE - 1) / AE_STATE_TILE * AE_STATE_TILE;
}

static void place_layer(const ae_state_layer *l, ae_state_place *p, size_t *plane, size_t *record)
{
    *p = (ae_state_place){.layer = *l, .channels = (uint32_t)up16(l->n_channels),
                       .n_tiles = (l->value_dim + AE_STATE_TILE - 1) / AE_STATE_TILE};
    p->rows = *plane;
    p->matrices = p->rows + (size_t)(l->n_taps - 1) * p->channels;
    *plane = p->matrices + (size_t)l->n_heads * p->n_tiles * l->key_dim * AE_STATE_TILE;
    p->record = *record;
    const size_t erased = l->kind == AE_STATE_WKV7 ? (size_t)l->n_heads * (l->key_dim + l->value_dim) : 0;
    *record += up16((size_t)l->n_channels + (size_t)l->n_groups * l->key_dim + (size_t)l->n_heads * l->value_dim +
                    ae_state_n_alphas(l) + erased);
}

static size_t store_bytes(const ae_state_shape *s, ae_state_store *store)
{
    size_t plane = 0, record = 0, planes, records, bytes;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        ae_state_place place;
        place_layer(&s->layers[i], store && store->places ? &store->places[i] : &place, &plane, &record);
    }
    if (store) store->plane_floats = plane, store->record_floats = record;
    if (!ae_mul_size(plane * sizeof(float), s->n_planes, &planes) ||
        !ae_mul_size(record * sizeof(float), (size_t)s->n_seqs * s->n_records, &records) ||
        !ae_add_size(planes, records, &bytes))
        return SIZE_MAX;
    return bytes;
}

size_t ae_cpu_state_bytes(const ae_backend *backend, const ae_state_shape *shape)
{
    (void)backend;
    return store_bytes(shape, NULL);
}

static aerie_status check_shape(const ae_state_shape *s, aerie_error *error)
{
    if (s->n_records > AERIE_MAX_DRAFT || s->n_planes < s->n_seqs)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "%u records and %u planes for %u sequences; please report", s->n_records,
                       s->n_planes, s->n_seqs);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const ae_state_layer *l = &s->layers[i];
        const bool has_heads = l->kind != AE_STATE_CONV;
        if (ae_state_is_wkv(l) && (l->n_groups != l->n_heads || l->value_dim != l->key_dim || l->n_taps != 2))
            return ae_fail(error, AERIE_ERROR_INTERNAL, "a WKV state of %u groups, %u values and %u taps; please report",
                           l->n_groups, l->value_dim, l->n_taps);
        if (!l->n_taps || l->n_taps > AE_STATE_MAX_TAPS)
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "a convolution over %u rows; 1 to %d are possible", l->n_taps,
                           AE_STATE_MAX_TAPS);
        if (has_heads && (!l->key_dim || l->key_dim > AE_STATE_MAX_KEY || l->key_dim % 4))
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "a recurrent state of %u rows; multiples of 4 up to %d are possible",
                           l->key_dim, AE_STATE_MAX_KEY);
        if (has_heads && (!l->n_heads || !l->n_groups || !l->value_dim || l->n_heads % l->n_groups))
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%u recurrent heads of %u values cannot share %u groups evenly",
                           l->n_heads, l->value_dim, l->n_groups);
    }
    return AERIE_OK;
}

aerie_status ae_cpu_state_create(ae_backend *backend, const ae_state_shape *shape, ae_state_store **out, aerie_error *error)
{
    *out = NULL;
    AE_TRY(check_shape(shape, error));
    ae_state_store *s = ae_alloc(1, sizeof *s);
    if (!s || !(s->places = ae_alloc(shape->n_layers, sizeof *s->places))) {
        ae_free(s);
        return ae_fail_memory(error, "the recurrent state", shape->n_layers * sizeof *s->places);
    }
    s->shape = *shape;
    s->shape.layers = NULL;
    s->bytes = store_bytes(shape, s);
    s->planes = s->bytes == SIZE_MAX ? NULL : ae_cpu_alloc(backend, s->bytes);
    if (!s->planes) {
        const size_t bytes = s->bytes;
        ae_cpu_state_free(backend, s);
        return ae_fail_memory(error, "the recurrent state", bytes);
    }
    s->records = s->planes + shape->n_planes * s->plane_floats;
    *out = s;
    return AERIE_OK;
}

void ae_cpu_state_free(ae_backend *backend, ae_state_store *store)
{
    if (!store) return;
    ae_cpu_free(backend, store->planes, store->bytes);
    ae_free(store->places);
    ae_free(store);
}

float *ae_cpu_state_records(const ae_state_store *store, size_t *n)
{
    *n = (size_t)store->shape.n_seqs * store->shape.n_records * store->record_floats;
    return store->records;
}

/* ---- Whole planes ----------------------------------------------------------------------------------- */

#define COPY_FLOATS ((size_t)1 << 18) /* in an item */

typedef struct copy_job {
    float *to;
    const float *from; /* NULL: zero */
    size_t n;
} copy_job;

static void copy_item(void *context, uint32_t item, uint32_t i_worker)
{
    const copy_job *job = context;
    const size_t at = item * COPY_FLOATS, n = job->n - at < COPY_FLOATS ? job->n - at : COPY_FLOATS;
    (void)i_worker;
    if (job->from) memcpy(job->to + at, job->from + at, n * sizeof(float));
    else memset(job->to + at, 0, n * sizeof(float));
}

static void run_copy(ae_stream *stream, copy_job *job)
{
    if (job->n) ae_pool_run(stream->pool, copy_item, job, (uint32_t)((job->n + COPY_FLOATS - 1) / COPY_FLOATS));
}

void ae_cpu_state_zero(ae_stream *stream, ae_state_store *store, uint32_t plane)
{
    run_copy(stream, &(copy_job){ae_state_plane(store, plane), NULL, store->plane_floats});
}

void ae_cpu_state_copy(ae_stream *stream, ae_state_store *store, uint32_t from, uint32_t to)
{
    run_copy(stream, &(copy_job){ae_state_plane(store, to), ae_state_plane(store, from), store->plane_floats});
}

size_t ae_cpu_state_plane_bytes(const ae_state_store *store)
{
    size_t n = 0;
    for (uint32_t i = 0; i < store->shape.n_layers; i++) {
        const ae_state_layer *l = &store->places[i].layer;
        n += (size_t)(l->n_taps - 1) * l->n_channels + (size_t)l->n_heads * l->key_dim * l->value_dim;
    }
    return n * sizeof(float);
}

/* Handles one of the runs of floats that are contiguous in both layouts, which come in the order of the canonical one. */
typedef void run_fn(float *own, uint8_t *bytes, size_t n_bytes);

static void get_run(float *own, uint8_t *bytes, size_t n) { memcpy(bytes, own, n); }
static void put_run(float *own, uint8_t *bytes, size_t n) { memcpy(own, bytes, n); }

static void walk_plane(const ae_state_store *store, uint32_t plane, uint8_t *bytes, run_fn *run)
{
    for (uint32_t i = 0; i < store->shape.n_layers; i++) {
        const ae_state_place *p = &store->places[i];
        const ae_state_layer *l = &p->layer;
        float *rows = ae_state_plane(store, plane) + p->rows, *s = ae_state_plane(store, plane) + p->matrices;
        for (uint32_t t = 0; t + 1 < l->n_taps; t++, bytes += l->n_channels * sizeof(float))
            run(rows + (size_t)t * p->channels, bytes, l->n_channels * sizeof(float));
        for (uint32_t h = 0; h < l->n_heads; h++)
            for (uint32_t k = 0; k < l->key_dim; k++)
                for (uint32_t j = 0; j < l->value_dim; j += AE_STATE_TILE) {
                    const uint32_t left = l->value_dim - j;
                    const size_t n = (left < AE_STATE_TILE ? left : AE_STATE_TILE) * sizeof(float);
                    const size_t tile = (size_t)h * p->n_tiles + j / AE_STATE_TILE;
                    run(s + (tile * l->key_dim + k) * AE_STATE_TILE, bytes, n);
                    bytes += n;
                }
    }
}

void ae_cpu_state_read(ae_stream *stream, const ae_state_store *store, uint32_t plane, void *out)
{
    (void)stream;
    walk_plane(store, plane, out, get_run);
}

void ae_cpu_state_write(ae_stream *stream, ae_state_store *store, uint32_t plane, const void *bytes)
{
    (void)stream;
    walk_plane(store, plane, (uint8_t *)(uintptr_t)bytes, put_run);
}

/* ---- Convolution ---------------------------------------------------------------------------------------- */

#define CONV_BLOCK 64 /* channels of an item */

typedef struct conv_job {
    const ae_stream *stream;
    const ae_conv *args;  /* NULL: no rows, only records are absorbed */
    const ae_state_store *store;
    const ae_state_place *place;
    const ae_state_pass *pass;
    uint32_t n_channels;  /* those of the part */
    uint32_t n_blocks;    /* of a run */
} conv_job;

/* Returns the row `back` places before a run's first one (1: the newest), for the channels from `first` on. */
static const float *row_before(const conv_job *job, const ae_state_run *run, uint32_t back, uint32_t first)
{
    const ae_state_place *p = job->place;
    if (back <= run->n_accepted) {
        const uint32_t accepted = ae_state_accepted(job->pass, run, run->n_accepted - back);
        return ae_state_record(job->store, p, run->seq, accepted) + first;
    }
    const uint32_t at = p->layer.n_taps - 1 - (back - run->n_accepted);
    return ae_state_plane(job->store, (uint32_t)run->seq) + p->rows + (size_t)at * p->channels + first;
}

/* first: counted among the layer's channels. */
static float *conv_x(const ae_conv *a, uint32_t row, uint32_t first)
{
    return a->x + row * a->x_stride + (first - a->first);
}

/* Returns the weights of a channel. */
static const float *taps_of(const ae_conv *a, uint32_t n_channels, uint32_t channel, uint32_t n_taps)
{
    static const float difference[] = {1.0f, -1.0f};
    const uint32_t third = n_channels / 3;
    if (!a->weight) return difference;
    if (a->weight_3 && channel >= 2 * third) return a->weight_3 + (size_t)(channel - 2 * third) * n_taps;
    if (a->weight_2 && channel >= third) return a->weight_2 + (size_t)(channel - third) * n_taps;
    return a->weight + (size_t)channel * n_taps;
}

static void conv_rows(const conv_job *job, const ae_state_run *run, uint32_t first, uint32_t n)
{
    const ae_conv *a = job->args;
    const uint32_t n_taps = job->place->layer.n_taps, end = run->first + run->n_committed + run->n_tentative;
    float weight[AE_STATE_MAX_TAPS][CONV_BLOCK];
    for (uint32_t j = 0; j < n_taps; j++)
        for (uint32_t i = 0; i < n; i++) weight[j][i] = taps_of(a, job->place->layer.n_channels, first + i, n_taps)[j];
    for (uint32_t r = run->first; a->x2 && r < end; r++) {
        float *x = conv_x(a, r, first);
        const float *x2 = a->x2 + r * a->x_stride + (first - a->first);
        for (uint32_t i = 0; i < n; i++) x[i] *= x2[i];
    }
    for (uint32_t r = run->first; r < end; r++) {
        const float *rows[AE_STATE_MAX_TAPS];
        int32_t at = (int32_t)r;
        uint32_t back = 1;
        for (uint32_t j = n_taps; j--;) {
            rows[j] = at >= 0 ? conv_x(a, (uint32_t)at, first) : row_before(job, run, back++, first);
            if (at >= 0) at = a->pass->parent[at];
        }
        float *y = a->y + r * a->y_stride + (first - a->first);
        job->stream->backend->kernels.conv(rows, weight[0], CONV_BLOCK, a->bias ? a->bias + first : NULL, n_taps, n, a->silu,
                                           y);
        const float *gate = a->gate ? a->gate + r * a->x_stride + (first - a->first) : NULL;
        for (uint32_t i = 0; gate && i < n; i++) y[i] *= gate[i];
    }
}

/* Moves the newest rows, of its own, the accepted and the committed ones, into the plane; tentative rows become records. */
static void conv_move_on(const conv_job *job, const ae_state_run *run, uint32_t first, uint32_t n)
{
    const ae_state_place *p = job->place;
    const uint32_t n_kept = p->layer.n_taps - 1;
    float kept[AE_STATE_MAX_TAPS][CONV_BLOCK];
    for (uint32_t t = 0; t < n_kept; t++) {
        const uint32_t back = n_kept - t; /* counted back from the last committed row */
        const float *row = back <= run->n_committed ? conv_x(job->args, run->first + run->n_committed - back, first)
                                                    : row_before(job, run, back - run->n_committed, first);
        memcpy(kept[t], row, n * sizeof(float));
    }
    float *rows = ae_state_plane(job->store, (uint32_t)run->seq) + p->rows + first;
    for (uint32_t t = 0; t < n_kept; t++) memcpy(rows + (size_t)t * p->channels, kept[t], n * sizeof(float));
}

static void conv_item(void *context, uint32_t item, uint32_t i_worker)
{
    const conv_job *job = context;
    const ae_state_run *run = &job->pass->runs[item / job->n_blocks];
    const uint32_t at = item % job->n_blocks * CONV_BLOCK, left = job->n_channels - at;
    const uint32_t n = left < CONV_BLOCK ? left : CONV_BLOCK, first = at + (job->args ? job->args->first : 0);
    (void)i_worker;
    if (job->args) conv_rows(job, run, first, n);
    conv_move_on(job, run, first, n);
    for (uint32_t i = 0; i < run->n_tentative; i++)
        memcpy(ae_state_record(job->store, job->place, run->seq, i) + first,
               conv_x(job->args, run->first + run->n_committed + i, first), n * sizeof(float));
}

static void run_conv(ae_stream *stream, conv_job *job, uint32_t n_runs)
{
    job->stream = stream;
    job->n_channels = job->args && job->args->n ? job->args->n : job->place->layer.n_channels;
    job->n_blocks = (job->n_channels + CONV_BLOCK - 1) / CONV_BLOCK;
    ae_pool_run(stream->pool, conv_item, job, n_runs * job->n_blocks);
}

void ae_cpu_conv(ae_stream *stream, const ae_conv *args)
{
    conv_job job = {.args = args, .store = args->pass->store, .place = &args->pass->store->places[args->layer],
                    .pass = args->pass};
    run_conv(stream, &job, args->pass->n_runs);
}

void ae_cpu_conv_absorb(ae_stream *stream, const ae_state_pass *pass, uint32_t layer)
{
    conv_job job = {.store = pass->store, .place = &pass->store->places[layer], .pass = pass};
    run_conv(stream, &job, pass->n_runs);
}

/* ---- The norm after a recurrence ---------------------------------------------------------------------------------------- */

typedef struct norm_job {
    const ae_kernels *kernels;
    const ae_gated_norm *args;
} norm_job;

static void gated_norm_item(void *context, uint32_t r, uint32_t i_worker)
{
    const norm_job *job = context;
    const ae_gated_norm *a = job->args;
    const uint32_t n = a->n_groups * a->dim;
    float *x = a->x + r * a->x_stride;
    const float *z = a->z ? a->z + r * a->z_stride : NULL;
    (void)i_worker;
    const ae_glu gate = a->sigmoid ? AE_GLU_SIGMOID : AE_GLU_SILU;
    if (a->gate_first) job->kernels->glu[gate](z, x, 0, 0, n, x);
    for (uint32_t g = 0; a->weight && g < a->n_groups; g++) {
        float *group = x + (size_t)g * a->dim;
        const size_t at = a->by_group ? (size_t)g * a->dim : 0;
        if (a->layer)
            job->kernels->layernorm(group, a->weight + at, a->bias ? a->bias + at : NULL, a->eps, a->dim, group);
        else job->kernels->rmsnorm(group, a->weight + at, a->eps, a->dim, group);
    }
    for (uint32_t g = 0; a->bonus && g < a->n_groups; g++)
        job->kernels->axpy(a->bonus[(size_t)r * a->n_groups + g], a->v + r * a->x_stride + (size_t)g * a->dim, a->dim,
                           x + (size_t)g * a->dim);
    if (!z || a->gate_first) return;
    if (!a->times) job->kernels->glu[gate](z, x, 0, 0, n, x);
    for (uint32_t i = 0; a->times && i < n; i++) x[i] *= z[i];
}

void ae_cpu_gated_norm(ae_stream *stream, const ae_gated_norm *args)
{
    norm_job job = {&stream->backend->kernels, args};
    if (args->n_rows > 1) ae_pool_run(stream->pool, gated_norm_item, &job, args->n_rows);
    else for (uint32_t r = 0; r < args->n_rows; r++) gated_norm_item(&job, r, 0);
}
