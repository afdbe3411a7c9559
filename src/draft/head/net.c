/* net.c - which weights of a head go to the device, and the rows of the target's output that it borrows (net.h). */
#include "draft/head/net.h"
#include "backend/alloc_fail.h"

#include "engine/engine.h"
#include "quant/types.h"
#include "text/token/vocab.h"

#define PARTS_PER_STEP 6
#define LATTICE_PARTS (2 * 9 + 4 + 14 * AE_DHEAD_MAX_LATTICE)
#define MEDUSA_PARTS (AE_DHEAD_MAX_MEDUSA * (2 * AE_DHEAD_MAX_BLOCKS + 1))
#define MAX_PARTS (21 + LATTICE_PARTS + 4 * AE_DHEAD_MAX_LAYERS + AERIE_MAX_TAPS + MEDUSA_PARTS)

static void list_linear(ae_parts *p, const ae_dhead_linear *from, ae_dhead_net_linear *to)
{
    ae_parts_weight(p, from->w, AE_WEIGHT_MATMUL, &to->w);
    ae_parts_vector(p, from->b, &to->b);
}

static void list_lattice(ae_dhead_net *net)
{
    const ae_dhead_lattice *from = &net->head->lattice;
    ae_dhead_net_lattice *to = &net->lattice;
    ae_parts *p = &net->parts;
    list_linear(p, &from->token, &to->token);
    list_linear(p, &from->row, &to->row);
    list_linear(p, &from->context, &to->context);
    list_linear(p, &from->feature_up, &to->feature_up);
    list_linear(p, &from->feature_down, &to->feature_down);
    list_linear(p, &from->factors, &to->factors);
    list_linear(p, &from->out, &to->out);
    list_linear(p, &from->in, &to->in);
    list_linear(p, &from->first, &to->first);
    ae_parts_vector(p, from->feature_norm, &to->feature_norm);
    ae_parts_vector(p, from->feature_norm_b, &to->feature_norm_b);
    ae_parts_vector(p, from->out_norm, &to->out_norm);
    ae_parts_vector(p, from->context_norm, &to->context_norm);
    for (uint32_t i = 0; i < net->head->hparams.lattice.n_layers; i++) {
        ae_parts_vector(p, from->layers[i].attn_norm, &to->layers[i].attn_norm);
        ae_parts_vector(p, from->layers[i].ffn_norm, &to->layers[i].ffn_norm);
        list_linear(p, &from->layers[i].q, &to->layers[i].q);
        list_linear(p, &from->layers[i].k, &to->layers[i].k);
        list_linear(p, &from->layers[i].v, &to->layers[i].v);
        list_linear(p, &from->layers[i].o, &to->layers[i].o);
        list_linear(p, &from->layers[i].up, &to->layers[i].up);
        list_linear(p, &from->layers[i].down, &to->layers[i].down);
    }
}

