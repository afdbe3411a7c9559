/* net.c - which tensor of a model becomes which weight of its network (net.h). parts.c places the weights, fill.c fills
 * them. */
#include "engine/weights/net.h"
#include "engine/weights/order.h"

/* Adds rows [first, first + n) of each matrix of a stack. */
static void add_experts(ae_parts *parts, uint32_t n_experts, ae_tensor_ref tensor, uint32_t first, uint32_t n,
                        ae_weight **fields)
{
    for (uint32_t i = 0; i < n_experts; i++)
        ae_parts_expert(parts, tensor, i, (uint64_t)i * (uint64_t)tensor->ne[1] + first, n, &fields[i]);
}

#define PARTS_OUTSIDE (17 + 2 * AE_MAX_DEVICES + 2 * AE_MAX_STREAMS)

/* Some rows of a matrix, or some elements of a vector; if `some` is false, all of them. */
typedef struct range {
    bool some;
    uint64_t first;
    uint32_t n;
    const ae_part_run *runs; /* [n_runs] runs with n rows in all; or NULL */
    uint32_t n_runs;
} range;

/* A rank's part of a layer's weights. Without a group: everything. */
typedef struct cut {
    range q, k, v, q_head, q_norm, k_norm, heads, ff, gate, embd; /* gate: of w_gate */
    range expert_ff, shared_ff, expert_out, latent_out, inner_bias, out_bias; /* the last two: biases of all experts */
    range recur_out, index_q, index_k; /* with index.late, in an order of their own */
    range by_part, by_gate;    /* the rows of `in` and `gate` in a fused projection, in an order of their own */
    const ae_recur_cut *recur; /* NULL: the rank has the whole recurrent mixer */
} cut;

/* Lists gate (if there is one), up and down of all experts of a layer, as far as the rank has them. */
static void list_experts(ae_parts *p, const ae_hparams *h, const ae_layer *from, const cut *c, ae_weight **stack,
                         ae_net_layer *to)
{
    const ae_expert_hparams *x = &h->experts;
    const uint32_t n_out = x->n_latent ? x->n_latent : h->n_embd;
    const range ff = c->expert_ff.some ? c->expert_ff : (range){true, 0, x->n_ff, NULL, 0};
    const range out = c->expert_out.some ? c->expert_out : (range){true, 0, n_out, NULL, 0};
    const ae_tensor_ref both = from->e_gate_up;
    const uint32_t first = (uint32_t)ff.first;
    to->e_gate = from->e_gate || both ? stack : NULL;
    to->e_up = stack + x->n;
    to->e_down = stack + 2 * (size_t)x->n;
    if (to->e_gate && ff.n) add_experts(p, x->n, both ? both : from->e_gate, first, ff.n, to->e_gate);
    if (ff.n) add_experts(p, x->n, both ? both : from->e_up, (both ? x->n_ff : 0) + first, ff.n, to->e_up);
    if (out.n) add_experts(p, x->n, from->e_down, (uint32_t)out.first, out.n, to->e_down);
    if (!from->c_up) return;
    to->c_gate = stack + 3 * (size_t)x->n;
    to->c_up = to->c_gate + x->n_chunks;
    to->c_down = to->c_up + x->n_chunks;
    add_experts(p, x->n_chunks, from->c_gate, 0, x->n_ff_chunk, to->c_gate);
    add_experts(p, x->n_chunks, from->c_up, 0, x->n_ff_chunk, to->c_up);
    add_experts(p, x->n_chunks, from->c_down, 0, h->n_embd, to->c_down);
}

static range of_slices(const ae_slices *s, uint32_t rank)
{
    return (range){true, s->first[rank], s->n[rank], NULL, 0};
}

static range of_heads(uint32_t first, uint32_t n, uint32_t width)
{
    return (range){true, (uint64_t)first * width, n * width, NULL, 0};
}

static range of_list(const ae_part_run *list, uint32_t n_runs)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_runs; i++) n += list[i].n;
    return (range){true, 0, n, list, n_runs};
}

static range of_runs(const ae_runs *runs)
{
    return of_list(runs->list, runs->n);
}

static cut cut_attention(const ae_ranks *ranks, uint32_t i)
{
    if (!ranks || !ranks->layers[i].mixer) return (cut){0};
    const ae_layer_cut *l = &ranks->layers[i];
    const ae_layer_spec *s = &l->own;
    const bool mla = s->mixer == AE_MIXER_MLA, each = s->qk_norm == AE_QK_NORM_LAYER || s->qk_norm == AE_QK_NORM_EACH;
    const uint32_t query = mla ? s->mla.n_nope + s->mla.n_rope : s->head_dim, value = s->value_dim ? s->value_dim : s->head_dim;
    const uint32_t gated = s->out_gate == AE_OUT_GATE_ELEMENT ? 2 : 1;
    const uint32_t gate = s->out_gate == AE_OUT_GATE_HEAD ? 1 : mla ? s->mla.value_dim : query;
    return (cut){.q = of_heads(l->first_head, s->n_heads, query * gated),
                 .k = of_heads(l->first_kv_head, s->n_kv_heads, s->head_dim),
                 .v = of_heads(l->first_kv_head, s->n_kv_heads, value),
                 .q_head = of_heads(l->first_head, s->n_heads, gate),
                 .q_norm = each ? of_heads(l->first_head, s->n_heads, s->head_dim) : (range){0},
                 .k_norm = each ? of_heads(l->first_kv_head, s->n_kv_heads, s->head_dim) : (range){0},
                 .heads = of_heads(l->first_head, s->n_heads, 1),
                 .embd = of_slices(&ranks->embd, ranks->own)};
}

static cut cut_mixer(const ae_ranks *ranks, uint32_t i)
{
    cut c = cut_attention(ranks, i);
    if (ranks && ranks->layers[i].recur) c.recur = &ranks->recur, c.recur_out = of_slices(&ranks->embd, ranks->own);
    return c;
}

