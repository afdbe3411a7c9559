/* launch.h - a launch of an emulated kernel: what the kernel sees of it, and what runs it.
 *
 * Owns: the fibers that an ae_emu_engine keeps from launch to launch. Does not own: device memory and the queue (driver.c).
 * Invariant: no state outside the engine but ae_emu_now, which is set while a launch runs on this host thread. So engines may
 * be used by several host threads, one launch at a time each.
 */
#ifndef AE_BACKEND_GPU_EMU_LAUNCH_H
#define AE_BACKEND_GPU_EMU_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AE_EMU_THREADS 1024 /* of a block, at most */

/* What a kernel was compiled for. */
typedef struct ae_emu_facts {
    uint32_t n_threads;
    uint32_t n_args; /* bytes */
} ae_emu_facts;

/* What a kernel reads of the launch under way. */
typedef struct ae_emu_view {
    uint8_t *shared; /* [n_shared] */
    uint32_t thread; /* of the block, that runs now */
    uint32_t block[3], grid[3];
} ae_emu_view;

extern __thread ae_emu_view *ae_emu_now __attribute__((tls_model("initial-exec")));

/* Called by kernels, where file and line are those of the kernel. */
void ae_emu_sync(const char *file, int line);
void ae_emu_sync_warp(const char *file, int line);
uint64_t ae_emu_shfl(uint64_t v, uint32_t lane, const char *file, int line);
/* c[4] += A B for the k of 16 or 32: a[k / 8], b[k / 16]. */
void ae_emu_mma(int32_t *c, const uint32_t *a, const uint32_t *b, int k, const char *file, int line);
void ae_emu_copy16(void *shared, const void *global, const char *file, int line);
void ae_emu_copy_commit(void);
void ae_emu_copy_wait(uint32_t n);
void ae_emu_misaligned(const void *p, size_t to, const char *file, int line) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif
#endif
