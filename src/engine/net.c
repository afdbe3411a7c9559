#include "engine/net.h"

#include <stdatomic.h>
#include <string.h>

#include "base/pool.h"
#include "quant/types.h"

/* One weight or vector: where it comes from and which field it fills. */
typedef struct ae_net_part {
    ae_tensor_ref tensor;
    unsigned use;       /* ae_weight_use; 0 = a vector as f32 */
    uint32_t first, n_out; /* rows of the tensor, or of each matrix in a stack */
    ae_weight **weight; /* filled if use */
    float **vector;     /* filled otherwise */
} ae_net_part;

static uint64_t n_elements(ae_tensor_ref t)
{
    return (uint64_t)(t->ne[0] * t->ne[1]);
}

static ae_weight_source source_of(const ae_net_part *part)
{
    ae_tensor_ref t = part->tensor;
    const size_t row_bytes = ae_type_row_bytes(t->type, (size_t)t->ne[0]);
    return (ae_weight_source){
        .type = t->type, .n_out = part->n_out, .n_in = (uint32_t)t->ne[0], .data = (const uint8_t *)t->data + part->first * row_bytes,
        .use = part->use, .n_stack = (uint32_t)t->ne[2], .stack_stride = (size_t)t->ne[1] * row_bytes};
}

static void add_weight(ae_net *net, ae_tensor_ref tensor, unsigned use, ae_weight **field)
{
    if (!tensor) return;
    net->parts[net->n_parts++] = (ae_net_part){.tensor = tensor, .use = use, .n_out = (uint32_t)tensor->ne[1], .weight = field};
}

/* Gate and up of the experts that stand in one tensor. */
static void add_gate_up(ae_net *net, ae_tensor_ref tensor, ae_weight **gate, ae_weight **up)
{
    if (!tensor) return;
    const uint32_t n = (uint32_t)tensor->ne[1] / 2;
    net->parts[net->n_parts++] = (ae_net_part){.tensor = tensor, .use = AE_WEIGHT_MATMUL, .n_out = n, .weight = gate};
    net->parts[net->n_parts++] = (ae_net_part){.tensor = tensor, .use = AE_WEIGHT_MATMUL, .first = n, .n_out = n, .weight = up};
}

static void add_vector(ae_net *net, ae_tensor_ref tensor, float **field)
{
    if (tensor) net->parts[net->n_parts++] = (ae_net_part){.tensor = tensor, .vector = field};
}

#define PARTS_PER_LAYER 27
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
        add_weight(net, from->e_gate, AE_WEIGHT_MATMUL, &to->e_gate);
        add_weight(net, from->e_up, AE_WEIGHT_MATMUL, &to->e_up);
        add_gate_up(net, from->e_gate_up, &to->e_gate, &to->e_up);
        add_weight(net, from->e_down, AE_WEIGHT_MATMUL, &to->e_down);
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
    return part->use ? backend->ops->weight_bytes(backend, &source) : n_elements(part->tensor) * sizeof(float);
}

static aerie_status part_upload(const ae_net_part *part, ae_backend *backend, aerie_error *error)
{
    if (part->use) {
        const ae_weight_source source = source_of(part);
        return backend->ops->weight_create(backend, &source, part->weight, error);
    }
    const size_t n = n_elements(part->tensor), bytes = n * sizeof(float);
    float *host = ae_alloc(n, sizeof *host);
    *part->vector = backend->ops->alloc(backend, bytes);
    if (!host || !*part->vector) {
        ae_free(host);
        return ae_fail_memory(error, "a weight vector", bytes);
    }
    ae_type_get(part->tensor->type)->decode(part->tensor->data, host, n);
    backend->ops->upload(NULL, *part->vector, host, bytes);
    ae_free(host);
    return AERIE_OK;
}

typedef struct upload_job {
    ae_net *net;
    const ae_net_options *options;
    atomic_ullong done;
    atomic_int status; /* of the first failure */
    aerie_error error; /* written by whoever set status */
    uint64_t total;
} upload_job;

static void upload_item(void *context, uint32_t i, uint32_t i_worker)
{
    upload_job *job = context;
    const ae_net_part *part = &job->net->parts[i];
    if (atomic_load(&job->status) != AERIE_OK) return;
    aerie_error error = {0};
    const aerie_status status = part_upload(part, job->net->backend, &error);
    int expected = AERIE_OK;
    if (status != AERIE_OK && atomic_compare_exchange_strong(&job->status, &expected, (int)status)) job->error = error;
    const uint64_t done = atomic_fetch_add(&job->done, part->tensor->bytes) + part->tensor->bytes;
    if (i_worker == 0 && job->options->progress) job->options->progress(job->options->progress_context, done, job->total);
}

static aerie_status upload_all(ae_net *net, const ae_net_options *options, aerie_error *error)
{
    ae_pool *pool;
    AE_TRY(ae_pool_create(&pool, options->n_threads ? options->n_threads : 1, error));
    upload_job job = {.net = net, .options = options};
    for (uint32_t i = 0; i < net->n_parts; i++) job.total += net->parts[i].tensor->bytes;
    ae_pool_run(pool, upload_item, &job, net->n_parts);
    ae_pool_free(pool);
    if (options->progress) options->progress(options->progress_context, job.total, job.total);
    if (job.status != AERIE_OK && error) *error = job.error;
    return (aerie_status)job.status;
}

static aerie_status net_tables(ae_net *net, aerie_error *error)
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
        const ae_net_part *part = &net->parts[i];
        const size_t bytes = part_bytes(part, net->backend), n_stack = (size_t)part->tensor->ne[2];
        net->bytes += bytes;
        if (n_stack > 1) net->pass_bytes += bytes / n_stack * h->experts.n_used;
        else if (part->use != AE_WEIGHT_LOOKUP) net->pass_bytes += bytes;
    }
    return AERIE_OK;
}

size_t ae_net_plan_bytes(const ae_model *model, const ae_backend *backend)
{
    ae_net net = {.model = model, .backend = (ae_backend *)backend};
    size_t bytes = 0;
    if (net_tables(&net, NULL) == AERIE_OK) bytes = net.bytes;
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
    aerie_status status = net_tables(net, error);
    if (status == AERIE_OK) status = upload_all(net, options, error);
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
        else if (*part->vector) net->backend->ops->free(net->backend, *part->vector, n_elements(part->tensor) * sizeof(float));
    }
    ae_free(net->layers);
    ae_free(net->parts);
    ae_free(net->rope_freq);
    ae_free(net);
}
