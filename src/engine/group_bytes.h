/* group_bytes.h - which of a sequence's canonical bytes each rank of a group keeps, for saving and loading sequences.
 *
 * The bytes of a position (cache/kv.h) and of a recurrent state (cache/recurrent.h) in the whole model are runs of heads,
 * channels and layers. A rank has some of these runs, in the same order, and stand-ins for layers that it has no part of. What
 * several ranks have (latent attention's rows, layers that are not cut), the first of them gives.
 *
 * Owns the lists of runs. Immutable. Every rank computes the same lists from the shapes in the model file.
 */
#ifndef AE_ENGINE_GROUP_BYTES_H
#define AE_ENGINE_GROUP_BYTES_H

#include "engine/weights/net.h"

typedef enum ae_bytes_kind {
    AE_BYTES_PAGES, /* bytes of a position in layers without a window */
    AE_BYTES_PARTS, /* bytes of a position in layers with a window */
    AE_BYTES_STATE, /* the recurrent state's */
    AE_BYTES_KINDS
} ae_bytes_kind;

/* Bytes [own, own + n) of a rank are bytes [whole, whole + n) of the whole model. */
typedef struct ae_bytes_run {
    size_t whole, own, n;
    bool gives;
} ae_bytes_run;

typedef struct ae_rank_bytes {
    ae_bytes_run *runs; /* [n] */
    size_t n, capacity;
    size_t own, given;  /* bytes that the rank has, stand-ins included; bytes that it gives to others */
} ae_rank_bytes;

typedef struct ae_group_bytes {
    size_t whole[AE_BYTES_KINDS];
    uint32_t n_ranks;
    ae_rank_bytes of[AE_MAX_RANKS][AE_BYTES_KINDS];
} ae_group_bytes;

/* Errors: MEMORY; INTERNAL: the runs do not cover all bytes. */
aerie_status ae_group_bytes_create(ae_group_bytes **out, const ae_model *model, const ae_ranks *ranks, ae_kv_type type,
                                   aerie_error *error);
void ae_group_bytes_free(ae_group_bytes *bytes);

/* Packs the bytes that a rank gives of n rows, without gaps; returns the end. */
uint8_t *ae_rank_bytes_pack(const ae_rank_bytes *bytes, const uint8_t *own, size_t n_rows, uint8_t *packed);
/* Unpacks them into rows of all bytes, [n_rows][whole]; returns the end of packed. */
const uint8_t *ae_rank_bytes_unpack(const ae_rank_bytes *bytes, const uint8_t *packed, size_t n_rows, uint8_t *all,
                                    size_t whole);
/* Copies the bytes that a rank keeps from rows of all bytes, and zeros for its stand-ins. */
void ae_rank_bytes_take(const ae_rank_bytes *bytes, const uint8_t *all, size_t whole, size_t n_rows, uint8_t *own);

#endif
