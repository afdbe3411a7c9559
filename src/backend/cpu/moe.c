/* moe.c - the feed-forward block with experts on the CPU.
 *
 * Owns nothing: works in the stream's scratch. A pair is a row and an expert that it chose; pairs are ordered by expert,
 * then by row, so the rows of an expert stand together and its weights are walked once for all of them:
 *   1. rows are normed and quantized once each, the router's logits multiplied, experts chosen (ae_ref_route)
 *   2. the prepared rows of each expert are gathered (a lone row, or all rows, are used where they are)
 *   3. gate and up of all chosen experts: their panels form one list, cut over the threads
 *   4. per pair: silu(gate) * up, quantized
 * 5. down: an item has some output columns, walks all chosen experts in ascending order and adds to y as it goes, so the order
 * of the sum is fixed without a buffer for all results The shared expert is one more group, with all rows, walked last. A row's
 * result does not depend on its neighbours: kernels give a row the same bits in any batch. */
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/ref/ref.h"
#include "base/math/fmath.h"

/* A kernel call has a fixed cost, which shows if experts have few columns: so a work item takes enough panels of an expert to
 * walk at least this much of k. With experts of 64 columns that saves a quarter of down (Sapphire Rapids). */
#define LEAST_K 1152
/* Threads contend for items that are too small: an item that prepares rows has at least this many floats. With experts of 64
 * columns, single rows would make several hundred items. */
#define LEAST_FLOATS 2048

typedef struct moe_job {
    ae_stream *stream;
    const ae_kernels *kernels;
    const ae_moe *args;
    ae_cpu_moe *m;
    uint32_t n_pairs, n_groups;
    ae_act_need need, shared_need; /* the forms that the current product needs of the experts' rows; of all rows */
    ae_matmul hidden, shared_hidden;
    ae_items items; /* the items of panels of the current product */
    uint32_t n_pieces;
    uint32_t n_pairs_item, n_rows_item, n_pair_items; /* items of prepare_hidden; those of the shared expert's rows come last */
} moe_job;

/* ---- Scratch ---------------------------------------------------------------------------------- */

void ae_cpu_moe_layout(ae_layout *layout, const ae_kernels *kernels, const ae_stream_options *options, ae_cpu_moe *m)
{
    const ae_moe_shape *s = &options->moe;
    const size_t n_rows = options->max_rows, n_pairs = n_rows * s->n_used;
    size_t tiles = 0;
    if (ae_kernels_tile(kernels)) /* each group is padded to a multiple of 16 */
        tiles = n_pairs / AE_TILE_ROWS + (n_pairs < s->n_experts ? n_pairs : s->n_experts) + 1;
    m->logits = ae_layout_add(layout, n_rows * s->n_experts, sizeof(float));
    m->p = ae_layout_add(layout, n_rows * s->n_experts, sizeof(float));
    m->shared_weight = ae_layout_add(layout, n_rows, sizeof(float));
    m->ids = ae_layout_add(layout, n_pairs, sizeof(uint32_t));
    m->weights = ae_layout_add(layout, n_pairs, sizeof(float));
    m->row = ae_layout_add(layout, n_pairs, sizeof(uint32_t));
    m->choice = ae_layout_add(layout, n_pairs, sizeof(uint32_t));
    m->weight = ae_layout_add(layout, n_pairs, sizeof(float));
    m->begin = ae_layout_add(layout, (size_t)s->n_experts + 1, sizeof(uint32_t));
    m->groups = ae_layout_add(layout, (size_t)s->n_experts + 1, sizeof *m->groups);
    ae_act_layout(layout, n_pairs, s->n_embd > s->n_ff ? s->n_embd : s->n_ff, tiles * AE_TILE_ROWS, &m->act);
    m->gate = ae_layout_add(layout, n_pairs * s->n_ff, sizeof(float));
    m->up = ae_layout_add(layout, n_pairs * s->n_ff, sizeof(float));
    m->shared_gate = ae_layout_add(layout, n_rows * s->n_ff_shared, sizeof(float));
    m->shared_up = ae_layout_add(layout, n_rows * s->n_ff_shared, sizeof(float));
    const size_t n_same = s->n_each > 1 ? s->n_each : 1; /* most times that a row uses one expert */
    m->down = ae_layout_add(layout, n_same * n_rows * s->n_embd, sizeof(float));
    m->weighed = ae_layout_add(layout, s->weigh_input ? n_pairs * s->n_embd : 0, sizeof(float));
}

