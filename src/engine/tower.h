/* tower.h - pictures in, rows of the text model's width out: a vision encoder with its projector on a device.
 *
 * Owns: the weights, and room for the largest view so far: a stream, activations and a KV cache of one layer that all blocks
 * use. Borrows the backend and the thread pool, of which it holds one block of the encoder at a time, so that sessions on the
 * same threads run in between. Law: the rows of a picture depend on the file, on the limits of tokens, on the picture's pixels
 * and on nothing else: encoder and products are the backend's operations, and what is done here on the host is plain
 * arithmetic in a fixed order.
 * One user thread at a time.
 */
#ifndef AE_ENGINE_TOWER_H
#define AE_ENGINE_TOWER_H

#include "engine/weights/parts.h"
#include "image/image.h"
#include "model/tower.h"

typedef struct ae_tower ae_tower;

/* Takes the model over, also on failure. */
aerie_status ae_tower_create(ae_tower **out, ae_tower_model *model, ae_backend *backend, const ae_load_options *options,
                             ae_pool *pool, aerie_error *error);
void ae_tower_free(ae_tower *tower);
const ae_tower_model *ae_tower_model_of(const ae_tower *tower);
/* Bytes of its weights on the device. */
size_t ae_tower_weight_bytes(const ae_tower *tower);

/* What becomes of a picture of such a size. */
typedef struct ae_tower_plan {
    uint32_t width, height;  /* it is resized to this */
    uint32_t n_across, n_down; /* tiles; 0 x 0: none, the picture is one by itself */
    uint32_t n_views;        /* what the encoder sees one after the other: tiles by row, then the whole picture */
    uint32_t view_width, view_height;   /* pixels of each */
    uint32_t whole_width, whole_height; /* of the last one, the whole picture */
} ae_tower_plan;

/* LIMIT: it would be more than the encoder has room for; ARGUMENT: the picture is too long for its type. */
aerie_status ae_tower_plan_make(const ae_tower_model *model, uint32_t width, uint32_t height, ae_tower_plan *plan,
                                aerie_error *error);
/* Pixels of view i. */
void ae_tower_view(const ae_tower_plan *plan, uint32_t i, uint32_t *width, uint32_t *height);
/* Rows of view i, row breaks included; of all views. */
uint32_t ae_tower_view_rows(const ae_tower_model *model, const ae_tower_plan *plan, uint32_t i);
uint32_t ae_tower_plan_rows(const ae_tower_model *model, const ae_tower_plan *plan);

/* AE_TOWER_TILES: the size that a picture is resized to before it is stretched to whole tiles. */
void ae_tower_longest(const ae_tower_model *model, uint32_t width, uint32_t height, uint32_t *to_width, uint32_t *to_height);

/* Told between blocks of the encoder, done of total; false cancels. */
typedef bool ae_tower_progress(void *user, uint64_t done, uint64_t total);

/* rows (host): of each view one after the other [rows of the view][1 + n_deep][n_out]. Errors: MEMORY, CANCELLED, those of the
 * backend. */
aerie_status ae_tower_run(ae_tower *tower, const ae_image *image, const ae_tower_plan *plan, float *rows,
                          ae_tower_progress *progress, void *user, aerie_error *error);

/* Text before view i of a plan, or, for i = n_views, after the last one. Appended to *out. */
void ae_tower_text(const ae_tower_model *model, const ae_tower_plan *plan, uint32_t i, ae_buf *out);

#endif
