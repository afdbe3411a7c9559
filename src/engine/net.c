#include "engine/net.h"

/* Rows [first, first + n) of each matrix of a stack. */
static void add_experts(ae_net *net, ae_tensor_ref tensor, uint32_t first, uint32_t n, ae_weight **fields)
{
    for (uint32_t i = 0; i < net->model->hparams.experts.n; i++)
        ae_parts_expert(&net->parts, tensor, (uint64_t)i * (uint64_t)tensor->ne[1] + first, n, &fields[i]);
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

static void list_recur(ae_parts *parts, const ae_recur_layer *from, ae_net_recur *to)
{
    ae_parts_weight(parts, from->in, AE_WEIGHT_MATMUL, &to->in);
    ae_parts_weight(parts, from->gate, AE_WEIGHT_MATMUL, &to->gate);
    ae_parts_weight(parts, from->alpha, AE_WEIGHT_MATMUL, &to->alpha);
    ae_parts_weight(parts, from->beta, AE_WEIGHT_MATMUL, &to->beta);
    ae_parts_weight(parts, from->beta_alpha, AE_WEIGHT_MATMUL, &to->beta_alpha);
    ae_parts_weight(parts, from->out, AE_WEIGHT_MATMUL, &to->out);
    ae_parts_vector(parts, from->conv, &to->conv);
    ae_parts_vector(parts, from->conv_bias, &to->conv_bias);
    ae_parts_vector(parts, from->decay, &to->decay);
    ae_parts_vector(parts, from->dt_bias, &to->dt_bias);
    ae_parts_vector(parts, from->skip, &to->skip);
    ae_parts_vector(parts, from->norm, &to->norm);
}

#define PARTS_PER_LAYER 36 /* and three for each expert */
#define PARTS_OUTSIDE 3

static void list_parts(ae_net *net)
{
    const ae_model *m = net->model;
    ae_parts_weight(&net->parts, m->embedding, m->tied ? AE_WEIGHT_LOOKUP | AE_WEIGHT_MATMUL : AE_WEIGHT_LOOKUP,
                    &net->embedding);
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        const ae_layer *from = &m->layers[i];
        ae_net_layer *to = &net->layers[i];
        ae_parts_vector(&net->parts, from->attn_norm, &to->attn_norm);
        ae_parts_weight(&net->parts, from->wq, AE_WEIGHT_MATMUL, &to->wq);
        ae_parts_weight(&net->parts, from->wk, AE_WEIGHT_MATMUL, &to->wk);
        ae_parts_weight(&net->parts, from->wv, AE_WEIGHT_MATMUL, &to->wv);
        ae_parts_weight(&net->parts, from->wo, AE_WEIGHT_MATMUL, &to->wo);
        ae_parts_vector(&net->parts, from->ffn_norm, &to->ffn_norm);
        ae_parts_weight(&net->parts, from->w_gate, AE_WEIGHT_MATMUL, &to->w_gate);
        ae_parts_weight(&net->parts, from->w_up, AE_WEIGHT_MATMUL, &to->w_up);
        ae_parts_weight(&net->parts, from->w_down, AE_WEIGHT_MATMUL, &to->w_down);
        ae_parts_vector(&net->parts, from->bq, &to->bq);
        ae_parts_vector(&net->parts, from->bk, &to->bk);
        ae_parts_vector(&net->parts, from->bv, &to->bv);
        ae_parts_vector(&net->parts, from->bo, &to->bo);
        ae_parts_vector(&net->parts, from->b_gate, &to->b_gate);
        ae_parts_vector(&net->parts, from->b_up, &to->b_up);
        ae_parts_vector(&net->parts, from->b_down, &to->b_down);
        ae_parts_vector(&net->parts, from->q_norm, &to->q_norm);
        ae_parts_vector(&net->parts, from->k_norm, &to->k_norm);
        ae_parts_weight(&net->parts, from->router, AE_WEIGHT_MATMUL, &to->router);
        ae_parts_vector(&net->parts, from->router_bias, &to->router_bias);
        if (from->router) list_experts(net, i);
        ae_parts_weight(&net->parts, from->s_gate, AE_WEIGHT_MATMUL, &to->s_gate);
        ae_parts_weight(&net->parts, from->s_up, AE_WEIGHT_MATMUL, &to->s_up);
        ae_parts_weight(&net->parts, from->s_down, AE_WEIGHT_MATMUL, &to->s_down);
        ae_parts_weight(&net->parts, from->s_router, AE_WEIGHT_MATMUL, &to->s_router);
        list_recur(&net->parts, &from->recur, &to->recur);
        to->recur.i_state = net->n_recur;
        net->n_recur += from->recur.in != NULL;
    }
    ae_parts_vector(&net->parts, m->out_norm, &net->out_norm);
    if (!m->tied) ae_parts_weight(&net->parts, m->output, AE_WEIGHT_MATMUL, &net->output);
}

static aerie_status net_tables(ae_net *net, const ae_load_options *options, aerie_error *error)
{
    const ae_hparams *h = &net->model->hparams;
    const size_t n_experts = (size_t)h->n_layers * 3 * h->experts.n;
    const size_t n_parts = PARTS_OUTSIDE + (size_t)PARTS_PER_LAYER * h->n_layers + n_experts;
    AE_TRY(ae_parts_init(&net->parts, net->backend, net->model->gguf, n_parts, error));
    net->layers = ae_alloc(h->n_layers, sizeof *net->layers);
    net->rope_freq = ae_alloc(h->n_rot / 2, sizeof *net->rope_freq);
    if (n_experts) net->experts = ae_alloc(n_experts, sizeof *net->experts);
    if (!net->layers || !net->rope_freq || (n_experts && !net->experts))
        return ae_fail_memory(error, "the weight tables", h->n_layers * sizeof *net->layers);
    list_parts(net);
    ae_model_rope_freqs(h, net->model->rope_divisors, net->rope_freq, &net->rope_magnitude);
    ae_parts_place(&net->parts, options->in_place);
    for (uint32_t i = 0; i < net->parts.n; i++) {
        const ae_part *part = &net->parts.items[i];
        const size_t bytes = ae_part_pass_bytes(part);
        net->pass_bytes += part->is_expert ? bytes * h->experts.n_used / h->experts.n : bytes;
    }
    return AERIE_OK;
}

static void free_tables(ae_net *net)
{
    ae_free(net->layers);
    ae_free(net->experts);
    ae_free(net->rope_freq);
}

size_t ae_net_plan_bytes(const ae_model *model, const ae_backend *backend, const ae_load_options *options)
{
    ae_net net = {.model = model, .backend = (ae_backend *)backend};
    size_t bytes = 0;
    if (net_tables(&net, options, NULL) == AERIE_OK) bytes = net.parts.bytes;
    ae_free(net.parts.items);
    free_tables(&net);
    return bytes;
}

aerie_status ae_net_create(ae_net **out, const ae_model *model, ae_backend *backend, const ae_load_options *options,
                           aerie_error *error)
{
    *out = NULL;
    ae_net *net = ae_alloc(1, sizeof *net);
    if (!net) return ae_fail_memory(error, "a network", sizeof *net);
    net->model = model;
    net->backend = backend;
    aerie_status status = net_tables(net, options, error);
    if (status == AERIE_OK) status = ae_parts_create(&net->parts, error);
    if (status == AERIE_OK) status = ae_parts_fill(&net->parts, options, error);
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
    ae_parts_free(&net->parts);
    free_tables(net);
    ae_free(net);
}