static bool is_shared(const moe_job *job, const ae_moe_group *g)
{
    return g->expert == job->args->routing.n_experts;
}

static bool is_tiled(const ae_act_need *need, uint32_t n_rows)
{
    return ae_act_wants_tiles(need, AE_DOT_32, n_rows) || ae_act_wants_tiles(need, AE_DOT_256, n_rows);
}

static void run(moe_job *job, ae_pool_job *item, uint32_t n_items, bool small)
{
    if (!small) ae_pool_run(job->stream->pool, item, job, n_items);
    else for (uint32_t i = 0; i < n_items; i++) item(job, i, 0);
}

/* ---- Pairs and groups ---------------------------------------------------------------------------- */

static void route_item(void *context, uint32_t r, uint32_t i_worker)
{
    const moe_job *job = context;
    const ae_routing *routing = &job->args->routing;
    const ae_cpu_moe *m = job->m;
    const size_t logits = (size_t)r * routing->n_experts, ids = (size_t)r * routing->n_used;
    const ae_moe *a = job->args;
    (void)i_worker;
    m->shared_weight[r] = a->shared_router ? 1.0f / (1.0f + ae_expf(-m->shared_weight[r])) : 1.0f;
    if (!routing->n_used) return;
    if (a->router_scale != 0.0f)
        for (uint32_t e = 0; e < routing->n_experts; e++) m->logits[logits + e] *= a->router_scale;
    const uint32_t n_listed = routing->n_full ? routing->n_full : routing->n_used;
    const float *fixed = a->table ? a->table + (size_t)a->tokens[r] * n_listed : NULL;
    ae_ref_route(routing, m->logits + logits, a->bias, fixed, m->p + logits, m->ids + ids, m->weights + ids);
    for (uint32_t i = 0; a->out_scale && i < routing->n_used; i++) m->weights[ids + i] *= a->out_scale[m->ids[ids + i]];
    for (uint32_t i = 0; a->n_each > 1 && i < routing->n_used; i++) m->ids[ids + i] /= a->n_each;
}

static void given_item(void *context, uint32_t r, uint32_t i_worker)
{
    const moe_job *job = context;
    const float most = (float)(job->args->routing.n_experts - 1), x = job->args->given[(size_t)r * job->args->given_stride];
    const float id = x > 0.0f ? x < most ? x : most : 0.0f; /* NaN: 0 */
    const uint32_t below = (uint32_t)id;
    (void)i_worker;
    job->m->ids[r] = below + (id - (float)below >= 0.5f);
    job->m->weights[r] = 1.0f;
}

/* Takes the experts of the rows from the caller's list. */
static void take_given(moe_job *job)
{
    const ae_moe *a = job->args;
    ae_stream *s = job->stream;
    ae_act_need need = {0};
    const ae_matmul in = {.n_rows = a->n_rows, .input = a->norm ? AE_INPUT_RMSNORM : AE_INPUT_PLAIN, .x = a->x,
                          .x_stride = a->up[0]->n_in, .norm = a->norm, .norm_eps = a->norm_eps};
    s->act.n_rows = a->n_rows;
    s->act.n_in = a->up[0]->n_in;
    ae_act_need_add(&need, a->up[0]);
    if (a->gate) ae_act_need_add(&need, a->gate[0]);
    ae_cpu_prepare(s, &in, &need, &s->act);
    run(job, given_item, a->n_rows, a->n_rows <= 4);
}