static cut cut_ffn(const ae_hparams *h, const ae_ranks *ranks, uint32_t i)
{
    cut c = {0};
    if (!ranks) return c;
    const uint32_t own = ranks->own;
    const range embd = of_slices(&ranks->embd, own);
    if (ranks->layers[i].ffn) c.ff = of_slices(&ranks->layers[i].ff, own), c.embd = embd;
    c.gate = ranks->layers[i].own.ffn == AE_FFN_CHANNEL_MIX ? c.embd : c.ff; /* the channel mix gates its output */
    if (!ranks->layers[i].experts) return c;
    c.expert_ff = of_slices(&ranks->expert_ff, own), c.shared_ff = of_slices(&ranks->shared_ff, own);
    c.expert_out = h->experts.n_latent ? of_slices(&ranks->latent, own) : embd;
    c.latent_out = embd;
    c.inner_bias = of_list(ranks->inner_bias, h->experts.n);
    c.out_bias = of_list(ranks->out_bias, h->experts.n);
    return c;
}

/* Makes the part that was listed last consist of these runs. */
static void set_runs(ae_parts *p, range of)
{
    if (of.runs) ae_parts_runs(p, of.runs, of.n_runs);
}

/* Adds the given rows of a matrix that is itself rows [first, first + n) of a larger one. */
static void add_rows(ae_parts *p, ae_tensor_ref tensor, uint64_t first, uint32_t n, range of, ae_weight **field)
{
    if (!tensor || (of.some && !of.n)) return;
    ae_parts_rows(p, tensor, 0, of.some ? first + of.first : first, of.some ? of.n : n, field);
    set_runs(p, of);
}

static void add_range(ae_parts *p, ae_tensor_ref tensor, uint64_t first, uint32_t n, range of, float **field)
{
    if (!tensor || (of.some && !of.n)) return;
    ae_parts_range(p, tensor, of.some ? first + of.first : first, of.some ? of.n : n, field);
    set_runs(p, of);
}

/* Lists queries, keys and values: each as its own tensor, or as rows of one. */
static void list_qkv(ae_parts *p, const ae_layer *from, const cut *c, ae_net_layer *to)
{
    const ae_layer_spec *s = &from->spec;
    const uint32_t kv = s->n_kv_heads * s->head_dim, v = s->value_dim ? s->n_kv_heads * s->value_dim : kv;
    const uint32_t q = s->n_heads * s->head_dim * (s->out_gate == AE_OUT_GATE_ELEMENT ? 2 : 1);
    add_rows(p, from->wqkv, 0, q, c->q, &to->wq);
    add_rows(p, from->wqkv, q, kv, c->k, &to->wk);
    add_rows(p, from->wqkv, (uint64_t)q + kv, v, c->v, &to->wv);
    add_range(p, from->bqkv, 0, q, c->q, &to->bq);
    add_range(p, from->bqkv, q, kv, c->k, &to->bk);
    add_range(p, from->bqkv, (uint64_t)q + kv, v, c->v, &to->bv);
}

/* Lists gate and up, which are rows of one tensor. */
static void list_gate_up(ae_parts *p, const ae_hparams *h, const ae_layer *from, const cut *c, ae_net_layer *to)
{
    const ae_layer_spec *s = &from->spec;
    const uint32_t shared = h->experts.n_ff_shared;
    add_rows(p, from->s_gate_up, 0, shared, c->shared_ff, &to->s_gate);
    add_rows(p, from->s_gate_up, shared, shared, c->shared_ff, &to->s_up);
    add_rows(p, from->w_gate_up, 0, s->n_ff, c->ff, &to->w_gate);
    add_rows(p, from->w_gate_up, s->n_ff, s->n_ff, c->ff, &to->w_up);
}

/* Lists latent attention in its absorbed form. In an old file, the first rows of each head of kv_b are transposed. */
static void list_mla(ae_parts *p, const ae_layer *from, range own, ae_weight **heads, ae_net_layer *to)
{
    const ae_mla_hparams *m = &from->spec.mla;
    const uint32_t n_heads = from->spec.n_heads, both = m->n_nope + m->value_dim;
    const uint32_t first = (uint32_t)own.first, n = own.some ? own.n : n_heads;
    to->mla.k_b = heads;
    to->mla.v_b = heads + n_heads;
    ae_parts_rows(p, from->mla.kv_a, 0, 0, m->n_latent, &to->mla.kv_latent);
    if (!m->still) ae_parts_rows(p, from->mla.kv_a, 0, m->n_latent, m->n_rope, &to->mla.kv_rope);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t h = first + i;
        if (m->n_nope) ae_parts_transposed(p, from->mla.kv_b, (uint64_t)h * both, m->n_nope, &to->mla.k_b[i]);
        ae_parts_rows(p, from->mla.kv_b, 0, (uint64_t)h * both + m->n_nope, m->value_dim, &to->mla.v_b[i]);
        ae_parts_rows(p, from->mla.k_b, h, (uint64_t)h * m->n_latent, m->n_latent, &to->mla.k_b[i]);
        ae_parts_rows(p, from->mla.v_b, h, (uint64_t)h * m->value_dim, m->value_dim, &to->mla.v_b[i]);
    }
}

uint32_t ae_net_n_stacked(const ae_hparams *h)
{
    return 3 * (h->experts.n + h->experts.n_chunks) + (h->mla.n_latent ? 2 * h->n_heads : 0) +
           h->compress.n_groups + 2 * AE_SWITCHES * h->adapters.n;
}

typedef struct weight_field {
    ae_tensor_ref tensor;
    ae_weight **field;
} weight_field;

typedef struct vector_field {
    ae_tensor_ref tensor;
    float **field;
} vector_field;

/* Returns the rows of a recurrent mixer's weight that the rank has. */
static range rows_of_recur(const ae_recur_cut *c, const ae_net_recur *to, ae_weight *const *field)
{
    if (field == &to->in) return of_runs(&c->in);
    if (c->own.kind >= AE_RECUR_WKV6 && (field == &to->in_k || field == &to->in_v)) return of_runs(&c->pairs);
    if (field == &to->in_q || field == &to->in_k || field == &to->in_v || field == &to->gate) return of_runs(&c->values);
    if (field == &to->alpha) return of_runs(c->own.kind == AE_RECUR_KDA ? &c->values : &c->units);
    if (field == &to->beta) return of_runs(&c->units);
    if (field == &to->beta_alpha) return of_runs(&c->pairs);
    return field == &to->dt_proj ? of_runs(&c->units) : (range){0}; /* MAMBA1: of each channel */
}

