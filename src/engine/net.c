#include "engine/net_int.h"

static ae_weight_source source_of(const ae_net_part *part)
{
    ae_tensor_ref t = part->tensor;
    const size_t at = part->first * ae_type_row_bytes(t->type, (uint64_t)t->ne[0]);
    return (ae_weight_source){t->type, part->n_rows, (uint32_t)t->ne[0], t->data ? (const uint8_t *)t->data + at : NULL, part->use};
}

static void add_weight(ae_net *net, ae_tensor_ref tensor, unsigned use, ae_weight **field)
{
    if (!tensor) return;
    net->parts[net->n_parts++] = (ae_net_part){.tensor = tensor, .use = use, .n_rows = (uint32_t)tensor->ne[1], .weight = field};
}

/* Rows [first, first + n) of each matrix of a stack. */
static void add_experts(ae_net *net, ae_tensor_ref tensor, uint32_t first, uint32_t n, ae_weight **fields)
{
    for (uint32_t i = 0; i < net->model->hparams.experts.n; i++)
        net->parts[net->n_parts++] = (ae_net_part){
            .tensor = tensor, .use = AE_WEIGHT_MATMUL, .first = (uint64_t)i * (uint64_t)tensor->ne[1] + first, .n_rows = n,
            .is_expert = true, .weight = &fields[i]};
}

static void add_vector(ae_net *net, ae_tensor_ref tensor, float **field)
{
    if (tensor) net->parts[net->n_parts++] = (ae_net_part){.tensor = tensor, .vector = field};
}

/* Gate, up and down of all experts of a layer. */
static void list_experts(ae_net *net, uint32_t i_layer)
{
    const ae_expert_hparams *x = &net->model->hparams.experts;
    const ae_layer *from = &net->model->layers[i_layer];
    ae_net_layer *to = &net->layers[i_layer];
    to->e_gate = net->experts + (size_t)i_layer * 3 * x->n;
    to->e_up = to->e_gate + x->n;
    to->e_down = to->e_up + x->n;
    add_experts(net, from->e_gate_up ? from->e_gate_up : from->e_gate, 0, x->n_ff, to->e_gate);
    add_experts(net, from->e_gate_up ? from->e_gate_up : from->e_up, from->e_gate_up ? x->n_ff : 0, x->n_ff, to->e_up);
    add_experts(net, from->e_down, 0, net->model->hparams.n_embd, to->e_down);
}

#define PARTS_PER_LAYER 24 /* and three for each expert */
#define PARTS_OUTSIDE 3

static void list_parts(ae_net *net)
{
    const ae_model *m = net->model;
    add_weight(net, m->embedding, m->tied ? AE_WEIGHT_LOOKUP | AE_WEIGHT_MATMUL : AE_WEIGHT_LOOKUP, &net->embedding);
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        const ae_layer *from = &m->layers[i];
        ae_net_layer *to = &net->layers[i];
        add_vector(net, from->attn_norm, &to->attn_norm);
        add_weight(net, from->wq, AE_WEIGHT_MATMUL, &to->wq);
        add_weight(net, from->wk, AE_WEIGHT_MATMUL, &to->wk);
        add_weight(net, from->wv, AE_WEIGHT_MATMUL, &to->wv);
        add_weight(net, from->wo, AE_WEIGHT_MATMUL, &to->wo);
        add_vector(net, from->ffn_norm, &to->ffn_norm);
        add_weight(net, from->w_gate, AE_WEIGHT_MATMUL, &to->w_gate);
        add_weight(net, from->w_up, AE_WEIGHT_MATMUL, &to->w_up);
        add_weight(net, from->w_down, AE_WEIGHT_MATMUL, &to->w_down);
        add_vector(net, from->bq, &to->bq);
        add_vector(net, from->bk, &to->bk);
        add_vector(net, from->bv, &to->bv);
        add_vector(net, from->bo, &to->bo);
        add_vector(net, from->b_gate, &to->b_gate);
        add_vector(net, from->b_up, &to->b_up);
        add_vector(net, from->b_down, &to->b_down);
        add_vector(net, from->q_norm, &to->q_norm);
        add_vector(net, from->k_norm, &to->k_norm);
        add_weight(net, from->router, AE_WEIGHT_MATMUL, &to->router);
        add_vector(net, from->router_bias, &to->router_bias);
        if (from->router) list_experts(net, i);
        add_weight(net, from->s_gate, AE_WEIGHT_MATMUL, &to->s_gate);
        add_weight(net, from->s_up, AE_WEIGHT_MATMUL, &to->s_up);
        add_weight(net, from->s_down, AE_WEIGHT_MATMUL, &to->s_down);
        add_weight(net, from->s_router, AE_WEIGHT_MATMUL, &to->s_router);
    }
    add_vector(net, m->out_norm, &net->out_norm);
    if (!m->tied) add_weight(net, m->output, AE_WEIGHT_MATMUL, &net->output);
}