static void route(moe_job *job)
{
    const ae_moe *a = job->args;
    ae_stream *s = job->stream;
    const bool own_input = a->router_norm || a->latent; /* whether the router has an input of its own */
    const ae_weight *up = a->up[0]; /* NULL: this rank has no inner rows */
    const ae_weight *readers[] = {a->gate ? a->gate[0] : NULL, up, a->shared_gate, a->shared_up, a->shared_router,
                                  own_input ? NULL : a->router};
    const struct ae_matmul_out logits = {a->router, a->router_bias, job->m->logits, a->routing.n_experts, false};
    ae_matmul in = {.n_rows = a->n_rows, .input = a->norm ? AE_INPUT_RMSNORM : AE_INPUT_PLAIN, .x = a->x,
                    .x_stride = a->router->n_in, .norm = a->norm, .norm_eps = a->norm_eps};
    s->act.n_rows = a->n_rows;
    s->act.n_in = a->router->n_in;
    if (own_input) {
        ae_matmul own = in;
        ae_act_need need = {0};
        ae_act_need_add(&need, a->router);
        if (a->router_norm) own.input = AE_INPUT_RMSNORM, own.norm = a->router_norm;
        own.n_weights = 1, own.out[0] = logits;
        ae_cpu_prepare(s, &own, &need, &s->act);
        ae_cpu_multiply(s, &own, &s->act);
    } else if (a->routing.n_used) {
        in.out[in.n_weights++] = logits;
    }
    if (a->latent && up) {
        s->act.n_in = up->n_in;
        in.input = AE_INPUT_PLAIN, in.x = a->latent, in.x_stride = s->act.n_in;
    }
    if (a->shared_router)
        in.out[in.n_weights++] = (struct ae_matmul_out){a->shared_router, NULL, job->m->shared_weight, 1, false};
    ae_act_need need = {0};
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++)
        if (readers[i]) ae_act_need_add(&need, readers[i]);
    if (!a->latent || up) ae_cpu_prepare(s, &in, &need, &s->act);
    if (in.n_weights) ae_cpu_multiply(s, &in, &s->act);
    run(job, route_item, a->n_rows, a->n_rows <= 4);
}

static void add_group(moe_job *job, uint32_t expert, uint32_t first, uint32_t n, uint32_t *i_tile)
{
    job->m->groups[job->n_groups++] = (ae_moe_group){.expert = expert, .first = first, .n = n, .i_tile = *i_tile};
    if (ae_kernels_tile(job->kernels)) *i_tile += (n + AE_TILE_ROWS - 1) / AE_TILE_ROWS;
}

/* Orders pairs by expert and row, and makes the groups of those experts that were chosen. */
static void group_rows(moe_job *job)
{
    const ae_moe *a = job->args;
    ae_cpu_moe *m = job->m;
    const uint32_t n_experts = a->routing.n_experts, n_used = a->routing.n_used;
    const bool routed = a->part != AE_MOE_UP || a->up[0]; /* a rank may have inner rows of only the shared expert */
    uint32_t i_tile = 0, first = 0;
    job->n_pairs = a->n_rows * n_used;
    memset(m->begin, 0, (n_experts + 1) * sizeof *m->begin);
    for (uint32_t i = 0; i < job->n_pairs; i++) m->begin[m->ids[i] + 1]++;
    for (uint32_t e = 0; e < n_experts; e++) m->begin[e + 1] += m->begin[e];
    for (uint32_t i = 0; i < job->n_pairs; i++) {
        const uint32_t pair = m->begin[m->ids[i]]++; /* afterwards begin[e] is the end of expert e */
        m->row[pair] = i / n_used;
        m->choice[pair] = i;
        m->weight[pair] = a->weigh_input ? 1.0f : m->weights[i];
        if (a->weigh_input) m->p[pair] = m->weights[i]; /* p is no longer needed and large enough: n_used <= n_experts */
    }
    for (uint32_t e = 0; e < n_experts; first = m->begin[e++])
        if (routed && m->begin[e] > first) add_group(job, e, first, m->begin[e] - first, &i_tile);
    i_tile = 0; /* the shared expert uses the stream's own rows and tiles */
    const ae_weight *shared = a->part == AE_MOE_DOWN ? a->shared_down : a->shared_up;
    if (shared) add_group(job, n_experts, 0, a->n_rows, &i_tile);
}

