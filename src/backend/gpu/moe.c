/* moe.c - the feed-forward block with experts on the GPU.
 *
 * Owns nothing: works in the stream's scratch. The host does not learn which experts were chosen: the kernels read that on the
 * device (moe.cu). A pair is a row and an expert that it chose. Each pair has a slot among the experts' rows; the slots of an
 * expert stand together in whole tiles, so its weights are read once for all of them:
 *   1. rows are normed and prepared, and multiplied by the router (and by the weights of the shared expert)
 *   2. each row chooses its experts; pairs get slots
 *   3. the rows of the pairs are prepared once more into their slots, and multiplied by gate and up
 *   4. the hidden rows are prepared in the same slots, and multiplied by down
 *   5. each row adds its pairs' results by ascending expert id, then that of the shared expert */
#include <string.h>

#include "backend/gpu/product_int.h"
#include "backend/gpu/weight_mma.h"

/* ---- Scratch ------------------------------------------------------------------------------------ */

static size_t most_active(const ae_moe_shape *s, size_t n_pairs)
{
    return n_pairs < s->n_experts ? n_pairs : s->n_experts;
}

void ae_gpu_moe_layout(ae_layout *layout, const ae_stream_options *options, ae_gpu_product_scratch *m)
{
    const ae_moe_shape *s = &options->moe;
    if (!s->n_experts) return;
    const size_t n_rows = options->max_rows, n_pairs = n_rows * s->n_used, n_active = most_active(s, n_pairs);
    const size_t n_slots = n_pairs + n_active * (AE_GPU_TILE - 1);
    ae_gpu_rows_layout(layout, n_slots, s->n_embd > s->n_ff ? s->n_embd : s->n_ff, &m->slots);
    m->logits = ae_layout_add(layout, n_rows * s->n_experts, sizeof(float));
    m->shared_gate = ae_layout_add(layout, n_rows, sizeof(float));
    m->ids = ae_layout_add(layout, n_pairs, sizeof(uint32_t));
    m->weights = ae_layout_add(layout, n_pairs, sizeof(float));
    m->slot = ae_layout_add(layout, n_pairs, sizeof(uint32_t));
    m->active = ae_layout_add(layout, n_active, sizeof *m->active);
    m->n_active = ae_layout_add(layout, 1, sizeof(uint32_t));
    m->gate = ae_layout_add(layout, n_slots * s->n_ff, sizeof(float));
    m->up = ae_layout_add(layout, n_slots * s->n_ff, sizeof(float));
    m->down = ae_layout_add(layout, n_slots * s->n_embd, sizeof(float));
    m->s_gate = ae_layout_add(layout, n_rows * s->n_ff_shared, sizeof(float));
    m->s_up = ae_layout_add(layout, n_rows * s->n_ff_shared, sizeof(float));
    m->s_down = ae_layout_add(layout, s->n_ff_shared ? n_rows * s->n_embd : 0, sizeof(float));
}

/* ---- Products of experts ------------------------------------------------------------------------ */

/* The weights that the experts have for one product. */
typedef struct stack {
    ae_weight *const *weights; /* [n_experts]; NULL: no such product */
    const float *bias;
    float *y;
} stack;

/* Fills a job with experts [first, first + n) of a stack. Returns false if their weights are too far apart in memory. */
static bool fill_job(const stack *s, uint32_t first, uint32_t n, ae_gpu_expert_job *job)
{
    const uint8_t *base = s->weights[first]->product;
    for (uint32_t i = 1; i < n; i++)
        if (s->weights[first + i]->product < base) base = s->weights[first + i]->product;
    for (uint32_t i = 0; i < n; i++) {
        const size_t offset = (size_t)(s->weights[first + i]->product - base) / 64;
        if (offset > UINT32_MAX) return false;
        job->offset[i] = (uint32_t)offset;
        job->scale[i] = s->weights[first + i]->scale;
    }
    job->base = base;
    job->bias = s->bias;
    job->y = s->y;
    job->n_out = s->weights[0]->n_out;
    return true;
}

