/* kept.c - what the layers of a model keep in the KV cache, and on which device (net.h).
 *
 * Owns nothing. Keys and values come first, then index keys, rows of compressed blocks, or what finds a row's adapter. */
#include "engine/weights/net.h"

static bool attends(const ae_layer_spec *s)
{
    return s->mixer == AE_MIXER_ATTENTION || s->mixer == AE_MIXER_MLA || s->mixer == AE_MIXER_COMPRESSED;
}

/* Lists what layer i itself keeps; returns the number of entries, at most 5. */
static uint32_t kept_by(const ae_model *m, uint32_t i, ae_kv_layer *layers, uint32_t *windows)
{
    const ae_hparams *h = &m->hparams;
    const ae_layer_spec *s = &m->layers[i].spec;
    const bool mla = s->mixer == AE_MIXER_MLA, compressed = s->mixer == AE_MIXER_COMPRESSED;
    const uint32_t n_parts = s->every == AE_COMPRESS_OVERLAP ? 2 : 1;
    uint32_t n = 0;
    if (attends(s) && s->kv_from == (int)i) {
        windows[n] = h->encoder ? 0 : s->window; /* an encoder runs its text in one pass and keeps all of it */
        layers[n++] = mla ? (ae_kv_layer){1, s->mla.n_latent, s->mla.n_rope, false, false}
                          : (ae_kv_layer){s->n_kv_heads, s->head_dim, 0, false, compressed && s->every};
    }
    if (s->index == AE_INDEX_OWN) {
        const uint32_t first = ae_index_first(&h->index, mla ? h->mla.n_rope : h->ropes[0].n_rot);
        windows[n] = compressed ? 0 : windows[n - 1];
        layers[n++] = (ae_kv_layer){1, h->index.head_dim - first, first, false, false};
        windows[n] = h->index.pool;
        /* the values from which keys of pools are made */
        if (h->index.pool) layers[n++] = (ae_kv_layer){h->index.mean ? 1 : 2, h->index.head_dim, 0, true, false};
    }
    if (m->layers[i].memory.table) {
        windows[n] = h->memory.n_tokens;
        layers[n++] = (ae_kv_layer){1, 1, 0, true, false};
        windows[n] = (h->memory.n_taps - 1) * h->memory.n_tokens + 1;
        layers[n++] = (ae_kv_layer){h->n_streams * (h->n_embd / h->memory.part), h->memory.part, 0, true, false};
    }
    if (!i && h->adapters.n) windows[n] = 0, layers[n++] = (ae_kv_layer){1, AE_SWITCH_DIM, 0, false, false};
    if (!compressed || !s->every) return n;
    windows[n] = 0;
    layers[n++] = (ae_kv_layer){1, s->head_dim, 0, false, true};
    windows[n] = n_parts * s->every;
    layers[n++] = (ae_kv_layer){2 * n_parts, s->head_dim, 0, true, false};
    if (s->index != AE_INDEX_OWN) return n;
    windows[n] = n_parts * s->every;
    layers[n++] = (ae_kv_layer){2 * n_parts, h->index.head_dim, 0, true, false};
    return n;
}

uint32_t ae_net_kv_layers(const ae_model *m, ae_kv_layer *layers, uint32_t *windows, uint32_t *of)
{
    uint32_t n = 0, at[AE_MAX_LAYERS] = {0};
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        const ae_layer_spec *s = &m->layers[i].spec;
        if ((attends(s) && s->kv_from == (int)i) || m->layers[i].memory.table) at[i] = n;
        n += kept_by(m, i, layers + n, windows + n);
        if (of && m->layers[i].memory.table) of[i] = at[i]; /* a layer with a memory does not attend */
        if (!attends(s)) continue;
        uint32_t *window = &windows[at[s->kv_from]]; /* the widest window of the layers that read it */
        if (!s->window || *window) *window = !s->window ? 0 : s->window > *window ? s->window : *window;
        if (of) of[i] = at[s->kv_from];
    }
    return n;
}

void ae_net_kv_owners(const ae_model *m, uint32_t *owners, bool *own_rows)
{
    ae_kv_layer layers[5];
    uint32_t windows[5];
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        const bool attending = attends(&m->layers[i].spec) && m->layers[i].spec.kv_from == (int)i;
        for (uint32_t k = 0, n = kept_by(m, i, layers, windows); k < n; k++) *owners++ = i, *own_rows++ = !k && attending;
    }
}

void ae_net_kv_devices(const ae_model *m, const ae_split *split, uint8_t *devices)
{
    ae_kv_layer layers[5];
    uint32_t windows[5];
    for (uint32_t i = 0; i < m->hparams.n_layers; i++)
        for (uint32_t n = kept_by(m, i, layers, windows); n; n--) *devices++ = split->mixer[i];
}