/* ---- Activations of the groups ----------------------------------------------------------------- */

/* Multiplies each of a group's rows by its expert's weight. */
static void weigh_rows(const moe_job *job, ae_moe_group *g)
{
    const ae_cpu_moe *m = job->m;
    const uint32_t n = job->stream->act.n_in;
    g->act = ae_act_slice(&m->act, g->first, g->i_tile, g->n);
    for (uint32_t i = 0; i < g->n; i++) {
        const uint32_t pair = g->first + i;
        const float *x = job->stream->act.x + (size_t)m->row[pair] * n; /* normed */
        float *y = m->weighed + (size_t)pair * n;
        for (uint32_t k = 0; k < n; k++) y[k] = m->p[pair] * x[k];
        ae_cpu_prepare_row(job->kernels, &(ae_matmul){.input = AE_INPUT_PLAIN, .x = y - (size_t)i * n, .x_stride = n},
                           &job->need, &g->act, i);
    }
    ae_act_tile_needed(&g->act, &job->need, 0, n / 32);
}

static void gather_item(void *context, uint32_t i_group, uint32_t i_worker)
{
    const moe_job *job = context;
    const ae_act *all = &job->stream->act;
    ae_moe_group *g = &job->m->groups[i_group];
    const uint32_t *row = job->m->row + g->first;
    (void)i_worker;
    if (job->args->weigh_input && !is_shared(job, g)) {
        weigh_rows(job, g);
    } else if (is_shared(job, g) || (g->n == all->n_rows && job->args->n_each <= 1)) {
        g->act = *all;
    } else if (g->n == 1 && !is_tiled(&job->need, 1)) {
        g->act = ae_act_slice(all, row[0], 0, 1);
    } else {
        g->act = ae_act_slice(&job->m->act, g->first, g->i_tile, g->n);
        for (uint32_t i = 0; i < g->n; i++) ae_act_copy_row(all, row[i], &g->act, i, &job->need);
        ae_act_tile_needed(&g->act, &job->need, 0, all->n_in / 32);
    }
}

/* Prepares the row of a pair; its place is that of the pair's choice. */
static void prepare_gathered(const moe_job *job, uint32_t pair)
{
    const ae_moe *a = job->args;
    const ae_act act = ae_act_slice(&job->m->act, pair, 0, 1);
    const ae_matmul row = {.input = a->hidden_blocks ? AE_INPUT_BLOCKS : AE_INPUT_PLAIN,
                           .x = a->hidden + job->m->choice[pair] * a->hidden_stride, .x_stride = a->hidden_stride};
    ae_cpu_prepare_row(job->kernels, &row, &job->need, &act, 0);
}

/* Prepares the input of down: the hidden values of some pairs or, after all pairs, of some rows of the shared expert. */
static void hidden_item(void *context, uint32_t item, uint32_t i_worker)
{
    const moe_job *job = context;
    const bool shared = item >= job->n_pair_items;
    const uint32_t n_each = shared ? job->n_rows_item : job->n_pairs_item, n = shared ? job->args->n_rows : job->n_pairs;
    const uint32_t begin = (shared ? item - job->n_pair_items : item) * n_each, end = n - begin < n_each ? n : begin + n_each;
    (void)i_worker;
    for (uint32_t i = begin; i < end; i++) {
        if (shared) ae_cpu_prepare_row(job->kernels, &job->shared_hidden, &job->shared_need, &job->stream->act, i);
        else if (job->args->part == AE_MOE_DOWN) prepare_gathered(job, i);
        else ae_cpu_prepare_row(job->kernels, &job->hidden, &job->need, &job->m->act, i);
    }
}