static range elements_of_recur(const ae_recur_cut *c, const ae_net_recur *to, float *const *field)
{
    const bool is_kda = c->own.kind == AE_RECUR_KDA;
    if (field == &to->conv || field == &to->conv_k || field == &to->conv_v) return of_runs(&c->taps);
    if (field == &to->conv_bias) return of_runs(&c->bias);
    if (field == &to->decay) return of_runs(c->own.kind == AE_RECUR_MAMBA1 ? &c->decay : &c->units);
    if (field == &to->dt_bias) return of_runs(is_kda ? &c->values : &c->units);
    if (field == &to->skip) return of_runs(&c->units);
    return field == &to->norm && c->own.kind == AE_RECUR_MAMBA2 && !c->whole_norm ? of_runs(&c->norm) : (range){0};
}

static bool is_of_recur(const ae_net_layer *to, const void *field)
{
    const uintptr_t first = (uintptr_t)&to->recur, at = (uintptr_t)field;
    return at >= first && at < first + sizeof to->recur;
}

static range rows_of(const cut *c, const ae_net_layer *to, ae_weight *const *field)
{
    if (field == &to->recur.in && c->by_part.some) return c->by_part;
    if (field == &to->recur.gate && c->by_gate.some) return c->by_gate;
    if (field == &to->recur.out) return c->recur_out;
    if (is_of_recur(to, field)) return c->recur ? rows_of_recur(c->recur, &to->recur, field) : (range){0};
    if (field == &to->s_gate || field == &to->s_up) return c->shared_ff;
    if (field == &to->s_down || field == &to->latent_up) return c->latent_out;
    if (field == &to->wq || field == &to->mla.q_b) return c->q;
    if (field == &to->wk) return c->k;
    if (field == &to->mla.index_q || field == &to->mla.index_k) return field == &to->mla.index_q ? c->index_q : c->index_k;
    if (field == &to->wv) return c->v;
    if (field == &to->out_gate) return c->q_head;
    if (field == &to->w_gate) return c->gate;
    if (field == &to->w_up) return c->ff;
    return field == &to->wo || field == &to->w_down ? c->embd : (range){0};
}

static range elements_of(const cut *c, const ae_net_layer *to, float *const *field)
{
    if (is_of_recur(to, field)) return c->recur ? elements_of_recur(c->recur, &to->recur, field) : (range){0};
    if (field == &to->bq) return c->q;
    if (field == &to->bk) return c->k;
    if (field == &to->bv) return c->v;
    if (field == &to->q_norm || field == &to->q_norm_b) return c->q_norm;
    if (field == &to->k_norm || field == &to->k_norm_b) return c->k_norm;
    if (field == &to->sinks) return c->heads;
    if (field == &to->mla.index_k_norm || field == &to->mla.index_k_norm_b) return c->index_k;
    if (field == &to->b_gate || field == &to->b_up) return c->ff;
    if (field == &to->eb_gate || field == &to->eb_up) return c->inner_bias;
    if (field == &to->eb_down) return c->out_bias;
    return field == &to->bo || field == &to->b_down ? c->embd : (range){0};
}

static void list_weight(ae_parts *p, ae_tensor_ref tensor, range of, ae_weight **field)
{
    if (of.some) add_rows(p, tensor, 0, 0, of, field);
    else ae_parts_weight(p, tensor, AE_WEIGHT_MATMUL, field);
}

static void list_vector(ae_parts *p, ae_tensor_ref tensor, range of, float **field)
{
    if (of.some) add_range(p, tensor, 0, 0, of, field);
    else ae_parts_vector(p, tensor, field);
}

static void list_fields(ae_parts *p, const weight_field *weights, size_t n_weights, const vector_field *vectors,
                        size_t n_vectors, const cut *c, const ae_net_layer *to)
{
    for (size_t k = 0; k < n_weights; k++)
        list_weight(p, weights[k].tensor, rows_of(c, to, weights[k].field), weights[k].field);
    for (size_t k = 0; k < n_vectors; k++)
        list_vector(p, vectors[k].tensor, elements_of(c, to, vectors[k].field), vectors[k].field);
}

#define N_OF(array) (sizeof(array) / sizeof *(array))
#define MOST_OF_WKV 36
#define MOST_OF_OTHERS 40 /* parts of compressors, hyper-connections and a memory */
#define MOST_OF_BLOCK ((AE_NET_PARTS_PER_LAYER - MOST_OF_WKV - MOST_OF_OTHERS - 8) / 2)

/* Lists RWKV's mixer, except for the weights in ae_recur_layer, and its channel mix, which is on the mixer's device. of: what
 * the rank has of it, or NULL. */
