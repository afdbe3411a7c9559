/* tower.h - pictures in, rows of the text model's width out: a vision encoder with its projector on a device.
 *
 * Owns: the weights, and working memory for the largest view so far: a stream, activations and a KV cache of one layer that all
 * blocks share. Borrows the backend and the thread pool. It holds the pool for one block of the encoder at a time, so that
 * sessions on the same threads can run in between.
 * Law: the rows of a picture depend on the file, the limits on tokens and the picture's pixels, and on nothing else: encoder
 * and products are the backend's operations, and what the host computes is plain arithmetic in a fixed order.
 * One user thread at a time.
 */
#ifndef AE_ENGINE_TOWER_H
#define AE_ENGINE_TOWER_H

#include "engine/weights/parts.h"
#include "image/image.h"
#include "model/tower.h"

typedef struct ae_tower ae_tower;

/* Creates a tower. Takes ownership of the model, also on failure. Errors: MEMORY, IO, FORMAT, those of the backend. */
aerie_status ae_tower_create(ae_tower **out, ae_tower_model *model, ae_backend *backend, const ae_load_options *options,
                             ae_pool *pool, aerie_error *error);
void ae_tower_free(ae_tower *tower);
const ae_tower_model *ae_tower_model_of(const ae_tower *tower);

/* How a picture of a given size is cut into views. */
typedef struct ae_tower_plan {
    uint32_t width, height;  /* pixels that it is resized to */
    uint32_t n_across, n_down; /* number of tiles; 0 x 0: the picture is not cut */
    uint32_t n_views;        /* views, which the encoder computes one after the other: tiles by row, then the whole picture */
    uint32_t skip_across, skip_down; /* tokens of the tiles together that show nothing, on each side (ae_tower_model.unpad) */
    bool whole_first;        /* the whole picture comes before the tiles */
    uint32_t view_width, view_height;   /* pixels of each tile */
    uint32_t whole_width, whole_height; /* pixels of the whole picture's view, if there are tiles */
} ae_tower_plan;

/* Plans a picture of width x height pixels. LIMIT: it exceeds the encoder's room. ARGUMENT: its shape is too long for its
 * type. */
aerie_status ae_tower_plan_make(const ae_tower_model *model, uint32_t width, uint32_t height, ae_tower_plan *plan,
                                aerie_error *error);
/* Computes the bytes of a tower's weights, and of the memory that reading a picture of this plan takes on n_threads threads,
 * without loading anything; the resulting rows are not counted. Errors: MEMORY, LIMIT (more than can be addressed). */
aerie_status ae_tower_plan_bytes(ae_tower_model *model, ae_backend *backend, const ae_load_options *options,
                                 const ae_tower_plan *plan, size_t *weights, size_t *room, aerie_error *error);
/* Returns whether view i shows the whole picture. */
bool ae_tower_is_whole(const ae_tower_plan *plan, uint32_t i);
/* Computes the size of view i in pixels. */
void ae_tower_view(const ae_tower_plan *plan, uint32_t i, uint32_t *width, uint32_t *height);
/* Returns the number of rows of view i including row breaks, and of all views together. If the tiles' rows are put together
 * (unpad), the first tile has all of them, and the others none. */
uint32_t ae_tower_view_rows(const ae_tower_model *model, const ae_tower_plan *plan, uint32_t i);
uint32_t ae_tower_plan_rows(const ae_tower_model *model, const ae_tower_plan *plan);

/* AE_TOWER_TILES: the size in pixels that a picture is resized to before it is stretched to whole tiles. */
void ae_tower_longest(const ae_tower_model *model, uint32_t width, uint32_t height, uint32_t *to_width, uint32_t *to_height);

/* AE_TOWER_FIT: the size in pixels that a picture is reduced to before black is added. */
void ae_tower_fit(const ae_tower_model *model, uint32_t width, uint32_t height, uint32_t *to_width, uint32_t *to_height);

/* Computes the size in pixels to which a picture is resized before black is added around it, for a file with grids. */
void ae_tower_grid_fit(uint32_t width, uint32_t height, const ae_tower_plan *plan, uint32_t *to_width, uint32_t *to_height);

/* Called between blocks of the encoder: `done` of `total` blocks are finished. Returning false cancels. */
typedef bool ae_tower_progress(void *user, uint64_t done, uint64_t total);

/* rows (host): one view after the other, each [rows of the view][1 + n_deep][n_out]. Errors: MEMORY, CANCELLED, those of the
 * backend. */
aerie_status ae_tower_run(ae_tower *tower, const ae_image *image, const ae_tower_plan *plan, float *rows,
                          ae_tower_progress *progress, void *user, aerie_error *error);

/* Appends to *out the text that comes before view i of a plan or, for i = n_views, after the last one. */
void ae_tower_text(const ae_tower_model *model, const ae_tower_plan *plan, uint32_t i, ae_buf *out);

#endif