/* Returns how many experts have weights of their own. */
static uint32_t n_stored(const ae_moe *a)
{
    return a->n_each > 1 ? a->routing.n_experts / a->n_each : a->routing.n_experts;
}

/* Returns an upper bound of the rows that one stored expert multiplies: a row that chose several experts of a group counts once
 * for each. */
static uint32_t most_rows(const ae_moe *a)
{
    const uint32_t n_each = a->n_each > 1 ? a->n_each : 1, n_used = a->routing.n_used;
    return a->n_rows * (n_each < n_used ? n_each : n_used);
}

/* Returns an upper bound of the number of active experts. */
static uint32_t active_of(const ae_moe *a)
{
    const size_t n_pairs = (size_t)a->n_rows * a->routing.n_used;
    return n_pairs < n_stored(a) ? (uint32_t)n_pairs : n_stored(a);
}

static void launch_mma(ae_stream *stream, const ae_moe *a, uint32_t type, ae_gpu_expert_args *args)
{
    const size_t n_pairs = (size_t)a->n_rows * a->routing.n_used;
    const uint32_t each = ceil_div(n_pairs, active_of(a)); /* rows of an expert */
    const ae_gpu_mma_experts m = ae_gpu_mma_experts_of(&stream->backend->facts, type, args->rows.n_in, each);
    uint32_t end = 0;
    for (uint32_t i = 0; i < args->n_jobs; i++) {
        end += ceil_div(ceil_div(args->job[i].n_out, AE_MMA_GRANULE), m.teams) * m.teams;
        args->job[i].end = end;
    }
    args->n_records = m.n_records;
    args->group_bytes = m.group_bytes;
    ae_gpu_launch(stream, m.kernel, ceil_div(most_rows(a), m.n_rows), end / m.teams, active_of(a), m.n_shared, args);
}

/* Launches the jobs in args, whose weights have the form and type of w. */
static void launch(ae_stream *stream, const ae_moe *a, const ae_weight *w, ae_gpu_expert_args *args)
{
    if (w->form == AE_GPU_FORM_MMA) {
        launch_mma(stream, a, w->type, args);
        return;
    }
    const ae_gpu_form_kernel k = ae_gpu_experts_kernel(w->form);
    uint32_t n_blocks = 0;
    args->type = w->type;
    for (uint32_t i = 0; i < args->n_jobs; i++) {
        args->job[i].first_block = n_blocks;
        n_blocks += ceil_div(args->job[i].n_out, k.n_out);
    }
    ae_gpu_launch(stream, k.kernel, n_blocks, ceil_div(most_rows(a), k.n_rows), active_of(a), k.n_shared, args);
}

/* Multiplies the rows of the slots by two stacks; the first one may be empty. */
static void multiply_experts(ae_stream *stream, const ae_moe *a, const ae_gpu_rows *rows, const stack stacks[2], bool one_row)
{
    const ae_gpu_product_scratch *m = &stream->product;
    const uint32_t n = n_stored(a);
    for (uint32_t first = 0; first < n; first += AE_GPU_EXPERTS) {
        const uint32_t here = n - first < AE_GPU_EXPERTS ? n - first : AE_GPU_EXPERTS;
        ae_gpu_expert_args args = {.rows = *rows, .active = m->active, .n_active = m->n_active, .first_expert = first,
                                   .one_row = one_row};
        const ae_weight *w = NULL;
        for (uint32_t i = 0; i < 2; i++) {
            if (!stacks[i].weights) continue;
            const ae_weight *own = stacks[i].weights[0];
            if (args.n_jobs && (own->form != w->form || own->type != w->type)) {
                launch(stream, a, w, &args);
                args.n_jobs = 0;
            }
            w = own;
            if (!fill_job(&stacks[i], first, here, &args.job[args.n_jobs++])) {
                ae_gpu_decline(stream, "experts that are far apart in memory");
                return;
            }
        }
        launch(stream, a, w, &args);
    }
}

/* Returns whether the pass has a single row, so that each of its experts has one slot and reads the row in place. False if
 * experts share weights, which would then be read once for each. */
