/* adapter.h - LoRA adapters: small matrices beside those of a network, and the rows of a pass that go through them.
 *
 * Owns: an adapter's file and its weights on the device. Borrows the network, which outlives it. Immutable once created.
 *
 * The product of a row with adapters is, one operation of the backend after the other:
 *     y  = W x (+ bias, + what y held), as without adapters
 *     t  = A x, t *= s, y += B t        for each adapter that has a pair for W, in the order of the row's set
 * with s = scale * alpha / rank, or scale where the file gives no alpha. The same operations make all other products, so a
 * row's result does not depend on the rows beside it, on their adapters, on threads or on CPU levels; rows without adapters are
 * not touched.
 *
 * The file is hostile. Source of its form: llama.cpp's convert_lora_to_gguf.py.
 */
#ifndef AE_ENGINE_WEIGHTS_ADAPTER_H
#define AE_ENGINE_WEIGHTS_ADAPTER_H

#include "engine/weights/net.h"

#define AE_ADAPTER_MAX_RANK 8192

/* What is added to a weight of the network. */
typedef struct ae_adapter_pair {
    const ae_weight *of;
    const ae_gguf_tensor *file_a, *file_b;
    uint64_t first;      /* the weight's rows are rows [first, first + n) of file_b */
    uint32_t n, rank;
    uint8_t device;      /* where the weight lies */
    ae_weight *a, *b;    /* [rank, n_in], [n, rank] */
} ae_adapter_pair;

typedef struct ae_adapter {
    const ae_net *net;
    ae_gguf *gguf;          /* owned */
    float alpha;            /* 0: the scale is not divided by the rank */
    uint32_t max_rank;
    uint32_t n_matrices;    /* of the model's file that it adapts */
    ae_adapter_pair *pairs; /* [n_pairs] ascending by `of` */
    uint32_t n_pairs;
    uint64_t serial;        /* no other adapter of the process has it */
    uint64_t fingerprint;   /* of the file, where the owner sets it: names the adapter in saved sequences */
    ae_parts parts;
} ae_adapter;

/* Takes the file over, also on failure. Errors: FORMAT (no adapter, made for another model, misshapen: what, where),
 * UNSUPPORTED (a tensor that cannot be adapted, by name), LIMIT, IO, MEMORY. */
aerie_status ae_adapter_create(ae_adapter **out, ae_gguf *gguf, const ae_net *net, const ae_load_options *options,
                               aerie_error *error);
void ae_adapter_free(ae_adapter *adapter);

/* ---- Sets: what a sequence is computed with ---- */

typedef struct ae_adapter_use {
    const ae_adapter *adapter;
    float scale; /* finite, not 0 */
} ae_adapter_use;

typedef struct ae_adapter_set {
    uint64_t key;   /* given by ae_adapter_keys; 0: no adapters */
    uint64_t scope; /* whose sequences they are (kv.h); no part of the comparison */
    uint32_t n;
    ae_adapter_use list[AERIE_MAX_ADAPTERS];
} ae_adapter_set;

/* Whatever their keys and scopes. */
bool ae_adapter_set_equal(const ae_adapter_set *a, const ae_adapter_set *b);

/* Numbers of sets: equal ones have one number, different ones never the same. Of so many sets as there is room for the newest
 * used are known; one that was forgotten gets a new number, so that nothing computed under the old one is found again. */
typedef struct ae_adapter_keys {
    ae_adapter_set *sets; /* [n_room] */
    uint64_t *used;       /* [n_room] 0: free */
    uint32_t n_room;
    uint64_t clock, last;
} ae_adapter_keys;

void ae_adapter_keys_layout(ae_layout *layout, uint32_t n_room, ae_adapter_keys *keys);
/* Sets set->key. */
void ae_adapter_keys_find(ae_adapter_keys *keys, ae_adapter_set *set);

/* ---- Products ---- */

/* Rows [first, first + n) of a product have this set. */
typedef struct ae_adapter_run {
    uint32_t first, n;
    const ae_adapter_set *set;
} ae_adapter_run;

typedef struct ae_adapter_rows {
    const ae_adapter_run *runs; /* (host) [n]; 0: no row has adapters */
    uint32_t n;
    float *t;                   /* [rows][AE_MATMUL_MAX * largest rank] f32 on the device of the product */
} ae_adapter_rows;

/* A product, and what adapters add to it. rows NULL: nothing. The results do not overlap the inputs. */
void ae_adapter_matmul(const ae_backend_ops *ops, ae_stream *stream, const ae_matmul *product, const ae_adapter_rows *rows);

#endif
