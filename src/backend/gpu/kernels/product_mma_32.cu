/* product_mma_32.cu - products by mma of weights of AE_DOT_32. */
#include "backend/gpu/kernels/mma.h"

#define AE_MMA_DEFINE(name, NAME, c, run, team, stages) \
    AE_KERNEL(mma_##name##_##c, ae_mma_args, AE_MMA_THREADS) \
    { \
        AE_SHARED(shared); \
        ae_mma_product<AE_MMA_##NAME, c, run, team, stages>(&a, shared); \
    }

#ifdef ONLY
AE_MMA_DEFINE(q4_0, Q4_0, 1, 8, 4, 3)
AE_MMA_DEFINE(q4_0, Q4_0, 2, 8, 4, 3)
AE_MMA_DEFINE(q4_0, Q4_0, 4, 4, 4, 3)
AE_MMA_DEFINE(q4_0, Q4_0, 8, 2, 4, 3)
AE_MMA_DEFINE(q4_1, Q4_1, 1, 8, 4, 3)
AE_MMA_DEFINE(q4_1, Q4_1, 2, 4, 4, 3)
AE_MMA_DEFINE(q5_0, Q5_0, 1, 8, 4, 3)
AE_MMA_DEFINE(q5_1, Q5_1, 1, 8, 4, 3)
AE_MMA_DEFINE(q8_0, Q8_0, 1, 8, 4, 3)
AE_MMA_DEFINE(iq4_nl, IQ4_NL, 1, 8, 4, 3)
AE_MMA_DEFINE(mxfp4, MXFP4, 1, 8, 4, 3)
AE_MMA_DEFINE(q4_k, Q4_K, 1, 8, 4, 3)
AE_MMA_DEFINE(q4_k, Q4_K, 2, 8, 4, 3)
AE_MMA_DEFINE(q4_k, Q4_K, 4, 8, 4, 2)
AE_MMA_DEFINE(q4_k, Q4_K, 8, 8, 4, 2)
AE_MMA_DEFINE(q5_k, Q5_K, 1, 8, 4, 3)
AE_MMA_DEFINE(q6_k, Q6_K, 1, 8, 4, 3)
AE_MMA_DEFINE(q6_k, Q6_K, 2, 8, 4, 3)
AE_MMA_DEFINE(iq4_xs, IQ4_XS, 1, 8, 4, 3)
#endif
