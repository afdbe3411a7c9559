/* int.h - a vision encoder's state, shared by tower.c (life, the order of a view), host.c (pixels, positions,
 * angles), block.c (operations on the device) and resampler.c (a projector with queries). */
#ifndef AE_ENGINE_TOWER_INT_H
#define AE_ENGINE_TOWER_INT_H

#include "engine/layers/block.h"
#include "engine/rows.h"
#include "engine/tower.h"

#define AE_TOWER_FFN_ROWS 512 /* rows of a product or a feed-forward block that are computed at once; results do not depend on
                               * it */

/* The parts of a block on the device that ae_net_layer does not hold. */
typedef struct tower_block {
    float *scale[2], *out_scale;
    float *q_norm, *k_norm; /* in the order of rotated heads; NULL: the layer's own are used */
    ae_weight *deep_1, *deep_2;
    float *deep_norm, *deep_norm_b, *deep_1_b, *deep_2_b;
} tower_block;

/* The view being computed: n rows, starting with the row before the patches if the encoder has one. */
typedef struct tower_view {
    uint32_t across, down; /* patches */
    uint32_t n, n_tokens, n_windows;
} tower_view;

struct ae_tower {
    ae_tower_model *model;
    ae_backend *backend;
    ae_pool *pool;
    ae_parts parts;
    ae_net_layer *layers;
    tower_block *blocks;
    ae_weight *patches, *frame, *merger, *project, *project2, *gated[3];
    float *patch_bias, *cls, *positions, *pre_norm, *pre_norm_b, *post_norm, *post_norm_b, *patch_norm, *norm, *norm_b;
    struct {
        ae_weight *narrow, *w[4];
        float *query, *norm[3], *norm_b[3], *b[4];
    } resampler; /* as in ae_tower_resampler */
    float *start_norm, *start_norm_b, *patch_norm_b, *merger_b, *gated_norm, *gated_norm_b, *gated_b[3];
    float *std_bias, *std_scale, *project_b, *project2_b, *ones, *bare_norm[3], *bare_norm_b[3];
    /* (device) [n_layers][2][head_dim] norms in the order of rotated heads; or NULL if heads are not reordered */
    float *turned_norms;
    float *row_break, *newline; /* (host) [n_out], or NULL */
    float *table;          /* (host) learned positions from which those of a view are computed; or NULL */
    float colour[3][256];  /* (host) normalised value of each byte, by channel */
    /* memory for views of up to n_room rows and n_windows windows */
    uint32_t n_room, n_windows;
    ae_stream *stream;
    ae_kv *kv, *window_kv, *asked_kv; /* asked_kv: of a resampler */
    void *host, *device;
    size_t device_bytes;
    ae_rows asking;        /* rows on the device that are a resampler's queries */
    ae_rows rows, on_device, windows; /* `windows`: the same rows on the device, with each window as a sequence of its own */
    float *x;              /* [n_room][n_embd] */
    float *gate, *up;      /* [AE_TOWER_FFN_ROWS][...] */
    float *bounded;        /* [AE_TOWER_FFN_ROWS][widest input of products with bounds]; or NULL */
    float *cos, *sin;      /* [n_room][head_dim / 2] */
    /* These share memory. Before the first block: pixels and y. In a block: y, q, k, v and attn (which is k unless heads are
     * reordered, and y is q if a half's output is added unchanged). For the projector: the others. */
    float *y, *q, *k, *v, *attn; /* [n_room][...] */
    float *pixels;         /* [n_room][3 * patch * patch] */
    float *features;       /* [n_room][n_features][n_embd] outputs of several blocks; or NULL */
    float *wide, *keys, *values, *places; /* [n_room][n_out] of a resampler: patches, and what is made of them */
    float *asked, *found;                 /* [n_query][n_out] of a resampler: its queries, and what they find */
    float *merged, *part, *hidden, *out; /* [n_tokens][...] the projector's input, one patch of it, the activations between its
                                          * two matrices, and its output */
    /* (host) */
    float *pixels_host, *x_host, *merged_host, *angles_host, *places_host;
    float *deep_host;      /* [n_deep][n_tokens][n_out] */
    int32_t *order, *place; /* [n_room] the patch of each row after `cls`, and the row of each patch */
    int32_t *chosen;       /* [n_room] rows for a copy */
};

