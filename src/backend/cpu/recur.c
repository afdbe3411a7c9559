/* recur.c - the recurrence of recurrent layers on the CPU, and which thread does what. The store: state.h.
 *
 * Owns nothing. Work on a state is split over heads and tiles of columns: no tile needs another's values, so a work item runs
 * all rows of a sequence over its part, which is read and written once. What the tiles of a head share (k, q, alpha, beta) is
 * computed before, row by row, and recorded after all tiles have absorbed the records that stood there. */
#include <math.h>
#include <string.h>

#include "backend/cpu/ref/ref.h"
#include "backend/cpu/state.h"

void ae_cpu_state_layout(ae_layout *layout, const ae_stream_options *o, ae_cpu_state *s)
{
    size_t n_alphas = 0, n_values = 0, n_erased = 0, key_dim = 0;
    for (uint32_t i = 0; i < o->state->n_layers; i++) {
        const ae_state_layer *l = &o->state->layers[i];
        const size_t values = (size_t)l->n_heads * l->value_dim;
        if (ae_state_n_alphas(l) > n_alphas) n_alphas = ae_state_n_alphas(l);
        if (values > n_values) n_values = values;
        if (l->kind == AE_STATE_WKV7 && ae_state_n_alphas(l) > n_erased) n_erased = ae_state_n_alphas(l);
        if (l->key_dim > key_dim) key_dim = l->key_dim;
    }
    s->d_stride = n_values;
    s->d = ae_layout_add(layout, o->max_rows * n_values, sizeof(float));
    s->alpha = ae_layout_add(layout, o->max_rows * n_alphas, sizeof(float));
    s->beta = ae_layout_add(layout, o->max_rows * n_alphas, sizeof(float));
    s->erased = ae_layout_add(layout, o->max_rows * n_erased, sizeof(float));
    s->buffer_floats = AE_STATE_BUFFERS * key_dim * AE_STATE_TILE;
    s->buffers = ae_layout_add(layout, o->n_threads * s->buffer_floats, sizeof(float));
}

typedef struct recur_job {
    ae_stream *stream;
    const ae_kernels *kernels;
    const ae_recur *args; /* NULL: no rows */
    const ae_state_store *store;
    const ae_state_place *place;
    const ae_state_pass *pass;
    ae_items items; /* items of units; a unit is a tile of a head of a run */
} recur_job;

/* The offsets of k, q and v in a row. */
typedef struct channels {
    float *k, *q, *v;
} channels;

static channels channels_of(const recur_job *job, uint32_t row)
{
    const ae_state_layer *l = &job->place->layer;
    const size_t keys = (size_t)l->n_groups * l->key_dim, values = (size_t)l->n_heads * l->value_dim;
    const size_t at = row * job->args->c_stride;
    float *c = job->args->c + at;
    if (ae_state_is_wkv(l)) return (channels){job->args->k + at, c, job->args->v + at};
    if (l->kind == AE_STATE_DELTA || l->kind == AE_STATE_KDA) return (channels){c + keys, c, c + 2 * keys};
    if (l->kind == AE_STATE_MAMBA1) {
        float *k = (float *)job->args->keys + row * job->args->keys_stride;
        return (channels){k, k + keys, c};
    }
    return (channels){c + values, c + values + keys, c};
}

static size_t ab_at(const ae_recur *a, uint32_t h)
{
    return a->ab_group ? (size_t)h / a->ab_group * 2 * a->ab_group + h % a->ab_group : h;
}

static void norm_keys(const recur_job *job, const channels *c)
{
    const ae_state_layer *l = &job->place->layer;
    for (uint32_t g = 0; g < l->n_groups; g++) {
        job->kernels->l2norm(c->k + (size_t)g * l->key_dim, 1e-6f, l->key_dim, c->k + (size_t)g * l->key_dim);
        job->kernels->l2norm(c->q + (size_t)g * l->key_dim, 1e-6f, l->key_dim, c->q + (size_t)g * l->key_dim);
    }
}

