/* adapter.c - implements adapter.h. */
#include "engine/weights/adapter.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "formats/kind.h"
#include "quant/types.h"

/* ---- What adapters can change ------------------------------------------------------------------------------ */

bool ae_net_adapts(const ae_net *net, const ae_part *part)
{
    static const size_t routers[] = {offsetof(ae_net_layer, router), offsetof(ae_net_layer, s_router)};
    static const size_t shared[] = {offsetof(ae_net_layer, s_gate), offsetof(ae_net_layer, s_up),
                                    offsetof(ae_net_layer, s_down)};
    const ae_hparams *h = &net->model->hparams;
    if ((part->use & ~(unsigned)AE_WEIGHT_IN_PLACE) != AE_WEIGHT_MATMUL || part->is_expert || part->transposed) return false;
    if (part->weight == &net->output || part->weight == &net->ple_model_proj) return true;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const uintptr_t layer = (uintptr_t)&net->layers[i], field = (uintptr_t)part->weight;
        /* the field of another layer, or in net->stacked */
        if (field < layer || field >= layer + sizeof net->layers[i]) continue;
        const size_t at = field - layer;
        for (size_t k = 0; k < sizeof routers / sizeof routers[0]; k++)
            if (at == routers[k]) return false;
        for (size_t k = 0; !h->experts.n_latent && k < sizeof shared / sizeof shared[0]; k++)
            if (at == shared[k]) return false;
        return true;
    }
    return false;
}

/* ---- What the file says -------------------------------------------------------------------------------- */

static aerie_status check_text(const ae_gguf *gguf, const char *key, const char *wanted, const char *advice, aerie_error *error)
{
    ae_gguf_string found = {0};
    AE_TRY(ae_gguf_get_string(gguf, key, false, &found, error));
    if (found.data && found.n == strlen(wanted) && !memcmp(found.data, wanted, found.n)) return AERIE_OK;
    if (!found.data) return ae_fail(error, AERIE_ERROR_FORMAT, "%s has no %s%s", ae_gguf_path(gguf), key, advice);
    return ae_fail(error, AERIE_ERROR_FORMAT, "%s: %s is \"%.*s\", not \"%s\"%s", ae_gguf_path(gguf), key,
                   (int)(found.n < 64 ? found.n : 64), found.data, wanted, advice);
}

static aerie_status check_keys(ae_adapter *a, aerie_error *error)
{
    const ae_gguf *g = a->gguf;
    AE_TRY(ae_role_need(g, AE_ROLE_ADAPTER, error));
    AE_TRY(check_text(g, "general.type", "adapter", ", so it is not an adapter", error));
    AE_TRY(check_text(g, "adapter.type", "lora", "; LoRA adapters are known", error));
    AE_TRY(check_text(g, "general.architecture", a->net->model->hparams.arch,
                      ", as the model is; an adapter fits the model that "
                      "it was trained for",
                      error));
    const ae_gguf_kv *activation = ae_gguf_kv_find(g, "adapter.alora.invocation_tokens");
    if (activation && (activation->type != AE_GGUF_ARRAY || activation->n)) /* an empty list: it is always active */
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: activated LoRA (adapter.alora.invocation_tokens) is not supported",
                       ae_gguf_path(g));
    AE_TRY(ae_gguf_get_f32(g, "adapter.lora.alpha", false, &a->alpha, error));
    if (isfinite(a->alpha)) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_FORMAT, "%s: adapter.lora.alpha is not a finite number", ae_gguf_path(g));
}

#define MAX_NAME 255 /* longest name of a tensor that can be adapted */

/* Splits "NAME.lora_a" or "NAME.lora_b" into NAME and the letter. Returns false if the name is neither. */
static bool parse_name(const ae_gguf_tensor *t, char name[MAX_NAME + 1], char *side)
{
    static const char suffix[] = ".lora_";
    const size_t n_suffix = sizeof suffix; /* including the letter */
    if (t->name.n <= n_suffix || t->name.n > MAX_NAME || memchr(t->name.data, '\0', t->name.n)) return false;
    const size_t n = t->name.n - n_suffix;
    *side = t->name.data[t->name.n - 1];
    if (memcmp(t->name.data + n, suffix, n_suffix - 1) || (*side != 'a' && *side != 'b')) return false;
    memcpy(name, t->name.data, n);
    name[n] = '\0';
    return true;
}

