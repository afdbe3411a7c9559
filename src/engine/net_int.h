/* net_int.h - the parts of a network, shared by net.c (tables, life) and net_load.c (filling). */
#ifndef AE_ENGINE_NET_INT_H
#define AE_ENGINE_NET_INT_H

#include "engine/net.h"

/* One weight or vector: where it comes from, which field it fills, and its place on the device. */
typedef struct ae_net_part {
    ae_tensor_ref tensor;
    unsigned use;       /* ae_weight_use; 0 = a vector as f32 */
    uint64_t first;     /* of a weight: its rows in the tensor, the matrices of a stack counted one behind the other */
    uint32_t n_rows;
    bool is_expert;
    ae_weight **weight; /* filled if use */
    float **vector;     /* filled otherwise */
    size_t offset;      /* in net->memory */
    size_t bytes;       /* there; 0: a weight that uses the rows where they lie */
} ae_net_part;

static inline uint64_t ae_net_part_elements(const ae_net_part *part)
{
    return (uint64_t)(part->tensor->ne[0] * part->tensor->ne[1]);
}

/* Fills every part whose memory is on the device: file order, all threads, a chunk each. Errors: IO, MEMORY,
 * CANCELLED (progress said so). */
aerie_status ae_net_fill(ae_net *net, const ae_net_options *options, aerie_error *error);

#endif