static void prepare_keyed(const recur_job *job, uint32_t r)
{
    const ae_recur *a = job->args;
    const ae_state_layer *l = &job->place->layer;
    const channels c = channels_of(job, r);
    float *alpha = job->stream->state.alpha + r * ae_state_n_alphas(l);
    float *beta = job->stream->state.beta + (size_t)r * l->n_heads;
    for (uint32_t h = 0; h < l->n_heads; h++) {
        const size_t at = (size_t)h * l->key_dim;
        job->kernels->keyed_decay(a->a + r * a->ab_stride + at, a->dt_bias ? a->dt_bias + at : NULL, a->decay[h], a->bound,
                                  l->key_dim, alpha + at);
        beta[h] = ae_ref_sigmoid(a->b[r * a->ab_stride + h]);
    }
    norm_keys(job, &c);
}

static void prepare_wkv(const recur_job *job, uint32_t r)
{
    const ae_recur *a = job->args;
    const ae_state_layer *l = &job->place->layer;
    const channels c = channels_of(job, r);
    const size_t n = (size_t)l->n_heads * l->key_dim;
    const bool seven = l->kind == AE_STATE_WKV7;
    float *alpha = job->stream->state.alpha + r * n, *written = job->stream->state.beta + r * n;
    job->kernels->wkv_decay(a->a + r * a->ab_stride, seven, (uint32_t)n, alpha);
    if (seven) {
        float *kk = job->stream->state.erased + r * n;
        memcpy(written, a->b + r * a->ab_stride, n * sizeof *written);
        job->kernels->wkv_keys(a->k_k, a->k_a, (uint32_t)n, c.k, written, kk);
        for (uint32_t h = 0; h < l->n_heads; h++) {
            float *own = kk + (size_t)h * l->key_dim;
            job->kernels->l2norm(own, 1e-24f, l->key_dim, own);
        }
        for (size_t i = 0; i < n; i++) written[i] *= kk[i];
    } else if (!a->first) {
        for (size_t i = 0; i < n; i++) c.k[i] -= c.k[i] * alpha[i];
    }
    float *bonus = seven ? a->bonus + (size_t)r * l->n_heads : written; /* WKV6 stores it where WKV7 stores `written` */
    for (uint32_t h = 0; a->first && h < l->n_heads; h++) {
        const size_t at = (size_t)h * l->key_dim;
        bonus[h] = job->kernels->wkv_bonus(c.k + at, c.q + at, a->first + at, l->key_dim);
    }
}

/* Computes the values that the tiles of a row's heads share. */
static void prepare_item(void *context, uint32_t r, uint32_t i_worker)
{
    const recur_job *job = context;
    const ae_recur *a = job->args;
    const ae_state_layer *l = &job->place->layer;
    const channels c = channels_of(job, r);
    float *alpha = job->stream->state.alpha + (size_t)r * l->n_heads, *beta = job->stream->state.beta + (size_t)r * l->n_heads;
    (void)i_worker;
    if (l->kind == AE_STATE_KDA) {
        prepare_keyed(job, r);
        return;
    }
    if (ae_state_is_wkv(l)) {
        prepare_wkv(job, r);
        return;
    }
    for (uint32_t h = 0; h < l->n_heads; h++) {
        const size_t at = r * a->ab_stride + ab_at(a, h);
        const float delta = ae_ref_softplus(a->dt_bias ? a->a[at] + a->dt_bias[h] : a->a[at]);
        alpha[h] = ae_ref_alpha(a->decay[h], delta);
        if (l->kind == AE_STATE_DELTA) {
            beta[h] = ae_ref_sigmoid(a->b[at]);
            continue;
        }
        float *d = job->stream->state.d + r * job->stream->state.d_stride + (size_t)h * l->value_dim;
        for (uint32_t j = 0; j < l->value_dim; j++) d[j] = c.v[(size_t)h * l->value_dim + j] * delta;
    }
    if (l->kind == AE_STATE_DELTA) norm_keys(job, &c);
}