static const ae_gguf_tensor *find_side(const ae_gguf *gguf, const char *name, char side)
{
    char full[MAX_NAME + 8] = "";
    const size_t n = strlen(name);
    memcpy(full, name, n);
    memcpy(full + n, side == 'a' ? ".lora_a" : ".lora_b", 8);
    return ae_gguf_tensor_find(gguf, full);
}

static aerie_status check_shapes(const ae_adapter *a, const char *name, ae_tensor_ref base, const ae_gguf_tensor *x,
                                 const ae_gguf_tensor *y, aerie_error *error)
{
    const char *path = ae_gguf_path(a->gguf);
    if (x->n_dims > 2 || y->n_dims > 2)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: %s is adapted by a stack of matrices; experts cannot be adapted",
                       path, name);
    if (x->ne[1] != y->ne[0])
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s: %s.lora_a has rank %lld, but .lora_b has %lld", path, name,
                       (long long)x->ne[1], (long long)y->ne[0]);
    if (x->ne[1] > AE_ADAPTER_MAX_RANK)
        return ae_fail(error, AERIE_ERROR_LIMIT, "%s: %s has rank %lld; at most %d are possible", path, name,
                       (long long)x->ne[1], AE_ADAPTER_MAX_RANK);
    if (x->ne[0] == base->ne[0] && y->ne[1] == base->ne[1]) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_FORMAT, "%s: %s is adapted as a matrix of %lld x %lld, but the model's has %lld x %lld; "
                   "the adapter was trained for another model",
                   path, name, (long long)x->ne[0], (long long)y->ne[1], (long long)base->ne[0], (long long)base->ne[1]);
}

/* Lists the pairs of one of the model's tensors: one pair for each weight that has some of its rows. If pairs is NULL, only
 * counts them. */
static aerie_status list_tensor(ae_adapter *a, const char *name, ae_adapter_pair *pairs, aerie_error *error)
{
    const ae_parts *parts = &a->net->parts;
    const char *path = ae_gguf_path(a->gguf);
    const ae_gguf_tensor *x = find_side(a->gguf, name, 'a'), *y = find_side(a->gguf, name, 'b');
    ae_tensor_ref base = ae_gguf_tensor_find(a->net->model->gguf, name);
    const uint32_t n_before = a->n_pairs;
    if (!x || !y) return ae_fail(error, AERIE_ERROR_FORMAT, "%s: %s has no .lora_%c", path, name, x ? 'b' : 'a');
    if (!base)
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s adapts %s, which the model does not have; it was trained for another "
                       "model", path, name);
    for (uint32_t i = 0; i < parts->n; i++) {
        const ae_part *p = &parts->items[i];
        if (p->tensor != base) continue;
        if (!ae_net_adapts(a->net, p))
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                           "%s adapts %s; embeddings, routers, experts, vectors and matrices by "
                           "head cannot be adapted",
                           path, name);
        if (pairs)
            pairs[a->n_pairs] = (ae_adapter_pair){.of = *p->weight, .file_a = x, .file_b = y, .first = p->first,
                                                  .n = p->n_rows, .runs = p->runs, .n_runs = p->n_runs,
                                                  .rank = (uint32_t)x->ne[1], .device = p->device};
        a->n_pairs++;
    }
    if (a->n_pairs == n_before && !a->net->ranks) /* a rank of a group may hold no row of it */
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s adapts %s, which aerie does not use", path, name);
    return check_shapes(a, name, base, x, y, error);
}