static inline uint32_t tower_patch_floats(const ae_tower_model *m)
{
    return 3 * m->patch * m->patch;
}

/* Returns the floats of a token after its patches are merged. */
static inline uint32_t tower_merged_floats(const ae_tower_model *m)
{
    return m->hparams.n_embd * m->n_features * (m->type->merge == AE_TOWER_POOL ? 1 : m->merge * m->merge);
}

/* ---- host.c ---- */

/* Fills order and place: the rows of a window are adjacent; without windows patches are in order of lines. */
void tower_order(ae_tower *t, const tower_view *view);
/* Returns the number of rows of window i_window; 0: there is no such window. */
uint32_t tower_window_rows(const ae_tower_model *m, const tower_view *view, uint32_t i_window);
uint32_t tower_n_windows(const ae_tower_model *m, uint32_t across, uint32_t down);
/* Fills pixels_host: patch by patch, each in order channel, y, x. */
void tower_cut(ae_tower *t, const ae_image *image, const tower_view *view);
/* Fills x_host [n][n_embd]: learned positions for each patch, interpolated from the table. */
void tower_positions(ae_tower *t, const tower_view *view);
/* Fills angles_host: cosines, then sines. */
void tower_angles(ae_tower *t, const tower_view *view);

/* Fills places_host [n][n_out]: sines and cosines of each patch's column and row, for a resampler's keys. */
void tower_places(ae_tower *t, const tower_view *view);

/* ---- block.c: queues operations on the stream; only the functions that say so wait ---- */

typedef struct tower_norm {
    const float *weight, *bias; /* weight NULL: no norm */
    bool layer;
    float eps;
} tower_norm;

typedef struct tower_product {
    const ae_weight *weight;
    const float *bias;
    float *y;
    uint32_t n_out;
    const ae_tower_clamp *clamp; /* NULL: none */
} tower_product;

/* Applies a norm of the encoder's own kind. */
tower_norm tower_norm_of(const ae_tower *t, const float *weight, const float *bias);
void tower_norm_rows(const ae_tower *t, float *x, uint32_t n, uint32_t dim, tower_norm norm);
void tower_copy_rows(const ae_tower *t, uint32_t n, uint32_t dim, const float *x, size_t x_stride, float *y, size_t y_stride);
/* y [n][dim] += a * x */
void tower_add_rows(const ae_tower *t, uint32_t n, uint32_t dim, float a, const float *x, size_t x_stride, float *y);
/* Products of the same rows x [n][n_in], normed. add: adds to y instead of writing it; only for products without bounds. */
void tower_products(const ae_tower *t, uint32_t n, const float *x, uint32_t n_in, tower_norm norm, const tower_product *p,
                    uint32_t n_products, bool add);

/* Starts the stream from the patches in pixels_host. */
void tower_begin(ae_tower *t, const tower_view *view);
void tower_run_block(ae_tower *t, uint32_t i, const tower_view *view);
/* Keeps the rows after n_done blocks, if they are projected with those of others. */
void tower_keep(ae_tower *t, uint32_t n_done, const tower_view *view);
/* Projects the deep rows of a block to deep_host. Waits for the device. */
void tower_deep(ae_tower *t, uint32_t i, const tower_view *view);
/* Projects the tokens to merged_host [n_tokens][n_out]. Waits for the device. */
void tower_project(ae_tower *t, const tower_view *view);

/* ---- resampler.c ---- */

/* Reserves places for the keys and values of the view's patches. */
aerie_status tower_resampler_begin(ae_tower *t, const tower_view *view, aerie_error *error);
/* tower_project with queries that attend to the patches. Waits for the device. */
void tower_resample(ae_tower *t, const tower_view *view);

#endif