typedef struct unit {
    const ae_state_run *run;
    uint32_t head, group, first, n; /* columns [first, first + n) */
    float *s;
} unit;

static unit unit_at(const recur_job *job, uint32_t i)
{
    const ae_state_place *p = job->place;
    const ae_state_layer *l = &p->layer;
    const uint32_t n_run = l->n_heads * p->n_tiles, tile = i % n_run;
    unit u = {.run = &job->pass->runs[i / n_run], .head = tile / p->n_tiles, .first = tile % p->n_tiles * AE_STATE_TILE};
    u.group = l->tiled ? u.head % l->n_groups : u.head / (l->n_heads / l->n_groups);
    u.n = l->value_dim - u.first < AE_STATE_TILE ? l->value_dim - u.first : AE_STATE_TILE;
    u.s = ae_state_plane(job->store, (uint32_t)u.run->seq) + p->matrices + (size_t)tile * l->key_dim * AE_STATE_TILE;
    return u;
}

static void absorb(const recur_job *job, const unit *u)
{
    const ae_state_place *p = job->place;
    const ae_state_layer *l = &p->layer;
    for (uint32_t i = 0; i < u->run->n_accepted; i++) {
        float *record = ae_state_record(job->store, p, u->run->seq, ae_state_accepted(job->pass, u->run, i));
        float d[AE_STATE_TILE] = {0};
        memcpy(d, ae_record_d(p, record) + (size_t)u->head * l->value_dim + u->first, u->n * sizeof *d);
        if (l->kind == AE_STATE_WKV7) {
            const size_t key = (size_t)u->head * l->key_dim;
            float e[AE_STATE_TILE] = {0};
            memcpy(e, ae_record_e(p, record) + (size_t)u->head * l->value_dim + u->first, u->n * sizeof *e);
            job->kernels->wkv7_absorb(u->s, &(ae_wkv_step){.key_dim = l->key_dim, .alpha = ae_record_alpha(p, record) + key,
                                                           .k = ae_record_k(p, record) + key, .v = d, .e = e,
                                                           .written = ae_record_written(p, record) + key});
            continue;
        }
        if (l->kind == AE_STATE_KDA || l->kind == AE_STATE_WKV6) {
            const size_t key = (size_t)u->head * l->key_dim;
            job->kernels->keyed_absorb(u->s, l->key_dim, ae_record_alpha(p, record) + key, ae_record_k(p, record) + key, d);
            continue;
        }
        job->kernels->state_absorb(u->s, l->key_dim, ae_record_alpha(p, record)[u->head],
                                   ae_record_k(p, record) + (size_t)u->group * l->key_dim, d);
    }
}

static void step(const recur_job *job, const unit *u, uint32_t row, const float *from, float *to)
{
    const ae_state_layer *l = &job->place->layer;
    const channels c = channels_of(job, row);
    const ae_cpu_state *state = &job->stream->state;
    const size_t column = (size_t)u->head * l->value_dim + u->first;
    float v[AE_STATE_TILE] = {0}, d[AE_STATE_TILE] = {0}, y[AE_STATE_TILE];
    float *row_d = state->d + row * state->d_stride + column, *row_y = job->args->y + row * job->args->y_stride + column;
    const bool delta = l->kind == AE_STATE_DELTA;
    memcpy(v, c.v + column, u->n * sizeof *v);
    if (!delta) memcpy(d, row_d, u->n * sizeof *d);
    job->kernels->state_step(from, to,
                             &(ae_state_step){.key_dim = l->key_dim,
                                              .delta = delta,
                                              .k = c.k + (size_t)u->group * l->key_dim,
                                              .q = c.q + (size_t)u->group * l->key_dim,
                                              .alpha = state->alpha[(size_t)row * l->n_heads + u->head],
                                              .beta = state->beta[(size_t)row * l->n_heads + u->head],
                                              .scale = 1.0f / sqrtf((float)l->key_dim),
                                              .v = v,
                                              .d = d,
                                              .y = y});
    if (delta) memcpy(row_d, d, u->n * sizeof *d);
    const float skip = !delta && job->args->skip ? job->args->skip[u->head] : 0;
    for (uint32_t j = 0; j < u->n; j++) row_y[j] = !delta && job->args->skip ? fmaf(skip, v[j], y[j]) : y[j];
}