static uint32_t rows_item(uint32_t n_floats)
{
    return n_floats < LEAST_FLOATS ? LEAST_FLOATS / (n_floats ? n_floats : 1) : 1;
}

static void tile_item(void *context, uint32_t i, uint32_t i_worker)
{
    const moe_job *job = context;
    ae_moe_group *g = &job->m->groups[i / job->n_pieces];
    (void)i_worker;
    ae_act_tile_piece(&g->act, is_shared(job, g) ? &job->shared_need : &job->need, i % job->n_pieces);
}

/* Makes the input f(gate) * up, or f(up) if there is no gate. */
static ae_matmul glu_input(const float *gate, const float *up, uint32_t n, ae_glu glu, float limit, float up_limit)
{
    return (ae_matmul){.input = AE_INPUT_GLU, .x = gate ? gate : up, .x2 = gate ? up : NULL, .x_stride = n, .glu = glu,
                       .glu_limit = limit, .up_limit = up_limit};
}

static void prepare_hidden(moe_job *job)
{
    const ae_moe *a = job->args;
    ae_cpu_moe *m = job->m;
    ae_act *all = &job->stream->act;
    const uint32_t n_ff = a->down[0]->n_in, n_shared = a->shared_down ? a->shared_down->n_in : 0;
    job->need = (ae_act_need){0};
    ae_act_need_add(&job->need, a->down[0]);
    if (n_shared) ae_act_need_add(&job->shared_need, a->shared_down);
    job->hidden = glu_input(a->gate ? m->gate : NULL, m->up, n_ff, a->glu, a->glu_limit, a->up_limit);
    job->shared_hidden = glu_input(a->shared_gate ? m->shared_gate : NULL, m->shared_up, n_shared, a->shared_glu,
                                   a->shared_limit, a->up_limit);
    if (a->part == AE_MOE_DOWN)
        job->shared_hidden = (ae_matmul){.input = a->shared_blocks ? AE_INPUT_BLOCKS : AE_INPUT_PLAIN, .x = a->shared_hidden,
                                         .x_stride = a->shared_stride};
    m->act.n_in = n_ff;
    all->n_in = n_shared;
    all->n_rows = a->n_rows;
    job->n_pairs_item = rows_item(n_ff), job->n_rows_item = rows_item(n_shared);
    job->n_pair_items = (job->n_pairs + job->n_pairs_item - 1) / job->n_pairs_item;
    const uint32_t n_shared_items = n_shared ? (a->n_rows + job->n_rows_item - 1) / job->n_rows_item : 0;
    run(job, hidden_item, job->n_pair_items + n_shared_items, job->n_pair_items + n_shared_items <= 2);
    for (uint32_t i = 0; i < job->n_groups; i++) {
        ae_moe_group *g = &m->groups[i];
        g->act = is_shared(job, g) ? *all : ae_act_slice(&m->act, g->first, g->i_tile, g->n);
    }
    if (!is_tiled(&job->need, a->n_rows) && !is_tiled(&job->shared_need, a->n_rows)) return;
    job->n_pieces = ae_act_tile_pieces(n_ff > n_shared ? n_ff : n_shared);
    run(job, tile_item, job->n_groups * job->n_pieces, a->n_rows <= AE_TILE_ROWS);
}

/* ---- Watchers ------------------------------------------------------------------------------------ */