static void list_wkv(ae_parts *p, const ae_hparams *h, const ae_layer *from, const ae_recur_cut *of, ae_net_wkv *to)
{
    enum { WEIGHTS = 5, VECTORS = 8, OF_KEYS = 2 }; /* that every rank has; that go with heads of keys and values */
    const ae_wkv_layer *w = &from->wkv;
    const range all = {0}, heads = of ? of_runs(&of->values) : all, keys = of ? of_runs(&of->pairs) : all;
    const weight_field weights[] = {{w->mix_a, &to->mix_a}, {w->decay_a, &to->decay_a}, {w->rate_a, &to->rate_a},
                                    {w->blend_a, &to->blend_a}, {w->gate_a, &to->gate_a}, {w->decay_b, &to->decay_b},
                                    {w->rate_b, &to->rate_b}, {w->blend_b, &to->blend_b}, {w->gate_b, &to->gate_b}};
    const vector_field vectors[] = {
        {w->lerps[0], &to->lerps[0]}, {w->lerps[1], &to->lerps[1]}, {w->lerps[2], &to->lerps[2]}, {w->lerps[3], &to->lerps[3]},
        {w->lerps[4], &to->lerps[4]}, {w->lerp_x, &to->lerp_x}, {w->channel_k, &to->channel_k}, {w->channel_r, &to->channel_r},
        {w->bias_k, &to->bias_k}, {w->bias_v, &to->bias_v}, {w->bias_r, &to->bias_r}, {w->decay, &to->decay},
        {w->rate, &to->rate}, {w->blend, &to->blend}, {w->first, &to->first}, {w->k_k, &to->k_k}, {w->k_a, &to->k_a},
        {w->norm, &to->norm}, {w->norm_b, &to->norm_b}};
    for (size_t k = 0; k < N_OF(weights); k++)
        list_weight(p, weights[k].tensor, k < WEIGHTS ? all : heads, weights[k].field);
    for (size_t k = 0; k < N_OF(vectors); k++)
        list_vector(p, vectors[k].tensor, k < VECTORS ? all : k < VECTORS + OF_KEYS ? keys : heads, vectors[k].field);
    for (uint32_t k = 0; w->mix_b && k < 5; k++)
        ae_parts_rows(p, w->mix_b, k, (uint64_t)k * h->n_embd, h->n_embd, &to->mix_b[k]);
    if (w->lerp) ae_parts_range(p, w->lerp, 0, (uint32_t)(w->lerp->ne[0] * w->lerp->ne[3]), &to->lerp);
    _Static_assert(N_OF(weights) + N_OF(vectors) + 5 + 1 <= MOST_OF_WKV, "room for all parts of RWKV's layers");
}

/* Lists all numbers of a matrix as a vector. */
static void list_all(ae_parts *p, ae_tensor_ref t, float **field)
{
    if (t) ae_parts_range(p, t, 0, (uint32_t)(t->ne[0] * t->ne[1]), field);
}

void ae_net_list_hyper(ae_parts *p, const ae_hyper_layer *from, ae_net_hyper *to)
{
    ae_parts_weight(p, from->fn, AE_WEIGHT_MATMUL, &to->fn);
    ae_parts_vector(p, from->scale, &to->scale);
    ae_parts_vector(p, from->base, &to->base);
    list_all(p, from->norm, &to->norm);
    ae_parts_weight(p, from->down, AE_WEIGHT_MATMUL, &to->down);
    ae_parts_weight(p, from->up, AE_WEIGHT_MATMUL, &to->up);
    ae_parts_weight(p, from->inject, AE_WEIGHT_MATMUL, &to->inject);
}

static void list_memory(ae_parts *p, const ae_memory_layer *from, ae_net_memory *to)
{
    ae_parts_weight(p, from->table, AE_WEIGHT_LOOKUP, &to->table);
    ae_parts_weight(p, from->key, AE_WEIGHT_MATMUL, &to->key);
    ae_parts_weight(p, from->value, AE_WEIGHT_MATMUL, &to->value);
    list_all(p, from->norm_key, &to->norm_key);
    list_all(p, from->norm_query, &to->norm_query);
    list_all(p, from->norm_conv, &to->norm_conv);
    list_all(p, from->taps, &to->taps);
}

static void list_compressor(ae_parts *p, const ae_compressor *from, ae_net_compressor *to)
{
    ae_parts_weight(p, from->kv, AE_WEIGHT_MATMUL, &to->kv);
    ae_parts_weight(p, from->gate, AE_WEIGHT_MATMUL, &to->gate);
    list_all(p, from->ape, &to->ape);
    ae_parts_vector(p, from->norm, &to->norm);
}

static void list_compress(ae_parts *p, const ae_hparams *h, const ae_layer *from, ae_weight **groups, ae_net_layer *to)
{
    const ae_tensor_ref t = from->compress.out_a;
    const uint32_t n = h->compress.n_out;
    to->compress.out_a = groups;
    for (uint32_t g = 0; g < h->compress.n_groups; g++)
        ae_parts_rows(p, t, t->ne[2] > 1 ? g : 0, (uint64_t)g * n, n, &groups[g]);
    list_compressor(p, &from->compress.rows, &to->compress.rows);
}