static void list_eagle(ae_dhead_net *net)
{
    const ae_dhead *head = net->head;
    ae_parts *p = &net->parts;
    ae_dhead_step *step = &net->steps[0];
    ae_parts_weight(p, head->embedding, AE_WEIGHT_LOOKUP, &step->own_embedding);
    ae_parts_weight(p, head->output, AE_WEIGHT_MATMUL, &step->own_output);
    ae_parts_weight(p, head->fc, AE_WEIGHT_MATMUL, &step->fc);
    ae_parts_vector(p, head->fc_bias, &net->fc_bias);
    ae_parts_vector(p, head->mask_hidden, &net->mask_hidden);
    for (uint32_t i = 0; i < AERIE_MAX_TAPS; i++) ae_parts_vector(p, head->fc_norm[i], &net->fc_norm[i]);
    ae_parts_vector(p, head->embd_norm, &step->enorm);
    ae_parts_vector(p, head->hidden_norm, &step->hnorm);
    ae_parts_vector(p, head->out_norm, &step->own_norm);
    ae_parts_weight(p, head->markov_w1, AE_WEIGHT_LOOKUP, &net->markov_w1);
    ae_parts_weight(p, head->markov_w2, AE_WEIGHT_MATMUL, &net->markov_w2);
    ae_parts_weight(p, head->conf, AE_WEIGHT_MATMUL, &net->conf);
    ae_parts_vector(p, head->conf_bias, &net->conf_bias);
    ae_parts_weight(p, head->pair_rows, AE_WEIGHT_MATMUL, &net->pair_rows);
    ae_parts_weight(p, head->pair_before, AE_WEIGHT_LOOKUP, &net->pair_before);
    ae_parts_weight(p, head->pair_after, AE_WEIGHT_LOOKUP, &net->pair_after);
    ae_parts_vector(p, head->correct_hidden_norm, &net->correct_hidden_norm);
    ae_parts_vector(p, head->correct_embd_norm, &net->correct_embd_norm);
    ae_parts_weight(p, head->correct_gate, AE_WEIGHT_MATMUL, &net->correct_gate);
    ae_parts_weight(p, head->correct_up, AE_WEIGHT_MATMUL, &net->correct_up);
    ae_parts_weight(p, head->correct_down, AE_WEIGHT_MATMUL, &net->correct_down);
    if (head->hparams.lattice.width) list_lattice(net);
    for (uint32_t i = 0; head->hparams.n_conv && i < 2 * head->hparams.n_layers; i++) {
        ae_parts_vector(p, head->conv[i / 2][i % 2].base, &net->conv[i / 2][i % 2].base);
        ae_parts_weight(p, head->conv[i / 2][i % 2].proj, AE_WEIGHT_MATMUL, &net->conv[i / 2][i % 2].proj);
    }
}

static void list_block(ae_dhead_net *net, uint32_t i)
{
    const ae_nextn *from = &net->head->mtp->nextn[i];
    ae_parts *p = &net->parts;
    ae_dhead_step *step = &net->steps[i];
    ae_parts_weight(p, from->embedding, AE_WEIGHT_LOOKUP, &step->own_embedding);
    ae_parts_weight(p, from->head, AE_WEIGHT_MATMUL, &step->own_output);
    ae_parts_weight(p, from->eh_proj, AE_WEIGHT_MATMUL, &step->fc);
    ae_parts_vector(p, from->enorm, &step->enorm);
    const ae_hparams *h = &net->head->hparams.layer;
    if (h->hyper_rank) ae_parts_range(p, from->hnorm, 0, h->n_streams * h->n_embd, &step->hnorm);
    else ae_parts_vector(p, from->hnorm, &step->hnorm);
    ae_parts_vector(p, from->head_norm, &step->own_norm);
}

static void list_mtp(ae_dhead_net *net)
{
    for (uint32_t i = 0; i < net->head->hparams.n_layers; i++) list_block(net, i);
    ae_net_list_hyper(&net->parts, &net->head->mtp->hyper_end, &net->end);
}

static void list_assistant(ae_dhead_net *net)
{
    const ae_model *from = net->head->mtp;
    ae_parts *p = &net->parts;
    ae_dhead_step *step = &net->steps[0];
    ae_parts_weight(p, from->output, AE_WEIGHT_MATMUL, &step->own_output);
    ae_parts_weight(p, from->pre_projection, AE_WEIGHT_MATMUL, &step->fc);
    ae_parts_weight(p, from->post_projection, AE_WEIGHT_MATMUL, &step->post);
    ae_parts_vector(p, from->out_norm, &step->own_norm);
}

static void list_medusa(ae_dhead_net *net)
{
    const ae_dhead *head = net->head;
    ae_parts *p = &net->parts;
    for (uint32_t i = 0; i < head->hparams.n_medusa; i++) {
        for (uint32_t b = 0; b < head->hparams.n_blocks; b++) {
            ae_parts_weight(p, head->medusa_w[i][b], AE_WEIGHT_MATMUL, &net->medusa_w[i][b]);
            ae_parts_vector(p, head->medusa_b[i][b], &net->medusa_b[i][b]);
        }
        ae_parts_weight(p, head->medusa_out[i], AE_WEIGHT_MATMUL, &net->medusa_out[i]);
    }
}