/* Reports the inputs of gate and up of all chosen experts: the rows before quantization. */
static void tell_gate_up(const moe_job *job)
{
    const ae_moe *a = job->args;
    const ae_stream *s = job->stream;
    const size_t n = s->act.n_in;
    const float *rows = a->latent ? a->latent : s->act.x;
    for (uint32_t i = 0; s->watch && i < job->n_groups; i++) {
        const ae_moe_group *g = &job->m->groups[i];
        if (is_shared(job, g)) {
            ae_cpu_tell(s, a->shared_gate, rows, n, g->n);
            ae_cpu_tell(s, a->shared_up, rows, n, g->n);
            continue;
        }
        for (uint32_t pair = g->first; pair < g->first + g->n; pair++) {
            const float *x = a->weigh_input ? job->m->weighed + pair * n : rows + job->m->row[pair] * n;
            ae_cpu_tell(s, a->gate ? a->gate[g->expert] : NULL, x, n, 1);
            ae_cpu_tell(s, a->up[g->expert], x, n, 1);
        }
    }
}

static void tell_down(const moe_job *job)
{
    const ae_moe *a = job->args;
    const ae_stream *s = job->stream;
    for (uint32_t i = 0; s->watch && i < job->n_groups; i++) {
        const ae_moe_group *g = &job->m->groups[i];
        ae_cpu_tell(s, is_shared(job, g) ? a->shared_down : a->down[g->expert], g->act.x, g->act.n_in, g->n);
    }
}

/* ---- Products ------------------------------------------------------------------------------------ */

/* Computes panels [begin, end), counted from *at on, of y = w x (+ bias), and moves *at past w. Without a weight it does
 * nothing. */
static void multiply(const moe_job *job, uint32_t i_worker, const ae_weight *w, const float *bias, const ae_act *act, float *y,
                     uint32_t begin, uint32_t end, uint32_t *at)
{
    if (!w) return;
    const uint32_t n = ae_weight_n_panels(w->n_out), b = begin > *at ? begin - *at : 0, e = end < *at + n ? end - *at : n;
    const ae_mm_out out = {y, w->n_out, bias, false, NULL};
    if (end > *at && b < e) ae_cpu_panels(job->stream, i_worker, w, act, &out, b, e);
    *at += n;
}

/* Returns the bias of a group's expert; the shared one has none. */
static const float *bias_of(const float *biases, bool shared, const ae_moe_group *g, uint32_t n_out)
{
    return biases && !shared ? biases + (size_t)g->expert * n_out : NULL;
}

static void gate_up_item(void *context, uint32_t item, uint32_t i_worker)
{
    const moe_job *job = context;
    const ae_moe *a = job->args;
    const ae_cpu_moe *m = job->m;
    const uint32_t begin = ae_items_begin(&job->items, item), end = ae_items_end(&job->items, item);
    for (uint32_t i = 0, at = 0; i < job->n_groups && at < end; i++) {
        const ae_moe_group *g = &m->groups[i];
        const bool shared = is_shared(job, g);
        const ae_weight *gate = shared ? a->shared_gate : a->gate ? a->gate[g->expert] : NULL;
        const ae_weight *up = shared ? a->shared_up : a->up[g->expert];
        const size_t y = (size_t)g->first * up->n_out;
        multiply(job, i_worker, gate, bias_of(a->gate_bias, shared, g, up->n_out), &g->act,
                 (shared ? m->shared_gate : m->gate) + y, begin, end, &at);
        multiply(job, i_worker, up, bias_of(a->up_bias, shared, g, up->n_out), &g->act,
                 (shared ? m->shared_up : m->up) + y, begin, end, &at);
    }
}

static void down_item(void *context, uint32_t item, uint32_t i_worker)
{
    const moe_job *job = context;
    const ae_moe *a = job->args;
    const ae_cpu_moe *m = job->m;
    const uint32_t begin = ae_items_begin(&job->items, item), end = ae_items_end(&job->items, item);
    const uint32_t n_embd = a->down[0]->n_out, o = begin * AE_PANEL;
    const uint32_t width = (end < job->items.n_pieces ? end * AE_PANEL : n_embd) - o;
    for (uint32_t i = 0; i < job->n_groups; i++) {
        const ae_moe_group *g = &m->groups[i];
        const bool shared = is_shared(job, g);
        uint32_t at = 0;
        multiply(job, i_worker, shared ? a->shared_down : a->down[g->expert], bias_of(a->down_bias, shared, g, n_embd),
                 &g->act, m->down, begin, end, &at);
        for (uint32_t r = 0; r < g->n; r++) {
            const uint32_t row = shared ? r : m->row[g->first + r];
            const float weight = shared ? m->shared_weight[r] : m->weight[g->first + r];
            job->kernels->axpy(weight, m->down + (size_t)r * n_embd + o, width, a->y + (size_t)row * n_embd + o);
        }
    }
}