static void list_mixer(ae_parts *p, const ae_layer *from, const cut *c, ae_net_layer *to)
{
    const weight_field weights[] = {
        {from->wq, &to->wq}, {from->wk, &to->wk}, {from->wv, &to->wv}, {from->wo, &to->wo}, {from->out_gate, &to->out_gate},
        {from->mla.q_a, &to->mla.q_a}, {from->mla.q_b, &to->mla.q_b}, {from->mla.index_q, &to->mla.index_q},
        {from->mla.index_k, &to->mla.index_k}, {from->mla.index_weight, &to->mla.index_weight},
        {from->recur.in, &to->recur.in}, {from->recur.gate, &to->recur.gate}, {from->recur.alpha, &to->recur.alpha},
        {from->recur.beta, &to->recur.beta}, {from->recur.beta_alpha, &to->recur.beta_alpha},
        {from->recur.out, &to->recur.out}, {from->recur.x_proj, &to->recur.x_proj}, {from->recur.dt_proj, &to->recur.dt_proj},
        {from->recur.in_q, &to->recur.in_q}, {from->recur.in_k, &to->recur.in_k}, {from->recur.in_v, &to->recur.in_v},
        {from->recur.f_a, &to->recur.f_a}, {from->recur.g_a, &to->recur.g_a}, {from->altup.router, &to->altup.router},
        {from->altup.predict, &to->altup.predict},
        {from->cross_q, &to->cross_q}, {from->cross_k, &to->cross_k}, {from->cross_v, &to->cross_v},
        {from->cross_o, &to->cross_o},
        {from->altup.laurel_a, &to->altup.laurel_a}, {from->altup.laurel_b, &to->altup.laurel_b},
        {from->mixer_score, &to->mixer_score}};
    const vector_field vectors[] = {
        {from->attn_norm, &to->attn_norm}, {from->attn_norm_b, &to->attn_norm_b}, {from->attn_post_norm, &to->attn_post_norm},
        {from->attn_post_norm_b, &to->attn_post_norm_b},
        {from->again_norm, &to->again_norm}, {from->again_norm_b, &to->again_norm_b},
        {from->bq, &to->bq}, {from->bk, &to->bk}, {from->bv, &to->bv}, {from->bo, &to->bo},
        {from->q_norm, &to->q_norm}, {from->k_norm, &to->k_norm}, {from->q_norm_b, &to->q_norm_b},
        {from->k_norm_b, &to->k_norm_b}, {from->sinks, &to->sinks},
        {from->attn_sub_norm, &to->attn_sub_norm},
        {from->mla.q_a_norm, &to->mla.q_a_norm}, {from->mla.kv_a_norm, &to->mla.kv_a_norm},
        {from->mla.index_k_norm, &to->mla.index_k_norm}, {from->mla.index_k_norm_b, &to->mla.index_k_norm_b},
        {from->mla.index_q_norm, &to->mla.index_q_norm},
        {from->recur.conv, &to->recur.conv}, {from->recur.conv_bias, &to->recur.conv_bias},
        {from->recur.decay, &to->recur.decay}, {from->recur.dt_bias, &to->recur.dt_bias},
        {from->recur.skip, &to->recur.skip}, {from->recur.norm, &to->recur.norm}, {from->recur.dt_norm, &to->recur.dt_norm},
        {from->recur.b_norm, &to->recur.b_norm}, {from->recur.c_norm, &to->recur.c_norm},
        {from->recur.conv_k, &to->recur.conv_k}, {from->recur.conv_v, &to->recur.conv_v},
        {from->altup.router_norm, &to->altup.router_norm}, {from->altup.laurel_norm, &to->altup.laurel_norm},
        {from->mixer_carry, &to->mixer_carry}, {from->cross_norm, &to->cross_norm}};
    _Static_assert(N_OF(weights) + N_OF(vectors) <= MOST_OF_BLOCK, "room for all parts of a mixer");
    if (from->recur.rates) {
        const uint32_t n = c->by_part.n_runs / 3;
        ae_parts_numbers(p, from->recur.rates, n, &to->recur.zeros);
        ae_parts_numbers(p, from->recur.rates + n, n, &to->recur.dt_bias);
        ae_parts_numbers(p, from->recur.rates + 2 * (size_t)n, n, &to->recur.decay);
    }
    const range gains = c->q_norm.some ? c->q_norm : (range){true, 0, from->spec.n_heads * from->spec.head_dim, NULL, 0};
    if (from->q_gain && gains.n) ae_parts_numbers(p, from->q_gain + gains.first, gains.n, &to->q_norm);
    const range heads = c->heads.some ? c->heads : (range){true, 0, from->spec.n_heads, NULL, 0};
    if (from->bias && heads.n)
        ae_parts_numbers(p, from->bias + (size_t)heads.first * AE_BIAS_ROW, heads.n * AE_BIAS_ROW, &to->bias);
    list_qkv(p, from, c, to);
    list_fields(p, weights, N_OF(weights), vectors, N_OF(vectors), c, to);
}

static void list_ffn(ae_parts *p, const ae_hparams *h, const ae_layer *from, const cut *c, ae_net_layer *to)
{
    const weight_field weights[] = {
        {from->w_gate, &to->w_gate}, {from->w_up, &to->w_up}, {from->w_down, &to->w_down},
        {from->router, &to->router},
        {from->s_gate, &to->s_gate}, {from->s_up, &to->s_up}, {from->s_down, &to->s_down},
        {from->s_router, &to->s_router},
        {from->ple_gate, &to->ple_gate}, {from->ple_proj, &to->ple_proj},
        {from->latent_down, &to->latent_down}, {from->latent_up, &to->latent_up},
        {from->altup.router, &to->altup.late_router}, {from->altup.correct, &to->altup.correct},
        {from->ffn_score, &to->ffn_score}};
    const vector_field vectors[] = {
        {from->ffn_norm, &to->ffn_norm}, {from->ffn_norm_b, &to->ffn_norm_b},
        {from->ffn_post_norm, &to->ffn_post_norm},
        {from->ffn_post_norm_b, &to->ffn_post_norm_b}, {from->ffn_sub_norm, &to->ffn_sub_norm},
        {from->b_gate, &to->b_gate}, {from->b_up, &to->b_up}, {from->b_down, &to->b_down},
        {from->router_b, &to->router_b}, {from->router_bias, &to->router_bias},
        {from->router_norm, &to->router_norm},
        {from->e_norm, &to->e_norm}, {from->dense_post_norm, &to->dense_post_norm},
        {from->e_post_norm, &to->e_post_norm},
        {from->eb_gate, &to->eb_gate}, {from->eb_up, &to->eb_up}, {from->eb_down, &to->eb_down},
        {from->e_scale, &to->e_scale}, {from->ple_post_norm, &to->ple_post_norm},
        {from->altup.router_norm, &to->altup.late_router_norm}, {from->altup.correct_scale, &to->altup.correct_scale},
        {from->ffn_carry, &to->ffn_carry}, {from->latent_norm, &to->latent_norm}};
    const range ff = c->ff.some ? c->ff : (range){true, 0, from->spec.n_ff, NULL, 0};
    _Static_assert(N_OF(weights) + N_OF(vectors) <= MOST_OF_BLOCK, "room for all parts of a feed-forward block");
    list_gate_up(p, h, from, c, to);
    list_fields(p, weights, N_OF(weights), vectors, N_OF(vectors), c, to);
    if (from->ff_divisors && ff.n) {
        add_range(p, from->ff_divisors, 0, 0, ff, &to->ff_factors);
        ae_parts_reciprocals(p);
    }
}