/* The functions that list weights outside of layers. */
static void (*const lists[])(ae_dhead_net *) = {
    [AE_DHEAD_EAGLE] = list_eagle,         [AE_DHEAD_EAGLE3] = list_eagle, [AE_DHEAD_MEDUSA] = list_medusa,
    [AE_DHEAD_MTP] = list_mtp,             [AE_DHEAD_ASSISTANT] = list_assistant,
    [AE_DHEAD_DFLASH] = list_eagle,        [AE_DHEAD_DSPARK] = list_eagle, [AE_DHEAD_DFLASH2] = list_eagle,
    [AE_DHEAD_DFLY] = list_eagle,          [AE_DHEAD_LILICORR] = list_eagle,
};

static void list_parts(ae_dhead_net *net)
{
    const ae_dhead_hparams *h = &net->head->hparams;
    lists[h->kind](net);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        ae_weight **experts = net->experts ? net->experts + (size_t)i * ae_net_n_stacked(&h->layer) : NULL;
        ae_net_layer *layer = &net->layers[i];
        ae_net_list_layer(&net->parts, &h->layer, &ae_dhead_layers(net->head)[i], experts, layer);
        layer->kv = layer->index = i;
        if (!ae_dhead_traits_of(h)->reads_target) continue;
        const ae_net_layer *read = &net->target->layers[ae_dhead_target_layer(net->head, net->target->model, i)];
        layer->kv = read->kv, layer->windowed = read->windowed;
    }
}

/* MTP blocks rotate as their target does, and the user may have changed the target's rotation. */
static aerie_status list_ropes(ae_dhead_net *net, aerie_error *error)
{
    const ae_hparams *h = &net->head->hparams.layer, *target = &net->target->model->hparams;
    const bool of_target = ae_dhead_traits_of(&net->head->hparams)->of_model;
    size_t n = 0;
    for (uint32_t i = 0; i < h->n_ropes; i++) n += h->ropes[i].n_rot / 2;
    double *freq = ae_alloc(n, sizeof *freq);
    if (!freq) return ae_fail_memory(error, "a head's rotation", n * sizeof *freq);
    for (uint32_t i = 0; i < h->n_ropes; i++) {
        const bool same = of_target && target->n_ropes == h->n_ropes && target->ropes[i].n_rot == h->ropes[i].n_rot;
        net->rope_freq[i] = freq;
        ae_model_rope_freqs(same ? &target->ropes[i] : &h->ropes[i], target->n_ctx_train, freq, &net->rope_magnitude[i]);
        freq += h->ropes[i].n_rot / 2;
    }
    return AERIE_OK;
}

static aerie_status tables(ae_dhead_net *net, const ae_dhead_net_options *options, aerie_error *error)
{
    const ae_dhead_hparams *h = &net->head->hparams;
    const size_t n_experts = (size_t)h->n_layers * ae_net_n_stacked(&h->layer);
    AE_TRY(ae_parts_init(&net->parts, net->backend, net->head->gguf, net->head->bound,
                         MAX_PARTS + (size_t)h->n_layers * (PARTS_PER_STEP + AE_NET_PARTS_PER_LAYER) + n_experts, error));
    net->steps = ae_alloc(h->n_steps, sizeof *net->steps);
    net->layers = ae_alloc(h->n_layers, sizeof *net->layers);
    if (n_experts) net->experts = ae_alloc(n_experts, sizeof *net->experts);
    if (!net->steps || !net->layers || (n_experts && !net->experts))
        return ae_fail_memory(error, "a head's weight tables", h->n_layers * sizeof *net->layers);
    list_parts(net);
    ae_parts_place(&net->parts, options->load.in_place);
    return h->n_medusa ? AERIE_OK : list_ropes(net, error);
}

static void free_tables(ae_dhead_net *net)
{
    ae_free(net->steps);
    ae_free(net->layers);
    ae_free(net->experts);
    ae_free(net->rope_freq[0]);
}

/* ---- Some rows of the target's output head ------------------------------------------------------------------ */

/* Returns whether the target is cut: a rank of a group has only some rows of its output. */
static bool is_cut(const ae_net *target)
{
    return ae_ranks_cuts_output(target->ranks);
}

/* Returns how many ids, counted from 0, a head without a map can draft. A smaller draft vocabulary would not match the bias. */
static uint32_t first_ids(const ae_dhead *head, const ae_net *target, const ae_dhead_net_options *options)
{
    const uint32_t n_all = target->model->hparams.n_vocab;
    return options->n_vocab && options->n_vocab < n_all && !head->hparams.n_markov ? options->n_vocab : n_all;
}

