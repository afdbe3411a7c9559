/* rows.h - the rows of a pass as arrays: built on the host, uploaded in one block, read by the operations on the device.
 *
 * The engine and drafter heads describe their passes with the same arrays. Owns nothing: the arrays are in the block of the
 * caller that lays them out, once on the host and once on the device.
 */
#ifndef AE_ENGINE_ROWS_H
#define AE_ENGINE_ROWS_H

#include "base/mem.h"
#include "cache/kv.h"
#include "engine/tree.h"

/* In memory the arrays are in this order. A pass uploads the beginning of the block, up to the path of its last row. */
typedef struct ae_rows {
    uint32_t *count;    /* [2] number of rows, number of exported rows */
    int32_t *token, *pos, *seq, *slot, *n_inplace; /* [n_batch]; as in ae_places */
    /* [n_batch] the row before it in its sequence, as an index into the pass; -1: the newest live position comes before it */
    int32_t *parent;
    int32_t *rope_pos;  /* [n_batch] drafter heads only: the position that the row is rotated to */
    int32_t *fed_from;  /* [n_batch] drafter heads only: where a drafted row's feature is kept */
    /* [n_batch] drafter heads with several steps only: for each chain of true rows its first and last row, and where the
     * feedback of its sequence's newest true row is kept */
    int32_t *chain_first, *chain_last, *chain_fed;
    int32_t *last;      /* [n_batch] not in drafter heads: the last position that the row sees */
    int32_t *type;      /* [n_batch] encoders only: token type */
    /* [n_batch] models with a table of positions: the row's index in the table, at most the last one (drafts may extend beyond
     * it) */
    int32_t *place;
    int32_t *near;      /* [n_batch] encoders only: the last position that the row sees in layers with a window */
    /* [n_batch] models with a source: the first position of the row's own text, and the last one of its source */
    int32_t *first, *cross;
    int32_t *out_rows;  /* [n_outputs] the row of each output */
    int32_t *out_fed;   /* [n_outputs] drafter heads only: where an output's feedback is kept */
    int32_t *path;      /* [n_batch][AERIE_MAX_DRAFT] */
} ae_rows;

typedef enum ae_rows_kind {
    AE_ROWS_TOKENS,
    AE_ROWS_HEAD,    /* with the arrays that only drafter heads have */
    AE_ROWS_STEPS,   /* the same and those of heads with several steps */
    AE_ROWS_ENCODER, /* with those of encoders */
    AE_ROWS_PLACED,  /* with `place` */
    AE_ROWS_SOURCED, /* with `first` and `cross` */
} ae_rows_kind;

void ae_rows_layout(ae_layout *layout, size_t n_batch, size_t n_outputs, ae_rows_kind kind, ae_rows *rows);
/* Sends the first n_rows rows of `host` to `device`. */
void ae_rows_send(const ae_rows *host, const ae_rows *device, uint32_t n_rows, uint32_t n_outputs, const ae_backend_ops *ops,
                  ae_stream *stream);
/* Sends the page tables of the rows' sequences. The rows of a sequence are adjacent. */
void ae_rows_send_tables(const ae_rows *host, uint32_t n_rows, ae_kv *kv, ae_stream *stream);
/* Calls ae_rows_send, then ae_rows_send_tables. */
void ae_rows_upload(const ae_rows *host, const ae_rows *device, uint32_t n_rows, uint32_t n_outputs, ae_kv *kv,
                    const ae_backend_ops *ops, ae_stream *stream);
/* Returns the places of uploaded rows in layers without a window, on the cache's device number i_device. */
ae_places ae_rows_places_on(const ae_rows *device, uint32_t n_rows, const ae_kv *kv, uint32_t i_device);
ae_places ae_rows_places(const ae_rows *device, uint32_t n_rows, const ae_kv *kv);

#endif
