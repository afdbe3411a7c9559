/* resampler.c - a projector with a fixed number of queries, which attend to the patches of a view (int.h).
 *
 * Owns nothing. Keys are the patches' normed rows plus sines and cosines of their place in the picture; values have no place.
 * Keys and values are in a cache of their own, since their heads are not the encoder's. A query sees all patches.
 * Source: the published models' code (MiniCPM-V's Resampler). */
#include <math.h>

#include "engine/tower/int.h"

aerie_status tower_resampler_begin(ae_tower *t, const tower_view *v, aerie_error *error)
{
    const ae_rows *r = &t->rows;
    AE_TRY(ae_kv_reserve(t->asked_kv, t->stream, 0, v->n, error));
    for (uint32_t i = 0; i < t->model->n_query; i++) {
        r->token[i] = r->type[i] = r->seq[i] = r->slot[i] = 0;
        r->parent[i] = -1;
        r->pos[i] = r->last[i] = (int32_t)v->n - 1;
        r->n_inplace[i] = (int32_t)v->n;
    }
    ae_rows_upload(r, &t->asking, t->model->n_query, 0, t->asked_kv, t->backend->ops, t->stream);
    return AERIE_OK;
}

void tower_resample(ae_tower *t, const tower_view *v)
{
    const ae_tower_model *m = t->model;
    const ae_backend_ops *ops = t->backend->ops;
    const uint32_t o = m->n_out, n = v->n, n_heads = o / AE_TOWER_HEAD;
    const tower_product narrow = {t->resampler.narrow, NULL, t->wide, o, NULL};
    const tower_product keys = {t->resampler.w[1], t->resampler.b[1], t->keys, o, NULL};
    const tower_product values = {t->resampler.w[2], t->resampler.b[2], t->values, o, NULL};
    const tower_product asked = {t->resampler.w[0], t->resampler.b[0], t->asked, o, NULL};
    const tower_product joined = {t->resampler.w[3], t->resampler.b[3], t->asked, o, NULL};
    const tower_product out = {t->project, NULL, t->out, o, NULL};
    tower_products(t, n, t->x, m->hparams.n_embd, (tower_norm){0}, &narrow, 1, false);
    tower_norm_rows(t, t->wide, n, o, tower_norm_of(t, t->resampler.norm[1], t->resampler.norm_b[1]));
    tower_products(t, n, t->wide, o, (tower_norm){0}, &values, 1, false);
    ops->upload(t->stream, t->places, t->places_host, (size_t)n * o * sizeof(float));
    tower_add_rows(t, n, o, 1.0f, t->places, o, t->wide);
    tower_products(t, n, t->wide, o, (tower_norm){0}, &keys, 1, false);
    ae_places places = ae_rows_places(&t->on_device, n, t->asked_kv);
    ops->rope_kv(t->stream, &(ae_rope_kv){.places = &places, .kv = ae_kv_pages(t->asked_kv), .n_heads = n_heads,
                                          .n_kv_heads = n_heads, .head_dim = AE_TOWER_HEAD, .q = t->places, .k = t->keys,
                                          .v = t->values, .norm_eps = m->hparams.norm_eps});
    tower_products(t, m->n_query, t->resampler.query, o,
                   tower_norm_of(t, t->resampler.norm[0], t->resampler.norm_b[0]), &asked, 1, false);
    places = ae_rows_places(&t->asking, m->n_query, t->asked_kv);
    places.last = t->asking.last;
    ops->attention(t->stream, &(ae_attention){.places = &places, .kv = ae_kv_pages(t->asked_kv), .n_heads = n_heads,
                                              .n_kv_heads = n_heads, .head_dim = AE_TOWER_HEAD,
                                              .scale = 1.0f / sqrtf((float)AE_TOWER_HEAD), .q = t->asked, .y = t->found});
    tower_products(t, m->n_query, t->found, o, (tower_norm){0}, &joined, 1, false);
    tower_products(t, m->n_query, t->asked, o, tower_norm_of(t, t->resampler.norm[2], t->resampler.norm_b[2]), &out, 1, false);
    ops->download(t->stream, t->merged_host, t->out, (size_t)m->n_query * o * sizeof(float));
}