static bool is_alone(const ae_moe *a)
{
    return a->n_rows == 1 && !a->weigh_input && a->n_each <= 1;
}

static uint32_t wants_of_experts(const ae_moe *a)
{
    if (!a->up[0]) return AE_GPU_WANT_X; /* this rank has no part of the inner rows */
    return ae_gpu_weight_wants(a->up[0]) | (a->gate ? ae_gpu_weight_wants(a->gate[0]) : 0);
}

/* ---- The steps ---------------------------------------------------------------------------------- */

static void add_out(ae_matmul *in, const ae_weight *w, const float *bias, float *y)
{
    if (w) in->out[in->n_weights++] = (struct ae_matmul_out){w, bias, y, w->n_out, false};
}

/* Computes the router's logits, and gate and up of the shared expert. Returns the rows that experts read, as f32: rows->x, or
 * the latent rows. */
static ae_gpu_rows route_rows(ae_stream *stream, const ae_moe *a)
{
    const ae_gpu_product_scratch *m = &stream->product;
    const bool own_input = a->router_norm || a->latent, routed = a->routing.n_used > 0;
    const ae_gpu_rows rows = ae_gpu_rows_of(&m->rows, a->n_rows, a->router ? a->router->n_in : a->shared_up->n_in);
    ae_matmul in = {.n_rows = a->n_rows, .input = a->norm ? AE_INPUT_RMSNORM : AE_INPUT_PLAIN, .x = a->x,
                    .x_stride = rows.n_in, .norm = a->norm, .norm_eps = a->norm_eps};
    ae_matmul own = in;
    add_out(own_input ? &own : &in, routed ? a->router : NULL, a->router_bias, m->logits);
    if (own_input && routed) {
        if (a->router_norm) own.input = AE_INPUT_RMSNORM, own.norm = a->router_norm;
        ae_gpu_prepare(stream, &(ae_gpu_preparation){.input = &own, .want = ae_gpu_wants(&own)}, &rows);
        ae_gpu_multiply(stream, &own, &rows);
    }
    if (a->latent) return rows;
    add_out(&in, a->shared_router, NULL, m->shared_gate);
    add_out(&in, a->shared_gate, NULL, m->s_gate);
    add_out(&in, a->shared_up, NULL, m->s_up);
    const uint32_t experts = !routed ? 0 : is_alone(a) ? wants_of_experts(a) : AE_GPU_WANT_X;
    ae_gpu_prepare(stream, &(ae_gpu_preparation){.input = &in, .want = ae_gpu_wants(&in) | experts}, &rows);
    ae_gpu_multiply(stream, &in, &rows);
    return rows;
}

static void choose(ae_stream *stream, const ae_moe *a)
{
    const ae_gpu_product_scratch *m = &stream->product;
    const ae_routing *r = &a->routing;
    ae_gpu_route_args route = {.routing = *r, .logits = m->logits, .router_scale = a->router_scale, .n_each = a->n_each,
                               .bias = a->bias, .out_scale = a->out_scale, .ids = m->ids, .weights = m->weights,
                               .table = a->table, .tokens = a->tokens, .table_stride = r->n_full ? r->n_full : r->n_used,
                               .given = a->given, .given_stride = a->given_stride};
    const ae_gpu_group_args group = {.ids = m->ids, .n_pairs = a->n_rows * a->routing.n_used,
                                     .n_experts = n_stored(a), .slots = m->slot, .active = m->active,
                                     .n_active = m->n_active};
    if (is_alone(a)) route.slots = m->slot, route.active = m->active, route.n_active = m->n_active;
    ae_gpu_launch(stream, AE_GPU_route, a->n_rows, 1, 1, AE_GPU_ROUTE_SHARED, &route);
    if (!is_alone(a)) ae_gpu_launch(stream, AE_GPU_group, 1, 1, 1, AE_GPU_GROUP_SHARED, &group);
}

/* Returns the rows that experts read if the caller gives each row's expert; then there is neither a router nor a shared
 * expert. */