/* Lists the adapters that tokens choose; models that have them have no other stacks. */
static void list_switched(ae_parts *p, const ae_hparams *h, const ae_layer *from, ae_weight **stacked, ae_net_layer *to)
{
    const uint32_t n = h->adapters.n;
    for (uint32_t k = 0; n && k < AE_SWITCHES; k++) {
        to->switched[k] = (ae_net_switch){stacked + 2 * (size_t)k * n, stacked + (2 * (size_t)k + 1) * n};
        p->of_ffn = k >= AE_SWITCH_GATE;
        add_experts(p, n, from->switch_a[k], 0, h->adapters.rank, to->switched[k].a);
        add_experts(p, n, from->switch_b[k], 0, (uint32_t)from->switch_b[k]->ne[1], to->switched[k].b);
    }
}

static void list_parts_of(ae_parts *p, const ae_hparams *h, const ae_layer *from, const cut *mixer, const cut *ffn,
                          ae_weight **stacked, ae_net_layer *to)
{
    to->out_scale = from->out_scale;
    list_mixer(p, from, mixer, to);
    if (h->recur.kind >= AE_RECUR_WKV6 && from->recur.out) list_wkv(p, h, from, mixer->recur, &to->wkv);
    ae_net_list_hyper(p, &from->hyper_mixer, &to->hyper_mixer);
    if (from->compress.out_a)
        list_compress(p, h, from, stacked + 3 * (size_t)(h->experts.n + h->experts.n_chunks), to);
    list_compressor(p, &from->compress.index, &to->compress.index);
    list_memory(p, &from->memory, &to->memory);
    if (from->mla.kv_a) list_mla(p, from, mixer->heads, stacked + 3 * (size_t)(h->experts.n + h->experts.n_chunks), to);
    p->of_ffn = true;
    ae_net_list_hyper(p, &from->hyper_ffn, &to->hyper_ffn);
    if (from->router_table) ae_parts_numbers(p, from->router_table, h->n_vocab * h->experts.n_used, &to->router_table);
    list_ffn(p, h, from, ffn, to);
    if (from->router) list_experts(p, h, from, ffn, stacked, to);
    list_switched(p, h, from, stacked, to);
    p->of_ffn = false;
}

void ae_net_list_layer(ae_parts *p, const ae_hparams *h, const ae_layer *from, ae_weight **stacked, ae_net_layer *to)
{
    list_parts_of(p, h, from, &(cut){0}, &(cut){0}, stacked, to);
}

static bool is_recurrent(const ae_net *net, uint32_t i)
{
    return net->model->layers[i].spec.mixer == AE_MIXER_RECUR || net->model->layers[i].spec.recur_beside;
}

/* Returns the layer whose weights layer i shares, if they are on the device on which layer i would have its own; otherwise i.
 * In a pipeline it is the first of those on this rank. */
static uint32_t twin_of(const ae_net *net, uint32_t i)
{
    const ae_hparams *h = &net->model->hparams;
    uint32_t k = ae_model_first_of(h, i);
    while (k < i && (!ae_ranks_has(net->ranks, k) || ae_model_first_of(h, k) != ae_model_first_of(h, i))) k++;
    return net->split.mixer[k] == net->split.mixer[i] && net->split.ffn[k] == net->split.ffn[i] ? k : i;
}

/* Copies the weights of repeated layers; called after the weights have their places. */
static void repeat_layers(ae_net *net)
{
    for (uint32_t i = 0; i < net->model->hparams.n_layers; i++) {
        const ae_net_layer own = net->layers[i];
        if (twin_of(net, i) == i) continue;
        net->layers[i] = net->layers[twin_of(net, i)];
        net->layers[i].index = own.index, net->layers[i].kv = own.kv, net->layers[i].windowed = own.windowed;
    }
}

static void list_layer(ae_net *net, uint32_t i)
{
    const ae_hparams *h = &net->model->hparams;
    const ae_layer *from = &net->model->layers[i];
    ae_net_layer *to = &net->layers[i];
    const uint32_t first = net->parts.n;
    to->index = i;
    if (twin_of(net, i) != i) return;
    cut mixer = cut_mixer(net->ranks, i);
    const cut ffn = cut_ffn(h, net->ranks, i);
    if (net->by_index) mixer.index_q = of_list(net->by_index, 2 * h->index.n_heads), mixer.index_k = of_list(net->by_index, 2);
    const ae_recur_hparams *r = ae_order_recur(net); /* not mixer.recur: layers of other stages have none */
    if (from->recur.rates) mixer.by_part = of_list(net->by_part, 3 * r->n_heads);
    if (ae_order_has_gate(&from->recur) && r->n_groups) {
        mixer.by_part = of_list(net->by_part, 3 * r->n_groups);
        mixer.by_gate = of_list(net->by_part + 3 * (size_t)r->n_groups, r->n_groups);
    }
    ae_weight **stacked = net->stacked ? net->stacked + (size_t)i * ae_net_n_stacked(h) : NULL;
    if (ae_ranks_has(net->ranks, i)) list_parts_of(&net->parts, h, from, &mixer, &ffn, stacked, to);
    net->parts.of_ffn = true;
    if (h->n_blocks && i % h->n_blocks == h->n_blocks - 1) ae_parts_vector(&net->parts, net->model->out_norm, &to->end_norm);
    net->parts.of_ffn = false;
    for (uint32_t k = first; k < net->parts.n; k++)
        net->parts.items[k].device = net->parts.items[k].of_ffn ? net->split.ffn[i] : net->split.mixer[i];
    for (uint32_t k = 0; k < i; k++) to->recur.i_state += is_recurrent(net, k) && net->split.mixer[k] == net->split.mixer[i];
    net->n_recur += is_recurrent(net, i);
}

/* Lists the token embeddings, for lookups, for the output, or for both. */
static void list_embedding(ae_net *net, unsigned use, ae_weight **field)
{
    const ae_model *m = net->model;
    ae_parts_weight(&net->parts, m->embedding, use, field);
    if (m->tied && m->output_scale && (use & AE_WEIGHT_MATMUL)) net->parts.items[net->parts.n - 1].scale = m->output_scale;
}

/* Returns whether this rank has the whole output, as the first one of a pipeline has, and a process alone. */
static bool has_output(const ae_net *net)
{
    return !net->ranks || net->ranks->vocab.n[net->ranks->own] == net->model->hparams.n_vocab;
}

