/* mma_256.cu - products of weights of AE_DOT_256 by mma. */
#include "backend/gpu/kernels/product/mma.h"

#define DEFINE(name, NAME, c, team, run, stages, most) \
    AE_KERNEL_EARLY(mma_##name##_##c##_##team, ae_mma_args, AE_MMA_THREADS) \
    { \
        AE_SHARED(shared); \
        ae_mma_product<AE_MMA_##NAME, c, run, team, stages>(&a, shared); \
    }

AE_MMA_ALL_256(DEFINE)