/* Returns whether a head needs a copy of the target's output, or of some of its rows. */
static bool copies_output(const ae_dhead *head, const ae_net *target, const ae_dhead_net_options *options)
{
    return ae_dhead_borrows_output(head) && (head->to_target || is_cut(target) ||
                                             first_ids(head, target, options) < target->model->hparams.n_vocab);
}

/* Chooses the ids that can be drafted: those of the head's map, or the first n_vocab and those that end a text. */
static aerie_status choose_rows(ae_dhead_net *net, const ae_dhead_net_options *options, aerie_error *error)
{
    const ae_model *m = net->target->model;
    const ae_vocab *vocab = options->vocab;
    const uint32_t n_all = m->hparams.n_vocab, n_mapped = net->head->to_target ? net->head->hparams.n_draft : 0;
    const uint32_t n_first = first_ids(net->head, net->target, options);
    net->trimmed_map = ae_alloc(n_all, sizeof *net->trimmed_map);
    if (!net->trimmed_map) return ae_fail_memory(error, "the draft vocabulary", n_all * sizeof *net->trimmed_map);
    net->n_draft = 0;
    for (uint32_t i = 0; i < n_mapped; i++) net->trimmed_map[net->n_draft++] = net->head->to_target[i];
    for (uint32_t i = 0; !n_mapped && i < n_all; i++)
        if (i < n_first ||
            (vocab && (int32_t)i < ae_vocab_n_tokens(vocab) && ae_vocab_is_eog(vocab, (int32_t)i)))
            net->trimmed_map[net->n_draft++] = (int32_t)i;
    net->to_target = net->n_draft < n_all || n_mapped ? net->trimmed_map : NULL;
    return AERIE_OK;
}

static ae_weight_source trimmed_source(const ae_dhead_net *net)
{
    const ae_tensor_ref t = net->target->model->output;
    return (ae_weight_source){.type = t->type, .n_out = net->n_draft, .n_in = (uint32_t)t->ne[0], .use = AE_WEIGHT_MATMUL};
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
        if (status == AERIE_OK) status = net->backend->ops->weight_fill(net->backend, net->trimmed, rows, first, n, error);
    }
    ae_gguf_reader_close(&reader);
    ae_free(rows);
    return status;
}

static aerie_status trim(ae_dhead_net *net, aerie_error *error)
{
    const ae_model *m = net->target->model;
    const ae_tensor_ref scale = ae_model_output_scale(m);
    ae_weight_source source = trimmed_source(net);
    float factor;
    if (scale) AE_TRY(ae_model_read_f32(m, scale, &factor, 1, error));
    source.scale = scale ? &factor : NULL;
    net->trimmed_bytes = net->backend->ops->weight_bytes(net->backend, &source);
    net->trimmed_memory = net->backend->ops->alloc(net->backend, net->trimmed_bytes);
    if (!net->trimmed_memory)
        return ae_backend_fail_alloc(net->backend, "rows of the target's output head", net->trimmed_bytes, error);
    AE_TRY(net->backend->ops->weight_create(net->backend, &source, net->trimmed_memory, &net->trimmed, error));
    return fill_trimmed(net, error);
}

/* Checks that the target's layers whose cache an assistant reads are on the assistant's device. */
static aerie_status check_device(const ae_dhead_net *net, aerie_error *error)
{
    const ae_net *target = net->target;
    for (uint32_t i = 0; ae_dhead_traits_of(&net->head->hparams)->reads_target && i < net->head->hparams.n_layers; i++) {
        const uint32_t read = ae_dhead_target_layer(net->head, target->model, i);
        if (target->split.mixer[read] == target->split.output) continue;
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: this head reads the keys and values of the model's layer %u, which "
                       "is on another device than the model's output; put more layers on that device (-ngl)",
                       ae_gguf_path(net->head->gguf), read);
    }
    return AERIE_OK;
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

