#include "engine/net_int.h"

static ae_weight_source source_of(const ae_net_part *part)
{
    ae_tensor_ref t = part->tensor;
    return (ae_weight_source){t->type, (uint32_t)t->ne[1], (uint32_t)t->ne[0], t->data, part->use};
}

static void add_weight(ae_net *net, ae_tensor_ref tensor, unsigned use, ae_weight **field)
{
    net->parts[net->n_parts++] = (ae_net_part){.tensor = tensor, .use = use, .weight = field};
}

static void add_vector(ae_net *net, ae_tensor_ref tensor, float **field)
{
    if (tensor) net->parts[net->n_parts++] = (ae_net_part){.tensor = tensor, .vector = field};
}

#define PARTS_PER_LAYER 16
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

/* What one pass reads of a part: all but a lookup table. */
static size_t pass_bytes(const ae_net_part *part)
{
    if (part->use & AE_WEIGHT_MATMUL || !part->use) return part->bytes ? part->bytes : part->tensor->bytes;
    return 0;
}

static aerie_status net_tables(ae_net *net, const ae_net_options *options, aerie_error *error)
{
    const ae_hparams *h = &net->model->hparams;
    const size_t n_parts = PARTS_OUTSIDE + (size_t)PARTS_PER_LAYER * h->n_layers;
    net->layers = ae_alloc(h->n_layers, sizeof *net->layers);
    net->parts = ae_alloc(n_parts, sizeof *net->parts);
    net->rope_freq = ae_alloc(h->n_rot / 2, sizeof *net->rope_freq);
    if (!net->layers || !net->parts || !net->rope_freq)
        return ae_fail_memory(error, "the weight tables", n_parts * sizeof *net->parts);
    list_parts(net);
    AE_ASSERT(net->n_parts <= n_parts);
    ae_model_rope_freqs(net->model, net->rope_freq, &net->rope_magnitude);
    for (uint32_t i = 0; i < net->n_parts; i++) {
        ae_net_part *part = &net->parts[i];
        if (part->use && options->in_place) part->use |= AE_WEIGHT_IN_PLACE;
        part->bytes = part_bytes(part, net->backend);
        part->offset = net->bytes;
        net->bytes += part->bytes;
        net->pass_bytes += pass_bytes(part);
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
    ae_free(net->parts);
    ae_free(net->rope_freq);
    ae_free(net);
}