static ae_gpu_rows take_rows(ae_stream *stream, const ae_moe *a)
{
    const ae_gpu_rows rows = ae_gpu_rows_of(&stream->product.rows, a->n_rows, a->up[0]->n_in);
    const ae_matmul in = {.n_rows = a->n_rows, .input = a->norm ? AE_INPUT_RMSNORM : AE_INPUT_PLAIN, .x = a->x,
                          .x_stride = rows.n_in, .norm = a->norm, .norm_eps = a->norm_eps};
    ae_gpu_prepare(stream, &(ae_gpu_preparation){.input = &in, .want = is_alone(a) ? wants_of_experts(a) : AE_GPU_WANT_X},
                   &rows);
    return rows;
}

/* Returns the input of the down product: f(gate) * up of n_rows rows, or f(up) if there is no gate. */
static ae_matmul hidden(uint32_t n_rows, const float *gate, const float *up, uint32_t n, ae_glu glu, float limit,
                        float up_limit)
{
    return (ae_matmul){.n_rows = n_rows, .input = AE_INPUT_GLU, .x = gate ? gate : up, .x2 = gate ? up : NULL, .x_stride = n,
                       .glu = glu, .glu_limit = limit, .up_limit = up_limit};
}

/* Prepares the rows that gate and up read: those of route_rows, or copies in the slots. Returns them. */
static ae_gpu_rows prepare_input(ae_stream *stream, const ae_moe *a, const ae_gpu_rows *input)
{
    const ae_gpu_product_scratch *m = &stream->product;
    const bool alone = is_alone(a);
    const uint32_t n_in = a->up[0]->n_in, n_rows = alone ? 1 : a->n_rows * a->routing.n_used;
    if (alone && !a->latent) return *input;
    const ae_matmul x = {.n_rows = n_rows, .input = AE_INPUT_PLAIN, .x = a->latent ? a->latent : input->x,
                         .x_stride = a->latent ? n_in : input->x_stride};
    const ae_gpu_rows rows = ae_gpu_rows_of(&m->slots, n_rows, n_in);
    ae_gpu_preparation p = {.input = &x, .want = wants_of_experts(a), .factor = a->weigh_input ? m->weights : NULL};
    if (!alone) p.slots = m->slot, p.shares = a->routing.n_used;
    ae_gpu_prepare(stream, &p, &rows);
    return rows;
}

static void multiply_gate_up(ae_stream *stream, const ae_moe *a, const ae_gpu_rows *input)
{
    const ae_gpu_product_scratch *m = &stream->product;
    const stack gate_up[2] = {{a->gate, a->gate_bias, m->gate}, {a->up, a->up_bias, m->up}};
    const ae_gpu_rows rows = prepare_input(stream, a, input);
    multiply_experts(stream, a, &rows, gate_up, is_alone(a));
}

static void multiply_down(ae_stream *stream, const ae_moe *a)
{
    const ae_gpu_product_scratch *m = &stream->product;
    const uint32_t n_pairs = a->n_rows * a->routing.n_used, n_ff = a->down[0]->n_in;
    const stack down[2] = {{0}, {a->down, a->down_bias, m->down}};
    const bool gathered = a->part == AE_MOE_DOWN;
    ae_matmul h = hidden(n_pairs, a->gate ? m->gate : NULL, m->up, n_ff, a->glu, a->glu_limit, a->up_limit);
    if (gathered)
        h = (ae_matmul){.n_rows = n_pairs, .input = AE_INPUT_PLAIN, .x = a->hidden, .x_stride = a->hidden_stride};
    const ae_gpu_rows rows = ae_gpu_rows_of(&m->slots, n_pairs, n_ff);
    const ae_gpu_preparation p = {.input = &h, .want = ae_gpu_weight_wants(a->down[0]), .slots = m->slot,
                                  .shares = gathered ? 1 : 0};
    ae_gpu_prepare(stream, &p, &rows);
    multiply_experts(stream, a, &rows, down, false);
}

