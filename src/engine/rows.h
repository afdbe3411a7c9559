/* rows.h - the rows of a pass as arrays: built on the host, uploaded in one block, read by the operations on the device.
 *
 * The engine and drafter heads describe their passes with the same arrays. Owns nothing: the arrays lie in the block of
 * whoever lays them out, once on the host and once on the device.
 */
#ifndef AE_ENGINE_ROWS_H
#define AE_ENGINE_ROWS_H

#include "base/mem.h"
#include "cache/kv.h"
#include "engine/tree.h"

/* In this order in memory. A pass uploads the beginning of the block, up to its last row's path. */
typedef struct ae_rows {
    uint32_t *count;    /* rows, exported rows */
    int32_t *token, *pos, *seq, *slot, *n_inplace; /* [n_batch]; as in ae_places */
    int32_t *parent;    /* [n_batch] row of the pass that comes before it; -1: the newest live position */
    int32_t *rope_pos;  /* [n_batch] of drafter heads: the position that the row is rotated to */
    int32_t *fed_from;  /* [n_batch] of drafter heads: where a drafted row's feature is kept */
    int32_t *last;      /* [n_batch] not of drafter heads: the last position that the row sees */
    int32_t *type;      /* [n_batch] of encoders: token type */
    int32_t *place;     /* [n_batch] with a table of positions: its row, at most the last (of drafts that reach beyond) */
    int32_t *near;      /* [n_batch] of encoders: the last position that the row sees in layers with a window */
    int32_t *out_rows;  /* [n_outputs] row of each output */
    int32_t *out_fed;   /* [n_outputs] of drafter heads: where an output's feedback is kept */
    int32_t *path;      /* [n_batch][AERIE_MAX_DRAFT] */
} ae_rows;

typedef enum ae_rows_kind {
    AE_ROWS_TOKENS,
    AE_ROWS_HEAD,    /* with the arrays of drafter heads */
    AE_ROWS_ENCODER, /* with those of encoders */
    AE_ROWS_PLACED,  /* with `place` */
} ae_rows_kind;

void ae_rows_layout(ae_layout *layout, size_t n_batch, size_t n_outputs, ae_rows_kind kind, ae_rows *rows);
/* Sends the first n_rows rows of `host` to `device`. */
void ae_rows_send(const ae_rows *host, const ae_rows *device, uint32_t n_rows, uint32_t n_outputs, const ae_backend_ops *ops,
                  ae_stream *stream);
/* Sends the page tables of the rows' sequences. Rows of a sequence are adjacent. */
void ae_rows_send_tables(const ae_rows *host, uint32_t n_rows, ae_kv *kv, ae_stream *stream);
/* Both. */
void ae_rows_upload(const ae_rows *host, const ae_rows *device, uint32_t n_rows, uint32_t n_outputs, ae_kv *kv,
                    const ae_backend_ops *ops, ae_stream *stream);
/* The places of uploaded rows, in layers without a window; on the cache's device of this number. */
ae_places ae_rows_places_on(const ae_rows *device, uint32_t n_rows, const ae_kv *kv, uint32_t i_device);
ae_places ae_rows_places(const ae_rows *device, uint32_t n_rows, const ae_kv *kv);

#endif