static bool borrows_embedding(const ae_dhead *head)
{
    bool borrows = ae_dhead_traits_of(&head->hparams)->needs_embedding && !head->embedding;
    if (head->hparams.kind != AE_DHEAD_MTP) return borrows;
    borrows = false;
    for (uint32_t i = 0; i < head->hparams.n_layers; i++) borrows |= !head->mtp->nextn[i].embedding;
    return borrows;
}

/* A head is on the device of the target's output. If the target's embeddings are on another device, they are loaded a second
 * time. */
static aerie_status list_embedding(ae_dhead_net *net, const ae_dhead_net_options *options, aerie_error *error)
{
    const ae_model *m = net->target->model;
    if (net->target->embedding_out || !borrows_embedding(net->head)) return AERIE_OK;
    AE_TRY(ae_parts_init(&net->borrowed, net->backend, m->gguf, m->bound, 1, error));
    ae_parts_weight(&net->borrowed, m->embedding, AE_WEIGHT_LOOKUP, &net->embedding);
    ae_parts_place(&net->borrowed, options->load.in_place);
    return AERIE_OK;
}

static aerie_status load_embedding(ae_dhead_net *net, const ae_dhead_net_options *options, aerie_error *error)
{
    AE_TRY(list_embedding(net, options, error));
    if (!net->borrowed.n) return AERIE_OK;
    AE_TRY(ae_parts_create(&net->borrowed, error));
    return ae_parts_fill(&net->borrowed, &options->load, error);
}

/* Sets the borrowed weights, once the head's own are loaded. */
static aerie_status borrow(ae_dhead_net *net, const ae_dhead_net_options *options, aerie_error *error)
{
    const ae_dhead_hparams *h = &net->head->hparams;
    ae_weight *embedding = net->embedding ? net->embedding : net->target->embedding_out;
    const uint32_t n_all = net->target->model->hparams.n_vocab;
    const bool borrows = ae_dhead_borrows_output(net->head);
    const bool some = copies_output(net->head, net->target, options);
    net->n_draft = borrows ? n_all : h->n_draft;
    net->to_target = net->head->to_target;
    if (h->fc_norm == AE_FC_NORM_EACH && !net->head->fc_norm[1]) /* one tensor for all taps */
        for (uint32_t i = 1; i < h->n_taps; i++) net->fc_norm[i] = net->fc_norm[0] + (size_t)i * h->n_target_embd;
    if (some) {
        AE_TRY(choose_rows(net, options, error));
        AE_TRY(trim(net, error));
    }
    for (uint32_t i = 0; i < h->n_steps; i++) {
        ae_dhead_step *s = &net->steps[i];
        s->embedding = s->own_embedding ? s->own_embedding : embedding;
        s->output = s->own_output ? s->own_output : some ? net->trimmed : net->target->output;
        s->norm = s->own_norm || !net->head->mtp ? s->own_norm : net->target->out_norm;
    }
    return AERIE_OK;
}

aerie_status ae_dhead_net_plan_bytes(size_t *bytes, const ae_dhead *head, const ae_net *target,
                                     const ae_dhead_net_options *options, aerie_error *error)
{
    ae_dhead_net net = {.head = head, .target = target, .backend = target->backend};
    aerie_status status = tables(&net, options, error);
    if (status == AERIE_OK) status = list_embedding(&net, options, error);
    *bytes = 0;
    if (status == AERIE_OK) {
        *bytes = net.parts.bytes + net.borrowed.bytes;
        if (copies_output(head, target, options)) {
            net.n_draft = head->to_target ? head->hparams.n_draft : first_ids(head, target, options);
            const ae_weight_source source = trimmed_source(&net);
            *bytes += net.backend->ops->weight_bytes(net.backend, &source);
        }
    }
    ae_free(net.parts.items);
    ae_free(net.borrowed.items);
    free_tables(&net);
    return status;
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
    aerie_status status = check_device(net, error);
    if (status == AERIE_OK) status = tables(net, options, error);
    if (status == AERIE_OK) status = ae_parts_create(&net->parts, error);
    if (status == AERIE_OK) status = ae_parts_fill(&net->parts, &options->load, error);
    if (status == AERIE_OK) status = load_embedding(net, options, error);
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
    ae_parts_free(&net->borrowed);
    ae_free(net->trimmed_map);
    free_tables(net);
    ae_free(net);
}