static aerie_status list_all(ae_adapter *a, ae_adapter_pair *pairs, aerie_error *error)
{
    a->n_pairs = a->n_matrices = 0;
    for (size_t i = 0; i < ae_gguf_n_tensors(a->gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(a->gguf, i);
        char name[MAX_NAME + 1], side;
        if (!parse_name(t, name, &side))
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %.*s is not a matrix of a LoRA pair (NAME.lora_a, "
                           "NAME.lora_b); whole tensors cannot be replaced by an adapter",
                           ae_gguf_path(a->gguf), (int)(t->name.n < 100 ? t->name.n : 100), t->name.data);
        if (side == 'b' && find_side(a->gguf, name, 'a')) continue; /* was already listed together with its other half */
        AE_TRY(list_tensor(a, name, pairs, error));
        if (t->ne[1] > a->max_rank) a->max_rank = (uint32_t)t->ne[1];
        a->n_matrices++;
    }
    return a->n_pairs || (a->net->ranks && a->n_matrices) ? AERIE_OK : ae_fail(error, AERIE_ERROR_FORMAT,
                                                                               "%s adapts nothing", ae_gguf_path(a->gguf));
}

/* ---- Life ------------------------------------------------------------------------------------------------- */

static int by_weight(const void *x, const void *y)
{
    const uintptr_t a = (uintptr_t)((const ae_adapter_pair *)x)->of, b = (uintptr_t)((const ae_adapter_pair *)y)->of;
    return (a > b) - (a < b);
}

static aerie_status load(ae_adapter *a, const ae_load_options *options, aerie_error *error)
{
    AE_TRY(check_keys(a, error));
    AE_TRY(list_all(a, NULL, error));
    a->pairs = ae_alloc(a->n_pairs, sizeof *a->pairs);
    if (!a->pairs) return ae_fail_memory(error, "an adapter", a->n_pairs * sizeof *a->pairs);
    AE_TRY(list_all(a, a->pairs, error));
    qsort(a->pairs, a->n_pairs, sizeof *a->pairs, by_weight);
    AE_TRY(ae_parts_init(&a->parts, a->net->split.devices[0], a->gguf, NULL, 2 * (size_t)a->n_pairs, error));
    for (uint32_t i = 1; i < a->net->split.n_devices; i++) (void)ae_parts_add_device(&a->parts, a->net->split.devices[i]);
    for (uint32_t i = 0; i < a->n_pairs; i++) {
        ae_adapter_pair *p = &a->pairs[i];
        a->parts.on = p->device;
        ae_parts_weight(&a->parts, p->file_a, AE_WEIGHT_MATMUL, &p->a);
        ae_parts_rows(&a->parts, p->file_b, 0, p->first, p->n, &p->b);
        if (p->runs) ae_parts_runs(&a->parts, p->runs, p->n_runs);
    }
    ae_parts_place(&a->parts, false);
    AE_TRY(ae_parts_create(&a->parts, error));
    return ae_parts_fill(&a->parts, options, error);
}

aerie_status ae_adapter_create(ae_adapter **out, ae_gguf *gguf, const ae_net *net, const ae_load_options *options,
                               aerie_error *error)
{
    *out = NULL;
    ae_adapter *a = ae_alloc(1, sizeof *a);
    if (!a) {
        ae_gguf_close(gguf);
        return ae_fail_memory(error, "an adapter", sizeof *a);
    }
    static atomic_ullong n_created;
    a->net = net;
    a->gguf = gguf;
    a->serial = atomic_fetch_add(&n_created, 1);
    const aerie_status status = load(a, options, error);
    if (status == AERIE_OK) *out = a;
    else ae_adapter_free(a);
    return status;
}

void ae_adapter_free(ae_adapter *adapter)
{
    if (!adapter) return;
    if (adapter->parts.n_devices) ae_parts_free(&adapter->parts);
    ae_free(adapter->pairs);
    ae_gguf_close(adapter->gguf);
    ae_free(adapter);
}

/* ---- Sets ------------------------------------------------------------------------------------------------- */

void ae_adapter_keys_layout(ae_layout *layout, uint32_t n_room, ae_adapter_keys *keys)
{
    keys->n_room = n_room;
    keys->sets = ae_layout_add(layout, n_room, sizeof *keys->sets);
    keys->used = ae_layout_add(layout, n_room, sizeof *keys->used);
}

bool ae_adapter_set_equal(const ae_adapter_set *a, const ae_adapter_set *b)
{
    bool same = a->n == b->n;
    for (uint32_t i = 0; same && i < a->n; i++)
        same = a->list[i].adapter == b->list[i].adapter && a->list[i].scale == b->list[i].scale;
    return same;
}

void ae_adapter_keys_find(ae_adapter_keys *keys, ae_adapter_set *set)
{
    uint32_t at = 0;
    set->key = 0;
    if (!set->n) return;
    for (uint32_t i = 0; i < keys->n_room; i++) {
        if (keys->used[i] && ae_adapter_set_equal(&keys->sets[i], set)) {
            keys->used[i] = ++keys->clock;
            set->key = keys->sets[i].key;
            return;
        }
        if (keys->used[i] < keys->used[at]) at = i;
    }
    set->key = ++keys->last;
    keys->sets[at] = *set;
    keys->used[at] = ++keys->clock;
}

/* ---- Products --------------------------------------------------------------------------------------------- */

static const ae_adapter_pair *find_pair(const ae_adapter *a, const ae_weight *weight)
{
    const ae_adapter_pair key = {.of = weight};
    return bsearch(&key, a->pairs, a->n_pairs, sizeof key, by_weight);
}

/* Returns the product restricted to the rows of a run. */
static ae_matmul rows_of(const ae_matmul *m, const ae_adapter_run *run)
{
    ae_matmul part = *m;
    part.n_rows = run->n;
    part.n_weights = 0;
    part.x += run->first * m->x_stride;
    if (part.x2) part.x2 += run->first * m->x_stride;
    return part;
}

/* Computes t = A x for all adapted weights of the product side by side, scales each, then adds B t to y. */
static void add_adapter(const ae_backend_ops *ops, ae_stream *stream, const ae_matmul *m, const ae_adapter_run *run,
                        const ae_adapter_use *use, float *t)
{
    const ae_adapter_pair *pairs[AE_MATMUL_MAX];
    uint32_t of[AE_MATMUL_MAX], at[AE_MATMUL_MAX], width = 0;
    ae_matmul down = rows_of(m, run);
    for (uint32_t i = 0; i < m->n_weights; i++) {
        const ae_adapter_pair *p = find_pair(use->adapter, m->out[i].weight);
        if (!p) continue;
        const uint32_t k = down.n_weights++;
        pairs[k] = p, of[k] = i, at[k] = width;
        down.out[k] = (struct ae_matmul_out){.weight = p->a, .y = t + width};
        width += p->rank;
    }
    if (!down.n_weights) return;
    for (uint32_t k = 0; k < down.n_weights; k++) down.out[k].y_stride = width;
    ops->matmul(stream, &down);
    for (uint32_t k = 0; k < down.n_weights; k++) {
        const struct ae_matmul_out *to = &m->out[of[k]];
        const uint32_t rank = pairs[k]->rank;
        const float alpha = use->adapter->alpha, scale = alpha != 0.0f ? use->scale * alpha / (float)rank : use->scale;
        ops->map(stream, &(ae_map){.kind = AE_MAP_SCALE, .n_rows = run->n, .dim = rank, .x = t + at[k], .x_stride = width,
                                   .a = scale});
        ops->matmul(stream, &(ae_matmul){
            .n_rows = run->n, .input = AE_INPUT_PLAIN, .x = t + at[k], .x_stride = width, .n_weights = 1,
            .out = {{.weight = pairs[k]->b, .y = to->y + run->first * to->y_stride, .y_stride = to->y_stride, .add = true}}});
    }
}

void ae_adapter_matmul(const ae_backend_ops *ops, ae_stream *stream, const ae_matmul *product, const ae_adapter_rows *rows)
{
    ops->matmul(stream, product);
    for (uint32_t i = 0; rows && i < rows->n; i++)
        for (uint32_t k = 0; k < rows->runs[i].set->n; k++)
            add_adapter(ops, stream, product, &rows->runs[i], &rows->runs[i].set->list[k], rows->t);
}