static void step_keyed(const recur_job *job, const unit *u, uint32_t row, const float *from, float *to)
{
    const ae_state_layer *l = &job->place->layer;
    const channels c = channels_of(job, row);
    const ae_cpu_state *state = &job->stream->state;
    const size_t column = (size_t)u->head * l->value_dim + u->first, key = (size_t)u->head * l->key_dim;
    float v[AE_STATE_TILE] = {0}, d[AE_STATE_TILE], y[AE_STATE_TILE];
    memcpy(v, c.v + column, u->n * sizeof *v);
    job->kernels->keyed_step(from, to,
                             &(ae_keyed_step){.key_dim = l->key_dim,
                                              .alpha = state->alpha + row * ae_state_n_alphas(l) + key,
                                              .k = c.k + key,
                                              .q = c.q + key,
                                              .beta = state->beta[(size_t)row * l->n_heads + u->head],
                                              .scale = 1.0f / sqrtf((float)l->key_dim),
                                              .v = v,
                                              .d = d,
                                              .y = y});
    memcpy(state->d + row * state->d_stride + column, d, u->n * sizeof *d);
    memcpy(job->args->y + row * job->args->y_stride + column, y, u->n * sizeof *y);
}

static void step_wkv(const recur_job *job, const unit *u, uint32_t row, const float *from, float *to)
{
    const ae_state_layer *l = &job->place->layer;
    const channels c = channels_of(job, row);
    const ae_cpu_state *state = &job->stream->state;
    const size_t column = (size_t)u->head * l->value_dim + u->first, key = (size_t)u->head * l->key_dim;
    const size_t n = ae_state_n_alphas(l);
    const bool seven = l->kind == AE_STATE_WKV7;
    float v[AE_STATE_TILE] = {0}, e[AE_STATE_TILE], y[AE_STATE_TILE];
    memcpy(v, c.v + column, u->n * sizeof *v);
    (seven ? job->kernels->wkv7_step : job->kernels->wkv6_step)(
        from, to, &(ae_wkv_step){.key_dim = l->key_dim,
                                 .alpha = state->alpha + row * n + key,
                                 .k = c.k + key,
                                 .q = c.q + key,
                                 .erased = seven ? state->erased + row * n + key : NULL,
                                 .written = seven ? state->beta + row * n + key : NULL,
                                 .after = !seven && !job->args->first,
                                 .bonus = !seven && job->args->first ? state->beta[row * n + u->head] : 0,
                                 .scale = 1.0f / sqrtf((float)l->key_dim),
                                 .v = v,
                                 .e = e,
                                 .y = y});
    if (seven) memcpy(state->d + row * state->d_stride + column, e, u->n * sizeof *e);
    memcpy(job->args->y + row * job->args->y_stride + column, y, u->n * sizeof *y);
}

/* ---- MAMBA1: a tile's columns are channels, whose states decay each at its own rate ------------------------- */

/* What is the same for all rows of a tile: the decay of its columns, transposed. */
typedef struct scan_tile {
    float decay[AE_STATE_MAX_KEY * AE_STATE_TILE], bias[AE_STATE_TILE], skip[AE_STATE_TILE];
} scan_tile;