/* Returns whether the tied output can use the embeddings' weight. On another device it needs a second copy, and in a split each
 * rank has its own rows. */
static bool is_shared(const ae_net *net)
{
    return net->model->tied && net->split.mixer[0] == net->split.output && has_output(net);
}

static void list_output(ae_net *net)
{
    const ae_model *m = net->model;
    const range all = {0}, own = has_output(net) ? all : of_slices(&net->ranks->vocab, net->ranks->own);
    list_vector(&net->parts, m->output_b, own, &net->output_b);
    const uint32_t before = net->parts.n;
    if (!has_output(net) || !m->tied) list_weight(&net->parts, m->output, own, &net->output);
    if (!has_output(net) && m->tied && m->output_scale && net->parts.n > before)
        net->parts.items[before].scale = m->output_scale;
}

/* Lists the vectors that are not in any tensor. */
static void list_numbers(ae_net *net, uint32_t n_ones)
{
    const ae_hparams *h = &net->model->hparams;
    ae_parts_ones(&net->parts, n_ones, &net->ones[net->parts.on]);
    if (h->slopes) ae_parts_numbers(&net->parts, h->slopes, h->n_heads, &net->slopes[net->parts.on]);
}

/* Lists the matrix of each stream except the first. */
static void list_streams(ae_net *net, ae_tensor_ref stack, ae_weight **fields)
{
    const uint32_t n = net->model->hparams.n_embd;
    for (uint32_t k = 0; stack && k + 1 < net->model->hparams.n_streams; k++)
        ae_parts_rows(&net->parts, stack, k, (uint64_t)k * n, n, &fields[k + 1]);
}

static void list_parts(ae_net *net)
{
    const ae_model *m = net->model;
    const uint8_t input = net->split.mixer[0];
    const bool wide = m->hparams.n_banks || m->hparams.plain_norms || m->hparams.embed_norm_plain;
    const uint32_t n_wide = m->hparams.hyper ? m->hparams.n_streams * m->hparams.n_embd : wide ? m->hparams.n_embd : 0;
    const uint32_t n_ones = n_wide > AE_MAX_HEAD_DIM ? n_wide : AE_MAX_HEAD_DIM;
    net->parts.on = input;
    list_embedding(net, is_shared(net) ? AE_WEIGHT_LOOKUP | AE_WEIGHT_MATMUL : AE_WEIGHT_LOOKUP, &net->embedding);
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) list_layer(net, i);
    ae_parts_weight(&net->parts, m->ple_embedding, AE_WEIGHT_LOOKUP, &net->ple_embedding);
    ae_parts_weight(&net->parts, m->positions, AE_WEIGHT_LOOKUP, &net->positions);
    ae_parts_weight(&net->parts, m->types, AE_WEIGHT_LOOKUP, &net->types);
    ae_parts_vector(&net->parts, m->embed_norm, &net->embed_norm);
    ae_parts_vector(&net->parts, m->embed_norm_b, &net->embed_norm_b);
    ae_parts_vector(&net->parts, m->low_start, &net->low_start);
    ae_parts_weight(&net->parts, m->ple_model_proj, AE_WEIGHT_MATMUL, &net->ple_model_proj);
    ae_parts_vector(&net->parts, m->ple_proj_norm, &net->ple_proj_norm);
    list_streams(net, m->altup_proj, net->altup_proj);
    for (net->parts.on = 0; net->parts.on < net->split.n_devices; net->parts.on++)
        list_numbers(net, n_ones);
    net->parts.on = net->split.output;
    ae_parts_vector(&net->parts, m->out_norm, &net->out_norm);
    ae_parts_vector(&net->parts, m->out_norm_b, &net->out_norm_b);
    list_streams(net, m->altup_unembd, net->altup_unembd);
    ae_net_list_hyper(&net->parts, &m->hyper_end, &net->hyper_end);
    ae_parts_weight(&net->parts, m->end_score, AE_WEIGHT_MATMUL, &net->end_score);
    list_output(net);
    if (m->tied && !is_shared(net) && has_output(net)) list_embedding(net, AE_WEIGHT_LOOKUP | AE_WEIGHT_MATMUL, &net->output);
}

/* Numbers the layers of each device's KV store; layers with windows are numbered separately. */
static aerie_status number_kv_layers(ae_net *net, aerie_error *error)
{
    struct {
        ae_kv_layer layers[AE_MAX_KV_LAYERS];
        uint32_t windows[AE_MAX_KV_LAYERS], of[AE_MAX_LAYERS], at[AE_MAX_KV_LAYERS + 1];
        uint8_t device[AE_MAX_KV_LAYERS];
    } *s = ae_alloc(1, sizeof *s); /* zeroed */
    if (!s) return ae_fail_memory(error, "the list of what layers keep", sizeof *s);
    const uint32_t n_kv = ae_net_kv_layers(net->model, s->layers, s->windows, s->of);
    uint32_t n[AE_MAX_DEVICES][2] = {{0}};
    ae_net_kv_devices(net->model, &net->split, s->device);
    for (uint32_t i = 0; i < n_kv; i++) s->at[i] = n[s->device[i]][s->windows[i] > 0]++;
    if (net->model->hparams.adapters.n) net->kv_switch = s->at[s->of[0] + 1];
    for (uint32_t i = 0; n_kv && i < net->model->hparams.n_layers; i++) {
        net->layers[i].kv = s->at[s->of[i]];
        net->layers[i].kv_index = net->model->layers[i].spec.index == AE_INDEX_OWN ? s->at[s->of[i] + 1] : 0;
        net->layers[i].windowed = s->windows[s->of[i]];
        const ae_layer_spec *spec = &net->model->layers[i].spec;
        if (net->model->layers[i].memory.table) {
            net->layers[i].memory.kept_tokens = s->at[s->of[i]];
            net->layers[i].memory.kept_rows = s->at[s->of[i] + 1];
        }
        if (net->model->hparams.index.pool && spec->index == AE_INDEX_OWN)
            net->layers[i].compress.index.kept = s->at[s->of[i] + 2];
        if (spec->mixer != AE_MIXER_COMPRESSED || !spec->every) continue;
        const uint32_t *at = &s->at[s->of[i] + (spec->index == AE_INDEX_OWN ? 2 : 1)];
        net->layers[i].compress.kv_rows = at[0];
        net->layers[i].compress.rows.kept = at[1];
        net->layers[i].compress.index.kept = at[2]; /* unused without an index */
    }
    ae_free(s);
    return AERIE_OK;
}

