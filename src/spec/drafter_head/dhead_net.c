#include "spec/drafter_head/dhead_net.h"

#include "engine/engine.h"
#include "quant/types.h"

_Static_assert(AE_DHEAD_MAX_TAPS <= AE_MAX_TAPS && AE_DHEAD_TAP_NORMED == AE_TAP_NORMED, "what a head may ask, the engine gives");

#define MAX_PARTS (32 + AE_DHEAD_MAX_TAPS + AE_DHEAD_MAX_MEDUSA * (2 * AE_DHEAD_MAX_BLOCKS + 1))

static void list_layer(ae_dhead_net *net)
{
    const ae_layer *l = &net->head->layer;
    ae_parts *p = &net->parts;
    const struct {
        ae_tensor_ref tensor;
        ae_weight **field;
    } weights[] = {{l->wq, &net->wq}, {l->wk, &net->wk}, {l->wv, &net->wv}, {l->wo, &net->wo},
                   {l->w_gate, &net->w_gate}, {l->w_up, &net->w_up}, {l->w_down, &net->w_down}};
    const struct {
        ae_tensor_ref tensor;
        float **field;
    } vectors[] = {{l->bq, &net->bq}, {l->bk, &net->bk}, {l->bv, &net->bv}, {l->bo, &net->bo}, {l->b_gate, &net->b_gate},
                   {l->b_up, &net->b_up}, {l->b_down, &net->b_down}, {l->q_norm, &net->q_norm}, {l->k_norm, &net->k_norm},
                   {l->ffn_norm, &net->ffn_norm}};
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        ae_parts_weight(p, weights[i].tensor, AE_WEIGHT_MATMUL, weights[i].field);
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) ae_parts_vector(p, vectors[i].tensor, vectors[i].field);
}

static void list_parts(ae_dhead_net *net)
{
    const ae_dhead *head = net->head;
    ae_parts *p = &net->parts;
    ae_parts_weight(p, head->embedding, AE_WEIGHT_LOOKUP, &net->own_embedding);
    ae_parts_weight(p, head->output, AE_WEIGHT_MATMUL, &net->own_output);
    ae_parts_weight(p, head->fc, AE_WEIGHT_MATMUL, &net->fc);
    ae_parts_vector(p, head->fc_bias, &net->fc_bias);
    for (uint32_t i = 0; i < AE_DHEAD_MAX_TAPS; i++) ae_parts_vector(p, head->fc_norm[i], &net->fc_norm[i]);
    ae_parts_vector(p, head->embd_norm, &net->embd_norm);
    ae_parts_vector(p, head->hidden_norm, &net->hidden_norm);
    ae_parts_vector(p, head->out_norm, &net->out_norm);
    list_layer(net);
    for (uint32_t i = 0; i < head->hparams.n_medusa; i++) {
        for (uint32_t b = 0; b < head->hparams.n_blocks; b++) {
            ae_parts_weight(p, head->medusa_w[i][b], AE_WEIGHT_MATMUL, &net->medusa_w[i][b]);
            ae_parts_vector(p, head->medusa_b[i][b], &net->medusa_b[i][b]);
        }
        ae_parts_weight(p, head->medusa_out[i], AE_WEIGHT_MATMUL, &net->medusa_out[i]);
    }
}

static aerie_status tables(ae_dhead_net *net, const ae_dhead_net_options *options, aerie_error *error)
{
    const ae_hparams *h = &net->head->hparams.layer;
    AE_TRY(ae_parts_init(&net->parts, net->backend, net->head->gguf, MAX_PARTS, error));
    list_parts(net);
    ae_parts_place(&net->parts, options->load.in_place);
    for (uint32_t i = 0; i < net->parts.n; i++)
        if (net->parts.items[i].weight != &net->fc || net->head->hparams.kind == AE_DHEAD_EAGLE)
            net->step_bytes += ae_part_pass_bytes(&net->parts.items[i]);
    if (net->head->hparams.kind == AE_DHEAD_MEDUSA) return AERIE_OK;
    net->rope_freq = ae_alloc(h->ropes[0].n_rot / 2, sizeof *net->rope_freq);
    if (!net->rope_freq) return ae_fail_memory(error, "a head's rotation", h->ropes[0].n_rot / 2 * sizeof *net->rope_freq);
    ae_model_rope_freqs(&h->ropes[0], net->target->model->hparams.n_ctx_train, net->rope_freq, &net->rope_magnitude);
    return AERIE_OK;
}

/* ---- Some rows of the target's output head ------------------------------------------------------------------ */

static bool borrows_output(const ae_dhead *head)
{
    return !head->output && head->hparams.kind != AE_DHEAD_MEDUSA;
}

/* The ids that are drafted from: those of the head's map, else the first n_vocab and what ends a text. */
static aerie_status choose_rows(ae_dhead_net *net, uint32_t n_vocab, aerie_error *error)
{
    const ae_model *m = net->target->model;
    const uint32_t n_all = m->hparams.n_vocab, n_mapped = net->head->to_target ? net->head->hparams.n_draft : 0;
    net->trimmed_map = ae_alloc(n_all, sizeof *net->trimmed_map);
    if (!net->trimmed_map) return ae_fail_memory(error, "the draft vocabulary", n_all * sizeof *net->trimmed_map);
    net->n_draft = 0;
    for (uint32_t i = 0; i < n_mapped; i++) net->trimmed_map[net->n_draft++] = net->head->to_target[i];
    for (uint32_t i = 0; !n_mapped && i < n_all; i++)
        if (i < n_vocab || (m->vocab && (int32_t)i < ae_vocab_n_tokens(m->vocab) && ae_vocab_is_eog(m->vocab, (int32_t)i)))
            net->trimmed_map[net->n_draft++] = (int32_t)i;
    net->to_target = net->trimmed_map;
    return AERIE_OK;
}

