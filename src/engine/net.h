/* net.h - a model on a device: every weight in the backend's own layout, or in place where the file's layout will do.
 *
 * Owns: the device weights. Borrows: the model (which must outlive it) and the backend. Immutable
 * once created; shared by engines and threads.
 */
#ifndef AE_ENGINE_NET_H
#define AE_ENGINE_NET_H

#include "backend/backend.h"
#include "model/model.h"

typedef struct ae_net_layer {
    float *attn_norm, *ffn_norm; /* [n_embd] device f32 */
    ae_weight *wq, *wk, *wv, *wo, *w_gate, *w_up, *w_down;
    float *bq, *bk, *bv, *bo, *b_gate, *b_up, *b_down; /* device f32 or NULL */
    float *q_norm, *k_norm;      /* device f32 or NULL */
    /* a layer with experts has these instead of w_gate, w_up, w_down; names as in ae_layer */
    ae_weight *router, **e_gate, **e_up, **e_down; /* but for the router one for each expert */
    ae_weight *s_gate, *s_up, *s_down, *s_router; /* or NULL */
    float *router_bias;
} ae_net_layer;

typedef struct ae_net {
    const ae_model *model;
    ae_backend *backend;
    ae_weight *embedding; /* lookup; the same object as output when the head is tied */
    ae_weight *output;    /* matmul */
    float *out_norm;      /* [n_embd] device f32 */
    ae_net_layer *layers; /* [n_layers] */
    double *rope_freq;    /* [n_rot / 2] radians per position */
    double rope_magnitude;
    struct ae_net_part *parts; /* every weight and vector, for upload and release */
    uint32_t n_parts;
    ae_weight **experts;       /* [n_layers][3][n of experts] where e_gate, e_up and e_down point; NULL: none */
    void *memory;              /* device memory of all parts */
    size_t bytes;              /* of it */
    size_t pass_bytes;         /* what a pass of one row reads: no lookup table, of experts those it uses; also where it
                                * lies in the file */
    uint64_t fill_bytes;       /* read from the file to fill weights */
    double fill_seconds;
} ae_net;

/* done of total bytes are on the device; called from the creating thread. false: stop. May be NULL. */
typedef bool ae_progress_fn(void *context, uint64_t done, uint64_t total);

typedef struct ae_net_options {
    uint32_t n_threads;
    ae_progress_fn *progress;
    void *progress_context;
    bool in_place; /* weights stay in the file's layout, used from the mapping; slower, but there is nothing to load */
} ae_net_options;

/* Device bytes that the weights will take. */
size_t ae_net_plan_bytes(const ae_model *model, const ae_backend *backend, const ae_net_options *options);
aerie_status ae_net_create(ae_net **out, const ae_model *model, ae_backend *backend, const ae_net_options *options,
                           aerie_error *error);
void ae_net_free(ae_net *net);

#endif
