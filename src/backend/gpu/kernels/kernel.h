/* kernel.h - the language of the kernels: what a .cu file may use.
 *
 * nvcc: thin names over CUDA and PTX. g++ with AE_GPU_EMU: the emulation of emu/emu.h, where threads are fibers. Both give the
 * bits of the reference: nvcc is called with -fmad=false -ftz=false -prec-div=true -prec-sqrt=true, and +, -, *, /, sqrtf and
 * ae_fma are IEEE operations rounded to nearest in both.
 *
 * Rules for kernels: one dynamic block of shared memory (AE_SHARED); no __shared__ or static variables; no warp operation
 * without all 32 lanes; loads and stores of shared memory that other threads see go through AE_LOAD_SHARED and
 * AE_STORE_SHARED (the emulation checks alignment there); templates over integers only; no libm but sqrtf, fabsf; no references
 * or C++ classes in arguments.
 *
 *   AE_KERNEL(name, type, threads) { ... a ... }   a kernel of list.h; its arguments are `a`, a const struct
 *   AE_DEV                                         a function for the device, inlined
 *   AE_SHARED(p)                                   uint8_t *p, the block's shared memory, 16-byte aligned
 *   ae_thread(), ae_block_x(), _y(), _z(), ae_grid_x(), ae_grid_y()
 *   ae_sync()                                      all threads of the block meet; shared memory is seen
 *   ae_sync_warp()                                 the same of a warp
 *   ae_shfl(v, lane), ae_shfl_xor(v, mask)         v of another lane; int32_t, uint32_t, float or double
 *   ae_fma(a, b, c)                                fmaf, and fma of doubles
 *   ae_as_float(bits), ae_as_bits(f)               uint32_t <-> float
 *   ae_half(bits), ae_to_half(f)                   f16 bits (uint16_t) to f32 and back, to nearest even
 *   ae_dp4a(a, b, c)                               c + the dot of four s8 by four s8, int32_t
 *   ae_dp4a_us(a, b, c)                            the same, a unsigned, b signed
 *   ae_load4, ae_load8, ae_load16(p)               global memory that no kernel of this launch writes: uint32_t, uint2, uint4
 *   ae_stream16(p)                                 ae_load16 of what is read once: kept out of the first cache
 *   AE_LOAD_SHARED(type, p), AE_STORE_SHARED(type, p, v)
 *   ae_mma_s8(c, a, b)                             c += A B: m16n8k32 of s8, fragments as PTX places them
 *   ae_mma_s8_k16(c, a, b)                         m16n8k16 of s8: a[2], b[1]
 *   ae_copy16(shared, global)                      16 bytes, asynchronously: there after ae_copy_wait and ae_sync
 *   ae_copy_commit(), ae_copy_wait<n>()            a group of copies; waits until at most n groups are under way
 *   ae_max(a, b), ae_min(a, b)                     of integers
 */
#ifndef AE_BACKEND_GPU_KERNELS_KERNEL_H
#define AE_BACKEND_GPU_KERNELS_KERNEL_H

#endif