static void scan_begin(const recur_job *job, const unit *u, scan_tile *tile)
{
    const uint32_t n = job->place->layer.key_dim;
    const float *decay = job->place->layer.decay;
    memset(tile->decay, 0, (size_t)n * AE_STATE_TILE * sizeof *tile->decay);
    memset(tile->bias, 0, sizeof tile->bias);
    memset(tile->skip, 0, sizeof tile->skip);
    for (uint32_t j = 0; j < u->n; j++)
        for (uint32_t i = 0; i < n; i++) tile->decay[i * AE_STATE_TILE + j] = decay[(size_t)(u->first + j) * n + i];
    if (!job->args) return;
    if (job->args->dt_bias) memcpy(tile->bias, job->args->dt_bias + u->first, u->n * sizeof(float));
    if (job->args->skip) memcpy(tile->skip, job->args->skip + u->first, u->n * sizeof(float));
}

static void scan_absorb(const recur_job *job, const unit *u, const scan_tile *tile)
{
    const ae_state_place *p = job->place;
    for (uint32_t i = 0; i < u->run->n_accepted; i++) {
        float *record = ae_state_record(job->store, p, u->run->seq, ae_state_accepted(job->pass, u->run, i));
        float delta[AE_STATE_TILE] = {0}, d[AE_STATE_TILE] = {0};
        memcpy(delta, ae_record_alpha(p, record) + u->first, u->n * sizeof *delta);
        memcpy(d, ae_record_d(p, record) + u->first, u->n * sizeof *d);
        job->kernels->scan_absorb(u->s, &(ae_scan_step){.key_dim = p->layer.key_dim, .decay = tile->decay,
                                                        .k = ae_record_k(p, record), .delta = delta, .d = d});
    }
}

static void scan_step(const recur_job *job, const unit *u, const scan_tile *tile, uint32_t row, const float *from, float *to)
{
    const ae_state_layer *l = &job->place->layer;
    const ae_recur *a = job->args;
    const channels c = channels_of(job, row);
    const ae_cpu_state *state = &job->stream->state;
    float x[AE_STATE_TILE] = {0}, v[AE_STATE_TILE] = {0}, delta[AE_STATE_TILE], d[AE_STATE_TILE], y[AE_STATE_TILE];
    memcpy(x, a->a + row * a->ab_stride + u->first, u->n * sizeof *x);
    memcpy(v, c.v + u->first, u->n * sizeof *v);
    job->kernels->scan_delta(x, a->dt_bias ? tile->bias : NULL, v, delta, d);
    job->kernels->scan_step(from, to, &(ae_scan_step){l->key_dim, tile->decay, c.k, c.q, delta, d, y});
    memcpy(state->alpha + (size_t)row * l->value_dim + u->first, delta, u->n * sizeof *delta);
    memcpy(state->d + row * state->d_stride + u->first, d, u->n * sizeof *d);
    float *row_y = a->y + row * a->y_stride + u->first;
    for (uint32_t j = 0; j < u->n; j++) row_y[j] = a->skip ? fmaf(tile->skip[j], v[j], y[j]) : y[j];
}

/* Runs all rows of a unit. tile: used for MAMBA1. */
static void absorb_unit(const recur_job *job, const unit *u, const scan_tile *tile)
{
    if (tile) scan_absorb(job, u, tile);
    else absorb(job, u);
}

static void step_unit(const recur_job *job, const unit *u, const scan_tile *tile, uint32_t row, const float *from, float *to)
{
    if (tile) scan_step(job, u, tile, row, from, to);
    else if (job->place->layer.kind == AE_STATE_KDA) step_keyed(job, u, row, from, to);
    else if (ae_state_is_wkv(&job->place->layer)) step_wkv(job, u, row, from, to);
    else step(job, u, row, from, to);
}