static size_t part_bytes(const ae_net_part *part, const ae_backend *backend)
{
    const ae_weight_source source = source_of(part);
    if (part->use) return backend->ops->weight_bytes(backend, &source);
    return (ae_net_part_elements(part) * sizeof(float) + 63) & ~(size_t)63;
}

/* What a pass of one row reads of a part: all but a lookup table; of an expert its share of those that are used. */
static size_t pass_bytes(const ae_net *net, const ae_net_part *part)
{
    const ae_expert_hparams *x = &net->model->hparams.experts;
    if (part->use && !(part->use & AE_WEIGHT_MATMUL)) return 0;
    const size_t bytes = part->bytes ? part->bytes : part->n_rows * ae_type_row_bytes(part->tensor->type, (uint64_t)part->tensor->ne[0]);
    return part->is_expert ? bytes * x->n_used / x->n : bytes;
}

static aerie_status net_tables(ae_net *net, const ae_net_options *options, aerie_error *error)
{
    const ae_hparams *h = &net->model->hparams;
    const size_t n_experts = (size_t)h->n_layers * 3 * h->experts.n;
    const size_t n_parts = PARTS_OUTSIDE + (size_t)PARTS_PER_LAYER * h->n_layers + n_experts;
    net->layers = ae_alloc(h->n_layers, sizeof *net->layers);
    net->parts = ae_alloc(n_parts, sizeof *net->parts);
    net->rope_freq = ae_alloc(h->n_rot / 2, sizeof *net->rope_freq);
    if (n_experts) net->experts = ae_alloc(n_experts, sizeof *net->experts);
    if (!net->layers || !net->parts || !net->rope_freq || (n_experts && !net->experts))
        return ae_fail_memory(error, "the weight tables", n_parts * sizeof *net->parts);
    list_parts(net);
    AE_ASSERT(net->n_parts <= n_parts);
    ae_model_rope_freqs(h, net->model->rope_divisors, net->rope_freq, &net->rope_magnitude);
    for (uint32_t i = 0; i < net->n_parts; i++) {
        ae_net_part *part = &net->parts[i];
        if (part->use && options->in_place) part->use |= AE_WEIGHT_IN_PLACE;
        part->bytes = part_bytes(part, net->backend);
        part->offset = net->bytes;
        net->bytes += part->bytes;
        net->pass_bytes += pass_bytes(net, part);
    }
    return AERIE_OK;
}

/* Empty weights and vectors, in one piece of device memory: small ones do not take a huge page each. */
static aerie_status create_parts(ae_net *net, aerie_error *error)
{
    ae_backend *backend = net->backend;
    net->memory = backend->ops->alloc(backend, net->bytes);
    if (!net->memory) return ae_fail_memory(error, "the weights", net->bytes);
    for (uint32_t i = 0; i < net->n_parts; i++) {
        const ae_net_part *part = &net->parts[i];
        const ae_weight_source source = source_of(part);
        void *memory = (char *)net->memory + part->offset;
        if (!part->use) *part->vector = memory;
        else AE_TRY(backend->ops->weight_create(backend, &source, memory, part->weight, error));
    }
    return AERIE_OK;
}

size_t ae_net_plan_bytes(const ae_model *model, const ae_backend *backend, const ae_net_options *options)
{
    ae_net net = {.model = model, .backend = (ae_backend *)backend};
    size_t bytes = 0;
    if (net_tables(&net, options, NULL) == AERIE_OK) bytes = net.bytes;
    ae_free(net.layers);
    ae_free(net.experts);
    ae_free(net.parts);
    ae_free(net.rope_freq);
    return bytes;
}

aerie_status ae_net_create(ae_net **out, const ae_model *model, ae_backend *backend, const ae_net_options *options,
                           aerie_error *error)
{
    *out = NULL;
    ae_net *net = ae_alloc(1, sizeof *net);
    if (!net) return ae_fail_memory(error, "a network", sizeof *net);
    net->model = model;
    net->backend = backend;
    aerie_status status = net_tables(net, options, error);
    if (status == AERIE_OK) status = create_parts(net, error);
    if (status == AERIE_OK) status = ae_net_fill(net, options, error);
    if (status != AERIE_OK) {
        ae_net_free(net);
        return status;
    }
    if (model->tied) net->output = net->embedding;
    *out = net;
    return AERIE_OK;
}

void ae_net_free(ae_net *net)
{
    if (!net) return;
    for (uint32_t i = 0; i < net->n_parts; i++) {
        const ae_net_part *part = &net->parts[i];
        if (part->use) net->backend->ops->weight_free(net->backend, *part->weight);
    }
    if (net->memory) net->backend->ops->free(net->backend, net->memory, net->bytes);
    ae_free(net->layers);
    ae_free(net->experts);
    ae_free(net->parts);
    ae_free(net->rope_freq);
    ae_free(net);
}