/* ---- The parts ------------------------------------------------------------------------------------ */

static void multiply_gate_up(moe_job *job)
{
    const ae_moe *a = job->args;
    const uint32_t n_workers = ae_pool_n_workers(job->stream->pool);
    uint32_t n_panels = 0;
    job->m->act.n_in = job->stream->act.n_in;
    if (a->gate && a->gate[0]) ae_act_need_add(&job->need, a->gate[0]);
    if (a->up[0]) ae_act_need_add(&job->need, a->up[0]);
    run(job, gather_item, job->n_groups, a->n_rows <= 2);
    tell_gate_up(job);
    for (uint32_t i = 0; i < job->n_groups; i++) {
        const bool shared = is_shared(job, &job->m->groups[i]), gated = shared ? a->shared_gate != NULL : a->gate != NULL;
        n_panels += (gated ? 2 : 1) * ae_weight_n_panels((shared ? a->shared_up : a->up[0])->n_out);
    }
    job->items = ae_items_cut(n_panels, n_workers, 1);
    run(job, gate_up_item, ae_items_count(&job->items), false);
}

static void multiply_down(moe_job *job)
{
    const ae_weight *down = job->args->down[0];
    prepare_hidden(job);
    tell_down(job);
    job->items = ae_items_cut(ae_weight_n_panels(down->n_out), ae_pool_n_workers(job->stream->pool), LEAST_K / down->n_in);
    run(job, down_item, ae_items_count(&job->items), false);
}

static void hand_out_item(void *context, uint32_t item, uint32_t i_worker)
{
    const moe_job *job = context;
    const ae_moe *a = job->args;
    const ae_cpu_moe *m = job->m;
    const bool shared = item >= job->n_pairs;
    const uint32_t i = shared ? item - job->n_pairs : item, n = (shared ? a->shared_up : a->up[0])->n_out;
    const float *gate = shared ? (a->shared_gate ? m->shared_gate : NULL) : a->gate ? m->gate : NULL;
    const float *up = (shared ? m->shared_up : m->up) + (size_t)i * n;
    float *to = shared ? a->shared_hidden + i * a->shared_stride : a->hidden + m->choice[i] * a->hidden_stride;
    (void)i_worker;
    job->kernels->glu[shared ? a->shared_glu : a->glu](gate ? gate + (size_t)i * n : up, gate ? up : NULL,
                                                       shared ? a->shared_limit : a->glu_limit, a->up_limit, n, to);
}

/* Writes f(gate) * up of this rank's inner rows to the buffer that the ranks exchange. */
static void hand_out(moe_job *job)
{
    if (!job->args->up[0]) job->n_pairs = 0;
    const uint32_t n = job->n_pairs + (job->args->shared_up ? job->args->n_rows : 0);
    run(job, hand_out_item, n, n <= 2);
}

void ae_cpu_moe_run(ae_stream *stream, const ae_moe *args)
{
    moe_job job = {.stream = stream, .kernels = &stream->backend->kernels, .args = args, .m = &stream->moe};
    if (args->given) take_given(&job);
    else if (args->part != AE_MOE_DOWN) route(&job);
    group_rows(&job);
    if (args->part == AE_MOE_UP) {
        multiply_gate_up(&job);
        hand_out(&job);
        return;
    }
    if (args->part == AE_MOE_WHOLE) multiply_gate_up(&job);
    multiply_down(&job);
}
