/* state.h - where a CPU store keeps the recurrent state of sequences. Private to backend/cpu.
 * Owns nothing: recurrent.c owns the store. Invariant: recur.c and recurrent.c write only within the parts below. */
#ifndef AE_BACKEND_CPU_STATE_H
#define AE_BACKEND_CPU_STATE_H

#include "backend/cpu/cpu_int.h"

typedef struct ae_state_place {
    ae_state_layer layer;
    size_t rows, matrices;               /* offsets in a plane, in floats: rows [n_taps - 1][channels], matrices
                                          * [n_heads][n_tiles][key_dim][16] */
    size_t record;                       /* floats of a record: channels | k [n_groups][key_dim] | d [n_heads][value_dim] |
                                          * alpha; for WKV d is v, and WKV7 has in addition written [n_heads][key_dim] | e
                                          * [n_heads][value_dim] */
    uint32_t channels;                   /* n_channels rounded up to a multiple of 16 */
    uint32_t n_tiles;                    /* of a head */
} ae_state_place;

struct ae_state_store {
    ae_state_shape shape;   /* without layers */
    ae_state_place *places; /* [n_layers] */
    size_t plane_floats, record_floats;
    size_t bytes;
    float *planes;          /* [n_planes][plane_floats] */
    float *records;         /* [n_seqs][n_records][record_floats] */
};

static inline bool ae_state_is_wkv(const ae_state_layer *l)
{
    return l->kind == AE_STATE_WKV6 || l->kind == AE_STATE_WKV7;
}

/* Returns the number of decays of a row: one per head; with KDA and WKV one per key; with MAMBA1 delta, one per channel. */
static inline size_t ae_state_n_alphas(const ae_state_layer *l)
{
    if (l->kind == AE_STATE_KDA || ae_state_is_wkv(l)) return (size_t)l->n_heads * l->key_dim;
    return l->kind == AE_STATE_MAMBA1 ? l->value_dim : l->n_heads;
}

static inline float *ae_state_plane(const ae_state_store *s, uint32_t plane)
{
    return s->planes + plane * s->plane_floats;
}

static inline float *ae_state_record(const ae_state_store *s, const ae_state_place *p, int32_t seq, uint32_t record)
{
    return s->records + ((size_t)seq * s->shape.n_records + record) * s->record_floats + p->record;
}

/* Returns the parts of a record after its channels. */
static inline float *ae_record_k(const ae_state_place *p, float *record) { return record + p->layer.n_channels; }
static inline float *ae_record_d(const ae_state_place *p, float *record)
{
    return ae_record_k(p, record) + (size_t)p->layer.n_groups * p->layer.key_dim;
}
static inline float *ae_record_alpha(const ae_state_place *p, float *record)
{
    return ae_record_d(p, record) + (size_t)p->layer.n_heads * p->layer.value_dim;
}
static inline float *ae_record_written(const ae_state_place *p, float *record)
{
    return ae_record_alpha(p, record) + ae_state_n_alphas(&p->layer);
}
static inline float *ae_record_e(const ae_state_place *p, float *record)
{
    return ae_record_written(p, record) + ae_state_n_alphas(&p->layer);
}

/* Returns the i-th accepted record of a run. */
static inline uint8_t ae_state_accepted(const ae_state_pass *pass, const ae_state_run *run, uint32_t i)
{
    return pass->accepted[(size_t)(run - pass->runs) * pass->stride + i];
}

/* recurrent.c: advances the rows of a layer's convolution over accepted records. */
void ae_cpu_conv_absorb(ae_stream *stream, const ae_state_pass *pass, uint32_t layer);

#endif
