/* order.c - implements order.h. */
#include "engine/weights/order.h"

const ae_recur_hparams *ae_order_recur(const ae_net *net)
{
    return net->ranks && net->ranks->recur.is_cut ? &net->ranks->recur.own : &net->model->hparams.recur;
}

static aerie_status alloc_runs(ae_part_run **out, size_t n, aerie_error *error)
{
    *out = n ? ae_alloc(n, sizeof **out) : NULL;
    return *out || !n ? AERIE_OK : ae_fail_memory(error, "the order of rows", n * sizeof **out);
}

/* Lists the rows of index queries in an order in which the rotated rows of each head come first. */
static aerie_status order_index(ae_net *net, aerie_error *error)
{
    const ae_index_hparams *x = &net->model->hparams.index;
    const uint32_t n = x->late ? 2 * x->n_heads : 0, d = x->head_dim, n_rot = net->model->hparams.ropes[0].n_rot;
    AE_TRY(alloc_runs(&net->by_index, n, error));
    for (uint32_t k = 0; k < n; k++)
        net->by_index[k] = (ae_part_run){(uint64_t)(k / 2) * d + (k % 2 ? 0 : d - n_rot), k % 2 ? d - n_rot : n_rot};
    return AERIE_OK;
}

/* LIGHTNING: lists the rows of q, k and v, which files store head by head, in the order: values of all heads, keys, queries. */
static aerie_status order_heads(ae_net *net, aerie_error *error)
{
    const uint32_t n = net->model->hparams.recur.n_heads, d = net->model->hparams.recur.value_dim;
    AE_TRY(alloc_runs(&net->by_part, 3 * (size_t)n, error));
    for (uint32_t k = 0; k < 3; k++)
        for (uint32_t h = 0; h < n; h++) net->by_part[k * n + h] = (ae_part_run){(3 * (uint64_t)h + 2 - k) * d, d};
    return AERIE_OK;
}

/* DELTA: lists the rows of q, k, v and z, which files store group by group, in the order: queries of all groups that this rank
 * has, keys, values, gates. */
static aerie_status order_groups(ae_net *net, aerie_error *error)
{
    const ae_recur_hparams *r = ae_order_recur(net);
    const bool cut = r != &net->model->hparams.recur;
    const uint32_t n = r->n_groups, d = r->key_dim, each = n ? r->n_heads / n * r->value_dim : 0;
    const uint32_t begin[] = {0, d, 2 * d, 2 * d + each}, size[] = {d, d, each, each};
    const uint64_t first = cut ? net->ranks->recur.in.list[0].first / d : 0; /* of the rank's groups: queries come first */
    AE_TRY(alloc_runs(&net->by_part, 4 * (size_t)n, error));
    for (uint32_t k = 0; k < 4; k++)
        for (uint32_t g = 0; g < n; g++)
            net->by_part[k * n + g] = (ae_part_run){(first + g) * 2 * (d + each) + begin[k], size[k]};
    return AERIE_OK;
}

aerie_status ae_order_rows(ae_net *net, aerie_error *error)
{
    const ae_model *m = net->model;
    bool with_gate = false;
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) with_gate |= ae_order_has_gate(&m->layers[i].recur);
    if (with_gate) AE_TRY(order_groups(net, error));
    else if (m->hparams.recur.kind == AE_RECUR_LIGHTNING) AE_TRY(order_heads(net, error));
    return order_index(net, error);
}