static void recur_item(void *context, uint32_t item, uint32_t i_worker)
{
    const recur_job *job = context;
    const uint32_t begin = ae_items_begin(&job->items, item), end = ae_items_end(&job->items, item);
    const size_t tile_floats = (size_t)job->place->layer.key_dim * AE_STATE_TILE;
    float *buffers = job->stream->state.buffers + i_worker * job->stream->state.buffer_floats;
    for (uint32_t i = begin; i < end; i++) {
        const unit u = unit_at(job, i);
        scan_tile room, *tile = job->place->layer.kind == AE_STATE_MAMBA1 ? &room : NULL;
        if (tile) scan_begin(job, &u, tile);
        absorb_unit(job, &u, tile);
        for (uint32_t r = 0; r < u.run->n_committed; r++) step_unit(job, &u, tile, u.run->first + r, u.s, u.s);
        const ae_state_visit *visits = job->pass->visits + (size_t)(u.run - job->pass->runs) * job->pass->stride;
        for (uint32_t t = 0; t < u.run->n_tentative; t++) {
            const ae_state_visit *visit = &visits[t];
            step_unit(job, &u, tile, (uint32_t)visit->row, visit->from < 0 ? u.s : buffers + (size_t)visit->from * tile_floats,
                      buffers + (size_t)visit->to * tile_floats);
        }
    }
}

static void run_units(ae_stream *stream, recur_job *job, uint32_t n_runs)
{
    const uint32_t n_units = n_runs * job->place->layer.n_heads * job->place->n_tiles;
    if (!n_units) return;
    job->items = ae_items_cut(n_units, ae_pool_n_workers(stream->pool), 1);
    ae_pool_run(stream->pool, recur_item, job, ae_items_count(&job->items));
}

static void record_rows(const recur_job *job, const ae_state_run *run)
{
    const ae_state_place *p = job->place;
    const ae_state_layer *l = &p->layer;
    const ae_cpu_state *state = &job->stream->state;
    for (uint32_t i = 0; i < run->n_tentative; i++) {
        const uint32_t row = run->first + run->n_committed + i;
        float *record = ae_state_record(job->store, p, run->seq, i);
        const size_t values = (size_t)l->n_heads * l->value_dim, n = ae_state_n_alphas(l);
        const float *d = state->d + row * state->d_stride;
        memcpy(ae_record_k(p, record), channels_of(job, row).k, (size_t)l->n_groups * l->key_dim * sizeof(float));
        memcpy(ae_record_d(p, record), ae_state_is_wkv(l) ? channels_of(job, row).v : d, values * sizeof(float));
        memcpy(ae_record_alpha(p, record), state->alpha + row * n, n * sizeof(float));
        if (l->kind != AE_STATE_WKV7) continue;
        memcpy(ae_record_written(p, record), state->beta + row * n, n * sizeof(float));
        memcpy(ae_record_e(p, record), d, values * sizeof(float));
    }
}

void ae_cpu_recur(ae_stream *stream, const ae_recur *args)
{
    const ae_state_pass *pass = args->pass;
    recur_job job = {.stream = stream, .kernels = &stream->backend->kernels, .args = args, .store = pass->store,
                     .place = &pass->store->places[args->layer], .pass = pass};
    const bool shared = job.place->layer.kind != AE_STATE_MAMBA1;
    if (shared && pass->n_rows > 1) ae_pool_run(stream->pool, prepare_item, &job, pass->n_rows);
    else for (uint32_t r = 0; shared && r < pass->n_rows; r++) prepare_item(&job, r, 0);
    run_units(stream, &job, pass->n_runs);
    for (uint32_t i = 0; i < pass->n_runs; i++) record_rows(&job, &pass->runs[i]);
}

void ae_cpu_state_absorb(ae_stream *stream, const ae_state_pass *pass)
{
    const ae_state_store *store = pass->store;
    for (uint32_t i = 0; i < store->shape.n_layers; i++) {
        recur_job job = {.stream = stream, .kernels = &stream->backend->kernels, .store = store, .place = &store->places[i],
                         .pass = pass};
        ae_cpu_conv_absorb(stream, pass, i);
        run_units(stream, &job, pass->n_runs);
    }
}
