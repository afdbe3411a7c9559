/* product_mma_32.cu - products of weights of AE_DOT_32 by mma. */
#include "backend/gpu/kernels/mma.h"

#define AE_MMA_DEFINE(name, NAME, c, run, team, stages, blocks) \
    AE_KERNEL(mma_##name##_##c, ae_mma_args, AE_MMA_THREADS) \
    { \
        AE_SHARED(shared); \
        ae_mma_product<AE_MMA_##NAME, c, run, team, stages>(&a, shared); \
    }

AE_MMA_ALL_32(AE_MMA_DEFINE)