static void run_shared(ae_stream *stream, const ae_moe *a)
{
    const ae_gpu_product_scratch *m = &stream->product;
    const uint32_t n_ff = a->shared_down->n_in;
    const ae_gpu_rows rows = ae_gpu_rows_of(&m->rows, a->n_rows, n_ff);
    ae_matmul h = hidden(a->n_rows, a->shared_gate ? m->s_gate : NULL, m->s_up, n_ff, a->shared_glu, a->shared_limit,
                         a->up_limit);
    if (a->part == AE_MOE_DOWN)
        h = (ae_matmul){.n_rows = a->n_rows, .input = AE_INPUT_PLAIN, .x = a->shared_hidden, .x_stride = a->shared_stride};
    add_out(&h, a->shared_down, NULL, m->s_down);
    ae_gpu_prepare(stream, &(ae_gpu_preparation){.input = &h, .want = ae_gpu_wants(&h)}, &rows);
    ae_gpu_multiply(stream, &h, &rows);
}

/* Writes f(gate) * up of n_rows rows over gate or up, then copies rows [n] (NULL: in order) from there to y. */
static void hand_out_rows(ae_stream *stream, ae_matmul h, uint32_t dim, const uint32_t *rows, uint32_t n, float *y,
                          size_t stride)
{
    ae_gpu_map(stream, &(ae_map){.kind = AE_MAP_GLU, .n_rows = h.n_rows, .dim = dim, .x = (float *)h.x, .x_stride = dim,
                                 .x2 = h.x2, .x2_stride = dim, .glu = h.glu, .glu_limit = h.glu_limit,
                                 .up_limit = h.up_limit});
    ae_gpu_copy(stream, &(ae_copy){.n = n, .dim = dim, .x = h.x, .x_stride = dim, .rows = (const int32_t *)rows, .y = y,
                                   .y_stride = stride});
}

/* Copies this rank's inner rows to the buffer through which the ranks exchange them. */
static void hand_out(ae_stream *stream, const ae_moe *a)
{
    const ae_gpu_product_scratch *m = &stream->product;
    const uint32_t n_pairs = a->n_rows * a->routing.n_used, n_slots = n_pairs + active_of(a) * (AE_GPU_TILE - 1);
    if (n_pairs && a->up[0])
        hand_out_rows(stream, hidden(n_slots, a->gate ? m->gate : NULL, m->up, a->up[0]->n_out, a->glu, a->glu_limit,
                             a->up_limit),
                      a->up[0]->n_out, m->slot, n_pairs, a->hidden, a->hidden_stride);
    if (a->shared_up)
        hand_out_rows(stream, hidden(a->n_rows, a->shared_gate ? m->s_gate : NULL, m->s_up, a->shared_up->n_out, a->shared_glu,
                                     a->shared_limit, a->up_limit),
                      a->shared_up->n_out, NULL, a->n_rows, a->shared_hidden, a->shared_stride);
}

void ae_gpu_moe(ae_stream *stream, const ae_moe *args)
{
    const ae_gpu_product_scratch *m = &stream->product;
    const uint32_t n_used = args->routing.n_used;
    if (!args->n_rows) return;
    if (args->hidden_blocks || args->shared_blocks) {
        ae_gpu_decline(stream, "experts on rows of int8 codes");
        return;
    }
    if (args->part != AE_MOE_DOWN) {
        const ae_gpu_rows rows = args->given ? take_rows(stream, args) : route_rows(stream, args);
        if (n_used) choose(stream, args);
        if (n_used && args->up[0]) multiply_gate_up(stream, args, &rows);
    }
    if (args->part == AE_MOE_UP) {
        hand_out(stream, args);
        return;
    }
    if (n_used) multiply_down(stream, args);
    if (args->shared_down) run_shared(stream, args);
    const ae_gpu_combine_args combine = {
        .down = m->down, .slots = m->slot, .weights = args->weigh_input ? NULL : m->weights,
        .shared = args->shared_down ? m->s_down : NULL, .shared_gate = args->shared_router ? m->shared_gate : NULL,
        .y = args->y, .n_used = n_used, .dim = args->down ? args->down[0]->n_out : args->shared_down->n_out,
    };
    ae_gpu_launch(stream, AE_GPU_combine, args->n_rows, ceil_div(combine.dim, AE_GPU_COMBINE_THREADS), 1, 0, &combine);
}
