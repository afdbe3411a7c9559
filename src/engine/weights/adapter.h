/* adapter.h - LoRA adapters: pairs of small matrices beside those of a network, and the rows of a pass that use them.
 *
 * Owns: an adapter's file and its weights on the device. Borrows the network, which outlives it. Immutable once created.
 *
 * The product of a row with adapters is, one operation of the backend after the other:
 *     y = W x (+ bias, + the old y), as without adapters
 *     t = A x, t *= s, y += B t for each adapter that has a pair for W, in the order of the row's set
 * with s = scale * alpha / rank, or scale where the file gives no alpha. The same operations make all other products, so a
 * row's result does not depend on the rows beside it, on their adapters, on threads or on CPU levels. Rows without adapters are
 * not touched.
 *
 * The file is hostile. Source of its format: llama.cpp's convert_lora_to_gguf.py.
 */
#ifndef AE_ENGINE_WEIGHTS_ADAPTER_H
#define AE_ENGINE_WEIGHTS_ADAPTER_H

#include "engine/weights/net.h"

#define AE_ADAPTER_MAX_RANK 8192

/* The two matrices whose product is added to a weight of the network. */
typedef struct ae_adapter_pair {
    const ae_weight *of;
    const ae_gguf_tensor *file_a, *file_b;
    uint64_t first;      /* the weight's rows are rows [first, first + n) of file_b */
    uint32_t n, rank;
    const ae_part_run *runs; /* [n_runs] as in ae_part */
    uint32_t n_runs;
    uint8_t device;      /* device of the weight */
    ae_weight *a, *b;    /* [rank, n_in], [n, rank] */
} ae_adapter_pair;

typedef struct ae_adapter {
    const ae_net *net;
    ae_gguf *gguf;          /* owned */
    float alpha;            /* 0: the scale is not divided by the rank */
    uint32_t max_rank;
    uint32_t n_matrices;    /* matrices of the model's file that it adapts */
    ae_adapter_pair *pairs; /* [n_pairs] in ascending order of `of` */
    uint32_t n_pairs;
    uint64_t serial;        /* unique among the adapters of the process */
    uint64_t fingerprint;   /* fingerprint of the file, if the owner sets it; identifies the adapter in saved sequences */
    ae_parts parts;
} ae_adapter;

/* Takes ownership of the file, also on failure. Errors: FORMAT (not an adapter, made for another model, or misshapen; the
 * message says what and where), UNSUPPORTED (a tensor that cannot be adapted, by name), LIMIT, IO, MEMORY. */
aerie_status ae_adapter_create(ae_adapter **out, ae_gguf *gguf, const ae_net *net, const ae_load_options *options,
                               aerie_error *error);
void ae_adapter_free(ae_adapter *adapter);

/* ---- Sets: the adapters that a sequence is computed with ---- */

typedef struct ae_adapter_use {
    const ae_adapter *adapter;
    float scale; /* finite, not 0 */
} ae_adapter_use;

typedef struct ae_adapter_set {
    uint64_t key;   /* assigned by ae_adapter_keys; 0: no adapters */
    uint64_t scope; /* the owner of the sequences (kv.h); not compared */
    uint32_t n;
    ae_adapter_use list[AERIE_MAX_ADAPTERS];
} ae_adapter_set;

/* Returns whether both have the same adapters and scales in the same order; keys and scopes are not compared. */
bool ae_adapter_set_equal(const ae_adapter_set *a, const ae_adapter_set *b);

/* Keys of sets: equal sets have the same key, different ones never do. The n_room most recently used sets are remembered. A set
 * that was forgotten gets a new key, so that nothing computed under the old one is found again. */
typedef struct ae_adapter_keys {
    ae_adapter_set *sets; /* [n_room] */
    uint64_t *used;       /* [n_room] 0: free */
    uint32_t n_room;
    uint64_t clock, last;
} ae_adapter_keys;

void ae_adapter_keys_layout(ae_layout *layout, uint32_t n_room, ae_adapter_keys *keys);
/* Looks up or assigns the key of a set, and stores it in set->key. */
void ae_adapter_keys_find(ae_adapter_keys *keys, ae_adapter_set *set);

/* ---- Products ---- */

/* Rows [first, first + n) of a product use this set. */
typedef struct ae_adapter_run {
    uint32_t first, n;
    const ae_adapter_set *set;
} ae_adapter_run;

typedef struct ae_adapter_rows {
    const ae_adapter_run *runs; /* (host) [n]; 0: no row has adapters */
    uint32_t n;
    float *t;                   /* [rows][AE_MATMUL_MAX * largest rank] f32 on the device of the product */
} ae_adapter_rows;

/* Computes a product and adds the adapters' parts; rows NULL: no adapters. The results must not overlap the inputs. */
void ae_adapter_matmul(const ae_backend_ops *ops, ae_stream *stream, const ae_matmul *product, const ae_adapter_rows *rows);

#endif
