/* hd.h - marks inline functions that kernels share with C.
 *
 * AE_HD stands before `static inline`: nothing in C and in the emulation, __host__ __device__ where nvcc compiles kernels.
 */
#ifndef AE_BASE_MATH_HD_H
#define AE_BASE_MATH_HD_H

#ifdef __CUDACC__
#define AE_HD __host__ __device__
#else
#define AE_HD
#endif

#endif
