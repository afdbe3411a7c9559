/* shares.h - computes the shares of a group's processes from measured speeds and memory (shares.c). */
#ifndef AE_SESSION_GROUP_SHARES_H
#define AE_SESSION_GROUP_SHARES_H

#include "backend/backend.h"
#include "formats/gguf.h"

/* What a process knows of its machine. */
typedef struct ae_group_speed {
    double rows;     /* rows of a product that the machine computes in a second; 0: not known */
    uint64_t memory; /* free bytes; 0: not known */
    uint64_t takes_blocks; /* the device does (backend.h) */
} ae_group_speed;

/* Measures for some 0.1 s, with the threads that will compute. Fields that cannot be measured stay 0. */
void ae_group_measure(ae_backend *backend, const ae_gguf *gguf, uint32_t n_threads, ae_group_speed *own);
/* Divides `bytes` of weights: writes shares [n], each 0 to 8, not all 0. */
void ae_group_shares(const ae_group_speed *all, uint32_t n, uint64_t bytes, uint32_t *shares);
/* Returns the seconds that all processes together take for `bytes` of weights of the model's main type; 0: not known. */
double ae_group_reading(const ae_group_speed *all, uint32_t n, const ae_gguf *gguf, uint64_t bytes);

#endif