static bool is_of_layers(const ae_net *net, const ae_part *part)
{
    const uintptr_t first = (uintptr_t)net->layers, at = (uintptr_t)part->weight;
    return at >= first && at < first + net->model->hparams.n_layers * sizeof *net->layers;
}

/* Returns how many of this rank's layers use a part that layers share. */
static uint32_t n_uses(const ae_net *net, const ae_part *part)
{
    const uint32_t layer = (uint32_t)(((uintptr_t)part->weight - (uintptr_t)net->layers) / sizeof *net->layers);
    uint32_t n = 0;
    for (uint32_t i = 0; i < net->model->hparams.n_layers; i++) n += ae_ranks_has(net->ranks, i) && twin_of(net, i) == layer;
    return n;
}

static aerie_status net_tables(ae_net *net, const ae_load_options *options, aerie_error *error)
{
    const ae_hparams *h = &net->model->hparams;
    const size_t n_stacked = (size_t)h->n_layers * ae_net_n_stacked(h);
    const size_t n_parts = PARTS_OUTSIDE + (size_t)AE_NET_PARTS_PER_LAYER * h->n_layers + n_stacked;
    AE_TRY(ae_parts_init(&net->parts, net->split.devices[0], net->model->gguf, net->model->bound, n_parts, error));
    for (uint32_t i = 1; i < net->split.n_devices; i++) (void)ae_parts_add_device(&net->parts, net->split.devices[i]);
    net->layers = ae_alloc(h->n_layers, sizeof *net->layers);
    if (n_stacked) net->stacked = ae_alloc(n_stacked, sizeof *net->stacked);
    if (!net->layers || (n_stacked && !net->stacked))
        return ae_fail_memory(error, "the weight tables", h->n_layers * sizeof *net->layers);
    AE_TRY(ae_order_rows(net, error));
    list_parts(net);
    AE_TRY(number_kv_layers(net, error));
    ae_parts_place(&net->parts, options->in_place);
    for (uint32_t i = 0; i < net->parts.n; i++) {
        const ae_part *part = &net->parts.items[i];
        size_t bytes = ae_part_pass_bytes(part);
        if (h->n_blocks && is_of_layers(net, part)) bytes *= n_uses(net, part);
        const size_t n_used = h->adapters.n ? 1 : h->experts.n_used, n_all = h->adapters.n ? h->adapters.n : h->experts.n;
        net->pass_bytes += part->is_expert ? bytes * n_used / n_all : bytes;
    }
    return AERIE_OK;
}

static void free_tables(ae_net *net)
{
    ae_free(net->layers);
    ae_free(net->stacked);
    ae_free(net->by_part);
    ae_free(net->by_index);
}

aerie_status ae_net_plan_split(size_t *bytes, const ae_model *model, const ae_split *split, const ae_load_options *options,
                               aerie_error *error)
{
    ae_net net = {.model = model, .split = *split, .ranks = options->ranks};
    const aerie_status status = net_tables(&net, options, error);
    for (uint32_t i = 0; i < split->n_devices; i++) bytes[i] = status == AERIE_OK ? net.parts.bytes_on[i] : 0;
    ae_free(net.parts.items);
    free_tables(&net);
    return status;
}

aerie_status ae_net_plan_bytes(size_t *bytes, const ae_model *model, const ae_backend *backend, const ae_load_options *options,
                               aerie_error *error)
{
    ae_split split;
    ae_split_one(&split, model, (ae_backend *)backend);
    return ae_net_plan_split(bytes, model, &split, options, error);
}

/* Sets norms without weights. */
static void set_plain_norms(ae_net *net)
{
    const ae_hparams *h = &net->model->hparams;
    if (h->embed_norm_plain) net->embed_norm = net->ones[net->split.mixer[0]];
    if (!h->plain_norms) return;
    net->out_norm = net->ones[net->split.output];
    for (uint32_t i = 0; i < h->n_layers; i++) {
        net->layers[i].attn_norm = net->ones[net->split.mixer[i]];
        net->layers[i].ffn_norm = net->ones[net->split.ffn[i]];
        net->layers[i].end_norm = net->ones[net->split.ffn[i]];
    }
}

aerie_status ae_net_create_split(ae_net **out, const ae_model *model, const ae_split *split, const ae_load_options *options,
                                 aerie_error *error)
{
    *out = NULL;
    ae_net *net = ae_alloc(1, sizeof *net);
    if (!net) return ae_fail_memory(error, "a network", sizeof *net);
    net->model = model;
    net->split = *split;
    net->ranks = options->ranks;
    net->backend = split->devices[split->output];
    aerie_status status = net_tables(net, options, error);
    if (status == AERIE_OK) status = ae_parts_create(&net->parts, error);
    if (status == AERIE_OK) status = ae_parts_fill(&net->parts, options, error);
    if (status != AERIE_OK) {
        ae_net_free(net);
        return status;
    }
    repeat_layers(net);
    set_plain_norms(net);
    if (is_shared(net)) net->output = net->embedding;
    if (split->mixer[0] == split->output) net->embedding_out = net->embedding;
    else if (model->tied) net->embedding_out = net->output;
    *out = net;
    return AERIE_OK;
}

aerie_status ae_net_create(ae_net **out, const ae_model *model, ae_backend *backend, const ae_load_options *options,
                           aerie_error *error)
{
    ae_split split;
    ae_split_one(&split, model, backend);
    return ae_net_create_split(out, model, &split, options, error);
}

void ae_net_free(ae_net *net)
{
    if (!net) return;
    ae_parts_free(&net->parts);
    free_tables(net);
    ae_free(net);
}
