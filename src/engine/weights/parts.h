/* parts.h - the weights and vectors of a network, from a file's tensors onto a device.
 *
 * Owns: the device memory of all parts, in a few blocks per device. Borrows the file and the backends. A part is a matrix in
 * the backend's packed layout (or in place, where the file's layout will do) or a vector as f32. Each part fills a field of its
 * network.
 * Use: ae_parts_init, and ae_parts_add_device for further devices; ae_parts_weight / _rows / _vector for each part;
 * ae_parts_place; then, unless only the size was wanted, ae_parts_create and ae_parts_fill. ae_parts_free in every case.
 */
#ifndef AE_ENGINE_WEIGHTS_PARTS_H
#define AE_ENGINE_WEIGHTS_PARTS_H

#include "backend/backend.h"
#include "model/model.h"

/* Progress: `done` of `total` bytes are on the device. The creating thread calls it. Returning false stops loading. May be
 * NULL. */
typedef bool ae_progress_fn(void *context, uint64_t done, uint64_t total);

typedef struct ae_load_options {
    uint32_t n_threads;
    ae_progress_fn *progress;
    void *progress_context;
    bool in_place; /* weights stay in the file's layout and are used from the mapping; slower, but nothing is loaded */
    const struct ae_ranks *ranks; /* lent for the network's lifetime: only one rank's weights are loaded; NULL: all are */
} ae_load_options;

/* Consecutive rows of a tensor, or elements of a vector. */
typedef struct ae_part_run {
    uint64_t first;
    uint32_t n;
} ae_part_run;

/* One weight or vector: where it comes from, which field it fills, and its place on the device. */
typedef struct ae_part {
    ae_tensor_ref tensor; /* NULL: a vector that no tensor has, filled from `numbers` */
    const float *numbers; /* [n_elements] lent; NULL: ones */
    unsigned use;       /* ae_weight_use; 0: a vector as f32 */
    uint64_t first;     /* first row of a weight in the tensor (counted through all matrices of a stack), or first element of a
                         * vector */
    uint32_t n_rows;
    uint32_t n_elements; /* elements of a vector */
    const ae_part_run *runs; /* [n_runs] lent: the rows or elements, counted from `first` on, if they are not consecutive; or
                              * NULL */
    uint32_t n_runs;
    bool is_expert;
    bool of_ffn;        /* the part belongs to a layer's feed-forward block */
    bool reciprocal;    /* a vector of 1 / x for each number x of the tensor */
    uint8_t device;     /* number of the part's device */
    bool transposed;    /* the weight's columns are the tensor's rows: [ne[0], n_rows] */
    ae_tensor_ref scale, row_scale; /* as in ae_weight_source; `scale` holds the part's own as number i_scale. NULL: none */
    uint32_t i_scale;
    ae_weight **weight; /* filled if use is not 0 */
    float **vector;     /* filled if use is 0 */
    uint32_t block;     /* index of the part's block */
    size_t offset;      /* bytes from the start of the block */
    size_t bytes;       /* bytes of the part in the block; 0: the weight is used in place */
} ae_part;

/* A block of device memory. */
typedef struct ae_parts_block {
    void *memory;
    size_t bytes;
    uint8_t device;
} ae_parts_block;

typedef struct ae_parts {
    ae_backend *devices[AE_MAX_DEVICES];
    uint32_t n_devices;
    uint8_t on;     /* device for the parts that are added next */
    bool of_ffn;    /* whether the parts that are added next belong to a feed-forward block */
    const ae_gguf *gguf;
    const ae_bound *bound; /* the file's bound tensors */
    ae_part *items; /* [n], room for max */
    uint32_t n, max;
    ae_parts_block *blocks; /* [n_blocks] as few as the devices allow */
    uint32_t n_blocks;
    size_t bytes_on[AE_MAX_DEVICES]; /* bytes of all parts on each device */
    size_t bytes;   /* bytes on all devices */
    uint64_t fill_bytes; /* bytes read from the file to fill weights */
    double fill_seconds;
} ae_parts;

aerie_status ae_parts_init(ae_parts *parts, ae_backend *backend, const ae_gguf *gguf, const ae_bound *bound, size_t max,
                           aerie_error *error);
/* Adds a device that parts can be on, and returns its number. */
uint8_t ae_parts_add_device(ae_parts *parts, ae_backend *backend);
void ae_parts_free(ae_parts *parts);

/* These functions ignore a NULL tensor. */
void ae_parts_weight(ae_parts *parts, ae_tensor_ref tensor, unsigned use, ae_weight **field);
void ae_parts_vector(ae_parts *parts, ae_tensor_ref tensor, float **field);
/* Adds rows [first, first + n) of expert i's matrix in a stack. */
void ae_parts_expert(ae_parts *parts, ae_tensor_ref tensor, uint32_t i, uint64_t first, uint32_t n, ae_weight **field);
/* Adds rows [first, first + n) of matrix i of a stack, or elements of a vector. */
void ae_parts_rows(ae_parts *parts, ae_tensor_ref tensor, uint32_t i, uint64_t first, uint32_t n, ae_weight **field);
void ae_parts_range(ae_parts *parts, ae_tensor_ref tensor, uint64_t first, uint32_t n, float **field);
/* Makes the part that was added last consist of these runs, which are lent until parts are freed. */
void ae_parts_runs(ae_parts *parts, const ae_part_run *runs, uint32_t n);
/* Makes the vector that was added last consist of the reciprocals of its tensor's numbers. */
void ae_parts_reciprocals(ae_parts *parts);
/* Adds the same rows as the columns of a weight [ne[0], n], as floats no wider than those of the tensor. */
void ae_parts_transposed(ae_parts *parts, ae_tensor_ref tensor, uint64_t first, uint32_t n, ae_weight **field);
/* Adds a vector of n numbers, which are lent until it is filled. */
void ae_parts_numbers(ae_parts *parts, const float *numbers, uint32_t n, float **field);
/* Adds a vector of n ones. */
void ae_parts_ones(ae_parts *parts, uint32_t n, float **field);

/* Computes sizes and places; parts->bytes is valid afterwards. */
void ae_parts_place(ae_parts *parts, bool in_place);
/* Allocates empty weights and vectors on the device, and sets the network's fields. */
aerie_status ae_parts_create(ae_parts *parts, aerie_error *error);
/* Fills the parts in file order with all threads, a chunk each. Errors: IO, MEMORY, FORMAT, CANCELLED (the progress function
 * asked for it). */
aerie_status ae_parts_fill(ae_parts *parts, const ae_load_options *options, aerie_error *error);

/* Reads number i of a weight's scales. FORMAT if it is not finite. */
aerie_status ae_parts_read_scale(const ae_parts *parts, ae_gguf_reader *reader, ae_tensor_ref scale, uint32_t i, float *x,
                                 aerie_error *error);

/* Returns the weight's type on the device. */
uint32_t ae_part_type(const ae_part *part);
/* Returns the place in the tensor of the part's row or element i, and lowers *n to the number that are consecutive from
 * there. */
uint64_t ae_part_at(const ae_part *part, uint32_t i, uint32_t *n);
/* Returns the bytes that a pass of one row reads of the part, wherever it lies; 0 for a lookup table. */
size_t ae_part_pass_bytes(const ae_part *part);

#endif