static ae_weight_source trimmed_source(const ae_dhead_net *net)
{
    const ae_tensor_ref t = net->target->model->output;
    return (ae_weight_source){t->type, net->n_draft, (uint32_t)t->ne[0], NULL, AE_WEIGHT_MATMUL};
}

static aerie_status fill_trimmed(ae_dhead_net *net, aerie_error *error)
{
    const ae_model *m = net->target->model;
    const size_t row = ae_type_row_bytes(m->output->type, (uint64_t)m->output->ne[0]);
    uint8_t *rows = ae_alloc_aligned(AE_WEIGHT_ROWS, row);
    if (!rows) return ae_fail_memory(error, "rows of the target's output head", AE_WEIGHT_ROWS * row);
    ae_gguf_reader reader = ae_gguf_reader_open(m->gguf);
    aerie_status status = AERIE_OK;
    for (uint32_t first = 0; status == AERIE_OK && first < net->n_draft; first += AE_WEIGHT_ROWS) {
        const uint32_t left = net->n_draft - first, n = left < AE_WEIGHT_ROWS ? left : AE_WEIGHT_ROWS;
        for (uint32_t i = 0; status == AERIE_OK && i < n; i++)
            status = ae_gguf_read(&reader, m->output, (size_t)net->trimmed_map[first + i] * row, rows + i * row, row, error);
        if (status == AERIE_OK) net->backend->ops->weight_fill(net->backend, net->trimmed, rows, first, n);
    }
    ae_gguf_reader_close(&reader);
    ae_free(rows);
    return status;
}

static aerie_status trim(ae_dhead_net *net, aerie_error *error)
{
    const ae_weight_source source = trimmed_source(net);
    net->trimmed_bytes = net->backend->ops->weight_bytes(net->backend, &source);
    net->trimmed_memory = net->backend->ops->alloc(net->backend, net->trimmed_bytes);
    if (!net->trimmed_memory) return ae_fail_memory(error, "rows of the target's output head", net->trimmed_bytes);
    AE_TRY(net->backend->ops->weight_create(net->backend, &source, net->trimmed_memory, &net->trimmed, error));
    return fill_trimmed(net, error);
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

/* What is borrowed, once the head's own weights stand. */
static aerie_status borrow(ae_dhead_net *net, const ae_dhead_net_options *options, aerie_error *error)
{
    const ae_dhead_hparams *h = &net->head->hparams;
    const uint32_t n_all = net->target->model->hparams.n_vocab;
    net->embedding = net->own_embedding ? net->own_embedding : net->target->embedding;
    net->output = net->own_output;
    net->n_draft = h->n_draft;
    net->to_target = net->head->to_target;
    if (h->fc_norm == AE_FC_NORM_EACH && !net->head->fc_norm[1]) /* one tensor for all */
        for (uint32_t i = 1; i < h->n_taps; i++) net->fc_norm[i] = net->fc_norm[0] + (size_t)i * h->n_target_embd;
    if (!borrows_output(net->head)) return AERIE_OK;
    const bool some = net->head->to_target || (options->n_vocab && options->n_vocab < n_all);
    if (some) {
        AE_TRY(choose_rows(net, options->n_vocab, error));
        AE_TRY(trim(net, error));
        net->output = net->trimmed;
        net->step_bytes += net->trimmed_bytes;
        return AERIE_OK;
    }
    net->output = net->target->output;
    net->n_draft = n_all;
    net->step_bytes += ae_type_row_bytes(net->target->model->output->type, h->layer.n_embd) * n_all;
    return AERIE_OK;
}

size_t ae_dhead_net_plan_bytes(const ae_dhead *head, const ae_net *target, const ae_dhead_net_options *options)
{
    ae_dhead_net net = {.head = head, .target = target, .backend = target->backend};
    size_t bytes = 0;
    if (tables(&net, options, NULL) == AERIE_OK) {
        bytes = net.parts.bytes;
        if (borrows_output(head) && (head->to_target || options->n_vocab)) {
            net.n_draft = head->to_target ? head->hparams.n_draft : options->n_vocab;
            const ae_weight_source source = trimmed_source(&net);
            bytes += net.backend->ops->weight_bytes(net.backend, &source);
        }
    }
    ae_free(net.parts.items);
    ae_free(net.rope_freq);
    return bytes;
}

aerie_status ae_dhead_net_create(ae_dhead_net **out, const ae_dhead *head, const ae_net *target,
                                const ae_dhead_net_options *options, aerie_error *error)
{
    *out = NULL;
    AE_TRY(ae_dhead_fits(head, target->model, error));
    ae_dhead_net *net = ae_alloc(1, sizeof *net);
    if (!net) return ae_fail_memory(error, "a drafter head", sizeof *net);
    net->head = head;
    net->target = target;
    net->backend = target->backend;
    aerie_status status = tables(net, options, error);
    if (status == AERIE_OK) status = ae_parts_create(&net->parts, error);
    if (status == AERIE_OK) status = ae_parts_fill(&net->parts, &options->load, error);
    if (status == AERIE_OK) status = borrow(net, options, error);
    if (status == AERIE_OK) *out = net;
    else ae_dhead_net_free(net);
    return status;
}

void ae_dhead_net_free(ae_dhead_net *net)
{
    if (!net) return;
    if (net->trimmed) net->backend->ops->weight_free(net->backend, net->trimmed);
    if (net->trimmed_memory) net->backend->ops->free(net->backend, net->trimmed_memory, net->trimmed_bytes);
    ae_parts_free(&net->parts);
    ae_free(net->trimmed_map);
    ae_free(net->rope_freq);
    ae_free(net);
}
