/* parts.h - the weights and vectors of a network, from a file's tensors onto a device.
 *
 * Owns: the device memory of all parts, in few pieces for each device. Borrows the file and the backends. A part is a matrix in
 * the backend's packed layout (or in place, where the file's will do) or a vector as f32; each fills a field of its network.
 * Use: ae_parts_init, ae_parts_add_device for further devices; ae_parts_weight / _rows / _vector for each; ae_parts_place;
 * then, unless only the size was wanted, ae_parts_create and ae_parts_fill. ae_parts_free in every case.
 */
#ifndef AE_ENGINE_WEIGHTS_PARTS_H
#define AE_ENGINE_WEIGHTS_PARTS_H

#include "backend/backend.h"
#include "model/model.h"

/* done of total bytes are on the device; called from the creating thread. false: stop. May be NULL. */
typedef bool ae_progress_fn(void *context, uint64_t done, uint64_t total);

typedef struct ae_load_options {
    uint32_t n_threads;
    ae_progress_fn *progress;
    void *progress_context;
    bool in_place; /* weights stay in the file's layout, used from the mapping; slower, but there is nothing to load */
    const struct ae_ranks *ranks; /* lent, as long as the network lives: those of one rank are loaded; NULL: all */
} ae_load_options;

/* One weight or vector: where it comes from, which field it fills, and its place on the device. */
typedef struct ae_part {
    ae_tensor_ref tensor; /* NULL: a vector of these numbers: */
    const float *numbers; /* [n_elements] lent; NULL: ones */
    unsigned use;       /* ae_weight_use; 0 = a vector as f32 */
    uint64_t first;     /* of a weight: its rows in the tensor, the matrices of a stack counted one after the other; of a
                         * vector: its elements */
    uint32_t n_rows;
    uint32_t n_elements; /* of a vector */
    bool is_expert;
    bool of_ffn;        /* of a layer's feed-forward block */
    uint8_t device;     /* where it lies */
    bool transposed;    /* the weight's columns are the tensor's rows: [ne[0], n_rows] */
    ae_tensor_ref scale, row_scale; /* as ae_weight_source has them; number i_scale of the first. NULL: none */
    uint32_t i_scale;
    ae_weight **weight; /* filled if use */
    float **vector;     /* filled otherwise */
    uint32_t block;     /* which of the parts' blocks, */
    size_t offset;      /* and where in it */
    size_t bytes;       /* there; 0: a weight that uses the rows where they lie */
} ae_part;

/* A piece of device memory. */
typedef struct ae_parts_block {
    void *memory;
    size_t bytes;
    uint8_t device;
} ae_parts_block;

typedef struct ae_parts {
    ae_backend *devices[AE_MAX_DEVICES];
    uint32_t n_devices;
    uint8_t on;     /* the device of parts that are added from now on */
    bool of_ffn;    /* whether they are of a feed-forward block */
    const ae_gguf *gguf;
    const ae_bound *bound; /* of the file's tensors */
    ae_part *items; /* [n], room for max */
    uint32_t n, max;
    ae_parts_block *blocks; /* [n_blocks] as few as the devices allow */
    uint32_t n_blocks;
    size_t bytes_on[AE_MAX_DEVICES]; /* of all of them on a device */
    size_t bytes;   /* on all devices */
    uint64_t fill_bytes; /* read from the file to fill weights */
    double fill_seconds;
} ae_parts;

aerie_status ae_parts_init(ae_parts *parts, ae_backend *backend, const ae_gguf *gguf, const ae_bound *bound, size_t max,
                           aerie_error *error);
/* Parts can lie on this device, too; returns its number. */
uint8_t ae_parts_add_device(ae_parts *parts, ae_backend *backend);
void ae_parts_free(ae_parts *parts);

/* Each ignores a NULL tensor. */
void ae_parts_weight(ae_parts *parts, ae_tensor_ref tensor, unsigned use, ae_weight **field);
void ae_parts_vector(ae_parts *parts, ae_tensor_ref tensor, float **field);
/* Rows [first, first + n) of a stack of matrices: expert i. */
void ae_parts_expert(ae_parts *parts, ae_tensor_ref tensor, uint32_t i, uint64_t first, uint32_t n, ae_weight **field);
/* Rows [first, first + n) of matrix i of a stack, elements of a vector. */
void ae_parts_rows(ae_parts *parts, ae_tensor_ref tensor, uint32_t i, uint64_t first, uint32_t n, ae_weight **field);
void ae_parts_range(ae_parts *parts, ae_tensor_ref tensor, uint64_t first, uint32_t n, float **field);
/* The same as the columns of a weight [ne[0], n], of floats no wider than those of the tensor. */
void ae_parts_transposed(ae_parts *parts, ae_tensor_ref tensor, uint64_t first, uint32_t n, ae_weight **field);
/* A vector of n numbers, which are lent until it is filled. */
void ae_parts_numbers(ae_parts *parts, const float *numbers, uint32_t n, float **field);
/* A vector of n ones. */
void ae_parts_ones(ae_parts *parts, uint32_t n, float **field);

/* Sizes and places; parts->bytes is known then. */
void ae_parts_place(ae_parts *parts, bool in_place);
/* Empty weights and vectors on the device, fields set. */
aerie_status ae_parts_create(ae_parts *parts, aerie_error *error);
/* Fills them: file order, all threads, a chunk each. Errors: IO, MEMORY, CANCELLED (progress said so). */
aerie_status ae_parts_fill(ae_parts *parts, const ae_load_options *options, aerie_error *error);

/* Number i of a weight's scales. FORMAT unless it is finite. */
aerie_status ae_parts_read_scale(const ae_parts *parts, ae_gguf_reader *reader, ae_tensor_ref scale, uint32_t i, float *x,
                                 aerie_error *error);

/* The type of a weight on the device. */
uint32_t ae_part_type(const ae_part *part);
/* What a pass of one row reads of it, wherever it lies: all but a lookup table. */
size_t ae_part_pass_bytes(const ae_part *part);

#endif
